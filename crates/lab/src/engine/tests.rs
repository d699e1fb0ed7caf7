//! Tests of whole experiments with a simulated runner: killed at every trial, disturbed, failing.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use record::experiment::{Experiment, Plan, TrialLine, Warning};
use record::observed::Missing;
use record::run::Weir;
use record::trial::{BLOCK_RERUN, Calls, Kind, Place, Trial};

use super::blocks::mark;
use super::environment::Here;
use super::events::Event;
use super::folder::{Folder, FolderError};
use super::simulated::{Kill, Simulated, calm, judge, plan, quick_folder, rough, settled, start};
use super::*;

/// What a session is given besides its runner.
#[derive(Clone)]
struct World {
    /// Asked to stop before this trial of the session, from 0.
    stop_at: Option<u32>,
    here: Here,
    allow_other: bool,
}

impl World {
    fn new() -> Self {
        let environment = start(Plan::default()).environment;
        Self { stop_at: None, here: Here { environment, ..Here::default() }, allow_other: false }
    }
}

fn session(
    folder: &mut Folder,
    runner: &mut dyn Runner,
    world: &World,
) -> (Result<Experiment, EngineError>, Vec<Event>) {
    let (time, asked) = (Cell::new(0_u64), Cell::new(0_u32));
    let clock = || {
        time.set(time.get() + 500_000_000);
        time.get()
    };
    let stop = || {
        let before = asked.replace(asked.get() + 1);
        world.stop_at.is_some_and(|at| before >= at)
    };
    let rested = Cell::new(0);
    let mut events = Vec::new();
    let hooks = Hooks {
        clock: &clock,
        wall: &|| "2026-11-22T07:00:00.000Z".to_owned(),
        stop: &stop,
        rest: &|ns| rested.set(rested.get() + ns),
        here: &|| world.here.clone(),
        allow_other: world.allow_other,
        settled: &settled,
        judge: &judge,
        told: &mut |event| events.push(event.clone()),
    };
    let experiment = run(folder, runner, hooks);
    let told = |event: &Event| if let Event::Rests { rest_ns } = event { *rest_ns } else { 0 };
    assert_eq!(rested.get(), events.iter().map(told).sum::<u64>());
    (experiment, events)
}

/// A plan with everything in it: pilots, probes, profiles, and few trials.
fn whole_plan() -> Plan {
    Plan {
        warm_up_s: None,
        calls: Some("malloc".to_owned()),
        profile: true,
        blocks_min: 2,
        blocks_max: 4,
        reruns_max_share: 2.0,
        ..plan(&["a", "b"], &["x"])
    }
}

fn uninterrupted(fate: simulated::Fate, plan: Plan) -> (Experiment, Vec<Event>, Vec<(Place, Ask)>) {
    let root = quick_folder();
    let mut folder = Folder::create(&root.path().join("one"), start(plan)).unwrap();
    let mut runner = Simulated::new(fate);
    let (experiment, events) = session(&mut folder, &mut runner, &World::new());
    (experiment.unwrap(), events, runner.asked)
}

/// Apart from times, and how often it was taken up again.
fn timeless(mut experiment: Experiment) -> Experiment {
    // A trial that was killed when its file was begun takes its number with it.
    for (at, line) in experiment.trials.iter_mut().enumerate() {
        line.place.number = at as u32 + 1;
        line.file.clear();
    }
    Experiment { duration_s: 0.0, resumed: 0, ..experiment }
}

#[test]
fn an_experiment_has_pilots_probes_and_blocks_in_this_order() {
    let (experiment, events, asked) = uninterrupted(calm, whole_plan());
    let kinds: Vec<Kind> = asked.iter().map(|(place, _)| place.kind).collect();
    let count = |kind| kinds.iter().filter(|it| **it == kind).count();
    assert_eq!((count(Kind::Pilot), count(Kind::Probe), count(Kind::Judged)), (3, 2, 12));
    assert!(kinds.is_sorted_by_key(|kind| {
        [Kind::Pilot, Kind::Probe, Kind::Judged].iter().position(|it| it == kind)
    }));
    let numbers: Vec<u32> = experiment.trials.iter().map(|line| line.place.number).collect();
    assert_eq!(numbers, (1..=17).collect::<Vec<u32>>());
    assert!(!experiment.partial);
    assert_eq!((experiment.stopped.code.as_str(), experiment.resumed), ("most_blocks", 0));
    // A pilot runs longer and without a warm-up; what it found is used from then on.
    let (_, pilot) = &asked[0];
    assert_eq!((pilot.warm_up_ns, pilot.duration_ns), (0, 18_000_000_000));
    let (_, probe) = &asked[3];
    assert_eq!((probe.calls.as_deref(), probe.profile), (Some("malloc"), false));
    let (_, judged) = &asked[5];
    assert_eq!((judged.warm_up_ns, judged.duration_ns), (2_000_000_000, 8_000_000_000));
    assert!(judged.profile && judged.calls.is_none());
    assert_eq!(experiment.plan.warm_up_s, Some(2.0));
    // The A/A arm is compared, and says what the noise is.
    let noise: Vec<_> = experiment.comparisons.iter().filter(|it| it.noise).collect();
    assert_eq!((noise.len(), noise[0].pairs.len()), (1, 4));
    let ratio =
        |arm: &str| experiment.comparisons.iter().find(|it| it.arm == arm).unwrap().ratio.unwrap();
    assert!((ratio("a-again") - 1.0).abs() < 0.05 && ratio("b") > 1.0, "{experiment:?}");
    let blocks = events.iter().filter(|event| matches!(event, Event::BlockDone { .. })).count();
    assert_eq!(blocks, 4);
    let begins = events.iter().find_map(|event| match event {
        Event::Begins { outlook, .. } => Some(*outlook),
        _ => None,
    });
    assert_eq!(begins.map(|it| (it.at_least, it.at_most)), Some((11, 17)));
    let words = events.iter().filter_map(Event::words).collect::<Vec<_>>();
    assert!(words.len() >= 3 && words.iter().all(|words| !words.is_empty()), "{words:?}");
    assert!((experiment.duration_s - 17.0 * 0.5).abs() < 1e-9);
}

#[test]
fn it_stops_when_it_is_precise_enough() {
    let root = quick_folder();
    let plan = Plan { effect: 1.0, ..whole_plan() };
    let mut folder = Folder::create(&root.path().join("one"), start(plan)).unwrap();
    let (experiment, _) = session(&mut folder, &mut Simulated::new(calm), &World::new());
    let experiment = experiment.unwrap();
    assert_eq!((experiment.stopped.code.as_str(), experiment.partial), ("precise", false));
    let blocks = experiment.trials.iter().map(|line| line.place.block).max();
    assert_eq!(blocks, Some(2));
}

#[test]
fn what_was_disturbed_is_run_again_and_listed() {
    let (experiment, events, _) = uninterrupted(rough, whole_plan());
    assert_eq!(experiment.stopped.code, "most_blocks");
    let discarded: Vec<&TrialLine> =
        experiment.trials.iter().filter(|line| line.discarded.is_some()).collect();
    let by = |code: &str| {
        discarded.iter().filter(|it| it.discarded.as_ref().unwrap().code == code).count()
    };
    assert_eq!((by("steal_share"), by("wake_up_p99_ns")), (2, 1), "{discarded:#?}");
    assert!(by(BLOCK_RERUN) > 0);
    let told = events.iter().filter(|event| matches!(event, Event::Discarded { .. })).count();
    assert_eq!(told, 3);
    assert!(
        events.iter().any(|event| matches!(event, Event::Rests { .. })),
        "bursts are waited out"
    );
    let failed = experiment.trials.iter().filter(|line| line.failed.is_some());
    assert_eq!(failed.map(|line| line.place.kind).collect::<Vec<_>>(), [Kind::Pilot, Kind::Judged]);
    // Of each block every cell counts once.
    for block in 1..=4 {
        let of_block = |line: &&TrialLine| line.counts() && line.place.block == block;
        let mut arms: Vec<&str> =
            experiment.trials.iter().filter(of_block).map(|it| it.place.arm.as_str()).collect();
        arms.sort_unstable();
        assert_eq!(arms, ["a", "a-again", "b"], "block {block}");
    }
    assert_eq!(experiment.cells[0].trials, 4);
}

/// Runs until it is killed in the trial after `after`, and then until it ends.
fn killed_once(root: &Path, fate: simulated::Fate, after: u32, how: Option<Kill>) -> Experiment {
    let path = root.join(format!("killed-{after}"));
    let mut folder = Folder::create(&path, start(whole_plan())).unwrap();
    let mut runner = Simulated { killed: how.map(|how| (after, how)), ..Simulated::new(fate) };
    let world = World { stop_at: how.is_none().then_some(after), ..World::new() };
    if let Some(Kill::Panic) = how {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            session(&mut folder, &mut runner, &world).0.map(|it| it.partial)
        }));
        assert!(caught.is_err());
    } else {
        let experiment = session(&mut folder, &mut runner, &world).0.unwrap();
        assert!(experiment.partial);
        assert_eq!(experiment.stopped.code, "interrupted");
        assert_eq!(experiment.trials.len() as u32, after);
        assert_eq!(folder.experiment().unwrap().stopped, experiment.stopped);
    }
    drop(folder);
    let mut folder = Folder::open(&path).unwrap();
    assert_eq!(folder.lines().len() as u32, after);
    let experiment = session(&mut folder, &mut Simulated::new(fate), &World::new()).0.unwrap();
    assert_eq!(folder.experiment().unwrap().stopped, experiment.stopped);
    experiment
}

#[test]
fn killed_at_any_trial_it_ends_as_if_it_had_not_been() {
    let root = quick_folder();
    for (fate, name) in [(calm as simulated::Fate, "calm"), (rough, "rough")] {
        let (expected, _, _) = uninterrupted(fate, whole_plan());
        let trials = expected.trials.len() as u32;
        let expected = timeless(expected);
        let below = root.path().join(name);
        for after in 0..trials {
            let how = [None, Some(Kill::Stop), Some(Kill::Panic)][after as usize % 3];
            let resumed = killed_once(&below, fate, after, how);
            assert_eq!(timeless(resumed), expected, "{name}, after {after} trials, {how:?}");
        }
    }
}

#[test]
fn killed_in_every_trial_it_still_ends_the_same() {
    let root = quick_folder();
    let path = root.path().join("one");
    drop(Folder::create(&path, start(whole_plan())).unwrap());
    let (expected, _, _) = uninterrupted(rough, whole_plan());
    let mut sessions = 0;
    let experiment = loop {
        let mut folder = Folder::open(&path).unwrap();
        let mut runner = Simulated { killed: Some((1, Kill::Stop)), ..Simulated::new(rough) };
        let experiment = session(&mut folder, &mut runner, &World::new()).0.unwrap();
        sessions += 1;
        assert!(sessions < 100, "it has to end");
        if !experiment.partial {
            break experiment;
        }
    };
    assert_eq!(experiment.resumed, expected.trials.len() as u32 - 1);
    assert_eq!(timeless(experiment), timeless(expected));
}

const CHILD: &str = "WEIR_TEST_ENGINE_FOLDER";

/// Not a test by itself: what [`a_process_that_is_killed_loses_nothing`] starts and kills.
#[test]
fn a_child_that_is_killed() {
    struct Slow(Simulated);
    impl Runner for Slow {
        fn run(&mut self, place: &Place, ask: &Ask) -> Result<Ran, NotRun> {
            std::thread::sleep(Duration::from_millis(2));
            self.0.run(place, ask)
        }
    }
    let Some(path) = std::env::var_os(CHILD) else { return };
    let mut folder = Folder::open(Path::new(&path)).unwrap();
    session(&mut folder, &mut Slow(Simulated::new(rough)), &World::new()).0.unwrap();
}

#[test]
fn a_process_that_is_killed_loses_nothing() {
    let root = quick_folder();
    let (expected, _, _) = uninterrupted(rough, whole_plan());
    let expected = timeless(expected);
    for wanted in [1, 4, 9, 15] {
        let path = root.path().join(format!("killed-{wanted}"));
        drop(Folder::create(&path, start(whole_plan())).unwrap());
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["engine::tests::a_child_that_is_killed", "--exact"]).env(CHILD, &path);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let stored = || fs::read_dir(path.join("trials")).unwrap().count();
        for _ in 0..60_000 {
            if stored() >= wanted || child.try_wait().unwrap().is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(stored() >= wanted);
        let mut folder = Folder::open(&path).unwrap();
        let experiment = session(&mut folder, &mut Simulated::new(rough), &World::new()).0.unwrap();
        assert_eq!(timeless(experiment), expected, "killed after {wanted} files");
    }
}

#[test]
fn a_broken_trial_is_run_again_and_nothing_is_written_over() {
    let root = quick_folder();
    let path = root.path().join("one");
    let mut folder = Folder::create(&path, start(whole_plan())).unwrap();
    let whole = session(&mut folder, &mut Simulated::new(calm), &World::new()).0.unwrap();
    drop(folder);
    let broken = path.join(&whole.trials[8].file);
    let text = fs::read_to_string(&broken).unwrap();
    fs::write(&broken, &text[..text.len() / 2]).unwrap();
    let before: Vec<(String, Vec<u8>)> = whole
        .trials
        .iter()
        .filter(|line| path.join(&line.file) != broken)
        .map(|line| (line.file.clone(), fs::read(path.join(&line.file)).unwrap()))
        .collect();
    let mut folder = Folder::open(&path).unwrap();
    let (experiment, events) = session(&mut folder, &mut Simulated::new(calm), &World::new());
    let experiment = experiment.unwrap();
    assert!(matches!(&events[0], Event::SetAside(_)));
    let lost = &whole.trials[8].place;
    let again = &experiment.trials.last().unwrap().place;
    assert_eq!(again, &Place { number: 18, ..lost.clone() });
    assert_eq!((experiment.resumed, experiment.partial), (1, false));
    assert!(experiment.cells.iter().all(|cell| cell.trials == 4));
    for (file, bytes) in before {
        assert_eq!(fs::read(path.join(&file)).unwrap(), bytes, "{file}");
    }
    let aside = fs::read_to_string(format!("{}.broken", broken.display())).unwrap();
    assert_eq!(aside, text[..text.len() / 2]);
}

#[test]
fn what_does_not_run_stops_it_with_its_last_words_and_can_be_tried_again() {
    fn fails(place: &Place, _: &mut Trial) -> Result<(), NotRun> {
        match place.arm.as_str() {
            "b" => {
                Err(NotRun::Failed("'nginx' ended (exit status: 1): no such library".to_owned()))
            }
            _ => Ok(()),
        }
    }
    let root = quick_folder();
    let path = root.path().join("one");
    let plan = plan(&["a", "b"], &["x"]);
    let mut folder = Folder::create(&path, start(plan)).unwrap();
    let experiment = session(&mut folder, &mut Simulated::new(fails), &World::new()).0.unwrap();
    assert!(experiment.partial);
    assert_eq!(experiment.stopped.code, "failed");
    assert!(experiment.stopped.text.ends_with("no such library"), "{:?}", experiment.stopped);
    drop(folder);
    // The library was installed meanwhile.
    let mut folder = Folder::open(&path).unwrap();
    let experiment = session(&mut folder, &mut Simulated::new(calm), &World::new()).0.unwrap();
    assert_eq!(experiment.stopped.code, "most_blocks");
    assert_eq!(experiment.trials.iter().filter(|line| line.failed.is_some()).count(), 2);
}

#[test]
fn a_noisy_machine_stops_it() {
    fn stolen(_: &Place, trial: &mut Trial) -> Result<(), NotRun> {
        trial.covariates.steal_share = Some(0.4);
        Ok(())
    }
    let (experiment, _, asked) = uninterrupted(stolen, plan(&["a", "b"], &["x"]));
    assert_eq!((experiment.stopped.code.as_str(), experiment.partial), ("reruns", true));
    // The fewest blocks are three: two of them may be run again.
    assert_eq!(asked.len(), 3);
    assert!(experiment.cells.iter().all(|cell| cell.trials == 0));
}

#[test]
fn a_pilot_that_never_is_steady_is_a_warning() {
    fn never(place: &Place, trial: &mut Trial) -> Result<(), NotRun> {
        if place.kind == Kind::Pilot && place.arm == "b" {
            trial.steady.from_s = None;
            trial.steady.text = "it drifts".to_owned();
        }
        Ok(())
    }
    let plan = Plan { warm_up_s: None, ..plan(&["a", "b"], &["x"]) };
    let (experiment, events, _) = uninterrupted(never, plan);
    let warning = experiment.warnings.iter().find(|it| it.code == "warm_up").unwrap();
    assert!(warning.text.contains("b under x: it drifts"), "{warning:?}");
    assert!(events.iter().any(|event| matches!(event, Event::WarmUp(it) if it.warm_up_s == 8.0)));
}

#[test]
fn a_pilot_that_is_steady_too_late_is_a_warning() {
    fn late(place: &Place, trial: &mut Trial) -> Result<(), NotRun> {
        if place.kind == Kind::Pilot && place.arm == "b" {
            trial.steady.from_s = Some(14.0);
        }
        Ok(())
    }
    let plan = Plan { warm_up_s: None, ..plan(&["a", "b"], &["x"]) };
    let (experiment, _, _) = uninterrupted(late, plan);
    let warnings: Vec<_> = experiment.warnings.iter().filter(|it| it.code == "warm_up").collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(warnings[0].arm.as_deref(), Some("b"));
    assert!(warnings[0].text.contains("second 14 "), "{warnings:?}");
}

#[test]
fn what_was_asked_for_and_not_seen_is_a_warning() {
    fn unseen(place: &Place, trial: &mut Trial) -> Result<(), NotRun> {
        let missing =
            |what: &str, why: &str| Missing { what: what.to_owned(), why: why.to_owned() };
        trial.calls = (place.kind == Kind::Probe && place.arm == "b").then(Calls::default);
        trial.not_observable =
            vec![missing("system calls", "other"), missing("calls of malloc", "not permitted")];
        match (place.kind, place.attempt) {
            (Kind::Probe, 1) => Err(NotRun::Failed("it ended".to_owned())),
            _ => Ok(()),
        }
    }
    let (experiment, _, _) = uninterrupted(unseen, whole_plan());
    let of = |warnings: &[Warning]| -> Vec<(Option<String>, String)> {
        let own = warnings.iter().filter(|it| it.code == "not_observable");
        own.map(|it| (it.arm.clone(), it.text.clone())).collect()
    };
    let text = "calls (malloc) were asked for and are not counted of a under x: not permitted";
    // The simulated profile is there.
    assert_eq!(of(&experiment.warnings), [(Some("a".to_owned()), text.to_owned())]);
    fn fails(place: &Place, _: &mut Trial) -> Result<(), NotRun> {
        match place.kind {
            Kind::Probe => Err(NotRun::Failed("it ended".to_owned())),
            _ => Ok(()),
        }
    }
    let (experiment, _, _) = uninterrupted(fails, whole_plan());
    let told = of(&experiment.warnings);
    assert_eq!(told.len(), 1, "the same reason is said once: {told:?}");
    assert_eq!(told[0].0, None);
    assert!(told[0].1.ends_with("of a under x, b under x: it ended"), "{told:?}");
}

#[test]
fn a_profile_that_was_not_taken_is_a_warning() {
    struct Blind(Simulated);
    impl Runner for Blind {
        fn run(&mut self, place: &Place, ask: &Ask) -> Result<Ran, NotRun> {
            let mut ran = self.0.run(place, ask)?;
            ran.folded = None;
            let (what, why) = ("functions on processors".to_owned(), "not permitted".to_owned());
            ran.trial.not_observable = vec![Missing { what, why }];
            Ok(ran)
        }
    }
    let root = quick_folder();
    let plan = Plan { profile: true, ..plan(&["a", "b"], &["x"]) };
    let mut folder = Folder::create(&root.path().join("one"), start(plan)).unwrap();
    let mut runner = Blind(Simulated::new(calm));
    let experiment = session(&mut folder, &mut runner, &World::new()).0.unwrap();
    let told: Vec<&Warning> =
        experiment.warnings.iter().filter(|it| it.code == "not_observable").collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].text.starts_with("a profile was asked for and there is none of a under x, "));
    assert!(told[0].text.ends_with(": not permitted"), "{told:?}");
}

#[test]
fn elsewhere_it_does_not_go_on_unless_that_is_allowed() {
    let root = quick_folder();
    let path = root.path().join("one");
    let mut folder = Folder::create(&path, start(plan(&["a", "b"], &["x"]))).unwrap();
    let stopped = World { stop_at: Some(2), ..World::new() };
    session(&mut folder, &mut Simulated::new(calm), &stopped).0.unwrap();
    let mut other = World::new();
    other.here.weir = Weir { version: "9.9.9".to_owned(), ..Weir::default() };
    other.here.environment.insert("governor".to_owned(), "powersave".to_owned());
    let refused = session(&mut folder, &mut Simulated::new(calm), &other).0.unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("weir: 9.9.9") && text.contains("governor: powersave"), "{text}");
    assert_eq!(folder.lines().len(), 2, "nothing ran");
    other.allow_other = true;
    let (experiment, events) = session(&mut folder, &mut Simulated::new(calm), &other);
    assert!(events.iter().any(|event| matches!(event, Event::Differs(what) if what.len() == 2)));
    // The judge is told, also in later sessions.
    let experiment = experiment.unwrap();
    assert!(experiment.summary[0].contains("governor: powersave, was performance"));
    // What the open block had was measured by other means: it is kept, and the block began anew.
    let (before, after) = experiment.trials.split_at(2);
    for trial in before {
        let why = trial.discarded.as_ref().unwrap();
        assert!(why.code == "begun_anew" && why.text.contains("governor: powersave"), "{why:?}");
    }
    assert_eq!((after[0].place.block, after[0].place.attempt), (1, 2));
    assert!(after.iter().all(TrialLine::counts), "{after:?}");
    let marked_again = {
        let mut lines = folder.lines().to_vec();
        mark(&folder.start().plan, &mut lines, &folder.changed_after());
        lines
    };
    assert_eq!(marked_again, experiment.trials);
}

#[test]
fn what_changes_meanwhile_is_told_to_the_judge() {
    let root = quick_folder();
    let mut folder =
        Folder::create(&root.path().join("one"), start(plan(&["a", "b"], &["x"]))).unwrap();
    let asked = Cell::new(0);
    let world = World::new();
    let here = || {
        let mut here = world.here.clone();
        if asked.replace(asked.get() + 1) > 0 {
            here.environment.insert("governor".to_owned(), "powersave".to_owned());
        }
        here
    };
    let hooks = Hooks {
        clock: &|| 0,
        wall: &String::new,
        stop: &|| false,
        rest: &|_| {},
        here: &here,
        allow_other: false,
        settled: &settled,
        judge: &judge,
        told: &mut |_| {},
    };
    let experiment = run(&mut folder, &mut Simulated::new(calm), hooks).unwrap();
    assert!(experiment.summary[0].contains("governor: powersave, was performance"));
    assert_eq!(folder.sessions()[0].differs, ["governor: powersave, was performance"]);
}

#[test]
fn two_cannot_run_the_same_experiment() {
    let root = quick_folder();
    let path = root.path().join("one");
    let folder = Folder::create(&path, start(plan(&["a", "b"], &["x"]))).unwrap();
    assert!(matches!(Folder::open(&path), Err(FolderError::Held(_, Some(_)))));
    drop(folder);
    drop(Folder::open(&path).unwrap());
}

#[test]
fn an_experiment_at_its_end_is_only_concluded_again() {
    let root = quick_folder();
    let path = root.path().join("one");
    let mut folder = Folder::create(&path, start(plan(&["a", "b"], &["x"]))).unwrap();
    let first = session(&mut folder, &mut Simulated::new(calm), &World::new()).0.unwrap();
    drop(folder);
    let mut folder = Folder::open(&path).unwrap();
    let mut runner = Simulated::new(calm);
    let again = session(&mut folder, &mut runner, &World::new()).0.unwrap();
    assert!(runner.asked.is_empty());
    assert_eq!(again, first);
}

#[test]
fn a_plan_that_cannot_be_run_is_refused_with_everything_that_is_wrong() {
    let mut wrong = plan(&["a", "../b"], &["x", "x"]);
    wrong.discard.insert("stele".to_owned(), 1.0);
    wrong.arms.remove(1);
    wrong.blocks_max = 2;
    wrong.metrics.clear();
    let told = check(&wrong).unwrap_err().to_string();
    let expected =
        ["no arm is the baseline again", "no metric", "blocks are", "'stele'", "twice", "'../b'"];
    for text in expected {
        assert!(told.contains(text), "{text}: {told}");
    }
    assert_eq!(check(&plan(&["a", "b"], &["x"])), Ok(()));
    let root = quick_folder();
    let mut folder = Folder::create(&root.path().join("one"), start(wrong)).unwrap();
    let mut runner = Simulated::new(calm);
    assert!(session(&mut folder, &mut runner, &World::new()).0.is_err());
    assert!(runner.asked.is_empty());
}
