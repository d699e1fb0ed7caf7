//! Rows that are not conversations, because the proxy chooses the server or sends requests by
//! itself. Each is its own test, found by its name.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;

use crate::support::faulty_origins::{GatedServer, echoing_server, field, ok_response, respond_to_each};
use crate::support::metrics::{CHECKS, REQUESTS, SERVER_STATE};
use crate::support::peers::ScriptedServer;
use crate::support::proxy_under_test::{EVENT_TIMEOUT, ProxyUnderTest};
use crate::support::{run_weir, within};

/// Test functions by name.
pub(super) const PROGRAMS: &[(&str, fn())] = &[
    ("the_path_of_a_url_is_the_key", the_path_of_a_url_is_the_key),
    ("a_full_server_leaves_its_key_to_another", a_full_server_leaves_its_key_to_another),
    ("a_cookie_is_found_in_any_field", a_cookie_is_found_in_any_field),
    (
        "named_servers_have_their_keys_in_every_pool_and_process",
        named_servers_have_their_keys_in_every_pool_and_process,
    ),
    (
        "addresses_have_their_keys_in_every_pool_and_process",
        addresses_have_their_keys_in_every_pool_and_process,
    ),
    ("each_pool_has_its_own_maintenance", each_pool_has_its_own_maintenance),
    ("only_pools_with_a_check_are_checked", only_pools_with_a_check_are_checked),
    ("each_request_has_one_id", each_request_has_one_id),
    ("a_tcp_line_has_the_client", a_tcp_line_has_the_client),
];

const CONFIG_HEAD: &str = "threads = 1\nadmin = \"127.0.0.1:0\"\ncontrol = \"HOME/weir.sock\"\n\
                   [[log]]\nto = \"file:HOME/access.json\"\n[listener.web]\nbind = \"127.0.0.1:0\"\n";
const NAMES: [&str; 4] = ["a", "b", "d", "e"];

fn four_servers() -> Vec<ScriptedServer> {
    NAMES.map(echoing_server).into()
}

/// Formats servers as a list of a config.
fn server_list(servers: &[ScriptedServer]) -> String {
    let named = NAMES.iter().zip(servers);
    let listed =
        named.map(|(name, server)| format!("{{ name = \"{name}\", address = \"{}\" }}", server.authority));
    listed.collect::<Vec<_>>().join(", ")
}

/// Returns the name of the server that responds to a request line with these fields.
fn responding_server(proxy: &ProxyUnderTest, target: &str, fields: &str) -> String {
    let response = proxy.client().get_with_fields(target, &format!("Host: t\r\n{fields}"));
    assert_eq!(response.status, 200, "{target} {fields}: {}", response.head);
    let body = String::from_utf8(response.body).unwrap();
    body.lines().next().unwrap_or("").to_owned()
}

fn by_key(servers: &[ScriptedServer], key: &str) -> ProxyUnderTest {
    ProxyUnderTest::weir(&format!(
        "{CONFIG_HEAD}pool = \"app\"\n[pool.app]\nservers = [{}]\nbalance = \"consistent-hash\"\n\
         hash = {{ key = \"{key}\" }}\n",
        server_list(servers)
    ))
}

fn the_path_of_a_url_is_the_key() {
    let servers = four_servers();
    let proxy = by_key(&servers, "path");
    let mut used = BTreeSet::new();
    for number in 0..40 {
        let forms = [format!("/url{number}"), format!("http://t/url{number}"), format!("/url{number}?x=y")];
        let got: BTreeSet<String> = forms.iter().map(|form| responding_server(&proxy, form, "")).collect();
        assert_eq!(got.len(), 1, "{forms:?}: {got:?}");
        used.extend(got);
    }
    assert_eq!(used.len(), 4, "{used:?}");
}

fn a_full_server_leaves_its_key_to_another() {
    let (first, second) = (GatedServer::start(), GatedServer::start());
    let servers: Vec<String> = [&first, &second]
        .map(|gated| format!("{{ address = \"{}\", maxconn = 1 }}", gated.server.authority))
        .into();
    let proxy = ProxyUnderTest::weir(&format!(
        "{CONFIG_HEAD}pool = \"app\"\n[pool.app]\nservers = [{}]\nbalance = \"consistent-hash\"\n\
         hash = {{ key = \"path\", load-factor = 100 }}\nqueue = {{ timeout = \"20s\" }}\n",
        servers.join(", ")
    ));
    let mut clients = [proxy.client(), proxy.client()];
    for client in &mut clients {
        client.send(b"GET /test-url HTTP/1.1\r\nHost: t\r\n\r\n");
    }
    assert_eq!([first.next_target(), second.next_target()], ["/test-url", "/test-url"]);
    first.admit_one();
    second.admit_one();
    for client in &mut clients {
        assert_eq!(client.read_response().expect("a response").status, 200);
    }
}

fn a_cookie_is_found_in_any_field() {
    let servers = four_servers();
    let proxy = by_key(&servers, "cookie:user");
    let mut used = BTreeSet::new();
    for number in 0..40 {
        let forms = [
            format!("Cookie: user={number}\r\n"),
            format!("Cookie: a=0; user={number}; b=22\r\n"),
            format!("Cookie: a=0; b=123\r\nCookie: d=1; user={number}\r\n"),
        ];
        let got: BTreeSet<String> = forms.iter().map(|form| responding_server(&proxy, "/", form)).collect();
        assert_eq!(got.len(), 1, "{forms:?}: {got:?}");
        used.extend(got);
    }
    assert_eq!(used.len(), 4, "{used:?}");
}

/// Asserts that two processes with two pools each agree on keys, although each lists the servers in
/// another order.
fn assert_keys_agree(listed: impl Fn(&str, &ScriptedServer) -> String) {
    let servers = four_servers();
    let mut all: Vec<String> =
        NAMES.iter().zip(&servers).map(|(name, server)| listed(name, server)).collect();
    let proxy = |first: &str, second: &str| {
        let pool = |name: &str, servers: &str| {
            format!(
                "[[route]]\npath = \"/{name}\"\npool = \"{name}\"\n[pool.{name}]\n\
                 servers = [{servers}]\nbalance = \"consistent-hash\"\nhash = {{ key = \"header:client\" }}\n"
            )
        };
        ProxyUnderTest::weir(&format!("{CONFIG_HEAD}{}{}", pool("be1", first), pool("be2", second)))
    };
    let mut orders = Vec::new();
    for _ in 0..4 {
        orders.push(all.join(", "));
        all.rotate_left(1);
    }
    let proxies = [proxy(&orders[0], &orders[1]), proxy(&orders[2], &orders[3])];
    let mut used = BTreeMap::new();
    for client in 0..40 {
        let fields = format!("Client: c{client}\r\n");
        let cases = proxies.iter().flat_map(|proxy| ["/be1", "/be2"].map(|target| (proxy, target)));
        let got: BTreeSet<String> =
            cases.map(|(proxy, target)| responding_server(proxy, target, &fields)).collect();
        assert_eq!(got.len(), 1, "{client}: {got:?}");
        *used.entry(got).or_insert(0) += 1;
    }
    assert_eq!(used.len(), 4, "{used:?}");
}

fn named_servers_have_their_keys_in_every_pool_and_process() {
    assert_keys_agree(|name, server| format!("{{ name = \"{name}\", address = \"{}\" }}", server.authority));
}

fn addresses_have_their_keys_in_every_pool_and_process() {
    assert_keys_agree(|_, server| format!("\"{}\"", server.authority));
}

/// Formats a route and a pool for each of these servers.
fn pool_for_each(servers: &[ScriptedServer], more: impl Fn(usize) -> &'static str) -> String {
    let pools = servers.iter().enumerate().map(|(index, server)| {
        format!(
            "[[route]]\npath = \"/{index}\"\npool = \"be{index}\"\n[pool.be{index}]\n\
             servers = [{{ name = \"s\", address = \"{}\" }}]\n{}\n",
            server.authority,
            more(index)
        )
    });
    pools.collect()
}

const CHECK: &str = "check = { type = \"tcp\", interval = \"50ms\" }";

fn each_pool_has_its_own_maintenance() {
    let servers = four_servers();
    let proxy = ProxyUnderTest::weir(&format!("{CONFIG_HEAD}{}", pool_for_each(&servers, |_| CHECK)));
    let set = |pool: usize, state: &str| {
        let socket = proxy.file("weir.sock");
        let server = format!("be{pool}/s");
        let output = run_weir(&["ctl", "--socket", socket.to_str().unwrap(), "server", &server, state]);
        assert_eq!(output.code, 0, "{output:?}");
    };
    let status = |pool: usize| proxy.get(&format!("/{pool}")).status;
    for pool in 0..4 {
        let name = format!("be{pool}");
        let passed = [("pool", name.as_str()), ("result", "passed")];
        proxy.metrics_until("it is checked", |metrics| metrics.sum_known(CHECKS, &passed) >= 2.0);
        assert_eq!(status(pool), 200);
        set(pool, "maint");
        assert_eq!(status(pool), 503, "{pool}");
        for other in (0..4).filter(|other| *other != pool) {
            assert_eq!(status(other), 200, "{other} beside {pool}");
        }
        set(pool, "ready");
        assert!(within(EVENT_TIMEOUT, || status(pool) == 200), "{pool} is not back");
        let up = [("pool", name.as_str()), ("state", "up")];
        proxy.metrics_until("it is up", |metrics| metrics.sum_known(SERVER_STATE, &up) == 1.0);
    }
}

fn only_pools_with_a_check_are_checked() {
    let servers: Vec<ScriptedServer> =
        (0..20).map(|_| respond_to_each(|_, _| Some(ok_response(b"here")))).collect();
    let more = |index: usize| if index % 2 == 1 { CHECK } else { "" };
    let proxy = ProxyUnderTest::weir(&format!("{CONFIG_HEAD}{}", pool_for_each(&servers, more)));
    for index in 0..20 {
        assert_eq!(proxy.get(&format!("/{index}")).status, 200);
    }
    let checks = |index: usize| {
        let pool = format!("be{index}");
        proxy.metrics().sum(CHECKS, &[("pool", pool.as_str()), ("result", "passed")])
    };
    for index in (1..20).step_by(2) {
        assert!(within(EVENT_TIMEOUT, || checks(index) >= 2.0), "pool {index} is not checked");
    }
    for index in (0..20).step_by(2) {
        let before = (checks(index), servers[index].connections());
        assert_eq!(before, (0.0, 1), "pool {index} is checked");
    }
    let requests = proxy.metrics().sum_known(REQUESTS, &[("listener", "web")]);
    assert!((requests - 20.0).abs() < f64::EPSILON, "{requests} requests");
}

fn each_request_has_one_id() {
    let server = echoing_server("a");
    let proxy = ProxyUnderTest::weir(&format!(
        "{CONFIG_HEAD}pool = \"app\"\n[pool.app]\nservers = [\"{}\"]\n",
        server.authority
    ));
    let mut ids = BTreeSet::new();
    let mut client = proxy.client();
    for number in 0..20 {
        let target = format!("/request-{number}-");
        let body = String::from_utf8(client.get(&target).body).unwrap();
        let sent = field(&body, "x-request-id").expect("an id");
        let line = proxy.wait_for_lines_with("access.json", &target, 1).remove(0);
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["request_id"], sent.as_str(), "{line}");
        ids.insert(sent);
    }
    assert_eq!(ids.len(), 20, "{ids:?}");
}

fn a_tcp_line_has_the_client() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = ProxyUnderTest::weir(&format!(
        "{CONFIG_HEAD}mode = \"tcp\"\npool = \"app\"\n[pool.app]\nservers = [{{ name = \"a\", address = \"{}\" }}]\n",
        server.local_addr().unwrap()
    ));
    let mut client = proxy.client();
    client.send(b"GET / HTTP/1.1\r\n\r\n");
    let port = client.stream.local_addr().unwrap().port();
    drop(server.accept().unwrap());
    assert!(client.read_to_end().is_empty());
    drop(client);
    let line = proxy.wait_for_lines("access.json", 1).remove(0);
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    let actual = (&line["client"], &line["client_port"], &line["listener"], &line["server"]);
    assert_eq!(actual, (&"127.0.0.1".into(), &port.into(), &"web".into(), &"a".into()), "{line}");
}
