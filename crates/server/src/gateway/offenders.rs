//! Addresses that go on and on when they have been told that it is too much, handed to the kernel to drop.
//!
//! An address that is denied so many times within a minute is put into a set of nftables, with a time after which the
//! kernel takes it out again. That is done by a thread of its own, a few times a second at most: nobody who is answered
//! waits for it. It is the address that connects which is put there, never one that is only told of: whoever comes
//! through a trusted proxy is not dropped, nor is the proxy.
//!
//! What is remembered is bounded. When there is no room, nobody new is counted, and nobody is put into the set who did
//! not earn it.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use quanta::Instant;
use tollgate::rules::Network;

use crate::gate::Exposition;
use crate::serve::{BanSettings, network_of};

/// In which time denials are counted, in microseconds.
const MINUTE: u64 = 60_000_000;
/// Addresses that are counted at a time.
const MOST: usize = 100_000;
/// How often those are looked for that can be forgotten, in microseconds.
const SWEEP: u64 = 1_000_000;
/// Addresses that wait to be told to the kernel; others are counted anew.
const WAITING: usize = 1_000;
/// How long more of them are waited for, so that one command tells of many.
const GATHER: Duration = Duration::from_millis(200);
/// The most in one command.
const MOST_AT_ONCE: usize = 200;

/// Who was denied, how often.
pub(crate) struct Offenders {
    offences: Mutex<Offences>,
    began: Instant,
    to_kernel: SyncSender<Network>,
    told: Arc<Told>,
}

/// What became of those who went on and on.
#[derive(Default)]
struct Told {
    done: AtomicU64,
    failed: AtomicU64,
    /// Too many at a time.
    left_out: AtomicU64,
}

/// Denials by address, with time as an argument.
struct Offences {
    after: u32,
    most: usize,
    /// How many, and since when.
    counts: HashMap<Network, (u32, u64)>,
    swept_at: u64,
}

impl Offences {
    fn new(after: u32, most: usize) -> Self {
        Self { after, most, counts: HashMap::new(), swept_at: 0 }
    }

    /// Counts a denial. Whether that is enough.
    fn denied(&mut self, from: Network, now: u64) -> bool {
        if self.counts.len() >= self.most && !self.counts.contains_key(&from) {
            if now.saturating_sub(self.swept_at) >= SWEEP {
                self.swept_at = now;
                self.counts.retain(|_, (_, since)| now.saturating_sub(*since) < MINUTE);
            }
            if self.counts.len() >= self.most {
                return false;
            }
        }
        let (count, since) = self.counts.entry(from).or_insert((0, now));
        if now.saturating_sub(*since) >= MINUTE {
            (*count, *since) = (0, now);
        }
        *count += 1;
        let is_enough = *count >= self.after;
        if is_enough {
            // If it can still ask after that, it was not dropped, and is told of again.
            self.counts.remove(&from);
        }
        is_enough
    }
}

impl Offenders {
    pub(crate) fn new(settings: &BanSettings) -> anyhow::Result<Self> {
        let (to_kernel, receiver) = sync_channel(WAITING);
        let told = Arc::<Told>::default();
        let kernel = Kernel { settings: settings.clone(), told: Arc::clone(&told), is_failing: [false; 2] };
        let thread = std::thread::Builder::new().name("bans".to_owned()).spawn(move || kernel.run(&receiver));
        // It ends with the last of those who could tell it something.
        drop(thread.context("a thread cannot be started")?);
        let offences = Mutex::new(Offences::new(settings.after, MOST));
        Ok(Self { offences, began: Instant::now(), to_kernel, told })
    }

    /// An address was denied something.
    pub(super) fn denied(&self, from: IpAddr) {
        let now = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let from = network_of(from);
        let is_enough = self.offences.lock().unwrap_or_else(PoisonError::into_inner).denied(from, now);
        if is_enough && self.to_kernel.try_send(from).is_err() {
            self.told.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn expose(&self, out: &mut Exposition) {
        out.counter(
            "tollgate_bans_total",
            "Addresses that were denied too often, by whether the kernel was told to drop them.",
        );
        let Told { done, failed, left_out } = &*self.told;
        for (result, count) in [("done", done), ("failed", failed), ("left_out", left_out)] {
            out.sample(&[("result", result)], count.load(Ordering::Relaxed));
        }
    }
}

/// Tells the kernel.
struct Kernel {
    settings: BanSettings,
    told: Arc<Told>,
    /// Of each version of the protocol: it may last, and the log is not to be full of it.
    is_failing: [bool; 2],
}

impl Kernel {
    fn run(mut self, offenders: &Receiver<Network>) {
        while let Ok(first) = offenders.recv() {
            let mut batch = vec![first];
            let since = Instant::now();
            while batch.len() < MOST_AT_ONCE
                && let Some(left) = GATHER.checked_sub(since.elapsed())
                && let Ok(next) = offenders.recv_timeout(left)
            {
                batch.push(next);
            }
            for is_v6 in [false, true] {
                let texts = batch.iter().map(Network::to_string).filter(|text| text.contains(':') == is_v6);
                let addresses: BTreeSet<String> = texts.collect();
                if !addresses.is_empty() {
                    self.tell(is_v6, &addresses);
                }
            }
        }
    }

    fn tell(&mut self, is_v6: bool, addresses: &BTreeSet<String>) {
        let BanSettings { lasting, set, program, .. } = &self.settings;
        let seconds = lasting.as_micros().div_ceil(1_000_000);
        let elements: Vec<String> = addresses.iter().map(|one| format!("{one} timeout {seconds}s")).collect();
        let set = if is_v6 { format!("{set}6") } else { set.clone() };
        let told = Command::new(program)
            .args(["add", "element"])
            .args(set.split_whitespace())
            .arg(format!("{{ {} }}", elements.join(", ")))
            .stdin(Stdio::null())
            .output();
        let problem = match told {
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default().to_owned()),
            Err(error) => Some(error.to_string()),
        };
        let count = if problem.is_some() { &self.told.failed } else { &self.told.done };
        count.fetch_add(addresses.len() as u64, Ordering::Relaxed);
        let Some(was_failing) = self.is_failing.get_mut(usize::from(is_v6)) else { return };
        let was_failing = std::mem::replace(was_failing, problem.is_some());
        match problem {
            Some(error) if !was_failing => {
                tracing::error!(set, program = %program.display(), "offenders cannot be dropped by the kernel: {error}");
            }
            None if was_failing => tracing::info!(set, "offenders are dropped by the kernel again"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(number: u32) -> Network {
        network_of(IpAddr::from(number.to_be_bytes()))
    }

    #[test]
    fn so_many_within_a_minute_are_enough() {
        let mut offences = Offences::new(3, 10);
        let mut at = |seconds: u64| offences.denied(network(1), seconds * 1_000_000);
        assert_eq!([at(0), at(30), at(59)], [false, false, true]);
        // Anew after that, and after a minute.
        assert_eq!([at(59), at(60), at(119), at(120), at(121)], [false, false, false, false, true]);
    }

    #[test]
    fn when_there_is_no_room_nobody_new_is_counted_and_nobody_else_pays_for_it() {
        let mut offences = Offences::new(2, 100);
        for number in 0..100 {
            assert!(!offences.denied(network(number), 5_000_000));
        }
        for _ in 0..10 {
            assert!(!offences.denied(network(1_000), 6_000_000));
        }
        assert!(offences.denied(network(7), 6_000_000));
        assert_eq!(offences.counts.len(), 99);
        // Those of a minute ago make room.
        assert!(!offences.denied(network(1_001), 6_000_000));
        assert!(!offences.denied(network(1_000), 66_000_000));
        assert!(offences.denied(network(1_000), 66_000_001));
    }
}
