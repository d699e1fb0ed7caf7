//! Few connections with one exchange each. Everything is limited, so that no client can block the
//! process.
//!
//! Not for traffic: there is one core, and a connection beyond the number of slots takes the slot
//! of an idle one. The bytes of a connection are not interpreted here.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::net::Shutdown;
use std::rc::Rc;

use rt::accept::{AcceptEvent, accept_forever};
use rt::clock::{MILLISECOND_NS, SECOND_NS, now_ns};
use rt::conn_balancer::ConnectionBalancer;
use rt::listen::Listener;
use rt::stream::Stream;
use rt::timers::Timers;
use rt::tokio;
use rt::tokio::task::AbortHandle;

/// Maximum time of reading after the response. An earlier close would reset the connection, and the
/// client could lose the response (RFC 9112 §9.6).
const LINGER_TIMEOUT_NS: u64 = SECOND_NS;
/// Maximum number of bytes read after the response; see [`LINGER_TIMEOUT_NS`].
const LINGER_BYTES_MAX: usize = 256 * 1024;

/// Time for which a connection whose request has arrived keeps its slot when others need one.
const BUSY_SLOT_MIN_NS: u64 = SECOND_NS;

/// Maximum time that a drain waits for responses.
const DRAIN_TIMEOUT_NS: u64 = 2 * SECOND_NS;
/// Interval between the checks of a drain.
const DRAIN_CHECK_NS: u64 = 10 * MILLISECOND_NS;

#[derive(Debug, Default)]
pub(super) struct OpenConnections(RefCell<Vec<OpenConnection>>);

#[derive(Debug)]
struct OpenConnection {
    id: u64,
    opened_ns: u64,
    /// True if its request has arrived.
    has_request: bool,
    task: Option<AbortHandle>,
}

/// Slot of a connection; free once this is dropped.
#[derive(Debug)]
pub(super) struct ServerSlot {
    slots: Rc<OpenConnections>,
    balancer: ConnectionBalancer,
    id: u64,
}

impl ServerSlot {
    /// Records that the request has arrived: others take the slot only after a while.
    pub(super) fn mark_request_received(&self) {
        let mut open = self.slots.0.borrow_mut();
        if let Some(entry) = open.iter_mut().find(|open| open.id == self.id) {
            entry.has_request = true;
        }
    }
}

impl Drop for ServerSlot {
    fn drop(&mut self) {
        self.slots.0.borrow_mut().retain(|open| open.id != self.id);
        self.balancer.release(0);
    }
}

impl OpenConnections {
    /// Waits until each response whose request has arrived is sent, at most [`DRAIN_TIMEOUT_NS`].
    ///
    /// # Errors
    /// There was no descriptor for a timer.
    pub(super) async fn finish_responses(&self) -> io::Result<()> {
        let timers = Timers::start()?;
        let until_ns = now_ns() + DRAIN_TIMEOUT_NS;
        while now_ns() < until_ns && self.0.borrow().iter().any(|open| open.has_request) {
            timers.sleep_until(now_ns() + DRAIN_CHECK_NS).await;
        }
        Ok(())
    }

    /// Ends a connection in favour of a new one: the oldest without a request, or else the oldest
    /// beyond its time. Returns false if there is none.
    fn evict(&self, now_ns: u64) -> bool {
        let mut open = self.0.borrow_mut();
        let is_beyond_time =
            |open: &OpenConnection| now_ns.saturating_sub(open.opened_ns) >= BUSY_SLOT_MIN_NS;
        // The connections are sorted by age, the oldest first.
        let idle = open.iter().position(|open| !open.has_request);
        let Some(position) = idle.or_else(|| open.iter().position(is_beyond_time)) else {
            return false;
        };
        if let Some(task) = open.remove(position).task {
            task.abort();
        }
        true
    }
}

/// Accepts connections, at most `max_connections` at a time, and serves each with its own task. At
/// the maximum, a new connection takes the slot of one without a request, or of one beyond its
/// time. Must be called inside a core's runtime; it ends only with the listening socket.
///
/// # Errors
/// The listening socket failed, or there was no descriptor for a timer.
pub(super) async fn accept<C: Future<Output = io::Result<()>> + 'static>(
    listener: Listener,
    max_connections: usize,
    open: &Rc<OpenConnections>,
    serve: impl Fn(Stream, Timers, Rc<ServerSlot>) -> C,
) -> io::Result<()> {
    let timers = Timers::start()?;
    let (balancer, _inboxes) = ConnectionBalancer::new(1)?;
    let slots = open;
    let ids = Cell::new(0);
    let handle = |accepted| {
        // Out of descriptors: the accept loop waits and tries again.
        let AcceptEvent::Connection(connection) = accepted else { return };
        let id = ids.replace(ids.get() + 1);
        let slot = ServerSlot { slots: Rc::clone(slots), balancer: balancer.clone(), id };
        let now_ns = now_ns();
        let is_full = slots.0.borrow().len() >= max_connections;
        let stream = Stream::from_fd(connection.fd, connection.family);
        let Some(stream) = stream.ok().filter(|_| !is_full || slots.evict(now_ns)) else { return };
        slots.0.borrow_mut().push(OpenConnection { id, opened_ns: now_ns, has_request: false, task: None });
        let slot = Rc::new(slot);
        let serving = serve(stream, timers.clone(), Rc::clone(&slot));
        let task = tokio::task::spawn_local(async move {
            // A client that left gets no response, and no error is reported.
            let _ = serving.await;
            drop(slot);
        });
        if let Some(entry) = slots.0.borrow_mut().last_mut() {
            entry.task = Some(task.abort_handle());
        }
    };
    accept_forever(listener, &balancer, 0, &timers, handle).await
}

/// Reads a request of at most `bytes_max` bytes: calls `parse` with all bytes so far after each
/// read, until it returns a result. Returns `None` if the client left, or sent too much, before
/// that.
///
/// # Errors
/// The connection was reset.
pub(super) async fn read_request<T>(
    stream: &mut Stream,
    bytes_max: usize,
    parse: impl Fn(&[u8]) -> Option<T>,
) -> io::Result<Option<T>> {
    let mut buffer = vec![0; bytes_max];
    let mut filled = 0;
    while filled < bytes_max {
        let read = stream.read(&mut buffer[filled..]).await?;
        if read == 0 {
            break;
        }
        let (is_first, new_bytes) = (filled == 0, filled..filled + read);
        filled += read;
        // A client that sends single bytes causes a parse for each line, and not for each byte.
        if is_first || filled == bytes_max || wire::head_may_be_complete(&buffer[new_bytes]) {
            let request = parse(&buffer[..filled]);
            if request.is_some() {
                return Ok(request);
            }
        }
    }
    Ok(None)
}

/// Runs a future with a timeout; `None` if it took longer.
pub async fn with_timeout<T>(timers: &Timers, timeout_ns: u64, future: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = timers.sleep_until(now_ns() + timeout_ns) => None,
    }
}

/// Lingering close: ends a connection whose response has been sent, so that the peer receives all
/// of it.
///
/// # Errors
/// The connection was already gone.
pub(super) async fn lingering_close(mut stream: Stream, timers: &Timers) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    with_timeout(timers, LINGER_TIMEOUT_NS, stream.discard(LINGER_BYTES_MAX)).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rt::address::Address;
    use rt::listen::BoundAddress;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::time::Duration;

    const MAX_CONNECTIONS: usize = 8;

    fn connect(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// Reads until the connection ends: "hello" if it was served.
    fn read_response(mut stream: TcpStream) -> String {
        let mut response = String::new();
        let _ = stream.read_to_string(&mut response);
        response
    }

    /// Sends a request, and does not wait for the response.
    fn send_request(address: SocketAddr) -> TcpStream {
        let mut stream = connect(address);
        stream.write_all(b"?").unwrap();
        stream
    }

    fn client(address: SocketAddr) {
        let mut idle: Vec<TcpStream> = (0..MAX_CONNECTIONS).map(|_| connect(address)).collect();
        // The oldest idle connection gives its slot to one with a request.
        for _ in 0..3 * MAX_CONNECTIONS {
            assert_eq!(read_response(send_request(address)), "hello");
        }
        assert_eq!(read_response(idle.remove(0)), "");
        drop(idle);
        assert_eq!(read_response(send_request(address)), "hello");
    }

    #[test]
    fn idle_connections_keep_nobody_out() {
        rt::cores::block_on(async {
            let mut bound = BoundAddress::new(&"127.0.0.1:0".parse().unwrap(), 1).unwrap();
            let Address::Tcp(address) = *bound.address() else { panic!("a TCP address") };
            let serve_hello = |mut stream: Stream, timers: Timers, slot: Rc<ServerSlot>| async move {
                let mut byte = [0];
                stream.read(&mut byte).await?;
                slot.mark_request_received();
                stream.send(b"hello").await?;
                lingering_close(stream, &timers).await
            };
            let (done_sender, done_receiver) = tokio::sync::oneshot::channel();
            let thread = std::thread::spawn(move || {
                client(address);
                let _ = done_sender.send(());
            });
            let open = Rc::default();
            tokio::select! {
                _ = done_receiver => {}
                result = accept(bound.take_listener(0, 0).unwrap(), MAX_CONNECTIONS, &open, serve_hello) => panic!("{result:?}"),
            }
            thread.join().unwrap();
        });
    }
}
