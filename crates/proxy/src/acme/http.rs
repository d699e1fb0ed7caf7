//! HTTP client of the ACME protocol: one connection for each request, over the TLS of `rt`. Each request
//! has a maximum time and a maximum size, and ends with the future that waits for it. So a server that
//! accepts and never responds, or that responds byte by byte, holds one thread for a minute.

use std::future::poll_fn;
use std::io;
use std::net::ToSocketAddrs as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::Request;
use http_body::Body as _;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rt::address::Address;
use rt::clock::{MonotonicTime, SECOND_NS};
use rt::stream::Stream;
use rt::timers::Timers;
use rt::tls::ClientTls;
use rt::tokio::runtime::{Builder, LocalOptions};
use rt::tokio::sync::oneshot;
use wire::{RequestKind, encode};

use super::response::{AcmeResponse, ResponseReader};

/// Maximum time of a request, from the look-up of the host to the end of the response.
const REQUEST_TIMEOUT_NS: u64 = 60 * SECOND_NS;
/// Maximum number of threads with requests. Orders make one request at a time; a second thread may still
/// wait for the look-up of a host, which cannot be cancelled.
const REQUEST_THREADS_MAX: usize = 2;
const HTTPS_PORT: u16 = 443;

/// Number of threads with requests.
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
}

impl HttpClient for AcmeHttp {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let tls = self.tls.clone();
        Box::pin(async move {
            let uri = request.uri().clone();
            let (mut done, result) = oneshot::channel();
            // A stream belongs to its thread, and the caller's future must be `Send`.
            let thread = std::thread::Builder::new().name("acme-request".to_owned());
            let spawned = ThreadSlot::acquire().and_then(|slot| {
                thread.spawn(move || {
                    let response = block_on(&tls, request, &mut done);
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

fn block_on(
    tls: &ClientTls,
    request: Request<BodyWrapper<Bytes>>,
    done: &mut oneshot::Sender<io::Result<BytesResponse>>,
) -> io::Result<BytesResponse> {
    let runtime = Builder::new_current_thread().enable_io().build_local(LocalOptions::default())?;
    runtime.block_on(exchange_in_time(tls, request, done))
}

/// Makes a request, until its maximum time or until nobody waits for the response any more.
async fn exchange_in_time(
    tls: &ClientTls,
    request: Request<BodyWrapper<Bytes>>,
    done: &mut oneshot::Sender<io::Result<BytesResponse>>,
) -> io::Result<BytesResponse> {
    let timers = Timers::start()?;
    let deadline = MonotonicTime::now() + REQUEST_TIMEOUT_NS;
    rt::tokio::select! {
        response = exchange(tls, request) => {
            response.map(|AcmeResponse { parts, content }| {
                BytesResponse { parts, body: Box::new(Bytes::from(content)) }
            })
        }
        () = timers.sleep_until(deadline.as_ns()) => {
            let seconds = REQUEST_TIMEOUT_NS / SECOND_NS;
            Err(io::Error::new(io::ErrorKind::TimedOut, format!("no complete response within {seconds} s")))
        }
        () = done.closed() => Err(io::Error::other("the request was abandoned")),
    }
}

async fn exchange(tls: &ClientTls, request: Request<BodyWrapper<Bytes>>) -> io::Result<AcmeResponse> {
    let (parts, mut body) = request.into_parts();
    let mut content = Vec::new();
    while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        content.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
    }
    let host = parts.uri.host().unwrap_or_default().to_owned();
    if parts.uri.scheme_str() != Some("https") || host.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a URL with https"));
    }
    let port = parts.uri.port_u16().unwrap_or(HTTPS_PORT);
    let mut stream = connect(&host, port).await?.connect_tls(tls, &host)?;
    poll_fn(|cx| stream.poll_handshake(cx)).await?;
    stream.send(&request_bytes(&parts, &host, port, &content)).await?;
    // Nonces are requested with HEAD, whose responses have no content.
    let mut reader = ResponseReader::new(RequestKind::from_method(parts.method.as_str()));
    let mut buffer = vec![0; 16 * 1024];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return reader.handle_eof(),
            bytes => {
                if let Some(response) = reader.receive(&buffer[..bytes])? {
                    return Ok(response);
                }
            }
        }
    }
}

async fn connect(host: &str, port: u16) -> io::Result<Stream> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    // This thread has nothing else to do meanwhile.
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (bare, port).to_socket_addrs()? {
        match rt::dial::connect(&Address::Tcp(address), None).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn request_bytes(parts: &http::request::Parts, host: &str, port: u16, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let target = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    for part in [parts.method.as_str(), " ", target, " HTTP/1.1\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    let authority = if port == HTTPS_PORT { host.to_owned() } else { format!("{host}:{port}") };
    encode::field(&mut out, "Host", authority.as_bytes());
    for (name, value) in &parts.headers {
        encode::field(&mut out, name.as_str(), value.as_bytes());
    }
    encode::field_u64(&mut out, "Content-Length", content.len() as u64);
    encode::field(&mut out, "Connection", b"close");
    encode::end_of_head(&mut out);
    out.extend_from_slice(content);
    out
}
