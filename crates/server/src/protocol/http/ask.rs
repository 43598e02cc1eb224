//! The questions of the API: a body to a check, the gate's verdict to a body.

use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tollgate::{Check, Clock as _, Concurrency, Micros, RuleSet, Settled, Settlement, Verdict, join_all};
use tollgate_core::Algorithm;
use tollgate_rules::Subject;

use super::HttpService;
use super::answer::{self, Answer, Form, Refusal};
use super::question::{self, Beside, Question, Room};
use super::route::Asked;
use super::settle::{self, Cancel, Commit, Reservation};
use super::told::{self, Extras};
use crate::gate::Ask;
use crate::protocol::bounds::{MOST_ATTRIBUTES, MOST_DESCRIPTORS, MOST_ENTRIES};

/// For how long a reservation holds if nobody says.
const HOLD: Micros = Micros::from_secs(30);
/// And at most.
const LONGEST_HOLD: Micros = Micros::DAY;

impl HttpService {
    pub(super) async fn ask(&self, asked: Asked, body: &[u8], form: Form) -> Result<Answer, Refusal> {
        match asked {
            Asked::Check => self.plain(Ask::Spend, body, form).await,
            // Boxed, so that room for all of them is not moved with every check.
            other => Box::pin(self.ask_other(other, body, form)).await,
        }
    }

    async fn ask_other(&self, asked: Asked, body: &[u8], form: Form) -> Result<Answer, Refusal> {
        let gate = &*self.house.gate;
        match asked {
            Asked::Check => self.plain(Ask::Spend, body, form).await,
            Asked::Peek => self.plain(Ask::Peek, body, form).await,
            Asked::Force => self.plain(Ask::Force, body, form).await,
            Asked::Refund => {
                let question = question::question(body, Beside::ChargedAt)?;
                let charged_at = question.charged_at.unwrap_or_else(|| gate.engine().clock().now());
                self.put(Ask::Refund(charged_at), &question, form).await
            }
            Asked::Reserve => self.reserve(body, form).await,
            Asked::Commit => {
                let Commit { reservation, actual } = serde_json::from_slice(body)?;
                let Some(reservation) = reservation else { return Ok(settled()) };
                let actual = actual.map(|actual| reservation.actual(&actual)).transpose().map_err(Refusal::bad)?;
                let settlement = actual.as_deref().map_or(Settlement::Commit, Settlement::CommitActual);
                self.settle(&reservation, settlement).await
            }
            Asked::Cancel => match serde_json::from_slice::<Cancel<'_>>(body)?.reservation {
                Some(reservation) => self.settle(&reservation, Settlement::Cancel).await,
                None => Ok(settled()),
            },
            Asked::Acquire => {
                let mut question = question::question(body, Beside::Nothing)?;
                if question.lease.is_none_or(|lease| lease == 0) {
                    question.lease = Some(random()?);
                }
                self.put(Ask::Spend, &question, form).await
            }
            Asked::Renew => self.put(Ask::Renew, &of_a_lease(body)?, form).await,
            Asked::Release => self.put(Ask::Release, &of_a_lease(body)?, form).await,
            Asked::Batch => self.batch(body).await,
            Asked::Explain => self.explain(body).await,
        }
    }

    /// A question without anything beside it.
    async fn plain(&self, ask: Ask, body: &[u8], form: Form) -> Result<Answer, Refusal> {
        self.put(ask, &question::question(body, Beside::Nothing)?, form).await
    }

    async fn put(&self, ask: Ask, question: &Question<'_>, form: Form) -> Result<Answer, Refusal> {
        let domain = self.house.domain(question.domain.as_deref())?;
        let mut room = Room::default();
        let check = question.check(domain.as_str(), &mut room);
        let manner = self.house.settings.manner();
        let lease = question.lease;
        let tell = |verdict: &Verdict<'_>| match ask {
            Ask::Renew if verdict.denied() => {
                let gone = "there is no such lease any more: it has expired or was released; acquire another";
                Refusal::new(StatusCode::NOT_FOUND, gone).into_answer(form)
            }
            // What is charged or given back in any case is no denial.
            Ask::Force | Ask::Refund(_) | Ask::Release => {
                answer::verdict_told(verdict, manner, &leased(verdict, lease, ask))
            }
            _ => answer::answer(verdict, manner, form, &leased(verdict, lease, ask)),
        };
        let answered = match ask {
            Ask::Spend => self.house.gate.check(&check, tell).await,
            _ => self.house.gate.ask(ask, &check, tell).await,
        };
        Ok(answered?)
    }

    async fn reserve(&self, body: &[u8], form: Form) -> Result<Answer, Refusal> {
        let question = question::question(body, Beside::Hold)?;
        let hold = question.hold.unwrap_or(HOLD);
        if hold.is_zero() || hold > LONGEST_HOLD {
            return Err(Refusal::bad(format!("`hold` is {hold}: write more than 0 and at most {LONGEST_HOLD}")));
        }
        let domain = self.house.domain(question.domain.as_deref())?;
        let mut room = Room::default();
        let check = question.check(domain.as_str(), &mut room);
        let manner = self.house.settings.manner();
        let answered = self.house.gate.reserve(&check, hold, |verdict, reservation| {
            let extras = if verdict.allowed {
                let name = reservation.map(|reservation| settle::name(reservation, verdict));
                Extras { reservation: Some(name), hold: Some(hold), ..Extras::default() }
            } else {
                Extras::default()
            };
            answer::answer(verdict, manner, form, &extras)
        });
        Ok(answered.await?)
    }

    async fn settle(&self, reservation: &Reservation<'_>, settlement: Settlement<'_>) -> Result<Answer, Refusal> {
        match self.house.gate.settle(reservation.id, settlement).await? {
            Settled::Done => Ok(settled()),
            Settled::Unknown => Err(Refusal::new(
                StatusCode::NOT_FOUND,
                "there is no such reservation: it was settled before, it has expired and was given back, or it never was",
            )),
        }
    }

    /// Each is answered on its own. Nothing is asked unless all of them can be.
    async fn batch(&self, body: &[u8]) -> Result<Answer, Refusal> {
        let question::Batch { domain: of_all, checks } = question::batch(body)?;
        let mut domains = Vec::with_capacity(checks.len());
        for question in &checks {
            let named = question.domain.as_deref().or(of_all.as_deref());
            domains.push(self.house.domain(named)?);
        }
        // Asked in their order, and waited for all at once.
        let answers = checks.iter().zip(&domains).map(|(question, domain)| async {
            let mut room = Room::default();
            let check = question.check(domain.as_str(), &mut room);
            let mut text = Vec::with_capacity(512);
            let tell = |verdict: &Verdict<'_>| told::object(&mut text, verdict, &Extras::default());
            self.house.gate.check(&check, tell).await.map(|()| text)
        });
        let mut text = Vec::with_capacity(512 * checks.len());
        text.extend_from_slice(b"{\"answers\":[");
        let answers = tollgate_redis::at_once(checks.len(), join_all(answers)).await;
        for (number, answer) in answers.into_iter().enumerate() {
            if number > 0 {
                text.push(b',');
            }
            text.extend_from_slice(&answer?);
        }
        text.extend_from_slice(b"]}");
        Ok(answer::with_type(StatusCode::OK, text, http::HeaderValue::from_static("application/json")))
    }

    async fn explain(&self, body: &[u8]) -> Result<Answer, Refusal> {
        let question = question::question(body, Beside::Nothing)?;
        let domain = self.house.domain(question.domain.as_deref())?;
        let mut room = Room::default();
        let check = question.check(domain.as_str(), &mut room);
        let explained = Explained::new(&self.house.gate.rules(), &check);
        let tell = |verdict: &Verdict<'_>| {
            // Only maps with keys that are no strings fail, and there are none.
            let mut text = serde_json::to_vec(&explained).unwrap_or_default();
            text.pop();
            told::raw(&mut text, r#","answer":"#);
            told::object(&mut text, verdict, &Extras::default());
            text.push(b'}');
            answer::with_type(StatusCode::OK, answer::line(text), http::HeaderValue::from_static("application/json"))
        };
        Ok(self.house.gate.ask(Ask::Peek, &check, tell).await?)
    }
}

/// The answer of a settlement that took effect.
fn settled() -> Answer {
    answer::json(StatusCode::OK, &json!({"settled": true}))
}

/// A question about slots that somebody holds.
fn of_a_lease(body: &[u8]) -> Result<Question<'_>, Refusal> {
    let question = question::question(body, Beside::Nothing)?;
    match question.lease {
        // Zero is nobody's lease.
        Some(1..) => Ok(question),
        None | Some(0) => Err(Refusal::bad("there is no `lease`: write the one that /v1/acquire answered")),
    }
}

fn random() -> Result<u64, Refusal> {
    let broken = |_| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the system has no random numbers");
    // Zero is nobody's lease.
    Ok(getrandom::u64().map_err(broken)?.max(1))
}

/// What there is to know about the lease of a question.
fn leased(verdict: &Verdict<'_>, lease: Option<u64>, ask: Ask) -> Extras {
    let Some(lease) = lease.filter(|_| verdict.allowed) else { return Extras::default() };
    let slots = verdict.tolls.iter().filter(|toll| !toll.shadow).filter_map(|toll| {
        match verdict.limit(toll)?.limit.algorithm() {
            Algorithm::Concurrency(Concurrency { lease, .. }) => Some(*lease),
            _ => None,
        }
    });
    let expires_after = slots.min().filter(|_| matches!(ask, Ask::Spend | Ask::Renew));
    Extras { lease: Some(lease), expires_after, ..Extras::default() }
}

/// Why a check meets the rules that it meets.
#[derive(Serialize)]
struct Explained {
    domain: String,
    domain_exists: bool,
    considered: Vec<Considered>,
    left_out: usize,
    text: String,
}

#[derive(Serialize)]
struct Considered {
    rule: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    descriptor: Option<usize>,
    applies: bool,
    why: String,
}

impl Explained {
    fn new(rules: &RuleSet, check: &Check<'_>) -> Self {
        let explanation = rules.explain(check);
        let considered = explanation.considered.iter().map(|one| Considered {
            rule: one.rule.rule().name.to_string(),
            descriptor: one.descriptor,
            applies: matches!(one.fate, tollgate::rules::Fate::Applies(_)),
            why: one.fate.to_string(),
        });
        Self {
            considered: considered.collect(),
            text: explanation.to_string(),
            domain_exists: explanation.domain_exists,
            left_out: explanation.left_out,
            domain: explanation.domain,
        }
    }
}

/// See [`super::fuzz_bodies`].
pub(super) fn fuzz_bodies(bytes: &[u8], rules: &RuleSet) -> Result<(), String> {
    let mut questions = Vec::new();
    let mut refusals = Vec::new();
    for beside in [Beside::Nothing, Beside::Hold, Beside::ChargedAt] {
        match question::question(bytes, beside) {
            Ok(question) => questions.push(question),
            Err(error) => refusals.push(error),
        }
    }
    match question::batch(bytes) {
        Ok(batch) => questions.extend(batch.checks),
        Err(error) => refusals.push(error),
    }
    match serde_json::from_slice::<Commit<'_>>(bytes) {
        Ok(Commit { reservation: Some(reservation), actual: Some(actual) }) => {
            let _ = reservation.actual(&actual);
        }
        Ok(_) => {}
        Err(error) => refusals.push(error),
    }
    refusals.extend(Cancel::deserialize(&mut serde_json::Deserializer::from_slice(bytes)).err());
    for question in &questions {
        let mut room = Room::default();
        let check = question.check("example", &mut room);
        let is_bounded = match check.subject {
            Subject::Attributes(pairs) => pairs.len() <= MOST_ATTRIBUTES,
            Subject::Descriptors(all) => {
                all.len() <= MOST_DESCRIPTORS && all.iter().all(|one| one.entries.len() <= MOST_ENTRIES)
            }
        };
        if !is_bounded {
            return Err(format!("too much was understood: {question:?}"));
        }
        let explained = Explained::new(rules, &check);
        if serde_json::to_vec(&explained).is_err() {
            return Err(format!("this cannot be explained: {question:?}"));
        }
    }
    for error in refusals {
        let refusal = Refusal::from(error);
        if refusal.status != StatusCode::BAD_REQUEST || refusal.detail.len() < 10 || refusal.detail.len() > 20_000 {
            return Err(format!("this is no reason: {refusal:?}"));
        }
    }
    Ok(())
}
