//! Services that read the same requests as tollgate, count nothing and answer a constant: what the frameworks
//! themselves cost.
//!
//! `noop WHICH` listens on a free port of this machine, prints its address and runs until it is stopped.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::process::ExitCode;
use std::task::{Context, Poll};

use axum::Json;
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, post};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tollgate_bench_serve::messages::{METHOD, RateLimitRequest, RateLimitResponse};
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower_service::Service;

type Failed = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let which = std::env::args().nth(1).unwrap_or_default();
    let served = match &*which {
        "tonic" => on_one_thread(tonic()),
        "tonic-threads" => Builder::new_multi_thread().enable_all().build().map_err(Failed::from).and_then(|runtime| {
            // The service itself runs on the threads of the pool, as it does under `#[tokio::main]`.
            runtime.block_on(async { tokio::spawn(tonic()).await? })
        }),
        "tonic-hyper" => on_one_thread(tonic_on_hyper()),
        "axum" => on_one_thread(axum(post(check))),
        "axum-long" => on_one_thread(axum(post(check_at_length))),
        _ => Err("usage: noop tonic | tonic-threads | tonic-hyper | axum | axum-long".into()),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("noop: {error}");
            ExitCode::FAILURE
        }
    }
}

fn on_one_thread(service: impl Future<Output = Result<(), Failed>>) -> Result<(), Failed> {
    Builder::new_current_thread().enable_all().build()?.block_on(service)
}

async fn listen() -> Result<TcpListener, Failed> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    say(listener.local_addr()?)?;
    Ok(listener)
}

fn say(address: SocketAddr) -> Result<(), Failed> {
    let mut out = std::io::stdout();
    writeln!(out, "{address}")?;
    Ok(out.flush()?)
}

/// As tonic's own documentation has it.
async fn tonic() -> Result<(), Failed> {
    let incoming = TcpIncoming::from(listen().await?).with_nodelay(Some(true));
    Ok(Server::builder().add_service(RateLimitService).serve_with_incoming(incoming).await?)
}

/// The same service without tonic's router and layers: what is left is its codec on hyper.
async fn tonic_on_hyper() -> Result<(), Failed> {
    let listener = listen().await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let service = TowerToHyperService::new(OverHyper(RateLimitService));
        let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
    }
}

/// What `tonic-build` makes of a service of one method.
#[derive(Clone)]
struct RateLimitService;

impl NamedService for RateLimitService {
    const NAME: &'static str = "envoy.service.ratelimit.v3.RateLimitService";
}

#[derive(Clone)]
struct ShouldRateLimit;

impl UnaryService<RateLimitRequest> for ShouldRateLimit {
    type Response = RateLimitResponse;
    type Future = Ready<Result<Response<RateLimitResponse>, Status>>;

    fn call(&mut self, request: Request<RateLimitRequest>) -> Self::Future {
        let request = request.into_inner();
        ready(if request.descriptors.is_empty() {
            Err(Status::invalid_argument("no descriptors"))
        } else {
            Ok(Response::new(RateLimitResponse::constant()))
        })
    }
}

impl<B> Service<http::Request<B>> for RateLimitService
where
    B: http_body::Body + Send + 'static,
    B::Error: Into<Failed> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        if request.uri().path() != METHOD {
            return Box::pin(async { Ok(Status::unimplemented("no such method").into_http()) });
        }
        Box::pin(async move {
            let mut grpc = Grpc::new(ProstCodec::default());
            Ok(grpc.unary(ShouldRateLimit, request).await)
        })
    }
}

/// The service for the bodies that hyper reads.
#[derive(Clone)]
struct OverHyper(RateLimitService);

impl Service<http::Request<hyper::body::Incoming>> for OverHyper {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = <RateLimitService as Service<http::Request<hyper::body::Incoming>>>::Future;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<hyper::body::Incoming>) -> Self::Future {
        self.0.call(request)
    }
}

/// The body of `POST /v1/check`.
#[derive(Deserialize)]
struct Question {
    domain: String,
    attributes: HashMap<String, String>,
}

/// The least that says whether, how many are left and until when.
#[derive(Serialize)]
struct Answer {
    allowed: bool,
    rule: &'static str,
    limit: u64,
    remaining: u64,
    reset_after: f64,
}

async fn axum(check: MethodRouter) -> Result<(), Failed> {
    use axum::serve::ListenerExt as _;
    let listener = listen().await?.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    Ok(axum::serve(listener, axum::Router::new().route("/v1/check", check)).await?)
}

fn has_attributes(question: &Question) -> bool {
    !question.domain.is_empty() && !question.attributes.is_empty()
}

async fn check(Json(question): Json<Question>) -> Json<Answer> {
    let allowed = has_attributes(&question);
    Json(Answer { allowed, rule: "per-user", limit: 1_000_000, remaining: 999_999, reset_after: 43_200.5 })
}

/// As many bytes as tollgate answers, in the body and in headers.
async fn check_at_length(Json(question): Json<Question>) -> impl IntoResponse {
    const HEADERS: [(&str, &str); 6] = [
        ("content-type", "application/json"),
        ("ratelimit-policy", "\"per-user\";q=1000000000;w=86400"),
        ("ratelimit", "\"per-user\";r=999999999;t=43200"),
        ("x-ratelimit-limit", "1000000000"),
        ("x-ratelimit-remaining", "999999999"),
        ("x-ratelimit-reset", "43200"),
    ];
    const BODY: &str = concat!(
        r#"{"allowed":true,"rule":"per-user","limit":1000000000,"remaining":999999999,"reset_after":43200.123456,"#,
        r#""retry_after":null,"delay":0,"at":1794804000.123456,"limits":[{"policy":"per-user","rule":"per-user","#,
        r#""allows":"1000000000 per day","unit":"requests","cost":1,"allowed":true,"shadow":false,"#,
        r#""limit":1000000000,"remaining":999999999,"reset_after":43200.123456,"retry_after":null,"delay":0,"#,
        r#""overage":false}]}"#
    );
    (HEADERS, if has_attributes(&question) { BODY } else { "" })
}
