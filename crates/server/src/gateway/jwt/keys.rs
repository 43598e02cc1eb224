//! The keys that tokens are verified by: from PEM, from a JSON Web Key Set, or a secret.
//!
//! What a key is says what it may be used for, whatever a token says: a public key is never a secret, and nothing is
//! signed by nothing. What cannot be used is said when it is read, not when somebody needs it.

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::{hmac, signature};
use rustls::pki_types::pem::{self, SectionKind};
use rustls::pki_types::{AlgorithmIdentifier, alg_id};
use serde::Deserialize;
use tollgate::rules::JwtAlgorithm;

use JwtAlgorithm::{EdDsa, Es256, Es384, Hs256, Hs384, Hs512, Ps256, Ps384, Ps512, Rs256, Rs384, Rs512};

/// More than anybody has in force at a time; a token without a name is tried with each that fits.
const MOST_KEYS: usize = 32;
/// What RFC 7518 asks for at least.
const LEAST_RSA_BITS: usize = 2048;
const LEAST_SECRET: usize = 32;

/// One key.
pub(super) struct Key {
    /// What tokens call it.
    pub(super) name: Option<String>,
    algorithms: Vec<JwtAlgorithm>,
    material: Material,
}

enum Material {
    Rsa(signature::RsaPublicKeyComponents<Vec<u8>>),
    /// A point, or what Ed25519 has in its place.
    Point(Vec<u8>),
    Secret(Vec<u8>),
}

impl Key {
    fn rsa(modulus: &[u8], exponent: &[u8]) -> anyhow::Result<Self> {
        let strip = |number: &[u8]| number.iter().copied().skip_while(|byte| *byte == 0).collect::<Vec<u8>>();
        let (n, e) = (strip(modulus), strip(exponent));
        let bits = n.first().map_or(0, |first| 8 * n.len() - first.leading_zeros() as usize);
        if bits < LEAST_RSA_BITS {
            bail!("an RSA key of {bits} bits is too short: {LEAST_RSA_BITS} are the least");
        }
        let material = Material::Rsa(signature::RsaPublicKeyComponents { n, e });
        Ok(Self { name: None, algorithms: vec![Rs256, Rs384, Rs512, Ps256, Ps384, Ps512], material })
    }

    fn point(algorithm: JwtAlgorithm, point: Vec<u8>) -> anyhow::Result<Self> {
        let length = match algorithm {
            Es256 => 65,
            Es384 => 97,
            _ => 32,
        };
        if point.len() != length || (algorithm != EdDsa && point.first() != Some(&4)) {
            bail!("this is no key for {algorithm:?}");
        }
        Ok(Self { name: None, algorithms: vec![algorithm], material: Material::Point(point) })
    }

    /// A secret that whoever makes tokens shares.
    pub(super) fn secret(secret: &[u8]) -> anyhow::Result<Self> {
        if secret.len() < LEAST_SECRET {
            bail!("a secret of {} bytes can be guessed: {LEAST_SECRET} are the least", secret.len());
        }
        Ok(Self { name: None, algorithms: vec![Hs256, Hs384, Hs512], material: Material::Secret(secret.to_vec()) })
    }

    /// The same for these algorithms only, if there are any.
    pub(super) fn only(mut self, wanted: &[JwtAlgorithm]) -> Self {
        self.algorithms.retain(|algorithm| wanted.is_empty() || wanted.contains(algorithm));
        self
    }

    pub(super) fn is_for(&self, algorithm: JwtAlgorithm) -> bool {
        self.algorithms.contains(&algorithm)
    }

    /// Whether `signature` of `message` is by this key.
    pub(super) fn has_signed(&self, algorithm: JwtAlgorithm, message: &[u8], signature: &[u8]) -> bool {
        if !self.is_for(algorithm) {
            return false;
        }
        match &self.material {
            Material::Rsa(key) => rsa(algorithm).is_some_and(|how| key.verify(how, message, signature).is_ok()),
            Material::Point(key) => point(algorithm)
                .is_some_and(|how| signature::UnparsedPublicKey::new(how, key).verify(message, signature).is_ok()),
            Material::Secret(key) => {
                digest(algorithm).is_some_and(|how| hmac::verify(&hmac::Key::new(how, key), message, signature).is_ok())
            }
        }
    }
}

fn rsa(algorithm: JwtAlgorithm) -> Option<&'static signature::RsaParameters> {
    Some(match algorithm {
        Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
        Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
        Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
        Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
        _ => return None,
    })
}

fn point(algorithm: JwtAlgorithm) -> Option<&'static dyn signature::VerificationAlgorithm> {
    Some(match algorithm {
        Es256 => &signature::ECDSA_P256_SHA256_FIXED,
        Es384 => &signature::ECDSA_P384_SHA384_FIXED,
        EdDsa => &signature::ED25519,
        _ => return None,
    })
}

fn digest(algorithm: JwtAlgorithm) -> Option<hmac::Algorithm> {
    Some(match algorithm {
        Hs256 => hmac::HMAC_SHA256,
        Hs384 => hmac::HMAC_SHA384,
        Hs512 => hmac::HMAC_SHA512,
        _ => return None,
    })
}

/// The keys in a file: a JSON Web Key Set, or PEM.
pub(super) fn read(text: &[u8]) -> anyhow::Result<Vec<Key>> {
    let keys = if text.trim_ascii_start().starts_with(b"{") { key_set(text)? } else { pem(text)? };
    match keys.len() {
        0 => bail!("there is no key in it that tokens can be verified by"),
        1..=MOST_KEYS => Ok(keys),
        more => bail!("{more} keys are more than are looked at: {MOST_KEYS} are the most"),
    }
}

fn pem(text: &[u8]) -> anyhow::Result<Vec<Key>> {
    let mut keys = Vec::new();
    let mut rest = text;
    while let Some((kind, der)) =
        pem::from_buf(&mut rest).map_err(|_| anyhow::anyhow!("this is neither PEM nor JSON"))?
    {
        keys.push(match kind {
            SectionKind::PublicKey => public_key(&der)?,
            SectionKind::Certificate => {
                bail!("this is a certificate: write its key, which `openssl x509 -pubkey -noout` prints")
            }
            SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey => {
                bail!("this is a private key, which is nobody's but the issuer's: write what `openssl pkey -pubout` prints")
            }
            _ => bail!("this is no public key: write one that begins with `-----BEGIN PUBLIC KEY-----`"),
        });
    }
    Ok(keys)
}

/// A key with its kind beside it, as certificates have it.
fn public_key(der: &[u8]) -> anyhow::Result<Key> {
    let (identifier, bits) = Der(der)
        .inside(0x30)
        .and_then(|mut whole| Some((whole.inside(0x30)?.0, whole.inside(0x03)?.0.strip_prefix(&[0])?)))
        .context("this is no public key")?;
    let is = |known: AlgorithmIdentifier| known.as_ref() == identifier;
    if is(alg_id::RSA_ENCRYPTION) {
        let (n, e) = Der(bits)
            .inside(0x30)
            .and_then(|mut pair| Some((pair.inside(0x02)?.0, pair.inside(0x02)?.0)))
            .context("this is no RSA key")?;
        return Key::rsa(n, e);
    }
    let algorithm = match () {
        () if is(alg_id::ECDSA_P256) => Es256,
        () if is(alg_id::ECDSA_P384) => Es384,
        () if is(alg_id::ED25519) => EdDsa,
        () => bail!("keys are RSA, P-256, P-384 or Ed25519, and this is another kind"),
    };
    Key::point(algorithm, bits.to_vec())
}

/// What is left of something in DER.
struct Der<'d>(&'d [u8]);

impl<'d> Der<'d> {
    /// What is inside the next thing, if it is of this kind.
    fn inside(&mut self, kind: u8) -> Option<Der<'d>> {
        let rest = self.0.strip_prefix(&[kind])?;
        let (length, rest) = match rest.split_first()? {
            (length, rest) if *length < 0x80 => (usize::from(*length), rest),
            (0x81, rest) => rest.split_first().map(|(length, rest)| (usize::from(*length), rest))?,
            (0x82, rest) => {
                rest.split_first_chunk().map(|(length, rest)| (u16::from_be_bytes(*length).into(), rest))?
            }
            _ => return None,
        };
        let (inside, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(Der(inside))
    }
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<serde_json::Value>,
}

/// A key as RFC 7517 writes it.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
    k: Option<String>,
}

/// Those of a set that are for this; it may have others.
fn key_set(text: &[u8]) -> anyhow::Result<Vec<Key>> {
    let set: KeySet = serde_json::from_slice(text).context("this is no JSON Web Key Set")?;
    let mut keys = Vec::new();
    for (number, written) in set.keys.into_iter().enumerate() {
        let jwk: Jwk = serde_json::from_value(written).with_context(|| format!("key {} of the set", number + 1))?;
        let called = jwk.kid.clone().unwrap_or_else(|| format!("number {}", number + 1));
        if let Some(key) = key_of(&jwk).with_context(|| format!("the key {called}"))? {
            keys.push(key);
        }
    }
    Ok(keys)
}

fn key_of(jwk: &Jwk) -> anyhow::Result<Option<Key>> {
    let verifies = jwk.key_ops.as_ref().is_none_or(|uses| uses.iter().any(|one| one == "verify"));
    if jwk.purpose.as_deref().is_some_and(|purpose| purpose != "sig") || !verifies {
        return Ok(None);
    }
    let bytes = |field: &Option<String>, name: &str| {
        let text = field.as_ref().with_context(|| format!("`{name}` is missing"))?;
        URL_SAFE_NO_PAD.decode(text).with_context(|| format!("`{name}` is no base64url"))
    };
    let uncompressed = || anyhow::Ok([&[4][..], &bytes(&jwk.x, "x")?, &bytes(&jwk.y, "y")?].concat());
    let key = match (&*jwk.kty, jwk.crv.as_deref()) {
        ("RSA", _) => Key::rsa(&bytes(&jwk.n, "n")?, &bytes(&jwk.e, "e")?)?,
        ("EC", Some("P-256")) => Key::point(Es256, uncompressed()?)?,
        ("EC", Some("P-384")) => Key::point(Es384, uncompressed()?)?,
        ("OKP", Some("Ed25519")) => Key::point(EdDsa, bytes(&jwk.x, "x")?)?,
        ("oct", _) => Key::secret(&bytes(&jwk.k, "k")?)?,
        // Sets have keys for others, too.
        _ => return Ok(None),
    };
    let key = Key { name: jwk.kid.clone(), ..key };
    Ok(match &jwk.alg {
        None => Some(key),
        Some(name) => JwtAlgorithm::named(name).filter(|one| key.is_for(*one)).map(|one| key.only(&[one])),
    })
}
