//! Where a server is: `http://host:port/path`, `https://…` or `unix:/path`.

use std::fmt;
use std::str::FromStr;

/// Where a server is, and how to speak to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// As it was written.
    text: Box<str>,
    at: At,
    /// What comes before every path, without a slash at its end.
    path: Box<str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum At {
    Tcp { host: Box<str>, port: u16, tls: bool },
    Unix(Box<str>),
}

/// What is wrong with an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressError(String);

const HELP: &str = "write http://host:port, https://host:port or unix:/path/to/socket";

impl AddressError {
    pub(crate) fn message_and_help(self) -> (String, &'static str) {
        (self.0, HELP)
    }
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {HELP}", self.0)
    }
}

impl std::error::Error for AddressError {}

impl Address {
    /// What comes before every path.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The host and, unless it is the usual one, the port: what `Host` says.
    pub fn authority(&self) -> String {
        match &self.at {
            At::Unix(_) => "localhost".to_owned(),
            At::Tcp { host, port, tls } if *port == usual_port(*tls) => host.to_string(),
            At::Tcp { host, port, .. } => format!("{host}:{port}"),
        }
    }

    /// The socket in the file system, if it is one.
    pub fn socket(&self) -> Option<&str> {
        match &self.at {
            At::Unix(path) => Some(path),
            At::Tcp { .. } => None,
        }
    }

    /// Whether the way there is encrypted.
    pub fn is_encrypted(&self) -> bool {
        matches!(self.at, At::Tcp { tls: true, .. })
    }

    /// The host's name or address and the port, for those who check where it leads. `None` for a socket in the file
    /// system.
    pub fn host_and_port(&self) -> Option<(&str, u16)> {
        match &self.at {
            At::Tcp { host, port, .. } => Some((host.trim_start_matches('[').trim_end_matches(']'), *port)),
            At::Unix(_) => None,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

const fn usual_port(tls: bool) -> u16 {
    if tls { 443 } else { 80 }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = |why: &str| AddressError(format!("`{text}` {why}"));
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(wrong("names no socket"));
            }
            return Ok(Self { text: text.into(), at: At::Unix(path.into()), path: "".into() });
        }
        let (tls, rest) = match (strip_scheme(text, "http://"), strip_scheme(text, "https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err(wrong("does not say how to speak to it")),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if path.contains(['?', '#']) {
            return Err(wrong("has a query or a fragment"));
        }
        if authority.contains('@') {
            return Err(wrong("has a login in it"));
        }
        let (host, port) = split_port(authority);
        let port = match port {
            None => usual_port(tls),
            Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(|| wrong("has a port that is none"))?,
        };
        let is_name = |host: &str| host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte));
        let is_literal = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .is_some_and(|literal| literal.parse::<std::net::Ipv6Addr>().is_ok());
        if host.is_empty() || !(is_name(host) || is_literal) {
            return Err(wrong("names no host"));
        }
        if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong("has a path with characters that have to be escaped"));
        }
        let path = path.trim_end_matches('/').into();
        Ok(Self { text: text.into(), at: At::Tcp { host: host.into(), port, tls }, path })
    }
}

fn strip_scheme<'t>(text: &'t str, scheme: &str) -> Option<&'t str> {
    let (start, rest) = text.split_at_checked(scheme.len())?;
    start.eq_ignore_ascii_case(scheme).then_some(rest)
}

/// The port is behind the last colon, unless that is within the brackets of an address.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, authority, path, tls) in [
            ("http://127.0.0.1:9000", "127.0.0.1:9000", "", false),
            ("http://api", "api", "", false),
            ("HTTP://api:80/", "api", "", false),
            ("https://api.example.com/v1/", "api.example.com", "/v1", true),
            ("https://[::1]:8443/a/b", "[::1]:8443", "/a/b", true),
            ("http://[2001:db8::1]", "[2001:db8::1]", "", false),
            ("unix:/run/app.sock", "localhost", "", false),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(
                (&*address.authority(), address.path(), address.is_encrypted()),
                (authority, path, tls),
                "{text}"
            );
            assert_eq!(address.to_string(), text);
        }
        let address: Address = "http://[::1]:8443/a".parse().unwrap();
        assert_eq!(address.host_and_port(), Some(("::1", 8443)));
    }

    #[test]
    fn what_is_no_address_is_told_why() {
        for (text, why) in [
            ("api:9000", "how to speak"),
            ("", "how to speak"),
            ("ftp://api", "how to speak"),
            ("http://", "names no host"),
            ("http://:80", "names no host"),
            ("http://a b", "names no host"),
            ("http://a:0", "port"),
            ("http://a:99999", "port"),
            ("http://a:x", "port"),
            ("http://::1", "port"),
            ("http://user:secret@a", "login"),
            ("http://a/b?c", "query"),
            ("http://a/\u{e9}", "escaped"),
            ("unix:", "socket"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
