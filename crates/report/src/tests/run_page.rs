//! Tests of the pages of a run and of a search: well-formed, bounded, self-contained, the same bytes every time,
//! with the figures of the record.

use record::capacity_search::{
    CapacitySearch, Conclusion, Decision, Estimate, ExpectedGain, Knee, LevelOutcome, PlannedSize, Proof,
    ProofOutcome, ProposedChange, Scaling, SearchEnd, SearchTrial,
};
use record::run::{
    AlternativeVerdict, Answer, Baseline, Confidence, Confirmation, Diagnosis, Interval, ObjectiveResult,
    Run, TimeFraction,
};
use record::units::{format_duration_ns, format_rate};
use record::validity::{Validity, ValidityLevel, ValidityReason};

use super::check_page;
use crate::synthetic::{MARKUP_NAME, synthetic_run};
use crate::{PageBaseline, RUN_PAGE_BYTES_MAX, RegressionCondition, RunComparison, edge_page, run_page};

/// Returns a run with a diagnosis, an objective, a reason against it, and failures.
pub(super) fn run() -> Run {
    let mut run = synthetic_run();
    run.plan = serde_json::json!({ "connections": 50, "requests": [{ "method": "GET", "url": "http://127.0.0.1:80/a" }] });
    run.rates.offered_per_s = Some(run.rates.responses_per_s * 1.1);
    run.baseline =
        Some(Baseline { good: 100, requests: 100, mean_ns: 1e6, p50_ns: 1_000_000, ..Baseline::default() });
    let text = "p99<1ms".to_owned();
    run.objectives = vec![ObjectiveResult {
        text,
        met: false,
        value: run.latency.last_byte.response.p99_ns as f64,
        validity: None,
    }];
    let reason = |code: &str, text: &str| ValidityReason {
        code: code.to_owned(),
        verdict: ValidityLevel::Suspect,
        text: text.to_owned(),
    };
    run.validity =
        Validity::from_reasons(vec![reason("cpu_contended", "other processes used 1.6 of 2 CPUs")]);
    run.totals.errors.insert("timeout".to_owned(), 12);
    run.intervals[2].errors.insert("timeout".to_owned(), 12);
    run.intervals[5].p99_ns = run.intervals[5].p99_ns.map(|ns| ns * 20);
    let diagnosis = run.diagnosis.as_mut().unwrap();
    diagnosis.queueing_fraction = Some(0.76);
    diagnosis.time_split = vec![TimeFraction { location: "in the subject".to_owned(), fraction: 0.9 }];
    diagnosis.ruled_out =
        vec!["packet_loss: retransmitted segments: 0 % (bound: at least 0.10 %)".to_owned()];
    diagnosis.counter_test = "with twice the connections, requests wait twice as long".to_owned();
    run
}

pub(super) fn page_of(run: &Run) -> String {
    run_page(run, None)
}

fn trial(purpose: &str, level: f64, outcome: LevelOutcome) -> SearchTrial {
    SearchTrial {
        purpose: purpose.to_owned(),
        level,
        outcome,
        responses_per_s: level.min(1300.0),
        p50_ns: 6_000_000 + (level * 1e3) as u64,
        p99_ns: 9_000_000 + (level * level * 40.0) as u64,
        in_flight_mean: level * 0.006,
        ..SearchTrial::default()
    }
}

pub(super) fn search() -> CapacitySearch {
    let mut stopped = run();
    stopped.objectives.clear();
    let mut trials: Vec<SearchTrial> =
        (1..=12).map(|step| trial("ladder", f64::from(step) * 118.0, LevelOutcome::Held)).collect();
    trials.push(trial("grow", 1600.0, LevelOutcome::Missed));
    let estimate = |value: f64| Estimate { value, low: value * 0.9, high: value * 1.1 };
    CapacitySearch {
        schema: record::capacity_search::SCHEMA.to_owned(),
        weir: stopped.weir.clone(),
        command: stopped.command.clone(),
        started_at: stopped.started_at.clone(),
        duration_s: 83.0,
        host: stopped.host.clone(),
        plan: stopped.plan.clone(),
        quantity: "rate".to_owned(),
        baseline: None,
        direct_baseline: None,
        objectives: vec!["errors<0.1%".to_owned(), "p99<=87.0ms".to_owned()],
        conclusion: Conclusion {
            end: SearchEnd::Found,
            level: Some(1292.0),
            upper: Some(1326.0),
            verified: 2,
            verifications: 3,
            reasons: vec!["p99<=87.0ms was missed: 138 ms".to_owned()],
            ..Conclusion::default()
        },
        summary: "holds p99<=87.0ms up to 1.29 k/s".to_owned(),
        answer: Some(Answer {
            what: "Your service carries 1.29 k/s.".to_owned(),
            why: "At 1.33 k/s p99 is 138 ms.".to_owned(),
            next: "Raise its pool.".to_owned(),
        }),
        decision: Some(Decision {
            proof: Proof {
                outcome: ProofOutcome::Confirmed,
                text: "Tested: with twice the connections the throughput was × 1.01: confirmed.".to_owned(),
                tests: Vec::new(),
            },
            change: ProposedChange {
                text: "raise that limit from 8 to 16 requests at a time".to_owned(),
                expected: Some(ExpectedGain {
                    before_per_s: 1_300.0,
                    after_per_s: Estimate { value: 2_600.0, low: 2_400.0, high: 2_700.0 },
                    basis: "each of 16 slots takes 6.15 ms".to_owned(),
                }),
                without_prediction: None,
            },
            target_per_s: Some(2_584.0),
            sizes: vec![PlannedSize { name: "maxconn".to_owned(), value: Some(8.0), text: "8".to_owned() }],
            without_sizes: None,
            prove: "weir edge http://127.0.0.1/ --baseline page.json".to_owned(),
        }),
        comparison: None,
        ceiling_per_s: Some(estimate(1_300.0)),
        trials,
        knee: Some(Knee { level: estimate(1100.0), r_squared: 0.9, points: 12 }),
        operating_range: Some((550.0, 880.0)),
        scaling: Some(Scaling {
            points: vec![(1.0, 160.0), (8.0, 1200.0), (64.0, 1180.0)],
            ..Scaling::default()
        }),
        added_latency: Vec::new(),
        notes: Vec::new(),
        stopped_by: stopped.diagnosis.clone(),
        at_edge: Some(Box::new(stopped.clone())),
        stopped_run: Some(Box::new(stopped)),
    }
}

pub(super) fn edge(search: &CapacitySearch) -> String {
    edge_page(search)
}

pub(super) fn compared(before: &Run, after: &Run) -> String {
    let conditions = RegressionCondition::parse_list("p99>+10%").unwrap();
    let comparison = RunComparison::new(before, after, &conditions);
    let baseline = PageBaseline { name: "old.json".to_owned(), run: before, comparison: &comparison };
    run_page(after, Some(&baseline))
}

/// Checks the requirements for every page of a run.
fn check_run_page(page: &str) {
    check_page(page);
    assert!(page.len() <= RUN_PAGE_BYTES_MAX, "{} bytes", page.len());
    assert!(!page.contains("http-equiv=\"refresh\"") && !page.contains("<iframe"));
    assert!(!page.contains("<script>alert"), "a text became markup");
}

#[test]
fn the_pages_are_well_formed_and_the_same_every_time() {
    let run = run();
    let search = search();
    for page in [page_of(&run), edge(&search), compared(&synthetic_run(), &run)] {
        check_run_page(&page);
    }
    assert_eq!(page_of(&run), page_of(&run));
    assert_eq!(edge(&search), edge(&search));
}

#[test]
fn the_answer_comes_first_with_the_figures_of_the_summary() {
    let run = run();
    let page = page_of(&run);
    let main = page.split_once("<main>").unwrap().1;
    let positions = [
        "class=\"answer\"",
        "MISSED",
        "class=\"tiles\"",
        "id=\"rate\"",
        "use-grid",
        "id=\"findings\"",
        "id=\"bands\"",
        "id=\"percentiles\"",
        "id=\"load\"",
        "id=\"split\"",
        "id=\"cpus\"",
        "id=\"ruled-out\"",
    ];
    let found: Vec<usize> =
        positions.iter().map(|part| main.find(part).unwrap_or_else(|| panic!("{part}"))).collect();
    assert!(found.is_sorted(), "{positions:?}: {found:?}");
    let response = &run.latency.last_byte.response;
    for figure in [
        format_rate(run.goodput_per_s()),
        format_rate(run.rates.offered_per_s.unwrap()),
        format_duration_ns(response.p50_ns),
        format_duration_ns(response.p99_ns),
        format_duration_ns(response.max_ns),
        "76 %".to_owned(),
    ] {
        assert!(main.contains(&figure), "{figure}");
    }
    assert!(!main.to_lowercase().contains("score"), "no score");
}

#[test]
fn a_finding_says_what_when_why_and_what_to_do() {
    let page = page_of(&run());
    let findings = page.split_once("id=\"findings\"").unwrap().1.split_once("id=\"time\"").unwrap().0;
    for part in [
        "Timeout: 12 requests",
        "2 to 3 s",
        "p99 of 1 second is above 3 times",
        "5 to 6 s",
        "weir edge --slo",
        "Cpu contended: other processes",
        "User cpu bound (sure)",
        "To test it: with twice",
    ] {
        assert!(findings.contains(part), "{part}: {findings}");
    }
    let items = findings.matches("class=\"what\"").count();
    assert_eq!(findings.matches("<b>When</b>").count(), items);
}

#[test]
fn a_test_of_the_verdict_is_its_first_proof() {
    let mut run = run();
    run.diagnosis.as_mut().unwrap().confirmation = Some(Confirmation {
        perturbation: "twice the connections".to_owned(),
        prediction: "stays".to_owned(),
        measured: "+1 %".to_owned(),
        confirmed: true,
        ..Confirmation::default()
    });
    assert!(page_of(&run).contains("Confirmed: twice the connections"));
}

#[test]
fn two_runs_are_drawn_over_each_other_with_their_changes() {
    let (before, after) = (synthetic_run(), run());
    let page = compared(&before, &after);
    assert!(
        page.contains("Compared with old.json") && page.contains("95 % interval")
            || page.contains("no interval")
    );
    let bands = page.split_once("id=\"bands\"").unwrap().1.split_once("</figure>").unwrap().0;
    assert!(bands.contains("data-series=\"1\"") && bands.contains(">old.json</button>"), "{bands}");
}

#[test]
fn the_page_of_a_search_has_the_ladder_with_held_level_knee_and_objective() {
    let search = search();
    let page = edge(&search);
    let ladder = page.split_once("id=\"ladder-latency\"").unwrap().1.split_once("</figure>").unwrap().0;
    for part in [">held</text>", ">knee</text>", "objective 87", "missed at 1.33 k/s"] {
        assert!(ladder.contains(part), "{part}");
    }
    assert!(page.contains("1.29 k/s") && page.contains("held in 2 of 3"));
    assert!(page.contains(">Your service carries 1.29 k/s.</h1>") && page.contains("Raise its pool."));
    // An interval wider than a factor of two is no figure.
    let mut vague = search;
    vague.knee = Some(Knee {
        level: Estimate { value: 1300.0, low: 129.0, high: 1400.0 },
        r_squared: 0.6,
        points: 11,
    });
    assert!(!edge(&vague).contains(">knee</text>"));
}

/// Returns the run with texts that a page must not interpret as markup, everywhere in the record.
fn hostile(text: &str) -> Run {
    let mut run = run();
    let text = || text.to_owned();
    run.plan = serde_json::json!({ "requests": [{ "method": text(), "url": text() }, {}] });
    (run.command, run.started_at) = (vec![text(), text()], text());
    (run.host.kernel, run.host.name) = (text(), Some(text()));
    run.weir.version = text();
    run.totals.errors.insert(text(), 1);
    run.intervals[1].errors.insert(text(), 1);
    run.totals.timeouts_by_phase.insert(text(), 1);
    run.generator.lag_kind = text();
    run.objectives[0].text = text();
    let reason = ValidityReason { code: text(), verdict: ValidityLevel::Invalid, text: text() };
    run.validity = Validity::from_reasons(vec![reason]);
    for machine in &mut run.observed {
        machine.host = text();
        machine.roles.iter_mut().for_each(|role| role.command = text());
    }
    let alternative =
        AlternativeVerdict { verdict: text(), evidence: vec![text()], ..AlternativeVerdict::default() };
    run.diagnosis = Some(Diagnosis {
        verdict: text(),
        claim: text(),
        confidence: Confidence::Sure,
        evidence: vec![text()],
        alternatives: vec![alternative],
        ruled_out: vec![text()],
        remedy: text(),
        counter_test: text(),
        fingerprints: vec![text()],
        not_observable: vec![text()],
        time_split: vec![TimeFraction { location: text(), fraction: f64::NAN }],
        queueing_fraction: Some(f64::INFINITY),
        ..Diagnosis::default()
    });
    run
}

#[test]
fn texts_of_a_record_never_become_markup() {
    let run = hostile(MARKUP_NAME);
    let baseline = run.clone();
    let comparison = RunComparison::new(&baseline, &run, &[]);
    let baseline = PageBaseline { name: MARKUP_NAME.to_owned(), run: &baseline, comparison: &comparison };
    check_run_page(&run_page(&run, Some(&baseline)));
    let mut search = search();
    search.stopped_run = Some(Box::new(run.clone()));
    search.stopped_by = run.diagnosis;
    search.summary = MARKUP_NAME.to_owned();
    search.answer = None;
    search.notes = vec![MARKUP_NAME.to_owned()];
    search.quantity = MARKUP_NAME.to_owned();
    search.objectives = vec![MARKUP_NAME.to_owned()];
    search.conclusion.reasons = vec![MARKUP_NAME.to_owned()];
    search.conclusion.drift = Some(MARKUP_NAME.to_owned());
    check_run_page(&edge(&search));
}

#[test]
fn a_day_of_seconds_and_endless_texts_stay_within_the_size() {
    let endless = "x<y ".repeat(20_000);
    let mut run = hostile(&endless);
    let second = run.intervals[3].clone();
    let at = |n: u32| Interval { time_s: f64::from(n + 1), ..second.clone() };
    run.intervals = (0..86_400).map(at).collect();
    for machine in &mut run.observed {
        machine.samples = machine.samples.iter().cycle().take(5_000).cloned().collect();
    }
    let diagnosis = run.diagnosis.as_mut().unwrap();
    diagnosis.ruled_out = vec![endless.clone(); 500];
    diagnosis.not_observable = vec![endless.clone(); 500];
    for index in 0..1_000 {
        run.totals.errors.insert(format!("{index}{endless}"), 1);
    }
    let mut search = search();
    search.trials = search.trials.iter().cycle().take(20_000).cloned().collect();
    search.notes = vec![endless; 500];
    let pages = [compared(&run.clone(), &run), edge(&search)];
    for page in pages {
        check_run_page(&page);
    }
}

#[test]
fn an_empty_record_has_a_page_too() {
    let mut run = run();
    run.intervals.clear();
    run.observed.clear();
    (run.diagnosis, run.baseline) = (None, None);
    run.latency.last_byte.response.hdr.clear();
    run.latency.last_byte.response.count = 0;
    let page = page_of(&run);
    check_run_page(&page);
    assert!(page.contains("weir watch --json"));
    let mut search = search();
    search.trials.clear();
    (search.scaling, search.knee, search.at_edge, search.stopped_run, search.stopped_by) = Default::default();
    check_run_page(&edge(&search));
}

#[test]
fn odd_figures_are_not_drawn() {
    let mut run = run();
    for second in &mut run.intervals {
        (second.length_s, second.time_s) = (f64::NAN, f64::INFINITY);
    }
    for sample in run.observed.iter_mut().flat_map(|machine| &mut machine.samples) {
        sample.time_s = f64::NAN;
        sample.foreign_cpus = Some(f64::INFINITY);
    }
    check_run_page(&page_of(&run));
}

/// Writes the page of a stored record to a file, for a look at it: `WEIR_PAGE=page.html WEIR_PAGE_RECORDS=a.json`.
#[test]
fn a_page_of_stored_records_is_written_to_the_requested_file() {
    let (Some(path), Ok(records)) = (std::env::var_os("WEIR_PAGE"), std::env::var("WEIR_PAGE_RECORDS"))
    else {
        return;
    };
    let read = |name: &str| std::fs::read_to_string(name).unwrap();
    let names: Vec<&str> = records.split(',').collect();
    let page = match serde_json::from_str::<CapacitySearch>(&read(names[0])) {
        Ok(search) => edge(&search),
        Err(_) => {
            let runs: Vec<Run> =
                names.iter().map(|name| serde_json::from_str(&read(name)).unwrap()).collect();
            if runs.len() > 1 { compared(&runs[0], &runs[1]) } else { page_of(&runs[0]) }
        }
    };
    std::fs::write(path, page).unwrap();
}
