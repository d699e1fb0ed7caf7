//! Sources that are not read, determined once: those that this machine lacks, with the evidence,
//! and those that exist but weir does not read, with the reason. So missing data is not mistaken
//! for absence.
//!
//! Sources that are read but fail are reported by their readers.

use crate::kernel_file::{NotObservable, read_once};

/// A source that is not read: its content, a test for its absence, and the reason why weir does not
/// read it where it exists.
struct UnreadSource {
    figure: &'static str,
    absence_reason: fn() -> Option<String>,
    reason_not_read: &'static str,
}

const UNREAD_SOURCES: &[UnreadSource] = &[
    UnreadSource {
        figure: "hardware counters (cycles, instructions, cache misses, memory bandwidth)",
        absence_reason: || {
            const DIRECTORY: &str = "/sys/bus/event_source/devices";
            let names = std::fs::read_dir(DIRECTORY).into_iter().flatten();
            let mut names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            let is_cpu_unit = |name: &str| name.starts_with("cpu") || name.starts_with("armv");
            let has_none = !names.any(|name| is_cpu_unit(&name));
            has_none.then(|| format!("{DIRECTORY} has no CPU PMU; virtual machines often have none"))
        },
        reason_not_read: "functions are sampled by time, which every machine has",
    },
    UnreadSource {
        figure: "CPU frequency",
        absence_reason: || missing_file("/sys/devices/system/cpu/cpu0/cpufreq"),
        reason_not_read: "it is momentary, and some kernels interrupt each CPU to read it",
    },
    UnreadSource {
        figure: "memory of other nodes (NUMA)",
        absence_reason: || {
            let path = "/sys/devices/system/node/online";
            match read_once("memory nodes", path) {
                Ok(nodes) => is_single_node(&nodes).then(|| "this machine has one memory node".to_owned()),
                Err(error) => Some(error.reason),
            }
        },
        reason_not_read: "no verdict uses it yet",
    },
    UnreadSource {
        figure: "run queues per CPU",
        absence_reason: || missing_file("/proc/schedstat"),
        reason_not_read: "the run-queue wait of each thread is read instead",
    },
    UnreadSource {
        figure: "disk wait per task",
        absence_reason: || {
            let setting = read_once("delay accounting", "/proc/sys/kernel/task_delayacct");
            (setting.as_deref() != Ok("1")).then(|| "kernel.task_delayacct is not 1".to_owned())
        },
        reason_not_read: "it needs a request per task; threads in state D and pressure are read instead",
    },
    UnreadSource {
        figure: "hardware interrupts by line and device",
        absence_reason: || missing_file("/proc/interrupts"),
        reason_not_read: "they are summed per CPU",
    },
    UnreadSource {
        figure: "connection windows (snd_cwnd, snd_wnd) and out-of-order segments (rcv_ooopack)",
        absence_reason: || None,
        reason_not_read: "the time limited by a window or a buffer is read instead",
    },
    UnreadSource {
        figure: "variation of the time for constant work (loop-time drift)",
        absence_reason: || None,
        reason_not_read: "it costs CPU time; the wakeup latency is read instead",
    },
];

/// Returns every source that is not read on this machine.
pub(super) fn unread_sources() -> Vec<NotObservable> {
    let why = |source: &UnreadSource| {
        (source.absence_reason)().unwrap_or_else(|| format!("not read by weir: {}", source.reason_not_read))
    };
    UNREAD_SOURCES.iter().map(|row| NotObservable::new(row.figure, why(row))).collect()
}

fn missing_file(path: &str) -> Option<String> {
    (!std::path::Path::new(path).exists()).then(|| format!("missing: {path}"))
}

/// Returns true for "0", and not for "0-1" or "0,2".
fn is_single_node(list: &str) -> bool {
    list.trim().parse::<u32>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_one_node_is_distinguished() {
        assert!(is_single_node("0\n"));
        assert!(!is_single_node("0-1\n") && !is_single_node("0,2\n") && !is_single_node(""));
    }

    #[test]
    fn each_source_is_reported_once_with_a_reason() {
        assert!(missing_file("/no/such/file").is_some_and(|why| why.contains("/no/such/file")));
        assert_eq!(missing_file("/proc"), None);
        let reported = unread_sources();
        assert_eq!(reported.len(), UNREAD_SOURCES.len());
        for (source, missing) in UNREAD_SOURCES.iter().zip(&reported) {
            assert!(!missing.figure.is_empty() && !source.reason_not_read.is_empty());
            // An existing source is reported as not read, a missing one as absent.
            let is_not_read = missing.reason.ends_with(source.reason_not_read);
            assert_eq!(is_not_read, (source.absence_reason)().is_none(), "{missing:?}");
        }
        assert!(UNREAD_SOURCES.iter().any(|source| (source.absence_reason)().is_none()));
    }
}
