//! Tables of HPACK (RFC 7541 §2.3): the static one, and the dynamic one of each direction.

use std::collections::VecDeque;

use super::fields::FieldKind;

/// Number of entries of the static table.
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

/// Position of one entry in the text of a dynamic table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Offset from the first byte that was ever inserted, modulo 2^32.
    start: u32,
    name_len: u32,
    value_len: u32,
    /// Kind of the field, with the result of its validation, so that a reference costs no check.
    pub(super) kind: FieldKind,
}

impl Entry {
    fn text_len(self) -> u32 {
        self.name_len + self.value_len
    }

    fn size(self) -> usize {
        self.text_len() as usize + ENTRY_OVERHEAD
    }
}

/// Dynamic table. It allocates with its first entry.
#[derive(Debug)]
pub(super) struct DynamicTable {
    /// Text of the entries, oldest first, after that of evicted ones.
    text: Vec<u8>,
    /// Offset of the first byte of `text`, modulo 2^32.
    text_start: u32,
    /// Oldest first.
    entries: VecDeque<Entry>,
    size: usize,
    size_max: usize,
    /// Number of entries that were ever inserted, modulo 2^32.
    inserted: u32,
}

impl DynamicTable {
    pub(super) fn new(size_max: usize) -> Self {
        Self { text: Vec::new(), text_start: 0, entries: VecDeque::new(), size: 0, size_max, inserted: 0 }
    }

    pub(super) fn size_max(&self) -> usize {
        self.size_max
    }

    /// Number of entries that were ever inserted, modulo 2^32: the sequence number of the next one.
    #[inline]
    pub(super) fn inserted(&self) -> u32 {
        self.inserted
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Checks the sizes, for fuzz targets.
    pub(super) fn check_invariants(&self) {
        let size: usize = self.entries.iter().map(|entry| entry.size()).sum();
        assert_eq!(size, self.size);
        assert!(self.size <= self.size_max);
        assert!(self.text.len() <= 2 * self.size_max.max(4_096));
    }

    /// Changes the maximum size, and evicts what does not fit (RFC 7541 §4.3).
    pub(super) fn set_size_max(&mut self, size_max: usize) {
        self.size_max = size_max;
        self.evict(0);
        if self.entries.is_empty() {
            self.text = Vec::new();
        }
    }

    /// Returns the entry with an index of the dynamic table: 0 is the newest.
    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<Entry> {
        let at = self.entries.len().checked_sub(index + 1)?;
        self.entries.get(at).copied()
    }

    /// Returns the index of the entry with a sequence number, if it is still there.
    #[inline]
    pub(super) fn index_of(&self, sequence: u32) -> Option<usize> {
        let index = self.inserted.wrapping_sub(sequence).wrapping_sub(1) as usize;
        (index < self.entries.len()).then_some(index)
    }

    /// Name and value of an entry of this table.
    #[inline]
    pub(super) fn text(&self, entry: Entry) -> (&[u8], &[u8]) {
        let start = entry.start.wrapping_sub(self.text_start) as usize;
        let text = &self.text[start..start + entry.text_len() as usize];
        text.split_at(entry.name_len as usize)
    }

    /// Inserts an entry, and evicts the oldest ones for it. One that is larger than the table only
    /// empties it (RFC 7541 §4.4).
    #[inline]
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8], kind: FieldKind) {
        let len = name.len() + value.len();
        self.evict(len + ENTRY_OVERHEAD);
        if len + ENTRY_OVERHEAD > self.size_max {
            return;
        }
        self.make_room(len);
        let entry = Entry {
            start: self.text_start.wrapping_add(self.text.len() as u32),
            name_len: name.len() as u32,
            value_len: value.len() as u32,
            kind,
        };
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(value);
        self.entries.push_back(entry);
        self.size += entry.size();
        self.inserted = self.inserted.wrapping_add(1);
    }

    /// Removes the text of evicted entries when it is as large as the table: so each byte moves at
    /// most once on average.
    #[inline]
    fn make_room(&mut self, len: usize) {
        if self.text.len() + len <= self.size_max.saturating_mul(2) {
            return;
        }
        let start = self
            .entries
            .front()
            .map_or(self.text.len(), |oldest| oldest.start.wrapping_sub(self.text_start) as usize);
        self.text.drain(..start);
        self.text_start = self.text_start.wrapping_add(start as u32);
    }

    #[inline]
    fn evict(&mut self, needed: usize) {
        while self.size + needed > self.size_max {
            let Some(oldest) = self.entries.pop_front() else { return };
            self.size -= oldest.size();
        }
    }
}
