//! Verification of JSON Web Tokens (RFC 7519) in the compact form (RFC 7515), by the advice of RFC 8725. Nothing in a
//! token chooses its keys but their name; `jku`, `jwk` and `x5u` are ignored. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::jwks::{JwtAlgorithm, KeySet, VerifyingKey};
use super::{AuthResult, Claims};
use crate::plan::JwtRules;

/// Maximum number of keys that a token without `kid` is verified with.
const KEYS_TRIED_MAX: usize = 4;

/// A token whose signature and times are right.
#[derive(Debug)]
pub(crate) struct VerifiedToken {
    pub(crate) claims: Claims,
    /// Time in seconds since 1970 until which it is valid; `u64::MAX`: it has no end.
    pub(crate) valid_until_s: u64,
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
pub(crate) fn verify(
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
            Some(Value::Array(audiences)) => {
                audiences.iter().filter_map(Value::as_str).any(|one| contains(&rules.audiences, one))
            }
            _ => false,
        };
    if !is_issued || !is_for_us {
        return Err(AuthResult::BadClaim);
    }
    // A float beyond the range of u64 becomes its maximum.
    Ok(expires.map_or(u64::MAX, |expires| (expires + skew) as u64))
}

fn contains(texts: &[Box<str>], text: &str) -> bool {
    texts.iter().any(|one| **one == *text)
}
