//! Bodies of requests: whole, bounded in size and in time.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::protocol::body::Body;
use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt as _;
use hyper::body::Body as _;

use super::answer::Refusal;
use crate::protocol::budget::Share;

/// So much of a body that is too large is still taken from the wire: clients that send before they read then hear why
/// they were refused. Whoever sends even more finds the connection closed.
const MOST_DISCARDED: usize = 16 << 20;

/// Room that is made for a body before it is there, in bytes.
const AT_ONCE: usize = 16 << 10;

/// Reads `body`, of at most `most` bytes, within `patience`. A client that `expects` to be told whether to go on is not
/// made to send what is refused.
pub(super) async fn read(body: Body, most: usize, patience: Duration, expects: bool) -> Result<Bytes, Refusal> {
    let mut reading = pin!(read_all(body, most, expects));
    // Most are there already. Only the others need a timer.
    if let Poll::Ready(read) = poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await {
        return read;
    }
    match tokio::time::timeout(patience, reading).await {
        Ok(read) => read,
        Err(_) => Err(Refusal::new(
            StatusCode::REQUEST_TIMEOUT,
            format!("the body did not arrive within {} s: send it faster", patience.as_secs_f32()),
        )),
    }
}

async fn read_all(mut body: Body, most: usize, expects: bool) -> Result<Bytes, Refusal> {
    let announced = body.size_hint().lower();
    if announced > most as u64 {
        if !expects {
            discard(body, 0).await;
        }
        return Err(too_large(most));
    }
    let Some(first) = next(&mut body).await? else { return Ok(Bytes::new()) };
    // Over HTTP/2 nothing need be announced.
    let is_as_announced = announced == first.len() as u64 || (announced == 0 && first.len() <= most);
    if is_as_announced && body.is_end_stream() {
        return Ok(first);
    }
    let mut share = Share::new();
    let mut whole = Vec::with_capacity(usize::try_from(announced).unwrap_or(0).min(AT_ONCE).max(first.len()));
    let mut part = Some(first);
    while let Some(bytes) = part {
        if whole.len() + bytes.len() > most {
            discard(body, whole.len()).await;
            return Err(too_large(most));
        }
        if !share.take(bytes.len()) {
            drop((share, whole));
            discard(body, 0).await;
            return Err(Refusal::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many large bodies are on their way here: send it again later",
            ));
        }
        whole.extend_from_slice(&bytes);
        part = next(&mut body).await?;
    }
    Ok(whole.into())
}

async fn next(body: &mut Body) -> Result<Option<Bytes>, Refusal> {
    while let Some(frame) = body.frame().await {
        // Nobody hears this: the client has gone, or has broken the protocol.
        let frame = frame.map_err(|_| Refusal::bad("the body ends too early"))?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

async fn discard(mut body: Body, mut taken: usize) {
    while let Ok(Some(bytes)) = next(&mut body).await {
        taken += bytes.len();
        if taken > MOST_DISCARDED {
            return;
        }
    }
}

fn too_large(most: usize) -> Refusal {
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is larger than {} KiB: send less", most >> 10))
}
