//! A real redis-server of a test's own, and a plain link to it.
//!
//! The link has a thread for each connection that takes whatever requests are waiting and makes one call of them, as a
//! real one does, without deadlines and without a way back from errors.

#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use tokio::sync::oneshot;
use tollgate_redis::{Link, RedisStore, Reply, Request};
use tollgate_sim::redis::RedisServer;

/// How many keyspaces a server has: each store of a test gets an empty one.
const DATABASES: usize = 4_000;
/// How many requests share a call at most.
const MOST: usize = 64;

pub(crate) struct Server {
    redis: RedisServer,
    next_database: AtomicUsize,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(options: &[&str]) -> Self {
        let databases = DATABASES.to_string();
        let redis = RedisServer::start(&[&["--databases", &databases][..], options].concat());
        Self { redis, next_database: AtomicUsize::new(0) }
    }

    /// The same on a server that was started in another way.
    pub(crate) fn on(redis: RedisServer) -> Self {
        Self { redis, next_database: AtomicUsize::new(0) }
    }

    pub(crate) fn port(&self) -> u16 {
        self.redis.port()
    }

    /// A connection to a keyspace.
    pub(crate) fn connect(&self, database: usize) -> Connection {
        let mut connection = Connection::new(TcpStream::connect(self.redis.address()).unwrap());
        if database > 0 {
            connection.command(&[b"SELECT", database.to_string().as_bytes()]).unwrap();
        }
        connection
    }

    /// A keyspace that was not given to anyone yet.
    pub(crate) fn empty_database(&self) -> usize {
        self.next_database.fetch_add(1, Ordering::Relaxed)
    }

    /// A store on `connections` connections to a keyspace.
    pub(crate) fn store(&self, script: &str, database: usize, connections: usize) -> RedisStore<PlainLink> {
        RedisStore::new(self.link(script, database, connections))
    }

    pub(crate) fn link(&self, script: &str, database: usize, connections: usize) -> PlainLink {
        let lines = (0..connections).map(|_| PlainLink::line(self.connect(database), script)).collect();
        PlainLink { lines, next: AtomicUsize::new(0), one_tag_per_call: false }
    }
}

/// The script that decides at given times, on a server whose own time is the given one as far as times to live go: what
/// would have expired by the time of a call is gone before it.
pub(crate) fn expiring(given_time: &str) -> String {
    let mut script = given_time.to_owned();
    for (usual, expiring) in [
        (
            r#"call("SET", key, value, "PX", "3600000")"#,
            r#"call("SET", key, value) call("ZADD", "ends", ends_at(till), key)"#,
        ),
        (r#"call("PEXPIRE", middle_name(key), "3600000")"#, r#"call("ZADD", "ends", ends_at(till), middle_name(key))"#),
        ("local function decide()\n", concat!("local function decide()\n", "forget_expired()\n")),
        (
            "local function answer_all()\n",
            r#"local function forget_expired()
                local earliest
                for i = 1, #args do
                  local arg = args[i]
                  local at = unpack("<d", arg, byte(arg) == 79 and #arg - 15 or 5)
                  if not earliest or at < earliest then earliest = at end
                end
                for _, key in ipairs(call("ZRANGEBYSCORE", "ends", 0, string.format("%d", earliest / 1000))) do
                  if call("DEL", key) > 0 then call("INCR", "expired") end
                  call("ZREM", "ends", key)
                end
              end
              local function answer_all()
            "#,
        ),
    ] {
        assert_eq!(script.matches(usual).count(), 1, "{usual}");
        script = script.replace(usual, expiring);
    }
    script
}

/// What Redis answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Text(String),
    Number(i64),
    Bytes(Vec<u8>),
    List(Vec<Answer>),
    Nothing,
}

impl Answer {
    pub(crate) fn bytes(self) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn number(&self) -> i64 {
        match self {
            Self::Number(number) => *number,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn list(self) -> Vec<Answer> {
        match self {
            Self::List(all) => all,
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) struct Connection {
    write: TcpStream,
    read: BufReader<TcpStream>,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        Self { write: stream.try_clone().unwrap(), read: BufReader::new(stream) }
    }

    pub(crate) fn command(&mut self, parts: &[&[u8]]) -> Result<Answer, String> {
        self.send(&encode(parts))
    }

    pub(crate) fn send_all(&mut self, sent: &[u8]) {
        self.write.write_all(sent).unwrap();
    }

    fn send(&mut self, sent: &[u8]) -> Result<Answer, String> {
        self.write.write_all(sent).map_err(|error| error.to_string())?;
        self.answer()
    }

    pub(crate) fn answer(&mut self) -> Result<Answer, String> {
        let mut line = String::new();
        self.read.read_line(&mut line).map_err(|error| error.to_string())?;
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).ok_or("the connection is closed")?;
        Ok(match kind {
            "+" => Answer::Text(rest.to_owned()),
            ":" => Answer::Number(rest.parse().unwrap()),
            "$" if rest == "-1" => Answer::Nothing,
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>().unwrap() + 2];
                self.read.read_exact(&mut bytes).map_err(|error| error.to_string())?;
                bytes.truncate(bytes.len() - 2);
                Answer::Bytes(bytes)
            }
            "*" => Answer::List((0..rest.parse().unwrap()).map(|_| self.answer()).collect::<Result<_, _>>()?),
            _ => return Err(rest.to_owned()),
        })
    }

    pub(crate) fn load(&mut self, script: &str) -> Vec<u8> {
        self.command(&[b"SCRIPT", b"LOAD", script.as_bytes()]).unwrap().bytes()
    }

    /// One call of the script for all of `requests`.
    pub(crate) fn call(&mut self, sha: &[u8], requests: &[Request]) -> Result<Vec<Reply>, String> {
        Ok(self.send(&evalsha(sha, requests))?.list().into_iter().map(|reply| Reply::from(reply.bytes())).collect())
    }
}

/// A command as it is sent.
pub(crate) fn encode(parts: &[&[u8]]) -> Vec<u8> {
    let mut sent = format!("*{}\r\n", parts.len()).into_bytes();
    for part in parts {
        sent.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
        sent.extend_from_slice(part);
        sent.extend_from_slice(b"\r\n");
    }
    sent
}

/// One call of the script for all of `requests`, as it is sent.
pub(crate) fn evalsha(sha: &[u8], requests: &[Request]) -> Vec<u8> {
    let keys: usize = requests.iter().map(Request::key_count).sum();
    let mut sent = format!("*{}\r\n$7\r\nEVALSHA\r\n$40\r\n", 3 + keys + requests.len()).into_bytes();
    sent.extend_from_slice(sha);
    let count = keys.to_string();
    sent.extend_from_slice(format!("\r\n${}\r\n{count}\r\n", count.len()).as_bytes());
    requests.iter().for_each(|request| sent.extend_from_slice(request.keys()));
    requests.iter().for_each(|request| sent.extend_from_slice(request.argument()));
    sent
}

type Waiting = (Request, oneshot::Sender<Result<Reply, String>>);

pub(crate) struct PlainLink {
    lines: Vec<mpsc::Sender<Waiting>>,
    next: AtomicUsize,
    /// As in a Cluster: such requests are also checked.
    pub(crate) one_tag_per_call: bool,
}

impl PlainLink {
    fn put_on_a_line(&self, request: Request) -> oneshot::Receiver<Result<Reply, String>> {
        let line = self.next.fetch_add(1, Ordering::Relaxed) % self.lines.len();
        let (sender, receiver) = oneshot::channel();
        // If the line is gone, the sender is too.
        let _ = self.lines[line].send((request, sender));
        receiver
    }

    fn line(mut connection: Connection, script: &str) -> mpsc::Sender<Waiting> {
        let sha = connection.load(script);
        let (sender, receiver) = mpsc::channel::<Waiting>();
        std::thread::spawn(move || {
            while let Ok(first) = receiver.recv() {
                let waiting: Vec<Waiting> = std::iter::once(first).chain(receiver.try_iter().take(MOST - 1)).collect();
                let (requests, senders): (Vec<_>, Vec<_>) = waiting.into_iter().unzip();
                let answered = connection.call(&sha, &requests);
                for (index, sender) in senders.into_iter().enumerate() {
                    let _ = sender.send(answered.as_ref().map(|replies| replies[index].clone()).map_err(Clone::clone));
                }
            }
        });
        sender
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Broken(pub(crate) String);

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Broken {}

impl Link for PlainLink {
    type Error = Broken;

    async fn call(&self, request: Request) -> Result<Reply, Broken> {
        if self.one_tag_per_call {
            let tag = [&b"{"[..], &request.tag().text(), b"}"].concat();
            let found = request.keys().windows(tag.len()).filter(|window| *window == tag).count();
            assert!(found >= request.key_count(), "all keys of a call have one tag");
        }
        self.put_on_a_line(request).await.unwrap_or_else(|_| Err("the line is gone".to_owned())).map_err(Broken)
    }

    fn send(&self, request: Request) {
        // There are several lines, so that what comes later is answered later only if this one is waited for.
        let mut answer = self.put_on_a_line(request);
        while answer.try_recv() == Err(oneshot::error::TryRecvError::Empty) {
            std::thread::yield_now();
        }
    }

    fn one_tag_per_call(&self) -> bool {
        self.one_tag_per_call
    }
}
