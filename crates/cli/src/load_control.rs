//! Control of a load by another process (`weir load --control`): commands arrive on stdin, events go to
//! stdout. The end of stdin ends the load, so that no load outlives the process that controls it.

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use load::control::RateControl;
use load::observer::{RunObserver, SecondLatencies};
use record::control::{LoadCommand, LoadEvent, encode_latencies};
use record::run::Interval;
use rt::drain::{Drain, DrainStage};

use crate::output::print;

/// Maximum length of a command line.
const COMMAND_BYTES_MAX: u64 = 256;

/// Commands and events of a controlled load.
pub(crate) struct LoadController {
    /// Start time of the clock; 0 until there is one.
    start_ns: Arc<AtomicU64>,
    has_reported: bool,
}

impl LoadController {
    /// Follows the commands on stdin in a thread.
    pub(crate) fn start(drain: Drain, rate: Arc<RateControl>) -> Self {
        let start_ns = Arc::new(AtomicU64::new(0));
        let start = Arc::clone(&start_ns);
        std::thread::spawn(move || {
            let mut stdin = BufReader::new(std::io::stdin());
            loop {
                let mut line = String::new();
                match stdin.by_ref().take(COMMAND_BYTES_MAX).read_line(&mut line) {
                    Ok(bytes) if bytes > 0 => apply(&line, &start, &rate, &drain),
                    _ => break,
                }
            }
            drain.advance(DrainStage::Draining);
        });
        Self { start_ns, has_reported: false }
    }

    /// Reports the connections once, and returns the start time as soon as there is one.
    pub(crate) fn start_time(&mut self, connections: u64) -> Option<u64> {
        if !std::mem::replace(&mut self.has_reported, true) {
            report(&LoadEvent::Connected { connections });
        }
        Some(self.start_ns.load(Ordering::Relaxed)).filter(|start_ns| *start_ns > 0)
    }
}

impl RunObserver for LoadController {
    fn start_time(&mut self, connections: u64, _now_ns: u64) -> Option<u64> {
        Self::start_time(self, connections)
    }

    fn on_start(&mut self, start_ns: u64) {
        let unix_ns = record::file::wall_clock_ns() + start_ns.saturating_sub(rt::clock::now_ns());
        report(&LoadEvent::Started { clock_ns: start_ns, unix_ns });
    }

    fn on_window_start(&mut self) {}

    fn on_load_end(&mut self) {}

    fn on_second(&mut self, interval: &mut Interval, latencies: &SecondLatencies) {
        let latencies = encode_latencies(&latencies.response);
        report(&LoadEvent::Second { interval: Box::new(interval.clone()), latencies });
    }
}

pub(crate) fn report(event: &LoadEvent) {
    // Invariant of the type: it has no map with keys other than texts, so that it is always JSON.
    if let Ok(line) = serde_json::to_string(event) {
        print(&(line + "\n"));
    }
}

fn apply(line: &str, start: &AtomicU64, rate: &RateControl, drain: &Drain) {
    match line.parse() {
        Ok(LoadCommand::Start { at_ns }) => start.store(at_ns.max(1), Ordering::Relaxed),
        Ok(LoadCommand::Rate { factor }) => rate.set(factor, rt::clock::now_ns()),
        Ok(LoadCommand::Stop) => {
            let is_second = drain.watch().stage() >= DrainStage::Draining;
            drain.advance(if is_second { DrainStage::Abort } else { DrainStage::Draining });
        }
        Err(why) => warn!("weir: {why}"),
    }
}
