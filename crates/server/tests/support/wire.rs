//! Clients that keep their connections and tell how these end, which the usual clients hide: of the Redis protocol, of
//! HTTP/1.1, and of gRPC by Python.

#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(unreachable_pub, reason = "what test programs share is written for all of them")]
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Map, Value};

use super::support::{Answer, Running, tool};

/// What became of one request.
#[derive(Debug)]
pub enum Heard<T> {
    Answer(T),
    /// The other side had closed in good order before a byte of an answer came.
    Closed,
    /// Anything else: a reset, half an answer, no answer in time.
    Failed(String),
}

impl<T> Heard<T> {
    #[track_caller]
    pub fn answer(self) -> T {
        match self {
            Self::Answer(answer) => answer,
            Self::Closed => panic!("the connection was closed"),
            Self::Failed(why) => panic!("{why}"),
        }
    }
}

/// A command as clients send it.
fn encoded(words: &[&str]) -> String {
    let arguments = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    std::iter::once(format!("*{}\r\n", words.len())).chain(arguments).collect()
}

/// A connection, and how it may end.
pub struct Connection(BufReader<TcpStream>);

impl Connection {
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Whether the other side has closed, as far as is known without waiting.
    pub fn is_closed(&self) -> bool {
        let stream = self.0.get_ref();
        stream.set_nonblocking(true).expect("it can be set");
        let peeked = stream.peek(&mut [0]);
        stream.set_nonblocking(false).expect("it can be set");
        !matches!(peeked, Ok(1..)) && !matches!(&peeked, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    fn exchange<T>(&mut self, request: &[u8], read: impl FnOnce(&mut Self) -> io::Result<T>) -> Heard<T> {
        if let Err(error) = self.0.get_mut().write_all(request) {
            return Heard::Failed(format!("it does not read: {error}"));
        }
        match self.0.fill_buf() {
            Ok([]) => return Heard::Closed,
            Ok(_) => {}
            Err(error) => return Heard::Failed(format!("it does not answer: {error}")),
        }
        match read(self) {
            Ok(answer) => Heard::Answer(answer),
            Err(error) => Heard::Failed(format!("half an answer: {error}")),
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// All that is sent without being asked for, to the end.
    pub fn rest(&mut self) -> io::Result<String> {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest)?;
        Ok(String::from_utf8_lossy(&rest).into_owned())
    }

    /// One command of the Redis protocol, and its reply as JSON; errors are texts that begin with `-`.
    pub fn command(&mut self, words: &[&str]) -> Heard<Value> {
        self.exchange(encoded(words).as_bytes(), Self::reply)
    }

    /// Several commands at once, and the replies to all.
    pub fn pipeline(&mut self, commands: &[&[&str]]) -> Heard<Vec<Value>> {
        let request: String = commands.iter().map(|words| encoded(words)).collect();
        self.exchange(request.as_bytes(), |heard| commands.iter().map(|_| heard.reply()).collect())
    }

    fn reply(&mut self) -> io::Result<Value> {
        let line = self.line()?;
        let (mark, rest) = line.split_at_checked(1).ok_or(io::ErrorKind::InvalidData)?;
        let number = || rest.parse::<i64>().map_err(|_| io::Error::from(io::ErrorKind::InvalidData));
        Ok(match mark {
            ":" => number()?.into(),
            "_" => Value::Null,
            "$" if rest == "-1" => Value::Null,
            "$" => {
                let mut bytes = vec![0; usize::try_from(number()?).unwrap_or_default() + 2];
                self.0.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                String::from_utf8_lossy(&bytes).into_owned().into()
            }
            "*" => (0..number()?).map(|_| self.reply()).collect::<io::Result<Vec<_>>>()?.into(),
            "%" => {
                let mut map = Map::new();
                for _ in 0..number()? {
                    let key = self.reply()?;
                    map.insert(key.as_str().unwrap_or_default().to_owned(), self.reply()?);
                }
                map.into()
            }
            "-" => line.into(),
            _ => rest.into(),
        })
    }

    /// One request of HTTP/1.1 on a connection that is kept. `head` is the request line, and headers apart by newlines.
    pub fn http(&mut self, head: &str, body: &str) -> Heard<Answer> {
        let head = head.replace('\n', "\r\n");
        let request = format!("{head}\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        self.exchange(request.as_bytes(), Self::response)
    }

    fn response(&mut self) -> io::Result<Answer> {
        let status = self.line()?.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            match line.split_once(": ") {
                Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.to_owned())),
                None => break,
            }
        }
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let mut body = vec![0; length.and_then(|(_, length)| length.parse().ok()).unwrap_or(0)];
        self.0.read_exact(&mut body)?;
        Ok(Answer { status, headers, body: String::from_utf8_lossy(&body).into_owned() })
    }
}

/// gRPC's own client for Python, asked by lines of JSON.
pub struct Grpc {
    _process: Running,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Grpc {
    /// A client that has asked reflection for the messages.
    pub fn start(address: SocketAddr) -> Self {
        const SCRIPT: &str = "
import json
for line in sys.stdin:
    try:
        answer = method(json_format.ParseDict(json.loads(line), Request()), timeout=10)
        print(json.dumps(json_format.MessageToDict(answer)), flush=True)
    except grpc.RpcError as error:
        print(json.dumps({'error': f'{error.code().name}: {error.details()}'}), flush=True)
";
        Self::run(&format!("{}{SCRIPT}", include_str!("../grpc/client.py")), address)
    }

    /// One that tells only how asking fails, for services that let nobody in.
    pub fn start_without_reflection(address: SocketAddr) -> Self {
        const SCRIPT: &str = "
import grpc, json, sys
channel = grpc.insecure_channel(sys.argv[1])
method = channel.unary_unary('/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit')
for line in sys.stdin:
    try:
        print(json.dumps({'answer': method(b'', timeout=10).hex()}), flush=True)
    except grpc.RpcError as error:
        print(json.dumps({'error': f'{error.code().name}: {error.details()}'}), flush=True)
";
        Self::run(SCRIPT, address)
    }

    fn run(script: &str, address: SocketAddr) -> Self {
        let mut command = Command::new(tool("python"));
        command.args(["-c", script, &address.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process: Child = command.spawn().expect("Python runs");
        let questions = process.stdin.take().expect("an input");
        let answers = BufReader::new(process.stdout.take().expect("an output"));
        Self { _process: Running(process), questions, answers }
    }

    /// Asks with the JSON form of a `RateLimitRequest`.
    pub fn ask(&mut self, request: &Value) -> Value {
        writeln!(self.questions, "{request}").expect("it reads");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it answers");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }
}
