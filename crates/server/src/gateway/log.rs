//! The access log: one line of JSON for each request, written when the last byte of its answer has gone, or when the
//! client has.
//!
//! Requests do not wait for it. Lines go to a thread of their own; when that cannot keep up, some are lost, and how
//! many is said in the next line that is not. A file that was moved away, as those who rotate logs do, is opened again
//! within a second.
//!
//! Never in it: what follows `?`, headers, bodies. Clients put secrets there.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::Context as _;
use http::header::HOST;
use http::{HeaderValue, Method, Response, StatusCode, request};
use quanta::Instant;

use super::body::Reply;

/// Lines that may wait to be written.
const MOST_WAITING: usize = 16_384;
/// How often it is looked whether the file is still where it was.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Of a path so much is told.
const LONGEST_PATH: usize = 1_024;

/// Where lines go.
#[derive(Debug)]
pub(crate) struct AccessLog {
    lines: SyncSender<String>,
    lost: AtomicU64,
}

impl AccessLog {
    /// To a file, or to standard output for `-`.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Arc<Self>> {
        let (lines, waiting) = sync_channel(MOST_WAITING);
        let out = Out::open(path).with_context(|| format!("cannot write the access log {}", path.display()))?;
        let writer = std::thread::Builder::new().name("access-log".to_owned());
        writer.spawn(move || write(out, &waiting)).context("cannot start a thread for the access log")?;
        Ok(Arc::new(Self { lines, lost: AtomicU64::new(0) }))
    }

    fn put(&self, mut line: String) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let _ = write!(line, ",\"lost_before\":{lost}");
        }
        line.push_str("}\n");
        if self.lines.try_send(line).is_err() {
            self.lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }
}

/// Part of an answer that is a denial: the rule that denies.
#[derive(Clone, Debug)]
pub(super) struct DeniedBy(pub(super) Arc<str>);

/// One line, of what is known by now.
pub(super) struct Entry {
    log: Arc<AccessLog>,
    line: String,
    begun: Instant,
    status: StatusCode,
    bytes: u64,
    is_whole: bool,
}

/// What is written of a client that was gone before there was an answer: no server says it.
fn left_before_an_answer() -> StatusCode {
    StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST)
}

impl Entry {
    /// Of a request of this name.
    pub(super) fn new(log: &Arc<AccessLog>, head: &request::Parts, name: &HeaderValue) -> Self {
        let host = head.uri.authority().map(http::uri::Authority::as_str);
        let host = host.or_else(|| head.headers.get(HOST).and_then(|host| host.to_str().ok())).unwrap_or_default();
        let mut entry = Self::of(log, &head.method, host, head.uri.path());
        entry.add("id", name.to_str().unwrap_or_default());
        entry
    }

    /// Of what could not be read as a request.
    pub(super) fn unread(log: &Arc<AccessLog>, name: &HeaderValue) -> Self {
        let mut entry = Self::of(log, &Method::from_bytes(b"-").unwrap_or_default(), "-", "-");
        entry.add("id", name.to_str().unwrap_or_default());
        entry
    }

    fn of(log: &Arc<AccessLog>, method: &Method, host: &str, path: &str) -> Self {
        let mut line = String::with_capacity(320);
        // Milliseconds are what logs are sorted by.
        let _ = write!(line, "{{\"time\":\"{:.3}\"", jiff::Timestamp::now());
        let mut entry = Self {
            log: Arc::clone(log),
            line,
            begun: Instant::now(),
            status: left_before_an_answer(),
            bytes: 0,
            is_whole: false,
        };
        entry.add("method", method.as_str());
        entry.add("host", host);
        let shown = path.char_indices().nth(LONGEST_PATH).map_or(path, |(end, _)| path.get(..end).unwrap_or(path));
        entry.add("path", shown);
        entry
    }

    /// Adds what is known by now.
    pub(super) fn add(&mut self, name: &str, value: &str) {
        let _ = write!(self.line, ",\"{name}\":");
        text(&mut self.line, value);
    }

    /// Follows an answer to its end.
    pub(super) fn answered(mut self, method: &Method, mut answer: Response<Reply>) -> Response<Reply> {
        self.status = answer.status();
        if let Some(DeniedBy(rule)) = answer.extensions_mut().remove() {
            self.add("denied_by", &rule);
        }
        // Nothing of a body is sent, and nobody asks for its end.
        self.is_whole = *method == Method::HEAD || self.status == StatusCode::SWITCHING_PROTOCOLS;
        answer.map(|body| body.logged(self))
    }

    /// So many bytes of the answer's body went to the client.
    pub(super) fn sent(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// All of them did.
    pub(super) fn whole(&mut self) {
        self.is_whole = true;
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let Self { log, line, begun, status, bytes, is_whole } = self;
        let millis = begun.elapsed().as_secs_f64() * 1e3;
        let _ = write!(line, ",\"status\":{},\"bytes\":{bytes},\"ms\":{millis:.3}", status.as_u16());
        if !*is_whole {
            line.push_str(",\"cut_off\":true");
        }
        log.put(std::mem::take(line));
    }
}

/// A string of JSON. What clients write goes here: nothing of it ends the line, or the string.
fn text(line: &mut String, value: &str) {
    line.push('"');
    for char in value.chars() {
        match char {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            char if char.is_control() => {
                let _ = write!(line, "\\u{:04x}", u32::from(char));
            }
            char => line.push(char),
        }
    }
    line.push('"');
}

enum Out {
    /// Standard output, by its number: the process holds the lock that others would wait for.
    Standard(File),
    File {
        path: PathBuf,
        file: BufWriter<File>,
        which: (u64, u64),
    },
}

impl Out {
    fn open(path: &Path) -> io::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Standard(io::stdout().as_fd().try_clone_to_owned()?.into()));
        }
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let which = file.metadata().map(|file| (file.dev(), file.ino()))?;
        Ok(Self::File { path: path.to_owned(), file: BufWriter::new(file), which })
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        match self {
            Self::Standard(file) => file.write_all(line.as_bytes()),
            Self::File { file, .. } => file.write_all(line.as_bytes()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Standard(_) => Ok(()),
            Self::File { file, .. } => file.flush(),
        }
    }

    /// Opens the file again if another one, or none, is in its place.
    fn look(&mut self) -> io::Result<()> {
        let Self::File { path, which, .. } = self else { return Ok(()) };
        if std::fs::metadata(&*path).is_ok_and(|file| (file.dev(), file.ino()) == *which) {
            return Ok(());
        }
        let again = Self::open(path)?;
        self.flush()?;
        *self = again;
        Ok(())
    }
}

/// Writes what comes until nobody is left who could send anything.
fn write(mut out: Out, lines: &Receiver<String>) {
    let (mut looked, mut is_well) = (Instant::now(), true);
    let mut report = |done: io::Result<()>| {
        if let Err(error) = &done
            && is_well
        {
            tracing::warn!("the access log cannot be written: {error}");
        }
        is_well = done.is_ok();
    };
    loop {
        match lines.recv_timeout(LOOK_EVERY) {
            Ok(line) => {
                report(out.write(&line));
                // As many as there are, and then all at once.
                for line in lines.try_iter().take(MOST_WAITING) {
                    report(out.write(&line));
                }
                report(out.flush());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if looked.elapsed() >= LOOK_EVERY {
            looked = Instant::now();
            report(out.look());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of its own for each.
    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("tollgate-access-log-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    fn lines(path: &Path, number: usize) -> Vec<serde_json::Value> {
        let begun = Instant::now();
        loop {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            if text.lines().count() >= number {
                return text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "{text}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn whatever_a_client_writes_is_one_line_of_json() {
        let path = directory("line").join("access.log");
        let log = AccessLog::open(&path).unwrap();
        let nasty = "/a\"b\\c\n{\u{1b}}é\u{7f}";
        let mut entry = Entry::of(&log, &Method::GET, "h", nasty);
        entry.add("route", "r");
        entry.status = StatusCode::NOT_FOUND;
        entry.sent(7);
        entry.whole();
        drop(entry);
        drop(Entry::of(&log, &Method::POST, "h", &"x".repeat(5_000)));
        let lines = lines(&path, 2);
        assert_eq!(lines[0]["path"], nasty);
        assert_eq!((&lines[0]["status"], &lines[0]["bytes"]), (&404.into(), &7.into()));
        assert_eq!(lines[0].get("cut_off"), None);
        assert_eq!(lines[1]["path"].as_str().map(str::len), Some(LONGEST_PATH));
        assert_eq!(lines[1]["cut_off"], true);
    }

    #[test]
    fn a_file_that_was_moved_away_is_made_again_and_no_line_is_in_both_or_neither() {
        let directory = directory("moved");
        let [path, moved] = ["access.log", "access.log.1"].map(|name| directory.join(name));
        let log = AccessLog::open(&path).unwrap();
        drop(Entry::of(&log, &Method::GET, "h", "/1"));
        lines(&path, 1);
        std::fs::rename(&path, &moved).unwrap();
        let begun = Instant::now();
        let mut sent = 1;
        while !path.exists() {
            assert!(begun.elapsed() < Duration::from_secs(10));
            drop(Entry::of(&log, &Method::GET, "h", "/2"));
            sent += 1;
            std::thread::yield_now();
        }
        drop(Entry::of(&log, &Method::GET, "h", "/3"));
        let last = loop {
            let last = lines(&path, 1);
            if last.iter().any(|line| line["path"] == "/3") {
                break last;
            }
        };
        let lost: u64 =
            [lines(&moved, 1), last.clone()].concat().iter().filter_map(|line| line["lost_before"].as_u64()).sum();
        assert_eq!(lines(&moved, 1).len() as u64 + last.len() as u64 + lost, sent + 1);
    }
}
