//! Headers that have served, kept for the next answer: to make room for them anew costs more than to read them.

use std::cell::RefCell;

use http::HeaderMap;

/// How many a thread keeps, and the most that each has room for.
const KEPT: usize = 64;
const LARGEST: usize = 64;

thread_local! {
    static SPARE: RefCell<Vec<HeaderMap>> = const { RefCell::new(Vec::new()) };
}

/// Takes headers that nobody needs any more, such as those of a request that is answered, for answers to come.
pub fn recycle(mut headers: HeaderMap) {
    if headers.capacity() == 0 || headers.capacity() > LARGEST {
        return;
    }
    headers.clear();
    let _thread_is_ending = SPARE.try_with(|spare| {
        let mut spare = spare.borrow_mut();
        if spare.len() < KEPT {
            spare.push(headers);
        }
    });
}

/// Empty headers, with room for so many.
pub fn spare_headers(room: usize) -> HeaderMap {
    let mut headers = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
    headers.reserve(room);
    headers
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::{ACCEPT, DATE};

    use super::*;

    #[test]
    fn what_served_serves_again_and_has_nothing_in_it() {
        let mut used = HeaderMap::with_capacity(16);
        used.append(ACCEPT, HeaderValue::from_static("a"));
        used.append(ACCEPT, HeaderValue::from_static("b"));
        let room = used.capacity();
        recycle(used);
        let again = spare_headers(4);
        assert_eq!((again.len(), again.capacity(), again.get(ACCEPT)), (0, room, None));
        assert!(SPARE.with_borrow(Vec::is_empty));
    }

    #[test]
    fn no_more_is_kept_than_is_good() {
        for _ in 0..2 * KEPT {
            recycle(HeaderMap::with_capacity(8));
        }
        assert_eq!(SPARE.with_borrow(Vec::len), KEPT);
        SPARE.with_borrow_mut(Vec::clear);
        let mut large = HeaderMap::with_capacity(10 * LARGEST);
        large.insert(DATE, HeaderValue::from_static("today"));
        recycle(large);
        recycle(HeaderMap::new());
        assert!(SPARE.with_borrow(Vec::is_empty));
    }
}
