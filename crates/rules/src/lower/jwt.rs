//! How the tokens of requests are verified.

use std::sync::Arc;

use tollgate_core::Micros;

use super::Lowering;
use crate::grammar::{JWT_ALGORITHM, JwtFields, NO_TOKENS};
use crate::jwt::{JwtSpec, TokenPlace, TokenTrust};
use crate::yaml::{Kind, Node};

/// By how much clocks may differ if nothing is said.
const LEEWAY: Micros = Micros::from_secs(30);
/// A token that is good for so much longer than it says is as good as one without an end.
const MOST_LEEWAY: Micros = Micros::HOUR;

impl Lowering<'_> {
    /// What a route says of tokens: how they are verified, or that they are not looked at.
    pub(super) fn tokens_of_route(&mut self, node: &Node) -> Option<JwtSpec> {
        if !matches!(node.kind(), Kind::Map(_)) {
            self.choice_or(&NO_TOKENS, node, &["{keys: /etc/tollgate/jwks.json}"]);
            return None;
        }
        self.jwt(node)
    }

    pub(super) fn jwt(&mut self, node: &Node) -> Option<JwtSpec> {
        let before = self.errors;
        let fields: JwtFields<'_> = self.fields(node)?;
        let is_verified = self.or(fields.verify, true, Self::flag);
        let trust = if is_verified { self.keys(before, node, &fields) } else { self.no_keys(&fields) };
        let place = match (fields.header, fields.cookie) {
            (Some(header), Some(cookie)) => {
                self.exclusive(header, cookie, "a token is in one place", "write one of them");
                None
            }
            (Some(header), None) => self.header(header.value).map(|name| match &*name {
                "authorization" => TokenPlace::Bearer,
                _ => TokenPlace::Header(name),
            }),
            (None, Some(cookie)) => self.token(cookie.value, "cookie").map(|name| TokenPlace::Cookie(name.into())),
            (None, None) => Some(TokenPlace::Bearer),
        };
        let issuer = self.some(fields.issuer, Self::word);
        let audience = self.some(fields.audience, Self::word);
        let leeway = self.or(fields.leeway, LEEWAY, Self::time);
        if let Some(slot) = fields.leeway.filter(|_| leeway > MOST_LEEWAY) {
            self.error("time", slot.value.span, "clocks do not differ by that much", "write `1h` at most");
        }
        let required = self.is_set(fields.required);
        let spec = JwtSpec { place: place?, trust: trust?, issuer, audience, leeway, required };
        (self.errors == before).then_some(spec)
    }

    fn keys(&mut self, before: usize, node: &Node, fields: &JwtFields<'_>) -> Option<TokenTrust> {
        let keys = fields.keys.map(|keys| self.each(keys.value, Self::word)).unwrap_or_default();
        let secret = fields.secret_file.and_then(|file| self.word(file.value));
        let algorithms = self.some(fields.algorithms, |this, node| this.choice(&JWT_ALGORITHM, node));
        if keys.is_empty() && secret.is_none() {
            let help = "write `keys: /etc/tollgate/jwks.json` (public keys) or `secret_file: /run/secrets/jwt`; with `verify: false` \
                        whatever clients write is taken";
            self.missing(before, node, "`jwt` does not say what tokens are verified by", help);
            return None;
        }
        if let Some(slot) = fields.algorithms.filter(|_| keys.is_empty())
            && !algorithms.is_empty()
            && !algorithms.iter().any(|algorithm| algorithm.is_symmetric())
        {
            let help = "write `algorithms: HS256`, or name files of public keys in `keys`";
            self.error("either-or", slot.value.spot(), "nobody can verify these by a secret", help);
        }
        Some(TokenTrust::Keys { keys, secret, algorithms })
    }

    /// Where nothing is verified, nothing can be asked for that has to be.
    fn no_keys(&mut self, fields: &JwtFields<'_>) -> Option<TokenTrust> {
        let verify = fields.verify?;
        let useless =
            [fields.keys, fields.secret_file, fields.algorithms, fields.issuer, fields.audience, fields.leeway];
        let before = self.errors;
        for slot in useless.into_iter().flatten() {
            self.exclusive(verify, slot, "nothing is verified", "leave one of them out");
        }
        if self.errors == before {
            let message = "tokens are not verified: whoever sends one writes into it what they like";
            let help = "name `keys` to verify them by, unless something in front of this gateway has done so";
            self.warning("unverified", verify.value.span, message, help);
        }
        Some(TokenTrust::Nothing)
    }

    /// A text that is not empty.
    fn word(&mut self, node: &Node) -> Option<Arc<str>> {
        let text = self.text(node)?;
        if text.is_empty() {
            self.error("wrong-type", node.span, "this says nothing", "write something, or leave it out");
            return None;
        }
        Some(text.into())
    }
}
