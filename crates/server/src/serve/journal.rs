//! What the service says of itself, on standard error.
//!
//! Nobody waits for it: a thread of its own writes the lines, so that whoever does not read them, such as a collector
//! of logs that is stuck, stops no decision and no connection. Lines that find no room are lost, and how many is said
//! when there is room again.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Lines that may wait to be written.
const MOST_WAITING: usize = 4_096;
/// How long the last lines are waited for at the end.
const LAST: Duration = Duration::from_secs(1);

enum Message {
    Line(Vec<u8>),
    /// All before it is written.
    End(SyncSender<()>),
}

/// Where lines go.
#[derive(Clone)]
pub(super) struct Journal {
    messages: SyncSender<Message>,
    lost: Arc<AtomicU64>,
}

impl Journal {
    /// Starts to write lines to standard error; in JSON, if `is_json`.
    pub(super) fn start(is_json: bool) -> io::Result<Self> {
        let (messages, waiting) = sync_channel(MOST_WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&lost);
        let thread = std::thread::Builder::new().name("journal".to_owned());
        thread.spawn(move || write(&waiting, &counted, is_json, &mut io::stderr()))?;
        Ok(Self { messages, lost })
    }

    /// Waits until what was said is written, for a moment.
    pub(super) fn finish(&self) {
        let (done, end) = sync_channel(1);
        if self.messages.try_send(Message::End(done)).is_ok() {
            let _ = end.recv_timeout(LAST);
        }
    }
}

fn write(messages: &Receiver<Message>, lost: &AtomicU64, is_json: bool, out: &mut impl Write) {
    for message in messages {
        // If it cannot be written, there is nobody to be told.
        match message {
            Message::Line(line) => drop(out.write_all(&line)),
            Message::End(done) => drop(done.send(())),
        }
        let lost = lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let _ = match is_json {
                true => {
                    writeln!(out, "{{\"level\":\"WARN\",\"message\":\"lines of the log were lost\",\"lost\":{lost}}}")
                }
                false => writeln!(out, " WARN lines of the log were lost lost={lost}"),
            };
        }
    }
}

impl<'j> MakeWriter<'j> for Journal {
    type Writer = Line<'j>;

    fn make_writer(&'j self) -> Line<'j> {
        Line { journal: self, bytes: Vec::with_capacity(256) }
    }
}

/// One line, which goes when it is dropped.
pub(super) struct Line<'j> {
    journal: &'j Journal,
    bytes: Vec<u8>,
}

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        let line = std::mem::take(&mut self.bytes);
        if !line.is_empty() && self.journal.messages.try_send(Message::Line(line)).is_err() {
            self.journal.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_find_no_room_are_counted_and_told_of() {
        let (messages, waiting) = sync_channel(2);
        let journal = Journal { messages, lost: Arc::default() };
        for line in ["one\n", "two\n", "three\n", "four\n"] {
            journal.make_writer().write_all(line.as_bytes()).unwrap();
        }
        let lost = Arc::clone(&journal.lost);
        drop(journal);
        let mut out = Vec::new();
        write(&waiting, &lost, true, &mut out);
        let told = "{\"level\":\"WARN\",\"message\":\"lines of the log were lost\",\"lost\":2}";
        assert_eq!(String::from_utf8(out).unwrap(), format!("one\n{told}\ntwo\n"));
    }
}
