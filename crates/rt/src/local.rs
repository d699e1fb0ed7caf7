//! Unix sockets as files: bound with a mode and an owner, a stale socket of this user replaced and
//! everything else at that path left alone; the private socket that only its owner may connect to; and
//! the credentials of the peer. The bytes that a socket carries are not interpreted here.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, lchown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags, fchmod, openat};
use rustix::net::sockopt::socket_peercred;
use socket2::{Domain, SockAddr, SockRef, Socket, Type};

/// A listening socket of our own, as a file. The file is removed when this is dropped, unless it is
/// somebody else's by then.
#[derive(Debug)]
pub struct PrivateSocket {
    file: SocketFile,
    listener: Option<UnixListener>,
}

/// The file of a bound unix socket. Dropping it removes the file, unless another socket is at its
/// path by then, or another process owns it.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    identity: Option<Identity>,
}

/// The access rights of a unix socket's file. Connecting to a unix socket takes the right to write
/// to its file (unix(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketAccess {
    /// The mode, in the lowest nine bits; `None`: what the umask leaves of 0777.
    pub mode: Option<u32>,
    /// The owner; `None`: the user of this process. Another one takes root.
    pub user: Option<u32>,
    /// The group; `None`: the group of this process.
    pub group: Option<u32>,
}

/// Who is at the other end of a unix socket, as of when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalPeer {
    /// Its user.
    pub user: u32,
    /// Its process.
    pub process: i32,
}

/// Device, inode and time of creation: inodes are used again.
type Identity = (u64, u64, Option<SystemTime>);

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 64;
/// The owner may connect, and nobody else.
const MODE: u32 = 0o600;

impl PrivateSocket {
    /// Binds and listens at `path`. `owner` is the user and the group that the file is given to.
    ///
    /// # Errors
    /// As bind(2), with the path in the message: somebody listens there, or it is no socket.
    pub fn bind(path: &Path, owner: Option<(u32, Option<u32>)>) -> io::Result<Self> {
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("unix:{}: {error}", path.display()))
        };
        let (user, group) = owner.map_or((None, None), |(user, group)| (Some(user), group));
        let access = SocketAccess { mode: Some(MODE), user, group };
        let (socket, file) = bind(path, access).map_err(named)?;
        socket.listen(BACKLOG).map_err(named)?;
        Ok(Self { file, listener: Some(OwnedFd::from(socket).into()) })
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
        Ok(Self { file: SocketFile::foreign(path), listener: Some(socket.into()) })
    }

    /// The other process has left: the file is ours.
    pub fn take_over(&mut self) {
        self.file.claim();
    }

    /// Another process has the socket now: its file stays when this is dropped.
    pub fn leave_file(&mut self) {
        self.file.leave();
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// The listening socket, for who accepts; once.
    pub fn take(&mut self) -> Option<UnixListener> {
        self.listener.take()
    }
}

impl SocketFile {
    /// The file at `path`, of another process: it stays.
    pub(crate) fn foreign(path: &Path) -> Self {
        Self { path: path.to_owned(), identity: None }
    }

    /// This process owns the file that is there now.
    pub(crate) fn claim(&mut self) {
        self.identity = identity(&self.path);
    }

    /// Another process owns the file now: it stays.
    pub(crate) fn leave(&mut self) {
        self.identity = None;
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let now = identity(&self.path);
        if now.is_some() && now == self.identity {
            // In a directory that we may not write to any more, it stays, and the next one replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<Identity> {
    let file = fs::symlink_metadata(path).ok()?;
    Some((file.dev(), file.ino(), file.created().ok()))
}

/// Binds a unix socket at `path`, with these access rights.
///
/// # Errors
/// As bind(2); a file of another kind is there, a socket that another process listens on, or one that
/// another user left behind.
pub(crate) fn bind(path: &Path, access: SocketAccess) -> io::Result<(Socket, SocketFile)> {
    let address = SockAddr::unix(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    if let Some(mode) = access.mode {
        // The file gets what the umask leaves of the socket's mode, so that at no time anybody may
        // connect who is not to.
        fchmod(&socket, Mode::from_raw_mode(mode))?;
    }
    if let Err(error) = socket.bind(&address) {
        if error.kind() != io::ErrorKind::AddrInUse {
            return Err(error);
        }
        remove_stale(path, &address, access.user)?;
        socket.bind(&address)?;
    }
    let mut file = SocketFile::foreign(path);
    file.claim();
    set_access(path, access)?;
    Ok((socket, file))
}

/// Sets the access rights of a socket's file.
///
/// # Errors
/// As chmod(2) and chown(2).
pub fn set_access(path: &Path, access: SocketAccess) -> io::Result<()> {
    if access.user.is_some() || access.group.is_some() {
        lchown(path, access.user, access.group)?;
    }
    if let Some(mode) = access.mode {
        // Never through a symbolic link that somebody may have put there.
        let file = openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Removes the socket of a process of this user, or of `owner`, that is gone.
fn remove_stale(path: &Path, address: &SockAddr, owner: Option<u32>) -> io::Result<()> {
    let refuse = |kind, text: String| Err(io::Error::new(kind, text));
    let file = fs::symlink_metadata(path)?;
    if !file.file_type().is_socket() {
        let what = if file.is_symlink() { "a symbolic link" } else { "a file of another kind" };
        return refuse(io::ErrorKind::AlreadyExists, format!("there is {what}: remove it first"));
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // A listener with a full queue must not keep us waiting.
    probe.set_nonblocking(true)?;
    let user = file.uid();
    match probe.connect(address) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let text = format!("there is a socket of user {user}, who may be listening");
            return refuse(io::ErrorKind::AddrInUse, text);
        }
        _ => {
            return refuse(io::ErrorKind::AddrInUse, "another process listens there".to_owned());
        }
    }
    if user != own_user() && Some(user) != owner {
        let text = format!("there is a stale socket of user {user}: remove it first");
        return refuse(io::ErrorKind::AlreadyExists, text);
    }
    fs::remove_file(path)
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
    fn a_file_that_is_no_socket_is_never_removed() {
        let place = Place::new();
        fs::write(place.path(), "kept").unwrap();
        let error = PrivateSocket::bind(&place.path(), None).unwrap_err();
        assert!(error.to_string().contains("another kind"), "{error}");
        assert_eq!(fs::read_to_string(place.path()).unwrap(), "kept");
        // Nor a symbolic link, also to a stale socket.
        let link = place.0.path().join("link");
        let stale = place.0.path().join("stale");
        end(UnixListener::bind(&stale).unwrap());
        std::os::unix::fs::symlink(&stale, &link).unwrap();
        let error = bind(&link, SocketAccess::default()).unwrap_err();
        assert!(error.to_string().contains("a symbolic link"), "{error}");
        assert!(link.is_symlink() && stale.exists());
    }

    #[test]
    fn a_stale_socket_of_another_user_stays() {
        let place = Place::new();
        end(UnixListener::bind(place.path()).unwrap());
        // Only root can give a file away.
        if lchown(place.path(), Some(65_534), None).is_err() {
            return;
        }
        let error = bind(&place.path(), SocketAccess::default()).unwrap_err();
        assert!(error.to_string().contains("a stale socket of user 65534"), "{error}");
        let owner = SocketAccess { user: Some(65_534), ..SocketAccess::default() };
        drop(bind(&place.path(), owner).unwrap());
        assert!(!place.path().exists());
    }

    #[test]
    fn the_mode_is_what_was_asked_for_and_the_file_goes_also_after_a_chmod() {
        let place = Place::new();
        for mode in [0o600, 0o666, 0o777] {
            let access = SocketAccess { mode: Some(mode), ..SocketAccess::default() };
            let bound = bind(&place.path(), access).unwrap();
            assert_eq!(fs::symlink_metadata(place.path()).unwrap().mode() & 0o777, mode);
            set_access(&place.path(), SocketAccess { mode: Some(0o640), ..access }).unwrap();
            drop(bound);
            assert!(!place.path().exists());
        }
    }
}
