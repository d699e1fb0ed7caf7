//! Cookies of one connection, as RFC 6265 §5 stores and returns them: by host, path, scheme and expiry. Without the
//! list of public suffixes. Pure, and bounded.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::VALUE_BYTES_MAX;

const COOKIES_MAX: usize = 32;
/// Maximum length of an attribute; a longer one is ignored, as by browsers (RFC 6265bis §5.6).
const ATTRIBUTE_BYTES_MAX: usize = 1024;

/// Request that cookies are for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CookieTarget<'a> {
    /// Host, with or without a port.
    pub(crate) host: &'a str,
    pub(crate) is_tls: bool,
    pub(crate) path: &'a [u8],
}

/// Cookies, those with the longest paths first.
#[derive(Clone, Debug, Default)]
pub(super) struct CookieStore {
    cookies: Vec<Cookie>,
    /// Host, path and scheme of the last request, to which the next response belongs.
    host: String,
    path: Vec<u8>,
    is_tls: bool,
}

#[derive(Clone, Debug)]
struct Cookie {
    name: Vec<u8>,
    value: Vec<u8>,
    domain: String,
    is_host_only: bool,
    path: Vec<u8>,
    is_secure: bool,
    /// Time in ns since 1970; the maximum for a cookie of the session.
    expires_ns: u64,
}

impl CookieStore {
    /// Stores or removes the cookie of a response.
    pub(super) fn store(&mut self, cookie: &SetCookie<'_>, now_ns: u64) {
        let domain = cookie.domain.as_deref().unwrap_or(&self.host);
        if !domain_matches(&self.host, domain) {
            return;
        }
        let path = match cookie.path {
            Some(path) if path.starts_with(b"/") => path,
            _ => default_path(&self.path),
        };
        let is_same =
            |known: &Cookie| known.name == cookie.name && known.domain == domain && known.path == path;
        let known = self.cookies.iter().position(is_same);
        let expires_ns = cookie.expiry_ns(now_ns);
        let stored = Cookie {
            name: cookie.name.to_vec(),
            value: cookie.value.to_vec(),
            domain: domain.to_owned(),
            is_host_only: cookie.domain.is_none(),
            path: path.to_vec(),
            is_secure: cookie.is_secure,
            expires_ns,
        };
        match known {
            Some(index) if expires_ns <= now_ns => drop(self.cookies.remove(index)),
            Some(index) => self.cookies[index] = stored,
            None if expires_ns <= now_ns => {}
            None => {
                self.cookies.retain(|known| known.expires_ns > now_ns);
                if self.cookies.len() < COOKIES_MAX {
                    let before = self.cookies.partition_point(|known| known.path.len() >= stored.path.len());
                    self.cookies.insert(before, stored);
                }
            }
        }
    }

    pub(super) fn begin(&mut self, target: CookieTarget<'_>) {
        let host = without_port(target.host);
        if self.host != host {
            self.host.clear();
            self.host.extend(host.chars().map(|letter| letter.to_ascii_lowercase()));
        }
        self.path.clear();
        let path = target.path.split(|byte| *byte == b'?').next().unwrap_or_default();
        self.path.extend_from_slice(path);
        self.is_tls = target.is_tls;
    }

    /// Appends the value of `Cookie` of the request. Returns whether there is any cookie.
    pub(super) fn write(&self, now_ns: u64, out: &mut Vec<u8>) -> bool {
        let mut is_any = false;
        for cookie in &self.cookies {
            let is_of_host = match cookie.is_host_only {
                true => cookie.domain == self.host,
                false => domain_matches(&self.host, &cookie.domain),
            };
            let is_sent = is_of_host
                && path_matches(&self.path, &cookie.path)
                && (self.is_tls || !cookie.is_secure)
                && cookie.expires_ns > now_ns;
            if is_sent {
                if is_any {
                    out.extend_from_slice(b"; ");
                }
                out.extend_from_slice(&cookie.name);
                out.push(b'=');
                out.extend_from_slice(&cookie.value);
                is_any = true;
            }
        }
        is_any
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Returns whether a host is a domain or one of its subdomains (RFC 6265 §5.1.3).
fn domain_matches(host: &str, domain: &str) -> bool {
    let is_address = host.starts_with('[') || host.parse::<std::net::IpAddr>().is_ok();
    let prefix = host.strip_suffix(domain);
    prefix.is_some_and(|prefix| prefix.is_empty() || (!is_address && prefix.ends_with('.')))
}

/// Returns the directory of a path (RFC 6265 §5.1.4).
fn default_path(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) | None => b"/",
        Some(at) => &path[..at],
    }
}

/// Returns whether a path is that of a cookie or below it (RFC 6265 §5.1.4).
fn path_matches(path: &[u8], cookie_path: &[u8]) -> bool {
    let rest = path.strip_prefix(cookie_path);
    rest.is_some_and(|rest| rest.is_empty() || cookie_path.ends_with(b"/") || rest.starts_with(b"/"))
}

/// A field `Set-Cookie` (RFC 6265 §5.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SetCookie<'a> {
    pub(super) name: &'a [u8],
    pub(super) value: &'a [u8],
    domain: Option<String>,
    path: Option<&'a [u8]>,
    is_secure: bool,
    max_age_s: Option<i64>,
    /// Time of `Expires` in s since 1970.
    expires_s: Option<i64>,
}

impl SetCookie<'_> {
    fn expiry_ns(&self, now_ns: u64) -> u64 {
        match (self.max_age_s, self.expires_s) {
            (Some(age_s), _) if age_s <= 0 => 0,
            (Some(age_s), _) => now_ns.saturating_add((age_s as u64).saturating_mul(1_000_000_000)),
            (None, Some(at_s)) => u64::try_from(at_s).unwrap_or(0).saturating_mul(1_000_000_000),
            (None, None) => u64::MAX,
        }
    }
}

pub(super) fn parse_set_cookie(field: &[u8]) -> Option<SetCookie<'_>> {
    let mut parts = field.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let pair = parts.next()?;
    let equals = pair.iter().position(|byte| *byte == b'=')?;
    let (name, value) = (pair[..equals].trim_ascii(), pair[equals + 1..].trim_ascii());
    if name.is_empty() || name.len() + value.len() > VALUE_BYTES_MAX {
        return None;
    }
    let mut cookie = SetCookie {
        name,
        value,
        domain: None,
        path: None,
        is_secure: false,
        max_age_s: None,
        expires_s: None,
    };
    for part in parts {
        let equals = part.iter().position(|byte| *byte == b'=').unwrap_or(part.len());
        let (attribute, value) =
            (part[..equals].trim_ascii(), part.get(equals + 1..).unwrap_or_default().trim_ascii());
        if value.len() > ATTRIBUTE_BYTES_MAX {
            continue;
        }
        let text = std::str::from_utf8(value).unwrap_or_default();
        if attribute.eq_ignore_ascii_case(b"expires") {
            cookie.expires_s = parse_cookie_date(text).or(cookie.expires_s);
        } else if attribute.eq_ignore_ascii_case(b"max-age") {
            cookie.max_age_s = parse_max_age(text).or(cookie.max_age_s);
        } else if attribute.eq_ignore_ascii_case(b"domain") {
            let domain = text.strip_prefix('.').unwrap_or(text).to_ascii_lowercase();
            cookie.domain = Some(domain).filter(|domain| !domain.is_empty());
        } else if attribute.eq_ignore_ascii_case(b"path") {
            cookie.path = Some(value);
        } else if attribute.eq_ignore_ascii_case(b"secure") {
            cookie.is_secure = true;
        }
    }
    Some(cookie)
}

/// Parses a number of seconds; one beyond 64 bits is never reached.
fn parse_max_age(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or_else(|_| if text.starts_with('-') { 0 } else { i64::MAX }))
}

/// Parses a date as browsers do: time, day, month and year in any order (RFC 6265 §5.1.1). Returns s since 1970.
fn parse_cookie_date(text: &str) -> Option<i64> {
    const MONTHS: [&str; 12] =
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let is_delimiter =
        |letter: char| !(letter.is_ascii_alphanumeric() || letter == ':' || !letter.is_ascii());
    let (mut time, mut day, mut month, mut year) = (None, None, None, None);
    for token in text.split(is_delimiter).filter(|token| !token.is_empty()) {
        let digits = token.bytes().take_while(u8::is_ascii_digit).count();
        let number: Option<i16> = token[..digits].parse().ok();
        if time.is_none() && token.contains(':') {
            let parts: Vec<i8> = token.split(':').filter_map(|part| part.parse().ok()).collect();
            time = <[i8; 3]>::try_from(parts).ok();
        } else if day.is_none() && (1..=2).contains(&digits) {
            day = number;
        } else if let (None, Some(name)) = (month, token.get(..3).filter(|_| digits == 0)) {
            month = MONTHS.iter().position(|month| name.eq_ignore_ascii_case(month));
        } else if year.is_none() && (2..=4).contains(&digits) {
            year = number.map(|year| match year {
                0..=69 => year + 2000,
                70..=99 => year + 1900,
                _ => year,
            });
        }
    }
    let [hour, minute, second] = time?;
    let year = year.filter(|year| *year >= 1601)?;
    let date = DateTime::new(year, month? as i8 + 1, day? as i8, hour, minute, second, 0).ok()?;
    TimeZone::UTC.to_timestamp(date).ok().map(|timestamp| timestamp.as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_NS: u64 = 1_700_000_000_000_000_000;

    fn sent(store: &mut CookieStore, host: &str, is_tls: bool, path: &str) -> String {
        let mut out = Vec::new();
        store.begin(CookieTarget { host, is_tls, path: path.as_bytes() });
        store.write(NOW_NS, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn set(store: &mut CookieStore, fields: &[&str]) {
        for field in fields {
            store.store(&parse_set_cookie(field.as_bytes()).unwrap(), NOW_NS);
        }
    }

    #[test]
    fn a_date_in_the_past_removes_the_cookie_of_its_path() {
        let mut store = CookieStore::default();
        sent(&mut store, "a.example:8080", false, "/login");
        set(&mut store, &["sid=1; Path=/", "sid=2; Path=/admin", "keep=1"]);
        assert_eq!(sent(&mut store, "a.example:8080", false, "/admin/x?q"), "sid=2; sid=1; keep=1");
        set(&mut store, &["sid=; Path=/; Expires=Thu, 01 Jan 1970 00:00:00 GMT"]);
        assert_eq!(sent(&mut store, "a.example:8080", false, "/admin"), "sid=2; keep=1");
        assert_eq!(sent(&mut store, "a.example:8080", false, "/administrator"), "keep=1");
        // Max-Age wins over Expires.
        set(&mut store, &["keep=2; Max-Age=60; Expires=Thu, 01-Jan-70 00:00:01 GMT"]);
        assert_eq!(sent(&mut store, "a.example:8080", false, "/administrator"), "keep=2");
    }

    #[test]
    fn a_cookie_is_sent_to_its_host_path_and_scheme_only() {
        let mut store = CookieStore::default();
        sent(&mut store, "www.a.example", true, "/shop/cart?x=/y");
        set(
            &mut store,
            &[
                "own=1",
                "wide=1; Domain=.A.example; Path=/",
                "evil=1; Domain=b.example",
                "tls=1; Secure; Path=/",
            ],
        );
        assert_eq!(sent(&mut store, "www.a.example", true, "/shop/list"), "own=1; wide=1; tls=1");
        assert_eq!(sent(&mut store, "www.a.example", false, "/shop/list"), "own=1; wide=1");
        assert_eq!(sent(&mut store, "api.a.example", true, "/"), "wide=1");
        assert_eq!(sent(&mut store, "aa.example", true, "/"), "");
        sent(&mut store, "127.0.0.1:80", false, "/");
        set(&mut store, &["ip=1; Domain=0.1", "ip=2; Domain=127.0.0.1"]);
        assert_eq!(sent(&mut store, "127.0.0.1:80", false, "/"), "ip=2");
    }

    #[test]
    fn dates_are_those_of_browsers() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "08:49:37 6 november 94",
        ] {
            assert_eq!(parse_cookie_date(text), Some(784_111_777), "{text}");
        }
        for text in
            ["", "0", "Thu, 32 Jan 1970 00:00:00 GMT", "06 Nov 1994", "06 Foo 1994 08:49:37", "ä 1:1:1"]
        {
            assert_eq!(parse_cookie_date(text), None, "{text}");
        }
        assert_eq!(
            [parse_max_age("-1"), parse_max_age("x"), parse_max_age("99999999999999999999")],
            [Some(-1), None, Some(i64::MAX)]
        );
    }

    #[test]
    fn a_connection_stores_a_bounded_number_of_cookies() {
        let mut store = CookieStore::default();
        for number in 0..100 {
            set(&mut store, &[&format!("n{number}=1")]);
        }
        assert_eq!(store.cookies.len(), COOKIES_MAX);
        let long = "a".repeat(ATTRIBUTE_BYTES_MAX);
        let field = format!("long=1; Path=/{long}; Domain={long}x");
        let cookie = parse_set_cookie(field.as_bytes()).unwrap();
        assert_eq!((cookie.path, cookie.domain), (None, None));
    }
}
