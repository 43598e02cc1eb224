//! Bytes of redis-server per key, all included: what `used_memory` grows by.

use tollgate_redis::script;

use crate::cases::{Form, PLAIN, cases, plain_call, request, user_name};
use crate::report::Table;
use crate::server::{Connection, Server, encode, evalsha};

const KEYS: u64 = 24_000;

fn used(connection: &mut Connection) -> i64 {
    let info = String::from_utf8(connection.command(&[b"INFO", b"memory"]).unwrap().bytes()).unwrap();
    info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().parse().unwrap()
}

/// A server of its own for each, so that nothing is left from another.
fn bytes_per_key(script: &str, calls: impl Fn(&[u8]) -> Vec<Vec<u8>>) -> f64 {
    let server = Server::start();
    let mut connection = server.connect(0);
    let sha = connection.load(script);
    let calls = calls(&sha);
    // What the first call makes and keeps.
    connection.send_all(&calls[0]);
    connection.answer().unwrap();
    let before = (used(&mut connection), connection.command(&[b"DBSIZE"]).unwrap().number());
    for call in &calls {
        connection.send_all(call);
        connection.answer().unwrap();
    }
    // What a script leaves behind is no key's.
    connection.command(&[b"SCRIPT", b"FLUSH"]).unwrap();
    let after = (used(&mut connection), connection.command(&[b"DBSIZE"]).unwrap().number());
    (after.0 - before.0) as f64 / (after.1 - before.1) as f64
}

pub(crate) async fn run() {
    println!(
        "Bytes of redis-server per key with its time to live, {KEYS} users with names of 12 bytes, asked twice each\n"
    );
    let mut table = Table::new(&["", "bytes"]);
    let names: Vec<String> = (0..KEYS).map(user_name).collect();
    // A counter as envoyproxy/ratelimit keeps it: domain, key, value and the start of the window, with INCRBY and
    // EXPIRE.
    let counters = bytes_per_key("return 1", |_| {
        let name = |user: &String| format!("domain_user_{user}_1790000000");
        let commands = |user: &String| {
            let key = name(user);
            [encode(&[b"INCRBY", key.as_bytes(), b"1"]), encode(&[b"EXPIRE", key.as_bytes(), b"3600"])]
        };
        names.iter().flat_map(commands).collect()
    });
    table.row(vec!["a counter as envoyproxy/ratelimit keeps it".to_owned(), format!("{counters:.0}")]);
    let plain = bytes_per_key(PLAIN, |sha| (0..KEYS).map(|user| plain_call(sha, user)).collect());
    table.row(vec!["the plain script's bucket".to_owned(), format!("{plain:.0}")]);
    for case in cases().iter().filter(|case| case.form == Form::One && !case.name.contains("denied")) {
        let mut requests = Vec::new();
        for user in 0..KEYS {
            requests.push(request(&case.limits, case.form, &[user]).await);
        }
        let found = bytes_per_key(script::source(), |sha| {
            let calls = requests.chunks(16).map(|shared| evalsha(sha, shared));
            calls.clone().chain(calls).collect()
        });
        table.row(vec![case.name.to_owned(), format!("{found:.0}")]);
    }
    table.print();
}
