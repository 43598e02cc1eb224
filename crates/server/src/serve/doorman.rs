//! How many connections an address may have, and how many it may open, decided before a byte of them is read.
//!
//! An address of version 6 stands for its network of 64 bits, which is what one customer usually gets. Proxies that are
//! trusted come with the connections of many, and are not counted; nor is this machine. What is remembered is bounded:
//! an address that has no connection takes no room, and rates are kept by the same store as all limits, of which a
//! fixed part is given to them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use tollgate::rules::Network;
use tollgate::{Clock, Engine, Limiter, MemoryStore, SystemClock};
use tollgate_core::{Limit, TokenBucket};

use super::settings::ConnectionSettings;
use super::stream::Peer;
use crate::gate::Exposition;
use crate::protocol::http::is_trusted;

/// For rates of addresses.
const MEMORY: usize = 16 << 20;

/// Who may come in.
pub(crate) struct Doorman<C = SystemClock> {
    most: Option<u32>,
    rate: Option<Limiter<C>>,
    trusted: Vec<Network>,
    open: Mutex<HashMap<Network, u32>>,
    /// By reason.
    refused: [AtomicU64; 2],
}

/// A connection, for as long as it is there.
pub(crate) struct Guest<C = SystemClock> {
    doorman: Arc<Doorman<C>>,
    from: Option<Network>,
}

/// Why one may not come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnedAway {
    TooMany,
    TooFast,
}

/// The part of an address that stands for whoever has it.
pub(crate) fn network_of(address: IpAddr) -> Network {
    let address = address.to_canonical();
    Network::around(address, if address.is_ipv4() { 128 } else { 64 })
}

impl Doorman {
    pub(crate) fn new(settings: ConnectionSettings, trusted: &[Network]) -> anyhow::Result<Self> {
        Self::with_clock(settings, trusted, SystemClock::new())
    }
}

impl<C: Clock> Doorman<C> {
    fn with_clock(settings: ConnectionSettings, trusted: &[Network], clock: C) -> anyhow::Result<Self> {
        let limiter = |rate| {
            let limit = Limit::new(TokenBucket::new(rate)).context("--connection-rate")?;
            let engine = Engine::with_clock(MemoryStore::with_budget(MEMORY), clock);
            anyhow::Ok(Limiter::with_engine(limit, engine))
        };
        Ok(Self {
            most: settings.per_address,
            rate: settings.rate.map(limiter).transpose()?,
            trusted: trusted.to_vec(),
            open: Mutex::default(),
            refused: Default::default(),
        })
    }

    /// Lets one in, or says why not.
    pub(crate) fn admit(self: &Arc<Self>, from: IpAddr) -> Result<Guest<C>, TurnedAway> {
        let is_counted =
            (self.most.is_some() || self.rate.is_some()) && !is_trusted(Peer::Address(from), &self.trusted);
        let doorman = Arc::clone(self);
        if !is_counted {
            return Ok(Guest { doorman, from: None });
        }
        let from = network_of(from);
        let mut open = self.open();
        let others = open.get(&from).copied().unwrap_or_default();
        if self.most.is_some_and(|most| others >= most) {
            return Err(self.turn_away(TurnedAway::TooMany));
        }
        if self.rate.as_ref().is_some_and(|rate| !rate.allow(from.to_bytes())) {
            return Err(self.turn_away(TurnedAway::TooFast));
        }
        open.insert(from, others + 1);
        Ok(Guest { doorman, from: Some(from) })
    }

    fn turn_away(&self, why: TurnedAway) -> TurnedAway {
        if let Some(count) = self.refused.get(why as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        why
    }

    pub(crate) fn expose(&self, out: &mut Exposition) {
        out.counter(
            "tollgate_refused_connections_total",
            "Connections that were closed at once: too many of an address, or too fast.",
        );
        for (reason, count) in ["too_many", "too_fast"].iter().zip(&self.refused) {
            out.sample(&[("reason", reason)], count.load(Ordering::Relaxed));
        }
    }
}

impl<C> Doorman<C> {
    fn open(&self) -> MutexGuard<'_, HashMap<Network, u32>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C> Drop for Guest<C> {
    fn drop(&mut self) {
        let Some(from) = self.from else { return };
        let mut open = self.doorman.open();
        if let Some(number) = open.get_mut(&from) {
            *number -= 1;
            if *number == 0 {
                open.remove(&from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate::{ManualClock, Micros, Timestamp};
    use tollgate_core::Rate;

    use super::*;

    fn doorman(per_address: Option<u32>, rate: Option<Rate>) -> (Arc<Doorman<ManualClock>>, ManualClock) {
        let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000));
        let settings = ConnectionSettings { per_address, rate };
        let trusted = [Network::parse("10.0.0.0/8").unwrap()];
        (Arc::new(Doorman::with_clock(settings, &trusted, clock.clone()).unwrap()), clock)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_so_many_connections_and_no_more() {
        let (doorman, _) = doorman(Some(2), None);
        let first = doorman.admit(ip("192.0.2.1")).unwrap();
        let _second = doorman.admit(ip("::ffff:192.0.2.1")).unwrap();
        assert_eq!(doorman.admit(ip("192.0.2.1")).err(), Some(TurnedAway::TooMany));
        let _other = doorman.admit(ip("192.0.2.2")).unwrap();
        drop(first);
        let _third = doorman.admit(ip("192.0.2.1")).unwrap();
        // One customer, one network.
        let _guests = [doorman.admit(ip("2001:db8::1")).unwrap(), doorman.admit(ip("2001:db8::ffff:1")).unwrap()];
        assert_eq!(doorman.admit(ip("2001:db8::2")).err(), Some(TurnedAway::TooMany));
        let _neighbour = doorman.admit(ip("2001:db8:0:1::1")).unwrap();
        // Proxies and this machine come for many.
        let _proxies: Vec<_> = (0..9).map(|_| doorman.admit(ip("10.1.1.1")).unwrap()).collect();
        let _own: Vec<_> = (0..9).map(|_| doorman.admit(ip("127.0.0.1")).unwrap()).collect();
    }

    #[test]
    fn an_address_opens_so_many_in_a_time_and_what_was_turned_away_is_not_counted() {
        let (doorman, clock) = doorman(None, Some(Rate::new(2, Micros::SECOND)));
        let open = || doorman.admit(ip("192.0.2.1")).map(drop);
        assert_eq!([open(), open(), open()], [Ok(()), Ok(()), Err(TurnedAway::TooFast)]);
        clock.advance(Micros::from_millis(500));
        assert_eq!([open(), open()], [Ok(()), Err(TurnedAway::TooFast)]);
        let mut out = Exposition::default();
        doorman.expose(&mut out);
        assert!(out.finish().contains("tollgate_refused_connections_total{reason=\"too_fast\"} 2\n"));
    }

    #[test]
    fn nothing_is_left_of_those_who_went() {
        let (doorman, _) = doorman(Some(3), None);
        let guests: Vec<_> =
            (0..1_000u32).map(|number| doorman.admit(IpAddr::from(number.to_be_bytes())).unwrap()).collect();
        assert_eq!(doorman.open().len(), 1_000);
        drop(guests);
        assert!(doorman.open().is_empty());
    }
}
