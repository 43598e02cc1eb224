//! The gateway and its servers: which of them is asked, what is done when one fails, and that nobody notices a change.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "gateway/origin.rs"]
mod origin;
mod support;
#[path = "support/wire.rs"]
mod wire;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use origin::Origin;
use quanta::Instant;
use support::{Answer, Service, eventually, http};
use wire::{Connection, Heard};

fn get(at: SocketAddr, path: &str) -> Answer {
    http(at, &format!("GET {path} HTTP/1.1"), "")
}

/// A gateway before servers of one group, of which more is said.
fn before(servers: &[SocketAddr], more: &str) -> Service {
    let servers: Vec<String> = servers.iter().map(|server| format!("'http://{server}'")).collect();
    let file = format!(
        "upstreams:\n  - {{name: api, servers: [{}]{more}}}\nroutes:\n  - {{name: all, upstream: api}}\n",
        servers.join(", ")
    );
    Service::gateway(&file, &["--workers", "1"])
}

/// How many of ten requests each of these servers gets.
fn shares(gateway: &Service, origins: &[Origin]) -> Vec<usize> {
    let asked = |origin: &Origin| origin.seen().iter().filter(|seen| seen.line.contains("/x")).count();
    let before: Vec<usize> = origins.iter().map(asked).collect();
    for _ in 0..10 {
        assert_eq!(get(gateway.proxy(), "/x").status, 200);
    }
    origins.iter().zip(before).map(|(origin, before)| asked(origin) - before).collect()
}

#[test]
fn a_server_that_fails_its_check_is_left_out_and_comes_back() {
    let origins = [Origin::start(), Origin::start()];
    let health = ", health: {path: /health, every: 100ms, failures: 2, successes: 1}";
    let gateway = before(&origins.each_ref().map(|origin| origin.address), health);
    assert_eq!(shares(&gateway, &origins), [5, 5]);
    origins[0].is_well(false);
    eventually("it is left out", || shares(&gateway, &origins) == [0, 10]);
    assert_eq!(shares(&gateway, &origins), [0, 10]);
    origins[0].is_well(true);
    eventually("it comes back", || shares(&gateway, &origins) == [5, 5]);
    // With nobody left, clients are told so.
    origins.iter().for_each(|origin| origin.is_well(false));
    eventually("nobody is asked", || get(gateway.proxy(), "/x").status == 503);
    let answer = get(gateway.proxy(), "/x");
    assert!(answer.body.contains("no server is available"), "{}", answer.body);
    assert_eq!(answer.header("retry-after"), Some("1"));
}

#[test]
fn where_a_server_cannot_be_reached_the_next_is_tried() {
    let origins = [Origin::start()];
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gateway = before(&[dead, origins[0].address], "");
    for _ in 0..3 {
        assert_eq!(shares(&gateway, &origins), [10]);
    }
    // What may not be sent twice is sent on as well: it was never sent.
    for _ in 0..4 {
        assert_eq!(http(gateway.proxy(), "POST /x HTTP/1.1", "body").status, 200);
    }
}

/// However many servers there are, each of them is asked, and the last that can be reached is found.
#[test]
fn a_group_is_as_large_as_it_has_to_be() {
    let origins: Vec<Origin> = (0..70).map(|_| Origin::start()).collect();
    let addresses: Vec<SocketAddr> = origins.iter().map(|origin| origin.address).collect();
    let gateway = before(&addresses, "");
    for _ in 0..origins.len() {
        assert_eq!(get(gateway.proxy(), "/x").status, 200);
    }
    assert!(origins.iter().all(|origin| origin.seen().len() == 1), "each in its turn");
    // All of them are free at the same time, so that no two are the same.
    let dead: Vec<TcpListener> = (0..130).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let mut addresses: Vec<SocketAddr> = dead.iter().map(|listener| listener.local_addr().unwrap()).collect();
    drop(dead);
    addresses.push(origins[0].address);
    assert_eq!(get(before(&addresses, "").proxy(), "/x").status, 200);
    addresses.pop();
    assert_eq!(get(before(&addresses, "").proxy(), "/x").status, 502);
}

/// A server that takes requests and does not answer is asked three times, and then left alone.
#[test]
fn a_server_that_fails_is_left_alone() {
    let origin = Origin::start();
    let bad = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = bad.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in bad.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 1 << 10]);
        }
    });
    let gateway = before(&[address, origin.address], "");
    let statuses: Vec<u16> = (0..30).map(|_| get(gateway.proxy(), "/x").status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 502).count(), 3, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 27, "{statuses:?}");
    assert!(statuses[10..].iter().all(|status| *status == 200), "{statuses:?}");
}

/// Who is alone is asked on, and nobody is told otherwise.
#[test]
fn a_server_without_another_is_asked_on() {
    let dead = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (servers, said, not_said) in [
        (vec![dead()], "it is asked on", "left alone"),
        (vec![dead(), Origin::start().address], "left alone for a while", "asked on"),
    ] {
        let gateway = before(&servers, "");
        (0..10).for_each(|_| drop(get(gateway.proxy(), "/x")));
        eventually("it is told", || gateway.log().contains("times in a row"));
        let log = gateway.log();
        assert!(log.contains(said) && !log.contains(not_said), "{log}");
    }
}

#[test]
fn a_server_that_takes_no_connection_is_given_up_in_time() {
    // One place for connections that nobody accepts; those that come then wait without an answer.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    socket.bind(&any.into()).unwrap();
    socket.listen(0).unwrap();
    let full = socket.local_addr().unwrap().as_socket().unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&full, Duration::from_millis(300)) {
        waiting.push(stream);
    }
    let gateway = before(&[full], ", connect_timeout: 300ms");
    let begun = Instant::now();
    let answer = get(gateway.proxy(), "/x");
    assert_eq!(answer.status, 504, "{}", answer.body);
    assert!(answer.body.contains("did not answer in time"), "{}", answer.body);
    assert!(begun.elapsed() >= Duration::from_millis(290), "{:?}", begun.elapsed());
}

/// An answer may be announced, and not for ever, however slowly.
#[test]
fn a_server_that_only_announces_an_answer_is_given_up() {
    let origin = Origin::start();
    let gateway = before(&[origin.address], "");
    let answer = get(gateway.proxy(), "/interim/16");
    assert_eq!((answer.status, &*answer.body), (200, "ok"));
    let answer = get(gateway.proxy(), "/interim/17");
    assert_eq!(answer.status, 502, "{}", answer.body);
    assert!(answer.body.contains("cannot be understood"), "{}", answer.body);
}

/// What a client sends is with the server before the client has sent all of it.
#[test]
fn uploads_stream_as_they_come() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let gateway = before(&[listener.local_addr().unwrap()], "");
    for (lines, first, last) in [
        ("Content-Length: 10", "first", "-last"),
        ("Transfer-Encoding: chunked", "5\r\nfirst\r\n", "5\r\n-last\r\n0\r\n\r\n"),
    ] {
        let mut client = TcpStream::connect(gateway.proxy()).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        client
            .write_all(format!("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lines}\r\n\r\n{first}").as_bytes())
            .unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut seen = String::new();
        let mut read = |until: &str| {
            while !seen.contains(until) {
                let mut bytes = [0; 1 << 10];
                let now = server.read(&mut bytes).unwrap();
                assert!(now > 0, "{seen}");
                seen.push_str(std::str::from_utf8(&bytes[..now]).unwrap());
            }
        };
        read("first");
        client.write_all(last.as_bytes()).unwrap();
        read("last");
        server.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{answer}");
    }
}

/// Requests that are on their way when the gateway is told to go are answered to the end, by HTTP/1.1 and HTTP/2.
#[test]
fn what_is_on_its_way_is_answered_before_the_gateway_goes() {
    let origin = Origin::start();
    let gateway = before(&[origin.address], "");
    let at = gateway.proxy();
    let mut plain = TcpStream::connect(at).unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    plain.write_all(b"GET /drip/20 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut answer = runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(at).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let mut client = client.ready().await.unwrap();
        let head = http::Request::get("http://a/drip/20").body(()).unwrap();
        let answer = client.send_request(head, true).unwrap().0.await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.into_body()
    });
    eventually("both are on their way", || origin.seen().len() == 2);
    gateway.signal("TERM");
    let all = runtime.block_on(async {
        let mut all = Vec::new();
        while let Some(piece) = answer.data().await {
            all.extend_from_slice(&piece.expect("it is not cut off"));
        }
        String::from_utf8(all).unwrap()
    });
    assert!(all.starts_with("0\n") && all.ends_with("\n19\n"), "{all}");
    let mut text = String::new();
    plain.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("19\n\r\n0\r\n\r\n"), "{text}");
    assert!(gateway.wait().success());
}

/// [A5] Routes change all the time, and no request of many fails.
#[test]
fn routes_change_under_load_without_a_failed_request() {
    let origins = [Origin::start(), Origin::start()];
    let path = support::scratch("gateway.yaml");
    let put = |number: usize| {
        let new = path.with_extension("new");
        let text = format!(
            "routes:\n  - {{name: all, upstream: 'http://{}'}}\nrules:\n  - {{name: r{number}, per: ip, limits: 1000000/s}}\n",
            origins[number % 2].address
        );
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, &path).unwrap();
    };
    put(0);
    let gateway = Service::gateway_with(&["--config", &path.display().to_string()]);
    let (stop, answers) = (AtomicBool::new(false), AtomicUsize::new(0));
    let failures: Vec<String> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut connection = Connection::open(gateway.proxy()).unwrap();
                    let mut failures = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        match connection.http("POST /x HTTP/1.1", "body") {
                            Heard::Answer(answer) if answer.status == 200 => {
                                answers.fetch_add(1, Ordering::Relaxed);
                            }
                            Heard::Answer(answer) => failures.push(format!("{}: {}", answer.status, answer.body)),
                            Heard::Closed => return vec!["closed".to_owned()],
                            Heard::Failed(why) => return vec![why],
                        }
                    }
                    failures
                })
            })
            .collect();
        for number in 1..6 {
            let before = origins[number % 2].seen().len();
            put(number);
            eventually("the other server is asked", || origins[number % 2].seen().len() > before + 10);
        }
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    assert!(failures.is_empty(), "{failures:?}");
    let seen: usize = origins.iter().map(|origin| origin.seen().len()).sum();
    assert_eq!(seen, answers.load(Ordering::Relaxed), "each request reached one server");
}

/// [A10] What is exempt passes whatever the limits say, and others do not.
#[test]
fn whoever_is_exempt_passes() {
    let origin = Origin::start();
    let file = format!(
        "routes:\n  - {{name: all, upstream: 'http://{}'}}\nexempt:\n  - {{ip: 10.0.0.0/8}}\n  - {{path: /health}}\n\
         rules:\n  - {{name: none, per: ip, limits: 0/d}}\n",
        origin.address
    );
    let gateway = Service::gateway(&file, &[]);
    for (from, path, status) in
        [("10.1.2.3", "/x", 200), ("11.1.2.3", "/x", 429), ("11.1.2.3", "/health", 200), ("11.1.2.3", "/healthy", 429)]
    {
        let answer = http(gateway.proxy(), &format!("GET {path} HTTP/1.1\nX-Forwarded-For: {from}"), "");
        assert_eq!(answer.status, status, "{from} {path}: {}", answer.body);
    }
}
