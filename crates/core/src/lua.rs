//! The steps of the algorithms a second time, in Lua, for stores whose states live where only a script can change them
//! as one.
//!
//! Each is in a file beside the Rust that it must equal to the bit. [`around`] makes a script of them, for Lua 5.1 with
//! Redis's `struct` library, and [`Limit::encode`] hands a limit to it. How states are kept and requests are made is
//! the script's own affair.

use crate::algorithm::MOST_APART;
use crate::algorithm::fixed_window::Frame;
use crate::limit::{Limit, Machines};
use crate::time::{MAX_INTEGER, Timestamp};

/// What all parts share.
const WORDS: &str = include_str!("algorithm/words.lua");
/// What the machines share.
const ASKED: &str = include_str!("algorithm/asked.lua");
/// The commonest questions.
const QUICK: &str = include_str!("algorithm/quick.lua");
/// What the Rust does in wide integers.
const EXACT: &str = include_str!("algorithm/exact.lua");
/// What an intent means, and what is reported.
const RUN: &str = include_str!("algorithm/run.lua");

/// The algorithms by their number in a request: what each needs, and what makes it.
const ALGORITHMS: [(&[&str], &str); 9] = [
    (&[include_str!("algorithm/token_bucket.lua")], "token_bucket"),
    (&[include_str!("algorithm/token_interval.lua")], "token_interval"),
    (&[include_str!("algorithm/leaky_queue.lua")], "leaky_queue"),
    (&[include_str!("algorithm/fixed_window.lua")], "fixed_window"),
    (&[include_str!("algorithm/sliding_log.lua")], "sliding_log"),
    (&[include_str!("algorithm/sliding_counter.lua")], "sliding_counter"),
    (&[include_str!("algorithm/sliding_counter.lua"), include_str!("algorithm/sub_windows.lua")], "sub_windows"),
    (&[include_str!("algorithm/concurrency.lua")], "concurrency"),
    (&[include_str!("algorithm/fixed_window.lua"), include_str!("algorithm/pacing.lua")], "pacing"),
];

/// A script of two parts. `first` has what the commonest questions need: what all share, and `quick`, which answers
/// them. It ends in the body of a function, which goes on with the arithmetic, `build` from an algorithm's number to
/// its machine, `run`, and then `rest`, whose end closes the function and is the end of the script.
///
/// A call of a script makes all its functions anew, which costs more than most decisions. So there are few of them, and
/// the others are made when the first question comes that needs them; the machine of an algorithm likewise.
pub fn around(first: &str, rest: &str) -> String {
    written_in(joined(first, rest))
}

/// A log that never has more marks than these keeps none of them in blocks.
pub const MOST_WHOLE: u64 = 67;

/// Written in, since each function that uses a variable of another has to be given it.
const CONSTANTS: [(&str, &str); 13] = [
    // Blocks of a log: so large that sixteen of them fill a node of a List in Redis. At least so many of the newest
    // marks stay out of them, and as long as all are no more than these, there is none.
    ("BLOCK_BYTES", "(31 * 16)"),
    ("LAST_BYTES", "(5 * 16)"),
    ("WHOLE_BYTES", "(67 * 16)"),
    ("MAX_COUNT", "4294967295"),
    ("MAX", "9007199254740991"),
    ("MODERATE", "4503599627370495"),
    ("FORCED", "4503599627370496"),
    ("LOAN", "67108864"),
    ("SPEND", "0"),
    ("PEEK", "1"),
    ("FORCE", "2"),
    ("REFUND", "3"),
    ("RENEW", "4"),
];

fn written_in(script: String) -> String {
    let script = CONSTANTS.iter().fold(script, |script, (name, value)| script.replace(name, value));
    script.replace("MOST_APART", &MOST_APART.to_string())
}

fn joined(first: &str, rest: &str) -> String {
    let mut script = [WORDS, QUICK, first, ASKED, EXACT, "local function build(kind)\n"].concat();
    for (number, (sources, name)) in ALGORITHMS.iter().enumerate() {
        script += &format!("if kind == {} then\n{}return {name}()\nend\n", number + 1, sources.concat());
    }
    script += "end\n";
    script += RUN;
    script + rest
}

/// A script that uses the arithmetic alone.
pub fn around_arithmetic(driver: &str) -> String {
    written_in([WORDS, EXACT, driver].concat())
}

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

/// Numbers as a script reads them: little-endian doubles, which hold every integer up to 2^53. What is asked comes with
/// the parameters, since reading few numbers at a time is what a script spends most on.
pub(crate) struct Numbers<'o> {
    out: &'o mut Vec<u8>,
    cost: u64,
    lease: u64,
}

impl Numbers<'_> {
    pub(crate) fn byte(&mut self, byte: u8) {
        self.out.push(byte);
    }

    pub(crate) fn put(&mut self, number: u64) {
        // Anything beyond is beyond all that a limit can hold.
        let number = number.min(MAX_INTEGER + 1);
        self.out.extend_from_slice(&(number as f64).to_le_bytes());
    }

    /// Begins the parameters: the cost.
    pub(crate) fn begin(&mut self) {
        self.put(self.cost);
    }

    /// Whose slots these are: only ever compared.
    pub(crate) fn lease(&mut self) {
        self.out.extend_from_slice(&self.lease.to_le_bytes());
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
    /// Appends this limit as a script [around](around) a driver reads it, for one charge of a key: which algorithm,
    /// what is asked, and the parameters.
    pub fn encode(&self, cost: u64, lease: u64, phase: u64, reach: Reach, out: &mut Vec<u8>) {
        let soft = self.softness();
        let kind = match self.machines() {
            Machines::Plain(_) | Machines::Bucket(..) => 1,
            Machines::Interval(..) => 2,
            Machines::Queue(..) => 3,
            Machines::Window(..) => 4,
            Machines::Log(..) => 5,
            Machines::Counter(..) => 6,
            Machines::SubWindows(..) => 7,
            Machines::Slots(..) => 8,
            Machines::Budget(_) => 9,
        };
        let mut numbers = Numbers { out, cost, lease };
        numbers.byte(kind);
        numbers.byte(u8::from(soft.is_some()));
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
