//! The life of a proxy: reloaded under load, drained, stopped at once, with fewer privileges.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::Path;

use rt::clock::now_ns;
use rustix::process::Signal;

use super::{Client, ProxyUnderTest, body_text, start_proxy};
use crate::support::faulty_origins::{GatedServer, echoing_server, ok_response, respond_to_each};
use crate::support::hostile_client::{BackgroundClients, connect, read_response};
use crate::support::metrics::REQUESTS;
use crate::support::{EVENT_TIMEOUT, shared_machine, temp_dir, within};

const CONFIG_HEAD: &str = "threads = 2\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\n";

/// Returns the config of a round: its number is the response of `/version`.
fn round_config(number: u32, [a, b]: [&str; 2]) -> String {
    let weight = number % 3 + 1;
    let extra = if number % 2 == 1 {
        "[listener.extra]\nbind = \"127.0.0.1:0\"\n[[route]]\nlistener = \"extra\"\ndeny = 418\n"
    } else {
        ""
    };
    format!(
        "{CONFIG_HEAD}{extra}[[route]]\npath = \"/version\"\n\
         return = {{ status = 200, body = \"{number}\" }}\n\
         [[route]]\nname = \"only-{number}\"\npath = \"/only/{number}\"\ndeny = true\n\
         [[route]]\nname = \"main\"\npool = \"app-{pool}\"\n\
         [pool.app-{pool}]\n\
         servers = [{{ address = \"{a}\", weight = {weight} }}, \"{b}\"]\n",
        pool = number % 4
    )
}

fn wait_for_version(proxy: &ProxyUnderTest, number: u32) {
    let expected = number.to_string();
    let read = within(EVENT_TIMEOUT, || body_text(&proxy.get("/version")) == expected);
    assert!(read, "round {number} was never read: {}", proxy.stderr());
}

#[test]
fn twenty_reloads_under_load_lose_no_request() {
    let _shared = shared_machine();
    let (a, b) = (echoing_server("a"), echoing_server("b"));
    let servers = [a.authority.as_str(), b.authority.as_str()];
    let mut proxy = ProxyUnderTest::weir(&round_config(0, servers));
    let background = BackgroundClients::start(proxy.authority(), "/", 8);
    let mut counted = 0.0;
    for number in 1..=20 {
        proxy.reload(&round_config(number, servers));
        wait_for_version(&proxy, number);
        background.wait_for(50);
        if number == 1 {
            let extra = proxy.wait_for_listener("extra");
            assert_eq!(Client::connect(&extra).get("/").status, 418);
        } else if number == 2 {
            let extra = proxy.wait_for_listener("extra");
            let is_closed = || !proxy.listens_at(&extra);
            assert!(within(EVENT_TIMEOUT, is_closed), "a removed listener still accepts");
        }
        // A reload keeps the counters.
        let now = proxy.metrics().sum_known(REQUESTS, &[("listener", "web")]);
        assert!(now > counted, "{now} after {counted}");
        counted = now;
    }
    let responses = background.finish() as f64;
    // The requests of the crowd and those to `/version`, all since the start.
    let all = proxy.metrics_until("all are counted", |metrics| {
        metrics.sum_known(REQUESTS, &[("listener", "web")]) >= responses + 20.0
    });
    assert!(all.sum_known(REQUESTS, &[("listener", "web")]) < responses + 20_000.0);
    // The address stays the same.
    assert_eq!(proxy.get("/version").status, 200);
}

#[test]
fn a_bad_config_is_reported_and_the_old_one_stays() {
    let _shared = shared_machine();
    let (a, b) = (echoing_server("a"), echoing_server("b"));
    let servers = [a.authority.as_str(), b.authority.as_str()];
    let proxy = ProxyUnderTest::weir(&round_config(7, servers));
    let background = BackgroundClients::start(proxy.authority(), "/", 2);
    proxy.reload("threads = 2\ncolour = \"red\"\n[listener.web]\nbind = 3\n");
    let reported = within(EVENT_TIMEOUT, || {
        let stderr = proxy.stderr();
        stderr.contains("weir.toml:2:") && stderr.contains("weir.toml:4:") && stderr.contains("colour")
    });
    assert!(reported, "{}", proxy.stderr());
    assert_eq!(body_text(&proxy.get("/version")), "7");
    background.finish();
    // The next valid config is applied.
    proxy.reload(&round_config(8, servers));
    wait_for_version(&proxy, 8);
}

/// Replaces all files of a volume in one step, as the kubelet updates a mounted ConfigMap.
fn update_volume(volume: &Path, version: &str, config: &str) {
    fs::create_dir(volume.join(version)).unwrap();
    fs::write(volume.join(version).join("weir.toml"), config).unwrap();
    symlink(version, volume.join("..data_tmp")).unwrap();
    fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
}

#[test]
fn an_updated_config_map_is_reloaded_without_a_signal() {
    let _shared = shared_machine();
    let volume = temp_dir();
    let config = |body: &str| {
        format!(
            "{CONFIG_HEAD}[[route]]\npath = \"/version\"\nreturn = {{ status = 200, body = \"{body}\" }}\n"
        )
    };
    update_volume(volume.path(), "..v1", &config("1"));
    symlink("..data/weir.toml", volume.path().join("weir.toml")).unwrap();
    let file = volume.path().join("weir.toml");
    let proxy = ProxyUnderTest::weir_with_flags(&["--config", file.to_str().unwrap(), "--reload-on-change"]);
    // Landlock allows the directory of the config, and so its new versions.
    update_volume(volume.path(), "..v2", &config("2"));
    fs::remove_dir_all(volume.path().join("..v1")).unwrap();
    wait_for_version(&proxy, 2);
    update_volume(volume.path(), "..v3", "colour = 1\n");
    assert!(within(EVENT_TIMEOUT, || proxy.stderr().contains("colour")), "{}", proxy.stderr());
    assert_eq!(body_text(&proxy.get("/version")), "2");
    assert_eq!(proxy.stdout().matches("config applied").count(), 1, "{}", proxy.stdout());
}

/// Starts a proxy in front of a server with a gate.
fn start_gated(drain: &str) -> (ProxyUnderTest, GatedServer) {
    let gated = GatedServer::start();
    let proxy = ProxyUnderTest::weir(&format!(
        "drain-timeout = \"{drain}\"\n{CONFIG_HEAD}pool = \"app\"\n[pool.app]\nservers = [\"{}\"]\n",
        gated.server.authority
    ));
    (proxy, gated)
}

const REQUEST: &[u8] = b"GET /x HTTP/1.1\r\nHost: t\r\n\r\n";

#[test]
fn sigterm_lets_requests_finish_and_closes_the_idle() {
    let _shared = shared_machine();
    for signal in [Signal::TERM, Signal::INT] {
        let (mut proxy, gated) = start_gated("200s");
        let mut idle = connect(proxy.authority());
        let mut busy = connect(proxy.authority());
        busy.write_all(REQUEST).unwrap();
        gated.next_target();
        proxy.process.signal(signal);
        // No new client is accepted, and connections without requests in flight are closed.
        assert!(matches!(idle.read(&mut [0]), Ok(0) | Err(_)));
        let authority = proxy.authority().to_owned();
        let closed = || !proxy.listens_at(&authority);
        assert!(within(EVENT_TIMEOUT, closed), "it still accepts");
        gated.admit_one();
        let response = read_response(&mut busy);
        assert!(response.status == Some(200) && response.is_complete, "{}", response.head);
        let says_close = response.field("connection").is_some_and(|text| text.contains("close"));
        assert!(says_close, "{}", response.head);
        // Long before the drain's timeout.
        assert_eq!(proxy.process.wait(EVENT_TIMEOUT), 0, "{}", proxy.stderr());
    }
}

#[test]
fn a_drain_ends_at_its_timeout_and_at_a_second_signal() {
    let _shared = shared_machine();
    for (drain, second) in [("300ms", false), ("200s", true)] {
        let (mut proxy, gated) = start_gated(drain);
        let mut busy = connect(proxy.authority());
        busy.write_all(REQUEST).unwrap();
        gated.next_target();
        let start_ns = now_ns();
        proxy.process.signal(Signal::TERM);
        if second {
            let authority = proxy.authority().to_owned();
            let draining = || !proxy.listens_at(&authority);
            assert!(within(EVENT_TIMEOUT, draining));
            proxy.process.signal(Signal::TERM);
        }
        let code = proxy.process.wait(EVENT_TIMEOUT);
        let took_ms = (now_ns() - start_ns) / 1_000_000;
        assert!(second || took_ms >= 290, "{took_ms} ms");
        // The request that was cut off gets no invented response.
        assert_eq!(read_response(&mut busy).status, None);
        // A drain that reached its timeout has ended as configured.
        assert!(code == 0 || second, "{code}: {}", proxy.stderr());
    }
}

#[test]
fn privileges_are_dropped_once_its_sockets_are_bound() {
    let _shared = shared_machine();
    if !rustix::process::geteuid().is_root() {
        return test_needs::skip(test_needs::ROOT, "only root has privileges to drop");
    }
    let origin = respond_to_each(|_, _| Some(ok_response(b"here")));
    let proxy = ProxyUnderTest::weir(&format!(
        "threads = 2\n[privileges]\nuser = \"nobody\"\ngroup = \"nogroup\"\n\
         [listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         [pool.app]\nservers = [\"{}\"]\n",
        origin.authority
    ));
    assert_eq!(proxy.get("/").status, 200);
    let id = |file: &str, name: &str| {
        let text = fs::read_to_string(file).unwrap();
        let line = text.lines().find(|line| line.starts_with(&format!("{name}:x:")));
        line.and_then(|line| line.split(':').nth(2)).expect(name).to_owned()
    };
    let (user, group) = (id("/etc/passwd", "nobody"), id("/etc/group", "nogroup"));
    // Each thread has its own credentials.
    for thread in host::process::thread_ids(proxy.process.id()).unwrap() {
        let status = format!("/proc/{}/task/{thread}/status", proxy.process.id());
        let status = fs::read_to_string(status).unwrap();
        let all = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).expect(name);
            line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        assert!(all("Uid:").iter().all(|id| *id == user), "{status}");
        assert!(all("Gid:").iter().all(|id| *id == group), "{status}");
        assert!(all("Groups:").iter().all(|id| *id == group), "{status}");
        assert_eq!(all("NoNewPrivs:"), ["1"], "{status}");
        assert_eq!(all("CapEff:"), ["0000000000000000"], "{status}");
    }
}

#[test]
fn no_new_privileges_is_set_unless_it_is_turned_off() {
    let _shared = shared_machine();
    for (text, expected) in [("", "1"), ("[privileges]\nno-new-privileges = false\nlandlock = false\n", "0")]
    {
        let proxy = start_proxy(&format!("[[route]]\ndeny = true\n{text}"));
        let status = fs::read_to_string(format!("/proc/{}/status", proxy.process.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("NoNewPrivs:")).unwrap();
        assert!(line.ends_with(expected), "{text}: {line}");
    }
}
