//! Journals as they are stored, complete and cut at every byte, and the decisions about them.

use super::*;

const BOOT: &str = "boot-1";
const OWNER: ProcessIdentity = ProcessIdentity { pid: 7, start_ticks: 8 };

fn journal(ends_with: EndsWith) -> TuneJournal {
    let header = JournalHeader {
        schema: SCHEMA.to_owned(),
        owner: OWNER,
        pid_namespace: None,
        boot_id: BOOT.to_owned(),
        started_at: "2026-11-24T10:00:00Z".to_owned(),
        requested: vec!["proxy".to_owned()],
        target: Target::Namespace { name: "lab".to_owned(), inode: 3 },
        ends_with,
        persisted: None,
    };
    let change = |name: &str, old: &str, new: &str| JournaledChange {
        name: name.to_owned(),
        path: find_file(name).unwrap().1,
        old: old.to_owned(),
        new: new.to_owned(),
        follows: false,
    };
    let changes = vec![
        change("net.core.somaxconn", "128", "4096"),
        change("net.ipv4.ip_local_port_range", "1 2", "3 4"),
    ];
    TuneJournal::new(header, changes)
}

fn applied(mut journal: TuneJournal) -> TuneJournal {
    journal.applied = Some(vec!["4096".to_owned(), "3\t4".to_owned()]);
    journal
}

#[test]
fn a_stored_journal_is_read_back() {
    let expected = applied(journal(EndsWith::Command { command: vec!["nginx".to_owned()] }));
    let values = expected.applied.clone().expect("applied");
    let text = expected.initial_text() + &TuneJournal::applied_text(&values);
    assert_eq!(TuneJournal::parse(&text, OWNER), Ok(Some(expected)));
}

#[test]
fn a_journal_cut_at_any_byte_names_only_complete_changes() {
    let full = journal(EndsWith::Revert);
    let values = ["4096".to_owned(), "3 4".to_owned()];
    let text = full.initial_text() + &TuneJournal::applied_text(&values);
    let header_bytes = text.find('\n').expect("a header") + 1;
    for end in 0..text.len() {
        let Some(parsed) = TuneJournal::parse(&text[..end], OWNER).unwrap() else {
            assert!(end < header_bytes, "cut at {end}");
            continue;
        };
        let complete_lines = text[..end].matches('\n').count();
        assert_eq!(parsed.changes, full.changes[..(complete_lines - 1).min(2)], "cut at {end}");
        assert_eq!(parsed.applied, None, "cut at {end}");
    }
}

#[test]
fn an_apply_in_force_is_kept_and_an_interrupted_one_is_reverted() {
    let time = || EndsWith::Time { at: "2026-11-24T10:10:00Z".to_owned() };
    let command = || EndsWith::Command { command: vec!["true".to_owned()] };
    for (journal, is_alive, expected) in [
        (journal(EndsWith::Revert), true, JournalAction::Keep),
        (journal(EndsWith::Revert), false, JournalAction::Revert),
        (applied(journal(EndsWith::Revert)), false, JournalAction::Keep),
        (applied(journal(time())), true, JournalAction::Keep),
        (applied(journal(time())), false, JournalAction::Revert),
        (applied(journal(command())), false, JournalAction::Revert),
    ] {
        assert_eq!(journal.action(is_alive, BOOT, true), expected, "{journal:?}, {is_alive}");
        assert_eq!(journal.action(is_alive, "boot-2", true), JournalAction::Discard);
        assert_eq!(journal.action(is_alive, BOOT, false), JournalAction::Discard);
    }
}

#[test]
fn a_revert_leaves_what_others_changed() {
    let complete = applied(journal(EndsWith::Revert));
    assert_eq!(complete.revert_step(0, Some("4096"), false), RevertStep::Write);
    assert_eq!(complete.revert_step(1, Some("3 4"), false), RevertStep::Write);
    assert_eq!(complete.revert_step(0, Some("128"), false), RevertStep::AlreadyReverted);
    assert_eq!(complete.revert_step(0, Some("500"), false), RevertStep::ChangedByOther);
    assert_eq!(complete.revert_step(0, Some("500"), true), RevertStep::Write);
    assert_eq!(complete.revert_step(0, None, false), RevertStep::Missing);
    assert_eq!(complete.revert_step(2, Some("1"), false), RevertStep::Missing);
    // Not all was read back, so nobody knows which values the kernel took.
    let interrupted = journal(EndsWith::Revert);
    assert_eq!(interrupted.revert_step(0, Some("4000"), false), RevertStep::Write);
}

#[test]
fn a_journal_names_only_what_an_apply_writes() {
    let genuine = journal(EndsWith::Revert).initial_text();
    let parse = |text: &str| TuneJournal::parse(text, OWNER);
    assert!(parse(&genuine).unwrap().is_some());
    for (from, to, line, reason) in [
        (
            "/proc/sys/net/core/somaxconn",
            "/etc/passwd",
            2,
            "/etc/passwd is not the file of net.core.somaxconn",
        ),
        (
            "/proc/sys/net/core/somaxconn",
            "/proc/sys/net/core/../../kernel/core_pattern",
            2,
            "is not the file",
        ),
        (
            "net.core.somaxconn\"",
            "kernel.core_pattern\"",
            2,
            "kernel.core_pattern is no setting that weir writes",
        ),
        ("net.core.somaxconn\"", "net.core.somaxconn@eth0\"", 2, "is no setting that weir writes"),
        ("\"3 4\"", "\"3\\n4\"", 3, "is not one line"),
        ("{\"change\":", "{\"command\":", 2, "not a line of a journal"),
        ("\"lab\"", "\"../lab\"", 1, "'../lab' is no name of a network namespace"),
        ("\"lab\"", "\"-all\"", 1, "is no name of a network namespace"),
        (SCHEMA, "weir.tune-journal/9", 1, "weir.tune-journal/9"),
        ("\"pid\":7", "\"pid\":1", 1, "another process"),
        ("\"started_at\"", "\"x\"", 1, "not a line of a journal"),
    ] {
        assert!(genuine.contains(from), "{from}: {genuine}");
        let (found, error) = parse(&genuine.replacen(from, to, 1)).unwrap_err();
        assert!(found == line && error.to_string().contains(reason), "{to}: {found}: {error}");
    }
    let persisted = |path: &str, text: &str| {
        let mut journal = journal(EndsWith::Revert);
        journal.header.persisted = Some(PersistedFile { path: path.into(), text: text.to_owned() });
        parse(&journal.initial_text()).map(|_| ())
    };
    let text = crate::apply::persistent_text(&crate::apply::ApplyPlan::default(), "weir\ntune");
    assert_eq!(persisted("/etc/sysctl.d/90-weir.conf", &text), Ok(()));
    for (path, text) in [("x.conf", &*text), ("/etc/passwd", "root:x:0:0:root:/:/bin/sh\n"), ("/etc/x", "")] {
        assert!(matches!(persisted(path, text), Err((1, LineError::Persisted(_)))), "{path}");
    }
}
