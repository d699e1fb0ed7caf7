//! Figures of this process, read on demand: memory, threads, descriptors, CPU time. A figure that
//! the kernel does not report is 0.

use std::fs;

use crate::limits::descriptor_limit;

/// Resource use of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessStats {
    pub resident_bytes: u64,
    pub virtual_bytes: u64,
    pub threads: u64,
    pub descriptors: u64,
    pub descriptors_max: u64,
    pub cpu_ns: u64,
}

impl ProcessStats {
    /// Reads the figures. Threads whose name starts with `own_table_prefix` have a descriptor table
    /// each ([`crate::cores::FdTable::Unshared`]); the others share one.
    #[must_use]
    pub fn read(own_table_prefix: &str) -> Self {
        let page = rustix::param::page_size() as u64;
        let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let mut pages = statm.split(' ').map_while(|field| field.parse::<u64>().ok());
        let (virtual_pages, resident_pages) = (pages.next(), pages.next());
        let mut stats = Self {
            virtual_bytes: virtual_pages.unwrap_or_default() * page,
            resident_bytes: resident_pages.unwrap_or_default() * page,
            descriptors: count_fds("/proc/self/fd"),
            descriptors_max: descriptor_limit(),
            cpu_ns: crate::clock::process_cpu_ns(),
            ..Self::default()
        };
        for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            stats.threads += 1;
            let path = task.path();
            let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
            if name.starts_with(own_table_prefix) {
                stats.descriptors += count_fds(&path.join("fd").to_string_lossy());
            }
        }
        stats
    }
}

fn count_fds(directory: &str) -> u64 {
    // Since Linux 6.2 the size of the directory is their number (proc(5)).
    let size = fs::metadata(directory).map_or(0, |metadata| metadata.len());
    if size > 0 { size } else { fs::read_dir(directory).map_or(0, |files| files.count() as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_those_of_this_process() {
        let stats = ProcessStats::read("no thread has this name");
        assert!(stats.resident_bytes > 1 << 16 && stats.virtual_bytes >= stats.resident_bytes);
        assert!(stats.threads >= 1 && stats.descriptors >= 3);
        assert!(stats.descriptors_max >= stats.descriptors);
    }
}
