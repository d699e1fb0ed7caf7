//! Decoder of HPACK field blocks (RFC 7541 §3 and §6).
//!
//! Fields are references to the tables, or to the literals of the block: nothing is copied, except for
//! blocks that replace more than the complete table. [`super::fields`] checks each literal once, and
//! [`super::head`] the fields together. A block over the limits of a head is decoded for the table only,
//! up to the size at which it is a fault.

use super::fault::FaultKind;
use super::fields::{FieldKind, NameKind, classify};
use super::head::Head;
use super::huffman;
use super::table::{DynamicTable, EntryName, FieldRef, STATIC, STATIC_LEN, TextRef, Texts};

/// Size of a dynamic table before any settings (RFC 9113 §6.5.2).
pub(super) const TABLE_BYTES_DEFAULT: usize = 4_096;

/// Capacity for literals that survives a large head.
const LITERALS_KEPT: usize = 4_096;

/// Decoder of one direction of a connection.
#[derive(Debug)]
pub(super) struct Decoder {
    table: DynamicTable,
    /// Literals of the last block that are not in the table.
    literals: Vec<u8>,
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
            literals: Vec::new(),
            size_limit: announced.max(TABLE_BYTES_DEFAULT),
            needs_size_update: false,
        }
    }

    /// Returns a number that changes with the table; `None` while the next block must change its size.
    #[inline]
    pub(super) fn version(&self) -> Option<u32> {
        (!self.needs_size_update).then(|| self.table.version())
    }

    /// Applies our table size, which the peer acknowledged.
    pub(super) fn apply_size_limit(&mut self, announced: usize) {
        self.size_limit = announced;
        self.needs_size_update = self.table.size_max() > announced;
    }

    /// Checks the limits of the table, for fuzz targets.
    #[cfg(any(test, fuzzing))]
    pub(super) fn check_invariants(&self) {
        self.table.check_invariants(self.size_limit.max(TABLE_BYTES_DEFAULT));
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.table.memory_bytes() + self.literals.capacity()
    }

    /// Decodes a complete block into the head.
    ///
    /// # Errors
    /// The block is not valid HPACK, or decodes to far more than a head may have: the connection cannot
    /// go on (RFC 9113 §4.3).
    pub(super) fn decode(&mut self, block: &[u8], head: &mut Head) -> Result<(), FaultKind> {
        if self.table.is_text_long() {
            // The head has no fields yet.
            self.table.compact();
        }
        self.literals.clear();
        if self.literals.capacity() > LITERALS_KEPT {
            self.literals.shrink_to(LITERALS_KEPT);
        }
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
                self.inserted_literal(&mut rest, index, head)?;
            } else if byte & 0x20 == 0 {
                let index = integer(&mut rest, byte, 4)?;
                self.literal(&mut rest, index, head)?;
            } else {
                return Err(FaultKind::TableSizeInvalid);
            }
        }
        if head.is_over() {
            // Nothing refers to the literals, which may be as long as the block.
            self.literals = Vec::new();
        }
        Ok(())
    }

    /// Texts that the fields of the last block refer to.
    #[inline]
    pub(super) fn texts(&self) -> Texts<'_> {
        Texts { table: self.table.text(), literals: &self.literals }
    }

    /// Frees the literals of the last block.
    pub(super) fn release(&mut self) {
        self.literals = Vec::new();
    }

    /// Frees all memory: nothing more is decoded.
    pub(super) fn close(&mut self) {
        self.literals = Vec::new();
        self.table = DynamicTable::new(0);
    }

    #[inline]
    fn indexed(&self, index: usize, head: &mut Head) -> Result<(), FaultKind> {
        if let Some(&(kind, len)) = STATIC_FIELDS.get(index.wrapping_sub(1)) {
            let text = TextRef::fixed(index as u8);
            return self.add(head, kind, FieldRef { name: text, value: text }, usize::from(len));
        }
        let Some(entry) = self.table.get(index.wrapping_sub(STATIC_LEN + 1)) else {
            return Err(FaultKind::TableIndexInvalid);
        };
        self.add(head, entry.kind, entry.field, entry.len as usize)
    }

    #[inline(always)]
    fn add(&self, head: &mut Head, kind: FieldKind, field: FieldRef, len: usize) -> Result<(), FaultKind> {
        if head.add_regular(kind, field, len) {
            return Ok(());
        }
        head.add_special(kind, field, len, self.texts())
    }

    /// Decodes a literal that enters the table, whose text it becomes a part of.
    fn inserted_literal(&mut self, rest: &mut &[u8], index: usize, head: &mut Head) -> Result<(), FaultKind> {
        if self.table.is_text_long() {
            self.compact_table(head);
        }
        let start = self.table.text().len();
        let (name, known) = if index == 0 {
            string(rest, self.table.text_mut())?;
            (EntryName::Text(self.table.text().len() - start), None)
        } else if let Some((kind, _)) = STATIC_FIELDS.get(index - 1) {
            (EntryName::Static(index as u8), Some(kind.name))
        } else {
            let entry = *self.table.get(index - STATIC_LEN - 1).ok_or(FaultKind::TableIndexInvalid)?;
            (self.table.append_name(entry), Some(entry.kind.name))
        };
        string(rest, self.table.text_mut())?;
        let text = &self.table.text()[start..];
        let (name_text, value) = match name {
            EntryName::Static(index) => (STATIC[usize::from(index) - 1].0.as_bytes(), text),
            EntryName::Text(len) => text.split_at(len),
        };
        let kind = classify(known, name_text, value);
        let entry = self.table.commit(start, name, kind);
        self.add(head, kind, entry.field, entry.len as usize)?;
        if self.table.has_excess_capacity() {
            self.compact_table(head);
        }
        Ok(())
    }

    /// Removes the text of evicted entries in the middle of a block. What the head refers to is copied
    /// to the literals: at most the size of a head, and each field once.
    #[cold]
    fn compact_table(&mut self, head: &mut Head) {
        let Self { table, literals, .. } = self;
        head.replace_texts(|text| table.copy_text(text, literals));
        table.compact();
    }

    /// Decodes a literal that does not enter the table.
    fn literal(&mut self, rest: &mut &[u8], index: usize, head: &mut Head) -> Result<(), FaultKind> {
        if head.is_over() {
            // Nothing refers to the literals any more.
            self.literals.clear();
        }
        let start = self.literals.len();
        let (name_ref, known): (_, Option<NameKind>) = if index == 0 {
            string(rest, &mut self.literals)?;
            (TextRef::literal(start, self.literals.len() - start), None)
        } else if let Some((kind, _)) = STATIC_FIELDS.get(index - 1) {
            (TextRef::fixed(index as u8), Some(kind.name))
        } else {
            let entry = self.table.get(index - STATIC_LEN - 1).ok_or(FaultKind::TableIndexInvalid)?;
            (entry.field.name, Some(entry.kind.name))
        };
        let value_start = self.literals.len();
        string(rest, &mut self.literals)?;
        let texts = self.texts();
        let (name, value) = (texts.name(name_ref), &self.literals[value_start..]);
        let kind = classify(known, name, value);
        let len = name.len() + value.len();
        let field = FieldRef { name: name_ref, value: TextRef::literal(value_start, value.len()) };
        self.add(head, kind, field, len)
    }
}

/// Kinds of the entries of the static table, and their lengths.
static STATIC_FIELDS: [(FieldKind, u8); STATIC_LEN] = {
    let mut fields = [(FieldKind::OTHER, 0); STATIC_LEN];
    let mut at = 0;
    while at < STATIC_LEN {
        let (name, value) = STATIC[at];
        fields[at] = (FieldKind::from_static_index(at + 1), (name.len() + value.len()) as u8);
        at += 1;
    }
    fields
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
