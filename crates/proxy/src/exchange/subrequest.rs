//! Subrequests: requests of the proxy's own to a pool, on behalf of a client's request, such as copies of it.
//!
//! ```text
//! RunningSubrequest <- byte channel <- Engine: an exchange in a task of its own -> pool -> server
//! ```
//! The exchange is the one that also serves clients, so that limits, queue, retries, reuse of connections,
//! timeouts, TLS and HTTP/2 to servers hold for a subrequest, too. It has no route: the caller has written the
//! head for the server. The client's own exchange is not touched; it may wait for the response, or not.
//!
//! A subrequest is no request of a client: it has no line in an access log, and counts in the metrics of its pool
//! and in `weir_subrequests_total`, not in those of listeners and routes. A failure of its own is a
//! [`SubrequestError`] and no error page. It ends when its [`RunningSubrequest`] is dropped.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use rt::byte_channel::{CHANNEL_BYTES, ChannelAddresses, ChannelEnd};
use rt::clock::MonotonicTime;
use rt::stream::Stream;
use rt::timers::Sleep;
use wire::{BodyDecoder, Framing, Limits, Parsed, RequestKind, Version};

use crate::caching::CacheUse;
use crate::client_stream::ClientStream;
use crate::core::{ConfigGeneration, Core, PollContext, Scratch};
use crate::exchange_state::{Exchange, SubrequestReport};
use crate::forward::ClientFraming;
use crate::metrics::Metrics;
use crate::outcome::EndReason;
use crate::plan::{PoolId, RouteSettings};

/// Maximum number of subrequests of a core at a time. Further ones are refused and counted.
pub(crate) const SUBREQUESTS_MAX: usize = 1024;
/// Bytes that the proxy may add to the head of a server's response.
const ADDED_HEAD_BYTES: usize = 1024;

/// A request of the proxy's own.
#[derive(Debug)]
pub(crate) struct Subrequest {
    pub(crate) pool: PoolId,
    pub(crate) kind: RequestKind,
    /// True if sending it twice has the same effect as sending it once.
    pub(crate) is_idempotent: bool,
    /// Head in HTTP/1.1, as for a server, without `Expect` and `Upgrade`; and behind it the body, whose length is
    /// in the head.
    pub(crate) message: Vec<u8>,
    /// Maximum time until the response is complete.
    pub(crate) timeout_ns: u64,
    /// Maximum number of bytes of the response's content.
    pub(crate) content_bytes_max: usize,
    /// True if the content is returned, and not only counted.
    pub(crate) keeps_content: bool,
}

/// A complete response.
#[derive(Debug)]
#[allow(dead_code, reason = "copies of requests need only the status; other callers read the rest")]
pub(crate) struct SubrequestResponse {
    pub(crate) status: u16,
    /// Time when the head was complete.
    pub(crate) head_time: MonotonicTime,
    /// The final head in HTTP/1.1, without fields of the server's connection.
    pub(crate) head: Vec<u8>,
    /// Decoded content, if it is kept.
    pub(crate) content: Vec<u8>,
    /// True if the content was longer than allowed, and is cut off.
    pub(crate) is_cut: bool,
}

/// Reason for a subrequest without a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SubrequestError {
    #[error("too many subrequests at a time")]
    LimitReached,
    #[error("no complete response in time")]
    Timeout,
    #[error("{}", .0.doc())]
    Failed(EndReason),
}

/// A subrequest in progress. Dropping it cancels the request.
#[derive(Debug)]
pub(crate) struct RunningSubrequest {
    stream: Stream,
    report: Rc<SubrequestReport>,
    timer: Sleep,
    response: ReceivedResponse,
}

/// The received part of a response.
#[derive(Debug)]
struct ReceivedResponse {
    kind: RequestKind,
    limits: Limits,
    content_bytes_max: usize,
    keeps_content: bool,
    head: Vec<u8>,
    status: u16,
    head_time: MonotonicTime,
    /// `None` until the head is complete.
    decoder: Option<BodyDecoder>,
    content: Vec<u8>,
    content_bytes: usize,
}

/// State of a response after more bytes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Received {
    Incomplete,
    Complete,
    /// Its content is longer than allowed.
    Cut,
    Malformed,
}

/// The other end of a subrequest's channel: its exchange.
struct Engine {
    client: ClientStream,
    exchange: Option<Box<Exchange>>,
    /// Taken by the first poll.
    start: Option<EngineStart>,
}

struct EngineStart {
    generation: Rc<ConfigGeneration>,
    listener: usize,
    request: Subrequest,
    report: Rc<SubrequestReport>,
    /// Use of the cache of a route by the response; `None`: the caller gets the response.
    filling: Option<Filling>,
}

/// Use of the cache of a route by the response to a subrequest, and the settings of that route.
type Filling = (Box<CacheUse>, Rc<RouteSettings>);

/// Starts a subrequest on behalf of a client's request that follows `generation` on `listener`.
///
/// # Errors
/// [`SubrequestError::LimitReached`]; it is counted.
pub(crate) fn start(
    client: &ClientStream,
    generation: &Rc<ConfigGeneration>,
    listener: usize,
    request: Subrequest,
) -> Result<RunningSubrequest, SubrequestError> {
    start_engine(client, generation, listener, request, None)
}

/// Starts a subrequest whose response goes to a cache. Its caller gets only the end of it.
///
/// # Errors
/// [`SubrequestError::LimitReached`]; it is counted.
pub(super) fn start_filling(
    client: &ClientStream,
    generation: &Rc<ConfigGeneration>,
    listener: usize,
    request: Subrequest,
    filling: Filling,
) -> Result<RunningSubrequest, SubrequestError> {
    start_engine(client, generation, listener, request, Some(filling))
}

fn start_engine(
    client: &ClientStream,
    generation: &Rc<ConfigGeneration>,
    listener: usize,
    request: Subrequest,
    filling: Option<Filling>,
) -> Result<RunningSubrequest, SubrequestError> {
    let core = client.core();
    if core.load.subrequests.get() >= SUBREQUESTS_MAX {
        core.update_metrics(Metrics::count_subrequest_refused);
        return Err(SubrequestError::LimitReached);
    }
    core.load.subrequests.set(core.load.subrequests.get() + 1);
    let plan = generation.pools[request.pool].plan();
    let addresses = match plan.send_proxy_protocol {
        Some(_) => {
            ChannelAddresses { local: client.proxied_destination(), peer: client.stream.peer_address() }
        }
        None => ChannelAddresses::default(),
    };
    let (engine, end) = core.memory.channel_buffers.open(CHANNEL_BYTES, addresses);
    // The server's connection ends with the caller's interest.
    end.reset_on_close();
    let report = Rc::<SubrequestReport>::default();
    let deadline = MonotonicTime::now().saturating_add(request.timeout_ns);
    let running = RunningSubrequest {
        stream: Stream::Channel(end),
        report: Rc::clone(&report),
        timer: core.timers.sleep_until(deadline.as_ns()),
        response: ReceivedResponse::new(&request, &plan.limits),
    };
    let start = EngineStart { generation: Rc::clone(generation), listener, request, report, filling };
    spawn_engine(engine, client, start);
    Ok(running)
}

fn spawn_engine(end: ChannelEnd, client: &ClientStream, start: EngineStart) {
    let mut client = ClientStream::new(Stream::Channel(end), Rc::clone(&client.settings), client.peer);
    // Idle connections are used, as for all but the first request of a client.
    client.request_count = 2;
    let mut engine = Engine { client, exchange: None, start: Some(start) };
    rt::tokio::task::spawn_local(std::future::poll_fn(move |cx| engine.poll(cx)));
}

impl Future for RunningSubrequest {
    type Output = Result<SubrequestResponse, SubrequestError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { stream, report, timer, response } = &mut *self;
        while let Poll::Ready(peeked) = stream.poll_peek(cx) {
            let Stream::Channel(end) = &*stream else { break };
            if !peeked.is_ok_and(|bytes| bytes > 0) {
                // Only the end of the connection delimits no response: the engine writes chunks.
                let end = report.end.get().filter(|end| *end != EndReason::Done);
                return Poll::Ready(Err(SubrequestError::Failed(end.unwrap_or(EndReason::ServerClosed))));
            }
            let (received, bytes) = {
                let bytes = end.received();
                (response.receive(&bytes), bytes.len())
            };
            end.consume(bytes);
            match received {
                Received::Incomplete => {}
                Received::Complete => return Poll::Ready(Ok(response.take(false))),
                Received::Cut => return Poll::Ready(Ok(response.take(true))),
                Received::Malformed => {
                    return Poll::Ready(Err(SubrequestError::Failed(EndReason::BadResponse)));
                }
            }
        }
        Pin::new(timer).poll(cx).map(|()| Err(SubrequestError::Timeout))
    }
}

impl ReceivedResponse {
    fn new(request: &Subrequest, limits: &Limits) -> Self {
        let limits = Limits { head_bytes_max: limits.head_bytes_max + ADDED_HEAD_BYTES, ..*limits };
        Self {
            kind: request.kind,
            limits,
            content_bytes_max: request.content_bytes_max,
            keeps_content: request.keeps_content,
            head: Vec::new(),
            status: 0,
            head_time: MonotonicTime::ZERO,
            decoder: None,
            content: Vec::new(),
            content_bytes: 0,
        }
    }

    /// Takes more bytes of the response.
    fn receive(&mut self, bytes: &[u8]) -> Received {
        if self.decoder.is_some() {
            return self.receive_content(bytes);
        }
        self.head.extend_from_slice(bytes);
        loop {
            let mut slots = wire::header_slots();
            let (head, used) = match wire::parse_response(&self.head, &self.limits, self.kind, &mut slots) {
                Ok(Parsed::Complete { head, bytes }) => (head, bytes),
                Ok(Parsed::Incomplete) => return Received::Incomplete,
                Err(_) => return Received::Malformed,
            };
            let (is_informational, status, framing) = (head.is_informational(), head.status, head.framing);
            drop(slots);
            if is_informational {
                // The exchange has limited their number.
                self.head.drain(..used);
                continue;
            }
            self.status = status;
            self.head_time = MonotonicTime::now();
            self.decoder = Some(BodyDecoder::new(framing, &self.limits));
            let content = self.head.split_off(used);
            return self.receive_content(&content);
        }
    }

    fn receive_content(&mut self, mut bytes: &[u8]) -> Received {
        let Some(decoder) = &mut self.decoder else { return Received::Malformed };
        while !decoder.is_done() {
            if bytes.is_empty() {
                return Received::Incomplete;
            }
            let Ok(step) = decoder.decode(bytes) else { return Received::Malformed };
            let left_bytes = self.content_bytes_max - self.content_bytes;
            let data = &bytes[step.data.clone()];
            let kept = &data[..data.len().min(left_bytes)];
            if self.keeps_content {
                self.content.extend_from_slice(kept);
            }
            self.content_bytes += kept.len();
            if data.len() > kept.len() {
                return Received::Cut;
            }
            bytes = &bytes[step.consumed..];
        }
        Received::Complete
    }

    fn take(&mut self, is_cut: bool) -> SubrequestResponse {
        SubrequestResponse {
            status: self.status,
            head_time: self.head_time,
            head: std::mem::take(&mut self.head),
            content: std::mem::take(&mut self.content),
            is_cut,
        }
    }
}

impl Engine {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let core = self.client.core();
        let Scratch { input, work } = &mut *core.memory.scratch.borrow_mut();
        self.client.register(&core, cx.waker());
        // It is listed with the client's request, which is not the same connection.
        if core.session_dump.has_query() && self.client.take_notified(&core) {
            core.session_dump.count_notified();
        }
        let ctx = &mut PollContext { cx, core: &core, work };
        if let Some(start) = self.start.take() {
            let exchange = self.exchange.insert(core.take_unused_exchange());
            exchange.begin_subrequest(ctx, &mut self.client, start);
        }
        match &mut self.exchange {
            Some(exchange) => exchange.poll(ctx, &mut self.client, input).map(drop),
            None => Poll::Ready(()),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let core = self.client.core();
        core.load.subrequests.set(core.load.subrequests.get() - 1);
        self.client.release();
        if let Some(mut exchange) = self.exchange.take() {
            // Has no effect after the end of its request.
            exchange.abort_on_drain(&core, &self.client);
            core.keep_exchange(exchange);
        }
    }
}

impl Exchange {
    /// Begins the exchange of a subrequest: takes a slot at a server of its pool, or a position in its queue.
    fn begin_subrequest(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        EngineStart { generation, listener, request, report, filling }: EngineStart,
    ) {
        let now = MonotonicTime::now();
        self.listener = listener;
        self.subrequest = Some(report);
        if let Some((caching, own)) = filling {
            self.caching = Some(caching);
            self.own_settings = Some(own);
        }
        self.facts.kind = request.kind;
        self.facts.version = Version::Http11;
        self.facts.may_pipeline = false;
        self.facts.is_idempotent = request.is_idempotent;
        self.facts.requests_upgrade = false;
        self.facts.requests_websocket = false;
        self.facts.expects_continue = false;
        self.facts.is_grpc = false;
        self.facts.is_streaming = false;
        self.keeps_client = false;
        self.outcome.begin(now, now, 0);
        self.request_relay.begin(Framing::None, ClientFraming::None, &Limits::default());
        *self.request_relay.head_buffer() = request.message;
        self.request_relay.keep_sent();
        let pool = Rc::clone(&generation.pools[request.pool]);
        self.generation = Some(generation);
        self.terms.requirements = Self::tcp_server_requirements(&pool, client.peer.address);
        self.acquire_or_enqueue(ctx, client, pool, now);
    }

    /// Reports the end of a subrequest to its caller.
    #[cold]
    pub(super) fn report_subrequest(
        core: &Core,
        generation: &ConfigGeneration,
        report: &SubrequestReport,
        outcome: &crate::outcome::Outcome<'_>,
    ) {
        report.end.set(Some(outcome.end));
        core.record_subrequest(generation, outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(content_bytes_max: usize, keeps_content: bool) -> ReceivedResponse {
        let request = Subrequest {
            pool: PoolId(0),
            kind: RequestKind::Other,
            is_idempotent: true,
            message: Vec::new(),
            timeout_ns: 0,
            content_bytes_max,
            keeps_content,
        };
        ReceivedResponse::new(&request, &Limits::default())
    }

    #[test]
    fn a_response_is_complete_with_its_last_byte_however_it_is_cut() {
        let bytes = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 403 Forbidden\r\n\
                      Transfer-Encoding: chunked\r\nX-A: 1\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        for size in 1..bytes.len() {
            let mut response = received(5, true);
            let (last, before) = bytes.split_last().unwrap();
            assert!(before.chunks(size).all(|chunk| response.receive(chunk) == Received::Incomplete));
            assert_eq!(response.receive(&[*last]), Received::Complete, "{size}");
            let response = response.take(false);
            assert_eq!((response.status, &*response.content), (403, &b"abcde"[..]));
            assert!(response.head.starts_with(b"HTTP/1.1 403") && response.head.ends_with(b"X-A: 1\r\n\r\n"));
        }
    }

    #[test]
    fn content_beyond_the_maximum_is_cut_off() {
        let mut response = received(4, true);
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n";
        assert_eq!(response.receive(bytes), Received::Incomplete);
        assert_eq!(response.receive(b"0123"), Received::Incomplete);
        assert_eq!(response.receive(b"4"), Received::Cut);
        let response = response.take(true);
        assert!(response.is_cut && response.content == b"0123");
        let mut response = received(4, false);
        response.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n0123");
        assert!(response.take(false).content.is_empty());
        assert_eq!(received(0, true).receive(b"nonsense\r\n\r\n"), Received::Malformed);
        assert_eq!(received(0, true).receive(b"HTTP/1.1 204 No\r\n\r\n"), Received::Complete);
    }
}
