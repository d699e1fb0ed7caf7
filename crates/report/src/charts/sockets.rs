//! Sockets in TIME_WAIT over time, in the typical trial of each arm: a client end in TIME_WAIT keeps its local
//! port, so a line that stops at the port range shows that the ports run out. There is no chart if all
//! namespaces have few.

use std::collections::BTreeMap;

use experiment::format;
use record::experiment::Experiment;

use super::ReportChart;
use crate::TrialRecords;
use crate::data::sockets::{NamespaceSockets, SocketGrid, client_end_fraction};
use crate::data::trials::series_index;
use crate::data::typical::{LoadGroup, typical_trials};
use crate::data_table::DataTable;
use crate::plot::{Axis, Frame, LEFT, Plot, Scale, Shape, Svg, extent, shortened};

/// Gap above a panel, and its height.
const PANEL: Frame = Frame::new(40.0, 120.0);
/// Maximum port range that is drawn, as a multiple of the sockets: a larger one would flatten the lines.
const RANGE_MAX: f64 = 4.0;
/// Maximum length of the names at a line of a port range.
const NAMES_CHARS_MAX: usize = 70;

/// Builds the chart: a drawing for each load, with a panel for each network namespace.
pub(crate) fn chart(experiment: &Experiment, raw: &dyn TrialRecords) -> Vec<ReportChart> {
    let typical = typical_trials(experiment, raw);
    let caption = "Sockets in TIME_WAIT in the network namespace of each process, in the typical trial of \
                   each arm, and the size of the subject's net.ipv4.ip_local_port_range (dashed). The client \
                   end of a connection in TIME_WAIT keeps a port of the range for its destination; the \
                   server end keeps none and is harmless.";
    let data = DataTable::new("load arm trial namespace time_s time_wait port_range");
    let mut chart = ReportChart::new("time-wait", "Sockets in TIME_WAIT", caption, data);
    for group in &typical.groups {
        let grid = SocketGrid::read(group);
        if grid.namespaces.is_empty() {
            continue;
        }
        if grid.step_s > 1.0 {
            chart.notes.push(format!("{}: each point is the max of {:.0} s.", group.load, grid.step_s));
        }
        grid.add_rows(&mut chart.data);
        group.trials.iter().for_each(|trial| chart.add_series(&experiment.plan, trial.arm()));
        chart.load_heading(experiment, group.load);
        chart.draw(drawing(experiment, group.load, &grid));
        chart.notes.extend(client_ends_note(group));
    }
    if chart.parts.is_empty() {
        return Vec::new();
    }
    chart.finish_trials(typical, "")
}

fn drawing(experiment: &Experiment, load: &str, grid: &SocketGrid<'_>) -> Svg {
    let text = format!("Sockets in TIME_WAIT over time under the load {load}, a line for each arm.");
    let mut svg = Svg::new("Sockets in TIME_WAIT", &text);
    let time = Axis::time(grid.longest_s());
    let mut panels: Vec<Plot> = Vec::new();
    for namespace in &grid.namespaces {
        let ranges = port_ranges(namespace);
        let counts = namespace.trials.iter().map(|sockets| sockets.max());
        let Some((_, max)) = extent(counts.chain(ranges.keys().copied()).map(|count| count as f64)) else {
            continue;
        };
        let title = format!("In TIME_WAIT: {}", namespace.name);
        let values = Axis::new(Scale::from_zero(max), 4, &title, |count| format::tick(count, ""));
        let plot = svg.plot(PANEL, time.scale, &values);
        for (ports, arms) in ranges {
            svg.add(plot.horizontal(ports as f64).class("matter"));
            let names = format!("{ports} ports: {}", names(&arms));
            let above = plot.at((f64::NAN, ports as f64)).1 - 4.0;
            svg.add(Shape::text((LEFT + 6.0, above), &shortened(&names, NAMES_CHARS_MAX)).class("tick"));
        }
        for sockets in &namespace.trials {
            let series = series_index(&experiment.plan, sockets.trial.arm());
            let points = grid.points(sockets);
            svg.add_series(&plot, &points, series);
        }
        panels.push(plot);
    }
    svg.finish_columns(&panels, &time, grid.step_tips());
    svg
}

/// Returns the drawn port ranges of a namespace with their arms.
fn port_ranges<'a>(namespace: &'a NamespaceSockets<'_>) -> BTreeMap<u64, Vec<&'a str>> {
    let max = namespace.trials.iter().map(|sockets| sockets.max()).max().unwrap_or(0);
    let mut ranges: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for sockets in &namespace.trials {
        if let Some(ports) = sockets.port_range.filter(|ports| *ports as f64 <= max as f64 * RANGE_MAX) {
            ranges.entry(ports).or_default().push(sockets.trial.arm());
        }
    }
    ranges
}

fn names(arms: &[&str]) -> String {
    match arms {
        [first, _, _, ..] => format!("{first} and {} more", arms.len() - 1),
        few => few.join(" and "),
    }
}

/// Returns the fraction of client ends, which is lower than 1 if the subject closes its clients' connections.
fn client_ends_note(group: &LoadGroup<'_>) -> Option<String> {
    let (low, high) = extent(group.trials.iter().filter_map(client_end_fraction))?;
    let (low, high) = (format::percent(low), format::percent(high));
    let fractions = if low == high { low } else { format!("{low} to {high}") };
    Some(format!(
        "{}: {fractions} of the subject's sockets in TIME_WAIT are client ends, each with a local port.",
        group.load
    ))
}

#[cfg(test)]
mod tests {
    use record::observed::{
        ConnectionEnd, EndQueues, MachineObservation, MachineSample, NamespaceUse, PortRoles,
    };

    use super::*;
    use crate::charts::markup;
    use crate::data_table::parse;
    use crate::synthetic::{ARMS, LOADS, NoRecords, SECONDS, SyntheticRecords, synthetic_experiment};

    fn change_observed(raw: &mut SyntheticRecords, change: impl Fn(&str, &mut MachineObservation)) {
        for trial in raw.trials.values_mut() {
            let arm = trial.position.arm.clone();
            let observed = trial.run.iter_mut().flat_map(|run| &mut run.observed);
            observed.for_each(|observed| change(&arm, observed));
        }
    }

    /// Adds namespaces of the subject and the generator. The subject has `per_s` more sockets in TIME_WAIT after
    /// each second, and the second arm a wider port range.
    fn with_time_wait(per_s: u64) -> (Experiment, SyntheticRecords) {
        let (experiment, mut raw) = synthetic_experiment();
        change_observed(&mut raw, |arm, observed| {
            let range = if arm == ARMS[2] { "1024 65023" } else { "32768\t60999" };
            observed.settings.insert("net.ipv4.ip_local_port_range".to_owned(), range.to_owned());
            for (sample, second) in observed.samples.iter_mut().zip(1..) {
                let namespace = |role: &str, time_wait| NamespaceUse {
                    roles: vec![role.to_owned()],
                    time_wait,
                    ..NamespaceUse::default()
                };
                sample.namespaces = vec![namespace("generator", 7), namespace("subject", per_s * second)];
            }
        });
        (experiment, raw)
    }

    #[test]
    fn each_load_has_a_line_for_each_arm_and_the_ranges() {
        let (experiment, raw) = with_time_wait(3_000);
        let charts = chart(&experiment, &raw);
        let text = markup(&charts[0]);
        assert_eq!(charts[0].parts.len(), 2 * LOADS.len(), "a heading and a drawing each");
        assert_eq!(charts[0].legend.len(), 2);
        assert_eq!(text.matches("<path").count(), LOADS.len() * 2, "the generator has few");
        assert_eq!(text.matches("matter").count(), LOADS.len() * 2, "a range for each arm");
        assert!(text.contains("28232 ports: glibc<") && text.contains("64000 ports: jemalloc<"), "{text}");
        assert_eq!(text.matches("data-tip").count(), LOADS.len() * SECONDS as usize);
        assert!(text.contains("\nglibc, subject: 24000 (range: 28232 ports)"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"));
        let rows = parse(&charts[0].data.to_csv());
        assert_eq!(rows.len() - 1, LOADS.len() * 2 * SECONDS as usize);
        assert_eq!(rows[1][3..], ["subject", "1", "3000", "28232"]);
    }

    #[test]
    fn few_sockets_and_missing_records_are_no_chart() {
        let (experiment, raw) = with_time_wait(100);
        assert!(chart(&experiment, &raw).is_empty());
        assert!(chart(&experiment, &NoRecords).is_empty());
        let (mut experiment, raw) = with_time_wait(3_000);
        experiment.trials.clear();
        assert!(chart(&experiment, &raw).is_empty());
    }

    #[test]
    fn few_sockets_are_many_for_a_small_range() {
        let (experiment, mut raw) = with_time_wait(10);
        change_observed(&mut raw, |_, observed| {
            observed.settings.insert("net.ipv4.ip_local_port_range".to_owned(), "40000 40099".to_owned());
        });
        let text = markup(&chart(&experiment, &raw)[0]);
        assert_eq!(text.matches("100 ports: glibc and jemalloc").count(), LOADS.len());
    }

    #[test]
    fn a_range_is_drawn_if_it_is_known_and_near() {
        let (experiment, mut raw) = with_time_wait(200);
        let text = markup(&chart(&experiment, &raw)[0]);
        assert!(text.contains("<path") && !text.contains("matter"), "1600 sockets, 28232 ports");
        change_observed(&mut raw, |_, observed| observed.settings.clear());
        let charts = chart(&experiment, &raw);
        assert!(!markup(&charts[0]).contains("range"));
        assert!(parse(&charts[0].data.to_csv())[1].last().unwrap().is_empty());
    }

    #[test]
    fn the_client_ends_are_noted() {
        let (experiment, mut raw) = with_time_wait(3_000);
        change_observed(&mut raw, |_, observed| {
            let role = |role: &str| Some(role.to_owned());
            let port = |port, served_by, used_by| PortRoles { port, served_by, used_by };
            observed.ports =
                vec![port(80, role("subject"), role("generator")), port(81, role("origin"), role("subject"))];
            for snapshot in &mut observed.queues {
                let ends = |port, end, time_wait| EndQueues {
                    port,
                    end,
                    states: [("time-wait".to_owned(), time_wait)].into(),
                    ..EndQueues::default()
                };
                snapshot.ends =
                    vec![ends(80, ConnectionEnd::Server, 1_000), ends(81, ConnectionEnd::Client, 3_000)];
            }
        });
        let notes = &chart(&experiment, &raw)[0].notes;
        assert_eq!(notes.len(), LOADS.len());
        assert!(notes[0].contains(": 75.0 % of the subject's"), "{notes:?}");
    }

    #[test]
    fn a_long_trial_of_several_machines_stays_bounded() {
        let (experiment, mut raw) = with_time_wait(3_000);
        for run in raw.trials.values_mut().filter_map(|trial| trial.run.as_mut()) {
            let machine = &mut run.observed[0];
            let base_sample = machine.samples[5].clone();
            let sample = |time_s| MachineSample { time_s, ..base_sample.clone() };
            machine.samples = (1..=400).map(f64::from).map(sample).collect();
            machine.samples[8].time_s = f64::NAN;
            machine.samples[9].namespaces[1].time_wait = u64::MAX;
            let other = MachineObservation { host: "other".to_owned(), ..machine.clone() };
            run.observed.push(other);
        }
        let charts = chart(&experiment, &raw);
        let text = markup(&charts[0]);
        assert!(text.len() < 150_000, "{}", text.len());
        assert!(text.contains("In TIME_WAIT: subject on other") && !text.contains("NaN"));
        assert_eq!(charts[0].notes.len(), LOADS.len(), "{:?}", charts[0].notes);
    }
}
