//! The servers that are measured: started on one core, on free ports of this machine, and stopped when they are no
//! longer needed.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Of the CPU time that the system reports.
const TICKS_PER_SECOND: u64 = 100;
const PATIENCE: Duration = Duration::from_secs(20);

/// The cores that were found, for whoever asks what happened on them.
static FOUND: OnceLock<Cores> = OnceLock::new();

/// Two cores: one for the server, one for whoever asks.
#[derive(Clone, Copy, Debug)]
pub struct Cores {
    pub server: usize,
    pub load: usize,
}

impl Cores {
    /// The first two that this process may use.
    pub fn find() -> Result<Self, String> {
        let allowed = sched_getaffinity(None).map_err(|error| error.to_string())?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
        match (cores.next(), cores.next()) {
            (Some(server), Some(load)) => Ok(*FOUND.get_or_init(|| Self { server, load })),
            _ => Err("two cores are needed: one for the server, one for the load".to_owned()),
        }
    }

    /// Moves this thread to `cores`.
    pub fn go_to(cores: &[usize]) -> Result<(), String> {
        let mut set = CpuSet::new();
        cores.iter().for_each(|core| set.set(*core));
        sched_setaffinity(None, &set).map_err(|error| error.to_string())
    }

    /// `command`, for these cores only.
    pub fn pin(cores: &[usize], command: &Path) -> Command {
        let list: Vec<String> = cores.iter().map(usize::to_string).collect();
        // A server ends with this process, however that ends.
        let mut pinned = Command::new("setpriv");
        pinned.args(["--pdeathsig", "KILL", "taskset", "-c", &list.join(",")]).arg(command);
        pinned
    }
}

/// Keeps cores from falling asleep while it is there: one that has nothing to do spins in the kernel until it has, and
/// halts not. To wake a core takes a virtual machine longer than a proxy takes for a request, and how long is a matter
/// of its host.
///
/// It is no process that spins: one that gives way to everybody (`SCHED_IDLE`) still has a share of its core, and
/// beside such there were answers that took as long as it is to the next tick of the system, which is 4 ms.
#[derive(Debug)]
pub struct Awake(Option<File>);

impl Awake {
    /// Nobody stays awake where this process may not ask for it.
    pub fn keep() -> Self {
        let mut file = OpenOptions::new().write(true).open("/dev/cpu_dma_latency").ok();
        // How many microseconds it may take at most, as a number of 32 bits.
        file = file.and_then(|mut file| file.write_all(&0_u32.to_ne_bytes()).is_ok().then_some(file));
        Self(file)
    }
}

impl std::fmt::Display for Awake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "the cores are kept awake" } else { "the cores fall asleep in between" })
    }
}

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct Server {
    process: Child,
    pub grpc: Option<SocketAddr>,
    pub http: Option<SocketAddr>,
    pub resp: Option<SocketAddr>,
    pub admin: Option<SocketAddr>,
    pub proxy: Option<SocketAddr>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    fn spawn(mut command: Command) -> Result<Self, String> {
        let process = command.stdin(Stdio::null()).spawn().map_err(|error| format!("{command:?}: {error}"))?;
        Ok(Self { process, grpc: None, http: None, resp: None, admin: None, proxy: None })
    }

    /// The lines that it prints, to a first one after which `is_last`; whatever it prints after that goes nowhere.
    fn listen(&mut self, mut is_last: impl FnMut(&mut Self, &str) -> bool) -> Result<(), String> {
        let output = self.process.stdout.take().ok_or("its output was not asked for")?;
        let mut lines = BufReader::new(output).lines();
        loop {
            let line = lines.next().ok_or("it ended before it said where it listens")?.map_err(|e| e.to_string())?;
            if is_last(self, &line) {
                std::thread::spawn(move || lines.for_each(drop));
                return Ok(());
            }
        }
    }

    /// `tollgate serve` with these rules.
    pub fn tollgate(cores: &[usize], rules: &Path, args: &[&str]) -> Result<Self, String> {
        let mut command = Cores::pin(cores, &tollgate());
        command.arg("serve").arg("--rules").arg(rules);
        for port in ["--grpc", "--http", "--resp", "--admin"].iter().filter(|port| !args.contains(port)) {
            command.args([port, "127.0.0.1:0"]);
        }
        command.args(args).env("RUST_LOG", "off").stdout(Stdio::piped()).stderr(Stdio::null());
        Self::spawn(command)?.listening()
    }

    /// `tollgate gateway` with this file and one worker.
    pub fn gateway(cores: &[usize], config: &Path) -> Result<Self, String> {
        let mut command = Cores::pin(cores, &tollgate());
        command.args(["gateway", "--proxy", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--workers", "1"]);
        command.args(["--trusted-proxies", "127.0.0.1"]).arg("--config").arg(config);
        command.env("RUST_LOG", "off").stdout(Stdio::piped()).stderr(Stdio::null());
        Self::spawn(command)?.listening()
    }

    /// With the addresses that tollgate prints, of which the last is the admin's.
    fn listening(mut self) -> Result<Self, String> {
        self.listen(|server, line| {
            let mut words = line.split_whitespace();
            if let (Some(name), Some(address)) = (words.next(), words.next()) {
                let address = address.parse().ok();
                match name {
                    "gRPC" => server.grpc = address,
                    "HTTP" => server.http = address,
                    "Redis" => server.resp = address,
                    "proxy" => server.proxy = address,
                    "admin" => server.admin = address,
                    _ => {}
                }
            }
            server.admin.is_some()
        })?;
        Ok(self)
    }

    /// nginx as one process, with this in its part for HTTP; `PORT` stands for where it listens.
    pub fn nginx(cores: &[usize], scratch: &Scratch, name: &str, http: &str) -> Result<Self, String> {
        let address = free()?;
        let text = format!(
            "daemon off; master_process off; worker_rlimit_nofile 40000; pid {name}.pid; error_log stderr crit;
events {{ worker_connections 16384; }}
http {{ access_log off; keepalive_requests 1000000000; keepalive_timeout 1h; {http} }}",
        );
        let file = scratch.write(&format!("{name}.conf"), &text.replace("PORT", &address.port().to_string()))?;
        let nginx = ["/usr/sbin/nginx", "/usr/bin/nginx"].iter().map(Path::new).find(|path| path.exists());
        let mut command = Cores::pin(cores, nginx.unwrap_or(Path::new("nginx")));
        let directory = file.parent().unwrap_or(Path::new("/"));
        command.arg("-p").arg(directory).arg("-e").arg("stderr").arg("-c").arg(&file).stderr(Stdio::null());
        let mut server = Self::spawn(command)?.reached(address, "nginx")?;
        server.proxy = Some(address);
        Ok(server)
    }

    /// Envoy with one worker; `PORT` stands for where it listens.
    pub fn envoy(cores: &[usize], scratch: &Scratch, config: &str) -> Result<Self, String> {
        let address = free()?;
        let file = scratch.write("envoy.yaml", &config.replace("PORT", &address.port().to_string()))?;
        let envoy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-tools/bin/envoy");
        let mut command = Cores::pin(cores, &envoy);
        command.arg("-c").arg(&file).args(["--concurrency", "1", "--disable-hot-restart", "-l", "off"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = Self::spawn(command)?.reached(address, "envoy")?;
        server.proxy = Some(address);
        Ok(server)
    }

    /// Waits until it listens there.
    fn reached(self, address: SocketAddr, name: &str) -> Result<Self, String> {
        let started = Instant::now();
        while TcpStream::connect(address).is_err() {
            if started.elapsed() > PATIENCE {
                return Err(format!("{name} does not start"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(self)
    }

    /// A service that does nothing; see `noop.rs`.
    pub fn noop(cores: &[usize], which: &str) -> Result<Self, String> {
        let itself = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Cores::pin(cores, &itself.with_file_name("noop"));
        command.arg(which).stdout(Stdio::piped());
        let mut server = Self::spawn(command)?;
        server.listen(|server, line| {
            server.grpc = line.parse().ok();
            server.http = server.grpc;
            true
        })?;
        Ok(server)
    }

    /// Redis, which keeps nothing on disk.
    pub fn redis(cores: &[usize]) -> Result<Self, String> {
        let address = free()?;
        let mut command = Cores::pin(cores, Path::new("redis-server"));
        command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string()]);
        command.args(["--save", "", "--appendonly", "no", "--daemonize", "no"]).stdout(Stdio::null());
        let mut server = Self::spawn(command)?.reached(address, "redis-server")?;
        server.resp = Some(address);
        Ok(server)
    }

    /// Bytes in memory.
    pub fn resident(&self) -> Result<u64, String> {
        let text = read(self.id(), "status")?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        let kilobytes = line.split_whitespace().next().and_then(|number| number.parse::<u64>().ok());
        Ok(kilobytes.ok_or("no VmRSS")? << 10)
    }
}

/// An address that nobody listens on.
fn free() -> Result<SocketAddr, String> {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).map_err(|error| error.to_string())
}

/// The release build of the main workspace.
pub fn tollgate() -> PathBuf {
    let built = std::env::var_os("TOLLGATE").map(PathBuf::from);
    built.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/tollgate"))
}

fn read(process: u32, file: &str) -> Result<String, String> {
    fs::read_to_string(format!("/proc/{process}/{file}")).map_err(|error| format!("the server is gone: {error}"))
}

/// CPU time of all threads of a process.
pub fn cpu(process: u32) -> Result<Duration, String> {
    let text = read(process, "stat")?;
    // The name may have anything in it; after its parenthesis, user and system time are the 12th and 13th fields.
    let (_, fields) = text.rsplit_once(") ").ok_or("no fields")?;
    let ticks: u64 = fields.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND))
}

/// CPU time of all processes on both cores, with what the host of a virtual machine kept for itself.
pub fn cpu_of_all() -> Result<Duration, String> {
    let text = fs::read_to_string("/proc/stat").map_err(|error| error.to_string())?;
    let names = FOUND.get().map(|cores| [cores.server, cores.load].map(|core| format!("cpu{core}")));
    let mut ticks = 0;
    for line in text.lines() {
        let mut fields = line.split_whitespace();
        let name = fields.next().unwrap_or_default();
        if !names.as_ref().is_some_and(|names| names.iter().any(|known| known == name)) {
            continue;
        }
        // User, nice, system, idle, waiting, interrupts, soft ones, stolen.
        let figures = fields.take(8).map(|field| field.parse::<u64>().unwrap_or(0)).enumerate();
        ticks += figures.filter(|(at, _)| *at != 3 && *at != 4).map(|(_, figure)| figure).sum::<u64>();
    }
    Ok(Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND))
}

/// A directory for the files of a run, removed with it.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("tollgate-bench-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|error| error.to_string())?;
        Ok(Self(path))
    }

    /// Writes a file as a whole: nobody ever sees a part of it.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf, String> {
        let (path, new) = (self.0.join(name), self.0.join(format!("{name}.new")));
        fs::write(&new, text).and_then(|()| fs::rename(&new, &path)).map_err(|error| error.to_string())?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
