//! Reading and writing of files. Only the threads of the disk call this.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use super::directory::{self, FILE_MODE};
use super::format::{
    BLOCK_BYTES, BLOCK_CRC_BYTES, FormatError, PREAMBLE_BYTES, Preamble, Slots, encode_head,
};
use crate::chunk::Chunk;
use crate::memory::MemoryBudget;
use crate::object::Object;

/// First bytes of a file that are read at once: most heads are shorter.
const FIRST_READ_BYTES: usize = 4096;

/// A file cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// An open file whose head is valid.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) file: File,
    pub(crate) preamble: Preamble,
    pub(crate) slots: Slots,
}

/// Opens a file and reads its head.
pub(crate) fn open(path: &Path) -> Result<OpenFile, FileError> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(FormatError::Foreign.into());
    }
    let mut bytes =
        vec![0; FIRST_READ_BYTES.min(usize::try_from(metadata.len()).unwrap_or(FIRST_READ_BYTES))];
    file.read_exact_at(&mut bytes, 0)?;
    let preamble = Preamble::decode(&bytes)?;
    if preamble.file_bytes() != metadata.len() {
        return Err(FormatError::Length.into());
    }
    // The slots are at most two MiB.
    let body_offset = preamble.body_offset() as usize;
    if bytes.len() < body_offset {
        let have = bytes.len();
        bytes.resize(body_offset, 0);
        file.read_exact_at(&mut bytes[have..], have as u64)?;
    }
    let slots = Slots::decode(&preamble, &bytes[PREAMBLE_BYTES..body_offset])?;
    Ok(OpenFile { file, preamble, slots })
}

/// Reads blocks of a body, and checks each.
pub(crate) fn read_blocks(
    file: &File,
    preamble: &Preamble,
    first_block: u64,
    blocks: u64,
    budget: &Arc<MemoryBudget>,
) -> Result<Chunk, FileError> {
    let start = first_block * BLOCK_BYTES;
    let end = (start + blocks * BLOCK_BYTES).min(preamble.body_bytes);
    let blocks = (end - start).div_ceil(BLOCK_BYTES);
    // A piece is at most some hundred KiB.
    let stored_bytes = (end - start + blocks * BLOCK_CRC_BYTES) as usize;
    let mut stored = vec![0; stored_bytes];
    file.read_exact_at(&mut stored, preamble.block_offset(first_block))?;
    let mut bytes = Vec::with_capacity((end - start) as usize);
    for (block, number) in stored.chunks((BLOCK_BYTES + BLOCK_CRC_BYTES) as usize).zip(first_block..) {
        let Some((content, crc)) = block.split_last_chunk::<{ BLOCK_CRC_BYTES as usize }>() else {
            return Err(FormatError::Length.into());
        };
        if preamble.block_crc(number, content) != *crc {
            return Err(FormatError::Checksum.into());
        }
        bytes.extend_from_slice(content);
    }
    Ok(Chunk::new(bytes, budget))
}

/// Writes an object to a temporary file.
pub(crate) fn write(path: &Path, object: &Object, nonce: u64) -> Result<(), FileError> {
    let head = encode_head(object.key.text(), &object.variant, &object.head, &object.storable);
    let chunks = object.body.chunks().unwrap_or_default();
    let body_bytes = object.body.length().unwrap_or(0);
    let preamble = Preamble::new(head.len(), body_bytes, nonce).ok_or(FormatError::Head)?;
    let file = create_new(path)?;
    let mut writer = BufWriter::with_capacity((BLOCK_BYTES + BLOCK_CRC_BYTES) as usize, &file);
    writer.write_all(&preamble.encode())?;
    // It fits: the slot was made for it.
    let slot = preamble.encode_slot(1, &head).ok_or(FormatError::Head)?;
    writer.write_all(&slot)?;
    let padding = vec![0; 2 * preamble.slot_bytes as usize - slot.len()];
    writer.write_all(&padding)?;
    write_blocks(&mut writer, &preamble, chunks)?;
    writer.flush()?;
    Ok(())
}

fn write_blocks(writer: &mut impl io::Write, preamble: &Preamble, chunks: &[Chunk]) -> io::Result<()> {
    let mut block = Vec::with_capacity(BLOCK_BYTES as usize);
    let mut number = 0;
    for chunk in chunks {
        let mut rest: &[u8] = chunk;
        while !rest.is_empty() {
            let (now, after) = rest.split_at(rest.len().min(BLOCK_BYTES as usize - block.len()));
            block.extend_from_slice(now);
            rest = after;
            if block.len() as u64 == BLOCK_BYTES {
                write_block(writer, preamble, number, &block)?;
                block.clear();
                number += 1;
            }
        }
    }
    if block.is_empty() { Ok(()) } else { write_block(writer, preamble, number, &block) }
}

/// Writes one block with its CRC.
pub(crate) fn write_block(
    writer: &mut impl io::Write,
    preamble: &Preamble,
    number: u64,
    block: &[u8],
) -> io::Result<()> {
    writer.write_all(block)?;
    writer.write_all(&preamble.block_crc(number, block))
}

/// Writes the head of an object into the older slot of its file. False: the head does not fit.
///
/// The file may have been replaced by another one meanwhile: its nonce tells.
pub(crate) fn update_head(path: &Path, object: &Object, nonce: u64) -> Result<bool, FileError> {
    let opened = open(path)?;
    if opened.preamble.nonce != nonce {
        return Ok(true);
    }
    let head = encode_head(object.key.text(), &object.variant, &object.head, &object.storable);
    let sequence = opened.slots.sequence + 1;
    let Some(slot) = opened.preamble.encode_slot(sequence, &head) else { return Ok(false) };
    let flags = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    let file = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
    // The path may have another file since the check above: compare the files.
    if !is_same(&file, &opened.file)? {
        return Ok(true);
    }
    file.write_all_at(&slot, opened.preamble.slot_offset(1 - opened.slots.newer))?;
    Ok(true)
}

fn is_same(left: &File, right: &File) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    let (left, right) = (left.metadata()?, right.metadata()?);
    Ok(left.dev() == right.dev() && left.ino() == right.ino())
}

/// Creates a file, and its directory if that is missing.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    let create = || OpenOptions::new().create_new(true).write(true).read(true).mode(FILE_MODE).open(path);
    match (create(), path.parent()) {
        (Err(error), Some(parent)) if error.kind() == io::ErrorKind::NotFound => {
            directory::create(parent)?;
            create()
        }
        (result, _) => result,
    }
}

/// Removes a file; a missing one is removed already.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(())
        }
        other => other,
    }
}
