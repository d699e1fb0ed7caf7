//! Tests of a request, and their conjunction in the form of a route: any host of a list, and any path of a list, and
//! so on.

/// Test of a field or a parameter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ValueTest {
    Equals(String),
    Present,
    Absent,
    Regex(String),
}

/// Test of a path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PathTest {
    Exact(String),
    /// The path, and all below it.
    Prefix(String),
    /// All paths that begin with these bytes.
    Begins(String),
    Regex(String),
}

/// One test of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Test {
    /// A host, `*.` for all names below it.
    Host(String),
    Path(PathTest),
    Method(String),
    Header(String, ValueTest),
    Query(String, ValueTest),
    Source(String),
}

impl Test {
    /// Returns whether any of two tests can be one condition of a route.
    pub(crate) fn is_same_kind(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Header(name, one), Self::Header(other, two))
            | (Self::Query(name, one), Self::Query(other, two)) => {
                name == other && one.as_regex().is_some() && two.as_regex().is_some()
            }
            (one, other) => std::mem::discriminant(one) == std::mem::discriminant(other),
        }
    }
}

impl ValueTest {
    /// Returns the expression that matches the same values.
    fn as_regex(&self) -> Option<String> {
        match self {
            Self::Equals(text) => Some(format!("^{}$", escape_regex(text))),
            Self::Regex(text) => Some(text.clone()),
            Self::Present | Self::Absent => None,
        }
    }

    /// Returns the test that holds for the other values, if there is one.
    pub(crate) fn complement(&self) -> Option<Self> {
        match self {
            Self::Present => Some(Self::Absent),
            Self::Absent => Some(Self::Present),
            _ => None,
        }
    }
}

/// Conjunction that a route cannot express.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a route of weir has one list of paths and one test of each field, without a negation or an intersection"
)]
pub(crate) struct NotExpressible;

/// Conditions of a route. An empty list is no condition.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Match {
    pub(crate) listeners: Vec<String>,
    pub(crate) hosts: Vec<String>,
    pub(crate) paths: Vec<PathTest>,
    pub(crate) methods: Vec<String>,
    pub(crate) headers: Vec<(String, ValueTest)>,
    pub(crate) query: Vec<(String, ValueTest)>,
    pub(crate) sources: Vec<String>,
}

impl Match {
    /// Returns the conditions that hold together with any of `tests`, all of one kind; `None`: never.
    pub(crate) fn and(&self, tests: &[Test]) -> Result<Option<Self>, NotExpressible> {
        let mut result = self.clone();
        let Some(first) = tests.first() else { return Ok(None) };
        match first {
            Test::Host(_) => {
                let wanted = tests.iter().filter_map(|test| match test {
                    Test::Host(host) => Some(host.as_str()),
                    _ => None,
                });
                result.hosts = intersect_hosts(&self.hosts, &wanted.collect::<Vec<_>>());
                Ok((!result.hosts.is_empty()).then_some(result))
            }
            Test::Method(_) => {
                let is_wanted = |method: &str| tests.contains(&Test::Method(method.to_owned()));
                match self.methods.is_empty() {
                    true => result.methods = texts(tests),
                    false => result.methods.retain(|method| is_wanted(method)),
                }
                Ok((!result.methods.is_empty()).then_some(result))
            }
            Test::Source(_) => {
                let sources = texts(tests);
                if !self.sources.is_empty() && self.sources != sources {
                    return Err(NotExpressible);
                }
                result.sources = sources;
                Ok(Some(result))
            }
            Test::Path(_) => {
                let paths = tests.iter().filter_map(|test| match test {
                    Test::Path(path) => Some(path),
                    _ => None,
                });
                result.paths = intersect_paths(&self.paths, &paths.collect::<Vec<_>>())?;
                Ok((!result.paths.is_empty()).then_some(result))
            }
            Test::Header(name, _) => and_value(result, name, tests, |result| &mut result.headers),
            Test::Query(name, _) => and_value(result, name, tests, |result| &mut result.query),
        }
    }

    /// Takes the requests of `other`, too, if the two differ in one list of alternatives. Returns whether they do.
    pub(crate) fn absorb(&mut self, other: &Self) -> bool {
        let mut copy = other.clone();
        copy.hosts.clone_from(&self.hosts);
        if copy == *self {
            return join(&mut self.hosts, &other.hosts);
        }
        copy.hosts.clone_from(&other.hosts);
        copy.methods.clone_from(&self.methods);
        if copy == *self {
            return join(&mut self.methods, &other.methods);
        }
        copy.methods.clone_from(&other.methods);
        copy.paths.clone_from(&self.paths);
        copy == *self && join(&mut self.paths, &other.paths)
    }

    /// Returns a measure of the memory of the conditions.
    pub(crate) fn weight(&self) -> usize {
        1 + self.hosts.len()
            + self.paths.len()
            + self.methods.len()
            + self.headers.len()
            + self.query.len()
            + self.sources.len()
    }
}

/// Adds alternatives to a list; an empty list has all of them.
fn join<T: Clone + PartialEq>(list: &mut Vec<T>, more: &[T]) -> bool {
    // A long list is no longer searched: its routes stay apart.
    let can_join = !list.is_empty() && !more.is_empty() && list.len() <= 64;
    if can_join {
        let new: Vec<T> = more.iter().filter(|one| !list.contains(one)).cloned().collect();
        list.extend(new);
    }
    can_join
}

fn texts(tests: &[Test]) -> Vec<String> {
    let texts = tests.iter().filter_map(|test| match test {
        Test::Method(text) | Test::Source(text) => Some(text.clone()),
        _ => None,
    });
    let mut texts: Vec<String> = texts.collect();
    texts.dedup();
    texts
}

fn and_value(
    mut result: Match,
    name: &str,
    tests: &[Test],
    list: fn(&mut Match) -> &mut Vec<(String, ValueTest)>,
) -> Result<Option<Match>, NotExpressible> {
    let values: Vec<&ValueTest> = tests
        .iter()
        .filter_map(|test| match test {
            Test::Header(_, value) | Test::Query(_, value) => Some(value),
            _ => None,
        })
        .collect();
    let value = match values[..] {
        [value] => value.clone(),
        _ => {
            let expressions: Option<Vec<String>> = values.iter().map(|value| value.as_regex()).collect();
            ValueTest::Regex(expressions.ok_or(NotExpressible)?.join("|"))
        }
    };
    let known = list(&mut result);
    match known.iter().find(|(other, _)| other == name).map(|(_, other)| other) {
        None => known.push((name.to_owned(), value)),
        Some(other) if *other == value => {}
        Some(other) if other.complement().as_ref() == Some(&value) => return Ok(None),
        // An equal value is present.
        Some(ValueTest::Equals(_) | ValueTest::Regex(_)) if value == ValueTest::Present => {}
        Some(ValueTest::Equals(_) | ValueTest::Regex(_)) if value == ValueTest::Absent => return Ok(None),
        Some(_) => return Err(NotExpressible),
    }
    Ok(Some(result))
}

/// Returns whether a host, which may be a wildcard, is one of those of `pattern`.
fn host_is_within(host: &str, pattern: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some(suffix) => host == pattern || (host.len() > suffix.len() && host.ends_with(suffix)),
        None => host == pattern,
    }
}

fn intersect_hosts(known: &[String], wanted: &[&str]) -> Vec<String> {
    let mut hosts: Vec<String> = Vec::new();
    let mut add = |host: &str| {
        if !hosts.iter().any(|other| other == host) {
            hosts.push(host.to_owned());
        }
    };
    if known.is_empty() {
        wanted.iter().copied().for_each(add);
        return hosts;
    }
    for one in known {
        for other in wanted {
            if host_is_within(one, other) {
                add(one);
            } else if host_is_within(other, one) {
                add(other);
            }
        }
    }
    hosts
}

fn intersect_paths(known: &[PathTest], wanted: &[&PathTest]) -> Result<Vec<PathTest>, NotExpressible> {
    let mut paths: Vec<PathTest> = Vec::new();
    if known.is_empty() {
        for path in wanted {
            if !paths.contains(path) {
                paths.push((*path).clone());
            }
        }
        return Ok(paths);
    }
    for one in known {
        for other in wanted {
            match intersect_path(one, other)? {
                Some(path) if !paths.contains(&path) => paths.push(path),
                _ => {}
            }
        }
    }
    Ok(paths)
}

/// Returns whether all paths of `one` are paths of `other`; `None`: it is not known.
fn is_within(one: &PathTest, other: &PathTest) -> Option<bool> {
    use PathTest::{Begins, Exact, Prefix, Regex};
    if one == other {
        return Some(true);
    }
    let is_below = |path: &str, prefix: &str| {
        let bare = prefix.trim_end_matches('/');
        path == prefix || path.strip_prefix(bare).is_some_and(|rest| rest.starts_with('/'))
    };
    match (one, other) {
        (Regex(_), _) | (_, Regex(_)) => None,
        (Exact(a), Exact(b)) => Some(a == b),
        (Exact(a) | Prefix(a), Prefix(b)) => Some(is_below(a, b)),
        (Exact(a) | Begins(a) | Prefix(a), Begins(b)) => Some(a.starts_with(b.as_str())),
        (Begins(a), Prefix(b)) => {
            Some(a.ends_with('/') && is_below(a, b) || (is_below(a, b) && a.len() > b.len()))
        }
        (Prefix(_) | Begins(_), Exact(_)) => Some(false),
    }
}

/// Returns the paths of both; `None`: there are none.
fn intersect_path(one: &PathTest, other: &PathTest) -> Result<Option<PathTest>, NotExpressible> {
    match (is_within(one, other), is_within(other, one)) {
        (Some(true), _) => Ok(Some(one.clone())),
        (_, Some(true)) => Ok(Some(other.clone())),
        (Some(false), Some(false)) => {
            use PathTest::{Begins, Prefix};
            // Neither contains the other, and still both may match: /a/… of `Begins("/a/b")` and `Prefix("/a/b")`
            // are ordered, all other pairs of prefixes are disjoint.
            match (one, other) {
                (Begins(a) | Prefix(a), Begins(b) | Prefix(b))
                    if a.starts_with(b.as_str()) || b.starts_with(a.as_str()) =>
                {
                    Err(NotExpressible)
                }
                _ => Ok(None),
            }
        }
        _ => Err(NotExpressible),
    }
}

/// Returns an expression that matches exactly this text.
pub(crate) fn escape_regex(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        if "\\.+*?()|[]{}^$#&-~".contains(letter) && !"&-~#".contains(letter) {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

/// Returns whether a group, of which this is the text behind its parenthesis, only captures, groups or ignores case.
fn is_portable_group(text: &str) -> bool {
    match text.strip_prefix('?') {
        Some(kind) => {
            let is_lookbehind = kind.starts_with("<=") || kind.starts_with("<!");
            let known = ["P<", "<", ":", "i)", "i:"];
            known.iter().any(|start| kind.starts_with(start)) && !is_lookbehind
        }
        None => !text.starts_with('*'),
    }
}

/// Returns whether an expression of PCRE has the same meaning in weir: it uses neither assertions about the
/// surroundings, nor references to groups, nor atomic or recursive groups.
pub(crate) fn is_portable_regex(text: &str) -> bool {
    let mut rest = text;
    let mut in_class = false;
    let mut after_quantifier = false;
    let mut depth = 0_i32;
    while let Some(letter) = rest.chars().next() {
        let after = &rest[letter.len_utf8()..];
        let mut quantifier = false;
        match letter {
            '\\' => {
                let Some(escaped) = after.chars().next() else { return false };
                let is_reference = escaped.is_ascii_digit() && escaped != '0';
                if is_reference || "GKkRXCQEgh".contains(escaped) || escaped == 'Z' {
                    return false;
                }
                rest = &after[escaped.len_utf8()..];
                after_quantifier = false;
                continue;
            }
            '[' if in_class => return false,
            '[' => {
                in_class = true;
                // A bracket at the start of a class is literal in PCRE, and not in weir.
                if after.starts_with(']') || after.starts_with("^]") {
                    return false;
                }
            }
            ']' if in_class => in_class = false,
            '&' | '-' | '~' if in_class && after.starts_with(letter) => return false,
            '(' if !in_class => {
                depth += 1;
                if !is_portable_group(after) {
                    return false;
                }
            }
            ')' if !in_class => {
                depth -= 1;
                if depth < 0 {
                    return false;
                }
            }
            '*' | '?' | '}' if !in_class => quantifier = true,
            '+' if !in_class => {
                if after_quantifier {
                    return false;
                }
                quantifier = true;
            }
            _ => {}
        }
        // The question mark of a lazy quantifier ends it.
        after_quantifier = quantifier && !(after_quantifier && letter == '?');
        rest = after;
    }
    !in_class && depth == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(test: PathTest) -> [Test; 1] {
        [Test::Path(test)]
    }

    #[test]
    fn hosts_and_methods_are_intersected() {
        let wide =
            Match::default().and(&[Test::Host("*.a.b".into()), Test::Host("c".into())]).unwrap().unwrap();
        let one = wide.and(&[Test::Host("x.a.b".into())]).unwrap().unwrap();
        assert_eq!(one.hosts, ["x.a.b"]);
        assert_eq!(wide.and(&[Test::Host("d".into())]), Ok(None));
        let narrow = wide.and(&[Test::Host("*.z.a.b".into()), Test::Host("c".into())]).unwrap().unwrap();
        assert_eq!(narrow.hosts, ["*.z.a.b", "c"]);
        let get = Match::default().and(&[Test::Method("GET".into())]).unwrap().unwrap();
        assert_eq!(get.and(&[Test::Method("POST".into())]), Ok(None));
    }

    #[test]
    fn paths_are_intersected_where_a_route_can_express_it() {
        let api = Match::default().and(&path(PathTest::Begins("/api".into()))).unwrap().unwrap();
        let below = api.and(&path(PathTest::Prefix("/api".into()))).unwrap().unwrap();
        assert_eq!(below.paths, [PathTest::Prefix("/api".into())]);
        let exact = api.and(&path(PathTest::Exact("/apix".into()))).unwrap().unwrap();
        assert_eq!(exact.paths, [PathTest::Exact("/apix".into())]);
        assert_eq!(api.and(&path(PathTest::Exact("/b".into()))), Ok(None));
        assert_eq!(api.and(&path(PathTest::Begins("/static/".into()))), Ok(None));
        assert_eq!(api.and(&path(PathTest::Regex("x$".into()))), Err(NotExpressible));
    }

    #[test]
    fn several_values_of_a_field_become_an_expression() {
        let value = |text: &str| Test::Header("x".into(), ValueTest::Equals(text.into()));
        let both = Match::default().and(&[value("a.b"), value("c")]).unwrap().unwrap();
        assert_eq!(both.headers, [("x".to_owned(), ValueTest::Regex("^a\\.b$|^c$".into()))]);
        assert_eq!(both.and(&[Test::Header("x".into(), ValueTest::Absent)]), Ok(None));
        assert_eq!(both.and(&[value("c")]), Err(NotExpressible));
    }

    #[test]
    fn expressions_with_another_meaning_are_found() {
        for text in ["\\.php$", "^/(a|b)/[0-9]+?$", "(?i)x", "(?<name>.+)", "^(www\\.)?(.+)$", "[^/]+"] {
            assert!(is_portable_regex(text), "{text}");
        }
        for text in ["(?!a)", "(?<=a)b", "(a)\\1", "a++", "(?>a)", "[]a]", "[a[b]", "a)", "(", "[a&&b]", "\\"]
        {
            assert!(!is_portable_regex(text), "{text}");
        }
    }
}
