//! Verification of JSON Web Tokens (RFC 7519) in the compact form (RFC 7515), by the advice of RFC 8725. Nothing in a
//! token chooses its keys but their name; `jku`, `jwk` and `x5u` are ignored. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::jwks::{JwtAlgorithm, KeySet, VerifyingKey};
use super::{AuthResult, Claims};

/// Maximum number of keys that a token without `kid` is verified with.
const KEYS_TRIED_MAX: usize = 4;

/// Rules for tokens; others get 401.
#[derive(Clone, Debug, Default)]
pub struct JwtRules {
    pub token_bytes_max: usize,
    /// `None`: all algorithms of the keys.
    pub algorithms: Option<Vec<JwtAlgorithm>>,
    /// Empty: any.
    pub issuers: Vec<Box<str>>,
    pub audiences: Vec<Box<str>>,
    pub clock_skew_s: u64,
    /// Claims that a token must have.
    pub present: Vec<Box<str>>,
}

/// A token whose signature and times are right.
#[derive(Debug)]
pub struct VerifiedToken {
    pub claims: Claims,
    /// Time in seconds since 1970 until which it is valid; `u64::MAX`: it has no end.
    pub valid_until_s: u64,
}

#[derive(Deserialize)]
struct JoseHeader<'a> {
    alg: String,
    kid: Option<String>,
    #[serde(borrow)]
    crit: Option<&'a serde_json::value::RawValue>,
}

/// Verifies a token at a time in seconds since 1970.
///
/// # Errors
/// Returns the reason why the token is refused.
pub fn verify(
    token: &[u8],
    keys: &KeySet,
    rules: &JwtRules,
    now_s: u64,
) -> Result<VerifiedToken, AuthResult> {
    if token.len() > rules.token_bytes_max {
        return Err(AuthResult::Malformed);
    }
    let signature_dot = token.iter().rposition(|&byte| byte == b'.').ok_or(AuthResult::Malformed)?;
    let (message, signature) = (&token[..signature_dot], &token[signature_dot + 1..]);
    let header_dot = message.iter().position(|&byte| byte == b'.').ok_or(AuthResult::Malformed)?;
    let (header, payload) = (&message[..header_dot], &message[header_dot + 1..]);
    if payload.contains(&b'.') {
        return Err(AuthResult::Malformed);
    }
    let header = decode(header)?;
    let header: JoseHeader<'_> = serde_json::from_slice(&header).map_err(|_| AuthResult::Malformed)?;
    // weir has no extension that a token may require (RFC 7515 §4.1.11).
    if header.crit.is_some() {
        return Err(AuthResult::Malformed);
    }
    let algorithm = JwtAlgorithm::from_name(&header.alg)
        .filter(|algorithm| rules.algorithms.as_ref().is_none_or(|allowed| allowed.contains(algorithm)))
        .ok_or(AuthResult::BadAlgorithm)?;
    let signature = decode(signature)?;
    let candidates = candidates(keys, algorithm, header.kid.as_deref())?;
    if !candidates.iter().any(|key| key.verifies(algorithm, message, &signature)) {
        return Err(AuthResult::BadSignature);
    }
    let claims: Map<String, Value> =
        serde_json::from_slice(&decode(payload)?).map_err(|_| AuthResult::Malformed)?;
    let valid_until_s = check_claims(&claims, rules, now_s)?;
    Ok(VerifiedToken { claims: Claims(claims), valid_until_s })
}

fn decode(part: &[u8]) -> Result<Vec<u8>, AuthResult> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| AuthResult::Malformed)
}

/// Returns the keys that may have signed a token.
fn candidates<'k>(
    keys: &'k KeySet,
    algorithm: JwtAlgorithm,
    id: Option<&str>,
) -> Result<Vec<&'k VerifyingKey>, AuthResult> {
    let is_named = |key: &&VerifyingKey| match (id, key.id.as_deref()) {
        (Some(id), Some(own)) => id == own,
        (None, _) | (_, None) => true,
    };
    let named: Vec<_> = keys.keys.iter().filter(is_named).collect();
    let usable: Vec<_> =
        named.iter().copied().filter(|key| key.has(algorithm)).take(KEYS_TRIED_MAX).collect();
    match (named.is_empty(), usable.is_empty()) {
        // A key of the issuer that is newer than the set. No set gets a secret from its source later.
        (true, _) => Err(AuthResult::UnknownKey),
        (false, true) => Err(AuthResult::BadAlgorithm),
        (false, false) => Ok(usable),
    }
}

/// Checks the registered claims. Returns the time until which they hold.
fn check_claims(claims: &Map<String, Value>, rules: &JwtRules, now_s: u64) -> Result<u64, AuthResult> {
    let time = |name: &str| match claims.get(name) {
        None => Ok(None),
        Some(value) => value.as_f64().filter(|time| *time >= 0.0).map(Some).ok_or(AuthResult::BadClaim),
    };
    let (now, skew) = (now_s as f64, rules.clock_skew_s as f64);
    let expires = time("exp")?;
    if expires.is_some_and(|expires| expires + skew <= now) {
        return Err(AuthResult::Expired);
    }
    if time("nbf")?.is_some_and(|not_before| not_before > now + skew) {
        return Err(AuthResult::NotYetValid);
    }
    if rules.present.iter().any(|name| claims.get(&**name).is_none_or(Value::is_null)) {
        return Err(AuthResult::BadClaim);
    }
    let is_issued = rules.issuers.is_empty()
        || claims.get("iss").and_then(Value::as_str).is_some_and(|issuer| contains(&rules.issuers, issuer));
    let is_for_us = rules.audiences.is_empty()
        || match claims.get("aud") {
            Some(Value::String(audience)) => contains(&rules.audiences, audience),
            Some(Value::Array(audiences)) => audiences
                .iter()
                .filter_map(Value::as_str)
                .any(|audience| contains(&rules.audiences, audience)),
            _ => false,
        };
    if !is_issued || !is_for_us {
        return Err(AuthResult::BadClaim);
    }
    // A float beyond the range of u64 becomes its maximum.
    Ok(expires.map_or(u64::MAX, |expires| (expires + skew) as u64))
}

fn contains(texts: &[Box<str>], text: &str) -> bool {
    texts.iter().any(|allowed_text| **allowed_text == *text)
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::hmac;
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PSS_SHA384,
    };
    use base64::engine::general_purpose::STANDARD;

    use super::super::jwks::fixtures::{EC_PKCS8, FILES};
    use super::*;

    const NOW_S: u64 = 1_800_000_000;
    const SECRET: &[u8] = b"0123456789012345678901234567890123456789";

    fn rules() -> JwtRules {
        JwtRules {
            token_bytes_max: 8192,
            clock_skew_s: 60,
            present: vec!["exp".into()],
            ..JwtRules::default()
        }
    }

    fn encode(text: &str) -> String {
        URL_SAFE_NO_PAD.encode(text)
    }

    fn signed(header: &str, claims: &str, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
        let message = format!("{}.{}", encode(header), encode(claims));
        let signature = sign(message.as_bytes());
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn ec_sign(message: &[u8]) -> Vec<u8> {
        let key = STANDARD.decode(EC_PKCS8).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key).unwrap();
        key.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec()
    }

    fn hs_sign(message: &[u8]) -> Vec<u8> {
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET), message).as_ref().to_vec()
    }

    fn es256(claims: &str) -> String {
        signed(r#"{"alg":"ES256","kid":"e1"}"#, claims, ec_sign)
    }

    fn ec_keys() -> KeySet {
        KeySet::parse_file(FILES[1].1.as_bytes()).unwrap()
    }

    fn result(token: &str, keys: &KeySet, rules: &JwtRules) -> Result<u64, AuthResult> {
        verify(token.as_bytes(), keys, rules, NOW_S).map(|token| token.valid_until_s)
    }

    #[test]
    fn tokens_of_each_type_of_key_are_verified() {
        let claims = format!(r#"{{"exp":{},"sub":"ann"}}"#, NOW_S + 10);
        assert_eq!(result(&es256(&claims), &ec_keys(), &rules()), Ok(NOW_S + 70));
        let pem = KeySet::parse_pem(FILES[2].1.as_bytes()).unwrap();
        assert_eq!(result(&es256(&claims), &pem, &rules()), Ok(NOW_S + 70));
        let secret = KeySet::parse_secret(SECRET).unwrap();
        let token = signed(r#"{"alg":"HS256"}"#, &claims, hs_sign);
        let verified = verify(token.as_bytes(), &secret, &rules(), NOW_S).unwrap();
        assert_eq!(verified.claims.text("sub"), Some("ann"));

        let pair = Ed25519KeyPair::generate().unwrap();
        let x = URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
        let set = format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","x":"{x}"}}]}}"#);
        let set = KeySet::parse_remote(set.as_bytes()).unwrap();
        let token =
            signed(r#"{"alg":"EdDSA","kid":"any"}"#, &claims, |message| pair.sign(message).as_ref().to_vec());
        assert_eq!(result(&token, &set, &rules()), Ok(NOW_S + 70));

        let pair = aws_lc_rs::rsa::KeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap();
        let public = pair.public_key();
        let part = |part: &[u8]| URL_SAFE_NO_PAD.encode(part);
        let (n, e) = (public.modulus(), public.exponent());
        let (n, e) = (part(n.big_endian_without_leading_zero()), part(e.big_endian_without_leading_zero()));
        let set = format!(r#"{{"keys":[{{"kty":"RSA","kid":"r","n":"{n}","e":"{e}"}}]}}"#);
        let set = KeySet::parse_remote(set.as_bytes()).unwrap();
        let token = signed(r#"{"alg":"PS384","kid":"r"}"#, &claims, |message| {
            let mut signature = vec![0; pair.public_modulus_len()];
            pair.sign(&RSA_PSS_SHA384, &SystemRandom::new(), message, &mut signature).unwrap();
            signature
        });
        assert_eq!(result(&token, &set, &rules()), Ok(NOW_S + 70));
        let relabelled = token.replacen(
            &encode(r#"{"alg":"PS384","kid":"r"}"#),
            &encode(r#"{"alg":"RS384","kid":"r"}"#),
            1,
        );
        assert_eq!(result(&relabelled, &set, &rules()), Err(AuthResult::BadSignature));
    }

    #[test]
    fn a_public_key_is_no_secret_and_none_is_no_algorithm() {
        let claims = format!(r#"{{"exp":{}}}"#, NOW_S + 10);
        let public = FILES[2].1.as_bytes();
        let confused = signed(r#"{"alg":"HS256","kid":"e1"}"#, &claims, |message| {
            hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, public), message).as_ref().to_vec()
        });
        let pem = KeySet::parse_pem(public).unwrap();
        for keys in [&pem, &ec_keys()] {
            assert_eq!(result(&confused, keys, &rules()), Err(AuthResult::BadAlgorithm));
            for name in ["none", "None", "NONE", "", "es256", "ES256K"] {
                let token = signed(&format!(r#"{{"alg":"{name}"}}"#), &claims, |_| Vec::new());
                assert_eq!(result(&token, keys, &rules()), Err(AuthResult::BadAlgorithm), "{name}");
            }
        }
        let narrow = JwtRules { algorithms: Some(vec![JwtAlgorithm::Rs256]), ..rules() };
        assert_eq!(result(&es256(&claims), &pem, &narrow), Err(AuthResult::BadAlgorithm));
    }

    #[test]
    fn malformed_tokens_are_refused() {
        let claims = format!(r#"{{"exp":{}}}"#, NOW_S + 10);
        let good = es256(&claims);
        let (keys, header) = (ec_keys(), r#"{"alg":"ES256","kid":"e1"}"#);
        let with_header = |header: &str| signed(header, &claims, ec_sign);
        let mut changed = good.clone().into_bytes();
        let last = changed.len() - 10;
        changed[last] = if changed[last] == b'A' { b'B' } else { b'A' };
        for (token, expected) in [
            (String::new(), AuthResult::Malformed),
            ("..".to_owned(), AuthResult::Malformed),
            ("a.b".to_owned(), AuthResult::Malformed),
            (format!("{good}."), AuthResult::Malformed),
            (format!("{good}="), AuthResult::Malformed),
            (format!("{good}.x"), AuthResult::Malformed),
            (good.replace('.', "!."), AuthResult::Malformed),
            (String::from_utf8(changed).unwrap(), AuthResult::BadSignature),
            (signed(header, &claims, |_| Vec::new()), AuthResult::BadSignature),
            (signed(header, "[]", ec_sign), AuthResult::Malformed),
            (signed(header, "\u{e9}", ec_sign), AuthResult::Malformed),
            (with_header("{}"), AuthResult::Malformed),
            (with_header("[]"), AuthResult::Malformed),
            (with_header(r#"{"alg":"ES256","alg":"none"}"#), AuthResult::Malformed),
            (with_header(r#"{"alg":5}"#), AuthResult::Malformed),
            (with_header(r#"{"alg":"ES256","kid":["e1"]}"#), AuthResult::Malformed),
            (with_header(r#"{"alg":"ES256","crit":["b64"],"b64":false}"#), AuthResult::Malformed),
            (with_header(r#"{"alg":"ES256","kid":"../../dev/null"}"#), AuthResult::UnknownKey),
            (with_header(r#"{"alg":"ES256","kid":""}"#), AuthResult::UnknownKey),
            ("a".repeat(100_000), AuthResult::Malformed),
        ] {
            assert_eq!(result(&token, &keys, &rules()), Err(expected), "{}", &token[..token.len().min(80)]);
        }
        // A key or a URL in the header does not count.
        let own = with_header(r#"{"alg":"ES256","jku":"https://evil.example","jwk":{"kty":"oct","k":"AA"}}"#);
        assert!(result(&own, &keys, &rules()).is_ok());
    }

    #[test]
    fn registered_claims_are_checked() {
        let strict =
            JwtRules { issuers: vec!["i1".into(), "i2".into()], audiences: vec!["api".into()], ..rules() };
        let free = JwtRules { present: Vec::new(), ..rules() };
        let (past, future) = (NOW_S - 60, NOW_S + 61);
        for (rules, claims, expected) in [
            (&rules(), format!(r#"{{"exp":{}}}"#, past + 1), Ok(NOW_S + 1)),
            (&rules(), format!(r#"{{"exp":{past}}}"#), Err(AuthResult::Expired)),
            (&rules(), format!(r#"{{"exp":{future}.5,"nbf":{future}}}"#), Err(AuthResult::NotYetValid)),
            (&rules(), format!(r#"{{"exp":{future},"nbf":{}}}"#, future - 1), Ok(future + 60)),
            (&rules(), r#"{"exp":"1900000000"}"#.to_owned(), Err(AuthResult::BadClaim)),
            (&rules(), r#"{"exp":-1}"#.to_owned(), Err(AuthResult::BadClaim)),
            (&rules(), r#"{"exp":1e300}"#.to_owned(), Ok(u64::MAX)),
            (&rules(), "{}".to_owned(), Err(AuthResult::BadClaim)),
            (&rules(), r#"{"exp":null}"#.to_owned(), Err(AuthResult::BadClaim)),
            (&free, "{}".to_owned(), Ok(u64::MAX)),
            (&strict, format!(r#"{{"exp":{future},"iss":"i2","aud":"api"}}"#), Ok(future + 60)),
            (&strict, format!(r#"{{"exp":{future},"iss":"i2","aud":["x","api"]}}"#), Ok(future + 60)),
            (&strict, format!(r#"{{"exp":{future},"iss":"i3","aud":"api"}}"#), Err(AuthResult::BadClaim)),
            (&strict, format!(r#"{{"exp":{future},"iss":["i1"],"aud":"api"}}"#), Err(AuthResult::BadClaim)),
            (&strict, format!(r#"{{"exp":{future},"iss":"i1","aud":"apix"}}"#), Err(AuthResult::BadClaim)),
            (&strict, format!(r#"{{"exp":{future},"iss":"i1"}}"#), Err(AuthResult::BadClaim)),
        ] {
            assert_eq!(result(&es256(&claims), &ec_keys(), rules), expected, "{claims}");
        }
    }
}
