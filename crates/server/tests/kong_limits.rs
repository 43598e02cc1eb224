//! What plugins that are made by Kong's calls do: which window, whose budget, where it is counted, and what is told.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "kong/calls.rs"]
mod calls;
#[path = "gateway/origin.rs"]
mod origin;
mod support;

use calls::{ask, call, id, make, make_consumer, make_service, statuses};
use origin::Origin;
use serde_json::{Value, json};
use support::{Service, eventually, scratch};
use tollgate::{Clock as _, SystemClock};
use tollgate_sim::redis::RedisServer;

const SECOND: u64 = 1_000_000;

fn micros() -> u64 {
    SystemClock::new().now().as_micros()
}

/// A gateway that asks this Redis, however busy the machine is.
fn on_redis(redis: &RedisServer, more: &[&str]) -> Service {
    let url = format!("redis://{}", redis.address());
    let gateway = Service::gateway_with(&[&["--store", &url, "--store-deadline", "2s"], more].concat());
    eventually("it is connected", || {
        ask(gateway.admin(), "/metrics", "").body.contains("\ntollgate_store_serving 1\n")
    });
    gateway
}

/// [L7] Over the edge of a window: what was spent before it still counts, and less and less of it. A fixed window is
/// fresh at once.
#[test]
fn l7_a_window_slides_over_its_edge() {
    const WINDOW: u64 = 4 * SECOND;
    let origin = Origin::start();
    let gateway = Service::gateway_with(&[]);
    let (admin, proxy) = (gateway.admin(), gateway.proxy());
    make_service(admin, "s", origin.address, &["sliding", "fixed", "default"]);
    for (route, kind) in [("sliding", json!("sliding")), ("fixed", json!("fixed")), ("default", Value::Null)] {
        let config = json!({"limit": 10, "window_size": 4, "window_type": kind, "sync_rate": 10});
        make(admin, &format!("/routes/{route}/plugins"), json!({"name": "rate-limiting", "config": config}));
    }
    // A machine that is busy with others may be late for the edge; then the next one serves as well.
    let seen_at_the_edge = (0..10).any(|_| {
        eventually("a window is about to end", || {
            (WINDOW - SECOND..WINDOW - SECOND / 2).contains(&(micros() % WINDOW))
        });
        let begun = micros();
        let spent: Vec<u16> =
            ["/sliding", "/fixed", "/default"].into_iter().flat_map(|path| statuses(proxy, path, [""; 11])).collect();
        let edge = (begun / WINDOW + 1) * WINDOW;
        if micros() >= edge {
            return false;
        }
        eventually("the window is over", || micros() >= edge);
        let over = ["/sliding", "/default", "/fixed"].map(|path| ask(proxy, path, "").status);
        // Of ten, more than nine still count.
        if micros() >= edge + WINDOW / 10 {
            return false;
        }
        assert_eq!(spent.chunks(11).map(|all| all.iter().filter(|status| **status == 200).count()).max(), Some(10));
        assert_eq!(over, [429, 429, 200]);
        eventually("there is room for one", || ask(proxy, "/sliding", "").status == 200);
        let first = micros();
        assert_eq!(ask(proxy, "/sliding", "").status, 429, "there was room for one");
        // No window of four seconds that began with the first request would have let it through by now.
        first < begun + WINDOW
    });
    assert!(seen_at_the_edge);
}

/// [L6] Each kind of client twice: whoever is the same shares a budget of one, and whoever is another has its own.
#[test]
fn l6_each_kind_of_client_has_a_budget_of_its_own() {
    let origin = Origin::start();
    let gateway = Service::gateway_with(&["--trusted-proxies", "127.0.0.1"]);
    let (admin, proxy) = (gateway.admin(), gateway.proxy());
    make_consumer(admin, "alice", &["a-1", "a-2"]);
    make_consumer(admin, "bob", &["b-1"]);
    let route = |name: &str, config: Value, has_keys: bool| {
        make_service(admin, name, origin.address, &[name]);
        if has_keys {
            make(admin, &format!("/routes/{name}/plugins"), json!({"name": "key-auth"}));
        }
        let mut plugin = json!({"name": "rate-limiting", "config": {"day": 1}});
        plugin["config"].as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
        make(admin, &format!("/routes/{name}/plugins"), plugin);
    };
    let (here, there) = ("X-Forwarded-For: 203.0.113.1", "X-Forwarded-For: 203.0.113.2");

    route("ip", json!({"limit_by": "ip"}), false);
    assert_eq!(statuses(proxy, "/ip", [here, here, there, there]), [200, 429, 200, 429]);

    route("consumer", json!({"limit_by": "consumer"}), true);
    let keys = ["apikey: a-1", "apikey: a-1", "apikey: a-2", "apikey: b-1", "apikey: b-1"];
    assert_eq!(statuses(proxy, "/consumer", keys), [200, 429, 429, 200, 429]);
    let elsewhere = format!("apikey: a-1\n{there}");
    assert_eq!(ask(proxy, "/consumer", &elsewhere).status, 429, "a consumer is the same everywhere");

    route("credential", json!({"limit_by": "credential"}), true);
    let keys = ["apikey: a-1", "apikey: a-1", "apikey: a-2", "apikey: a-2", "apikey: b-1"];
    assert_eq!(statuses(proxy, "/credential", keys), [200, 429, 200, 429, 200]);
    assert_eq!(ask(proxy, "/credential", &elsewhere).status, 429, "a key is the same everywhere");

    // Where nobody shows a key, and where a header is missing, it is the address.
    for by in ["consumer", "credential"] {
        let name = format!("anonymous-{by}");
        route(&name, json!({"limit_by": by}), false);
        assert_eq!(statuses(proxy, &format!("/{name}"), [here, here, there]), [200, 429, 200], "{by}");
    }
    route("header", json!({"limit_by": "header", "header_name": "X-Team"}), false);
    assert_eq!(statuses(proxy, "/header", ["X-Team: a", "x-team: a", "X-Team: b"]), [200, 429, 200]);
    assert_eq!(statuses(proxy, "/header", [here, here, there]), [200, 429, 200]);

    // One path is one budget for all; elsewhere it is the address.
    route("path", json!({"limit_by": "path", "path": "/path/one"}), false);
    assert_eq!(statuses(proxy, "/path/one", [here, there]), [200, 429]);
    assert_eq!(statuses(proxy, "/path/two", [here, here, there]), [200, 429, 200]);
}

/// [L6] One plugin for all: each service, or each route, has a budget that all its clients share.
#[test]
fn l6_services_and_routes_have_budgets_of_their_own() {
    let origin = Origin::start();
    for (config, expected) in [
        (json!({"day": 2, "limit_by": "service"}), [200, 200, 429, 200, 200, 429]),
        (json!({"limit": [1], "window_size": [86_400], "identifier": "route"}), [200, 200, 429, 200, 429, 429]),
    ] {
        let gateway = Service::gateway_with(&["--trusted-proxies", "127.0.0.1"]);
        let (admin, proxy) = (gateway.admin(), gateway.proxy());
        make_service(admin, "s", origin.address, &["one", "two"]);
        let api = json!({"name": "old", "uris": "/old", "upstream_url": format!("http://{}", origin.address)});
        make(admin, "/apis", api);
        let name = if config["day"].is_null() { "rate-limiting-advanced" } else { "rate-limiting" };
        make(admin, "/plugins", json!({"name": name, "config": config}));
        let mut number = 0;
        let seen = ["/one", "/two", "/one", "/old", "/old", "/old"].map(|path| {
            number += 1;
            ask(proxy, path, &format!("X-Forwarded-For: 203.0.113.{number}")).status
        });
        assert_eq!(seen, expected, "{config}");
    }
}

/// [L5, L6] The same calls to two gateways that share a Redis: clients, known or not, have one budget at both.
#[test]
fn l6_the_same_calls_to_two_gateways_make_one_budget() {
    let origin = Origin::start();
    let redis = RedisServer::start(&[]);
    let gateways = [on_redis(&redis, &[]), on_redis(&redis, &[])];
    let made: Vec<Value> = gateways
        .iter()
        .map(|gateway| {
            let admin = gateway.admin();
            make_service(admin, "s", origin.address, &["keys", "free", "sliding"]);
            make_consumer(admin, "alice", &["a-1"]);
            make(admin, "/routes/keys/plugins", json!({"name": "key-auth"}));
            let policy = json!({"day": 5, "policy": "redis", "redis": {"host": "127.0.0.1"}});
            make(admin, "/services/s/plugins", json!({"name": "rate-limiting", "config": policy}));
            let sliding = json!({"limit": [4], "window_size": [86_400], "strategy": "redis", "identifier": "ip"});
            make(admin, "/routes/sliding/plugins", json!({"name": "rate-limiting-advanced", "config": sliding}))
        })
        .collect();
    assert_ne!(id(&made[0]), id(&made[1]), "ids are not what they have in common");
    let admitted = |path: &str, header: &str| {
        let answers = (0..8).map(|number| ask(gateways[number % 2].proxy(), path, header));
        let answers: Vec<_> =
            answers.inspect(|answer| assert!(answer.header("x-tollgate-degraded").is_none())).collect();
        answers.iter().filter(|answer| answer.status == 200).count()
    };
    assert_eq!(admitted("/keys", "apikey: a-1"), 5);
    assert_eq!(admitted("/sliding", ""), 4, "this one of the address");
    assert_eq!(admitted("/free", ""), 1, "and one is left of the other plugin's five");
    // One that is made again goes on where it was.
    let (admin, plugins) = (gateways[0].admin(), "/services/s/plugins");
    let plugin = calls::look(admin, plugins)["data"][0].clone();
    assert_eq!(call(admin, "DELETE", &format!("/plugins/{}", id(&plugin)), &Value::Null).0, 204);
    assert_eq!(ask(gateways[0].proxy(), "/free", "").status, 200);
    assert_ne!(id(&make(admin, plugins, plugin.clone())), id(&plugin));
    assert_eq!(ask(gateways[0].proxy(), "/free", "").status, 429);
}

/// [L6] Without the store a plugin with `fault_tolerant: false` lets nobody through, and each gateway counts by itself
/// for any other.
#[test]
fn a_plugin_says_what_becomes_of_requests_without_the_store() {
    let origin = Origin::start();
    let mut redis = RedisServer::start(&[]);
    let gateway = on_redis(&redis, &[]);
    let (admin, proxy) = (gateway.admin(), gateway.proxy());
    make_service(admin, "s", origin.address, &["strict", "tolerant"]);
    for (route, is_tolerant) in [("strict", false), ("tolerant", true)] {
        let config = json!({"day": 2, "policy": "redis", "fault_tolerant": is_tolerant});
        make(admin, &format!("/routes/{route}/plugins"), json!({"name": "rate-limiting", "config": config}));
        assert_eq!(ask(proxy, &format!("/{route}"), "").status, 200);
    }
    redis.kill();
    assert_eq!(statuses(proxy, "/strict", [""; 2]), [429, 429], "although one is left");
    // How much of the limit was spent before may be known here, or not.
    let tolerant = statuses(proxy, "/tolerant", [""; 3]);
    assert!(tolerant[0] == 200 && tolerant[2] == 429, "{tolerant:?}");
}

/// Objects outlive a restart, and so does what they say; counters do in a Redis, and begin anew in memory.
#[test]
fn limits_hold_after_a_restart() {
    let origin = Origin::start();
    let redis = RedisServer::start(&[]);
    for (is_shared, left) in [(true, 1), (false, 3)] {
        let data = scratch("data").display().to_string();
        let args = ["--data", &data];
        let start = || if is_shared { on_redis(&redis, &args) } else { Service::gateway_with(&args) };
        let gateway = start();
        let admin = gateway.admin();
        make_service(admin, "s", origin.address, &["r"]);
        make_consumer(admin, "alice", &["a-1"]);
        make(admin, "/services/s/plugins", json!({"name": "key-auth"}));
        make(admin, "/routes/r/plugins", json!({"name": "rate-limiting", "config": {"day": 3}}));
        let kinds = ["/services", "/routes", "/consumers", "/key-auths", "/plugins"];
        let before = kinds.map(|kind| calls::look(admin, kind));
        assert_eq!(before.each_ref().map(|list| list["total"].as_u64().unwrap()), [1, 1, 1, 1, 2]);
        assert_eq!(statuses(gateway.proxy(), "/r", ["apikey: a-1"; 2]), [200, 200]);
        drop(gateway);
        let gateway = start();
        assert_eq!(kinds.map(|kind| calls::look(gateway.admin(), kind)), before);
        assert_eq!(ask(gateway.proxy(), "/r", "").status, 401);
        let after = statuses(gateway.proxy(), "/r", ["apikey: a-1"; 4]);
        assert_eq!(
            after.map(|status| status == 200),
            [0, 1, 2, 3].map(|number| number < left),
            "{is_shared}: {after:?}"
        );
        assert_eq!(after[3], 429);
    }
}

/// `hide_client_headers` hides all of them, `Retry-After` as well, as it does in Kong.
#[test]
fn headers_can_be_hidden_from_clients() {
    let origin = Origin::start();
    let gateway = Service::gateway_with(&[]);
    let (admin, proxy) = (gateway.admin(), gateway.proxy());
    make_service(admin, "s", origin.address, &["shown", "hidden"]);
    for (route, is_hidden) in [("shown", false), ("hidden", true)] {
        let config = json!({"day": 1, "hide_client_headers": is_hidden});
        make(admin, &format!("/routes/{route}/plugins"), json!({"name": "rate-limiting", "config": config}));
    }
    let told = |path: &str, status: u16| -> Vec<String> {
        let answer = ask(proxy, path, "");
        assert_eq!(answer.status, status, "{path}");
        let names = answer.headers.into_iter().map(|(name, _)| name);
        names.filter(|name| name.contains("ratelimit") || name == "retry-after").collect()
    };
    let usual = ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"];
    let of_the_day = ["x-ratelimit-limit-day", "x-ratelimit-remaining-day"];
    assert_eq!(told("/shown", 200), [&usual[..], &of_the_day].concat());
    assert_eq!(told("/shown", 429), [&["retry-after"], &usual[..], &of_the_day].concat());
    assert_eq!(told("/hidden", 200), [""; 0]);
    assert_eq!(told("/hidden", 429), [""; 0]);
}

/// A window that does not exist is no sliding one, and one that would not be used is not asked for.
#[test]
fn kinds_of_windows_that_would_mean_nothing_are_refused() {
    let origin = Origin::start();
    let gateway = Service::gateway_with(&[]);
    let admin = gateway.admin();
    make_service(admin, "s", origin.address, &["r"]);
    for (config, why) in [
        (json!({"limit": [5], "window_size": [60], "window_type": "tumbling"}), "expected one of: sliding, fixed"),
        (json!({"limit": [5], "window_size": [60], "window_type": "Sliding"}), "expected one of: sliding, fixed"),
        (json!({"minute": 5, "window_type": "sliding"}), "use limit and window_size"),
    ] {
        for name in ["rate-limiting", "rate-limiting-advanced"] {
            let (status, told) = call(admin, "POST", "/routes/r/plugins", &json!({"name": name, "config": config}));
            assert_eq!(status, 400, "{config}: {told}");
            assert!(told["fields"]["config.window_type"].as_str().unwrap().contains(why), "{told}");
        }
    }
    make(admin, "/routes/r/plugins", json!({"name": "rate-limiting", "config": {"minute": 5, "window_type": "fixed"}}));
}

/// What scripts say to Kong and means nothing here is taken, and the log says so: by name, since there are passwords.
#[test]
fn what_is_taken_without_effect_is_said_in_the_log() {
    let origin = Origin::start();
    let redis = RedisServer::start(&[]);
    let gateway = on_redis(&redis, &[]);
    let (admin, proxy) = (gateway.admin(), gateway.proxy());
    make_service(admin, "s", origin.address, &["plain", "full", "old"]);
    make(admin, "/routes/plain/plugins", json!({"name": "rate-limiting", "config": {"day": 1, "policy": "redis"}}));
    assert!(!gateway.log().contains("without effect"), "{}", gateway.log());
    let config = json!({
        "limit": [1], "window_size": [86_400], "strategy": "redis", "sync_rate": 10, "namespace": "n",
        "dictionary_name": "d", "disable_penalty": false, "retry_after_jitter_max": 3,
        "redis": {"host": "10.9.8.7", "password": "swordfish"},
    });
    let made = make(admin, "/routes/full/plugins", json!({"name": "rate-limiting-advanced", "config": config}));
    assert_eq!(made["config"]["redis"]["host"], "10.9.8.7");
    let names = "config.dictionary_name, config.disable_penalty, config.namespace, config.redis, \
                 config.retry_after_jitter_max, config.sync_rate";
    eventually("it is said", || gateway.log().contains(names));
    // As versions of before 3.8 have it.
    let config = json!({"day": 1, "policy": "redis", "redis_host": "10.9.8.7", "redis_password": "swordfish"});
    make(admin, "/routes/old/plugins", json!({"name": "rate-limiting", "config": config}));
    eventually("it is said", || gateway.log().contains("config.redis_host, config.redis_password"));
    assert!(!gateway.log().contains("swordfish"));
    for path in ["/plain", "/full", "/old"] {
        assert_eq!(statuses(proxy, path, [""; 2]), [200, 429], "{path}");
    }
}
