//! The cookie that keeps a client at its server: its value, the lookup of a returned cookie, and
//! its insertion into and removal from heads. No I/O; the pool decides whether the server may still
//! be used.
//!
//! A token names a server. It consists of a fingerprint of the server's name and a code that
//! authenticates it, both HMAC-SHA256 under the pool's key. The token reveals neither name nor
//! address, and nobody can make one without the key. All tokens are computed once for each plan, so
//! that a request with a valid cookie costs a comparison.
//!
//! In mode `insert` the cookie belongs to the proxy, and servers never see it. In mode `prefix` it
//! belongs to the application: `NAME=value` becomes `NAME=TOKEN~value` on its way to the client,
//! and `NAME=value` again on its way back, as in HAProxy.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use wire::{Header, encode};

use crate::cookies::{Cookie, cookies, cookies_in_field, split_at_byte};
use crate::outcome::StickyLookup;
use crate::plan::{IdVec, Secret, ServerId, StickyMode, StickyPlan};

/// Bytes of a token's fingerprint, and of a complete token. The base64 form has no padding.
const FINGERPRINT_BYTES: usize = 8;
const TOKEN_BYTES: usize = 24;
const TOKEN_TEXT_BYTES: usize = TOKEN_BYTES / 3 * 4;
/// Delimiter between a token and the application's own value.
const DELIMITER: u8 = b'~';

pub(crate) type Token = [u8; TOKEN_TEXT_BYTES];

/// The tokens of a pool's servers.
pub(crate) struct ServerTokens {
    tokens: IdVec<ServerId, Token>,
    pool: Box<str>,
    key: Secret,
}

impl fmt::Debug for ServerTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Tokens are secrets: a client that knows one can choose its server.
        f.debug_struct("ServerTokens").field("pool", &self.pool).finish_non_exhaustive()
    }
}

/// Computes the authentication code of the parts. Nobody can make one without the key.
fn hmac_of(key: &Secret, parts: [&[u8]; 3]) -> Option<[u8; 32]> {
    let mut hmac = Hmac::<Sha256>::new_from_slice(key.bytes()).ok()?;
    for part in parts {
        // The length prefix makes every list of parts a distinct byte sequence.
        hmac.update(&(part.len() as u64).to_le_bytes());
        hmac.update(part);
    }
    Some(hmac.finalize().into_bytes().into())
}

fn sign_fingerprint(key: &Secret, pool: &str, fingerprint: &[u8]) -> Option<[u8; TOKEN_BYTES]> {
    let hmac = hmac_of(key, [b"token", pool.as_bytes(), fingerprint])?;
    let mut bytes = [0; TOKEN_BYTES];
    bytes[..FINGERPRINT_BYTES].copy_from_slice(fingerprint);
    bytes[FINGERPRINT_BYTES..].copy_from_slice(&hmac[..TOKEN_BYTES - FINGERPRINT_BYTES]);
    Some(bytes)
}

/// Returns whether two values are equal, in constant time.
fn constant_time_eq<const N: usize>(one: &[u8; N], other: &[u8; N]) -> bool {
    one.iter().zip(other).fold(0, |differs, (one, other)| differs | (one ^ other)) == 0
}

impl ServerTokens {
    pub(crate) fn new<'a>(key: &Secret, pool: &str, servers: impl Iterator<Item = &'a str>) -> Self {
        let token = |server: &str| {
            let fingerprint = hmac_of(key, [b"server", pool.as_bytes(), server.as_bytes()])?;
            let bytes = sign_fingerprint(key, pool, &fingerprint[..FINGERPRINT_BYTES])?;
            let mut text = [0; TOKEN_TEXT_BYTES];
            URL_SAFE_NO_PAD.encode_slice(bytes, &mut text).ok()?;
            Some(text)
        };
        // HMAC takes keys of any length, so every server gets a token.
        let tokens = servers.map(|server| token(server).unwrap_or_default()).collect();
        Self { tokens, pool: pool.into(), key: key.clone() }
    }

    pub(crate) fn token(&self, server: ServerId) -> &Token {
        &self.tokens[server]
    }

    /// Returns the server that a token names, or the error.
    fn find_server(&self, token: &Token) -> Result<ServerId, StickyLookup> {
        if let Some(server) = self.tokens.position(|own| constant_time_eq(own, token)) {
            return Ok(server);
        }
        let mut bytes = [0; TOKEN_BYTES];
        let decoded = URL_SAFE_NO_PAD.decode_slice(token, &mut bytes);
        let expected = decoded
            .is_ok_and(|length| length == TOKEN_BYTES)
            .then(|| sign_fingerprint(&self.key, &self.pool, &bytes[..FINGERPRINT_BYTES]))
            .flatten();
        Err(if expected.is_some_and(|ours| constant_time_eq(&ours, &bytes)) {
            StickyLookup::Unknown
        } else {
            StickyLookup::Invalid
        })
    }

    /// Returns the server that a request's cookie names, or the reason why there is none. Among
    /// several cookies of that name, the first one that names a server counts.
    pub(crate) fn find_in_cookies(
        &self,
        plan: &StickyPlan,
        headers: &[Header<'_>],
    ) -> Result<ServerId, StickyLookup> {
        let mut lookup = StickyLookup::Missing;
        for cookie in cookies(headers).filter(|one| one.name == plan.cookie.as_bytes()) {
            let token = match plan.mode {
                StickyMode::Insert => cookie.value.try_into().ok(),
                StickyMode::Prefix => match split_prefix(cookie.value) {
                    Some((token, _)) => Some(token),
                    // The application's own cookie, set before it had a prefix.
                    None => continue,
                },
            };
            match token.map_or(Err(StickyLookup::Invalid), |token| self.find_server(token)) {
                Ok(server) => return Ok(server),
                Err(error) if lookup == StickyLookup::Missing => lookup = error,
                Err(_) => {}
            }
        }
        Err(lookup)
    }
}

/// Splits a value of mode `prefix` into the token and the application's own value, if it has that
/// form.
fn split_prefix(value: &[u8]) -> Option<(&Token, &[u8])> {
    let (token, rest) = value.split_first_chunk::<TOKEN_TEXT_BYTES>()?;
    let is_text = token.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte));
    let own = rest.strip_prefix(&[DELIMITER])?;
    is_text.then_some((token, own))
}

/// Writes a `Cookie` field of a request as the server gets it: without the proxy's cookie, or
/// without the proxy's prefix in the application's cookie. Writes nothing if the field becomes
/// empty.
pub(crate) fn write_cookie_field(plan: &StickyPlan, header: &Header<'_>, out: &mut Vec<u8>) {
    let is_sticky = |cookie: &Cookie<'_>| cookie.name == plan.cookie.as_bytes();
    if !cookies_in_field(header.value).any(|cookie| is_sticky(&cookie)) {
        encode::field(out, header.name, header.value);
        return;
    }
    let start = out.len();
    out.extend_from_slice(header.name.as_bytes());
    out.extend_from_slice(b": ");
    let value_start = out.len();
    for cookie in cookies_in_field(header.value) {
        let cookie_start = out.len();
        if cookie_start > value_start {
            out.extend_from_slice(b"; ");
        }
        match (is_sticky(&cookie), plan.mode) {
            (true, StickyMode::Insert) => out.truncate(cookie_start),
            (true, StickyMode::Prefix) => {
                let value = split_prefix(cookie.value).map_or(cookie.value, |(_, own)| own);
                out.extend_from_slice(cookie.name);
                out.push(b'=');
                out.extend_from_slice(value);
            }
            (false, _) => out.extend_from_slice(cookie.pair),
        }
    }
    if out.len() == value_start {
        out.truncate(start);
    } else {
        out.extend_from_slice(b"\r\n");
    }
}

/// Sticky cookie data for a response.
#[derive(Clone, Copy)]
pub(crate) struct StickyCookie<'a> {
    pub(crate) plan: &'a StickyPlan,
    pub(crate) token: &'a Token,
    /// True if the client has no such cookie yet, or one with an expiry time.
    pub(crate) is_due: bool,
}

impl StickyCookie<'_> {
    /// Writes a response field with a prefix if it sets the application's cookie. Returns whether
    /// it did.
    pub(crate) fn write_with_prefix(&self, header: &Header<'_>, out: &mut Vec<u8>) -> bool {
        let is_set_cookie = header.name.len() == 10 && header.name.eq_ignore_ascii_case("set-cookie");
        if self.plan.mode != StickyMode::Prefix || !is_set_cookie {
            return false;
        }
        let Some((name, rest)) = split_at_byte(header.value, b'=') else {
            return false;
        };
        if name.trim_ascii() != self.plan.cookie.as_bytes() {
            return false;
        }
        for part in [header.name.as_bytes(), b": ", name, b"=", self.token, &[DELIMITER], rest] {
            out.extend_from_slice(part);
        }
        out.extend_from_slice(b"\r\n");
        true
    }

    /// Writes the proxy's own cookie if one is due, and a field that forbids shared caches to store
    /// the response. A cached cookie would send all clients to one client's server.
    pub(crate) fn write_own_cookie(&self, headers: &[Header<'_>], out: &mut Vec<u8>) {
        let plan = self.plan;
        if plan.mode != StickyMode::Insert || !self.is_due {
            return;
        }
        for part in [b"Set-Cookie: ", plan.cookie.as_bytes(), b"=", self.token, b"; Path=/"] {
            out.extend_from_slice(part);
        }
        if let Some(age_s) = plan.max_age_s {
            out.extend_from_slice(b"; Max-Age=");
            out.extend_from_slice(itoa::Buffer::new().format(age_s).as_bytes());
        }
        if plan.http_only {
            out.extend_from_slice(b"; HttpOnly");
        }
        if plan.secure {
            out.extend_from_slice(b"; Secure");
        }
        out.extend_from_slice(b"; SameSite=");
        out.extend_from_slice(plan.same_site.name().as_bytes());
        out.extend_from_slice(b"\r\n");
        if !is_private(headers) {
            out.extend_from_slice(b"Cache-Control: private\r\n");
        }
    }
}

/// Returns whether these fields already forbid shared caches to store a response.
fn is_private(headers: &[Header<'_>]) -> bool {
    headers
        .iter()
        .filter(|header| header.name.eq_ignore_ascii_case("cache-control"))
        .flat_map(|header| header.value.split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
        .any(|one| one.eq_ignore_ascii_case(b"private") || one.eq_ignore_ascii_case(b"no-store"))
}

#[cfg(test)]
mod tests;
