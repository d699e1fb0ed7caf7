//! Runs the trials of an experiment one after the other, stores each before the next begins, and
//! concludes after each block. [`super::next_step`] chooses the next step from the stored files, so a
//! kill costs only the trial that was running.
//!
//! Not for the work of a trial, nor for the statistics.

use std::collections::BTreeSet;

use record::experiment::{Experiment, ExperimentPlan, SCHEMA, StopReason, TrialSummary};
use record::run::WeirVersion;
use record::sorted::CollectSorted;
use record::trial::{ExperimentTrial, TrialKind};

use super::blocks::{TrialGroup, mark_discarded};
use super::check::check;
use super::discard::pause_ns;
use super::engine_context::{
    EngineContext, EngineError, JudgeInput, Runner, TrialOutput, TrialParams, TrialRunError,
};
use super::environment::{changed_facts, environment_differences};
use super::eta::{Overhead, estimate_eta};
use super::events::Event;
use super::experiment_dir::{ExperimentDir, RunSession};
use super::next_step::{NextStep, StepInput, TrialSlot, collect_attempts, next_step};
use super::warm_up::{PILOT_EXTRA_S, choose_warm_up};
use crate::format::count;

/// Runs an experiment from the state of its directory to its end, and concludes. A finished
/// experiment is concluded again.
///
/// # Errors
/// Its plan cannot be run, its environment has changed, or the directory cannot be written.
pub fn run(
    directory: &mut ExperimentDir,
    runner: &mut dyn Runner,
    context: EngineContext<'_>,
) -> Result<Experiment, EngineError> {
    check(&directory.start().plan)?;
    let mut engine = Engine::new(directory, context)?;
    engine.run_to_end(runner)
}

/// Reasons for a stop after which a resume goes on.
const GOES_ON: [&str; 2] = ["failed", "reruns"];

struct Engine<'f, 'h> {
    directory: &'f mut ExperimentDir,
    context: EngineContext<'h>,
    /// Plan, with the warm-up once it is known.
    plan: ExperimentPlan,
    weir: WeirVersion,
    trials: Vec<TrialSummary>,
    /// Numbers of the discarded trials that were already reported.
    reported_discards: BTreeSet<u32>,
    /// This session before its first trial. From then on the session is the directory's last one.
    session: Option<RunSession>,
    /// Time that trials took beyond their loads.
    overhead: Overhead,
}

impl<'f, 'h> Engine<'f, 'h> {
    fn new(directory: &'f mut ExperimentDir, context: EngineContext<'h>) -> Result<Self, EngineError> {
        let environment = (context.read_environment)();
        let differences = environment_differences(directory.start(), &environment);
        if !differences.is_empty() && !context.allow_changed_environment {
            return Err(EngineError::EnvironmentDiffers(differences));
        }
        for broken in directory.broken_files() {
            (context.on_event)(&Event::FileSetAside(broken.clone()));
        }
        if !differences.is_empty() {
            (context.on_event)(&Event::EnvironmentDiffers(differences.clone()));
        }
        let session = RunSession {
            weir: environment.weir.clone(),
            after_trial: directory.next_number() - 1,
            changed_at_start: differences.clone(),
            differences,
            settings: directory.take_next_settings(),
            ..RunSession::default()
        };
        let mut plan = directory.start().plan.clone();
        plan.warm_up_s = plan.warm_up_s.or_else(|| directory.warm_up().map(|it| it.warm_up_s));
        let mut engine = Self {
            plan,
            weir: environment.weir,
            trials: Vec::new(),
            reported_discards: BTreeSet::new(),
            session: Some(session),
            overhead: Overhead::default(),
            directory,
            context,
        };
        engine.update_marks();
        // After failures or too many reruns, a resume goes on.
        let goes_on = matches!(engine.next(), NextStep::End(stopped) if GOES_ON.contains(&&*stopped.code));
        engine.session.iter_mut().for_each(|session| session.retries_failed = goes_on);
        engine.reported_discards = engine.disturbed_trials().collect();
        Ok(engine)
    }

    fn run_to_end(&mut self, runner: &mut dyn Runner) -> Result<Experiment, EngineError> {
        let trials = self.trials.len() as u32;
        let resumed = self.directory.sessions().len() as u32;
        let eta = estimate_eta(&self.plan, &self.trials, self.directory.next_number(), self.overhead);
        self.emit(&Event::Started { resumed, trials, eta });
        let stopped = loop {
            match self.next() {
                NextStep::End(stopped) => break stopped,
                NextStep::WarmUp => self.choose_warm_up()?,
                NextStep::Run(slot) => {
                    self.pause();
                    if (self.context.should_stop)() || !self.run_trial(&slot, runner)? {
                        break self.interrupted();
                    }
                }
            }
        };
        self.finish(stopped)
    }

    fn emit(&mut self, event: &Event) {
        (self.context.on_event)(event);
    }

    /// Pauses after a disturbance of the machine.
    fn pause(&mut self) {
        let rest_ns = pause_ns(&self.trials);
        if rest_ns > 0 {
            self.emit(&Event::Paused { pause_ns: rest_ns });
            (self.context.pause)(rest_ns);
        }
    }

    fn next(&self) -> NextStep {
        let retries = self.directory.sessions().iter().chain(&self.session).filter(|it| it.retries_failed);
        let input = StepInput {
            plan: &self.plan,
            has_warm_up: self.plan.warm_up_s.is_some(),
            forgiven_until: retries.map(|it| it.after_trial).max().unwrap_or(0),
            is_concluded: self.context.is_concluded,
        };
        next_step(input, &self.trials)
    }

    fn update_marks(&mut self) {
        self.trials = self.directory.trials().to_vec();
        let mut changed = self.directory.environment_changes();
        changed.extend(self.session.iter().filter_map(RunSession::environment_change));
        mark_discarded(&self.plan, &mut self.trials, &changed);
    }

    fn disturbed_trials(&self) -> impl Iterator<Item = u32> {
        let own =
            |line: &&TrialSummary| line.discarded.as_ref().is_some_and(|reason| !reason.is_block_only());
        self.trials.iter().filter(own).map(|line| line.position.number)
    }

    fn choose_warm_up(&mut self) -> Result<(), EngineError> {
        let warm_up = choose_warm_up(&self.plan, &self.trials);
        self.directory.store_warm_up(&warm_up)?;
        // The plan takes the stored value, which is the one that a resumed experiment reads.
        self.plan.warm_up_s = self.directory.warm_up().map(|it| it.warm_up_s);
        self.emit(&Event::WarmUpChosen(warm_up));
        Ok(())
    }

    fn trial_params(&self, slot: &TrialSlot) -> TrialParams {
        let ns = |seconds: f64| (seconds * 1e9).round() as u64;
        let plan = &self.plan;
        let warm_up_ns = ns(plan.warm_up_s.unwrap_or(0.0));
        let params = TrialParams { warm_up_ns, duration_ns: ns(plan.duration_s), ..TrialParams::default() };
        match slot.kind {
            TrialKind::Judged => TrialParams { is_profiled: plan.profile, ..params },
            TrialKind::Probe => TrialParams { calls: plan.calls.clone(), ..params },
            // A pilot observes the time that a warm-up would hide.
            TrialKind::Pilot => {
                TrialParams { warm_up_ns: 0, duration_ns: ns(plan.duration_s + PILOT_EXTRA_S), ..params }
            }
        }
    }

    /// Runs one trial and stores it. Returns false if it was interrupted from outside; then nothing
    /// is stored.
    fn run_trial(&mut self, slot: &TrialSlot, runner: &mut dyn Runner) -> Result<bool, EngineError> {
        let position = self.directory.position(slot);
        let params = self.trial_params(slot);
        let eta = estimate_eta(&self.plan, &self.trials, self.directory.next_number(), self.overhead);
        self.emit(&Event::TrialStarted { position: position.clone(), eta });
        self.begin_session()?;
        let (began_ns, started_at) = ((self.context.clock)(), (self.context.wall_clock)());
        let ran = match runner.run(&position, &params) {
            Ok(ran) => ran,
            Err(TrialRunError::Stopped) => return Ok(false),
            Err(TrialRunError::Failed(why)) => {
                let trial = ExperimentTrial {
                    weir: self.weir.clone(),
                    started_at,
                    warm_up_s: params.warm_up_ns as f64 / 1e9,
                    failed: Some(why),
                    ..ExperimentTrial::default()
                };
                TrialOutput { trial, ..TrialOutput::default() }
            }
        };
        let took_s = (self.context.clock)().saturating_sub(began_ns) as f64 / 1e9;
        if !ran.leftovers.is_empty() {
            self.emit(&Event::CleanupFailed(ran.leftovers));
        }
        let mut trial = ran.trial;
        trial.schema = record::trial::SCHEMA.to_owned();
        trial.position = position;
        let line = self.directory.store(trial, ran.folded.as_deref())?;
        self.add_duration(took_s, &params)?;
        self.update_marks();
        self.after_trial(&line)?;
        Ok(true)
    }

    /// Stores the session before its first trial: a session with nothing to run is not recorded.
    fn begin_session(&mut self) -> Result<(), EngineError> {
        if let Some(session) = self.session.take() {
            let mut sessions = self.directory.sessions().to_vec();
            sessions.push(RunSession { started_at: (self.context.wall_clock)(), ..session });
            self.directory.store_sessions(sessions)?;
        }
        Ok(())
    }

    fn add_duration(&mut self, took_s: f64, params: &TrialParams) -> Result<(), EngineError> {
        let planned_s = (params.warm_up_ns + params.duration_ns) as f64 / 1e9;
        self.overhead.add(took_s - planned_s);
        let mut sessions = self.directory.sessions().to_vec();
        if let Some(session) = sessions.last_mut() {
            session.duration_s += took_s;
        }
        Ok(self.directory.store_sessions(sessions)?)
    }

    /// Reports the result of a trial, and concludes if its block is complete.
    fn after_trial(&mut self, line: &TrialSummary) -> Result<(), EngineError> {
        let (position, failed) = (line.position.clone(), line.failed.clone());
        self.emit(&Event::TrialFinished { position, failed });
        let all: BTreeSet<u32> = self.disturbed_trials().collect_set();
        for number in all.difference(&self.reported_discards.clone()) {
            let has_number = |line: &&TrialSummary| line.position.number == *number;
            if let Some((position, Some(reason))) =
                self.trials.iter().find(has_number).map(|it| (it.position.clone(), it.discarded.clone()))
            {
                self.emit(&Event::TrialDiscarded { position, reason });
            }
        }
        self.reported_discards = all;
        let block = line.position.block;
        let blocks = collect_attempts(&self.plan, &self.trials);
        if line.position.kind == TrialKind::Judged
            && blocks.counted_attempt(&TrialGroup::from_position(&line.position))
                == Some(line.position.attempt)
            && blocks.is_complete(block)
        {
            let so_far = self.still_running(block);
            let experiment = self.conclude(so_far, &[])?;
            let primary = experiment.comparisons.into_iter().filter(|it| it.primary).collect();
            self.emit(&Event::BlockCompleted { block, so_far: primary });
        }
        Ok(())
    }

    fn still_running(&self, block: u32) -> StopReason {
        let text = format!("still running after block {block}, or killed");
        StopReason { code: "interrupted".to_owned(), text }
    }

    fn interrupted(&self) -> StopReason {
        let complete = collect_attempts(&self.plan, &self.trials).complete_count();
        let text = format!(
            "interrupted after {}; continue with --resume",
            count(complete as usize, "complete block")
        );
        StopReason { code: "interrupted".to_owned(), text }
    }

    fn finish(&mut self, stopped: StopReason) -> Result<Experiment, EngineError> {
        let mut changes = Vec::new();
        // A session without a trial reports no changes.
        if self.session.is_none() {
            changes = changed_facts(
                &self.directory.start().environment,
                &(self.context.read_environment)().environment,
            );
            let mut sessions = self.directory.sessions().to_vec();
            if let Some(session) = sessions.last_mut() {
                let new = changes.iter().filter(|it| !session.differences.contains(it));
                let new: Vec<String> = new.cloned().collect();
                session.differences.extend(new);
            }
            self.directory.store_sessions(sessions)?;
        }
        let experiment = self.conclude(stopped.clone(), &changes)?;
        self.emit(&Event::Stopped(stopped));
        Ok(experiment)
    }

    /// Judges the trials so far, and stores the conclusions.
    fn conclude(&self, stopped: StopReason, changes: &[String]) -> Result<Experiment, EngineError> {
        let start = self.directory.start();
        let sessions = self.directory.sessions();
        let mut all = self.directory.change_descriptions();
        all.extend(changes.iter().filter(|change| !all.contains(change)).cloned().collect::<Vec<_>>());
        let input = JudgeInput {
            plan: &self.plan,
            trials: &self.trials,
            directory: self.directory,
            changes: &all,
            stopped: &stopped,
        };
        let judged = (self.context.judge)(input);
        let mut warnings = judged.warnings;
        warnings.extend(super::warnings(self.directory, &self.plan, &self.trials));
        let experiment = Experiment {
            schema: SCHEMA.to_owned(),
            weir: self.weir.clone(),
            command: start.command.clone(),
            started_at: start.started_at.clone(),
            duration_s: sessions.iter().map(|it| it.duration_s).sum(),
            partial: !matches!(stopped.code.as_str(), "concluded" | "max_blocks"),
            resumed: (sessions.len() as u32).saturating_sub(1),
            host: start.host.clone(),
            environment: start.environment.clone(),
            plan: self.plan.clone(),
            stopped,
            trials: self.trials.clone(),
            cells: judged.cells,
            comparisons: judged.comparisons,
            warnings,
            scalings: judged.scalings,
            answer: judged.answer,
            finish: judged.finish,
            summary: judged.summary,
        };
        self.directory.store_experiment(&experiment)?;
        Ok(experiment)
    }
}
