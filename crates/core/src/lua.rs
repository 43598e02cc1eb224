//! The steps of the algorithms a second time, in Lua, for stores whose states live where only a script can change them as
//! one.
//!
//! Each is in a file beside the Rust that it must equal to the bit; [`SOURCES`] in their order is the beginning of a script, for
//! Lua 5.1 with Redis's `struct` library. [`Limit::encode`] hands a limit to it. How states are kept and requests are made is
//! the script's own affair.

use crate::algorithm::fixed_window::Frame;
use crate::limit::{Limit, Machines};
use crate::time::{MAX_INTEGER, Timestamp};

/// The arithmetic, the algorithms and what is the same for all of them, in the order in which a script needs them.
pub const SOURCES: [&str; 11] = [
    include_str!("algorithm/exact.lua"),
    include_str!("algorithm/token_bucket.lua"),
    include_str!("algorithm/token_interval.lua"),
    include_str!("algorithm/leaky_queue.lua"),
    include_str!("algorithm/fixed_window.lua"),
    include_str!("algorithm/sliding_log.lua"),
    include_str!("algorithm/sliding_counter.lua"),
    include_str!("algorithm/sub_windows.lua"),
    include_str!("algorithm/concurrency.lua"),
    include_str!("algorithm/pacing.lua"),
    include_str!("algorithm/run.lua"),
];

/// The most calendar windows that are sent at once.
const MOST_WINDOWS: usize = 512;

/// The times that a script may decide at without being asked again, for limits by the calendar.
///
/// A script knows no time zones, so it is sent where windows begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The earliest.
    pub from: Timestamp,
    /// The latest.
    pub until: Timestamp,
}

/// Numbers as a script reads them: little-endian doubles, which hold every integer up to 2^53.
pub(crate) struct Numbers<'o>(pub(crate) &'o mut Vec<u8>);

impl Numbers<'_> {
    pub(crate) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(crate) fn put(&mut self, number: u64) {
        // Anything beyond is beyond all that a limit can hold.
        let number = number.min(MAX_INTEGER + 1);
        self.0.extend_from_slice(&(number as f64).to_le_bytes());
    }

    pub(crate) fn put_all<const N: usize>(&mut self, numbers: [u64; N]) {
        numbers.into_iter().for_each(|number| self.put(number));
    }

    /// Where windows begin and end, for a key of this phase.
    pub(crate) fn frame(&mut self, frame: &Frame, phase: u64, reach: Reach) {
        match frame {
            Frame::Clock { length, spread } => {
                self.byte(0);
                self.put_all([*length, if *spread { Frame::offset(phase, *length) } else { 0 }]);
            }
            Frame::FirstEvent { length } => {
                self.byte(1);
                self.put_all([*length, 0]);
            }
            Frame::Calendar(calendar) => {
                let (start, mut end) = calendar.window_at(reach.from);
                let mut bounds = vec![start, end];
                // And one window more: what is denied in one may fit into the next.
                while bounds.len() < MOST_WINDOWS && (end <= reach.until || bounds.len() < 3) {
                    end = calendar.window_at(end).1;
                    bounds.push(end);
                }
                let after = calendar.window_at(end).1;
                bounds.push(after);
                self.byte(2);
                self.put_all([bounds.len() as u64, 0]);
                bounds.into_iter().for_each(|bound| self.put(bound.as_micros()));
            }
        }
    }
}

impl Limit {
    /// Appends this limit as [`SOURCES`] read it, for one charge of a key: which algorithm, what is asked, and the parameters.
    pub fn encode(&self, cost: u64, lease: u64, phase: u64, reach: Reach, out: &mut Vec<u8>) {
        let soft = self.softness();
        let (kind, leased) = match self.machines() {
            Machines::Plain(_) | Machines::Bucket(..) => (1, false),
            Machines::Interval(..) => (2, false),
            Machines::Queue(..) => (3, false),
            Machines::Window(..) => (4, false),
            Machines::Log(..) => (5, false),
            Machines::Counter(..) => (6, false),
            Machines::SubWindows(..) => (7, false),
            Machines::Slots(..) => (8, true),
            Machines::Budget(_) => (9, false),
        };
        let mut numbers = Numbers(out);
        numbers.byte(kind);
        numbers.byte(u8::from(soft.is_some()) | u8::from(leased) << 1);
        numbers.put(cost);
        if leased {
            numbers.0.extend_from_slice(&lease.to_le_bytes());
        }
        macro_rules! both {
            ($hard:expr, $raised:expr $(, $more:expr)*) => {{
                $hard.encode(&mut numbers $(, $more)*);
                if let Some(raised) = $raised {
                    raised.encode(&mut numbers $(, $more)*);
                }
            }};
        }
        match self.machines() {
            Machines::Plain(hard) => hard.encode(&mut numbers),
            Machines::Bucket(hard, raised) => both!(hard, raised),
            Machines::Interval(hard, raised) => both!(hard, raised),
            Machines::Queue(hard, raised) => both!(hard, raised),
            Machines::Window(hard, raised) => both!(hard, raised, phase, reach),
            Machines::Log(hard, raised) => both!(hard, raised),
            Machines::Counter(hard, raised) => both!(hard, raised),
            Machines::SubWindows(hard, raised) => both!(hard, raised),
            Machines::Slots(hard, raised) => both!(hard, raised),
            Machines::Budget(machines) => both!(machines.0, &machines.1, phase, reach),
        }
        if let Some(soft) = soft {
            numbers.put(soft.lasting.as_micros());
        }
    }
}
