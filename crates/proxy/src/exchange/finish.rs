//! How an exchange ends: answers of our own, what becomes of both connections, and the outcome.

use rt::clock::now_ns;
use wire::{RequestHead, RequestKind, Version, encode};

use super::{After, Exchange, Moved, Place, Response, Stage};
use crate::balance::sticky::Found;
use crate::conn::Link;
use crate::core::Core;
use crate::forward::answers_with;
use crate::log::http_date;
use crate::outcome::{Asked, End, Outcome, Phase, Times};
use crate::plan::Reuse;
use crate::profile::Phase as Section;

/// What is known of a request so far; its [`Outcome`] in the making.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(super) times: Times,
    pub(super) status: u16,
    end: End,
    phase: Phase,
    pub(super) refusal: Option<wire::RefusalKind>,
    /// What a refusal is answered with; 0: what its end says.
    pub(super) refusal_status: u16,
    pub(super) retry_after_s: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    pub(super) head_bytes_out: u64,
    /// Whether only the end of the connection tells the client that the response is whole.
    pub(super) until_close: bool,
    pub(super) retries: u8,
    pub(super) reused: bool,
    pub(super) wasted: bool,
    /// What its sticky cookie said; `None`: its pool has none.
    pub(super) sticky: Option<Found>,
    pub(super) route: Option<usize>,
    pub(super) pool: Option<usize>,
    pub(super) server: Option<usize>,
    /// Method, target, host, referer, user agent, id, one behind the other.
    texts: Vec<u8>,
    /// Where each of them ends.
    ends: [u32; TEXTS],
    version: Option<Version>,
}

const TEXTS: usize = 6;
/// Texts that grew beyond this are given back to the allocator.
const TEXT_BYTES_KEPT: usize = 4096;

impl Default for Facts {
    fn default() -> Self {
        Self {
            times: Times::default(),
            status: 0,
            end: End::Done,
            phase: Phase::Over,
            refusal: None,
            refusal_status: 0,
            retry_after_s: 0,
            bytes_in: 0,
            bytes_out: 0,
            head_bytes_out: 0,
            until_close: false,
            retries: 0,
            reused: false,
            wasted: false,
            sticky: None,
            route: None,
            pool: None,
            server: None,
            texts: Vec::new(),
            ends: [0; TEXTS],
            version: None,
        }
    }
}

impl Facts {
    pub(super) fn clear(&mut self) {
        let mut texts = std::mem::take(&mut self.texts);
        texts.clear();
        if texts.capacity() > TEXT_BYTES_KEPT {
            texts = Vec::new();
        }
        *self = Self { texts, ..Self::default() };
    }

    pub(super) fn begin(&mut self, start_ns: u64, now_ns: u64, head_bytes: usize) {
        self.times.start_ns = start_ns;
        self.times.head_ns = now_ns;
        self.bytes_in = head_bytes as u64;
    }

    /// Keeps what a log may want to know of the head, which is gone by then.
    pub(super) fn note_asked(&mut self, head: &RequestHead<'_, '_>, fields: bool) {
        self.version = Some(head.version);
        let field = |name: &str| match fields {
            true => wire::field_value(head.headers, name).unwrap_or_default(),
            false => &[],
        };
        let host = if fields { head.host.unwrap_or_default().as_bytes() } else { &[] };
        let texts: [&[u8]; TEXTS - 1] = [
            head.method.as_bytes(),
            head.target.as_bytes(),
            host,
            field("referer"),
            field("user-agent"),
        ];
        for (end, text) in self.ends.iter_mut().zip(texts) {
            self.texts.extend_from_slice(text);
            *end = self.texts.len() as u32;
        }
        self.ends[TEXTS - 1] = self.ends[TEXTS - 2];
    }

    pub(super) fn note_id(&mut self, id: &[u8]) {
        self.texts.extend_from_slice(id);
        self.ends[TEXTS - 1] = self.texts.len() as u32;
    }

    fn text(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.texts[start as usize..self.ends[index] as usize]
    }

    fn asked(&self) -> Option<Asked<'_>> {
        self.version.map(|version| Asked {
            method: self.text(0),
            target: self.text(1),
            version,
            host: self.text(2),
            referer: self.text(3),
            user_agent: self.text(4),
            request_id: self.text(5),
        })
    }
}

/// The methods that answers of our own name in `Allow`.
pub(super) const ALLOWED: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// Writes `Allow` for a 405 (RFC 9110 §15.5.6): every method but the one that was refused.
fn write_allow(refused: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"Allow: ");
    let mut others = ALLOWED.split(", ").filter(|method| method.as_bytes() != refused);
    out.extend_from_slice(others.next().unwrap_or_default().as_bytes());
    for method in others {
        out.extend_from_slice(b", ");
        out.extend_from_slice(method.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}

impl Exchange {
    /// It cannot go on as it was meant to. The client is told, if it was told nothing yet.
    pub(super) fn fail(
        &mut self,
        core: &Core,
        link: &mut Link,
        rng: &mut fastrand::Rng,
        end: End,
        phase: Phase,
    ) -> Moved {
        self.facts.end = end;
        self.facts.phase = phase;
        if matches!(end, End::ServerTimeout | End::ServerClosed)
            && let Some(place) = &self.place
        {
            place.pool.observe_failure(place.server);
        }
        self.leave_to_server(link, end);
        self.server = None;
        if let Some(Place { pool, server }) = &self.place
            && pool.wants_latency()
        {
            self.learn_failure(pool, *server, end, now_ns());
        }
        if let Stage::Queued(pool, ticket) = &self.stage {
            pool.forget(ticket, rng);
        }
        self.release(rng);
        link.disarm();
        let status = match self.facts.refusal_status {
            0 => end.status(),
            status => status,
        };
        // Half of an interim response is out: no answer can follow it.
        let cut = self.down.is_cut();
        let answered = matches!(self.stage, Stage::Answering) || self.facts.status != 0 || cut;
        if status == 0 || answered || self.tcp {
            self.stage = Stage::Spare;
            return Moved::Over(self.after_failure(core, link));
        }
        self.write_refusal(core, link, status);
        Moved::Some
    }

    /// After a failure that the client is not told about in words.
    fn after_failure(&mut self, core: &Core, link: &Link) -> After {
        self.record(core, link);
        if self.facts.end == End::SilentlyDropped {
            return After::Vanish;
        }
        // Cut short, a response that ends with its connection would look whole.
        let looks_whole = self.facts.until_close && self.response != Response::Done;
        if looks_whole || self.facts.end == End::WriteTimeout { After::Reset } else { After::Close }
    }

    fn write_refusal(&mut self, core: &Core, link: &Link, status: u16) {
        let reason = encode::reason(status);
        let body = format!("{status} {reason}: {}\n", self.facts.end.doc());
        let mut seconds = itoa::Buffer::new();
        let wait_s = match (self.facts.retry_after_s, status) {
            (0, 503) => 1,
            (wait_s, _) => wait_s,
        };
        let retry_after = [("Retry-After", seconds.format(wait_s).as_bytes())];
        let fields = if wait_s > 0 { &retry_after[..] } else { &[] };
        let keeps_end = (self.facts.end, self.facts.phase);
        self.answer(core, link, status, "text/plain", body.as_bytes(), fields);
        (self.facts.end, self.facts.phase) = keeps_end;
    }

    /// Answers by itself.
    pub(super) fn answer(
        &mut self,
        core: &Core,
        link: &Link,
        status: u16,
        content_type: &str,
        body: &[u8],
        fields: &[(&str, &[u8])],
    ) {
        // What of the request is still to come would be taken for the next one.
        self.keeps &= self.up.is_taken() && !self.up_broken && link.may_go_on(core);
        self.facts.end = End::Answered;
        self.facts.phase = Phase::Request;
        self.facts.status = status;
        self.down.reset();
        let live = self.live.as_ref();
        let changes = live
            .zip(self.facts.route)
            .map_or(&[][..], |(live, route)| &live.plan.routes[route].changes);
        let out = self.down.head();
        encode::status_line(out, Version::Http11, status);
        if answers_with(changes, "date") {
            encode::field(out, "Date", &http_date());
        }
        for (name, value) in fields.iter().filter(|(name, _)| answers_with(changes, name)) {
            encode::field(out, name, value);
        }
        if status == 405 && answers_with(changes, "allow") {
            write_allow(self.facts.text(0), out);
        }
        if !matches!(status, 204 | 304) {
            if !body.is_empty() && answers_with(changes, "content-type") {
                encode::field(out, "Content-Type", content_type.as_bytes());
            }
            encode::field_u64(out, "Content-Length", body.len() as u64);
        }
        crate::forward::write_response_changes(changes, out);
        match (self.keeps, self.version) {
            (false, Version::Http11) => out.extend_from_slice(b"Connection: close\r\n"),
            (true, Version::Http10) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
            _ => {}
        }
        encode::end_of_head(out);
        self.facts.head_bytes_out = out.len() as u64;
        if self.kind != RequestKind::Head && !matches!(status, 204 | 304) {
            out.extend_from_slice(body);
        }
        self.response = Response::Done;
        self.stage = Stage::Answering;
    }

    /// It ended as it was meant to.
    pub(super) fn finish(
        &mut self,
        core: &Core,
        link: &mut Link,
        rng: &mut fastrand::Rng,
    ) -> After {
        self.give_server_back(core, link, rng);
        self.stage = Stage::Spare;
        self.record(core, link);
        // The rest of a body that nobody reads would be taken for the next request.
        self.keeps &= self.up.is_taken();
        if self.keeps {
            return After::Next;
        }
        // What the client has sent beyond, or sends before it reads that this was the last response,
        // would turn the close into a reset, which may destroy the response on its way.
        let unread = !self.up.is_taken() || self.up_broken || !link.held.is_empty();
        match unread || self.may_pipeline || !link.stream.is_quiet() {
            true => After::Linger,
            false => After::Close,
        }
    }

    /// The response is whole: the server is free for the next request, on this connection if it can
    /// carry one.
    pub(super) fn give_server_back(
        &mut self,
        core: &Core,
        link: &mut Link,
        rng: &mut fastrand::Rng,
    ) {
        if let (Some(mut conn), Some(Place { pool, server })) = (self.server.take(), &self.place)
            && self.server_persists
            && self.up.is_done()
            && !self.up_broken
            && !core.draining.get()
        {
            conn.served += 1;
            match pool.reuse() {
                Reuse::Never => link.keep_own(pool, *server, conn),
                Reuse::Safe | Reuse::Always => pool.keep_idle(*server, conn, core.now_ns.get()),
            }
        }
        self.release(rng);
    }

    /// Bytes that went through a tunnel.
    pub(crate) fn note_tunnel(&mut self, bytes_in: u64, bytes_out: u64) {
        self.facts.bytes_in += bytes_in;
        self.facts.bytes_out += bytes_out;
    }

    /// Its tunnel has ended.
    pub(crate) fn end_tunnel(
        &mut self,
        core: &Core,
        link: &Link,
        rng: &mut fastrand::Rng,
        end: End,
    ) {
        self.facts.end = end;
        self.facts.phase = if end == End::Done { Phase::Over } else { Phase::Data };
        self.release(rng);
        self.record(core, link);
    }

    /// Its connection is dropped in the middle: the proxy stops.
    pub(crate) fn abandon(&mut self, core: &Core, link: &Link) {
        self.cut(core, link, &mut fastrand::Rng::with_seed(0), End::Drained);
    }

    /// It ends in the middle, without a word to the client.
    pub(crate) fn cut(&mut self, core: &Core, link: &Link, rng: &mut fastrand::Rng, end: End) {
        self.facts.end = end;
        self.facts.phase = self.phase();
        if let Stage::Queued(pool, ticket) = &self.stage {
            pool.forget(ticket, rng);
        }
        self.release(rng);
        self.record(core, link);
    }

    fn release(&mut self, rng: &mut fastrand::Rng) {
        if let Some(Place { pool, server }) = self.place.take() {
            pool.release(server, rng);
        }
    }

    /// Tells everybody what became of it. Once for each request.
    pub(crate) fn record(&mut self, core: &Core, link: &Link) {
        let _section = core.profile.enter(Section::Metrics);
        self.facts.times.end_ns = now_ns();
        self.attach(link);
        let Some(live) = self.live.take() else {
            return;
        };
        let facts = &self.facts;
        let outcome = Outcome {
            client: link.peer.address,
            client_port: link.peer.port,
            listener: self.listener,
            route: facts.route,
            pool: facts.pool,
            server: facts.server,
            request: facts.asked(),
            status: facts.status,
            end: facts.end,
            phase: facts.phase,
            refusal: facts.refusal,
            times: facts.times,
            bytes_in: facts.bytes_in,
            bytes_out: facts.bytes_out,
            content_bytes_out: facts.bytes_out.saturating_sub(facts.head_bytes_out),
            retries: facts.retries,
            reused: facts.reused,
            wasted: facts.wasted,
            sticky: facts.sticky,
        };
        core.record(&live, &outcome);
    }
}
