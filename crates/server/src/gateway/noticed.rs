//! Those headers of a request that the gateway looks at itself, found in one go: there are few, and most are none of
//! these. What rules ask for besides is for `known`.

use http::header::{HeaderMap, HeaderValue};

/// The first of each name.
#[derive(Debug, Default)]
pub(super) struct Noticed<'h> {
    pub(super) host: Option<&'h HeaderValue>,
    /// How many there are.
    pub(super) hosts: usize,
    pub(super) request_id: Option<&'h HeaderValue>,
    pub(super) forwarded_proto: Option<&'h HeaderValue>,
    pub(super) forwarded_host: Option<&'h HeaderValue>,
    pub(super) forwarded_port: Option<&'h HeaderValue>,
    pub(super) forwarded: Option<&'h HeaderValue>,
    pub(super) upgrade: Option<&'h HeaderValue>,
    pub(super) content_type: Option<&'h HeaderValue>,
    pub(super) accept: Option<&'h HeaderValue>,
}

impl<'h> Noticed<'h> {
    pub(super) fn of(headers: &'h HeaderMap) -> Self {
        let mut noticed = Self::default();
        for (name, value) in headers {
            let place = match name.as_str() {
                "host" => {
                    noticed.hosts += 1;
                    &mut noticed.host
                }
                "x-request-id" => &mut noticed.request_id,
                "x-forwarded-proto" => &mut noticed.forwarded_proto,
                "x-forwarded-host" => &mut noticed.forwarded_host,
                "x-forwarded-port" => &mut noticed.forwarded_port,
                "forwarded" => &mut noticed.forwarded,
                "upgrade" => &mut noticed.upgrade,
                "content-type" => &mut noticed.content_type,
                "accept" => &mut noticed.accept,
                _ => continue,
            };
            place.get_or_insert(value);
        }
        noticed
    }

    /// Whether the exchange lasts, so that it cannot be done without its client.
    pub(super) fn is_stream(&self) -> bool {
        let has = |value: Option<&HeaderValue>, kind: &[u8]| {
            let is_kind = |part: &[u8]| part.eq_ignore_ascii_case(kind);
            value.is_some_and(|value| value.as_bytes().windows(kind.len()).any(is_kind))
        };
        has(self.content_type, b"application/grpc") || has(self.accept, b"text/event-stream")
    }
}

#[cfg(test)]
mod tests {
    use http::header::HeaderName;

    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let line = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn the_first_of_a_name_counts_and_hosts_are_counted() {
        let headers = headers(&[("host", "a"), ("accept", "x"), ("x-other", "-"), ("accept", "y"), ("host", "b")]);
        let noticed = Noticed::of(&headers);
        let firsts = [noticed.host, noticed.accept].map(|value| value.map(HeaderValue::as_bytes));
        assert_eq!((noticed.hosts, firsts), (2, [Some(&b"a"[..]), Some(b"x")]));
        assert!(noticed.upgrade.is_none() && noticed.request_id.is_none());
    }

    #[test]
    fn what_lasts_is_told_by_its_type() {
        for (name, value, is_stream) in [
            ("accept", "text/event-stream", true),
            ("accept", "a/b, Text/Event-Stream;q=1", true),
            ("content-type", "application/grpc+proto", true),
            ("content-type", "text/event-stream", false),
            ("accept", "*/*", false),
        ] {
            assert_eq!(Noticed::of(&headers(&[(name, value)])).is_stream(), is_stream, "{name}: {value}");
        }
    }
}
