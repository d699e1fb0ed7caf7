//! Makes answers from the bytes of requests, for as long as nothing has to be waited for.

use std::ops::Range;

use wire::{
    BodyDecoder, Framing, Parsed, Refusal, RequestHead, Version, header_slots, parse_request,
};

use crate::answer::{Answer, Asked, Persist};
use crate::body::{Chunks, Fill};
use crate::cache::{Cache, Ready};
use crate::core::{Bench, Core};
use crate::help::help_page;
use crate::language::{Purpose, parse_target};
use crate::log::Asker;
use crate::slow::Turn;
use crate::stats::add;

/// What became of the bytes.
#[derive(Debug)]
pub(crate) enum Made {
    /// An answer, whose head and maybe body were added to the output.
    Answer {
        /// Bytes of the request.
        used: usize,
        /// What of the body is to follow the output.
        fill: Fill,
        /// Whether the connection stays.
        keeps: bool,
        /// How long to wait for the next request, if the target said so.
        wait_ns: Option<u64>,
    },
    /// The request is not whole, and all is well so far.
    Incomplete,
    /// Something has to be waited for.
    Slow {
        /// Bytes that need not be looked at again.
        used: usize,
        turn: Box<Turn>,
    },
    /// A refusal was added to the output; the connection is to end.
    Refused,
}

/// What an answer's body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    /// What the target asks for.
    Asked,
    Help,
    Stats,
}

/// The field that goes with text.
pub(crate) const TEXT: &[u8] = b"Content-Type: text/plain; charset=utf-8\r\n";

/// Bodies up to this size are copied behind their head; larger ones are sent from the block.
const COPY_BYTES_MAX: u64 = 4096;
/// Bodies up to this size are kept whole with an answer that is ready.
const KEPT_BYTES_MAX: u64 = 16 * 1024;
/// Chunked bodies up to this size on the wire are made at once.
const CHUNKED_BYTES_MAX: u64 = 16 * 1024;

/// Looks at the request at the start of `range` of the input, and answers it if that can be done.
#[inline]
pub(crate) fn make(
    core: &Core,
    bench: &mut Bench,
    range: Range<usize>,
    peer: Option<&str>,
) -> Made {
    let input = &bench.input[range];
    if let Some(ready) = find_ready(core, &mut bench.cache, input) {
        count_ready(core, ready, peer);
        return copy_ready(ready, &mut bench.out);
    }
    let mut slots = header_slots();
    match parse_request(input, &core.limits, &mut slots) {
        Ok(Parsed::Complete { head, bytes }) => {
            let request = Request { head, bytes, after: &input[bytes..], peer };
            let Bench { out, cache, rng, .. } = bench;
            request.answer(core, out, rng, |request, made| {
                let ready = cache.admit(&input[..bytes])?;
                made.fill_in(core, request, ready);
                Some(&*ready)
            })
        }
        Ok(Parsed::Incomplete) => Made::Incomplete,
        Err(refusal) => {
            refuse(core, refusal, peer, &mut bench.out);
            Made::Refused
        }
    }
}

/// The answer that is ready for the request at the start of `input`.
#[inline]
pub(crate) fn find_ready<'c>(core: &Core, cache: &'c mut Cache, input: &[u8]) -> Option<&'c Ready> {
    // In a drain answers are the last ones, and say so.
    if core.draining.get() { None } else { cache.find(input, &core.dates) }
}

/// Counts a request whose answer was ready, and the answer.
#[inline]
pub(crate) fn count_ready(core: &Core, ready: &Ready, peer: Option<&str>) {
    add(&core.counters.requests, 1);
    core.counters.answered(ready.status);
    if ready.unknown_option {
        add(&core.counters.unknown_option, 1);
    }
    if peer.is_some() {
        core.log_line(peer, &ready.log);
    }
}

fn copy_ready(ready: &Ready, out: &mut Vec<u8>) -> Made {
    out.extend_from_slice(&ready.bytes);
    Made::Answer {
        used: ready.request.len(),
        fill: Fill::pattern(ready.fill),
        keeps: ready.keeps,
        wait_ns: ready.wait_ns,
    }
}

/// A request that was parsed.
struct Request<'r> {
    head: RequestHead<'r, 'r>,
    /// Bytes of the head.
    bytes: usize,
    /// What was received behind it.
    after: &'r [u8],
    peer: Option<&'r str>,
}

/// What was decided for it.
struct Decided {
    answer: Answer,
    asked: Asked,
    page: Page,
    unknown_option: bool,
    /// Whether the same bytes get the same answer each time.
    fixed: bool,
}

impl Request<'_> {
    /// Answers at once if possible; `keep` may put the answer into the cache and give it from there.
    fn answer<'c>(
        &self,
        core: &Core,
        out: &mut Vec<u8>,
        rng: &mut fastrand::Rng,
        keep: impl FnOnce(&Self, &Decided) -> Option<&'c Ready>,
    ) -> Made {
        let decided = self.decide(rng);
        let has_body = !matches!(self.head.framing, Framing::None | Framing::Length(0));
        if !decided.is_quick() || (has_body && self.head.expect_continue) {
            let body = has_body.then(|| BodyDecoder::new(self.head.framing, &core.limits));
            return self.slow(core, decided, body, self.bytes);
        }
        let mut used = self.bytes;
        if has_body {
            let mut body = BodyDecoder::new(self.head.framing, &core.limits);
            match body.skip(self.after) {
                Ok(skipped) => used += skipped.consumed,
                Err(refusal) => {
                    self.count(core, &decided);
                    add(&core.counters.requests_abandoned, 1);
                    refuse(core, refusal, self.peer, out);
                    return Made::Refused;
                }
            }
            if !body.is_done() {
                return self.slow(core, decided, Some(body), used);
            }
        } else if decided.fixed
            && !core.draining.get()
            && let Some(ready) = keep(self, &decided)
        {
            count_ready(core, ready, self.peer);
            return copy_ready(ready, out);
        }
        self.count(core, &decided);
        let keeps = decided.keeps(core);
        let (_, fill) = decided.write(core, keeps, COPY_BYTES_MAX, out);
        core.counters.answered(decided.answer.status);
        if self.peer.is_some() {
            let mut line = Vec::new();
            let content = decided.answer.content_bytes(decided.asked);
            Asker::of(&self.head).line_rest(decided.answer.status, content, &mut line);
            core.log_line(self.peer, &line);
        }
        Made::Answer { used, fill, keeps, wait_ns: decided.answer.wait_ns }
    }

    fn decide(&self, rng: &mut fastrand::Rng) -> Decided {
        let head = &self.head;
        let asked = Asked {
            version: head.version,
            is_head: head.method == "HEAD",
            keep_alive: head.keep_alive,
        };
        let plain =
            |answer, page| Decided { answer, asked, page, unknown_option: false, fixed: true };
        if head.method == "CONNECT" {
            // A 2xx would open a tunnel, and there is nothing at its other end.
            let answer = Answer { persist: Persist::Close, ..Answer::plain(501, 0) };
            return plain(answer, Page::Asked);
        }
        match parse_target(head.target.as_bytes()) {
            Purpose::Help => plain(Answer::plain(200, help_page().len() as u64), Page::Help),
            Purpose::Stats => plain(Answer::plain(200, 0), Page::Stats),
            Purpose::Answer(options) => Decided {
                answer: Answer::decide(&options, head.target.as_bytes(), rng),
                asked,
                page: Page::Asked,
                unknown_option: options.unknown,
                fixed: options.is_fixed(),
            },
        }
    }

    fn count(&self, core: &Core, decided: &Decided) {
        let counters = &core.counters;
        if decided.page == Page::Stats {
            add(&counters.stats_requests, 1);
            counters.bytes_in.set(counters.bytes_in.get() - self.bytes as u64);
            return;
        }
        add(&counters.requests, 1);
        if decided.unknown_option {
            add(&counters.unknown_option, 1);
        }
    }

    #[cold]
    fn slow(&self, core: &Core, decided: Decided, body: Option<BodyDecoder>, used: usize) -> Made {
        self.count(core, &decided);
        let turn = Turn {
            answer: decided.answer,
            asked: decided.asked,
            page: decided.page,
            expects_continue: body.is_some() && self.head.expect_continue,
            body,
            received_ns: rt::clock::now_ns(),
            head_bytes: self.bytes,
            asker: self.peer.map(|_| Asker::of(&self.head)),
        };
        Made::Slow { used, turn: Box::new(turn) }
    }
}

impl Decided {
    /// Whether the answer needs nothing but to be written.
    fn is_quick(&self) -> bool {
        let answer = &self.answer;
        self.page != Page::Stats
            && answer.is_immediate()
            && (!answer.is_chunked(self.asked)
                || Chunks::wire_bytes(answer.size, answer.chunk, u64::MAX) <= CHUNKED_BYTES_MAX)
    }

    fn keeps(&self, core: &Core) -> bool {
        self.answer.keeps(self.asked) && !core.draining.get()
    }

    /// Writes the head and what of the body goes with it; returns where the date is in `out`, and
    /// the rest of the body.
    fn write(
        &self,
        core: &Core,
        keeps: bool,
        copy_bytes_max: u64,
        out: &mut Vec<u8>,
    ) -> (usize, Fill) {
        let answer = &self.answer;
        let extra = if self.page == Page::Help { TEXT } else { b"" };
        let date_at = answer.write_head(out, self.asked, keeps, &core.dates.http(), extra);
        let content = answer.content_bytes(self.asked);
        let mut fill = Fill::pattern(content);
        if content > 0 && self.page == Page::Help {
            out.extend_from_slice(help_page().as_bytes());
            return (date_at, Fill::default());
        }
        if answer.is_chunked(self.asked) && !self.asked.is_head {
            Chunks::new(fill, answer.chunk).write(&core.blocks, usize::MAX, out);
            return (date_at, Fill::default());
        }
        if content <= copy_bytes_max {
            fill.copy(&core.blocks, content, out);
        }
        (date_at, fill)
    }

    /// Makes the answer ready for all requests with the same bytes.
    fn fill_in(&self, core: &Core, request: &Request<'_>, ready: &mut Ready) {
        let keeps = self.keeps(core);
        let (date_at, fill) = self.write(core, keeps, KEPT_BYTES_MAX, &mut ready.bytes);
        ready.date_at = date_at;
        ready.second = core.dates.second();
        ready.fill = fill.left;
        ready.status = self.answer.status;
        ready.keeps = keeps;
        ready.unknown_option = self.unknown_option;
        ready.wait_ns = self.answer.wait_ns;
        if request.peer.is_some() {
            let content = self.answer.content_bytes(self.asked);
            Asker::of(&request.head).line_rest(self.answer.status, content, &mut ready.log);
        }
    }
}

/// Adds the answer to what was refused, and counts it.
#[cold]
pub(crate) fn refuse(core: &Core, refusal: Refusal, peer: Option<&str>, out: &mut Vec<u8>) {
    core.counters.refused(refusal.kind());
    refuse_with(core, refusal.status(), peer, out);
}

/// Adds an empty answer after which the connection ends.
pub(crate) fn refuse_with(core: &Core, status: u16, peer: Option<&str>, out: &mut Vec<u8>) {
    let asked = Asked { version: Version::Http11, is_head: false, keep_alive: false };
    Answer::plain(status, 0).write_head(out, asked, false, &core.dates.http(), b"");
    core.counters.answered(status);
    // There is no request to tell of.
    core.log_line(peer, format!("\"-\" {status} 0 \"-\" \"-\"\n").as_bytes());
}
