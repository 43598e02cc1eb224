//! Proxies with a limit per address, a million addresses, one server behind: all tell it the same about the client, and
//! none writes a log.
//!
//! Throughput and CPU time are measured with nginx behind, latency without it: there the load is the server behind as
//! well (`behind.rs`), and never sleeps. Otherwise three processes share two cores, and what is measured is mostly whom
//! the system lets run first. So the proxy has a core to itself, and an answer takes what the proxy takes, with being
//! woken twice. Cores that have nothing to do do not halt (`Awake`), and a round in which the machine stood still is
//! made again, whoever's it was: a timer that comes before everybody else on its core says so (`metronome.rs`).

use std::net::SocketAddr;
use std::time::Duration;

use super::super::{MANY, ROUNDS, Run, found, requests};
use super::{NO_RULES, PLENTY};
use crate::behind::Behind;
use crate::contest::{Contender, duel, measure};
use crate::load::{self, Keys, Ran, Speaker};
use crate::metronome::Metronome;
use crate::paced::{Idle, paced_each};
use crate::process::{Awake, Server};
use crate::report::{Bound, Table, median};
use crate::speakers::Clients;

const TOLLGATE: &str = "tollgate, a limit per address";
const UNLIMITED: &str = "tollgate, no limits";
const NGINX: &str = "nginx, limit_req per address";
const ENVOY: &str = "Envoy, local rate limit";

/// Requests per second while latency is measured: all of them can do that.
const CALM: u64 = 3_000;
/// So short that the machine mostly does not stand still in one.
const CALM_TIME: Duration = Duration::from_millis(100);
const CALM_ROUNDS: usize = 100;
/// How late a timer may be in such a round,
const STEADY: Duration = Duration::from_micros(150);
/// or it is made again, at most so often.
const MORE_ROUNDS: usize = 1_000;

fn speak() -> Box<dyn Speaker> {
    Box::new(Clients::served())
}

fn nginx(origin: &str) -> String {
    format!(
        "limit_req_zone $binary_remote_addr zone=a:256m rate=100000r/s;
set_real_ip_from 127.0.0.1; real_ip_header X-Forwarded-For;
upstream origin {{ server {origin}; keepalive 64; keepalive_requests 1000000000; }}
server {{
  listen 127.0.0.1:PORT backlog=4096;
  location / {{
    limit_req zone=a burst=100000 nodelay;
    proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection \"\";
    proxy_set_header X-Real-IP $remote_addr; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header X-Forwarded-Host $host;
    proxy_set_header X-Forwarded-Port $server_port; proxy_set_header X-Request-Id $request_id;
  }}
}}"
    )
}

/// One bucket for all: Envoy counts by address only if each is written down.
fn envoy(port: u16) -> String {
    format!(
        r#"
static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: PORT}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: bench
          use_remote_address: true
          xff_num_trusted_hops: 1
          route_config:
            virtual_hosts:
            - {{name: all, domains: ["*"], routes: [{{match: {{prefix: /}}, route: {{cluster: origin}}}}]}}
          http_filters:
          - name: envoy.filters.http.local_ratelimit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
              stat_prefix: bench
              token_bucket: {{max_tokens: 100000000, tokens_per_fill: 100000000, fill_interval: 1s}}
              filter_enabled: {{default_value: {{numerator: 100, denominator: HUNDRED}}}}
              filter_enforced: {{default_value: {{numerator: 100, denominator: HUNDRED}}}}
          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  clusters:
  - name: origin
    load_assignment:
      cluster_name: origin
      endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}}}]}}]
"#
    )
}

pub(crate) fn run(run: &mut Run) -> Result<(), String> {
    let behind = run.origin()?;
    let origin = found(behind.proxy)?;
    let servers = [
        (TOLLGATE, run.gateway("limited.yaml", origin, PLENTY)?),
        (UNLIMITED, run.gateway("unlimited.yaml", origin, NO_RULES)?),
        (NGINX, Server::nginx(&run.server(), &run.scratch, "proxy", &nginx(&origin.to_string()))?),
        (ENVOY, Server::envoy(&run.server(), &run.scratch, &envoy(origin.port()))?),
    ];
    let mut contenders = Vec::new();
    for (name, server) in &servers {
        let (name, address) = (name.to_string(), found(server.proxy)?);
        let (process, behind) = (server.id(), Some(behind.id()));
        contenders.push(Contender { name, address, process, behind, speak: &speak, shape: requests(MANY) });
    }
    // Every address is known by then: what is measured is a server that has been up for a while, not one that grows.
    let everybody = requests(Keys::Once(1_000_000));
    for one in contenders.iter().filter(|one| one.name != UNLIMITED && one.name != ENVOY) {
        load::run(one.address, (one.process, one.behind), one.speak, everybody, Duration::ZERO, Duration::ZERO)?;
    }
    let results = measure(&contenders, ROUNDS)?;
    results.print("Proxies: GET, a million addresses, 32 connections");
    let speed = |a, b| results.ratio(a, b, Ran::per_second);
    let cpu = |a, b| results.ratio(a, b, Ran::cpu);
    let [limited, unlimited, ..] = &contenders[..] else { return Err("there are four".to_owned()) };
    let price = duel(limited, unlimited, Ran::per_second)?;
    println!("The first two by turns: {price}\n");
    run.goals.add("gateway: requests/s in those without limits", Bound::AtLeast(0.97), "x", price.ratio);
    run.goals.add("gateway: requests/s in nginx's", Bound::AtLeast(0.9), "x", speed(TOLLGATE, NGINX));
    run.goals.add("gateway: CPU time in nginx's", Bound::AtMost(1.2), "x", cpu(TOLLGATE, NGINX));
    run.goals.add("Envoy's CPU time in the gateway's", Bound::AtLeast(3.0), "x", cpu(ENVOY, TOLLGATE));

    // Its place is taken by the load.
    drop(behind);
    calm(run, &contenders, origin)
}

/// What a client sees that asks at a rate which is calm for all: how long an answer takes from the moment its question
/// was due. The first on each connection is apart from the others: a client has few first ones, and a round many.
fn calm(run: &mut Run, contenders: &[Contender<'_>], origin: SocketAddr) -> Result<(), String> {
    let (awake, mut behind) = (Awake::keep(), Behind::listen(origin)?);
    let (mut rounds, mut again) = (vec![Vec::new(); contenders.len()], 0);
    for round in 0..CALM_ROUNDS {
        for at in 0..contenders.len() {
            let at = (at + round) % contenders.len();
            let one = &contenders[at];
            let took = loop {
                let beats = [run.cores.server, run.cores.load].map(|core| Metronome::start(core, CALM_TIME));
                let idle = Idle::Answers(&mut behind);
                let each = paced_each(one.address, &speak, requests(MANY), (CALM, CALM_TIME), idle)?;
                let [server, load] = beats.map(|beats| beats.end().map(|beats| beats.latest() <= STEADY));
                if (server? & load?) || again == MORE_ROUNDS {
                    break each;
                }
                again += 1;
            };
            let (first, later): (Vec<_>, Vec<_>) = took.into_iter().partition(|(number, _)| *number == 0);
            let [first, later] = [first, later].map(sorted);
            rounds[at].push([later[later.len() / 2], later[later.len() * 99 / 100], first[first.len() / 2]]);
        }
    }
    println!("Latency at {CALM} requests/s, in microseconds; median of {CALM_ROUNDS} rounds; {again} were made again,");
    println!("because a bare timer on one of the cores was late by more than {} us; {awake}\n", STEADY.as_micros());
    let mut table = Table::new(&["", "half of all", "99 of 100", "half of the first on connections"]);
    for (one, rounds) in contenders.iter().zip(&rounds) {
        let of = |which: usize| format!("{:.0}", median(rounds.iter().map(|round| round[which]).collect()));
        table.row(vec![one.name.clone(), of(0), of(1), of(2)]);
    }
    table.print();
    for (at, name) in [(2, "nginx's"), (3, "Envoy's")] {
        let ratio = median(rounds[0].iter().zip(&rounds[at]).map(|(own, other)| own[1] / other[1]).collect());
        run.goals.add(format!("gateway: p99 in {name}"), Bound::AtMost(1.0), "x", ratio);
    }
    Ok(())
}

/// In microseconds, the shortest first.
fn sorted(took: Vec<(u32, Duration)>) -> Vec<f64> {
    let mut took: Vec<f64> = took.into_iter().map(|(_, took)| took.as_secs_f64() * 1e6).collect();
    took.sort_unstable_by(f64::total_cmp);
    took
}
