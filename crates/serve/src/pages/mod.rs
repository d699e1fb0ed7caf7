//! A few pages for people at this machine: a table of paths, each with what makes its page, served to few
//! connections of one request each, everything bounded, and to nobody who came by another name than this
//! machine's own.
//!
//! Not the origin of loads, which is the rest of this crate: nothing here is fast, and handlers run on one
//! thread, one after the other.

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
use rt::drain::{DrainWatch, Stage};
use rt::few::{self, within};
use rt::listen::Bound;
use rt::stream::Stream;
use rt::timers::Timers;
use rt::tokio;
use wire::{Limits, Parsed, RequestHead, Version, encode};

pub use files::{FILE_BYTES_MAX, file_below};
use hosts::Hosts;
pub use target::Request;

/// Connections that are served at a time; more are closed at once. A browser opens six.
const CONNECTIONS_MAX: usize = 64;
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 8_192;
/// How long a client may take for its head: browsers open connections before they need them.
const HEAD_NS: u64 = 10 * SECOND_NS;
/// How long a client may take for the whole answer.
const ANSWER_NS: u64 = 60 * SECOND_NS;
/// Bytes of a file that are in memory at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// Plain text.
pub const TEXT: &str = "text/plain; charset=utf-8";
/// A page.
pub const HTML: &str = "text/html; charset=utf-8";
/// JSON.
pub const JSON: &str = "application/json";

/// What a request is answered with.
#[derive(Debug)]
pub struct Page {
    /// The status.
    pub status: u16,
    /// What the body is.
    pub content_type: &'static str,
    /// The body.
    pub body: Body,
}

/// A page's body.
#[derive(Debug)]
pub enum Body {
    /// All of it.
    Bytes(Vec<u8>),
    /// A file, of which so many bytes are sent.
    File(std::fs::File, u64),
}

impl Page {
    /// A page of HTML.
    #[must_use]
    pub fn html(text: String) -> Self {
        Self { status: 200, content_type: HTML, body: Body::Bytes(text.into_bytes()) }
    }

    /// Plain text.
    #[must_use]
    pub fn text(status: u16, text: impl Into<String>) -> Self {
        Self { status, content_type: TEXT, body: Body::Bytes(text.into().into_bytes()) }
    }

    /// There is no such page.
    #[must_use]
    pub fn missing() -> Self {
        Self::text(404, "there is no such page\n")
    }

    fn bytes(&self) -> u64 {
        match &self.body {
            Body::Bytes(bytes) => bytes.len() as u64,
            Body::File(_, bytes) => *bytes,
        }
    }
}

/// What makes a page.
pub type Handler = Box<dyn Fn(&Request) -> Page>;

/// A path, and what makes its page. One that ends in `/`, apart from `/` itself, stands for all below it.
pub struct Route {
    /// The path.
    pub path: &'static str,
    /// Makes the page; called for GET and HEAD.
    pub handler: Handler,
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Route {
    /// A path with what makes its page.
    pub fn new(path: &'static str, handler: impl Fn(&Request) -> Page + 'static) -> Self {
        Self { path, handler: Box::new(handler) }
    }

    fn is_for(&self, path: &str) -> bool {
        self.path == path
            || (self.path.len() > 1 && self.path.ends_with('/') && path.starts_with(self.path))
    }
}

/// Serves pages at `address` until `stop` says to drain; `listening` is told where, with the port that the
/// kernel chose. The first route that is for a path answers.
///
/// # Errors
/// The address cannot be bound, or the listening socket failed.
pub fn run(
    address: SocketAddr,
    routes: Vec<Route>,
    mut stop: DrainWatch,
    listening: impl FnOnce(SocketAddr),
) -> io::Result<()> {
    let mut bound = Bound::new(&Address::Tcp(address), 1)?;
    let address = match bound.address() {
        Address::Tcp(address) => *address,
        Address::Unix(_) => address,
    };
    let listener = bound.take(0, 0).ok_or(io::ErrorKind::AddrNotAvailable)?;
    listening(address);
    let site = Rc::new(Site { routes, hosts: Hosts::of(address) });
    let converse = move |stream, timers, slot| {
        let site = Rc::clone(&site);
        async move { converse((stream, slot), &timers, &site).await }
    };
    rt::cores::block_on(async move {
        tokio::select! {
            ended = few::accept(listener, CONNECTIONS_MAX, converse) => ended,
            _ = stop.reached(Stage::Draining) => Ok(()),
        }
    })
}

/// All that a request is held against.
#[derive(Debug)]
struct Site {
    routes: Vec<Route>,
    hosts: Hosts,
}

/// A page and what is said beside it.
#[derive(Debug)]
struct Answer {
    page: Page,
    /// Whether the body is left out: the answer to HEAD.
    is_head: bool,
}

impl From<Page> for Answer {
    fn from(page: Page) -> Self {
        Self { page, is_head: false }
    }
}

async fn converse(
    (mut stream, slot): (Stream, Rc<few::Slot>),
    timers: &Timers,
    site: &Site,
) -> io::Result<()> {
    let answer = match within(timers, HEAD_NS, ask(&mut stream, site)).await {
        Some(answer) => answer?,
        None => Some(Page::text(408, "the request's head did not come in time\n").into()),
    };
    let Some(answer) = answer else { return Ok(()) };
    slot.asked();
    if within(timers, ANSWER_NS, send_answer(&mut stream, answer)).await.transpose()?.is_none() {
        return stream.reset_on_close();
    }
    few::part(stream, timers).await
}

/// Reads a request and makes the answer; `None` when the client left.
async fn ask(stream: &mut Stream, site: &Site) -> io::Result<Option<Answer>> {
    let limits = Limits { head_bytes_max: HEAD_BYTES_MAX, ..Limits::default() };
    let mut buffer = vec![0; HEAD_BYTES_MAX];
    let mut filled = 0;
    loop {
        let read = stream.read(&mut buffer[filled..]).await?;
        if read == 0 {
            return Ok(None);
        }
        filled += read;
        let mut slots = wire::header_slots();
        match wire::parse_request(&buffer[..filled], &limits, &mut slots) {
            Ok(Parsed::Complete { head, .. }) => return Ok(Some(site.answer(&head))),
            Ok(Parsed::Incomplete) if filled < buffer.len() => {}
            Ok(_) => return Ok(Some(Page::text(431, "the request's head is too long\n").into())),
            Err(refusal) => {
                return Ok(Some(Page::text(refusal.status(), format!("{refusal}\n")).into()));
            }
        }
    }
}

impl Site {
    fn answer(&self, head: &RequestHead<'_, '_>) -> Answer {
        let is_head = head.method == "HEAD";
        Answer { page: self.page(head), is_head }
    }

    fn page(&self, head: &RequestHead<'_, '_>) -> Page {
        // Whom the request is for comes first: nothing is told to who came by a foreign name.
        if !head.host.is_some_and(|host| self.hosts.has(host)) {
            let text = "these pages are served by the address of this machine, or as localhost\n";
            return Page::text(421, text);
        }
        if !matches!(head.method, "GET" | "HEAD") {
            return Page::text(405, "only GET and HEAD are allowed\n");
        }
        let request = match Request::parse(head.target) {
            Ok(request) => request,
            Err(why) => return Page::text(400, format!("{why}\n")),
        };
        let route = self.routes.iter().find(|route| route.is_for(&request.path));
        route.map_or_else(Page::missing, |route| (route.handler)(&request))
    }
}

fn encode_head(page: &Page) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    encode::status_line(&mut out, Version::Http11, page.status);
    encode::field(&mut out, "Content-Type", page.content_type.as_bytes());
    encode::field_u64(&mut out, "Content-Length", page.bytes());
    encode::field(&mut out, "Content-Security-Policy", policy::of(page).as_bytes());
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

async fn send_answer(stream: &mut Stream, answer: Answer) -> io::Result<()> {
    stream.send(&encode_head(&answer.page)).await?;
    match answer.page.body {
        _ if answer.is_head => Ok(()),
        Body::Bytes(bytes) => stream.send(&bytes).await,
        Body::File(file, bytes) => send_file(stream, file, bytes).await,
    }
}

/// Sends so many bytes of a file. One that has become shorter meanwhile ends the connection early, which
/// the client sees by the length that it was told.
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
