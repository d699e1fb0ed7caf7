//! Requests of the ACME protocol: each has a thread, a maximum time and a maximum size, and ends with the future that
//! waits for it. So a server that
//! accepts and never responds, or that responds byte by byte, holds one thread for a minute.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::Request;
use http_body::Body as _;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use record::units::format_duration_ns;
use rt::clock::{MonotonicTime, SECOND_NS};
use rt::timers::Timers;
use rt::tls::ClientTls;
use rt::tokio::sync::oneshot;

use crate::http_client::{self, HttpRequest, HttpResponse, block_on};

/// Maximum time of a request, from the look-up of the host to the end of the response.
pub(super) const REQUEST_TIMEOUT_NS: u64 = 60 * SECOND_NS;
/// Maximum number of threads with requests. Orders make one request at a time; a second thread may still
/// wait for the look-up of a host, which cannot be cancelled.
const REQUEST_THREADS_MAX: usize = 2;
const HTTPS_PORT: u16 = 443;

static REQUEST_THREADS: AtomicUsize = AtomicUsize::new(0);

/// Slot of a thread, until it is dropped.
struct ThreadSlot;

impl ThreadSlot {
    fn acquire() -> io::Result<Self> {
        let slot = Self;
        match REQUEST_THREADS.fetch_add(1, Ordering::Relaxed) < REQUEST_THREADS_MAX {
            true => Ok(slot),
            false => Err(io::Error::other("earlier requests still wait for the look-up of their host")),
        }
    }
}

impl Drop for ThreadSlot {
    fn drop(&mut self) {
        REQUEST_THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Client with the authorities of the ACME server.
pub(super) struct AcmeHttp {
    pub(super) tls: ClientTls,
    /// Maximum time of a request.
    pub(super) timeout_ns: u64,
}

impl HttpClient for AcmeHttp {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let (tls, timeout_ns) = (self.tls.clone(), self.timeout_ns);
        Box::pin(async move {
            let uri = request.uri().clone();
            let (mut done, result) = oneshot::channel();
            // A stream belongs to its thread, and the caller's future must be `Send`.
            let thread = std::thread::Builder::new().name("acme-request".to_owned());
            let spawned = ThreadSlot::acquire().and_then(|slot| {
                thread.spawn(move || {
                    let response = block_on(exchange_in_time(&tls, request, timeout_ns, &mut done));
                    drop(slot);
                    // Fails if nobody waits for the response any more.
                    let _ = done.send(response);
                })
            });
            let result = match spawned {
                Ok(_) => result.await.unwrap_or_else(|_| Err(io::Error::other("the request was abandoned"))),
                Err(error) => Err(error),
            };
            result.map_err(|error| Error::Other(format!("{uri}: {error}").into()))
        })
    }
}

/// Makes a request, until its maximum time or until nobody waits for the response any more.
async fn exchange_in_time(
    tls: &ClientTls,
    request: Request<BodyWrapper<Bytes>>,
    timeout_ns: u64,
    done: &mut oneshot::Sender<io::Result<BytesResponse>>,
) -> io::Result<BytesResponse> {
    let timers = Timers::start()?;
    let deadline = MonotonicTime::now() + timeout_ns;
    rt::tokio::select! {
        response = exchange(tls, request) => {
            response.map(|HttpResponse { parts, content }| {
                BytesResponse { parts, body: Box::new(Bytes::from(content)) }
            })
        }
        () = timers.sleep_until(deadline.as_ns()) => {
            let timeout = format_duration_ns(timeout_ns);
            Err(io::Error::new(io::ErrorKind::TimedOut, format!("no complete response within {timeout}")))
        }
        () = done.closed() => Err(io::Error::other("the request was abandoned")),
    }
}

async fn exchange(tls: &ClientTls, request: Request<BodyWrapper<Bytes>>) -> io::Result<HttpResponse> {
    let (parts, mut body) = request.into_parts();
    let mut content = Vec::new();
    while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        content.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
    }
    let host = parts.uri.host().unwrap_or_default();
    if parts.uri.scheme_str() != Some("https") || host.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a URL with https"));
    }
    let fields: Vec<(&str, &[u8])> =
        parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let request = HttpRequest {
        // Nonces are requested with HEAD, whose responses have no content.
        method: parts.method.as_str(),
        host,
        port: parts.uri.port_u16().unwrap_or(HTTPS_PORT),
        target: parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str),
        fields: &fields,
        content: &content,
    };
    http_client::exchange(Some(tls), request).await
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use rt::tls::{ClientTlsOptions, Verification};

    use super::*;

    fn client(timeout_ns: u64) -> AcmeHttp {
        let options = ClientTlsOptions { verification: Verification::Off, ..ClientTlsOptions::default() };
        AcmeHttp { tls: ClientTls::new(&options).unwrap(), timeout_ns }
    }

    fn request(
        client: &AcmeHttp,
        listener: &TcpListener,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let uri = format!("https://{}/dir", listener.local_addr().unwrap());
        client.request(Request::builder().uri(uri).body(BodyWrapper::default()).unwrap())
    }

    fn wait_for_threads(count: usize) {
        let deadline = MonotonicTime::now() + 60 * SECOND_NS;
        while REQUEST_THREADS.load(Ordering::Relaxed) != count {
            assert!(MonotonicTime::now() < deadline, "{} threads", REQUEST_THREADS.load(Ordering::Relaxed));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends the start of a TLS record, a byte at a time, until the client leaves.
    fn drip(mut client: TcpStream) {
        let record = [&[22, 3, 3, 0x40, 0, 2, 0, 0x3f, 0xfc][..], &[0; 16_000]].concat();
        for byte in record {
            if client.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_server_that_never_responds_leaves_no_thread_behind() {
        // It accepts in its queue.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let dripping = TcpListener::bind("127.0.0.1:0").unwrap();
        let accepting = dripping.try_clone().unwrap();
        std::thread::spawn(move || {
            (0..3).for_each(|_| accepting.accept().map(|(client, _)| drip(client)).unwrap())
        });
        let impatient = client(SECOND_NS / 20);
        for listener in [&silent, &silent, &silent, &dripping, &dripping, &dripping] {
            let error = rt::cores::block_on(request(&impatient, listener)).err().unwrap().to_string();
            assert!(error.contains("no complete response within"), "{error}");
            wait_for_threads(0);
        }
        // A request ends with the future that waits for it, and their number is bounded.
        let patient = client(3_600 * SECOND_NS);
        let (mut first, mut second) = (request(&patient, &silent), request(&patient, &silent));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(Pin::new(&mut first).poll(&mut cx).is_pending());
        assert!(Pin::new(&mut second).poll(&mut cx).is_pending());
        wait_for_threads(REQUEST_THREADS_MAX);
        let error = rt::cores::block_on(request(&patient, &silent)).err().unwrap().to_string();
        assert!(error.contains("earlier requests"), "{error}");
        drop(first);
        wait_for_threads(1);
        drop(second);
        wait_for_threads(0);
    }
}
