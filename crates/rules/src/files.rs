//! Rule files on disk: a file, or a directory of them.
//!
//! Every file that is named is read once, in an order that depends on names alone, and whatever is wrong with one does
//! not keep the others from being read. Nothing here waits: what is no regular file is refused unopened. What the files
//! say is for others to judge.

use std::collections::HashSet;
use std::fs::{self, File, FileType};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::diagnostic::{Diagnostic, Severity, Source};
use crate::yaml::MAX_BYTES;

/// How the names of rule files in directories end. A file that is named itself may be called anything.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// Reads every rule file that `paths` name, and says which could not be read.
///
/// A directory stands for its files that end in `.yaml`, `.yml` or `.json` and those of its subdirectories, in the
/// order of their names. Names that begin with a dot are passed over, so that of a directory that Kubernetes mounts
/// each file is seen once.
pub fn read<P: AsRef<Path>>(paths: &[P]) -> (Vec<Source>, Vec<Diagnostic>) {
    let mut reading = Reading::default();
    for path in paths {
        reading.named(path.as_ref());
    }
    (reading.sources, reading.problems)
}

/// Reads one source of rules to its end, or as far as rules may go.
pub fn read_from(name: &str, from: impl Read) -> Result<Source, Box<Diagnostic>> {
    let mut bytes = Vec::new();
    let most = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX);
    from.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| Box::new(unreadable(name, &error)))?;
    if bytes.len() > MAX_BYTES {
        return Err(Box::new(too_large(name)));
    }
    let text = String::from_utf8(bytes)
        .map_err(|error| Box::new(not_utf8(name, error.as_bytes(), error.utf8_error().valid_up_to())))?;
    // A byte order mark is no part of the text. Editors do not show it, so places count from behind it.
    Ok(Source::new(name, text.strip_prefix('\u{feff}').unwrap_or(&text)))
}

#[derive(Default)]
struct Reading {
    sources: Vec<Source>,
    problems: Vec<Diagnostic>,
    /// Files and directories that were met, by what they are called when all links are followed.
    met: HashSet<PathBuf>,
}

impl Reading {
    /// A path that somebody gave.
    fn named(&mut self, path: &Path) {
        let Some((kind, real)) = self.look(path) else { return };
        if !kind.is_dir() {
            if !self.file(path, kind, real) {
                let warning = problem("named-twice", path, "this file was named before; it is read once");
                self.problems.push(Diagnostic { severity: Severity::Warning, ..warning });
            }
            return;
        }
        if !self.directory(path, real, &mut Vec::new()) {
            self.problems.push(
                problem("no-rules", path, "there are no rule files in this directory")
                    .help("rule files in directories end in .yaml, .yml or .json, and do not begin with a dot"),
            );
        }
    }

    /// Whatever is in a directory; the answer is whether there was anything, good or bad. `around` are the directories
    /// that it is in, to notice links that lead back.
    fn directory(&mut self, path: &Path, real: PathBuf, around: &mut Vec<PathBuf>) -> bool {
        if around.contains(&real) {
            self.problems.push(circle(path));
            return true;
        }
        if !self.met.insert(real.clone()) {
            return true;
        }
        let mut found = match fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
            Ok(found) => found,
            Err(error) => {
                self.problems.push(unreadable(&path.to_string_lossy(), &error));
                return true;
            }
        };
        found.retain(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
        found.sort_by_key(fs::DirEntry::file_name);
        around.push(real);
        let mut any = false;
        for entry in found {
            let path = entry.path();
            let is_rules = path
                .extension()
                .is_some_and(|extension| EXTENSIONS.iter().any(|known| extension.eq_ignore_ascii_case(known)));
            // Other files may be anything, links to nowhere included.
            if !is_rules && !fs::metadata(&path).is_ok_and(|metadata| metadata.is_dir()) {
                continue;
            }
            any |= match self.look(&path) {
                Some((kind, real)) if kind.is_dir() => self.directory(&path, real, around),
                Some((kind, real)) => {
                    self.file(&path, kind, real);
                    true
                }
                None => true,
            };
        }
        around.pop();
        any
    }

    /// What `path` is, and what it is called when all links are followed.
    fn look(&mut self, path: &Path) -> Option<(FileType, PathBuf)> {
        let seen = fs::metadata(path).and_then(|metadata| Ok((metadata.file_type(), fs::canonicalize(path)?)));
        let error = match seen {
            Ok(seen) => return Some(seen),
            Err(error) => error,
        };
        let link = fs::read_link(path).ok();
        self.problems.push(match (error.kind(), link) {
            (io::ErrorKind::NotFound, Some(target)) => {
                let message = format!("this is a link to `{}`, which does not exist", target.display());
                problem("not-found", path, message)
            }
            (io::ErrorKind::NotFound, None) => problem("not-found", path, "there is no such file or directory"),
            // The kind has no stable name yet, and its number differs between systems.
            (kind, _) if format!("{kind:?}") == "FilesystemLoop" => circle(path),
            _ => unreadable(&path.to_string_lossy(), &error),
        });
        None
    }

    /// Reads a file, unless it was read before: then the answer is no.
    fn file(&mut self, path: &Path, kind: FileType, real: PathBuf) -> bool {
        if !self.met.insert(real) {
            return false;
        }
        let name = path.to_string_lossy();
        if !kind.is_file() {
            let message = "this is neither a file nor a directory, but a device, a pipe or a socket";
            self.problems.push(problem("not-a-file", path, message));
            return true;
        }
        let read = File::open(path).map_err(|error| Box::new(unreadable(&name, &error))).and_then(|file| {
            // Told by the size where there is one; some systems' files have none until they are read.
            let size = file.metadata().map_or(0, |metadata| metadata.len());
            if usize::try_from(size).is_ok_and(|size| size <= MAX_BYTES) {
                read_from(&name, file)
            } else {
                Err(Box::new(too_large(&name)))
            }
        });
        match read {
            Ok(source) => self.sources.push(source),
            Err(problem) => self.problems.push(*problem),
        }
        true
    }
}

fn problem(code: &'static str, path: &Path, message: impl Into<String>) -> Diagnostic {
    Diagnostic::unplaced(code, message).unread(path.to_string_lossy(), None)
}

fn circle(path: &Path) -> Diagnostic {
    problem("link-loop", path, "this is a symbolic link that leads back to itself").help("remove the link")
}

fn unreadable(name: &str, error: &io::Error) -> Diagnostic {
    Diagnostic::unplaced("unreadable", format!("this cannot be read: {error}")).unread(name, None)
}

fn too_large(name: &str) -> Diagnostic {
    let message = format!("the file has more than {} MiB", MAX_BYTES >> 20);
    Diagnostic::unplaced("too-large", message).unread(name, None).help("split it into several files")
}

fn not_utf8(name: &str, bytes: &[u8], valid: usize) -> Diagnostic {
    let (before, rest) = bytes.split_at_checked(valid).unwrap_or((bytes, &[]));
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    let column = String::from_utf8_lossy(&before[line_start..]).chars().count() + 1;
    let wrong = rest.first().copied().unwrap_or_default();
    let message = format!("this is not UTF-8 text: byte {valid}, on line {line}, is 0x{wrong:02X}");
    let wide = matches!(bytes, [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..]);
    let help = if wide { "the file looks like UTF-16; save it as UTF-8" } else { "save the file as UTF-8" };
    Diagnostic::unplaced("not-utf-8", message).unread(name, Some((line, column))).help(help)
}
