//! What a rule says about itself beside its limits, and a file for all of its rules.

use super::Lowering;
use crate::grammar::{
    ALGORITHM, CONSISTENCY, ConsistencyFields, Fields, MODE, Method, ON_LIMIT, ORDER, OnLimitFields, PRIORITY,
    STORE_FAILURE, SettingFields, Shape,
};
use crate::model::{Consistency, Mode, OnLimit, Priority, StoreFailure};
use crate::yaml::{Kind, Node};

/// What holds unless something else is written.
#[derive(Clone, Copy, Default)]
pub(super) struct Settings {
    pub(super) mode: Mode,
    pub(super) priority: Option<Priority>,
    pub(super) consistency: Consistency,
    pub(super) on_store_failure: StoreFailure,
    pub(super) on_limit: OnLimit,
    pub(super) algorithm: Option<Method>,
}

impl Lowering<'_> {
    /// What `fields` say, and `base` where they say nothing.
    pub(super) fn settings(&mut self, fields: &SettingFields<'_>, base: Settings) -> Settings {
        Settings {
            mode: self.or(fields.mode, base.mode, |this, node| this.choice(&MODE, node)),
            priority: self.or(fields.priority, base.priority, |this, node| this.choice(&PRIORITY, node).map(Some)),
            consistency: self.or(fields.consistency, base.consistency, Self::consistency),
            on_store_failure: self
                .or(fields.on_store_failure, base.on_store_failure, |this, node| this.choice(&STORE_FAILURE, node)),
            on_limit: self.or(fields.on_limit, base.on_limit, Self::on_limit),
            algorithm: self.or(fields.algorithm, base.algorithm, |this, node| this.choice(&ALGORITHM, node).map(Some)),
        }
    }

    fn consistency(&mut self, node: &Node) -> Option<Consistency> {
        if !matches!(node.kind(), Kind::Map(_)) {
            return self.choice_or(&CONSISTENCY, node, &["{sync: 100ms}"]);
        }
        let before = self.errors;
        let fields: ConsistencyFields<'_> = self.fields(node)?;
        match fields.sync {
            Some(sync) => self.some_time(sync.value).map(Consistency::Synced),
            None => {
                let help = "write how often, such as `{sync: 100ms}`";
                self.missing(before, node, "`consistency` does not say how often to `sync`", help);
                None
            }
        }
    }

    pub(super) fn on_limit(&mut self, node: &Node) -> Option<OnLimit> {
        if node.text() == Some("queue") {
            let help = "write `algorithm: leaky_bucket`, and `queue: N` for how many may wait";
            self.error("unknown-word", node.span, "a queue in which requests wait is an algorithm", help);
            return None;
        }
        if !matches!(node.kind(), Kind::Map(_)) {
            let word = node.text().and_then(|text| OnLimitFields::place().field(text));
            let word = word.filter(|field| matches!(field.shape, Shape::Time));
            if let Some(field) = word {
                let message = format!("`{}` does not say how long", field.name);
                self.error("unknown-word", node.span, message, format!("write `{{{}: 2s}}`", field.name));
                return None;
            }
            return self.choice_or(&ON_LIMIT, node, &["{delay: 2s}", "{reject_slowly: 1s}"]);
        }
        let before = self.errors;
        let fields: OnLimitFields<'_> = self.fields(node)?;
        let newest_first = self.or(fields.order, false, |this, node| this.choice(&ORDER, node));
        if let Some(order) = fields.order.filter(|_| fields.delay.is_none()) {
            let help = "write how long one may wait, such as `{delay: 2s, order: newest_first}`";
            self.missing(before, order.key, "this is about those who wait, and nobody does", help);
            return None;
        }
        match (fields.delay, fields.reject_slowly) {
            (Some(delay), None) => self.some_time(delay.value).map(|longest| match newest_first {
                true => OnLimit::DelayNewestFirst { longest, most: u32::MAX },
                false => OnLimit::Delay(longest),
            }),
            (None, Some(hold)) => self.some_time(hold.value).map(OnLimit::RejectSlowly),
            (Some(delay), Some(hold)) => {
                self.exclusive(delay, hold, "a request either waits or is refused", "write one of them");
                None
            }
            (None, None) => {
                let help = "write `{delay: 2s}`, `{reject_slowly: 1s}`, `reject` or `enqueue`";
                self.missing(before, node, "`on_limit` does not say what happens", help);
                None
            }
        }
    }
}
