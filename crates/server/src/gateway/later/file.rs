//! Requests in a file: a small database that a crash leaves as it was after the last thing that was promised.
//!
//! One thread writes. Whatever waits for it at the moment shares one transaction and one flush to the disk, so that
//! many requests at once cost about as much as one.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};

use anyhow::Context as _;
use bytes::Bytes;
use redb::{Builder, Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use tokio::sync::oneshot;

use super::form::{Entry, Id, Stage};
use super::shelf::Fault;

/// What became of each, by its name: small, and read as a whole at the start.
const ENTRIES: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("entries");
/// The requests themselves.
const REQUESTS: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("requests");

/// Most is read once and soon after it was written.
const CACHE: usize = 8 << 20;
/// How many changes share a transaction at most.
const TOGETHER: usize = 512;

/// A hold on the thread that writes. It ends when this is dropped and all is written.
pub(super) struct FileShelf {
    orders: Sender<Order>,
}

enum Order {
    Change(Change, oneshot::Sender<Result<(), Fault>>),
    Read(Id, oneshot::Sender<Result<Option<Bytes>, Fault>>),
}

enum Change {
    Put { id: Id, entry: Vec<u8>, request: Vec<u8> },
    Mark { id: Id, entry: Vec<u8>, is_done: bool },
    Remove(Id),
}

impl FileShelf {
    /// Opens the file, or makes it, and reads what is to be known of all that is in it.
    pub(super) fn open(path: &Path) -> anyhow::Result<(Self, Vec<Entry>)> {
        let name = path.display();
        let database = open(path).map_err(|error| match error.downcast_ref::<redb::DatabaseError>() {
            Some(redb::DatabaseError::DatabaseAlreadyOpen) => {
                anyhow::anyhow!("{name}: another gateway uses this directory; give each its own --data")
            }
            _ => error.context(format!("{name}: requests cannot be kept there")),
        })?;
        let entries = entries(&database).with_context(|| format!("{name}: this is not what was kept there"))?;
        let (orders, ordered) = channel();
        let writer = Writer { path: path.to_owned(), database: Some(database) };
        std::thread::Builder::new()
            .name("later".to_owned())
            .spawn(move || writer.run(&ordered))
            .context("there is no thread for what is kept for later")?;
        Ok((Self { orders }, entries))
    }

    pub(super) async fn put(&self, entry: &Entry, request: Vec<u8>) -> Result<(), Fault> {
        self.change(Change::Put { id: entry.id, entry: entry.encode(), request }).await
    }

    pub(super) async fn mark(&self, entry: &Entry) -> Result<(), Fault> {
        let is_done = matches!(entry.state.stage, Stage::Done(_));
        self.change(Change::Mark { id: entry.id, entry: entry.encode(), is_done }).await
    }

    pub(super) async fn remove(&self, id: Id) -> Result<(), Fault> {
        self.change(Change::Remove(id)).await
    }

    pub(super) async fn request(&self, id: Id) -> Result<Option<Bytes>, Fault> {
        let (done, read) = oneshot::channel();
        self.order(Order::Read(id, done))?;
        read.await.unwrap_or_else(|_| Err(gone()))
    }

    async fn change(&self, change: Change) -> Result<(), Fault> {
        let (done, changed) = oneshot::channel();
        self.order(Order::Change(change, done))?;
        changed.await.unwrap_or_else(|_| Err(gone()))
    }

    fn order(&self, order: Order) -> Result<(), Fault> {
        self.orders.send(order).map_err(|_| gone())
    }
}

fn gone() -> Fault {
    Fault("its thread has ended".to_owned())
}

fn open(path: &Path) -> anyhow::Result<Database> {
    // There are keys and passwords in it.
    let mut options = OpenOptions::new();
    let file: File = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    Ok(Builder::new().set_cache_size(CACHE).create_file(file)?)
}

fn entries(database: &Database) -> anyhow::Result<Vec<Entry>> {
    // So that both are there from now on.
    let making = database.begin_write()?;
    making.open_table(ENTRIES)?;
    making.open_table(REQUESTS)?;
    making.commit()?;
    let reading = database.begin_read()?;
    let table = reading.open_table(ENTRIES)?;
    let mut entries = Vec::new();
    for row in table.iter()? {
        let (id, bytes) = row?;
        match Entry::decode(bytes.value()) {
            Some(entry) => entries.push(entry),
            None => {
                tracing::error!(id = %Id(id.value()), "what became of a request that was kept cannot be read: it stays in the file");
            }
        }
    }
    entries.sort_unstable_by_key(|entry| entry.number);
    Ok(entries)
}

struct Writer {
    path: PathBuf,
    /// `None` after a failure, until it could be opened again.
    database: Option<Database>,
}

impl Writer {
    fn run(mut self, orders: &Receiver<Order>) {
        while let Ok(first) = orders.recv() {
            let more = std::iter::from_fn(|| orders.try_recv().ok()).take(TOGETHER - 1);
            let (mut changes, mut waiting, mut reads) = (Vec::new(), Vec::new(), Vec::new());
            for order in std::iter::once(first).chain(more) {
                match order {
                    Order::Change(change, done) => {
                        changes.push(change);
                        waiting.push(done);
                    }
                    Order::Read(id, done) => reads.push((id, done)),
                }
            }
            if !changes.is_empty() {
                let written = self.with(|database| write(database, &changes));
                for done in waiting {
                    // Who does not wait any more does not want to know.
                    let _ = done.send(written.as_ref().copied().map_err(|fault| Fault(fault.0.clone())));
                }
            }
            for (id, done) in reads {
                let _ = done.send(self.with(|database| read(database, id)));
            }
        }
    }

    /// After an error of the disk a database answers nothing until it is opened again.
    fn with<T>(&mut self, act: impl FnOnce(&Database) -> Result<T, redb::Error>) -> Result<T, Fault> {
        let database = match self.database.take() {
            Some(database) => database,
            None => open(&self.path).map_err(|error| Fault(format!("{error:#}")))?,
        };
        match act(&database) {
            Ok(value) => {
                self.database = Some(database);
                Ok(value)
            }
            Err(error) => {
                tracing::error!("{}: {error}", self.path.display());
                Err(Fault(error.to_string()))
            }
        }
    }
}

fn write(database: &Database, changes: &[Change]) -> Result<(), redb::Error> {
    let writing = database.begin_write()?;
    {
        let mut entries = writing.open_table(ENTRIES)?;
        let mut requests = writing.open_table(REQUESTS)?;
        for change in changes {
            match change {
                Change::Put { id, entry, request } => {
                    requests.insert(id.0, request.as_slice())?;
                    entries.insert(id.0, entry.as_slice())?;
                }
                Change::Mark { id, entry, is_done } => {
                    entries.insert(id.0, entry.as_slice())?;
                    if *is_done {
                        requests.remove(id.0)?;
                    }
                }
                Change::Remove(id) => {
                    entries.remove(id.0)?;
                    requests.remove(id.0)?;
                }
            }
        }
    }
    // Immediate durability is the default: this returns when all of it is on the disk.
    writing.commit()?;
    Ok(())
}

fn read(database: &Database, id: Id) -> Result<Option<Bytes>, redb::Error> {
    let reading = database.begin_read()?;
    let requests = reading.open_table(REQUESTS)?;
    let found = requests.get(id.0)?;
    Ok(found.map(|request| Bytes::copy_from_slice(request.value())))
}

#[cfg(test)]
mod tests {
    use tollgate::Timestamp;

    use super::super::form::tests::entry;
    use super::*;

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("tollgate-later-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    fn waiting() -> Stage {
        Stage::Waiting { not_before: Timestamp::EPOCH, why: "".into() }
    }

    #[tokio::test]
    async fn what_was_written_is_there_after_it_was_opened_again() {
        let folder = directory("again");
        let path = folder.join("later.redb");
        let (shelf, found) = FileShelf::open(&path).unwrap();
        assert!(found.is_empty());
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600, "nobody else reads it");
        let all: Vec<Entry> = (1..=4).map(|number| entry(number, waiting())).collect();
        let puts = all.iter().map(|entry| shelf.put(entry, vec![entry.number as u8; 10]));
        for put in puts {
            put.await.unwrap();
        }
        let dead = Entry { state: entry(2, Stage::Dead { why: "no".into() }).state, ..all[1].clone() };
        shelf.mark(&dead).await.unwrap();
        shelf.remove(all[2].id).await.unwrap();
        assert!(FileShelf::open(&path).is_err(), "two processes do not share it");
        // The thread lets go of the file when it has nothing more to do.
        drop(shelf);
        let (shelf, found) = reopened(&path);
        assert_eq!(found, [all[0].clone(), dead, all[3].clone()]);
        assert_eq!(shelf.request(all[3].id).await.unwrap().unwrap(), &[4; 10][..]);
        assert_eq!(shelf.request(all[2].id).await.unwrap(), None);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[tokio::test]
    async fn of_what_is_done_only_the_answer_is_kept() {
        let folder = directory("done");
        let (shelf, _) = FileShelf::open(&folder.join("later.redb")).unwrap();
        let begun = entry(1, waiting());
        shelf.put(&begun, vec![1; 10]).await.unwrap();
        let answered = super::super::form::Answered {
            status: http::StatusCode::OK,
            content_type: "text/plain".into(),
            body: Bytes::from_static(b"yes"),
            is_whole: true,
        };
        let done = entry(1, Stage::Done(answered));
        shelf.mark(&done).await.unwrap();
        assert_eq!(shelf.request(done.id).await.unwrap(), None);
        drop(shelf);
        assert_eq!(reopened(&folder.join("later.redb")).1, [done]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    fn reopened(path: &Path) -> (FileShelf, Vec<Entry>) {
        for _ in 0..10_000 {
            match FileShelf::open(path) {
                Ok(opened) => return opened,
                Err(_) => std::thread::yield_now(),
            }
        }
        FileShelf::open(path).unwrap()
    }
}
