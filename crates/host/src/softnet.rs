//! Receive path before the protocols, by CPU: `/proc/net/softnet_stat`.
//!
//! It is the machine's, the same in each network namespace. Interfaces are elsewhere.
//!
//! Source: `net/core/net-procfs.c`, `softnet_seq_show`. The text has no heading; columns were added
//! over time: 9 before Linux 2.6.35, `received_rps` (10), the flow limit (11, Linux 3.11), the
//! length of the backlog and the CPU (12 and 13, Linux 5.14). Counts have 32 bits and wrap around
//! to 0 after 4,294,967,295.

use crate::kernel_file::{KernelFile, NotObservable};

/// Counts of one CPU since boot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SoftnetRow {
    /// The CPU; if the kernel does not report it, the number of the row, which is wrong behind an
    /// offline CPU.
    pub cpu: u32,
    pub processed: u32,
    /// Packets dropped because the backlog was full.
    pub dropped: u32,
    /// Times that packets were left because the budget of time or packets was used up.
    pub time_squeeze: u32,
    /// Times that another CPU woke this one to process packets (RPS).
    pub received_rps: u32,
    /// Packets dropped by the flow limit, if the kernel reports it.
    pub flow_limited: Option<u32>,
    /// Packets waiting in the backlog now, if the kernel reports it.
    pub backlog: Option<u32>,
}

impl SoftnetRow {
    /// Returns the counts since `earlier`, with the current backlog.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            cpu: self.cpu,
            processed: self.processed.wrapping_sub(earlier.processed),
            dropped: self.dropped.wrapping_sub(earlier.dropped),
            time_squeeze: self.time_squeeze.wrapping_sub(earlier.time_squeeze),
            received_rps: self.received_rps.wrapping_sub(earlier.received_rps),
            flow_limited: self
                .flow_limited
                .zip(earlier.flow_limited)
                .map(|(now, then)| now.wrapping_sub(then)),
            backlog: self.backlog,
        }
    }
}

/// Parses the text into `rows`, reusing their memory. `None` if a row has fewer than three columns
/// or a column is not hexadecimal.
pub fn parse_into(text: &str, rows: &mut Vec<SoftnetRow>) -> Option<()> {
    rows.clear();
    for (row, line) in text.lines().enumerate() {
        let mut columns = [None; 13];
        for (column, field) in columns.iter_mut().zip(line.split_ascii_whitespace()) {
            *column = Some(u32::from_str_radix(field, 16).ok()?);
        }
        rows.push(SoftnetRow {
            cpu: columns[12].unwrap_or(row as u32),
            processed: columns[0]?,
            dropped: columns[1]?,
            time_squeeze: columns[2]?,
            received_rps: columns[9].unwrap_or(0),
            flow_limited: columns[10],
            backlog: columns[11],
        });
    }
    (!rows.is_empty()).then_some(())
}

/// `/proc/net/softnet_stat`, kept open.
#[derive(Debug)]
pub struct SoftnetReader {
    file: KernelFile,
    last: Vec<SoftnetRow>,
}

impl SoftnetReader {
    pub fn open() -> Result<Self, NotObservable> {
        let file = KernelFile::open("packets per CPU", "/proc/net/softnet_stat")?;
        Ok(Self { file, last: Vec::new() })
    }

    /// Reads all CPUs. The value lives until the next sample.
    pub fn sample(&mut self) -> Result<&[SoftnetRow], NotObservable> {
        let parsed = parse_into(&self.file.read()?, &mut self.last);
        parsed.ok_or_else(|| self.file.bad_format())?;
        Ok(&self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<Vec<SoftnetRow>> {
        let mut rows = Vec::new();
        parse_into(text, &mut rows).map(|()| rows)
    }

    #[test]
    fn a_new_kernels_columns_are_read() {
        let text = "\
00000012 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000
0000145f 00000002 00000003 00000000 00000000 00000000 00000000 00000000 00000000 0001210a 00000004 00000005 00000003 00000005 00000000
";
        let rows = parse(text).unwrap();
        let (flow_limited, backlog) = (Some(0), Some(0));
        let first = SoftnetRow { processed: 18, flow_limited, backlog, ..SoftnetRow::default() };
        assert_eq!(rows[0], first);
        let expected = SoftnetRow {
            cpu: 3,
            processed: 5215,
            dropped: 2,
            time_squeeze: 3,
            received_rps: 73_994,
            flow_limited: Some(4),
            backlog: Some(5),
        };
        assert_eq!(rows[1], expected);
    }

    #[test]
    fn an_old_kernels_columns_are_read() {
        let nine = "000a 0001 0002 0000 0000 0000 0000 0000 0000\n".repeat(2);
        let rows = parse(&nine).unwrap();
        assert_eq!((rows[1].cpu, rows[1].processed, rows[1].received_rps), (1, 10, 0));
        let eleven = "0000000a 0 0 0 0 0 0 0 0 00000007 00000001\n";
        let row = parse(eleven).unwrap()[0];
        assert_eq!((row.received_rps, row.flow_limited, row.backlog), (7, Some(1), None));
    }

    #[test]
    fn counts_start_again() {
        let then = SoftnetRow { processed: u32::MAX - 4, dropped: 3, ..SoftnetRow::default() };
        let (processed, backlog) = (5, Some(9));
        let now = SoftnetRow { processed, dropped: 3, backlog, ..SoftnetRow::default() };
        let between = now.since(&then);
        assert_eq!((between.processed, between.dropped, between.backlog), (10, 0, Some(9)));
    }

    #[test]
    fn text_of_another_form_is_refused() {
        for text in ["", "1 2\n", "x 1 2\n", "1 2 3\n\n", "100000000 1 2\n"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_live_file_is_read() {
        match SoftnetReader::open() {
            Ok(mut reader) => assert!(!reader.sample().unwrap().is_empty()),
            Err(missing) => test_needs::skip(test_needs::KERNEL, missing),
        }
    }
}
