//! Texts and conditions with variables of nginx.

use std::rc::Rc;

use crate::directive::Directive;
use crate::document::Origin;
use crate::draft::{is_field_name, is_host, is_method, is_normal_path, network};
use crate::rules::{Condition, PathTest, Test, ValueTest, is_portable_regex};
use crate::text::{Template, Variable};

/// Converts a text; `None`: it has a variable that is not known. `server_name` is the first name of the server.
pub(super) fn template(text: &str, server_name: &str) -> Option<Template> {
    let mut template = Template::default();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        template.push_text(before);
        let (name, after) = match after.strip_prefix('{') {
            Some(inner) => inner.split_once('}')?,
            None => {
                let end = after.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
                after.split_at(end.unwrap_or(after.len()))
            }
        };
        rest = after;
        match name {
            "host" | "http_host" => template.push(Variable::Host),
            "server_name" if is_host(server_name) => template.push_text(server_name),
            "scheme" => template.push(Variable::Scheme),
            "remote_addr" | "realip_remote_addr" => template.push(Variable::Source),
            "server_port" => template.push(Variable::Port),
            "request_uri" => {
                template.push(Variable::Path);
                template.push(Variable::Query);
            }
            "uri" | "document_uri" => template.push(Variable::Path),
            "is_args" => match rest.strip_prefix("$args").or_else(|| rest.strip_prefix("$query_string")) {
                Some(after) => {
                    template.push(Variable::Query);
                    rest = after;
                }
                None => return None,
            },
            _ => return None,
        }
    }
    template.push_text(rest);
    Some(template)
}

/// Returns the words of a condition in parentheses.
fn condition_words(directive: &Directive) -> Option<Vec<String>> {
    let mut words: Vec<String> = directive.arguments().to_vec();
    let first = words.first_mut()?;
    *first = first.strip_prefix('(')?.to_owned();
    let last = words.last_mut()?;
    *last = last.strip_suffix(')')?.to_owned();
    words.retain(|word| !word.is_empty());
    Some(words)
}

/// Converts the condition of `if`; `None`: weir has no such condition.
pub(super) fn condition(directive: &Directive) -> Option<Condition> {
    let words = condition_words(directive)?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (name, operator, value) = match words.as_slice() {
        [name] => (*name, "", ""),
        // An empty value was in quotes.
        [name, operator] => (*name, *operator, ""),
        [name, operator, value] => (*name, *operator, *value),
        _ => return None,
    };
    let name = name.strip_prefix('$')?;
    let (operator, is_negated) = match operator.strip_prefix('!') {
        Some(rest) => (rest, true),
        None => (operator, false),
    };
    if value.contains('$') && operator == "=" {
        return None;
    }
    let condition = positive_condition(name, operator, value)?;
    Some(if is_negated { condition.negate() } else { condition })
}

fn positive_condition(name: &str, operator: &str, value: &str) -> Option<Condition> {
    let regex = || portable(value, operator == "~*");
    match (name, operator) {
        ("scheme", "=") => match value {
            "https" => Some(Condition::Tls),
            "http" => Some(Condition::Tls.negate()),
            _ => Some(Condition::Never),
        },
        ("https", "=") if value == "on" => Some(Condition::Tls),
        ("https", "=") if value.is_empty() => Some(Condition::Tls.negate()),
        ("host" | "http_host", "=") if is_host(value) => {
            Some(Condition::test(Test::Host(value.to_ascii_lowercase())))
        }
        ("host" | "http_host", "~" | "~*") => host_regex(value).map(Condition::test),
        ("request_method", "=") if is_method(value) => Some(Condition::test(Test::Method(value.to_owned()))),
        ("request_method", "~" | "~*") => {
            let names = value.trim_start_matches('^').trim_end_matches('$').trim_matches(['(', ')']);
            let methods: Vec<Test> =
                names.split('|').map(|name| Test::Method(name.to_ascii_uppercase())).collect();
            let is_list = names
                .split('|')
                .all(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic()));
            is_list.then_some(Condition::Tests(methods))
        }
        ("remote_addr", "=") => network(value).map(|text| Condition::test(Test::Source(text))),
        ("uri" | "document_uri", "=") if is_normal_path(value) => {
            Some(Condition::test(Test::Path(PathTest::Exact(value.to_owned()))))
        }
        ("uri" | "document_uri", "~" | "~*") => {
            regex().map(|text| Condition::test(Test::Path(PathTest::Regex(text))))
        }
        // The query is not a part of the path that weir compares.
        ("request_uri", "~" | "~*") if value.starts_with("^/") && !value.contains(['?', '$', '.']) => {
            regex().map(|text| Condition::test(Test::Path(PathTest::Regex(text))))
        }
        (name, operator) => value_condition(name, operator, value),
    }
}

fn value_condition(name: &str, operator: &str, value: &str) -> Option<Condition> {
    let test = match operator {
        // Neither empty nor 0.
        "" => ValueTest::Regex("..|[^0]".to_owned()),
        "=" if value.is_empty() => ValueTest::Absent,
        "=" => ValueTest::Equals(value.to_owned()),
        "~" | "~*" => ValueTest::Regex(portable(value, operator == "~*")?),
        _ => return None,
    };
    if let Some(field) = name.strip_prefix("http_") {
        let field = field.replace('_', "-");
        return is_field_name(&field).then(|| Condition::test(Test::Header(field, test)));
    }
    let parameter = name.strip_prefix("arg_")?;
    Some(Condition::test(Test::Query(parameter.to_owned(), test)))
}

/// Returns an expression with the same meaning in weir.
pub(super) fn portable(text: &str, ignores_case: bool) -> Option<String> {
    is_portable_regex(text).then(|| if ignores_case { format!("(?i){text}") } else { text.to_owned() })
}

/// Returns the test of the field `Host`, which may have a port that nginx does not compare.
pub(super) fn host_regex(text: &str) -> Option<Test> {
    let regex = portable(text, true)?;
    let regex = match regex.strip_suffix('$') {
        Some(start) if start.contains('$') || start.ends_with('\\') => return None,
        Some(start) => format!("{start}(:[0-9]+)?$"),
        None if regex.contains('$') => return None,
        None => regex,
    };
    Some(Test::Header("host".to_owned(), ValueTest::Regex(regex)))
}

/// Returns a time of nginx in milliseconds: without a unit, seconds.
pub(super) fn milliseconds(text: &str) -> Option<u64> {
    let mut total: u64 = 0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        let number: u64 = rest[..end].parse().ok()?;
        let (factor, unit_length) = match &rest[end..] {
            unit if unit.starts_with("ms") => (1, 2),
            unit if unit.starts_with('s') => (1_000, 1),
            unit if unit.starts_with('m') => (60_000, 1),
            unit if unit.starts_with('h') => (3_600_000, 1),
            unit if unit.starts_with('d') => (86_400_000, 1),
            "" => (1_000, 0),
            _ => return None,
        };
        total = total.checked_add(number.checked_mul(factor)?)?;
        rest = rest[end + unit_length..].trim_start();
    }
    Some(total)
}

/// Returns a size of nginx in bytes.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let (digits, factor) = match lower.as_bytes().last()? {
        b'k' => (&lower[..lower.len() - 1], 1 << 10),
        b'm' => (&lower[..lower.len() - 1], 1 << 20),
        b'g' => (&lower[..lower.len() - 1], 1 << 30),
        _ => (lower.as_str(), 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// Makes an origin of a directive that nobody wrote.
pub(super) fn implied(origin: &Rc<Origin>, text: &str) -> Rc<Origin> {
    Rc::new(Origin { file: Rc::clone(&origin.file), line: origin.line, text: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_have_the_units_of_nginx() {
        assert_eq!(milliseconds("60"), Some(60_000));
        assert_eq!(milliseconds("1h 30m"), Some(5_400_000));
        assert_eq!((milliseconds("500ms"), milliseconds("x"), milliseconds("")), (Some(500), None, None));
        assert_eq!(
            (bytes("8k"), bytes("10M"), bytes("1g"), bytes("7"), bytes("k")),
            (Some(8192), Some(10 << 20), Some(1 << 30), Some(7), None)
        );
    }

    #[test]
    fn texts_have_values_of_the_request() {
        let location = |text: &str| {
            template(text, "a.example").and_then(|template| template.specialised(true, None).location())
        };
        assert_eq!(location("https://$host$request_uri").unwrap(), "https://{host}{path}{query}");
        assert_eq!(location("$scheme://${server_name}/x").unwrap(), "https://a.example/x");
        assert_eq!(location("$uri$is_args$args").unwrap(), "{path}{query}");
        assert_eq!(location("https://$1/"), None);
    }

    #[test]
    fn hosts_of_expressions_may_have_a_port() {
        let regex = |text: &str| {
            host_regex(text).map(|test| match test {
                Test::Header(_, ValueTest::Regex(text)) => text,
                _ => String::new(),
            })
        };
        assert_eq!(regex("^www\\.").unwrap(), "(?i)^www\\.");
        assert_eq!(regex("^a$").unwrap(), "(?i)^a(:[0-9]+)?$");
        assert_eq!(regex("^a$|^b$"), None);
    }
}
