//! Load on one server, to look at it under a profiler: `load WHAT ADDRESS PROCESS SECONDS [DEPTH [KEYS
//! [CONNECTIONS]]]`. With `once` in place of SECONDS each key is asked for once: a number of requests that is known,
//! for instruction counters.
//!
//! WHAT is grpc, http, proxy, throttle, incr or ping; PROCESS is the number of the server's process, whose CPU time is
//! shown.

use std::process::ExitCode;
use std::time::Duration;

use tollgate_bench_serve::load::{self, Keys, Shape, Speaker};
use tollgate_bench_serve::speakers::{Clients, Grpc, Http, Resp};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("load: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |at: usize, default: u64| args.get(at).map_or(Ok(default), |text| text.parse().map_err(|_| "no number"));
    let speak: fn() -> Box<dyn Speaker> = match args.first().map_or("", |what| what) {
        "grpc" => || Box::new(Grpc::new()),
        "http" => || Box::new(Http::new()),
        "proxy" => || Box::new(Clients::served()),
        "throttle" => || Box::new(Resp::throttle()),
        "incr" => || Box::new(Resp::incr()),
        "ping" => || Box::new(Resp::ping()),
        _ => return Err("grpc, http, proxy, throttle, incr or ping, then an address, a process and seconds".to_owned()),
    };
    let is_grpc = args.first().is_some_and(|what| what == "grpc");
    let is_http = args.first().is_some_and(|what| what == "http" || what == "proxy");
    let address = args.get(1).and_then(|text| text.parse().ok()).ok_or("no address")?;
    let (depth, connections) = if is_grpc {
        (16, 4)
    } else if is_http {
        (1, 32)
    } else {
        (16, 50)
    };
    let is_once = args.get(3).is_some_and(|time| time == "once");
    let seconds = if is_once { 0 } else { number(3, 5)? };
    let shape = Shape {
        connections: number(6, connections)? as usize,
        depth: number(4, depth)? as usize,
        in_batches: !is_grpc,
        keys: if is_once { Keys::Once(number(5, 1_000)?) } else { Keys::Any(number(5, 1_000)?.max(1)) },
    };
    let ran = load::run(
        address,
        (number(2, 0)? as u32, None),
        &speak,
        shape,
        Duration::from_millis(200),
        Duration::from_secs(seconds),
    )?;
    println!(
        "{:.0} requests/s, {:.2} us of CPU time each, busy {:.0} %",
        ran.per_second(),
        ran.cpu(),
        ran.busy() * 100.0
    );
    Ok(())
}
