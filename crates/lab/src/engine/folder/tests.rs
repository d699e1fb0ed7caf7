//! Tests of an experiment's folder.

use super::super::simulated::{plan, start};
use super::*;
use record::trial::Kind;

fn trial(number: u32, block: u32, arm: &str) -> Trial {
    let place = Place {
        number,
        block,
        attempt: 1,
        arm: arm.to_owned(),
        load: "x".to_owned(),
        kind: if block == 0 { Kind::Pilot } else { Kind::Judged },
    };
    let metrics = BTreeMap::from([("responses_per_s".to_owned(), 0.1 + 0.2)]);
    Trial { schema: record::trial::SCHEMA.to_owned(), place, metrics, ..Trial::default() }
}

#[test]
fn a_new_folder_is_new_and_an_old_one_is_refused_with_what_to_do() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("below/one");
    let start = start(plan(&["a", "b"], &["x"]));
    let folder = Folder::create(&path, start.clone()).unwrap();
    assert_eq!(fs::read_to_string(path.join(FILE)).unwrap(), start.plan.file);
    assert_eq!(folder.start().plan.name, start.plan.name);
    drop(folder);
    let refused = Folder::create(&path, start.clone()).unwrap_err();
    assert!(refused.to_string().contains("--resume"), "{refused}");
    // An empty folder of somebody else is not used either.
    fs::create_dir(root.path().join("empty")).unwrap();
    assert!(Folder::create(&root.path().join("empty"), start.clone()).is_err());
    let first = Folder::create_below(root.path(), &start).unwrap();
    let second = Folder::create_below(root.path(), &start).unwrap();
    let name = |folder: &Folder| folder.path().file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(name(&first), "try-20261122-064700");
    assert_eq!(name(&second), "try-20261122-064700-2");
}

#[test]
fn what_is_stored_is_read_back_the_same() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("one");
    let mut folder = Folder::create(&path, start(plan(&["a", "b"], &["x"]))).unwrap();
    folder.store(trial(1, 0, "a"), None).unwrap();
    let line = folder.store(trial(2, 1, "b"), Some("main;work 3\n")).unwrap();
    assert_eq!(line.file, "trials/0002-b01-b-x.json");
    assert_eq!(folder.trial(&line.file).unwrap().folded.as_deref(), Some("0002-b01-b-x.folded"));
    assert_eq!(folder.folded(&line.file).as_deref(), Some("main;work 3\n"));
    let error = folder.store(trial(2, 1, "b"), None).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    let warm_up =
        WarmUp { schema: warm_up::SCHEMA.to_owned(), warm_up_s: 2.5, ..WarmUp::default() };
    folder.store_warm_up(&warm_up).unwrap();
    folder.store_sessions(vec![Session { took_s: 3.5, ..Session::default() }]).unwrap();
    let lines = folder.lines().to_vec();
    // It may be looked at while it runs, but not changed.
    let mut read = Folder::read(&path).unwrap();
    assert_eq!(read.lines(), lines);
    assert!(read.store(trial(3, 1, "a"), None).is_err());
    assert!(Folder::open(&path).unwrap_err().to_string().contains("runs this experiment"));
    drop(folder);
    let again = Folder::open(&path).unwrap();
    assert_eq!(again.lines(), lines);
    assert_eq!(again.warm_up(), Some(&warm_up));
    assert_eq!(again.sessions()[0].took_s, 3.5);
    assert_eq!((again.number_next(), again.set_aside().len()), (3, 0));
}

#[test]
fn a_broken_trial_is_set_aside_and_its_number_is_not_used_again() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("one");
    let mut folder = Folder::create(&path, start(plan(&["a", "b"], &["x"]))).unwrap();
    folder.store(trial(1, 1, "a"), None).unwrap();
    folder.store(trial(2, 1, "b"), None).unwrap();
    drop(folder);
    let broken = path.join("trials/0002-b01-b-x.json");
    fs::write(&broken, "{\"schema\": \"weir.tri").unwrap();
    // Looking at it changes nothing.
    assert_eq!(Folder::read(&path).unwrap().set_aside().len(), 1);
    assert!(broken.exists());
    let folder = Folder::open(&path).unwrap();
    assert_eq!(folder.set_aside()[0].file, "0002-b01-b-x.json");
    assert_eq!((folder.lines().len(), folder.number_next()), (1, 3));
    assert!(!broken.exists());
    assert!(path.join("trials/0002-b01-b-x.json.broken").exists());
    drop(folder);
    let folder = Folder::open(&path).unwrap();
    assert_eq!((folder.number_next(), folder.set_aside().len()), (3, 0));
}

#[test]
fn a_file_that_is_not_what_it_should_be_is_told_with_what_to_do() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("one");
    drop(Folder::create(&path, start(plan(&["a", "b"], &["x"]))).unwrap());
    let told = |error: FolderError| {
        assert!(matches!(error, FolderError::Broken(..)), "{error:?}");
        error.to_string()
    };
    fs::write(path.join(EXPERIMENT), "{\"schema\": ").unwrap();
    let text = told(Folder::open(&path).unwrap().experiment().unwrap_err().into());
    assert!(text.contains("experiment.json:1:") && text.contains("remove it"), "{text}");
    let whole = fs::read_to_string(path.join(PLAN)).unwrap();
    for garbled in [&whole[..40], "{}", "{\"schema\":\"weir.plan/9\"}", "\u{fffd}"] {
        fs::write(path.join(PLAN), garbled).unwrap();
        let text = told(Folder::open(&path).unwrap_err());
        assert!(text.contains("plan.json") && text.contains("put it back"), "{text}");
    }
}

#[test]
fn what_can_be_made_again_is_set_aside_when_broken() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("one");
    drop(Folder::create(&path, start(plan(&["a"], &["x"]))).unwrap());
    fs::write(path.join(WARM_UP), "{").unwrap();
    fs::write(path.join(SESSIONS), "").unwrap();
    let folder = Folder::open(&path).unwrap();
    assert_eq!(folder.set_aside().len(), 2);
    assert_eq!(folder.warm_up(), None);
    assert!(path.join("warm-up.json.broken").exists());
}

#[test]
fn a_plan_that_was_edited_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("one");
    let plan = plan(&["a", "b"], &["x"]);
    let folder = Folder::create(&path, start(plan.clone())).unwrap();
    folder.check_plan(&plan).unwrap();
    let other = Plan { effect: 0.5, ..plan.clone() };
    let refused = folder.check_plan(&other).unwrap_err().to_string();
    assert!(refused.contains("(effect)"), "{refused}");
    drop(folder);
    let edited = fs::read_to_string(path.join(FILE)).unwrap() + "\n# more\n";
    fs::write(path.join(FILE), edited).unwrap();
    assert!(Folder::open(&path).unwrap_err().to_string().contains("experiment.toml is not"));
    fs::write(path.join(FILE), &plan.file).unwrap();
    drop(Folder::open(&path).unwrap());
    fs::write(path.join(PLAN), "{}").unwrap();
    assert!(Folder::open(&path).unwrap_err().to_string().contains("plan.json"));
}

#[test]
fn what_is_no_experiment_is_not_touched() {
    let root = tempfile::tempdir().unwrap();
    assert!(Folder::open(root.path()).unwrap_err().to_string().contains("no plan.json"));
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    assert!(Folder::open(Path::new("/no/such")).unwrap_err().to_string().contains("not there"));
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let folder = Folder::create(&root.path().join("one"), start(plan(&["a"], &["x"]))).unwrap();
    for name in ["plan.json", "trials/../plan.json", "/etc/passwd", "trials/.x", "trials"] {
        assert!(folder.trial(name).is_err(), "{name}");
        assert_eq!(folder.folded(name), None);
    }
}

#[test]
fn names_carry_the_time() {
    assert_eq!(name_for("allocator", "2026-11-22T06:47:00.123Z"), "allocator-20261122-064700");
}
