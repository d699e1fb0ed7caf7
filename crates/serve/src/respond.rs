//! Makes responses from the bytes of requests, as long as that needs no waiting.

use std::ops::Range;

use wire::{BodyDecoder, Framing, Parsed, Refusal, RequestHead, Version, header_slots, parse_request};

use crate::body::{ChunkedBody, RemainingBody};
use crate::cache::{CachedResponse, ResponseCache};
use crate::core::{OriginCore, ScratchBuffers};
use crate::help::help_page;
use crate::log::{LoggedRequest, line_without_request};
use crate::response_spec::{Persistence, RequestProperties, ResponseSpec};
use crate::stats::add;
use crate::url_options::{TargetKind, parse_target};
use content::request::{FileRequest, RequestTime};
use content::respond::FileResponse;
use content::site::FileSite;

#[derive(Debug)]
pub(crate) enum InputResult {
    /// A response, whose head and maybe body were added to the output.
    Response {
        consumed: usize,
        /// Rest of the body, to be sent after the output.
        body: RemainingBody,
        /// True if the connection stays open.
        keep_alive: bool,
        /// Time to wait for the next request, in ns, if the target set it.
        idle_timeout_ns: Option<u64>,
    },
    /// The request is incomplete, and valid so far.
    Incomplete,
    /// The response needs waiting.
    SlowPath {
        /// Number of bytes that are already parsed.
        consumed: usize,
        exchange: Box<SlowExchange>,
    },
    /// An error response was added to the output; the connection must end.
    Rejected,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyKind {
    FromTarget,
    Help,
    Stats,
    File,
}

/// A parsed request that needs a response.
#[derive(Debug)]
pub(crate) struct SlowExchange {
    pub(crate) spec: ResponseSpec,
    pub(crate) request: RequestProperties,
    pub(crate) body_kind: BodyKind,
    pub(crate) expects_continue: bool,
    /// Rest of its body that is still to be read.
    pub(crate) body: Option<BodyDecoder>,
    pub(crate) file: Option<Box<FileResponse>>,
    pub(crate) received_ns: u64,
    pub(crate) head_bytes: usize,
    /// Request part of the access log line.
    pub(crate) logged_request: Option<LoggedRequest>,
}

/// Status in the access log of a response whose file could not be read to its end, although its head has
/// another one.
pub(crate) const FAILED_FILE_STATUS: u16 = 500;
pub(crate) const TEXT: &[u8] = b"Content-Type: text/plain; charset=utf-8\r\n";

/// Maximum size of a content from files that is sent at once: those in memory.
const FILE_BODY_BYTES_MAX: usize = 64 * 1024;
/// Maximum size of a body that is copied after its head; a larger one is sent from the block.
const COPY_BYTES_MAX: u64 = 4096;
/// Maximum size of a body that is stored completely with a cached response.
const CACHED_BODY_BYTES_MAX: u64 = 16 * 1024;
/// Maximum wire size of a chunked body that is made at once.
const CHUNKED_BYTES_MAX: u64 = 16 * 1024;

/// Parses the request at the start of `range` of the input, and responds to it if that is possible.
#[inline]
pub(crate) fn respond(
    core: &OriginCore,
    scratch: &mut ScratchBuffers,
    range: Range<usize>,
    peer: Option<&str>,
) -> InputResult {
    let input = &scratch.input[range];
    if let Some(cached) = find_cached(core, &mut scratch.cache, input) {
        count_cached(core, cached, peer);
        return copy_cached(cached, &mut scratch.out);
    }
    let mut slots = header_slots();
    match parse_request(input, &core.limits, &mut slots) {
        Ok(Parsed::Complete { head, bytes }) => {
            let request = ParsedRequest { head, head_bytes: bytes, rest: &input[bytes..], peer };
            let ScratchBuffers { out, cache, rng, .. } = scratch;
            request.respond(core, out, rng, |request, decision| {
                let cached = cache.admit(&input[..bytes])?;
                decision.store(core, request, cached);
                Some(&*cached)
            })
        }
        Ok(Parsed::Incomplete) => InputResult::Incomplete,
        Err(error) => {
            reject(core, error, peer, &mut scratch.out);
            InputResult::Rejected
        }
    }
}

/// Returns the cached response to the request at the start of `input`.
#[inline]
pub(crate) fn find_cached<'c>(
    core: &OriginCore,
    cache: &'c mut ResponseCache,
    input: &[u8],
) -> Option<&'c CachedResponse> {
    // In a drain, responses are the last of their connections, and announce it.
    if core.draining.get() { None } else { cache.find(input, &core.dates) }
}

#[inline]
pub(crate) fn count_cached(core: &OriginCore, cached: &CachedResponse, peer: Option<&str>) {
    add(&core.counters.requests, 1);
    core.counters.count_response(cached.status);
    if cached.unknown_option {
        add(&core.counters.unknown_option, 1);
    }
    if peer.is_some() {
        core.log_line(peer, &cached.log_line);
    }
}

fn copy_cached(cached: &CachedResponse, out: &mut Vec<u8>) -> InputResult {
    out.extend_from_slice(&cached.bytes);
    InputResult::Response {
        consumed: cached.request.len(),
        body: RemainingBody::pattern(cached.pattern_bytes),
        keep_alive: cached.keep_alive,
        idle_timeout_ns: cached.idle_timeout_ns,
    }
}

struct ParsedRequest<'r> {
    head: RequestHead<'r, 'r>,
    head_bytes: usize,
    /// Received bytes after the head.
    rest: &'r [u8],
    peer: Option<&'r str>,
}

/// Decision about the response to a request.
struct ResponseDecision {
    spec: ResponseSpec,
    request: RequestProperties,
    body_kind: BodyKind,
    unknown_option: bool,
    /// True if the same bytes get the same response each time.
    cacheable: bool,
    file: Option<Box<FileResponse>>,
}

impl ParsedRequest<'_> {
    /// Responds at once if possible; `insert` may put the response into the cache and return it
    /// from there.
    fn respond<'c>(
        &self,
        core: &OriginCore,
        out: &mut Vec<u8>,
        rng: &mut fastrand::Rng,
        insert: impl FnOnce(&Self, &ResponseDecision) -> Option<&'c CachedResponse>,
    ) -> InputResult {
        let decision = match &core.files {
            Some(site) => self.decide_from_files(core, site),
            None => self.decide(rng),
        };
        let has_body = !matches!(self.head.framing, Framing::None | Framing::Length(0));
        if !decision.is_immediate() || (has_body && self.head.expect_continue) {
            let body = has_body.then(|| BodyDecoder::new(self.head.framing, &core.limits));
            return self.start_slow_path(core, decision, body, self.head_bytes);
        }
        let mut consumed = self.head_bytes;
        if has_body {
            let mut body = BodyDecoder::new(self.head.framing, &core.limits);
            match body.skip(self.rest) {
                Ok(skipped) => consumed += skipped.consumed,
                Err(error) => {
                    self.count(core, &decision);
                    add(&core.counters.requests_abandoned, 1);
                    reject(core, error, self.peer, out);
                    return InputResult::Rejected;
                }
            }
            if !body.is_done() {
                return self.start_slow_path(core, decision, Some(body), consumed);
            }
        } else if decision.cacheable
            && !core.draining.get()
            && let Some(cached) = insert(self, &decision)
        {
            count_cached(core, cached, self.peer);
            return copy_cached(cached, out);
        }
        self.count(core, &decision);
        let keep_alive = decision.keeps_alive(core);
        let (_, body) = decision.write(core, keep_alive, COPY_BYTES_MAX, out);
        core.counters.count_response(decision.spec.status);
        if self.peer.is_some() {
            let mut line = Vec::new();
            let content_bytes = decision.spec.content_bytes(decision.request);
            LoggedRequest::from_head(core.plan.access_log_format, &self.head).write_line_end(
                decision.spec.status,
                content_bytes,
                &mut line,
            );
            core.log_line(self.peer, &line);
        }
        InputResult::Response { consumed, body, keep_alive, idle_timeout_ns: decision.spec.idle_timeout_ns }
    }

    fn decide(&self, rng: &mut fastrand::Rng) -> ResponseDecision {
        let head = &self.head;
        let request = RequestProperties {
            version: head.version,
            is_head: head.method == "HEAD",
            keep_alive: head.keep_alive,
        };
        let fixed_response = |spec, page| ResponseDecision {
            spec,
            request,
            body_kind: page,
            unknown_option: false,
            cacheable: true,
            file: None,
        };
        if head.method == "CONNECT" {
            // A 2xx would open a tunnel, and there is nothing at its other end.
            let spec = ResponseSpec { persistence: Persistence::Close, ..ResponseSpec::with_size(501, 0) };
            return fixed_response(spec, BodyKind::FromTarget);
        }
        match parse_target(head.target.as_bytes()) {
            TargetKind::Help => {
                fixed_response(ResponseSpec::with_size(200, help_page().len() as u64), BodyKind::Help)
            }
            TargetKind::Stats => fixed_response(ResponseSpec::with_size(200, 0), BodyKind::Stats),
            TargetKind::Response(options) => ResponseDecision {
                spec: ResponseSpec::decide(&options, head.target.as_bytes(), rng),
                request,
                body_kind: BodyKind::FromTarget,
                unknown_option: options.has_unknown,
                cacheable: options.is_fixed(),
                file: None,
            },
        }
    }

    fn decide_from_files(&self, core: &OriginCore, site: &FileSite) -> ResponseDecision {
        let head = &self.head;
        let request = RequestProperties {
            version: head.version,
            is_head: head.method == "HEAD",
            keep_alive: head.keep_alive,
        };
        let time = RequestTime { now_ns: core.now_ns.get(), unix_s: core.dates.second() };
        let file = content::respond::respond(site, &FileRequest::from_http1(head), time);
        let spec = ResponseSpec {
            // The body of a request changes nothing, so a client that asks first need not send it.
            read_max: head.expect_continue.then_some(0),
            ..ResponseSpec::for_file(file.status, file.content_length, head.version)
        };
        let cacheable = file.is_repeatable;
        let file = Some(Box::new(file));
        ResponseDecision { spec, request, body_kind: BodyKind::File, unknown_option: false, cacheable, file }
    }

    fn count(&self, core: &OriginCore, decision: &ResponseDecision) {
        let counters = &core.counters;
        if decision.body_kind == BodyKind::Stats {
            add(&counters.stats_requests, 1);
            counters.bytes_in.set(counters.bytes_in.get() - self.head_bytes as u64);
            return;
        }
        add(&counters.requests, 1);
        if decision.unknown_option {
            add(&counters.unknown_option, 1);
        }
    }

    #[cold]
    fn start_slow_path(
        &self,
        core: &OriginCore,
        decision: ResponseDecision,
        body: Option<BodyDecoder>,
        consumed: usize,
    ) -> InputResult {
        self.count(core, &decision);
        let exchange = SlowExchange {
            spec: decision.spec,
            request: decision.request,
            body_kind: decision.body_kind,
            expects_continue: body.is_some() && self.head.expect_continue,
            body,
            file: decision.file,
            received_ns: rt::clock::now_ns(),
            head_bytes: self.head_bytes,
            logged_request: self
                .peer
                .map(|_| LoggedRequest::from_head(core.plan.access_log_format, &self.head)),
        };
        InputResult::SlowPath { consumed, exchange: Box::new(exchange) }
    }
}

impl ResponseDecision {
    /// Returns whether the response only needs to be written.
    fn is_immediate(&self) -> bool {
        let spec = &self.spec;
        if let Some(file) = &self.file {
            return file.body.in_memory().is_some_and(|content| content.len() <= FILE_BODY_BYTES_MAX);
        }
        self.body_kind != BodyKind::Stats
            && spec.is_immediate()
            && (!spec.is_chunked(self.request)
                || ChunkedBody::wire_bytes(spec.size, spec.chunk_bytes, u64::MAX) <= CHUNKED_BYTES_MAX)
    }

    fn keeps_alive(&self, core: &OriginCore) -> bool {
        self.spec.keeps_alive(self.request) && !core.draining.get()
    }

    /// Writes the head and the part of the body that goes with it. Returns the position of the date
    /// in `out`, and the rest of the body.
    fn write(
        &self,
        core: &OriginCore,
        keep_alive: bool,
        copy_bytes_max: u64,
        out: &mut Vec<u8>,
    ) -> (usize, RemainingBody) {
        let spec = &self.spec;
        let extra = match (&self.file, self.body_kind) {
            (Some(file), _) => file.fields.as_slice(),
            (None, BodyKind::Help) => TEXT,
            (None, _) => b"",
        };
        let date_offset = spec.write_head(out, self.request, keep_alive, &core.dates.http(), extra);
        if let Some(file) = &self.file {
            out.extend_from_slice(file.body.in_memory().unwrap_or_default());
            return (date_offset, RemainingBody::default());
        }
        let content_bytes = spec.content_bytes(self.request);
        let mut rest = RemainingBody::pattern(content_bytes);
        if content_bytes > 0 && self.body_kind == BodyKind::Help {
            out.extend_from_slice(help_page().as_bytes());
            return (date_offset, RemainingBody::default());
        }
        if spec.is_chunked(self.request) && !self.request.is_head {
            ChunkedBody::new(rest, spec.chunk_bytes).write(&core.body_blocks, usize::MAX, out);
            return (date_offset, RemainingBody::default());
        }
        if content_bytes <= copy_bytes_max {
            rest.copy_to(&core.body_blocks, content_bytes, out);
        }
        (date_offset, rest)
    }

    fn store(&self, core: &OriginCore, request: &ParsedRequest<'_>, cached: &mut CachedResponse) {
        let keep_alive = self.keeps_alive(core);
        let (date_offset, rest) = self.write(core, keep_alive, CACHED_BODY_BYTES_MAX, &mut cached.bytes);
        cached.date_offset = date_offset;
        cached.date_second = core.dates.second();
        cached.pattern_bytes = rest.remaining;
        cached.status = self.spec.status;
        cached.keep_alive = keep_alive;
        cached.unknown_option = self.unknown_option;
        cached.is_from_file = self.file.is_some();
        cached.idle_timeout_ns = self.spec.idle_timeout_ns;
        if request.peer.is_some() {
            let content_bytes = self.spec.content_bytes(self.request);
            LoggedRequest::from_head(core.plan.access_log_format, &request.head).write_line_end(
                self.spec.status,
                content_bytes,
                &mut cached.log_line,
            );
        }
    }
}

/// Adds the response to a rejected request, and counts it.
#[cold]
pub(crate) fn reject(core: &OriginCore, error: Refusal, peer: Option<&str>, out: &mut Vec<u8>) {
    core.counters.count_rejection(error.kind());
    write_error_response(core, error.status(), &error.to_string(), peer, out);
}

/// Adds a response with a reason as its text, after which the connection ends.
pub(crate) fn write_error_response(
    core: &OriginCore,
    status: u16,
    reason: &str,
    peer: Option<&str>,
    out: &mut Vec<u8>,
) {
    let request = RequestProperties { version: Version::Http11, is_head: false, keep_alive: false };
    let text = error_text(status, reason);
    let spec = ResponseSpec::with_size(status, text.len() as u64);
    spec.write_head(out, request, false, &core.dates.http(), TEXT);
    out.extend_from_slice(text.as_bytes());
    core.counters.count_response(status);
    // There is no request to log.
    core.log_line(peer, &line_without_request(core.plan.access_log_format, status, text.len() as u64));
}

pub(crate) fn error_text(status: u16, reason: &str) -> String {
    format!("{status} {}: {reason}\n", wire::encode::reason(status))
}
