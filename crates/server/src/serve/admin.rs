//! The admin port: metrics, what is in force, and switches. For people and their tools, never for clients.

use std::sync::Arc;

use crate::protocol::body::Body;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, EXPECT, HOST, ORIGIN, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::Full;
use serde_json::json;
use tollgate::rules::{Limits, Rule};

use super::drain::Drained;
use super::listen::Serve;
use super::server::House;
use super::stream::{Peer, Stream};
use crate::gate::{Door, Exposition, Meter, Reloaded};
use crate::gateway::{Kong, Later};
use crate::protocol::http::read_body;
use crate::protocol::hyper_connection::{refuse_http, serve_http1};
use crate::protocol::percent::decode_path;

pub(crate) struct Admin {
    house: Arc<House>,
    only_metrics: bool,
    /// What can be made here, if there is a gateway.
    kong: Option<Arc<Kong>>,
    /// What a gateway keeps for later.
    later: Option<Arc<Later>>,
}

/// What there is to ask, as `/` lists it.
const ROUTES: [(&str, &str, &str); 12] = [
    ("GET", "/", "this list"),
    ("GET", "/metrics", "what is counted, for Prometheus"),
    ("GET", "/live", "200 while the process runs"),
    ("GET", "/ready", "200 while requests are welcome"),
    ("GET", "/rlconfig", "the rules in force, a line for each limit"),
    ("GET", "/rules", "files, their state and what is wrong with them, as JSON"),
    ("GET", "/stats", "the counters of /metrics, a line for each"),
    ("POST", "/reload", "read the rules now"),
    ("POST", "/off", "switch all limits off"),
    ("POST", "/on", "switch them on again"),
    ("POST", "/rules/NAME/off", "switch one rule off"),
    ("POST", "/rules/NAME/on", "switch it on again"),
];

/// The same of a gateway.
const LATER_ROUTES: [(&str, &str, &str); 4] = [
    ("GET", "/later", "requests that are done later, as JSON; ?state=dead for those that were put aside"),
    ("GET", "/later/ID", "one of them"),
    ("DELETE", "/later/ID", "forget it"),
    ("POST", "/later/ID/again", "try again what was put aside"),
];

/// The largest body that is read.
const MOST_BODY: usize = 1 << 20;

type Answer = Response<Full<Bytes>>;

impl Admin {
    pub(crate) fn new(house: &Arc<House>, kong: Option<Arc<Kong>>, later: Option<Arc<Later>>) -> Self {
        Self { house: Arc::clone(house), only_metrics: false, kong, later }
    }

    /// A port for collectors, which nobody can change anything by.
    pub(crate) fn only_metrics(house: &Arc<House>, later: Option<Arc<Later>>) -> Self {
        Self { house: Arc::clone(house), only_metrics: true, kong: None, later }
    }

    async fn answer(&self, request: Request<Body>) -> Answer {
        let meter = self.meter();
        let started = meter.start();
        let answer = self.answer_to(request).await;
        meter.finish(started);
        answer
    }

    async fn answer_to(&self, request: Request<Body>) -> Answer {
        if self.only_metrics {
            return match (request.method(), request.uri().path() == self.house.settings.metrics_path) {
                (&Method::GET, true) => self.metrics(),
                _ => text(StatusCode::NOT_FOUND, format!("metrics are at {}\n", self.house.settings.metrics_path)),
            };
        }
        if let Some(refusal) = self.refuse(request.method(), request.headers()) {
            return refusal;
        }
        let request = match self.make(request).await {
            Ok(made) => return made,
            Err(request) => request,
        };
        let path = request.uri().path();
        if let Some(later) = &self.later
            && let Some(answer) = later.answer_admin(request.method(), path, request.uri().query()).await
        {
            return answer;
        }
        let rule = path.strip_prefix("/rules/").and_then(|rest| rest.rsplit_once('/'));
        // Whoever asks for the head only gets the whole answer's head.
        let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
        match (method, path, rule) {
            (&Method::GET, "/", _) => text(StatusCode::OK, self.list()),
            (&Method::GET, "/metrics", _) => self.metrics(),
            (&Method::GET, "/stats", _) => {
                let exposed = self.exposed();
                text(StatusCode::OK, exposed.lines().filter(|line| !line.starts_with('#')).fold(String::new(), joined))
            }
            (&Method::GET, "/live", _) => text(StatusCode::OK, "live\n".to_owned()),
            (&Method::GET, "/ready", _) if self.house.is_ready() => text(StatusCode::OK, "ready\n".to_owned()),
            (&Method::GET, "/ready", _) => text(StatusCode::SERVICE_UNAVAILABLE, "not ready\n".to_owned()),
            (&Method::GET, "/rlconfig", _) => text(StatusCode::OK, self.rlconfig()),
            (&Method::GET, "/rules", _) => self.rules(StatusCode::OK),
            (&Method::POST, "/reload", _) => match self.house.live.reload().await {
                Ok(Reloaded::Done) => self.rules(StatusCode::OK),
                Ok(_) => self.rules(StatusCode::UNPROCESSABLE_ENTITY),
                Err(error) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
            },
            (&Method::POST, "/off", _) => self.switch_all(false),
            (&Method::POST, "/on", _) => self.switch_all(true),
            (&Method::POST, _, Some((name, switch @ ("on" | "off")))) => self.switch(name, switch == "off").await,
            (_, path, _) => {
                let known = ROUTES.iter().find(|(_, known, _)| *known == path);
                match known {
                    Some((method, ..)) => text(StatusCode::METHOD_NOT_ALLOWED, format!("use {method} here\n")),
                    None => {
                        let list = self.list();
                        text(StatusCode::NOT_FOUND, format!("there is no {path}; this is what there is:\n{list}"))
                    }
                }
            }
        }
    }

    /// What there is to ask.
    fn list(&self) -> String {
        let later = self.later.iter().flat_map(|_| &LATER_ROUTES);
        let kong = self.kong.iter().flat_map(|_| &Kong::ROUTES);
        let line = |(method, path, what): &(&str, &str, &str)| format!("{method:<4} {path}: {what}");
        ROUTES.iter().chain(later).chain(kong).map(line).fold(String::new(), |text, line| joined(text, &line))
    }

    /// Answers what concerns objects of a gateway; gives the request back if it does not.
    async fn make(&self, request: Request<Body>) -> Result<Answer, Request<()>> {
        let (head, body) = request.into_parts();
        let Some(kong) = self.kong.as_ref().filter(|_| Kong::knows(head.uri.path())) else {
            return Err(Request::from_parts(head, ()));
        };
        let expects = head.headers.contains_key(EXPECT);
        let body = match read_body(body, MOST_BODY, self.house.settings.http_timeout, expects).await {
            Ok(body) => body,
            Err((status, why)) => return Ok(text(status, format!("{why}\n"))),
        };
        let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let (path, query) = (head.uri.path(), head.uri.query());
        let told = kong.answer(&self.house, &head.method, path, query, kind, &body).await;
        let Some((status, body)) = told else { return Err(Request::from_parts(head, ())) };
        let mut answer = text(status, body.map(|body| format!("{body}\n")).unwrap_or_default());
        answer.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json; charset=utf-8"));
        Ok(answer)
    }

    /// Whoever does not belong here is told so.
    fn refuse(&self, method: &Method, headers: &HeaderMap) -> Option<Answer> {
        // Browsers say so when a page of another site asks; nobody else does.
        let site = headers.get("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none");
        if !matches!(*method, Method::GET | Method::HEAD) && (site || headers.contains_key(ORIGIN)) {
            return Some(text(StatusCode::FORBIDDEN, "pages of other sites switch nothing here\n".to_owned()));
        }
        // A page in somebody's browser can send requests to this machine under a name of its own.
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let Some(token) = &self.house.settings.admin_token else {
            let name = host.rsplit_once(':').map_or(host, |(name, port)| if port.ends_with(']') { host } else { name });
            let is_local = name.is_empty()
                || name.eq_ignore_ascii_case("localhost")
                || name.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
            let refusal = "without a token, this port is for this machine only: ask for localhost or 127.0.0.1\n";
            return (!is_local).then(|| text(StatusCode::FORBIDDEN, refusal.to_owned()));
        };
        let given = headers.get(AUTHORIZATION).map(http::HeaderValue::as_bytes);
        let given = given.and_then(|given| given.strip_prefix(b"Bearer "));
        if given.is_some_and(|given| token.is(given)) {
            return None;
        }
        let mut refusal = text(StatusCode::UNAUTHORIZED, "a bearer token is needed\n".to_owned());
        refusal.headers_mut().insert(WWW_AUTHENTICATE, http::HeaderValue::from_static("Bearer"));
        Some(refusal)
    }

    fn metrics(&self) -> Answer {
        let mut answer = text(StatusCode::OK, self.exposed());
        let kind = http::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        answer.headers_mut().insert(CONTENT_TYPE, kind);
        answer
    }

    fn exposed(&self) -> String {
        let mut out = Exposition::default();
        self.house.gate.expose(&mut out);
        if let Some(gateway) = &self.house.gateway {
            gateway.expose(&mut out);
        }
        if let Some(later) = &self.later {
            later.expose(&mut out);
        }
        let status = self.house.live.status();
        out.counter("tollgate_rule_loads_total", "Looks at the rules that found something new, by what came of it.");
        out.sample(&[("result", "success")], status.loads);
        out.sample(&[("result", "error")], status.failed_loads);
        if self.house.settings.envoy.metric_names {
            const HELP: &str = "As envoyproxy/ratelimit counts it.";
            out.counter("ratelimit_service_config_load_success", HELP);
            out.sample(&[], status.loads);
            out.counter("ratelimit_service_config_load_error", HELP);
            out.sample(&[], status.failed_loads);
        }
        out.gauge("tollgate_rules_version", "Grows with every set of rules that is put in force.");
        out.sample(&[], status.version);
        out.gauge("tollgate_rules", "Rules in force.");
        out.sample(&[], self.house.gate.rules().rules().len());
        out.gauge("tollgate_bad_rule_files", "Files whose rules are wrong; what was in force of them stays.");
        out.sample(&[], status.bad_files.len());
        out.gauge("tollgate_rules_switched_off", "Rules that were switched off on the admin port.");
        out.sample(&[], status.switched_off.len());
        out.gauge("tollgate_ready", "1 while requests are welcome.");
        out.sample(&[], u8::from(self.house.is_ready()));
        out.finish()
    }

    fn rlconfig(&self) -> String {
        let rules = self.house.gate.rules();
        let mut lines: Vec<String> = rules.rules().iter().flat_map(|compiled| describe(compiled.rule())).collect();
        lines.sort_unstable();
        if !self.house.gate.is_limiting() {
            lines.insert(0, "# all limits are switched off".to_owned());
        }
        let status = self.house.live.status();
        lines.extend(status.switched_off.iter().map(|rule| format!("# {rule} is switched off")));
        for (file, has_old) in &status.bad_files {
            let fate = if *has_old { "its last good text is in force" } else { "it is left out" };
            lines.push(format!("# {file} is wrong; {fate}"));
        }
        let mut text = lines.into_iter().fold(String::new(), |text, line| joined(text, &line));
        for line in status.diagnostics.render(false).lines() {
            text.push_str("# ");
            text = joined(text, line);
        }
        text
    }

    fn rules(&self, status_code: StatusCode) -> Answer {
        let status = self.house.live.status();
        let bad: Vec<_> = status
            .bad_files
            .iter()
            .map(|(file, has_old)| json!({"file": &**file, "last_good_text_in_force": has_old}))
            .collect();
        let files: Vec<&str> = status.files.iter().map(|file| &**file).collect();
        let body = json!({
            "version": status.version,
            "rules": self.house.gate.rules().rules().len(),
            "files": files,
            "bad_files": bad,
            "problems": status.diagnostics.to_json(),
            "switched_off": status.switched_off,
            "limiting": self.house.gate.is_limiting(),
        });
        let mut answer = text(status_code, format!("{body:#}\n"));
        answer.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
        answer
    }

    fn switch_all(&self, on: bool) -> Answer {
        self.house.gate.set_limiting(on);
        tracing::warn!("all limits were switched {}", if on { "on" } else { "off" });
        text(StatusCode::OK, format!("all limits are {}\n", if on { "on" } else { "off" }))
    }

    async fn switch(&self, name: &str, off: bool) -> Answer {
        let name = decode_path(name).into_owned();
        match self.house.live.switch(name.clone(), off).await {
            Ok(Reloaded::UnknownRule) => text(
                StatusCode::NOT_FOUND,
                format!("there is no rule {name}; /rlconfig lists them, behind their domain\n"),
            ),
            Ok(_) => text(StatusCode::OK, format!("{name} is {}\n", if off { "off" } else { "on" })),
            Err(error) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
        }
    }
}

impl Serve for Admin {
    // Switches and metrics matter most when everything else is full.
    const SPARE: usize = 32;

    async fn serve(self: Arc<Self>, stream: Stream, _: Peer, drained: Drained) {
        serve_http1::<Full<Bytes>, _>(stream, drained, |request| self.answer(request)).await;
    }

    fn meter(&self) -> &Meter {
        self.house.gate.meter(Door::Admin)
    }

    async fn refuse(stream: Stream) {
        refuse_http(stream).await;
    }
}

/// As envoyproxy/ratelimit lists its limits; tollgate's own limits in their own words.
fn describe(rule: &Rule) -> Vec<String> {
    // Rules without a name of their own are called by their whole path.
    let has_path = rule.name.strip_prefix(&*rule.domain).is_some_and(|rest| rest.starts_with('.'));
    let path = if has_path { rule.name.to_string() } else { format!("{}.{}", rule.domain, rule.name) };
    let modes = format!("shadow_mode: {}, quota_mode: {}", rule.mode == tollgate::rules::Mode::Shadow, rule.quota_mode);
    match &rule.limits {
        Limits::None => vec![format!("{path}: no limit")],
        Limits::Lyft(limit) => {
            let (unit, number) = match &limit.rate {
                Some(rate) => (rate.unit.name().to_uppercase(), rate.requests_per_unit),
                None => ("UNKNOWN".to_owned(), 0),
            };
            vec![format!("{path}: unit={unit} requests_per_unit={number}, {modes}")]
        }
        Limits::Own(limits) => limits.iter().map(|limit| format!("{path}: {}, {modes}", limit.text)).collect(),
    }
}

fn joined(mut text: String, line: &str) -> String {
    text.push_str(line);
    text.push('\n');
    text
}

fn text(status: StatusCode, body: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}
