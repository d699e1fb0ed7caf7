//! Runs the trials of an experiment one after the other, each stored before the next begins, and concludes
//! after each block. What comes next is decided by [`super::next`] from what is stored, so that a kill at
//! any moment costs the trial that ran, and nothing else.
//!
//! Not for what a trial does, nor for the statistics.

use std::collections::BTreeSet;

use record::experiment::{Experiment, Plan, SCHEMA, Stopped, TrialLine};
use record::run::Weir;
use record::trial::{Kind, Trial};

use super::blocks::{Group, mark};
use super::check::check;
use super::discard::rest_ns;
use super::environment::{changed, differs};
use super::events::Event;
use super::folder::{Folder, Session};
use super::hooks::{Ask, Case, EngineError, Hooks, NotRun, Ran, Runner};
use super::next::{Given, Slot, Step, blocks, next};
use super::outlook::{Overhead, outlook};
use super::warm_up::{PILOT_EXTRA_S, choose};
use crate::words::count;

/// Runs an experiment from where its folder stands to its end, and concludes. One that is at its end
/// is concluded again.
///
/// # Errors
/// Its plan cannot be run, this is not where it began, or the folder cannot be written.
pub fn run(
    folder: &mut Folder,
    runner: &mut dyn Runner,
    hooks: Hooks<'_>,
) -> Result<Experiment, EngineError> {
    check(&folder.start().plan)?;
    let mut engine = Engine::new(folder, hooks)?;
    engine.go(runner)
}

struct Engine<'f, 'h> {
    folder: &'f mut Folder,
    hooks: Hooks<'h>,
    /// The plan, with the warm-up when it is known.
    plan: Plan,
    weir: Weir,
    /// Every trial, marked.
    lines: Vec<TrialLine>,
    /// Numbers of the trials of which it was told that they are discarded.
    announced: BTreeSet<u32>,
    /// This session, before its first trial; from then on it is the folder's last.
    session: Option<Session>,
    /// What trials took beyond what was asked for.
    overhead: Overhead,
}

impl<'f, 'h> Engine<'f, 'h> {
    fn new(folder: &'f mut Folder, hooks: Hooks<'h>) -> Result<Self, EngineError> {
        let here = (hooks.here)();
        let what = differs(folder.start(), &here);
        if !what.is_empty() && !hooks.allow_other {
            return Err(EngineError::Differs(what));
        }
        for broken in folder.set_aside() {
            (hooks.told)(&Event::SetAside(broken.clone()));
        }
        if !what.is_empty() {
            (hooks.told)(&Event::Differs(what.clone()));
        }
        let session = Session {
            weir: here.weir.clone(),
            after: folder.number_next() - 1,
            anew: what.clone(),
            differs: what,
            ..Session::default()
        };
        let mut plan = folder.start().plan.clone();
        plan.warm_up_s = plan.warm_up_s.or_else(|| folder.warm_up().map(|it| it.warm_up_s));
        let mut engine = Self {
            plan,
            weir: here.weir,
            lines: Vec::new(),
            announced: BTreeSet::new(),
            session: Some(session),
            overhead: Overhead::default(),
            folder,
            hooks,
        };
        engine.mark();
        // Taken up again after it failed, it tries again.
        let has_failed = matches!(engine.next(), Step::End(stopped) if stopped.code == "failed");
        engine.session.iter_mut().for_each(|session| session.afresh = has_failed);
        engine.announced = engine.disturbed().collect();
        Ok(engine)
    }

    fn go(&mut self, runner: &mut dyn Runner) -> Result<Experiment, EngineError> {
        let trials = self.lines.len() as u32;
        let resumed = self.folder.sessions().len() as u32;
        let outlook = outlook(&self.plan, &self.lines, self.folder.number_next(), self.overhead);
        self.tell(&Event::Started { resumed, trials, outlook });
        let stopped = loop {
            match self.next() {
                Step::End(stopped) => break stopped,
                Step::WarmUp => self.warm_up()?,
                Step::Run(slot) => {
                    self.rest();
                    if (self.hooks.stop)() || !self.trial(&slot, runner)? {
                        break self.interrupted();
                    }
                }
            }
        };
        self.end(stopped)
    }

    fn tell(&mut self, event: &Event) {
        (self.hooks.told)(event);
    }

    /// Waits, if the machine was just disturbed.
    fn rest(&mut self) {
        let rest_ns = rest_ns(&self.lines);
        if rest_ns > 0 {
            self.tell(&Event::Rests { rest_ns });
            (self.hooks.rest)(rest_ns);
        }
    }

    fn next(&self) -> Step {
        let afresh = self.folder.sessions().iter().chain(&self.session).filter(|it| it.afresh);
        let given = Given {
            plan: &self.plan,
            warm_up: self.plan.warm_up_s.is_some(),
            forgiven: afresh.map(|it| it.after).max().unwrap_or(0),
            settled: self.hooks.settled,
        };
        next(given, &self.lines)
    }

    fn mark(&mut self) {
        self.lines = self.folder.lines().to_vec();
        let mut changed = self.folder.changed_after();
        changed.extend(self.session.iter().filter_map(Session::changed));
        mark(&self.plan, &mut self.lines, &changed);
    }

    /// Numbers of the trials that something disturbed.
    fn disturbed(&self) -> impl Iterator<Item = u32> {
        let own =
            |line: &&TrialLine| line.discarded.as_ref().is_some_and(|why| !why.is_of_its_block());
        self.lines.iter().filter(own).map(|line| line.place.number)
    }

    fn warm_up(&mut self) -> Result<(), EngineError> {
        let warm_up = choose(&self.plan, &self.lines);
        self.folder.store_warm_up(&warm_up)?;
        // From what was stored, which is what a resumed experiment sees.
        self.plan.warm_up_s = self.folder.warm_up().map(|it| it.warm_up_s);
        self.tell(&Event::WarmUp(warm_up));
        Ok(())
    }

    fn ask(&self, slot: &Slot) -> Ask {
        let ns = |seconds: f64| (seconds * 1e9).round() as u64;
        let plan = &self.plan;
        let warm_up_ns = ns(plan.warm_up_s.unwrap_or(0.0));
        let ask = Ask { warm_up_ns, duration_ns: ns(plan.duration_s), ..Ask::default() };
        match slot.kind {
            Kind::Judged => Ask { profile: plan.profile, ..ask },
            Kind::Probe => Ask { calls: plan.calls.clone(), ..ask },
            // What a warm-up would hide is what is looked for.
            Kind::Pilot => {
                Ask { warm_up_ns: 0, duration_ns: ns(plan.duration_s + PILOT_EXTRA_S), ..ask }
            }
        }
    }

    /// Runs one trial and stores it. False: it was ended from outside, and nothing is stored.
    fn trial(&mut self, slot: &Slot, runner: &mut dyn Runner) -> Result<bool, EngineError> {
        let place = self.folder.place(slot);
        let ask = self.ask(slot);
        let outlook = outlook(&self.plan, &self.lines, self.folder.number_next(), self.overhead);
        self.tell(&Event::Begins { place: place.clone(), outlook });
        self.begin_session()?;
        let (began_ns, started_at) = ((self.hooks.clock)(), (self.hooks.wall)());
        let ran = match runner.run(&place, &ask) {
            Ok(ran) => ran,
            Err(NotRun::Stopped) => return Ok(false),
            Err(NotRun::Failed(why)) => {
                let trial = Trial {
                    weir: self.weir.clone(),
                    started_at,
                    warm_up_s: ask.warm_up_ns as f64 / 1e9,
                    failed: Some(why),
                    ..Trial::default()
                };
                Ran { trial, ..Ran::default() }
            }
        };
        let took_s = (self.hooks.clock)().saturating_sub(began_ns) as f64 / 1e9;
        if !ran.left.is_empty() {
            self.tell(&Event::Left(ran.left));
        }
        let mut trial = ran.trial;
        trial.schema = record::trial::SCHEMA.to_owned();
        trial.place = place;
        let line = self.folder.store(trial, ran.folded.as_deref())?;
        self.spent(took_s, &ask)?;
        self.mark();
        self.after(&line)?;
        Ok(true)
    }

    /// A session begins with its first trial: one that had nothing to run is none.
    fn begin_session(&mut self) -> Result<(), EngineError> {
        if let Some(session) = self.session.take() {
            let mut sessions = self.folder.sessions().to_vec();
            sessions.push(Session { started_at: (self.hooks.wall)(), ..session });
            self.folder.store_sessions(sessions)?;
        }
        Ok(())
    }

    fn spent(&mut self, took_s: f64, ask: &Ask) -> Result<(), EngineError> {
        let asked_s = (ask.warm_up_ns + ask.duration_ns) as f64 / 1e9;
        self.overhead.add(took_s - asked_s);
        let mut sessions = self.folder.sessions().to_vec();
        if let Some(session) = sessions.last_mut() {
            session.took_s += took_s;
        }
        Ok(self.folder.store_sessions(sessions)?)
    }

    /// Says what came of a trial, and concludes when its block is whole.
    fn after(&mut self, line: &TrialLine) -> Result<(), EngineError> {
        let (place, failed) = (line.place.clone(), line.failed.clone());
        self.tell(&Event::Ran { place, failed });
        let all: BTreeSet<u32> = self.disturbed().collect();
        for number in all.difference(&self.announced.clone()) {
            let of_number = |line: &&TrialLine| line.place.number == *number;
            if let Some((place, Some(why))) =
                self.lines.iter().find(of_number).map(|it| (it.place.clone(), it.discarded.clone()))
            {
                self.tell(&Event::Discarded { place, why });
            }
        }
        self.announced = all;
        let block = line.place.block;
        let blocks = blocks(&self.plan, &self.lines);
        if line.place.kind == Kind::Judged
            && blocks.counting(&Group::of(&line.place)) == Some(line.place.attempt)
            && blocks.is_whole(block)
        {
            let so_far = self.running(block);
            let experiment = self.conclude(so_far, &[])?;
            let primary = experiment.comparisons.into_iter().filter(|it| it.primary).collect();
            self.tell(&Event::BlockDone { block, so_far: primary });
        }
        Ok(())
    }

    fn running(&self, block: u32) -> Stopped {
        let text = format!("after block {block} it was still running, or it was killed");
        Stopped { code: "interrupted".to_owned(), text }
    }

    fn interrupted(&self) -> Stopped {
        let whole = blocks(&self.plan, &self.lines).whole();
        let text = format!(
            "ended from outside after {}; --resume goes on with it",
            count(whole as usize, "whole block")
        );
        Stopped { code: "interrupted".to_owned(), text }
    }

    fn end(&mut self, stopped: Stopped) -> Result<Experiment, EngineError> {
        let mut changes = Vec::new();
        // A session without a trial has seen nothing change.
        if self.session.is_none() {
            changes = changed(&self.folder.start().environment, &(self.hooks.here)().environment);
            let mut sessions = self.folder.sessions().to_vec();
            if let Some(session) = sessions.last_mut() {
                let new = changes.iter().filter(|it| !session.differs.contains(it));
                let new: Vec<String> = new.cloned().collect();
                session.differs.extend(new);
            }
            self.folder.store_sessions(sessions)?;
        }
        let experiment = self.conclude(stopped.clone(), &changes)?;
        self.tell(&Event::Stopped(stopped));
        Ok(experiment)
    }

    /// Judges what is there, and writes it down.
    fn conclude(&self, stopped: Stopped, changes: &[String]) -> Result<Experiment, EngineError> {
        let start = self.folder.start();
        let sessions = self.folder.sessions();
        let mut all = self.folder.changes();
        all.extend(
            changes.iter().filter(|change| !all.contains(change)).cloned().collect::<Vec<_>>(),
        );
        let case =
            Case { plan: &self.plan, lines: &self.lines, folder: self.folder, changes: &all };
        let judged = (self.hooks.judge)(case);
        let mut warnings = judged.warnings;
        warnings.extend(super::warnings(self.folder, &self.plan, &self.lines));
        let experiment = Experiment {
            schema: SCHEMA.to_owned(),
            weir: self.weir.clone(),
            command: start.command.clone(),
            started_at: start.started_at.clone(),
            duration_s: sessions.iter().map(|it| it.took_s).sum(),
            partial: !matches!(stopped.code.as_str(), "precise" | "most_blocks"),
            resumed: (sessions.len() as u32).saturating_sub(1),
            host: start.host.clone(),
            environment: start.environment.clone(),
            plan: self.plan.clone(),
            stopped,
            trials: self.lines.clone(),
            cells: judged.cells,
            comparisons: judged.comparisons,
            warnings,
            scalings: judged.scalings,
            summary: judged.summary,
        };
        self.folder.store_experiment(&experiment)?;
        Ok(experiment)
    }
}
