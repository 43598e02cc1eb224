//! Lists of texts and of networks. Few are tried one after the other; many are looked up, so that a long list costs
//! hardly more than a short one.
//!
//! A list keeps the order in which it was written. Two lists are equal if they were written alike.

use std::net::IpAddr;
use std::ops::Deref;

use super::{Network, mask, to_bits};

/// From so many on, a list is looked up.
const MANY: usize = 16;

/// Texts, of which a value is one or none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Texts {
    list: Box<[Box<str>]>,
    /// The places of many texts in the list, by what is there.
    sorted: Box<[u32]>,
}

impl Texts {
    /// Whether `value` is one of them.
    pub fn contains(&self, value: &str) -> bool {
        if self.sorted.is_empty() {
            return self.list.iter().any(|text| **text == *value);
        }
        let text = |at: &u32| self.list.get(*at as usize).map_or("", |text| &**text);
        self.sorted.binary_search_by(|at| text(at).cmp(value)).is_ok()
    }
}

impl From<Vec<Box<str>>> for Texts {
    fn from(list: Vec<Box<str>>) -> Self {
        let mut sorted = Vec::new();
        if list.len() >= MANY {
            sorted = (0..).take(list.len()).collect();
            sorted.sort_by_key(|at: &u32| list.get(*at as usize));
        }
        Self { list: list.into(), sorted: sorted.into() }
    }
}

impl<const N: usize> From<[Box<str>; N]> for Texts {
    fn from(list: [Box<str>; N]) -> Self {
        Vec::from(list).into()
    }
}

impl Deref for Texts {
    type Target = [Box<str>];

    fn deref(&self) -> &[Box<str>] {
        &self.list
    }
}

impl IntoIterator for Texts {
    type Item = Box<str>;
    type IntoIter = std::vec::IntoIter<Box<str>>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

/// Networks, of which an address is in one or in none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Networks {
    list: Box<[Network]>,
    /// The first and the last address of each stretch that many networks make up, in order and apart from each other.
    stretches: Box<[(u128, u128)]>,
}

impl Networks {
    /// Whether `address` is in one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        if self.stretches.is_empty() {
            return self.list.iter().any(|network| network.contains(address));
        }
        let bits = to_bits(address);
        self.has_all(bits, bits)
    }

    /// Whether all addresses of `network` are in them. "Yes" is certain; that several few make up a network is not
    /// noticed.
    pub fn covers(&self, network: Network) -> bool {
        if self.stretches.is_empty() {
            return self.list.iter().any(|wide| wide.covers(network));
        }
        let (first, last) = ends(network);
        self.has_all(first, last)
    }

    /// Whether one stretch has all addresses from `first` to `last`.
    fn has_all(&self, first: u128, last: u128) -> bool {
        let after = self.stretches.partition_point(|(start, _)| *start <= first);
        let before = after.checked_sub(1).and_then(|at| self.stretches.get(at));
        before.is_some_and(|(_, end)| last <= *end)
    }
}

fn ends(network: Network) -> (u128, u128) {
    (network.bits, network.bits | !mask(network.length))
}

/// The stretches that `list` makes up: what touches is one.
fn stretches(list: &[Network]) -> Vec<(u128, u128)> {
    let mut all: Vec<(u128, u128)> = list.iter().copied().map(ends).collect();
    all.sort_unstable();
    all.dedup_by(|(first, last), (_, end)| {
        let touches = end.checked_add(1).is_none_or(|next| *first <= next);
        if touches {
            *end = (*end).max(*last);
        }
        touches
    });
    all
}

impl From<Vec<Network>> for Networks {
    fn from(list: Vec<Network>) -> Self {
        let stretches = if list.len() >= MANY { stretches(&list) } else { Vec::new() };
        Self { list: list.into(), stretches: stretches.into() }
    }
}

impl<const N: usize> From<[Network; N]> for Networks {
    fn from(list: [Network; N]) -> Self {
        Vec::from(list).into()
    }
}

impl FromIterator<Network> for Networks {
    fn from_iter<I: IntoIterator<Item = Network>>(list: I) -> Self {
        Vec::from_iter(list).into()
    }
}

impl Deref for Networks {
    type Target = [Network];

    fn deref(&self) -> &[Network] {
        &self.list
    }
}

impl IntoIterator for Networks {
    type Item = Network;
    type IntoIter = std::vec::IntoIter<Network>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use proptest::prelude::*;

    use super::*;

    fn address(bits: u128) -> IpAddr {
        IpAddr::V6(Ipv6Addr::from_bits(bits))
    }

    #[test]
    fn many_are_looked_up() {
        let few: Vec<Box<str>> = vec!["a".into(); MANY - 1];
        assert!(Texts::from(few.clone()).sorted.is_empty());
        assert_eq!(Texts::from([few, vec!["b".into()]].concat()).sorted.len(), MANY);
        let networks: Networks = (0..MANY as u128).map(|bits| Network::around(address(bits), 128)).collect();
        assert_eq!(*networks.stretches, [(0, MANY as u128 - 1)], "what touches is one stretch");
        let all: Networks = std::iter::repeat_n(Network::around(address(0), 0), MANY).collect();
        assert!(all.contains(address(0)) && all.contains(address(u128::MAX)) && all.covers(all[0]));
    }

    /// Networks that lie near each other, at either end of all addresses.
    fn network() -> impl Strategy<Value = Network> {
        let bits = prop_oneof![0u128..200, (u128::MAX - 200)..=u128::MAX];
        (bits, prop_oneof![Just(0u8), 120u8..=128])
            .prop_filter("few have everything", |(bits, length)| *length > 0 || bits % 50 == 0)
            .prop_map(|(bits, length)| Network::around(address(bits), length))
    }

    proptest! {
        #[test]
        fn texts_that_are_looked_up_are_those_that_are_there(
            list in prop::collection::vec("[ab]{0,4}", 0..40),
            values in prop::collection::vec("[ab]{0,4}", 20),
        ) {
            let texts = Texts::from(list.iter().map(|text| text.as_str().into()).collect::<Vec<Box<str>>>());
            prop_assert!(texts.iter().map(|text| &**text).eq(list.iter()));
            for value in values {
                prop_assert_eq!(texts.contains(&value), list.contains(&value), "{}", value);
            }
        }

        #[test]
        fn networks_that_are_looked_up_have_the_same_addresses(
            list in prop::collection::vec(network(), 0..40),
            asked in prop::collection::vec(network(), 20),
        ) {
            let networks: Networks = list.iter().copied().collect();
            prop_assert_eq!(&*networks, &*list);
            for network in asked {
                let (first, last) = ends(network);
                for bits in [first, last] {
                    let found = list.iter().any(|network| network.contains(address(bits)));
                    prop_assert_eq!(networks.contains(address(bits)), found, "{}", network);
                }
                if list.iter().any(|wide| wide.covers(network)) {
                    prop_assert!(networks.covers(network), "{}", network);
                }
                if networks.covers(network) && last - first < 256 {
                    let each = (first..=last).all(|bits| list.iter().any(|wide| wide.contains(address(bits))));
                    prop_assert!(each, "{}", network);
                }
            }
        }
    }
}
