//! Samples of a pool's gauges, from the metrics of weir, the socket of HAProxy, or the counters of the servers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rt::clock::now_ns;

/// Time between two samples.
const INTERVAL: Duration = Duration::from_millis(20);
const TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of samples: an hour.
const SAMPLES_MAX: usize = 180_000;

/// Gauges at one time after the start of the load.
#[derive(Clone, Copy, Debug)]
pub(super) struct GaugeSample {
    pub(super) time_s: f64,
    pub(super) queued: f64,
    pub(super) in_flight: f64,
}

#[derive(Clone, Debug)]
pub(super) enum GaugeSource {
    Metrics(SocketAddr),
    Haproxy(PathBuf),
    /// Address of `weir serve`, which knows the requests at the servers only.
    Origin(SocketAddr),
}

impl GaugeSource {
    /// Returns the queued requests of a pool, and those at its servers.
    fn read(&self, pool: &str) -> std::io::Result<(f64, f64)> {
        match self {
            Self::Metrics(admin) => {
                let text = fetch(*admin, "/metrics")?;
                let queued = sum(&text, "weir_pool_queued_requests{", pool);
                Ok((queued, sum(&text, "weir_server_requests_in_flight{", pool)))
            }
            Self::Haproxy(socket) => super::haproxy::gauges(socket, pool),
            Self::Origin(address) => Ok((0.0, in_flight(&fetch(*address, "/stats")?))),
        }
    }
}

/// Samples: time by the clock, queued requests, requests in flight.
type RawSamples = Vec<(u64, f64, f64)>;

/// Thread that samples until it is finished.
pub(super) struct Sampler {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<RawSamples>,
}

impl Sampler {
    pub(super) fn start(source: GaugeSource, pool: &'static str) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let is_ended = Arc::clone(&ended);
        let thread = std::thread::spawn(move || {
            let mut samples = Vec::new();
            while !is_ended.load(Ordering::Relaxed) && samples.len() < SAMPLES_MAX {
                if let Ok((queued, in_flight)) = source.read(pool) {
                    samples.push((now_ns(), queued, in_flight));
                }
                std::thread::sleep(INTERVAL);
            }
            samples
        });
        Self { ended, thread }
    }

    pub(super) fn finish(self) -> RawSamples {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

fn fetch(admin: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&admin, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.take(16 << 20).read_to_string(&mut text)?;
    Ok(text)
}

/// Returns the requests in flight of a response to `/stats`; 0 if it has none.
fn in_flight(response: &str) -> f64 {
    let body = response.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let stats: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    stats["in_flight"].as_f64().unwrap_or(0.0)
}

/// Returns the sum of a gauge over all rows of a pool.
fn sum(text: &str, metric: &str, pool: &str) -> f64 {
    let label = format!("pool=\"{pool}\"");
    let rows = text.lines().filter(|line| line.starts_with(metric) && line.contains(&label));
    rows.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_in_flight_are_those_of_all_cores() {
        let text = "HTTP/1.1 200 OK\r\nA: b\r\n\r\n{\"in_flight\": 7, \"cores\": [{\"in_flight\": 3}]}";
        assert_eq!((in_flight(text), in_flight("HTTP/1.1 200 OK\r\n\r\n")), (7.0, 0.0));
    }

    #[test]
    fn gauges_of_a_pool_are_added() {
        let text = "# HELP x\nx{pool=\"a\",server=\"1\"} 3\nx{pool=\"a\",server=\"2\"} 4\nx{pool=\"b\"} 9\n";
        assert_eq!((sum(text, "x{", "a"), sum(text, "x{", "b"), sum(text, "y{", "a")), (7.0, 9.0, 0.0));
    }
}
