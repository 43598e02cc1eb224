//! How long to wait before the next attempt to connect: longer each time, never the same for two nodes. Pure.

use std::time::Duration;

/// The waits between attempts, counted from the begin of one to the begin of the next.
#[derive(Clone, Debug)]
pub(super) struct Backoff {
    least: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    pub(super) fn new(least: Duration, most: Duration) -> Self {
        Self { least, most: most.max(least), next: least }
    }

    /// The next wait, between half of what is due and all of it, by a random number.
    pub(super) fn wait(&mut self, random: u64) -> Duration {
        let due = self.next;
        self.next = (due * 2).min(self.most);
        let half = due / 2;
        let part = u32::try_from(random % 1_001).unwrap_or(0);
        half + (due - half) * part / 1_000
    }

    /// It went well: the next wait is short again.
    pub(super) fn reset(&mut self) {
        self.next = self.least;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_are_spread() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(50), ms(200));
        let longest: Vec<_> = (0..4).map(|_| backoff.wait(1_000)).collect();
        assert_eq!(longest, [ms(50), ms(100), ms(200), ms(200)]);
        backoff.reset();
        let shortest: Vec<_> = (0..4).map(|_| backoff.wait(0)).collect();
        assert_eq!(shortest, [ms(25), ms(50), ms(100), ms(100)]);
        backoff.reset();
        assert_eq!(backoff.wait(500), Duration::from_micros(37_500));
    }
}
