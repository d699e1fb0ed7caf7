//! The status page: its JSON source, and its rendering in a browser. `proxy_logs` tests the
//! metrics.

use crate::support::client::Client;
use crate::support::faulty_origins::{GatedServer, ok_response, respond_to_each};
use crate::support::hostile_client::{BackgroundClients, connect, read_response};
use crate::support::proxy_under_test::{EVENT_TIMEOUT, ProxyUnderTest};
use crate::support::{shared_machine, start, within};

/// Formats two pools, one of them with a server of weight 0.
fn config(first: &str, second: &str) -> String {
    format!(
        "threads = 2\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\n\
         connections-max = 500\n[[route]]\npath = \"/slow\"\npool = \"slow\"\n\
         [[route]]\nname = \"all\"\npool = \"fast\"\n\
         [pool.slow]\nqueue = {{ limit = 7 }}\n\
         servers = [{{ address = \"{first}\", name = \"only\", maxconn = 3 }}]\n\
         [pool.fast]\nservers = [{{ address = \"{second}\", name = \"good\" }}, \
         {{ address = \"{second}\", name = \"spare\", weight = 0 }}]\n"
    )
}

#[test]
fn the_json_says_what_is_now_and_what_was_counted() {
    let _shared = shared_machine();
    let gated = GatedServer::start();
    let origin = respond_to_each(|_, _| Some(ok_response(b"small")));
    let proxy = ProxyUnderTest::weir(&config(&gated.server.authority, &origin.authority));
    let mut client = proxy.client();
    for _ in 0..5 {
        assert_eq!(client.get("/").status, 200);
    }
    let mut slow = connect(proxy.authority());
    let request = b"GET /slow HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
    std::io::Write::write_all(&mut slow, request).unwrap();
    gated.next_target();
    let now = proxy.status();
    let listener = &now["listeners"][0];
    assert_eq!(listener["addresses"][0], proxy.authority(), "{now:#}");
    assert_eq!((&listener["open"], &listener["connections_max"]), (&2.into(), &500.into()));
    assert_eq!(listener["ends"]["done"], 5);
    let [slow_pool, fast] = [&now["pools"][0], &now["pools"][1]];
    assert_eq!((&slow_pool["name"], &slow_pool["queue_limit"]), (&"slow".into(), &7.into()));
    let only = &slow_pool["servers"][0];
    assert_eq!((&only["in_flight"], &only["maxconn"]), (&1.into(), &3.into()), "{now:#}");
    let [good, spare] = [&fast["servers"][0], &fast["servers"][1]];
    assert_eq!((&good["classes"]["2xx"], &good["in_flight"]), (&5.into(), &0.into()), "{now:#}");
    let buckets = good["buckets"].as_array().unwrap().iter();
    assert_eq!(buckets.map(|bucket| bucket.as_u64().unwrap()).sum::<u64>(), 5);
    assert_eq!((&spare["state"], &spare["usable"]), (&"up, weight 0".into(), &false.into()));
    gated.admit_one();
    assert_eq!(read_response(&mut slow).status, Some(200));
    // A reload changes the servers and keeps the counters.
    let before = config(&gated.server.authority, &origin.authority);
    proxy.reload(&before.replace("name = \"spare\"", "name = \"other\""));
    let changed = || proxy.status()["pools"][1]["servers"][1]["name"] == "other";
    assert!(within(EVENT_TIMEOUT, changed), "{}", proxy.stderr());
    assert_eq!(proxy.status()["pools"][1]["servers"][0]["classes"]["2xx"], 5);
}

#[test]
fn the_page_may_do_nothing_but_ask_where_it_came_from() {
    let _shared = shared_machine();
    let proxy = ProxyUnderTest::weir(&config("127.0.0.1:1", "127.0.0.1:1"));
    let page = Client::connect(proxy.admin()).get_with_fields("/", "Host: localhost\r\n");
    let policy = page.head.lines().find_map(|line| line.strip_prefix("Content-Security-Policy: "));
    let policy = policy.expect("a policy");
    for part in ["default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
    assert!(page.head.contains("Content-Type: text/html"), "{}", page.head);
}

#[test]
fn requests_for_a_foreign_host_or_without_the_token_get_nothing() {
    let _shared = shared_machine();
    let top = "admin-hosts = \"proxy.example\"\nadmin-token = \"a token of 18 bytes\"\n";
    let proxy = ProxyUnderTest::weir(&config("127.0.0.1:1", "127.0.0.1:1").replacen(
        "admin",
        &format!("{top}admin"),
        1,
    ));
    let ask = |target: &str, fields: &str| {
        Client::connect(proxy.admin()).get_with_fields(target, &format!("{fields}\r\n")).status
    };
    let token = "Authorization: Bearer a token of 18 bytes";
    for target in ["/", "/metrics", "/status.json"] {
        assert_eq!(ask(target, &format!("Host: evil.example\r\n{token}")), 421, "{target}");
        assert_eq!(ask(target, "Host: localhost"), 401, "{target}");
        assert_eq!(ask(target, "Host: localhost\r\nAuthorization: Bearer another"), 401, "{target}");
        assert_eq!(ask(target, &format!("Host: proxy.example:8404\r\n{token}")), 200, "{target}");
    }
    assert_eq!(ask("/health", "Host: evil.example"), 200);
}

/// Silent connections do not block the admin pages.
#[test]
fn idle_connections_do_not_take_the_admin_pages_away() {
    let _shared = shared_machine();
    let proxy = ProxyUnderTest::weir(&config("127.0.0.1:1", "127.0.0.1:1"));
    let _idle: Vec<_> = (0..200).map(|_| connect(proxy.admin())).collect();
    for _ in 0..100 {
        let health = Client::connect(proxy.admin()).get_with_fields("/health", "Host: localhost\r\n");
        assert_eq!(health.status, 200);
    }
    proxy.metrics();
}

/// Returns the browser, if there is one.
pub(crate) fn browser() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let is_there = |name: &&str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|directory| directory.join(name).exists())
    };
    names.into_iter().find(is_there)
}

#[test]
fn a_browser_shows_it_without_a_complaint() {
    let _shared = shared_machine();
    let Some(browser) = browser() else {
        return test_needs::skip("chromium", "no browser here (apt-get install chromium)");
    };
    let origin = crate::support::OriginProcess::start(&["-t", "1"]);
    let proxy = ProxyUnderTest::weir(&config(&origin.authority, &origin.authority));
    let background = BackgroundClients::start(proxy.authority(), "/?s=100", 2);
    for (size, scheme) in [("1280,1000", "1"), ("390,1900", "0")] {
        let output = start(
            browser,
            &[
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--virtual-time-budget=10000",
                &format!("--window-size={size}"),
                &format!("--blink-settings=preferredColorScheme={scheme}"),
                "--enable-logging=stderr",
                "--dump-dom",
                &format!("http://{}/", proxy.admin()),
            ],
        )
        .finish();
        let (page, errors) = (&output.stdout, &output.stderr);
        assert_eq!(output.code, 0, "{errors}");
        // Complaints of a script or a policy appear there.
        assert!(!errors.contains("CONSOLE"), "{errors}");
        let (page, _script) = page.split_once("<script>").expect(page);
        let shown = [">running<", ">web<", ">only<", ">good<", ">spare<", ">up, weight 0<", "0 / 3"];
        for shown in shown {
            assert!(page.contains(shown), "{shown}: {page}");
        }
        // The page has polled more than once, so that there are rates, and a line of them.
        let window = page.split_once("id=\"window\"").and_then(|(_, rest)| rest.split_once('>'));
        assert!(window.is_some_and(|(_, text)| !text.starts_with('<')), "{page}");
        assert!(page.contains("<polyline "), "{page}");
    }
    background.finish();
}
