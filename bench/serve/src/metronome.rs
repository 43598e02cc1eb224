//! What the machine itself can do: a thread that wakes a thousand times a second on a core, and does nothing else.
//!
//! A host that takes a core away for some milliseconds shows here as it does in whatever is measured beside it. So what
//! the machine could not have done is measured again, and not charged to a server. The thread comes before all others
//! on its core where it may (`SCHED_FIFO`), so that a server that is busy is not taken for a machine that stands still.

use std::process::Command;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::thread::{ClockId, Timespec, clock_nanosleep_absolute};
use rustix::time::clock_gettime;

use crate::process::Cores;

const PERIOD: Duration = Duration::from_millis(1);

pub struct Metronome(JoinHandle<Result<Vec<Duration>, String>>);

/// How late each beat was.
pub struct Beats(Vec<Duration>);

impl Metronome {
    /// Beats on `core` for about so long.
    pub fn start(core: usize, time: Duration) -> Self {
        let (ready, is_ready) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            Cores::go_to(&[core])?;
            let own = rustix::thread::gettid().to_string();
            let _ = Command::new("chrt").args(["--fifo", "--pid", "1", &own]).output();
            // Whoever waited for this waits no longer.
            let _ = ready.send(());
            let begun = now();
            let beats = time.as_millis() / PERIOD.as_millis();
            (1..beats as u32).map(|beat| late(begun + PERIOD * beat)).collect()
        });
        // A thread that broke says so at its end.
        let _ = is_ready.recv();
        Self(thread)
    }

    /// Waits for its end.
    pub fn end(self) -> Result<Beats, String> {
        self.0.join().map_err(|_| "the metronome broke".to_owned())?.map(Beats)
    }
}

impl Beats {
    /// The standard deviation of the time from one beat to the next, in microseconds.
    pub fn deviation(&self) -> f64 {
        let moments = self.0.iter().zip(1..).map(|(late, beat)| *late + PERIOD * beat);
        gaps(&moments.collect::<Vec<_>>()).1
    }

    /// How late the latest was.
    pub fn latest(&self) -> Duration {
        self.0.iter().max().copied().unwrap_or_default()
    }
}

/// The mean and the standard deviation of the gaps between moments that are in order, in microseconds.
pub fn gaps(moments: &[Duration]) -> (f64, f64) {
    let gaps: Vec<f64> = moments.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1e6).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let spread = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
    (mean, spread)
}

fn now() -> Duration {
    let time = clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Sleeps until a moment, and says by how much that was too long.
fn late(due: Duration) -> Result<Duration, String> {
    let until = Timespec { tv_sec: due.as_secs() as i64, tv_nsec: due.subsec_nanos().into() };
    clock_nanosleep_absolute(ClockId::Monotonic, &until).map_err(|error| error.to_string())?;
    Ok(now().saturating_sub(due))
}
