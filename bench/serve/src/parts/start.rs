//! From start to ready with 1,000 rules: by the wall, on the core for servers, asked again as soon as there is no
//! answer.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::Run;
use crate::process::{Cores, tollgate};
use crate::report::{Bound, median};
use crate::rules;

const STARTS: usize = 15;
const RULES: usize = 1_000;

pub(crate) fn run(run: &mut Run) -> Result<(), String> {
    let file = run.scratch.write("start.yaml", &rules::many(RULES, 0))?;
    let mut found = Vec::new();
    for _ in 0..STARTS {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let admin = free.map_err(|error| error.to_string())?;
        let started = Instant::now();
        let mut process = Cores::pin(&run.server(), &tollgate())
            .args(["serve", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--rules"])
            .arg(&file)
            .args(["--admin", &admin.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| error.to_string())?;
        let is_ready = loop {
            match get(admin, "/ready") {
                Ok(answer) if answer.starts_with("HTTP/1.1 200") => break true,
                _ if started.elapsed() > Duration::from_secs(10) => break false,
                _ => std::thread::sleep(Duration::from_micros(200)),
            }
        };
        let took = started.elapsed();
        let _ = process.kill();
        let _ = process.wait();
        if !is_ready {
            return Err("the service is not ready after 10 s".to_owned());
        }
        found.push(took.as_secs_f64() * 1e3);
    }
    let (most, middle) = (found.iter().fold(0.0, |most: f64, one| most.max(*one)), median(found.clone()));
    println!("Start: from start to ready with {RULES} rules: {middle:.1} ms, the slowest of {STARTS} {most:.1} ms\n");
    run.goals.add(format!("start to ready with {RULES} rules"), Bound::Below(100.0), " ms", middle);
    Ok(())
}

/// One request, and all of its answer.
pub(super) fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
