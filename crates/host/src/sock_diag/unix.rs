//! Unix sockets at one moment, from `sock_diag` (unix_diag): their peers, waiting connections and
//! unread bytes.
//!
//! They have no `TCP_INFO`: no times and no byte counts. Sources: `include/uapi/linux/unix_diag.h`,
//! `net/unix/diag.c`.

use std::collections::HashMap;
use std::ops::ControlFlow;

use record::observed::{UnixEnd, UnixQueues};

use crate::kernel_file::NotObservable;
use crate::namespace::Namespace;
use crate::netlink::message::{NetlinkAttributes, u32_at};
use crate::netlink::{DumpOutcome, NetlinkFamily, NetlinkSocket};

const FIGURE: &str = "unix sockets (unix_diag)";
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// `UDIAG_SHOW_NAME | UDIAG_SHOW_PEER | UDIAG_SHOW_RQLEN`.
const UDIAG_SHOW: u32 = 0x01 | 0x04 | 0x10;
const UNIX_DIAG_MSG_BYTES: usize = 16;
/// `UNIX_DIAG_NAME`, `_PEER` and `_RQLEN`.
const UNIX_DIAG_NAME: u16 = 0;
const UNIX_DIAG_PEER: u16 = 2;
const UNIX_DIAG_RQLEN: u16 = 4;
/// States, which unix sockets share with TCP.
const ESTABLISHED: u8 = 1;
const LISTEN: u8 = 10;
/// `SOCK_STREAM` and `SOCK_SEQPACKET`.
const STREAMS: [u8; 2] = [1, 5];
/// Maximum number of sockets per snapshot.
const MAX_SOCKETS: usize = 50_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnixSocket {
    pub(crate) inode: u32,
    pub(crate) is_listening: bool,
    /// Path or `@name`; an accepted socket has that of the listening one. Empty: none.
    pub(crate) name: String,
    /// Inode of the other end; 0 without one.
    pub(crate) peer: u32,
    /// Unread bytes; for a listening socket, the waiting connections.
    pub(crate) recv_queue: u32,
    pub(crate) backlog: u32,
}

/// Unix sockets of one network namespace.
#[derive(Debug)]
pub(crate) struct UnixDiag {
    socket: NetlinkSocket,
}

impl UnixDiag {
    /// Opens a socket to the kernel in the network namespace of a process; `None` is the own
    /// namespace.
    ///
    /// # Errors
    /// As [`super::SockDiag::open`].
    pub(crate) fn open(pid_of_namespace: Option<i32>) -> Result<Self, NotObservable> {
        let socket = Namespace::open_pid(pid_of_namespace)
            .and_then(|namespace| NetlinkSocket::open(NetlinkFamily::SockDiag, namespace))
            .map_err(|error| NotObservable::new(FIGURE, error.to_string()))?;
        Ok(Self { socket })
    }

    /// Reads all stream sockets that listen or are connected, at most [`MAX_ROWS`]. Returns true if
    /// these were all.
    ///
    /// # Errors
    /// The kernel has no `unix_diag`, or rejects the request.
    pub(crate) fn read_sockets(&mut self, into: &mut Vec<UnixSocket>) -> Result<bool, NotObservable> {
        into.clear();
        let states = 1_u32 << ESTABLISHED | 1 << LISTEN;
        let mut request = vec![libc::AF_UNIX as u8, 0, 0, 0];
        // States, no inode, what to show, and no cookie.
        for word in [states, 0, UDIAG_SHOW, 0, 0] {
            request.extend(word.to_ne_bytes());
        }
        let dumped = self.socket.dump(SOCK_DIAG_BY_FAMILY, &request, |_, body| {
            if into.len() == MAX_SOCKETS {
                return ControlFlow::Break(());
            }
            into.extend(parse(body));
            ControlFlow::Continue(())
        });
        let dumped = dumped.map_err(|error| {
            let is_missing =
                matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::Unsupported);
            let why = "the kernel has no unix_diag (try `modprobe unix_diag`)";
            NotObservable::new(FIGURE, if is_missing { why.to_owned() } else { error.to_string() })
        })?;
        Ok(dumped != DumpOutcome::Stopped)
    }
}

/// Parses the body of one message; `None` if it is too short or not a stream socket.
pub(crate) fn parse(body: &[u8]) -> Option<UnixSocket> {
    let fixed = body.get(..UNIX_DIAG_MSG_BYTES)?;
    if fixed[0] != libc::AF_UNIX as u8 || !STREAMS.contains(&fixed[1]) {
        return None;
    }
    let mut socket =
        UnixSocket { inode: u32_at(fixed, 4)?, is_listening: fixed[2] == LISTEN, ..UnixSocket::default() };
    for (kind, value) in NetlinkAttributes::new(body, UNIX_DIAG_MSG_BYTES) {
        match kind {
            UNIX_DIAG_NAME => socket.name = parse_name(value),
            UNIX_DIAG_PEER => socket.peer = u32_at(value, 0).unwrap_or(0),
            UNIX_DIAG_RQLEN => {
                socket.recv_queue = u32_at(value, 0).unwrap_or(0);
                socket.backlog = u32_at(value, 4).unwrap_or(0);
            }
            _ => {}
        }
    }
    Some(socket)
}

/// Returns the name; a path ends with a zero, and an abstract name begins with one.
fn parse_name(value: &[u8]) -> String {
    match value {
        [0, rest @ ..] => format!("@{}", String::from_utf8_lossy(rest)),
        path => {
            let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
            String::from_utf8_lossy(&path[..end]).into_owned()
        }
    }
}

/// Sums the sockets of some paths, one entry per path.
pub(crate) fn sum_by_path(sockets: &[UnixSocket], paths: &[String]) -> Vec<UnixQueues> {
    let by_inode: HashMap<u32, &UnixSocket> = sockets.iter().map(|row| (row.inode, row)).collect();
    let sum = |path: &String| {
        let mut sum = UnixQueues { path: path.clone(), ..UnixQueues::default() };
        for socket in sockets.iter().filter(|row| row.name == *path) {
            if socket.is_listening {
                sum.sockets += 1;
                sum.waiting = sum.waiting.saturating_add(socket.recv_queue);
                sum.backlog = sum.backlog.max(socket.backlog);
                continue;
            }
            add_end(&mut sum.server, socket);
            if let Some(client) = by_inode.get(&socket.peer) {
                add_end(&mut sum.client, client);
            }
        }
        sum
    };
    paths.iter().map(sum).collect()
}

fn add_end(end: &mut UnixEnd, socket: &UnixSocket) {
    let unread = u64::from(socket.recv_queue);
    end.established += 1;
    end.with_unread += u64::from(unread > 0);
    end.unread_bytes += unread;
    end.unread_bytes_max = end.unread_bytes_max.max(unread);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::message::push_attribute;
    use crate::netlink::message::testing::{for_each_corruption, parse_hex};
    use std::io::Write as _;
    use std::os::unix::net::{UnixListener, UnixStream};

    const LISTENING: &str = include_str!("captured/unix_listening.hex");
    const ACCEPTED: &str = include_str!("captured/unix_accepted.hex");
    const CONNECTED: &str = include_str!("captured/unix_connected.hex");

    // Captured on Linux 6.18, x86-64.
    #[cfg(target_endian = "little")]
    #[test]
    fn captured_sockets_are_read() {
        let listening = parse(&parse_hex(LISTENING)).unwrap();
        assert_eq!((listening.is_listening, listening.name.as_str()), (true, "/tmp/observe.sock"));
        assert_eq!((listening.recv_queue, listening.backlog), (1, 5));
        let accepted = parse(&parse_hex(ACCEPTED)).unwrap();
        assert_eq!((accepted.is_listening, accepted.name.as_str()), (false, "/tmp/observe.sock"));
        let connected = parse(&parse_hex(CONNECTED)).unwrap();
        assert_eq!((connected.is_listening, connected.name.as_str()), (false, ""));
        assert_eq!((accepted.peer, connected.peer), (connected.inode, accepted.inode));
        assert_eq!((accepted.recv_queue, connected.recv_queue), (6, 0));
    }

    #[test]
    fn rows_that_are_cut_or_garbage_are_refused_or_read_but_never_a_panic() {
        for text in [LISTENING, ACCEPTED, CONNECTED] {
            for_each_corruption(&parse_hex(text), |row| {
                let parsed = parse(row);
                assert!(row.len() >= UNIX_DIAG_MSG_BYTES || parsed.is_none());
            });
        }
        let mut abstract_one = parse_hex(CONNECTED);
        push_attribute(&mut abstract_one, UNIX_DIAG_NAME, b"\0inside");
        assert_eq!(parse(&abstract_one).unwrap().name, "@inside");
        abstract_one[1] = 2;
        assert_eq!(parse(&abstract_one), None, "datagrams");
    }

    #[test]
    fn both_ends_of_a_path_are_summed() {
        let directory = std::env::temp_dir();
        let path = directory.join(format!("weir-unix-{}.sock", std::process::id()));
        let name = path.display().to_string();
        let listener = UnixListener::bind(&path).unwrap();
        let mut first = UnixStream::connect(&path).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        let _waiting = UnixStream::connect(&path).unwrap();
        first.write_all(b"unread").unwrap();
        accepted.write_all(b"reply").unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut diag = match UnixDiag::open(None) {
            Ok(diag) => diag,
            Err(error) => return test_needs::skip(test_needs::KERNEL, error),
        };
        let mut rows = vec![];
        if let Err(error) = diag.read_sockets(&mut rows) {
            return test_needs::skip(test_needs::KERNEL, error);
        }
        let queues = sum_by_path(&rows, &[name, "/not/there".to_owned()]);
        assert_eq!((queues[0].waiting, queues[0].sockets, queues[1].sockets), (1, 1, 0));
        assert!(queues[0].backlog >= 1);
        // Not every kernel lists the server end of a connection that waits to be accepted.
        let (server, client) = (queues[0].server, queues[0].client);
        assert!((1..=2).contains(&server.established), "{server:?}");
        let unread = |end: UnixEnd| (end.with_unread, end.unread_bytes, end.unread_bytes_max);
        assert_eq!((unread(server), unread(client)), ((1, 6, 6), (1, 5, 5)));
    }
}
