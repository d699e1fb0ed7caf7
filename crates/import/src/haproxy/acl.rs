//! ACLs of HAProxy: fetches, converters and patterns become conditions. What weir cannot compare is unknown.

use std::collections::HashMap;
use std::rc::Rc;

use super::keys::{Use, host_condition};
use super::lexer::Line;
use super::lists;
use super::maps::{self, Lookup};
use crate::document::Origin;
use crate::draft::{Draft, FileError, is_field_name, is_hidden, is_host, is_method, network};
use crate::paths::{is_normal_path, is_portable_regex};
use crate::rules::{Condition, PathTest, Test, ValueTest};
use crate::text::escape_regex;

/// Condition that weir does not have; the text is the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NoEquivalent(pub(crate) String);

impl From<FileError> for NoEquivalent {
    fn from(error: FileError) -> Self {
        Self(error.to_string())
    }
}

/// Returns the failure with a reason.
pub(super) fn no_equivalent<T>(reason: impl Into<String>) -> Result<T, NoEquivalent> {
    Err(NoEquivalent(reason.into()))
}

/// Named ACLs of a section. Several of a name are alternatives, for the rules before them, too.
#[derive(Clone, Debug, Default)]
pub(crate) struct Acls(HashMap<String, (Condition, usize)>);

impl Acls {
    /// Reads the lines with ACLs of a section. Returns those that weir cannot compare, with the reasons.
    pub(crate) fn define<'l>(
        &mut self,
        lines: impl Iterator<Item = &'l Line>,
        draft: &mut Draft<'_>,
    ) -> Vec<(&'l Line, NoEquivalent)> {
        let mut parts: HashMap<&str, Vec<Condition>> = HashMap::new();
        let mut problems = Vec::new();
        for line in lines {
            let condition = parse_test(line.rest(2), &line.origin, draft).unwrap_or_else(|reason| {
                problems.push((line, reason));
                Condition::Unknown
            });
            parts.entry(line.word(1)).or_default().push(condition);
        }
        for (name, parts) in parts {
            let known = self.0.remove(name).map(|(known, _)| known);
            let condition = Condition::any(known.into_iter().chain(parts));
            let weight = condition.weight();
            self.0.insert(name.to_owned(), (condition, weight));
        }
        problems
    }

    /// Returns the length of the condition of a rule with these words, without its own tests.
    pub(crate) fn weight(&self, words: &[String]) -> usize {
        let named = words.iter().filter_map(|word| self.0.get(word.trim_start_matches('!')));
        words.len() * 16 + named.map(|(_, weight)| weight).sum::<usize>()
    }

    /// Parses the condition at the end of a rule: `if a b or !c`, `unless a`, or nothing. What is not known of it has
    /// its reason in `reasons`.
    pub(crate) fn condition(
        &self,
        words: &[String],
        (origin, draft): (&Rc<Origin>, &mut Draft<'_>),
        reasons: &mut Vec<String>,
    ) -> Condition {
        let is_negated = match words.first().map(String::as_str) {
            None => return Condition::Always,
            Some("if") => false,
            Some("unless") => true,
            Some(other) => {
                reasons.push(format!("'{other}' is no option that is known here"));
                return Condition::Unknown;
            }
        };
        let (mut alternatives, mut conjunction) = (Vec::new(), Vec::new());
        let mut at = 1;
        while let Some(word) = words.get(at) {
            at += 1;
            if word.eq_ignore_ascii_case("or") || word == "||" {
                alternatives.push(Condition::all(std::mem::take(&mut conjunction)));
                continue;
            }
            if word == "and" || word == "&&" {
                continue;
            }
            let (negated, name, condition) = self.term(word, words, &mut at, (origin, &mut *draft));
            let condition = condition.unwrap_or_else(|reason| {
                reasons.push(reason.to_string());
                Condition::Unknown
            });
            if reasons.is_empty() && !condition.is_exact() {
                reasons.push(format!("the condition '{name}' is not known for every request"));
            }
            conjunction.push(if negated { condition.negate() } else { condition });
        }
        if conjunction.is_empty() {
            reasons.push("the condition is empty".to_owned());
            return Condition::Unknown;
        }
        alternatives.push(Condition::all(conjunction));
        let all = Condition::any(alternatives);
        if is_negated { all.negate() } else { all }
    }

    /// Parses a term that begins with `word`, with the words from `at`: whether it is negated, its name, its condition.
    fn term<'w>(
        &self,
        word: &'w str,
        words: &'w [String],
        at: &mut usize,
        (origin, draft): (&Rc<Origin>, &mut Draft<'_>),
    ) -> (bool, &'w str, Result<Condition, NoEquivalent>) {
        let (mut negated, mut name) = (false, word);
        while name.starts_with('!') || name.is_empty() {
            negated ^= name.starts_with('!');
            name = match name.get(1..).filter(|rest| !rest.is_empty()) {
                Some(rest) => rest,
                // The exclamation mark is a word of its own.
                None => {
                    *at += 1;
                    words.get(*at - 1).map_or("}", String::as_str)
                }
            };
        }
        if name != "{" {
            return (negated, name, self.named(name));
        }
        let end = words.get(*at..).and_then(|rest| rest.iter().position(|word| word == "}"));
        let Some(end) = end else {
            *at = words.len();
            return (negated, name, no_equivalent("a brace of the condition is not closed"));
        };
        let inner = parse_test(&words[*at..*at + end], origin, draft);
        *at += end + 1;
        (negated, name, inner)
    }

    fn named(&self, name: &str) -> Result<Condition, NoEquivalent> {
        if let Some((condition, _)) = self.0.get(name) {
            return Ok(condition.clone());
        }
        let methods =
            |names: &[&str]| Ok(Condition::tests(names.iter().map(|name| Test::Method((*name).to_owned()))));
        match name {
            "TRUE" | "HTTP" => Ok(Condition::Always),
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
            other => no_equivalent(format!("the ACL '{other}' is not one that weir has")),
        }
    }
}

/// Manner in which patterns are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    Equals,
    Begins,
    Ends,
    Contains,
    Directory,
    Domain,
    Regex,
    Found,
}

/// Flags and patterns of a fetch.
pub(super) struct Expression<'a> {
    pub(super) manner: Manner,
    pub(super) ignores_case: bool,
    pub(super) patterns: Vec<&'a str>,
}

/// Parses a fetch with its flags and patterns.
pub(super) fn parse_test(
    words: &[String],
    origin: &Rc<Origin>,
    draft: &mut Draft<'_>,
) -> Result<Condition, NoEquivalent> {
    let Some(text) = words.first() else { return no_equivalent("the condition is empty") };
    let (fetch, converters) = split_fetch(text);
    let (name, manner) = named_manner(fetch);
    let mut expression = Expression { manner, ignores_case: false, patterns: Vec::new() };
    let mut files: Vec<&str> = Vec::new();
    let mut rest = words[1..].iter().map(String::as_str).peekable();
    while let Some(word) = rest.next_if(|word| word.starts_with('-') && word.len() > 1) {
        match word {
            "-i" => expression.ignores_case = true,
            "-n" => {}
            "-m" => {
                let manner = rest.next().unwrap_or_default();
                expression.manner = manner_of(manner)
                    .map_or_else(|| no_equivalent(format!("the match method '{manner}'")), Ok)?;
            }
            "--" => break,
            "-f" => files.push(rest.next().unwrap_or_default()),
            "-M" => return no_equivalent("the flag '-M', keys of a map as patterns"),
            other => return no_equivalent(format!("the flag '{other}' of a condition")),
        }
    }
    expression.patterns.extend(rest);
    if maps::has_map(&converters) && files.is_empty() {
        let text = text.strip_prefix(fetch).map_or_else(|| text.clone(), |rest| format!("{name}{rest}"));
        return Lookup::parse(&text, Use::Condition, origin, draft)?.acl(&expression);
    }
    if !files.is_empty() {
        return lists::condition((&name, &converters), &expression, &files, origin, draft);
    }
    plain_condition(&name, &converters, &expression)
}

/// Returns the condition of a fetch whose patterns are in the config.
pub(super) fn plain_condition(
    fetch: &str,
    converters: &[&str],
    expression: &Expression<'_>,
) -> Result<Condition, NoEquivalent> {
    if converters.iter().any(|converter| *converter != "lower") && maps::is_host(fetch) {
        return host_condition(fetch, converters, expression);
    }
    let mut ignores_case = expression.ignores_case;
    for converter in converters {
        let has_upper = |pattern: &&str| pattern.bytes().any(|byte| byte.is_ascii_uppercase());
        match *converter {
            // Case is ignored then, as long as the patterns are in lower case.
            "lower" if !expression.patterns.iter().any(has_upper) => ignores_case = true,
            other => return no_equivalent(format!("the converter '{other}'")),
        }
    }
    let patterns = expression.patterns.clone();
    condition_of(fetch.to_owned(), &Expression { manner: expression.manner, ignores_case, patterns })
}

/// Splits `fetch(a,b),converter(c),lower` at the commas outside of parentheses.
pub(super) fn split_fetch(text: &str) -> (&str, Vec<&str>) {
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

pub(super) fn manner_of(name: &str) -> Option<Manner> {
    Some(match name {
        "str" | "ip" => Manner::Equals,
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
        && let Some(manner) = manner_of(suffix).filter(|_| !matches!(suffix, "ip" | "found"))
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
    let is_found = expression.manner == Manner::Found && expression.patterns.is_empty();
    let has_patterns = expression.manner != Manner::Found && !expression.patterns.is_empty();
    match name {
        "always_true" if fetch == name && expression.patterns.is_empty() => return Ok(Condition::Always),
        "always_false" if fetch == name && expression.patterns.is_empty() => return Ok(Condition::Never),
        "ssl_fc" if expression.patterns.is_empty() && expression.manner == Manner::Equals => {
            return Ok(Condition::Tls);
        }
        _ if !is_found && !has_patterns => {
            return no_equivalent(format!("the condition '{name}' without a value"));
        }
        _ if expression.patterns.contains(&"") => return no_equivalent("an empty value in a condition"),
        _ => {}
    }
    match name {
        "hdr" | "req.hdr" | "req.fhdr" if is_field_name(argument) => {
            let field = argument.to_ascii_lowercase();
            let is_list = name != "req.fhdr" && field != "host";
            field_condition(&field, is_list, is_found, expression)
        }
        "cook" | "req.cook" | "cookie" if is_field_name(argument) => {
            cookie_test(argument, is_found, expression)
        }
        "path" if argument.is_empty() && has_patterns => path_test(expression),
        "method" if expression.manner == Manner::Equals && !expression.ignores_case => {
            match expression.patterns.iter().all(|name| is_method(name)) {
                true => Ok(Condition::tests(
                    expression.patterns.iter().map(|name| Test::Method((*name).to_owned())),
                )),
                false => no_equivalent("a name that is no method"),
            }
        }
        "src" if argument.is_empty() && expression.manner == Manner::Equals => {
            let networks: Option<Vec<String>> =
                expression.patterns.iter().map(|text| network(text)).collect();
            match networks {
                Some(networks) => Ok(Condition::tests(networks.into_iter().map(Test::Source))),
                None => no_equivalent("a client network must be an address, with or without a prefix length"),
            }
        }
        "ssl_fc_sni" | "req.ssl_sni" | "req_ssl_sni" if has_patterns => server_name_test(expression),
        other => no_equivalent(format!("the condition '{other}'")),
    }
}

fn field_condition(
    field: &str,
    is_list: bool,
    is_found: bool,
    expression: &Expression<'_>,
) -> Result<Condition, NoEquivalent> {
    if is_hidden(field) {
        let text =
            format!("weir does not compare the field '{field}', which it forwards only from trusted peers");
        return no_equivalent(text);
    }
    if is_found {
        return Ok(Condition::test(Test::Header(field.to_owned(), ValueTest::Present)));
    }
    let patterns = expression.patterns.iter();
    let tests = patterns.map(|pattern| field_test(field, is_list, pattern, expression));
    Ok(Condition::any(tests.collect::<Result<Vec<_>, _>>()?))
}

/// Returns an expression for a pattern, without the flag for its case.
pub(super) fn pattern_regex(manner: Manner, pattern: &str) -> Result<String, NoEquivalent> {
    let text = escape_regex(pattern);
    Ok(match manner {
        Manner::Equals => format!("^{text}$"),
        Manner::Begins => format!("^{text}"),
        Manner::Ends => format!("{text}$"),
        Manner::Contains => text,
        Manner::Directory => format!("(^|[/?]){}([/?]|$)", escape_regex(pattern.trim_matches(['/', '?']))),
        Manner::Domain => {
            format!("(^|[./:?]){}([./:?]|$)", escape_regex(pattern.trim_matches(['.', '/', ':', '?'])))
        }
        Manner::Regex if is_portable_regex(pattern) => pattern.to_owned(),
        Manner::Regex => {
            return no_equivalent("the regular expression uses a feature of PCRE that weir does not have");
        }
        Manner::Found => return no_equivalent("'-m found' with a value"),
    })
}

pub(super) fn with_case(ignores_case: bool, regex: String) -> String {
    if ignores_case { format!("(?i){regex}") } else { regex }
}

/// Returns the test of a field, of which HAProxy compares each value of a list.
fn field_test(
    field: &str,
    is_list: bool,
    pattern: &str,
    expression: &Expression<'_>,
) -> Result<Condition, NoEquivalent> {
    let test = |value| Condition::test(Test::Header(field.to_owned(), value));
    if !is_list && expression.manner == Manner::Equals && !expression.ignores_case {
        return Ok(test(ValueTest::Equals(pattern.to_owned())));
    }
    let comma = test(ValueTest::Regex(",".to_owned()));
    let regex = pattern_regex(expression.manner, pattern)?;
    let regex_condition = |regex: String| test(ValueTest::Regex(with_case(expression.ignores_case, regex)));
    if !is_list {
        return Ok(regex_condition(regex));
    }
    if expression.manner == Manner::Regex {
        let bare = regex.strip_prefix('^').unwrap_or(&regex);
        let bare = bare.strip_suffix('$').filter(|bare| !bare.ends_with('\\')).unwrap_or(bare);
        let is_anchored = bare.len() < regex.len();
        if bare.contains(['^', '$']) || (is_anchored && bare.contains('|')) {
            return Ok(regex_condition(regex).except(&comma));
        }
        let start = if regex.starts_with('^') { "(?:^|,)[\\t ]*" } else { "" };
        let end =
            if regex.len() > bare.len() + usize::from(!start.is_empty()) { "[\\t ]*(?:,|$)" } else { "" };
        let condition = regex_condition(format!("{start}{bare}{end}"));
        let spans = bare.contains(['.', ',', '\\', '[']);
        return Ok(if spans { condition.at_most(&comma) } else { condition });
    }
    if pattern.contains(',') || pattern.trim() != pattern {
        return no_equivalent("a value of a list with a comma or a space at its end");
    }
    let text = escape_regex(pattern);
    if expression.manner == Manner::Equals {
        let (text, ignores_case) = (pattern.to_owned(), expression.ignores_case);
        return Ok(test(ValueTest::Item { text, ignores_case }));
    }
    Ok(regex_condition(match expression.manner {
        Manner::Begins => format!("(?:^|,)[\\t ]*{text}"),
        Manner::Ends => format!("{text}[\\t ]*(?:,|$)"),
        Manner::Directory => {
            let text = escape_regex(pattern.trim_matches(['/', '?']));
            format!("(?:(?:^|,)[\\t ]*|[/?]){text}(?:[\\t ]*(?:,|$)|[/?])")
        }
        Manner::Domain => {
            let text = escape_regex(pattern.trim_matches(['.', '/', ':', '?']));
            format!("(?:(?:^|,)[\\t ]*|[./:?]){text}(?:[\\t ]*(?:,|$)|[./:?])")
        }
        Manner::Contains | Manner::Equals | Manner::Regex | Manner::Found => regex,
    }))
}

fn cookie_test(name: &str, is_found: bool, expression: &Expression<'_>) -> Result<Condition, NoEquivalent> {
    let test = |value| Condition::test(Test::Cookie(name.to_owned(), value));
    if is_found {
        return Ok(test(ValueTest::Present));
    }
    let mut any = Vec::new();
    for pattern in &expression.patterns {
        any.push(test(match expression.manner {
            Manner::Equals if !expression.ignores_case => ValueTest::Equals((*pattern).to_owned()),
            manner => ValueTest::Regex(with_case(expression.ignores_case, pattern_regex(manner, pattern)?)),
        }));
    }
    Ok(Condition::any(any))
}

/// Returns the test of a path. Listeners of HAProxy accept only paths in normal form.
fn path_test(expression: &Expression<'_>) -> Result<Condition, NoEquivalent> {
    let mut tests = Vec::new();
    for pattern in &expression.patterns {
        let is_plain = is_normal_path(pattern) && !pattern.contains(';') && !expression.ignores_case;
        tests.push(match expression.manner {
            Manner::Equals if is_plain => PathTest::Exact((*pattern).to_owned()),
            Manner::Begins if *pattern == "/" => return Ok(Condition::Always),
            Manner::Begins if is_plain => PathTest::Begins((*pattern).to_owned()),
            manner => PathTest::Regex(with_case(expression.ignores_case, pattern_regex(manner, pattern)?)),
        });
    }
    Ok(Condition::any(tests.into_iter().map(Condition::path)))
}

/// Returns the test of a server name of TLS. Names are compared without case.
fn server_name_test(expression: &Expression<'_>) -> Result<Condition, NoEquivalent> {
    let mut tests = Vec::new();
    for pattern in &expression.patterns {
        let name = pattern.to_ascii_lowercase();
        match expression.manner {
            Manner::Equals if is_host(&name) && !name.starts_with("*.") => tests.push(Test::ServerName(name)),
            Manner::Ends if name.starts_with('.') && is_host(&name[1..]) => {
                tests.push(Test::ServerName(format!("*{name}")));
            }
            _ => {
                return no_equivalent(
                    "a server name is compared as a whole, or by its end ('-m end .example.org')",
                );
            }
        }
    }
    Ok(Condition::tests(tests))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Program;
    use crate::fuzzing::NoSurroundings;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn origin() -> Rc<Origin> {
        Rc::new(Origin { file: "a".into(), line: 1, text: String::new() })
    }

    fn parsed(text: &str) -> Result<Condition, NoEquivalent> {
        let mut surroundings = NoSurroundings;
        parse_test(&words(text), &origin(), &mut Draft::new(Program::Haproxy, &mut surroundings))
    }

    fn test(text: &str) -> Condition {
        parsed(text).unwrap()
    }

    #[test]
    fn fetches_become_tests() {
        let path = Condition::path;
        assert_eq!(test("path_beg /api"), path(PathTest::Begins("/api".into())));
        assert_eq!(test("path -m beg -i /api"), path(PathTest::Regex("(?i)^/api".into())));
        assert_eq!(test("path_end .php"), path(PathTest::Regex("\\.php$".into())));
        assert_eq!(test("path_beg /"), Condition::Always);
        assert_eq!(test("src 10.1.2.3/8"), Condition::test(Test::Source("10.0.0.0/8".into())));
        let list = |file: &str| Condition::test(Test::SourceFile(file.into()));
        assert_eq!(test("src -f /a"), list("/a"));
        assert_eq!(
            test("src -n -f /a -f /b ::1"),
            list("/a").or(list("/b")).or(Condition::test(Test::Source("::1/128".into())))
        );
        assert_eq!(test("ssl_fc"), Condition::Tls);
        let header = |name: &str, value| Condition::test(Test::Header(name.into(), value));
        let regex = |name: &str, text: &str| header(name, ValueTest::Regex(text.into()));
        // A port and the case of a host count.
        assert_eq!(test("hdr(host) a.example"), header("host", ValueTest::Equals("a.example".into())));
        assert_eq!(test("hdr(host) -i A.example"), regex("host", "(?i)^A\\.example$"));
        assert_eq!(test("hdr_beg(host) www."), regex("host", "^www\\."));
        let item = ValueTest::Item { text: "WebSocket".into(), ignores_case: true };
        assert_eq!(test("req.hdr(Upgrade) -i WebSocket"), header("upgrade", item));
        assert_eq!(test("hdr_reg(x) ^a$"), regex("x", "(?:^|,)[\\t ]*a[\\t ]*(?:,|$)"));
        assert_eq!(test("req.hdr(x) -m found"), header("x", ValueTest::Present));
        // Behind the first pattern there are no flags.
        assert_eq!(
            test("path /a -i"),
            path(PathTest::Exact("/a".into())).or(path(PathTest::Regex("^-i$".into())))
        );
        for text in [
            "nbsrv(b) lt 1",
            "src -f a",
            "src,lower -f /a",
            "src -M -f /a",
            "path -f /a",
            "hdr(host) -f /a",
            "path_reg (?!x)",
            "hdr(host),map(/x) -m found",
            "src host.name",
            "url_param(a) 1",
            "hdr(x-forwarded-for) a",
            "hdr(x,1) a",
            "path",
            "hdr(x)",
            "path -m len 3",
            "path -x a",
            "hdr(x),lower A",
        ] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn server_names_are_complete_or_ends() {
        let name = |text: &str| Condition::test(Test::ServerName(text.into()));
        assert_eq!(test("req_ssl_sni -i A.example"), name("a.example"));
        assert_eq!(test("req.ssl_sni a b"), name("a").or(name("b")));
        assert_eq!(test("ssl_fc_sni_end .a.example"), name("*.a.example"));
        assert_eq!(test("ssl_fc_sni -m end -i .a"), name("*.a"));
        for manner in ["dom a", "sub a", "dir a", "beg a", "end a", "reg a", "found"] {
            assert!(parsed(&format!("req_ssl_sni -m {manner}")).is_err(), "{manner}");
        }
    }

    #[test]
    fn conditions_have_and_or_and_not() {
        let mut acls = Acls::default();
        let origin = origin();
        let mut surroundings = NoSurroundings;
        let mut draft = Draft::new(Program::Haproxy, &mut surroundings);
        let lines: Vec<Line> = ["acl a path /a", "acl h hdr(host) h", "acl x nbsrv gt 1", "acl a path /b"]
            .map(|text| Line { words: words(text), is_complete: true, origin: origin.clone() })
            .into();
        assert_eq!(acls.define(lines.iter(), &mut draft).len(), 1);
        let mut parse = |text: &str| {
            let mut reasons = Vec::new();
            let condition = acls.condition(&words(text), (&origin, &mut draft), &mut reasons);
            assert_eq!(condition.is_exact(), reasons.is_empty(), "{text}: {reasons:?}");
            condition
        };
        let a = test("path /a /b");
        let h = test("hdr(host) h");
        assert_eq!(parse("if a !h"), a.and(&h.clone().negate()));
        assert_eq!(parse("if a or h"), a.clone().or(h.clone()));
        assert_eq!(parse("unless a h"), a.and(&h).negate());
        assert_eq!(parse("if ! a !! h"), a.clone().negate().and(&h));
        assert_eq!(parse("if !{ path /a /b } || METH_GET"), a.negate().or(parse("if METH_GET")));
        for text in ["if x", "if missing", "when a", "if", "if {", "if !"] {
            assert!(!parse(text).is_exact(), "{text}");
        }
    }
}
