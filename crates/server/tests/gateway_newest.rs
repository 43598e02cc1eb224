//! Lines before limits as clients meet them: in which order, how long, and what they are told of it.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "gateway/origin.rs"]
mod origin;
mod support;

use std::io::Write;
use std::net::TcpStream;
use std::thread::JoinHandle;
use std::time::Duration;

use origin::Origin;
use quanta::Instant;
use support::{Answer, Service, eventually, http, within};

fn before(origin: &Origin, limit: &str) -> Service {
    let file = format!(
        "routes:\n  - {{name: all, upstream: 'http://{}'}}\nrules:\n  - {{name: r, per: ip, limits: [{limit}]}}\n",
        origin.address
    );
    Service::gateway(&file, &[])
}

fn get(gateway: &Service, path: &str) -> Answer {
    http(gateway.proxy(), &format!("GET {path} HTTP/1.1"), "")
}

/// How many stand in line.
fn waiting(gateway: &Service) -> usize {
    let metrics = http(gateway.admin(), "GET /metrics HTTP/1.1", "").body;
    metrics.lines().find_map(|line| line.strip_prefix("tollgate_limit_waiting ")).unwrap().parse().unwrap()
}

/// One after the other, each when the one before it is in line: the first goes through at once.
fn in_turn(gateway: &Service, number: usize) -> Vec<JoinHandle<Answer>> {
    let proxy = gateway.proxy();
    assert_eq!(get(gateway, "/0").status, 200);
    let mut asking: Vec<JoinHandle<Answer>> = Vec::new();
    for number in 1..=number {
        asking.push(std::thread::spawn(move || http(proxy, &format!("GET /{number} HTTP/1.1"), "")));
        let answered = || asking.iter().filter(|asking| asking.is_finished()).count();
        eventually("it is in line", || waiting(gateway) + answered() >= number);
    }
    asking
}

fn paths(origin: &Origin) -> Vec<String> {
    let mut seen = origin.seen();
    seen.sort_by_key(|seen| seen.at);
    seen.iter().map(|seen| seen.line.split(' ').nth(1).unwrap().to_owned()).collect()
}

fn number(answer: &Answer, header: &str) -> f64 {
    answer.header(header).unwrap_or_else(|| panic!("{header}: {:?}", answer.headers)).parse().unwrap()
}

const POSITION: &str = "x-tollgate-queue-position";
const WAITED: &str = "x-tollgate-waited";
const EXPECTED: &str = "x-tollgate-expected-wait";

/// [D10] Who comes first goes first, unless the limit says otherwise; an even flow in both cases.
#[test]
fn d10_the_newest_go_first_if_the_limit_says_so() {
    for (limit, expected) in [
        ("{rate: 1/s, algorithm: leaky_meter, on_limit: {delay: 9s}}", ["/0", "/1", "/2", "/3"]),
        ("{rate: 1/s, algorithm: leaky_meter, on_limit: {delay: 9s, order: newest_first}}", ["/0", "/3", "/2", "/1"]),
        (
            "{rate: 1/s, algorithm: leaky_bucket, queue: 9, on_limit: {delay: 9s, order: newest_first}}",
            ["/0", "/3", "/2", "/1"],
        ),
    ] {
        let origin = Origin::start();
        let gateway = before(&origin, limit);
        let answers: Vec<Answer> = in_turn(&gateway, 3).into_iter().map(|asking| asking.join().unwrap()).collect();
        assert!(answers.iter().all(|answer| answer.status == 200));
        assert_eq!(paths(&origin), expected, "{limit}");
        let mut times: Vec<Instant> = origin.seen().iter().map(|seen| seen.at).collect();
        times.sort();
        let gaps: Vec<_> = times.windows(2).map(|pair| pair[1].duration_since(pair[0])).collect();
        assert!(gaps.iter().all(|gap| gap.as_millis() >= 800), "{limit}: {gaps:?}");
        let is_newest = limit.contains("newest_first");
        for (index, answer) in answers.iter().enumerate() {
            let position = if is_newest { 1 } else { index + 1 };
            assert_eq!(answer.header(POSITION), Some(&*position.to_string()), "{limit}: /{}", index + 1);
            // Each of those that went before took a second.
            let before = if is_newest { 3 - index } else { index + 1 };
            let waited = number(answer, WAITED);
            assert!(waited > before as f64 - 1.0 && waited < before as f64 + 1.0, "{limit}: {waited}");
        }
    }
}

/// In a line that is full and newest first, whoever has waited longest is refused for who comes.
#[test]
fn who_waited_longest_goes_when_the_queue_is_full() {
    let origin = Origin::start();
    let limit = "{rate: 1/2s, algorithm: leaky_bucket, queue: 2, on_limit: {delay: 20s, order: newest_first}}";
    let gateway = before(&origin, limit);
    let begun = Instant::now();
    let answers: Vec<Answer> = in_turn(&gateway, 3).into_iter().map(|asking| asking.join().unwrap()).collect();
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [429, 200, 200]);
    assert_eq!(paths(&origin), ["/0", "/3", "/2"]);
    // It was behind the two others, at once and not after all that time.
    assert_eq!(answers[0].header(POSITION), Some("3"));
    assert!(number(&answers[0], WAITED) < 2.0 && number(&answers[0], EXPECTED) > 3.9, "{:?}", answers[0].headers);
    assert!(begun.elapsed() >= Duration::from_millis(3_900));
}

/// Who has waited for as long as one may is refused, and told how far it got.
#[test]
fn who_waits_too_long_is_refused_and_told() {
    for order in ["oldest_first", "newest_first"] {
        let origin = Origin::start();
        let limit = format!("{{rate: 1/s, algorithm: leaky_meter, on_limit: {{delay: 1500ms, order: {order}}}}}");
        let gateway = before(&origin, &limit);
        let answers: Vec<Answer> = in_turn(&gateway, 3).into_iter().map(|asking| asking.join().unwrap()).collect();
        let refused: Vec<&Answer> = answers.iter().filter(|answer| answer.status == 429).collect();
        let served = if order == "oldest_first" { &answers[0] } else { &answers[2] };
        assert_eq!((refused.len(), served.status), (2, 200), "{order}");
        for answer in refused {
            assert!(number(answer, POSITION) >= 1.0 && number(answer, EXPECTED) > 0.0, "{:?}", answer.headers);
            assert!(number(answer, WAITED) <= 1.9 && answer.header("retry-after").is_some(), "{:?}", answer.headers);
        }
        assert_eq!(origin.seen().len(), 2, "{order}");
    }
}

/// [B11] In the queue of a leaky bucket everybody has a place and a departure; who finds it full is told of both.
#[test]
fn b11_places_in_a_queue_are_told() {
    let origin = Origin::start();
    let gateway = before(&origin, "{rate: 1/s, algorithm: leaky_bucket, queue: 2}");
    let proxy = gateway.proxy();
    let first = get(&gateway, "/0");
    assert_eq!((first.status, first.header(POSITION), first.header(WAITED)), (200, None, None));
    let waiting = |gateway: &Service| {
        let metrics = http(gateway.admin(), "GET /metrics HTTP/1.1", "").body;
        let line = "tollgate_rule_checks_total{domain=\"default\",rule=\"r\",outcome=\"delayed\"} ";
        metrics.lines().find_map(|known| known.strip_prefix(line)).unwrap().parse::<usize>().unwrap()
    };
    let others: Vec<_> = (1..=2)
        .map(|number| {
            let asking = std::thread::spawn(move || http(proxy, &format!("GET /{number} HTTP/1.1"), ""));
            eventually("it waits", || waiting(&gateway) == number);
            asking
        })
        .collect();
    let refused = get(&gateway, "/3");
    assert_eq!((refused.status, refused.header(POSITION)), (429, Some("3")));
    let expected = number(&refused, EXPECTED);
    assert!(expected > 1.0 && expected <= 3.0, "{expected}");
    for (index, asking) in others.into_iter().enumerate() {
        let answer = asking.join().unwrap();
        assert_eq!((answer.status, answer.header(POSITION)), (200, Some(&*(index + 1).to_string())));
        assert!(number(&answer, WAITED) <= (index + 1) as f64, "{:?}", answer.headers);
    }
}

/// Whoever leaves is not waited for, and never gets to a server: neither the one whose turn it is nor one behind it.
#[test]
fn whoever_leaves_the_line_is_not_served() {
    for order in ["oldest_first", "newest_first"] {
        let origin = Origin::start();
        let limit = format!("{{rate: 1/s, algorithm: leaky_meter, on_limit: {{delay: 9s, order: {order}}}}}");
        let gateway = before(&origin, &limit);
        assert_eq!(get(&gateway, "/0").status, 200);
        let mut streams = Vec::new();
        for number in 1..=4 {
            let mut stream = TcpStream::connect(gateway.proxy()).unwrap();
            write!(stream, "GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            streams.push(stream);
            eventually("it is in line", || waiting(&gateway) + paths(&origin).len() > number);
        }
        let begun = Instant::now();
        let stay = streams.remove(1);
        drop(streams);
        eventually("the one that stays is served", || paths(&origin).contains(&"/2".to_owned()));
        assert!(begun.elapsed() < Duration::from_millis(2_500), "{order}: nobody was waited for");
        assert_eq!(paths(&origin), ["/0", "/2"], "{order}");
        drop(stay);
    }
}

/// Who waits for a place in a queue, and then in it, waits for its departure once.
#[test]
fn a_delay_is_waited_for_once() {
    let right = Duration::from_millis(1_500);
    within(right + Duration::from_millis(400), || {
        let origin = Origin::start();
        let gateway = before(&origin, "{rate: 2/s, algorithm: leaky_bucket, queue: 1, on_limit: {delay: 9s}}");
        let begun = Instant::now();
        let proxy = gateway.proxy();
        let asking: Vec<_> =
            (0..4).map(|_| std::thread::spawn(move || http(proxy, "GET / HTTP/1.1", "").status)).collect();
        assert!(asking.into_iter().all(|asking| asking.join().unwrap() == 200));
        assert!(begun.elapsed() >= Duration::from_millis(1_450), "{:?}", begun.elapsed());
        begun.elapsed()
    });
}
