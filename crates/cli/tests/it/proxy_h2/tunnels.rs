//! WebSocket over HTTP/2 (RFC 8441), and CONNECT.

use std::io::Read as _;
use std::net::Shutdown;

use super::*;
use crate::support::shared_machine;

/// Starts a server that upgrades, or connects, says hello, and echoes.
fn tunnel_server() -> ScriptedServer {
    ScriptedServer::start(|peer| {
        let mut reader = LaxReader::new(peer.stream.try_clone()?);
        let Some(head) = reader.read_until(b"\r\n\r\n")? else { return Ok(()) };
        let head = String::from_utf8_lossy(&head).into_owned();
        if head.starts_with("CONNECT ") {
            peer.send(b"HTTP/1.1 200 Connected\r\n\r\nhello")?;
        } else {
            let key = field(&head, "sec-websocket-key").unwrap_or_default();
            let has_all = head.starts_with("GET /ws ") && key.len() == 24;
            if !has_all || field(&head, "upgrade").as_deref() != Some("websocket") {
                return peer.send(&ok_response(b"plain"));
            }
            peer.send(
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                  Sec-WebSocket-Accept: x\r\n\r\nhello",
            )?;
        }
        let mut bytes = std::mem::take(&mut reader.buffered);
        loop {
            peer.send(&bytes)?;
            bytes.resize(1024, 0);
            let length = peer.stream.read(&mut bytes)?;
            if length == 0 {
                return peer.stream.shutdown(Shutdown::Write);
            }
            bytes.truncate(length);
        }
    })
}

#[test]
fn a_websocket_over_http2_becomes_an_upgrade() {
    let _shared = shared_machine();
    if !has_python_h2() {
        return;
    }
    let server = tunnel_server();
    let proxy = start_proxy("", &server.authority, "");
    let text = run_client(&proxy, "websocket", &["/ws"]);
    assert_eq!(text, "200 5 open False\n200 9 end\n");
    let line = &json_lines(&proxy, "/ws", 1)[0];
    assert_eq!((&line["status"], &line["end"]), (&101.into(), &"done".into()), "{line}");
    // A server that does not change the protocol.
    let text = run_client(&proxy, "websocket", &["/other"]);
    assert!(text.starts_with("502 0 end"), "{text}");
    proxy.assert_all_returned();
}

#[test]
fn a_tunnel_whose_client_has_ended_its_side_early_gets_the_rest() {
    let _shared = shared_machine();
    if !has_python_h2() {
        return;
    }
    let server = ScriptedServer::start(|peer| {
        let mut reader = LaxReader::new(peer.stream.try_clone()?);
        reader.read_until(b"\r\n\r\n")?;
        // By now the client has most likely ended its side.
        crate::support::pause_ms(200);
        peer.send(b"HTTP/1.1 200 Connected\r\n\r\n")?;
        let mut bytes = std::mem::take(&mut reader.buffered);
        peer.stream.read_to_end(&mut bytes)?;
        peer.send(format!("got {} bytes", bytes.len()).as_bytes())
    });
    let proxy = start_proxy("connect = true", &server.authority, "");
    let text = run_client(&proxy, "connect_half_closed", &["", "ping", "twenty bytes of data"]);
    assert_eq!(text, "200 11 end\n200 11 end\n200 12 end\n");
    let lines = json_lines(&proxy, "CONNECT", 3);
    assert!(lines.iter().all(|line| line["end"] == "done"), "{lines:?}");
    proxy.assert_all_returned();
}

#[test]
fn an_extended_connect_for_a_version_of_http_reaches_no_server() {
    let _shared = shared_machine();
    if !has_python_h2() {
        return;
    }
    let server = tunnel_server();
    let proxy = start_proxy("", &server.authority, "");
    for protocol in ["h2c", "h2", "H2C"] {
        let text = run_client(&proxy, "websocket", &["/ws", protocol]);
        assert!(text.starts_with("501 "), "{protocol}: {text}");
    }
    assert_eq!(proxy.metrics().sum("weir_server_requests_total", &[]), 0.0);
}

#[test]
fn content_behind_a_denied_upgrade_of_a_stream_is_no_request() {
    let _shared = shared_machine();
    if !has_python_h2() {
        return;
    }
    let server = crate::support::faulty_origins::respond_to_each(|request, _| {
        let is_denied = request.head.starts_with("GET /denied");
        let denial = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno";
        Some(if is_denied { denial.to_vec() } else { ok_response(b"yes") })
    });
    for listener in ["", "requests-max = 100"] {
        let proxy = start_proxy(listener, &server.authority, "");
        let text = run_client(&proxy, "denied_websocket", &["/denied"]);
        assert!(text.starts_with("403 2 end") && text.ends_with("after 200 3 end\n"), "{text}");
        assert_eq!(json_lines(&proxy, "\"target\"", 2).len(), 2);
        let targets = [("pool", "app")];
        assert_eq!(proxy.metrics().sum("weir_server_requests_total", &targets), 2.0);
        let log = std::fs::read_to_string(proxy.file("access.json")).unwrap();
        assert!(!log.contains("/hidden"), "{log}");
        proxy.assert_all_returned();
    }
}

#[test]
fn a_connect_becomes_a_tunnel_where_it_is_allowed() {
    let _shared = shared_machine();
    if !has_python_h2() {
        return;
    }
    let server = tunnel_server();
    let proxy = start_proxy("connect = true", &server.authority, "");
    assert_eq!(run_client(&proxy, "connect", &[]), "200 5 open\n200 9 end\n");
    proxy.assert_all_returned();
    let proxy = start_proxy("", &server.authority, "");
    assert!(run_client(&proxy, "connect", &[]).starts_with("405 "));
}
