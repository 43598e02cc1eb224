//! The figures that can be shown: their rules, their arrivals and what to see in them.
//!
//! Times, limits and verdicts are those of the book's chapter on rate limiters where it gives them; where a figure
//! adds a request of its own, its note says so. Numbers in the notes are taken from the runs.

use tollgate_core::{
    Ask, Concurrency, FixedWindow, Intent, LeakyBucket, Limit, LimitError, Micros, Outcome, Pacing, Rate, Rounding,
    SlidingCounter, SlidingLog, State, Timestamp, TokenBucket, Window,
};

use super::draw::{Axis, Strip};
use super::scene::{Gauge, admitted_between, judge};

/// A figure by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    build: fn() -> Result<Figure, LimitError>,
}

impl Entry {
    /// Whether it is a figure of the book.
    pub(crate) fn is_numbered(&self) -> bool {
        self.id.starts_with(|first: char| first.is_ascii_digit())
    }

    pub(crate) fn build(&self) -> Result<Figure, LimitError> {
        (self.build)()
    }
}

/// All of them, in the order in which they are best seen.
pub(crate) const FIGURES: [Entry; 9] = [
    Entry { id: "4-4", title: "Token bucket", build: token_bucket },
    Entry { id: "4-6", title: "Token bucket, two ways to refill", build: refills },
    Entry { id: "4-7", title: "Leaky bucket, a queue", build: leaky_queue },
    Entry { id: "4-8", title: "Fixed window", build: fixed_window },
    Entry { id: "4-9", title: "The burst at the boundary", build: boundary_burst },
    Entry { id: "4-10", title: "Sliding window log", build: sliding_log },
    Entry { id: "4-11", title: "Sliding window counter", build: sliding_counter },
    Entry { id: "concurrency", title: "At most so many at a time", build: concurrency },
    Entry { id: "pacing", title: "A budget that lasts the day", build: pacing },
];

/// What is to be drawn.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// The limit in words.
    pub(crate) rule: &'static str,
    pub(crate) axis: Axis,
    pub(crate) parts: Vec<Part>,
    /// What to see.
    pub(crate) note: String,
}

/// A part of a figure, from top to bottom.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// A limit and what comes to it.
    Run(Box<Run>),
    /// Something that is drawn as it stands.
    Strip(Strip),
}

impl From<Run> for Part {
    fn from(run: Run) -> Self {
        Self::Run(Box::new(run))
    }
}

impl From<Strip> for Part {
    fn from(strip: Strip) -> Self {
        Self::Strip(strip)
    }
}

impl Part {
    pub(crate) fn labels(&self) -> Vec<&str> {
        match self {
            Self::Run(run) if run.gauge == Gauge::Waiting => vec![run.label, run.gauge_label, DEPARTURES],
            Self::Run(run) => vec![run.label, run.gauge_label],
            Self::Strip(Strip::Span { label, .. } | Strip::Refusal { label, .. }) => vec![label],
            Self::Strip(_) => vec![],
        }
    }
}

/// The label of the row below a queue.
pub(crate) const DEPARTURES: &str = "departures";

/// A limit and what comes to it.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) label: &'static str,
    pub(crate) limit: Limit,
    pub(crate) arrivals: Vec<Timestamp>,
    pub(crate) gauge: Gauge,
    pub(crate) gauge_label: &'static str,
    /// The largest value of the gauge.
    pub(crate) full: u64,
}

fn token_bucket() -> Result<Figure, LimitError> {
    let limit = Limit::new(TokenBucket::new(Rate::per_second(2)).burst(4))?;
    let arrivals =
        instants(&[500, 500, 500, 500, 500, 750, 1_000, 1_250, 1_500, 2_000, 5_500, 5_500, 5_500, 5_500, 5_500]);
    let run = Run { label: "requests", limit, arrivals, gauge: Gauge::Left, gauge_label: "tokens", full: 4 };
    Ok(Figure {
        rule: "Holds 4 tokens. 2 flow in each second, evenly, and overflow when it is full. A request takes one.",
        axis: seconds_axis(7),
        parts: vec![run.into(), Strip::Axis.into()],
        note:
            "Five at once: four pass and empty the bucket. Then one passes each half second, as tokens come. After a \
               pause there are four again and no more: what overflowed is gone."
                .into(),
    })
}

fn refills() -> Result<Figure, LimitError> {
    let bucket = TokenBucket::new(Rate::per_minute(4));
    let arrivals = clocks(&[(1, 0, 0), (1, 0, 5), (1, 0, 5), (1, 0, 5), (1, 0, 20), (1, 0, 40), (1, 1, 0), (1, 1, 10)]);
    let run = |label, bucket| {
        let limit = Limit::new(bucket)?;
        let arrivals = arrivals.clone();
        Ok(Run { label, limit, arrivals, gauge: Gauge::Left, gauge_label: "tokens", full: 4 }.into())
    };
    Ok(Figure {
        rule: "Holds 4 tokens, 4 come in a minute: all four at the full minute, or one every 15 seconds.",
        axis: clock_axis(&[(1, 0, 0), (1, 0, 20), (1, 0, 40), (1, 1, 0), (1, 1, 20)]),
        parts: vec![
            run("at intervals", bucket.refill_at_intervals())?,
            Strip::Gap.into(),
            run("evenly", bucket)?,
            Strip::Axis.into(),
        ],
        note: "The same eight requests. With the upper bucket whoever comes at 1:00:20 has to wait for 1:01:00, as in \
               the book; with the lower one a token has come by then."
            .into(),
    })
}

fn leaky_queue() -> Result<Figure, LimitError> {
    let limit = Limit::new(LeakyBucket::queue(Rate::per_second(1), 4))?;
    let arrivals = instants(&[500, 500, 500, 500, 500, 500, 500, 3_000, 7_000]);
    let run = Run { label: "arrivals", limit, arrivals, gauge: Gauge::Waiting, gauge_label: "waiting", full: 4 };
    Ok(Figure {
        rule: "One leaves each second, in the order they came. 4 may wait; who comes while 4 do is denied.",
        axis: seconds_axis(9),
        parts: vec![run.into(), Strip::Axis.into()],
        note:
            "However they come, they leave one second apart. Each one is told at once how long it will wait, so nobody \
               has to keep a queue: g comes to an empty one and leaves as it comes."
                .into(),
    })
}

fn fixed_window() -> Result<Figure, LimitError> {
    let limit = Limit::new(FixedWindow::new(3, Micros::SECOND))?;
    let arrivals = instants(&[200, 600, 1_100, 1_300, 1_500, 1_700, 1_900, 2_200, 2_400, 2_600, 2_800, 3_400]);
    let run = Run { label: "requests", limit, arrivals, gauge: Gauge::Taken, gauge_label: "count", full: 3 };
    Ok(Figure {
        rule: "3 requests in each second of the clock.",
        axis: seconds_axis(4),
        parts: vec![run.into(), Strip::Axis.into()],
        note: "The count starts anew at each full second. The fourth of a second is denied, however soon it ends."
            .into(),
    })
}

fn boundary_burst() -> Result<Figure, LimitError> {
    let early = [37, 42, 47, 52, 57].map(|second| (2, 0, second));
    let late = [2, 7, 12, 17, 22, 30, 50].map(|second| (2, 1, second));
    let arrivals = clocks(&[early.as_slice(), late.as_slice()].concat());
    let run = |label, limit| Run {
        label,
        limit,
        arrivals: arrivals.clone(),
        gauge: Gauge::Taken,
        gauge_label: "count",
        full: 5,
    };
    let fixed = run("fixed window", Limit::new(FixedWindow::new(5, Micros::MINUTE))?);
    let log = run("sliding log", Limit::new(SlidingLog::new(5, Micros::MINUTE))?);
    let counter = run("sliding counter", Limit::new(SlidingCounter::new(5, Micros::MINUTE))?);
    let (from, to) = (clock(2, 0, 30), clock(2, 1, 30));
    let within = |run: &Run| admitted_between(&judge(&run.limit, &run.arrivals), from, to);
    let note = format!(
        "One minute from 2:00:30 to 2:01:30: the fixed window lets {} through, twice its limit, although each of its own \
         minutes has only 5. The log lets {} through, exactly. The counter keeps two numbers instead of every request; it \
         estimates, and lets {} through. The last two requests are ours.",
        within(&fixed),
        within(&log),
        within(&counter)
    );
    let bracket = Strip::Bracket { from, to, remark: "one minute".into() };
    Ok(Figure {
        rule: "5 requests per minute, kept in three ways.",
        axis: clock_axis(&[(2, 0, 0), (2, 0, 30), (2, 1, 0), (2, 1, 30), (2, 2, 0)]),
        parts: vec![
            fixed.into(),
            Strip::Gap.into(),
            log.into(),
            Strip::Gap.into(),
            counter.into(),
            Strip::Axis.into(),
            bracket.into(),
        ],
        note,
    })
}

fn sliding_log() -> Result<Figure, LimitError> {
    let spec = SlidingLog::new(2, Micros::MINUTE);
    let arrivals = clocks(&[(1, 0, 1), (1, 0, 30), (1, 0, 50), (1, 1, 40), (1, 1, 45)]);
    let run = |label, spec: SlidingLog| {
        let limit = Limit::new(spec)?;
        let arrivals = arrivals.clone();
        Ok(Run { label, limit, arrivals, gauge: Gauge::Taken, gauge_label: "in the log", full: 2 }.into())
    };
    Ok(Figure {
        rule: "2 requests in any minute, wherever it begins.",
        axis: clock_axis(&[(1, 0, 0), (1, 0, 30), (1, 1, 0), (1, 1, 30), (1, 2, 0)]),
        parts: vec![
            run("allowed only", spec)?,
            Strip::Gap.into(),
            run("denied as well", spec.record_rejected())?,
            Strip::Axis.into(),
        ],
        note: "1:00:50 is denied, 1:01:40 allowed: by then the first two are more than a minute old. The book keeps \
               denied requests in the log too; then 1:00:50 still counts at 1:01:45 (that one is ours), and who keeps \
               knocking stays out. By default only what was allowed is kept."
            .into(),
    })
}

fn sliding_counter() -> Result<Figure, LimitError> {
    let spec = SlidingCounter::new(7, Micros::MINUTE);
    let previous = [6, 18, 30, 42, 54].map(|second| (1, 0, second));
    let current = [4, 9, 14, 18, 18].map(|second| (1, 1, second));
    let arrivals = clocks(&[previous.as_slice(), current.as_slice()].concat());
    let run = |label, spec: SlidingCounter| -> Result<Run, LimitError> {
        let limit = Limit::new(spec)?;
        let arrivals = arrivals.clone();
        Ok(Run { label, limit, arrivals, gauge: Gauge::Taken, gauge_label: "estimate", full: 7 })
    };
    let floor = run("rounded down", spec.rounding(Rounding::Floor))?;
    let exact = run("not rounded", spec)?;
    let verdicts = judge(&exact.limit, &exact.arrivals);
    let now = clock(1, 1, 18);
    let before = admitted_between(&verdicts, clock(1, 0, 0), clock(1, 0, 59));
    let since = admitted_between(&verdicts, clock(1, 1, 0), now);
    let wait = verdicts.last().and_then(|verdict| verdict.outcome.retry_after).unwrap_or(Micros::ZERO);
    let tenths = since * 10 + before * 7;
    let note = format!(
        "At 1:01:18, 30 % of the minute have passed and 70 % of the last one still count: {since} + {before} × 0.7 = \
         {}.{}. Rounded down to {}, as in the book, one more fits and the next does not. The default does not round: \
         one more would be above 7, and the answer says when it will fit: in {wait}.",
        tenths / 10,
        tenths % 10,
        tenths / 10,
    );
    Ok(Figure {
        rule: "7 requests in a rolling minute: this minute's, and the last one's as far as it still reaches.",
        axis: clock_axis(&[(1, 0, 0), (1, 0, 30), (1, 1, 0), (1, 1, 18), (1, 2, 0)]),
        parts: vec![floor.into(), Strip::Gap.into(), exact.into(), Strip::Axis.into()],
        note,
    })
}

fn concurrency() -> Result<Figure, LimitError> {
    let limit = Limit::new(Concurrency::new(2, Micros::from_secs(6)))?;
    let mut state = State::default();
    let mut ask = |lease: u64, at: u64, intent: Intent| {
        let ask = Ask::spend(1, instant(at)).with_intent(intent);
        limit.apply(&mut state, &Ask { lease, ..ask })
    };
    let holder = |label: &str, outcome: Outcome, from: u64, to: u64, remark: &str| {
        let (label, from, to) = (label.to_owned(), instant(from), instant(to));
        let wait = outcome.retry_after.unwrap_or(Micros::ZERO);
        Part::Strip(match outcome.allowed {
            true => Strip::Span { label, from, to, remark: remark.into() },
            false => Strip::Refusal { label, at: from, remark: format!("denied: ask again in {wait}") },
        })
    };
    let first = ask(1, 500, Intent::Spend);
    let second = ask(2, 1_500, Intent::Spend);
    let third = ask(3, 2_500, Intent::Spend);
    ask(1, 4_000, Intent::Refund { charged_at: instant(500) });
    let fourth = ask(4, 4_500, Intent::Spend);
    let fifth = ask(5, 8_000, Intent::Spend);
    Ok(Figure {
        rule: "2 at a time, each for at most 6 seconds unless it renews its lease.",
        axis: seconds_axis(10),
        parts: vec![
            holder("a", first, 500, 4_000, "done"),
            holder("b", second, 1_500, 7_500, "lease over"),
            holder("c", third, 2_500, 2_500, ""),
            holder("d", fourth, 4_500, 10_000, ""),
            holder("e", fifth, 8_000, 10_000, ""),
            Strip::Axis.into(),
        ],
        note:
            "c comes while both slots are held. a gives its slot back and d takes it. b crashed and never will, so its \
               lease ends and e takes that one. The time that c is told is the end of the first lease: the longest it \
               can take."
                .into(),
    })
}

fn pacing() -> Result<Figure, LimitError> {
    let arrivals: Vec<_> = (0..48).map(|half_hours| clock(0, 30 * half_hours, 0)).collect();
    let run = |label, limit: Limit| Run {
        label,
        limit,
        arrivals: arrivals.clone(),
        gauge: Gauge::Admitted,
        gauge_label: "spent",
        full: 12,
    };
    let fixed = run("fixed window", Limit::new(FixedWindow::new(12, Micros::DAY))?);
    let paced = run("paced", Limit::new(Pacing::new(12, Window::clock(Micros::DAY)))?);
    let ticks = (0..=4).map(|quarter| (clock(6 * quarter, 0, 0), format!("{}:00", 6 * quarter))).collect();
    Ok(Figure {
        rule: "A budget of 12 a day, with someone asking every half hour.",
        axis: Axis { from: clock(0, 0, 0), to: clock(24, 0, 0), ticks },
        parts: vec![fixed.into(), Strip::Gap.into(), paced.into(), Strip::Axis.into()],
        note: "Both spend 12. A plain daily limit is used up before six in the morning; pacing keeps to the straight \
               line, and what a quiet hour does not spend is there for the next."
            .into(),
    })
}

/// The day on which all figures take place. Any would do.
const MIDNIGHT: Timestamp = Timestamp::from_secs(20_000 * 86_400);

fn clock(hours: u64, minutes: u64, seconds: u64) -> Timestamp {
    MIDNIGHT.plus(Micros::from_secs(hours * 3_600 + minutes * 60 + seconds))
}

fn clocks(times: &[(u64, u64, u64)]) -> Vec<Timestamp> {
    times.iter().map(|&(hours, minutes, seconds)| clock(hours, minutes, seconds)).collect()
}

fn clock_axis(times: &[(u64, u64, u64)]) -> Axis {
    let name = |(hours, minutes, seconds): (u64, u64, u64)| format!("{hours}:{minutes:02}:{seconds:02}");
    let ticks: Vec<_> = clocks(times).into_iter().zip(times.iter().map(|&time| name(time))).collect();
    let end = |tick: Option<&(Timestamp, String)>| tick.map_or(MIDNIGHT, |(at, _)| *at);
    Axis { from: end(ticks.first()), to: end(ticks.last()), ticks }
}

fn instant(millis: u64) -> Timestamp {
    MIDNIGHT.plus(Micros::from_millis(millis))
}

fn instants(millis: &[u64]) -> Vec<Timestamp> {
    millis.iter().map(|&millis| instant(millis)).collect()
}

fn seconds_axis(seconds: u64) -> Axis {
    let ticks = (0..=seconds).map(|second| (instant(second * 1_000), format!("{second}s"))).collect();
    Axis { from: instant(0), to: instant(seconds * 1_000), ticks }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verdicts of each run of a figure: `o` for allowed, `x` for denied, runs apart by a stroke.
    fn transcript(id: &str) -> String {
        let entry = FIGURES.iter().find(|entry| entry.id == id).unwrap();
        let figure = entry.build().unwrap();
        let runs = figure.parts.iter().filter_map(|part| match part {
            Part::Run(run) => Some(judge(&run.limit, &run.arrivals)),
            Part::Strip(_) => None,
        });
        let line = |allowed: bool| if allowed { 'o' } else { 'x' };
        let lines: Vec<String> =
            runs.map(|verdicts| verdicts.iter().map(|verdict| line(verdict.outcome.allowed)).collect()).collect();
        lines.join("/")
    }

    #[test]
    fn verdicts_are_those_of_the_book() {
        let table = [
            ("4-4", "oooox xoxo o oooox"),
            ("4-6", "o ooo x x o o / o ooo o o o o"),
            ("4-7", "oooooxx o o"),
            ("4-8", "oo oooxx ooox o"),
            ("4-9", "ooooo ooooo x x / ooooo xxxxx x o / ooooo xxoxx o o"),
            ("4-10", "o o x o o / o o x o x"),
            ("4-11", "ooooo ooo ox / ooooo ooo xx"),
            (
                "pacing",
                "oooooooooooo xxxxxxxxxxxx xxxxxxxxxxxx xxxxxxxxxxxx / oxxxoxxxoxxx oxxxoxxxoxxx oxxxoxxxoxxx oxxxoxxxoxxx",
            ),
        ];
        for (id, expected) in table {
            assert_eq!(transcript(id), expected.replace(' ', ""), "figure {id}");
        }
    }

    #[test]
    fn slots_are_held_until_given_back_or_until_the_lease_ends() {
        let figure = concurrency().unwrap();
        let held: String = figure
            .parts
            .iter()
            .filter_map(|part| match part {
                Part::Strip(Strip::Span { .. }) => Some('o'),
                Part::Strip(Strip::Refusal { remark, .. }) => Some(if remark.ends_with("in 4s") { 'x' } else { '?' }),
                _ => None,
            })
            .collect();
        assert_eq!(held, "ooxoo");
    }
}
