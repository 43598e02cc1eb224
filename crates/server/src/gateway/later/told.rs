//! What clients and people are told of requests that are kept.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, LOCATION, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};
use tollgate::{Micros, Timestamp};

use super::form::{Answered, Entry, Id, Stage};
use super::{Fault, NotKept, STATUS_PATH};
use crate::gateway::body::Reply;
use crate::gateway::later::lines::Full as NoRoom;

/// That a request is kept, where to ask for it, and when it is likely to be sent.
pub(super) fn accepted(id: Id, position: usize, wait: Duration, now: Timestamp, is_durable: bool) -> Response<Reply> {
    let path = format!("{STATUS_PATH}{id}");
    let start = now.plus(Micros::from_micros(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX)));
    let body = json!({
        "id": id.to_string(),
        "state": "waiting",
        "position": position,
        "expected_wait_seconds": wait.as_millis() as f64 / 1_000.0,
        "expected_start": time(start),
        "durable": is_durable,
        "status": path,
    });
    let mut answer = json_answer(StatusCode::ACCEPTED, &body);
    let headers = answer.headers_mut();
    if let Ok(path) = HeaderValue::from_str(&path) {
        headers.insert(LOCATION, path);
    }
    let seconds = u64::try_from(wait.as_millis().div_ceil(1_000)).unwrap_or(u64::MAX);
    headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    answer.map(Reply::Own)
}

/// What became of one. `position` is that of one that waits.
pub(super) fn status(entry: &Entry, position: Option<usize>) -> Value {
    let mut told = json!({
        "id": entry.id.to_string(),
        "state": state(&entry.state.stage),
        "attempts": entry.state.attempts,
        "route": &*entry.route,
        "method": &*entry.method,
        "path": &*entry.path,
        "received": time(entry.received),
        "since": time(entry.state.since),
    });
    if let Some(position) = position {
        told["position"] = position.into();
    }
    match &entry.state.stage {
        Stage::Waiting { not_before, why } if !why.is_empty() => {
            told["why"] = (&**why).into();
            told["not_before"] = time(*not_before).into();
        }
        Stage::Waiting { .. } | Stage::Begun => {}
        Stage::Dead { why } => told["why"] = (&**why).into(),
        Stage::Done(Answered { status, content_type, body, is_whole }) => {
            told["answer"] = json!({
                "status": status.as_u16(),
                "content_type": &**content_type,
                "body": String::from_utf8_lossy(body),
                "whole": is_whole,
            });
        }
    }
    told
}

/// The word for a stage.
pub(super) fn state(stage: &Stage) -> &'static str {
    match stage {
        Stage::Waiting { .. } => "waiting",
        Stage::Begun => "begun",
        Stage::Done(_) => "done",
        Stage::Dead { .. } => "dead",
    }
}

pub(super) fn json_answer(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::from(format!("{body}\n")));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

fn time(at: Timestamp) -> String {
    let at = i64::try_from(at.as_micros()).ok().and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok());
    at.map(|at| at.to_string()).unwrap_or_default()
}

impl NotKept {
    /// The status, and the seconds after which to try again.
    pub(in crate::gateway) fn status(&self) -> (StatusCode, u64) {
        match self {
            Self::Full(_, seconds) => (StatusCode::TOO_MANY_REQUESTS, (*seconds).max(1)),
            Self::Fault(_) | Self::Nameless | Self::Leaving => (StatusCode::SERVICE_UNAVAILABLE, 1),
        }
    }

    pub(in crate::gateway) fn detail(&self) -> String {
        match self {
            Self::Full(NoRoom::Line, _) => {
                "this is over a limit, and as many requests as may wait for it do: try again later".into()
            }
            Self::Full(NoRoom::Requests | NoRoom::Bytes, _) => {
                "this is over a limit, and there is no room to keep it for later: try again later".into()
            }
            Self::Fault(Fault(_)) => "this is over a limit, and could not be kept for later: try again later".into(),
            Self::Nameless | Self::Leaving => "this is over a limit, and is not kept for later now: try again".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::form::tests::entry;
    use super::*;

    #[test]
    fn each_state_is_told_in_its_own_words() {
        let waiting = Stage::Waiting { not_before: Timestamp::from_secs(3), why: "503".into() };
        let told = status(&entry(1, waiting), Some(2));
        assert_eq!((&told["state"], &told["position"], &told["why"]), (&json!("waiting"), &json!(2), &json!("503")));
        assert_eq!(told["not_before"], "1970-01-01T00:00:03Z");
        let answered = Answered {
            status: StatusCode::CREATED,
            content_type: "text/plain".into(),
            body: Bytes::from_static(b"made"),
            is_whole: true,
        };
        let told = status(&entry(1, Stage::Done(answered)), None);
        let answer = json!({"status": 201, "content_type": "text/plain", "body": "made", "whole": true});
        assert_eq!((&told["state"], &told["answer"]), (&json!("done"), &answer));
        assert_eq!(told.get("position"), None);
    }
}
