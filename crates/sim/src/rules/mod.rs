//! Judges the rule language: arbitrary rule sets, through their text, against a naive reading of what they say.
//!
//! A rule set is drawn as a list of plain descriptions ([`spec`]), written as YAML, read and compiled by
//! `tollgate-rules`, and asked; the [`model`] answers the same question from the descriptions alone, by looking at
//! every rule.

pub mod model;
pub mod spec;

use tollgate::Check;
use tollgate::rules::{Attribute, Descriptor, RuleSet, SimpleValues, Source as Text, parse};

use crate::laws::{Kept, Source};
use model::Met;
use spec::Spec;

/// How many questions one input asks at most.
const MOST_CHECKS: usize = 16;

/// Any bytes as a file of rules: it is read or refused, and whatever is said about it can be shown.
pub fn fuzz_text(bytes: &[u8]) -> Kept {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let (rules, diagnostics) = RuleSet::compile(parse(vec![Text::new("rules.yaml", text)]));
    let plain = diagnostics.render(false);
    let coloured = diagnostics.render(true);
    let json = diagnostics.to_json();
    if diagnostics.has_errors() && (plain.is_empty() || coloured.is_empty()) {
        return Err(format!("errors, and nothing is said about them: {json:?}"));
    }
    if let Some(problem) = diagnostics.iter().find(|problem| problem.help.is_none()) {
        return Err(format!("nothing is said about what to write instead: {problem:?}"));
    }
    for rule in rules.rules() {
        let domain = &rule.rule().domain;
        let attributes = [("a", "x"), ("key", "value")];
        rules.find(domain, &attributes);
        rules.collect(domain, &attributes, |_| {});
    }
    Ok(())
}

/// Any bytes as a rule set and questions to it: all ways to ask say what the model says.
pub fn fuzz_matching(bytes: &[u8]) -> Kept {
    let mut source = Source::new(bytes);
    let spec = Spec::draw(&mut source);
    let parsed = parse(spec.files.iter().map(|file| Text::new("rules.yaml", file.as_str())).collect());
    let (rules, diagnostics) = RuleSet::compile(parsed);
    if diagnostics.has_errors() {
        return Err(format!("refused:\n{}\n{}", spec.files.join("---\n"), diagnostics.render(false)));
    }
    for _ in 0..MOST_CHECKS {
        let attributes = spec::attributes(&spec, &mut source);
        let pairs: Vec<Attribute<'_>> = attributes.iter().map(|(key, value)| (&**key, &**value)).collect();
        compare_find(&spec, &rules, &pairs)?;
        compare_collect(&spec, &rules, &pairs)?;
        if source.is_empty() {
            break;
        }
    }
    Ok(())
}

fn compare_find(spec: &Spec, rules: &RuleSet, entries: &[Attribute<'_>]) -> Kept {
    let expected = model::find(&spec.rules, entries);
    let found = rules.find(spec::DOMAIN, entries).map(|found| Met::of(&found));
    if found != expected {
        return Err(wrong("find", spec, entries, &found, &expected));
    }
    if rules.find("elsewhere", entries).is_some() {
        return Err("a rule was found in another domain".to_owned());
    }
    let descriptors = [Descriptor::new(entries)];
    let simple = simple(rules, &Check::descriptors(spec::DOMAIN, &descriptors));
    let expected = expected.filter(|met| model::is_simple(&spec.rules, met));
    if simple != expected {
        return Err(wrong("simple, of a descriptor", spec, entries, &simple, &expected));
    }
    Ok(())
}

fn compare_collect(spec: &Spec, rules: &RuleSet, attributes: &[Attribute<'_>]) -> Kept {
    let (applying, exempt) = model::collect(&spec.rules, attributes);
    let mut found = Vec::new();
    rules.collect(spec::DOMAIN, attributes, |met| found.push(Met::of(&met)));
    found.sort();
    if found != applying {
        return Err(wrong("collect", spec, attributes, &found, &applying));
    }
    let simple = simple(rules, &Check::attributes(spec::DOMAIN, attributes));
    let expected = match &*applying {
        [only] if exempt == 0 && model::is_simple(&spec.rules, only) => Some(only.clone()),
        _ => None,
    };
    if simple != expected {
        return Err(wrong("simple, of attributes", spec, attributes, &simple, &expected));
    }
    Ok(())
}

fn simple(rules: &RuleSet, check: &Check<'_>) -> Option<Met> {
    let mut values = SimpleValues::default();
    let simple = rules.simple(check, &mut values)?;
    let rule = rules.rules().get(simple.number as usize)?;
    (rule.limit_id(0) == simple.limit_id).then(|| Met {
        rule: rule.rule().name.to_string(),
        values: simple.values.iter().map(|value| value.to_vec()).collect(),
    })
}

fn wrong<T: std::fmt::Debug>(what: &str, spec: &Spec, asked: &[Attribute<'_>], found: &T, expected: &T) -> String {
    format!("{what}\n{}\nasked {asked:?}\nfound    {found:?}\nexpected {expected:?}", spec.files.join("---\n"))
}
