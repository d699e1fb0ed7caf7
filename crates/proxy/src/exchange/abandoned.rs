//! A request whose client has gone, or that took too long, while a bounded server had it: the server
//! is told by the end of our sending, and keeps the request's slot until it ends its response or its
//! connection, for `timeouts.abandoned` at most. A server that notices the end cancels the request and
//! closes, so that its slot is free at once. One that does not notice works on, and a slot that was
//! given back at once would let more requests be at work than the bound says.

use std::rc::Rc;
use std::task::{Context, Poll, ready};

use rt::clock::now_ns;
use rt::stream::Stream;
use wire::{BodyDecoder, Limits, Parsed, RequestKind};

use super::{Exchange, Place, Response, Stage};
use crate::conn::Link;
use crate::core::{Core, Live};
use crate::outcome::End;
use crate::pool::ServerConn;

/// How often one poll reads before others get their turn.
const READS_MAX: u32 = 4;

/// A request that nobody waits for any more.
struct Abandoned {
    live: Rc<Live>,
    place: Place,
    conn: ServerConn,
    response: Discarded,
}

/// A response that is read to its end for nobody.
struct Discarded {
    kind: RequestKind,
    limits: Limits,
    /// What is there of a head.
    head: Vec<u8>,
    interim: u32,
    /// Once the head is there.
    body: Option<BodyDecoder>,
}

/// How a discarded response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finished {
    /// It was received in full: the server worked for nobody.
    Whole,
    /// The connection ended first, or is unusable.
    Cut,
}

impl Exchange {
    /// Leaves the request to its server, if that is bounded and at work on it.
    pub(super) fn leave_to_server(&mut self, link: &Link, end: End) {
        let is_at_work = matches!(self.stage, Stage::Open)
            && self.response == Response::Head
            && self.up.has_sent()
            && !self.tcp
            && matches!(end, End::ClientGone | End::BodyTimeout | End::ServerTimeout);
        let bounded = |place: &Place| place.pool.is_bounded(place.server);
        if !is_at_work || !self.place.as_ref().is_some_and(bounded) {
            return;
        }
        let (Some(live), Some(place), Some(conn)) =
            (self.live.clone(), self.place.take(), self.server.take())
        else {
            return;
        };
        live.metrics.abandoned(place.pool.index());
        let response = Discarded {
            kind: self.kind,
            limits: place.pool.plan().limits,
            head: std::mem::take(&mut self.held),
            interim: self.interim,
            body: None,
        };
        let core = link.core();
        core.abandoned.set(core.abandoned.get() + 1);
        rt::tokio::task::spawn_local(wait(core, Abandoned { live, place, conn, response }));
    }
}

async fn wait(core: Rc<Core>, abandoned: Abandoned) {
    let Abandoned { live, place: Place { pool, server }, mut conn, mut response } = abandoned;
    // Refused when the server has ended its connection already, which is what is waited for.
    let _ = conn.stream.shutdown(std::net::Shutdown::Write);
    let until_ns = now_ns().saturating_add(pool.plan().timeouts.abandoned_ns);
    let finished = std::future::poll_fn(|cx| {
        response.poll(cx, &mut conn.stream, &mut core.bench.borrow_mut().input)
    });
    rt::tokio::select! {
        finished = finished => if finished == Finished::Whole {
            live.metrics.wasted(pool.index());
        },
        () = core.timers.sleep_until(until_ns) => {}
    }
    drop(conn);
    core.abandoned.set(core.abandoned.get() - 1);
    pool.release(server, &mut core.bench.borrow_mut().rng);
}

impl Discarded {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut Stream,
        input: &mut [u8],
    ) -> Poll<Finished> {
        for _ in 0..READS_MAX {
            let finished = match ready!(stream.poll_read(cx, input)) {
                Ok(0) => self.take_end(),
                Ok(read) => match self.take(&input[..read]) {
                    Some(finished) => finished,
                    None => continue,
                },
                Err(_) => Finished::Cut,
            };
            return Poll::Ready(finished);
        }
        rt::stream::yield_turn(cx);
        Poll::Pending
    }

    /// The next bytes of the response; `None`: more are to come.
    fn take(&mut self, bytes: &[u8]) -> Option<Finished> {
        if let Some(body) = &mut self.body {
            return decode(body, bytes);
        }
        self.head.extend_from_slice(bytes);
        let mut at = 0;
        loop {
            let mut slots = wire::header_slots();
            let parsed =
                wire::parse_response(&self.head[at..], &self.limits, self.kind, &mut slots);
            match parsed {
                Ok(Parsed::Incomplete) => break,
                Ok(Parsed::Complete { head, bytes }) if head.informational() => {
                    at += bytes;
                    self.interim += 1;
                    if head.switching() || self.limits.check_interim(self.interim).is_err() {
                        return Some(Finished::Cut);
                    }
                }
                Ok(Parsed::Complete { head, bytes }) => {
                    let body = self.body.insert(BodyDecoder::new(head.framing, &self.limits));
                    return decode(body, &self.head[at + bytes..]);
                }
                Err(_) => return Some(Finished::Cut),
            }
        }
        self.head.drain(..at);
        None
    }

    /// The server ended its stream.
    fn take_end(&mut self) -> Finished {
        match self.body.as_mut().map(BodyDecoder::handle_eof) {
            Some(Ok(())) => Finished::Whole,
            _ => Finished::Cut,
        }
    }
}

fn decode(body: &mut BodyDecoder, mut bytes: &[u8]) -> Option<Finished> {
    while !body.is_done() {
        if bytes.is_empty() {
            return None;
        }
        match body.decode(bytes) {
            Ok(step) => bytes = &bytes[step.consumed..],
            Err(_) => return Some(Finished::Cut),
        }
    }
    Some(Finished::Whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn discarded() -> Discarded {
        Discarded {
            kind: RequestKind::Other,
            limits: Limits::default(),
            head: Vec::new(),
            interim: 0,
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
            let whole = format!("{interim}{interim}HTTP/1.1 200 OK\r\n{body}");
            let (last, before) = whole.as_bytes().split_last().unwrap();
            for size in 1..whole.len() {
                let mut response = discarded();
                for piece in before.chunks(size) {
                    assert_eq!(response.take(piece), None, "{size} of {whole}");
                }
                assert_eq!(response.take(&[*last]), Some(Finished::Whole), "{size} of {whole}");
            }
            let mut response = discarded();
            assert_eq!(response.take(before), None);
            assert_eq!(response.take_end(), Finished::Cut, "{whole}");
        }
        let mut response = discarded();
        assert_eq!(response.take(b"HTTP/1.1 200 OK\r\n\r\nuntil the end"), None);
        assert_eq!(response.take_end(), Finished::Whole);
        assert_eq!(discarded().take(b"nonsense\r\n\r\n"), Some(Finished::Cut));
        assert_eq!(discarded().take_end(), Finished::Cut);
    }
}
