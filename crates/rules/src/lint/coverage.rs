//! Whether one pattern has all values of another, or none of them. "Yes" is certain, "no" may be "not known".

use crate::pattern::{Glob, Pattern};

/// Whether every value of `narrow` is one of `wide`.
pub(super) fn covers(wide: &Pattern, narrow: &Pattern) -> bool {
    if is_all(wide) || wide == narrow {
        return true;
    }
    match (wide, narrow) {
        (_, Pattern::Exact(value)) => wide.matches(value),
        (_, Pattern::OneOf(values)) => values.iter().all(|value| wide.matches(value)),
        (_, Pattern::AnyOf(patterns)) => patterns.iter().all(|narrow| covers(wide, narrow)),
        (Pattern::Not(outside), Pattern::Not(not)) => covers(not, outside),
        (Pattern::Not(outside), _) => disjoint(outside, narrow),
        (Pattern::AnyOf(patterns), _) => patterns.iter().any(|wide| covers(wide, narrow)),
        (Pattern::Glob(wide), Pattern::Glob(narrow)) => glob_covers(wide, narrow),
        (Pattern::Networks(wide), Pattern::Networks(narrow)) => narrow.iter().all(|narrow| wide.covers(*narrow)),
        _ => false,
    }
}

/// Whether no value of `one` is of `other`.
pub(super) fn disjoint(one: &Pattern, other: &Pattern) -> bool {
    match (one, other) {
        (Pattern::Exact(value), pattern) | (pattern, Pattern::Exact(value)) => !pattern.matches(value),
        (Pattern::OneOf(values), pattern) | (pattern, Pattern::OneOf(values)) => {
            values.iter().all(|value| !pattern.matches(value))
        }
        (Pattern::AnyOf(patterns), pattern) | (pattern, Pattern::AnyOf(patterns)) => {
            patterns.iter().all(|one| disjoint(one, pattern))
        }
        (Pattern::Not(not), pattern) | (pattern, Pattern::Not(not)) => covers(not, pattern),
        // Of two networks that have an address in common, one has all of the other.
        (Pattern::Networks(one), Pattern::Networks(other)) => {
            !one.iter().any(|network| other.covers(*network)) && !other.iter().any(|network| one.covers(*network))
        }
        (Pattern::Glob(one), Pattern::Glob(other)) => {
            let (one_tail, other_tail) = (one.tail().as_bytes(), other.tail().as_bytes());
            !is_start(one.head().as_bytes().iter(), other.head().as_bytes().iter())
                || !is_start(one_tail.iter().rev(), other_tail.iter().rev())
        }
        _ => false,
    }
}

/// Whether one of the two begins with the other.
fn is_start<'b>(one: impl Iterator<Item = &'b u8>, other: impl Iterator<Item = &'b u8>) -> bool {
    one.zip(other).all(|(one, other)| one == other)
}

/// Whether every value that `narrow` matches is matched by `wide`.
///
/// The text of `narrow` is matched as a value: none of `wide`'s literals has a star, so the stars of `narrow` fall
/// where `wide` takes anything.
pub(super) fn glob_covers(wide: &Glob, narrow: &Glob) -> bool {
    // A prefix may have stars that are meant literally.
    !wide.head().contains('*') && wide.matches(&narrow.to_string())
}

/// Whether no value is of `pattern`.
pub(super) fn is_none(pattern: &Pattern) -> bool {
    match pattern {
        Pattern::OneOf(values) => values.is_empty(),
        Pattern::AnyOf(patterns) => patterns.iter().all(is_none),
        Pattern::Networks(networks) => networks.is_empty(),
        Pattern::Not(not) => is_all(not),
        Pattern::Any | Pattern::Exact(_) | Pattern::Glob(_) => false,
    }
}

/// Whether every value is of `pattern`.
pub(super) fn is_all(pattern: &Pattern) -> bool {
    match pattern {
        Pattern::Any => true,
        Pattern::Glob(glob) => glob.literal_bytes() == 0,
        Pattern::Not(not) => is_none(not),
        Pattern::AnyOf(patterns) => patterns.iter().any(is_all),
        Pattern::Exact(_) | Pattern::OneOf(_) | Pattern::Networks(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pattern::Network;

    fn glob(text: &str) -> Pattern {
        Pattern::Glob(Glob::parse(text).unwrap())
    }

    fn networks(texts: &[&str]) -> Pattern {
        Pattern::Networks(texts.iter().map(|text| Network::parse(text).unwrap()).collect())
    }

    #[test]
    fn wide_patterns_cover_narrow_ones_and_not_the_other_way_round() {
        let exact = |text: &str| Pattern::Exact(text.into());
        let not = |pattern| Pattern::Not(Box::new(pattern));
        for (wide, narrow) in [
            (Pattern::Any, not(exact("a"))),
            (glob("*"), glob("a*")),
            (glob("a*"), glob("ab*c")),
            (glob("*b*"), glob("a*b")),
            (glob("a*"), exact("ab")),
            (not(exact("b")), exact("a")),
            (not(exact("ab")), not(glob("a*"))),
            (networks(&["10.0.0.0/8", "::/3"]), networks(&["10.1.0.0/16"])),
            (networks(&["10.0.0.0/8"]), exact("10.1.2.3")),
            (not(networks(&["10.0.0.0/8"])), networks(&["11.0.0.0/8", "2001::/16"])),
            (not(networks(&["10.1.0.0/16"])), not(networks(&["10.0.0.0/8"]))),
            (not(glob("a*")), glob("b*")),
            (not(glob("*a")), glob("a*b")),
            (Pattern::AnyOf([exact("a"), glob("b*")].into()), Pattern::AnyOf([exact("a"), exact("bc")].into())),
        ] {
            assert!(covers(&wide, &narrow), "{wide} covers {narrow}");
            assert!(!covers(&narrow, &wide), "{narrow} does not cover {wide}");
        }
        assert!(!covers(&not(networks(&["10.0.0.0/8"])), &networks(&["10.1.0.0/16"])));
        assert!(!disjoint(&networks(&["10.0.0.0/8"]), &networks(&["::/16"])), "IPv4 is a part of IPv6");
        assert!(!covers(&not(glob("a*")), &glob("*b")), "`ab` is both");
        assert!(disjoint(&exact("a"), &glob("b*")) && !disjoint(&exact("b"), &glob("b*")));
        assert!(!covers(&Pattern::Glob(Glob::prefix("a*b")), &glob("a*b*")));
        assert!(is_none(&not(glob("**"))) && !is_none(&not(glob("a*"))) && is_none(&Pattern::AnyOf([].into())));
    }

    fn pattern() -> impl Strategy<Value = Pattern> {
        let leaf = prop_oneof![
            Just(Pattern::Any),
            "[ab]{0,3}".prop_map(|text| Pattern::Exact(text.into())),
            "[ab*]{0,3}\\*[ab*]{0,2}".prop_map(|text| glob(&text)),
            "[ab*]{0,2}".prop_map(|text| Pattern::Glob(Glob::prefix(&text))),
            prop::collection::vec(prop::sample::select(&["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "::/0"][..]), 0..3)
                .prop_map(|texts| networks(&texts)),
        ];
        leaf.prop_recursive(2, 8, 3, |inner| {
            prop_oneof![
                inner.clone().prop_map(|not| Pattern::Not(Box::new(not))),
                prop::collection::vec(inner, 0..3).prop_map(|some| Pattern::AnyOf(some.into())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_said_to_be_covered_is(wide in pattern(), narrow in pattern(), values in prop::collection::vec("[ab*]{0,5}", 20)) {
            let addresses = ["10.0.0.1", "10.1.0.1", "10.1.2.3", "::ffff:10.1.2.3", "::1", "2001:db8::1"].map(str::to_owned);
            for value in values.into_iter().chain(addresses) {
                prop_assert!(!disjoint(&wide, &narrow) || !narrow.matches(&value) || !wide.matches(&value));
                prop_assert!(!covers(&wide, &narrow) || !narrow.matches(&value) || wide.matches(&value));
                prop_assert!(!is_none(&narrow) || !narrow.matches(&value));
                prop_assert!(!is_all(&wide) || wide.matches(&value));
            }
        }
    }
}
