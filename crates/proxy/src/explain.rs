//! The routing decision for one request as text: the listener, the routes tried with the reason why
//! they did not match, and the action. It uses the router's own conditions, and reports the first
//! that failed.

mod balance;
mod request;
mod settings;
mod texts;

use std::fmt;
use std::net::IpAddr;

use record::problem::InputProblem;
use rt::address::Address;
use rt::tls::client_hello::{AlpnProtocols, ClientHelloNames};
use wire::RefusalKind;

pub use request::ExplainRequest;

use crate::field_names::has_underscore;
use crate::plan::{
    Action, Conditions, ListenerPlan, Mode, PathCondition, Plan, PoolId, RateKey, RoutePlan, SniMatch,
    TextCondition, Underscores, ValueCondition,
};
use crate::request_view::{ClientFacts, FieldEffect, RequestView};
use crate::route::conditions::{
    ComparedPath, field_matches, host_matches, method_matches, parameter_matches, parameters, path_matches,
    source_matches,
};
use crate::route::values::RequestValues;
use crate::route::{CheckedTarget, RouteRequest, changes_target, check_target, rewrite_target, when};
use crate::uri::{normalise, normalise_host, split_target, without_parameters, without_port};

/// Returns the field because of which the listener rejects the request.
fn rejected_field<'a>(view: &RequestView<'a>) -> Option<&'a str> {
    let rejects = view.forwarding.underscores == Underscores::Reject && !view.is_trusted;
    let mut names = view.head.headers.iter().map(|header| header.name);
    names.find(|name| rejects && has_underscore(name))
}

/// Returns the line about a field that does not count and is not forwarded.
fn removal_line(view: &RequestView<'_>, name: &str) -> Option<String> {
    match view.verdict(name) {
        FieldEffect::Removed(reason) => Some(format!("removed     field {name}: {}", reason.text())),
        FieldEffect::Forwarded | FieldEffect::RequestId => None,
    }
}

/// Explanation of a routing decision. Its [`fmt::Display`] is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    lines: Vec<String>,
    route: Option<usize>,
}

impl Explanation {
    /// The matching route, as an index in [`Plan::routes`].
    pub fn route(&self) -> Option<usize> {
        self.route
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// Explains the decision of `plan` for `request`. Nothing is sent and nothing is counted.
///
/// The listener is the one with the URL's port (and address, if it has one). Without such a
/// listener, it is the first that speaks HTTP.
///
/// # Errors
/// No listener speaks HTTP, so there are no routes.
pub fn explain(plan: &Plan, request: &ExplainRequest) -> Result<Explanation, Vec<InputProblem>> {
    let Some(first_http) = plan.listeners.iter().position(|listener| listener.mode == Mode::Http) else {
        let text = "no listener in mode http: mode tcp has no routes, and forwards bytes unchanged";
        return Err(vec![InputProblem::new("--explain", text)]);
    };
    let (listener, reason) = assumed_listener(plan, request, first_http);
    let listener_plan = &plan.listeners[listener];
    let addresses: Vec<String> = listener_plan.bind.iter().map(Address::to_string).collect();
    let mut lines = vec![
        request_line(request),
        format!("listener    {} ({}), {reason}", listener_plan.name, addresses.join(", ")),
    ];
    if let Mode::Tcp(pool) = listener_plan.mode {
        let Some(pool) = tcp_pool(listener_plan, pool, request, &mut lines) else {
            lines.push("response    none: no entry of sni matches, and there is no pool".to_owned());
            return Ok(Explanation { lines, route: None });
        };
        pool_lines(plan, pool, None, &mut lines);
        return Ok(Explanation { lines, route: None });
    }
    if request.method == "CONNECT" && !listener_plan.connect {
        lines.push("response    405: the listener does not allow CONNECT".to_owned());
        return Ok(Explanation { lines, route: None });
    }
    let headers = request.wire_headers();
    let head = request.head(&headers);
    let view = request.view(&head, listener_plan);
    if let Some(name) = rejected_field(&view) {
        lines.push(format!("response    400: the name of field {name} has an underscore"));
        return Ok(Explanation { lines, route: None });
    }
    lines.extend(view.head.headers.iter().filter_map(|header| removal_line(&view, header.name)));
    let mut buffer = String::new();
    let checked = check_target(&request.target, &mut buffer);
    let mut route_request = RouteRequest {
        listener,
        method: &request.method,
        target: checked.map_or(&request.target, |checked| checked.normal),
        is_plain: false,
        host: request.host.as_deref(),
        view: &view,
        source: request.source,
    };
    let client = request.client(listener_plan);
    match checked.map(|checked| forwarded_target(plan, checked, &route_request, &client)).transpose() {
        Ok(target) => route_request.target = target.unwrap_or(route_request.target),
        Err(kind) => {
            lines.push(format!("response    400: {}", kind.doc()));
            return Ok(Explanation { lines, route: None });
        }
    }
    if route_request.target != request.target {
        lines.push(format!("target      {} in normal form", route_request.target));
    }
    let explanation = explain_request(plan, &route_request, &client);
    lines.extend(explanation.lines);
    Ok(Explanation { lines, route: explanation.route })
}

/// Returns the target that is forwarded by the rule of its route, or of its listener.
fn forwarded_target<'a>(
    plan: &Plan,
    checked: CheckedTarget<'a>,
    request: &RouteRequest<'_>,
    client: &dyn ClientFacts,
) -> Result<&'a str, RefusalKind> {
    let pick = |target: &str| explain_request(plan, &RouteRequest { target, ..*request }, client).route;
    let route = pick(checked.normal);
    let own_rule = route.and_then(|route| plan.routes[route].path_rule);
    checked.forwarded(own_rule.unwrap_or(plan.listeners[request.listener].path), route, pick)
}

/// Returns the pool of a listener in mode tcp, for a client that sends the host as server name.
fn tcp_pool(
    listener: &ListenerPlan,
    pool: PoolId,
    request: &ExplainRequest,
    lines: &mut Vec<String>,
) -> Option<PoolId> {
    let Some(sni) = &listener.sni else {
        lines.push("routes      none: mode tcp forwards bytes unchanged".to_owned());
        return Some(pool);
    };
    let name = request.host.as_deref().map(|host| without_port(host).to_ascii_lowercase());
    lines.push(format!("sni         {}", name.as_deref().unwrap_or("none")));
    match sni.pick(&ClientHelloNames { server_name: name.map(Into::into), alpn: AlpnProtocols::default() }) {
        SniMatch::Route(pool) | SniMatch::Default(pool) => Some(pool),
        SniMatch::None => None,
    }
}

fn request_line(request: &ExplainRequest) -> String {
    let host = request.host.as_deref().unwrap_or("no host");
    let source = request.source.map_or_else(|| "no address".to_owned(), |ip| ip.to_string());
    format!("request     {} {} for {host}, from {source}", request.method, request.target)
}

/// Returns the listener that the request would reach, and the reason; `first_http` is the default.
fn assumed_listener(plan: &Plan, request: &ExplainRequest, first_http: usize) -> (usize, &'static str) {
    let ip: Option<IpAddr> = request
        .host
        .as_deref()
        .and_then(|host| without_port(host).trim_start_matches('[').trim_end_matches(']').parse().ok());
    let listens_there = |listener: &ListenerPlan, with_address: bool| {
        listener.bind.iter().any(|bind| match bind {
            Address::Tcp(address) => {
                Some(address.port()) == request.port && (!with_address || Some(address.ip()) == ip)
            }
            Address::Unix(_) => false,
        })
    };
    let position =
        |with_address| plan.listeners.iter().position(|listener| listens_there(listener, with_address));
    if let Some(index) = position(true) {
        return (index, "by its address");
    }
    if let Some(index) = position(false) {
        return (index, "by its port");
    }
    (first_http, "assumed: the first in mode http")
}

/// Explains the routes tried for `request`, and the action.
pub(crate) fn explain_request(
    plan: &Plan,
    request: &RouteRequest<'_>,
    client: &dyn ClientFacts,
) -> Explanation {
    let (path, query) = split_target(request.target);
    let (mut buffer, mut parameters_buffer) = (String::new(), String::new());
    let mut host_buffer = String::new();
    let normal_path = normalise(path, &mut buffer);
    let compared = ComparedRequest {
        request,
        client,
        host: normalise_host(request.host.unwrap_or_default(), &mut host_buffer),
        path: ComparedPath {
            path: normal_path,
            without_parameters: without_parameters(normal_path, &mut parameters_buffer),
        },
        query: query.strip_prefix('?').unwrap_or_default(),
    };
    let mut lines = Vec::new();
    if normal_path != path {
        lines.push(format!("path        compared as {normal_path}"));
    }
    for (index, route) in plan.routes.iter().enumerate() {
        match compared.first_mismatch(plan, &route.conditions) {
            Some(reason) => lines.push(format!("no match    route {}: {reason}", route.name)),
            None => {
                lines.push(format!("match       route {}", route.name));
                route_lines(plan, index, (request, client, compared.path), &mut lines);
                return Explanation { lines, route: Some(index) };
            }
        }
    }
    lines.push("response    404: no route matches".to_owned());
    Explanation { lines, route: None }
}

/// A request in the forms used for comparison.
struct ComparedRequest<'a> {
    request: &'a RouteRequest<'a>,
    client: &'a dyn ClientFacts,
    host: &'a str,
    path: ComparedPath<'a>,
    query: &'a str,
}

impl ComparedRequest<'_> {
    /// Returns the first condition that does not hold, with the actual value.
    fn first_mismatch(&self, plan: &Plan, conditions: &Conditions) -> Option<String> {
        let request = self.request;
        if !conditions.listeners.is_empty() && !conditions.listeners.contains(&request.listener) {
            let names = conditions.listeners.iter().map(|&index| &*plan.listeners[index].name);
            let own_listener = &plan.listeners[request.listener].name;
            return Some(format!("listener is {own_listener}, not {}", join_with_or(names)));
        }
        if !host_matches(&conditions.hosts, self.host) {
            let expected = join_with_or(conditions.hosts.iter().map(|host| &**host));
            return Some(format!("host is {}, not {expected}", or_not_given(self.host)));
        }
        if !method_matches(&conditions.methods, request.method) {
            let expected = join_with_or(conditions.methods.iter().map(|method| &**method));
            return Some(format!("method is {}, not {expected}", request.method));
        }
        if !path_matches(&conditions.paths, self.path) {
            let expected: Vec<String> = conditions.paths.iter().map(describe_path_condition).collect();
            return Some(format!("path is {}, not {}", self.path.path, expected.join(" or ")));
        }
        if !source_matches(&conditions.sources, request.source) {
            let expected: Vec<String> = conditions
                .sources
                .iter()
                .map(|network| format!("{}/{}", network.address, network.prefix))
                .collect();
            let source = request.source.map_or_else(|| "unknown".into(), |ip| ip.to_string());
            return Some(format!("source is {source}, not in {}", expected.join(" or ")));
        }
        let when = conditions.when.as_ref();
        self.first_text_mismatch(conditions)
            .or_else(|| when::mismatch(when?, request, self.client, self.path))
    }

    fn first_text_mismatch(&self, conditions: &Conditions) -> Option<String> {
        for condition in &conditions.headers {
            if !field_matches(condition, self.request) {
                let values = self.request.view.values(&condition.name);
                let values = values.map(|value| String::from_utf8_lossy(value).into_owned());
                return Some(describe_text_condition("field", condition, values.collect()));
            }
        }
        for condition in &conditions.query {
            if !parameter_matches(condition, self.query) {
                let values = parameters(self.query)
                    .filter(|(name, _)| *name == &*condition.name)
                    .map(|(_, value)| value.to_owned());
                return Some(describe_text_condition("parameter", condition, values.collect()));
            }
        }
        None
    }
}

fn join_with_or<'a>(description: impl Iterator<Item = &'a str>) -> String {
    description.collect::<Vec<_>>().join(" or ")
}

fn or_not_given(text: &str) -> &str {
    if text.is_empty() { "missing" } else { text }
}

fn describe_path_condition(condition: &PathCondition) -> String {
    match condition {
        PathCondition::Exact(path) => path.to_string(),
        PathCondition::Prefix(prefix) => format!("below {prefix}"),
        PathCondition::Glob(pattern, _) => format!("matched by {pattern}"),
        PathCondition::Regex(regex) => format!("matched by {regex}"),
    }
}

fn describe_text_condition(kind: &str, condition: &TextCondition, values: Vec<String>) -> String {
    let name = &condition.name;
    let actual = match values.as_slice() {
        [] => "missing".to_owned(),
        _ => format!("'{}'", values.join("', '")),
    };
    match &condition.value {
        ValueCondition::Present => format!("{kind} {name} is missing"),
        ValueCondition::Absent => format!("{kind} {name} is {actual}, but must be absent"),
        ValueCondition::Equals(expected) => format!("{kind} {name} is {actual}, not '{expected}'"),
        ValueCondition::Matches(regex) => {
            format!("{kind} {name} is {actual}, not matched by {regex}")
        }
    }
}

fn route_lines(
    plan: &Plan,
    index: usize,
    (request, client, path): (&RouteRequest<'_>, &dyn ClientFacts, ComparedPath<'_>),
    lines: &mut Vec<String>,
) {
    let route = &plan.routes[index];
    let regex = route.texts.as_ref().and_then(|texts| texts.regex.as_ref());
    let id = request.view.value(request.view.forwarding.request_id.as_deref().unwrap_or_default());
    let values = RequestValues::new(plan, request, client).with_request_id(id.unwrap_or(b"(a new id)"));
    let share = match &route.action {
        Action::Split(split) => texts::split_share(split, &values),
        _ => 0,
    };
    let values = values.with_split_share(share).with_route(plan, index, regex);
    for limit in &route.rate_limits {
        lines.push(format!(
            "rate limit  {} requests/s, burst {}, key {}; status {}",
            limit.rate_per_s,
            limit.burst,
            match &limit.key {
                RateKey::Route => "route".to_owned(),
                RateKey::Source => "source".to_owned(),
                RateKey::Header(name) => name.to_string(),
                RateKey::Template(template) => texts::describe_key(template, &values),
            },
            limit.status
        ));
    }
    change_lines(route, (request, client, path), &values, lines);
    let pages = route.texts.as_ref().map_or(&plan.error_pages, |texts| &texts.error_pages);
    lines.extend(pages.iter().map(texts::page_line));
    match &route.action {
        Action::Forward(pool) => {
            settings::setting_lines(plan, index, (request.listener, request.listener, *pool), lines);
            pool_lines(plan, *pool, Some((request, &values)), lines);
        }
        Action::Split(split) => {
            texts::split_lines(plan, (split, share), &values, lines);
            let position = share * plan.listeners.len() + request.listener;
            let pool = split.shares[share].pool;
            settings::setting_lines(plan, index, (position, request.listener, pool), lines);
            pool_lines(plan, pool, Some((request, &values)), lines);
        }
        other => {
            settings::access_lines(plan, index, request.listener, lines);
            local_lines(other, &values, lines);
        }
    }
}

fn local_lines(action: &Action, values: &RequestValues<'_>, lines: &mut Vec<String>) {
    match action {
        Action::Forward(_) | Action::Split(_) => {}
        Action::Files(files) => lines.extend(texts::files_lines(files)),
        Action::Redirect { status, location } => lines.push(texts::location_line(*status, location, values)),
        Action::Return { status, content_type, body, .. } => {
            lines.extend(texts::body_lines(*status, content_type, body, values));
        }
        Action::Deny(status) => lines.push(format!("response    {status}: denied")),
        Action::SilentDrop => lines.push("response    none: silent drop".into()),
        Action::Tarpit { delay_ns, status } => {
            let delay = record::units::format_duration_ns(*delay_ns);
            lines.push(format!("response    {status} after {delay}: tarpit"));
        }
    }
}

/// Appends the changes of a route to a request and its response.
fn change_lines(
    route: &RoutePlan,
    (request, client, path): (&RouteRequest<'_>, &dyn ClientFacts, ComparedPath<'_>),
    values: &RequestValues<'_>,
    lines: &mut Vec<String>,
) {
    if changes_target(&route.changes) {
        let mut target = Vec::new();
        rewrite_target(&route.changes, request.target, &mut target);
        lines.push(format!("target      becomes {}", String::from_utf8_lossy(&target)));
    }
    for change in &route.changes {
        let description = texts::describe_change(change, values);
        lines.extend(description.map(|description| format!("change      {description}")));
    }
    for rule in route.texts.iter().flat_map(|texts| &texts.rules) {
        texts::rule_lines(rule, (request, client, path), values, lines);
    }
}

fn pool_lines(
    plan: &Plan,
    pool: PoolId,
    request: Option<(&RouteRequest<'_>, &RequestValues<'_>)>,
    lines: &mut Vec<String>,
) {
    let pool = &plan.pools[pool];
    lines.push(format!("pool        {}, {}", pool.name, pool.balance.name()));
    lines.extend(balance::balance_lines(pool, request));
    for server in &pool.servers {
        let maxconn = server.maxconn.map_or_else(String::new, |max| format!(", maxconn {max}"));
        lines.push(format!(
            "server      {} at {}, weight {}{maxconn}{}",
            server.name,
            server.address,
            server.weight,
            if server.backup { ", backup" } else { "" }
        ));
    }
    for names in &pool.named_servers {
        lines.push(format!("server      {} (looked up), weight {}", names.lookup, names.template.weight));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = r#"
[listener.web]
bind = "127.0.0.1:8080"
pool = "app"
body-max = "1m"
forwarding = { via = "edge" }
[listener.db]
bind = "127.0.0.1:5432"
mode = "tcp"
pool = "app"
[[route]]
name = "post"
method = "POST"
deny = true
[[route]]
name = "inside"
source = "10.0.0.0/8"
deny = true
[[route]]
name = "debug"
query = { debug = "1" }
deny = true
[[route]]
name = "tagged"
header = { x-tag = { regex = "^v" } }
deny = true
[[route]]
name = "api"
host = "example.org"
path-prefix = "/api"
rewrite-prefix = "/v1"
set-request-header = { x-env = "prod" }
rate-limit = { rate = 5 }
pool = "app"
timeouts = { first-byte = "9s" }
forwarding = { request-id = false }
[[route]]
name = "old"
path = "/old"
redirect = { location = "https://{host}/new{query}" }
[pool.app]
servers = [{ address = "127.0.0.1:9001", name = "a", weight = 3 }]
timeouts = { first-byte = "8s", idle = "7s" }
"#;

    fn explained(request: &str, headers: &[&str], source: &str) -> (String, Option<usize>) {
        let plan = crate::config::parse("t", CONFIG).unwrap().plan;
        let headers: Vec<String> = headers.iter().map(|line| (*line).to_owned()).collect();
        let request = ExplainRequest::parse(request, &headers, source).unwrap();
        let explanation = explain(&plan, &request).unwrap();
        (explanation.to_string(), explanation.route())
    }

    #[test]
    fn splits_and_error_pages_are_explained() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("page.html");
        std::fs::write(&file, "<p>later\n").unwrap();
        let file = file.display();
        let text = format!(
            "[[error-page]]\nstatus = '503'\nhtml = '{file}'\n[listener.web]\nbind = '127.0.0.1:0'\n\
             [pool.a]\nservers = ['127.0.0.1:1']\n[pool.b]\nservers = ['127.0.0.1:2']\ntimeouts = {{ idle = '9s' }}\n\
             [[route]]\nset-request-header = {{ x-pool = '{{pool}}' }}\nsplit = {{ pools = {{ a = 0, b = 1 }}, key = 'cookie.u' }}\n\
             [[route.error-page]]\nstatus = '404'\ntext = '{file}'\nreplace = 'all'\n"
        );
        let plan = crate::config::parse("t", &text).unwrap_or_else(|problems| panic!("{problems:?}")).plan;
        let request =
            ExplainRequest::parse("GET http://h/", &["Cookie: u=7".to_owned()], "127.0.0.1").unwrap();
        let text = explain(&plan, &request).unwrap().to_string();
        for line in [
            "change      request: set x-pool: b",
            &format!("error page  404: text {file}, also instead of servers' content"),
            &format!("error page  503: html {file}"),
            "split       a 0, b 1",
            "split       key cookie.u = '7': pool b",
            "setting     timeouts.idle 9s (pool)",
            "pool        b, random-of-two",
        ] {
            assert!(text.lines().any(|text_line| text_line == line), "{line}: {text}");
        }
    }

    #[test]
    fn each_route_that_was_tried_has_a_reason() {
        let (text, route) =
            explained("http://Example.org:8080/x/..//api/a?debug=2", &["X-Tag: w1"], "192.0.2.1");
        let expected = "\
request     GET /x/..//api/a?debug=2 for Example.org:8080, from 192.0.2.1
listener    web (127.0.0.1:8080), by its port
target      //api/a?debug=2 in normal form
path        compared as /api/a
no match    route post: method is GET, not POST
no match    route inside: source is 192.0.2.1, not in 10.0.0.0/8
no match    route debug: parameter debug is '2', not '1'
no match    route tagged: field x-tag is 'w1', not matched by ^v
match       route api
rate limit  5 requests/s, burst 5, key source; status 429
target      becomes /v1/a?debug=2
change      request: set x-env: prod
setting     timeouts.total no limit (default)
setting     timeouts.per-try no limit (default)
setting     timeouts.connect 5s (default)
setting     timeouts.first-byte 9s (route)
setting     timeouts.idle 7s (pool)
setting     timeouts.tunnel 1h (default)
setting     timeouts.body 1h (default)
setting     timeouts.body-idle 30s (default)
setting     body-max 1048576 B (listener)
setting     buffer-request 8192 B (default)
setting     retries 1 (default)
setting     retry-on none (default)
setting     idempotent by method (default)
setting     hedge false (default)
setting     mirror none (default)
setting     compression false (default)
setting     cache none (default)
setting     limit-rate no limit (default)
setting     limit-rate-after 0 B (default)
setting     limit-rate-total no limit (default)
setting     limit-rate-upload no limit (default)
setting     auth false (default)
setting     cors false (default)
setting     forwarding.x-forwarded true (default)
setting     forwarding.forwarded-for append (default)
setting     forwarding.forwarded false (default)
setting     forwarding.via edge (listener)
setting     forwarding.request-id false (route)
pool        app, random-of-two
server      a at 127.0.0.1:9001, weight 3
";
        assert_eq!((text.as_str(), route), (expected, Some(4)));
    }

    #[test]
    fn listeners_redirects_and_nothing_are_explained() {
        let (text, route) = explained("/old?a=b", &["Host: example.org"], "");
        assert!(text.contains("web (127.0.0.1:8080), ") && text.contains("mode http"), "{text}");
        assert!(text.contains("response    302 to https://example.org/new?a=b"), "{text}");
        assert_eq!(route, Some(5));
        let (text, route) = explained("http://127.0.0.1:5432/", &[], "");
        assert!(text.contains("listener    db") && text.contains("mode tcp"), "{text}");
        assert_eq!(route, None);
        let (text, _) = explained("CONNECT example.org:443", &[], "");
        assert!(text.contains("405"), "{text}");
        let (text, route) = explained("POST http://other/api", &[], "");
        assert!(text.contains("response    403: denied") && route == Some(0), "{text}");
        let (text, route) = explained("http://other/api", &[], "");
        assert!(text.contains("not example.org") && route == Some(6), "{text}");
    }

    #[test]
    fn a_plan_without_routes_explains_nothing() {
        let config = "[listener.db]\nbind = '127.0.0.1:5432'\nmode = 'tcp'\npool = 'app'\n\
                      [pool.app]\nservers = ['127.0.0.1:9001']\n";
        let plan = crate::config::parse("t", config).unwrap().plan;
        for url in ["/", "http://127.0.0.1:5432/"] {
            let request = ExplainRequest::parse(url, &[], "").unwrap();
            let problems = explain(&plan, &request).unwrap_err();
            assert!(problems[0].location == "--explain" && problems[0].text.contains("tcp"), "{problems:?}");
        }
    }

    #[test]
    fn invalid_requests_are_reported_at_once() {
        let headers = ["no colon".to_owned(), "a b: c".to_owned()];
        let problems = ExplainRequest::parse("G@T example.org", &headers, "me").unwrap_err();
        let places: Vec<_> = problems.iter().map(|problem| problem.location.as_str()).collect();
        assert_eq!(places, ["--explain", "--explain", "--header", "--header", "--source"]);
    }
}
