//! The cookie that keeps a client at its server: what stands in it, what one that came back says, and
//! how it gets into heads and out of them. Pure; who may still be used is the pool's to know.
//!
//! What names a server is a token: a fingerprint of the server's name, and a code that authenticates
//! it, both HMAC-SHA256 under the pool's key. Neither name nor address can be read from it, nobody can
//! make one without the key, and all of them are made once for each plan, so that a request with a
//! good cookie costs a comparison.
//!
//! In mode `insert` the cookie is ours: servers never see it. In mode `prefix` it is the
//! application's: `NAME=value` becomes `NAME=TOKEN~value` on its way to the client, and again
//! `NAME=value` on its way back, as HAProxy does it.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use wire::{Header, encode};

use crate::plan::{Secret, StickyMode, StickyPlan};

/// Bytes of a token's fingerprint, and of all of it; in base64 there is no padding.
const PRINT_BYTES: usize = 8;
const BYTES: usize = 24;
/// What a token takes as text.
const TEXT_BYTES: usize = BYTES / 3 * 4;
/// Between a token and the application's own value.
const DELIMITER: u8 = b'~';

/// As text.
pub(crate) type Token = [u8; TEXT_BYTES];

macro_rules! found {
    ($($variant:ident, $code:literal, $doc:literal;)*) => {
        /// What a request's sticky cookie said.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Found {
            $(#[doc = $doc] $variant,)*
        }

        impl Found {
            /// Every one, in the order of the table: `found as usize` is its index.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// In `snake_case`, stable.
            pub(crate) fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }
        }
    };
}

found! {
    Hit, "hit", "It names a server that is up, and the request goes there.";
    Missing, "missing", "There is none.";
    Unknown, "unknown", "It is one of ours, of a server that is not in the pool any more.";
    Invalid, "invalid", "It is none of ours: made up, tampered with, or of another key.";
    Down, "down", "It names a server that is not up.";
}

/// The tokens of a pool's servers.
pub(crate) struct Tokens {
    own: Box<[Token]>,
    pool: Box<str>,
    key: Secret,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // They are as good as the key to who may choose a server.
        f.debug_struct("Tokens").field("pool", &self.pool).finish_non_exhaustive()
    }
}

/// A code of the parts, by which nobody else can make one.
fn code(key: &Secret, parts: [&[u8]; 3]) -> Option<[u8; 32]> {
    let mut code = Hmac::<Sha256>::new_from_slice(key.bytes()).ok()?;
    for part in parts {
        // With its length, so that no two lists of parts are the same bytes.
        code.update(&(part.len() as u64).to_le_bytes());
        code.update(part);
    }
    Some(code.finalize().into_bytes().into())
}

fn authenticated(key: &Secret, pool: &str, print: &[u8]) -> Option<[u8; BYTES]> {
    let code = code(key, [b"token", pool.as_bytes(), print])?;
    let mut bytes = [0; BYTES];
    bytes[..PRINT_BYTES].copy_from_slice(print);
    bytes[PRINT_BYTES..].copy_from_slice(&code[..BYTES - PRINT_BYTES]);
    Some(bytes)
}

/// Whether two are the same, in a time that does not tell where they differ.
fn same<const N: usize>(one: &[u8; N], other: &[u8; N]) -> bool {
    one.iter().zip(other).fold(0, |differs, (one, other)| differs | (one ^ other)) == 0
}

impl Tokens {
    /// Of the servers of these names.
    pub(crate) fn new<'a>(
        key: &Secret,
        pool: &str,
        servers: impl Iterator<Item = &'a str>,
    ) -> Self {
        let token = |server: &str| {
            let print = code(key, [b"server", pool.as_bytes(), server.as_bytes()])?;
            let bytes = authenticated(key, pool, &print[..PRINT_BYTES])?;
            let mut text = [0; TEXT_BYTES];
            URL_SAFE_NO_PAD.encode_slice(bytes, &mut text).ok()?;
            Some(text)
        };
        // HMAC takes keys of any length, so that there is a token for each.
        let own = servers.map(|server| token(server).unwrap_or_default()).collect();
        Self { own, pool: pool.into(), key: key.clone() }
    }

    /// What names a server.
    pub(crate) fn of(&self, server: usize) -> &Token {
        &self.own[server]
    }

    /// The server that a token names, or what is wrong with it.
    fn server(&self, token: &Token) -> Result<usize, Found> {
        if let Some(server) = self.own.iter().position(|own| same(own, token)) {
            return Ok(server);
        }
        let mut bytes = [0; BYTES];
        let decoded = URL_SAFE_NO_PAD.decode_slice(token, &mut bytes);
        let ours = decoded
            .is_ok_and(|length| length == BYTES)
            .then(|| authenticated(&self.key, &self.pool, &bytes[..PRINT_BYTES]))
            .flatten();
        Err(if ours.is_some_and(|ours| same(&ours, &bytes)) {
            Found::Unknown
        } else {
            Found::Invalid
        })
    }

    /// The server that a request's cookie names, or why there is none. Of several cookies of that name
    /// the first that names one counts.
    pub(crate) fn find(&self, plan: &StickyPlan, headers: &[Header<'_>]) -> Result<usize, Found> {
        let mut why = Found::Missing;
        for cookie in cookies(headers).filter(|one| one.name == plan.cookie.as_bytes()) {
            let token = match plan.mode {
                StickyMode::Insert => cookie.value.try_into().ok(),
                StickyMode::Prefix => match split_prefix(cookie.value) {
                    Some((token, _)) => Some(token),
                    // The application's own, from before it had a prefix.
                    None => continue,
                },
            };
            match token.map_or(Err(Found::Invalid), |token| self.server(token)) {
                Ok(server) => return Ok(server),
                Err(other) if why == Found::Missing => why = other,
                Err(_) => {}
            }
        }
        Err(why)
    }
}

/// One cookie of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cookie<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) value: &'a [u8],
    /// All of it.
    pair: &'a [u8],
}

/// The cookies of a request, in its order.
pub(crate) fn cookies<'b>(headers: &[Header<'b>]) -> impl Iterator<Item = Cookie<'b>> {
    headers.iter().filter(|header| is_cookie(header.name)).flat_map(|header| in_field(header.value))
}

pub(crate) fn is_cookie(name: &str) -> bool {
    name.len() == 6 && name.eq_ignore_ascii_case("cookie")
}

fn in_field(value: &[u8]) -> impl Iterator<Item = Cookie<'_>> {
    value.split(|&byte| byte == b';').map(|pair| {
        let pair = pair.trim_ascii();
        let (name, value) = split_at_byte(pair, b'=').unwrap_or((b"", pair));
        Cookie { name: name.trim_ascii(), value: value.trim_ascii(), pair }
    })
}

fn split_at_byte(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(byte, text)?;
    Some((&text[..at], &text[at + 1..]))
}

/// A value of mode `prefix` as token and the application's own, if it has the form of one.
fn split_prefix(value: &[u8]) -> Option<(&Token, &[u8])> {
    let (token, rest) = value.split_first_chunk::<TEXT_BYTES>()?;
    let is_text = token.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte));
    let own = rest.strip_prefix(&[DELIMITER])?;
    is_text.then_some((token, own))
}

/// Writes a `Cookie` field of a request as the server gets it: without our cookie, or without our part
/// of the application's. Nothing is written when nothing is left.
pub(crate) fn write_cookie_field(plan: &StickyPlan, header: &Header<'_>, out: &mut Vec<u8>) {
    let is_ours = |cookie: &Cookie<'_>| cookie.name == plan.cookie.as_bytes();
    if !in_field(header.value).any(|cookie| is_ours(&cookie)) {
        encode::field(out, header.name, header.value);
        return;
    }
    let start = out.len();
    out.extend_from_slice(header.name.as_bytes());
    out.extend_from_slice(b": ");
    let first = out.len();
    for cookie in in_field(header.value) {
        let before = out.len();
        if before > first {
            out.extend_from_slice(b"; ");
        }
        match (is_ours(&cookie), plan.mode) {
            (true, StickyMode::Insert) => out.truncate(before),
            (true, StickyMode::Prefix) => {
                let value = split_prefix(cookie.value).map_or(cookie.value, |(_, own)| own);
                out.extend_from_slice(cookie.name);
                out.push(b'=');
                out.extend_from_slice(value);
            }
            (false, _) => out.extend_from_slice(cookie.pair),
        }
    }
    if out.len() == first {
        out.truncate(start);
    } else {
        out.extend_from_slice(b"\r\n");
    }
}

/// What a response gets of it.
#[derive(Clone, Copy)]
pub(crate) struct Stamp<'a> {
    pub(crate) plan: &'a StickyPlan,
    pub(crate) token: &'a Token,
    /// Whether the client has no such cookie yet, or one that ages.
    pub(crate) is_due: bool,
}

impl Stamp<'_> {
    /// Writes a field of a response if it is the application's cookie that gets a prefix; whether it
    /// was.
    pub(crate) fn write_prefixed(&self, header: &Header<'_>, out: &mut Vec<u8>) -> bool {
        let is_set = header.name.len() == 10 && header.name.eq_ignore_ascii_case("set-cookie");
        if self.plan.mode != StickyMode::Prefix || !is_set {
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

    /// Writes a cookie of our own where one is due, and that no shared cache may keep the answer: it
    /// would give one client's server to all.
    pub(crate) fn write_inserted(&self, headers: &[Header<'_>], out: &mut Vec<u8>) {
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

/// Whether no shared cache may keep an answer with these fields.
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
