//! Decision about a request: its response, from the head of the request.

use wire::Version;
use wire::h2::RequestHead;

use crate::core::OriginCore;
use crate::help::help_page;
use crate::log::LoggedRequest;
use crate::respond::BodyKind;
use crate::response_spec::{RequestProperties, ResponseSpec};
use crate::stats::add;
use crate::target_cache::{CachedTarget, TargetCache};
use crate::url_options::{TargetKind, parse_target};
use content::request::{FileRequest, RequestTime};
use content::respond::FileResponse;
use content::site::FileSite;

/// A request, as far as its response depends on it.
#[derive(Debug)]
pub(super) struct Http2Request {
    pub(super) spec: ResponseSpec,
    pub(super) properties: RequestProperties,
    pub(super) body_kind: BodyKind,
    /// Status of an interim response before the response.
    pub(super) interim_status: Option<u16>,
    /// True if every request with this target gets the same response.
    pub(super) is_fixed: bool,
    pub(super) expects_continue: bool,
    /// Time of the head; only set if the response reports it.
    pub(super) received_ns: u64,
    /// Number of bytes of the head's frames.
    pub(super) head_bytes: usize,
    /// Request part of the line in the access log.
    pub(super) logged_request: Option<LoggedRequest>,
    pub(super) file: Option<Box<FileResponse>>,
}

impl Http2Request {
    /// Decides the response to a request whose head has `head_bytes`, and counts it. `cached` is the
    /// index of its target in the cache.
    pub(super) fn decide(
        core: &OriginCore,
        rng: &mut fastrand::Rng,
        targets: &mut TargetCache,
        cached: Option<usize>,
        head: &RequestHead<'_>,
        head_bytes: usize,
        is_logged: bool,
    ) -> Self {
        let counters = &core.counters;
        let (mut request, has_unknown) = match (cached.and_then(|index| targets.get(index)), &core.files) {
            (Some(cached), _) => {
                (Self::from_cache(cached, head.method == "HEAD", head_bytes), cached.has_unknown)
            }
            (None, Some(site)) => (Self::from_files(core, site, head), false),
            (None, None) => Self::from_target(head, rng, targets),
        };
        add(&counters.unknown_option, u64::from(has_unknown));
        request.expects_continue = head.fields.get("expect").is_some();
        request.head_bytes = head_bytes;
        if request.body_kind == BodyKind::Stats {
            add(&counters.stats_requests, 1);
            counters.bytes_in.set(counters.bytes_in.get().saturating_sub(head_bytes as u64));
        } else {
            add(&counters.requests, 1);
        }
        if request.spec.timing_fields {
            request.received_ns = rt::clock::now_ns();
        }
        if is_logged {
            request.logged_request = Some(LoggedRequest::from_http2(core.plan.access_log_format, head));
        }
        request
    }

    /// Creates the request for a target, which enters the cache if its response is always the same.
    /// Returns also whether the target has an unknown option.
    fn from_target(
        head: &RequestHead<'_>,
        rng: &mut fastrand::Rng,
        targets: &mut TargetCache,
    ) -> (Self, bool) {
        let mut request = Self::new(ResponseSpec::with_size(200, 0), head.method == "HEAD");
        let Some(path) = head.path.filter(|_| head.method != "CONNECT") else {
            // A 2xx would open a tunnel, and there is nothing at its other end.
            (request.spec.status, request.spec.read_max) = (501, Some(0));
            return (request, false);
        };
        let options = match parse_target(path.as_bytes()) {
            TargetKind::Help => {
                request.spec.size = help_page().len() as u64;
                request.body_kind = BodyKind::Help;
                return (request, false);
            }
            TargetKind::Stats => {
                request.body_kind = BodyKind::Stats;
                return (request, false);
            }
            TargetKind::Response(options) => options,
        };
        request.spec = ResponseSpec::decide(&options, path.as_bytes(), rng);
        request.is_fixed = options.is_fixed();
        if request.spec.status < 200 {
            // A 1xx is never the last response, and HTTP/2 has no 101 (RFC 9113 §8.1, §8.6).
            request.interim_status = Some(request.spec.status).filter(|status| *status != 101);
            request.spec.status = 200;
        } else if request.is_fixed {
            targets.admit(path.as_bytes(), request.spec, options.has_unknown);
        }
        (request, options.has_unknown)
    }

    fn from_files(core: &OriginCore, site: &FileSite, head: &RequestHead<'_>) -> Self {
        let time = RequestTime { now_ns: core.now_ns.get(), unix_s: core.dates.second() };
        let file = content::respond::respond(site, &FileRequest::from_http2(head), time);
        let spec = ResponseSpec {
            // The body of a request changes nothing: it is discarded after the response.
            read_max: Some(0),
            ..ResponseSpec::for_file(file.status, file.content_length, Version::Http11)
        };
        Self {
            is_fixed: false,
            body_kind: BodyKind::File,
            file: Some(Box::new(file)),
            ..Self::new(spec, head.method == "HEAD")
        }
    }

    pub(super) fn from_cache(cached: &CachedTarget, is_head: bool, head_bytes: usize) -> Self {
        Self { head_bytes, ..Self::new(cached.spec, is_head) }
    }

    fn new(spec: ResponseSpec, is_head: bool) -> Self {
        Self {
            spec,
            properties: RequestProperties { version: Version::Http11, is_head, keep_alive: true },
            body_kind: BodyKind::FromTarget,
            interim_status: None,
            is_fixed: true,
            expects_continue: false,
            received_ns: 0,
            head_bytes: 0,
            logged_request: None,
            file: None,
        }
    }

    /// Returns whether the response needs no wait once the request is complete.
    pub(super) fn is_immediate(&self) -> bool {
        self.spec.delay_ns == 0 && self.body_kind != BodyKind::Stats
    }

    pub(super) fn frame_bytes_max(&self) -> u64 {
        let unlimited = |bytes: u64| if bytes == 0 { u64::MAX } else { bytes };
        if self.body_kind == BodyKind::File {
            return u64::MAX;
        }
        unlimited(self.spec.chunk_bytes).min(unlimited(self.spec.write_bytes_max))
    }
}
