//! The connections of the control socket: one line in, one answer out. Few at a time, a thread each,
//! and each bounded in what it may send and in how long it may take.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rt::clock::{SECOND_NS, now_ns};
use rt::local::{LocalPeer, accept_until, own_user, peer_of};

use super::{Desk, Outcome, Refusal, obey};

/// Connections at a time; further ones are told so and closed.
const CONNECTIONS_MAX: usize = 16;
/// Bytes of a line.
const LINE_BYTES_MAX: usize = 4_096;
/// How long a client may take for its line.
const LINE_NS: u64 = 5 * SECOND_NS;
/// How long a client may take to read the answer.
const ANSWER_NS: u64 = 30 * SECOND_NS;
/// After a failed accept: most likely no descriptor was left.
const PAUSE: Duration = Duration::from_millis(100);

/// A place among [`CONNECTIONS_MAX`], given back when dropped.
struct Seat(Arc<AtomicUsize>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Who accepts at the control socket; nobody does any more once this is dropped. What was accepted
/// is still answered.
#[derive(Debug)]
pub(crate) struct Hearing {
    /// Closing it is what ends the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Hearing {
    fn drop(&mut self) {
        drop(self.stop.take());
        // It waits for nothing else.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Obeys what comes over `listener`, from a thread of its own.
///
/// # Errors
/// The thread could not be started.
pub(crate) fn start(listener: UnixListener, desk: Desk) -> io::Result<Hearing> {
    let desk = Arc::new(desk);
    let taken = Arc::new(AtomicUsize::new(0));
    let (stop, end) = UnixStream::pair()?;
    listener.set_nonblocking(true)?;
    let thread = std::thread::Builder::new().name("control".to_owned()).spawn(move || {
        loop {
            match accept_until(&listener, &end) {
                Ok(Some(stream)) => seat(stream, &desk, &taken),
                Ok(None) => return,
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    })?;
    Ok(Hearing { stop: Some(stop), thread: Some(thread) })
}

fn seat(stream: UnixStream, desk: &Arc<Desk>, taken: &Arc<AtomicUsize>) {
    let seat = Seat(Arc::clone(taken));
    if taken.fetch_add(1, Ordering::SeqCst) >= CONNECTIONS_MAX {
        let why = format!("be answered: {CONNECTIONS_MAX} others are being answered just now");
        // Nobody waits for one who does not read.
        let _ = stream.set_nonblocking(true);
        let _ = (&stream).write_all(render(&Err(Refusal::Cannot(why))).as_bytes());
        return;
    }
    let desk = Arc::clone(desk);
    // Without a thread for it the connection is closed, and the client sees that.
    let _ = std::thread::Builder::new().name("control-client".to_owned()).spawn(move || {
        let _seat = seat;
        // A client that left gets no answer, and nobody has to know.
        let _ = serve(&stream, &desk);
    });
}

fn serve(stream: &UnixStream, desk: &Desk) -> io::Result<()> {
    let peer = peer_of(stream)?;
    let outcome = match (may(peer, own_user()), read_line(stream)) {
        (Err(refusal), _) | (Ok(()), Err(refusal)) => Err(refusal),
        (Ok(()), Ok(line)) => obey(&line, desk, stream, peer),
    };
    if !matches!(outcome, Ok(None)) {
        send(stream, render(&outcome).as_bytes())?;
    }
    stream.shutdown(Shutdown::Write)
}

/// The socket's mode says the same; this holds as well where somebody has changed that.
fn may(peer: LocalPeer, own: u32) -> Result<(), Refusal> {
    if peer.user == 0 || peer.user == own {
        return Ok(());
    }
    let user = peer.user;
    Err(Refusal::Cannot(format!("obey user {user}: only root and user {own} may operate it")))
}

fn render(outcome: &Outcome) -> String {
    match outcome {
        Ok(answer) => format!("ok\n{}", answer.as_deref().unwrap_or_default()),
        Err(Refusal::Wrong(text)) => format!("error: {}\n", text.trim_end()),
        Err(Refusal::Cannot(text)) => format!("error: cannot {}\n", text.trim_end()),
    }
}

fn read_line(mut stream: &UnixStream) -> Result<String, Refusal> {
    let end_ns = now_ns() + LINE_NS;
    let mut line = Vec::new();
    let mut chunk = [0; 512];
    let wrong = |text: &str| Err(Refusal::Wrong(text.to_owned()));
    loop {
        let left_ns = end_ns.saturating_sub(now_ns());
        let timed =
            left_ns > 0 && stream.set_read_timeout(Some(Duration::from_nanos(left_ns))).is_ok();
        let read = if timed { stream.read(&mut chunk) } else { Ok(0) };
        match read {
            Ok(0) if left_ns == 0 => return wrong("the line did not come in time"),
            Ok(0) => return wrong("the line has no end"),
            Ok(read) => line.extend_from_slice(&chunk[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return wrong("the line did not come in time");
            }
            Err(_) => return wrong("the line could not be read"),
        }
        if let Some(end) = line.iter().position(|&byte| byte == b'\n') {
            line.truncate(end);
            let Ok(line) = String::from_utf8(line) else {
                return wrong("the line is not UTF-8");
            };
            return Ok(line);
        }
        if line.len() > LINE_BYTES_MAX {
            return wrong(&format!("the line is longer than {LINE_BYTES_MAX} bytes"));
        }
    }
}

/// Sends the whole of `bytes`, for as long as a client may take for it.
pub(super) fn send(mut stream: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    let end_ns = now_ns() + ANSWER_NS;
    while !bytes.is_empty() {
        let left_ns = end_ns.saturating_sub(now_ns());
        if left_ns == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(Duration::from_nanos(left_ns)))?;
        match stream.write(bytes) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line_of(bytes: &[u8], closed: bool) -> Result<String, Refusal> {
        let (mut client, server) = UnixStream::pair().unwrap();
        client.write_all(bytes).unwrap();
        if closed {
            client.shutdown(Shutdown::Write).unwrap();
        }
        read_line(&server)
    }

    #[test]
    fn a_line_is_bounded_and_text() {
        assert_eq!(line_of(b"show info\nmore", false), Ok("show info".to_owned()));
        assert_eq!(line_of(b"\n", false), Ok(String::new()));
        let wrong = |bytes: &[u8], closed| match line_of(bytes, closed) {
            Err(Refusal::Wrong(text)) => text,
            other => panic!("{other:?}"),
        };
        assert!(wrong(b"show", true).contains("has no end"));
        assert!(wrong(b"", true).contains("has no end"));
        assert!(wrong(b"\xff\xfe\n", false).contains("UTF-8"));
        assert!(wrong(&[b'x'; LINE_BYTES_MAX + 600], false).contains("longer than"));
    }

    #[test]
    fn only_root_and_its_own_user_may() {
        let peer = |user| LocalPeer { user, process: 1 };
        assert!(may(peer(0), 33).is_ok() && may(peer(33), 33).is_ok());
        assert!(matches!(may(peer(34), 33), Err(Refusal::Cannot(_))));
        assert!(may(peer(33), 0).is_err());
    }
}
