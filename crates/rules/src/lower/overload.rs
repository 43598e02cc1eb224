//! What an upstream does with more than it can take.

use tollgate_core::Micros;

use super::Lowering;
use super::scalar::Scalar;
use crate::grammar::{MOST_CONCURRENT, MostFields, ORDER, OverloadFields, PRIORITY, ReservedFields, Slot};
use crate::overload::{MostSpec, OverloadSpec, ReservedSpec};
use crate::yaml::{Kind, Node};

/// More at a time than anybody means.
const MOST: u64 = 1_000_000;
/// How long one waits if nothing is said.
const WAIT: Micros = Micros::SECOND;
/// Between what, if nothing is said.
const ADAPTIVE: (u32, u32) = (10, 1_000);

impl Lowering<'_> {
    pub(super) fn overload(&mut self, node: &Node) -> Option<OverloadSpec> {
        let before = self.errors;
        let fields: OverloadFields<'_> = self.fields(node)?;
        let most = fields.max_concurrent.and_then(|most| self.most(most.value));
        let reserved = fields.reserved.and_then(|reserved| self.reserved(reserved.value)).unwrap_or_default();
        let queue = fields.queue.and_then(|queue| self.number(queue.value, 0));
        let max_wait = self.or(fields.max_wait, WAIT, Self::some_time);
        let newest_first = self.or(fields.order, false, |this, node| this.choice(&ORDER, node));
        for slot in [fields.max_wait, fields.order].into_iter().flatten() {
            if fields.queue.is_none() {
                let help = "write how many may wait, such as `queue: 50`";
                self.missing(before, slot.key, "this is about a queue, and there is none", help);
            }
        }
        let Some(most) = most else {
            let help = "write `max_concurrent: 100`, or `max_concurrent: adaptive`";
            self.missing(before, node, "`overload` does not say how many requests there may be at a time", help);
            return None;
        };
        let spec = OverloadSpec { most, reserved, queue: queue.unwrap_or_default(), max_wait, newest_first };
        if let (Some(without), Some(reserved)) = (spec.goes_without(), fields.reserved)
            && self.errors == before
        {
            let names = PRIORITY.0.iter().find(|(_, priority, _)| *priority == without).map_or("", |(name, ..)| name);
            let message = format!("so much is reserved that `{names}` requests can never get through");
            self.error("limit", reserved.value.spot(), message, "reserve less, or let more through at a time");
        }
        (self.errors == before).then_some(spec)
    }

    fn most(&mut self, node: &Node) -> Option<MostSpec> {
        let usual = MostSpec::Adaptive { min: ADAPTIVE.0, max: ADAPTIVE.1 };
        if matches!(node.scalar(), Some(Scalar::Integer(_))) {
            return self.number(node, 1).map(MostSpec::Fixed);
        }
        if !matches!(node.kind(), Kind::Map(_)) {
            return self.choice_or(&MOST_CONCURRENT, node, &["100", "{min: 10, max: 1000}"]).map(|()| usual);
        }
        let fields: MostFields<'_> = self.fields(node)?;
        let min = self.or(fields.min, ADAPTIVE.0, |this, node| this.number(node, 1));
        let max = self.or(fields.max, ADAPTIVE.1.max(min), |this, node| this.number(node, 1));
        if min > max {
            let message = format!("from {min} to {max} there is nothing");
            self.error("limit", node.spot(), message, "write a `max` that is not below `min`");
            return None;
        }
        Some(MostSpec::Adaptive { min, max })
    }

    fn reserved(&mut self, node: &Node) -> Option<[ReservedSpec; 4]> {
        let ReservedFields { low, normal, high, critical } = self.fields(node)?;
        let one = |this: &mut Self, slot: Slot<'_>| this.or(slot, ReservedSpec::default(), Self::share);
        Some([low, normal, high, critical].map(|slot| one(self, slot)))
    }

    fn share(&mut self, node: &Node) -> Option<ReservedSpec> {
        let Some(Scalar::Text(text)) = node.scalar() else { return self.number(node, 0).map(ReservedSpec::Slots) };
        let percent = text.strip_suffix('%').and_then(|number| number.parse().ok());
        let percent = percent.filter(|percent| (1..=100).contains(percent));
        if percent.is_none() {
            let message = format!("{} is no share", node.describe());
            self.error("amount", node.span, message, "write a number of requests, or a share such as `20%`");
        }
        percent.map(ReservedSpec::Percent)
    }

    fn number(&mut self, node: &Node, least: u64) -> Option<u32> {
        self.integer(node, least, MOST).and_then(|number| u32::try_from(number).ok())
    }
}
