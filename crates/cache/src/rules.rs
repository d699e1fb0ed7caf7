//! Settings of a route that change the policy.

/// Lifetime of responses without one of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultLifetime {
    /// Statuses of the row; empty: 200, 301 and 302, as nginx has it.
    pub statuses: Vec<u16>,
    pub seconds: u64,
}

impl DefaultLifetime {
    pub fn covers(&self, status: u16) -> bool {
        match self.statuses.is_empty() {
            true => matches!(status, 200 | 301 | 302),
            false => self.statuses.contains(&status),
        }
    }
}

/// Lifetime from the age of the last modification (RFC 9111 §4.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heuristic {
    pub percent: u8,
    pub seconds_max: u64,
}

impl Default for Heuristic {
    fn default() -> Self {
        Self { percent: 10, seconds_max: 24 * 3600 }
    }
}

/// Rules of a route for storing and using responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheRules {
    /// Lifetimes by status, for responses that give none; the first row that covers a status counts.
    pub valid: Vec<DefaultLifetime>,
    /// Lifetime of responses that no row of `valid` covers; `None`: such responses are not stored.
    pub heuristic: Option<Heuristic>,
    /// `Cache-Control` and `Pragma` of requests count as absent.
    pub ignores_request_cache_control: bool,
    /// Default of `stale-while-revalidate` (RFC 5861), in seconds; 0: none.
    pub stale_while_revalidate_s: u64,
    /// Default of `stale-if-error` (RFC 5861), in seconds; 0: none.
    pub stale_if_error_s: u64,
    /// Responses with `Set-Cookie` are stored, without that field.
    pub stores_set_cookie: bool,
    /// Targeted fields (RFC 9213) in their order, before `Cache-Control`; in lower case.
    pub targeted_fields: Vec<String>,
    /// Maximum size of a body; the store has a maximum of its own.
    pub object_bytes_max: u64,
}

impl Default for CacheRules {
    fn default() -> Self {
        Self {
            valid: Vec::new(),
            heuristic: Some(Heuristic::default()),
            ignores_request_cache_control: false,
            stale_while_revalidate_s: 0,
            stale_if_error_s: 0,
            stores_set_cookie: false,
            targeted_fields: vec!["cdn-cache-control".to_owned()],
            object_bytes_max: u64::MAX,
        }
    }
}
