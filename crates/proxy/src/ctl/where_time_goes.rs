//! `profile`: where processor time goes, by phase of a request.

use record::units::format_duration_ns;

use super::sheet::{Cell, Sheet, render};
use super::{Call, Outcome};
use crate::profile::{Clock, Phase, Switch, Totals};

pub(super) fn run(call: &Call<'_>) -> Outcome {
    let switch = match call.words {
        [] | ["show"] => Switch::Stay,
        ["on"] => Switch::On(Clock::Monotonic),
        ["on", "exact"] => Switch::On(Clock::Thread),
        ["off"] => Switch::Off,
        _ => return Err(call.wrong_words("profile")),
    };
    let totals = call.desk.profile(switch)?;
    match switch {
        Switch::On(_) => {
            call.note(&format!("profile {}", call.words.join(" ")));
            let cost = format_duration_ns(totals.section_ns);
            return Ok(Some(format!("profiling is on; each section costs {cost}\n")));
        }
        Switch::Off => call.note("profile off"),
        Switch::Stay => {}
    }
    Ok(Some(render(&[overview(&totals), table(&totals)], call.json)))
}

fn overview(totals: &Totals) -> Sheet {
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
    let mut sheet = Sheet { upright: true, ..Sheet::new("profile", columns) };
    sheet.rows.push(vec![
        if totals.on > 0 { "on" } else { "off" }.into(),
        totals.cores.into(),
        Cell::TimeNs(totals.wall_ns / totals.cores.max(1)),
        Cell::TimeNs(totals.wall_ns),
        Cell::TimeNs(totals.thread_cpu_ns),
        Cell::TimeNs(totals.preempted_ns()),
        Cell::TimeNs(totals.section_ns),
        Cell::TimeNs(totals.own_ns),
    ]);
    sheet
}

/// Phases by the time in them, then what is no phase, then the sum.
fn table(totals: &Totals) -> Sheet {
    let columns = &[
        "phase",
        "calls",
        "cpu_tot_ns",
        "cpu_avg_ns",
        "share_percent",
        "lat_tot_ns",
        "lat_avg_ns",
        "what",
    ];
    let mut sheet = Sheet::new("phases", columns);
    let whole_ns = totals.in_phases_ns() + totals.runtime_ns() + totals.idle_ns();
    let share = |ns: u64| Cell::Number(100.0 * ns as f64 / whole_ns.max(1) as f64);
    let mut phases: Vec<_> = Phase::ALL.iter().zip(&totals.phases).collect();
    phases.sort_by_key(|(_, row)| std::cmp::Reverse(row.cpu_ns));
    for (phase, row) in phases.into_iter().filter(|(_, row)| row.calls > 0) {
        sheet.rows.push(vec![
            phase.code().into(),
            row.calls.into(),
            Cell::TimeNs(row.cpu_ns),
            Cell::time(row.cpu_ns.checked_div(row.calls)),
            share(row.cpu_ns),
            Cell::time(Some(row.waited_ns).filter(|_| row.waits > 0)),
            Cell::time(row.waited_ns.checked_div(row.waits)),
            phase.doc().into(),
        ]);
    }
    let calls = totals.phases.iter().map(|row| row.calls).sum::<u64>();
    let waited_ns = totals.phases.iter().map(|row| row.waited_ns).sum::<u64>();
    let no_phase = [
        (
            "runtime",
            totals.runtime_ns(),
            "processor time outside of all phases: epoll, timers, tasks",
        ),
        ("idle", totals.idle_ns(), "the threads slept, or waited for a processor"),
    ];
    for (name, ns, what) in no_phase {
        let none = Cell::Nothing;
        let time = Cell::TimeNs(ns);
        let row = [name.into(), none.clone(), time, none.clone(), share(ns), none.clone(), none];
        sheet.rows.push(row.into_iter().chain([what.into()]).collect());
    }
    sheet.rows.push(vec![
        "--total--".into(),
        calls.into(),
        Cell::TimeNs(whole_ns),
        Cell::Nothing,
        share(whole_ns),
        Cell::TimeNs(waited_ns),
        Cell::Nothing,
        "cpu: all the time of the threads; lat: all the time of requests".into(),
    ]);
    sheet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_add_up() {
        let mut totals =
            Totals { cores: 1, wall_ns: 1_000, thread_cpu_ns: 400, ..Totals::default() };
        for (phase, cpu_ns) in [(Phase::Route, 100), (Phase::Connect, 200)] {
            let row = &mut totals.phases[phase as usize];
            (row.calls, row.cpu_ns, row.waits, row.waited_ns) = (2, cpu_ns, 1, 50);
        }
        let sheet = table(&totals);
        let names: Vec<_> = sheet.rows.iter().map(|row| row[0].clone()).collect();
        let wanted = ["connect", "route", "runtime", "idle", "--total--"].map(Cell::from);
        assert_eq!(names, wanted);
        let times: Vec<_> = sheet.rows.iter().map(|row| row[2].clone()).collect();
        assert_eq!(times, [200, 100, 100, 600, 1_000].map(Cell::TimeNs));
        assert_eq!(sheet.rows[4][5], Cell::TimeNs(100));
    }
}
