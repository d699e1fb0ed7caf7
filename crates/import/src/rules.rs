//! Rules of a foreign config, as they are there: conditions with and, or and not, in order, nested. [`compile`] makes
//! of them the flat routes of weir, of which the first match decides.
//!
//! A route of weir has conditions that must all hold, and no negation. A negated condition becomes routes for the
//! requests that it excludes, with the rules behind it, in front of the route of the rule itself.

mod compile;
mod matching;

use std::rc::Rc;

pub(crate) use compile::{CompiledRoute, Compiler};
pub(crate) use matching::{Match, PathTest, Test, ValueTest, escape_regex, is_portable_regex};

use crate::document::{Origin, Origins};
use crate::text::Template;

/// A condition of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Condition {
    Always,
    Never,
    /// The client's connection has TLS. Each listener has TLS or not, see [`specialise`].
    Tls,
    /// Any of these tests of one kind.
    Tests(Vec<Test>),
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
}

impl Condition {
    pub(crate) fn test(test: Test) -> Self {
        Self::Tests(vec![test])
    }

    pub(crate) fn negate(self) -> Self {
        match self {
            Self::Always => Self::Never,
            Self::Never => Self::Always,
            Self::Not(inner) => *inner,
            other => Self::Not(Box::new(other)),
        }
    }

    /// Returns the condition that both hold.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Never, _) | (_, Self::Never) => Self::Never,
            (Self::Always, other) | (other, Self::Always) => other,
            (Self::All(mut all), other) => {
                all.push(other);
                Self::All(all)
            }
            (first, second) => Self::All(vec![first, second]),
        }
    }

    /// Returns the condition that one of them holds. Tests of the same kind become one.
    pub(crate) fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Always, _) | (_, Self::Always) => Self::Always,
            (Self::Never, other) | (other, Self::Never) => other,
            (Self::Tests(mut tests), Self::Tests(more))
                if tests.iter().zip(&more).all(|(one, another)| one.is_same_kind(another)) =>
            {
                tests.extend(more);
                Self::Tests(tests)
            }
            (Self::Any(mut any), other) => {
                // The last one of the same kind takes further tests.
                match (any.pop(), other) {
                    (Some(last), other) => {
                        let merged = last.or(other);
                        match merged {
                            Self::Any(more) => any.extend(more),
                            merged => any.push(merged),
                        }
                    }
                    (None, other) => any.push(other),
                }
                Self::Any(any)
            }
            (first, second) => Self::Any(vec![first, second]),
        }
    }
}

/// Action that ends the processing of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    Pool(String),
    Redirect { status: u16, location: Template },
    Return { status: u16, content_type: Option<String>, body: String },
    Deny(u16),
    SilentDrop,
    Tarpit { delay_ms: Option<u64>, status: u16 },
}

impl Action {
    pub(crate) fn forwards(&self) -> bool {
        matches!(self, Self::Pool(_))
    }
}

/// Change of a request or of its response.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    SetRequest(String, Template),
    AddRequest(String, Template),
    RemoveRequest(String),
    SetResponse(String, Template),
    AddResponse(String, Template),
    RemoveResponse(String),
    /// Replaces a prefix at segments; it applies only to requests with exactly this path condition.
    RewritePrefix(String, String),
    RewritePath(String),
}

impl Change {
    pub(crate) fn is_of_request(&self) -> bool {
        !matches!(self, Self::SetResponse(..) | Self::AddResponse(..) | Self::RemoveResponse(_))
    }
}

/// One rule.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Rule {
    /// Ends the processing.
    Act(Action, Origins),
    /// Changes the requests that match, for the rules behind it.
    Change(Condition, Change, Rc<Origin>),
    /// Processes the requests that match by these rules, and then by those behind it.
    When(Condition, Vec<Self>, Origins),
}

/// Returns the rules for a listener, of which it is known whether it has TLS.
pub(crate) fn specialise(rules: &[Rule], has_tls: bool, port: Option<u16>) -> Vec<Rule> {
    let condition = |condition: &Condition| specialise_condition(condition, has_tls);
    let specialised = rules.iter().map(|rule| match rule {
        Rule::Act(Action::Redirect { status, location }, origins) => {
            let location = location.specialised(has_tls, port);
            Rule::Act(Action::Redirect { status: *status, location }, origins.clone())
        }
        Rule::Act(action, origins) => Rule::Act(action.clone(), origins.clone()),
        Rule::Change(when, change, origin) => {
            let change = match change.clone() {
                Change::SetRequest(name, text) => Change::SetRequest(name, text.specialised(has_tls, port)),
                Change::AddRequest(name, text) => Change::AddRequest(name, text.specialised(has_tls, port)),
                Change::SetResponse(name, text) => Change::SetResponse(name, text.specialised(has_tls, port)),
                Change::AddResponse(name, text) => Change::AddResponse(name, text.specialised(has_tls, port)),
                other => other,
            };
            Rule::Change(condition(when), change, Rc::clone(origin))
        }
        Rule::When(when, inner, origins) => {
            Rule::When(condition(when), specialise(inner, has_tls, port), origins.clone())
        }
    });
    specialised.collect()
}

fn specialise_condition(condition: &Condition, has_tls: bool) -> Condition {
    let each =
        |all: &[Condition]| all.iter().map(|one| specialise_condition(one, has_tls)).collect::<Vec<_>>();
    match condition {
        Condition::Tls if has_tls => Condition::Always,
        Condition::Tls => Condition::Never,
        Condition::Not(inner) => specialise_condition(inner, has_tls).negate(),
        Condition::All(all) => each(all).into_iter().fold(Condition::Always, Condition::and),
        Condition::Any(any) => each(any).into_iter().fold(Condition::Never, Condition::or),
        other => other.clone(),
    }
}
