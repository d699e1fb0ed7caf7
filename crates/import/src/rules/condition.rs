//! Conditions of a request in three-valued logic: true, false, unknown. A condition that weir cannot evaluate exactly
//! is unknown for the requests in doubt, and its bounds say for which requests it certainly, or possibly, holds.

use std::rc::Rc;

/// Test of a field, a parameter or a cookie.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ValueTest {
    Equals(String),
    Present,
    Absent,
    /// One value of a list, whose values are separated by commas.
    Item {
        text: String,
        ignores_case: bool,
    },
    Regex(String),
}

impl ValueTest {
    /// Returns the length of its text.
    fn weight(&self) -> usize {
        match self {
            Self::Equals(text) | Self::Regex(text) | Self::Item { text, .. } => text.len(),
            Self::Present | Self::Absent => 0,
        }
    }

    /// Returns whether a text passes; `None`: it is not known.
    pub(crate) fn is_met_by(&self, text: &str) -> Option<bool> {
        match self {
            Self::Equals(wanted) => Some(text == wanted),
            Self::Present => Some(true),
            Self::Absent => Some(false),
            Self::Item { text: wanted, ignores_case } => {
                Some(text.split(',').any(|item| match ignores_case {
                    true => item.trim().eq_ignore_ascii_case(wanted),
                    false => item.trim() == wanted,
                }))
            }
            Self::Regex(_) => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PathTest {
    Exact(String),
    /// The path, and all below it.
    Prefix(String),
    /// All paths that begin with these bytes.
    Begins(String),
    Regex(String),
}

/// Test of the value that a map has for a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MapTest {
    pub(crate) name: String,
    /// The map's key as the config has it: a value of the request, or a text with values.
    pub(crate) key: String,
    /// `Present`: the map has an entry.
    pub(crate) value: ValueTest,
}

impl MapTest {
    /// Returns the values of the request that the key consists of.
    pub(crate) fn reads(&self) -> impl Iterator<Item = &str> {
        key_reads(&self.key)
    }
}

/// Returns the values of the request that a key consists of.
pub(crate) fn key_reads(key: &str) -> impl Iterator<Item = &str> {
    key.split(['{', '}']).filter(|name| !name.is_empty())
}

/// One test of a request, which weir evaluates exactly.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Test {
    /// A host without its port, `*.` for all names below it.
    Host(String),
    Path(PathTest),
    Method(String),
    Header(String, ValueTest),
    Query(String, ValueTest),
    Cookie(String, ValueTest),
    Source(String),
    /// File with client networks.
    SourceFile(String),
    /// The name in the client's TLS handshake, `*.` for all names below it.
    ServerName(String),
    Map(MapTest),
    /// The key is in the first hundredths of a percent of all keys.
    Percent(u32, String),
    /// A rule of a group has matched; see [`super::Rule::Scope`].
    Marked(usize),
}

/// A condition of a request. Clones share their parts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Condition {
    Always,
    Never,
    /// Nothing is known of it.
    Unknown,
    /// The client's connection has TLS. Each listener has TLS or not, see [`super::specialise`].
    Tls,
    Test(Rc<Test>),
    All(Rc<[Self]>),
    Any(Rc<[Self]>),
    Not(Rc<Self>),
}

impl Condition {
    pub(crate) fn test(test: Test) -> Self {
        Self::Test(Rc::new(test))
    }

    pub(crate) fn path(test: PathTest) -> Self {
        Self::test(Test::Path(test))
    }

    /// Returns the condition that one of these tests holds.
    pub(crate) fn tests(tests: impl IntoIterator<Item = Test>) -> Self {
        Self::any(tests.into_iter().map(Self::test))
    }

    pub(crate) fn negate(self) -> Self {
        match self {
            Self::Always => Self::Never,
            Self::Never => Self::Always,
            Self::Unknown => Self::Unknown,
            Self::Not(inner) => (*inner).clone(),
            other => Self::Not(Rc::new(other)),
        }
    }

    /// Returns the condition that all of these hold.
    pub(crate) fn all(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut all: Vec<Self> = Vec::new();
        for part in parts {
            match part {
                Self::Always => {}
                Self::Never => return Self::Never,
                Self::All(inner) => all.extend(inner.iter().cloned()),
                part => all.push(part),
            }
        }
        match all.len() {
            0 => Self::Always,
            1 => all.swap_remove(0),
            _ => Self::All(all.into()),
        }
    }

    /// Returns the condition that one of these holds.
    pub(crate) fn any(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut any: Vec<Self> = Vec::new();
        for part in parts {
            match part {
                Self::Never => {}
                Self::Always => return Self::Always,
                Self::Any(inner) => any.extend(inner.iter().cloned()),
                part => any.push(part),
            }
        }
        match any.len() {
            0 => Self::Never,
            1 => any.swap_remove(0),
            _ => Self::Any(any.into()),
        }
    }

    pub(crate) fn and(&self, other: &Self) -> Self {
        Self::all([self.clone(), other.clone()])
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self::any([self, other])
    }

    /// Returns this condition, which is unknown for the requests of `doubt`.
    pub(crate) fn except(self, doubt: &Self) -> Self {
        let known = Self::any([doubt.clone().negate(), Self::Unknown]);
        Self::any([Self::all([self, known]), doubt.and(&Self::Unknown)])
    }

    /// Returns this condition as far as it is known to hold at most there: where it holds in `doubt`, it is unknown.
    pub(crate) fn at_most(self, doubt: &Self) -> Self {
        Self::all([self, Self::any([doubt.clone().negate(), Self::Unknown])])
    }

    /// Returns the condition with what is unknown replaced: `false` gives the requests for which it certainly holds,
    /// `true` those for which it possibly holds.
    pub(crate) fn bound(&self, unknown: bool) -> Self {
        match self {
            Self::Unknown => match unknown {
                true => Self::Always,
                false => Self::Never,
            },
            Self::Not(inner) => inner.bound(!unknown).negate(),
            Self::All(parts) => Self::all(parts.iter().map(|part| part.bound(unknown))),
            Self::Any(parts) => Self::any(parts.iter().map(|part| part.bound(unknown))),
            known => known.clone(),
        }
    }

    /// Returns the condition with each test replaced.
    pub(crate) fn map(&self, replace: &mut dyn FnMut(&Test) -> Option<Self>) -> Self {
        match self {
            Self::Test(test) => replace(test).unwrap_or_else(|| self.clone()),
            Self::Not(inner) => inner.map(replace).negate(),
            Self::All(parts) => Self::all(parts.iter().map(|part| part.map(replace)).collect::<Vec<_>>()),
            Self::Any(parts) => Self::any(parts.iter().map(|part| part.map(replace)).collect::<Vec<_>>()),
            other => other.clone(),
        }
    }

    /// Returns whether a part of it is true for `is_wanted`.
    pub(crate) fn contains(&self, is_wanted: &dyn Fn(&Self) -> bool) -> bool {
        is_wanted(self)
            || match self {
                Self::Not(inner) => inner.contains(is_wanted),
                Self::All(parts) | Self::Any(parts) => parts.iter().any(|part| part.contains(is_wanted)),
                _ => false,
            }
    }

    pub(crate) fn is_exact(&self) -> bool {
        !self.contains(&|part| matches!(part, Self::Unknown))
    }

    /// Returns the number of its expressions, each of which weir compiles.
    pub(crate) fn expressions(&self) -> usize {
        match self {
            Self::Test(test) => usize::from(matches!(
                **test,
                Test::Path(PathTest::Begins(_) | PathTest::Regex(_))
                    | Test::Header(_, ValueTest::Regex(_) | ValueTest::Item { .. })
                    | Test::Query(_, ValueTest::Regex(_))
                    | Test::Cookie(_, ValueTest::Regex(_))
                    | Test::Map(MapTest { value: ValueTest::Regex(_), .. })
            )),
            Self::Not(inner) => inner.expressions(),
            Self::All(parts) | Self::Any(parts) => parts.iter().map(Self::expressions).sum(),
            _ => 0,
        }
    }

    /// Returns a measure of its memory and of its text, in bytes.
    pub(crate) fn weight(&self) -> usize {
        const PART: usize = 24;
        PART + match self {
            Self::Test(test) => match &**test {
                Test::Path(
                    PathTest::Exact(text)
                    | PathTest::Prefix(text)
                    | PathTest::Begins(text)
                    | PathTest::Regex(text),
                )
                | Test::Host(text)
                | Test::Method(text)
                | Test::Source(text)
                | Test::SourceFile(text)
                | Test::ServerName(text) => text.len(),
                Test::Header(name, value)
                | Test::Query(name, value)
                | Test::Cookie(name, value)
                | Test::Map(MapTest { name, value, .. }) => name.len() + value.weight(),
                Test::Percent(_, key) => key.len(),
                Test::Marked(_) => 0,
            },
            Self::Not(inner) => inner.weight(),
            Self::All(parts) | Self::Any(parts) => parts.iter().map(Self::weight).sum(),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All conditions of a depth over two tests and the unknown one.
    fn conditions(depth: usize) -> Vec<Condition> {
        let test = |name: &str| Condition::test(Test::Method(name.into()));
        let mut all = vec![Condition::Always, Condition::Never, Condition::Unknown, test("A"), test("B")];
        for _ in 0..depth {
            let known = all.clone();
            for left in &known {
                all.push(left.clone().negate());
                for right in &known {
                    all.push(left.and(right));
                    all.push(left.clone().or(right.clone()));
                }
            }
        }
        all
    }

    /// Evaluates a condition in Kleene's logic, as the table has it; `tests` are the values of A and B.
    fn value(condition: &Condition, tests: [bool; 2]) -> Option<bool> {
        match condition {
            Condition::Always => Some(true),
            Condition::Never => Some(false),
            Condition::Unknown | Condition::Tls => None,
            Condition::Test(test) => Some(tests[usize::from(**test == Test::Method("B".into()))]),
            Condition::Not(inner) => value(inner, tests).map(|value| !value),
            Condition::All(parts) => {
                let values: Vec<_> = parts.iter().map(|part| value(part, tests)).collect();
                if values.contains(&Some(false)) {
                    Some(false)
                } else if values.contains(&None) {
                    None
                } else {
                    Some(true)
                }
            }
            Condition::Any(parts) => {
                let values: Vec<_> = parts.iter().map(|part| value(part, tests)).collect();
                if values.contains(&Some(true)) {
                    Some(true)
                } else if values.contains(&None) {
                    None
                } else {
                    Some(false)
                }
            }
        }
    }

    #[test]
    fn bounds_are_those_of_the_truth_table() {
        for condition in conditions(2) {
            for tests in [[false, false], [false, true], [true, false], [true, true]] {
                let exact = value(&condition, tests);
                let bounds = [false, true].map(|unknown| value(&condition.bound(unknown), tests));
                assert_eq!(
                    bounds,
                    [Some(exact == Some(true)), Some(exact != Some(false))],
                    "{condition:?} {tests:?}"
                );
            }
        }
    }

    #[test]
    fn doubts_make_a_condition_unknown() {
        let test = |name: &str| Condition::test(Test::Method(name.into()));
        for tests in [[false, false], [false, true], [true, false], [true, true]] {
            let [a, b] = tests;
            let expected = (!b).then_some(a);
            assert_eq!(value(&test("A").except(&test("B")), tests), expected);
            let expected = if a && b { None } else { Some(a) };
            assert_eq!(value(&test("A").at_most(&test("B")), tests), expected);
        }
    }
}
