//! Traces of requests, for a collector of OpenTelemetry.

use rt::tls::ClientTls;

/// Callers whose trace is continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceTrust {
    /// The trusted peers of a listener.
    Trusted,
    All,
    /// Nobody: each request begins a trace.
    New,
}

/// Traces to record, and the collector that gets them.
#[derive(Clone, Debug)]
pub struct TracingPlan {
    pub collector: Collector,
    pub service_name: Box<str>,
    /// Further attributes of this process (`service.namespace`, `deployment.environment.name`).
    pub attributes: Vec<(Box<str>, Box<str>)>,
    pub trust: TraceTrust,
    /// Fraction of the traces that begin here and are recorded.
    pub sample: f64,
    /// Time in nanoseconds from which a request is recorded, whatever the fraction; `None`: no such time.
    pub slow_ns: Option<u64>,
    /// True if requests that failed are recorded, whatever the fraction.
    pub records_failed: bool,
    /// Maximum number of requests that are recorded in a second, on all threads.
    pub requests_per_second_max: f64,
}

/// Address of an OTLP/HTTP receiver.
#[derive(Clone, Debug)]
pub struct Collector {
    /// The URL as in the config.
    pub url: Box<str>,
    /// `None`: a plain connection.
    pub tls: Option<ClientTls>,
    pub host: Box<str>,
    pub port: u16,
    pub path: Box<str>,
    /// Fields of each request, such as a key.
    pub fields: Vec<(Box<str>, Box<str>)>,
    /// Maximum time of a request in nanoseconds.
    pub timeout_ns: u64,
}

impl TracingPlan {
    pub(crate) fn continues_trace(&self, is_peer_trusted: bool) -> bool {
        match self.trust {
            TraceTrust::All => true,
            TraceTrust::Trusted => is_peer_trusted,
            TraceTrust::New => false,
        }
    }
}
