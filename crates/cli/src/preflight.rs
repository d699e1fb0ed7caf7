//! Checks of the destinations of results, before anything starts: a run that cannot keep its result is rejected
//! before it, not after it. [`runner::preflight`] has the limits of the machine.

use std::fs;
use std::path::{Path, PathBuf};

use record::problem::InputProblem;
use rustix::fs::{Access, access};

use crate::exit::Failure;
pub(crate) use crate::flags::STDOUT;
use crate::flags::{CommandArgs, Destination};

/// Checks that all results can be written. One destination of `texts` may be stdout; those of
/// `files` may not. Reports every problem at once.
pub(crate) fn outputs(args: CommandArgs<'_>, texts: &[&str], files: &[&str]) -> Result<(), Failure> {
    outputs_and(args, texts, files, None)
}

/// Like [`outputs`], with a further file that a flag brings along.
pub(crate) fn outputs_and(
    args: CommandArgs<'_>,
    texts: &[&str],
    files: &[&str],
    further: Option<(&str, String)>,
) -> Result<(), Failure> {
    let named = |flags: &[&str]| -> Vec<(String, String)> {
        let given = flags.iter().filter_map(|flag| Some((format!("--{flag}"), args.text(flag)?)));
        given.collect()
    };
    let further = further.into_iter().map(|(flag, path)| (format!("--{flag}"), path));
    let files: Vec<_> = named(files).into_iter().chain(further).collect();
    let problems = output_problems(&named(texts), &files);
    if problems.is_empty() { Ok(()) } else { Err(problems.into()) }
}

/// Checks that all results can be written, as [`outputs`] does.
pub(crate) fn destinations(texts: &[&Destination], files: &[&Destination]) -> Result<(), Failure> {
    let named = |list: &[&Destination]| -> Vec<(String, String)> {
        let given =
            list.iter().filter_map(|output| Some((format!("--{}", output.flag), output.path.clone()?)));
        given.collect()
    };
    let problems = output_problems(&named(texts), &named(files));
    if problems.is_empty() { Ok(()) } else { Err(problems.into()) }
}

pub(crate) fn writes_to_stdout(args: CommandArgs<'_>, flags: &[&str]) -> bool {
    flags.iter().any(|flag| args.text(flag).as_deref() == Some(STDOUT))
}

fn output_problems(texts: &[(String, String)], files: &[(String, String)]) -> Vec<InputProblem> {
    let mut problems = Vec::new();
    let mut to_stdout = None;
    let mut outputs: Vec<(PathBuf, &str)> = Vec::new();
    for (flag, path) in texts.iter().chain(files) {
        let mut problem = |text: String| problems.push(InputProblem::new(flag.clone(), text));
        if path == STDOUT {
            if !texts.iter().any(|(text, _)| text == flag) {
                problem("cannot go to stdout: name a file (./- is a file)".to_owned());
            } else if let Some(other) = to_stdout.replace(flag) {
                problem(format!("{other} already uses stdout: name a file"));
            }
            continue;
        }
        match canonical_output(Path::new(path)) {
            Err(why) => problem(format!("cannot write {path}: {why}")),
            Ok(None) => {}
            Ok(Some(file)) => match outputs.iter().find(|(other, _)| *other == file) {
                Some((_, other)) => problem(format!("{other} already writes to {path}")),
                None => outputs.push((file, flag)),
            },
        }
    }
    problems
}

/// Reason why a result cannot be written to a file.
#[derive(Debug, thiserror::Error)]
enum OutputError {
    #[error("not a file name")]
    NotAName,
    #[error("is a directory")]
    IsDirectory,
    #[error("no such directory")]
    NoDirectory,
    #[error(transparent)]
    NotWritable(#[from] std::io::Error),
}

/// Returns the canonical name of the file to write; `None` for a device or a pipe. Files are
/// written beside their name and renamed, so their directory must be writable.
fn canonical_output(path: &Path) -> Result<Option<PathBuf>, OutputError> {
    let name = path.file_name().ok_or(OutputError::NotAName)?;
    if let Ok(existing) = fs::metadata(path)
        && !existing.is_file()
    {
        return match existing.is_dir() {
            true => Err(OutputError::IsDirectory),
            false => Ok(check_writable(path).map(|()| None)?),
        };
    }
    let file = match path.canonicalize() {
        Ok(file) => file,
        Err(_) => {
            let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
            let directory = directory.unwrap_or_else(|| Path::new("."));
            let directory = directory.canonicalize().ok().filter(|directory| directory.is_dir());
            directory.ok_or(OutputError::NoDirectory)?.join(name)
        }
    };
    check_writable(file.parent().unwrap_or_else(|| Path::new("/")))?;
    Ok(Some(file))
}

fn check_writable(path: &Path) -> std::io::Result<()> {
    Ok(access(path, Access::WRITE_OK)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem_texts(texts: &[(&str, &str)], files: &[(&str, &str)]) -> Vec<String> {
        let owned = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(flag, path)| ((*flag).to_owned(), (*path).to_owned())).collect()
        };
        output_problems(&owned(texts), &owned(files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_result_goes_to_a_file_of_its_own_or_to_stdout_alone() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name).display().to_string();
        std::os::unix::fs::symlink(directory.path(), directory.path().join("same")).unwrap();
        fs::write(at("there"), "").unwrap();
        std::os::unix::fs::symlink("there", directory.path().join("link")).unwrap();
        let none = [""; 0];
        assert_eq!(problem_texts(&[("--json", "-"), ("--csv", &at("a"))], &[("--hdr", &at("b"))]), none);
        assert_eq!(problem_texts(&[("--json", "/dev/null"), ("--csv", "/dev/null")], &[]), none);
        let single_problem = |texts: &[(&str, &str)], files: &[(&str, &str)]| {
            let problems = problem_texts(texts, files);
            assert_eq!(problems.len(), 1, "{problems:?}");
            problems[0].clone()
        };
        let taken = single_problem(&[("--json", "-"), ("--csv", "-")], &[]);
        assert!(taken.starts_with("--csv:") && taken.contains("--json"), "{taken}");
        let binary = single_problem(&[], &[("--hdr", "-")]);
        assert!(binary.starts_with("--hdr:") && binary.contains("stdout"), "{binary}");
        for (left, right) in [("a", "a"), ("a", "same/a"), ("there", "link")] {
            let problem = single_problem(&[("--json", &at(left))], &[("--hdr", &at(right))]);
            let (flag, text) = problem.split_once(':').unwrap();
            assert!(flag == "--hdr" && text.contains("--json") && text.contains(&at(right)), "{problem}");
        }
        for path in ["no/such", "same", "there/x"] {
            let problem = single_problem(&[("--json", &at(path))], &[]);
            assert!(problem.starts_with("--json:") && problem.contains(&at(path)), "{problem}");
            assert!(problem.contains("directory"), "{problem}");
        }
        assert!(single_problem(&[("--json", "")], &[]).starts_with("--json:"));
    }
}
