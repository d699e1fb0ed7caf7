//! HTTP client of the control plane: one connection for each request, with a maximum size of the response. The caller
//! bounds the time. The data path has nothing of it.

mod response;

use std::future::poll_fn;
use std::io;
use std::net::ToSocketAddrs as _;

use rt::address::Address;
use rt::stream::Stream;
use rt::tls::ClientTls;
use wire::{RequestKind, encode};

pub(crate) use response::{HttpResponse, ResponseReader};

/// A request with all of its content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HttpRequest<'a> {
    pub(crate) method: &'a str,
    /// Host as in a URL: an IPv6 address is in brackets.
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    /// Path and query.
    pub(crate) target: &'a str,
    pub(crate) fields: &'a [(&'a str, &'a [u8])],
    pub(crate) content: &'a [u8],
}

/// Makes a request over TLS, or over a plain connection without `tls`. Looking up the host blocks the thread.
///
/// # Errors
/// The server cannot be reached or verified, or its response is malformed, incomplete or too long.
pub(crate) async fn exchange(tls: Option<&ClientTls>, request: HttpRequest<'_>) -> io::Result<HttpResponse> {
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
