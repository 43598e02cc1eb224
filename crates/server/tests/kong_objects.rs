//! What can be done with the objects of Kong's admin API, and which of several plugins acts.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "kong/calls.rs"]
mod calls;
#[path = "gateway/origin.rs"]
mod origin;
mod support;

use calls::{ask, call, id, look, make, make_consumer, make_service, statuses};
use origin::Origin;
use serde_json::{Value, json};
use support::{Service, http, scratch};

/// Each kind is made, read, listed, changed, put anew and removed.
#[test]
fn objects_of_each_kind_are_made_read_changed_and_removed() {
    let origin = Origin::start();
    let gateway = Service::gateway_with(&[]);
    let admin = gateway.admin();
    let url = format!("http://{}", origin.address);
    make_service(admin, "base", origin.address, &[]);
    make(admin, "/consumers", json!({"username": "base"}));
    let limiting = |day: u32| json!({"name": "rate-limiting", "service": {"name": "base"}, "config": {"day": day}});
    for (path, made, name, change, field, default) in [
        (
            "/services",
            json!({"name": "s", "url": url}),
            Some("s"),
            json!({"retries": 3, "tags": ["a"]}),
            "/retries",
            json!(5),
        ),
        (
            "/routes",
            json!({"name": "r", "paths": ["/r"], "service": {"name": "base"}}),
            Some("r"),
            json!({"strip_path": false}),
            "/strip_path",
            json!(true),
        ),
        ("/consumers", json!({"username": "u"}), Some("u"), json!({"custom_id": "7"}), "/custom_id", Value::Null),
        (
            "/key-auths",
            json!({"key": "k", "consumer": {"username": "base"}}),
            Some("k"),
            json!({"tags": ["a"]}),
            "/tags",
            Value::Null,
        ),
        ("/plugins", limiting(1), None, json!({"config": {"error_code": 503}}), "/config/error_code", json!(429)),
        (
            "/apis",
            json!({"name": "a", "uris": ["/a"], "upstream_url": url}),
            Some("a"),
            json!({"preserve_host": true}),
            "/preserve_host",
            json!(false),
        ),
    ] {
        let others = look(admin, path)["total"].as_u64().unwrap();
        let first = make(admin, path, made.clone());
        assert_eq!(first.pointer(field), Some(&default), "{path}: {first}");
        let one = format!("{path}/{}", id(&first));
        assert_eq!(look(admin, &one), first);
        if let Some(name) = name {
            assert_eq!(look(admin, &format!("{path}/{name}")), first);
        }
        let listed = look(admin, path);
        assert_eq!(listed["total"], others + 1, "{path}: {listed}");
        assert!(listed["data"].as_array().unwrap().contains(&first), "{path}: {listed}");

        let (status, changed) = call(admin, "PATCH", &one, &change);
        assert_eq!((status, changed.pointer(field)), (200, change.pointer(field)), "{path}: {changed}");
        assert_eq!(look(admin, &one), changed);
        // But for what was changed, and when, it is the same.
        let mut expected = first.clone();
        merge(&mut expected, &change);
        assert_eq!(without_time(&changed), without_time(&expected));
        assert_eq!(changed["created_at"], first["created_at"]);

        let (status, put) = call(admin, "PUT", &one, &made);
        assert_eq!((status, without_time(&put)), (200, without_time(&first)), "{path}");
        assert_eq!(look(admin, path)["total"], others + 1);
        // What is answered can be sent back.
        assert_eq!(call(admin, "PUT", &one, &changed).1.pointer(field), change.pointer(field), "{path}");

        assert_eq!(call(admin, "DELETE", &one, &Value::Null), (204, Value::Null));
        assert_eq!(call(admin, "GET", &one, &Value::Null).0, 404);
        assert_eq!(look(admin, path)["total"], others);
    }
}

fn merge(into: &mut Value, change: &Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            change.iter().for_each(|(name, value)| merge(into.get_mut(name).unwrap(), value));
        }
        (into, change) => *into = change.clone(),
    }
}

fn without_time(object: &Value) -> Value {
    let mut object = object.clone();
    object.as_object_mut().unwrap().remove("updated_at");
    object
}

/// Lists come in pages, which name the next one: also those of what belongs to something.
#[test]
fn lists_come_in_pages() {
    let origin = Origin::start();
    let gateway = Service::gateway_with(&[]);
    let admin = gateway.admin();
    make_service(admin, "s", origin.address, &["a", "b", "c"]);
    make_service(admin, "t", origin.address, &["d", "e"]);
    make_consumer(admin, "u", &["k-1", "k-2", "k-3"]);
    make_consumer(admin, "v", &["k-4"]);
    let pages = |path: &str, field: &str| -> Vec<Vec<String>> {
        let mut pages = Vec::new();
        let mut next = Some(path.to_owned());
        while let Some(path) = next {
            let page = look(admin, &path);
            let names = page["data"].as_array().unwrap().iter().map(|one| one[field].as_str().unwrap().to_owned());
            pages.push(names.collect());
            next = page["next"].as_str().map(str::to_owned);
            assert_eq!(page["offset"].is_string(), next.is_some(), "{page}");
            assert!(pages.len() < 9, "{pages:?}");
        }
        pages
    };
    assert_eq!(pages("/routes?size=2", "name"), [&["a", "b"][..], &["c", "d"], &["e"]]);
    assert_eq!(pages("/routes?offset=3", "name"), [["d", "e"]]);
    assert_eq!(pages("/services/s/routes?size=2", "name"), [&["a", "b"][..], &["c"]]);
    assert_eq!(pages("/consumers/u/key-auth?size=2", "key"), [&["k-1", "k-2"][..], &["k-3"]]);
    assert_eq!(pages("/key-auths?size=4", "key"), [["k-1", "k-2", "k-3", "k-4"]]);
    for query in ["size=0", "size=1001", "size=many", "offset=far", "offset=-1"] {
        let (status, told) = call(admin, "GET", &format!("/routes?{query}"), &Value::Null);
        let field = query.split('=').next().unwrap();
        assert!(status == 400 && told["fields"][field].is_string(), "{query}: {told}");
    }
}

/// Plugins of an API of old are below it, and consumers of theirs are named as then.
#[test]
fn plugins_of_an_api_are_below_it() {
    let origin = Origin::start();
    let gateway = Service::gateway_with(&[]);
    let (admin, proxy) = (gateway.admin(), gateway.proxy());
    for name in ["a", "b"] {
        let api =
            json!({"name": name, "uris": format!("/{name}"), "upstream_url": format!("http://{}", origin.address)});
        make(admin, "/apis/", api);
    }
    let limiting = |day: u32| json!({"name": "rate-limiting", "config": {"day": day}});
    let made = make(admin, "/apis/a/plugins/", limiting(1));
    let one = format!("/apis/a/plugins/{}", id(&made));
    assert_eq!(look(admin, &one), made);
    assert_eq!(look(admin, "/apis/a/plugins")["data"], json!([made]));
    assert_eq!(statuses(proxy, "/a", [""; 2]), [200, 429]);
    assert_eq!(call(admin, "PATCH", &one, &json!({"config": {"day": 2}})).1["config"]["day"], 2);
    assert_eq!(statuses(proxy, "/a", [""; 2]), [200, 429]);
    assert_eq!(call(admin, "PUT", &one, &limiting(3)).0, 200);
    assert_eq!(statuses(proxy, "/a", [""; 2]), [200, 429]);
    // Not below another.
    let elsewhere = format!("/apis/b/plugins/{}", id(&made));
    for method in ["GET", "PATCH", "PUT", "DELETE"] {
        assert_eq!(call(admin, method, &elsewhere, &limiting(9)).0, 404, "{method}");
    }
    assert_eq!(statuses(proxy, "/b", [""; 4]), [200; 4]);
    // Sent back to where all plugins are it stays where it was, and there it can be made as well.
    let everywhere = format!("/plugins/{}", id(&made));
    assert_eq!(call(admin, "PUT", &everywhere, &look(admin, &everywhere)).1["api_id"], made["api_id"]);
    assert_eq!(call(admin, "DELETE", &one, &Value::Null).0, 204);
    assert_eq!(statuses(proxy, "/a", [""; 2]), [200, 200]);
    let plugin = json!({"name": "rate-limiting", "api_id": look(admin, "/apis/b")["id"], "config": {"day": 1}});
    make(admin, "/plugins/", plugin);
    assert_eq!(statuses(proxy, "/b", [""; 2]), [200, 429]);
    assert_eq!(ask(proxy, "/a", "").status, 200);

    make(admin, "/apis/a/plugins", json!({"name": "key-auth"}));
    make_consumer(admin, "alice", &["a-1"]);
    make_consumer(admin, "bob", &["b-1"]);
    let alice = id(&look(admin, "/consumers/alice")).to_owned();
    let hers = json!({"name": "rate-limiting", "consumer_id": alice, "config": {"day": 1}});
    let hers = make(admin, "/apis/a/plugins", hers);
    assert_eq!((&hers["consumer_id"], &hers["api_id"]), (&json!(alice), &look(admin, "/apis/a")["id"]));
    assert_eq!(
        statuses(proxy, "/a", ["apikey: a-1", "apikey: a-1", "apikey: b-1", "apikey: b-1"]),
        [200, 429, 200, 200]
    );
}

/// A plugin for all acts where none is closer; that of a consumer is closer than that of a route.
#[test]
fn the_closest_plugin_acts() {
    let origin = Origin::start();
    let gateway = Service::gateway_with(&[]);
    let (admin, proxy) = (gateway.admin(), gateway.proxy());
    make_consumer(admin, "alice", &["a-1"]);
    make_consumer(admin, "bob", &["b-1"]);
    make(admin, "/plugins", json!({"name": "key-auth"}));
    let limiting = |day: u32| json!({"name": "rate-limiting", "config": {"day": day}});
    make(admin, "/plugins", limiting(3));
    // Also on what is made after it.
    make_service(admin, "s", origin.address, &["one", "two"]);
    make_service(admin, "t", origin.address, &["three"]);
    let of_service = make(admin, "/services/s/plugins", limiting(2));
    let of_route = make(admin, "/routes/one/plugins", limiting(1));
    let paths = ["/one", "/two", "/three"];
    let limits = |key: &str| {
        paths.map(|path| {
            let answer = ask(proxy, path, &format!("apikey: {key}"));
            answer.header("x-ratelimit-limit-day").unwrap_or("none").to_owned()
        })
    };
    assert_eq!(ask(proxy, "/three", "").status, 401);
    assert_eq!(limits("b-1"), ["1", "2", "3"]);
    assert_eq!(statuses(proxy, "/one", ["apikey: b-1"; 1]), [429]);
    assert_eq!(statuses(proxy, "/two", ["apikey: b-1"; 2]), [200, 429]);
    assert_eq!(statuses(proxy, "/three", ["apikey: b-1"; 3]), [200, 200, 429]);

    make(admin, "/consumers/alice/plugins", limiting(5));
    assert_eq!(
        (limits("a-1"), limits("b-1")),
        (["5", "5", "5"].map(str::to_owned), ["1", "2", "3"].map(str::to_owned))
    );
    let both = json!({"name": "rate-limiting", "consumer": {"username": "alice"}, "config": {"day": 6}});
    make(admin, "/routes/one/plugins", both);
    assert_eq!(limits("a-1"), ["6", "5", "5"]);

    // One that is switched off or gone leaves its place to the next.
    assert_eq!(call(admin, "PATCH", &format!("/plugins/{}", id(&of_route)), &json!({"enabled": false})).0, 200);
    assert_eq!(limits("b-1"), ["2", "2", "3"]);
    assert_eq!(call(admin, "DELETE", &format!("/plugins/{}", id(&of_service)), &Value::Null).0, 204);
    assert_eq!(limits("b-1"), ["3", "3", "3"]);
}

/// A plugin that asks for keys asks for them wherever it is not told where they are, also one that was kept before.
#[test]
fn a_plugin_for_keys_without_names_takes_the_usual_one() {
    let origin = Origin::start();
    let data = scratch("kong-key-names");
    let options = ["--data", data.to_str().unwrap()];
    let gateway = Service::gateway_with(&options);
    let admin = gateway.admin();
    make_consumer(admin, "alice", &["a-1"]);
    make_service(admin, "s", origin.address, &["null", "form", "kept"]);
    let usual = |made: &Value| assert_eq!(made["config"]["key_names"], json!(["apikey"]), "{made}");
    let opened = |at, path: &str| statuses(at, path, ["", "apikey: wrong", "apikey: a-1"]);
    usual(&make(admin, "/routes/null/plugins", json!({"name": "key-auth", "config": {"key_names": null}})));
    let form = "POST /routes/form/plugins HTTP/1.1\nContent-Type: application/x-www-form-urlencoded";
    let made = http(admin, form, "name=key-auth&config.key_names=");
    assert_eq!(made.status, 201, "{}", made.body);
    usual(&serde_json::from_str(&made.body).unwrap());
    let named = make(admin, "/routes/kept/plugins", json!({"name": "key-auth", "config": {"key_names": ["x-kept"]}}));
    for path in ["/null", "/form"] {
        assert_eq!(opened(gateway.proxy(), path), [401, 401, 200], "{path}");
    }
    assert_eq!(opened(gateway.proxy(), "/kept"), [401; 3]);
    drop(gateway);
    let file = data.join("objects.json");
    let kept = std::fs::read_to_string(&file).unwrap();
    assert!(kept.contains(id(&named)), "{kept}");
    for without in ["null", "[]"] {
        let mut objects: Value = serde_json::from_str(&kept).unwrap();
        objects["plugins"][2]["config"]["key_names"] = without.parse().unwrap();
        std::fs::write(&file, objects.to_string()).unwrap();
        let gateway = Service::gateway_with(&options);
        assert_eq!(opened(gateway.proxy(), "/kept"), [401, 401, 200], "{without}");
    }
}

/// A list of nothing is as good as none: what a route has beside it says what it is for.
#[test]
fn an_empty_list_says_nothing() {
    let origin = Origin::start();
    let gateway = Service::gateway_with(&[]);
    let admin = gateway.admin();
    make_service(admin, "s", origin.address, &[]);
    for (route, status) in [
        (json!({"paths": [], "hosts": [], "methods": []}), 400),
        (json!({"paths": []}), 400),
        (json!({"hosts": []}), 400),
        (json!({"paths": ["/a"], "hosts": [], "methods": []}), 201),
    ] {
        assert_eq!(call(admin, "POST", "/services/s/routes", &route).0, status, "{route}");
    }
    assert_eq!((ask(gateway.proxy(), "/a", "").status, ask(gateway.proxy(), "/b", "").status), (200, 404));
}
