//! Records of a ring buffer (perf_event_open(2), "the PERF_RECORD_* types"), for events opened by
//! [`super::event`]. Samples hold the instruction, process and thread, and the call chain.
//!
//! Pure: bytes in, values out.

/// Record read from a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PerfRecord<'a> {
    Sample(StackSample),
    /// A process has mapped an executable file.
    Mapped {
        pid: i32,
        start: u64,
        length: u64,
        offset: u64,
        path: &'a [u8],
    },
    Forked {
        pid: i32,
        parent: i32,
    },
    Executed {
        pid: i32,
        name: &'a [u8],
    },
    /// Number of samples that were lost for lack of room.
    Lost(u64),
    /// The kernel throttled the sampling because of its cost.
    Throttled,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StackSample {
    pub(super) pid: i32,
    /// Kernel call chain: the innermost first, then return addresses.
    pub(super) kernel: Vec<u64>,
    /// User call chain, the innermost first.
    pub(super) user: Vec<u64>,
}

const LOST: u32 = 2;
const COMM: u32 = 3;
const THROTTLE: u32 = 5;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const MMAP2: u32 = 10;
const LOST_SAMPLES: u32 = 13;
/// `PERF_RECORD_MISC_COMM_EXEC`.
const MISC_EXEC: u16 = 1 << 13;
/// `PERF_RECORD_MISC_CPUMODE_MASK`, and the kernel's mode in it.
const MISC_MODE: u16 = 7;
const MODE_KERNEL: u16 = 1;
/// `PERF_CONTEXT_MAX`: addresses from there on are markers for the type of the following ones.
const CONTEXT_MAX: u64 = -4095_i64 as u64;
const CONTEXT_KERNEL: u64 = -128_i64 as u64;
const CONTEXT_USER: u64 = -512_i64 as u64;

/// Parses a record; `None` for kinds of no interest, or for truncated ones.
pub(super) fn parse(bytes: &[u8]) -> Option<PerfRecord<'_>> {
    let mut fields = RecordFields(bytes);
    let kind = fields.u32()?;
    let misc = fields.u32()? as u16;
    match kind {
        SAMPLE => sample(fields, misc & MISC_MODE == MODE_KERNEL).map(PerfRecord::Sample),
        MMAP2 => {
            let (pid, _tid) = (fields.i32()?, fields.u32()?);
            let (start, length, offset) = (fields.u64()?, fields.u64()?, fields.u64()?);
            // Device, inode and its generation; access and flags.
            fields.skip(24 + 8)?;
            Some(PerfRecord::Mapped { pid, start, length, offset, path: fields.text() })
        }
        FORK => {
            let (pid, parent) = (fields.i32()?, fields.i32()?);
            (pid != parent).then_some(PerfRecord::Forked { pid, parent })
        }
        COMM if misc & MISC_EXEC != 0 => {
            let (pid, _tid) = (fields.i32()?, fields.u32()?);
            Some(PerfRecord::Executed { pid, name: fields.text() })
        }
        LOST => {
            let _id = fields.u64()?;
            Some(PerfRecord::Lost(fields.u64()?))
        }
        LOST_SAMPLES => Some(PerfRecord::Lost(fields.u64()?)),
        THROTTLE => Some(PerfRecord::Throttled),
        _ => None,
    }
}

fn sample(mut fields: RecordFields<'_>, in_kernel: bool) -> Option<StackSample> {
    let instruction = fields.u64()?;
    let pid = fields.i32()?;
    let _tid = fields.u32()?;
    let mut sample = StackSample { pid, ..StackSample::default() };
    let count = fields.u64()?;
    let mut is_kernel = in_kernel;
    let mut is_known = true;
    for _ in 0..count {
        match fields.u64()? {
            CONTEXT_KERNEL => (is_kernel, is_known) = (true, true),
            CONTEXT_USER => (is_kernel, is_known) = (false, true),
            // Addresses of a hypervisor or a guest, which cannot be named here.
            context if context >= CONTEXT_MAX => is_known = false,
            _ if !is_known => {}
            address if is_kernel => sample.kernel.push(address),
            address => sample.user.push(address),
        }
    }
    if sample.kernel.is_empty() && sample.user.is_empty() {
        let chain = if in_kernel { &mut sample.kernel } else { &mut sample.user };
        chain.push(instruction);
    }
    Some(sample)
}

/// Remaining bytes of a record.
struct RecordFields<'a>(&'a [u8]);

impl<'a> RecordFields<'a> {
    /// Returns the rest, up to its first zero.
    fn text(&self) -> &'a [u8] {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(self.0.len());
        &self.0[..end]
    }

    fn skip(&mut self, count: usize) -> Option<()> {
        self.0 = self.0.get(count..)?;
        Some(())
    }

    fn u32(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_ne_bytes(*first))
    }

    fn i32(&mut self) -> Option<i32> {
        self.u32().map(|value| value as i32)
    }

    fn u64(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a record as the kernel writes it: words of eight bytes behind the header.
    fn record(kind: u32, misc: u16, words: &[u64]) -> Vec<u8> {
        let size = (8 + words.len() * 8) as u16;
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(misc.to_ne_bytes());
        bytes.extend(size.to_ne_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes
    }

    /// Packs two 32-bit numbers in memory order.
    #[cfg(target_endian = "little")]
    fn pair(first: u32, second: u32) -> u64 {
        u64::from(first) | u64::from(second) << 32
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn a_call_chain_is_split_by_its_contexts() {
        let words = [0xffff_0001, pair(7, 8), 5, CONTEXT_KERNEL, 0xffff_0001, CONTEXT_USER, 0x10, 0x20];
        let expected = StackSample { pid: 7, kernel: vec![0xffff_0001], user: vec![0x10, 0x20] };
        let got = record(SAMPLE, MODE_KERNEL, &words);
        assert_eq!(parse(&got), Some(PerfRecord::Sample(expected)));
        let no_chain = record(SAMPLE, 2, &[0x10, pair(7, 8), 0]);
        let expected = StackSample { pid: 7, kernel: vec![], user: vec![0x10] };
        assert_eq!(parse(&no_chain), Some(PerfRecord::Sample(expected)));
        let guest = record(SAMPLE, 2, &[0x10, pair(7, 8), 4, CONTEXT_USER, 0x10, -2048_i64 as u64, 9]);
        let expected = StackSample { pid: 7, kernel: vec![], user: vec![0x10] };
        assert_eq!(parse(&guest), Some(PerfRecord::Sample(expected)));
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn mappings_forks_execs_and_losses_are_read() {
        let path = u64::from_ne_bytes(*b"/bin/a\0\0");
        let words = [pair(7, 7), 0x1000, 0x2000, 0x3000, 0, 0, 0, pair(5, 2), path];
        let mapped =
            PerfRecord::Mapped { pid: 7, start: 0x1000, length: 0x2000, offset: 0x3000, path: b"/bin/a" };
        assert_eq!(parse(&record(MMAP2, 0, &words)), Some(mapped));
        let forked = Some(PerfRecord::Forked { pid: 9, parent: 7 });
        assert_eq!(parse(&record(FORK, 0, &[pair(9, 7), pair(9, 7), 1])), forked);
        assert_eq!(parse(&record(FORK, 0, &[pair(7, 7), pair(9, 7), 1])), None);
        let name = u64::from_ne_bytes(*b"sleep\0\0\0");
        let executed = PerfRecord::Executed { pid: 7, name: b"sleep" };
        assert_eq!(parse(&record(COMM, MISC_EXEC, &[pair(7, 7), name])), Some(executed));
        assert_eq!(parse(&record(COMM, 0, &[pair(7, 7), 0])), None);
        assert_eq!(parse(&record(LOST, 0, &[1, 12])), Some(PerfRecord::Lost(12)));
        assert_eq!(parse(&record(THROTTLE, 0, &[1, 1, 1])), Some(PerfRecord::Throttled));
    }

    #[test]
    fn records_that_end_too_early_are_left_out() {
        for length in 0..24 {
            assert_eq!(parse(&record(SAMPLE, 2, &[1, 2, 9])[..length.min(8)]), None);
        }
        assert_eq!(parse(&record(SAMPLE, 2, &[1, 2, u64::MAX, 4])), None);
        assert_eq!(parse(&record(MMAP2, 2, &[1, 2])), None);
        assert_eq!(parse(&record(99, 0, &[])), None);
    }
}
