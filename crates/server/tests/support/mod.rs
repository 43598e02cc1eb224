//! What tests of the service share: the service itself as a process on free ports, and the tools to drive it with.

#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// A service that runs until it is dropped.
pub(crate) struct Service {
    process: Child,
    addresses: HashMap<String, String>,
    log: PathBuf,
}

impl Service {
    /// Serves `rules` with further arguments, each port a free one of this machine.
    pub(crate) fn start(rules: &str, args: &[&str]) -> Self {
        let file = scratch("rules.yaml");
        std::fs::write(&file, rules).expect("a rule file can be written");
        let file = file.display().to_string();
        Self::start_with(Command::new(env!("CARGO_BIN_EXE_tollgate")), &[&["--rules", &file], args].concat())
    }

    /// The same by another command, such as one with variables set.
    pub(crate) fn start_with(mut command: Command, args: &[&str]) -> Self {
        command.arg("serve");
        for port in ["--grpc", "--http", "--resp", "--admin"] {
            if !args.contains(&port) {
                command.args([port, "127.0.0.1:0"]);
            }
        }
        command.args(args);
        Self::spawn(command, &["gRPC", "HTTP", "Redis", "admin"])
    }

    /// A gateway with this file and further arguments, each port a free one of this machine.
    pub(crate) fn gateway(file: &str, args: &[&str]) -> Self {
        let path = scratch("gateway.yaml");
        std::fs::write(&path, file).expect("a file can be written");
        let path = path.display().to_string();
        Self::gateway_with(&[&["--config", &path], args].concat())
    }

    /// The same with other arguments only.
    pub(crate) fn gateway_with(args: &[&str]) -> Self {
        Self::gateway_by(Command::new(env!("CARGO_BIN_EXE_tollgate")), args)
    }

    /// The same by another command that leads to it.
    pub(crate) fn gateway_by(mut command: Command, args: &[&str]) -> Self {
        command.arg("gateway");
        for port in ["--proxy", "--admin"] {
            if !args.contains(&port) {
                command.args([port, "127.0.0.1:0"]);
            }
        }
        command.args(args);
        Self::spawn(command, &["proxy", "admin"])
    }

    /// Starts it and waits until it has said where it listens.
    fn spawn(mut command: Command, ports: &[&str]) -> Self {
        let log = scratch("log");
        let file = std::fs::File::create(&log).expect("a log can be written");
        let mut process = command.stdout(Stdio::piped()).stderr(file).spawn().expect("the service starts");
        let mut lines = BufReader::new(process.stdout.take().expect("it has an output")).lines();
        let mut addresses = HashMap::new();
        for line in lines.by_ref() {
            let line = line.expect("its output is text");
            let mut words = line.split_whitespace();
            if let (Some(name), Some(address)) = (words.next(), words.next())
                && ports.contains(&name)
            {
                addresses.insert(name.to_owned(), address.to_owned());
            }
            if addresses.len() == ports.len() {
                break;
            }
        }
        assert_eq!(addresses.len(), ports.len(), "the service says where it listens: {addresses:?}");
        // Whatever it still prints goes nowhere, and never blocks it.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, addresses, log }
    }

    pub(crate) fn proxy(&self) -> SocketAddr {
        self.address("proxy")
    }

    fn address(&self, name: &str) -> SocketAddr {
        self.addresses[name].parse().expect("an address")
    }

    pub(crate) fn grpc(&self) -> SocketAddr {
        self.address("gRPC")
    }

    pub(crate) fn http(&self) -> SocketAddr {
        self.address("HTTP")
    }

    pub(crate) fn resp(&self) -> SocketAddr {
        self.address("Redis")
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.address("admin")
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends a signal such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.id().to_string()]).status();
        assert!(status.expect("kill runs").success());
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).expect("a log can be read")
    }

    /// Waits for it to end by itself, and gives what it has logged.
    pub(crate) fn last_words(mut self) -> String {
        assert!(self.process.wait().expect("it ends").success());
        self.log()
    }

    /// Waits for it to end by itself.
    pub(crate) fn wait(mut self) -> std::process::ExitStatus {
        self.process.wait().expect("it ends")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A process that ends with the test.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An nginx with these servers, one of which listens on this port.
pub(crate) fn nginx(servers: &str, port: u16) -> Running {
    let file = scratch("nginx.conf");
    let folder = file.parent().expect("it is in a directory").display().to_string();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|what| format!("{what}_temp_path {folder}/{what};\n"))
        .collect();
    let text = format!(
        "daemon off; pid {folder}/nginx.pid; error_log stderr; worker_processes 1; master_process off;
        events {{}}
        http {{ access_log off; {temporary} {servers} }}"
    );
    std::fs::write(&file, text).expect("a file can be written");
    let program = if Path::new("/usr/sbin/nginx").exists() { "/usr/sbin/nginx" } else { "nginx" };
    let process = Command::new(program)
        .args(["-p", &folder, "-e", "stderr", "-c"])
        .arg(&file)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("nginx starts");
    let running = Running(process);
    eventually("nginx listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    running
}

/// A path in a fresh directory of this test's own.
pub(crate) fn scratch(name: &str) -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{number}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory can be made");
    directory.join(name)
}

/// A program that `scripts/test-tools` installs.
pub(crate) fn tool(name: &str) -> PathBuf {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-tools/bin");
    let path = tools.join(name);
    assert!(path.exists(), "{} is missing: run scripts/test-tools once", path.display());
    path
}

/// Runs a script of Python with the packages of `scripts/test-tools`, and gives what it prints.
pub(crate) fn python(script: &str, args: &[&str]) -> String {
    let mut command = Command::new(tool("python"));
    let output = command.arg("-c").arg(script).args(args).output().expect("Python runs");
    printed(&output)
}

/// What a command printed; fails if the command did.
pub(crate) fn printed(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "it failed: {}\n{out}\n{err}", output.status);
    out.into_owned()
}

/// A port that is free now, for programs that cannot pick one themselves.
pub(crate) fn free_port() -> u16 {
    tollgate_sim::redis::free_port()
}

/// Waits until `holds`, at most ten seconds.
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1_000 {
        if holds() {
            return;
        }
        pause(Duration::from_millis(10));
    }
    panic!("{what}: not within ten seconds");
}

/// Makes sure that something can be done within `limit`: one of five times it is. A machine that is busy with others is
/// no fault of ours.
#[track_caller]
pub(crate) fn within(limit: Duration, mut took: impl FnMut() -> Duration) {
    let mut fastest = Duration::MAX;
    for _ in 0..5 {
        fastest = fastest.min(took());
        if fastest < limit {
            return;
        }
    }
    panic!("it takes {fastest:?}, and {limit:?} at most was promised");
}

/// Waits for other processes, which have no virtual time.
pub(crate) fn pause(time: Duration) {
    // A channel that nobody sends to is the wait that the house rules leave.
    let (_keep, never) = std::sync::mpsc::channel::<()>();
    let _ = never.recv_timeout(time);
}

/// One HTTP/1.1 exchange: status, headers in lower case, body.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Sends `head` (request line and headers, apart by newlines) and `body` and reads the answer. The connection is closed
/// after it.
pub(crate) fn http(address: SocketAddr, head: &str, body: &str) -> Answer {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout can be set");
    let head = head.replace('\n', "\r\n");
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    let request = format!("{head}\r\nHost: localhost\r\nConnection: close\r\n{length}\r\n{body}");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it answers");
    parse_answer(&String::from_utf8_lossy(&answer))
}

fn parse_answer(text: &str) -> Answer {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|status| status.parse().ok());
    let headers = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    Answer { status: status.unwrap_or_default(), headers, body: body.to_owned() }
}
