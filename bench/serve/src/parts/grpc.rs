//! Envoy's rate limit service with one limit met, beside what tonic takes to do nothing.

use super::{FEW, ROUNDS, Run, calls, found};
use crate::contest::{Contender, measure};
use crate::load::{Ran, Speaker};
use crate::messages::{Entry, METHOD, OK, RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use crate::process::Server;
use crate::report::Bound;
use crate::rules;
use crate::speakers::Grpc;

const TONIC: &str = "no-op tonic, one thread";

pub(crate) fn speak() -> Box<dyn Speaker> {
    Box::new(Grpc::new())
}

pub(crate) fn run(run: &mut Run) -> Result<(), String> {
    let servers = [
        ("tollgate", run.tollgate("lyft.yaml", &rules::lyft(), &[])?),
        ("tollgate, own rules", run.tollgate("own.yaml", &rules::own(), &[])?),
        (TONIC, Server::noop(&run.server(), "tonic")?),
        ("no-op tonic, without its router", Server::noop(&run.server(), "tonic-hyper")?),
        ("no-op tonic, threads of tokio", Server::noop(&run.server(), "tonic-threads")?),
    ];
    let mut contenders = Vec::new();
    for (name, server) in &servers {
        let address = found(server.grpc)?;
        verify(&format!("http://{address}")).map_err(|error| format!("{name}: {error}"))?;
        contenders.push(Contender {
            name: name.to_string(),
            address,
            process: server.id(),
            behind: None,
            speak: &speak,
            shape: calls(FEW),
        });
    }
    let results = measure(&contenders, ROUNDS)?;
    results.print("gRPC: ShouldRateLimit, one limit met, 4 connections with 16 calls each");
    for name in ["tollgate", "tollgate, own rules"] {
        let (cpu, speed) = (results.ratio(name, TONIC, Ran::cpu), results.ratio(name, TONIC, Ran::per_second));
        run.goals.add(format!("gRPC, {name}: CPU per call, in no-op tonic's"), Bound::AtMost(1.15), "x", cpu);
        run.goals.add(format!("gRPC, {name}: calls per second, in no-op tonic's"), Bound::AtLeast(0.9), "x", speed);
    }
    Ok(())
}

/// Asks once with tonic's own client, which understands all of an answer.
fn verify(address: &str) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    let answer = runtime.block_on(async {
        let channel = tonic::transport::Endpoint::from_shared(address.to_owned()).map_err(|e| e.to_string())?;
        let mut client = tonic::client::Grpc::new(channel.connect().await.map_err(|e| e.to_string())?);
        client.ready().await.map_err(|e| e.to_string())?;
        let entry = Entry { key: "user".to_owned(), value: "000000000042".to_owned() };
        let request = RateLimitRequest {
            domain: "bench".to_owned(),
            descriptors: vec![RateLimitDescriptor { entries: vec![entry] }],
            hits_addend: 0,
        };
        let codec = tonic_prost::ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
        let path = http::uri::PathAndQuery::from_static(METHOD);
        let answer = client.unary(tonic::Request::new(request), path, codec).await.map_err(|e| e.to_string())?;
        Ok::<_, String>(answer.into_inner())
    })?;
    let is_right = answer.overall_code == OK
        && matches!(&*answer.statuses, [status] if status.code == OK && status.current_limit.is_some() && status.limit_remaining > 0);
    if is_right { Ok(()) } else { Err(format!("this is not the answer of one limit that allows: {answer:?}")) }
}
