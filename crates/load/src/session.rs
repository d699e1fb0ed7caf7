//! State of one connection between its requests: cookies, captured values, random numbers. It stays
//! when the connection is opened again. Pure, and bounded.

use regex::bytes::Regex;

use crate::plan::{CaptureSource, RunPlan, SessionPlan, TemplateValues};

/// Maximum number of cookies of a connection.
const COOKIES_MAX: usize = 32;
/// Maximum length of a cookie's name and value (RFC 6265 §6.1), and of a captured value, in bytes.
const VALUE_BYTES_MAX: usize = 4096;

/// State of one connection.
#[derive(Clone, Debug)]
pub(crate) struct ClientSession {
    cookies: Vec<(Vec<u8>, Vec<u8>)>,
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
            cookies: Vec::new(),
            values: vec![Vec::new(); plan.session.captures.len()],
            random: connection_rng(plan, number),
            number,
        }
    }

    /// Takes a header field of a response.
    pub(crate) fn handle_field(&mut self, plan: &SessionPlan, name: &str, value: &[u8]) {
        let is_set_cookie = name.eq_ignore_ascii_case("set-cookie");
        let cookie = is_set_cookie.then(|| parse_set_cookie(value)).flatten();
        for (index, capture) in plan.captures.iter().enumerate() {
            match &capture.source {
                CaptureSource::Header(wanted) if name.eq_ignore_ascii_case(wanted) => {
                    self.set_value(index, value);
                }
                CaptureSource::Cookie(wanted) => {
                    if let Some(cookie) = cookie.filter(|cookie| cookie.name == wanted.as_bytes()) {
                        self.set_value(index, cookie.value);
                    }
                }
                _ => {}
            }
        }
        if let Some(cookie) = cookie.filter(|_| plan.cookies) {
            self.store_cookie(cookie);
        }
    }

    /// Takes a value from a body.
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

    fn store_cookie(&mut self, cookie: SetCookie<'_>) {
        let known = self.cookies.iter().position(|(name, _)| name == cookie.name);
        match known {
            Some(index) if cookie.is_removal => drop(self.cookies.swap_remove(index)),
            Some(index) => {
                self.cookies[index].1.clear();
                self.cookies[index].1.extend_from_slice(cookie.value);
            }
            None if cookie.is_removal || self.cookies.len() >= COOKIES_MAX => {}
            None => self.cookies.push((cookie.name.to_vec(), cookie.value.to_vec())),
        }
    }

    /// Appends the value of `Cookie`. Returns whether there is any cookie.
    pub(crate) fn write_cookies(&self, out: &mut Vec<u8>) -> bool {
        for (index, (name, value)) in self.cookies.iter().enumerate() {
            if index > 0 {
                out.extend_from_slice(b"; ");
            }
            out.extend_from_slice(name);
            out.push(b'=');
            out.extend_from_slice(value);
        }
        !self.cookies.is_empty()
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

/// A field `Set-Cookie` (RFC 6265 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SetCookie<'a> {
    name: &'a [u8],
    value: &'a [u8],
    /// True if the server removes the cookie with `Max-Age=0`.
    is_removal: bool,
}

fn parse_set_cookie(field: &[u8]) -> Option<SetCookie<'_>> {
    let mut parts = field.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let pair = parts.next()?;
    let equals = pair.iter().position(|byte| *byte == b'=')?;
    let (name, value) = (pair[..equals].trim_ascii(), pair[equals + 1..].trim_ascii());
    if name.is_empty() || name.len() + value.len() > VALUE_BYTES_MAX {
        return None;
    }
    let is_removal = parts.any(|part| {
        let text = String::from_utf8_lossy(part).to_ascii_lowercase();
        text.strip_prefix("max-age=").is_some_and(|age| age.trim().parse::<i64>().is_ok_and(|age| age <= 0))
    });
    Some(SetCookie { name, value, is_removal })
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
        for field in ["sid=1; Path=/", "a=b", "sid=22; HttpOnly", "c=d", "c=; Max-Age=0", "bad"] {
            session.handle_field(&plan.session, "Set-Cookie", field.as_bytes());
        }
        session.handle_field(&plan.session, "x-token", b"secret");
        let CaptureSource::Body(pattern) = &plan.session.captures[2].source else { panic!("it is a body") };
        session.capture_body(2, pattern, b"..k=17;");
        let mut out = Vec::new();
        assert!(session.write_cookies(&mut out));
        assert_eq!(String::from_utf8(out).unwrap(), "sid=22; a=b");
        assert_eq!([0, 1, 2].map(|index| session.captured(index)), [&b"22"[..], b"secret", b"17"]);
    }

    #[test]
    fn a_connection_stores_a_bounded_number_of_cookies() {
        let flags = LoadFlags { urls: vec!["http://a/".to_owned()], cookies: true, ..LoadFlags::default() };
        let plan = RunPlan::parse(&flags, 1).unwrap();
        let mut session = ClientSession::new(&plan, 0);
        for number in 0..100 {
            session.handle_field(&plan.session, "set-cookie", format!("n{number}=1").as_bytes());
        }
        assert_eq!(session.cookies.len(), COOKIES_MAX);
    }
}
