//! What comes through a link: decisions per second, and the time of one.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate::{Charge, Intent, Key, Limit, Rate, Store, Timestamp, TokenBucket};
use tollgate_redis::link::{RedisLink, Settings};
use tollgate_redis::{Link as _, RedisStore, Request, Tag, script};

use crate::cases::{PLAIN, limit, user, user_name};
use crate::report::{Bound, Goals, Table, median, ratio};
use crate::server::Server;

const CALLERS: usize = 64;
const ROUNDS: usize = 9;
const EACH: Duration = Duration::from_millis(600);
const ASKED: usize = 40_000;

/// The plain script as the link can carry it: one argument for each request, and one string in answer. It has its
/// numbers in its text, and reads none, so that it does less than the plain script.
fn carried() -> String {
    let constants = "local rate, capacity, cost = 1000, 1000, tonumber(ARGV[1])";
    let taken = PLAIN
        .replace("local rate, capacity, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])", constants);
    taken.replace("return { allowed, math.floor(tokens) }", "return { allowed == 1 and '1' or '0' }")
}

fn open(server: &Server, script: &str) -> RedisLink {
    // What is measured is not how it gives up.
    let settings = Settings { deadline: Duration::from_secs(5), ..Settings::default() };
    let address = format!("redis://127.0.0.1:{}", server.port()).parse().unwrap();
    let link = RedisLink::open(address, script, settings).unwrap();
    while !link.is_serving() {
        std::thread::yield_now();
    }
    link
}

fn bucket() -> Limit {
    limit(TokenBucket::new(Rate::per_second(1_000)))
}

async fn decide(store: &RedisStore<RedisLink>, limit: &Limit, user: u64) {
    let name = user_name(user);
    let values: [&[u8]; 1] = [name.as_bytes()];
    let charge = Charge::new(Key::new(7, &values), limit);
    let outcomes = store.apply(&[charge], Intent::Spend, Timestamp::from_secs(1_790_000_000)).await.unwrap();
    assert!(outcomes[0].allowed);
}

/// Decisions per second of so many callers, and how many shared a call.
async fn through_store(store: &Arc<RedisStore<RedisLink>>, callers: usize) -> (f64, f64) {
    let counts = |name: &str| store.link().health().iter().map(|health| health.count(name)).sum::<u64>() as f64;
    let (calls, requests, begun) = (counts("calls"), counts("requests"), Instant::now());
    let tasks: Vec<_> = (0..callers)
        .map(|caller| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                let (limit, mut done) = (bucket(), 0);
                while begun.elapsed() < EACH {
                    decide(&store, &limit, user(caller + done * callers)).await;
                    done += 1;
                }
                done
            })
        })
        .collect();
    let mut done = 0;
    for task in tasks {
        done += task.await.unwrap();
    }
    let shared = (counts("requests") - requests) / (counts("calls") - calls);
    (done as f64 / begun.elapsed().as_secs_f64(), shared)
}

/// Calls of the plain script per second, by redis-benchmark.
fn by_redis_benchmark(port: u16, sha: &str, callers: usize) -> f64 {
    let output = Command::new("redis-benchmark")
        .args(["--csv", "-h", "127.0.0.1", "-p", &port.to_string(), "-c", &callers.to_string()])
        .args(["-r", "10000", "-n", &ASKED.to_string()])
        .args(["EVALSHA", sha, "1", "token_bucket:__rand_int__", "1000", "1000", "1"])
        .output()
        .expect("redis-benchmark is installed");
    let text = String::from_utf8_lossy(&output.stdout);
    let figure = text.lines().filter_map(|line| line.split("\",\"").nth(1)).find_map(|figure| figure.parse().ok());
    figure.unwrap_or_else(|| panic!("redis-benchmark says {text:?}"))
}

pub(crate) async fn speed(goals: &mut Goals) {
    let server = Server::start();
    let sha = String::from_utf8(server.connect(0).load(PLAIN)).unwrap();
    let store = Arc::new(RedisStore::new(open(&server, script::source())));
    println!(
        "Decisions per second through the store, one process, beside the plain script by redis-benchmark; median of {ROUNDS} rounds\n"
    );
    let mut table = Table::new(&["callers", "store", "share a call", "redis-benchmark", ""]);
    for callers in [CALLERS, 256] {
        let (mut ours, mut theirs, mut shared) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let (per_second, together) = through_store(&store, callers).await;
            ours.push(per_second);
            shared.push(together);
            theirs.push(by_redis_benchmark(server.port(), &sha, callers));
        }
        let times = ratio(&ours, &theirs);
        if callers == CALLERS {
            goals.add(
                format!("decisions per second of {callers} callers, in the plain script's"),
                Bound::AtLeast(1.5),
                times,
            );
        }
        table.row(vec![
            callers.to_string(),
            format!("{:.0}", median(&ours)),
            format!("{:.0}", median(&shared)),
            format!("{:.0}", median(&theirs)),
            format!("{times:.2}x"),
        ]);
    }
    table.print();
}

/// How many make one median, and how many of those there are.
const IN_A_ROW: usize = 100;
const ROWS: usize = 60;

pub(crate) async fn latency(goals: &mut Goals) {
    let server = Server::start();
    let store = RedisStore::new(open(&server, script::source()));
    let plain = open(&server, &carried());
    let limit = bucket();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for row in 0..ROWS {
        let mut times = [Vec::new(), Vec::new()];
        for n in 0..IN_A_ROW {
            let user = user(row * IN_A_ROW + n);
            let begun = Instant::now();
            decide(&store, &limit, user).await;
            times[0].push(begun.elapsed().as_secs_f64() * 1e6);
            let begun = Instant::now();
            let key = format!("token_bucket:{}", user_name(user));
            let request = Request::new(Tag::new(0), [key.as_bytes()], b"1", false);
            assert_eq!(&*plain.call(request).await.unwrap(), b"1");
            times[1].push(begun.elapsed().as_secs_f64() * 1e6);
        }
        ours.push(median(&times[0]));
        theirs.push(median(&times[1]));
    }
    println!("The time of one decision, by turns, over links of the same kind; median of {ROWS} rows of {IN_A_ROW}\n");
    let mut table = Table::new(&["", "median"]);
    table.row(vec!["store, token bucket".to_owned(), format!("{:.1} us", median(&ours))]);
    table.row(vec!["plain script".to_owned(), format!("{:.1} us", median(&theirs))]);
    table.print();
    goals.add("the time of one decision, in the plain script's", Bound::AtMost(1.15), ratio(&ours, &theirs));
}
