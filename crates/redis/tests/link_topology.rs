//! Links through Sentinel and to a Cluster: failovers, a primary that comes back, slots that move.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "real servers take real time")]
#![allow(clippy::print_stdout, reason = "what was measured is shown")]

mod support;

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use support::{
    Load, answered_again, ask, between, in_time, kinds, logged, longest_tolerance, ms, open, opened_with, patient,
    quantile, runtime, sleep, timely, tolerance,
};
use tollgate_redis::link::{RedisLink, Resolver, Settings, Standing, Unavailable, Why, Word};
use tollgate_redis::{Link as _, Request, Tag};
use tollgate_sim::redis::{Cluster, RedisServer, Replicated, eventually};

/// Longer than usual: the six servers of a Cluster share the processors with the test.
const DEADLINE: Duration = ms(50);

fn at(link: &RedisLink) -> String {
    link.health().first().map(|health| health.server.to_string()).unwrap_or_default()
}

#[test]
fn sentinel_says_who_is_the_primary_and_one_that_comes_back_is_not_believed() {
    let _alone = support::alone();
    in_time(|| {
        let replicated = Replicated::start(&[]);
        let link = opened_with(&replicated.url(), Settings { deadline: DEADLINE, ..Settings::default() });
        let first = replicated.primary_port(0).expect("a primary");
        assert_eq!(at(&link), format!("127.0.0.1:{first}"));
        let load = Load::start(&link, 1_000, 4);
        sleep(ms(200));
        let paused = Instant::now();
        replicated.server(first).expect("it").pause();
        eventually("another is promoted", || {
            (0..3).any(|sentinel| replicated.primary_port(sentinel).is_some_and(|port| port != first))
        });
        let promoted = Instant::now();
        let again = answered_again(&link, 0);
        println!("promoted after {:?}, answered again {again:?} after that", promoted - paused);
        assert_ne!(at(&link), format!("127.0.0.1:{first}"));
        // The old one wakes up and believes that it is the primary, for up to ten seconds.
        let old = replicated.server(first).expect("it");
        old.resume();
        sleep(ms(700));
        let woken = old_count(old);
        let asked = load.finish();
        timely(again < ms(300) + longest_tolerance(), &format!("answered again after {again:?}"));
        let outage = between(&asked, paused, ms(0), promoted - paused);
        println!("outage: {} p99 {:?} max {:?}", kinds(&outage), quantile(&outage, 990), quantile(&outage, 1000));
        assert!(quantile(&outage, 500) <= DEADLINE + tolerance(), "{:?}", quantile(&outage, 500));
        timely(quantile(&outage, 990) <= DEADLINE + tolerance(), "late");
        // What was in its sockets when it was stopped is all that it may still have carried out.
        let before = |asked: &&support::Asked| asked.begun < promoted;
        let answered = asked.iter().filter(|asked| asked.begun < paused && asked.result.is_ok()).count() as u64;
        let unknown =
            asked.iter().filter(before).filter(|asked| asked.result.as_ref().is_err_and(Unavailable::may_have_run));
        let unknown = unknown.count() as u64;
        println!("the old one carried out {woken}, answered {answered} and left {unknown} open");
        assert!((answered..=answered + unknown).contains(&woken), "{answered} + {unknown}: {woken}");
        timely(woken - answered <= 100, &format!("it carried out {} that nobody knows of", woken - answered));
        assert!(link.is_serving());
        assert!(!logged("min-replicas-to-write is 0").is_empty(), "the risk is told of");
        // Sentinels that are gone take nothing with them.
        let Replicated { servers, mut sentinels } = replicated;
        sentinels.iter_mut().for_each(|sentinel| sentinel.kill());
        sleep(ms(300));
        assert!(runtime().block_on(ask(&link, 0)).is_ok());
        drop(servers);
    });
}

fn old_count(server: &RedisServer) -> u64 {
    // While it is stopped it cannot be asked.
    let keys = (0..4).map(support::key).collect::<Vec<_>>();
    let mut command = std::process::Command::new("timeout");
    command.args(["0.3", "redis-cli", "-p", &server.port().to_string(), "MGET"]).args(keys);
    let said = command.output().expect("redis-cli");
    String::from_utf8_lossy(&said.stdout).lines().filter_map(|line| line.trim().parse::<u64>().ok()).sum()
}

#[test]
fn a_sentinel_that_wants_a_password_or_does_not_know_the_name_is_told_of() {
    let _alone = support::alone();
    let link = open("redis+sentinel://127.0.0.1:1/main");
    let error = runtime().block_on(ask(&link, 0)).expect_err("nobody is there");
    assert_eq!(error.kind(), "homeless");
    assert!(error.to_string().contains("main of Sentinels 127.0.0.1:1"), "{error}");

    let replicated = Replicated::start(&[]);
    let sentinel = &replicated.sentinels[0];
    let address = sentinel.address();
    let is_told = |what: &str, told: &str| {
        let told = |line: &String| line.contains(&address.to_string()) && line.contains(told);
        eventually(what, || logged("a Sentinel is of no use for now").iter().any(told));
    };
    let unnamed = open(&format!("redis+sentinel://{address}/nobody"));
    is_told("the name is unknown", "it knows no primary called nobody");
    assert_eq!(runtime().block_on(ask(&unnamed, 0)).expect_err("nobody is there").kind(), "homeless");

    let watcher = "ACL SETUSER watcher on >canary-watcher +@all &*";
    assert_eq!(sentinel.cli(&watcher.split(' ').collect::<Vec<_>>()), "OK");
    assert_eq!(sentinel.cli(&["ACL", "SETUSER", "default", "resetpass", ">canary-sentinel"]), "OK");
    let outside = open(&format!("redis+sentinel://{address}/main"));
    is_told("a password is wanted", "it wants a password");
    let wrong = open(&format!("redis+sentinel://{address}/main?sentinel_password=canary-wrong"));
    is_told("the password is wrong", "user or password are wrong");
    for link in [outside, wrong] {
        assert_eq!(runtime().block_on(ask(&link, 0)).expect_err("nobody knows it").kind(), "homeless");
    }
    for login in ["sentinel_password=canary-sentinel", "sentinel_user=watcher&sentinel_password=canary-watcher"] {
        let link = patient(&format!("redis+sentinel://{address}/main?{login}"));
        assert!(runtime().block_on(ask(&link, 0)).is_ok(), "{login}");
    }
    assert!(logged("canary").is_empty(), "{:?}", logged("canary"));
}

/// A Sentinel that says whatever it is told to: a port and an epoch.
fn puppet(says: &Arc<Mutex<(u16, u64)>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let says = Arc::clone(says);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let says = Arc::clone(&says);
            std::thread::spawn(move || answer(&stream, &says));
        }
    });
    address
}

fn answer(mut stream: &TcpStream, says: &Mutex<(u16, u64)>) -> Option<()> {
    let mut lines = BufReader::new(stream).lines();
    let mut next = || lines.next().and_then(Result::ok);
    loop {
        let count: usize = next()?.strip_prefix('*')?.parse().ok()?;
        let mut words = Vec::new();
        for _ in 0..count {
            let _length = next()?;
            words.push(next()?.to_ascii_uppercase());
        }
        let (port, epoch) = *says.lock().expect("a lock");
        let list = |words: &[&str]| {
            let bulks: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
            format!("*{}\r\n{bulks}", words.len())
        };
        let said = match words.get(..2).unwrap_or(&words) {
            [_, what] if what == "GET-MASTER-ADDR-BY-NAME" => list(&["127.0.0.1", &port.to_string()]),
            [_, what] if what == "MASTER" => list(&["name", "main", "config-epoch", &epoch.to_string()]),
            [ping] if ping == "PING" => "+PONG\r\n".to_owned(),
            _ => list(&["subscribe", "+switch-master", "1"]),
        };
        stream.write_all(said.as_bytes()).ok()?;
    }
}

#[test]
fn one_sentinel_that_names_a_replica_by_a_higher_epoch_takes_the_primary_from_nobody() {
    let _alone = support::alone();
    let replicated = Replicated::start(&[]);
    let first = replicated.primary_port(0).expect("a primary");
    let replica = replicated.servers.iter().map(RedisServer::port).find(|port| *port != first).expect("a replica");
    let settings = || Settings { deadline: ms(2_000), ..Settings::default() };
    let says = Arc::new(Mutex::new((first, 0)));
    let url = replicated.url().replacen("://", &format!("://{},", puppet(&says)), 1);
    let before = opened_with(&url, settings());
    *says.lock().expect("a lock") = (replica, 1_000);
    let from_then_on = opened_with(&url, settings());
    let runtime = runtime();
    eventually("that it is none was seen", || !logged("it is not the primary but `slave`").is_empty());
    let begun = Instant::now();
    while begun.elapsed() < ms(1_500) {
        for link in [&before, &from_then_on] {
            assert!(runtime.block_on(ask(link, 0)).is_ok(), "{:?}", link.health());
            assert_eq!(at(link), format!("127.0.0.1:{first}"));
        }
        sleep(ms(20));
    }
    assert!(before.health()[0].count("lost") == 0, "{:?}", before.health());
    // What the others say is followed as ever.
    replicated.fail_over();
    eventually("the one that was promoted is asked", || {
        let promoted = replicated.primary_port(0).filter(|port| *port != first);
        promoted.is_some_and(|port| {
            [&before, &from_then_on]
                .iter()
                .all(|link| at(link) == format!("127.0.0.1:{port}") && runtime.block_on(ask(link, 0)).is_ok())
        })
    });
}

/// What a primary did not carry out, since it has become a replica, is carried out by the next one, once, for those who
/// still wait.
#[test]
fn whoever_is_told_that_this_is_a_replica_is_answered_by_the_primary() {
    let _alone = support::alone();
    in_time(|| {
        let (first, second) = (RedisServer::start(&[]), RedisServer::start(&[]));
        let says = Arc::new(Mutex::new((first.port(), 1)));
        let url = format!("redis+sentinel://{}/main", puppet(&says));
        let (link, runtime) = (patient(&url), runtime());
        assert_eq!(runtime.block_on(ask(&link, 0)).expect("an answer"), 1);
        demote(&first, &second);
        // Sentinels know it, and did not say so.
        *says.lock().expect("a lock") = (second.port(), 2);
        let asked: Vec<_> = (0..40)
            .map(|_| {
                let link = link.clone();
                runtime.spawn(async move { ask(&link, 0).await })
            })
            .collect();
        let answered = asked.into_iter().map(|asked| runtime.block_on(asked).expect("it ends"));
        let mut counts: Vec<_> = answered.filter_map(Result::ok).collect();
        counts.sort_unstable();
        // Those who came after the first was told are not sent anywhere.
        assert!(!counts.is_empty(), "those who were told are answered");
        let carried_out: u64 = second.cli(&["GET", &support::key(0)]).parse().expect("a count");
        assert_eq!(counts, (1..=carried_out).collect::<Vec<_>>(), "each once, and none by the old one");
        assert_eq!(at(&link), format!("127.0.0.1:{}", second.port()));

        // Nobody knows of another primary: that is told at the deadline, and it did not run.
        let hasty = opened_with(&url, Settings { deadline: DEADLINE, ..Settings::default() });
        demote(&second, &first);
        let begun = Instant::now();
        let error = runtime.block_on(ask(&hasty, 0)).expect_err("there is no primary");
        let took = begun.elapsed();
        assert!(matches!(&error.why, Why::Refused(refusal) if refusal.word == Word::ReadOnly), "{error}");
        assert!(!error.may_have_run() && error.server.ends_with(&second.port().to_string()), "{error}");
        timely(took <= DEADLINE + ms(1) + tolerance(), &format!("{took:?}"));
        let begun = Instant::now();
        let next = runtime.block_on(ask(&hasty, 0)).expect_err("there is no primary");
        assert!(matches!(next.why, Why::Resting(_)), "{next}");
        timely(begun.elapsed() <= ms(1) + tolerance(), "the next ones do not wait");
    });
}

/// Makes a replica of a primary, and waits until it is in step: what it has is what the other has.
fn demote(server: &RedisServer, primary: &RedisServer) {
    primary.cli(&["REPLICAOF", "NO", "ONE"]);
    server.cli(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    eventually("it is a replica", || server.cli(&["INFO", "replication"]).contains("master_link_status:up"));
}

#[test]
fn a_cluster_is_asked_by_slot_and_survives_migration() {
    let _alone = support::alone();
    let cluster = Cluster::start(&[]);
    let link = patient(&cluster.url());
    let runtime = runtime();
    for tag in 0..200 {
        assert_eq!(runtime.block_on(ask(&link, tag)).expect("an answer"), 1);
    }
    let asked_of: HashSet<_> = link
        .health()
        .iter()
        .filter(|health| health.count("answered") > 0)
        .map(|health| health.server.to_string())
        .collect();
    assert_eq!(asked_of.len(), 3, "all primaries are asked");
    assert_eq!(link.health().len(), 6, "there is a connection to each");
    let moved: u64 = link.health().iter().map(|health| health.count("redirected")).sum();
    assert_eq!(moved, 0, "nobody is sent on");

    // A slot moves, with its key, under load.
    let tag = 17;
    let slot: u16 = cluster.servers[0].cli(&["CLUSTER", "KEYSLOT", &support::key(tag)]).parse().expect("a slot");
    let owner = usize::from(slot / 5461).min(2);
    let to = (owner + 1) % 3;
    let load = Load::start(&link, 500, 200);
    cluster.migrate(slot, owner, to, || sleep(ms(50)));
    sleep(ms(100));
    let asked = load.finish();
    let all: Vec<_> = asked.iter().collect();
    println!("migration: {}", kinds(&all));
    assert!(asked.iter().all(|asked| asked.result.is_ok()), "{}", kinds(&all));
    let before = runtime.block_on(ask(&link, tag)).expect("an answer");
    assert_eq!(runtime.block_on(ask(&link, tag)).expect("an answer"), before + 1);
    // Half way, with the key gone already: the old owner says ASK.
    cluster.migrate(slot, to, owner, || {
        let source = &cluster.servers[to];
        let port = cluster.servers[owner].port().to_string();
        source.cli(&["MIGRATE", "127.0.0.1", &port, &support::key(tag), "0", "1000"]);
        assert_eq!(runtime.block_on(ask(&link, tag)).expect("an answer"), before + 2);
    });

    // Two keys, of which one is gone already: nobody has both, and that is said within the deadline.
    let hasty = opened_with(&cluster.url(), Settings { deadline: DEADLINE, ..Settings::default() });
    cluster.migrate(slot, owner, to, || {
        let second = format!("{}b", support::key(tag));
        cluster.servers[owner].cli(&["SET", &second, "1"]);
        let port = cluster.servers[to].port().to_string();
        cluster.servers[owner].cli(&["MIGRATE", "127.0.0.1", &port, &second, "0", "1000"]);
        let key = support::key(tag);
        in_time(|| {
            let begun = Instant::now();
            let request = Request::new(Tag::new(tag), [key.as_bytes(), second.as_bytes()], b"x", false);
            let error = runtime.block_on(hasty.call(request)).expect_err("nobody has both");
            let took = begun.elapsed();
            let is_said = matches!(&error.why, Why::Refused(refusal) if refusal.word == Word::TryAgain);
            timely(is_said && took <= DEADLINE + ms(1), &format!("{error} after {took:?}"));
            assert!(!is_said || !error.may_have_run(), "{error}");
        });
    });
}

/// Requests for keys of which one does not exist yet cannot be answered while their slot moves: nobody else pays for
/// it.
#[test]
fn those_who_cannot_be_answered_while_a_slot_moves_harm_no_others() {
    let _alone = support::alone();
    let cluster = Cluster::start(&[]);
    let link = patient(&cluster.url());
    let runtime = runtime();
    let (there, gone) = (support::key(17), format!("{}gone", support::key(17)));
    let pair = || Request::new(Tag::new(17), [there.as_bytes(), gone.as_bytes()], b"pair", false);
    assert_eq!(runtime.block_on(ask(&link, 17)).expect("an answer"), 1);
    let slot: u16 = cluster.servers[0].cli(&["CLUSTER", "KEYSLOT", &there]).parse().expect("a slot");
    let owner = usize::from(slot / 5461).min(2);
    let shared_before = calls_saved(&link);
    let burst = |moved: bool| {
        let asked: Vec<_> = (0..40)
            .map(|number| {
                let (link, pair) = (link.clone(), (number % 4 == 0).then(pair));
                runtime.spawn(async move {
                    match pair {
                        Some(pair) => link.call(pair).await.map(|_| 0),
                        None => ask(&link, 17).await,
                    }
                    .map_err(|error| (number, error))
                })
            })
            .collect();
        for (number, answer) in asked.into_iter().map(|asked| runtime.block_on(asked).expect("it ends")).enumerate() {
            match answer {
                Ok(_) => assert!(number % 4 > 0, "there is no second key, moved: {moved}"),
                Err((_, error)) => {
                    assert!(number % 4 == 0, "moved: {moved}: one with an only key was told {error}");
                    assert!(
                        matches!(&error.why, Why::Refused(refusal) if refusal.word == Word::TryAgain),
                        "moved: {moved}: {error}"
                    );
                }
            }
        }
    };
    cluster.migrate(slot, owner, (owner + 1) % 3, || {
        burst(false);
        let port = cluster.servers[(owner + 1) % 3].port().to_string();
        cluster.servers[owner].cli(&["MIGRATE", "127.0.0.1", &port, &there, "0", "1000"]);
        burst(true);
    });
    assert!(calls_saved(&link) > shared_before, "some shared their calls");
    let opened: u64 = link.health().iter().map(|health| health.count("opened")).sum();
    assert_eq!(opened, 0, "a slot on its way is no fault of its server");
    assert!(link.is_serving());
}

/// How many requests shared a call with another.
fn calls_saved(link: &RedisLink) -> u64 {
    link.health().iter().map(|health| health.count("requests") - health.count("calls")).sum()
}

/// A server that says it is all of a Cluster, and sends every question on to another host that nobody has heard of.
fn labyrinth() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let hosts = Arc::new(AtomicU64::new(0));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let hosts = Arc::clone(&hosts);
            std::thread::spawn(move || mislead(&stream, address, &hosts));
        }
    });
    address
}

fn mislead(mut stream: &TcpStream, address: SocketAddr, hosts: &AtomicU64) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let line = |reader: &mut BufReader<&TcpStream>| {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0).map(|_| line.trim_end().to_owned())
    };
    loop {
        let count: usize = line(&mut reader)?.strip_prefix('*')?.parse().ok()?;
        let mut words = Vec::new();
        for _ in 0..count {
            let mut word = vec![0; line(&mut reader)?.strip_prefix('$')?.parse::<usize>().ok()? + 2];
            reader.read_exact(&mut word).ok()?;
            words.push(word);
        }
        let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
        let said = match &*words[0] {
            b"PING\r\n" => "+PONG\r\n".to_owned(),
            b"SCRIPT\r\n" => bulk(&"0a".repeat(20)),
            b"CLUSTER\r\n" => bulk(&format!("07c3 {address}@1 myself,master - 0 0 1 connected 0-16383\n")),
            _ => format!("-ASK 1 host-{}.invalid:1\r\n", hosts.fetch_add(1, Ordering::Relaxed)),
        };
        stream.write_all(said.as_bytes()).ok()?;
    }
}

/// Redirections lead to no more servers than a Cluster may have that nobody else speaks of, however many there are.
#[test]
fn redirections_without_end_lead_to_few_servers() {
    let _alone = support::alone();
    let looked_up = Arc::new(Mutex::new(HashSet::new()));
    let names = Arc::clone(&looked_up);
    let resolver = Resolver::new(move |host, _| {
        names.lock().expect("a lock").insert(host.to_owned());
        Err(std::io::ErrorKind::NotFound.into())
    });
    let link = opened_with(
        &format!("redis+cluster://{}", labyrinth()),
        Settings { deadline: DEADLINE, resolver, ..Settings::default() },
    );
    let runtime = runtime();
    let asked: Vec<_> = (0..600)
        .map(|tag| {
            let link = link.clone();
            runtime.spawn(async move { ask(&link, tag).await })
        })
        .collect();
    for asked in asked {
        let error = runtime.block_on(asked).expect("it ends").expect_err("nobody knows the way");
        assert!(!error.may_have_run() || matches!(error.why, Why::Deadline(_)), "{error}");
    }
    let (servers, names) = (link.health().len(), looked_up.lock().expect("a lock").len());
    assert!(servers <= 20 && names <= 200, "{servers} servers, {names} names");
}

/// Only the keys of the primary that dies are without an answer, until its replica is promoted.
#[test]
fn a_primary_of_a_cluster_dies_and_another_is_asked() {
    let _alone = support::alone();
    in_time(|| {
        let mut cluster = Cluster::start(&[]);
        let runtime = runtime();
        let victim = 0;
        let link = opened_with(&cluster.url(), Settings { deadline: DEADLINE, ..Settings::default() });
        let load = Load::start(&link, 1_000, 200);
        sleep(ms(100));
        let killed = Instant::now();
        let port = cluster.servers[victim].port();
        cluster.servers[victim].kill();
        let other = &cluster.servers[1];
        eventually("the replica is promoted", || {
            let nodes = other.cli(&["CLUSTER", "NODES"]);
            let owner = nodes.lines().find(|line| line.contains("master") && line.contains(" 0-"));
            owner.is_some_and(|line| !line.contains(&format!(":{port}@")))
                && other.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
        });
        let promoted = Instant::now();
        let again =
            eventually("all are answered again", || (0..200).all(|tag| runtime.block_on(ask(&link, tag)).is_ok()));
        println!("promoted after {:?}, answered again {again:?} after that", promoted - killed);
        let asked = load.finish();
        let outage = between(&asked, killed, ms(0), promoted - killed);
        println!("outage: {} p99 {:?} max {:?}", kinds(&outage), quantile(&outage, 990), quantile(&outage, 1000));
        timely(again < ms(300) + longest_tolerance(), &format!("answered again after {again:?}"));
        assert!(quantile(&outage, 500) <= DEADLINE + tolerance(), "{:?}", quantile(&outage, 500));
        timely(quantile(&outage, 990) <= DEADLINE + tolerance(), "late");
        let gone =
            link.health().into_iter().find(|health| health.server.ends_with(&format!(":{port}"))).expect("it is known");
        assert_eq!(gone.standing, Standing::Resting);
    });
}
