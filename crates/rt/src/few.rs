//! Listeners for few connections with one exchange each: pages for people, metrics for machines. Everything
//! is bounded, so that who reaches one can hold nothing up.
//!
//! Not for traffic: there is one core, and a connection more than there are slots takes the slot of an
//! idle one. The bytes of a connection are not interpreted here.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::net::Shutdown;
use std::rc::Rc;

use tokio::task::AbortHandle;

use crate::board::Board;
use crate::clock::{SECOND_NS, now_ns};
use crate::listen::{Accepted, Listener};
use crate::stream::Stream;
use crate::timers::Timers;

/// After the answer, what a client still sends is read for so long and so far: a close before would
/// reset the connection, and the client could lose the answer (RFC 9112 §9.6).
const LINGER_NS: u64 = SECOND_NS;
/// See [`LINGER_NS`].
const LINGER_BYTES_MAX: usize = 256 * 1024;

/// How long a connection whose request has come keeps its slot when others want one.
const BUSY_NS: u64 = SECOND_NS;

/// The connections that are open.
#[derive(Debug, Default)]
struct Slots(RefCell<Vec<Open>>);

#[derive(Debug)]
struct Open {
    id: u64,
    since_ns: u64,
    /// Whether its request has come.
    asked: bool,
    task: Option<AbortHandle>,
}

/// The slot of a connection; free once this is dropped.
#[derive(Debug)]
pub struct Slot {
    slots: Rc<Slots>,
    board: Board,
    id: u64,
}

impl Slot {
    /// Its request has come: others take the slot only after a while.
    pub fn asked(&self) {
        let mut open = self.slots.0.borrow_mut();
        if let Some(own) = open.iter_mut().find(|open| open.id == self.id) {
            own.asked = true;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.0.borrow_mut().retain(|open| open.id != self.id);
        self.board.closed(0);
    }
}

impl Slots {
    /// Ends a connection in favour of a new one: the oldest that has not asked for anything, or else the
    /// oldest that has had its time. `false`: there is none.
    fn evict(&self, now_ns: u64) -> bool {
        let mut open = self.0.borrow_mut();
        let had_time = |open: &Open| now_ns.saturating_sub(open.since_ns) >= BUSY_NS;
        // The oldest are first.
        let idle = open.iter().position(|open| !open.asked);
        let Some(at) = idle.or_else(|| open.iter().position(had_time)) else { return false };
        if let Some(task) = open.remove(at).task {
            task.abort();
        }
        true
    }
}

/// Takes connections, at most `most` at a time, and has each conversed with until it is done. When there
/// are so many, a new one takes the slot of one that has not asked for anything yet, or of one that
/// has had its time. To be called inside a core's runtime; it ends only with the listening socket.
///
/// # Errors
/// The listening socket failed, or there was no descriptor for a timer.
pub async fn accept<C: Future<Output = io::Result<()>> + 'static>(
    listener: Listener,
    most: usize,
    converse: impl Fn(Stream, Timers, Rc<Slot>) -> C,
) -> io::Result<()> {
    let timers = Timers::start()?;
    let (board, _inboxes) = Board::new(1)?;
    let slots = Rc::new(Slots::default());
    let ids = Cell::new(0);
    let handle = |accepted| {
        // Out of descriptors: the accept loop waits and tries again.
        let Accepted::Connection(connection) = accepted else { return };
        let id = ids.replace(ids.get() + 1);
        let slot = Slot { slots: Rc::clone(&slots), board: board.clone(), id };
        let now_ns = now_ns();
        let is_full = slots.0.borrow().len() >= most;
        let stream = Stream::from_fd(connection.fd, connection.family);
        let Some(stream) = stream.ok().filter(|_| !is_full || slots.evict(now_ns)) else { return };
        slots.0.borrow_mut().push(Open { id, since_ns: now_ns, asked: false, task: None });
        let slot = Rc::new(slot);
        let work = converse(stream, timers.clone(), Rc::clone(&slot));
        let task = tokio::task::spawn_local(async move {
            // A client that left gets no answer, and nobody has to know.
            let _ = work.await;
            drop(slot);
        });
        if let Some(own) = slots.0.borrow_mut().last_mut() {
            own.task = Some(task.abort_handle());
        }
    };
    listener.accept(&board, 0, &timers, handle).await
}

/// `None` when it took longer.
pub async fn within<T>(timers: &Timers, time_ns: u64, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = timers.sleep_until(now_ns() + time_ns) => None,
    }
}

/// Ends a connection whose answer has been sent, so that the other side gets all of it.
///
/// # Errors
/// The connection was gone already.
pub async fn part(mut stream: Stream, timers: &Timers) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    within(timers, LINGER_NS, stream.drain(LINGER_BYTES_MAX)).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;
    use crate::listen::Bound;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::time::Duration;

    const MOST: usize = 8;

    fn connect(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// The bytes until the connection ends: "hello" where it was served.
    fn heard(mut stream: TcpStream) -> String {
        let mut said = String::new();
        let _ = stream.read_to_string(&mut said);
        said
    }

    /// The connection asks, and is not answered before `end` is dropped.
    fn ask(address: SocketAddr) -> TcpStream {
        let mut stream = connect(address);
        stream.write_all(b"?").unwrap();
        stream
    }

    fn client(address: SocketAddr) {
        let mut idle: Vec<TcpStream> = (0..MOST).map(|_| connect(address)).collect();
        // The oldest idle one gives its slot to one that asks.
        for _ in 0..3 * MOST {
            assert_eq!(heard(ask(address)), "hello");
        }
        assert_eq!(heard(idle.remove(0)), "");
        drop(idle);
        assert_eq!(heard(ask(address)), "hello");
    }

    #[test]
    fn idle_connections_keep_nobody_out() {
        crate::cores::block_on(async {
            let mut bound = Bound::new(&"127.0.0.1:0".parse().unwrap(), 1).unwrap();
            let Address::Tcp(address) = *bound.address() else { panic!("a TCP address") };
            let greet = |mut stream: Stream, timers: Timers, slot: Rc<Slot>| async move {
                let mut byte = [0];
                stream.read(&mut byte).await?;
                slot.asked();
                stream.send(b"hello").await?;
                part(stream, &timers).await
            };
            let (done, is_done) = tokio::sync::oneshot::channel();
            let thread = std::thread::spawn(move || {
                client(address);
                let _ = done.send(());
            });
            tokio::select! {
                _ = is_done => {}
                ended = accept(bound.take(0, 0).unwrap(), MOST, greet) => panic!("{ended:?}"),
            }
            thread.join().unwrap();
        });
    }
}
