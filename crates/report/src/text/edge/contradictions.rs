//! Checker of the printed page of a search: figures that appear twice are equal, and claims agree with the tables.

use record::capacity_search::{
    ComparedLevel, Conclusion, Decision, ExpectedGain, Knee, PlannedSize, ProofOutcome, SearchComparison,
};
use record::run::{Baseline, Confirmation, Diagnosis, Run};

use super::*;
use crate::text::summary::tests::intervals;

fn contradictions(page: &str, search: &CapacitySearch) -> Vec<String> {
    let mut found = Vec::new();
    let mut check = |holds: bool, what: &str| found.extend((!holds).then(|| what.to_owned()));
    for wrong in ["…", "NaN", "inf ", "{}", " .\n", ";.", "-0 ", "0000000"] {
        check(!page.contains(wrong), &format!("the page contains {wrong:?}"));
    }
    let rows = labelled(page);
    let line =
        |label: &str| rows.iter().find(|(name, _)| name == label).map_or("", |(_, text)| text.as_str());
    for label in ["what", "why", "next"] {
        check(line(label).ends_with('.'), &format!("{label} is no sentence"));
    }
    check(!line("what").contains("  "), "spaces");
    // The proof, the answer and the row of the test say the same.
    let proof = line("proof");
    for (word, outcome) in [("confirmed", ": confirmed."), ("refuted", "that refutes")] {
        check(proof.starts_with(word) == line("why").contains(outcome), &format!("{word}: proof and answer"));
    }
    let factor = |text: &str| {
        text.split("throughput was × ").nth(1)?.split([',', ':', ' ', '.']).next().map(str::to_owned)
    };
    if !proof.is_empty() && !proof.starts_with("not tested") {
        check(factor(proof) == factor(line("why")), "effect of the test");
        check(!page.contains("Not tested"), "tested and not tested");
    }
    // The rate without the change is the ceiling of the answer, and the factor is that of both rates.
    let change = line("change");
    let gain = search.decision.as_ref().and_then(|decision| decision.change.expected.as_ref());
    if let Some(gain) = gain {
        let before = change.split(": from ").nth(1).and_then(|rest| rest.split(" to about ").next());
        let ceiling = ceiling_of(line("what"));
        check(
            ceiling.is_none() || before == ceiling.as_deref(),
            &format!("rate before the change: {before:?}, {ceiling:?}"),
        );
        check(
            change.contains(&format!("× {:.2}", gain.after_per_s.value / gain.before_per_s)),
            "factor of the gain",
        );
        let Estimate { value, low, high } = gain.after_per_s;
        check(low <= value * 1.001 && value <= high * 1.001, "range of the gain");
    }
    check(gain.is_some() || !change.contains("× "), "a gain without a figure");
    // Sizes are those of the decision.
    if let Some(target) = search.decision.as_ref().and_then(|decision| decision.target_per_s)
        && !line("sizes").starts_with("none")
    {
        check(line("sizes").starts_with(&format!("for {}", format_rate(target))), "target of the sizes");
    }
    check_levels(line("what"), search, &mut check);
    if let Some(comparison) = &search.comparison {
        let compared = line("compared");
        for level in comparison.ceiling.iter().chain(&comparison.level) {
            let both = format!("{} -> {}", format_rate(level.before), format_rate(level.after));
            check(compared.contains(&both), &format!("compared rates {both}: {compared}"));
            let Estimate { value, low, high } = level.factor;
            check(low <= value && value <= high, "factor of a comparison");
        }
        if let (Some(after), Some(ceiling)) = (comparison.ceiling, ceiling_of(line("what"))) {
            check(format_rate(after.after) == ceiling, "full load of the comparison and the answer");
        }
    }
    check(
        line("searched").starts_with(&format_plural(search.trials.len() as u64, "trial")),
        "number of trials",
    );
    let wide = intervals::wide_intervals(page);
    check(wide.is_empty(), &format!("wide intervals: {wide:?}"));
    found
}

/// Checks the held and the missed level against the ladder, and against the ceiling.
fn check_levels(what: &str, search: &CapacitySearch, check: &mut impl FnMut(bool, &str)) {
    let conclusion = &search.conclusion;
    for maximum in
        [" is its ceiling", " is their ceiling", " is what this machine can send", " through and no more"]
    {
        let held = conclusion.level.or(conclusion.lower).unwrap_or_default();
        let run = search.stopped_run.as_ref().or(search.at_edge.as_ref());
        let is_above = run.is_none_or(|run| run.goodput_per_s() > held);
        check(is_above || !what.contains(maximum), &format!("holds {held}, more than `{maximum}`"));
    }
    if conclusion.end != SearchEnd::Found || search.quantity != "rate" {
        return;
    }
    let held = conclusion.level.unwrap_or_default();
    check(what.contains(&format!("up to {}", format_rate(held))), "held level");
    if let Some(upper) = conclusion.upper {
        check(what.contains(&format!("missed at {}", format_rate(upper))) && upper >= held, "missed level");
    }
    let is_missed = |trial: &&SearchTrial| trial.purpose == "ladder" && trial.outcome == LevelOutcome::Missed;
    let missed_below = search.trials.iter().filter(is_missed).any(|trial| trial.level <= held);
    check(!missed_below || what.contains("at the limit"), "a missed row below the held level");
    if let Some(ceiling) = what.split(" is its ceiling").next().filter(|_| what.contains(" is its ceiling")) {
        let ceiling = ceiling.split(": ").last().unwrap_or_default();
        let run = search.stopped_run.as_ref().or(search.at_edge.as_ref());
        let rate = run.map_or(f64::INFINITY, |run| run.goodput_per_s());
        check(rate > held, &format!("holds {held}, above its ceiling {ceiling}"));
    }
}

/// Returns the rate that an answer names as the ceiling, or at full load.
fn ceiling_of(what: &str) -> Option<String> {
    let (before, _) =
        what.split_once(" is its ceiling").or_else(|| what.split_once(" is what it carries at full load"))?;
    Some(before.rsplit(": ").next()?.to_owned())
}

/// Joins the lines of each label.
fn labelled(page: &str) -> Vec<(String, String)> {
    let mut joined: Vec<(String, String)> = Vec::new();
    for line in page.lines() {
        let at = line.char_indices().nth(13).map_or(line.len(), |(at, _)| at);
        let (label, text) = (line[..at].trim(), line[at..].trim());
        match joined.last_mut() {
            Some((_, before)) if label.is_empty() && !text.is_empty() => *before = format!("{before} {text}"),
            _ => joined.push((label.to_owned(), text.to_owned())),
        }
    }
    joined
}

fn around(value: f64, spread: f64) -> Estimate {
    Estimate { value, low: value / spread, high: value * spread }
}

/// Returns a run at the limit of so many slots of 5 ms.
fn run_at_limit(slots: f64, code: &str) -> Run {
    let rate = slots / 0.005;
    let latency_ns = 64.0 / rate * 1e9;
    let text = include_str!("../../../../../fuzz/corpus/run_record/run.json");
    let mut run: Run = serde_json::from_str(text).unwrap();
    let mut latency = run.latency.last_byte.service.clone();
    latency.mean_ns = latency_ns;
    (latency.p50_ns, latency.p99_ns) = (latency_ns as u64, latency_ns as u64);
    run.latency.last_byte.response = latency.clone();
    run.latency.last_byte.service = latency;
    let good = (rate * 10.0) as u64;
    run.totals.good = Some(good);
    run.totals.bad = Some(0);
    run.totals.errors.clear();
    (run.totals.requests, run.totals.responses) = (good, good);
    run.totals.connections.requested = 64;
    run.rates.goodput_per_s = Some(rate);
    run.rates.responses_per_s = rate;
    run.rates.offered_per_s = None;
    run.generator.in_flight_mean = 64.0;
    run.baseline = Some(Baseline { good: 90, mean_ns: 5e6, p50_ns: 5_000_000, ..Baseline::default() });
    run.diagnosis =
        Some(Diagnosis { verdict: code.to_owned(), claim: "a claim".to_owned(), ..Diagnosis::default() });
    run
}

/// Returns searches with different figures and outcomes: each verdict, each end, with a test and without.
pub(crate) fn generated_searches() -> Vec<CapacitySearch> {
    let codes: Vec<&str> =
        diagnose::verdicts::VERDICTS.iter().map(|rule| rule.code).chain(["none", "unknown"]).collect();
    let ends = [
        SearchEnd::Found,
        SearchEnd::MaxLevel,
        SearchEnd::BelowLowest,
        SearchEnd::GeneratorLimit,
        SearchEnd::NotVerified,
        SearchEnd::Drifted,
        SearchEnd::Stopped,
    ];
    let mut searches = Vec::new();
    for (number, code) in codes.iter().cycle().take(210).enumerate() {
        let slots = 1.0 + (number % 40) as f64;
        let mut run = run_at_limit(slots, code);
        let rate = run.goodput_per_s();
        let held = rate * [0.9, 0.97, 1.01][number % 3];
        let mut search = tests::edge(Conclusion {
            end: if number.is_multiple_of(2) { SearchEnd::Found } else { ends[number % 7] },
            level: Some(held),
            lower: Some(held),
            upper: Some(held * 1.03),
            verified: 3,
            verifications: 3,
            limited_at: Some(held * 1.1),
            reasons: vec!["p99<5ms was missed: 9.00 ms".to_owned()],
            ..Conclusion::default()
        });
        search.command = ["weir", "edge", "--slo", "p99<5ms", "http://h/"].map(str::to_owned).to_vec();
        search.plan = run.plan.clone();
        let ladder = |level: f64| SearchTrial {
            purpose: "ladder".to_owned(),
            level,
            goodput_per_s: Some(level.min(rate)),
            outcome: if level > held { LevelOutcome::Missed } else { LevelOutcome::Held },
            littles_law_holds: true,
            ..SearchTrial::default()
        };
        search.trials = [0.3, 0.6, 0.95, 1.0, 1.1].map(|part| ladder(held * part)).to_vec();
        if number.is_multiple_of(5) {
            search.trials[2].outcome = LevelOutcome::Missed;
        }
        search.knee = Some(Knee { level: around(held * 0.9, [1.1, 1.6][number % 2]), ..Knee::default() });
        search.operating_range = Some((held * 0.5, held * 0.8));
        let confirmed = number % 3 != 2;
        if number.is_multiple_of(4) {
            run.diagnosis.as_mut().unwrap().untested_reason = Some("--quick makes no test".to_owned());
        } else {
            run.diagnosis.as_mut().unwrap().confirmation = Some(Confirmation {
                verdict: (*code).to_owned(),
                perturbation: "twice the connections".to_owned(),
                measured: format!("throughput × {:.2} (0.96..1.03): 1.4 k", 0.9 + slots / 100.0),
                confirmed,
                ..Confirmation::default()
            });
        }
        search.ceiling_per_s = Some(Estimate { value: rate, low: rate * 0.95, high: rate * 1.02 });
        search.stopped_by.clone_from(&run.diagnosis);
        search.stopped_run = Some(Box::new(run));
        search.summary = result_sentence(&search);
        search.answer = Some(answer(&search));
        let mut decision = diagnose::decide(&search, Vec::new(), Some("a.json"));
        // The records have no server whose CPU could be known.
        let is_limited =
            diagnose::verdicts::find_rule(code).is_some() && search.conclusion.end == SearchEnd::Found;
        if is_limited && decision.change.expected.is_none() {
            let after_per_s = around(rate * (1.2 + (number % 7) as f64), [1.1, 1.4][number % 2]);
            let basis = "each of 16 slots takes 5.00 ms".to_owned();
            decision.change.expected = Some(ExpectedGain { before_per_s: rate, after_per_s, basis });
            decision.change.without_prediction = None;
        }
        decision.target_per_s = (!number.is_multiple_of(6)).then_some(held * 2.0);
        decision.sizes =
            vec![PlannedSize { name: "maxconn".to_owned(), value: Some(slots), text: format!("{slots}") }];
        search.decision = Some(decision);
        let compared = |after: f64, spread: f64| ComparedLevel {
            before: after / 1.4,
            after,
            factor: around(1.4, spread),
        };
        search.comparison = (!number.is_multiple_of(3)).then(|| SearchComparison {
            baseline: "before.json".to_owned(),
            ceiling: (!number.is_multiple_of(4)).then(|| compared(rate, [1.05, 1.2, 1.7][number % 3])),
            level: Some(compared(held, 1.1)),
            predicted_factor: Some(around(1.5, [1.1, 1.6][number % 2])),
            plan_differences: Vec::new(),
        });
        searches.push(search);
    }
    searches
}

/// Returns the records of searches in a directory, if one is given.
fn stored_searches() -> Vec<CapacitySearch> {
    let directory = std::env::var_os("WEIR_STORED_RECORDS").map(std::fs::read_dir);
    let files = directory.into_iter().flatten().flatten().map(|entry| entry.unwrap().path());
    let read = |file: std::path::PathBuf| record::capacity_search::read_search(&file).ok();
    files.filter_map(read).collect()
}

/// Computes the texts of a stored record again, as this version writes them.
fn renewed(mut search: CapacitySearch) -> CapacitySearch {
    if let (Some(ceiling), Some(run)) = (&mut search.ceiling_per_s, &search.stopped_run) {
        ceiling.value = run.goodput_per_s();
    }
    search.summary = result_sentence(&search);
    search.answer = Some(answer(&search));
    if let Some(decision) = &mut search.decision {
        let tests = decision.proof.tests.clone();
        let Decision { proof, change, .. } = diagnose::decide(&search, tests, Some("a.json"));
        let decision = search.decision.as_mut().unwrap();
        (decision.proof, decision.change) = (proof, change);
    }
    // Those of an older version have other full loads.
    search.comparison = None;
    search
}

#[test]
fn no_page_of_a_search_contradicts_itself() {
    let stored = stored_searches().into_iter().map(renewed);
    let mut pages = 0;
    for search in generated_searches().into_iter().chain(stored) {
        let text = summary(&search, false);
        let found = contradictions(&text, &search);
        assert!(found.is_empty(), "{found:?}\n{text}");
        pages += 1;
    }
    assert!(pages >= 210, "{pages}");
}

#[test]
fn the_checker_of_searches_finds_contradictions() {
    let all = generated_searches();
    let with_gain = |search: &&CapacitySearch| {
        let decision = search.decision.as_ref().unwrap();
        let is_limit = search.stopped_by.as_ref().is_some_and(|limit| limit.verdict == "subject_limited");
        is_limit
            && decision.change.expected.is_some()
            && decision.proof.outcome == ProofOutcome::Confirmed
            && search.conclusion.end == SearchEnd::Found
            && search.comparison.is_some()
    };
    let search = all.iter().find(with_gain).expect("a search with a gain");
    let text = summary(search, false);
    assert_eq!(contradictions(&text, search), Vec::<String>::new());
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let before = words.split(": from ").nth(1).unwrap().split(" to about").next().unwrap();
    for (from, to) in [
        (format!("from {before}"), "from 1.23 k/s".to_owned()),
        ("proof        confirmed".to_owned(), "proof        refuted".to_owned()),
        ("throughput was × ".to_owned(), "throughput was × 9".to_owned()),
        ("searched     5 trials".to_owned(), "searched     7 trials".to_owned()),
        ("sizes        for ".to_owned(), "sizes        for 7".to_owned()),
        (" -> ".to_owned(), " -> 9".to_owned()),
        ("missed at ".to_owned(), "missed at 1".to_owned()),
    ] {
        let wrong = text.replacen(&from, &to, 1);
        assert_ne!(wrong, text, "{from}: {text}");
        assert!(!contradictions(&wrong, search).is_empty(), "{from}: {wrong}");
    }
}
