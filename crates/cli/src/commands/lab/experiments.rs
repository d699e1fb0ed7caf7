//! Directories of experiments as the command line names them, and the errors of one.

use std::path::{Path, PathBuf};

use experiment::engine::experiment_dir::{ExperimentDir, ExperimentDirError};
use record::problem::InputProblem;

use crate::exit::Failure;
use crate::flags::CommandArgs;

pub(crate) const DIRECTORY_DEFAULT: &str = "weir-lab";
/// Returns the directory that was named, or the default directory.
pub(super) fn parse_directory(args: CommandArgs<'_>) -> Result<PathBuf, Vec<InputProblem>> {
    let paths = args.values();
    let directory = match paths.as_slice() {
        [] => return Ok(PathBuf::from(DIRECTORY_DEFAULT)),
        [path] => PathBuf::from(path),
        _ => return Err(vec![InputProblem::new("DIR", "more than one directory; name one")]),
    };
    if directory.is_dir() {
        return Ok(directory);
    }
    Err(vec![InputProblem::new(directory.display().to_string(), "not a directory")])
}

/// Converts an error of a directory: a usage error if the user named an unsuitable one.
pub(super) fn directory_failure(error: ExperimentDirError) -> Failure {
    match error {
        ExperimentDirError::Exists(_) => vec![InputProblem::new("--output", error)].into(),
        ExperimentDirError::NotAnExperiment(..)
        | ExperimentDirError::PlanChanged(..)
        | ExperimentDirError::Invalid(..) => vec![InputProblem::from_file_error(error)].into(),
        ExperimentDirError::InUse(..) | ExperimentDirError::Read(_) | ExperimentDirError::Io(_) => {
            Failure::cannot_run(error)
        }
    }
}

pub(super) fn open(path: &Path) -> Result<ExperimentDir, Failure> {
    ExperimentDir::read(path).map_err(directory_failure)
}
