//! Charges of one call that live on different nodes of a Cluster.
//!
//! No script can change both, so they are asked in parallel, and what was admitted is given back if another was not.
//! What holds then:
//!
//! - No limit ever admits more than it would alone.
//! - A call that is denied charges nothing. Its other counters hold its cost for a round trip, and may deny someone for it.
//! - What cannot be undone stays: a place in a queue behind which another was taken, and the counts of limits that record what they deny.
//! - If a node fails between, what was charged on the others is given back as far as they can be reached. What cannot be is
//!   charged without having been admitted: too strict, never too lenient. A denial of another is the answer all the same.

use tollgate::{Intent, Micros, Outcome, ReservationId, Timestamp, join_all};

use crate::call::{Link, Tag};
use crate::script::{Counter, Encoder};
use crate::store::{RedisStore, Result};

/// The counters of one tag, and which they are.
pub(crate) struct Group<'c> {
    pub(crate) tag: Tag,
    pub(crate) counters: Vec<Counter<'c>>,
    places: Vec<usize>,
}

/// Divides counters by where they live. The order within each stays.
pub(crate) fn groups<'c>(counters: &[Counter<'c>]) -> Vec<Group<'c>> {
    let mut groups: Vec<Group<'c>> = Vec::new();
    let mut group_of = std::collections::HashMap::new();
    for (place, counter) in counters.iter().enumerate() {
        let index = *group_of.entry(counter.tag).or_insert(groups.len());
        if index == groups.len() {
            groups.push(Group { tag: counter.tag, counters: Vec::new(), places: Vec::new() });
        }
        if let Some(group) = groups.get_mut(index) {
            group.counters.push(counter.clone());
            group.places.push(place);
        }
    }
    groups
}

/// The outcomes of all groups in the order in which their counters were.
pub(crate) fn in_order(groups: &[Group<'_>], found: Vec<Vec<Outcome>>) -> Vec<Outcome> {
    let mut placed: Vec<(usize, Outcome)> = Vec::new();
    for (group, outcomes) in groups.iter().zip(found) {
        placed.extend(group.places.iter().copied().zip(outcomes));
    }
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, outcome)| outcome).collect()
}

impl<L: Link> RedisStore<L> {
    pub(crate) async fn apply_apart(
        &self,
        counters: &[Counter<'_>],
        intent: Intent,
        encoder: Encoder,
    ) -> Result<Vec<Outcome>, L> {
        let groups = groups(counters);
        let asked = groups.iter().map(|group| self.apply_as_one(&group.counters, intent, encoder));
        let found = join_all(asked).await;
        if intent != Intent::Spend || found.iter().all(|found| found.as_ref().is_ok_and(|found| admits(found))) {
            return Ok(in_order(&groups, found.into_iter().collect::<std::result::Result<_, _>>()?));
        }
        for (group, found) in groups.iter().zip(&found) {
            let charged = found.as_ref().ok().filter(|found| admits(found));
            charged.into_iter().for_each(|outcomes| self.undo(group, outcomes, encoder));
        }
        self.report_apart(&groups, found, encoder).await
    }

    pub(crate) async fn reserve_apart(
        &self,
        counters: &[Counter<'_>],
        id: ReservationId,
        hold: Micros,
        now: Timestamp,
    ) -> Result<Vec<Outcome>, L> {
        let (groups, encoder) = (groups(counters), Encoder::new(now));
        let tags: Vec<Tag> = groups.iter().map(|group| group.tag).collect();
        let asked = groups.iter().enumerate().map(|(index, group)| {
            // The first one is where the reservation lives, and knows of the others.
            let elsewhere = if index == 0 { tags.get(1..).unwrap_or_default() } else { &[] };
            let encode = move |encoder: Encoder, counters: &[Counter<'_>]| {
                encoder.reserve(counters, id, hold, group.tag, elsewhere)
            };
            self.ask(&group.counters, encoder, encode)
        });
        let found = join_all(asked).await;
        if found.iter().all(|found| found.as_ref().is_ok_and(|found| admits(found))) {
            return Ok(in_order(&groups, found.into_iter().collect::<std::result::Result<_, _>>()?));
        }
        for (group, found) in groups.iter().zip(&found) {
            if found.as_ref().is_ok_and(|found| admits(found)) {
                self.link().send(encoder.withdraw(id, group.tag));
            }
        }
        self.report_apart(&groups, found, encoder).await
    }

    /// Gives back what a group was charged, each at the time when it could proceed. Nobody waits for it: whoever asks
    /// the same server afterwards is answered afterwards, and if it is lost, too much stays charged.
    fn undo(&self, group: &Group<'_>, found: &[Outcome], encoder: Encoder) {
        for (counter, outcome) in group.counters.iter().zip(found) {
            let intent = Intent::Refund { charged_at: outcome.proceeds_at() };
            self.link().send(encoder.apply(std::slice::from_ref(counter), intent));
        }
    }

    /// Beside a denial, the others are told what they have, not what they would have had. A denial that was heard
    /// stands, whether the others can be asked or not; if there was none, that one of them could not be is an error.
    async fn report_apart(
        &self,
        groups: &[Group<'_>],
        found: Vec<Result<Vec<Outcome>, L>>,
        encoder: Encoder,
    ) -> Result<Vec<Outcome>, L> {
        let denied_at = found.iter().flatten().find(|found| !admits(found)).and_then(|found| found.first());
        let Some(denied_at) = denied_at.map(|outcome| outcome.at) else {
            let found = found.into_iter().collect::<std::result::Result<Vec<_>, _>>()?;
            return Ok(in_order(groups, found));
        };
        let reported = groups.iter().zip(found).map(|(group, found)| async move {
            match found {
                Ok(found) if !admits(&found) => found,
                Ok(found) => self.apply_as_one(&group.counters, Intent::Peek, encoder).await.unwrap_or(found),
                Err(_) => group.counters.iter().map(|counter| unheard(counter, denied_at)).collect(),
            }
        });
        Ok(in_order(groups, join_all(reported).await))
    }
}

/// What is told of a counter that could not be asked, beside another's denial: nothing is known to be left.
fn unheard(counter: &Counter<'_>, at: Timestamp) -> Outcome {
    let limit = counter.charge.limit.most();
    Outcome { at, limit, remaining: 0, alone: true, ..Outcome::UNLIMITED }
}

fn admits(outcomes: &[Outcome]) -> bool {
    outcomes.iter().all(|outcome| outcome.allowed)
}
