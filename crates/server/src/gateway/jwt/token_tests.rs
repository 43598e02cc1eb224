//! Tokens by the examples of the RFCs, and by what goes wrong with them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, KeyPair as _};
use serde_json::{Value, json};
use tollgate::rules::{JwtAlgorithm, JwtSpec, TokenPlace, TokenTrust};
use tollgate_core::{Micros, Timestamp};

use super::keys::{Key, read};
use super::token::{BadToken, Token, claim};

/// RFC 7515, appendix A: what all of its examples say.
const JOE: &str = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
/// Its end.
const END: u64 = 1_300_819_380;

fn spec() -> JwtSpec {
    JwtSpec {
        place: TokenPlace::Bearer,
        trust: TokenTrust::Nothing,
        issuer: Vec::new(),
        audience: Vec::new(),
        leeway: Micros::ZERO,
        required: true,
    }
}

fn keys(set: &Value) -> Vec<Key> {
    read(set.to_string().as_bytes()).unwrap()
}

fn verify_by(token: &str, keys: &[Key], spec: &JwtSpec, now: u64) -> Result<(), BadToken> {
    Token::parse(token)?.verify(spec, keys, Timestamp::from_secs(now))
}

fn oct() -> Value {
    // Appendix A.1.
    json!({"keys": [{"kty": "oct", "k": "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"}]})
}

fn p256() -> Value {
    // Appendix A.3.
    let (x, y) = ("f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0");
    json!({"keys": [{"kty": "EC", "crv": "P-256", "x": x, "y": y, "kid": "ec"}]})
}

fn hs256() -> String {
    format!("eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.{JOE}.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk")
}

fn es256() -> String {
    format!(
        "eyJhbGciOiJFUzI1NiJ9.{JOE}.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
    )
}

/// A token whose parts are these, signed by nobody.
fn unsigned(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.AAAA", part(header), part(claims))
}

#[test]
fn the_examples_of_the_rfc_are_good_until_their_end() {
    for (token, set) in [(hs256(), oct()), (es256(), p256())] {
        let keys = keys(&set);
        assert_eq!(verify_by(&token, &keys, &spec(), END - 1), Ok(()));
        assert_eq!(verify_by(&token, &keys, &spec(), END), Err(BadToken::Expired));
        let later = JwtSpec { leeway: Micros::from_secs(30), ..spec() };
        assert_eq!(verify_by(&token, &keys, &later, END + 29), Ok(()));
        assert_eq!(verify_by(&token, &keys, &later, END + 30), Err(BadToken::Expired));
        assert_eq!(Token::parse(&token).unwrap().good_until(&later), Some(Timestamp::from_secs(END + 30)));
        // Any other letter is another token.
        let last = token.len() - 2;
        let other = if &token[last..=last] == "A" { "B" } else { "A" };
        let forged = format!("{}{other}{}", &token[..last], &token[last + 1..]);
        assert_eq!(verify_by(&forged, &keys, &spec(), END - 1), Err(BadToken::Signature));
    }
    // A key is for its own algorithms only.
    assert_eq!(verify_by(&hs256(), &keys(&p256()), &spec(), 1), Err(BadToken::Algorithm));
    assert_eq!(verify_by(&es256(), &keys(&oct()), &spec(), 1), Err(BadToken::Algorithm));
}

#[test]
fn ed25519_is_understood() {
    let pair = signature::Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let x = URL_SAFE_NO_PAD.encode(pair.public_key());
    let keys = keys(&json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": x, "alg": "EdDSA"}]}));
    let text = unsigned(&json!({"alg": "EdDSA"}), &json!({"sub": "a"}));
    let signed = text.strip_suffix(".AAAA").unwrap();
    let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(pair.sign(signed.as_bytes())));
    assert_eq!(verify_by(&token, &keys, &spec(), 1), Ok(()));
    assert_eq!(verify_by(&text, &keys, &spec(), 1), Err(BadToken::Signature));
}

#[test]
fn names_of_keys_choose_among_them() {
    let mut set = p256();
    let keys_by = |set: &Value| verify_by(&es256(), &keys(set), &spec(), 1);
    // The token names none, so that each is tried.
    assert_eq!(keys_by(&set), Ok(()));
    let named = unsigned(&json!({"alg": "ES256", "kid": "other"}), &json!({}));
    assert_eq!(verify_by(&named, &keys(&set), &spec(), 1), Err(BadToken::Signature));
    for (field, value) in [("alg", "ES384"), ("use", "enc")] {
        set["keys"][0][field] = value.into();
        assert!(read(set.to_string().as_bytes()).is_err(), "{field}");
        set["keys"][0].as_object_mut().unwrap().remove(field);
    }
    set["keys"][0]["alg"] = "ES256".into();
    assert_eq!(keys_by(&set), Ok(()));
    let only =
        |algorithms: &[JwtAlgorithm]| keys(&oct()).into_iter().map(|key| key.only(algorithms)).collect::<Vec<_>>();
    assert_eq!(verify_by(&hs256(), &only(&[JwtAlgorithm::Hs512]), &spec(), 1), Err(BadToken::Algorithm));
    assert_eq!(verify_by(&hs256(), &only(&[JwtAlgorithm::Hs256]), &spec(), 1), Ok(()));
}

#[test]
fn what_is_no_good_token_is_told_why() {
    let keys = keys(&oct());
    let refused = |token: &str| verify_by(token, &keys, &spec(), 1).unwrap_err();
    for text in ["", "a", "a.b", "a.b.c.d", "..", "e30.e30", "e30.e30.", "!.e30.AA", "e30=.e30.AA"] {
        assert_eq!(refused(text), BadToken::Malformed, "{text}");
    }
    for (header, claims) in [
        (json!({}), json!({})),
        (json!({"alg": 1}), json!({})),
        (json!({"alg": "HS256", "crit": ["b64"], "b64": false}), json!({})),
        (json!({"alg": "HS256"}), json!([1])),
        (json!({"alg": "HS256"}), json!("text")),
        (json!({"alg": "HS256"}), json!({"exp": "tomorrow"})),
        (json!({"alg": "HS256"}), json!({"nbf": {}})),
    ] {
        assert_eq!(refused(&unsigned(&header, &claims)), BadToken::Malformed, "{header} {claims}");
    }
    for alg in ["none", "None", "NONE", "", "hs256", "RS256", "ES512", "HS1"] {
        assert_eq!(refused(&unsigned(&json!({"alg": alg}), &json!({}))), BadToken::Algorithm, "{alg}");
    }
    assert_eq!(refused(&unsigned(&json!({"alg": "HS256"}), &json!({"nbf": 2}))), BadToken::NotYet);
    assert_eq!(refused(&unsigned(&json!({"alg": "HS256"}), &json!({"exp": 1.5}))), BadToken::Signature);
    assert_eq!(refused(&unsigned(&json!({"alg": "HS256"}), &json!({"exp": 0.5}))), BadToken::Expired);
    assert_eq!(refused(&format!("e30.{}.AA", "a".repeat(9_000))), BadToken::TooLong);
    // Deep nesting ends somewhere.
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(3_000), "]".repeat(3_000));
    assert_eq!(refused(&format!("e30.{}.AA", URL_SAFE_NO_PAD.encode(deep))), BadToken::Malformed);
}

#[test]
fn by_whom_and_for_whom() {
    let with = |issuer: &[&str], audience: &[&str], claims: &Value| {
        let list = |names: &[&str]| names.iter().map(|name| (*name).into()).collect();
        let spec = JwtSpec { issuer: list(issuer), audience: list(audience), ..spec() };
        verify_by(&unsigned(&json!({"alg": "HS256"}), claims), &keys(&oct()), &spec, 1).unwrap_err()
    };
    // As far as the signature, which is none.
    let right = BadToken::Signature;
    assert_eq!(with(&["a", "b"], &[], &json!({"iss": "b"})), right);
    assert_eq!(with(&["a"], &[], &json!({"iss": "b"})), BadToken::Issuer);
    assert_eq!(with(&["a"], &[], &json!({"iss": ["a"]})), BadToken::Issuer);
    assert_eq!(with(&["a"], &[], &json!({})), BadToken::Issuer);
    assert_eq!(with(&[], &["x"], &json!({"aud": "x"})), right);
    assert_eq!(with(&[], &["x"], &json!({"aud": ["y", "x"]})), right);
    assert_eq!(with(&[], &["x"], &json!({"aud": ["y"]})), BadToken::Audience);
    assert_eq!(with(&[], &["x"], &json!({})), BadToken::Audience);
}

#[test]
fn claims_are_found_by_their_names() {
    let claims = json!({
        "sub": "alice", "age": 7, "admin": true, "none": null, "org": {"id": "o1", "unit": {"id": 5}},
        "https://example.com/plan": "gold", "a.b": {"c": "dotted"}, "aud": ["api"], "roles": ["x", "y"], "empty": [], "deep": [["z"]],
    });
    for (path, expected) in [
        ("sub", Some("alice")),
        ("age", Some("7")),
        ("admin", Some("true")),
        ("org.id", Some("o1")),
        ("org.unit.id", Some("5")),
        ("https://example.com/plan", Some("gold")),
        ("a.b.c", Some("dotted")),
        ("aud", Some("api")),
        ("roles.1", Some("y")),
        ("roles.2", None),
        ("roles", None),
        ("empty", None),
        ("deep", None),
        ("none", None),
        ("org", None),
        ("org.none", None),
        ("sub.id", None),
        ("", None),
        (".", None),
    ] {
        assert_eq!(claim(&claims, path).as_deref(), expected, "{path}");
    }
}

#[test]
fn what_is_no_key_is_told_why() {
    let jwk = |key: Value| json!({"keys": [key]}).to_string();
    for (text, why) in [
        (String::new(), "no key"),
        ("hello".to_owned(), "no key"),
        ("{}".to_owned(), "no JSON Web Key Set"),
        (json!({"keys": []}).to_string(), "no key"),
        (jwk(json!({"kty": "EC", "crv": "P-521", "x": "AA", "y": "AA"})), "no key"),
        (jwk(json!({"kty": "oct", "k": "c2hvcnQ"})), "a secret of 5 bytes can be guessed"),
        (jwk(json!({"kty": "RSA", "n": "AQAB", "e": "AQAB"})), "an RSA key of 17 bits is too short"),
        (jwk(json!({"kty": "RSA", "e": "AQAB"})), "`n` is missing"),
        (jwk(json!({"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"})), "no key for Es256"),
        (jwk(json!({"kty": "OKP", "crv": "Ed25519", "x": "?"})), "`x` is no base64url"),
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n".to_owned(), "no public key"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned(), "openssl x509 -pubkey"),
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n".to_owned(), "a private key"),
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n".to_owned(), "neither PEM nor JSON"),
    ] {
        let told = read(text.as_bytes()).map(drop).map_err(|error| format!("{error:#}")).unwrap_err();
        assert!(told.contains(why), "{text}: {told}");
    }
    let many: Vec<Value> = (0..33).map(|_| p256()["keys"][0].clone()).collect();
    assert!(read(json!({"keys": many}).to_string().as_bytes()).is_err());
}
