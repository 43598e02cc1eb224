//! Whoever makes tokens: keys by openssl, signatures by openssl where it writes them as tokens have them, by `ring`
//! otherwise.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{self, KeyPair as _};
use serde_json::{Value, json};

use crate::support::{printed, scratch};

/// One that signs with RSA.
pub(crate) struct RsaIssuer {
    private: PathBuf,
    pub(crate) public: PathBuf,
}

impl RsaIssuer {
    pub(crate) fn new() -> Self {
        let (private, public) = (scratch("private.pem"), scratch("public.pem"));
        openssl(&["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out"], &private);
        let made =
            Command::new("openssl").args(["pkey", "-pubout", "-in"]).arg(&private).arg("-out").arg(&public).output();
        printed(&made.unwrap());
        Self { private, public }
    }

    pub(crate) fn pem(&self) -> String {
        std::fs::read_to_string(&self.public).unwrap()
    }

    /// A token by this algorithm of RSA's, `RS256` or `PS256`.
    pub(crate) fn token(&self, algorithm: &str, claims: &Value) -> String {
        let pss = ["-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:-1"];
        let padding: &[&str] = if algorithm.starts_with("PS") { &pss } else { &[] };
        signed(&json!({"typ": "JWT", "alg": algorithm}), claims, |text| {
            let (message, made) = (scratch("message"), scratch("signature"));
            std::fs::write(&message, text).unwrap();
            let mut command = Command::new("openssl");
            command.args(["dgst", "-sha256"]).args(padding).arg("-sign").arg(&self.private);
            printed(&command.arg("-out").arg(&made).arg(&message).output().unwrap());
            std::fs::read(made).unwrap()
        })
    }

    /// The key as a set has it.
    pub(crate) fn jwk(&self, name: &str) -> Value {
        let printed = {
            let mut command = Command::new("openssl");
            printed(&command.args(["rsa", "-pubin", "-noout", "-modulus", "-in"]).arg(&self.public).output().unwrap())
        };
        let digits = printed.trim().strip_prefix("Modulus=").unwrap().as_bytes();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        let modulus: Vec<u8> = digits.chunks(2).map(byte).collect();
        json!({"kty": "RSA", "use": "sig", "alg": "RS256", "kid": name, "n": encode(&modulus), "e": "AQAB"})
    }
}

/// One that signs with a curve.
pub(crate) struct CurveIssuer(signature::EcdsaKeyPair);

impl CurveIssuer {
    pub(crate) fn new() -> Self {
        let how = &signature::ECDSA_P256_SHA256_FIXED_SIGNING;
        let key = signature::EcdsaKeyPair::generate_pkcs8(how, &SystemRandom::new()).unwrap();
        Self(signature::EcdsaKeyPair::from_pkcs8(how, key.as_ref(), &SystemRandom::new()).unwrap())
    }

    pub(crate) fn token(&self, name: &str, claims: &Value) -> String {
        signed(&json!({"alg": "ES256", "kid": name}), claims, |text| {
            self.0.sign(&SystemRandom::new(), text.as_bytes()).unwrap().as_ref().to_vec()
        })
    }

    pub(crate) fn jwk(&self, name: &str) -> Value {
        let (x, y) = self.0.public_key().as_ref()[1..].split_at(32);
        json!({"kty": "EC", "crv": "P-256", "kid": name, "x": encode(x), "y": encode(y)})
    }
}

/// A token by a secret, whatever that is.
pub(crate) fn by_secret(secret: &[u8], claims: &Value) -> String {
    signed(&json!({"alg": "HS256"}), claims, |text| {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
        ring::hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
    })
}

/// A token that nobody has signed, and that says so.
pub(crate) fn by_nobody(claims: &Value) -> String {
    signed(&json!({"alg": "none"}), claims, |_| Vec::new())
}

fn signed(header: &Value, claims: &Value, sign: impl FnOnce(&str) -> Vec<u8>) -> String {
    let text = format!("{}.{}", encode(header.to_string().as_bytes()), encode(claims.to_string().as_bytes()));
    let signature = encode(&sign(&text));
    format!("{text}.{signature}")
}

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn openssl(args: &[&str], out: &Path) {
    printed(&Command::new("openssl").args(args).arg(out).output().unwrap());
}
