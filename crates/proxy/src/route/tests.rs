//! The router against a naive one that interprets the plan literally, on random plans.

use std::net::{IpAddr, Ipv4Addr};

use super::*;
use crate::plan::{Action, Network, RoutePlan, TextCondition, ValueCondition};
use crate::request_view::fixtures::{self, FixedFacts};
use wire::RequestHead;

fn plan(text: &str) -> Plan {
    crate::config::parse("t.toml", text).unwrap_or_else(|problems| panic!("{problems:?}")).plan
}

fn request_for<'a>(target: &'a str, host: Option<&'a str>) -> RouteRequest<'a> {
    static HEAD: RequestHead<'static, 'static> = fixtures::head(&[]);
    static VIEW: RequestView<'static> = fixtures::view(&HEAD);
    RouteRequest { listener: 0, method: "GET", target, is_plain: false, host, view: &VIEW, source: None }
}

/// Returns the name of the chosen route.
fn picked_route(plan: &Plan, request: &RouteRequest<'_>) -> Option<String> {
    let mut scratch = RouteScratch::default();
    let route = Router::new(plan).pick(request, &FixedFacts::default(), &mut scratch)?;
    Some(plan.routes[route].name.to_string())
}

const HOSTS: &str = r#"
[listener.web]
bind = "127.0.0.1:0"
[[route]]
name = "admin"
host = "*.example.org"
path-prefix = "/admin"
deny = true
[[route]]
name = "deep"
host = "*.a.example.org"
return = {}
[[route]]
name = "exact"
host = ["www.example.org", "[::1]"]
return = {}
[[route]]
name = "wild"
host = "*.example.org"
return = {}
[[route]]
name = "rest"
path-prefix = "/x"
return = {}
"#;

#[test]
fn the_first_that_matches_decides_whatever_the_index_of_hosts() {
    let plan = plan(HOSTS);
    let table = [
        ("/", Some("WWW.example.org:80"), Some("exact")),
        ("/%61dmin/../admin/x", Some("www.example.org."), Some("admin")),
        ("/administrator", Some("www.example.org"), Some("exact")),
        ("/", Some("b.a.example.org"), Some("deep")),
        ("/admin", Some("b.a.example.org"), Some("admin")),
        ("/", Some("a.example.org"), Some("wild")),
        ("/", Some("c.b.example.org"), Some("wild")),
        ("/", Some("example.org"), None),
        ("/x", Some("example.org"), Some("rest")),
        ("/x", Some(".example.org"), Some("rest")),
        ("/", Some("[::1]:8080"), Some("exact")),
        ("/x", None, Some("rest")),
        ("/", None, None),
        ("http://www.example.org/admin", Some("www.example.org"), Some("admin")),
    ];
    for (target, host, expected) in table {
        let actual = picked_route(&plan, &request_for(target, host));
        assert_eq!(actual.as_deref(), expected, "{target} {host:?}");
    }
    let long = format!("{}.example.org", "a.".repeat(10_000));
    assert_eq!(picked_route(&plan, &request_for("/", Some(&long))).as_deref(), Some("wild"));
}

#[test]
fn one_route_without_conditions_needs_no_check() {
    let plan = plan("[listener.web]\nbind = \"127.0.0.1:0\"\n[[route]]\nreturn = {}\n");
    let mut scratch = RouteScratch::default();
    let router = Router::new(&plan);
    assert_eq!(
        router.pick(&request_for("/a/../%41", Some("HOST")), &FixedFacts::default(), &mut scratch),
        Some(0)
    );
    assert!(scratch.path.capacity() == 0 && scratch.host.capacity() == 0);
    assert_eq!(
        router.pick(
            &RouteRequest { listener: 9, ..request_for("/", None) },
            &FixedFacts::default(),
            &mut scratch
        ),
        None
    );
}

#[test]
fn a_normal_request_writes_nothing() {
    let plan = plan(HOSTS);
    let mut scratch = RouteScratch::default();
    let request = request_for("/a/b.c?d=../..//", Some("www.example.org:80"));
    Router::new(&plan).pick(&request, &FixedFacts::default(), &mut scratch);
    assert!(scratch.path.capacity() == 0 && scratch.host.capacity() == 0);
}

const HOST_WORDS: [&str; 6] = ["a.test", "b.test", "x.a.test", "y.x.a.test", "test", "c.b.test"];
const WILD_WORDS: [&str; 4] = ["*.test", "*.a.test", "*.x.a.test", "*.b.test"];
const PATH_WORDS: [&str; 6] = ["/", "/a", "/a/b", "/ab", "/a/b/c", "/c"];
const METHODS: [&str; 3] = ["GET", "POST", "PUT"];
const FIELDS: [&str; 2] = ["x-a", "x-b"];
const VALUES: [&str; 3] = ["1", "2", "v3"];

fn one_of<'a>(random: &mut fastrand::Rng, words: &[&'a str]) -> &'a str {
    words[random.usize(0..words.len())]
}

fn random_value(random: &mut fastrand::Rng) -> ValueCondition {
    match random.u8(0..4) {
        0 => ValueCondition::Present,
        1 => ValueCondition::Absent,
        2 => ValueCondition::Equals(one_of(random, &VALUES).into()),
        _ => ValueCondition::Matches(Regex::new("^[1v]").unwrap()),
    }
}

fn random_text(random: &mut fastrand::Rng) -> TextCondition {
    TextCondition { name: one_of(random, &FIELDS).into(), value: random_value(random) }
}

fn random_route(random: &mut fastrand::Rng, name: usize) -> RoutePlan {
    let mut conditions = Conditions::default();
    let few = |random: &mut fastrand::Rng| if random.u8(0..3) == 0 { random.usize(1..3) } else { 0 };
    for _ in 0..few(random) {
        conditions.listeners.push(random.usize(0..2));
    }
    for _ in 0..few(random) {
        let words: &[&str] = if random.bool() { &HOST_WORDS } else { &WILD_WORDS };
        conditions.hosts.push(one_of(random, words).into());
    }
    for _ in 0..few(random) {
        let path = one_of(random, &PATH_WORDS);
        conditions.paths.push(match random.u8(0..3) {
            0 => PathCondition::Exact(path.into()),
            1 => PathCondition::Prefix(path.into()),
            _ => PathCondition::Regex(Regex::new(&format!("^{path}$")).unwrap()),
        });
    }
    for _ in 0..few(random) {
        conditions.methods.push(one_of(random, &METHODS).into());
    }
    for _ in 0..few(random) {
        conditions.headers.push(random_text(random));
    }
    for _ in 0..few(random) {
        conditions.query.push(random_text(random));
    }
    for _ in 0..few(random) {
        let address = Ipv4Addr::new(10, random.u8(0..3), 0, 0).into();
        conditions.sources.push(Network { address, prefix: random.u8(8..17) });
    }
    RoutePlan {
        name: format!("r{name}").into(),
        conditions,
        changes: Vec::new(),
        texts: None,
        path_rule: None,
        rate_limits: Vec::new(),
        priority: crate::plan::Priority::Normal,
        settings: Default::default(),
        action: Action::Deny(403),
    }
}

/// Contents of a random request, before it is spelt in one of many ways.
struct RequestSpec {
    listener: usize,
    method: &'static str,
    host: Option<&'static str>,
    path: &'static str,
    query: Vec<(&'static str, &'static str)>,
    fields: Vec<(&'static str, &'static str)>,
    source: Option<IpAddr>,
}

fn random_request(random: &mut fastrand::Rng) -> RequestSpec {
    let pairs = |random: &mut fastrand::Rng| {
        let count = random.usize(0..3);
        (0..count).map(|_| (one_of(random, &FIELDS), one_of(random, &VALUES))).collect()
    };
    RequestSpec {
        listener: random.usize(0..2),
        method: one_of(random, &METHODS),
        host: (random.u8(0..8) > 0).then(|| one_of(random, &HOST_WORDS)),
        path: one_of(random, &PATH_WORDS),
        query: pairs(random),
        fields: pairs(random),
        source: (random.u8(0..8) > 0).then(|| Ipv4Addr::new(10, random.u8(0..3), random.u8(..), 1).into()),
    }
}

fn random_spelling(random: &mut fastrand::Rng, spec: &RequestSpec) -> (String, Option<String>) {
    let mut path = match random.u8(0..5) {
        0 => spec.path.replace('a', "%61"),
        1 => format!("/./q/..{}", spec.path),
        2 => spec.path.replace('/', "//"),
        _ => spec.path.to_owned(),
    };
    for (at, (name, value)) in spec.query.iter().enumerate() {
        let mark = if at == 0 { '?' } else { '&' };
        path.push_str(&format!("{mark}{}={value}", name.replace('x', "%78")));
    }
    let host = spec.host.map(|host| match random.u8(0..4) {
        0 => format!("{host}:8080"),
        1 => host.to_uppercase(),
        2 => format!("{host}."),
        _ => host.to_owned(),
    });
    if let (Some(host), 0) = (&host, random.u8(0..4)) {
        path = format!("http://{host}{path}");
    }
    (path, host)
}

/// Interprets the conditions of `plan` literally.
fn naive_route(plan: &Plan, spec: &RequestSpec) -> Option<usize> {
    let text_holds = |expected: &TextCondition, actual: &[(&str, &str)]| {
        let values: Vec<&str> =
            actual.iter().filter(|(name, _)| *name == &*expected.name).map(|(_, v)| *v).collect();
        match &expected.value {
            ValueCondition::Present => !values.is_empty(),
            ValueCondition::Absent => values.is_empty(),
            ValueCondition::Equals(text) => values.contains(&&**text),
            ValueCondition::Matches(_) => values.iter().any(|value| value.starts_with(['1', 'v'])),
        }
    };
    let host_is = |expected: &str| match (spec.host, expected.strip_prefix("*.")) {
        (None, _) => false,
        (Some(host), None) => host == expected,
        (Some(host), Some(parent)) => host.ends_with(&format!(".{parent}")),
    };
    let path_is = |expected: &PathCondition| match expected {
        PathCondition::Exact(path) => **path == *spec.path,
        PathCondition::Prefix(prefix) => {
            let prefix = prefix.trim_end_matches('/');
            spec.path == prefix || spec.path.starts_with(&format!("{prefix}/"))
        }
        PathCondition::Glob(..) => unreachable!(),
        PathCondition::Regex(regex) => regex.as_str() == format!("^{}$", spec.path),
    };
    let source_in = |network: &Network| {
        let (IpAddr::V4(network_address), Some(IpAddr::V4(source))) = (network.address, spec.source) else {
            return false;
        };
        let shift = 32 - u32::from(network.prefix);
        network_address.to_bits() >> shift == source.to_bits() >> shift
    };
    plan.routes.iter().position(|route| {
        let c = &route.conditions;
        (c.listeners.is_empty() || c.listeners.contains(&spec.listener))
            && (c.hosts.is_empty() || c.hosts.iter().any(|host| host_is(host)))
            && (c.paths.is_empty() || c.paths.iter().any(path_is))
            && (c.methods.is_empty() || c.methods.iter().any(|method| **method == *spec.method))
            && c.headers.iter().all(|condition| text_holds(condition, &spec.fields))
            && c.query.iter().all(|condition| text_holds(condition, &spec.query))
            && (c.sources.is_empty() || c.sources.iter().any(source_in))
    })
}

#[test]
fn it_picks_the_route_of_a_literal_interpretation() {
    let two = "[listener.a]\nbind=\"127.0.0.1:0\"\n[listener.b]\nbind=\"127.0.0.1:0\"\n";
    let empty = plan(two);
    let mut random = fastrand::Rng::with_seed(20);
    let mut scratch = RouteScratch::default();
    let (mut matched_count, mut explained) = (0, 0);
    for _ in 0..400 {
        let mut plan = empty.clone();
        plan.routes = (0..random.usize(1..9)).map(|n| random_route(&mut random, n)).collect();
        let router = Router::new(&plan);
        for _ in 0..60 {
            let spec = random_request(&mut random);
            let (target, host) = random_spelling(&mut random, &spec);
            let headers: Vec<_> = spec
                .fields
                .iter()
                .map(|(name, value)| wire::Header { name, value: value.as_bytes() })
                .collect();
            let head = fixtures::head(&headers);
            let request = RouteRequest {
                listener: spec.listener,
                method: spec.method,
                target: &target,
                is_plain: is_plain(target.as_bytes()),
                host: host.as_deref(),
                view: &fixtures::view(&head),
                source: spec.source,
            };
            let expected = naive_route(&plan, &spec);
            assert_eq!(
                router.pick(&request, &FixedFacts::default(), &mut scratch),
                expected,
                "{request:?} {:?}",
                plan.routes
            );
            let explanation = crate::explain::explain_request(&plan, &request, &FixedFacts::default());
            assert_eq!(explanation.route(), expected, "{explanation}");
            matched_count += usize::from(expected.is_some());
            explained += explanation.to_string().len();
        }
    }
    // Otherwise the plans never matched anything, and the test would prove nothing.
    assert!((4_000..22_000).contains(&matched_count) && explained > matched_count, "{matched_count}");
}
