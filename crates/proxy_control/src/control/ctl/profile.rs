//! `profile`: CPU time by phase of a request.

use record::sorted::sort_by_key;
use record::units::format_duration_ns;

use super::table::{Cell, OutputTable, render};
use super::{CommandRequest, CommandResult};
use crate::profile::{ProfileClock, ProfileCommand, ProfilePhase, ProfileTotals};

pub(super) fn run(request: &CommandRequest<'_>) -> CommandResult {
    let switch = match request.args {
        [] | ["show"] => ProfileCommand::Read,
        ["on"] => ProfileCommand::Start(ProfileClock::Monotonic),
        ["on", "exact"] => ProfileCommand::Start(ProfileClock::Thread),
        ["off"] => ProfileCommand::Stop,
        _ => return Err(request.usage_error("profile")),
    };
    let totals = request.context.profile(switch)?;
    match switch {
        ProfileCommand::Start(_) => {
            request.log_change(&format!("profile {}", request.args.join(" ")));
            let cost = format_duration_ns(totals.section_cost_ns);
            return Ok(Some(format!("profiling is on; each section costs {cost}\n")));
        }
        ProfileCommand::Stop => request.log_change("profile off"),
        ProfileCommand::Read => {}
    }
    Ok(Some(render(&[overview_table(&totals), phases_table(&totals)], request.wants_json)))
}

fn overview_table(totals: &ProfileTotals) -> OutputTable {
    let columns = &[
        "profiling",
        "threads",
        "duration_ns",
        "time_ns",
        "thread_cpu_ns",
        "preempted_ns",
        "section_cost_ns",
        "own_cost_ns",
    ];
    let mut table = OutputTable { is_vertical: true, ..OutputTable::new("profile", columns) };
    table.rows.push(vec![
        if totals.cores_on > 0 { "on" } else { "off" }.into(),
        totals.cores.into(),
        Cell::TimeNs(totals.wall_ns / totals.cores.max(1)),
        Cell::TimeNs(totals.wall_ns),
        Cell::TimeNs(totals.thread_cpu_ns),
        Cell::TimeNs(totals.preempted_ns()),
        Cell::TimeNs(totals.section_cost_ns),
        Cell::TimeNs(totals.overhead_ns),
    ]);
    table
}

/// Returns the rows: phases by descending CPU time, then time outside all phases, then the total.
fn phases_table(totals: &ProfileTotals) -> OutputTable {
    let columns = &[
        "phase",
        "calls",
        "cpu_tot_ns",
        "cpu_avg_ns",
        "time_percent",
        "lat_tot_ns",
        "lat_avg_ns",
        "description",
    ];
    let mut table = OutputTable::new("phases", columns);
    let total_ns = totals.phases_ns() + totals.runtime_ns() + totals.idle_ns();
    let percent_cell = |ns: u64| Cell::Number(100.0 * ns as f64 / total_ns.max(1) as f64);
    let mut phases: Vec<_> = ProfilePhase::ALL.iter().zip(&totals.phases).collect();
    sort_by_key(&mut phases, |(_, row)| std::cmp::Reverse(row.cpu_ns));
    for (phase, row) in phases.into_iter().filter(|(_, row)| row.calls > 0) {
        table.rows.push(vec![
            phase.code().into(),
            row.calls.into(),
            Cell::TimeNs(row.cpu_ns),
            Cell::time(row.cpu_ns.checked_div(row.calls)),
            percent_cell(row.cpu_ns),
            Cell::time(Some(row.request_ns).filter(|_| row.requests > 0)),
            Cell::time(row.request_ns.checked_div(row.requests)),
            phase.doc().into(),
        ]);
    }
    let calls = totals.phases.iter().map(|row| row.calls).sum::<u64>();
    let waited_ns = totals.phases.iter().map(|row| row.request_ns).sum::<u64>();
    let outside_phases = [
        ("runtime", totals.runtime_ns(), "CPU time outside of all phases: epoll, timers, tasks"),
        ("idle", totals.idle_ns(), "the threads slept, or waited for a CPU"),
    ];
    for (name, ns, description) in outside_phases {
        let none = Cell::Empty;
        let time = Cell::TimeNs(ns);
        let row = [name.into(), none.clone(), time, none.clone(), percent_cell(ns), none.clone(), none];
        table.rows.push(row.into_iter().chain([description.into()]).collect());
    }
    table.rows.push(vec![
        "--total--".into(),
        calls.into(),
        Cell::TimeNs(total_ns),
        Cell::Empty,
        percent_cell(total_ns),
        Cell::TimeNs(waited_ns),
        Cell::Empty,
        "cpu: total time of the threads; lat: total time of the requests".into(),
    ]);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_add_up() {
        let mut totals =
            ProfileTotals { cores: 1, wall_ns: 1_000, thread_cpu_ns: 400, ..ProfileTotals::default() };
        for (phase, cpu_ns) in [(ProfilePhase::Route, 100), (ProfilePhase::Connect, 200)] {
            let row = &mut totals.phases[phase as usize];
            (row.calls, row.cpu_ns, row.requests, row.request_ns) = (2, cpu_ns, 1, 50);
        }
        let table = phases_table(&totals);
        let names: Vec<_> = table.rows.iter().map(|row| row[0].clone()).collect();
        let expected = ["connect", "route", "runtime", "idle", "--total--"].map(Cell::from);
        assert_eq!(names, expected);
        let times: Vec<_> = table.rows.iter().map(|row| row[2].clone()).collect();
        assert_eq!(times, [200, 100, 100, 600, 1_000].map(Cell::TimeNs));
        assert_eq!(table.rows[4][5], Cell::TimeNs(100));
    }
}
