//! The admin listener: metrics, health and the status page over HTTP, on the control thread's runtime. Few
//! connections, one request each, everything bounded: who reaches it may see all, but must not be
//! able to hold anything up. It only reads; it is not a way to change what the proxy does.

mod access;
mod status;

use std::future::Future;
use std::io;
use std::rc::Rc;

use rt::clock::{SECOND_NS, now_ns};
use rt::few::{self, within};
use rt::listen::Listener;
use rt::stream::Stream;
use rt::timers::Timers;
use rt::tokio;
use wire::{Limits, Parsed, RequestHead, Version, encode};

use crate::ctl::InForce;
use crate::metrics::{Snapshot, prometheus};
use crate::plan::AdminAccess;

/// What the admin pages show.
pub(crate) trait Source {
    /// What all cores have counted, those of plans that are over included.
    fn snapshot(&self) -> impl Future<Output = Snapshot>;

    /// What it is that has been counted; `None`: nobody knows.
    fn in_force(&self) -> Option<InForce>;

    /// Who may see the pages.
    fn access(&self) -> AdminAccess;

    /// Whether the proxy finishes what it has and takes on no more.
    fn is_draining(&self) -> bool;

    /// Waits until another process serves these pages, at the same socket.
    fn left(&self) -> impl Future<Output = ()>;
}

/// Connections that are served at a time; more are closed at once.
const CONNECTIONS_MAX: usize = 64;
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 8_192;
/// How long a client may take for its head.
const HEAD_NS: u64 = 5 * SECOND_NS;
/// How long the cores may take for their part of an answer.
const SOURCE_NS: u64 = 5 * SECOND_NS;
/// How long a client may take for the whole answer.
const ANSWER_NS: u64 = 30 * SECOND_NS;
/// Every page: its path, what makes it, and what it is.
const PAGES: &[(&str, Page, &str)] = &[
    ("/", Page::Index, "the state of all listeners, pools and servers, live"),
    ("/status.json", Page::Status, "what the page at / is made from"),
    ("/metrics", Page::Metrics, "metrics in Prometheus's text format"),
    ("/health", Page::Health, "200 while at work, 503 while being stopped"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Index,
    Status,
    Metrics,
    Health,
}

const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// An answer that is to be sent.
#[derive(Debug)]
struct Answer {
    status: u16,
    content_type: &'static str,
    content: String,
    /// Whether the content is left out: the answer to HEAD.
    is_head: bool,
}

impl Answer {
    fn text(status: u16, content: impl Into<String>) -> Self {
        Self { status, content_type: TEXT, content: content.into(), is_head: false }
    }
}

/// Serves the admin pages on `bound` until the future is dropped. To be called inside a core's
/// runtime.
///
/// # Errors
/// The listening socket failed, or there was no descriptor for a timer.
pub(crate) async fn serve<S: Source + 'static>(
    listener: Listener,
    source: Rc<S>,
) -> io::Result<()> {
    let left = Rc::clone(&source);
    let converse = move |stream, timers, slot| {
        let source = Rc::clone(&source);
        async move { converse((stream, slot), &timers, &*source).await }
    };
    tokio::select! {
        ended = few::accept(listener, CONNECTIONS_MAX, converse) => return ended,
        () = left.left() => {}
    }
    // Those that came before are still answered.
    std::future::pending().await
}

async fn converse(
    (mut stream, slot): (Stream, Rc<few::Slot>),
    timers: &Timers,
    source: &impl Source,
) -> io::Result<()> {
    let answer = match within(timers, HEAD_NS, ask(&mut stream, &slot, timers, source)).await {
        Some(answer) => answer?,
        None => Some(Answer::text(408, "the request's head did not come in time\n")),
    };
    let Some(answer) = answer else { return Ok(()) };
    let bytes = encode_answer(&answer);
    if within(timers, ANSWER_NS, stream.send(&bytes)).await.transpose()?.is_none() {
        return stream.reset_on_close();
    }
    few::part(stream, timers).await
}

/// Reads a request and makes the answer; `None` when the client left.
async fn ask(
    stream: &mut Stream,
    slot: &few::Slot,
    timers: &Timers,
    source: &impl Source,
) -> io::Result<Option<Answer>> {
    let limits = Limits { head_bytes_max: HEAD_BYTES_MAX, ..Limits::default() };
    let mut buffer = vec![0; HEAD_BYTES_MAX];
    let mut filled = 0;
    loop {
        let read = stream.read(&mut buffer[filled..]).await?;
        if read == 0 {
            return Ok(None);
        }
        filled += read;
        let mut slots = wire::header_slots();
        match wire::parse_request(&buffer[..filled], &limits, &mut slots) {
            Ok(Parsed::Complete { head, .. }) => {
                slot.asked();
                return Ok(Some(answer(&head, timers, source).await));
            }
            Ok(Parsed::Incomplete) if filled < buffer.len() => {}
            Ok(_) => return Ok(Some(Answer::text(431, "the request's head is too long\n"))),
            Err(refusal) => {
                return Ok(Some(Answer::text(refusal.status(), format!("{refusal}\n"))));
            }
        }
    }
}

async fn answer(head: &RequestHead<'_, '_>, timers: &Timers, source: &impl Source) -> Answer {
    let path = head.target.split('?').next().unwrap_or_default();
    let Some((_, page, _)) = PAGES.iter().find(|(known, ..)| *known == path) else {
        return Answer::text(404, format!("there is no such page; there are:\n\n{}", index()));
    };
    if !matches!(head.method, "GET" | "HEAD") {
        return Answer::text(405, "only GET and HEAD are allowed\n");
    }
    // A load balancer asks without either, and learns nothing else.
    if *page != Page::Health
        && let Err(refusal) = access::check(head, &source.access())
    {
        return refusal;
    }
    let mut answer = match page {
        Page::Index => Answer { content_type: HTML, ..Answer::text(200, status::PAGE) },
        Page::Status => {
            match (within(timers, SOURCE_NS, source.snapshot()).await, source.in_force()) {
                (Some(all), Some(now)) => {
                    let json = status::json(&now, &all, source.is_draining(), now_ns());
                    Answer { content_type: JSON, ..Answer::text(200, json) }
                }
                _ => Answer::text(503, "the cores did not answer in time\n"),
            }
        }
        Page::Health if source.is_draining() => Answer::text(503, "draining\n"),
        Page::Health => Answer::text(200, "ok\n"),
        Page::Metrics => match within(timers, SOURCE_NS, source.snapshot()).await {
            Some(all) => Answer { content_type: METRICS, ..Answer::text(200, prometheus(&all)) },
            None => Answer::text(503, "the cores did not answer in time\n"),
        },
    };
    answer.is_head = head.method == "HEAD";
    answer
}

fn index() -> String {
    let lines = PAGES.iter().map(|(path, _, doc)| format!("{path:<13} {doc}\n"));
    lines.collect()
}

fn encode_answer(answer: &Answer) -> Vec<u8> {
    let mut out = Vec::with_capacity(answer.content.len() + 256);
    encode::status_line(&mut out, Version::Http11, answer.status);
    encode::field(&mut out, "Content-Type", answer.content_type.as_bytes());
    encode::field_u64(&mut out, "Content-Length", answer.content.len() as u64);
    encode::field(&mut out, "Cache-Control", b"no-store");
    encode::field(&mut out, "X-Content-Type-Options", b"nosniff");
    if answer.content_type == HTML {
        encode::field(&mut out, "Content-Security-Policy", status::POLICY.as_bytes());
        encode::field(&mut out, "Referrer-Policy", b"no-referrer");
    }
    if answer.status == 401 {
        encode::field(&mut out, "WWW-Authenticate", b"Basic realm=\"weir\", charset=\"UTF-8\"");
    }
    if answer.status == 405 {
        encode::field(&mut out, "Allow", b"GET, HEAD");
    }
    encode::field(&mut out, "Connection", b"close");
    encode::end_of_head(&mut out);
    if !answer.is_head {
        out.extend_from_slice(answer.content.as_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::time::Duration;

    #[derive(Default)]
    struct Fixed {
        draining: Cell<bool>,
    }

    impl Source for Fixed {
        async fn snapshot(&self) -> Snapshot {
            Snapshot::default()
        }

        fn in_force(&self) -> Option<InForce> {
            None
        }

        fn access(&self) -> AdminAccess {
            AdminAccess { hosts: vec!["a".into()], token: None }
        }

        fn is_draining(&self) -> bool {
            self.draining.get()
        }

        async fn left(&self) {
            std::future::pending().await
        }
    }

    /// Serves while `client` runs in a thread of its own, and returns what it brought.
    fn with_admin<T: Send + 'static>(
        draining: bool,
        client: impl FnOnce(SocketAddr) -> T + Send + 'static,
    ) -> T {
        rt::cores::block_on(async move {
            let mut bound = rt::listen::Bound::new(&"127.0.0.1:0".parse().unwrap(), 1).unwrap();
            let rt::address::Address::Tcp(address) = *bound.address() else { panic!() };
            let source = Rc::new(Fixed { draining: Cell::new(draining) });
            let (done, is_done) = tokio::sync::oneshot::channel();
            let thread = std::thread::spawn(move || drop(done.send(client(address))));
            let result = tokio::select! {
                result = is_done => result.unwrap(),
                ended = serve(bound.take(0, 0).unwrap(), source) => panic!("{ended:?}"),
            };
            thread.join().unwrap();
            result
        })
    }

    fn connect(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// The whole answer to `request`.
    fn exchange(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = connect(address);
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn status(answer: &str) -> &str {
        answer.get(9..12).unwrap_or(answer)
    }

    #[test]
    fn the_pages_are_there_and_nothing_else() {
        with_admin(false, |address| {
            let get = |request: &str| {
                exchange(address, format!("{request} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())
            };
            let health = get("GET /health");
            assert!(health.starts_with("HTTP/1.1 200 OK\r\n") && health.ends_with("\r\n\r\nok\n"));
            let metrics = get("GET /metrics?x=1");
            assert_eq!(status(&metrics), "200");
            assert!(metrics.contains("Content-Type: text/plain; version=0.0.4"), "{metrics}");
            assert!(metrics.contains("\nweir_idle_connection_bytes 0\n"), "{metrics}");
            let index = get("GET /");
            assert!(index.contains("/metrics") && index.contains("/health"), "{index}");
            assert!(index.contains("Content-Security-Policy: default-src 'none'; "), "{index}");
            let head = get("HEAD /health");
            assert!(head.contains("Content-Length: 3\r\n") && head.ends_with("\r\n\r\n"), "{head}");
            let unknown = get("GET /x");
            assert!(status(&unknown) == "404" && unknown.contains("\n/status.json "), "{unknown}");
            let post = get("POST /metrics");
            assert!(status(&post) == "405" && post.contains("\r\nAllow: GET, HEAD\r\n"), "{post}");
        });
    }

    #[test]
    fn health_is_503_while_draining() {
        let answer = with_admin(true, |address| {
            exchange(address, b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        });
        assert!(status(&answer) == "503" && answer.ends_with("draining\n"), "{answer}");
    }

    #[test]
    fn hostile_requests_get_an_answer_and_an_end() {
        with_admin(false, |address| {
            let long =
                format!("GET /metrics HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(9_000));
            let body = b"GET /health HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n";
            for (request, expected) in [
                (&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"[..], "400"),
                (b"GET / HTTP/1.1\r\n\r\n", "400"),
                (b"GET / HTTP/3.0\r\nHost: a\r\n\r\n", "505"),
                (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400"),
                (long.as_bytes(), "431"),
                (&[&body[..], &[b'x'; 100_000]].concat(), "200"),
            ] {
                assert_eq!(status(&exchange(address, request)), expected);
            }
            let mut gone = connect(address);
            gone.write_all(b"GET / HT").unwrap();
            drop(gone);
            let health = exchange(address, b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(status(&health), "200");
        });
    }

    #[test]
    fn a_head_that_comes_too_slowly_is_408() {
        let (answer, took_ns) = with_admin(false, |address| {
            let start_ns = now_ns();
            let mut stream = connect(address);
            let mut slow = stream.try_clone().unwrap();
            let dripping = std::thread::spawn(move || {
                for byte in b"GET /health HTTP/1.1\r\nHost: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                {
                    if slow.write_all(&[*byte]).is_err() {
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(200));
                }
            });
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            drop(stream);
            dripping.join().unwrap();
            (answer, now_ns() - start_ns)
        });
        assert_eq!(status(&answer), "408");
        assert!(took_ns >= HEAD_NS, "{took_ns}");
    }
}
