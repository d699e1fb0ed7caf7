//! What nothing is read of, found out once: sources that this machine does not have, each with how that
//! shows, and those that weir leaves alone where there are some, each with the reason. So nobody takes
//! silence for absence.
//!
//! Not for sources that are read and cannot be: their readers say that.

use crate::source::{NotObservable, read_once};

/// A source that is not read: what it would tell, how its absence shows, and why it is left alone where
/// it is there.
struct Row {
    what: &'static str,
    absent: fn() -> Option<String>,
    not_read: &'static str,
}

const ROWS: &[Row] = &[
    Row {
        what: "hardware counters (cycles, instructions, cache misses, memory bandwidth)",
        absent: || {
            const FOLDER: &str = "/sys/bus/event_source/devices";
            let names = std::fs::read_dir(FOLDER).into_iter().flatten();
            let mut names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            let counts = |name: &str| name.starts_with("cpu") || name.starts_with("armv");
            let none = !names.any(|name| counts(&name));
            none.then(|| format!("{FOLDER} has no unit for them: virtual machines often have none"))
        },
        not_read: "functions are sampled by time, which every machine has",
    },
    Row {
        what: "frequency of the processors",
        absent: || absent("/sys/devices/system/cpu/cpu0/cpufreq"),
        not_read: "it is of a moment, and some kernels interrupt each processor to tell it",
    },
    Row {
        what: "memory of other nodes (NUMA)",
        absent: || {
            let path = "/sys/devices/system/node/online";
            match read_once("memory nodes", path) {
                Ok(nodes) => {
                    one_node(&nodes).then(|| "this machine has one memory node".to_owned())
                }
                Err(error) => Some(error.why),
            }
        },
        not_read: "no verdict is about it yet",
    },
    Row {
        what: "run queues by processor",
        absent: || absent("/proc/schedstat"),
        not_read: "the time that each thread waits for a processor is read instead",
    },
    Row {
        what: "time that tasks waited for a disk, by task",
        absent: || {
            let setting = read_once("delay accounting", "/proc/sys/kernel/task_delayacct");
            (setting.as_deref() != Ok("1")).then(|| "kernel.task_delayacct is not 1".to_owned())
        },
        not_read: "it takes a request for each task; threads in state D and pressure are read instead",
    },
    Row {
        what: "where in the kernel a thread sleeps (wchan)",
        absent: || absent("/proc/self/wchan"),
        not_read: "one moment of a second says little; calls are counted instead",
    },
    Row {
        what: "hardware interrupts by line and device",
        absent: || absent("/proc/interrupts"),
        not_read: "they are added up by processor",
    },
    Row {
        what: "windows of connections (snd_cwnd, snd_wnd), and what came out of order (rcv_ooopack)",
        absent: || None,
        not_read: "the time that a window or a buffer held them up is read instead",
    },
    Row {
        what: "how much longer the same work takes at times (loop-time drift)",
        absent: || None,
        not_read: "it takes a processor's time; how late canaries wake up is read instead",
    },
];

/// Everything that nothing is read of here.
pub(super) fn read() -> Vec<NotObservable> {
    let why =
        |row: &Row| (row.absent)().unwrap_or_else(|| format!("not read by weir: {}", row.not_read));
    ROWS.iter().map(|row| NotObservable::new(row.what, why(row))).collect()
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
        let said = read();
        assert_eq!(said.len(), ROWS.len());
        for (row, said) in ROWS.iter().zip(&said) {
            assert!(!said.what.is_empty() && !row.not_read.is_empty());
            // What is there is said to be left alone, and what is not there is said to be absent.
            let left_alone = said.why == format!("not read by weir: {}", row.not_read);
            assert_eq!(left_alone, (row.absent)().is_none(), "{said:?}");
        }
        assert!(said.iter().any(|one| one.why.starts_with("not read by weir: ")));
    }
}
