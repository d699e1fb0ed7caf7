//! Reasons why a scenario cannot be made or removed. Each says whose fault it is.

use std::io;
use std::path::{Path, PathBuf};

use host::NotObservable;
use record::problem::InvalidValue;

/// Failure of a program that runs to its end.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The command line has no words.
    #[error("an empty command")]
    Empty,
    #[error("the program '{program}' is not installed: install {package}")]
    NotInstalled {
        program: String,
        /// Its Debian package.
        package: &'static str,
    },
    /// The system cannot start the program, or cannot open its output.
    #[error("{object}: {source}")]
    System {
        /// Program or file.
        object: String,
        source: io::Error,
    },
    /// The program reported a failure.
    #[error("{line}: {stderr}")]
    Failed { line: String, stderr: String },
}

/// Reason why a resource of a run cannot be made or removed.
#[derive(Debug, thiserror::Error)]
pub enum ResourceError {
    /// The kernel or the file system refused it.
    #[error("{object}: {source}")]
    Refused {
        /// Object, with the action if that is not obvious.
        object: String,
        source: io::Error,
    },
    /// A system program failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// A process survives its kill.
    #[error("process {0} does not end")]
    StillAlive(i32),
    /// A process is not of the run that its journal says.
    #[error("process {pid} has no sign of {run}, so it is not killed (kill {pid}, if it is of that run)")]
    NotOfRun { pid: i32, run: String },
}

impl ResourceError {
    /// Creates a [`Self::Refused`] from the error of a file.
    pub(crate) fn in_file(path: &Path) -> impl Fn(io::Error) -> Self + '_ {
        |source| Self::Refused { object: path.display().to_string(), source }
    }
}

/// Reason why a scenario cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TestbedError {
    /// It changes these settings of the complete machine, which the user did not allow.
    #[error("this changes settings of the complete machine ({0}): it requires --allow-global")]
    NotAllowed(String),
    /// It needs network namespaces, and this process is not root.
    #[error("only root can create network namespaces; network = \"loopback\" needs none")]
    NotRoot,
    /// A value of the scenario is wrong.
    #[error(transparent)]
    Value(#[from] InvalidValue),
    /// No control group can limit what this controller limits.
    #[error(
        "no cgroup can set this limit: the controller '{0}' is neither mounted nor in cgroup.subtree_control of \
         the unified hierarchy"
    )]
    NoController(&'static str),
    /// This kernel does not have a setting.
    #[error("{}: this kernel does not have it", .0.display())]
    NoSetting(PathBuf),
    /// A setting cannot be read, with the reason.
    #[error("{0}")]
    UnreadableSetting(String),
    /// The directory of the run is on no disk.
    #[error("{} is not on a disk, so its writes cannot be limited", .0.display())]
    NotOnDisk(PathBuf),
    /// The control groups of this machine cannot be read.
    #[error(transparent)]
    NotObservable(#[from] NotObservable),
    /// A resource cannot be made.
    #[error(transparent)]
    Resource(#[from] ResourceError),
    /// The system refused an action; its error names the object.
    #[error(transparent)]
    System(#[from] io::Error),
    /// A program of the scenario cannot be started.
    #[error("{program}: cannot be started: {source}")]
    NotStarted { program: String, source: io::Error },
    /// The subject has no child processes that could be limited.
    #[error("cpu-quota.workers: the subject has no child processes")]
    NoWorkers,
}

impl From<CommandError> for TestbedError {
    fn from(error: CommandError) -> Self {
        Self::Resource(error.into())
    }
}
