//! Processor time of redis-server per decision. Calls are sent over one connection with 32 of them under way, for all alike, so that
//! the time for waking up is shared in the same way.

use tollgate::{Limit, Micros, SlidingLog};
use tollgate_redis::script;

use crate::cases::{Form, PLAIN, cases, limit, plain_call, request, user};
use crate::report::{Bound, Goals, Table, median, ratio};
use crate::server::{Connection, Server, encode, evalsha};

const DECISIONS: usize = 3_200;
const ROUNDS: usize = 15;
const SIZES: [usize; 4] = [1, 16, 32, 64];

/// Seconds that the main thread of the server has used.
fn used(connection: &mut Connection) -> f64 {
    let info = String::from_utf8(connection.command(&[b"INFO", b"cpu"]).unwrap().bytes()).unwrap();
    let number = |name: &str| -> f64 {
        info.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim_start_matches(':').parse().unwrap()
    };
    number("used_cpu_user_main_thread") + number("used_cpu_sys_main_thread")
}

/// Microseconds per decision.
fn measure(connection: &mut Connection, calls: &[Vec<u8>], decisions: usize) -> f64 {
    let before = used(connection);
    for window in calls.chunks(32) {
        connection.send_all(&window.concat());
        window.iter().for_each(|_| _ = connection.answer().unwrap());
    }
    (used(connection) - before) * 1e6 / decisions as f64
}

fn plain_calls(connection: &mut Connection) -> Vec<Vec<u8>> {
    let sha = connection.load(PLAIN);
    (0..DECISIONS).map(|n| plain_call(&sha, user(n))).collect()
}

pub(crate) async fn work(goals: &mut Goals) {
    let server = Server::start();
    let mut connection = server.connect(0);
    let plain = plain_calls(&mut connection);
    let sha = connection.load(script::source());
    println!("Processor time of redis-server per decision, in the plain script's; median of {ROUNDS} rounds\n");
    let mut table = Table::new(&["", "plain", "1 a call", "16 a call", "32 a call", "64 a call", "us at 32"]);
    for case in cases() {
        connection.command(&[b"FLUSHALL"]).unwrap();
        let requests = case.requests(DECISIONS).await;
        let calls = SIZES.map(|size| case.calls(&sha, &requests, size));
        // So that all states are there.
        measure(&mut connection, &plain, DECISIONS);
        measure(&mut connection, &calls[3], DECISIONS);
        let (mut base, mut found) = (Vec::new(), SIZES.map(|_| Vec::new()));
        for _ in 0..ROUNDS {
            base.push(measure(&mut connection, &plain, DECISIONS));
            for (calls, found) in calls.iter().zip(&mut found) {
                found.push(measure(&mut connection, calls, DECISIONS));
            }
        }
        let ratios: Vec<f64> = found.iter().map(|found| ratio(found, &base)).collect();
        if let Some(most) = case.goal {
            goals.add(format!("work at 32 a call: {}", case.name), Bound::AtMost(most), ratios[2]);
        }
        let mut row = vec![case.name.to_owned(), format!("{:.2} us", median(&base))];
        row.extend(ratios.iter().map(|ratio| format!("{ratio:.2}x")));
        row.push(format!("{:.2}", median(&found[2])));
        if let Form::Batch(_) = case.form {
            row[2] = "-".to_owned();
        }
        table.row(row);
    }
    table.print();
}

const LOGS: [usize; 4] = [10, 100, 1_000, 10_000];
/// How many logs there are of each size, and how many events are added to each, or denied.
const KEPT: u64 = 8;
const MORE: usize = 5;

/// Logs as the source documents keep them, without a decision: what has left the window goes, one event comes. ARGV[1] says how often.
const IN_OTHER_TYPES: [(&str, &str); 2] = [
    (
        "List",
        "local now = redis.call('TIME')
        for i = 1, tonumber(ARGV[1]) do
          local oldest = redis.call('LINDEX', KEYS[1], 0)
          redis.call('RPUSH', KEYS[1], struct.pack('<dd', now[1] * 1000000 + now[2] + i, 1))
        end
        redis.call('PEXPIRE', KEYS[1], 86400000)
        return redis.call('LLEN', KEYS[1])",
    ),
    (
        "sorted set",
        "local now = redis.call('TIME')
        for i = 1, tonumber(ARGV[1]) do
          local instant = string.format('%d', now[1] * 1000000 + now[2] + i)
          redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now[1] * 1000000 - 86400000000)
          redis.call('ZADD', KEYS[1], instant, instant)
        end
        redis.call('PEXPIRE', KEYS[1], 86400000)
        return redis.call('ZCARD', KEYS[1])",
    ),
];

/// Microseconds of one event more, and bytes.
fn in_other_type(connection: &mut Connection, script: &str, events: usize) -> (f64, i64) {
    connection.command(&[b"FLUSHALL"]).unwrap();
    let sha = connection.load(script);
    let call = |key: u64, count: &str| {
        encode(&[b"EVALSHA", &sha, b"1", format!("tg1:log-{key}").as_bytes(), count.as_bytes()])
    };
    for key in 0..KEPT {
        connection.send_all(&call(key, &events.to_string()));
        connection.answer().unwrap();
    }
    let calls: Vec<Vec<u8>> = (0..KEPT * MORE as u64).map(|n| call(n % KEPT, "1")).collect();
    let found: Vec<f64> = (0..ROUNDS).map(|_| measure(connection, &calls, calls.len())).collect();
    (median(&found), crate::memory::largest(connection))
}

pub(crate) async fn logs() {
    let server = Server::start();
    let mut connection = server.connect(0);
    let plain = plain_calls(&mut connection);
    let sha = connection.load(script::source());
    println!("Sliding logs: processor time per decision that counts one event or is denied, one a call, and bytes\n");
    let mut table = Table::new(&["events", "counted", "of plain", "denied", "of plain", "bytes"]);
    for events in LOGS {
        connection.command(&[b"FLUSHALL"]).unwrap();
        let log = |most: usize| limit(SlidingLog::new(most as u64, Micros::DAY));
        let (open, full) = (log(events + ROUNDS * MORE), log(events));
        let (mut base, mut counted, mut denied) = (Vec::new(), Vec::new(), Vec::new());
        let mut calls = [Vec::new(), Vec::new()];
        for (number, limit) in [(0, &open), (1, &full)] {
            for user in 0..KEPT {
                calls[number].push(call(&sha, limit, number as u64 * KEPT + user).await);
            }
            for _ in 0..events {
                calls[number].iter().for_each(|call| connection.send_all(call));
                calls[number].iter().for_each(|_| _ = connection.answer().unwrap());
            }
        }
        let many: Vec<Vec<Vec<u8>>> = calls.iter().map(|calls| vec![calls.clone(); MORE].concat()).collect();
        for _ in 0..ROUNDS {
            base.push(measure(&mut connection, &plain, DECISIONS));
            counted.push(measure(&mut connection, &many[0], many[0].len()));
            denied.push(measure(&mut connection, &many[1], many[1].len()));
        }
        table.row(vec![
            events.to_string(),
            format!("{:.1} us", median(&counted)),
            format!("{:.2}x", ratio(&counted, &base)),
            format!("{:.1} us", median(&denied)),
            format!("{:.2}x", ratio(&denied, &base)),
            (crate::memory::largest(&mut connection)).to_string(),
        ]);
    }
    table.print();
    println!("The same events in other types, sketched without a decision\n");
    let mut table = Table::new(&["events", "List", "bytes", "sorted set", "bytes"]);
    for events in LOGS {
        let mut row = vec![events.to_string()];
        for (_, script) in IN_OTHER_TYPES {
            let (micros, bytes) = in_other_type(&mut connection, script, events);
            row.extend([format!("{micros:.1} us"), bytes.to_string()]);
        }
        table.row(row);
    }
    table.print();
}

async fn call(sha: &[u8], limit: &Limit, user: u64) -> Vec<u8> {
    let request = request(std::slice::from_ref(limit), Form::One, &[user]).await;
    evalsha(sha, &[request])
}
