//! Text form of a search for the edge: rate and percentiles, the answer in three sentences, the ladder, the scaling law, the
//! verdict at the edge. Reads only the record.

use super::answer::format_answer;
use super::decision::decision_rows;
use super::layout::{page_width, wrap, wrap_labelled};
use super::table::table_within;
use super::{diagnosis, summary};
use record::capacity_search::{
    CapacitySearch, Estimate, LevelOutcome, Scaling, SearchEnd, SearchQuantity, SearchTrial, limit_kind,
};
use record::run::Answer;
use record::units::{
    format_bit_rate, format_byte_rate, format_count, format_duration_ns, format_plural, format_rate,
};

mod head;

pub(crate) use head::edge_headline;

/// Formats the line of a trial that has ended.
pub fn trial_line(trial: &SearchTrial, quantity: SearchQuantity) -> String {
    let word = match trial.outcome {
        LevelOutcome::Held => "held",
        LevelOutcome::Missed => "missed",
        LevelOutcome::Undecided => "undecided",
    };
    let level = match trial.purpose.as_str() {
        "scaling" | "full" => format_level(SearchQuantity::Connections, trial.level),
        _ => format_level(quantity, trial.level),
    };
    let mut line = format!(
        "{:>3}  {:<9}  {level:>16}  {:>5.1} s  {:>10}  p50 {:>7}  p99 {:>7}  {word}",
        trial.number,
        trial.purpose,
        trial.length_s,
        format_rate(trial.goodput_per_s()),
        format_duration_ns(trial.p50_ns),
        format_duration_ns(trial.p99_ns),
    );
    if !trial.reasons.is_empty() {
        line.push_str(&format!(": {}", trial.reasons.join("; ")));
    }
    line + "\n"
}

/// Formats a trial that is running.
pub fn trial_step(number: usize, purpose: &str, level: f64, quantity: SearchQuantity) -> String {
    let quantity = if purpose == "scaling" { SearchQuantity::Connections } else { quantity };
    format!("trial {number}: {purpose}, {}", format_level(quantity, level))
}

/// Formats a number with a comma at each thousand; three digits when it is small.
fn format_number(value: f64) -> String {
    if value < 100.0 {
        let text = format!("{value:.2}");
        let trimmed = text.trim_end_matches('0').trim_end_matches('.');
        return trimmed.to_owned();
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn format_level(quantity: SearchQuantity, level: f64) -> String {
    match quantity {
        SearchQuantity::Rate | SearchQuantity::Bandwidth => format_rate(level),
        SearchQuantity::ConnectionsPerSecond => format!("{} (new connections)", format_rate(level)),
        SearchQuantity::Handshakes => format!("{} (TLS handshakes)", format_rate(level)),
        SearchQuantity::Streams if level == 1.0 => "1 stream per connection".to_owned(),
        SearchQuantity::Streams => format!("{} streams per connection", format_number(level)),
        SearchQuantity::Connections if level == 1.0 => "1 connection".to_owned(),
        SearchQuantity::Connections => format!("{} connections", format_number(level)),
    }
}

fn bytes_per_response(edge: &CapacitySearch) -> Option<f64> {
    let held = edge
        .trials
        .iter()
        .rev()
        .find(|trial| trial.outcome == LevelOutcome::Held && trial.responses_per_s > 0.0)?;
    Some(held.bytes_in_per_s / held.responses_per_s)
}

fn format_search_level(edge: &CapacitySearch, level: f64) -> String {
    let quantity = SearchQuantity::parse(&edge.quantity).unwrap_or(SearchQuantity::Rate);
    match (quantity, bytes_per_response(edge)) {
        (SearchQuantity::Bandwidth, Some(bytes)) => {
            let per_s = level * bytes;
            format!("{} ({}, {})", format_byte_rate(per_s), format_bit_rate(per_s * 8.0), format_rate(level))
        }
        _ => format_level(quantity, level),
    }
}

/// Formats the result in a sentence or two.
pub fn result_sentence(edge: &CapacitySearch) -> String {
    let conclusion = &edge.conclusion;
    let objectives = edge.objectives.join(", ");
    let level =
        |level: Option<f64>| level.map_or_else(|| "?".to_owned(), |level| format_search_level(edge, level));
    let reasons = conclusion.reasons.join("; ");
    let mut text = match conclusion.end {
        SearchEnd::Found => {
            let first =
                format!("holds {objectives} up to {} ({}", level(conclusion.level), trials_at_level(edge));
            let bound = conclusion.upper.map(|upper| format!("; missed at {}", level(Some(upper))));
            first + &bound.unwrap_or_default() + ")"
        }
        SearchEnd::MaxLevel => {
            format!("holds {objectives} at {}, the highest level tried", level(conclusion.level))
        }
        SearchEnd::BelowLowest => {
            format!("does not hold {objectives} even at {}: {reasons}", level(conclusion.upper))
        }
        SearchEnd::GeneratorLimit => format!(
            "{} at {}: the edge is at least {} ({reasons})",
            limit_kind(&conclusion.reasons),
            level(conclusion.limited_at),
            conclusion.lower.map_or_else(|| "unknown".to_owned(), |lower| level(Some(lower)))
        ),
        SearchEnd::NotVerified => format!(
            "held {objectives} in short trials but not in long ones; last level tried: {}: {reasons}",
            level(conclusion.upper)
        ),
        SearchEnd::Drifted => format!(
            "no known level still holds {objectives}: {} ({reasons})",
            conclusion.drift.as_deref().unwrap_or("the verified level does not hold any more")
        ),
        SearchEnd::Stopped => format!(
            "stopped before the end of the search: held {}, missed {}",
            conclusion.lower.map_or_else(|| "nothing yet".to_owned(), |lower| level(Some(lower))),
            conclusion.upper.map_or_else(|| "nothing yet".to_owned(), |upper| level(Some(upper)))
        ),
    };
    if let Some(knee) = edge.knee.as_ref().filter(|knee| knee.level.is_narrow()) {
        let Estimate { value, low, high } = knee.level;
        text.push_str(&format!(
            "; knee at {} ({}..{})",
            format_search_level(edge, value),
            format_count(low),
            format_count(high)
        ));
    }
    if let Some((from, to)) = edge.operating_range {
        text.push_str(&format!("; run it at {}..{}", format_count(from), format_search_level(edge, to)));
    }
    text
}

/// Counts the trials at the verified level that held: those of the verification, and those of the ladder with the
/// same figure, or that missed below it.
fn trials_at_level(edge: &CapacitySearch) -> String {
    let conclusion = &edge.conclusion;
    let figure = conclusion.level.map(format_count);
    let is_at_or_below = |trial: &SearchTrial| {
        let is_below = conclusion.level.is_some_and(|level| trial.level < level);
        Some(format_count(trial.level)) == figure || (is_below && trial.outcome == LevelOutcome::Missed)
    };
    let ladder_trials: Vec<&SearchTrial> =
        edge.trials.iter().filter(|trial| trial.purpose == "ladder" && is_at_or_below(trial)).collect();
    let missed = ladder_trials.iter().filter(|trial| trial.outcome == LevelOutcome::Missed).count() as u32;
    if missed > 0 {
        let all = conclusion.verifications + ladder_trials.len() as u32;
        let held = conclusion.verified + ladder_trials.len() as u32 - missed;
        return format!("{held} of {all} trials: it is at the limit");
    }
    match conclusion.verifications {
        // Two verifications: the recheck after a drift also held.
        2 => format!("{} of 2 trials, at the end", conclusion.verified),
        total => format!("{} of {total} long trials", conclusion.verified),
    }
}

pub fn brief(edge: &CapacitySearch) -> String {
    format!("{}: {}\n", edge_headline(edge), answer(edge).what)
}

pub fn answer(edge: &CapacitySearch) -> Answer {
    diagnose::answer_search(edge, &edge.summary)
}

pub fn summary(edge: &CapacitySearch, colour: bool) -> String {
    let head = wrap(&edge_headline(edge), page_width()).join("\n");
    let mut text = format!("\n{head}\n\n{}", format_answer(&answer(edge)));
    for (label, words) in decision_rows(edge) {
        text.push_str(&wrap_labelled(label, &words, page_width()));
    }
    text.push('\n');
    let mut line = |name: &str, words: &str| text.push_str(&wrap_labelled(name, words, page_width()));
    if !edge.conclusion.reasons.is_empty() && edge.conclusion.end == SearchEnd::Found {
        line("above it", &edge.conclusion.reasons.join("; "));
    }
    if let Some(drift) = &edge.conclusion.drift
        && edge.conclusion.end != SearchEnd::Drifted
    {
        line("drift", drift);
    }
    for note in &edge.notes {
        line("note", note);
    }
    text.push_str(&ladder(edge));
    text.push_str(&scaling(edge));
    text.push_str(&at_edge(edge, colour));
    text.push_str(&format!(
        "searched     {} in {:.0} s\n",
        format_plural(edge.trials.len() as u64, "trial"),
        edge.duration_s
    ));
    text
}

fn ladder(edge: &CapacitySearch) -> String {
    let ladder_trials: Vec<_> = edge.trials.iter().filter(|trial| trial.purpose == "ladder").collect();
    if ladder_trials.is_empty() {
        return String::new();
    }
    let with_direct = !edge.added_latency.is_empty();
    let mut head = vec!["ladder", "offered/s", "goodput/s", "p50", "p99", "observer p50", "p99", "in flight"];
    head.extend(if with_direct { &["direct p50", "p99", "adds mean"][..] } else { &[] });
    head.push("");
    let mut rows = vec![head.into_iter().map(ToOwned::to_owned).collect::<Vec<_>>()];
    for trial in ladder_trials {
        let observer_per_s = trial.observer.map_or(0.0, |observer| observer.responses_per_s);
        let answered_per_s = trial.goodput_per_s() + observer_per_s;
        let time = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), format_duration_ns);
        let mut row = vec![
            String::new(),
            format_count(trial.level),
            format_count(answered_per_s),
            time(Some(trial.p50_ns)),
            time(Some(trial.p99_ns)),
            time(trial.observer.map(|observer| observer.p50_ns)),
            time(trial.observer.map(|observer| observer.p99_ns)),
            format_number(trial.in_flight_mean),
        ];
        if with_direct {
            let added = edge.added_latency.iter().find(|added| added.level == trial.level);
            row.push(time(added.map(|added| added.direct_p50_ns)));
            row.push(time(added.map(|added| added.direct_p99_ns)));
            row.push(added.map_or_else(|| "-".to_owned(), |added| format_signed_ns(added.mean_ns)));
        }
        row.push(match (trial.outcome, trial.littles_law_holds) {
            (LevelOutcome::Held, true) => String::new(),
            (LevelOutcome::Missed, true) => "missed".to_owned(),
            (LevelOutcome::Undecided, true) => "undecided".to_owned(),
            (_, false) => {
                format!("{} in flight by Little's law", format_number(trial.in_flight_by_littles_law))
            }
        });
        rows.push(row);
    }
    format!("\n{}\n", table_within(&rows, page_width(), LADDER_DROPPABLE))
}

/// Columns of the ladder that a narrow page has no room for, the first to go first.
const LADDER_DROPPABLE: &[usize] = &[5, 6, 7, 3, 2];

fn format_signed_ns(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "+" };
    format!("{sign}{}", format_duration_ns(ns.unsigned_abs()))
}

fn scaling(edge: &CapacitySearch) -> String {
    let Some(law) = &edge.scaling else {
        return String::new();
    };
    if !law.follows_points() {
        let text = "the measured levels do not follow the scaling law, so it gives no forecast";
        return wrap_labelled("scaling", text, page_width());
    }
    let part = |name: &str, estimate: &Estimate| match estimate.is_narrow() {
        true => format!("{name} {:.4} ({:.4}..{:.4})", estimate.value, estimate.low, estimate.high),
        false => format!("{name} at most {:.4}", estimate.high),
    };
    let connection_rate = &law.gamma_per_s;
    let mut text = format!(
        "{}, {}, {} by one connection",
        part("contention", &law.alpha),
        part("coherency", &law.beta),
        format_rate(connection_rate.value)
    );
    let measured = law.measured_max;
    match (&law.best_connections, law.best_per_s) {
        (Some(best), Some(per_s)) if best.is_narrow() => text.push_str(&format!(
            "; max with about {} ({} to {}): {}",
            format_level(SearchQuantity::Connections, best.value.round()),
            format_number(best.low.round()),
            format_number(best.high.round()),
            format_rate(per_s)
        )),
        (Some(_), _) => text.push_str("; the number of connections with the maximum is not clear"),
        _ => text.push_str(&format!("; no maximum within twice the measured {measured} connections")),
    }
    if let Some(twice) = forecast(edge, law, 2 * measured) {
        text.push_str(&format!("; about {} with {}", format_rate(twice), 2 * measured));
    }
    wrap_labelled("scaling", &text, page_width())
}

/// Returns the rate that the scaling law gives for a number of connections, unless trials with that many measured
/// another one.
fn forecast(edge: &CapacitySearch, law: &Scaling, connections: u64) -> Option<f64> {
    let per_s = law.predicted_per_s(connections as f64)?;
    let measured = edge.trials.iter().filter(|trial| trial.connections >= connections);
    let best = measured.map(SearchTrial::goodput_per_s).fold(0.0, f64::max);
    (best <= per_s * FORECAST_ERROR_MAX).then_some(per_s)
}

/// Ratio of a measured rate to the forecast from which the forecast is wrong.
const FORECAST_ERROR_MAX: f64 = 1.1;

/// Formats the limit of the subject, the CPUs in the same run, and whether that run is valid.
fn at_edge(edge: &CapacitySearch, colour: bool) -> String {
    let (run, place) = match (&edge.stopped_run, &edge.at_edge) {
        (Some(run), _) if edge.stopped_by.is_some() => (run, "at the level that stopped the search"),
        (_, Some(run)) => (run, "at the edge"),
        _ => return String::new(),
    };
    let mut text = match edge.stopped_by.as_ref().or(run.diagnosis.as_ref()) {
        Some(diagnosis) => diagnosis::format_under_label(diagnosis, "stopped by", false),
        None => String::new(),
    };
    let cpus = |cpus: Option<f64>| cpus.map_or_else(|| "?".to_owned(), |cpus| format!("{cpus:.2}"));
    text.push_str(&format!(
        "cpus         subject {}, generator {:.2}, others {}, of {}, {place}\n",
        cpus(run.cpu.subject_cpus),
        run.cpu.per_core.iter().sum::<f64>() + 0.0,
        cpus(run.cpu.foreign_cpus),
        run.host.cpus
    ));
    text + &summary::verdict(run, colour)
}

#[cfg(test)]
pub(crate) mod contradictions;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use record::capacity_search::{Conclusion, Knee};

    pub(crate) fn edge(conclusion: Conclusion) -> CapacitySearch {
        CapacitySearch {
            schema: record::capacity_search::SCHEMA.to_owned(),
            weir: record::run::WeirVersion { version: String::new(), commit: String::new() },
            command: Vec::new(),
            started_at: String::new(),
            duration_s: 60.0,
            host: record::facts::HostFacts::default(),
            plan: serde_json::Value::Null,
            quantity: "rate".to_owned(),
            baseline: None,
            direct_baseline: None,
            objectives: vec!["p99<5ms".to_owned()],
            conclusion,
            summary: String::new(),
            answer: None,
            decision: None,
            comparison: None,
            ceiling_per_s: None,
            trials: Vec::new(),
            knee: None,
            operating_range: None,
            scaling: None,
            added_latency: Vec::new(),
            notes: Vec::new(),
            stopped_by: None,
            stopped_run: None,
            at_edge: None,
        }
    }

    #[test]
    fn what_was_found_comes_in_a_sentence() {
        let mut search = edge(Conclusion {
            end: SearchEnd::Found,
            level: Some(8240.0),
            upper: Some(8390.0),
            verified: 3,
            verifications: 3,
            ..Conclusion::default()
        });
        let level = Estimate { value: 7900.0, low: 7700.0, high: 8000.0 };
        search.knee = Some(Knee { level, ..Knee::default() });
        search.operating_range = Some((3950.0, 6320.0));
        let figures = ["p99<5ms", "8.24 k/s", "3 of 3", "8.39 k/s", "7.90 k/s", "7.70 k..8.00 k"];
        let after_them = assert_in_order(&result_sentence(&search), &figures);
        assert!(after_them.contains("3.95 k..6.32 k/s"), "{after_them}");
    }

    #[test]
    fn a_ladder_trial_that_missed_is_counted_and_a_wide_interval_is_no_figure() {
        let mut search = edge(Conclusion {
            end: SearchEnd::Found,
            level: Some(1431.0),
            upper: Some(1460.0),
            verified: 3,
            verifications: 3,
            ..Conclusion::default()
        });
        let ladder = |level, outcome| SearchTrial {
            purpose: "ladder".to_owned(),
            level,
            outcome,
            littles_law_holds: true,
            ..SearchTrial::default()
        };
        search.trials = vec![ladder(700.0, LevelOutcome::Held), ladder(1429.0, LevelOutcome::Missed)];
        let wide = Estimate { value: 1290.0, low: 177.0, high: 1500.0 };
        search.knee = Some(Knee { level: wide, ..Knee::default() });
        let sentence = result_sentence(&search);
        assert!(sentence.contains("1.43 k/s (3 of 4 trials") && !sentence.contains("knee"), "{sentence}");
        search.trials[1].outcome = LevelOutcome::Held;
        assert!(result_sentence(&search).contains("3 of 3 long trials"));
    }

    #[test]
    fn a_forecast_agrees_with_the_measured_levels() {
        let mut search = edge(Conclusion::default());
        let narrow = |value: f64| Estimate { value, low: value * 0.9, high: value * 1.1 };
        let law = Scaling {
            alpha: narrow(0.05),
            beta: narrow(0.0004),
            gamma_per_s: narrow(100.0),
            best_connections: Some(Estimate { value: 48.73, low: 45.2, high: 52.1 }),
            best_per_s: Some(900.0),
            measured_max: 64,
            r_squared: 0.99,
            points: Vec::new(),
        };
        let points = [1.0, 8.0, 64.0].map(|connections| (connections, law.law().throughput(connections)));
        let measured = Scaling { points: points.to_vec(), ..law.clone() };
        search.scaling = Some(measured.clone());
        let text = scaling(&search);
        assert!(text.contains("about 49 connections (45 to 52)") && text.contains("with 128"), "{text}");
        search.trials =
            vec![SearchTrial { connections: 128, goodput_per_s: Some(5000.0), ..SearchTrial::default() }];
        assert!(!scaling(&search).contains("with 128"), "{}", scaling(&search));
        let mut wide = measured.clone();
        wide.best_connections = Some(Estimate { value: 21.65, low: 9.0, high: 60.0 });
        search.scaling = Some(wide);
        assert!(!scaling(&search).contains("21"), "{}", scaling(&search));
        search.scaling = Some(Scaling { points: vec![(64.0, 5000.0)], ..measured });
        let text = scaling(&search);
        assert!(text.contains("do not follow") && !text.contains("/s"), "{text}");
    }

    /// Checks that a text has these parts in this order, and returns the rest.
    fn assert_in_order(text: &str, parts: &[&str]) -> String {
        let mut rest = text;
        for part in parts {
            let (_, after) = rest.split_once(part).unwrap_or_else(|| panic!("{part}: {text}"));
            rest = after;
        }
        rest.to_owned()
    }

    #[test]
    fn after_a_drift_only_levels_that_hold_are_reported() {
        let drift = Some("1000 was verified, but at the end only 950 held".to_owned());
        let lower = edge(Conclusion {
            end: SearchEnd::Found,
            level: Some(950.0),
            upper: Some(1000.0),
            verified: 2,
            verifications: 2,
            drift,
            ..Conclusion::default()
        });
        assert_in_order(&result_sentence(&lower), &["p99<5ms", "950/s", "2 of 2", "1.00 k/s"]);
        let drift = "1000 was verified, but at the end not even 815 held";
        let mut none = edge(Conclusion {
            end: SearchEnd::Drifted,
            upper: Some(815.0),
            drift: Some(drift.to_owned()),
            reasons: vec!["p99<5ms was missed: 9.00 ms".to_owned()],
            ..Conclusion::default()
        });
        none.summary = result_sentence(&none);
        assert_in_order(&none.summary, &["p99<5ms", drift]);
        let text = summary(&none, false);
        // A level would have its unit.
        assert!(!text.contains("815/s") && text.matches(drift).count() == 1, "{text}");
    }

    #[test]
    fn a_limited_generator_is_reported_first() {
        let limited = edge(Conclusion {
            end: SearchEnd::GeneratorLimit,
            lower: Some(6000.0),
            limited_at: Some(12_000.0),
            reasons: vec!["client_bound: busy".to_owned()],
            ..Conclusion::default()
        });
        let text = result_sentence(&limited);
        assert!(text.starts_with(limit_kind(&limited.conclusion.reasons)), "{text}");
        assert_in_order(&text, &["12.0 k/s", "6.00 k/s"]);
    }

    #[test]
    fn numbers_have_commas_and_small_ones_digits() {
        let texts = [0.5, 12.25, 99.9, 100.4, 1234.0, 1_234_567.0].map(format_number);
        assert_eq!(texts, ["0.5", "12.25", "99.9", "100", "1,234", "1,234,567"]);
    }
}
