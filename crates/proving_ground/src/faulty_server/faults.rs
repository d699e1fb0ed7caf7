//! Work of one response: the injected faults.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::config::FaultConfig;

/// `O_DSYNC`: a write returns when its bytes are on the disk (open(2)).
const O_DSYNC: i32 = rustix::fs::OFlags::DSYNC.bits() as i32;
/// Log line in the usual format of a server.
const LOG_LINE: &[u8] =
    b"198.18.1.1 - - [22/Nov/2026:00:00:00 +0000] \"GET / HTTP/1.1\" 200 100 \"-\" \"-\"\n";
/// Number of times that a response takes the lock: a real server needs it for several accesses.
const LOCKS_PER_RESPONSE: u32 = 4;
/// Smallest and largest allocation of a response, in bytes.
const ALLOCATION_BYTES: (usize, usize) = (24, 1200);

/// State that the responses of all threads have in common.
#[derive(Debug)]
pub(super) struct ServerState {
    pub(super) config: FaultConfig,
    clock: fn() -> u64,
    #[expect(clippy::disallowed_types, reason = "the contended lock is the injected fault")]
    lock: std::sync::Mutex<u64>,
    log: Option<File>,
    data: Option<RandomReadFile>,
    pipe: Option<io::PipeWriter>,
    served: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestOutcome {
    Success,
    Error,
    Dropped,
}

impl ServerState {
    pub(super) fn new(config: FaultConfig, clock: fn() -> u64) -> io::Result<Self> {
        let log = config.log.as_ref().map(|path| {
            let mut options = File::options();
            options.create(true).append(true);
            if config.log_dsync {
                options.custom_flags(O_DSYNC);
            }
            options
                .open(path)
                .map_err(|error| io::Error::new(error.kind(), format!("log {}: {error}", path.display())))
        });
        let pipe = config.log_pipe_bytes_per_s.map(slow_pipe).transpose()?;
        Ok(Self {
            log: log.transpose()?,
            data: config
                .data
                .as_ref()
                .map(|(path, bytes)| RandomReadFile::create(path, *bytes))
                .transpose()?,
            pipe,
            config,
            clock,
            lock: Default::default(),
            served: AtomicU64::new(0),
        })
    }

    /// Does the work of one response on the calling thread, and returns how the request ends.
    pub(super) fn inject_faults(&self) -> io::Result<RequestOutcome> {
        let config = &self.config;
        if config.delay_ns > 0 {
            std::thread::sleep(Duration::from_nanos(config.delay_ns));
        }
        self.burn(config.burn_ns);
        if config.syscalls > 0 {
            read_zeros(config.syscalls)?;
        }
        for _ in 0..if config.lock_ns > 0 { LOCKS_PER_RESPONSE } else { 0 } {
            // A thread that panicked while it held the lock has not damaged the number.
            let mut guard = self.lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            self.burn(config.lock_ns / u64::from(LOCKS_PER_RESPONSE));
            *guard += 1;
        }
        if config.allocations > 0 {
            allocate(config.allocations);
        }
        if let Some(data) = self.data.as_ref() {
            let number = self.served.load(Ordering::Relaxed);
            data.read(number.wrapping_mul(u64::from(config.pages)), config.pages)?;
        }
        if let Some(mut log) = self.log.as_ref() {
            log.write_all(LOG_LINE)?;
        }
        if let Some(mut pipe) = self.pipe.as_ref() {
            pipe.write_all(LOG_LINE)?;
        }
        let number = self.served.fetch_add(1, Ordering::Relaxed);
        Ok(request_outcome(number, config.error_fraction, config.drop_fraction))
    }

    /// Uses a CPU for `length_ns`. The clock measures the length, so that it is the same on any
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

/// Size of a page in the kernel's page cache.
const PAGE_BYTES: u64 = 4096;

/// A file that is read at random. If it is larger than memory, pages have to be read from the disk.
#[derive(Debug)]
struct RandomReadFile {
    file: File,
    pages: u64,
}

impl RandomReadFile {
    fn create(path: &Path, bytes: u64) -> io::Result<Self> {
        let explain =
            |error: io::Error| io::Error::new(error.kind(), format!("data {}: {error}", path.display()));
        let mut file =
            File::options().read(true).write(true).create(true).truncate(true).open(path).map_err(explain)?;
        let pages = bytes.div_ceil(PAGE_BYTES).max(1);
        let mut page = [0xa5; PAGE_BYTES as usize];
        for number in 0..pages {
            page[..8].copy_from_slice(&number.to_le_bytes());
            file.write_all(&page).map_err(explain)?;
        }
        file.sync_all().map_err(explain)?;
        Ok(Self { file, pages })
    }

    /// Reads `pages` pages at different offsets; `seed` makes them differ from the previous ones.
    fn read(&self, seed: u64, pages: u32) -> io::Result<()> {
        let mut page = [0; PAGE_BYTES as usize];
        for index in 0..u64::from(pages) {
            let mixed = (seed + index).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            self.file.read_exact_at(&mut page, mixed % self.pages * PAGE_BYTES)?;
        }
        black_box(&page);
        Ok(())
    }
}

/// Spreads failures evenly: a request fails if the sum of a fraction passes an integer at this request.
fn request_outcome(number: u64, error_fraction: f64, drop_fraction: f64) -> RequestOutcome {
    let passes = |fraction: f64| {
        let before = (number as f64 * fraction).floor();
        ((number + 1) as f64 * fraction).floor() > before
    };
    if passes(drop_fraction) {
        RequestOutcome::Dropped
    } else if passes(error_fraction) {
        RequestOutcome::Error
    } else {
        RequestOutcome::Success
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
    let (min_bytes, max_bytes) = ALLOCATION_BYTES;
    let mut blocks: Vec<Box<[u8]>> = Vec::new();
    for index in 0..times as usize {
        let bytes = min_bytes + index * 97 % (max_bytes - min_bytes);
        let mut block = Vec::with_capacity(bytes);
        block.push(index as u8);
        blocks.push(black_box(block.into_boxed_slice()));
    }
    drop(black_box(blocks));
}

/// Returns a pipe with a slow reader, like a log daemon that is behind.
fn slow_pipe(bytes_per_s: u64) -> io::Result<io::PipeWriter> {
    const READS_PER_S: u64 = 50;
    let (mut reader, writer) = io::pipe()?;
    let bytes_per_read =
        usize::try_from(bytes_per_s.div_ceil(READS_PER_S)).unwrap_or(usize::MAX).min(1 << 20);
    std::thread::Builder::new().name("slow-log".to_owned()).spawn(move || {
        let mut buffer = vec![0; bytes_per_read.max(1)];
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
        let directory = tempfile::tempdir().unwrap();
        let data = RandomReadFile::create(&directory.path().join("data"), 10_000).unwrap();
        assert_eq!((data.pages, data.file.metadata().unwrap().len()), (3, 3 * PAGE_BYTES));
        for seed in 0..100 {
            data.read(seed, 5).unwrap();
        }
        assert!(RandomReadFile::create(Path::new("/no/such/data"), 1).is_err());
    }

    #[test]
    fn failures_are_spread_evenly() {
        let count = |fail, drop_fraction, expected| {
            (0..1000).filter(|&number| request_outcome(number, fail, drop_fraction) == expected).count()
        };
        assert_eq!(count(0.0, 0.0, RequestOutcome::Success), 1000);
        assert_eq!(count(0.05, 0.0, RequestOutcome::Error), 50);
        assert_eq!(count(0.0, 0.1, RequestOutcome::Dropped), 100);
    }
}
