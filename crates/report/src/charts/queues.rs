//! Waiting bytes over time, by the process that has not read them. A queue forms in front of the
//! slow part, so this separates the generator, the subject and the origin. It shows the typical
//! trial of each arm; the verdict draws the conclusion.

use experiment::format;
use record::experiment::Experiment;

use super::ReportChart;
use crate::TrialRecords;
use crate::data::queues::{LANES_MAX, QueueTimeline};
use crate::data::typical::typical_trials;
use crate::data_table::DataTable;
use crate::plot::{Axis, Frame, HEAT_LEVELS, HeatCells, LEFT, Plot, Shape, Svg, level};

/// Maximum number of columns of one trial; more snapshots are merged.
const COLUMNS_MAX: usize = 80;
/// Maximum number of columns of all trials, each with its tip.
const COLUMNS_TOTAL_MAX: usize = 320;
/// Height of the text above a lane, and of the lane.
const LANE: Frame = Frame::new(21.0, 15.0);
/// Unread bytes from which the colours begin.
const LEVEL_BYTES: [f64; HEAT_LEVELS] =
    [1.0, 128.0, 1024.0, 4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0, 4_194_304.0];
const LEVEL_LABELS: [&str; HEAT_LEVELS] =
    ["1 B", "128 B", "1 KiB", "4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB", "4 MiB"];

/// Builds the chart: a drawing for each arm under each load.
pub(crate) fn chart(experiment: &Experiment, raw: &dyn TrialRecords) -> Vec<ReportChart> {
    let typical = typical_trials(experiment, raw);
    let columns_max = (COLUMNS_TOTAL_MAX / typical.trials().len().max(1)).clamp(10, COLUMNS_MAX);
    let caption = "Unread bytes in the sockets of each process, in the typical trial of each arm. The last \
                   process on the path of a request with strong colours is the slow one; if all colours \
                   are faint, every process keeps up.";
    let data = DataTable::new("load arm trial time_s holder unread_bytes sockets connections");
    let mut chart = ReportChart::new("queues", "Unread bytes", caption, data);
    chart.draw_trials(experiment, &typical, |chart, trial, title| {
        let timeline = QueueTimeline::read(trial, columns_max);
        timeline.add_rows(&mut chart.data, trial);
        // The colours are the same in all of them: one key is enough.
        (!timeline.lanes.is_empty()).then(|| drawing(&timeline, title, chart.parts.is_empty()))
    });
    chart.finish_trials(typical, "The sockets were not sampled during these trials.")
}

fn drawing(timeline: &QueueTimeline, title: &str, with_key: bool) -> Svg {
    let mut svg = Svg::new(title, "A strip for each process with unread bytes; darker is more.");
    if with_key {
        svg.heat_key("Unread bytes, from", &LEVEL_LABELS.map(str::to_owned));
    }
    let time = Axis::time(timeline.edges_s(timeline.columns).0);
    let mut lanes: Vec<Plot> = Vec::new();
    let mut heat = HeatCells::default();
    for (holder, columns) in &timeline.lanes {
        let plot = svg.rows(LANE, time.scale, 1);
        let bytes = columns.iter().filter(|held| held.snapshots > 0.0).map(|held| held.bytes);
        let mean = stats::mean(&bytes.collect::<Vec<_>>()).unwrap_or(0.0);
        let name = format!("{}: {} on average", holder.label, format::value(mean, "bytes"));
        svg.add(Shape::text((LEFT, plot.area.top - 5.0), &name).class("label"));
        svg.add(Shape::rect(plot.area).class("h0"));
        for (column, held) in columns.iter().enumerate() {
            heat.add(level(held.bytes, &LEVEL_BYTES), plot.cell(timeline.edges_s(column), (0.0, 1.0)));
        }
        lanes.push(plot);
    }
    heat.draw(&mut svg);
    svg.finish_columns(&lanes, &time, timeline.column_tips());
    for (port, (waiting, backlog)) in timeline.listeners.iter().take(LANES_MAX) {
        let text = format!(
            "The accept queue of port {port} had max {waiting} connections; the backlog is {backlog}."
        );
        svg.add_text(LEFT, &text, "tick");
    }
    svg
}

#[cfg(test)]
mod tests {
    use record::observed::{EndQueues, MachineObservation, PortRoles, QueueSnapshot};

    use super::*;
    use crate::charts::{ChartPart, markup};
    use crate::data_table::parse;
    use crate::synthetic::{LOADS, NoRecords, SECONDS, SyntheticRecords, synthetic_experiment};

    fn observed(raw: &mut SyntheticRecords, change: impl Fn(&mut MachineObservation)) {
        for run in raw.trials.values_mut().filter_map(|trial| trial.run.as_mut()) {
            run.observed.iter_mut().for_each(&change);
        }
    }

    fn with_ports(raw: &mut SyntheticRecords) {
        let port = PortRoles {
            port: 80,
            served_by: Some("subject".to_owned()),
            used_by: Some("generator".to_owned()),
        };
        observed(raw, |observed| observed.ports = vec![port.clone()]);
    }

    #[test]
    fn each_arm_has_a_strip_for_each_reader() {
        let (experiment, mut raw) = synthetic_experiment();
        let text = markup(&chart(&experiment, &raw)[0]);
        assert!(text.contains("port 80"), "{text}");
        with_ports(&mut raw);
        let charts = chart(&experiment, &raw);
        let text = markup(&charts[0]);
        let drawings = LOADS.len() * 2;
        let rows = parse(&charts[0].data.to_csv());
        let label_of = |role: &str| &rows.iter().find(|row| row[4].ends_with(role)).unwrap()[4];
        let subject_prefix = format!("{}: ", label_of("subject"));
        assert_eq!(text.matches(&subject_prefix).count(), drawings + tips_of(&text));
        assert!(text.contains(label_of("generator")));
        assert_eq!(text.matches("is 511.").count(), drawings);
        assert_eq!(text.matches("Unread bytes, from").count(), 1);
        assert!(!text.contains("NaN") && !text.contains("inf"));
        assert_eq!(rows.len() - 1, drawings * 2 * (SECONDS as usize * 2));
        assert!(rows[1][5].parse::<f64>().unwrap() < 9_000.0);
    }

    fn tips_of(text: &str) -> usize {
        text.matches("data-tip").count()
    }

    #[test]
    fn no_data_is_no_chart_and_missing_snapshots_are_noted() {
        let (mut experiment, mut raw) = synthetic_experiment();
        assert!(chart(&experiment, &NoRecords).is_empty());
        observed(&mut raw, |observed| observed.queues.clear());
        assert!(matches!(chart(&experiment, &raw)[0].parts[..], [ChartPart::Empty(_)]));
        experiment.trials.clear();
        assert!(chart(&experiment, &raw).is_empty());
    }

    #[test]
    fn many_snapshots_and_ports_stay_bounded() {
        let (experiment, mut raw) = synthetic_experiment();
        observed(&mut raw, |observed| {
            let ends = observed.queues[0].ends[1].clone();
            let all = |index: u32| QueueSnapshot {
                time_s: f64::from(index) / 5.0,
                ends: (0..100)
                    .map(|port| EndQueues { port, unread_bytes: u64::MAX, ..ends.clone() })
                    .collect(),
                listeners: Vec::new(),
                ..QueueSnapshot::default()
            };
            observed.queues = (0..3_000).step_by(30).map(all).collect();
            observed.queues[4].time_s = f64::NAN;
        });
        let text = markup(&chart(&experiment, &raw)[0]);
        assert!(text.len() < 600_000, "{}", text.len());
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }
}
