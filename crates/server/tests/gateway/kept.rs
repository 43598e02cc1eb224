//! Many requests that are kept at once, of several lines, and what has to have become of them however gateways ended
//! meanwhile.

use std::collections::HashMap;

use serde_json::Value;

use crate::origin::Origin;
use crate::support::Answer;

/// By the names that they were given: method and path.
pub(crate) type Kept = HashMap<String, (&'static str, String)>;

pub(crate) fn told(answer: &Answer) -> Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("{} {}", answer.status, answer.body))
}

/// Sends `number` requests, those of a key one after the other and all keys at once: quicker than there is room again.
/// Half of them may be repeated. The server takes its time, so that some are always on their way. `send` is given a
/// number, a method, a path and a key.
pub(crate) fn keep(
    number: usize,
    keys: usize,
    send: impl Fn(usize, &str, &str, &str) -> Answer + Clone + Send + 'static,
) -> Kept {
    let line = |key: usize| {
        let send = send.clone();
        let numbers = (key..number).step_by(keys);
        let each = move |number| {
            let method = if number % 20 < 10 { "POST" } else { "PUT" };
            let path = format!("/drip/3?{number}");
            let answer = send(number, method, &path, &key.to_string());
            // On a busy machine there may be room again for the first of a line.
            let is_kept = answer.status == 202;
            is_kept.then(|| {
                assert_eq!(told(&answer)["durable"], true);
                (told(&answer)["id"].as_str().unwrap().to_owned(), (method, path))
            })
        };
        std::thread::spawn(move || numbers.filter_map(each).collect::<Vec<_>>())
    };
    let lines: Vec<_> = (0..keys).map(line).collect();
    lines.into_iter().flat_map(|line| line.join().unwrap()).collect()
}

/// Each arrived, none twice that was answered, and each line in the order of arrival. How many were put aside because
/// nobody knows whether they were done: one of each line was on its way at most.
pub(crate) fn judge(kept: &Kept, keys: usize, origin: &Origin, status: impl Fn(&str) -> Value) -> usize {
    let mut unknown = 0;
    let seen = origin.seen();
    for (id, (method, path)) in kept {
        let told = status(id);
        let times = seen.iter().filter(|seen| seen.line.split(' ').nth(1) == Some(path)).count();
        if told["state"] == "dead" {
            assert_eq!(*method, "POST", "{told}");
            assert!(told["why"].as_str().unwrap().starts_with("unknown whether it was done"), "{told}");
            assert!(times <= 1, "{path} was sent {times} times");
            unknown += 1;
        } else {
            // What was on its way at the end may have arrived before, if its method says that this does no harm.
            let most = if *method == "PUT" { told["attempts"].as_u64().unwrap() as usize } else { 1 };
            assert!((1..=most).contains(&times), "{method} {path} was sent {times} times: {told}");
        }
    }
    assert!(unknown <= keys, "one of each line was on its way at most, and {unknown} are unknown");
    for key in 0..keys {
        let of_key = seen.iter().filter(|seen| seen.header("x-key") == Some(&*key.to_string()));
        let numbers = of_key.filter_map(|seen| seen.line.split(['?', ' ']).nth(2)?.parse().ok());
        let numbers: Vec<usize> = numbers.collect();
        assert!(numbers.is_sorted(), "{numbers:?}");
    }
    unknown
}
