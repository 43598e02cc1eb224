//! What the load says: gRPC over HTTP/2, JSON over HTTP/1 and the protocol of Redis, each as little as servers need to
//! hear.

use std::io::Write as _;

use crate::load::Speaker;
use crate::messages::{METHOD, OK};

/// Keys are numbers of this many digits, as those of redis-benchmark.
const DIGITS: usize = 12;

/// A question with a place for a number.
struct Template {
    bytes: Vec<u8>,
    at: usize,
}

impl Template {
    /// `#` stands for the number.
    fn new(text: &[u8]) -> Self {
        let at = text.iter().position(|byte| *byte == b'#');
        let (before, after) = text.split_at(at.unwrap_or(text.len()));
        let number: &[u8] = if at.is_some() { &[b'0'; DIGITS] } else { &[] };
        let bytes = [before, number, after.get(1..).unwrap_or_default()].concat();
        Self { bytes, at: before.len() }
    }

    fn write(&self, key: u64, out: &mut Vec<u8>) {
        let begin = out.len();
        out.extend_from_slice(&self.bytes);
        if self.at == self.bytes.len() {
            return;
        }
        let mut rest = key;
        for digit in out[begin + self.at..][..DIGITS].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
    }
}

/// One client of `ShouldRateLimit`: its first request puts its headers into the table of the connection, the others
/// point there.
pub struct Grpc {
    first: Vec<u8>,
    next: Vec<u8>,
    message: Template,
    asked: u32,
    /// Streams whose message has arrived and whose trailers have not.
    has_message: Vec<bool>,
}

const HEADERS: u8 = 1;
const DATA: u8 = 0;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
}

impl Default for Grpc {
    fn default() -> Self {
        Self::new()
    }
}

impl Grpc {
    pub fn new() -> Self {
        let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
        // Indexed: POST and http. Literals that enter the table: path, authority, content-type, te, user-agent.
        let mut first = vec![0x83, 0x86];
        for (head, value) in [(0x44, METHOD), (0x41, "bench"), (0x5f, "application/grpc")] {
            first.push(head);
            first.extend(text(value));
        }
        first.push(0x40);
        first.extend(text("te"));
        first.extend(text("trailers"));
        first.push(0x7a);
        first.extend(text("tollgate-bench"));
        let next = vec![0x83, 0x86, 0x80 | 66, 0x80 | 65, 0x80 | 64, 0x80 | 63, 0x80 | 62];

        let user = format!("{:0DIGITS$}", 0);
        let entry = [field(1, b"user"), field(2, user.as_bytes())].concat();
        let descriptor = field(1, &entry);
        let message = [field(1, b"bench"), field(2, &descriptor)].concat();
        let at = message.len() - DIGITS;
        let mut data = vec![0];
        data.extend_from_slice(&(message.len() as u32).to_be_bytes());
        let message = Template { at: data.len() + at, bytes: [data, message].concat() };
        Self { first, next, message, asked: 0, has_message: Vec::new() }
    }
}

impl Speaker for Grpc {
    fn greet(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        frame(SETTINGS, 0, 0, &[], out);
        // Room for all answers of a run, so that none needs to be acknowledged.
        frame(WINDOW_UPDATE, 0, 0, &((1_u32 << 31) - 1 - 65_535).to_be_bytes(), out);
    }

    fn ask(&mut self, key: u64, out: &mut Vec<u8>) {
        let stream = self.asked * 2 + 1;
        let block = if self.asked == 0 { &self.first } else { &self.next };
        frame(HEADERS, END_HEADERS, stream, block, out);
        let length = self.message.bytes.len() as u32;
        out.extend_from_slice(&length.to_be_bytes()[1..]);
        out.extend_from_slice(&[DATA, END_STREAM]);
        out.extend_from_slice(&stream.to_be_bytes());
        self.message.write(key, out);
        self.has_message.push(false);
        self.asked += 1;
    }

    fn hear(&mut self, input: &[u8], done: &mut Vec<u32>, out: &mut Vec<u8>) -> Result<usize, String> {
        let mut used = 0;
        while let Some((head, rest)) = input[used..].split_first_chunk::<9>() {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let Some(payload) = rest.get(..length) else { break };
            used += 9 + length;
            let (kind, flags) = (head[3], head[4]);
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            let question = stream.saturating_sub(1) / 2;
            match kind {
                DATA => {
                    // Not compressed, its length, and as the first field the code.
                    let is_right = payload.len() > 7 && payload[0] == 0 && payload[5..7] == [0x08, OK as u8];
                    if !is_right {
                        return Err(format!("a wrong answer: {payload:?}"));
                    }
                    self.has_message[question as usize] = true;
                }
                HEADERS if flags & END_STREAM != 0 => {
                    // An answer that failed has no message; the trailers of one that did not are one number from the
                    // table.
                    if !self.has_message[question as usize] || payload.len() > 16 {
                        return Err(format!("a call failed: {}", String::from_utf8_lossy(payload)));
                    }
                    done.push(question);
                }
                SETTINGS if flags & ACK == 0 => frame(SETTINGS, ACK, 0, &[], out),
                PING if flags & ACK == 0 => frame(PING, ACK, 0, payload, out),
                RST_STREAM | GOAWAY => return Err(format!("the server ended a stream: frame {kind}, {payload:?}")),
                _ => {}
            }
        }
        Ok(used)
    }
}

/// One client of HTTP/1.1.
pub struct Http {
    question: Template,
    /// What each answer has to be: one of these status lines, and a body that begins with this.
    statuses: &'static [&'static [u8]],
    body: &'static [u8],
    answered: u32,
}

impl Default for Http {
    fn default() -> Self {
        Self::new()
    }
}

impl Http {
    pub fn new() -> Self {
        let body = format!(r#"{{"domain":"bench","attributes":{{"user":"{:0DIGITS$}"}}}}"#, 0);
        let head = format!(
            "POST /v1/check HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let bytes = [head.into_bytes(), body.into_bytes()].concat();
        let at = bytes.len() - DIGITS - 3;
        let question = Template { bytes, at };
        Self { question, statuses: &[b"HTTP/1.1 200 "], body: b"{\"allowed\":true", answered: 0 }
    }
}

/// One proxy that sends on the requests of many clients: of as many addresses as there are keys.
pub struct Clients {
    http: Http,
    /// Whatever the key, it is the same client.
    is_one: bool,
}

impl Clients {
    /// All of them get what they ask for.
    pub fn served() -> Self {
        let question = Template::new(b"GET /abc HTTP/1.1\r\nHost: bench\r\nUser-Agent: bench\r\nAccept: */*\r\n");
        let http = Http { question, statuses: &[b"HTTP/1.1 200 "], body: b"hello", answered: 0 };
        Self { http, is_one: false }
    }

    /// Or are told that they asked too often.
    pub fn limited() -> Self {
        let Self { http, is_one } = Self::served();
        Self { http: Http { statuses: &[b"HTTP/1.1 200 ", b"HTTP/1.1 429 "], body: b"", ..http }, is_one }
    }

    /// All questions are of one and the same client, which is none of the others.
    pub fn one() -> Self {
        Self { is_one: true, ..Self::limited() }
    }
}

impl Speaker for Clients {
    fn ask(&mut self, key: u64, out: &mut Vec<u8>) {
        let key = if self.is_one { u64::from(u32::MAX >> 8) } else { key };
        self.http.ask(key, out);
        let [_, _, _, _, a, b, c, d] = key.to_be_bytes();
        let address = std::net::Ipv4Addr::new(10 + a, b, c, d);
        // Writing to memory does not fail.
        let _ = write!(out, "X-Forwarded-For: {address}\r\n\r\n");
    }

    fn hear(&mut self, input: &[u8], done: &mut Vec<u32>, out: &mut Vec<u8>) -> Result<usize, String> {
        self.http.hear(input, done, out)
    }
}

impl Speaker for Http {
    fn ask(&mut self, key: u64, out: &mut Vec<u8>) {
        self.question.write(key, out);
    }

    fn hear(&mut self, input: &[u8], done: &mut Vec<u32>, _: &mut Vec<u8>) -> Result<usize, String> {
        let mut used = 0;
        loop {
            let rest = &input[used..];
            let Some(head) = rest.windows(4).position(|end| end == b"\r\n\r\n") else { break };
            let wrong = || format!("a wrong answer: {}", String::from_utf8_lossy(rest));
            if !self.statuses.iter().any(|status| rest.starts_with(status)) {
                return Err(wrong());
            }
            let is_length = |line: &&[u8]| line.len() > 15 && line[..15].eq_ignore_ascii_case(b"content-length:");
            let length = rest[..head].split(|byte| *byte == b'\n').find(is_length).ok_or_else(wrong)?;
            let length = std::str::from_utf8(&length[15..]).ok().and_then(|text| text.trim().parse::<usize>().ok());
            let end = head + 4 + length.ok_or_else(wrong)?;
            let Some(body) = rest.get(head + 4..end) else { break };
            if !body.starts_with(self.body) {
                return Err(wrong());
            }
            used += end;
            done.push(self.answered);
            self.answered += 1;
        }
        Ok(used)
    }
}

/// One client of Redis, or of tollgate in its place.
pub struct Resp {
    question: Template,
    /// What every answer begins with.
    expected: &'static [u8],
    answered: u32,
}

impl Resp {
    fn new(words: &[&str], expected: &'static [u8]) -> Self {
        let mut text = format!("*{}\r\n", words.len());
        for word in words {
            let length = if word.contains('#') { word.len() - 1 + DIGITS } else { word.len() };
            text.push_str(&format!("${length}\r\n{word}\r\n"));
        }
        Self { question: Template::new(text.as_bytes()), expected, answered: 0 }
    }

    pub fn ping() -> Self {
        Self::new(&["PING"], b"+PONG\r\n")
    }

    pub fn incr() -> Self {
        Self::new(&["INCR", "key:#"], b":")
    }

    /// So many at once that all are allowed, and so slowly given back that a key that was asked once stays alive for
    /// ten minutes.
    pub fn throttle() -> Self {
        Self::new(&["CL.THROTTLE", "key:#", "999999", "1", "600"], b"*5\r\n:0\r\n")
    }
}

/// The lines of one answer: as many as an array has elements, and its own.
fn lines_of(first: &[u8]) -> Option<usize> {
    match first {
        [b'*', digit, b'\r', ..] => Some(1 + usize::from(digit - b'0')),
        [b'+' | b':', ..] => Some(1),
        _ => None,
    }
}

impl Speaker for Resp {
    fn ask(&mut self, key: u64, out: &mut Vec<u8>) {
        self.question.write(key, out);
    }

    fn hear(&mut self, input: &[u8], done: &mut Vec<u32>, _: &mut Vec<u8>) -> Result<usize, String> {
        let mut used = 0;
        'answers: while input.len() > used {
            let rest = &input[used..];
            let (mut end, mut lines) = (0, None);
            while lines != Some(0) {
                let Some(length) = rest[end..].iter().position(|byte| *byte == b'\n') else { break 'answers };
                end += length + 1;
                let left = lines.or_else(|| lines_of(rest));
                lines = Some(left.ok_or_else(|| format!("a wrong answer: {}", String::from_utf8_lossy(rest)))? - 1);
            }
            if !rest.starts_with(self.expected) {
                return Err(format!("a wrong answer: {}", String::from_utf8_lossy(&rest[..end])));
            }
            used += end;
            done.push(self.answered);
            self.answered += 1;
        }
        Ok(used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_put_where_they_belong() {
        let mut out = Vec::new();
        Resp::throttle().ask(4_711, &mut out);
        let text = String::from_utf8(out).expect("text");
        assert_eq!(
            text,
            "*5\r\n$11\r\nCL.THROTTLE\r\n$16\r\nkey:000000004711\r\n$6\r\n999999\r\n$1\r\n1\r\n$3\r\n600\r\n"
        );
        let mut out = Vec::new();
        Http::new().ask(42, &mut out);
        let text = String::from_utf8(out).expect("text");
        assert!(text.ends_with(r#"{"user":"000000000042"}}"#), "{text}");
        assert!(text.contains("Content-Length: 53\r\n"), "{text}");
    }

    #[test]
    fn answers_are_counted_when_they_are_whole_and_right() {
        let mut throttle = Resp::throttle();
        let answers = b"*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n*5\r\n:0\r\n:16\r\n:1";
        let (mut done, mut out) = (Vec::new(), Vec::new());
        assert_eq!(throttle.hear(answers, &mut done, &mut out), Ok(28));
        assert_eq!(done, [0]);
        assert!(throttle.hear(b"*5\r\n:1\r\n:16\r\n:15\r\n:-1\r\n:2\r\n", &mut done, &mut out).is_err());
        assert!(throttle.hear(b"-ERR no\r\n", &mut done, &mut out).is_err());
        assert_eq!(Resp::ping().hear(b"+PONG\r\n+PONG\r\n+PO", &mut done, &mut out), Ok(14));
    }
}
