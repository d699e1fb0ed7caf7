//! The decision to store a response (RFC 9111 §3), and its lifetime (§4.2). Pure.

use wire::Header;

use crate::date::parse_date;
use crate::directives::{Directive, Directives, SECONDS_MAX};
use crate::head::StoredHead;
use crate::request::{CacheMethod, RequestPolicy};
use crate::rules::CacheRules;
use crate::storable::Storable;
use crate::targeted;
use crate::time::UnixTime;

/// Maximum number of fields that `Vary` of a stored response may name.
pub(crate) const VARY_FIELDS_MAX: usize = 16;
/// Maximum number of tags of a response; more are ignored.
pub(crate) const TAGS_MAX: usize = 64;
/// Maximum length of a tag.
pub(crate) const TAG_BYTES_MAX: usize = 256;

/// Reason for which a response was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotStored {
    /// The method of the request is not GET.
    Method,
    /// `no-store` of the request.
    RequestNoStore,
    NoStore,
    Private,
    /// The request has `Authorization`, and the response does not allow to share it (RFC 9111 §3.5).
    Authorization,
    SetCookie,
    /// The status is not one that the cache stores.
    Status,
    /// 206: a part.
    Partial,
    /// `Vary: *`.
    VaryAny,
    /// `Vary` names too many fields.
    VaryTooLong,
    /// Neither the response nor a rule gives it a lifetime, or it is stale already.
    NoFreshness,
    /// The body or the head is larger than the maximum.
    TooLarge,
    /// The rule `no-store` of the route.
    Rule,
    /// The response ended early.
    Incomplete,
    /// Its key was purged while it arrived.
    Purged,
    /// Too many responses are being stored at the same time.
    Busy,
}

impl NotStored {
    /// All reasons, for tables of metrics.
    pub const ALL: [Self; 16] = [
        Self::Method,
        Self::RequestNoStore,
        Self::NoStore,
        Self::Private,
        Self::Authorization,
        Self::SetCookie,
        Self::Status,
        Self::Partial,
        Self::VaryAny,
        Self::VaryTooLong,
        Self::NoFreshness,
        Self::TooLarge,
        Self::Rule,
        Self::Incomplete,
        Self::Purged,
        Self::Busy,
    ];

    /// Returns its name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::RequestNoStore => "request_no_store",
            Self::NoStore => "no_store",
            Self::Private => "private",
            Self::Authorization => "authorization",
            Self::SetCookie => "set_cookie",
            Self::Status => "status",
            Self::Partial => "partial",
            Self::VaryAny => "vary_any",
            Self::VaryTooLong => "vary_too_long",
            Self::NoFreshness => "no_freshness",
            Self::TooLarge => "too_large",
            Self::Rule => "rule",
            Self::Incomplete => "incomplete",
            Self::Purged => "purged",
            Self::Busy => "busy",
        }
    }

    /// Returns whether the reason is the request and not the response.
    pub(crate) fn is_of_request(self) -> bool {
        matches!(self, Self::Authorization | Self::RequestNoStore | Self::Method)
    }

    /// Returns whether the next response of the key will probably not be stored either, so that requests
    /// for it should not wait for each other.
    pub fn is_lasting(self) -> bool {
        !matches!(self, Self::Incomplete | Self::Purged | Self::Busy | Self::RequestNoStore | Self::Method)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseTimes {
    /// Time at which the request was sent to the server.
    pub requested_at: UnixTime,
    /// Time at which the head of the response had arrived.
    pub received_at: UnixTime,
}

/// Decides on storing the final response to a request.
///
/// # Errors
/// The reason for which it may not be stored.
pub fn decide_storing(
    request: &RequestPolicy,
    status: u16,
    headers: &[Header<'_>],
    times: ResponseTimes,
    rules: &CacheRules,
) -> Result<Storable, NotStored> {
    if request.method != CacheMethod::Get {
        return Err(NotStored::Method);
    }
    if request.no_store {
        return Err(NotStored::RequestNoStore);
    }
    let control = ResponseControl::parse(headers, rules);
    check_status(status, &control)?;
    if control.no_store && !(control.must_understand && is_understood(status)) {
        return Err(NotStored::NoStore);
    }
    if control.private {
        return Err(NotStored::Private);
    }
    if request.has_authorization && !control.allows_sharing() {
        return Err(NotStored::Authorization);
    }
    if !rules.stores_set_cookie && wire::field_value(headers, "set-cookie").is_some() {
        return Err(NotStored::SetCookie);
    }
    let vary = vary_names(headers)?;
    if content_length(headers).is_some_and(|length| length > rules.object_bytes_max) {
        return Err(NotStored::TooLarge);
    }
    let storable = control.into_storable(status, headers, times, rules, vary);
    let storable = storable.ok_or(NotStored::NoFreshness)?;
    match storable.is_worth_storing() {
        true => Ok(storable),
        false => Err(NotStored::NoFreshness),
    }
}

/// Decides on keeping a stored response whose fields a 304 has updated: `head` is the updated one, `headers` are the
/// fields of the 304.
///
/// # Errors
/// The reason for which it may not be stored any more.
pub(crate) fn decide_revalidated(
    request: &RequestPolicy,
    head: &StoredHead,
    headers: &[Header<'_>],
    times: ResponseTimes,
    rules: &CacheRules,
) -> Result<Storable, NotStored> {
    // The age is that of the validation: the stored head has none. The directives that are not stored count, too.
    let mut fields = head.headers();
    let is_only_here =
        |name: &str| name.eq_ignore_ascii_case("age") || name.eq_ignore_ascii_case("set-cookie");
    fields.extend(headers.iter().filter(|header| is_only_here(header.name)).copied());
    let request = RequestPolicy { method: CacheMethod::Get, ..*request };
    decide_storing(&request, head.status(), &fields, times, rules)
}

fn check_status(status: u16, control: &ResponseControl) -> Result<(), NotStored> {
    match status {
        206 => Err(NotStored::Partial),
        // A 304 updates what is stored.
        0..=199 | 304 => Err(NotStored::Status),
        _ if control.must_understand && !is_understood(status) => Err(NotStored::Status),
        _ => Ok(()),
    }
}

/// Returns whether the caching requirements of a status are known (RFC 9110 §15).
fn is_understood(status: u16) -> bool {
    matches!(
        status,
        200..=205 | 300..=303 | 305 | 307 | 308 | 400..=417 | 421 | 422 | 425 | 426 | 428 | 429 | 431 | 451
            | 500..=505 | 511
    )
}

/// Returns whether a status has a heuristic lifetime (RFC 9110 §15.1).
fn is_heuristically_cacheable(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

fn content_length(headers: &[Header<'_>]) -> Option<u64> {
    std::str::from_utf8(wire::field_value(headers, "content-length")?).ok()?.parse().ok()
}

/// Directives of a response.
#[derive(Clone, Debug, Default)]
struct ResponseControl {
    max_age_s: Option<u64>,
    s_maxage_s: Option<u64>,
    /// A lifetime was given in a form that is not valid: it counts as stale (RFC 9111 §4.2.1).
    has_invalid_lifetime: bool,
    no_store: bool,
    /// Without names of fields.
    no_cache: bool,
    private: bool,
    public: bool,
    must_revalidate: bool,
    /// `must-revalidate` itself, which `proxy-revalidate` is not.
    allows_authorization: bool,
    must_understand: bool,
    stale_while_revalidate_s: Option<u64>,
    stale_if_error_s: Option<u64>,
    /// From a targeted field, which replaces `Cache-Control` and `Expires`.
    is_targeted: bool,
}

impl ResponseControl {
    fn parse(headers: &[Header<'_>], rules: &CacheRules) -> Self {
        for name in &rules.targeted_fields {
            if let Some(members) = targeted::parse(headers, name) {
                let mut control = Self { is_targeted: true, ..Self::default() };
                members.iter().for_each(|member| control.read(*member));
                return control;
            }
        }
        let mut control = Self::default();
        for header in headers.iter().filter(|header| header.name.eq_ignore_ascii_case("cache-control")) {
            Directives { rest: header.value }.for_each(|directive| control.read(directive));
        }
        control
    }

    /// Returns whether a response to a request with credentials may be for others, too (RFC 9111 §3.5).
    fn allows_sharing(&self) -> bool {
        self.public || self.allows_authorization || self.s_maxage_s.is_some()
    }

    fn read(&mut self, directive: Directive<'_>) {
        let mut read_lifetime = |current: Option<u64>| match (current, directive.seconds()) {
            // Of two lifetimes, the shorter one counts.
            (Some(current), Some(seconds)) => Some(current.min(seconds)),
            (None, Some(seconds)) => Some(seconds),
            (current, None) => {
                self.has_invalid_lifetime = true;
                current
            }
        };
        match directive.name.to_ascii_lowercase().as_slice() {
            b"max-age" => self.max_age_s = read_lifetime(self.max_age_s),
            b"s-maxage" => self.s_maxage_s = read_lifetime(self.s_maxage_s),
            b"no-store" => self.no_store = true,
            // With names of fields, those are removed from the stored head.
            b"no-cache" => self.no_cache |= directive.value.is_none_or(<[u8]>::is_empty),
            b"private" => self.private = true,
            b"public" => self.public = true,
            b"must-revalidate" => (self.must_revalidate, self.allows_authorization) = (true, true),
            b"proxy-revalidate" => self.must_revalidate = true,
            b"must-understand" => self.must_understand = true,
            b"stale-while-revalidate" => self.stale_while_revalidate_s = directive.seconds(),
            b"stale-if-error" => self.stale_if_error_s = directive.seconds(),
            _ => {}
        }
    }

    /// Returns the lifetime, of the response or of a rule. `None`: there is none.
    fn lifetime_s(
        &self,
        status: u16,
        headers: &[Header<'_>],
        times: ResponseTimes,
        rules: &CacheRules,
    ) -> Option<u64> {
        if let Some(seconds) = self.s_maxage_s.or(self.max_age_s) {
            return Some(seconds);
        }
        if self.has_invalid_lifetime {
            return Some(0);
        }
        let date_s = date_s(headers).unwrap_or(times.received_at.as_seconds());
        if !self.is_targeted
            && let Some(expires) = wire::field_value(headers, "expires")
        {
            // A date that is not valid is in the past (RFC 9111 §5.3), as are two dates.
            let is_single =
                headers.iter().filter(|header| header.name.eq_ignore_ascii_case("expires")).count() == 1;
            let expires_s = parse_date(expires).filter(|_| is_single);
            return Some(expires_s.map_or(0, |expires_s| expires_s.saturating_sub(date_s)));
        }
        if let Some(row) = rules.valid.iter().find(|row| row.covers(status)) {
            return Some(row.seconds);
        }
        let heuristic = rules.heuristic?;
        if !(is_heuristically_cacheable(status) || self.public) {
            return None;
        }
        let modified_s = parse_date(wire::field_value(headers, "last-modified")?)?;
        let unchanged_s = date_s.saturating_sub(modified_s);
        Some((unchanged_s.saturating_mul(u64::from(heuristic.percent)) / 100).min(heuristic.seconds_max))
    }

    fn into_storable(
        self,
        status: u16,
        headers: &[Header<'_>],
        times: ResponseTimes,
        rules: &CacheRules,
        vary: Box<[Box<str>]>,
    ) -> Option<Storable> {
        let lifetime_s =
            self.lifetime_s(status, headers, times, rules).or_else(|| self.no_cache.then_some(0))?;
        let received_s = times.received_at.as_seconds();
        let date_s = date_s(headers).unwrap_or(received_s);
        let delay_s = times.received_at.seconds_since(times.requested_at);
        let corrected_s = age_s(headers).saturating_add(delay_s);
        Some(Storable {
            received_at: times.received_at,
            initial_age_s: corrected_s.max(received_s.saturating_sub(date_s)).min(SECONDS_MAX),
            lifetime_s: if self.no_cache { 0 } else { lifetime_s },
            date_s,
            // `s-maxage` implies `proxy-revalidate` (RFC 9111 §5.2.2.10).
            must_revalidate: self.must_revalidate || self.no_cache || self.s_maxage_s.is_some(),
            stale_while_revalidate_s: self.stale_while_revalidate_s.unwrap_or(rules.stale_while_revalidate_s),
            stale_if_error_s: self.stale_if_error_s.unwrap_or(rules.stale_if_error_s),
            etag: wire::field_value(headers, "etag").filter(|tag| is_entity_tag(tag)).map(Into::into),
            last_modified: wire::field_value(headers, "last-modified")
                .filter(|date| parse_date(date).is_some())
                .map(Into::into),
            vary,
            tags: tags(headers),
        })
    }
}

fn date_s(headers: &[Header<'_>]) -> Option<u64> {
    parse_date(wire::field_value(headers, "date")?)
}

/// Returns the value of `Age`; 0 without a valid one. Of a list, its first member counts (RFC 9111 §5.1).
fn age_s(headers: &[Header<'_>]) -> u64 {
    let value = wire::field_value(headers, "age").unwrap_or_default();
    let first = value.split(|&byte| byte == b',').next().unwrap_or_default();
    crate::directives::parse_seconds(first.trim_ascii()).unwrap_or(0)
}

fn is_entity_tag(value: &[u8]) -> bool {
    let opaque = value.strip_prefix(b"W/").unwrap_or(value);
    matches!(opaque, [b'"', inner @ .., b'"'] if !inner.contains(&b'"'))
}

/// Returns the names in `Vary`, in lower case, sorted and each once.
fn vary_names(headers: &[Header<'_>]) -> Result<Box<[Box<str>]>, NotStored> {
    let mut names: Vec<Box<str>> = Vec::new();
    for header in headers.iter().filter(|header| header.name.eq_ignore_ascii_case("vary")) {
        for name in header.value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            match name {
                b"" => {}
                b"*" => return Err(NotStored::VaryAny),
                // A name that is no text is never equal to one of a request.
                _ => names.push(String::from_utf8_lossy(name).to_ascii_lowercase().into_boxed_str()),
            }
            if names.len() > VARY_FIELDS_MAX {
                return Err(NotStored::VaryTooLong);
            }
        }
    }
    names.sort_unstable();
    names.dedup();
    Ok(names.into_boxed_slice())
}

/// Returns the tags of a response: `Cache-Tag` (separated by commas) and `Surrogate-Key` (by spaces).
fn tags(headers: &[Header<'_>]) -> Box<[Box<[u8]>]> {
    let mut tags: Vec<Box<[u8]>> = Vec::new();
    for header in headers {
        let separators: &[u8] = match header.name.len() {
            9 if header.name.eq_ignore_ascii_case("cache-tag") => b",",
            13 if header.name.eq_ignore_ascii_case("surrogate-key") => b" \t",
            _ => continue,
        };
        for tag in header.value.split(|byte| separators.contains(byte)).map(<[u8]>::trim_ascii) {
            if !tag.is_empty() && tag.len() <= TAG_BYTES_MAX && tags.len() < TAGS_MAX {
                tags.push(tag.into());
            }
        }
    }
    tags.into_boxed_slice()
}
