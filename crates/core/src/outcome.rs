//! One charge's result.

use crate::time::{Micros, Timestamp};

/// What became of one charge. All figures are exact and hold if nobody else charges the key meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the charge is (or, for a peek, would be) admitted.
    pub allowed: bool,
    /// When it was decided, by the clock of whoever decided.
    pub at: Timestamp,
    /// The most that the limit can ever admit at once.
    pub limit: u64,
    /// The largest cost that would be admitted now, after this charge.
    pub remaining: u64,
    /// The shortest wait after which the same cost is admitted: zero when it is admitted now, `None`
    /// when waiting cannot help because the cost exceeds the limit.
    pub retry_after: Option<Micros>,
    /// How long until the key is as good as new.
    pub reset_after: Micros,
    /// How long an admitted request has to be held back before it may proceed. Only a queue delays.
    pub delay: Micros,
    /// Admitted above the limit, by the grace of a soft limit.
    pub overage: bool,
    /// Counted together with other keys, because the store had no room for one more; or denied as part of a
    /// reservation, because it had none for that.
    pub shared: bool,
    /// Decided by this server alone, because the store that the servers share could not be asked.
    pub alone: bool,
    /// How much a fixed window has counted above its limit, at most 2^32 - 1: denied requests if it counts those, and
    /// forced charges. Zero from other algorithms.
    pub excess: u32,
}

impl Outcome {
    /// The answer of a limit that was not asked: allowed, with nothing to report.
    pub const UNLIMITED: Self = Self {
        allowed: true,
        at: Timestamp::EPOCH,
        limit: u64::MAX,
        remaining: u64::MAX,
        retry_after: Some(Micros::ZERO),
        reset_after: Micros::ZERO,
        delay: Micros::ZERO,
        overage: false,
        shared: false,
        alone: false,
        excess: 0,
    };

    /// The opposite of [`Self::allowed`].
    pub const fn denied(&self) -> bool {
        !self.allowed
    }

    /// When the request may proceed: what a refund of this charge has to name.
    pub const fn proceeds_at(&self) -> Timestamp {
        self.at.plus(self.delay)
    }

    /// Whether the cost exceeds what the limit can ever admit, so that no wait helps.
    pub const fn can_never_fit(&self) -> bool {
        self.retry_after.is_none()
    }
}
