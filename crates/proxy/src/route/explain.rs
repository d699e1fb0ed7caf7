//! The decision about one request in words: which listener, which routes were tried and why they
//! did not match, and what becomes of the request. It decides by the router's own conditions and
//! says the first that failed, where the router only says no.

use std::fmt;
use std::net::IpAddr;

use record::problem::Problem;
use rt::address::Address;

use crate::plan::{
    Action, Change, Conditions, ListenerPlan, Mode, PathCondition, Plan, RoutePlan, TextCondition,
    ValueCondition,
};

use super::conditions::{
    field_holds, host_holds, method_holds, parameter_holds, parameters, path_holds, source_holds,
};
use super::path::{bare_host, normal, split_target, without_parameters, without_port};
use super::{Asked, Compared, forwarded, location, rewrite_target, rewrites};

/// A request that is only asked about. Made by [`ExplainRequest::parse`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainRequest {
    method: String,
    target: String,
    /// The URL's authority, or the `Host` among the headers.
    host: Option<String>,
    port: Option<u16>,
    headers: Vec<(String, String)>,
    source: Option<IpAddr>,
}

impl ExplainRequest {
    /// Understands `[METHOD ]URL` (a URL, or a target such as `/path?query`), header lines
    /// (`Name: value`) and the client's address (empty: not said).
    ///
    /// # Errors
    /// Everything that is wrong with them, by flag.
    pub fn parse(request: &str, headers: &[String], source: &str) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let (method, url) = request.split_once(' ').unwrap_or(("GET", request));
        let url = url.trim();
        for error in [wire::encode::check_method(method), wire::encode::check_target(url)] {
            problems.extend(error.err().map(|error| Problem::new("--explain", error.to_string())));
        }
        let is_known_form =
            url.starts_with('/') || url == "*" || url.contains("://") || method == "CONNECT";
        if !is_known_form {
            let text = format!("'{url}' is neither a URL nor a path (write http://host/path)");
            problems.push(Problem::new("--explain", text));
        }
        let headers: Vec<_> =
            headers.iter().filter_map(|line| header(line, &mut problems)).collect();
        let source = match source.parse() {
            Ok(address) => Some(address),
            Err(_) if source.is_empty() => None,
            Err(_) => {
                let text =
                    format!("'{source}' is not an IP address (write 192.0.2.1 or 2001:db8::1)");
                problems.push(Problem::new("--source", text));
                None
            }
        };
        let authority = authority(method, url);
        let given = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
        let host = authority.or_else(|| given.map(|(_, value)| value.as_str()));
        let default_port = url.starts_with("http://").then_some(80);
        let port = host.and_then(|host| host[without_port(host).len()..].strip_prefix(':'));
        let port = port.and_then(|port| port.parse().ok()).or(default_port);
        let (path, query) = split_target(url);
        let request = Self {
            method: method.to_owned(),
            target: format!("{path}{query}"),
            host: host.map(str::to_owned),
            port,
            headers,
            source,
        };
        if problems.is_empty() { Ok(request) } else { Err(problems) }
    }
}

fn authority<'a>(method: &str, url: &'a str) -> Option<&'a str> {
    if method == "CONNECT" {
        return Some(url);
    }
    if url.starts_with('/') {
        return None;
    }
    let rest = url.split_once("://")?.1;
    Some(&rest[..rest.find(['/', '?']).unwrap_or(rest.len())])
}

fn header(line: &str, problems: &mut Vec<Problem>) -> Option<(String, String)> {
    let Some((name, value)) = line.split_once(':') else {
        let text = format!("'{line}' has no colon (write 'Name: value')");
        problems.push(Problem::new("--header", text));
        return None;
    };
    let value = value.trim();
    let checks =
        [wire::encode::check_field_name(name), wire::encode::check_field_value(value.as_bytes())];
    problems.extend(
        checks
            .into_iter()
            .filter_map(Result::err)
            .map(|error| Problem::new("--header", error.to_string())),
    );
    Some((name.to_owned(), value.to_owned()))
}

/// Why a request takes the route that it takes. Its [`fmt::Display`] is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    lines: Vec<String>,
    route: Option<usize>,
}

impl Explanation {
    /// The route taken, as an index in [`Plan::routes`].
    #[must_use]
    pub fn route(&self) -> Option<usize> {
        self.route
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// Says what `plan` would do with `request`. Nothing is sent and nothing is counted.
///
/// The listener is the one with the URL's port (and address, when it has one); without such a
/// listener, the first that speaks HTTP.
#[must_use]
pub fn explain(plan: &Plan, request: &ExplainRequest) -> Explanation {
    let Some((listener, why)) = assumed_listener(plan, request) else {
        let lines = vec!["listener    none speaks HTTP".to_owned()];
        return Explanation { lines, route: None };
    };
    let shown = &plan.listeners[listener];
    let binds: Vec<String> = shown.bind.iter().map(Address::to_string).collect();
    let mut lines = vec![
        request_line(request),
        format!("listener    {} ({}), {why}", shown.name, binds.join(", ")),
    ];
    if let Mode::Tcp(pool) = shown.mode {
        lines.push("routes      none: mode tcp passes bytes on as they are".to_owned());
        pool_lines(plan, pool, None, &mut lines);
        return Explanation { lines, route: None };
    }
    if request.method == "CONNECT" && !shown.connect {
        lines.push("answer      405: the listener does not allow CONNECT".to_owned());
        return Explanation { lines, route: None };
    }
    let headers: Vec<wire::Header<'_>> = request
        .headers
        .iter()
        .map(|(name, value)| wire::Header { name, value: value.as_bytes() })
        .collect();
    let mut room = String::new();
    let Some((target, _)) = forwarded(&request.target, shown.path, &mut room) else {
        lines.push("answer      400: servers read this path in different ways".to_owned());
        return Explanation { lines, route: None };
    };
    if target != request.target {
        lines.push(format!("target      {target} once normalised"));
    }
    let asked = Asked {
        listener,
        method: &request.method,
        target,
        is_plain: false,
        trusted: request
            .source
            .is_some_and(|source| shown.trusted.iter().any(|network| network.contains(source))),
        host: request.host.as_deref(),
        headers: &headers,
        source: request.source,
    };
    let rest = of(plan, &asked);
    lines.extend(rest.lines);
    Explanation { lines, route: rest.route }
}

fn request_line(request: &ExplainRequest) -> String {
    let host = request.host.as_deref().unwrap_or("no host");
    let source = request.source.map_or_else(|| "no address".to_owned(), |ip| ip.to_string());
    format!("request     {} {} for {host}, from {source}", request.method, request.target)
}

fn assumed_listener(plan: &Plan, request: &ExplainRequest) -> Option<(usize, &'static str)> {
    let ip: Option<IpAddr> = request.host.as_deref().and_then(|host| {
        without_port(host).trim_start_matches('[').trim_end_matches(']').parse().ok()
    });
    let listens = |listener: &ListenerPlan, exactly: bool| {
        listener.bind.iter().any(|bind| match bind {
            Address::Tcp(address) => {
                Some(address.port()) == request.port && (!exactly || Some(address.ip()) == ip)
            }
            Address::Unix(_) => false,
        })
    };
    let position = |exactly| plan.listeners.iter().position(|known| listens(known, exactly));
    if let Some(found) = position(true) {
        return Some((found, "by its address"));
    }
    if let Some(found) = position(false) {
        return Some((found, "by its port"));
    }
    let http = plan.listeners.iter().position(|listener| listener.mode == Mode::Http)?;
    Some((http, "assumed: the first that speaks HTTP"))
}

/// The routes that are tried for `asked`, and what becomes of it.
pub(super) fn of(plan: &Plan, asked: &Asked<'_>) -> Explanation {
    let (path, query) = split_target(asked.target);
    let (mut room, mut bare_room) = (String::new(), String::new());
    let mut host_room = String::new();
    let normal = normal(path, &mut room);
    let seen = Seen {
        asked,
        host: bare_host(asked.host.unwrap_or_default(), &mut host_room),
        path: Compared { path: normal, bare: without_parameters(normal, &mut bare_room) },
        query: query.strip_prefix('?').unwrap_or_default(),
    };
    let mut lines = Vec::new();
    if normal != path {
        lines.push(format!("path        compared as {normal}"));
    }
    for (index, route) in plan.routes.iter().enumerate() {
        match seen.failure(plan, &route.conditions) {
            Some(why) => lines.push(format!("not taken   route {}: {why}", route.name)),
            None => {
                lines.push(format!("taken       route {}", route.name));
                taken_lines(plan, route, asked, &mut lines);
                return Explanation { lines, route: Some(index) };
            }
        }
    }
    lines.push("answer      404: no route matches".to_owned());
    Explanation { lines, route: None }
}

/// A request in the forms in which it is compared.
struct Seen<'a> {
    asked: &'a Asked<'a>,
    host: &'a str,
    path: Compared<'a>,
    query: &'a str,
}

impl Seen<'_> {
    /// The first condition that does not hold, with what was seen.
    fn failure(&self, plan: &Plan, conditions: &Conditions) -> Option<String> {
        let asked = self.asked;
        if !conditions.listeners.is_empty() && !conditions.listeners.contains(&asked.listener) {
            let names = conditions.listeners.iter().map(|&index| &*plan.listeners[index].name);
            let own = &plan.listeners[asked.listener].name;
            return Some(format!("listener is {own}, not {}", list(names)));
        }
        if !host_holds(&conditions.hosts, self.host) {
            let wanted = list(conditions.hosts.iter().map(|host| &**host));
            return Some(format!("host is {}, not {wanted}", shown(self.host)));
        }
        if !method_holds(&conditions.methods, asked.method) {
            let wanted = list(conditions.methods.iter().map(|method| &**method));
            return Some(format!("method is {}, not {wanted}", asked.method));
        }
        if !path_holds(&conditions.paths, self.path) {
            let wanted: Vec<String> = conditions.paths.iter().map(path_words).collect();
            return Some(format!("path is {}, not {}", self.path.path, wanted.join(" or ")));
        }
        if !source_holds(&conditions.sources, asked.source) {
            let wanted: Vec<String> = conditions
                .sources
                .iter()
                .map(|network| format!("{}/{}", network.address, network.prefix))
                .collect();
            let source = asked.source.map_or_else(|| "not known".into(), |ip| ip.to_string());
            return Some(format!("source is {source}, not in {}", wanted.join(" or ")));
        }
        self.text_failure(conditions)
    }

    fn text_failure(&self, conditions: &Conditions) -> Option<String> {
        for condition in &conditions.headers {
            if !field_holds(condition, self.asked) {
                let lines = self.asked.fields_for(&condition.name).iter();
                let values = lines
                    .filter(|header| header.name.eq_ignore_ascii_case(&condition.name))
                    .map(|header| String::from_utf8_lossy(header.value).into_owned());
                return Some(text_words("field", condition, values.collect()));
            }
        }
        for condition in &conditions.query {
            if !parameter_holds(condition, self.query) {
                let values = parameters(self.query)
                    .filter(|(name, _)| *name == &*condition.name)
                    .map(|(_, value)| value.to_owned());
                return Some(text_words("parameter", condition, values.collect()));
            }
        }
        None
    }
}

fn list<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.collect::<Vec<_>>().join(" or ")
}

fn shown(text: &str) -> &str {
    if text.is_empty() { "not given" } else { text }
}

fn path_words(condition: &PathCondition) -> String {
    match condition {
        PathCondition::Exact(path) => path.to_string(),
        PathCondition::Prefix(prefix) => format!("below {prefix}"),
        PathCondition::Regex(regex) => format!("matched by {regex}"),
    }
}

fn text_words(what: &str, condition: &TextCondition, values: Vec<String>) -> String {
    let name = &condition.name;
    let seen = match values.as_slice() {
        [] => "not there".to_owned(),
        _ => format!("'{}'", values.join("', '")),
    };
    match &condition.value {
        ValueCondition::Present => format!("{what} {name} is not there"),
        ValueCondition::Absent => format!("{what} {name} is {seen}, and must not be there"),
        ValueCondition::Is(wanted) => format!("{what} {name} is {seen}, not '{wanted}'"),
        ValueCondition::Matches(regex) => {
            format!("{what} {name} is {seen}, not matched by {regex}")
        }
    }
}

fn taken_lines(plan: &Plan, route: &RoutePlan, asked: &Asked<'_>, lines: &mut Vec<String>) {
    if let Some(limit) = &route.rate_limit {
        lines.push(format!(
            "rate limit  {} requests/s, {} at once, by {}; beyond: {}",
            limit.rate_per_s,
            limit.burst,
            match &limit.key {
                crate::plan::RateKey::Route => "route",
                crate::plan::RateKey::Source => "source",
                crate::plan::RateKey::Header(name) => name,
            },
            limit.status
        ));
    }
    if rewrites(&route.changes) {
        let mut target = Vec::new();
        rewrite_target(&route.changes, asked.target, &mut target);
        lines.push(format!("target      becomes {}", String::from_utf8_lossy(&target)));
    }
    for change in &route.changes {
        lines.extend(change_words(change).map(|words| format!("change      {words}")));
    }
    match &route.action {
        Action::Forward(pool) => pool_lines(plan, *pool, Some(asked), lines),
        Action::Redirect { status, location: template } => {
            let to = location(template, asked.host, asked.target);
            lines.push(format!("answer      {status} to {}", String::from_utf8_lossy(&to)));
        }
        Action::Answer { status, content_type, body } => {
            lines.push(format!("answer      {status}, {} bytes of {content_type}", body.len()));
        }
        Action::Deny(status) => lines.push(format!("answer      {status}: denied")),
        Action::SilentDrop => lines.push("answer      none: dropped silently".into()),
        Action::Tarpit { delay_ns, status } => {
            let delay = record::units::format_duration_ns(*delay_ns);
            lines.push(format!("answer      {status} after {delay}: tarpit"));
        }
    }
}

/// `None` for what is shown as the new target.
fn change_words(change: &Change) -> Option<String> {
    Some(match change {
        Change::ReplacePrefix { .. } | Change::ReplacePath(_) => return None,
        Change::SetRequestHeader(name, value) => format!("request: set {name}: {value}"),
        Change::AddRequestHeader(name, value) => format!("request: add {name}: {value}"),
        Change::RemoveRequestHeader(name) => format!("request: remove {name}"),
        Change::SetResponseHeader(name, value) => format!("response: set {name}: {value}"),
        Change::AddResponseHeader(name, value) => format!("response: add {name}: {value}"),
        Change::RemoveResponseHeader(name) => format!("response: remove {name}"),
    })
}

fn pool_lines(plan: &Plan, pool: usize, asked: Option<&Asked<'_>>, lines: &mut Vec<String>) {
    let pool = &plan.pools[pool];
    lines.push(format!("pool        {}, {}", pool.name, pool.balance.name()));
    lines.extend(super::explain_choice::lines(pool, asked));
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
    for names in &pool.names {
        lines.push(format!("server      {} by name, weight {}", names.lookup, names.like.weight));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = r#"
[listener.web]
bind = "127.0.0.1:8080"
pool = "app"
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
[[route]]
name = "old"
path = "/old"
redirect = { location = "https://{host}/new{query}" }
[pool.app]
servers = [{ address = "127.0.0.1:9001", name = "a", weight = 3 }]
"#;

    fn explained(request: &str, headers: &[&str], source: &str) -> (String, Option<usize>) {
        let plan = crate::config::parse("t", CONFIG).unwrap().plan;
        let headers: Vec<String> = headers.iter().map(|line| (*line).to_owned()).collect();
        let request = ExplainRequest::parse(request, &headers, source).unwrap();
        let explanation = explain(&plan, &request);
        (explanation.to_string(), explanation.route())
    }

    #[test]
    fn each_route_that_was_tried_says_why_not() {
        let (text, route) =
            explained("http://Example.org:8080/x/..//api/a?debug=2", &["X-Tag: w1"], "192.0.2.1");
        let wanted = "\
request     GET /x/..//api/a?debug=2 for Example.org:8080, from 192.0.2.1
listener    web (127.0.0.1:8080), by its port
target      //api/a?debug=2 once normalised
path        compared as /api/a
not taken   route post: method is GET, not POST
not taken   route inside: source is 192.0.2.1, not in 10.0.0.0/8
not taken   route debug: parameter debug is '2', not '1'
not taken   route tagged: field x-tag is 'w1', not matched by ^v
taken       route api
rate limit  5 requests/s, 5 at once, by source; beyond: 429
target      becomes /v1/a?debug=2
change      request: set x-env: prod
pool        app, random-of-two
server      a at 127.0.0.1:9001, weight 3
";
        assert_eq!((text.as_str(), route), (wanted, Some(4)));
    }

    #[test]
    fn listeners_redirects_and_nothing_are_explained() {
        let (text, route) = explained("/old?a=b", &["Host: example.org"], "");
        assert!(
            text.contains("web (127.0.0.1:8080), assumed: the first that speaks HTTP"),
            "{text}"
        );
        assert!(text.contains("answer      302 to https://example.org/new?a=b"), "{text}");
        assert_eq!(route, Some(5));
        let (text, route) = explained("http://127.0.0.1:5432/", &[], "");
        assert!(text.contains("listener    db") && text.contains("mode tcp"), "{text}");
        assert_eq!(route, None);
        let (text, _) = explained("CONNECT example.org:443", &[], "");
        assert!(text.contains("405"), "{text}");
        let (text, route) = explained("POST http://other/api", &[], "");
        assert!(text.contains("answer      403: denied") && route == Some(0), "{text}");
        let (text, route) = explained("http://other/api", &[], "");
        assert!(text.contains("host is other, not example.org") && route == Some(6), "{text}");
    }

    #[test]
    fn what_cannot_be_asked_is_told_at_once() {
        let headers = ["no colon".to_owned(), "a b: c".to_owned()];
        let problems = ExplainRequest::parse("G@T example.org", &headers, "me").unwrap_err();
        let places: Vec<_> = problems.iter().map(|problem| problem.place.as_str()).collect();
        assert_eq!(places, ["--explain", "--explain", "--header", "--header", "--source"]);
    }
}
