//! Where to listen: `127.0.0.1:8080`, `:8080`, `[::1]:0`, `unix:/run/tollgate.sock`, or `off`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::str::FromStr;

/// Where a listener listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An address and a port; port 0 is any that is free.
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
    /// Nowhere.
    Off,
}

impl Address {
    /// Whether others than this machine can reach it.
    pub fn is_public(&self) -> bool {
        matches!(self, Self::Tcp(address) if !address.ip().is_loopback())
    }

    /// How this machine reaches it by HTTP.
    pub(crate) fn url(&self, scheme: &str) -> Option<String> {
        match self {
            Self::Tcp(address) if address.ip().is_unspecified() => {
                Some(format!("{scheme}://localhost:{}", address.port()))
            }
            Self::Tcp(address) => Some(format!("{scheme}://{address}")),
            _ => None,
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("off") {
            return Ok(Self::Off);
        }
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() {
                return Err("unix: needs a path, as in unix:/run/tollgate.sock".to_owned());
            }
            return Ok(Self::Unix(path.into()));
        }
        if let Some(port) = text.strip_prefix(':').and_then(|port| port.parse().ok()) {
            return Ok(Self::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)));
        }
        // Names are looked up once, now.
        let found = text.contains(':').then(|| text.to_socket_addrs().ok()).flatten();
        found
            .and_then(|mut found| found.next())
            .map(Self::Tcp)
            .ok_or_else(|| "write an address and a port such as 127.0.0.1:8080 or :8080, unix:/path, or off".to_owned())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Off => f.write_str("off"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_shown() {
        for text in ["127.0.0.1:8080", "0.0.0.0:1", "[::1]:0", "unix:/run/a.sock", "off"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert_eq!(":8080".parse::<Address>().unwrap().to_string(), "0.0.0.0:8080");
        assert!(!"localhost:1".parse::<Address>().unwrap().is_public());
        assert_eq!("unix:///a".parse::<Address>().unwrap().to_string(), "unix:/a");
        for text in ["", "8080", "1.2.3.4", "no such host:1", "unix:", ":99999"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_others_can_reach_is_public() {
        for (text, public) in
            [("127.0.0.1:1", false), ("[::1]:1", false), (":1", true), ("unix:/a", false), ("off", false)]
        {
            assert_eq!(text.parse::<Address>().unwrap().is_public(), public, "{text}");
        }
    }
}
