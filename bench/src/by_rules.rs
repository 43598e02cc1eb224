//! What the programs share that decide by rules: a file of any size, and asking without a runtime.

use std::future::Future;
use std::task::{Context, Poll, Waker};

use tollgate::RuleSet;

/// A file of `rules` rules: ten paths for each tenant, users counted apart.
pub fn file(rules: usize) -> String {
    let mut text = String::from("domain: bench\ndescriptors:\n");
    for tenant in 0..rules.div_ceil(10) {
        text.push_str(&format!("  - key: tenant\n    value: tenant-{tenant}\n    descriptors:\n"));
        for path in 0..10.min(rules - tenant * 10) {
            text.push_str(&format!(
                "      - {{key: path, value: /path-{path}, descriptors: [{{key: user, limits: [{{rate: 1000000/s, \
                 algorithm: token_bucket, burst: 1000000000}}]}}]}}\n"
            ));
        }
    }
    text
}

/// Kinds of patterns: what they are called, their key, and one of them by its number.
#[allow(dead_code, reason = "not every program that uses this module needs it")]
pub const PATTERNS: [(&str, &str, fn(usize) -> String); 2] = [
    ("wildcards", "path", |number| format!("/api/v{number:06}/*")),
    ("networks", "ip", |number| format!("{}.{}.{}.0/24", 10 + number / 65_536, number / 256 % 256, number % 256)),
];

/// A file of `rules` rules, each for another of these patterns, users counted apart.
#[allow(dead_code, reason = "not every program that uses this module needs it")]
pub fn file_of(key: &str, value: fn(usize) -> String, rules: usize) -> String {
    let mut text = String::from("domain: bench\nrules:\n");
    for number in 0..rules {
        text.push_str(&format!(
            "  - {{name: r{number}, when: {{{key}: \"{}\"}}, per: user, limits: {{rate: 1000000/s, algorithm: token_bucket, burst: \
             1000000000}}}}\n",
            value(number)
        ));
    }
    text
}

/// Compiles it.
pub fn rule_set(text: &str) -> RuleSet {
    RuleSet::from_yaml(text).unwrap_or_else(|problems| panic!("{problems}"))
}

/// What a future says that is ready at once.
#[inline(always)]
pub fn now<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("the store in memory answers at once"),
    }
}
