//! Self-test results as Markdown: the matrices, by set and part, and the reliability table; and a
//! document with marked positions for them. No I/O.

use record::units::format_plural;
use std::collections::BTreeMap;

use record::sorted::sort_by;

use crate::cases::CaseSet;
use crate::matrix::{MatrixRow, SelfTest};
use crate::outcome::CaseOutcome;
use crate::reliability::{ConfidenceReliability, reliability_levels};

/// Returns the sections of a self-test: the name of each, and its Markdown.
pub fn sections(result: &SelfTest) -> Vec<(String, String)> {
    let mut by_place: BTreeMap<String, Vec<CaseOutcome>> = BTreeMap::new();
    for outcome in &result.outcomes {
        let part = outcome.part.map(|part| format!("-{}", part.name())).unwrap_or_default();
        let key = format!("{}{part}", outcome.set);
        by_place.entry(key).or_default().push(outcome.clone());
    }
    let format_section = |(name, outcomes): (String, Vec<CaseOutcome>)| {
        let set = outcomes.first().map(|outcome| outcome.set.clone()).unwrap_or_default();
        let part = SelfTest { outcomes, set, ..SelfTest::default() }.with_summaries();
        (name, matrix_table(&part))
    };
    let mut sections: Vec<(String, String)> = by_place.into_iter().map(format_section).collect();
    sections.push(("reliability".to_owned(), reliability_table(&reliability_levels(&result.outcomes))));
    sections
}

fn matrix_table(part: &SelfTest) -> String {
    let sum = |count: fn(&MatrixRow) -> u32| part.verdicts.iter().map(count).sum::<u32>();
    let mut text = format!(
        "{} of {}: {} with a right verdict first, {} wrong and sure, {} failed.",
        format_plural(u64::from(sum(|row| row.runs)), "run"),
        format_plural(part.cases.len() as u64, "case"),
        sum(|row| row.right),
        part.wrong_sure,
        part.failed
    );
    if part.both.0 > 0 {
        text.push_str(&format!(
            " Of {} of two causes {} reported both.",
            format_plural(u64::from(part.both.0), "run"),
            part.both.1
        ));
    }
    text.push_str("\n\n| Right verdict | Runs | Right | Reported first |\n| --- | ---: | ---: | --- |\n");
    write_rows(&part.verdicts, &mut text);
    // Only for cases of one set: the rows of the other set are by verdict already.
    if CaseSet::from_name(&part.set) == Some(CaseSet::Foreign) {
        text.push_str("\n| Case | Runs | Right | Reported first |\n| --- | ---: | ---: | --- |\n");
        write_rows(&part.cases, &mut text);
    }
    text
}

fn write_rows(rows: &[MatrixRow], text: &mut String) {
    for row in rows {
        let mut reported: Vec<(&String, &u32)> = row.reported.iter().collect();
        sort_by(&mut reported, |left, right| right.1.cmp(left.1).then(left.0.cmp(right.0)));
        let mut reported: Vec<String> =
            reported.iter().map(|(verdict, runs)| format!("`{verdict}` {runs}")).collect();
        if row.failed > 0 {
            reported.push(format!("failed {}", row.failed));
        }
        text.push_str(&format!(
            "| `{}` | {} | {:.0} % | {} |\n",
            row.induced,
            row.runs,
            row.right_fraction * 100.0,
            reported.join(", ")
        ));
    }
}

fn reliability_table(levels: &[ConfidenceReliability]) -> String {
    let mut text = "| Claimed | Runs | Right | Share | 95 % interval |\n\
                    | --- | ---: | ---: | ---: | --- |\n"
        .to_owned();
    for level in levels {
        text.push_str(&format!(
            "| {} | {} | {} | {:.0} % | {:.0} % to {:.0} % |\n",
            level.claimed,
            level.runs,
            level.right,
            level.right_fraction * 100.0,
            level.low * 100.0,
            level.high * 100.0
        ));
    }
    text
}

fn begin_marker(name: &str) -> String {
    format!("<!-- begin selftest {name} -->\n")
}

const END_MARKER: &str = "<!-- end selftest -->";

/// Returns a document with each section at its marked position; `None` if it has no marks. A
/// position without a section stays unchanged.
pub fn fill_sections(document: &str, sections: &[(String, String)]) -> Option<String> {
    let mut text = document.to_owned();
    let mut is_marked = false;
    for (name, section) in sections {
        let begin = begin_marker(name);
        let Some(from) = text.find(&begin).map(|at| at + begin.len()) else { continue };
        let Some(to) = text[from..].find(END_MARKER).map(|at| from + at) else { continue };
        text.replace_range(from..to, &format!("\n{section}\n"));
        is_marked = true;
    }
    is_marked.then_some(text)
}

pub fn document(sections: &[(String, String)]) -> String {
    let mut text = "# Results of `weir lab selftest`\n".to_owned();
    for (name, section) in sections {
        text.push_str(&format!("\n## {name}\n\n{}\n{section}\n{END_MARKER}\n", begin_marker(name)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::case_part::CasePart;
    use super::*;

    fn result() -> SelfTest {
        let outcome = |case: &str, part, reported: Option<&str>| CaseOutcome {
            case: case.to_owned(),
            induced: "link_bound".to_owned(),
            kind: "two causes".to_owned(),
            right: vec!["link_bound".to_owned(), "bufferbloat".to_owned()],
            set: "foreign".to_owned(),
            part: Some(part),
            reported: reported.map(str::to_owned),
            also: vec!["link_bound".to_owned()],
            confidence: Some("likely".to_owned()),
            ..CaseOutcome::default()
        };
        let outcomes = vec![
            outcome("a", CasePart::Development, Some("bufferbloat")),
            outcome("a", CasePart::Development, None),
            outcome("b", CasePart::HeldOut, Some("link_bound")),
        ];
        SelfTest { outcomes, ..SelfTest::default() }
    }

    #[test]
    fn each_part_has_its_matrix_and_marked_sections_are_filled() {
        let sections = sections(&result());
        let names: Vec<&str> = sections.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["foreign-development", "foreign-held-out", "reliability"]);
        let first = &sections[0].1;
        // Runs, cases, right, wrong and sure, failed; runs of two causes, and those with both.
        let figures = first.lines().next().unwrap().split(|letter: char| !letter.is_ascii_digit());
        let figures: Vec<u32> = figures.filter_map(|figure| figure.parse().ok()).collect();
        assert_eq!(figures, [2, 1, 1, 0, 1, 2, 1], "{first}");
        assert!(first.contains("| `link_bound` | 2 | 50 % | `bufferbloat` 1, failed 1 |"), "{first}");
        assert!(sections[2].1.contains("| likely | 2 | 2 | 100 % | 34 % to 100 % |"));
        let page = "# x\n<!-- begin selftest reliability -->\nold\n<!-- end selftest -->\ny\n";
        let filled_page = fill_sections(page, &sections).unwrap();
        assert!(filled_page.starts_with("# x\n<!-- begin selftest reliability -->\n\n| "));
        assert!(filled_page.ends_with("|\n\n<!-- end selftest -->\ny\n"), "{filled_page}");
        assert_eq!(fill_sections(&filled_page, &sections).as_deref(), Some(&*filled_page), "again the same");
        assert_eq!(fill_sections("no marks", &sections), None);
        assert!(fill_sections(&document(&sections), &sections).is_some());
    }
}
