//! JSON Web Tokens.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::tokens::*;
use super::{check, count, get, start, text};
use crate::support::client::Client;
use crate::support::faulty_origins::field;
use crate::support::peers::{ScriptPeer, ScriptedServer};
use crate::support::proxy_under_test::{EVENT_TIMEOUT, ProxyUnderTest};
use crate::support::tls_peers::Certificates;
use crate::support::{shared_machine, within};

fn routes(jwt: &str) -> String {
    format!(
        "[listener.web]\nbind = \"127.0.0.1:0\"\nauth = {{ jwt = {{ {jwt} }} }}\n\
         [[route]]\npath-prefix = '/open'\nauth = false\npool = 'app'\n\
         [[route]]\npath-prefix = '/limited'\nrate-limit = {{ rate = '1/h', burst = 1, key = '{{jwt.sub}}' }}\nreturn = {{ body = 'ok' }}\n\
         [[route]]\npath-prefix = '/rules'\npool = 'app'\nresponse = [{{ when = {{ claim = {{ 'realm_access.roles' = 'admin' }} }}, set-header = {{ x-admin = 'yes' }} }}]\n\
         [[route]]\npool = 'app'\nset-request-header = {{ x-user = '{{auth.user}}', x-tenant = '{{jwt.tenant}}', x-roles = '{{jwt.realm_access.roles}}', x-n = '{{jwt.n}}{{jwt.ok}}{{jwt.none}}' }}\n"
    )
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

#[test]
fn claims_of_tokens_are_values() {
    let _shared = shared_machine();
    let jwt = "keys-file = 'FILES/jwks', issuer = 'https://id.example', audience = ['api', 'other']";
    let log = "[[log]]\nto = 'file:HOME/log'\nformat = '{status} {auth.user:--} {jwt.tenant:--}'\n";
    let (proxy, _origin) = start(&format!("{log}{}", routes(jwt)), &[("jwks", JWKS)]);
    for _ in 0..3 {
        let head = text(&get(&proxy, "/", &bearer(GOOD)));
        for expected in ["x-user: ann", "x-tenant: t1", "x-roles: user,admin", "x-n: 7true"] {
            assert!(head.contains(&format!("\r\n{expected}\r\n")), "{expected}: {head}");
        }
        assert!(!head.contains("authorization"), "{head}");
    }
    let metrics = proxy.metrics();
    assert_eq!((count(&metrics, "jwt", "allowed"), count(&metrics, "jwt", "cached")), (1.0, 2.0));
    for (token, expected) in [(GOOD, Some("yes")), (OF_USER, None)] {
        let response = get(&proxy, "/rules", &bearer(token));
        assert_eq!((response.status, field(&response.head, "x-admin").as_deref()), (200, expected));
    }
    // A limit for each user, after the token is known.
    assert_eq!(get(&proxy, "/limited", &bearer(GOOD)).status, 200);
    assert_eq!(get(&proxy, "/limited", &bearer(GOOD)).status, 429);
    assert_eq!(get(&proxy, "/limited", &bearer(OF_USER)).status, 200);
    assert_eq!(get(&proxy, "/limited", "").status, 401);
    let has =
        |line: &str| fs::read_to_string(proxy.home.path().join("log")).is_ok_and(|log| log.contains(line));
    assert!(within(EVENT_TIMEOUT, || has("200 ann t1\n") && has("401 - -\n")));
}

#[test]
fn wrong_tokens_are_refused_each_for_its_reason() {
    let _shared = shared_machine();
    let jwt = "keys-file = 'FILES/jwks', issuer = 'https://id.example', audience = 'api'";
    let (proxy, _origin) = start(&routes(jwt), &[("jwks", JWKS)]);
    let tampered = GOOD.replacen('.', ".eyJzdWIiOiJyb290In0", 1);
    let long = "a".repeat(9_000);
    for (token, result) in [
        (EXPIRED, "expired"),
        (NOT_YET_VALID, "not_yet_valid"),
        (WITHOUT_END, "bad_claim"),
        (OTHER_AUDIENCE, "bad_claim"),
        (OTHER_ISSUER, "bad_claim"),
        (OF_NEW_KEY, "unknown_key"),
        (INJECTED_KEY_NAME, "unknown_key"),
        (CONFUSED, "bad_algorithm"),
        (UNSIGNED, "bad_algorithm"),
        (OF_SECRET, "bad_algorithm"),
        (&tampered, "bad_signature"),
        ("a.b.c", "malformed"),
        ("..", "malformed"),
        ("x", "malformed"),
        (&long, "malformed"),
    ] {
        let before = proxy.metrics();
        let response = get(&proxy, "/", &bearer(token));
        let challenge = field(&response.head, "www-authenticate");
        assert_eq!(response.status, 401, "{result}");
        assert_eq!(challenge.as_deref(), Some("Bearer realm=\"weir\", error=\"invalid_token\""), "{result}");
        let after = proxy.metrics();
        assert_eq!(count(&after, "jwt", result) - count(&before, "jwt", result), 1.0, "{result}: {token}");
    }
    let missing = get(&proxy, "/", "");
    assert_eq!(field(&missing.head, "www-authenticate").as_deref(), Some("Bearer realm=\"weir\""));
    // A token that is longer than a head may be.
    let huge = get(&proxy, "/", &bearer(&"a".repeat(100_000)));
    assert_eq!(huge.status, 431);
    assert_eq!(get(&proxy, "/", &(bearer(GOOD) + &bearer(GOOD))).status, 401);
    assert_eq!(get(&proxy, "/open", "").status, 200);
}

#[test]
fn routes_require_claims() {
    let _shared = shared_machine();
    let jwt = "public-key-file = 'FILES/key', require = { 'realm_access.roles' = 'admin', tenant = { regex = '^t[0-9]$' } }";
    let (proxy, _origin) = start(&routes(jwt), &[("key", PUBLIC_KEY)]);
    assert_eq!(get(&proxy, "/", &bearer(GOOD)).status, 200);
    let forbidden = get(&proxy, "/", &bearer(OF_USER));
    let challenge = field(&forbidden.head, "www-authenticate");
    assert_eq!(
        (forbidden.status, challenge.as_deref()),
        (403, Some("Bearer realm=\"weir\", error=\"insufficient_scope\""))
    );
    let metrics = proxy.metrics();
    assert_eq!(count(&metrics, "jwt", "forbidden"), 1.0);
    assert_eq!(metrics.sum_known("weir_requests_total", &[("end", "forbidden")]), 1.0);
    // A token that names no key of the file: PEM has no names.
    assert_eq!(get(&proxy, "/", &bearer(CONFUSED)).status, 401);
}

#[test]
fn tokens_come_from_cookies_and_fields() {
    let _shared = shared_machine();
    let jwt = "secret-file = 'FILES/secret', token = 'cookie:session'";
    let (proxy, _origin) = start(&routes(jwt), &[("secret", SECRET)]);
    assert_eq!(get(&proxy, "/", &format!("Cookie: a=b; session={OF_SECRET}\r\n")).status, 200);
    assert_eq!(get(&proxy, "/", &bearer(OF_SECRET)).status, 401);
    assert_eq!(get(&proxy, "/", &format!("Cookie: session={GOOD}\r\n")).status, 401);
    // The cookie stays, unless the config says that it must not reach servers.
    for (key, expected) in [
        ("", Some(format!("cookie: a=b; session={}; c=d", OF_SECRET.to_ascii_lowercase()))),
        (
            ", forward-credentials = true",
            Some(format!("cookie: a=b; session={}; c=d", OF_SECRET.to_ascii_lowercase())),
        ),
        (", forward-credentials = false", Some("cookie: a=b; c=d".to_owned())),
    ] {
        let config = routes(jwt).replacen(" } }\n", &format!(" }}{key} }}\n"), 1);
        let (proxy, _origin) = start(&config, &[("secret", SECRET)]);
        let response = get(&proxy, "/", &format!("Cookie: a=b; session={OF_SECRET}; c=d\r\n"));
        let head = text(&response);
        let found = head.lines().find(|line| line.starts_with("cookie:")).map(str::to_owned);
        assert_eq!((response.status, found), (200, expected), "{key}: {head}");
        // Routes without authentication forward it.
        assert!(text(&get(&proxy, "/open", "Cookie: session=x\r\n")).contains("cookie: session=x"));
        // Its own cookie alone leaves no field.
        let head = text(&get(&proxy, "/", &format!("Cookie: session={OF_SECRET}\r\n")));
        assert_eq!(head.contains("cookie"), !key.ends_with("false"), "{key}: {head}");
    }
    let jwt = "secret-file = 'FILES/secret', token = 'header:x-token'";
    let (proxy, _origin) = start(&routes(jwt), &[("secret", &format!("{SECRET}\n"))]);
    let response =
        get(&proxy, "/", &format!("X-Token: {OF_SECRET}\r\nX_Token: y\r\nAuthorization: Basic YTpi\r\n"));
    let head = text(&response);
    assert!(
        response.status == 200 && !head.contains("x-token") && head.contains("authorization: basic"),
        "{head}"
    );
}

/// Responds with keys by the number of the request: a fault, the first key, both keys, 10 MB, and then nothing.
fn serve_keys(requests: &AtomicUsize, peer: &mut ScriptPeer) -> io::Result<()> {
    while peer.request()?.is_some() {
        let body = match requests.fetch_add(1, Ordering::SeqCst) {
            0 => return peer.send(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"),
            1 => JWKS.to_owned(),
            2 => NEW_JWKS.to_owned(),
            3 => format!("{{\"keys\":[{}1]}}", "1,".repeat(5_000_000)),
            // Silence until the proxy gives up.
            _ => continue,
        };
        peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes())?;
        peer.send(body.as_bytes())?;
    }
    Ok(())
}

#[test]
fn keys_of_a_url_are_followed_and_stay_while_it_fails() {
    let _shared = shared_machine();
    let requests = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&requests);
    let server = ScriptedServer::start(move |peer| serve_keys(&seen, peer));
    let jwt = format!(
        "keys-url = 'http://{}/jwks', keys-interval = '1h', unknown-key-interval = '1ms'",
        server.authority
    );
    let (proxy, _origin) = start(&routes(&jwt), &[]);
    let status = |token: &str| get(&proxy, "/", &bearer(token)).status;
    // The first request fails, so there are no keys; the next one comes by itself.
    let results = "weir_jwks_requests_total";
    proxy.metrics_until("a failed request", |metrics| {
        metrics.sum_known(results, &[("result", "failed")]) >= 1.0
    });
    assert!(within(EVENT_TIMEOUT, || status(GOOD) == 200));
    let metrics = proxy.metrics();
    assert_eq!(
        (metrics.sum_known("weir_jwks_keys", &[]), metrics.sum_known(results, &[("result", "loaded")])),
        (1.0, 1.0)
    );
    // An unknown key makes the proxy ask again.
    assert_eq!(requests.load(Ordering::SeqCst), 2);
    assert!(within(EVENT_TIMEOUT, || status(OF_NEW_KEY) == 200));
    assert_eq!(requests.load(Ordering::SeqCst), 3);
    // Then the URL has too much, and at last nothing: the keys stay.
    assert_eq!(status(INJECTED_KEY_NAME), 401);
    proxy
        .metrics_until("10 MB refused", |metrics| metrics.sum_known(results, &[("result", "failed")]) >= 2.0);
    assert_eq!(status(INJECTED_KEY_NAME), 401);
    assert!(within(EVENT_TIMEOUT, || requests.load(Ordering::SeqCst) >= 5));
    assert_eq!((status(GOOD), status(OF_NEW_KEY)), (200, 200));
    let stderr = fs::read_to_string(proxy.home.path().join("stderr")).unwrap_or_default();
    assert!(stderr.is_empty() || stderr.contains("the status of the response is 500"), "{stderr}");
}

#[test]
fn routes_without_keys_are_unavailable_and_say_so() {
    let _shared = shared_machine();
    // A port that nothing listens at.
    let port = crate::support::peers::free_port();
    let jwt = format!("keys-url = 'https://127.0.0.1:{port}/jwks'");
    let (proxy, _origin) = start(&routes(&jwt), &[]);
    let response = get(&proxy, "/", &bearer(GOOD));
    assert_eq!((response.status, field(&response.head, "retry-after").as_deref()), (503, Some("1")));
    assert_eq!((get(&proxy, "/", "").status, get(&proxy, "/open", "").status), (401, 200));
    assert_eq!(count(&proxy.metrics(), "jwt", "no_keys"), 1.0);
    let config = format!("{}[pool.app]\nservers = ['127.0.0.1:1']\n", routes(&jwt));
    let (code, output) = check(&config, &[], &["--explain", "GET http://h/a"]);
    assert!(code == Some(0) && output.contains("(none read yet)"), "{output}");
}

#[test]
fn the_file_of_keys_is_read_again() {
    let _shared = shared_machine();
    let directory = crate::support::temp_dir();
    let file = directory.path().join("jwks");
    fs::write(&file, JWKS).unwrap();
    let (proxy, _origin) = start(&routes(&format!("keys-file = '{}'", file.display())), &[]);
    let mut client = Client::connect(proxy.authority());
    let mut status =
        |token: &str| client.get_with_fields("/", &format!("Host: t\r\n{}", bearer(token))).status;
    assert_eq!((status(GOOD), status(OF_NEW_KEY)), (200, 401));
    fs::write(&file, NEW_JWKS).unwrap();
    assert!(within(EVENT_TIMEOUT, || status(OF_NEW_KEY) == 200));
    fs::write(&file, "{}").unwrap();
    proxy.metrics_until("a failed read", |metrics| {
        metrics.sum_known("weir_auth_file_failures_total", &[]) == 1.0
    });
    assert_eq!((status(GOOD), status(OF_NEW_KEY)), (200, 200));
}

#[test]
fn faults_of_configs_have_their_places() {
    let config = |jwt: &str| format!("{}[pool.app]\nservers = ['127.0.0.1:1']\n", routes(jwt));
    for (jwt, content, part) in [
        ("", "", "exactly one source of keys"),
        ("keys-file = 'FILES/f', secret-file = 'FILES/f'", "", "exactly one source of keys"),
        ("keys-file = 'FILES/f'", "{\"keys\":[{}]}", "/f: key 1 is no JSON Web Key"),
        ("secret-file = 'FILES/f'", PUBLIC_KEY, "write `public-key-file`"),
        ("secret-file = 'FILES/f'", "short", "openssl rand -hex 32"),
        ("public-key-file = 'FILES/f'", "nothing", "no public key in PEM"),
        ("public-key-file = 'FILES/f', algorithms = 'none'", PUBLIC_KEY, "'none' is not an algorithm"),
        ("public-key-file = 'FILES/f', token = 'query'", PUBLIC_KEY, "'query' is no place of a token"),
    ] {
        let (code, output) = check(&config(jwt), &[("f", content)], &["--check"]);
        assert!(code == Some(2) && output.contains(part), "{jwt}: {output}");
    }
    let (code, output) = check(
        "[listener.web]\nbind = '127.0.0.1:0'\n[[route]]\nwhen = { claim = { sub = 'ann' } }\ndeny = true\n",
        &[],
        &["--check"],
    );
    assert!(code == Some(2) && output.contains("a route is chosen before its authentication"), "{output}");
    let warned = config("public-key-file = 'FILES/f', algorithms = ['HS256', 'ES256']");
    let (_, output) = check(&warned, &[("f", PUBLIC_KEY)], &["--check"]);
    assert!(output.contains("has the algorithm HS256"), "{output}");
}

/// A server over TLS that responds with the keys.
fn keys_over_tls(certificates: &Certificates) -> ProxyUnderTest {
    let path = certificates.file("jwks");
    fs::write(&path, JWKS).unwrap();
    let certificate = certificates.file("both.pem");
    ProxyUnderTest::weir(&format!(
        "threads = 1\n[listener.web]\nbind = \"127.0.0.1:0\"\ntls = {{ certificates = ['{certificate}'] }}\n\
         [[route]]\npath = '/jwks'\nreturn = {{ body-file = '{path}' }}\n"
    ))
}

#[test]
fn keys_of_a_url_over_tls_need_a_server_of_the_authority() {
    let _shared = shared_machine();
    let (Some(certificates), Some(other)) = (Certificates::create(), Certificates::create()) else { return };
    let server = keys_over_tls(&certificates);
    let url = |host: &str| format!("keys-url = 'https://{host}:{}/jwks'", server.port());
    let ca = |certificates: &Certificates| format!(", keys-ca = '{}'", certificates.file("ca.pem"));
    for host in ["127.0.0.1", "localhost"] {
        let (proxy, _origin) = start(&routes(&(url(host) + &ca(&certificates))), &[]);
        assert!(within(EVENT_TIMEOUT, || get(&proxy, "/", &bearer(GOOD)).status == 200), "{host}");
        assert_eq!(get(&proxy, "/", &bearer(OF_NEW_KEY)).status, 401);
    }
    // Another authority, those of this host, and a name that is not in the certificate.
    for jwt in [url("127.0.0.1") + &ca(&other), url("127.0.0.1"), url("127.0.0.2") + &ca(&certificates)] {
        let (proxy, _origin) = start(&routes(&jwt), &[]);
        proxy.metrics_until("a failed request", |metrics| {
            metrics.sum("weir_jwks_requests_total", &[("result", "failed")]) >= 1.0
        });
        assert_eq!(get(&proxy, "/", &bearer(GOOD)).status, 503, "{jwt}");
        assert_eq!(proxy.metrics().sum_known("weir_jwks_keys", &[]), 0.0);
    }
}
