//! CPUs used by each role over time, and by processes outside of the run.

use std::collections::BTreeMap;

use experiment::format;
use record::observed::MachineObservation;
use record::run::Run;
use record::sorted::sort_by_key;

use super::layout::{Figure, short};
use crate::plot::{Axis, Scale, Svg, extent};

/// Maximum number of roles, and of points of each.
const ROLES_MAX: usize = 6;
const POINTS_MAX: usize = 60;
/// Name of the processes outside of the run.
const OTHERS: &str = "other processes";

/// CPUs by time.
type CpuLine = Vec<(f64, f64)>;

pub(super) fn roles(run: &Run) -> Option<Figure> {
    let several = run.observed.len() > 1;
    let mut lines: BTreeMap<String, CpuLine> = BTreeMap::new();
    for machine in &run.observed {
        add_roles(&mut lines, machine, several);
    }
    let lines: Vec<(String, CpuLine)> = in_order(lines).into_iter().take(ROLES_MAX).collect();
    let cpus = run.observed.iter().map(|machine| machine.cpus).max()?;
    let caption = format!(
        "CPUs in use, of {} of the machine. A flat line at a whole number of CPUs is a limit.",
        format::count(cpus as usize, "CPU")
    );
    let figure = Figure::draw("cpus", "CPUs in use", &caption, |layout| {
        let all = || lines.iter().flat_map(|(_, line)| line);
        let (_, high) = extent(all().map(|point| point.1))?;
        let (_, longest_s) = extent(all().map(|point| point.0))?;
        let y = Axis::new(Scale::from_zero(high.max(0.2)), 4, "CPUs", |cpus| format::tick(cpus, "1"));
        let x = Axis::new(
            Scale::linear(0.0, longest_s),
            layout.ticks,
            "time since the start of the load",
            |at_s| {
                if at_s == 0.0 { "0 s".to_owned() } else { format::tick(at_s, "s") }
            },
        );
        let mut svg = Svg::new("CPUs in use", "CPUs by role over time.").with_width(layout.width);
        let plot = svg.plot(layout.frame(28.0, 150.0), x.scale, &y);
        for (series, (name, line)) in lines.iter().enumerate() {
            svg.add_series(&plot, line, series);
            for point in line {
                let tip = format!("{name}: {:.2} CPUs at {}", point.1, format::value(point.0, "s"));
                svg.add(plot.dot(*point, 4.0).class("ghost").series(series).tooltip(&tip));
            }
        }
        svg.x_axis(&plot, &x);
        Some(svg)
    })?;
    Some(figure.legend(lines.iter().map(|(name, _)| name.as_str())))
}

/// Adds the roles of a machine, with its name if there are several.
fn add_roles(lines: &mut BTreeMap<String, CpuLine>, machine: &MachineObservation, several: bool) {
    let named = |role: &str| match several {
        true => format!("{} on {}", short(role, 20), short(&machine.host, 20)),
        false => short(role, 30),
    };
    let samples = machine.samples.iter().filter(|sample| sample.time_s > 0.0 && sample.time_s.is_finite());
    let step = machine.samples.len().div_ceil(POINTS_MAX).max(1);
    for sample in samples.step_by(step) {
        for (role, used) in machine.roles.iter().zip(&sample.roles) {
            lines.entry(named(&role.name)).or_default().push((sample.time_s, used.cpus()));
        }
        if let Some(others) = sample.foreign_cpus {
            lines.entry(named(OTHERS)).or_default().push((sample.time_s, others));
        }
    }
}

/// Returns the subject first: it is the most important line.
fn in_order(lines: BTreeMap<String, CpuLine>) -> Vec<(String, CpuLine)> {
    let rank = |name: &str| {
        let known =
            [diagnose::window::SUBJECT, diagnose::window::GENERATOR, diagnose::window::ORIGIN, OTHERS];
        known.iter().position(|role| name.starts_with(role)).unwrap_or(known.len())
    };
    let mut lines: Vec<_> = lines.into_iter().collect();
    sort_by_key(&mut lines, |(name, _)| rank(name));
    lines
}
