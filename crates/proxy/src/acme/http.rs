//! HTTP client of the ACME protocol: one connection for each request, over the TLS of `rt`.

use std::future::poll_fn;
use std::io;
use std::net::ToSocketAddrs as _;
use std::pin::Pin;

use bytes::Bytes;
use http::{HeaderValue, Request};
use http_body::Body as _;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rt::address::Address;
use rt::stream::Stream;
use rt::tls::ClientTls;
use rt::tokio::runtime::Builder;
use rt::tokio::sync::oneshot;
use wire::{BodyDecoder, Limits, Parsed, RequestKind, encode};

/// Maximum length of a response: a chain has a few kB.
const RESPONSE_BYTES_MAX: usize = 1 << 20;
const HTTPS_PORT: u16 = 443;

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
            let (done, result) = oneshot::channel();
            // A stream belongs to its thread, and the caller's future must be `Send`.
            let thread = std::thread::Builder::new().name("acme-request".to_owned());
            let result = match thread.spawn(move || drop(done.send(block_on(&tls, request)))) {
                Ok(_) => result.await.unwrap_or_else(|_| Err(io::Error::other("the request was abandoned"))),
                Err(error) => Err(error),
            };
            result.map_err(|error| Error::Other(format!("{uri}: {error}").into()))
        })
    }
}

fn block_on(tls: &ClientTls, request: Request<BodyWrapper<Bytes>>) -> io::Result<BytesResponse> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(exchange(tls, request))
}

async fn exchange(tls: &ClientTls, request: Request<BodyWrapper<Bytes>>) -> io::Result<BytesResponse> {
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
    let kind = RequestKind::from_method(parts.method.as_str());
    let mut received = Vec::new();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        if let Some(response) = parse(&received, kind, false)? {
            return Ok(response);
        }
        match stream.read(&mut buffer).await? {
            0 => break,
            bytes => received.extend_from_slice(&buffer[..bytes]),
        }
        if received.len() > RESPONSE_BYTES_MAX {
            return Err(io::Error::other("the response is too long"));
        }
    }
    let truncated = || io::Error::new(io::ErrorKind::UnexpectedEof, "the response is not complete");
    parse(&received, kind, true)?.ok_or_else(truncated)
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

/// Parses a response; `None`: it is not complete. `is_end` is true at the end of the stream.
fn parse(received: &[u8], kind: RequestKind, is_end: bool) -> io::Result<Option<BytesResponse>> {
    let malformed = |refusal: wire::Refusal| io::Error::other(format!("malformed response: {refusal}"));
    let limits = Limits::default();
    let mut slots = wire::header_slots();
    let parsed = wire::parse_response(received, &limits, kind, &mut slots);
    let Parsed::Complete { head, bytes } = parsed.map_err(malformed)? else { return Ok(None) };
    let mut decoder = BodyDecoder::new(head.framing, &limits);
    let (mut rest, mut content) = (&received[bytes..], Vec::new());
    let mut is_complete = false;
    while !is_complete {
        let step = decoder.decode(rest).map_err(malformed)?;
        content.extend_from_slice(&rest[step.data.clone()]);
        is_complete = step.end;
        if step.consumed == 0 && !step.end {
            break;
        }
        rest = &rest[step.consumed..];
    }
    let is_delimited_by_end = head.framing == wire::Framing::UntilClose;
    if !(is_complete || is_end && is_delimited_by_end) {
        return Ok(None);
    }
    let mut builder = http::Response::builder().status(head.status);
    for header in head.headers {
        if let Ok(value) = HeaderValue::from_bytes(header.value) {
            builder = builder.header(header.name, value);
        }
    }
    let (parts, ()) = builder.body(()).map_err(io::Error::other)?.into_parts();
    Ok(Some(BytesResponse { parts, body: Box::new(Bytes::from(content)) }))
}
