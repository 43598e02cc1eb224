//! What clients send who want to be read in two ways, and what becomes of it; beside it what looks like that and is
//! clear.

/// What follows each of the attacks, for whoever takes it for a request.
pub(crate) const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

/// What is told.
const TWICE: &str = "told twice";
const NO_LENGTH: &str = "no number of bytes";
const ENCODING: &str = "transfer encoding is not supported";
const LINE_FEED: &str = "a line feed alone";
const FOLDED: &str = "goes on in the next line";
const HOST: &str = "Host is no name";
const SEVERAL: &str = "more than one Host";
pub(crate) const NONE: &str = "no Host";
const OTHER: &str = "another host";
const PATH: &str = "more than one way";
const NO_PATH: &str = "begins with a slash";
const NO_HTTP: &str = "this is no HTTP";
const NO_REQUEST: &str = "the first line is no request";
const VERSION: &str = "this version of HTTP is not spoken";
const NO_HEADER: &str = "is no header";

/// What becomes of it.
#[derive(Clone, Debug)]
pub(crate) enum Fate {
    /// It is refused with this status in these words, and the connection ends.
    Ended(&'static str, &'static str),
    /// It is refused, and the connection goes on.
    Refused(&'static str, &'static str),
    /// It was allowed, and its body breaks off: 400, and no server has seen the whole of it.
    Broken,
    /// It is these requests, and the connection goes on.
    Passed(Vec<&'static str>),
    /// It is these requests, and the connection ends as it was asked to.
    Last(Vec<&'static str>),
}

pub(crate) type Case = (Vec<u8>, Fate);

pub(crate) fn cases() -> Vec<Case> {
    [lengths(), encodings(), lines(), nonsense(), hosts(), paths(), sizes(), broken_bodies(), clear()].concat()
}

fn post(lines: &str, body: &str) -> Vec<u8> {
    format!("POST /post HTTP/1.1\r\nHost: a\r\n{lines}\r\n{body}").into_bytes()
}

fn get(lines: &str) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\n{lines}\r\n").into_bytes()
}

fn line(line: &str) -> Vec<u8> {
    format!("{line}\r\nHost: a\r\n\r\n").into_bytes()
}

/// Two lengths, or none that is one.
fn lengths() -> Vec<Case> {
    let twice = Fate::Ended("400", TWICE);
    let mut cases = Vec::new();
    for lines in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "content-length: 5\r\nX: 1\r\nTRANSFER-ENCODING: chunked\r\n",
        "Transfer-Encoding: Chunked\r\nX: 1\r\nX: 2\r\nCONTENT-LENGTH: 0\r\n",
        "Content-Length: 0\r\nContent-Length: 36\r\n",
        "Content-Length: 0\r\nContent-Length: 0\r\n",
        "Content-Length: 5\r\ncontent-length: 5\r\n",
        "Content-Length: 0\r\nX: 1\r\nContent-Length: 99999999999999999999\r\n",
    ] {
        cases.push((post(lines, "0\r\n\r\n"), twice.clone()));
    }
    for length in [
        "0, 0",
        "5,5",
        "5,",
        "+36",
        "+0",
        "-1",
        "-0",
        "0x2",
        "2 2",
        "2\t2",
        "",
        "99999999999999999999",
        "18446744073709551616",
        "18446744073709551615",
        "1_0",
        "1e1",
        "5.0",
        "5;",
        "\"5\"",
        "'5'",
        "5 bytes",
        "five",
        "\u{0665}",
        "5\u{a0}",
    ] {
        cases.push((post(&format!("Content-Length: {length}\r\n"), "ab"), Fate::Ended("400", NO_LENGTH)));
    }
    cases
}

/// Encodings that are not exactly `chunked`.
fn encodings() -> Vec<Case> {
    let mut cases = Vec::new();
    for encoding in [
        "xchunked",
        "chunkedx",
        "gzip, chunked",
        "chunked, gzip",
        "chunked, identity",
        "chunked, chunked",
        "identity",
        "\"chunked\"",
        "chunked\r\nTransfer-Encoding: chunked",
        "chunked\r\nTransfer-Encoding: identity",
        "identity\r\nTransfer-Encoding: chunked",
        "",
        "chunked,",
        ",chunked",
        "chunked;q=1",
        "chunked chunked",
        "ch unked",
        "chun\tked",
        "deflate",
        "chunked\u{a0}",
        "\u{212a}hunked",
    ] {
        let lines = format!("Transfer-Encoding: {encoding}\r\n");
        cases.push((post(&lines, "0\r\n\r\n"), Fate::Ended("400", ENCODING)));
    }
    for more in ["", "Connection: keep-alive\r\n", "Content-Length: 5\r\n"] {
        let old = format!("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n{more}\r\n0\r\n\r\n");
        cases.push((old.into_bytes(), Fate::Ended("400", ENCODING)));
    }
    cases
}

/// Lines that end where others see no end, or go on where others see one.
fn lines() -> Vec<Case> {
    let line_feed = |sent: Vec<u8>| (sent, Fate::Ended("400", LINE_FEED));
    let folded = |sent: Vec<u8>| (sent, Fate::Ended("400", FOLDED));
    vec![
        line_feed(b"GET / HTTP/1.1\nHost: a\n\n".to_vec()),
        line_feed(b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()),
        line_feed(get("Host: a\r\nX: 1\nContent-Length: 30\r\n")),
        line_feed(get("Host: a\r\nX: 1\nTransfer-Encoding: chunked\r\n")),
        line_feed(get("Host: a\nX: 1\r\n")),
        line_feed(b"GET / HTTP/1.1\r\nHost: a\r\n\n".to_vec()),
        line_feed(b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\n\r\n".to_vec()),
        line_feed(b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\n\n".to_vec()),
        folded(get("Host: a\r\n X: folded\r\n")),
        folded(get("Host: a\r\n\tX: folded\r\n")),
        folded(get("Host: a\r\nX: 1\r\n Content-Length: 30\r\n")),
        folded(get("Host: a\r\nX: 1\r\n \r\n")),
        folded(get(" Host: a\r\n")),
        folded(post("Content-Length: 1\r\n 0\r\n", "ab")),
        (post("Content-Length:\r\n 5\r\n", "abcde"), Fate::Ended("400", NO_LENGTH)),
        (post("Transfer-Encoding:\r\n chunked\r\n", "0\r\n\r\n"), Fate::Ended("400", ENCODING)),
    ]
}

/// What is no HTTP, or none that is spoken here.
fn nonsense() -> Vec<Case> {
    let headers = [
        get("Host: a\r\nX: a\rb\r\n"),
        get("Host: a\r\nX: a\rContent-Length: 30\r\n"),
        get("Host: a\r\nX\0Y: 1\r\n"),
        get("Host: a\r\nX: a\0b\r\n"),
        get("Host: a\r\nX: a\u{7f}b\r\n"),
        get("Host: a\r\nX: a\u{b}b\r\n"),
        get("Host: a\r\nX Y: 1\r\n"),
        get("Host: a\r\nX(Y): 1\r\n"),
        get("Host : a\r\n"),
        get("Host: a\r\n: 1\r\n"),
        get("Host: a\r\nX\r\n"),
        post("Content-Length : 5\r\n", "abcde"),
        post("Content-Length\t: 5\r\n", "abcde"),
        post("Content-Length\0: 5\r\n", "abcde"),
        post("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"),
        post("Transfer-Encoding\u{b}: chunked\r\n", "0\r\n\r\n"),
        post("Transfer-Encoding: chunked\u{c}\r\n", "0\r\n\r\n"),
        b"GET / HTTP/1.1\r\nHost: a\r\nX\x80: 1\r\n\r\n".to_vec(),
    ];
    let first_lines = [
        line("GET  / HTTP/1.1"),
        line("GET /  HTTP/1.1"),
        line("GET / HTTP/1.1 "),
        line("GET\t/ HTTP/1.1"),
        line("GET / http/1.1"),
        line("GET /"),
        line("GET /a b HTTP/1.1"),
        line("GET /a\u{1}b HTTP/1.1"),
        line("G\tET / HTTP/1.1"),
        line("G(T / HTTP/1.1"),
        line("HTTP/1.1 200 OK"),
    ];
    let versions = [
        line("GET / HTTP/1.2"),
        line("GET / HTTP/1.10"),
        line("GET / HTTP/2.0"),
        line("GET / HTTP/0.9"),
        line("GET / HTTP/1"),
        b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n".to_vec(),
    ];
    let others = [
        line(" GET / HTTP/1.1"),
        b"\0\0\0\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03\r\n\r\n".to_vec(),
    ];
    let ended = |why: &'static str| move |sent: Vec<u8>| (sent, Fate::Ended("400", why));
    let headers = headers.into_iter().map(ended(NO_HEADER));
    let first_lines = first_lines.into_iter().map(ended(NO_REQUEST));
    let versions = versions.into_iter().map(ended(VERSION));
    headers.chain(first_lines).chain(versions).chain(others.into_iter().map(ended(NO_HTTP))).collect()
}

/// Hosts that others read differently.
fn hosts() -> Vec<Case> {
    let refused = |sent: Vec<u8>, why: &'static str| (sent, Fate::Refused("400", why));
    let mut cases = vec![
        refused(get("Host: a\r\nHost: b\r\n"), SEVERAL),
        refused(get("Host: a\r\nHost: a\r\n"), SEVERAL),
        refused(get("host: a\r\nX: 1\r\nHOST: b\r\n"), SEVERAL),
        refused(get(""), NONE),
        refused(get("X-Host: a\r\n"), NONE),
        refused(line("GET http://b/ HTTP/1.1"), OTHER),
        refused(line("GET http://b:80/ HTTP/1.1"), OTHER),
        refused(line("GET https://b/ HTTP/1.1"), OTHER),
        (b"CONNECT b:443 HTTP/1.1\r\nHost: b:443\r\n\r\n".to_vec(), Fate::Refused("405", "CONNECT")),
        refused(line("CONNECT a:443 HTTP/1.1"), OTHER),
        refused(line("GET * HTTP/1.1"), NO_PATH),
        refused(b"GET a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n".to_vec(), NO_PATH),
    ];
    for host in [
        "", "a/b", "a b", "user@a", "a,b", "a?b", "a#b", "a\\b", "[::1", "::1", "a]", "[]", "[::1]80", "[a/b]", "a:b",
        "a:80:b", ":80", "a:-1", "a;b", "<a>",
    ] {
        cases.push(refused(get(&format!("Host: {host}\r\n")), HOST));
    }
    cases
}

/// Paths that others read differently.
fn paths() -> Vec<Case> {
    let mut cases = Vec::new();
    for path in [
        "/a/../b",
        "/..",
        "/./a",
        "/a/.",
        "/a/%2e%2e/b",
        "/a/.%2E/b",
        "/%2e/a",
        "/a%2f..%2fb",
        "/a%2Fb",
        "/a%5cb",
        "/a%5Cb",
        "/%00",
        "/a/..;/b",
        "/a/..;x=y/b",
        "/%zz",
        "/%",
        "/a%2",
        "/%u002e",
    ] {
        cases.push((line(&format!("GET {path} HTTP/1.1")), Fate::Refused("400", PATH)));
    }
    cases
}

/// More than anybody needs.
fn sizes() -> Vec<Case> {
    let large = "y".repeat(100_000);
    vec![
        (get(&format!("Host: a\r\nX: {large}\r\n")), Fate::Ended("431", "too large")),
        (get(&format!("Host: a\r\n{large}: 1\r\n")), Fate::Ended("431", "too large")),
        (line(&format!("GET /{large} HTTP/1.1")), Fate::Ended("431", "too large")),
        (get(&format!("Host: a\r\n{}", "X: y\r\n".repeat(200))), Fate::Ended("431", "too many headers")),
        (get(&format!("Host: a\r\n{}", "X: y\r\n".repeat(64))), Fate::Ended("431", "too many headers")),
    ]
}

/// Bodies in chunks that are not what they say.
fn broken_bodies() -> Vec<Case> {
    let (extension, trailer) =
        (format!("1;{}\r\na\r\n", "x".repeat(20_000)), format!("0\r\nX: {}", "y".repeat(20_000)));
    let mut cases = Vec::new();
    for body in [
        "ffffffffffffffff1\r\n",
        "00000000000000001\r\na\r\n0\r\n\r\n",
        "-1\r\n",
        "+1\r\na\r\n0\r\n\r\n",
        " 1\r\na\r\n0\r\n\r\n",
        "x\r\n",
        "\r\n",
        ";x\r\n",
        "1\r\nab\r\n",
        "1\r\na0\r\n\r\n",
        "2\r\na\r\n\r\n0\r\n\r\n",
        "1\na\r\n",
        "1\r\ra\r\n",
        "1;x\na\r\n0\r\n\r\n",
        "1\r\na\n0\r\n\r\n",
        "0\r\n\n",
        "0\r\nX: 1\n\r\n",
        "0\r\n\rX",
        "1 1\r\n",
        "0x1\r\na\r\n",
        "1,\r\na\r\n0\r\n\r\n",
        "1\0\r\na\r\n0\r\n\r\n",
        &extension,
        &trailer,
    ] {
        cases.push((post("Transfer-Encoding: chunked\r\n", body), Fate::Broken));
    }
    cases
}

/// What can be read in one way only.
fn clear() -> Vec<Case> {
    let inner = "GET /inner HTTP/1.1\r\nHost: a\r\n\r\n";
    let own = inner.len();
    let chunk = format!("{own:x}\r\n{inner}\r\n0\r\n\r\n");
    let posted = |sent: Vec<u8>| (sent, Fate::Passed(vec!["POST /post"]));
    let got = |sent: Vec<u8>| (sent, Fate::Passed(vec!["GET /"]));
    let last = |sent: &[u8], path: &'static str| (sent.to_vec(), Fate::Last(vec![path]));
    vec![
        posted(post(&format!("Content-Length: {own}\r\n"), inner)),
        posted(post(&format!("Content-Length: 00{own}\r\n"), inner)),
        posted(post(&format!("CONTENT-LENGTH:{own}\t \r\n"), inner)),
        posted(post("Transfer-Encoding: chunked\r\n", &chunk)),
        posted(post("transfer-encoding:\tCHUNKED \r\n", &chunk)),
        posted(post("Transfer-Encoding: chunked\r\n", &format!("000{}", chunk.to_ascii_uppercase()))),
        posted(post("Transfer-Encoding: chunked\r\n", &format!("0a;x=\"y\"\r\n0123456789\r\n{chunk}"))),
        posted(post("Transfer-Encoding: chunked\r\n", "1 ;x\r\na\r\n0\r\nContent-Length: 30\r\nX: 1\r\n\r\n")),
        posted(post("Transfer-Encoding: chunked\r\n", "0;x\r\nTransfer-Encoding: gzip\r\n\r\n")),
        posted(post("Content_Length: 30\r\nTransfer_Encoding: chunked\r\n", "")),
        posted(post(&format!("Connection: Content-Length\r\nContent-Length: {own}\r\n"), inner)),
        posted(post("Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n", &chunk)),
        posted(post(&format!("Expect: 100-continue\r\nContent-Length: {own}\r\n"), inner)),
        posted(post("Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n", &chunk)),
        posted(post("Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\n", "")),
        got([get(&format!("Host: a\r\nContent-Length: {own}\r\n")), inner.into()].concat()),
        got(get("Host: a\r\nConnection: X-Forwarded-For, Host\r\n")),
        got(get("Host: a\r\nX-Content-Length: 30\r\nX-Transfer-Encoding: chunked\r\n")),
        got(b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()),
        got(line("GET http://a/ HTTP/1.1")),
        got(get("Host: [::1]:8000\r\n")),
        got(get("Host: [::ffff:127.0.0.1]\r\n")),
        got(get("Host: my_service-1.example.:65535\r\n")),
        got(get("Host: a:\r\n")),
        got(line("GET /?/../a%2fb HTTP/1.1")),
        (line("HEAD /head HTTP/1.1"), Fate::Passed(vec!["HEAD /head"])),
        (line("BREW /pot HTTP/1.1"), Fate::Passed(vec!["BREW /pot"])),
        (line("GET /a%20b HTTP/1.1"), Fate::Passed(vec!["GET /a%20b"])),
        (line("GET /a%0d%0aX:%201 HTTP/1.1"), Fate::Passed(vec!["GET /a%0d%0aX:%201"])),
        (line("GET /a;b=c HTTP/1.1"), Fate::Passed(vec!["GET /a;b=c"])),
        (line("GET /%252e%252e/b HTTP/1.1"), Fate::Passed(vec!["GET /%252e%252e/b"])),
        (
            [line("GET /1 HTTP/1.1"), post("Content-Length: 3\r\n", "GET"), line("GET /2 HTTP/1.1")].concat(),
            Fate::Passed(vec!["GET /1", "POST /post", "GET /2"]),
        ),
        last(b"GET /old HTTP/1.0\r\nHost: a\r\n\r\n", "GET /old"),
        last(b"POST /old HTTP/1.0\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", "POST /old"),
        last(b"GET /end HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "GET /end"),
        last(b"GET /end HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\nConnection: keep-alive\r\n\r\n", "GET /end"),
        last(b"POST /end HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc", "POST /end"),
    ]
}
