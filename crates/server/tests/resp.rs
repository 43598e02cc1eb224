//! The Redis protocol, driven by redis-cli, redis-py, what other clients send when they connect, and clients that
//! misbehave.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(unreachable_pub, reason = "what test programs share is written for all of them")]

mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use support::{Service, eventually, http, printed, python};

const RULES: &str = "
domain: shop
rules:
  - name: orders
    per: user
    limits: [{rate: 3/h, algorithm: token_bucket}]
  - name: exports
    when: {path: /export}
    per: user
    limits: [{concurrency: 1, lease: 1h}]
  - name: words
    when: {model: large}
    per: user
    limits: [1000 tokens/day]
";

fn service(args: &[&str]) -> Service {
    Service::start(RULES, args)
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout can be set");
        Self(BufReader::new(stream))
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.get_mut().write_all(bytes.as_ref()).expect("it reads");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("it answers");
        line.trim_end().to_owned()
    }

    /// One reply as JSON writes it, so that all of it can be compared.
    fn reply(&mut self) -> String {
        let line = self.line();
        let (mark, rest) = line.split_at_checked(1).unwrap_or_else(|| panic!("it ended"));
        let mut many = |count: usize| (0..count).map(|_| self.reply()).collect::<Vec<_>>();
        match mark {
            "*" | "~" => format!("[{}]", many(rest.parse().expect("a number")).join(" ")),
            "%" => {
                let all = many(rest.parse::<usize>().expect("a number") * 2);
                format!("{{{}}}", all.chunks(2).map(|pair| pair.join(":")).collect::<Vec<_>>().join(" "))
            }
            "$" | "=" if rest == "-1" => "nil".to_owned(),
            "$" | "=" => {
                let mut bytes = vec![0; rest.parse::<usize>().expect("a number") + 2];
                self.0.read_exact(&mut bytes).expect("as many bytes");
                String::from_utf8_lossy(&bytes[..bytes.len() - 2]).into_owned()
            }
            "_" => "nil".to_owned(),
            "-" => line,
            _ => rest.to_owned(),
        }
    }

    fn ask(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n"));
        self.reply()
    }

    fn is_closed(&mut self) -> bool {
        !matches!(self.0.read(&mut [0]), Ok(1..))
    }
}

/// The value of a field in a reply.
fn field<'a>(reply: &'a str, name: &str) -> &'a str {
    let start =
        reply.find(&format!("{name}:")).or_else(|| reply.find(&format!("{name} "))).expect("the field is there");
    reply[start + name.len() + 1..].split([' ', '}', ']']).next().unwrap_or_default()
}

fn redis_cli(address: SocketAddr, args: &[&str]) -> String {
    let mut command = Command::new("redis-cli");
    command.args(["-h", &address.ip().to_string(), "-p", &address.port().to_string()]).args(args);
    printed(&command.output().expect("redis-cli runs")).trim_end_matches('\n').to_owned()
}

#[test]
fn redis_cli_in_both_versions() {
    let service = service(&[]);
    for (version, user) in [("-2", "anna"), ("-3", "otto")] {
        let cli = |args: &[&str]| redis_cli(service.resp(), &[&[version, "--no-raw"], args].concat());
        assert_eq!(cli(&["PING"]), "PONG");
        assert_eq!(cli(&["CL.THROTTLE", user, "15", "30", "60"]), {
            "1) (integer) 0\n2) (integer) 16\n3) (integer) 15\n4) (integer) -1\n5) (integer) 2"
        });
        let reply = cli(&["TG.CHECK", "FOR", "user", user]);
        let (allowed, rule) = match version {
            "-2" => ("1) \"allowed\"\n 2) (integer) 1\n", "4) \"orders\"\n"),
            _ => ("1# \"allowed\" => (integer) 1\n", "2# \"rule\" => \"orders\"\n"),
        };
        assert!(reply.contains(allowed) && reply.contains(rule), "{reply}");
        assert!(cli(&["INFO", "server"]).contains("tollgate_version:"), "{}", cli(&["INFO", "server"]));
        assert_eq!(cli(&["SELECT", "1"]), "(error) ERR DB index is out of range");
        assert_eq!(cli(&["GET", "a", "b"]), {
            "(error) ERR unknown command 'GET', with args beginning with: 'a' 'b' "
        });
        assert!(cli(&["TG.EXPLAIN", "FOR", "user", "1"]).contains("orders applies, by user=1"));
        assert!(cli(&["TG.HELP"]).contains("TG.RESERVE hold_ms"));
    }
}

const REDIS_PY: &str = r#"
import json, sys, redis
host, port, password = sys.argv[1], int(sys.argv[2]), sys.argv[3] or None
for protocol in (2, 3):
    for decode in (False, True):
        r = redis.Redis(host=host, port=port, password=password, protocol=protocol, decode_responses=decode,
                        client_name="test-%d" % protocol)
        text = (lambda x: x) if decode else (lambda x: x.decode())
        assert r.ping() is True
        assert r.echo("hello") in ("hello", b"hello")
        assert r.client_getname() in ("test-%d" % protocol, b"test-%d" % protocol), r.client_getname()
        assert r.client_id() > 0
        assert "lib-name" in r.client_info() and r.client_info()["lib-name"] == "redis-py", r.client_info()
        assert r.info()["redis_mode"] == "standalone" and r.info("clients")["connected_clients"] >= 1
        assert len(r.time()) == 2
        assert r.config_get("save") == {}
        commands = r.command()
        assert "cl.throttle" in commands and r.command_count() == len(commands), commands
        key = "key-%d-%s" % (protocol, decode)
        assert r.execute_command("CL.THROTTLE", key, 1, 1, 3600) == [0, 2, 1, -1, 3600]
        with r.pipeline(transaction=False) as pipe:
            for _ in range(3):
                pipe.execute_command("CL.THROTTLE", key, 1, 1, 3600)
            replies = pipe.execute()
        assert [reply[:3] for reply in replies] == [[0, 2, 0], [1, 2, 0], [1, 2, 0]], replies
        with r.pipeline() as pipe:
            pipe.execute_command("CL.THROTTLE", key, 1, 1, 3600)
            pipe.execute_command("TG.PEEK", "FOR", "user", key)
            pipe.ping()
            replies = pipe.execute()
        assert replies[0][:3] == [1, 2, 0] and replies[2] is True, replies
        try:
            r.execute_command("CL.THROTTLE", key, 1, 0, 60)
            raise SystemExit("no error")
        except redis.ResponseError as error:
            assert str(error) == "Cell error: Store error: Zero rates are not supported", error
        verdict = r.execute_command("TG.CHECK", "FOR", "user", key)
        if protocol == 2:
            verdict = dict(zip(verdict[::2], verdict[1::2]))
        verdict = {text(k): v for k, v in verdict.items()}
        assert verdict["allowed"] == 1 and text(verdict["rule"]) == "orders" and verdict["remaining"] == 2, verdict
        r.close()
from concurrent.futures import ThreadPoolExecutor
pool = redis.BlockingConnectionPool(host=host, port=port, password=password, max_connections=5)
shared = redis.Redis(connection_pool=pool)
with ThreadPoolExecutor(8) as threads:
    replies = list(threads.map(lambda _: shared.execute_command("CL.THROTTLE", "pool", 9, 10, 36000), range(40)))
assert sum(reply[0] == 0 for reply in replies) == 10, replies
if password:
    for wrong in (None, "wrong"):
        try:
            redis.Redis(host=host, port=port, password=wrong).ping()
            raise SystemExit("no error")
        except redis.AuthenticationError:
            pass
    assert redis.Redis(host=host, port=port, username="default", password=password, protocol=3).ping()
print("done")
"#;

#[test]
fn redis_py_with_and_without_a_password() {
    for password in ["", "open sesame"] {
        let service = match password {
            "" => service(&[]),
            password => service(&["--resp-password", password]),
        };
        let address = service.resp();
        let done = python(REDIS_PY, &[&address.ip().to_string(), &address.port().to_string(), password]);
        assert_eq!(done, "done\n");
    }
}

/// A command as clients send it.
fn sent(words: &[&str]) -> String {
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        bytes += &format!("${}\r\n{word}\r\n", word.len());
    }
    bytes
}

#[test]
fn what_go_redis_and_node_redis_send_on_connect() {
    let service = service(&["--resp-password", "secret"]);
    let mut go = Client::connect(service.resp());
    go.send(sent(&["hello", "3", "auth", "default", "secret", "setname", "api"]));
    let greeting = go.reply();
    assert!(greeting.starts_with("{server:tollgate version:") && greeting.contains("proto:3"), "{greeting}");
    // In one piece, as its pipelines are.
    go.send(
        sent(&["client", "setinfo", "LIB-NAME", "go-redis(,go1.22.1)"])
            + &sent(&["client", "setinfo", "LIB-VER", "9.7.0"])
            + &sent(&["client", "maint_notifications", "on"])
            + &sent(&["client", "no-evict", "on"]),
    );
    assert_eq!([go.reply(), go.reply()], ["OK", "OK"]);
    assert_eq!(go.reply(), "-ERR unknown subcommand 'maint_notifications' of CLIENT");
    assert_eq!(go.reply(), "OK");
    let info = go.ask("CLIENT INFO");
    assert!(info.contains("name=api") && info.contains("lib-name=go-redis(,go1.22.1) lib-ver=9.7.0"), "{info}");
    assert_eq!(go.ask("command count"), "27");

    let mut node = Client::connect(service.resp());
    node.send(sent(&["AUTH", "secret"]) + &sent(&["SELECT", "0"]) + &sent(&["CLIENT", "SETNAME", "node"]));
    node.send(
        sent(&["CLIENT", "SETINFO", "LIB-NAME", "node-redis"]) + &sent(&["CLIENT", "SETINFO", "LIB-VER", "5.1.0"]),
    );
    for _ in 0..5 {
        assert_eq!(node.reply(), "OK");
    }
    node.send(sent(&["CL.THROTTLE", "k", "0", "1", "3600"]));
    assert_eq!(node.reply(), "[0 1 0 -1 3600]");
}

#[test]
fn greetings_that_are_wrong_are_told_so() {
    let open = service(&[]);
    let mut client = Client::connect(open.resp());
    assert_eq!(client.ask("HELLO 4"), "-NOPROTO unsupported protocol version");
    assert_eq!(client.ask("HELLO x"), "-ERR Protocol version is not an integer or out of range");
    assert_eq!(client.ask("HELLO 3 WHAT"), "-ERR Syntax error in HELLO option 'WHAT'");
    assert!(client.ask("HELLO").starts_with("[server tollgate version "), "still the second version");
    assert!(client.ask("AUTH any").starts_with("-ERR AUTH <password> called without any password configured"));
    assert_eq!(client.ask("AUTH default any"), "OK");
    assert_eq!(client.ask("CLIENT GETNAME"), "nil");
    assert_eq!(client.ask("CLIENT SETNAME 'a b'").split(' ').next(), Some("-ERR"));
    assert_eq!(client.ask("CLIENT SETNAME me"), "OK");
    assert_eq!(client.ask("CLIENT GETNAME"), "me");
    assert_eq!(client.ask("PING a b"), "-ERR wrong number of arguments for 'ping' command");
    assert_eq!(client.ask("ECHO"), "-ERR wrong number of arguments for 'echo' command");
    assert_eq!(client.ask("SELECT x"), "-ERR value is not an integer or out of range");
    client.send("CLIENT REPLY OFF\r\nPING\r\nCLIENT REPLY ON\r\nCLIENT REPLY SKIP\r\nPING\r\nPING last\r\n");
    assert_eq!([client.reply(), client.reply()], ["OK", "last"]);
    assert_eq!(client.ask("RESET"), "RESET");
    assert_eq!(client.ask("CLIENT GETNAME"), "nil");
    assert_eq!(client.ask("QUIT"), "OK");
    assert!(client.is_closed());

    let closed = service(&["--resp-password", "secret"]);
    let mut client = Client::connect(closed.resp());
    assert_eq!(client.ask("CL.THROTTLE k 1 1 1"), "-NOAUTH Authentication required.");
    assert!(client.ask("HELLO 3").starts_with("-NOAUTH HELLO must be called"));
    assert!(client.ask("AUTH wrong").starts_with("-WRONGPASS "));
    assert!(client.ask("HELLO 3 AUTH other secret").starts_with("-WRONGPASS "));
    assert!(client.ask("HELLO 3 AUTH default secret").starts_with("{server:"));
    assert_eq!(client.ask("PING"), "PONG");
    assert_eq!(client.ask("RESET"), "RESET");
    assert_eq!(client.ask("PING"), "-NOAUTH Authentication required.");
}

#[test]
fn the_commands_for_rules() {
    let service = service(&[]);
    let mut client = Client::connect(service.resp());
    assert!(client.ask("HELLO 3").starts_with('{'));
    let first = client.ask("TG.CHECK FOR user 1");
    assert!(
        first.starts_with("{allowed:1 rule:orders limit:3 remaining:2 retry_after_ms:0 reset_after_ms:"),
        "{first}"
    );
    assert_eq!(field(&client.ask("tg.peek for user 1"), "remaining"), "2");
    assert_eq!(field(&client.ask("TG.CHECK COST 4 FOR user 1"), "retry_after_ms"), "-1");
    assert_eq!(field(&client.ask("TG.CHECK COST 2 DOMAIN shop FOR user 1"), "remaining"), "0");
    let denied = client.ask("TG.CHECK FOR user 1");
    assert!(denied.starts_with("{allowed:0 rule:orders limit:3 remaining:0 retry_after_ms:"), "{denied}");
    let wait: u64 = field(&denied, "retry_after_ms").parse().expect("a number");
    assert!((1_100_000..=1_200_000).contains(&wait), "{denied}");
    assert_eq!(field(&client.ask("TG.FORCE FOR user 1"), "allowed"), "1");
    assert_eq!(
        field(&client.ask(&format!("TG.REFUND COST 2 AT {} FOR user 1", field(&first, "at_us"))), "remaining"),
        "1"
    );
    assert_eq!(field(&client.ask("TG.CHECK FOR nobody 1"), "rule"), "nil");

    let reserved = client.ask("TG.RESERVE 60000 COST 2 FOR user 2");
    assert_eq!([field(&reserved, "allowed"), field(&reserved, "remaining")], ["1", "1"], "{reserved}");
    let id = field(&reserved, "reservation");
    assert_eq!(client.ask(&format!("TG.COMMIT {id} 1")), "1");
    assert_eq!(client.ask(&format!("TG.COMMIT {id}")), "0");
    assert_eq!(field(&client.ask("TG.PEEK FOR user 2"), "remaining"), "2");
    let id = client.ask("TG.RESERVE 60000 COST 2 FOR user 2");
    assert_eq!(client.ask(&format!("TG.CANCEL {}", field(&id, "reservation"))), "1");
    assert_eq!(field(&client.ask("TG.PEEK FOR user 2"), "remaining"), "2");
    assert_eq!(field(&client.ask("TG.RESERVE 1000 COST 9 FOR user 2"), "reservation"), "nil");

    assert_eq!(field(&client.ask("TG.CHECK LEASE 7 FOR user 4 path /export"), "allowed"), "1");
    let second = client.ask("TG.CHECK LEASE 8 FOR user 4 path /export");
    assert_eq!([field(&second, "allowed"), field(&second, "rule")], ["0", "exports"], "{second}");
    assert_eq!(field(&client.ask("TG.RENEW LEASE 7 FOR user 4 path /export"), "allowed"), "1");
    assert_eq!(field(&client.ask("TG.RENEW LEASE 8 FOR user 4 path /export"), "allowed"), "0");
    for nobodys in ["TG.RELEASE FOR user 4 path /export", "TG.RENEW LEASE 0 FOR user 4 path /export"] {
        let refusal = client.ask(nobodys);
        assert!(refusal.starts_with("-ERR there is no lease: write LEASE"), "{refusal}");
    }
    assert_eq!(field(&client.ask("TG.RELEASE LEASE 7 FOR user 4 path /export"), "allowed"), "1");
    assert_eq!(field(&client.ask("TG.CHECK LEASE 8 FOR user 4 path /export"), "allowed"), "1");

    let tokens = client.ask("TG.CHECK COST 0 UNIT tokens 1001 FOR user 5 model large");
    assert_eq!([field(&tokens, "allowed"), field(&tokens, "rule")], ["0", "words"], "{tokens}");
    let by_descriptors = client.ask("TG.CHECK DESCRIPTOR 1 user 6 DESCRIPTOR 1 nothing x");
    assert!(by_descriptors.contains("descriptors:[{over_limit:0 rule:orders limit:3 remaining:2"), "{by_descriptors}");
    assert!(by_descriptors.contains("{over_limit:0 rule:nil limit:nil remaining:nil"), "{by_descriptors}");
    for (wrong, said) in [
        ("TG.CHECK user 1", "-ERR 'user' is no option"),
        ("TG.CHECK AT 5 FOR user 1", "-ERR AT is for TG.REFUND only"),
        ("TG.RESERVE 0 FOR user 1", "-ERR TG.RESERVE holds for"),
        ("TG.RESERVE FOR user 1", "-ERR TG.RESERVE needs a number"),
        ("TG.COMMIT x", "-ERR a reservation needs a number"),
        ("TG.CHECK", "-ERR wrong number of arguments for 'tg.check' command"),
    ] {
        let reply = client.ask(wrong);
        assert!(reply.starts_with(said), "{wrong}: {reply}");
    }
}

#[test]
fn transactions_are_answered_in_order() {
    let service = service(&[]);
    let mut client = Client::connect(service.resp());
    assert_eq!(client.ask("EXEC"), "-ERR EXEC without MULTI");
    assert_eq!(client.ask("MULTI"), "OK");
    assert_eq!(client.ask("MULTI"), "-ERR MULTI calls can not be nested");
    assert_eq!(client.ask("CL.THROTTLE k 1 1 3600"), "QUEUED");
    assert_eq!(client.ask("PING"), "QUEUED");
    assert_eq!(client.ask("EXEC"), "[[0 2 1 -1 3600] PONG]");
    assert_eq!(client.ask("MULTI"), "OK");
    assert_eq!(client.ask("COMMAND DOCS"), "-ERR Command not allowed inside a transaction");
    assert!(client.ask("EXEC").starts_with("-EXECABORT"));
    assert_eq!(client.ask("MULTI"), "OK");
    assert!(client.ask("NONSENSE").starts_with("-ERR unknown command"));
    assert_eq!(client.ask("CL.THROTTLE k 1 1 3600"), "QUEUED");
    assert_eq!(client.ask("EXEC"), "-EXECABORT Transaction discarded because of previous errors.");
    assert_eq!(client.ask("MULTI"), "OK");
    assert_eq!(client.ask("CL.THROTTLE k 1 1 3600"), "QUEUED");
    assert_eq!(client.ask("DISCARD"), "OK");
    assert_eq!(client.ask("CL.THROTTLE k 1 1 3600 0"), "[0 2 1 -1 3600]");
}

#[test]
fn bad_input_gets_the_protocols_error_and_harms_nobody_else() {
    let service = service(&["--workers", "1"]);
    let mut friend = Client::connect(service.resp());
    assert_eq!(friend.ask("PING"), "PONG");
    let ten = "x".repeat(10 << 20);
    for (bytes, error) in [
        ("*1000000000\r\n".to_owned(), "invalid multibulk length"),
        ("*-99999999999999999999\r\n".to_owned(), "invalid multibulk length"),
        ("*1\r\n$2000000000\r\n".to_owned(), "invalid bulk length"),
        ("*2\r\n$4\r\nECHO\r\n:5\r\n".to_owned(), "expected '$', got ':'"),
        ("*1\r\n*1\r\n$4\r\nPING\r\n".to_owned(), "expected '$', got '*'"),
        (format!("*6\r\n$11\r\nCL.THROTTLE\r\n$10485760\r\n{ten}\r\n"), "invalid bulk length"),
        (ten, "too big inline request"),
        ("ECHO \"open\r\n".to_owned(), "unbalanced quotes in request"),
        ("\x16\x03\x01\x02\x00\x01\x00\x01\u{fc}\x03\x03\"".to_owned() + "\n", "unbalanced quotes in request"),
    ] {
        let mut client = Client::connect(service.resp());
        let stream = client.0.get_ref().try_clone().expect("a socket");
        // It may well close before everything is sent.
        let sender = std::thread::spawn(move || {
            let mut stream = stream;
            let _ = stream.write_all(bytes.as_bytes());
        });
        assert_eq!(client.line(), format!("-ERR Protocol error: {error}"));
        assert!(client.is_closed(), "{error}");
        sender.join().expect("it ends");
        assert_eq!(friend.ask("CL.THROTTLE friend 0 1 1 0"), "[0 1 1 -1 0]");
    }
    let mut browser = Client::connect(service.resp());
    browser.send("POST / HTTP/1.1\r\nHost: x\r\n\r\nCL.THROTTLE a 1 1 1\r\n");
    assert!(browser.is_closed(), "a web page cannot make a browser ask");
    let mut half = Client::connect(service.resp());
    half.send("*2\r\n$4\r\nECHO\r\n$5\r\nhel");
    half.0.get_ref().shutdown(Shutdown::Write).expect("it is open");
    assert!(half.is_closed(), "half a command is no command");
    let mut gone = Client::connect(service.resp());
    gone.send("PING\r\n".repeat(10_000));
    drop(gone);
    assert_eq!(friend.ask("PING still"), "still");
    assert_eq!(friend.ask("ECHO 'a\u{0}\u{1}b'"), "a\u{0}\u{1}b");
}

#[test]
fn a_hundred_thousand_commands_in_one_pipeline() {
    let service = service(&["--workers", "1"]);
    let mut client = Client::connect(service.resp());
    let mut other = Client::connect(service.resp());
    let mut stream = client.0.get_ref().try_clone().expect("a socket");
    let pipeline = sent(&["CL.THROTTLE", "deep", "49999", "1", "3600"]).repeat(100_000);
    let sender = std::thread::spawn(move || stream.write_all(pipeline.as_bytes()));
    assert_eq!(other.ask("PING"), "PONG");
    let allowed = (0..100_000).filter(|_| client.reply().starts_with("[0 50000 ")).count();
    assert_eq!(allowed, 50_000);
    sender.join().expect("it ends").expect("all is sent");
    let metrics = http(service.admin(), "GET /metrics HTTP/1.1", "").body;
    for line in [
        "tollgate_throttle_checks_total{outcome=\"allowed\"} 50000",
        "tollgate_throttle_checks_total{outcome=\"denied\"} 50000",
        "tollgate_request_duration_seconds_count{protocol=\"resp\"} 100001",
        "tollgate_connections{protocol=\"resp\"} 2",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
}

#[test]
fn one_client_too_many_is_told_so() {
    let service = service(&["--max-connections", "2"]);
    let mut first = Client::connect(service.resp());
    let mut second = Client::connect(service.resp());
    assert_eq!([first.ask("PING"), second.ask("PING")], ["PONG", "PONG"]);
    let mut third = Client::connect(service.resp());
    assert_eq!(third.line(), "-ERR max number of clients reached");
    assert!(third.is_closed());
    drop(second);
    eventually("there is room again", || {
        let mut client = Client::connect(service.resp());
        client.send("PING\r\n");
        client.line() == "+PONG"
    });
    assert_eq!(first.ask("PING"), "PONG");
}

#[test]
fn the_end_of_the_service_loses_no_answer() {
    let service = service(&["--drain-delay", "0s"]);
    let mut client = Client::connect(service.resp());
    assert_eq!(client.ask("PING"), "PONG");
    let mut stream = client.0.get_ref().try_clone().expect("a socket");
    stream.write_all("PING\r\n".repeat(1_000).as_bytes()).expect("it reads");
    service.signal("TERM");
    for _ in 0..1_000 {
        assert_eq!(client.reply(), "PONG");
    }
    assert!(client.is_closed());
    assert!(service.wait().success());
}

/// Numbers that differ from run to run.
fn masked(line: &str) -> String {
    let name = ["retry_after_ms", "reset_after_ms", "at_us", "reservation"].iter().find(|name| line.contains(*name));
    match (name, line.rsplit_once(' ')) {
        (Some(_), Some((start, number))) if !["0", "-1"].contains(&number) => format!("{start} ..."),
        _ => line.to_owned(),
    }
}

#[test]
fn the_document_shows_what_happens() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/redis.md");
    let text = std::fs::read_to_string(document).expect("the document");
    let block = |from: &str, kind: &str| {
        let block = from.split(&format!("```{kind}\n")).nth(1).and_then(|rest| rest.split("```").next());
        block.expect("a block").to_owned()
    };
    let service = Service::start(&block(&text, "yaml"), &[]);
    let mut commands = 0;
    for session in text.split("```redis\n").skip(1).filter_map(|rest| rest.split("```").next()) {
        for exchange in format!("\n{session}").split("\n> ").skip(1) {
            let (command, reply) = exchange.split_once('\n').expect("a command and its reply");
            let words: Vec<&str> = command.split(' ').collect();
            let said = redis_cli(service.resp(), &[&["-3", "--no-raw"], &*words].concat());
            let both = [reply, &said].map(|text| text.trim_end().lines().map(masked).collect::<Vec<_>>());
            assert_eq!(both[0], both[1], "{command}: shown, and said");
            commands += 1;
        }
    }
    assert!(commands >= 9, "{commands} commands are shown");
}
