//! Load at a rate: questions are asked when they are due, whatever the answers do, and how long each took counts from
//! that moment. So whoever stalls is charged for everybody who would have come meanwhile.
//!
//! A moment is met as closely as the system can: sleeps are of nanoseconds (`linux_5_11` of rustix, without which they
//! are of whole milliseconds, and what is measured is how late the load was).

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};

use crate::behind::Behind;
use crate::load::{Connection, Order, PATIENCE, Shape, Speak, open, watch};

/// Calls on one connection: servers refuse more than a thousand. What has to wait for this waits on the clock of its
/// due time.
const MOST_IN_FLIGHT: usize = 900;

/// Asks `rate` times a second whatever the answers do, and gives how long each took from the moment it was due, the
/// shortest first.
pub fn paced(
    address: SocketAddr,
    speak: Speak<'_>,
    shape: Shape,
    rate: u64,
    time: Duration,
) -> Result<Vec<Duration>, String> {
    let each = paced_each(address, speak, shape, (rate, time), Idle::Spins)?;
    let mut took: Vec<Duration> = each.into_iter().map(|(_, took)| took).collect();
    took.sort_unstable();
    Ok(took)
}

/// Who has the core of the load while there is nothing to say.
pub enum Idle<'a> {
    /// Nobody, so that no timer is measured.
    Spins,
    /// Nobody either: the load is what a proxy asks as well.
    Answers(&'a mut Behind),
    /// Whoever else is there, such as the server behind a proxy.
    Sleeps,
}

/// The same in the order of answers, each with its number on its connection; that of the first is 0.
pub fn paced_each(
    address: SocketAddr,
    speak: Speak<'_>,
    shape: Shape,
    (rate, time): (u64, Duration),
    idle: Idle<'_>,
) -> Result<Vec<(u32, Duration)>, String> {
    let flow = Flow { address, speak, shape, rate };
    paced_flows(&[flow], time, idle).map(|mut took| took.pop().unwrap_or_default())
}

/// Questions that are asked `rate` times a second, whatever the answers do.
pub struct Flow<'a> {
    pub address: SocketAddr,
    pub speak: Speak<'a>,
    pub shape: Shape,
    pub rate: u64,
}

/// A flow on its way.
struct Paced {
    order: Order,
    connections: Vec<Connection>,
    /// Of each connection when each question on it was due.
    due: Vec<Vec<Duration>>,
    first: Duration,
    step: Duration,
    questions: u32,
    asked: u32,
    took: Vec<(u32, Duration)>,
}

impl Paced {
    /// Asks what is due, and gives when the next is.
    fn ask(&mut self, now: Duration) -> Result<Option<Duration>, String> {
        while self.asked < self.questions {
            let due = self.first + self.step * self.asked;
            let at = self.asked as usize % self.connections.len();
            if due > now || self.connections[at].in_flight >= MOST_IN_FLIGHT {
                return Ok(Some(due));
            }
            let key = self.order.next().unwrap_or_default();
            self.connections[at].ask(key);
            self.due[at].push(due);
            self.connections[at].write()?;
            self.asked += 1;
        }
        Ok(None)
    }

    fn is_done(&self) -> bool {
        self.took.len() >= self.questions as usize
    }
}

/// Several flows at once, each on connections of its own and with its questions in the gaps of the others': how long
/// each question took, from the moment it was due, flow by flow and in the order of answers.
pub fn paced_flows(
    flows: &[Flow<'_>],
    time: Duration,
    mut idle: Idle<'_>,
) -> Result<Vec<Vec<(u32, Duration)>>, String> {
    // A sleep lasts as long as it is meant to, and not 50 us longer.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| error.to_string())?;
    let mut paced = Vec::new();
    for (number, flow) in flows.iter().enumerate() {
        let connections = open(flow.address, flow.speak, flow.shape.connections)?;
        watch(&poll, (number as u64) << 32, &connections)?;
        let step = Duration::from_nanos(1_000_000_000 / flow.rate);
        let questions = (time.as_nanos() / step.as_nanos()) as u32;
        paced.push(Paced {
            order: Order::new(flow.shape.keys),
            due: vec![Vec::new(); connections.len()],
            connections,
            first: step * number as u32 / flows.len() as u32,
            step,
            questions,
            asked: 0,
            took: Vec::with_capacity(questions as usize),
        });
    }
    let (mut events, mut done) = (Vec::with_capacity(64), Vec::new());
    let started = Instant::now();
    while !paced.iter().all(Paced::is_done) {
        let now = started.elapsed();
        if now > time + PATIENCE {
            return Err(format!("not all were answered {PATIENCE:?} after the end"));
        }
        let mut next = now + PATIENCE;
        for flow in &mut paced {
            next = flow.ask(now)?.map_or(next, |due| due.min(next));
        }
        let wait = match &mut idle {
            Idle::Spins => Duration::ZERO,
            Idle::Answers(behind) => behind.answer().map(|()| Duration::ZERO)?,
            Idle::Sleeps => next.saturating_sub(started.elapsed()),
        };
        let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
        events.clear();
        epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), Some(&wait)).map_err(|e| e.to_string())?;
        for event in &events {
            let place = event.data.u64();
            let (flow, at) = (&mut paced[(place >> 32) as usize], (place & 0xffff_ffff) as usize);
            flow.connections[at].read(&mut done)?;
            let now = started.elapsed();
            let due = &flow.due[at];
            flow.took.extend(done.drain(..).map(|number: u32| (number, now - due[number as usize])));
            flow.connections[at].write()?;
        }
    }
    Ok(paced.into_iter().map(|flow| flow.took).collect())
}
