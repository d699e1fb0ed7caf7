//! Matchers of Caddy: paths, named sets, placeholders.

use crate::directive::Directive;
use crate::draft::{is_field_name, is_host, is_method, is_normal_path, network};
use crate::rules::{Condition, PathTest, Test, ValueTest, escape_regex, is_portable_regex};
use crate::text::{Template, Variable};

/// Networks of `private_ranges`.
pub(super) const PRIVATE: [&str; 6] =
    ["192.168.0.0/16", "172.16.0.0/12", "10.0.0.0/8", "127.0.0.0/8", "fd00::/8", "::1/128"];

/// Named matchers of a site.
#[derive(Clone, Debug, Default)]
pub(super) struct Matchers(Vec<(String, Option<Condition>)>);

impl Matchers {
    /// Reads the matchers of a block; those of the blocks around it stay.
    pub(super) fn inner(&self, directives: &[Directive], prefix: &str) -> Self {
        let mut matchers = self.clone();
        for directive in directives.iter().filter(|directive| directive.name().starts_with('@')) {
            let condition = match &directive.block {
                Some(block) => condition_of_set(block, prefix),
                None => match directive.words.get(1) {
                    // An expression is one word.
                    Some(_) => condition_of_words(directive.arguments(), &[], prefix),
                    None => None,
                },
            };
            matchers.0.push((directive.name().to_owned(), condition));
        }
        matchers
    }

    /// Returns the condition of a matcher token; `None`: weir has no such condition.
    pub(super) fn condition(&self, token: &str, prefix: &str) -> Option<Condition> {
        match token {
            "*" => Some(Condition::Always),
            path if path.starts_with('/') => path_condition(&[path], prefix),
            name => self
                .0
                .iter()
                .rev()
                .find(|(other, _)| other == name)
                .and_then(|(_, condition)| condition.clone()),
        }
    }
}

/// Returns whether a word is a matcher.
pub(super) fn is_matcher(word: &str) -> bool {
    word == "*" || word.starts_with('/') || (word.starts_with('@') && word.len() > 1)
}

/// Returns the condition that all matchers of a set hold. Several of a kind are alternatives, except fields.
fn condition_of_set(block: &[Directive], prefix: &str) -> Option<Condition> {
    let mut kinds: Vec<(String, Condition)> = Vec::new();
    for directive in block {
        let condition = condition_of_words(&directive.words, directive.inner(), prefix)?;
        let name = match directive.name() {
            "header" | "query" => {
                format!("{} {}", directive.name(), directive.argument(0).split('=').next()?)
            }
            "not" => format!("not {}", kinds.len()),
            name => name.to_owned(),
        };
        match kinds.iter_mut().find(|(other, _)| *other == name) {
            Some((_, known)) => *known = known.clone().or(condition),
            None => kinds.push((name, condition)),
        }
    }
    Some(kinds.into_iter().fold(Condition::Always, |all, (_, condition)| all.and(condition)))
}

fn condition_of_words(words: &[String], inner: &[Directive], prefix: &str) -> Option<Condition> {
    let (name, values) = words.split_first()?;
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    match name.as_str() {
        "path" => path_condition(&values, prefix),
        "path_regexp" if prefix.is_empty() => {
            let regex = values.last().filter(|regex| is_portable_regex(regex))?;
            Some(Condition::test(Test::Path(PathTest::Regex((*regex).to_owned()))))
        }
        "host" => {
            let hosts =
                values.iter().map(|host| is_host(host).then(|| Test::Host(host.to_ascii_lowercase())));
            Some(Condition::Tests(hosts.collect::<Option<Vec<_>>>()?))
        }
        "method" => {
            let methods =
                values.iter().map(|name| is_method(name).then(|| Test::Method(name.to_ascii_uppercase())));
            Some(Condition::Tests(methods.collect::<Option<Vec<_>>>()?))
        }
        "protocol" => match values.as_slice() {
            ["https"] => Some(Condition::Tls),
            ["http"] => Some(Condition::Tls.negate()),
            _ => None,
        },
        "remote_ip" | "client_ip" => source_condition(&values),
        "header" => header_condition(&values),
        "header_regexp" => {
            let [.., field, regex] = values.as_slice() else { return None };
            let is_valid = is_field_name(field) && is_portable_regex(regex);
            is_valid.then(|| {
                Condition::test(Test::Header(
                    field.to_ascii_lowercase(),
                    ValueTest::Regex((*regex).to_owned()),
                ))
            })
        }
        "query" => {
            let mut all = Condition::Always;
            for value in values {
                let (name, value) = value.split_once('=')?;
                let test =
                    if value == "*" { ValueTest::Present } else { ValueTest::Equals(value.to_owned()) };
                all = all.and(Condition::test(Test::Query(name.to_owned(), test)));
            }
            Some(all)
        }
        "not" => {
            let condition = match inner.is_empty() {
                true => condition_of_words(&words[1..], &[], prefix)?,
                false => condition_of_set(inner, prefix)?,
            };
            Some(condition.negate())
        }
        _ => None,
    }
}

fn source_condition(values: &[&str]) -> Option<Condition> {
    let mut tests = Vec::new();
    for value in values {
        match *value {
            "private_ranges" => tests.extend(PRIVATE.map(|text| Test::Source(text.to_owned()))),
            "forwarded" => return None,
            value => tests.push(Test::Source(network(value)?)),
        }
    }
    Some(Condition::Tests(tests))
}

fn header_condition(values: &[&str]) -> Option<Condition> {
    let (field, test) = match values {
        [field] => match field.strip_prefix('!') {
            Some(field) => (field, ValueTest::Absent),
            None => (*field, ValueTest::Present),
        },
        [field, "*"] => (*field, ValueTest::Present),
        [field, value] if !value.contains('*') => (*field, ValueTest::Equals((*value).to_owned())),
        [field, value] => {
            let inner = value.trim_matches('*');
            if inner.contains('*') {
                return None;
            }
            let (start, end) =
                (if value.starts_with('*') { "" } else { "^" }, if value.ends_with('*') { "" } else { "$" });
            (*field, ValueTest::Regex(format!("{start}{}{end}", escape_regex(inner))))
        }
        _ => return None,
    };
    is_field_name(field).then(|| Condition::test(Test::Header(field.to_ascii_lowercase(), test)))
}

/// Returns the condition of path patterns behind a prefix that was removed. Case does not count.
fn path_condition(patterns: &[&str], prefix: &str) -> Option<Condition> {
    let mut tests = Vec::new();
    for pattern in patterns {
        let test = match pattern.strip_suffix('*') {
            _ if matches!(*pattern, "*" | "/*") && prefix.is_empty() => return Some(Condition::Always),
            Some(start) if start.starts_with('/') && !start.contains('*') => {
                let path = format!("{prefix}{}", start.to_ascii_lowercase());
                is_normal_path(&path).then_some(PathTest::Begins(path))?
            }
            None if pattern.starts_with('/') && !pattern.contains('*') => {
                let path = format!("{prefix}{}", pattern.to_ascii_lowercase());
                is_normal_path(&path).then_some(PathTest::Exact(path))?
            }
            // A part at the end, or anywhere.
            _ if pattern.starts_with('*') && prefix.is_empty() => {
                let inner = pattern.trim_matches('*');
                if inner.contains('*') || inner.is_empty() {
                    return None;
                }
                let end = if pattern.ends_with('*') { "" } else { "$" };
                PathTest::Regex(format!("(?i){}{end}", escape_regex(inner)))
            }
            _ => return None,
        };
        tests.push(Test::Path(test));
    }
    (!tests.is_empty()).then_some(Condition::Tests(tests))
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
            _ => return None,
        }
    }
    template.push_text(rest);
    Some(template)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_prefixes_paths_or_parts() {
        let path = |patterns: &[&str], prefix| path_condition(patterns, prefix);
        let test = |test| Some(Condition::test(Test::Path(test)));
        assert_eq!(path(&["/Api/*"], ""), test(PathTest::Begins("/api/".into())));
        assert_eq!(path(&["/x"], "/v1"), test(PathTest::Exact("/v1/x".into())));
        assert_eq!(path(&["*.php"], ""), test(PathTest::Regex("(?i)\\.php$".into())));
        assert_eq!(path(&["/*"], ""), Some(Condition::Always));
        assert_eq!(path(&["/a/*/b"], ""), None);
    }

    #[test]
    fn placeholders_are_values_of_the_request() {
        let text = template("https://www.{host}{uri}").unwrap();
        assert_eq!(text.location().unwrap(), "https://www.{host}{path}{query}");
        assert_eq!(template("{http.regexp.a.1}"), None);
    }
}
