//! Envoy's rate limit service, asked by gRPC's own client for Python; and by clients that mean no good.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::net::SocketAddr;
use std::process::Command;

use support::{Service, printed, python};

const RULES: &str = "
domain: d
descriptors:
- {key: day, rate_limit: {unit: day, requests_per_unit: 2, name: two}}
- {key: week, rate_limit: {unit: week, requests_per_unit: 10}}
- {key: month, rate_limit: {unit: month, requests_per_unit: 10}}
- {key: year, rate_limit: {unit: year, requests_per_unit: 10}}
- {key: hits, rate_limit: {unit: year, requests_per_unit: 10}}
- {key: none, rate_limit: {unit: year, requests_per_unit: 0}}
- {key: free, rate_limit: {unlimited: true}}
- {key: listed}
- {key: shadow, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 0}}
- {key: quota, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 0}}
- {key: roomy, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 9}}
- {key: old, rate_limit: {unit: day, requests_per_unit: 0, name: old}}
- {key: new, rate_limit: {unit: day, requests_per_unit: 9, replaces: [{name: old}]}}
- {key: shared, value: 'a*', share_threshold: true, rate_limit: {unit: day, requests_per_unit: 2}}
- {key: long, rate_limit: {unit: day, requests_per_unit: 1}}
- key: a
  descriptors:
  - {key: b, rate_limit: {unit: day, requests_per_unit: 5}}
";

const CLIENT: &str = include_str!("grpc/client.py");

/// Runs a script against a service; each says so at its end.
fn run(script: &str, service: &Service, more: &[&str]) {
    let address = service.grpc().to_string();
    let said = python(&format!("{CLIENT}{script}"), &[&[address.as_str()], more].concat());
    assert_eq!(said.trim(), "done");
}

#[test]
fn every_request_gets_the_answer_of_upstream() {
    let own = support::scratch("own.yaml");
    std::fs::write(&own, "domain: own\nrules:\n- {name: per-user, per: user, limits: [3/d]}\n")
        .expect("it can be written");
    let service = Service::start(RULES, &["--rules", &own.display().to_string()]);
    run(include_str!("grpc/semantics.py"), &service, &[]);
}

#[test]
fn headers_and_metadata_are_told_where_they_are_asked_for() {
    let rules = "
domain: d
descriptors:
- {key: few, rate_limit: {unit: day, requests_per_unit: 5}, metadata: {plan: gold, deep: {x: 1}}}
- {key: many, rate_limit: {unit: day, requests_per_unit: 50}, metadata: {plan: iron, deep: {z: true}}}
- {key: none, rate_limit: {unit: day, requests_per_unit: 0}}
";
    let names = ["--response-headers", "--response-header-names", "X-Limit,X-Left,X-Reset"];
    let service = Service::start(rules, &[&names[..], &["--dynamic-metadata", "--shadow-mode"]].concat());
    run(include_str!("grpc/told.py"), &service, &[]);
}

#[test]
fn health_and_reflection_answer_to_the_end() {
    let service = Service::start("domain: d\ndescriptors: []\n", &["--drain-delay", "1s"]);
    run(include_str!("grpc/health.py"), &service, &[&service.id().to_string()]);
    assert!(service.wait().success());
}

#[test]
fn whoever_watches_hears_of_rules_that_come_later() {
    let file = support::scratch("late.yaml");
    std::fs::write(&file, "domain: d\ndescriptors: [").expect("it can be written");
    let args = ["--rules", &file.display().to_string(), "--start-anyway", "--ready-with-rules"];
    let service = Service::start_with(Command::new(env!("CARGO_BIN_EXE_tollgate")), &args);
    let script = r#"
from grpc_health.v1 import health_pb2, health_pb2_grpc

watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service="ratelimit"), timeout=20)
equal(next(watch).status, health_pb2.HealthCheckResponse.NOT_SERVING)
with open(sys.argv[2], "w") as rules:
    rules.write("domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]\n")
equal(next(watch).status, health_pb2.HealthCheckResponse.SERVING)
print("done")
"#;
    run(script, &service, &[&file.display().to_string()]);
}

#[test]
fn errors_are_counted_of_questions_only_and_timed_like_answers() {
    let service = Service::start(RULES, &[]);
    let script = r#"
from grpc_health.v1 import health_pb2, health_pb2_grpc

unknown = health_pb2.HealthCheckRequest(service="unknown")
fails(grpc.StatusCode.NOT_FOUND, "", lambda: health_pb2_grpc.HealthStub(channel).Check(unknown))
nothing = channel.unary_unary("/envoy.service.ratelimit.v3.RateLimitService/Nothing")
fails(grpc.StatusCode.UNIMPLEMENTED, "", lambda: nothing(b"", timeout=10))
ask("free=1")
fails(grpc.StatusCode.INVALID_ARGUMENT, "", lambda: raw(b"\xff", timeout=10))
fails(grpc.StatusCode.RESOURCE_EXHAUSTED, "", lambda: raw(b"\xff" * (5 << 20), timeout=10))
print("done")
"#;
    run(script, &service, &[]);
    assert!(post(service.grpc(), &["-H", "content-type: text/plain"], b"").starts_with("HTTP/2 415"));
    let metrics = support::http(service.admin(), "GET /metrics HTTP/1.1", "").body;
    for line in [
        "tollgate_request_errors_total{protocol=\"grpc\"} 2\n",
        "tollgate_request_duration_seconds_count{protocol=\"grpc\"} 3\n",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
}

#[test]
fn a_service_without_rules_says_so() {
    let service = Service::start("domain: d\ndescriptors: [", &["--start-anyway"]);
    let script = r#"
fails(grpc.StatusCode.UNKNOWN, "no rate limit configuration loaded", lambda: ask("a=1"))
print("done")
"#;
    run(script, &service, &[]);
}

#[test]
fn messages_that_make_no_sense_get_errors() {
    let service = Service::start(RULES, &[]);
    run(include_str!("grpc/nonsense.py"), &service, &[]);
}

#[test]
fn clients_that_mean_harm_do_none_to_others() {
    let service = Service::start(RULES, &["--workers", "1"]);
    run(include_str!("grpc/harm.py"), &service, &[]);
}

/// Posts bytes by plain HTTP/2 and returns the head of the answer.
fn post(address: SocketAddr, more: &[&str], body: &[u8]) -> String {
    let file = support::scratch("body");
    std::fs::write(&file, body).expect("a file can be written");
    let url = format!("http://{address}/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
    let body = format!("@{}", file.display());
    let output = Command::new("curl")
        .args(["-sS", "-i", "--http2-prior-knowledge", "--max-time", "10", "--data-binary", &body])
        .args(more)
        .arg(url)
        .output();
    printed(&output.expect("curl runs"))
}

#[test]
fn frames_that_are_no_messages_get_errors() {
    let service = Service::start(RULES, &[]);
    let grpc = ["-H", "content-type: application/grpc", "-H", "te: trailers"];
    let is = |body: &[u8], status: u32, why: &str| {
        let head = post(service.grpc(), &grpc, body);
        assert!(head.starts_with("HTTP/2 200"), "{head}");
        assert!(head.contains(&format!("grpc-status: {status}\r")) && head.contains(why), "{head}");
        head
    };
    is(b"", 13, "middle of its message");
    is(&[0, 0, 0], 13, "middle of its message");
    is(&[0, 0, 0, 0, 9, 1], 13, "middle of its message");
    is(&[0, 0, 0, 0, 0, 0], 12, "takes one message");
    is(&[7, 0, 0, 0, 0], 13, "neither 0 nor 1");
    is(&[0, 255, 255, 255, 255], 8, "at most 4194304");
    is(&[0, 0, 0, 0, 0], 2, "rate limit domain must not be empty");
    is(&[0, 0, 0, 0, 1, 0x0a], 3, "no RateLimitRequest");
    let head = is(&[1, 0, 0, 0, 0], 12, "send identity");
    assert!(head.contains("grpc-accept-encoding: identity"), "{head}");

    let head = post(service.grpc(), &["-H", "content-type: application/json"], b"{}");
    assert!(head.starts_with("HTTP/2 415"), "{head}");
    let head = post(service.grpc(), &["-H", "content-type: application/grpc-web"], b"");
    assert!(head.starts_with("HTTP/2 415"), "{head}");
    let head = post(service.grpc(), &[&grpc[..], &["-X", "PUT"]].concat(), b"");
    assert!(head.starts_with("HTTP/2 405"), "{head}");
}
