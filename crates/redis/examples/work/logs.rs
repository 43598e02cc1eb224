//! Sliding logs by how many events are in the window, beside a sorted set as people keep it.
//!
//! Both are told the time, so that for each event that comes one leaves, and so many stay. What `TIME` costs is in
//! neither.

use tollgate::{Limit, Micros, SlidingLog, Timestamp};
use tollgate_redis::script;

use crate::cases::{Form, limit, request_at, user_name};
use crate::processor::measure;
use crate::report::{Bound, Goals, Table, median, ratio};
use crate::server::{Connection, Server, encode, evalsha};

const EVENTS: [u64; 4] = [10, 100, 1_000, 10_000];
/// How many logs there are of each size, and how often each is asked in a round.
const USERS: u64 = 32;
const PASSES: u64 = 10;
const ROUNDS: usize = 15;
/// Time from one event of a log to the next.
const APART: u64 = 10;
const BEGIN: Timestamp = Timestamp::from_secs(1_790_000_000);

const SORTED_SET: &str = "
local now, window, limit = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - window)
local count = redis.call('ZCARD', KEYS[1])
if count >= limit then return { 0, 0 } end
redis.call('ZADD', KEYS[1], ARGV[1], ARGV[1])
redis.call('PEXPIRE', KEYS[1], math.ceil(window / 1000) + 3600000)
return { 1, limit - count - 1 }";

/// All logs of one size, full.
struct Logs {
    events: u64,
    limit: Limit,
    /// The number of the first of its users.
    first: u64,
    /// How many events each has had.
    had: u64,
}

/// The processor time of each round.
#[derive(Default)]
struct Found {
    counted: [Vec<f64>; 2],
    denied: [Vec<f64>; 2],
    /// Of a question that finds all but a few gone, and is denied.
    at_once: Vec<f64>,
    sorted_set_counted: Vec<f64>,
    sorted_set_denied: Vec<f64>,
}

impl Logs {
    fn at(&self, number: u64) -> Timestamp {
        BEGIN.plus(Micros::from_micros(APART * number))
    }

    fn users(&self) -> std::ops::Range<u64> {
        self.first..self.first + USERS
    }

    /// One question about each, at the time of the event with this number.
    async fn calls(&self, sha: &[u8], per_call: usize, cost: u64, number: u64) -> Vec<Vec<u8>> {
        let mut requests = Vec::new();
        for user in self.users() {
            let limits = std::slice::from_ref(&self.limit);
            requests.push(request_at(limits, Form::One, &[user], cost, self.at(number)).await);
        }
        requests.chunks(per_call).map(|shared| evalsha(sha, shared)).collect()
    }

    fn sorted_set_key(user: u64) -> String {
        format!("sliding_log:{}", user_name(user))
    }

    fn sorted_set_calls(&self, sha: &[u8], number: u64) -> Vec<Vec<u8>> {
        let (now, window) = (self.at(number).as_micros().to_string(), (APART * self.events).to_string());
        let limit = self.events.to_string();
        let call = |user| {
            let key = Self::sorted_set_key(user);
            encode(&[b"EVALSHA", sha, b"1", key.as_bytes(), now.as_bytes(), window.as_bytes(), limit.as_bytes()])
        };
        self.users().map(call).collect()
    }

    async fn fill(&self, connection: &mut Connection, ours: &[u8], sorted_set: &[u8]) {
        for number in 0..self.events {
            let calls = self.calls(ours, USERS as usize, 1, number).await;
            measure(connection, &calls, 1);
            measure(connection, &self.sorted_set_calls(sorted_set, number), 1);
        }
    }

    /// Asks each some times: full, or one place being free each time.
    async fn round(&mut self, connection: &mut Connection, ours: &[u8], sorted_set: &[u8], found: &mut Found) {
        let decisions = (USERS * PASSES) as usize;
        let late = self.had + self.events - 5;
        let at_once = vec![self.calls(ours, 1, self.events, late).await; PASSES as usize].concat();
        found.at_once.push(measure(connection, &at_once, decisions));
        for (kind, per_call) in [1, 32].into_iter().enumerate() {
            let denied = vec![self.calls(ours, per_call, 1, self.had - 1).await; PASSES as usize].concat();
            found.denied[kind].push(measure(connection, &denied, decisions));
            let mut counted = Vec::new();
            for number in self.had..self.had + PASSES {
                counted.extend(self.calls(ours, per_call, 1, number).await);
            }
            found.counted[kind].push(measure(connection, &counted, decisions));
            self.had += PASSES;
        }
        let had = self.had - 2 * PASSES;
        let denied = vec![self.sorted_set_calls(sorted_set, had - 1); PASSES as usize].concat();
        found.sorted_set_denied.push(measure(connection, &denied, decisions));
        // As many as on the other side.
        let counted = |from: u64| (from..from + PASSES).flat_map(|number| self.sorted_set_calls(sorted_set, number));
        let counted: Vec<_> = counted(had).chain(counted(had + PASSES)).collect();
        found.sorted_set_counted.push(measure(connection, &counted, 2 * decisions));
    }

    /// Bytes of an event in what is stored under these keys.
    fn bytes(&self, connection: &mut Connection, pattern: impl Fn(u64) -> String) -> f64 {
        let mut bytes = 0;
        for user in self.users() {
            for key in connection.command(&[b"KEYS", pattern(user).as_bytes()]).unwrap().list() {
                bytes += connection.command(&[b"MEMORY", b"USAGE", &key.bytes(), b"SAMPLES", b"0"]).unwrap().number();
            }
        }
        bytes as f64 / (USERS * self.events) as f64
    }
}

pub(crate) async fn run(goals: &mut Goals) {
    let server = Server::start();
    let mut connection = server.connect(0);
    let (ours, sorted_set) = (connection.load(script::given_time_source()), connection.load(SORTED_SET));
    let mut all = Vec::new();
    for (number, events) in (0..).zip(EVENTS) {
        let limit = limit(SlidingLog::new(events, Micros::from_micros(APART * events)));
        let logs = Logs { events, limit, first: number * USERS, had: events };
        logs.fill(&mut connection, &ours, &sorted_set).await;
        all.push((logs, Found::default()));
    }
    // All sizes by turns, since a machine that others use is slow and quick by turns.
    for _ in 0..ROUNDS {
        for (logs, found) in &mut all {
            logs.round(&mut connection, &ours, &sorted_set, found).await;
        }
    }
    println!(
        "Sliding log by events in the window: processor time per decision, and bytes per event; median of {ROUNDS}."
    );
    println!("All gone: all but four have left at once, and what is asked is the whole limit\n");
    let head =
        ["events", "counted", "32 a call", "denied", "32 a call", "all gone", "bytes", "sorted set", "denied", "bytes"];
    let mut table = Table::new(&head);
    for (logs, found) in &all {
        let micros = |found: &[f64]| format!("{:.1} us", median(found));
        table.row(vec![
            logs.events.to_string(),
            micros(&found.counted[0]),
            micros(&found.counted[1]),
            micros(&found.denied[0]),
            micros(&found.denied[1]),
            micros(&found.at_once),
            format!("{:.1}", logs.bytes(&mut connection, |user| format!("tg1:*{}", user_name(user)))),
            micros(&found.sorted_set_counted),
            micros(&found.sorted_set_denied),
            format!("{:.1}", logs.bytes(&mut connection, Logs::sorted_set_key)),
        ]);
    }
    table.print();
    if let (Some((_, few)), Some((_, many))) = (all.first(), all.last()) {
        for (kind, per_call) in [1, 32].into_iter().enumerate() {
            let what = |which| format!("logs: 10,000 events beside 10, {which}, {per_call} a call");
            goals.add(what("counted"), Bound::AtMost(3.0), ratio(&many.counted[kind], &few.counted[kind]));
            goals.add(what("denied"), Bound::AtMost(3.0), ratio(&many.denied[kind], &few.denied[kind]));
        }
    }
}
