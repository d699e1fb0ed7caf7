//! HTTP client of the control plane: one connection for each request, with a maximum size of the response. The caller
//! bounds the time. The data path has nothing of it.

mod response;

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

pub use response::{HttpResponse, ResponseReader};

/// A request with all of its content.
#[derive(Clone, Copy, Debug)]
pub struct HttpRequest<'a> {
    pub method: &'a str,
    /// Host as in a URL: an IPv6 address is in brackets.
    pub host: &'a str,
    pub port: u16,
    /// Path and query.
    pub target: &'a str,
    pub fields: &'a [(&'a str, &'a [u8])],
    pub content: &'a [u8],
}

/// Makes a request over TLS, or over a plain connection without `tls`. Looking up the host blocks the thread.
///
/// # Errors
/// The server cannot be reached or verified, or its response is malformed, incomplete or too long.
pub async fn exchange(tls: Option<&ClientTls>, request: HttpRequest<'_>) -> io::Result<HttpResponse> {
    let mut stream = connect(request.host, request.port).await?;
    if let Some(tls) = tls {
        stream = stream.connect_tls(tls, request.host)?;
        poll_fn(|cx| stream.poll_handshake(cx)).await?;
    }
    stream.send(&request.to_bytes(tls.is_some())).await?;
    let mut reader = ResponseReader::new(RequestKind::from_method(request.method));
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

/// Requests a document over HTTP or HTTPS, with its authorities in the file `ca` or those that the host trusts, and
/// returns its content. Blocks the thread.
///
/// # Errors
/// There is no complete response with the status 200 in time.
pub fn http_get(url: &str, ca: Option<&Path>, timeout_ns: u64) -> io::Result<Vec<u8>> {
    let uri: http::Uri = url.parse().map_err(io::Error::other)?;
    let tls = (uri.scheme_str() == Some("https")).then(|| client_tls(ca)).transpose()?;
    let request = HttpRequest {
        method: "GET",
        host: uri.host().unwrap_or_default(),
        port: uri.port_u16().unwrap_or_else(|| if tls.is_some() { 443 } else { 80 }),
        target: uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str),
        fields: &[("Accept", b"application/json")],
        content: &[],
    };
    let response = block_on(async {
        let timers = Timers::start()?;
        let deadline = MonotonicTime::now() + timeout_ns;
        rt::tokio::select! {
            response = exchange(tls.as_ref(), request) => response,
            () = timers.sleep_until(deadline.as_ns()) => {
                let timeout = format_duration_ns(timeout_ns);
                Err(io::Error::new(io::ErrorKind::TimedOut, format!("no complete response within {timeout}")))
            }
        }
    })?;
    match response.parts.status.as_u16() {
        200 => Ok(response.content),
        status => Err(io::Error::other(format!("the status of the response is {status}"))),
    }
}

fn client_tls(ca: Option<&Path>) -> io::Result<ClientTls> {
    let verification = ca.map_or(Verification::HostRoots, |ca| Verification::CaFile(ca.to_owned()));
    let options =
        ClientTlsOptions { verification, alpn: vec![b"http/1.1".to_vec()], ..ClientTlsOptions::default() };
    ClientTls::new(&options).map_err(io::Error::other)
}

/// Runs a future to its end, in a runtime of its own.
pub fn block_on<T>(future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    Builder::new_current_thread().enable_io().build_local(LocalOptions::default())?.block_on(future)
}

async fn connect(host: &str, port: u16) -> io::Result<Stream> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    // The thread has nothing else to do meanwhile.
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (bare, port).to_socket_addrs()? {
        match rt::dial::connect(&Address::Tcp(address), None).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

impl HttpRequest<'_> {
    fn to_bytes(self, is_tls: bool) -> Vec<u8> {
        let mut out = Vec::new();
        for part in [self.method, " ", self.target, " HTTP/1.1\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
        let default_port = if is_tls { 443 } else { 80 };
        match self.port == default_port {
            true => encode::field(&mut out, "Host", self.host.as_bytes()),
            false => encode::field(&mut out, "Host", format!("{}:{}", self.host, self.port).as_bytes()),
        }
        for (name, value) in self.fields {
            encode::field(&mut out, name, value);
        }
        encode::field_u64(&mut out, "Content-Length", self.content.len() as u64);
        encode::field(&mut out, "Connection", b"close");
        encode::end_of_head(&mut out);
        out.extend_from_slice(self.content);
        out
    }
}
