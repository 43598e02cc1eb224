//! Names and values in the syntax of rule files, for files that hold settings and no rules.

use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Diagnostics, Source, Span};
use crate::yaml::{self, Kind, Node};

/// One name and what is set for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name.
    pub name: Arc<str>,
    /// Its values: one, or those of a list.
    pub values: Vec<Arc<str>>,
    /// Where it was written.
    pub span: Span,
}

/// Reads a mapping of names to values or lists of values: all of the file, or what is under `section`. What is wrong is
/// told with its place; a name may be given once.
pub fn read_settings(source: &Source, section: Option<&str>) -> Result<Vec<Setting>, Diagnostics> {
    let mut diagnostics = Diagnostics::new(vec![source.clone()]);
    let mut settings: Vec<Setting> = Vec::new();
    match yaml::read(0, &source.text) {
        Err(problem) => diagnostics.push(*problem),
        Ok(document) => match under(document.root.as_ref(), section).map(|root| (root, root.kind())) {
            None => {}
            Some((root, _)) if root.is_null() => {}
            Some((_, Kind::Map(fields))) => {
                for (key, value) in fields {
                    match setting(key, value) {
                        Ok(setting) if settings.iter().any(|known| known.name == setting.name) => {
                            let message = format!("`{}` is set twice", setting.name);
                            let error = Diagnostic::error("duplicate-field", setting.span, message);
                            diagnostics.push(error.help("remove one of them"));
                        }
                        Ok(setting) => settings.push(setting),
                        Err(problem) => diagnostics.push(*problem),
                    }
                }
            }
            Some((root, _)) => {
                let message = format!("this is {}, not names with values", root.describe());
                let problem = Diagnostic::error("wrong-type", root.span, message);
                diagnostics.push(problem.help("write lines such as `http: 127.0.0.1:8080`"));
            }
        },
    }
    if diagnostics.has_errors() { Err(diagnostics) } else { Ok(settings) }
}

/// The whole, or the part of this name.
fn under<'n>(root: Option<&'n Node>, section: Option<&str>) -> Option<&'n Node> {
    let (root, Some(section)) = (root?, section) else { return root };
    let Kind::Map(fields) = root.kind() else { return None };
    fields.iter().find(|(key, _)| key.text() == Some(section)).map(|(_, value)| value)
}

fn setting(key: &Node, value: &Node) -> Result<Setting, Box<Diagnostic>> {
    let wrong = |node: &Node, message: String| {
        let error = Diagnostic::error("wrong-type", node.span, message);
        Box::new(error.help("write a name, a colon and a value or a list, such as `http: 127.0.0.1:8080`"))
    };
    let name = match key.kind() {
        Kind::Scalar { text, .. } => Arc::clone(text),
        _ => return Err(wrong(key, format!("a name is needed here, not {}", key.describe()))),
    };
    let text = |node: &Node| match node.kind() {
        Kind::Scalar { text, .. } => Ok(Arc::clone(text)),
        _ => Err(wrong(node, format!("`{name}` takes a value or a list of values, not {}", node.describe()))),
    };
    let values = match value.kind() {
        Kind::List(items) => items.iter().map(text).collect::<Result<_, _>>()?,
        _ => vec![text(value)?],
    };
    Ok(Setting { values, name: Arc::clone(&name), span: key.span })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(String, Vec<String>)>, String> {
        let shown = |setting: &Setting| {
            (setting.name.to_string(), setting.values.iter().map(|value| value.to_string()).collect())
        };
        let read = read_settings(&Source::new("tollgate.yaml", text), None);
        read.map(|settings| settings.iter().map(shown).collect()).map_err(|problems| problems.render(false))
    }

    #[test]
    fn names_have_values_or_lists_of_them() {
        let settings = read("http: :8080\nrules: [a, b]\nstate: 'x y'\n").unwrap();
        let expected = [("http", vec![":8080"]), ("rules", vec!["a", "b"]), ("state", vec!["x y"])];
        let owned = expected.map(|(name, values)| (name.to_owned(), values.into_iter().map(str::to_owned).collect()));
        assert_eq!(settings, owned);
        assert_eq!(read("").unwrap(), []);
        assert_eq!(read("# nothing\n").unwrap(), []);
    }

    #[test]
    fn settings_may_be_a_part_of_a_file() {
        let source = Source::new("gateway.yaml", "routes: []\nsettings:\n  proxy: :80\n  workers: 2\n");
        let settings = read_settings(&source, Some("settings")).unwrap();
        let told: Vec<_> = settings.iter().map(|setting| (&*setting.name, &*setting.values[0])).collect();
        assert_eq!(told, [("proxy", ":80"), ("workers", "2")]);
        assert_eq!(read_settings(&source, Some("none")).unwrap(), []);
        assert!(read_settings(&source, Some("routes")).is_err());
    }

    #[test]
    fn what_is_wrong_has_a_place() {
        for (text, place, said) in [
            ("http: 1\nhttp: 2", "tollgate.yaml:2:1", "twice"),
            ("a: {b: c}", "tollgate.yaml:1:4", "a value or a list"),
            ("[1, 2]", "tollgate.yaml:1:1", "a list, not names"),
            ("? [a]\n: b", "tollgate.yaml:1:3", "a name is needed"),
            ("a: 'b", "tollgate.yaml", "quote"),
        ] {
            let problem = read(text).unwrap_err();
            assert!(problem.contains(place) && problem.contains(said), "{text}: {problem}");
            assert!(problem.contains("= help:"), "{text}: {problem}");
        }
    }
}
