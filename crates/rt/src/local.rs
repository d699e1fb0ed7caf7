//! A unix socket that only its owner reaches: mode 0600 from the moment it is there, a left-over of a
//! dead process replaced and a living one left alone; and who is at the other end. What is said over
//! it is not known here.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, fchmod};
use rustix::net::sockopt::socket_peercred;
use socket2::{Domain, SockAddr, SockRef, Socket, Type};

/// A listening socket of our own, as a file. The file is removed when this is dropped, unless it is
/// somebody else's by then.
#[derive(Debug)]
pub struct PrivateSocket {
    path: PathBuf,
    identity: Option<Identity>,
    listener: Option<UnixListener>,
}

/// Who is at the other end of a unix socket, as of when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalPeer {
    /// Its user.
    pub user: u32,
    /// Its process.
    pub process: i32,
}

/// Which file it is: device, inode, and when it came to be, because inodes are used again.
type Identity = (u64, u64, i64, i64);

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 64;
/// The owner may read and write, which is what connecting takes; nobody else may anything.
const MODE: Mode = Mode::from_raw_mode(0o600);

impl PrivateSocket {
    /// Binds and listens at `path`. `owner` is the user and the group that the file is given to.
    ///
    /// # Errors
    /// As bind(2), with the path in the message: somebody listens there, or it is no socket.
    pub fn bind(path: &Path, owner: Option<(u32, Option<u32>)>) -> io::Result<Self> {
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("unix:{}: {error}", path.display()))
        };
        let listener = listen(path).map_err(named)?;
        let mut socket =
            Self { path: path.to_owned(), identity: identity(path), listener: Some(listener) };
        if let Some((user, group)) = owner {
            std::os::unix::fs::chown(path, Some(user), group).map_err(named)?;
            socket.identity = identity(path);
        }
        Ok(socket)
    }

    /// Takes over the socket that another process listens on at `path`. As long as that one may still
    /// go on, nothing of it changes: see [`PrivateSocket::take_over`].
    ///
    /// # Errors
    /// It is no listening unix socket, with the path in the message.
    pub fn adopt(path: &Path, socket: OwnedFd) -> io::Result<Self> {
        let known = SockRef::from(&socket);
        if !known.is_listener()? || known.domain()? != Domain::UNIX {
            let text = format!("unix:{}: what was passed on is no such socket", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(Self { path: path.to_owned(), identity: None, listener: Some(socket.into()) })
    }

    /// The other process has left: the file is ours.
    pub fn take_over(&mut self) {
        self.identity = identity(&self.path);
    }

    /// Another process has the socket now: its file stays when this is dropped.
    pub fn leave_file(&mut self) {
        self.identity = None;
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The listening socket, for who accepts; once.
    pub fn take(&mut self) -> Option<UnixListener> {
        self.listener.take()
    }
}

impl Drop for PrivateSocket {
    fn drop(&mut self) {
        let now = identity(&self.path);
        if now.is_some() && now == self.identity {
            // In a folder that we may not write to any more, it stays, and the next one replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<Identity> {
    let file = fs::symlink_metadata(path).ok()?;
    Some((file.dev(), file.ino(), file.ctime(), file.ctime_nsec()))
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    let address = SockAddr::unix(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // The file gets the mode that the socket has, so that at no time anybody else may connect.
    fchmod(&socket, MODE)?;
    if let Err(error) = socket.bind(&address) {
        if error.kind() != io::ErrorKind::AddrInUse {
            return Err(error);
        }
        remove_left_over(path, &address)?;
        socket.bind(&address)?;
    }
    socket.listen(BACKLOG)?;
    Ok(OwnedFd::from(socket).into())
}

/// Removes the socket of a process that is gone.
fn remove_left_over(path: &Path, address: &SockAddr) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        let text = "there is a file of another kind";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // One that lives may be too busy to accept, and must not keep us waiting.
    probe.set_nonblocking(true)?;
    match probe.connect(address) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        _ => {
            let text = "another process listens there";
            Err(io::Error::new(io::ErrorKind::AddrInUse, text))
        }
    }
}

/// Waits for a connection in the calling thread; `None`: what is at the other end of `end` was closed,
/// so that this process accepts no more. `listener` must not block: another process may have it too.
///
/// # Errors
/// As accept(2).
pub fn accept_until(listener: &UnixListener, end: &UnixStream) -> io::Result<Option<UnixStream>> {
    let mut watched = [PollFd::new(listener, PollFlags::IN), PollFd::new(end, PollFlags::IN)];
    loop {
        match poll(&mut watched, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        if !watched[1].revents().is_empty() {
            return Ok(None);
        }
        match listener.accept() {
            Ok((stream, _)) => return Ok(Some(stream)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Who is at the other end (`SO_PEERCRED`, unix(7)).
///
/// # Errors
/// The kernel does not know.
pub fn peer_of(stream: &UnixStream) -> io::Result<LocalPeer> {
    let credentials = socket_peercred(stream)?;
    let process = credentials.pid.as_raw_nonzero().get();
    Ok(LocalPeer { user: credentials.uid.as_raw(), process })
}

/// The user that this process is, as far as rights go.
#[must_use]
pub fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::testing::end;

    /// A path of its own, in a folder that is removed.
    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn path(&self) -> PathBuf {
            self.0.path().join("s")
        }
    }

    #[test]
    fn only_its_owner_reaches_it_and_it_knows_who_does() {
        let place = Place::new();
        let mut socket = PrivateSocket::bind(&place.path(), None).unwrap();
        let mode = fs::symlink_metadata(place.path()).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600, "{mode:o}");
        let listener = socket.take().unwrap();
        let _client = UnixStream::connect(place.path()).unwrap();
        let peer = peer_of(&listener.accept().unwrap().0).unwrap();
        let process = std::process::id() as i32;
        assert_eq!(peer, LocalPeer { user: own_user(), process });
        drop((socket, listener));
        assert!(!place.path().exists());
    }

    #[test]
    fn a_living_one_is_left_alone_and_a_dead_one_replaced() {
        let place = Place::new();
        let mut first = PrivateSocket::bind(&place.path(), None).unwrap();
        let error = PrivateSocket::bind(&place.path(), None).unwrap_err();
        assert!(error.to_string().contains("another process listens there"), "{error}");
        // As if it had been killed: nobody listens, the file is there.
        end(first.take().unwrap());
        // The times of files are as coarse as the kernel's tick.
        std::thread::sleep(std::time::Duration::from_millis(30));
        let second = PrivateSocket::bind(&place.path(), None).unwrap();
        drop(first);
        assert!(place.path().exists(), "the first removed what is the second's");
        drop(second);
        assert!(!place.path().exists());
    }

    #[test]
    fn the_file_goes_with_the_last_process_that_has_the_socket() {
        let place = Place::new();
        let mut old = PrivateSocket::bind(&place.path(), None).unwrap();
        let listener = OwnedFd::from(old.take().unwrap());
        // One that fails before the other has left takes nothing with it.
        drop(PrivateSocket::adopt(&place.path(), listener.try_clone().unwrap()).unwrap());
        assert!(place.path().exists());
        let mut new = PrivateSocket::adopt(&place.path(), listener).unwrap();
        old.leave_file();
        drop(old);
        assert!(place.path().exists());
        new.take_over();
        let _client = UnixStream::connect(place.path()).unwrap();
        new.take().unwrap().accept().unwrap();
        drop(new);
        assert!(!place.path().exists());
        let pair = UnixStream::pair().unwrap();
        assert!(PrivateSocket::adopt(&place.path(), pair.0.into()).is_err());
    }

    #[test]
    fn who_waits_for_a_connection_can_be_told_to_stop() {
        let place = Place::new();
        let mut socket = PrivateSocket::bind(&place.path(), None).unwrap();
        let listener = socket.take().unwrap();
        listener.set_nonblocking(true).unwrap();
        let (end, stop) = UnixStream::pair().unwrap();
        let waiting = std::thread::spawn(move || {
            let first = accept_until(&listener, &end).unwrap().is_some();
            (first, accept_until(&listener, &end).unwrap().is_some())
        });
        let mut client = UnixStream::connect(place.path()).unwrap();
        assert_eq!(io::Read::read(&mut client, &mut [0]).unwrap(), 0, "it was not accepted");
        drop(stop);
        assert_eq!(waiting.join().unwrap(), (true, false));
    }

    #[test]
    fn what_is_no_socket_is_never_removed() {
        let place = Place::new();
        fs::write(place.path(), "kept").unwrap();
        let error = PrivateSocket::bind(&place.path(), None).unwrap_err();
        assert!(error.to_string().contains("another kind"), "{error}");
        assert_eq!(fs::read_to_string(place.path()).unwrap(), "kept");
    }
}
