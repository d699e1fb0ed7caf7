//! The checks of `--check` on this machine, in addition to the config's text: directories that a
//! start writes to. Nothing is bound or opened, so a check does not disturb a running proxy.

use std::path::Path;

use record::problem::InputProblem;
use rt::address::Address;

use crate::plan::{LogTarget, Plan};

/// Returns the problems that would keep a proxy with this plan from starting here; `file_name` is
/// the config's.
pub fn check_start(file_name: &str, plan: &Plan) -> Vec<InputProblem> {
    let mut paths: Vec<(String, &Path)> = Vec::new();
    for log in &plan.logs {
        if let LogTarget::File(path) = &log.target {
            paths.push((format!("log file:{}", path.display()), path));
        }
    }
    for listener in plan.listeners.iter() {
        for address in &listener.bind {
            if let Address::Unix(path) = address {
                paths.push((format!("listener {}: {address}", listener.name), path));
            }
        }
    }
    if let Some(Address::Unix(path)) = &plan.admin {
        paths.push((format!("admin unix:{}", path.display()), path));
    }
    if let Some(path) = &plan.control {
        paths.push((format!("control {}", path.display()), path));
    }
    let problem = |(name, path): (String, &Path)| {
        let reason = directory_problem(path)?;
        Some(InputProblem::new(file_name, format!("{name}: {reason}")))
    };
    paths.into_iter().filter_map(problem).collect()
}

fn directory_problem(path: &Path) -> Option<String> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or_else(|| Path::new("."));
    let directory = parent.display();
    match std::fs::metadata(parent) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Some(format!("missing directory: {directory} (create it)"))
        }
        Err(error) => Some(format!("directory {directory}: {error}")),
        Ok(metadata) if !metadata.is_dir() => Some(format!("not a directory: {directory}")),
        Ok(_) if path.is_dir() => Some("it is a directory: write the path of a file".to_owned()),
        Ok(_) => None,
    }
}
