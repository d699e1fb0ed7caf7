//! A self-test as Markdown: the matrices, by set and part, and the reliability table; and a document with
//! marked places that they are filled into. Pure.

use std::collections::BTreeMap;

use super::cases::Set;
use super::matrix::{Outcome, Row, SelfTest};
use super::reliability::{Level, levels};

/// The sections of a self-test: the name of each, and its Markdown.
#[must_use]
pub fn sections(result: &SelfTest) -> Vec<(String, String)> {
    let mut by_place: BTreeMap<String, Vec<Outcome>> = BTreeMap::new();
    for outcome in &result.outcomes {
        let part = outcome.part.map(|part| format!("-{}", part.name())).unwrap_or_default();
        let place = format!("{}{part}", outcome.set);
        by_place.entry(place).or_default().push(outcome.clone());
    }
    let of_place = |(name, outcomes): (String, Vec<Outcome>)| {
        let set = outcomes.first().map(|one| one.set.clone()).unwrap_or_default();
        let part = SelfTest { outcomes, set, ..SelfTest::default() }.summed_up();
        (name, matrix(&part))
    };
    let mut sections: Vec<(String, String)> = by_place.into_iter().map(of_place).collect();
    sections.push(("reliability".to_owned(), reliability(&levels(&result.outcomes))));
    sections
}

fn matrix(part: &SelfTest) -> String {
    let sum = |of: fn(&Row) -> u32| part.verdicts.iter().map(of).sum::<u32>();
    let mut text = format!(
        "{} runs of {} cases: {} with a right verdict first, {} wrong and sure, {} failed.",
        sum(|row| row.runs),
        part.cases.len(),
        sum(|row| row.right),
        part.wrong_sure,
        part.failed
    );
    if part.both.0 > 0 {
        text.push_str(&format!(
            " Of {} runs of two causes {} reported both.",
            part.both.0, part.both.1
        ));
    }
    text.push_str(
        "\n\n| Right verdict | Runs | Right | Reported first |\n| --- | ---: | ---: | --- |\n",
    );
    rows(&part.verdicts, &mut text);
    // Cases of one set only: those of the other are by verdict already.
    if Set::named(&part.set) == Some(Set::Foreign) {
        text.push_str("\n| Case | Runs | Right | Reported first |\n| --- | ---: | ---: | --- |\n");
        rows(&part.cases, &mut text);
    }
    text
}

fn rows(rows: &[Row], text: &mut String) {
    for row in rows {
        let mut reported: Vec<(&String, &u32)> = row.reported.iter().collect();
        reported.sort_by(|one, other| other.1.cmp(one.1).then(one.0.cmp(other.0)));
        let mut reported: Vec<String> =
            reported.iter().map(|(verdict, runs)| format!("`{verdict}` {runs}")).collect();
        if row.failed > 0 {
            reported.push(format!("failed {}", row.failed));
        }
        text.push_str(&format!(
            "| `{}` | {} | {:.0} % | {} |\n",
            row.induced,
            row.runs,
            row.right_share * 100.0,
            reported.join(", ")
        ));
    }
}

fn reliability(levels: &[Level]) -> String {
    let mut text = "| Claimed | Runs | Right | Share | 95 % interval |\n\
                    | --- | ---: | ---: | ---: | --- |\n"
        .to_owned();
    for level in levels {
        text.push_str(&format!(
            "| {} | {} | {} | {:.0} % | {:.0} % to {:.0} % |\n",
            level.claimed,
            level.runs,
            level.right,
            level.right_share * 100.0,
            level.low * 100.0,
            level.high * 100.0
        ));
    }
    text
}

fn begin(name: &str) -> String {
    format!("<!-- begin selftest {name} -->\n")
}

const END: &str = "<!-- end selftest -->";

/// A document with each section in the place that is marked for it; none where it has no marks. A place
/// whose section is not there stays as it is.
#[must_use]
pub fn filled(document: &str, sections: &[(String, String)]) -> Option<String> {
    let mut text = document.to_owned();
    let mut is_marked = false;
    for (name, section) in sections {
        let begin = begin(name);
        let Some(from) = text.find(&begin).map(|at| at + begin.len()) else { continue };
        let Some(to) = text[from..].find(END).map(|at| from + at) else { continue };
        text.replace_range(from..to, &format!("\n{section}\n"));
        is_marked = true;
    }
    is_marked.then_some(text)
}

/// A document of its own, with marks.
#[must_use]
pub fn document(sections: &[(String, String)]) -> String {
    let mut text = "# Results of `weir lab selftest`\n".to_owned();
    for (name, section) in sections {
        text.push_str(&format!("\n## {name}\n\n{}\n{section}\n{END}\n", begin(name)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::split::Part;
    use super::*;

    fn result() -> SelfTest {
        let outcome = |case: &str, part, reported: Option<&str>| Outcome {
            case: case.to_owned(),
            induced: "link_bound".to_owned(),
            kind: "two causes".to_owned(),
            right: vec!["link_bound".to_owned(), "bufferbloat".to_owned()],
            set: "foreign".to_owned(),
            part: Some(part),
            reported: reported.map(str::to_owned),
            also: vec!["link_bound".to_owned()],
            confidence: Some("likely".to_owned()),
            ..Outcome::default()
        };
        let outcomes = vec![
            outcome("a", Part::Development, Some("bufferbloat")),
            outcome("a", Part::Development, None),
            outcome("b", Part::HeldOut, Some("link_bound")),
        ];
        SelfTest { outcomes, ..SelfTest::default() }
    }

    #[test]
    fn each_part_has_its_matrix_and_marked_places_are_filled() {
        let sections = sections(&result());
        let names: Vec<&str> = sections.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["foreign-development", "foreign-held-out", "reliability"]);
        let first = &sections[0].1;
        assert!(first.contains("2 runs of 1 cases: 1 with a right verdict first, 0 wrong and sure, 1 failed. Of 2 runs of two causes 1 reported both."), "{first}");
        assert!(
            first.contains("| `link_bound` | 2 | 50 % | `bufferbloat` 1, failed 1 |"),
            "{first}"
        );
        assert!(sections[2].1.contains("| likely | 2 | 2 | 100 % | 34 % to 100 % |"));
        let page = "# x\n<!-- begin selftest reliability -->\nold\n<!-- end selftest -->\ny\n";
        let filled_page = filled(page, &sections).unwrap();
        assert!(filled_page.starts_with("# x\n<!-- begin selftest reliability -->\n\n| Claimed"));
        assert!(filled_page.ends_with("|\n\n<!-- end selftest -->\ny\n"), "{filled_page}");
        assert_eq!(
            filled(&filled_page, &sections).as_deref(),
            Some(&*filled_page),
            "again the same"
        );
        assert_eq!(filled("no marks", &sections), None);
        assert!(filled(&document(&sections), &sections).is_some());
    }
}
