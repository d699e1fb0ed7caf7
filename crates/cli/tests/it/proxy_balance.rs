//! Tests of the load balancing of `weir proxy`, by the requests that each server got: every
//! algorithm, backups, keys, and sticky cookies with curl's own cookie jar. `proxy_config/balance`
//! has round robin with weights and the default. The tests assert no times, only which server got a
//! request.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::net::TcpStream;
use std::process::Command;

use crate::support::client::{Client, Response};
use crate::support::faulty_origins::{
    GatedServer, RefusingPort, echoing_server, field, ok_response, respond_to_each,
};
use crate::support::peers::ScriptedServer;
use crate::support::proxy_under_test::{EVENT_TIMEOUT, ProxyUnderTest};
use crate::support::timing::assert_timing;
use crate::support::{pause_ms, run_weir, shared_machine, within};

const STICKY: &str = "weir_sticky_requests_total";
const HASH_OVERFLOWS: &str = "weir_hash_overflow_total";
const STICKY_KEY: &str = "a key that only these tests know";

fn config(threads: usize, servers: &str, more: &str) -> String {
    format!(
        "threads = {threads}\nadmin = \"127.0.0.1:0\"\n\
         [[log]]\nto = \"file:HOME/access.json\"\n\
         [listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         [pool.app]\nservers = [{servers}]\n{more}\n"
    )
}

fn start_proxy(threads: usize, servers: &str, more: &str) -> ProxyUnderTest {
    ProxyUnderTest::weir(&config(threads, servers, more))
}

/// Formats a server with its name and further keys.
fn server_table(name: &str, authority: &str, more: &str) -> String {
    format!("{{ name = \"{name}\", address = \"{authority}\"{more} }}")
}

fn server_tables(all: &[(&str, &ScriptedServer)]) -> String {
    let all = all.iter().map(|(name, server)| server_table(name, &server.authority, ""));
    all.collect::<Vec<_>>().join(", ")
}

/// Sends one request with these field lines; returns the server's name and the response.
fn send_request(client: &mut Client, target: &str, fields: &str) -> (String, Response) {
    client.send(format!("GET {target} HTTP/1.1\r\nHost: test\r\n{fields}\r\n").as_bytes());
    let response = client.read_response().expect("a response");
    let body = String::from_utf8_lossy(&response.body).into_owned();
    (body.lines().next().unwrap_or_default().to_owned(), response)
}

/// Sends requests one after the other; returns the number of requests of each server.
fn requests_by_server(
    proxy: &ProxyUnderTest,
    requests: usize,
    target: &str,
    fields: &str,
) -> BTreeMap<String, usize> {
    let mut client = proxy.client();
    let mut got = BTreeMap::new();
    for _ in 0..requests {
        *got.entry(send_request(&mut client, target, fields).0).or_default() += 1;
    }
    got
}

/// Sends a request without waiting for its response.
fn send_without_reading(proxy: &ProxyUnderTest, fields: &str) -> TcpStream {
    let mut stream = TcpStream::connect(proxy.authority()).unwrap();
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: t\r\n{fields}\r\n").as_bytes()).unwrap();
    stream
}

/// Sends requests until one is at the gate; each other one has its response before the next is sent.
/// Returns their connections.
fn send_until_gated(proxy: &ProxyUnderTest, gated: &GatedServer) -> Vec<TcpStream> {
    let mut sent = Vec::new();
    let is_asked = within(EVENT_TIMEOUT, || {
        let stream = send_without_reading(proxy, "Connection: close\r\n");
        stream.set_read_timeout(Some(std::time::Duration::from_millis(5))).unwrap();
        let mut is_gated = false;
        let settled = within(EVENT_TIMEOUT, || {
            is_gated = gated.arrivals.try_recv().is_ok();
            is_gated || stream.peek(&mut [0]).is_ok()
        });
        sent.push(stream);
        settled && is_gated
    });
    assert!(is_asked, "{} requests, and none for the gated server", sent.len());
    sent
}

/// Returns the output of `--explain` for the config of a running proxy.
fn explain_output(proxy: &ProxyUnderTest, header: &str) -> String {
    let path = proxy.file("weir.toml");
    let flags = ["proxy", "--config", path.to_str().unwrap(), "--explain", "/"];
    let output = run_weir(&[&flags[..], &["--header", header]].concat());
    assert_eq!(output.code, 0, "{output:?}");
    output.stdout
}

/// Returns the server that a key belongs to.
fn server_of_key(proxy: &ProxyUnderTest, header: &str) -> String {
    let explanation = explain_output(proxy, header);
    let line = explanation.lines().find_map(|line| line.split_once(": belongs to "));
    line.expect(&explanation).1.to_owned()
}

#[test]
fn every_balance_uses_all_servers_by_weight() {
    let _shared = shared_machine();
    let (a, b, none) = (echoing_server("a"), echoing_server("b"), echoing_server("none"));
    let weighted = [
        server_table("a", &a.authority, ", weight = 3"),
        server_table("b", &b.authority, ""),
        server_table("none", &none.authority, ", weight = 0"),
    ];
    for balance in ["random-of-two", "least-connections", "consistent-hash", "latency"] {
        // The key is a field that no client sends. Without a key, a hash takes the better of two.
        let more = format!("balance = \"{balance}\"\nhash = {{ key = \"header:x-none\" }}");
        let got = requests_by_server(&start_proxy(1, &weighted.join(", "), &more), 800, "/", "");
        let a = got.get("a").copied().unwrap_or(0);
        let b = got.get("b").copied().unwrap_or(0);
        assert_eq!(a + b, 800, "{balance}: {got:?}");
        assert!(a > 0 && b > 0, "{balance}: {got:?}");
        // 600 is expected, with a standard deviation of 12. With `latency` it depends on the
        // servers' speed.
        assert!(balance == "latency" || (520..680).contains(&a), "{balance}: {got:?}");
    }
    assert_eq!(none.connections(), 0);
}

#[test]
fn flags_have_every_balance() {
    let _shared = shared_machine();
    let (a, b) = (echoing_server("a"), echoing_server("b"));
    let to = format!("{},{}", a.authority, b.authority);
    for (balance, servers) in [("least-connections", 2), ("latency", 2), ("first", 1)] {
        let flags = ["--listen", "127.0.0.1:0", "--to", &to, "--balance", balance];
        let got = requests_by_server(&ProxyUnderTest::weir_with_flags(&flags), 60, "/", "");
        assert_eq!(got.len(), servers, "{balance}: {got:?}");
    }
    let flags = ["--listen", "127.0.0.1:0", "--to", &to, "--balance", "consistent-hash"];
    assert_eq!(requests_by_server(&ProxyUnderTest::weir_with_flags(&flags), 60, "/", "").len(), 1);
}

#[test]
fn a_slow_server_gets_few_by_latency() {
    let _shared = shared_machine();
    let fast = echoing_server("fast");
    let slow = respond_to_each(|_, _| {
        pause_ms(300);
        Some(ok_response(b"slow"))
    });
    let proxy = start_proxy(1, &server_tables(&[("f", &fast), ("s", &slow)]), "balance = \"latency\"");
    let got = requests_by_server(&proxy, 200, "/", "");
    let slow = got.get("slow").copied().unwrap_or(0);
    // By chance it would be 100; at least one request measures its latency.
    assert!(slow >= 1, "{got:?}");
    assert_timing(slow < 50, "less than half of what chance gives to a server that is slow", &got);
}

#[test]
fn a_server_that_fails_at_once_gets_few_by_latency() {
    let _shared = shared_machine();
    let fine = respond_to_each(|_, _| {
        pause_ms(2);
        Some(ok_response(b"fine"))
    });
    let broken = respond_to_each(|_, _| Some(b"HTTP/1.1 503 No\r\nContent-Length: 6\r\n\r\nbroken".to_vec()));
    let proxy = start_proxy(1, &server_tables(&[("f", &fine), ("b", &broken)]), "balance = \"latency\"");
    let got = requests_by_server(&proxy, 200, "/", "");
    assert!((1..50).contains(&got.get("broken").copied().unwrap_or(0)), "{got:?}");
}

#[test]
fn least_connections_leaves_the_busy_alone() {
    let _shared = shared_machine();
    let (gated, a, b) = (GatedServer::start(), echoing_server("a"), echoing_server("b"));
    let all = [("gated", &gated.server), ("a", &a), ("b", &b)];
    let proxy = start_proxy(1, &server_tables(&all), "balance = \"least-connections\"");
    let stuck = send_until_gated(&proxy, &gated);
    let got = requests_by_server(&proxy, 200, "/", "");
    assert_eq!(got.values().sum::<usize>(), 200);
    assert!(got.len() == 2 && got["a"] > 50 && got["b"] > 50, "{got:?}");
    gated.admit_one();
    drop(stuck);
}

#[test]
fn first_fills_in_order() {
    let _shared = shared_machine();
    let (gated, b, c) = (GatedServer::start(), echoing_server("b"), echoing_server("c"));
    let all = [
        server_table("gated", &gated.server.authority, ", maxconn = 1"),
        server_table("b", &b.authority, ", maxconn = 5"),
        server_table("c", &c.authority, ", maxconn = 5"),
    ];
    let proxy = start_proxy(2, &all.join(", "), "balance = \"first\"");
    let stuck = send_without_reading(&proxy, "");
    assert_eq!(gated.next_target(), "/");
    let got = requests_by_server(&proxy, 50, "/", "");
    assert_eq!(got, BTreeMap::from([("b".to_owned(), 50)]));
    gated.admit_one();
    // As soon as the first server has a free slot, it gets requests again.
    let again = send_until_gated(&proxy, &gated);
    assert_eq!(c.connections(), 0);
    drop((stuck, again));
}

#[test]
fn backups_wait_for_the_others_to_be_away_and_not_full() {
    let _shared = shared_machine();
    let (gated, spare) = (GatedServer::start(), echoing_server("spare"));
    let all = |weight: u32| {
        let own = format!(", maxconn = 1, weight = {weight}");
        [
            server_table("own", &gated.server.authority, &own),
            server_table("spare", &spare.authority, ", backup = true"),
        ]
        .join(", ")
    };
    let more = "queue = { limit = 1, timeout = \"20ms\" }";
    let proxy = start_proxy(1, &all(1), more);
    let stuck = send_without_reading(&proxy, "");
    assert_eq!(gated.next_target(), "/");
    assert_eq!(proxy.get("/").status, 503);
    assert_eq!(spare.connections(), 0);
    proxy.reload(&config(1, &all(0), more));
    assert!(within(EVENT_TIMEOUT, || proxy.get("/").status == 200), "the backup is never asked");
    assert_eq!(requests_by_server(&proxy, 20, "/", ""), BTreeMap::from([("spare".to_owned(), 20)]));
    drop(stuck);
}

#[test]
fn a_key_has_its_server_on_every_thread_and_in_every_process() {
    let _shared = shared_machine();
    let all = [echoing_server("a"), echoing_server("b"), echoing_server("c")];
    let named = [("a", &all[0]), ("b", &all[1]), ("c", &all[2])];
    let more = "balance = \"consistent-hash\"\nhash = { key = \"header:x-user\" }";
    let proxies =
        [start_proxy(2, &server_tables(&named), more), start_proxy(1, &server_tables(&named), more)];
    let mut belongs = BTreeMap::new();
    for user in 0..40 {
        let fields = format!("X-User: u{user}\r\n");
        let mut servers_seen = BTreeSet::new();
        for proxy in &proxies {
            for _ in 0..4 {
                servers_seen.insert(send_request(&mut proxy.client(), "/?x", &fields).0);
            }
        }
        assert_eq!(servers_seen.len(), 1, "{user}: {servers_seen:?}");
        belongs.insert(user, servers_seen.pop_first().unwrap());
    }
    let used: BTreeSet<&String> = belongs.values().collect();
    assert_eq!(used.len(), 3, "{belongs:?}");
    assert_eq!(server_of_key(&proxies[0], "x-user: u7"), belongs[&7]);
    proxies[0].metrics_until("nobody went elsewhere", |metrics| {
        metrics.sum_known(HASH_OVERFLOWS, &[("pool", "app")]) == 0.0
    });

    // One server is removed: only its own keys move.
    proxies[0].reload(&config(2, &server_tables(&named[..2]), more));
    let user_of_c = belongs.iter().find(|(_, server)| **server == "c").unwrap().0;
    let is_removed =
        || send_request(&mut proxies[0].client(), "/", &format!("X-User: u{user_of_c}\r\n")).0 != "c";
    assert!(within(EVENT_TIMEOUT, is_removed), "the reload is never done");
    for (user, before) in &belongs {
        let (now, _) = send_request(&mut proxies[0].client(), "/", &format!("X-User: u{user}\r\n"));
        assert!(now == *before || before == "c" && now != "c", "{user}: {before} {now}");
    }
}

#[test]
fn keys_are_paths_cookies_and_clients() {
    let _shared = shared_machine();
    let all = [echoing_server("a"), echoing_server("b"), echoing_server("c")];
    let named = [("a", &all[0]), ("b", &all[1]), ("c", &all[2])];
    let proxy = |key: &str| {
        let more = format!("balance = \"consistent-hash\"\nhash = {{ key = \"{key}\" }}");
        start_proxy(1, &server_tables(&named), &more)
    };
    let by_path = proxy("path");
    let mut used = BTreeSet::new();
    for number in 0..20 {
        let got = requests_by_server(&by_path, 3, &format!("/x/../p{number}?q={number}"), "");
        let same = requests_by_server(&by_path, 3, &format!("/p{number}"), "X-Any: 1\r\n");
        assert!(got.len() == 1 && got == same, "{number}: {got:?} {same:?}");
        used.extend(got.into_keys());
    }
    assert_eq!(used.len(), 3);
    let by_cookie = proxy("cookie:user");
    let mut used = BTreeSet::new();
    for number in 0..20 {
        let got = requests_by_server(&by_cookie, 3, "/", &format!("Cookie: a=b; user={number}\r\n"));
        assert_eq!(got.len(), 1, "{number}: {got:?}");
        used.extend(got.into_keys());
    }
    assert_eq!(used.len(), 3);
    assert_eq!(requests_by_server(&by_cookie, 60, "/", "Cookie: User=1\r\n").len(), 3, "it has no key");
    let by_client = proxy("source");
    let got: BTreeSet<String> = (0..20).map(|_| send_request(&mut by_client.client(), "/", "").0).collect();
    assert_eq!(got.len(), 1, "{got:?}");
}

#[test]
fn connections_of_mode_tcp_are_spread_by_client_and_by_latency() {
    let _shared = shared_machine();
    let all = [echoing_server("a"), echoing_server("b"), echoing_server("c")];
    let named = server_tables(&[("a", &all[0]), ("b", &all[1]), ("c", &all[2])]);
    for (balance, fewest, max) in [("consistent-hash", 1, 1), ("latency", 2, 3)] {
        // A connection may still count when the next one arrives, and the bound of two is one.
        let more = format!("balance = \"{balance}\"\nhash = {{ load-factor = 100 }}");
        let config = config(1, &named, &more).replace("pool = \"app\"", "pool = \"app\"\nmode = \"tcp\"");
        let proxy = ProxyUnderTest::weir(&config);
        let got: BTreeSet<String> = (0..40).map(|_| send_request(&mut proxy.client(), "/", "").0).collect();
        assert!((fewest..=max).contains(&got.len()), "{balance}: {got:?}");
    }
}

#[test]
fn a_key_that_everybody_has_is_bounded() {
    let _shared = shared_machine();
    let (gated, free) = (GatedServer::start(), echoing_server("free"));
    let all = [("gated", &gated.server), ("free", &free)];
    let more = "balance = \"consistent-hash\"\nhash = { key = \"header:x-user\" }";
    let proxy = start_proxy(1, &server_tables(&all), more);
    let hot = (0..100).map(|user| format!("x-user: u{user}"));
    let hot = { hot }.find(|user| server_of_key(&proxy, user) == "gated").expect("a key of one of two");
    let fields = format!("{hot}\r\n");
    // 1.25 times half of one is one, of two is two, of three is two.
    let stuck: Vec<TcpStream> = (0..2).map(|_| send_without_reading(&proxy, &fields)).collect();
    assert_eq!([gated.next_target(), gated.next_target()], ["/", "/"]);
    let got = requests_by_server(&proxy, 10, "/", &fields);
    assert_eq!(got, BTreeMap::from([("free".to_owned(), 10)]));
    proxy.metrics_until("those that went elsewhere are counted", |metrics| {
        metrics.sum_known(HASH_OVERFLOWS, &[("pool", "app")]) == 10.0
    });
    drop(stuck);
}

/// Pool options for sticky clients.
fn sticky_pool(more: &str) -> String {
    format!("balance = \"round-robin\"\nsticky = {{ cookie = \"SRV\", key = \"{STICKY_KEY}\"{more} }}")
}

/// Returns the cookie that a response sets, in the form of a request.
fn cookie(response: &Response) -> Option<String> {
    let set = field(&response.head, "set-cookie")?;
    Some(set.split(';').next().unwrap().to_owned())
}

/// Waits until so many requests had such a cookie.
fn wait_for_sticky(proxy: &ProxyUnderTest, expected: &[(&str, f64)]) {
    proxy.metrics_until(&format!("{expected:?}"), |metrics| {
        let count =
            |cookie_state: &str| metrics.sum_known(STICKY, &[("pool", "app"), ("cookie", cookie_state)]);
        expected.iter().all(|(cookie_state, number)| count(cookie_state) == *number)
    });
}

/// Runs curl with a cookie jar; returns its output.
fn curl(proxy: &ProxyUnderTest, jar: &str) -> String {
    let jar = proxy.file(jar);
    let url = format!("http://{}/", proxy.authority());
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "60", "-c"])
        .arg(&jar)
        .arg("-b")
        .arg(&jar)
        .arg(url)
        .output()
        .expect("curl");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn curl_sticks_to_its_server_and_servers_do_not_know() {
    let _shared = shared_machine();
    let all = [echoing_server("a"), echoing_server("b"), echoing_server("c")];
    let proxy =
        start_proxy(2, &server_tables(&[("a", &all[0]), ("b", &all[1]), ("c", &all[2])]), &sticky_pool(""));
    let mut firsts = BTreeSet::new();
    for jar in ["one", "two", "three", "four", "five", "six"] {
        let outputs: Vec<String> = (0..5).map(|_| curl(&proxy, jar)).collect();
        let names: BTreeSet<&str> = outputs.iter().map(|text| text.lines().next().unwrap()).collect();
        assert_eq!(names.len(), 1, "{outputs:?}");
        firsts.insert(names.into_iter().next().unwrap().to_owned());
        assert!(outputs.iter().all(|text| !text.contains("SRV") && !text.contains("ookie:")));
        let jar = std::fs::read_to_string(proxy.file(jar)).unwrap();
        assert!(jar.contains("#HttpOnly_") && jar.contains("SRV"), "{jar}");
    }
    assert!(firsts.len() > 1, "clients are balanced before they stick: {firsts:?}");
    let expected = [("hit", 24.0), ("missing", 6.0), ("invalid", 0.0), ("unknown", 0.0)];
    wait_for_sticky(&proxy, &expected);
    let all_output = [proxy.stdout(), proxy.stderr(), explain_output(&proxy, "a: b")].concat();
    let logged = proxy.wait_for_lines("access.json", 30).join("\n");
    assert!(!all_output.contains(STICKY_KEY) && !logged.contains(STICKY_KEY));
}

#[test]
fn a_cookie_is_set_once_with_its_attributes_and_good_in_every_process() {
    let _shared = shared_machine();
    let all = [echoing_server("a"), echoing_server("b")];
    let named = server_tables(&[("a", &all[0]), ("b", &all[1])]);
    let proxy = start_proxy(1, &named, &sticky_pool(""));
    let mut client = proxy.client();
    let (name, first) = send_request(&mut client, "/", "");
    let set = field(&first.head, "set-cookie").unwrap();
    assert!(set.ends_with("; Path=/; HttpOnly; SameSite=Lax"), "{set}");
    assert_eq!(field(&first.head, "cache-control").as_deref(), Some("private"));
    let own = cookie(&first).unwrap();
    assert!(!set.contains(&all[0].authority) && own.len() == "SRV=".len() + 32, "{set}");
    let cookie_fields = format!("Cookie: a=1; {own}; b=2\r\n");
    for _ in 0..5 {
        let (again, response) = send_request(&mut client, "/", &cookie_fields);
        assert_eq!((&again, cookie(&response)), (&name, None));
        assert!(String::from_utf8_lossy(&response.body).contains("Cookie: a=1; b=2\r\n"));
        assert_eq!(field(&response.head, "cache-control"), None);
    }
    // One more process has the same key, and a maximum age: it sets the cookie again each time.
    let other =
        start_proxy(1, &named, &sticky_pool(", max-age = \"1h\", secure = true, same-site = \"none\""));
    let mut client = other.client();
    for _ in 0..4 {
        let (again, response) = send_request(&mut client, "/", &cookie_fields);
        assert_eq!((&again, cookie(&response)), (&name, Some(own.clone())));
        let set = field(&response.head, "set-cookie").unwrap();
        assert!(set.ends_with("; Max-Age=3600; HttpOnly; Secure; SameSite=None"), "{set}");
    }
    assert!(explain_output(&proxy, &format!("Cookie: {own}")).contains(&format!(": names {name}\n")));
}

#[test]
fn a_cookie_that_is_tampered_with_chooses_nothing() {
    let _shared = shared_machine();
    let all = [echoing_server("a"), echoing_server("b")];
    let named = [("a", &all[0]), ("b", &all[1])];
    let proxy = start_proxy(1, &server_tables(&named), &sticky_pool(""));
    let mut client = proxy.client();
    let mut tokens = BTreeMap::new();
    while tokens.len() < 2 {
        let (name, response) = send_request(&mut client, "/", "");
        tokens.insert(name, cookie(&response).unwrap());
    }
    let (a_token, b_token) = (&tokens["a"], &tokens["b"]);
    let flipped = if a_token.ends_with('A') { "B" } else { "A" };
    let wrong = [
        "SRV=a".to_owned(),
        format!("SRV={}", all[0].authority),
        format!("{}{flipped}", &a_token[..a_token.len() - 1]),
        format!("{}{}", &a_token[..20], &b_token[20..]),
        format!("{a_token}A"),
    ];
    for cookie_line in &wrong {
        let mut servers_seen = BTreeSet::new();
        for _ in 0..2 {
            let (name, response) = send_request(&mut client, "/", &format!("Cookie: {cookie_line}\r\n"));
            // The servers alternate as without a cookie, and the client gets a valid one.
            assert_eq!(cookie(&response).as_ref(), Some(&tokens[&name]), "{cookie_line}");
            servers_seen.insert(name);
        }
        assert_eq!(servers_seen.len(), 2, "{cookie_line}");
    }
    wait_for_sticky(&proxy, &[("invalid", 10.0), ("hit", 0.0)]);

    // A cookie of a server that has left the config is valid, and has no effect.
    proxy.reload(&config(1, &server_tables(&named[..1]), &sticky_pool("")));
    let cookie_fields = format!("Cookie: {b_token}\r\n");
    let to_a = || send_request(&mut proxy.client(), "/", &cookie_fields).0 == "a";
    assert!(within(EVENT_TIMEOUT, to_a), "the reload is never done");
    proxy.metrics_until("it is counted", |metrics| {
        metrics.sum_known(STICKY, &[("pool", "app"), ("cookie", "unknown")]) >= 1.0
    });
}

#[test]
fn the_applications_cookie_gets_a_prefix_that_it_never_sees() {
    let _shared = shared_machine();
    let app = |name: &'static str| {
        respond_to_each(move |request, _| {
            let cookie_field = request.field("cookie").unwrap_or_else(|| "none".to_owned());
            let body = format!("{name}\n{cookie_field}\n");
            let set = if cookie_field.contains("SRV=") { "" } else { "Set-Cookie: SRV=s=1; Path=/\r\n" };
            let length = body.len();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{set}");
            Some(format!("{head}Set-Cookie: other={name}; Path=/\r\n\r\n{body}").into_bytes())
        })
    };
    let (a, b) = (app("a"), app("b"));
    let proxy = start_proxy(1, &server_tables(&[("a", &a), ("b", &b)]), &sticky_pool(", mode = \"prefix\""));
    for jar in ["one", "two", "three", "four"] {
        let first = curl(&proxy, jar);
        let name = first.lines().next().unwrap();
        assert_eq!(first, format!("{name}\nnone\n"));
        let jar_content = std::fs::read_to_string(proxy.file(jar)).unwrap();
        assert!(
            jar_content.contains("~s=1") && jar_content.contains(&format!("other\t{name}")),
            "{jar_content}"
        );
        for _ in 0..4 {
            let again = curl(&proxy, jar);
            assert!(again.starts_with(&format!("{name}\n")), "{first} {again}");
            assert!(again.contains("SRV=s=1") && !again.contains('~'), "{again}");
        }
    }
    wait_for_sticky(&proxy, &[("hit", 16.0), ("missing", 4.0)]);
}

#[test]
fn who_sticks_to_a_server_that_cannot_be_reached_gets_another() {
    let _shared = shared_machine();
    let (a, b) = (echoing_server("a"), echoing_server("b"));
    let proxy = start_proxy(1, &server_tables(&[("a", &a), ("b", &b)]), &sticky_pool(""));
    let mut client = proxy.client();
    let b_cookie = loop {
        let (name, response) = send_request(&mut client, "/", "");
        if name == "b" {
            break cookie(&response).unwrap();
        }
    };
    // The name of the server decides, and b has left its address.
    let refusing = RefusingPort::new();
    let all = [server_table("a", &a.authority, ""), server_table("b", &refusing.authority, "")];
    let proxy = start_proxy(1, &all.join(", "), &sticky_pool(""));
    let (name, response) = send_request(&mut proxy.client(), "/", &format!("Cookie: {b_cookie}\r\n"));
    assert_eq!((name.as_str(), response.status), ("a", 200));
    let new = cookie(&response).unwrap();
    assert_ne!(new, b_cookie);
    let (name, response) = send_request(&mut proxy.client(), "/", &format!("Cookie: {new}\r\n"));
    assert_eq!((name.as_str(), cookie(&response)), ("a", None));
}

#[test]
fn who_sticks_to_a_full_server_waits_for_it_and_holds_up_nobody() {
    let _shared = shared_machine();
    let (gated, free) = (GatedServer::start(), echoing_server("free"));
    let all = [
        server_table("gated", &gated.server.authority, ", maxconn = 1"),
        server_table("free", &free.authority, ""),
    ];
    let more = format!("{}\nqueue = {{ limit = 4, timeout = \"100s\" }}", sticky_pool(""));
    let proxy = start_proxy(1, &all.join(", "), &more);
    // The gated server gets the first request; its response sets its cookie.
    gated.admit_one();
    let (name, response) = send_request(&mut proxy.client(), "/", "");
    assert_eq!(name, "through");
    assert_eq!(gated.next_target(), "/");
    let cookie_fields = format!("Cookie: {}\r\n", cookie(&response).unwrap());
    let stuck = send_without_reading(&proxy, &cookie_fields);
    assert_eq!(gated.next_target(), "/");
    let mut waiting = proxy.client();
    waiting.send(format!("GET /waits HTTP/1.1\r\nHost: t\r\n{cookie_fields}\r\n").as_bytes());
    proxy.metrics_until("it waits", |metrics| {
        metrics.sum_known(crate::support::metrics::QUEUED, &[("pool", "app")]) == 1.0
    });
    let got = requests_by_server(&proxy, 20, "/", "");
    assert_eq!(got, BTreeMap::from([("free".to_owned(), 20)]));
    gated.admit_one();
    gated.admit_one();
    assert_eq!(waiting.read_response().map(|response| response.body), Some(b"through".to_vec()));
    assert_eq!(gated.next_target(), "/waits");
    drop(stuck);
}

#[test]
fn a_key_may_be_in_a_file() {
    let _shared = shared_machine();
    let a = echoing_server("a");
    let directory = crate::support::temp_dir();
    let file = directory.path().join("sticky.key");
    std::fs::write(&file, format!("{STICKY_KEY}\n")).unwrap();
    let named = server_tables(&[("a", &a)]);
    let from_file = format!("sticky = {{ cookie = \"SRV\", key-file = \"{}\" }}", file.display());
    let proxies = [start_proxy(1, &named, &from_file), start_proxy(1, &named, &sticky_pool(""))];
    let cookies = proxies.each_ref().map(|proxy| cookie(&send_request(&mut proxy.client(), "/", "").1));
    assert!(cookies[0].is_some() && cookies[0] == cookies[1], "{cookies:?}");
    // A reload reads the key file again, from within the sandbox.
    let new = directory.path().join("new");
    std::fs::write(&new, "another key of the same tests").unwrap();
    std::fs::rename(new, &file).unwrap();
    proxies[0].reload(&config(1, &named, &from_file));
    let changed = || cookie(&send_request(&mut proxies[0].client(), "/", "").1) != cookies[0];
    assert!(within(EVENT_TIMEOUT, changed), "{}", proxies[0].stderr());
}
