//! Servers and routes.

use std::sync::Arc;

use super::Lowering;
use super::root::File;
use super::scalar::Scalar;
use crate::address::Address;
use crate::gateway::{
    ConsumerSpec, CostSpec, DeniedSpec, HealthSpec, KeySpec, LaterSpec, Place, RouteSpec, Target, UpstreamSpec,
};
use crate::grammar::{
    ConsumerFields, CostFields, DeniedFields, HEADER_FAMILY, HealthFields, LaterFields, PRIORITY, RouteFields, Slot,
    UpstreamFields,
};
use crate::pattern::Network;
use crate::yaml::{Kind, Node};

impl Lowering<'_> {
    pub(super) fn upstream(&mut self, node: &Node) {
        let before = self.errors;
        let Some(fields) = self.fields::<UpstreamFields<'_>>(node) else { return };
        let name = self.name_of(before, node, fields.name, "an upstream needs a name", "write `name: api`");
        let servers = fields.servers.map(|servers| self.each(servers.value, Self::server)).unwrap_or_default();
        if servers.is_empty() {
            let help = "write where it is, such as `servers: [http://127.0.0.1:9000]`";
            self.missing(before, node, "an upstream needs a server", help);
        }
        let health = fields.health.and_then(|health| self.health(health.value));
        let connect_timeout = fields.connect_timeout.and_then(|time| self.some_time(time.value));
        let timeout = fields.timeout.and_then(|time| self.some_time(time.value));
        let tunnel_timeout = fields.tunnel_timeout.and_then(|time| self.some_time(time.value));
        let ca = fields.ca.and_then(|ca| self.text(ca.value)).map(Arc::from);
        let within = fields.within.map(|within| self.each(within.value, Self::place).into());
        let overload = fields.overload.and_then(|overload| self.overload(overload.value));
        if within.is_some() {
            self.no_sockets(fields.servers, &servers);
        }
        if let Some(name) = name.filter(|_| self.errors == before) {
            let span = fields.name.map_or(node.spot(), |name| name.value.span);
            self.gateway.upstreams.push(UpstreamSpec {
                name,
                servers,
                health,
                connect_timeout,
                timeout,
                tunnel_timeout,
                ca,
                within,
                overload,
                span,
            });
        }
    }

    fn health(&mut self, node: &Node) -> Option<HealthSpec> {
        if !matches!(node.kind(), Kind::Map(_)) {
            let path = self.path(node)?.into();
            return Some(HealthSpec { path, every: None, timeout: None, failures: None, successes: None });
        }
        let before = self.errors;
        let fields: HealthFields<'_> = self.fields(node)?;
        let path = fields.path.and_then(|path| self.path(path.value));
        let count = |this: &mut Self, slot: Slot<'_>| {
            slot.and_then(|count| this.integer(count.value, 1, 1_000)).and_then(|count| u32::try_from(count).ok())
        };
        let every = fields.every.and_then(|time| self.some_time(time.value));
        let timeout = fields.timeout.and_then(|time| self.some_time(time.value));
        let (failures, successes) = (count(self, fields.failures), count(self, fields.successes));
        let Some(path) = path else {
            self.missing(before, node, "`health` does not say what to ask for", "write `path: /health`");
            return None;
        };
        Some(HealthSpec { path: path.into(), every, timeout, failures, successes })
    }

    pub(super) fn route(&mut self, node: &Node, file: &File) {
        let before = self.errors;
        let Some(fields) = self.fields::<RouteFields<'_>>(node) else { return };
        let name = self.name_of(before, node, fields.name, "a route needs a name", "write `name: api`");
        let hosts = self.some(fields.hosts, Self::host);
        let paths = self.some(fields.paths, Self::path);
        let methods = self.some(fields.methods, Self::http_method);
        let upstream = fields.upstream.and_then(|upstream| self.target(upstream.value));
        if fields.upstream.is_none() {
            let help = "name an upstream, or write an address such as `upstream: http://127.0.0.1:9000`";
            self.missing(before, node, "the route leads nowhere", help);
        }
        let attributes = fields.attributes.map(|attributes| self.attributes(attributes.value)).unwrap_or_default();
        let cost = fields.cost.and_then(|cost| self.cost(cost.value));
        let allow = self.some(fields.allow, Self::network);
        let deny = fields.deny.map(|deny| self.each(deny.value, Self::network)).unwrap_or_default();
        let api_key = self.some(fields.api_key, Self::place_of_key);
        let denied = fields.denied.and_then(|denied| self.denied(denied.value)).unwrap_or_default();
        let priority = fields.priority.and_then(|priority| self.choice(&PRIORITY, priority.value));
        let later = fields.later.and_then(|later| self.later(later.value)).unwrap_or_default();
        let jwt = match fields.jwt {
            Some(jwt) => self.tokens_of_route(jwt.value).map(Arc::new),
            None => file.jwt.clone(),
        };
        let (strip_path, preserve_host) = (self.is_set(fields.strip_path), self.is_set(fields.preserve_host));
        let encoded_slash = self.is_set(fields.encoded_slash);
        let upgrades = fields.upgrades.map(|upgrades| self.each(upgrades.value, Self::upgrade));
        if let (Some(name), Some(upstream), true) = (name, upstream, self.errors == before) {
            let domain = Arc::clone(&file.domain);
            // What is told of it later is about where it leads.
            let span = fields.upstream.map_or(node.spot(), |upstream| upstream.value.span);
            self.gateway.routes.push(RouteSpec {
                name,
                domain,
                hosts,
                paths,
                methods,
                upstream,
                strip_path,
                preserve_host,
                encoded_slash,
                upgrades,
                attributes,
                cost,
                allow,
                deny,
                api_key: api_key.iter().map(|name| name.to_string()).collect(),
                denied,
                priority,
                later,
                jwt,
                name_span: fields.name.map_or(span, |name| name.value.span),
                span,
            });
        }
    }

    fn denied(&mut self, node: &Node) -> Option<DeniedSpec> {
        let fields: DeniedFields<'_> = self.fields(node)?;
        let status = fields.status.and_then(|status| self.integer(status.value, 400, 599));
        Some(DeniedSpec {
            status: status.and_then(|status| u16::try_from(status).ok()),
            body: fields.body.and_then(|body| self.text(body.value)).map(Arc::from),
            content_type: fields.content_type.and_then(|kind| self.visible(kind.value)).map(Arc::from),
            headers: fields
                .headers
                .map(|headers| self.each(headers.value, |this, node| this.choice(&HEADER_FAMILY, node))),
        })
    }

    fn later(&mut self, node: &Node) -> Option<LaterSpec> {
        /// A body has to be held in memory, if not for long.
        const MOST_BODY: u64 = 64 << 20;
        const MOST_WAITING: u64 = 1_000_000;
        let fields: LaterFields<'_> = self.fields(node)?;
        let usual = LaterSpec::default();
        let attempts = self.or(fields.attempts, usual.attempts.into(), |this, node| this.integer(node, 1, 1_000));
        Some(LaterSpec {
            most_waiting: self.or(fields.most_waiting, usual.most_waiting, |this, node| this.up_to(node, MOST_WAITING)),
            most_body: self.or(fields.most_body, usual.most_body, |this, node| this.up_to(node, MOST_BODY)),
            attempts: u32::try_from(attempts).unwrap_or(usual.attempts),
            repeat: self.is_set(fields.repeat),
            give_up: self.or(fields.give_up, usual.give_up, Self::some_time),
            keep: self.or(fields.keep, usual.keep, Self::some_time),
        })
    }

    /// A count from one to `most`.
    fn up_to(&mut self, node: &Node, most: u64) -> Option<u64> {
        let count = self.count(node)?;
        if (1..=most).contains(&count) {
            return Some(count);
        }
        let message = format!("{} is not a whole number from 1 to {most}", node.describe());
        self.error("out-of-range", node.span, message, "write a number in that range");
        None
    }

    /// What may stand in a header.
    fn visible<'a>(&mut self, node: &'a Node) -> Option<&'a str> {
        let text = self.text(node)?;
        if text.is_empty() || !text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
            self.error("header", node.span, "this cannot stand in a header", "write plain ASCII characters");
            return None;
        }
        Some(text)
    }

    pub(super) fn consumer(&mut self, node: &Node) {
        let before = self.errors;
        let Some(fields) = self.fields::<ConsumerFields<'_>>(node) else { return };
        let name = self.name_of(before, node, fields.name, "a consumer needs a name", "write `name: alice`");
        let keys = fields.keys.map(|keys| self.each(keys.value, Self::api_key)).unwrap_or_default();
        let attributes = fields.attributes.map(|attributes| self.attributes(attributes.value)).unwrap_or_default();
        if let Some(name) = name.filter(|_| self.errors == before) {
            let span = fields.name.map_or(node.spot(), |name| name.value.span);
            self.gateway.consumers.push(ConsumerSpec { name, keys, attributes, span });
        }
    }

    fn api_key(&mut self, node: &Node) -> Option<KeySpec> {
        let text = self.visible(node)?;
        let Some(digits) = text.strip_prefix("sha256:") else { return Some(KeySpec::Plain(text.into())) };
        let byte = |at: usize| digits.get(2 * at..2 * at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let bytes: Option<Vec<u8>> = (0..32).map(byte).collect();
        let hash = bytes.filter(|_| digits.len() == 64).and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        if hash.is_none() {
            let help = "write the 64 digits that `printf %s KEY | sha256sum` prints";
            self.error("key", node.span, "this is not what SHA-256 makes of a key", help);
        }
        hash.map(KeySpec::Sha256)
    }

    fn name_of(&mut self, before: usize, node: &Node, slot: Slot<'_>, message: &str, help: &str) -> Option<Arc<str>> {
        let name = slot.and_then(|name| self.text(name.value)).filter(|name| !name.is_empty());
        if name.is_none() {
            self.missing(before, node, message, help);
        }
        name.map(Arc::from)
    }

    /// One or several of something.
    pub(super) fn each<T>(&mut self, node: &Node, mut read: impl FnMut(&mut Self, &Node) -> Option<T>) -> Vec<T> {
        self.one_or_more(node).iter().filter_map(|item| read(self, item)).collect()
    }

    /// The same, where none at all would be read as anything at all.
    pub(super) fn some<T>(&mut self, slot: Slot<'_>, read: impl FnMut(&mut Self, &Node) -> Option<T>) -> Vec<T> {
        let Some(written) = slot else { return Vec::new() };
        if self.one_or_more(written.value).is_empty() {
            let name = written.key.describe();
            let message = format!("{name} has nothing in it");
            self.error("empty", written.value.spot(), message, format!("leave {name} out if it does not matter"));
        }
        self.each(written.value, read)
    }

    fn server(&mut self, node: &Node) -> Option<Address> {
        let text = self.text(node)?;
        match text.parse() {
            Ok(address) => Some(address),
            Err(wrong) => {
                let (message, help) = wrong.message_and_help();
                self.error("address", node.span, message, help);
                None
            }
        }
    }

    fn target(&mut self, node: &Node) -> Option<Target> {
        let text = self.text(node)?;
        if text.contains("://") || text.starts_with("unix:") {
            self.server(node).map(Target::Server)
        } else {
            Some(Target::Named(text.into()))
        }
    }

    fn host(&mut self, node: &Node) -> Option<String> {
        let text = self.text(node)?;
        let name = text.strip_prefix("*.").unwrap_or(text);
        let is_name = !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte))
            && (name.starts_with('[') || !name.contains(':'));
        if !is_name {
            let help =
                "write a name such as api.example.com, or *.example.com for all below it; ports are not looked at";
            self.error("host", node.span, format!("`{text}` is no name of a host"), help);
            return None;
        }
        Some(text.to_ascii_lowercase())
    }

    fn path(&mut self, node: &Node) -> Option<String> {
        let text = self.text(node)?;
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic()) && !text.contains(['?', '#', '%', '\\']);
        let is_path = text.starts_with('/') && is_plain && !text.contains("//");
        if !is_path || text.split('/').any(|segment| segment == "." || segment == "..") {
            let help = "write the beginning of a path, such as /api: plain characters, no query";
            self.error("path", node.span, format!("`{text}` is no path"), help);
            return None;
        }
        Some(text.to_owned())
    }

    fn http_method(&mut self, node: &Node) -> Option<String> {
        let text = self.text(node)?;
        let is_token = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase() || b"-_".contains(&byte));
        if !is_token {
            let help = "methods are written in upper case, such as GET";
            self.error("method", node.span, format!("`{text}` is no method"), help);
            return None;
        }
        Some(text.to_owned())
    }

    fn place(&mut self, node: &Node) -> Option<Place> {
        let text = self.text(node)?;
        let place = text.parse().ok();
        if place.is_none() {
            let help =
                "write `public`, `private`, `loopback`, `link_local`, an address, or a network such as 10.0.0.0/8";
            self.error("place", node.span, format!("`{text}` is no place"), help);
        }
        place
    }

    /// Files are nowhere in a network.
    fn no_sockets(&mut self, slot: Slot<'_>, servers: &[Address]) {
        if let Some(slot) = slot.filter(|_| servers.iter().any(|server| server.socket().is_some())) {
            let help = "leave out `within`, or ask the server by an address";
            self.error("place", slot.value.span, "a socket in the file system is in no network", help);
        }
    }

    fn network(&mut self, node: &Node) -> Option<Network> {
        let text = self.text(node)?;
        let network = Network::parse(text);
        if network.is_none() {
            let help = "write an address or a network such as 10.0.0.0/8";
            self.error("network", node.span, format!("`{text}` is no network"), help);
        }
        network
    }

    fn cost(&mut self, node: &Node) -> Option<CostSpec> {
        if !matches!(node.kind(), Kind::Map(_)) {
            return self.count(node).map(CostSpec::Fixed);
        }
        let before = self.errors;
        let fields: CostFields<'_> = self.fields(node)?;
        match (fields.header, fields.response_header) {
            (Some(name), None) => self.header(name.value).map(CostSpec::Header),
            (None, Some(name)) => self.header(name.value).map(CostSpec::ResponseHeader),
            (Some(one), Some(other)) => {
                self.exclusive(one, other, "a cost comes from one place", "write one of them");
                None
            }
            (None, None) => {
                let help = "write a number, `{header: X-Cost}` or `{response_header: X-Cost}`";
                self.missing(before, node, "`cost` does not say what it is", help);
                None
            }
        }
    }

    /// The name of a header or a parameter. Whoever writes `true` wants keys, and has not said where they are.
    fn place_of_key(&mut self, node: &Node) -> Option<Arc<str>> {
        if let Some(Scalar::Flag(_) | Scalar::Integer(_) | Scalar::Float(_)) = node.scalar() {
            let message = format!("{} is no name of a header or a parameter", node.describe());
            let help = "write `api_key: X-Api-Key`, the header that has the key; quote what is a name all the same";
            self.error("wrong-type", node.span, message, help);
            return None;
        }
        self.header(node)
    }

    pub(super) fn header(&mut self, node: &Node) -> Option<Arc<str>> {
        self.token(node, "header").map(|name| name.to_ascii_lowercase().into())
    }

    /// A name as HTTP has them, of a header or a cookie.
    pub(super) fn token<'a>(&mut self, node: &'a Node, what: &str) -> Option<&'a str> {
        let text = self.text(node)?;
        let is_token = !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
        if !is_token {
            self.error("header", node.span, format!("`{text}` is no name of a {what}"), "write a name such as X-Cost");
        }
        is_token.then_some(text)
    }

    /// What `Upgrade` may name.
    fn upgrade(&mut self, node: &Node) -> Option<Arc<str>> {
        let text = self.visible(node)?;
        // To let HTTP itself pass would be to let everything pass.
        if text.contains([',', ' ']) || ["h2c", "h2", "http"].iter().any(|http| is_of(text, http)) {
            let message = format!("`{text}` is nothing that a tunnel may be for");
            self.error("upgrade", node.span, message, "write one protocol that is not HTTP, such as `websocket`");
            return None;
        }
        Some(text.into())
    }

    fn attributes(&mut self, node: &Node) -> Vec<(Arc<str>, Arc<str>)> {
        let Kind::Map(items) = node.kind() else {
            self.wrong_type(node, "a mapping such as `{plan: free}`");
            return Vec::new();
        };
        let pair = |(key, value): &(Node, Node)| {
            let (key, value) = (self.text(key)?, self.text(value)?);
            Some((self.key(key), Arc::from(value)))
        };
        items.iter().filter_map(pair).collect()
    }
}

/// Whether a protocol, of whatever version, is this one.
fn is_of(text: &str, protocol: &str) -> bool {
    text.split('/').next().is_some_and(|name| name.eq_ignore_ascii_case(protocol))
}
