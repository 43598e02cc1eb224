//! Of several limits of one descriptor the one to tell about.

use tollgate::Toll;

/// Of those that deny the one that takes longest, else the one with the least left. Limits that are only tried out count where there
/// are no others.
#[inline]
pub(super) fn strictest(tolls: &[Toll]) -> Option<&Toll> {
    if let [toll] = tolls {
        return Some(toll);
    }
    let among = |shadow: bool| {
        let those = move || tolls.iter().filter(move |toll| toll.shadow == shadow);
        let denied = those().filter(|toll| toll.outcome.denied());
        let longest = denied.max_by_key(|toll| (toll.outcome.retry_after.is_none(), toll.outcome.retry_after));
        longest.or_else(|| those().min_by_key(|toll| toll.outcome.remaining))
    };
    among(false).or_else(|| among(true))
}
