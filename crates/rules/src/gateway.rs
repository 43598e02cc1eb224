//! What a file says beside rules about a gateway: which servers there are, and which requests go to which of them.

mod place;
mod unmet;

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use tollgate_core::Micros;

use crate::address::Address;
use crate::diagnostic::{Diagnostic, Diagnostics, Span};
use crate::exceptions::Shared;
use crate::jwt::JwtSpec;
use crate::model::{Condition, Entry, KeyPattern, Mode, Priority, Rule};
use crate::nearest::nearest;
use crate::overload::OverloadSpec;
use crate::pattern::Network;

pub use place::Place;

/// Servers and routes.
#[derive(Clone, Debug, Default)]
pub struct Gateway {
    /// Groups of servers that do the same.
    pub upstreams: Vec<UpstreamSpec>,
    /// Which requests go where.
    pub routes: Vec<RouteSpec>,
    /// Who is known by which key.
    pub consumers: Vec<ConsumerSpec>,
}

/// Somebody who is known by a key.
#[derive(Clone, PartialEq, Eq)]
pub struct ConsumerSpec {
    /// What it is called.
    pub name: Arc<str>,
    /// Its keys.
    pub keys: Vec<KeySpec>,
    /// What rules are told of its requests.
    pub attributes: Vec<(Arc<str>, Arc<str>)>,
    /// Where it was written.
    pub span: Span,
}

/// A key, or what is made of it so that nobody can read it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum KeySpec {
    /// As it is sent.
    Plain(Arc<str>),
    /// What SHA-256 makes of it.
    Sha256([u8; 32]),
}

/// Keys are nobody's to see.
impl std::fmt::Debug for ConsumerSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConsumerSpec").field("name", &self.name).field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

/// A family of headers that tell of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "their names say it")]
pub enum HeaderFamily {
    Ietf,
    X,
    Seed,
    Kong,
    None,
    Nothing,
}

/// What a client is told that is over a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeniedSpec {
    /// The status.
    pub status: Option<u16>,
    /// The body.
    pub body: Option<Arc<str>>,
    /// What kind of text that is.
    pub content_type: Option<Arc<str>>,
    /// Which headers, on every answer.
    pub headers: Option<Vec<HeaderFamily>>,
}

/// How requests are kept that are done later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaterSpec {
    /// How many may wait for one counter.
    pub most_waiting: u64,
    /// The largest body that is kept, in bytes.
    pub most_body: u64,
    /// How often a server may fail at one before it is put aside.
    pub attempts: u32,
    /// Whether one that may have been done already is sent again, whatever its method.
    pub repeat: bool,
    /// How long one may wait for a server that cannot be reached.
    pub give_up: Micros,
    /// How long the answer to one can be asked for.
    pub keep: Micros,
}

impl Default for LaterSpec {
    fn default() -> Self {
        Self {
            most_waiting: 1_000,
            most_body: 1 << 20,
            attempts: 5,
            repeat: false,
            give_up: Micros::DAY,
            keep: Micros::HOUR,
        }
    }
}

/// Servers that do the same.
#[derive(Clone, Debug)]
pub struct UpstreamSpec {
    /// What routes call it.
    pub name: Arc<str>,
    /// Where they are.
    pub servers: Vec<Address>,
    /// How to find out whether one is well.
    pub health: Option<HealthSpec>,
    /// How long a connection may take to come about.
    pub connect_timeout: Option<Micros>,
    /// How long a server may be silent while something is expected of it.
    pub timeout: Option<Micros>,
    /// How long nothing may pass through a tunnel.
    pub tunnel_timeout: Option<Micros>,
    /// A file with the certificates that vouch for them; those of the system if none is named.
    pub ca: Option<Arc<str>>,
    /// Where they may be, whatever their names lead to; anywhere if nothing is said.
    pub within: Option<Arc<[Place]>>,
    /// How many requests they are given at a time; as many as come if nothing is said.
    pub overload: Option<OverloadSpec>,
    /// Where it was written.
    pub span: Span,
}

/// How to find out whether a server is well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthSpec {
    /// What to ask for.
    pub path: Arc<str>,
    /// How often.
    pub every: Option<Micros>,
    /// How long it may take.
    pub timeout: Option<Micros>,
    /// After how many failures in a row it is not asked any more.
    pub failures: Option<u32>,
    /// After how many successes it is again.
    pub successes: Option<u32>,
}

/// Which requests go where.
#[derive(Clone, Debug)]
pub struct RouteSpec {
    /// What it is called: the attribute `route`.
    pub name: Arc<str>,
    /// Whose rules apply.
    pub domain: Arc<str>,
    /// Names of hosts; any if there are none.
    pub hosts: Vec<String>,
    /// Beginnings of paths; any if there are none.
    pub paths: Vec<String>,
    /// Methods; any if there are none.
    pub methods: Vec<String>,
    /// The name of a group of servers.
    pub upstream: Target,
    /// Whether the beginning of the path that it names is left out.
    pub strip_path: bool,
    /// Whether the servers are told the host that the client asked for.
    pub preserve_host: bool,
    /// Whether slashes may be escaped in its paths.
    pub encoded_slash: bool,
    /// What may be spoken after an upgrade; WebSocket if nothing is said.
    pub upgrades: Option<Vec<Arc<str>>>,
    /// What rules are told beside what the request says.
    pub attributes: Vec<(Arc<str>, Arc<str>)>,
    /// What a request costs; one if nothing is said.
    pub cost: Option<CostSpec>,
    /// Who may ask at all; anybody if there is nobody.
    pub allow: Vec<Network>,
    /// Who may not.
    pub deny: Vec<Network>,
    /// Where a consumer's key has to be; nobody needs one if there is nothing.
    pub api_key: Vec<String>,
    /// What is told instead of the usual.
    pub denied: DeniedSpec,
    /// What matters more; what the rules say if nothing is said.
    pub priority: Option<Priority>,
    /// How requests are kept that are done later.
    pub later: LaterSpec,
    /// How tokens are verified, if they are looked at.
    pub jwt: Option<Arc<JwtSpec>>,
    /// Where it is named.
    pub name_span: Span,
    /// Where it was written.
    pub span: Span,
}

/// Where a route leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// To a group of this name.
    Named(Arc<str>),
    /// To one server.
    Server(Address),
}

/// What a request costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostSpec {
    /// So much.
    Fixed(u64),
    /// What this header of the request says.
    Header(Arc<str>),
    /// What this header of the answer says, known only when it is there; until then one.
    ResponseHeader(Arc<str>),
}

impl Gateway {
    /// What is wrong only between parts of it, or between files.
    pub(crate) fn check(&self, rules: &[Rule], diagnostics: &mut Diagnostics) {
        self.check_claims(rules, diagnostics);
        self.check_keys(rules, diagnostics);
        self.check_names(rules, diagnostics);
        self.check_values(rules, diagnostics);
        self.check_reached(diagnostics);
        let mut upstreams: HashMap<&str, Span> = HashMap::new();
        for upstream in &self.upstreams {
            if let Some(first) = upstreams.insert(&upstream.name, upstream.span) {
                diagnostics.push(twice("upstream", &upstream.name, upstream.span, first));
            }
        }
        let mut consumers: HashMap<&str, Span> = HashMap::new();
        for consumer in &self.consumers {
            if let Some(first) = consumers.insert(&consumer.name, consumer.span) {
                diagnostics.push(twice("consumer", &consumer.name, consumer.span, first));
            }
        }
        self.check_owners(diagnostics);
        let mut routes: HashMap<&str, Span> = HashMap::new();
        for route in &self.routes {
            if let Some(first) = routes.insert(&route.name, route.name_span) {
                diagnostics.push(twice("route", &route.name, route.name_span, first));
            }
            if let Target::Named(name) = &route.upstream
                && !upstreams.contains_key(&**name)
            {
                let problem =
                    Diagnostic::error("unknown-upstream", route.span, format!("there is no upstream `{name}`"));
                diagnostics.push(match nearest(name, upstreams.keys().copied()) {
                    Some(near) => problem.help(format!("did you mean `{near}`?")),
                    None => problem.help("name one of `upstreams`, or write an address such as http://127.0.0.1:9000"),
                });
            }
        }
    }
}

impl Gateway {
    /// Rules by claims of tokens that no route looks at.
    fn check_claims(&self, rules: &[Rule], diagnostics: &mut Diagnostics) {
        fn claim<'k>(mut keys: impl Iterator<Item = &'k Arc<str>>) -> Option<&'k Arc<str>> {
            keys.find(|key| key.starts_with("jwt.") || key.starts_with("jwt_or_ip."))
        }
        fn keys(groups: &[Vec<Condition>]) -> impl Iterator<Item = &Arc<str>> {
            groups.iter().flatten().map(|condition| &condition.key)
        }
        // What a file exempts is the same for all its rules, and may be long.
        let mut of_file: Option<(&Shared, Option<&Arc<str>>)> = None;
        for rule in rules {
            let own = rule.entries.iter().filter_map(|entry| match &entry.key {
                KeyPattern::Exact(key) => Some(key),
                KeyPattern::Glob(_) => None,
            });
            let exempt = match of_file {
                Some((exempt, key)) if Arc::ptr_eq(exempt, &rule.exempt) => key,
                _ => of_file.insert((&rule.exempt, claim(keys(&rule.exempt)))).1,
            };
            let Some(key) = claim(own.chain(keys(&rule.unless))).or(exempt) else { continue };
            let mut routes = self.routes.iter().filter(|route| route.domain == rule.domain).peekable();
            if routes.peek().is_some() && routes.all(|route| route.jwt.is_none()) {
                let message = format!("no route looks at tokens, so there is never a `{key}`");
                let help = "say how they are verified, in a route or at the top of the file: `jwt: {keys: /etc/tollgate/jwks.json}`";
                diagnostics.push(Diagnostic::warning("no-tokens", rule.span, message).help(help));
            }
        }
    }
}

/// What requests are always asked about by one word.
const TOLD: [&str; 9] = ["client", "consumer", "credential", "host", "ip", "method", "path", "route", "user_agent"];
/// And by a name of the client's choice, behind a dot.
const TOLD_BY_NAME: [&str; 7] = ["cookie", "header", "header_or_ip", "jwt", "jwt_or_ip", "query", "segment"];

/// Whether rules of a gateway can ask a request about this, whatever routes and consumers say besides.
pub fn is_told(key: &str) -> bool {
    let is_header = |name: &str| {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        !name.is_empty() && name.bytes().all(is_letter)
    };
    match key.split_once('.') {
        None => TOLD.contains(&key),
        Some(("header" | "header_or_ip", name)) => is_header(name),
        Some(("cookie" | "query", _)) => true,
        Some(("jwt" | "jwt_or_ip", name)) => !name.is_empty(),
        Some(("segment", number)) => number.parse::<usize>().is_ok_and(|number| number > 0),
        Some(_) => false,
    }
}

/// What was probably meant by a key that is not told.
fn meant(key: &str) -> Option<String> {
    match key.split_once('.') {
        None => nearest(key, TOLD).map(str::to_owned),
        Some(("segment", "0")) => Some("segment.1".to_owned()),
        Some((kind, name)) => {
            nearest(kind, TOLD_BY_NAME).map(|kind| format!("{kind}.{name}")).filter(|key| is_told(key))
        }
    }
}

impl Gateway {
    /// Rules that ask for what nobody says, and so are for no request at all.
    fn check_keys(&self, rules: &[Rule], diagnostics: &mut Diagnostics) {
        let of_consumers = || self.consumers.iter().flat_map(|consumer| &consumer.attributes);
        // By domain: nothing where it has no routes.
        let mut said: HashMap<&str, Option<HashSet<&str>>> = HashMap::new();
        for rule in rules.iter().filter(|rule| rule.mode != Mode::Off) {
            let said = said.entry(&*rule.domain).or_insert_with(|| {
                let mut routes = self.routes.iter().filter(|route| route.domain == rule.domain).peekable();
                routes.peek()?;
                Some(routes.flat_map(|route| &route.attributes).chain(of_consumers()).map(|(key, _)| &**key).collect())
            });
            let Some(said) = said else { continue };
            let unsaid = rule.entries.iter().find_map(|entry| match &entry.key {
                KeyPattern::Exact(key) if !is_told(key) && !said.contains(&**key) => Some(key),
                _ => None,
            });
            let Some(key) = unsaid else { continue };
            let message =
                format!("no request says `{key}`, and no route or consumer either: `{}` never applies", rule.name);
            let help = meant(key).map_or_else(
                || {
                    "ask for `ip`, `header.x-user` and the like, or give routes or consumers such an attribute"
                        .to_owned()
                },
                |meant| format!("did you mean `{meant}`?"),
            );
            diagnostics.push(Diagnostic::warning("unknown-attribute", rule.span, message).help(help));
        }
    }
}

impl Gateway {
    /// Rules for routes that do not exist.
    fn check_names(&self, rules: &[Rule], diagnostics: &mut Diagnostics) {
        for rule in rules.iter().filter(|rule| rule.mode != Mode::Off) {
            let names = || self.routes.iter().filter(|route| route.domain == rule.domain).map(|route| &*route.name);
            let is_for_none = |entry: &&Entry| {
                entry.key == KeyPattern::Exact("route".into()) && !names().any(|name| entry.value.matches(name))
            };
            let Some(entry) = rule.entries.iter().find(is_for_none).filter(|_| names().next().is_some()) else {
                continue;
            };
            let said = match entry.value.exact() {
                Some(name) => format!("there is no route `{name}`"),
                None => "no route is called so".to_owned(),
            };
            let message = format!("{said}: `{}` never applies", rule.name);
            let meant = entry.value.exact().and_then(|name| nearest(name, names()));
            let help = match meant {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => "name one of `routes`".to_owned(),
            };
            diagnostics.push(Diagnostic::warning("unknown-route", rule.span, message).help(help));
        }
    }
}

impl Gateway {
    /// Keys that would stand for two consumers. Keys are secrets: what is shown is whose they are.
    fn check_owners(&self, diagnostics: &mut Diagnostics) {
        let mut owners: HashMap<&KeySpec, &ConsumerSpec> = HashMap::new();
        for consumer in &self.consumers {
            for key in &consumer.keys {
                let owner = *owners.entry(key).or_insert(consumer);
                if owner.name != consumer.name {
                    let message = format!("`{}` and `{}` have a key in common", owner.name, consumer.name);
                    let problem = Diagnostic::error("duplicate-key", consumer.span, message);
                    let help = "give each consumer keys of its own: a key says whose request it is";
                    diagnostics.push(problem.related(owner.span, "this one has it too").help(help));
                    break;
                }
            }
        }
    }
}

fn twice(what: &str, name: &str, second: Span, first: Span) -> Diagnostic {
    let message = format!("there are two {what}s called `{name}`");
    Diagnostic::error("duplicate-name", second, message).related(first, "first here").help("give one another name")
}
