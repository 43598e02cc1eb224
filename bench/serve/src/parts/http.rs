//! The HTTP API with one limit met, beside axum handlers that read the same body: one answers a constant as long as
//! tollgate's answer, headers included, and one the least that says the same.

use super::{FEW, ROUNDS, Run, found, requests};
use crate::contest::{Contender, measure};
use crate::load::{Ran, Speaker};
use crate::process::Server;
use crate::report::Bound;
use crate::rules;
use crate::speakers::Http;

const TOLLGATE: &str = "tollgate";
const AXUM: &str = "no-op axum, the same answer";
const SHORT: &str = "no-op axum, a third of the answer";

pub(crate) fn speak() -> Box<dyn Speaker> {
    Box::new(Http::new())
}

pub(crate) fn run(run: &mut Run) -> Result<(), String> {
    let servers = [
        (TOLLGATE, run.tollgate("own.yaml", &rules::own(), &[])?),
        ("tollgate, without headers of limits", run.tollgate("own.yaml", &rules::own(), &["--headers", "none"])?),
        (AXUM, Server::noop(&run.server(), "axum-long")?),
        (SHORT, Server::noop(&run.server(), "axum")?),
    ];
    let mut contenders = Vec::new();
    for (name, server) in &servers {
        let (name, address) = (name.to_string(), found(server.http)?);
        contenders.push(Contender {
            name,
            address,
            process: server.id(),
            behind: None,
            speak: &speak,
            shape: requests(FEW),
        });
    }
    let results = measure(&contenders, ROUNDS)?;
    results.print("HTTP: POST /v1/check, one limit met, 32 connections");
    let (speed, cpu) = (results.ratio(TOLLGATE, AXUM, Ran::per_second), results.ratio(AXUM, TOLLGATE, Ran::cpu));
    run.goals.add("HTTP: requests per second, in no-op axum's", Bound::AtLeast(0.9), "x", speed);
    run.goals.add("HTTP: requests per second of CPU time, in no-op axum's", Bound::AtLeast(0.9), "x", cpu);
    println!("In those of the one with the short answer: {:.2}x\n", results.ratio(TOLLGATE, SHORT, Ran::per_second));
    Ok(())
}
