//! An open file: its properties, its fields, and its content in memory if that is small.

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use rustix::fs::{FileType, fstat};
use rustix::io::{Errno, pread};
use server_shell::date::format_http_date;

use crate::codings::Coding;
use crate::conditions::Validators;
use crate::etag::{self, EtagSource};
use crate::file_identity::FileIdentity;
use crate::media_types::{HEAD_BYTES, media_type};
use crate::root::Root;

/// Maximum size of a file whose content is kept in memory. Larger files are read, or sent by the
/// kernel, from their descriptors.
pub const MEMORY_FILE_BYTES_MAX: u64 = 32 * 1024;

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
    /// Tag and fields; empty as long as the content is being read for its tag.
    tagged: OnceCell<TaggedFields>,
    untagged: TaggedFields,
    pub(crate) content_type: Cow<'static, str>,
    /// True if its modification is later than its opening: a response has an earlier time (RFC 9110 §8.8.2.1).
    is_from_future: bool,
    /// True if its tag need not change as long as its identity does not.
    is_settled: bool,
    /// Coded content of a small file, by [`Coding::index`].
    pub(crate) coded: CodedContents,
}

/// Entity tag, and the fields that have it.
#[derive(Debug, Default)]
struct TaggedFields {
    /// Tag with its quotes; empty: not known.
    etag: Box<str>,
    /// Fields of a response with this file, as lines: validators and ranges.
    fields: Box<[u8]>,
}

/// Coded contents that were made before.
#[derive(Debug, Default)]
pub(crate) struct CodedContents(RefCell<[Option<Arc<[u8]>>; Coding::ALL.len()]>);

#[derive(Debug)]
enum FileContent {
    Memory(Arc<[u8]>),
    Descriptor(OwnedFd),
}

/// Opens a path from the root, unless it is the same file as `known`. `unix_s` are the seconds since 1970.
pub(crate) fn look_up(
    root: &Root,
    path: &[u8],
    known: Option<&Rc<OpenFile>>,
    etags: EtagSource,
    unix_s: u64,
) -> Lookup {
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
    let keeps_tag = |known: &OpenFile| known.is_settled || etags != EtagSource::MtimeSize;
    if let Some(known) = known.filter(|known| known.identity == identity && keeps_tag(known)) {
        return Lookup::File(Rc::clone(known));
    }
    match read_small(fd, identity.size) {
        Ok((content, size)) => {
            let identity = FileIdentity { size, ..identity };
            let content_type = media_type(path, &head_of(&content));
            let etag = match (etags, &content) {
                (EtagSource::Content, FileContent::Memory(content)) => etag::from_content(content),
                (EtagSource::Content, FileContent::Descriptor(_)) => String::new(),
                _ => etag::from_properties(etags, &identity, path, unix_s),
            };
            Lookup::File(Rc::new(OpenFile::new(content, identity, &etag, content_type, unix_s)))
        }
        Err(error) => Lookup::Failed(status_of(error)),
    }
}

/// Returns the start of the content, by which its type is recognised.
fn head_of(content: &FileContent) -> Cow<'_, [u8]> {
    match content {
        FileContent::Memory(content) => Cow::Borrowed(&content[..content.len().min(HEAD_BYTES)]),
        FileContent::Descriptor(fd) => {
            let mut head = vec![0; HEAD_BYTES];
            // A file that cannot be read has no recognisable type; the response will report it.
            let read = pread(fd, &mut head, 0).unwrap_or(0);
            head.truncate(read);
            Cow::Owned(head)
        }
    }
}

/// Returns the status for a path that cannot be opened.
pub(crate) fn status_of(error: Errno) -> u16 {
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
    /// Creates a file; without a tag it gets one with [`OpenFile::set_etag`].
    fn new(
        content: FileContent,
        identity: FileIdentity,
        etag: &str,
        content_type: Cow<'static, str>,
        unix_s: u64,
    ) -> Self {
        let mut file = Self {
            content,
            identity,
            tagged: OnceCell::new(),
            untagged: TaggedFields::default(),
            content_type,
            is_from_future: identity.modified_s() > unix_s,
            is_settled: etag::is_settled(&identity, unix_s),
            coded: CodedContents::default(),
        };
        file.untagged = file.fields_with("");
        if !etag.is_empty() {
            file.set_etag(etag);
        }
        file
    }

    fn fields_with(&self, etag: &str) -> TaggedFields {
        let mut fields = Vec::new();
        // Writing to a Vec cannot fail.
        if !self.is_from_future {
            let _ = write!(fields, "Last-Modified: {}\r\n", format_http_date(self.identity.modified_s()));
        }
        if !etag.is_empty() {
            let _ = write!(fields, "ETag: {etag}\r\n");
        }
        fields.extend_from_slice(b"Accept-Ranges: bytes\r\n");
        TaggedFields { etag: etag.into(), fields: fields.into() }
    }

    /// Sets the tag of a file that has none.
    pub(crate) fn set_etag(&self, etag: &str) {
        // A second tag of the same content is the same one.
        let _ = self.tagged.set(self.fields_with(etag));
    }

    fn tagged(&self) -> &TaggedFields {
        self.tagged.get().unwrap_or(&self.untagged)
    }

    /// Returns the entity tag with its quotes; empty: it is not known yet.
    pub(crate) fn etag(&self) -> &str {
        &self.tagged().etag
    }

    /// Writes the fields of a response with this file: validators and ranges.
    pub(crate) fn write_fields(&self, fields: &mut Vec<u8>, unix_s: u64) {
        if self.is_from_future {
            let date = format_http_date(self.modified_s(unix_s));
            wire::encode::field(fields, "Last-Modified", date.as_bytes());
        }
        fields.extend_from_slice(&self.tagged().fields);
    }

    pub(crate) fn from_memory(
        content: Arc<[u8]>,
        modified_s: u64,
        etag: &str,
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
        Self::new(FileContent::Memory(content), identity, etag, content_type.into(), modified_s)
    }

    pub(crate) fn size(&self) -> u64 {
        self.identity.size
    }

    /// Returns the validators of a response at this time.
    pub(crate) fn validators(&self, unix_s: u64) -> Validators<'_> {
        Validators { etag: Some(self.etag().as_bytes()), modified_s: Some(self.modified_s(unix_s)) }
    }

    /// Returns the second of the modification, for a response at this time, which is never before it.
    pub(crate) fn modified_s(&self, unix_s: u64) -> u64 {
        self.identity.modified_s().min(unix_s)
    }

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

    /// Reads `bytes` from `offset` and appends them.
    ///
    /// # Errors
    /// The file cannot be read, or has become shorter.
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
