//! Waiting bytes over time, by the process that has not read them. A queue forms in front of the
//! slow part, so this separates the generator, the subject and the origin. It shows the typical
//! trial of each arm; the verdict draws the conclusion.

use std::collections::BTreeMap;

use experiment::format;
use record::experiment::Experiment;
use record::observed::{ConnectionEnd, EndQueues, MachineObservation};

use super::panel::{self, KEY_HEIGHT, LEFT, LevelCells, RIGHT, WIDTH, X_AXIS_HEIGHT};
use super::typical_trials::{TypicalTrial, heading, typical_trials};
use super::{ChartPart, ReportChart};
use crate::TrialRecords;
use crate::data_table::{DataTable, number};
use crate::svg::{Axis, Scale, Shape, Svg};

/// Maximum number of columns of one trial; more snapshots are merged.
const COLUMNS_MAX: usize = 80;
/// Maximum number of columns of all trials, each with its tip.
const COLUMNS_TOTAL_MAX: usize = 320;
/// Maximum number of drawn holders of one trial: more ports than an experiment has.
const LANES_MAX: usize = 8;
/// Height of a lane, and of the text above it.
const LANE_HEIGHT: f64 = 15.0;
const LANE_LABEL_HEIGHT: f64 = 21.0;
/// Unread bytes from which the colours begin.
const LEVEL_BYTES: [f64; panel::HEAT_LEVELS] =
    [1.0, 128.0, 1024.0, 4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0, 4_194_304.0];

/// Labels of these bounds.
const LEVEL_LABELS: [&str; panel::HEAT_LEVELS] =
    ["1 B", "128 B", "1 KiB", "4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB", "4 MiB"];

/// Holder of waiting bytes: its rank from the generator on, and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PendingReader {
    rank: u8,
    label: String,
}

impl PendingReader {
    fn reader_of(machine: &MachineObservation, ends: &EndQueues) -> Self {
        let port = machine.ports.iter().find(|port| port.port == ends.port);
        let role = port.and_then(|port| match ends.end {
            ConnectionEnd::Client => port.used_by.as_deref(),
            ConnectionEnd::Server => port.served_by.as_deref(),
        });
        let (what, side) = match ends.end {
            ConnectionEnd::Client => ("responses", "client"),
            ConnectionEnd::Server => ("requests", "server"),
        };
        let rank = match (role, ends.end) {
            (Some("generator"), _) => 0,
            (Some("subject"), ConnectionEnd::Server) => 1,
            (Some("subject"), ConnectionEnd::Client) => 2,
            (Some("origin"), _) => 3,
            _ => 4,
        };
        let who = match role {
            Some(role) => role.to_owned(),
            None => format!("the {side} of port {}", ends.port),
        };
        Self { rank, label: format!("{what} not read by {who}") }
    }
}

/// Waiting data at one holder, as a mean over the snapshots of a column.
#[derive(Clone, Copy, Debug, Default)]
struct UnreadMean {
    bytes: f64,
    sockets: f64,
    established: f64,
    snapshots: f64,
}

impl UnreadMean {
    /// Adds a snapshot: bytes, sockets that hold them, and connections.
    fn add(&mut self, [bytes, sockets, established]: [u64; 3]) {
        let before = self.snapshots;
        let mean = |mean: f64, value: u64| (mean * before + value as f64) / (before + 1.0);
        self.bytes = mean(self.bytes, bytes);
        self.sockets = mean(self.sockets, sockets);
        self.established = mean(self.established, established);
        self.snapshots += 1.0;
    }

    fn text(&self) -> String {
        let bytes = format::value(self.bytes, "bytes");
        format!("{bytes} in {:.0} of {:.0} connections", self.sockets, self.established)
    }
}

/// Queues of one trial.
struct QueueTimeline {
    step_s: f64,
    columns: usize,
    lanes: BTreeMap<PendingReader, Vec<UnreadMean>>,
    /// Maximum length and size of the accept queues of listening sockets, by port.
    listeners: BTreeMap<u16, (u32, u32)>,
}

/// Builds the chart: a drawing for each arm under each load.
pub(crate) fn chart(experiment: &Experiment, raw: &dyn TrialRecords) -> Vec<ReportChart> {
    let trial_groups = typical_trials(experiment, raw);
    let trials: Vec<&TypicalTrial<'_>> = trial_groups.groups.iter().flat_map(|group| &group.trials).collect();
    if trials.is_empty() {
        return Vec::new();
    }
    let title = "Unread bytes";
    let caption = "Unread bytes in the sockets of each process, in the typical trial of each arm. The last \
                   process on the path of a request with strong colours is the slow one; if all colours \
                   are faint, every process keeps up.";
    let columns = ["load", "arm", "trial", "time_s", "holder", "unread_bytes", "sockets", "connections"];
    let mut chart = ReportChart::new("queues", title, caption, DataTable::new(&columns));
    let columns_max = (COLUMNS_TOTAL_MAX / trials.len()).clamp(10, COLUMNS_MAX);
    for one in trials {
        let timeline = queue_timeline(one, columns_max);
        if timeline.lanes.is_empty() {
            continue;
        }
        add_rows(&mut chart.data, one, &timeline);
        let title = heading(experiment, one);
        // The colours are the same in all of them: one key is enough.
        let key = !chart.parts.iter().any(|part| matches!(part, ChartPart::Drawing(_)));
        chart.parts.push(ChartPart::Heading(title.clone()));
        chart.parts.push(ChartPart::Drawing(drawing(&timeline, &title, key)));
    }
    if chart.parts.is_empty() {
        let why = "The sockets were not sampled during these trials.";
        return vec![ReportChart::empty("queues", title, caption, why)];
    }
    chart.notes.extend(trial_groups.notes);
    vec![chart]
}

fn queue_timeline(one: &TypicalTrial<'_>, columns_max: usize) -> QueueTimeline {
    let snapshots = || {
        let all = one.observed().flat_map(|observed| observed.queues.iter().map(move |at| (observed, at)));
        all.filter(|(_, snapshot)| snapshot.time_s >= 0.0 && snapshot.time_s.is_finite())
    };
    let longest_s = snapshots().map(|(_, snapshot)| snapshot.time_s).fold(0.0, f64::max).max(0.1);
    let columns_wanted = snapshots().count().clamp(1, columns_max);
    let step_s = longest_s / columns_wanted as f64;
    let mut lanes: BTreeMap<PendingReader, Vec<UnreadMean>> = BTreeMap::new();
    let mut listeners: BTreeMap<u16, (u32, u32)> = BTreeMap::new();
    for (machine, snapshot) in snapshots() {
        let column = ((snapshot.time_s / step_s) as usize).min(columns_wanted - 1);
        // A process may listen on several ports, so its bytes are summed.
        let mut now: BTreeMap<PendingReader, [u64; 3]> = BTreeMap::new();
        for ends in &snapshot.ends {
            let established = ends.states.get("established").copied().unwrap_or(0);
            let sums = now.entry(PendingReader::reader_of(machine, ends)).or_default();
            for (sum, value) in sums.iter_mut().zip([ends.unread_bytes, ends.with_unread, established]) {
                *sum = sum.saturating_add(value);
            }
        }
        for (holder, sums) in now {
            if lanes.len() < LANES_MAX || lanes.contains_key(&holder) {
                let lane = lanes.entry(holder).or_insert_with(|| vec![UnreadMean::default(); columns_wanted]);
                lane[column].add(sums);
            }
        }
        for listener in &snapshot.listeners {
            let max = listeners.entry(listener.port).or_default();
            *max = (max.0.max(listener.waiting), max.1.max(listener.backlog));
        }
    }
    QueueTimeline { step_s, columns: columns_wanted, lanes, listeners }
}

fn add_rows(data: &mut DataTable, one: &TypicalTrial<'_>, timeline: &QueueTimeline) {
    let position = &one.line.position;
    for (holder, columns) in &timeline.lanes {
        let sampled = columns.iter().enumerate().filter(|(_, held)| held.snapshots > 0.0);
        for (column, held) in sampled {
            data.add_row(vec![
                position.load.clone(),
                position.arm.clone(),
                position.number.to_string(),
                number(Some(column as f64 * timeline.step_s)),
                holder.label.clone(),
                number(Some(held.bytes)),
                number(Some(held.sockets)),
                number(Some(held.established)),
            ]);
        }
    }
}

fn drawing(timeline: &QueueTimeline, title: &str, key: bool) -> Svg {
    let top = if key { KEY_HEIGHT } else { 0.0 };
    let lanes_height = timeline.lanes.len() as f64 * (LANE_HEIGHT + LANE_LABEL_HEIGHT);
    let listeners_height = timeline.listeners.len().min(LANES_MAX) as f64 * 18.0;
    let height = top + lanes_height + X_AXIS_HEIGHT + listeners_height;
    let text = "A strip for each process with unread bytes; darker is more.";
    let mut svg = Svg::new(WIDTH, height, title, text);
    if key {
        panel::draw_key(&mut svg, 0.0, "Unread bytes, from", &LEVEL_LABELS.map(str::to_owned));
    }
    let longest_s = timeline.step_s * timeline.columns as f64;
    let time = Scale::linear((0.0, longest_s), (LEFT, RIGHT));
    let mut cells = LevelCells::default();
    for (index, (holder, columns)) in timeline.lanes.iter().enumerate() {
        let lane_top = top + index as f64 * (LANE_HEIGHT + LANE_LABEL_HEIGHT) + LANE_LABEL_HEIGHT;
        let all = columns.iter().filter(|held| held.snapshots > 0.0);
        let count = all.clone().count().max(1) as f64;
        let mean = all.map(|held| held.bytes).sum::<f64>() / count;
        let caption = format!("{}: {} on average", holder.label, format::value(mean, "bytes"));
        svg.add(Shape::text((LEFT, lane_top - 5.0), &caption).class("label"));
        let frame = Shape::rect((LEFT, lane_top), (RIGHT, lane_top + LANE_HEIGHT));
        svg.add(frame.class("h0"));
        for (column, held) in columns.iter().enumerate() {
            let level = panel::level(held.bytes, &LEVEL_BYTES);
            let (from, to) = column_edges(time, timeline, column);
            cells.add(level, (from, lane_top), (to, lane_top + LANE_HEIGHT));
        }
    }
    cells.draw(&mut svg, panel::heat_class);
    add_tooltips(&mut svg, timeline, time, (top, top + lanes_height));
    let area = panel::area(top, lanes_height);
    let x = Axis::new(time, 8, "Time since the start of the load", panel::seconds_text);
    panel::draw_x_axis(&mut svg, &area, &x);
    for (index, (port, (waiting, backlog))) in timeline.listeners.iter().take(LANES_MAX).enumerate() {
        let caption = format!(
            "The accept queue of port {port} had max {waiting} connections; the backlog is \
             {backlog}."
        );
        let at = top + lanes_height + X_AXIS_HEIGHT + 12.0 + index as f64 * 18.0;
        svg.add(Shape::text((LEFT, at), &caption).class("tick"));
    }
    svg
}

fn column_edges(time: Scale, timeline: &QueueTimeline, column: usize) -> (f64, f64) {
    let at = |column: usize| time.position(column as f64 * timeline.step_s);
    (at(column), at(column + 1))
}

fn add_tooltips(svg: &mut Svg, timeline: &QueueTimeline, time: Scale, (top, bottom): (f64, f64)) {
    for column in 0..timeline.columns {
        let mut lines = vec![format::value(column as f64 * timeline.step_s, "s")];
        let held = timeline.lanes.iter().map(|(holder, columns)| (holder, &columns[column]));
        let sampled = held.filter(|(_, held)| held.snapshots > 0.0);
        lines.extend(sampled.map(|(holder, held)| format!("{}: {}", holder.label, held.text())));
        if lines.len() > 1 {
            let (from, to) = column_edges(time, timeline, column);
            svg.add(panel::hover_area((from, top), (to, bottom), &lines.join("\n")));
        }
    }
}

#[cfg(test)]
mod tests {
    use record::observed::{PortRoles, QueueSnapshot};

    use super::*;
    use crate::charts::markup;
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
        let of_subject = format!("{}: ", label_of("subject"));
        assert_eq!(text.matches(&of_subject).count(), drawings + tips_of(&text));
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
                ends: (0..300)
                    .map(|port| EndQueues { port, unread_bytes: u64::MAX, ..ends.clone() })
                    .collect(),
                listeners: Vec::new(),
                ..QueueSnapshot::default()
            };
            observed.queues = (0..3_000).step_by(10).map(all).collect();
            observed.queues[4].time_s = f64::NAN;
        });
        let text = markup(&chart(&experiment, &raw)[0]);
        assert!(text.len() < 600_000, "{}", text.len());
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }
}
