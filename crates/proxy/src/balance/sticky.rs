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
use crate::plan::{IdVec, Secret, ServerId, StickyLimits, StickyMode, StickyPlan};

/// Bytes of a token's fingerprint, and of a complete token. The base64 form has no padding.
const FINGERPRINT_BYTES: usize = 8;
const TOKEN_BYTES: usize = 24;
const TOKEN_TEXT_BYTES: usize = TOKEN_BYTES / 3 * 4;
/// Delimiter between a token and the application's own value.
const DELIMITER: u8 = b'~';

pub(crate) type Token = [u8; TOKEN_TEXT_BYTES];

/// Times of a cookie of mode `insert`, in seconds since 1970. They follow its token in hexadecimal digits, and are not
/// authenticated: a client that changes them stays longer at the server that it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CookieTimes {
    /// Time of the last response.
    pub(crate) last_s: u32,
    /// Time at which the client got the server.
    pub(crate) since_s: u32,
}

/// Length of the text of the times.
const TIMES_TEXT_BYTES: usize = 17;

impl CookieTimes {
    /// Reads the part of a value behind the token; an empty one has no times.
    fn parse(text: &[u8]) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::default());
        }
        let text = text.strip_prefix(&[DELIMITER]).filter(|text| text.len() == TIMES_TEXT_BYTES - 1)?;
        let (last, since) = std::str::from_utf8(text).ok()?.split_at_checked(8)?;
        let digits = |text: &str| {
            let is_hexadecimal = text.bytes().all(|byte| byte.is_ascii_hexdigit());
            is_hexadecimal.then(|| u32::from_str_radix(text, 16).ok()).flatten()
        };
        Some(Self { last_s: digits(last)?, since_s: digits(since)? })
    }

    fn write(self, out: &mut Vec<u8>) {
        out.push(DELIMITER);
        for byte in self.last_s.to_be_bytes().into_iter().chain(self.since_s.to_be_bytes()) {
            out.extend([byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]));
        }
    }

    /// Returns whether a limit is exceeded. A cookie that was set without times has none.
    fn exceeds(self, limits: StickyLimits, now_s: u32) -> bool {
        let is_over = |time_s: u32, max_s: Option<u32>| {
            time_s > 0 && max_s.is_some_and(|max_s| now_s.saturating_sub(time_s) > max_s)
        };
        is_over(self.last_s, limits.idle_max_s) || is_over(self.since_s, limits.life_max_s)
    }
}

/// Returns the time in seconds since 1970.
pub(crate) fn unix_s() -> u32 {
    u32::try_from(rt::clock::unix_ns() / 1_000_000_000).unwrap_or(u32::MAX)
}

/// Server that a cookie names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundServer {
    pub(crate) server: ServerId,
    pub(crate) times: CookieTimes,
}

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
fn constant_time_eq<const N: usize>(left: &[u8; N], right: &[u8; N]) -> bool {
    left.iter().zip(right).fold(0, |differs, (left, right)| differs | (left ^ right)) == 0
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
    /// several cookies of that name, the first one that names a server counts. The time is in seconds since 1970.
    pub(crate) fn find_in_cookies(
        &self,
        plan: &StickyPlan,
        headers: &[Header<'_>],
        now_s: impl Fn() -> u32,
    ) -> Result<FoundServer, StickyLookup> {
        let mut lookup = StickyLookup::Missing;
        for cookie in cookies(headers).filter(|cookie| cookie.name == plan.cookie.as_bytes()) {
            let found = match plan.mode {
                StickyMode::Insert => self.find_in_value(cookie.value),
                StickyMode::Prefix => match split_prefix(cookie.value) {
                    Some((token, _)) => self.find_server(token).map(FoundServer::without_times),
                    // The application's own cookie, set before it had a prefix.
                    None => continue,
                },
            };
            let is_expired =
                |found: &FoundServer| plan.limits.is_some_and(|limits| found.times.exceeds(limits, now_s()));
            let found = found
                .and_then(|found| if is_expired(&found) { Err(StickyLookup::Expired) } else { Ok(found) });
            match found {
                Ok(found) => return Ok(found),
                Err(error) if lookup == StickyLookup::Missing => lookup = error,
                Err(_) => {}
            }
        }
        Err(lookup)
    }

    /// Returns the server of a value of mode `insert`. Times are ignored where the pool has no limits any more.
    fn find_in_value(&self, value: &[u8]) -> Result<FoundServer, StickyLookup> {
        let (token, times) = value.split_first_chunk::<TOKEN_TEXT_BYTES>().ok_or(StickyLookup::Invalid)?;
        let times = CookieTimes::parse(times).ok_or(StickyLookup::Invalid)?;
        self.find_server(token).map(|server| FoundServer { server, times })
    }
}

impl FoundServer {
    fn without_times(server: ServerId) -> Self {
        Self { server, times: CookieTimes::default() }
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
/// without the proxy's prefix in the application's cookie, and without removed cookies. Writes nothing if the
/// field becomes empty.
pub(crate) fn write_cookie_field(
    plan: Option<&StickyPlan>,
    is_removed: impl Fn(&[u8]) -> bool,
    header: &Header<'_>,
    out: &mut Vec<u8>,
) {
    let mode_of = |cookie: &Cookie<'_>| match plan {
        _ if is_removed(cookie.name) => Some(StickyMode::Insert),
        Some(plan) if cookie.name == plan.cookie.as_bytes() => Some(plan.mode),
        _ => None,
    };
    if !cookies_in_field(header.value).any(|cookie| mode_of(&cookie).is_some()) {
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
        match mode_of(&cookie) {
            Some(StickyMode::Insert) => out.truncate(cookie_start),
            Some(StickyMode::Prefix) => {
                let value = split_prefix(cookie.value).map_or(cookie.value, |(_, own)| own);
                out.extend_from_slice(cookie.name);
                out.push(b'=');
                out.extend_from_slice(value);
            }
            None => out.extend_from_slice(cookie.pair),
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
    /// Times of the cookie, if the plan has limits.
    pub(crate) times: CookieTimes,
    /// True if the client has no such cookie yet, or one with an expiry time.
    pub(crate) is_due: bool,
    /// True if the response goes over TLS.
    pub(crate) is_tls: bool,
}

impl StickyCookie<'_> {
    /// Returns whether a response field sets the application's cookie, and gets a prefix.
    pub(crate) fn prefixes(&self, header: &Header<'_>) -> bool {
        let is_set_cookie = header.name.len() == 10 && header.name.eq_ignore_ascii_case("set-cookie");
        self.plan.mode == StickyMode::Prefix
            && is_set_cookie
            && split_at_byte(header.value, b'=')
                .is_some_and(|(name, _)| name.trim_ascii() == self.plan.cookie.as_bytes())
    }

    /// Writes a response field that sets the application's cookie, with the prefix.
    pub(crate) fn write_with_prefix(&self, header: &Header<'_>, out: &mut Vec<u8>) {
        let (name, rest) = split_at_byte(header.value, b'=').unwrap_or((header.value, b""));
        for part in [header.name.as_bytes(), b": ", name, b"=", self.token, &[DELIMITER], rest] {
            out.extend_from_slice(part);
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Writes the proxy's own cookie if one is due, and a field that forbids shared caches to store
    /// the response. A cached cookie would send all clients to one client's server.
    pub(crate) fn write_own_cookie(&self, headers: &[Header<'_>], out: &mut Vec<u8>) {
        let plan = self.plan;
        if plan.mode != StickyMode::Insert || !self.is_due {
            return;
        }
        for part in [b"Set-Cookie: ", plan.cookie.as_bytes(), b"=", self.token] {
            out.extend_from_slice(part);
        }
        if plan.limits.is_some() {
            self.times.write(out);
        }
        for (name, value) in [("; Path=", Some(&plan.path)), ("; Domain=", plan.domain.as_ref())] {
            if let Some(value) = value {
                out.extend_from_slice(name.as_bytes());
                out.extend_from_slice(value.as_bytes());
            }
        }
        if let Some(age_s) = plan.max_age_s {
            out.extend_from_slice(b"; Max-Age=");
            out.extend_from_slice(itoa::Buffer::new().format(age_s).as_bytes());
        }
        if plan.http_only {
            out.extend_from_slice(b"; HttpOnly");
        }
        if plan.secure.unwrap_or(self.is_tls) {
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
        .any(|directive| {
            directive.eq_ignore_ascii_case(b"private") || directive.eq_ignore_ascii_case(b"no-store")
        })
}

#[cfg(test)]
mod tests;
