//! Evaluation of combined conditions, and the reason why one does not hold. A condition costs one check of
//! its parts; a regular expression takes time linear in the value.

use super::RouteRequest;
use super::certificate_text::certificate_values;
use super::conditions::{ComparedPath, all_match, any_value_matches, host_matches};
use super::map_keys::any_key;
use super::values::RequestValues;
use crate::cookies::cookies;
use crate::key_digest::digest;
use crate::maps::Key;
use crate::plan::{
    CertificatePart, Condition, Conditions, MapPlan, PercentCondition, Template, TextCondition,
    ValueCondition,
};
use crate::request_view::ClientFacts;
use crate::uri::{normalise_host, split_target};

const SECONDS_PER_DAY: u64 = 86_400;

/// Returns whether a condition holds for a request, whose path is `path` in the compared forms.
pub(crate) fn holds(
    condition: &Condition,
    request: &RouteRequest<'_>,
    client: &dyn ClientFacts,
    path: ComparedPath<'_>,
) -> bool {
    let inner = |condition: &Condition| holds(condition, request, client, path);
    match condition {
        Condition::All(conditions) => conditions.iter().all(inner),
        Condition::Any(conditions) => conditions.iter().any(inner),
        Condition::Not(condition) => !inner(condition),
        Condition::Plain(conditions) => plain_holds(conditions, request, path),
        Condition::SourceFile(_, list) => {
            request.source.is_some_and(|source| list.find(Key::Address(source), |_| ()).is_some())
        }
        Condition::Map(map, value) => map_matches(map, value, request, client),
        Condition::Cookie(TextCondition { name, value }) => {
            let lines = request.view.ordinary_lines("cookie");
            let named = cookies(lines).filter(|cookie| cookie.name == name.as_bytes());
            any_value_matches(value, named.map(|cookie| cookie.value))
        }
        Condition::Claim(TextCondition { name, value }) => {
            let mut texts = Vec::new();
            if let Some(claims) = client.identity().and_then(|identity| identity.claims.as_ref()) {
                claims.visit(name, &mut |text| texts.push(text.to_vec()));
            }
            any_value_matches(value, texts.iter().map(Vec::as_slice))
        }
        Condition::Tls(expected) => client.is_tls() == *expected,
        Condition::ServerName(names) => client.server_name().is_some_and(|name| host_matches(names, name)),
        Condition::Certificate(part, value) => certificate_matches(*part, value, client.certificate()),
        Condition::Time(times) => {
            let second = (client.unix_ns() / 1_000_000_000 % SECONDS_PER_DAY) as u32;
            times.iter().any(|time| time.contains(second))
        }
        Condition::Weekday(days) => {
            // 1970 began on a Thursday.
            let day = (client.unix_ns() / 1_000_000_000 / SECONDS_PER_DAY + 3) % 7;
            days >> day & 1 == 1
        }
        Condition::Percent(condition) => percent_holds(condition, request, client),
    }
}

fn plain_holds(conditions: &Conditions, request: &RouteRequest<'_>, path: ComparedPath<'_>) -> bool {
    let mut buffer = String::new();
    let host = normalise_host(request.host.unwrap_or_default(), &mut buffer);
    let (_, query) = split_target(request.target);
    (conditions.listeners.is_empty() || conditions.listeners.contains(&request.listener))
        && host_matches(&conditions.hosts, host)
        && all_match(conditions, request, path, query.strip_prefix('?').unwrap_or_default())
}

fn certificate_matches(part: CertificatePart, value: &ValueCondition, certificate: Option<&[u8]>) -> bool {
    let Some(certificate) = certificate else { return matches!(value, ValueCondition::Absent) };
    let texts = certificate_values(part, certificate);
    any_value_matches(value, texts.iter().map(String::as_bytes))
}

/// Returns whether the map has a value that matches for one of the keys of a request.
fn map_matches(
    map: &MapPlan,
    condition: &ValueCondition,
    request: &RouteRequest<'_>,
    client: &dyn ClientFacts,
) -> bool {
    let has_entry = || any_key(map, request, client, &mut |key| map.store.find(key, |_| true) == Some(true));
    let has_value = |test: &dyn Fn(&[u8]) -> bool| {
        let mut has_entry = false;
        let is_met = any_key(map, request, client, &mut |key| {
            let result = map.store.find(key, test);
            has_entry |= result.is_some();
            result == Some(true)
        });
        let default = map.default.as_ref().filter(|_| !has_entry);
        is_met || default.is_some_and(|default| test(default.as_bytes()))
    };
    match condition {
        ValueCondition::Present => has_entry(),
        ValueCondition::Absent => !has_entry(),
        ValueCondition::Equals(expected) => has_value(&|value| value == expected.as_bytes()),
        // The values of a map are text.
        ValueCondition::Matches(regex) => has_value(&|value| regex.is_match(&String::from_utf8_lossy(value))),
    }
}

/// Returns whether the key of a request is in the fraction. A request without a key is in none.
fn percent_holds(condition: &PercentCondition, request: &RouteRequest<'_>, client: &dyn ClientFacts) -> bool {
    is_in_percent(&condition.key, condition.current(), request, client)
}

/// Returns whether the key of a request is in a percentage.
pub(crate) fn is_in_percent(
    key_template: &Template,
    percent: f64,
    request: &RouteRequest<'_>,
    client: &dyn ClientFacts,
) -> bool {
    let mut key = Vec::new();
    key_template.render_key(&RequestValues::without_plan(request, client), &mut key);
    if key.is_empty() {
        return false;
    }
    // The upper 53 bits are what a float holds exactly.
    let position = (digest(&key) >> 11) as f64 / (1_u64 << 53) as f64;
    position < percent / 100.0
}

/// Returns the part of a condition because of which it does not hold; `None`: it holds.
pub(crate) fn mismatch(
    condition: &Condition,
    request: &RouteRequest<'_>,
    client: &dyn ClientFacts,
    path: ComparedPath<'_>,
) -> Option<String> {
    match condition {
        Condition::All(conditions) => {
            conditions.iter().find_map(|condition| mismatch(condition, request, client, path))
        }
        Condition::Any(conditions) => {
            let reasons: Option<Vec<_>> =
                conditions.iter().map(|condition| mismatch(condition, request, client, path)).collect();
            reasons.map(|reasons| format!("none of ({})", reasons.join("; ")))
        }
        Condition::Not(inner) => {
            holds(inner, request, client, path).then(|| format!("{inner} holds, and must not"))
        }
        other => (!holds(other, request, client, path)).then(|| format!("{other} does not hold")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::plan::NamedPercent;
    use crate::request_view::fixtures::{self, FixedFacts};
    use wire::Header;

    /// Returns the condition of a config's only route.
    fn condition(text: &str) -> Condition {
        let config = format!("[listener.web]\nbind = '127.0.0.1:0'\n[[route]]\nwhen = {text}\ndeny = true\n");
        let parsed = crate::config::parse("t", &config).unwrap_or_else(|problems| panic!("{problems:?}"));
        *parsed.plan.routes[0].conditions.when.clone().unwrap()
    }

    fn reason(text: &str, facts: &FixedFacts) -> Option<String> {
        let headers = [
            Header { name: "X-A", value: b"v" },
            Header { name: "Cookie", value: b"user=7; beta=1" },
            Header { name: "Connection", value: b"x-hidden" },
            Header { name: "X-Hidden", value: b"1" },
        ];
        let head = fixtures::head(&headers);
        let request = RouteRequest {
            listener: 0,
            method: "GET",
            target: "/a/b?q=1",
            is_plain: true,
            host: Some("A.example:80"),
            view: &fixtures::view(&head),
            source: Some([10, 1, 2, 3].into()),
        };
        let path = ComparedPath { path: "/a/b", without_parameters: "/a/b" };
        let condition = condition(text);
        let mismatch = mismatch(&condition, &request, facts, path);
        assert_eq!(holds(&condition, &request, facts, path), mismatch.is_none(), "{text}");
        mismatch
    }

    #[test]
    fn each_key_holds_or_has_a_reason() {
        // Saturday, 2026-11-28 15:00 UTC.
        let facts = FixedFacts {
            server_name: Some("a.example"),
            unix_ns: 1_795_878_000 * 1_000_000_000,
            ..FixedFacts::default()
        };
        for (holding, other, reason_part) in [
            ("{ host = 'a.example' }", "{ host = 'b.example' }", "host b.example does not hold"),
            ("{ path = ['/x', '/a/b'] }", "{ path = '/a' }", "path /a does not hold"),
            ("{ path-prefix = '/a' }", "{ path-prefix = '/b' }", "path-prefix /b"),
            ("{ path-glob = '/*/b' }", "{ path-glob = '/*' }", "path-glob /*"),
            ("{ path-glob = '/**' }", "{ path-glob = '/a/?b' }", "path-glob /a/?b"),
            ("{ path-regex = 'b$' }", "{ path-regex = '^b' }", "path-regex ^b"),
            ("{ method = 'GET' }", "{ method = 'POST' }", "method POST"),
            ("{ header = { x-a = 'v' } }", "{ header = { x-a = 'w' } }", "header x-a = 'w'"),
            ("{ header = { x-hidden = false } }", "{ header = { x-hidden = true } }", "header x-hidden"),
            ("{ query = { q = '1' } }", "{ query = { q = false } }", "query q absent"),
            (
                "{ cookie = { user = '7' } }",
                "{ cookie = { user = { regex = '8' } } }",
                "cookie user matching 8",
            ),
            ("{ source = '10.0.0.0/8' }", "{ source = '11.0.0.0/8' }", "source 11.0.0.0/8"),
            ("{ tls = true }", "{ tls = false }", "tls false"),
            ("{ sni = '*.example' }", "{ sni = 'b.example' }", "sni b.example"),
            (
                "{ tls-client = { subject = false } }",
                "{ tls-client = { subject = true } }",
                "tls-client subject",
            ),
            ("{ time = ['00:00-01:00', '14:59-15:01'] }", "{ time = '15:01-14:59' }", "time 15:01-14:59"),
            ("{ weekday = ['fri', 'sat'] }", "{ weekday = 'sun' }", "weekday sun"),
            (
                "{ percent = 100, key = 'cookie.user' }",
                "{ percent = 0, key = 'cookie.user' }",
                "percent 0 of cookie.user",
            ),
            (
                "{ not = { percent = 100, key = 'cookie.other' } }",
                "{ percent = 100, key = 'header.x-none' }",
                "percent 100",
            ),
            (
                "{ any = [{ method = 'PUT' }, { tls = true }] }",
                "{ any = [{ method = 'PUT' }, { tls = false }] }",
                "none of (method PUT does not hold; tls false does not hold)",
            ),
            (
                "{ all = [{ method = 'GET' }, { tls = true }] }",
                "{ all = [{ method = 'GET' }, { tls = false }] }",
                "tls false",
            ),
            (
                "{ not = { method = 'PUT' } }",
                "{ not = { method = 'GET', tls = true } }",
                "all (method GET; tls true) holds, and must not",
            ),
            (
                "{ method = 'GET', not = { tls = false } }",
                "{ method = 'GET', not = { tls = true } }",
                "tls true holds",
            ),
        ] {
            assert_eq!(reason(holding, &facts), None, "{holding}");
            let reason = reason(other, &facts).unwrap_or_default();
            assert!(reason.contains(reason_part), "{other}: {reason}");
        }
    }

    #[test]
    fn a_percentage_is_a_fraction_of_the_keys_and_includes_smaller_ones() {
        let head = fixtures::head(&[]);
        let view = fixtures::view(&head);
        let Condition::Percent(ten) = condition("{ percent = 10, key = 'query.u' }") else { panic!() };
        let named = NamedPercent::open("changed to twenty");
        let twenty = PercentCondition { percent: 0.0, named: Some(Arc::clone(&named)), ..ten.clone() };
        named.change(Some(20.0));
        let (mut in_ten, mut in_twenty) = (0, 0);
        for user in 0..10_000 {
            let target = format!("/?u={user}");
            let request = RouteRequest {
                listener: 0,
                method: "GET",
                target: &target,
                is_plain: true,
                host: None,
                view: &view,
                source: None,
            };
            let [is_in_ten, is_in_twenty] =
                [&ten, &twenty].map(|condition| percent_holds(condition, &request, &FixedFacts::default()));
            assert!(is_in_twenty || !is_in_ten);
            in_ten += u32::from(is_in_ten);
            in_twenty += u32::from(is_in_twenty);
        }
        assert!((850..1150).contains(&in_ten) && (1800..2200).contains(&in_twenty), "{in_ten} {in_twenty}");
    }
}
