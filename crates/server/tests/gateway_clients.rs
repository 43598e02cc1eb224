//! Clients of the gateway that are slow, stall, speak HTTP/2 or want to speak something else.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "gateway/origin.rs"]
mod origin;
mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use http::{Request, Response};
use origin::Origin;
use quanta::Instant;
use support::{Service, eventually, http};

/// A gateway that gives this server two requests at a time, and clients two seconds.
fn narrow(origin: &Origin) -> Service {
    let file = format!(
        "upstreams:\n  - {{name: api, servers: 'http://{}', overload: {{max_concurrent: 2}}}}\nroutes:\n  \
         - {{name: all, upstream: api}}\n",
        origin.address
    );
    Service::gateway(&file, &["--http-timeout", "2s"])
}

fn get(at: SocketAddr, path: &str) -> u16 {
    http(at, &format!("GET {path} HTTP/1.1"), "").status
}

fn connect(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("it is closed before this test gives up");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Does something as a client of HTTP/2.
fn by_http2<T>(at: SocketAddr, builder: &Builder, does: impl AsyncFnOnce(SendRequest<Bytes>) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(at).await.unwrap();
        let (client, connection) = builder.handshake(stream).await.unwrap();
        tokio::spawn(connection);
        tokio::time::timeout(Duration::from_secs(20), does(client)).await.expect("it takes no more than 20 s")
    })
}

fn request(method: &str, path: &str) -> http::request::Builder {
    Request::builder().method(method).uri(format!("http://a{path}"))
}

async fn body(answer: Response<h2::RecvStream>) -> String {
    let mut body = answer.into_body();
    let mut all = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.unwrap();
        let _ = body.flow_control().release_capacity(piece.len());
        all.extend_from_slice(&piece);
    }
    String::from_utf8(all).unwrap()
}

/// A body that is announced and does not come holds a server's place for as long as a client may take, and no longer.
#[test]
fn whoever_does_not_send_what_it_announced_is_told_and_left() {
    let origin = Origin::start();
    let gateway = narrow(&origin);
    let at = gateway.proxy();
    let mut stalled: Vec<TcpStream> = [
        "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello",
        "PUT /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe",
    ]
    .iter()
    .map(|start| {
        let mut stream = connect(at);
        stream.write_all(start.as_bytes()).unwrap();
        stream
    })
    .collect();
    eventually("both are on their way", || origin.connections() == 2);
    assert_eq!(get(at, "/y"), 503, "both places are taken");
    for stream in &mut stalled {
        let answer = rest(stream);
        assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("did not come in time"), "{answer}");
    }
    assert_eq!(get(at, "/y"), 200);
    // Whoever is slow, and not silent, is not left.
    let mut stream = connect(at);
    stream.write_all(b"POST /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 8\r\n\r\n").unwrap();
    for _ in 0..8 {
        support::pause(Duration::from_millis(400));
        stream.write_all(b"x").unwrap();
    }
    assert!(rest(&mut stream).starts_with("HTTP/1.1 200"));
}

#[test]
fn streams_of_http2_that_stall_are_told_and_left() {
    let origin = Origin::start();
    let gateway = narrow(&origin);
    let at = gateway.proxy();
    by_http2(at, &Builder::new(), async |client| {
        let mut client = client.ready().await.unwrap();
        let mut answers = Vec::new();
        for _ in 0..2 {
            let head = request("POST", "/x").header("content-length", "10").body(()).unwrap();
            answers.push(client.send_request(head, false).unwrap());
        }
        for (answer, _sender) in answers {
            let answer = answer.await.unwrap();
            assert_eq!(answer.status(), 408);
            assert!(body(answer).await.contains("did not come in time"));
        }
    });
    assert_eq!(get(at, "/y"), 200);
}

/// An answer that nobody takes: with a window of nothing, no byte of it can be sent.
#[test]
fn answers_that_nobody_takes_are_not_kept() {
    let origin = Origin::start();
    let gateway = narrow(&origin);
    let at = gateway.proxy();
    for path in ["/bytes/1000000", "/bytes/10"] {
        let mut shut = Builder::new();
        shut.initial_window_size(0);
        by_http2(at, &shut, async |client| {
            let mut client = client.ready().await.unwrap();
            let mut answers = Vec::new();
            for _ in 0..2 {
                let head = request("GET", path).body(()).unwrap();
                let answer = client.send_request(head, true).unwrap().0.await.unwrap();
                assert_eq!(answer.status(), 200);
                answers.push(answer.into_body());
            }
            let is_full = tokio::task::spawn_blocking(move || get(at, "/y")).await.unwrap();
            assert_eq!(is_full, 503, "both places are taken");
            for mut answer in answers {
                let error = answer.data().await.unwrap().unwrap_err();
                assert!(error.is_reset() && error.is_remote(), "{error}");
            }
        });
        eventually("the places are free again", || get(at, "/y") == 200);
    }
    // Whoever takes it slowly gets all of it.
    by_http2(at, &Builder::new(), async |client| {
        let mut client = client.ready().await.unwrap();
        let head = request("GET", "/bytes/600000").body(()).unwrap();
        let mut answer = client.send_request(head, true).unwrap().0.await.unwrap().into_body();
        let mut taken = 0;
        while let Some(piece) = answer.data().await {
            taken += piece.as_ref().unwrap().len();
            tokio::time::sleep(Duration::from_millis(70)).await;
            let _ = answer.flow_control().release_capacity(piece.unwrap().len());
        }
        assert_eq!(taken, 600_000);
    });
}

#[test]
fn a_client_that_does_not_read_is_left_by_http1_as_well() {
    let origin = Origin::start();
    let gateway = narrow(&origin);
    let at = gateway.proxy();
    let streams: Vec<TcpStream> = (0..2)
        .map(|_| {
            let mut stream = connect(at);
            stream.write_all(b"GET /bytes/100000000 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            stream
        })
        .collect();
    eventually("both are on their way", || origin.seen().len() == 2);
    assert_eq!(get(at, "/y"), 503, "both places are taken");
    eventually("they are free again", || get(at, "/y") == 200);
    drop(streams);
}

#[test]
fn clients_that_are_slow_with_their_heads_are_left_and_others_are_unharmed() {
    let origin = Origin::start();
    let file = format!("routes:\n  - {{name: all, upstream: 'http://{}'}}\n", origin.address);
    let gateway = Service::gateway(&file, &["--http-timeout", "500ms"]);
    let at = gateway.proxy();
    let mut streams: Vec<TcpStream> = (0..50)
        .map(|number| {
            let mut stream = connect(at);
            let start =
                ["", "G", "GET / HTTP/1.1\r\nHost: a\r\nX-Slow:", "PRI * HTT", "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET"];
            stream.write_all(start[number % start.len()].as_bytes()).unwrap();
            stream
        })
        .collect();
    assert_eq!(get(at, "/y"), 200);
    let begun = Instant::now();
    for (number, stream) in streams.iter_mut().enumerate() {
        let heard = rest(stream);
        assert_eq!(heard.starts_with("HTTP/1.1 200"), number % 5 == 4, "{number}: {heard}");
    }
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

/// By HTTP/2 cookies may come one by one; servers of HTTP/1.1 get one line of them.
#[test]
fn cookies_of_http2_are_one_line_to_the_server() {
    let origin = Origin::start();
    let gateway = narrow(&origin);
    by_http2(gateway.proxy(), &Builder::new(), async |client| {
        let mut client = client.ready().await.unwrap();
        let head = request("GET", "/x").header("cookie", "a=1").header("cookie", "b=2; c=3").body(()).unwrap();
        let answer = client.send_request(head, true).unwrap().0.await.unwrap();
        assert_eq!(answer.status(), 200);
    });
    assert_eq!(origin.last().header("cookie"), Some("a=1; b=2; c=3"));
}

#[test]
fn bodies_of_http2_stream_both_ways() {
    let origin = Origin::start();
    let gateway = narrow(&origin);
    by_http2(gateway.proxy(), &Builder::new(), async |client| {
        let mut client = client.ready().await.unwrap();
        // A piece of the answer is here before the last is there.
        let begun = Instant::now();
        let head = request("GET", "/drip/20").body(()).unwrap();
        let mut answer = client.send_request(head, true).unwrap().0.await.unwrap().into_body();
        assert_eq!(&answer.data().await.unwrap().unwrap()[..2], b"0\n");
        assert!(begun.elapsed() < Duration::from_millis(800), "{:?}", begun.elapsed());
        while let Some(piece) = answer.data().await {
            piece.unwrap();
        }
        assert!(begun.elapsed() >= Duration::from_millis(900), "{:?}", begun.elapsed());
        // A body of unknown length, and one whose length is told.
        for length in [None, Some("11")] {
            let mut head = request("POST", "/x");
            if let Some(length) = length {
                head = head.header("content-length", length);
            }
            let (answer, mut sender) = client.send_request(head.body(()).unwrap(), false).unwrap();
            sender.send_data(Bytes::from_static(b"hello "), false).unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
            sender.send_data(Bytes::from_static(b"world"), true).unwrap();
            assert_eq!(body(answer.await.unwrap()).await, "POST /x HTTP/1.1 11");
            let seen = origin.last();
            assert_eq!((&*seen.body, seen.header("content-length")), (&b"hello world"[..], length));
        }
    });
}

/// A client that cancels a stream is not answered further: the server's place is free, and other streams go on.
#[test]
fn a_stream_of_http2_that_is_cancelled_is_given_up() {
    let origin = Origin::start();
    let gateway = narrow(&origin);
    let at = gateway.proxy();
    by_http2(at, &Builder::new(), async |client| {
        let mut client = client.ready().await.unwrap();
        let mut cancelled = Vec::new();
        for path in ["/silence", "/drip/1000"] {
            let head = request("GET", path).body(()).unwrap();
            cancelled.push(client.send_request(head, true).unwrap());
        }
        while origin.seen().len() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let status = tokio::task::spawn_blocking(move || get(at, "/y")).await.unwrap();
        assert_eq!(status, 503, "both places are taken");
        for (_, sender) in &mut cancelled {
            sender.send_reset(h2::Reason::CANCEL);
        }
        loop {
            let answer = client.send_request(request("GET", "/y").body(()).unwrap(), true).unwrap().0.await.unwrap();
            if answer.status() == 200 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

/// Reads until what was read ends in this.
fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let (mut read, mut byte) = (Vec::new(), [0]);
    while !read.ends_with(end.as_bytes()) {
        stream.read_exact(&mut byte).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&read)));
        read.push(byte[0]);
    }
    String::from_utf8_lossy(&read).into_owned()
}

#[test]
fn only_what_a_route_names_becomes_a_tunnel() {
    let origin = Origin::start();
    let at = origin.address;
    let file = format!(
        "routes:\n  - {{name: own, path: /websocket/own, upstream: 'http://{at}', upgrades: [own/1]}}\n  \
         - {{name: all, upstream: 'http://{at}'}}\n"
    );
    let gateway = Service::gateway(&file, &[]);
    let ask = |path: &str, upgrade: &str| {
        let mut stream = connect(gateway.proxy());
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: {upgrade}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let status = read_until(&mut stream, "\r\n");
        (status, origin.last().header("upgrade").map(str::to_owned))
    };
    // What is not for a tunnel is asked for without one.
    assert_eq!(ask("/x", "h2c"), ("HTTP/1.1 200 OK\r\n".to_owned(), None));
    assert_eq!(ask("/x", "websocket, h2c"), ("HTTP/1.1 200 OK\r\n".to_owned(), None));
    assert_eq!(ask("/websocket/own", "websocket"), ("HTTP/1.1 502 Bad Gateway\r\n".to_owned(), None));
    // A server that switches without being asked, or to something else, is not understood.
    let unasked = http(gateway.proxy(), "GET /websocket HTTP/1.1", "");
    assert_eq!(unasked.status, 502);
    assert!(unasked.body.contains("cannot be understood"), "{}", unasked.body);
    let (status, asked) = ask("/websocket/own", "own/1");
    assert_eq!((&*status, asked.as_deref()), ("HTTP/1.1 502 Bad Gateway\r\n", Some("own/1")));
    let (status, asked) = ask("/websocket", "WebSocket");
    assert_eq!((&*status, asked.as_deref()), ("HTTP/1.1 101 Switching Protocols\r\n", Some("WebSocket")));
}

#[test]
fn what_may_be_spoken_in_a_tunnel_is_no_http() {
    let path = support::scratch("gateway.yaml");
    std::fs::write(
        &path,
        "routes:\n  - {name: a, upstream: 'http://127.0.0.1:9', upgrades: [websocket, h2c, 'HTTP/2.0']}\n",
    )
    .unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tollgate"));
    let output = command.arg("check").arg(&path).output().unwrap();
    let told = [output.stdout, output.stderr].concat();
    let told = String::from_utf8_lossy(&told);
    assert!(!output.status.success(), "{told}");
    for said in ["`h2c` is nothing that a tunnel may be for", "`HTTP/2.0` is nothing"] {
        assert!(told.contains(said), "{told}");
    }
}

#[test]
fn a_tunnel_through_which_nothing_passes_ends_and_others_do_not() {
    let origin = Origin::start();
    let file = format!(
        "upstreams:\n  - {{name: api, servers: 'http://{}', tunnel_timeout: 2s, overload: {{max_concurrent: 2}}}}\n\
         routes:\n  - {{name: all, upstream: api}}\n",
        origin.address
    );
    let gateway = Service::gateway(&file, &[]);
    let open = || {
        let mut stream = connect(gateway.proxy());
        stream
            .write_all(b"GET /websocket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
            .unwrap();
        read_until(&mut stream, "hello");
        stream
    };
    let (mut idle, mut busy) = (open(), open());
    assert_eq!(get(gateway.proxy(), "/y"), 503);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(3_500) {
        busy.write_all(b"ping").unwrap();
        assert_eq!(read_until(&mut busy, "PING"), "PING");
        support::pause(Duration::from_millis(100));
    }
    assert_eq!(rest(&mut idle), "");
    eventually("its place is free", || get(gateway.proxy(), "/y") == 200);
    busy.write_all(b"ping").unwrap();
    assert_eq!(read_until(&mut busy, "PING"), "PING");
}
