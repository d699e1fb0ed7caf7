//! `weir edge`: searches, drives the ladder, fits, looks for drift, and says what it found.

mod asked;
mod bench;
mod missed;

use std::io::IsTerminal;
use std::time::Duration;

use host::budget::FdBudget;
use load::edge::{
    Ask, Find, Purpose, RUNGS, Search, Step, added, closed_plan, goal, knee, observer_plan,
    observer_rate_per_s, operating_range, rungs, scaling, scaling_connections, scaling_points,
    trial_plan,
};
use load::plan::{Objective, Plan};
use record::edge::{Conclusion, Edge, End, Knee, Outcome, SCHEMA, Scaling, Trial};
use record::problem::Problem;
use record::run::{Run, Weir};
use rt::drain::{Drain, DrainWatch, Held, hold_signals};

use asked::Asked;
pub(super) use asked::check;
use bench::{Bench, Setup};
use missed::{HeldLevel, Miss, Missed};

use super::load::recorded_host;
use crate::exit::{Exit, Failure};
use crate::flags::Typed;
use crate::output::edge::{announcement, summary, trial_line, words};
use crate::output::file::write_json;
use crate::output::{colour, print};
use crate::preflight;

pub(super) fn run(typed: Typed<'_>, arguments: &[String]) -> Result<Exit, Failure> {
    let mut asked = check(typed, typed.values())?;
    preflight::outputs(typed, &["json"], &[])?;
    preflight::check_sources(&asked.base)?;
    if let Some(folder) = &asked.keep {
        std::fs::create_dir_all(folder)
            .map_err(|why| Problem::new("--keep", format!("{}: {why}", folder.display())))
            .map_err(|problem| vec![problem])?;
    }
    let own_limit = bound_by_descriptors(&mut asked);
    let drain = Drain::default();
    let stop = drain.watch();
    hold_signals(Held::Stop)?.follow(drain, None)?;
    let json = typed.text("json");
    let quiet = json.as_deref() == Some("-");
    if !quiet {
        print(&announcement(&asked.base, asked.find, duration_ns(&asked)));
    }
    let lines = !quiet && std::io::stdout().is_terminal();
    let started_at = record::file::wall_clock();
    let edge =
        Explorer::new(&asked, (typed, arguments), &stop, lines).explore(own_limit, started_at)?;
    if !quiet {
        print(&summary(&edge, colour()));
    }
    write_json(&edge, json.as_deref())?;
    Ok(exit_of(&edge, asked.bounded))
}

/// Connections are bounded by what this process may open; the sentence that says so.
fn bound_by_descriptors(asked: &mut Asked) -> Option<String> {
    let limit = rt::limits::raise_descriptor_limit().now;
    let shortage = FdBudget::client(load::plan::CONNECTIONS_MAX, limit).check().err()?;
    if asked.find != Find::Connections {
        return None;
    }
    let settings = &mut asked.settings;
    // With fewer than that it is the preflight of the first trial that says what is short.
    let possible = (shortage.connections_possible as f64).max(settings.lowest);
    if settings.highest <= possible {
        return None;
    }
    settings.highest = possible;
    settings.from = settings.from.min(possible);
    Some(format!("descriptors: this process may open {limit} files, so {possible} connections"))
}

/// How long it takes: as a rule, and at the most, in ns.
fn duration_ns(asked: &Asked) -> (u64, u64) {
    let settings = &asked.settings;
    let (usual_ns, most_ns) = settings.duration_ns();
    if asked.search_only || asked.find == Find::Connections {
        return (usual_ns, most_ns);
    }
    let ladders = if asked.direct.is_some() { 2 } else { 1 };
    let ladder_ns = ladders * RUNGS.len() as u64 * settings.full_ns;
    let scaling_ns = match asked.find {
        Find::Rate if !asked.bounded => {
            scaling_connections(asked.base.connections).len() as u64 * settings.full_ns
        }
        _ => 0,
    };
    let behind_ns = ladder_ns + scaling_ns + settings.full_ns;
    (usual_ns + behind_ns, most_ns + 2 * behind_ns)
}

/// After a trial that overloaded the subject, or in which something disturbed us, it is quiet for so long.
const CALM: Duration = Duration::from_millis(300);

struct Explorer<'a> {
    asked: &'a Asked,
    bench: Bench<'a>,
    arguments: &'a [String],
    lines: bool,
    objectives: Vec<Objective>,
    /// Mean latency of the first level that held.
    reference_ns: Option<u64>,
    /// The last verifying run that held, of each level; after a drift also the rechecking one.
    held: Vec<(f64, Run)>,
    missed: Missed<Run>,
    knee: Option<Knee>,
    operating_range: Option<(f64, f64)>,
    scaling: Option<Scaling>,
    notes: Vec<String>,
}

impl<'a> Explorer<'a> {
    fn new(
        asked: &'a Asked,
        (typed, arguments): (Typed<'a>, &'a [String]),
        stop: &'a DrainWatch,
        lines: bool,
    ) -> Self {
        Self {
            asked,
            bench: Bench::new((typed, arguments), stop, asked.find, asked.keep.as_deref()),
            arguments,
            lines,
            objectives: goal(&asked.base.objectives, None),
            reference_ns: None,
            held: Vec::new(),
            missed: Missed::default(),
            knee: None,
            operating_range: None,
            scaling: None,
            notes: Vec::new(),
        }
    }

    fn explore(mut self, own_limit: Option<String>, started_at: String) -> Result<Edge, Failure> {
        let mut search = Search::new(self.asked.settings);
        let mut conclusion = self.follow(&mut search)?;
        let found = matches!(conclusion.end, End::Found | End::Top);
        if let (true, Some(level), false) = (found, conclusion.level, self.bench.is_stopped()) {
            if self.asked.find != Find::Connections && !self.asked.search_only {
                self.ladder(level)?;
                self.scaling()?;
            }
            search.recheck();
            conclusion = self.follow(&mut search)?;
            self.drifted_to(conclusion.level);
        }
        if let (End::Top, Some(own_limit)) = (conclusion.end, own_limit) {
            conclusion.end = End::GeneratorLimit;
            conclusion.limited_at = conclusion.level;
            conclusion.reasons = vec![own_limit];
        }
        if self.bench.is_stopped() {
            self.notes.push("ended by hand: this is what was known then".to_owned());
        }
        Ok(self.into_edge(conclusion, started_at))
    }

    /// What follows from the edge is of the one that was found last; of none, nothing does.
    fn drifted_to(&mut self, level: Option<f64>) {
        let range = |level| operating_range(level, self.knee.as_ref());
        self.operating_range = self.operating_range.and_then(|_| level.map(range));
        if level.is_none() {
            self.knee = None;
        }
    }

    /// Runs what the search asks for, until it ends or is ended.
    fn follow(&mut self, search: &mut Search) -> Result<Conclusion, Failure> {
        loop {
            let ask = match search.next() {
                Step::Ended(conclusion) => return Ok(conclusion),
                Step::Try(ask) => ask,
            };
            if self.bench.is_stopped() || self.is_over() {
                return Ok(search.stopped());
            }
            let plan = self.plan_of(&self.asked.base, &ask);
            let Some(driven) = self.try_one(plan, ask, ask.purpose.name(), None)? else {
                return Ok(search.stopped());
            };
            let (outcome, reasons) = (driven.trial.outcome, driven.trial.reasons.clone());
            self.remember(&ask, driven);
            search.tell(outcome, &reasons);
        }
    }

    /// Whether the time is over that was told in advance.
    fn is_over(&mut self) -> bool {
        let over = self.bench.elapsed_s() > duration_ns(self.asked).1 as f64 / 1e9;
        if over {
            self.notes.push("given up: it took longer than was told in advance".to_owned());
        }
        over
    }

    fn plan_of(&self, base: &Plan, ask: &Ask) -> Plan {
        let mut plan = trial_plan(base, self.asked.find, ask.level, ask.length_ns);
        plan.objectives.clone_from(&self.objectives);
        plan
    }

    /// Runs a trial; `None` when it was ended by hand, so that it says nothing.
    fn try_one(
        &mut self,
        plan: Plan,
        ask: Ask,
        purpose: &'static str,
        beside: Option<Plan>,
    ) -> Result<Option<bench::Driven>, Failure> {
        let setup = Setup { ask, purpose, waiting_ns: self.reference_ns, beside };
        let driven = match self.bench.drive(plan, setup) {
            // Ended before it began, which the engine calls a failure.
            Err(_) if self.bench.is_stopped() => return Ok(None),
            driven => driven?,
        };
        if self.bench.is_stopped() {
            self.bench.trials.pop();
            return Ok(None);
        }
        if self.lines {
            print(&trial_line(&driven.trial, self.asked.find));
        }
        if driven.trial.outcome != Outcome::Held {
            std::thread::sleep(CALM);
        }
        Ok(Some(driven))
    }

    /// Keeps the reference, and the runs at the edge.
    fn remember(&mut self, ask: &Ask, driven: bench::Driven) {
        let (trial, Some(run)) = (driven.trial, driven.run) else {
            return;
        };
        match trial.outcome {
            Outcome::Held => {
                if self.reference_ns.is_none() {
                    self.reference_ns = Some(trial.mean_ns as u64);
                    // With idle connections latency is not what is asked about.
                    let bound = (self.asked.find != Find::Connections).then_some(trial.p99_ns);
                    self.objectives = goal(&self.asked.base.objectives, bound);
                }
                let is_known = self.held.iter().any(|(level, _)| *level == ask.level);
                match ask.purpose {
                    Purpose::Verify => {
                        self.held.retain(|(level, _)| *level != ask.level);
                        self.held.push((ask.level, run));
                    }
                    // Shorter; it counts where nothing longer held.
                    Purpose::Recheck if !is_known => self.held.push((ask.level, run)),
                    _ => {}
                }
            }
            Outcome::Missed => self.miss(&trial, run),
            Outcome::NoVerdict => {}
        }
    }

    fn miss(&mut self, trial: &Trial, run: Run) {
        self.missed.add(Miss {
            level: trial.level,
            goodput_per_s: trial.goodput_per_s(),
            reasons: trial.reasons.clone(),
            diagnosis: run.diagnosis.clone(),
            run,
        });
    }

    /// Drives the ladder, in turn with the direct one, for the knee and the range to run it at.
    fn ladder(&mut self, edge: f64) -> Result<(), Failure> {
        for level in rungs(edge, self.asked.settings.highest) {
            let ask =
                Ask { level, length_ns: self.asked.settings.full_ns, purpose: Purpose::Confirm };
            let mut plan = self.plan_of(&self.asked.base, &ask);
            let beside = observer_plan(&mut plan, observer_rate_per_s(level));
            let Some(driven) = self.try_one(plan, ask, "ladder", Some(beside))? else {
                return Ok(());
            };
            if let (Outcome::Missed, Some(run)) = (driven.trial.outcome, driven.run) {
                self.miss(&driven.trial, run);
            }
            if let Some(direct) = &self.asked.direct {
                let plan = self.plan_of(direct, &ask);
                if self.try_one(plan, ask, "direct", None)?.is_none() {
                    return Ok(());
                }
            }
        }
        let of_ladder = self
            .bench
            .trials
            .iter()
            .filter(|trial| trial.purpose == "ladder" && trial.outcome != Outcome::NoVerdict);
        let points: Vec<_> = of_ladder.map(|trial| (trial.level, trial.p99_ns as f64)).collect();
        self.knee = knee(&points, self.asked.base.seed).map_err(|why| self.notes.push(why)).ok();
        self.operating_range = Some(operating_range(edge, self.knee.as_ref()));
        Ok(())
    }

    /// Drives a closed loop with one connection, and more and more, for the law of scaling.
    fn scaling(&mut self) -> Result<(), Failure> {
        if self.asked.find != Find::Rate {
            return Ok(());
        }
        if self.asked.bounded {
            self.notes.push(
                "no law of scaling: a closed loop is as fast as its answers, and --to bounds the rate"
                    .to_owned(),
            );
            return Ok(());
        }
        let length_ns = self.asked.settings.full_ns;
        let base = Plan { objectives: self.objectives.clone(), ..self.asked.base.clone() };
        let mut trials = Vec::new();
        for connections in scaling_connections(base.connections) {
            let plan = closed_plan(&base, connections, length_ns);
            let ask = Ask { level: connections as f64, length_ns, purpose: Purpose::Confirm };
            let Some(driven) = self.try_one(plan, ask, "scaling", None)? else {
                return Ok(());
            };
            let met = |run: &Run| run.objectives.iter().all(|objective| objective.met);
            let met = driven.run.as_ref().is_none_or(met);
            trials.push((driven.trial, met));
        }
        let (points, left_out) = scaling_points(&trials);
        self.notes.extend(left_out);
        let fitted = scaling(&points, self.asked.base.seed);
        self.scaling = fitted.map_err(|why| self.notes.push(why)).ok();
        Ok(())
    }

    fn into_edge(mut self, conclusion: Conclusion, started_at: String) -> Edge {
        let is_found = |(level, _): &(f64, Run)| Some(*level) == conclusion.level;
        let held = self.held.into_iter().find(is_found).map(|(_, run)| run);
        let verdict = held.as_ref().and_then(|run| run.diagnosis.as_ref());
        let verdict = verdict.map_or("unknown", |diagnosis| diagnosis.verdict.as_str());
        let edge = conclusion.level.map(|level| HeldLevel { level, verdict });
        let (stopped, note) = self.missed.stopped_by(edge);
        self.notes.extend(note);
        let (stopped_by, stopped_run) = match stopped {
            Some(miss) => (miss.diagnosis, Some(Box::new(miss.run))),
            None => (None, None),
        };
        let at_edge = held.or_else(|| self.missed.lowest().map(|miss| miss.run.clone()));
        if let Some(run) = &at_edge
            && run.generator.in_flight_mean > CONNECTIONS_SHARE * self.asked.base.connections as f64
            && self.asked.find != Find::Connections
        {
            self.notes.push(format!(
                "at the edge {:.0} of {} connections were in use: it may take more with a larger -c",
                run.generator.in_flight_mean, self.asked.base.connections
            ));
        }
        let mut edge = Edge {
            schema: SCHEMA.to_owned(),
            weir: Weir {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                commit: env!("WEIR_COMMIT").to_owned(),
            },
            command: self.arguments.to_vec(),
            started_at,
            duration_s: self.bench.elapsed_s(),
            host: recorded_host(host::facts::read(), Vec::new()),
            plan: serde_json::to_value(&self.asked.base).unwrap_or_default(),
            find: self.asked.find.name().to_owned(),
            objectives: self
                .objectives
                .iter()
                .map(|objective| objective.text().to_owned())
                .collect(),
            conclusion,
            words: String::new(),
            added: added(&self.bench.trials),
            trials: self.bench.trials,
            knee: self.knee,
            operating_range: self.operating_range,
            scaling: self.scaling,
            notes: self.notes,
            stopped_by,
            stopped_run,
            at_edge: at_edge.map(Box::new),
        };
        edge.words = words(&edge);
        edge
    }
}

/// When more of the connections are in use at the edge, they may be what limits it.
const CONNECTIONS_SHARE: f64 = 0.8;

/// That the highest level held is a success only for who named that level.
fn exit_of(edge: &Edge, bounded: bool) -> Exit {
    match edge.conclusion.end {
        End::Found => Exit::Done,
        End::Top if bounded => Exit::Done,
        End::BelowLowest => Exit::ObjectiveMissed,
        End::Top | End::GeneratorLimit | End::NotVerified | End::Drifted | End::Stopped => {
            Exit::Invalid
        }
    }
}
