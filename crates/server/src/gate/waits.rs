//! How long requests waited in line before they went on or were refused.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::text::Exposition;

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// A limit whose `on_limit` delays, or that has a queue.
    Limit,
    /// An upstream that has too much to do.
    Upstream,
}

/// How somebody stood in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stood {
    /// The place, from one: of who went on, the one that it had when it came; of others, the one that it left.
    pub(crate) position: usize,
    pub(crate) waited: Duration,
}

impl Stood {
    /// The same behind so many others.
    pub(crate) fn behind(self, others: usize) -> Self {
        Self { position: self.position.saturating_add(others), ..self }
    }
}

/// Upper ends of the histogram's buckets, in milliseconds.
const BUCKETS: [u64; 12] = [1, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 10_000, 60_000];

#[derive(Debug, Default)]
pub(super) struct Waits([Wait; 2]);

#[derive(Debug, Default)]
struct Wait {
    buckets: [AtomicU64; BUCKETS.len() + 1],
    microseconds: AtomicU64,
}

impl Waits {
    pub(super) fn add(&self, queue: Queue, waited: Duration) {
        let Some(wait) = self.0.get(queue as usize) else { return };
        let microseconds = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        let bucket = BUCKETS.partition_point(|end| end * 1_000 < microseconds);
        if let Some(bucket) = wait.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        wait.microseconds.fetch_add(microseconds, Ordering::Relaxed);
    }

    pub(super) fn expose(&self, out: &mut Exposition) {
        out.histogram("tollgate_queue_wait_seconds", "How long requests waited in line, whatever came of it.");
        for (name, wait) in ["limit", "upstream"].iter().zip(&self.0) {
            let label = ("queue", *name);
            let mut sum = 0;
            for (end, bucket) in BUCKETS.iter().map(Some).chain([None]).zip(&wait.buckets) {
                sum += bucket.load(Ordering::Relaxed);
                let end = end.map_or("+Inf".to_owned(), |milliseconds| (*milliseconds as f64 / 1e3).to_string());
                out.part("_bucket", &[label, ("le", &end)], sum);
            }
            out.part("_sum", &[label], wait.microseconds.load(Ordering::Relaxed) as f64 / 1e6);
            out.part("_count", &[label], sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_in_the_bucket_that_ends_with_it_and_in_all_after() {
        let waits = Waits::default();
        waits.add(Queue::Upstream, Duration::from_millis(5));
        waits.add(Queue::Upstream, Duration::from_micros(5_001));
        waits.add(Queue::Limit, Duration::from_secs(100));
        let mut out = Exposition::default();
        waits.expose(&mut out);
        let text = out.finish();
        for line in [
            "tollgate_queue_wait_seconds_bucket{queue=\"upstream\",le=\"0.001\"} 0",
            "tollgate_queue_wait_seconds_bucket{queue=\"upstream\",le=\"0.005\"} 1",
            "tollgate_queue_wait_seconds_bucket{queue=\"upstream\",le=\"0.01\"} 2",
            "tollgate_queue_wait_seconds_sum{queue=\"upstream\"} 0.010001",
            "tollgate_queue_wait_seconds_bucket{queue=\"limit\",le=\"60\"} 0",
            "tollgate_queue_wait_seconds_count{queue=\"limit\"} 1",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
        }
    }
}
