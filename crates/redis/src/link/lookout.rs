//! Whom to believe about who is the primary. Pure.
//!
//! A Sentinel says an address and an epoch, which grows with every failover. What has the highest epoch that was ever heard of
//! counts, so that neither a Sentinel that was cut off nor a primary that was paused and came back is believed again. Sentinels that
//! were made anew begin with low epochs: they are believed when all who are heard, more than half, have said the same for a while.

use std::time::Duration;

use tokio::time::Instant;

use super::address::Endpoint;

/// How long the others are waited for after the start, so that the first to answer is not taken at its word.
const GATHER: Duration = Duration::from_millis(100);

/// A Sentinel that was not heard for this long counts as silent.
const FRESH: Duration = Duration::from_secs(3);
/// How long all have to say the same before an epoch that is lower than a known one is believed.
const ANEW: Duration = Duration::from_secs(10);

/// What one Sentinel said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sighting {
    pub(super) primary: Endpoint,
    pub(super) epoch: u64,
}

/// What was heard of all.
#[derive(Debug)]
pub(super) struct Lookout {
    /// What each Sentinel said last, and when.
    said: Vec<Option<(Sighting, Instant)>>,
    begun: Instant,
    believed: Option<Sighting>,
    /// What all have been saying against what is believed, and since when.
    contradicted: Option<(Sighting, Instant)>,
}

impl Lookout {
    pub(super) fn new(sentinels: usize, now: Instant) -> Self {
        Self { said: vec![None; sentinels], begun: now, believed: None, contradicted: None }
    }

    /// Hears what a Sentinel says.
    pub(super) fn hear(&mut self, sentinel: usize, sighting: Sighting, now: Instant) {
        if let Some(said) = self.said.get_mut(sentinel) {
            *said = Some((sighting, now));
        }
    }

    /// What all who are heard say with a lower epoch than the known one, if they have for long enough.
    fn made_anew(&mut self, now: Instant) -> Option<Sighting> {
        let fresh = || self.said.iter().flatten().filter(|(_, at)| now.saturating_duration_since(*at) < FRESH);
        let (first, _) = fresh().next()?;
        let agree = fresh().all(|(said, _)| said == first) && fresh().count() * 2 > self.said.len();
        if !agree || self.believed.as_ref().is_none_or(|believed| first.epoch >= believed.epoch) {
            self.contradicted = None;
            return None;
        }
        match &self.contradicted {
            Some((said, since)) if said == first => {
                (now.saturating_duration_since(*since) >= ANEW).then(|| first.clone())
            }
            _ => {
                self.contradicted = Some((first.clone(), now));
                None
            }
        }
    }

    /// The primary, if that is another one than at the last time.
    pub(super) fn changed(&mut self, now: Instant) -> Option<&Sighting> {
        if self.believed.is_none() && now < self.begun + GATHER && self.said.iter().any(Option::is_none) {
            return None;
        }
        if let Some(anew) = self.made_anew(now) {
            let is_other = self.believed.as_ref().is_none_or(|believed| believed.primary != anew.primary);
            (self.believed, self.contradicted) = (Some(anew), None);
            // What those said who are gone since is of another count of epochs.
            let is_stale = |said: &mut (Sighting, Instant)| now.saturating_duration_since(said.1) >= FRESH;
            self.said.iter_mut().for_each(|said| drop(said.take_if(is_stale)));
            return self.believed.as_ref().filter(|_| is_other);
        }
        let agree = |with: &Sighting| self.said.iter().flatten().filter(|(said, _)| said == with).count();
        let (best, _) = self.said.iter().flatten().max_by_key(|(said, _)| (said.epoch, agree(said)))?;
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
        lookout.hear(0, at(1, 5), now);
        assert_eq!(lookout.changed(now), None, "others may know better");
        lookout.hear(1, at(2, 7), now);
        lookout.hear(2, at(1, 5), now);
        assert_eq!(lookout.changed(now), Some(&at(2, 7)));
        assert_eq!(lookout.changed(now), None);
    }

    #[test]
    fn those_who_are_silent_are_not_waited_for() {
        let now = Instant::now();
        let mut lookout = Lookout::new(3, now);
        lookout.hear(2, at(1, 5), now);
        assert_eq!(lookout.changed(now + GATHER), Some(&at(1, 5)));
        assert_eq!(lookout.due(), None);
    }

    #[test]
    fn an_old_epoch_is_not_believed_again() {
        let now = Instant::now();
        let mut lookout = Lookout::new(3, now);
        (0..3).for_each(|sentinel| lookout.hear(sentinel, at(1, 5), now));
        assert_eq!(lookout.changed(now), Some(&at(1, 5)));
        lookout.hear(0, at(2, 6), now);
        assert_eq!(lookout.changed(now), Some(&at(2, 6)), "one is enough for a newer epoch");
        // The one that knew is gone, and the others have not heard.
        lookout.hear(0, at(1, 5), now);
        assert_eq!(lookout.changed(now), None);
        (0..3).for_each(|sentinel| lookout.hear(sentinel, at(1, 5), now));
        assert_eq!(lookout.changed(now), None);
        lookout.hear(1, at(1, 7), now);
        assert_eq!(lookout.changed(now), Some(&at(1, 7)), "it was made the primary again");
    }

    #[test]
    fn with_the_same_epoch_most_have_to_agree() {
        let now = Instant::now();
        let mut lookout = Lookout::new(3, now);
        (0..3).for_each(|sentinel| lookout.hear(sentinel, at(1, 5), now));
        assert!(lookout.changed(now).is_some());
        lookout.hear(2, at(2, 5), now);
        assert_eq!(lookout.changed(now), None);
        lookout.hear(1, at(2, 5), now);
        lookout.changed(now);
        lookout.hear(0, at(2, 5), now);
        assert_eq!(lookout.believed, Some(at(2, 5)));
    }

    #[test]
    fn sentinels_that_were_made_anew_are_believed_when_all_have_said_the_same_for_a_while() {
        let begun = Instant::now();
        let mut lookout = Lookout::new(3, begun);
        (0..3).for_each(|sentinel| lookout.hear(sentinel, at(1, 5), begun));
        assert!(lookout.changed(begun).is_some());
        let second = Duration::from_secs(1);
        // One is silent for good. Of the others one still says what was, for a while.
        for (number, said) in (1..).zip([[at(2, 0), at(1, 5)], [at(2, 0), at(2, 0)]]) {
            for passed in 0..10 {
                let now = begun + second * (10 * number + passed);
                lookout.hear(0, said[0].clone(), now);
                lookout.hear(2, said[1].clone(), now);
                assert_eq!(lookout.changed(now), None, "{number} {passed}");
            }
        }
        let now = begun + second * 30;
        [0, 2].into_iter().for_each(|sentinel| lookout.hear(sentinel, at(2, 0), now));
        assert_eq!(lookout.changed(now), Some(&at(2, 0)));
        assert_eq!(lookout.changed(now), None, "what the silent one said of the old primary is forgotten");
        assert_eq!(lookout.believed, Some(at(2, 0)));
        // From here on their epochs count.
        lookout.hear(2, at(3, 1), now);
        assert_eq!(lookout.changed(now), Some(&at(3, 1)));
    }

    #[test]
    fn one_that_is_cut_off_with_an_old_epoch_is_not_enough() {
        let begun = Instant::now();
        let mut lookout = Lookout::new(3, begun);
        (0..3).for_each(|sentinel| lookout.hear(sentinel, at(2, 6), begun));
        assert!(lookout.changed(begun).is_some());
        for passed in 0..100 {
            let now = begun + Duration::from_secs(passed);
            lookout.hear(0, at(1, 5), now);
            assert_eq!(lookout.changed(now), None);
        }
    }

    proptest::proptest! {
        #[test]
        fn epochs_never_go_back(said in proptest::collection::vec((0..3usize, 1..4u16, 0..6u64), 0..60)) {
            let now = Instant::now();
            let mut lookout = Lookout::new(3, now);
            let mut last = 0;
            for (sentinel, port, epoch) in said {
                lookout.hear(sentinel, at(port, epoch), now);
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
