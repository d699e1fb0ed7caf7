//! Truthful reports of the proxy: commands without effect report that, a reload that cannot be
//! applied is rejected, and every view shows the same state of a server.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::reloads::reload;
use super::*;
use crate::support::faulty_origins::echoing_server;
use crate::support::hostile_client::connect;
use crate::support::metrics::QUEUED;
use crate::support::{shared_machine, within};

#[test]
fn a_log_that_cannot_be_opened_again_is_an_error_of_reopen() {
    let _shared = shared_machine();
    let a = echoing_server("a");
    let proxy = ProxyUnderTest::weir_with_directory(
        "logs",
        &format!("{}[[log]]\nto = \"file:HOME/logs/access\"\n", config(&[&a.authority])),
    );
    ctl_output(&proxy, "reopen");
    fs::rename(proxy.file("logs"), proxy.file("gone")).unwrap();
    let output = run_ctl(&proxy, "reopen");
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains("logs/access") && output.stdout.is_empty(), "{output:?}");
    // The log lines still go to the renamed file.
    assert_eq!(proxy.get("/kept").status, 200);
    proxy.wait_for_lines_with("gone/access", "/kept", 1);
    // The reload is applied, and reports the part that failed.
    let output = run_ctl(&proxy, "reload");
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.stdout.contains("warning: ") && output.stdout.contains("logs/access"), "{output:?}");
    assert_eq!(ctl_json(&proxy, "show info")["info"]["reloads"], 1);
}

#[test]
fn a_reload_that_needs_a_restart_is_rejected_completely() {
    let _shared = shared_machine();
    let (a, b) = (echoing_server("a"), echoing_server("b"));
    let proxy = start_proxy(&[&a]);
    let new = config(&[&b.authority]);
    for (changed, key) in [
        (new.replace("threads = 2", "threads = 3"), "threads"),
        (new.replace("admin = \"127.0.0.1:0\"\n", ""), "admin"),
        (new.replace("weir.sock", "other.sock"), "control"),
    ] {
        let output = reload(&proxy, &changed);
        assert_eq!(output.code, 2, "{key}: {output:?}");
        assert!(output.stderr.contains(&format!(": {key};")), "{key}: {output:?}");
    }
    assert!(proxy.get("/").body.starts_with(b"a\n"));
    let info = &ctl_json(&proxy, "show info")["info"];
    let last = info["last_reload"].as_str().unwrap();
    assert!(last.starts_with("refused: ") && last.contains("control"), "{info}");
    assert_eq!(info["reloads"], 0);
    let metrics = proxy.metrics();
    assert_eq!(metrics.sum_known("weir_reloads_total", &[("result", "refused")]), 3.0);
    assert_eq!(metrics.sum_known("weir_last_reload_successful", &[]), 0.0);
    // A reload changes all changeable settings, including the drain timeout.
    let output = reload(&proxy, &format!("drain-timeout = \"7s\"\n{new}"));
    assert_eq!(output.code, 0, "{output:?}");
    assert!(proxy.get("/").body.starts_with(b"b\n"));
    assert_eq!(proxy.metrics().sum_known("weir_last_reload_successful", &[]), 1.0);
}

/// An agent limits a server without a limit in the config, and every view shows that limit.
#[test]
fn the_word_of_an_agent_is_in_force_and_shown() {
    const LINES: [&str; 5] = ["up 100%\n", "maxconn:1\n", "drain\n", "maint\n", "ready 25% maxconn:7\n"];
    let _shared = shared_machine();
    let gated = GatedServer::start();
    let line = Arc::new(AtomicUsize::new(0));
    let shared = Arc::clone(&line);
    let agent = ScriptedServer::start(move |peer| peer.send(LINES[shared.load(Ordering::SeqCst)].as_bytes()));
    let port = agent.authority.rsplit(':').next().unwrap();
    let proxy = ProxyUnderTest::weir(&format!(
        "{CONFIG_HEAD}[pool.app]\nservers = [{{ name = \"a\", address = \"{}\", weight = 4 }}]\n\
         queue = {{ timeout = \"100s\" }}\n\
         [pool.app.check]\ntype = \"agent\"\nport = {port}\ninterval = \"40ms\"\ntimeout = \"5s\"\n",
        gated.server.authority
    ));
    let say = |at: usize| line.store(at, Ordering::SeqCst);
    let becomes = |column: &str, value: Value| {
        let is_so = || server_row(&proxy, "app/a")[column] == value;
        assert!(within(EVENT_TIMEOUT, is_so), "{column} {value}: {:#}", server_row(&proxy, "app/a"));
    };
    let ask = |target: &str| {
        let mut client = connect(proxy.authority());
        write!(client, "GET {target} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").unwrap();
        client
    };
    let first = ask("/first");
    gated.next_target();
    say(1);
    becomes("maxconn", 1.into());
    assert_eq!(server_row(&proxy, "app/a")["maxconn_configured"], Value::Null);
    // Requests from before the limit count within a tick.
    let mut more = Vec::new();
    let one_waits = || {
        more.push(ask("/more"));
        proxy.metrics().sum_known(QUEUED, &[("pool", "app")]) >= 1.0
    };
    assert!(within(EVENT_TIMEOUT, one_waits), "{}", proxy.metrics());
    assert_eq!(proxy.metrics().sum_known("weir_server_requests_max", &[("server", "a")]), 1.0);
    drop((first, more));
    for (at, state) in [(2, "drain"), (3, "maintenance")] {
        say(at);
        becomes("state", state.into());
        assert_eq!(proxy.status()["pools"][0]["servers"][0]["state"], state);
        let state = [("server", "a"), ("state", state)];
        assert_eq!(proxy.metrics().sum_known("weir_server_state", &state), 1.0);
    }
    say(4);
    becomes("maxconn", 7.into());
    becomes("state", "up".into());
    let row = server_row(&proxy, "app/a");
    assert_eq!((&row["weight"], &row["weight_configured"]), (&1.into(), &4.into()));
    assert_eq!(row["last_check"], "passed");
    assert_eq!(proxy.status()["pools"][0]["servers"][0]["weight"], 1.0);
    assert_eq!(proxy.metrics().sum_known("weir_server_weight", &[("server", "a")]), 1.0);
    ctl_output(&proxy, "server app/a maxconn 3");
    becomes("maxconn", 3.into());
}

#[test]
fn every_counter_is_there_from_the_start_and_the_process_is_described() {
    let _shared = shared_machine();
    let a = echoing_server("a");
    let proxy = start_proxy(&[&a]);
    let metrics = proxy.metrics();
    for end in ["done", "rate_limited", "queue_full", "server_timeout"] {
        let labels = [("listener", "web"), ("end", end)];
        let samples = metrics.samples_with("weir_requests_total", &labels);
        assert!(samples.map(|sample| sample.value).eq([0.0]), "{end}");
    }
    assert_eq!(metrics.sum_known("weir_responses_total", &[("code", "200")]), 0.0);
    assert_eq!(metrics.sum_known("weir_messages_rejected_total", &[("from", "client")]), 0.0);
    assert_eq!(metrics.sum_known("weir_build_info", &[]), 1.0);
    assert_eq!(metrics.sum_known("weir_threads", &[]), 2.0);
    for name in [
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
        "process_open_fds",
        "process_max_fds",
        "process_start_time_seconds",
        "process_threads",
        "weir_uptime_seconds",
    ] {
        assert!(metrics.sum_known(name, &[]) > 0.0, "{name}: {metrics}");
    }
    for _ in 0..3 {
        proxy.get("/");
    }
    proxy.metrics_until("each is counted", |metrics| {
        metrics.sum_known("weir_responses_total", &[("code", "200")]) == 3.0
    });
}
