//! Keys that verify tokens: a JSON Web Key Set (RFC 7517), a public key in PEM, or a secret. A key has the algorithms of
//! its type only, so a token cannot choose to use a public key as a secret. Pure.

use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, ED25519, ParsedPublicKey,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters,
    RsaPublicKeyComponents, VerificationAlgorithm,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde::Deserialize;

/// Maximum size of a set of keys, and of a file with a key.
pub const KEYS_BYTES_MAX: usize = 256 << 10;
/// Maximum number of keys of a set.
const KEYS_MAX: usize = 100;
/// Lengths of the modulus of a key of RSA in bytes: 2,048 to 8,192 bits.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;
/// Minimum length of a secret: that of the shortest hash (RFC 7518 §3.2).
const SECRET_BYTES_MIN: usize = 32;

code_table! {
    /// Algorithm of the signature of a token (RFC 7518 §3.1, RFC 8037).
    #[derive(Hash)]
    pub enum JwtAlgorithm:
    Rs256, "RS256";
    Rs384, "RS384";
    Rs512, "RS512";
    Ps256, "PS256";
    Ps384, "PS384";
    Ps512, "PS512";
    Es256, "ES256";
    Es384, "ES384";
    Es512, "ES512";
    EdDsa, "EdDSA";
    Hs256, "HS256";
    Hs384, "HS384";
    Hs512, "HS512";
}

/// Keys of one source.
pub struct KeySet {
    pub keys: Vec<VerifyingKey>,
    /// Number of keys that are left out: for another use, or of an unknown type.
    pub ignored: usize,
    /// Number that no other set has.
    pub number: u64,
}

pub struct VerifyingKey {
    /// `None`: it verifies tokens with any `kid`.
    pub id: Option<Box<str>>,
    /// The only algorithm of the key; `None`: all of its type.
    algorithm: Option<JwtAlgorithm>,
    material: KeyMaterial,
}

enum KeyMaterial {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    RsaDer(Vec<u8>),
    Public(JwtAlgorithm, ParsedPublicKey),
    Secret(Vec<u8>),
}

#[derive(Deserialize)]
struct Jwks {
    keys: Vec<serde_json::Value>,
}

/// The members of a key that count; all are text.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    kid: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
    k: Option<String>,
}

impl JwtAlgorithm {
    /// Finds an algorithm by its name. `none` is no algorithm.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|algorithm| algorithm.code() == name)
    }

    fn rsa(self) -> Option<&'static RsaParameters> {
        Some(match self {
            Self::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
            Self::Rs384 => &RSA_PKCS1_2048_8192_SHA384,
            Self::Rs512 => &RSA_PKCS1_2048_8192_SHA512,
            Self::Ps256 => &RSA_PSS_2048_8192_SHA256,
            Self::Ps384 => &RSA_PSS_2048_8192_SHA384,
            Self::Ps512 => &RSA_PSS_2048_8192_SHA512,
            _ => return None,
        })
    }

    fn curve(self) -> Option<&'static dyn VerificationAlgorithm> {
        Some(match self {
            Self::Es256 => &ECDSA_P256_SHA256_FIXED,
            Self::Es384 => &ECDSA_P384_SHA384_FIXED,
            Self::Es512 => &ECDSA_P521_SHA512_FIXED,
            Self::EdDsa => &ED25519,
            _ => return None,
        })
    }

    /// Returns the hash of a secret, and the minimum length of the secret.
    fn hmac(self) -> Option<(hmac::Algorithm, usize)> {
        Some(match self {
            Self::Hs256 => (hmac::HMAC_SHA256, 32),
            Self::Hs384 => (hmac::HMAC_SHA384, 48),
            Self::Hs512 => (hmac::HMAC_SHA512, 64),
            _ => return None,
        })
    }
}

impl VerifyingKey {
    pub fn has(&self, algorithm: JwtAlgorithm) -> bool {
        let is_of_type = match &self.material {
            KeyMaterial::Rsa { .. } | KeyMaterial::RsaDer(_) => algorithm.rsa().is_some(),
            KeyMaterial::Public(own, _) => *own == algorithm,
            KeyMaterial::Secret(secret) => {
                algorithm.hmac().is_some_and(|(_, bytes_min)| secret.len() >= bytes_min)
            }
        };
        is_of_type && self.algorithm.is_none_or(|own| own == algorithm)
    }

    pub fn verifies(&self, algorithm: JwtAlgorithm, message: &[u8], signature: &[u8]) -> bool {
        if !self.has(algorithm) {
            return false;
        }
        match &self.material {
            KeyMaterial::Rsa { modulus, exponent } => {
                let components = RsaPublicKeyComponents { n: modulus, e: exponent };
                algorithm.rsa().is_some_and(|rsa| components.verify(rsa, message, signature).is_ok())
            }
            KeyMaterial::RsaDer(der) => {
                let key = algorithm.rsa().and_then(|rsa| ParsedPublicKey::new(rsa, der).ok());
                key.is_some_and(|key| key.verify_sig(message, signature).is_ok())
            }
            KeyMaterial::Public(_, key) => key.verify_sig(message, signature).is_ok(),
            KeyMaterial::Secret(secret) => algorithm.hmac().is_some_and(|(hash, _)| {
                hmac::verify(&hmac::Key::new(hash, secret), message, signature).is_ok()
            }),
        }
    }

    /// Returns the algorithms, for people.
    pub fn algorithms(&self) -> impl Iterator<Item = JwtAlgorithm> {
        JwtAlgorithm::ALL.iter().copied().filter(|algorithm| self.has(*algorithm))
    }
}

impl KeySet {
    fn new(keys: Vec<VerifyingKey>, ignored: usize) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { keys, ignored, number: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// Parses a set in a file, whose owner may use secrets.
    ///
    /// # Errors
    /// It is no set of keys, has none that can be used, or malformed ones.
    pub fn parse_file(content: &[u8]) -> Result<Self, Vec<String>> {
        Self::parse_jwks(content, true).map_err(|fault| vec![format!(" {fault}")])
    }

    /// Parses a set from a URL. Secrets in it are left out, because others could read them.
    ///
    /// # Errors
    /// Those of [`KeySet::parse_file`].
    pub fn parse_remote(content: &[u8]) -> Result<Self, JwksFault> {
        Self::parse_jwks(content, false)
    }

    fn parse_jwks(content: &[u8], takes_secrets: bool) -> Result<Self, JwksFault> {
        if content.starts_with(b"-----BEGIN") {
            return Err(JwksFault::Pem);
        }
        let set: Jwks = serde_json::from_slice(content).map_err(JwksFault::Json)?;
        if set.keys.len() > KEYS_MAX {
            return Err(JwksFault::TooMany(set.keys.len()));
        }
        let (mut keys, mut ignored) = (Vec::new(), 0);
        for (index, key) in set.keys.into_iter().enumerate() {
            match parse_jwk(key, takes_secrets).map_err(|fault| JwksFault::Key(index + 1, fault))? {
                Some(key) => keys.push(key),
                None => ignored += 1,
            }
        }
        if keys.is_empty() { Err(JwksFault::Empty) } else { Ok(Self::new(keys, ignored)) }
    }

    /// Parses a file with a public key in PEM.
    ///
    /// # Errors
    /// It is none of RSA, a curve of NIST or Ed25519.
    pub fn parse_pem(content: &[u8]) -> Result<Self, Vec<String>> {
        let fault = |text: &str| Err(vec![format!(" {text}")]);
        let text = String::from_utf8_lossy(content);
        let block = ["PUBLIC KEY", "RSA PUBLIC KEY"].iter().find_map(|label| {
            let start = format!("-----BEGIN {label}-----");
            let (_, rest) = text.split_once(&*start)?;
            rest.split_once(&*format!("-----END {label}-----")).map(|(block, _)| block)
        });
        let Some(block) = block else {
            return fault(
                "no public key in PEM: for that of a certificate, run `openssl x509 -pubkey -noout -in FILE`",
            );
        };
        let base64: String = block.chars().filter(|character| !character.is_ascii_whitespace()).collect();
        let Ok(der) = STANDARD.decode(base64) else { return fault("the key is not base64") };
        let curves = [JwtAlgorithm::Es256, JwtAlgorithm::Es384, JwtAlgorithm::Es512, JwtAlgorithm::EdDsa];
        let parsed = curves.into_iter().find_map(|algorithm| {
            let key = ParsedPublicKey::new(algorithm.curve()?, &der).ok()?;
            Some(KeyMaterial::Public(algorithm, key))
        });
        let is_rsa = || ParsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &der).is_ok();
        let material = match parsed {
            Some(material) => material,
            None if is_rsa() => KeyMaterial::RsaDer(der),
            None => return fault("the key is none of RSA, P-256, P-384, P-521 or Ed25519"),
        };
        Ok(Self::new(vec![VerifyingKey { id: None, algorithm: None, material }], 0))
    }

    /// Parses a file with a secret: its bytes, without a line break at the end.
    ///
    /// # Errors
    /// It is too short, or a public key.
    pub fn parse_secret(content: &[u8]) -> Result<Self, Vec<String>> {
        let content = content.strip_suffix(b"\n").unwrap_or(content);
        let secret = content.strip_suffix(b"\r").unwrap_or(content);
        if secret.len() < SECRET_BYTES_MIN {
            return Err(vec![format!(
                " the secret is shorter than {SECRET_BYTES_MIN} bytes: make one with `openssl rand -hex 32`"
            )]);
        }
        if secret.windows(10).any(|part| part == b"PUBLIC KEY") || secret.starts_with(b"-----BEGIN") {
            return Err(vec![" a key in PEM is no secret: write `public-key-file`".to_owned()]);
        }
        let material = KeyMaterial::Secret(secret.to_vec());
        Ok(Self::new(vec![VerifyingKey { id: None, algorithm: None, material }], 0))
    }
}

/// Reason why a set of keys is refused.
#[derive(Debug, thiserror::Error)]
pub enum JwksFault {
    #[error("not a JSON Web Key Set: {0}")]
    Json(serde_json::Error),
    #[error("a key in PEM is no JSON Web Key Set: write `public-key-file`")]
    Pem,
    #[error("{0} keys, and at most {KEYS_MAX} are possible")]
    TooMany(usize),
    #[error("key {0} {1}")]
    Key(usize, JwkFault),
    #[error("no key for signatures of RSA, EC or OKP")]
    Empty,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwkFault {
    #[error("is no JSON Web Key")]
    Malformed,
    #[error("has no '{0}', or one that is not base64url")]
    Member(&'static str),
    #[error("is of RSA with less than 2048 or more than 8192 bits")]
    RsaBits,
    #[error("is no point of its curve")]
    Point,
    #[error("is a secret shorter than {SECRET_BYTES_MIN} bytes")]
    Secret,
}

/// Parses a key; `None`: it has another use, or an unknown type.
fn parse_jwk(key: serde_json::Value, takes_secrets: bool) -> Result<Option<VerifyingKey>, JwkFault> {
    let key: Jwk = serde_json::from_value(key).map_err(|_| JwkFault::Malformed)?;
    let is_for_signatures = key.usage.as_deref().is_none_or(|usage| usage == "sig")
        && key.key_ops.as_ref().is_none_or(|ops| ops.iter().any(|op| op == "verify"));
    let algorithm = key.alg.as_deref().map(JwtAlgorithm::from_name);
    // An algorithm that weir does not have, such as one for encryption.
    if !is_for_signatures || algorithm == Some(None) {
        return Ok(None);
    }
    let bytes = |member: &Option<String>, name| {
        let text = member.as_ref().ok_or(JwkFault::Member(name))?;
        URL_SAFE_NO_PAD.decode(text).map_err(|_| JwkFault::Member(name))
    };
    let material = match (&*key.kty, key.crv.as_deref()) {
        ("RSA", _) => {
            let modulus = bytes(&key.n, "n")?;
            let first = modulus.iter().position(|&byte| byte != 0).unwrap_or(modulus.len());
            let modulus = modulus[first..].to_vec();
            if !RSA_BYTES.contains(&modulus.len()) {
                return Err(JwkFault::RsaBits);
            }
            KeyMaterial::Rsa { modulus, exponent: bytes(&key.e, "e")? }
        }
        ("EC", Some(curve @ ("P-256" | "P-384" | "P-521"))) => {
            let (algorithm, coordinate_bytes) = match curve {
                "P-256" => (JwtAlgorithm::Es256, 32),
                "P-384" => (JwtAlgorithm::Es384, 48),
                _ => (JwtAlgorithm::Es512, 66),
            };
            let (x, y) = (bytes(&key.x, "x")?, bytes(&key.y, "y")?);
            if x.len() != coordinate_bytes || y.len() != coordinate_bytes {
                return Err(JwkFault::Point);
            }
            parse_point(algorithm, &[&[4], &*x, &*y].concat())?
        }
        ("OKP", Some("Ed25519")) => parse_point(JwtAlgorithm::EdDsa, &bytes(&key.x, "x")?)?,
        ("oct", _) if takes_secrets => match bytes(&key.k, "k")? {
            secret if secret.len() < SECRET_BYTES_MIN => return Err(JwkFault::Secret),
            secret => KeyMaterial::Secret(secret),
        },
        _ => return Ok(None),
    };
    Ok(Some(VerifyingKey { id: key.kid.map(Into::into), algorithm: algorithm.flatten(), material }))
}

fn parse_point(algorithm: JwtAlgorithm, point: &[u8]) -> Result<KeyMaterial, JwkFault> {
    let curve = algorithm.curve().ok_or(JwkFault::Point)?;
    let key = ParsedPublicKey::new(curve, point).map_err(|_| JwkFault::Point)?;
    Ok(KeyMaterial::Public(algorithm, key))
}

#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures {
    /// Key of P-256 in PKCS #8; its public key is in [`FILES`].
    pub const EC_PKCS8: &str = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg3TC00dQOUk+ooYbQZ6A8+7RUt2KhwdpkRL8+zinrDB2hRANCAASpAP1s1QTSfPat7p7AJzPJ3doTvPR+8RLhlDf9ti27s5IYAlZJVPAR7rAxmrYfLK/piYHMOtHzfIYZZhO0aP4Q";

    /// Files with users and keys: names and contents.
    pub const FILES: [(&str, &str); 3] = [
        ("users", "ann:$2b$04$cs0U9g6q03b4/.l0hLcXx.p4FfnaGyG/5dFJkziqk4TQZoU.CyG5W\n"),
        (
            "jwks.json",
            r#"{ "keys": [{ "kty": "EC", "crv": "P-256", "kid": "e1", "use": "sig", "x": "qQD9bNUE0nz2re6ewCczyd3aE7z0fvES4ZQ3_bYtu7M", "y": "khgCVklU8BHusDGath8sr-mJgcw60fN8hhlmE7Ro_hA" }] }"#,
        ),
        (
            "key.pub",
            "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEqQD9bNUE0nz2re6ewCczyd3aE7z0\nfvES4ZQ3/bYtu7OSGAJWSVTwEe6wMZq2Hyyv6YmBzDrR83yGGWYTtGj+EA==\n-----END PUBLIC KEY-----\n",
        ),
    ];
}

#[cfg(test)]
mod tests {
    use super::fixtures::FILES;
    use super::*;

    fn algorithms(set: &KeySet) -> Vec<&str> {
        set.keys.iter().flat_map(VerifyingKey::algorithms).map(JwtAlgorithm::code).collect()
    }

    #[test]
    fn a_key_has_the_algorithms_of_its_type_only() {
        for (text, expected, ignored) in [
            (FILES[1].1, &["ES256"][..], 0),
            (r#"{"keys":[{"kty":"oct","k":"MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE"}]}"#, &["HS256"], 0),
            (
                r#"{"keys":[{"kty":"oct","k":"MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE","alg":"HS256"},{"kty":"X"},
                {"kty":"RSA","use":"enc"},{"kty":"RSA","alg":"RSA-OAEP"},{"kty":"EC","crv":"secp256k1"},
                {"kty":"oct","key_ops":["sign"]},{"kty":"OKP","crv":"X25519"}]}"#,
                &["HS256"],
                6,
            ),
        ] {
            let set = KeySet::parse_file(text.as_bytes()).unwrap();
            assert_eq!((algorithms(&set), set.ignored), (expected.to_vec(), ignored), "{text}");
        }
        let pem = KeySet::parse_pem(FILES[2].1.as_bytes()).unwrap();
        assert!(algorithms(&pem) == ["ES256"] && pem.keys[0].id.is_none());
        let modulus = URL_SAFE_NO_PAD.encode([&[0, 0x80][..], &[1; 255]].concat());
        let rsa = format!(r#"{{"keys":[{{"kty":"RSA","n":"{modulus}","e":"AQAB"}}]}}"#);
        let rsa = KeySet::parse_remote(rsa.as_bytes()).unwrap();
        assert_eq!(algorithms(&rsa), ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]);
        let secret = KeySet::parse_secret(&[b's'; 48]).unwrap();
        assert_eq!(algorithms(&secret), ["HS256", "HS384"]);
    }

    #[test]
    fn malformed_sets_are_refused() {
        let many = format!(r#"{{"keys":[{}]}}"#, vec![r#"{"kty":"X"}"#; 101].join(","));
        for (text, part) in [
            ("", "not a JSON Web Key Set"),
            ("[]", "not a JSON Web Key Set"),
            ("-----BEGIN PUBLIC KEY-----", "write `public-key-file`"),
            ("{}", "missing field `keys`"),
            (r#"{"keys":[]}"#, "no key for signatures"),
            (r#"{"keys":[{}]}"#, "key 1 is no JSON Web Key"),
            (r#"{"keys":[{"kty":"X"}, 5]}"#, "key 2 is no JSON Web Key"),
            (r#"{"keys":[{"kty":"RSA","e":"AQAB"}]}"#, "key 1 has no 'n'"),
            (r#"{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}"#, "less than 2048"),
            (r#"{"keys":[{"kty":"EC","crv":"P-256","x":"!","y":"AA"}]}"#, "no 'x'"),
            (r#"{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}"#, "no point"),
            (r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AA"}]}"#, "no point"),
            (&*many, "101 keys"),
        ] {
            let fault = KeySet::parse_remote(text.as_bytes()).err().unwrap().to_string();
            assert!(fault.contains(part), "{text}: {fault}");
        }
        // A secret counts only in a file.
        let secret = r#"{"keys":[{"kty":"oct","k":"MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE"}]}"#;
        assert!(
            KeySet::parse_remote(secret.as_bytes()).is_err() && KeySet::parse_file(secret.as_bytes()).is_ok()
        );
        let short = r#"{"keys":[{"kty":"oct","k":"MDEy"}]}"#;
        assert!(KeySet::parse_file(short.as_bytes()).is_err());
    }

    #[test]
    fn files_with_other_things_are_refused() {
        for (content, part) in [
            (&b"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----"[..], "openssl x509 -pubkey"),
            (b"-----BEGIN PUBLIC KEY-----\n!\n-----END PUBLIC KEY-----", "not base64"),
            (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "none of RSA"),
        ] {
            let faults = KeySet::parse_pem(content).err().unwrap();
            assert!(faults[0].contains(part), "{faults:?}");
        }
        assert!(KeySet::parse_secret(b"short\n").err().unwrap()[0].contains("openssl rand -hex 32"));
        let public = KeySet::parse_secret(FILES[2].1.as_bytes()).err().unwrap();
        assert!(public[0].contains("write `public-key-file`"), "{public:?}");
    }
}
