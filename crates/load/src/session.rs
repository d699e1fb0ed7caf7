//! State of one connection between its requests: cookies, captured values, random numbers. It stays
//! when the connection is opened again. Pure, and bounded.

mod cookies;

use regex::bytes::Regex;

pub(crate) use cookies::CookieTarget;
use cookies::{CookieStore, parse_set_cookie};

use crate::plan::{CaptureSource, RunPlan, SessionPlan, TemplateValues};

/// Maximum length of a cookie's name and value (RFC 6265 §6.1), and of a captured value, in bytes.
const VALUE_BYTES_MAX: usize = 4096;

#[derive(Clone, Debug)]
pub(crate) struct ClientSession {
    cookies: CookieStore,
    /// Captured values, in the order of the captures.
    values: Vec<Vec<u8>>,
    pub(crate) random: fastrand::Rng,
    /// Number of the connection in the run, from 0.
    pub(crate) number: u64,
}

/// Returns the random numbers of connection `number`.
pub(crate) fn connection_rng(plan: &RunPlan, number: u64) -> fastrand::Rng {
    // Spread over the seeds, so that connections do not repeat the numbers of each other.
    fastrand::Rng::with_seed(
        plan.seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
    )
}

impl ClientSession {
    /// Creates the state of connection `number`.
    pub(crate) fn new(plan: &RunPlan, number: u64) -> Self {
        Self {
            cookies: CookieStore::default(),
            values: vec![Vec::new(); plan.session.captures.len()],
            random: connection_rng(plan, number),
            number,
        }
    }

    /// Takes a header field of a response that arrived at `now_unix_ns`.
    pub(crate) fn handle_field(&mut self, plan: &SessionPlan, name: &str, value: &[u8], now_unix_ns: u64) {
        let is_set_cookie = name.eq_ignore_ascii_case("set-cookie");
        let cookie = is_set_cookie.then(|| parse_set_cookie(value)).flatten();
        for (index, capture) in plan.captures.iter().enumerate() {
            match &capture.source {
                CaptureSource::Header(wanted) if name.eq_ignore_ascii_case(wanted) => {
                    self.set_value(index, value);
                }
                CaptureSource::Cookie(wanted) => {
                    if let Some(cookie) = cookie.as_ref().filter(|cookie| cookie.name == wanted.as_bytes()) {
                        self.set_value(index, cookie.value);
                    }
                }
                _ => {}
            }
        }
        if let Some(cookie) = cookie.filter(|_| plan.cookies) {
            self.cookies.store(&cookie, now_unix_ns);
        }
    }

    pub(crate) fn capture_body(&mut self, index: usize, pattern: &Regex, body: &[u8]) {
        let mut locations = pattern.capture_locations();
        if pattern.captures_read(&mut locations, body).is_some()
            && let Some((from, to)) = locations.get(1).or_else(|| locations.get(0))
        {
            self.set_value(index, &body[from..to]);
        }
    }

    fn set_value(&mut self, index: usize, value: &[u8]) {
        if value.len() <= VALUE_BYTES_MAX {
            self.values[index].clear();
            self.values[index].extend_from_slice(value);
        }
    }

    /// Appends the value of `Cookie` for the request. Returns whether there is any cookie.
    pub(crate) fn write_cookies(&self, now_unix_ns: u64, out: &mut Vec<u8>) -> bool {
        self.cookies.write(now_unix_ns, out)
    }

    /// Begins a request, which the next response answers.
    pub(crate) fn begin_request(&mut self, target: CookieTarget<'_>) {
        self.cookies.begin(target);
    }
}

impl TemplateValues for ClientSession {
    fn captured(&self, index: usize) -> &[u8] {
        &self.values[index]
    }

    fn random(&mut self) -> &mut fastrand::Rng {
        &mut self.random
    }

    fn connection(&self) -> u64 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::LoadFlags;

    #[test]
    fn cookies_are_replaced_removed_and_sent_back() {
        let flags = LoadFlags {
            urls: vec!["http://a/".to_owned()],
            cookies: true,
            captures: vec![
                "id=cookie:sid".to_owned(),
                "t=header:X-Token".to_owned(),
                "b=body:k=(\\d+)".to_owned(),
            ],
            ..LoadFlags::default()
        };
        let plan = RunPlan::parse(&flags, 1).unwrap();
        let mut session = ClientSession::new(&plan, 0);
        session.begin_request(CookieTarget { host: "a", is_tls: false, path: b"/" });
        for field in ["sid=1; Path=/", "a=b", "sid=22; HttpOnly", "c=d", "c=; Max-Age=0", "bad"] {
            session.handle_field(&plan.session, "Set-Cookie", field.as_bytes(), 0);
        }
        session.handle_field(&plan.session, "x-token", b"secret", 0);
        let CaptureSource::Body(pattern) = &plan.session.captures[2].source else { panic!("it is a body") };
        session.capture_body(2, pattern, b"..k=17;");
        let mut out = Vec::new();
        assert!(session.write_cookies(0, &mut out));
        assert_eq!(String::from_utf8(out).unwrap(), "sid=22; a=b");
        assert_eq!([0, 1, 2].map(|index| session.captured(index)), [&b"22"[..], b"secret", b"17"]);
    }
}
