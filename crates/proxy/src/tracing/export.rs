//! The export thread: it takes the batches of all cores and sends them to the collector (OTLP/HTTP). A collector that
//! is slow, or gone, costs spans, and nothing else.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use record::units::format_plural;
use rt::clock::{MILLISECOND_NS, MonotonicTime, SECOND_NS};
use rt::timers::Timers;
use rt::tokio::runtime::{Builder, LocalOptions, LocalRuntime};

use super::TraceCounts;
use super::otlp::export_request;
use crate::http_client::{self, HttpRequest};
use crate::plan::{Collector, TracingPlan};

/// Maximum number of batches that wait for the thread; with those of its next request, about 2 MiB.
const BATCHES_MAX: usize = 64;
/// Size of a request from which it is sent at once.
const REQUEST_BYTES: usize = 512 * 1024;
/// Time that the thread waits for more spans of a request.
const GATHER_NS: u64 = SECOND_NS;
/// Number of attempts to send a request, if the collector asks for later ones (OTLP, "Failures").
const ATTEMPTS_MAX: u32 = 4;
/// Wait before the second attempt; it doubles.
const RETRY_WAIT_NS: u64 = 250 * MILLISECOND_NS;
/// Time between two messages about failures.
const REPORT_INTERVAL_NS: u64 = 10 * SECOND_NS;

/// Encoded spans.
#[derive(Debug, Default)]
pub(super) struct SpanBatch {
    pub(super) bytes: Vec<u8>,
    pub(super) spans: u64,
}

/// The way of spans to the export thread, for all cores. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TraceSender {
    plan: Option<Arc<TracingPlan>>,
    batches: mpsc::SyncSender<SpanBatch>,
    counts: Arc<TraceCounts>,
}

/// The export thread.
#[derive(Debug)]
pub struct TraceExporter {
    ended: Option<mpsc::Receiver<()>>,
}

/// Starts the thread, if there is a plan. `counts` are those of the plans before.
///
/// # Errors
/// The thread cannot be started.
pub fn start(
    plan: Option<&Arc<TracingPlan>>,
    counts: Arc<TraceCounts>,
) -> io::Result<(TraceSender, TraceExporter)> {
    let (batches, receiver) = mpsc::sync_channel(BATCHES_MAX);
    let sender = TraceSender { plan: plan.cloned(), batches, counts: Arc::clone(&counts) };
    let Some(plan) = plan.cloned() else { return Ok((sender, TraceExporter { ended: None })) };
    let (end_sender, ended) = mpsc::channel();
    std::thread::Builder::new().name("traces".to_owned()).spawn(move || {
        if let Err(error) = run(&plan, receiver, &counts) {
            eprintln!("weir: traces: {error}");
        }
        // The receiver may be gone.
        let _ = end_sender.send(());
    })?;
    Ok((sender, TraceExporter { ended: Some(ended) }))
}

impl TraceSender {
    pub fn plan(&self) -> Option<&TracingPlan> {
        self.plan.as_deref()
    }

    pub fn counts(&self) -> &Arc<TraceCounts> {
        &self.counts
    }

    /// Hands a batch over, or drops and counts it.
    pub(super) fn send(&self, batch: SpanBatch) {
        let spans = batch.spans;
        if self.batches.try_send(batch).is_err() {
            self.counts.overflowed.fetch_add(spans, Ordering::Relaxed);
        }
    }
}

impl TraceExporter {
    /// Waits until everything that was handed over is sent, but not for longer than `timeout`. All senders must have
    /// been dropped.
    pub fn finish(self, timeout: Duration) {
        if let Some(ended) = self.ended {
            // What is not sent then is lost with the process.
            let _ = ended.recv_timeout(timeout);
        }
    }
}

fn run(plan: &TracingPlan, receiver: mpsc::Receiver<SpanBatch>, counts: &TraceCounts) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build_local(LocalOptions::default())?;
    Exporter { plan, receiver, counts, runtime, reported: None, suppressed: 0 }.run();
    Ok(())
}

/// State of the thread. It waits for batches without its runtime: the cores, whose tables of descriptors are their own,
/// could not wake that.
struct Exporter<'a> {
    plan: &'a TracingPlan,
    receiver: mpsc::Receiver<SpanBatch>,
    counts: &'a TraceCounts,
    runtime: LocalRuntime,
    /// Time of the last message about a failure.
    reported: Option<MonotonicTime>,
    suppressed: u64,
}

impl Exporter<'_> {
    fn run(&mut self) {
        let mut is_open = true;
        while is_open && let Ok(first) = self.receiver.recv() {
            let batches;
            (batches, is_open) = self.gather(first);
            let spans = batches.iter().map(|batch| batch.spans).sum();
            // The end of the process does not wait for further attempts.
            let attempts_max = if is_open { ATTEMPTS_MAX } else { 1 };
            let counter = match self.runtime.block_on(self.send(&batches, attempts_max)) {
                Ok(()) => &self.counts.exported,
                Err(error) => {
                    self.report(&error);
                    &self.counts.failed
                }
            };
            counter.fetch_add(spans, Ordering::Relaxed);
        }
    }

    /// Receives the batches of one request. Returns also whether more may follow.
    fn gather(&self, first: SpanBatch) -> (Vec<SpanBatch>, bool) {
        let deadline = MonotonicTime::now() + GATHER_NS;
        let mut bytes = first.bytes.len();
        let mut batches = vec![first];
        while bytes < REQUEST_BYTES {
            let wait_ns = deadline.as_ns().saturating_sub(MonotonicTime::now().as_ns());
            match self.receiver.recv_timeout(Duration::from_nanos(wait_ns)) {
                Ok(batch) => {
                    bytes += batch.bytes.len();
                    batches.push(batch);
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return (batches, false),
            }
        }
        (batches, true)
    }

    async fn send(&self, batches: &[SpanBatch], attempts_max: u32) -> io::Result<()> {
        let (plan, timers) = (self.plan, Timers::start()?);
        let service = [("service.name".into(), plan.service_name.clone())];
        let resource = [&service, &plan.attributes[..]].concat();
        let content = export_request(&resource, batches.iter().map(|batch| &*batch.bytes));
        let mut wait_ns = RETRY_WAIT_NS;
        for number in 1.. {
            let failure = match attempt(&plan.collector, &content, &timers).await {
                Ok(200..=299) => return Ok(()),
                Ok(status @ (429 | 502 | 503 | 504)) => io::Error::other(format!("status {status}")),
                Ok(status) => return Err(io::Error::other(format!("status {status}"))),
                Err(error) => error,
            };
            if number == attempts_max {
                return Err(failure);
            }
            timers.sleep_until((MonotonicTime::now() + wait_ns).as_ns()).await;
            wait_ns *= 2;
        }
        Ok(())
    }

    /// Prints a failure, rarely.
    fn report(&mut self, error: &io::Error) {
        let now = MonotonicTime::now();
        if self.reported.is_some_and(|last| now.as_ns() < last.as_ns() + REPORT_INTERVAL_NS) {
            self.suppressed += 1;
            return;
        }
        self.reported = Some(now);
        let url = &self.plan.collector.url;
        match std::mem::take(&mut self.suppressed) {
            0 => eprintln!("weir: traces: {url}: {error}; spans are lost"),
            count => {
                let repeated = format_plural(count, "more time");
                eprintln!("weir: traces: {url}: {error}; spans are lost (repeated {repeated})");
            }
        }
    }
}

/// Sends a request once, and returns the status of its response.
async fn attempt(collector: &Collector, content: &[u8], timers: &Timers) -> io::Result<u16> {
    let own = [("Content-Type", b"application/x-protobuf".as_slice())];
    let configured = collector.fields.iter().map(|(name, value)| (&**name, value.as_bytes()));
    let fields: Vec<(&str, &[u8])> = own.into_iter().chain(configured).collect();
    let request = HttpRequest {
        method: "POST",
        host: &collector.host,
        port: collector.port,
        target: &collector.path,
        fields: &fields,
        content,
    };
    let deadline = MonotonicTime::now() + collector.timeout_ns;
    rt::tokio::select! {
        response = http_client::exchange(collector.tls.as_ref(), request) => {
            response.map(|response| response.parts.status.as_u16())
        }
        () = timers.sleep_until(deadline.as_ns()) => Err(io::ErrorKind::TimedOut.into()),
    }
}
