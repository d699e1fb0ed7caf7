//! Watches the host while a load runs, for its record and its verdict; and shows each second.

use std::io;

use host::watch::{Sampler, Snapshot, Window, window};
use load::recorder::Phases;
use load::run::{Measured, Observer, SecondLatencies, THREAD_NAME};
use record::interval_log::IntervalLog;
use record::observed::Observed;
use record::run::{Cpu, Interval};
use rt::clock::{now_ns, thread_cpu_ns};

use crate::observation::Observation;
use crate::output::live::Live;

/// What stands beside a running load.
pub(crate) struct Watcher {
    sampler: Sampler,
    begin: Option<Snapshot>,
    end: Option<Snapshot>,
    last: Option<Snapshot>,
    live: Option<Live>,
    log: Option<IntervalLog>,
    log_failure: Option<io::Error>,
    observation: Option<Observation>,
    start_ns: u64,
    /// The same by the wall clock, in ns since 1970.
    start_unix_ns: u64,
    /// Processor time of the sampler so far.
    sampler_ns: u64,
}

impl Watcher {
    /// Watches this process and the subjects.
    pub(crate) fn new(subjects: Vec<i32>, live: Option<Live>, log: Option<IntervalLog>) -> Self {
        Self {
            sampler: Sampler::new(THREAD_NAME, subjects),
            begin: None,
            end: None,
            last: None,
            live,
            log,
            log_failure: None,
            observation: None,
            start_ns: 0,
            start_unix_ns: 0,
            sampler_ns: 0,
        }
    }

    /// The same, with all of the machine looked at.
    pub(crate) fn observing(self, observation: Option<Observation>) -> Self {
        Self { observation, ..self }
    }

    /// What was seen of the machine, when it was looked at.
    pub(crate) fn observed(&mut self, started_at: &str) -> Option<Observed> {
        let observation = self.observation.take()?;
        Some(observation.finish(self.start_ns, started_at.to_owned(), self.sampler_ns))
    }

    fn sample(&mut self) -> Snapshot {
        let before_ns = thread_cpu_ns();
        let snapshot = self.sampler.sample(now_ns());
        self.sampler_ns += thread_cpu_ns().saturating_sub(before_ns);
        snapshot
    }

    /// What the host said of the measured window.
    pub(crate) fn window(&self) -> Option<Window> {
        Some(window(self.begin.as_ref()?, self.end.as_ref()?))
    }

    /// Start of the load by the wall clock, in ns since 1970.
    pub(crate) fn start_unix_ns(&self) -> u64 {
        self.start_unix_ns
    }

    /// What this host does not tell.
    pub(crate) fn not_observable(&self) -> Vec<String> {
        self.sampler.not_observable().iter().map(ToString::to_string).collect()
    }

    /// Gives the interval log its name, if there is one and nothing went wrong.
    pub(crate) fn finish_log(&mut self) -> io::Result<()> {
        match (self.log_failure.take(), self.log.take()) {
            (Some(error), _) => Err(error),
            (None, Some(log)) => log.finish(),
            (None, None) => Ok(()),
        }
    }

    fn append_log(&mut self, start_s: f64, length_s: f64, phases: &Phases) {
        let Some(log) = &mut self.log else { return };
        let rows = [
            ("connect.service", &phases.connect.service),
            ("connect.response", &phases.connect.response),
            ("first_byte.service", &phases.first_byte.service),
            ("first_byte.response", &phases.first_byte.response),
            ("last_byte.service", &phases.last_byte.service),
            ("last_byte.response", &phases.last_byte.response),
        ];
        for (tag, latencies) in rows.into_iter().filter(|(_, latencies)| !latencies.is_empty()) {
            if let Err(error) = log.append(tag, start_s, length_s, latencies) {
                // Said once, at the end: a full disk must not end the run.
                self.log_failure = Some(error);
                self.log = None;
                return;
            }
        }
    }
}

impl Observer for Watcher {
    fn started(&mut self, start_ns: u64) {
        self.start_ns = start_ns;
        self.start_unix_ns = record::file::wall_clock_ns() + start_ns.saturating_sub(now_ns());
        self.last = Some(self.sample());
        if let Some(live) = &mut self.live {
            live.header();
        }
    }

    fn window_begins(&mut self) {
        if let Some(observation) = &mut self.observation {
            observation.window_begins();
        }
        self.begin = Some(self.sample());
    }

    fn load_ended(&mut self) {
        self.end = Some(self.sample());
    }

    fn second(&mut self, interval: &mut Interval, latencies: &SecondLatencies) {
        let now = self.sample();
        if let Some(last) = &self.last {
            let window = window(last, &now);
            let own_s =
                window.own_user_s.zip(window.own_system_s).map(|(user, system)| user + system);
            interval.own_cpus =
                own_s.filter(|_| window.seconds > 0.5).map(|seconds| seconds / window.seconds);
        }
        self.last = Some(now);
        if let Some(live) = &mut self.live {
            live.second(interval);
        }
        let start_s = interval.time_s - interval.length_s;
        self.append_log(start_s, interval.length_s, &latencies.phases);
    }
}

/// Processor time of a window, as records have it.
pub(crate) fn cpu(window: Option<&Window>) -> Cpu {
    let Some(window) = window else {
        return Cpu::default();
    };
    Cpu {
        user_s: window.own_user_s.unwrap_or(0.0),
        system_s: window.own_system_s.unwrap_or(0.0),
        per_core: window.own_threads.iter().map(|thread| thread.busy_share).collect(),
        subject_cpus: window.subject_cpu_s.map(|seconds| seconds / window.seconds.max(1e-9)),
        foreign_cpus: window.foreign_cpus,
        steal_share: window.steal_share,
    }
}

/// Takes the CPU time of the subject and of other programs from the observation: it knows the servers
/// behind the subject, whose time is nobody else's. A figure that it does not have stays as it was.
pub(crate) fn cpu_of_roles(cpu: &mut Cpu, observed: &Observed, measured: &Measured) {
    let (from_s, to_s) = measured.window_s;
    let subject = observed.role_cpus(host::observe::SUBJECT, from_s, to_s);
    cpu.subject_cpus = subject.or(cpu.subject_cpus);
    cpu.foreign_cpus = observed.foreign_cpus(from_s, to_s).or(cpu.foreign_cpus);
}

/// The longest wait for a processor among the generator's threads.
pub(crate) fn run_queue_wait_share(window: Option<&Window>) -> Option<f64> {
    let threads = window?.own_threads.iter();
    threads.filter_map(|thread| thread.wait_share).reduce(f64::max)
}
