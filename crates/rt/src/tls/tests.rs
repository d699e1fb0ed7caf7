//! Tests of sessions between both ends of a socket pair.

use std::io::IoSlice;
use std::task::Poll;

use super::*;
use crate::stream::Stream;

/// Returns both ends of a session over a socket pair, before its handshake.
fn pair(server: &ServerTls, client: &ClientTls) -> (Stream, Stream) {
    pair_for(server, client, "localhost")
}

/// Returns both ends of a session with a server of this name.
pub(super) fn pair_for(server: &ServerTls, client: &ClientTls, name: &str) -> (Stream, Stream) {
    let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
    let stream = |socket: std::os::unix::net::UnixStream| {
        socket.set_nonblocking(true).unwrap();
        Stream::from_fd(socket.into(), crate::socket::SocketFamily::Unix).unwrap()
    };
    (stream(near).accept_tls(server).unwrap(), stream(far).connect_tls(client, name).unwrap())
}

fn self_signed() -> ServerTls {
    let alpn = vec![b"http/1.1".to_vec()];
    ServerTls::new(&ServerTlsOptions { self_signed: true, alpn, ..ServerTlsOptions::default() }).unwrap()
}

fn any_server() -> ClientTls {
    client(|_| {})
}

fn client(change: impl FnOnce(&mut ClientTlsOptions)) -> ClientTls {
    let mut options = ClientTlsOptions {
        verification: Verification::Off,
        alpn: vec![b"http/1.1".to_vec()],
        ..ClientTlsOptions::default()
    };
    change(&mut options);
    ClientTls::new(&options).unwrap()
}

pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    runtime.block_on(future)
}

/// Sends `content` from `sender` while `receiver` reads it in pieces of `read_bytes`.
async fn transfer(sender: &mut Stream, receiver: &mut Stream, content: &[u8], read_bytes: usize) -> Vec<u8> {
    let (mut received, mut buffer) = (Vec::new(), vec![0; read_bytes]);
    let receive = async {
        while received.len() < content.len() {
            match receiver.read(&mut buffer).await.unwrap() {
                0 => break,
                bytes => received.extend_from_slice(&buffer[..bytes]),
            }
        }
    };
    let (sent, ()) = tokio::join!(sender.send(content), receive);
    sent.unwrap();
    received
}

#[test]
fn content_of_any_size_crosses_in_both_directions() {
    let (server_tls, client_tls) = (self_signed(), any_server());
    for (length, read_bytes) in [(1, 1), (100, 7), (16_384, 16_384), (16_385, 1_000), (1 << 20, 65_536)] {
        block_on(async {
            let (mut server, mut client) = pair(&server_tls, &client_tls);
            let content: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
            assert_eq!(transfer(&mut client, &mut server, &content, read_bytes).await, content);
            assert_eq!(transfer(&mut server, &mut client, &content, read_bytes).await, content);
        });
    }
}

#[test]
fn the_properties_of_a_session_are_known_after_the_handshake() {
    let server_tls = self_signed();
    for (version_max, version) in [(TlsVersion::Tls12, "TLSv1.2"), (TlsVersion::Tls13, "TLSv1.3")] {
        let client_tls = client(|options| options.version_max = version_max);
        for handshake in [HandshakeKind::Full, HandshakeKind::Resumed] {
            block_on(async {
                let (mut server, mut client) = pair(&server_tls, &client_tls);
                assert_eq!(client.tls_info(), None);
                transfer(&mut client, &mut server, b"x", 1).await;
                transfer(&mut server, &mut client, b"y", 1).await;
                let info = client.tls_info().unwrap();
                assert_eq!((info.version, info.handshake), (version, handshake));
                assert_eq!(info.alpn.as_deref(), Some(b"http/1.1".as_slice()));
                assert!(info.cipher_suite.starts_with("TLS_"), "{}", info.cipher_suite);
                assert_eq!(server.tls_info(), Some(info));
            });
        }
    }
}

#[test]
fn many_connections_at_a_time_resume_their_sessions() {
    const CONNECTIONS: usize = 40;
    let (server_tls, client_tls) = (self_signed(), any_server());
    for handshake in [HandshakeKind::Full, HandshakeKind::Resumed] {
        block_on(async {
            // All of them begin before the first one has a ticket.
            let mut pairs: Vec<_> = (0..CONNECTIONS).map(|_| pair(&server_tls, &client_tls)).collect();
            for (server, client) in &mut pairs {
                transfer(client, server, b"x", 1).await;
                transfer(server, client, b"y", 1).await;
                assert_eq!(client.tls_info().unwrap().handshake, handshake);
            }
        });
    }
}

#[test]
fn a_session_without_resumption_is_always_new() {
    let (server_tls, client_tls) = (self_signed(), client(|options| options.resumes = false));
    for _ in 0..2 {
        block_on(async {
            let (mut server, mut client) = pair(&server_tls, &client_tls);
            transfer(&mut client, &mut server, b"x", 1).await;
            transfer(&mut server, &mut client, b"y", 1).await;
            assert_eq!(client.tls_info().unwrap().handshake, HandshakeKind::Full);
        });
    }
}

#[test]
fn an_end_is_clean_with_close_notify_and_truncated_without() {
    let (server_tls, client_tls) = (self_signed(), any_server());
    for is_clean in [true, false] {
        block_on(async {
            let (mut server, mut client) = pair(&server_tls, &client_tls);
            transfer(&mut client, &mut server, b"x", 1).await;
            // With the tickets: unread bytes at the close would make it a reset.
            transfer(&mut server, &mut client, b"y", 1).await;
            if let (Stream::Tls(stream), false) = (&mut client, is_clean) {
                stream.abort();
            }
            drop(client);
            assert_eq!(server.read(&mut [0; 8]).await.unwrap(), 0);
            assert_eq!(server.is_truncated(), !is_clean);
        });
    }
}

#[test]
fn a_connection_is_idle_although_tickets_arrive() {
    let (server_tls, client_tls) = (self_signed(), any_server());
    block_on(async {
        let (mut server, mut client) = pair(&server_tls, &client_tls);
        transfer(&mut client, &mut server, b"x", 1).await;
        assert!(client.is_idle());
        server.send(b"late").await.unwrap();
        let peeked = std::future::poll_fn(|cx| client.poll_peek(cx)).await.unwrap();
        assert_eq!(peeked, 1);
        assert!(!client.is_idle() && client.has_unread());
        let mut buffer = [0; 8];
        assert_eq!(client.read(&mut buffer).await.unwrap(), 4);
        assert!(client.is_idle() && !client.has_unread());
    });
}

#[test]
fn a_write_is_complete_once_the_kernel_has_all_of_it() {
    let (server_tls, client_tls) = (self_signed(), any_server());
    block_on(async {
        let (mut server, mut client) = pair(&server_tls, &client_tls);
        transfer(&mut client, &mut server, b"x", 1).await;
        let content = vec![7; 4 << 20];
        let mut accepted = 0;
        std::future::poll_fn(|cx| {
            while let Poll::Ready(bytes) = client.poll_write(cx, &content[accepted..]) {
                accepted += bytes.unwrap();
            }
            Poll::Ready(())
        })
        .await;
        assert!(accepted < content.len(), "the socket took everything");
        let receive = async {
            let (mut buffer, mut total) = (vec![0; 1 << 16], 0);
            while total < content.len() {
                total += server.read(&mut buffer).await.unwrap();
            }
            total
        };
        let (sent, received) = tokio::join!(client.send(&content[accepted..]), receive);
        sent.unwrap();
        assert_eq!(received, content.len());
    });
}

#[test]
fn other_bytes_than_those_in_progress_are_an_error() {
    let (server_tls, client_tls) = (self_signed(), any_server());
    block_on(async {
        let (mut server, mut client) = pair(&server_tls, &client_tls);
        transfer(&mut client, &mut server, b"x", 1).await;
        let content = vec![7; 1 << 16];
        std::future::poll_fn(|cx| {
            while client.poll_write(cx, &content).is_ready() {}
            Poll::Ready(())
        })
        .await;
        let read = async {
            let mut buffer = vec![0; 1 << 16];
            while server.read(&mut buffer).await.unwrap() > 0 {}
        };
        let write = async {
            let slices = [IoSlice::new(b"other"), IoSlice::new(&content)];
            let result = std::future::poll_fn(|cx| client.poll_write_vectored(cx, &slices)).await;
            assert_eq!(result.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
            client.shutdown(std::net::Shutdown::Write).unwrap();
        };
        tokio::join!(read, write);
    });
}

#[test]
fn an_untrusted_server_and_garbage_fail_the_handshake_at_both_ends() {
    let server_tls = self_signed();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ca.pem");
    let other = rcgen::generate_simple_self_signed(["other".to_owned()]).unwrap();
    std::fs::write(&path, pem_of("CERTIFICATE", other.cert.der())).unwrap();
    let client_tls = client(|options| options.verification = Verification::CaFile(path.clone()));
    block_on(async {
        let (mut server, mut client) = pair(&server_tls, &client_tls);
        let (server_end, client_end) = tokio::join!(
            std::future::poll_fn(|cx| server.poll_handshake(cx)),
            std::future::poll_fn(|cx| client.poll_handshake(cx))
        );
        assert_eq!(client_end.unwrap_err().kind(), std::io::ErrorKind::InvalidData);
        // The server learns it by an alert, at the latest when it reads.
        let read = match server_end {
            Ok(()) => server.read(&mut [0; 8]).await,
            Err(error) => Err(error),
        };
        assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::InvalidData);
    });
}

#[test]
fn what_is_no_tls_is_an_error_and_not_a_wait() {
    block_on(async {
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let plain = Stream::from_fd(near.into(), crate::socket::SocketFamily::Unix).unwrap();
        let mut server = plain.accept_tls(&self_signed()).unwrap();
        std::io::Write::write_all(&mut &far, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let error = server.read(&mut [0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidData, "{error}");
    });
}

#[test]
fn files_at_fault_are_all_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("empty.pem"), "nothing\n").unwrap();
    let certificates = [("missing.pem", "missing.key"), ("empty.pem", "empty.pem")]
        .map(|(certificate, key)| CertificateFiles {
            certificate: path(certificate),
            key: path(key),
            ocsp: None,
        })
        .to_vec();
    let options = ServerTlsOptions { certificates, ..ServerTlsOptions::default() };
    let failures = ServerTls::new(&options).unwrap_err();
    let paths: Vec<_> = failures.iter().map(|failure| failure.path.clone().unwrap()).collect();
    assert_eq!(paths, [path("missing.pem"), path("empty.pem")]);
    assert!(ServerTls::new(&ServerTlsOptions::default()).is_err());
}

pub(super) fn pem_of(label: &str, der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}

#[test]
fn a_session_begins_behind_a_header_in_clear() {
    let (server_tls, client_tls) = (self_signed(), any_server());
    for split in [0, 5, 60] {
        block_on(async {
            let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
            let stream = |socket: std::os::unix::net::UnixStream| {
                socket.set_nonblocking(true).unwrap();
                Stream::from_fd(socket.into(), crate::socket::SocketFamily::Unix).unwrap()
            };
            let mut server = stream(near).accept_tls_behind_header(&server_tls).unwrap();
            let mut client = stream(far);
            client.send(b"PROXY\r\n").await.unwrap();
            let mut client = client.connect_tls(&client_tls, "localhost").unwrap();
            let talk = async {
                client.send(b"hello").await.unwrap();
                let mut answer = [0; 8];
                assert_eq!(client.read(&mut answer).await.unwrap(), 5);
            };
            let accept = async {
                let mut received = vec![0; 7 + split];
                let mut filled = 0;
                while filled < received.len() {
                    filled += server.read(&mut received[filled..]).await.unwrap();
                }
                assert!(received.starts_with(b"PROXY\r\n"));
                server.begin_tls(&received[7..]);
                let mut content = [0; 8];
                assert_eq!(server.read(&mut content).await.unwrap(), 5);
                server.send(b"hello").await.unwrap();
                assert!(server.tls_byte_counts().unwrap().received > 60);
            };
            tokio::join!(talk, accept);
        });
    }
}

#[test]
fn new_settings_resume_the_sessions_of_earlier_ones() {
    let client_tls = any_server();
    let first = self_signed();
    let second = self_signed().with_sessions_of(&first);
    for (server_tls, handshake) in [(&first, HandshakeKind::Full), (&second, HandshakeKind::Resumed)] {
        block_on(async {
            let (mut server, mut client) = pair(server_tls, &client_tls);
            transfer(&mut client, &mut server, b"x", 1).await;
            transfer(&mut server, &mut client, b"y", 1).await;
            assert_eq!(client.tls_info().unwrap().handshake, handshake);
            assert_eq!(client.tls_names(), server.tls_names());
        });
    }
}

#[test]
fn a_peer_that_has_closed_gets_no_close_notify_and_no_reset() {
    let (server_tls, client_tls) = (self_signed(), any_server());
    for leaves_unread in [false, true] {
        block_on(async {
            let (mut server, mut client) = pair(&server_tls, &client_tls);
            transfer(&mut client, &mut server, b"x", 1).await;
            transfer(&mut server, &mut client, b"y", 1).await;
            // The socket outlives the session, to see what else arrives.
            let socket =
                std::os::unix::net::UnixStream::from(client.fd().unwrap().try_clone_to_owned().unwrap());
            if leaves_unread {
                client.send(b"nobody reads this").await.unwrap();
            }
            client.shutdown(std::net::Shutdown::Write).unwrap();
            if !leaves_unread {
                assert_eq!(server.read(&mut [0; 8]).await.unwrap(), 0);
            }
            drop(server);
            let read = std::io::Read::read(&mut &socket, &mut [0; 8]);
            assert_eq!(read.ok(), Some(0), "an end, and neither an alert nor a reset");
        });
    }
}

#[test]
fn a_peer_that_only_ended_its_session_gets_close_notify() {
    let (server_tls, client_tls) = (self_signed(), any_server());
    block_on(async {
        let (mut server, mut client) = pair(&server_tls, &client_tls);
        transfer(&mut client, &mut server, b"x", 1).await;
        drop(server);
        assert_eq!(client.read(&mut [0; 8]).await.unwrap(), 0);
        assert!(!client.is_truncated());
    });
}

#[test]
fn a_check_for_an_idle_connection_keeps_the_waiting_task_registered() {
    let (server_tls, client_tls) = (self_signed(), any_server());
    block_on(async {
        let (mut server, mut client) = pair(&server_tls, &client_tls);
        transfer(&mut client, &mut server, b"x", 1).await;
        transfer(&mut server, &mut client, b"y", 1).await;
        let mut has_checked = false;
        let mut buffer = [0; 8];
        let waits = std::future::poll_fn(|cx| {
            let polled = client.poll_read(cx, &mut buffer);
            if polled.is_pending() && !std::mem::replace(&mut has_checked, true) {
                assert!(client.is_idle());
            }
            polled
        });
        // The wait is polled before the content is sent, and must be woken by it.
        let (read, sent) = tokio::join!(waits, server.send(b"late"));
        sent.unwrap();
        assert_eq!(read.unwrap(), 4);
        assert!(has_checked);
    });
}

#[test]
fn an_end_that_the_socket_does_not_accept_is_sent_later() {
    let (server_tls, client_tls) = (self_signed(), any_server());
    block_on(async {
        let (mut server, mut client) = pair(&server_tls, &client_tls);
        transfer(&mut client, &mut server, b"x", 1).await;
        transfer(&mut server, &mut client, b"y", 1).await;
        let Stream::Tls(session) = &mut server else { panic!("no session") };
        let (content, mut records, mut length) = ([7; 16_000], vec![0; 17_000], 0);
        while session.is_flushed() {
            let bytes =
                session.write_records(&mut records, |traffic, output| traffic.encrypt(&content, output));
            session.outgoing.extend_from_slice(&records[..bytes.unwrap()]);
            length += content.len();
            std::future::poll_fn(|cx| Poll::Ready(session.poll_flush(cx).is_ready())).await;
        }
        server.shutdown(std::net::Shutdown::Write).unwrap();
        let receive = async {
            let (mut buffer, mut total) = (vec![0; 1 << 16], 0);
            loop {
                match client.read(&mut buffer).await.unwrap() {
                    0 => return total,
                    bytes => total += bytes,
                }
            }
        };
        let (flushed, received) = tokio::join!(std::future::poll_fn(|cx| server.poll_flush(cx)), receive);
        flushed.unwrap();
        assert_eq!((received, client.is_truncated()), (length, false));
    });
}
