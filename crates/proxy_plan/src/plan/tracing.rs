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
    pub sample: TraceSample,
    /// Time in nanoseconds from which a request is recorded, whatever the fraction; `None`: no such time.
    pub slow_ns: Option<u64>,
    /// True if requests that failed are recorded, whatever the fraction.
    pub records_failed: bool,
    /// Maximum number of requests that are recorded in a second, on all threads.
    pub requests_per_second_max: f64,
}

/// Fraction of the traces that is recorded. It decides by the random part of the id, as the OpenTelemetry sampler of
/// ratios does, so that all proxies of a trace decide alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceSample {
    /// Random parts below it are chosen.
    random_end: u64,
}

impl TraceSample {
    const RANDOM_BITS: u32 = 56;

    /// Returns the sample of a fraction from 0 to 1.
    pub fn new(fraction: f64) -> Self {
        Self { random_end: (fraction * (1u64 << Self::RANDOM_BITS) as f64) as u64 }
    }

    /// Returns whether a trace is chosen, by the lower half of its id.
    #[inline]
    pub fn contains(self, id_low: u64) -> bool {
        id_low & ((1 << Self::RANDOM_BITS) - 1) < self.random_end
    }
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
    pub fn continues_trace(&self, is_peer_trusted: bool) -> bool {
        match self.trust {
            TraceTrust::All => true,
            TraceTrust::Trusted => is_peer_trusted,
            TraceTrust::New => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TraceSample;

    #[test]
    fn a_fraction_of_the_traces_is_chosen() {
        let mut rng = fastrand::Rng::with_seed(7);
        for fraction in [0.0, 0.01, 0.5, 1.0] {
            let sample = TraceSample::new(fraction);
            let share = (0..100_000).filter(|_| sample.contains(rng.u64(..))).count() as f64 / 100_000.0;
            assert!((share - fraction).abs() < 0.01, "{share} of {fraction}");
        }
        assert!(TraceSample::new(1.0).contains(u64::MAX));
    }
}
