//! Removal of stored responses: by operators, and by requests that change what they show.

use super::{RESPONSES, RecordingServer, ctl, get, response, start, text};
use crate::support::faulty_origins::{LaxMessage, field};
use crate::support::{run_weir, shared_machine};

/// Starts a server whose responses to GET can be stored, and have tags of their path.
fn tagged_server() -> RecordingServer {
    RecordingServer::start(|request: &LaxMessage, number| {
        if request.method() != "GET" {
            let status = request.field("x-status").unwrap_or_else(|| "201 Created".to_owned());
            return format!("HTTP/1.1 {status}\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n").into_bytes();
        }
        let tag = request.target().trim_start_matches('/');
        response(
            &format!(
                "Cache-Control: max-age=600\r\nCache-Tag: all, {tag}\r\nSurrogate-Key: key-{tag} other\r\n"
            ),
            &format!("{tag} {number}"),
        )
    })
}

#[test]
fn operators_remove_responses() {
    let _shared = shared_machine();
    let server = tagged_server();
    let proxy = start(&server.server, "", "");
    let ask = |target: &str| text(&get(&proxy, target, ""));
    let ask_all = || ["/a", "/b", "/c"].map(ask);
    assert_eq!(ask_all(), ["a 1", "b 2", "c 3"]);
    assert_eq!(
        ctl(&proxy, &["cache", "purge", "main", "key", "app|http|h/a"]),
        "cache main: 1 response purged\n"
    );
    assert_eq!(ask_all(), ["a 4", "b 2", "c 3"]);
    assert_eq!(ctl(&proxy, &["cache", "purge", "main", "tag", "key-b"]), "cache main: 1 response purged\n");
    assert_eq!(ask_all(), ["a 4", "b 5", "c 3"]);
    assert_eq!(
        ctl(&proxy, &["cache", "purge", "main", "prefix", "app|http|h/"]),
        "cache main: 3 responses purged\n"
    );
    assert_eq!(ask_all(), ["a 6", "b 7", "c 8"]);
    assert_eq!(ctl(&proxy, &["cache", "purge", "main", "tag", "all"]), "cache main: 3 responses purged\n");
    assert_eq!(ctl(&proxy, &["cache", "purge", "main", "all"]), "cache main: 0 responses purged\n");
    assert_eq!(ask_all(), ["a 9", "b 10", "c 11"]);
    let list = ctl(&proxy, &["cache"]);
    assert!(list.contains("main") && list.contains("memory"), "{list}");
    let shown = ctl(&proxy, &["cache", "show", "main"]);
    assert!(shown.contains("app|http|h/a") && shown.contains("200"), "{shown}");
    let socket = proxy.file("weir.sock");
    let run = run_weir(&["ctl", "--socket", socket.to_str().unwrap(), "cache", "purge", "mian", "all"]);
    assert!(
        run.code == 2 && run.stderr.contains("unknown cache 'mian' (did you mean 'main'?)"),
        "{}",
        run.stderr
    );
    assert_eq!(proxy.metrics().sum_known(RESPONSES, &[("in", "memory")]), 3.0);
}

#[test]
fn a_successful_change_removes_what_it_makes_outdated() {
    let _shared = shared_machine();
    let server = tagged_server();
    let proxy = start(&server.server, "", "");
    let ask = |target: &str| text(&get(&proxy, target, ""));
    let send = |method: &str, status: &str| {
        let mut client = proxy.client();
        let fields = format!("Host: h\r\nX-Status: {status}\r\nContent-Length: 2\r\n");
        client.send(format!("{method} /a HTTP/1.1\r\n{fields}\r\nhi").as_bytes());
        let response = client.read_response().expect("a response");
        assert_eq!(
            field(&response.head, "cache-status").as_deref(),
            Some("weir; fwd=method"),
            "{}",
            response.head
        );
    };
    assert_eq!(["/a", "/b", "/c"].map(ask), ["a 1", "b 2", "c 3"]);
    send("POST", "500 No");
    assert_eq!(["/a", "/b", "/c"].map(ask), ["a 1", "b 2", "c 3"]);
    // Its own target, and that of `Location`.
    send("PUT", "201 Created");
    assert_eq!(["/a", "/b", "/c"].map(ask), ["a 6", "b 7", "c 3"]);
    send("OPTIONS", "200 OK");
    assert_eq!(["/a", "/b", "/c"].map(ask), ["a 6", "b 7", "c 3"]);
}
