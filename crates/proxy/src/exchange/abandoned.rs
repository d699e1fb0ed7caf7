//! Abandoned requests at servers with a limit: the client has gone, or the request took too long.
//! The proxy ends its sending direction towards the server, which keeps the request's slot until it
//! ends its response or its connection, for `timeouts.abandoned` at most. A server that notices the
//! end cancels the request and closes, so its slot is free at once. A server that does not notice
//! keeps working. If its slot were released at once, more requests would be in progress than the
//! limit allows.

use std::rc::Rc;
use std::task::{Context, Poll, ready};

use rt::clock::MonotonicTime;
use rt::stream::Stream;
use wire::{BodyDecoder, Limits, Parsed, RequestKind};

use crate::client_stream::ClientStream;
use crate::core::{ConfigGeneration, Core};
use crate::exchange_state::{Exchange, ExchangeStage, ResponseProgress, ServerSlot};
use crate::outcome::EndReason;
use crate::server_conn::ServerConn;

/// Maximum number of reads in one poll before other tasks get their turn.
const READS_MAX: u32 = 4;

/// A request whose client no longer waits for it.
struct AbandonedRequest {
    generation: Rc<ConfigGeneration>,
    slot: ServerSlot,
    conn: ServerConn,
    response: DiscardedResponse,
}

/// A response that is received in full and discarded.
struct DiscardedResponse {
    request_kind: RequestKind,
    limits: Limits,
    head: Vec<u8>,
    interim_count: u32,
    /// Decoder of the body; `None` until the head is complete.
    body: Option<BodyDecoder>,
}

/// End of a discarded response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiscardResult {
    /// It was received in full: the server's work was wasted.
    Complete,
    /// The connection ended first, or is unusable.
    Truncated,
}

impl Exchange {
    /// Leaves the request to its server if the server has a limit and works on the request.
    pub(super) fn abandon_to_server(&mut self, client: &ClientStream, end: EndReason) {
        let is_server_working = matches!(self.stage, ExchangeStage::Connected)
            && self.response == ResponseProgress::Head
            && self.has_sent_request()
            && !self.facts.is_tcp
            && matches!(end, EndReason::ClientGone | EndReason::BodyTimeout | EndReason::ServerTimeout);
        // A reset ends a stream for both sides.
        let is_server_working =
            is_server_working && self.server.as_ref().is_some_and(|server| server.http2.is_none());
        let is_limited = |slot: &ServerSlot| slot.pool.has_limit(slot.server);
        if !is_server_working || !self.slot.as_ref().is_some_and(is_limited) {
            return;
        }
        let (Some(generation), Some(slot), Some(conn)) =
            (self.generation.clone(), self.slot.take(), self.server.take())
        else {
            return;
        };
        let received = (std::mem::take(&mut self.unprocessed), self.interim_count);
        leave_to_server(client, generation, (slot, conn), self.facts.kind, received);
    }
}

/// Leaves a request and its slot to a server that works on it. `received` are the part of a head that has arrived,
/// and the number of interim responses before it.
pub(super) fn leave_to_server(
    client: &ClientStream,
    generation: Rc<ConfigGeneration>,
    (slot, conn): (ServerSlot, ServerConn),
    request_kind: RequestKind,
    (head, interim_count): (Vec<u8>, u32),
) {
    generation.metrics.abandoned(slot.pool.id());
    let limits = slot.pool.plan().limits;
    let response = DiscardedResponse { request_kind, limits, head, interim_count, body: None };
    let core = client.core();
    core.load.abandoned.set(core.load.abandoned.get() + 1);
    let abandoned = AbandonedRequest { generation, slot, conn, response };
    rt::tokio::task::spawn_local(drain_response(core, abandoned));
}

async fn drain_response(core: Rc<Core>, abandoned: AbandonedRequest) {
    let AbandonedRequest { generation, slot: ServerSlot { pool, server }, mut conn, mut response } =
        abandoned;
    // Fails if the server has already closed its connection, which this would wait for anyway.
    let _ = conn.stream.shutdown(std::net::Shutdown::Write);
    let deadline = MonotonicTime::now().saturating_add(pool.plan().timeouts.abandoned_ns);
    let finished = std::future::poll_fn(|cx| {
        response.poll(cx, &mut conn.stream, &mut core.memory.scratch.borrow_mut().input)
    });
    rt::tokio::select! {
        finished = finished => if finished == DiscardResult::Complete {
            generation.metrics.wasted(pool.id());
        },
        () = core.timers.sleep_until(deadline.as_ns()) => {}
    }
    drop(conn);
    core.load.abandoned.set(core.load.abandoned.get() - 1);
    pool.release(server, &mut core.memory.scratch.borrow_mut().work.rng);
}

impl DiscardedResponse {
    fn poll(&mut self, cx: &mut Context<'_>, stream: &mut Stream, input: &mut [u8]) -> Poll<DiscardResult> {
        for _ in 0..READS_MAX {
            let finished = match ready!(stream.poll_read(cx, input)) {
                Ok(0) if stream.is_truncated() => DiscardResult::Truncated,
                Ok(0) => self.handle_eof(),
                Ok(read) => match self.receive(&input[..read]) {
                    Some(finished) => finished,
                    None => continue,
                },
                Err(_) => DiscardResult::Truncated,
            };
            return Poll::Ready(finished);
        }
        rt::cores::yield_turn(cx);
        Poll::Pending
    }

    /// Decodes more bytes of the response. Returns `None` if more must follow.
    fn receive(&mut self, bytes: &[u8]) -> Option<DiscardResult> {
        if let Some(body) = &mut self.body {
            return decode_body(body, bytes);
        }
        let is_first = self.head.is_empty();
        self.head.extend_from_slice(bytes);
        let is_long = self.head.len() >= self.limits.head_bytes_max;
        if !(is_first || is_long || wire::head_may_be_complete(bytes)) {
            return None;
        }
        let mut at = 0;
        loop {
            let mut slots = wire::header_slots();
            let parsed = wire::parse_response(&self.head[at..], &self.limits, self.request_kind, &mut slots);
            match parsed {
                Ok(Parsed::Incomplete) => break,
                Ok(Parsed::Complete { head, bytes }) if head.is_informational() => {
                    at += bytes;
                    self.interim_count += 1;
                    if head.is_switching_protocols() || self.limits.check_interim(self.interim_count).is_err()
                    {
                        return Some(DiscardResult::Truncated);
                    }
                }
                Ok(Parsed::Complete { head, bytes }) => {
                    let body = self.body.insert(BodyDecoder::new(head.framing, &self.limits));
                    return decode_body(body, &self.head[at + bytes..]);
                }
                Err(_) => return Some(DiscardResult::Truncated),
            }
        }
        self.head.drain(..at);
        None
    }

    /// Handles the end of the server's stream.
    fn handle_eof(&mut self) -> DiscardResult {
        match self.body.as_mut().map(BodyDecoder::handle_eof) {
            Some(Ok(())) => DiscardResult::Complete,
            _ => DiscardResult::Truncated,
        }
    }
}

fn decode_body(body: &mut BodyDecoder, mut bytes: &[u8]) -> Option<DiscardResult> {
    while !body.is_done() {
        if bytes.is_empty() {
            return None;
        }
        match body.decode(bytes) {
            Ok(step) => bytes = &bytes[step.consumed..],
            Err(_) => return Some(DiscardResult::Truncated),
        }
    }
    Some(DiscardResult::Complete)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_response() -> DiscardedResponse {
        DiscardedResponse {
            request_kind: RequestKind::Other,
            limits: Limits::default(),
            head: Vec::new(),
            interim_count: 0,
            body: None,
        }
    }

    #[test]
    fn a_response_ends_with_its_last_byte_however_it_is_cut() {
        let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
        let bodies = [
            "Content-Length: 3\r\n\r\nabc",
            "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "Content-Length: 0\r\n\r\n",
        ];
        for body in bodies {
            let complete = format!("{interim}{interim}HTTP/1.1 200 OK\r\n{body}");
            let (last, before) = complete.as_bytes().split_last().unwrap();
            for size in 1..complete.len() {
                let mut response = new_response();
                for chunk in before.chunks(size) {
                    assert_eq!(response.receive(chunk), None, "{size} of {complete}");
                }
                assert_eq!(response.receive(&[*last]), Some(DiscardResult::Complete), "{size} of {complete}");
            }
            let mut response = new_response();
            assert_eq!(response.receive(before), None);
            assert_eq!(response.handle_eof(), DiscardResult::Truncated, "{complete}");
        }
        let mut response = new_response();
        assert_eq!(response.receive(b"HTTP/1.1 200 OK\r\n\r\nuntil the end"), None);
        assert_eq!(response.handle_eof(), DiscardResult::Complete);
        assert_eq!(new_response().receive(b"nonsense\r\n\r\n"), Some(DiscardResult::Truncated));
        assert_eq!(new_response().handle_eof(), DiscardResult::Truncated);
    }
}
