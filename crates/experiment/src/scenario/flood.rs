//! Connections that are begun and never completed. The packet filter of the client's namespace
//! drops their SYN-ACKs, so that they stay half open at the server.
//!
//! Targets are always in a namespace of the same run.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, ipproto, socket_with};

/// Maximum number of half-open connections at a time; the oldest are closed.
const OPEN_MAX: u64 = 2_000;
/// Lifetime of each connection in seconds: the kernel would retry it after one second
/// (`Documentation/networking/ip-sysctl.rst`, `tcp_syn_retries`).
const LIFETIME_S: f64 = 0.9;
const BATCHES_PER_S: u64 = 100;

/// Running flood; it ends when this value is dropped.
#[derive(Debug)]
pub(super) struct HalfOpenFlood {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl HalfOpenFlood {
    /// Starts connections from `from` to `to` at `rate_per_s`, in the namespace at `namespace`.
    pub(super) fn start(
        namespace: PathBuf,
        from: SocketAddr,
        to: SocketAddr,
        rate_per_s: u64,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stop_flag = Arc::clone(&stop);
        let run = move || {
            // An error means that the namespace has gone: `Testbed` opened it earlier.
            let _ = host::sandbox::namespace::run_in_netns(&namespace, || {
                run_flood(from, to, rate_per_s, &stop_flag)
            });
        };
        let thread = std::thread::Builder::new().name("weir-half-open".to_owned()).spawn(run)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for HalfOpenFlood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has ended too.
            let _ = thread.join();
        }
    }
}

fn run_flood(from: SocketAddr, to: SocketAddr, rate_per_s: u64, stop: &AtomicBool) {
    let mut open: VecDeque<OwnedFd> = VecDeque::new();
    let kept_max = ((rate_per_s as f64 * LIFETIME_S) as u64).clamp(1, OPEN_MAX) as usize;
    let each = rate_per_s.div_ceil(BATCHES_PER_S).max(1);
    let between = Duration::from_secs(each) / u32::try_from(rate_per_s.max(1)).unwrap_or(1);
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..each {
            // A connection that cannot be begun (no free port) is left out.
            if let Ok(socket) = start_connection(from, to) {
                open.push_back(socket);
            }
        }
        while open.len() > kept_max {
            open.pop_front();
        }
        std::thread::sleep(between);
    }
}

fn start_connection(from: SocketAddr, to: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    bind(&socket, &from)?;
    match connect(&socket, &to) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}
