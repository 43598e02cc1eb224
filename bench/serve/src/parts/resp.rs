//! `CL.THROTTLE` beside what Redis itself does, by our load and by redis-benchmark; and two workers beside one.
//!
//! What is compared is requests per second of the server's CPU time: that is what a core of its own gives, whether or
//! not the load on the other core keeps up. With two workers there is no core left for the load, so nothing else could
//! be compared.

use std::net::SocketAddr;
use std::process::Command;

use super::{MANY, ROUNDS, Run, commands, found};
use crate::contest::{Contender, measure};
use crate::load::{Ran, Speaker};
use crate::process::{self, Cores, Server};
use crate::report::{Bound, Table, median};
use crate::rules;
use crate::speakers::Resp;

pub(crate) fn throttle() -> Box<dyn Speaker> {
    Box::new(Resp::throttle())
}

fn incr() -> Box<dyn Speaker> {
    Box::new(Resp::incr())
}

fn ping() -> Box<dyn Speaker> {
    Box::new(Resp::ping())
}

fn by_cpu(ran: &Ran) -> f64 {
    1e6 / ran.cpu()
}

pub(crate) fn run(run: &mut Run) -> Result<(), String> {
    let tollgate = run.tollgate("own.yaml", &rules::own(), &[])?;
    let redis = Server::redis(&run.server())?;
    let (ours, theirs) = (found(tollgate.resp)?, found(redis.resp)?);
    let cases: [(&str, &Server, _, fn() -> Box<dyn Speaker>, usize); 6] = [
        ("tollgate CL.THROTTLE, depth 16", &tollgate, ours, throttle, 16),
        ("redis-server INCR, depth 16", &redis, theirs, incr, 16),
        ("redis-server PING, depth 16", &redis, theirs, ping, 16),
        ("tollgate CL.THROTTLE, depth 1", &tollgate, ours, throttle, 1),
        ("tollgate PING, depth 1", &tollgate, ours, ping, 1),
        ("redis-server PING, depth 1", &redis, theirs, ping, 1),
    ];
    let contenders: Vec<Contender<'_>> = cases
        .iter()
        .map(|(name, server, address, speak, depth)| Contender {
            name: name.to_string(),
            address: *address,
            process: server.id(),
            behind: None,
            speak,
            shape: commands(*depth, MANY),
        })
        .collect();
    let results = measure(&contenders, ROUNDS)?;
    results.print("RESP: 50 connections, a million keys");
    let deep = |figure: fn(&Ran) -> f64| results.ratio(cases[0].0, cases[1].0, figure);
    let shallow = |figure: fn(&Ran) -> f64| results.ratio(cases[3].0, cases[5].0, figure);
    let goals = &mut run.goals;
    goals.add("RESP, depth 16: requests per second, in INCR's", Bound::AtLeast(1.0), "x", deep(Ran::per_second));
    goals.add("RESP, depth 16: requests per second of CPU time, in INCR's", Bound::AtLeast(1.0), "x", deep(by_cpu));
    goals.add("RESP, depth 1: requests per second, in PING's", Bound::AtLeast(0.9), "x", shallow(Ran::per_second));
    goals.add("RESP, depth 1: requests per second of CPU time, in PING's", Bound::AtLeast(0.9), "x", shallow(by_cpu));
    by_redis_benchmark(run, (&tollgate, ours), (&redis, theirs))?;
    drop(redis);
    two_workers(run, &tollgate, ours)
}

/// The same questions by redis-benchmark, which reads answers with more care and is often the slower side.
fn by_redis_benchmark(run: &Run, ours: (&Server, SocketAddr), theirs: (&Server, SocketAddr)) -> Result<(), String> {
    let throttle = ["CL.THROTTLE", "key:__rand_int__", "999999", "1", "600"];
    let cases: [(&str, _, &[&str], u64, u64); 4] = [
        ("tollgate CL.THROTTLE, depth 16", ours, &throttle, 16, 600_000),
        ("redis-server INCR, depth 16", theirs, &["INCR", "key:__rand_int__"], 16, 600_000),
        ("tollgate CL.THROTTLE, depth 1", ours, &throttle, 1, 60_000),
        ("redis-server PING, depth 1", theirs, &["PING"], 1, 60_000),
    ];
    let mut found = vec![Vec::new(); cases.len()];
    for _ in 0..3 {
        for ((_, (server, address), words, depth, number), found) in cases.iter().zip(&mut found) {
            let before = process::cpu(server.id())?;
            let per_second = redis_benchmark(run.cores.load, *address, words, *depth, *number)?;
            let cpu = process::cpu(server.id())? - before;
            found.push((per_second, cpu.as_secs_f64() * 1e6 / *number as f64));
        }
    }
    println!("RESP by redis-benchmark: 50 clients, a million keys; median of 3 rounds\n");
    let mut table = Table::new(&["", "requests/s", "CPU us/request", "busy"]);
    for ((name, ..), found) in cases.iter().zip(found) {
        let per_second = median(found.iter().map(|(per_second, _)| *per_second).collect());
        let cpu = median(found.iter().map(|(_, cpu)| *cpu).collect());
        let busy = format!("{:.0} %", per_second * cpu / 1e4);
        table.row(vec![name.to_string(), format!("{per_second:.0}"), format!("{cpu:.2}"), busy]);
    }
    table.print();
    Ok(())
}

fn redis_benchmark(core: usize, address: SocketAddr, words: &[&str], depth: u64, number: u64) -> Result<f64, String> {
    let output = Command::new("taskset")
        .args(["-c", &core.to_string(), "redis-benchmark", "--csv", "-h", "127.0.0.1", "-c", "50", "-r", "1000000"])
        .args(["-p", &address.port().to_string(), "-P", &depth.to_string(), "-n", &number.to_string()])
        .args(words)
        .output()
        .map_err(|error| format!("redis-benchmark: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    // A line of names, and one of figures: the test, and how many per second.
    let figure = text.lines().filter_map(|line| line.split("\",\"").nth(1)).find_map(|figure| figure.parse().ok());
    figure.ok_or_else(|| format!("redis-benchmark says {text:?}, {:?}", String::from_utf8_lossy(&output.stderr)))
}

/// One worker on its core, and two on both, where the load has to be as well.
fn two_workers(run: &mut Run, one: &Server, address: SocketAddr) -> Result<(), String> {
    let both = [run.cores.server, run.cores.load];
    let file = run.scratch.write("own.yaml", &rules::own())?;
    let two = Server::tollgate(&both, &file, &["--workers", "2"])?;
    let mut rounds = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (found, (name, server, address, cores)) in
            rounds.iter_mut().zip([("1", one, address, &both[1..]), ("2", &two, self::found(two.resp)?, &both[..])])
        {
            Cores::go_to(cores)?;
            let shape = commands(16, MANY);
            let contender = Contender {
                name: name.to_owned(),
                address,
                process: server.id(),
                behind: None,
                speak: &throttle,
                shape,
            };
            found.push(measure(&[contender], 1)?);
        }
    }
    Cores::go_to(&[run.cores.load])?;
    println!("RESP, depth 16, workers; two share both cores with the load; median of {ROUNDS} rounds\n");
    let mut table = Table::new(&["workers", "requests/s", "CPU us/request", "busy", "requests/s of CPU time"]);
    let mut of_cpu = [0.0; 2];
    for ((name, found), of_cpu) in ["1", "2"].iter().zip(&rounds).zip(&mut of_cpu) {
        let figure = |figure: fn(&Ran) -> f64| median(found.iter().map(|round| round.median(name, figure)).collect());
        *of_cpu = figure(by_cpu);
        let busy = format!("{:.0} %", figure(Ran::busy) * 100.0);
        let cells = [figure(Ran::per_second), figure(Ran::cpu)];
        table.row(vec![
            name.to_string(),
            format!("{:.0}", cells[0]),
            format!("{:.2}", cells[1]),
            busy,
            format!("{of_cpu:.0}"),
        ]);
    }
    table.print();
    let scaled = 2.0 * of_cpu[1] / of_cpu[0];
    run.goals.add("RESP: two workers with a core each, in one's, by CPU time", Bound::AtLeast(1.7), "x", scaled);
    Ok(())
}
