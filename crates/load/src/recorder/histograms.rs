//! Latency histograms of one second of a core.

use record::histogram::LatencyHistogram;

/// Service and response latency of one phase.
#[derive(Clone, Debug, Default)]
pub struct HistogramPair {
    pub service: LatencyHistogram,
    /// Latency from the due time.
    pub response: LatencyHistogram,
}

/// All latencies of one class of requests: of good responses, except for `bad`.
#[derive(Clone, Debug, Default)]
pub struct PhaseHistograms {
    /// Until the connection was established.
    pub connect: HistogramPair,
    /// From then until the end of the TLS handshake.
    pub tls_handshake: HistogramPair,
    /// Latency of full handshakes, without the connect.
    pub tls_full: LatencyHistogram,
    /// Latency of handshakes that resumed a session, without the connect.
    pub tls_resumed: LatencyHistogram,
    /// Until the first byte of the response.
    pub first_byte: HistogramPair,
    /// Until the last byte.
    pub last_byte: HistogramPair,
    /// Until the last byte of bad responses.
    pub bad: HistogramPair,
    /// Requests without a good response: bad responses, failures and dropped requests.
    pub not_good: u64,
}

impl HistogramPair {
    pub(super) fn add(&mut self, other: &Self) {
        self.service.add(&other.service);
        self.response.add(&other.response);
    }

    fn clear(&mut self) {
        self.service.clear();
        self.response.clear();
    }
}

impl PhaseHistograms {
    /// Adds the latencies of `other`, count by count.
    pub fn add(&mut self, other: &Self) {
        self.connect.add(&other.connect);
        self.tls_handshake.add(&other.tls_handshake);
        self.tls_full.add(&other.tls_full);
        self.tls_resumed.add(&other.tls_resumed);
        self.first_byte.add(&other.first_byte);
        self.last_byte.add(&other.last_byte);
        self.bad.add(&other.bad);
        self.not_good += other.not_good;
    }

    fn clear(&mut self) {
        self.connect.clear();
        self.tls_handshake.clear();
        self.tls_full.clear();
        self.tls_resumed.clear();
        self.first_byte.clear();
        self.last_byte.clear();
        self.bad.clear();
        self.not_good = 0;
    }
}

/// The latencies of one second.
#[derive(Clone, Debug, Default)]
pub struct HistogramSet {
    /// Latencies of requests due in this second.
    pub current: PhaseHistograms,
    /// Latencies of requests due in an earlier second, within the window.
    pub late: PhaseHistograms,
    /// Response latency of requests due before the window; shown live, but in no percentile.
    pub ramp_latency: LatencyHistogram,
    /// Lag of the generator itself.
    pub lag: LatencyHistogram,
    /// Response latency of good responses without the generator's own part: from the time when it could have sent the
    /// request, to the arrival of the response in the kernel. Only of connections with receive timestamps.
    pub undelayed: LatencyHistogram,
    /// Number of requests of an open loop that were due in this second.
    pub due: u64,
    /// Number of requests of an open loop that were due in an earlier second, within the window.
    pub due_late: u64,
}

impl HistogramSet {
    /// Clears all latencies and keeps the memory.
    pub fn clear(&mut self) {
        self.current.clear();
        self.late.clear();
        self.ramp_latency.clear();
        self.lag.clear();
        self.undelayed.clear();
        (self.due, self.due_late) = (0, 0);
    }
}
