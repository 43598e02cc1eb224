//! What rules are not for: groups of conditions, and those of them that say nothing.

use hashbrown::HashMap;

use super::Lowering;
use super::pattern::Reading;
use crate::diagnostic::Diagnostic;
use crate::grammar::Slot;
use crate::lint::{Listed, Work};
use crate::model::{Condition, Entry, KeyPattern};
use crate::pattern::Pattern;
use crate::yaml::Node;

/// A group of conditions, with the nodes of their keys.
type Group<'a> = Vec<(&'a Node, Condition)>;

impl Lowering<'_> {
    /// What a file exempts: one mapping, or a list of them.
    pub(super) fn exempt(&mut self, slot: Slot<'_>) -> Vec<Vec<Condition>> {
        slot.map(|written| without_nodes(self.groups(written.value))).unwrap_or_default()
    }

    /// What a rule of these entries is not for, beside what its file exempts.
    pub(super) fn unless(
        &mut self,
        slot: Slot<'_>,
        entries: &[Entry],
        exempt: &[Vec<Condition>],
    ) -> Vec<Vec<Condition>> {
        let Some(written) = slot else { return Vec::new() };
        let groups = self.groups(written.value);
        for group in &groups {
            if !self.never_holds(group, entries) {
                self.exempt_already(group, exempt);
            }
        }
        without_nodes(groups)
    }

    fn groups<'a>(&mut self, node: &'a Node) -> Vec<Group<'a>> {
        let items = self.one_or_more(node);
        let groups: Vec<_> = items.iter().filter_map(|item| self.conditions(item, Reading::EXCEPTION)).collect();
        if groups.len() > 1 {
            self.nothing_new(&groups);
        }
        groups
    }

    /// Groups that hold only when another does.
    fn nothing_new(&mut self, groups: &[Group<'_>]) {
        let mut alone: HashMap<&str, Vec<(usize, &Pattern)>> = HashMap::new();
        for (at, group) in groups.iter().enumerate() {
            if let [(_, condition)] = &**group {
                alone.entry(&condition.key).or_default().push((at, &condition.value));
            }
        }
        let mut pointless = Vec::new();
        for list in alone.values().filter(|list| list.len() > 1) {
            let listed = Listed::new(list.iter().map(|(_, pattern)| *pattern));
            for (place, (at, pattern)) in list.iter().enumerate() {
                let other = listed.covering(place, pattern, self.work);
                pointless.extend(other.and_then(|other| list.get(other)).map(|(other, _)| (*at, *other)));
            }
        }
        for (at, group) in groups.iter().enumerate().filter(|(_, group)| group.len() > 1) {
            if !self.work.take(groups.len()) {
                break;
            }
            let other = groups.iter().enumerate().find(|(place, other)| {
                *place != at
                    && implies(group, conditions(other), self.work)
                    && (*place < at || !implies(other, conditions(group), self.work))
            });
            pointless.extend(other.map(|(other, _)| (at, other)));
        }
        let Some((at, other)) = pointless.iter().copied().min() else { return };
        let spot = |at: usize| groups.get(at).and_then(|group| group.first()).map(|(key, _)| key.span);
        let (Some(here), Some(there)) = (spot(at), spot(other)) else { return };
        let message = "this exception says nothing new: another one holds whenever it does".to_owned();
        let warning = Diagnostic::warning("no-effect", here, message + &and_more(pointless.len()));
        let help = "leave it out, or make the other one narrower";
        self.say(warning.related(there, "the other one").help(help));
    }

    /// Whether a rule of these entries never meets the exception; tells so.
    fn never_holds(&mut self, group: &[(&Node, Condition)], entries: &[Entry]) -> bool {
        // A pattern of keys may stand for a key that has a condition.
        if entries.iter().any(|entry| matches!(entry.key, KeyPattern::Glob(_))) {
            return false;
        }
        let impossible = group.iter().find_map(|(node, condition)| {
            let is_for = |entry: &&Entry| matches!(&entry.key, KeyPattern::Exact(key) if *key == condition.key);
            let entry = entries.iter().find(is_for).filter(|_| self.work.take(entries.len()))?;
            self.work.disjoint(&condition.value, &entry.value).then_some((node.span, condition, entry))
        });
        let Some((place, condition, entry)) = impossible else { return false };
        let only = short(&format!("{}={}", condition.key, entry.value));
        let message = format!("this exception never holds: the rule is only for `{only}`");
        self.warning("no-effect", place, message, "leave it out, or write values that the rule is for");
        true
    }

    fn exempt_already(&mut self, group: &[(&Node, Condition)], exempt: &[Vec<Condition>]) {
        let Some((node, _)) = group.first() else { return };
        if self.work.take(exempt.len()) && exempt.iter().any(|other| implies(group, other.iter(), self.work)) {
            let message = "this exception says nothing new: `exempt` of this file has all of it";
            self.warning("no-effect", node.span, message, "leave it out, or make `exempt` narrower");
        }
    }
}

/// Whether `others` hold whenever `group` does.
fn implies<'c>(group: &[(&Node, Condition)], mut others: impl Iterator<Item = &'c Condition>, work: &mut Work) -> bool {
    others.all(|other| {
        work.take(group.len())
            && group
                .iter()
                .any(|(_, condition)| condition.key == other.key && work.covers(&other.value, &condition.value))
    })
}

fn conditions<'g>(group: &'g [(&Node, Condition)]) -> impl Iterator<Item = &'g Condition> {
    group.iter().map(|(_, condition)| condition)
}

fn without_nodes(groups: Vec<Group<'_>>) -> Vec<Vec<Condition>> {
    groups.into_iter().map(|group| group.into_iter().map(|(_, condition)| condition).collect()).collect()
}

/// In a message about the first of so many.
pub(super) fn and_more(many: usize) -> String {
    if many > 1 { format!(" (and {} more of this list)", many - 1) } else { String::new() }
}

/// The beginning of what is too long for a message.
pub(super) fn short(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
