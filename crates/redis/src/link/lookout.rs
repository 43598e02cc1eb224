//! Whom to believe about who is the primary. Pure.
//!
//! A Sentinel says an address and an epoch, which grows with every failover. What has the highest epoch that was ever
//! heard of counts, if the server at that address says that it is a primary, so that neither a Sentinel that was cut
//! off nor a primary that was paused and came back is believed again. Sentinels that were made anew begin with low
//! epochs: they are believed when all who are heard, more than half, have said the same for a while.

use std::time::Duration;

use tokio::time::Instant;

use super::address::Endpoint;

/// How long the others are waited for after the start, so that the first to answer is not taken at its word.
const GATHER: Duration = Duration::from_millis(100);

/// A Sentinel that was not heard for this long counts as silent.
const FRESH: Duration = Duration::from_secs(3);
/// How long all have to say the same before an epoch that is lower than a known one is believed.
const ANEW: Duration = Duration::from_secs(10);

/// How long a sighting that was found to be wrong is not looked at again: it may come true when a failover ends.
const DOUBT: Duration = Duration::from_millis(25);
const LONGEST_DOUBT: Duration = Duration::from_secs(5);

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
    /// What was said and found to be wrong.
    doubted: Vec<Doubted>,
}

/// A sighting that is not looked at for a while.
#[derive(Debug)]
struct Doubted {
    said: Sighting,
    until: Instant,
    wait: Duration,
}

impl Lookout {
    pub(super) fn new(sentinels: usize, now: Instant) -> Self {
        Self { said: vec![None; sentinels], begun: now, believed: None, contradicted: None, doubted: Vec::new() }
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

    /// Who should be asked instead of the one that is believed to be the primary, once it was seen to be one: that is
    /// to be told by [`Self::believe`] or [`Self::doubt`].
    pub(super) fn candidate(&mut self, now: Instant) -> Option<Sighting> {
        if self.believed.is_none() && now < self.begun + GATHER && self.said.iter().any(Option::is_none) {
            return None;
        }
        if let Some(anew) = self.made_anew(now) {
            return (!self.is_doubted(&anew, now)).then_some(anew);
        }
        let said = || self.said.iter().flatten().map(|(said, _)| said).filter(|said| !self.is_doubted(said, now));
        let agree = |with: &Sighting| said().filter(|said| *said == with).count();
        let best = said().max_by_key(|said| (said.epoch, agree(said)))?.clone();
        match &mut self.believed {
            None => Some(best),
            Some(believed) if best.primary == believed.primary => {
                // The same one, confirmed: only the epoch is remembered.
                believed.epoch = believed.epoch.max(best.epoch);
                None
            }
            // With the same epoch, as after a change by hand, it takes more than half of them.
            Some(believed) if best.epoch > believed.epoch => Some(best),
            Some(believed) => (best.epoch == believed.epoch && self.is_agreed(&best)).then_some(best),
        }
    }

    /// Whether more than half of all say so.
    pub(super) fn is_agreed(&self, sighting: &Sighting) -> bool {
        self.said.iter().flatten().filter(|(said, _)| said == sighting).count() * 2 > self.said.len()
    }

    /// A candidate is the primary: from now on nothing counts that is older.
    pub(super) fn believe(&mut self, sighting: Sighting, now: Instant) {
        if self.believed.as_ref().is_some_and(|believed| sighting.epoch < believed.epoch) {
            // What those said who are gone since is of another count of epochs.
            let is_stale = |said: &mut (Sighting, Instant)| now.saturating_duration_since(said.1) >= FRESH;
            self.said.iter_mut().for_each(|said| drop(said.take_if(is_stale)));
        }
        (self.believed, self.contradicted) = (Some(sighting), None);
    }

    /// A candidate was not found to be the primary: it is none for a while, and for longer each time.
    pub(super) fn doubt(&mut self, sighting: &Sighting, now: Instant) {
        self.doubted.retain(|doubted| self.said.iter().flatten().any(|(said, _)| *said == doubted.said));
        match self.doubted.iter_mut().find(|doubted| doubted.said == *sighting) {
            Some(doubted) => {
                doubted.wait = (doubted.wait * 2).min(LONGEST_DOUBT);
                doubted.until = now + doubted.wait;
            }
            None => self.doubted.push(Doubted { said: sighting.clone(), until: now + DOUBT, wait: DOUBT }),
        }
    }

    fn is_doubted(&self, sighting: &Sighting, now: Instant) -> bool {
        self.doubted.iter().any(|doubted| doubted.said == *sighting && now < doubted.until)
    }

    /// When to ask for a candidate next, if nothing is heard until then.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let gathered = self.believed.is_none().then_some(self.begun + GATHER);
        let doubts = self.doubted.iter().map(|doubted| doubted.until);
        doubts.chain(gathered).filter(|due| *due > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16, epoch: u64) -> Sighting {
        Sighting { primary: Endpoint::Tcp("h".to_owned(), port), epoch }
    }

    impl Lookout {
        /// The candidate, which is found to be what was said of it.
        fn changed(&mut self, now: Instant) -> Option<Sighting> {
            let candidate = self.candidate(now)?;
            self.believe(candidate.clone(), now);
            Some(candidate)
        }
    }

    #[test]
    fn at_the_start_all_are_heard_and_the_highest_epoch_counts() {
        let now = Instant::now();
        let mut lookout = Lookout::new(3, now);
        lookout.hear(0, at(1, 5), now);
        assert_eq!(lookout.changed(now), None, "others may know better");
        lookout.hear(1, at(2, 7), now);
        lookout.hear(2, at(1, 5), now);
        assert_eq!(lookout.changed(now), Some(at(2, 7)));
        assert_eq!(lookout.changed(now), None);
    }

    #[test]
    fn those_who_are_silent_are_not_waited_for() {
        let now = Instant::now();
        let mut lookout = Lookout::new(3, now);
        lookout.hear(2, at(1, 5), now);
        assert_eq!(lookout.changed(now + GATHER), Some(at(1, 5)));
        assert_eq!(lookout.due(now), None);
    }

    #[test]
    fn an_old_epoch_is_not_believed_again() {
        let now = Instant::now();
        let mut lookout = Lookout::new(3, now);
        (0..3).for_each(|sentinel| lookout.hear(sentinel, at(1, 5), now));
        assert_eq!(lookout.changed(now), Some(at(1, 5)));
        lookout.hear(0, at(2, 6), now);
        assert_eq!(lookout.changed(now), Some(at(2, 6)), "one is enough for a newer epoch");
        // The one that knew is gone, and the others have not heard.
        lookout.hear(0, at(1, 5), now);
        assert_eq!(lookout.changed(now), None);
        (0..3).for_each(|sentinel| lookout.hear(sentinel, at(1, 5), now));
        assert_eq!(lookout.changed(now), None);
        lookout.hear(1, at(1, 7), now);
        assert_eq!(lookout.changed(now), Some(at(1, 7)), "it was made the primary again");
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
        assert_eq!(lookout.changed(now), Some(at(2, 0)));
        assert_eq!(lookout.changed(now), None, "what the silent one said of the old primary is forgotten");
        assert_eq!(lookout.believed, Some(at(2, 0)));
        // From here on their epochs count.
        lookout.hear(2, at(3, 1), now);
        assert_eq!(lookout.changed(now), Some(at(3, 1)));
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

    #[test]
    fn one_who_names_a_replica_takes_the_primary_from_nobody() {
        let mut now = Instant::now();
        let mut lookout = Lookout::new(3, now);
        [at(1, 5), at(1, 5), at(2, 9)].into_iter().enumerate().for_each(|(from, said)| lookout.hear(from, said, now));
        assert_eq!(lookout.candidate(now), Some(at(2, 9)));
        lookout.doubt(&at(2, 9), now);
        assert_eq!(lookout.changed(now), Some(at(1, 5)));
        // It is looked at again, ever more rarely, and nobody else is given up for it.
        let mut looks = 0;
        for _ in 0..600 {
            now += Duration::from_millis(100);
            (0..2).for_each(|sentinel| lookout.hear(sentinel, at(1, 5), now));
            lookout.hear(2, at(2, 9), now);
            if let Some(candidate) = lookout.candidate(now) {
                assert_eq!(candidate, at(2, 9));
                lookout.doubt(&candidate, now);
                looks += 1;
            }
            assert_eq!(lookout.believed, Some(at(1, 5)));
            assert!(lookout.due(now).is_some_and(|due| due <= now + LONGEST_DOUBT));
        }
        assert!((10..30).contains(&looks), "{looks}");
        // A failover that the others tell of is followed.
        lookout.hear(0, at(3, 6), now);
        assert_eq!(lookout.changed(now), Some(at(3, 6)));
        // And what it said may come true.
        now += LONGEST_DOUBT;
        assert_eq!(lookout.changed(now), Some(at(2, 9)));
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
