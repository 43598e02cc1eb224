//! Whether one pattern has all values of another. "Yes" is certain, "no" may be "not known".

use std::net::IpAddr;

use crate::pattern::{Glob, Network, Pattern};

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
        (Pattern::AnyOf(patterns), _) => patterns.iter().any(|wide| covers(wide, narrow)),
        (Pattern::Glob(wide), Pattern::Glob(narrow)) => glob_covers(wide, narrow),
        (Pattern::Networks(wide), Pattern::Networks(narrow)) => {
            narrow.iter().all(|narrow| wide.iter().any(|wide| network_covers(*wide, *narrow)))
        }
        _ => false,
    }
}

/// Whether every value that `narrow` matches is matched by `wide`.
///
/// The text of `narrow` is matched as a value: none of `wide`'s literals has a star, so the stars of `narrow` fall where
/// `wide` takes anything.
pub(super) fn glob_covers(wide: &Glob, narrow: &Glob) -> bool {
    // A prefix may have stars that are meant literally.
    !wide.head().contains('*') && wide.matches(&narrow.to_string())
}

fn network_covers(wide: Network, narrow: Network) -> bool {
    let [bits @ .., _] = narrow.to_bytes();
    wide.length() <= narrow.length() && wide.contains(IpAddr::from(bits))
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
            (Pattern::AnyOf([exact("a"), glob("b*")].into()), Pattern::AnyOf([exact("a"), exact("bc")].into())),
        ] {
            assert!(covers(&wide, &narrow), "{wide} covers {narrow}");
            assert!(!covers(&narrow, &wide), "{narrow} does not cover {wide}");
        }
        assert!(!covers(&Pattern::Glob(Glob::prefix("a*b")), &glob("a*b*")));
        assert!(is_none(&not(glob("**"))) && !is_none(&not(glob("a*"))) && is_none(&Pattern::AnyOf([].into())));
    }

    fn pattern() -> impl Strategy<Value = Pattern> {
        let leaf = prop_oneof![
            Just(Pattern::Any),
            "[ab]{0,3}".prop_map(|text| Pattern::Exact(text.into())),
            "[ab*]{0,3}\\*[ab*]{0,2}".prop_map(|text| glob(&text)),
            "[ab*]{0,2}".prop_map(|text| Pattern::Glob(Glob::prefix(&text))),
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
            for value in values {
                prop_assert!(!covers(&wide, &narrow) || !narrow.matches(&value) || wide.matches(&value));
                prop_assert!(!is_none(&narrow) || !narrow.matches(&value));
                prop_assert!(!is_all(&wide) || wide.matches(&value));
            }
        }
    }
}
