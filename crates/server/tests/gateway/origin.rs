//! A server for the gateway to stand in front of: it says what it was asked, byte for byte, and does what the path
//! says.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use quanta::Instant;

use crate::support::{eventually, pause};

/// A server that runs to the end of the test.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    connections: Arc<Mutex<usize>>,
    /// How many of them are over.
    closed: Arc<Mutex<usize>>,
    /// What `/health` says.
    is_well: Arc<AtomicBool>,
}

/// How many requests for work are being worked on, in all servers of a test.
static WORKERS: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) at: Instant,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(known, _)| known == name);
        let first = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} came once");
        first
    }
}

impl Origin {
    pub(crate) fn start() -> Self {
        Self::at(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    pub(crate) fn at(listener: TcpListener) -> Self {
        let address = listener.local_addr().unwrap();
        let (seen, connections) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)));
        let (closed, is_well) = (Arc::new(Mutex::new(0)), Arc::new(AtomicBool::new(true)));
        let shared = (Arc::clone(&seen), Arc::clone(&connections), Arc::clone(&closed), Arc::clone(&is_well));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                *shared.1.lock().unwrap() += 1;
                let (seen, closed, is_well) = (Arc::clone(&shared.0), Arc::clone(&shared.2), Arc::clone(&shared.3));
                std::thread::spawn(move || {
                    let ends = stream.local_addr().and_then(|own| Ok((own.port(), stream.peer_addr()?.port())));
                    serve(stream, &seen, &is_well);
                    if let Ok((own, peer)) = ends {
                        eventually("the other end knows", || !is_open(peer, own));
                    }
                    *closed.lock().unwrap() += 1;
                });
            }
        });
        Self { address, seen, connections, closed, is_well }
    }

    /// Has it say from now on that it is well, or not.
    pub(crate) fn is_well(&self, is_well: bool) {
        self.is_well.store(is_well, Ordering::Relaxed);
    }

    /// How many connections are over, and are known to be at both ends.
    pub(crate) fn closed(&self) -> usize {
        *self.closed.lock().unwrap()
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn last(&self) -> Seen {
        self.seen().pop().expect("somebody asked")
    }

    pub(crate) fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }
}

/// Whether the end of a connection at the port `local` still takes it for open. On a busy machine it hears of the other
/// end's leaving a moment after that.
fn is_open(local: u16, remote: u16) -> bool {
    const ESTABLISHED: &str = "01";
    let port = |end: Option<&str>| u16::from_str_radix(end?.rsplit_once(':')?.1, 16).ok();
    let connections = std::fs::read_to_string("/proc/net/tcp").unwrap();
    connections.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let ends = (port(fields.next()), port(fields.next()));
        ends == (Some(local), Some(remote)) && fields.next() == Some(ESTABLISHED)
    })
}

fn serve(stream: TcpStream, seen: &Mutex<Vec<Seen>>, is_well: &AtomicBool) {
    stream.set_nodelay(true).unwrap();
    let mut out = stream.try_clone().unwrap();
    let mut input = BufReader::new(stream);
    while let Some(request) = read(&mut input) {
        let path = request.line.split(' ').nth(1).unwrap_or_default().to_owned();
        seen.lock().unwrap().push(request.clone());
        if path == "/health" {
            let status = if is_well.load(Ordering::Relaxed) { 200 } else { 503 };
            if write!(out, "HTTP/1.1 {status} Said\r\nContent-Length: 0\r\n\r\n").is_err() {
                return;
            }
            continue;
        }
        let answered = answer(&path, &request, &mut out, &mut input);
        if answered.is_err() || answered.is_ok_and(|goes_on| !goes_on) {
            return;
        }
    }
}

fn read(input: &mut BufReader<TcpStream>) -> Option<Seen> {
    let mut line = String::new();
    if input.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let at = Instant::now();
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        input.read_line(&mut header).ok()?;
        let header = header.trim_end();
        if header.is_empty() {
            break;
        }
        let (name, value) = header.split_once(':')?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let value = |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    let mut body = Vec::new();
    if let Some(length) = value("content-length") {
        body.resize(length.parse().ok()?, 0);
        input.read_exact(&mut body).ok()?;
    } else if value("transfer-encoding").is_some() {
        loop {
            let mut size = String::new();
            input.read_line(&mut size).ok()?;
            let size = usize::from_str_radix(size.trim(), 16).ok()?;
            let mut chunk = vec![0; size + 2];
            input.read_exact(&mut chunk).ok()?;
            if size == 0 {
                break;
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }
    Some(Seen { line: line.trim_end().to_owned(), headers, body, at })
}

/// Whether the connection goes on.
fn answer(path: &str, request: &Seen, out: &mut TcpStream, input: &mut BufReader<TcpStream>) -> std::io::Result<bool> {
    let path = path.split('?').next().unwrap_or_default();
    let (kind, argument) = path.trim_start_matches('/').split_once('/').unwrap_or((path.trim_start_matches('/'), ""));
    match kind {
        // As many bytes as the path says, in one piece.
        "bytes" => {
            let body = vec![b'x'; argument.parse().unwrap_or(0)];
            write!(out, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len())?;
            out.write_all(&body)?;
        }
        // Half of an answer, of as many bytes as the path says, and then nothing until somebody leaves.
        "half" => {
            let half = vec![b'x'; argument.parse().unwrap_or(0)];
            write!(out, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 2 * half.len())?;
            out.write_all(&half)?;
            input.read_to_end(&mut Vec::new())?;
            return Ok(false);
        }
        // Pieces with a pause between, so that whoever gathers them is found out.
        "drip" => {
            write!(out, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
            for piece in 0..argument.parse().unwrap_or(3) {
                let said = format!("{piece}\n");
                write!(out, "{:x}\r\n{said}\r\n", said.len())?;
                pause(Duration::from_millis(50));
            }
            write!(out, "0\r\n\r\n")?;
        }
        // The answer is announced so often, one by one.
        "interim" => {
            for _ in 0..argument.parse().unwrap_or(1) {
                write!(out, "HTTP/1.1 102 Processing\r\n\r\n")?;
                pause(Duration::from_millis(20));
            }
            write!(out, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
        }
        "to-the-end" => {
            write!(out, "HTTP/1.1 200 OK\r\n\r\nuntil I close")?;
            return Ok(false);
        }
        "status" => {
            let status: u16 = argument.parse().unwrap_or(500);
            write!(out, "HTTP/1.1 {status} Said\r\nContent-Length: 2\r\n\r\nno")?;
        }
        "cost" => write!(out, "HTTP/1.1 200 OK\r\nX-Cost: {argument}\r\nContent-Length: 0\r\n\r\n")?,
        // So many milliseconds of work, of which four are done at a time: whoever comes fifth waits.
        "work" => {
            let (busy, one_is_free) = &WORKERS;
            let mut working = one_is_free.wait_while(busy.lock().unwrap(), |busy| *busy == 4).unwrap();
            *working += 1;
            drop(working);
            pause(Duration::from_millis(argument.parse().unwrap_or(10)));
            *busy.lock().unwrap() -= 1;
            one_is_free.notify_one();
            write!(out, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
        }
        "silence" => pause(Duration::from_secs(30)),
        // Answered and closed, which the next request finds out.
        "close" => {
            write!(out, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbye")?;
            return Ok(false);
        }
        "gone" => return Ok(false),
        "raw" => {
            let bytes = percent(argument);
            out.write_all(&bytes)?;
            return Ok(false);
        }
        "websocket" => {
            write!(out, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello")?;
            let mut bytes = [0; 1 << 10];
            loop {
                let read = input.read(&mut bytes)?;
                if read == 0 {
                    return Ok(false);
                }
                out.write_all(&bytes[..read].to_ascii_uppercase())?;
            }
        }
        "headers" => {
            write!(out, "HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n")?;
            write!(out, "X-End: 1\r\nX-End: 2\r\nRateLimit: \"theirs\";r=1\r\nContent-Length: 0\r\n\r\n")?;
        }
        _ => {
            let said = format!("{} {}", request.line, request.body.len());
            write!(out, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", said.len())?;
            if !request.line.starts_with("HEAD") {
                write!(out, "{said}")?;
            }
        }
    }
    Ok(true)
}

fn percent(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next().unwrap(), rest.next().unwrap()];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
        } else {
            bytes.push(byte);
        }
    }
    bytes
}
