//! Driver of the trials of a search whose loads are of this process: a load with its watcher, and on request an
//! observer that sends few requests beside it.

use std::sync::Arc;

use load::baseline;
use load::capacity_search::{DrivenLoad, TrialDriver, TrialSetup};
use load::measurement::{RunError, RunMeasurement};
use load::observer::NoopObserver;
use load::plan::RunPlan;
use record::capacity_search::{LevelOutcome, ObserverLoad};
use record::run::Baseline;
use rt::drain::DrainWatch;

use crate::failure::Failure;
use crate::observation::{Observation, diagnose};
use crate::preflight;
use crate::run_record::{CommandIdentity, LoadJob, build_run};
use crate::subjects::{Subjects, find_subjects};
use crate::watcher::RunWatcher;

pub struct LocalDriver<'a> {
    identity: &'a CommandIdentity,
    stop: &'a DrainWatch,
    subjects: Vec<(String, Subjects)>,
}

impl<'a> LocalDriver<'a> {
    /// Creates a driver of loads that end with `stop`.
    #[must_use]
    pub fn new(identity: &'a CommandIdentity, stop: &'a DrainWatch) -> Self {
        Self { identity, stop, subjects: Vec::new() }
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
    type Error = Failure;

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
                return Ok(DrivenLoad::Failed(LevelOutcome::Undecided, reason));
            }
        };
        let started_at = record::file::wall_clock_now();
        let subjects = self.subjects_of(&plan);
        let mut watcher = RunWatcher::new(subjects.clone().unwrap_or_default())
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
        let job = LoadJob {
            identity: self.identity,
            plan,
            subjects,
            scarce_ports,
            calibration: None,
            control: Arc::default(),
        };
        let mut watcher = watcher.end();
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

/// Runs a load, and the observer beside it in its own thread.
fn run_with_observer(
    plan: &RunPlan,
    observer_plan: Option<&RunPlan>,
    stop: &DrainWatch,
    watcher: &mut RunWatcher<'_>,
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

fn observer_figures(measured: &RunMeasurement) -> ObserverLoad {
    let latencies = &measured.latencies.last_byte.response;
    ObserverLoad {
        rate_per_s: measured.window_due as f64 / measured.window_length_s(),
        responses_per_s: measured.goodput_per_s(),
        responses: latencies.count(),
        p50_ns: latencies.value_at_quantile(0.5),
        p99_ns: latencies.value_at_quantile(0.99),
    }
}
