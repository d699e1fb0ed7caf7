//! The request's direction of an open exchange: from the client to the server.

use std::rc::Rc;
use std::task::{Context, Poll};

use super::{Exchange, Moved};
use crate::conn::Link;
use crate::core::{Bench, Core};
use crate::forward::trailer_goes_on;
use crate::outcome::{End, Phase};
use crate::profile::Phase as Section;
use crate::relay::Batch;

impl Exchange {
    /// Moves what can be moved of the request.
    pub(super) fn poll_request(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        link: &mut Link,
        bench: &mut Bench,
    ) -> Moved {
        if self.up_broken || self.up.is_done() {
            return Moved::Nothing;
        }
        let _section = core.profile.enter(Section::ForwardRequest);
        // What came together with the head is sent together with it.
        let together = !link.held.is_empty() && !self.up.is_taken();
        if !together && !self.up.is_flushed() {
            return self.flush_request(cx);
        }
        if self.up.is_taken() {
            return Moved::Nothing;
        }
        if together {
            let mut held = std::mem::take(&mut link.held);
            let used = self.send_body(cx, core, link, &mut bench.rng, held.bytes());
            let moved = match used {
                Ok(used) => {
                    held.consume(used);
                    Moved::Some
                }
                Err(moved) => moved,
            };
            link.held = held;
            return moved;
        }
        let room = self.up.read_bytes(bench.input.len());
        let Bench { input, rng, .. } = bench;
        match link.stream.poll_read(cx, &mut input[..room]) {
            Poll::Pending => Moved::Nothing,
            Poll::Ready(Ok(0) | Err(_)) => {
                self.fail(core, link, rng, End::ClientGone, Phase::Request)
            }
            Poll::Ready(Ok(read)) => match self.send_body(cx, core, link, rng, &input[..read]) {
                Ok(used) if !link.hold(core, &input[used..read]) => {
                    self.fail(core, link, rng, End::NoBuffer, Phase::Request)
                }
                Ok(_) => Moved::Some,
                Err(moved) => moved,
            },
        }
    }

    /// Finds what `input` has of the body.
    pub(super) fn take_body(
        &mut self,
        core: &Rc<Core>,
        link: &mut Link,
        rng: &mut fastrand::Rng,
        input: &[u8],
    ) -> Result<Batch, Moved> {
        let batch = match self.up.take(input) {
            Ok(batch) => batch,
            Err(refusal) => {
                self.facts.bytes_in += input.len() as u64;
                self.facts.refusal = Some(refusal.kind());
                self.facts.refusal_status = refusal.status();
                return Err(self.fail(core, link, rng, End::BadRequest, Phase::Request));
            }
        };
        // What is behind the end belongs to the next request.
        self.facts.bytes_in += batch.consumed as u64;
        if link.body_bytes_max().is_some_and(|max| self.up.content_bytes > max) {
            return Err(self.fail(core, link, rng, End::BodyTooLarge, Phase::Request));
        }
        if batch.end {
            self.check_trailers(link);
        }
        Ok(batch)
    }

    /// Passes on what `input` has of the body; how many bytes were used.
    fn send_body(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        link: &mut Link,
        rng: &mut fastrand::Rng,
        input: &[u8],
    ) -> Result<usize, Moved> {
        let mut at = 0;
        let mut blocked = false;
        while at < input.len() && !blocked && !self.up_broken {
            let input = &input[at..];
            let batch = self.take_body(core, link, rng, input)?;
            let Some(server) = &mut self.server else {
                return Err(Moved::Nothing);
            };
            let mut moved = 0;
            match self.up.poll_send(cx, &mut server.stream, input, &batch, &mut moved) {
                Poll::Ready(Ok(())) => {}
                // It may have answered before it closed, so that is read first.
                Poll::Ready(Err(_)) => self.up_broken = true,
                Poll::Pending => blocked = true,
            }
            at += batch.consumed;
            if batch.end {
                break;
            }
        }
        Ok(at)
    }

    /// Takes those fields out of the trailer section that the head may not have either.
    fn check_trailers(&mut self, link: &Link) {
        let Some(live) = &self.live else { return };
        let forwarding = &live.plan.listeners[self.listener].forwarding;
        let changes = self.facts.route.map_or(&[][..], |route| &live.plan.routes[route].changes);
        let trusted = link.peer.trusted;
        self.up.retain_trailers(|name| trailer_goes_on(name, trusted, forwarding, changes));
    }

    fn flush_request(&mut self, cx: &mut Context<'_>) -> Moved {
        let Some(server) = &mut self.server else {
            return Moved::Nothing;
        };
        let mut moved = 0;
        match self.up.poll_flush(cx, &mut server.stream, &mut moved) {
            Poll::Ready(Ok(())) => Moved::Some,
            Poll::Ready(Err(_)) => {
                self.up_broken = true;
                Moved::Some
            }
            Poll::Pending if moved > 0 => Moved::Some,
            Poll::Pending => Moved::Nothing,
        }
    }
}
