//! Runs the trials of a search one after the other with a [`TrialDriver`], judges their levels and keeps their
//! records; decides nothing else.

use std::path::Path;

use record::capacity_search::{LevelOutcome, ObserverLoad, SearchTrial};
use record::run::{Baseline, Run};
use rt::clock::now_ns;
use rt::drain::{DrainStage, DrainWatch};

use super::{Judgement, SearchOptions, SearchQuantity, TrialSpec, judge, trial_record};
use crate::plan::RunPlan;

/// A trial that could be run.
pub struct CompletedTrial {
    pub trial: SearchTrial,
    /// Absent when there was nothing to measure: ports were missing, or the server did not respond.
    pub run: Option<Run>,
}

/// Generator of the loads of a search.
pub trait TrialDriver {
    /// Reason why a search ends early.
    type Error: From<std::io::Error>;

    /// Returns whether a small load can run beside a trial.
    fn has_observer(&self) -> bool;
    fn notes(&self) -> Vec<String>;
    /// Sends requests one at a time. Returns `None` if none got a response or ports are short.
    fn baseline(&mut self, plan: &RunPlan) -> Option<Baseline>;
    /// Drives the load of a trial. A problem with the first one ends the search.
    ///
    /// # Errors
    /// The load could not be driven, for a reason that the next trial would have as well.
    fn drive(&mut self, plan: RunPlan, setup: &TrialSetup, is_first: bool)
    -> Result<DrivenLoad, Self::Error>;
}

pub enum DrivenLoad {
    /// Record with its diagnosis, and the figures of the observer.
    Measured(Box<Run>, Option<ObserverLoad>),
    /// Nothing was measured, for this reason.
    Failed(LevelOutcome, String),
}

/// State that all trials share.
pub struct TrialRunner<'a, D> {
    pub(super) driver: D,
    stop: &'a DrainWatch,
    quantity: SearchQuantity,
    records_directory: Option<&'a Path>,
    started_ns: u64,
    /// All trials so far.
    pub(super) trials: Vec<SearchTrial>,
}

/// Settings of a trial besides its plan.
pub struct TrialSetup {
    /// Level, length and purpose.
    pub spec: TrialSpec,
    pub purpose: &'static str,
    /// Duration of a request at low load; `None`: this trial measures it itself.
    pub base_latency_ns: Option<u64>,
    pub observer_plan: Option<RunPlan>,
    /// Baseline of requests sent one at a time to the same URL before the search.
    pub baseline: Option<Baseline>,
}

impl<'a, D: TrialDriver> TrialRunner<'a, D> {
    /// Creates a runner without trials; its clock starts now.
    pub fn new(driver: D, stop: &'a DrainWatch, options: &'a SearchOptions) -> Self {
        let (quantity, records_directory) = (options.quantity, options.records_directory.as_deref());
        Self { driver, stop, quantity, records_directory, started_ns: now_ns(), trials: Vec::new() }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.stage() != DrainStage::Running
    }

    pub(super) fn elapsed_s(&self) -> f64 {
        (now_ns() - self.started_ns) as f64 / 1e9
    }

    pub(super) fn run_trial(&mut self, plan: RunPlan, setup: TrialSetup) -> Result<CompletedTrial, D::Error> {
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

    fn judge(&self, run: Run, observer: Option<ObserverLoad>, setup: &TrialSetup) -> CompletedTrial {
        let waiting_ns = setup.base_latency_ns.unwrap_or(run.latency.last_byte.response.p50_ns);
        let judgement = judge(&run, self.quantity, waiting_ns);
        let mut trial = trial_record(&setup.spec, setup.purpose, &run, judgement);
        trial.observer = observer;
        CompletedTrial { trial, run: Some(run) }
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
