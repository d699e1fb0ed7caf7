//! Rules of a foreign config, as they are there: conditions with and, or and not, in order, nested. [`compile`] makes
//! of them the flat routes of weir, of which the first match decides; [`write`] writes their conditions.

mod compile;
mod condition;
mod write;

use std::rc::Rc;

pub(crate) use compile::{CompiledRoute, Compiler, TooLong};
pub(crate) use condition::{Condition, MapTest, PathTest, Test, ValueTest, key_reads};
pub(crate) use write::write_condition;

use crate::document::{Origin, Origins, Value};
use crate::text::Template;

/// Action that ends the processing of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Forwards to a pool, with the settings of the route.
    Pool(String, Vec<RouteSetting>),
    /// Responds with files, by the keys of `files`, with the settings of the route.
    Files(Vec<(String, Value)>, Vec<RouteSetting>),
    Redirect {
        status: u16,
        location: Template,
    },
    Return {
        status: u16,
        content_type: Option<String>,
        body: String,
    },
    /// A response with values of the request in its text, which has no markup.
    ReturnText {
        status: u16,
        content_type: Option<String>,
        body: Template,
    },
    /// A response with the content of a file.
    ReturnFile {
        status: u16,
        content_type: String,
        file: String,
    },
    Deny(u16),
    SilentDrop,
    Tarpit {
        delay_ms: Option<u64>,
        status: u16,
    },
}

impl Action {
    pub(crate) fn forwards(&self) -> bool {
        matches!(self, Self::Pool(..))
    }

    /// Returns whether the path of the request decides on its response.
    pub(crate) fn uses_path(&self) -> bool {
        matches!(self, Self::Pool(..) | Self::Files(..))
    }

    /// Returns its text with values of the request.
    fn template(&self) -> Option<&Template> {
        match self {
            Self::Redirect { location: text, .. } | Self::ReturnText { body: text, .. } => Some(text),
            _ => None,
        }
    }

    /// Returns a measure of its text, in bytes.
    fn weight(&self) -> usize {
        match self {
            Self::Return { body, .. } => 64 + body.len(),
            Self::Redirect { location, .. } => 64 + location.weight(),
            Self::ReturnText { body, .. } => 64 + body.weight(),
            Self::ReturnFile { file, .. } => 64 + file.len(),
            Self::Pool(_, settings) => {
                32 + settings.iter().map(|setting| 64 + setting.value.weight()).sum::<usize>()
            }
            Self::Files(entries, settings) => {
                let own = entries.iter().map(|(_, value)| 16 + value.weight()).sum::<usize>();
                own + settings.iter().map(|setting| 64 + setting.value.weight()).sum::<usize>()
            }
            _ => 32,
        }
    }
}

/// Setting of a route that forwards.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RouteSetting {
    /// Table of the key; empty: the route itself.
    pub(crate) table: &'static str,
    pub(crate) key: &'static str,
    pub(crate) value: Value,
    pub(crate) origin: Rc<Origin>,
}

impl RouteSetting {
    /// Creates a setting; the path is the key, behind the name of its table and a dot.
    pub(crate) fn new(path: &'static str, value: Value, origin: &Rc<Origin>) -> Self {
        let (table, key) = path.split_once('.').unwrap_or(("", path));
        Self { table, key, value, origin: Rc::clone(origin) }
    }
}

/// Field of responses with some statuses.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StatusField {
    /// Statuses in weir's form.
    pub(crate) status: &'static str,
    /// True if it is a further line of the field.
    pub(crate) is_added: bool,
    pub(crate) name: String,
    pub(crate) text: Template,
}

/// Content of error responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ErrorPage {
    /// Statuses in weir's form.
    pub(crate) status: String,
    /// True if it replaces responses of servers, too.
    pub(crate) replaces_servers: bool,
    /// `html`, `json` or `text`.
    pub(crate) form: &'static str,
    pub(crate) file: String,
}

/// Change of a request or of its response.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    SetRequest(String, Template),
    AddRequest(String, Template),
    RemoveRequest(String),
    /// Sets a field to a value that weir does not have: it is removed, so that clients cannot set it.
    LoseRequest(String),
    SetResponse(String, Template),
    AddResponse(String, Template),
    RemoveResponse(String),
    /// Sets or adds a field of responses of these statuses.
    ResponseOf(StatusField),
    /// Replaces the content of error responses.
    Page(ErrorPage),
    /// Compresses responses, with the keys of `compression`.
    Compress(Value),
    /// Directory of files, for actions without one, or the reason why they are refused.
    FileRoot(Result<String, &'static str>),
    /// Replaces a prefix at segments.
    RewritePrefix(String, String),
    RewritePath(String),
    /// A change that weir does not have: the requests are not forwarded.
    Refuse,
    /// No change: a rule of a group has matched, which excludes the others. See [`Rule::Scope`].
    Mark(usize),
}

impl Change {
    pub(crate) fn is_of_request(&self) -> bool {
        !matches!(
            self,
            Self::SetResponse(..)
                | Self::AddResponse(..)
                | Self::RemoveResponse(_)
                | Self::ResponseOf(_)
                | Self::Page(_)
                | Self::Compress(_)
                | Self::FileRoot(_)
        )
    }

    /// Returns its text with values of the request.
    fn text(&self) -> Option<&Template> {
        match self {
            Self::SetRequest(_, text)
            | Self::AddRequest(_, text)
            | Self::SetResponse(_, text)
            | Self::AddResponse(_, text)
            | Self::ResponseOf(StatusField { text, .. }) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn is_rewrite(&self) -> bool {
        matches!(self, Self::RewritePrefix(..) | Self::RewritePath(_))
    }

    /// Returns whether it changes the lines of a field of the request.
    fn touches_field(&self, field: &str) -> bool {
        match self {
            Self::SetRequest(name, _)
            | Self::AddRequest(name, _)
            | Self::LoseRequest(name)
            | Self::RemoveRequest(name) => match name.strip_suffix('*') {
                Some(start) => {
                    field.len() >= start.len()
                        && field.as_bytes()[..start.len()].eq_ignore_ascii_case(start.as_bytes())
                }
                None => name.eq_ignore_ascii_case(field),
            },
            Self::Refuse => true,
            _ => false,
        }
    }

    /// Returns a measure of its text, in bytes.
    fn weight(&self) -> usize {
        32 + match self {
            Self::SetRequest(name, text)
            | Self::AddRequest(name, text)
            | Self::SetResponse(name, text)
            | Self::AddResponse(name, text) => name.len() + text.weight(),
            Self::RemoveRequest(name) | Self::LoseRequest(name) | Self::RemoveResponse(name) => name.len(),
            Self::RewritePrefix(from, to) => from.len() + to.len(),
            Self::RewritePath(to) => to.len(),
            Self::ResponseOf(field) => field.name.len() + field.text.weight(),
            Self::Page(page) => page.status.len() + page.file.len(),
            Self::Compress(value) => value.weight(),
            Self::FileRoot(path) => path.as_ref().map_or(0, String::len),
            Self::Refuse | Self::Mark(_) => 0,
        }
    }
}

/// Rules that are shared.
pub(crate) type Rules = Rc<[Rule]>;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Rule {
    /// Ends the processing.
    Act(Action, Origins),
    /// Changes the requests that match, for the rules behind it.
    Change(Condition, Change, Rc<Origin>),
    /// Processes the requests that match by these rules, and then by those behind it.
    When(Condition, Rules, Origins),
    /// Processes the requests by these rules, in which a mark has a meaning, and then by those behind it.
    Scope(usize, Rules),
}

impl Rule {
    /// Returns a rule with one action for the requests that match.
    pub(crate) fn act_when(condition: Condition, action: Action, origin: &Rc<Origin>) -> Self {
        Self::When(condition, [Self::Act(action, Vec::new())].into(), vec![Rc::clone(origin)])
    }

    /// Returns the refusal of the requests that match.
    pub(crate) fn refuse(condition: Condition, origin: &Rc<Origin>) -> Self {
        Self::act_when(condition, Action::Deny(501), origin)
    }

    pub(crate) fn origin(&self) -> Option<&Rc<Origin>> {
        match self {
            Self::Act(_, origins) | Self::When(_, _, origins) => origins.last(),
            Self::Change(_, _, origin) => Some(origin),
            Self::Scope(_, inner) => inner.first().and_then(Self::origin),
        }
    }
}

/// Returns the number of rules with those inside of them, up to a limit.
pub(crate) fn count_rules(rules: &[Rule], limit: usize) -> usize {
    let mut count = rules.len();
    for rule in rules {
        if count > limit {
            break;
        }
        if let Rule::When(_, inner, _) | Rule::Scope(_, inner) = rule {
            count += count_rules(inner, limit);
        }
    }
    count
}

impl Rule {
    /// Returns whether it changes the lines of a field of requests.
    pub(crate) fn touches_field(&self, field: &str) -> bool {
        match self {
            Self::Act(..) => false,
            Self::Change(_, change, _) => change.touches_field(field),
            Self::When(_, inner, _) | Self::Scope(_, inner) => {
                inner.iter().any(|rule| rule.touches_field(field))
            }
        }
    }
}

/// Returns whether a rule has such a test.
pub(crate) fn has_test(rules: &[Rule], is_wanted: fn(&Test) -> bool) -> bool {
    let has = |condition: &Condition| {
        condition.contains(&|part| matches!(part, Condition::Test(test) if is_wanted(test)))
    };
    rules.iter().any(|rule| match rule {
        Rule::Act(..) => false,
        Rule::Scope(_, inner) => has_test(inner, is_wanted),
        Rule::Change(condition, ..) => has(condition),
        Rule::When(condition, inner, _) => has(condition) || has_test(inner, is_wanted),
    })
}

pub(crate) fn has_path_test(rules: &[Rule]) -> bool {
    has_test(rules, |test| match test {
        Test::Path(_) => true,
        Test::Map(map) => map.reads().any(|name| name == "path"),
        Test::Percent(_, key) => key_reads(key).any(|name| name == "path"),
        _ => false,
    })
}

/// Returns the rules for a listener, of which it is known whether it has TLS.
pub(crate) fn specialise(rules: &[Rule], has_tls: bool, port: Option<u16>) -> Vec<Rule> {
    let condition = |condition: &Condition| specialise_condition(condition, has_tls);
    let specialised = rules.iter().map(|rule| match rule {
        Rule::Act(Action::Redirect { status, location }, origins) => {
            let location = location.specialised(has_tls, port);
            Rule::Act(Action::Redirect { status: *status, location }, origins.clone())
        }
        Rule::Act(Action::ReturnText { status, content_type, body }, origins) => {
            let (content_type, body) = (content_type.clone(), body.specialised(has_tls, port));
            Rule::Act(Action::ReturnText { status: *status, content_type, body }, origins.clone())
        }
        Rule::Act(action, origins) => Rule::Act(action.clone(), origins.clone()),
        Rule::Change(when, change, origin) => {
            let change = match change.clone() {
                Change::SetRequest(name, text) => Change::SetRequest(name, text.specialised(has_tls, port)),
                Change::AddRequest(name, text) => Change::AddRequest(name, text.specialised(has_tls, port)),
                Change::SetResponse(name, text) => Change::SetResponse(name, text.specialised(has_tls, port)),
                Change::AddResponse(name, text) => Change::AddResponse(name, text.specialised(has_tls, port)),
                Change::ResponseOf(field) => {
                    let text = field.text.specialised(has_tls, port);
                    Change::ResponseOf(StatusField { text, ..field })
                }
                other => other,
            };
            Rule::Change(condition(when), change, Rc::clone(origin))
        }
        Rule::Scope(mark, inner) => Rule::Scope(*mark, specialise(inner, has_tls, port).into()),
        Rule::When(when, inner, origins) => {
            Rule::When(condition(when), specialise(inner, has_tls, port).into(), origins.clone())
        }
    });
    specialised.collect()
}

fn specialise_condition(condition: &Condition, has_tls: bool) -> Condition {
    match condition {
        Condition::Tls if has_tls => Condition::Always,
        Condition::Tls => Condition::Never,
        Condition::Not(inner) => specialise_condition(inner, has_tls).negate(),
        Condition::All(parts) => Condition::all(parts.iter().map(|part| specialise_condition(part, has_tls))),
        Condition::Any(parts) => Condition::any(parts.iter().map(|part| specialise_condition(part, has_tls))),
        other => other.clone(),
    }
}
