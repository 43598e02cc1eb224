//! tollgate's own limits: as text, or in detail.
//!
//! The algorithm is the one that is written; else the one that an option can only mean (`concurrency`, `min_interval`);
//! else a fixed window for a rate of the calendar; else what the rule or the file say; else a sliding window. An option
//! that it does not have is an error, never ignored.

use std::sync::Arc;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use tollgate_core::{
    Algorithm, Calendar, CalendarUnit, Concurrency, FixedWindow, LeakyBucket, LeakyForm, Limit, LimitError, MAX_LOG,
    MAX_SUB_WINDOWS, Micros, Pacing, Rate, Rounding, SlidingCounter, SlidingLog, Soft, TokenBucket, Window, Zone,
};

use super::Lowering;
use super::settings::Settings;
use crate::grammar::{
    ALGORITHM, ANCHOR, Fields, INITIAL, LimitFields, Method, REFILL, ROUNDING, Slot, SoftFields, Written,
};
use crate::model::{Limits, OnLimit, RuleLimit, Unit};
use crate::nearest::one_of;
use crate::shorthand::{self, Per};
use crate::yaml::{Kind, Node};

/// How long a slot is held that nobody gives back, unless the rule says it.
const LEASE: Micros = Micros::MINUTE;

/// A rate that was read, with its calendar looked up.
struct Rated<'a> {
    node: &'a Node,
    amount: u64,
    unit: Unit,
    window: Period,
}

enum Period {
    Length(Micros),
    Calendar(Calendar),
}

impl Lowering<'_> {
    /// All limits of a rule.
    pub(super) fn limits(&mut self, node: &Node, settings: Settings) -> Option<Limits> {
        let items = self.one_or_more(node);
        if items.is_empty() {
            let help = "write at least one, such as `5/s`, or `limits: unlimited` to count nothing";
            self.error("no-limits", node.span, "this list of limits is empty", help);
        }
        let mut limits = Vec::with_capacity(items.len());
        for item in items {
            if item.text() == Some("unlimited") {
                if let [_] = items {
                    return Some(Limits::None);
                }
                let help = "remove it: the other limits hold whether it is there or not";
                self.error("unlimited", item.span, "`unlimited` stands alone", help);
                continue;
            }
            let limit = self.limit(item, settings);
            limits.extend(limit);
        }
        (limits.len() == items.len() && !limits.is_empty()).then(|| self.told_apart(limits))?
    }

    /// Gives limits that count the same over the same time each an identity of their own.
    fn told_apart(&mut self, mut limits: Vec<(RuleLimit, Slot<'_>)>) -> Option<Limits> {
        let before = self.errors;
        if limits.len() > 1 {
            let mut seen: HashMap<Arc<str>, usize> = HashMap::new();
            let mut names: HashMap<Arc<str>, Written<'_>> = HashMap::new();
            for (limit, name) in &mut limits {
                if let Some(name) = name {
                    if let Some(first) = names.insert(Arc::clone(&limit.identity), *name) {
                        let text = name.value.text().unwrap_or_default();
                        let message = format!("two limits of this rule are named `{text}`");
                        let diagnostic =
                            crate::diagnostic::Diagnostic::error("duplicate-name", name.value.span, message);
                        self.say(diagnostic.related(first.value.span, "first here").help("give one another name"));
                    }
                    continue;
                }
                let number = seen.entry(Arc::clone(&limit.identity)).or_default();
                *number += 1;
                if *number > 1 {
                    limit.identity = format!("{}#{number}", limit.identity).into();
                }
            }
        }
        (self.errors == before).then(|| Limits::Own(limits.into_iter().map(|(limit, _)| limit).collect()))
    }

    fn limit<'a>(&mut self, node: &'a Node, settings: Settings) -> Option<(RuleLimit, Slot<'a>)> {
        let before = self.errors;
        let mut fields = LimitFields::default();
        let rate = match node.kind() {
            Kind::Scalar { .. } if !node.is_null() => Some(node),
            Kind::Map(_) => {
                fields = self.fields(node)?;
                fields.rate.map(|rate| rate.value)
            }
            _ => {
                self.wrong_type(node, "a limit such as `5/s` or `{rate: 5/s, algorithm: token_bucket}`");
                return None;
            }
        };
        // Where the rate cannot be read, another stands in for it, so that the rest is looked at too.
        let rated = rate.map(|node| {
            let window = Period::Length(Micros::SECOND);
            self.rate(node).unwrap_or(Rated { node, amount: 1, unit: Unit::Requests, window })
        });
        let method = self.method(&fields, rated.as_ref(), settings)?;
        if method == Method::Concurrency && fields.concurrency.is_none() {
            let help = "write `{concurrency: 10}`, or another `algorithm` beside a rate";
            self.missing(before, node, "how many at the same time?", help);
            return None;
        }
        if method != Method::Concurrency && rated.is_none() && fields.min_interval.is_none() {
            let help = "write how much in which time, such as `rate: 5/s`";
            self.missing(before, node, "this limit has no `rate`", help);
        }
        if matches!(node.kind(), Kind::Map(_)) {
            self.check_options(&fields, method);
        }
        let unit = self.unit(&fields, rated.as_ref());
        let on_limit = fields.on_limit.and_then(|on_limit| self.on_limit(on_limit.value)).unwrap_or(settings.on_limit);
        let name = fields.name.and_then(|name| self.text(name.value));
        let soft = fields.soft.and_then(|soft| self.soft(soft.value));
        let algorithm = self.algorithm(&fields, method, rated.as_ref());
        let (algorithm, on_limit) = self.newest_first(&fields, algorithm, on_limit);
        if self.errors > before {
            return None;
        }
        let algorithm = algorithm?;
        let (text, period) = describe(rated.as_ref(), &algorithm);
        let limit = match self.shared_limit(algorithm, soft) {
            Ok(limit) => limit,
            Err(error) => {
                self.refused(&error, node, &fields);
                return None;
            }
        };
        let identity = match (name, &unit) {
            // No unit is called like that, so no other limit has this identity.
            (Some(name), _) => self.key(&format!("name:{name}")),
            (None, Unit::Requests) => self.key(&format!("requests/{period}")),
            (None, Unit::Named(unit)) => self.key(&format!("{unit}/{period}")),
        };
        let text = self.key(&text);
        Some((RuleLimit { text, limit, identity, unit, on_limit, span: node.spot() }, fields.name))
    }

    /// A queue that is newest first is kept by whoever lets requests wait. The limit itself promises nobody a
    /// departure: only who can leave at once is let through.
    fn newest_first(
        &mut self,
        fields: &LimitFields<'_>,
        algorithm: Option<Algorithm>,
        on_limit: OnLimit,
    ) -> (Option<Algorithm>, OnLimit) {
        let (OnLimit::DelayNewestFirst { longest, .. }, Some(Algorithm::LeakyBucket(bucket))) = (on_limit, &algorithm)
        else {
            return (algorithm, on_limit);
        };
        let LeakyForm::Queue { length, .. } = bucket.form else { return (algorithm, on_limit) };
        if let Some(max_wait) = fields.max_wait {
            let help = "leave `max_wait` out";
            self.error("either-or", max_wait.key.span, "how long one may wait is said by `delay`", help);
        }
        if let Some(queue) = fields.queue.filter(|_| length == 0) {
            let help = "let some wait, or leave `order` out";
            self.error("limit", queue.value.span, "nobody may wait, so nobody is first", help);
        }
        let most = u32::try_from(length).unwrap_or(u32::MAX);
        (Some(bucket.max_wait(Micros::ZERO).into()), OnLimit::DelayNewestFirst { longest, most })
    }

    fn shared_limit(&mut self, algorithm: Algorithm, soft: Option<Soft>) -> Result<Arc<Limit>, LimitError> {
        match self.limits.entry((algorithm, soft)) {
            Entry::Occupied(known) => Ok(Arc::clone(known.get())),
            Entry::Vacant(place) => {
                let (algorithm, soft) = place.key().clone();
                let made = match soft {
                    Some(soft) => Limit::soft(algorithm, soft),
                    None => Limit::new(algorithm),
                };
                Ok(Arc::clone(place.insert(Arc::new(made?))))
            }
        }
    }

    fn rate<'a>(&mut self, node: &'a Node) -> Option<Rated<'a>> {
        let Some(text) = node.text() else {
            self.wrong_type(node, "a rate such as `5/s`");
            return None;
        };
        if text == "unlimited" {
            let help = "write `limits: unlimited`";
            self.error("unlimited", node.span, "`unlimited` is not a rate", help);
            return None;
        }
        let shorthand = self.understood("rate", node, shorthand::rate(text))?;
        let window = match shorthand.per {
            Per::Length(length) => Period::Length(length),
            Per::Calendar(unit, zone) => Period::Calendar(Calendar::new(unit, self.zone(node, zone)?)),
        };
        Some(Rated { node, amount: shorthand.amount, unit: shorthand.unit, window })
    }

    /// The time zone of this name, which is a part of the text of `node`; UTC if there is none.
    fn zone(&mut self, node: &Node, name: Option<&str>) -> Option<Arc<Zone>> {
        let name = name.unwrap_or("UTC");
        if !self.zones.contains_key(name) {
            let zone = crate::zone::zone(name).ok().map(Arc::new);
            self.zones.insert(name.into(), zone);
        }
        let zone = self.zones.get(name).cloned().flatten();
        if zone.is_none() {
            let mut known = std::mem::take(&mut self.zone_names);
            if known.is_empty() && !self.diagnostics.is_full() {
                known = jiff::tz::db().available().map(|name| name.as_str().to_owned()).collect();
            }
            let meant = self.nearest(name, known.iter().map(String::as_str));
            let help = match meant {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => "names look like `Europe/Berlin` or `UTC`".to_owned(),
            };
            self.zone_names = known;
            let start = node.text().and_then(|text| text.rfind(name)).unwrap_or_default();
            let place = node.part(start..start + name.len());
            self.error("unknown-zone", place, format!("there is no time zone `{name}`"), help);
        }
        zone
    }

    fn method(&mut self, fields: &LimitFields<'_>, rated: Option<&Rated<'_>>, settings: Settings) -> Option<Method> {
        if let Some(algorithm) = fields.algorithm {
            return self.choice(&ALGORITHM, algorithm.value);
        }
        Some(if fields.concurrency.is_some() {
            Method::Concurrency
        } else if fields.min_interval.is_some() {
            Method::FixedWindow
        } else {
            match (settings.algorithm, rated.map(|rated| &rated.window)) {
                (Some(Method::Pacing), _) => Method::Pacing,
                (_, Some(Period::Calendar(_))) => Method::FixedWindow,
                (inherited, _) => inherited.unwrap_or(Method::SlidingWindow),
            }
        })
    }

    fn check_options(&mut self, fields: &LimitFields<'_>, method: Method) {
        for (field, written) in fields.written() {
            if !field.only.is_empty() && !field.only.contains(&method) {
                let having = one_of(field.only.iter().map(|method| method_name(*method)));
                let message = format!("`{}` is an option of {having}, not of `{}`", field.name, method_name(method));
                let help = match field.only {
                    [only] => format!("write `algorithm: {}`, or remove `{}`", method_name(*only), field.name),
                    _ => format!("choose one of those as `algorithm`, or remove `{}`", field.name),
                };
                self.error("foreign-option", written.key.span, message, help);
            }
        }
    }

    fn unit(&mut self, fields: &LimitFields<'_>, rated: Option<&Rated<'_>>) -> Unit {
        let of_rate = rated.map_or(Unit::Requests, |rated| rated.unit.clone());
        let Some(counts) = fields.counts else { return of_rate };
        let Some(name) = self.text(counts.value) else { return of_rate };
        if !shorthand::is_name(name) {
            let help = "write one word of letters, digits, `_` and `-`, such as `bytes` or `tokens`";
            self.error("unit", counts.value.span, format!("{} is no unit", counts.value.describe()), help);
            return of_rate;
        }
        let counted = if name == "requests" { Unit::Requests } else { Unit::Named(self.key(name)) };
        if of_rate != Unit::Requests && of_rate != counted {
            let help = "say it in one place only";
            self.error("unit", counts.value.span, "the rate counts something else", help);
        }
        counted
    }

    fn soft(&mut self, node: &Node) -> Option<Soft> {
        let before = self.errors;
        let fields: SoftFields<'_> = self.fields(node)?;
        let (Some(overage), Some(lasting)) = (fields.overage, fields.lasting) else {
            let help = "write by how much and for how long, such as `soft: {overage: 10, for: 30s}`";
            self.missing(before, node, "`soft` needs `overage` and `for`", help);
            return None;
        };
        Some(Soft { overage: self.count(overage.value)?, lasting: self.some_time(lasting.value)? })
    }

    /// None when what it needs is missing, which was told.
    fn algorithm(&mut self, fields: &LimitFields<'_>, method: Method, rated: Option<&Rated<'_>>) -> Option<Algorithm> {
        if method == Method::Concurrency {
            let lease = self.or(fields.lease, LEASE, Self::some_time);
            return Some(Concurrency::new(self.or(fields.concurrency, 0, Self::count), lease).into());
        }
        if let Some(interval) = fields.min_interval.filter(|_| method == Method::FixedWindow) {
            for other in [fields.rate, fields.anchor, fields.spread, fields.record_rejected].into_iter().flatten() {
                let why = "at most one in an interval is all there is to say";
                self.exclusive(interval, other, why, "remove one of them");
            }
            return Some(FixedWindow::once_per(self.some_time(interval.value)?).into());
        }
        let rated = rated?;
        let amount = rated.amount;
        let length = match &rated.window {
            Period::Length(length) => *length,
            Period::Calendar(calendar) => {
                return self.calendar_algorithm(fields, method, rated, calendar.clone());
            }
        };
        let rate = Rate::new(amount, length);
        Some(match method {
            Method::TokenBucket => self.token_bucket(fields, rate).into(),
            Method::LeakyBucket => {
                let queue = LeakyBucket::queue(rate, self.or(fields.queue, amount, Self::count));
                match fields.max_wait.and_then(|longest| self.some_time(longest.value)) {
                    Some(longest) => queue.max_wait(longest).into(),
                    None => queue.into(),
                }
            }
            Method::LeakyMeter => {
                let capacity = self.or(fields.burst, 1, Self::count);
                LeakyBucket { rate, form: LeakyForm::Meter { capacity } }.into()
            }
            Method::FixedWindow => self.fixed_window(fields, amount, length).into(),
            Method::SlidingLog => {
                let log = SlidingLog::new(amount, length);
                let log = if self.is_set(fields.record_rejected) { log.record_rejected() } else { log };
                let most = fields.scale_to.and_then(|most| self.integer(most.value, 1, MAX_LOG));
                most.map_or(log, |most| log.scaled_to(most)).into()
            }
            Method::Pacing => {
                let window = Window::Clock { length, spread: self.is_set(fields.spread) };
                self.pacing(fields, amount, window).into()
            }
            Method::SlidingWindow | Method::Concurrency => {
                let counters =
                    fields.sub_windows.and_then(|counters| self.integer(counters.value, 1, MAX_SUB_WINDOWS.into()));
                let counters = counters.and_then(|counters| u32::try_from(counters).ok()).unwrap_or(1);
                let rounding = self.or(fields.rounding, Rounding::None, |this, node| this.choice(&ROUNDING, node));
                SlidingCounter::new(amount, length).rounding(rounding).sub_windows(counters).into()
            }
        })
    }

    fn calendar_algorithm(
        &mut self,
        fields: &LimitFields<'_>,
        method: Method,
        rated: &Rated<'_>,
        calendar: Calendar,
    ) -> Option<Algorithm> {
        let name = match calendar.unit() {
            CalendarUnit::Day => "day",
            CalendarUnit::Week => "week",
            CalendarUnit::Month => "month",
            CalendarUnit::Year => "year",
        };
        for option in [fields.anchor, fields.spread].into_iter().flatten() {
            let message = format!("a {name} of the calendar begins when it begins");
            self.error("foreign-option", option.key.span, message, "remove this, or write a length such as `24h`");
        }
        match method {
            Method::FixedWindow => {
                let window = FixedWindow::in_window(rated.amount, calendar.into());
                Some(if self.is_set(fields.record_rejected) { window.record_rejected() } else { window }.into())
            }
            Method::Pacing => Some(self.pacing(fields, rated.amount, calendar.into()).into()),
            _ => {
                let message =
                    format!("`{}` needs a time of fixed length, not a {name} of the calendar", method_name(method));
                let help = "write a length such as `7d` or `30d`, or choose `fixed_window` or `pacing` as `algorithm`";
                self.error("calendar", rated.node.span, message, help);
                None
            }
        }
    }

    fn token_bucket(&mut self, fields: &LimitFields<'_>, rate: Rate) -> TokenBucket {
        let bucket = TokenBucket::new(rate).burst(self.or(fields.burst, rate.units, Self::count)).borrow(self.or(
            fields.borrow,
            0,
            Self::count,
        ));
        let at_intervals = self.or(fields.refill, false, |this, node| this.choice(&REFILL, node));
        let bucket = if at_intervals { bucket.refill_at_intervals() } else { bucket };
        let initial = self.or(fields.initial, None, |this, node| {
            let is_number = node.text().is_some_and(|text| text.starts_with(|first: char| first.is_ascii_digit()));
            if is_number { this.count(node).map(Some) } else { this.choice_or(&INITIAL, node, &["20"]) }
        });
        TokenBucket { initial, ..bucket }
    }

    fn fixed_window(&mut self, fields: &LimitFields<'_>, amount: u64, length: Micros) -> FixedWindow {
        let by_request = self.or(fields.anchor, false, |this, node| this.choice(&ANCHOR, node));
        let spread = self.is_set(fields.spread);
        if let (true, true, Some(anchor), Some(spread)) = (by_request, spread, fields.anchor, fields.spread) {
            self.exclusive(anchor, spread, "each key's windows already begin at its own time", "remove `spread`");
        }
        let window = if by_request { Window::FirstEvent { length } } else { Window::Clock { length, spread } };
        let window = FixedWindow::in_window(amount, window);
        if self.is_set(fields.record_rejected) { window.record_rejected() } else { window }
    }

    fn pacing(&mut self, fields: &LimitFields<'_>, budget: u64, window: Window) -> Pacing {
        let pacing = Pacing::new(budget, window);
        let slack = self.or(fields.slack, pacing.slack.max(1), Self::count);
        pacing.slack(slack)
    }

    /// Why the core does not take it, at the option that is to blame.
    fn refused(&mut self, error: &LimitError, node: &Node, fields: &LimitFields<'_>) {
        let to_blame = match error {
            LimitError::InitialAboveCapacity => fields.initial,
            LimitError::LoanTooLarge | LimitError::LoanNeedsContinuousRefill => fields.borrow,
            LimitError::UnevenSubWindows => fields.sub_windows,
            LimitError::TooManySlots { .. } => fields.concurrency,
            LimitError::NoLease => fields.lease,
            LimitError::NoSlack => fields.slack,
            LimitError::BadOverage => fields.soft,
            LimitError::RefillTooSlow => fields.burst.or(fields.queue).or(fields.rate),
            _ => fields.rate.or(fields.min_interval),
        };
        let place = to_blame.map_or(node.spot(), |written| written.value.spot());
        let text = error.to_string();
        let otherwise = match error {
            LimitError::UnevenSubWindows => "write a number that divides the window evenly",
            _ => "write other numbers",
        };
        let (message, help) = text.split_once("; ").unwrap_or((&text, otherwise));
        self.error("limit", place, message, help);
    }
}

fn method_name(method: Method) -> &'static str {
    ALGORITHM.0.iter().find(|(_, other, _)| *other == method).map_or("", |(name, ..)| name)
}

/// As people would write it, and per which time, as a part of its identity.
fn describe(rated: Option<&Rated<'_>>, algorithm: &Algorithm) -> (String, String) {
    let seconds = |length: Micros| match length.as_micros() {
        micros if micros.is_multiple_of(1_000_000) => format!("{}s", micros / 1_000_000),
        _ => length.to_string(),
    };
    match (rated, algorithm) {
        (Some(rated), _) => {
            let text = rated.node.text().unwrap_or_default();
            let text = match text.contains(char::is_whitespace) {
                true => text.split_whitespace().collect::<Vec<_>>().join(" "),
                false => text.to_owned(),
            };
            let period = match &rated.window {
                Period::Length(length) => seconds(*length),
                Period::Calendar(calendar) => {
                    format!("{}@{}", format!("{:?}", calendar.unit()).to_lowercase(), calendar.zone().name())
                }
            };
            (text, period)
        }
        (None, Algorithm::Concurrency(concurrency)) => (format!("{} at once", concurrency.slots), "at once".to_owned()),
        (None, Algorithm::FixedWindow(FixedWindow { window: Window::FirstEvent { length }, .. })) => {
            (format!("1/{length}"), seconds(*length))
        }
        _ => (String::new(), String::new()),
    }
}
