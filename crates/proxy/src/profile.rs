//! Where a core's time goes, by the phase that a request is in: switched on and off while running, in
//! the manner of HAProxy's `show profiling`.
//!
//! A section is entered and left; sections nest, and each counts its own time only, without that of
//! those inside it. So all of them add up to the time that the core was in any, and with what is left
//! of the thread's processor time (the runtime) and of the time as such (idle) to how long it has been
//! on.
//!
//! A clock is read twice a section: `CLOCK_MONOTONIC`, which is no system call. Sections never await,
//! so that is processor time unless the kernel gives the processor to others in the middle; how much
//! that was in all, the thread's own clock tells when somebody asks. Where that is too much to know
//! where time goes, [`Clock::Thread`] reads the thread's clock in each section, for a system call
//! each time. Off, a section costs the look at a `Cell`.
//!
//! Measured at 60,000 small requests on one thread, release build, 15 sections a request: 46 ns a
//! section by `CLOCK_MONOTONIC`, 390 ns by the thread's clock. Off, and with all else that the control
//! socket needs of connections, a request takes 62 instructions more, of 11,670 in user space.

use std::cell::{Cell, RefCell};

use rt::clock::{now_ns, thread_cpu_ns};

use crate::outcome::Times;

macro_rules! phases {
    ($($variant:ident, $code:literal, $doc:literal;)*) => {
        /// What a core is at.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Phase {
            $(#[doc = $doc] $variant,)*
        }

        impl Phase {
            /// Every phase, in the order of a request; `phase as usize` is its index.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// In `snake_case`, stable.
            pub(crate) fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }

            /// What it has in it.
            pub(crate) fn doc(self) -> &'static str {
                match self { $(Self::$variant => $doc,)* }
            }
        }
    };
}

phases! {
    Accept, "accept", "accepting connections, and handing them to the core that serves them";
    Connection, "connection", "what a connection does between the other phases: PROXY header, what comes next, closing";
    ReadHead, "read_head", "reading a request's head and parsing it";
    Route, "route", "finding the route, its limits and its action";
    Queue, "queue", "choosing a server, taking room there, waiting for room";
    Connect, "connect", "taking an idle connection to the server, or making a new one";
    ForwardRequest, "forward_request", "writing the request's head anew and sending it with its body";
    ReadResponse, "read_response", "reading what the server sends, parsing and rewriting its head";
    ForwardResponse, "forward_response", "sending the response to the client, our own answers too";
    Tunnel, "tunnel", "passing bytes both ways: TCP, CONNECT, upgraded protocols";
    Log, "log", "making log lines and handing them over";
    Metrics, "metrics", "counting what ended";
    Upkeep, "upkeep", "ten times a second: deadlines, idle connections, counters";
}

const PHASES: usize = Phase::ALL.len();
/// How many sections are tried to find what one costs.
const TRIALS: u64 = 1_000;

#[derive(Debug, Default)]
struct Row {
    calls: Cell<u64>,
    cpu_ns: Cell<u64>,
    waits: Cell<u64>,
    waited_ns: Cell<u64>,
}

/// One core's profile.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    on: Cell<bool>,
    rows: [Row; PHASES],
    current: Cell<Option<Phase>>,
    clock: Cell<Clock>,
    /// From when on time belongs to `current`.
    mark_ns: Cell<u64>,
    started_ns: Cell<u64>,
    started_cpu_ns: Cell<u64>,
    /// What one section costs by itself.
    section_ns: Cell<u64>,
    /// What it held when it was switched off.
    kept: RefCell<Option<Totals>>,
}

/// Leaves its section when dropped.
#[derive(Debug)]
#[must_use = "a section ends where this is dropped"]
pub(crate) struct Section<'a>(Option<(&'a Profile, Option<Phase>)>);

/// What sections are measured with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Clock {
    /// `CLOCK_MONOTONIC`: cheap, with what others did meanwhile in it.
    #[default]
    Monotonic,
    /// `CLOCK_THREAD_CPUTIME_ID`: exact, and a system call.
    Thread,
}

impl Clock {
    fn read(self) -> u64 {
        match self {
            Self::Monotonic => now_ns(),
            Self::Thread => thread_cpu_ns(),
        }
    }
}

/// What is to become of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    /// It starts, from nothing.
    On(Clock),
    /// It stops; what it holds is kept.
    Off,
    /// It stays as it is.
    Stay,
}

/// One phase, on all cores that were added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PhaseTotals {
    /// How often it was entered.
    pub(crate) calls: u64,
    /// Time in it.
    pub(crate) cpu_ns: u64,
    /// Requests that came through it.
    pub(crate) waits: u64,
    /// From when they came to it until they went on, waiting included.
    pub(crate) waited_ns: u64,
}

/// What profiles hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) cores: u64,
    /// Cores on which it is on.
    pub(crate) on: u64,
    pub(crate) phases: [PhaseTotals; PHASES],
    /// For how long it has been on, all cores added up.
    pub(crate) wall_ns: u64,
    /// Processor time of the cores' threads meanwhile.
    pub(crate) thread_cpu_ns: u64,
    /// What measuring cost by itself; it is in the times of the phases.
    pub(crate) own_ns: u64,
    /// What one section costs, on average of the cores.
    pub(crate) section_ns: u64,
}

impl Profile {
    /// Counts time for `phase` until what is returned is dropped. Nothing may be awaited meanwhile.
    #[inline]
    pub(crate) fn enter(&self, phase: Phase) -> Section<'_> {
        if !self.on.get() {
            return Section(None);
        }
        self.begin(phase)
    }

    #[cold]
    fn begin(&self, phase: Phase) -> Section<'_> {
        let before = self.current.replace(Some(phase));
        self.charge(before);
        let row = &self.rows[phase as usize];
        row.calls.set(row.calls.get() + 1);
        Section(Some((self, before)))
    }

    #[cold]
    fn end(&self, before: Option<Phase>) {
        self.charge(self.current.replace(before));
    }

    /// The time since the last mark was `phase`'s.
    fn charge(&self, phase: Option<Phase>) {
        let now_ns = self.clock.get().read();
        let time_ns = now_ns.saturating_sub(self.mark_ns.replace(now_ns));
        if let Some(phase) = phase {
            let cpu_ns = &self.rows[phase as usize].cpu_ns;
            cpu_ns.set(cpu_ns.get() + time_ns);
        }
    }

    /// Counts how long a request that has ended was in each phase.
    #[inline]
    pub(crate) fn note_times(&self, times: &Times) {
        if self.on.get() {
            self.add_times(times);
        }
    }

    #[cold]
    fn add_times(&self, times: &Times) {
        let steps = [
            (Phase::ReadHead, times.start_ns, times.head_ns),
            (Phase::Queue, times.head_ns, times.dispatched_ns),
            (Phase::Connect, times.dispatched_ns, times.connected_ns),
            (Phase::ReadResponse, times.connected_ns, times.first_byte_ns),
            (Phase::ForwardResponse, times.first_byte_ns, times.end_ns),
        ];
        for (phase, from_ns, to_ns) in steps {
            // 0: it never came to it.
            if from_ns > 0 && to_ns >= from_ns {
                let row = &self.rows[phase as usize];
                row.waits.set(row.waits.get() + 1);
                row.waited_ns.set(row.waited_ns.get() + (to_ns - from_ns));
            }
        }
    }

    /// Switches it and tells what it holds. Not to be called within a section.
    pub(crate) fn switch(&self, switch: Switch) -> Totals {
        match (switch, self.on.get()) {
            (Switch::On(clock), _) => {
                self.kept.take();
                self.start(clock);
            }
            (Switch::Off, true) => {
                let totals = Totals { on: 0, ..self.totals() };
                self.on.set(false);
                self.kept.replace(Some(totals));
            }
            (Switch::Off, false) | (Switch::Stay, _) => {}
        }
        if self.on.get() {
            return self.totals();
        }
        let kept = self.kept.borrow().clone();
        kept.unwrap_or_else(|| Totals { cores: 1, ..Totals::default() })
    }

    fn start(&self, clock: Clock) {
        self.clock.set(clock);
        self.section_ns.set(cost_of_a_section(clock));
        for row in &self.rows {
            for cell in [&row.calls, &row.cpu_ns, &row.waits, &row.waited_ns] {
                cell.set(0);
            }
        }
        self.current.set(None);
        self.started_cpu_ns.set(thread_cpu_ns());
        self.started_ns.set(now_ns());
        self.on.set(true);
    }

    fn totals(&self) -> Totals {
        let phase = |row: &Row| PhaseTotals {
            calls: row.calls.get(),
            cpu_ns: row.cpu_ns.get(),
            waits: row.waits.get(),
            waited_ns: row.waited_ns.get(),
        };
        let phases = self.rows.each_ref().map(phase);
        let calls: u64 = phases.iter().map(|phase| phase.calls).sum();
        Totals {
            cores: 1,
            on: 1,
            phases,
            thread_cpu_ns: thread_cpu_ns().saturating_sub(self.started_cpu_ns.get()),
            wall_ns: now_ns().saturating_sub(self.started_ns.get()),
            own_ns: calls * self.section_ns.get(),
            section_ns: self.section_ns.get(),
        }
    }
}

/// What a section costs that has nothing in it.
fn cost_of_a_section(clock: Clock) -> u64 {
    let trial = Profile::default();
    trial.clock.set(clock);
    trial.on.set(true);
    let start_ns = now_ns();
    for _ in 0..TRIALS {
        drop(trial.enter(Phase::Upkeep));
    }
    (now_ns() - start_ns) / TRIALS
}

impl Drop for Section<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some((profile, before)) = self.0 {
            profile.end(before);
        }
    }
}

impl Totals {
    /// Adds another core's.
    pub(crate) fn add(&mut self, other: &Self) {
        // An average of averages, each of one core.
        let cores = (self.cores + other.cores).max(1);
        self.section_ns = (self.section_ns * self.cores + other.section_ns * other.cores) / cores;
        self.cores += other.cores;
        self.on += other.on;
        for (own, other) in self.phases.iter_mut().zip(&other.phases) {
            own.calls += other.calls;
            own.cpu_ns += other.cpu_ns;
            own.waits += other.waits;
            own.waited_ns += other.waited_ns;
        }
        self.wall_ns += other.wall_ns;
        self.thread_cpu_ns += other.thread_cpu_ns;
        self.own_ns += other.own_ns;
    }

    /// Time in all phases.
    pub(crate) fn in_phases_ns(&self) -> u64 {
        self.phases.iter().map(|phase| phase.cpu_ns).sum()
    }

    /// Processor time of the threads outside of all phases: the runtime's own, epoll, timers.
    pub(crate) fn runtime_ns(&self) -> u64 {
        self.thread_cpu_ns.saturating_sub(self.in_phases_ns())
    }

    /// Time that was spent neither in a phase nor in the runtime: the cores slept.
    pub(crate) fn idle_ns(&self) -> u64 {
        self.wall_ns.saturating_sub(self.in_phases_ns() + self.runtime_ns())
    }

    /// Time in phases that was no processor time of ours: somebody else had the processor.
    pub(crate) fn preempted_ns(&self) -> u64 {
        self.in_phases_ns().saturating_sub(self.thread_cpu_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(least_ns: u64) {
        let start_ns = now_ns();
        while now_ns() - start_ns < least_ns {}
    }

    fn phase(totals: &Totals, phase: Phase) -> PhaseTotals {
        totals.phases[phase as usize]
    }

    #[test]
    fn off_it_counts_nothing() {
        let profile = Profile::default();
        drop(profile.enter(Phase::Route));
        profile.note_times(&Times { start_ns: 1, head_ns: 2, ..Times::default() });
        let totals = profile.switch(Switch::Stay);
        assert_eq!(totals, Totals { cores: 1, ..Totals::default() });
        assert_eq!(profile.switch(Switch::Off), totals);
    }

    #[test]
    fn what_is_inside_is_not_counted_outside_and_all_adds_up() {
        let profile = Profile::default();
        profile.switch(Switch::On(Clock::Monotonic));
        let outer = profile.enter(Phase::Connection);
        busy(2_000_000);
        let inner = profile.enter(Phase::Route);
        busy(5_000_000);
        drop(inner);
        drop(outer);
        let totals = profile.switch(Switch::Off);
        let (outer, inner) = (phase(&totals, Phase::Connection), phase(&totals, Phase::Route));
        assert_eq!((outer.calls, inner.calls, totals.on), (1, 1, 0));
        assert!(outer.cpu_ns >= 2_000_000 && inner.cpu_ns >= 5_000_000, "{totals:?}");
        assert!(outer.cpu_ns + inner.cpu_ns <= totals.wall_ns, "{totals:?}");
        let sum_ns = totals.in_phases_ns() + totals.runtime_ns() + totals.idle_ns();
        assert_eq!(sum_ns, totals.wall_ns.max(sum_ns), "{totals:?}");
        assert!(totals.section_ns > 0 && totals.own_ns == 2 * totals.section_ns);
        // It is kept until it starts anew.
        drop(profile.enter(Phase::Route));
        assert_eq!(profile.switch(Switch::Stay), totals);
        assert_eq!(phase(&profile.switch(Switch::On(Clock::Monotonic)), Phase::Route).calls, 0);
    }

    #[test]
    fn by_the_thread_s_clock_nobody_else_s_time_is_in_it() {
        let profile = Profile::default();
        profile.switch(Switch::On(Clock::Thread));
        let outer = profile.enter(Phase::Connection);
        std::thread::sleep(std::time::Duration::from_millis(20));
        drop(outer);
        let totals = profile.switch(Switch::Off);
        assert_eq!(totals.preempted_ns(), 0, "{totals:?}");
        assert!(totals.idle_ns() >= 10_000_000, "{totals:?}");
    }

    #[test]
    fn a_request_is_in_one_phase_after_the_other() {
        let profile = Profile::default();
        profile.switch(Switch::On(Clock::Monotonic));
        let times = Times {
            start_ns: 10,
            head_ns: 11,
            dispatched_ns: 13,
            connected_ns: 16,
            first_byte_ns: 20,
            end_ns: 25,
        };
        profile.note_times(&times);
        // Refused before it went anywhere.
        profile.note_times(&Times { start_ns: 1, head_ns: 2, end_ns: 9, ..Times::default() });
        let totals = profile.switch(Switch::Stay);
        let waited = |one: Phase| (phase(&totals, one).waits, phase(&totals, one).waited_ns);
        assert_eq!(waited(Phase::ReadHead), (2, 2));
        assert_eq!(waited(Phase::Queue), (1, 2));
        assert_eq!(waited(Phase::Connect), (1, 3));
        assert_eq!(waited(Phase::ReadResponse), (1, 4));
        assert_eq!(waited(Phase::ForwardResponse), (1, 5));
    }
}
