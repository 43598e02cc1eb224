//! The language as a JSON Schema, so that editors complete and check what people write.
//!
//! It is made from the table of fields and knows no name of its own. It accepts whatever the loader accepts; what only the
//! loader can see (a nonsensical rate, an option of another algorithm) it lets pass.

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
    let mut schema = shape_schema(&field.shape);
    schema["description"] = doc.into();
    schema
}

fn shape_schema(shape: &Shape) -> Value {
    match shape {
        // Without quotes these are numbers or truth values to YAML and text to the loader.
        Shape::Text => json!({"type": ["string", "integer", "boolean", "null"]}),
        Shape::Count => json!({"type": ["integer", "string"], "minimum": 0, "examples": [10, "10k", "1MiB"]}),
        Shape::Flag => json!({"type": "boolean"}),
        Shape::Time => json!({"type": "string", "examples": ["500ms", "30s", "5min", "3h", "1d"]}),
        Shape::Rate => json!({
            "type": "string",
            "examples": ["5/s", "100/min", "300/3h", "10/day@Europe/Berlin", "1MiB/s", "1000 tokens/min"],
        }),
        Shape::Word(words) => {
            let each = words.words().into_iter().map(|(word, doc)| match doc {
                "" => json!({"const": word}),
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
