//! `[measure]` and `[discard]`: what is measured, how often, how sure it has to be, and what a trial may
//! not be disturbed by.

use std::collections::BTreeMap;

use host::perf::calls::Call;
use record::experiment::{Metric, Plan};
use record::problem::{Problem, suggestion};
use record::units::format_duration_ns;

use super::cells::Cells;
use super::file::Parts;
use super::{Around, Asked};
use crate::scenario::keys::DISCARD;
use crate::scenario::read::{Problems, Values, read};
use crate::scenario::setup::{Setup, Tool};
use crate::trial::metrics;

/// Wilcoxon's signed-rank test over blocks cannot give less than 2 / 2^n, which is below 0.05 from six on
/// (Wilcoxon, Biometrics Bulletin 1, 1945); so can no interval of a median.
pub(super) const BLOCKS_MIN: u64 = 6;
/// What is usual: benchstat asks for ten.
const BLOCKS: (u64, u64) = (10, 30);
/// Lengths of a load: shorter, and starting it is what is measured.
const DURATION_NS: std::ops::RangeInclusive<u64> = 100_000_000..=3_600_000_000_000;
const DURATION_DEFAULT_NS: u64 = 8_000_000_000;
const EFFECT: f64 = 0.02;
const EFFECT_MAX: f64 = 0.5;
const CONFIDENCE: f64 = 0.95;
const CONFIDENCES: std::ops::RangeInclusive<f64> = 0.8..=0.999;
const RERUNS_MAX_SHARE: f64 = 0.5;
/// The metric that decides where nothing is said, and where the load has a rate: then the rate is not the
/// subject's, but what it takes of a processor is.
const PRIMARY: &str = "responses_per_s";
const PRIMARY_AT_A_RATE: &str = "subject_us_per_response";
/// What is measured besides, where nothing is said.
const ALSO: &[&str] = &[
    "responses_per_s",
    "p50_ns",
    "p99_ns",
    "subject_us_per_response",
    "subject_cpus",
    "generator_cpus",
    "error_share",
];

/// What only trials have that are in no block: there is nothing to hold against each other.
const ONLY_IN_PROBES: &str = "calls_per_response";

/// One bound of `[discard]`.
struct Bound {
    /// Its key.
    key: &'static str,
    /// The covariate, as plans and trials name it.
    covariate: &'static str,
    /// Where nothing is said; none: no bound.
    default: Option<f64>,
    /// How many of the key's unit are one of the covariate's.
    scale: f64,
}

/// Every bound. What its key means stands in [`crate::scenario::keys`]. The bounds are those of a machine
/// that others use too; none of them looks at what was measured.
const BOUNDS: &[Bound] = &[
    row("steal", "steal_share", Some(0.02)),
    row("foreign-cpus", "foreign_cpus", Some(0.05)),
    // A ratio to what is usual in the experiment: how late a thread wakes up depends on the machine.
    row("wake-up-ratio", "wake_up_p99_ns", Some(2.0)),
    row("generator-lag", "generator_lag_p99_ns", Some(1e6)),
    row("generator-busiest", "generator_busiest_share", None),
    row("errors", "error_share", Some(0.001)),
    row("throttled", "throttled_share", Some(0.0)),
    Bound { scale: 1e-9, ..row("clock-step", "clock_step_s", Some(0.1)) },
];

const fn row(key: &'static str, covariate: &'static str, default: Option<f64>) -> Bound {
    Bound { key, covariate, default, scale: 1.0 }
}

/// What these tables are read with.
pub(super) struct Given<'a> {
    /// What was asked for beside the file.
    asked: &'a Asked,
    /// All that can be measured.
    known: &'a [Metric],
    cells: &'a Cells,
    around: Option<&'a Around<'a>>,
    /// What the drivers say of their versions, as far as that is known.
    said: Vec<(Tool, String)>,
}

impl<'a> Given<'a> {
    pub(super) fn new(
        asked: &'a Asked,
        known: &'a [Metric],
        cells: &'a Cells,
        around: Option<&'a Around<'a>>,
    ) -> Self {
        let mut said: Vec<(Tool, String)> = Vec::new();
        for tool in cells.setups.values().map(|setup| setup.tool).filter(|tool| *tool != Tool::Weir)
        {
            let is_asked = said.iter().any(|(other, _)| *other == tool);
            if let Some(around) = around.filter(|_| !is_asked) {
                said.push((tool, (around.version)(tool.name()).unwrap_or_default()));
            }
        }
        Self { asked, known, cells, around, said }
    }

    /// The metrics that trials of a setup may tell.
    fn told_by(&self, setup: &Setup) -> Vec<&'a str> {
        let names = self.known.iter().map(|metric| metric.name.as_str());
        names.filter(|name| *name != ONLY_IN_PROBES && self.never(name, setup).is_none()).collect()
    }

    /// Why no trial of a setup tells a metric; none: it may.
    fn never(&self, name: &str, setup: &Setup) -> Option<String> {
        let said = self.said.iter().find(|(tool, _)| *tool == setup.tool);
        metrics::find(name)?.never(setup, said.map(|(_, said)| said.as_str()))
    }

    /// What is wrong with a metric that was asked for; none: trials tell it. The one that decides has to be
    /// told of all arms under all loads, others of any.
    fn untold(&self, name: &str, decides: bool) -> Option<String> {
        let cells = &self.cells.setups;
        let of = |(cell, setup)| Some((cell, setup, self.never(name, setup)?));
        let untold: Vec<(&(String, String), &Setup, String)> =
            cells.iter().filter_map(of).collect();
        let ((arm, load), setup, why) = untold.first()?;
        let (what, whose) = match (untold.len() == cells.len(), decides) {
            (false, false) => return None,
            (false, true) => ("decides nothing", format!(" (arm '{arm}' under load '{load}')")),
            (true, true) => ("decides nothing", String::new()),
            (true, false) => ("has no figure", String::new()),
        };
        let told = self.told_by(setup).join(", ");
        Some(format!("'{name}' {what}, because {why}{whose}; there are: {told}"))
    }
}

/// What of a plan these tables say, and what is wrong with what was asked for beside the file.
pub(super) fn plan(
    parts: &Parts<'_>,
    given: &Given<'_>,
    problems: &mut Problems,
) -> (Plan, Vec<Problem>) {
    let asked = given.asked;
    let nothing = Values::default();
    let measure = parts.own.table("measure").unwrap_or(&nothing);
    let mut beside = Vec::new();
    let effect = measure.decimal("effect").unwrap_or(EFFECT);
    if effect <= 0.0 || effect > EFFECT_MAX {
        let text = "the smallest effect that matters is above 0 and at most 50%";
        problems.add(measure.place("effect"), text);
    }
    let confidence = measure.decimal("confidence").unwrap_or(CONFIDENCE);
    if !CONFIDENCES.contains(&confidence) {
        problems.add(measure.place("confidence"), "a confidence is from 80% to 99.9%");
    }
    let (blocks_min, blocks_max) = blocks(measure, asked, problems, &mut beside);
    let calls = measure.text("calls");
    let unknown = |calls: &str| match Call::parse(calls) {
        Err(why) => Some(why),
        Ok(_) => given.around.and_then(|around| (around.calls)(calls)),
    };
    if let Some(why) = calls.and_then(unknown) {
        problems.add(measure.place("calls"), why);
    }
    let mut discard = bounds(parts.own.table("discard").unwrap_or(&nothing));
    discard.extend(asked.discard.clone());
    let reruns = measure.table("blocks").and_then(|blocks| blocks.decimal("reruns-max"));
    let plan = Plan {
        seed: asked.seed,
        metrics: metrics(measure, given, problems),
        effect,
        confidence,
        blocks_min,
        blocks_max,
        reruns_max_share: reruns.unwrap_or(RERUNS_MAX_SHARE),
        duration_s: duration_ns(measure, asked, problems, &mut beside) as f64 / 1e9,
        discard,
        profile: measure.is_set("profile"),
        calls: calls.map(str::to_owned),
        ..Plan::default()
    };
    (plan, beside)
}

fn duration_ns(
    measure: &Values,
    asked: &Asked,
    problems: &mut Problems,
    beside: &mut Vec<Problem>,
) -> u64 {
    let wrong = || {
        let (from, to) = (*DURATION_NS.start(), *DURATION_NS.end());
        format!("a load is from {} to {} long", format_duration_ns(from), format_duration_ns(to))
    };
    let own_ns = measure.whole("duration").unwrap_or(DURATION_DEFAULT_NS);
    if !DURATION_NS.contains(&own_ns) {
        problems.add(measure.place("duration"), wrong());
    }
    if asked.duration_ns.is_some_and(|ns| !DURATION_NS.contains(&ns)) {
        beside.push(Problem::new("--duration", wrong()));
    }
    asked.duration_ns.unwrap_or(own_ns)
}

/// Fewest and most blocks. What is asked for beside the file may be fewer than can tell anything apart:
/// then all is inconclusive, and the file has been tried.
fn blocks(
    measure: &Values,
    asked: &Asked,
    problems: &mut Problems,
    beside: &mut Vec<Problem>,
) -> (u32, u32) {
    let nothing = Values::default();
    let blocks = measure.table("blocks").unwrap_or(&nothing);
    let (min, max) = (blocks.whole("min"), blocks.whole("max"));
    // One that is given alone draws the other along.
    let least = min.unwrap_or_else(|| BLOCKS.0.min(max.unwrap_or(BLOCKS.0)));
    let most = max.unwrap_or_else(|| BLOCKS.1.max(least));
    if least < BLOCKS_MIN {
        let key = if min.is_some() { "min" } else { "max" };
        let text = format!(
            "{least} blocks cannot tell anything: Wilcoxon's test needs {BLOCKS_MIN} pairs for p < 0.05"
        );
        problems.add(blocks.place(key), text);
    }
    if least > most {
        problems.add(blocks.place("max"), "there are fewer blocks at most than at least");
    }
    if let Some((min, max)) = asked.blocks {
        if min == 0 || min > max {
            beside.push(Problem::new(
                "--blocks",
                "give 1 or more, and no more at least than at most",
            ));
        }
        return (min, max);
    }
    (u32::try_from(least).unwrap_or(u32::MAX), u32::try_from(most).unwrap_or(u32::MAX))
}

/// The metrics, the one that decides first.
fn metrics(measure: &Values, given: &Given<'_>, problems: &mut Problems) -> Vec<Metric> {
    let default = if given.cells.have_rate() { PRIMARY_AT_A_RATE } else { PRIMARY };
    let primary = measure.text("primary").unwrap_or(default);
    let mut names = vec![(measure.place("primary"), primary)];
    match measure.list("also") {
        Some(also) => {
            names.extend(also.iter().map(|(at, name)| (*at, name.as_str())));
            if !given.asked.again {
                twice(also, problems);
            }
        }
        // What nobody asked for by its name is left out where it cannot be had.
        None => {
            let told = ALSO.iter().filter(|name| given.untold(name, false).is_none());
            names.extend(told.map(|name| (measure.at, *name)));
        }
    }
    let mut metrics: Vec<Metric> = Vec::new();
    let known = || given.known.iter().filter(|metric| metric.name != ONLY_IN_PROBES);
    for (place, (at, name)) in names.into_iter().enumerate() {
        if name == ONLY_IN_PROBES {
            problems.add(at, only_in_probes(measure));
            continue;
        }
        match known().find(|metric| metric.name == name) {
            Some(metric) if !metrics.contains(metric) => {
                let untold = given.untold(name, place == 0).filter(|_| !given.asked.again);
                untold.into_iter().for_each(|why| problems.add(at, why));
                metrics.push(metric.clone());
            }
            Some(_) => {}
            None => {
                let near = suggestion(name, known().map(|metric| &*metric.name));
                let known: Vec<&str> = known().map(|metric| &*metric.name).collect();
                let text =
                    format!("there is no metric '{name}'{near}; there are: {}", known.join(", "));
                problems.add(at, text);
            }
        }
    }
    metrics
}

fn twice(also: &[(usize, String)], problems: &mut Problems) {
    for (place, (at, name)) in also.iter().enumerate() {
        if also[..place].iter().any(|(_, other)| other == name) {
            problems.add(*at, format!("'{name}' stands in 'measure.also' twice"));
        }
    }
}

fn only_in_probes(measure: &Values) -> String {
    let instead = match measure.text("calls") {
        Some(_) => "'measure.calls' has it in the report anyway: leave it out here",
        None => {
            "leave it out here, and 'calls = \"allocations\"' in [measure] has it in the report"
        }
    };
    format!(
        "'{ONLY_IN_PROBES}' cannot be compared, because calls are counted in trials of their own that are \
         not judged: {instead}"
    )
}

fn bounds(discard: &Values) -> BTreeMap<String, f64> {
    let value = |bound: &Bound| {
        let whole = discard.whole(bound.key).map(|whole| whole as f64);
        let given = discard.decimal(bound.key).or(whole).map(|given| given * bound.scale);
        Some((bound.covariate.to_owned(), given.or(bound.default)?))
    };
    BOUNDS.iter().filter_map(value).collect()
}

/// A bound of `[discard]` as it is given beside the file (`steal=30%`): its covariate, and the bound.
///
/// # Errors
/// There is no such bound, or it cannot be that, in words.
pub fn bound(text: &str) -> Result<(String, f64), String> {
    let wrong = || format!("'{text}' is no bound: write NAME=BOUND, as in steal=10%");
    let (name, value) = text.split_once('=').ok_or_else(wrong)?;
    let known = BOUNDS.iter().find(|row| row.key == name).ok_or_else(|| {
        let names: Vec<&str> = BOUNDS.iter().map(|row| row.key).collect();
        let near = suggestion(name, names.iter().copied());
        format!("there is no bound '{name}'{near}; there are: {}", names.join(", "))
    })?;
    let is_number = value.parse::<f64>().is_ok();
    let value = if is_number { value.to_owned() } else { format!("{value:?}") };
    let mut problems = Problems::default();
    let values = read(&format!("{name} = {value}"), DISCARD, &mut problems);
    if let Some((_, why)) = problems.into_found().into_iter().next() {
        return Err(why);
    }
    let found = bounds(&values).remove(known.covariate).ok_or_else(wrong)?;
    Ok((known.covariate.to_owned(), found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::keys::{EXPERIMENT, Form};

    #[test]
    fn a_bound_can_be_given_beside_the_file() {
        assert_eq!(bound("steal=30%"), Ok(("steal_share".to_owned(), 0.3)));
        assert_eq!(bound("wake-up-ratio=10"), Ok(("wake_up_p99_ns".to_owned(), 10.0)));
        assert_eq!(bound("clock-step=2s"), Ok(("clock_step_s".to_owned(), 2.0)));
        assert!(bound("stela=1%").unwrap_err().contains("did you mean 'steal'"));
        for text in ["steal", "steal=", "steal=much", "generator-lag=x", "steal=\"\n"] {
            assert!(bound(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_key_of_bounds_has_its_row_and_its_covariate() {
        let keys = EXPERIMENT.iter().find(|row| row.name == "discard").unwrap();
        let Form::Table(keys) = keys.form else { panic!("{keys:?}") };
        let names: Vec<&str> = keys.iter().map(|row| row.name).collect();
        assert_eq!(names, BOUNDS.iter().map(|bound| bound.key).collect::<Vec<_>>());
        let all = record::trial::Covariates {
            steal_share: Some(0.0),
            foreign_cpus: Some(0.0),
            wake_up_p99_ns: Some(0),
            generator_lag_p99_ns: Some(0),
            generator_busiest_share: Some(0.0),
            error_share: Some(0.0),
            throttled_share: Some(0.0),
            clock_step_s: Some(0.0),
        };
        let fields = serde_json::to_value(all).unwrap();
        for bound in BOUNDS {
            assert!(fields.get(bound.covariate).is_some(), "{}", bound.covariate);
        }
        assert_eq!(fields.as_object().unwrap().len(), BOUNDS.len());
    }
}
