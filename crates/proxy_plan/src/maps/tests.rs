//! Tests of maps: changes in memory, and files that are read again.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

fn form(kind: MatchKind) -> TableForm {
    TableForm { kind, ignores_case: false }
}

fn value(store: &MapStore, key: &str) -> Option<String> {
    store.find(Key::Text(key.as_bytes()), |value| String::from_utf8(value.to_vec()).unwrap())
}

fn set(store: &MapStore, key: &str, value: &str) {
    store.change(&EntryChange { key, value: Some(value) }).unwrap();
}

fn delete(store: &MapStore, key: &str) -> Result<(), MapChangeError> {
    store.change(&EntryChange { key, value: None })
}

fn entries_of(store: &MapStore) -> BTreeMap<String, String> {
    let mut entries = BTreeMap::new();
    store.visit(&mut |key, value| {
        entries.insert(key.to_owned(), String::from_utf8(value.to_vec()).unwrap());
    });
    entries
}

#[test]
fn changed_entries_are_found_as_if_they_were_in_the_file() {
    for (kind, keys) in [
        (MatchKind::Exact, ["a", "b", "c", "d"]),
        (MatchKind::Prefix, ["/a", "/a/b", "/a/b/c", "/"]),
        (MatchKind::Suffix, ["c", "bc", "abc", "zabc"]),
        (MatchKind::Domain, ["org", "a.org", "*.a.org", "b.a.org"]),
        (MatchKind::Network, ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "0.0.0.0/0"]),
    ] {
        let texts = match kind {
            MatchKind::Network => ["10.1.2.3", "10.1.9.9", "10.9.9.9", "11.0.0.1"],
            MatchKind::Domain => ["b.a.org", "x.b.a.org", "a.org", "x.org"],
            MatchKind::Suffix => ["zabc", "abc", "bc", "xc"],
            MatchKind::Prefix => ["/a/b/c/d", "/a/b", "/ax", "/x"],
            _ => ["a", "b", "c", "x"],
        };
        let mut random = fastrand::Rng::with_seed(3);
        let store = MapStore::from_entries(form(kind), [(keys[0], "0"), (keys[1], "1")].into_iter()).unwrap();
        let mut model: BTreeMap<&str, String> = [(keys[0], "0".to_owned()), (keys[1], "1".to_owned())].into();
        for step in 0..300 {
            let key = keys[random.usize(..keys.len())];
            if random.bool() {
                let text = step.to_string();
                set(&store, key, &text);
                model.insert(key, text);
            } else {
                assert_eq!(delete(&store, key).is_ok(), model.remove(key).is_some(), "{kind:?} {key}");
            }
            let entries = model.iter().map(|(key, value)| (*key, &**value));
            let fresh = MapStore::from_entries(form(kind), entries).unwrap();
            for text in texts {
                assert_eq!(value(&store, text), value(&fresh, text), "{kind:?} {text} in {model:?}");
            }
            assert_eq!((entries_of(&store), store.statistics().entries), (entries_of(&fresh), model.len()));
            assert_eq!(*store, *fresh);
        }
    }
}

#[test]
fn many_changes_become_a_table() {
    let store = MapStore::from_entries(form(MatchKind::Exact), [("a", "1")].into_iter()).unwrap();
    for number in 0..1_100 {
        set(&store, &number.to_string(), "x");
    }
    delete(&store, "17").unwrap();
    assert_eq!(store.statistics().entries, 1_100);
    assert_eq!((value(&store, "17"), value(&store, "1099")), (None, Some("x".to_owned())));
    assert_eq!(value(&store, "a").as_deref(), Some("1"));
}

#[test]
fn invalid_changes_are_refused() {
    let store = MapStore::from_entries(form(MatchKind::Network), [("::1", "1")].into_iter()).unwrap();
    for (key, value, part) in [
        ("10.0.0.1/8", Some("x"), "bits set after its prefix: write 10.0.0.0/8"),
        ("x", Some("x"), "not a network"),
        ("::1", Some("a\nb"), "control characters"),
        ("::2", None, "no entry '::2'"),
        ("", Some("x"), "'' is not a network"),
    ] {
        let error = store.change(&EntryChange { key, value }).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(store.statistics().changes, 0);
    let faults =
        MapStore::from_entries(form(MatchKind::Exact), [("a", "1"), ("", "2"), ("b\n", "3")].into_iter());
    assert_eq!(faults.unwrap_err().iter().map(|(position, _)| *position).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_file_is_read_again_and_faults_keep_the_content() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hosts.map");
    fs::write(&path, "a 1\nb 2\n").unwrap();
    let store = MapStore::open(&path, form(MatchKind::Exact), false).unwrap();
    let same = MapStore::open(&path, form(MatchKind::Exact), false).unwrap();
    let other = MapStore::open(&path, form(MatchKind::Prefix), false).unwrap();
    assert!(Arc::ptr_eq(&store, &same) && !Arc::ptr_eq(&store, &other));
    set(&store, "c", "3");
    // A reload of the config keeps changes in memory, as long as the file is the same.
    drop(same);
    let same = MapStore::open(&path, form(MatchKind::Exact), false).unwrap();
    assert_eq!((value(&same, "c").as_deref(), same.statistics().loads), (Some("3"), 1));

    fs::write(&path, "a 9\nb\n").unwrap();
    assert!(!store.has_changed(), "the file may be incomplete");
    assert!(store.has_changed());
    store.load().unwrap();
    assert!(!store.has_changed());
    assert_eq!((value(&store, "a").as_deref(), value(&store, "c")), (Some("9"), None));

    fs::write(&path, "a 1\na 2\n\x01\n").unwrap();
    assert!(!store.has_changed() && store.has_changed());
    let faults = store.load().unwrap_err();
    assert_eq!(faults, [format!("{}:3:1: a control character", path.display())]);
    assert!(!store.has_changed(), "faults are reported once");
    let statistics = store.statistics();
    assert_eq!((statistics.loads, statistics.failures, &*statistics.last_error), (2, 1, &*faults[0]));
    assert_eq!(value(&store, "a").as_deref(), Some("9"));
    assert!(MapStore::open(&path, form(MatchKind::Exact), false).is_err());

    fs::remove_file(&path).unwrap();
    assert!(store.load().unwrap_err()[0].contains("No such file") && value(&store, "a").is_some());
    fs::write(&path, "a 5").unwrap();
    let again = MapStore::open(&path, form(MatchKind::Exact), false).unwrap();
    assert!(Arc::ptr_eq(&store, &again) && value(&store, "a").as_deref() == Some("5"));
    assert!(store.statistics().last_error.is_empty());
}

#[test]
fn lookups_see_either_content_while_it_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m");
    let content = |value: u32| -> String { (0..100).map(|key| format!("{key} {value}\n")).collect() };
    fs::write(&path, content(0)).unwrap();
    let store = MapStore::open(&path, form(MatchKind::Exact), false).unwrap();
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let (mut last, mut lookups) = (0, 0_u64);
                    while !has_ended.load(Ordering::Relaxed) || lookups == 0 {
                        let seen: u32 = value(&store, "42").unwrap().parse().unwrap();
                        assert!(seen >= last, "{seen} after {last}");
                        (last, lookups) = (seen, lookups + 1);
                    }
                })
            })
            .collect();
        for version in 1..50 {
            fs::write(&path, content(version)).unwrap();
            store.load().unwrap();
        }
        has_ended.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    assert_eq!(value(&store, "7").as_deref(), Some("49"));
}

#[test]
fn changes_of_expressions_keep_their_order() {
    let entries = [("^/a/b", "1"), ("^/a", "2")];
    let store = MapStore::from_entries(form(MatchKind::Regex), entries.into_iter()).unwrap();
    set(&store, "^/", "3");
    set(&store, "^/a/b", "4");
    assert_eq!(["/a/b", "/a", "/x"].map(|key| value(&store, key).unwrap()), ["4", "2", "3"]);
    delete(&store, "^/a/b").unwrap();
    assert!(delete(&store, "^/a/b").is_err());
    set(&store, "^/a/b", "5");
    assert_eq!(
        (value(&store, "/a/b").as_deref(), store.statistics().entries),
        (Some("2"), 3),
        "it is the last now"
    );
    let error = store.change(&EntryChange { key: "(", value: Some("x") }).unwrap_err().to_string();
    assert!(error.contains("'(' is not a regular expression: unclosed group"), "{error}");
    let other =
        MapStore::from_entries(form(MatchKind::Regex), [("^/", "3"), ("^/a", "2")].into_iter()).unwrap();
    delete(&store, "^/a/b").unwrap();
    assert_ne!(*store, *other, "the order counts");
}

#[test]
fn faults_of_expressions_have_their_places() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m");
    fs::write(&path, "^/a 1\n  ^/( 2\n^/a 3\n^/\\x20b 4\n").unwrap();
    let faults = MapStore::open(&path, form(MatchKind::Regex), false).unwrap_err();
    assert!(faults[0].contains(":2:3: '^/(' is not a regular expression"), "{faults:?}");
    fs::write(&path, "^/a 1\n^/\\x20b 4\n").unwrap();
    let store = MapStore::open(&path, form(MatchKind::Regex), false).unwrap();
    assert_eq!((value(&store, "/ b").as_deref(), value(&store, "/a").as_deref()), (Some("4"), Some("1")));
}
