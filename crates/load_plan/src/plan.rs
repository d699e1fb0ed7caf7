//! Plan of a load: from the text of the flags to an immutable plan, with every problem reported at
//! once. Nothing is opened, resolved or started here.

mod addresses;
pub mod describe;
mod expect;
mod file;
mod grpc;
mod http;
mod live;
mod network;
mod objective;
mod parse;
mod pattern;
mod replay;
mod request;
mod requests;
mod session;
mod slice;
mod stages;
mod status;
mod targets;
mod template;
mod tls;
mod url;
mod user_tcp;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use record::units::SECOND_NS;
use serde::Serialize;
use serde::ser::SerializeSeq;

pub use addresses::{AddressError, NameAddresses};
pub use expect::{CHECK_NAMES, CheckKind, Expect, ExpectFlags, ExpectedHash, ExpectedHeader, ExpectedValue};

pub use file::{FileSetting, ScenarioFile, URLS_KEY, flag_form};
pub use grpc::GrpcMessages;
pub use http::is_in_fraction;
pub use http::{
    CONNECTION_WINDOW_BYTES_MIN, GrpcStatus, Http2Plan, HttpFlags, HttpVersion, STREAMS_MAX,
    WINDOW_BYTES_DEFAULT, WINDOW_BYTES_MAX,
};
pub use live::NUMBER_BYTES;
pub use live::{MESSAGE_BYTES_MAX, WebSocketMode, WebSocketPlan};
pub use network::{ConnectTo, ProxyHeaderPlan, ProxyVersion};
pub use objective::{Objective, ObjectiveFigures, ObjectiveMetric, ObjectiveOperator};
pub use parse::LoadFlags;
pub use pattern::SearchState;
pub use pattern::StreamPattern;
pub use replay::HarHosts;
pub use replay::{ReplayInput, ReplayLog, ReplaySchedule};
pub use request::RenderedRequest;
pub use request::RequestTemplate;
pub use requests::{RequestText, parse_weight, weighted_order};
pub use session::{Capture, CaptureSource, SessionPlan};
pub use slice::LoadSlice;
pub use stages::{StageQuantity, Stages, ThinkDistribution};
pub use status::StatusSet;
pub use targets::parse_targets;
pub use template::{CsvTable, Template, TemplateNames};
pub use template::{TemplatePosition, TemplateRequest, TemplateValues};
pub use tls::version_name;
pub use tls::{TlsFlags, TlsPlan};
pub use url::{Authority, Scheme, Url};
pub use user_tcp::{XdpFlags, XdpPlan, tcp_targets};

use crate::pace::{Pace, RateProfile};

/// Start of a request's timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeoutFrom {
    /// At the due time, as a user perceives it. If a request waits for a connection until less time
    /// is left than a response usually takes, it is not sent and counts as `too_late`.
    #[default]
    Due,
    /// At the send: every request that waited for a connection is sent, and then has its full
    /// timeout.
    Send,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LoadEnd {
    pub duration_ns: u64,
    /// Maximum number of requests, if that comes first.
    pub requests: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunPlan {
    /// Requests; a connection belongs to one authority and requests its URLs in turn.
    #[serde(serialize_with = "serialize_first_requests")]
    pub requests: Vec<RenderedRequest>,
    /// Unix socket to connect to instead of the URL's host and port.
    pub unix: Option<PathBuf>,
    /// TCP in user space; `None`: that of the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xdp: Option<XdpPlan>,
    /// Some connections ask the kernel when it received their responses, to know the generator's own part of latencies.
    #[serde(skip)]
    pub receive_timestamps: bool,
    /// Settings of TLS; `None` if no URL is https.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsPlan>,
    /// Settings of the connections with HTTP/2; `None` if all have HTTP/1.1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http2: Option<Http2Plan>,
    /// Settings of WebSocket; `None` for a load over HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub websocket: Option<WebSocketPlan>,
    /// True if responses are event streams.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sse: bool,
    pub connections: u64,
    pub threads: usize,
    /// CPUs to pin threads to; empty: not pinned.
    pub pin: Vec<usize>,
    /// True if idle threads spin instead of sleeping.
    pub spin: bool,
    /// Open or closed loop.
    pub pace: Pace,
    /// Time in which connections and rate rise from zero, in ns.
    pub ramp_ns: u64,
    pub end: LoadEnd,
    /// Requests on a connection before it is closed; `None`: as many as the server allows.
    pub requests_per_connection: Option<u64>,
    /// Age at which a request is an error, in ns.
    pub timeout_ns: u64,
    pub timeout_from: TimeoutFrom,
    /// Maximum time after the end for requests in flight to finish, in ns.
    pub drain_ns: u64,
    /// Maximum number of requests that wait for a free connection; more are dropped and counted.
    /// Open loop only.
    pub max_pending: u64,
    /// Source addresses, used in turn; empty: the kernel's choice.
    pub sources: Vec<IpAddr>,
    pub expect: Expect,
    /// State of each connection.
    #[serde(skip_serializing_if = "is_default")]
    pub session: SessionPlan,
    /// Rows for templates.
    #[serde(skip)]
    pub values: Option<Arc<CsvTable>>,
    /// Replaced destinations.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub connect_to: Vec<ConnectTo>,
    /// True if the target is an origin that weir starts for this run, and ends with it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub has_embedded_origin: bool,
    /// True if the connections are spread over all addresses of a name.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub spreads_addresses: bool,
    /// Chosen addresses of the names that have several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<NameAddresses>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_header: Option<ProxyHeaderPlan>,
    /// Due times of a replay; `None`: those of the rate.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "serialize_replay")]
    pub replay: Option<Arc<ReplaySchedule>>,
    /// Stages; `None`: constant rate and connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stages: Option<Stages>,
    #[serde(skip_serializing_if = "is_default")]
    pub think: ThinkDistribution,
    /// Maximum requests in flight on a connection of HTTP/1.1, or messages on one of WebSocket.
    #[serde(skip_serializing_if = "is_one")]
    pub pipeline: u64,
    pub objectives: Vec<Objective>,
    /// Maximum fraction of requests without a good response in a valid result: the given value, or
    /// the limit of an objective of errors, or `MAX_ERROR_RATE_DEFAULT`.
    pub max_error_rate: f64,
    pub seed: u64,
    /// Slice of the load that this plan is; `None`: all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slice: Option<LoadSlice>,
}

fn serialize_replay<S: serde::Serializer>(
    replay: &Option<Arc<ReplaySchedule>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    replay.as_deref().serialize(serializer)
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn is_one(value: &u64) -> bool {
    *value == 1
}

/// Maximum number of requests in a record: a replay may have millions.
const RECORDED_REQUESTS_MAX: usize = 100;

fn serialize_first_requests<S: serde::Serializer>(
    requests: &[RenderedRequest],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let shown = &requests[..requests.len().min(RECORDED_REQUESTS_MAX)];
    let mut list = serializer.serialize_seq(Some(shown.len()))?;
    shown.iter().try_for_each(|request| list.serialize_element(request))?;
    list.end()
}

pub const CONNECTIONS_DEFAULT: u64 = 64;
/// Default of `-d` without `-n`, in seconds.
pub const DURATION_S_DEFAULT: u64 = 10;
/// End of a run that only has `-n`, in seconds: everything has a limit.
pub const DURATION_S_MAX: u64 = 3600;
pub const TIMEOUT_S_DEFAULT: u64 = 5;
/// Default of the maximum fraction of failed requests in a valid result.
pub const MAX_ERROR_RATE_DEFAULT: f64 = 0.001;
/// Maximum length of the queue of waiting requests.
pub const PENDING_MAX: u64 = 10_000_000;
pub const CONNECTIONS_MAX: u64 = 4_000_000;
pub const PIPELINE_MAX: u64 = 1024;
/// Maximum size of a request body, in bytes.
pub const BODY_BYTES_MAX: u64 = 64 * 1024 * 1024;

impl RunPlan {
    /// Returns the authorities of the connections, each once, in the order of the URLs.
    pub fn authorities(&self) -> Vec<&Authority> {
        let mut all: Vec<&Authority> = Vec::new();
        for request in &self.requests {
            if !all.contains(&&request.url.authority) {
                all.push(&request.url.authority);
            }
        }
        all
    }

    /// Returns the rate over time of an open loop.
    pub fn rate_profile(&self) -> Option<RateProfile> {
        let Pace::Open { rate_per_s, .. } = self.pace else { return None };
        Some(match &self.stages {
            Some(stages) => stages.profile().clone(),
            None => RateProfile::constant(rate_per_s, self.ramp_ns),
        })
    }

    /// Returns the time from the start to the window, which begins with the first complete second after
    /// the ramp.
    #[inline]
    pub fn window_offset_ns(&self) -> u64 {
        self.ramp_ns.div_ceil(SECOND_NS) * SECOND_NS
    }

    #[inline]
    pub fn connection_stages(&self) -> Option<&Stages> {
        self.stages.as_ref().filter(|stages| stages.quantity == StageQuantity::Connections)
    }

    /// Returns whether anything of the responses but their status and length has to be inspected.
    #[inline]
    pub fn needs_inspection(&self) -> bool {
        self.expect.needs_inspection() || self.session.needs_inspection()
    }

    /// Returns the time at which a request with these due and send times has timed out.
    #[inline]
    pub fn deadline_ns(&self, due_ns: u64, sent_ns: u64) -> u64 {
        let from_ns = match self.timeout_from {
            TimeoutFrom::Due => due_ns,
            TimeoutFrom::Send => sent_ns,
        };
        from_ns.saturating_add(self.timeout_ns)
    }

    #[inline]
    pub fn http_version(&self, number: u64) -> HttpVersion {
        match &self.http2 {
            Some(http2) if is_in_fraction(number, http2.fraction) => HttpVersion::Http2,
            _ => HttpVersion::Http1,
        }
    }

    /// Returns the maximum number of concurrent requests: one for each connection, or for each of
    /// its streams.
    pub fn concurrency(&self) -> u64 {
        let Some(http2) = self.http2.as_ref().filter(|_| self.websocket.is_none()) else {
            return self.connections * self.pipeline;
        };
        let with_http2 = (self.connections as f64 * http2.fraction + 1e-6) as u64;
        self.connections - with_http2 + with_http2 * http2.streams
    }

    /// Returns whether the server sends by itself: events, or messages in the mode `push`.
    #[inline]
    pub fn is_push(&self) -> bool {
        self.sse || self.websocket.as_ref().is_some_and(|plan| plan.mode == WebSocketMode::Push)
    }

    /// Returns whether due times come from the clock.
    #[inline]
    pub fn is_open_loop(&self) -> bool {
        matches!(self.pace, Pace::Open { .. })
    }
}

#[cfg(test)]
mod tests;
