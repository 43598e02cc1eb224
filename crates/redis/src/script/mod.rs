//! The script that decides inside Redis.

/// The text of the script.
pub fn source() -> &'static str {
    ""
}
