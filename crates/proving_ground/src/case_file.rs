//! File of a case: its first line has the kind, the right verdicts and the requirements; the rest is the experiment, with
//! comments about the measurement, other than weir's, that proves the verdict.

use std::path::PathBuf;

use experiment::scenario::keys::CPUS_MAX;
use record::document::table::{KeySpec, ListForm, TableValues, ValueForm, key, read_document, required};
use record::document::{Problems, TomlDocument};
use record::problem::InputProblem;

use crate::cases::{CaseKind, CaseSet, Requirement, TestCase};

/// Texts of a case, or one of them without the array.
const TEXTS: ValueForm = ValueForm::List(ListForm {
    min: 0,
    max: 8,
    has_numbers: false,
    takes_one: true,
    example: "[\"go\", \"nginx\"]",
});

/// Keys of the first line of a case.
const LINE: &[KeySpec] = &[required("case", ValueForm::Table(CASE), "The case")];

const CASE: &[KeySpec] = &[
    required("kind", ValueForm::Text, "Kind: the name of a `CaseKind`"),
    required("right", TEXTS, "Right verdicts, the best first"),
    required("needs", TEXTS, "Programs that the case needs, and files by their paths"),
    key("cpus", ValueForm::Count(1, CPUS_MAX), "CPUs that the case needs"),
    key("global", ValueForm::Flag, "The case changes settings of the complete machine"),
    key("examined", ValueForm::Flag, "A person has examined a record of the case because of a wrong verdict"),
];

/// Parses the file of a case. The experiment is only split off: [`TestCase::experiment`] parses it.
///
/// # Errors
/// The first line is wrong.
pub(crate) fn parse_case(set: CaseSet, name: &str, text: &str) -> Result<TestCase, Vec<InputProblem>> {
    let (line, experiment_text) = text.split_once('\n').unwrap_or((text, ""));
    let (document, mut problems) = (TomlDocument::parse(line), Problems::default());
    let values = read_document(&document, LINE, &mut problems);
    let problems = document.all_problems(name, problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    let parsed = values.table("case").map_or(Err("it has no case"), |case| {
        let kind = CaseKind::ALL.into_iter().find(|kind| case.text("kind") == Some(kind.name()));
        let mut right = texts(case, "right");
        if right.is_empty() {
            return Err("right: a verdict is needed");
        }
        Ok(TestCase {
            set,
            verdict: right.remove(0),
            also_right: right,
            name: name.to_owned(),
            kind: kind.ok_or("kind: none of healthy, single cause, decoy, two causes")?,
            requirements: requirements(case),
            is_examined: case.is_set("examined"),
            // Its lines keep their numbers.
            experiment_text: format!("\n{experiment_text}"),
        })
    });
    parsed.map_err(|why| vec![InputProblem::new(name, why)])
}

fn requirements(case: &TableValues) -> Vec<Requirement> {
    let need = |text: String| match text.starts_with('/') {
        true => Requirement::File(PathBuf::from(text)),
        false => Requirement::Program(text),
    };
    let mut requirements: Vec<_> = texts(case, "needs").into_iter().map(need).collect();
    let cpus = case.integer("cpus").and_then(|cpus| u32::try_from(cpus).ok());
    requirements.extend(cpus.map(Requirement::Cpus));
    requirements.extend(case.is_set("global").then_some(Requirement::Global));
    requirements
}

fn texts(case: &TableValues, key: &str) -> Vec<String> {
    case.text_or_list(key).unwrap_or_default()
}
