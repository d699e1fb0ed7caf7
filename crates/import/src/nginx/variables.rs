//! Texts and conditions with variables of nginx.

use std::rc::Rc;

use super::server::Server;
use crate::directive::Directive;
use crate::document::Origin;
use crate::draft::{is_field_name, is_hidden, is_host, is_method, network};
use crate::paths::{decoded_exact, decoded_regex, portable};
use crate::rules::{Condition, Test, ValueTest};
use crate::text::{Part, Template, Variable};

/// Facts about the requests of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'a> {
    pub(super) server_name: &'a str,
    /// True if weir compares the same address of a client.
    pub(super) knows_source: bool,
    /// True if the text is a key, in which an address may have another form.
    pub(super) is_key: bool,
}

impl<'a> Known<'a> {
    pub(super) fn of(server: &'a Server) -> Self {
        Self { server_name: server.first_name(), knows_source: server.knows_source(), is_key: false }
    }
}

/// Splits the name of a variable, with or without braces, from the text behind it; `None`: its brace is open.
pub(super) fn split_name(after_dollar: &str) -> Option<(&str, &str)> {
    if let Some(inner) = after_dollar.strip_prefix('{') {
        return inner.split_once('}');
    }
    let end = after_dollar.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    Some(after_dollar.split_at(end.unwrap_or(after_dollar.len())))
}

/// Converts a text of a map: it may have a parameter of the query, which weir decodes.
pub(super) fn source_template(text: &str, known: Known<'_>) -> Option<Template> {
    match text.strip_prefix("$arg_") {
        Some(name) if is_field_name(name) => {
            Some(Template(vec![Part::Variable(Variable::Parameter(name.to_owned()))]))
        }
        Some(_) => None,
        None => template_of(text, Known { is_key: true, ..known }),
    }
}

/// Converts a text without variables of the config; `None`: it has a variable that is not known.
pub(super) fn template_of(text: &str, known: Known<'_>) -> Option<Template> {
    let mut template = Template::default();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        template.push_text(before);
        let (name, after) = split_name(after)?;
        rest = push_variable(name, after, known, &mut template)?;
    }
    template.push_text(rest);
    Some(template)
}

/// Adds a variable of nginx. Returns the text behind it; `None`: the variable is not known.
pub(super) fn push_variable<'t>(
    name: &str,
    rest: &'t str,
    known: Known<'_>,
    template: &mut Template,
) -> Option<&'t str> {
    match name {
        "host" => template.push(Variable::Host),
        "http_host" => template.push(Variable::Header("host".to_owned())),
        "server_name" if is_host(known.server_name) => template.push_text(known.server_name),
        "scheme" => template.push(Variable::Scheme),
        "remote_addr" if known.knows_source => template.push(Variable::Source),
        "binary_remote_addr" if known.knows_source && known.is_key => template.push(Variable::Source),
        "server_port" => template.push(Variable::Port),
        "request_method" => template.push(Variable::Fact("method")),
        "ssl_protocol" => template.push(Variable::Fact("tls.version")),
        "ssl_cipher" => template.push(Variable::Fact("tls.cipher")),
        "ssl_server_name" => template.push(Variable::Fact("tls.sni")),
        "content_type" => template.push(Variable::Header("content-type".to_owned())),
        "request_uri" => {
            template.push(Variable::Path);
            template.push(Variable::Query);
        }
        "uri" | "document_uri" => template.push(Variable::Path),
        "is_args" => {
            let after = rest.strip_prefix("$args").or_else(|| rest.strip_prefix("$query_string"))?;
            template.push(Variable::Query);
            return Some(after);
        }
        name => match name.strip_prefix("cookie_") {
            Some(cookie) if is_field_name(cookie) => template.push(Variable::Cookie(cookie.to_owned())),
            Some(_) => return None,
            None => {
                let field = name.strip_prefix("http_")?.replace('_', "-").to_ascii_lowercase();
                let is_seen = is_field_name(&field) && !is_hidden(&field);
                template.push(Variable::Header(is_seen.then_some(field)?));
            }
        },
    }
    Some(rest)
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

/// Converts the condition of `if`; it is unknown where weir has no such condition. `test` converts the test of a variable
/// by an operator and a value.
pub(super) fn condition(
    directive: &Directive,
    test: impl FnOnce(&str, &str, &str) -> Option<Condition>,
) -> Condition {
    let Some(words) = condition_words(directive) else { return Condition::Unknown };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (name, operator, value) = match words.as_slice() {
        [name] => (*name, "", ""),
        // An empty value was in quotes.
        [name, operator] => (*name, *operator, ""),
        [name, operator, value] => (*name, *operator, *value),
        _ => return Condition::Unknown,
    };
    let Some(name) = name.strip_prefix('$') else { return Condition::Unknown };
    let (operator, is_negated) = match operator.strip_prefix('!') {
        Some(rest) => (rest, true),
        None => (operator, false),
    };
    let is_compared = matches!(operator, "" | "=" | "~" | "~*") && !(value.contains('$') && operator == "=");
    let condition = is_compared.then(|| test(name, operator, value)).flatten();
    let condition = condition.unwrap_or(Condition::Unknown);
    if is_negated { condition.negate() } else { condition }
}

/// Converts the test of a variable of nginx.
pub(super) fn positive_condition(
    name: &str,
    operator: &str,
    value: &str,
    knows_source: bool,
) -> Option<Condition> {
    let ignores_case = operator == "~*";
    match (name, operator) {
        ("scheme", "=") => match value {
            "https" => Some(Condition::Tls),
            "http" => Some(Condition::Tls.negate()),
            _ => Some(Condition::Never),
        },
        ("https", "=") if value == "on" => Some(Condition::Tls),
        ("https", "=") if value.is_empty() => Some(Condition::Tls.negate()),
        // nginx has the host in lower case.
        ("host", "=") if value.bytes().any(|byte| byte.is_ascii_uppercase()) => Some(Condition::Never),
        ("host", "=") if is_host(value) && !value.starts_with("*.") => {
            Some(Condition::test(Test::Host(value.to_owned())))
        }
        ("host", "~" | "~*") => host_regex(value, ignores_case),
        ("request_method", "=") if is_method(value) => Some(Condition::test(Test::Method(value.to_owned()))),
        ("request_method", "~" | "~*") => method_regex(value),
        ("remote_addr", "=") if knows_source => {
            value.parse::<std::net::IpAddr>().ok()?;
            network(value).map(|text| Condition::test(Test::Source(text)))
        }
        ("uri" | "document_uri", "=") => Some(decoded_exact(value)),
        ("uri" | "document_uri", "~" | "~*") => decoded_regex(value, ignores_case),
        (name, operator) => field_condition(name.strip_prefix("http_")?, operator, value),
    }
}

/// Converts an expression of methods. Of methods that are not common, nothing is known if it has no anchors.
fn method_regex(text: &str) -> Option<Condition> {
    const COMMON: &str = "GET HEAD POST PUT DELETE PATCH OPTIONS TRACE CONNECT PROPFIND PROPPATCH MKCOL COPY MOVE LOCK \
        UNLOCK TRACK";
    let (bare, is_start) = text.strip_prefix('^').map_or((text, false), |bare| (bare, true));
    let (bare, is_end) = bare.strip_suffix('$').map_or((bare, false), |bare| (bare, true));
    let group = bare.strip_prefix('(').and_then(|bare| bare.strip_suffix(')'));
    let names: Vec<&str> = group.unwrap_or(bare).split('|').collect();
    let is_list =
        names.iter().all(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase()));
    // Without a group, an anchor is one of the first or last name only.
    if !is_list || (group.is_none() && names.len() > 1 && (is_start || is_end)) {
        return None;
    }
    let methods =
        |names: &[&str]| Condition::tests(names.iter().map(|name| Test::Method((*name).to_owned())));
    if is_start && is_end {
        return Some(methods(&names));
    }
    let is_match = |method: &&str| {
        names.iter().any(|name| match (is_start, is_end) {
            (true, _) => method.starts_with(name),
            (_, true) => method.ends_with(name),
            _ => method.contains(name),
        })
    };
    let found: Vec<&str> = COMMON.split(' ').filter(is_match).collect();
    let uncommon = methods(&COMMON.split(' ').collect::<Vec<_>>()).negate();
    Some(methods(&found).or(uncommon.and(&Condition::Unknown)))
}

fn field_condition(variable: &str, operator: &str, value: &str) -> Option<Condition> {
    let field = variable.replace('_', "-").to_ascii_lowercase();
    if !is_field_name(&field) || is_hidden(&field) {
        return None;
    }
    let test = |value| Condition::test(Test::Header(field.clone(), value));
    Some(match operator {
        // Neither empty nor 0.
        "" => test(ValueTest::Regex("..|[^0]".to_owned())),
        "=" if value.is_empty() => test(ValueTest::Absent).or(test(ValueTest::Equals(String::new()))),
        "=" => test(ValueTest::Equals(value.to_owned())),
        _ => {
            let condition = test(ValueTest::Regex(portable(value, operator == "~*")?));
            // A field that is absent is an empty text.
            let may_be_empty = !value.bytes().any(|byte| byte.is_ascii_alphanumeric())
                || value.contains(['*', '?', '|', '{']);
            let absent = test(ValueTest::Absent);
            if may_be_empty { condition.or(absent.and(&Condition::Unknown)) } else { condition }
        }
    })
}

/// Returns the condition that an expression matches the host, which has neither a port nor a final dot in nginx, and is
/// in lower case.
pub(super) fn host_regex(text: &str, ignores_case: bool) -> Option<Condition> {
    if !ignores_case && text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return None;
    }
    let regex = portable(text, true)?;
    let host_condition =
        |regex: String| Condition::test(Test::Header("host".to_owned(), ValueTest::Regex(regex)));
    match regex.strip_suffix('$') {
        Some(start) if start.contains(['$', '|']) || start.ends_with('\\') => None,
        Some(start) => Some(host_condition(format!("{start}\\.?(:[0-9]+)?$"))),
        None if regex.contains('$') => None,
        None => {
            let is_start = text.strip_prefix('^').is_some_and(|start| {
                start.replace("\\.", "").bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            });
            let condition = host_condition(regex);
            // The expression may match the port.
            Some(if is_start { condition } else { condition.except(&host_condition(":|\\.$".to_owned())) })
        }
    }
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

/// Returns a time of nginx of up to years in seconds.
pub(super) fn seconds(text: &str) -> Option<u64> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let number = text[..end].parse::<u64>().ok()?;
    let factor = match &text[end..] {
        "w" => 7 * 86_400,
        "M" => 30 * 86_400,
        "y" => 365 * 86_400,
        _ => return milliseconds(text).map(|ms| ms / 1_000),
    };
    number.checked_mul(factor)
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
        assert_eq!((seconds("1y"), seconds("30d"), seconds("x")), (Some(31_536_000), Some(2_592_000), None));
        assert_eq!((milliseconds("500ms"), milliseconds("x"), milliseconds("")), (Some(500), None, None));
        assert_eq!(
            (bytes("8k"), bytes("10M"), bytes("1g"), bytes("7"), bytes("k")),
            (Some(8192), Some(10 << 20), Some(1 << 30), Some(7), None)
        );
    }

    #[test]
    fn texts_have_values_of_the_request() {
        let location = |text: &str| {
            template_of(text, Known { server_name: "a.example", knows_source: true, is_key: false })
                .and_then(|template| template.specialised(true, None).location())
        };
        assert_eq!(location("https://$host$request_uri").unwrap(), "https://{host}{path}{query}");
        assert_eq!(location("$scheme://${server_name}/x").unwrap(), "https://a.example/x");
        assert_eq!(location("$uri$is_args$args").unwrap(), "{path}{query}");
        assert_eq!(location("https://$1/"), None);
    }

    #[test]
    fn hosts_of_expressions_may_have_a_port() {
        let host_condition =
            |text: &str| Condition::test(Test::Header("host".into(), ValueTest::Regex(text.into())));
        assert_eq!(host_regex("^www\\.", false), Some(host_condition("(?i)^www\\.")));
        assert_eq!(host_regex("^a$", false), Some(host_condition("(?i)^a\\.?(:[0-9]+)?$")));
        assert!(host_regex("80", false).is_some_and(|condition| !condition.is_exact()));
        assert_eq!((host_regex("^a$|^b$", false), host_regex("^A", false)), (None, None));
    }

    #[test]
    fn expressions_of_methods_have_all_methods() {
        let method = |name: &str| Condition::test(Test::Method(name.into()));
        assert_eq!(method_regex("^(PUT|DELETE)$"), Some(method("PUT").or(method("DELETE"))));
        assert_eq!(method_regex("^PUT$"), Some(method("PUT")));
        assert_eq!(method_regex("POST").map(|condition| condition.bound(false)), Some(method("POST")));
        assert_eq!((method_regex("^PUT|DELETE$"), method_regex("[A-Z]")), (None, None));
    }
}
