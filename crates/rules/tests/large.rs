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
    for number in 0..1_000 {
        let _ = writeln!(endless, "- {{key: b{number}, descriptors: *all}}");
    }
    MOST.store(HELD.load(Ordering::Relaxed), Ordering::Relaxed);
    let parsed = parse(vec![Source::new("rules.yaml", &*endless)]);
    let most = MOST.load(Ordering::Relaxed) >> 20;
    let refused = parsed.diagnostics.to_string();
    assert!(refused.contains("the file stands for more than 131072 rules"), "{refused}");
    assert!(parsed.rules.len() == 131_072 && most <= 160, "{} rules, {most} MiB", parsed.rules.len());
}
