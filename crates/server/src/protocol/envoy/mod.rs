//! Envoy's rate limit service, version 3, over gRPC; and its JSON form for the HTTP port.
//!
//! A question is read where it arrived, asked at the gate and answered by one message: no part of this waits for
//! anything but the client. Health and reflection are beside it on the same connection.

mod answer;
mod grpc;
mod health;
mod json;
mod metadata;
mod reflection;
mod request;
#[cfg(test)]
mod tests;
mod wire;

use std::sync::Arc;

use http::{Request as HttpRequest, Response, StatusCode};
use hyper::body::Incoming;

use self::answer::Answer;
use self::grpc::{Code, Failure, Reply};
pub(crate) use self::json::{healthcheck, json};
use self::request::{Refusal, Request};
use super::bounds::{MOST_DESCRIPTORS, MOST_ENTRIES};
use super::hyper_connection::{refuse_http, serve_grpc};
use crate::gate::{Door, Meter};
use crate::serve::{Drained, House, Peer, Serve, Stream};

pub(crate) struct EnvoyService {
    house: Arc<House>,
}

impl EnvoyService {
    pub(crate) fn new(house: &Arc<House>) -> Self {
        Self { house: Arc::clone(house) }
    }
}

impl Serve for EnvoyService {
    async fn serve(self: Arc<Self>, stream: Stream, _: Peer, drained: Drained) {
        let drained = drained.at_most(self.house.settings.grpc_max_connection_age);
        serve_grpc(stream, drained, |request| answer(Arc::clone(&self.house), request)).await;
    }

    fn meter(&self) -> &Meter {
        self.house.gate.meter(Door::Grpc)
    }

    async fn refuse(stream: Stream) {
        refuse_http(stream).await;
    }
}

/// What a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    ShouldRateLimit,
    CheckHealth,
    WatchHealth,
    Reflect,
    Unknown,
    /// It is no call of gRPC.
    Refused(StatusCode),
}

impl Route {
    fn of<B>(request: &HttpRequest<B>) -> Self {
        if let Some(status) = grpc::refusal(request) {
            return Self::Refused(status);
        }
        match request.uri().path() {
            "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit" => Self::ShouldRateLimit,
            "/grpc.health.v1.Health/Check" => Self::CheckHealth,
            "/grpc.health.v1.Health/Watch" => Self::WatchHealth,
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
            | "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo" => Self::Reflect,
            _ => Self::Unknown,
        }
    }
}

/// Answers one call.
fn answer(house: Arc<House>, request: HttpRequest<Incoming>) -> impl Future<Output = Response<Reply>> + Send + 'static {
    let route = Route::of(&request);
    // A future is moved many times before it runs. So the head of the request does not go with it, nor the room for
    // what is seldom asked.
    let body = request.into_body();
    async move {
        let answered = match route {
            Route::ShouldRateLimit => should_rate_limit(&house, body).await,
            route => Box::pin(answer_other(&house, route, body)).await,
        };
        answered.unwrap_or_else(|failure| failure.answer())
    }
}

async fn answer_other(house: &Arc<House>, route: Route, body: Incoming) -> Result<Response<Reply>, Failure> {
    match route {
        Route::ShouldRateLimit => should_rate_limit(house, body).await,
        Route::CheckHealth => check_health(house, body).await,
        Route::WatchHealth => watch_health(house, body).await,
        Route::Reflect => {
            let (answer, client) = grpc::many();
            tokio::spawn(reflection::serve(body, client, house.drain.listen()));
            Ok(answer)
        }
        Route::Unknown => {
            let why = "there is no such method; ask reflection for those that there are";
            Err(Failure::new(Code::Unimplemented, why))
        }
        Route::Refused(status) => {
            // Read as far as it is there: some clients give up on an answer that comes before they have sent all.
            let _unread = grpc::one_message(body).await;
            let mut answer = Response::new(Reply::Empty);
            *answer.status_mut() = status;
            Ok(answer)
        }
    }
}

/// Counted and timed, whatever becomes of it; what else there is on this port is not, since it is no question.
async fn should_rate_limit(house: &House, body: Incoming) -> Result<Response<Reply>, Failure> {
    let message = grpc::one_message(body).await;
    let meter = house.gate.meter(Door::Grpc);
    let started = meter.start();
    let answered = match message {
        Ok(message) => decode_and_decide(house, &message).await,
        Err(failure) => Err(failure),
    };
    if answered.is_err() {
        meter.error();
    }
    meter.finish(started);
    answered
}

async fn decode_and_decide(house: &House, message: &[u8]) -> Result<Response<Reply>, Failure> {
    let request = Request::decode(message)?;
    let answered = decide(house, &request, |answer: &Answer<'_>| answer.encode()).await?;
    Ok(grpc::reply(answered))
}

/// Asks the gate; `write` makes the answer of it.
async fn decide<R: Send>(
    house: &House,
    request: &Request<'_>,
    write: impl FnOnce(&Answer<'_>) -> R + Send,
) -> Result<R, Unanswered> {
    let descriptors = request.descriptors();
    let check = request.check(&descriptors);
    let asked = house.gate.check(&check, |verdict| {
        // Only a service that never had rules has no domain and no version; the version is behind a lock.
        if verdict.tolls.is_empty() && verdict.rules().domains().next().is_none() && house.live.status().version == 0 {
            return Err(Unanswered::Refused(Refusal::Upstream("no rate limit configuration loaded")));
        }
        Ok(write(&Answer::new(verdict, request, &house.settings.envoy)))
    });
    asked.await.map_err(|unavailable| Unanswered::Unavailable(unavailable.to_string()))?
}

/// Why a question has no answer.
#[derive(Debug)]
enum Unanswered {
    /// It is the question.
    Refused(Refusal),
    /// It is the store.
    Unavailable(String),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Invalid(why) => Self::new(Code::InvalidArgument, why),
            Refusal::Upstream(why) => Self::new(Code::Unknown, why),
        }
    }
}

impl From<Unanswered> for Failure {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Refused(refusal) => refusal.into(),
            Unanswered::Unavailable(why) => Self::new(Code::Unknown, why),
        }
    }
}

async fn check_health(house: &House, body: Incoming) -> Result<Response<Reply>, Failure> {
    let request = grpc::one_message(body).await?;
    let status = health::check(house, &request)?;
    Ok(grpc::reply(grpc::framed(&status)))
}

async fn watch_health(house: &Arc<House>, body: Incoming) -> Result<Response<Reply>, Failure> {
    let request = grpc::one_message(body).await?;
    let (answer, client) = grpc::many();
    let house = Arc::clone(house);
    tokio::spawn(async move { health::watch(&house, &request, client).await });
    Ok(answer)
}

/// Whatever the bytes are, a request that is accepted keeps its bounds.
pub(crate) fn fuzz_message(bytes: &[u8]) -> Result<(), String> {
    Request::decode(bytes).map_or(Ok(()), |request| keeps_bounds(&request))
}

/// The same for the JSON form.
pub(crate) fn fuzz_json(bytes: &[u8]) -> Result<(), String> {
    let Ok(sent) = json::SentRequest::parse(bytes) else { return Ok(()) };
    sent.request().map_or(Ok(()), |request| keeps_bounds(&request))
}

fn keeps_bounds(request: &Request<'_>) -> Result<(), String> {
    let descriptors = request.descriptors();
    let most_entries = descriptors.iter().map(|descriptor| descriptor.entries.len()).max().unwrap_or_default();
    let check = request.check(&descriptors);
    let is_bounded = (1..=MOST_DESCRIPTORS).contains(&descriptors.len()) && most_entries <= MOST_ENTRIES;
    if is_bounded && !check.domain.is_empty() && check.cost > 0 { Ok(()) } else { Err(format!("{request:?}")) }
}
