//! One client asks a hundred times as often as it may, while others ask as usual.
//!
//! The flood costs whoever sends it and whoever receives it something, wherever it goes, and here that is the same
//! machine. So it is also sent to a server on the same core that does nothing but refuse: what others suffer from it
//! there is no fault of the gateway, and the goal is about the rest. What they have without any flood is shown as well.

use std::net::SocketAddr;
use std::time::Duration;

use super::super::{MANY, Run, found, requests};
use crate::load::Speaker;
use crate::paced::{Flow, Idle, paced_flows};
use crate::process::Server;
use crate::report::{Bound, median};
use crate::speakers::Clients;

const ROUNDS: usize = 25;
const TIME: Duration = Duration::from_millis(800);
/// Requests of the others in a second, and as many of the one.
const RATE: u64 = 2_000;
const RULES: &str = "rules: [{name: by-address, per: ip, limits: [20/s]}]\n";

fn usual() -> Box<dyn Speaker> {
    Box::new(Clients::served())
}

fn flood() -> Box<dyn Speaker> {
    Box::new(Clients::one())
}

/// The p99 of the others in microseconds, with a flood to this address if there is one.
fn p99(gateway: SocketAddr, flooded: Option<SocketAddr>) -> Result<f64, String> {
    let flow = |address, speak| Flow { address, speak, shape: requests(MANY), rate: RATE };
    let mut flows = vec![flow(gateway, &usual as &dyn Fn() -> Box<dyn Speaker>)];
    flows.extend(flooded.map(|address| flow(address, &flood as &dyn Fn() -> Box<dyn Speaker>)));
    let mut took: Vec<Duration> =
        paced_flows(&flows, TIME, Idle::Sleeps)?.swap_remove(0).into_iter().map(|(_, t)| t).collect();
    took.sort_unstable();
    Ok(took[took.len() * 99 / 100].as_secs_f64() * 1e6)
}

pub(crate) fn run(run: &mut Run) -> Result<(), String> {
    let behind = run.origin()?;
    let gateway = run.gateway("flood.yaml", found(behind.proxy)?, RULES)?;
    let refuse = "server { listen 127.0.0.1:PORT backlog=4096; location / { return 429; } }";
    let elsewhere = Server::nginx(&run.server(), &run.scratch, "elsewhere", refuse)?;
    let (gateway, elsewhere) = (found(gateway.proxy)?, found(elsewhere.proxy)?);
    let floods = [None, Some(elsewhere), Some(gateway)];
    let mut found = [const { Vec::new() }; 3];
    for round in 0..ROUNDS {
        for at in 0..floods.len() {
            // Nobody is always the first.
            let at = (at + round) % floods.len();
            found[at].push(p99(gateway, floods[at])?);
        }
    }
    let [alone, beside, flooded] = &found;
    let ratio = |to: &[f64]| median(flooded.iter().zip(to).map(|(flooded, to)| flooded / to).collect());
    println!(
        "{RATE} requests/s of others, p99: {:.0} us; while one asks {RATE} times a second elsewhere {:.0} us, here, where it may 20 times, {:.0} us\n\
         that is {:.2}x of what it is without any flood\n",
        median(alone.clone()),
        median(beside.clone()),
        median(flooded.clone()),
        ratio(alone),
    );
    run.goals.add("gateway: p99 of others while one floods", Bound::AtMost(1.1), "x", ratio(beside));
    Ok(())
}
