//! What a file says about the tokens that clients show: where they are, and by what they are verified.
//!
//! Only the names of files are known here; what is in them is for whoever verifies.

use std::sync::Arc;

use tollgate_core::Micros;

/// Where tokens are, and which are good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtSpec {
    /// Where in a request the token is.
    pub place: TokenPlace,
    /// By what it is verified.
    pub trust: TokenTrust,
    /// Who has to have made it: one of these; anybody with a key if there is nobody.
    pub issuer: Vec<Arc<str>>,
    /// Whom it has to be for: one of these; anybody if there is nobody.
    pub audience: Vec<Arc<str>>,
    /// By how much clocks may differ.
    pub leeway: Micros,
    /// Whether requests without a good one are refused.
    pub required: bool,
}

/// Where in a request a token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenPlace {
    /// In `Authorization`, behind `Bearer`.
    Bearer,
    /// In this header, in lower case.
    Header(Arc<str>),
    /// In this cookie.
    Cookie(Arc<str>),
}

/// By what a token is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenTrust {
    /// By nothing: whoever sends it writes what they like.
    Nothing,
    /// By keys in files.
    Keys {
        /// Files of public keys: PEM, or a JSON Web Key Set.
        keys: Vec<Arc<str>>,
        /// A file with a secret that whoever makes tokens shares.
        secret: Option<Arc<str>>,
        /// Only by these; by all that a key is fit for if there are none.
        algorithms: Vec<JwtAlgorithm>,
    },
}

/// How a token is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "their names are those of RFC 7518 and RFC 8037")]
pub enum JwtAlgorithm {
    Hs256,
    Hs384,
    Hs512,
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

impl JwtAlgorithm {
    /// The algorithm of this name; never one that signs nothing.
    pub fn named(name: &str) -> Option<Self> {
        crate::grammar::JWT_ALGORITHM.0.iter().find(|(known, ..)| *known == name).map(|(_, algorithm, _)| *algorithm)
    }

    /// Whether whoever verifies a token could have made it as well.
    pub fn is_symmetric(self) -> bool {
        matches!(self, Self::Hs256 | Self::Hs384 | Self::Hs512)
    }
}
