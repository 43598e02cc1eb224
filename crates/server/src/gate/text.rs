//! Metrics as the text that Prometheus reads.
//!
//! Families may be begun in any order and as often as one likes; their samples end up together, as the format wants it.

use std::fmt::{Display, Write};

/// Metrics, family by family.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    families: Vec<Family>,
    current: usize,
}

#[derive(Debug)]
struct Family {
    name: String,
    kind: &'static str,
    help: &'static str,
    samples: String,
}

impl Exposition {
    pub(crate) fn counter(&mut self, name: &str, help: &'static str) {
        self.begin(name, "counter", help);
    }

    pub(crate) fn gauge(&mut self, name: &str, help: &'static str) {
        self.begin(name, "gauge", help);
    }

    pub(crate) fn histogram(&mut self, name: &str, help: &'static str) {
        self.begin(name, "histogram", help);
    }

    fn begin(&mut self, name: &str, kind: &'static str, help: &'static str) {
        self.current = self.families.iter().position(|family| family.name == name).unwrap_or_else(|| {
            self.families.push(Family { name: name.to_owned(), kind, help, samples: String::new() });
            self.families.len() - 1
        });
    }

    /// A value of the family that was begun last.
    pub(crate) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.part("", labels, value);
    }

    /// The same for a part of it, such as the `_count` of a histogram.
    pub(crate) fn part(&mut self, part: &str, labels: &[(&str, &str)], value: impl Display) {
        let Some(Family { name, samples, .. }) = self.families.get_mut(self.current) else { return };
        samples.push_str(name);
        samples.push_str(part);
        for (at, (label, text)) in labels.iter().enumerate() {
            samples.push(if at == 0 { '{' } else { ',' });
            samples.push_str(label);
            samples.push_str("=\"");
            escape(text, samples);
            samples.push('"');
        }
        if !labels.is_empty() {
            samples.push('}');
        }
        // Writing to a string cannot fail.
        let _ = writeln!(samples, " {value}");
    }

    pub(crate) fn finish(self) -> String {
        let mut text = String::new();
        for Family { name, kind, help, samples } in self.families {
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{samples}");
        }
        text
    }
}

fn escape(text: &str, out: &mut String) {
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_a_family_stay_together_and_labels_are_escaped() {
        let mut out = Exposition::default();
        out.counter("a_total", "A.");
        out.sample(&[("x", "1")], 1);
        out.gauge("b", "B.");
        out.sample(&[], 2.5);
        out.counter("a_total", "A.");
        out.sample(&[("x", "say \"hi\"\\\n"), ("y", "z")], 3);
        assert_eq!(
            out.finish(),
            "# HELP a_total A.\n# TYPE a_total counter\na_total{x=\"1\"} 1\n\
             a_total{x=\"say \\\"hi\\\"\\\\\\n\",y=\"z\"} 3\n\
             # HELP b B.\n# TYPE b gauge\nb 2.5\n"
        );
    }
}
