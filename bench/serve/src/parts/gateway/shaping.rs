//! A queue of 1,000 a second at twice that load: how evenly the server behind is asked. It is a part of this process, and notes when.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::super::{MANY, Run, found};
use crate::load::{Idle, Shape, Speaker, paced_each};
use crate::report::{Bound, median};
use crate::speakers::Clients;

const RATE: u64 = 1_000;
const TIME: Duration = Duration::from_secs(3);
const ROUNDS: usize = 5;
/// Not the first ones, which may come at once.
const WARM_UP: usize = 200;
const RULES: &str = "rules:
- name: all
  limits: [{rate: 1000/s, algorithm: leaky_bucket, queue: 100}]
";

fn speak() -> Box<dyn Speaker> {
    Box::new(Clients::limited())
}

/// When each question came.
type Noted = Arc<Mutex<Vec<Instant>>>;

/// Answers, and notes when.
fn origin() -> Result<(SocketAddr, Noted), String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let asked = Arc::clone(&noted);
            std::thread::spawn(move || {
                let _ = stream.set_nodelay(true);
                let mut buffer = [0; 4096];
                // A question is never longer than a piece.
                while let Ok(1..) = stream.read(&mut buffer) {
                    asked.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
                    if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").is_err() {
                        return;
                    }
                }
            });
        }
    });
    Ok((address, asked))
}

pub(crate) fn run(run: &mut Run) -> Result<(), String> {
    let (address, asked) = origin()?;
    let gateway = run.gateway("shaping.yaml", address, RULES)?;
    let shape = Shape { connections: 256, depth: 1, in_batches: false, keys: MANY };
    let mut spreads = Vec::new();
    println!("A queue of {RATE}/s at {} requests/s: gaps between requests to the server behind\n", 2 * RATE);
    for _ in 0..ROUNDS {
        asked.lock().unwrap_or_else(PoisonError::into_inner).clear();
        paced_each(found(gateway.proxy)?, &speak, shape, (2 * RATE, TIME), Idle::Sleeps)?;
        let asked = std::mem::take(&mut *asked.lock().unwrap_or_else(PoisonError::into_inner));
        let gaps: Vec<f64> =
            asked.windows(2).skip(WARM_UP).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1e6).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let spread = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        println!("{} gaps of {mean:.0} us, standard deviation {spread:.0} us", gaps.len());
        spreads.push(spread / mean * 100.0);
    }
    println!();
    run.goals.add("gateway: deviation of gaps at a queue's outflow", Bound::Below(20.0), " %", median(spreads));
    Ok(())
}
