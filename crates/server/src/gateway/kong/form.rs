//! Bodies of calls: JSON, or a form whose names say where in an object a value belongs.

use serde_json::Value;

use super::{Object, Refusal};
use crate::protocol::percent::decode_query;

/// The deepest that a name of a form goes.
const DEEPEST: usize = 4;

/// Reads a body. Nothing is an empty object.
pub(super) fn read(kind: Option<&str>, body: &[u8]) -> Result<Object, Refusal> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Object::new());
    }
    let kind = kind.map(|kind| kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase());
    match kind.as_deref() {
        Some("application/json") => json(body),
        // What `curl -d` calls a form. No form begins like that.
        Some("application/x-www-form-urlencoded") | None if body.trim_ascii_start().starts_with(b"{") => json(body),
        Some("application/x-www-form-urlencoded") | None => {
            let text = std::str::from_utf8(body).map_err(|_| Refusal::BadBody("the form is not UTF-8".to_owned()))?;
            form(text)
        }
        Some(other) => Err(Refusal::BadBody(format!(
            "{other} is not understood: send application/json or application/x-www-form-urlencoded"
        ))),
    }
}

fn json(body: &[u8]) -> Result<Object, Refusal> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Refusal::BadBody("the body has to be an object".to_owned())),
        Err(error) => Err(Refusal::BadBody(format!("Cannot parse JSON body: {error}"))),
    }
}

/// `config.minute=5` belongs to an object in the object, `paths[]=/a` and what comes twice to a list.
fn form(text: &str) -> Result<Object, Refusal> {
    let mut object = Object::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decode_query(name), decode_query(value));
        let is_item = name.ends_with("[]");
        let parts: Vec<&str> = name.trim_end_matches("[]").split('.').collect();
        if parts.len() > DEEPEST || parts.iter().any(|part| part.is_empty()) {
            return Err(Refusal::field(&name, "this is no name of a field"));
        }
        put(&mut object, &parts, value.into_owned().into(), is_item)
            .map_err(|()| Refusal::field(&name, "this is a value and an object at the same time"))?;
    }
    Ok(object)
}

fn put(object: &mut Object, parts: &[&str], value: Value, is_item: bool) -> Result<(), ()> {
    match parts {
        [] => Err(()),
        [name] => {
            match object.get_mut(*name) {
                Some(Value::Object(_)) => return Err(()),
                Some(Value::Array(items)) => items.push(value),
                Some(first) => *first = Value::Array(vec![first.take(), value]),
                None => {
                    drop(object.insert((*name).to_owned(), if is_item { Value::Array(vec![value]) } else { value }));
                }
            }
            Ok(())
        }
        [name, rest @ ..] => match object.entry(*name).or_insert_with(|| Value::Object(Object::new())) {
            Value::Object(inner) => put(inner, rest, value, is_item),
            _ => Err(()),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn forms_and_json_say_the_same() {
        let form =
            read(None, b"name=test&config.minute=5&config.redis.host=a%20b&paths[]=/a&hosts=x&hosts=y&empty").unwrap();
        let expected = json!({
            "name": "test", "config": {"minute": "5", "redis": {"host": "a b"}}, "paths": ["/a"], "hosts": ["x", "y"], "empty": "",
        });
        assert_eq!(Value::Object(form), expected);
        let json = read(Some("application/json; charset=utf-8"), expected.to_string().as_bytes()).unwrap();
        assert_eq!(Value::Object(json), expected);
        // As `curl -d` sends it if nobody says what it is.
        let unsaid = read(Some("application/x-www-form-urlencoded"), format!("\n {expected}").as_bytes()).unwrap();
        assert_eq!(Value::Object(unsaid), expected);
        assert_eq!(read(None, b" \n").unwrap(), Object::new());
    }

    #[test]
    fn what_is_neither_is_told_why() {
        for (kind, body) in [
            (Some("application/json"), &b"{"[..]),
            (Some("application/json"), b"[1]"),
            (Some("application/x-www-form-urlencoded"), b"{\"name\": test}"),
            (Some("text/csv"), b"a"),
            (None, b"a=\xff"),
            (None, b"a=1&a.b=2"),
            (None, b"a.b=2&a=1"),
            (None, b"a..b=2"),
            (None, b"a.b.c.d.e=2"),
        ] {
            assert!(read(kind, body).is_err(), "{kind:?} {}", String::from_utf8_lossy(body));
        }
    }
}
