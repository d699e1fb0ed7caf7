//! Flame graphs of the subject: one of each arm, and one of the difference of each arm and the
//! baseline. [`super::functions`] has the figures by function.

use experiment::format;
use record::experiment::{Arm, Experiment};

use super::ReportChart;
use super::flame_graph::{NodeText, change_class, draw_frames, function_class, function_name};
use crate::TrialRecords;
use crate::data::stack_tree::{Frame, StackNode, WeightUnit};
use crate::data::stacks::{Stacks, arm_stacks};
use crate::data::trials::has_several_loads;
use crate::data_table::{DataTable, cells, six_digits};
use crate::plot::{Svg, WIDTH};

/// Maximum number of frames of all graphs of a chart, the widest first: it keeps the page small.
const FRAMES_TOTAL_MAX: usize = 600;
/// Minimum width of a frame; narrower frames are not readable.
const FRAME_WIDTH_MIN: f64 = 1.0;
const ARMS_MAX: usize = 6;

/// Builds the charts: a graph of each arm, and the differences.
pub(crate) fn chart(experiment: &Experiment, raw: &dyn TrialRecords) -> Vec<ReportChart> {
    let plan = &experiment.plan;
    let baseline = plan.arms.iter().filter(|arm| arm.name == plan.baseline);
    let others = plan.arms.iter().filter(|arm| arm.repeats.is_none() && arm.name != plan.baseline);
    let arms: Vec<&Arm> = baseline.chain(others).collect();
    let profile_of = |arm: &&Arm| Some((arm.name.clone(), arm_stacks(experiment, raw, &arm.name)?));
    let profiles: Vec<(String, Stacks)> = arms.iter().filter_map(profile_of).take(ARMS_MAX).collect();
    if profiles.is_empty() {
        return Vec::new();
    }
    let mut charts = vec![arm_graphs(&profiles)];
    charts.extend(difference_graphs(&plan.baseline, &profiles));
    if arms.len() > ARMS_MAX {
        charts[0].notes.push(format!("Only the first {ARMS_MAX} arms have a graph."));
    }
    if has_several_loads(plan) {
        let note = "The samples of all loads are summed.";
        charts.iter_mut().for_each(|chart| chart.notes.push(note.to_owned()));
    }
    charts
}

fn arm_graphs(profiles: &[(String, Stacks)]) -> ReportChart {
    let unit = WeightUnit::common(profiles.iter().map(|(_, stacks)| stacks));
    let caption = "The width of a function is its CPU time with its callees, which are above it. Warm \
                   colours: user space; cold: the kernel. The samples are from all counting trials of \
                   the arm.";
    let data = DataTable::new("arm depth function mode").with_columns([unit.name(), "self"]);
    let mut chart = ReportChart::new("flame", "Flame graphs of the subject", caption, data);
    for (arm, stacks) in profiles {
        let root = StackNode::tree(&[stacks], unit);
        let frames = root.frames((WIDTH, FRAME_WIDTH_MIN), FRAMES_TOTAL_MAX / profiles.len());
        for frame in &frames {
            let [total, own] = [frame.node.total_weight[0], frame.node.self_weight[0]].map(six_digits);
            chart.data.add_row([key_cells(arm, frame), cells(&[&total, &own])].concat());
        }
        let us = stacks.us_per_response.map(|us| format::value(us, "us"));
        let us = us.map(|us| format!(", {us} of CPU time per response")).unwrap_or_default();
        let samples = format::value(stacks.samples as f64, "1");
        let trials = format::count(stacks.trials, "trial");
        chart.heading(format!("{arm}: {samples} samples of {trials}{us}"));
        let tip = |node: &StackNode<'_>| {
            format!("{}; self: {}", unit.format(node.total_weight[0]), unit.format(node.self_weight[0]))
        };
        chart.draw(drawing(&frames, arm, (&function_class, &tip)));
    }
    chart
}

/// Builds a graph of each arm against the baseline.
fn difference_graphs(baseline: &str, profiles: &[(String, Stacks)]) -> Option<ReportChart> {
    let (name, before) = profiles.first().filter(|(name, _)| name == baseline)?;
    let others = &profiles[1..];
    let caption = "The width of a function is the CPU time of both arms together, so that functions of \
                   only one arm are included. Vermilion: more time than in the baseline; blue: less; \
                   grey: equal.";
    let data = DataTable::new("arm depth function mode unit baseline arm_value difference");
    let mut chart = ReportChart::new("flame-difference", "Differential flame graphs", caption, data);
    for (arm, after) in others {
        let unit = WeightUnit::common([before, after]);
        let root = StackNode::tree(&[before, after], unit);
        let frames = root.frames((WIDTH, FRAME_WIDTH_MIN), FRAMES_TOTAL_MAX / others.len());
        for frame in &frames {
            let [was, is] = frame.node.total_weight;
            let [was, is, growth] = [was, is, is - was].map(six_digits);
            let values = cells(&[&unit.name(), &was, &is, &growth]);
            chart.data.add_row([key_cells(arm, frame), values].concat());
        }
        let title = format!("{arm} against {name}");
        let class = |node: &StackNode<'_>| change_class(node, root.total_weight[0]);
        let tip = |node: &StackNode<'_>| unit.difference(node, [name, arm]);
        chart.heading(&title);
        chart.draw(drawing(&frames, &title, (&class, &tip)));
    }
    (!chart.parts.is_empty()).then_some(chart)
}

fn key_cells(arm: &str, frame: &Frame<'_, '_>) -> Vec<String> {
    let (name, kernel) = function_name(frame);
    cells(&[&arm, &frame.depth, &name, &if kernel { "kernel" } else { "user" }])
}

fn drawing(frames: &[Frame<'_, '_>], title: &str, style: (NodeText<'_>, NodeText<'_>)) -> Svg {
    let text = format!("{} by caller.", format::count(frames.len(), "function"));
    let mut svg = Svg::new(&format!("Flame graph: {title}"), &text);
    draw_frames(&mut svg, frames, style, false);
    svg
}

#[cfg(test)]
mod tests {
    use record::trial::ExperimentTrial;

    use super::*;
    use crate::charts::ChartPart;
    use crate::data_table::parse;
    use crate::synthetic::{ARMS, NoRecords, SyntheticRecords, synthetic_experiment};

    fn drawings(chart: &ReportChart) -> Vec<String> {
        let svg = |part: &ChartPart| match part {
            ChartPart::Drawing(svg) => Some(svg.markup("x").into_string()),
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
        for chart in &charts {
            let all: usize = drawings(chart).iter().map(String::len).sum();
            assert!(all < 200_000, "{}: {all}", chart.id);
            let frames: usize = drawings(chart).iter().map(|svg| svg.matches("<rect").count()).sum();
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
