//! Flame graphs of the subject: one of each arm, and one of the difference of each arm and the
//! baseline (Brendan Gregg, "The Flame Graph", CACM 59(6), 2016). [`super::functions`] has the
//! figures by function.

use std::collections::BTreeMap;

use experiment::format;
use record::experiment::{Arm, Experiment};

use super::panel::{WIDTH, six_digits};
use super::stacks::{self, Stacks};
use super::{ChartPart, ReportChart};
use crate::TrialRecords;
use crate::data_table::DataTable;
use crate::svg::{Shape, Svg, shortened};

/// Maximum number of frames of all graphs of a chart, the widest first: it keeps the page small.
const FRAMES_TOTAL_MAX: usize = 600;
/// Minimum width of a frame (of [`WIDTH`]); narrower frames are not readable.
const FRAME_WIDTH_MIN: f64 = 1.0;
/// Maximum number of arms with a graph.
const ARMS_MAX: usize = 6;
/// Height of a frame.
const ROW_HEIGHT: f64 = 18.0;
/// Minimum width of a frame with its name inside.
const NAME_WIDTH_MIN: f64 = 40.0;
/// Width of a letter in a frame.
const CHAR_WIDTH: f64 = 6.8;
/// Letters of a name in a tip.
const TOOLTIP_NAME_CHARS: usize = 90;
/// Number of colours for user-space functions. They distinguish neighbours and have no other
/// meaning.
const COLOURS: u32 = 6;
/// Thresholds of the colours of changes, as fractions of all time of the baseline.
const CHANGE_THRESHOLDS: [f64; 3] = [0.001, 0.005, 0.02];

/// A function with its callees; of one arm, or of two.
#[derive(Debug, Default)]
struct StackNode<'a> {
    name: &'a str,
    /// Weight with the function on top of the stack.
    self_weight: [f64; 2],
    /// Weight with the function anywhere at this position of the stack.
    total_weight: [f64; 2],
    callees: BTreeMap<&'a str, Self>,
}

impl<'a> StackNode<'a> {
    fn add(&mut self, stack: &'a str, side: usize, weight: f64) {
        self.total_weight[side] += weight;
        let mut node = self;
        for frame in stack.split(';') {
            node = node.callees.entry(frame).or_insert_with(|| StackNode { name: frame, ..Self::default() });
            node.total_weight[side] += weight;
        }
        node.self_weight[side] += weight;
    }

    fn width(&self) -> f64 {
        self.total_weight[0] + self.total_weight[1]
    }
}

/// Unit of the weights.
#[derive(Clone, Copy, PartialEq)]
enum WeightUnit {
    /// CPU time per response, in µs.
    Us,
    /// Fractions of the samples.
    Fraction,
}

impl WeightUnit {
    fn format(self, weight: f64) -> String {
        match self {
            Self::Us => format!("{} per response", format::value(weight, "us")),
            Self::Fraction => format::percent(weight),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Us => "us_per_response",
            Self::Fraction => "fraction",
        }
    }
}

/// A drawn frame: its node, its row from below, its left edge and its width.
struct Frame<'n, 'a> {
    node: &'n StackNode<'a>,
    depth: usize,
    left: f64,
    width: f64,
}

/// Builds the charts: a graph of each arm, and the differences.
pub(crate) fn chart(experiment: &Experiment, raw: &dyn TrialRecords) -> Vec<ReportChart> {
    let plan = &experiment.plan;
    let baseline = plan.arms.iter().filter(|arm| arm.name == plan.baseline);
    let others = plan.arms.iter().filter(|arm| arm.repeats.is_none() && arm.name != plan.baseline);
    let arms: Vec<&Arm> = baseline.chain(others).collect();
    let profile_of = |arm: &&Arm| Some((arm.name.clone(), stacks::arm_stacks(experiment, raw, &arm.name)?));
    let profiles: Vec<(String, Stacks)> = arms.iter().filter_map(profile_of).take(ARMS_MAX).collect();
    if profiles.is_empty() {
        return Vec::new();
    }
    let mut charts = vec![arm_graphs(&profiles)];
    charts.extend(difference_graphs(&plan.baseline, &profiles));
    if arms.len() > ARMS_MAX {
        charts[0].notes.push(format!("Only the first {ARMS_MAX} arms have a graph."));
    }
    if super::has_several_loads(plan) {
        let note = "The samples of all loads are summed.";
        charts.iter_mut().for_each(|chart| chart.notes.push(note.to_owned()));
    }
    charts
}

fn weight_unit(profiles: &[&Stacks]) -> WeightUnit {
    match profiles.iter().all(|stacks| stacks.us_per_response.is_some()) {
        true => WeightUnit::Us,
        false => WeightUnit::Fraction,
    }
}

/// Builds the graphs of single arms.
fn arm_graphs(profiles: &[(String, Stacks)]) -> ReportChart {
    let unit = weight_unit(&profiles.iter().map(|(_, stacks)| stacks).collect::<Vec<_>>());
    let title = "Flame graphs of the subject";
    let caption = "The width of a function is its CPU time with its callees, which are above it. Warm \
                   colours: user space; cold: the kernel. The samples are from all counting trials of \
                   the arm.";
    let data = DataTable::new(&["arm", "depth", "function", "mode", unit.name(), "self"]);
    let mut chart = ReportChart::new("flame", title, caption, data);
    for (arm, stacks) in profiles {
        let root = tree(&[stacks], unit);
        let frames = frames(&root, FRAMES_TOTAL_MAX / profiles.len());
        for frame in &frames {
            chart.data.add_row(row(
                arm,
                frame,
                vec![six_digits(frame.node.total_weight[0]), six_digits(frame.node.self_weight[0])],
            ));
        }
        chart.parts.push(ChartPart::Heading(format!(
            "{arm}: {} samples of {}{}",
            format::value(stacks.samples as f64, "1"),
            format::count(stacks.trials, "trial"),
            stacks.us_per_response.map_or_else(String::new, |us| format!(
                ", {} of CPU time per response",
                format::value(us, "us")
            ))
        )));
        let tip = |node: &StackNode<'_>| {
            format!("{}; self: {}", unit.format(node.total_weight[0]), unit.format(node.self_weight[0]))
        };
        let kind = |node: &StackNode<'_>| color_class(node.name);
        chart.parts.push(ChartPart::Drawing(drawing(&frames, arm, (&kind, &tip))));
    }
    chart
}

/// Builds a graph of each arm against the baseline.
fn difference_graphs(baseline: &str, profiles: &[(String, Stacks)]) -> Option<ReportChart> {
    let (name, before) = profiles.first().filter(|(name, _)| name == baseline)?;
    let others = &profiles[1..];
    let title = "Differential flame graphs";
    let caption = "The width of a function is the CPU time of both arms together, so that functions of \
                   only one arm are included. Vermilion: more time than in the baseline; blue: less; \
                   grey: equal.";
    let columns = ["arm", "depth", "function", "mode", "unit", "baseline", "arm_value", "difference"];
    let mut chart = ReportChart::new("flame-difference", title, caption, DataTable::new(&columns));
    for (arm, after) in others {
        let unit = weight_unit(&[before, after]);
        let root = tree(&[before, after], unit);
        let frames = frames(&root, FRAMES_TOTAL_MAX / others.len());
        for frame in &frames {
            let [was, is] = frame.node.total_weight;
            let values = [was, is, is - was].map(six_digits);
            let cells = std::iter::once(unit.name().to_owned()).chain(values);
            chart.data.add_row(row(arm, frame, cells.collect()));
        }
        chart.parts.push(ChartPart::Heading(format!("{arm} against {name}")));
        let all = root.total_weight[0];
        let kind = |node: &StackNode<'_>| change_class(node, all);
        let tip = |node: &StackNode<'_>| {
            let [was, is] = node.total_weight;
            let sign = if is >= was { "+" } else { "−" };
            format!(
                "{name}: {}\n{arm}: {}\ndifference: {sign}{}",
                unit.format(was),
                unit.format(is),
                unit.format((is - was).abs())
            )
        };
        let shown = format!("{arm} against {name}");
        chart.parts.push(ChartPart::Drawing(drawing(&frames, &shown, (&kind, &tip))));
    }
    (!chart.parts.is_empty()).then_some(chart)
}

fn row(arm: &str, frame: &Frame<'_, '_>, values: Vec<String>) -> Vec<String> {
    let (name, kernel) = stacks::split_kernel_suffix(frame.node.name);
    let name = if frame.depth == 0 { "all" } else { name };
    let mode = if kernel { "kernel" } else { "user" };
    let mut cells = vec![arm.to_owned(), frame.depth.to_string(), name.to_owned(), mode.to_owned()];
    cells.extend(values);
    cells
}

fn tree<'a>(sides: &[&'a Stacks], unit: WeightUnit) -> StackNode<'a> {
    let mut root = StackNode::default();
    for (side, stacks) in sides.iter().enumerate().take(2) {
        for (stack, samples) in &stacks.stacks {
            root.add(stack, side, stacks.weight(*samples, unit == WeightUnit::Us));
        }
    }
    root
}

/// Returns the widest frames; every frame comes with the one below it.
fn frames<'n, 'a>(root: &'n StackNode<'a>, max_count: usize) -> Vec<Frame<'n, 'a>> {
    let scale = WIDTH / root.width();
    if !scale.is_finite() {
        return Vec::new();
    }
    let mut frames = Vec::new();
    let mut pending = vec![Frame { node: root, depth: 0, left: 0.0, width: WIDTH }];
    while let Some(frame) = pending.pop() {
        let mut left = frame.left;
        for node in frame.node.callees.values() {
            let width = node.width() * scale;
            if width >= FRAME_WIDTH_MIN {
                pending.push(Frame { node, depth: frame.depth + 1, left, width });
            }
            left += width;
        }
        frames.push(frame);
    }
    // Of equally wide frames the lower one comes first, so that no frame is left without its
    // caller.
    frames.sort_by(|a, b| b.width.total_cmp(&a.width).then(a.depth.cmp(&b.depth)));
    frames.truncate(max_count.max(1));
    frames
}

/// Returns the colour class of a function: one for the kernel, several by name for user space.
fn color_class(name: &str) -> String {
    let (plain, kernel) = stacks::split_kernel_suffix(name);
    if kernel {
        return "fk".to_owned();
    }
    let hash = plain.bytes().fold(7u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    format!("f{}", (hash >> 7) % COLOURS)
}

/// Returns the colour of a change, as a fraction of all time of the baseline.
fn change_class(node: &StackNode<'_>, all: f64) -> String {
    let fraction = (node.total_weight[1] - node.total_weight[0]) / all;
    let level = CHANGE_THRESHOLDS.iter().filter(|bound| fraction.abs() >= **bound).count();
    match (level, fraction > 0.0) {
        (0, _) => "d0".to_owned(),
        (level, true) => format!("dp{level}"),
        (level, false) => format!("dm{level}"),
    }
}

/// Functions for the colour and the tip of a node.
type FrameStyle<'l> = (&'l dyn Fn(&StackNode<'_>) -> String, &'l dyn Fn(&StackNode<'_>) -> String);

fn drawing(frames: &[Frame<'_, '_>], title: &str, (class, tip): FrameStyle<'_>) -> Svg {
    let rows = frames.iter().map(|frame| frame.depth + 1).max().unwrap_or(1);
    let height = rows as f64 * ROW_HEIGHT;
    let text = format!("{} by caller.", format::count(frames.len(), "function"));
    let mut svg = Svg::new(WIDTH, height, &format!("Flame graph: {title}"), &text);
    for frame in frames {
        let top = height - (frame.depth + 1) as f64 * ROW_HEIGHT;
        let (name, kernel) = match frame.depth {
            0 => ("all", false),
            _ => stacks::split_kernel_suffix(frame.node.name),
        };
        let right = frame.left + (frame.width - 0.6).max(0.4);
        let shape = Shape::rect((frame.left, top), (right, top + ROW_HEIGHT - 1.0));
        let position = if kernel { " (kernel)" } else { "" };
        let label = format!("{}{position}\n{}", shortened(name, TOOLTIP_NAME_CHARS), tip(frame.node));
        svg.add(shape.class(&class(frame.node)).tooltip(&label));
        if frame.width >= NAME_WIDTH_MIN {
            let letters = ((frame.width - 6.0) / CHAR_WIDTH) as usize;
            let label_position = (frame.left + 3.0, top + ROW_HEIGHT - 5.5);
            svg.add(Shape::text(label_position, &shortened(name, letters)).class("frame"));
        }
    }
    svg
}

#[cfg(test)]
mod tests {
    use record::trial::ExperimentTrial;

    use super::*;
    use crate::data_table::parse;
    use crate::synthetic::{ARMS, NoRecords, SyntheticRecords, synthetic_experiment};

    fn drawings(chart: &ReportChart) -> Vec<String> {
        let svg = |part: &ChartPart| match part {
            ChartPart::Drawing(svg) => Some(svg.markup("x")),
            _ => None,
        };
        chart.parts.iter().filter_map(svg).collect()
    }

    /// Other stacks than those of the sample.
    struct ReplacedStacks(SyntheticRecords, fn(&str) -> String);

    impl TrialRecords for ReplacedStacks {
        fn trial(&self, file: &str) -> Option<ExperimentTrial> {
            self.0.trial(file)
        }

        fn folded_stacks(&self, trial_file: &str) -> Option<String> {
            Some((self.1)(trial_file))
        }
    }

    #[test]
    fn each_arm_has_a_graph_and_each_but_the_baseline_a_difference() {
        let (experiment, raw) = synthetic_experiment();
        let charts = chart(&experiment, &raw);
        assert_eq!(charts.iter().map(|chart| &*chart.id).collect::<Vec<_>>(), ["flame", "flame-difference"]);
        let graphs = drawings(&charts[0]);
        assert_eq!(graphs.len(), 2);
        // all, main, ngx_worker, its three callees, ngx_palloc, malloc, tcp_sendmsg.
        assert_eq!(graphs[0].matches("<rect").count(), 9, "{}", graphs[0]);
        let difference = &drawings(&charts[1])[0];
        assert!(difference.contains("dm3") && difference.contains("dp3"), "{difference}");
        assert!(difference.contains("je_malloc"));
        let rows = parse(&charts[1].data.to_csv());
        let malloc = rows.iter().find(|row| row[2] == "malloc").unwrap();
        assert!(malloc[5].parse::<f64>().unwrap() > 2.0 && malloc[6] == "0", "{malloc:?}");
        assert_eq!(malloc[0], ARMS[2]);
    }

    #[test]
    fn a_frame_is_above_its_caller_and_no_wider() {
        let mut stacks = BTreeMap::new();
        stacks.insert("main;f;g_[k]".to_owned(), 3);
        stacks.insert("main;h".to_owned(), 1);
        let stacks = Stacks { stacks, samples: 4, ..Stacks::default() };
        let root = tree(&[&stacks], WeightUnit::Fraction);
        let frames = frames(&root, 100);
        let of = |name: &str| frames.iter().find(|frame| frame.node.name == name).unwrap();
        assert_eq!((of("g_[k]").left, of("g_[k]").width, of("g_[k]").depth), (0.0, 540.0, 3));
        assert_eq!((of("h").left, of("h").width), (540.0, 180.0));
        assert_eq!(of("main").node.self_weight[0], 0.0);
        assert_eq!(color_class("g_[k]"), "fk");
        assert!(color_class("g").starts_with('f'));
    }

    #[test]
    fn many_stacks_stay_bounded() {
        let (experiment, raw) = synthetic_experiment();
        let many = |_: &str| {
            let mut rng = fastrand::Rng::with_seed(3);
            let mut line = |_| {
                let depth = rng.usize(1..80);
                let frames: Vec<String> = (0..depth)
                    .map(|_| format!("some::very::long::name<of::a::function>::{}", rng.u8(0..4)))
                    .collect();
                format!("a;{} {}\n", frames.join(";"), rng.u32(1..50))
            };
            (0..300).map(&mut line).collect()
        };
        let charts = chart(&experiment, &ReplacedStacks(raw, many));
        for one in &charts {
            let all: usize = drawings(one).iter().map(String::len).sum();
            assert!(all < 200_000, "{}: {all}", one.id);
            let frames: usize = drawings(one).iter().map(|svg| svg.matches("<rect").count()).sum();
            assert!(frames <= FRAMES_TOTAL_MAX);
        }
    }

    #[test]
    fn without_stacks_there_is_no_graph_and_odd_ones_are_passed_over() {
        let (experiment, raw) = synthetic_experiment();
        assert!(chart(&experiment, &NoRecords).is_empty());
        let odd = |_: &str| "no count\na;b NaN\na;<b>&\"c\" 18446744073709551615\n;; 3\n".to_owned();
        let charts = chart(&experiment, &ReplacedStacks(raw, odd));
        let text = drawings(&charts[0]).concat();
        assert!(text.contains("&lt;b&gt;") && !text.contains("NaN") && !text.contains("inf"));
    }
}
