//! What would be the limit next: how much of each resource with a bound the typical trial of each arm
//! used. Not for what limited it: that is its verdict.

use record::experiment::Experiment;

use super::panel::WIDTH;
use super::typical::{Group, load_heading, typical};
use super::{Chart, Part, Series, series_of};
use crate::diagnosis::{self, Used};
use crate::report::Raw;
use crate::report::csv::{Figures, number};
use crate::report::svg::{Mark, Scale, Svg};
use crate::trial::record_of;
use crate::words;

/// Where bars begin: the names of resources stand before them.
const LEFT: f64 = 216.0;
/// Where a full bar ends: what it means stands behind it.
const RIGHT: f64 = 556.0;
/// Height of a bar, and what is between resources.
const BAR: f64 = 15.0;
const GAP: f64 = 11.0;
/// Below this a resource is not worth a line of its own: nothing of it can be the next limit.
const SHARE_MIN: f64 = 0.01;
/// A rate at which something is full is only said from this share on: below, it is too far away to be
/// told from what was measured.
const FULL_FROM: f64 = 0.05;

/// Of one arm: its responses per second, and what it used.
struct Of<'a> {
    arm: &'a str,
    rate_per_s: f64,
    used: Vec<Used>,
}

/// The chart: a drawing for each load.
pub(in crate::report) fn chart(experiment: &Experiment, raw: &dyn Raw) -> Vec<Chart> {
    let found = typical(experiment, raw);
    if found.groups.is_empty() {
        return Vec::new();
    }
    let title = "What would be the limit next";
    let caption = "How much of each resource with a bound the typical trial of each arm used, and the \
                   rate at which it would be full if its use grows with the rate. The longest bar is \
                   the present limit or the next.";
    let columns = ["load", "arm", "trial", "resource", "used_share", "full_at_per_s"];
    let mut chart = Chart::new("headroom", title, caption, Figures::new(&columns));
    let mut legend: Vec<Series> = Vec::new();
    for group in &found.groups {
        let arms = of_group(group, &mut chart.figures);
        if arms.iter().all(|of| of.used.is_empty()) {
            continue;
        }
        for of in &arms {
            let series = series_of(&experiment.plan, of.arm);
            if !legend.iter().any(|known| known.number == series) {
                legend.push(Series { number: series, name: of.arm.to_owned() });
            }
        }
        chart.parts.extend(load_heading(experiment, group.load).map(Part::Heading));
        chart.parts.push(Part::Drawing(drawing(experiment, group.load, &arms)));
    }
    if chart.parts.is_empty() {
        let why = "What was used is only known where weir watched the machine.";
        return vec![Chart::empty("headroom", title, caption, why)];
    }
    chart.notes.extend(found.notes);
    vec![chart.legend(legend)]
}

fn of_group<'a>(group: &'a Group<'_>, figures: &mut Figures) -> Vec<Of<'a>> {
    let mut arms = Vec::new();
    for one in &group.trials {
        let Some(run) = record_of(&one.trial) else { continue };
        let of = Of {
            arm: one.arm(),
            rate_per_s: run.goodput_per_s(),
            used: diagnosis::headroom(&run)
                .into_iter()
                .filter(|used| used.share.is_finite())
                .collect(),
        };
        for used in &of.used {
            figures.row(vec![
                group.load.to_owned(),
                of.arm.to_owned(),
                one.line.place.number.to_string(),
                used.resource.to_owned(),
                number(Some(used.share)),
                number(Some(of.rate_per_s / used.share.min(1.0))),
            ]);
        }
        arms.push(of);
    }
    arms
}

/// Resources that any arm used enough of, the fullest first.
fn resources(arms: &[Of<'_>]) -> Vec<(&'static str, f64)> {
    let mut most: Vec<(&'static str, f64)> = Vec::new();
    for used in arms.iter().flat_map(|of| &of.used) {
        match most.iter_mut().find(|(resource, _)| *resource == used.resource) {
            Some((_, share)) => *share = share.max(used.share),
            None => most.push((used.resource, used.share)),
        }
    }
    most.sort_by(|a, b| b.1.total_cmp(&a.1));
    let worth = most.iter().filter(|(_, share)| *share >= SHARE_MIN).count();
    // Where nothing is used, the fullest one still says so.
    most.truncate(worth.max(1));
    most
}

fn drawing(experiment: &Experiment, load: &str, arms: &[Of<'_>]) -> Svg {
    let resources = resources(arms);
    let row = arms.len() as f64 * BAR + GAP;
    let height = 26.0 + resources.len() as f64 * row;
    let text = format!("Bars for the resources under the load {load}, the fullest first.");
    let mut svg = Svg::new(WIDTH, height, "What would be the limit next", &text);
    let scale = Scale::linear((0.0, 1.0), (LEFT, RIGHT));
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let at = scale.at(share);
        let class = if share == 1.0 || share == 0.0 { "axis" } else { "grid" };
        svg.add(Mark::line((at, 18.0), (at, height)).class(class));
        svg.add(Mark::text((at, 12.0), &words::tick(share, "share")).class("tick middle"));
    }
    for (index, (resource, _)) in resources.iter().enumerate() {
        let top = 26.0 + index as f64 * row;
        let middle = top + (row - GAP) / 2.0 + 4.0;
        svg.add(Mark::text((LEFT - 8.0, middle), resource).class("label end"));
        for (place, of) in arms.iter().enumerate() {
            let bar_top = top + place as f64 * BAR;
            bar(&mut svg, series_of(&experiment.plan, of.arm), (of, resource), (scale, bar_top));
        }
    }
    svg
}

/// The bar of one arm, and what it means.
fn bar(svg: &mut Svg, series: usize, (of, resource): (&Of<'_>, &str), (scale, top): (Scale, f64)) {
    let used = of.used.iter().find(|used| used.resource == resource);
    let said = match used {
        None => "not known".to_owned(),
        Some(used) => said(used.share, of.rate_per_s),
    };
    let share = used.map_or(0.0, |used| used.share.clamp(0.0, 1.0));
    let tip = format!("{}, {resource}: {said}", of.arm);
    let shape = Mark::rect((LEFT, top + 1.0), (scale.at(share).max(LEFT + 1.0), top + BAR - 2.0));
    if used.is_some() {
        svg.add(shape.class("fill").series(series).tip(&tip));
    }
    let at = (RIGHT + 8.0, top + BAR - 3.0);
    svg.add(Mark::text(at, &said).class("tick").with("data-series", &name(series)));
}

fn name(series: usize) -> String {
    crate::report::svg::series_name(series)
}

fn said(share: f64, rate_per_s: f64) -> String {
    let used = words::percent(share);
    let full = rate_per_s / share.min(1.0);
    match share >= FULL_FROM && full.is_finite() && full > 0.0 {
        true => format!("{used}, full at {}", words::value(full, "1/s")),
        false => used,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::charts::{markup, nothing_is_nothing};
    use crate::report::csv::parse;
    use crate::report::sample::{LOADS, sample};

    #[test]
    fn each_arm_has_a_bar_for_each_resource() {
        let (experiment, raw) = sample();
        let charts = chart(&experiment, &raw);
        let text = markup(&charts[0]);
        assert_eq!(charts[0].parts.len(), LOADS.len() * 2);
        let rows = parse(&charts[0].figures.text());
        let worth = rows[1..].iter().filter(|row| row[4].parse::<f64>().unwrap() >= SHARE_MIN);
        assert_eq!(text.matches("<rect").count(), worth.count());
        assert!(text.contains("subject&#39;s busiest thread"), "{text}");
        assert!(text.contains("full at "));
        assert!(!text.contains("NaN") && !text.contains("inf"));
        for row in &rows[1..] {
            let (share, full): (f64, f64) = (row[4].parse().unwrap(), row[5].parse().unwrap());
            assert!(share > 0.0 && full > 0.0);
        }
    }

    #[test]
    fn nothing_is_nothing_and_no_record_of_a_load_is_said() {
        nothing_is_nothing(chart);
    }

    #[test]
    fn odd_figures_are_not_drawn() {
        assert_eq!(said(0.5, f64::NAN), "50.0 %");
        assert_eq!(said(1.2, 100.0), "120 %, full at 100/s");
        assert_eq!(said(0.01, 100.0), "1.0 %");
        let used = |share| Used { resource: "local ports", share };
        let of = |share| Of { arm: "a", rate_per_s: 1.0, used: vec![used(share)] };
        assert_eq!(resources(&[of(0.001), of(0.002)]), [("local ports", 0.002)]);
    }
}
