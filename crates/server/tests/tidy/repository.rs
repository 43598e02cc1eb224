//! The files of the repository, and what cargo knows about its packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

pub(crate) fn root() -> PathBuf {
    let server = Path::new(env!("CARGO_MANIFEST_DIR"));
    server.ancestors().nth(2).expect("crates/server is two folders deep").to_owned()
}

pub(crate) fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The path from the root, with forward slashes.
pub(crate) fn relative(path: &Path) -> String {
    let path = path.strip_prefix(root()).unwrap_or(path);
    path.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}

/// All files below `folder` (from the root) with this extension, in order.
pub(crate) fn files_under(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) licence: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
    /// Where it was obtained, unless it is part of this workspace.
    source: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) is_dev: bool,
}

impl Package {
    pub(crate) fn is_member(&self) -> bool {
        self.source.is_none()
    }
}

/// The packages of the lock file as cargo sees them, without asking the network.
///
/// Packages for other platforms may not have been fetched (`scripts/test` fetches them); then those for this one are
/// listed.
pub(crate) fn metadata(options: &[&str]) -> Vec<Package> {
    let output = run_metadata(options).or_else(|_| run_metadata(&[options, &["--filter-platform", &host()]].concat()));
    let output = output.unwrap_or_else(|said| panic!("cargo metadata fails; `cargo fetch --locked` may help:\n{said}"));
    let parsed: Value = serde_json::from_str(&output).expect("cargo metadata is JSON");
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let dependency = |value: &Value| Dependency {
        name: text(&value["name"]).unwrap_or_default(),
        is_dev: value["kind"].as_str() == Some("dev"),
    };
    let package = |value: &Value| Package {
        name: text(&value["name"]).unwrap_or_default(),
        version: text(&value["version"]).unwrap_or_default(),
        licence: text(&value["license"]),
        dependencies: list(&value["dependencies"]).iter().map(dependency).collect(),
        source: text(&value["source"]),
    };
    list(&parsed["packages"]).iter().map(package).collect()
}

fn run_metadata(options: &[&str]) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--format-version", "1", "--locked", "--offline"]).args(options).current_dir(root());
    let output = command.output().map_err(|error| error.to_string())?;
    let said = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    if output.status.success() { Ok(said(output.stdout)) } else { Err(said(output.stderr)) }
}

/// The triple of the platform that this runs on.
fn host() -> String {
    let output = Command::new(env!("CARGO")).arg("-vV").output().expect("cargo runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.expect("cargo names its host").to_owned()
}
