//! Runs one trial: a load with its watcher, and on request an observer that sends few requests
//! beside it. Returns the complete record and the judgement of the level; decides nothing else.

use runner::observation::{Observation, diagnose};
use std::path::Path;
use std::sync::Arc;

use load::capacity_search::{Judgement, SearchQuantity, TrialSpec, judge, trial_record};
use load::measurement::{RunError, RunMeasurement};
use load::observer::{RunObserver, SecondLatencies};
use load::plan::RunPlan;
use record::capacity_search::{LevelOutcome, ObserverLoad as Seen, SearchTrial};
use record::run::{Baseline, Interval, Run};
use rt::clock::now_ns;
use rt::drain::{DrainStage, DrainWatch};

use super::super::load::{LoadJob, Subjects, baseline, build_run, find_subjects};
use super::options::EdgeOptions;
use crate::exit::Failure;
use crate::flags::CommandArgs;
use crate::preflight;
use crate::watcher::RunWatcher;

/// A trial that could be run.
pub(super) struct CompletedTrial {
    pub(super) trial: SearchTrial,
    /// Absent when there was nothing to measure: ports were missing, or the server did not respond.
    pub(super) run: Option<Run>,
}

/// Generator of the loads of a search.
pub(in crate::commands) trait TrialDriver {
    /// Returns whether a small load can run beside a trial.
    fn has_observer(&self) -> bool;
    /// Returns the notes about it for the record.
    fn notes(&self) -> Vec<String>;
    /// Sends requests one at a time. Returns `None` if none got a response or ports are short.
    fn baseline(&mut self, plan: &RunPlan) -> Option<Baseline>;
    /// Drives the load of a trial. A problem with the first one ends the search.
    ///
    /// # Errors
    /// The load could not be driven, for a reason that the next trial would have as well.
    fn drive(&mut self, plan: RunPlan, setup: &TrialSetup, is_first: bool) -> Result<DrivenLoad, Failure>;
}

/// Result of the load of a trial.
pub(in crate::commands) enum DrivenLoad {
    /// Record with its diagnosis, and the figures of the observer.
    Measured(Box<Run>, Option<Seen>),
    /// Nothing was measured, for this reason.
    Failed(LevelOutcome, String),
}

/// State that all trials share.
pub(in crate::commands) struct TrialRunner<'a> {
    pub(super) driver: Box<dyn TrialDriver + 'a>,
    stop: &'a DrainWatch,
    quantity: SearchQuantity,
    records_directory: Option<&'a Path>,
    started_ns: u64,
    /// All trials so far.
    pub(super) trials: Vec<SearchTrial>,
}

/// Settings of a trial besides its plan.
pub(in crate::commands) struct TrialSetup {
    pub(super) spec: TrialSpec,
    pub(super) purpose: &'static str,
    /// Duration of a request at low load; `None`: this trial measures it itself.
    pub(super) base_latency_ns: Option<u64>,
    /// Plan of the observer.
    pub(super) observer_plan: Option<RunPlan>,
    /// Baseline of requests sent one at a time to the same URL before the search.
    pub(in crate::commands) baseline: Option<Baseline>,
}

impl<'a> TrialRunner<'a> {
    pub(super) fn new(
        driver: Box<dyn TrialDriver + 'a>,
        stop: &'a DrainWatch,
        options: &'a EdgeOptions,
    ) -> Self {
        let (quantity, records_directory) = (options.quantity, options.records_directory.as_deref());
        Self { driver, stop, quantity, records_directory, started_ns: now_ns(), trials: Vec::new() }
    }

    /// Returns whether the user stopped it.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.stage() != DrainStage::Running
    }

    pub(super) fn elapsed_s(&self) -> f64 {
        (now_ns() - self.started_ns) as f64 / 1e9
    }

    /// Runs one trial and keeps its result.
    pub(super) fn run_trial(&mut self, plan: RunPlan, setup: TrialSetup) -> Result<CompletedTrial, Failure> {
        let begin_s = self.elapsed_s();
        let mut completed = match self.driver.drive(plan, &setup, self.trials.is_empty())? {
            DrivenLoad::Measured(run, observer) => self.judge(*run, observer, &setup),
            DrivenLoad::Failed(outcome, reason) => trial_without_run(&setup, outcome, reason),
        };
        completed.trial.number = self.trials.len() as u32 + 1;
        completed.trial.begin_s = begin_s;
        if let (Some(directory), Some(run)) = (self.records_directory, &completed.run) {
            let (number, purpose) = (completed.trial.number, setup.purpose);
            let path = directory.join(format!("{number:03}-{purpose}-{:.0}.json", setup.spec.level));
            record::file::write_json(&path, run)?;
            completed.trial.record = Some(path.display().to_string());
        }
        self.trials.push(completed.trial.clone());
        Ok(completed)
    }

    fn judge(&self, run: Run, observer: Option<Seen>, setup: &TrialSetup) -> CompletedTrial {
        let waiting_ns = setup.base_latency_ns.unwrap_or(run.latency.last_byte.response.p50_ns);
        let judgement = judge(&run, self.quantity, waiting_ns);
        let mut trial = trial_record(&setup.spec, setup.purpose, &run, judgement);
        trial.observer = observer;
        CompletedTrial { trial, run: Some(run) }
    }
}

/// Load of this process.
pub(super) struct LocalDriver<'a> {
    args: CommandArgs<'a>,
    arguments: &'a [String],
    stop: &'a DrainWatch,
    subjects: Vec<(String, Subjects)>,
}

impl<'a> LocalDriver<'a> {
    pub(super) fn new(args: CommandArgs<'a>, arguments: &'a [String], stop: &'a DrainWatch) -> Self {
        Self { args, arguments, stop, subjects: Vec::new() }
    }

    /// Returns the processes that listen on the plan's addresses, looked up once per address.
    fn subjects_of(&mut self, plan: &RunPlan) -> Subjects {
        let address_key = format!("{:?}", plan.authorities());
        if let Some((_, known)) = self.subjects.iter().find(|(known, _)| *known == address_key) {
            return known.clone();
        }
        let listeners = find_subjects(plan);
        self.subjects.push((address_key, listeners.clone()));
        listeners
    }
}

impl TrialDriver for LocalDriver<'_> {
    fn has_observer(&self) -> bool {
        true
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    fn baseline(&mut self, plan: &RunPlan) -> Option<Baseline> {
        preflight::check(plan).ok()?;
        baseline::measure(plan, self.stop)
    }

    fn drive(&mut self, plan: RunPlan, setup: &TrialSetup, is_first: bool) -> Result<DrivenLoad, Failure> {
        let scarce_ports = match preflight::check(&plan) {
            Ok(scarce_ports) => scarce_ports,
            Err(failure) if is_first => return Err(failure),
            Err(failure) => {
                let reason = format!("ports: {}", failure.lines().join("; "));
                return Ok(DrivenLoad::Failed(LevelOutcome::NoVerdict, reason));
            }
        };
        let started_at = record::file::wall_clock_now();
        let subjects = self.subjects_of(&plan);
        let mut watcher = RunWatcher::new(subjects.clone().unwrap_or_default(), None, None)
            .with_observation(Some(Observation::start(&plan, &[])));
        let (measured, observer) =
            run_with_observer(&plan, setup.observer_plan.as_ref(), self.stop, &mut watcher);
        let measured = match measured {
            Ok(measured) => measured,
            Err(RunError::NoConnection { text, .. }) if !is_first => {
                return Ok(DrivenLoad::Failed(LevelOutcome::Missed, text));
            }
            Err(error) => return Err(Failure::cannot_run(error)),
        };
        let (args, arguments) = (self.args, self.arguments);
        let job = LoadJob {
            args,
            arguments,
            plan,
            subjects,
            scarce_ports,
            calibration: None,
            control: Arc::default(),
        };
        let observed = watcher.take_observed(&started_at);
        let mut run = build_run(&job, &measured, &watcher, observed.as_ref(), started_at);
        run.baseline.clone_from(&setup.baseline);
        if let Some(observed) = observed {
            diagnose(&mut run, observed);
        }
        let observer = observer.map(|measured| observer_figures(&measured));
        Ok(DrivenLoad::Measured(Box::new(run), observer))
    }
}

fn trial_without_run(setup: &TrialSetup, outcome: LevelOutcome, reason: String) -> CompletedTrial {
    let judgement = Judgement { outcome, reasons: vec![reason] };
    let trial = SearchTrial {
        purpose: setup.purpose.to_owned(),
        level: setup.spec.level,
        outcome: judgement.outcome,
        reasons: judgement.reasons,
        ..SearchTrial::default()
    };
    CompletedTrial { trial, run: None }
}

/// Runs a load, and the observer beside it in its own thread.
fn run_with_observer(
    plan: &RunPlan,
    observer_plan: Option<&RunPlan>,
    stop: &DrainWatch,
    watcher: &mut RunWatcher,
) -> (Result<RunMeasurement, RunError>, Option<RunMeasurement>) {
    std::thread::scope(|scope| {
        let observer =
            observer_plan.map(|plan| scope.spawn(|| load::run::run(plan, stop, &mut NoopObserver)));
        let measured = load::run::run(plan, stop, watcher);
        // A failure of the observer is no failure of the load. The observer is absent then.
        let observer = observer.and_then(|thread| thread.join().ok()?.ok());
        (measured, observer)
    })
}

fn observer_figures(measured: &RunMeasurement) -> Seen {
    let latencies = &measured.latencies.last_byte.response;
    Seen {
        rate_per_s: measured.window_due as f64 / measured.window_length_s(),
        responses_per_s: measured.goodput_per_s(),
        responses: latencies.count(),
        p50_ns: latencies.value_at_quantile(0.5),
        p99_ns: latencies.value_at_quantile(0.99),
    }
}

/// Observer that watches nothing: the main load has the watcher.
struct NoopObserver;

impl RunObserver for NoopObserver {
    fn on_start(&mut self, _start_ns: u64) {}
    fn on_window_start(&mut self) {}
    fn on_load_end(&mut self) {}
    fn on_second(&mut self, _interval: &mut Interval, _latencies: &SecondLatencies) {}
}
