//! Where bytes wait over time: who holds data that it has not read. A queue stands before what is too
//! slow, so this tells the generator, the subject and the origin apart. For the typical trial of each
//! arm. Not for what follows from it: that is the verdict.

use std::collections::BTreeMap;

use record::experiment::Experiment;
use record::observed::{End, EndQueues, Observed};

use super::panel::{self, Cells, FOOT, KEY, LEFT, RIGHT, WIDTH};
use super::typical::{Typical, heading, typical};
use super::{Chart, Part};
use crate::report::Raw;
use crate::report::csv::{Figures, number};
use crate::report::svg::{Axis, Mark, Scale, Svg};
use crate::words;

/// Columns of one trial at most; more snapshots share columns.
const COLUMNS_MAX: usize = 80;
/// Columns of all trials, each with its tip.
const COLUMNS_ALL_MAX: usize = 320;
/// Holders that are drawn of one trial: more ports than an experiment has.
const LANES_MAX: usize = 8;
/// Height of a lane, and of the words above it.
const LANE: f64 = 15.0;
const WORDS: f64 = 21.0;
/// Unread bytes from which the colours begin.
const BOUNDS: [f64; panel::LEVELS] =
    [1.0, 128.0, 1024.0, 4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0, 4_194_304.0];

/// The same in words.
const LABELS: [&str; panel::LEVELS] =
    ["1 B", "128 B", "1 KiB", "4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB", "4 MiB"];

/// Who holds bytes: its rank from the generator on, and words for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Holder {
    rank: u8,
    words: String,
}

impl Holder {
    fn of(machine: &Observed, ends: &EndQueues) -> Self {
        let port = machine.ports.iter().find(|port| port.port == ends.port);
        let role = port.and_then(|port| match ends.end {
            End::Client => port.used_by.as_deref(),
            End::Server => port.served_by.as_deref(),
        });
        let (what, side) = match ends.end {
            End::Client => ("answers", "client"),
            End::Server => ("requests", "server"),
        };
        let rank = match (role, ends.end) {
            (Some("generator"), _) => 0,
            (Some("subject"), End::Server) => 1,
            (Some("subject"), End::Client) => 2,
            (Some("origin"), _) => 3,
            _ => 4,
        };
        let who = match role {
            Some(role) => role.to_owned(),
            None => format!("the {side} of port {}", ends.port),
        };
        Self { rank, words: format!("{what} that {who} has not read") }
    }
}

/// What waits at one holder, mean over the snapshots of a column.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    bytes: f64,
    sockets: f64,
    established: f64,
    snapshots: f64,
}

impl Held {
    /// Adds a snapshot: bytes, sockets that hold them, and connections.
    fn add(&mut self, [bytes, sockets, established]: [u64; 3]) {
        let before = self.snapshots;
        let mean = |mean: f64, value: u64| (mean * before + value as f64) / (before + 1.0);
        self.bytes = mean(self.bytes, bytes);
        self.sockets = mean(self.sockets, sockets);
        self.established = mean(self.established, established);
        self.snapshots += 1.0;
    }

    fn said(&self) -> String {
        let bytes = words::value(self.bytes, "bytes");
        format!("{bytes} in {:.0} of {:.0} connections", self.sockets, self.established)
    }
}

/// The queues of one trial.
struct Seen {
    step_s: f64,
    columns: usize,
    lanes: BTreeMap<Holder, Vec<Held>>,
    /// Of listening sockets: the most that waited, of how many places, by port.
    listeners: BTreeMap<u16, (u32, u32)>,
}

/// The chart: a drawing for each arm under each load.
pub(in crate::report) fn chart(experiment: &Experiment, raw: &dyn Raw) -> Vec<Chart> {
    let found = typical(experiment, raw);
    let trials: Vec<&Typical<'_>> = found.groups.iter().flat_map(|group| &group.trials).collect();
    if trials.is_empty() {
        return Vec::new();
    }
    let title = "Where bytes wait";
    let caption = "Bytes that lie in the sockets of each program, unread, in the typical trial of each \
                   arm. The last program on the way of a request with strong colours is the slow one; \
                   faint ones all over mean that nobody is behind.";
    let columns =
        ["load", "arm", "trial", "time_s", "holder", "unread_bytes", "sockets", "connections"];
    let mut chart = Chart::new("queues", title, caption, Figures::new(&columns));
    let columns_max = (COLUMNS_ALL_MAX / trials.len()).clamp(10, COLUMNS_MAX);
    for one in trials {
        let seen = seen(one, columns_max);
        if seen.lanes.is_empty() {
            continue;
        }
        note(&mut chart.figures, one, &seen);
        let title = heading(experiment, one);
        // The colours are the same in all of them: one key is enough.
        let key = !chart.parts.iter().any(|part| matches!(part, Part::Drawing(_)));
        chart.parts.push(Part::Heading(title.clone()));
        chart.parts.push(Part::Drawing(drawing(&seen, &title, key)));
    }
    if chart.parts.is_empty() {
        let why = "Nobody looked at the sockets while these trials ran.";
        return vec![Chart::empty("queues", title, caption, why)];
    }
    chart.notes.extend(found.notes);
    vec![chart]
}

fn seen(one: &Typical<'_>, columns_max: usize) -> Seen {
    let snapshots = || {
        let all = one.observed().flat_map(|seen| seen.queues.iter().map(move |at| (seen, at)));
        all.filter(|(_, snapshot)| snapshot.time_s >= 0.0 && snapshot.time_s.is_finite())
    };
    let longest_s = snapshots().map(|(_, snapshot)| snapshot.time_s).fold(0.0, f64::max).max(0.1);
    let wanted = snapshots().count().clamp(1, columns_max);
    let step_s = longest_s / wanted as f64;
    let mut lanes: BTreeMap<Holder, Vec<Held>> = BTreeMap::new();
    let mut listeners: BTreeMap<u16, (u32, u32)> = BTreeMap::new();
    for (machine, snapshot) in snapshots() {
        let column = ((snapshot.time_s / step_s) as usize).min(wanted - 1);
        // A program may listen on several ports: what it holds is the sum.
        let mut now: BTreeMap<Holder, [u64; 3]> = BTreeMap::new();
        for ends in &snapshot.ends {
            let established = ends.states.get("established").copied().unwrap_or(0);
            let sums = now.entry(Holder::of(machine, ends)).or_default();
            for (sum, value) in
                sums.iter_mut().zip([ends.unread_bytes, ends.with_unread, established])
            {
                *sum = sum.saturating_add(value);
            }
        }
        for (holder, sums) in now {
            if lanes.len() < LANES_MAX || lanes.contains_key(&holder) {
                let lane = lanes.entry(holder).or_insert_with(|| vec![Held::default(); wanted]);
                lane[column].add(sums);
            }
        }
        for listener in &snapshot.listeners {
            let most = listeners.entry(listener.port).or_default();
            *most = (most.0.max(listener.waiting), most.1.max(listener.backlog));
        }
    }
    Seen { step_s, columns: wanted, lanes, listeners }
}

fn note(figures: &mut Figures, one: &Typical<'_>, seen: &Seen) {
    let place = &one.line.place;
    for (holder, columns) in &seen.lanes {
        let looked = columns.iter().enumerate().filter(|(_, held)| held.snapshots > 0.0);
        for (column, held) in looked {
            figures.row(vec![
                place.load.clone(),
                place.arm.clone(),
                place.number.to_string(),
                number(Some(column as f64 * seen.step_s)),
                holder.words.clone(),
                number(Some(held.bytes)),
                number(Some(held.sockets)),
                number(Some(held.established)),
            ]);
        }
    }
}

fn drawing(seen: &Seen, title: &str, key: bool) -> Svg {
    let top = if key { KEY } else { 0.0 };
    let lanes_height = seen.lanes.len() as f64 * (LANE + WORDS);
    let listeners_height = seen.listeners.len().min(LANES_MAX) as f64 * 18.0;
    let height = top + lanes_height + FOOT + listeners_height;
    let text = "A strip for each program that holds bytes, the darker the more.";
    let mut svg = Svg::new(WIDTH, height, title, text);
    if key {
        panel::key(&mut svg, 0.0, "Unread bytes, from", &LABELS.map(str::to_owned));
    }
    let longest_s = seen.step_s * seen.columns as f64;
    let time = Scale::linear((0.0, longest_s), (LEFT, RIGHT));
    let mut cells = Cells::default();
    for (index, (holder, columns)) in seen.lanes.iter().enumerate() {
        let lane_top = top + index as f64 * (LANE + WORDS) + WORDS;
        let all = columns.iter().filter(|held| held.snapshots > 0.0);
        let count = all.clone().count().max(1) as f64;
        let mean = all.map(|held| held.bytes).sum::<f64>() / count;
        let said = format!("{}: {} on average", holder.words, words::value(mean, "bytes"));
        svg.add(Mark::text((LEFT, lane_top - 5.0), &said).class("label"));
        let frame = Mark::rect((LEFT, lane_top), (RIGHT, lane_top + LANE));
        svg.add(frame.class("h0"));
        for (column, held) in columns.iter().enumerate() {
            let level = panel::level(held.bytes, &BOUNDS);
            let (from, to) = edges(time, seen, column);
            cells.add(level, (from, lane_top), (to, lane_top + LANE));
        }
    }
    cells.draw(&mut svg, panel::heat);
    tips(&mut svg, seen, time, (top, top + lanes_height));
    let area = panel::area(top, lanes_height);
    let x = Axis::new(time, 8, "Time since the load began", panel::seconds);
    panel::foot(&mut svg, &area, &x);
    for (index, (port, (waiting, backlog))) in seen.listeners.iter().take(LANES_MAX).enumerate() {
        let said = format!(
            "At most {waiting} connections waited to be accepted on port {port}; there is room for \
             {backlog}."
        );
        let at = top + lanes_height + FOOT + 12.0 + index as f64 * 18.0;
        svg.add(Mark::text((LEFT, at), &said).class("tick"));
    }
    svg
}

fn edges(time: Scale, seen: &Seen, column: usize) -> (f64, f64) {
    let at = |column: usize| time.at(column as f64 * seen.step_s);
    (at(column), at(column + 1))
}

fn tips(svg: &mut Svg, seen: &Seen, time: Scale, (top, bottom): (f64, f64)) {
    for column in 0..seen.columns {
        let mut lines = vec![words::value(column as f64 * seen.step_s, "s")];
        let held = seen.lanes.iter().map(|(holder, columns)| (holder, &columns[column]));
        let looked = held.filter(|(_, held)| held.snapshots > 0.0);
        lines.extend(looked.map(|(holder, held)| format!("{}: {}", holder.words, held.said())));
        if lines.len() > 1 {
            let (from, to) = edges(time, seen, column);
            svg.add(panel::hit((from, top), (to, bottom), &lines.join("\n")));
        }
    }
}

#[cfg(test)]
mod tests {
    use record::observed::{PortUse, QueueSnapshot};

    use super::*;
    use crate::report::charts::markup;
    use crate::report::csv::parse;
    use crate::report::sample::{LOADS, NoRaw, SECONDS, SampleRaw, sample};

    fn observed(raw: &mut SampleRaw, change: impl Fn(&mut Observed)) {
        for run in raw.trials.values_mut().filter_map(|trial| trial.run.as_mut()) {
            run.observed.iter_mut().for_each(&change);
        }
    }

    fn with_ports(raw: &mut SampleRaw) {
        let port = PortUse {
            port: 80,
            served_by: Some("subject".to_owned()),
            used_by: Some("generator".to_owned()),
        };
        observed(raw, |seen| seen.ports = vec![port.clone()]);
    }

    #[test]
    fn each_arm_has_a_strip_for_each_holder() {
        let (experiment, mut raw) = sample();
        let text = markup(&chart(&experiment, &raw)[0]);
        assert!(text.contains("the server of port 80"), "{text}");
        with_ports(&mut raw);
        let charts = chart(&experiment, &raw);
        let text = markup(&charts[0]);
        let drawings = LOADS.len() * 2;
        assert_eq!(
            text.matches("requests that subject has not read: ").count(),
            drawings + tips_of(&text)
        );
        assert!(text.contains("answers that generator has not read"));
        assert_eq!(text.matches("there is room for 511").count(), drawings);
        assert_eq!(text.matches("Unread bytes, from").count(), 1);
        assert!(!text.contains("NaN") && !text.contains("inf"));
        let rows = parse(&charts[0].figures.text());
        assert_eq!(rows.len() - 1, drawings * 2 * (SECONDS as usize * 2));
        assert!(rows[1][5].parse::<f64>().unwrap() < 9_000.0);
    }

    fn tips_of(text: &str) -> usize {
        text.matches("data-tip").count()
    }

    #[test]
    fn nothing_is_nothing_and_nothing_seen_is_said() {
        let (mut experiment, mut raw) = sample();
        assert!(chart(&experiment, &NoRaw).is_empty());
        observed(&mut raw, |seen| seen.queues.clear());
        assert!(matches!(chart(&experiment, &raw)[0].parts[..], [Part::Empty(_)]));
        experiment.trials.clear();
        assert!(chart(&experiment, &raw).is_empty());
    }

    #[test]
    fn many_snapshots_and_ports_stay_bounded() {
        let (experiment, mut raw) = sample();
        observed(&mut raw, |seen| {
            let ends = seen.queues[0].ends[1].clone();
            let all = |index: u32| QueueSnapshot {
                time_s: f64::from(index) / 5.0,
                ends: (0..300)
                    .map(|port| EndQueues { port, unread_bytes: u64::MAX, ..ends.clone() })
                    .collect(),
                listeners: Vec::new(),
                ..QueueSnapshot::default()
            };
            seen.queues = (0..3_000).step_by(10).map(all).collect();
            seen.queues[4].time_s = f64::NAN;
        });
        let text = markup(&chart(&experiment, &raw)[0]);
        assert!(text.len() < 600_000, "{}", text.len());
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }
}
