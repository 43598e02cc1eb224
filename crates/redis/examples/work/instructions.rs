//! Instructions of redis-server per decision, by callgrind: the same on every run, whatever else the machine does.
//! Those of the kernel are not counted.

use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use tollgate_redis::script;

use crate::cases::{Form, PLAIN, cases, plain_call, request};
use crate::report::Table;
use crate::server::{Connection, encode};

/// How many decisions are counted: the first for the states to be there, the others for the difference.
const FEW: usize = 640;
const MANY: usize = 1_920;
const SIZES: [usize; 3] = [1, 16, 64];

/// All that a server executes from its start to its end, if it is asked what `ask` sends.
fn collected(ask: impl FnOnce(&mut Connection)) -> u64 {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut server = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "redis-server", "--port", &port.to_string()])
        // What happens by the clock is left out as far as it can be.
        .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--hz", "1", "--dynamic-hz", "no"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("valgrind is installed");
    let stream = loop {
        if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
            break stream;
        }
        std::thread::yield_now();
    };
    let mut connection = Connection::new(stream);
    ask(&mut connection);
    connection.send_all(&encode(&[b"SHUTDOWN", b"NOSAVE"]));
    let mut said = String::new();
    server.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    server.wait().unwrap();
    let line = said.lines().find(|line| line.contains("Collected")).expect("callgrind says what it collected");
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn send(connection: &mut Connection, calls: &[Vec<u8>]) {
    for shared in calls.chunks(32) {
        connection.send_all(&shared.concat());
        shared.iter().for_each(|_| _ = connection.answer().unwrap());
    }
}

/// Instructions for each of the last of `MANY`, beside the first `FEW`.
fn each(script: &str, calls: impl Fn(&[u8], usize) -> Vec<Vec<u8>>) -> f64 {
    let run = |times: usize| {
        collected(|connection| {
            let sha = connection.load(script);
            let calls = calls(&sha, FEW);
            (0..times).for_each(|_| send(connection, &calls));
        })
    };
    let times = MANY / FEW;
    (run(1 + times) as f64 - run(1) as f64) / MANY as f64
}

/// What a script may do to one key that is there, as a bucket, a String of 8 bytes or a Hash of two fields.
const COMMANDS: [(&str, &str); 8] = [
    ("TIME", "redis.call('TIME')"),
    ("MGET", "redis.call('MGET', 's')"),
    ("MGET of 16", "redis.call('MGET', 's','s','s','s','s','s','s','s','s','s','s','s','s','s','s','s')"),
    ("SET PXAT", "redis.call('SET', 's', '12345678', 'PXAT', '4000000000000')"),
    ("SETRANGE", "redis.call('SETRANGE', 's', '0', '12345678')"),
    ("HMGET", "redis.call('HMGET', 'h', 'tokens', 'last_refill_ts')"),
    ("HSET", "redis.call('HSET', 'h', 'tokens', '999.5', 'last_refill_ts', '1790000000000000')"),
    ("PEXPIREAT", "redis.call('PEXPIREAT', 'h', '4000000000000')"),
];

pub(crate) async fn run() {
    println!("Instructions of redis-server (callgrind): of commands in a script, without the script\n");
    let once = |script: &str| each(script, |sha, count| vec![encode(&[b"EVALSHA", sha, b"0"]); count]);
    let empty = once("return 1");
    let mut table = Table::new(&["", "instructions"]);
    table.row(vec!["an empty script".to_owned(), format!("{empty:.0}")]);
    for (name, command) in COMMANDS {
        table.row(vec![name.to_owned(), format!("{:.0}", once(&format!("{command} return 1")) - empty)]);
    }
    table.print();
    println!("Per decision\n");
    let plain = each(PLAIN, |sha, count| (0..count).map(|n| plain_call(sha, n as u64)).collect());
    let mut table = Table::new(&["", "1 a call", "", "16 a call", "", "64 a call", ""]);
    table.row(vec!["the plain script".to_owned(), format!("{plain:.0}")]);
    for case in cases().iter().filter(|case| case.goal.is_some() || case.form == Form::Stack) {
        let mut requests = Vec::new();
        for n in 0..FEW {
            requests.push(request(&case.limits, case.form, &[n as u64]).await);
        }
        let mut row = vec![case.name.to_owned()];
        for size in SIZES {
            let found = each(script::source(), |sha, _| case.calls(sha, &requests, size));
            row.extend([format!("{found:.0}"), format!("{:.2}x", found / plain)]);
        }
        table.row(row);
    }
    table.print();
}
