//! Listeners for few connections with one exchange each: pages for people, metrics for machines. Everything
//! is bounded, so that who reaches one can hold nothing up.
//!
//! Not for traffic: there is one core, and a connection more than there are places is closed at once. Of
//! what is said over a connection this knows nothing.

use std::future::Future;
use std::io;
use std::net::Shutdown;

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

/// Takes connections, at most `most` at a time, and has each conversed with until it is done. To be called
/// inside a core's runtime; it ends only with the listening socket.
///
/// # Errors
/// The listening socket failed, or there was no descriptor for a timer.
pub async fn accept<C: Future<Output = io::Result<()>> + 'static>(
    listener: Listener,
    most: usize,
    converse: impl Fn(Stream, Timers) -> C,
) -> io::Result<()> {
    let timers = Timers::start()?;
    let (board, _inboxes) = Board::new(1)?;
    let handle = |accepted| {
        // Out of descriptors: the accept loop waits and tries again.
        let Accepted::Connection(connection) = accepted else { return };
        let stream = Stream::from_fd(connection.fd, connection.family);
        let Some(stream) = stream.ok().filter(|_| board.open() <= most) else {
            board.closed(0);
            return;
        };
        let (board, work) = (board.clone(), converse(stream, timers.clone()));
        tokio::task::spawn_local(async move {
            // A client that left gets no answer, and nobody has to know.
            let _ = work.await;
            board.closed(0);
        });
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
    use std::io::Read;
    use std::net::{SocketAddr, TcpStream};
    use std::time::Duration;

    const MOST: usize = 8;

    fn connect(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// What is said to who waits, "hello" where there is a place.
    fn heard(mut stream: TcpStream) -> String {
        let mut said = String::new();
        let _ = stream.read_to_string(&mut said);
        said
    }

    fn client(address: SocketAddr) {
        // They are greeted when they have said something, and until then have their place.
        let idle: Vec<TcpStream> = (0..MOST).map(|_| connect(address)).collect();
        assert_eq!(heard(connect(address)), "", "there is no place");
        drop(idle);
        let deadline_ns = now_ns() + 60 * SECOND_NS;
        loop {
            let stream = connect(address);
            let _ = stream.shutdown(Shutdown::Write);
            if heard(stream) == "hello" {
                return;
            }
            assert!(now_ns() < deadline_ns, "no place came back");
        }
    }

    #[test]
    fn connections_are_bounded_and_places_come_back() {
        crate::cores::block_on(async {
            let mut bound = Bound::new(&"127.0.0.1:0".parse().unwrap(), 1).unwrap();
            let Address::Tcp(address) = *bound.address() else { panic!("a TCP address") };
            let greet = |mut stream: Stream, timers: Timers| async move {
                let mut byte = [0];
                stream.read(&mut byte).await?;
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
