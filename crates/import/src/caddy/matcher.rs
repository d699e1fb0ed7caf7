//! Matchers of Caddy: paths, named sets, placeholders. What weir cannot compare is unknown.

use std::collections::HashMap;
use std::rc::Rc;

use super::values::map_of;
use crate::directive::Directive;
use crate::draft::{is_field_name, is_hidden, is_host, is_method, network};
use crate::paths::{caddy_pattern, decoded_regex, is_portable_regex};
use crate::rules::{Condition, MapTest, Test, ValueTest};
use crate::text::{Template, Variable, escape_regex};

/// Words of a line of a matcher, and the lines of its block.
type MatcherLine<'a> = (&'a [String], &'a [Directive]);

/// Networks of `private_ranges`.
pub(super) const PRIVATE: [&str; 6] =
    ["192.168.0.0/16", "172.16.0.0/12", "10.0.0.0/8", "127.0.0.0/8", "fd00::/8", "::1/128"];

/// A named matcher.
#[derive(Clone, Debug)]
struct Named {
    condition: Condition,
    /// Its only pattern of a path, by which Caddy sorts.
    path: Option<String>,
    /// Its definition.
    key: String,
}

/// Named matchers of a block, and of those around it.
#[derive(Debug, Default)]
pub(super) struct Matchers {
    own: HashMap<String, Named>,
    outer: Option<Rc<Self>>,
    /// The client's address is that of a field.
    has_trusted_proxies: bool,
}

impl Matchers {
    pub(super) fn new(has_trusted_proxies: bool) -> Rc<Self> {
        Rc::new(Self { has_trusted_proxies, ..Self::default() })
    }

    /// Reads the matchers of a block; those of the blocks around it stay.
    pub(super) fn inner(self: &Rc<Self>, directives: &[Directive]) -> Rc<Self> {
        let mut lines: HashMap<&str, Vec<MatcherLine<'_>>> = HashMap::new();
        for directive in directives.iter().filter(|directive| directive.name().starts_with('@')) {
            let lines = lines.entry(directive.name()).or_default();
            match &directive.block {
                Some(block) if directive.arguments().is_empty() => {
                    lines.extend(block.iter().map(|line| (&line.words[..], line.inner())));
                }
                _ => lines.push((directive.arguments(), directive.inner())),
            }
        }
        if lines.is_empty() {
            return Rc::clone(self);
        }
        let own = lines.into_iter().map(|(name, lines)| {
            let patterns: Vec<&String> = lines
                .iter()
                .filter(|(words, _)| words.first().is_some_and(|word| word == "path"))
                .flat_map(|(words, _)| &words[1..])
                .collect();
            let path = match patterns[..] {
                [pattern] => Some(pattern.clone()),
                _ => None,
            };
            let condition = self.condition_of_set(&lines).unwrap_or(Condition::Unknown);
            let key = lines.iter().map(|(words, inner)| line_key(words, inner)).collect();
            (name.to_owned(), Named { condition, path, key })
        });
        Rc::new(Self {
            own: own.collect(),
            outer: Some(Rc::clone(self)),
            has_trusted_proxies: self.has_trusted_proxies,
        })
    }

    fn find(&self, name: &str) -> Option<&Named> {
        let mut matchers = Some(self);
        while let Some(scope) = matchers {
            if let Some(named) = scope.own.get(name) {
                return Some(named);
            }
            matchers = scope.outer.as_deref();
        }
        None
    }

    pub(super) fn condition(&self, token: &str) -> Condition {
        match token {
            "*" => Condition::Always,
            path if path.starts_with('/') => caddy_pattern(path),
            name => self.find(name).map_or(Condition::Unknown, |named| named.condition.clone()),
        }
    }

    /// Returns a text that is the same for the same matchers.
    pub(super) fn key(&self, token: &str) -> String {
        match token {
            "*" => String::new(),
            path if path.starts_with('/') => line_key(&["path".to_owned(), path.to_owned()], &[]),
            name => self.find(name).map_or_else(|| name.to_owned(), |named| named.key.clone()),
        }
    }

    /// Returns the only pattern of a path of a matcher token.
    pub(super) fn only_path(&self, token: &str) -> Option<String> {
        match token.starts_with('/') {
            true => Some(token.to_owned()),
            false => self.find(token).and_then(|named| named.path.clone()),
        }
    }

    /// Returns the condition that all matchers of a set hold; several of a kind are alternatives, except `not` and
    /// those of different fields.
    fn condition_of_set(&self, lines: &[(&[String], &[Directive])]) -> Option<Condition> {
        let mut kinds: Vec<(String, Condition)> = Vec::new();
        for (words, inner) in lines {
            let (name, values) = words.split_first()?;
            // The other lines hold all the same.
            let condition = self.condition_of_line(name, values, inner).unwrap_or(Condition::Unknown);
            let field = values.first().map_or("", String::as_str).to_ascii_lowercase();
            let kind = match name.as_str() {
                "header" => format!("header {}", field.trim_start_matches('!')),
                "not" => format!("not {}", kinds.len()),
                name => name.to_owned(),
            };
            // A field that must be absent, or had to be: the last one counts.
            let is_absent = |condition: &Condition| matches!(condition, Condition::Test(test) if matches!(**test, Test::Header(_, ValueTest::Absent)));
            match kinds.iter_mut().find(|(other, _)| *other == kind) {
                Some((_, known)) if is_absent(known) || is_absent(&condition) => *known = condition,
                Some((_, known))
                    if matches!(
                        name.as_str(),
                        "path" | "host" | "method" | "remote_ip" | "client_ip" | "header"
                    ) =>
                {
                    *known = known.clone().or(condition);
                }
                Some(_) => return None,
                None => kinds.push((kind, condition)),
            }
        }
        (!kinds.is_empty()).then(|| Condition::all(kinds.into_iter().map(|(_, condition)| condition)))
    }

    fn condition_of_line(&self, name: &str, values: &[String], inner: &[Directive]) -> Option<Condition> {
        let texts: Vec<&str> = values.iter().map(String::as_str).collect();
        match name {
            "not" => {
                let lines: Vec<(&[String], &[Directive])> = match values.is_empty() {
                    true => inner.iter().map(|line| (&line.words[..], line.inner())).collect(),
                    false => vec![(values, inner)],
                };
                Some(self.condition_of_set(&lines)?.negate())
            }
            "vars" if inner.is_empty() => vars_condition(&texts),
            _ if !inner.is_empty()
                || texts.iter().any(|text| text.contains('{'))
                    && name != "path_regexp"
                    && name != "header_regexp" =>
            {
                None
            }
            "path" => (!texts.is_empty())
                .then(|| Condition::any(texts.iter().map(|pattern| caddy_pattern(pattern)))),
            "path_regexp" => decoded_regex(texts.last()?, false),
            "host" => {
                let hosts = texts.iter().map(|host| host_condition(host)).collect::<Option<Vec<_>>>()?;
                (!hosts.is_empty()).then(|| Condition::any(hosts))
            }
            "method" => {
                let is_valid = !texts.is_empty() && texts.iter().all(|name| is_method(name));
                is_valid.then(|| Condition::tests(texts.iter().map(|name| Test::Method((*name).to_owned()))))
            }
            "protocol" => match texts.as_slice() {
                ["https"] => Some(Condition::Tls),
                ["http"] => Some(Condition::Tls.negate()),
                _ => None,
            },
            "client_ip" if self.has_trusted_proxies => None,
            "remote_ip" | "client_ip" => source_condition(&texts),
            "header" => header_condition(&texts),
            "header_regexp" => {
                let [.., field, regex] = texts.as_slice() else { return None };
                let field = field.to_ascii_lowercase();
                let is_valid = is_field_name(&field) && !is_hidden(&field) && is_portable_regex(regex);
                is_valid.then(|| Condition::test(Test::Header(field, ValueTest::Regex((*regex).to_owned()))))
            }
            "query" => query_condition(&texts),
            _ => None,
        }
    }
}

fn line_key(words: &[String], inner: &[Directive]) -> String {
    let inner: String = inner.iter().map(|line| line_key(&line.words, line.inner())).collect();
    format!("{words:?}{{{inner}}}")
}

pub(super) fn is_matcher(word: &str) -> bool {
    word == "*" || word.starts_with('/') || (word.starts_with('@') && word.len() > 1)
}

/// Returns the condition of a host; a wildcard is one label.
pub(super) fn host_condition(host: &str) -> Option<Condition> {
    let host = host.to_ascii_lowercase();
    match host.strip_prefix("*.") {
        Some(base) if is_host(base) => {
            let regex = format!("(?i)^[^.:]+\\.{}(:[0-9]+)?$", escape_regex(base));
            Some(Condition::test(Test::Header("host".to_owned(), ValueTest::Regex(regex))))
        }
        None if is_host(&host) => Some(Condition::test(Test::Host(host))),
        _ => None,
    }
}

fn source_condition(values: &[&str]) -> Option<Condition> {
    let mut tests = Vec::new();
    for value in values {
        match *value {
            "private_ranges" => tests.extend(PRIVATE.map(|text| Test::Source(text.to_owned()))),
            value => tests.push(Test::Source(network(value)?)),
        }
    }
    (!tests.is_empty()).then(|| Condition::tests(tests))
}

/// Returns the condition that the value of a map is one of these.
fn vars_condition(values: &[&str]) -> Option<Condition> {
    let (name, values) = values.split_first()?;
    let (map, key) = map_of(name.strip_prefix('{')?.strip_suffix('}')?)?;
    if values.is_empty() || values.iter().any(|value| value.contains('{')) {
        return None;
    }
    let tests = values.iter().map(|value| {
        let value = ValueTest::Equals((*value).to_owned());
        Test::Map(MapTest { name: map.to_owned(), key: key.clone(), value })
    });
    Some(Condition::tests(tests))
}

fn query_condition(values: &[&str]) -> Option<Condition> {
    let mut names: Vec<(&str, Vec<Test>)> = Vec::new();
    for value in values {
        let (name, value) = value.split_once('=')?;
        let test = match value {
            // Caddy has no parameters of a query with a semicolon.
            "*" => ValueTest::Regex("^[^;]*$".to_owned()),
            value => ValueTest::Equals(value.to_owned()),
        };
        let test = Test::Query(name.to_owned(), test);
        match names.iter_mut().find(|(other, _)| *other == name) {
            Some((_, tests)) => tests.push(test),
            None => names.push((name, vec![test])),
        }
    }
    (!names.is_empty()).then(|| Condition::all(names.into_iter().map(|(_, tests)| Condition::tests(tests))))
}

fn header_condition(values: &[&str]) -> Option<Condition> {
    let (field, test) = match values {
        [field] => (field.strip_prefix('!')?, ValueTest::Absent),
        [field, "*"] => (*field, ValueTest::Present),
        [field, value] if !value.contains('*') => (*field, ValueTest::Equals((*value).to_owned())),
        [field, value] => {
            let inner = value.strip_prefix('*').unwrap_or(value);
            let inner = inner.strip_suffix('*').unwrap_or(inner);
            if inner.contains('*') || inner.len() == value.len() {
                return None;
            }
            let (start, end) =
                (if value.starts_with('*') { "" } else { "^" }, if value.ends_with('*') { "" } else { "$" });
            (*field, ValueTest::Regex(format!("{start}{}{end}", escape_regex(inner))))
        }
        _ => return None,
    };
    let field = field.to_ascii_lowercase();
    (is_field_name(&field) && !is_hidden(&field)).then(|| Condition::test(Test::Header(field, test)))
}

/// Converts a text with placeholders; `None`: it has one that is not known.
pub(super) fn template(text: &str) -> Option<Template> {
    let mut template = Template::default();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        template.push_text(before);
        let (name, after) = after.split_once('}')?;
        rest = after;
        match name.strip_prefix("http.request.").unwrap_or(name) {
            "host" | "hostport" => template.push(Variable::Host),
            "uri" | "orig_uri" => {
                template.push(Variable::Path);
                template.push(Variable::Query);
            }
            "path" | "uri.path" | "orig_path" => template.push(Variable::Path),
            "scheme" => template.push(Variable::Scheme),
            "remote_host" | "remote.host" | "client_ip" => template.push(Variable::Source),
            "port" => template.push(Variable::Port),
            "method" | "orig_method" => template.push(Variable::Fact("method")),
            "time.now.http" => template.push(Variable::Fact("time.http")),
            "time.now.unix" => template.push(Variable::Fact("time.unix")),
            name => template.push(named_variable(name)?),
        }
    }
    template.push_text(rest);
    Some(template)
}

/// Returns the value of a placeholder with a name of the request, or of a map.
fn named_variable(name: &str) -> Option<Variable> {
    if let Some((map, _)) = map_of(name) {
        return Some(Variable::Map(map.to_owned()));
    }
    // The short forms and the long ones.
    let (family, own) = match name.strip_prefix("uri.") {
        Some(rest) => rest.split_once('.')?,
        None => name.split_once('.')?,
    };
    match family {
        "header" => {
            let field = own.to_ascii_lowercase();
            (is_field_name(&field) && !is_hidden(&field)).then_some(Variable::Header(field))
        }
        "cookie" if is_field_name(own) => Some(Variable::Cookie(own.to_owned())),
        "query" if is_field_name(own) => Some(Variable::Parameter(own.to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_values_of_the_request() {
        let text = template("https://www.{host}{uri}").unwrap();
        assert_eq!(text.location().unwrap(), "https://www.{host}{path}{query}");
        assert_eq!(template("{http.regexp.a.1}"), None);
        let field = |text: &str| template(text).and_then(|template| template.field());
        let expected = "{method} {header.x-a} {cookie.b} {query.c} {query.c}";
        let text = "{method} {header.X-A} {http.request.cookie.b} {query.c} {http.request.uri.query.c}";
        assert_eq!(field(text).as_deref(), Some(expected));
        assert_eq!((field("{header.X-Forwarded-For}"), field("{env.A}")), (None, None));
    }

    #[test]
    fn a_set_holds_if_all_of_it_hold_and_a_negation_is_one_of_a_set() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let origin = Rc::new(crate::document::Origin { file: "a".into(), line: 1, text: String::new() });
        let line = |text: &str, block: Option<Vec<Directive>>| Directive {
            words: words(text),
            block,
            origin: Rc::clone(&origin),
        };
        let condition =
            |block: Vec<Directive>| Matchers::new(true).inner(&[line("@x", Some(block))]).condition("@x");
        let get = Condition::test(Test::Method("GET".into()));
        let first = Condition::path(crate::rules::PathTest::Exact("/1".into()));
        let second = Condition::path(crate::rules::PathTest::Exact("/2".into()));
        let both = vec![line("path /1", None), line("method GET", None)];
        assert_eq!(condition(both.clone()), first.and(&get));
        // All of a negated set, and each of several sets.
        assert_eq!(condition(vec![line("not", Some(both))]), first.and(&get).negate());
        let nots = vec![line("not path /1", None), line("not path /2", None), line("method GET", None)];
        assert_eq!(condition(nots), Condition::all([first.clone().negate(), second.clone().negate(), get]));
        assert_eq!(condition(vec![line("path /1", None), line("path /2", None)]), first.clone().or(second));
        // What is not known holds at most where the other lines do.
        for unknown in ["expression true", "client_ip 10.0.0.1", "file x", "header X-Forwarded-For a"] {
            let found = condition(vec![line("path /1", None), line(unknown, None)]);
            assert_eq!(
                (found.bound(false), found.bound(true)),
                (Condition::Never, first.clone()),
                "{unknown}"
            );
        }
        let found = condition(vec![line("path /1", None), line("path /{x}", None)]);
        assert_eq!((found.bound(false), found.bound(true)), (first, Condition::Always));
    }
}
