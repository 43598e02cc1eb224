//! The time that decisions are made by: the system's, or in tests whatever they say.

use std::time::Duration;

use tollgate::{Clock, ManualClock, SystemClock, Timestamp};

use super::alarm;

/// Where a gate's time comes from.
#[derive(Debug)]
pub enum GateClock {
    /// The time of day.
    System(SystemClock),
    /// What a test says.
    Manual(ManualClock),
}

impl GateClock {
    /// The time of day.
    pub fn system() -> Self {
        Self::System(SystemClock::new())
    }
}

impl Clock for GateClock {
    #[inline]
    fn now(&self) -> Timestamp {
        match self {
            Self::System(clock) => clock.now(),
            Self::Manual(clock) => clock.now(),
        }
    }

    async fn sleep_until(&self, at: Timestamp) {
        let clock = match self {
            Self::System(clock) => clock,
            Self::Manual(clock) => return clock.sleep_until(at).await,
        };
        loop {
            let left = at.since(clock.now());
            if left.is_zero() {
                return;
            }
            alarm::sleep(Duration::from(left)).await;
        }
    }
}
