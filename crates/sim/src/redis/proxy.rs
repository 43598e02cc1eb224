//! A TCP proxy that does harm: what a fault says applies to all its connections from the moment that it is set.
//!
//! Bytes are passed on in the pieces that they come in, each by a thread that reads and one that writes, so that a
//! delay delays and does not throttle. Faults that change bytes work on what the server answers.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use socket2::SockRef;

/// What is done to connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Every answer comes this much later, and by up to `jitter` more.
    Delay {
        /// For all.
        by: Duration,
        /// Spread evenly.
        jitter: Duration,
    },
    /// Of 1,000 pieces of answers so many come this much later, and those behind them wait.
    Hiccup {
        /// How many of a thousand.
        of_1000: u64,
        /// How much later.
        by: Duration,
    },
    /// Nothing passes, in either direction, and connections stay open. What was under way passes when the fault is
    /// over, as it does when a network loses packets.
    Blackhole,
    /// Connections are reset, and so are new ones.
    Reset,
    /// New connections are closed at once, those that are open stay.
    Full,
    /// Every so many pieces of answers are lost, and the connection with them: what was asked was done.
    CloseBeforeReply {
        /// One in so many.
        every: u64,
    },
    /// A connection is closed after so many bytes of answers.
    CloseAfter {
        /// For each connection, counted from its begin.
        bytes: u64,
    },
    /// Answers come byte by byte.
    Drip {
        /// The time between two.
        every: Duration,
    },
    /// Of every so many bytes of answers one has a bit changed.
    Corrupt {
        /// One in so many.
        every: u64,
    },
    /// Two pieces of answers change places.
    Swap,
    /// Every question is answered with these bytes, and the server sees none. What it saw before is answered first, as
    /// it would be by a server that says them itself.
    Say(Vec<u8>),
}

/// A proxy in front of one server.
#[derive(Debug)]
pub struct FaultProxy {
    shared: Arc<Shared>,
    address: SocketAddr,
}

#[derive(Debug)]
struct Shared {
    fault: Mutex<(Fault, bool)>,
    changed: Condvar,
    target: SocketAddr,
    pieces: AtomicU64,
    open: Mutex<Vec<TcpStream>>,
    accepted: AtomicU64,
    /// Of the connections, those up to this one are dead and do not know it.
    forgotten: AtomicU64,
}

impl FaultProxy {
    /// Starts one that does no harm yet.
    pub fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there are free ports");
        let address = listener.local_addr().expect("it has an address");
        let shared = Arc::new(Shared {
            fault: Mutex::new((Fault::None, false)),
            changed: Condvar::new(),
            target,
            pieces: AtomicU64::new(0),
            open: Mutex::default(),
            accepted: AtomicU64::new(0),
            forgotten: AtomicU64::new(0),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if accepting.ended() {
                    return;
                }
                let number = accepting.accepted.fetch_add(1, Ordering::Relaxed) + 1;
                let shared = Arc::clone(&accepting);
                std::thread::spawn(move || shared.serve(&client, number));
            }
        });
        Self { shared, address }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections there were.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// From now on, this.
    pub fn set(&self, fault: Fault) {
        let reset = fault == Fault::Reset;
        self.shared.fault().0 = fault;
        self.shared.changed.notify_all();
        if reset {
            self.drop_connections();
        }
    }

    /// Connections that are open now lead nowhere from now on, without a word, as when something on the way forgets
    /// them.
    pub fn forget_connections(&self) {
        self.shared.forgotten.store(self.accepted(), Ordering::Relaxed);
    }

    /// Resets all connections that are open, once.
    pub fn drop_connections(&self) {
        let open = std::mem::take(&mut *self.shared.open.lock().unwrap_or_else(PoisonError::into_inner));
        for stream in open {
            reset(&stream);
        }
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.fault().1 = true;
        self.shared.changed.notify_all();
        self.drop_connections();
        // Wakes the one that accepts, which then sees that it is over.
        let _ = TcpStream::connect(self.address);
    }
}

/// Closes both directions; with what the system calls a linger of zero, by a reset.
fn reset(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
    let _ = stream.shutdown(Shutdown::Both);
}

type Piece = (Instant, Vec<u8>);

/// Asked of the server behind all else: when it is answered, so is everything.
const LAST_QUESTION: &[u8] = b"*2\r\n$4\r\nECHO\r\n$12\r\nall-answered\r\n";
const LAST_ANSWER: &[u8] = b"$12\r\nall-answered\r\n";
/// For so long its answer is waited for; then the connection is given up.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// Of one connection: whether the last question is open.
#[derive(Debug, Default)]
struct Fence {
    is_open: Mutex<bool>,
    passed: Condvar,
}

impl Fence {
    fn open(&self) -> std::sync::MutexGuard<'_, bool> {
        self.is_open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the server has answered everything, and the client has the answers.
    fn pass(&self, server: &mut TcpStream) -> bool {
        *self.open() = true;
        if server.write_all(LAST_QUESTION).is_err() {
            return false;
        }
        let waited = self.passed.wait_timeout_while(self.open(), LAST_WAIT, |is_open| *is_open);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn passed(&self) {
        *self.open() = false;
        self.passed.notify_all();
    }
}

impl Shared {
    fn fault(&self) -> std::sync::MutexGuard<'_, (Fault, bool)> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self) -> bool {
        self.fault().1
    }

    fn is_forgotten(&self, connection: u64) -> bool {
        connection <= self.forgotten.load(Ordering::Relaxed)
    }

    fn now(&self) -> Fault {
        self.fault().0.clone()
    }

    /// Waits while nothing passes.
    fn pass_blackhole(&self) {
        let fault = self.fault();
        let waited = self.changed.wait_while(fault, |(fault, ended)| *fault == Fault::Blackhole && !*ended);
        drop(waited);
    }

    fn serve(self: Arc<Self>, client: &TcpStream, number: u64) {
        match self.now() {
            Fault::Reset => return reset(client),
            Fault::Full => return,
            _ => {}
        }
        self.pass_blackhole();
        let Ok(server) = TcpStream::connect(self.target) else { return reset(client) };
        for stream in [client, &server] {
            let _ = stream.set_nodelay(true);
        }
        let clones = || -> std::io::Result<[TcpStream; 6]> {
            Ok([
                client.try_clone()?,
                server.try_clone()?,
                client.try_clone()?,
                server.try_clone()?,
                client.try_clone()?,
                server.try_clone()?,
            ])
        };
        let Ok([kept, kept_too, questions, to_server, answers_to, answers]) = clones() else { return };
        self.open.lock().unwrap_or_else(PoisonError::into_inner).extend([kept, kept_too]);
        let (send, receive) = sync_channel::<Piece>(1024);
        let (there, back) = (Arc::clone(&self), Arc::clone(&self));
        let fence = Arc::new(Fence::default());
        let fenced = Arc::clone(&fence);
        std::thread::spawn(move || there.questions(questions, to_server, number, &fenced));
        std::thread::spawn(move || back.read(answers, &send));
        self.answers(&receive, answers_to, number, &fence);
        let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
    }

    fn questions(&self, mut client: TcpStream, mut server: TcpStream, connection: u64, fence: &Fence) {
        let mut buffer = vec![0; 64 << 10];
        let mut is_answered = true;
        while let Ok(count @ 1..) = client.read(&mut buffer) {
            self.pass_blackhole();
            if self.is_forgotten(connection) {
                continue;
            }
            let said = if let Fault::Say(bytes) = self.now() {
                if !is_answered && !fence.pass(&mut server) {
                    break;
                }
                is_answered = true;
                client.write_all(&bytes)
            } else {
                is_answered = false;
                server.write_all(&buffer[..count])
            };
            if said.is_err() {
                break;
            }
        }
        let _ = server.shutdown(Shutdown::Write);
    }

    fn read(&self, mut server: TcpStream, out: &SyncSender<Piece>) {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count @ 1..) = server.read(&mut buffer) {
            if out.send((Instant::now(), buffer[..count].to_vec())).is_err() {
                return;
            }
        }
    }

    fn answers(&self, pieces: &Receiver<Piece>, mut client: TcpStream, connection: u64, fence: &Fence) {
        let (mut bytes, mut since_harm) = (0, 0);
        let mut last = Vec::new();
        while let Ok((came, mut piece)) = pieces.recv() {
            self.pass_blackhole();
            if self.is_forgotten(connection) {
                continue;
            }
            if *fence.open() {
                last.append(&mut piece);
                let Some(answers) = last.strip_suffix(LAST_ANSWER) else { continue };
                if client.write_all(answers).is_err() {
                    return;
                }
                last.clear();
                fence.passed();
                continue;
            }
            let number = self.pieces.fetch_add(1, Ordering::Relaxed);
            let mut after = Vec::new();
            match self.now() {
                Fault::Delay { by, jitter } => {
                    let part = u32::try_from(number.wrapping_mul(0x9E37_79B9) % 1000).unwrap_or(0);
                    wait_until(came + by + jitter * part / 1000);
                }
                Fault::Hiccup { of_1000, by } if number.wrapping_mul(0x9E37_79B9) % 1000 < of_1000 => {
                    wait_until(came + by);
                }
                Fault::CloseBeforeReply { every } if number.is_multiple_of(every) => return reset(&client),
                Fault::CloseAfter { bytes: most } if bytes + piece.len() as u64 > most => {
                    let _ = client
                        .write_all(&piece[..usize::try_from(most.saturating_sub(bytes)).unwrap_or(0).min(piece.len())]);
                    return;
                }
                Fault::Drip { every } => {
                    for byte in piece.drain(..) {
                        if client.write_all(&[byte]).is_err()
                            || !matches!(self.now(), Fault::Drip { .. }) && self.ended()
                        {
                            return;
                        }
                        wait_until(Instant::now() + every);
                    }
                }
                Fault::Corrupt { every } => {
                    for byte in &mut piece {
                        since_harm += 1;
                        if since_harm >= every {
                            since_harm = 0;
                            *byte ^= 0x20;
                        }
                    }
                }
                Fault::Swap => match pieces.recv_timeout(Duration::from_millis(3)) {
                    Ok((_, next)) => after = std::mem::replace(&mut piece, next),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                },
                _ => {}
            }
            bytes += piece.len() as u64;
            if client.write_all(&piece).and_then(|()| client.write_all(&after)).is_err() {
                return;
            }
        }
    }
}

fn wait_until(at: Instant) {
    std::thread::sleep(at.saturating_duration_since(Instant::now()));
}
