//! WebSocket and CONNECT to servers with HTTP/2.

use std::net::Shutdown;

use super::{H2Server, config_with_listener, ends_of, start_proxy};
use crate::support::peers::{Nginx, ScriptedServer};
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::tls_peers::Certificates;

/// Handshake of RFC 6455 §1.3.
const HANDSHAKE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

#[test]
fn a_websocket_handshake_becomes_an_extended_connect() {
    let Some(mut server) = H2Server::start(&["connect=1"]) else { return };
    let proxy = start_proxy(&[&server.authority], "");
    let mut client = proxy.client();
    let response = client.get_with_fields("/chat", &format!("Host: h\r\n{HANDSHAKE}"));
    assert_eq!(response.status, 101);
    for field in
        ["sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", "x-protocol: websocket", "upgrade: websocket"]
    {
        assert!(response.head.to_lowercase().contains(&field.to_lowercase()), "{field}: {}", response.head);
    }
    let sent = vec![b'p'; 500_000];
    let writer = {
        let (mut stream, sent) = (client.stream.try_clone().unwrap(), sent.clone());
        std::thread::spawn(move || {
            std::io::Write::write_all(&mut stream, &sent).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        })
    };
    assert!(client.read_to_end() == sent);
    writer.join().unwrap();
    // A response other than 2xx is passed on.
    assert_eq!(proxy.client().get_with_fields("/denied", &format!("Host: h\r\n{HANDSHAKE}")).status, 403);
    assert_eq!(ends_of(&proxy, &["/chat", "/denied"]), ["done", "done"]);
    assert_eq!(server.count("connections"), 1);
    proxy.assert_all_returned();
}

#[test]
fn a_tunnel_that_its_server_ends_first_ends_as_one_of_http11_does() {
    let echo = ScriptedServer::start(|peer| {
        let Some(head) = peer.request()? else { return Ok(()) };
        peer.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")?;
        let mut bytes = vec![0; 1 << 16];
        let mut received = 0;
        while received < 300_000 {
            let length = std::io::Read::read(&mut peer.stream, &mut bytes)?;
            if length == 0 {
                break;
            }
            received += length;
            peer.send(&bytes[..length])?;
        }
        // The client ends first, or the server.
        if head.starts_with("GET /client") {
            while std::io::Read::read(&mut peer.stream, &mut bytes)? > 0 {}
        }
        Ok(())
    });
    let back = start_proxy_of_http11(&echo.authority);
    let proxy = start_proxy(&[back.authority()], "");
    let paths = ["/server", "/client", "/server-again"];
    for path in paths {
        let mut client = proxy.client();
        assert_eq!(client.get_with_fields(path, &format!("Host: h\r\n{HANDSHAKE}")).status, 101);
        let mut reader = client.stream.try_clone().unwrap();
        let reading = std::thread::spawn(move || {
            let mut received = vec![0; 300_000];
            std::io::Read::read_exact(&mut reader, &mut received).unwrap();
            received
        });
        client.send(&vec![b'p'; 300_000]);
        assert!(reading.join().unwrap() == vec![b'p'; 300_000]);
        if path == "/client" {
            client.stream.shutdown(Shutdown::Write).unwrap();
        }
        assert_eq!(client.read_to_end(), b"");
    }
    // Also the second proxy, which sees only the stream.
    assert_eq!(ends_of(&back, &paths), ["done"; 3]);
    assert_eq!(ends_of(&proxy, &paths), ["done"; 3]);
    proxy.assert_all_returned();
    back.assert_all_returned();
}

/// Starts a proxy that accepts HTTP/2, before a server of HTTP/1.1.
fn start_proxy_of_http11(authority: &str) -> ProxyUnderTest {
    ProxyUnderTest::weir(&config_with_listener("", &[authority], "http = \"1.1\""))
}

#[test]
fn a_handshake_with_a_body_is_an_ordinary_request() {
    let Some(server) = H2Server::start(&["connect=1"]) else { return };
    let proxy = start_proxy(&[&server.authority], "");
    // Without the framing of the body, this would be the start of the next request on the same stream.
    let body = "GET /ok-forged HTTP/1.1\r\nHost: h\r\nX-Rest: ";
    let mut client = proxy.client();
    let length = body.len();
    client.send(
        format!("GET /ok HTTP/1.1\r\nHost: h\r\n{HANDSHAKE}Content-Length: {length}\r\n\r\n").as_bytes(),
    );
    client.send(body.as_bytes());
    let response = client.read_response().unwrap();
    assert!(response.head.to_lowercase().contains("x-method: get\r\n"), "{}", response.head);
    assert_eq!(response.body, body.as_bytes());
    let response = proxy.get("/ok");
    assert!(response.head.to_lowercase().contains("x-path: /ok\r\n"), "{}", response.head);
    proxy.assert_all_returned();
}

#[test]
fn a_server_without_extended_connect_gets_no_websocket() {
    let Some(server) = H2Server::start(&[]) else { return };
    let proxy = start_proxy(&[&server.authority], "");
    let mut client = proxy.client();
    assert_eq!(client.get_with_fields("/chat", &format!("Host: h\r\n{HANDSHAKE}")).status, 502);
    assert_eq!(ends_of(&proxy, &["/chat"]), ["upgrade_unsupported"]);
    // Other upgrades are only offers.
    let offered = client.get_with_fields("/ok", "Host: h\r\nConnection: Upgrade\r\nUpgrade: other\r\n");
    assert_eq!(offered.status, 200);
    proxy.assert_all_returned();
}

#[test]
fn a_websocket_takes_http11_where_http2_does_not_support_it() {
    let Some(certificates) = Certificates::create() else { return };
    let echo = ScriptedServer::start(|peer| {
        let Some(head) = peer.request()? else { return Ok(()) };
        if !head.to_lowercase().contains("upgrade: websocket") {
            return peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
        peer.send(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhello",
        )
    });
    // nginx has HTTP/2 without RFC 8441.
    let directives = format!(
        "ssl_certificate {0}; ssl_certificate_key {0};\n\
         location /chat {{ proxy_pass http://{1}; proxy_http_version 1.1;\n\
         proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }}",
        certificates.file("both.pem"),
        echo.authority
    );
    let nginx = Nginx::start_with("ssl http2", &directives);
    let tls = format!("tls = {{ ca = {:?}, server-name = \"localhost\" }}", certificates.file("ca.pem"));
    for (http, status, end) in [("auto", 101, "done"), ("2", 502, "upgrade_unsupported")] {
        let pool = format!("http = \"{http}\"\n{tls}");
        let proxy = ProxyUnderTest::weir(&config_with_listener("", &[&nginx.authority], &pool));
        // Other requests use HTTP/2, before and after.
        assert_eq!(proxy.get("/file").body.len(), 10_000);
        let mut client = proxy.client();
        let response = client.get_with_fields("/chat", &format!("Host: h\r\n{HANDSHAKE}"));
        assert_eq!(response.status, status, "{}", response.head);
        if status == 101 {
            client.stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(client.read_to_end(), b"hello");
        }
        assert_eq!(proxy.get("/file").body.len(), 10_000);
        assert_eq!(ends_of(&proxy, &["/chat"]), [end]);
        let metrics = proxy.metrics();
        assert_eq!(metrics.sum_known("weir_server_http2_connections_total", &[]), 1.0);
        proxy.assert_all_returned();
    }
}

#[test]
fn connect_becomes_a_stream() {
    let Some(mut server) = H2Server::start(&[]) else { return };
    let config = config_with_listener("connect = true", &[&server.authority], "http = \"2\"");
    let proxy = ProxyUnderTest::weir(&config);
    let mut client = proxy.client();
    client.send(b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n");
    assert_eq!(client.read_response().unwrap().status, 200);
    client.send(b"one two");
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read_to_end(), b"one two");
    let mut client = proxy.client();
    client.send(b"CONNECT denied:1 HTTP/1.1\r\nHost: denied:1\r\n\r\n");
    assert_eq!(client.read_response().unwrap().status, 403);
    // A client that leaves resets its stream.
    let mut client = proxy.client();
    client.send(b"CONNECT b:1 HTTP/1.1\r\nHost: b:1\r\n\r\n");
    assert_eq!(client.read_response().unwrap().status, 200);
    client.send(b"x");
    rustix::net::sockopt::set_socket_linger(&client.stream, Some(std::time::Duration::ZERO)).unwrap();
    drop(client);
    server.wait_for_count("reset_8", 1);
    assert_eq!(server.count("connections"), 1);
    proxy.assert_all_returned();
}
