//! The work of one answer: what a server is ill of.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Illness;

/// `O_DSYNC`: a write returns when its bytes are on the disk (open(2)).
const O_DSYNC: i32 = rustix::fs::OFlags::DSYNC.bits() as i32;
/// A line of the log, as a server writes them.
const LINE: &[u8] =
    b"198.18.1.1 - - [22/Nov/2026:00:00:00 +0000] \"GET / HTTP/1.1\" 200 100 \"-\" \"-\"\n";
/// How often an answer takes the lock: a server has more than one thing to look up under it.
const LOCK_TIMES: u32 = 4;
/// Smallest and largest allocation of an answer, in bytes.
const ALLOCATION_BYTES: (usize, usize) = (24, 1200);

/// What the answers of all threads share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) illness: Illness,
    clock: fn() -> u64,
    /// The lock that is the illness.
    #[expect(
        clippy::disallowed_types,
        reason = "a lock that everybody waits for is what is shown"
    )]
    lock: std::sync::Mutex<u64>,
    log: Option<File>,
    data: Option<Data>,
    pipe: Option<io::PipeWriter>,
    served: AtomicU64,
}

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Answer,
    Failure,
    Nothing,
}

impl Shared {
    pub(super) fn new(illness: Illness, clock: fn() -> u64) -> io::Result<Self> {
        let log = illness.log.as_ref().map(|path| {
            let mut options = File::options();
            options.create(true).append(true);
            if illness.log_dsync {
                options.custom_flags(O_DSYNC);
            }
            options.open(path).map_err(|error| {
                io::Error::new(error.kind(), format!("log {}: {error}", path.display()))
            })
        });
        let pipe = illness.log_pipe_bytes_per_s.map(slow_pipe).transpose()?;
        Ok(Self {
            log: log.transpose()?,
            data: illness
                .data
                .as_ref()
                .map(|(path, bytes)| Data::make(path, *bytes))
                .transpose()?,
            pipe,
            illness,
            clock,
            lock: Default::default(),
            served: AtomicU64::new(0),
        })
    }

    /// Does the work of one answer on the calling thread, and says how the request ends.
    pub(super) fn work(&self) -> io::Result<Ending> {
        let ill = &self.illness;
        if ill.delay_ns > 0 {
            std::thread::sleep(Duration::from_nanos(ill.delay_ns));
        }
        self.burn(ill.burn_ns);
        if ill.syscalls > 0 {
            read_zeros(ill.syscalls)?;
        }
        for _ in 0..if ill.lock_ns > 0 { LOCK_TIMES } else { 0 } {
            // A thread that panicked while it held the lock has not broken a number.
            let mut held = self.lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            self.burn(ill.lock_ns / u64::from(LOCK_TIMES));
            *held += 1;
        }
        if ill.allocations > 0 {
            allocate(ill.allocations);
        }
        if let Some(data) = self.data.as_ref() {
            let number = self.served.load(Ordering::Relaxed);
            data.read(number.wrapping_mul(u64::from(ill.pages)), ill.pages)?;
        }
        if let Some(mut log) = self.log.as_ref() {
            log.write_all(LINE)?;
        }
        if let Some(mut pipe) = self.pipe.as_ref() {
            pipe.write_all(LINE)?;
        }
        let number = self.served.fetch_add(1, Ordering::Relaxed);
        Ok(ending(number, ill.fail_share, ill.drop_share))
    }

    /// Uses a processor for so long. The clock is what says how long, so that it is the same on any
    /// machine; most of the time goes into arithmetic.
    fn burn(&self, length_ns: u64) {
        if length_ns == 0 {
            return;
        }
        let end_ns = (self.clock)() + length_ns;
        let mut state = end_ns;
        while (self.clock)() < end_ns {
            for _ in 0..200 {
                state = black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
            }
        }
    }
}

/// A page, as the kernel caches files.
const PAGE_BYTES: u64 = 4096;

/// A file that is read at random: more than fits into memory has to come from the disk again.
#[derive(Debug)]
struct Data {
    file: File,
    pages: u64,
}

impl Data {
    /// Makes it, with bytes that are really on the disk.
    fn make(path: &Path, bytes: u64) -> io::Result<Self> {
        let explain = |error: io::Error| {
            io::Error::new(error.kind(), format!("data {}: {error}", path.display()))
        };
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .map_err(explain)?;
        let pages = bytes.div_ceil(PAGE_BYTES).max(1);
        let mut page = [0xa5; PAGE_BYTES as usize];
        for number in 0..pages {
            page[..8].copy_from_slice(&number.to_le_bytes());
            file.write_all(&page).map_err(explain)?;
        }
        file.sync_all().map_err(explain)?;
        Ok(Self { file, pages })
    }

    /// Reads so many pages, each somewhere else; `seed` makes them differ from the last ones.
    fn read(&self, seed: u64, pages: u32) -> io::Result<()> {
        let mut page = [0; PAGE_BYTES as usize];
        for at in 0..u64::from(pages) {
            let mixed = (seed + at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            self.file.read_exact_at(&mut page, mixed % self.pages * PAGE_BYTES)?;
        }
        black_box(&page);
        Ok(())
    }
}

/// Spreads failures evenly: the request at which a share's sum passes a whole number fails.
fn ending(number: u64, fail_share: f64, drop_share: f64) -> Ending {
    let passes = |share: f64| {
        let before = (number as f64 * share).floor();
        ((number + 1) as f64 * share).floor() > before
    };
    if passes(drop_share) {
        Ending::Nothing
    } else if passes(fail_share) {
        Ending::Failure
    } else {
        Ending::Answer
    }
}

fn read_zeros(times: u32) -> io::Result<()> {
    let mut zeros = File::open("/dev/zero")?;
    let mut buffer = [0; 64];
    for _ in 0..times {
        zeros.read_exact(&mut buffer)?;
    }
    black_box(&buffer);
    Ok(())
}

fn allocate(times: u32) {
    let (least, most) = ALLOCATION_BYTES;
    let mut held: Vec<Box<[u8]>> = Vec::new();
    for at in 0..times as usize {
        let bytes = least + at * 97 % (most - least);
        let mut block = Vec::with_capacity(bytes);
        block.push(at as u8);
        held.push(black_box(block.into_boxed_slice()));
    }
    drop(black_box(held));
}

/// A pipe whose other end reads slowly, as a log daemon that is behind does.
fn slow_pipe(bytes_per_s: u64) -> io::Result<io::PipeWriter> {
    /// How often it reads.
    const READS_PER_S: u64 = 50;
    let (mut reader, writer) = io::pipe()?;
    let each =
        usize::try_from(bytes_per_s.div_ceil(READS_PER_S)).unwrap_or(usize::MAX).min(1 << 20);
    std::thread::Builder::new().name("slow-log".to_owned()).spawn(move || {
        let mut buffer = vec![0; each.max(1)];
        while reader.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {
            std::thread::sleep(Duration::from_secs(1) / READS_PER_S as u32);
        }
    })?;
    Ok(writer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_made_and_read_anywhere() {
        let folder = tempfile::tempdir().unwrap();
        let data = Data::make(&folder.path().join("data"), 10_000).unwrap();
        assert_eq!((data.pages, data.file.metadata().unwrap().len()), (3, 3 * PAGE_BYTES));
        for seed in 0..100 {
            data.read(seed, 5).unwrap();
        }
        assert!(Data::make(Path::new("/no/such/data"), 1).is_err());
    }

    #[test]
    fn failures_are_spread_evenly() {
        let count = |fail, dropped, wanted| {
            (0..1000).filter(|&number| ending(number, fail, dropped) == wanted).count()
        };
        assert_eq!(count(0.0, 0.0, Ending::Answer), 1000);
        assert_eq!(count(0.05, 0.0, Ending::Failure), 50);
        assert_eq!(count(0.0, 0.1, Ending::Nothing), 100);
    }
}
