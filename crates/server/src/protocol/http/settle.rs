//! Reservations as clients know them, and what they say when they settle one.
//!
//! A reservation's name also says what each of its charges counts, so that the actual costs can be told by unit when
//! nobody remembers the question any more.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use tollgate::{ReservationId, Verdict};

use super::value::{Count, Text};
use crate::protocol::bounds::{MOST_COST, MOST_DESCRIPTORS, MOST_UNITS};

const REQUESTS: &str = "requests";

/// `{"reservation": "…", "actual": …}`. A reservation that is null was made while limits were switched off.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, expecting = r#"an object such as {"reservation": "8127409182:requests=1"}"#)]
pub(super) struct Commit<'a> {
    #[serde(borrow, deserialize_with = "Option::deserialize")]
    pub(super) reservation: Option<Reservation<'a>>,
    #[serde(borrow)]
    pub(super) actual: Option<Actual<'a>>,
}

/// `{"reservation": "…"}`.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields, expecting = r#"an object such as {"reservation": "8127409182:requests=1"}"#)]
pub(super) struct Cancel<'a> {
    #[serde(borrow, deserialize_with = "Option::deserialize")]
    pub(super) reservation: Option<Reservation<'a>>,
}

/// A reservation, and what its charges count and cost if that is known.
#[derive(Debug)]
pub(super) struct Reservation<'a> {
    pub(super) id: ReservationId,
    charges: Option<Vec<(Cow<'a, str>, u64)>>,
}

/// The name of a reservation that `verdict` allowed, such as `8127409182:requests=1,tokens=500`.
pub(super) fn name(id: ReservationId, verdict: &Verdict<'_>) -> String {
    let mut name = id.0.to_string();
    for (at, toll) in verdict.tolls.iter().enumerate() {
        let unit = verdict.limit(toll).map_or(REQUESTS, super::policy::unit_of);
        // Writing to a string cannot fail.
        let _ = write!(name, "{}{unit}={}", if at == 0 { ':' } else { ',' }, toll.cost);
    }
    name
}

impl<'de: 'a, 'a> Deserialize<'de> for Reservation<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Text(text) = Text::deserialize(deserializer)?;
        let parsed = match text {
            Cow::Borrowed(text) => Self::parse(text),
            Cow::Owned(text) => Reservation::parse(&text).map(Reservation::into_owned),
        };
        parsed.ok_or_else(|| de::Error::custom("this is no reservation: write it as /v1/reserve answered it"))
    }
}

impl<'a> Reservation<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let Some((digits, charges)) = text.split_once(':') else {
            return Some(Self { id: ReservationId(text.parse().ok()?), charges: None });
        };
        let charge = |text: &'a str| {
            let (unit, cost) = text.split_once('=')?;
            Some((Cow::Borrowed(unit), cost.parse().ok()?))
        };
        let charges = charges.split(',').map(charge).collect::<Option<_>>()?;
        Some(Self { id: ReservationId(digits.parse().ok()?), charges: Some(charges) })
    }

    fn into_owned(self) -> Reservation<'static> {
        let owned = |(unit, cost): (Cow<'a, str>, u64)| (Cow::Owned(unit.into_owned()), cost);
        Reservation { id: self.id, charges: self.charges.map(|charges| charges.into_iter().map(owned).collect()) }
    }

    /// What each charge needed after all, in their order: what is not named keeps what was reserved.
    pub(super) fn actual(&self, actual: &Actual<'_>) -> Result<Vec<u64>, String> {
        let costs: &[(Cow<'_, str>, u64)] = match (actual, &self.charges) {
            (Actual::Each(costs), _) => return Ok(costs.clone()),
            // Whoever reserved elsewhere counts requests.
            (Actual::Requests(cost), None) => return Ok(vec![*cost; MOST_DESCRIPTORS]),
            (Actual::ByUnit(_), None) => {
                let help = "this reservation does not say what it counts: write `actual` as a list, in the order of \
                            its limits";
                return Err(help.to_owned());
            }
            (Actual::Requests(cost), Some(_)) => &[(Cow::Borrowed(REQUESTS), *cost)],
            (Actual::ByUnit(costs), Some(_)) => costs,
        };
        let charges = self.charges.as_deref().unwrap_or_default();
        let is_counted = |unit: &str| charges.iter().any(|(known, _)| known == unit);
        if let Some((strange, _)) = costs.iter().find(|(unit, _)| !is_counted(unit)) {
            let strange: String = strange.chars().take(48).collect();
            let known: Vec<&str> = charges.iter().map(|(unit, _)| &**unit).collect();
            return Err(format!("`{strange}` is not counted by this reservation: it counts {}", known.join(", ")));
        }
        let needed = |(unit, reserved): &(Cow<'_, str>, u64)| {
            costs.iter().find(|(known, _)| known == unit).map_or(*reserved, |(_, cost)| *cost)
        };
        Ok(charges.iter().map(needed).collect())
    }
}

/// What a reservation needed after all.
#[derive(Debug)]
pub(super) enum Actual<'a> {
    /// So many requests.
    Requests(u64),
    /// For each charge, in order.
    Each(Vec<u64>),
    ByUnit(Vec<(Cow<'a, str>, u64)>),
}

impl<'de: 'a, 'a> Deserialize<'de> for Actual<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyForm;
        impl<'de> Visitor<'de> for AnyForm {
            type Value = Actual<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(r#"a whole number, a list of them, or one for each unit such as {"tokens": 812}"#)
            }

            fn visit_u64<E: de::Error>(self, cost: u64) -> Result<Actual<'de>, E> {
                if cost > MOST_COST {
                    return Err(E::custom(format_args!("{cost} is too much: {MOST_COST} is the most")));
                }
                Ok(Actual::Requests(cost))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Actual<'de>, A::Error> {
                let mut costs = Vec::new();
                while let Some(Count(cost)) = list.next_element()? {
                    costs.push(cost);
                }
                Ok(Actual::Each(costs))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Actual<'de>, A::Error> {
                let mut costs: Vec<(Cow<'de, str>, u64)> = Vec::new();
                while let Some(Text(unit)) = map.next_key()? {
                    if costs.len() == MOST_UNITS || costs.iter().any(|(known, _)| *known == unit) {
                        return Err(de::Error::custom(format_args!("name each unit once, and at most {MOST_UNITS}")));
                    }
                    let Count(cost) = map.next_value()?;
                    costs.push((unit, cost));
                }
                Ok(Actual::ByUnit(costs))
            }
        }
        deserializer.deserialize_any(AnyForm)
    }
}
