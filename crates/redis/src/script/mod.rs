//! The script that decides inside Redis, and the bytes it is asked and answers in.
//!
//! It is one text: core's arithmetic and algorithms in Lua ([`tollgate_core::lua`]), and a driver around them that
//! reads the clock once, reads all values at once, answers every request and writes what changed. Nothing here does
//! I/O.

mod reply;
mod request;

use std::sync::LazyLock;

use tollgate_core::lua::around;

pub(crate) use reply::{Answer, Answers, Ended, Unreadable, ended, outcomes};
pub(crate) use request::{Counter, Encoder, MOST_CHARGES};

/// Values, and the commonest requests.
const FIRST: &str = include_str!("first.lua");
/// What long logs keep beside their values.
const MIDDLE: &str = include_str!("middle.lua");
/// All requests, and reservations.
const REST: &str = include_str!("rest.lua");

static SOURCE: LazyLock<String> = LazyLock::new(|| whole("false"));
static GIVEN_TIME_SOURCE: LazyLock<String> = LazyLock::new(|| whole("true"));

/// The text of the script.
pub fn source() -> &'static str {
    &SOURCE
}

/// The same for tests: it decides at the time that each request names, and keeps values for an hour whatever they are.
pub fn given_time_source() -> &'static str {
    &GIVEN_TIME_SOURCE
}

fn whole(given_time: &str) -> String {
    // Redis keeps the text; comments are for readers.
    let script = around(FIRST, &[MIDDLE, REST].concat()).replace("GIVEN_TIME", given_time);
    let lines = script.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with("--")).flat_map(|line| [line, "\n"]).collect()
}
