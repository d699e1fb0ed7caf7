//! Headroom: the used fraction of each bounded resource in the typical trial of each arm. It shows
//! the next limit; the verdict names the current one.

use diagnose::{self, ResourceHeadroom};
use experiment::format;
use experiment::trial::load_record;
use record::experiment::Experiment;

use super::panel::WIDTH;
use super::typical_trials::{LoadGroup, load_heading, typical_trials};
use super::{ChartPart, LegendEntry, ReportChart, series_index};
use crate::TrialRecords;
use crate::data_table::{DataTable, number};
use crate::svg::{Scale, Shape, Svg};

/// Left edge of the bars; the names of resources are to the left of it.
const LEFT: f64 = 216.0;
/// Right edge of a full bar; the explanation is to the right of it.
const RIGHT: f64 = 556.0;
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
    let trial_groups = typical_trials(experiment, raw);
    if trial_groups.groups.is_empty() {
        return Vec::new();
    }
    let title = "Next limit";
    let caption = "Used fraction of each limited resource in the typical trial of each arm, and the rate at \
                   which the resource is full (utilisation law: X / U). ≥: the time per response was \
                   measured far below saturation, and batching reduces it. ≤: connections, by the \
                   latency without load. No rate is given if the use does not follow the rate.";
    let columns = ["load", "arm", "trial", "resource", "used_fraction", "full_at_per_s"];
    let mut chart = ReportChart::new("headroom", title, caption, DataTable::new(&columns));
    let mut legend: Vec<LegendEntry> = Vec::new();
    for group in &trial_groups.groups {
        let arms = usage_of_group(group, &mut chart.data);
        if arms.iter().all(|of| of.used.is_empty()) {
            continue;
        }
        for of in &arms {
            let series = series_index(&experiment.plan, of.arm);
            if !legend.iter().any(|known| known.number == series) {
                legend.push(LegendEntry { number: series, name: of.arm.to_owned() });
            }
        }
        chart.parts.extend(load_heading(experiment, group.load).map(ChartPart::Heading));
        chart.parts.push(ChartPart::Drawing(drawing(experiment, group.load, &arms)));
    }
    if chart.parts.is_empty() {
        let why = "The use of resources is known only for machines that weir observed.";
        return vec![ReportChart::empty("headroom", title, caption, why)];
    }
    chart.notes.extend(trial_groups.notes);
    vec![chart.legend(legend)]
}

fn usage_of_group<'a>(group: &'a LoadGroup<'_>, data: &mut DataTable) -> Vec<ArmUsage<'a>> {
    let mut arms = Vec::new();
    for one in &group.trials {
        let Some(run) = load_record(&one.trial) else { continue };
        let of = ArmUsage {
            arm: one.arm(),
            used: diagnose::headroom(&run)
                .into_iter()
                .filter(|used| used.used_fraction.is_finite())
                .collect(),
        };
        for used in &of.used {
            data.add_row(vec![
                group.load.to_owned(),
                of.arm.to_owned(),
                one.line.position.number.to_string(),
                used.resource.to_owned(),
                number(Some(used.used_fraction)),
                number(used.full_at.map(|full| full.rate_per_s)),
            ]);
        }
        arms.push(of);
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
    max_used.sort_by(|a, b| b.1.total_cmp(&a.1));
    let is_shown = max_used.iter().filter(|(_, fraction)| *fraction >= FRACTION_MIN).count();
    // If no resource is used enough, show the fullest one.
    max_used.truncate(is_shown.max(1));
    max_used
}

fn drawing(experiment: &Experiment, load: &str, arms: &[ArmUsage<'_>]) -> Svg {
    let resources = resources(arms);
    let row = arms.len() as f64 * BAR_HEIGHT + BAR_GAP;
    let height = 26.0 + resources.len() as f64 * row;
    let text = format!("Utilization of the resources under the load {load}, the fullest first.");
    let mut svg = Svg::new(WIDTH, height, "Next limit", &text);
    let scale = Scale::linear((0.0, 1.0), (LEFT, RIGHT));
    for fraction in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let x = scale.position(fraction);
        let class = if fraction == 1.0 || fraction == 0.0 { "axis" } else { "grid" };
        svg.add(Shape::line((x, 18.0), (x, height)).class(class));
        svg.add(Shape::text((x, 12.0), &format::tick(fraction, "fraction")).class("tick middle"));
    }
    for (index, (resource, _)) in resources.iter().enumerate() {
        let top = 26.0 + index as f64 * row;
        let middle = top + (row - BAR_GAP) / 2.0 + 4.0;
        svg.add(Shape::text((LEFT - 8.0, middle), resource).class("label end"));
        for (arm_index, of) in arms.iter().enumerate() {
            let bar_top = top + arm_index as f64 * BAR_HEIGHT;
            draw_bar(&mut svg, series_index(&experiment.plan, of.arm), (of, resource), (scale, bar_top));
        }
    }
    svg
}

/// Draws the bar of one arm with its explanation.
fn draw_bar(
    svg: &mut Svg,
    series: usize,
    (usage, resource): (&ArmUsage<'_>, &str),
    (scale, top): (Scale, f64),
) {
    let used = usage.used.iter().find(|used| used.resource == resource);
    let text = match used {
        None => "unknown".to_owned(),
        Some(used) => usage_text(used),
    };
    let fraction = used.map_or(0.0, |used| used.used_fraction.clamp(0.0, 1.0));
    let tip = format!("{}, {resource}: {text}", usage.arm);
    let shape =
        Shape::rect((LEFT, top + 1.0), (scale.position(fraction).max(LEFT + 1.0), top + BAR_HEIGHT - 2.0));
    if used.is_some() {
        svg.add(shape.class("fill").series(series).tooltip(&tip));
    }
    let at = (RIGHT + 8.0, top + BAR_HEIGHT - 3.0);
    svg.add(Shape::text(at, &text).class("tick").attribute("data-series", &series_name(series)));
}

fn series_name(series: usize) -> String {
    crate::svg::series_name(series)
}

fn usage_text(used: &ResourceHeadroom) -> String {
    let fraction = format::percent(used.used_fraction);
    match used.full_at {
        Some(full) => format!("{fraction}, full at {full}"),
        None => fraction,
    }
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
        assert!(text.contains("subject&#39;s busiest thread"), "{text}");
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
