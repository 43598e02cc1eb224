//! Streams of HTTP/2 whose answers have to be taken: a client that keeps its window shut holds nothing for ever.
//!
//! hyper does not ask the body of an answer for more while a client has no room for it, so that no timer in the body
//! would run. What runs here is the stream itself. When it waits, and neither for an answer nor for a piece of one, it
//! waits for the client.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::Executor;
use pin_project_lite::pin_project;
use tokio::time::Sleep;

/// What became of the answer while its stream was last run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// Nobody asked for it.
    Unasked,
    /// There was a piece of it.
    Given,
    /// There is nothing yet.
    Awaited,
}

thread_local! {
    static ANSWER: Cell<Answer> = const { Cell::new(Answer::Unasked) };
}

/// Notes what became of an answer, or of a piece of one.
#[inline]
pub(super) fn note<T>(answer: Poll<T>) -> Poll<T> {
    ANSWER.set(if answer.is_pending() { Answer::Awaited } else { Answer::Given });
    answer
}

/// Runs streams, each until it ends or waits for its client for longer than `patience`: then it is reset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) patience: Duration,
}

impl<F> Executor<F> for Taken
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, stream: F) {
        tokio::spawn(Running { stream, patience: self.patience, waiting: None });
    }
}

pin_project! {
    /// A stream that is run. No `async` block, which would have room for it twice: where it is moved in, and where it
    /// is awaited.
    struct Running<F> {
        #[pin]
        stream: F,
        patience: Duration,
        waiting: Option<Pin<Box<Sleep>>>,
    }
}

impl<F: Future> Future for Running<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let running = self.project();
        ANSWER.set(Answer::Unasked);
        if running.stream.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let answer = ANSWER.get();
        if answer != Answer::Unasked {
            *running.waiting = None;
        }
        if answer == Answer::Awaited {
            return Poll::Pending;
        }
        let patience = *running.patience;
        running.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience))).as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::time::Instant;

    use super::*;

    struct Dropped(Arc<AtomicBool>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// How many seconds a stream lives that gives a piece every `every` seconds for a while, and then waits for this.
    async fn lives(every: u64, pieces: u32, for_answer: bool) -> Option<u64> {
        let is_dropped = Arc::new(AtomicBool::new(false));
        let dropped = Dropped(Arc::clone(&is_dropped));
        let begun = Instant::now();
        Taken { patience: Duration::from_secs(30) }.execute(async move {
            let _dropped = dropped;
            for _ in 0..pieces {
                let _ = note(Poll::Ready(()));
                tokio::time::sleep(Duration::from_secs(every)).await;
            }
            poll_fn(|_| if for_answer { note(Poll::<()>::Pending) } else { Poll::Pending }).await;
        });
        while !is_dropped.load(Ordering::Relaxed) {
            if begun.elapsed() > Duration::from_secs(10_000) {
                return None;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Some(begun.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_when_its_client_takes_nothing_and_not_before() {
        assert!(lives(0, 0, false).await.is_some_and(|seconds| (30..=31).contains(&seconds)));
        // Pieces that are taken slowly are taken.
        assert!(lives(20, 10, false).await.is_some_and(|seconds| (209..=212).contains(&seconds)));
        // An answer may take as long as it likes: that is for others to bound.
        assert_eq!(lives(20, 3, true).await, None);
    }
}
