//! The config, the logs and the end, over the control socket.

use std::fs;

use super::*;
use crate::support::faulty::{answering_each, ok, telling};
use crate::support::rude::{Crowd, connect, see};
use crate::support::{beside_others, within};

/// Writes another config, and has `weir ctl` have it read.
pub(super) fn reload(door: &Door, config: &str) -> Output {
    let config = config.replace("HOME", door.home.path().to_str().unwrap());
    let new = door.file("weir.toml.new");
    fs::write(&new, config).unwrap();
    fs::rename(new, door.file("weir.toml")).unwrap();
    ctl(door, "reload")
}

#[test]
fn a_broken_config_is_refused_with_its_errors_and_the_old_one_stays() {
    let _shared = beside_others();
    let a = telling("a");
    let door = before(&[&a]);
    let crowd = Crowd::start(door.authority(), "/", 2);
    let output = reload(&door, "threads = 2\ncolour = \"red\"\n[listener.web]\nbind = 3\n");
    assert_eq!(output.code, 2, "{output:?}");
    for part in ["weir.toml:2:", "weir.toml:4:", "colour", "the one before stays"] {
        assert!(output.stderr.contains(part), "{part}: {}", output.stderr);
    }
    // What cannot be had is refused as well.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let extra = format!(
        "{}[listener.more]\nbind = \"{}\"\npool = \"app\"\n",
        config(&[&a.authority]),
        taken.local_addr().unwrap()
    );
    let output = reload(&door, &extra);
    assert!(output.code == 2 && output.stderr.contains("listens there already"), "{output:?}");
    let info = shown(&door, "show info");
    assert_eq!((&info["info"]["reloads"], &info["info"]["listeners"]), (&0.into(), &1.into()));
    crowd.wait_for(50);
    crowd.finish();
}

#[test]
fn what_was_set_of_servers_holds_over_a_reload() {
    let _shared = beside_others();
    let (a, b, c) = (telling("a"), telling("b"), telling("c"));
    let door = before(&[&a, &b, &c]);
    done(&door, "server app/a drain");
    done(&door, "server app/b weight 7");
    done(&door, "server app/b maxconn 9");
    let crowd = Crowd::start(door.authority(), "/", 2);
    let new = format!(
        "{TOP}[pool.app]\nservers = [{{ name = \"b\", address = \"{}\", weight = 3, maxconn = 5 }}, \
         {{ name = \"a\", address = \"{}\", weight = 2 }}]\n",
        b.authority, a.authority
    );
    let output = reload(&door, &new);
    assert!(output.code == 0 && output.stdout.contains("the config is applied"), "{output:?}");
    let (row_a, row_b) = (server(&door, "app/a"), server(&door, "app/b"));
    assert_eq!((&row_a["state"], &row_a["weight"]), (&"drain".into(), &2.into()));
    assert_eq!((&row_b["weight"], &row_b["weight_planned"]), (&7.into(), &3.into()));
    assert_eq!((&row_b["maxconn"], &row_b["maxconn_planned"]), (&9.into(), &5.into()));
    let had = row_a["requests"].clone();
    crowd.wait_for(50);
    crowd.finish();
    assert_eq!(server(&door, "app/a")["requests"], had);
    let top = shown(&door, "top");
    let names: Vec<_> =
        top["servers"].as_array().unwrap().iter().map(|row| &row["server"]).collect();
    assert_eq!(names, ["app/a", "app/b"], "what is gone is not shown any more");
    let output = ctl(&door, "server app/c drain");
    assert_eq!(output.code, 2, "the server is gone: {output:?}");
    done(&door, "server app/b weight default");
    done(&door, "server app/b maxconn default");
    let row_b = server(&door, "app/b");
    assert_eq!((&row_b["weight"], &row_b["maxconn"]), (&3.into(), &5.into()));
    assert!(done(&door, "show config").contains("weight = 3"));
    assert_eq!(shown(&door, "show info")["info"]["reloads"], 1);
}

/// A connection that only one client uses goes with its server, whatever server has its index then.
#[test]
fn a_kept_connection_goes_to_no_server_that_a_reload_removed() {
    let _shared = beside_others();
    for extra in ["reuse = \"never\"", "send-proxy-protocol = \"v1\""] {
        let server = |name: &'static str| answering_each(move |_, _| Some(ok(name.as_bytes())));
        let (a, b) = (server("a"), server("b"));
        let with = |servers: &[&Scripted]| {
            let servers: Vec<&str> = servers.iter().map(|one| one.authority.as_str()).collect();
            format!("{}{extra}\nbalance = \"first\"\n", config(&servers))
        };
        let door = Door::weir(&with(&[&a, &b]));
        let mut client = door.client();
        assert_eq!(client.ask("/").body, b"a", "{extra}");
        // The server that is left has the index of the other one.
        let output = reload(&door, &with(&[&b]));
        assert_eq!(output.code, 0, "{output:?}");
        assert_eq!(client.ask("/").body, b"b", "{extra}");
        assert_eq!(client.ask("/").body, b"b", "{extra}");
    }
}

#[test]
fn logs_are_opened_anew() {
    let _shared = beside_others();
    let a = telling("a");
    let door = Door::weir(&format!("{}[[log]]\nto = \"file:HOME/log\"\n", config(&[&a.authority])));
    assert_eq!(door.get("/first").status, 200);
    door.wait_for_lines("log", 1);
    fs::rename(door.file("log"), door.file("log.old")).unwrap();
    done(&door, "reopen");
    assert!(within(PATIENCE, || door.file("log").exists()));
    assert_eq!(door.get("/second").status, 200);
    door.wait_for_lines_with("log", "/second", 1);
    assert_eq!(door.lines("log.old").len(), 1);
}

#[test]
fn a_drain_lets_requests_finish_and_ends_the_proxy() {
    let _shared = beside_others();
    let (mut door, gated) = gated();
    let mut busy = connect(door.authority());
    busy.write_all(b"GET /x HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
    gated.next();
    assert_eq!(done(&door, "drain"), "it drains\n");
    let authority = door.authority().to_owned();
    let closed = || std::net::TcpStream::connect(&authority).is_err();
    assert!(within(PATIENCE, closed), "it still accepts");
    // It can still be looked at.
    let info = shown(&door, "show info");
    assert_eq!(
        (&info["info"]["state"], &info["info"]["in_flight"]),
        (&"draining".into(), &1.into())
    );
    gated.let_one_through();
    let seen = see(&mut busy);
    assert!(seen.status == Some(200) && seen.whole, "{}", seen.head);
    assert_eq!(door.process.wait(PATIENCE), 0, "{}", door.stderr());
    assert!(!door.file("weir.sock").exists());
}
