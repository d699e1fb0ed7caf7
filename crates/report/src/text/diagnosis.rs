//! Diagnosis of a run as text: first the verdict, then its evidence, the alternatives and the next
//! limits. Reads only the record.

use diagnose::counter_test::is_testable;
use record::run::{AlternativeVerdict, Confidence, Confirmation, Diagnosis, Run};
use record::units::format_plural;

use super::layout;

/// Maximum number of lines about ruled-out limits; the record has them all.
const RULED_OUT_SHOWN: usize = 4;
/// Maximum number of lines about next limits.
const NEXT_SHOWN: usize = 3;

/// Formats the complete diagnosis; empty where there is none. `all` shows every line of it.
pub fn format_diagnosis(run: &Run, all: bool) -> String {
    match &run.diagnosis {
        Some(diagnosis) => format_under_label(diagnosis, "bottleneck", all) + &observation_cost(run),
        None => String::new(),
    }
}

const TEST_LABEL: &str = "test";

/// Formats the code of the verdict and its confidence, as "subject_limited (likely)"; `None` without a diagnosis.
pub fn verdict_code(run: &Run) -> Option<String> {
    run.diagnosis.as_ref().map(|diagnosis| format!("{}{}", diagnosis.verdict, confidence(diagnosis)))
}

pub fn format_under_label(diagnosis: &Diagnosis, label: &str, all: bool) -> String {
    let mut text = head(diagnosis, label);
    for line in &diagnosis.evidence {
        text += &wrap_labelled("", &format!("- {line}"));
    }
    for candidate in &diagnosis.alternatives {
        text += &other_candidate(candidate, all);
    }
    if !diagnosis.distinguishing_change.is_empty() {
        text += &wrap_labelled("distinguish", &diagnosis.distinguishing_change);
    }
    text += &time_split(diagnosis);
    for line in &diagnosis.fingerprints {
        text += &wrap_labelled("fingerprint", line);
    }
    text += &list("ruled out", &diagnosis.ruled_out, if all { usize::MAX } else { RULED_OUT_SHOWN });
    if all {
        text += &list("not measured", &diagnosis.not_observable, usize::MAX);
    }
    text += &list("next limits", &diagnosis.next_limits, if all { usize::MAX } else { NEXT_SHOWN });
    if !diagnosis.remedy.is_empty() {
        text += &wrap_labelled("remedy", &diagnosis.remedy);
    }
    match &diagnosis.confirmation {
        Some(test) => text += &confirmation_line(test),
        None if diagnosis.counter_test.is_empty() => {}
        None => text += &wrap_labelled("how to test", &counter_test_text(diagnosis)),
    }
    text
}

/// Formats the fraction of waiting in the latency and the locations of the requests in flight;
/// empty without either.
fn time_split(diagnosis: &Diagnosis) -> String {
    let percent = |fraction: f64| format!("{:.0} %", fraction * 100.0);
    let mut parts: Vec<String> = Vec::new();
    if let Some(fraction) = diagnosis.queueing_fraction {
        parts.push(format!("{} of the latency is waiting", percent(fraction)));
    }
    let phases = diagnosis.time_split.iter();
    parts.extend(phases.map(|phase| format!("{} {}", percent(phase.fraction), phase.location)));
    match parts.is_empty() {
        true => String::new(),
        false => wrap_labelled("time", &parts.join("; ")),
    }
}

fn confirmation_line(test: &Confirmation) -> String {
    wrap_labelled(TEST_LABEL, &confirmation_text(test))
}

fn confirmation_text(test: &Confirmation) -> String {
    let word = if test.confirmed { "CONFIRMED" } else { "NOT CONFIRMED" };
    format!("{word}: {}; predicted: {}; measured: {}", test.perturbation, test.prediction, test.measured)
}

/// Formats the counter-test that would prove the verdict, and the command that makes it, where one
/// exists.
fn counter_test_text(diagnosis: &Diagnosis) -> String {
    let hint = match &diagnosis.untested_reason {
        Some(why) => format!(" (not tested: {why})"),
        None if is_testable(&diagnosis.verdict) => " (weir load --confirm would test it)".to_owned(),
        None => String::new(),
    };
    format!("{}{hint}", diagnosis.counter_test)
}

fn head(diagnosis: &Diagnosis, label: &str) -> String {
    let confidence = confidence(diagnosis);
    wrap_labelled(label, &format!("{}{confidence}: {}", diagnosis.verdict, diagnosis.claim))
}

/// Formats the confidence in parentheses; empty without any.
fn confidence(diagnosis: &Diagnosis) -> String {
    match diagnosis.confidence {
        Confidence::None => String::new(),
        level => format!(" ({level})"),
    }
}

fn other_candidate(candidate: &AlternativeVerdict, all: bool) -> String {
    let mut text = wrap_labelled("or", &format!("{} ({})", candidate.verdict, candidate.confidence));
    let shown = if all { usize::MAX } else { 1 };
    for line in candidate.evidence.iter().take(shown) {
        text += &wrap_labelled("", &format!("- {line}"));
    }
    text
}

fn list(label: &str, lines: &[String], lines_max: usize) -> String {
    let mut text = String::new();
    for (index, line) in lines.iter().take(lines_max).enumerate() {
        text += &wrap_labelled(if index == 0 { label } else { "" }, line);
    }
    if lines.len() > lines_max {
        text += &wrap_labelled("", &format!("and {} more in the record", lines.len() - lines_max));
    }
    text
}

fn observation_cost(run: &Run) -> String {
    let lines = run.observed.iter().map(|observed| {
        let missing = match observed.not_observable.len() {
            0 => String::new(),
            count => format!("; {} not observable on it", format_plural(count as u64, "figure")),
        };
        let symbol_cost = match observed.cost_after_s {
            Some(seconds) if seconds >= 0.01 => {
                format!(", and {seconds:.2} s afterwards for names")
            }
            _ => String::new(),
        };
        wrap_labelled(
            "watching",
            &format!(
                "{}: {} of it, {} of its sockets, {:.2} % of a core{symbol_cost}{missing}",
                observed.host,
                format_plural(observed.samples.len() as u64, "sample"),
                observed.queues.len(),
                observed.cost_cpus * 100.0
            ),
        )
    });
    lines.collect()
}

/// Formats a label and its text, broken into the lines of the page.
fn wrap_labelled(label: &str, text: &str) -> String {
    layout::wrap_labelled(label, text, layout::page_width())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_offered_where_one_can_be_made_and_was_not() {
        let format = |verdict: &str, confirmation: Option<Confirmation>| {
            let diagnosis = Diagnosis {
                verdict: verdict.to_owned(),
                remedy: "mend it".to_owned(),
                counter_test: "it rises".to_owned(),
                confirmation,
                ..Diagnosis::default()
            };
            format_under_label(&diagnosis, "bottleneck", false)
        };
        let offered = format("latency_bound", None);
        let (_, hint) = offered.split_once("how to test  it rises").unwrap();
        assert!(hint.contains("weir load --confirm"), "{offered}");
        for nothing_to_change in ["packet_loss", "cpu_steal", "cpu_contended", "run_invalid"] {
            let text = format(nothing_to_change, None);
            assert!(text.ends_with("how to test  it rises\n"), "{text}");
        }
        let refused = Diagnosis {
            verdict: "latency_bound".to_owned(),
            counter_test: "it rises".to_owned(),
            untested_reason: Some("it was ended by hand".to_owned()),
            ..Diagnosis::default()
        };
        let text = format_under_label(&refused, "bottleneck", false);
        let (_, hint) = text.split_once("it rises").unwrap();
        assert!(hint.contains("it was ended by hand") && !hint.contains("--confirm"), "{text}");
        let made = format("latency_bound", Some(Confirmation::default()));
        assert!(!made.contains("how to test") && made.contains("test         NOT CONFIRMED"), "{made}");
    }

    #[test]
    fn a_list_counts_its_hidden_lines() {
        let lines: Vec<String> = (0..5).map(|number| format!("line {number}")).collect();
        let text = list("next limits", &lines, 3);
        assert!(text.starts_with("next limits  line 0\n             line 1\n"));
        let last = text.lines().next_back().unwrap();
        assert!(text.lines().count() == 4 && last.contains(" 2 "), "{text}");
    }
}
