//! What the subject's processor time goes into, function by function: the baseline beside each arm, as
//! time for a response, so that arms of different rates compare; and how often counted functions are
//! called for a response. Not for who calls whom: that is in [`super::flame`].

use std::collections::BTreeMap;

use record::experiment::{Arm, Experiment};
use record::trial::Trial;

use super::panel::figure;
use super::stacks::{self, US_PER_RESPONSE, plain};
use super::typical::{Typical, typical};
use super::{Cell, Chart, Part, Table};
use crate::report::Raw;
use crate::report::csv::Figures;
use crate::report::svg::shortened;
use crate::words;

/// Rows of a table: what is below them is less than a reader would act on.
const ROWS_MAX: usize = 25;
/// Arms that have a table at most.
const ARMS_MAX: usize = 6;
/// Functions in the figures, of each arm.
const FIGURES_MAX: usize = 300;
/// A function that has less than this share in both arms is left out of the table.
const SHARE_MIN: f64 = 0.000_5;
/// Letters of a name in a table.
const NAME_LETTERS: usize = 80;
/// The metric of the calls that the experiment asks about, each per response.
const CALLS: &str = "calls_per_response";
/// Trials that are not judged in which counted calls are looked for: pilots and probes are few.
const PROBES_MAX: usize = 60;
/// A change of a share of all time from which it stands out.
const CHANGE_MIN: f64 = 0.002;

/// What an arm's time goes into: shares of a function on top, and anywhere.
#[derive(Debug, Default)]
struct Profile {
    /// Processor time of a response, in µs.
    us: Option<f64>,
    functions: BTreeMap<String, (f64, f64)>,
}

impl Profile {
    /// From the stacks of all counting trials; or else from the table of the typical one.
    fn of(experiment: &Experiment, raw: &dyn Raw, arm: &str, all: &[&Typical<'_>]) -> Option<Self> {
        if let Some(stacks) = stacks::of_arm(experiment, raw, arm) {
            let share = |samples| stacks.weight(samples, false);
            let functions = stacks.functions().into_iter();
            let functions =
                functions.map(|(name, (own, total))| (name.to_owned(), (share(own), share(total))));
            return Some(Self { us: stacks.us_per_response, functions: functions.collect() });
        }
        let one = all.iter().find(|one| one.arm() == arm)?;
        let mut functions: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        let seen = one.observed().flat_map(|seen| &seen.functions);
        for share in seen.filter(|share| share.role == "subject") {
            if share.share_self.is_finite() && share.share_total.is_finite() {
                let mark = if share.module == "[kernel]" { "_[k]" } else { "" };
                let name = format!("{}{mark}", share.function);
                functions.insert(name, (share.share_self, share.share_total));
            }
        }
        let us = one.line.metrics.get(US_PER_RESPONSE).copied();
        let us = us.filter(|us| us.is_finite() && *us > 0.0);
        (!functions.is_empty()).then_some(Self { us, functions })
    }
}

/// A function in both arms.
#[derive(Clone, Copy, Debug)]
struct Row<'a> {
    name: &'a str,
    before: (f64, f64),
    after: (f64, f64),
    /// Time of a response with it on top, in µs, in both.
    us: Option<(f64, f64)>,
}

impl Row<'_> {
    /// By how much its own time grew: in µs, or as a share.
    fn change(&self) -> f64 {
        let (was, is) = self.us.unwrap_or((self.before.0, self.after.0));
        is - was
    }
}

/// The charts: a table for each arm against the baseline, and one of counted calls.
pub(in crate::report) fn chart(experiment: &Experiment, raw: &dyn Raw) -> Vec<Chart> {
    let plan = &experiment.plan;
    let found = typical(experiment, raw);
    let trials: Vec<&Typical<'_>> = found.groups.iter().flat_map(|group| &group.trials).collect();
    let others = plan.arms.iter().filter(|arm| arm.again.is_none() && arm.name != plan.baseline);
    let others: Vec<&Arm> = others.take(ARMS_MAX).collect();
    let caption = "Processor time by function, on top of the stack (own) and with all that it calls \
                   (total), in order of how much its own time for a response changed. \
                   Changes of 0.2 % of all time and more are coloured.";
    let columns = [
        "arm",
        "function",
        "place",
        "baseline_own_share",
        "own_share",
        "baseline_total_share",
        "total_share",
        "baseline_own_us",
        "own_us",
        "difference",
    ];
    let title = "Functions side by side";
    let mut chart = Chart::new("functions", title, caption, Figures::new(&columns));
    if let Some(before) = Profile::of(experiment, raw, &plan.baseline, &trials) {
        for arm in &others {
            let Some(after) = Profile::of(experiment, raw, &arm.name, &trials) else { continue };
            let rows = rows(&before, &after);
            rows.iter().take(FIGURES_MAX).for_each(|row| chart.figures.row(figures(arm, row)));
            chart.parts.push(Part::Heading(format!("{} against {}", arm.name, plan.baseline)));
            chart.parts.push(Part::Table(table(&plan.baseline, &arm.name, &rows)));
            chart.notes.extend(sums(&plan.baseline, &arm.name, &before, &after));
        }
    }
    let functions = (!chart.parts.is_empty()).then_some(chart);
    functions.into_iter().chain(calls(experiment, raw, &trials)).collect()
}

/// Every function of either, the largest change first.
fn rows<'a>(before: &'a Profile, after: &'a Profile) -> Vec<Row<'a>> {
    let us = before.us.zip(after.us);
    let mut names: Vec<&str> = before.functions.keys().map(String::as_str).collect();
    names.extend(after.functions.keys().map(String::as_str));
    names.sort_unstable();
    names.dedup();
    let of = |profile: &Profile, name| profile.functions.get(name).copied().unwrap_or_default();
    let row = |name| {
        let (before, after) = (of(before, name), of(after, name));
        let us = us.map(|(was, is)| (was * before.0, is * after.0));
        Row { name, before, after, us }
    };
    let mut rows: Vec<Row<'_>> = names.into_iter().map(row).collect();
    rows.sort_by(|a, b| {
        let by_change = b.change().abs().total_cmp(&a.change().abs());
        by_change.then_with(|| b.before.0.total_cmp(&a.before.0)).then_with(|| a.name.cmp(b.name))
    });
    rows
}

fn figures(arm: &Arm, row: &Row<'_>) -> Vec<String> {
    let (name, kernel) = plain(row.name);
    let mut cells = vec![arm.name.clone(), name.to_owned(), place(kernel).to_owned()];
    let shares = [row.before.0, row.after.0, row.before.1, row.after.1];
    cells.extend(shares.map(figure));
    cells.push(row.us.map_or_else(String::new, |(was, _)| figure(was)));
    cells.push(row.us.map_or_else(String::new, |(_, is)| figure(is)));
    cells.push(figure(row.change()));
    cells
}

fn place(kernel: bool) -> &'static str {
    if kernel { "kernel" } else { "user" }
}

fn table(baseline: &str, arm: &str, rows: &[Row<'_>]) -> Table {
    let with_us = rows.iter().any(|row| row.us.is_some());
    let mut columns = vec!["Function".to_owned(), "Where".to_owned()];
    if with_us {
        columns.extend([format!("{baseline}: own"), format!("{arm}: own")]);
    }
    columns.push(if with_us { "Difference, a response" } else { "Difference, of all" }.to_owned());
    columns.extend([
        format!("{baseline}: own share"),
        format!("{arm}: own share"),
        format!("{baseline}: total share"),
        format!("{arm}: total share"),
    ]);
    let all_us: f64 = rows.iter().filter_map(|row| row.us).map(|(was, _)| was).sum();
    let worth = rows.iter().filter(|row| row.before.0.max(row.after.0) >= SHARE_MIN);
    let cells = |row: &Row<'_>| {
        let (name, kernel) = plain(row.name);
        let mut cells = vec![
            Cell::words(shortened(name, NAME_LETTERS)).class("mono"),
            Cell::words(place(kernel)),
        ];
        if with_us {
            cells.push(Cell::figure(row.us.map(|(was, _)| words::value(was, "us"))));
            cells.push(Cell::figure(row.us.map(|(_, is)| words::value(is, "us"))));
        }
        cells.push(difference(row, all_us));
        let shares = [row.before.0, row.after.0, row.before.1, row.after.1];
        cells.extend(shares.map(|share| Cell::figure(Some(words::percent(share)))));
        cells
    };
    Table { columns, rows: worth.take(ROWS_MAX).map(cells).collect() }
}

/// The change of a function's own time, which stands out where it matters.
fn difference(row: &Row<'_>, all_us: f64) -> Cell {
    let change = row.change();
    let (text, share) = match row.us {
        Some(_) => (words::value(change.abs(), "us"), change / all_us),
        None => (words::percent(change.abs()), change),
    };
    let sign = match change {
        change if change > 0.0 => "+",
        change if change < 0.0 => "−",
        _ => "",
    };
    let cell = Cell::figure(Some(format!("{sign}{text}")));
    match share {
        share if share <= -CHANGE_MIN => cell.class("good"),
        share if share >= CHANGE_MIN => cell.class("bad"),
        _ => cell,
    }
}

/// What both arms need in all.
fn sums(baseline: &str, arm: &str, before: &Profile, after: &Profile) -> Option<String> {
    let (was, is) = before.us.zip(after.us)?;
    Some(format!(
        "{arm} needs {} of processor time a response, {baseline} {}: {}.",
        words::value(is, "us"),
        words::value(was, "us"),
        words::change(is / was)
    ))
}

/// Calls for a response, by call and arm.
fn calls(experiment: &Experiment, raw: &dyn Raw, typical: &[&Typical<'_>]) -> Option<Chart> {
    let arms: Vec<&Arm> =
        experiment.plan.arms.iter().filter(|arm| arm.again.is_none()).take(ARMS_MAX).collect();
    let mut found: BTreeMap<(String, String), Vec<f64>> = BTreeMap::new();
    let judged = typical.iter().map(|one| &one.trial);
    judged.for_each(|trial| count(trial, &mut found));
    if experiment.plan.calls.is_some() {
        let probes = experiment.trials.iter().filter(|line| line.place.block == 0);
        let probes = probes.filter(|line| line.failed.is_none()).take(PROBES_MAX);
        let read: Vec<Trial> = probes.filter_map(|line| raw.trial(&line.file)).collect();
        read.iter().for_each(|trial| count(trial, &mut found));
    }
    let mut names: Vec<&String> = found.keys().map(|(call, _)| call).collect();
    names.dedup();
    let mut columns = vec!["Call".to_owned()];
    columns.extend(arms.iter().map(|arm| arm.name.clone()));
    let median = |call: &String, arm: &Arm| {
        let values = found.get(&(call.clone(), arm.name.clone()));
        values.and_then(|all| crate::statistics::median(all))
    };
    let row = |call: &&String| {
        let of = |arm: &&Arm| Cell::figure(median(call, arm).map(|value| format!("{value:.2}")));
        let mut cells = vec![Cell::words((*call).clone()).class("mono")];
        cells.extend(arms.iter().map(of));
        cells
    };
    let rows: Vec<Vec<Cell>> = names.iter().take(ROWS_MAX).map(row).collect();
    if rows.is_empty() {
        return None;
    }
    let mut figures = Figures::new(&["call", "arm", "calls_per_response"]);
    for call in names {
        for arm in &arms {
            let Some(median) = median(call, arm) else { continue };
            figures.row(vec![call.clone(), arm.name.clone(), figure(median)]);
        }
    }
    let caption = "How often counted functions and system calls are called for a response: medians over \
                   the trials in which they were counted.";
    let mut chart = Chart::new("calls", "Calls for a response", caption, figures);
    chart.notes.push(
        "Counting calls costs time: rates of trials in which calls were counted are not compared."
            .to_owned(),
    );
    Some(chart.table(Table { columns, rows }))
}

/// Adds the subject's counted calls of a trial, for each response.
fn count(trial: &Trial, found: &mut BTreeMap<(String, String), Vec<f64>>) {
    if let (Some(calls), Some(each)) = (&trial.calls, trial.metrics.get(CALLS)) {
        let key = (calls.count.call.clone(), trial.place.arm.clone());
        found.entry(key).or_default().push(*each);
    }
    let of_run = trial.run.as_ref().map(|run| run.rates.responses_per_s);
    let Some(rate) = of_run.or_else(|| trial.metrics.get("responses_per_s").copied()) else {
        return;
    };
    let of_run = trial.run.iter().flat_map(|run| &run.observed);
    let calls = of_run.chain(&trial.observed).flat_map(|seen| &seen.calls);
    for call in calls.filter(|call| call.role == "subject") {
        let each = call.count as f64 / call.length_s / rate;
        if each.is_finite() {
            let key = (call.call.clone(), trial.place.arm.clone());
            found.entry(key).or_default().push(each);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::csv::parse;
    use crate::report::sample::{ARMS, NoRaw, sample};

    fn tables(chart: &Chart) -> Vec<&Table> {
        let mut tables = Vec::new();
        for part in &chart.parts {
            if let Part::Table(table) = part {
                tables.push(table);
            }
        }
        tables
    }

    #[test]
    fn functions_stand_in_the_order_of_their_change() {
        let (experiment, raw) = sample();
        let charts = chart(&experiment, &raw);
        let tables: Vec<&Table> = charts.iter().flat_map(tables).collect();
        assert_eq!(tables.len(), 2);
        assert!(
            tables
                .iter()
                .all(|table| table.rows.iter().all(|row| row.len() == table.columns.len()))
        );
        // Counted calls are a chart with data of its own, whether there are functions beside it or not.
        let counted = parse(&charts[1].figures.text());
        assert_eq!(counted[0], ["call", "arm", "calls_per_response"]);
        assert_eq!(counted.len(), 1 + 2, "{counted:?}");
        assert_eq!(tables[0].rows[0][0].text, "malloc");
        assert_eq!(tables[0].rows[0][4].class, Some("good"));
        let je = tables[0].rows.iter().find(|row| row[0].text == "je_malloc").unwrap();
        assert_eq!((je[4].class, je[2].text.as_str()), (Some("bad"), "0 ns"));
        assert_eq!((tables[1].rows.len(), tables[1].rows[0][1].text.as_str()), (1, "11.00"));
        let rows = parse(&charts[0].figures.text());
        assert_eq!(rows[1][..3], [ARMS[2], "malloc", "user"]);
        let (own, difference): (f64, f64) =
            (rows[1][7].parse().unwrap(), rows[1][9].parse().unwrap());
        assert!((own + difference).abs() < 1e-4, "all of it is gone");
        assert!(charts[0].notes[0].contains("less"), "{:?}", charts[0].notes);
    }

    #[test]
    fn without_stacks_the_table_of_a_trial_is_used() {
        let (experiment, mut raw) = sample();
        raw.trials.values_mut().for_each(|trial| trial.folded = None);
        let charts = chart(&experiment, &raw);
        let tables = tables(&charts[0]);
        assert_eq!(tables[0].rows[0][0].text, "malloc");
        let kernel = tables[0].rows.iter().find(|row| row[0].text == "tcp_sendmsg").unwrap();
        assert_eq!(kernel[1].text, "kernel");
    }

    #[test]
    fn without_time_a_response_shares_are_compared() {
        let profile = |share| Profile {
            us: None,
            functions: [("f".to_owned(), (share, f64::NAN)), ("g_[k]".to_owned(), (0.5, 0.5))]
                .into(),
        };
        let (before, after) = (profile(0.2), profile(0.3));
        let table = table("a", "b", &rows(&before, &after));
        assert_eq!(table.columns.len(), 7);
        assert_eq!(table.rows[0][2], Cell::figure(Some("+10.0 %".to_owned())).class("bad"));
        assert_eq!(table.rows[1][2].text, "0 %");
    }

    #[test]
    fn nothing_is_nothing_and_many_are_bounded() {
        let (mut experiment, _) = sample();
        assert!(chart(&experiment, &NoRaw).is_empty());
        experiment.trials.clear();
        assert!(chart(&experiment, &NoRaw).is_empty());
        let many = |add: f64| Profile {
            us: Some(20.0),
            functions: (0..50_000)
                .map(|n| (n.to_string(), (add + 1e-3 * f64::from(n % 7), 0.1)))
                .collect(),
        };
        let (before, after) = (many(0.01), many(0.02));
        assert_eq!(table("a", "b", &rows(&before, &after)).rows.len(), ROWS_MAX);
    }
}
