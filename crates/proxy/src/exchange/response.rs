//! The response's direction of an open exchange: from the server to the client.

use std::rc::Rc;
use std::task::{Context, Poll};

use rt::clock::now_ns;
use rt::stream::Stream;
use wire::{Parsed, RequestKind, ResponseHead, Version};

use super::choice::stamp;
use super::{After, Exchange, Moved, Response, Tunnelled};
use crate::conn::Link;
use crate::core::{Bench, Core};
use crate::forward::{ClientFraming, Persistence, ResponseParts, client_framing, write_response};
use crate::outcome::{End, Phase};
use crate::profile::Phase as Section;

/// What a head of a response leads to.
enum Head {
    /// It is not whole yet.
    Incomplete,
    /// It was interim: another one follows after so many bytes.
    Interim(usize),
    /// It was the final one, of so many bytes.
    Final(usize),
    /// After so many bytes there is another protocol.
    Switched(usize),
    /// It was refused, and what became of that.
    Failed(Moved),
}

impl Exchange {
    /// Moves what can be moved of the response.
    pub(super) fn poll_response(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        link: &mut Link,
        bench: &mut Bench,
    ) -> Moved {
        let _section = core.profile.enter(Section::ReadResponse);
        if !self.down.is_flushed() {
            let _section = core.profile.enter(Section::ForwardResponse);
            let before = self.facts.bytes_out;
            match self.down.poll_flush(cx, &mut link.stream, &mut self.facts.bytes_out) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return self.client_left(core, link, bench),
                Poll::Pending if self.facts.bytes_out > before => return Moved::Some,
                Poll::Pending => return Moved::Nothing,
            }
        }
        if let Some(moved) = self.poll_spliced(cx, core, link, bench) {
            return moved;
        }
        if self.response == Response::Done {
            return Moved::Nothing;
        }
        let Some(server) = &mut self.server else {
            return Moved::Nothing;
        };
        let held = self.held.len();
        if held > 0 {
            bench.input[..held].copy_from_slice(&self.held);
        }
        let ready_made = held > 0 && self.response == Response::Body;
        let mut end = held;
        if !ready_made {
            let room = held + self.down.read_bytes(bench.input.len() - held);
            match server.stream.poll_read(cx, &mut bench.input[held..room]) {
                Poll::Pending => return Moved::Nothing,
                Poll::Ready(Ok(0)) => return self.server_ended(cx, core, link, bench, true),
                Poll::Ready(Err(_)) => return self.server_ended(cx, core, link, bench, false),
                Poll::Ready(Ok(read)) => end += read,
            }
        }
        self.held = Vec::new();
        self.down.borrow(&mut bench.out);
        let moved = self.handle_received(cx, core, link, bench, end);
        // What becomes a tunnel has taken it along.
        self.down.give_back(&mut bench.out);
        moved
    }

    /// Makes what it can of the first `end` bytes of the input.
    fn handle_received(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        link: &mut Link,
        bench: &mut Bench,
        end: usize,
    ) -> Moved {
        let mut at = 0;
        while self.response == Response::Head {
            match self.read_head(core, link, bench, at, end) {
                Head::Incomplete => {
                    self.held = bench.input[at..end].to_vec();
                    // What was interim goes on its way.
                    return match self.down.is_flushed() {
                        true => Moved::Some,
                        false => self.flush_response(cx, core, link, bench),
                    };
                }
                Head::Interim(used) => at += used,
                Head::Final(used) => {
                    at += used;
                    self.response = Response::Body;
                }
                Head::Switched(used) => return self.switch(core, link, bench, at + used..end),
                Head::Failed(moved) => return moved,
            }
        }
        self.send_response(cx, core, link, bench, at, end)
    }

    fn read_head(
        &mut self,
        core: &Rc<Core>,
        link: &mut Link,
        bench: &mut Bench,
        at: usize,
        end: usize,
    ) -> Head {
        let Bench { input, rng, .. } = bench;
        let mut slots = wire::header_slots();
        let limits = self.response_limits();
        let parsed = wire::parse_response(&input[at..end], &limits, self.kind, &mut slots);
        let (head, used) = match parsed {
            Ok(Parsed::Complete { head, bytes }) => (head, bytes),
            Ok(Parsed::Incomplete) => return Head::Incomplete,
            Err(refusal) => {
                self.facts.refusal = Some(refusal.kind());
                let phase = Phase::Head;
                return Head::Failed(self.fail(core, link, rng, End::BadResponse, phase));
            }
        };
        if head.informational() {
            self.interim += 1;
            if let Err(refusal) = limits.check_interim(self.interim) {
                self.facts.refusal = Some(refusal.kind());
                let phase = Phase::Head;
                return Head::Failed(self.fail(core, link, rng, End::BadResponse, phase));
            }
            self.expects &= head.status != 100;
            if self.version == Version::Http11 {
                let (stays, none) = (Persistence::Stays, ClientFraming::None);
                let parts = ResponseParts {
                    version: self.version,
                    kind: self.kind,
                    framing: none,
                    persistence: stays,
                    changes: &[],
                    stamp: None,
                };
                write_response(&head, parts, self.down.head());
            }
            return Head::Interim(used);
        }
        let tunnels = self.kind == RequestKind::Connect && (200..300).contains(&head.status);
        if head.switching() && !(self.upgrade && head.upgrade.is_some() && self.up.may_switch()) {
            // Nobody asked for it, or the request was not whole.
            return Head::Failed(self.fail(core, link, rng, End::BadResponse, Phase::Head));
        }
        let first_byte_ns = now_ns();
        self.facts.times.first_byte_ns = first_byte_ns;
        if let Some(place) = &self.place {
            let dispatched_ns = self.facts.times.dispatched_ns;
            place.pool.note_service(place.server, first_byte_ns.saturating_sub(dispatched_ns));
            place.pool.note_answer(place.server, head.status, first_byte_ns);
        }
        self.facts.status = head.status;
        self.learn_answer();
        self.write_head(core, link, &head, tunnels || head.switching());
        if tunnels || head.switching() { Head::Switched(used) } else { Head::Final(used) }
    }

    /// Decides how the response goes on, and writes its head.
    fn write_head(
        &mut self,
        core: &Rc<Core>,
        link: &Link,
        head: &ResponseHead<'_, '_>,
        switches: bool,
    ) {
        let framing = client_framing(head.framing, self.version);
        self.server_persists = head.keep_alive;
        // A request that cannot be sent again any more need not be kept.
        self.up.forget_sent();
        let again = link.may_go_on(core);
        // Whether a client that was told to go on by no 100 still sends its body is its choice, which
        // neither side of us could tell from the next request.
        self.server_persists &= !self.expects || self.up.is_taken();
        let incomplete = (self.up_broken || !self.server_persists) && !self.up.is_taken();
        self.keeps &= again && framing != ClientFraming::UntilClose && !incomplete;
        let persistence = match (switches, self.keeps) {
            (true, _) => Persistence::Switches,
            (false, true) => Persistence::Stays,
            (false, false) => Persistence::Ends,
        };
        let limits = self.response_limits();
        self.down.begin(head.framing, framing, &limits);
        let live = self.live.as_ref();
        let route = self.facts.route;
        let changes = live.zip(route).map_or(&[][..], |(live, at)| &live.plan.routes[at].changes);
        let (version, kind) = (self.version, self.kind);
        let stamp = stamp(self.place.as_ref(), self.want, self.facts.sticky);
        let parts = ResponseParts { version, kind, framing, persistence, changes, stamp };
        write_response(head, parts, self.down.head());
        self.facts.head_bytes_out = self.down.head().len() as u64;
        self.facts.until_close = framing == ClientFraming::UntilClose;
    }

    /// Passes on what the input has of the body between `at` and `end`.
    fn send_response(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        link: &mut Link,
        bench: &mut Bench,
        mut at: usize,
        end: usize,
    ) -> Moved {
        let _section = core.profile.enter(Section::ForwardResponse);
        loop {
            let input = &bench.input[at..end];
            let batch = match self.down.take(input) {
                Ok(batch) => batch,
                Err(refusal) => {
                    self.facts.refusal = Some(refusal.kind());
                    let phase = self.forget_unsent_head();
                    return self.fail(core, link, &mut bench.rng, End::BadResponse, phase);
                }
            };
            if batch.end {
                self.response = Response::Done;
                if at + batch.consumed < end {
                    // Nobody asked for what follows: it must not become the next answer.
                    self.server_persists = false;
                }
            }
            let out = &mut self.facts.bytes_out;
            let sent = self.down.poll_send(cx, &mut link.stream, input, &batch, out);
            at += batch.consumed;
            if batch.end && self.up.is_done() {
                self.give_server_back(core, link, &mut bench.rng);
            }
            match sent {
                Poll::Ready(Ok(())) if batch.end || at == end => return Moved::Some,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return self.client_left(core, link, bench),
                Poll::Pending => {
                    if !batch.end {
                        self.held = bench.input[at..end].to_vec();
                    }
                    return Moved::Some;
                }
            }
        }
    }

    /// Forgets the response's head if none of it was sent: the client can still be told what became of
    /// its request. The phase that the exchange is in then.
    fn forget_unsent_head(&mut self) -> Phase {
        if self.down.unsent_bytes() < self.facts.head_bytes_out {
            return Phase::Data;
        }
        self.facts.status = 0;
        self.facts.until_close = false;
        self.response = Response::Head;
        Phase::Head
    }

    fn flush_response(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        link: &mut Link,
        bench: &mut Bench,
    ) -> Moved {
        match self.down.poll_flush(cx, &mut link.stream, &mut self.facts.bytes_out) {
            Poll::Ready(Err(_)) => self.client_left(core, link, bench),
            Poll::Ready(Ok(())) | Poll::Pending => Moved::Some,
        }
    }

    pub(super) fn client_left(&mut self, core: &Core, link: &mut Link, bench: &mut Bench) -> Moved {
        self.facts.wasted = self.response == Response::Done;
        let phase = if self.response == Response::Head { Phase::Head } else { Phase::Data };
        self.fail(core, link, &mut bench.rng, End::ClientGone, phase)
    }

    /// The server ended or reset its connection.
    fn server_ended(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        link: &mut Link,
        bench: &mut Bench,
        orderly: bool,
    ) -> Moved {
        self.server_persists = false;
        match self.response {
            Response::Head if self.may_send_again(orderly) => {
                self.facts.retries += 1;
                self.needs_new = true;
                self.up.rewind();
                self.up_broken = false;
                self.reconnect(link);
                Moved::Some
            }
            Response::Head => self.fail(core, link, &mut bench.rng, End::ServerClosed, Phase::Head),
            _ if orderly && self.down.take_eof().is_ok() => {
                self.response = Response::Done;
                self.down.end();
                self.flush_response(cx, core, link, bench)
            }
            _ => self.fail(core, link, &mut bench.rng, End::ServerClosed, Phase::Data),
        }
    }

    fn response_limits(&self) -> wire::Limits {
        self.place.as_ref().map_or_else(wire::Limits::default, |place| place.pool.plan().limits)
    }

    /// Whether the request may go to another connection: it was sent on one that had been idle, all
    /// of it is still here, nothing came back, and doing it twice is doing it once (RFC 9110
    /// §9.2.2), or the server has received none of it.
    fn may_send_again(&self, orderly: bool) -> bool {
        let Some(place) = &self.place else { return false };
        let retries_max = place.pool.plan().retries_max;
        let is_unreceived = orderly && !self.has_arrived();
        self.facts.reused
            && (is_unreceived || self.idempotent || !self.up.has_sent())
            && self.held.is_empty()
            && self.interim == 0
            && self.up.is_kept()
            && self.facts.retries < retries_max
            // What a server has not received is no more work for it.
            && (is_unreceived || self.may_retry(&place.pool))
    }

    /// Whether any byte of the request may have reached the server, which has ended its stream. Its FIN
    /// confirms what it had received until then; what came later met a closed socket.
    fn has_arrived(&self) -> bool {
        let stream = self.server.as_ref().map(|server| &server.stream);
        let unconfirmed = stream.filter(|stream| stream.is_tcp()).and_then(Stream::unacknowledged);
        unconfirmed != Some(self.up.sent_bytes())
    }

    /// Leaves HTTP: what was received behind the head belongs to the other protocol.
    fn switch(
        &mut self,
        core: &Rc<Core>,
        link: &mut Link,
        bench: &mut Bench,
        rest: std::ops::Range<usize>,
    ) -> Moved {
        let (Some(server), Some(place)) = (self.server.take(), &self.place) else {
            return self.fail(core, link, &mut bench.rng, End::BadResponse, Phase::Head);
        };
        let mut to_client = std::mem::take(self.down.head());
        to_client.extend_from_slice(&bench.input[rest]);
        let tunnel_ns = place.pool.plan().timeouts.tunnel_ns;
        self.response = Response::Body;
        let to_server = self.up.take_unsent();
        Moved::Over(After::Tunnel(Box::new(Tunnelled { server, to_server, to_client, tunnel_ns })))
    }

    /// A connection of no known protocol stands: everything else is the tunnel's.
    pub(super) fn open_tunnel(
        &mut self,
        core: &Rc<Core>,
        link: &mut Link,
        bench: &mut Bench,
    ) -> Moved {
        let (Some(server), Some(place)) = (self.server.take(), &self.place) else {
            return self.fail(core, link, &mut bench.rng, End::ConnectFailed, Phase::Connect);
        };
        place.pool.note_answer(place.server, 0, self.facts.times.connected_ns);
        let tunnel_ns = place.pool.plan().timeouts.tunnel_ns;
        self.learn_connected();
        self.response = Response::Body;
        let to_server = std::mem::take(self.up.head());
        let to_client = Vec::new();
        Moved::Over(After::Tunnel(Box::new(Tunnelled { server, to_server, to_client, tunnel_ns })))
    }
}
