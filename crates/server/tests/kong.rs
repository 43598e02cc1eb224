//! Kong's admin API: the seeds' calls verbatim by curl, today's calls for the same job, and what is kept across a
//! restart.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "kong/calls.rs"]
mod calls;
#[path = "gateway/origin.rs"]
mod origin;
mod support;

use std::net::SocketAddr;
use std::process::Command;

use calls::call;
use origin::Origin;
use serde_json::{Value, json};
use support::{Answer, Service, http, printed, scratch};

/// What curl prints: the body, and behind it the status.
fn curl(args: &[&str]) -> (u16, String) {
    let output = Command::new("curl").args(["-sS", "-w", "\n%{http_code}"]).args(args).output().unwrap();
    let printed = printed(&output);
    let (body, status) = printed.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), body.trim_end().to_owned())
}

fn get(at: SocketAddr, path: &str, headers: &str) -> Answer {
    http(at, &format!("GET {path} HTTP/1.1{headers}"), "")
}

/// A window of a minute may end between two requests; then the count begins anew, once.
fn statuses(at: SocketAddr, path: &str, number: usize) -> Vec<u16> {
    (0..number).map(|_| get(at, path, "").status).collect()
}

/// [F6, L1-L5] The two calls of the seeds, with and without the slash at the end, and the sixth request of the minute.
#[test]
fn l4_the_seeds_calls_work_verbatim() {
    let origin = Origin::start();
    let gateway = Service::gateway_with(&[]);
    let (admin, proxy) = (format!("http://{}", gateway.admin()), gateway.proxy());
    let upstream = format!("upstream_url=http://{}/get", origin.address);
    let (status, made) = curl(&[
        "-X",
        "POST",
        "--url",
        &format!("{admin}/apis/"),
        "--data",
        "name=test",
        "--data",
        "uris=/test",
        "--data",
        &upstream,
    ]);
    let made: Value = serde_json::from_str(&made).unwrap();
    assert_eq!(
        (status, &made["name"], &made["strip_uri"], &made["uris"]),
        (201, &json!("test"), &json!(true), &json!(["/test"]))
    );
    assert!(made["created_at"].as_u64().unwrap() > 1_700_000_000_000 && made["id"].as_str().unwrap().len() == 36);

    let answer = get(proxy, "/test", "");
    assert_eq!((answer.status, &*origin.last().line), (200, "GET /get HTTP/1.1"));
    assert_eq!(origin.last().header("x-forwarded-host"), Some("localhost"));
    assert_eq!(get(proxy, "/other", "").status, 404);

    let plugins = format!("{admin}/apis/test/plugins/");
    let (status, plugin) = curl(&["-X", "POST", &plugins, "-d", "name=rate-limiting", "-d", "config.minute=5"]);
    let plugin: Value = serde_json::from_str(&plugin).unwrap();
    assert_eq!((status, &plugin["config"]["minute"], &plugin["api_id"]), (201, &json!(5), &made["id"]));
    // Seven requests are over the limit of five in one of two minutes at least.
    let mut seen = statuses(proxy, "/test", 11);
    assert_eq!(seen.pop(), Some(429), "{seen:?}");
    assert_eq!(seen[..5], [200; 5]);
    let denied = get(proxy, "/test", "");
    assert_eq!((denied.status, &*denied.body), (429, r#"{"message":"API rate limit exceeded"}"#));
    assert_eq!(denied.header("x-ratelimit-limit-minute"), Some("5"));
    assert_eq!((denied.header("ratelimit-limit"), denied.header("ratelimit-remaining")), (Some("5"), Some("0")));
    assert!(denied.header("retry-after").unwrap().parse::<u64>().unwrap() <= 60);
    // The same plugin a second time is one too many.
    assert_eq!(curl(&["-X", "POST", &plugins, "-d", "name=rate-limiting", "-d", "config.minute=7"]).0, 409);
}

/// [L7] The enterprise form, without the slash. That its window slides, `kong_limits.rs` shows.
#[test]
fn l7_the_enterprise_form_works_verbatim() {
    let origin = Origin::start();
    let gateway = Service::gateway_with(&[]);
    let admin = format!("http://{}", gateway.admin());
    let upstream = format!("upstream_url=http://{}", origin.address);
    curl(&["-X", "POST", &format!("{admin}/apis"), "-d", "name=test", "-d", "uris=/test", "-d", &upstream]);
    let (status, plugin) = curl(&[
        "-i",
        "-X",
        "POST",
        &format!("{admin}/apis/test/plugins"),
        "-d",
        "name=rate-limiting",
        "-d",
        "config.limit=5",
        "-d",
        "config.window_size=60",
        "-d",
        "config.sync_rate=10",
    ]);
    assert_eq!(status, 201, "{plugin}");
    let (_, shown) = curl(&[&format!("{admin}/rlconfig")]);
    assert!(shown.contains("5/60s") || shown.contains("5/min"), "{shown}");
    assert_eq!(statuses(gateway.proxy(), "/test", 6), [200, 200, 200, 200, 200, 429]);
}

#[test]
fn todays_calls_do_the_same_and_can_be_read_changed_and_taken_back() {
    let origin = Origin::start();
    let gateway = Service::gateway_with(&[]);
    let (admin, proxy) = (gateway.admin(), gateway.proxy());
    let url = format!("http://{}/base", origin.address);
    let (status, service) = call(admin, "POST", "/services", &json!({"name": "s", "url": url}));
    assert_eq!((status, &service["protocol"], &service["path"]), (201, &json!("http"), &json!("/base")));
    let (status, route) =
        call(admin, "POST", "/services/s/routes", &json!({"name": "r", "paths": ["/r"], "methods": ["GET"]}));
    assert_eq!((status, &route["strip_path"], &route["service"]["id"]), (201, &json!(true), &service["id"]));
    assert_eq!(get(proxy, "/r/x", "").status, 200);
    assert_eq!(origin.last().line, "GET /base/x HTTP/1.1");
    assert_eq!(http(proxy, "POST /r HTTP/1.1", "").status, 404);

    let (status, plugin) = call(
        admin,
        "POST",
        "/routes/r/plugins",
        &json!({"name": "rate-limiting", "config": {"day": 2, "limit_by": "ip"}}),
    );
    assert_eq!(status, 201, "{plugin}");
    assert_eq!(statuses(proxy, "/r", 3), [200, 200, 429]);
    let path = format!("/plugins/{}", plugin["id"].as_str().unwrap());
    let (status, changed) =
        call(admin, "PATCH", &path, &json!({"config": {"day": 4, "error_code": 503, "error_message": "later"}}));
    assert_eq!((status, &changed["config"]["day"], &changed["config"]["limit_by"]), (200, &json!(4), &json!("ip")));
    assert_eq!(statuses(proxy, "/r", 3), [200, 200, 503]);
    assert_eq!(get(proxy, "/r", "").body, r#"{"message":"later"}"#);
    let (_, listed) = call(admin, "GET", "/routes/r/plugins", &Value::Null);
    assert_eq!((&listed["data"][0]["id"], &listed["next"]), (&plugin["id"], &Value::Null));
    assert_eq!(call(admin, "DELETE", &path, &Value::Null).0, 204);
    assert_eq!(get(proxy, "/r", "").status, 200);
    assert_eq!(call(admin, "GET", &path, &Value::Null), (404, json!({"message": "Not found"})));
    // What belongs to something goes with it.
    assert_eq!(call(admin, "DELETE", "/services/s", &Value::Null).0, 204);
    assert_eq!(get(proxy, "/r", "").status, 404);
    assert_eq!(call(admin, "GET", "/routes", &Value::Null).1["total"], 0);
}

/// [L6] By consumer: known by a key, and with a limit of its own.
#[test]
fn l6_consumers_have_keys_and_limits_of_their_own() {
    let origin = Origin::start();
    let gateway = Service::gateway_with(&[]);
    let (admin, proxy) = (gateway.admin(), gateway.proxy());
    let make = |path: &str, body: Value| {
        let (status, made) = call(admin, "POST", path, &body);
        assert_eq!(status, 201, "{path}: {made}");
        made
    };
    make("/services", json!({"name": "s", "url": format!("http://{}", origin.address)}));
    make("/services/s/routes", json!({"name": "r", "paths": ["/"]}));
    make("/services/s/plugins", json!({"name": "key-auth"}));
    make("/services/s/plugins", json!({"name": "rate-limiting", "config": {"day": 2}}));
    for (name, key) in [("alice", "a-key"), ("bob", "b-key"), ("carol", "c-key")] {
        make("/consumers", json!({"username": name}));
        make(&format!("/consumers/{name}/key-auth"), json!({"key": key}));
    }
    make("/consumers/carol/plugins", json!({"name": "rate-limiting", "config": {"day": 4}}));
    let ask = |key: &str| get(proxy, "/", &format!("\napikey: {key}")).status;
    assert_eq!(get(proxy, "/", "").status, 401);
    assert_eq!(ask("wrong"), 401);
    assert_eq!([ask("a-key"), ask("a-key"), ask("a-key"), ask("b-key")], [200, 200, 429, 200]);
    assert_eq!([ask("c-key"), ask("c-key"), ask("c-key"), ask("c-key"), ask("c-key")], [200, 200, 200, 200, 429]);
    assert_eq!(get(proxy, "/?apikey=b-key", "").status, 200);
}

#[test]
fn what_was_made_is_there_after_a_restart() {
    let origin = Origin::start();
    let data = scratch("data");
    let data = data.display().to_string();
    let gateway = Service::gateway_with(&["--data", &data]);
    let url = format!("http://{}", origin.address);
    assert_eq!(call(gateway.admin(), "POST", "/apis", &json!({"name": "a", "uris": "/a", "upstream_url": url})).0, 201);
    assert_eq!(get(gateway.proxy(), "/a", "").status, 200);
    drop(gateway);
    // It may hold keys, which are nobody else's to read.
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(format!("{data}/objects.json")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    let gateway = Service::gateway_with(&["--data", &data]);
    assert_eq!(get(gateway.proxy(), "/a", "").status, 200);
    assert_eq!(call(gateway.admin(), "GET", "/apis/a", &Value::Null).1["upstream_url"], url);
}

/// What cannot be kept is not in force either, and that is no fault of whoever asked.
#[test]
fn what_cannot_be_kept_is_not_made() {
    let origin = Origin::start();
    let data = scratch("data");
    let gateway = Service::gateway_with(&["--data", &data.display().to_string()]);
    let api = json!({"name": "a", "uris": "/a", "upstream_url": format!("http://{}", origin.address)});
    // Where the file would be written first there is something else.
    std::fs::create_dir(data.join("objects.new")).unwrap();
    let (status, told) = call(gateway.admin(), "POST", "/apis", &api);
    assert!(status == 500 && told.to_string().contains("cannot be kept"), "{status}: {told}");
    assert_eq!(get(gateway.proxy(), "/a", "").status, 404);
    assert_eq!(call(gateway.admin(), "GET", "/apis", &Value::Null).1["total"], 0);
    std::fs::remove_dir(data.join("objects.new")).unwrap();
    assert_eq!(call(gateway.admin(), "POST", "/apis", &api).0, 201);
    assert_eq!(get(gateway.proxy(), "/a", "").status, 200);
}

/// Each is told what is wrong, in Kong's form, and changes nothing.
#[test]
fn bad_calls_change_nothing() {
    let origin = Origin::start();
    let gateway = Service::gateway_with(&[]);
    let (admin, proxy) = (gateway.admin(), gateway.proxy());
    let url = format!("http://{}", origin.address);
    assert_eq!(call(admin, "POST", "/apis", &json!({"name": "a", "uris": ["/a"], "upstream_url": url})).0, 201);
    for (method, path, body, status, said) in [
        ("POST", "/apis", json!({}), 400, "name"),
        ("POST", "/apis", json!({"name": "b", "upstream_url": url}), 400, "at least one of"),
        ("POST", "/apis", json!({"name": "b", "uris": [], "upstream_url": url}), 400, "at least one of"),
        ("PATCH", "/apis/a", json!({"uris": []}), 400, "at least one of"),
        ("POST", "/apis", json!({"name": "b c", "uris": "/b", "upstream_url": url}), 400, "letters"),
        ("POST", "/apis", json!({"name": "b", "uris": "/b", "upstream_url": "ftp://x"}), 400, "how to speak"),
        ("POST", "/apis", json!({"name": "b", "uris": "/b", "upstream_url": url, "color": 1}), 400, "unknown field"),
        ("POST", "/apis", json!({"name": "b", "uris": "no-slash", "upstream_url": url}), 400, "is no path"),
        ("POST", "/apis", json!({"name": "b", "uris": 7, "upstream_url": url}), 400, "array of strings"),
        ("POST", "/apis", json!({"name": "a", "uris": "/b", "upstream_url": url}), 409, "UNIQUE"),
        ("POST", "/apis/none/plugins", json!({"name": "rate-limiting"}), 404, "Not found"),
        ("POST", "/apis/a/plugins", json!({"name": "acl"}), 400, "not enabled"),
        ("POST", "/apis/a/plugins", json!({"name": "rate-limiting"}), 400, "at least one limit"),
        ("POST", "/apis/a/plugins", json!({"name": "rate-limiting", "config": {"minute": 0}}), 400, "greater than 0"),
        (
            "POST",
            "/apis/a/plugins",
            json!({"name": "rate-limiting", "config": {"minute": "x"}}),
            400,
            "expected a number",
        ),
        (
            "POST",
            "/apis/a/plugins",
            json!({"name": "rate-limiting", "config": {"second": 9, "minute": 5}}),
            400,
            "The limit for minute(5.0) cannot be lower than the limit for second(9.0)",
        ),
        (
            "POST",
            "/apis/a/plugins",
            json!({"name": "rate-limiting", "config": {"limit": [1, 2], "window_size": [60]}}),
            400,
            "same number of windows",
        ),
        (
            "POST",
            "/apis/a/plugins",
            json!({"name": "rate-limiting", "config": {"minute": 5, "policy": "redis"}}),
            400,
            "--store",
        ),
        (
            "POST",
            "/apis/a/plugins",
            json!({"name": "rate-limiting", "config": {"minute": 5, "limit_by": "moon"}}),
            400,
            "one of",
        ),
        (
            "POST",
            "/apis/a/plugins",
            json!({"name": "rate-limiting", "config": {"minute": 5, "limit_by": "header"}}),
            400,
            "header_name",
        ),
        (
            "POST",
            "/apis/a/plugins",
            json!({"name": "rate-limiting", "config": {"minute": 5, "limit_by": "header", "header_name": "a\r\nb"}}),
            400,
            "no name of a header",
        ),
        (
            "POST",
            "/apis/a/plugins",
            json!({"name": "rate-limiting", "config": {"minute": 5, "limit_by": "path", "path": "a"}}),
            400,
            "should start with",
        ),
        // Also where nothing is limited by it yet.
        ("POST", "/plugins", json!({"name": "rate-limiting", "config": {"minute": 1e20}}), 400, "below 2^53"),
        (
            "POST",
            "/plugins",
            json!({"name": "rate-limiting", "config": {"limit": [1], "window_size": [1e13]}}),
            400,
            "a hundred years",
        ),
        (
            "POST",
            "/apis",
            json!({"name": "b", "uris": "/b", "upstream_url": url, "https_only": true}),
            400,
            "--proxy-tls-cert",
        ),
        (
            "POST",
            "/apis/a/plugins",
            json!({"name": "key-auth", "config": {"hide_credentials": true}}),
            400,
            "passed on",
        ),
        (
            "POST",
            "/apis/a/plugins",
            json!({"name": "key-auth", "config": {"key_in_query": false}}),
            400,
            "config.key_in_query",
        ),
        ("POST", "/apis/a/plugins", json!({"name": "key-auth", "config": {"key_names": []}}), 400, "config.key_names"),
        ("POST", "/plugins", json!({"name": "key-auth", "config": {"key_names": [""]}}), 400, "config.key_names"),
        (
            "PUT",
            "/plugins/mine",
            json!({"name": "rate-limiting", "config": {"minute": 5}}),
            400,
            "expected a valid UUID",
        ),
        ("POST", "/services", json!({"name": "s"}), 400, "host"),
        ("POST", "/routes", json!({"name": "r", "paths": ["/r"]}), 400, "service"),
        (
            "POST",
            "/routes",
            json!({"name": "r", "paths": ["/r"], "service": {"id": "none"}}),
            400,
            "there is no service",
        ),
        ("PATCH", "/apis/none", json!({}), 404, "Not found"),
        ("DELETE", "/apis/none", Value::Null, 404, "Not found"),
        ("POST", "/apis/a", json!({}), 405, "not allowed"),
        ("DELETE", "/apis", Value::Null, 405, "not allowed"),
    ] {
        let (told, answer) = call(admin, method, path, &body);
        assert_eq!(told, status, "{method} {path} {body}: {answer}");
        assert!(answer.to_string().contains(said), "{method} {path} {body}: {answer}");
    }
    let broken = http(admin, "POST /apis HTTP/1.1\nContent-Type: application/json", "{\"name\": ");
    assert!(broken.status == 400 && broken.body.contains("Cannot parse JSON body"), "{}", broken.body);
    let other_site = http(admin, "DELETE /apis/a HTTP/1.1\nOrigin: http://evil", "");
    assert_eq!(other_site.status, 403);
    assert_eq!(get(proxy, "/a", "").status, 200);
    assert_eq!(call(admin, "GET", "/apis", &Value::Null).1["total"], 1);
}

/// Whoever reaches the admin port does not reach everything else by it: neither by an address, nor by a name that leads
/// there, nor by a file.
#[test]
fn servers_are_where_the_operator_allows_them() {
    let origin = Origin::start();
    let port = origin.address.port();
    let made = |gateway: &Service, name: &str, url: &str| {
        let api = json!({"name": name, "uris": [format!("/{name}")], "upstream_url": url});
        call(gateway.admin(), "POST", "/apis", &api)
    };
    let usual = Service::gateway_with(&[]);
    for url in
        ["http://169.254.169.254/latest", "http://[fe80::1]/", "http://0.0.0.0:80/", "http://[::ffff:169.254.0.1]/"]
    {
        let (status, told) = made(&usual, "x", url);
        assert_eq!(status, 400, "{url}: {told}");
        assert!(told.to_string().contains("--admin-upstreams"), "{told}");
    }
    assert_eq!(made(&usual, "x", "unix:/run/docker.sock").0, 400);
    assert_eq!(made(&usual, "here", &format!("http://127.0.0.1:{port}/")).0, 201);
    assert_eq!(get(usual.proxy(), "/here", "").status, 200);
    // A name is looked at when it is connected to.
    let public = Service::gateway_with(&["--admin-upstreams", "public"]);
    assert_eq!(made(&public, "here", &format!("http://127.0.0.1:{port}/")).0, 400);
    assert_eq!(made(&public, "name", &format!("http://localhost:{port}/")).0, 201);
    let answer = get(public.proxy(), "/name", "");
    assert_eq!(answer.status, 502);
    assert!(!answer.body.contains("127.0.0.1"), "{}", answer.body);
    assert!(origin.seen().len() == 1, "only what was allowed arrived");
    let named = Service::gateway_with(&["--admin-upstreams", "10.0.0.0/8,127.0.0.1"]);
    assert_eq!(made(&named, "here", &format!("http://127.0.0.1:{port}/")).0, 201);
    assert_eq!(get(named.proxy(), "/here", "").status, 200);
}

/// [L6] Where only a consumer has a limit, its plugin says what it is told; and all that act on one route say the same.
#[test]
fn a_consumers_plugin_says_what_the_consumer_is_told() {
    let origin = Origin::start();
    let gateway = Service::gateway_with(&[]);
    let (admin, proxy) = (gateway.admin(), gateway.proxy());
    let make = |path: &str, body: Value| call(admin, "POST", path, &body).0;
    assert_eq!(make("/services", json!({"name": "s", "url": format!("http://{}", origin.address)})), 201);
    assert_eq!(make("/services/s/routes", json!({"name": "r", "paths": ["/"]})), 201);
    assert_eq!(make("/services/s/plugins", json!({"name": "key-auth"})), 201);
    assert_eq!(make("/consumers", json!({"username": "carol"})), 201);
    assert_eq!(make("/consumers/carol/key-auth", json!({"key": "c-key"})), 201);
    let config = json!({"day": 1, "error_code": 420, "error_message": "calm down"});
    assert_eq!(make("/consumers/carol/plugins", json!({"name": "rate-limiting", "config": config})), 201);
    let ask = || get(proxy, "/", "\napikey: c-key");
    assert_eq!(ask().status, 200);
    let denied = ask();
    assert_eq!((denied.status, &*denied.body), (420, r#"{"message":"calm down"}"#));
    assert_eq!(denied.header("x-ratelimit-limit-day"), Some("1"));
    let other = json!({"name": "rate-limiting", "config": {"day": 9}});
    let (status, told) = call(admin, "POST", "/services/s/plugins", &other);
    assert!(status == 400 && told.to_string().contains("tells all its clients the same"), "{told}");
    let same = json!({"name": "rate-limiting", "config": {"day": 9, "error_code": 420, "error_message": "calm down"}});
    assert_eq!(make("/services/s/plugins", same), 201);
    assert_eq!(ask().status, 420);
}

/// Of two plugins that limit the same none is switched off silently: the second is refused, and one can have limits of
/// both forms.
#[test]
fn a_second_plugin_does_not_take_the_place_of_the_first() {
    let origin = Origin::start();
    let gateway = Service::gateway_with(&[]);
    let (admin, proxy) = (gateway.admin(), gateway.proxy());
    let api = json!({"name": "a", "uris": "/a", "upstream_url": format!("http://{}", origin.address)});
    assert_eq!(call(admin, "POST", "/apis", &api).0, 201);
    let (status, plain) =
        call(admin, "POST", "/apis/a/plugins", &json!({"name": "rate-limiting", "config": {"day": 3}}));
    assert_eq!(status, 201);
    let advanced = json!({"name": "rate-limiting-advanced", "config": {"limit": [100], "window_size": [60]}});
    let (status, told) = call(admin, "POST", "/apis/a/plugins", &advanced);
    assert!(status == 400 && told.to_string().contains("another plugin limits the same already"), "{told}");
    assert_eq!(statuses(proxy, "/a", 2), [200, 200]);
    let both = json!({"config": {"limit": [1], "window_size": [86_400]}});
    let (status, told) = call(admin, "PATCH", &format!("/plugins/{}", plain["id"].as_str().unwrap()), &both);
    assert_eq!(status, 200, "{told}");
    assert_eq!(statuses(proxy, "/a", 2), [200, 429], "the new limit, and then the old one, is reached");
}

/// What is put under a name or an id is there under it, and putting it again changes it.
#[test]
fn what_is_put_twice_is_there_once() {
    let origin = Origin::start();
    let gateway = Service::gateway_with(&[]);
    let (admin, proxy) = (gateway.admin(), gateway.proxy());
    let url = format!("http://{}", origin.address);
    let put = |path: &str, body: &Value| call(admin, "PUT", path, body);
    let service = json!({"url": url});
    let (status, first) = put("/services/s", &service);
    assert_eq!((status, &first["name"]), (200, &json!("s")));
    assert_eq!(put("/services/s", &service).1["id"], first["id"]);
    assert_eq!(put("/routes/r", &json!({"paths": ["/r"], "service": {"name": "s"}})).0, 200);
    let id = "0b1a2c3d-0000-4000-8000-0123456789ab";
    let plugin = |day: u32| json!({"name": "rate-limiting", "route": {"name": "r"}, "config": {"day": day}});
    for day in [1, 1, 2] {
        let (status, made) = put(&format!("/plugins/{id}"), &plugin(day));
        assert_eq!((status, &made["id"], &made["config"]["day"]), (200, &json!(id), &json!(day)), "{made}");
    }
    assert_eq!(call(admin, "GET", "/plugins", &Value::Null).1["total"], 1);
    assert_eq!(statuses(proxy, "/r", 3), [200, 200, 429]);
    // What is left out is as if it had never been said.
    assert_eq!(put("/routes/r", &json!({"paths": ["/other"], "service": {"name": "s"}})).0, 200);
    assert_eq!([get(proxy, "/r", "").status, get(proxy, "/other", "").status], [404, 429]);
    // One that belongs to somebody else is not taken from there.
    assert_eq!(put("/routes/two", &json!({"paths": ["/two"], "service": {"name": "s"}})).0, 200);
    assert_eq!(put(&format!("/routes/two/plugins/{id}"), &plugin(5)).0, 404);
    assert_eq!(call(admin, "GET", &format!("/plugins/{id}"), &Value::Null).1["config"]["day"], 2);
}

/// With a token, nothing can be made or looked at without it.
#[test]
fn a_token_is_asked_for_on_kongs_paths() {
    let origin = Origin::start();
    let gateway = Service::gateway_with(&["--admin-token", "let-me-in"]);
    let admin = gateway.admin();
    let api = json!({"name": "a", "uris": "/a", "upstream_url": format!("http://{}", origin.address)}).to_string();
    let ask = |method: &str, path: &str, token: &str, body: &str| {
        http(admin, &format!("{method} {path} HTTP/1.1\nContent-Type: application/json{token}"), body).status
    };
    let (none, wrong, right) = ("", "\nAuthorization: Bearer let-me", "\nAuthorization: Bearer let-me-in");
    for token in [none, wrong] {
        for (method, path, body) in [
            ("POST", "/apis/", &*api),
            ("GET", "/apis", ""),
            ("PUT", "/apis/a", &*api),
            ("PATCH", "/apis/a", "{}"),
            ("DELETE", "/apis/a", ""),
            ("POST", "/apis/a/plugins", "{}"),
        ] {
            assert_eq!(ask(method, path, token, body), 401, "{method} {path}");
        }
    }
    assert_eq!(get(gateway.proxy(), "/a", "").status, 404);
    assert_eq!(ask("POST", "/apis/", right, &api), 201);
    assert_eq!(get(gateway.proxy(), "/a", "").status, 200);
}

/// Whoever leaves before the answer leaves either all of it or nothing.
#[test]
fn a_caller_who_leaves_leaves_nothing_half_done() {
    let origin = Origin::start();
    let gateway = Service::gateway_with(&[]);
    let (admin, proxy) = (gateway.admin(), gateway.proxy());
    for number in 0..20 {
        let api = json!({"name": format!("a{number}"), "uris": format!("/a{number}"), "upstream_url": format!("http://{}", origin.address)});
        let body = api.to_string();
        let mut stream = std::net::TcpStream::connect(admin).unwrap();
        let head = format!(
            "POST /apis HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {}",
            body.len()
        );
        std::io::Write::write_all(&mut stream, format!("{head}\r\n\r\n{body}").as_bytes()).unwrap();
        support::pause(std::time::Duration::from_micros(number * 300));
        drop(stream);
    }
    // A change after them waits for all of them.
    let last = json!({"name": "last", "uris": "/last", "upstream_url": format!("http://{}", origin.address)});
    assert_eq!(call(admin, "POST", "/apis", &last).0, 201);
    for number in 0..20 {
        let listed = call(admin, "GET", &format!("/apis/a{number}"), &Value::Null).0;
        let served = get(proxy, &format!("/a{number}"), "").status;
        assert_eq!((listed == 200), (served == 200), "{number}: {listed} and {served}");
    }
}
