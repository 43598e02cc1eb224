//! What a rule says about one value: this one, one of these, like this, in this network, anything but.

mod lists;

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

pub use lists::{Networks, Texts};

/// Which values a rule is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// Every value.
    Any,
    /// This one.
    Exact(Box<str>),
    /// One of these.
    OneOf(Texts),
    /// Those of this shape.
    Glob(Glob),
    /// Addresses in one of these networks.
    Networks(Networks),
    /// All but those of this pattern.
    Not(Box<Pattern>),
    /// Those of any of these patterns: what is not alike in a list.
    AnyOf(Box<[Pattern]>),
}

impl Pattern {
    /// Whether `value` is one of them.
    pub fn matches(&self, value: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(exact) => **exact == *value,
            Self::OneOf(texts) => texts.contains(value),
            Self::Glob(glob) => glob.matches(value),
            Self::Networks(networks) => parse_address(value).is_some_and(|address| networks.contains(address)),
            Self::Not(pattern) => !pattern.matches(value),
            Self::AnyOf(patterns) => patterns.iter().any(|pattern| pattern.matches(value)),
        }
    }

    /// How many values it is made of, a long one counted as several: what comparing or copying it takes.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Any => 1,
            Self::Exact(text) => text_size(text.len()),
            Self::OneOf(texts) => texts.iter().map(|text| text_size(text.len())).sum::<usize>() + 1,
            Self::Glob(glob) => text_size(glob.literal_bytes()),
            Self::Networks(networks) => networks.len() + 1,
            Self::Not(pattern) => pattern.size(),
            Self::AnyOf(patterns) => patterns.iter().map(Self::size).sum::<usize>() + 1,
        }
    }

    /// A value that it is for, of those that are written out.
    pub(crate) fn exact(&self) -> Option<&str> {
        match self {
            Self::Exact(text) => Some(text),
            Self::OneOf(texts) => texts.first().map(|text| &**text),
            Self::AnyOf(patterns) => patterns.iter().find_map(Self::exact),
            Self::Any | Self::Glob(_) | Self::Networks(_) | Self::Not(_) => None,
        }
    }

    /// The values of all `patterns`. Texts and networks are gathered, so that many of them are looked up and not tried
    /// one by one.
    pub(crate) fn any_of(mut patterns: Vec<Self>) -> Self {
        if patterns.len() == 1
            && let Some(only) = patterns.pop()
        {
            return only;
        }
        let (mut texts, mut networks, mut others) = (Vec::new(), Vec::new(), Vec::new());
        let mut left = patterns;
        left.reverse();
        while let Some(pattern) = left.pop() {
            match pattern {
                Self::Exact(text) => texts.push(text),
                Self::OneOf(list) => texts.extend(list),
                Self::Networks(list) => networks.extend(list),
                Self::AnyOf(list) => left.extend(list.into_iter().rev()),
                other => others.push(other),
            }
        }
        match texts.len() {
            0 => {}
            1 => others.extend(texts.pop().map(Self::Exact)),
            _ => others.push(Self::OneOf(texts.into())),
        }
        if !networks.is_empty() {
            others.push(Self::Networks(networks.into()));
        }
        match others.len() {
            1 => others.pop().unwrap_or(Self::Any),
            _ => Self::AnyOf(others.into()),
        }
    }
}

/// As how many values a text of so many bytes counts.
pub(crate) fn text_size(bytes: usize) -> usize {
    1 + bytes / 64
}

/// As it can be written in a file.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn list<T: fmt::Display>(f: &mut fmt::Formatter<'_>, items: &[T]) -> fmt::Result {
            if let [item] = items {
                return write!(f, "{item}");
            }
            f.write_str("[")?;
            for (index, item) in items.iter().enumerate() {
                write!(f, "{}{item}", if index > 0 { ", " } else { "" })?;
            }
            f.write_str("]")
        }
        match self {
            Self::Any => f.write_str("*"),
            Self::Exact(exact) => f.write_str(exact),
            Self::OneOf(items) => list(f, items),
            Self::Glob(glob) => write!(f, "{glob}"),
            Self::Networks(networks) => list(f, networks),
            Self::Not(pattern) => write!(f, "not {pattern}"),
            Self::AnyOf(patterns) => list(f, patterns),
        }
    }
}

/// Literals with anything, or nothing, between them. Matches bytes, at both ends, in the case given.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Glob {
    /// At least two: what is before the first `*`, between each two, and after the last.
    literals: Box<[Box<str>]>,
}

impl Glob {
    /// `text` with each `*` standing for anything; `None` if it has none.
    pub fn parse(text: &str) -> Option<Self> {
        text.contains('*').then(|| Self { literals: text.split('*').map(Into::into).collect() })
    }

    /// Whatever begins with `prefix`, taken literally.
    pub fn prefix(prefix: &str) -> Self {
        Self { literals: [prefix, ""].map(Into::into).into() }
    }

    /// Whether `value` has this shape.
    pub fn matches(&self, value: &str) -> bool {
        let [first, between @ .., last] = &*self.literals else { return false };
        let Some(rest) = value.strip_prefix(&**first) else { return false };
        let Some(mut rest) = rest.strip_suffix(&**last) else { return false };
        // The leftmost place for each literal leaves the most room for the others.
        for literal in between {
            match rest.find(&**literal) {
                Some(at) => rest = &rest[at + literal.len()..],
                None => return false,
            }
        }
        true
    }

    /// What every match begins with.
    pub fn head(&self) -> &str {
        self.literals.first().map_or("", |literal| literal)
    }

    /// What every match ends with.
    pub fn tail(&self) -> &str {
        self.literals.last().map_or("", |literal| literal)
    }

    /// How many bytes are given: the more, the more specific.
    pub fn literal_bytes(&self) -> usize {
        self.literals.iter().map(|literal| literal.len()).sum()
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.literals.join("*"))
    }
}

/// The addresses that share their first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    /// In IPv6's form; version 4 is mapped into it.
    bits: u128,
    /// Of 128.
    length: u8,
}

impl Network {
    /// `10.0.0.0/8`, `2001:db8::/32`, or one address. Bits beyond the prefix are ignored.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length.parse::<u8>().ok()?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let (offset, most) = if address.is_ipv4() { (96, 32) } else { (0, 128) };
        let length = length.unwrap_or(most);
        (length <= most).then(|| Self::of(to_bits(address), offset + length))
    }

    fn of(bits: u128, length: u8) -> Self {
        Self { bits: bits & mask(length), length }
    }

    /// The first `length` of 128 bits of `address`.
    pub fn around(address: IpAddr, length: u8) -> Self {
        Self::of(to_bits(address), length.min(128))
    }

    /// Whether `address` is in it.
    pub fn contains(self, address: IpAddr) -> bool {
        to_bits(address) & mask(self.length) == self.bits
    }

    /// The network of `length` bits that it is in; itself if that is no fewer than it has.
    pub(crate) fn shortened(self, length: u8) -> Self {
        Self::of(self.bits, length.min(self.length))
    }

    /// Whether all addresses of `other` are in it.
    pub fn covers(self, other: Self) -> bool {
        self.length <= other.length && other.bits & mask(self.length) == self.bits
    }

    /// Its bits and how many they are: different for each network.
    pub fn to_bytes(self) -> [u8; 17] {
        let mut bytes = [self.length; 17];
        bytes[..16].copy_from_slice(&self.bits.to_be_bytes());
        bytes
    }

    /// The network of these bytes, if they are those of one.
    pub fn from_bytes(bytes: [u8; 17]) -> Option<Self> {
        let (bits, [length]) = bytes.split_first_chunk().map(|(bits, rest)| (u128::from_be_bytes(*bits), rest))? else {
            return None;
        };
        (*length <= 128 && bits & !mask(*length) == 0).then_some(Self { bits, length: *length })
    }

    /// How many of 128 bits are given: version 4's have 96 more than are written.
    pub fn length(self) -> u8 {
        self.length
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = Ipv6Addr::from_bits(self.bits);
        match address.to_ipv4_mapped().filter(|_| self.length >= 96) {
            Some(v4) => write!(f, "{v4}/{}", self.length - 96),
            None => write!(f, "{address}/{}", self.length),
        }
    }
}

/// An address as people and proxies write it: brackets and a zone are allowed, IPv4 may be mapped into IPv6.
pub fn parse_address(text: &str) -> Option<IpAddr> {
    let text = text.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(text);
    let text = text.split_once('%').map_or(text, |(address, _)| address);
    text.parse().ok()
}

/// The address in 128 bits; version 4 and its mapped form are the same.
pub(crate) fn to_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

pub(crate) fn mask(length: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(length.min(128))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything_or_nothing_anywhere() {
        for (pattern, value, matches) in [
            ("foo*", "foo", true),
            ("foo*", "foobar", true),
            ("foo*", "fo", false),
            ("*bar", "foobar", true),
            ("*bar", "barfoo", false),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("*", "", true),
            ("**", "x", true),
            ("*b*b*", "b", false),
            ("*b*b*", "bb", true),
            ("Foo*", "foo", false),
            ("é*", "éa", true),
        ] {
            assert_eq!(Glob::parse(pattern).unwrap().matches(value), matches, "{pattern} {value}");
        }
        assert!(Glob::parse("plain").is_none());
        assert!(Glob::prefix("a*b").matches("a*bc") && !Glob::prefix("a*b").matches("aXbc"));
    }

    #[test]
    fn networks_hold_their_addresses_in_either_form() {
        let network = |text| Network::parse(text).unwrap();
        let inside = |text, address| network(text).contains(parse_address(address).unwrap());
        assert!(inside("10.0.0.0/8", "10.255.0.1"));
        assert!(inside("10.0.0.0/8", "::ffff:10.1.2.3"));
        assert!(!inside("10.0.0.0/8", "11.0.0.0"));
        assert!(inside("2001:db8::/32", "2001:db8:1::1"));
        assert!(!inside("2001:db8::/32", "2001:db9::"));
        assert!(inside("0.0.0.0/0", "1.2.3.4") && !inside("0.0.0.0/0", "::1"));
        assert!(inside("::/0", "1.2.3.4") && inside("::/0", "::1"));
        assert!(inside("192.0.2.7", "192.0.2.7") && !inside("192.0.2.7", "192.0.2.8"));
        assert_eq!(network("10.1.2.3/8").to_string(), "10.0.0.0/8");
        assert_eq!(network("2001:db8:1::/32").to_string(), "2001:db8::/32");
        for text in ["10.0.0.0/8", "2001:db8::/32", "192.0.2.7", "::/0", "0.0.0.0/0", "::1"] {
            assert_eq!(Network::from_bytes(network(text).to_bytes()), Some(network(text)), "{text}");
        }
        assert_eq!(Network::from_bytes([b'a'; 17]), None);
        assert_eq!(Network::from_bytes([0xff; 17]), None);
        for bad in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/", "10.0.0.0/-1", "a/8"] {
            assert!(Network::parse(bad).is_none(), "{bad}");
        }
    }
}
