//! A request whose client has gone, or that took too long, while a bounded server had it: the server
//! is told by the end of our sending, and keeps the request's place until it ends its answer or its
//! connection. Closing and giving the place back at once would let more requests be at work than the
//! bound says, for the server does not look at its connections while it works.

use std::rc::Rc;
use std::task::Poll;

use rt::clock::now_ns;

use super::{Exchange, Place, Response, Stage};
use crate::conn::Link;
use crate::core::{Core, Live};
use crate::outcome::End;
use crate::pool::ServerConn;

/// What an interim answer starts like (RFC 9110 §15.2): it is none.
const INTERIM: &[u8] = b"HTTP/1.1 1";

/// A request that nobody waits for any more.
struct Abandoned {
    live: Rc<Live>,
    place: Place,
    conn: ServerConn,
}

impl Exchange {
    /// Leaves the request to its server, if that is bounded and at work on it.
    pub(super) fn leave_to_server(&mut self, link: &Link, end: End) {
        let is_at_work = matches!(self.stage, Stage::Open)
            && self.response == Response::Head
            && self.up.has_sent()
            && !self.tcp
            && matches!(end, End::ClientGone | End::BodyTimeout | End::ServerTimeout);
        let bounded = |place: &Place| place.pool.is_bounded(place.server);
        if !is_at_work || !self.place.as_ref().is_some_and(bounded) {
            return;
        }
        let (Some(live), Some(place), Some(conn)) =
            (self.live.clone(), self.place.take(), self.server.take())
        else {
            return;
        };
        live.metrics.abandoned(place.pool.index());
        let core = link.core();
        rt::tokio::task::spawn_local(wait(core, Abandoned { live, place, conn }));
    }
}

async fn wait(core: Rc<Core>, abandoned: Abandoned) {
    let Abandoned { live, place: Place { pool, server }, mut conn } = abandoned;
    // Refused when the server has ended its connection already, which is what is waited for.
    let _ = conn.stream.shutdown(std::net::Shutdown::Write);
    let until_ns = now_ns().saturating_add(pool.plan().timeouts.abandoned_ns);
    let answered = std::future::poll_fn(|cx| {
        let mut start = [0; INTERIM.len()];
        loop {
            match conn.stream.poll_read(cx, &mut start) {
                Poll::Ready(Ok(read)) if start[..read] == *INTERIM => {}
                Poll::Ready(Ok(read)) => return Poll::Ready(read > 0),
                Poll::Ready(Err(_)) => return Poll::Ready(false),
                Poll::Pending => return Poll::Pending,
            }
        }
    });
    rt::tokio::select! {
        finished = answered => if finished {
            live.metrics.wasted(pool.index());
        },
        () = core.timers.sleep_until(until_ns) => {}
    }
    drop(conn);
    pool.release(server, &mut core.bench.borrow_mut().rng);
}
