//! Converts texts with values, and collects the facts about those of a route.

use std::sync::Arc;

use record::document::{Located, Problems};
use regex::Regex;

use crate::field_names::matches_removal;
use crate::plan::{
    Action, Condition, Conditions, ErrorPage, Fact, LogFormat, LogTemplate, PathCondition, RateKey,
    RateLimit, ResponseRule, RouteChange, RouteTexts, Template, Text, Variable,
};
use crate::template::{KnownValues, Scope, TemplateError, parse, parse_value};

use super::value::Section;
use super::{named_log_format, validate};

/// Parses a text. One with a fault is reported at its place, and stays literal.
pub(super) fn parse_text(
    text: &Located<Box<str>>,
    scope: Scope,
    known: KnownValues<'_>,
    problems: &mut Problems,
) -> Text {
    match parse(&text.value, scope, known) {
        Ok(text) => text,
        Err(errors) => {
            report(text.offset, &errors, problems);
            Text::Literal(text.value.clone())
        }
    }
}

/// Parses a key: the name of a value, or a text with values.
pub(super) fn parse_key(
    text: &Located<Box<str>>,
    scope: Scope,
    known: KnownValues<'_>,
    problems: &mut Problems,
) -> Option<Template> {
    parse_value(&text.value, scope, known).map_err(|errors| report(text.offset, &errors, problems)).ok()
}

/// Reads the format of a log: one of those with a name, or a text with values.
pub(super) fn parse_log_format(
    section: &Section,
    known: KnownValues<'_>,
    problems: &mut Problems,
) -> LogFormat {
    let Some(text) = section.text("format").filter(|text| text.value.contains(['{', '}'])) else {
        if let Some(offset) = section.key_offset("escape") {
            problems.warn(offset, "'escape' has no effect without a format that has values");
        }
        return named_log_format(&section.text("format").map(|text| text.value).unwrap_or_default());
    };
    problems.ok_or_report(text.offset, validate::check_field_value(&text.value));
    let is_json = section.text("escape").is_some_and(|escape| &*escape.value == "json");
    let parsed =
        parse(&text.value, Scope::Log, known).map_err(|errors| report(text.offset, &errors, problems));
    let format =
        parsed.ok().and_then(|parsed| problems.ok_or_report(text.offset, LogTemplate::new(parsed, is_json)));
    format.map_or(LogFormat::Json, |format| LogFormat::Template(Arc::new(format)))
}

/// Reports faults at their places: behind the quote with which the text starts.
pub(super) fn report(offset: usize, errors: &[TemplateError], problems: &mut Problems) {
    for error in errors {
        problems.add_error(offset + 1 + error.at, &error.fault);
    }
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
    error_pages: Vec<ErrorPage>,
    action: &Action,
    rate_limits: &[RateLimit],
    regex: Option<Regex>,
) -> Option<Box<RouteTexts>> {
    let mut texts = RouteTexts::default();
    let (mut all, mut has_template) = (Vec::new(), false);
    let action_text = match action {
        Action::Redirect { location, .. } => Some(location),
        Action::Return { body, .. } => Some(body),
        _ => None,
    };
    let rule_changes = rules.iter().flat_map(|rule| &rule.changes);
    let page_texts = error_pages.iter().flat_map(ErrorPage::texts).map(|text| (text, true));
    let field_texts = changes.iter().chain(rule_changes).filter_map(text_of_change);
    for (text, is_response) in field_texts.chain(action_text.map(|text| (text, false))).chain(page_texts) {
        has_template |= matches!(text, Text::Template(_));
        for variable in text.variables() {
            let is_known_later =
                matches!(variable, Variable::Fact(Fact::Status | Fact::Reason | Fact::Server));
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
    if let Action::Split(split) = action {
        all.extend(split.key.iter().flat_map(Template::variables));
    }
    texts.uses_request_id = all.contains(&&Variable::Fact(Fact::RequestId));
    texts.regex = regex.filter(|_| all.iter().any(|variable| matches!(variable, Variable::Capture(_))));
    let is_used = has_template || !rules.is_empty() || !error_pages.is_empty();
    texts.error_pages = error_pages.into();
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
