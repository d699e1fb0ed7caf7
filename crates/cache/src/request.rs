//! The part of a request that decides its use of the cache (RFC 9111 §5.2.1). Pure.

use wire::Header;

use crate::directives;

/// Methods with a meaning for the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheMethod {
    Get,
    Head,
    /// Safe, and never answered from the cache: OPTIONS, TRACE.
    OtherSafe,
    /// A successful response invalidates what is stored for its target (RFC 9111 §4.4).
    Unsafe,
}

impl CacheMethod {
    pub fn of(method: &str) -> Self {
        match method {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "OPTIONS" | "TRACE" => Self::OtherSafe,
            _ => Self::Unsafe,
        }
    }
}

/// Staleness that a request accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxStale {
    Any,
    Seconds(u64),
}

/// Directives and properties of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestPolicy {
    pub method: CacheMethod,
    pub max_age_s: Option<u64>,
    pub min_fresh_s: Option<u64>,
    pub max_stale: Option<MaxStale>,
    /// `no-cache`, or `Pragma: no-cache` without `Cache-Control`.
    pub no_cache: bool,
    pub no_store: bool,
    pub only_if_cached: bool,
    pub has_authorization: bool,
    pub has_range: bool,
    /// It has `If-None-Match`, `If-Modified-Since`, `If-Match`, `If-Unmodified-Since` or `If-Range`.
    pub has_conditions: bool,
}

impl RequestPolicy {
    /// Parses the fields of a request. With `ignores_cache_control`, its `Cache-Control` and `Pragma` count as
    /// absent.
    pub fn parse(method: &str, headers: &[Header<'_>], ignores_cache_control: bool) -> Self {
        let mut policy = Self {
            method: CacheMethod::of(method),
            max_age_s: None,
            min_fresh_s: None,
            max_stale: None,
            no_cache: false,
            no_store: false,
            only_if_cached: false,
            has_authorization: false,
            has_range: false,
            has_conditions: false,
        };
        let (mut has_cache_control, mut has_pragma) = (false, false);
        for header in headers {
            let is = |name: &str| header.name.eq_ignore_ascii_case(name);
            match header.name.len() {
                13 if is("cache-control") && !ignores_cache_control => {
                    has_cache_control = true;
                    policy.read_directives(header.value);
                }
                6 if is("pragma") && !ignores_cache_control => {
                    has_pragma |= directives::Directives { rest: header.value }
                        .any(|directive| directive.is("no-cache"));
                }
                13 if is("authorization") => policy.has_authorization = true,
                5 if is("range") => policy.has_range = true,
                8 if is("if-match") || is("if-range") => policy.has_conditions = true,
                13 if is("if-none-match") => policy.has_conditions = true,
                17 if is("if-modified-since") => policy.has_conditions = true,
                19 if is("if-unmodified-since") => policy.has_conditions = true,
                _ => {}
            }
        }
        policy.no_cache |= has_pragma && !has_cache_control;
        policy
    }

    /// Returns whether a stored response may answer the request.
    pub fn may_look_up(&self) -> bool {
        matches!(self.method, CacheMethod::Get | CacheMethod::Head)
    }

    /// Returns whether the response to this request may be stored, as far as the request decides that.
    pub fn may_fill(&self) -> bool {
        self.method == CacheMethod::Get && !self.no_store
    }

    fn read_directives(&mut self, value: &[u8]) {
        for directive in (directives::Directives { rest: value }) {
            let shortest = |current: Option<u64>| match (current, directive.seconds()) {
                (Some(current), Some(seconds)) => Some(current.min(seconds)),
                (current, seconds) => current.or(seconds),
            };
            match directive.name.to_ascii_lowercase().as_slice() {
                b"max-age" => self.max_age_s = shortest(self.max_age_s),
                b"min-fresh" => {
                    self.min_fresh_s = self.min_fresh_s.max(directive.seconds());
                }
                b"max-stale" => {
                    self.max_stale = match (directive.value, directive.seconds()) {
                        (None, _) => Some(MaxStale::Any),
                        (Some(_), Some(seconds)) => Some(MaxStale::Seconds(seconds)),
                        (Some(_), None) => self.max_stale,
                    }
                }
                b"no-cache" => self.no_cache = true,
                b"no-store" => self.no_store = true,
                b"only-if-cached" => self.only_if_cached = true,
                _ => {}
            }
        }
    }
}
