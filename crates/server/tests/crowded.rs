//! Too many clients: more than the settings allow, and more than the system has file descriptors for. Who is there goes
//! on being answered, who is one too many is told so in the words of the protocol, and who comes later is served again.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;
#[path = "support/wire.rs"]
mod wire;

use std::process::Command;
use std::time::Duration;

use quanta::Instant;
use serde_json::{Value, json};
use support::{Service, eventually, http, pause, printed, scratch};
use wire::{Connection, Grpc, Heard};

const RULES: &str = "{domain: d, rules: [{name: once, per: user, limits: [{rate: 1/d, algorithm: token_bucket}]}]}";

fn envoy(user: &str) -> Value {
    json!({"domain": "d", "descriptors": [{"entries": [{"key": "user", "value": user}]}]})
}

/// Clients of every protocol that are connected and whose limit is used up.
struct Friends {
    grpc: Grpc,
    http: Connection,
    resp: Connection,
}

impl Friends {
    fn connect(service: &Service) -> Self {
        let mut friends = Self {
            grpc: Grpc::start(service.grpc()),
            http: Connection::open(service.http()).unwrap(),
            resp: Connection::open(service.resp()).unwrap(),
        };
        friends.are_answered("yes");
        friends
    }

    /// Each gets the answer of the rule, and soon.
    #[track_caller]
    fn are_answered(&mut self, expected: &str) {
        let started = Instant::now();
        let grpc = self.grpc.ask(&envoy("grpc"));
        let http = self.http.http("POST /v1/check HTTP/1.1", r#"{"attributes": {"user": "http"}}"#).answer();
        let resp = self.resp.command(&["TG.CHECK", "FOR", "user", "resp"]).answer();
        let told = [grpc["overallCode"] == "OK", http.status == 200, resp[1] == 1];
        assert_eq!(told, [expected == "yes"; 3], "{grpc} {} {resp}", http.body);
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    }
}

#[test]
fn without_file_descriptors_those_who_are_there_are_served_and_rules_stay() {
    // Two directories, so that one that cannot be read would be missed.
    let (rules, more) = (scratch("a.yaml"), scratch("b.yaml"));
    std::fs::write(&rules, RULES).unwrap();
    std::fs::write(&more, RULES.replace("once", "more").replace("user", "device")).unwrap();
    let directories = [&rules, &more].map(|file| file.parent().unwrap().display().to_string()).join(",");
    let log = scratch("log");
    let mut command = Command::new("sh");
    let exec = format!("ulimit -n 48; exec \"$0\" \"$@\" 2>'{}'", log.display());
    command.args(["-c", &exec, env!("CARGO_BIN_EXE_tollgate")]);
    let service = Service::start_with(command, &["--rules", &directories, "--workers", "2"]);
    let mut friends = Friends::connect(&service);
    let mut admin = Connection::open(service.admin()).unwrap();
    let mut stats = || admin.http("GET /stats HTTP/1.1", "").answer().body;
    assert!(stats().contains("tollgate_rules 2\n"));

    // The system accepts more than the service can: those wait, and hear nothing yet.
    let mut crowd: Vec<Connection> = (0..60).map(|_| Connection::open(service.resp()).unwrap()).collect();
    eventually("all are taken", || {
        stats().lines().any(|line| {
            let open = line
                .strip_prefix("tollgate_connections{protocol=\"resp\"} ")
                .and_then(|count| count.parse::<u32>().ok());
            open.is_some_and(|open| (10..40).contains(&open))
        })
    });
    let more = Connection::open(service.http()).unwrap();
    for _ in 0..10 {
        friends.are_answered("no");
        // Longer than between two looks at the rules, all in all.
        pause(Duration::from_millis(200));
    }
    let shown = stats();
    assert!(!shown.contains("tollgate_bad_rule_files 0\n"), "that was tried: {shown}");
    assert!(shown.contains("tollgate_rules 2\n"), "rules that cannot be read stay in force: {shown}");

    // Who waited is served as others leave, and so is who comes anew.
    let mut last = crowd.pop().unwrap();
    drop((crowd, more));
    assert_eq!(last.command(&["PING"]).answer(), "PONG");
    let answer = http(service.http(), "POST /v1/check HTTP/1.1", r#"{"attributes": {"user": "new"}}"#);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(http(service.admin(), "GET /ready HTTP/1.1", "").status, 200);
    friends.are_answered("no");
    eventually("the rules can be read again", || stats().contains("tollgate_bad_rule_files 0\n"));
    let told = std::fs::read_to_string(&log).unwrap().matches("cannot be accepted").count();
    assert!((1..5).contains(&told), "the log says so, and not {told} times");
}

#[test]
fn one_connection_too_many_is_refused_in_the_words_of_its_protocol() {
    let service = Service::start(RULES, &["--max-connections", "3"]);
    let mut friends = Friends::connect(&service);

    let mut resp = Connection::open(service.resp()).unwrap();
    assert_eq!(resp.rest().unwrap(), "-ERR max number of clients reached\r\n");

    for head in ["POST /v1/check HTTP/1.1", "GET /check HTTP/1.1", "POST /json HTTP/1.1"] {
        let mut connection = Connection::open(service.http()).unwrap();
        let answer = connection.http(head, "{}").answer();
        assert_eq!((answer.status, answer.header("connection")), (503, Some("close")), "{head}");
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        let told: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(told["status"], 503);
        assert!(told["detail"].as_str().unwrap().contains("--max-connections"), "{told}");
        assert!(matches!(connection.http(head, "{}"), Heard::Closed | Heard::Failed(_)), "it is closed");
    }

    let mut stranger = Grpc::start_without_reflection(service.grpc());
    let told = stranger.ask(&envoy("stranger"));
    assert!(told["error"].as_str().unwrap().starts_with("UNAVAILABLE: there are as many connections"), "{told}");
    let url = format!("http://{}/ready", service.http());
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-w", "%{http_code} %{http_version}", "--http2-prior-knowledge", "--max-time", "5", &url]);
    assert!(printed(&curl.output().unwrap()).ends_with("}503 2"));

    // Whoever runs it gets in all the same, and friends are not concerned.
    let stats = http(service.admin(), "GET /stats HTTP/1.1", "");
    assert_eq!(stats.status, 200);
    friends.are_answered("no");
    drop(friends);
    eventually("there is room again", || {
        let mut connection = Connection::open(service.http()).unwrap();
        matches!(connection.http("GET /ready HTTP/1.1", ""), Heard::Answer(answer) if answer.status == 200)
    });
}
