//! States on disk, for restarts.
//!
//! A snapshot holds the store's secret (without it, keys could not be found again) and every state that still matters.
//! It is written beside its place and then renamed, each of which reaches the disk before the next, so there is never
//! half of one. A file that is damaged, cut short or of an unknown version is refused as a whole. Times in it are
//! absolute: a snapshot that is read late has simply expired in part. Open reservations are not written; what they
//! spent stays spent.
//!
//! ```text
//!   "TOLLGATE" version:u32 secret:[192]
//!   { high:u64 low:u64 fresh_at:u64 word:u64 over_since:u64 marks:u64 { at:u64 note:u64 }* }*
//!   { all ones } checksum:u128        little-endian throughout
//! ```

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::{Cell, Extra, MAX_LOG, Mark, State, Timestamp};
use xxhash_rust::xxh3::Xxh3Default;

use super::budget::{Forced, Unbounded};
use super::hash::{Hash, KeyHasher, SECRET_BYTES};
use super::{MemoryStore, SHARED};

const MAGIC: &[u8; 8] = b"TOLLGATE";
/// Hashes were longer in the version before, which can still be read: what is kept of them is the same.
const VERSION: u32 = 3;
const BEFORE: u32 = 2;
/// In place of a hash's low half and fresh_at: no more states follow.
const END: u64 = u64::MAX;
/// Set in `fresh_at` of a counter that keys share.
const SHARED_FLAG: u64 = 1 << 63;

impl MemoryStore {
    /// Writes every state that is not stale at `now` to the file `path`. Decisions go on meanwhile: each table is
    /// written as it is at one instant, and only that one waits.
    pub fn save_snapshot(&self, path: impl AsRef<Path>, now: Timestamp) -> Result<(), SnapshotError> {
        let path = path.as_ref();
        let beside = beside(path);
        let written = create_private(&beside).and_then(|file| {
            let mut out = Summed { inner: BufWriter::new(file), sum: Xxh3Default::new() };
            self.write_states(&mut out, now)?;
            let sum = out.sum.digest128();
            out.inner.write_all(&sum.to_le_bytes())?;
            out.inner.into_inner()?.sync_all()
        });
        let renamed = written.and_then(|()| std::fs::rename(&beside, path));
        if renamed.is_err() {
            // The first error is the one worth telling.
            let _ = std::fs::remove_file(&beside);
        }
        let kept = renamed.and_then(|()| sync_directory(path));
        kept.map_err(|error| SnapshotError { path: path.to_owned(), problem: Problem::Io(error) })
    }

    /// A store with a budget of `bytes` that goes on where the snapshot in the file `path` left off. States that are
    /// stale at `now` are left out. None of the others is, even if they take more than the budget; new keys then share
    /// counters.
    pub fn load_snapshot(path: impl AsRef<Path>, bytes: usize, now: Timestamp) -> Result<Self, SnapshotError> {
        let path = path.as_ref();
        let failed = |problem| SnapshotError { path: path.to_owned(), problem };
        let file = File::open(path).map_err(|error| failed(Problem::Io(error)))?;
        let mut input = Summed { inner: BufReader::new(file), sum: Xxh3Default::new() };
        read_store(&mut input, bytes, now).map_err(failed)
    }

    fn write_states(&self, out: &mut impl Write, now: Timestamp) -> io::Result<()> {
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        out.write_all(self.hasher.secret())?;
        let mut bytes = Vec::new();
        for index in (0..=self.mask).chain([SHARED]) {
            bytes.clear();
            // Copied under the locks, written after them.
            let states: Vec<(Hash, State)> = {
                let blocks = if index == SHARED { Vec::new() } else { self.front.lock_all(index) };
                let slots = blocks.iter().flat_map(|block| block.slots()).filter(|slot| slot.is_used());
                let states = slots.map(|slot| (slot.hash(), State { cell: slot.cell(), ..State::default() }));
                states.chain(self.shard(index).lock().states()).collect()
            };
            for (hash, state) in states.into_iter().filter(|(_, state)| state.cell.fresh_at > now) {
                let flag = if index == SHARED { SHARED_FLAG } else { 0 };
                let fresh_at = state.cell.fresh_at.as_micros() | flag;
                let fixed = [hash.high, hash.low, fresh_at, state.cell.word, state.extra.over_since.as_micros()];
                let marks = state.extra.marks.iter().flat_map(|mark| [mark.at.as_micros(), mark.note]);
                let words = fixed.into_iter().chain([state.extra.marks.len() as u64]).chain(marks);
                bytes.extend(words.flat_map(u64::to_le_bytes));
            }
            out.write_all(&bytes)?;
        }
        out.write_all(&[0xff; 16])
    }
}

fn read_store(input: &mut Summed<impl Read>, bytes: usize, now: Timestamp) -> Result<MemoryStore, Problem> {
    if &input.read_array::<8>()? != MAGIC {
        return Err(Problem::NotASnapshot);
    }
    match u32::from_le_bytes(input.read_array()?) {
        VERSION | BEFORE => {}
        version => return Err(Problem::Version(version)),
    }
    let secret: [u8; SECRET_BYTES] = input.read_array()?;
    let store = MemoryStore::with_hasher(KeyHasher::from_secret(secret), bytes);
    while let Some((hash, shared, state)) = read_state(input)? {
        if state.cell.fresh_at > now {
            // Without room the key starts anew, as it would have without a snapshot.
            let _full = if shared {
                store.shard(SHARED).lock().adopt(hash, state, now, &Unbounded)
            } else {
                let budget = Forced(&store.budget);
                store.at_site(hash, now, None, &budget, |site, now| site.adopt(hash, state.clone(), now, &budget))
            };
        }
    }
    let sum = input.sum.digest128();
    let mut stored = [0; 16];
    input.inner.read_exact(&mut stored)?;
    let is_whole = u128::from_le_bytes(stored) == sum && input.inner.read(&mut [0])? == 0;
    // What was left out as stale must not be missed at an earlier time.
    for table in 0..=store.mask {
        store.front.lock_all(table).iter_mut().for_each(|block| _ = block.head.advance(now));
    }
    (0..=store.mask).chain([SHARED]).for_each(|index| _ = store.shard(index).lock().advance(now));
    if is_whole { Ok(store) } else { Err(Problem::Damaged) }
}

fn read_state(input: &mut Summed<impl Read>) -> Result<Option<(Hash, bool, State)>, Problem> {
    let [high, low] = [input.read_u64()?, input.read_u64()?];
    if (high, low) == (END, END) {
        return Ok(None);
    }
    let [fresh_at, word, over_since, marks] =
        [input.read_u64()?, input.read_u64()?, input.read_u64()?, input.read_u64()?];
    if marks > 4 * MAX_LOG {
        return Err(Problem::Damaged);
    }
    let mut extra = Extra { over_since: Timestamp::from_micros(over_since), ..Extra::default() };
    for _ in 0..marks {
        let at = Timestamp::from_micros(input.read_u64()?);
        if extra.marks.back().is_some_and(|last| last.at > at) {
            return Err(Problem::Damaged);
        }
        extra.marks.push_back(Mark { at, note: input.read_u64()? });
    }
    let cell = Cell { fresh_at: Timestamp::from_micros(fresh_at & !SHARED_FLAG), word };
    Ok(Some((Hash::new(high, low), fresh_at & SHARED_FLAG != 0, State { cell, extra })))
}

/// A stream whose bytes are summed on the way.
struct Summed<T> {
    inner: T,
    sum: Xxh3Default,
}

impl<T: Write> Write for Summed<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.sum.update(bytes.get(..written).unwrap_or(bytes));
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Read> Summed<T> {
    fn read_array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.inner.read_exact(&mut bytes)?;
        self.sum.update(&bytes);
        Ok(bytes)
    }

    fn read_u64(&mut self) -> io::Result<u64> {
        self.read_array().map(u64::from_le_bytes)
    }
}

/// A name that no other save uses at the same time.
fn beside(path: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}-{}.partial", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    PathBuf::from(name)
}

/// Makes a name last that a file was just given: it is kept by the directory.
#[cfg(unix)]
fn sync_directory(of: &Path) -> io::Result<()> {
    let directory = of.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

/// Directories cannot be opened elsewhere.
#[cfg(not(unix))]
fn sync_directory(_of: &Path) -> io::Result<()> {
    Ok(())
}

/// A new file that only its owner can read: it holds the secret of the hashes.
fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Why a snapshot could not be written or read.
#[derive(Debug)]
pub struct SnapshotError {
    path: PathBuf,
    problem: Problem,
}

#[derive(Debug)]
enum Problem {
    Io(io::Error),
    NotASnapshot,
    Version(u32),
    Damaged,
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Damaged,
            _ => Self::Io(error),
        }
    }
}

impl SnapshotError {
    /// Whether there is no such file: as on the first start.
    pub fn is_missing(&self) -> bool {
        matches!(&self.problem, Problem::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.problem {
            Problem::Io(error) => write!(f, "snapshot {path}: {error}"),
            Problem::NotASnapshot => write!(f, "snapshot {path}: this is not a snapshot of tollgate"),
            Problem::Version(version) => {
                let known = format_args!("{BEFORE} and {VERSION}");
                write!(f, "snapshot {path}: version {version} is not understood, only {known}; start without it")
            }
            Problem::Damaged => write!(f, "snapshot {path}: it is cut short or damaged; start without it"),
        }
    }
}

impl std::error::Error for SnapshotError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            Problem::Io(error) => Some(error),
            _ => None,
        }
    }
}
