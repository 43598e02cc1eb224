//! A queue of 1,000 a second at twice that load: how evenly the server behind is asked.
//!
//! That server is a part of this process, on the core of the load. When a request came is what the system noted as it
//! arrived, so that neither the load nor the time until a thread has read it is charged to the gateway.
//!
//! A core that is taken away for ten milliseconds is enough to make 20 %. So a metronome beats beside it on the
//! gateway's core, and rounds in which the machine could not have done it are made again.

use std::io::{IoSliceMut, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::socket::sockopt::ReceiveTimestampns;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt};
use nix::sys::time::TimeSpec;

use super::super::{MANY, Run, found};
use crate::load::{Shape, Speaker};
use crate::metronome::{Metronome, gaps};
use crate::paced::{Idle, paced_each};
use crate::report::{Bound, median};
use crate::speakers::Clients;

const RATE: u64 = 1_000;
const TIME: Duration = Duration::from_secs(2);
const ROUNDS: usize = 7;
/// Rounds that may be made again because the machine stood still now and then.
const MORE_ROUNDS: usize = 28;
/// The deviation of a bare timer in microseconds, up to which a round is judged.
const STEADY: f64 = 100.0;
/// Not the first ones, which may come at once.
const WARM_UP: usize = 200;
const RULES: &str = "rules:
- name: all
  limits: [{rate: 1000/s, algorithm: leaky_bucket, queue: 100}]
";

fn speak() -> Box<dyn Speaker> {
    Box::new(Clients::limited())
}

/// When each question came, since the epoch.
type Noted = Arc<Mutex<Vec<Duration>>>;

/// Answers, and notes when it was asked.
fn origin() -> Result<(SocketAddr, Noted), String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let asked = Arc::clone(&noted);
            std::thread::spawn(move || answer(stream, &asked));
        }
    });
    Ok((address, asked))
}

fn answer(mut stream: TcpStream, asked: &Noted) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    setsockopt(&stream, ReceiveTimestampns, &true).ok()?;
    let (mut buffer, mut space) = ([0; 4096], nix::cmsg_space!(TimeSpec));
    loop {
        let arrived = {
            let mut room = [IoSliceMut::new(&mut buffer)];
            let read = recvmsg::<()>(stream.as_raw_fd(), &mut room, Some(&mut space), MsgFlags::empty()).ok()?;
            // A question is never longer than a piece.
            let arrived = read.cmsgs().ok()?.find_map(|message| match message {
                ControlMessageOwned::ScmTimestampns(arrived) => Some(Duration::from(arrived)),
                _ => None,
            });
            (read.bytes > 0).then_some(arrived)?
        };
        asked.lock().unwrap_or_else(PoisonError::into_inner).extend(arrived);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").ok()?;
    }
}

pub(crate) fn run(run: &mut Run) -> Result<(), String> {
    let (address, noted) = origin()?;
    let gateway = run.gateway("shaping.yaml", address, RULES)?;
    let shape = Shape { connections: 256, depth: 1, in_batches: false, keys: MANY };
    let (mut spreads, mut again) = (Vec::new(), 0);
    println!("A queue of {RATE}/s at {} requests/s: gaps between requests to the server behind\n", 2 * RATE);
    while spreads.len() < ROUNDS {
        noted.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let beats = Metronome::start(run.cores.server, TIME);
        paced_each(found(gateway.proxy)?, &speak, shape, (2 * RATE, TIME), Idle::Sleeps)?;
        let bare = beats.end()?.deviation();
        let mut asked = std::mem::take(&mut *noted.lock().unwrap_or_else(PoisonError::into_inner));
        // Fewer, and the queue was empty at times: the load was not twice as much.
        let is_loaded = asked.len() as u64 >= RATE * TIME.as_secs();
        asked.sort_unstable();
        let asked = asked.get(WARM_UP..).unwrap_or_default();
        let (mean, spread) = gaps(asked);
        let is_judged = (is_loaded && bare <= STEADY) || again == MORE_ROUNDS;
        println!(
            "{} gaps of {mean:.0} us, standard deviation {spread:.0} us; of a bare timer {bare:.0} us{}",
            asked.len().saturating_sub(1),
            if is_judged { "" } else { ": once more" }
        );
        match is_judged {
            true => spreads.push(spread / mean * 100.0),
            false => again += 1,
        }
    }
    println!();
    run.goals.add("gateway: deviation of gaps at a queue's outflow", Bound::Below(20.0), " %", median(spreads));
    Ok(())
}
