//! An open file: its properties, its fields, and its content in memory if that is small.

use std::cell::RefCell;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use rustix::fs::{FileType, fstat};
use rustix::io::{Errno, pread};
use server_shell::date::format_http_date;

use super::codings::Coding;
use super::conditions::Validators;
use super::media_types::media_type;
use super::root::Root;

/// Maximum size of a file whose content is kept in memory. Larger files are read, or sent by the
/// kernel, from their descriptors.
pub(crate) const MEMORY_FILE_BYTES_MAX: u64 = 32 * 1024;

/// Result of a path.
#[derive(Clone, Debug)]
pub(crate) enum Lookup {
    File(Rc<OpenFile>),
    Directory,
    /// No file, and the status of the response.
    Failed(u16),
}

/// An open file. It stays as it was opened, as far as the file system allows.
#[derive(Debug)]
pub(crate) struct OpenFile {
    content: FileContent,
    pub(crate) identity: FileIdentity,
    /// Entity tag with its quotes.
    pub(crate) etag: Box<str>,
    pub(crate) content_type: &'static str,
    /// Fields of a response with this file, as lines: validators and ranges.
    pub(crate) fields: Box<[u8]>,
    /// Coded content of a small file, by [`Coding::index`].
    pub(crate) coded: CodedContents,
}

/// Coded contents that were made before.
#[derive(Debug, Default)]
pub(crate) struct CodedContents(RefCell<[Option<Arc<[u8]>>; Coding::ALL.len()]>);

/// Content of an open file.
#[derive(Debug)]
enum FileContent {
    Memory(Arc<[u8]>),
    Descriptor(OwnedFd),
}

/// Properties that distinguish versions of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    pub(crate) size: u64,
    device: u64,
    inode: u64,
    modified_s: i64,
    modified_ns: u64,
    changed_s: i64,
    changed_ns: u64,
}

impl FileIdentity {
    fn from_stat(stat: &rustix::fs::Stat) -> Self {
        Self {
            size: u64::try_from(stat.st_size).unwrap_or(0),
            device: stat.st_dev,
            inode: stat.st_ino,
            modified_s: stat.st_mtime,
            modified_ns: stat.st_mtime_nsec,
            changed_s: stat.st_ctime,
            changed_ns: stat.st_ctime_nsec,
        }
    }

    /// Returns the second of the last modification since 1970; earlier ones are 0.
    pub(crate) fn modified_s(&self) -> u64 {
        u64::try_from(self.modified_s).unwrap_or(0)
    }

    /// Returns the entity tag. The inode is in it because a file that replaces another may have the same
    /// size and time, for example from a reproducible build.
    fn etag(&self) -> String {
        format!("\"{:x}-{:x}.{:x}-{:x}\"", self.inode, self.modified_s, self.modified_ns, self.size)
    }
}

/// Opens a path from the root, unless it is the same file as `known`.
pub(crate) fn look_up(root: &Root, path: &[u8], known: Option<&Rc<OpenFile>>) -> Lookup {
    let opened = root.open_beneath(path).and_then(|fd| fstat(&fd).map(|stat| (fd, stat)));
    let (fd, stat) = match opened {
        Ok(opened) => opened,
        Err(error) => return Lookup::Failed(status_of(error)),
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => return Lookup::Directory,
        // Devices, FIFOs and sockets are not content.
        _ => return Lookup::Failed(404),
    }
    let identity = FileIdentity::from_stat(&stat);
    if let Some(known) = known.filter(|known| known.identity == identity) {
        return Lookup::File(Rc::clone(known));
    }
    match read_small(fd, identity.size) {
        Ok((content, size)) => {
            let identity = FileIdentity { size, ..identity };
            let content_type = media_type(path);
            Lookup::File(Rc::new(OpenFile::new(content, identity, identity.etag(), content_type)))
        }
        Err(error) => Lookup::Failed(status_of(error)),
    }
}

/// Returns the status for a path that cannot be opened.
fn status_of(error: Errno) -> u16 {
    match error {
        Errno::ACCESS | Errno::PERM => 403,
        // No descriptor or no memory is left.
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS => 503,
        Errno::IO => 500,
        // Missing, too long, a socket, or a link out of the root.
        _ => 404,
    }
}

/// Reads a small file completely. Returns also the size that was read.
fn read_small(fd: OwnedFd, size: u64) -> Result<(FileContent, u64), Errno> {
    if size > MEMORY_FILE_BYTES_MAX {
        return Ok((FileContent::Descriptor(fd), size));
    }
    // At most 32 KiB.
    let mut content = vec![0; size as usize];
    let mut length = 0;
    while length < content.len() {
        match pread(&fd, &mut content[length..], length as u64) {
            // It has become shorter meanwhile.
            Ok(0) => break,
            Ok(read) => length += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    content.truncate(length);
    Ok((FileContent::Memory(content.into()), length as u64))
}

impl OpenFile {
    fn new(content: FileContent, identity: FileIdentity, etag: String, content_type: &'static str) -> Self {
        let mut fields = Vec::new();
        // Writing to a Vec cannot fail.
        let _ = write!(
            fields,
            "Last-Modified: {}\r\nETag: {etag}\r\nAccept-Ranges: bytes\r\n",
            format_http_date(identity.modified_s())
        );
        Self {
            content,
            identity,
            etag: etag.into(),
            content_type,
            fields: fields.into(),
            coded: CodedContents::default(),
        }
    }

    /// Creates a file that exists only in memory.
    pub(crate) fn from_memory(
        content: Arc<[u8]>,
        modified_s: u64,
        etag: String,
        content_type: &'static str,
    ) -> Self {
        let identity = FileIdentity {
            size: content.len() as u64,
            device: 0,
            inode: 0,
            modified_s: i64::try_from(modified_s).unwrap_or(0),
            modified_ns: 0,
            changed_s: 0,
            changed_ns: 0,
        };
        Self::new(FileContent::Memory(content), identity, etag, content_type)
    }

    pub(crate) fn size(&self) -> u64 {
        self.identity.size
    }

    pub(crate) fn validators(&self) -> Validators<'_> {
        Validators { etag: self.etag.as_bytes(), modified_s: self.identity.modified_s() }
    }

    /// Returns the content, if it is in memory.
    pub(crate) fn memory(&self) -> Option<&Arc<[u8]>> {
        match &self.content {
            FileContent::Memory(content) => Some(content),
            FileContent::Descriptor(_) => None,
        }
    }

    /// Returns the descriptor, if the content is not in memory.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.content {
            FileContent::Memory(_) => None,
            FileContent::Descriptor(fd) => Some(fd.as_fd()),
        }
    }

    /// Reads `bytes` from `offset` and appends them; an error if the file has become shorter.
    pub(crate) fn append_to(&self, offset: u64, bytes: usize, out: &mut Vec<u8>) -> io::Result<()> {
        let fd = match &self.content {
            FileContent::Memory(content) => {
                // Offsets are below the size, which is that of a slice.
                out.extend_from_slice(&content[offset as usize..offset as usize + bytes]);
                return Ok(());
            }
            FileContent::Descriptor(fd) => fd,
        };
        let start = out.len();
        out.resize(start + bytes, 0);
        let mut length = 0;
        while length < bytes {
            match pread(fd, &mut out[start + length..], offset + length as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => length += read,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl CodedContents {
    /// Returns the content in a coding, which `make` makes if it was not made before.
    pub(crate) fn get_or_make(&self, coding: Coding, make: impl FnOnce() -> Arc<[u8]>) -> Arc<[u8]> {
        Arc::clone(self.0.borrow_mut()[coding.index()].get_or_insert_with(make))
    }
}
