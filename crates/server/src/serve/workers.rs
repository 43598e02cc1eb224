//! A thread per core, each with a runtime of its own.
//!
//! A connection lives on one thread from its first byte to its last, so that answers to many requests leave in one
//! system call and nothing moves between cores. New connections go to the thread that has the fewest.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use anyhow::Context as _;
use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;

use crate::gate::ring;

/// The threads that serve.
pub(crate) struct Workers {
    workers: Vec<Worker>,
    stop: watch::Sender<bool>,
}

struct Worker {
    handle: Handle,
    connections: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Workers {
    pub(crate) fn start(number: usize) -> anyhow::Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let mut workers = Vec::with_capacity(number);
        for index in 0..number {
            let runtime = Builder::new_current_thread()
                .enable_all()
                .max_blocking_threads(1)
                .build()
                .context("a runtime cannot be started")?;
            let handle = runtime.handle().clone();
            let mut stopped = stopped.clone();
            let thread = std::thread::Builder::new()
                .name(format!("worker-{index}"))
                .spawn(move || {
                    runtime.block_on(async {
                        tokio::select! {
                            // Nobody is left to say stop when the sender is gone, so that is a stop as well.
                            _ = stopped.wait_for(|stop| *stop) => {}
                            () = ring() => {}
                        }
                    });
                })
                .context("a thread cannot be started")?;
            workers.push(Worker { handle, connections: Arc::default(), thread: Some(thread) });
        }
        Ok(Self { workers, stop })
    }

    /// Runs a connection on the thread that has the fewest.
    pub(crate) fn spawn(&self, connection: impl Future<Output = ()> + Send + 'static) {
        let least = self.workers.iter().min_by_key(|worker| worker.connections.load(Ordering::Relaxed));
        let Some(worker) = least else { return };
        let counted = Counted::new(&worker.connections);
        worker.handle.spawn(async move {
            connection.await;
            drop(counted);
        });
    }

    /// Connections that are open.
    pub(crate) fn connections(&self) -> usize {
        self.workers.iter().map(|worker| worker.connections.load(Ordering::Relaxed)).sum()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        for worker in &mut self.workers {
            if let Some(thread) = worker.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

/// Counts a connection for as long as it lives, however it ends.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(connections: &Arc<AtomicUsize>) -> Self {
        connections.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(connections))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
