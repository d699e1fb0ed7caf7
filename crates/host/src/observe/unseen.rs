//! What this machine has nothing to tell about, found out once: each row looks for a source, and says
//! why there is none.
//!
//! Not for sources that are there and cannot be read: their readers say that.

use crate::source::{NotObservable, read_once};

/// A source that not every machine has: what it would tell, and how its absence shows.
struct Row {
    what: &'static str,
    why_not: fn() -> Option<String>,
}

const ROWS: &[Row] = &[
    Row {
        what: "hardware counters (cycles, instructions, cache misses, memory bandwidth)",
        why_not: || {
            const FOLDER: &str = "/sys/bus/event_source/devices";
            let names = std::fs::read_dir(FOLDER).into_iter().flatten();
            let mut names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            let counts = |name: &str| name.starts_with("cpu") || name.starts_with("armv");
            let none = !names.any(|name| counts(&name));
            none.then(|| format!("{FOLDER} has no unit for them: virtual machines often have none"))
        },
    },
    Row {
        what: "frequency of the processors",
        why_not: || absent("/sys/devices/system/cpu/cpu0/cpufreq"),
    },
    Row {
        what: "memory of other nodes (NUMA)",
        why_not: || {
            let path = "/sys/devices/system/node/online";
            match read_once("memory nodes", path) {
                Ok(nodes) => {
                    one_node(&nodes).then(|| "this machine has one memory node".to_owned())
                }
                Err(error) => Some(error.why),
            }
        },
    },
    Row { what: "run queues by processor", why_not: || absent("/proc/schedstat") },
    Row {
        what: "time that tasks waited for a disk, by task",
        why_not: || {
            let setting = read_once("delay accounting", "/proc/sys/kernel/task_delayacct");
            (setting.as_deref() != Ok("1")).then(|| "kernel.task_delayacct is not 1".to_owned())
        },
    },
];

/// Everything that this machine has nothing to tell about.
pub(super) fn read() -> Vec<NotObservable> {
    let missing =
        ROWS.iter().filter_map(|row| Some(NotObservable::new(row.what, (row.why_not)()?)));
    missing.collect()
}

fn absent(path: &str) -> Option<String> {
    (!std::path::Path::new(path).exists()).then(|| format!("{path} is not there"))
}

/// "0", and not "0-1" or "0,2".
fn one_node(list: &str) -> bool {
    list.trim().parse::<u32>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_one_node_is_told_from_others() {
        assert!(one_node("0\n"));
        assert!(!one_node("0-1\n") && !one_node("0,2\n") && !one_node(""));
    }

    #[test]
    fn each_row_is_said_once_and_says_why() {
        assert!(absent("/no/such/file").is_some_and(|why| why.contains("/no/such/file")));
        assert_eq!(absent("/proc"), None);
        for missing in read() {
            assert!(!missing.what.is_empty() && !missing.why.is_empty());
        }
    }
}
