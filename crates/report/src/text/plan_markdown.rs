//! Markdown form of a plan: tables of the inputs, of the figures of each section and of the verification, and
//! the findings.

use plan::inputs::format_input;
use plan::sizing::Sizing;
use plan::verification::{TOLERANCE, Verification};
use record::units::{format_plural, format_rate};

use super::plan::format_count;

pub fn format_markdown(sizing: &Sizing, verification: Option<&Verification>) -> String {
    let mut text =
        String::from("# Capacity plan\n\n## Inputs\n\n| Input | Value | Source |\n| --- | --- | --- |\n");
    for input in &sizing.inputs {
        row(&mut text, &[input.name, &format_input(input.name, &input.given.value), &input.given.source]);
    }
    let mut section = "";
    for figure in &sizing.figures {
        if section != figure.section {
            section = figure.section;
            text.push_str(&format!("\n## Sizes: {section}\n\n| Size | Value | Formula | With values |\n"));
            text.push_str("| --- | --- | --- | --- |\n");
        }
        row(&mut text, &[figure.name, &figure.value_text(), figure.formula, &figure.computed]);
    }
    text.push_str("\n## Findings\n\n");
    if sizing.findings.is_empty() {
        text.push_str("None.\n");
    }
    for finding in &sizing.findings {
        let severity = format!("{:?}", finding.severity).to_lowercase();
        text.push_str(&format!("- **{severity}** `{}`: {}\n", finding.code, escape(&finding.text)));
    }
    if let Some(verification) = verification {
        push_verification(&mut text, verification);
    }
    text
}

fn push_verification(text: &mut String, verification: &Verification) {
    let plan = &verification.plan;
    text.push_str(&format!(
        "\n## Verification\n\nRun with {} and {} of {}, {:.2} ms of service alone and {:.2} ms with all slots \
         busy, and a stall of {:.1} s ({:.0} % of the plan). A prediction holds within {:.0} %.\n\n",
        format_rate(plan.rate_per_s),
        format_plural(plan.servers, "server"),
        format_plural(plan.maxconn, "slot"),
        plan.service_s * 1e3,
        plan.loaded_service_s * 1e3,
        plan.stall_s,
        plan.scale * 100.0,
        TOLERANCE * 100.0
    ));
    text.push_str(
        "| Figure | Unit | Predicted | Measured | Ratio | Holds |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for comparison in &verification.comparisons {
        let holds = match comparison.holds {
            Some(true) => "yes",
            Some(false) => "no",
            None => "",
        };
        let measured = match comparison.not_observable {
            Some(why) => why.to_owned(),
            None => comparison.measured.map(format_count).unwrap_or_default(),
        };
        let ratio = comparison.ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
        row(
            text,
            &[
                comparison.name,
                comparison.unit,
                &format_count(comparison.predicted),
                &measured,
                &ratio,
                holds,
            ],
        );
    }
}

fn row(text: &mut String, cells: &[&str]) {
    let cells: Vec<String> = cells.iter().map(|cell| escape(cell)).collect();
    text.push_str(&format!("| {} |\n", cells.join(" | ")));
}

/// Escapes the separator of cells, and characters that Markdown would format.
fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('*', "\\*").replace('<', "&lt;").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use plan::inputs::Inputs;

    use super::*;

    #[test]
    fn every_figure_has_a_row_of_four_cells() {
        let mut inputs = Inputs::default();
        for (name, text) in
            [("rate", "1k"), ("service", "20ms"), ("servers", "2"), ("maxconn", "30"), ("slo", "p99<1s")]
        {
            inputs.give_texts(name, &[text.to_owned()], "flag").unwrap();
        }
        let sizing = Sizing::compute(&inputs);
        let text = format_markdown(&sizing, None);
        for figure in &sizing.figures {
            let head = format!("| {} | ", figure.name);
            let line = text.lines().find(|line| line.starts_with(&head)).unwrap();
            assert_eq!(line.matches(" | ").count(), 3, "{line}");
        }
        assert!(text.contains("rate \\* service") && text.contains("## Findings"), "{text}");
    }
}
