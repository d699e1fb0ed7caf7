//! Export of the live figures of a load: a file that is replaced each second, and an address for scrapes, which waits
//! for a scrape of the final figures. [`report::text::openmetrics`] has the text.

#![expect(clippy::disallowed_types, reason = "the collector and the scraper share a text; no core does")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use load::observer::{RunObserver, SecondLatencies};
use record::histogram::LatencyHistogram;
use record::run::Interval;
use report::text::openmetrics::{LiveTotals, MEDIA_TYPE};
use rt::drain::{Drain, DrainStage, DrainWatch};
use server_shell::web_ui::{self, WebPage, WebRequest, WebRoute};

use crate::exit::Failure;

/// Maximum wait for a scrape of the final figures.
const FINAL_SCRAPE_TIMEOUT: Duration = Duration::from_secs(15);

/// Text for scrapes, and the number of scrapes of the final one.
#[derive(Debug, Default)]
struct ScrapedText {
    text: String,
    is_final: bool,
    final_scrapes: u64,
}

/// Server of the scrapes.
#[derive(Debug)]
struct Listener {
    drain: Drain,
    thread: JoinHandle<()>,
}

/// Export of the live figures.
#[derive(Debug)]
pub(crate) struct MetricsExport {
    totals: LiveTotals,
    file: Option<PathBuf>,
    shared: Arc<(Mutex<ScrapedText>, Condvar)>,
    listener: Option<Listener>,
    file_error: Option<std::io::Error>,
}

impl MetricsExport {
    /// Starts the export to a file, an address, or both.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub(crate) fn start(file: Option<PathBuf>, address: Option<SocketAddr>) -> Result<Self, Failure> {
        let shared: Arc<(Mutex<ScrapedText>, Condvar)> = Arc::default();
        let listener = address.map(|address| listen(address, Arc::clone(&shared))).transpose()?;
        let mut export = Self { totals: LiveTotals::default(), file, shared, listener, file_error: None };
        export.publish();
        Ok(export)
    }

    /// Adds a second of an agent. It is published with the next second of all agents, so that the work does not
    /// grow with the square of their number.
    pub(crate) fn add_agent(
        &mut self,
        agent: &str,
        interval: &Interval,
        latencies: Option<&LatencyHistogram>,
    ) {
        self.totals.add_agent(agent, interval, latencies);
    }

    /// Publishes the figures of all agents, with the sum of a second for those of a moment.
    pub(crate) fn publish_second(&mut self, sum: &Interval) {
        self.totals.last = sum.clone();
        self.publish();
    }

    /// Publishes the final figures, and waits until a scrape has taken them, the user stops, or a time is over.
    ///
    /// # Errors
    /// The file could not be written.
    pub(crate) fn finish(mut self, stop: &DrainWatch) -> Result<(), Failure> {
        self.totals.is_finished = true;
        self.totals.last = Interval::default();
        self.publish();
        if let Some(listener) = self.listener.take() {
            let (shared, changed) = &*self.shared;
            let mut text = lock(shared);
            let mut waited = Duration::ZERO;
            while text.final_scrapes == 0
                && waited < FINAL_SCRAPE_TIMEOUT
                && stop.stage() != DrainStage::Abort
            {
                const STEP: Duration = Duration::from_millis(100);
                text = changed.wait_timeout(text, STEP).unwrap_or_else(PoisonError::into_inner).0;
                waited += STEP;
            }
            if text.final_scrapes == 0 {
                warn!("weir: warning: no scrape took the final figures");
            }
            drop(text);
            listener.drain.advance(DrainStage::Draining);
            // The last response may still be on its way. A panic of the thread was printed by it.
            let _ = listener.thread.join();
        }
        match (self.file_error, self.file) {
            (Some(error), Some(file)) => Err(Failure::cannot(file.display(), error)),
            _ => Ok(()),
        }
    }

    fn publish(&mut self) {
        let text = self.totals.text();
        if let (Some(file), None) = (&self.file, &self.file_error) {
            // The error is reported once, at the end: a full disk must not end the run.
            self.file_error = record::file::write_atomically(file, text.as_bytes()).err();
        }
        let mut shared = lock(&self.shared.0);
        shared.text = text;
        shared.is_final = self.totals.is_finished;
    }
}

impl RunObserver for MetricsExport {
    fn on_start(&mut self, _start_ns: u64) {}

    fn on_window_start(&mut self) {}

    fn on_load_end(&mut self) {}

    fn on_second(&mut self, interval: &mut Interval, latencies: &SecondLatencies) {
        self.totals.add(interval, &latencies.response);
        self.publish();
    }
}

fn lock(shared: &Mutex<ScrapedText>) -> MutexGuard<'_, ScrapedText> {
    // The text is complete whenever the lock is free.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn listen(address: SocketAddr, shared: Arc<(Mutex<ScrapedText>, Condvar)>) -> Result<Listener, Failure> {
    let drain = Drain::default();
    let stop = drain.watch();
    let (started, result) = std::sync::mpsc::channel();
    let failed = started.clone();
    let serve = move || {
        let page = move |_request: &WebRequest| {
            let (text, changed) = &*shared;
            let mut text = lock(text);
            text.final_scrapes += u64::from(text.is_final);
            changed.notify_all();
            WebPage::new(MEDIA_TYPE, text.text.clone())
        };
        let routes = vec![WebRoute::new("/metrics", page)];
        let listening = |address: SocketAddr| {
            // Without a receiver the start was given up.
            let _ = started.send(Ok(address));
        };
        if let Err(error) = web_ui::run(address, routes, stop, listening) {
            let _ = failed.send(Err(error.to_string()));
        }
    };
    let thread = std::thread::Builder::new().name("metrics".to_owned()).spawn(serve)?;
    match result.recv() {
        Ok(Ok(address)) => warn!("weir: metrics at http://{address}/metrics"),
        Ok(Err(why)) => return Err(Failure::cannot(format!("--metrics-listen {address}"), why)),
        Err(_) => return Err(Failure::cannot("--metrics-listen", "its thread has ended")),
    }
    Ok(Listener { drain, thread })
}
