//! A response that may be stored: its times, and its freshness at a time (RFC 9111 §4.2, RFC 5861). Pure.

use crate::directives::SECONDS_MAX;
use crate::request::{MaxStale, RequestPolicy};
use crate::time::UnixTime;

/// Properties of a stored response that decide on its use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storable {
    pub received_at: UnixTime,
    /// Age at `received_at` (`corrected_initial_age`).
    pub initial_age_s: u64,
    pub lifetime_s: u64,
    /// `Date`, or the time at which the response was received.
    pub date_s: u64,
    /// Never used stale (`must-revalidate`, `proxy-revalidate`, `s-maxage`, `no-cache`).
    pub must_revalidate: bool,
    pub stale_while_revalidate_s: u64,
    pub stale_if_error_s: u64,
    pub etag: Option<Box<[u8]>>,
    pub last_modified: Option<Box<[u8]>>,
    /// Names of the request fields that select it, in lower case and sorted.
    pub vary: Box<[Box<str>]>,
    pub tags: Box<[Box<[u8]>]>,
}

/// Use of a stored response for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Answers the request.
    Fresh,
    /// Answers the request; a validation in the background is due.
    StaleWhileRevalidate,
    /// Stale, and the request accepts that (`max-stale`).
    StaleAccepted,
    /// Answers the request only after a validation. With `may_answer_errors`, it also answers if the
    /// server fails (`stale-if-error`).
    MustValidate { may_answer_errors: bool },
}

impl Storable {
    /// Returns the age at a time, for the field `Age`.
    pub fn age_s(&self, now: UnixTime) -> u64 {
        self.initial_age_s.saturating_add(now.seconds_since(self.received_at)).min(SECONDS_MAX)
    }

    /// Returns the remaining lifetime in seconds; negative if the response is stale.
    pub fn ttl_s(&self, now: UnixTime) -> i64 {
        // Both are far below the maximum of i64.
        self.lifetime_s.min(SECONDS_MAX) as i64 - self.age_s(now) as i64
    }

    /// Returns its use for a request at a time.
    pub fn freshness(&self, now: UnixTime, request: &RequestPolicy) -> Freshness {
        let ttl_s = self.ttl_s(now);
        let staleness_s = u64::try_from(-ttl_s).unwrap_or(0);
        let is_fresh = ttl_s > 0;
        let may_answer_errors = is_fresh || (!self.must_revalidate && staleness_s < self.stale_if_error_s);
        if request.no_cache {
            return Freshness::MustValidate { may_answer_errors };
        }
        let is_young = request.max_age_s.is_none_or(|max_s| self.age_s(now) < max_s);
        let stays_fresh =
            request.min_fresh_s.is_none_or(|min_s| ttl_s >= i64::try_from(min_s).unwrap_or(i64::MAX));
        if is_fresh && is_young && stays_fresh {
            return Freshness::Fresh;
        }
        let accepts_stale = match request.max_stale {
            Some(MaxStale::Any) => true,
            Some(MaxStale::Seconds(max_s)) => staleness_s <= max_s,
            None => false,
        };
        if !is_fresh && is_young && request.min_fresh_s.is_none() && !self.must_revalidate {
            if accepts_stale {
                return Freshness::StaleAccepted;
            }
            if staleness_s < self.stale_while_revalidate_s {
                return Freshness::StaleWhileRevalidate;
            }
        }
        Freshness::MustValidate { may_answer_errors }
    }

    pub fn has_validator(&self) -> bool {
        self.etag.is_some() || self.last_modified.is_some()
    }

    /// Returns whether it can answer a request: it is fresh for a time, or can be validated.
    pub(crate) fn is_worth_storing(&self) -> bool {
        let stale_use_s = match self.must_revalidate {
            true => 0,
            false => self.stale_while_revalidate_s.max(self.stale_if_error_s),
        };
        self.lifetime_s.saturating_add(stale_use_s) > self.initial_age_s || self.has_validator()
    }
}
