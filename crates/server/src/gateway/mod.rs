//! The gateway: a proxy that asks the same rules as everybody else before it lets a request through.
//!
//! What goes where is in `table`, what rules are told in `known`, what is said to servers in `onward`, what is done
//! later in `later`. How bytes get there and back is the business of `tollgate_gateway`. Nothing here counts: the gate
//! does.

mod answer;
mod args;
mod body;
mod holders;
mod jwt;
mod known;
mod kong;
mod later;
mod line;
mod log;
mod noticed;
mod offenders;
mod onward;
mod overload;
mod pass;
mod tab;
mod table;
mod told;
mod trust;

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::protocol::body::Body;
use bytes::Bytes;
use http::header::{CONNECTION, EXPECT, HeaderValue, UPGRADE};
use http::{Method, Request, Response, Version, request};
use hyper::body::Body as _;
use tollgate::{Check, Clock as _};
use tollgate_gateway::{Head, Onward, Tunnel, normal_path, open_path, recycle, tunnel, upgrade_of};

pub(crate) use self::args::{GatewayArgs, run};
pub(crate) use self::jwt::{any_token, good_token};
pub(crate) use self::kong::Kong;
pub(crate) use self::later::{Bounds, Later};
pub(crate) use self::log::AccessLog;
pub(crate) use self::offenders::Offenders;
pub(crate) use self::table::Gateway;
pub(crate) use self::trust::check_trust;

use self::answer::{Refusal, refused};
use self::body::Reply;
use self::known::{Facts, Known, plain_host};
use self::later::{NotKept, Parcel};
use self::log::Entry;
use self::noticed::Noticed;
use self::onward::Origin;
use self::overload::Permit;
use self::pass::{Admission, Keeping, cost_of, pass};
use self::tab::Tab;
use self::table::Lane;
use self::told::{Theirs, Told};
use crate::gate::{Door, Meter};
use crate::protocol::departure::attended;
use crate::protocol::http::{Form, is_trusted, read_body};
use crate::protocol::http1::Malformed;
use crate::protocol::hyper_connection::{refuse_http, serve_http};
use crate::protocol::snippet;
use crate::serve::{Doorman, Drained, House, Peer, Serve, Settings, Stream};

/// So long after the service has begun to end, tunnels are cut off: nothing that is said in them tells their ends to
/// come to one, and they would otherwise last as long as the drain may.
const TUNNELS_END: Duration = Duration::from_secs(5);

/// The port that clients ask.
pub(crate) struct ProxyService {
    house: Arc<House>,
    gateway: Arc<Gateway>,
    later: Arc<Later>,
    log: Option<Arc<AccessLog>>,
    /// What the next request is called.
    requests: AtomicU64,
}

/// A tunnel that both ends want, who pays for what goes through it, and its place among an upstream's requests.
type Agreed = (Tunnel, Option<Tab>, Option<Permit>);

/// What all requests of a connection have in common.
pub(crate) struct Client {
    peer: Peer,
    is_encrypted: bool,
    /// Whether its word about others is taken.
    is_trusted: bool,
    /// Its address as text, which is asked for by rules and told to servers: made once.
    address: Option<Box<str>>,
    /// Where its connection leads when HTTP is over on it.
    tunnel: Mutex<Option<Agreed>>,
}

impl Client {
    fn new(peer: Peer, is_encrypted: bool, settings: &Settings) -> Self {
        let address = match peer {
            Peer::Address(address) => Some(address.to_canonical().to_string().into()),
            Peer::Local => None,
        };
        let is_trusted = is_trusted(peer, &settings.trusted_proxies);
        Self { peer, is_encrypted, is_trusted, address, tunnel: Mutex::default() }
    }

    /// Where it connects from, unless it comes for others.
    fn own_address(&self) -> Option<IpAddr> {
        match self.peer {
            Peer::Address(address) if !self.is_trusted => Some(address),
            _ => None,
        }
    }
}

impl ProxyService {
    pub(crate) fn new(
        house: &Arc<House>,
        gateway: &Arc<Gateway>,
        later: &Arc<Later>,
        log: Option<Arc<AccessLog>>,
    ) -> Self {
        let mut random = [0; 8];
        // Without randomness names of requests repeat after a restart, which is no harm.
        let _ = getrandom::fill(&mut random);
        let requests = AtomicU64::new(u64::from_le_bytes(random));
        Self { house: Arc::clone(house), gateway: Arc::clone(gateway), later: Arc::clone(later), log, requests }
    }

    async fn answer(&self, head: &mut request::Parts, body: Body, client: &Client) -> Told {
        let meter = self.meter();
        let started = meter.start();
        if !client.is_trusted {
            onward::leave_out_claims(&mut head.headers);
        }
        let noticed = Noticed::of(&head.headers);
        let name = self.name_of(&noticed);
        if let Some(why) = head.extensions.get::<Malformed>() {
            meter.error();
            let mut response = refused(&Refusal::Malformed(*why), Form::wanted(&head.headers));
            if let Some(log) = &self.log {
                let mut entry = Entry::unread(log, &name);
                entry.add("client", Origin::of(&head.headers, client, &self.house.settings).text().unwrap_or("local"));
                entry.add("error", why.told());
                response = entry.answered(&head.method, response);
            }
            meter.finish(started);
            return Told { response, theirs: None, name };
        }
        let mut entry = self.log.as_ref().map(|log| Entry::new(log, head, &name));
        let answered = self.forward(head, &noticed, body, client, &name, &mut entry).await;
        let (mut response, theirs) = answered.unwrap_or_else(|refusal| {
            meter.error();
            if let (Some(entry), Some(cause)) = (&mut entry, refusal.cause()) {
                entry.add("error", &cause);
            }
            (refused(&refusal, Form::wanted(&head.headers)), None)
        });
        meter.finish(started);
        if let Some(entry) = entry {
            response = entry.answered(&head.method, response);
        }
        recycle(std::mem::take(&mut head.headers));
        Told { response, theirs, name }
    }

    async fn forward(
        &self,
        head: &request::Parts,
        noticed: &Noticed<'_>,
        body: Body,
        client: &Client,
        name: &HeaderValue,
        entry: &mut Option<Entry>,
    ) -> Result<(Response<Reply>, Option<Theirs>), Refusal> {
        let origin = Origin::of(&head.headers, client, &self.house.settings);
        // Also of those who are refused below, and of them most of all.
        if let Some(entry) = entry {
            entry.add("client", origin.text().unwrap_or("local"));
        }
        let host = host_of(head, noticed)?;
        if head.method == Method::CONNECT {
            return Err(Refusal::NoTunnels);
        }
        if head.method == Method::OPTIONS && head.uri.path() == "*" {
            return Ok((answer::about_all(), None));
        }
        if !head.uri.path().starts_with('/') {
            return Err(Refusal::NoPath);
        }
        let path = normal_path(head.uri.path()).ok_or(Refusal::Path)?;
        if path.starts_with(later::STATUS_PATH) {
            if !self.later.may_ask(origin.ip) {
                self.gateway.denied(client);
                return Err(Refusal::Asking);
            }
            if let Some(status) = Box::pin(self.later.answer_client(&head.method, &path)).await {
                return Ok((status.map(Reply::Own), None));
            }
        }
        let table = self.gateway.table();
        let plain_host = plain_host(host);
        let Some(found) = table.routes.find(&plain_host, &path, &head.method) else { return Err(Refusal::NoRoute) };
        let lane: &Arc<Lane> = found.to;
        // Whichever way the server reads it, it has to be the same route.
        if let Some(open) = path.contains('%').then(|| open_path(&path)).flatten() {
            let other = table.routes.find(&plain_host, &open, &head.method);
            if !lane.encoded_slash || !other.is_some_and(|other| Arc::ptr_eq(other.to, lane)) {
                return Err(Refusal::Path);
            }
        }
        if !lane.is_welcome(origin.ip) {
            return Err(Refusal::Unwelcome);
        }
        let (credential, consumer) = match key_of(head, lane) {
            _ if lane.api_key.is_empty() => None,
            Some(key) => Some(table.consumer(&key).ok_or_else(|| stranger(lane, !key.is_empty()))?),
            None => return Err(stranger(lane, false)),
        }
        .unzip();
        let claims = match &lane.tokens {
            Some(tokens) => {
                tokens.claims(&head.headers, self.house.gate.engine().clock().now()).map_err(Refusal::Token)?
            }
            None => None,
        };
        if let Some(entry) = entry {
            entry.add("route", &lane.name);
            consumer.iter().for_each(|consumer| entry.add("consumer", &consumer.name));
        }
        let claims = claims.as_deref();
        let facts = Facts { head, path: &path, host: &plain_host, origin: &origin, consumer, credential, claims };
        let known = Known::of(&facts, lane);
        // What was counted for a client is in no cache any more when it asks again, and is fetched while there is
        // something else to do.
        self.house.gate.approach_check(&Check::attributes(&lane.domain, &known.attributes()));
        let has_upgrade = noticed.upgrade.is_some() && head.version == Version::HTTP_11;
        let upgrade = has_upgrade.then(|| upgrade_of(&head.headers, &lane.upgrades)).flatten();
        let can_wait = upgrade.is_none() && !noticed.is_stream();
        // What follows an upgrade is not announced.
        let bytes = body.size_hint().exact().filter(|_| upgrade.is_none());
        let later = can_wait.then_some(&*self.later);
        let chain = onward::chain(&head.headers, client);
        let own = onward::own_headers(noticed, client, &origin, &chain, host, name);
        let target = onward::target(&head.uri, lane, found.prefix);
        let preserved = lane.preserve_host.then(|| HeaderValue::from_str(host).ok()).flatten();
        let mut passage = match pass(&self.house, later, lane, &known, head, bytes).await? {
            Admission::Through(passage) => passage,
            Admission::Denied(denied) => {
                self.gateway.denied(client);
                return Ok((*denied, None));
            }
            Admission::Deferred(keeping) => {
                let parcel = Parcel {
                    method: head.method.clone(),
                    target: target.into_owned(),
                    host: preserved,
                    headers: head.headers.clone(),
                    own: onward::keep(&own),
                    attributes: known.keep(),
                    cost: cost_of(lane, &head.headers)?,
                    body: Bytes::new(),
                };
                // Boxed, so that the room for it is not part of every request's.
                return Ok((Box::pin(self.defer(client, lane, *keeping, &path, parcel, body)).await?, None));
            }
        };
        let onward = Onward {
            method: &head.method,
            target: &target,
            host: preserved.as_ref(),
            headers: &head.headers,
            own: &own,
        };
        let permit = match &lane.overload {
            Some(overload) => {
                let priority = lane.priority(&known, || self.house.gate.rules());
                let seat = attended(&head.extensions, overload.enter(priority, &self.house.gate));
                Some(Box::pin(seat).await.map_err(|_| Refusal::Shed)?)
            }
            None => None,
        };
        let answered = lane.group.forward(&onward, upgrade, passage.upload(body)).await;
        if let Some(permit) = &permit {
            permit.answered(answered.as_ref().map(|(head, _)| head.status).map_err(|failure| failure.why.status()));
        }
        let (head, mut answer) = answered.map_err(Refusal::Upstream)?;
        if let Some(tunnel) = answer.tunnel() {
            let response = switched(&head);
            let (theirs, tab) = passage.into_tunnel(head.lines);
            *client.tunnel.lock().unwrap_or_else(PoisonError::into_inner) = Some((tunnel, tab, permit));
            return Ok((response, Some(theirs)));
        }
        let (status, (reply, theirs)) = (head.status, passage.tell(head.lines, answer));
        let mut response = Response::new(reply.holding(permit));
        *response.status_mut() = status;
        Ok((response, Some(theirs)))
    }

    /// Keeps a request, with its body, to be done later.
    async fn defer(
        &self,
        client: &Client,
        lane: &Arc<Lane>,
        mut keeping: Keeping<'_, '_>,
        path: &str,
        parcel: Parcel,
        body: Body,
    ) -> Result<Response<Reply>, Refusal> {
        let expects = parcel.headers.contains_key(EXPECT);
        let (most, patience) = (lane.later.most_body as usize, self.house.settings.http_timeout);
        let body = read_body(body, most, patience, expects).await.map_err(Refusal::Body)?;
        let (bytes, headers) = (body.len() as u64, parcel.headers.clone());
        keeping.commit();
        match self.later.keep(lane, keeping.deferred, path, Parcel { body, ..parcel }).await {
            Ok(answer) => {
                keeping.kept(bytes);
                Ok(answer)
            }
            Err(why @ NotKept::Full(..)) => {
                self.gateway.denied(client);
                Ok(keeping.deny(why, &headers).await)
            }
            Err(why) => {
                keeping.take_back();
                Err(Refusal::Later(why))
            }
        }
    }

    /// What somebody who is trusted calls the request, if that is a name; else one of our own.
    fn name_of(&self, noticed: &Noticed<'_>) -> HeaderValue {
        let is_name = |name: &&HeaderValue| {
            (1..=128).contains(&name.len()) && name.as_bytes().iter().all(|byte| byte.is_ascii_graphic())
        };
        if let Some(name) = noticed.request_id.filter(is_name) {
            return name.clone();
        }
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        // Spread, so that names do not tell how many requests there are.
        let mut number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let digits: [u8; 16] = std::array::from_fn(|_| {
            number = number.rotate_left(4);
            b"0123456789abcdef"[(number & 15) as usize]
        });
        snippet::value(|out| out.extend_from_slice(&digits))
    }
}

/// A server's word that something else is spoken from now on, which is said to the client as well.
fn switched(head: &Head) -> Response<Reply> {
    let mut response = Response::new(Reply::empty());
    *response.status_mut() = head.status;
    if let Some(upgrade) = head.upgrade() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
        response.headers_mut().insert(UPGRADE, upgrade.clone());
    }
    response
}

/// The key that a request shows, in the first of the places where one may be.
fn key_of<'h>(head: &'h request::Parts, lane: &Lane) -> Option<Cow<'h, [u8]>> {
    lane.api_key.iter().find_map(|name| {
        let in_header = head.headers.get(name).map(|key| Cow::Borrowed(key.as_bytes()));
        let in_query = || known::query(&head.uri, name).map(|key| Cow::Owned(key.into_owned().into_bytes()));
        in_header.or_else(in_query)
    })
}

fn stranger(lane: &Lane, has_key: bool) -> Refusal {
    Refusal::Stranger { has_key, places: lane.api_key.clone() }
}

/// The host that a request is for. There has to be exactly one answer to that.
fn host_of<'h>(head: &'h request::Parts, noticed: &Noticed<'h>) -> Result<&'h str, Refusal> {
    if noticed.hosts > 1 {
        return Err(Refusal::Host("there is more than one Host header: send one"));
    }
    let no_name = Refusal::Host("the Host is no name: send a name and perhaps a port");
    let Ok(named) = noticed.host.map(HeaderValue::to_str).transpose() else { return Err(no_name) };
    match (head.uri.authority(), named) {
        (Some(authority), Some(named)) if !authority.as_str().eq_ignore_ascii_case(named) => {
            Err(Refusal::Host("the Host header is for another host than the address: send the same in both"))
        }
        (Some(authority), _) if is_name(authority.as_str()) => Ok(authority.as_str()),
        (None, Some(named)) if is_name(named) => Ok(named),
        (None, None) if head.version < Version::HTTP_11 => Ok(""),
        (None, None) => Err(Refusal::Host("there is no Host header: send one")),
        _ => Err(no_name),
    }
}

/// Whether it is a name or an address, and perhaps a port: who sees another port may see another name.
fn is_name(host: &str) -> bool {
    let (name, port, more) = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(("", rest, b"".as_slice()), |(name, port)| (name, port, b":")),
        None => {
            let (name, port) = host.split_at(memchr::memchr(b':', host.as_bytes()).unwrap_or(host.len()));
            (name, port, b"-_~".as_slice())
        }
    };
    let is_port =
        port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.' || more.contains(&byte);
    is_port && !name.is_empty() && name.bytes().all(is_part)
}

impl Serve for ProxyService {
    async fn serve(self: Arc<Self>, stream: Stream, peer: Peer, drained: Drained) {
        let patience = self.house.settings.http_timeout;
        let mut ending = drained.clone();
        let client = Client::new(peer, matches!(stream, Stream::Tls(_)), &self.house.settings);
        let shared = Arc::new((self, client));
        let asked = Arc::clone(&shared);
        let answer = move |request: Request<Body>| {
            let shared = Arc::clone(&asked);
            let (mut head, body) = request.into_parts();
            async move { shared.0.answer(&mut head, body, &shared.1).await }
        };
        let Some(stream) = serve_http(stream, drained, patience, true, answer).await else { return };
        let agreed = shared.1.tunnel.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((server, tab, permit)) = agreed {
            stream.get_ref().probe();
            let end = async {
                ending.closing().await;
                tokio::time::sleep(TUNNELS_END).await;
            };
            tokio::select! {
                // How it ends is the business of the two ends.
                _ = tunnel(Tab::meter(tab, stream), server) => {}
                () = end => {}
            }
            drop(permit);
        }
    }

    fn meter(&self) -> &Meter {
        self.house.gate.meter(Door::Proxy)
    }

    fn doorman(&self) -> Option<&Arc<Doorman>> {
        Some(self.gateway.doorman())
    }

    async fn refuse(stream: Stream) {
        refuse_http(stream).await;
    }
}
