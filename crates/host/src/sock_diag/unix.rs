//! Unix sockets at one moment, as `sock_diag` tells them (unix_diag): which are connected to which, what
//! waits to be accepted, what is unread.
//!
//! There is no `TCP_INFO` of them: no times and no counts of bytes. Sources:
//! `include/uapi/linux/unix_diag.h`, `net/unix/diag.c`.

use std::collections::HashMap;
use std::ops::ControlFlow;

use record::observed::{UnixEnd, UnixQueues};

use crate::namespace::Namespace;
use crate::netlink::message::{Attributes, u32_at};
use crate::netlink::{Dumped, Family, Socket};
use crate::source::NotObservable;

const WHAT: &str = "unix sockets (unix_diag)";
/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// `UDIAG_SHOW_NAME | UDIAG_SHOW_PEER | UDIAG_SHOW_RQLEN`.
const SHOW: u32 = 0x01 | 0x04 | 0x10;
/// `struct unix_diag_msg`.
const ROW_BYTES: usize = 16;
/// `UNIX_DIAG_NAME`, `_PEER` and `_RQLEN`.
const NAME: u16 = 0;
const PEER: u16 = 2;
const QUEUES: u16 = 4;
/// States, which unix sockets have from TCP.
const ESTABLISHED: u8 = 1;
const LISTEN: u8 = 10;
/// `SOCK_STREAM` and `SOCK_SEQPACKET`.
const STREAMS: [u8; 2] = [1, 5];
/// Sockets that one look takes.
const MAX_ROWS: usize = 50_000;

/// A unix socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnixRow {
    pub(crate) inode: u32,
    pub(crate) listens: bool,
    /// The path or `@name`; an accepted socket has that of the listening one. Empty: none.
    pub(crate) name: String,
    /// The inode of the other end; 0 without one.
    pub(crate) peer: u32,
    /// Bytes that were not read; connections that wait, where it listens.
    pub(crate) received: u32,
    /// The backlog, where it listens.
    pub(crate) backlog: u32,
}

/// The unix sockets of one network namespace.
#[derive(Debug)]
pub(crate) struct UnixDiag {
    socket: Socket,
}

impl UnixDiag {
    /// Opens a socket to the kernel in the network namespace of a process; `None` is our own.
    ///
    /// # Errors
    /// As [`super::SockDiag::open`].
    pub(crate) fn open(pid_of_namespace: Option<i32>) -> Result<Self, NotObservable> {
        let socket = Namespace::of(pid_of_namespace)
            .and_then(|there| Socket::open(Family::SockDiag, there))
            .map_err(|error| NotObservable::new(WHAT, error.to_string()))?;
        Ok(Self { socket })
    }

    /// Reads all stream sockets that listen or are connected, at most [`MAX_ROWS`]; says whether these
    /// were all.
    ///
    /// # Errors
    /// The kernel has no `unix_diag`, or refuses.
    pub(crate) fn rows(&mut self, into: &mut Vec<UnixRow>) -> Result<bool, NotObservable> {
        into.clear();
        let states = 1_u32 << ESTABLISHED | 1 << LISTEN;
        let mut request = vec![libc::AF_UNIX as u8, 0, 0, 0];
        // States, no inode, what to show, and no cookie.
        for word in [states, 0, SHOW, 0, 0] {
            request.extend(word.to_ne_bytes());
        }
        let dumped = self.socket.dump(BY_FAMILY, &request, |_, body| {
            if into.len() == MAX_ROWS {
                return ControlFlow::Break(());
            }
            into.extend(parse(body));
            ControlFlow::Continue(())
        });
        let dumped = dumped.map_err(|error| {
            let none = matches!(
                error.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::Unsupported
            );
            let why = "the kernel has no unix_diag (try `modprobe unix_diag`)";
            NotObservable::new(WHAT, if none { why.to_owned() } else { error.to_string() })
        })?;
        Ok(dumped != Dumped::Left)
    }
}

/// Parses the body of one message; `None` when it is too short or no stream.
pub(crate) fn parse(body: &[u8]) -> Option<UnixRow> {
    let fixed = body.get(..ROW_BYTES)?;
    if fixed[0] != libc::AF_UNIX as u8 || !STREAMS.contains(&fixed[1]) {
        return None;
    }
    let mut row =
        UnixRow { inode: u32_at(fixed, 4)?, listens: fixed[2] == LISTEN, ..UnixRow::default() };
    for (kind, value) in Attributes::new(body, ROW_BYTES) {
        match kind {
            NAME => row.name = name(value),
            PEER => row.peer = u32_at(value, 0).unwrap_or(0),
            QUEUES => {
                row.received = u32_at(value, 0).unwrap_or(0);
                row.backlog = u32_at(value, 4).unwrap_or(0);
            }
            _ => {}
        }
    }
    Some(row)
}

/// A path ends with a zero, and an abstract name begins with one.
fn name(value: &[u8]) -> String {
    match value {
        [0, rest @ ..] => format!("@{}", String::from_utf8_lossy(rest)),
        path => {
            let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
            String::from_utf8_lossy(&path[..end]).into_owned()
        }
    }
}

/// Adds the sockets of some paths up, one entry a path.
pub(crate) fn sums(rows: &[UnixRow], paths: &[String]) -> Vec<UnixQueues> {
    let by_inode: HashMap<u32, &UnixRow> = rows.iter().map(|row| (row.inode, row)).collect();
    let sum = |path: &String| {
        let mut sum = UnixQueues { path: path.clone(), ..UnixQueues::default() };
        for row in rows.iter().filter(|row| row.name == *path) {
            if row.listens {
                sum.sockets += 1;
                sum.waiting = sum.waiting.saturating_add(row.received);
                sum.backlog = sum.backlog.max(row.backlog);
                continue;
            }
            add(&mut sum.server, row);
            if let Some(client) = by_inode.get(&row.peer) {
                add(&mut sum.client, client);
            }
        }
        sum
    };
    paths.iter().map(sum).collect()
}

fn add(end: &mut UnixEnd, row: &UnixRow) {
    let unread = u64::from(row.received);
    end.established += 1;
    end.with_unread += u64::from(unread > 0);
    end.unread_bytes += unread;
    end.unread_bytes_max = end.unread_bytes_max.max(unread);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::message::push_attribute;
    use crate::netlink::message::testing::{bytes, mangled};
    use std::io::Write as _;
    use std::os::unix::net::{UnixListener, UnixStream};

    const LISTENING: &str = include_str!("captured/unix_listening.hex");
    const ACCEPTED: &str = include_str!("captured/unix_accepted.hex");
    const CONNECTED: &str = include_str!("captured/unix_connected.hex");

    // Captured on Linux 6.18, x86-64.
    #[cfg(target_endian = "little")]
    #[test]
    fn captured_sockets_are_read() {
        let listening = parse(&bytes(LISTENING)).unwrap();
        assert_eq!((listening.listens, listening.name.as_str()), (true, "/tmp/observe.sock"));
        assert_eq!((listening.received, listening.backlog), (1, 5));
        let accepted = parse(&bytes(ACCEPTED)).unwrap();
        assert_eq!((accepted.listens, accepted.name.as_str()), (false, "/tmp/observe.sock"));
        let connected = parse(&bytes(CONNECTED)).unwrap();
        assert_eq!((connected.listens, connected.name.as_str()), (false, ""));
        assert_eq!((accepted.peer, connected.peer), (connected.inode, accepted.inode));
        assert_eq!((accepted.received, connected.received), (6, 0));
    }

    #[test]
    fn rows_that_are_cut_or_garbage_are_refused_or_read_but_never_a_panic() {
        for text in [LISTENING, ACCEPTED, CONNECTED] {
            mangled(&bytes(text), |row| {
                let parsed = parse(row);
                assert!(row.len() >= ROW_BYTES || parsed.is_none());
            });
        }
        let mut abstract_one = bytes(CONNECTED);
        push_attribute(&mut abstract_one, NAME, b"\0inside");
        assert_eq!(parse(&abstract_one).unwrap().name, "@inside");
        abstract_one[1] = 2;
        assert_eq!(parse(&abstract_one), None, "datagrams");
    }

    #[test]
    fn both_ends_of_a_path_are_summed() {
        let folder = std::env::temp_dir();
        let path = folder.join(format!("weir-unix-{}.sock", std::process::id()));
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
            Err(error) => return println!("skipped: {error}"),
        };
        let mut rows = vec![];
        if let Err(error) = diag.rows(&mut rows) {
            return println!("skipped: {error}");
        }
        let queues = sums(&rows, &[name, "/not/there".to_owned()]);
        assert_eq!((queues[0].waiting, queues[0].sockets, queues[1].sockets), (1, 1, 0));
        assert!(queues[0].backlog >= 1);
        // The server end of a connection that waits to be accepted is not in every kernel's list.
        let (server, client) = (queues[0].server, queues[0].client);
        assert!((1..=2).contains(&server.established), "{server:?}");
        let unread = |end: UnixEnd| (end.with_unread, end.unread_bytes, end.unread_bytes_max);
        assert_eq!((unread(server), unread(client)), ((1, 6, 6), (1, 5, 5)));
    }
}
