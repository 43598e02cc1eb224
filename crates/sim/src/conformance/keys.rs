//! Identities.

use tollgate::{Charge, Intent, Key, TokenBucket};

use super::duel::Duel;
use super::limits::{limit, times, unit};
use super::{Kept, Maker, Time, demand};

/// Keys that look alike to a store that joins, trims, folds, decodes or truncates them.
fn hostile() -> Vec<Vec<Vec<u8>>> {
    let megabyte = vec![b'x'; 1 << 20];
    let mut other_megabyte = megabyte.clone();
    if let Some(middle) = other_megabyte.get_mut(1 << 19) {
        *middle = b'y';
    }
    let mut keys: Vec<Vec<Vec<u8>>> = [
        &[][..],
        &[&b""[..]],
        &[b"", b""],
        &[b"\0"],
        &[b"\0\0"],
        &[b"", b"\0"],
        &[b"ab"],
        &[b"a", b"b"],
        &[b"a", b"", b"b"],
        &[b"ab", b""],
        &[b"", b"ab"],
        &[b"b", b"a"],
        &[b"a\0b"],
        &[b"a|b"],
        &[b"a:b"],
        &[b"a_b"],
        &[b"a,b"],
        &[b"{a}b"],
        &[b"a{b}"],
        &[b"{}"],
        &[b"AB"],
        &[b" ab"],
        &[b"ab\n"],
        &[b"\r\nab"],
        &[b"*1\r\n$4\r\nPING\r\n"],
        &[b"\xff"],
        &[b"\xfe"],
        &[b"\xef\xbf\xbd"],
        &[b"\xc3\x28"],
        &["\u{e9}".as_bytes()],
        &["e\u{301}".as_bytes()],
        &[b"\0\0\0\0\0\0\0\x02", b"b"],
        &[b"a\0\0\0\0\0\0\0\x01b"],
        &[b"0"],
        &[b"00"],
        &[b"-0"],
        &[b"1e0"],
        &[b"nil"],
        &[b"%61b"],
    ]
    .iter()
    .map(|values: &&[&[u8]]| values.iter().map(|value| value.to_vec()).collect())
    .collect();
    keys.push(vec![megabyte.clone()]);
    keys.push(vec![other_megabyte]);
    keys.push(vec![megabyte, Vec::new()]);
    keys.push(vec![vec![b'v']; 1_000]);
    keys.push(vec![vec![b'v']; 1_001]);
    keys.push(vec![vec![b'v'; 1_000]]);
    keys
}

/// Each key is spent by an amount of its own, and nobody else's shows in what it has left.
pub(super) async fn hostile_keys_stay_apart<M: Maker>(maker: &M, time: Time) -> Kept {
    let keys = hostile();
    let values: Vec<Vec<&[u8]>> = keys.iter().map(|values| values.iter().map(Vec::as_slice).collect()).collect();
    let limit = limit(TokenBucket::new(tollgate::Rate::new(1_000, times(1_000, unit(time)))))?;
    let mut duel = Duel::new(maker, time).await;
    for _ in 0..2 {
        for (values, cost) in values.iter().zip(1..) {
            duel.one(Charge::new(Key::new(1, values), &limit).cost(cost), Intent::Spend).await?;
        }
    }
    for (values, cost) in values.iter().zip(1..) {
        let left = duel.one(Charge::new(Key::new(1, values), &limit), Intent::Peek).await?.remaining;
        let shown: Vec<_> = values.iter().map(|value| String::from_utf8_lossy(value)).collect();
        let shown = format!("{shown:?}");
        demand!(
            left == 1_000 - 2 * cost,
            "{left} left of 1000 after 2 × {cost}: {}",
            shown.get(..60).unwrap_or(&shown)
        );
    }
    Ok(())
}

pub(super) async fn limit_numbers_stay_apart<M: Maker>(maker: &M, time: Time) -> Kept {
    const NUMBERS: [u64; 8] = [0, 1, 2, 256, 1 << 32, 1 << 53, u64::MAX - 1, u64::MAX];
    const ENTITIES: [&[&[u8]]; 3] = [&[b"user"], &[], &[b"user", b"\0\0\0\0\0\0\0\x01"]];
    let limit = limit(TokenBucket::new(tollgate::Rate::new(1_000, times(1_000, unit(time)))))?;
    let mut duel = Duel::new(maker, time).await;
    let counters = || ENTITIES.iter().flat_map(|values| NUMBERS.map(|number| Key::new(number, values)));
    for (key, cost) in counters().zip(1..) {
        duel.one(Charge::new(key, &limit).cost(cost), Intent::Spend).await?;
    }
    for (key, cost) in counters().zip(1..) {
        let left = duel.one(Charge::new(key, &limit), Intent::Peek).await?.remaining;
        demand!(left == 1_000 - cost, "{left} left of 1000 after {cost}: {key:?}");
    }
    Ok(())
}
