//! Headers that concern one hop, and end with it.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Whether a header is about the connection, or about the length, which is told anew.
pub(crate) fn is_about_hop(name: &[u8]) -> bool {
    let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
    // Most are none of these, which their lengths tell.
    match name.len() {
        2 => is(b"te"),
        7 => is(b"upgrade") || is(b"trailer"),
        10 => is(b"connection") || is(b"keep-alive"),
        14 => is(b"content-length"),
        16 => is(b"proxy-connection"),
        17 => is(b"transfer-encoding"),
        18 => is(b"proxy-authenticate"),
        19 => is(b"proxy-authorization"),
        _ => false,
    }
}

/// The names that `Connection` lists: they end here as well. Those that say who the client is are never among them, or
/// a client could take away what we say about it.
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

/// What a client wants to speak after this request: the value of `Upgrade`, if `Connection` names it as well and
/// nothing but what is `allowed` is in it. Other wishes end here, as a server may leave any unheard.
pub fn upgrade_of<'h>(headers: &'h HeaderMap, allowed: &[impl AsRef<str>]) -> Option<&'h HeaderValue> {
    let upgrade = headers.get(header::UPGRADE)?;
    let is_allowed = |wish: &str| allowed.iter().any(|allowed| allowed.as_ref().eq_ignore_ascii_case(wish));
    let is_asked = tokens(headers, &header::CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"));
    (is_asked && wishes(upgrade)?.all(is_allowed)).then_some(upgrade)
}

/// What a value of `Upgrade` names.
fn wishes(upgrade: &HeaderValue) -> Option<impl Iterator<Item = &str>> {
    Some(upgrade.to_str().ok()?.split(',').map(str::trim))
}

/// Whether what a server agreed to is one of the things that it was asked for.
pub(crate) fn is_agreed(asked: Option<&HeaderValue>, agreed: Option<&HeaderValue>) -> bool {
    let agreed = agreed.and_then(|agreed| agreed.to_str().ok());
    let asked = asked.and_then(wishes).zip(agreed);
    asked.is_some_and(|(mut wishes, agreed)| wishes.any(|wish| wish.eq_ignore_ascii_case(agreed.trim())))
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
    fn a_server_agrees_to_what_it_was_asked_for() {
        let value = |text: &'static str| (!text.is_empty()).then(|| HeaderValue::from_static(text));
        for (asked, agreed, is_so) in [
            ("websocket", "WebSocket", true),
            ("websocket, own/1", "own/1", true),
            ("websocket", "h2c", false),
            ("websocket", "", false),
            ("", "websocket", false),
        ] {
            assert_eq!(is_agreed(value(asked).as_ref(), value(agreed).as_ref()), is_so, "{asked}: {agreed}");
        }
    }

    #[test]
    fn an_upgrade_is_asked_for_by_two_headers() {
        for (lines, wanted) in [
            (&[("connection", "Upgrade"), ("upgrade", "websocket")][..], Some("websocket")),
            (&[("connection", "keep-alive, upgrade"), ("upgrade", "WebSocket")][..], Some("WebSocket")),
            (&[("connection", "upgrade"), ("upgrade", "websocket, own/1")][..], Some("websocket, own/1")),
            (&[("connection", "upgrade, http2-settings"), ("upgrade", "h2c")][..], None),
            (&[("connection", "upgrade"), ("upgrade", "websocket, h2c")][..], None),
            (&[("connection", "upgrade"), ("upgrade", "")][..], None),
            (&[("upgrade", "websocket")][..], None),
            (&[("connection", "upgrade")][..], None),
            (&[("connection", "close"), ("upgrade", "websocket")][..], None),
        ] {
            let headers = headers(lines);
            let upgrade = upgrade_of(&headers, &["websocket", "own/1"]);
            assert_eq!(upgrade.map(|value| value.to_str().unwrap()), wanted, "{lines:?}");
        }
    }
}
