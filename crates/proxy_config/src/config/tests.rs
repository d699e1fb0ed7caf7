//! Tests with complete configs: valid ones, and invalid ones with the position of every problem.

use std::net::IpAddr;
use std::path::PathBuf;

use wire::proxy_protocol::ProxyVersion;

use super::parse;
use super::test_certificates::TestCertificates;
use crate::plan::{
    Action, LogFormat, LogTarget, Mode, PathCondition, Plan, PoolId, PreferredFamily, RateKey, RouteChange,
    ServerId, ValueCondition,
};

fn plan(text: &str) -> Plan {
    parse("t", text).unwrap_or_else(|problems| panic!("{problems:#?}")).plan
}

/// Returns the problems as `LINE:COLUMN: text`.
fn problems(text: &str) -> Vec<String> {
    let problems = parse("t", text).unwrap_err();
    problems.iter().map(|problem| problem.to_string().split_off(2)).collect()
}

fn warnings(text: &str) -> Vec<String> {
    let parsed = parse("t", text).unwrap_or_else(|problems| panic!("{problems:#?}"));
    parsed.warnings.iter().map(|warning| warning.to_string().split_off(2)).collect()
}

/// Asserts that there is one problem for each text of `expected`, in that order: its position, and
/// the words, separated by spaces, that the problem has behind it.
fn assert_problems(text: &str, expected: &[&str]) {
    assert_messages(&problems(text), expected);
}

fn assert_messages(actual: &[String], expected: &[&str]) {
    let has_words = |(message, expected): (&String, &&str)| {
        let (position, words) = expected.split_once(' ').unwrap_or((*expected, ""));
        let text = message.strip_prefix(position);
        text.is_some_and(|text| words.split(' ').all(|word| text.contains(word)))
    };
    let is_match = actual.len() == expected.len() && actual.iter().zip(expected).all(has_words);
    assert!(is_match, "{actual:#?}\nare not\n{expected:#?}");
}

const MINIMAL_CONFIG: &str =
    "[listener.web]\nbind = '127.0.0.1:8080'\n[pool.app]\nservers = ['127.0.0.1:9001']\n";

const FULL_CONFIG: &str = r#"
threads = 2
connections-max = "20k"
drain-timeout = "1m"
admin = "127.0.0.1:8404"
[privileges]
user = "root"
landlock = false
[[log]]
to = "stdout"
sample = "10%"
[[log]]
to = "syslog:127.0.0.1:514"
format = "haproxy"
only-errors = true
[listener.web]
bind = ["127.0.0.1:8080", "unix:/tmp/weir.sock"]
pool = "app"
trusted = ["10.0.0.0/8", "127.0.0.1"]
body-max = "10m"
limits = { head = "32k", headers = 64 }
forwarding = { forwarded = true, via = false, request-id = "x-id" }
timeouts = { head = "5s" }
[listener.db]
bind = "127.0.0.1:5432"
mode = "tcp"
pool = "app"
[[route]]
name = "api"
listener = "web"
host = ["Example.org", "*.example.org"]
path = "/exact"
path-prefix = "/api"
path-regex = "^/v[0-9]+/"
method = ["GET", "HEAD"]
header = { x-b = true, x-a = "value", x-c = false, x-d = { regex = "^v" } }
query = { debug = "1" }
source = "10.0.0.0/8"
rewrite-prefix = "/v1"
add-request-header = { x-tag = "1" }
set-request-header = { x-env = "prod" }
remove-request-header = ["cookie"]
set-response-header = { }
rate-limit = { rate = 1.5, key = "header:x-key" }
pool = "app"
[[route]]
path = "/old"
redirect = { status = 301, location = "https://{host}{path}{query}" }
[[route]]
path = "/hello"
return = { content-type = "text/html", body = "hello" }
[[route]]
path = "/private"
deny = true
[[route]]
path = "/slow"
tarpit = { delay = "1s", status = 404 }
[pool.app]
servers = ["127.0.0.1:9001", { address = "127.0.0.1:9002", name = "b", weight = 2, maxconn = 10 }]
queue = { limit = 5, timeout = "50ms" }
send-proxy-protocol = "v2"
"#;

#[test]
fn a_complete_config_is_parsed() {
    let plan = plan(FULL_CONFIG);
    assert_eq!((plan.threads, plan.connections_max), (2, Some(20_000)));
    assert_eq!(plan.drain_timeout_ns, 60_000_000_000);
    assert_eq!((plan.privileges.user, plan.privileges.group), (Some(0), Some(0)));
    assert!(plan.privileges.no_new_privileges && !plan.privileges.landlock);
    assert_eq!((&plan.logs[0].target, plan.logs[0].sample), (&LogTarget::Stdout, 0.1));
    assert_eq!(plan.logs[1].target, LogTarget::SyslogUdp("127.0.0.1:514".parse().unwrap()));
    assert_eq!((&plan.logs[1].format, plan.logs[1].only_errors), (&LogFormat::Haproxy, true));
    // Listeners are in the file's order, not sorted by name.
    let [web, db] = &plan.listeners[..] else { panic!("{:?}", plan.listeners) };
    assert_eq!((&*web.name, web.mode, &*db.name, db.mode), ("web", Mode::Http, "db", Mode::Tcp(PoolId(0))));
    assert_eq!((web.bind.len(), web.trusted.len(), web.body_bytes_max), (2, 2, Some(10 << 20)));
    assert_eq!((web.limits.head_bytes_max, web.limits.headers_max), (32_768, 64));
    assert_eq!((web.timeouts.head_ns, web.timeouts.write_ns), (5_000_000_000, 30_000_000_000));
    assert_eq!(web.forwarding.request_id.as_deref(), Some("x-id"));
    assert!(web.forwarding.x_forwarded && web.forwarding.forwarded && web.forwarding.via.is_none());
    let pool = &plan.pools[PoolId(0)];
    assert_eq!((pool.queue.limit, pool.queue.timeout_ns), (5, 50_000_000));
    assert_eq!((pool.send_proxy_protocol, pool.retries_max), (Some(ProxyVersion::V2), 1));
    assert_eq!((&*pool.servers[ServerId(0)].name, pool.servers[ServerId(0)].weight), ("127.0.0.1:9001", 1));
    assert_eq!((&*pool.servers[ServerId(1)].name, pool.servers[ServerId(1)].weight), ("b", 2));
    assert_eq!(pool.servers[ServerId(1)].maxconn, Some(10));
}

#[test]
fn routes_are_parsed() {
    let plan = plan(FULL_CONFIG);
    let api = &plan.routes[0];
    assert_eq!(&*api.name, "api");
    let conditions = &api.conditions;
    assert_eq!(conditions.listeners, [0]);
    assert_eq!(conditions.hosts, ["example.org".into(), "*.example.org".into()]);
    assert!(matches!(&conditions.paths[0], PathCondition::Exact(path) if **path == *"/exact"));
    assert!(matches!(&conditions.paths[1], PathCondition::Prefix(path) if **path == *"/api"));
    assert!(matches!(&conditions.paths[2], PathCondition::Regex(_)));
    let names: Vec<&str> = conditions.headers.iter().map(|header| &*header.name).collect();
    assert_eq!(names, ["x-b", "x-a", "x-c", "x-d"]);
    assert!(matches!(conditions.headers[0].value, ValueCondition::Present));
    assert!(matches!(conditions.headers[2].value, ValueCondition::Absent));
    assert!(matches!(conditions.headers[3].value, ValueCondition::Matches(_)));
    assert_eq!((conditions.query.len(), conditions.sources.len()), (1, 1));
    let changes = [
        RouteChange::ReplacePrefix { prefix: "/api".into(), replacement: "/v1".into() },
        RouteChange::RemoveRequestHeader("cookie".into()),
        RouteChange::SetRequestHeader("x-env".into(), "prod".into()),
        RouteChange::AddRequestHeader("x-tag".into(), "1".into()),
    ];
    assert_eq!(api.changes, changes);
    let limit = &api.rate_limits[0];
    assert_eq!((limit.rate_per_s, limit.burst, limit.status), (1.5, 2, 429));
    assert_eq!((&limit.key, limit.keys_max), (&RateKey::Header("x-key".into()), 10_000));
    assert!(matches!(plan.routes[1].action, Action::Redirect { status: 301, .. }));
    assert!(matches!(plan.routes[2].action, Action::Return { status: 200, .. }));
    assert_eq!(plan.routes[3].action, Action::Deny(403));
    let tarpit = Action::Tarpit { delay_ns: 1_000_000_000, status: 404 };
    assert_eq!(plan.routes[4].action, tarpit);
    let names: Vec<&str> = plan.routes[1..].iter().map(|route| &*route.name).collect();
    assert_eq!(names, ["route-2", "route-3", "route-4", "route-5", "listener-web"]);
    assert_eq!(plan.routes[5].conditions.listeners, [0]);
}

#[test]
fn every_problem_is_reported_at_once_in_the_files_order() {
    let text = "\
thread = 2
drain-timeout = 5
[listener.web]
bind = ['127.0.0.1:8080', 'nowhere']
pool = 'ap'
limits = { heads = '16k', headers = 1000 }
timeouts.head = '5 seconds'
[listener.'a b']
bind = 7
[[route]]
pool = 'app'
deny = 302
path = 'x'
set-request-header = { x-a = \"a\\nb\", connection = 'close' }
listener = 'wbe'
[[route]]
name = 'x'
redirect = { status = 300 }
header = { 'x y' = 'v', x-b = { regex = '(' } }
[[route]]
name = 'x'
rewrite-prefix = '/v1'
maxconn = 7
pool = 'app'
[pool.app]
servers = ['127.0.0.1:9001', '127.0.0.1:9001', { adress = '127.0.0.1:1' }]
balance = 'round'
";
    assert_problems(
        text,
        &[
            "1:1: 'thread' 'threads'",
            "2:17: 5 \"5s\" \"5ms\"",
            "4:27: 'nowhere' port",
            "5:8: 'ap' 'app' [pool.ap]",
            "6:12: 'heads' [listener.web.limits] 'head'",
            "6:37: 'headers' 1 128",
            "7:17: '5 seconds' unit",
            "8:11: 'a b'",
            "9:8: 'bind' 7",
            "12:1: deny pool",
            "12:8: 'deny' 400 599",
            "13:8: 'x' '/'",
            "14:30: \"a\\nb\": '\\n' 1",
            "14:38: 'connection'",
            "15:12: 'wbe' 'web'",
            "18:12: 'location' location =",
            "18:23: 'status' 301 308",
            "19:12: 'x y': 1",
            "19:41: '('",
            "20:1: 3 'x' 2",
            "22:18: rewrite-prefix path-prefix 0",
            "23:1: 'maxconn' [[route]] [pool.NAME]",
            "26:30: '127.0.0.1:9001'",
            "26:48: 'address'",
            "26:50: 'adress' [[pool.app.servers]]",
            "27:11: 'round' random-of-two, latency, round-robin",
        ],
    );
}

#[test]
fn problems_of_the_complete_plan_are_reported() {
    assert_problems("", &["1:1: [listener.NAME] bind"]);
    let twice = format!("{MINIMAL_CONFIG}[listener.b]\nbind = ['127.0.0.1:1', '127.0.0.1:8080']\n");
    assert_problems(&twice, &["6:24: 127.0.0.1:8080 web"]);
    let admin = format!("admin = '127.0.0.1:8080'\n{MINIMAL_CONFIG}");
    assert_problems(&admin, &["1:9: 127.0.0.1:8080 web"]);
    let control = format!("control = '/tmp/c.sock'\nadmin = 'unix:/tmp/c.sock'\n{MINIMAL_CONFIG}");
    assert_problems(&control, &["1:11: unix:/tmp/c.sock admin"]);
    let tcp = "[listener.db]\nbind = '127.0.0.1:1'\nmode = 'tcp'\n[[route]]\nlistener = 'db'\ndeny = true\n";
    assert_problems(tcp, &["3:8: tcp pool", "5:12: 'db' tcp"]);
    let nothing = format!("{MINIMAL_CONFIG}[[route]]\npath = '/'\n");
    assert_problems(&nothing, &["5:1: pool, redirect"]);
    let weights = MINIMAL_CONFIG.replace("'127.0.0.1:9001'", "{ address = '127.0.0.1:9001', weight = 0 }");
    assert_problems(&weights, &["4:11: weight 0"]);
    let logs = format!("[[log]]\nto = 'file:/x'\n[[log]]\nto = 'file:/x'\n{MINIMAL_CONFIG}");
    assert_problems(&logs, &["4:6: 'file:/x'"]);
    let few = format!("threads = 4\nconnections-max = 3\n{MINIMAL_CONFIG}");
    assert_problems(&few, &["2:19: 3 4 threads"]);
    let user = format!("[privileges]\nuser = '4294967294'\n{MINIMAL_CONFIG}");
    assert_problems(&user, &["2:8: 4294967294 /etc/passwd"]);
}

#[test]
fn a_removal_by_the_start_of_names_leaves_the_framing_alone() {
    let text = format!(
        "{MINIMAL_CONFIG}[[route]]\ndeny = true\nremove-request-header = ['x-in*', '*', 'Content-*', 'ho*', 'x y*']\n"
    );
    assert_problems(
        &text,
        &[
            "7:35: '*' 'connection'",
            "7:40: 'Content-*' 'content-length'",
            "7:53: 'ho*' 'host'",
            "7:60: 'x y': 1",
        ],
    );
}

#[test]
fn syntax_errors_are_reported_with_the_other_problems() {
    let text = "threads = 0\nadmin = \n[listener.web]\nbind = 'x\n[listener.web]\nbnd = ''\n";
    let actual = problems(text);
    assert_messages(&actual[..1], &["1:11: 'threads' 1 1024"]);
    assert!(actual.iter().any(|problem| problem.starts_with("2:")), "{actual:#?}");
    assert!(actual.iter().any(|problem| problem.starts_with("4:")), "{actual:#?}");
    assert!(!actual.iter().any(|problem| problem.contains("missing: write")), "{actual:#?}");
    let twice = format!("{MINIMAL_CONFIG}[pool.app]\nservers = ['127.0.0.1:2']\n");
    assert_messages(&problems(&twice)[..1], &["5:7: duplicate"]);
    let header = problems("threads = 0\n[listener.web\nbnd = 1\n");
    assert!(header[0].starts_with("1:11: 'threads'") && header[1].starts_with("2:"), "{header:#?}");
    assert_eq!(header.len(), 2);
    // A duplicate key hides no other problems.
    let actual = problems(&format!("{MINIMAL_CONFIG}reuse = 'safe'\nreuse = 'safe'\n[[route]]\n"));
    assert_messages(&actual[..2], &["6:1: duplicate", "7:1: pool"]);
}

#[test]
fn likely_mistakes_are_warnings() {
    let routes = "[[route]]\npath = '/a'\npool = 'app'\n[[route]]\nname = 'all'\npool = 'app'\n\
                  [[route]]\npath = '/b'\npool = 'app'\n";
    let actual = warnings(&format!("{MINIMAL_CONFIG}{routes}"));
    assert_messages(&actual, &["11:1: 'route-3' 'all'"]);
    let own = MINIMAL_CONFIG.replace("[pool", "pool = 'app'\n[pool");
    let actual = warnings(&format!("{own}[[route]]\npath-prefix = '/'\ndeny = true\n"));
    assert_messages(&actual, &["3:8: 'listener-web' 'route-1'"]);
    assert_messages(&warnings(MINIMAL_CONFIG), &["1:11: 'web' 404", "3:7: 'app'"]);
    let tcp = own.replace("pool = 'app'", "pool = 'app'\nmode = 'tcp'\nconnect = true");
    assert_messages(&warnings(&tcp), &["5:1: 'connect' tcp"]);
    let odd = "[[route]]\nmethod = 'get'\nrewrite-path = '/x'\ndeny = true\n";
    let actual = warnings(&format!("{own}{odd}"));
    assert_messages(&actual[..2], &["7:10: 'GET'", "8:1: 'rewrite-path' deny"]);
    let proxy = own.replace("pool = 'app'", "pool = 'app'\nproxy-protocol = true");
    assert_messages(&warnings(&proxy)[..1], &["4:18: trusted"]);
}

#[test]
fn a_route_behind_others_on_each_of_its_listeners_never_matches() {
    let text = "[listener.a]\nbind = '127.0.0.1:1'\n[listener.b]\nbind = '127.0.0.1:2'\n\
                [[route]]\nlistener = 'a'\ndeny = true\n[[route]]\npath = '/x'\ndeny = true\n\
                [[route]]\nlistener = 'b'\ndeny = true\n[[route]]\npath = '/y'\ndeny = true\n";
    assert_messages(&warnings(text), &["14:1: 'route-4' 'route-3'"]);
}

#[test]
fn a_namespace_must_exist() {
    let text = MINIMAL_CONFIG.replace("[pool", "namespace = 'none-such'\n[pool");
    let text = text + "namespace = '/proc/self/ns/net'\n";
    let actual = problems(&text);
    assert_messages(&actual, &["3:13: /var/run/netns/none-such"]);
    let plan = plan(&text.replace("none-such", "/proc/self/ns/net"));
    assert_eq!(plan.listeners[0].namespace, Some(PathBuf::from("/proc/self/ns/net")));
}

#[test]
fn a_pool_in_a_namespace_needs_root() {
    let text = format!("{MINIMAL_CONFIG}namespace = '/proc/self/ns/net'\n[privileges]\nuser = ");
    let actual = problems(&format!("{text}'65534'\ngroup = '65534'\n"));
    assert_messages(&actual, &["5:13: 'app' namespace"]);
    plan(&format!("{text}'root'\n"));
}

#[test]
fn source_addresses_are_of_this_host_and_reach_every_server() {
    let sources =
        |text: &str| plan(&format!("{MINIMAL_CONFIG}source = {text}\n")).pools[PoolId(0)].sources.clone();
    assert_eq!(sources("'127.0.0.2'"), [IpAddr::from([127, 0, 0, 2])]);
    let both = ["127.0.0.3".parse::<IpAddr>().unwrap(), "::1".parse().unwrap()];
    assert_eq!(sources("['127.0.0.3', '::1']"), both);
    assert!(plan(MINIMAL_CONFIG).pools[PoolId(0)].sources.is_empty());
    let source_problems = |text: &str| problems(&format!("{MINIMAL_CONFIG}source = {text}\n"));
    let check = |text: &str, expected: &[&str]| assert_messages(&source_problems(text), expected);
    let foreign = "5:24: no interface has the address 192.0.2.1";
    check("['127.0.0.2', '192.0.2.1']", &[foreign]);
    check("'127.0.0.2:0'", &["5:10: '127.0.0.2:0' without a port"]);
    check("'localhost'", &["5:10: 'localhost' IP address"]);
    check(
        "['0.0.0.0', '224.0.0.1', '255.255.255.255', '::', 'ff02::1', 'fe80::1']",
        &[
            "5:11: 0.0.0.0 interface",
            "5:22: 224.0.0.1",
            "5:35: 255.255.255.255",
            "5:54: ::",
            "5:60: ff02::1",
            "5:71: fe80::1",
        ],
    );
    check("'::ffff:127.0.0.1'", &["5:10: IPv4-mapped"]);
    check("['127.0.0.2', '127.0.0.2']", &["5:24: 127.0.0.2 duplicate"]);
    check("'::1'", &["5:10: 'app' 127.0.0.1:9001 IPv4"]);
    // The address of a health check is a target, too.
    let checked = "'127.0.0.2'\ncheck = { type = 'tcp', address = '[::1]:1' }";
    check(checked, &["5:10: [::1]:1 IPv6"]);
    let unix = MINIMAL_CONFIG.replace("127.0.0.1:9001", "unix:/tmp/none") + "source = '127.0.0.2'\n";
    assert_messages(&warnings(&unix), &["1:11: 'web'", "3:7: 'app'", "5:10: 'app' unix"]);
    let many: Vec<String> =
        (1..=300).map(|number| format!("'127.0.{}.{}'", number / 200, number % 200 + 1)).collect();
    let problems = source_problems(&format!("[{}]", many.join(", ")));
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("more than 256"), "{problems:?}");
}

#[test]
fn names_are_looked_up_in_the_family_of_the_source_addresses() {
    let named = MINIMAL_CONFIG.replace("127.0.0.1:9001", "app.internal:80");
    let prefer = |text: &str| plan(&format!("{named}{text}\n")).pools[PoolId(0)].resolve.prefer;
    assert_eq!(prefer("source = '::1'"), PreferredFamily::Ipv6);
    assert_eq!(prefer("source = ['::1', '127.0.0.2']"), PreferredFamily::Ipv4);
    assert_eq!(prefer("source = '127.0.0.2'"), PreferredFamily::Ipv4);
    assert_eq!(prefer(""), PreferredFamily::Ipv4);
    let contrary = format!("{named}source = '::1'\nresolve = {{ prefer = 'ipv4' }}\n");
    assert_problems(&contrary, &["5:10: 'app' IPv4 resolve.prefer"]);
}

#[test]
fn no_text_causes_a_panic() {
    let mut random = fastrand::Rng::with_seed(11);
    let pieces: Vec<&str> = FULL_CONFIG.split_inclusive([' ', '\n', '"', '=', '.', ',']).collect();
    for _ in 0..300 {
        let count = random.usize(0..pieces.len());
        let from = random.usize(0..pieces.len());
        let mut text: Vec<&str> = pieces.iter().cycle().skip(from).take(count).copied().collect();
        if !text.is_empty() {
            let (at, piece) = (random.usize(0..text.len()), random.usize(0..pieces.len()));
            text[at] = pieces[piece];
        }
        // Either result is fine; each problem must have a position.
        if let Err(problems) = parse("t", &text.concat()) {
            assert!(problems.iter().all(|problem| problem.location.starts_with("t:")));
        }
    }
}

/// Returns the examples of the page of features, each with the title of its section.
fn feature_examples() -> Vec<(String, String)> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/features.md");
    let page = std::fs::read_to_string(page).unwrap();
    let sections = page.split("\n## ").skip(1);
    let examples = sections.map(|section| {
        let title = section.lines().next().unwrap().to_owned();
        let code = section.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
        (title, code.unwrap_or_else(|| panic!("no example")).to_owned())
    });
    examples.collect()
}

#[test]
fn each_feature_of_the_table_has_a_valid_example() {
    const REST: &str = "\n[listener.web]\nbind = '127.0.0.1:0'\npool = 'app'\n[pool.app]\nservers = ['127.0.0.1:9001', '127.0.0.1:9002']\n";
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/features.md");
    let page = std::fs::read_to_string(page).unwrap();
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("networks.txt"), "10.0.0.0/8\n").unwrap();
    for (name, content) in
        [("sorry.html", "<p>{status}"), ("sorry.json", "{}"), ("robots.txt", "User-agent: *\n")]
    {
        std::fs::write(directory.path().join(name), content).unwrap();
    }
    std::fs::write(directory.path().join("hosts.map"), "a.example.org gold\n").unwrap();
    std::fs::write(directory.path().join("keys.txt"), "secret-1\n").unwrap();
    crate::private_file::replace(&directory.path().join("sticky.key"), b"0123456789abcdef\n").unwrap();
    let users = directory.path().join("users");
    std::fs::write(&users, crate::auth::jwks::fixtures::FILES[0].1).unwrap();
    std::fs::set_permissions(&users, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::write(directory.path().join("sites-a.toml"), "[[route]]\nhost = 'a'\ndeny = true\n").unwrap();
    TestCertificates::write_authority(directory.path());
    std::fs::create_dir(directory.path().join("acme")).unwrap();
    let examples = feature_examples();
    let rows = page.lines().filter(|line| line.starts_with("| [")).count();
    assert!(rows == examples.len() && rows >= 18, "{rows} rows, {} examples", examples.len());
    for (title, example) in examples {
        let anchor = title.to_lowercase().replace(' ', "-");
        assert!(page.contains(&format!("| [{title}](#{anchor}) |")), "{title}");
        let text = format!("{example}{REST}").replace("/etc/weir", directory.path().to_str().unwrap());
        let parsed = parse("t", &text).unwrap_or_else(|problems| panic!("{title}: {problems:#?}"));
        // An unconditional route hides that of the listener.
        let others = parsed.warnings.iter().filter(|warning| !warning.text.contains("never"));
        assert_eq!(others.count(), 0, "{title}: {:?}", parsed.warnings);
    }
}
