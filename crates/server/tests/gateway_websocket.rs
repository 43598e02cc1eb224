//! WebSockets through the gateway, by a client and a server of others: all that may be said, and what limits have to
//! say about it.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use support::{Running, Service, python, tool};

const CLIENT: &str = include_str!("gateway/websocket_client.py");

/// A server, and the port that it listens on.
fn server() -> (Running, u16) {
    let mut command = Command::new(tool("python"));
    command.args(["-c", include_str!("gateway/websocket_server.py")]);
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("Python runs");
    let mut said = String::new();
    BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
    (Running(process), said.trim().parse().expect("it says where it listens"))
}

/// A gateway before such a server, with these limits on whoever asks.
fn before(port: u16, limits: &str, args: &[&str]) -> Service {
    let rules = match limits {
        "" => String::new(),
        limits => format!("rules:\n  - {{name: r, per: ip, limits: [{limits}]}}\n"),
    };
    Service::gateway(&format!("routes:\n  - {{name: all, upstream: 'http://127.0.0.1:{port}'}}\n{rules}"), args)
}

/// Has a client do what a script says; each says so at its end.
fn run(gateway: &Service, script: &str, more: &[&str]) {
    let at = gateway.proxy().to_string();
    let said = python(&format!("{CLIENT}\n{script}\nrun(main)\n"), &[&[at.as_str()], more].concat());
    assert_eq!(said.trim(), "done");
}

/// Text and bytes, short and long, in one piece and in many, squeezed or not, by several at a time.
#[test]
fn what_is_said_is_heard() {
    let (_server, port) = server();
    let gateway = before(port, "1000000/s", &[]);
    run(
        &gateway,
        r#"
async def talk(number, **options):
    async with open_at(f"/echo/{number}", **options) as socket:
        assert socket.response.status_code == 101 and "X-Request-Id" in socket.response.headers
        for said in ["", "hello", "größe ☃ 𝄞", "x" * (1 << 20), b"", bytes(range(256)), os.urandom(16 << 20)]:
            await socket.send(said)
            heard = await socket.recv()
            assert type(heard) is type(said) and heard == said, (number, len(said))
        # One message in many pieces.
        await socket.send([os.urandom(1).hex() * 1_000 for _ in range(100)])
        assert len(await socket.recv()) == 200_000
        # Many at once, in order.
        for turn in range(1_000):
            await socket.send(str(turn))
        assert [await socket.recv() for _ in range(1_000)] == [str(turn) for turn in range(1_000)]

async def main():
    await asyncio.gather(*(talk(n, compression=c) for n, c in enumerate([None, "deflate", None, "deflate"])))
    async with open_at("/flood/500") as socket:
        heard = [await socket.recv() for _ in range(500)]
        assert all(len(piece) == 65_536 and piece[0] == n % 256 for n, piece in enumerate(heard))
"#,
        &[],
    );
}

/// Pings are answered by the other end, whichever that is, and not by the gateway; what the handshake agrees on is
/// agreed on with it.
#[test]
fn the_two_ends_speak_with_each_other() {
    let (_server, port) = server();
    let gateway = before(port, "", &[]);
    run(
        &gateway,
        r#"
async def main():
    async with open_at("/echo") as socket:
        for data in [b"", b"0123456789", b"x" * 125]:
            assert 0 <= await (await socket.ping(data)) < 10
    async with open_at("/ping") as socket:
        assert await socket.recv() == "you are"
    for asked, agreed in [(["chat.v1"], "chat.v1"), (["none", "chat.v2"], "chat.v2"), (["none"], None)]:
        async with open_at("/echo", subprotocols=asked) as socket:
            assert socket.subprotocol == agreed, socket.subprotocol
    headers = {"X-Forwarded-For": "1.2.3.4", "X-Request-Id": "mine"}
    async with open_at("/told", origin="http://page.example", additional_headers=headers) as socket:
        told = json.loads(await socket.recv())
    assert told["Origin"] == ["http://page.example"], told
    # Of a peer of this machine the chain goes on.
    assert told["X-Forwarded-For"] == ["1.2.3.4, 127.0.0.1"] and told["X-Forwarded-Proto"] == ["http"], told
    assert told["X-Forwarded-Host"] == [AT] and told["X-Request-Id"] == ["mine"], told
    # What is no handshake is for the server to refuse, in its own words.
    answer = await refused("/echo", additional_headers={"Sec-WebSocket-Version": "7"})
    assert answer.status_code in (400, 426), answer
"#,
        &[],
    );
}

/// Whoever is in a tunnel has some seconds to come to an end when the gateway is told to go; the gateway does not wait
/// for as long as requests may take.
#[test]
fn a_tunnel_does_not_keep_the_gateway() {
    let (_server, port) = server();
    let gateway = before(port, "", &["--drain-delay", "0s"]);
    run(
        &gateway,
        r#"
async def main():
    async with open_at("/echo") as socket:
        os.kill(int(sys.argv[2]), signal.SIGTERM)
        begun = time.monotonic()
        # What is said in time is still heard.
        await asyncio.sleep(1)
        await socket.send("still here")
        assert await socket.recv() == "still here"
        try:
            await socket.recv()
        except ConnectionClosedError as closed:
            assert closed.rcvd is None, closed
        assert 4 <= time.monotonic() - begun < 30, time.monotonic() - begun
"#,
        &[&gateway.id().to_string()],
    );
    assert!(gateway.wait().success());
}

/// Whoever closes says why, and the other end hears it; an end without a word is one.
#[test]
fn each_end_hears_why_the_other_closes() {
    let (_server, port) = server();
    let gateway = before(port, "", &[]);
    run(
        &gateway,
        r#"
async def farewell(path):
    async with open_at("/farewells") as socket:
        return [leave[1:] for leave in json.loads(await socket.recv()) if leave[0] == path]

async def main():
    for code, reason in [(1000, ""), (1001, "the page is closed"), (4001, "größe ☃")]:
        path = f"/echo/{code}"
        async with open_at(path) as socket:
            await socket.close(code, reason)
        async def heard():
            return await farewell(path) == [[code, reason]]
        await eventually(f"{path} is heard of", heard)
    for code in [1000, 1011, 4002]:
        async with open_at(f"/close/{code}") as socket:
            await socket.send("go")
            try:
                await socket.recv()
                raise AssertionError("it is closed")
            except ConnectionClosed as closed:
                assert (closed.rcvd.code, closed.rcvd.reason) == (code, "so it is"), closed
    async with open_at("/abort") as socket:
        await socket.send("go")
        try:
            await socket.recv()
            raise AssertionError("it is gone")
        except ConnectionClosedError as closed:
            assert closed.rcvd is None, closed
    # A client that is gone without a word is missed by the server, too.
    socket = await open_at("/echo/gone")
    socket.transport.abort()
    async def missed():
        return await farewell("/echo/gone") == [[1006, ""]]
    await eventually("it is missed", missed)
"#,
        &[],
    );
}

/// A handshake is a request: over the limit it gets 429 with all that belongs to it, and what goes through the tunnel
/// counts as well.
#[test]
fn a_handshake_over_the_limit_is_refused() {
    let (_server, port) = server();
    let gateway = before(port, "{rate: 2/day, algorithm: fixed_window}", &[]);
    run(
        &gateway,
        r#"
async def main():
    for _ in range(2):
        async with open_at("/echo") as socket:
            for said in ["as", "much", "as", "you", "like"]:
                await socket.send(said)
                assert await socket.recv() == said
    answer = await refused("/echo", additional_headers={"Accept": "application/json"})
    assert answer.status_code == 429, answer
    assert 0 < int(answer.headers["Retry-After"]) <= 86_400 and "Upgrade" not in answer.headers, answer
    told = json.loads(answer.body)
    assert told, answer.body
    plain = await refused("/echo", additional_headers={"Accept": "text/plain"})
    assert plain.headers["Content-Type"].startswith("text/plain"), plain
"#,
        &[],
    );
    for unit in ["bytes", "request_bytes", "response_bytes"] {
        let limit = format!("{{rate: 100000 {unit}/day, algorithm: fixed_window}}");
        let gateway = before(port, &limit, &[]);
        run(
            &gateway,
            r#"
async def main():
    # Less than the limit, and then more: what is open goes on, and the next is refused.
    async with open_at("/echo", compression=None) as socket:
        for _ in range(4):
            await socket.send(os.urandom(10_000))
            await socket.recv()
    async with open_at("/echo", compression=None) as socket:
        for _ in range(20):
            await socket.send(os.urandom(10_000))
            assert len(await socket.recv()) == 10_000
    async def is_refused():
        try:
            async with open_at("/echo"):
                return False
        except InvalidStatus as refusal:
            return refusal.response.status_code == 429
    await eventually("the bytes are charged", is_refused)
"#,
            &[],
        );
    }
}

/// A limit that delays delays handshakes, in order; one on concurrency holds a slot for as long as the tunnel is there.
#[test]
fn handshakes_wait_and_tunnels_hold_slots() {
    let (_server, port) = server();
    let gateway = before(port, "{rate: 2/s, burst: 1, algorithm: token_bucket, on_limit: {delay: 10s}}", &[]);
    run(
        &gateway,
        r#"
async def main():
    begun = time.monotonic()
    for _ in range(3):
        async with open_at("/echo") as socket:
            await socket.send("x")
            assert await socket.recv() == "x"
    assert time.monotonic() - begun >= 0.9
"#,
        &[],
    );
    let gateway = before(port, "{concurrency: 2, lease: 1min}", &[]);
    run(
        &gateway,
        r#"
async def main():
    first, second = await open_at("/echo"), await open_at("/echo")
    assert (await refused("/echo")).status_code == 429
    await first.send("still there")
    assert await first.recv() == "still there"
    await first.close()
    async def is_free():
        try:
            async with open_at("/echo"):
                return True
        except InvalidStatus:
            return False
    await eventually("the slot is free", is_free)
    await second.close()
"#,
        &[],
    );
}

/// A gateway that is told to end lets those speak to their end who do, takes nobody else, and is gone when they are.
#[test]
fn a_drain_waits_for_who_is_speaking() {
    let (_server, port) = server();
    let gateway = before(port, "", &["--drain-delay", "0s"]);
    run(
        &gateway,
        r#"
async def main():
    async with open_at("/echo") as socket:
        os.kill(int(sys.argv[2]), signal.SIGTERM)
        async def is_closed():
            try:
                async with open_at("/echo"):
                    return False
            except (OSError, InvalidHandshake):
                return True
        await eventually("nobody else is taken", is_closed)
        for said in ["not", "yet", b"x" * (1 << 20)]:
            await socket.send(said)
            assert await socket.recv() == said
        await socket.close(4003, "now")
"#,
        &[&gateway.id().to_string()],
    );
    assert!(gateway.wait().success());
}

/// Who waited for a limit is told so with the answer, also where that is the end of HTTP.
#[test]
fn a_handshake_that_waited_is_told_so() {
    let (_server, port) = server();
    let gateway = before(port, "{rate: 2/s, burst: 1, algorithm: token_bucket, on_limit: {delay: 5s}}", &[]);
    run(
        &gateway,
        r#"
async def main():
    async with open_at("/echo") as socket:
        headers = socket.response.headers
        assert "RateLimit" in headers and "X-Tollgate-Waited" not in headers, headers
        async with open_at("/echo") as later:
            headers = later.response.headers
            assert headers["X-Tollgate-Queue-Position"] == "1", headers
            assert 0 < float(headers["X-Tollgate-Waited"]) < 5, headers
            await later.send("hello")
            assert await later.recv() == "hello"
"#,
        &[],
    );
}
