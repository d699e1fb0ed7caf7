//! Commands to all cores, with their replies. The engine defines the commands.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::clock::now_ns;

/// Maximum number of queued commands of a core.
const COMMANDS_MAX: usize = 16;

#[derive(Debug)]
pub struct CoreSenders<C>(Vec<mpsc::Sender<C>>);

impl<C> Clone for CoreSenders<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<C> Default for CoreSenders<C> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// Reason for missing replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoresTimedOut;

impl std::fmt::Display for CoresTimedOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the cores timed out")
    }
}

impl std::error::Error for CoresTimedOut {}

impl<C> CoreSenders<C> {
    #[must_use]
    pub fn channels(count: usize) -> (Self, Vec<mpsc::Receiver<C>>) {
        let (senders, receivers) = (0..count).map(|_| mpsc::channel(COMMANDS_MAX)).unzip();
        (Self(senders), receivers)
    }

    /// Asks every core, at the same time. Returns the replies of the cores that have not ended, in
    /// the cores' order. The caller limits the time.
    pub async fn ask<T>(&self, build: impl Fn(oneshot::Sender<T>) -> C) -> Vec<T> {
        let mut receivers = Vec::with_capacity(self.0.len());
        for sender in &self.0 {
            let (reply, receiver) = oneshot::channel();
            // A core that has ended takes no commands.
            if sender.send(build(reply)).await.is_ok() {
                receivers.push(receiver);
            }
        }
        let mut replies = Vec::with_capacity(receivers.len());
        for receiver in receivers {
            replies.extend(receiver.await.ok());
        }
        replies
    }

    /// Asks every core as [`CoreSenders::ask`] does, from a thread without a runtime. `end_ns`: time
    /// up to which it waits; `None`: as long as a core takes.
    ///
    /// # Errors
    /// A core did not reply in time. It may still execute the command.
    pub fn ask_blocking<T>(
        &self,
        end_ns: Option<u64>,
        build: impl Fn(oneshot::Sender<T>) -> C,
    ) -> Result<Vec<T>, CoresTimedOut> {
        block_until(end_ns, self.ask(build)).ok_or(CoresTimedOut)
    }
}

/// Waker of a thread that waits in [`block_until`]. It needs no descriptor, unlike a runtime's, so that
/// cores can wake threads that were started after them.
struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a future in this thread until it is ready. Returns `None` if it is not at `end_ns`.
fn block_until<T>(end_ns: Option<u64>, future: impl Future<Output = T>) -> Option<T> {
    let waker = Waker::from(Arc::new(ThreadWaker(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        let Some(end_ns) = end_ns else {
            thread::park();
            continue;
        };
        let left_ns = end_ns.saturating_sub(now_ns());
        if left_ns == 0 {
            return None;
        }
        thread::park_timeout(Duration::from_nanos(left_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Ping(oneshot::Sender<()>);

    /// Replies to each command of a core in a thread of its own, until the senders are dropped.
    fn spawn_core(mut commands: mpsc::Receiver<Ping>) -> thread::JoinHandle<usize> {
        thread::spawn(move || {
            let mut count = 0;
            while let Some(command) = commands.blocking_recv() {
                count += 1;
                let _ = command.0.send(());
            }
            count
        })
    }

    #[test]
    fn every_core_is_asked_and_ended_cores_are_left_out() {
        let (senders, mut receivers) = CoreSenders::channels(3);
        drop(receivers.pop());
        let cores: Vec<_> = receivers.into_iter().map(spawn_core).collect();
        assert_eq!(senders.ask_blocking(None, Ping), Ok(vec![(), ()]));
        let end_ns = now_ns() + 60_000_000_000;
        assert_eq!(senders.ask_blocking(Some(end_ns), Ping), Ok(vec![(), ()]));
        drop(senders);
        assert!(cores.into_iter().all(|core| core.join().unwrap() == 2));
    }

    #[test]
    fn a_core_that_does_not_reply_or_is_full_ends_the_wait() {
        let (senders, receivers) = CoreSenders::channels(1);
        for _ in 0..=COMMANDS_MAX {
            assert_eq!(senders.ask_blocking(Some(now_ns()), Ping), Err(CoresTimedOut));
        }
        drop(receivers);
        assert_eq!(senders.ask_blocking(Some(now_ns()), Ping), Ok(vec![]));
    }
}
