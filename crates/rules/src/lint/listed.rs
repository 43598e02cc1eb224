//! Which patterns of a list say nothing new, because another of the same list has all their values.
//!
//! Texts and networks are looked up. The others are compared in pairs, as long as the budget lasts.

use hashbrown::HashMap;

use super::Work;
use crate::pattern::{Network, Pattern};

/// The patterns of a list, by what they are.
#[derive(Default)]
pub(crate) struct Listed<'p> {
    texts: HashMap<&'p str, usize>,
    networks: HashMap<Network, usize>,
    /// How long the networks' prefixes are.
    lengths: Vec<u8>,
    others: Vec<(usize, &'p Pattern)>,
}

impl<'p> Listed<'p> {
    pub(crate) fn new(patterns: impl Iterator<Item = &'p Pattern>) -> Self {
        let mut listed = Self::default();
        for (at, pattern) in patterns.enumerate() {
            match pattern {
                Pattern::Exact(text) => drop(listed.texts.entry(text).or_insert(at)),
                Pattern::Networks(networks) if networks.len() == 1 => {
                    for network in networks.iter() {
                        if !listed.lengths.contains(&network.length()) {
                            listed.lengths.push(network.length());
                        }
                        listed.networks.entry(*network).or_insert(at);
                    }
                }
                other => listed.others.push((at, other)),
            }
        }
        listed.lengths.sort_unstable();
        listed
    }

    /// The place of one that is the same as the one at `at` and comes before it.
    pub(crate) fn equal(&self, at: usize, pattern: &Pattern, work: &mut Work) -> Option<usize> {
        let known = match pattern {
            Pattern::Exact(text) => self.texts.get(&**text).copied(),
            Pattern::Networks(networks) if networks.len() == 1 => self.networks.get(networks.first()?).copied(),
            _ => self.other(work, |_, other, work| work.same(other, pattern)),
        };
        known.filter(|known| *known < at)
    }

    /// The place of one that has all values of the one at `at`. Of those that have the same values the first is kept.
    pub(crate) fn covering(&self, at: usize, pattern: &Pattern, work: &mut Work) -> Option<usize> {
        let looked_up = match pattern {
            Pattern::Exact(text) => self.texts.get(&**text).copied().filter(|known| *known < at),
            Pattern::Networks(networks) if networks.len() == 1 => self.wider(at, *networks.first()?),
            _ => None,
        };
        looked_up.or_else(|| {
            self.other(work, |known, other, work| {
                known != at && work.covers(other, pattern) && (known < at || !work.covers(pattern, other))
            })
        })
    }

    fn wider(&self, at: usize, network: Network) -> Option<usize> {
        let lengths = self.lengths.iter().take_while(|length| **length <= network.length());
        lengths.into_iter().find_map(|length| {
            let wide = network.shortened(*length);
            self.networks.get(&wide).copied().filter(|known| wide != network || *known < at)
        })
    }

    fn other(&self, work: &mut Work, is: impl Fn(usize, &Pattern, &mut Work) -> bool) -> Option<usize> {
        for (known, other) in &self.others {
            if !work.take(1) {
                break;
            }
            if is(*known, other, work) {
                return Some(*known);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Glob;

    #[test]
    fn what_another_has_is_found_and_the_first_of_equal_ones_stays() {
        let network = |text: &str| Pattern::Networks([Network::parse(text).unwrap()].into());
        let patterns = [
            network("10.1.0.0/16"),
            Pattern::Exact("a".into()),
            network("10.0.0.0/8"),
            Pattern::Glob(Glob::parse("b*").unwrap()),
            Pattern::Exact("bc".into()),
            Pattern::Exact("a".into()),
            network("10.0.0.0/8"),
            Pattern::Glob(Glob::parse("b**").unwrap()),
            network("11.0.0.0/8"),
            Pattern::Not(Box::new(network("10.0.0.0/7"))),
            network("192.0.2.1"),
        ];
        let listed = Listed::new(patterns.iter());
        let mut work = Work::default();
        let covering: Vec<_> =
            (0..).zip(&patterns).map(|(at, pattern)| listed.covering(at, pattern, &mut work)).collect();
        // Whatever is no address is in no network; whether a wildcard can be one is not known.
        let not = Some(9);
        assert_eq!(covering, [Some(2), not, None, None, Some(3), Some(1), Some(2), Some(3), None, None, not]);
        let equal: Vec<_> = (0..).zip(&patterns).map(|(at, pattern)| listed.equal(at, pattern, &mut work)).collect();
        assert_eq!(equal, [None, None, None, None, None, Some(1), Some(2), None, None, None, None]);
        let mut none_left = Work::default();
        while none_left.take(1) {}
        assert_eq!(listed.covering(4, &patterns[4], &mut none_left), None, "the budget is spent");
        assert_eq!(listed.covering(0, &patterns[0], &mut none_left), Some(2), "looking up costs nothing");
    }
}
