//! Marks of comparisons on an axis of ratios, and the small drawing of one comparison on the first
//! screen. [`super::forest`] draws all of them.

use experiment::format;
use record::experiment::{Comparison, Experiment};

use crate::data::comparisons::{aa_comparison, outcome_class, tip};
use crate::plot::{Axis, Frame, Plot, Scale, Svg, extent};

/// Ratio of the ends from which the scale is logarithmic.
const LOG_SCALE_RATIO_MIN: f64 = 2.0;
/// Size of the small drawing, without its labels.
const SMALL_SIZE: (f64, f64) = (300.0, 22.0);

/// Returns an axis of ratios over these comparisons that contains 1 and the effect that matters.
pub(super) fn ratio_axis(all: &[&Comparison], effect: f64, tick_count: usize) -> Axis {
    let intervals = all.iter().flat_map(|comparison| comparison.interval).flat_map(|(low, high)| [low, high]);
    let ends =
        intervals.chain(all.iter().filter_map(|comparison| comparison.ratio)).filter(|ratio| *ratio > 0.0);
    let matter = [(1.0 - effect * 1.25).max(0.01), 1.0 + effect * 1.25];
    let (low, high) = extent(ends.chain(matter)).unwrap_or((0.95, 1.05));
    let scale = Scale::by_ratio(low / 1.004, high * 1.004, LOG_SCALE_RATIO_MIN);
    Axis::new(scale, tick_count, "", format::signed_tick).anchored_at(1.0)
}

/// Draws the band of effects that do not matter, and the line of no difference.
pub(super) fn draw_bands(svg: &mut Svg, plot: &Plot, effect: f64) {
    svg.add(plot.band((1.0 - effect, 1.0 + effect)).class("matter"));
    svg.add(plot.vertical(1.0).class("zero"));
}

pub(super) fn draw_comparison(
    svg: &mut Svg,
    experiment: &Experiment,
    comparison: &Comparison,
    plot: &Plot,
    (row, radius): (usize, f64),
) {
    let (class, y) = (outcome_class(comparison), row as f64 + 0.5);
    if let Some(interval) = aa_comparison(experiment, comparison).and_then(|noise| noise.interval) {
        svg.add(plot.bar(interval, (y - 0.5, y + 0.5)).class("band"));
    }
    if let Some((low, high)) = comparison.interval {
        svg.add(plot.segment((low, y), (high, y)).class("stroke thick").class(class));
        for end in [low, high].into_iter().filter(|end| plot.x.contains(*end)) {
            svg.add(plot.segment((end, y - 0.16), (end, y + 0.16)).class("stroke thin").class(class));
        }
    }
    let at = comparison.ratio.map_or((f64::NAN, y), |ratio| (plot.x.clamp(ratio), y));
    svg.add(plot.dot(at, radius).class("fill").class(class).tooltip(&tip(experiment, comparison)));
}

/// Draws one comparison for the first screen. `all` are the comparisons on the same scale.
pub(crate) fn draw_small(experiment: &Experiment, comparison: &Comparison, all: &[&Comparison]) -> Svg {
    let (width, height) = SMALL_SIZE;
    let mut svg = Svg::new(&comparison.arm, &comparison.text).with_width(width).small();
    let axis = ratio_axis(all, experiment.plan.effect, 4);
    let plot = svg.rows(Frame::new(4.0, height).within(22.0, width - 22.0), axis.scale, 1);
    draw_bands(&mut svg, &plot, experiment.plan.effect);
    svg.add_lower_line(&plot);
    svg.x_axis(&plot, &axis);
    draw_comparison(&mut svg, experiment, comparison, &plot, (0, 6.0));
    svg
}
