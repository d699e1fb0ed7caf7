//! Flow of compressed responses: pauses of the server, slow clients, trailers, and the budget of the encoders.

#![allow(clippy::disallowed_types, reason = "the thread of a server receives what to send")]

use std::io::{self, Read, Write};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crate::support::client::Client;
use crate::support::peers::{ScriptPeer, ScriptedServer};
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::{EVENT_TIMEOUT, shared_machine};

const CHUNKED_HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n";

fn proxy_of(origin: &ScriptedServer, compression: &str) -> ProxyUnderTest {
    ProxyUnderTest::weir(&format!(
        "threads = 1\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\n{compression}\n\
         [[route]]\npool = \"app\"\n[pool.app]\nservers = [\"{}\"]\n",
        origin.authority
    ))
}

/// Starts a server that sends a head, then each text that the test sends it as a chunk, and the end.
fn stepwise_server(head: &'static [u8]) -> (ScriptedServer, Sender<&'static str>) {
    let (to_server, texts): (_, Receiver<&'static str>) = channel();
    let texts = Mutex::new(texts);
    let server = ScriptedServer::start(move |peer: &mut ScriptPeer| {
        peer.request()?;
        peer.send(head)?;
        let texts = texts.lock().unwrap();
        while let Ok(text) = texts.recv_timeout(EVENT_TIMEOUT) {
            peer.send(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes())?;
            if text.is_empty() {
                return Ok(());
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    });
    (server, to_server)
}

/// A response in chunks and in gzip that is decoded as it arrives.
struct Decoded {
    client: Client,
    raw: Vec<u8>,
    decoder: flate2::write::GzDecoder<Vec<u8>>,
}

impl Decoded {
    fn start(proxy: &ProxyUnderTest) -> Self {
        let mut client = proxy.client();
        client.send(b"GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
        Self { client, raw: Vec::new(), decoder: flate2::write::GzDecoder::new(Vec::new()) }
    }

    /// Reads until the content so far ends with a text.
    fn read_until(&mut self, text: &str) {
        while !self.decoder.get_ref().ends_with(text.as_bytes()) {
            let mut bytes = [0; 4096];
            let read = self.client.stream.read(&mut bytes).expect("the text arrives");
            assert!(read > 0, "the response ended");
            self.raw.extend_from_slice(&bytes[..read]);
            self.decode_chunks();
        }
    }

    fn decode_chunks(&mut self) {
        if let Some(head) = find(&self.raw, b"\r\n\r\n").filter(|_| self.raw.starts_with(b"HTTP")) {
            let text = String::from_utf8_lossy(&self.raw[..head]).to_ascii_lowercase();
            assert!(text.contains("content-encoding: gzip"), "{text}");
            self.raw.drain(..head + 4);
        }
        while let Some(line) = find(&self.raw, b"\r\n").filter(|_| !self.raw.starts_with(b"HTTP")) {
            let size = std::str::from_utf8(&self.raw[..line]).unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            if size == 0 || self.raw.len() < line + 2 + size + 2 {
                return;
            }
            self.decoder.write_all(&self.raw[line + 2..line + 2 + size]).unwrap();
            self.decoder.flush().unwrap();
            self.raw.drain(..line + 2 + size + 2);
        }
    }
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

#[test]
fn what_a_server_sent_arrives_while_it_pauses() {
    let _shared = shared_machine();
    const EVENTS: &[u8] =
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    for head in [CHUNKED_HEAD, EVENTS] {
        let (origin, to_server) = stepwise_server(head);
        let proxy = proxy_of(&origin, "compression = true");
        let mut response = Decoded::start(&proxy);
        for text in ["data: first\n\n", "data: second\n\n", "x"] {
            to_server.send(text).unwrap();
            // The server sends no more until the client has this.
            response.read_until(text);
        }
        to_server.send("").unwrap();
        let rest = [&response.raw[..], &{
            let mut rest = vec![0; 100];
            let read = response.client.stream.read(&mut rest).unwrap();
            rest.truncate(read);
            rest
        }]
        .concat();
        assert!(find(&rest, b"0\r\n\r\n").is_some(), "{rest:?}");
        proxy.assert_all_returned();
    }
}

#[test]
fn trailers_follow_compressed_content_without_the_digest_of_other_bytes() {
    let _shared = shared_machine();
    let origin = ScriptedServer::start(|peer| {
        while peer.request()?.is_some() {
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTrailer: X-Sum, Content-Digest\r\n")?;
            peer.send(
                b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 7\r\nContent-Digest: x\r\n\r\n",
            )?;
        }
        Ok(())
    });
    let proxy = proxy_of(&origin, "compression = true");
    let mut client = proxy.client();
    client.send(
        b"GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nAccept-Encoding: zstd\r\nConnection: close\r\n\r\n",
    );
    let response = client.read_to_end();
    let text = String::from_utf8_lossy(&response).to_ascii_lowercase();
    assert!(text.contains("content-encoding: zstd") && text.ends_with("\r\n0\r\nx-sum: 7\r\n\r\n"), "{text}");
    assert!(!text.contains("content-digest: x"), "{text}");
}

/// Returns bytes that no coding makes smaller.
fn noise(bytes: usize) -> Vec<u8> {
    let mut number = 1_u64;
    let mut next = || {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (number >> 33) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

#[test]
fn a_client_that_does_not_read_stops_the_server() {
    let _shared = shared_machine();
    const ALL_BYTES: usize = 64 << 20;
    let (sent_bytes, sent) = channel();
    let origin = ScriptedServer::start(move |peer| {
        peer.request()?;
        peer.send(
            format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {ALL_BYTES}\r\n\r\n")
                .as_bytes(),
        )?;
        peer.stream.set_write_timeout(Some(Duration::from_millis(700)))?;
        let block = noise(1 << 16);
        let mut total = 0;
        while total < ALL_BYTES {
            match peer.stream.write(&block) {
                Ok(written) => total += written,
                Err(_) => break,
            }
        }
        sent_bytes.send(total).unwrap();
        Ok(())
    });
    let proxy = proxy_of(&origin, "compression = { level = { gzip = 1 } }");
    let resident_before = proxy.resident_bytes();
    let mut client = proxy.client();
    client.send(b"GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
    let total = sent.recv_timeout(EVENT_TIMEOUT).unwrap();
    // The rest is in the buffers of two sockets.
    assert!(total < 16 << 20, "{total}");
    let grown = proxy.resident_bytes().saturating_sub(resident_before);
    assert!(grown < 8 << 20, "{grown}");
    drop(client);
    proxy.metrics_until("no encoder", |metrics| metrics.sum("weir_encoders_memory_bytes", &[]) == 0.0);
    proxy.assert_all_returned();
}

#[test]
fn responses_beyond_the_memory_of_the_encoders_are_sent_as_they_are() {
    let _shared = shared_machine();
    let (origin, to_server) = stepwise_server(CHUNKED_HEAD);
    let whole = ScriptedServer::responding(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\nsecond",
    );
    let proxy = ProxyUnderTest::weir(&format!(
        "threads = 1\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\n\
         compression = {{ encoders-max = \"64k\", min-size = 0 }}\n\
         [[route]]\npath = \"/\"\npool = \"app\"\n[[route]]\npool = \"whole\"\n\
         [pool.app]\nservers = [\"{}\"]\n[pool.whole]\nservers = [\"{}\"]\n",
        origin.authority, whole.authority
    ));
    let mut first = Decoded::start(&proxy);
    to_server.send("first").unwrap();
    first.read_until("first");
    let accepts = "Host: a\r\nAccept-Encoding: gzip\r\n";
    let second = proxy.client().get_with_fields("/second", accepts);
    assert_eq!(second.body, b"second");
    assert!(second.head.to_ascii_lowercase().contains("vary: accept-encoding"), "{}", second.head);
    proxy.metrics_until("one without a coding", |metrics| {
        metrics.sum("weir_uncompressed_responses_total", &[]) == 1.0
            && metrics.sum("weir_compressed_responses_total", &[("coding", "gzip")]) == 1.0
            && metrics.sum("weir_encoders_memory_bytes", &[]) > 0.0
    });
    to_server.send("").unwrap();
    proxy.metrics_until("no encoder", |metrics| metrics.sum("weir_encoders_memory_bytes", &[]) == 0.0);
    let mut third = proxy.client();
    third.send(format!("GET /third HTTP/1.1\r\n{accepts}Connection: close\r\n\r\n").as_bytes());
    let third = String::from_utf8_lossy(&third.read_to_end()).to_ascii_lowercase();
    assert!(third.contains("content-encoding: gzip"), "{third}");
}
