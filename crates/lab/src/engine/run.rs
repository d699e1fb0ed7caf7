//! Runs the trials of an experiment one after the other, each stored before the next begins, and concludes
//! after each block. What comes next is decided by [`super::next`] from what is stored, so that a kill at
//! any moment costs the trial that ran, and nothing else.
//!
//! Not for what a trial does, nor for the statistics.

use std::collections::BTreeSet;
use std::io;

use record::experiment::{
    Cell, Comparison, Experiment, Plan, SCHEMA, ScalingLine, Stopped, TrialLine, Warning,
};
use record::run::Weir;
use record::trial::{Kind, Place, Trial};

use super::blocks::mark;
use super::discard;
use super::environment::{Here, changed, differs};
use super::events::{Event, Outlook};
use super::folder::{Folder, Session};
use super::next::{Given, Slot, Step, blocks, next};
use super::schedule::{CELLS_MAX, imbalance, positions};
use super::warm_up::{PILOT_EXTRA_S, WARM_UP_S_MIN, choose};

/// The most blocks of a plan: a week of blocks of a minute.
const BLOCKS_MAX: u32 = 10_000;
/// The longest name of an arm or a load: two of them are in the name of a file.
const NAME_BYTES_MAX: usize = 80;

/// How a trial is to be run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ask {
    /// How long the load runs before, unrecorded, in ns.
    pub warm_up_ns: u64,
    /// How long it runs, in ns.
    pub duration_ns: u64,
    /// Whether the subject's functions are sampled.
    pub profile: bool,
    /// The function of which calls are counted.
    pub calls: Option<String>,
}

/// What a trial gave.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// Its record. Its place is filled in by the engine.
    pub trial: Trial,
    /// Folded stacks of its profile.
    pub folded: Option<String>,
    /// What it made and could not remove, in words.
    pub left: Vec<String>,
}

/// Why a trial has no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotRun {
    /// It was ended from outside.
    Stopped,
    /// Something does not work: which program, and its last words.
    Failed(String),
}

/// Runs one trial.
pub trait Runner {
    /// Runs the trial at `place`, with fresh programs.
    ///
    /// # Errors
    /// It was ended from outside, or failed.
    fn run(&mut self, place: &Place, ask: &Ask) -> Result<Ran, NotRun>;
}

/// What a judgement is made of.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// The plan, with the warm-up that was found.
    pub plan: &'a Plan,
    /// Every trial, in the order of running; those that do not count are marked.
    pub lines: &'a [TrialLine],
    /// Where their records are.
    pub folder: &'a Folder,
    /// What of the machine, the programs or weir changed since it began, in words.
    pub changes: &'a [String],
}

/// What the trials say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judged {
    /// Every arm under every load.
    pub cells: Vec<Cell>,
    /// Every arm against the baseline.
    pub comparisons: Vec<Comparison>,
    /// What has to be known before they are believed.
    pub warnings: Vec<Warning>,
    /// How throughput grows along a factor.
    pub scalings: Vec<ScalingLine>,
    /// In words: the first sentence is the answer.
    pub summary: Vec<String>,
}

/// What an experiment needs of the world, and of the statistics.
pub struct Hooks<'a> {
    /// Monotonic time, in ns.
    pub clock: &'a dyn Fn() -> u64,
    /// Now, RFC 3339.
    pub wall: &'a dyn Fn() -> String,
    /// Whether to end early; asked before each trial. A trial that runs is ended by its runner.
    pub stop: &'a dyn Fn() -> bool,
    /// The machine, weir and the programs as they are; asked before the first trial and at
    /// the end.
    pub here: &'a dyn Fn() -> Here,
    /// Whether to go on where these are other than when it began.
    pub allow_other: bool,
    /// The stopping rule: whether what counts so far is precise enough.
    pub settled: &'a dyn Fn(&Plan, &[TrialLine]) -> bool,
    /// What the trials so far say.
    pub judge: &'a dyn Fn(Case<'_>) -> Judged,
    /// Is told what happens.
    pub told: &'a mut dyn FnMut(&Event),
}

impl std::fmt::Debug for Hooks<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hooks").field("allow_other", &self.allow_other).finish_non_exhaustive()
    }
}

/// Why an experiment cannot run. What was measured is on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineError {
    /// The plan cannot be run: everything that is wrong with it.
    Plan(Vec<String>),
    /// It cannot go on here: what is other than when it began.
    Differs(Vec<String>),
    /// The folder cannot be written.
    Io(String),
}

impl std::fmt::Display for EngineError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Plan(what) => write!(f, "the plan cannot be run: {}", what.join("; ")),
            Self::Differs(what) => write!(
                f,
                "this is not where the experiment began ({}): its blocks would not be comparable; go on \
                 where it began, or begin a new one, or allow it",
                what.join("; ")
            ),
            Self::Io(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for EngineError {}

impl From<io::Error> for EngineError {
    fn from(error: io::Error) -> Self {
        Self::Io(error.to_string())
    }
}

/// Whether a plan can be run.
///
/// # Errors
/// Everything that is wrong with it.
pub fn check(plan: &Plan) -> Result<(), EngineError> {
    let mut wrong = Vec::new();
    let mut say = |is_wrong: bool, text: &str| {
        if is_wrong {
            wrong.push(text.to_owned());
        }
    };
    let again = |arm: &record::experiment::Arm| arm.again.as_ref() == Some(&plan.baseline);
    say(plan.arm(&plan.baseline).is_none(), "the baseline is none of its arms");
    say(!plan.arms.iter().any(again), "no arm is the baseline again (A/A)");
    say(plan.loads.is_empty(), "it has no load");
    say(plan.metrics.is_empty(), "it has no metric");
    say(plan.arms.len() * plan.loads.len() > CELLS_MAX, "more than 360 arms under loads");
    let blocks = 1..=plan.blocks_max.min(BLOCKS_MAX);
    say(!blocks.contains(&plan.blocks_min), "blocks are from 1 to 10,000, the fewest before the most");
    say(!plan.duration_s.is_finite() || plan.duration_s <= 0.0, "its loads have no length");
    say(!(0.0..=10.0).contains(&plan.reruns_max_share), "the share of reruns is from 0 to 10");
    for name in discard::unknown(&plan.discard) {
        say(true, &format!("there is no covariate '{name}'"));
    }
    for names in [
        plan.arms.iter().map(|arm| &arm.name).collect::<Vec<_>>(),
        plan.loads.iter().map(|load| &load.name).collect(),
    ] {
        let unique: BTreeSet<_> = names.iter().collect();
        say(unique.len() < names.len(), "a name is there twice");
        for name in names.into_iter().filter(|name| !is_name(name)) {
            say(true, &format!("'{name}' is no name: letters, digits, '.', '-' and '_', at most 80"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(EngineError::Plan(wrong)) }
}

/// Whether a name may be in the name of a file.
fn is_name(name: &str) -> bool {
    let fits = |one: char| one.is_ascii_alphanumeric() || ".-_".contains(one);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(fits) && !name.starts_with('.')
}

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

struct Engine<'a> {
    folder: &'a mut Folder,
    hooks: Hooks<'a>,
    /// The plan, with the warm-up when it is known.
    plan: Plan,
    weir: Weir,
    /// Every trial, marked.
    lines: Vec<TrialLine>,
    /// Numbers of the trials of which it was told that they are discarded.
    announced: BTreeSet<u32>,
    /// This session, before its first trial; from then on it is the folder's last.
    session: Option<Session>,
    /// What trials took beyond what was asked for, in s, and how many.
    overhead: (f64, u32),
}

impl<'a> Engine<'a> {
    fn new(folder: &'a mut Folder, mut hooks: Hooks<'a>) -> Result<Self, EngineError> {
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
        let failed = folder.experiment().is_ok_and(|it| it.stopped.code == "failed");
        let session = Session {
            weir: here.weir.clone(),
            after: folder.number_next() - 1,
            afresh: failed,
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
            overhead: (0.0, 0),
            folder,
            hooks,
        };
        engine.mark();
        engine.announced = engine.disturbed().collect();
        Ok(engine)
    }

    fn go(&mut self, runner: &mut dyn Runner) -> Result<Experiment, EngineError> {
        let trials = self.lines.len() as u32;
        let resumed = self.folder.sessions().len() as u32;
        let outlook = self.outlook();
        self.tell(&Event::Started { resumed, trials, outlook });
        let stopped = loop {
            match self.next() {
                Step::End(stopped) => break stopped,
                Step::WarmUp => self.warm_up()?,
                Step::Run(slot) => {
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
        mark(&self.plan, &mut self.lines);
    }

    /// Numbers of the trials that something disturbed.
    fn disturbed(&self) -> impl Iterator<Item = u32> {
        let own = |line: &&TrialLine| {
            line.discarded.as_ref().is_some_and(|why| !why.is_of_its_block())
        };
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
        let outlook = self.outlook();
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
        self.overhead.0 += (took_s - asked_s).max(0.0);
        self.overhead.1 += 1;
        let mut sessions = self.folder.sessions().to_vec();
        if let Some(session) = sessions.last_mut() {
            session.took_s += took_s;
        }
        Ok(self.folder.store_sessions(sessions)?)
    }

    /// Says what came of a trial, and concludes when its block is whole.
    fn after(&mut self, line: &TrialLine) -> Result<(), EngineError> {
        let metric = self.plan.primary();
        let headline = metric.and_then(|metric| {
            line.metrics.get(&metric.name).map(|value| (metric.clone(), *value))
        });
        let (place, failed) = (line.place.clone(), line.failed.clone());
        self.tell(&Event::Ran { place, headline, failed });
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
        if line.place.kind == Kind::Judged
            && blocks(&self.plan, &self.lines).counting(block) == Some(line.place.attempt)
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
        let text = format!("ended from outside after {whole} whole blocks; --resume goes on with it");
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
        let mut all: Vec<String> = Vec::new();
        for change in sessions.iter().flat_map(|it| &it.differs).chain(changes) {
            if !all.contains(change) {
                all.push(change.clone());
            }
        }
        let case =
            Case { plan: &self.plan, lines: &self.lines, folder: self.folder, changes: &all };
        let judged = (self.hooks.judge)(case);
        let mut warnings = judged.warnings;
        warnings.extend(self.warnings());
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

    /// What the engine itself has to say: of the warm-up, and of the order.
    fn warnings(&self) -> Vec<Warning> {
        let warning = |code: &str, text: String| Warning { code: code.to_owned(), arm: None, text };
        let unsteady = self.folder.warm_up().filter(|it| !it.unsteady.is_empty());
        let unsteady = unsteady.map(|it| {
            let text = format!("{} ({})", it.text, it.unsteady.join("; "));
            warning("warm_up", text)
        });
        let unfair = imbalance(&positions(&self.plan, &self.lines));
        unsteady.into_iter().chain(unfair.map(|text| warning("positions", text))).collect()
    }

    /// How many trials are to come, and how long they take.
    fn outlook(&self) -> Outlook {
        let plan = &self.plan;
        let cells = (plan.arms.len() * plan.loads.len()) as u32;
        let ran = |kind: Kind| {
            let of_kind = self.lines.iter().filter(|it| it.place.kind == kind && it.failed.is_none());
            of_kind.count() as u32
        };
        let pilots = match plan.warm_up_s {
            None => cells.saturating_sub(ran(Kind::Pilot)),
            Some(_) => 0,
        };
        let probes = match &plan.calls {
            Some(_) => {
                let arms = plan.arms.iter().filter(|arm| arm.again.is_none()).count();
                ((arms * plan.loads.len()) as u32).saturating_sub(ran(Kind::Probe))
            }
            None => 0,
        };
        let blocks = blocks(plan, &self.lines);
        let open = blocks.latest().filter(|(_, _, attempt)| blocks.is_open(attempt));
        let open = open.map_or(0, |(_, _, attempt)| attempt.run.len() as u32);
        let begun = blocks.whole() + u32::from(open > 0);
        let to_run = |most: u32| (most.max(begun) - blocks.whole()) * cells - open + probes;
        let overhead_s = self.overhead.0 / f64::from(self.overhead.1.max(1));
        let warm_up_s = plan.warm_up_s.unwrap_or(WARM_UP_S_MIN);
        let trial_s = plan.duration_s + warm_up_s + overhead_s;
        let pilots_s = f64::from(pilots) * (plan.duration_s + PILOT_EXTRA_S + overhead_s);
        let (least, most) = (to_run(plan.blocks_min), to_run(plan.blocks_max));
        let before = self.folder.number_next() - 1 + pilots;
        Outlook {
            at_least: before + least,
            at_most: before + most,
            left_s: (pilots_s + f64::from(least) * trial_s, pilots_s + f64::from(most) * trial_s),
        }
    }
}
