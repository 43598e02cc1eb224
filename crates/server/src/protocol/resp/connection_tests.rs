//! Connections that are slow, silent or cut off, each with short times to wait.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::advance;
use tollgate::MemoryStore;
use tollgate::rules::Source;

use super::*;
use crate::gate::{Gate, GateClock, GateStore, Live, LiveRules};
use crate::serve::{Drain, House, Peer, Secret, Settings};

const SHORT_TIME: Duration = Duration::from_millis(60);
const LONG_TIME: Duration = Duration::from_secs(20);

struct Service {
    house: Arc<House>,
    bounds: Bounds,
}

impl Service {
    fn new(password: Option<&str>) -> Self {
        let gate = Arc::new(Gate::new(GateStore::Memory(MemoryStore::new()), GateClock::system(), 0.8, false));
        let rules =
            LiveRules::Embedded(Source::new("rules.yaml", "domain: d\nrules:\n  - per: user\n    limits: [5/h]\n"));
        let live = Live::start(rules, Arc::clone(&gate), None, true).ok().unwrap();
        let settings = Settings { resp_password: password.map(Secret::new), ..Settings::default() };
        let house = Arc::new(House { gate, live, settings, drain: Drain::new(), gateway: None });
        let bounds = Bounds { command: LONG_TIME, password: LONG_TIME, replies: LONG_TIME, farewell: SHORT_TIME };
        Self { house, bounds }
    }

    fn connect(&self) -> UnixStream {
        let (client, server) = UnixStream::pair().unwrap();
        let session = Session::new(&self.house, 7, Peer::Local);
        let connection = Connection::new(Stream::Unix(server), session, self.bounds);
        tokio::spawn(connection.run(self.house.drain.listen()));
        client
    }
}

/// From here on time passes only where a test lets it, by `advance`: a machine that is busy with others shortens no
/// wait.
fn stop_time() {
    tokio::time::pause();
    // With nothing to do the runtime would advance the time by itself.
    tokio::spawn(async {
        loop {
            tokio::task::yield_now().await;
        }
    });
}

/// What comes until the connection is closed.
async fn rest(client: &mut UnixStream) -> String {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(LONG_TIME / 2, client.read_to_end(&mut bytes)).await;
    read.expect("it is closed in time").ok();
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn exchange(client: &mut UnixStream, request: &[u8], reply: &str) {
    client.write_all(request).await.unwrap();
    let mut bytes = vec![0; reply.len()];
    let read = tokio::time::timeout(LONG_TIME / 2, client.read_exact(&mut bytes)).await;
    read.expect("it answers in time").unwrap();
    assert_eq!(String::from_utf8_lossy(&bytes), reply);
}

#[tokio::test]
async fn half_a_command_has_to_be_completed_in_time() {
    let mut service = Service::new(None);
    service.bounds.command = SHORT_TIME;
    let mut client = service.connect();
    client.write_all(b"*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPI").await.unwrap();
    assert_eq!(rest(&mut client).await, "+PONG\r\n");
    // One that is long enough to keep its buffer, too.
    let mut client = service.connect();
    client.write_all(format!("*1\r\n$60000\r\n{}", "x".repeat(50_000)).as_bytes()).await.unwrap();
    assert_eq!(rest(&mut client).await, "");
}

#[tokio::test]
async fn a_client_that_is_idle_stays_and_one_that_completes_its_commands_too() {
    let mut service = Service::new(None);
    service.bounds.command = SHORT_TIME;
    let mut client = service.connect();
    stop_time();
    exchange(&mut client, b"PING\r\n", "+PONG\r\n").await;
    advance(SHORT_TIME * 2).await;
    for _ in 0..6 {
        exchange(&mut client, b"PING\r\nPI", "+PONG\r\n").await;
        advance(SHORT_TIME * 9 / 10).await;
        exchange(&mut client, b"NG\r\n", "+PONG\r\n").await;
    }
    // One that does not is sent away, which shows that this time is the connection's.
    exchange(&mut client, b"PING\r\nPI", "+PONG\r\n").await;
    advance(SHORT_TIME * 2).await;
    assert_eq!(rest(&mut client).await, "");
}

#[tokio::test]
async fn the_password_has_to_be_said_in_time() {
    let mut service = Service::new(Some("secret"));
    service.bounds.password = SHORT_TIME;
    let mut stranger = service.connect();
    let mut friend = service.connect();
    stop_time();
    exchange(&mut stranger, b"PING\r\n", "-NOAUTH Authentication required.\r\n").await;
    exchange(&mut friend, b"AUTH secret\r\n", "+OK\r\n").await;
    advance(SHORT_TIME * 2).await;
    assert_eq!(rest(&mut stranger).await, "");
    exchange(&mut friend, b"PING\r\n", "+PONG\r\n").await;
}

#[tokio::test]
async fn who_does_not_read_is_not_read_from_and_dropped_in_time() {
    let mut service = Service::new(None);
    service.bounds.replies = SHORT_TIME * 4;
    let mut client = service.connect();
    let mut other = service.connect();
    let echo = format!("*2\r\n$4\r\nECHO\r\n$1000\r\n{}\r\n", "x".repeat(1_000)).repeat(1_000);
    let mut sent = 0;
    while sent < 64 {
        let written = tokio::time::timeout(SHORT_TIME, client.write_all(echo.as_bytes())).await;
        if written.is_err() {
            break;
        }
        sent += 1;
    }
    assert!(sent < 64, "it reads without end");
    exchange(&mut other, b"PING\r\n", "+PONG\r\n").await;
    sleep(SHORT_TIME * 6).await;
    let came = rest(&mut client).await;
    assert!(came.len() < 4_000_000 && came.contains("xxx"), "{} bytes", came.len());
    exchange(&mut other, b"PING\r\n", "+PONG\r\n").await;
}

#[tokio::test]
async fn replies_that_are_read_late_are_all_there() {
    let service = Service::new(None);
    let (mut reader, mut writer) = service.connect().into_split();
    let echo = format!("*2\r\n$4\r\nECHO\r\n$1000\r\n{}\r\n", "x".repeat(1_000)).repeat(5_000);
    tokio::spawn(async move { writer.write_all(echo.as_bytes()).await.map(|()| writer) });
    let mut bytes = vec![0; 5_000 * 1_009];
    sleep(SHORT_TIME).await;
    tokio::time::timeout(LONG_TIME, reader.read_exact(&mut bytes)).await.unwrap().unwrap();
    assert!(bytes.chunks(1_009).all(|reply| reply.starts_with(b"$1000\r\nxx") && reply.ends_with(b"x\r\n")));
}

#[tokio::test]
async fn the_end_answers_what_has_arrived() {
    let service = Service::new(None);
    let mut idle = service.connect();
    let mut busy = service.connect();
    exchange(&mut idle, b"PING\r\n", "+PONG\r\n").await;
    exchange(&mut busy, b"PING\r\n", "+PONG\r\n").await;
    busy.write_all(b"PING\r\nPING\r\nPI").await.unwrap();
    service.house.drain.enter(Phase::Closing);
    assert_eq!(rest(&mut busy).await, "+PONG\r\n+PONG\r\n");
    assert_eq!(rest(&mut idle).await, "");
}

#[tokio::test]
async fn one_who_never_stops_sending_is_stopped_at_the_end() {
    let service = Service::new(None);
    let (mut reader, mut writer) = service.connect().into_split();
    let sender =
        tokio::spawn(async move { while writer.write_all(b"PING\r\n".repeat(500).as_slice()).await.is_ok() {} });
    let receiver = tokio::spawn(async move {
        let mut bytes = vec![0; 64 << 10];
        while reader.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
    });
    sleep(SHORT_TIME).await;
    service.house.drain.enter(Phase::Closing);
    tokio::time::timeout(LONG_TIME, async { (receiver.await, sender.await) }).await.unwrap().0.unwrap();
}

#[tokio::test]
async fn nonsense_is_answered_and_ends_the_connection_even_of_one_who_is_still_sending() {
    let service = Service::new(None);
    let mut client = service.connect();
    client.write_all(b"PING\r\n*1\r\n:7\r\nPING\r\n").await.unwrap();
    assert_eq!(rest(&mut client).await, "+PONG\r\n-ERR Protocol error: expected '$', got ':'\r\n");
    let (mut reader, mut writer) = service.connect().into_split();
    let key = format!("*2\r\n$4\r\nECHO\r\n$10485760\r\n{}\r\n", "x".repeat(10 << 20));
    tokio::spawn(async move { writer.write_all(key.as_bytes()).await.map(|()| writer) });
    let mut said = Vec::new();
    tokio::time::timeout(LONG_TIME, reader.read_to_end(&mut said)).await.unwrap().ok();
    assert_eq!(String::from_utf8_lossy(&said), "-ERR Protocol error: invalid bulk length\r\n");
}

#[tokio::test]
async fn a_long_command_may_come_in_small_pieces() {
    let service = Service::new(None);
    let mut client = service.connect();
    let long = "y".repeat(60_000);
    let request = format!("*2\r\n$4\r\nECHO\r\n$60000\r\n{long}\r\n").repeat(3) + "PING\r\n";
    let reply = format!("$60000\r\n{long}\r\n").repeat(3) + "+PONG\r\n";
    let (mut reader, mut writer) = client.split();
    let sending = async {
        for piece in request.as_bytes().chunks(997) {
            writer.write_all(piece).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    let mut bytes = vec![0; reply.len()];
    let (_, read) = tokio::join!(sending, reader.read_exact(&mut bytes));
    read.unwrap();
    assert!(bytes == reply.as_bytes());
}

/// Short commands with long replies: what is made of one read is bounded as well.
#[tokio::test]
async fn a_pipeline_is_not_answered_further_than_its_replies_are_read() {
    let service = Service::new(None);
    let mut client = service.connect();
    let mut other = service.connect();
    let pair = "COMMAND DOCS\r\nCL.THROTTLE k 9999 1 1\r\n";
    client.write_all(pair.repeat(1_500).as_bytes()).await.unwrap();
    for _ in 0..20 {
        exchange(&mut other, b"PING\r\n", "+PONG\r\n").await;
    }
    let mut out = crate::gate::Exposition::default();
    service.house.gate.expose(&mut out);
    let metrics = out.finish();
    let asked = metrics.split("tollgate_throttle_checks_total{outcome=\"allowed\"} ").nth(1);
    let asked: u32 = asked.and_then(|rest| rest.lines().next()).unwrap().parse().unwrap();
    assert!((1..700).contains(&asked), "{asked} of 1500 are answered, and no reply is read");
}
