//! Headroom: the used fraction of each bounded resource in the typical trial of each arm. It shows
//! the next limit; the verdict names the current one.

use diagnose::{self, ResourceHeadroom};
use experiment::format;
use experiment::trial::load_record;
use record::experiment::Experiment;
use record::sorted::sort_by;

use super::ReportChart;
use crate::TrialRecords;
use crate::data::trials::series_index;
use crate::data::typical::{LoadGroup, typical_trials};
use crate::data_table::{DataTable, cells};
use crate::plot::{Axis, Frame, Scale, Shape, Svg, series_name};

/// Edges of the bars; the names of resources are to the left of them, the explanations to the right.
const EDGES: (f64, f64) = (216.0, 556.0);
/// Height of a bar, and the gap between resources.
const BAR_HEIGHT: f64 = 15.0;
const BAR_GAP: f64 = 11.0;
/// Used fraction below which a resource gets no line: it cannot be the next limit.
const FRACTION_MIN: f64 = 0.01;

/// Resources that one arm used.
struct ArmUsage<'a> {
    arm: &'a str,
    used: Vec<ResourceHeadroom>,
}

/// Builds the chart: a drawing for each load.
pub(crate) fn chart(experiment: &Experiment, raw: &dyn TrialRecords) -> Vec<ReportChart> {
    let typical = typical_trials(experiment, raw);
    let caption = "Used fraction of each limited resource in the typical trial of each arm, and the rate at \
                   which the resource is full (utilisation law: X / U). ≥: the time per response was \
                   measured far below saturation, and batching reduces it. ≤: connections, by the \
                   latency without load. No rate is given if the use does not follow the rate.";
    let data = DataTable::new("load arm trial resource used_fraction full_at_per_s");
    let mut chart = ReportChart::new("headroom", "Next limit", caption, data);
    for group in &typical.groups {
        let arms = usage_of_group(group, &mut chart.data);
        if arms.iter().any(|of| !of.used.is_empty()) {
            arms.iter().for_each(|of| chart.add_series(&experiment.plan, of.arm));
            chart.load_heading(experiment, group.load);
            chart.draw(drawing(experiment, group.load, &arms));
        }
    }
    chart.finish_trials(typical, "The use of resources is known only for machines that weir observed.")
}

fn usage_of_group<'a>(group: &'a LoadGroup<'_>, data: &mut DataTable) -> Vec<ArmUsage<'a>> {
    let mut arms = Vec::new();
    for trial in &group.trials {
        let Some(run) = load_record(&trial.trial) else { continue };
        let mut used = diagnose::headroom(&run);
        used.retain(|used| used.used_fraction.is_finite());
        for used in &used {
            let full_at = used.full_at.map(|full| full.rate_per_s);
            let values = cells(&[&used.resource, &used.used_fraction, &full_at]);
            data.add_row([trial.key_cells(), values].concat());
        }
        arms.push(ArmUsage { arm: trial.arm(), used });
    }
    arms
}

/// Returns the resources that any arm used enough of, the fullest first.
fn resources(arms: &[ArmUsage<'_>]) -> Vec<(&'static str, f64)> {
    let mut max_used: Vec<(&'static str, f64)> = Vec::new();
    for used in arms.iter().flat_map(|of| &of.used) {
        match max_used.iter_mut().find(|(resource, _)| *resource == used.resource) {
            Some((_, max)) => *max = max.max(used.used_fraction),
            None => max_used.push((used.resource, used.used_fraction)),
        }
    }
    sort_by(&mut max_used, |a, b| b.1.total_cmp(&a.1));
    let is_shown = max_used.iter().filter(|(_, fraction)| *fraction >= FRACTION_MIN).count();
    // If no resource is used enough, show the fullest one.
    max_used.truncate(is_shown.max(1));
    max_used
}

fn drawing(experiment: &Experiment, load: &str, arms: &[ArmUsage<'_>]) -> Svg {
    let text = format!("Utilization of the resources under the load {load}, the fullest first.");
    let mut svg = Svg::new("Next limit", &text);
    let x = Axis::new(Scale::linear(0.0, 1.0), 4, "", |fraction| format::tick(fraction, "fraction"));
    let resources = resources(arms);
    let row_height = arms.len() as f64 * BAR_HEIGHT + BAR_GAP;
    let frame = Frame::new(8.0, resources.len() as f64 * row_height).within(EDGES.0, EDGES.1);
    let plot = svg.rows(frame, x.scale, resources.len());
    svg.x_grid(&plot, &x);
    for (row, (resource, _)) in resources.iter().enumerate() {
        svg.name_row(&plot, row, resource, "label");
        for (index, of) in arms.iter().enumerate() {
            let series = series_index(&experiment.plan, of.arm);
            let used = of.used.iter().find(|used| used.resource == *resource);
            let text = used.map_or_else(|| "unknown".to_owned(), usage_text);
            let top = plot.area.top + row as f64 * row_height + BAR_GAP / 2.0 + index as f64 * BAR_HEIGHT;
            if let Some(used) = used {
                let y = |px: f64| (px - plot.area.top) / row_height;
                let bar = plot.bar((0.0, used.used_fraction.max(0.003)), (y(top), y(top + BAR_HEIGHT - 3.0)));
                let tip = format!("{}, {resource}: {text}", of.arm);
                svg.add(bar.class("fill").series(series).tooltip(&tip));
            }
            let explanation = Shape::text((EDGES.1 + 8.0, top + BAR_HEIGHT - 4.0), &text).class("tick");
            svg.add(explanation.attribute("data-series", series_name(series)));
        }
    }
    svg
}

fn usage_text(used: &ResourceHeadroom) -> String {
    let full_at = used.full_at.map(|full| format!(", full at {full}"));
    format!("{}{}", format::percent(used.used_fraction), full_at.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use record::run::{RateBound, SaturationRate};

    use super::*;
    use crate::charts::{assert_no_data_no_chart, markup};
    use crate::data_table::parse;
    use crate::synthetic::{LOADS, synthetic_experiment};

    #[test]
    fn each_arm_has_a_bar_for_each_resource() {
        let (experiment, raw) = synthetic_experiment();
        let charts = chart(&experiment, &raw);
        let text = markup(&charts[0]);
        assert_eq!(charts[0].parts.len(), LOADS.len() * 2);
        let rows = parse(&charts[0].data.to_csv());
        let shown_rows = rows[1..].iter().filter(|row| row[4].parse::<f64>().unwrap() >= FRACTION_MIN);
        assert_eq!(text.matches("<rect").count(), shown_rows.count());
        assert!(text.contains("subject's busiest thread"), "{text}");
        assert!(text.contains("full at "));
        assert!(!text.contains("NaN") && !text.contains("inf"));
        for row in &rows[1..] {
            assert!(row[4].parse::<f64>().unwrap() > 0.0);
            assert!(row[5].is_empty() || row[5].parse::<f64>().unwrap() > 0.0);
        }
    }

    #[test]
    fn no_data_is_no_chart_and_a_missing_load_record_is_noted() {
        assert_no_data_no_chart(chart);
    }

    #[test]
    fn odd_figures_are_not_drawn() {
        let full_at = Some(SaturationRate { rate_per_s: 100.0, bound: RateBound::AtLeast });
        let used = |fraction| ResourceHeadroom {
            resource: "local ports",
            used_fraction: fraction,
            ..ResourceHeadroom::default()
        };
        assert_eq!(usage_text(&ResourceHeadroom { full_at, ..used(0.5) }), "50.0 %, full at ≥ 100/s");
        assert_eq!(usage_text(&used(0.01)), "1.0 %");
        let of = |fraction| ArmUsage { arm: "a", used: vec![used(fraction)] };
        assert_eq!(resources(&[of(0.001), of(0.002)]), [("local ports", 0.002)]);
    }
}
