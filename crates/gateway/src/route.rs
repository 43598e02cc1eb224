//! Which requests go where: by host, path and method.
//!
//! The most specific route wins: one for the very host before one for its domain before one for any, then the longest
//! path, then one that names the method, then the one that was written first.

use std::borrow::Cow;
use std::cmp::Reverse;

use http::Method;

/// What a route is for. Empty lists are for everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Names of hosts, in lower case: `api.example.com`, or `*.example.com` for all below it.
    pub hosts: Vec<String>,
    /// Beginnings of paths: `/v1` is for `/v1` and `/v1/users`, not for `/v10`.
    pub paths: Vec<String>,
    /// Methods.
    pub methods: Vec<Method>,
}

/// A route, with whatever belongs to it.
#[derive(Clone, Debug)]
pub struct Route<T> {
    /// What it is for.
    pub wanted: Wanted,
    /// What belongs to it.
    pub to: T,
}

/// All routes.
#[derive(Clone, Debug)]
pub struct Routes<T> {
    /// One for each host and path of each route, in the order of what is more specific.
    places: Vec<Place>,
    routes: Vec<Route<T>>,
}

#[derive(Clone, Debug)]
struct Place {
    host: Host,
    path: Box<str>,
    /// The route that it belongs to.
    route: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Host {
    Exactly(Box<str>),
    /// All below it, the longest first.
    Below(Reverse<usize>, Box<str>),
    Any,
}

/// What was found for a request.
#[derive(Debug)]
pub struct Found<'r, T> {
    /// The route's own.
    pub to: &'r T,
    /// How much of the path it names.
    pub prefix: &'r str,
}

impl<T> Routes<T> {
    /// Puts routes in order.
    pub fn new(routes: Vec<Route<T>>) -> Self {
        let mut places = Vec::new();
        for (number, route) in routes.iter().enumerate() {
            let hosts = route.wanted.hosts.iter().map(|host| match host.strip_prefix("*.") {
                Some(domain) => Host::Below(Reverse(domain.len()), domain.to_ascii_lowercase().into()),
                None => Host::Exactly(host.to_ascii_lowercase().into()),
            });
            let hosts: Vec<Host> = if route.wanted.hosts.is_empty() { vec![Host::Any] } else { hosts.collect() };
            let paths = route.wanted.paths.iter().map(|path| path.trim_end_matches('/'));
            let paths: Vec<&str> = if route.wanted.paths.is_empty() { vec![""] } else { paths.collect() };
            for host in hosts {
                let place = |path: &&str| Place { host: host.clone(), path: (*path).into(), route: number };
                places.extend(paths.iter().map(place));
            }
        }
        // The sort keeps the order of what is equal.
        places.sort_by_cached_key(|place| {
            let names_method = routes.get(place.route).is_some_and(|route| !route.wanted.methods.is_empty());
            (place.host.clone(), Reverse(place.path.len()), Reverse(names_method))
        });
        Self { places, routes }
    }

    /// The route of a request. `host` may have a port, `path` is in the form that [`normal_path`] gives it.
    pub fn find(&self, host: &str, path: &str, method: &Method) -> Option<Found<'_, T>> {
        let host = without_port(host);
        self.places.iter().find_map(|place| {
            let route = self.routes.get(place.route)?;
            let methods = &route.wanted.methods;
            let is_for = place.host.is_for(host)
                && is_below(path, &place.path)
                && (methods.is_empty() || methods.contains(method));
            is_for.then_some(Found { to: &route.to, prefix: &place.path })
        })
    }

    /// All of them, as they were given.
    pub fn iter(&self) -> impl Iterator<Item = &Route<T>> {
        self.routes.iter()
    }
}

impl Host {
    fn is_for(&self, host: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exactly(name) => name.eq_ignore_ascii_case(host),
            Self::Below(_, domain) => {
                let start = host.len().checked_sub(domain.len()).filter(|start| *start > 1);
                let end = start.and_then(|start| host.split_at_checked(start));
                end.is_some_and(|(start, end)| start.ends_with('.') && end.eq_ignore_ascii_case(domain))
            }
        }
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => name,
        _ => host,
    }
}

/// Whether a path is a beginning of another, segment by segment.
fn is_below(path: &str, beginning: &str) -> bool {
    path.strip_prefix(beginning).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A path as all read it alike: characters that were escaped without need are not, all others are, with digits in upper
/// case, several slashes are one, and segments have no parameters (`/a;b=c`), which some servers do not count as a part
/// of their names. `None` for one that steps back (`/a/../b`), that has a `\` or an escaped NUL, or that is none:
/// whoever is behind us could read it as another one, and so go round what is said about that. What would mean something
/// else if it were not escaped stays so, slashes among it: see [`open_path`].
pub fn normal_path(path: &str) -> Option<Cow<'_, str>> {
    if !path.starts_with('/') {
        return None;
    }
    let mut before = 0;
    let is_plain = path.bytes().all(|byte| {
        let is_odd = matches!(byte, b'%' | b'\\' | b';' | 0x80..) || (before == b'/' && matches!(byte, b'/' | b'.'));
        before = byte;
        !is_odd
    });
    if is_plain {
        return Some(Cow::Borrowed(path));
    }
    let mut normal = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(character) = rest.chars().next() {
        let mut length = character.len_utf8();
        let mut plain = character;
        match character {
            '%' => {
                let digits = rest.get(1..3).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
                let code = u8::from_str_radix(digits, 16).ok().filter(|code| *code != 0)?;
                length = 3;
                if !code.is_ascii_graphic() || b"%/\\?#;".contains(&code) {
                    escape(code, &mut normal);
                    rest = rest.get(length..)?;
                    continue;
                }
                plain = code.into();
            }
            ';' => {
                rest = rest.find('/').and_then(|end| rest.get(end..)).unwrap_or_default();
                continue;
            }
            '\\' => return None,
            '\u{80}'.. => {
                character.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| escape(byte, &mut normal));
                rest = rest.get(length..)?;
                continue;
            }
            _ => {}
        }
        if !(plain == '/' && normal.ends_with('/')) {
            normal.push(plain);
        }
        rest = rest.get(length..)?;
    }
    let open = open_path(&normal);
    let mut segments = open.as_deref().unwrap_or(&normal).split('/');
    let steps_back = segments.any(|segment| segment == "." || segment == "..");
    (!steps_back).then_some(Cow::Owned(normal))
}

fn escape(byte: u8, out: &mut String) {
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or_default().to_ascii_uppercase();
    out.extend(['%', digit(byte >> 4), digit(byte & 15)]);
}

/// A path as servers read it that take an escaped slash (`%2F`, or `%5C` where a `\` is one) for a slash; `None` if
/// there is none in it.
pub fn open_path(normal: &str) -> Option<String> {
    let (mut open, mut hides) = (String::new(), false);
    let mut rest = normal;
    while let Some(character) = rest.chars().next() {
        let code = rest.get(..3).filter(|code| code.eq_ignore_ascii_case("%2f") || code.eq_ignore_ascii_case("%5c"));
        hides |= code.is_some();
        let (plain, length) = if code.is_some() { ('/', 3) } else { (character, character.len_utf8()) };
        if !(plain == '/' && open.ends_with('/')) {
            open.push(plain);
        }
        rest = rest.get(length..)?;
    }
    hides.then_some(open)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(list: &[(&str, &str, &str)]) -> Routes<usize> {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<String>>();
        let route = |(number, (hosts, paths, methods)): (usize, &(&str, &str, &str))| Route {
            wanted: Wanted {
                hosts: words(hosts),
                paths: words(paths),
                methods: words(methods).iter().map(|method| method.parse().unwrap()).collect(),
            },
            to: number,
        };
        Routes::new(list.iter().enumerate().map(route).collect())
    }

    #[test]
    fn the_most_specific_route_wins_wherever_it_is_written() {
        let routes = routes(&[
            ("", "", ""),
            ("", "/v1", ""),
            ("", "/v1/users /v2", ""),
            ("", "/v1", "POST"),
            ("api.example.com", "", ""),
            ("*.example.com", "/v1", ""),
            ("*.b.example.com", "", ""),
            ("", "/v1/", ""),
        ]);
        for (host, path, method, expected) in [
            ("other", "/", Method::GET, 0),
            ("other", "/v10", Method::GET, 0),
            ("other", "/v1", Method::GET, 1),
            ("other", "/v1/x", Method::GET, 1),
            ("other", "/v1/x", Method::POST, 3),
            ("other", "/v1/users", Method::POST, 2),
            ("other", "/v1/users/7", Method::GET, 2),
            ("other", "/v2/", Method::GET, 2),
            ("API.example.com:8000", "/v1/users", Method::GET, 4),
            ("a.example.com", "/v1/users", Method::GET, 5),
            ("a.example.com", "/", Method::GET, 0),
            ("example.com", "/v1", Method::GET, 1),
            ("a.b.example.com", "/v1", Method::GET, 6),
            ("[::1]:80", "/", Method::GET, 0),
        ] {
            let found = routes.find(host, path, &method).unwrap();
            assert_eq!(*found.to, expected, "{method} {host}{path}");
        }
    }

    #[test]
    fn what_no_route_is_for_is_not_found() {
        let routes = routes(&[("a", "/x", "GET"), ("*.c", "", "")]);
        for (host, path, method) in [
            ("b", "/x", Method::GET),
            ("a", "/", Method::GET),
            ("a", "/x", Method::PUT),
            ("c", "/", Method::GET),
            (".c", "/", Method::GET),
        ] {
            assert!(routes.find(host, path, &method).is_none(), "{method} {host}{path}");
        }
        assert_eq!(routes.find("a", "/x/y", &Method::GET).unwrap().prefix, "/x");
    }

    #[test]
    fn paths_are_told_in_one_form_or_refused() {
        for (path, normal) in [
            ("/", Some("/")),
            ("/a/b", Some("/a/b")),
            ("/%61dmin", Some("/admin")),
            ("//admin///x", Some("/admin/x")),
            ("/a%2Fb", Some("/a%2Fb")),
            ("/a%252fb", Some("/a%252fb")),
            ("/admin;x/users;y=1;z", Some("/admin/users")),
            ("/;x/admin", Some("/admin")),
            ("/a%3Bb", Some("/a%3Bb")),
            ("/a%2fb/%7Eme", Some("/a%2Fb/~me")),
            ("/v1/chat%3Asend", Some("/v1/chat:send")),
            ("/%40me/%21%24%26%27%28%29%2a%2B%2c%3d", Some("/@me/!$&'()*+,=")),
            ("/a%7cb/%5B%22%5d", Some("/a|b/[\"]")),
            ("/caf%c3%a9", Some("/caf%C3%A9")),
            ("/café/x", Some("/caf%C3%A9/x")),
            ("/a%20b%7f%ff", Some("/a%20b%7F%FF")),
            ("/a%3fb%23c%3bd", Some("/a%3Fb%23c%3Bd")),
            ("/.well-known", Some("/.well-known")),
            ("/a/..b", Some("/a/..b")),
            ("/a/../b", None),
            ("/a/%2e%2E/b", None),
            ("/..", None),
            ("/a/./b", None),
            ("/a\\..\\b", None),
            ("/a\\b", None),
            ("/a%00", None),
            ("/a/..;x/b", None),
            ("/a/..%2fb", None),
            ("/a/%2e%2e%5Cb", None),
            ("/a%2f.", None),
            ("/%", None),
            ("/%zz", None),
            ("/%+1", None),
            ("a", None),
            ("*", None),
            ("", None),
        ] {
            assert_eq!(normal_path(path).as_deref(), normal, "{path}");
        }
    }

    #[test]
    fn slashes_that_are_escaped_are_found() {
        for (path, open) in [
            ("/a/b", None),
            ("/a%20b", None),
            ("/a%252fb", None),
            ("/a%2", None),
            ("/a%2Fb%5cc%2f", Some("/a/b/c/")),
            ("/%2fadmin%5C%2F/x", Some("/admin/x")),
            ("/%é%2f", Some("/%é/")),
        ] {
            assert_eq!(open_path(path).as_deref(), open, "{path}");
        }
    }
}
