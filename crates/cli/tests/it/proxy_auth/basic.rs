//! Names and passwords.

use std::fs;
use std::thread;

use serde_json::Value;

use super::tokens::{GOOD, JWKS};
use super::{USERS, basic_field, check, count, get, start, text};
use crate::support::client::Client;
use crate::support::faulty_origins::{echoing_server, field};
use crate::support::peers::ScriptedServer;
use crate::support::proxies::is_installed;
use crate::support::proxy_under_test::{EVENT_TIMEOUT, ProxyUnderTest};
use crate::support::{shared_machine, within};

const ROUTES: &str = "[listener.web]\nbind = \"127.0.0.1:0\"\n\
    auth = { basic = { users-file = 'FILES/users', realm = 'staff' } }\n\
    [[route]]\npath-prefix = '/open'\nauth = false\npool = 'app'\n\
    [[route]]\npath-prefix = '/denied'\ndeny = true\n\
    [[route]]\npath-prefix = '/own'\nreturn = { body-template = 'user {auth.user}' }\n\
    [[route]]\npath-prefix = '/kept'\npool = 'app'\nauth = { basic = { users-file = 'FILES/users' }, forward-credentials = true }\n\
    [[route]]\npool = 'app'\nset-request-header = { x-user = '{auth.user}' }\nset-response-header = { x-for = '{auth.user:-nobody}' }\n";

#[test]
fn only_users_of_the_file_reach_servers() {
    let _shared = shared_machine();
    let log = "[[log]]\nto = 'file:HOME/log'\nformat = '{status} {end} {auth.user:--} {path}'\n";
    let (proxy, _origin) = start(&format!("{log}{ROUTES}"), &[("users", USERS)]);
    for (user, password) in [("ann", "secret"), ("arg", "password"), ("ann", "secret")] {
        let response = get(&proxy, "/a", &basic_field(user, password));
        let head = text(&response);
        assert_eq!((response.status, field(&response.head, "x-for")), (200, Some(user.to_owned())));
        assert!(
            head.contains(&format!("\r\nx-user: {user}\r\n")) && !head.contains("authorization"),
            "{head}"
        );
    }
    for (fields, result) in [
        (String::new(), "missing"),
        ("Authorization: Bearer x\r\n".to_owned(), "missing"),
        ("Authorization: Basic !!!!\r\n".to_owned(), "malformed"),
        (format!("Authorization: Basic {}\r\n", "QUFB".repeat(2_000)), "malformed"),
        (basic_field("ann", "secret") + &basic_field("ann", "secret"), "malformed"),
        (basic_field("ann", "Secret"), "wrong_password"),
        (basic_field("Ann", "secret"), "wrong_password"),
        (basic_field("ann", ""), "wrong_password"),
    ] {
        let before = proxy.metrics();
        let response = get(&proxy, "/a", &fields);
        assert_eq!(response.status, 401, "{fields}");
        let challenge = field(&response.head, "www-authenticate");
        assert_eq!(
            challenge.as_deref(),
            Some("Basic realm=\"staff\", charset=\"UTF-8\""),
            "{}",
            response.head
        );
        assert_eq!(field(&response.head, "x-for").as_deref(), Some("nobody"));
        let after = proxy.metrics();
        assert_eq!(
            count(&after, "basic", result) - count(&before, "basic", result),
            1.0,
            "{fields} {result}"
        );
    }
    let metrics = proxy.metrics();
    assert_eq!((count(&metrics, "basic", "allowed"), count(&metrics, "basic", "cached")), (2.0, 1.0));
    assert_eq!(get(&proxy, "/open", "").status, 200);
    assert_eq!(get(&proxy, "/denied", "").status, 403);
    assert_eq!(get(&proxy, "/own", "").status, 401);
    assert_eq!(text(&get(&proxy, "/own", &basic_field("ann", "secret"))), "user ann");
    assert!(text(&get(&proxy, "/kept", &basic_field("ann", "secret"))).contains("\r\nauthorization: basic "));
    let has =
        |line: &str| fs::read_to_string(proxy.home.path().join("log")).is_ok_and(|log| log.contains(line));
    for line in ["200 done ann /a\n", "401 unauthorized - /a\n", "401 unauthorized Ann /a\n"] {
        assert!(
            within(EVENT_TIMEOUT, || has(line)),
            "{line}: {:?}",
            fs::read_to_string(proxy.home.path().join("log"))
        );
    }
}

#[test]
fn bodies_pipelines_and_upgrades_are_authenticated_as_all_others() {
    let _shared = shared_machine();
    let (proxy, _origin) = start(ROUTES, &[("users", USERS)]);
    // The body arrives while the password is checked, and the next request behind it.
    let auth = basic_field("ann", "secret");
    let mut client = Client::connect(proxy.authority());
    client.send(format!("POST /a HTTP/1.1\r\nHost: t\r\n{auth}Content-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\nHost: t\r\n{auth}\r\nGET /c HTTP/1.1\r\nHost: t\r\n\r\n").as_bytes());
    for (start, status) in [("post /a", 200), ("get /b", 200), ("", 401)] {
        let response = client.read_response().unwrap();
        assert!(
            response.status == status && (status == 401 || text(&response).starts_with(start)),
            "{start}: {}",
            response.head
        );
    }
    let upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    assert_eq!(get(&proxy, "/ws", upgrade).status, 401);
    assert_eq!(get(&proxy, "/ws", &format!("{upgrade}{auth}")).status, 200);
    // Connection cannot hide the field from the proxy and show it to the server.
    let hidden = format!("Connection: authorization\r\n{auth}");
    assert_eq!(get(&proxy, "/a", &hidden).status, 401);
    let http10 = {
        let mut client = Client::connect(proxy.authority());
        client.send(format!("GET /a HTTP/1.0\r\n{auth}\r\n").as_bytes());
        client.read_response().unwrap()
    };
    assert_eq!(http10.status, 200);
}

#[test]
fn http2_and_grpc_get_responses_of_their_kind() {
    let _shared = shared_machine();
    if !is_installed("curl", &["--version"]) {
        return;
    }
    let (proxy, _origin) = start(ROUTES, &[("users", USERS)]);
    let url = format!("http://{}/a", proxy.authority());
    let curl = |arguments: &[&str]| {
        let output = std::process::Command::new("curl")
            .args(["-q", "-s", "-i", "--http2-prior-knowledge", "--max-time", "20"])
            .args(arguments)
            .arg(&url)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).to_ascii_lowercase()
    };
    assert!(curl(&["-u", "ann:secret"]).starts_with("http/2 200"));
    let rejected = curl(&["-u", "ann:wrong"]);
    assert!(
        rejected.starts_with("http/2 401") && rejected.contains("\nwww-authenticate: basic realm"),
        "{rejected}"
    );
    let posted = curl(&["-u", "arg:password", "--data-binary", "abc"]);
    assert!(posted.starts_with("http/2 200") && posted.contains("content-length: 3"), "{posted}");
    let call = curl(&["-H", "content-type: application/grpc", "-H", "te: trailers", "--data-binary", "x"]);
    assert!(call.starts_with("http/2 200") && call.contains("\ngrpc-status: 16"), "{call}");
}

#[test]
fn the_file_is_read_again_and_faults_change_nothing() {
    let _shared = shared_machine();
    let directory = crate::support::temp_dir();
    let file = directory.path().join("users");
    fs::write(&file, USERS).unwrap();
    let limit = "realm = 'staff', failures-per-source = '1M/s'";
    let config =
        ROUTES.replace("FILES", directory.path().to_str().unwrap()).replacen("realm = 'staff'", limit, 1);
    let (proxy, _origin) = start(&config, &[]);
    let status = |user: &str, password: &str| get(&proxy, "/a", &basic_field(user, password)).status;
    assert_eq!((status("ann", "secret"), status("bob", "secret")), (200, 401));
    fs::write(&file, USERS.replace("ann:", "bob:")).unwrap();
    // A result that is kept ends with its user.
    assert!(within(EVENT_TIMEOUT, || status("bob", "secret") == 200));
    assert_eq!(status("ann", "secret"), 401);
    fs::write(&file, "bob:$apr1$x$y\nnonsense\n").unwrap();
    let failures =
        |metrics: &crate::support::metrics::Metrics| metrics.sum_known("weir_auth_file_failures_total", &[]);
    proxy.metrics_until("a failed read", |metrics| failures(metrics) == 1.0);
    assert_eq!(status("bob", "secret"), 200);
}

#[test]
fn guessing_is_slow_and_other_requests_are_not() {
    let _shared = shared_machine();
    // Cost 10, on one thread with a queue of two.
    let slow = "ann:$2y$10$cs0U9g6q03b4/.l0hLcXx.p4FfnaGyG/5dFJkziqk4TQZoU.CyG5W\n";
    let limit = "failures-per-source = '1M/s'";
    let config = format!(
        "password-threads = 1\npassword-queue = 2\n{}",
        ROUTES.replacen("realm = 'staff'", &format!("realm = 'staff', {limit}"), 1)
    );
    let (proxy, _origin) = start(&config, &[("users", slow)]);
    let statuses = thread::scope(|scope| {
        let guesses: Vec<_> = (0..40)
            .map(|number| {
                let proxy = &proxy;
                scope.spawn(move || {
                    let mut seen = Vec::new();
                    for guess in 0..25 {
                        let response = get(proxy, "/a", &basic_field("ann", &format!("{number}-{guess}")));
                        let retry_after = field(&response.head, "retry-after");
                        assert_eq!(response.status == 503, retry_after.is_some(), "{}", response.head);
                        seen.push(response.status);
                    }
                    seen
                })
            })
            .collect();
        // All that needs no password is served meanwhile.
        for _ in 0..200 {
            assert_eq!(get(&proxy, "/open", "").status, 200);
        }
        guesses.into_iter().flat_map(|guess| guess.join().unwrap()).collect::<Vec<_>>()
    });
    let number = |status: u16| statuses.iter().filter(|code| **code == status).count() as f64;
    let metrics = proxy.metrics();
    assert_eq!((number(401) + number(503), number(503) > 0.0, number(401) > 0.0), (1000.0, true, true));
    assert_eq!(
        (count(&metrics, "basic", "busy"), count(&metrics, "basic", "wrong_password")),
        (number(503), number(401))
    );
    assert_eq!(metrics.sum_known("weir_requests_total", &[("end", "auth_unavailable")]), number(503));
}

#[test]
fn a_source_has_a_limit_of_wrong_passwords() {
    let _shared = shared_machine();
    let config = ROUTES.replacen("realm = 'staff'", "failures-per-source = '3/m'", 1);
    let (proxy, _origin) = start(&config, &[("users", USERS)]);
    // A result that is kept stays valid, and right passwords do not count.
    for _ in 0..5 {
        assert_eq!(get(&proxy, "/a", &basic_field("ann", "secret")).status, 200);
    }
    for _ in 0..3 {
        assert_eq!(get(&proxy, "/a", &basic_field("ann", "wrong")).status, 401);
    }
    let limited = get(&proxy, "/a", &basic_field("ann", "wrong"));
    let wait: u64 = field(&limited.head, "retry-after").unwrap().parse().unwrap();
    assert!(limited.status == 429 && (1..=20).contains(&wait), "{}", limited.head);
    assert_eq!(get(&proxy, "/a", &basic_field("arg", "password")).status, 429);
    assert_eq!(get(&proxy, "/a", &basic_field("ann", "secret")).status, 200);
    assert_eq!(count(&proxy.metrics(), "basic", "limited"), 2.0);
}

#[test]
fn clients_that_leave_cost_no_check_and_error_pages_apply() {
    let _shared = shared_machine();
    let page = "[[error-page]]\nstatus = '401'\nhtml = 'FILES/page'\n";
    let (proxy, _origin) =
        start(&format!("{page}{ROUTES}"), &[("users", USERS), ("page", "<p>staff only</p>")]);
    let response = get(&proxy, "/a", "Accept: text/html\r\n");
    assert!(response.status == 401 && text(&response).contains("staff only"), "{}", text(&response));
    assert!(field(&response.head, "www-authenticate").is_some());
    for _ in 0..20 {
        let mut client = Client::connect(proxy.authority());
        client.send(format!("GET /a HTTP/1.1\r\nHost: t\r\n{}\r\n", basic_field("ann", "wrong")).as_bytes());
    }
    proxy.metrics_until("all have ended", |metrics| metrics.sum_known("weir_requests_in_flight", &[]) == 0.0);
}

#[test]
fn all_faults_of_a_file_are_reported_with_their_lines() {
    let config = format!("{ROUTES}[pool.app]\nservers = ['127.0.0.1:1']\n");
    let users =
        "ann:$apr1$abc$def\nbob\n:x\narg:$2y$20$cs0U9g6q03b4/.l0hLcXx.p4FfnaGyG/5dFJkziqk4TQZoU.CyG5W\n";
    let (code, output) = check(&config, &[("users", users)], &["--check"]);
    assert_eq!(code, Some(2), "{output}");
    for part in [
        "/users:1: user 'ann' has a hash of MD5 (apr1), which is quickly guessed: make a hash with `htpasswd -B` or `argon2`",
        "/users:2: no ':'",
        "/users:3: the name is empty",
        "/users:4: user 'arg' has a hash of bcrypt with the cost 20",
    ] {
        assert!(output.contains(part), "{part}: {output}");
    }
    let (code, output) = check(&config, &[("users", USERS)], &["--explain", "GET http://h/a"]);
    assert_eq!(code, Some(0), "{output}");
    assert!(
        output.contains("setting     auth basic, 2 users of ")
            && output.contains("realm \"staff\" (listener)"),
        "{output}"
    );
    let (_, output) = check(&config, &[("users", USERS)], &["--explain", "GET http://h/own"]);
    assert!(output.contains("setting     auth basic, 2 users of "), "{output}");
}

/// Hashes of `htpasswd` are those that weir reads.
#[test]
fn htpasswd_makes_files_for_weir() {
    let _shared = shared_machine();
    if !is_installed("htpasswd", &["-nbB", "a", "b"]) {
        return;
    }
    let output = std::process::Command::new("htpasswd")
        .args(["-nbB", "-C", "5", "zoe", "p\u{e9} \u{2713}"])
        .output()
        .unwrap();
    let users = String::from_utf8(output.stdout).unwrap();
    let (proxy, _origin): (ProxyUnderTest, _) = start(ROUTES, &[("users", &users)]);
    assert_eq!(get(&proxy, "/a", &basic_field("zoe", "p\u{e9} \u{2713}")).status, 200);
    assert_eq!(get(&proxy, "/a", &basic_field("zoe", "p")).status, 401);
}

#[test]
fn a_reload_begins_authentication_and_keeps_results() {
    let _shared = shared_machine();
    let keys = ScriptedServer::start(|peer| {
        while peer.request()?.is_some() {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{JWKS}", JWKS.len());
            peer.send(head.as_bytes())?;
        }
        Ok(())
    });
    let origin = ScriptedServer::start(super::echo);
    let config = |auth: &str| {
        format!(
            "threads = 1\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\n{auth}\ncompression = true\n\
             [[route]]\npath-prefix = '/jwt'\npool = 'app'\nauth = {{ jwt = {{ keys-url = 'http://{}/' }} }}\n\
             [[route]]\npool = 'app'\n[pool.app]\nservers = [\"{}\"]\n",
            keys.authority, origin.authority
        )
    };
    let without = config("").replace("auth = { jwt", "#");
    let proxy = ProxyUnderTest::weir(&without);
    assert_eq!((get(&proxy, "/a", "").status, get(&proxy, "/jwt", "").status), (200, 200));
    // Landlock allows the directory of the config.
    fs::write(proxy.home.path().join("users"), USERS).unwrap();
    let basic = "auth = { basic = { users-file = 'HOME/users' } }";
    let reloads = |number: f64| {
        let applied = [("result", "applied")];
        proxy
            .metrics_until("a reload", |metrics| metrics.sum_known("weir_reloads_total", &applied) == number);
    };
    proxy.reload(&config(basic));
    reloads(1.0);
    assert_eq!((get(&proxy, "/a", "").status, get(&proxy, "/jwt", "").status), (401, 401));
    let status = |password: &str| get(&proxy, "/a", &basic_field("ann", password)).status;
    assert_eq!((status("secret"), status("wrong")), (200, 401));
    let token = format!("Authorization: Bearer {GOOD}\r\n");
    assert!(within(EVENT_TIMEOUT, || get(&proxy, "/jwt", &token).status == 200));
    // The same users in another config: the result of the password stays.
    proxy.reload(&(config(basic) + "[[route]]\nhost = 'other'\ndeny = true\n"));
    reloads(2.0);
    let before = proxy.metrics();
    assert_eq!(status("secret"), 200);
    let after = proxy.metrics();
    assert_eq!(count(&after, "basic", "cached") - count(&before, "basic", "cached"), 1.0);
    // A client that waits for 100 (Continue) gets the rejection instead.
    let mut client = Client::connect(proxy.authority());
    client.send(b"POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n");
    let rejected = client.read_response().unwrap();
    assert_eq!((rejected.status, field(&rejected.head, "connection").as_deref()), (401, Some("close")));
}

#[test]
fn logs_have_the_user_that_was_found_or_refused() {
    let _shared = shared_machine();
    let logs = "[[log]]\nto = 'file:HOME/json'\n[[log]]\nto = 'file:HOME/combined'\nformat = 'combined'\n";
    let (proxy, _origin) = start(&format!("{logs}{ROUTES}"), &[("users", USERS)]);
    for (path, fields) in [
        ("/a", basic_field("ann", "secret")),
        ("/a", basic_field("ann", "wrong")),
        ("/a", basic_field("ann b", "wrong")),
        ("/a", String::new()),
        ("/own", basic_field("arg", "password")),
        ("/open", basic_field("ann", "secret")),
    ] {
        get(&proxy, path, &fields);
    }
    let expected = [
        ("/a", 200, "ann"),
        ("/a", 401, "ann"),
        ("/a", 401, "ann b"),
        ("/a", 401, ""),
        ("/own", 200, "arg"),
        ("/open", 200, ""),
    ];
    let lines = proxy.wait_for_lines("json", expected.len());
    for (line, (path, status, user)) in lines.iter().zip(expected) {
        let line: Value = serde_json::from_str(line).unwrap();
        let found = line["user"].as_str().unwrap_or_default();
        assert_eq!(
            (line["target"].as_str(), line["status"].as_u64(), found),
            (Some(path), Some(status), user)
        );
    }
    let lines = proxy.wait_for_lines("combined", expected.len());
    for (line, (path, status, user)) in lines.iter().zip(expected) {
        let user = if user.is_empty() { "-".to_owned() } else { user.replace(' ', "\\x20") };
        assert!(line.starts_with(&format!("127.0.0.1 - {user} [")), "{line}");
        assert!(line.contains(&format!("] \"GET {path} HTTP/1.1\" {status} ")), "{line}");
    }
}

#[test]
fn users_keep_their_pool_of_a_split_and_strangers_reach_none() {
    let _shared = shared_machine();
    let servers = ["stable", "canary"].map(echoing_server);
    let [stable, next] = servers.each_ref().map(|server| &*server.authority);
    let config = format!(
        "[listener.web]\nbind = \"127.0.0.1:0\"\nauth = {{ basic = {{ users-file = 'FILES/users' }} }}\n\
         [[route]]\nsplit = {{ pools = {{ stable = 50, canary = 50 }}, key = 'cookie.user' }}\n\
         set-request-header = {{ x-user = '{{auth.user}}', x-pool = '{{pool}}' }}\n\
         [pool.stable]\nservers = ['{stable}']\n[pool.canary]\nservers = ['{next}']\n"
    );
    let (proxy, _origin) = start(&config, &[("users", USERS)]);
    let pool_of = |user: &str| {
        let response = get(&proxy, "/", &format!("Cookie: user={user}\r\n{}", basic_field("ann", "secret")));
        let body = text(&response).to_ascii_lowercase();
        let pool = body.lines().next().unwrap_or_default().to_owned();
        assert!(response.status == 200 && body.contains("x-user: ann\r\n"), "{user}: {body}");
        assert!(body.contains(&format!("x-pool: {pool}\r\n")) && !body.contains("authorization"), "{body}");
        pool
    };
    let first: Vec<String> = (0..20).map(|number| pool_of(&format!("user{number}"))).collect();
    let again: Vec<String> = (0..20).map(|number| pool_of(&format!("user{number}"))).collect();
    assert_eq!(first, again);
    let next_pool_users = first.iter().filter(|pool| *pool == "canary").count();
    assert!((1..20).contains(&next_pool_users), "{first:?}");
    for fields in [String::new(), basic_field("ann", "wrong"), basic_field("nobody", "secret")] {
        assert_eq!(get(&proxy, "/", &format!("Cookie: user=user0\r\n{fields}")).status, 401);
    }
    let metrics = proxy.metrics();
    let served = |pool| metrics.sum("weir_server_requests_total", &[("pool", pool)]);
    assert_eq!(served("stable") + served("canary"), 40.0);
    assert_eq!(served("canary"), 2.0 * next_pool_users as f64);
    proxy.assert_all_returned();
}
