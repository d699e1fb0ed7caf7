//! The task of one connection, from its accept to its end.
//!
//! [`Conn`] serves nearly all requests. A connection that must wait for more than the next read enters
//! [`slow_path`] and returns later:
//!
//! ```text
//!          bytes: complete requests, responses    delay, body, blocked write…
//!       .---------------------------------.     .---------------------------------.
//!       v                                 |     v                                 |
//!   waiting (idle, or within a head) -> responding -> slow job, boxed -> done -----'
//!       | end, timeout, drain             | last response          | failure
//!       v                                 v                        v
//!                                      closed
//! ```

use std::future::poll_fn;
use std::rc::Rc;

use rt::stream::Stream;

use crate::conn::{Conn, FastPathExit};
use crate::core::OriginCore;
use crate::stats::add;
use crate::{http2, slow_path};

pub(crate) fn serve(core: Rc<OriginCore>, stream: Stream) -> impl Future<Output = ()> {
    serve_conn(Conn::new(core, stream))
}

/// Serves one connection to its end, behind its header of the PROXY protocol. A stream with TLS must
/// begin behind a header.
pub(crate) async fn serve_behind_header(core: Rc<OriginCore>, stream: Stream) {
    let mut conn = Conn::new(core, stream);
    if let Err(reason) = poll_fn(|cx| conn.poll_proxy_header(cx)).await {
        add(&conn.core.counters.proxy_headers_rejected, 1);
        conn.record_close(reason);
        return;
    }
    conn.disarm();
    serve_conn(conn).await;
}

fn serve_conn(conn: Conn) -> impl Future<Output = ()> {
    let mut conn = conn;
    // The block uses the connection where it was captured; an async fn would store its argument
    // twice in each task.
    async move {
        let reason = loop {
            match poll_fn(|cx| conn.poll_fast(cx)).await {
                FastPathExit::Close(reason) => break reason,
                FastPathExit::Http2 => break Box::pin(http2::run(&mut conn)).await,
                FastPathExit::Slow(job) => {
                    if let Err(reason) = Box::pin(slow_path::run(&mut conn, job)).await {
                        break reason;
                    }
                }
            }
        };
        conn.record_close(reason);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The task also has a header of about a hundred bytes; the sum must fit into 256.
    const TASK_BYTES_MAX: usize = 144;

    fn future_bytes<F: Future>(_: fn(Rc<OriginCore>, Stream) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_waiting_connection_is_small() {
        let bytes = future_bytes(serve);
        println!("task {bytes}, connection {}, stream {}", size_of::<Conn>(), size_of::<Stream>());
        assert!(bytes <= TASK_BYTES_MAX, "{bytes}");
    }
}
