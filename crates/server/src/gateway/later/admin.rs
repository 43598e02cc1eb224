//! Asking for requests that are kept, and changing what becomes of them: by their names, and for people all of them.

use std::sync::Arc;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};

use super::counts::End;
use super::form::{Entry, Id, Stage, State};
use super::lines::Tally;
use super::told::{self, json_answer};
use super::{Later, STATUS_PATH};

type Answer = Response<Full<Bytes>>;

/// As many are listed unless more are asked for.
const USUAL_LIST: usize = 100;
const LONGEST_LIST: usize = 1_000;

impl Later {
    /// The answer to whoever was told the name of a request; `None` if the path is not about that.
    pub(in crate::gateway) fn answer_client(&self, method: &Method, path: &str) -> Option<Answer> {
        let id = path.strip_prefix(STATUS_PATH)?;
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Some(message(StatusCode::METHOD_NOT_ALLOWED, "ask with GET what became of it"));
        }
        Some(match Id::parse(id) {
            Some(id) => self.look(id),
            None => unknown(),
        })
    }

    /// The answer to a call of the admin port; `None` if the path is not about requests that are kept.
    pub(crate) async fn answer_admin(
        self: &Arc<Self>,
        method: &Method,
        path: &str,
        query: Option<&str>,
    ) -> Option<Answer> {
        let rest = path.strip_prefix("/later")?;
        let mut segments = rest.split('/').filter(|segment| !segment.is_empty());
        let (id, action, more) = (segments.next(), segments.next(), segments.next());
        if !(rest.is_empty() || rest.starts_with('/')) || more.is_some() {
            return None;
        }
        let Some(id) = id else {
            return Some(match *method {
                Method::GET | Method::HEAD => self.list(query.unwrap_or_default()),
                _ => message(StatusCode::METHOD_NOT_ALLOWED, "use GET here"),
            });
        };
        let Some(id) = Id::parse(id) else { return Some(unknown()) };
        Some(match (method, action) {
            (&Method::GET | &Method::HEAD, None) => self.look(id),
            (&Method::DELETE, None) => self.discard(id).await,
            (&Method::POST, Some("again")) => self.again(id).await,
            _ => message(StatusCode::METHOD_NOT_ALLOWED, "use GET or DELETE, or POST /later/ID/again"),
        })
    }

    fn look(&self, id: Id) -> Answer {
        let Some(entry) = self.lines.get(id) else { return unknown() };
        let mut answer = json_answer(StatusCode::OK, &told::status(&entry, self.lines.position(id)));
        if let Stage::Waiting { .. } | Stage::Begun = entry.state.stage {
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        answer
    }

    fn list(&self, query: &str) -> Answer {
        let value = |name: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).next()
        };
        let wanted = value("state");
        if wanted.is_some_and(|state| !["waiting", "begun", "done", "dead"].contains(&state)) {
            return message(StatusCode::BAD_REQUEST, "`state` is waiting, begun, done or dead");
        }
        let most = value("limit").and_then(|limit| limit.parse().ok()).unwrap_or(USUAL_LIST).min(LONGEST_LIST);
        let found = self.lines.list(most, |stage| wanted.is_none_or(|state| state == told::state(stage)));
        let found: Vec<Value> = found.iter().map(|entry| told::status(entry, self.lines.position(entry.id))).collect();
        let Tally { waiting, begun, done, dead, bytes, .. } = self.lines.tally();
        let body = json!({
            "waiting": waiting, "begun": begun, "done": done, "dead": dead, "bytes": bytes,
            "durable": self.shelf.is_durable(), "requests": found,
        });
        json_answer(StatusCode::OK, &body)
    }

    /// Forgets one, unless it is on its way.
    async fn discard(self: &Arc<Self>, id: Id) -> Answer {
        let Some(entry) = self.lines.get(id) else { return unknown() };
        // From here on nobody begins with it.
        if entry.state.stage == Stage::Begun || !self.lines.remove(&entry) {
            return message(StatusCode::CONFLICT, "it is on its way: wait for what comes of it");
        }
        if let Err(fault) = self.shelf.remove(id).await {
            self.put_back(entry);
            return message(StatusCode::SERVICE_UNAVAILABLE, &fault.to_string());
        }
        if !matches!(entry.state.stage, Stage::Done(_)) {
            self.counts.end(End::Removed);
        }
        let mut answer = Response::new(Full::default());
        *answer.status_mut() = StatusCode::NO_CONTENT;
        answer
    }

    /// It stays as it was.
    fn put_back(self: &Arc<Self>, entry: Entry) {
        let line = entry.line;
        if self.lines.insert(entry) {
            self.serve(line);
        }
    }

    /// Has one that was put aside done after all, at its old place in line.
    async fn again(self: &Arc<Self>, id: Id) -> Answer {
        let Some(entry) = self.lines.get(id) else { return unknown() };
        if !matches!(entry.state.stage, Stage::Dead { .. }) {
            return message(StatusCode::CONFLICT, "only what was put aside can be done again");
        }
        let waiting = Entry { state: State::waiting(self.now()), ..entry.clone() };
        if let Err(fault) = self.shelf.mark(&waiting).await {
            return message(StatusCode::SERVICE_UNAVAILABLE, &fault.to_string());
        }
        match self.lines.change(&entry, waiting.state) {
            Some((entry, is_to_be_served)) => {
                if is_to_be_served {
                    self.serve(entry.line);
                }
                json_answer(StatusCode::ACCEPTED, &told::status(&entry, self.lines.position(id)))
            }
            None => message(StatusCode::CONFLICT, "somebody else changed it at the same time"),
        }
    }
}

fn unknown() -> Answer {
    message(StatusCode::NOT_FOUND, "there is no request of this name, or not any more")
}

fn message(status: StatusCode, message: &str) -> Answer {
    json_answer(status, &json!({"message": message}))
}
