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
use super::redis::Overview;
use super::shelf::Fault;
use super::told::{self, json_answer};
use super::{Later, STATUS_PATH};

type Answer = Response<Full<Bytes>>;

/// As many are listed unless more are asked for.
const USUAL_LIST: usize = 100;
const LONGEST_LIST: usize = 1_000;

impl Later {
    /// The answer to whoever was told the name of a request; `None` if the path is not about that.
    pub(in crate::gateway) async fn answer_client(&self, method: &Method, path: &str) -> Option<Answer> {
        let id = path.strip_prefix(STATUS_PATH)?;
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Some(message(StatusCode::METHOD_NOT_ALLOWED, "ask with GET what became of it"));
        }
        Some(match Id::parse(id) {
            Some(id) => self.look(id).await,
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
                Method::GET | Method::HEAD => self.list(query.unwrap_or_default()).await,
                _ => message(StatusCode::METHOD_NOT_ALLOWED, "use GET here"),
            });
        };
        let Some(id) = Id::parse(id) else { return Some(unknown()) };
        Some(match (method, action) {
            (&Method::GET | &Method::HEAD, None) => self.look(id).await,
            (&Method::DELETE, None) => self.discard(id).await,
            (&Method::POST, Some("again")) => self.again(id).await,
            _ => message(StatusCode::METHOD_NOT_ALLOWED, "use GET or DELETE, or POST /later/ID/again"),
        })
    }

    /// What is known of one: here, or by all gateways.
    async fn known(&self, id: Id) -> Result<Entry, Answer> {
        let found = match self.shelf.shared() {
            Some(redis) => redis.look(id).await.map_err(|fault| unreachable_now(&fault))?,
            None => self.lines.get(id),
        };
        found.ok_or_else(unknown)
    }

    async fn look(&self, id: Id) -> Answer {
        let entry = match self.known(id).await {
            Ok(entry) => entry,
            Err(answer) => return answer,
        };
        let mut answer = json_answer(StatusCode::OK, &told::status(&entry, self.lines.position(id)));
        if let Stage::Waiting { .. } | Stage::Begun = entry.state.stage {
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        answer
    }

    async fn list(&self, query: &str) -> Answer {
        let value = |name: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).next()
        };
        let wanted = value("state");
        if wanted.is_some_and(|state| !["waiting", "begun", "done", "dead"].contains(&state)) {
            return message(StatusCode::BAD_REQUEST, "`state` is waiting, begun, done or dead");
        }
        let most = value("limit").and_then(|limit| limit.parse().ok()).unwrap_or(USUAL_LIST).min(LONGEST_LIST);
        let is_wanted = |stage: &Stage| wanted.is_none_or(|state| state == told::state(stage));
        let (found, mut body) = match self.shelf.shared() {
            Some(redis) => match redis.overview(most).await {
                Ok(Overview { tally, mut entries }) => {
                    entries.retain(|entry| is_wanted(&entry.state.stage));
                    entries.truncate(most);
                    (entries, json!({"waiting": tally.waiting, "dead": tally.dead, "bytes": tally.bytes}))
                }
                Err(fault) => return unreachable_now(&fault),
            },
            None => {
                let Tally { waiting, begun, done, dead, bytes, .. } = self.lines.tally();
                let tally = json!({"waiting": waiting, "begun": begun, "done": done, "dead": dead, "bytes": bytes});
                (self.lines.list(most, is_wanted), tally)
            }
        };
        let told = found.iter().map(|entry| told::status(entry, self.lines.position(entry.id)));
        body["requests"] = told.collect::<Vec<Value>>().into();
        body["durable"] = self.shelf.is_durable().into();
        json_answer(StatusCode::OK, &body)
    }

    /// Forgets one, unless it is on its way.
    async fn discard(self: &Arc<Self>, id: Id) -> Answer {
        let entry = match self.known(id).await {
            Ok(entry) => entry,
            Err(answer) => return answer,
        };
        let on_its_way = || message(StatusCode::CONFLICT, "it is on its way: wait for what comes of it");
        if entry.state.stage == Stage::Begun {
            return on_its_way();
        }
        // From here on nobody begins with it here.
        let here = self.lines.get(id).filter(|here| here.state == entry.state && self.lines.remove(here));
        if here.is_none() && self.shelf.shared().is_none() {
            return on_its_way();
        }
        match self.shelf.remove(id).await {
            Ok(true) => {}
            Ok(false) => return on_its_way(),
            Err(fault) => {
                if let Some(here) = here {
                    self.take_in(here);
                }
                return unreachable_now(&fault);
            }
        }
        if !matches!(entry.state.stage, Stage::Done(_)) {
            self.counts.end(End::Removed);
        }
        let mut answer = Response::new(Full::default());
        *answer.status_mut() = StatusCode::NO_CONTENT;
        answer
    }

    /// Has one that was put aside done after all: at its old place in line, or in a Redis behind all others.
    async fn again(self: &Arc<Self>, id: Id) -> Answer {
        let entry = match self.known(id).await {
            Ok(entry) => entry,
            Err(answer) => return answer,
        };
        let not_aside = || message(StatusCode::CONFLICT, "only what was put aside can be done again");
        if !matches!(entry.state.stage, Stage::Dead { .. }) {
            return not_aside();
        }
        let waiting = Entry { state: State::waiting(self.now()), ..entry.clone() };
        let written = match self.shelf.shared() {
            Some(redis) => redis.again(&waiting).await,
            None => self.shelf.mark(&waiting).await,
        };
        match written {
            Ok(true) => {}
            Ok(false) => return not_aside(),
            Err(fault) => return unreachable_now(&fault),
        }
        if self.shelf.shared().is_some() {
            // It comes back as one that was kept just now.
            self.bell.notify_one();
        } else if let Some((_, true)) = self.lines.change(&entry, waiting.state.clone()) {
            self.serve(entry.line);
        }
        json_answer(StatusCode::ACCEPTED, &told::status(&waiting, self.lines.position(id)))
    }
}

fn unreachable_now(fault: &Fault) -> Answer {
    message(StatusCode::SERVICE_UNAVAILABLE, &fault.to_string())
}

fn unknown() -> Answer {
    message(StatusCode::NOT_FOUND, "there is no request of this name, or not any more")
}

fn message(status: StatusCode, message: &str) -> Answer {
    json_answer(status, &json!({"message": message}))
}
