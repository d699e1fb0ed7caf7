//! Work that blocks: look-ups of hosts, programs. Each runs in a thread of its own, of which there are only
//! a few: a look-up cannot be cancelled.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::atomic::{AtomicUsize, Ordering};

use rt::tokio::sync::oneshot;

/// Maximum number of threads. Orders do one thing at a time; the others may still wait for a look-up that an
/// earlier order gave up.
const THREADS_MAX: usize = 4;

static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Slot of a thread, until it is dropped.
struct ThreadSlot;

impl ThreadSlot {
    fn acquire() -> io::Result<Self> {
        let slot = Self;
        match THREADS.fetch_add(1, Ordering::Relaxed) < THREADS_MAX {
            true => Ok(slot),
            false => Err(io::Error::other(
                "earlier work of automatic certificates still blocks: look-ups or hooks",
            )),
        }
    }
}

impl Drop for ThreadSlot {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs a closure in a thread.
///
/// # Errors
/// The closure fails, or no thread can be started.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let slot = ThreadSlot::acquire()?;
    let (done, result) = oneshot::channel();
    std::thread::Builder::new().name("acme-blocking".to_owned()).spawn(move || {
        let value = work();
        drop(slot);
        // Fails if nobody waits for the result any more.
        let _ = done.send(value);
    })?;
    result.await.unwrap_or_else(|_| Err(io::Error::other("the work was abandoned")))
}

/// Looks up the addresses of a host with a port; an address is its own.
///
/// # Errors
/// The host has no address, or the look-up failed.
pub(super) async fn look_up(authority: &str) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = authority.parse() {
        return Ok(vec![address]);
    }
    let host = authority.to_owned();
    let found = run_blocking(move || Ok(host.to_socket_addrs()?.collect::<Vec<_>>())).await?;
    match found.is_empty() {
        true => Err(io::Error::new(io::ErrorKind::NotFound, "the host has no address")),
        false => Ok(found),
    }
}
