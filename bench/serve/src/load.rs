//! Load from one thread that costs little, so that it is the server that is measured: questions are templates with a
//! number put in, answers are read only as far as it takes to know that they are right. What a client sees besides is
//! for the tests.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};

use crate::process;

/// The longest that a run may stand still.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
const BUFFER: usize = 256 << 10;

/// One side of a connection: writes questions, reads answers.
pub trait Speaker {
    /// Whatever a connection begins with.
    fn greet(&mut self, _out: &mut Vec<u8>) {}

    /// Appends a question about key `key`.
    fn ask(&mut self, key: u64, out: &mut Vec<u8>);

    /// Reads answers, as many as there are, and says how many bytes they took. Appends to `done` the number of each
    /// question that is answered (the first on a connection is 0), and to `out` what has to be said in return. An
    /// answer that is wrong is an error.
    fn hear(&mut self, input: &[u8], done: &mut Vec<u32>, out: &mut Vec<u8>) -> Result<usize, String>;
}

/// Makes one for each connection.
pub type Speak<'a> = &'a dyn Fn() -> Box<dyn Speaker>;

/// Which keys are asked for.
#[derive(Clone, Copy, Debug)]
pub enum Keys {
    /// Each of so many as likely as another.
    Any(u64),
    /// Each of so many once, and then an end.
    Once(u64),
}

/// How to ask.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub connections: usize,
    /// Questions on a connection that are not yet answered.
    pub depth: usize,
    /// Ask again only when all of them are answered, as redis-benchmark does.
    pub in_batches: bool,
    pub keys: Keys,
}

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    pub answers: u64,
    pub wall: Duration,
    /// CPU time of the server.
    pub server: Duration,
    /// How much of the two cores went to others meanwhile.
    pub disturbed: f64,
}

impl Ran {
    pub fn per_second(&self) -> f64 {
        self.answers as f64 / self.wall.as_secs_f64()
    }

    /// Microseconds of CPU time per answer.
    pub fn cpu(&self) -> f64 {
        self.server.as_secs_f64() * 1e6 / self.answers as f64
    }

    /// How much of one core the server took.
    pub fn busy(&self) -> f64 {
        self.server.as_secs_f64() / self.wall.as_secs_f64()
    }
}

pub(crate) struct Connection {
    stream: TcpStream,
    speaker: Box<dyn Speaker>,
    out: Vec<u8>,
    input: Vec<u8>,
    filled: usize,
    pub(crate) in_flight: usize,
}

impl Connection {
    fn open(address: SocketAddr, speak: Speak<'_>) -> Result<Self, String> {
        let stream = TcpStream::connect(address).map_err(|error| format!("{address}: {error}"))?;
        stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true)).map_err(|error| error.to_string())?;
        let (mut speaker, mut out) = (speak(), Vec::new());
        speaker.greet(&mut out);
        Ok(Self { stream, speaker, out, input: vec![0; BUFFER], filled: 0, in_flight: 0 })
    }

    /// Reads once. The numbers of the questions that are answered are in `done`.
    pub(crate) fn read(&mut self, done: &mut Vec<u32>) -> Result<(), String> {
        match self.stream.read(&mut self.input[self.filled..]) {
            Ok(0) => return Err("the server closed a connection".to_owned()),
            Ok(bytes) => self.filled += bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.to_string()),
        }
        let before = done.len();
        let used = self.speaker.hear(&self.input[..self.filled], done, &mut self.out)?;
        self.input.copy_within(used..self.filled, 0);
        self.filled -= used;
        let answered = done.len() - before;
        self.in_flight = self.in_flight.checked_sub(answered).ok_or("more answers than questions")?;
        Ok(())
    }

    /// Writes everything. So little is ever in flight that the system always has room for it.
    pub(crate) fn write(&mut self) -> Result<(), String> {
        let started = Instant::now();
        let mut rest = &self.out[..];
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(bytes) => rest = &rest[bytes..],
                Err(error) if error.kind() == ErrorKind::WouldBlock && started.elapsed() < PATIENCE => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        self.out.clear();
        Ok(())
    }

    pub(crate) fn ask(&mut self, key: u64) {
        self.speaker.ask(key, &mut self.out);
        self.in_flight += 1;
    }
}

/// The keys of one run, in their order.
pub(crate) struct Order {
    keys: Keys,
    next: u64,
}

impl Order {
    /// Others than those of the run before.
    pub(crate) fn new(keys: Keys) -> Self {
        Self { keys, next: seed(keys) }
    }

    pub(crate) fn next(&mut self) -> Option<u64> {
        let number = self.next;
        self.next += 1;
        match self.keys {
            Keys::Any(keys) => Some(mix(number) % keys),
            Keys::Once(keys) => (number < keys).then_some(number),
        }
    }
}

fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Asks for `warm_up` and then for `time`, which is measured, the next question as soon as one is answered.
pub fn run(
    address: SocketAddr,
    (server, behind): (u32, Option<u32>),
    speak: Speak<'_>,
    shape: Shape,
    warm_up: Duration,
    time: Duration,
) -> Result<Ran, String> {
    let mut order = Order::new(shape.keys);
    let mut connections = open(address, speak, shape.connections)?;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| error.to_string())?;
    watch(&poll, 0, &connections)?;
    for connection in &mut connections {
        fill(connection, shape, &mut order);
        connection.write()?;
    }
    let mut measured: Option<Usage> = None;
    let mut is_patient = true;
    let started = Instant::now();
    let (mut answers, mut done, mut events) = (0, Vec::new(), Vec::with_capacity(64));
    let mut last = started;
    loop {
        events.clear();
        let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        let buffer = rustix::buffer::spare_capacity(&mut events);
        epoll::wait(&poll, buffer, Some(&patience)).map_err(|error| error.to_string())?;
        if events.is_empty() && is_patient {
            // A machine that stood still as a whole wakes up to a time that has run out.
            is_patient = false;
            continue;
        }
        if events.is_empty() {
            return Err(format!("no answer within {:?}", PATIENCE * 2));
        }
        for event in &events {
            let connection = &mut connections[event.data.u64() as usize];
            connection.read(&mut done)?;
            answers += done.len() as u64;
            done.clear();
            if !shape.in_batches || connection.in_flight == 0 {
                fill(connection, shape, &mut order);
            }
            connection.write()?;
        }
        let now = Instant::now();
        if connections.iter().all(|connection| connection.in_flight == 0) && matches!(shape.keys, Keys::Once(_)) {
            return Ok(Ran { answers, wall: now - started, server: Duration::ZERO, disturbed: 0.0 });
        }
        if now - last < Duration::from_micros(500) {
            continue;
        }
        last = now;
        match &measured {
            None if now - started >= warm_up && !matches!(shape.keys, Keys::Once(_)) => {
                answers = 0;
                measured = Some(Usage::new(server, behind)?);
            }
            Some(since) if since.begun.elapsed() >= time => {
                let (wall, server, disturbed) = since.elapsed()?;
                return Ok(Ran { answers, wall, server, disturbed });
            }
            _ => {}
        }
    }
}

/// Who used the processors since when.
pub struct Usage {
    begun: Instant,
    server: u32,
    /// A server behind it, which is no other.
    behind: Option<u32>,
    cpu: [Duration; 4],
}

impl Usage {
    pub fn new(server: u32, behind: Option<u32>) -> Result<Self, String> {
        Ok(Self { begun: Instant::now(), server, behind, cpu: Self::cpu(server, behind)? })
    }

    fn cpu(server: u32, behind: Option<u32>) -> Result<[Duration; 4], String> {
        let behind = behind.map_or(Ok(Duration::ZERO), process::cpu)?;
        Ok([process::cpu(server)?, process::cpu(std::process::id())?, behind, process::cpu_of_all()?])
    }

    /// How long it was, the CPU time of the server, and how much of two cores went to others.
    pub fn elapsed(&self) -> Result<(Duration, Duration, f64), String> {
        let (wall, cpu) = (self.begun.elapsed(), Self::cpu(self.server, self.behind)?);
        let [server, load, behind, all] = [0, 1, 2, 3].map(|at| cpu[at].saturating_sub(self.cpu[at]));
        let others = all.saturating_sub(server + load + behind).as_secs_f64();
        Ok((wall, server, others / (2.0 * wall.as_secs_f64())))
    }
}

fn seed(keys: Keys) -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static RUNS: AtomicU64 = AtomicU64::new(0);
    match keys {
        Keys::Any(_) => RUNS.fetch_add(1 << 32, Ordering::Relaxed),
        Keys::Once(_) => 0,
    }
}

fn fill(connection: &mut Connection, shape: Shape, order: &mut Order) {
    while connection.in_flight < shape.depth {
        let Some(key) = order.next() else { return };
        connection.ask(key);
    }
}

pub(crate) fn open(address: SocketAddr, speak: Speak<'_>, connections: usize) -> Result<Vec<Connection>, String> {
    (0..connections).map(|_| Connection::open(address, speak)).collect()
}

/// Has `poll` tell of what comes on them, by their numbers from `first` on.
pub(crate) fn watch(poll: &rustix::fd::OwnedFd, first: u64, connections: &[Connection]) -> Result<(), String> {
    for (number, connection) in (first..).zip(connections) {
        let data = epoll::EventData::new_u64(number);
        epoll::add(poll, &connection.stream, data, epoll::EventFlags::IN).map_err(|error| error.to_string())?;
    }
    Ok(())
}
