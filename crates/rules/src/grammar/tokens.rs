//! The words about JSON Web Tokens.

use super::{Choice, Dialect, Field, Fields, Method, Place, Shape, Slot, TEXTS, Written};
use crate::jwt::JwtAlgorithm;

pub(crate) static JWT_ALGORITHM: Choice<JwtAlgorithm> = Choice(&[
    ("HS256", JwtAlgorithm::Hs256, "HMAC with SHA-256, by a secret."),
    ("HS384", JwtAlgorithm::Hs384, "HMAC with SHA-384, by a secret."),
    ("HS512", JwtAlgorithm::Hs512, "HMAC with SHA-512, by a secret."),
    ("RS256", JwtAlgorithm::Rs256, "RSA (PKCS #1 v1.5) with SHA-256."),
    ("RS384", JwtAlgorithm::Rs384, "RSA (PKCS #1 v1.5) with SHA-384."),
    ("RS512", JwtAlgorithm::Rs512, "RSA (PKCS #1 v1.5) with SHA-512."),
    ("PS256", JwtAlgorithm::Ps256, "RSA (PSS) with SHA-256."),
    ("PS384", JwtAlgorithm::Ps384, "RSA (PSS) with SHA-384."),
    ("PS512", JwtAlgorithm::Ps512, "RSA (PSS) with SHA-512."),
    ("ES256", JwtAlgorithm::Es256, "ECDSA on P-256 with SHA-256."),
    ("ES384", JwtAlgorithm::Es384, "ECDSA on P-384 with SHA-384."),
    ("EdDSA", JwtAlgorithm::EdDsa, "Ed25519."),
]);

/// What a route says that has nothing to do with the tokens of its file.
pub(crate) static NO_TOKENS: Choice<()> = Choice(&[("off", (), "Tokens are not looked at.")]);

places! {
    /// Where JSON Web Tokens are, and which are good.
    JwtFields = Own "jwt" "in `jwt`" {
        keys: TEXTS, "Files of public keys that tokens are verified by: PEM, or a JSON Web Key Set. Followed as they change.";
        secret_file: Shape::Text, "A file with a secret that tokens are verified by, of 32 bytes at least.";
        algorithms: Shape::Any(&[Shape::Word(&JWT_ALGORITHM), Shape::List(&Shape::Word(&JWT_ALGORITHM))]),
            "Only these; all that a key is fit for if not given.";
        issuer: TEXTS, "Who has to have made them (`iss`): one of these.";
        audience: TEXTS, "Whom they have to be for (`aud`): one of these.";
        leeway: Shape::Time, "By how much clocks may differ: `30s` if not given.";
        header: Shape::Text, "The header they are in; `Authorization`, behind `Bearer`, if not given.";
        cookie: Shape::Text, "The cookie they are in instead.";
        required: Shape::Flag, "Refuse requests without a good one, with 401.";
        verify: Shape::Flag, "`false` takes what clients write.";
    }
}
