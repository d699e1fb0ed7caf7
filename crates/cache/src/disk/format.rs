//! Bytes of a file of the disk. Pure.
//!
//! ```text
//! preamble: magic, version, slot size, nonce, length of the body, CRC
//! slot A, slot B: sequence number, length, CRC, head. A validation writes the older one, so that one is always valid
//! body: blocks of 64 KiB, each with its CRC
//! ```
//! Each CRC covers the nonce of the file, so that no block of another file is taken for one of this. The numbers are
//! little-endian.

use crc32fast::Hasher;

use crate::head::StoredHead;
use crate::object::Object;
use crate::storable::Storable;
use crate::time::UnixTime;

/// Length of a block of a body.
pub(crate) const BLOCK_BYTES: u64 = 64 * 1024;
/// Length of the CRC behind a block.
pub(crate) const BLOCK_CRC_BYTES: u64 = 4;
/// Length of the preamble.
pub(crate) const PREAMBLE_BYTES: usize = 36;
/// Maximum length of a slot.
const SLOT_BYTES_MAX: usize = 1024 * 1024;
/// Length of the fixed part of a slot.
const SLOT_HEAD_BYTES: usize = 16;
/// Room that a slot has for a longer head.
const SLOT_SPARE_BYTES: usize = 256;

const MAGIC: &[u8; 8] = b"weircach";
const VERSION: u32 = 1;

/// Reason for which bytes are no file of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FormatError {
    #[error("not a file of a cache")]
    Foreign,
    #[error("a file of another version")]
    Version,
    #[error("a checksum is wrong")]
    Checksum,
    #[error("the head is not valid")]
    Head,
    #[error("the file has another length")]
    Length,
}

/// The fixed part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Preamble {
    pub(crate) slot_bytes: u32,
    pub(crate) nonce: u64,
    pub(crate) body_bytes: u64,
}

impl Preamble {
    /// Returns the preamble of a file with a head and a body of these lengths. `None`: the head is too long.
    pub(crate) fn new(head_bytes: usize, body_bytes: u64, nonce: u64) -> Option<Self> {
        let slot_bytes = (SLOT_HEAD_BYTES + head_bytes + SLOT_SPARE_BYTES).next_multiple_of(256);
        (slot_bytes <= SLOT_BYTES_MAX).then_some(Self { slot_bytes: slot_bytes as u32, nonce, body_bytes })
    }

    pub(crate) fn encode(&self) -> [u8; PREAMBLE_BYTES] {
        let mut bytes = [0; PREAMBLE_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.slot_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.nonce.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.body_bytes.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..32]);
        bytes[32..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut parts = Parts { rest: bytes };
        if parts.take(8) != Some(MAGIC) {
            return Err(FormatError::Foreign);
        }
        let mut read = || Some((parts.u32()?, parts.u32()?, parts.u64()?, parts.u64()?, parts.u32()?));
        let (version, slot_bytes, nonce, body_bytes, crc) = read().ok_or(FormatError::Foreign)?;
        if version != VERSION {
            return Err(FormatError::Version);
        }
        if crc != crc32fast::hash(&bytes[..32]) {
            return Err(FormatError::Checksum);
        }
        let is_valid = (SLOT_HEAD_BYTES..=SLOT_BYTES_MAX).contains(&(slot_bytes as usize));
        if !is_valid || body_bytes > i64::MAX as u64 / 2 {
            return Err(FormatError::Head);
        }
        Ok(Self { slot_bytes, nonce, body_bytes })
    }

    /// Returns the offset of a slot, 0 or 1.
    pub(crate) fn slot_offset(&self, slot: usize) -> u64 {
        (PREAMBLE_BYTES + slot * self.slot_bytes as usize) as u64
    }

    pub(crate) fn body_offset(&self) -> u64 {
        self.slot_offset(2)
    }

    pub(crate) fn block_offset(&self, block: u64) -> u64 {
        self.body_offset() + block * (BLOCK_BYTES + BLOCK_CRC_BYTES)
    }

    /// Returns the length of the file.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.body_offset() + self.body_bytes + self.body_bytes.div_ceil(BLOCK_BYTES) * BLOCK_CRC_BYTES
    }

    pub(crate) fn block_crc(&self, block: u64, bytes: &[u8]) -> [u8; BLOCK_CRC_BYTES as usize] {
        let mut hasher = Hasher::new();
        hasher.update(&self.nonce.to_le_bytes());
        hasher.update(&block.to_le_bytes());
        hasher.update(bytes);
        hasher.finalize().to_le_bytes()
    }

    /// Returns the bytes of a slot. `None`: the head is longer than the slot.
    pub(crate) fn encode_slot(&self, sequence: u64, head: &[u8]) -> Option<Vec<u8>> {
        if SLOT_HEAD_BYTES + head.len() > self.slot_bytes as usize {
            return None;
        }
        let mut bytes = Vec::with_capacity(SLOT_HEAD_BYTES + head.len());
        bytes.extend_from_slice(&sequence.to_le_bytes());
        // At most SLOT_BYTES_MAX.
        bytes.extend_from_slice(&(head.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.slot_crc(sequence, head).to_le_bytes());
        bytes.extend_from_slice(head);
        Some(bytes)
    }

    /// Returns the sequence number and the head in the bytes of a slot. `None`: it is empty or torn.
    fn decode_slot<'s>(&self, slot: &'s [u8]) -> Option<(u64, &'s [u8])> {
        let mut parts = Parts { rest: slot };
        let (sequence, length, crc) = (parts.u64()?, parts.u32()?, parts.u32()?);
        let head = parts.take(length as usize)?;
        (crc == self.slot_crc(sequence, head)).then_some((sequence, head))
    }

    fn slot_crc(&self, sequence: u64, head: &[u8]) -> u32 {
        let mut hasher = Hasher::new();
        hasher.update(&self.nonce.to_le_bytes());
        hasher.update(&sequence.to_le_bytes());
        hasher.update(head);
        hasher.finalize()
    }
}

/// The newer slot of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slots {
    pub(crate) newer: usize,
    pub(crate) sequence: u64,
    pub(crate) head: FileHead,
}

impl Slots {
    /// Decodes the bytes behind the preamble.
    pub(crate) fn decode(preamble: &Preamble, bytes: &[u8]) -> Result<Self, FormatError> {
        let slot_bytes = preamble.slot_bytes as usize;
        let (first, second) = bytes.split_at_checked(slot_bytes).ok_or(FormatError::Length)?;
        let slots = [preamble.decode_slot(first), preamble.decode_slot(second)];
        let newest = slots.iter().enumerate().filter_map(|(slot, found)| Some((slot, (*found)?)));
        let (newer, (sequence, head)) =
            newest.max_by_key(|(_, (sequence, _))| *sequence).ok_or(FormatError::Checksum)?;
        Ok(Self { newer, sequence, head: FileHead::decode(head).ok_or(FormatError::Head)? })
    }
}

/// The head of a file: everything of an object besides its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileHead {
    pub(crate) key: Box<[u8]>,
    pub(crate) variant: Box<[u8]>,
    pub(crate) head: StoredHead,
    pub(crate) storable: Storable,
}

impl FileHead {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut parts = Parts { rest: bytes };
        let (key, variant) = (parts.bytes()?.into(), parts.bytes()?.into());
        let status = u16::try_from(parts.u32()?).ok()?;
        let head = StoredHead::from_lines(status, parts.bytes()?)?;
        let storable = Storable {
            received_at: UnixTime::from_ns(parts.u64()?),
            initial_age_s: parts.u64()?,
            lifetime_s: parts.u64()?,
            date_s: parts.u64()?,
            must_revalidate: parts.flag()?,
            stale_while_revalidate_s: parts.u64()?,
            stale_if_error_s: parts.u64()?,
            etag: parts.optional()?,
            last_modified: parts.optional()?,
            vary: parts.list(|name| Some(std::str::from_utf8(name).ok()?.into()))?,
            tags: parts.list(|tag| Some(tag.into()))?,
        };
        parts.rest.is_empty().then_some(Self { key, variant, head, storable })
    }
}

pub(crate) fn encode_head(key: &[u8], variant: &[u8], head: &StoredHead, storable: &Storable) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(256 + key.len() + variant.len() + head.field_lines().len());
    let put = |bytes: &mut Vec<u8>, part: &[u8]| {
        // Heads, keys and tags are far shorter than 4 GiB.
        bytes.extend_from_slice(&(part.len() as u32).to_le_bytes());
        bytes.extend_from_slice(part);
    };
    put(&mut bytes, key);
    put(&mut bytes, variant);
    bytes.extend_from_slice(&u32::from(head.status()).to_le_bytes());
    put(&mut bytes, head.field_lines());
    let times = [storable.received_at.as_ns(), storable.initial_age_s, storable.lifetime_s, storable.date_s];
    times.iter().for_each(|time| bytes.extend_from_slice(&time.to_le_bytes()));
    bytes.extend_from_slice(&u32::from(storable.must_revalidate).to_le_bytes());
    bytes.extend_from_slice(&storable.stale_while_revalidate_s.to_le_bytes());
    bytes.extend_from_slice(&storable.stale_if_error_s.to_le_bytes());
    for optional in [&storable.etag, &storable.last_modified] {
        bytes.extend_from_slice(&u32::from(optional.is_some()).to_le_bytes());
        put(&mut bytes, optional.as_deref().unwrap_or_default());
    }
    bytes.extend_from_slice(&(storable.vary.len() as u32).to_le_bytes());
    storable.vary.iter().for_each(|name| put(&mut bytes, name.as_bytes()));
    bytes.extend_from_slice(&(storable.tags.len() as u32).to_le_bytes());
    storable.tags.iter().for_each(|tag| put(&mut bytes, tag));
    bytes
}

/// Returns the length of what [`encode_head`] returns.
fn head_bytes(key: &[u8], variant: &[u8], head: &StoredHead, storable: &Storable) -> usize {
    const FIXED_BYTES: usize = 3 * 4 + 4 + 4 * 8 + 4 + 2 * 8 + 2 * 8 + 2 * 4;
    let optional = |value: &Option<Box<[u8]>>| value.as_ref().map_or(0, |value| value.len());
    let names: usize = storable.vary.iter().map(|name| 4 + name.len()).sum();
    let tags: usize = storable.tags.iter().map(|tag| 4 + tag.len()).sum();
    let validators = optional(&storable.etag) + optional(&storable.last_modified);
    FIXED_BYTES + key.len() + variant.len() + head.field_lines().len() + validators + names + tags
}

/// Returns the length of the file of an object; one with too long a head gets none, and counts as the largest.
pub(crate) fn file_bytes(object: &Object) -> u64 {
    let head = head_bytes(object.key.text(), &object.variant, &object.head, &object.storable);
    let body_bytes = object.body.length().unwrap_or(0);
    Preamble::new(head, body_bytes, 0).map_or(u64::MAX / 2, |preamble| preamble.file_bytes())
}

/// Cursor over encoded parts.
struct Parts<'p> {
    rest: &'p [u8],
}

impl<'p> Parts<'p> {
    fn take(&mut self, length: usize) -> Option<&'p [u8]> {
        let (part, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(part)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn flag(&mut self) -> Option<bool> {
        match self.u32()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn bytes(&mut self) -> Option<&'p [u8]> {
        let length = self.u32()? as usize;
        self.take(length)
    }

    fn optional(&mut self) -> Option<Option<Box<[u8]>>> {
        let (is_there, bytes) = (self.flag()?, self.bytes()?);
        match is_there {
            true => Some(Some(bytes.into())),
            false => bytes.is_empty().then_some(None),
        }
    }

    fn list<T>(&mut self, mut convert: impl FnMut(&'p [u8]) -> Option<T>) -> Option<Box<[T]>> {
        let count = self.u32()?;
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(convert(self.bytes()?)?);
        }
        Some(list.into_boxed_slice())
    }
}
