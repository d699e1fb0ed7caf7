//! Parsed target of a request: a literal path without traversal, and the values of its query. Does
//! not resolve the path.

/// Path and query of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebRequest {
    /// Decoded path; begins with `/`. None of its parts is `.` or `..` or empty (except the last),
    /// and none contains a `/`, a backslash or a control character.
    pub path: String,
    /// Decoded names and values of the query, in their order.
    pub query: Vec<(String, String)>,
}

/// Maximum number of values in a query: more than any form of these pages has.
const VALUES_MAX: usize = 64;

impl WebRequest {
    /// Parses a target (RFC 9112 §3.2); ignores the authority of an absolute form.
    ///
    /// # Errors
    /// Returns a description of what is wrong with it.
    pub fn parse(target: &str) -> Result<Self, &'static str> {
        let target = match target.split_once("://") {
            Some((scheme, rest)) if scheme.bytes().all(|byte| byte.is_ascii_alphabetic()) => {
                rest.find(['/', '?']).map_or("", |at| &rest[at..])
            }
            _ => target,
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let path = if path.is_empty() { "/" } else { path };
        let segments = path.strip_prefix('/').ok_or("the path does not start with '/'")?;
        let mut decoded = String::new();
        let mut remaining = segments.split('/').count();
        for segment in segments.split('/') {
            remaining -= 1;
            let segment = decode(segment, false)?;
            let is_plain = !segment.contains(['/', '\\']) && !segment.contains(char::is_control);
            if !is_plain || segment == "." || segment == ".." || (segment.is_empty() && remaining > 0) {
                return Err("the path has an empty segment, or . or ..");
            }
            decoded.push('/');
            decoded.push_str(&segment);
        }
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).take(VALUES_MAX);
        let pairs = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name, true)?, decode(value, true)?))
        });
        Ok(Self { path: decoded, query: pairs.collect::<Result<_, &'static str>>()? })
    }

    pub fn query_value(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the segments of the path after `prefix`, if it begins with it.
    pub fn segments_below(&self, prefix: &str) -> Option<Vec<&str>> {
        Some(self.path.strip_prefix(prefix)?.split('/').collect())
    }
}

/// Decodes percent-encoding (RFC 3986 §2.1); in a form's query `+` is a space.
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
        let request = WebRequest::parse("/x/a%20b/%C3%A9?a=1&b=x+%26y&flag").unwrap();
        assert_eq!(request.path, "/x/a b/é");
        assert_eq!((request.query_value("a"), request.query_value("b")), (Some("1"), Some("x &y")));
        assert_eq!((request.query_value("flag"), request.query_value("c")), (Some(""), None));
        assert_eq!(request.segments_below("/x/").unwrap(), ["a b", "é"]);
        assert_eq!(WebRequest::parse("http://a:1/b?c").unwrap().path, "/b");
        assert_eq!(WebRequest::parse("http://a:1").unwrap().path, "/");
        assert_eq!(WebRequest::parse("/x/").unwrap().segments_below("/x/").unwrap(), [""]);
        // A name that was encoded twice is a name like any other.
        assert_eq!(WebRequest::parse("/%252e%252e").unwrap().path, "/%2e%2e");
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
            assert!(WebRequest::parse(target).is_err(), "{target}");
        }
    }
}
