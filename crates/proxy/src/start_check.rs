//! What `--check` looks at on this machine beside the config's text: directories that a start writes
//! to. Nothing is bound or opened, so that a check disturbs no proxy that is running.

use std::path::Path;

use record::problem::Problem;
use rt::address::Address;

use crate::plan::{LogTarget, Plan};

/// What would keep a proxy with this plan from starting here; `file_name` is the config's.
#[must_use]
pub fn check_start(file_name: &str, plan: &Plan) -> Vec<Problem> {
    let mut wanted: Vec<(String, &Path)> = Vec::new();
    for log in &plan.logs {
        if let LogTarget::File(path) = &log.target {
            wanted.push((format!("log file:{}", path.display()), path));
        }
    }
    for listener in &plan.listeners {
        for address in &listener.bind {
            if let Address::Unix(path) = address {
                wanted.push((format!("listener {}: {address}", listener.name), path));
            }
        }
    }
    if let Some(Address::Unix(path)) = &plan.admin {
        wanted.push((format!("admin unix:{}", path.display()), path));
    }
    if let Some(path) = &plan.control {
        wanted.push((format!("control {}", path.display()), path));
    }
    let problem = |(what, path): (String, &Path)| {
        let why = directory_problem(path)?;
        Some(Problem::new(file_name, format!("{what}: {why}")))
    };
    wanted.into_iter().filter_map(problem).collect()
}

/// What is wrong with the directory of a file that is to be made.
fn directory_problem(path: &Path) -> Option<String> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or_else(|| Path::new("."));
    let shown = parent.display();
    match std::fs::metadata(parent) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Some(format!("there is no directory {shown}: make it"))
        }
        Err(error) => Some(format!("directory {shown}: {error}")),
        Ok(found) if !found.is_dir() => Some(format!("{shown} is no directory")),
        Ok(_) if path.is_dir() => Some("it is a directory".to_owned()),
        Ok(_) => None,
    }
}
