//! Further figures of a process: context switches, bytes written, limit of descriptors,
//! proportional memory. Pure parsers; the readers keep the files open.
//!
//! Sources: proc_pid_status(5), `Documentation/filesystems/proc.rst` (`/proc/PID/io`, `limits`,
//! `smaps_rollup`).

/// Context switches of one thread (`/proc/PID/task/TID/status`; `/proc/PID/status` has those of the
/// first thread only).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ContextSwitches {
    /// The thread waited for something.
    pub voluntary: u64,
    /// Another thread preempted it.
    pub involuntary: u64,
}

/// Parses one `status` file. The thread's name, in the first line, may hold anything but a line
/// end: the kernel escapes those.
pub fn parse_switches(text: &str) -> Option<ContextSwitches> {
    // The figures are at the end.
    let mut lines = text.lines().rev();
    let involuntary = lines.find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"))?;
    let voluntary = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    Some(ContextSwitches {
        voluntary: voluntary.trim().parse().ok()?,
        involuntary: involuntary.trim().parse().ok()?,
    })
}

/// Bytes that a process has written since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IoCounters {
    /// Written by system calls, including to sockets.
    pub written_bytes: u64,
    /// Bytes to be written to a disk: counted when a page of a file becomes dirty.
    pub disk_write_bytes: u64,
}

/// Parses `/proc/PID/io`.
pub fn parse_io(text: &str) -> Option<IoCounters> {
    let figure = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    Some(IoCounters { written_bytes: figure("wchar:")?, disk_write_bytes: figure("write_bytes:")? })
}

/// Parses `/proc/PID/limits`: the soft limit of open files; `u64::MAX` is no limit.
pub fn parse_open_files_max(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_ascii_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        figure => figure.parse().ok(),
    }
}

/// Memory of a process, as summed in `smaps_rollup`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    pub resident_bytes: u64,
    /// Proportional set size in bytes: a page shared by `n` processes counts as an `n`th. The sum
    /// over forked workers is their real memory.
    pub proportional_bytes: u64,
}

/// Parses `/proc/PID/smaps_rollup`. It is empty for a process without memory of its own.
pub fn parse_memory(text: &str) -> Option<ProcessMemory> {
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kibibytes.checked_mul(1024)
    };
    Some(ProcessMemory { resident_bytes: bytes("Rss:")?, proportional_bytes: bytes("Pss:")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_in_the_last_lines() {
        let text = "Name:\tnonvoluntary_ctxt_switches: 7\nState:\tS (sleeping)\nThreads:\t1\n\
            Mems_allowed_list:\t0\nvoluntary_ctxt_switches:\t1203\nnonvoluntary_ctxt_switches:\t45\n";
        let expected = ContextSwitches { voluntary: 1203, involuntary: 45 };
        assert_eq!(parse_switches(text), Some(expected));
        // Some kernels have speculation figures behind them.
        assert_eq!(parse_switches(&format!("{text}x86_Thread_features:\t\n")), Some(expected));
        for text in ["", "voluntary_ctxt_switches:\t1\n", "nonvoluntary_ctxt_switches:\tx\n"] {
            assert_eq!(parse_switches(text), None, "{text:?}");
        }
    }

    #[test]
    fn io_is_read() {
        let text = "rchar: 6976\nwchar: 12\nsyscr: 10\nsyscw: 1\nread_bytes: 4096\n\
            write_bytes: 8192\ncancelled_write_bytes: 0\n";
        assert_eq!(parse_io(text), Some(IoCounters { written_bytes: 12, disk_write_bytes: 8192 }));
        assert_eq!(parse_io("rchar: 1\n"), None);
        assert_eq!(parse_io(&text.replace("8192", "-1")), None);
    }

    #[test]
    fn the_limit_of_open_files_is_the_soft_one() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
            Max processes             96365                96365                processes \n\
            Max open files            1024                 20000                files     \n";
        assert_eq!(parse_open_files_max(text), Some(1024));
        assert_eq!(parse_open_files_max(&text.replace("1024 ", "unlimited ")), Some(u64::MAX));
        assert_eq!(parse_open_files_max("Max processes 1 1 processes\n"), None);
    }

    #[test]
    fn memory_is_in_bytes() {
        let text = "564609751000-7fffe14cf000 ---p 00000000 00:00 0       [rollup]\n\
            Rss:                1772 kB\nPss:                 397 kB\nPss_Dirty:           116 kB\n";
        let expected = ProcessMemory { resident_bytes: 1772 * 1024, proportional_bytes: 397 * 1024 };
        assert_eq!(parse_memory(text), Some(expected));
        assert_eq!(parse_memory(""), None);
        assert_eq!(parse_memory("Rss: 99999999999999999999 kB\nPss: 1 kB\n"), None);
    }

    #[test]
    fn the_live_files_are_in_these_forms() {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/self/{file}")).unwrap();
        assert!(parse_switches(&read("status")).is_some());
        assert!(parse_open_files_max(&read("limits")).is_some());
        for (file, known) in [
            ("io", std::fs::read_to_string("/proc/self/io").map(|text| parse_io(&text).is_some())),
            (
                "smaps_rollup",
                std::fs::read_to_string("/proc/self/smaps_rollup").map(|text| parse_memory(&text).is_some()),
            ),
        ] {
            match known {
                Ok(known) => assert!(known, "{file}"),
                Err(error) => test_needs::skip(test_needs::KERNEL, format!("/proc/self/{file}: {error}")),
            }
        }
    }
}
