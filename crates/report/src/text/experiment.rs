//! Text form of an experiment for a terminal: rate and percentiles, the answer in three sentences, every comparison
//! with its figures, and the caveats. Reads only the record; `report` makes the report with its charts.

use experiment::definition::tested_comparisons;
use experiment::format::{
    better_fraction, bound_percent, count, duration_estimates, duration_text, factor_interval, int_range,
    is_wide, probability, value,
};
use experiment::judge::answer_of_summary;
use experiment::trial_counts::LeftOutCounts;
use record::experiment::{
    Arm, Comparison, ComparisonOutcome, Experiment, ExperimentCell, ExperimentMetric, ExperimentPlan,
    ONLY_LOAD, ValueDistribution, counted_blocks,
};
use stats::sequential::BLOCKS_MIN;

use record::run::Answer;

use super::answer::format_answer;
use super::layout::{page_width, wrap, wrap_labelled};
use super::table::table;
use crate::TrialRecords;

mod head;

pub(crate) use head::experiment_headline;

/// Returns the answer of an experiment; without a block it says so.
pub(crate) fn answer(experiment: &Experiment) -> Answer {
    match experiment.summary.is_empty() {
        true => Answer {
            what: "No result yet: no block is complete.".to_owned(),
            why: format!("{} of it ran.", count(experiment.trials.len(), "trial")),
            next: "Let it run on: a block needs one trial of each arm.".to_owned(),
        },
        false => answer_of_summary(&experiment.summary),
    }
}

/// Returns the findings of the summary that are not in the answer.
pub(crate) fn other_findings<'a>(
    experiment: &'a Experiment,
    answer: &'a Answer,
) -> impl Iterator<Item = &'a String> {
    let others =
        experiment.summary.iter().filter(|finding| **finding != answer.what && **finding != answer.why);
    others.filter(|finding| !finding.starts_with("Next: "))
}

pub fn format_experiment(experiment: &Experiment, raw: &dyn TrialRecords) -> String {
    let answer = answer(experiment);
    let first = wrap(&experiment_headline(experiment), page_width()).join("\n");
    let mut text = format!("{first}\n\n{}", format_answer(&answer));
    for sentence in other_findings(experiment, &answer) {
        text.push_str(&wrap_labelled("also", sentence, page_width()));
    }
    text.push_str(&format!("\n{}", head(experiment)));
    match crate::text_table(experiment, raw) {
        // With one arm under several levels, the result at each level matters, not the ratio to the
        // baseline.
        Some(grid) => {
            text.push_str(&format!("\n{}", table(&grid.rows)));
            if grid.rows_omitted > 0 {
                text.push_str(&format!("{} in the report\n", count(grid.rows_omitted, "more row")));
            }
        }
        None => {
            for load in &experiment.plan.loads {
                text.push_str(&format!("\n{}", load_table(experiment, &load.name)));
            }
        }
    }
    for line in experiment.scalings.iter().filter(|line| !line.text.is_empty()) {
        text.push_str(&format!("\n{}\n", line.labelled_text()));
    }
    if !experiment.warnings.is_empty() {
        text.push_str("\nWarnings:\n");
    }
    for warning in &experiment.warnings {
        text.push_str(&format!("  - {} [{}]\n", warning.text, warning.code));
    }
    text
}

fn head(experiment: &Experiment) -> String {
    let plan = &experiment.plan;
    let early = if experiment.partial { "stopped early; " } else { "" };
    format!(
        "{}: {}\n{}, {}, seed {}: {} of {} under {}, {} in all; {}\n{early}{}\n",
        plan.name,
        plan.title,
        experiment.started_at,
        duration_text(experiment.duration_s),
        plan.seed,
        count(counted_blocks(&experiment.trials), "block"),
        count(plan.arms.len(), "arm"),
        count(plan.loads.len(), "load"),
        count(experiment.trials.len(), "trial"),
        LeftOutCounts::count(&experiment.trials),
        experiment.stopped.text,
    )
}

/// Formats the comparisons of one load: a line per arm, metric by metric.
fn load_table(experiment: &Experiment, load: &str) -> String {
    let plan = &experiment.plan;
    let interval = format!("{:.0} % interval", plan.confidence * 100.0);
    let heads = ["", "arm", "median", "ratio", &interval, "p", "P(better)", ""];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for (at, metric) in plan.metrics.iter().enumerate() {
        let decides = if at == 0 { " (decides)" } else { "" };
        let mut label = format!("{}{decides}", metric.title);
        let has = |arm: &Arm| median(experiment, &arm.name, load, metric).is_some();
        if !plan.arms.iter().any(has) {
            let why = plan.arms.iter().map(|arm| missing_reason(experiment, &arm.name, load)).max();
            let row = [label, "all".to_owned()].into_iter().chain(["-"; 5].map(str::to_owned));
            rows.push(row.chain(why.map(str::to_owned)).collect());
            continue;
        }
        for arm in &plan.arms {
            let median = median(experiment, &arm.name, load, metric);
            let compared = experiment.comparisons.iter().find(|comparison| {
                comparison.arm == arm.name && comparison.load == load && comparison.metric == metric.name
            });
            if median.is_none() && compared.is_none() {
                continue;
            }
            let shown = median.map_or_else(|| "-".to_owned(), |it| value(it, &metric.unit));
            let mut row = vec![std::mem::take(&mut label), arm.name.clone(), shown];
            row.extend(compared.map(|comparison| cells(comparison, &metric.unit)).unwrap_or_default());
            let is_none = median.is_none() && compared.is_some_and(|comparison| comparison.ratio.is_none());
            if let Some(outcome_text) = row.last_mut().filter(|_| is_none) {
                *outcome_text = missing_reason(experiment, &arm.name, load).to_owned();
            }
            rows.push(row);
        }
    }
    let title = match plan.loads.iter().find(|planned_load| planned_load.name == load) {
        Some(planned_load) if planned_load.name == ONLY_LOAD && plan.loads.len() == 1 => {
            planned_load.title.clone()
        }
        Some(planned_load) => format!("{}: {}", planned_load.name, planned_load.title),
        None => load.to_owned(),
    };
    let title = title.trim_end_matches([':', ' ']).to_owned();
    let title = if title.is_empty() { title } else { format!("{title}\n") };
    format!("{title}{}", table(&rows))
}

fn median(experiment: &Experiment, arm: &str, load: &str, metric: &ExperimentMetric) -> Option<f64> {
    let cell = experiment.cells.iter().find(|cell| cell.arm == arm && cell.load == load)?;
    cell.metrics.get(&metric.name).map(|spread: &ValueDistribution| spread.median)
}

/// Explains why an arm under a load does not have a metric.
fn missing_reason(experiment: &Experiment, arm: &str, load: &str) -> &'static str {
    let is_of = |cell: &&ExperimentCell| cell.arm == arm && cell.load == load;
    match experiment.cells.iter().find(is_of) {
        Some(cell) if cell.trials > 0 => "no trial has this figure",
        _ => "no trial counts",
    }
}

/// Formats ratio, interval, p, the fraction in which the arm is better, and the outcome.
fn cells(comparison: &Comparison, unit: &str) -> Vec<String> {
    let none = || "-".to_owned();
    let has_few_blocks =
        comparison.pairs.len() < BLOCKS_MIN && comparison.outcome == ComparisonOutcome::Inconclusive;
    let outcome_text = match (comparison.noise, comparison.outcome) {
        _ if has_few_blocks => {
            let noise = if comparison.noise { "noise: " } else { "" };
            format!("{noise}too few blocks ({} of {BLOCKS_MIN})", comparison.pairs.len())
        }
        (true, ComparisonOutcome::Inconclusive) => "noise".to_owned(),
        (true, outcome) => format!("noise: {}", outcome.as_str_for_unit(unit)),
        (false, outcome) => outcome.as_str_for_unit(unit).to_owned(),
    };
    let bound = if comparison.bound.is_some() { ", a bound only" } else { "" };
    vec![
        // The result of a few blocks is mostly chance, and proves nothing about the noise; a ratio with a wide interval
        // is no figure.
        comparison
            .ratio
            .filter(|_| !(has_few_blocks && comparison.noise || comparison.interval.is_some_and(is_wide)))
            .map_or_else(none, |ratio| format!("{ratio:.3}")),
        comparison.interval.map_or_else(none, factor_interval),
        comparison.p_adjusted.or(comparison.p).filter(|_| !has_few_blocks).map_or_else(none, probability),
        comparison.better_fraction.filter(|_| !has_few_blocks).map_or_else(none, better_fraction),
        format!("{outcome_text}{bound}"),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArmText {
    Changes,
    /// Only the title, which names the changes.
    Title,
}

/// Formats the plan of the experiment before it runs.
pub fn plan(plan: &ExperimentPlan, expected_s: (f64, f64), arm_text: ArmText) -> String {
    let cells = plan.arms.len() * plan.loads.len();
    let (min, max) = trial_count_range(plan);
    let mut text = format!("{}: {}\n\n", plan.name, plan.title);
    let mut rows = Vec::new();
    for arm in &plan.arms {
        let description = match &arm.repeats {
            Some(other) => format!("{other} again, as the noise reference"),
            None if arm_text == ArmText::Title => arm.title.clone(),
            None => changes(&arm.title, &arm.changes),
        };
        rows.push(("arm", &arm.name, description));
    }
    let changed_arms = plan.arms.iter().filter(|arm| arm.repeats.is_none() && arm.name != plan.baseline);
    let identical_arms: Vec<&str> = changed_arms
        .filter(|arm| experiment::definition::changed_keys(plan, arm).is_empty())
        .map(|arm| arm.name.as_str())
        .collect();
    for load in &plan.loads {
        rows.push(("load", &load.name, changes(&load.title, &load.changes)));
    }
    let width = rows.iter().map(|(_, name, _)| name.chars().count()).max().unwrap_or(0);
    for (kind, name, what) in rows {
        text.push_str(format!("{kind:4}  {name:width$}  {what}").trim_end());
        text.push('\n');
    }
    for arm in identical_arms {
        text.push_str(&format!(
            "remark      {arm} equals {} in everything: only noise can differ\n",
            plan.baseline
        ));
    }
    for load in &plan.left_out {
        text.push_str(&format!("remark      load {} is left out: {}\n", load.name, load.reason));
    }
    text.push_str(&inconclusive(plan).unwrap_or_default());
    let metrics: Vec<&str> = plan.metrics.iter().map(|metric| metric.name.as_str()).collect();
    let (decides, other_metrics) =
        metrics.split_first().map_or(("", &[][..]), |(metric, rest)| (metric, rest));
    text.push_str(&format!(
        "\ndecides     {decides}; a difference of {} matters\nalso        {}\nblocks      {}, of {} \
         each\ntrials      at least {min}, at most {max}, of {:.1} s each\ntakes       about {}\nseed        \
         {}\n",
        bound_percent(plan.effect),
        if other_metrics.is_empty() { "nothing".to_owned() } else { other_metrics.join(", ") },
        int_range((plan.blocks_min, plan.blocks_max)),
        count(cells, "trial"),
        plan.duration_s,
        duration_estimates(expected_s),
        plan.seed,
    ));
    text
}

/// Returns a warning if the plan has too few blocks to show a difference.
fn inconclusive(plan: &ExperimentPlan) -> Option<String> {
    (tested_comparisons(plan) > 0 && (plan.blocks_max as usize) < BLOCKS_MIN).then(|| {
        format!(
            "remark      no arm can come out as faster or slower: the arms are judged from block {BLOCKS_MIN} on, and \
             the plan has {} (--blocks {BLOCKS_MIN}..30)\n",
            count(plan.blocks_max as usize, "block")
        )
    })
}

/// Returns the minimum and maximum number of trials, including pilots and repeated trials.
pub fn trial_count_range(plan: &ExperimentPlan) -> (usize, usize) {
    let cells = plan.arms.len() * plan.loads.len();
    let distinct_cells = plan.arms.iter().filter(|arm| arm.repeats.is_none()).count() * plan.loads.len();
    let pilots = if plan.warm_up_s.is_none() { cells } else { 0 };
    let counting = if plan.calls.is_some() { distinct_cells } else { 0 };
    let reruns = (f64::from(plan.blocks_max) * plan.reruns_max_fraction).ceil() as usize;
    let blocks_max = plan.blocks_max as usize + reruns;
    (pilots + counting + cells * plan.blocks_min as usize, pilots + counting + cells * blocks_max)
}

fn changes(title: &str, changes: &std::collections::BTreeMap<String, String>) -> String {
    let changed = changes.iter().map(|(key, value)| format!("{key} = {value}"));
    let changed = changed.collect::<Vec<_>>().join(", ");
    match (title.is_empty(), changed.is_empty()) {
        (_, true) => title.to_owned(),
        (true, false) => changed,
        (false, false) => format!("{title} ({changed})"),
    }
}

#[cfg(test)]
mod tests {
    use record::experiment::{
        BetterDirection, BlockPair, LeftOutLoad, LoadPlan, ScalingSummary, TrialSummary, Warning,
    };
    use record::facts::HostFacts;
    use record::trial::{BLOCK_INCOMPLETE, DiscardReason};

    use super::*;

    /// Source without records.
    struct NoTrialRecords;

    impl TrialRecords for NoTrialRecords {
        fn trial(&self, _: &str) -> Option<record::trial::ExperimentTrial> {
            None
        }

        fn folded_stacks(&self, _: &str) -> Option<String> {
            None
        }
    }

    fn experiment() -> Experiment {
        let arm = |name: &str, again: Option<&str>| Arm {
            name: name.to_owned(),
            repeats: again.map(str::to_owned),
            ..Arm::default()
        };
        let plan = ExperimentPlan {
            name: "a".to_owned(),
            title: "Is b faster?".to_owned(),
            baseline: "a".to_owned(),
            arms: vec![arm("a", None), arm("a-repeat", Some("a")), arm("b", None)],
            loads: vec![LoadPlan { name: ONLY_LOAD.to_owned(), ..LoadPlan::default() }],
            metrics: vec![ExperimentMetric {
                name: "responses_per_s".to_owned(),
                title: "responses".to_owned(),
                unit: "1/s".to_owned(),
                better: BetterDirection::Higher,
            }],
            effect: 0.02,
            confidence: 0.95,
            blocks_min: 10,
            blocks_max: 30,
            reruns_max_fraction: 0.5,
            duration_s: 8.0,
            ..ExperimentPlan::default()
        };
        let comparison = |arm: &str, noise: bool, ratio: f64, outcome: ComparisonOutcome| Comparison {
            arm: arm.to_owned(),
            load: ONLY_LOAD.to_owned(),
            metric: "responses_per_s".to_owned(),
            noise,
            ratio: Some(ratio),
            interval: Some((ratio - 0.01, ratio + 0.01)),
            p_adjusted: Some(0.0002),
            better_fraction: Some(0.93),
            pairs: vec![BlockPair::default(); 10],
            outcome,
            ..Comparison::default()
        };
        Experiment {
            schema: String::new(),
            weir: record::run::WeirVersion::default(),
            command: Vec::new(),
            started_at: "2026-01-02T03:04:05Z".to_owned(),
            duration_s: 600.0,
            partial: true,
            resumed: 0,
            host: HostFacts::default(),
            environment: std::collections::BTreeMap::new(),
            plan,
            stopped: record::experiment::StopReason::default(),
            trials: Vec::new(),
            cells: vec![ExperimentCell {
                arm: "b".to_owned(),
                load: ONLY_LOAD.to_owned(),
                metrics: [(
                    "responses_per_s".to_owned(),
                    ValueDistribution { median: 1500.0, ..ValueDistribution::default() },
                )]
                .into(),
                ..ExperimentCell::default()
            }],
            comparisons: vec![
                comparison("a-repeat", true, 1.0, ComparisonOutcome::Equivalent),
                comparison("b", false, 1.1, ComparisonOutcome::Faster),
            ],
            warnings: vec![Warning {
                code: "noise_floor".to_owned(),
                arm: None,
                text: "the machine is noisy".to_owned(),
            }],
            scalings: Vec::new(),
            summary: vec!["b is faster than a.".to_owned()],
            answer: None,
            finish: None,
        }
    }

    #[test]
    fn every_comparison_is_shown_with_its_figures() {
        let text = format_experiment(&experiment(), &NoTrialRecords);
        for part in [
            "\nwhat         b is faster than a.\n",
            "stopped early; ",
            "a-repeat",
            "noise: equivalent",
            "1.100  1.090 to 1.110  < 0.001       93 %",
            "faster\n",
            "the machine is noisy [noise_floor]",
            "95 % interval",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn omitted_trials_and_too_few_blocks_are_reported() {
        let mut experiment = experiment();
        experiment.trials = vec![TrialSummary::default(); 2];
        for line in &mut experiment.trials {
            line.position.block = 1;
        }
        let why = |code: &str| DiscardReason { code: code.to_owned(), text: String::new() };
        experiment.trials[1].discarded = Some(why(BLOCK_INCOMPLETE));
        experiment.duration_s = 29.0;
        experiment.cells.clear();
        for comparison in &mut experiment.comparisons {
            (comparison.outcome, comparison.interval) = (ComparisonOutcome::Inconclusive, None);
            comparison.pairs.truncate(1);
        }
        let shown = format_experiment(&experiment, &NoTrialRecords);
        for part in [
            ", 29 s, seed 0: 1 block of 3 arms under 1 load, 2 trials in all; 0 trials discarded, 0 failed, 1 \
             not compared: its block is incomplete\n",
            " all       -      -              -  -          -  no trial counts",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let spread = ValueDistribution { median: 1500.0, ..ValueDistribution::default() };
        experiment.cells = ["a", "a-repeat", "b"]
            .map(|arm| ExperimentCell {
                arm: arm.to_owned(),
                load: ONLY_LOAD.to_owned(),
                trials: 1,
                metrics: [("responses_per_s".to_owned(), spread)].into(),
                ..ExperimentCell::default()
            })
            .to_vec();
        let shown = format_experiment(&experiment, &NoTrialRecords);
        for part in ["noise: too few blocks (1 of 4)", "1.100              -  -          -  "] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(!shown.contains("1.000"), "the noise of one block is no figure: {shown}");
    }

    #[test]
    fn one_arm_under_levels_is_a_table_of_levels() {
        let mut experiment = experiment();
        experiment.plan.arms.truncate(2);
        experiment.plan.loads = ["1", "2"]
            .map(|level| LoadPlan {
                name: format!("c{level}"),
                levels: [("connections".to_owned(), level.to_owned())].into(),
                ..LoadPlan::default()
            })
            .to_vec();
        experiment.cells = ["c1", "c2"]
            .map(|load| ExperimentCell {
                arm: "a".to_owned(),
                load: load.to_owned(),
                ..experiment.cells[0].clone()
            })
            .to_vec();
        experiment.scalings = vec![ScalingSummary {
            arm: "a".to_owned(),
            text: "2 levels of connections".to_owned(),
            ..ScalingSummary::default()
        }];
        let text = format_experiment(&experiment, &NoTrialRecords);
        let head = text.lines().find(|line| line.starts_with("connections")).unwrap();
        for column in ["rate, mean", "rate, best second", "p99", "max", "generator CPUs"] {
            assert!(head.contains(column), "{column}: {text}");
        }
        assert!(text.contains("1.50 k/s") && text.contains("\na: 2 levels of connections\n"), "{text}");
        assert!(!text.contains("noise: equivalent"), "{text}");
    }

    #[test]
    fn a_plan_lists_its_trials_and_their_duration() {
        let experiment = experiment();
        assert_eq!(trial_count_range(&experiment.plan), (3 + 30, 3 + 3 * 45));
        let text = plan(&experiment.plan, (330.0, 3000.0), ArmText::Changes);
        for part in ["10 to 30", " 33", " 138", "6 min", "50 min", "a again"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_plan_says_which_loads_are_left_out_and_why() {
        let mut plan_of_few = experiment().plan;
        let left_out = |text: &str| text.matches("left out").count();
        let text = |plan_of: &ExperimentPlan| plan(plan_of, (330.0, 3000.0), ArmText::Changes);
        assert_eq!(left_out(&text(&plan_of_few)), 0);
        let load =
            |name: &str, reason: &str| LeftOutLoad { name: name.to_owned(), reason: reason.to_owned() };
        plan_of_few.left_out = vec![load("two", "it needs 4 CPUs"), load("four", "it needs 8 CPUs")];
        let text = text(&plan_of_few);
        assert_eq!(left_out(&text), 2);
        assert!(text.contains("load four is left out: it needs 8 CPUs\n"), "{text}");
    }

    #[test]
    fn arms_without_their_changes_in_the_text_are_not_called_equal() {
        let mut plan_of_trial = experiment().plan;
        for arm in plan_of_trial.arms.iter_mut().filter(|arm| arm.name != "a" && arm.repeats.is_none()) {
            arm.title = "without somaxconn".to_owned();
            arm.changes = [("node.subject.sysctl".to_owned(), "4096".to_owned())].into();
        }
        let text = plan(&plan_of_trial, (330.0, 3000.0), ArmText::Title);
        assert!(text.contains("without somaxconn\n") && !text.contains("remark"), "{text}");
        plan_of_trial.arms.iter_mut().for_each(|arm| arm.changes.clear());
        assert!(plan(&plan_of_trial, (330.0, 3000.0), ArmText::Title).contains("remark"));
    }
}
