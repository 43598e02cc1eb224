//! What tests of links share: a script whose answers say whom they are for, and a load that comes at fixed times
//! whatever happens.

#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "real servers take real time")]
#![allow(clippy::print_stdout, reason = "what was measured is shown")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tollgate_redis::link::{RedisLink, Settings, Unavailable};
use tollgate_redis::{Link as _, Request, Tag};
use tollgate_sim::redis::{RedisServer, eventually};

/// Lets the tests of a program run one after the other, since time is part of what they look at, and keeps what is
/// logged.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    static LOGGING: Once = Once::new();
    LOGGING.call_once(|| {
        let builder = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_ansi(false);
        builder.with_writer(|| Log).init();
    });
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Whoever panicked was within an attempt.
    *LATE.lock().unwrap_or_else(PoisonError::into_inner) = None;
    alone
}

static LOGGED: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Log;

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOGGED.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The lines that were logged with this in them.
pub(crate) fn logged(part: &str) -> Vec<String> {
    let logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
    String::from_utf8_lossy(&logged).lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
}

/// Counts each key up and answers with the argument and the count.
pub(crate) const SCRIPT: &str = "local out = {}\n\
    for i = 1, #ARGV do out[i] = ARGV[i] .. ':' .. redis.call('INCR', KEYS[i]) end\n\
    return out";

/// How late the machine was by itself while the last load ran, in microseconds: 99 of 100 times, and at most.
static LATENESS: AtomicU64 = AtomicU64::new(0);
static LONGEST: AtomicU64 = AtomicU64::new(0);

/// What was not in time in this attempt, while there is one.
static LATE: Mutex<Option<Vec<String>>> = Mutex::new(None);

/// A machine that others use too takes processors away for tens of milliseconds at a time, which is no fault of the
/// link. So what depends on time is tried several times, and has to hold in one of them, all of it; whatever else is
/// asserted has to hold each time.
pub(crate) fn in_time(attempt: impl Fn()) {
    const ATTEMPTS: usize = 5;
    let late = || LATE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut all = Vec::new();
    for number in 1..=ATTEMPTS {
        *late() = Some(Vec::new());
        attempt();
        let found = late().take().unwrap_or_default();
        if found.is_empty() {
            return;
        }
        println!("attempt {number}: not in time: {found:?}; the machine was late by {:?}", longest_tolerance());
        all.push(found);
    }
    assert!(std::env::var("TOLLGATE_TIMES").is_ok_and(|times| times == "told"), "not in time, each time: {all:?}");
}

/// Notes what depends on time, for [`in_time`].
pub(crate) fn timely(holds: bool, what: &str) {
    let mut late = LATE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(late) = &mut *late else { panic!("{what} is judged by `in_time`") };
    if !holds {
        late.push(what.to_owned());
    }
}

/// What may be added to a deadline: a millisecond, since that is how timers tick, and what the machine kept a thread
/// waiting for that only sleeps, 99 of 100 times.
pub(crate) fn tolerance() -> Duration {
    ms(1) + Duration::from_micros(LATENESS.load(Ordering::Relaxed))
}

/// The same for what happens once, or for the longest of many: by as much as that thread waited for at most.
pub(crate) fn longest_tolerance() -> Duration {
    ms(1) + Duration::from_micros(LONGEST.load(Ordering::Relaxed))
}

/// A thread that only sleeps, and sees how late it wakes.
struct Control {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Vec<Duration>>,
}

impl Control {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut late = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let begun = Instant::now();
                std::thread::sleep(ms(1));
                late.push(begun.elapsed().saturating_sub(ms(1)));
            }
            late.sort();
            late
        });
        Self { stop, thread }
    }

    fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        let late = self.thread.join().expect("it only sleeps");
        let micros = |late: Option<&Duration>| late.map_or(0, |late| late.as_micros() as u64);
        LATENESS.store(micros(late.get(late.len() * 99 / 100)), Ordering::Relaxed);
        LONGEST.store(micros(late.last()), Ordering::Relaxed);
    }
}

pub(crate) fn open(url: &str) -> RedisLink {
    open_with(url, Settings::default())
}

pub(crate) fn open_with(url: &str, settings: Settings) -> RedisLink {
    RedisLink::open(url.parse().expect("an address"), SCRIPT, settings).expect("a thread can be started")
}

/// The same, connected.
pub(crate) fn opened(url: &str) -> RedisLink {
    opened_with(url, Settings::default())
}

/// For what is about answers and not about time: a machine that is busy with others is no fault of the link.
pub(crate) fn patient(url: &str) -> RedisLink {
    opened_with(url, Settings { deadline: ms(2_000), ..Settings::default() })
}

pub(crate) fn opened_with(url: &str, settings: Settings) -> RedisLink {
    let link = open_with(url, settings);
    eventually("the link is connected", || link.is_serving());
    link
}

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

pub(crate) fn key(tag: u64) -> String {
    let tag = Tag::new(tag);
    format!("{{{}}}", std::str::from_utf8(&tag.text()).expect("text"))
}

static TOKENS: AtomicU64 = AtomicU64::new(0);

/// Asks once and makes sure that the answer is for this question; its count if there is one.
pub(crate) async fn ask(link: &RedisLink, tag: u64) -> Result<u64, Unavailable> {
    let token = format!("t{}", TOKENS.fetch_add(1, Ordering::Relaxed));
    let key = key(tag);
    let reply = link.call(Request::new(Tag::new(tag), [key.as_bytes()], token.as_bytes(), false)).await?;
    let reply = std::str::from_utf8(&reply).expect("text").to_owned();
    let (to, count) = reply.split_once(':').expect("an answer of the script");
    assert_eq!(to, token, "an answer went to somebody else");
    Ok(count.parse().expect("a count"))
}

/// What became of one question.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) tag: u64,
    pub(crate) begun: Instant,
    pub(crate) took: Duration,
    pub(crate) result: Result<u64, Unavailable>,
}

/// Questions that come at fixed times.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Vec<Asked>>,
    control: Control,
}

impl Load {
    /// Asks `per_second` times, each time with one of `tags`, until it is stopped.
    pub(crate) fn start(link: &RedisLink, per_second: u32, tags: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, link) = (Arc::clone(&stop), link.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let begin = tokio::time::Instant::now();
                let mut tasks = Vec::new();
                let mut number = 0u64;
                while !stopped.load(Ordering::Relaxed) {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    let due = (begin.elapsed().as_micros() as u64) * u64::from(per_second) / 1_000_000;
                    for number in number..due {
                        let (link, tag) = (link.clone(), number % tags);
                        tasks.push(tokio::spawn(async move {
                            let begun = Instant::now();
                            let result = ask(&link, tag).await;
                            Asked { tag, begun, took: begun.elapsed(), result }
                        }));
                    }
                    number = due;
                }
                let mut asked = Vec::with_capacity(tasks.len());
                for task in tasks {
                    asked.push(task.await.expect("it is answered, and rightly"));
                }
                asked
            })
        });
        Self { stop, thread, control: Control::start() }
    }

    pub(crate) fn finish(self) -> Vec<Asked> {
        self.stop.store(true, Ordering::Relaxed);
        self.control.finish();
        self.thread.join().expect("nothing was answered wrongly")
    }
}

/// The time that `part` of 1,000 took at most.
pub(crate) fn quantile(asked: &[&Asked], part: usize) -> Duration {
    let mut took: Vec<_> = asked.iter().map(|asked| asked.took).collect();
    took.sort();
    took.get((took.len() * part / 1000).min(took.len().saturating_sub(1))).copied().unwrap_or_default()
}

/// Those that were begun from `from` to `to` after `origin`.
pub(crate) fn between(asked: &[Asked], origin: Instant, from: Duration, to: Duration) -> Vec<&Asked> {
    asked.iter().filter(|asked| asked.begun >= origin + from && asked.begun < origin + to).collect()
}

pub(crate) const fn ms(number: u64) -> Duration {
    Duration::from_millis(number)
}

pub(crate) fn sleep(span: Duration) {
    std::thread::sleep(span);
}

/// Makes sure that nothing was carried out but what was asked, and once: `tags` keys were counted up.
pub(crate) fn assert_conserved(server: &RedisServer, asked: &[Asked], tags: u64) {
    let counted = |tag| server.cli(&["GET", &key(tag)]).parse::<u64>().unwrap_or(0);
    let carried_out: u64 = (0..tags).map(counted).sum();
    let answered = asked.iter().filter(|asked| asked.result.is_ok()).count() as u64;
    let unknown =
        asked.iter().filter(|asked| asked.result.as_ref().is_err_and(Unavailable::may_have_run)).count() as u64;
    assert!(carried_out >= answered, "{carried_out} were carried out and {answered} answered");
    assert!(
        carried_out <= answered + unknown,
        "{carried_out} were carried out, {answered} answered, {unknown} not known"
    );
    let mut counts: Vec<_> =
        asked.iter().filter_map(|asked| asked.result.as_ref().ok().map(|count| (asked.tag, *count))).collect();
    counts.sort_unstable();
    let before = counts.len();
    counts.dedup();
    assert_eq!(counts.len(), before, "no two have the same answer");
}

/// What happened, by kind, with the first of each in words.
pub(crate) fn kinds(asked: &[&Asked]) -> String {
    let mut found: Vec<(&str, usize, String)> = Vec::new();
    for asked in asked {
        let (kind, words) = match &asked.result {
            Ok(_) => ("ok", String::new()),
            Err(error) => (error.kind(), error.to_string()),
        };
        match found.iter_mut().find(|(known, ..)| *known == kind) {
            Some((_, count, _)) => *count += 1,
            None => found.push((kind, 1, words)),
        }
    }
    format!("{found:?}")
}

/// Waits until a question is answered, and says how long that took.
pub(crate) fn answered_again(link: &RedisLink, tag: u64) -> Duration {
    let runtime = runtime();
    eventually("it is answered again", || runtime.block_on(ask(link, tag)).is_ok())
}
