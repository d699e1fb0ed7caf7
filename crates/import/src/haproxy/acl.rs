//! ACLs of HAProxy: fetches, converters and patterns become conditions.

use super::lexer::Line;
use crate::draft::{is_field_name, is_host, is_normal_path, network};
use crate::rules::{Condition, PathTest, Test, ValueTest, escape_regex, is_portable_regex};

/// Condition that weir does not have; the text is the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NoEquivalent(pub(crate) String);

/// Returns the failure with a reason.
fn no_equivalent<T>(reason: impl Into<String>) -> Result<T, NoEquivalent> {
    Err(NoEquivalent(reason.into()))
}

/// Named ACLs of a section, in the order of their definition. Several of a name are alternatives.
#[derive(Clone, Debug, Default)]
pub(crate) struct Acls(Vec<(String, Result<Condition, NoEquivalent>)>);

impl Acls {
    /// Adds the ACL of a line. Returns the reason if weir has no such condition.
    pub(crate) fn define(&mut self, line: &Line) -> Result<(), NoEquivalent> {
        let condition = parse_test(line.rest(2));
        let result = condition.clone().map(|_| ());
        let name = line.word(1);
        match self.0.iter_mut().find(|(other, _)| other == name) {
            Some((_, known)) => {
                *known = match (known.clone(), condition) {
                    (Ok(one), Ok(other)) => Ok(one.or(other)),
                    (Err(reason), _) | (_, Err(reason)) => Err(reason),
                };
            }
            None => self.0.push((name.to_owned(), condition)),
        }
        result
    }

    /// Parses the condition at the end of a rule: `if a b or !c`, `unless a`, or nothing.
    pub(crate) fn condition(&self, words: &[String]) -> Result<Condition, NoEquivalent> {
        let is_negated = match words.first().map(String::as_str) {
            None => return Ok(Condition::Always),
            Some("if") => false,
            Some("unless") => true,
            Some(other) => return no_equivalent(format!("'{other}' is no option that is known here")),
        };
        let mut alternatives = Condition::Never;
        let mut conjunction = Condition::Always;
        let mut at = 1;
        while let Some(word) = words.get(at) {
            at += 1;
            if word == "or" || word == "||" {
                alternatives = alternatives.or(std::mem::replace(&mut conjunction, Condition::Always));
                continue;
            }
            if word == "and" || word == "&&" {
                continue;
            }
            let (mut negated, mut name) = (false, word.as_str());
            while let Some(rest) = name.strip_prefix('!') {
                negated = !negated;
                name = rest;
            }
            if name.is_empty() {
                // The exclamation mark is a word of its own.
                name = words.get(at).map_or("", String::as_str);
                at += 1;
            }
            let condition = if name == "{" {
                let end = words.get(at..).and_then(|rest| rest.iter().position(|word| word == "}"));
                let Some(end) = end else { return no_equivalent("a brace of the condition is not closed") };
                let inner = parse_test(&words[at..at + end])?;
                at += end + 1;
                inner
            } else {
                self.named(name)?
            };
            conjunction = conjunction.and(if negated { condition.negate() } else { condition });
        }
        let all = alternatives.or(conjunction);
        Ok(if is_negated { all.negate() } else { all })
    }

    fn named(&self, name: &str) -> Result<Condition, NoEquivalent> {
        if let Some((_, condition)) = self.0.iter().find(|(other, _)| other == name) {
            return condition.clone();
        }
        let methods = |names: &[&str]| {
            Ok(Condition::Tests(names.iter().map(|name| Test::Method((*name).to_owned())).collect()))
        };
        match name {
            "TRUE" | "HTTP" | "HTTP_1.1" | "HTTP_2.0" if name == "TRUE" || name == "HTTP" => {
                Ok(Condition::Always)
            }
            "FALSE" => Ok(Condition::Never),
            "LOCALHOST" => Ok(Condition::test(Test::Source("127.0.0.0/8".to_owned()))),
            "METH_GET" => methods(&["GET", "HEAD"]),
            "METH_HEAD" => methods(&["HEAD"]),
            "METH_POST" => methods(&["POST"]),
            "METH_PUT" => methods(&["PUT"]),
            "METH_DELETE" => methods(&["DELETE"]),
            "METH_OPTIONS" => methods(&["OPTIONS"]),
            "METH_CONNECT" => methods(&["CONNECT"]),
            "METH_TRACE" => methods(&["TRACE"]),
            other => no_equivalent(format!("the ACL '{other}' is not defined")),
        }
    }
}

/// Manner in which patterns are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Equals,
    Begins,
    Ends,
    Contains,
    Directory,
    Domain,
    Regex,
    Found,
}

/// Fetch with its flags and patterns.
struct Expression<'a> {
    manner: Manner,
    ignores_case: bool,
    patterns: Vec<&'a str>,
}

/// Parses a fetch with its flags and patterns.
fn parse_test(words: &[String]) -> Result<Condition, NoEquivalent> {
    let Some(fetch) = words.first() else { return no_equivalent("the condition is empty") };
    let (fetch, converters) = split_fetch(fetch);
    let mut expression = Expression { manner: Manner::Equals, ignores_case: false, patterns: Vec::new() };
    for converter in converters {
        match converter {
            // Case is ignored then, as long as the patterns are in lower case.
            "lower" => expression.ignores_case = true,
            other => return no_equivalent(format!("the converter '{other}'")),
        }
    }
    let (name, manner) = named_manner(fetch);
    expression.manner = manner;
    let mut rest = words[1..].iter().map(String::as_str);
    while let Some(word) = rest.next() {
        match word {
            "-i" => expression.ignores_case = true,
            "-n" => {}
            "-f" | "-M" => return no_equivalent("lists in files are not conditions of weir"),
            "-m" => {
                let manner = rest.next().unwrap_or_default();
                expression.manner = manner_of(manner)
                    .map_or_else(|| no_equivalent(format!("the match method '{manner}'")), Ok)?;
            }
            "--" => {
                expression.patterns.extend(rest);
                break;
            }
            pattern => expression.patterns.push(pattern),
        }
    }
    condition_of(name, &expression)
}

/// Splits `fetch(a,b),converter(c),lower` at the commas outside of parentheses.
fn split_fetch(text: &str) -> (&str, Vec<&str>) {
    let mut depth = 0_i32;
    let mut parts = Vec::new();
    let mut start = 0;
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    let fetch = parts.remove(0);
    (fetch, parts)
}

fn manner_of(name: &str) -> Option<Manner> {
    Some(match name {
        "str" | "ip" | "bool" => Manner::Equals,
        "beg" => Manner::Begins,
        "end" => Manner::Ends,
        "sub" => Manner::Contains,
        "dir" => Manner::Directory,
        "dom" => Manner::Domain,
        "reg" => Manner::Regex,
        "found" => Manner::Found,
        _ => return None,
    })
}

/// Splits the manner from names like `path_beg` and `hdr_dom(host)`.
fn named_manner(fetch: &str) -> (String, Manner) {
    let (name, arguments) =
        fetch.split_once('(').map_or((fetch, ""), |(name, _)| (name, &fetch[name.len()..]));
    if let Some((base, suffix)) = name.rsplit_once('_')
        && let Some(manner) = manner_of(suffix).filter(|_| !matches!(suffix, "ip" | "found" | "bool"))
    {
        return (format!("{base}{arguments}"), manner);
    }
    (fetch.to_owned(), Manner::Equals)
}

fn condition_of(fetch: String, expression: &Expression<'_>) -> Result<Condition, NoEquivalent> {
    let (name, argument) = match fetch.split_once('(') {
        Some((name, rest)) => (name, rest.trim_end_matches(')').trim_matches(['"', '\''])),
        None => (fetch.as_str(), ""),
    };
    // Only the occurrence of a field that HAProxy takes by default.
    let argument = argument.split(',').next().unwrap_or_default();
    match name {
        "always_true" => Ok(Condition::Always),
        // Without users nobody is authenticated.
        "always_false" | "http_auth" | "http_auth_group" => Ok(Condition::Never),
        "ssl_fc" if expression.patterns.is_empty() => Ok(Condition::Tls),
        "hdr" | "req.hdr" | "req.fhdr" | "fhdr" if argument.eq_ignore_ascii_case("host") => {
            host_test(expression)
        }
        "req.hdr" | "hdr" | "req.fhdr" | "fhdr" if is_field_name(argument) => {
            let is_list = !name.contains("fhdr");
            value_test(expression, is_list, |value| Test::Header(argument.to_ascii_lowercase(), value))
        }
        "cook" | "req.cook" | "cookie" if is_field_name(argument) => cookie_test(argument, expression),
        "url_param" | "urlp" if !argument.is_empty() => {
            value_test(expression, false, |value| Test::Query(argument.to_owned(), value))
        }
        "path" if argument.is_empty() => path_test(expression),
        "method" if expression.manner == Manner::Equals => {
            let methods = expression.patterns.iter().map(|name| Test::Method((*name).to_owned()));
            non_empty(methods.collect())
        }
        "src" if argument.is_empty() && expression.manner == Manner::Equals => {
            let networks: Option<Vec<String>> =
                expression.patterns.iter().map(|text| network(text)).collect();
            match networks {
                Some(networks) => non_empty(networks.into_iter().map(Test::Source).collect()),
                None => no_equivalent("a client network must be an address, with or without a prefix length"),
            }
        }
        other => no_equivalent(format!("the condition '{other}'")),
    }
}

fn non_empty(tests: Vec<Test>) -> Result<Condition, NoEquivalent> {
    match tests.is_empty() {
        true => no_equivalent("the condition has no value"),
        false => Ok(Condition::Tests(tests)),
    }
}

/// Returns an expression for a pattern, without the flag for its case.
fn pattern_regex(manner: Manner, pattern: &str) -> Result<String, NoEquivalent> {
    let text = escape_regex(pattern);
    Ok(match manner {
        Manner::Equals => format!("^{text}$"),
        Manner::Begins => format!("^{text}"),
        Manner::Ends => format!("{text}$"),
        Manner::Contains => text,
        Manner::Directory => format!("(^|/){}(/|$)", escape_regex(pattern.trim_matches('/'))),
        Manner::Domain => format!("(^|[./:?]){}([./:?]|$)", escape_regex(pattern.trim_matches('.'))),
        Manner::Regex if is_portable_regex(pattern) => pattern.to_owned(),
        Manner::Regex => {
            return no_equivalent("the regular expression uses a feature of PCRE that weir does not have");
        }
        Manner::Found => return no_equivalent("'-m found' with a value"),
    })
}

fn with_case(ignores_case: bool, regex: String) -> String {
    if ignores_case { format!("(?i){regex}") } else { regex }
}

fn host_test(expression: &Expression<'_>) -> Result<Condition, NoEquivalent> {
    let is_found = expression.manner == Manner::Found || expression.patterns.is_empty();
    if is_found {
        return Ok(Condition::Always);
    }
    let mut condition = Condition::Never;
    for pattern in &expression.patterns {
        let bare = pattern.strip_suffix(":80").or_else(|| pattern.strip_suffix(":443")).unwrap_or(pattern);
        let test = match expression.manner {
            Manner::Equals if is_host(bare) => Test::Host(bare.to_ascii_lowercase()),
            // A final dot and a port are no part of the name.
            Manner::Ends if pattern.starts_with('.') && is_host(&pattern[1..]) => {
                Test::Host(format!("*{}", pattern.to_ascii_lowercase()))
            }
            manner => {
                let regex = pattern_regex(manner, pattern)?;
                Test::Header("host".to_owned(), ValueTest::Regex(format!("(?i){regex}")))
            }
        };
        condition = condition.or(Condition::test(test));
    }
    Ok(condition)
}

fn value_test(
    expression: &Expression<'_>,
    is_list: bool,
    test: impl Fn(ValueTest) -> Test,
) -> Result<Condition, NoEquivalent> {
    if expression.manner == Manner::Found || expression.patterns.is_empty() {
        return Ok(Condition::test(test(ValueTest::Present)));
    }
    let mut tests = Vec::new();
    for pattern in &expression.patterns {
        let is_plain = expression.manner == Manner::Equals && !expression.ignores_case && !is_list;
        if is_plain {
            tests.push(test(ValueTest::Equals((*pattern).to_owned())));
            continue;
        }
        let regex = pattern_regex(expression.manner, pattern)?;
        let regex = match expression.manner {
            // HAProxy compares each value of a list.
            Manner::Equals if is_list => format!("(^|,)\\s*{}\\s*(,|$)", escape_regex(pattern)),
            Manner::Begins if is_list => format!("(^|,)\\s*{}", escape_regex(pattern)),
            Manner::Ends if is_list => format!("{}\\s*(,|$)", escape_regex(pattern)),
            _ => regex,
        };
        tests.push(test(ValueTest::Regex(with_case(expression.ignores_case, regex))));
    }
    Ok(Condition::Tests(tests))
}

fn cookie_test(name: &str, expression: &Expression<'_>) -> Result<Condition, NoEquivalent> {
    let name = escape_regex(name);
    let start = format!("(^|;\\s*){name}=");
    let mut tests = Vec::new();
    if expression.manner == Manner::Found || expression.patterns.is_empty() {
        tests.push(start);
    } else {
        for pattern in &expression.patterns {
            let text = escape_regex(pattern);
            tests.push(match expression.manner {
                Manner::Equals => format!("{start}\"?{text}\"?\\s*(;|$)"),
                Manner::Begins => format!("{start}\"?{text}"),
                Manner::Contains => format!("{start}[^;]*{text}"),
                _ => return no_equivalent("this match of a cookie's value"),
            });
        }
    }
    let to_test = |regex| {
        Test::Header("cookie".to_owned(), ValueTest::Regex(with_case(expression.ignores_case, regex)))
    };
    Ok(Condition::Tests(tests.into_iter().map(to_test).collect()))
}

fn path_test(expression: &Expression<'_>) -> Result<Condition, NoEquivalent> {
    let mut tests = Vec::new();
    for pattern in &expression.patterns {
        let is_plain = is_normal_path(pattern) && !expression.ignores_case;
        tests.push(Test::Path(match expression.manner {
            Manner::Equals if is_plain => PathTest::Exact((*pattern).to_owned()),
            Manner::Begins if *pattern == "/" => return Ok(Condition::Always),
            Manner::Begins if is_plain => PathTest::Begins((*pattern).to_owned()),
            manner => PathTest::Regex(with_case(expression.ignores_case, pattern_regex(manner, pattern)?)),
        }));
    }
    non_empty(tests)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn test(text: &str) -> Condition {
        parse_test(&words(text)).unwrap()
    }

    #[test]
    fn fetches_become_tests() {
        let path = |test| Condition::test(Test::Path(test));
        assert_eq!(test("path_beg /api"), path(PathTest::Begins("/api".into())));
        assert_eq!(test("path -m beg -i /api"), path(PathTest::Regex("(?i)^/api".into())));
        assert_eq!(test("path_end .php"), path(PathTest::Regex("\\.php$".into())));
        assert_eq!(test("path_beg /"), Condition::Always);
        assert_eq!(test("hdr(host) -i A.example"), Condition::test(Test::Host("a.example".into())));
        assert_eq!(test("hdr_end(host) -i .a.example"), Condition::test(Test::Host("*.a.example".into())));
        assert_eq!(test("src 10.1.2.3/8"), Condition::test(Test::Source("10.0.0.0/8".into())));
        assert_eq!(test("ssl_fc"), Condition::Tls);
        let regex = |name: &str, text: &str| {
            Condition::test(Test::Header(name.into(), ValueTest::Regex(text.into())))
        };
        assert_eq!(test("hdr_beg(host) www."), regex("host", "(?i)^www\\."));
        assert_eq!(
            test("req.hdr(Upgrade) -i WebSocket"),
            regex("upgrade", "(?i)(^|,)\\s*WebSocket\\s*(,|$)")
        );
        assert_eq!(
            test("req.hdr(x) -m found"),
            Condition::test(Test::Header("x".into(), ValueTest::Present))
        );
        for text in
            ["nbsrv(b) lt 1", "src -f /a", "path_reg (?!x)", "hdr(host),map(/x) -m found", "src host.name"]
        {
            assert!(parse_test(&words(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn conditions_have_and_or_and_not() {
        let mut acls = Acls::default();
        let origin =
            std::rc::Rc::new(crate::document::Origin { file: "a".into(), line: 1, text: String::new() });
        for text in ["acl a path /a", "acl a path /b", "acl h hdr(host) h", "acl x nbsrv gt 1"] {
            let line = Line { words: words(text), origin: origin.clone() };
            assert_eq!(acls.define(&line).is_ok(), !text.starts_with("acl x"));
        }
        let condition = |text: &str| acls.condition(&words(text));
        let a = Condition::Tests(vec![
            Test::Path(PathTest::Exact("/a".into())),
            Test::Path(PathTest::Exact("/b".into())),
        ]);
        let h = Condition::test(Test::Host("h".into()));
        assert_eq!(condition("if a !h").unwrap(), a.clone().and(h.clone().negate()));
        assert_eq!(condition("if a or h").unwrap(), a.clone().or(h));
        assert_eq!(condition("unless a").unwrap(), a.negate());
        assert_eq!(
            condition("if { path /a } || METH_GET").unwrap(),
            condition("if METH_GET or { path /a }")
                .map(|c| {
                    let Condition::Any(mut any) = c else { panic!() };
                    any.reverse();
                    Condition::Any(any)
                })
                .unwrap()
        );
        assert!(
            condition("if x").is_err() && condition("if missing").is_err() && condition("when a").is_err()
        );
    }
}
