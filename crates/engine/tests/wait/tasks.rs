//! Runs tasks in virtual time: while anyone can go on, time stands still; when nobody can, it jumps to the next who is
//! due.
//!
//! Those who can go on at the same time do so last first, so that an order that holds is not this file's doing.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use tollgate::{Clock, ManualClock, Timestamp};

pub(crate) struct Tasks<'f, T> {
    clock: ManualClock,
    tasks: Vec<Option<Pin<Box<dyn Future<Output = T> + 'f>>>>,
    ready: Arc<Mutex<VecDeque<usize>>>,
    /// Who came to an end, when, and how; in order.
    pub(crate) done: Vec<(usize, Timestamp, T)>,
}

struct Ready {
    task: usize,
    queue: Arc<Mutex<VecDeque<usize>>>,
}

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.queue.lock().unwrap().push_back(self.task);
    }
}

impl<'f, T> Tasks<'f, T> {
    pub(crate) fn new(clock: &ManualClock) -> Self {
        Self { clock: clock.clone(), tasks: Vec::new(), ready: Arc::default(), done: Vec::new() }
    }

    /// Starts a task, which goes as far as it can, and returns its number: how many were started before it.
    pub(crate) fn spawn(&mut self, task: impl Future<Output = T> + 'f) -> usize {
        self.tasks.push(Some(Box::pin(task)));
        self.step(self.tasks.len() - 1);
        self.tasks.len() - 1
    }

    /// Drops a task where it stands.
    pub(crate) fn cancel(&mut self, task: usize) {
        self.tasks[task] = None;
    }

    /// Lets everyone go on who can at this instant.
    pub(crate) fn settle(&mut self) {
        loop {
            let Some(task) = self.ready.lock().unwrap().pop_back() else { return };
            self.step(task);
        }
    }

    fn step(&mut self, task: usize) {
        let waker = Waker::from(Arc::new(Ready { task, queue: self.ready.clone() }));
        let Some(future) = &mut self.tasks[task] else { return };
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            self.tasks[task] = None;
            self.done.push((task, self.clock.now(), value));
        }
    }

    /// Lets time pass until `end`, and everyone go on who is due by then.
    pub(crate) fn run_until(&mut self, end: Timestamp) {
        self.settle();
        while let Some(due) = self.clock.next_due().filter(|due| *due <= end) {
            self.clock.set(due);
            self.settle();
        }
        self.clock.set(end.max(self.clock.now()));
        self.settle();
    }

    /// Lets time pass until all have come to an end.
    pub(crate) fn run(&mut self) {
        self.settle();
        while let Some(due) = self.clock.next_due() {
            self.clock.set(due);
            self.settle();
        }
        assert!(self.tasks.iter().all(Option::is_none), "someone waits for nothing");
    }

    /// Who came to an end, in order.
    pub(crate) fn order(&self) -> Vec<usize> {
        self.done.iter().map(|(task, ..)| *task).collect()
    }

    /// When those ended who did, in microseconds after `start`.
    pub(crate) fn times(&self, start: Timestamp) -> Vec<u64> {
        self.done.iter().map(|(_, at, _)| at.since(start).as_micros()).collect()
    }
}
