//! Texts of a request that lists and maps are searched for, as keys of maps of weir.

use super::acl::{Expression, Manner, NoEquivalent, no_equivalent, with_case};
use crate::draft::{is_field_name, is_hidden};
use crate::rules::{Condition, Test, ValueTest};
use crate::text::escape_regex;

/// Place in which a text is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// HAProxy compares each of several values.
    Condition,
    /// HAProxy takes one value.
    Text,
}

/// Text that a map of weir is searched for.
#[derive(Clone, Debug)]
pub(super) struct Key {
    /// `key` of the map.
    pub(super) text: String,
    /// True if the text has no letters in upper case.
    pub(super) is_lower: bool,
    /// Requests for which weir compares another text.
    pub(super) doubt: Condition,
}

impl Key {
    /// Parses a fetch with its converters.
    pub(super) fn parse(fetch: &str, converters: &[&str], place: Use) -> Result<Self, NoEquivalent> {
        let mut key = Self { text: text_of(fetch, place)?, is_lower: false, doubt: Condition::Never };
        key.is_lower = key.text == "tls.sni";
        for converter in converters {
            match *converter {
                "lower" => key.is_lower = true,
                converter if STRIPS_PORT.contains(&converter) && key.text == "header.host" => {
                    "host".clone_into(&mut key.text);
                }
                other => return no_equivalent(format!("the converter '{other}'")),
            }
        }
        let of_field = |field: &str, regex: &str| {
            Condition::test(Test::Header(field.to_owned(), ValueTest::Regex(regex.to_owned())))
        };
        match key.text.strip_prefix("header.") {
            // The values of a list are one value in weir.
            Some(field) if field != "host" && !fetch.starts_with("req.fhdr(") => {
                key.doubt = of_field(field, ",")
            }
            // weir compares a host without case.
            None if key.text == "host" && !key.is_lower => key.doubt = of_field("host", "[A-Z]"),
            _ => {}
        }
        Ok(key)
    }
}

/// Converters that remove the port of a host.
pub(super) const STRIPS_PORT: [&str; 3] = ["field(1,:)", "word(1,:)", "host_only"];

/// Returns the condition of a host without its port.
pub(super) fn host_condition(
    fetch: &str,
    converters: &[&str],
    expression: &Expression<'_>,
) -> Result<Condition, NoEquivalent> {
    let key = Key::parse(fetch, converters, Use::Condition)?;
    let mut any = Vec::new();
    for pattern in &expression.patterns {
        let has_upper = key.is_lower && pattern.bytes().any(|byte| byte.is_ascii_uppercase());
        if pattern.is_empty() || pattern.contains([':', '[']) || has_upper {
            return no_equivalent(format!("a host without a port is never '{pattern}'"));
        }
        let text = escape_regex(pattern);
        let regex = match expression.manner {
            Manner::Equals => format!("^{text}(?::|$)"),
            Manner::Begins => format!("^{text}"),
            Manner::Ends => format!("^[^:]*{text}(?::|$)"),
            Manner::Contains => format!("^[^:]*{text}"),
            _ => return no_equivalent("this manner of comparison of a host without its port"),
        };
        let regex = with_case(expression.ignores_case || key.is_lower, regex);
        any.push(Condition::test(Test::Header("host".to_owned(), ValueTest::Regex(regex))));
    }
    match any.is_empty() {
        true => no_equivalent("the condition of a host without a value"),
        false => Ok(Condition::any(any)),
    }
}

fn text_of(fetch: &str, place: Use) -> Result<String, NoEquivalent> {
    let (name, argument) = match fetch.split_once('(') {
        Some((name, rest)) => (name, rest.trim_end_matches(')').trim_matches(['"', '\''])),
        None => (fetch, ""),
    };
    let field = argument.to_ascii_lowercase();
    let text = match (name, place) {
        ("hdr" | "req.hdr" | "req.fhdr", _) if field == "host" => "header.host",
        ("hdr" | "req.hdr" | "req.fhdr", Use::Condition) if is_field_name(&field) && !is_hidden(&field) => {
            return Ok(format!("header.{field}"));
        }
        ("cook" | "req.cook" | "cookie", Use::Condition) if is_field_name(argument) => {
            return Ok(format!("cookie.{argument}"));
        }
        ("hdr" | "req.hdr" | "req.fhdr" | "cook" | "req.cook" | "cookie", _) => {
            return no_equivalent(format!(
                "'{fetch}' in a list or a map: of several values, weir takes another"
            ));
        }
        ("url_param" | "urlp", _) => {
            return no_equivalent(format!(
                "'{fetch}': weir decodes a parameter of the query, HAProxy does not"
            ));
        }
        ("path", _) if argument.is_empty() => "path",
        ("base", _) if argument.is_empty() => "{header.host}{path}",
        ("src", _) if argument.is_empty() => "source",
        ("ssl_fc_sni", _) if argument.is_empty() => "tls.sni",
        ("method", _) if argument.is_empty() => "method",
        _ => return no_equivalent(format!("'{fetch}' in a list or a map")),
    };
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetches_become_keys() {
        let key = |fetch: &str, converters: &[&str], place| {
            let key = Key::parse(fetch, converters, place).ok()?;
            Some((key.text, key.is_lower, key.doubt == Condition::Never))
        };
        let expected = |text: &str, is_lower, is_exact| Some((text.to_owned(), is_lower, is_exact));
        for place in [Use::Condition, Use::Text] {
            assert_eq!(key("hdr(Host)", &[], place), expected("header.host", false, true));
            assert_eq!(key("req.hdr(host)", &["lower"], place), expected("header.host", true, true));
            assert_eq!(key("hdr(host)", &["lower", "field(1,:)"], place), expected("host", true, true));
            assert_eq!(key("hdr(host)", &["word(1,:)"], place), expected("host", false, false));
            assert_eq!(key("base", &[], place), expected("{header.host}{path}", false, true));
            assert_eq!(key("ssl_fc_sni", &[], place), expected("tls.sni", true, true));
            for text in ["url_param(a)", "hdr()", "path(1)", "nbsrv", "hdr(x-forwarded-for)"] {
                assert_eq!(key(text, &[], place), None, "{text}");
            }
            for converter in ["upper", "field(2,:)", "field(1,.)", "map(/a)"] {
                assert_eq!(key("hdr(host)", &[converter], place), None, "{converter}");
            }
            assert_eq!(key("path", &["field(1,:)"], place), None);
        }
        // HAProxy takes the last of several values in a text.
        assert_eq!(key("hdr(X-A)", &[], Use::Condition), expected("header.x-a", false, false));
        assert_eq!(key("req.fhdr(x-a)", &[], Use::Condition), expected("header.x-a", false, true));
        assert_eq!(key("cook(A)", &[], Use::Condition), expected("cookie.A", false, true));
        assert_eq!((key("hdr(x-a)", &[], Use::Text), key("cook(A)", &[], Use::Text)), (None, None));
    }
}
