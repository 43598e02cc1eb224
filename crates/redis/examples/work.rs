//! How much work a decision is for Redis: processor time of redis-server and bytes per key, beside a plain script.
//!
//! The plain script is a token bucket as people write it: one `EVALSHA` per decision, with `HMGET`, `HSET` and `PEXPIRE`. Both are
//! driven over one connection with many calls under way, so that the time for waking up is shared in the same way.
//!
//! ```sh
//! cargo run -p tollgate-redis --example work [part of a name]
//! ```

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a report")]

#[path = "../tests/server/mod.rs"]
mod server;

use std::sync::Mutex;

use server::{Answer, Connection, Server, evalsha};
use tollgate::{
    Charge, Concurrency, FixedWindow, Intent, Key, LeakyBucket, Limit, Micros, Pacing, Rate, SlidingCounter,
    SlidingLog, Store, Timestamp, TokenBucket, Window,
};
use tollgate_redis::{Link, RedisStore, Reply, Request, script};

const PLAIN: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local rate, capacity, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local state = redis.call('HMGET', KEYS[1], 'tokens', 'last_refill_ts')
local tokens, last = tonumber(state[1]) or capacity, tonumber(state[2]) or now
tokens = math.min(capacity, tokens + math.max(0, now - last) * rate / 1000000)
local allowed = 0
if tokens >= cost then
  tokens = tokens - cost
  allowed = 1
end
redis.call('HSET', KEYS[1], 'tokens', tokens, 'last_refill_ts', now)
redis.call('PEXPIRE', KEYS[1], math.ceil(capacity / rate * 1000))
return { allowed, math.floor(tokens) }";

const KEYS: u64 = 10_000;
const DECISIONS: usize = 32_000;
const ROUNDS: usize = 3;

/// Keeps what it should carry.
#[derive(Default)]
struct Kept(Mutex<Option<Request>>);

#[derive(Debug)]
struct NotCarried;

impl std::fmt::Display for NotCarried {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("kept")
    }
}

impl std::error::Error for NotCarried {}

impl Link for Kept {
    type Error = NotCarried;

    async fn call(&self, request: Request) -> Result<Reply, NotCarried> {
        *self.0.lock().unwrap() = Some(request);
        Err(NotCarried)
    }

    fn one_tag_per_call(&self) -> bool {
        false
    }
}

async fn request(limit: &Limit, user: u64) -> Request {
    let store = RedisStore::new(Kept::default());
    let name = format!("user-{user:07}");
    let values: [&[u8]; 1] = [name.as_bytes()];
    let charge = Charge::new(Key::new(7, &values), limit).lease(user);
    let now = Timestamp::from_secs(1_790_000_000);
    store.apply(&[charge], Intent::Spend, now).await.expect_err("kept");
    store.link().0.lock().unwrap().take().unwrap()
}

fn processor_time(connection: &mut Connection) -> f64 {
    let info = String::from_utf8(connection.command(&[b"INFO", b"cpu"]).unwrap().bytes()).unwrap();
    let number = |name: &str| -> f64 {
        info.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim_start_matches(':').parse().unwrap()
    };
    number("used_cpu_user_main_thread") + number("used_cpu_sys_main_thread")
}

/// Microseconds of processor time per decision, the least of some rounds.
fn measure(connection: &mut Connection, calls: &[Vec<u8>], decisions: usize) -> f64 {
    let mut least = f64::MAX;
    for _ in 0..ROUNDS {
        let before = processor_time(connection);
        for window in calls.chunks(32) {
            connection.send_all(&window.concat());
            window.iter().for_each(|_| _ = connection.answer().unwrap());
        }
        least = least.min((processor_time(connection) - before) * 1e6 / decisions as f64);
    }
    least
}

fn user(n: usize) -> u64 {
    tollgate::core::mix(n as u64) % KEYS
}

fn plain(connection: &mut Connection) -> f64 {
    let sha = connection.load(PLAIN);
    let calls: Vec<Vec<u8>> = (0..DECISIONS)
        .map(|n| {
            let key = format!("token_bucket:user-{:07}", user(n));
            server::encode(&[b"EVALSHA", &sha, b"1", key.as_bytes(), b"1000", b"1000", b"1"])
        })
        .collect();
    measure(connection, &calls, DECISIONS)
}

fn limits() -> Vec<(&'static str, Limit)> {
    let hour = Micros::HOUR;
    let limit = |algorithm: tollgate::Algorithm| Limit::new(algorithm).unwrap();
    vec![
        ("token bucket", limit(TokenBucket::new(Rate::per_hour(1_000)).into())),
        ("token bucket, 7 in 3 s", limit(TokenBucket::new(Rate::new(7, Micros::from_secs(3))).burst(1_000).into())),
        ("at intervals", limit(TokenBucket::new(Rate::per_hour(1_000)).refill_at_intervals().into())),
        ("leaky queue", limit(LeakyBucket::queue(Rate::per_hour(1_000), 1_000).into())),
        ("fixed window", limit(FixedWindow::new(1_000, hour).into())),
        ("sliding counter", limit(SlidingCounter::new(1_000, hour).into())),
        ("60 sub-windows", limit(SlidingCounter::new(1_000, hour).sub_windows(60).into())),
        ("sliding log of 10", limit(SlidingLog::new(10, hour).into())),
        ("sliding log of 1000", limit(SlidingLog::new(1_000, hour).into())),
        ("concurrency", limit(Concurrency::new(20, hour).into())),
        ("pacing", limit(Pacing::new(1_000, Window::clock(hour)).slack(500).into())),
    ]
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let server = Server::start();
    let mut connection = server.connect(0);
    let base = plain(&mut connection);
    println!("plain EVALSHA per decision     {base:6.2} us");
    let sha = connection.load(script::source());
    let wanted = std::env::args().nth(1).unwrap_or_default();
    for (name, limit) in limits().into_iter().filter(|(name, _)| name.contains(&wanted)) {
        connection.command(&[b"FLUSHALL"]).unwrap();
        let mut requests = Vec::new();
        for n in 0..DECISIONS {
            requests.push(request(&limit, user(n)).await);
        }
        print!("{name:24}");
        for size in [1, 4, 16, 64] {
            let calls: Vec<Vec<u8>> = requests.chunks(size).map(|batch| evalsha(&sha, batch)).collect();
            let cost = measure(&mut connection, &calls, DECISIONS);
            print!("  {size:2} a call {cost:6.2} us {:.2}x", cost / base);
        }
        let Answer::Bytes(key) = connection.command(&[b"RANDOMKEY"]).unwrap() else { panic!("there are keys") };
        let bytes = connection.command(&[b"MEMORY", b"USAGE", &key]).unwrap().number();
        println!("  {bytes} bytes a key (name {})", key.len());
    }
    println!("plain EVALSHA per decision     {:6.2} us, again", plain(&mut connection));
}
