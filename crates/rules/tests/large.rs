//! A file of very many rules is loaded or refused within a bound of memory that is told.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

use tollgate_rules::{RuleSet, Source, parse};

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

struct Measuring;

impl Measuring {
    fn take(bytes: usize) {
        let held = HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
        MOST.fetch_max(held, Ordering::Relaxed);
    }
}

#[allow(unsafe_code, reason = "an allocator has no safe name")]
// SAFETY: the system's allocator does what is asked for, with what it was asked for.
unsafe impl GlobalAlloc for Measuring {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::take(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Old and new are there at the same time, at worst.
        Self::take(size);
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static MEASURING: Measuring = Measuring;

/// One test, since all threads count as one.
#[test]
fn the_memory_of_many_rules_is_what_the_documents_say() {
    const RULES: usize = 15_000;
    let mut plain = String::from("domain: d\nrules:\n");
    for number in 0..RULES {
        // Writing to a string cannot fail.
        let _ = writeln!(plain, "- {{when: {{user: u{number}}}, limits: 5/s}}");
    }
    let before = HELD.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let loaded = RuleSet::from_yaml(&plain).map(|rules| rules.rules().len());
    assert_eq!(loaded.unwrap_or_default(), RULES);
    let most = MOST.load(Ordering::Relaxed) - before;
    assert!(most <= RULES * 1_250, "{} bytes a rule", most / RULES);

    // As many as are promised, below two others each.
    let mut deep = String::from("domain: d\ndescriptors:\n");
    for tenant in 0..1_000 {
        let _ = writeln!(deep, "- key: tenant\n  value: t{tenant}\n  descriptors:");
        for path in 0..100 {
            let _ = writeln!(deep, "  - {{key: path, value: p{path}, descriptors: [{{key: user, limits: 5/s}}]}}");
        }
    }
    let loaded = RuleSet::from_yaml(&deep).map(|rules| rules.rules().len());
    assert_eq!(loaded.map_err(|problems| problems.to_string()), Ok(100_000));

    // None is left out in silence.
    let mut endless = String::from("domain: d\ndescriptors:\n- key: a\n  descriptors: &all\n");
    for number in 0..1_000 {
        let _ = writeln!(endless, "  - {{key: k{number}, limits: 5/s}}");
    }
    for number in 0..200 {
        let _ = writeln!(endless, "- {{key: b{number}, descriptors: *all}}");
    }
    let (refused, rules, most) = refusal(&endless);
    assert!(refused.contains("the file stands for more than 131072 rules"), "{refused}");
    assert!(rules == 131_072 && most <= 160, "{rules} rules, {most} MiB");

    // A few lines that would take more memory than there is, and a file that is simply too long.
    let list = |length: usize| (0..length).map(|number| format!("v{number}")).collect::<Vec<_>>().join(", ");
    let x: String = (2..64).map(|key| format!(", k{key}: x")).collect();
    let mut nodes = format!("x-l: &l [{}]\nrules:\n", list(65_536));
    for number in 0..32 {
        let _ = writeln!(nodes, "- {{when: {{a: *l, k1: r{number}{x}}}, limits: 5/s}}");
    }
    let mut values = format!("x-l: &l [{}]\nrules:\n", list(10_000));
    for number in 0..300 {
        let _ = writeln!(values, "- {{per: k{number}, unless: {{a: *l}}, limits: 5/s}}");
    }
    let mut below = format!("domain: d\ndescriptors:\n- key: a\n  value: [{}]\n  descriptors:\n", list(65_536));
    for number in 0..2_000 {
        let _ = writeln!(below, "  - {{key: k{number}, limits: 5/s}}");
    }
    let mut text = format!("x-t: &t {}\nrules:\n", "t".repeat(1 << 20));
    for number in 0..1_000 {
        let _ = writeln!(text, "- {{when: {{k{number}: *t}}, limits: 5/s}}");
    }
    let long = "t".repeat(1 << 20);
    let mut name = format!("domain: d\ndescriptors:\n- key: a\n  value: {long}\n  descriptors:\n");
    for number in 0..1_000 {
        let _ = writeln!(name, "  - {{key: k{number}, limits: 5/s}}");
    }
    let mut million = String::from("domain: d\nrules:\n");
    for number in 0..1_000_000 {
        let _ = writeln!(million, "- {{when: {{user: u{number}}}, limits: 5/s}}");
    }
    for (what, file, refusal_of_it) in [
        ("nodes on the way", nodes, "combinations of values on the way to them"),
        ("aliases of values", values, "the file stands for more than 2097152 values in its rules"),
        ("values from above", below, "the file stands for more than 2097152 values in its rules"),
        ("aliases of a long text", text, "the file stands for more than 4194304 values"),
        ("a long text from above", name, "the file stands for more than 2097152 values in its rules"),
        ("a million rules", million, "the file stands for more than 4194304 values"),
    ] {
        let (refused, _, most) = refusal(&file);
        assert!(refused.contains(refusal_of_it), "{what}: {refused}");
        assert!(refused.starts_with("rules.yaml:") && !refused.starts_with("rules.yaml:1:"), "{what}: {refused}");
        assert!(most <= 400, "{what}: {most} MiB");
    }
}

/// What is said of a file that is refused, how many of its rules were read, and how many MiB it took at most, with what
/// it takes to compile them.
fn refusal(text: &str) -> (String, usize, usize) {
    let before = HELD.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let parsed = parse(vec![Source::new("rules.yaml", text)]);
    let (rules, refused) = (parsed.rules.len(), parsed.diagnostics.to_string());
    assert!(parsed.diagnostics.has_errors());
    RuleSet::compile(parsed);
    (refused, rules, (MOST.load(Ordering::Relaxed) - before) >> 20)
}
