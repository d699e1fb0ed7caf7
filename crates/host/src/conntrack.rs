//! Connection tracking: fill level of the table, and drops.
//!
//! Sources: `/proc/PID/net/stat/nf_conntrack` (`net/netfilter/nf_conntrack_standalone.c`;
//! hexadecimal, one line per CPU, columns named in the first line, which differ between kernels)
//! and `net.netfilter.nf_conntrack_{count,max}`
//! (`Documentation/networking/nf_conntrack-sysctl.rst`). All counts are those of a process's
//! network namespace; the limit is the machine's.

use crate::kernel_file::{KernelFile, NotObservable};
use crate::namespace;
use record::observed::ConntrackUse;
use std::fs::File;

const FIGURE: &str = "connection tracking";

/// Counts since the module was loaded, over all CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConntrackCounts {
    /// Packets dropped: the table was full, or an insertion failed.
    pub drop: u64,
    /// Entries evicted to make room.
    pub early_drop: u64,
    pub insert_failed: u64,
}

/// Parses the counts. `None` when a column is missing or a line is shorter than the first.
pub fn parse_counts(text: &str) -> Option<ConntrackCounts> {
    let mut lines = text.lines();
    let heading = lines.next()?;
    let column = |name| heading.split_ascii_whitespace().position(|known| known == name);
    let columns = [column("drop")?, column("early_drop")?, column("insert_failed")?];
    let mut sums = [0_u64; 3];
    for line in lines {
        for (sum, column) in sums.iter_mut().zip(columns) {
            let field = line.split_ascii_whitespace().nth(column)?;
            *sum += u64::from_str_radix(field, 16).ok()?;
        }
    }
    Some(ConntrackCounts { drop: sums[0], early_drop: sums[1], insert_failed: sums[2] })
}

/// Open files of one namespace.
#[derive(Debug)]
pub struct ConntrackReader {
    counts: KernelFile,
    entries: KernelFile,
    entries_max: KernelFile,
    last: Option<ConntrackCounts>,
}

impl ConntrackReader {
    /// Opens the files in the network namespace of process `pid`. Fails if the kernel module is not
    /// loaded.
    pub fn open(pid: i32) -> Result<Self, NotObservable> {
        const DIRECTORY: &str = "/proc/sys/net/netfilter";
        let counts = KernelFile::open(FIGURE, format!("/proc/{pid}/net/stat/nf_conntrack"))?;
        let open = |name: &str| {
            let path = format!("{DIRECTORY}/{name}");
            let file = File::open(&path).map_err(|error| NotObservable::io(FIGURE, &path, &error))?;
            Ok(KernelFile::from_file(FIGURE, path, file))
        };
        let open_both = || Ok((open("nf_conntrack_count")?, open("nf_conntrack_max")?));
        let (entries, entries_max) = namespace::run_in_netns_of(pid, FIGURE, open_both)??;
        Ok(Self { counts, entries, entries_max, last: None })
    }

    /// Reads the files, with the rates since the last reading; `None` the first time.
    pub fn sample(&mut self, seconds: f64) -> Result<Option<ConntrackUse>, NotObservable> {
        let counts = parse_counts(&self.counts.read()?);
        let counts = counts.ok_or_else(|| self.counts.bad_format())?;
        let entries = read_u64(&mut self.entries)?;
        let entries_max = read_u64(&mut self.entries_max)?;
        let earlier = self.last.replace(counts);
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        Ok(earlier.map(|then| ConntrackUse {
            entries,
            entries_max,
            drops_per_s: rate(counts.drop, then.drop),
            early_drops_per_s: rate(counts.early_drop, then.early_drop),
            insert_failures_per_s: rate(counts.insert_failed, then.insert_failed),
        }))
    }
}

fn read_u64(file: &mut KernelFile) -> Result<u64, NotObservable> {
    let parsed = file.read()?.trim().parse();
    parsed.map_err(|_| file.bad_format())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
entries  clashres found new invalid ignore delete chainlength insert insert_failed drop early_drop icmp_error  expect_new expect_create expect_delete search_restart
00000032  00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000001 0000012c 00000002 00000000  00000000 00000000 00000000 00000000
00000032  00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000001 00000000 00000000  00000000 00000000 00000000 00000000
";

    #[test]
    fn cpus_are_added_up() {
        let expected = ConntrackCounts { drop: 301, early_drop: 2, insert_failed: 1 };
        assert_eq!(parse_counts(TEXT), Some(expected));
        // Linux 4.x has other columns before these.
        let old = "entries  searched found new invalid ignore delete delete_list insert insert_failed drop early_drop\n\
            1 2 3 4 5 6 7 8 9 a b c\n";
        let expected = ConntrackCounts { drop: 11, early_drop: 12, insert_failed: 10 };
        assert_eq!(parse_counts(old), Some(expected));
    }

    #[test]
    fn text_of_another_form_is_refused() {
        for text in ["", "entries drop\n1 2\n", "insert_failed drop early_drop\n1 2\n"] {
            assert_eq!(parse_counts(text), None, "{text:?}");
        }
        assert_eq!(parse_counts(&TEXT.replace("0000012c", "0000012x")), None);
    }

    #[test]
    fn the_live_table_is_read() {
        match ConntrackReader::open(std::process::id() as i32) {
            Ok(mut reader) => {
                assert_eq!(reader.sample(1.0).unwrap(), None);
                assert!(reader.sample(1.0).unwrap().unwrap().entries_max > 0);
            }
            Err(missing) => test_needs::skip(test_needs::KERNEL, missing),
        }
    }
}
