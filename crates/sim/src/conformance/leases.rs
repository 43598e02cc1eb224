//! Slots that are held by leases.

use tollgate::{Charge, Concurrency, Intent, Key, Limit, Micros, Outcome, Store};

use super::duel::Duel;
use super::limits::{limit, times, unit};
use super::{Kept, Maker, Time, demand};

const USER: &[&[u8]] = &[b"user"];

struct Slots<S> {
    duel: Duel<S>,
    limit: Limit,
}

impl<S: Store> Slots<S> {
    /// Three slots, ten units long.
    async fn new(maker: &impl Maker<Store = S>, time: Time) -> Result<Self, String> {
        let limit = limit(Concurrency::new(3, times(10, unit(time))))?;
        Ok(Self { duel: Duel::new(maker, time).await, limit })
    }

    async fn ask(&mut self, lease: u64, cost: u64, intent: Intent) -> Result<Outcome, String> {
        self.duel.one(Charge::new(Key::new(1, USER), &self.limit).cost(cost).lease(lease), intent).await
    }

    async fn acquire(&mut self, lease: u64, cost: u64) -> Result<bool, String> {
        Ok(self.ask(lease, cost, Intent::Spend).await?.allowed)
    }

    async fn release(&mut self, lease: u64, cost: u64) -> Kept {
        let charged_at = self.duel.now;
        self.ask(lease, cost, Intent::Refund { charged_at }).await.map(|_| ())
    }

    async fn renew(&mut self, lease: u64) -> Result<bool, String> {
        Ok(self.ask(lease, 1, Intent::Renew).await?.allowed)
    }

    async fn free(&mut self) -> Result<u64, String> {
        Ok(self.ask(0, 1, Intent::Peek).await?.remaining)
    }

    fn pass(&mut self, units: u64) {
        self.duel.pass(times(units, unit(Time::Given)));
    }
}

pub(super) async fn slots_are_held_and_released<M: Maker>(maker: &M, time: Time) -> Kept {
    let mut slots = Slots::new(maker, time).await?;
    demand!(slots.acquire(7, 2).await? && slots.acquire(8, 1).await?, "three slots are free at first");
    demand!(!slots.acquire(9, 1).await?, "a fourth was given");
    slots.release(9, 1).await?;
    demand!(slots.free().await? == 0, "a lease released what it does not hold");
    slots.release(7, 1).await?;
    demand!(slots.free().await? == 1, "one of two slots was released");
    demand!(slots.acquire(9, 1).await?, "a released slot is free");
    slots.release(7, 5).await?;
    demand!(slots.free().await? == 1, "a lease releases what it holds and no more");
    slots.release(8, 1).await?;
    slots.release(9, 1).await?;
    slots.release(9, 1).await?;
    demand!(slots.free().await? == 3, "all is released, and once only");
    Ok(())
}

pub(super) async fn only_the_holder_renews<M: Maker>(maker: &M, time: Time) -> Kept {
    let mut slots = Slots::new(maker, time).await?;
    demand!(!slots.renew(7).await?, "renewed what was never acquired");
    slots.acquire(7, 1).await?;
    demand!(slots.renew(7).await?, "the holder may renew");
    demand!(!slots.renew(8).await?, "someone else may not");
    slots.release(7, 1).await?;
    demand!(!slots.renew(7).await?, "renewed what was released");
    demand!(slots.free().await? == 3, "renewing takes no slot");
    Ok(())
}

pub(super) async fn leases_expire<M: Maker>(maker: &M) -> Kept {
    let mut slots = Slots::new(maker, Time::Given).await?;
    slots.acquire(7, 2).await?;
    slots.pass(4);
    slots.acquire(8, 1).await?;
    slots.duel.pass(Micros::from_micros(times(6, unit(Time::Given)).as_micros() - 1));
    demand!(slots.free().await? == 0, "a lease ended before its time");
    slots.duel.pass(Micros::from_micros(1));
    demand!(slots.free().await? == 2, "the first lease is over");
    demand!(!slots.renew(7).await?, "renewed what has expired");
    demand!(slots.acquire(9, 2).await?, "expired slots are free");
    slots.release(7, 2).await?;
    demand!(slots.free().await? == 0, "an expired lease released the slots of another");
    slots.pass(4);
    demand!(slots.free().await? == 1, "the second lease is over");
    Ok(())
}

pub(super) async fn renewed_leases_last<M: Maker>(maker: &M) -> Kept {
    let mut slots = Slots::new(maker, Time::Given).await?;
    slots.acquire(7, 2).await?;
    slots.acquire(8, 1).await?;
    for _ in 0..5 {
        slots.pass(9);
        demand!(slots.renew(7).await?, "renewed in time");
    }
    demand!(slots.free().await? == 1, "the lease that was not renewed is over, the other is not");
    slots.pass(10);
    demand!(slots.free().await? == 3 && !slots.renew(7).await?, "a lease lasts from its last renewal");
    Ok(())
}
