//! The store on a real redis-server that decides at its own time: expiry, foreign values, crowds, and charges that live
//! apart.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "server/mod.rs"]
mod server;

use std::collections::HashMap;
use std::sync::Arc;

use server::{Answer, Broken, Connection, PlainLink, Server};
use tollgate::{
    Algorithm, Charge, Clock, FixedWindow, Intent, Key, LeakyBucket, Limit, Micros, Rate, Settled, Settlement,
    SlidingCounter, Store, SystemClock, Timestamp, TokenBucket,
};
use tollgate_core::mix;
use tollgate_redis::{Link, RedisStore, Request, Tag, inspect, script};
use tollgate_sim::chaos::ClockShim;
use tollgate_sim::conformance::{Model, one_of_each};
use tollgate_sim::laws::clocks::longest_wait;

const USER: &[&[u8]] = &[b"user"];

fn limit(algorithm: impl Into<Algorithm>) -> Limit {
    Limit::new(algorithm).unwrap()
}

fn now() -> Timestamp {
    SystemClock::new().now()
}

fn keys(connection: &mut Connection) -> Vec<Vec<u8>> {
    connection.command(&[b"KEYS", b"*"]).unwrap().list().into_iter().map(Answer::bytes).collect()
}

tollgate_sim::conformance_tests! {
    #[tokio::test(flavor = "multi_thread")] own_time: OnRedis(Server::start())
}

/// A server, and stores on it that decide at its time.
struct OnRedis(Server);

impl tollgate_sim::conformance::Maker for OnRedis {
    type Store = RedisStore<PlainLink>;

    async fn make(&self) -> Self::Store {
        self.0.store(script::source(), self.0.empty_database(), 4)
    }
}

#[tokio::test]
async fn every_key_has_a_time_to_live_that_is_that_of_its_state() {
    let server = Server::start();
    let store = server.store(script::source(), 0, 1);
    let mut connection = server.connect(0);
    for (number, limit) in (0..).zip(one_of_each().unwrap()) {
        let charge = Charge::new(Key::new(number, USER), &limit).lease(3);
        let outcome = store.apply(&[charge], Intent::Spend, now()).await.unwrap()[0];
        store.apply(&[charge], Intent::Spend, now()).await.unwrap();
        let (_, id) = store.reserve(&[charge], Micros::from_millis(5), now()).await.unwrap();
        assert!(id.is_some() || outcome.remaining < 2, "{:?}", limit.algorithm());
        for key in keys(&mut connection) {
            let value = connection.command(&[b"GET", &key]).unwrap();
            let text = inspect(&key, if value == Answer::Nothing { None } else { Some(value.bytes()) }.as_deref());
            assert!(text.lines().count() > 1 && !text.contains(" not ") && !text.contains("unknown"), "{text}");
            let left = connection.command(&[b"PTTL", &key]).unwrap().number();
            assert!(left != -1, "{key:?} stays for ever: {:?}", limit.algorithm());
            // A part-filled bucket is remembered for one more refill; these limits last no longer than a day.
            assert!(left <= 86_400_000 + 1, "{key:?} stays for {left} ms");
        }
    }
    // A window of an hour ends when it ends.
    let window = limit(FixedWindow::new(5, Micros::HOUR));
    let charge = Charge::new(Key::new(999, USER), &window);
    let before = keys(&mut connection);
    let outcome = store.apply(&[charge], Intent::Spend, now()).await.unwrap()[0];
    let after = keys(&mut connection);
    let key = after.iter().find(|key| !before.contains(key)).unwrap();
    let ends = outcome.at.plus(outcome.reset_after).as_micros() / 1_000;
    let expires = connection.command(&[b"PEXPIRETIME", key]).unwrap().number();
    assert_eq!(
        u64::try_from(expires).unwrap(),
        ends + 1,
        "the first millisecond in which it certainly does not matter"
    );
}

/// What is written most often is written without its time to live, if that stays as it is.
#[tokio::test]
async fn a_key_in_use_lives_as_long_as_its_state_and_no_longer() {
    let server = Server::start();
    let store = server.store(script::source(), 0, 1);
    let mut connection = server.connect(0);
    let limits = [
        limit(TokenBucket::new(Rate::per_second(1_000))),
        limit(TokenBucket::new(Rate::new(7, Micros::from_millis(30))).burst(1_000)),
        limit(LeakyBucket::queue(Rate::per_second(1_000), 1_000)),
        limit(FixedWindow::new(1_000, Micros::from_millis(300))),
        limit(SlidingCounter::new(1_000, Micros::from_millis(300))),
    ];
    for (number, limit) in (0..).zip(&limits) {
        connection.command(&[b"FLUSHALL"]).unwrap();
        let charge = Charge::new(Key::new(number, USER), limit);
        let mut stayed = 0;
        let mut before = 0;
        for _ in 0..300 {
            let outcome = store.apply(&[charge], Intent::Spend, now()).await.unwrap()[0];
            // On a machine that is busy with others its time may be over by now.
            let Some(key) = keys(&mut connection).pop() else { continue };
            let expires = connection.command(&[b"PEXPIRETIME", &key]).unwrap().number();
            if expires == -2 {
                continue;
            }
            let matters = i64::try_from(outcome.at.plus(outcome.reset_after).as_micros() / 1_000).unwrap();
            let longer = expires - matters;
            assert_eq!(longer, 1, "the first millisecond in which it does not matter: {:?}", limit.algorithm());
            stayed += i32::from(expires == before);
            before = expires;
        }
        // A window's end stays while it lasts; a bucket is full later with each spend.
        let is_window = matches!(limit.algorithm(), Algorithm::FixedWindow(_) | Algorithm::SlidingCounter(_));
        assert_eq!(stayed > 100, is_window, "of 300, {stayed} stayed: {:?}", limit.algorithm());
    }
}

#[tokio::test]
async fn nothing_is_left_when_all_has_expired() {
    let server = Server::start();
    let store = server.store(script::source(), 0, 1);
    let mut connection = server.connect(0);
    // Longer than these limits last, but for the one by the calendar.
    let wait = Micros::from_millis(900);
    for (number, limit) in (0..).zip(one_of_each().unwrap()) {
        let day = format!("{:?}", limit.algorithm()).contains("Calendar");
        let charge = Charge::new(Key::new(number, USER), &limit).lease(3);
        if !day {
            store.apply(&[charge], Intent::Spend, now()).await.unwrap();
            store.reserve(&[charge], Micros::from_millis(50), now()).await.unwrap();
        }
    }
    assert!(!keys(&mut connection).is_empty());
    tokio::time::sleep(wait.into()).await;
    assert_eq!(keys(&mut connection), Vec::<Vec<u8>>::new());
}

/// Keys come and go by Redis's own clock, and what is reserved lapses; each answer is that of a model that forgets
/// nothing, at the instant that Redis says it was made at.
#[tokio::test]
async fn what_redis_forgets_between_two_questions_changes_no_answer() {
    const STEPS: u64 = 20_000;
    let server = Server::start();
    let store = server.store(script::source(), 0, 1);
    let limits = one_of_each().unwrap();
    // One for each counter: what lapses is given back when its counter is met next.
    let mut models: HashMap<(u64, &str), Model> = HashMap::new();
    let users: Vec<String> = (0..20).map(|user| user.to_string()).collect();
    let mut held = 0;
    for step in 0..STEPS {
        let random = |what: u64, bound: u64| mix(step * 8 + what) % bound;
        let number = random(0, limits.len() as u64);
        let limit = &limits[number as usize];
        let user = &*users[random(1, users.len() as u64) as usize];
        let model = models.entry((number, user)).or_default();
        let by: &[&[u8]] = &[user.as_bytes()];
        let charge = Charge::new(Key::new(number, by), limit).cost(random(2, 3)).lease(1 + random(3, 4));
        let told = |what: &str| format!("step {step}, {what} of {} by {user:?} under {:?}", charge.cost, limit);
        let intent = match random(4, 16) {
            0 => Intent::Peek,
            1 => Intent::Force,
            2 | 3 => {
                let hold = Micros::from_millis(5 + random(5, 40));
                let (found, id) = store.reserve(&[charge], hold, now()).await.unwrap();
                let (expected, same) = model.reserve_all(&[charge], hold, found[0].at);
                assert_eq!((found, id.is_some()), (expected, same.is_some()), "{}", told("a reservation"));
                held += u64::from(id.is_some());
                continue;
            }
            _ => Intent::Spend,
        };
        let found = store.apply(&[charge], intent, now()).await.unwrap();
        assert_eq!(found, model.apply_all(&[charge], intent, found[0].at), "{}", told(&format!("{intent:?}")));
        if found[0].allowed && random(6, 10) == 0 {
            let intent = Intent::Refund { charged_at: found[0].proceeds_at() };
            let back = store.apply(&[charge], intent, now()).await.unwrap();
            assert_eq!(back, model.apply_all(&[charge], intent, back[0].at), "{}", told("a refund"));
        }
    }
    let stats = server.connect(0).command(&[b"INFO", b"stats"]).unwrap().bytes();
    let stats = String::from_utf8(stats).unwrap();
    let expired = stats.lines().find_map(|line| line.strip_prefix("expired_keys:")).unwrap();
    let expired: u64 = expired.trim().parse().unwrap();
    assert!(expired > 1_000 && held > 500, "{expired} keys expired, {held} were reserved");
    assert_eq!(store.foreign_values(), 0);
}

#[tokio::test]
async fn foreign_values_count_as_nothing_and_are_reported() {
    let server = Server::start();
    let store = server.store(script::source(), 0, 1);
    let mut connection = server.connect(0);
    let garbage: Vec<Vec<Vec<u8>>> = [
        &[&b"SET"[..], b"KEY", b"hello"][..],
        &[b"SET", b"KEY", b""],
        &[b"SET", b"KEY", b"12345678"],
        &[b"SET", b"KEY", &[0xff; 16]],
        &[b"SET", b"KEY", &[2; 17]],
        &[b"SET", b"KEY", &[3; 100]],
        &[b"SET", b"KEY", &f64::NAN.to_le_bytes()],
        &[b"SET", b"KEY", &(-5.0_f64).to_le_bytes()],
        &[b"SET", b"KEY", &1.5_f64.to_le_bytes()],
        &[b"HSET", b"KEY", b"tokens", b"5"],
        &[b"RPUSH", b"KEY", b"1"],
        &[b"ZADD", b"KEY", b"1", b"a"],
    ]
    .iter()
    .map(|command| command.iter().map(|part| part.to_vec()).collect())
    .collect();
    let mut reported = 0;
    for limit in one_of_each().unwrap() {
        for command in &garbage {
            connection.command(&[b"FLUSHALL"]).unwrap();
            let charge = Charge::new(Key::new(1, USER), &limit);
            let other = Charge::new(Key::new(2, USER), &limit);
            store.apply(&[charge], Intent::Force, now()).await.unwrap();
            let Some(key) = keys(&mut connection).pop() else { continue };
            connection.command(&[b"DEL", &key]).unwrap();
            let parts: Vec<&[u8]> =
                command.iter().map(|part| if part == b"KEY" { key.as_slice() } else { part.as_slice() }).collect();
            connection.command(&parts).unwrap();
            let met = store.apply(&[other, charge], Intent::Peek, now()).await.unwrap();
            let gist = |index: usize| (met[index].allowed, met[index].remaining);
            assert_eq!(gist(1), gist(0), "{command:?} {:?}", limit.algorithm());
            assert!(store.foreign_values() > reported, "{command:?} was not reported");
            reported = store.foreign_values();
            store.apply(&[charge], Intent::Force, now()).await.unwrap();
            assert!(store.foreign_values() > reported, "{command:?} was not reported when it was overwritten");
            reported = store.foreign_values();
            store.apply(&[charge], Intent::Peek, now()).await.unwrap();
            assert_eq!(store.foreign_values(), reported, "it is ours again");
        }
    }
    assert!(reported > 500, "{reported}");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_one_below_the_limit_one_of_64_is_admitted() {
    let server = Server::start();
    for round in 0..20 {
        let bucket = Arc::new(limit(TokenBucket::new(Rate::new(10, Micros::YEAR))));
        // Four processes would each have a store of its own.
        let stores: Vec<_> = (0..4).map(|_| Arc::new(server.store(script::source(), round, 2))).collect();
        let key = Key::new(round as u64, USER);
        let used = stores[0].apply(&[Charge::new(key, &bucket).cost(9)], Intent::Spend, now()).await.unwrap();
        assert!(used[0].allowed);
        let tasks: Vec<_> = (0..64)
            .map(|n| {
                let (store, bucket) = (Arc::clone(&stores[n % 4]), Arc::clone(&bucket));
                tokio::spawn(async move {
                    let charge = Charge::new(Key::new(round as u64, USER), &bucket);
                    store.apply(&[charge], Intent::Spend, now()).await.unwrap()[0].allowed
                })
            })
            .collect();
        let mut admitted = 0;
        for task in tasks {
            admitted += u32::from(task.await.unwrap());
        }
        assert_eq!(admitted, 1);
    }
}

/// A store that may not ask about keys of several tags at once, as in a Cluster.
fn apart(server: &Server) -> RedisStore<PlainLink> {
    let mut link = server.link(script::source(), 0, 1);
    link.one_tag_per_call = true;
    RedisStore::new(link)
}

#[tokio::test]
async fn what_lives_apart_passes_together_or_is_given_back() {
    let server = Server::start();
    let store = apart(&server);
    let counter = limit(SlidingCounter::new(5, Micros::YEAR));
    let one = limit(FixedWindow::new(1, Micros::YEAR));
    let global: &[&[u8]] = &[];
    let charges = [Charge::new(Key::new(1, USER), &counter).cost(2), Charge::new(Key::new(2, global), &one)];
    let both = store.apply(&charges, Intent::Spend, now()).await.unwrap();
    assert_eq!((both[0].allowed, both[0].remaining, both[1].allowed, both[1].remaining), (true, 3, true, 0));
    for _ in 0..3 {
        let denied = store.apply(&charges, Intent::Spend, now()).await.unwrap();
        assert_eq!((denied[0].allowed, denied[0].remaining), (true, 3), "what is reported is what is");
        assert!(denied[1].denied());
    }
    let (outcomes, id) = store.reserve(&charges, Micros::MINUTE, now()).await.unwrap();
    assert!(id.is_none() && outcomes[1].denied() && outcomes[0].remaining == 3);
    let left = store.apply(&charges[..1], Intent::Peek, now()).await.unwrap();
    assert_eq!(left[0].remaining, 3, "a denied reservation holds nothing");
}

#[tokio::test]
async fn a_reservation_that_lives_apart_is_settled_everywhere() {
    let server = Server::start();
    let counter = limit(FixedWindow::new(9, Micros::YEAR));
    let names: [&[&[u8]]; 4] = [&[b"alice"], &[b"bob"], &[], &[b"alice", b"/"]];
    let cases = [
        (Settlement::Cancel, [9, 9, 9, 9]),
        (Settlement::Commit, [7, 7, 7, 7]),
        (Settlement::CommitActual(&[1, 0, 5]), [8, 9, 4, 7]),
    ];
    for (settlement, left) in cases {
        server.connect(0).command(&[b"FLUSHALL"]).unwrap();
        let (store, other) = (apart(&server), apart(&server));
        let charges = names.map(|values| Charge::new(Key::new(1, values), &counter).cost(2));
        let (_, id) = store.reserve(&charges, Micros::MINUTE, now()).await.unwrap();
        let id = id.unwrap();
        // By another node, which knows nothing but the name.
        assert_eq!(other.settle(id, settlement, now()).await.unwrap(), Settled::Done);
        assert_eq!(store.settle(id, settlement, now()).await.unwrap(), Settled::Unknown);
        let has = store.apply_each(&charges, Intent::Peek, now()).await.unwrap();
        assert_eq!(has.iter().map(|outcome| outcome.remaining).collect::<Vec<_>>(), left, "{settlement:?}");
    }
}

/// A link that loses what is asked at all tags but one.
struct Cut {
    link: PlainLink,
    whole: std::sync::Mutex<Option<Tag>>,
}

impl Link for Cut {
    type Error = Broken;

    async fn call(&self, request: Request) -> Result<tollgate_redis::Reply, Broken> {
        let whole = *self.whole.lock().unwrap();
        if whole.is_some_and(|whole| whole != request.tag()) {
            return Err(Broken("cut".to_owned()));
        }
        self.link.call(request).await
    }

    fn send(&self, request: Request) {
        self.link.send(request);
    }

    fn one_tag_per_call(&self) -> bool {
        self.link.one_tag_per_call()
    }
}

#[tokio::test]
async fn a_denial_that_was_heard_stands_whatever_became_of_the_others() {
    let server = Server::start();
    let (room, none) = (limit(FixedWindow::new(9, Micros::YEAR)), limit(FixedWindow::new(0, Micros::YEAR)));
    let names: [&[&[u8]]; 3] = [&[b"alice"], &[b"bob"], &[]];
    let charges = [(&room, names[0]), (&none, names[1]), (&room, names[2])];
    let charges = charges.map(|(limit, values)| Charge::new(Key::new(1, values), limit));
    let mut link = server.link(script::source(), 0, 1);
    link.one_tag_per_call = true;
    let store = RedisStore::new(Cut { link, whole: Default::default() });
    let whole = |tag: Option<u64>| *store.link().whole.lock().unwrap() = tag.map(Tag::new);
    for tag in [1, 0].map(|which| Some(store.home(&charges[which]))) {
        whole(tag);
        let spent = store.apply(&charges, Intent::Spend, now()).await;
        let reserved = store.reserve(&charges, Micros::MINUTE, now()).await;
        if tag == Some(store.home(&charges[0])) {
            assert!(spent.is_err() && reserved.is_err(), "nobody knows");
            continue;
        }
        let said = |outcomes: &[tollgate::Outcome]| -> Vec<_> {
            outcomes.iter().map(|outcome| (outcome.allowed, outcome.alone)).collect()
        };
        assert_eq!(said(&spent.unwrap()), [(true, true), (false, false), (true, true)]);
        let (outcomes, held) = reserved.unwrap();
        assert_eq!((said(&outcomes), held), (vec![(true, true), (false, false), (true, true)], None));
    }
    whole(None);
    let has = store.apply(&charges, Intent::Peek, now()).await.unwrap();
    assert_eq!((has[0].remaining, has[2].remaining), (9, 9), "nothing stays charged");
}

#[tokio::test]
async fn a_settlement_that_was_cut_short_is_ended_by_whoever_asks_again() {
    let server = Server::start();
    let counter = limit(FixedWindow::new(9, Micros::YEAR));
    let names: [&[&[u8]]; 3] = [&[b"alice"], &[b"bob"], &[]];
    let charges = names.map(|values| Charge::new(Key::new(1, values), &counter).cost(2));
    let first = [Settlement::Commit, Settlement::CommitActual(&[1, 3, 0]), Settlement::Cancel];
    let second =
        [Settlement::Commit, Settlement::CommitActual(&[1, 3, 0]), Settlement::Cancel, Settlement::CommitActual(&[9])];
    for (how, again) in first.into_iter().flat_map(|how| second.map(|again| (how, again))) {
        server.connect(0).command(&[b"FLUSHALL"]).unwrap();
        let mut link = server.link(script::source(), 0, 1);
        link.one_tag_per_call = true;
        let store = RedisStore::new(Cut { link, whole: Default::default() });
        let (_, id) = store.reserve(&charges, Micros::MINUTE, now()).await.unwrap();
        let id = id.unwrap();
        *store.link().whole.lock().unwrap() = Some(Tag::new(id.0));
        assert!(store.settle(id, how, now()).await.is_err(), "one place of three was reached");
        assert!(store.settle(id, again, now()).await.is_err());
        *store.link().whole.lock().unwrap() = None;
        // How it ends was decided by the first. The second one helps, whatever it wanted.
        let settled = store.settle(id, again, now()).await.unwrap();
        assert_eq!(settled, if again == how { Settled::Done } else { Settled::Unknown }, "{how:?}, then {again:?}");
        assert_eq!(store.settle(id, how, now()).await.unwrap(), Settled::Unknown, "that was all");
        let has = store.apply(&charges, Intent::Peek, now()).await.unwrap();
        let kept: [u64; 3] = std::array::from_fn(|index| how.keeps(index, 2));
        assert_eq!(
            has.iter().map(|outcome| 9 - outcome.remaining).collect::<Vec<_>>(),
            kept,
            "{how:?}, then {again:?}"
        );
    }
}

/// Redis's own clock, set back by an hour and by a month: who is denied is told to wait no longer than ever, and keys
/// live no longer.
#[tokio::test]
async fn a_clock_of_redis_that_is_set_back_locks_nobody_out() {
    let shim = ClockShim::new();
    let server = Server::on(shim.server());
    let store = server.store(script::source(), 0, 1);
    let mut connection = server.connect(0);
    let (mut judged, limits) = (0, one_of_each().unwrap());
    for (number, limit) in (0..).zip(limits.iter().filter(|limit| limit.softness().is_none())) {
        for back in [3_600_000_000, 2_700_000_000_000_i64] {
            connection.command(&[b"FLUSHALL"]).unwrap();
            shim.set(0);
            let charge = Charge::new(Key::new(number, USER), limit).lease(3);
            for _ in 0..30 {
                store.apply(&[charge], Intent::Spend, now()).await.unwrap();
            }
            shim.set(-back);
            // The server goes by its new clock from its next look at it.
            let mut outcome = store.apply(&[charge], Intent::Spend, now()).await.unwrap()[0];
            for _ in 0..1_000 {
                if outcome.at.plus(Micros::MINUTE) < now() {
                    break;
                }
                outcome = store.apply(&[charge], Intent::Spend, now()).await.unwrap()[0];
            }
            let longest = longest_wait(limit.algorithm(), outcome.at);
            if let Some(wait) = outcome.retry_after.filter(|_| outcome.denied()) {
                judged += 1;
                assert!(wait <= longest, "{wait} to wait, set back by {back}: {:?}", limit.algorithm());
            }
            // A part-filled bucket is remembered for one more refill.
            let most = i64::try_from(2 * longest.as_micros() / 1_000 + 1).unwrap();
            for key in keys(&mut connection) {
                let left = connection.command(&[b"PTTL", &key]).unwrap().number();
                assert!(left <= most, "{left} ms to live, set back by {back}: {:?}", limit.algorithm());
            }
        }
    }
    assert!(judged > limits.len(), "{judged} denials");
}

#[tokio::test]
async fn a_node_whose_clock_is_wrong_by_years_gets_the_same_answers() {
    use tollgate::{Calendar, CalendarUnit, Pacing, Zone};
    let server = Server::start();
    for unit in [CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::Month, CalendarUnit::Year] {
        let calendar = Calendar::new(unit, Zone::new("Elsewhere", 5 * 3_600, []));
        let limits = [
            limit(FixedWindow::in_window(5, calendar.clone().into())),
            limit(Pacing::new(1_000, calendar.into()).slack(1_000)),
        ];
        for limit in limits {
            let store = server.store(script::source(), server.empty_database(), 1);
            let charge = Charge::new(Key::new(1, USER), &limit);
            let right = store.apply(&[charge], Intent::Spend, now()).await.unwrap()[0];
            for (index, wrong) in
                [Timestamp::EPOCH, now().plus(Micros::YEAR), now().minus(Micros::WEEK)].iter().enumerate()
            {
                let taken = index as u64 + 1;
                let outcome = store.apply(&[charge], Intent::Spend, *wrong).await.unwrap()[0];
                assert_eq!(outcome.remaining, right.remaining - taken);
                assert_eq!(outcome.at.plus(outcome.reset_after), right.at.plus(right.reset_after));
            }
            let batch = store.apply_each(&[charge, charge], Intent::Peek, Timestamp::EPOCH).await.unwrap();
            assert_eq!(batch[1].remaining, right.remaining - 3);
        }
    }
}
