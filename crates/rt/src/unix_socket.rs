//! Unix sockets as files: bound with a mode and an owner. A stale socket of this user is replaced,
//! and anything else at that path is left alone. Also the private socket that only its owner may
//! connect to, and the credentials of the peer. The bytes of a socket are not interpreted here.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid, chownat, fchmod, fstat, openat};
use rustix::net::sockopt::socket_peercred;
use socket2::{Domain, SockAddr, SockRef, Socket, Type};

/// Listening socket of this process, as a file. Dropping it removes the file, unless it belongs to
/// another process by then.
#[derive(Debug)]
pub struct PrivateSocket {
    file: SocketFile,
    listener: Option<UnixListener>,
}

/// File of a bound unix socket. Dropping it removes the file, unless another socket is at its path
/// by then, or another process owns it.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    identity: Option<FileIdentity>,
}

/// Access rights of a unix socket's file. Connecting to a unix socket requires write permission on
/// its file (unix(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketAccess {
    /// Mode, in the lowest nine bits; `None`: 0777 minus the umask.
    pub mode: Option<u32>,
    /// Owner; `None`: the user of this process. Another one requires root.
    pub uid: Option<u32>,
    /// Group; `None`: the group of this process.
    pub gid: Option<u32>,
}

/// Credentials of the peer of a unix socket, as of when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    pub uid: u32,
    pub pid: i32,
}

/// Device, inode and time of creation: inodes are reused.
type FileIdentity = (u64, u64, Option<SystemTime>);

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 64;
/// Mode: only the owner may connect.
const OWNER_ONLY_MODE: u32 = 0o600;

impl PrivateSocket {
    /// Binds and listens at `path`. `owner` is the user and the group of the file.
    ///
    /// # Errors
    /// Those of bind(2), with the path in the message: another process listens there, or it is no
    /// socket.
    pub fn bind(path: &Path, owner: Option<(u32, Option<u32>)>) -> io::Result<Self> {
        let with_path =
            |error: io::Error| io::Error::new(error.kind(), format!("unix:{}: {error}", path.display()));
        let (uid, gid) = owner.map_or((None, None), |(user, group)| (Some(user), group));
        let access = SocketAccess { mode: Some(OWNER_ONLY_MODE), uid, gid };
        let (socket, file) = bind(path, access).map_err(with_path)?;
        socket.listen(BACKLOG).map_err(with_path)?;
        Ok(Self { file, listener: Some(OwnedFd::from(socket).into()) })
    }

    /// Adopts the socket inherited for `path`. The other process owns the file until
    /// [`PrivateSocket::complete_takeover`].
    ///
    /// # Errors
    /// The descriptor is not a listening unix socket; the message has the path.
    pub fn adopt(path: &Path, socket: OwnedFd) -> io::Result<Self> {
        let socket_ref = SockRef::from(&socket);
        if !socket_ref.is_listener()? || socket_ref.domain()? != Domain::UNIX {
            let text =
                format!("unix:{}: the passed descriptor is not a listening unix socket", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(Self { file: SocketFile::unowned(path), listener: Some(socket.into()) })
    }

    /// Completes the takeover after the other process has handed off: the file is now removed on drop.
    pub fn complete_takeover(&mut self) {
        self.file.claim();
    }

    /// Keeps the file on drop, because another process has taken over the socket.
    pub fn keep_file(&mut self) {
        self.file.disown();
    }

    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Takes the listening socket, for the accept loop; once.
    pub fn take_listener(&mut self) -> Option<UnixListener> {
        self.listener.take()
    }
}

impl SocketFile {
    /// Returns the file at `path`, of another process: it stays.
    pub(crate) fn unowned(path: &Path) -> Self {
        Self { path: path.to_owned(), identity: None }
    }

    /// Makes this process the owner of the file that exists now.
    pub(crate) fn claim(&mut self) {
        self.identity = file_identity(&self.path);
    }

    /// Makes another process the owner of the file: it stays.
    pub(crate) fn disown(&mut self) {
        self.identity = None;
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let current = file_identity(&self.path);
        if current.is_some() && current == self.identity {
            // In a directory that is no longer writable it stays, and the next process replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns the identity of the socket at a path. Other files are never those of a socket: the path of an inherited one
/// comes from another process.
fn file_identity(path: &Path) -> Option<FileIdentity> {
    let file = fs::symlink_metadata(path).ok().filter(|file| file.file_type().is_socket())?;
    Some((file.dev(), file.ino(), file.created().ok()))
}

/// Binds a unix socket at `path`, with these access rights.
///
/// # Errors
/// Those of bind(2). The path has a file of another kind, a socket that another process listens on,
/// or a stale socket of another user.
pub(crate) fn bind(path: &Path, access: SocketAccess) -> io::Result<(Socket, SocketFile)> {
    let address = SockAddr::unix(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    if let Some(mode) = access.mode {
        // The file gets the socket's mode minus the umask, so that no unauthorized process can
        // connect at any time.
        fchmod(&socket, Mode::from_raw_mode(mode))?;
    }
    if let Err(error) = socket.bind(&address) {
        if error.kind() != io::ErrorKind::AddrInUse {
            return Err(error);
        }
        remove_stale(path, &address, access.uid)?;
        socket.bind(&address)?;
    }
    let mut file = SocketFile::unowned(path);
    file.claim();
    set_access(path, access)?;
    Ok((socket, file))
}

/// Sets the access rights of a socket's file.
///
/// # Errors
/// Those of chmod(2) and chown(2).
pub fn set_access(path: &Path, access: SocketAccess) -> io::Result<()> {
    if access == SocketAccess::default() {
        return Ok(());
    }
    // The directory may be another user's, who may put a link there at any time, also a hard link to a file of root. So
    // everything happens to one file, which is checked first.
    let file = openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let stat = fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Socket || stat.st_nlink != 1 {
        return Err(io::Error::other("another file is at the path of the socket"));
    }
    if access.uid.is_some() || access.gid.is_some() {
        let (uid, gid) = (access.uid.map(Uid::from_raw), access.gid.map(Gid::from_raw));
        chownat(&file, "", uid, gid, AtFlags::EMPTY_PATH)?;
    }
    if let Some(mode) = access.mode {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Removes the socket of an ended process of this user, or of `owner`.
fn remove_stale(path: &Path, address: &SockAddr, owner: Option<u32>) -> io::Result<()> {
    let refuse = |kind, text: String| Err(io::Error::new(kind, text));
    let file = fs::symlink_metadata(path)?;
    if !file.file_type().is_socket() {
        let file_kind = if file.is_symlink() { "a symbolic link" } else { "a file that is not a socket" };
        return refuse(io::ErrorKind::AlreadyExists, format!("there is {file_kind}: remove it first"));
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // A listener with a full queue must not block us.
    probe.set_nonblocking(true)?;
    let owner_uid = file.uid();
    match probe.connect(address) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let text = format!("there is a socket of user {owner_uid}, who may be listening");
            return refuse(io::ErrorKind::AddrInUse, text);
        }
        _ => {
            return refuse(io::ErrorKind::AddrInUse, "another process listens there".to_owned());
        }
    }
    if owner_uid != effective_uid() && Some(owner_uid) != owner {
        let text = format!("there is a stale socket of user {owner_uid}: remove it first");
        return refuse(io::ErrorKind::AlreadyExists, text);
    }
    fs::remove_file(path)
}

/// Waits for a connection in the calling thread. `None`: the other end of `stop` was closed, so
/// that this process accepts no more. `listener` must be non-blocking: another process may have it
/// too.
///
/// # Errors
/// Those of accept(2).
pub fn accept_until(listener: &UnixListener, stop: &UnixStream) -> io::Result<Option<UnixStream>> {
    let mut poll_fds = [PollFd::new(listener, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
    loop {
        match poll(&mut poll_fds, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        if !poll_fds[1].revents().is_empty() {
            return Ok(None);
        }
        match listener.accept() {
            Ok((stream, _)) => return Ok(Some(stream)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns the credentials of the peer (`SO_PEERCRED`, unix(7)).
///
/// # Errors
/// The kernel does not know them.
pub fn peer_credentials(stream: &UnixStream) -> io::Result<PeerCredentials> {
    let credentials = socket_peercred(stream)?;
    let pid = credentials.pid.as_raw_nonzero().get();
    Ok(PeerCredentials { uid: credentials.uid.as_raw(), pid })
}

pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::lchown;

    use super::*;
    use crate::namespace::testing::shut_down_socket;

    /// A path in a temporary directory.
    struct TempSocketPath(tempfile::TempDir);

    impl TempSocketPath {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn path(&self) -> PathBuf {
            self.0.path().join("s")
        }
    }

    #[test]
    fn only_the_owner_can_connect_and_its_credentials_are_known() {
        let temp_path = TempSocketPath::new();
        let mut socket = PrivateSocket::bind(&temp_path.path(), None).unwrap();
        let mode = fs::symlink_metadata(temp_path.path()).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600, "{mode:o}");
        let listener = socket.take_listener().unwrap();
        let _client = UnixStream::connect(temp_path.path()).unwrap();
        let peer = peer_credentials(&listener.accept().unwrap().0).unwrap();
        let pid = std::process::id() as i32;
        assert_eq!(peer, PeerCredentials { uid: effective_uid(), pid });
        drop((socket, listener));
        assert!(!temp_path.path().exists());
    }

    #[test]
    fn a_living_one_is_left_alone_and_a_dead_one_replaced() {
        let temp_path = TempSocketPath::new();
        let mut first = PrivateSocket::bind(&temp_path.path(), None).unwrap();
        let error = PrivateSocket::bind(&temp_path.path(), None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().starts_with(&format!("unix:{}: ", temp_path.path().display())), "{error}");
        // As after a kill: nothing listens, but the file exists.
        shut_down_socket(first.take_listener().unwrap());
        // File times are as coarse as the kernel's tick.
        std::thread::sleep(std::time::Duration::from_millis(30));
        let second = PrivateSocket::bind(&temp_path.path(), None).unwrap();
        drop(first);
        assert!(temp_path.path().exists(), "the first removed what is the second's");
        drop(second);
        assert!(!temp_path.path().exists());
    }

    #[test]
    fn the_file_goes_with_the_last_process_that_has_the_socket() {
        let temp_path = TempSocketPath::new();
        let mut old = PrivateSocket::bind(&temp_path.path(), None).unwrap();
        let listener = OwnedFd::from(old.take_listener().unwrap());
        // A process that fails before the other has left removes nothing.
        drop(PrivateSocket::adopt(&temp_path.path(), listener.try_clone().unwrap()).unwrap());
        assert!(temp_path.path().exists());
        let mut new = PrivateSocket::adopt(&temp_path.path(), listener).unwrap();
        old.keep_file();
        drop(old);
        assert!(temp_path.path().exists());
        new.complete_takeover();
        let _client = UnixStream::connect(temp_path.path()).unwrap();
        new.take_listener().unwrap().accept().unwrap();
        drop(new);
        assert!(!temp_path.path().exists());
        let pair = UnixStream::pair().unwrap();
        assert!(PrivateSocket::adopt(&temp_path.path(), pair.0.into()).is_err());
    }

    #[test]
    fn a_waiting_accept_can_be_stopped() {
        let temp_path = TempSocketPath::new();
        let mut socket = PrivateSocket::bind(&temp_path.path(), None).unwrap();
        let listener = socket.take_listener().unwrap();
        listener.set_nonblocking(true).unwrap();
        let (end, stop) = UnixStream::pair().unwrap();
        let waiting = std::thread::spawn(move || {
            let first = accept_until(&listener, &end).unwrap().is_some();
            (first, accept_until(&listener, &end).unwrap().is_some())
        });
        let mut client = UnixStream::connect(temp_path.path()).unwrap();
        assert_eq!(io::Read::read(&mut client, &mut [0]).unwrap(), 0, "it was not accepted");
        drop(stop);
        assert_eq!(waiting.join().unwrap(), (true, false));
    }

    #[test]
    fn a_file_that_is_no_socket_is_never_removed() {
        let temp_path = TempSocketPath::new();
        fs::write(temp_path.path(), "kept").unwrap();
        let error = PrivateSocket::bind(&temp_path.path(), None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{error}");
        assert_eq!(fs::read_to_string(temp_path.path()).unwrap(), "kept");
        // Nor a symbolic link, also to a stale socket.
        let link = temp_path.0.path().join("link");
        let stale = temp_path.0.path().join("stale");
        shut_down_socket(UnixListener::bind(&stale).unwrap());
        std::os::unix::fs::symlink(&stale, &link).unwrap();
        let error = bind(&link, SocketAccess::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{error}");
        assert!(error.to_string().contains("symbolic link"), "{error}");
        assert!(link.is_symlink() && stale.exists());
    }

    #[test]
    fn a_stale_socket_of_another_user_stays() {
        let temp_path = TempSocketPath::new();
        shut_down_socket(UnixListener::bind(temp_path.path()).unwrap());
        // Only root can give a file away.
        if lchown(temp_path.path(), Some(65_534), None).is_err() {
            return;
        }
        let error = bind(&temp_path.path(), SocketAccess::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{error}");
        assert!(error.to_string().contains("65534"), "{error}");
        let owner = SocketAccess { uid: Some(65_534), ..SocketAccess::default() };
        drop(bind(&temp_path.path(), owner).unwrap());
        assert!(!temp_path.path().exists());
    }

    #[test]
    fn the_access_of_no_other_file_is_changed() {
        let temp_path = TempSocketPath::new();
        let victim = temp_path.path().with_file_name("victim");
        fs::write(&victim, "").unwrap();
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).unwrap();
        let access = SocketAccess { mode: Some(0o666), uid: Some(effective_uid()), gid: None };
        let _socket = UnixListener::bind(temp_path.path()).unwrap();
        set_access(&temp_path.path(), access).unwrap();
        fs::remove_file(temp_path.path()).unwrap();
        fs::hard_link(&victim, temp_path.path()).unwrap();
        assert!(set_access(&temp_path.path(), access).is_err());
        fs::remove_file(temp_path.path()).unwrap();
        std::os::unix::fs::symlink(&victim, temp_path.path()).unwrap();
        assert!(set_access(&temp_path.path(), access).is_err());
        assert_eq!(fs::metadata(&victim).unwrap().mode() & 0o777, 0o600);
        // Another name of a socket is in a directory of somebody else.
        fs::remove_file(temp_path.path()).unwrap();
        let _socket = UnixListener::bind(temp_path.path()).unwrap();
        fs::hard_link(temp_path.path(), victim.with_file_name("other")).unwrap();
        assert!(set_access(&temp_path.path(), access).is_err());
    }

    #[test]
    fn the_mode_is_what_was_asked_for_and_the_file_goes_also_after_a_chmod() {
        let temp_path = TempSocketPath::new();
        for mode in [0o600, 0o666, 0o777] {
            let access = SocketAccess { mode: Some(mode), ..SocketAccess::default() };
            let bound = bind(&temp_path.path(), access).unwrap();
            assert_eq!(fs::symlink_metadata(temp_path.path()).unwrap().mode() & 0o777, mode);
            set_access(&temp_path.path(), SocketAccess { mode: Some(0o640), ..access }).unwrap();
            drop(bound);
            assert!(!temp_path.path().exists());
        }
    }
}
