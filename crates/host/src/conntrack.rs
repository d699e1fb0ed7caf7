//! Connection tracking: how full its table is and what it dropped.
//!
//! Sources: `/proc/PID/net/stat/nf_conntrack` (`net/netfilter/nf_conntrack_standalone.c`; hexadecimal,
//! one line a processor, columns named in the first line, which differ between kernels) and
//! `net.netfilter.nf_conntrack_{count,max}` (`Documentation/networking/nf_conntrack-sysctl.rst`). All
//! are those of the namespace that a process is in; the bound is the machine's.

use crate::namespace;
use crate::source::{NotObservable, Source};
use record::observed::ConntrackUse;
use std::fs::File;

const WHAT: &str = "connection tracking";

/// What was counted since the module was loaded, over all processors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets dropped: no room, or an insertion that failed.
    pub drop: u64,
    /// Entries thrown out to make room.
    pub early_drop: u64,
    /// Insertions that failed.
    pub insert_failed: u64,
}

/// Parses the counts. `None` when a column is missing or a line is shorter than the first.
#[must_use]
pub fn parse_counts(text: &str) -> Option<Counts> {
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
    Some(Counts { drop: sums[0], early_drop: sums[1], insert_failed: sums[2] })
}

/// The files of one namespace, kept open.
#[derive(Debug)]
pub struct Reader {
    counts: Source,
    entries: Source,
    entries_max: Source,
    last: Option<Counts>,
}

impl Reader {
    /// Opens them in the network namespace that process `pid` is in. An error where the kernel's
    /// module is not loaded.
    pub fn open(pid: i32) -> Result<Self, NotObservable> {
        const FOLDER: &str = "/proc/sys/net/netfilter";
        let counts = Source::open(WHAT, format!("/proc/{pid}/net/stat/nf_conntrack"))?;
        let open = |name: &str| {
            let path = format!("{FOLDER}/{name}");
            let file = File::open(&path).map_err(|error| NotObservable::io(WHAT, &path, &error))?;
            Ok(Source::of(WHAT, path, file))
        };
        let both = || Ok((open("nf_conntrack_count")?, open("nf_conntrack_max")?));
        let (entries, entries_max) = namespace::in_network_of(pid, WHAT, both)??;
        Ok(Self { counts, entries, entries_max, last: None })
    }

    /// Reads them, with the rates since the last reading; none the first time.
    pub fn sample(&mut self, seconds: f64) -> Result<Option<ConntrackUse>, NotObservable> {
        let counts = parse_counts(&self.counts.read()?);
        let counts = counts.ok_or_else(|| self.counts.bad_form())?;
        let entries = figure(&mut self.entries)?;
        let entries_max = figure(&mut self.entries_max)?;
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

fn figure(source: &mut Source) -> Result<u64, NotObservable> {
    let parsed = source.read()?.trim().parse();
    parsed.map_err(|_| source.bad_form())
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
    fn processors_are_added_up() {
        let expected = Counts { drop: 301, early_drop: 2, insert_failed: 1 };
        assert_eq!(parse_counts(TEXT), Some(expected));
        // Linux 4.x had other columns before them.
        let old = "entries  searched found new invalid ignore delete delete_list insert insert_failed drop early_drop\n\
            1 2 3 4 5 6 7 8 9 a b c\n";
        let expected = Counts { drop: 11, early_drop: 12, insert_failed: 10 };
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
        match Reader::open(std::process::id() as i32) {
            Ok(mut reader) => {
                assert_eq!(reader.sample(1.0).unwrap(), None);
                assert!(reader.sample(1.0).unwrap().unwrap().entries_max > 0);
            }
            Err(missing) => println!("skipped: {missing}"),
        }
    }
}
