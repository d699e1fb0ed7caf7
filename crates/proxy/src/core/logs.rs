//! The log of a core: the one of the plan in force, and the counters of earlier ones.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::log::{CapturedValue, CoreLog, LineCounters, LoadCounts, LogNames, LogSender, WallClock};
use crate::metrics::Snapshot;
use crate::outcome::Outcome;

#[derive(Debug)]
pub(super) struct CoreLogs {
    current: RefCell<CoreLog>,
    /// True if the current log has at least one target.
    has_logs: Cell<bool>,
    past_counters: RefCell<Vec<LineCounters>>,
    /// Time of the lines, updated at each tick.
    wall_clock: Cell<WallClock>,
}

impl CoreLogs {
    pub(super) fn new(log: CoreLog) -> Self {
        let wall_clock = Cell::new(WallClock::read());
        let has_logs = Cell::new(has_targets(&log));
        Self { current: RefCell::new(log), has_logs, past_counters: RefCell::default(), wall_clock }
    }

    pub(super) fn wall_clock(&self) -> WallClock {
        self.wall_clock.get()
    }

    pub(super) fn read_clock(&self) {
        self.wall_clock.set(WallClock::read());
    }

    /// Hands the lines over to the log thread. If it is behind, they wait for the next time.
    pub(super) fn hand_over(&self) {
        self.current.borrow().hand_over();
    }

    /// Returns whether a log needs more of a request than its first line.
    pub(super) fn needs_header_fields(&self) -> bool {
        self.current.borrow().wants_fields()
    }

    /// Returns the values that a log captures from a request's head.
    pub(super) fn captured(&self) -> Rc<[CapturedValue]> {
        Rc::clone(self.current.borrow().captured())
    }

    /// Adds a line for `outcome` to the logs, if there are any. Only then `load` is read.
    #[inline]
    pub(super) fn record(&self, outcome: &Outcome<'_>, names: &LogNames, load: impl FnOnce() -> LoadCounts) {
        if self.has_logs.get() {
            self.current.borrow().record(outcome, names, self.wall_clock.get(), &load());
        }
    }

    /// Redirects the lines to `log`, if it is another one.
    pub(super) fn change(&self, log: LogSender, core_index: usize) {
        let mut current = self.current.borrow_mut();
        current.hand_over();
        if current.line_counters().has_same_logs(&log.line_counters()) {
            return;
        }
        let previous = std::mem::replace(&mut *current, CoreLog::new(log, core_index));
        self.has_logs.set(has_targets(&current));
        self.past_counters.borrow_mut().push(previous.line_counters().clone());
    }

    pub(super) fn add_metrics(&self, snapshot: &mut Snapshot) {
        for tally in self.past_counters.borrow().iter().chain([self.current.borrow().line_counters()]) {
            snapshot.add_logs(&tally.counts());
        }
    }
}

fn has_targets(log: &CoreLog) -> bool {
    !log.line_counters().counts().is_empty()
}
