//! tollgate's own commands: a question in, the verdict out.

use tollgate::{Clock as _, DescriptorStatus, Micros, ReservationId, Settled, Settlement, Toll, Verdict};

use super::commands::{COMMANDS, Kind, OPTIONS, Verb, find};
use super::parse::Command;
use super::question::{Question, number};
use super::reply::Replies;
use super::session::Session;
use super::throttle;
use crate::gate::Ask;
use crate::protocol::bounds::MOST_COST;

/// The longest that something is reserved for, in milliseconds: a day.
const LONGEST_HOLD: u64 = 24 * 60 * 60 * 1_000;

/// Answers one of these commands.
pub(super) async fn answer(session: &Session, command: Command<'_>, replies: &mut Replies<'_>) {
    let answered = match find(command.get(0).unwrap_or_default()).map(|known| known.kind) {
        Some(Kind::Question(verb)) => question(session, verb, command.after(1), replies).await,
        Some(Kind::Throttle) => {
            throttle::throttle_shared(session.gate(), command, replies).await;
            Ok(())
        }
        Some(Kind::Settle { keep }) => settle(session, keep, command.after(1), replies).await,
        _ => Ok(()),
    };
    if let Err(refusal) = answered {
        replies.error(refusal);
    }
}

async fn question(
    session: &Session,
    verb: Verb,
    mut words: Command<'_>,
    replies: &mut Replies<'_>,
) -> Result<(), String> {
    let mut hold = Micros::ZERO;
    if verb == Verb::Reserve {
        let millis = number("TG.RESERVE", words.get(0).unwrap_or_default())?;
        if !(1..=LONGEST_HOLD).contains(&millis) {
            return Err(format!("ERR TG.RESERVE holds for 1 to {LONGEST_HOLD} milliseconds"));
        }
        hold = Micros::from_millis(millis);
        words = words.after(1);
    }
    let question = Question::read(words)?;
    let domain = session.house.domain(question.domain).map_err(|several| format!("ERR {several}"))?;
    let descriptors = question.descriptors();
    let check = question.check(domain.as_str(), &descriptors);
    let gate = session.gate();
    if question.at.is_some() && verb != Verb::Refund {
        return Err("ERR AT is for TG.REFUND only".to_owned());
    }
    if matches!(verb, Verb::Ask(Ask::Renew | Ask::Release)) && check.lease == 0 {
        return Err("ERR there is no lease: write LEASE and the number that the check had".to_owned());
    }
    let asked = match verb {
        Verb::Ask(Ask::Spend) => gate.check(&check, |verdict| tell(verdict, None, replies)).await,
        Verb::Ask(ask) => gate.ask(ask, &check, |verdict| tell(verdict, None, replies)).await,
        Verb::Refund => {
            let charged_at = question.at.unwrap_or_else(|| gate.engine().clock().now());
            gate.ask(Ask::Refund(charged_at), &check, |verdict| tell(verdict, None, replies)).await
        }
        Verb::Reserve => {
            gate.reserve(&check, hold, |verdict, reservation| tell(verdict, Some(reservation), replies)).await
        }
        Verb::Explain => {
            replies.text(&gate.rules().explain(&check).to_string());
            // It looks at every rule, so a pipeline of these must not keep others waiting.
            tokio::task::yield_now().await;
            Ok(())
        }
    };
    asked.map_err(|error| format!("ERR {error}"))
}

/// The verdict as a map. `reserved` is there if something was to be reserved.
fn tell(verdict: &Verdict<'_>, reserved: Option<Option<ReservationId>>, replies: &mut Replies<'_>) {
    let by_descriptors = !verdict.descriptors.is_empty();
    let is_degraded = verdict.is_degraded();
    let more = [reserved.is_some(), by_descriptors, is_degraded];
    replies.map(8 + more.into_iter().filter(|there| *there).count());
    replies.bulk("allowed");
    replies.integer(i64::from(verdict.allowed));
    let binding = verdict.binding();
    tell_toll(verdict, binding, replies);
    replies.bulk("delay_ms");
    replies.count(millis(verdict.delay()));
    replies.bulk("at_us");
    replies.count(verdict.at.plus(verdict.delay()).as_micros());
    if let Some(reservation) = reserved {
        replies.bulk("reservation");
        match reservation {
            Some(ReservationId(number)) => replies.bulk(number.to_string()),
            None => replies.null(),
        }
    }
    if is_degraded {
        replies.bulk("degraded");
        replies.integer(1);
    }
    if by_descriptors {
        replies.bulk("descriptors");
        replies.array(verdict.descriptors.len());
        for status in &verdict.descriptors {
            tell_descriptor(verdict, status, replies);
        }
    }
}

fn tell_descriptor(verdict: &Verdict<'_>, status: &DescriptorStatus, replies: &mut Replies<'_>) {
    replies.map(6);
    replies.bulk("over_limit");
    replies.integer(i64::from(status.over_limit));
    tell_toll(verdict, verdict.binding_of(status), replies);
}

/// Five fields about the limit that decides, empty if none was asked.
fn tell_toll(verdict: &Verdict<'_>, toll: Option<&Toll>, replies: &mut Replies<'_>) {
    replies.bulk("rule");
    match toll.and_then(|toll| verdict.rule(toll)) {
        Some(rule) => replies.bulk(&*rule.name),
        None => replies.null(),
    }
    for (name, value) in
        [("limit", toll.map(|toll| toll.outcome.limit)), ("remaining", toll.map(|toll| toll.outcome.remaining))]
    {
        replies.bulk(name);
        match value {
            Some(value) => replies.count(value),
            None => replies.null(),
        }
    }
    replies.bulk("retry_after_ms");
    match toll.map(|toll| toll.outcome.retry_after) {
        Some(None) => replies.integer(-1),
        Some(Some(wait)) => replies.count(millis(wait)),
        None => replies.integer(0),
    }
    replies.bulk("reset_after_ms");
    replies.count(toll.map_or(0, |toll| millis(toll.outcome.reset_after)));
}

/// Rounded up: whoever waits so long has waited long enough.
fn millis(span: Micros) -> u64 {
    span.as_micros().div_ceil(1_000)
}

async fn settle(session: &Session, keep: bool, words: Command<'_>, replies: &mut Replies<'_>) -> Result<(), String> {
    let reservation = ReservationId(number("a reservation", words.get(0).unwrap_or_default())?);
    let mut actual = Vec::new();
    for word in words.after(1).iter() {
        let needed = number("what was needed", word)?;
        if needed > MOST_COST {
            return Err(format!("ERR a cost is above {MOST_COST}"));
        }
        actual.push(needed);
    }
    let settlement = match (keep, actual.as_slice()) {
        (false, _) => Settlement::Cancel,
        (true, []) => Settlement::Commit,
        (true, actual) => Settlement::CommitActual(actual),
    };
    let settled = session.gate().settle(reservation, settlement).await.map_err(|error| format!("ERR {error}"))?;
    replies.integer(i64::from(settled == Settled::Done));
    Ok(())
}

/// `TG.HELP`.
pub(super) fn help(replies: &mut Replies<'_>) {
    let own = || COMMANDS.iter().filter(|known| !known.usage.is_empty());
    replies.array(own().count() * 2 + OPTIONS.len());
    for known in own() {
        replies.simple(known.usage);
        replies.simple(&format!("    {}", known.summary));
    }
    for line in OPTIONS {
        replies.simple(line);
    }
}
