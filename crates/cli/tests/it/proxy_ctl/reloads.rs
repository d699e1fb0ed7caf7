//! The config, the logs and the drain, over the control socket.

use std::fs;

use super::*;
use crate::support::faulty_origins::{echoing_server, ok_response, respond_to_each};
use crate::support::hostile_client::{BackgroundClients, connect, read_response};
use crate::support::{shared_machine, within};

/// Writes another config, and reloads it with `weir ctl`.
pub(super) fn reload(proxy: &ProxyUnderTest, config: &str) -> RunOutput {
    let config = config.replace("HOME", proxy.home.path().to_str().unwrap());
    let new = proxy.file("weir.toml.new");
    fs::write(&new, config).unwrap();
    fs::rename(new, proxy.file("weir.toml")).unwrap();
    run_ctl(proxy, "reload")
}

#[test]
fn a_broken_config_is_refused_with_its_errors_and_the_old_one_stays() {
    let _shared = shared_machine();
    let a = echoing_server("a");
    let proxy = start_proxy(&[&a]);
    let background = BackgroundClients::start(proxy.authority(), "/", 2);
    let output = reload(&proxy, "threads = 2\ncolour = \"red\"\n[listener.web]\nbind = 3\n");
    assert_eq!(output.code, 2, "{output:?}");
    for part in ["weir.toml:2:", "weir.toml:4:", "colour"] {
        assert!(output.stderr.contains(part), "{part}: {}", output.stderr);
    }
    // A config with an unavailable address is rejected too.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let more = format!("[listener.more]\nbind = \"{address}\"\npool = \"app\"\n");
    let output = reload(&proxy, &(config(&[&a.authority]) + &more));
    assert!(output.code == 2 && output.stderr.contains(&address), "{output:?}");
    let info = ctl_json(&proxy, "show info");
    assert_eq!((&info["info"]["reloads"], &info["info"]["listeners"]), (&0.into(), &1.into()));
    let last = info["info"]["last_reload"].as_str().unwrap();
    assert!(last.starts_with("refused: ") && last.contains(&address), "{info}");
    background.wait_for(50);
    background.finish();
}

#[test]
fn what_was_set_of_servers_holds_over_a_reload() {
    let _shared = shared_machine();
    let (a, b, c) = (echoing_server("a"), echoing_server("b"), echoing_server("c"));
    let proxy = start_proxy(&[&a, &b, &c]);
    ctl_output(&proxy, "server app/a drain");
    ctl_output(&proxy, "server app/b weight 7");
    ctl_output(&proxy, "server app/b maxconn 9");
    let background = BackgroundClients::start(proxy.authority(), "/", 2);
    let new = format!(
        "{CONFIG_HEAD}[pool.app]\nservers = [{{ name = \"b\", address = \"{}\", weight = 3, maxconn = 5 }}, \
         {{ name = \"a\", address = \"{}\", weight = 2 }}]\n",
        b.authority, a.authority
    );
    let output = reload(&proxy, &new);
    assert!(output.code == 0 && output.stdout.contains("config applied"), "{output:?}");
    let (row_a, row_b) = (server_row(&proxy, "app/a"), server_row(&proxy, "app/b"));
    assert_eq!((&row_a["state"], &row_a["weight"]), (&"drain".into(), &2.into()));
    assert_eq!((&row_b["weight"], &row_b["weight_configured"]), (&7.into(), &3.into()));
    assert_eq!((&row_b["maxconn"], &row_b["maxconn_configured"]), (&9.into(), &5.into()));
    let had = row_a["requests"].clone();
    background.wait_for(50);
    background.finish();
    assert_eq!(server_row(&proxy, "app/a")["requests"], had);
    let top = ctl_json(&proxy, "top");
    let names: Vec<_> = top["servers"].as_array().unwrap().iter().map(|row| &row["server"]).collect();
    assert_eq!(names, ["app/a", "app/b"], "what is gone is not shown any more");
    let output = run_ctl(&proxy, "server app/c drain");
    assert_eq!(output.code, 2, "the server is gone: {output:?}");
    ctl_output(&proxy, "server app/b weight default");
    ctl_output(&proxy, "server app/b maxconn default");
    let row_b = server_row(&proxy, "app/b");
    assert_eq!((&row_b["weight"], &row_b["maxconn"]), (&3.into(), &5.into()));
    assert!(ctl_output(&proxy, "show config").contains("weight = 3"));
    assert_eq!(ctl_json(&proxy, "show info")["info"]["reloads"], 1);
}

/// A connection that only one client uses is closed with its server, whichever server has its index
/// afterwards.
#[test]
fn a_kept_connection_goes_to_no_server_that_a_reload_removed() {
    let _shared = shared_machine();
    for extra in ["reuse = \"never\"", "send-proxy-protocol = \"v1\""] {
        let server = |name: &'static str| respond_to_each(move |_, _| Some(ok_response(name.as_bytes())));
        let (a, b) = (server("a"), server("b"));
        let with = |servers: &[&ScriptedServer]| {
            let servers: Vec<&str> = servers.iter().map(|server| server.authority.as_str()).collect();
            format!("{}{extra}\nbalance = \"first\"\n", config(&servers))
        };
        let proxy = ProxyUnderTest::weir(&with(&[&a, &b]));
        let mut client = proxy.client();
        assert_eq!(client.get("/").body, b"a", "{extra}");
        // The remaining server has the index of the removed one.
        let output = reload(&proxy, &with(&[&b]));
        assert_eq!(output.code, 0, "{output:?}");
        assert_eq!(client.get("/").body, b"b", "{extra}");
        assert_eq!(client.get("/").body, b"b", "{extra}");
    }
}

#[test]
fn logs_are_reopened() {
    let _shared = shared_machine();
    let a = echoing_server("a");
    let proxy =
        ProxyUnderTest::weir(&format!("{}[[log]]\nto = \"file:HOME/log\"\n", config(&[&a.authority])));
    assert_eq!(proxy.get("/first").status, 200);
    proxy.wait_for_lines("log", 1);
    fs::rename(proxy.file("log"), proxy.file("log.old")).unwrap();
    ctl_output(&proxy, "reopen");
    assert!(within(EVENT_TIMEOUT, || proxy.file("log").exists()));
    assert_eq!(proxy.get("/second").status, 200);
    proxy.wait_for_lines_with("log", "/second", 1);
    assert_eq!(proxy.lines("log.old").len(), 1);
}

#[test]
fn a_drain_lets_requests_finish_and_ends_the_proxy() {
    let _shared = shared_machine();
    let (mut proxy, gated) = start_gated();
    let mut busy = connect(proxy.authority());
    busy.write_all(b"GET /x HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
    gated.next_target();
    ctl_output(&proxy, "drain");
    let authority = proxy.authority().to_owned();
    let closed = || !proxy.listens_at(&authority);
    assert!(within(EVENT_TIMEOUT, closed), "it still accepts");
    // Its state can still be queried.
    let info = ctl_json(&proxy, "show info");
    assert_eq!((&info["info"]["state"], &info["info"]["in_flight"]), (&"draining".into(), &1.into()));
    gated.admit_one();
    let response = read_response(&mut busy);
    assert!(response.status == Some(200) && response.is_complete, "{}", response.head);
    assert_eq!(proxy.process.wait(EVENT_TIMEOUT), 0, "{}", proxy.stderr());
    assert!(!proxy.file("weir.sock").exists());
}
