//! Rule files that allow everything that is asked here, and count it.

/// Envoyproxy's dialect: users, each counted apart.
pub fn lyft() -> String {
    "domain: bench\ndescriptors:\n  - key: user\n    rate_limit: {unit: day, requests_per_unit: 1000000000}\n"
        .to_owned()
}

/// The same in tollgate's own.
pub fn own() -> String {
    "domain: bench\nrules:\n  - name: per-user\n    per: user\n    limits: 1000000000/day\n".to_owned()
}

/// A rule for each of the first `rules` users. What they allow is `more` than in other versions of the file.
pub fn many(rules: usize, more: usize) -> String {
    let mut text = String::from("domain: bench\ndescriptors:\n");
    for user in 0..rules {
        let most = 1_000_000_000 + more;
        text.push_str(&format!(
            "  - key: user\n    value: \"{user:012}\"\n    rate_limit: {{unit: day, requests_per_unit: {most}}}\n"
        ));
    }
    text
}
