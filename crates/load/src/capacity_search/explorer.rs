//! Exploration of a subject: the search, the ladder, the scaling law, the recheck, and the load that
//! shows the cause above the edge. Each trial runs in a [`TrialRunner`].

use std::time::Duration;

use record::capacity_search::{
    CapacitySearch, Conclusion, Knee, LevelOutcome, SCHEMA, Scaling, SearchEnd, SearchTrial,
};
use record::facts::HostFacts;
use record::run::{Baseline, Run, WeirVersion};
use stats::fit::FitError;
use stats::knee::find_knee;
use stats::scalability::fit_scalability;

use super::durations::{after_search_ns, duration_ns};
use super::failed_levels::{FailedLevel, FailedLevels, HeldLevel};
use super::trial_runner::{CompletedTrial, TrialDriver, TrialRunner, TrialSetup};
use super::{
    LevelSearch, SearchOptions, SearchQuantity, SearchSettings, SearchStep, TrialPurpose, TrialSpec,
    added_latency, closed_loop_plan, ladder_levels, level_objectives, observer_plan, observer_rate_per_s,
    operating_range, scaling_connections, scaling_points, trial_plan,
};
use crate::plan::{Objective, RunPlan};

/// Note about a search that took too long.
const TIMED_OUT: &str = "stopped at the announced maximum duration";
/// Purpose of trials of the server behind the subject.
const DIRECT: &str = "direct";
/// Purpose of the trial above the edge that shows the cause.
const DIAGNOSIS: &str = "diagnosis";

/// Pause after a trial that overloaded the subject or that something disturbed.
const PAUSE_AFTER_OVERLOAD: Duration = Duration::from_millis(300);

/// Step of a search that begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SearchActivity {
    /// Requests one at a time, before the search.
    Baseline,
    Trial {
        /// Number, from 1.
        number: usize,
        purpose: &'static str,
        /// Level, in the unit of the search; connections if the purpose is the scaling law.
        level: f64,
    },
}

pub trait SearchObserver {
    /// A step begins; the expected time left with it is in s.
    fn on_step(&mut self, step: SearchActivity, remaining_s: f64);
    fn on_trial(&mut self, trial: &SearchTrial);
}

/// Origin of a search, for its record.
#[derive(Clone, Debug)]
pub struct SearchIdentity {
    pub weir: WeirVersion,
    pub command: Vec<String>,
    /// Start by the wall clock.
    pub started_at: String,
    pub host: HostFacts,
}

/// Search with what follows it, and what it has found so far.
pub struct Explorer<'a, D> {
    options: &'a SearchOptions,
    runner: TrialRunner<'a, D>,
    observer: &'a mut dyn SearchObserver,
    /// Expected end, in s after the start.
    expected_end_s: f64,
    objectives: Vec<Objective>,
    /// Baselines from requests sent one at a time before the search: with the subject, and without
    /// it.
    baseline: Option<Baseline>,
    direct_baseline: Option<Baseline>,
    /// Mean latency of the first level that held.
    base_latency_ns: Option<u64>,
    /// For each level, the last verifying run that held; after a drift also the rechecking run.
    held_runs: Vec<(f64, Run)>,
    failed_levels: FailedLevels<Run>,
    knee: Option<Knee>,
    operating_range: Option<(f64, f64)>,
    scaling: Option<Scaling>,
    notes: Vec<String>,
}

impl<'a, D: TrialDriver> Explorer<'a, D> {
    /// Creates a search that has found nothing.
    pub fn new(
        options: &'a SearchOptions,
        runner: TrialRunner<'a, D>,
        observer: &'a mut dyn SearchObserver,
    ) -> Self {
        Self {
            options,
            observer,
            expected_end_s: duration_ns(options).0 as f64 / 1e9,
            objectives: level_objectives(&options.base.objectives, None),
            baseline: None,
            direct_baseline: None,
            base_latency_ns: None,
            held_runs: Vec::new(),
            failed_levels: FailedLevels::default(),
            knee: None,
            operating_range: None,
            scaling: None,
            notes: runner.driver.notes(),
            runner,
        }
    }

    /// Runs everything, and returns the result without its summary. `descriptor_limit` is the sentence that reports
    /// a limit of the connections by descriptors.
    ///
    /// # Errors
    /// A trial could not be run, for a reason that the next one would have as well.
    pub fn explore(
        mut self,
        descriptor_limit: Option<String>,
        identity: SearchIdentity,
    ) -> Result<CapacitySearch, D::Error> {
        let remaining_s = self.remaining_s(0);
        self.observer.on_step(SearchActivity::Baseline, remaining_s);
        let options = self.options;
        self.baseline = self.measure_baseline(&options.base);
        self.direct_baseline = options.direct.as_ref().and_then(|direct| self.measure_baseline(direct));
        let mut search = LevelSearch::new(options.settings);
        let mut conclusion = self.run_search(&mut search)?;
        let is_found = matches!(conclusion.end, SearchEnd::Found | SearchEnd::MaxLevel);
        if let (true, Some(level), false) = (is_found, conclusion.level, self.runner.is_stopped()) {
            if !self.options.quantity.is_count() && !self.options.search_only {
                self.expected_end_s = self.runner.elapsed_s() + after_search_ns(self.options) as f64 / 1e9;
                self.run_ladder(level)?;
                self.run_scaling()?;
            }
            search.start_recheck();
            conclusion = self.run_search(&mut search)?;
            self.apply_drift(conclusion.level);
            self.run_diagnosis(conclusion.level)?;
        }
        if let (SearchEnd::MaxLevel, Some(descriptor_limit)) = (conclusion.end, descriptor_limit) {
            conclusion.end = SearchEnd::GeneratorLimit;
            conclusion.limited_at = conclusion.level;
            conclusion.reasons = vec![descriptor_limit];
        }
        if self.runner.is_stopped() {
            self.notes.push("stopped by the user: partial result".to_owned());
        }
        Ok(self.into_record(conclusion, identity))
    }

    /// Sends requests one at a time, in the form of the trials' requests. Runs once per search: the
    /// duration of a request without load does not depend on the level, and trials are too short to
    /// have a baseline each.
    fn measure_baseline(&mut self, plan: &RunPlan) -> Option<Baseline> {
        let settings = &self.options.settings;
        let plan = trial_plan(plan, self.options.quantity, settings.first_level, settings.short_trial_ns);
        self.options.baseline.then(|| self.runner.driver.baseline(&plan)).flatten()
    }

    /// Returns the expected time left before a trial of so many ns.
    fn remaining_s(&self, length_ns: u64) -> f64 {
        (self.expected_end_s - self.runner.elapsed_s()).max(length_ns as f64 / 1e9)
    }

    /// Derives the results that depend on the edge from the last edge; without an edge, clears
    /// them.
    fn apply_drift(&mut self, level: Option<f64>) {
        let range = |level| operating_range(level, self.knee.as_ref());
        self.operating_range = self.operating_range.and_then(|_| level.map(range));
        if level.is_none() {
            self.knee = None;
        }
    }

    /// Runs the trials that the search requests, until it ends or the user stops it.
    fn run_search(&mut self, search: &mut LevelSearch) -> Result<Conclusion, D::Error> {
        loop {
            let spec = match search.next() {
                SearchStep::Ended(conclusion) => return Ok(conclusion),
                SearchStep::Run(spec) => spec,
            };
            if self.runner.is_stopped() || self.is_timed_out(spec.length_ns) {
                return Ok(search.current_conclusion());
            }
            let plan = self.plan_of(&self.options.base, &spec);
            let Some(completed) = self.run_trial(plan, spec, spec.purpose.name(), None)? else {
                return Ok(search.current_conclusion());
            };
            let (outcome, reasons) = (completed.trial.outcome, completed.trial.reasons.clone());
            let is_useless = spec.purpose == TrialPurpose::Reference
                && completed.run.as_ref().is_some_and(has_only_errors);
            self.store_result(&spec, completed);
            search.record_outcome(outcome, &reasons);
            if is_useless {
                search.end_without_good_response(&reasons);
            }
        }
    }

    /// Returns whether a trial of so many ns would end after the announced maximum duration.
    fn is_timed_out(&mut self, length_ns: u64) -> bool {
        let end_s = self.runner.elapsed_s() + length_ns as f64 / 1e9;
        let is_over = end_s > duration_ns(self.options).1 as f64 / 1e9;
        if is_over && !self.notes.iter().any(|note| note == TIMED_OUT) {
            self.notes.push(TIMED_OUT.to_owned());
        }
        is_over
    }

    fn plan_of(&self, base: &RunPlan, spec: &TrialSpec) -> RunPlan {
        let mut plan = trial_plan(base, self.options.quantity, spec.level, spec.length_ns);
        plan.objectives.clone_from(&self.objectives);
        plan
    }

    /// Runs a trial; `None` if the user stopped it, because it proves nothing then.
    fn run_trial(
        &mut self,
        plan: RunPlan,
        spec: TrialSpec,
        purpose: &'static str,
        observer_plan: Option<RunPlan>,
    ) -> Result<Option<CompletedTrial>, D::Error> {
        let number = self.runner.trials.len() + 1;
        let remaining_s = self.remaining_s(spec.length_ns);
        self.observer.on_step(SearchActivity::Trial { number, purpose, level: spec.level }, remaining_s);
        let baseline = if purpose == DIRECT { &self.direct_baseline } else { &self.baseline };
        let baseline = baseline.clone();
        let setup =
            TrialSetup { spec, purpose, base_latency_ns: self.base_latency_ns, observer_plan, baseline };
        let completed = match self.runner.run_trial(plan, setup) {
            // The user stopped it before it began. The engine reports that as a failure.
            Err(_) if self.runner.is_stopped() => return Ok(None),
            completed => completed?,
        };
        if self.runner.is_stopped() {
            self.runner.trials.pop();
            return Ok(None);
        }
        self.observer.on_trial(&completed.trial);
        if completed.trial.outcome != LevelOutcome::Held {
            std::thread::sleep(PAUSE_AFTER_OVERLOAD);
        }
        Ok(Some(completed))
    }

    /// Keeps the reference and the runs at the edge.
    fn store_result(&mut self, spec: &TrialSpec, completed: CompletedTrial) {
        let (trial, Some(run)) = (completed.trial, completed.run) else {
            return;
        };
        match trial.outcome {
            LevelOutcome::Held => {
                if self.base_latency_ns.is_none() {
                    self.base_latency_ns = Some(trial.mean_ns as u64);
                    // With idle connections, latency is not the subject of the search.
                    let bound =
                        (self.options.quantity != SearchQuantity::Connections).then_some(trial.p99_ns);
                    self.objectives = level_objectives(&self.options.base.objectives, bound);
                }
                let is_known = self.held_runs.iter().any(|(level, _)| *level == spec.level);
                match spec.purpose {
                    TrialPurpose::Verify => {
                        self.held_runs.retain(|(level, _)| *level != spec.level);
                        self.held_runs.push((spec.level, run));
                    }
                    // A recheck is shorter; it counts where nothing longer held.
                    TrialPurpose::Recheck if !is_known => self.held_runs.push((spec.level, run)),
                    _ => {}
                }
            }
            LevelOutcome::Missed => self.record_failed_level(&trial, run),
            LevelOutcome::Undecided if has_only_errors(&run) => self.record_failed_level(&trial, run),
            LevelOutcome::Undecided => {}
        }
    }

    fn record_failed_level(&mut self, trial: &SearchTrial, run: Run) {
        self.failed_levels.add(FailedLevel {
            level: trial.level,
            goodput_per_s: trial.goodput_per_s(),
            reasons: trial.reasons.clone(),
            diagnosis: run.diagnosis.clone(),
            run,
        });
    }

    /// Drives the ladder, alternating with the direct one, for the knee and the operating range.
    fn run_ladder(&mut self, edge: f64) -> Result<(), D::Error> {
        for level in ladder_levels(edge, self.options.settings.max_level) {
            let spec = TrialSpec {
                level,
                length_ns: self.options.settings.full_trial_ns,
                purpose: TrialPurpose::Confirm,
            };
            if self.is_timed_out(spec.length_ns) {
                break;
            }
            let mut plan = self.plan_of(&self.options.base, &spec);
            let has_observer = self.runner.driver.has_observer();
            let observer_plan = has_observer.then(|| observer_plan(&mut plan, observer_rate_per_s(level)));
            let Some(completed) = self.run_trial(plan, spec, "ladder", observer_plan)? else {
                return Ok(());
            };
            if let (LevelOutcome::Missed, Some(run)) = (completed.trial.outcome, completed.run) {
                self.record_failed_level(&completed.trial, run);
            }
            if let Some(direct) = &self.options.direct {
                let plan = self.plan_of(direct, &spec);
                if self.run_trial(plan, spec, DIRECT, None)?.is_none() {
                    return Ok(());
                }
            }
        }
        let ladder_trials = self
            .runner
            .trials
            .iter()
            .filter(|trial| trial.purpose == "ladder" && trial.outcome != LevelOutcome::Undecided);
        let points: Vec<_> = ladder_trials.map(|trial| (trial.level, trial.p99_ns as f64)).collect();
        match find_knee(&points, self.options.base.seed) {
            Ok(knee) => self.knee = Some(knee.into()),
            Err(why) => self.notes.push(format!("no knee: {why}")),
        }
        self.operating_range = Some(operating_range(edge, self.knee.as_ref()));
        Ok(())
    }

    /// Drives a closed loop with one connection and then ever more, for the scaling law.
    fn run_scaling(&mut self) -> Result<(), D::Error> {
        if self.options.quantity != SearchQuantity::Rate {
            return Ok(());
        }
        if self.options.has_max_level {
            self.notes.push("no scaling law: --to limits the rate, which a closed loop cannot do".to_owned());
            return Ok(());
        }
        let length_ns = self.options.settings.full_trial_ns;
        let base = RunPlan { objectives: self.objectives.clone(), ..self.options.base.clone() };
        let mut trials = Vec::new();
        for connections in scaling_connections(base.connections) {
            let plan = closed_loop_plan(&base, connections, length_ns);
            let spec = TrialSpec { level: connections as f64, length_ns, purpose: TrialPurpose::Confirm };
            if self.is_timed_out(length_ns) {
                break;
            }
            let Some(completed) = self.run_trial(plan, spec, "scaling", None)? else {
                return Ok(());
            };
            let met = |run: &Run| run.objectives.iter().all(|objective| objective.met);
            let met = completed.run.as_ref().is_none_or(met);
            // Without a run there is no point: fewer connections than agents, or none at all.
            if completed.run.is_some() {
                trials.push((completed.trial, met));
            }
        }
        let (points, left_out) = scaling_points(&trials);
        self.notes.extend(left_out);
        match fit_scalability(&points, self.options.base.seed) {
            Ok(law) => self.scaling = Some(law.into()),
            Err(why @ FitError::TooFewPoints { .. }) => {
                self.notes.push(format!("no scaling law: {why} (increase -c)"));
            }
            Err(why) => self.notes.push(format!("no scaling law: {why}")),
        }
        Ok(())
    }

    /// Drives a load clearly above the edge if no missed level shows what stops the subject.
    fn run_diagnosis(&mut self, edge: Option<f64>) -> Result<(), D::Error> {
        let SearchSettings { max_level, verify_trial_ns, .. } = self.options.settings;
        let level = edge.and_then(|edge| self.failed_levels.diagnosis_level(edge, max_level));
        let Some(level) = level.filter(|_| !self.options.quantity.is_count()) else { return Ok(()) };
        if self.runner.is_stopped() || self.is_timed_out(verify_trial_ns) {
            return Ok(());
        }
        let spec = TrialSpec { level, length_ns: verify_trial_ns, purpose: TrialPurpose::Confirm };
        let plan = self.plan_of(&self.options.base, &spec);
        if let Some(CompletedTrial { trial, run: Some(run) }) = self.run_trial(plan, spec, DIAGNOSIS, None)?
            && trial.outcome == LevelOutcome::Missed
        {
            self.record_failed_level(&trial, run);
        }
        Ok(())
    }

    fn into_record(mut self, conclusion: Conclusion, identity: SearchIdentity) -> CapacitySearch {
        let is_found = |(level, _): &(f64, Run)| Some(*level) == conclusion.level;
        let held = self.held_runs.into_iter().find(is_found).map(|(_, run)| run);
        let verdict = held.as_ref().and_then(|run| run.diagnosis.as_ref());
        let verdict = verdict.map_or("unknown", |diagnosis| diagnosis.verdict.as_str());
        let edge = conclusion.level.map(|level| HeldLevel { level, verdict });
        let (limiting, note) = self.failed_levels.limiting_level(edge);
        self.notes.extend(note);
        let (stopped_by, stopped_run) = match limiting {
            Some(miss) => (miss.diagnosis, Some(Box::new(miss.run))),
            None => (None, None),
        };
        let at_edge = held.or_else(|| self.failed_levels.lowest().map(|miss| miss.run.clone()));
        if let Some(run) = &at_edge
            && run.generator.in_flight_mean
                > CONNECTIONS_IN_USE_FRACTION * self.options.base.concurrency() as f64
            && !self.options.quantity.is_count()
        {
            self.notes.push(format!(
                "at the edge {:.0} of {} connections were in use: it may sustain more with a larger -c",
                run.generator.in_flight_mean, self.options.base.connections
            ));
        }
        let SearchIdentity { weir, command, started_at, host } = identity;
        CapacitySearch {
            schema: SCHEMA.to_owned(),
            weir,
            command,
            started_at,
            duration_s: self.runner.elapsed_s(),
            host,
            plan: serde_json::to_value(&self.options.base).unwrap_or_default(),
            quantity: self.options.quantity.name().to_owned(),
            baseline: self.baseline,
            direct_baseline: self.direct_baseline,
            objectives: self.objectives.iter().map(|objective| objective.text().to_owned()).collect(),
            conclusion,
            summary: String::new(),
            answer: None,
            decision: None,
            comparison: None,
            ceiling_per_s: None,
            added_latency: added_latency(&self.runner.trials),
            trials: self.runner.trials,
            knee: self.knee,
            operating_range: self.operating_range,
            scaling: self.scaling,
            notes: self.notes,
            stopped_by,
            stopped_run,
            at_edge: at_edge.map(Box::new),
        }
    }
}

/// Above this fraction of connections in use at the edge, they may be the limit.
const CONNECTIONS_IN_USE_FRACTION: f64 = 0.8;

/// Returns whether a low load got errors of the server only: then no other rate gets a good response.
fn has_only_errors(run: &Run) -> bool {
    let totals = &run.totals;
    let own = ["no_port", "no_descriptor"].iter().filter_map(|kind| totals.errors.get(*kind)).sum::<u64>();
    totals.requests > 0 && totals.good() == 0 && own == 0
}
