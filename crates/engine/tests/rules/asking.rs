//! A rule file, a clock to turn, and short ways to ask.

use tollgate::rules::Override;
use tollgate::{
    Attribute, Check, Descriptor, Engine, ManualClock, MemoryStore, Micros, RuleSet, StatusKind, Timestamp, Tollgate,
    Verdict,
};

/// A full hour: 2023-11-14T22:00:00Z, of a Tuesday.
pub(crate) const START: Timestamp = Timestamp::from_secs(1_699_999_200);

pub(crate) type Gate = Tollgate<MemoryStore, ManualClock>;

#[track_caller]
pub(crate) fn rules(text: &str) -> RuleSet {
    RuleSet::from_yaml(text).unwrap_or_else(|wrong| panic!("{}", wrong.render(false)))
}

/// Rules at [`START`].
#[track_caller]
pub(crate) fn gate(text: &str) -> Gate {
    Tollgate::with_engine(rules(text), Engine::with_clock(MemoryStore::new(), ManualClock::at(START)))
}

pub(crate) fn advance(gate: &Gate, by: Micros) {
    gate.engine().clock().advance(by);
}

/// `a=1 b=2` as entries.
pub(crate) fn entries(text: &str) -> Vec<Attribute<'_>> {
    text.split_whitespace().map(|entry| entry.split_once('=').unwrap_or((entry, ""))).collect()
}

/// What a memory store answers is there at once.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(answer) => answer,
        std::task::Poll::Pending => panic!("nothing to wait for"),
    }
}

/// Asks by attributes in the domain `d`, at a cost.
pub(crate) fn ask(gate: &Gate, attributes: &str, cost: u64) -> Verdict<'static> {
    ready(gate.check(&Check::attributes("d", &entries(attributes)).cost(cost))).unwrap()
}

/// How many of so many single requests pass.
pub(crate) fn passing(gate: &Gate, attributes: &str, tries: u64) -> u64 {
    (0..tries).map(|_| u64::from(ask(gate, attributes, 1).allowed)).sum()
}

/// One descriptor of a request.
#[derive(Clone, Copy, Default)]
pub(crate) struct Asked<'a> {
    pub(crate) entries: &'a str,
    pub(crate) cost: Option<u64>,
    pub(crate) limit: Option<Override>,
    pub(crate) refund: bool,
}

pub(crate) fn of(entries: &str) -> Asked<'_> {
    Asked { entries, ..Asked::default() }
}

pub(crate) fn costing(entries: &str, cost: u64) -> Asked<'_> {
    Asked { entries, cost: Some(cost), ..Asked::default() }
}

/// Asks by descriptors in `domain`.
pub(crate) fn request_in(gate: &Gate, domain: &str, asked: &[Asked<'_>]) -> Verdict<'static> {
    let all: Vec<Vec<Attribute<'_>>> = asked.iter().map(|asked| entries(asked.entries)).collect();
    let descriptors: Vec<Descriptor<'_>> = asked
        .iter()
        .zip(&all)
        .map(|(asked, entries)| Descriptor { entries, limit: asked.limit, cost: asked.cost, refund: asked.refund })
        .collect();
    ready(gate.check(&Check::descriptors(domain, &descriptors))).unwrap()
}

/// The same in the domain `d`.
pub(crate) fn request(gate: &Gate, asked: &[Asked<'_>]) -> Verdict<'static> {
    request_in(gate, "d", asked)
}

/// What Envoy is told of one descriptor: `OK 3/5`, `OVER 0/5`, `OK -` without a limit, `OK unlimited`.
pub(crate) fn status(verdict: &Verdict, at: usize) -> String {
    let status = &verdict.descriptors[at];
    let code = if status.over_limit { "OVER" } else { "OK" };
    match (status.kind, verdict.tolls_of(status)) {
        (StatusKind::NoLimit | StatusKind::Replaced, []) => format!("{code} -"),
        (StatusKind::Unlimited, []) => format!("{code} unlimited"),
        (StatusKind::Counted | StatusKind::Quota, [toll]) => {
            format!("{code} {}/{}", toll.outcome.remaining, toll.outcome.limit)
        }
        (kind, tolls) => panic!("{kind:?} {tolls:?}"),
    }
}

/// One descriptor alone, and what became of it. The whole is denied if and only if it is.
pub(crate) fn alone(gate: &Gate, asked: Asked<'_>) -> String {
    let verdict = request(gate, &[asked]);
    assert_eq!(verdict.descriptors.len(), 1);
    assert_eq!(verdict.denied(), verdict.descriptors[0].over_limit);
    status(&verdict, 0)
}
