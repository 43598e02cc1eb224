//! What is asked: the plain script, and the requests of each algorithm as the store makes them.

use std::sync::Mutex;

use tollgate::{
    Algorithm, Charge, Concurrency, FixedWindow, Intent, Key, LeakyBucket, Limit, Micros, Pacing, Rate, SlidingCounter,
    SlidingLog, Store, Timestamp, TokenBucket, Window,
};
use tollgate_redis::{Link, RedisStore, Reply, Request};

use crate::server::{self, evalsha};

/// A token bucket as people write it.
pub(crate) const PLAIN: &str = "
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

/// How many users ask.
pub(crate) const USERS: u64 = 10_000;

/// The user of the n-th question.
pub(crate) fn user(n: usize) -> u64 {
    tollgate::core::mix(n as u64) % USERS
}

pub(crate) fn user_name(user: u64) -> String {
    format!("user-{user:07}")
}

/// One call of the plain script, as it is sent.
pub(crate) fn plain_call(sha: &[u8], user: u64) -> Vec<u8> {
    let key = format!("token_bucket:{}", user_name(user));
    server::encode(&[b"EVALSHA", sha, b"1", key.as_bytes(), b"1000", b"1000", b"1"])
}

/// What a decision is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// One charge.
    One,
    /// Limits that pass together; they count as one decision.
    Stack,
    /// So many charges in one request, each on its own and each a decision.
    Batch(usize),
}

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) limits: Vec<Limit>,
    pub(crate) form: Form,
    /// The most that its processor time may be of the plain script's, when many decisions share a call.
    pub(crate) goal: Option<f64>,
}

pub(crate) fn limit(algorithm: impl Into<Algorithm>) -> Limit {
    Limit::new(algorithm).unwrap()
}

/// Of the limits that admit, none is ever reached; of those that deny, all are after the first question.
pub(crate) fn cases() -> Vec<Case> {
    const MANY: u64 = 1_000_000;
    let hour = Micros::HOUR;
    let bucket = |units| limit(TokenBucket::new(Rate::per_hour(units)));
    let window = |units| limit(FixedWindow::new(units, hour));
    let counter = |units| limit(SlidingCounter::new(units, hour));
    let case = |name, limits: Vec<Limit>, form, goal| Case { name, limits, form, goal };
    let one = |name, limit, goal| case(name, vec![limit], Form::One, goal);
    let three = |units| vec![bucket(units), window(units), counter(units)];
    let (goal, none) = (Some(0.6), None);
    vec![
        one("token bucket", bucket(1_000), goal),
        one("token bucket, denied", bucket(1), goal),
        one("token bucket, 1000 a second", limit(TokenBucket::new(Rate::per_second(1_000))), goal),
        one("fixed window", window(MANY), goal),
        one("fixed window, denied", window(1), goal),
        one("sliding counter", counter(MANY), goal),
        one("sliding counter, denied", counter(1), goal),
        one("leaky queue", limit(LeakyBucket::queue(Rate::per_hour(MANY), MANY)), none),
        one("leaky queue, denied", limit(LeakyBucket::queue(Rate::per_hour(1), 1)), none),
        one("pacing", limit(Pacing::new(MANY, Window::clock(hour)).slack(MANY / 2)), none),
        one("pacing, denied", limit(Pacing::new(1, Window::clock(hour)).slack(1)), none),
        one("sliding log, some events", limit(SlidingLog::new(10_000, hour)), none),
        one("sliding log of 10, denied", limit(SlidingLog::new(10, hour)), none),
        one("token bucket, 7 in 3 s", limit(TokenBucket::new(Rate::new(7, Micros::from_secs(3))).burst(MANY)), none),
        one("bucket at intervals", limit(TokenBucket::new(Rate::per_hour(MANY)).refill_at_intervals()), none),
        one("60 sub-windows", limit(SlidingCounter::new(MANY, hour).sub_windows(60)), none),
        one("concurrency of 20", limit(Concurrency::new(20, hour)), none),
        case("three limits at once", three(MANY), Form::Stack, none),
        case("three limits, denied", three(1), Form::Stack, none),
        case("token bucket, batches of 16", vec![bucket(MANY)], Form::Batch(16), none),
    ]
}

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

    fn send(&self, request: Request) {
        *self.0.lock().unwrap() = Some(request);
    }

    fn one_tag_per_call(&self) -> bool {
        false
    }
}

/// A spend of one by each of `users`, as the store asks for it.
pub(crate) async fn request(limits: &[Limit], form: Form, users: &[u64]) -> Request {
    request_at(limits, form, users, 1, Timestamp::from_secs(1_790_000_000)).await
}

/// A spend of `cost` at a time of ours, which only counts for a script that is told it.
pub(crate) async fn request_at(limits: &[Limit], form: Form, users: &[u64], cost: u64, now: Timestamp) -> Request {
    let store = RedisStore::new(Kept::default());
    let names: Vec<String> = users.iter().map(|user| user_name(*user)).collect();
    let values: Vec<[&[u8]; 1]> = names.iter().map(|name| [name.as_bytes()]).collect();
    let mut charges = Vec::new();
    for (user, values) in users.iter().zip(&values) {
        let on_all = (7..)
            .zip(limits)
            .map(|(number, limit)| Charge::new(Key::new(number, values), limit).lease(*user).cost(cost));
        charges.extend(on_all);
    }
    match form {
        Form::Batch(_) => _ = store.apply_each(&charges, Intent::Spend, now).await.expect_err("kept"),
        _ => _ = store.apply(&charges, Intent::Spend, now).await.expect_err("kept"),
    }
    store.link().0.lock().unwrap().take().unwrap()
}

impl Case {
    /// The requests of so many decisions.
    pub(crate) async fn requests(&self, decisions: usize) -> Vec<Request> {
        let each = if let Form::Batch(each) = self.form { each } else { 1 };
        let mut requests = Vec::new();
        for n in (0..decisions).step_by(each) {
            let users: Vec<u64> = (n..n + each).map(user).collect();
            requests.push(request(&self.limits, self.form, &users).await);
        }
        requests
    }

    /// The same in calls of so many decisions.
    pub(crate) fn calls(&self, sha: &[u8], requests: &[Request], size: usize) -> Vec<Vec<u8>> {
        let each = if let Form::Batch(each) = self.form { each } else { 1 };
        requests.chunks((size / each).max(1)).map(|shared| evalsha(sha, shared)).collect()
    }
}
