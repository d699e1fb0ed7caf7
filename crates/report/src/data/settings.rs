//! Settings of the trials: command lines, kernel settings, and what was fixed before the first trial.

use std::collections::BTreeMap;

use experiment::engine::discard;
use experiment::format;
use record::experiment::{Experiment, ExperimentPlan};
use record::facts::HostLimits;
use record::sorted::CollectSorted;

use super::typical::TypicalTrial;

/// Returns the commands of a trial by role, with the version of its driver.
pub(crate) fn commands(trial: &TypicalTrial<'_>) -> BTreeMap<String, String> {
    let mut commands = trial.trial.commands.clone();
    let driver = &trial.trial.driver;
    let version = format!("{} {}", driver.program, driver.version);
    if !version.trim().is_empty() {
        commands.insert("driver version".to_owned(), version.trim().to_owned());
    }
    commands
}

pub(crate) fn settings(trial: &TypicalTrial<'_>) -> BTreeMap<String, String> {
    trial.observed().flat_map(|observed| observed.settings.clone()).collect_map()
}

/// Returns only the keys whose values differ somewhere.
pub(crate) fn differing_keys(sides: &[BTreeMap<String, String>]) -> Vec<BTreeMap<String, String>> {
    let Some(first) = sides.first() else { return Vec::new() };
    let differs = |key: &String| sides.iter().any(|side| side.get(key) != first.get(key));
    let of = |side: &BTreeMap<String, String>| {
        let own = side.iter().filter(|(key, _)| differs(key));
        own.map(|(key, value)| (key.clone(), value.clone())).collect_map()
    };
    sides.iter().map(of).collect()
}

/// Returns the settings that were fixed in advance, and the limits of all trials.
pub(crate) fn fixed_settings(experiment: &Experiment) -> Vec<(String, String)> {
    let mut fixed = plan_rows(&experiment.plan);
    fixed.extend(limit_rows(&experiment.host.limits));
    let weir = format!("{} ({})", experiment.weir.version, experiment.weir.commit);
    fixed.push(("weir".to_owned(), weir));
    fixed.retain(|(_, value)| !value.trim().is_empty());
    fixed
}

fn limit_rows(limits: &HostLimits) -> Vec<(String, String)> {
    let ports = limits.port_range.map(|(first, last)| format!("{first} to {last}"));
    let limits = [
        ("local ports", ports),
        ("descriptors", Some(limits.descriptors.to_string()).filter(|text| text != "0")),
        ("net.core.somaxconn", limits.somaxconn.map(|max| max.to_string())),
    ];
    limits.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

fn plan_rows(plan: &ExperimentPlan) -> Vec<(String, String)> {
    let warm_up = plan
        .warm_up_s
        .map_or_else(|| "determined by the pilots".to_owned(), |seconds| format::value(seconds, "s"));
    let facts = [
        ("duration of each load", format::value(plan.duration_s, "s")),
        ("warm-up", warm_up),
        ("blocks", format::int_range((plan.blocks_min, plan.blocks_max))),
        ("smallest effect that matters", format::bound_percent(plan.effect)),
        ("confidence of intervals", format::bound_percent(plan.confidence)),
        ("a trial is discarded above", discard::describe_bounds(&plan.discard).join("; ")),
        ("seed of run order and resampling", plan.seed.to_string()),
    ];
    let left_out: Vec<String> =
        plan.left_out.iter().map(|load| format!("{}: {}", load.name, load.reason)).collect();
    let left_out = Some(("loads left out", left_out.join("; "))).filter(|_| !left_out.is_empty());
    facts.into_iter().chain(left_out).map(|(key, value)| (key.to_owned(), value)).collect()
}
