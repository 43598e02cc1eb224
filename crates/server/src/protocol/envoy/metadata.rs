//! Metadata for the proxy: what was asked, and what the rules have to say when they let it pass.
//!
//! Made only where it is asked for, so this is written to be read, not to be fast.

use serde_json::{Map, Value, json};
use tollgate::Verdict;
use tollgate::rules::Override;

use super::answer::Status;
use super::request::{Asked, Request};
use super::wire::{put_bytes, put_head};

/// As envoyproxy/ratelimit makes it.
pub(crate) fn of(verdict: &Verdict<'_>, request: &Request<'_>, statuses: &[Status<'_>]) -> Value {
    let mut told = Map::new();
    told.insert("domain".to_owned(), request.domain.into());
    let descriptors: Vec<Value> = request.descriptors.iter().map(|asked| descriptor(request, asked)).collect();
    told.insert("descriptors".to_owned(), descriptors.into());
    if request.hits_addend != 0 {
        told.insert("hitsAddend".to_owned(), request.hits_addend.into());
    }
    let mut merged = Map::new();
    for (status, shown) in verdict.descriptors.iter().zip(statuses) {
        let toll = verdict.tolls_of(status).first().filter(|_| !shown.over_limit);
        let metadata = toll.and_then(|toll| verdict.rule(toll)).and_then(|rule| rule.metadata.as_deref());
        if let Some(Value::Object(metadata)) = metadata {
            merge(&mut merged, metadata);
        }
    }
    if !merged.is_empty() {
        told.insert("metadata".to_owned(), merged.into());
    }
    told.into()
}

fn descriptor(request: &Request<'_>, asked: &Asked) -> Value {
    let entries: Vec<String> = request.entries_of(asked).iter().map(|(key, value)| format!("{key}={value}")).collect();
    let mut told = json!({ "entries": entries });
    if let Some(Override { requests_per_unit, unit }) = asked.limit {
        told["limit"] = format!("requests_per_unit:{requests_per_unit} unit:{}", unit.name().to_uppercase()).into();
    }
    if let Some(hits) = asked.hits_addend {
        told["hitsAddend"] = hits.into();
    }
    told
}

/// What is there already stays; objects in both are merged.
fn merge(into: &mut Map<String, Value>, from: &Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(key), value) {
            (Some(Value::Object(known)), Value::Object(more)) => merge(known, more),
            (Some(_), _) => {}
            (None, value) => {
                into.insert(key.clone(), value.clone());
            }
        }
    }
}

/// As a `google.protobuf.Struct`; nothing for what is no object.
pub(crate) fn encode(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    if let Value::Object(fields) = value {
        for (key, value) in fields {
            let mut entry = Vec::new();
            put_bytes(&mut entry, 1, key.as_bytes());
            put_message(&mut entry, 2, &encode_value(value));
            put_message(&mut out, 1, &entry);
        }
    }
    out
}

fn encode_value(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match value {
        // Members of a choice are written even if they are zero.
        Value::Null => out.extend_from_slice(&[1 << 3, 0]),
        Value::Number(number) => {
            out.push(2 << 3 | 1);
            out.extend_from_slice(&number.as_f64().unwrap_or_default().to_le_bytes());
        }
        Value::String(text) => put_message(&mut out, 3, text.as_bytes()),
        Value::Bool(yes) => out.extend_from_slice(&[4 << 3, u8::from(*yes)]),
        Value::Object(_) => put_message(&mut out, 5, &encode(value)),
        Value::Array(values) => {
            let mut list = Vec::new();
            for value in values {
                put_message(&mut list, 1, &encode_value(value));
            }
            put_message(&mut out, 6, &list);
        }
    }
    out
}

/// A field that is there even if it is empty.
fn put_message(out: &mut Vec<u8>, field: u8, message: &[u8]) {
    put_head(out, field, message.len());
    out.extend_from_slice(message);
}
