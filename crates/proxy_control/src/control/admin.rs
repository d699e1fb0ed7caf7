//! The admin listener: metrics, health and the status page over HTTP, on the admin thread's runtime.
//! `web_ui` limits its connections. A client that reaches it may read everything, but must not be able
//! to block anything. The pages are read-only: they cannot change the proxy's behaviour.

mod access;
mod backend;
mod status;

use std::future::Future;
use std::io;
use std::rc::Rc;

use rt::clock::{MonotonicTime, SECOND_NS};
use rt::listen::Listener;
use rt::timers::Timers;
use rt::tokio;
use server_shell::web_ui::{self, JSON, PageSource, WebPage, with_timeout};
use wire::RequestHead;

use crate::control::active_config::ActiveConfig;
use crate::metrics::{MetricsFormat, Snapshot, render};
use crate::plan::AdminAccess;

pub(crate) use backend::{AdminBackend, start};

pub(crate) trait AdminDataSource {
    /// Collects the counters of all cores, including those of earlier plans.
    fn snapshot(&self) -> impl Future<Output = Snapshot>;

    /// Returns the plan in force, which the counters belong to. `None`: unknown.
    fn active_config(&self) -> Option<ActiveConfig>;

    fn access(&self) -> AdminAccess;

    /// Returns whether the proxy is draining: it finishes open requests and accepts no new ones.
    fn is_draining(&self) -> bool;

    /// Waits until another process serves these pages on the same socket.
    fn replaced(&self) -> impl Future<Output = ()>;
}

/// Maximum time the cores may take to return their part of a response.
const SNAPSHOT_TIMEOUT_NS: u64 = 5 * SECOND_NS;
/// Every page: its path, the generator, and a description.
const PAGES: &[(&str, Page, &str)] = &[
    ("/", Page::Index, "status page: listeners, pools and servers"),
    ("/status.json", Page::Status, "data of the status page, as JSON"),
    ("/metrics", Page::Metrics, "metrics in the text format of Prometheus, or OpenMetrics by `Accept`"),
    ("/health", Page::Health, "200 while running, 503 while draining"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Index,
    Status,
    Metrics,
    Health,
}

/// Serves the admin pages on `listener` until the future is dropped. Must be called inside a core's
/// runtime.
///
/// # Errors
/// The listening socket failed, or there was no descriptor for a timer.
pub(crate) async fn serve<S: AdminDataSource + 'static>(listener: Listener, source: Rc<S>) -> io::Result<()> {
    let replaced_source = Rc::clone(&source);
    tokio::select! {
        result = web_ui::serve(listener, Rc::new(AdminPages(source))) => return result,
        () = replaced_source.replaced() => {}
    }
    // Connections that were accepted earlier still get their responses.
    std::future::pending().await
}

/// The admin pages, from their data source.
struct AdminPages<S>(Rc<S>);

impl<S: AdminDataSource> PageSource for AdminPages<S> {
    type Chosen = (Page, MetricsFormat);

    fn choose(&self, head: &RequestHead<'_, '_>) -> Result<Self::Chosen, WebPage> {
        let path = head.target.split('?').next().unwrap_or_default();
        let Some((_, page, _)) = PAGES.iter().find(|(known, ..)| *known == path) else {
            let text = format!("unknown page; the pages are:\n\n{}", page_list());
            return Err(WebPage::text(404, text));
        };
        // A load balancer checks health without a host or a token, and learns nothing else.
        if *page != Page::Health {
            access::check(head, &self.0.access())?;
        }
        let accepted = head.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("accept"));
        Ok((*page, MetricsFormat::choose(accepted.map(|header| header.value))))
    }

    async fn make(&self, (page, format): Self::Chosen, timers: &Timers) -> WebPage {
        let source = &*self.0;
        let snapshot = async || with_timeout(timers, SNAPSHOT_TIMEOUT_NS, source.snapshot()).await;
        match page {
            Page::Index => WebPage { may_fetch: true, ..WebPage::html(status::PAGE) },
            Page::Status => match (snapshot().await, source.active_config()) {
                (Some(snapshot), Some(active)) => {
                    let json =
                        status::status_json(&active, &snapshot, source.is_draining(), MonotonicTime::now());
                    WebPage::new(JSON, json)
                }
                _ => no_snapshot(),
            },
            Page::Health if source.is_draining() => WebPage::text(503, "draining\n"),
            Page::Health => WebPage::text(200, "ok\n"),
            Page::Metrics => match snapshot().await {
                Some(snapshot) => {
                    let has_traces =
                        source.active_config().is_some_and(|active| active.plan.tracing.is_some());
                    WebPage::new(format.content_type(), render(&snapshot, format, has_traces))
                }
                None => no_snapshot(),
            },
        }
    }
}

fn no_snapshot() -> WebPage {
    WebPage::text(503, "timeout: the cores did not respond\n")
}

fn page_list() -> String {
    let lines = PAGES.iter().map(|(path, _, doc)| format!("{path:<13} {doc}\n"));
    lines.collect()
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
            AdminAccess { hosts: vec!["a".into()], ..AdminAccess::default() }
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
            let request = b"GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: application/openmetrics-text\r\n\r\n";
            let metrics = exchange(address, request);
            assert!(
                metrics.contains("Content-Type: application/openmetrics-text; version=1.0.0"),
                "{metrics}"
            );
            assert!(metrics.ends_with("\nweir_idle_connection_bytes 0\n# EOF\n"), "{metrics}");
            let index = get("GET /");
            assert!(index.contains("/metrics") && index.contains("/health"), "{index}");
            assert!(index.contains("Content-Security-Policy: default-src 'none'; "), "{index}");
            assert!(index.contains("; connect-src 'self'; script-src 'sha256-"), "{index}");
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
}
