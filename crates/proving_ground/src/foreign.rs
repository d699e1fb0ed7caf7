//! Proving ground: servers as other people write and configure them, each with its right verdict. The cases are files of a
//! directory, which packages install beside the program.
//!
//! The analyser's results on the held-out part may be counted, but not read.

use std::fs;
use std::path::Path;

use record::invalid_value;
use record::problem::{InputProblem, InvalidValue};

use crate::case_file::parse_case;
use crate::cases::{CaseSet, TestCase};

/// Directory in which packages install the cases.
pub const CASES_DIRECTORY: &str = "/usr/share/weir/cases";

/// Maximum size of a case's file.
const FILE_BYTES_MAX: u64 = 256 * 1024;
/// Maximum number of cases in a directory.
const CASES_MAX: usize = 10_000;

/// Reads the cases of a directory, `NAME.toml` each, in the order of their names.
///
/// # Errors
/// The directory cannot be read or has no case; files cannot be read, or are wrong. All problems are reported.
pub fn read_cases(directory: &Path) -> Result<Vec<TestCase>, Vec<InputProblem>> {
    let problem = |path: &Path, why: InvalidValue| InputProblem::new(path.display().to_string(), why);
    let entries = fs::read_dir(directory).map_err(|error| {
        let why = invalid_value!(
            "{error}; the cases are in crates/proving_ground/cases/foreign of the source, and in packages"
        );
        vec![problem(directory, why)]
    })?;
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let mut paths: Vec<_> = paths.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    paths.sort();
    if paths.is_empty() || paths.len() > CASES_MAX {
        let why = invalid_value!(
            "it has {} cases (files NAME.toml), and 1 to {CASES_MAX} are possible",
            paths.len()
        );
        return Err(vec![problem(directory, why)]);
    }
    let (mut cases, mut problems) = (Vec::new(), Vec::new());
    for path in &paths {
        let parsed = read_text(path).map_err(|why| vec![problem(path, why)]).and_then(|text| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let case = parse_case(CaseSet::Foreign, &name, &text)?;
            case.experiment().map(|_| case)
        });
        match parsed {
            Ok(case) => cases.push(case),
            Err(found) => problems.extend(found),
        }
    }
    if problems.is_empty() { Ok(cases) } else { Err(problems) }
}

fn read_text(path: &Path) -> Result<String, InvalidValue> {
    let metadata = fs::metadata(path).map_err(InvalidValue::new)?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return Err(invalid_value!("it is no file of at most {FILE_BYTES_MAX} bytes"));
    }
    fs::read_to_string(path).map_err(InvalidValue::new)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::case_part::{CasePart, SPLIT_SEED};
    use crate::cases::CaseKind;
    use crate::cases::tests::CODES;
    use crate::induced::induced_cases;

    fn foreign_cases() -> Vec<TestCase> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases/foreign");
        read_cases(&directory).unwrap_or_else(|problems| panic!("{problems:?}"))
    }

    #[test]
    fn every_case_is_an_experiment_with_known_verdicts_and_a_unique_name() {
        let (foreign, induced) = (foreign_cases(), induced_cases());
        assert!(foreign.len() > 200);
        for case in &foreign {
            for verdict in case.right_verdicts() {
                assert!(CODES.contains(&&*verdict), "{}: {verdict}", case.name);
            }
            assert!(induced.iter().all(|other| other.name != case.name), "{}", case.name);
            let experiment = case.experiment().unwrap_or_else(|problems| panic!("{problems:?}"));
            assert!(!experiment.title.is_empty(), "{}", case.name);
            assert_eq!(case.kind == CaseKind::Healthy, case.verdict == "none" && !is_decoy(case));
            if case.kind == CaseKind::TwoCauses {
                assert_eq!(case.also_right.len(), 1, "{}", case.name);
            } else if !case.also_right.is_empty() {
                let comment = case.experiment_text.lines().nth(2).unwrap_or_default();
                assert!(comment.starts_with("# "), "{}: say why two verdicts are right", case.name);
            }
            assert!(!experiment.scenario.global_settings().iter().any(|_| true), "{}", case.name);
        }
    }

    #[test]
    fn all_faults_of_a_directory_are_reported() {
        let directory = tempfile::tempdir().unwrap();
        let text = |problems: Vec<InputProblem>| {
            problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        let none = text(read_cases(directory.path()).unwrap_err());
        assert!(none.contains("it has 0 cases"), "{none}");
        assert!(read_cases(&directory.path().join("none")).is_err());
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        write("kind.toml", "case = { kind = \"x\", right = \"none\", needs = [] }\n");
        write("right.toml", "case = { kind = \"healthy\", right = [], needs = [] }\n");
        write("line.toml", "title = \"t\"\n");
        write("experiment.toml", "case = { kind = \"healthy\", right = \"none\", needs = [] }\nnope = 1\n");
        write("long.toml", &"#".repeat(FILE_BYTES_MAX as usize + 1));
        let all = text(read_cases(directory.path()).unwrap_err());
        for part in ["kind: none of healthy", "right: a verdict", "line", "nope", "at most 262144 bytes"] {
            assert!(all.contains(part), "{part}: {all}");
        }
    }

    #[test]
    fn examined_cases_are_in_the_development_part() {
        let foreign = foreign_cases();
        for name in ["go_kernel_reads", "go_log_dsync", "loopback_shaped", "nginx_out_of_ports"] {
            let case = foreign.iter().find(|case| case.name == name).unwrap();
            assert_eq!(CasePart::assigned(SPLIT_SEED, name), CasePart::HeldOut, "{name}");
            assert_eq!(case.part(), Some(CasePart::Development), "{name}");
        }
    }

    fn is_decoy(case: &TestCase) -> bool {
        case.kind == CaseKind::Decoy
    }

    /// Checks the parts by kind. The seed assigns at least a third of each kind to each part, so
    /// that both parts can distinguish the kinds. Each kind still has held-out cases without the
    /// examined ones.
    #[test]
    fn both_parts_have_cases_of_every_kind() {
        let mut counts: BTreeMap<CaseKind, (usize, usize, usize)> = BTreeMap::new();
        for case in &foreign_cases() {
            let (all, held_out, still_held_out) = counts.entry(case.kind).or_default();
            *all += 1;
            *held_out += usize::from(CasePart::assigned(SPLIT_SEED, &case.name) == CasePart::HeldOut);
            *still_held_out += usize::from(case.part() == Some(CasePart::HeldOut));
        }
        assert_eq!(counts.len(), 4);
        for (kind, (all, held_out, still_held_out)) in counts {
            assert!(held_out * 3 >= all && (all - held_out) * 3 >= all, "{kind:?}: {held_out} of {all}");
            assert!(still_held_out * 4 >= all, "{kind:?}: {still_held_out} of {all}");
        }
        assert_eq!(induced_cases()[0].part(), None);
    }
}
