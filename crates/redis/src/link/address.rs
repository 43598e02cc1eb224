//! Where Redis is and how to be let in: URLs, read once, with errors that say what to write instead.
//!
//! A password is in a [`Secret`], which shows itself to nobody: not in `Debug`, and no error quotes the part of a URL
//! that it was in.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The port of Redis, and the one of Sentinel.
const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
/// More addresses than this in one URL are a mistake.
const MOST_ENDPOINTS: usize = 64;

/// Everything that is needed to reach a Redis: one server, a primary that Sentinel watches, or a Cluster.
///
/// Written as one of
///
/// ```text
/// redis://[user[:password]@]host[:port][/db]
/// redis+unix:///path/of/socket[?db=1]
/// redis+sentinel://[user[:password]@]host[:port],host[:port].../name[/db]
/// redis+cluster://[user[:password]@]host[:port],host[:port]...
/// ```
///
/// and `rediss` instead of `redis` for TLS. After a `?`: `password_file` (read again at every connection), `ca_file`,
/// `cert_file` and `key_file` (PEM), `server_name` (whom the certificate has to be for), `db`; and for Sentinels that
/// want a login of their own `sentinel_user`, `sentinel_password` and `sentinel_password_file`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// What is there.
    pub topology: Topology,
    /// How to be let in.
    pub login: Login,
    /// How to be let in by the Sentinels.
    pub sentinel_login: Login,
    /// The database, zero in a Cluster.
    pub database: u32,
    /// With TLS if given.
    pub tls: Option<TlsFiles>,
}

/// What is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One server.
    Single(Endpoint),
    /// A primary and its replicas, and Sentinels who know which is which.
    Sentinel {
        /// All that are asked.
        sentinels: Vec<Endpoint>,
        /// What they call the primary.
        name: String,
    },
    /// Primaries that share the slots.
    Cluster {
        /// Those that are asked first who else there is.
        seeds: Vec<Endpoint>,
    },
}

/// Where one server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Endpoint {
    /// A host, by name or number, and a port.
    Tcp(String, u16),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A user and a password.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Login {
    /// The user, or else Redis's `default`.
    pub user: Option<String>,
    /// The password.
    pub password: Password,
}

/// Where a password is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Password {
    /// None is needed.
    #[default]
    None,
    /// Here.
    Given(Secret),
    /// In a file, without the space around it; read again whenever one is needed.
    File(PathBuf),
}

/// Something that is shown to nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps `text` from being shown.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// The files for TLS, in PEM, read again at every connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Who may vouch for the server; without it, those whom the system trusts.
    pub ca: Option<PathBuf>,
    /// Our own certificate and its key, for servers that want one.
    pub own: Option<(PathBuf, PathBuf)>,
    /// Whom the server's certificate has to be for, if that is not the host that we connect to.
    pub server_name: Option<String>,
}

/// Why a URL cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadAddress(String);

impl fmt::Display for BadAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this is no address of a Redis: {}", self.0)
    }
}

impl std::error::Error for BadAddress {}

fn bad<T>(why: impl Into<String>) -> Result<T, BadAddress> {
    Err(BadAddress(why.into()))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Single,
    Unix,
    Sentinel,
    Cluster,
}

const KINDS: [(&str, Kind, bool); 7] = [
    ("redis", Kind::Single, false),
    ("rediss", Kind::Single, true),
    ("redis+unix", Kind::Unix, false),
    ("redis+sentinel", Kind::Sentinel, false),
    ("rediss+sentinel", Kind::Sentinel, true),
    ("redis+cluster", Kind::Cluster, false),
    ("rediss+cluster", Kind::Cluster, true),
];

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(url: &str) -> Result<Self, BadAddress> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return bad("it has no `://`; write redis://host:6379");
        };
        let Some((_, kind, encrypted)) = KINDS.iter().find(|(name, ..)| *name == scheme) else {
            return bad(format!("the scheme is none of {}", KINDS.map(|(name, ..)| name).join(", ")));
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let options = Options::read(query)?;
        let authority_end = if *kind == Kind::Unix {
            rest.find('/')
        } else {
            rest.rfind('@')
                .map_or(rest.find('/'), |at| rest.get(at..).and_then(|tail| tail.find('/')).map(|slash| at + slash))
        };
        let (authority, path) = authority_end.and_then(|end| rest.split_at_checked(end)).unwrap_or((rest, ""));
        let (login, hosts) =
            authority.rsplit_once('@').map_or((None, authority), |(login, hosts)| (Some(login), hosts));
        let login = options.login(login)?;
        let (topology, database) = place(*kind, hosts, path)?;
        let database = match (database, options.database) {
            (Some(_), Some(_)) => return bad("the database is given twice, in the path and as `db`"),
            (path, option) => path.or(option).unwrap_or(0),
        };
        if *kind == Kind::Cluster && database != 0 {
            return bad("a Cluster has no database but 0");
        }
        if *kind != Kind::Sentinel && options.sentinel_login != Login::default() {
            return bad("there are `sentinel_` options and no Sentinels; write redis+sentinel://host:26379/name");
        }
        let tls = options.tls(*encrypted)?;
        Ok(Self { topology, login, sentinel_login: options.sentinel_login, database, tls })
    }
}

/// What the hosts and the path of a URL say.
fn place(kind: Kind, hosts: &str, path: &str) -> Result<(Topology, Option<u32>), BadAddress> {
    let path = path.strip_prefix('/').unwrap_or(path);
    match kind {
        Kind::Unix => {
            if !hosts.is_empty() {
                return bad("a socket has no host; write redis+unix:///path, with three slashes");
            }
            if path.is_empty() {
                return bad("the path of the socket is missing; write redis+unix:///path");
            }
            Ok((Topology::Single(Endpoint::Unix(PathBuf::from(format!("/{}", decoded(path)?)))), None))
        }
        Kind::Single => {
            let [endpoint] = <[_; 1]>::try_from(endpoints(hosts, REDIS_PORT)?).or_else(|_| {
                bad("there are several hosts; write redis+cluster:// or redis+sentinel:// for more than one server")
            })?;
            Ok((Topology::Single(endpoint), database(path)?))
        }
        Kind::Cluster => Ok((Topology::Cluster { seeds: endpoints(hosts, REDIS_PORT)? }, database(path)?)),
        Kind::Sentinel => {
            let (name, number) = path.split_once('/').unwrap_or((path, ""));
            let name = decoded(name)?;
            if name.is_empty() {
                return bad("the name of the primary is missing; write redis+sentinel://host:26379/name");
            }
            Ok((Topology::Sentinel { sentinels: endpoints(hosts, SENTINEL_PORT)?, name }, database(number)?))
        }
    }
}

fn database(text: &str) -> Result<Option<u32>, BadAddress> {
    match text {
        "" => Ok(None),
        number => number.parse().map(Some).or_else(|_| bad("the database is no number; write it as in redis://host/0")),
    }
}

fn endpoints(hosts: &str, usual_port: u16) -> Result<Vec<Endpoint>, BadAddress> {
    let mut found = Vec::new();
    for host in hosts.split(',') {
        let endpoint = endpoint(host, usual_port)?;
        if !found.contains(&endpoint) {
            found.push(endpoint);
        }
    }
    if found.len() > MOST_ENDPOINTS {
        return bad(format!("there are {} hosts, and {MOST_ENDPOINTS} are the most", found.len()));
    }
    Ok(found)
}

/// Reads `host`, `host:port` or `[number]:port`.
pub(super) fn endpoint(text: &str, usual_port: u16) -> Result<Endpoint, BadAddress> {
    let (host, port) = match text.strip_prefix('[').map(|text| text.split_once(']')) {
        Some(Some((host, port))) => (host, port.strip_prefix(':').unwrap_or(port)),
        Some(None) => return bad("a `[` is not closed"),
        None => text.split_once(':').unwrap_or((text, "")),
    };
    if port.contains(':') {
        return bad("a host has several colons; write IPv6 as [::1]:6379");
    }
    if host.is_empty() {
        return bad("a host is missing");
    }
    if !host.chars().all(|c| c.is_ascii_alphanumeric() || "-._:%".contains(c)) {
        return bad("a host has letters that no host has");
    }
    let port = match port {
        "" => usual_port,
        number => number.parse().or_else(|_| bad("a port is no number up to 65535"))?,
    };
    if port == 0 {
        return bad("a port is 0");
    }
    Ok(Endpoint::Tcp(host.to_owned(), port))
}

/// What comes after the question mark.
#[derive(Default)]
struct Options {
    password_file: Option<PathBuf>,
    sentinel_login: Login,
    database: Option<u32>,
    files: TlsFiles,
    key: Option<PathBuf>,
    certificate: Option<PathBuf>,
}

impl Options {
    fn read(query: &str) -> Result<Self, BadAddress> {
        let mut options = Self::default();
        let mut seen = Vec::new();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let Some((name, value)) = option.split_once('=') else {
                return bad("an option after `?` has no `=`");
            };
            if seen.contains(&name) {
                // The name is ours or unknown; what it is set to is not repeated.
                return bad("an option is given twice");
            }
            seen.push(name);
            options.set(name, decoded(value)?)?;
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), BadAddress> {
        match name {
            "password_file" => self.password_file = Some(value.into()),
            "db" => self.database = database(&value)?,
            "ca_file" => self.files.ca = Some(value.into()),
            "cert_file" => self.certificate = Some(value.into()),
            "key_file" => self.key = Some(value.into()),
            "server_name" => self.files.server_name = Some(value),
            "sentinel_user" => self.sentinel_login.user = Some(value),
            "sentinel_password" | "sentinel_password_file" if self.sentinel_login.password != Password::None => {
                return bad("give sentinel_password or sentinel_password_file, not both");
            }
            "sentinel_password" => self.sentinel_login.password = Password::Given(Secret(value)),
            "sentinel_password_file" => self.sentinel_login.password = Password::File(value.into()),
            _ => {
                return bad(
                    "an option after `?` is none of password_file, db, ca_file, cert_file, key_file, server_name, \
                     sentinel_user, sentinel_password, sentinel_password_file",
                );
            }
        }
        Ok(())
    }

    fn login(&self, text: Option<&str>) -> Result<Login, BadAddress> {
        let (user, password) = match text {
            None => (None, None),
            Some(text) => match text.split_once(':') {
                Some((user, password)) => (Some(user), Some(password)),
                None => (Some(text), None),
            },
        };
        let user = user.map(decoded).transpose()?.filter(|user| !user.is_empty());
        let given = password.map(decoded).transpose()?.filter(|password| !password.is_empty());
        let password = match (given, &self.password_file) {
            (Some(_), Some(_)) => return bad("give the password or password_file, not both"),
            (Some(password), None) => Password::Given(Secret(password)),
            (None, Some(file)) => Password::File(file.clone()),
            (None, None) if user.is_some() => {
                return bad("there is a user and no password; write user:password@ or ?password_file=");
            }
            (None, None) => Password::None,
        };
        Ok(Login { user, password })
    }

    fn tls(&self, encrypted: bool) -> Result<Option<TlsFiles>, BadAddress> {
        let own = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
            (None, None) => None,
            _ => return bad("cert_file and key_file are given together or not at all"),
        };
        let files = TlsFiles { own, ..self.files.clone() };
        match encrypted {
            true => Ok(Some(files)),
            false if files == TlsFiles::default() => Ok(None),
            false => bad("there are files for TLS, and it is off; write rediss instead of redis"),
        }
    }
}

/// Replaces `%20` and the like.
fn decoded(text: &str) -> Result<String, BadAddress> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = rest.split_at_checked(2).and_then(|(digits, after)| {
            let digits =
                std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|d| d.is_ascii_hexdigit()))?;
            Some((u8::from_str_radix(digits, 16).ok()?, after))
        });
        let Some((byte, after)) = digits else { return bad("a `%` is not followed by two hex digits") };
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8(bytes).or_else(|_| bad("what `%` stands for is no UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Endpoint {
        Endpoint::Tcp(host.to_owned(), port)
    }

    fn read(url: &str) -> Address {
        url.parse().unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    #[test]
    fn addresses_of_every_kind_are_read() {
        assert_eq!(read("redis://localhost").topology, Topology::Single(tcp("localhost", 6379)));
        let all = read("rediss://me:p%40ss@[::1]:7000/3?ca_file=/ca.pem&cert_file=/c&key_file=/k&server_name=store");
        assert_eq!(all.topology, Topology::Single(tcp("::1", 7000)));
        assert_eq!(all.login.user.as_deref(), Some("me"));
        assert_eq!(all.login.password, Password::Given(Secret::new("p@ss")));
        assert_eq!(all.database, 3);
        let tls = all.tls.expect("TLS");
        assert_eq!(tls.ca, Some("/ca.pem".into()));
        assert_eq!(tls.own, Some(("/c".into(), "/k".into())));
        assert_eq!(tls.server_name.as_deref(), Some("store"));
        let socket = read("redis+unix:///run/redis.sock?db=2");
        assert_eq!((socket.topology, socket.database), (Topology::Single(Endpoint::Unix("/run/redis.sock".into())), 2));
        let sentinel = read("redis+sentinel://:secret@a,b:1234/mymaster/1?sentinel_password_file=/s");
        let sentinels = vec![tcp("a", 26379), tcp("b", 1234)];
        assert_eq!(sentinel.topology, Topology::Sentinel { sentinels, name: "mymaster".to_owned() });
        assert_eq!(sentinel.login.password, Password::Given(Secret::new("secret")));
        assert_eq!(sentinel.sentinel_login.password, Password::File("/s".into()));
        assert_eq!(sentinel.database, 1);
        let cluster = read("rediss+cluster://u@a,b,a?password_file=/p");
        assert_eq!(cluster.topology, Topology::Cluster { seeds: vec![tcp("a", 6379), tcp("b", 6379)] });
        assert_eq!(cluster.login, Login { user: Some("u".to_owned()), password: Password::File("/p".into()) });
        assert!(cluster.tls.is_some());
        assert_eq!(read("redis://h").tls, None);
        // A password as it often is: with a slash and an at sign, not escaped.
        assert_eq!(read("redis://:a/b@c@h:1/0").login.password, Password::Given(Secret::new("a/b@c")));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for (url, said) in [
            ("localhost:6379", "write redis://host:6379"),
            ("http://h", "the scheme is none of redis, rediss"),
            ("redis://", "a host is missing"),
            ("redis://:canary@", "a host is missing"),
            ("redis://:canary@h:port", "a port is no number"),
            ("redis://h:0", "a port is 0"),
            ("redis://::1", "[::1]:6379"),
            ("redis://[::1", "is not closed"),
            ("redis://:canary@a,b", "redis+cluster://"),
            ("redis://:canary@h/x", "the database is no number"),
            ("redis://h/1?db=1", "given twice"),
            ("redis+cluster://h/1", "no database but 0"),
            ("redis+sentinel://h", "the name of the primary is missing"),
            ("redis+unix://run/redis.sock", "three slashes"),
            ("redis+unix://", "the path of the socket is missing"),
            ("redis://:canary@h?password_file=/p", "not both"),
            ("redis://user@h", "no password"),
            ("redis://h?canary", "has no `=`"),
            ("redis://h?canary=1", "is none of password_file"),
            ("redis://h?db=1&db=2", "given twice"),
            ("redis://h?ca_file=/x", "write rediss"),
            ("rediss://h?cert_file=/x", "together"),
            ("redis://h?sentinel_user=u", "no Sentinels"),
            ("redis://:%zzcanary@h", "two hex digits"),
            ("redis://:%ffcanary@h", "no UTF-8"),
            ("redis://h st", "letters that no host has"),
        ] {
            let error = url.parse::<Address>().expect_err(url).to_string();
            assert!(error.contains(said), "{url}: {error}");
            assert!(!error.contains("canary"), "{url}: {error}");
        }
        let address = read("redis+sentinel://u:canary@h/name?sentinel_password=canary");
        assert!(!format!("{address:?}").contains("canary"));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".*", scheme in 0..KINDS.len()) {
            let _ = text.parse::<Address>();
            let _ = format!("{}://{text}", KINDS[scheme].0).parse::<Address>();
        }
    }
}
