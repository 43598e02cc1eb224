//! Single values in bodies, each with an error that says what to write.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use tollgate::{Micros, Timestamp};

use crate::protocol::bounds::MOST_COST;

/// Of a key or a value, in bytes.
pub(super) const LONGEST: usize = 8 << 10;
/// The largest whole number that every JSON library keeps.
const EXACT: f64 = MOST_COST as f64;

/// Of times, in seconds: so that their microseconds are kept exactly.
const LATEST: f64 = EXACT / 1e6;

/// A key or a value: a string, a number or a boolean.
#[derive(Debug)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyScalar;
        impl<'de> Visitor<'de> for AnyScalar {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a number or a boolean")
            }

            #[inline]
            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                bounded(text).map(|text| Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text<'de>, E> {
                bounded(text).map(|text| Text(Cow::Owned(text.to_owned())))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Text<'de>, E> {
                Ok(Text(number.to_string().into()))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Text<'de>, E> {
                Ok(Text(number.to_string().into()))
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Text<'de>, E> {
                if number.abs() > EXACT {
                    return Err(E::custom("this number is too large to be kept exactly: write it as a string"));
                }
                Ok(Text(number.to_string().into()))
            }

            fn visit_bool<E: de::Error>(self, value: bool) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(if value { "true" } else { "false" })))
            }
        }
        deserializer.deserialize_any(AnyScalar)
    }
}

fn bounded<E: de::Error>(text: &str) -> Result<&str, E> {
    if text.len() > LONGEST {
        return Err(E::custom(format_args!("a text of {} bytes: {LONGEST} are the most", text.len())));
    }
    Ok(text)
}

/// A whole number from 0 on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Count(pub(super) u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Whole;
        impl Visitor<'_> for Whole {
            type Value = Count;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number from 0 on")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Count, E> {
                if number > MOST_COST {
                    return Err(E::custom(format_args!("{number} is too much: {MOST_COST} is the most")));
                }
                Ok(Count(number))
            }
        }
        deserializer.deserialize_u64(Whole)
    }
}

/// A number of 64 bits that names something: as a string, since many JSON libraries cannot hold it otherwise, or as it
/// is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number(pub(super) u64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Digits;
        impl Visitor<'_> for Digits {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(r#"a number in digits, as it was answered, such as "8127409182""#)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Number, E> {
                let number = text.parse().map_err(|_| E::invalid_value(de::Unexpected::Other("another string"), &self));
                number.map(Number)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Number, E> {
                Ok(Number(number))
            }
        }
        deserializer.deserialize_any(Digits)
    }
}

/// A length of time: seconds, or a text such as `1h30min`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Length(pub(super) Micros);

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SecondsOrText;
        impl Visitor<'_> for SecondsOrText {
            type Value = Length;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of seconds, or a text such as \"90s\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Length, E> {
                bounded(text).and_then(|text| tollgate::rules::parse_duration(text).map(Length).map_err(E::custom))
            }

            fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Length, E> {
                micros(seconds as f64).map(|_| Length(Micros::from_secs(seconds)))
            }

            fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<Length, E> {
                micros(seconds).map(|micros| Length(Micros::from_micros(micros)))
            }
        }
        deserializer.deserialize_any(SecondsOrText)
    }
}

/// A moment: seconds since 1970, as answers give it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment(pub(super) Timestamp);

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Epoch;
        impl Visitor<'_> for Epoch {
            type Value = Moment;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of seconds since 1970, as in the `at` of an answer")
            }

            fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Moment, E> {
                micros(seconds as f64).map(|_| Moment(Timestamp::from_secs(seconds)))
            }

            fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<Moment, E> {
                micros(seconds).map(|micros| Moment(Timestamp::from_micros(micros)))
            }
        }
        deserializer.deserialize_any(Epoch)
    }
}

fn micros<E: de::Error>(seconds: f64) -> Result<u64, E> {
    if seconds.is_sign_negative() && seconds != 0.0 {
        return Err(E::custom("a time cannot be negative"));
    }
    if seconds > LATEST {
        return Err(E::custom("this time is too far away: write seconds, not parts of them"));
    }
    Ok((seconds * 1e6).round() as u64)
}
