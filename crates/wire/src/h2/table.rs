//! Tables of HPACK (RFC 7541 §2.3): the static one, and the dynamic one of each direction.

use std::fmt;

use super::fields::FieldKind;

pub(super) const STATIC_LEN: usize = 61;

/// Bytes that an entry counts in addition to its text (RFC 7541 §4.1).
pub(super) const ENTRY_OVERHEAD: usize = 32;

/// Static table (RFC 7541 Appendix A), from index 1.
#[rustfmt::skip]
pub(super) static STATIC: [(&str, &str); STATIC_LEN] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
    (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""), ("accept", ""),
    ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""),
    ("cache-control", ""), ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""),
    ("content-length", ""), ("content-location", ""), ("content-range", ""), ("content-type", ""),
    ("cookie", ""), ("date", ""), ("etag", ""), ("expect", ""), ("expires", ""), ("from", ""), ("host", ""),
    ("if-match", ""), ("if-modified-since", ""), ("if-none-match", ""), ("if-range", ""),
    ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""), ("location", ""),
    ("max-forwards", ""), ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""),
    ("referer", ""), ("refresh", ""), ("retry-after", ""), ("server", ""), ("set-cookie", ""),
    ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""),
    ("via", ""), ("www-authenticate", ""),
];

/// Returns the first index of a lower-case name in the static table; 0 if there is none.
pub(super) fn static_index(name: &[u8]) -> u8 {
    match name {
        b":authority" => 1,
        b":method" => 2,
        b":path" => 4,
        b":scheme" => 6,
        b":status" => 8,
        b"accept-charset" => 15,
        b"accept-encoding" => 16,
        b"accept-language" => 17,
        b"accept-ranges" => 18,
        b"accept" => 19,
        b"access-control-allow-origin" => 20,
        b"age" => 21,
        b"allow" => 22,
        b"authorization" => 23,
        b"cache-control" => 24,
        b"content-disposition" => 25,
        b"content-encoding" => 26,
        b"content-language" => 27,
        b"content-length" => 28,
        b"content-location" => 29,
        b"content-range" => 30,
        b"content-type" => 31,
        b"cookie" => 32,
        b"date" => 33,
        b"etag" => 34,
        b"expect" => 35,
        b"expires" => 36,
        b"from" => 37,
        b"host" => 38,
        b"if-match" => 39,
        b"if-modified-since" => 40,
        b"if-none-match" => 41,
        b"if-range" => 42,
        b"if-unmodified-since" => 43,
        b"last-modified" => 44,
        b"link" => 45,
        b"location" => 46,
        b"max-forwards" => 47,
        b"proxy-authenticate" => 48,
        b"proxy-authorization" => 49,
        b"range" => 50,
        b"referer" => 51,
        b"refresh" => 52,
        b"retry-after" => 53,
        b"server" => 54,
        b"set-cookie" => 55,
        b"strict-transport-security" => 56,
        b"transfer-encoding" => 57,
        b"user-agent" => 58,
        b"vary" => 59,
        b"via" => 60,
        b"www-authenticate" => 61,
        _ => 0,
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct FieldRef {
    pub(super) name: TextRef,
    pub(super) value: TextRef,
}

/// One entry of a dynamic table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) field: FieldRef,
    pub(super) len: u32,
    /// Kind of the field, with the result of its validation, so that a reference costs no check.
    pub(super) kind: FieldKind,
}

const EMPTY_ENTRY: Entry = Entry {
    field: FieldRef { name: TextRef { at: 0, len: 0 }, value: TextRef { at: 0, len: 0 } },
    len: 0,
    kind: FieldKind::OTHER,
};

impl Entry {
    fn size(&self) -> usize {
        self.len as usize + ENTRY_OVERHEAD
    }

    /// Offset of the first byte of its text.
    fn start(&self) -> u32 {
        if self.field.name.is_fixed() { self.field.value.at } else { self.field.name.at }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum EntryName {
    Static(u8),
    /// The first bytes of the appended text.
    Text(usize),
}

/// Minimum size for which a table has text, so that a small one is not compacted with each entry.
const TEXT_SIZE_MIN: usize = 2_048;

/// Maximum capacity for text, as a multiple of the length at which a table is compacted.
const TEXT_CAPACITY_FACTOR: usize = 3;

/// Dynamic table. It allocates with its first entry.
///
/// Text is only appended until [`DynamicTable::compact`]: until then references to it stay valid,
/// also those to evicted entries.
#[derive(Debug)]
pub(super) struct DynamicTable {
    /// Text of the entries, oldest first, after that of evicted ones.
    text: Vec<u8>,
    /// Length of the text beyond which that of evicted entries is removed: twice the maximum size, so
    /// that each byte moves at most once on average.
    text_max: usize,
    /// Ring of a power of two: the position of an entry is its sequence number modulo the length.
    entries: Vec<Entry>,
    len: usize,
    size: usize,
    size_max: usize,
    /// Number of entries that were ever inserted, modulo 2^32.
    inserted: u32,
    /// Number of changes of the entries and of the maximum size, modulo 2^32.
    version: u32,
}

impl DynamicTable {
    pub(super) fn new(size_max: usize) -> Self {
        Self {
            text: Vec::new(),
            text_max: text_max(size_max),
            entries: Vec::new(),
            len: 0,
            size: 0,
            size_max,
            inserted: 0,
            version: 0,
        }
    }

    #[inline]
    pub(super) fn size_max(&self) -> usize {
        self.size_max
    }

    /// Number of entries that were ever inserted, modulo 2^32: the sequence number of the next one.
    #[inline]
    pub(super) fn inserted(&self) -> u32 {
        self.inserted
    }

    /// Returns a number that changes with the table: while it is the same, so is the meaning of each
    /// index.
    #[inline]
    pub(super) fn version(&self) -> u32 {
        self.version
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Checks the sizes and the memory, for fuzz targets. `size_limit` is the largest size that the table
    /// may have had.
    #[cfg(any(test, fuzzing))]
    pub(super) fn check_invariants(&self, size_limit: usize) {
        let size: usize = (0..self.len).filter_map(|index| self.get(index)).map(|entry| entry.size()).sum();
        assert_eq!(size, self.size);
        assert!(self.size <= self.size_max && self.size_max <= size_limit);
        assert!(self.text.capacity() <= TEXT_CAPACITY_FACTOR * text_max(size_limit));
        assert!(self.entries.len() <= (2 * size_limit / ENTRY_OVERHEAD).max(8));
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.text.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    /// Changes the maximum size, and evicts what does not fit (RFC 7541 §4.3).
    pub(super) fn set_size_max(&mut self, size_max: usize) {
        self.version = self.version.wrapping_add(1);
        self.size_max = size_max;
        self.text_max = text_max(size_max);
        self.evict(0);
    }

    /// Returns whether the table must be compacted before the next entry is added.
    #[inline]
    pub(super) fn is_text_long(&self) -> bool {
        self.text.len() > self.text_max
    }

    /// Returns whether the last entry was so long that the table must be compacted now.
    #[inline]
    pub(super) fn has_excess_capacity(&self) -> bool {
        self.text.capacity() > TEXT_CAPACITY_FACTOR * self.text_max
    }

    /// Removes the text of evicted entries. References to the text are no longer valid.
    #[cold]
    pub(super) fn compact(&mut self) {
        let oldest = self.len.checked_sub(1).and_then(|index| self.get(index));
        let start = oldest.map_or(self.text.len(), |entry| entry.start() as usize);
        self.text.drain(..start);
        if self.has_excess_capacity() {
            self.text.shrink_to(self.text_max);
        }
        // Entries that are not in use have any offsets.
        for entry in &mut self.entries {
            entry.field.name.move_back(start as u32);
            entry.field.value.move_back(start as u32);
        }
    }

    /// Returns the entry with an index of the dynamic table: 0 is the newest.
    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<&Entry> {
        if index >= self.len {
            return None;
        }
        let sequence = self.inserted.wrapping_sub(1).wrapping_sub(index as u32);
        self.entries.get(sequence as usize & (self.entries.len() - 1))
    }

    /// Returns the index of the entry with a sequence number, if it is still there.
    #[inline]
    pub(super) fn index_of(&self, sequence: u32) -> Option<usize> {
        let index = self.inserted.wrapping_sub(sequence).wrapping_sub(1) as usize;
        (index < self.len).then_some(index)
    }

    /// Text of the table, to which [`TextRef`]s refer.
    #[inline]
    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    /// Text for appending the next entry; see [`DynamicTable::commit`].
    #[inline]
    pub(super) fn text_mut(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// Returns a reference to the same text among `literals`, to which text of this table is copied.
    pub(super) fn copy_text(&self, text: TextRef, literals: &mut Vec<u8>) -> TextRef {
        if text.at & (LITERAL | FIXED) != 0 {
            return text;
        }
        let start = literals.len();
        literals.extend_from_slice(&self.text[text.at as usize..][..text.len as usize]);
        TextRef::literal(start, text.len as usize)
    }

    #[inline]
    pub(super) fn name(&self, entry: &Entry) -> &[u8] {
        Texts { table: &self.text, literals: &[] }.name(entry.field.name)
    }

    #[inline]
    pub(super) fn value(&self, entry: &Entry) -> &[u8] {
        &self.text[entry.field.value.at as usize..][..entry.field.value.len as usize]
    }

    /// Appends the name of an entry, for a new entry, unless it is in the static table.
    pub(super) fn append_name(&mut self, entry: Entry) -> EntryName {
        let name = entry.field.name;
        if name.is_fixed() {
            return EntryName::Static(name.at as u8);
        }
        let start = name.at as usize;
        self.text.extend_from_within(start..start + name.len as usize);
        EntryName::Text(name.len as usize)
    }

    /// Inserts the text from `start` on as an entry, and evicts the oldest ones for it. One that is
    /// larger than the table only empties it (RFC 7541 §4.4). Returns the entry in both cases.
    #[inline]
    pub(super) fn commit(&mut self, start: usize, name: EntryName, kind: FieldKind) -> Entry {
        let stored = self.text.len() - start;
        let (name, name_len, value_len) = match name {
            EntryName::Static(index) => {
                (TextRef::fixed(index), STATIC[usize::from(index) - 1].0.len(), stored)
            }
            EntryName::Text(len) => (TextRef::table(start, len), len, stored - len),
        };
        let value = TextRef::table(start + stored - value_len, value_len);
        // Blocks and tables are far smaller than 4 GiB.
        let entry = Entry { field: FieldRef { name, value }, len: (name_len + value_len) as u32, kind };
        self.version = self.version.wrapping_add(1);
        self.evict(entry.size());
        if entry.size() > self.size_max {
            return entry;
        }
        if self.len == self.entries.len() {
            self.grow();
        }
        let mask = self.entries.len() - 1;
        self.entries[self.inserted as usize & mask] = entry;
        self.len += 1;
        self.size += entry.size();
        self.inserted = self.inserted.wrapping_add(1);
        entry
    }

    #[cold]
    fn grow(&mut self) {
        let len = (self.entries.len() * 2).max(8);
        let old = std::mem::replace(&mut self.entries, vec![EMPTY_ENTRY; len]);
        for index in 0..self.len {
            let sequence = self.inserted.wrapping_sub(1).wrapping_sub(index as u32) as usize;
            self.entries[sequence & (len - 1)] = old[sequence & (old.len() - 1)];
        }
    }

    #[inline]
    fn evict(&mut self, needed: usize) {
        while self.size + needed > self.size_max {
            let Some(oldest) = self.len.checked_sub(1).and_then(|index| self.get(index)) else { return };
            self.size -= oldest.size();
            self.len -= 1;
        }
    }
}

/// Returns the length of the text of a table with a maximum size at which it is compacted.
const fn text_max(size_max: usize) -> usize {
    2 * if size_max > TEXT_SIZE_MIN { size_max } else { TEXT_SIZE_MIN }
}

/// Reference to a text: in the static table, in a dynamic one, or among the literals of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextRef {
    /// Offset, with the source in the two highest bits.
    at: u32,
    len: u32,
}

const LITERAL: u32 = 1 << 30;
const FIXED: u32 = 2 << 30;

impl TextRef {
    /// Refers to an entry of the static table: its name or its value.
    #[inline]
    pub(super) fn fixed(index: u8) -> Self {
        Self { at: FIXED | u32::from(index), len: 0 }
    }

    #[inline]
    fn is_fixed(self) -> bool {
        self.at & FIXED != 0
    }

    /// Follows the text of the table, whose first bytes are removed.
    fn move_back(&mut self, bytes: u32) {
        if !self.is_fixed() {
            self.at = self.at.wrapping_sub(bytes) & !(LITERAL | FIXED);
        }
    }

    #[inline]
    pub(super) fn table(start: usize, len: usize) -> Self {
        Self { at: start as u32, len: len as u32 }
    }

    #[inline]
    pub(super) fn literal(start: usize, len: usize) -> Self {
        Self { at: LITERAL | start as u32, len: len as u32 }
    }
}

/// Texts that the fields of a block refer to.
#[derive(Clone, Copy)]
pub(super) struct Texts<'e> {
    pub(super) table: &'e [u8],
    pub(super) literals: &'e [u8],
}

impl fmt::Debug for Texts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Texts").finish_non_exhaustive()
    }
}

impl<'e> Texts<'e> {
    #[inline]
    fn stored(self, text: TextRef) -> Result<&'e [u8], u8> {
        let len = text.len as usize;
        match text.at & (LITERAL | FIXED) {
            0 => Ok(&self.table[text.at as usize..][..len]),
            LITERAL => Ok(&self.literals[(text.at & !LITERAL) as usize..][..len]),
            _ => Err(text.at as u8),
        }
    }

    #[inline]
    pub(super) fn name(self, name: TextRef) -> &'e [u8] {
        self.stored(name).unwrap_or_else(|index| STATIC[usize::from(index) - 1].0.as_bytes())
    }

    /// Name of a field that was checked: a token.
    #[inline]
    pub(super) fn token(self, name: TextRef) -> &'e str {
        match self.stored(name) {
            Ok(bytes) => std::str::from_utf8(bytes).unwrap_or_default(),
            Err(index) => STATIC[usize::from(index) - 1].0,
        }
    }

    #[inline]
    pub(super) fn value(self, value: TextRef) -> &'e [u8] {
        self.stored(value).unwrap_or_else(|index| STATIC[usize::from(index) - 1].1.as_bytes())
    }

    /// Value of a field that was checked: ASCII.
    #[inline]
    pub(super) fn ascii(self, value: TextRef) -> &'e str {
        match self.stored(value) {
            Ok(bytes) => std::str::from_utf8(bytes).unwrap_or_default(),
            Err(index) => STATIC[usize::from(index) - 1].1,
        }
    }
}
