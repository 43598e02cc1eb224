//! Long sliding logs, whose marks are in two places: the same answers as in memory whatever is asked, at a cost that
//! does not grow with them, and nothing left of them when their time is over.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "server/mod.rs"]
mod server;

use server::{Answer, Connection, Server};
use tollgate::{
    Charge, Clock, FixedWindow, Intent, Key, Limit, MemoryStore, Micros, ReservationId, Settlement, SlidingLog, Soft,
    Store, SystemClock, Timestamp,
};
use tollgate_core::mix;
use tollgate_redis::{RedisStore, inspect, script};

const USER: &[&[u8]] = &[b"user"];
const WINDOW: Micros = Micros::SECOND;

fn log(limit: u64, window: Micros) -> Limit {
    Limit::new(SlidingLog::new(limit, window)).unwrap()
}

fn now() -> Timestamp {
    SystemClock::new().now()
}

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 += 1;
        mix(self.0) % bound.max(1)
    }

    fn micros(&mut self, bound: Micros) -> Micros {
        Micros::from_micros(self.below(bound.as_micros()))
    }
}

/// One history on two stores.
struct Duel<'s, S> {
    memory: &'s MemoryStore,
    redis: &'s S,
    dice: Dice,
    now: Timestamp,
    key: u64,
    log: Limit,
    /// Asked together with the log: often full.
    window: Limit,
    charges: Vec<(u64, Timestamp)>,
    reservations: Vec<(ReservationId, ReservationId)>,
}

impl<S: Store> Duel<'_, S> {
    fn cost(&mut self) -> u64 {
        let most = self.log.most();
        match self.dice.below(1_000) {
            0..=20 => 0,
            21..=60 => 1 + self.dice.below(5),
            61..=65 => self.dice.below(most / 3),
            66..=70 => self.dice.below(most + 2),
            _ => 1,
        }
    }

    fn charges<'c>(&self, log: &'c Limit, window: &'c Limit, cost: u64, together: bool) -> Vec<Charge<'c>> {
        let mut charges = vec![Charge::new(Key::new(self.key, USER), log).cost(cost)];
        if together {
            charges.push(Charge::new(Key::new(self.key + 1, USER), window));
        }
        charges
    }

    async fn apply(&mut self, intent: Intent, cost: u64, together: bool) {
        let (log, window) = (self.log.clone(), self.window.clone());
        let charges = self.charges(&log, &window, cost, together);
        let expected = self.memory.apply_all(&charges, intent, self.now);
        let answered = self.redis.apply(&charges, intent, self.now).await.unwrap();
        assert_eq!(answered, expected, "{intent:?} of {cost} at {:?}, {:?}", self.now, self.log.algorithm());
        let outcome = answered[0];
        let counts = matches!(intent, Intent::Spend | Intent::Force) && answered.iter().all(|one| one.allowed);
        if counts {
            self.charges.push((cost, outcome.proceeds_at()));
        }
    }

    /// The same charge many times in one request.
    async fn apply_each(&mut self) {
        let log = self.log.clone();
        let count = 1 + self.dice.below(20);
        let charges: Vec<_> =
            (0..count).map(|_| Charge::new(Key::new(self.key, USER), &log).cost(self.cost())).collect();
        let intent = if self.dice.below(4) == 0 { Intent::Force } else { Intent::Spend };
        let expected: Vec<_> = charges.iter().map(|charge| self.memory.apply_one(charge, intent, self.now)).collect();
        assert_eq!(self.redis.apply_each(&charges, intent, self.now).await.unwrap(), expected);
    }

    async fn reserve(&mut self) {
        let (log, window) = (self.log.clone(), self.window.clone());
        let together = self.dice.below(3) == 0;
        let cost = self.cost();
        let charges = self.charges(&log, &window, cost, together);
        let hold = self.dice.micros(Micros::from_millis(300));
        let (expected, here) = self.memory.reserve_all(&charges, hold, self.now);
        let (answered, there) = self.redis.reserve(&charges, hold, self.now).await.unwrap();
        assert_eq!(answered, expected, "a reservation of {cost} at {:?}, {:?}", self.now, self.log.algorithm());
        assert_eq!(here.is_some(), there.is_some());
        self.reservations.extend(here.zip(there));
    }

    async fn settle(&mut self) {
        if self.reservations.is_empty() {
            return;
        }
        let chosen = self.dice.below(self.reservations.len() as u64);
        let (here, there) = self.reservations.swap_remove(usize::try_from(chosen).unwrap());
        let actual = [self.dice.below(8), 1];
        let settlement = match self.dice.below(3) {
            0 => Settlement::Commit,
            1 => Settlement::Cancel,
            _ => Settlement::CommitActual(&actual),
        };
        let expected = self.memory.settle_now(here, settlement, self.now);
        assert_eq!(self.redis.settle(there, settlement, self.now).await.unwrap(), expected, "{settlement:?}");
    }

    async fn refund(&mut self) {
        if self.charges.is_empty() {
            return;
        }
        let all = self.charges.len() as u64;
        // The newest, or any.
        let back = if self.dice.below(2) == 0 { self.dice.below(all.min(12)) } else { self.dice.below(all) };
        let (cost, charged_at) = self.charges[usize::try_from(all - 1 - back).unwrap()];
        let cost = if self.dice.below(3) == 0 { self.dice.below(cost + 2) } else { cost };
        self.apply(Intent::Refund { charged_at }, cost, false).await;
    }

    async fn step(&mut self) {
        let gap = WINDOW.as_micros() / self.log.most().max(1);
        let passes = match self.dice.below(2_000) {
            0 => self.dice.micros(WINDOW).as_micros() * 2,
            1..=4 => WINDOW.as_micros() / 2 + self.dice.below(WINDOW.as_micros() / 2),
            5..=300 => 0,
            _ => self.dice.below(gap),
        };
        self.now = self.now.plus(Micros::from_micros(passes));
        match self.dice.below(80) {
            0..=20 | 40.. => {
                let cost = self.cost();
                self.apply(Intent::Spend, cost, false).await;
            }
            21..=23 => {
                let cost = self.cost();
                self.apply(Intent::Spend, cost, true).await;
            }
            24 => self.apply_each().await,
            25 | 26 => {
                let cost = self.cost();
                self.apply(Intent::Force, cost, false).await;
            }
            27 if self.dice.below(60) == 0 => {
                self.apply(Intent::Force, (1 << 53) - 1 - self.dice.0 % 3, false).await;
            }
            27..=29 => {
                let cost = self.cost();
                self.apply(Intent::Peek, cost, false).await;
            }
            30..=32 => self.reserve().await,
            33..=35 => self.settle().await,
            _ => self.refund().await,
        }
    }
}

#[tokio::test]
async fn whatever_is_asked_of_a_long_log_redis_answers_as_memory_does() {
    let server = Server::start();
    let redis = server.store(script::given_time_source(), 0, 1);
    let mut blocks = 0;
    for round in 0..12_u64 {
        let units = [150, 300, 700, 2_500][round as usize % 4];
        let spec = SlidingLog::new(units, WINDOW);
        let spec = if round % 3 == 1 { spec.record_rejected() } else { spec };
        let soft = Soft { overage: units / 5, lasting: Micros::from_millis(400) };
        let log = if round % 3 == 2 { Limit::soft(spec, soft) } else { Limit::new(spec) }.unwrap();
        let memory = MemoryStore::new();
        let mut duel = Duel {
            memory: &memory,
            redis: &redis,
            dice: Dice(round << 32),
            now: Timestamp::from_secs(1_790_000_000),
            key: 2 * round,
            log,
            window: Limit::new(FixedWindow::new(units / 3, Micros::from_millis(700))).unwrap(),
            charges: Vec::new(),
            reservations: Vec::new(),
        };
        let mut connection = server.connect(0);
        for step in 0..3_000 {
            duel.step().await;
            if step % 20 == 0 {
                for middle in middles(&mut connection) {
                    blocks += connection.command(&[b"LLEN", &middle]).unwrap().number();
                }
            }
        }
        connection.command(&[b"FLUSHALL"]).unwrap();
    }
    // Of those that were met at every twentieth step.
    assert!(blocks > 1_000, "{blocks}");
    assert_eq!(redis.foreign_values(), 0);
}

/// The names of Lists.
fn middles(connection: &mut Connection) -> Vec<Vec<u8>> {
    let all = connection.command(&[b"KEYS", b"tg1:{???}+*"]).unwrap().list();
    all.into_iter().map(Answer::bytes).collect()
}

fn counters(connection: &mut Connection) -> Vec<Vec<u8>> {
    let all = connection.command(&[b"KEYS", b"tg1:{???}:*"]).unwrap().list();
    all.into_iter().map(Answer::bytes).collect()
}

/// `count` spends of one, each in a microsecond of its own where time is given.
async fn fill<L: tollgate_redis::Link>(store: &RedisStore<L>, limit: &Limit, key: u64, count: u64, from: Timestamp) {
    for number in 0..count {
        let charge = Charge::new(Key::new(key, USER), limit);
        let at = from.plus(Micros::from_micros(number));
        assert!(store.apply(&[charge], Intent::Spend, at).await.unwrap()[0].allowed);
    }
}

#[tokio::test]
async fn both_keys_of_a_long_log_end_with_its_state() {
    let server = Server::start();
    let store = server.store(script::source(), 0, 1);
    let mut connection = server.connect(0);
    let limit = log(1_000, Micros::from_millis(1_500));
    let charge = Charge::new(Key::new(1, USER), &limit);
    let mut seen = 0;
    for _ in 0..600 {
        let outcome = store.apply(&[charge], Intent::Spend, now()).await.unwrap()[0];
        let ends = i64::try_from(outcome.at.plus(outcome.reset_after).as_micros() / 1_000).unwrap() + 1;
        for name in counters(&mut connection).into_iter().chain(middles(&mut connection)) {
            let expires = connection.command(&[b"PEXPIRETIME", &name]).unwrap().number();
            // On a machine that is busy with others its time may be over by now.
            assert!(expires == ends || expires == -2, "{name:?} ends at {expires}, its state at {ends}");
            seen += i32::from(expires == ends);
        }
    }
    assert!(seen > 800, "{seen}");
    // Reserved until long after the window.
    let (_, id) = store.reserve(&[charge], Micros::from_secs(5), now()).await.unwrap();
    let ends = |connection: &mut Connection, name: &[u8]| connection.command(&[b"PEXPIRETIME", name]).unwrap().number();
    if let ([counter], [middle]) = (&counters(&mut connection)[..1], &middles(&mut connection)[..]) {
        assert_eq!(ends(&mut connection, counter), ends(&mut connection, middle));
    }
    store.settle(id.unwrap(), Settlement::Cancel, now()).await.unwrap();
    tokio::time::sleep(Micros::from_millis(1_600).into()).await;
    assert!(counters(&mut connection).is_empty() && middles(&mut connection).is_empty());
}

#[tokio::test]
async fn a_log_that_is_denied_with_others_or_only_looked_at_stays_as_it_is() {
    let server = Server::start();
    let store = server.store(script::given_time_source(), 0, 1);
    let mut connection = server.connect(0);
    let (limit, one) = (log(1_000, Micros::MINUTE), Limit::new(FixedWindow::new(1, Micros::HOUR)).unwrap());
    let at = Timestamp::from_secs(1_790_000_000);
    fill(&store, &limit, 1, 500, at).await;
    let [middle] = &middles(&mut connection)[..] else { panic!("it has blocks") };
    let mut stored = |key: &[u8]| connection.command(&[b"DUMP", key]).unwrap();
    let before = stored(middle);
    // So late that most of its blocks have left the window.
    let late = at.plus(Micros::MINUTE).plus(Micros::from_micros(400));
    let charges = [Charge::new(Key::new(1, USER), &limit), Charge::new(Key::new(2, USER), &one)];
    store.apply(&charges[1..], Intent::Spend, late).await.unwrap();
    for intent in [Intent::Spend, Intent::Peek, Intent::Spend] {
        let outcomes = store.apply(&charges, intent, late).await.unwrap();
        assert_eq!((outcomes[0].allowed, outcomes[0].remaining, outcomes[1].allowed), (true, 901, false));
        assert_eq!(stored(middle), before);
    }
    store.apply(&charges[..1], Intent::Spend, late).await.unwrap();
    assert_ne!(stored(middle), before);
}

#[tokio::test]
async fn a_log_whose_blocks_are_gone_counts_as_nothing_and_is_reported() {
    let server = Server::start();
    let store = server.store(script::given_time_source(), 0, 1);
    let mut connection = server.connect(0);
    let (limit, small) = (log(1_000, Micros::MINUTE), log(5, Micros::MINUTE));
    let at = Timestamp::from_secs(1_790_000_000);
    let late = at.plus(Micros::MINUTE).plus(Micros::from_micros(200));
    let foreign = [&b"RPUSH"[..], b"MIDDLE", b"x"];
    let harm: [&[&[&[u8]]]; 6] = [
        &[&[b"DEL", b"MIDDLE"]],
        &[&[b"LPOP", b"MIDDLE"]],
        &[&[b"DEL", b"MIDDLE"], &[b"SET", b"MIDDLE", b"x"]],
        &[&[b"DEL", b"MIDDLE"], &foreign, &foreign, &foreign, &foreign, &foreign, &foreign],
        &[&[b"LSET", b"MIDDLE", b"6", b""]],
        &[&[b"LSET", b"MIDDLE", b"6", &[0; 16]]],
    ];
    for (number, commands) in (0..).zip(harm) {
        connection.command(&[b"FLUSHALL"]).unwrap();
        fill(&store, &limit, number, 500, at).await;
        let middle = middles(&mut connection).pop().unwrap();
        for command in commands {
            let parts: Vec<&[u8]> =
                command.iter().map(|part| if *part == b"MIDDLE" { &middle } else { *part }).collect();
            connection.command(&parts).unwrap();
        }
        let before = store.foreign_values();
        let charge = Charge::new(Key::new(number, USER), &limit);
        let other = Charge::new(Key::new(99, USER), &small).cost(2);
        // It is noticed as soon as a block is needed; who is asked in the same call notices nothing.
        let outcomes = store.apply_each(&[other, charge, other], Intent::Spend, late).await.unwrap();
        assert_eq!((outcomes[0].remaining, outcomes[1].remaining, outcomes[2].remaining), (3, 999, 1), "{commands:?}");
        assert_eq!(store.foreign_values(), before + 1, "{commands:?}");
        let after = late.plus(Micros::MINUTE.minus(Micros::from_micros(1)));
        assert_eq!(store.apply(&[charge], Intent::Spend, after).await.unwrap()[0].remaining, 998);
        // And begins anew, with blocks, whatever is at their place.
        fill(&store, &limit, number, 500, after).await;
        assert_eq!(store.apply(&[charge], Intent::Peek, after).await.unwrap()[0].remaining, 499);
        assert_eq!(store.foreign_values(), before + 1);
    }
}

/// Processor seconds of the server.
fn used(connection: &mut Connection) -> f64 {
    let info = String::from_utf8(connection.command(&[b"INFO", b"cpu"]).unwrap().bytes()).unwrap();
    let number = |name: &str| -> f64 {
        info.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim_start_matches(':').parse().unwrap()
    };
    number("used_cpu_user_main_thread") + number("used_cpu_sys_main_thread")
}

/// What a thousand decisions cost: the least of some rounds, since whoever shares the machine makes them dearer only.
async fn cost_of(server: &Server, database: usize, limit: &Limit, from: Timestamp, admitted: bool) -> f64 {
    let store = server.store(script::given_time_source(), database, 1);
    let mut connection = server.connect(database);
    let mut at = from;
    let mut least = f64::MAX;
    for _ in 0..10 {
        let before = used(&mut connection);
        for _ in 0..200 {
            // One leaves the window for each that comes.
            at = at.plus(if admitted { Micros::from_micros(10) } else { Micros::ZERO });
            let charge = Charge::new(Key::new(1, USER), limit);
            assert_eq!(store.apply(&[charge], Intent::Spend, at).await.unwrap()[0].allowed, admitted);
        }
        least = least.min(used(&mut connection) - before);
    }
    least
}

#[tokio::test]
async fn a_decision_on_a_log_of_10_000_costs_no_more_than_three_on_one_of_10() {
    let server = Server::start();
    let begin = Timestamp::from_secs(1_790_000_000);
    let mut found = Vec::new();
    for (database, events) in [(1, 10), (2, 10_000)] {
        let limit = log(events, Micros::from_micros(10 * events));
        let store = server.store(script::given_time_source(), database, 1);
        for number in (0..events).step_by(1_000) {
            // Each in its own microsecond, many of them on their way at once.
            let asked = (number..events.min(number + 1_000)).map(|number| {
                let at = begin.plus(Micros::from_micros(10 * number));
                let (store, limit) = (&store, &limit);
                async move {
                    let charge = Charge::new(Key::new(1, USER), limit);
                    assert!(store.apply(&[charge], Intent::Spend, at).await.unwrap()[0].allowed);
                }
            });
            tollgate::join_all(asked).await;
        }
        let full = begin.plus(Micros::from_micros(10 * (events - 1)));
        let denied = cost_of(&server, database, &limit, full, false).await;
        found.push((cost_of(&server, database, &limit, full, true).await, denied));
    }
    let [(few, few_denied), (many, many_denied)] = found[..] else { panic!("{found:?}") };
    assert!(many < 3.0 * few && many_denied < 3.0 * few_denied, "seconds of 200 decisions: {found:?}");
}

#[tokio::test]
async fn memory_for_an_event_is_little_and_is_given_back() {
    let server = Server::start();
    let store = server.store(script::given_time_source(), 0, 1);
    let mut connection = server.connect(0);
    let limit = log(20_000, Micros::MINUTE);
    let at = Timestamp::from_secs(1_790_000_000);
    let charge = Charge::new(Key::new(1, USER), &limit);
    for number in 0..10_000 {
        store.apply(&[charge], Intent::Spend, at.plus(Micros::from_micros(number))).await.unwrap();
    }
    let mut bytes = |name: &[u8]| connection.command(&[b"MEMORY", b"USAGE", name, b"SAMPLES", b"0"]).unwrap().number();
    let (counter, middle) = {
        let mut connection = server.connect(0);
        (counters(&mut connection).pop().unwrap(), middles(&mut connection).pop().unwrap())
    };
    let used = bytes(&counter) + bytes(&middle);
    assert!(used < 18 * 10_000, "{used} bytes for 10,000 events");
    // All but a few have left the window, at once.
    let late = at.plus(Micros::MINUTE).plus(Micros::from_micros(9_950));
    let outcome = store.apply(&[charge], Intent::Spend, late).await.unwrap()[0];
    assert_eq!(outcome.remaining, 20_000 - 50);
    assert!(bytes(&counter) < 2_000);
    assert!(middles(&mut server.connect(0)).is_empty());
}

#[tokio::test]
async fn a_long_log_is_told_in_words() {
    let server = Server::start();
    let store = server.store(script::given_time_source(), 0, 1);
    let mut connection = server.connect(0);
    fill(&store, &log(1_000, Micros::MINUTE), 1, 500, Timestamp::from_secs(1_790_000_000)).await;
    let key = counters(&mut connection).pop().unwrap();
    let value = connection.command(&[b"GET", &key]).unwrap().bytes();
    let text = inspect(&key, Some(&value));
    assert!(text.contains("500 counted, all forgotten at "), "{text}");
    assert!(text.contains("marks between these, kept beside them"), "{text}");
    let middle = middles(&mut connection).pop().unwrap();
    let held = format!("and {} marks between", (connection.command(&[b"LLEN", &middle]).unwrap().number() - 1) * 31);
    assert!(text.contains(&held), "{held}: {text}");
}

#[tokio::test]
async fn a_counter_that_cannot_be_read_takes_no_other_of_its_request_with_it() {
    let server = Server::start();
    let store = server.store(script::given_time_source(), 0, 1);
    let mut connection = server.connect(0);
    let limit = log(1_000, Micros::MINUTE);
    let everyone = Limit::new(FixedWindow::new(1_000, Micros::DAY)).unwrap();
    let at = Timestamp::from_secs(1_790_000_000);
    let late = at.plus(Micros::MINUTE).plus(Micros::from_micros(200));
    for number in 0..2 {
        connection.command(&[b"FLUSHALL"]).unwrap();
        let everyone = Charge::new(Key::new(77, USER), &everyone);
        store.apply(&[everyone.cost(250)], Intent::Spend, at).await.unwrap();
        fill(&store, &limit, number, 500, at).await;
        let middle = middles(&mut connection).pop().unwrap();
        connection.command(&[b"DEL", &middle]).unwrap();
        let (charge, before) = (Charge::new(Key::new(number, USER), &limit), store.foreign_values());
        let both = if number == 0 { [everyone, charge] } else { [charge, everyone] };
        let outcomes = if number == 0 {
            store.apply(&both, Intent::Spend, late).await.unwrap()
        } else {
            store.reserve(&both, Micros::from_secs(5), late).await.unwrap().0
        };
        let remaining = |at: usize| outcomes[at].remaining;
        // The log begins anew; what all others have used stays used, and is charged once.
        assert_eq!((remaining(number as usize), remaining(1 - number as usize)), (749, 999));
        assert_eq!(store.foreign_values(), before + 1);
        assert_eq!(store.apply(&[everyone], Intent::Peek, late).await.unwrap()[0].remaining, 749);
    }
}
