//! A request's target, taken apart: a path that names nothing but what stands in it, and the values of its
//! query. Not for what is at a path.

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The path, decoded; begins with `/`. None of its parts is `.` or `..` or empty (but the last), and
    /// none has a `/`, a backslash or a control character in it.
    pub path: String,
    /// Names and values of the query, decoded, in their order.
    pub query: Vec<(String, String)>,
}

/// Values that a query may have: more than any form of these pages has.
const VALUES_MAX: usize = 64;

impl Request {
    /// Reads a target (RFC 9112 §3.2), of which the authority of an absolute form is passed over.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(target: &str) -> Result<Self, &'static str> {
        let target = match target.split_once("://") {
            Some((scheme, rest)) if scheme.bytes().all(|byte| byte.is_ascii_alphabetic()) => {
                rest.find(['/', '?']).map_or("", |at| &rest[at..])
            }
            _ => target,
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let path = if path.is_empty() { "/" } else { path };
        let parts = path.strip_prefix('/').ok_or("the path does not begin with '/'")?;
        let mut decoded = String::new();
        let mut left = parts.split('/').count();
        for part in parts.split('/') {
            left -= 1;
            let part = decode(part, false)?;
            let is_plain = !part.contains(['/', '\\']) && !part.contains(char::is_control);
            if !is_plain || part == "." || part == ".." || (part.is_empty() && left > 0) {
                return Err("the path has a part that names nothing");
            }
            decoded.push('/');
            decoded.push_str(&part);
        }
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).take(VALUES_MAX);
        let pairs = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name, true)?, decode(value, true)?))
        });
        Ok(Self { path: decoded, query: pairs.collect::<Result<_, &'static str>>()? })
    }

    /// The first value of the query by this name.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The parts of the path behind `before`, if it begins so.
    #[must_use]
    pub fn below(&self, before: &str) -> Option<Vec<&str>> {
        Some(self.path.strip_prefix(before)?.split('/').collect())
    }
}

/// Text from percent-encoding (RFC 3986 §2.1); in a form's query `+` is a space.
fn decode(text: &str, is_form: bool) -> Result<String, &'static str> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || {
                    let digit = rest.next().and_then(|byte| char::from(byte).to_digit(16));
                    digit.ok_or("a '%' without its two digits")
                };
                let (high, low) = (digit()?, digit()?);
                (high * 16 + low) as u8
            }
            b'+' if is_form => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| "the target is not UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_values_are_decoded() {
        let request = Request::parse("/x/a%20b/%C3%A9?a=1&b=x+%26y&flag").unwrap();
        assert_eq!(request.path, "/x/a b/é");
        assert_eq!((request.value("a"), request.value("b")), (Some("1"), Some("x &y")));
        assert_eq!((request.value("flag"), request.value("c")), (Some(""), None));
        assert_eq!(request.below("/x/").unwrap(), ["a b", "é"]);
        assert_eq!(Request::parse("http://a:1/b?c").unwrap().path, "/b");
        assert_eq!(Request::parse("http://a:1").unwrap().path, "/");
        assert_eq!(Request::parse("/x/").unwrap().below("/x/").unwrap(), [""]);
        // What was encoded twice is a name like any other.
        assert_eq!(Request::parse("/%252e%252e").unwrap().path, "/%2e%2e");
    }

    #[test]
    fn no_path_leads_elsewhere() {
        for target in [
            "/..",
            "/x/../y",
            "/x/%2e%2e/y",
            "/x/.%2E",
            "/.",
            "/x/%2fetc",
            "/x/..%2f..%2fetc",
            "/x/%5c..",
            "//etc",
            "/x//y",
            "/a%00b",
            "/a%0a",
            "/%",
            "/%4",
            "/%zz",
            "/%ff",
            "*",
            "x",
        ] {
            assert!(Request::parse(target).is_err(), "{target}");
        }
    }
}
