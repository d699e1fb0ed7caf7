//! A few pages for users at this machine: a table of paths with their handlers. It serves few
//! connections with one request each, limits every resource, and rejects requests under a foreign
//! host name.
//!
//! This is not the origin of loads, which is the rest of this crate. Nothing here is fast, and
//! handlers run on one thread, one after the other.

mod files;
mod hosts;
mod policy;
mod target;

use std::fmt;
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::rc::Rc;

use rt::address::Address;
use rt::clock::SECOND_NS;
use rt::drain::{DrainStage, DrainWatch};
use rt::listen::BoundAddress;
use rt::small_server::{self, with_timeout};
use rt::stream::Stream;
use rt::timers::Timers;
use rt::tokio;
use wire::{Limits, Parsed, RequestHead, Version, encode};

pub use files::{FILE_BYTES_MAX, serve_file};
use hosts::AllowedHosts;
pub use target::WebRequest;

/// Maximum number of connections; more are closed at once. A browser opens six.
const CONNECTIONS_MAX: usize = 64;
/// Maximum size of a request's head.
const HEAD_BYTES_MAX: usize = 8_192;
/// Maximum time a client may take for its head: browsers open connections before they need them.
const HEAD_TIMEOUT_NS: u64 = 10 * SECOND_NS;
/// Maximum time a client may take for the complete response.
const RESPONSE_TIMEOUT_NS: u64 = 60 * SECOND_NS;
/// Maximum number of bytes of a file in memory.
const CHUNK_BYTES: usize = 64 * 1024;

/// Content type of plain text.
pub const TEXT: &str = "text/plain; charset=utf-8";
/// Content type of a page.
pub const HTML: &str = "text/html; charset=utf-8";
/// Content type of JSON.
pub const JSON: &str = "application/json";

/// Response to a request.
#[derive(Debug)]
pub struct WebPage {
    /// Status code.
    pub status: u16,
    /// Content type of the body.
    pub content_type: &'static str,
    /// Content of the response.
    pub body: PageBody,
}

/// Body of a page.
#[derive(Debug)]
pub enum PageBody {
    /// Complete content.
    Bytes(Vec<u8>),
    /// A file, and the number of its bytes to send.
    File(std::fs::File, u64),
}

impl WebPage {
    /// Creates a page of HTML.
    #[must_use]
    pub fn html(text: String) -> Self {
        Self { status: 200, content_type: HTML, body: PageBody::Bytes(text.into_bytes()) }
    }

    /// Creates a page of plain text.
    #[must_use]
    pub fn text(status: u16, text: impl Into<String>) -> Self {
        Self { status, content_type: TEXT, body: PageBody::Bytes(text.into().into_bytes()) }
    }

    /// Creates the page for an unknown path.
    #[must_use]
    pub fn not_found() -> Self {
        Self::text(404, "no such page\n")
    }

    fn content_bytes(&self) -> u64 {
        match &self.body {
            PageBody::Bytes(bytes) => bytes.len() as u64,
            PageBody::File(_, bytes) => *bytes,
        }
    }
}

/// Function that makes a page.
pub type Handler = Box<dyn Fn(&WebRequest) -> WebPage>;

/// A path and its handler. A path that ends in `/`, except `/` itself, covers all paths below it.
pub struct WebRoute {
    /// Path of the route.
    pub path: &'static str,
    /// Makes the page; called for GET and HEAD.
    pub handler: Handler,
}

impl fmt::Debug for WebRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebRoute").field("path", &self.path).finish_non_exhaustive()
    }
}

impl WebRoute {
    /// Creates a route from a path and its handler.
    pub fn new(path: &'static str, handler: impl Fn(&WebRequest) -> WebPage + 'static) -> Self {
        Self { path, handler: Box::new(handler) }
    }

    fn matches(&self, path: &str) -> bool {
        self.path == path || (self.path.len() > 1 && self.path.ends_with('/') && path.starts_with(self.path))
    }
}

/// Serves pages at `address` until `stop` starts the drain. `on_listening` gets the bound address,
/// with the port that the kernel chose. The first route that matches a path responds.
///
/// # Errors
/// The address cannot be bound, or the listening socket failed.
pub fn run(
    address: SocketAddr,
    routes: Vec<WebRoute>,
    mut stop: DrainWatch,
    on_listening: impl FnOnce(SocketAddr),
) -> io::Result<()> {
    let mut bound = BoundAddress::new(&Address::Tcp(address), 1)?;
    let address = match bound.address() {
        Address::Tcp(address) => *address,
        Address::Unix(_) => address,
    };
    let listener = bound.take_listener(0, 0).ok_or(io::ErrorKind::AddrNotAvailable)?;
    on_listening(address);
    let site = Rc::new(WebUi { routes, hosts: AllowedHosts::for_listener(address) });
    let serve = move |stream, timers, slot| {
        let site = Rc::clone(&site);
        async move { serve_connection((stream, slot), &timers, &site).await }
    };
    rt::cores::block_on(async move {
        tokio::select! {
            result = small_server::accept(listener, CONNECTIONS_MAX, serve) => result,
            _ = stop.wait_for(DrainStage::Draining) => Ok(()),
        }
    })
}

/// Routes and host names of the server.
#[derive(Debug)]
struct WebUi {
    routes: Vec<WebRoute>,
    hosts: AllowedHosts,
}

/// A page, and whether its body is sent.
#[derive(Debug)]
struct WebResponse {
    page: WebPage,
    /// True if the body is left out: the response to HEAD.
    is_head: bool,
}

impl From<WebPage> for WebResponse {
    fn from(page: WebPage) -> Self {
        Self { page, is_head: false }
    }
}

async fn serve_connection(
    (mut stream, slot): (Stream, Rc<small_server::ServerSlot>),
    timers: &Timers,
    site: &WebUi,
) -> io::Result<()> {
    let response = match with_timeout(timers, HEAD_TIMEOUT_NS, read_request(&mut stream, site)).await {
        Some(response) => response?,
        None => Some(WebPage::text(408, "timeout: the request's head is incomplete\n").into()),
    };
    let Some(response) = response else { return Ok(()) };
    slot.mark_request_received();
    if with_timeout(timers, RESPONSE_TIMEOUT_NS, send_response(&mut stream, response))
        .await
        .transpose()?
        .is_none()
    {
        return stream.reset_on_close();
    }
    small_server::lingering_close(stream, timers).await
}

/// Reads a request and makes the response; `None` if the client left.
async fn read_request(stream: &mut Stream, site: &WebUi) -> io::Result<Option<WebResponse>> {
    let limits = Limits { head_bytes_max: HEAD_BYTES_MAX, ..Limits::default() };
    let respond = |bytes: &[u8]| {
        let mut slots = wire::header_slots();
        match wire::parse_request(bytes, &limits, &mut slots) {
            Ok(Parsed::Complete { head, .. }) => Some(site.respond(&head)),
            // An incomplete head of the maximum size is an error.
            Ok(Parsed::Incomplete) => None,
            Err(error) => Some(WebPage::text(error.status(), format!("{error}\n")).into()),
        }
    };
    small_server::read_request(stream, HEAD_BYTES_MAX, respond).await
}

impl WebUi {
    fn respond(&self, head: &RequestHead<'_, '_>) -> WebResponse {
        let is_head = head.method == "HEAD";
        WebResponse { page: self.page(head), is_head }
    }

    fn page(&self, head: &RequestHead<'_, '_>) -> WebPage {
        // The host check comes first: a request under a foreign name learns nothing.
        if !head.host.is_some_and(|host| self.hosts.allows(host)) {
            let text = "unknown Host: use an IP address of this machine, or localhost\n";
            return WebPage::text(421, text);
        }
        if !matches!(head.method, "GET" | "HEAD") {
            return WebPage::text(405, "only GET and HEAD are allowed\n");
        }
        let request = match WebRequest::parse(head.target) {
            Ok(request) => request,
            Err(error) => return WebPage::text(400, format!("{error}\n")),
        };
        let route = self.routes.iter().find(|route| route.matches(&request.path));
        route.map_or_else(WebPage::not_found, |route| (route.handler)(&request))
    }
}

fn encode_head(page: &WebPage) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    encode::status_line(&mut out, Version::Http11, page.status);
    encode::field(&mut out, "Content-Type", page.content_type.as_bytes());
    encode::field_u64(&mut out, "Content-Length", page.content_bytes());
    encode::field(&mut out, "Content-Security-Policy", policy::content_security_policy(page).as_bytes());
    encode::field(&mut out, "X-Content-Type-Options", b"nosniff");
    encode::field(&mut out, "Cross-Origin-Resource-Policy", b"same-origin");
    encode::field(&mut out, "Referrer-Policy", b"no-referrer");
    encode::field(&mut out, "Cache-Control", b"no-store");
    if page.status == 405 {
        encode::field(&mut out, "Allow", b"GET, HEAD");
    }
    encode::field(&mut out, "Connection", b"close");
    encode::end_of_head(&mut out);
    out
}

async fn send_response(stream: &mut Stream, response: WebResponse) -> io::Result<()> {
    stream.send(&encode_head(&response.page)).await?;
    match response.page.body {
        _ if response.is_head => Ok(()),
        PageBody::Bytes(bytes) => stream.send(&bytes).await,
        PageBody::File(file, bytes) => send_file(stream, file, bytes).await,
    }
}

/// Sends so many bytes of a file. If the file has become shorter meanwhile, the connection ends
/// early, which the client detects by the announced length.
async fn send_file(stream: &mut Stream, file: std::fs::File, bytes: u64) -> io::Result<()> {
    let mut rest = file.take(bytes);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = rest.read(&mut chunk)?;
        if read == 0 {
            return Ok(());
        }
        stream.send(&chunk[..read]).await?;
    }
}

#[cfg(test)]
mod tests;
