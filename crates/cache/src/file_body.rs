//! A body in a file, as its readers see it: they ask for a piece, and wait.

#![expect(
    clippy::disallowed_types,
    reason = "a core and a thread of the disk share a result; held to set or take it"
)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::chunk::Chunk;

/// Reason for which the rest of a body cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The response of the server ended early.
    #[error("the response of the server ended early")]
    Incomplete,
    /// The body is larger than what is kept of it, and the reader was too slow.
    #[error("the client was too slow for a body that is not kept")]
    Overtaken,
    /// The file was changed, is torn, or cannot be read.
    #[error("the file of the cache cannot be read")]
    Disk,
}

pub(crate) trait FileBody: Send + Sync + std::fmt::Debug {
    fn length(&self) -> u64;

    /// Asks for the piece at an offset. The number is the offset of its first byte.
    fn start_read(self: Arc<Self>, position: u64) -> (Arc<ReadState>, u64);
}

/// The reading of a piece.
#[derive(Debug, Default)]
pub(crate) struct ReadState(Mutex<Reading>);

#[derive(Debug, Default)]
struct Reading {
    result: Option<Result<Chunk, BodyError>>,
    waker: Option<Waker>,
}

impl ReadState {
    pub(crate) fn set(&self, result: Result<Chunk, BodyError>) {
        let waker = {
            let mut reading = lock(&self.0);
            reading.result = Some(result);
            reading.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<Result<Chunk, BodyError>> {
        let mut reading = lock(&self.0);
        match reading.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                reading.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Locks a result; each statement under the lock leaves it valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
