//! Being let in, and being thrown out: passwords, users, TLS, sockets, servers that are full or busy.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "real servers take real time")]
#![allow(clippy::print_stdout, reason = "what was measured is shown")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use support::{answered_again, ask, in_time, ms, open, opened, patient, runtime, sleep, timely};
use tollgate::{Charge, FixedWindow, Intent, Key, Limit, Micros, Settlement, SlidingLog, Store, Timestamp};
use tollgate_redis::link::{RedisLink, Settings, Unavailable, Why, Word};
use tollgate_redis::{RedisError, RedisStore, script};
use tollgate_sim::conformance::one_of_each;
use tollgate_sim::redis::{RedisServer, eventually, free_port, scratch};

fn why(link: &RedisLink) -> String {
    link.health().first().map(|health| health.why.to_string()).unwrap_or_default()
}

#[test]
fn a_password_is_read_again_whenever_one_is_needed() {
    let _alone = support::alone();
    let server = RedisServer::start(&["--requirepass", "canary-right"]);
    let file = scratch().join("password");
    std::fs::write(&file, "canary-wrong\n").expect("a file can be written");
    let link = open(&format!("redis://{}/1?password_file={}", server.address(), file.display()));
    eventually("the password is wrong", || why(&link).contains("WRONGPASS"));
    assert!(!why(&link).contains("canary"), "{}", why(&link));
    std::fs::write(&file, "canary-right\n").expect("a file can be written");
    answered_again(&link, 0);
    // It is changed while the link is in use, and connections are cut.
    let admin = |words: &[&str]| server.cli(&[&["--no-auth-warning", "-a", "canary-right"], words].concat());
    std::fs::write(&file, "canary-newer").expect("a file can be written");
    admin(&["CONFIG", "SET", "requirepass", "canary-newer"]);
    server.cli(&["--no-auth-warning", "-a", "canary-newer", "CLIENT", "KILL", "TYPE", "normal"]);
    eventually("it is connected anew", || link.health().iter().any(|health| health.count("connected") == 2));
    answered_again(&link, 0);
    assert_eq!(
        server.cli(&["--no-auth-warning", "-a", "canary-newer", "-n", "1", "DBSIZE"]),
        "1",
        "it is in that database"
    );
    let without = open(&format!("redis://{}", server.address()));
    eventually("a password is missing", || why(&without).contains("NOAUTH"));
    assert!(why(&without).contains("it wants a password"), "{}", why(&without));
    assert_eq!(support::logged("canary-"), Vec::<String>::new(), "no password is logged, at any level");
    assert!(!support::logged("WRONGPASS").is_empty());
}

#[test]
fn a_user_needs_few_rights_and_is_told_when_one_is_gone() {
    let _alone = support::alone();
    let server = RedisServer::start(&[]);
    let rights =
        ["on", ">pass", "~*", "-@all", "+evalsha", "+script|load", "+ping", "+select", "+role", "+info", "+incr"];
    server.cli(&[&["ACL", "SETUSER", "limiter"], &rights[..]].concat());
    let link = patient(&format!("redis://limiter:pass@{}", server.address()));
    let runtime = runtime();
    assert_eq!(runtime.block_on(ask(&link, 0)).expect("an answer"), 1);
    server.cli(&["ACL", "SETUSER", "limiter", "-evalsha"]);
    let error = runtime.block_on(ask(&link, 0)).expect_err("it may not");
    assert!(matches!(&error.why, Why::Refused(refusal) if refusal.word == Word::NoPermission), "{error}");
    assert!(error.to_string().contains("+evalsha"), "{error}");
    server.cli(&["ACL", "SETUSER", "limiter", "+evalsha"]);
    answered_again(&link, 0);
    // The user is gone, and with it the connection.
    server.cli(&["ACL", "DELUSER", "limiter"]);
    eventually("it is thrown out", || runtime.block_on(ask(&link, 0)).is_err() && why(&link).contains("WRONGPASS"));
    server.cli(&[&["ACL", "SETUSER", "limiter"], &rights[..]].concat());
    answered_again(&link, 0);
}

/// Everything that the script can be asked, at times of ours: a long log too, with old events and more than fit into
/// its value.
async fn ask_everything(store: &RedisStore<RedisLink>, begun: Timestamp) -> Result<(), RedisError<Unavailable>> {
    let mut limits = one_of_each().expect("limits");
    let log = Limit::new(SlidingLog::new(5_000, Micros::MINUTE)).expect("a limit");
    limits.push(log.clone());
    let values: [&[u8]; 1] = [b"user"];
    let charges: Vec<_> =
        (1..).zip(&limits).map(|(number, limit)| Charge::new(Key::new(number, &values), limit)).collect();
    store.apply_each(&charges, Intent::Spend, begun).await?;
    store.apply(&charges, Intent::Spend, begun).await?;
    let window = Limit::new(FixedWindow::new(9, Micros::HOUR)).expect("a limit");
    for _ in 0..3 {
        store.apply(&[Charge::new(Key::new(999, &values), &window)], Intent::Spend, begun).await?;
    }
    for settlement in [Settlement::Commit, Settlement::Cancel, Settlement::CommitActual(&[0, 2])] {
        for charge in &charges {
            if let (_, Some(id)) = store.reserve(&[*charge], Micros::MINUTE, begun).await? {
                store.settle(id, settlement, begun).await?;
            }
            store.apply(&[*charge], Intent::Refund { charged_at: begun }, begun).await?;
        }
    }
    let logged = Charge::new(Key::new(1_000, &values), &log);
    for event in 0..1_500 {
        let at = begun.plus(Micros::from_millis(event * 100));
        store.apply(&[logged], Intent::Spend, at).await?;
        if event % 7 == 0 {
            store
                .apply(&[logged], Intent::Refund { charged_at: at.minus(Micros::from_millis(event % 300 * 100)) }, at)
                .await?;
        }
    }
    store.apply(&charges, Intent::Spend, begun.plus(Micros::YEAR)).await.map(|_| ())
}

#[test]
fn the_rights_that_are_advised_are_those_that_are_needed() {
    let _alone = support::alone();
    let server = RedisServer::start(&[]);
    let runtime = runtime();
    server.cli(&["ACL", "SETUSER", "limiter", "on", ">pass", "~*", "-@all", "+script|load", "+ping", "+role", "+info"]);
    let link = patient(&format!("redis://limiter:pass@{}", server.address()));
    let advice = runtime.block_on(ask(&link, 0)).expect_err("it may not").to_string();
    let advised: Vec<&str> = advice
        .split(|letter: char| !(letter.is_ascii_lowercase() || "+|".contains(letter)))
        .filter(|word| word.starts_with('+'))
        .collect();
    let settings = Settings { deadline: ms(2_000), ..Settings::default() };
    let user_without = |missing: &str, script: &str| {
        let rights = advised.iter().filter(|right| **right != missing).copied();
        let rights: Vec<&str> = ["ACL", "SETUSER", "limiter", "reset", "on", ">pass", "~tg1:*", "-@all"]
            .into_iter()
            .chain(rights)
            .collect();
        server.cli(&rights);
        // Where times are ours, so are the ends of keys.
        server.cli(&["ACL", "SETUSER", "limiter", if missing == "+pexpireat" { "-pexpire" } else { "+pexpire" }]);
        let address = format!("redis://limiter:pass@{}", server.address()).parse().expect("an address");
        let link = RedisLink::open(address, script, settings.clone()).expect("a thread can be started");
        eventually("the link is connected", || link.is_serving());
        RedisStore::new(link)
    };
    let begun = Timestamp::from_secs(1_790_000_000);
    for script in [script::source(), script::given_time_source()] {
        runtime.block_on(ask_everything(&user_without("", script), begun)).expect("these suffice");
        server.cli(&["FLUSHALL"]);
    }
    let called: Vec<&str> = advised.iter().copied().skip_while(|right| *right != "+time").collect();
    assert_eq!(called.len(), 13, "{advised:?}");
    for missing in called {
        // Only a script that asks Redis for the time needs that.
        let script = if missing == "+time" { script::source() } else { script::given_time_source() };
        let asked = runtime.block_on(ask_everything(&user_without(missing, script), begun));
        let error = asked.expect_err(missing).to_string();
        assert!(error.contains("allow this user +evalsha"), "{missing}: {error}");
        server.cli(&["FLUSHALL"]);
    }
}

#[test]
fn a_server_without_memory_refuses_and_recovers() {
    let _alone = support::alone();
    let server = RedisServer::start(&[]);
    let link = patient(&format!("redis://{}", server.address()));
    let runtime = runtime();
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = runtime.block_on(ask(&link, 0)).expect_err("there is no room");
    assert!(matches!(&error.why, Why::Refused(refusal) if refusal.word == Word::OutOfMemory), "{error}");
    assert!(!error.may_have_run());
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    answered_again(&link, 0);
    server.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let error = runtime.block_on(ask(&link, 0)).expect_err("there is no replica");
    assert!(matches!(&error.why, Why::Refused(refusal) if refusal.word == Word::NoReplicas), "{error}");
    server.cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    answered_again(&link, 0);
    // By hand it is made a replica, and the primary again.
    server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    let error = runtime.block_on(ask(&link, 0)).expect_err("it is a replica");
    assert!(matches!(&error.why, Why::Refused(refusal) if refusal.word == Word::ReadOnly), "{error}");
    server.cli(&["REPLICAOF", "NO", "ONE"]);
    answered_again(&link, 0);
}

#[test]
fn a_server_that_is_busy_with_somebodys_script_is_left_alone() {
    let _alone = support::alone();
    in_time(|| {
        let server = RedisServer::start(&["--busy-reply-threshold", "20"]);
        let link = opened(&format!("redis://{}", server.address()));
        let runtime = runtime();
        let port = server.port().to_string();
        let endless = Command::new("redis-cli").args(["-p", &port, "EVAL", "while true do end", "0"]).spawn();
        let mut endless = endless.expect("redis-cli is installed");
        eventually("the link notices", || runtime.block_on(ask(&link, 0)).is_err());
        sleep(ms(100));
        let begun = Instant::now();
        assert!(runtime.block_on(ask(&link, 0)).is_err());
        timely(begun.elapsed() < ms(20), &format!("{:?}", begun.elapsed()));
        eventually("it is killed", || server.cli(&["SCRIPT", "KILL"]) == "OK");
        endless.wait().expect("it ends");
        let again = answered_again(&link, 0);
        timely(again < ms(1_500), &format!("{again:?}"));
    });
}

#[test]
fn a_server_that_is_full_says_so() {
    let _alone = support::alone();
    let mut occupied = Vec::new();
    let server = RedisServer::start(&["--maxclients", "3"]);
    eventually("it is full", || {
        let stream = std::net::TcpStream::connect(server.address()).expect("a connection");
        let mut answer = [0; 8];
        stream.set_read_timeout(Some(ms(20))).expect("a timeout");
        let refused = matches!(std::io::Read::read(&mut &stream, &mut answer), Ok(1..));
        occupied.push(stream);
        refused
    });
    let link = open(&format!("redis://{}", server.address()));
    eventually("it says why", || why(&link).contains("max number of clients"));
    assert!(why(&link).contains("maxclients"), "{}", why(&link));
    occupied.clear();
    answered_again(&link, 0);
}

#[test]
fn a_socket_in_the_file_system_will_do() {
    let _alone = support::alone();
    let path = scratch().join("redis.sock");
    let _server = RedisServer::start(&["--unixsocket", &path.display().to_string()]);
    let link = patient(&format!("redis+unix://{}?db=2", path.display()));
    assert_eq!(runtime().block_on(ask(&link, 0)).expect("an answer"), 1);
}

fn openssl(directory: &Path, args: &str) {
    let done =
        Command::new("openssl").args(args.split_whitespace()).current_dir(directory).output().expect("openssl runs");
    assert!(done.status.success(), "{args}: {}", String::from_utf8_lossy(&done.stderr));
}

/// An authority, a certificate for the server and one for us.
fn certificates() -> PathBuf {
    let directory = scratch();
    let new_key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(&directory, &format!("req -x509 {new_key} -days 2 -subj /CN=authority -keyout ca.key -out ca.pem"));
    std::fs::write(directory.join("ext"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        .expect("a file can be written");
    for name in ["server", "client"] {
        openssl(&directory, &format!("req {new_key} -subj /CN={name} -keyout {name}.key -out {name}.csr"));
        let sign = format!(
            "x509 -req -days 2 -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile ext -out {name}.pem"
        );
        openssl(&directory, &sign);
    }
    directory
}

#[test]
fn tls_with_an_authority_of_its_own_and_a_certificate_for_the_client() {
    let _alone = support::alone();
    let files = certificates();
    let path = |name: &str| files.join(name).display().to_string();
    let tls = free_port();
    let (ca, certificate, key) = (path("ca.pem"), path("server.pem"), path("server.key"));
    let _server = RedisServer::start(&[
        "--tls-port",
        &tls.to_string(),
        "--tls-ca-cert-file",
        &ca,
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
    ]);
    let own = format!("cert_file={}&key_file={}", path("client.pem"), path("client.key"));
    let link = patient(&format!("rediss://localhost:{tls}?ca_file={ca}&{own}"));
    let runtime = runtime();
    let begun = Instant::now();
    runtime.block_on(async {
        let asks: Vec<_> = (0..500)
            .map(|number| {
                let link = link.clone();
                tokio::spawn(async move { ask(&link, number % 5).await.expect("an answer") })
            })
            .collect();
        for ask in asks {
            ask.await.expect("an answer");
        }
    });
    println!("500 over TLS in {:?}", begun.elapsed());
    let anonymous = open(&format!("rediss://localhost:{tls}?ca_file={ca}"));
    eventually("no certificate is no entry", || why(&anonymous).contains("ertificate"));
    let stranger = open(&format!("rediss://localhost:{tls}?{own}"));
    eventually("the authority is unknown", || {
        why(&stranger).contains("UnknownIssuer") || why(&stranger).contains("authorities")
    });
    let other = open(&format!("rediss://localhost:{tls}?ca_file={ca}&{own}&server_name=other"));
    eventually("the name is another's", || {
        why(&other).contains("not valid for name") || why(&other).contains("NotValidForName")
    });
    let plain = open(&format!("redis://localhost:{tls}"));
    eventually("without TLS nothing is said", || !why(&plain).is_empty() && !why(&plain).contains("yet"));
    assert!(runtime.block_on(ask(&plain, 0)).is_err());
}

/// A server that speaks TLS at the second port, and plainly to the test.
fn start_with_tls(files: &Path, more: &[&str]) -> (RedisServer, u16) {
    let path = |name: &str| files.join(name).display().to_string();
    let (port, ca, certificate, key) = (free_port(), path("ca.pem"), path("server.pem"), path("server.key"));
    let port_text = port.to_string();
    let own =
        ["--tls-port", &port_text, "--tls-ca-cert-file", &ca, "--tls-cert-file", &certificate, "--tls-key-file", &key];
    (RedisServer::start(&[&own, more].concat()), port)
}

/// What a URL says to be let in.
fn credentials(files: &Path) -> String {
    let path = |name: &str| files.join(name).display().to_string();
    format!("ca_file={}&cert_file={}&key_file={}", path("ca.pem"), path("client.pem"), path("client.key"))
}

#[test]
fn a_cluster_over_tls_is_asked_where_each_key_is() {
    const SLOTS: [(&str, &str); 3] = [("0", "5460"), ("5461", "10922"), ("10923", "16383")];
    let _alone = support::alone();
    let files = certificates();
    let nodes = SLOTS.map(|(from, to)| {
        let bus = free_port().to_string();
        let cluster = ["--cluster-enabled", "yes", "--tls-cluster", "yes", "--cluster-port", &bus];
        let (server, tls) = start_with_tls(&files, &cluster);
        assert_eq!(server.cli(&["CLUSTER", "ADDSLOTSRANGE", from, to]), "OK");
        (server, tls, bus)
    });
    for (number, (server, ..)) in nodes.iter().enumerate() {
        server.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
    }
    let [(first, entry, _), others @ ..] = &nodes;
    for (_, tls, bus) in others {
        first.cli(&["CLUSTER", "MEET", "127.0.0.1", &tls.to_string(), bus]);
    }
    eventually("the Cluster serves", || {
        nodes.iter().all(|(server, ..)| server.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok"))
    });
    let link = patient(&format!("rediss+cluster://localhost:{entry}?{}", credentials(&files)));
    let runtime = runtime();
    for tag in 0..64 {
        assert_eq!(runtime.block_on(ask(&link, tag)).expect("an answer"), 1, "{tag}");
    }
    for (server, ..) in &nodes {
        assert_ne!(server.cli(&["DBSIZE"]), "0", "each has some of the keys");
    }
    // Who knows no authority gets nowhere, however long it tries.
    let stranger = open(&format!("rediss+cluster://localhost:{entry}"));
    sleep(ms(500));
    assert!(runtime.block_on(ask(&stranger, 0)).is_err());
    assert!(!stranger.is_serving());
}

#[test]
fn sentinels_and_the_servers_they_name_are_asked_over_tls() {
    let _alone = support::alone();
    let files = certificates();
    let (server, primary) = start_with_tls(&files, &["--tls-replication", "yes"]);
    let (plain, tls) = (free_port(), free_port());
    let conf = scratch().join("sentinel.conf");
    let path = |name: &str| files.join(name).display().to_string();
    let text = format!(
        "port {plain}\ntls-port {tls}\nbind 127.0.0.1\ntls-replication yes\ntls-ca-cert-file {}\ntls-cert-file {}\n\
         tls-key-file {}\nsentinel monitor main 127.0.0.1 {primary} 1\n",
        path("ca.pem"),
        path("server.pem"),
        path("server.key"),
    );
    std::fs::write(&conf, text).expect("a file can be written");
    let _sentinel = RedisServer::start_on(plain, &[&conf.display().to_string(), "--sentinel"]);
    let link = patient(&format!("rediss+sentinel://localhost:{tls}/main?{}", credentials(&files)));
    let runtime = runtime();
    for tag in 0..16 {
        assert_eq!(runtime.block_on(ask(&link, tag)).expect("an answer"), 1, "{tag}");
    }
    assert_ne!(server.cli(&["DBSIZE"]), "0");
    // Who knows no authority gets nowhere, however long it tries.
    let stranger = open(&format!("rediss+sentinel://localhost:{tls}/main"));
    sleep(ms(500));
    assert!(runtime.block_on(ask(&stranger, 0)).is_err());
    assert!(!stranger.is_serving());
}
