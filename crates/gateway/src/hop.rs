//! Headers that concern one hop, and end with it.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Whether a header is about one connection and not about what is said on it.
pub fn is_hop_by_hop(name: &HeaderName) -> bool {
    *name == header::CONNECTION
        || *name == header::TRANSFER_ENCODING
        || *name == header::UPGRADE
        || *name == header::TE
        || *name == header::TRAILER
        || *name == header::PROXY_AUTHENTICATE
        || *name == header::PROXY_AUTHORIZATION
        || *name == KEEP_ALIVE
        || *name == PROXY_CONNECTION
}

/// The names that `Connection` lists: they end here as well. Those that say who the client is are never among them, or a client could
/// take away what we say about it.
pub(crate) struct Nominated<'h> {
    values: Option<&'h HeaderMap>,
}

impl<'h> Nominated<'h> {
    pub(crate) fn of(headers: &'h HeaderMap) -> Self {
        let is_more = |value: &HeaderValue| {
            let value = value.as_bytes();
            !(value.eq_ignore_ascii_case(b"close") || value.eq_ignore_ascii_case(b"keep-alive"))
        };
        // Nearly always there is nothing, or nothing to look for.
        let has_more = headers.get_all(header::CONNECTION).iter().any(is_more);
        Self { values: has_more.then_some(headers) }
    }

    pub(crate) fn contains(&self, name: &HeaderName) -> bool {
        let Some(headers) = self.values else { return false };
        tokens(headers, &header::CONNECTION).any(|token| token.eq_ignore_ascii_case(name.as_str()))
    }
}

/// The elements of a list, over all headers of that name.
pub(crate) fn tokens<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',').map(str::trim)).filter(|token| !token.is_empty())
}

/// What a client wants to speak after this request: the value of `Upgrade`, if `Connection` names it as well.
pub fn upgrade_of(headers: &HeaderMap) -> Option<&HeaderValue> {
    let upgrade = headers.get(header::UPGRADE)?;
    tokens(headers, &header::CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade")).then_some(upgrade)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let line = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn connection_nominates_what_ends_here() {
        let headers = headers(&[("connection", "close, X-Secret ,x-other"), ("connection", "Foo")]);
        let nominated = Nominated::of(&headers);
        for (name, is_nominated) in [("x-secret", true), ("x-other", true), ("foo", true), ("bar", false), ("x", false)]
        {
            assert_eq!(nominated.contains(&HeaderName::from_static(name)), is_nominated, "{name}");
        }
    }

    #[test]
    fn an_upgrade_is_asked_for_by_two_headers() {
        for (lines, wanted) in [
            (&[("connection", "Upgrade"), ("upgrade", "websocket")][..], Some("websocket")),
            (&[("connection", "keep-alive, upgrade"), ("upgrade", "h2c")][..], Some("h2c")),
            (&[("upgrade", "websocket")][..], None),
            (&[("connection", "upgrade")][..], None),
            (&[("connection", "close"), ("upgrade", "websocket")][..], None),
        ] {
            let headers = headers(lines);
            assert_eq!(upgrade_of(&headers).map(|value| value.to_str().unwrap()), wanted, "{lines:?}");
        }
    }
}
