//! What limited a run, as people read it: the verdict first, then why, what else, what next. Reads the
//! record and nothing else.

use lab::confirm::is_testable;
use record::run::{Candidate, Confidence, Confirmation, Diagnosis, Run};

/// Lines of what was ruled out that are shown; the record has them all.
const RULED_OUT_SHOWN: usize = 4;
/// Lines of next limits that are shown.
const NEXT_SHOWN: usize = 3;
/// Width at which sentences are broken.
const WIDTH: usize = 100;
/// Where the text of a line begins.
const MARGIN: usize = 13;

/// The whole diagnosis; empty where there is none. `all` shows every line of it.
pub(crate) fn diagnosis(run: &Run, all: bool) -> String {
    match &run.diagnosis {
        Some(diagnosis) => words(diagnosis, "bottleneck", all) + &watched(run),
        None => String::new(),
    }
}

/// One diagnosis, with the label that it stands under.
pub(crate) fn words(diagnosis: &Diagnosis, label: &str, all: bool) -> String {
    let mut text = head(diagnosis, label);
    for line in &diagnosis.evidence {
        text += &labelled("", &format!("- {line}"));
    }
    for candidate in &diagnosis.also {
        text += &also(candidate, all);
    }
    if !diagnosis.told_apart_by.is_empty() {
        text += &labelled("told apart", &diagnosis.told_apart_by);
    }
    text += &time_split(diagnosis);
    for line in &diagnosis.fingerprints {
        text += &labelled("fingerprint", line);
    }
    text +=
        &list("ruled out", &diagnosis.ruled_out, if all { usize::MAX } else { RULED_OUT_SHOWN });
    if all {
        text += &list("not told", &diagnosis.not_observable, usize::MAX);
    }
    text += &list("next limits", &diagnosis.next_limits, if all { usize::MAX } else { NEXT_SHOWN });
    if !diagnosis.remedy.is_empty() {
        text += &labelled("remedy", &diagnosis.remedy);
    }
    match &diagnosis.confirmation {
        Some(test) => text += &tested(test),
        None if diagnosis.counter_test.is_empty() => {}
        None => text += &labelled("proof", &untested(diagnosis)),
    }
    text
}

/// Where the requests in flight were, and how much of the latency is waiting; empty without either.
fn time_split(diagnosis: &Diagnosis) -> String {
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let mut parts: Vec<String> = Vec::new();
    if let Some(share) = diagnosis.queueing_share {
        parts.push(format!("{} of the latency is waiting", percent(share)));
    }
    let places = diagnosis.time_split.iter();
    parts.extend(places.map(|one| format!("{} {}", percent(one.share), one.place)));
    match parts.is_empty() {
        true => String::new(),
        false => labelled("time", &parts.join("; ")),
    }
}

/// What a counter-test showed.
fn tested(test: &Confirmation) -> String {
    let word = if test.confirmed { "CONFIRMED" } else { "NOT CONFIRMED" };
    let line = format!(
        "{word}: {}; predicted: {}; measured: {}",
        test.perturbation, test.prediction, test.measured
    );
    labelled("confirmed", &line)
}

/// What would prove it, and which command would try that, where one can.
fn untested(diagnosis: &Diagnosis) -> String {
    let hint = match &diagnosis.untested {
        Some(why) => format!(" (not tested: {why})"),
        None if is_testable(&diagnosis.verdict) => {
            " (weir load --confirm would test it)".to_owned()
        }
        None => String::new(),
    };
    format!("{}{hint}", diagnosis.counter_test)
}

fn head(diagnosis: &Diagnosis, label: &str) -> String {
    let confidence = match diagnosis.confidence {
        Confidence::None => String::new(),
        level => format!(" ({level})"),
    };
    labelled(label, &format!("{}{confidence}: {}", diagnosis.verdict, diagnosis.claim))
}

fn also(candidate: &Candidate, all: bool) -> String {
    let mut text = labelled("or", &format!("{} ({})", candidate.verdict, candidate.confidence));
    let shown = if all { usize::MAX } else { 1 };
    for line in candidate.evidence.iter().take(shown) {
        text += &labelled("", &format!("- {line}"));
    }
    text
}

fn list(label: &str, lines: &[String], shown: usize) -> String {
    let mut text = String::new();
    for (place, line) in lines.iter().take(shown).enumerate() {
        text += &labelled(if place == 0 { label } else { "" }, line);
    }
    if lines.len() > shown {
        text += &labelled("", &format!("and {} more in the record", lines.len() - shown));
    }
    text
}

/// What the watching cost, for each machine.
fn watched(run: &Run) -> String {
    let lines = run.observed.iter().map(|seen| {
        let missing = match seen.not_observable.len() {
            0 => String::new(),
            count => format!("; {count} things are not observable on it"),
        };
        let names = match seen.cost_after_s {
            Some(seconds) if seconds >= 0.01 => {
                format!(", and {seconds:.2} s afterwards for names")
            }
            _ => String::new(),
        };
        labelled(
            "watching",
            &format!(
                "{}: {} samples, {} looks at the sockets, {:.2} % of a core{names}{missing}",
                seen.host,
                seen.samples.len(),
                seen.queues.len(),
                seen.cost_cpus * 100.0
            ),
        )
    });
    lines.collect()
}

/// A label and a text behind it, broken into lines.
fn labelled(label: &str, text: &str) -> String {
    let mut lines = String::new();
    let mut line = format!("{label:<MARGIN$}");
    let mut filled = false;
    for word in text.split(' ') {
        if filled && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines += line.trim_end();
            lines.push('\n');
            line = " ".repeat(MARGIN + if text.starts_with("- ") { 2 } else { 0 });
            filled = false;
        }
        if filled {
            line.push(' ');
        }
        line += word;
        filled = true;
    }
    lines + line.trim_end() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_behind_the_margin() {
        let text = labelled("remedy", &"word ".repeat(40));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() > 1 && lines.iter().all(|line| line.chars().count() <= WIDTH));
        assert!(lines[0].starts_with("remedy       word"));
        assert!(lines[1].starts_with("             word"));
    }

    #[test]
    fn a_test_is_offered_where_one_can_be_made_and_was_not() {
        let said = |verdict: &str, confirmation: Option<Confirmation>| {
            let found = Diagnosis {
                verdict: verdict.to_owned(),
                remedy: "mend it".to_owned(),
                counter_test: "it rises".to_owned(),
                confirmation,
                ..Diagnosis::default()
            };
            words(&found, "bottleneck", false)
        };
        let offered = "proof        it rises (weir load --confirm would test it)\n";
        assert!(said("latency_bound", None).ends_with(offered));
        for nothing_to_change in ["packet_loss", "cpu_steal", "run_invalid"] {
            let text = said(nothing_to_change, None);
            assert!(text.ends_with("proof        it rises\n"), "{text}");
        }
        let refused = Diagnosis {
            verdict: "latency_bound".to_owned(),
            counter_test: "it rises".to_owned(),
            untested: Some("it was ended by hand".to_owned()),
            ..Diagnosis::default()
        };
        let text = words(&refused, "bottleneck", false);
        assert!(text.ends_with("it rises (not tested: it was ended by hand)\n"), "{text}");
        let made = said("latency_bound", Some(Confirmation::default()));
        assert!(!made.contains("proof") && made.contains("NOT CONFIRMED"), "{made}");
    }

    #[test]
    fn a_list_says_how_much_of_it_is_not_shown() {
        let lines: Vec<String> = (0..5).map(|number| format!("line {number}")).collect();
        let text = list("next limits", &lines, 3);
        assert!(text.starts_with("next limits  line 0\n             line 1\n"));
        assert!(text.ends_with("and 2 more in the record\n"));
    }
}
