//! Connections that asked once and are kept.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::super::{Run, found};
use super::PLENTY;
use crate::report::Bound;

const CONNECTIONS: usize = 10_000;
const MIB: f64 = (1 << 20) as f64;

pub(crate) fn run(run: &mut Run) -> Result<(), String> {
    let files = CONNECTIONS as u64 + 1_000;
    let allowed = getrlimit(Resource::Nofile);
    if allowed.current.is_some_and(|current| current < files) {
        let more = Rlimit { current: Some(files), maximum: allowed.maximum.map(|most| most.max(files)) };
        setrlimit(Resource::Nofile, more).map_err(|error| format!("{files} open files are needed: {error}"))?;
    }
    let behind = run.origin()?;
    let gateway = run.gateway("idle.yaml", found(behind.proxy)?, PLENTY)?;
    let (address, before) = (found(gateway.proxy)?, gateway.resident()? as f64 / MIB);
    let mut connections = Vec::with_capacity(CONNECTIONS);
    for number in 0..CONNECTIONS {
        let failed = |error: std::io::Error| format!("connection {number}: {error}");
        let mut stream = TcpStream::connect(address).map_err(failed)?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n").map_err(failed)?;
        let mut answer = [0; 1024];
        let length = stream.read(&mut answer).map_err(failed)?;
        if !answer[..length].starts_with(b"HTTP/1.1 200 ") {
            return Err(format!("connection {number}: {}", String::from_utf8_lossy(&answer[..length])));
        }
        connections.push(stream);
    }
    let after = gateway.resident()? as f64 / MIB;
    println!("{before:.1} MiB at the start, {after:.1} MiB with {} idle connections\n", connections.len());
    run.goals.add("gateway: memory with 10,000 idle connections", Bound::Below(150.0), " MiB", after);
    Ok(())
}
