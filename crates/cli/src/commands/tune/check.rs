//! `weir tune check`: reads the machine or files, and prints the findings.

use std::collections::BTreeMap;

use host::tuning::read_sysctl;
use tune::check::{check_machine, count_changes, judge_context};
use tune::foreign::{ForeignLine, MachineFacts, files, judge_lines, names_set, values_left};
use tune::observation::{MachineState, observe_machine};
use tune::report::{CheckReport, SCHEMA};
use tune::scratch::rejected_lines;

use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, CommandFlags, FlagReader, TuneCheckFlags};
use crate::output::file::write_json;
use crate::output::print;
use report::text::tune::{format_lines, format_settings};

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let mut reader = FlagReader::new(args);
    let flags = TuneCheckFlags::read(&mut reader);
    crate::preflight::destinations(&[&flags.json], &[])?;
    let lines = files::read_lines(&flags.files).map_err(|problems| reader.problems.extend(problems));
    let lines = reader.finish(lines.unwrap_or_default())?;
    let state = observe_machine();
    let mut report = CheckReport {
        schema: SCHEMA.to_owned(),
        weir_version: env!("WEIR_VERSION").to_owned(),
        kernel: state.release.clone(),
        memory_bytes: state.memory_bytes,
        role: flags.role,
        settings: Vec::new(),
        lines: Vec::new(),
        is_tried: false,
        findings: 0,
    };
    if flags.files.is_empty() {
        report.settings =
            check_machine(&state, flags.role, &values_left(&files::machine_lines(), &BTreeMap::new()));
        report.findings = count_changes(&report.settings);
    } else {
        judge_files(&mut report, &lines, &state);
    }
    if !flags.json.is_stdout() {
        let has_files = !flags.files.is_empty();
        print(&if has_files { format_lines(&report) } else { format_settings(&report, flags.all) });
    }
    write_json(&report, flags.json.path())?;
    Ok(if report.findings == 0 { Exit::Done } else { Exit::ObjectiveMissed })
}

fn judge_files(report: &mut CheckReport, lines: &[ForeignLine], state: &MachineState) {
    let values = state.values();
    let context = judge_context(state, &values, report.role);
    let names = host::tuning::sysctl_names();
    let rejected = rejected_lines(lines);
    report.is_tried = rejected.is_ok();
    let named = names_set(lines, &names).into_iter().flatten();
    let missing = named.filter(|name| names.contains_key(name) && !values.contains_key(name));
    let read = |name: String| Some((name.clone(), read_sysctl(&name).text()?.to_owned()));
    let values_read = missing.filter_map(read).collect();
    let set_by = values_left(&files::machine_lines(), &names);
    let facts = MachineFacts { names, values: values_read, set_by, rejected: rejected.unwrap_or_default() };
    report.lines = judge_lines(lines, &context, &facts);
    report.findings = report.lines.iter().filter(|line| line.is_finding).count();
}
