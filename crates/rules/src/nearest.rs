//! The word that was probably meant.

/// Longer words are not compared: nobody mistypes those, and comparing takes time.
const LONGEST: usize = 48;

/// The one of `known` that is nearest to `word`, if one is near: another case, or a third of the letters wrong.
pub fn nearest<'w>(word: &str, known: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    if word.len() > LONGEST {
        return None;
    }
    let lower = word.to_lowercase();
    let most = (word.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&lower, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= most && *distance < candidate.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Words as a sentence lists them: `a`, `b` or `c`.
pub(crate) fn one_of<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match words.as_slice() {
        [] => String::new(),
        [only] => only.clone(),
        [firsts @ .., last] => format!("{} or {last}", firsts.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_mistakes_are_recognised_and_large_ones_are_not() {
        let known = ["descriptors", "key", "rate_limit", "unlimited"];
        for (word, meant) in [
            ("ratelimit", Some("rate_limit")),
            ("rate-limit", Some("rate_limit")),
            ("descriptor", Some("descriptors")),
            ("KEY", Some("key")),
            ("kye", Some("key")),
            ("k", None),
            ("banana", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
        assert_eq!(nearest(&"k".repeat(1 << 20), known), None);
        assert_eq!(one_of(["a", "b", "c"]), "`a`, `b` or `c`");
        assert_eq!(one_of(["a"]), "`a`");
    }
}
