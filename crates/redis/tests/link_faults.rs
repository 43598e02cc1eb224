//! Links through a network that does harm, and to a Redis that says strange things: deadlines hold, nobody gets
//! another's answer, nothing is carried out twice, and what is over is over without a restart.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "real servers take real time")]
#![allow(clippy::print_stdout, reason = "what was measured is shown")]

mod support;

use std::time::{Duration, Instant};

use support::{
    Load, answered_again, ask, assert_conserved, between, in_time, kinds, longest_tolerance, ms, opened, opened_with,
    patient, quantile, runtime, sleep, timely, tolerance,
};
use tollgate_redis::link::{RedisLink, Settings, Standing, Why, Word};
use tollgate_redis::{Link as _, Request, Tag};
use tollgate_sim::redis::{Fault, FaultProxy, RedisServer, eventually};

const DEADLINE: Duration = ms(5);

fn url(proxy: &FaultProxy) -> String {
    format!("redis://{}", proxy.address())
}

fn count(link: &RedisLink, name: &str) -> u64 {
    link.health().iter().map(|health| health.count(name)).sum()
}

#[test]
fn networks_that_do_harm_cost_nobody_more_than_a_deadline() {
    let _alone = support::alone();
    let rows = [
        ("late", Fault::Delay { by: ms(50), jitter: ms(10) }),
        ("sometimes late", Fault::Hiccup { of_1000: 50, by: ms(200) }),
        ("blackhole", Fault::Blackhole),
        ("reset", Fault::Reset),
        ("close before the answer", Fault::CloseBeforeReply { every: 10 }),
        ("close within an answer", Fault::CloseAfter { bytes: 300 }),
        ("byte by byte", Fault::Drip { every: ms(2) }),
    ];
    for (name, fault) in rows {
        in_time(|| {
            let server = RedisServer::start(&[]);
            let proxy = FaultProxy::start(server.address());
            let link = opened(&url(&proxy));
            let load = Load::start(&link, 1_000, 8);
            sleep(ms(150));
            let (connections, begun, opened) = (proxy.accepted(), Instant::now(), count(&link, "opened"));
            proxy.set(fault.clone());
            sleep(ms(600));
            let opened = count(&link, "opened") - opened;
            proxy.set(Fault::None);
            let over = Instant::now();
            let connections = proxy.accepted() - connections;
            let again = eventually("all is well again", || link.is_serving());
            sleep(ms(150));
            let asked = load.finish();
            let harmed = between(&asked, begun, ms(0), over - begun);
            println!(
                "{name}: {} p50 {:?} p99 {:?} max {:?}; {connections} connections; well again after {again:?}",
                kinds(&harmed),
                quantile(&harmed, 500),
                quantile(&harmed, 990),
                quantile(&harmed, 1000),
            );
            // Half of them each time; nearly all of them, and all but for what the machine itself was late by, in one
            // of several.
            assert!(quantile(&harmed, 500) <= DEADLINE + tolerance(), "{name}: {:?}", quantile(&harmed, 500));
            timely(quantile(&harmed, 990) <= DEADLINE + tolerance(), &format!("{name}: {:?}", quantile(&harmed, 990)));
            let longest = quantile(&harmed, 1000);
            timely(longest <= DEADLINE + longest_tolerance(), &format!("{name}: somebody waited for {longest:?}"));
            // The second time within a second that a server fails it is left alone until the second is over.
            timely(again < ms(1_500), &format!("{name}: {again:?}"));
            if matches!(fault, Fault::Blackhole | Fault::Reset) {
                timely(again < ms(250) + longest_tolerance(), &format!("{name}: {again:?}"));
                // It stays open: nothing that is tried meanwhile is answered. A machine that is late may have opened it
                // before.
                assert!(opened <= 1, "{name}: opened {opened}");
                timely(opened == 1, &format!("{name}: opened before"));
            }
            timely(opened <= 3, &format!("{name}: opened {opened}"));
            timely(connections <= 14, &format!("{name}: {connections} attempts in 600 ms"));
            assert_conserved(&server, &asked, 8);
        });
    }
}

#[test]
fn a_server_that_comes_and_goes_is_not_followed_at_every_turn() {
    let _alone = support::alone();
    in_time(|| {
        let server = RedisServer::start(&[]);
        let proxy = FaultProxy::start(server.address());
        let link = opened(&url(&proxy));
        let load = Load::start(&link, 1_000, 8);
        let begun = Instant::now();
        while begun.elapsed() < ms(3_000) {
            proxy.set(Fault::Reset);
            sleep(ms(200));
            proxy.set(Fault::None);
            sleep(ms(200));
        }
        let again = answered_again(&link, 100);
        let asked = load.finish();
        let all: Vec<_> = asked.iter().collect();
        println!(
            "flapping: {} p99 {:?}; {} connections; well again after {again:?}",
            kinds(&all),
            quantile(&all, 990),
            proxy.accepted()
        );
        timely(count(&link, "opened") <= 5, &format!("opened {}", count(&link, "opened")));
        timely(proxy.accepted() <= 45, &format!("{} connections", proxy.accepted()));
        timely(quantile(&all, 990) <= DEADLINE + tolerance(), "late");
        timely(again < ms(1_500), &format!("{again:?}"));
        assert_conserved(&server, &asked, 8);
    });
}

/// Asks, and says whether there was an answer and whether it was that of another question.
async fn ask_anything(link: &RedisLink, tag: u64) -> (bool, bool) {
    let (key, token) = (support::key(tag), format!("t{tag}:"));
    let answer = link.call(Request::new(Tag::new(tag), [key.as_bytes()], token.as_bytes(), false)).await;
    let strayed = answer.as_ref().is_ok_and(|answer| !answer.starts_with(token.as_bytes()));
    (answer.is_ok(), strayed)
}

/// What is damaged where it is read, or does not fit to how many were asked, ends the connection. What still reads as
/// an answer to as many questions is taken for one: order is all that links have.
#[test]
fn answers_that_are_damaged_or_in_the_wrong_order_end_the_connection_and_nothing_else() {
    let _alone = support::alone();
    let server = RedisServer::start(&[]);
    for fault in [Fault::Corrupt { every: 37 }, Fault::Corrupt { every: 3 }, Fault::Swap] {
        let proxy = FaultProxy::start(server.address());
        let link = opened_with(&url(&proxy), Settings { deadline: ms(50), ..Settings::default() });
        let runtime = runtime();
        let ask_twenty = |asked: &mut Vec<(bool, bool)>| {
            let asks = (0..20).map(|tag| {
                let link = link.clone();
                runtime.spawn(async move { ask_anything(&link, tag).await })
            });
            let asks: Vec<_> = asks.collect();
            asked.extend(asks.into_iter().map(|ask| runtime.block_on(ask).expect("no panic")));
        };
        proxy.set(fault.clone());
        let mut asked = Vec::new();
        eventually("it is noticed", || {
            ask_twenty(&mut asked);
            count(&link, "nonsense") > 0
        });
        proxy.set(Fault::None);
        let again = answered_again(&link, 1);
        let (failed, strayed) =
            (asked.iter().filter(|asked| !asked.0).count(), asked.iter().filter(|asked| asked.1).count());
        println!(
            "{fault:?}: of {} {failed} without an answer and {strayed} with another's, well after {again:?}",
            asked.len()
        );
        assert!(count(&link, "connected") >= 2, "{fault:?}: there is another connection");
        // What was wrong is gone with its connections.
        let mut asked = Vec::new();
        (0..20).for_each(|_| ask_twenty(&mut asked));
        assert!(asked.iter().all(|(_, strayed)| !strayed), "{fault:?} outlived itself");
        assert_eq!(count(&link, "panicked"), 0);
    }
}

#[test]
fn nonsense_closes_the_connection_and_is_counted() {
    let _alone = support::alone();
    let server = RedisServer::start(&[]);
    for nonsense in [
        &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
        b"$1073741824\r\n",
        b"*2\r\n$1\r\na\r\n$1\r\nb\r\n",
        b"*1\r\n:1\r\n",
        b"+OK\r\n",
        b">1\r\n+push\r\n",
        b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n",
        b"\0\0\0\0",
    ] {
        let proxy = FaultProxy::start(server.address());
        let link = patient(&url(&proxy));
        proxy.set(Fault::Say(nonsense.to_vec()));
        let error = runtime().block_on(ask(&link, 0)).expect_err("nonsense");
        assert!(matches!(error.why, Why::Nonsense(_)), "{}: {error}", nonsense.escape_ascii());
        assert!(error.may_have_run());
        assert!(count(&link, "nonsense") > 0);
        proxy.set(Fault::None);
        answered_again(&link, 0);
    }
}

#[test]
fn every_refusal_has_its_words_and_none_is_the_end() {
    let _alone = support::alone();
    let server = RedisServer::start(&[]);
    for (line, word, drops) in [
        ("LOADING Redis is loading the dataset in memory", Word::Loading, false),
        ("BUSY Redis is busy running a script.", Word::Busy, false),
        (
            "OOM command not allowed when used memory > 'maxmemory'. script: 0a, on @user_script:1.",
            Word::OutOfMemory,
            false,
        ),
        ("MISCONF Redis is configured to save RDB snapshots", Word::Misconfigured, false),
        ("NOREPLICAS Not enough good replicas to write. script: 0a", Word::NoReplicas, false),
        ("CLUSTERDOWN The cluster is down", Word::ClusterDown, false),
        ("NOPERM this user has no permissions", Word::NoPermission, false),
        ("CROSSSLOT Keys in request don't hash to the same slot", Word::CrossSlot, false),
        ("EXECABORT Transaction discarded", Word::Other, false),
        ("ERR Error running script: killed by user", Word::Other, false),
        ("TRYAGAIN Multiple keys request during rehashing of slot", Word::TryAgain, false),
        ("READONLY You can't write against a read only replica. script: 0a", Word::ReadOnly, true),
        ("NOAUTH Authentication required.", Word::NoAuth, true),
        ("WRONGPASS invalid username-password pair or user is disabled.", Word::WrongPass, true),
        ("ERR max number of clients reached", Word::MaxClients, true),
    ] {
        in_time(|| {
            let proxy = FaultProxy::start(server.address());
            let link = patient(&url(&proxy));
            let runtime = runtime();
            proxy.set(Fault::Say(format!("-{line}\r\n").into_bytes()));
            let connections = proxy.accepted();
            let mut refusals = 0;
            let rest = loop {
                match runtime.block_on(ask(&link, 0)).expect_err(line).why {
                    Why::Refused(refusal) => {
                        assert_eq!(refusal.word, word, "{line}");
                        refusals += 1;
                    }
                    other => break other,
                }
            };
            assert!(matches!(rest, Why::Resting(_)), "{line}: {rest:?}");
            assert!((1..=8).contains(&refusals), "{line}: {refusals}");
            assert!(rest.to_string().contains(line.split(' ').next().expect("a word")), "{rest}");
            assert_eq!(refusals == 1, drops, "{line}: {refusals}");
            if !drops {
                assert_eq!(proxy.accepted(), connections, "{line}: the connection stays");
            }
            proxy.set(Fault::None);
            let again = answered_again(&link, 0);
            timely(again < ms(400), &format!("{line}: {again:?}"));
        });
    }
}

#[test]
fn a_connection_that_was_forgotten_while_idle_is_replaced_before_anybody_asks() {
    let _alone = support::alone();
    in_time(|| {
        let server = RedisServer::start(&[]);
        let proxy = FaultProxy::start(server.address());
        // What is asked of an idle connection may take as long as what callers ask.
        let link = opened_with(&url(&proxy), Settings { deadline: ms(200), ..Settings::default() });
        assert!(runtime().block_on(ask(&link, 0)).is_ok());
        proxy.forget_connections();
        let noticed = eventually("it is noticed", || count(&link, "connected") >= 2);
        timely(noticed < ms(1_600), &format!("{noticed:?}"));
        let again = answered_again(&link, 0);
        timely(again < ms(100), &format!("{again:?}"));
        assert_eq!(count(&link, "deadline"), 0, "nobody waited for it");
    });
}

#[test]
fn callers_who_go_away_leave_no_answer_behind_for_others() {
    let _alone = support::alone();
    let server = RedisServer::start(&[]);
    let proxy = FaultProxy::start(server.address());
    proxy.set(Fault::Delay { by: ms(2), jitter: ms(2) });
    let link = patient(&url(&proxy));
    runtime().block_on(async {
        let mut tasks = Vec::new();
        for number in 0..3_000u64 {
            let link = link.clone();
            tasks.push(tokio::spawn(async move {
                if number % 3 == 0 {
                    let _ =
                        tokio::time::timeout(Duration::from_micros(number * 7 % 5_000), ask(&link, number % 8)).await;
                } else {
                    ask(&link, number % 8).await.expect("an answer");
                }
            }));
            if number % 50 == 0 {
                tokio::time::sleep(ms(1)).await;
            }
        }
        for task in tasks {
            task.await.expect("nobody gets another's answer");
        }
    });
    assert_eq!(link.health().first().map(|health| health.standing), Some(Standing::Serving));
}
