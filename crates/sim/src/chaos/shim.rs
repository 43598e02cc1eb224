//! Another time of day for a `redis-server`: a few lines of C between it and the system, compiled when they are needed.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::Command;

use crate::redis::{RedisServer, scratch};

/// A clock that can be set, for servers that are started with it.
#[derive(Debug)]
pub struct ClockShim {
    directory: PathBuf,
}

impl ClockShim {
    /// Compiles it; the clock is right until it is set.
    pub fn new() -> Self {
        let directory = scratch();
        let (source, library) = (directory.join("shim.c"), directory.join("shim.so"));
        std::fs::write(&source, include_str!("shim.c")).expect("a file can be written");
        let built =
            Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).arg("-ldl").status();
        assert!(built.is_ok_and(|status| status.success()), "a C compiler is installed");
        let shim = Self { directory };
        shim.set(0);
        shim
    }

    /// Sets the clock ahead by so many microseconds, or back.
    pub fn set(&self, ahead: i64) {
        use std::os::unix::fs::FileExt as _;
        // In place: it is mapped.
        let file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(self.directory.join("clock"));
        file.and_then(|file| file.write_all_at(&ahead.to_ne_bytes(), 0)).expect("the clock can be set");
    }

    /// A server with this clock.
    pub fn server(&self) -> RedisServer {
        let path = |name: &str| self.directory.join(name).display().to_string();
        let server =
            RedisServer::start_with(&[("LD_PRELOAD", &path("shim.so")), ("TOLLGATE_CLOCK", &path("clock"))], &[]);
        self.set(3_600_000_000);
        let ahead = server.cli(&["TIME"]);
        self.set(0);
        let right = server.cli(&["TIME"]);
        let seconds = |said: &str| said.lines().next().and_then(|line| line.parse::<u64>().ok()).expect("a time");
        assert!(seconds(&ahead).abs_diff(seconds(&right) + 3_600) < 10, "redis-server is told another time");
        server
    }
}

impl Default for ClockShim {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for ClockShim {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
