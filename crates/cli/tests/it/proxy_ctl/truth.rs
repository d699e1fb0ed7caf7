//! What the proxy says of itself is so: commands that did nothing say so, a reload that cannot be applied
//! is refused, and one state of a server is shown everywhere.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::reloads::reload;
use super::*;
use crate::support::faulty::telling;
use crate::support::metrics::QUEUED;
use crate::support::rude::connect;
use crate::support::{beside_others, within};

#[test]
fn a_log_that_cannot_be_opened_again_is_an_error_of_reopen() {
    let _shared = beside_others();
    let a = telling("a");
    let door = Door::weir_with_folder(
        "logs",
        &format!("{}[[log]]\nto = \"file:HOME/logs/access\"\n", config(&[&a.authority])),
    );
    assert_eq!(done(&door, "reopen"), "the logs are opened again\n");
    fs::rename(door.file("logs"), door.file("gone")).unwrap();
    let output = ctl(&door, "reopen");
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains("logs/access") && output.stdout.is_empty(), "{output:?}");
    // Its lines go where they went before.
    assert_eq!(door.get("/kept").status, 200);
    door.wait_for_lines_with("gone/access", "/kept", 1);
    // A reload is applied, and says what it could not do.
    let output = ctl(&door, "reload");
    assert_eq!(output.code, 0, "{output:?}");
    assert!(
        output.stdout.contains("warning: ") && output.stdout.contains("is applied"),
        "{output:?}"
    );
}

#[test]
fn a_reload_that_takes_a_restart_is_refused_as_a_whole() {
    let _shared = beside_others();
    let (a, b) = (telling("a"), telling("b"));
    let door = before(&[&a]);
    let new = config(&[&b.authority]);
    for (changed, key) in [
        (new.replace("threads = 2", "threads = 3"), "threads"),
        (new.replace("admin = \"127.0.0.1:0\"\n", ""), "admin"),
        (new.replace("weir.sock", "other.sock"), "control"),
    ] {
        let output = reload(&door, &changed);
        assert_eq!(output.code, 2, "{key}: {output:?}");
        for part in ["cannot change while the proxy runs: ", key, "the one before stays"] {
            assert!(output.stderr.contains(part), "{part}: {output:?}");
        }
    }
    assert!(door.get("/").body.starts_with(b"a\n"));
    let info = &shown(&door, "show info")["info"];
    let last = info["last_reload"].as_str().unwrap();
    assert!(last.starts_with("refused: these keys"), "{info}");
    assert_eq!(info["reloads"], 0);
    let metrics = door.metrics();
    assert_eq!(metrics.known("weir_reloads_total", &[("result", "refused")]), 3.0);
    assert_eq!(metrics.known("weir_last_reload_successful", &[]), 0.0);
    // What can change does, the time of a drain too.
    let output = reload(&door, &format!("drain-timeout = \"7s\"\n{new}"));
    assert_eq!(output.code, 0, "{output:?}");
    assert!(door.get("/").body.starts_with(b"b\n"));
    assert_eq!(door.metrics().known("weir_last_reload_successful", &[]), 1.0);
}

/// An agent bounds a server that has no bound in the config, and its word is shown everywhere.
#[test]
fn the_word_of_an_agent_is_in_force_and_shown() {
    const LINES: [&str; 5] =
        ["up 100%\n", "maxconn:1\n", "drain\n", "maint\n", "ready 25% maxconn:7\n"];
    let _shared = beside_others();
    let gated = Gated::start();
    let line = Arc::new(AtomicUsize::new(0));
    let shared = Arc::clone(&line);
    let agent =
        Scripted::start(move |peer| peer.send(LINES[shared.load(Ordering::SeqCst)].as_bytes()));
    let port = agent.authority.rsplit(':').next().unwrap();
    let door = Door::weir(&format!(
        "{TOP}[pool.app]\nservers = [{{ name = \"a\", address = \"{}\", weight = 4 }}]\n\
         [pool.app.check]\ntype = \"agent\"\nport = {port}\ninterval = \"40ms\"\ntimeout = \"5s\"\n",
        gated.server.authority
    ));
    let say = |at: usize| line.store(at, Ordering::SeqCst);
    let becomes = |column: &str, value: Value| {
        let is_so = || server(&door, "app/a")[column] == value;
        assert!(within(PATIENCE, is_so), "{column} {value}: {:#}", server(&door, "app/a"));
    };
    let ask = |target: &str| {
        let mut client = connect(door.authority());
        write!(client, "GET {target} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").unwrap();
        client
    };
    let first = ask("/first");
    gated.next();
    say(1);
    becomes("maxconn", 1.into());
    assert_eq!(server(&door, "app/a")["maxconn_planned"], Value::Null);
    // Requests that were there before the bound count within a tick.
    let mut more = Vec::new();
    let one_waits = || {
        more.push(ask("/more"));
        door.metrics().known(QUEUED, &[("pool", "app")]) >= 1.0
    };
    assert!(within(PATIENCE, one_waits), "{}", door.metrics());
    assert_eq!(door.metrics().known("weir_server_bound_requests", &[("server", "a")]), 1.0);
    drop((first, more));
    for (at, state) in [(2, "drain"), (3, "maintenance")] {
        say(at);
        becomes("state", state.into());
        assert_eq!(door.status()["pools"][0]["servers"][0]["state"], state);
        let state = [("server", "a"), ("state", state)];
        assert_eq!(door.metrics().known("weir_server_state", &state), 1.0);
    }
    say(4);
    becomes("maxconn", 7.into());
    becomes("state", "up".into());
    let row = server(&door, "app/a");
    assert_eq!((&row["weight"], &row["weight_planned"]), (&1.into(), &4.into()));
    assert_eq!(row["last_check"], "passed");
    assert_eq!(door.status()["pools"][0]["servers"][0]["weight"], 1.0);
    assert_eq!(door.metrics().known("weir_server_weight", &[("server", "a")]), 1.0);
    done(&door, "server app/a maxconn 3");
    becomes("maxconn", 3.into());
}

#[test]
fn every_counter_is_there_from_the_start_and_the_process_is_described() {
    let _shared = beside_others();
    let a = telling("a");
    let door = before(&[&a]);
    let metrics = door.metrics();
    for end in ["done", "rate_limited", "queue_full", "server_timeout"] {
        let labels = [("listener", "web"), ("end", end)];
        let samples = metrics.of("weir_requests_total", &labels);
        assert!(samples.map(|sample| sample.value).eq([0.0]), "{end}");
    }
    assert_eq!(metrics.known("weir_responses_total", &[("code", "200")]), 0.0);
    assert_eq!(metrics.known("weir_refusals_total", &[("from", "client")]), 0.0);
    assert_eq!(metrics.known("weir_build_info", &[]), 1.0);
    assert_eq!(metrics.known("weir_threads", &[]), 2.0);
    for name in [
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
        "process_open_fds",
        "process_max_fds",
        "process_start_time_seconds",
        "process_threads",
        "weir_uptime_seconds",
    ] {
        assert!(metrics.known(name, &[]) > 0.0, "{name}: {metrics}");
    }
    for _ in 0..3 {
        door.get("/");
    }
    assert_eq!(door.metrics().known("weir_responses_total", &[("code", "200")]), 3.0);
}
