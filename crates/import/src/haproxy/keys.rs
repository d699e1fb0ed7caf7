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
        let field_condition = |field: &str, regex: &str| {
            Condition::test(Test::Header(field.to_owned(), ValueTest::Regex(regex.to_owned())))
        };
        match key.text.strip_prefix("header.") {
            // The values of a list are one value in weir.
            Some(field) if field != "host" && !fetch.starts_with("req.fhdr(") => {
                key.doubt = field_condition(field, ",")
            }
            // weir compares a host without case.
            None if key.text == "host" && !key.is_lower => key.doubt = field_condition("host", "[A-Z]"),
            _ => {}
        }
        Ok(key)
    }
}

/// Converters that remove the port of a host.
pub(super) const STRIPS_PORT: [&str; 3] = ["field(1,:)", "word(1,:)", "host_only"];

/// A host behind converters, as an expression around a pattern.
#[derive(Debug, Default)]
struct HostForm {
    is_lower: bool,
    /// Text in front that is removed, and text at the end.
    prefix: Option<String>,
    suffix: Option<String>,
    /// Bytes that end the compared part, such as the colon of a port.
    ends: String,
}

impl HostForm {
    fn parse(converters: &[&str]) -> Result<Self, NoEquivalent> {
        let mut form = Self::default();
        for converter in converters {
            let is_removed = form.prefix.is_some() || form.suffix.is_some();
            match *converter {
                "lower" => form.is_lower = true,
                converter if STRIPS_PORT.contains(&converter) && !is_removed => form.ends.push(':'),
                "field(1,.)" | "word(1,.)" if !is_removed => form.ends.push('.'),
                other => match removed_literal(other) {
                    Some((true, text)) if !is_removed && form.ends.is_empty() => form.prefix = Some(text),
                    Some((false, text)) if !is_removed && form.ends.is_empty() => form.suffix = Some(text),
                    _ => return no_equivalent(format!("the converter '{other}'")),
                },
            }
        }
        Ok(form)
    }

    /// Returns an expression for the hosts that become a text.
    fn regex(&self, manner: Manner, pattern: &str) -> Result<String, NoEquivalent> {
        let has_upper = self.is_lower && pattern.bytes().any(|byte| byte.is_ascii_uppercase());
        let is_other = self.prefix.as_ref().is_some_and(|text| pattern.starts_with(text.as_str()))
            || self.suffix.as_ref().is_some_and(|text| pattern.ends_with(text.as_str()));
        if pattern.is_empty() || pattern.contains([':', '[']) || has_upper || is_other {
            return no_equivalent(format!("a host behind these converters is never '{pattern}'"));
        }
        if self.ends.contains('.') && pattern.contains('.') {
            return no_equivalent(format!("a part of a host is never '{pattern}'"));
        }
        let optional = |text: &Option<String>| {
            text.as_ref().map_or(String::new(), |text| format!("(?:{})?", escape_regex(text)))
        };
        let (prefix, suffix, text) = (optional(&self.prefix), optional(&self.suffix), escape_regex(pattern));
        let end = if self.ends.is_empty() { "$".to_owned() } else { format!("(?:[{}]|$)", self.ends) };
        let is_port_only = self.ends == ":" && self.prefix.is_none() && self.suffix.is_none();
        Ok(match manner {
            Manner::Equals => format!("^{prefix}{text}{suffix}{end}"),
            Manner::Begins if is_port_only => format!("^{text}"),
            Manner::Ends if is_port_only => format!("^[^:]*{text}{end}"),
            Manner::Contains if is_port_only => format!("^[^:]*{text}"),
            _ => return no_equivalent("this manner of comparison of a part of a host"),
        })
    }
}

/// Returns the text that `regsub(^TEXT,,)` or `regsub(TEXT$,,)` removes, and whether it is in front.
fn removed_literal(converter: &str) -> Option<(bool, String)> {
    let arguments = converter.strip_prefix("regsub(")?.strip_suffix(')')?;
    let arguments: Vec<&str> = arguments.split(',').collect();
    let ([pattern] | [pattern, ""] | [pattern, "", ""]) = arguments[..] else { return None };
    let pattern = pattern.trim_matches(['"', '\'']);
    let (is_front, pattern) = match (pattern.strip_prefix('^'), pattern.strip_suffix('$')) {
        (Some(rest), None) => (true, rest),
        (None, Some(rest)) => (false, rest),
        _ => return None,
    };
    let text = pattern.replace("\\.", "\u{1}");
    let is_literal =
        !text.is_empty() && !text.contains(['.', '*', '+', '?', '(', '[', '{', '|', '$', '^', '\\']);
    is_literal.then(|| (is_front, text.replace('\u{1}', ".")))
}

/// Returns the condition of a host behind converters.
pub(super) fn host_condition(
    fetch: &str,
    converters: &[&str],
    expression: &Expression<'_>,
) -> Result<Condition, NoEquivalent> {
    if text_of(fetch, Use::Text)? != "header.host" {
        return no_equivalent(format!("a converter of '{fetch}'"));
    }
    let form = HostForm::parse(converters)?;
    let mut any = Vec::new();
    for pattern in &expression.patterns {
        let regex = form.regex(expression.manner, pattern)?;
        let regex = with_case(expression.ignores_case || form.is_lower, regex);
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
