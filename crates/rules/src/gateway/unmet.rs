//! Rules that ask for what no request is, and routes that no request reaches.

use hashbrown::{HashMap, HashSet};

use super::{Gateway, RouteSpec};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::model::{Entry, KeyPattern, Mode, Rule};
use crate::nearest::nearest;
use crate::pattern::Pattern;

/// What consumers are called that were made through Kong's calls, which files know nothing of.
const MADE_ELSEWHERE: &str = "consumer:";

impl Gateway {
    /// Rules for methods, paths, hosts and consumers that there are never.
    pub(super) fn check_values(&self, rules: &[Rule], diagnostics: &mut Diagnostics) {
        let domains: HashSet<&str> = self.routes.iter().map(|route| &*route.domain).collect();
        let of_routes = self.routes.iter().flat_map(|route| &route.attributes);
        let of_consumers = self.consumers.iter().flat_map(|consumer| &consumer.attributes);
        let said: HashSet<&str> = of_routes.chain(of_consumers).map(|(key, _)| &**key).collect();
        let consumers: HashSet<&str> = self.consumers.iter().map(|consumer| &*consumer.name).collect();
        let is_asked = |rule: &&Rule| rule.mode != Mode::Off && domains.contains(&*rule.domain);
        for rule in rules.iter().filter(is_asked) {
            let problem = rule.entries.iter().find_map(|entry| match &entry.key {
                KeyPattern::Exact(key) if !said.contains(&**key) => never_met(key, entry, &consumers),
                _ => None,
            });
            if let Some((code, why, help)) = problem {
                let message = format!("{why}: `{}` never applies", rule.name);
                diagnostics.push(Diagnostic::warning(code, rule.span, message).help(help));
            }
        }
    }

    /// Routes for just what an earlier one is for.
    pub(super) fn check_reached(&self, diagnostics: &mut Diagnostics) {
        let mut first: HashMap<[Vec<&str>; 3], &RouteSpec> = HashMap::new();
        for route in &self.routes {
            let earlier = *first.entry(wanted(route)).or_insert(route);
            // Those of one name are told of already.
            if earlier.name != route.name {
                let message =
                    format!("`{}` is for the same requests as `{}`, and gets none of them", route.name, earlier.name);
                let problem = Diagnostic::warning("unreached-route", route.name_span, message);
                let help = "give it another path, host or method, or remove it";
                diagnostics.push(problem.related(earlier.name_span, "this one comes first").help(help));
            }
        }
    }
}

/// What a route is for, the same however it is written.
fn wanted(route: &RouteSpec) -> [Vec<&str>; 3] {
    fn texts(list: &[String]) -> Vec<&str> {
        list.iter().map(String::as_str).collect()
    }
    let paths = route.paths.iter().map(|path| path.trim_end_matches('/')).collect();
    let mut all = [texts(&route.hosts), paths, texts(&route.methods)];
    for list in &mut all {
        list.sort_unstable();
        list.dedup();
    }
    // No path and the shortest are the same.
    if all[1] == [""] {
        all[1].clear();
    }
    all
}

/// The code, the reason and the help if no request meets the entry.
fn never_met(key: &str, entry: &Entry, consumers: &HashSet<&str>) -> Option<(&'static str, String, String)> {
    let unmet = |can_be: &dyn Fn(&str) -> bool| first_unmet(&entry.value, can_be);
    match key {
        "method" => {
            let method = unmet(&|method| !method.bytes().any(|byte| byte.is_ascii_lowercase()))?;
            let help = format!("write `{}`", method.to_ascii_uppercase());
            Some(("never-applies", format!("methods are in upper case, not `{method}`"), help))
        }
        "path" => {
            let path = unmet(&|path| path.starts_with(['/', '*']) && plain_path(path) == path)?;
            let plain = plain_path(&path);
            Some(match plain.starts_with(['/', '*']) {
                true => ("never-applies", format!("paths are never told as `{path}`"), format!("write `{plain}`")),
                false => {
                    let why = format!("paths begin with a slash, not as `{path}`");
                    ("never-applies", why, format!("write `/{plain}`"))
                }
            })
        }
        "host" => {
            let host = unmet(&|host| plain_host(host) == host)?;
            let help = format!("write `{}`", plain_host(&host));
            Some(("never-applies", format!("hosts are in lower case and without a port, not `{host}`"), help))
        }
        "consumer" if !consumers.is_empty() => {
            let is_known =
                |name: &str| consumers.contains(name) || name.starts_with(MADE_ELSEWHERE) || name.contains('*');
            let name = unmet(&is_known)?;
            let help = match nearest(&name, consumers.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => "name one of `consumers`".to_owned(),
            };
            Some(("unknown-consumer", format!("there is no consumer `{name}`"), help))
        }
        _ => None,
    }
}

/// The first of its values, as written, if none of them can be.
fn first_unmet(pattern: &Pattern, can_be: &dyn Fn(&str) -> bool) -> Option<String> {
    let unless_met = |text: &str| (!can_be(text)).then(|| text.to_owned());
    match pattern {
        Pattern::Exact(text) => unless_met(text),
        Pattern::Glob(glob) => unless_met(&glob.to_string()),
        Pattern::OneOf(texts) if texts.iter().any(|text| can_be(text)) => None,
        Pattern::OneOf(texts) => texts.first().map(|text| text.to_string()),
        Pattern::AnyOf(patterns) => {
            let unmet: Option<Vec<String>> = patterns.iter().map(|pattern| first_unmet(pattern, can_be)).collect();
            unmet?.into_iter().next()
        }
        Pattern::Any | Pattern::Networks(_) | Pattern::Not(_) => None,
    }
}

/// A path as rules are told it: whatever is visible is not escaped, unless it would mean something else, and all else is,
/// in upper case.
fn plain_path(path: &str) -> String {
    let mut plain = String::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [byte, next @ ..] = rest {
        let digits = next.first_chunk::<2>().filter(|digits| *byte == b'%' && digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        rest = if code.is_some() { next.get(2..).unwrap_or_default() } else { next };
        let means_more = code.is_some_and(|code| b"%/\\?#;".contains(&code));
        match code.unwrap_or(*byte) {
            code if code.is_ascii_graphic() && !means_more => plain.push(code.into()),
            code => plain.extend(format!("%{code:02X}").chars()),
        }
    }
    plain
}

/// A host as rules are told it.
fn plain_host(host: &str) -> String {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        // What a star stands for may be the beginning of an address.
        Some((name, port)) if is_port(port) && !name.is_empty() && (!name.contains('[') || name.ends_with(']')) => name,
        _ => host,
    };
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}
