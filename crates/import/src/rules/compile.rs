//! Routes from rules: the first match decides, so the rules behind a rule with a negation are compiled once for the
//! requests that it excludes, and once for the others.

use std::rc::Rc;

use super::{Action, Change, Condition, Match, PathTest, Rule, Test};
use crate::document::{Origin, Origins, add_origin};
use crate::left::Report;
use crate::rules::matching::NotExpressible;

/// Maximum number of routes of an import.
const ROUTES_MAX: usize = 2_000;
/// Maximum number of steps, and of conditions and changes of all routes together: a negation doubles the rules behind
/// it.
const WORK_MAX: usize = 40_000;
/// Maximum nesting of rules, and of negations behind each other.
const DEPTH_MAX: usize = 32;
/// Maximum number of terms of a condition in its disjunctive normal form.
const TERMS_MAX: usize = 64;

/// A route, before it has the form of a section.
#[derive(Clone, Debug)]
pub(crate) struct CompiledRoute {
    pub(crate) conditions: Match,
    pub(crate) action: Action,
    pub(crate) changes: Vec<(Change, Rc<Origin>)>,
    pub(crate) origins: Origins,
}

/// Conjunction of tests: one of each list, and none of the negated lists.
#[derive(Clone, Debug, Default)]
struct Term {
    positive: Vec<Vec<Test>>,
    negative: Vec<Vec<Test>>,
}

/// The requests that have reached a rule.
#[derive(Clone, Debug)]
struct Context {
    conditions: Match,
    changes: Vec<(Change, Rc<Origin>)>,
    origins: Origins,
    depth: usize,
}

/// Compiler of rules, with its result so far.
#[derive(Debug, Default)]
pub(crate) struct Compiler {
    pub(crate) routes: Vec<CompiledRoute>,
    work: usize,
    is_full: bool,
}

impl Compiler {
    /// Compiles the rules of listeners. The last rule must be one for all requests.
    pub(crate) fn compile(&mut self, listeners: &[String], rules: &[Rule], report: &mut Report) {
        let conditions = Match { listeners: listeners.to_vec(), ..Match::default() };
        let context = Context { conditions, changes: Vec::new(), origins: Vec::new(), depth: 0 };
        self.add_rules(rules, context, report);
    }

    /// Compiles rules. Returns whether they end the processing of all requests of the context.
    fn add_rules(&mut self, rules: &[Rule], mut context: Context, report: &mut Report) -> bool {
        for (index, rule) in rules.iter().enumerate() {
            if !self.has_room(&context, rule, report) {
                return true;
            }
            let rest = &rules[index + 1..];
            match rule {
                Rule::Act(action, origins) => {
                    self.emit(action, origins, &context, report);
                    return true;
                }
                Rule::Change(Condition::Always, change, origin) => {
                    context.changes.push((change.clone(), Rc::clone(origin)));
                }
                Rule::Change(condition, change, origin) => {
                    let change = [Rule::Change(Condition::Always, change.clone(), Rc::clone(origin))];
                    let origins = [Rc::clone(origin)];
                    if self.add_conditional(condition, &change, &origins, rest, &context, report) {
                        return true;
                    }
                }
                Rule::When(condition, inner, origins) => {
                    if self.add_conditional(condition, inner, origins, rest, &context, report) {
                        return true;
                    }
                }
            }
        }
        false
    }

    /// Compiles `inner` and then `rest` for the requests that match. Returns whether that covers the whole context.
    fn add_conditional(
        &mut self,
        condition: &Condition,
        inner: &[Rule],
        origins: &[Rc<Origin>],
        rest: &[Rule],
        context: &Context,
        report: &mut Report,
    ) -> bool {
        let Some(terms) = terms_of(condition, false) else {
            self.refuse(origins, "the condition has more than 64 alternatives", report);
            return false;
        };
        let mut inner_context = context.clone();
        inner_context.depth += 1;
        origins.iter().for_each(|origin| add_origin(&mut inner_context.origins, origin));
        for term in &terms {
            let Ok(Some(matched)) = and_all(&context.conditions, &term.positive) else {
                if and_all(&context.conditions, &term.positive).is_err() {
                    self.refuse(origins, &NotExpressible.to_string(), report);
                }
                continue;
            };
            let excluded: Result<Vec<_>, _> = term.negative.iter().map(|tests| matched.and(tests)).collect();
            let Ok(excluded) = excluded else {
                self.refuse(origins, &NotExpressible.to_string(), report);
                continue;
            };
            let is_impossible = term.negative.iter().any(|tests| is_implied(&matched, tests));
            for conditions in excluded.into_iter().flatten() {
                let excluded_context = Context { conditions, depth: context.depth + 1, ..context.clone() };
                self.add_rules(rest, excluded_context, report);
            }
            if is_impossible {
                continue;
            }
            let is_everything = matched == context.conditions;
            let matched_context = Context { conditions: matched, ..inner_context.clone() };
            let changes_only = matches!(inner, [Rule::Change(..)]);
            if changes_only || is_everything {
                let all: Vec<Rule> = inner.iter().chain(rest).cloned().collect();
                self.work += all.len();
                self.add_rules(&all, matched_context, report);
            } else {
                self.add_rules(inner, matched_context, report);
            }
            if is_everything {
                return true;
            }
        }
        false
    }

    /// Returns whether a rule may be compiled, and reports the first one that may not.
    fn has_room(&mut self, context: &Context, rule: &Rule, report: &mut Report) -> bool {
        self.work += 1 + context.changes.len();
        let is_full = self.routes.len() >= ROUTES_MAX
            || self.work >= WORK_MAX
            || context.depth > DEPTH_MAX
            || self.is_full;
        if is_full && !self.is_full {
            self.is_full = true;
            let origin = match rule {
                Rule::Act(_, origins) | Rule::When(_, _, origins) => origins.first(),
                Rule::Change(_, _, origin) => Some(origin),
            };
            if let Some(origin) = origin {
                let text = format!(
                    "the rules from here on need more than {ROUTES_MAX} routes: negated conditions double those behind them"
                );
                report.not_supported(origin, text);
            }
        }
        !is_full
    }

    fn refuse(&mut self, origins: &[Rc<Origin>], reason: &str, report: &mut Report) {
        if let Some(origin) = origins.first() {
            report.not_supported(origin, reason);
        }
    }

    fn emit(&mut self, action: &Action, origins: &Origins, context: &Context, report: &mut Report) {
        let mut conditions = context.conditions.clone();
        let mut kept: Vec<(Change, Rc<Origin>)> = Vec::new();
        for (change, origin) in &context.changes {
            if change.is_of_request() && !action.forwards() {
                continue;
            }
            if let Change::RewritePrefix(prefix, _) = change {
                match &conditions.paths[..] {
                    [PathTest::Prefix(path)] | [PathTest::Begins(path)] if path == prefix => {
                        conditions.paths = vec![PathTest::Prefix(prefix.clone())];
                    }
                    _ => {
                        report.not_supported(
                            origin,
                            "the path is rewritten only with a condition of exactly this prefix",
                        );
                        continue;
                    }
                }
            }
            add_change(&mut kept, change, origin, report);
        }
        let mut all = context.origins.clone();
        origins.iter().for_each(|origin| add_origin(&mut all, origin));
        self.work += conditions.weight() + kept.len();
        if let Some(last) = self.routes.last_mut()
            && last.action == *action
            && last.changes == kept
            && last.conditions.absorb(&conditions)
        {
            all.iter().for_each(|origin| add_origin(&mut last.origins, origin));
            return;
        }
        self.routes.push(CompiledRoute { conditions, action: action.clone(), changes: kept, origins: all });
    }
}

/// Adds a change; a field that is set again, or a second rewrite, replaces the first.
fn add_change(
    kept: &mut Vec<(Change, Rc<Origin>)>,
    change: &Change,
    origin: &Rc<Origin>,
    report: &mut Report,
) {
    use Change::{
        AddRequest, AddResponse, RemoveRequest, RemoveResponse, RewritePath, RewritePrefix, SetRequest,
        SetResponse,
    };
    let is_replaced = |old: &Change| match (change, old) {
        (
            SetRequest(new, _) | RemoveRequest(new),
            SetRequest(name, _) | AddRequest(name, _) | RemoveRequest(name),
        )
        | (
            SetResponse(new, _) | RemoveResponse(new),
            SetResponse(name, _) | AddResponse(name, _) | RemoveResponse(name),
        ) => new.eq_ignore_ascii_case(name),
        (RewritePath(_) | RewritePrefix(..), RewritePath(_) | RewritePrefix(..)) => true,
        _ => false,
    };
    kept.retain(|(old, _)| !is_replaced(old));
    let is_duplicate = |old: &Change| match (change, old) {
        (AddRequest(new, _), AddRequest(name, _)) | (AddResponse(new, _), AddResponse(name, _)) => {
            new.eq_ignore_ascii_case(name)
        }
        _ => false,
    };
    if kept.iter().any(|(old, _)| is_duplicate(old)) {
        report.not_supported(origin, "a route of weir adds one line of a field");
        return;
    }
    kept.push((change.clone(), Rc::clone(origin)));
}

/// Returns whether conditions already hold one of the tests.
fn is_implied(conditions: &Match, tests: &[Test]) -> bool {
    conditions.and(tests).is_ok_and(|both| both.as_ref() == Some(conditions))
}

fn and_all(conditions: &Match, lists: &[Vec<Test>]) -> Result<Option<Match>, NotExpressible> {
    let mut matched = conditions.clone();
    for tests in lists {
        match matched.and(tests)? {
            Some(both) => matched = both,
            None => return Ok(None),
        }
    }
    Ok(Some(matched))
}

/// Returns the disjunctive normal form of a condition, or of its negation; `None`: it has too many terms.
fn terms_of(condition: &Condition, is_negated: bool) -> Option<Vec<Term>> {
    match (condition, is_negated) {
        (Condition::Always, false) | (Condition::Never, true) => Some(vec![Term::default()]),
        (Condition::Never, false) | (Condition::Always, true) => Some(Vec::new()),
        // Invariant: rules are specialised for a listener before they are compiled.
        (Condition::Tls, _) => Some(Vec::new()),
        (Condition::Not(inner), is_negated) => terms_of(inner, !is_negated),
        (Condition::Tests(tests), false) => {
            Some(vec![Term { positive: vec![tests.clone()], negative: Vec::new() }])
        }
        (Condition::Tests(tests), true) => Some(vec![negated_tests(tests)]),
        (Condition::All(all), false) | (Condition::Any(all), true) => {
            let mut product = vec![Term::default()];
            for part in all {
                let terms = terms_of(part, is_negated)?;
                if product.len() * terms.len() > TERMS_MAX {
                    return None;
                }
                let pairs = product.iter().flat_map(|left| terms.iter().map(move |right| (left, right)));
                product = pairs
                    .map(|(left, right)| Term {
                        positive: left.positive.iter().chain(&right.positive).cloned().collect(),
                        negative: left.negative.iter().chain(&right.negative).cloned().collect(),
                    })
                    .collect();
            }
            Some(product)
        }
        (Condition::Any(all), false) | (Condition::All(all), true) => {
            let mut sum = Vec::new();
            for part in all {
                sum.extend(terms_of(part, is_negated)?);
                if sum.len() > TERMS_MAX {
                    return None;
                }
            }
            Some(sum)
        }
    }
}

fn negated_tests(tests: &[Test]) -> Term {
    let complement = match tests {
        [Test::Header(name, value)] => value.complement().map(|value| Test::Header(name.clone(), value)),
        [Test::Query(name, value)] => value.complement().map(|value| Test::Query(name.clone(), value)),
        _ => None,
    };
    match complement {
        Some(test) => Term { positive: vec![vec![test]], negative: Vec::new() },
        None => Term { positive: Vec::new(), negative: vec![tests.to_vec()] },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> Rc<Origin> {
        Rc::new(Origin { file: "a".into(), line: 1, text: "x".into() })
    }

    fn pool(name: &str) -> Rule {
        Rule::Act(Action::Pool(name.into()), vec![origin()])
    }

    fn when(condition: Condition, name: &str) -> Rule {
        Rule::When(condition, vec![pool(name)], vec![origin()])
    }

    fn host(name: &str) -> Condition {
        Condition::test(Test::Host(name.into()))
    }

    fn compile(rules: &[Rule]) -> (Vec<String>, Report) {
        let mut compiler = Compiler::default();
        let mut report = Report::default();
        compiler.compile(&[], rules, &mut report);
        let shown = compiler.routes.iter().map(|route| {
            let changes = if route.changes.is_empty() { "" } else { "+" };
            let Action::Pool(pool) = &route.action else { return "other".to_owned() };
            format!(
                "{}{} {pool}{changes}",
                route.conditions.hosts.join(","),
                route.conditions.methods.join(",")
            )
        });
        (shown.collect(), report)
    }

    #[test]
    fn a_negation_puts_the_rules_behind_it_first() {
        let get = Condition::test(Test::Method("GET".into()));
        let (routes, report) =
            compile(&[when(host("a").and(get.negate()), "x"), when(host("b"), "y"), pool("z")]);
        // Requests for a with GET follow the rules behind; b cannot be there.
        assert_eq!(routes, ["aGET z", "a x", "b y", " z"]);
        assert!(report.into_lines().is_empty());
        let (routes, _) = compile(&[when(host("a").negate(), "x"), when(host("a"), "y"), pool("z")]);
        assert_eq!(routes, ["a y", " x"]);
    }

    #[test]
    fn a_conditional_change_doubles_the_routes_behind_it() {
        let change = Change::SetRequest("x".into(), "1".into());
        let (routes, _) =
            compile(&[Rule::Change(host("a"), change, origin()), when(host("b"), "y"), pool("z")]);
        assert_eq!(routes, ["a z+", "b y", " z"]);
    }

    #[test]
    fn alternatives_become_routes_or_lists() {
        let get = Condition::test(Test::Method("GET".into()));
        let (routes, _) = compile(&[when(host("a").or(host("b")).or(get), "x"), pool("z")]);
        assert_eq!(routes, ["a,b x", "GET x", " z"]);
        let (routes, _) = compile(&[when(host("a").or(host("b")).negate(), "x"), pool("z")]);
        assert_eq!(routes, ["a,b z", " x"]);
        let (routes, _) = compile(&[when(Condition::Always, "x"), pool("z")]);
        assert_eq!(routes, [" x"]);
    }

    #[test]
    fn work_is_bounded() {
        let negations: Vec<Rule> = (0..200)
            .map(|n| when(Condition::test(Test::Path(PathTest::Exact(format!("/{n}")))).negate(), "x"))
            .collect();
        let mut headers = Vec::new();
        for n in 0..40 {
            let test = Test::Header(format!("x{n}"), super::super::ValueTest::Equals("1".into()));
            headers.push(when(Condition::test(test).negate(), "x"));
        }
        headers.push(pool("z"));
        for rules in [negations, headers] {
            let (routes, _) = compile(&rules);
            assert!(routes.len() <= ROUTES_MAX);
        }
    }
}
