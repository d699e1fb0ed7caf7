//! Shutdown in two stages: finish requests in flight, then stop at once. SIGTERM or SIGINT starts
//! the first stage, a second signal the other.

use std::io;

use tokio::sync::watch;

/// Stage of the shutdown. It only goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DrainStage {
    /// Normal operation.
    Running,
    /// Draining: no new work; work in flight is finished.
    Draining,
    /// Abort: everything is dropped.
    Abort,
}

/// Shutdown state shared by all cores. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Drain {
    sender: watch::Sender<DrainStage>,
}

/// View of a [`Drain`] for one core.
#[derive(Clone, Debug)]
pub struct DrainWatch {
    receiver: watch::Receiver<DrainStage>,
}

impl Default for Drain {
    fn default() -> Self {
        Self { sender: watch::Sender::new(DrainStage::Running) }
    }
}

impl Drain {
    /// Returns a view for one core or task.
    pub fn watch(&self) -> DrainWatch {
        DrainWatch { receiver: self.sender.subscribe() }
    }

    /// Advances to `stage`; never goes back.
    pub fn advance(&self, stage: DrainStage) {
        self.sender.send_if_modified(|current| {
            let is_forward = stage > *current;
            if is_forward {
                *current = stage;
            }
            is_forward
        });
    }
}

impl DrainWatch {
    pub fn stage(&self) -> DrainStage {
        *self.receiver.borrow()
    }

    /// Waits until `stage` is reached, and returns the stage at that time.
    pub async fn wait_for(&mut self, stage: DrainStage) -> DrainStage {
        match self.receiver.wait_for(|current| *current >= stage).await {
            Ok(current) => *current,
            // The sender is gone: an orderly shutdown is no longer possible.
            Err(_) => DrainStage::Abort,
        }
    }
}

/// Signal callbacks. They run in the signal thread, one after the other: while one runs, no other
/// signal is processed.
pub struct SignalHandlers {
    /// SIGHUP: reload the config, and reopen the logs.
    pub on_reload: Box<dyn FnMut() + Send>,
    /// SIGUSR1: reopen the logs.
    pub on_reopen: Box<dyn FnMut() + Send>,
    /// SIGUSR2, in [`SignalSet::TerminationAndUser`].
    pub on_user2: Box<dyn FnMut() + Send>,
    /// First SIGTERM or SIGINT, once the drain has started.
    pub on_drain: Box<dyn FnMut() + Send>,
}

impl SignalHandlers {
    /// Returns callbacks that act only at the first SIGTERM or SIGINT.
    pub fn with_on_drain(drained: impl FnMut() + Send + 'static) -> Self {
        Self {
            on_reload: Box::new(|| ()),
            on_reopen: Box::new(|| ()),
            on_user2: Box::new(|| ()),
            on_drain: Box::new(drained),
        }
    }
}

impl std::fmt::Debug for SignalHandlers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignalHandlers").finish_non_exhaustive()
    }
}

/// Blocked signals that wait for [`BlockedSignals::spawn_handler`], instead of ending the process.
///
/// They are blocked in the calling thread and in all that it starts from then on, so that one
/// thread can take them one after the other (sigwait(3)). A handler would run in any thread, also
/// in one of a core with its own descriptor table, where it could reach nothing.
#[derive(Debug)]
#[must_use = "signals that are held and not followed do nothing at all"]
pub struct BlockedSignals {
    set: libc::sigset_t,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalSet {
    /// SIGTERM and SIGINT.
    Termination,
    /// SIGTERM, SIGINT, SIGUSR1 and SIGUSR2.
    TerminationAndUser,
    /// SIGTERM, SIGINT, SIGHUP and SIGUSR1.
    All,
}

/// Blocks signals; to be called before a process starts any other thread. Child processes do not
/// inherit the mask: the standard library gives them an empty one.
///
/// # Errors
/// Returned only for an invalid signal set.
#[allow(unsafe_code)]
pub fn block_signals(signal_set: SignalSet) -> io::Result<BlockedSignals> {
    let numbers: &[libc::c_int] = match signal_set {
        SignalSet::Termination => &[libc::SIGTERM, libc::SIGINT],
        SignalSet::TerminationAndUser => &[libc::SIGTERM, libc::SIGINT, libc::SIGUSR1, libc::SIGUSR2],
        SignalSet::All => &[libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1],
    };
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initializes the set that the others then change, and all of them only
    // touch their arguments; the numbers are signals.
    let (set, result) = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for &number in numbers {
            libc::sigaddset(set.as_mut_ptr(), number);
        }
        let set = set.assume_init();
        (set, libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()))
    };
    if result == 0 { Ok(BlockedSignals { set }) } else { Err(io::Error::from_raw_os_error(result)) }
}

impl BlockedSignals {
    /// Handles SIGTERM and SIGINT in a separate thread: the first starts the drain, the second ends
    /// it. `signals` has the callbacks of the others, which are handled until both stages are
    /// reached: a draining process can still reopen its logs.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn spawn_handler(self, drain: Drain, mut handlers: Option<SignalHandlers>) -> io::Result<()> {
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for stage in [DrainStage::Draining, DrainStage::Abort] {
                loop {
                    match (self.wait(), &mut handlers) {
                        (libc::SIGHUP, Some(handlers)) => (handlers.on_reload)(),
                        (libc::SIGUSR1, Some(handlers)) => (handlers.on_reopen)(),
                        (libc::SIGUSR2, Some(handlers)) => (handlers.on_user2)(),
                        (libc::SIGHUP | libc::SIGUSR1 | libc::SIGUSR2, None) => {}
                        _ => break,
                    }
                }
                drain.advance(stage);
                if let (DrainStage::Draining, Some(handlers)) = (stage, &mut handlers) {
                    (handlers.on_drain)();
                }
            }
        })?;
        Ok(())
    }

    /// Passes the number of each signal to `on_signal`, in a separate thread, until it returns false.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn spawn_listener(self, mut on_signal: impl FnMut(i32) -> bool + Send + 'static) -> io::Result<()> {
        let listen = move || while on_signal(self.wait()) {};
        std::thread::Builder::new().name("signals".to_owned()).spawn(listen)?;
        Ok(())
    }

    #[allow(unsafe_code)]
    fn wait(&self) -> libc::c_int {
        let mut number = 0;
        // SAFETY: the set is complete, and the number is written to a valid location. The call
        // fails only for a set with invalid signal numbers.
        unsafe { libc::sigwait(&raw const self.set, &raw mut number) };
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cores::block_on;

    #[test]
    fn the_stage_only_goes_forward() {
        let drain = Drain::default();
        let mut watch = drain.watch();
        drain.advance(DrainStage::Abort);
        drain.advance(DrainStage::Draining);
        assert_eq!(watch.stage(), DrainStage::Abort);
        assert_eq!(block_on(watch.wait_for(DrainStage::Draining)), DrainStage::Abort);
    }
}
