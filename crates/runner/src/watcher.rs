//! Watches the host while a load runs, for its record and its verdict, and passes each second on to the observers
//! of the run.

use std::io;

use host::cpu_window::{CpuSampler, CpuSnapshot, CpuWindow, window_between};
use load::measurement::RunMeasurement;
use load::observer::{RunObserver, SecondLatencies};
use load::recorder::PhaseHistograms;
use load::run::THREAD_NAME;
use record::interval_log::IntervalLog;
use record::observed::MachineObservation;
use record::run::{GeneratorCpu, Interval};
use rt::clock::{now_ns, thread_cpu_ns};

use crate::observation::Observation;

/// Watcher of a running load, with its observers.
pub struct RunWatcher<'a> {
    host: HostWatch,
    previous: Option<CpuSnapshot>,
    observers: Vec<&'a mut dyn RunObserver>,
}

/// Findings about the host beside a load.
pub struct HostWatch {
    sampler: CpuSampler,
    window_start: Option<CpuSnapshot>,
    window_end: Option<CpuSnapshot>,
    log: Option<IntervalLog>,
    log_error: Option<io::Error>,
    observation: Option<Observation>,
    start_ns: u64,
    /// Start by the wall clock, in ns since 1970.
    start_unix_ns: u64,
    /// CPU time of the sampler so far.
    sampler_ns: u64,
}

impl<'a> RunWatcher<'a> {
    #[must_use]
    pub fn new(subjects: Vec<i32>) -> Self {
        let host = HostWatch {
            sampler: CpuSampler::new(THREAD_NAME, subjects),
            window_start: None,
            window_end: None,
            log: None,
            log_error: None,
            observation: None,
            start_ns: 0,
            start_unix_ns: 0,
            sampler_ns: 0,
        };
        Self { host, previous: None, observers: Vec::new() }
    }

    #[must_use]
    pub fn with_observation(mut self, observation: Option<Observation>) -> Self {
        self.host.observation = observation;
        self
    }

    /// Adds a log of the latencies of each second.
    #[must_use]
    pub fn with_log(mut self, log: Option<IntervalLog>) -> Self {
        self.host.log = log;
        self
    }

    /// Adds observers; each gets the seconds with the CPU use of the generator.
    #[must_use]
    pub fn with_observers(mut self, observers: Vec<&'a mut dyn RunObserver>) -> Self {
        self.observers = observers;
        self
    }

    /// Ends the watch, and with it the use of the observers.
    #[must_use]
    pub fn end(self) -> HostWatch {
        self.host
    }
}

impl HostWatch {
    pub fn take_observed(&mut self, started_at: &str) -> Option<MachineObservation> {
        let observation = self.observation.take()?;
        Some(observation.finish(self.start_ns, started_at.to_owned(), self.sampler_ns))
    }

    fn sample(&mut self) -> CpuSnapshot {
        let started_ns = thread_cpu_ns();
        let snapshot = self.sampler.sample(now_ns());
        self.sampler_ns += thread_cpu_ns().saturating_sub(started_ns);
        snapshot
    }

    pub fn window(&self) -> Option<CpuWindow> {
        Some(window_between(self.window_start.as_ref()?, self.window_end.as_ref()?))
    }

    /// Returns the start of the load by the wall clock, in ns since 1970.
    pub fn start_unix_ns(&self) -> u64 {
        self.start_unix_ns
    }

    pub fn not_observable(&self) -> Vec<String> {
        self.sampler.not_observable().iter().map(ToString::to_string).collect()
    }

    /// Gives the interval log its final name, if there is one and nothing went wrong.
    ///
    /// # Errors
    /// A second could not be written, or the file cannot be renamed.
    pub fn finish_log(&mut self) -> io::Result<()> {
        match (self.log_error.take(), self.log.take()) {
            (Some(error), _) => Err(error),
            (None, Some(log)) => log.finish(),
            (None, None) => Ok(()),
        }
    }

    fn append_log(&mut self, start_s: f64, length_s: f64, phases: &PhaseHistograms) {
        let Some(log) = &mut self.log else { return };
        let rows = [
            ("connect.service", &phases.connect.service),
            ("connect.response", &phases.connect.response),
            ("tls_handshake.service", &phases.tls_handshake.service),
            ("tls_handshake.response", &phases.tls_handshake.response),
            ("first_byte.service", &phases.first_byte.service),
            ("first_byte.response", &phases.first_byte.response),
            ("last_byte.service", &phases.last_byte.service),
            ("last_byte.response", &phases.last_byte.response),
        ];
        for (tag, latencies) in rows.into_iter().filter(|(_, latencies)| !latencies.is_empty()) {
            if let Err(error) = log.append(tag, start_s, length_s, latencies) {
                // The error is reported once, at the end: a full disk must not end the run.
                self.log_error = Some(error);
                self.log = None;
                return;
            }
        }
    }
}

impl RunObserver for RunWatcher<'_> {
    fn start_time(&mut self, connections: u64, now_ns: u64) -> Option<u64> {
        self.observers
            .iter_mut()
            .try_fold(now_ns, |start_ns, observer| observer.start_time(connections, start_ns))
    }

    fn on_start(&mut self, start_ns: u64) {
        self.host.start_ns = start_ns;
        self.host.start_unix_ns = record::file::wall_clock_ns() + start_ns.saturating_sub(now_ns());
        self.previous = Some(self.host.sample());
        self.observers.iter_mut().for_each(|observer| observer.on_start(start_ns));
    }

    fn on_window_start(&mut self) {
        if let Some(observation) = &mut self.host.observation {
            observation.start_probe();
        }
        self.host.window_start = Some(self.host.sample());
        self.observers.iter_mut().for_each(|observer| observer.on_window_start());
    }

    fn on_load_end(&mut self) {
        self.host.window_end = Some(self.host.sample());
        self.observers.iter_mut().for_each(|observer| observer.on_load_end());
    }

    fn on_second(&mut self, interval: &mut Interval, latencies: &SecondLatencies) {
        let now = self.host.sample();
        if let Some(last) = &self.previous {
            let window = window_between(last, &now);
            let own_s = window.own_user_s.zip(window.own_system_s).map(|(user, system)| user + system);
            interval.own_cpus =
                own_s.filter(|_| window.seconds > 0.5).map(|seconds| seconds / window.seconds);
        }
        self.previous = Some(now);
        self.observers.iter_mut().for_each(|observer| observer.on_second(interval, latencies));
        let start_s = interval.time_s - interval.length_s;
        self.host.append_log(start_s, interval.length_s, &latencies.phases);
    }
}

pub(crate) fn cpu_record(window: Option<&CpuWindow>) -> GeneratorCpu {
    let Some(window) = window else {
        return GeneratorCpu::default();
    };
    GeneratorCpu {
        user_s: window.own_user_s.unwrap_or(0.0),
        system_s: window.own_system_s.unwrap_or(0.0),
        per_core: window.own_threads.iter().map(|thread| thread.busy_fraction).collect(),
        subject_cpus: window.subject_cpu_s.map(|seconds| seconds / window.seconds.max(1e-9)),
        foreign_cpus: window.foreign_cpus,
        steal_fraction: window.steal_fraction,
    }
}

/// Takes the CPU time of the subject and of other processes from the observation. The observation
/// knows the servers behind the subject, whose time belongs to no other process. A figure that it
/// lacks stays unchanged.
pub(crate) fn apply_role_cpus(
    cpu: &mut GeneratorCpu,
    observed: &MachineObservation,
    measured: &RunMeasurement,
) {
    let (from_s, to_s) = measured.window_s;
    let subject = observed.role_cpus(host::observe::SUBJECT, from_s, to_s);
    cpu.subject_cpus = subject.or(cpu.subject_cpus);
    cpu.foreign_cpus = observed.foreign_cpus(from_s, to_s).or(cpu.foreign_cpus);
}

/// Returns the longest wait for a CPU among the generator's threads.
pub(crate) fn max_run_queue_wait(window: Option<&CpuWindow>) -> Option<f64> {
    let threads = window?.own_threads.iter();
    threads.filter_map(|thread| thread.wait_fraction).reduce(f64::max)
}

/// Returns the longest time that one of the generator's threads ran or waited for a CPU.
pub(crate) fn max_runnable(window: Option<&CpuWindow>) -> Option<f64> {
    let threads = window?.own_threads.iter();
    threads.filter_map(|thread| Some(thread.busy_fraction + thread.wait_fraction?)).reduce(f64::max)
}
