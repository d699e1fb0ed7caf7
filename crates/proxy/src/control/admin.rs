//! The admin listener: metrics, health and the status page over HTTP, on the admin thread's
//! runtime. It serves few connections, one request each, and everything is bounded. A client that
//! reaches it may read everything, but must not be able to block anything. The pages are read-only:
//! they cannot change the proxy's behaviour.

mod access;
mod backend;
mod status;

use std::future::Future;
use std::io;
use std::rc::Rc;

use rt::clock::{SECOND_NS, now_ns};
use rt::listen::Listener;
use rt::small_server::{self, with_timeout};
use rt::stream::Stream;
use rt::timers::Timers;
use rt::tokio;
use wire::{Limits, Parsed, RequestHead, Version, encode};

use crate::control::active_config::ActiveConfig;
use crate::metrics::{Snapshot, prometheus};
use crate::plan::AdminAccess;

pub(crate) use backend::{AdminBackend, start};

/// Data source of the admin pages.
pub(crate) trait AdminDataSource {
    /// Collects the counters of all cores, including those of earlier plans.
    fn snapshot(&self) -> impl Future<Output = Snapshot>;

    /// Returns the plan in force, which the counters belong to. `None`: unknown.
    fn active_config(&self) -> Option<ActiveConfig>;

    /// Returns the access rules of the pages.
    fn access(&self) -> AdminAccess;

    /// Returns whether the proxy is draining: it finishes open requests and accepts no new ones.
    fn is_draining(&self) -> bool;

    /// Waits until another process serves these pages on the same socket.
    fn replaced(&self) -> impl Future<Output = ()>;
}

/// Maximum number of connections served at a time. Further ones are closed at once.
const CONNECTIONS_MAX: usize = 64;
/// Maximum size of a request's head, in bytes.
const HEAD_BYTES_MAX: usize = 8_192;
/// Maximum time a client may take to send its request head.
const HEAD_TIMEOUT_NS: u64 = 5 * SECOND_NS;
/// Maximum time the cores may take to return their part of a response.
const SNAPSHOT_TIMEOUT_NS: u64 = 5 * SECOND_NS;
/// Maximum time a client may take to receive the complete response.
const RESPONSE_TIMEOUT_NS: u64 = 30 * SECOND_NS;
/// Every page: its path, the generator, and a description.
const PAGES: &[(&str, Page, &str)] = &[
    ("/", Page::Index, "status page: listeners, pools and servers"),
    ("/status.json", Page::Status, "data of the status page, as JSON"),
    ("/metrics", Page::Metrics, "metrics in the Prometheus text format"),
    ("/health", Page::Health, "200 while running, 503 while draining"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Index,
    Status,
    Metrics,
    Health,
}

const TEXT_TYPE: &str = "text/plain; charset=utf-8";
const HTML_TYPE: &str = "text/html; charset=utf-8";
const JSON_TYPE: &str = "application/json";
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// An HTTP response to send.
#[derive(Debug)]
struct AdminResponse {
    status: u16,
    content_type: &'static str,
    body: String,
    /// True for a response to HEAD, which has no content.
    is_head: bool,
}

impl AdminResponse {
    fn text(status: u16, body: impl Into<String>) -> Self {
        Self { status, content_type: TEXT_TYPE, body: body.into(), is_head: false }
    }
}

/// A request to respond to.
#[derive(Debug)]
struct AdminRequest {
    /// Requested page, or the response that rejects the request.
    page: Result<Page, AdminResponse>,
    /// True for HEAD.
    is_head: bool,
}

impl AdminRequest {
    fn new(head: &RequestHead<'_, '_>, source: &impl AdminDataSource) -> Self {
        Self { page: find_page(head, source), is_head: head.method == "HEAD" }
    }

    fn rejected(status: u16, body: impl Into<String>) -> Self {
        Self { page: Err(AdminResponse::text(status, body)), is_head: false }
    }
}

/// Serves the admin pages on `listener` until the future is dropped. Must be called inside a core's
/// runtime.
///
/// # Errors
/// The listening socket failed, or there was no descriptor for a timer.
pub(crate) async fn serve<S: AdminDataSource + 'static>(listener: Listener, source: Rc<S>) -> io::Result<()> {
    let replaced_source = Rc::clone(&source);
    let serve_connection = move |stream, timers, slot| {
        let source = Rc::clone(&source);
        async move { serve_connection((stream, slot), &timers, &*source).await }
    };
    tokio::select! {
        result = small_server::accept(listener, CONNECTIONS_MAX, serve_connection) => return result,
        () = replaced_source.replaced() => {}
    }
    // Connections that were accepted earlier still get their responses.
    std::future::pending().await
}

async fn serve_connection(
    (mut stream, slot): (Stream, Rc<small_server::ServerSlot>),
    timers: &Timers,
    source: &impl AdminDataSource,
) -> io::Result<()> {
    let request = match with_timeout(timers, HEAD_TIMEOUT_NS, read_request(&mut stream, source)).await {
        Some(request) => request?,
        None => Some(AdminRequest::rejected(408, "timeout: no complete request head\n")),
    };
    let Some(request) = request else { return Ok(()) };
    slot.mark_request_received();
    let bytes = encode_response(&respond(request, timers, source).await);
    if with_timeout(timers, RESPONSE_TIMEOUT_NS, stream.send(&bytes)).await.transpose()?.is_none() {
        return stream.reset_on_close();
    }
    small_server::lingering_close(stream, timers).await
}

/// Reads a request. Returns `None` if the client left.
async fn read_request(
    stream: &mut Stream,
    source: &impl AdminDataSource,
) -> io::Result<Option<AdminRequest>> {
    let limits = Limits { head_bytes_max: HEAD_BYTES_MAX, ..Limits::default() };
    let parse = |bytes: &[u8]| {
        let mut slots = wire::header_slots();
        match wire::parse_request(bytes, &limits, &mut slots) {
            Ok(Parsed::Complete { head, .. }) => Some(AdminRequest::new(&head, source)),
            // An incomplete head of the maximum size is an error.
            Ok(Parsed::Incomplete) => None,
            Err(error) => Some(AdminRequest::rejected(error.status(), format!("{error}\n"))),
        }
    };
    small_server::read_request(stream, HEAD_BYTES_MAX, parse).await
}

/// Returns the requested page if the client may read it.
fn find_page(head: &RequestHead<'_, '_>, source: &impl AdminDataSource) -> Result<Page, AdminResponse> {
    let path = head.target.split('?').next().unwrap_or_default();
    let Some((_, page, _)) = PAGES.iter().find(|(known, ..)| *known == path) else {
        let text = format!("unknown page; the pages are:\n\n{}", page_list());
        return Err(AdminResponse::text(404, text));
    };
    if !matches!(head.method, "GET" | "HEAD") {
        return Err(AdminResponse::text(405, "only GET and HEAD are allowed\n"));
    }
    // A load balancer checks health without a host or a token, and learns nothing else.
    if *page != Page::Health {
        access::check(head, &source.access())?;
    }
    Ok(*page)
}

async fn respond(request: AdminRequest, timers: &Timers, source: &impl AdminDataSource) -> AdminResponse {
    let mut response = match request.page {
        Err(rejection) => rejection,
        Ok(Page::Index) => {
            AdminResponse { content_type: HTML_TYPE, ..AdminResponse::text(200, status::PAGE) }
        }
        Ok(Page::Status) => {
            match (with_timeout(timers, SNAPSHOT_TIMEOUT_NS, source.snapshot()).await, source.active_config())
            {
                (Some(snapshot), Some(active)) => {
                    let json = status::status_json(&active, &snapshot, source.is_draining(), now_ns());
                    AdminResponse { content_type: JSON_TYPE, ..AdminResponse::text(200, json) }
                }
                _ => AdminResponse::text(503, "timeout: the cores did not respond\n"),
            }
        }
        Ok(Page::Health) if source.is_draining() => AdminResponse::text(503, "draining\n"),
        Ok(Page::Health) => AdminResponse::text(200, "ok\n"),
        Ok(Page::Metrics) => match with_timeout(timers, SNAPSHOT_TIMEOUT_NS, source.snapshot()).await {
            Some(snapshot) => AdminResponse {
                content_type: METRICS_TYPE,
                ..AdminResponse::text(200, prometheus(&snapshot))
            },
            None => AdminResponse::text(503, "timeout: the cores did not respond\n"),
        },
    };
    response.is_head = request.is_head;
    response
}

fn page_list() -> String {
    let lines = PAGES.iter().map(|(path, _, doc)| format!("{path:<13} {doc}\n"));
    lines.collect()
}

fn encode_response(response: &AdminResponse) -> Vec<u8> {
    let mut out = Vec::with_capacity(response.body.len() + 256);
    encode::status_line(&mut out, Version::Http11, response.status);
    encode::field(&mut out, "Content-Type", response.content_type.as_bytes());
    encode::field_u64(&mut out, "Content-Length", response.body.len() as u64);
    encode::field(&mut out, "Cache-Control", b"no-store");
    encode::field(&mut out, "X-Content-Type-Options", b"nosniff");
    if response.content_type == HTML_TYPE {
        encode::field(&mut out, "Content-Security-Policy", status::CONTENT_SECURITY_POLICY.as_bytes());
        encode::field(&mut out, "Referrer-Policy", b"no-referrer");
    }
    if response.status == 401 {
        encode::field(&mut out, "WWW-Authenticate", b"Basic realm=\"weir\", charset=\"UTF-8\"");
    }
    if response.status == 405 {
        encode::field(&mut out, "Allow", b"GET, HEAD");
    }
    encode::field(&mut out, "Connection", b"close");
    encode::end_of_head(&mut out);
    if !response.is_head {
        out.extend_from_slice(response.body.as_bytes());
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
    struct FixedSource {
        draining: Cell<bool>,
    }

    impl AdminDataSource for FixedSource {
        async fn snapshot(&self) -> Snapshot {
            Snapshot::default()
        }

        fn active_config(&self) -> Option<ActiveConfig> {
            None
        }

        fn access(&self) -> AdminAccess {
            AdminAccess { hosts: vec!["a".into()], token: None }
        }

        fn is_draining(&self) -> bool {
            self.draining.get()
        }

        async fn replaced(&self) {
            std::future::pending().await
        }
    }

    /// Serves while `run_client` runs in its own thread, and returns the client's result.
    fn with_admin<T: Send + 'static>(
        draining: bool,
        run_client: impl FnOnce(SocketAddr) -> T + Send + 'static,
    ) -> T {
        rt::cores::block_on(async move {
            let mut listening = rt::listen::BoundAddress::new(&"127.0.0.1:0".parse().unwrap(), 1).unwrap();
            let rt::address::Address::Tcp(address) = *listening.address() else { panic!() };
            let source = Rc::new(FixedSource { draining: Cell::new(draining) });
            let (result_sender, result_receiver) = tokio::sync::oneshot::channel();
            let thread = std::thread::spawn(move || drop(result_sender.send(run_client(address))));
            let result = tokio::select! {
                result = result_receiver => result.unwrap(),
                served = serve(listening.take_listener(0, 0).unwrap(), source) => panic!("{served:?}"),
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

    /// Sends `request` and returns the complete response.
    fn exchange(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = connect(address);
        stream.write_all(request).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }

    fn status(response: &str) -> &str {
        response.get(9..12).unwrap_or(response)
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
            let head = get("HEAD /x");
            assert!(status(&head) == "404" && head.ends_with("\r\n\r\n"), "{head}");
            let post = get("POST /metrics");
            assert!(status(&post) == "405" && post.contains("\r\nAllow: GET, HEAD\r\n"), "{post}");
        });
    }

    #[test]
    fn health_is_503_while_draining() {
        let response =
            with_admin(true, |address| exchange(address, b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(status(&response) == "503" && response.ends_with("draining\n"), "{response}");
    }

    #[test]
    fn hostile_requests_get_a_response_and_an_end() {
        with_admin(false, |address| {
            let long_head = format!("GET /metrics HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(9_000));
            let body = b"GET /health HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n";
            for (request, expected) in [
                (&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"[..], "400"),
                (b"GET / HTTP/1.1\r\n\r\n", "400"),
                (b"GET / HTTP/3.0\r\nHost: a\r\n\r\n", "505"),
                (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400"),
                (long_head.as_bytes(), "431"),
                (&[&body[..], &[b'x'; 100_000]].concat(), "200"),
            ] {
                assert_eq!(status(&exchange(address, request)), expected);
            }
            let mut closed_stream = connect(address);
            closed_stream.write_all(b"GET / HT").unwrap();
            drop(closed_stream);
            let health = exchange(address, b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(status(&health), "200");
        });
    }

    #[test]
    fn a_head_that_comes_too_slowly_is_408() {
        let (response, took_ns) = with_admin(false, |address| {
            let start_ns = now_ns();
            let mut stream = connect(address);
            let mut slow_writer = stream.try_clone().unwrap();
            let writer = std::thread::spawn(move || {
                for byte in b"GET /health HTTP/1.1\r\nHost: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" {
                    if slow_writer.write_all(&[*byte]).is_err() {
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(200));
                }
            });
            let mut response = String::new();
            stream.read_to_string(&mut response).unwrap();
            drop(stream);
            writer.join().unwrap();
            (response, now_ns() - start_ns)
        });
        assert_eq!(status(&response), "408");
        assert!(took_ns >= HEAD_TIMEOUT_NS, "{took_ns}");
    }
}
