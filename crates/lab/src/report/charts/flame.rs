//! Flame graphs of the subject: one of each arm, and one of the difference of each arm and the baseline
//! (Brendan Gregg, "The Flame Graph", CACM 59(6), 2016). Not for figures by function: those are in
//! [`super::functions`].

use std::collections::BTreeMap;

use record::experiment::{Arm, Experiment};

use super::panel::{WIDTH, figure};
use super::stacks::{self, Stacks};
use super::{Chart, Part};
use crate::report::Raw;
use crate::report::csv::Figures;
use crate::report::svg::{Mark, Svg, shortened};
use crate::words;

/// Frames of all graphs of a chart at most, the widest: the page stays small.
const FRAMES_ALL_MAX: usize = 600;
/// Frames narrower than this (of [`WIDTH`]) are nothing to a reader.
const FRAME_MIN: f64 = 1.0;
/// Arms that have a graph at most.
const ARMS_MAX: usize = 6;
/// Height of a frame.
const ROW: f64 = 18.0;
/// Width from which on a frame has its name in it.
const NAME_MIN: f64 = 40.0;
/// Width of a letter in a frame.
const LETTER: f64 = 6.8;
/// Letters of a name in a tip.
const TIP_LETTERS: usize = 90;
/// Colours of the functions of user space, which tell neighbours apart and mean nothing else.
const COLOURS: u32 = 6;
/// Changes, as shares of all time of the baseline, from which the colours begin.
const CHANGES: [f64; 3] = [0.001, 0.005, 0.02];

/// A function with those that it calls; of one arm, or of two.
#[derive(Debug, Default)]
struct Node<'a> {
    name: &'a str,
    /// With it on top of the stack.
    own: [f64; 2],
    /// With it anywhere at this place of the stack.
    total: [f64; 2],
    callees: BTreeMap<&'a str, Self>,
}

impl<'a> Node<'a> {
    fn add(&mut self, stack: &'a str, side: usize, weight: f64) {
        self.total[side] += weight;
        let mut at = self;
        for frame in stack.split(';') {
            at = at.callees.entry(frame).or_insert_with(|| Node { name: frame, ..Self::default() });
            at.total[side] += weight;
        }
        at.own[side] += weight;
    }

    fn width(&self) -> f64 {
        self.total[0] + self.total[1]
    }
}

/// How the weights are said.
#[derive(Clone, Copy, PartialEq)]
enum Unit {
    /// Processor time for a response, in µs.
    Us,
    /// Shares of the samples.
    Share,
}

impl Unit {
    fn said(self, weight: f64) -> String {
        match self {
            Self::Us => format!("{} a response", words::value(weight, "us")),
            Self::Share => words::percent(weight),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Us => "us_per_response",
            Self::Share => "share",
        }
    }
}

/// A frame that is drawn: its node, its row from below, its left edge and its width.
struct Frame<'n, 'a> {
    node: &'n Node<'a>,
    depth: usize,
    left: f64,
    width: f64,
}

/// The charts: a graph of each arm, and the differences.
pub(in crate::report) fn chart(experiment: &Experiment, raw: &dyn Raw) -> Vec<Chart> {
    let plan = &experiment.plan;
    let baseline = plan.arms.iter().filter(|arm| arm.name == plan.baseline);
    let others = plan.arms.iter().filter(|arm| arm.again.is_none() && arm.name != plan.baseline);
    let arms: Vec<&Arm> = baseline.chain(others).collect();
    let of = |arm: &&Arm| Some((arm.name.clone(), stacks::of_arm(experiment, raw, &arm.name)?));
    let profiles: Vec<(String, Stacks)> = arms.iter().filter_map(of).take(ARMS_MAX).collect();
    if profiles.is_empty() {
        return Vec::new();
    }
    let mut charts = vec![alone(&profiles)];
    charts.extend(differences(&plan.baseline, &profiles));
    if arms.len() > ARMS_MAX {
        charts[0].notes.push(format!("Graphs of at most {ARMS_MAX} arms are drawn."));
    }
    if super::several_loads(plan) {
        let note = "The samples of all loads are added up.";
        charts.iter_mut().for_each(|chart| chart.notes.push(note.to_owned()));
    }
    charts
}

fn unit_of(profiles: &[&Stacks]) -> Unit {
    match profiles.iter().all(|stacks| stacks.us_per_response.is_some()) {
        true => Unit::Us,
        false => Unit::Share,
    }
}

/// A graph of each arm.
fn alone(profiles: &[(String, Stacks)]) -> Chart {
    let unit = unit_of(&profiles.iter().map(|(_, stacks)| stacks).collect::<Vec<_>>());
    let title = "What the subject does: flame graphs";
    let caption = "The wider a function, the more processor time was spent in it and in what it calls, \
                   which stands on it. Warm: user space; cold: the kernel. From samples of all counting \
                   trials of the arm.";
    let figures = Figures::new(&["arm", "depth", "function", "place", unit.name(), "on_top"]);
    let mut chart = Chart::new("flame", title, caption, figures);
    for (arm, stacks) in profiles {
        let root = tree(&[stacks], unit);
        let frames = frames(&root, FRAMES_ALL_MAX / profiles.len());
        for frame in &frames {
            chart.figures.row(row(
                arm,
                frame,
                vec![figure(frame.node.total[0]), figure(frame.node.own[0])],
            ));
        }
        chart.parts.push(Part::Heading(format!(
            "{arm}: {} samples of {}{}",
            words::value(stacks.samples as f64, "1"),
            words::count(stacks.trials, "trial"),
            stacks.us_per_response.map_or_else(String::new, |us| format!(
                ", {} of processor time a response",
                words::value(us, "us")
            ))
        )));
        let tip = |node: &Node<'_>| {
            format!("{}; on top: {}", unit.said(node.total[0]), unit.said(node.own[0]))
        };
        let kind = |node: &Node<'_>| kind(node.name);
        chart.parts.push(Part::Drawing(drawing(&frames, arm, (&kind, &tip))));
    }
    chart
}

/// A graph of each arm against the baseline.
fn differences(baseline: &str, profiles: &[(String, Stacks)]) -> Option<Chart> {
    let (name, before) = profiles.first().filter(|(name, _)| name == baseline)?;
    let others = &profiles[1..];
    let title = "What differs: flame graphs of both arms together";
    let caption = "The width of a function is the processor time of both arms added up, so that what \
                   only one of them does is there too. Vermilion: the arm spends more there than the \
                   baseline; blue: less; grey: as much.";
    let columns =
        ["arm", "depth", "function", "place", "unit", "baseline", "arm_value", "difference"];
    let mut chart = Chart::new("flame-difference", title, caption, Figures::new(&columns));
    for (arm, after) in others {
        let unit = unit_of(&[before, after]);
        let root = tree(&[before, after], unit);
        let frames = frames(&root, FRAMES_ALL_MAX / others.len());
        for frame in &frames {
            let [was, is] = frame.node.total;
            let values = [was, is, is - was].map(figure);
            let cells = std::iter::once(unit.name().to_owned()).chain(values);
            chart.figures.row(row(arm, frame, cells.collect()));
        }
        chart.parts.push(Part::Heading(format!("{arm} against {name}")));
        let all = root.total[0];
        let kind = |node: &Node<'_>| change(node, all);
        let tip = |node: &Node<'_>| {
            let [was, is] = node.total;
            let sign = if is >= was { "+" } else { "−" };
            format!(
                "{name}: {}\n{arm}: {}\ndifference: {sign}{}",
                unit.said(was),
                unit.said(is),
                unit.said((is - was).abs())
            )
        };
        let shown = format!("{arm} against {name}");
        chart.parts.push(Part::Drawing(drawing(&frames, &shown, (&kind, &tip))));
    }
    (!chart.parts.is_empty()).then_some(chart)
}

fn row(arm: &str, frame: &Frame<'_, '_>, values: Vec<String>) -> Vec<String> {
    let (name, kernel) = stacks::plain(frame.node.name);
    let name = if frame.depth == 0 { "all" } else { name };
    let place = if kernel { "kernel" } else { "user" };
    let mut cells =
        vec![arm.to_owned(), frame.depth.to_string(), name.to_owned(), place.to_owned()];
    cells.extend(values);
    cells
}

fn tree<'a>(sides: &[&'a Stacks], unit: Unit) -> Node<'a> {
    let mut root = Node::default();
    for (side, stacks) in sides.iter().enumerate().take(2) {
        for (stack, samples) in &stacks.stacks {
            root.add(stack, side, stacks.weight(*samples, unit == Unit::Us));
        }
    }
    root
}

/// The widest frames; with a frame there is always the one below it.
fn frames<'n, 'a>(root: &'n Node<'a>, most: usize) -> Vec<Frame<'n, 'a>> {
    let scale = WIDTH / root.width();
    if !scale.is_finite() {
        return Vec::new();
    }
    let mut frames = Vec::new();
    let mut ahead = vec![Frame { node: root, depth: 0, left: 0.0, width: WIDTH }];
    while let Some(frame) = ahead.pop() {
        let mut left = frame.left;
        for node in frame.node.callees.values() {
            let width = node.width() * scale;
            if width >= FRAME_MIN {
                ahead.push(Frame { node, depth: frame.depth + 1, left, width });
            }
            left += width;
        }
        frames.push(frame);
    }
    // Of the same width the lower one comes first, so that none is left without what it stands on.
    frames.sort_by(|a, b| b.width.total_cmp(&a.width).then(a.depth.cmp(&b.depth)));
    frames.truncate(most.max(1));
    frames
}

/// The colour of a function: by where it runs, and some of a kind by its name.
fn kind(name: &str) -> String {
    let (plain, kernel) = stacks::plain(name);
    if kernel {
        return "fk".to_owned();
    }
    let hash =
        plain.bytes().fold(7u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    format!("f{}", (hash >> 7) % COLOURS)
}

/// The colour of a change, as a share of all that the baseline needs.
fn change(node: &Node<'_>, all: f64) -> String {
    let share = (node.total[1] - node.total[0]) / all;
    let level = CHANGES.iter().filter(|bound| share.abs() >= **bound).count();
    match (level, share > 0.0) {
        (0, _) => "d0".to_owned(),
        (level, true) => format!("dp{level}"),
        (level, false) => format!("dm{level}"),
    }
}

/// How a graph is coloured, and what it says of a function.
type Looks<'l> = (&'l dyn Fn(&Node<'_>) -> String, &'l dyn Fn(&Node<'_>) -> String);

fn drawing(frames: &[Frame<'_, '_>], title: &str, (class, tip): Looks<'_>) -> Svg {
    let rows = frames.iter().map(|frame| frame.depth + 1).max().unwrap_or(1);
    let height = rows as f64 * ROW;
    let text = format!("{} functions, by what calls them.", frames.len());
    let mut svg = Svg::new(WIDTH, height, &format!("Flame graph: {title}"), &text);
    for frame in frames {
        let top = height - (frame.depth + 1) as f64 * ROW;
        let (name, kernel) = match frame.depth {
            0 => ("all", false),
            _ => stacks::plain(frame.node.name),
        };
        let right = frame.left + (frame.width - 0.6).max(0.4);
        let shape = Mark::rect((frame.left, top), (right, top + ROW - 1.0));
        let place = if kernel { " (kernel)" } else { "" };
        let said = format!("{}{place}\n{}", shortened(name, TIP_LETTERS), tip(frame.node));
        svg.add(shape.class(&class(frame.node)).tip(&said));
        if frame.width >= NAME_MIN {
            let letters = ((frame.width - 6.0) / LETTER) as usize;
            let at = (frame.left + 3.0, top + ROW - 5.5);
            svg.add(Mark::text(at, &shortened(name, letters)).class("frame"));
        }
    }
    svg
}

#[cfg(test)]
mod tests {
    use record::trial::Trial;

    use super::*;
    use crate::report::csv::parse;
    use crate::report::sample::{ARMS, NoRaw, SampleRaw, sample};

    fn drawings(chart: &Chart) -> Vec<String> {
        let svg = |part: &Part| match part {
            Part::Drawing(svg) => Some(svg.markup("x")),
            _ => None,
        };
        chart.parts.iter().filter_map(svg).collect()
    }

    /// Other stacks than the sample's.
    struct Stacked(SampleRaw, fn(&str) -> String);

    impl Raw for Stacked {
        fn trial(&self, file: &str) -> Option<Trial> {
            self.0.trial(file)
        }

        fn folded(&self, trial_file: &str) -> Option<String> {
            Some((self.1)(trial_file))
        }
    }

    #[test]
    fn each_arm_has_a_graph_and_each_but_the_baseline_a_difference() {
        let (experiment, raw) = sample();
        let charts = chart(&experiment, &raw);
        assert_eq!(
            charts.iter().map(|chart| &*chart.id).collect::<Vec<_>>(),
            ["flame", "flame-difference"]
        );
        let alone = drawings(&charts[0]);
        assert_eq!(alone.len(), 2);
        // all, main, ngx_worker, its three callees, ngx_palloc, malloc, tcp_sendmsg.
        assert_eq!(alone[0].matches("<rect").count(), 9, "{}", alone[0]);
        let difference = &drawings(&charts[1])[0];
        assert!(difference.contains("dm3") && difference.contains("dp3"), "{difference}");
        assert!(difference.contains("je_malloc"));
        let rows = parse(&charts[1].figures.text());
        let malloc = rows.iter().find(|row| row[2] == "malloc").unwrap();
        assert!(malloc[5].parse::<f64>().unwrap() > 2.0 && malloc[6] == "0", "{malloc:?}");
        assert_eq!(malloc[0], ARMS[2]);
    }

    #[test]
    fn a_frame_stands_on_its_caller_and_is_no_wider() {
        let mut stacks = BTreeMap::new();
        stacks.insert("main;f;g_[k]".to_owned(), 3);
        stacks.insert("main;h".to_owned(), 1);
        let stacks = Stacks { stacks, samples: 4, ..Stacks::default() };
        let root = tree(&[&stacks], Unit::Share);
        let frames = frames(&root, 100);
        let of = |name: &str| frames.iter().find(|frame| frame.node.name == name).unwrap();
        assert_eq!((of("g_[k]").left, of("g_[k]").width, of("g_[k]").depth), (0.0, 540.0, 3));
        assert_eq!((of("h").left, of("h").width), (540.0, 180.0));
        assert_eq!(of("main").node.own[0], 0.0);
        assert_eq!(kind("g_[k]"), "fk");
        assert!(kind("g").starts_with('f'));
    }

    #[test]
    fn many_stacks_stay_bounded() {
        let (experiment, raw) = sample();
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
        let charts = chart(&experiment, &Stacked(raw, many));
        for one in &charts {
            let all: usize = drawings(one).iter().map(String::len).sum();
            assert!(all < 200_000, "{}: {all}", one.id);
            let frames: usize = drawings(one).iter().map(|svg| svg.matches("<rect").count()).sum();
            assert!(frames <= FRAMES_ALL_MAX);
        }
    }

    #[test]
    fn without_stacks_there_is_no_graph_and_odd_ones_are_passed_over() {
        let (experiment, raw) = sample();
        assert!(chart(&experiment, &NoRaw).is_empty());
        let odd =
            |_: &str| "no count\na;b NaN\na;<b>&\"c\" 18446744073709551615\n;; 3\n".to_owned();
        let charts = chart(&experiment, &Stacked(raw, odd));
        let text = drawings(&charts[0]).concat();
        assert!(text.contains("&lt;b&gt;") && !text.contains("NaN") && !text.contains("inf"));
    }
}
