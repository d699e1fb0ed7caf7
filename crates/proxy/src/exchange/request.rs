//! The request's direction of an open exchange: from the client to the server.

use std::rc::Rc;
use std::task::{Context, Poll};

use super::{Exchange, Moved};
use crate::conn::Link;
use crate::core::{Bench, Core};
use crate::forward::trailer_goes_on;
use crate::outcome::{End, Phase};
use crate::profile::Phase as Section;

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
        let read = if together {
            link.take_held(core, &mut bench.input)
        } else {
            let room = self.up.read_bytes(bench.input.len());
            match link.stream.poll_read(cx, &mut bench.input[..room]) {
                Poll::Pending => return Moved::Nothing,
                Poll::Ready(Ok(0) | Err(_)) => {
                    return self.fail(core, link, &mut bench.rng, End::ClientGone, Phase::Request);
                }
                Poll::Ready(Ok(read)) => read,
            }
        };
        self.send_body(cx, core, link, bench, read)
    }

    /// Passes on what the first `read` bytes of the input have of the body.
    fn send_body(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        link: &mut Link,
        bench: &mut Bench,
        read: usize,
    ) -> Moved {
        let mut at = 0;
        let mut blocked = false;
        while at < read && !blocked && !self.up_broken {
            let input = &bench.input[at..read];
            let batch = match self.up.take(input) {
                Ok(batch) => batch,
                Err(refusal) => {
                    self.facts.bytes_in += input.len() as u64;
                    self.facts.refusal = Some(refusal.kind());
                    self.facts.refusal_status = refusal.status();
                    let rng = &mut bench.rng;
                    return self.fail(core, link, rng, End::BadRequest, Phase::Request);
                }
            };
            // What is behind the end belongs to the next request.
            self.facts.bytes_in += batch.consumed as u64;
            if link.body_bytes_max().is_some_and(|max| self.up.content_bytes > max) {
                return self.fail(core, link, &mut bench.rng, End::BodyTooLarge, Phase::Request);
            }
            if batch.end {
                self.check_trailers(link);
            }
            let Some(server) = &mut self.server else {
                return Moved::Nothing;
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
        if !link.hold(core, &bench.input[at..read], false) {
            return self.fail(core, link, &mut bench.rng, End::NoBuffer, Phase::Request);
        }
        Moved::Some
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
