//! Journals as they are stored, complete and cut at every byte, and the decisions about them.

use super::*;

const BOOT: &str = "boot-1";

fn journal(ends_with: EndsWith) -> TuneJournal {
    let header = JournalHeader {
        schema: SCHEMA.to_owned(),
        owner: ProcessIdentity { pid: 7, start_ticks: 8 },
        boot_id: BOOT.to_owned(),
        started_at: "2026-11-24T10:00:00Z".to_owned(),
        requested: vec!["proxy".to_owned()],
        target: Target::Namespace { name: "lab".to_owned(), inode: 3 },
        ends_with,
        persisted: None,
    };
    let change = |name: &str, old: &str, new: &str| JournaledChange {
        name: name.to_owned(),
        path: PathBuf::from("/proc/sys/net/core/somaxconn"),
        old: old.to_owned(),
        new: new.to_owned(),
    };
    TuneJournal::new(header, vec![change("a", "128", "4096"), change("b", "1 2", "3 4")])
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
    assert_eq!(TuneJournal::parse(&text), Some(expected));
}

#[test]
fn a_journal_cut_at_any_byte_names_only_complete_changes() {
    let full = journal(EndsWith::Revert);
    let values = ["4096".to_owned(), "3 4".to_owned()];
    let text = full.initial_text() + &TuneJournal::applied_text(&values);
    let header_bytes = text.find('\n').expect("a header") + 1;
    for end in 0..text.len() {
        let Some(parsed) = TuneJournal::parse(&text[..end]) else {
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
