//! Splits of a route between pools: each user keeps a pool, weights change while the proxy runs, and a pool without a
//! server.

use std::fs;

use super::*;
use crate::support::client::Client;
use crate::support::faulty_origins::echoing_server;
use crate::support::{shared_machine, temp_dir};

fn config_of(split: &str, top: &str, servers: [&ScriptedServer; 2]) -> String {
    let [stable, next] = servers.map(|server| &server.authority);
    format!(
        "threads = 2\nadmin = \"127.0.0.1:0\"\ncontrol = \"HOME/weir.sock\"\n{top}\n\
         [listener.web]\nbind = \"127.0.0.1:0\"\n\
         [pool.stable]\nservers = [\"{stable}\"]\n\
         [pool.canary]\nservers = [\"{next}\"]\nretries = 0\n\
         [[route]]\nset-request-header = {{ x-pool = \"{{pool}}\" }}\nset-response-header = {{ x-pool = \"{{pool}}\" }}\n\
         split = {{ pools = {{ stable = 90, canary = 10 }}{split} }}\n"
    )
}

/// Returns for each user whether the canary answers: by the server, and by the values of both heads.
fn users_of_next(proxy: &ProxyUnderTest, users: usize) -> Vec<bool> {
    let mut client = Client::connect(proxy.authority());
    let is_of_next = |user| {
        let response = client.get_with_fields("/", &format!("Host: t\r\nCookie: user=u{user}\r\n"));
        assert_eq!(response.status, 200, "{}", response.head);
        let pool = if response.body.starts_with(b"canary") { "canary" } else { "stable" };
        let body = String::from_utf8(response.body).unwrap().to_ascii_lowercase();
        let expected = format!("x-pool: {pool}\r\n");
        assert!(body.contains(&expected) && response.head.contains(&expected), "{}{body}", response.head);
        pool == "canary"
    };
    (0..users).map(is_of_next).collect()
}

fn count(users: &[bool]) -> usize {
    users.iter().filter(|is_of_next| **is_of_next).count()
}

#[test]
fn users_keep_their_pool_and_a_growing_pool_keeps_its_users() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let state = directory.path().join("state");
    let (stable, next) = (echoing_server("stable"), echoing_server("canary"));
    let top = format!("state-file = \"{}\"", state.display());
    let text = config_of(", key = 'cookie.user', name = 'web'", &top, [&stable, &next]);
    let proxy = ProxyUnderTest::weir(&text);
    let at_ten = users_of_next(&proxy, 1_000);
    assert!((60..140).contains(&count(&at_ten)), "{}", count(&at_ten));
    assert_eq!(users_of_next(&proxy, 1_000), at_ten, "each user keeps the pool");
    ctl_output(&proxy, "split web stable=50 canary=50");
    let at_fifty = users_of_next(&proxy, 1_000);
    assert!((430..570).contains(&count(&at_fifty)), "{}", count(&at_fifty));
    assert!(at_ten.iter().zip(&at_fifty).all(|(before, after)| !before || *after), "it keeps its users");
    let splits = ctl_json(&proxy, "split");
    let row = find_row(&splits["splits"], "pool", "canary");
    assert_eq!((&row["weight"], &row["configured"], &row["percent"]), (&50.into(), &10.into(), &50.0.into()));
    // A reload keeps it, and so does the next process.
    ctl_output(&proxy, "reload");
    assert_eq!(users_of_next(&proxy, 200), at_fifty[..200]);
    drop(proxy);
    let restarted = ProxyUnderTest::weir(&text);
    assert_eq!(users_of_next(&restarted, 200), at_fifty[..200]);
    ctl_output(&restarted, "split web default");
    assert_eq!(users_of_next(&restarted, 200), at_ten[..200]);
    let left = fs::read_to_string(&state).unwrap();
    assert!(left.lines().all(|line| line.starts_with('#')), "{left}");
    ctl_output(&restarted, "split web stable=0 canary=1");
    assert_eq!(count(&users_of_next(&restarted, 200)), 200);
    // A request without a key goes to the first pool that has a weight.
    assert!(restarted.get("/").body.starts_with(b"canary"));
    ctl_output(&restarted, "split web default");
    assert!(restarted.get("/").body.starts_with(b"stable"));
    for (words, part) in [
        ("split web stable=0 canary=0", "all weights would be 0"),
        ("split web canry=1", "did you mean 'canary'?"),
        ("split wb canary=1", "did you mean 'web'?"),
        ("split web canary=x", "'canary=x' is not POOL=WEIGHT"),
        ("split web", "write `split` or"),
    ] {
        let output = run_ctl(&restarted, words);
        assert_eq!(output.code, 2, "{words}: {output:?}");
        assert!(output.stderr.contains(part), "{words}: {}", output.stderr);
    }
}

#[test]
fn without_a_key_each_request_is_divided() {
    let _shared = shared_machine();
    let (stable, next) = (echoing_server("stable"), echoing_server("canary"));
    let proxy = ProxyUnderTest::weir(&config_of("", "", [&stable, &next]));
    let mut client = proxy.client();
    let next_pool_responses = (0..1_000).filter(|_| client.get("/").body.starts_with(b"canary")).count();
    assert!((60..140).contains(&next_pool_responses), "{next_pool_responses}");
}

#[test]
fn a_pool_without_a_server_fails_or_falls_back() {
    let _shared = shared_machine();
    let (stable, next) = (echoing_server("stable"), echoing_server("canary"));
    for (fallback, status, fallbacks) in [(", fallback = true", 200, 1.0), ("", 503, 0.0)] {
        let keys = format!(", key = 'cookie.user', name = 'web'{fallback}");
        let proxy = ProxyUnderTest::weir(&config_of(&keys, "", [&stable, &next]));
        ctl_output(&proxy, "split web stable=1 canary=1000000");
        ctl_output(&proxy, "pool canary maint");
        let response = proxy.client().get_with_fields("/", "Host: t\r\nCookie: user=1\r\n");
        assert_eq!(response.status, status, "{}", response.head);
        proxy.metrics_until("fallbacks are counted", |metrics| {
            metrics.sum("weir_split_fallbacks_total", &[("pool", "stable")]) == fallbacks
        });
    }
}
