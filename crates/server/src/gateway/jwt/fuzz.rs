//! Any bytes as a token: nothing but what was signed here is good. For tests and fuzzing.

use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use tollgate::rules::{JwtSpec, TokenPlace, TokenTrust};
use tollgate_core::{Micros, Timestamp};

use super::keys::Key;
use super::token::{Token, claim};

const SECRET: &[u8] = b"a secret of thirty-two bytes....";
const HEADER: &[u8] = br#"{"alg":"HS256","typ":"JWT"}"#;

fn signed(header: &[u8], claims: &[u8]) -> String {
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET), signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// A good token.
pub(crate) fn good_token() -> String {
    signed(HEADER, br#"{"sub":"alice","exp":4000000000,"roles":["a","b"],"org":{"id":7}}"#)
}

fn is_good(text: &str) -> bool {
    static KEYS: OnceLock<Vec<Key>> = OnceLock::new();
    let spec = JwtSpec {
        place: TokenPlace::Bearer,
        trust: TokenTrust::Nothing,
        issuer: Vec::new(),
        audience: Vec::new(),
        leeway: Micros::ZERO,
        required: true,
    };
    let keys = KEYS.get_or_init(|| Key::secret(SECRET).into_iter().collect());
    let Ok(token) = Token::parse(text) else { return false };
    let is_good = token.verify(&spec, keys, Timestamp::from_secs(1_800_000_000)).is_ok();
    for name in ["sub", "roles.0", "org.id", "exp"] {
        let _ = (claim(&token.claims, name), token.good_until(&spec));
    }
    is_good
}

/// Any bytes as a token, which is good only if it is the one that was signed; as what one claims, which has to be an
/// object; and as its header.
pub(crate) fn any_token(bytes: &[u8]) -> Result<(), String> {
    let good = good_token();
    if !is_good(&good) {
        return Err("what was signed here is no good".to_owned());
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && is_good(text)
        && text != good
    {
        return Err(format!("nobody signed {text}"));
    }
    let json = serde_json::from_slice::<serde_json::Value>(bytes).unwrap_or_default();
    if is_good(&signed(HEADER, bytes)) && !json.is_object() {
        return Err("claims that are none are good".to_owned());
    }
    is_good(&signed(bytes, b"{}"));
    Ok(())
}
