//! Receiving the start of a request's body, or all of a short one, before the request takes a slot of a
//! bounded server: a client that sends slowly holds none meanwhile.

use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use rt::clock::now_ns;

use super::{Exchange, Moved, Stage};
use crate::conn::{Armed, Link};
use crate::core::{Bench, Core};
use crate::outcome::{End, Phase};
use crate::pool::Pool;
use crate::profile::Phase as Section;

/// Bytes that are read at a time.
const READ_BYTES: usize = 8 * 1024;

impl Exchange {
    /// Receives the start of its body first if its pool has bounds, or asks for a server at once.
    pub(super) fn buffer_or_enter(
        &mut self,
        core: &Rc<Core>,
        link: &mut Link,
        pool: Rc<Pool>,
        now_ns: u64,
        (rng, waker): (&mut fastrand::Rng, &Waker),
    ) {
        if self.buffers_first(&pool, link.buffer_request_bytes()) {
            self.stage = Stage::Buffering(pool);
            return;
        }
        self.enter_pool(core, link, pool, now_ns, (rng, waker));
    }

    fn buffers_first(&self, pool: &Pool, bytes_max: u64) -> bool {
        // Who waits for `100 Continue` sends nothing before a server has said so.
        bytes_max > 0 && !self.up.is_taken() && !self.expects && pool.has_bounds()
    }

    pub(super) fn poll_buffering(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        link: &mut Link,
        bench: &mut Bench,
    ) -> Moved {
        let _section = core.profile.enter(Section::ForwardRequest);
        let Bench { input, rng, .. } = bench;
        if self.up.is_taken() || self.up.content_bytes >= link.buffer_request_bytes() {
            let Stage::Buffering(pool) = std::mem::replace(&mut self.stage, Stage::Spare) else {
                return Moved::Nothing;
            };
            link.note_progress();
            // The request is there now, as far as its time in a queue goes.
            let now_ns = now_ns();
            self.facts.times.head_ns = now_ns;
            self.enter_pool(core, link, pool, now_ns, (rng, cx.waker()));
            return Moved::Some;
        }
        if !link.held.is_empty() {
            let mut held = std::mem::take(&mut link.held);
            let used = self.buffer_body(core, link, rng, held.bytes());
            held.consume(*used.as_ref().unwrap_or(&0));
            link.held = held;
            return used.map_or_else(|moved| moved, |_| Moved::Some);
        }
        match link.stream.poll_read(cx, &mut input[..READ_BYTES]) {
            Poll::Pending => self.wait_for_body(cx, core, link, rng),
            Poll::Ready(Ok(0) | Err(_)) => {
                self.fail(core, link, rng, End::ClientGone, Phase::Request)
            }
            Poll::Ready(Ok(read)) => match self.buffer_body(core, link, rng, &input[..read]) {
                Ok(used) if !link.hold(core, &input[used..read]) => {
                    self.fail(core, link, rng, End::NoBuffer, Phase::Request)
                }
                Ok(_) => {
                    link.note_progress();
                    Moved::Some
                }
                Err(moved) => moved,
            },
        }
    }

    /// Keeps what `input` has of the body, up to the bound; how many bytes were used.
    fn buffer_body(
        &mut self,
        core: &Rc<Core>,
        link: &mut Link,
        rng: &mut fastrand::Rng,
        input: &[u8],
    ) -> Result<usize, Moved> {
        let mut at = 0;
        while at < input.len()
            && !self.up.is_taken()
            && self.up.content_bytes < link.buffer_request_bytes()
        {
            let end = input.len().min(at + READ_BYTES);
            let batch = self.take_body(core, link, rng, &input[at..end])?;
            self.up.buffer(&input[at..end], &batch);
            at += batch.consumed;
        }
        Ok(at)
    }

    fn wait_for_body(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        link: &mut Link,
        rng: &mut fastrand::Rng,
    ) -> Moved {
        let idle_ns = link.timeouts().body_idle_ns;
        let in_time =
            self.makes_progress(core, link) && !link.is_late(cx, core, Armed::RequestBody, idle_ns);
        match in_time {
            true => Moved::Nothing,
            false => self.fail(core, link, rng, End::BodyTimeout, Phase::Request),
        }
    }
}
