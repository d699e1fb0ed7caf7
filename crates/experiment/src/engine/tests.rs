//! Tests of complete experiments with a simulated runner: killed at every trial, disturbed,
//! failing.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use record::experiment::{Experiment, ExperimentPlan, TrialSummary, Warning};
use record::observed::UnobservableMetric;
use record::run::WeirVersion;
use record::trial::{BLOCK_RERUN, ExperimentTrial, FunctionCalls, TrialKind, TrialPosition};

use super::blocks::mark_discarded;
use super::environment::EnvironmentFacts;
use super::events::Event;
use super::experiment_dir::{ChangedSettings, ExperimentDir, ExperimentDirError};
use super::simulated::{
    KillKind, SimulatedRunner, disturbed, is_concluded, judge, plan, start, temp_dir_in_memory, undisturbed,
};
use super::*;

/// Settings of a session besides its runner.
#[derive(Clone)]
struct TestEnvironment {
    /// Number of the trial of the session, from 0, before which it is asked to stop.
    stop_at: Option<u32>,
    environment: EnvironmentFacts,
    allow_changed_environment: bool,
}

impl TestEnvironment {
    fn new() -> Self {
        let environment = start(ExperimentPlan::default()).environment;
        Self {
            stop_at: None,
            environment: EnvironmentFacts { environment, ..EnvironmentFacts::default() },
            allow_changed_environment: false,
        }
    }
}

fn run_session(
    directory: &mut ExperimentDir,
    runner: &mut dyn Runner,
    world: &TestEnvironment,
) -> (Result<Experiment, EngineError>, Vec<Event>) {
    let (time, stop_checks) = (Cell::new(0_u64), Cell::new(0_u32));
    let clock = || {
        time.set(time.get() + 500_000_000);
        time.get()
    };
    let stop = || {
        let before = stop_checks.replace(stop_checks.get() + 1);
        world.stop_at.is_some_and(|at| before >= at)
    };
    let rested = Cell::new(0);
    let mut events = Vec::new();
    let context = EngineContext {
        clock: &clock,
        wall_clock: &|| "2026-11-22T07:00:00.000Z".to_owned(),
        should_stop: &stop,
        pause: &|ns| rested.set(rested.get() + ns),
        read_environment: &|| world.environment.clone(),
        allow_changed_environment: world.allow_changed_environment,
        is_concluded: &is_concluded,
        judge: &judge,
        on_event: &mut |event| events.push(event.clone()),
    };
    let experiment = run(directory, runner, context);
    let paused_ns =
        |event: &Event| if let Event::Paused { pause_ns: rest_ns } = event { *rest_ns } else { 0 };
    assert_eq!(rested.get(), events.iter().map(paused_ns).sum::<u64>());
    (experiment, events)
}

/// Returns a plan with all features: pilots, probes, profiles, and few trials.
fn full_plan() -> ExperimentPlan {
    ExperimentPlan {
        warm_up_s: None,
        calls: Some("malloc".to_owned()),
        profile: true,
        blocks_min: 2,
        blocks_max: 4,
        reruns_max_fraction: 2.0,
        ..plan(&["a", "b"], &["x"])
    }
}

fn uninterrupted(
    effect: simulated::TrialEffect,
    plan: ExperimentPlan,
) -> (Experiment, Vec<Event>, Vec<(TrialPosition, TrialParams)>) {
    let root = temp_dir_in_memory();
    let mut directory = ExperimentDir::create(&root.path().join("one"), start(plan)).unwrap();
    let mut runner = SimulatedRunner::new(effect);
    let (experiment, events) = run_session(&mut directory, &mut runner, &TestEnvironment::new());
    (experiment.unwrap(), events, runner.requests)
}

/// Removes the times and the number of resumes.
fn without_times(mut experiment: Experiment) -> Experiment {
    // A kill at the start of a trial's file uses up the trial's number.
    for (at, line) in experiment.trials.iter_mut().enumerate() {
        line.position.number = at as u32 + 1;
        line.file.clear();
    }
    Experiment { duration_s: 0.0, resumed: 0, ..experiment }
}

#[test]
fn an_experiment_has_pilots_probes_and_blocks_in_this_order() {
    let (experiment, events, requests) = uninterrupted(undisturbed, full_plan());
    let kinds: Vec<TrialKind> = requests.iter().map(|(position, _)| position.kind).collect();
    let count = |kind| kinds.iter().filter(|it| **it == kind).count();
    assert_eq!((count(TrialKind::Pilot), count(TrialKind::Probe), count(TrialKind::Judged)), (3, 2, 12));
    assert!(kinds.is_sorted_by_key(|kind| {
        [TrialKind::Pilot, TrialKind::Probe, TrialKind::Judged].iter().position(|it| it == kind)
    }));
    let numbers: Vec<u32> = experiment.trials.iter().map(|line| line.position.number).collect();
    assert_eq!(numbers, (1..=17).collect::<Vec<u32>>());
    assert!(!experiment.partial);
    assert_eq!((experiment.stopped.code.as_str(), experiment.resumed), ("max_blocks", 0));
    // A pilot runs longer and without a warm-up. The later trials use the warm-up that it
    // determined.
    let (_, pilot) = &requests[0];
    assert_eq!((pilot.warm_up_ns, pilot.duration_ns), (0, 18_000_000_000));
    let (_, probe) = &requests[3];
    assert_eq!((probe.calls.as_deref(), probe.is_profiled), (Some("malloc"), false));
    let (_, judged) = &requests[5];
    assert_eq!((judged.warm_up_ns, judged.duration_ns), (2_000_000_000, 8_000_000_000));
    assert!(judged.is_profiled && judged.calls.is_none());
    assert_eq!(experiment.plan.warm_up_s, Some(2.0));
    // The A/A arm is compared, and shows the noise.
    let noise: Vec<_> = experiment.comparisons.iter().filter(|it| it.noise).collect();
    assert_eq!((noise.len(), noise[0].pairs.len()), (1, 4));
    let ratio = |arm: &str| experiment.comparisons.iter().find(|it| it.arm == arm).unwrap().ratio.unwrap();
    assert!((ratio("a-repeat") - 1.0).abs() < 0.05 && ratio("b") > 1.0, "{experiment:?}");
    let blocks = events.iter().filter(|event| matches!(event, Event::BlockCompleted { .. })).count();
    assert_eq!(blocks, 4);
    let begins = events.iter().find_map(|event| match event {
        Event::TrialStarted { eta: outlook, .. } => Some(*outlook),
        _ => None,
    });
    assert_eq!(begins.map(|it| (it.trials_min, it.trials_max)), Some((11, 17)));
    let words = events.iter().filter_map(Event::text).collect::<Vec<_>>();
    assert!(words.len() >= 3 && words.iter().all(|words| !words.is_empty()), "{words:?}");
    assert!((experiment.duration_s - 17.0 * 0.5).abs() < 1e-9);
}

#[test]
fn it_stops_when_it_is_concluded() {
    let root = temp_dir_in_memory();
    let plan = ExperimentPlan { effect: 1.0, ..full_plan() };
    let mut directory = ExperimentDir::create(&root.path().join("one"), start(plan)).unwrap();
    let (experiment, _) =
        run_session(&mut directory, &mut SimulatedRunner::new(undisturbed), &TestEnvironment::new());
    let experiment = experiment.unwrap();
    assert_eq!((experiment.stopped.code.as_str(), experiment.partial), ("concluded", false));
    let blocks = experiment.trials.iter().map(|line| line.position.block).max();
    assert_eq!(blocks, Some(2));
}

#[test]
fn disturbed_trials_are_rerun_and_listed() {
    let (experiment, events, _) = uninterrupted(disturbed, full_plan());
    assert_eq!(experiment.stopped.code, "max_blocks");
    let discarded: Vec<&TrialSummary> =
        experiment.trials.iter().filter(|line| line.discarded.is_some()).collect();
    let by = |code: &str| discarded.iter().filter(|it| it.discarded.as_ref().unwrap().code == code).count();
    assert_eq!((by("steal_fraction"), by("wake_up_p99_ns")), (2, 1), "{discarded:#?}");
    assert!(by(BLOCK_RERUN) > 0);
    let discarded_events =
        events.iter().filter(|event| matches!(event, Event::TrialDiscarded { .. })).count();
    assert_eq!(discarded_events, 3);
    assert!(events.iter().any(|event| matches!(event, Event::Paused { .. })), "bursts are waited out");
    let failed = experiment.trials.iter().filter(|line| line.failed.is_some());
    assert_eq!(
        failed.map(|line| line.position.kind).collect::<Vec<_>>(),
        [TrialKind::Pilot, TrialKind::Judged]
    );
    // In each block every cell counts once.
    for block in 1..=4 {
        let counts_in_block = |line: &&TrialSummary| line.is_counted() && line.position.block == block;
        let mut arms: Vec<&str> =
            experiment.trials.iter().filter(counts_in_block).map(|it| it.position.arm.as_str()).collect();
        arms.sort_unstable();
        assert_eq!(arms, ["a", "a-repeat", "b"], "block {block}");
    }
    assert_eq!(experiment.cells[0].trials, 4);
}

/// Runs until it is killed in the trial after `after`, and then until it ends.
fn killed_once(
    root: &Path,
    effect: simulated::TrialEffect,
    after: u32,
    kill_kind: Option<KillKind>,
) -> Experiment {
    let path = root.join(format!("killed-{after}"));
    let mut directory = ExperimentDir::create(&path, start(full_plan())).unwrap();
    let mut runner =
        SimulatedRunner { kill_after: kill_kind.map(|how| (after, how)), ..SimulatedRunner::new(effect) };
    let world = TestEnvironment { stop_at: kill_kind.is_none().then_some(after), ..TestEnvironment::new() };
    if let Some(KillKind::Panic) = kill_kind {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            run_session(&mut directory, &mut runner, &world).0.map(|it| it.partial)
        }));
        assert!(caught.is_err());
    } else {
        let experiment = run_session(&mut directory, &mut runner, &world).0.unwrap();
        assert!(experiment.partial);
        assert_eq!(experiment.stopped.code, "interrupted");
        assert_eq!(experiment.trials.len() as u32, after);
        assert_eq!(directory.experiment().unwrap().stopped, experiment.stopped);
    }
    drop(directory);
    let mut directory = ExperimentDir::open(&path).unwrap();
    assert_eq!(directory.trials().len() as u32, after);
    let experiment =
        run_session(&mut directory, &mut SimulatedRunner::new(effect), &TestEnvironment::new()).0.unwrap();
    assert_eq!(directory.experiment().unwrap().stopped, experiment.stopped);
    experiment
}

#[test]
fn killed_at_any_trial_it_ends_as_if_it_had_not_been() {
    let root = temp_dir_in_memory();
    for (effect, name) in [(undisturbed as simulated::TrialEffect, "calm"), (disturbed, "rough")] {
        let (expected, _, _) = uninterrupted(effect, full_plan());
        let trials = expected.trials.len() as u32;
        let expected = without_times(expected);
        let below = root.path().join(name);
        for after in 0..trials {
            let kill_kind = [None, Some(KillKind::Stop), Some(KillKind::Panic)][after as usize % 3];
            let resumed = killed_once(&below, effect, after, kill_kind);
            assert_eq!(without_times(resumed), expected, "{name}, after {after} trials, {kill_kind:?}");
        }
    }
}

#[test]
fn killed_in_every_trial_it_still_ends_the_same() {
    let root = temp_dir_in_memory();
    let path = root.path().join("one");
    drop(ExperimentDir::create(&path, start(full_plan())).unwrap());
    let (expected, _, _) = uninterrupted(disturbed, full_plan());
    let mut sessions = 0;
    let experiment = loop {
        let mut directory = ExperimentDir::open(&path).unwrap();
        let mut runner =
            SimulatedRunner { kill_after: Some((1, KillKind::Stop)), ..SimulatedRunner::new(disturbed) };
        let experiment = run_session(&mut directory, &mut runner, &TestEnvironment::new()).0.unwrap();
        sessions += 1;
        assert!(sessions < 100, "it has to end");
        if !experiment.partial {
            break experiment;
        }
    };
    assert_eq!(experiment.resumed, expected.trials.len() as u32 - 1);
    assert_eq!(without_times(experiment), without_times(expected));
}

const CHILD: &str = "WEIR_TEST_ENGINE_FOLDER";

/// Not a test by itself: [`a_process_that_is_killed_loses_nothing`] starts and kills it.
#[test]
fn a_child_that_is_killed() {
    struct Slow(SimulatedRunner);
    impl Runner for Slow {
        fn run(
            &mut self,
            position: &TrialPosition,
            params: &TrialParams,
        ) -> Result<TrialOutput, TrialRunError> {
            std::thread::sleep(Duration::from_millis(2));
            self.0.run(position, params)
        }
    }
    let Some(path) = std::env::var_os(CHILD) else { return };
    let mut directory = ExperimentDir::open(Path::new(&path)).unwrap();
    run_session(&mut directory, &mut Slow(SimulatedRunner::new(disturbed)), &TestEnvironment::new())
        .0
        .unwrap();
}

#[test]
fn a_process_that_is_killed_loses_nothing() {
    let root = temp_dir_in_memory();
    let (expected, _, _) = uninterrupted(disturbed, full_plan());
    let expected = without_times(expected);
    for stored_min in [1, 4, 9, 15] {
        let path = root.path().join(format!("killed-{stored_min}"));
        drop(ExperimentDir::create(&path, start(full_plan())).unwrap());
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["engine::tests::a_child_that_is_killed", "--exact"]).env(CHILD, &path);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let stored = || fs::read_dir(path.join("trials")).unwrap().count();
        for _ in 0..60_000 {
            if stored() >= stored_min || child.try_wait().unwrap().is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(stored() >= stored_min);
        let mut directory = ExperimentDir::open(&path).unwrap();
        let experiment =
            run_session(&mut directory, &mut SimulatedRunner::new(disturbed), &TestEnvironment::new())
                .0
                .unwrap();
        assert_eq!(without_times(experiment), expected, "killed after {stored_min} files");
    }
}

#[test]
fn a_broken_trial_is_rerun_and_nothing_is_overwritten() {
    let root = temp_dir_in_memory();
    let path = root.path().join("one");
    let mut directory = ExperimentDir::create(&path, start(full_plan())).unwrap();
    let complete =
        run_session(&mut directory, &mut SimulatedRunner::new(undisturbed), &TestEnvironment::new())
            .0
            .unwrap();
    drop(directory);
    let broken = path.join(&complete.trials[8].file);
    let text = fs::read_to_string(&broken).unwrap();
    fs::write(&broken, &text[..text.len() / 2]).unwrap();
    let before: Vec<(String, Vec<u8>)> = complete
        .trials
        .iter()
        .filter(|line| path.join(&line.file) != broken)
        .map(|line| (line.file.clone(), fs::read(path.join(&line.file)).unwrap()))
        .collect();
    let mut directory = ExperimentDir::open(&path).unwrap();
    let (experiment, events) =
        run_session(&mut directory, &mut SimulatedRunner::new(undisturbed), &TestEnvironment::new());
    let experiment = experiment.unwrap();
    assert!(matches!(&events[0], Event::FileSetAside(_)));
    let lost = &complete.trials[8].position;
    let rerun = &experiment.trials.last().unwrap().position;
    assert_eq!(rerun, &TrialPosition { number: 18, ..lost.clone() });
    assert_eq!((experiment.resumed, experiment.partial), (1, false));
    assert!(experiment.cells.iter().all(|cell| cell.trials == 4));
    for (file, bytes) in before {
        assert_eq!(fs::read(path.join(&file)).unwrap(), bytes, "{file}");
    }
    let aside = fs::read_to_string(format!("{}.broken", broken.display())).unwrap();
    assert_eq!(aside, text[..text.len() / 2]);
}

#[test]
fn a_failing_program_stops_it_with_its_last_output_and_can_be_retried() {
    fn fails(position: &TrialPosition, _: &mut ExperimentTrial) -> Result<(), TrialRunError> {
        match position.arm.as_str() {
            "b" => Err(TrialRunError::Failed("'nginx' ended (exit status: 1): no such library".to_owned())),
            _ => Ok(()),
        }
    }
    let root = temp_dir_in_memory();
    let path = root.path().join("one");
    let plan = plan(&["a", "b"], &["x"]);
    let mut directory = ExperimentDir::create(&path, start(plan)).unwrap();
    let experiment =
        run_session(&mut directory, &mut SimulatedRunner::new(fails), &TestEnvironment::new()).0.unwrap();
    assert!(experiment.partial);
    assert_eq!(experiment.stopped.code, "failed");
    assert!(experiment.stopped.text.ends_with("no such library"), "{:?}", experiment.stopped);
    drop(directory);
    // The library was installed meanwhile.
    let mut directory = ExperimentDir::open(&path).unwrap();
    let experiment =
        run_session(&mut directory, &mut SimulatedRunner::new(undisturbed), &TestEnvironment::new())
            .0
            .unwrap();
    assert_eq!(experiment.stopped.code, "max_blocks");
    assert_eq!(experiment.trials.iter().filter(|line| line.failed.is_some()).count(), 2);
}

#[test]
fn a_noisy_machine_stops_it() {
    fn stolen(_: &TrialPosition, trial: &mut ExperimentTrial) -> Result<(), TrialRunError> {
        trial.covariates.steal_fraction = Some(0.4);
        Ok(())
    }
    let (experiment, _, requests) = uninterrupted(stolen, plan(&["a", "b"], &["x"]));
    assert_eq!((experiment.stopped.code.as_str(), experiment.partial), ("reruns", true));
    // The minimum is three blocks: two of them may be run again.
    assert_eq!(requests.len(), 3);
    assert!(experiment.cells.iter().all(|cell| cell.trials == 0));
}

#[test]
fn a_pilot_that_never_is_steady_is_a_warning() {
    fn never(position: &TrialPosition, trial: &mut ExperimentTrial) -> Result<(), TrialRunError> {
        if position.kind == TrialKind::Pilot && position.arm == "b" {
            trial.steady.from_s = None;
            trial.steady.text = "it drifts".to_owned();
        }
        Ok(())
    }
    let plan = ExperimentPlan { warm_up_s: None, ..plan(&["a", "b"], &["x"]) };
    let (experiment, events, _) = uninterrupted(never, plan);
    let warning = experiment.warnings.iter().find(|it| it.code == "warm_up").unwrap();
    assert!(warning.text.contains("b under x: it drifts"), "{warning:?}");
    assert!(events.iter().any(|event| matches!(event, Event::WarmUpChosen(it) if it.warm_up_s == 8.0)));
}

#[test]
fn a_pilot_that_is_steady_too_late_is_a_warning() {
    fn late(position: &TrialPosition, trial: &mut ExperimentTrial) -> Result<(), TrialRunError> {
        if position.kind == TrialKind::Pilot && position.arm == "b" {
            trial.steady.from_s = Some(14.0);
        }
        Ok(())
    }
    let plan = ExperimentPlan { warm_up_s: None, ..plan(&["a", "b"], &["x"]) };
    let (experiment, _, _) = uninterrupted(late, plan);
    let warnings: Vec<_> = experiment.warnings.iter().filter(|it| it.code == "warm_up").collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(warnings[0].arm.as_deref(), Some("b"));
    assert!(warnings[0].text.contains("second 14 "), "{warnings:?}");
}

#[test]
fn requested_but_unobserved_figures_are_a_warning() {
    fn unseen(position: &TrialPosition, trial: &mut ExperimentTrial) -> Result<(), TrialRunError> {
        let missing = |figure: &str, reason: &str| UnobservableMetric {
            figure: figure.to_owned(),
            reason: reason.to_owned(),
        };
        trial.calls = (position.kind == TrialKind::Probe && position.arm == "b").then(FunctionCalls::default);
        trial.not_observable =
            vec![missing("system calls", "other"), missing("calls of malloc", "not permitted")];
        match (position.kind, position.attempt) {
            (TrialKind::Probe, 1) => Err(TrialRunError::Failed("it ended".to_owned())),
            _ => Ok(()),
        }
    }
    let (experiment, _, _) = uninterrupted(unseen, full_plan());
    let not_observable = |warnings: &[Warning]| -> Vec<(Option<String>, String)> {
        let own = warnings.iter().filter(|it| it.code == "not_observable");
        own.map(|it| (it.arm.clone(), it.text.clone())).collect()
    };
    // The simulated profile exists.
    let reported = not_observable(&experiment.warnings);
    assert!(reported.len() == 1 && reported[0].0.as_deref() == Some("a"), "{reported:?}");
    let text = &reported[0].1;
    assert!(text.contains("(malloc)") && text.ends_with(": not permitted"), "{reported:?}");
    fn fails(position: &TrialPosition, _: &mut ExperimentTrial) -> Result<(), TrialRunError> {
        match position.kind {
            TrialKind::Probe => Err(TrialRunError::Failed("it ended".to_owned())),
            _ => Ok(()),
        }
    }
    let (experiment, _, _) = uninterrupted(fails, full_plan());
    let reported = not_observable(&experiment.warnings);
    assert_eq!(reported.len(), 1, "the same reason is said once: {reported:?}");
    assert_eq!(reported[0].0, None);
    let cells = reported[0].1.strip_suffix(": it ended").unwrap();
    assert!(cells.contains("a under x") && cells.contains("b under x"), "{reported:?}");
}

#[test]
fn a_missing_profile_is_a_warning() {
    struct Blind(SimulatedRunner);
    impl Runner for Blind {
        fn run(
            &mut self,
            position: &TrialPosition,
            params: &TrialParams,
        ) -> Result<TrialOutput, TrialRunError> {
            let mut ran = self.0.run(position, params)?;
            ran.folded = None;
            let (figure, reason) = ("sampled functions".to_owned(), "not permitted".to_owned());
            ran.trial.not_observable = vec![UnobservableMetric { figure, reason }];
            Ok(ran)
        }
    }
    let root = temp_dir_in_memory();
    let plan = ExperimentPlan { profile: true, ..plan(&["a", "b"], &["x"]) };
    let mut directory = ExperimentDir::create(&root.path().join("one"), start(plan)).unwrap();
    let mut runner = Blind(SimulatedRunner::new(undisturbed));
    let experiment = run_session(&mut directory, &mut runner, &TestEnvironment::new()).0.unwrap();
    let warnings: Vec<&Warning> =
        experiment.warnings.iter().filter(|it| it.code == "not_observable").collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let cells = warnings[0].text.strip_suffix(": not permitted").unwrap();
    assert!(cells.contains("a under x") && cells.contains("b under x"), "{warnings:?}");
}

#[test]
fn it_does_not_resume_on_another_machine_unless_allowed() {
    let root = temp_dir_in_memory();
    let path = root.path().join("one");
    let mut directory = ExperimentDir::create(&path, start(plan(&["a", "b"], &["x"]))).unwrap();
    let stopped = TestEnvironment { stop_at: Some(2), ..TestEnvironment::new() };
    run_session(&mut directory, &mut SimulatedRunner::new(undisturbed), &stopped).0.unwrap();
    let mut other = TestEnvironment::new();
    other.environment.weir = WeirVersion { version: "9.9.9".to_owned(), ..WeirVersion::default() };
    other.environment.environment.insert("governor".to_owned(), "powersave".to_owned());
    let refused = run_session(&mut directory, &mut SimulatedRunner::new(undisturbed), &other).0.unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("weir: 9.9.9") && text.contains("governor: powersave"), "{text}");
    assert_eq!(directory.trials().len(), 2, "nothing ran");
    other.allow_changed_environment = true;
    let (experiment, events) = run_session(&mut directory, &mut SimulatedRunner::new(undisturbed), &other);
    assert!(events.iter().any(|event| matches!(event, Event::EnvironmentDiffers(what) if what.len() == 2)));
    // The judge receives the changes, also in later sessions.
    let experiment = experiment.unwrap();
    assert!(experiment.summary[0].contains("governor: powersave, was performance"));
    // The trials of the open block ran under other conditions: they are kept, and the block was
    // restarted.
    let (before, after) = experiment.trials.split_at(2);
    for trial in before {
        let reason = trial.discarded.as_ref().unwrap();
        assert!(
            reason.code == "block_restarted" && reason.text.contains("governor: powersave"),
            "{reason:?}"
        );
    }
    assert_eq!((after[0].position.block, after[0].position.attempt), (1, 2));
    assert!(after.iter().all(TrialSummary::is_counted), "{after:?}");
    let marked_again = {
        let mut lines = directory.trials().to_vec();
        mark_discarded(&directory.start().plan, &mut lines, &directory.environment_changes());
        lines
    };
    assert_eq!(marked_again, experiment.trials);
}

#[test]
fn changes_during_the_run_are_passed_to_the_judge() {
    let root = temp_dir_in_memory();
    let mut directory =
        ExperimentDir::create(&root.path().join("one"), start(plan(&["a", "b"], &["x"]))).unwrap();
    let environment_reads = Cell::new(0);
    let world = TestEnvironment::new();
    let read_environment = || {
        let mut environment = world.environment.clone();
        if environment_reads.replace(environment_reads.get() + 1) > 0 {
            environment.environment.insert("governor".to_owned(), "powersave".to_owned());
        }
        environment
    };
    let context = EngineContext {
        clock: &|| 0,
        wall_clock: &String::new,
        should_stop: &|| false,
        pause: &|_| {},
        read_environment: &read_environment,
        allow_changed_environment: false,
        is_concluded: &is_concluded,
        judge: &judge,
        on_event: &mut |_| {},
    };
    let experiment = run(&mut directory, &mut SimulatedRunner::new(undisturbed), context).unwrap();
    assert!(experiment.summary[0].contains("governor: powersave, was performance"));
    assert_eq!(directory.sessions()[0].differences, ["governor: powersave, was performance"]);
}

#[test]
fn two_cannot_run_the_same_experiment() {
    let root = temp_dir_in_memory();
    let path = root.path().join("one");
    let directory = ExperimentDir::create(&path, start(plan(&["a", "b"], &["x"]))).unwrap();
    assert!(matches!(ExperimentDir::open(&path), Err(ExperimentDirError::InUse(_, Some(_)))));
    drop(directory);
    drop(ExperimentDir::open(&path).unwrap());
}

#[test]
fn a_resume_with_changed_settings_goes_on_after_any_stop() {
    let root = temp_dir_in_memory();
    let path = root.path().join("one");
    let always: simulated::TrialEffect = |_, trial| {
        trial.covariates.steal_fraction = Some(0.3);
        Ok(())
    };
    let plan = ExperimentPlan { effect: 1e-9, ..plan(&["a", "b"], &["x"]) };
    let mut directory = ExperimentDir::create(&path, start(plan.clone())).unwrap();
    let session = |directory: &mut ExperimentDir, effect, settings: Option<ChangedSettings>| {
        settings.into_iter().for_each(|settings| directory.change_settings(settings));
        run_session(directory, &mut SimulatedRunner::new(effect), &TestEnvironment::new()).0.unwrap()
    };
    // Each resume has its own reruns.
    let reruns = session(&mut directory, always, None);
    let again = session(&mut directory, always, None);
    assert_eq!((reruns.stopped.code.as_str(), again.stopped.code.as_str()), ("reruns", "reruns"));
    assert!(again.trials.len() > reruns.trials.len(), "{} trials", again.trials.len());
    // Without the bound the trials count, and the blocks go on from there to the end of the plan.
    let off = ChangedSettings {
        discard: [("steal_fraction".to_owned(), None)].into(),
        reruns_max_fraction: Some(2.0),
        ..ChangedSettings::default()
    };
    let full = session(&mut directory, always, Some(off));
    assert_eq!((full.stopped.code.as_str(), full.plan.blocks_max), ("max_blocks", 5));
    assert!(full.trials.iter().filter(|line| line.is_counted()).count() == 15, "{:#?}", full.trials);
    let more = ChangedSettings { blocks: Some((4, 7)), ..ChangedSettings::default() };
    let longer = session(&mut directory, always, Some(more.clone()));
    assert_eq!(longer.trials.iter().filter(|line| line.is_counted()).count(), 21);
    assert!(longer.warnings.iter().any(|warning| warning.code == "changed_settings"
        && warning.text.contains("--discard steal=off")
        && warning.text.contains("--blocks 4..7")));
    // The changes are read again, and the plan of the start is unchanged.
    drop(directory);
    let directory = ExperimentDir::open(&path).unwrap();
    let read = &directory.start().plan;
    assert_eq!((read.blocks_min, read.blocks_max, read.reruns_max_fraction), (4, 7, 2.0));
    assert!(!read.discard.contains_key("steal_fraction"));
    let stored: serde_json::Value =
        serde_json::from_slice(&fs::read(path.join("plan.json")).unwrap()).unwrap();
    assert_eq!(stored["plan"]["blocks_max"], plan.blocks_max);
    assert_eq!(more.flags(), "--blocks 4..7");
}

#[test]
fn an_experiment_at_its_end_is_only_concluded_again() {
    let root = temp_dir_in_memory();
    let path = root.path().join("one");
    let mut directory = ExperimentDir::create(&path, start(plan(&["a", "b"], &["x"]))).unwrap();
    let first = run_session(&mut directory, &mut SimulatedRunner::new(undisturbed), &TestEnvironment::new())
        .0
        .unwrap();
    drop(directory);
    let mut directory = ExperimentDir::open(&path).unwrap();
    let mut runner = SimulatedRunner::new(undisturbed);
    let rerun = run_session(&mut directory, &mut runner, &TestEnvironment::new()).0.unwrap();
    assert!(runner.requests.is_empty());
    assert_eq!(rerun, first);
}

#[test]
fn a_plan_that_cannot_be_run_is_refused_with_all_problems() {
    let mut wrong = plan(&["a", "../b"], &["x", "x"]);
    wrong.discard.insert("stele".to_owned(), 1.0);
    wrong.arms.remove(1);
    wrong.blocks_max = 2;
    wrong.metrics.clear();
    let problems = check(&wrong).unwrap_err().to_string();
    for text in ["(A/A)", "metric", "10,000", "'stele'", "twice", "'../b'"] {
        assert!(problems.contains(text), "{text}: {problems}");
    }
    assert_eq!(check(&plan(&["a", "b"], &["x"])), Ok(()));
    let root = temp_dir_in_memory();
    let mut directory = ExperimentDir::create(&root.path().join("one"), start(wrong)).unwrap();
    let mut runner = SimulatedRunner::new(undisturbed);
    assert!(run_session(&mut directory, &mut runner, &TestEnvironment::new()).0.is_err());
    assert!(runner.requests.is_empty());
}
