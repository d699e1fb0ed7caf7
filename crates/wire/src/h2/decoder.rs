//! Decoder of HPACK field blocks (RFC 7541 §3 and §6).
//!
//! It has no opinion about fields: [`super::head`] classifies and validates them. The text of each
//! field is appended to the scratch of the head, which removes it if the field is not kept.

use super::fault::FaultKind;
use super::fields::FieldKind;
use super::head::HeadScratch;
use super::huffman;
use super::table::{DynamicTable, STATIC, STATIC_LEN};

/// Size of a dynamic table before any settings (RFC 9113 §6.5.2).
pub(super) const TABLE_BYTES_DEFAULT: usize = 4_096;

/// Decoder of one direction of a connection.
#[derive(Debug)]
pub(super) struct Decoder {
    table: DynamicTable,
    /// Maximum that a size update may choose.
    size_limit: usize,
    /// True if the next block must begin with a size update, because the limit was reduced (RFC 9113
    /// §4.3.1).
    needs_size_update: bool,
}

impl Decoder {
    /// Creates a decoder. Until the peer acknowledges our settings, both the default and our size
    /// are allowed.
    pub(super) fn new(announced: usize) -> Self {
        Self {
            table: DynamicTable::new(TABLE_BYTES_DEFAULT),
            size_limit: announced.max(TABLE_BYTES_DEFAULT),
            needs_size_update: false,
        }
    }

    /// Applies our table size, which the peer acknowledged.
    pub(super) fn apply_size_limit(&mut self, announced: usize) {
        self.size_limit = announced;
        self.needs_size_update = self.table.size_max() > announced;
    }

    /// Decodes a complete block into the head.
    ///
    /// # Errors
    /// The block is not valid HPACK: the connection cannot go on (RFC 9113 §4.3).
    pub(super) fn decode(&mut self, block: &[u8], head: &mut HeadScratch) -> Result<(), FaultKind> {
        let mut rest = block;
        while let [byte @ 0x20..=0x3f, ..] = *rest {
            let size = integer(&mut rest, byte, 5)?;
            if size > self.size_limit {
                return Err(FaultKind::TableSizeInvalid);
            }
            self.table.set_size_max(size);
            self.needs_size_update = false;
        }
        if self.needs_size_update && !rest.is_empty() {
            return Err(FaultKind::TableSizeInvalid);
        }
        while let [byte, ..] = *rest {
            if byte & 0x80 != 0 {
                let index = integer(&mut rest, byte, 7)?;
                self.indexed(index, head)?;
            } else if byte & 0x40 != 0 {
                let index = integer(&mut rest, byte, 6)?;
                self.literal(&mut rest, index, true, head)?;
            } else if byte & 0x20 == 0 {
                let index = integer(&mut rest, byte, 4)?;
                self.literal(&mut rest, index, false, head)?;
            } else {
                return Err(FaultKind::TableSizeInvalid);
            }
        }
        Ok(())
    }

    /// Checks the limits of the table, for fuzz targets.
    pub(super) fn check_invariants(&self) {
        self.table.check_invariants();
    }

    #[inline]
    fn indexed(&mut self, index: usize, head: &mut HeadScratch) -> Result<(), FaultKind> {
        if let Some((name, value)) = index.checked_sub(1).and_then(|at| STATIC.get(at)) {
            let kind = STATIC_KINDS[index - 1];
            head.add_checked(kind, name.as_bytes(), value.as_bytes());
            return Ok(());
        }
        let entry = index.checked_sub(STATIC_LEN + 1).and_then(|index| self.table.get(index));
        let Some(entry) = entry else { return Err(FaultKind::TableIndexInvalid) };
        let (name, value) = self.table.text(entry);
        head.add_checked(entry.kind, name, value);
        Ok(())
    }

    #[inline]
    fn literal(
        &mut self,
        rest: &mut &[u8],
        index: usize,
        is_inserted: bool,
        head: &mut HeadScratch,
    ) -> Result<(), FaultKind> {
        let name_kind = if index == 0 {
            string(rest, &mut head.names)?;
            None
        } else if let Some((name, _)) = STATIC.get(index - 1) {
            head.names.extend_from_slice(name.as_bytes());
            Some(STATIC_KINDS[index - 1].name)
        } else {
            let entry = self.table.get(index - STATIC_LEN - 1).ok_or(FaultKind::TableIndexInvalid)?;
            head.names.extend_from_slice(self.table.text(entry).0);
            Some(entry.kind.name)
        };
        string(rest, &mut head.values)?;
        let kind = head.classify(name_kind);
        if is_inserted {
            let (name, value) = head.last_text();
            self.table.insert(name, value, kind);
        }
        head.add_last(kind);
        Ok(())
    }
}

static STATIC_KINDS: [FieldKind; STATIC_LEN] = {
    let mut kinds = [FieldKind::OTHER; STATIC_LEN];
    let mut at = 0;
    while at < STATIC_LEN {
        kinds[at] = FieldKind::from_static_index(at + 1);
        at += 1;
    }
    kinds
};

/// Decodes an integer whose prefix has the given bits of `first`, the first byte of the rest (RFC
/// 7541 §5.1). Values are limited to 2^28: more than any table, string or block here.
#[inline]
fn integer(rest: &mut &[u8], first: u8, prefix_bits: u32) -> Result<usize, FaultKind> {
    *rest = &rest[1..];
    let prefix_max = (1u8 << prefix_bits) - 1;
    let prefix = first & prefix_max;
    if prefix < prefix_max {
        return Ok(usize::from(prefix));
    }
    long_integer(rest, usize::from(prefix_max))
}

fn long_integer(rest: &mut &[u8], prefix: usize) -> Result<usize, FaultKind> {
    let mut value = 0;
    for shift in [0, 7, 14, 21] {
        let [byte, after @ ..] = *rest else { return Err(FaultKind::BlockTruncated) };
        *rest = after;
        value |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(prefix + value);
        }
    }
    Err(FaultKind::IntegerOverflow)
}

/// Decodes a string literal and appends it (RFC 7541 §5.2).
#[inline]
fn string(rest: &mut &[u8], out: &mut Vec<u8>) -> Result<(), FaultKind> {
    let [first, ..] = **rest else { return Err(FaultKind::BlockTruncated) };
    let len = integer(rest, first, 7)?;
    let Some((text, after)) = rest.split_at_checked(len) else { return Err(FaultKind::BlockTruncated) };
    *rest = after;
    if first & 0x80 != 0 {
        return huffman::decode(text, out);
    }
    out.extend_from_slice(text);
    Ok(())
}

#[cfg(test)]
impl Decoder {
    pub(super) fn table_size(&self) -> usize {
        self.table.size()
    }

    pub(super) fn set_table_size(&mut self, size: usize) {
        self.table.set_size_max(size);
    }
}
