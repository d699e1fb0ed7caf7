//! Tests of an experiment's directory.

use super::super::simulated::{plan, start};
use super::*;
use record::trial::TrialKind;

fn trial(number: u32, block: u32, arm: &str) -> ExperimentTrial {
    let position = TrialPosition {
        number,
        block,
        attempt: 1,
        arm: arm.to_owned(),
        load: "x".to_owned(),
        kind: if block == 0 { TrialKind::Pilot } else { TrialKind::Judged },
    };
    let metrics = BTreeMap::from([("responses_per_s".to_owned(), 0.1 + 0.2)]);
    ExperimentTrial {
        schema: record::trial::SCHEMA.to_owned(),
        position,
        metrics,
        ..ExperimentTrial::default()
    }
}

#[test]
fn a_new_directory_is_new_and_an_old_one_is_refused_with_a_remedy() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("below/one");
    let start = start(plan(&["a", "b"], &["x"]));
    let directory = ExperimentDir::create(&path, start.clone()).unwrap();
    assert_eq!(fs::read_to_string(path.join(EXPERIMENT_FILE)).unwrap(), start.plan.file);
    assert_eq!(directory.start().plan.name, start.plan.name);
    drop(directory);
    let refused = ExperimentDir::create(&path, start.clone()).unwrap_err();
    assert!(matches!(refused, ExperimentDirError::Exists(_)), "{refused:?}");
    assert!(refused.to_string().contains("--resume"), "{refused}");
    // An empty directory of another owner is not used either.
    fs::create_dir(root.path().join("empty")).unwrap();
    assert!(ExperimentDir::create(&root.path().join("empty"), start.clone()).is_err());
    let first = ExperimentDir::create_below(root.path(), &start).unwrap();
    let second = ExperimentDir::create_below(root.path(), &start).unwrap();
    let name = |directory: &ExperimentDir| directory.path().file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(name(&first), "try-20261122-064700");
    assert_eq!(name(&second), "try-20261122-064700-2");
}

#[test]
fn stored_records_are_read_back_unchanged() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("one");
    let mut directory = ExperimentDir::create(&path, start(plan(&["a", "b"], &["x"]))).unwrap();
    directory.store(trial(1, 0, "a"), None).unwrap();
    let line = directory.store(trial(2, 1, "b"), Some("main;work 3\n")).unwrap();
    assert_eq!(line.file, "trials/0002-b01-b-x.json");
    assert_eq!(directory.trial(&line.file).unwrap().folded.as_deref(), Some("0002-b01-b-x.folded"));
    assert_eq!(directory.folded(&line.file).as_deref(), Some("main;work 3\n"));
    let error = directory.store(trial(2, 1, "b"), None).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    let warm_up = WarmUp { schema: warm_up::SCHEMA.to_owned(), warm_up_s: 2.5, ..WarmUp::default() };
    directory.store_warm_up(&warm_up).unwrap();
    directory.store_sessions(vec![RunSession { duration_s: 3.5, ..RunSession::default() }]).unwrap();
    let lines = directory.trials().to_vec();
    // It may be read while it runs, but not changed.
    let mut read = ExperimentDir::read(&path).unwrap();
    assert_eq!(read.trials(), lines);
    assert!(read.store(trial(3, 1, "a"), None).is_err());
    assert!(matches!(ExperimentDir::open(&path).unwrap_err(), ExperimentDirError::InUse(..)));
    drop(directory);
    let reopened = ExperimentDir::open(&path).unwrap();
    assert_eq!(reopened.trials(), lines);
    assert_eq!(reopened.warm_up(), Some(&warm_up));
    assert_eq!(reopened.sessions()[0].duration_s, 3.5);
    assert_eq!((reopened.next_number(), reopened.broken_files().len()), (3, 0));
}

#[test]
fn a_broken_trial_is_set_aside_and_its_number_is_not_used_again() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("one");
    let mut directory = ExperimentDir::create(&path, start(plan(&["a", "b"], &["x"]))).unwrap();
    directory.store(trial(1, 1, "a"), None).unwrap();
    directory.store(trial(2, 1, "b"), None).unwrap();
    drop(directory);
    let broken = path.join("trials/0002-b01-b-x.json");
    fs::write(&broken, "{\"schema\": \"weir.tri").unwrap();
    // Reading it changes nothing.
    assert_eq!(ExperimentDir::read(&path).unwrap().broken_files().len(), 1);
    assert!(broken.exists());
    let directory = ExperimentDir::open(&path).unwrap();
    assert_eq!(directory.broken_files()[0].file, "0002-b01-b-x.json");
    assert_eq!((directory.trials().len(), directory.next_number()), (1, 3));
    assert!(!broken.exists());
    assert!(path.join("trials/0002-b01-b-x.json.broken").exists());
    drop(directory);
    let directory = ExperimentDir::open(&path).unwrap();
    assert_eq!((directory.next_number(), directory.broken_files().len()), (3, 0));
}

#[test]
fn an_invalid_file_is_reported_with_a_remedy() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("one");
    drop(ExperimentDir::create(&path, start(plan(&["a", "b"], &["x"]))).unwrap());
    let error_text = |error: ExperimentDirError| {
        assert!(matches!(error, ExperimentDirError::Invalid(..)), "{error:?}");
        error.to_string()
    };
    fs::write(path.join(CONCLUSIONS_FILE), "{\"schema\": ").unwrap();
    let text = error_text(ExperimentDir::open(&path).unwrap().experiment().unwrap_err().into());
    assert!(text.contains("experiment.json:1:") && text.contains("remove it"), "{text}");
    let plan_text = fs::read_to_string(path.join(PLAN_FILE)).unwrap();
    for garbled in [&plan_text[..40], "{}", "{\"schema\":\"weir.plan/9\"}", "\u{fffd}"] {
        fs::write(path.join(PLAN_FILE), garbled).unwrap();
        let text = error_text(ExperimentDir::open(&path).unwrap_err());
        assert!(text.contains("plan.json") && text.contains("restore it"), "{text}");
    }
}

#[test]
fn derived_files_are_set_aside_when_broken() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("one");
    drop(ExperimentDir::create(&path, start(plan(&["a"], &["x"]))).unwrap());
    fs::write(path.join(WARM_UP_FILE), "{").unwrap();
    fs::write(path.join(SESSIONS_FILE), "").unwrap();
    let directory = ExperimentDir::open(&path).unwrap();
    assert_eq!(directory.broken_files().len(), 2);
    assert_eq!(directory.warm_up(), None);
    assert!(path.join("warm-up.json.broken").exists());
}

#[test]
fn a_plan_that_was_edited_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("one");
    let plan = plan(&["a", "b"], &["x"]);
    let directory = ExperimentDir::create(&path, start(plan.clone())).unwrap();
    directory.check_plan(&plan).unwrap();
    let other = ExperimentPlan { effect: 0.5, ..plan.clone() };
    let changed_fields = |error: ExperimentDirError| match error {
        ExperimentDirError::PlanChanged(_, fields) => fields,
        other => panic!("{other:?}"),
    };
    assert_eq!(changed_fields(directory.check_plan(&other).unwrap_err()), ["effect"]);
    drop(directory);
    let edited = fs::read_to_string(path.join(EXPERIMENT_FILE)).unwrap() + "\n# more\n";
    fs::write(path.join(EXPERIMENT_FILE), edited).unwrap();
    let fields = changed_fields(ExperimentDir::open(&path).unwrap_err());
    assert!(fields.len() == 1 && fields[0].contains(EXPERIMENT_FILE), "{fields:?}");
    fs::write(path.join(EXPERIMENT_FILE), &plan.file).unwrap();
    drop(ExperimentDir::open(&path).unwrap());
    fs::write(path.join(PLAN_FILE), "{}").unwrap();
    assert!(ExperimentDir::open(&path).unwrap_err().to_string().contains("plan.json"));
}

#[test]
fn a_directory_without_an_experiment_is_not_touched() {
    let root = tempfile::tempdir().unwrap();
    let refused = ExperimentDir::open(root.path()).unwrap_err();
    assert!(matches!(refused, ExperimentDirError::NotAnExperiment(..)), "{refused:?}");
    assert!(refused.to_string().contains(PLAN_FILE), "{refused}");
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    let missing = ExperimentDir::open(Path::new("/no/such")).unwrap_err();
    assert!(matches!(missing, ExperimentDirError::NotAnExperiment(..)), "{missing:?}");
    assert!(!missing.to_string().contains(PLAN_FILE), "{missing}");
}

#[test]
fn names_that_lead_outside_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let directory = ExperimentDir::create(&root.path().join("one"), start(plan(&["a"], &["x"]))).unwrap();
    for name in ["plan.json", "trials/../plan.json", "/etc/passwd", "trials/.x", "trials"] {
        assert!(directory.trial(name).is_err(), "{name}");
        assert_eq!(directory.folded(name), None);
    }
}

#[test]
fn names_carry_the_time() {
    assert_eq!(directory_name("allocator", "2026-11-22T06:47:00.123Z"), "allocator-20261122-064700");
}
