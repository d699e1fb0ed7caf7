//! `weir tune check`: reads the machine or files, and prints the findings.

use std::collections::BTreeMap;

use host::tuning::read_sysctl;
use record::problem::InputProblem;
use tune::check::{check_machine, count_changes, judge_context};
use tune::foreign::{ForeignLine, MachineFacts, files, judge_lines, names_set, values_left};
use tune::observation::{MachineState, observe_machine};
use tune::report::{CheckReport, SCHEMA};
use tune::scratch::rejected_lines;

use super::parse_role;
use crate::exit::{Exit, Failure};
use crate::flags::CommandArgs;
use crate::output::file::write_json;
use crate::output::print;
use report::text::tune::{format_lines, format_settings};

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let json = args.text("json");
    crate::preflight::outputs(args, &["json"], &[])?;
    let (role, lines) = (parse_role(args), files::read_lines(&args.texts("file")));
    let (role, lines) = match (role, lines) {
        (Ok(role), Ok(lines)) => (role, lines),
        (role, lines) => {
            let mut problems: Vec<InputProblem> = role.err().into_iter().collect();
            problems.extend(lines.err().unwrap_or_default());
            return Err(problems.into());
        }
    };
    let state = observe_machine();
    let mut report = CheckReport {
        schema: SCHEMA.to_owned(),
        weir_version: env!("WEIR_VERSION").to_owned(),
        kernel: state.release.clone(),
        memory_bytes: state.memory_bytes,
        role,
        settings: Vec::new(),
        lines: Vec::new(),
        is_tried: false,
        findings: 0,
    };
    if args.texts("file").is_empty() {
        report.settings =
            check_machine(&state, role, &values_left(&files::machine_lines(), &BTreeMap::new()));
        report.findings = count_changes(&report.settings);
    } else {
        judge_files(&mut report, &lines, &state);
    }
    if json.as_deref() != Some(crate::preflight::STDOUT) {
        let files = !args.texts("file").is_empty();
        print(&if files { format_lines(&report) } else { format_settings(&report, args.is_set("all")) });
    }
    write_json(&report, json.as_deref())?;
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
