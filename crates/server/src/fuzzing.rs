//! Any bytes where clients send theirs: what the targets in `fuzz/` call, and a bounded run of each in the tests. No
//! part of the API.

use std::sync::OnceLock;

use tollgate::RuleSet;

use crate::protocol::envoy;
use crate::protocol::resp::Parser;

/// Any bytes as the body of `/json`.
pub fn envoy_json(bytes: &[u8]) -> Result<(), String> {
    envoy::fuzz_json(bytes)
}

/// Any bytes as a message of Envoy's rate limit service.
pub fn envoy_message(bytes: &[u8]) -> Result<(), String> {
    envoy::fuzz_message(bytes)
}

/// Any bytes as what a Redis client sends: in one piece or in pieces, the same commands come of it, or the same error.
///
/// The first byte says how the rest is cut, so that a fuzzer can move the cuts.
pub fn resp(bytes: &[u8]) -> Result<(), String> {
    let [cut, bytes @ ..] = bytes else { return Ok(()) };
    let whole = commands(bytes, |_| bytes.len());
    let bytewise = commands(bytes, |_| 1);
    let cut = u32::from(*cut);
    let mixed = commands(bytes, |read| 1 + (read as u32).wrapping_mul(2_654_435_761).wrapping_add(cut) as usize % 97);
    for other in [bytewise, mixed] {
        if other != whole {
            return Err(format!("in one piece {whole:?}, in pieces {other:?}"));
        }
    }
    Ok(())
}

/// The commands in `bytes` and how it ended, if they arrive in pieces as long as `piece` says.
fn commands(bytes: &[u8], piece: impl Fn(usize) -> usize) -> (Vec<Vec<Vec<u8>>>, String) {
    let mut parser = Parser::new(bytes.len().is_multiple_of(2));
    let mut found = Vec::new();
    let (mut start, mut read) = (0, 0);
    loop {
        match parser.next(bytes.get(start..read).unwrap_or_default()) {
            Ok(Some(length)) => {
                let command = parser.command(bytes.get(start..read).unwrap_or_default());
                found.push(command.iter().map(<[u8]>::to_vec).collect());
                start += length;
            }
            Ok(None) if read < bytes.len() => read = (read + piece(read)).min(bytes.len()),
            Ok(None) => return (found, format!("{} bytes left", read - start)),
            Err(error) => return (found, error.to_string()),
        }
    }
}

/// Any bytes as the body of each question of the HTTP API.
pub fn http_json(bytes: &[u8]) -> Result<(), String> {
    static RULES: OnceLock<RuleSet> = OnceLock::new();
    let rules = RULES.get_or_init(|| RuleSet::from_yaml(crate::serve::EXAMPLE).unwrap_or_default());
    crate::protocol::http::fuzz_bodies(bytes, rules)
}

/// Any bytes as what a client of HTTP/1 sends: in one piece or in pieces, the same requests come of it, or the same
/// refusal.
///
/// The first byte says how the rest is cut, so that a fuzzer can move the cuts.
pub fn http1(bytes: &[u8]) -> Result<(), String> {
    crate::protocol::http1::any_pieces(bytes)
}

/// Any bytes as what a server answers to the gateway: in one piece or in pieces the same answer comes of it, or none.
///
/// The first byte says how the rest is cut, so that a fuzzer can move the cuts.
pub fn answer(bytes: &[u8]) -> Result<(), String> {
    tollgate_gateway::any_answer(bytes)
}

/// Any bytes as the path of a request: it has one normal form, however it is escaped.
pub fn path(bytes: &[u8]) -> Result<(), String> {
    tollgate_gateway::any_path(bytes)
}

/// Any bytes as lines of `X-Forwarded-For`: who is found is in the chain, and nobody is by putting himself in front of
/// it.
pub fn forwarded_for(bytes: &[u8]) -> Result<(), String> {
    crate::protocol::http::fuzz_chain(bytes)
}

/// Any bytes as a JSON Web Token, as what one claims and as its header: nothing is good but what was signed.
pub fn token(bytes: &[u8]) -> Result<(), String> {
    crate::gateway::any_token(bytes)
}

/// A token that is good, to be damaged.
pub fn good_token() -> String {
    crate::gateway::good_token()
}
