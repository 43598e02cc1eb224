//! Requests in a Redis that gateways share: whoever keeps one, one gateway at a time sends them all, in the order of
//! arrival.
//!
//! Which gateway that is, a turn says that runs out unless it is renewed. Whoever begins with a request says so in
//! Redis first, and is refused if the turn is another's by then: so a gateway that was stopped for a while and goes on
//! begins nothing that others have begun. How durable a request is, Redis says (`appendfsync`).

use std::collections::HashSet;

use bytes::Bytes;
use tollgate_redis::link::{self, RedisLink};
use tollgate_redis::{Link as _, Request, Tag};

use super::form::{Entry, Id, LineId, Stage};
use super::lines::{Bounds, Full, Tally};
use super::shelf::Fault;

const SCRIPT: &str = include_str!("redis.lua");
/// Nobody waits for a decision here, and a large request takes its time.
const DEADLINE: std::time::Duration = std::time::Duration::from_secs(2);
/// How long a turn lasts that is not renewed, in milliseconds.
const TURN: &[u8] = b"5000";
/// All keys live together, so that one call can change them as one.
const TAG: Tag = Tag::new(0);

pub(super) struct RedisShelf {
    link: RedisLink,
    key: Vec<u8>,
    /// What this gateway is called.
    name: Vec<u8>,
}

/// The answer to asking for the turn.
pub(super) struct Turn {
    pub(super) tally: Tally,
    pub(super) whose: Whose,
}

/// Whose turn it is.
pub(super) enum Whose {
    /// It is ours, for the time of this number: those who wait, after those that were told before, each with its place
    /// in the stream; `None` for what is there and cannot be read.
    Ours(u64, Vec<(Vec<u8>, Option<Entry>)>),
    /// It is another gateway's: the lines that somebody waits in.
    Theirs(HashSet<LineId>),
}

/// What there is, and the first of it.
pub(super) struct Overview {
    pub(super) tally: Tally,
    pub(super) entries: Vec<Entry>,
}

impl RedisShelf {
    pub(super) fn open(address: &link::Address) -> anyhow::Result<Self> {
        let settings = link::Settings { deadline: DEADLINE, ..link::Settings::default() };
        let link = RedisLink::open(address.clone(), SCRIPT, settings)?;
        let key = [b"tgl1:{", &TAG.text()[..], b"}"].concat();
        Ok(Self { link, key, name: Id::random()?.to_string().into_bytes() })
    }

    /// Keeps a request: its place in its line, or what there is no room for.
    pub(super) async fn put(
        &self,
        entry: &Entry,
        request: &[u8],
        bounds: Bounds,
        most_in_line: u64,
    ) -> Result<Result<usize, Full>, Fault> {
        let [requests, bytes, line] = [bounds.requests as u64, bounds.bytes, most_in_line].map(|most| most.to_string());
        let id = entry.id.to_string();
        let texts = [
            id.as_bytes(),
            &entry.encode(),
            request,
            &entry.line,
            requests.as_bytes(),
            bytes.as_bytes(),
            line.as_bytes(),
        ];
        let reply = self.ask(b'p', &texts).await?;
        match reply.split_first() {
            Some((b'o', place)) => Ok(Ok(number(place).unwrap_or(1) as usize)),
            Some((b'r', _)) => Ok(Err(Full::Requests)),
            Some((b'b', _)) => Ok(Err(Full::Bytes)),
            Some((b'l', _)) => Ok(Err(Full::Line)),
            _ => Err(nonsense()),
        }
    }

    /// Says what became of one. False if it is not this gateway's to say, or there is no such request.
    pub(super) async fn mark(&self, entry: &Entry) -> Result<bool, Fault> {
        let kind = match &entry.state.stage {
            Stage::Waiting { .. } => b"w",
            Stage::Begun => b"b",
            Stage::Done(_) => b"d",
            Stage::Dead { .. } => b"x",
        };
        let (id, keep) = (entry.id.to_string(), (entry.keep.as_micros() / 1_000).max(1).to_string());
        let texts = [id.as_bytes(), &self.name, &entry.encode(), kind, keep.as_bytes()];
        Ok(*self.ask(b'm', &texts).await? == *b"o")
    }

    /// Lets one that was put aside wait again. False if it was not.
    pub(super) async fn again(&self, entry: &Entry) -> Result<bool, Fault> {
        Ok(*self.ask(b'a', &[entry.id.to_string().as_bytes(), &entry.encode()]).await? == *b"o")
    }

    /// Forgets one. False if it is on its way.
    pub(super) async fn remove(&self, id: Id) -> Result<bool, Fault> {
        Ok(*self.ask(b'd', &[id.to_string().as_bytes()]).await? != *b"t")
    }

    pub(super) async fn request(&self, id: Id) -> Result<Option<Bytes>, Fault> {
        let reply = self.ask(b'r', &[id.to_string().as_bytes()]).await?;
        Ok((!reply.is_empty()).then_some(reply))
    }

    pub(super) async fn look(&self, id: Id) -> Result<Option<Entry>, Fault> {
        Ok(Entry::decode(&self.ask(b's', &[id.to_string().as_bytes()]).await?))
    }

    /// Asks for the turn. `last` is the place in the stream of the last one that was told.
    pub(super) async fn take_turn(&self, last: Option<&[u8]>) -> Result<Turn, Fault> {
        let after = last.map_or_else(|| b"-".to_vec(), |last| [b"(", last].concat());
        let reply = self.ask(b't', &[&self.name, &after, TURN]).await?;
        let texts = texts(&reply).ok_or_else(nonsense)?;
        let [whose, counts @ ..] = &*texts else { return Err(nonsense()) };
        let (tally, rows) = tally(counts).ok_or_else(nonsense)?;
        let row = |row: &[&[u8]]| match row {
            [place, entry] => Some((place.to_vec(), Entry::decode(entry).map(|entry| placed(entry, place)))),
            _ => None,
        };
        let whose = match *whose {
            [b'h', turn @ ..] => {
                let turn = number(turn).ok_or_else(nonsense)?;
                Whose::Ours(turn, rows.chunks_exact(2).filter_map(row).collect())
            }
            b"f" => Whose::Theirs(rows.iter().filter_map(|line| (*line).try_into().ok()).collect()),
            _ => return Err(nonsense()),
        };
        Ok(Turn { tally, whose })
    }

    /// Lets another gateway have the turn.
    pub(super) async fn end_turn(&self) {
        // If it is not heard of, the turn runs out.
        let _ = self.ask(b'u', &[&self.name]).await;
    }

    pub(super) async fn overview(&self, most: usize) -> Result<Overview, Fault> {
        let reply = self.ask(b'q', &[most.to_string().as_bytes()]).await?;
        let texts = texts(&reply).ok_or_else(nonsense)?;
        let counts = texts.get(1..).ok_or_else(nonsense)?;
        let (tally, entries) = tally(counts).ok_or_else(nonsense)?;
        Ok(Overview { tally, entries: entries.iter().filter_map(|entry| Entry::decode(entry)).collect() })
    }

    async fn ask(&self, what: u8, texts: &[&[u8]]) -> Result<Bytes, Fault> {
        let mut question = vec![what];
        for text in texts {
            question.extend_from_slice(&(text.len() as u32).to_be_bytes());
            question.extend_from_slice(text);
        }
        // Whatever is asked here may be asked twice.
        let request = Request::new(TAG, [&*self.key], &question, true);
        self.link.call(request).await.map_err(|unavailable| Fault(unavailable.to_string()))
    }
}

fn nonsense() -> Fault {
    Fault("Redis answered something else".to_owned())
}

/// How many there are of each kind, and what follows.
fn tally<'t, 'b>(texts: &'t [&'b [u8]]) -> Option<(Tally, &'t [&'b [u8]])> {
    let [waiting, dead, bytes, rest @ ..] = texts else { return None };
    let count = |text: &[u8]| number(text).and_then(|number| usize::try_from(number).ok());
    Some((Tally { waiting: count(waiting)?, dead: count(dead)?, bytes: number(bytes)?, ..Tally::default() }, rest))
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// An entry with the number that its place in the stream stands for: milliseconds, and a count within them.
fn placed(entry: Entry, place: &[u8]) -> Entry {
    let mut parts = place.split(|byte| *byte == b'-').map(|part| number(part).unwrap_or(0));
    let (millis, count) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    Entry { number: (millis << 20) | count.min((1 << 20) - 1), ..entry }
}

/// Texts behind their lengths.
fn texts(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut texts = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let (text, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        texts.push(text);
        bytes = rest;
    }
    bytes.is_empty().then_some(texts)
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use tollgate::Timestamp;
    use tollgate_sim::redis::RedisServer;

    use super::super::form::Answered;
    use super::super::form::tests::entry;
    use super::*;

    const BOUNDS: Bounds = Bounds { requests: 2, bytes: 1_000 };

    fn waiting(number: u64) -> Entry {
        entry(number, Stage::Waiting { not_before: Timestamp::EPOCH, why: "".into() })
    }

    fn done(number: u64) -> Entry {
        let (status, body) = (StatusCode::OK, Bytes::from_static(b"yes"));
        entry(number, Stage::Done(Answered { status, content_type: "".into(), body, is_whole: true }))
    }

    fn dead(number: u64) -> Entry {
        entry(number, Stage::Dead { why: "no".into() })
    }

    /// Those who wait, if the turn is given.
    async fn taken(shelf: &RedisShelf) -> Option<Vec<Entry>> {
        // The link may not be there yet.
        for _ in 0..1_000 {
            match shelf.take_turn(None).await {
                Ok(Turn { whose: Whose::Ours(_, rows), .. }) => {
                    return Some(rows.into_iter().filter_map(|(_, entry)| entry).collect());
                }
                Ok(_) => return None,
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
            }
        }
        panic!("Redis does not answer");
    }

    #[tokio::test]
    async fn whoever_lost_the_turn_begins_nothing_and_may_still_tell_an_answer() {
        let redis = RedisServer::start(&[]);
        let address: link::Address = format!("redis://{}", redis.address()).parse().unwrap();
        let (first, second) = (RedisShelf::open(&address).unwrap(), RedisShelf::open(&address).unwrap());
        assert_eq!(taken(&first).await, Some(vec![]));
        assert_eq!(taken(&second).await, None, "there is one turn");
        assert_eq!(second.put(&waiting(1), b"request", BOUNDS, 9).await.unwrap(), Ok(1));
        assert!(!second.mark(&entry(1, Stage::Begun)).await.unwrap(), "it is not its turn");
        assert!(first.mark(&entry(1, Stage::Begun)).await.unwrap());
        assert!(!second.remove(waiting(1).id).await.unwrap(), "it is on its way");
        // The first stands still for so long that the turn runs out.
        redis.cli(&["DEL", "tgl1:{000}:turn"]);
        let found = taken(&second).await.unwrap();
        assert_eq!(found.iter().map(|entry| &entry.state.stage).collect::<Vec<_>>(), [&Stage::Begun]);
        assert_eq!(taken(&first).await, None);
        for stage in [waiting(1), entry(1, Stage::Begun), dead(1)] {
            assert!(!first.mark(&stage).await.unwrap(), "{stage:?}");
        }
        assert!(second.mark(&dead(1)).await.unwrap());
        assert_eq!(second.look(waiting(1).id).await.unwrap(), Some(dead(1)));
        assert!(first.mark(&done(1)).await.unwrap(), "an answer is one, whoever heard it");
        assert!(!second.mark(&dead(1)).await.unwrap(), "and nothing is after it");
        let all = second.overview(10).await.unwrap();
        assert_eq!((all.tally, all.entries), (Tally::default(), vec![]));
        assert_eq!(second.look(waiting(1).id).await.unwrap(), Some(done(1)));
        assert_eq!(second.request(waiting(1).id).await.unwrap(), None);
    }

    /// One that another has begun is begun again only by whoever has looked at it.
    #[tokio::test]
    async fn whoever_has_the_turn_again_does_not_begin_what_another_has_begun() {
        let redis = RedisServer::start(&[]);
        let address: link::Address = format!("redis://{}", redis.address()).parse().unwrap();
        let (first, second) = (RedisShelf::open(&address).unwrap(), RedisShelf::open(&address).unwrap());
        let turn = async |shelf: &RedisShelf| match shelf.take_turn(None).await.unwrap().whose {
            Whose::Ours(turn, _) => turn,
            Whose::Theirs(_) => panic!("it is another's"),
        };
        taken(&first).await.unwrap();
        first.put(&waiting(1), b"request", BOUNDS, 9).await.unwrap().unwrap();
        let before = turn(&first).await;
        assert_eq!(turn(&first).await, before, "it goes on");
        // The first hears nothing of Redis for a while; the second begins, and is killed.
        redis.cli(&["DEL", "tgl1:{000}:turn"]);
        taken(&second).await.unwrap();
        for _ in 0..2 {
            assert!(second.mark(&entry(1, Stage::Begun)).await.unwrap(), "saying it twice is no harm");
        }
        redis.cli(&["DEL", "tgl1:{000}:turn"]);
        assert!(turn(&first).await > before, "it can be seen that the turn was another's meanwhile");
        assert!(!first.mark(&entry(1, Stage::Begun)).await.unwrap(), "it may have been sent already");
        assert!(first.mark(&waiting(1)).await.unwrap());
        assert!(first.mark(&entry(1, Stage::Begun)).await.unwrap());
    }

    #[tokio::test]
    async fn asking_twice_changes_nothing_and_there_is_so_much_room() {
        let redis = RedisServer::start(&[]);
        let shelf = RedisShelf::open(&format!("redis://{}", redis.address()).parse().unwrap()).unwrap();
        taken(&shelf).await.unwrap();
        for _ in 0..2 {
            assert!(shelf.put(&waiting(1), &[1; 400], BOUNDS, 1).await.unwrap().is_ok());
        }
        let same_line = Entry { line: waiting(1).line, ..waiting(2) };
        assert_eq!(shelf.put(&same_line, b"", BOUNDS, 1).await.unwrap(), Err(Full::Line));
        assert_eq!(shelf.put(&waiting(2), &[1; 601], BOUNDS, 1).await.unwrap(), Err(Full::Bytes));
        assert!(shelf.put(&waiting(2), &[1; 600], BOUNDS, 1).await.unwrap().is_ok());
        assert_eq!(shelf.put(&waiting(3), b"", BOUNDS, 1).await.unwrap(), Err(Full::Requests));
        for _ in 0..2 {
            assert!(shelf.mark(&dead(1)).await.unwrap());
        }
        let all = shelf.overview(10).await.unwrap();
        assert_eq!(all.tally, Tally { waiting: 1, dead: 1, bytes: 1_000, ..Tally::default() });
        for _ in 0..2 {
            assert!(shelf.again(&waiting(1)).await.unwrap());
        }
        let order: Vec<Id> = taken(&shelf).await.unwrap().iter().map(|entry| entry.id).collect();
        assert_eq!(order, [waiting(2).id, waiting(1).id], "it waits again, behind the others");
        for number in [1, 2, 2] {
            assert!(shelf.remove(waiting(number).id).await.unwrap());
        }
        assert_eq!(shelf.overview(10).await.unwrap().tally, Tally::default());
        assert_eq!(redis.cli(&["HLEN", "tgl1:{000}:lines"]).trim(), "0");
    }

    #[test]
    fn answers_are_read_whole_or_not_at_all() {
        assert_eq!(texts(b""), Some(vec![]));
        assert_eq!(texts(b"\0\0\0\x01a\0\0\0\0"), Some(vec![&b"a"[..], b""]));
        for wrong in [&b"\0\0\0"[..], b"\0\0\0\x02a", b"\0\0\0\x01ab"] {
            assert_eq!(texts(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn numbers_follow_the_stream() {
        let numbers = ["5-0", "5-1", "6-0", "1700000000000-3"]
            .map(|place| placed(entry(1, Stage::Begun), place.as_bytes()).number);
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    }
}
