//! Stopping in two stages: finish what is in flight, then stop at once. SIGTERM or SIGINT starts
//! the first stage, a second signal the other.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
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

/// Follows SIGTERM and SIGINT from a thread of its own: the first starts the drain, the second
/// ends it.
///
/// # Errors
/// The thread or the signal handlers could not be set up.
pub fn follow_signals(drain: Drain) -> io::Result<()> {
    let (ready, is_ready) = std::sync::mpsc::channel();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        crate::cores::block_on(async move {
            let handlers = signal(SignalKind::terminate())
                .and_then(|term| Ok((term, signal(SignalKind::interrupt())?)));
            let (mut term, mut interrupt) = match handlers {
                Ok(handlers) => {
                    let _ = ready.send(Ok(()));
                    handlers
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                    return;
                }
            };
            for stage in [Stage::Draining, Stage::Now] {
                tokio::select! {
                    _ = term.recv() => {}
                    _ = interrupt.recv() => {}
                }
                drain.advance(stage);
            }
        });
    })?;
    is_ready.recv().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
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
