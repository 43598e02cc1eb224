//! Proxies with a limit per address, a million addresses, one server behind: all tell it the same about the client, and none writes a log.

use std::time::Duration;

use super::super::{MANY, ROUNDS, Run, found, requests};
use super::{NO_RULES, PLENTY};
use crate::contest::{Contender, duel, measure};
use crate::load::{self, Idle, Keys, Ran, Speaker, paced_each};
use crate::metronome::Metronome;
use crate::process::{Awake, Server};
use crate::report::{Bound, Table, median};
use crate::speakers::Clients;

const TOLLGATE: &str = "tollgate, a limit per address";
const UNLIMITED: &str = "tollgate, no limits";
const NGINX: &str = "nginx, limit_req per address";
const ENVOY: &str = "Envoy, local rate limit";

/// Requests per second while latency is measured: all of them can do that.
const CALM: u64 = 3_000;
const CALM_ROUNDS: usize = 25;
const CALM_TIME: Duration = Duration::from_millis(400);
/// How late a timer may be in such a round,
const STEADY: Duration = Duration::from_micros(500);
/// or it is made again, at most so often.
const MORE_ROUNDS: usize = 100;

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

    let _awake = Awake::keep(&[run.cores.server, run.cores.load])?;
    let (mut rounds, mut again) = (vec![Vec::new(); contenders.len()], 0);
    for round in 0..CALM_ROUNDS {
        for at in 0..contenders.len() {
            let at = (at + round) % contenders.len();
            let one = &contenders[at];
            let mut took = loop {
                let beats = Metronome::start(run.cores.server, CALM_TIME);
                let each = paced_each(one.address, &speak, requests(MANY), (CALM, CALM_TIME), Idle::Sleeps)?;
                if beats.end()?.p99() <= STEADY || again == MORE_ROUNDS {
                    break each.into_iter().map(|(_, took)| took).collect::<Vec<_>>();
                }
                again += 1;
            };
            took.sort_unstable();
            rounds[at].push([took[took.len() / 2], took[took.len() * 99 / 100]].map(|took| took.as_secs_f64() * 1e6));
        }
    }
    println!("Latency at {CALM} requests/s, in microseconds; median of {CALM_ROUNDS} rounds; {again} were made again,");
    println!("because a bare timer on the same core was late by more than {} us; the cores are kept awake\n", STEADY.as_micros());
    let mut table = Table::new(&["", "half of all", "99 of 100"]);
    for (one, rounds) in contenders.iter().zip(&rounds) {
        let of = |which: usize| format!("{:.0}", median(rounds.iter().map(|round| round[which]).collect()));
        table.row(vec![one.name.clone(), of(0), of(1)]);
    }
    table.print();
    for (at, name) in [(2, "nginx's"), (3, "Envoy's")] {
        let ratio = median(rounds[0].iter().zip(&rounds[at]).map(|(own, other)| own[1] / other[1]).collect());
        run.goals.add(format!("gateway: p99 in {name}"), Bound::AtMost(1.0), "x", ratio);
    }
    Ok(())
}
