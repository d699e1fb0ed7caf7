//! A few pages for users at this machine and for scrapers of metrics. Serves few connections with one
//! request each, and limits every resource.
//!
//! Not for traffic: pages are made on one thread, one after the other. A [`PageSource`] chooses the
//! pages; [`run`] serves a table of paths, under the names of this machine only.

mod connections;
mod files;
mod hosts;
mod policy;
mod target;

use std::fmt;
use std::future::Future;
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::rc::Rc;

use rt::address::Address;
use rt::clock::SECOND_NS;
use rt::drain::{DrainStage, DrainWatch};
use rt::listen::{BoundAddress, Listener};
use rt::stream::Stream;
use rt::timers::Timers;
use rt::tokio;
use wire::{Limits, Parsed, RequestHead, Version, encode};

use connections::OpenConnections;

pub use connections::with_timeout;
pub use files::{FILE_BYTES_MAX, serve_file};
pub use hosts::is_own_host;
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

pub const TEXT: &str = "text/plain; charset=utf-8";
pub const HTML: &str = "text/html; charset=utf-8";
pub const JSON: &str = "application/json";

#[derive(Debug)]
pub struct WebPage {
    pub status: u16,
    pub content_type: &'static str,
    pub body: PageBody,
    /// True if its scripts may send requests to this server.
    pub may_fetch: bool,
}

#[derive(Debug)]
pub enum PageBody {
    Bytes(Vec<u8>),
    File(std::fs::File, u64),
}

impl WebPage {
    #[must_use]
    pub fn new(content_type: &'static str, content: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, content_type, body: PageBody::Bytes(content.into()), may_fetch: false }
    }

    #[must_use]
    pub fn html(text: impl Into<String>) -> Self {
        Self::new(HTML, text.into().into_bytes())
    }

    #[must_use]
    pub fn text(status: u16, text: impl Into<String>) -> Self {
        Self { status, ..Self::new(TEXT, text.into().into_bytes()) }
    }

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

pub type Handler = Box<dyn Fn(&WebRequest) -> WebPage>;

/// A path and its handler. A path that ends in `/`, except `/` itself, covers all paths below it.
pub struct WebRoute {
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
    pub fn new(path: &'static str, handler: impl Fn(&WebRequest) -> WebPage + 'static) -> Self {
        Self { path, handler: Box::new(handler) }
    }

    fn matches(&self, path: &str) -> bool {
        self.path == path || (self.path.len() > 1 && self.path.ends_with('/') && path.starts_with(self.path))
    }
}

/// Chooses and makes the pages of a server.
pub trait PageSource {
    /// A chosen page that is not made yet.
    type Chosen;

    /// Chooses the page of a request with GET or HEAD.
    ///
    /// # Errors
    /// The response that rejects the request.
    fn choose(&self, head: &RequestHead<'_, '_>) -> Result<Self::Chosen, WebPage>;

    fn make(&self, chosen: Self::Chosen, timers: &Timers) -> impl Future<Output = WebPage>;
}

/// Serves pages at `address` until `stop` starts the drain, and sends the responses of the requests that have
/// arrived by then, within 2 s. `on_listening` gets the bound address,
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
    let routes = Rc::new(LocalRoutes { routes, address });
    rt::cores::block_on(async move {
        let open = Rc::default();
        tokio::select! {
            result = accept(listener, routes, &open) => return result,
            _ = stop.wait_for(DrainStage::Draining) => {}
        }
        open.finish_responses().await
    })
}

/// Serves the pages of `source` until the future is dropped, which does not end open connections. Must
/// be called inside a core's runtime.
///
/// # Errors
/// The listening socket failed, or there was no descriptor for a timer.
pub async fn serve<S: PageSource + 'static>(listener: Listener, source: Rc<S>) -> io::Result<()> {
    accept(listener, source, &Rc::default()).await
}

async fn accept<S: PageSource + 'static>(
    listener: Listener,
    source: Rc<S>,
    open: &Rc<OpenConnections>,
) -> io::Result<()> {
    let serve_connection = move |stream, timers, slot| {
        let source = Rc::clone(&source);
        async move { serve_connection((stream, slot), &timers, &*source).await }
    };
    connections::accept(listener, CONNECTIONS_MAX, open, serve_connection).await
}

/// Routes of a server for users at this machine.
#[derive(Debug)]
struct LocalRoutes {
    routes: Vec<WebRoute>,
    /// Bound address, which decides who may connect.
    address: SocketAddr,
}

impl PageSource for LocalRoutes {
    type Chosen = (usize, WebRequest);

    fn choose(&self, head: &RequestHead<'_, '_>) -> Result<Self::Chosen, WebPage> {
        // The host check comes first: a request under a foreign name learns nothing.
        if !head.host.is_some_and(|host| hosts::is_local_host(host, self.address.ip())) {
            let text = "unknown Host: use an IP address of this machine, or localhost\n";
            return Err(WebPage::text(421, text));
        }
        let request = WebRequest::parse(head.target);
        let request = request.map_err(|error| WebPage::text(400, format!("{error}\n")))?;
        let index = self.routes.iter().position(|route| route.matches(&request.path));
        Ok((index.ok_or_else(WebPage::not_found)?, request))
    }

    async fn make(&self, (index, request): Self::Chosen, _timers: &Timers) -> WebPage {
        (self.routes[index].handler)(&request)
    }
}

/// A request, and whether only the head of its response is sent.
struct ChosenResponse<C> {
    /// The page, or the response that rejects the request.
    page: Result<C, WebPage>,
    is_head: bool,
}

impl<C> From<WebPage> for ChosenResponse<C> {
    fn from(rejection: WebPage) -> Self {
        Self { page: Err(rejection), is_head: false }
    }
}

async fn serve_connection(
    (mut stream, slot): (Stream, Rc<connections::ServerSlot>),
    timers: &Timers,
    source: &impl PageSource,
) -> io::Result<()> {
    let chosen = match with_timeout(timers, HEAD_TIMEOUT_NS, read_request(&mut stream, source)).await {
        Some(chosen) => chosen?,
        None => Some(WebPage::text(408, "timeout: the request's head is incomplete\n").into()),
    };
    let Some(chosen) = chosen else { return Ok(()) };
    slot.mark_request_received();
    let page = match chosen.page {
        Ok(page) => source.make(page, timers).await,
        Err(rejection) => rejection,
    };
    let sending = send_response(&mut stream, page, chosen.is_head);
    if with_timeout(timers, RESPONSE_TIMEOUT_NS, sending).await.transpose()?.is_none() {
        return stream.reset_on_close();
    }
    connections::lingering_close(stream, timers).await
}

/// Reads a request and chooses its page; `None` if the client left.
async fn read_request<S: PageSource>(
    stream: &mut Stream,
    source: &S,
) -> io::Result<Option<ChosenResponse<S::Chosen>>> {
    let limits = Limits { head_bytes_max: HEAD_BYTES_MAX, ..Limits::default() };
    let parse = |bytes: &[u8]| {
        let mut slots = wire::header_slots();
        match wire::parse_request(bytes, &limits, &mut slots) {
            Ok(Parsed::Complete { head, .. }) => Some(choose(&head, source)),
            // An incomplete head of the maximum size is an error.
            Ok(Parsed::Incomplete) => None,
            Err(error) => Some(WebPage::text(error.status(), format!("{error}\n")).into()),
        }
    };
    connections::read_request(stream, HEAD_BYTES_MAX, parse).await
}

fn choose<S: PageSource>(head: &RequestHead<'_, '_>, source: &S) -> ChosenResponse<S::Chosen> {
    match head.method {
        "GET" | "HEAD" => ChosenResponse { page: source.choose(head), is_head: head.method == "HEAD" },
        _ => WebPage::text(405, "only GET and HEAD are allowed\n").into(),
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
    if page.status == 401 {
        encode::field(&mut out, "WWW-Authenticate", b"Basic realm=\"weir\", charset=\"UTF-8\"");
    }
    if page.status == 405 {
        encode::field(&mut out, "Allow", b"GET, HEAD");
    }
    encode::field(&mut out, "Connection", b"close");
    encode::end_of_head(&mut out);
    out
}

async fn send_response(stream: &mut Stream, page: WebPage, is_head: bool) -> io::Result<()> {
    let mut head = encode_head(&page);
    match page.body {
        _ if is_head => stream.send(&head).await,
        PageBody::Bytes(bytes) => {
            head.extend_from_slice(&bytes);
            stream.send(&head).await
        }
        PageBody::File(file, bytes) => {
            stream.send(&head).await?;
            send_file(stream, file, bytes).await
        }
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
