//! Connections that are begun and never completed: their SYN-ACKs are dropped by the packet filter
//! of the client's namespace, so that they stay half open at the server.
//!
//! Only ever towards a namespace of the same run.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, ipproto, socket_with};

/// Half-open connections that are kept at a time; the oldest go.
const KEPT_MAX: u64 = 2_000;
/// For how long each is kept, as a share of a second: the kernel would begin it anew after one
/// (`Documentation/networking/ip-sysctl.rst`, `tcp_syn_retries`).
const KEPT_S: f64 = 0.9;
/// How often a batch is begun.
const BATCHES_PER_S: u64 = 100;

/// At work; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Flood {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    /// Begins `rate_per_s` connections from `from` to `to`, in the namespace at `namespace`.
    pub(super) fn start(
        namespace: PathBuf,
        from: SocketAddr,
        to: SocketAddr,
        rate_per_s: u64,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let run = move || {
            // Without its namespace there is nothing to flood; the kit has opened it before.
            let _ = host::setup::namespace::within(&namespace, || run(from, to, rate_per_s, &told));
        };
        let thread = std::thread::Builder::new().name("weir-half-open".to_owned()).spawn(run)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has ended too.
            let _ = thread.join();
        }
    }
}

fn run(from: SocketAddr, to: SocketAddr, rate_per_s: u64, stop: &AtomicBool) {
    let mut kept: VecDeque<OwnedFd> = VecDeque::new();
    let kept_max = ((rate_per_s as f64 * KEPT_S) as u64).clamp(1, KEPT_MAX) as usize;
    let each = rate_per_s.div_ceil(BATCHES_PER_S).max(1);
    let between = Duration::from_secs(each) / u32::try_from(rate_per_s.max(1)).unwrap_or(1);
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..each {
            // One that cannot be begun (no port left) is one less in the flood.
            if let Ok(socket) = begin(from, to) {
                kept.push_back(socket);
            }
        }
        while kept.len() > kept_max {
            kept.pop_front();
        }
        std::thread::sleep(between);
    }
}

fn begin(from: SocketAddr, to: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    bind(&socket, &from)?;
    match connect(&socket, &to) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}
