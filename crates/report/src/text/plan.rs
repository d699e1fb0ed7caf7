//! Text form of a plan, as wide as the page: the inputs with their sources, the figures with their formulas, the
//! findings.

use crate::text::answer::format_answer;
use crate::text::layout::{page_width, wrap};
use crate::text::table::table;
use diagnose::Ceiling;
use plan::finding::Severity;
use plan::inputs::format_input;
use plan::sizing::Sizing;
use plan::verification::{TOLERANCE, Verification};
use record::run::Answer;
use record::units::{format_plural, format_rate, round_to_digits};

const NAME: usize = 26;
const VALUE: usize = 12;

/// Returns the answer of a plan: what it needs, why, and the values to set. `None` without a rate and a service time.
fn plan_answer(sizing: &Sizing, ceiling: Option<Ceiling>) -> Option<Answer> {
    let figure = |name: &str| sizing.figures.iter().rfind(|figure| figure.name == name);
    let text = |name: &str| figure(name).map(|figure| figure.value_text());
    let limit = ceiling.map_or_else(String::new, |ceiling| {
        let slots = ceiling.slots.map_or_else(String::new, |slots| format!(", {slots:.0} at a time"));
        format!("This load was at the limit of its server: {}{slots}. ", format_rate(ceiling.rate_per_s))
    });
    let rate = sizing.inputs.iter().find(|input| input.name == "rate")?;
    let servers = figure("servers-needed")?.value;
    let what = format!(
        "{limit}{} needs {} of {}, spare ones included.",
        format_input("rate", &rate.given.value),
        format_plural(servers as u64, "server"),
        text("maxconn").map_or_else(|| "the given slots".to_owned(), |text| slots(&text))
    );
    let waits = match text("mean-wait") {
        Some(wait) if wait != "never" => format!("; a request waits {wait} on average"),
        _ => "; that is more than they carry, so requests queue without end".to_owned(),
    };
    let why = format!(
        "Its requests occupy {} at a time, {} of those in this plan{waits}.",
        slots(&text("busy-slots")?),
        text("utilisation-of-slots")?
    );
    let next = match sizing.findings.iter().find(|finding| finding.severity < Severity::Note) {
        Some(finding) => format!("First mend `{}`: {}.", finding.code, finding.text.trim_end_matches('.')),
        None => {
            let limits = ["maxconn", "queue-limit", "queue-timeout"];
            let limits = limits.iter().filter_map(|name| Some(format!("{name} {}", text(name)?)));
            format!("Set {} (`--config haproxy` writes them).", limits.collect::<Vec<_>>().join(", "))
        }
    };
    Some(Answer { what, why, next })
}

fn slots(number: &str) -> String {
    format!("{number} slot{}", if number == "1" { "" } else { "s" })
}

/// Formats a plan, the answer first; with `-v` each figure has its formula by names. `ceiling` is the limit of a
/// load whose record was given.
pub fn format_plan(sizing: &Sizing, ceiling: Option<Ceiling>, is_verbose: bool) -> String {
    let answer = plan_answer(sizing, ceiling).map(|answer| format_answer(&answer));
    let mut lines: Vec<String> = answer.iter().flat_map(|text| text.lines()).map(ToOwned::to_owned).collect();
    lines.extend(answer.map(|_| String::new()));
    lines.push("inputs".to_owned());
    for input in &sizing.inputs {
        let value = format_input(input.name, &input.given.value);
        lines.extend(row(input.name, &value, &input.given.source));
    }
    let mut section = "";
    for figure in &sizing.figures {
        if section != figure.section {
            section = figure.section;
            lines.push(String::new());
            lines.push(section.to_owned());
        }
        let value = figure.value_text();
        lines.extend(row(figure.name, &value, &format!("= {}", figure.computed)));
        if is_verbose {
            lines.extend(row("", "", figure.formula));
        }
    }
    lines.push(String::new());
    lines.push("findings".to_owned());
    if sizing.findings.is_empty() {
        lines.push("  none".to_owned());
    }
    for finding in &sizing.findings {
        let severity = format!("{:?}", finding.severity).to_lowercase();
        let text = format!("{}: {}", finding.code, finding.text);
        let mut first = format!("  {severity:<8} ");
        for part in wrap(&text, page_width() - 11) {
            lines.push(first + &part);
            first = " ".repeat(11);
        }
    }
    if !is_verbose {
        lines.push("-v shows the formulas with their names".to_owned());
    }
    lines.iter().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Formats the plan that was run, and predictions beside measurements.
pub fn format_verification(verification: &Verification) -> String {
    let plan = &verification.plan;
    let scale = match plan.scale {
        scale if scale < 0.999 => format!(", scaled to {:.1} % of the plan", scale * 100.0),
        _ => String::new(),
    };
    let mut rows = vec![["verification", "predicted", "measured", "ratio", ""].map(str::to_owned).to_vec()];
    for comparison in &verification.comparisons {
        let value = |value: f64| match comparison.unit {
            "1/s" => format_rate(value),
            "s" if value.is_infinite() => "never".to_owned(),
            "s" => format!("{value:.2} s"),
            _ => format_count(value),
        };
        let verdict = match comparison.holds {
            Some(true) => "holds",
            Some(false) => "is off",
            None => "no measurement",
        };
        rows.push(vec![
            format!("  {}", comparison.name),
            value(comparison.predicted),
            comparison.measured.map_or_else(|| "-".to_owned(), value),
            comparison.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
            verdict.to_owned(),
        ]);
    }
    let missing = verification.comparisons.iter().filter_map(|comparison| {
        let why = comparison.not_observable?;
        let lines = wrap(&format!("{}: {why}", comparison.name), page_width() - 4);
        Some(format!("  {}\n", lines.join("\n    ")))
    });
    let missing: String = missing.collect();
    format!(
        "\n{}  run: {} with {} x {} of {:.2} ms (planned {:.2} ms), stall {:.1} s{scale}\n  a prediction holds within {:.0} %\n{missing}",
        table(&rows),
        format_rate(plan.rate_per_s),
        format_plural(plan.servers, "server"),
        plan.maxconn,
        plan.service_s * 1e3,
        plan.delay_s * 1e3,
        plan.stall_s,
        TOLERANCE * 100.0
    )
}

/// Formats a mean of requests with four digits.
pub(super) fn format_count(value: f64) -> String {
    // A rounded value may have no exact form: 15.450000000000001.
    let text = format!("{:.4}", round_to_digits(value, 4));
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Formats a name, its value and a text, which continues on further lines.
fn row(name: &str, value: &str, text: &str) -> Vec<String> {
    let start = format!("  {name:<NAME$}{value:>VALUE$}  ");
    let indent = " ".repeat(start.chars().count().min(NAME + VALUE + 4));
    let parts = wrap(text, page_width().max(60) - (NAME + VALUE + 4));
    parts
        .iter()
        .enumerate()
        .map(|(index, part)| if index == 0 { format!("{start}{part}") } else { format!("{indent}{part}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use plan::inputs::Inputs;

    use super::*;

    #[test]
    fn counts_have_four_digits() {
        let counts = [15.45, 0.0, 2.0, 20_003.6, 0.001_234_5].map(format_count);
        assert_eq!(counts, ["15.45", "0", "2", "20000", "0.0012"]);
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let mut inputs = Inputs::default();
        for (name, text) in
            [("rate", "1k"), ("service", "20ms"), ("servers", "2"), ("maxconn", "10"), ("slo", "p99<1s")]
        {
            inputs.give_texts(name, &[text.to_owned()], "flag").unwrap();
        }
        let sizing = Sizing::compute(&inputs);
        for is_verbose in [false, true] {
            let text = format_plan(&sizing, None, is_verbose);
            assert!(
                text.lines().all(|line| line.chars().count() <= page_width() && !line.contains('…')),
                "{text}"
            );
            assert!(text.starts_with("what  ") && text.contains("First mend `"), "{text}");
            assert!(text.contains("never") && text.contains("overloaded"), "{text}");
        }
    }
}
