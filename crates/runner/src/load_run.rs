//! One load from its plan to its record: observation, baseline, load, record, diagnosis.

use load::baseline;
use load::measurement::{RunError, RunMeasurement};
use load::observer::RunObserver;
use load::recorder::PhaseHistograms;
use load::validity::judge_conclusions;
use record::interval_log::IntervalLog;
use record::observed::{MachineObservation, format_neighbours};
use record::run::{Baseline, Run};
use record::validity::CPU_CONTENDED;
use rt::drain::DrainWatch;

use crate::observation::{Observation, diagnose};
use crate::run_record::{LoadJob, build_run};
use crate::watcher::{HostWatch, RunWatcher};

/// Load that is about to start.
pub struct PreparedLoad<'a> {
    job: &'a LoadJob<'a>,
    observation: Option<Observation>,
    baseline: Option<Baseline>,
    started_at: String,
}

/// Settings of the observation and the baseline.
#[derive(Clone, Copy, Debug)]
pub struct PrepareSettings<'a> {
    pub observe: bool,
    /// True if a load that needs a baseline gets one.
    pub with_baseline: bool,
    pub named: &'a [i32],
}

impl<'a> PreparedLoad<'a> {
    /// Starts the observation and measures the baseline.
    #[must_use]
    pub fn prepare(job: &'a LoadJob<'a>, settings: PrepareSettings<'_>, stop: &DrainWatch) -> Self {
        // Observation starts before the baseline. The requests of the baseline reveal the origins of a
        // subject that later finds no port for connections to them.
        let mut observation = settings.observe.then(|| Observation::start(&job.plan, settings.named));
        let baseline = match settings.with_baseline && baseline::is_needed(&job.plan) {
            true => baseline::measure(&job.plan, stop),
            false => None,
        };
        if baseline.is_some() {
            observation.iter_mut().for_each(Observation::restart);
        }
        let started_at = record::file::wall_clock_now();
        Self { job, observation, baseline, started_at }
    }

    /// Starts the observation of a load whose baseline is known.
    #[must_use]
    pub fn with_baseline(job: &'a LoadJob<'a>, baseline: Option<Baseline>) -> Self {
        let observation = Some(Observation::start(&job.plan, &[]));
        Self { job, observation, baseline, started_at: record::file::wall_clock_now() }
    }

    /// Returns the start by the wall clock.
    pub fn started_at(&self) -> &str {
        &self.started_at
    }

    /// Runs the load.
    ///
    /// # Errors
    /// It cannot start.
    pub fn run(
        self,
        observers: Vec<&mut dyn RunObserver>,
        log: Option<IntervalLog>,
        stop: &DrainWatch,
    ) -> Result<EndedLoad<'a>, RunError> {
        let Self { job, observation, baseline, started_at } = self;
        let mut watcher = RunWatcher::new(job.subjects.clone().unwrap_or_default())
            .with_log(log)
            .with_observation(observation)
            .with_observers(observers);
        let measured = load::run::run_controlled(&job.plan, stop, &job.control, &mut watcher)?;
        Ok(EndedLoad { job, measured, watch: watcher.end(), baseline, started_at })
    }
}

/// Load that has ended, without its record.
pub struct EndedLoad<'a> {
    job: &'a LoadJob<'a>,
    measured: RunMeasurement,
    watch: HostWatch,
    baseline: Option<Baseline>,
    started_at: String,
}

/// Record of a load, and what is written beside it.
pub struct RecordedLoad {
    pub run: Run,
    pub latencies: PhaseHistograms,
    /// Watch with the log of the seconds.
    pub watch: HostWatch,
}

impl EndedLoad<'_> {
    /// Ends the observation, and makes the record with its diagnosis.
    #[must_use]
    pub fn record(mut self) -> RecordedLoad {
        let observed = self.watch.take_observed(&self.started_at);
        let mut run = build_run(self.job, &self.measured, &self.watch, observed.as_ref(), self.started_at);
        run.baseline = self.baseline;
        observed.iter().for_each(|observed| name_neighbours(&mut run, observed));
        judge_conclusions(&mut run, observed.as_ref());
        if let Some(observed) = observed {
            diagnose(&mut run, observed);
        }
        RecordedLoad { run, latencies: self.measured.latencies, watch: self.watch }
    }
}

/// Names the programs that used CPUs of the machine, in the reasons that are about them.
fn name_neighbours(run: &mut Run, observed: &MachineObservation) {
    let named = format_neighbours(&observed.neighbours);
    if named.is_empty() {
        return;
    }
    let about_them = [CPU_CONTENDED, "run_queue_wait", "send_lag", "generator_stalled"];
    let mut reasons = run.validity.reasons.iter_mut();
    if let Some(reason) = about_them.iter().find_map(|code| reasons.find(|reason| reason.code == *code)) {
        reason.text.push_str(&format!(" (CPUs of the busiest: {})", named));
    }
}
