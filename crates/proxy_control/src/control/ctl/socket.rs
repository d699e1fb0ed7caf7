//! The connections of the control socket: one line in, one response out. Few run at a time, in one
//! thread each. The size and the duration of each are bounded.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rt::clock::{MonotonicTime, SECOND_NS};
use rt::unix_socket::{PeerCredentials, accept_until, effective_uid, peer_credentials};

use super::{CommandContext, CommandError, CommandResult, run_command};

/// Maximum number of connections at a time; further ones get an error and are closed.
const CONNECTIONS_MAX: usize = 16;
/// Maximum length of a line: a page of maintenance in base64, and its command.
const LINE_BYTES_MAX: usize = 96 << 10;
/// Maximum time for a client to send its line.
const LINE_TIMEOUT_NS: u64 = 5 * SECOND_NS;
/// Maximum time for a client to read the response.
const RESPONSE_TIMEOUT_NS: u64 = 30 * SECOND_NS;
/// Delay after a failed accept: most likely no descriptor was left.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// A slot out of [`CONNECTIONS_MAX`], released on drop.
struct ConnectionSlot(Arc<AtomicUsize>);

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The thread that accepts on the control socket. Drop stops it; accepted commands still get their
/// responses.
#[derive(Debug)]
pub(crate) struct AcceptThread {
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for AcceptThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        // The thread waits for nothing else.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Runs commands from `listener`, in a new thread.
///
/// # Errors
/// The thread could not be started.
pub(crate) fn start(listener: UnixListener, context: CommandContext) -> io::Result<AcceptThread> {
    let context = Arc::new(context);
    let used_slots = Arc::new(AtomicUsize::new(0));
    let (stop, stop_receiver) = UnixStream::pair()?;
    listener.set_nonblocking(true)?;
    let thread = std::thread::Builder::new().name("control".to_owned()).spawn(move || {
        loop {
            match accept_until(&listener, &stop_receiver) {
                Ok(Some(stream)) => spawn_client(stream, &context, &used_slots),
                Ok(None) => return,
                Err(_) => std::thread::sleep(ACCEPT_RETRY_DELAY),
            }
        }
    })?;
    Ok(AcceptThread { stop: Some(stop), thread: Some(thread) })
}

fn spawn_client(stream: UnixStream, context: &Arc<CommandContext>, used_slots: &Arc<AtomicUsize>) {
    let slot = ConnectionSlot(Arc::clone(used_slots));
    if used_slots.fetch_add(1, Ordering::SeqCst) >= CONNECTIONS_MAX {
        let reason = format!("respond: {CONNECTIONS_MAX} other clients are connected; try again");
        // A client that does not read must not block this thread.
        let _ = stream.set_nonblocking(true);
        let _ = (&stream).write_all(render_response(&Err(CommandError::Failed(reason))).as_bytes());
        return;
    }
    let context = Arc::clone(context);
    // If no thread can be started, the connection is closed, and the client notices that.
    let _ = std::thread::Builder::new().name("control-client".to_owned()).spawn(move || {
        let _slot = slot;
        // A client that left gets no response, and nothing is reported.
        let _ = serve_client(&stream, &context);
    });
}

fn serve_client(stream: &UnixStream, context: &CommandContext) -> io::Result<()> {
    let peer = peer_credentials(stream)?;
    let result = match (check_user(peer, effective_uid()), read_line(stream)) {
        (Err(error), _) | (Ok(()), Err(error)) => Err(error),
        (Ok(()), Ok(line)) => run_command(&line, context, stream, peer),
    };
    if !matches!(result, Ok(None)) {
        send(stream, render_response(&result).as_bytes())?;
    }
    stream.shutdown(Shutdown::Write)
}

/// Checks the client's user. The socket's mode has the same effect; this check holds even if
/// the mode was changed.
fn check_user(peer: PeerCredentials, own_user: u32) -> Result<(), CommandError> {
    if peer.uid == 0 || peer.uid == own_user {
        return Ok(());
    }
    let user = peer.uid;
    Err(CommandError::Failed(format!("accept user {user}: only root and user {own_user} may use the socket")))
}

fn render_response(result: &CommandResult) -> String {
    match result {
        Ok(response) => format!("ok\n{}", response.as_deref().unwrap_or_default()),
        Err(error) => format!("error: {}\n", error.to_string().trim_end()),
    }
}

fn read_line(mut stream: &UnixStream) -> Result<String, CommandError> {
    let end = MonotonicTime::now() + LINE_TIMEOUT_NS;
    let mut line = Vec::new();
    let mut chunk = [0; 4_096];
    let invalid = |text: &str| Err(CommandError::Invalid(text.to_owned()));
    loop {
        let left_ns = end.since(MonotonicTime::now());
        let has_timeout = left_ns > 0 && stream.set_read_timeout(Some(Duration::from_nanos(left_ns))).is_ok();
        let searched = line.len();
        let read = if has_timeout { stream.read(&mut chunk) } else { Ok(0) };
        match read {
            Ok(0) if left_ns == 0 => return invalid("the line timed out"),
            Ok(0) => return invalid("the line has no newline"),
            Ok(read) => line.extend_from_slice(&chunk[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return invalid("the line timed out");
            }
            Err(_) => return invalid("the line could not be read"),
        }
        if let Some(line_end) = line[searched..].iter().position(|&byte| byte == b'\n') {
            line.truncate(searched + line_end);
            let Ok(line) = String::from_utf8(line) else {
                return invalid("the line is not UTF-8");
            };
            return Ok(line);
        }
        if line.len() > LINE_BYTES_MAX {
            return invalid(&format!("the line is longer than {LINE_BYTES_MAX} bytes"));
        }
    }
}

/// Sends all of `bytes`, within the client's time limit.
pub(super) fn send(mut stream: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    let end = MonotonicTime::now() + RESPONSE_TIMEOUT_NS;
    while !bytes.is_empty() {
        let left_ns = end.since(MonotonicTime::now());
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

    fn read_line_of(bytes: &[u8], closed: bool) -> Result<String, CommandError> {
        let (mut client, server) = UnixStream::pair().unwrap();
        client.write_all(bytes).unwrap();
        if closed {
            client.shutdown(Shutdown::Write).unwrap();
        }
        read_line(&server)
    }

    #[test]
    fn a_line_is_bounded_and_text() {
        assert_eq!(read_line_of(b"show info\nmore", false), Ok("show info".to_owned()));
        assert_eq!(read_line_of(b"\n", false), Ok(String::new()));
        let invalid = |bytes: &[u8], closed| match read_line_of(bytes, closed) {
            Err(CommandError::Invalid(text)) => text,
            other => panic!("{other:?}"),
        };
        assert!(invalid(b"show", true).contains("newline"));
        assert!(invalid(b"", true).contains("newline"));
        assert!(invalid(b"\xff\xfe\n", false).contains("UTF-8"));
        assert!(invalid(&[b'x'; LINE_BYTES_MAX + 600], false).contains("longer than"));
    }

    #[test]
    fn only_root_and_its_own_user_are_allowed() {
        let peer = |user| PeerCredentials { uid: user, pid: 1 };
        assert!(check_user(peer(0), 33).is_ok() && check_user(peer(33), 33).is_ok());
        assert!(matches!(check_user(peer(34), 33), Err(CommandError::Failed(_))));
        assert!(check_user(peer(33), 0).is_err());
    }
}
