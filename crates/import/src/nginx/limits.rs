//! `limit_req` of nginx as limits of the rate of routes.

use std::rc::Rc;

use super::phases::Converter;
use super::scope::{Limit, Scope};
use crate::document::{Origin, Value};
use crate::left::Kind;
use crate::rules::{Action, Condition, RouteSetting, Rule, Test, ValueTest};
use crate::text::{Part, Template, Variable};

/// Maximum number of limits of a location.
const LIMITS_MAX: usize = 8;

impl Converter<'_, '_> {
    /// Returns the rules of an action within the limits of a scope.
    pub(super) fn limited(
        &mut self,
        scope: &Scope,
        action: &dyn Fn(Vec<RouteSetting>) -> Action,
        settings: &[RouteSetting],
        origin: &Rc<Origin>,
    ) -> Vec<Rule> {
        // Limits of requests with a condition: a variable with an empty value is no key.
        let mut all: Vec<(Condition, Vec<Value>)> = vec![(Condition::Always, Vec::new())];
        for (index, limit) in scope.limits.iter().enumerate() {
            if index >= LIMITS_MAX {
                let text = format!("more than {LIMITS_MAX} limits of a location");
                self.draft.leave(Kind::NotSupported, &limit.origin, text);
                break;
            }
            let Some(keys) = self.limit_keys(scope, limit).filter(|keys| all.len() * keys.len() <= 8) else {
                let text = "weir has no such key or rate of a limit: `rate-limit` of a route";
                self.draft.leave(Kind::NotSupported, &limit.origin, text);
                continue;
            };
            let joined = all.iter().flat_map(|(outer, limits)| {
                keys.iter().map(|(condition, value)| {
                    let limits = limits.iter().chain(value).cloned().collect();
                    (outer.and(condition), limits)
                })
            });
            all = joined.collect();
            let delay =
                if limit.delays && limit.burst > 0 { "; requests of the burst are not delayed" } else { "" };
            let text = format!("each route has a limit of its own, not each zone{delay}");
            self.draft.leave(Kind::Differs, &limit.origin, text);
        }
        let rules = all.into_iter().map(|(condition, limits)| {
            let mut settings = settings.to_vec();
            if let Some(limit) = scope.limits.first().filter(|_| !limits.is_empty()) {
                settings.push(RouteSetting::new("rate-limit", Value::List(limits), &limit.origin));
            }
            let rule = Rule::Act(action(settings), vec![Rc::clone(origin)]);
            match condition {
                Condition::Always => rule,
                condition => Rule::When(condition, [rule].into(), Vec::new()),
            }
        });
        rules.collect()
    }

    /// Returns the limits of the keys of a zone, with their conditions; `None`: weir has no such key or rate.
    fn limit_keys(&mut self, scope: &Scope, limit: &Limit) -> Option<Vec<(Condition, Option<Value>)>> {
        let zone = scope.limit_zones.get(&limit.zone)?;
        let (number, unit) = zone.rate.split_once("r/")?;
        number.parse::<u64>().ok().filter(|number| *number > 0 && matches!(unit, "s" | "m"))?;
        // A key without a byte is none: no limit.
        let alternatives = self.expanded(&zone.key)?;
        let limit_of = |template: &Template| match template.literal() {
            Some("") => Some(None),
            Some(_) => Some(Some("route".to_owned())),
            None if template.key()? == "source" => Some(Some("source".to_owned())),
            None => Some(Some(template.field()?)),
        };
        let mut limits = Vec::new();
        for (condition, template) in alternatives {
            // nginx does not limit an empty key; those of weir would share one.
            let empty = match &template.0[..] {
                [Part::Variable(Variable::Header(name))] => {
                    let test = |value| Condition::test(Test::Header(name.clone(), value));
                    test(ValueTest::Absent).or(test(ValueTest::Equals(String::new())))
                }
                [Part::Variable(Variable::Cookie(name))] => {
                    let test = |value| Condition::test(Test::Cookie(name.clone(), value));
                    test(ValueTest::Absent).or(test(ValueTest::Equals(String::new())))
                }
                parts if parts.iter().all(|part| !is_never_empty(part)) && template.literal().is_none() => {
                    return None;
                }
                _ => Condition::Never,
            };
            if empty != Condition::Never {
                limits.push((condition.and(&empty), None));
            }
            let value = limit_of(&template)?.map(|key| {
                let status = scope.limit_status.unwrap_or(503);
                Value::table([
                    ("rate", Value::text(format!("{number}/{unit}"))),
                    ("burst", Value::Number(limit.burst.saturating_add(1))),
                    ("key", Value::text(key)),
                    ("status", Value::Number(status)),
                ])
            });
            limits.push((condition, value));
        }
        Some(limits)
    }
}

/// Returns whether a part of a key has a byte for each request.
fn is_never_empty(part: &Part) -> bool {
    match part {
        Part::Text(text) => !text.is_empty(),
        Part::Variable(variable) => matches!(
            variable,
            Variable::Host | Variable::Path | Variable::Source | Variable::Scheme | Variable::Fact("method")
        ),
    }
}

#[cfg(test)]
mod tests {
    use crate::nginx::tests::config;

    #[test]
    fn rates_have_keys_bursts_and_a_status() {
        let (text, report) = config(
            "limit_req_zone $binary_remote_addr zone=a:10m rate=5r/s; limit_req_status 429;\n\
             location /x/ { limit_req zone=a burst=10 nodelay; proxy_pass http://10.0.0.1; }\n\
             location / { proxy_pass http://10.0.0.1; }",
        );
        let limit = "rate-limit = [{ rate = \"5/s\", burst = 11, key = \"source\", status = 429 }]";
        assert_eq!(text.matches("rate-limit").count(), 1, "{text}");
        assert!(text.contains(limit), "{text}");
        assert!(
            report.iter().all(|line| line.contains("differs") || line.contains("no effect")),
            "{report:?}"
        );
    }

    #[test]
    fn clients_with_an_empty_key_have_no_limit() {
        let (text, _) = config(
            "geo $limited { default 1; 10.0.0.0/8 0; }\n\
             map $limited $key { 0 ''; 1 $binary_remote_addr; }\n\
             limit_req_zone $key zone=a:10m rate=30r/m;\n\
             location / { limit_req zone=a; proxy_pass http://10.0.0.1; }",
        );
        let (first, second) = text.split_once("[[route]]").unwrap().1.split_once("[[route]]").unwrap();
        assert!(text.contains("match = \"network\""), "{text}");
        assert!(first.contains("map = { key = \"\" }") && !first.contains("rate-limit"), "{text}");
        assert!(second.contains("rate = \"30/m\", burst = 1, key = \"source\", status = 503"), "{text}");
        let (text, _) = config(
            "limit_req_zone $http_x_key zone=a:10m rate=30r/m;\n\
             location / { limit_req zone=a; proxy_pass http://10.0.0.1; }",
        );
        let (first, second) = text.split_once("[[route]]").unwrap().1.split_once("[[route]]").unwrap();
        assert!(first.contains("x-key = false") && !first.contains("rate-limit ="), "{text}");
        assert!(second.contains("key = \"{header.x-key}\""), "{text}");
        let (text, report) = config(
            "limit_req_zone $remote_user zone=a:10m rate=30r/m;\n\
             location / { limit_req zone=a; proxy_pass http://10.0.0.1; }",
        );
        assert!(
            !text.contains("rate-limit =") && report.iter().any(|line| line.contains("no such key")),
            "{report:?}"
        );
    }
}
