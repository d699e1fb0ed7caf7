//! Runs one trial: a load with its watcher, and one of few requests beside it where that is wanted. Gives
//! the whole record of the run and what it says of its level; decides nothing else.

use std::path::Path;

use load::edge::{Ask, Find, Judgement, judge, trial};
use load::plan::Plan;
use load::run::{Measured, Observer, RunError, SecondLatencies};
use record::edge::{Observer as Seen, Outcome, Trial};
use record::run::{Interval, Run};
use rt::clock::now_ns;
use rt::drain::{DrainWatch, Stage};

use super::super::load::{Job, Subjects, recorded, subjects};
use crate::exit::Failure;
use crate::flags::Typed;
use crate::observation::{Observation, diagnose};
use crate::preflight;
use crate::watcher::Watcher;

/// A trial that could be run.
pub(super) struct Driven {
    pub(super) trial: Trial,
    /// Absent when there was nothing to measure: the ports were not there, or nobody answered.
    pub(super) run: Option<Run>,
}

/// What trials have in common.
pub(super) struct Bench<'a> {
    typed: Typed<'a>,
    arguments: &'a [String],
    stop: &'a DrainWatch,
    find: Find,
    keep: Option<&'a Path>,
    begun_ns: u64,
    /// Every trial so far.
    pub(super) trials: Vec<Trial>,
    subjects: Vec<(String, Subjects)>,
}

/// What a trial is run with, besides its plan.
pub(super) struct Setup {
    pub(super) ask: Ask,
    pub(super) purpose: &'static str,
    /// How long a request takes at low load; `None`: as this trial itself says.
    pub(super) waiting_ns: Option<u64>,
    /// The plan of the observer.
    pub(super) beside: Option<Plan>,
}

impl<'a> Bench<'a> {
    pub(super) fn new(
        (typed, arguments): (Typed<'a>, &'a [String]),
        stop: &'a DrainWatch,
        find: Find,
        keep: Option<&'a Path>,
    ) -> Self {
        let begun_ns = now_ns();
        let (trials, subjects) = (Vec::new(), Vec::new());
        Self { typed, arguments, stop, find, keep, begun_ns, trials, subjects }
    }

    /// Whether it was ended by hand.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.stage() != Stage::Running
    }

    pub(super) fn elapsed_s(&self) -> f64 {
        (now_ns() - self.begun_ns) as f64 / 1e9
    }

    /// Runs one trial and keeps what came of it.
    pub(super) fn drive(&mut self, plan: Plan, setup: Setup) -> Result<Driven, Failure> {
        let begin_s = self.elapsed_s();
        let mut driven = match preflight::check(&plan) {
            Ok(ports_tight) => self.measure(plan, ports_tight, &setup)?,
            Err(failure) if self.trials.is_empty() => return Err(failure),
            Err(failure) => {
                let why = format!("ports: {}", failure.lines().join("; "));
                without_run(&setup, Outcome::NoVerdict, why)
            }
        };
        driven.trial.number = self.trials.len() as u32 + 1;
        driven.trial.begin_s = begin_s;
        if let (Some(folder), Some(run)) = (self.keep, &driven.run) {
            let (number, purpose) = (driven.trial.number, setup.purpose);
            let path = folder.join(format!("{number:03}-{purpose}-{:.0}.json", setup.ask.level));
            record::file::write_json(&path, run)?;
            driven.trial.record = Some(path.display().to_string());
        }
        self.trials.push(driven.trial.clone());
        Ok(driven)
    }

    fn measure(
        &mut self,
        plan: Plan,
        ports_tight: Option<String>,
        setup: &Setup,
    ) -> Result<Driven, Failure> {
        let started_at = record::file::wall_clock();
        let subjects = self.subjects_of(&plan);
        let mut watcher = Watcher::new(subjects.clone().unwrap_or_default(), None, None)
            .observing(Some(Observation::start(&plan, &[])));
        let (measured, beside) = run_both(&plan, setup.beside.as_ref(), self.stop, &mut watcher);
        let measured = match measured {
            Ok(measured) => measured,
            Err(RunError::NoConnection { text, .. }) if !self.trials.is_empty() => {
                let why = format!("cannot connect at all: {text}");
                return Ok(without_run(setup, Outcome::Missed, why));
            }
            Err(error) => return Err(Failure::CannotRun(error.to_string())),
        };
        let (typed, arguments) = (self.typed, self.arguments);
        let job = Job { typed, arguments, plan, subjects, ports_tight, calibration: None };
        let observed = watcher.observed(&started_at);
        let mut run = recorded(&job, &measured, &watcher, observed.as_ref(), started_at);
        if let Some(observed) = observed {
            diagnose(&mut run, observed);
        }
        let waiting_ns = setup.waiting_ns.unwrap_or(run.latency.last_byte.response.p50_ns);
        let judgement = judge(&run, self.find, waiting_ns);
        let mut trial = trial(&setup.ask, setup.purpose, &run, judgement);
        trial.observer = beside.map(|measured| seen(&measured));
        Ok(Driven { trial, run: Some(run) })
    }

    /// The processes that listen where a plan goes, looked up once for each place.
    fn subjects_of(&mut self, plan: &Plan) -> Subjects {
        let place = format!("{:?}", plan.authorities());
        if let Some((_, known)) = self.subjects.iter().find(|(known, _)| *known == place) {
            return known.clone();
        }
        let found = subjects(plan);
        self.subjects.push((place, found.clone()));
        found
    }
}

fn without_run(setup: &Setup, outcome: Outcome, why: String) -> Driven {
    let judgement = Judgement { outcome, reasons: vec![why] };
    let trial = Trial {
        purpose: setup.purpose.to_owned(),
        level: setup.ask.level,
        outcome: judgement.outcome,
        reasons: judgement.reasons,
        ..Trial::default()
    };
    Driven { trial, run: None }
}

/// Runs a load, and the observer beside it in a thread of its own.
fn run_both(
    plan: &Plan,
    beside: Option<&Plan>,
    stop: &DrainWatch,
    watcher: &mut Watcher,
) -> (Result<Measured, RunError>, Option<Measured>) {
    std::thread::scope(|scope| {
        let beside = beside.map(|plan| scope.spawn(|| load::run::run(plan, stop, &mut Unwatched)));
        let measured = load::run::run(plan, stop, watcher);
        // What went wrong beside a load is no failure of the load: its observer is absent then.
        let beside = beside.and_then(|thread| thread.join().ok()?.ok());
        (measured, beside)
    })
}

fn seen(measured: &Measured) -> Seen {
    let latencies = &measured.latencies.last_byte.response;
    Seen {
        rate_per_s: measured.window_due as f64 / measured.window_length_s(),
        responses_per_s: measured.goodput_per_s(),
        responses: latencies.count(),
        p50_ns: latencies.at(0.5),
        p99_ns: latencies.at(0.99),
    }
}

/// Watches nothing: the load beside has the watcher.
struct Unwatched;

impl Observer for Unwatched {
    fn started(&mut self, _start_ns: u64) {}
    fn window_begins(&mut self) {}
    fn load_ended(&mut self) {}
    fn second(&mut self, _interval: &mut Interval, _latencies: &SecondLatencies) {}
}
