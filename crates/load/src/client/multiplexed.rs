//! Life of a client whose connection carries several requests at a time: it connects for a request, drives the
//! connection until that ends, and begins again until the load is over.

use std::future::poll_fn;
use std::task::{Context, Poll};

use rt::clock::now_ns;

use super::dialer::Dialer;
use super::source::RequestSource;
use super::{Client, ConnectionEnd};
use crate::failure::Failure;

/// Client whose connection carries several requests at a time.
pub(super) trait MultiplexedClient {
    fn dialer(&self) -> &Dialer;

    fn parts(&mut self) -> (&mut RequestSource, &mut Dialer);

    fn is_connected(&self) -> bool;

    /// Opens its connection for a request that was due at `due_ns`.
    async fn connect(&mut self, due_ns: u64) -> Result<(), Failure>;

    /// Opens its connection before the load starts. The run connects again after a failure.
    async fn connect_before_start(&mut self) {
        let _ = self.connect(now_ns()).await;
    }

    /// Drives the connection as far as possible.
    fn poll_connection(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionEnd>;

    /// Returns whether the connection that ended had no response, so that the next one waits.
    fn has_ended_early(&self) -> bool {
        false
    }

    /// Returns the due time of a request that needs a connection; `None` if the load is over.
    fn poll_wanted(&mut self, cx: &mut Context<'_>) -> Poll<Option<u64>> {
        let (source, dialer) = self.parts();
        source.poll_wanted(cx, dialer)
    }

    fn fail_waiting(&mut self, failure: Failure) {
        let (source, dialer) = self.parts();
        source.fail_wanted(&dialer.core, failure, now_ns());
    }
}

impl<C: MultiplexedClient> Client for C {
    fn dialer(&self) -> &Dialer {
        MultiplexedClient::dialer(self)
    }

    async fn connect_before_start(&mut self) {
        MultiplexedClient::connect_before_start(self).await;
    }

    async fn run(&mut self, start_ns: u64) {
        self.parts().0.begin(start_ns);
        loop {
            if !self.is_connected() && !reconnect(self).await {
                return;
            }
            if let ConnectionEnd::LoadEnded = poll_fn(|cx| self.poll_connection(cx)).await {
                return;
            }
            if self.has_ended_early() {
                let until_ns = Box::pin(self.parts().1.back_off_after_early_end()).await;
                self.parts().0.postpone(until_ns);
            }
        }
    }
}

/// Waits for a request and connects for it, until that succeeds. Returns `false` if the load is over.
async fn reconnect(client: &mut impl MultiplexedClient) -> bool {
    loop {
        let Some(due_ns) = poll_fn(|cx| client.poll_wanted(cx)).await else { return false };
        // Boxed, to keep the future of a busy client small.
        let Err(failure) = Box::pin(client.connect(due_ns)).await else { return true };
        client.fail_waiting(failure);
        let until_ns = client.parts().1.back_off().await;
        // The next requests of a closed loop are due after the pause, which is not latency.
        client.parts().0.postpone(until_ns);
    }
}
