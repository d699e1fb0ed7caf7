//! Converts texts with values, and collects the facts about those of a route.

use record::document::{Located, Problems};
use regex::Regex;

use crate::field_names::matches_removal;
use crate::plan::{
    Action, Condition, Conditions, Fact, PathCondition, RateKey, RateLimit, ResponseRule, RouteChange,
    RouteTexts, Template, Text, Variable,
};
use crate::template::{Scope, TemplateError, parse, parse_value};

/// Parses a text. One with a fault is reported at its place, and stays literal.
pub(super) fn parse_text(
    text: &Located<Box<str>>,
    scope: Scope,
    regex: Option<&Regex>,
    problems: &mut Problems,
) -> Text {
    match parse(&text.value, scope, regex) {
        Ok(text) => text,
        Err(error) => {
            report(text.offset, &error, problems);
            Text::Literal(text.value.clone())
        }
    }
}

/// Parses a key: the name of a value, or a text with values.
pub(super) fn parse_key(
    text: &Located<Box<str>>,
    scope: Scope,
    regex: Option<&Regex>,
    problems: &mut Problems,
) -> Option<Template> {
    parse_value(&text.value, scope, regex).map_err(|error| report(text.offset, &error, problems)).ok()
}

/// Reports a fault at its place: behind the quote with which the text starts.
pub(super) fn report(offset: usize, error: &TemplateError, problems: &mut Problems) {
    problems.add_error(offset + 1 + error.at, &error.fault);
}

/// Returns the only regular expression for the path among the conditions.
pub(super) fn only_regex(conditions: &Conditions) -> Option<Regex> {
    let mut regexes = Vec::new();
    collect_regexes(conditions, &mut regexes);
    match &*regexes {
        [regex] => Some((*regex).clone()),
        _ => None,
    }
}

fn collect_regexes<'c>(conditions: &'c Conditions, regexes: &mut Vec<&'c Regex>) {
    regexes.extend(conditions.paths.iter().filter_map(|path| match path {
        PathCondition::Regex(regex) => Some(regex),
        _ => None,
    }));
    if let Some(when) = &conditions.when {
        collect_from_condition(when, regexes);
    }
}

fn collect_from_condition<'c>(condition: &'c Condition, regexes: &mut Vec<&'c Regex>) {
    match condition {
        Condition::All(conditions) | Condition::Any(conditions) => {
            conditions.iter().for_each(|condition| collect_from_condition(condition, regexes));
        }
        Condition::Plain(conditions) => collect_regexes(conditions, regexes),
        // The groups of an expression that does not match have no values.
        _ => {}
    }
}

/// Returns the facts about the texts of a route; `None`: they are all literal.
pub(super) fn route_texts(
    changes: &[RouteChange],
    rules: Vec<ResponseRule>,
    action: &Action,
    rate_limits: &[RateLimit],
    regex: Option<Regex>,
) -> Option<Box<RouteTexts>> {
    let mut texts = RouteTexts::default();
    let (mut all, mut has_template) = (Vec::new(), false);
    let of_action = match action {
        Action::Redirect { location, .. } => Some(location),
        Action::Return { body, .. } => Some(body),
        _ => None,
    };
    let of_rules = rules.iter().flat_map(|rule| &rule.changes);
    for (text, is_response) in
        changes.iter().chain(of_rules).filter_map(text_of_change).chain(of_action.map(|text| (text, false)))
    {
        has_template |= matches!(text, Text::Template(_));
        for variable in text.variables() {
            let is_known_later = matches!(variable, Variable::Fact(Fact::Status | Fact::Server));
            if is_response && !is_known_later && !texts.kept.contains(variable) {
                texts.kept.push(variable.clone());
            }
            all.push(variable);
        }
    }
    for limit in rate_limits {
        if let RateKey::Template(template) = &limit.key {
            has_template = true;
            all.extend(template.variables());
        }
    }
    texts.uses_request_id = all.contains(&&Variable::Fact(Fact::RequestId));
    texts.regex = regex.filter(|_| all.iter().any(|variable| matches!(variable, Variable::Capture(_))));
    let is_used = has_template || !rules.is_empty();
    texts.variants = variants(changes, &rules);
    texts.rules = rules;
    is_used.then(|| Box::new(texts))
}

/// Returns the changes for each set of rules; none without rules.
fn variants(changes: &[RouteChange], rules: &[ResponseRule]) -> Vec<Vec<RouteChange>> {
    let variant = |set: usize| {
        let mut all = changes.to_vec();
        let held = rules.iter().enumerate().filter(|(index, _)| set >> index & 1 == 1);
        for change in held.flat_map(|(_, rule)| &rule.changes) {
            all.retain(|earlier| !is_replaced(earlier, change));
            all.push(change.clone());
        }
        all
    };
    if rules.is_empty() { Vec::new() } else { (0..1 << rules.len()).map(variant).collect() }
}

fn is_replaced(earlier: &RouteChange, later: &RouteChange) -> bool {
    let (RouteChange::SetResponseHeader(name, _) | RouteChange::AddResponseHeader(name, _)) = earlier else {
        return false;
    };
    match later {
        RouteChange::SetResponseHeader(own, _) => own.eq_ignore_ascii_case(name),
        RouteChange::RemoveResponseHeader(pattern) => matches_removal(pattern, name),
        _ => false,
    }
}

/// Returns the text of a change; true: it is for the response.
fn text_of_change(change: &RouteChange) -> Option<(&Text, bool)> {
    match change {
        RouteChange::SetRequestHeader(_, text) | RouteChange::AddRequestHeader(_, text) => {
            Some((text, false))
        }
        RouteChange::SetResponseHeader(_, text) | RouteChange::AddResponseHeader(_, text) => {
            Some((text, true))
        }
        _ => None,
    }
}
