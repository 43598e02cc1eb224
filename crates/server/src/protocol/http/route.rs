//! What there is on this port, and what to say about what there is not.

use http::{Method, StatusCode};
use tollgate::rules::nearest;

use super::answer::Refusal;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Index,
    OpenApi,
    Live,
    Ready,
    Forward,
    /// Envoy's rate limit service, as JSON.
    Json,
    /// What envoyproxy/ratelimit calls readiness.
    Healthcheck,
    Ask(Asked),
}

/// A question with a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Check,
    Peek,
    Batch,
    Reserve,
    Commit,
    Cancel,
    Acquire,
    Renew,
    Release,
    Refund,
    Force,
    Explain,
}

impl Asked {
    /// The largest body, in bytes.
    pub(super) fn most_bytes(self) -> usize {
        if self == Self::Batch { 1 << 20 } else { 64 << 10 }
    }
}

const GET: &str = "GET, HEAD";
const POST: &str = "POST";
const ANY: &str = "any method";
/// As envoyproxy/ratelimit has it.
const POST_OR_ANY: &str = "POST, or any other method";

/// Every route: its methods, its path, what it is for.
pub(super) const ROUTES: [(&str, &str, &str, Route); 19] = [
    (GET, "/", "this list", Route::Index),
    (POST, "/v1/check", "may this go on? Charges if so", Route::Ask(Asked::Check)),
    (POST, "/v1/peek", "the same without charging", Route::Ask(Asked::Peek)),
    (POST, "/v1/batch", "many checks in one call", Route::Ask(Asked::Batch)),
    (POST, "/v1/reserve", "charge on approval", Route::Ask(Asked::Reserve)),
    (POST, "/v1/commit", "keep what was reserved, or what it needed after all", Route::Ask(Asked::Commit)),
    (POST, "/v1/cancel", "give it back", Route::Ask(Asked::Cancel)),
    (POST, "/v1/acquire", "take slots of a limit on concurrency", Route::Ask(Asked::Acquire)),
    (POST, "/v1/renew", "hold them longer", Route::Ask(Asked::Renew)),
    (POST, "/v1/release", "give them back", Route::Ask(Asked::Release)),
    (POST, "/v1/refund", "give back what a check charged", Route::Ask(Asked::Refund)),
    (POST, "/v1/force", "charge in any case", Route::Ask(Asked::Force)),
    (POST, "/v1/explain", "which rules apply, and why not others", Route::Ask(Asked::Explain)),
    (ANY, "/check", "forward-auth, for proxies; a path may follow", Route::Forward),
    (POST_OR_ANY, "/json", "Envoy's rate limit service, as JSON", Route::Json),
    (GET, "/healthcheck", "200 while requests are welcome, as envoyproxy/ratelimit says it", Route::Healthcheck),
    (GET, "/openapi.json", "all this as an OpenAPI document", Route::OpenApi),
    (GET, "/live", "200 while the process runs", Route::Live),
    (GET, "/ready", "200 while requests are welcome", Route::Ready),
];

/// What `method` and `path` ask for.
pub(super) fn find(method: &Method, path: &str) -> Result<Route, Refusal> {
    // The one that is asked most.
    if path == "/v1/check" && method == Method::POST {
        return Ok(Route::Ask(Asked::Check));
    }
    if path.strip_prefix("/check").is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
        return Ok(Route::Forward);
    }
    let Some((methods, .., route)) = ROUTES.iter().find(|(_, known, ..)| *known == path) else {
        return Err(Refusal::new(StatusCode::NOT_FOUND, not_found(path)));
    };
    let is_right = match *methods {
        GET => method == Method::GET || method == Method::HEAD,
        POST => method == Method::POST,
        _ => true,
    };
    if is_right {
        return Ok(*route);
    }
    let detail = format!("{path} is asked by {methods}");
    Err(Refusal { allow: Some(methods), ..Refusal::new(StatusCode::METHOD_NOT_ALLOWED, detail) })
}

fn not_found(path: &str) -> String {
    let shown: String = path.chars().take(100).collect();
    match nearest(path, ROUTES.iter().map(|(_, known, ..)| *known).filter(|known| *known != "/")) {
        Some(meant) => format!("there is no {shown}: did you mean {meant}?"),
        None => format!("there is no {shown}: GET / lists what there is"),
    }
}

/// All routes, for people.
/// `host` is how the client calls this place.
pub(super) fn list(host: &str) -> String {
    let mut text = format!("tollgate {}\n\n", env!("CARGO_PKG_VERSION"));
    for (methods, path, what, _) in ROUTES {
        let method = match methods {
            GET => "GET",
            ANY => "ANY",
            POST_OR_ANY => "POST",
            other => other,
        };
        text.push_str(&format!("{method:<4} {path:<14} {what}\n"));
    }
    text.push_str(&format!("\ncurl -i {host}/v1/check -d '{{\"attributes\": {{\"user_id\": \"42\"}}}}'\n"));
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_route_is_found_by_its_path_and_the_right_method_only() {
        for (methods, path, _, route) in ROUTES {
            for method in [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
                let is_right =
                    [ANY, POST_OR_ANY].contains(&methods) || methods.split(", ").any(|right| right == method.as_str());
                match find(&method, path) {
                    Ok(found) => assert!(is_right && found == route, "{method} {path}"),
                    Err(refusal) => {
                        assert!(!is_right, "{method} {path}");
                        assert_eq!((refusal.status.as_u16(), refusal.allow), (405, Some(methods)));
                    }
                }
            }
        }
    }

    #[test]
    fn a_path_may_follow_check_and_nothing_else() {
        assert_eq!(find(&Method::PUT, "/check/a/b").unwrap(), Route::Forward);
        assert_eq!(find(&Method::PUT, "/check/").unwrap(), Route::Forward);
        for (path, told) in [
            ("/checks", "there is no /checks: did you mean /check?"),
            ("/v1/chekc", "there is no /v1/chekc: did you mean /v1/check?"),
            ("/v1/check/", "there is no /v1/check/: did you mean /v1/check?"),
            ("/banana", "there is no /banana: GET / lists what there is"),
        ] {
            let refusal = find(&Method::POST, path).unwrap_err();
            assert_eq!((refusal.status.as_u16(), &*refusal.detail), (404, told));
        }
    }

    #[test]
    fn the_openapi_document_has_every_route_and_no_other() {
        let document: serde_json::Value = serde_json::from_str(super::super::OPENAPI).unwrap();
        let mut told = BTreeSet::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for method in methods.as_object().unwrap().keys().filter(|key| *key != "parameters") {
                told.insert(format!("{} {path}", method.to_uppercase()));
            }
        }
        let mut known = BTreeSet::new();
        for (methods, path, ..) in ROUTES {
            match methods {
                GET => known.extend([format!("GET {path}")]),
                POST | POST_OR_ANY => known.extend([format!("POST {path}")]),
                _ => {
                    for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
                        known.extend([format!("{method} {path}"), format!("{method} {path}/{{rest}}")]);
                    }
                }
            }
        }
        assert_eq!(told, known);
    }
}
