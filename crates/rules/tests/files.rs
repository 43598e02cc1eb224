//! Rule files as they lie on real disks: directories, links, and everything that is no file of rules at all.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use tollgate_rules::{Diagnostic, Severity, Source, read, read_from};

/// A directory of its own for each test, gone at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("files-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(&path).expect("a directory for the test");
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("inside the folder")).expect("a directory");
        fs::write(&path, content).expect("a file");
        path
    }

    /// The names of sources, from this folder on.
    fn names(&self, sources: &[Source]) -> Vec<String> {
        let short = |source: &Source| {
            let path = Path::new(&*source.name).strip_prefix(&self.0).expect("inside the folder");
            path.to_string_lossy().into_owned()
        };
        sources.iter().map(short).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn codes(problems: &[Diagnostic]) -> Vec<&str> {
    problems.iter().map(|problem| problem.code).collect()
}

#[test]
fn a_directory_is_its_rule_files_in_the_order_of_names() {
    let folder = Folder::new("order");
    for name in
        ["b.yaml", "a.yml", "c/z.yaml", "c/d/e.json", "d.YAML", "notes.txt", ".hidden.yaml", ".git/x.yaml", "yaml"]
    {
        folder.write(name, name);
    }
    let (sources, problems) = read(&[&folder.0]);
    assert_eq!(folder.names(&sources), ["a.yml", "b.yaml", "c/d/e.json", "c/z.yaml", "d.YAML"]);
    assert_eq!(&*sources[2].text, "c/d/e.json");
    assert!(problems.is_empty(), "{problems:?}");
}

#[test]
fn a_file_that_is_named_may_be_called_anything() {
    let folder = Folder::new("named");
    let (plain, hidden) = (folder.write("rules.conf", "a"), folder.write(".rules", "b"));
    let (sources, problems) = read(&[&hidden, &plain]);
    assert_eq!(folder.names(&sources), [".rules", "rules.conf"]);
    assert!(problems.is_empty(), "{problems:?}");
}

#[test]
fn what_is_missing_is_told_and_the_others_are_read() {
    let folder = Folder::new("missing");
    let (here, gone) = (folder.write("here.yaml", "a"), folder.path("gone.yaml"));
    let (sources, problems) = read(&[&gone, &here, &folder.path("here.yaml/below")]);
    assert_eq!(folder.names(&sources), ["here.yaml"]);
    assert_eq!(codes(&problems), ["not-found", "unreadable"]);
    let unread = problems[0].unread.as_ref().expect("the file");
    assert_eq!((&*unread.file, unread.position), (&*gone.to_string_lossy(), None));
}

#[test]
fn a_file_that_is_named_twice_is_read_once() {
    let folder = Folder::new("twice");
    let file = folder.write("a.yaml", "a");
    folder.write("b.yaml", "b");
    let (sources, problems) = read(&[&file, &folder.path("./a.yaml")]);
    assert_eq!(folder.names(&sources), ["a.yaml"]);
    assert_eq!(codes(&problems), ["named-twice"]);
    assert_eq!(problems[0].severity, Severity::Warning);

    let (sources, problems) = read(&[&file, &folder.0, &folder.0]);
    assert_eq!(folder.names(&sources), ["a.yaml", "b.yaml"]);
    assert!(problems.is_empty(), "{problems:?}");
}

#[test]
fn a_directory_without_rule_files_is_an_error() {
    let folder = Folder::new("none");
    folder.write("notes.txt", "a");
    folder.write("below/.hidden.yaml", "a");
    let (sources, problems) = read(&[&folder.0]);
    assert!(sources.is_empty());
    assert_eq!(codes(&problems), ["no-rules"]);
    assert_eq!(problems[0].severity, Severity::Error);
    assert!(problems[0].help.as_ref().is_some_and(|help| help.contains(".yaml")));
}

#[test]
fn what_is_not_utf_8_is_placed() {
    let folder = Folder::new("utf8");
    let file = folder.write("latin.yaml", b"domain: a\n# \xc3\xa9t\xe9\n");
    let wide = folder.write("wide.yaml", b"\xff\xfed\0");
    let (sources, problems) = read(&[&file, &wide]);
    assert!(sources.is_empty());
    assert_eq!(codes(&problems), ["not-utf-8", "not-utf-8"]);
    assert_eq!(problems[0].message, "this is not UTF-8 text: byte 15, on line 2, is 0xE9");
    assert_eq!(problems[0].unread.as_ref().and_then(|unread| unread.position), Some((2, 5)));
    assert_eq!(problems[1].help.as_deref(), Some("the file looks like UTF-16; save it as UTF-8"));
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_text() {
    let source = read_from("a", &b"\xef\xbb\xbfdomain: a"[..]).expect("text");
    assert_eq!(&*source.text, "domain: a");
}

#[test]
fn a_file_that_is_too_large_is_refused_unread() {
    let folder = Folder::new("large");
    let path = folder.write("large.yaml", "");
    // A hole: it takes no room on the disk, and reading it would take long.
    fs::File::create(&path).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
    let (sources, problems) = read(&[&path]);
    assert!(sources.is_empty());
    assert_eq!(codes(&problems), ["too-large"]);
    assert_eq!(read_from("endless", std::io::repeat(b' ')).expect_err("too much").code, "too-large");
}

#[test]
fn an_empty_file_is_a_source() {
    let folder = Folder::new("empty");
    let (sources, problems) = read(&[folder.write("empty.yaml", "")]);
    assert_eq!((sources.len(), problems.len()), (1, 0));
}

#[cfg(unix)]
mod on_unix {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn of_a_directory_that_kubernetes_mounts_each_file_is_read_once() {
        let folder = Folder::new("kubernetes");
        folder.write("..2026_01_02/rules.yaml", "old");
        folder.write("..2026_01_03/rules.yaml", "new");
        folder.write("..2026_01_03/more.yaml", "more");
        symlink("..2026_01_03", folder.path("..data")).expect("a link");
        for name in ["rules.yaml", "more.yaml"] {
            symlink(Path::new("..data").join(name), folder.path(name)).expect("a link");
        }
        let (sources, problems) = read(&[&folder.0]);
        assert_eq!(folder.names(&sources), ["more.yaml", "rules.yaml"]);
        assert_eq!(&*sources[1].text, "new");
        assert!(problems.is_empty(), "{problems:?}");
    }

    #[test]
    fn links_that_lead_back_are_told_and_end() {
        let folder = Folder::new("loop");
        folder.write("a.yaml", "a");
        symlink("b.yaml", folder.path("b.yaml")).expect("a link to itself");
        fs::create_dir(folder.path("below")).expect("a directory");
        symlink("..", folder.path("below/up")).expect("a link upwards");
        let (sources, problems) = read(&[&folder.0]);
        assert_eq!(folder.names(&sources), ["a.yaml"]);
        assert_eq!(codes(&problems), ["link-loop", "link-loop"]);
        assert_eq!(codes(&read(&[folder.path("b.yaml")]).1), ["link-loop"]);
    }

    #[test]
    fn links_to_one_file_or_directory_read_it_once() {
        let folder = Folder::new("links");
        folder.write("real/a.yaml", "a");
        symlink("real", folder.path("other")).expect("a link");
        symlink("real/a.yaml", folder.path("b.yaml")).expect("a link");
        let (sources, problems) = read(&[&folder.0]);
        assert_eq!(folder.names(&sources), ["b.yaml"]);
        assert!(problems.is_empty(), "{problems:?}");
    }

    #[test]
    fn a_link_to_nothing_says_where_it_leads() {
        let folder = Folder::new("dangling");
        symlink("gone.yaml", folder.path("a.yaml")).expect("a link");
        symlink("gone.txt", folder.path("notes.txt")).expect("a link");
        let (_, problems) = read(&[&folder.0]);
        assert_eq!(codes(&problems), ["not-found"]);
        assert_eq!(problems[0].message, "this is a link to `gone.yaml`, which does not exist");
    }

    #[test]
    fn pipes_sockets_and_devices_are_refused_unopened() {
        let folder = Folder::new("pipes");
        let pipe = folder.path("pipe.yaml");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs");
        assert!(made.success());
        let _listener = UnixListener::bind(folder.path("socket.yaml")).expect("a socket");
        let (sources, problems) = read(&[folder.0.clone(), PathBuf::from("/dev/null"), PathBuf::from("/dev/zero")]);
        assert!(sources.is_empty());
        assert_eq!(codes(&problems), ["not-a-file"; 4]);
        assert_eq!(codes(&read(&[&pipe]).1), ["not-a-file"]);
    }

    #[test]
    fn what_may_not_be_read_is_told() {
        let folder = Folder::new("permission");
        let file = folder.write("a.yaml", "a");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).expect("permissions");
        let (sources, problems) = read(&[&folder.0]);
        // The superuser may read everything.
        match fs::File::open(&file) {
            Ok(_) => assert_eq!((sources.len(), problems.len()), (1, 0)),
            Err(_) => assert_eq!((sources.len(), codes(&problems)), (0, vec!["unreadable"])),
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_that_fails_while_it_is_read_is_told() {
        // A regular file by its type, and an input error from the first byte on.
        let (sources, problems) = read(&["/proc/self/mem"]);
        assert!(sources.is_empty());
        assert_eq!(codes(&problems), ["unreadable"]);
    }
}
