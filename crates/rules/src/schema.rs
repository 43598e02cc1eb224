//! The language as a JSON Schema, so that editors complete and check what people write.
//!
//! It is made from the table of fields and knows no name of its own. What only the loader can see (a nonsensical rate,
//! an option of another algorithm) it lets pass; of what loads it refuses nothing but units of Lyft's in odd mixtures
//! of case.

use serde_json::{Map, Value, json};

use crate::grammar::{Dialect, Field, Fields, PLACES, Place, RootFields, Shape};

/// The schema of a rule file.
pub fn json_schema() -> Value {
    let mut definitions = Map::new();
    for place in PLACES {
        definitions.insert(place().name.to_owned(), place_schema(place()));
    }
    definitions.insert("value".to_owned(), pattern_schema());
    definitions.insert("conditions".to_owned(), conditions_schema());
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "tollgate rules",
        "description": RootFields::place().doc.trim(),
        "$ref": "#/$defs/file",
        "$defs": definitions,
    })
}

fn place_schema(place: &'static Place) -> Value {
    let mut properties = Map::new();
    for field in place.fields() {
        for name in [Some(field.name), field.alias].into_iter().flatten() {
            properties.insert(name.to_owned(), field_schema(field));
        }
    }
    let mut schema = json!({
        "type": "object",
        "description": place.doc.trim(),
        "properties": properties,
        "additionalProperties": false,
    });
    if std::ptr::eq(place, RootFields::place()) {
        schema["patternProperties"] = json!({"^x-": {"description": "Ignored: a place for anchors."}});
    }
    if place.dialect == Dialect::Lyft && place.field("key").is_some() {
        schema["required"] = json!(["key"]);
    }
    schema
}

fn field_schema(field: &Field) -> Value {
    let mut doc = field.doc.to_owned();
    if !field.only.is_empty() {
        let named = crate::grammar::ALGORITHM.0.iter().filter(|(_, method, _)| field.only.contains(method));
        let names: Vec<String> = named.map(|(name, ..)| format!("`{name}`")).collect();
        doc.push_str(&format!(" For {}.", names.join(", ")));
    }
    let mut schema = or_nothing(shape_schema(&field.shape));
    schema["description"] = doc.into();
    schema
}

/// A field that says nothing is as if it were not there.
fn or_nothing(mut schema: Value) -> Value {
    let nothing = json!({"type": "null"});
    match schema.get_mut("anyOf") {
        Some(Value::Array(any)) => {
            any.push(nothing);
            schema
        }
        _ => json!({"anyOf": [schema, nothing]}),
    }
}

fn shape_schema(shape: &Shape) -> Value {
    match shape {
        // Without quotes these are numbers or truth values to YAML and text to the loader.
        Shape::Text => json!({"type": ["string", "integer", "boolean", "null"]}),
        Shape::Count => json!({"type": ["integer", "string"], "minimum": 0, "examples": [10, "10k", "1MiB"]}),
        // To editors that know YAML 1.2 only, these are words.
        Shape::Flag => json!({"anyOf": [{"type": "boolean"}, {"enum": FLAGS}]}),
        Shape::Time => json!({"type": "string", "examples": ["500ms", "30s", "5min", "3h", "1d"]}),
        Shape::Rate => json!({
            "type": "string",
            "examples": ["5/s", "100/min", "300/3h", "10/day@Europe/Berlin", "1MiB/s", "1000 tokens/min"],
        }),
        Shape::Word(words) => {
            let each = words.words().into_iter().map(|(word, doc)| match doc {
                "" => json!({"const": word}),
                // Not a word but a truth value to editors that know YAML 1.1 only.
                doc if word == "off" => json!({"enum": [word, false], "description": doc}),
                doc => json!({"const": word, "description": doc}),
            });
            json!({"anyOf": each.collect::<Vec<_>>()})
        }
        Shape::Map(place) => json!({"$ref": format!("#/$defs/{}", place().name)}),
        Shape::List(items) => json!({"type": ["array", "null"], "items": shape_schema(items)}),
        Shape::Any(shapes) => json!({"anyOf": shapes.iter().map(shape_schema).collect::<Vec<_>>()}),
        Shape::Conditions => json!({"$ref": "#/$defs/conditions"}),
        Shape::Pattern => json!({"$ref": "#/$defs/value"}),
        Shape::Free => json!({"type": ["object", "null"]}),
    }
}

/// Truth values of YAML 1.1 that are words to YAML 1.2.
const FLAGS: [&str; 16] =
    ["y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "n", "N", "no", "No", "NO", "off", "Off", "OFF"];

fn pattern_schema() -> Value {
    let one = [shape_schema(&Shape::Text), json!({"$ref": "#/$defs/pattern"})];
    json!({
        "description": "A value: text in which `*` stands for anything, a list of such, or a pattern in detail.",
        "anyOf": [one[0], one[1], {"type": "array", "minItems": 1, "items": {"anyOf": one}}],
    })
}

fn conditions_schema() -> Value {
    json!({
        "type": "object",
        "description": "Keys of a request with what their values have to be. Addresses and networks are recognised.",
        "additionalProperties": {"$ref": "#/$defs/value"},
        "minProperties": 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::to_json;

    /// As much of a validator as the schema needs: whether `value` is what `schema` says, and if not, where.
    fn check(root: &Value, schema: &Value, value: &Value, path: &str) -> Result<(), String> {
        let known = [
            "$schema",
            "title",
            "description",
            "$ref",
            "$defs",
            "type",
            "properties",
            "additionalProperties",
            "items",
            "patternProperties",
            "required",
            "anyOf",
            "const",
            "enum",
            "examples",
            "minimum",
            "minItems",
            "minProperties",
        ];
        let schema = schema.as_object().ok_or("a schema is an object")?;
        assert!(schema.keys().all(|key| known.contains(&key.as_str())), "{schema:?}");
        let fail = |why: &str| Err(format!("{path}: {why}"));
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            let target = root.pointer(reference.trim_start_matches('#')).ok_or(format!("no {reference}"))?;
            check(root, target, value, path)?;
        }
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        match schema.get("type") {
            Some(Value::String(wanted)) if wanted != kind => return fail(&format!("{kind} is not {wanted}")),
            Some(Value::Array(wanted)) if !wanted.contains(&kind.into()) => return fail(&format!("{kind} is wrong")),
            _ => {}
        }
        let words = schema.get("enum").and_then(Value::as_array);
        if schema.get("const").is_some_and(|only| only != value) || words.is_some_and(|words| !words.contains(value)) {
            return fail("not the word");
        }
        if let Some(any) = schema.get("anyOf").and_then(Value::as_array) {
            let tried: Vec<_> = any.iter().map(|schema| check(root, schema, value, path)).collect();
            if !tried.iter().any(Result::is_ok) {
                return fail(&format!("none of {tried:?}"));
            }
        }
        let length = value.as_array().map_or_else(|| value.as_object().map_or(1, Map::len), Vec::len);
        for least in ["minItems", "minProperties"] {
            if schema.get(least).and_then(Value::as_u64).is_some_and(|least| (length as u64) < least) {
                return fail("too few");
            }
        }
        for item in value.as_array().into_iter().flatten() {
            schema.get("items").map_or(Ok(()), |items| check(root, items, item, path))?;
        }
        if let Some(required) = schema.get("required").and_then(Value::as_array) {
            let missing = required.iter().filter_map(Value::as_str).find(|name| value.get(name).is_none());
            missing.map_or(Ok(()), |name| fail(&format!("no {name}")))?;
        }
        for (name, item) in value.as_object().into_iter().flatten() {
            let inside = format!("{path}/{name}");
            match schema.get("properties").and_then(|properties| properties.get(name)) {
                Some(property) => check(root, property, item, &inside)?,
                None if schema.contains_key("patternProperties") && name.starts_with("x-") => {}
                None => match schema.get("additionalProperties") {
                    Some(Value::Bool(false)) => return fail(&format!("{name} is unknown")),
                    Some(other) => check(root, other, item, &inside)?,
                    None => {}
                },
            }
        }
        Ok(())
    }

    fn validate(text: &str) -> Result<(), String> {
        let document = crate::yaml::read(0, text).expect("YAML");
        let value = to_json(document.root.as_ref().expect("a document")).expect("JSON");
        let schema = json_schema();
        check(&schema, &schema, &value, "")
    }

    #[test]
    fn what_loads_is_valid() {
        for (name, text) in [
            ("seed_messaging.yaml", include_str!("../tests/examples/seed_messaging.yaml")),
            ("seed_auth.yaml", include_str!("../tests/examples/seed_auth.yaml")),
            ("lyft.yaml", include_str!("../tests/examples/lyft.yaml")),
            ("own.yaml", include_str!("../tests/examples/own.yaml")),
        ] {
            assert_eq!(validate(text), Ok(()), "{name}");
            let problems = crate::parse(vec![crate::Source::new(name, text)]).diagnostics;
            assert!(!problems.has_errors(), "{name}: {problems}");
        }
    }

    #[test]
    fn every_rule_file_of_the_documents_is_valid() {
        for (name, text, least) in [
            ("rules.md", include_str!("../../../docs/rules.md"), 15),
            ("cookbook.md", include_str!("../../../docs/cookbook.md"), 20),
        ] {
            let blocks = text.split("\n```").filter_map(|block| block.strip_prefix("yaml\n"));
            let count = blocks.inspect(|block| assert_eq!(validate(block), Ok(()), "{name}\n{block}")).count();
            assert!(count >= least, "{name} has {count}");
        }
    }

    #[test]
    fn what_says_nothing_and_truth_in_words_is_valid_where_it_loads() {
        let text = "domain: d\ndefaults:\nexempt:\nrules:\ndescriptors:\n- {key: a, value: , rate_limit: , descriptors: , \
                    shadow_mode: , metadata: , quota_mode: yes}\n- {key: b, limits: {rate: 5/s, burst: , soft: }, unless: , mode: }\n";
        let problems = crate::parse(vec![crate::Source::new("a", text)]).diagnostics;
        assert!(!problems.has_errors(), "{problems}");
        assert_eq!(validate(text), Ok(()));
        let schema = json_schema();
        let descriptor = |flag: &str| json!({"domain": "d", "descriptors": [{"key": "a", "shadow_mode": flag}]});
        for flag in FLAGS {
            assert_eq!(check(&schema, &schema, &descriptor(flag), ""), Ok(()), "{flag}");
            let text = format!("domain: d\ndescriptors: [{{key: a, shadow_mode: {flag}}}]\n");
            assert!(!crate::parse(vec![crate::Source::new("a", text)]).diagnostics.has_errors(), "{flag}");
        }
        assert!(check(&schema, &schema, &descriptor("maybe"), "").is_err());
    }

    #[test]
    fn what_is_unknown_or_misplaced_is_not() {
        for bad in [
            "{domain: a, descriptors: [{key: a, ratelimit: {unit: day}}]}",
            "{domain: a, descriptors: [{key: a, rate_limit: {unit: fortnight}}]}",
            "{domain: a, descriptors: [{key: a, rate_limit: {shadow_mode: true}}]}",
            "{domain: a, descriptors: [{value: a}]}",
            "{rules: [{when: [a], limits: 5/s}]}",
            "{rules: [{limits: 5/s, mode: of}]}",
            "{rules: [{limits: {rate: 5/s, burts: 5}}]}",
            "{rules: {limits: 5/s}}",
            "[]",
        ] {
            assert!(validate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_field_and_word_is_explained() {
        fn explained(schema: &Value, path: &str) {
            for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
                let text = property["description"].as_str().unwrap_or_default();
                assert!(text.ends_with('.'), "{path}/{name}: {text}");
            }
        }
        let schema = json_schema();
        for (name, definition) in schema["$defs"].as_object().expect("definitions") {
            explained(definition, name);
        }
    }
}
