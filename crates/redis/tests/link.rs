//! Links to one server: answers, coalescing, deadlines, and whatever can happen to a Redis.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "real servers take real time")]
#![allow(clippy::print_stdout, reason = "what was measured is shown")]

mod support;

use std::time::{Duration, Instant};

use support::{
    Asked, Load, answered_again, ask, assert_conserved, between, in_time, kinds, longest_tolerance, ms, open, opened,
    opened_with, patient, quantile, runtime, sleep, timely, tolerance,
};
use tollgate_redis::link::{Settings, Standing, Why};
use tollgate_sim::redis::{RedisServer, eventually, free_port};

const DEADLINE: Duration = ms(5);

fn url(server: &RedisServer) -> String {
    format!("redis://{}", server.address())
}

#[test]
fn callers_of_several_runtimes_are_answered_and_share_calls() {
    let _alone = support::alone();
    let server = RedisServer::start(&[]);
    let link = opened_with(&url(&server), Settings { deadline: Duration::from_secs(2), ..Settings::default() });
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let link = link.clone();
            std::thread::spawn(move || {
                runtime().block_on(async {
                    let tasks: Vec<_> = (0..500)
                        .map(|number| {
                            let link = link.clone();
                            tokio::spawn(async move { ask(&link, number % 7).await.expect("an answer") })
                        })
                        .collect();
                    for task in tasks {
                        task.await.expect("an answer");
                    }
                });
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("all are answered"));
    let [health] = &*link.health() else { panic!("one server") };
    assert_eq!(health.standing, Standing::Serving);
    assert_eq!((health.count("requests"), health.count("answered")), (1500, 1500));
    assert!(health.count("calls") < 500, "{}", health.count("calls"));
    let counts: u64 = (0..7).map(|tag| server.cli(&["GET", &support::key(tag)]).parse::<u64>().expect("a count")).sum();
    assert_eq!(counts, 1500, "each was carried out once");
}

#[test]
fn a_killed_server_costs_nobody_time_and_comes_back_by_itself() {
    let _alone = support::alone();
    in_time(|| {
        let mut server = RedisServer::start(&[]);
        // A connection that is lost is known at once, whatever the deadline.
        let link = patient(&url(&server));
        let load = Load::start(&link, 5_000, 16);
        sleep(ms(300));
        let killed = Instant::now();
        server.kill();
        sleep(ms(700));
        server.restart();
        let back = Instant::now();
        let recovered = eventually("it is asked again", || link.is_serving());
        sleep(ms(420).saturating_sub(back.elapsed()));
        let asked = load.finish();
        let outage = between(&asked, killed, ms(0), back - killed);
        println!(
            "killed: p50 {:?} p99 {:?} max {:?} of {}; recovered in {recovered:?}",
            quantile(&outage, 500),
            quantile(&outage, 990),
            quantile(&outage, 1000),
            outage.len()
        );
        let soon = between(&asked, killed, ms(20), back - killed);
        assert!(quantile(&soon, 500) < tolerance(), "{:?}", quantile(&soon, 500));
        timely(quantile(&soon, 990) < tolerance(), &format!("{:?}", quantile(&soon, 990)));
        timely(recovered < ms(250) + longest_tolerance(), &format!("{recovered:?}"));
        let after = between(&asked, back, ms(260), ms(400));
        let well = after.iter().filter(|asked| asked.result.is_ok()).count();
        println!("afterwards: {}, with a tolerance of {:?}", kinds(&after), tolerance());
        timely(!after.is_empty() && well == after.len(), &kinds(&after));
        let [health] = &*link.health() else { panic!("one server") };
        assert_eq!((health.count("opened"), health.count("closed")), (1, 1));
        assert_eq!(health.count("deadline"), 0, "a connection that is closed is no wait");
        let told = |level: &str| {
            let lines = support::logged(&health.server).into_iter().filter(|line| line.contains(level));
            lines.collect::<Vec<_>>()
        };
        let (warned, informed) = (told(" WARN "), told(" INFO "));
        assert_eq!((warned.len(), informed.len()), (1, 2), "{warned:?} {informed:?}");
    });
}

#[test]
fn a_stopped_server_costs_a_few_their_deadline_and_then_nobody() {
    let _alone = support::alone();
    in_time(|| {
        let server = RedisServer::start(&[]);
        let link = opened(&url(&server));
        let load = Load::start(&link, 5_000, 16);
        sleep(ms(300));
        let stopped = Instant::now();
        server.pause();
        sleep(ms(1_000));
        server.resume();
        let back = Instant::now();
        let recovered = eventually("it is asked again", || link.is_serving());
        sleep(ms(420).saturating_sub(back.elapsed()));
        let asked = load.finish();
        let before: Vec<_> = asked.iter().filter(|asked| asked.begun < stopped).collect();
        println!("before: {}", kinds(&before));
        let outage = between(&asked, stopped, ms(0), back - stopped);
        println!("stopped: {}", kinds(&outage));
        println!(
            "stopped: p50 {:?} p99 {:?} max {:?} of {}; recovered in {recovered:?}",
            quantile(&outage, 500),
            quantile(&outage, 990),
            quantile(&outage, 1000),
            outage.len()
        );
        // Whoever is told at once that nobody is asked pays nothing, whatever else the machine was busy with.
        let is_told = |asked: &&&Asked| matches!(&asked.result, Err(error) if matches!(error.why, Why::Resting(_)));
        let paid: Vec<_> = outage.iter().filter(|asked| !is_told(asked)).collect();
        let last = paid.iter().map(|asked| asked.begun - stopped).max().unwrap_or_default();
        println!("{} paid, the last after {last:?}", paid.len());
        timely(last <= ms(50) + longest_tolerance(), &format!("somebody paid after {last:?}"));
        let soon = between(&asked, stopped, ms(50), back - stopped);
        assert!(quantile(&soon, 500) < tolerance(), "{:?}", quantile(&soon, 500));
        timely(quantile(&soon, 990) < tolerance(), &format!("{:?}", quantile(&soon, 990)));
        let longest = quantile(&outage, 1000);
        timely(longest <= DEADLINE + longest_tolerance(), &format!("somebody waited for {longest:?}"));
        timely(recovered < ms(250) + longest_tolerance(), &format!("{recovered:?}"));
        let after = between(&asked, back, ms(260), ms(400));
        let well = after.iter().filter(|asked| asked.result.is_ok()).count();
        // Not all of them: five milliseconds are within what a machine that others use may keep a process waiting.
        println!("afterwards: {}, with a tolerance of {:?}", kinds(&after), tolerance());
        timely(well * 4 > after.len() * 3, &kinds(&after));
        assert_conserved(&server, &asked, 16);
    });
}

#[test]
fn a_server_that_is_absent_at_the_start_is_joined_when_it_appears() {
    let _alone = support::alone();
    let mut server = RedisServer::absent(free_port(), &[]);
    let link = open(&url(&server));
    let error = runtime().block_on(ask(&link, 0)).expect_err("nobody is there");
    assert!(matches!(error.why, Why::Resting(_)), "{error}");
    sleep(ms(100));
    let error = runtime().block_on(ask(&link, 0)).expect_err("nobody is there");
    assert!(error.to_string().contains("refused"), "{error}");
    server.restart();
    answered_again(&link, 0);
    assert!(link.is_serving());
}

#[test]
fn a_script_that_was_forgotten_is_loaded_again_unnoticed() {
    let _alone = support::alone();
    let server = RedisServer::start(&[]);
    let link = patient(&url(&server));
    let load = Load::start(&link, 2_000, 16);
    for _ in 0..10 {
        sleep(ms(30));
        assert_eq!(server.cli(&["SCRIPT", "FLUSH"]), "OK");
    }
    let asked = load.finish();
    let failed = asked.iter().filter(|asked| asked.result.is_err()).count();
    let [health] = &*link.health() else { panic!("one server") };
    assert!(health.count("reloaded") >= 5, "{:?}", health.counts);
    assert_eq!(failed, 0, "of {}", asked.len());
}
