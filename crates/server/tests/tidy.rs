//! House rules as tests: the direction between crates, file heads and sizes, paths in documents, leftovers, licences.
//!
//! Needs no network. What the rules are for is said in `CONTRIBUTING.md`; each failure says what to do.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "tidy/licence.rs"]
mod licence;
#[path = "tidy/markdown.rs"]
mod markdown;
#[path = "tidy/repository.rs"]
mod repository;

use std::path::Path;

use repository::{files_under, metadata, read, relative, root};

/// How far each crate is from the core. A crate may depend on those nearer to it, never on its equals.
const DISTANCES: [(&str, u32); 7] = [
    ("tollgate-core", 0),
    ("tollgate-rules", 1),
    ("tollgate", 2),
    ("tollgate-redis", 3),
    ("tollgate-gateway", 3),
    ("tollgate-sim", 3),
    ("tollgate-server", 4),
];

const MOST_LINES: usize = 600;

#[test]
fn dependencies_between_crates_point_towards_the_core() {
    let distance = |name: &str| DISTANCES.iter().find(|(known, _)| *known == name).map(|(_, distance)| *distance);
    let mut wrong = Vec::new();
    let packages = metadata(&["--no-deps"]);
    let members: Vec<_> = packages.iter().filter(|package| package.is_member()).collect();
    for package in &members {
        let Some(own) = distance(&package.name) else {
            wrong.push(format!("{} is not in the table of this test: give it a place there", package.name));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|dependency| !dependency.is_dev) {
            let known = distance(&dependency.name);
            if known.is_some_and(|other| other >= own) {
                wrong.push(format!("{} must not depend on {}", package.name, dependency.name));
            }
            if package.name == "tollgate-core" {
                wrong.push(format!("tollgate-core must not depend on anything, and does on {}", dependency.name));
            }
        }
    }
    let manifests = files_under("crates", "toml").iter().filter(|path| path.ends_with("Cargo.toml")).count();
    assert_eq!(members.len(), manifests, "every crate in crates/ is a member of the workspace");
    assert_none(&wrong, "dependencies point from the server towards the core and never sideways");
}

#[test]
fn every_source_file_says_what_it_is() {
    let silent = sources().into_iter().filter(|(_, text)| !text.starts_with("//!"));
    let silent: Vec<_> = silent.map(|(path, _)| path).collect();
    assert_none(&silent, "start each of these with `//!`: what it is, what it is not, the invariant it keeps");
}

#[test]
fn no_source_file_is_too_long() {
    let long = sources().into_iter().filter(|(_, text)| text.lines().count() > MOST_LINES);
    let long: Vec<_> = long.map(|(path, text)| format!("{path}: {} lines", text.lines().count())).collect();
    assert_none(&long, &format!("divide these: about 400 lines are good, {MOST_LINES} are the most"));
}

#[test]
fn nothing_unfinished_is_left_behind() {
    // Put together here so that this file does not find itself.
    let leftovers =
        [["to", "do!"], ["unimple", "mented!"], ["db", "g!"], ["#[ig", "nore"]].map(|halves| halves.concat());
    let mut found = Vec::new();
    for path in files_under("crates", "rs") {
        for (number, line) in read(&path).lines().enumerate() {
            for leftover in leftovers.iter().filter(|leftover| line.contains(leftover.as_str())) {
                found.push(format!("{}:{}: {leftover}", relative(&path), number + 1));
            }
        }
    }
    assert_none(&found, "finish these or take them out; a test that cannot run is repaired or removed");
}

#[test]
fn paths_named_in_documents_exist() {
    let mut broken = Vec::new();
    let mut documents = ["ARCHITECTURE.md", "README.md", "CONTRIBUTING.md"].map(|name| root().join(name)).to_vec();
    documents.extend(files_under("docs", "md"));
    for document in documents {
        if !document.is_file() {
            broken.push(format!("{}: there is no such document", relative(&document)));
            continue;
        }
        let folder = document.parent().unwrap_or(Path::new("."));
        let is_top = |name: &str| root().join(name).exists();
        let exists = |path: &str| root().join(path).exists() || folder.join(path).exists();
        for path in markdown::paths(&read(&document), is_top) {
            let path_from_root = path.strip_prefix('/').unwrap_or(&path);
            if !exists(path_from_root) {
                broken.push(format!("{}: {path}", relative(&document)));
            }
        }
    }
    assert_none(
        &broken,
        "write paths from the root of the repository (links may start at their document) and keep them true",
    );
}

#[test]
fn code_in_documents_is_that_of_examples() {
    let examples: Vec<String> = files_under("crates/engine/examples", "rs").iter().map(|path| read(path)).collect();
    let lines: Vec<&str> = examples.iter().flat_map(|text| text.lines()).map(str::trim).collect();
    let mut strange = Vec::new();
    for document in ["README.md", "docs/library.md"] {
        let text = read(&root().join(document));
        let code = text.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next());
        for line in code.flat_map(str::lines).map(str::trim).filter(|line| !line.is_empty()) {
            if !lines.contains(&line) {
                strange.push(format!("{document}: {line}"));
            }
        }
    }
    assert_none(&strange, "each line of Rust in these documents is a line of a program in crates/engine/examples");
}

#[test]
fn every_dependency_has_a_licence_that_we_accept() {
    let allowed = licence::allowed_by(&read(&root().join("deny.toml")));
    assert!(
        allowed.len() > 5,
        "deny.toml has `allow = [ ... ]` in its [licenses] table, but only {allowed:?} was found"
    );
    let mut refused = Vec::new();
    let packages = metadata(&[]);
    assert!(packages.len() > DISTANCES.len(), "metadata lists the dependencies");
    for package in packages.iter().filter(|package| !package.is_member()) {
        let expression = package.licence.as_deref().unwrap_or("none stated");
        if licence::is_satisfied(expression, &allowed) != Ok(true) {
            refused.push(format!("{} {}: {expression}", package.name, package.version));
        }
    }
    assert_none(&refused, "use something else, or add the licence to deny.toml after reading it");
}

fn sources() -> Vec<(String, String)> {
    let crates = files_under("crates", "rs").into_iter();
    let sources = crates.filter(|path| relative(path).split('/').nth(2) == Some("src"));
    sources.map(|path| (relative(&path), read(&path))).collect()
}

#[track_caller]
fn assert_none(findings: &[String], advice: &str) {
    assert!(findings.is_empty(), "{advice}:\n  {}", findings.join("\n  "));
}
