//! Whom to believe about who is the primary. Pure.
//!
//! A Sentinel says an address and an epoch, which grows with every failover. What has the highest epoch that was ever heard of
//! counts, so that neither a Sentinel that was cut off nor a primary that was paused and came back is believed again.

use std::time::Duration;

use tokio::time::Instant;

use super::address::Endpoint;

/// How long the others are waited for after the start, so that the first to answer is not taken at its word.
const GATHER: Duration = Duration::from_millis(100);

/// What one Sentinel said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sighting {
    pub(super) primary: Endpoint,
    pub(super) epoch: u64,
}

/// What was heard of all.
#[derive(Debug)]
pub(super) struct Lookout {
    /// What each Sentinel said last.
    said: Vec<Option<Sighting>>,
    begun: Instant,
    believed: Option<Sighting>,
}

impl Lookout {
    pub(super) fn new(sentinels: usize, now: Instant) -> Self {
        Self { said: vec![None; sentinels], begun: now, believed: None }
    }

    /// Hears what a Sentinel says.
    pub(super) fn hear(&mut self, sentinel: usize, sighting: Sighting) {
        if let Some(said) = self.said.get_mut(sentinel) {
            *said = Some(sighting);
        }
    }

    /// The primary, if that is another one than at the last time.
    pub(super) fn changed(&mut self, now: Instant) -> Option<&Sighting> {
        if self.believed.is_none() && now < self.begun + GATHER && self.said.iter().any(Option::is_none) {
            return None;
        }
        let agree = |with: &Sighting| self.said.iter().flatten().filter(|said| *said == with).count();
        let best = self.said.iter().flatten().max_by_key(|said| (said.epoch, agree(said)))?;
        let agreed = agree(best);
        let newer = match &self.believed {
            None => true,
            Some(believed) if best.primary == believed.primary => {
                // The same one, confirmed: only the epoch is remembered.
                let epoch = best.epoch.max(believed.epoch);
                self.believed = Some(Sighting { primary: best.primary.clone(), epoch });
                return None;
            }
            Some(believed) => {
                // With the same epoch, as after a change by hand, it takes more than half of them.
                best.epoch > believed.epoch || best.epoch == believed.epoch && agreed * 2 > self.said.len()
            }
        };
        if !newer {
            return None;
        }
        self.believed = Some(best.clone());
        self.believed.as_ref()
    }

    /// When to ask for a change next, if nothing is heard until then.
    pub(super) fn due(&self) -> Option<Instant> {
        self.believed.is_none().then_some(self.begun + GATHER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16, epoch: u64) -> Sighting {
        Sighting { primary: Endpoint::Tcp("h".to_owned(), port), epoch }
    }

    #[test]
    fn at_the_start_all_are_heard_and_the_highest_epoch_counts() {
        let now = Instant::now();
        let mut lookout = Lookout::new(3, now);
        lookout.hear(0, at(1, 5));
        assert_eq!(lookout.changed(now), None, "others may know better");
        lookout.hear(1, at(2, 7));
        lookout.hear(2, at(1, 5));
        assert_eq!(lookout.changed(now), Some(&at(2, 7)));
        assert_eq!(lookout.changed(now), None);
    }

    #[test]
    fn those_who_are_silent_are_not_waited_for() {
        let now = Instant::now();
        let mut lookout = Lookout::new(3, now);
        lookout.hear(2, at(1, 5));
        assert_eq!(lookout.changed(now + GATHER), Some(&at(1, 5)));
        assert_eq!(lookout.due(), None);
    }

    #[test]
    fn an_old_epoch_is_not_believed_again() {
        let now = Instant::now();
        let mut lookout = Lookout::new(3, now);
        (0..3).for_each(|sentinel| lookout.hear(sentinel, at(1, 5)));
        assert_eq!(lookout.changed(now), Some(&at(1, 5)));
        lookout.hear(0, at(2, 6));
        assert_eq!(lookout.changed(now), Some(&at(2, 6)), "one is enough for a newer epoch");
        // The one that knew is gone, and the others have not heard.
        lookout.hear(0, at(1, 5));
        assert_eq!(lookout.changed(now), None);
        (0..3).for_each(|sentinel| lookout.hear(sentinel, at(1, 5)));
        assert_eq!(lookout.changed(now), None);
        lookout.hear(1, at(1, 7));
        assert_eq!(lookout.changed(now), Some(&at(1, 7)), "it was made the primary again");
    }

    #[test]
    fn with_the_same_epoch_most_have_to_agree() {
        let now = Instant::now();
        let mut lookout = Lookout::new(3, now);
        (0..3).for_each(|sentinel| lookout.hear(sentinel, at(1, 5)));
        assert!(lookout.changed(now).is_some());
        lookout.hear(2, at(2, 5));
        assert_eq!(lookout.changed(now), None);
        lookout.hear(1, at(2, 5));
        lookout.changed(now);
        lookout.hear(0, at(2, 5));
        assert_eq!(lookout.believed, Some(at(2, 5)));
    }

    proptest::proptest! {
        #[test]
        fn epochs_never_go_back(said in proptest::collection::vec((0..3usize, 1..4u16, 0..6u64), 0..60)) {
            let now = Instant::now();
            let mut lookout = Lookout::new(3, now);
            let mut last = 0;
            for (sentinel, port, epoch) in said {
                lookout.hear(sentinel, at(port, epoch));
                if let Some(believed) = lookout.changed(now + GATHER) {
                    proptest::prop_assert!(believed.epoch >= last);
                }
                let believed = lookout.believed.as_ref().map_or(0, |believed| believed.epoch);
                proptest::prop_assert!(believed >= last);
                last = believed;
            }
        }
    }
}
