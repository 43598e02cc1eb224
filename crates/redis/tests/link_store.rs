//! Demands on stores that are about many callers, many keys and many servers, over links to a real server and a real
//! Cluster. The whole contract is judged in `conformance.rs`.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tollgate_redis::link::{RedisLink, Settings};
use tollgate_redis::{RedisStore, script};
use tollgate_sim::conformance::{Maker, Time, *};
use tollgate_sim::redis::{Cluster, RedisServer, eventually};

fn store(url: &str) -> RedisStore<RedisLink> {
    // What is looked at is answers and not time.
    let settings = Settings { deadline: Duration::from_secs(5), ..Settings::default() };
    let address = url.parse().expect("an address");
    let link = RedisLink::open(address, script::given_time_source(), settings).expect("a thread can be started");
    eventually("the link is connected", || link.is_serving());
    RedisStore::new(link)
}

/// A server, and a store in each of its databases.
struct OnServer(RedisServer, AtomicUsize);

impl Maker for OnServer {
    type Store = RedisStore<RedisLink>;

    async fn make(&self) -> Self::Store {
        store(&format!("redis://{}/{}", self.0.address(), self.1.fetch_add(1, Ordering::Relaxed)))
    }
}

/// A Cluster, emptied for each store, so that there is one at a time.
struct OnCluster(Cluster);

impl Maker for OnCluster {
    type Store = RedisStore<RedisLink>;

    async fn make(&self) -> Self::Store {
        for server in &self.0.servers {
            server.cli(&["FLUSHALL"]);
        }
        store(&self.0.url())
    }
}

/// What each is judged by.
async fn judge(maker: &impl Maker) -> Vec<Kept> {
    vec![
        one_call_for_many_keys(maker, Time::Given).await,
        one_place_left_admits_one(maker, Time::Given).await,
        two_increments_from_three_make_five(maker, Time::Given).await,
        a_reservation_ends_once(maker, Time::Given).await,
    ]
}

fn assert_kept(judged: Vec<Kept>) {
    let broken: Vec<_> = judged.into_iter().filter_map(Result::err).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_over_a_link_to_one_server() {
    let maker = OnServer(RedisServer::start(&["--databases", "4000"]), AtomicUsize::new(0));
    assert_kept(judge(&maker).await);
    assert_kept(vec![
        all_or_nothing(&maker, Time::Given).await,
        commit_keeps(&maker, Time::Given).await,
        equal_counters_add_up(&maker, Time::Given).await,
        batches_equal_single_calls(&maker, Time::Given).await,
        hostile_keys_stay_apart(&maker, Time::Given).await,
        a_crowd_is_served_as_a_line(&maker, Time::Given).await,
        windows_roll_under_a_crowd(&maker, Time::Given).await,
    ]);
}

/// Every case of the contract, by its name.
macro_rules! all_cases {
    ($maker:ident
        any_time { $($any_room:ident::$any:ident $any_demand:literal;)* }
        given_time { $($given_room:ident::$given:ident $given_demand:literal;)* }
    ) => {
        [$((stringify!($any), $any(&$maker, Time::Given).await),)* $((stringify!($given), $given(&$maker, Time::Given).await),)*]
    };
}

/// What a Cluster is not judged by.
const NOT_HERE: [&str; 3] = [
    // They charge keys of several nodes as one. What was charged in vain is given back, and then a key that begins
    // part-filled has begun.
    "all_intents",
    "all_intents_over_time",
    // It needs two stores at a time.
    "batches_equal_single_calls",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_store_over_a_link_to_a_cluster() {
    let maker = OnCluster(Cluster::start(&[]));
    let judged = tollgate_sim::conformance_cases! { [all_cases] maker };
    assert_eq!(judged.len(), CASES.len());
    assert_kept(judged.into_iter().filter(|(name, _)| !NOT_HERE.contains(name)).map(|(_, kept)| kept).collect());
}

/// What a reservation holds may have moved to another server while its record has not: then it cannot be settled, and
/// that is an error. It is not unknown, and what was spent is not given back.
#[test]
fn a_reservation_on_the_move_is_settled_or_that_is_an_error() {
    use tollgate::{Charge, FixedWindow, Intent, Key, Limit, Micros, Settled, Settlement, Store as _, Timestamp};
    let cluster = Cluster::start(&[]);
    let settings = Settings { deadline: Duration::from_millis(300), ..Settings::default() };
    let link = RedisLink::open(cluster.url().parse().expect("an address"), script::given_time_source(), settings);
    let link = link.expect("a thread can be started");
    eventually("the link is connected", || link.is_serving());
    let store = RedisStore::new(link);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let limit = Limit::new(FixedWindow::new(100, Micros::DAY)).expect("a limit");
    let (at, values): (_, [&[u8]; 1]) = (Timestamp::from_secs(1_790_000_000), [b"user"]);
    let charge = Charge::new(Key::new(1, &values), &limit);
    let hold = Micros::from_secs(60);
    let reserve = || {
        let (_, id) = runtime.block_on(store.reserve(&[charge.cost(20)], hold, at)).expect("an answer");
        id.expect("it fits")
    };
    let id = reserve();
    let keys = |server: &RedisServer| {
        let keys = server.cli_quoted("KEYS *\n");
        keys.lines().filter_map(|line| Some(line.split_once(") ")?.1.to_owned())).collect::<Vec<_>>()
    };
    let owner = (0..3).find(|at| keys(&cluster.servers[*at]).len() == 2).expect("a counter and a record");
    let (source, to) = (&cluster.servers[owner], (owner + 1) % 3);
    let is_record = |key: &String| source.cli_quoted(&format!("GETRANGE {key} 0 0\n")) == "\"\\x04\"";
    let counter = keys(source).into_iter().find(|key| !is_record(key)).expect("a counter");
    let slot = source.cli_quoted(&format!("CLUSTER KEYSLOT {counter}\n"));
    let slot = slot.trim_start_matches("(integer) ").parse().expect("a slot");
    let settle = |id| runtime.block_on(store.settle(id, Settlement::Commit, at));
    cluster.migrate(slot, owner, to, || {
        let port = cluster.servers[to].port();
        source.cli_quoted(&format!("MIGRATE 127.0.0.1 {port} {counter} 0 1000\n"));
        let settled = settle(id);
        assert!(settled.is_err(), "{settled:?}");
    });
    eventually("it can be settled", || settle(id).is_ok_and(|settled| settled == Settled::Done));
    // The other way about, and back: the record is there, and what it holds is not.
    let id = reserve();
    let source = &cluster.servers[to];
    let record = keys(source).into_iter().find(|key| *key != counter).expect("a record");
    cluster.migrate(slot, to, owner, || {
        let port = cluster.servers[owner].port();
        source.cli_quoted(&format!("MIGRATE 127.0.0.1 {port} {record} 0 1000\n"));
        let settled = settle(id);
        assert!(settled.is_err(), "{settled:?}");
    });
    eventually("it can be settled", || settle(id).is_ok_and(|settled| settled == Settled::Done));
    let later = at.plus(hold).plus(Micros::SECOND);
    let outcomes = runtime.block_on(store.apply(&[charge], Intent::Peek, later)).expect("an answer");
    assert_eq!(outcomes[0].remaining, 60, "what was spent stays spent");
}

/// What lies unread at the port of a server, on the connection with the most of it: replicas have theirs, and say
/// little.
fn unread(port: u16) -> u64 {
    let connections = std::fs::read_to_string("/proc/net/tcp").expect("a list of connections");
    let at_port = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let local = u16::from_str_radix(fields.get(1)?.rsplit_once(':')?.1, 16).ok()?;
        let waiting = u64::from_str_radix(fields.get(4)?.rsplit_once(':')?.1, 16).ok()?;
        (local == port && fields.get(3) == Some(&"01")).then_some(waiting)
    };
    connections.lines().filter_map(at_port).max().unwrap_or(0)
}

/// How many bytes a server was ever sent.
fn heard(server: &RedisServer) -> u64 {
    let told = server.cli(&["INFO", "stats"]);
    let line = told.lines().find_map(|line| line.strip_prefix("total_net_input_bytes:"));
    line.and_then(|number| number.trim().parse().ok()).expect("a number of bytes")
}

/// All that a batch asks of the servers of a Cluster is with them before any of them answers.
#[test]
fn a_batch_is_one_round_trip_to_each_server() {
    use tollgate::{Charge, Intent, Key, Limit, Rate, Store as _, Timestamp, TokenBucket};
    // They are stopped for a moment, and none is to take another's place.
    let cluster = Cluster::start(&["--cluster-node-timeout", "2000"]);
    let store = store(&cluster.url());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let limit = Limit::new(TokenBucket::new(Rate::per_hour(100))).expect("a limit");
    let at = Timestamp::from_secs(1_790_000_000);
    let names: Vec<[u8; 8]> = (0..500_u64).map(u64::to_be_bytes).collect();
    let values: Vec<[&[u8]; 1]> = names.iter().map(|name| [name.as_slice()]).collect();
    let charges: Vec<Charge<'_>> = values.iter().map(|values| Charge::new(Key::new(1, values), &limit)).collect();
    let ask = || runtime.block_on(store.apply_each(&charges, Intent::Spend, at)).expect("answers");
    // The script is known everywhere from then on.
    assert!(ask().iter().all(|outcome| outcome.remaining == 99));

    let primaries = &cluster.servers[..3];
    let before: Vec<u64> = primaries.iter().map(heard).collect();
    // What asking for it takes.
    let questions: Vec<u64> = primaries.iter().zip(&before).map(|(server, before)| heard(server) - before).collect();
    primaries.iter().for_each(RedisServer::pause);
    let (outcomes, waiting) = std::thread::scope(|scope| {
        let asking = scope.spawn(ask);
        let (mut waiting, mut looks) = (vec![0; primaries.len()], 0);
        eventually("all of it has arrived", || {
            let now: Vec<u64> = primaries.iter().map(|server| unread(server.port())).collect();
            looks = if now == waiting && now.iter().all(|bytes| *bytes > 0) { looks + 1 } else { 0 };
            waiting = now;
            looks == 10
        });
        primaries.iter().for_each(RedisServer::resume);
        (asking.join().expect("it is answered"), waiting)
    });
    assert!(outcomes.iter().all(|outcome| outcome.remaining == 98));
    for ((server, before), (question, waiting)) in primaries.iter().zip(before).zip(questions.into_iter().zip(waiting))
    {
        // Two questions of ours, and what the link asks by itself: some hundred bytes.
        let more = (heard(server) - before).saturating_sub(2 * question + waiting);
        assert!(waiting > 10_000 && more < 2_000, "{waiting} bytes at once, and {more} after that");
    }
}
