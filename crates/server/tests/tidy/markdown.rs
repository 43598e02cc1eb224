//! Paths of the repository as they appear in Markdown: in backticks and as the targets of links.
//!
//! Fenced blocks are left alone, since what stands there is code and commands. Not every code span with a slash is a
//! path: `5/s` and `text/plain` are not. One is taken for a path when it begins with a name that exists at the top of
//! the repository, or ends like a file. The targets of links are paths unless they are addresses.

/// All paths that `text` names, in order. `is_top` says whether a name exists at the top of the repository.
pub(crate) fn paths(text: &str, is_top: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for paragraph in paragraphs(text) {
        let (prose, spans) = split_code_spans(&paragraph);
        found.extend(spans.iter().filter_map(|span| path_in_span(span, &is_top)));
        found.extend(link_targets(&prose).into_iter().filter_map(path_in_link));
    }
    found
}

/// Blocks of lines between blank ones, without fenced code.
fn paragraphs(text: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut fence: Option<&str> = None;
    for line in text.lines() {
        let trimmed = line.trim_start();
        let marker = ["```", "~~~"].into_iter().find(|marker| trimmed.starts_with(marker));
        match (fence, marker) {
            (Some(open), Some(marker)) if open == marker => fence = None,
            (Some(_), _) => {}
            (None, Some(marker)) => {
                fence = Some(marker);
                found.push(String::new());
            }
            (None, None) if trimmed.is_empty() => found.push(String::new()),
            (None, None) => {
                if let Some(paragraph) = found.last_mut() {
                    paragraph.push_str(line);
                    paragraph.push('\n');
                }
            }
        }
    }
    found
}

/// The text with its code spans blanked out, and the spans. A span ends with as many backticks as it began with.
fn split_code_spans(paragraph: &str) -> (String, Vec<String>) {
    let (mut prose, mut spans) = (String::new(), Vec::new());
    let mut rest = paragraph;
    while let Some(start) = rest.find('`') {
        prose.push_str(&rest[..start]);
        let opened = &rest[start..];
        let ticks = opened.len() - opened.trim_start_matches('`').len();
        let inside = &opened[ticks..];
        match find_run(inside, ticks) {
            Some(end) => {
                spans.push(inside[..end].trim().to_owned());
                prose.push_str("``");
                rest = &inside[end + ticks..];
            }
            None => {
                prose.push_str(&opened[..ticks]);
                rest = inside;
            }
        }
    }
    prose.push_str(rest);
    (prose, spans)
}

/// Where a run of exactly `ticks` backticks begins.
fn find_run(text: &str, ticks: usize) -> Option<usize> {
    let mut from = 0;
    while let Some(start) = text[from..].find('`').map(|start| from + start) {
        let run = text[start..].len() - text[start..].trim_start_matches('`').len();
        if run == ticks {
            return Some(start);
        }
        from = start + run;
    }
    None
}

const ENDINGS: [&str; 12] =
    [".rs", ".md", ".toml", ".lua", ".proto", ".yaml", ".yml", ".json", ".txt", ".sh", ".html", ".lock"];

fn path_in_span(span: &str, is_top: impl Fn(&str) -> bool) -> Option<String> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-/".contains(letter);
    let path = without_line_number(span);
    let path = path.strip_prefix("./").unwrap_or(path);
    let (first, _) = path.split_once('/')?;
    let is_path = path.chars().all(plain)
        && !first.is_empty()
        && first != "target"
        && (is_top(first) || ENDINGS.iter().any(|ending| path.ends_with(ending)));
    is_path.then(|| path.to_owned())
}

/// `src/lib.rs:12` names the same file as `src/lib.rs`.
fn without_line_number(path: &str) -> &str {
    match path.rsplit_once(':') {
        Some((path, line)) if !line.is_empty() && line.chars().all(|digit| digit.is_ascii_digit()) => path,
        _ => path,
    }
}

/// What stands in parentheses behind brackets, and behind `[name]:` at the start of a line.
fn link_targets(prose: &str) -> Vec<&str> {
    let inline = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    let defined = prose.lines().filter_map(|line| {
        let (name, target) = line.trim_start().strip_prefix('[')?.split_once("]:")?;
        (!name.contains(']')).then_some(target)
    });
    inline.chain(defined).collect()
}

fn path_in_link(target: &str) -> Option<String> {
    let target = target.trim();
    let target = match target.strip_prefix('<') {
        Some(bracketed) => bracketed.split('>').next().unwrap_or_default(),
        None => target.split_whitespace().next().unwrap_or_default(),
    };
    let path = target.split(['#', '?']).next().unwrap_or_default();
    let is_address = path.contains("://") || path.starts_with("mailto:") || path.starts_with("//");
    let is_pattern = path.contains('*') || path.starts_with("target/");
    (!path.is_empty() && !is_address && !is_pattern).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        paths(text, |name| ["crates", "docs", "scripts", ".ci"].contains(&name))
    }

    #[test]
    fn code_spans_are_paths_when_they_look_like_it() {
        assert_eq!(
            found("see `crates/core/src/lib.rs` and `scripts/test`"),
            ["crates/core/src/lib.rs", "scripts/test"]
        );
        assert_eq!(found("`docs/` and `.ci/run` and `./docs/adr`"), ["docs/", ".ci/run", "docs/adr"]);
        assert_eq!(found("`crates/core/src/lib.rs:12`"), ["crates/core/src/lib.rs"]);
        assert_eq!(found("``crates/a`` `algorithm/mod.rs`"), ["crates/a", "algorithm/mod.rs"]);
        assert_eq!(found("a span may `crates/over\n` lines"), ["crates/over"]);
    }

    #[test]
    fn other_code_spans_are_not() {
        for text in [
            "`5/s` and `100000/h` and `text/plain` and `and/or`",
            "`cargo run crates/core` and `scripts/test --help`",
            "`crates/*/src` and `target/release/tollgate` and `target/doc/a.md`",
            "`https://example.org/docs/a.md` and `/v1/check` and `/etc/hosts.md`",
            "`crates` and `lib.rs` and `docs/<name>.md` and `crates/{core,rules}/src`",
            "`Option<crates/a>` and an open ` docs/x.md tick",
        ] {
            assert_eq!(found(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn links_are_paths_unless_they_are_addresses() {
        assert_eq!(found("[a](docs/a.md) ![b](b.png \"title\") [c](<c d.md>)"), ["docs/a.md", "b.png", "c d.md"]);
        assert_eq!(found("[a](a.md#part) and [b](../b.md?raw)"), ["a.md", "../b.md"]);
        assert_eq!(found("[`core`](crates/core)"), ["crates/core"]);
        assert_eq!(found("[one]: docs/one.md\n[two]: https://example.org/two.md"), ["docs/one.md"]);
        for text in ["[a](https://example.org/a.md)", "[b](#part)", "[c](mailto:c@example.org)", "[d](target/d)"] {
            assert_eq!(found(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn fenced_blocks_are_left_alone() {
        let text = "before `docs/a.md`\n\n```sh\ncat `docs/b.md`\n[x](c.md)\n~~~\n```\n\n~~~\n`docs/d.md`\n~~~\nafter `docs/e.md`";
        assert_eq!(found(text), ["docs/a.md", "docs/e.md"]);
    }
}
