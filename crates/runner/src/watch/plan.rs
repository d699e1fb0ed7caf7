//! Plan of a watch: targets, intervals and the destination of the record.

use load::plan::Authority;
use record::units::SECOND_NS;

/// Targets, duration and destination of `weir watch`.
#[derive(Debug, PartialEq, Eq)]
pub struct WatchPlan {
    /// Empty: the machine and its busiest programs.
    pub targets: Vec<WatchTarget>,
    /// True for a single sample.
    pub once: bool,
    /// `None`: until the user stops it.
    pub duration_ns: Option<u64>,
    pub interval_ns: u64,
    /// Destination of the record: a file, or `-` for stdout, which then contains nothing else.
    pub json: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchTarget {
    pub name: Option<String>,
    pub locator: TargetLocator,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetLocator {
    Pid(i32),
    Port(u16),
    Url(Authority),
}

impl TargetLocator {
    pub fn flag(&self) -> &'static str {
        match self {
            Self::Pid(_) => "--pid",
            Self::Port(_) => "--port",
            Self::Url(_) => "--url",
        }
    }
}

impl std::fmt::Display for TargetLocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pid(pid) => write!(f, "process {pid}"),
            Self::Port(port) => write!(f, "port {port}"),
            Self::Url(authority) => authority.fmt(f),
        }
    }
}

/// Returns the plan to watch a process until it is stopped, under this name.
pub fn watch_process(name: &str, pid: i32) -> WatchPlan {
    let target = WatchTarget { name: Some(name.to_owned()), locator: TargetLocator::Pid(pid) };
    WatchPlan { targets: vec![target], once: false, duration_ns: None, interval_ns: SECOND_NS, json: None }
}

impl WatchPlan {
    /// Gives the first target without a name this one.
    #[must_use]
    pub fn with_name(mut self, name: &str) -> Self {
        if let Some(target) = self.targets.iter_mut().find(|target| target.name.is_none()) {
            target.name = Some(name.to_owned());
        }
        self
    }

    /// Returns whether the record takes all of stdout.
    pub fn json_only(&self) -> bool {
        self.json.as_deref() == Some("-")
    }
}
