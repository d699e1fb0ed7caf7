//! Stopping in two stages: finish what is in flight, then stop at once. SIGTERM or SIGINT starts
//! the first stage, a second signal the other.

use std::io;

use tokio::sync::watch;

/// How far the stop has come. Only goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// At work.
    Running,
    /// No new work; what is in flight is finished.
    Draining,
    /// Everything is dropped.
    Now,
}

/// Tells all cores to stop. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Drain {
    sender: watch::Sender<Stage>,
}

/// One core's view of a [`Drain`].
#[derive(Clone, Debug)]
pub struct DrainWatch {
    receiver: watch::Receiver<Stage>,
}

impl Default for Drain {
    fn default() -> Self {
        Self { sender: watch::Sender::new(Stage::Running) }
    }
}

impl Drain {
    /// A view for one core or task.
    #[must_use]
    pub fn watch(&self) -> DrainWatch {
        DrainWatch { receiver: self.sender.subscribe() }
    }

    /// Goes forward to `stage`; never back.
    pub fn advance(&self, stage: Stage) {
        self.sender.send_if_modified(|now| {
            let forward = stage > *now;
            if forward {
                *now = stage;
            }
            forward
        });
    }
}

impl DrainWatch {
    /// The stage now.
    #[must_use]
    pub fn stage(&self) -> Stage {
        *self.receiver.borrow()
    }

    /// Waits until `stage` is reached, and returns the stage then.
    pub async fn reached(&mut self, stage: Stage) -> Stage {
        match self.receiver.wait_for(|now| *now >= stage).await {
            Ok(now) => *now,
            // The sender is gone: whoever could stop us in an orderly way does not exist any more.
            Err(_) => Stage::Now,
        }
    }
}

/// What is done at signals. Each runs in the thread of the signals, one after the other: while one
/// runs, no other signal is seen.
pub struct Signals {
    /// SIGHUP: read the config again, and open the logs again.
    pub reload: Box<dyn FnMut() + Send>,
    /// SIGUSR1: open the logs again.
    pub reopen: Box<dyn FnMut() + Send>,
    /// The first SIGTERM or SIGINT, once the drain has started.
    pub drained: Box<dyn FnMut() + Send>,
}

impl Signals {
    /// Only something at the first SIGTERM or SIGINT.
    pub fn drained(drained: impl FnMut() + Send + 'static) -> Self {
        Self { reload: Box::new(|| ()), reopen: Box::new(|| ()), drained: Box::new(drained) }
    }
}

impl std::fmt::Debug for Signals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signals").finish_non_exhaustive()
    }
}

/// Signals that wait for [`HeldSignals::follow`], instead of ending the process.
///
/// They are blocked in the thread that held them and in all that it starts from then on, so that one
/// thread can take them one after the other (sigwait(3)). A handler would run in any thread, also in
/// one of a core with a table of descriptors of its own, where it could reach nothing.
#[derive(Debug)]
#[must_use = "signals that are held and not followed do nothing at all"]
pub struct HeldSignals {
    set: libc::sigset_t,
}

/// Which signals are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// SIGTERM and SIGINT.
    Stop,
    /// And SIGHUP and SIGUSR1.
    All,
}

/// Holds signals, from before a process starts any other thread. Programs that it starts do not
/// inherit that: the standard library gives them an empty mask.
///
/// # Errors
/// The kernel refused, which it does not.
#[allow(unsafe_code)]
pub fn hold_signals(held: Held) -> io::Result<HeldSignals> {
    let numbers: &[libc::c_int] = match held {
        Held::Stop => &[libc::SIGTERM, libc::SIGINT],
        Held::All => &[libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1],
    };
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: `sigemptyset` makes the set that the others then change, and all of them only touch
    // what they are given; the numbers are signals.
    let (set, result) = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for &number in numbers {
            libc::sigaddset(set.as_mut_ptr(), number);
        }
        let set = set.assume_init();
        (set, libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()))
    };
    if result == 0 { Ok(HeldSignals { set }) } else { Err(io::Error::from_raw_os_error(result)) }
}

impl HeldSignals {
    /// Follows SIGTERM and SIGINT from a thread of its own: the first starts the drain, the second
    /// ends it. `signals` says what to do at the others, which are followed until both stages are reached: a
    /// process that drains can still open its logs again.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn follow(self, drain: Drain, mut signals: Option<Signals>) -> io::Result<()> {
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for stage in [Stage::Draining, Stage::Now] {
                loop {
                    match (self.next(), &mut signals) {
                        (libc::SIGHUP, Some(signals)) => (signals.reload)(),
                        (libc::SIGUSR1, Some(signals)) => (signals.reopen)(),
                        (libc::SIGHUP | libc::SIGUSR1, None) => {}
                        _ => break,
                    }
                }
                drain.advance(stage);
                if let (Stage::Draining, Some(signals)) = (stage, &mut signals) {
                    (signals.drained)();
                }
            }
        })?;
        Ok(())
    }

    #[allow(unsafe_code)]
    fn next(&self) -> libc::c_int {
        let mut number = 0;
        // SAFETY: the set is a whole one, and the number is written where there is room for it. It
        // fails only for a set with numbers that are no signals.
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
        drain.advance(Stage::Now);
        drain.advance(Stage::Draining);
        assert_eq!(watch.stage(), Stage::Now);
        assert_eq!(block_on(watch.reached(Stage::Draining)), Stage::Now);
    }
}
