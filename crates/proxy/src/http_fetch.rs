//! Requests of the proxy for small documents, such as a set of keys: parts of a client of HTTP and HTTPS, whose responses are
//! bounded. `acme` uses the parts, too.

pub(crate) mod response;

use std::future::poll_fn;
use std::io;
use std::net::ToSocketAddrs as _;
use std::path::Path;

use record::units::format_duration_ns;
use rt::address::Address;
use rt::clock::MonotonicTime;
use rt::stream::Stream;
use rt::timers::Timers;
use rt::tls::{ClientTls, ClientTlsOptions, Verification};
use rt::tokio::runtime::{Builder, LocalOptions};
use wire::{RequestKind, encode};

use response::ResponseReader;

/// Requests a document, and returns its content of at most 1 MiB. Blocks the thread.
///
/// # Errors
/// There is no complete response with the status 200 in time.
pub(crate) fn http_get(url: &str, ca: Option<&Path>, timeout_ns: u64) -> io::Result<Vec<u8>> {
    let uri: http::Uri = url.parse().map_err(io::Error::other)?;
    block_on(async {
        let timers = Timers::start()?;
        let deadline = MonotonicTime::now() + timeout_ns;
        rt::tokio::select! {
            content = get(&uri, ca) => content,
            () = timers.sleep_until(deadline.as_ns()) => {
                let timeout = format_duration_ns(timeout_ns);
                Err(io::Error::new(io::ErrorKind::TimedOut, format!("no complete response within {timeout}")))
            }
        }
    })
}

async fn get(uri: &http::Uri, ca: Option<&Path>) -> io::Result<Vec<u8>> {
    let is_https = uri.scheme_str() == Some("https");
    let host = uri.host().unwrap_or_default();
    let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
    let mut stream = connect(host, port).await?;
    if is_https {
        let verification = ca.map_or(Verification::HostRoots, |ca| Verification::CaFile(ca.to_owned()));
        let alpn = vec![b"http/1.1".to_vec()];
        let options = ClientTlsOptions { verification, alpn, ..ClientTlsOptions::default() };
        let tls = ClientTls::new(&options).map_err(io::Error::other)?;
        stream = stream.connect_tls(&tls, host)?;
        poll_fn(|cx| stream.poll_handshake(cx)).await?;
    }
    let mut request = Vec::new();
    let target = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    for part in ["GET ", target, " HTTP/1.1\r\n"] {
        request.extend_from_slice(part.as_bytes());
    }
    // Without the user of a URL.
    let authority = uri.port_u16().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    encode::field(&mut request, "Host", authority.as_bytes());
    encode::field(&mut request, "Accept", b"application/json");
    encode::field(&mut request, "Connection", b"close");
    encode::end_of_head(&mut request);
    stream.send(&request).await?;
    let mut reader = ResponseReader::new(RequestKind::from_method("GET"));
    let mut buffer = vec![0; 16 * 1024];
    let response = loop {
        match stream.read(&mut buffer).await? {
            0 => break reader.handle_eof()?,
            bytes => {
                if let Some(response) = reader.receive(&buffer[..bytes])? {
                    break response;
                }
            }
        }
    };
    match response.parts.status.as_u16() {
        200 => Ok(response.content),
        status => Err(io::Error::other(format!("the status of the response is {status}"))),
    }
}

/// Runs a future to its end, in a runtime of its own.
pub(crate) fn block_on<T>(future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    Builder::new_current_thread().enable_io().build_local(LocalOptions::default())?.block_on(future)
}

/// Connects to the first address of a host that accepts.
pub(crate) async fn connect(host: &str, port: u16) -> io::Result<Stream> {
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
