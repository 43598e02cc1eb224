//! The HTTP port: the native API, forward-auth, and what Envoy's service has in JSON.
//!
//! Only translates. Which route, which question and which form of answer is decided here and in the files beside; what
//! is allowed, the gate decides.

mod answer;
mod ask;
mod body;
mod forward;
pub(crate) mod headers;
mod origin;
mod phrase;
mod policy;
mod question;
mod route;
mod settle;
mod told;
mod value;

use std::sync::Arc;
use std::time::Duration;

use crate::protocol::body::Body;
use bytes::Bytes;
use http::header::{EXPECT, HOST};
use http::{Request, StatusCode, Version};
use tollgate::Verdict;

pub(crate) use self::answer::Form;
pub(crate) use self::headers::{Notice, write_line};
pub(crate) use self::origin::{is_trusted, written_client};

use self::answer::{Answer, Refusal};
use self::route::{Asked, Route};
use super::envoy;
use super::hyper_connection::{refuse_http, serve_http};
use crate::gate::{Door, Meter};
use crate::serve::{Drained, House, Manner, Peer, Serve, Stream};

/// What the API is, for programs.
const OPENAPI: &str = include_str!("openapi.json");

pub(crate) struct HttpService {
    house: Arc<House>,
}

impl HttpService {
    pub(crate) fn new(house: &Arc<House>) -> Self {
        Self { house: Arc::clone(house) }
    }

    async fn answer(&self, request: Request<Body>, peer: Peer) -> Answer {
        if request.version() == Version::HTTP_11 && !has_one_host(&request) {
            let refusal =
                Refusal::bad("a request of HTTP/1.1 has one Host header: write Host: and the name of this service");
            return self.refuse(refusal, Form::wanted(request.headers()), Door::Http);
        }
        match route::find(request.method(), request.uri().path()) {
            Ok(Route::Ask(asked)) => self.answer_question(request, asked).await,
            // Boxed, so that their room is not moved with every question.
            Ok(Route::Forward) => Box::pin(self.answer_proxy(&request, peer)).await,
            Ok(Route::Json) => Box::pin(self.answer_envoy(request)).await,
            Ok(Route::Healthcheck) => envoy::healthcheck(&self.house),
            Ok(Route::Index) => {
                let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
                answer::text(StatusCode::OK, route::list(host.unwrap_or("localhost:8080")))
            }
            Ok(Route::OpenApi) => {
                answer::with_type(StatusCode::OK, OPENAPI, http::HeaderValue::from_static("application/json"))
            }
            Ok(Route::Live) => answer::text(StatusCode::OK, "live\n"),
            Ok(Route::Ready) if self.house.is_ready() => answer::text(StatusCode::OK, "ready\n"),
            Ok(Route::Ready) => answer::text(StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
            Err(refusal) => self.refuse(refusal, Form::wanted(request.headers()), Door::Http),
        }
    }

    async fn answer_question(&self, request: Request<Body>, asked: Asked) -> Answer {
        let form = Form::wanted(request.headers());
        let expects = request.headers().contains_key(EXPECT);
        // Without its head, which would be moved with the rest until the end.
        let body = request.into_body();
        let patience = self.house.settings.http_timeout;
        let body = match body::read(body, asked.most_bytes(), patience, expects).await {
            Ok(body) => body,
            Err(refusal) => return self.refuse(refusal, form, Door::Http),
        };
        let meter = self.meter();
        let started = meter.start();
        let answered = self.ask(asked, &body, form).await;
        let answer = answered.unwrap_or_else(|refusal| self.refuse(refusal, form, Door::Http));
        meter.finish(started);
        answer
    }

    async fn answer_envoy(&self, request: Request<Body>) -> Answer {
        let (head, body) = request.into_parts();
        let expects = head.headers.contains_key(EXPECT);
        match body::read(body, Asked::Check.most_bytes(), self.house.settings.http_timeout, expects).await {
            Ok(body) => envoy::json(&self.house, &body).await,
            Err(refusal) => self.refuse(refusal, Form::wanted(&head.headers), Door::Json),
        }
    }

    async fn answer_proxy(&self, request: &Request<Body>, peer: Peer) -> Answer {
        let meter = self.house.gate.meter(Door::Forward);
        let started = meter.start();
        let form = Form::wanted(request.headers());
        let answered = forward::answer(&self.house, request, peer, form).await;
        let answer = answered.unwrap_or_else(|refusal| self.refuse(refusal, form, Door::Forward));
        meter.finish(started);
        answer
    }

    fn refuse(&self, refusal: Refusal, form: Form, door: Door) -> Answer {
        self.house.gate.meter(door).error();
        refusal.into_answer(form)
    }
}

#[inline]
fn has_one_host(request: &Request<Body>) -> bool {
    let mut hosts = request.headers().get_all(HOST).iter();
    hosts.next().is_some() && hosts.next().is_none()
}

impl Serve for HttpService {
    async fn serve(self: Arc<Self>, stream: Stream, peer: Peer, drained: Drained) {
        let patience = self.house.settings.http_timeout;
        let service = self;
        let answer = move |request| {
            let service = Arc::clone(&service);
            async move { service.answer(request, peer).await }
        };
        // Nothing else is ever spoken here.
        let _ = serve_http(stream, drained, patience, false, answer).await;
    }

    fn meter(&self) -> &Meter {
        self.house.gate.meter(Door::Http)
    }

    async fn refuse(stream: Stream) {
        refuse_http(stream).await;
    }
}

/// A denial, for whoever else answers clients.
pub(crate) fn deny(verdict: &Verdict<'_>, status: StatusCode, manner: Manner<'_>, form: Form) -> Answer {
    answer::denial(verdict, status, manner, form, &told::Extras::default())
}

/// What cannot be answered, and why.
pub(crate) fn refuse(status: StatusCode, detail: String, form: Form) -> Answer {
    Refusal::new(status, detail).into_answer(form)
}

/// What is not answered because there is too much to do.
pub(crate) fn shed(detail: String, form: Form) -> Answer {
    Refusal::shed(detail).into_answer(form)
}

/// The body of a request, of at most `most` bytes, or why there is none.
pub(crate) async fn read_body(
    body: Body,
    most: usize,
    patience: Duration,
    expects: bool,
) -> Result<Bytes, (StatusCode, String)> {
    body::read(body, most, patience, expects).await.map_err(|refusal| (refusal.status, refusal.detail))
}

/// For fuzzing: any bytes as chains of proxies.
pub(crate) fn fuzz_chain(bytes: &[u8]) -> Result<(), String> {
    origin::fuzz_chain(bytes)
}

/// For fuzzing: any bytes as the body of each question. What is understood can be asked, and what is not is told in
/// words.
pub(crate) fn fuzz_bodies(bytes: &[u8], rules: &tollgate::RuleSet) -> Result<(), String> {
    ask::fuzz_bodies(bytes, rules)
}
