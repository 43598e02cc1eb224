//! One `redis-server` as a process.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::eventually;
use tollgate::core::mix;

/// What is started: `redis-server`, or another that can do the same, such as Valkey's.
pub fn program() -> String {
    std::env::var("TOLLGATE_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

/// A Redis that runs until it is dropped, and keeps nothing.
#[derive(Debug)]
pub struct RedisServer {
    port: u16,
    args: Vec<String>,
    variables: Vec<(String, String)>,
    directory: PathBuf,
    process: Option<Child>,
}

impl RedisServer {
    /// Starts one with further arguments, as `redis-server` takes them, and waits until it answers.
    pub fn start(args: &[&str]) -> Self {
        Self::start_on(free_port(), args)
    }

    /// The same on a port of the caller's choice.
    pub fn start_on(port: u16, args: &[&str]) -> Self {
        let mut server = Self::absent(port, args);
        server.restart();
        server
    }

    /// The same with variables of its environment.
    pub fn start_with(variables: &[(&str, &str)], args: &[&str]) -> Self {
        let mut server = Self::absent(free_port(), args);
        server.variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        server.restart();
        server
    }

    /// One that is not started yet.
    pub fn absent(port: u16, args: &[&str]) -> Self {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        Self { port, args, variables: Vec::new(), directory: scratch(), process: None }
    }

    /// Starts it, again or for the first time, on the same port, and waits until it answers.
    pub fn restart(&mut self) {
        self.launch();
        let address = self.address();
        eventually("a redis-server answers", || answers(address));
    }

    /// Starts it and does not wait.
    pub fn launch(&mut self) {
        self.kill();
        let port = self.port.to_string();
        let mut command = Command::new(program());
        if self.args.first().is_some_and(|arg| arg.ends_with(".conf")) {
            // What Sentinel remembers is in its file.
            command.args(&self.args);
        } else {
            command.args([
                "--port",
                &port,
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
                "--daemonize",
                "no",
            ]);
            command.args(["--enable-debug-command", "yes"]).args(&self.args);
        }
        let log = std::fs::File::create(self.directory.join("log")).expect("a log can be written");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.current_dir(&self.directory).stdin(Stdio::null()).stdout(log).stderr(Stdio::null());
        self.process = Some(command.spawn().expect("redis-server is installed"));
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it lives.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The id of its process.
    pub fn id(&self) -> u32 {
        self.process.as_ref().map(Child::id).expect("it runs")
    }

    /// Ends it without a chance to say goodbye.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Stops it where it stands: ports stay open, nothing is answered.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let process = self.process.as_ref().expect("it runs");
        kill_process(Pid::from_child(process), signal).expect("it can be sent a signal");
    }

    /// Gives a command by `redis-cli` and returns what it prints.
    pub fn cli(&self, words: &[&str]) -> String {
        let port = self.port.to_string();
        let output =
            Command::new("redis-cli").args(["-p", &port]).args(words).output().expect("redis-cli is installed");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// The same for a command and answers with bytes of any kind in them, both as `redis-cli` quotes them.
    pub fn cli_quoted(&self, line: &str) -> String {
        let port = self.port.to_string();
        let mut command = Command::new("redis-cli");
        command.args(["-p", &port, "--no-raw"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("redis-cli is installed");
        let mut input = process.stdin.take().expect("it reads");
        input.write_all(line.as_bytes()).expect("it reads");
        drop(input);
        let output = process.wait_with_output().expect("it answers");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Whether whoever listens there answers `PING`, even if only with an error.
fn answers(address: SocketAddr) -> bool {
    let asked = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_millis(100))?;
        stream.set_read_timeout(Some(Duration::from_millis(200)))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 16];
        let length = stream.read(&mut answer)?;
        Ok(length > 0 && !answer.starts_with(b"-LOADING"))
    };
    asked().unwrap_or(false)
}

/// A port that nobody uses now. None of those that the system gives to connections: one of them might take it before
/// the server does, even the connection of somebody who waits for the server.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let spread = mix(u64::from(std::process::id())) as u32;
    let ports =
        (0..PORTS).map(|_| FIRST_PORT + (spread.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS) as u16);
    ports.into_iter().find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("there are free ports")
}

/// Below what Linux, macOS and the BSDs give to connections.
const FIRST_PORT: u16 = 12_000;
const PORTS: u32 = 20_000;

/// A directory of its own, empty.
pub fn scratch() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let directory = std::env::temp_dir().join(format!("tollgate-redis-{}-{number}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("a directory can be made");
    directory
}
