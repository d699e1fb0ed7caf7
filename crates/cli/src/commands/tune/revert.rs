//! `weir tune revert` and `weir tune status`.

use report::text::table::table;
use serde::Serialize;
use tune::journal::{EndsWith, JournalHeader};
use tune::session::{ManagedState, RevertReport, StoredJournal, managed_states, revert, stored_journals};

use super::{open_journals, report_refused, restore_leftovers};
use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, CommandFlags, RevertFlags, StatusFlags};
use crate::output::file::write_json;
use crate::output::print;

/// Schema of `weir tune status --json`.
const STATUS_SCHEMA: &str = "weir.tune-status/1";

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let flags = RevertFlags::parse(args)?;
    let Some(directory) = open_journals(flags.journals.as_deref())? else {
        print("nothing to restore\n");
        return Ok(Exit::Done);
    };
    let stored = stored_journals(&directory);
    report_refused(&stored.refused);
    let mut is_complete = stored.refused.is_empty();
    if stored.journals.is_empty() {
        print("nothing to restore\n");
    }
    for journal in &stored.journals {
        match revert(&directory, &journal.name, flags.force) {
            Ok(Some(report)) => {
                for (name, value) in &report.restored {
                    print(&format!("{name} = {value}\n"));
                }
                report_problems(&report);
                is_complete &= report.is_complete();
            }
            Ok(None) => warn!("weir: {}: another process restores it", journal.name),
            Err(error) => {
                warn!("weir: {}: {error}", journal.name);
                is_complete = false;
            }
        }
    }
    Ok(if is_complete { Exit::Done } else { Exit::CannotRun })
}

/// Prints the settings that are not restored.
pub(super) fn report_problems(report: &RevertReport) {
    for (name, now, ours) in &report.changed_by_other {
        warn!(
            "weir: {name} is {now}, and weir had set {ours}: somebody else changed it, so it is left alone (weir \
             tune revert --force restores it)"
        );
    }
    for (name, reason) in &report.failures {
        warn!("weir: {name} cannot be restored: {reason}");
    }
}

/// Settings that weir manages.
#[derive(Debug, Serialize)]
struct StatusReport {
    schema: &'static str,
    applied: Vec<AppliedStatus>,
}

#[derive(Debug, Serialize)]
struct AppliedStatus {
    #[serde(flatten)]
    header: JournalHeader,
    settings: Vec<ManagedSetting>,
}

#[derive(Debug, Serialize)]
struct ManagedSetting {
    name: String,
    old: String,
    new: String,
    value: Option<String>,
    state: &'static str,
}

/// Runs `weir tune status`.
pub(super) fn status(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let flags = StatusFlags::parse(args)?;
    crate::preflight::destinations(&[&flags.json], &[])?;
    let directory = open_journals(flags.journals.as_deref())?;
    restore_leftovers(directory.as_ref());
    let stored = directory.as_ref().map(stored_journals).unwrap_or_default();
    report_refused(&stored.refused);
    let applied = stored.journals.iter().map(applied_status).collect::<Result<Vec<_>, Failure>>()?;
    if !flags.json.is_stdout() {
        print(&format_status(&applied));
    }
    write_json(&StatusReport { schema: STATUS_SCHEMA, applied }, flags.json.path())?;
    Ok(Exit::Done)
}

fn applied_status(stored: &StoredJournal) -> Result<AppliedStatus, Failure> {
    let journal = &stored.journal;
    let states = managed_states(journal)?;
    let settings = journal.changes.iter().zip(states).map(|(change, (value, state))| ManagedSetting {
        name: change.name.clone(),
        old: change.old.clone(),
        new: change.new.clone(),
        value,
        state: state_name(state),
    });
    Ok(AppliedStatus { header: journal.header.clone(), settings: settings.collect() })
}

fn state_name(state: ManagedState) -> &'static str {
    match state {
        ManagedState::InForce => "in force",
        ManagedState::Reverted => "restored",
        ManagedState::ChangedByOther => "changed by somebody else",
        ManagedState::NotReadable => "not readable",
    }
}

fn format_status(applied: &[AppliedStatus]) -> String {
    if applied.is_empty() {
        return "weir has changed no setting\n".to_owned();
    }
    let mut text = String::new();
    for status in applied {
        let header = &status.header;
        let end = match &header.ends_with {
            EndsWith::Revert => "until weir tune revert".to_owned(),
            EndsWith::Time { at } => format!("until {at}"),
            EndsWith::Command { command } => format!("until the end of: {}", command.join(" ")),
        };
        let (target, requested) = (header.target.description(), header.requested.join(" "));
        text.push_str(&format!("{requested}  on {target}, since {}, {end}\n", header.started_at));
        let mut rows = vec![["setting", "before", "set to", "now", "state"].map(str::to_owned).to_vec()];
        for setting in &status.settings {
            let now = setting.value.clone().unwrap_or_default();
            let (old, new) = (setting.old.clone(), setting.new.clone());
            rows.push(vec![setting.name.clone(), old, new, now, setting.state.to_owned()]);
        }
        text.push_str(&table(&rows));
        text.push('\n');
    }
    text
}
