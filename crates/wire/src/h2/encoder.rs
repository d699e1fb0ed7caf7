//! Encoder of HPACK field blocks (RFC 7541 §6), and the writer that callers use.
//!
//! A field enters the table of the peer at its second use: values that differ each time never evict
//! those that repeat. A small cache finds repeated fields by a hash of name and value.

use super::decoder::TABLE_BYTES_DEFAULT;
use super::fields::FieldKind;
use super::huffman;
use super::table::{DynamicTable, ENTRY_OVERHEAD, EntryName, STATIC, STATIC_LEN, static_index};

/// Pairs of entries in the cache of fields.
const CACHE_SETS: usize = 64;

/// Fields of a block that are found by their position.
const POSITIONS: usize = 16;

/// A field that was written before.
#[derive(Clone, Copy, Debug)]
struct CacheEntry {
    /// Hash of name and value; 0 is an empty entry.
    hash: u32,
    /// Sequence number in the table, if it was inserted.
    sequence: u32,
}

const EMPTY_ENTRY: CacheEntry = CacheEntry { hash: 0, sequence: 0 };

/// Encoder of one direction of a connection.
#[derive(Debug)]
pub(super) struct Encoder {
    table: DynamicTable,
    /// Allocated with the first field that could repeat.
    cache: Vec<[CacheEntry; 2]>,
    /// Smallest size since the last block, if the size has changed (RFC 7541 §4.2).
    smallest_size: Option<usize>,
    /// Sequence numbers of the fields of earlier blocks by their position: the heads of a connection are
    /// often alike. Allocated with the cache.
    by_position: Vec<u32>,
    /// Position of the next field of the block.
    position: usize,
    lower: Vec<u8>,
}

impl Encoder {
    pub(super) fn new() -> Self {
        Self {
            table: DynamicTable::new(TABLE_BYTES_DEFAULT),
            cache: Vec::new(),
            smallest_size: None,
            by_position: Vec::new(),
            position: 0,
            lower: Vec::new(),
        }
    }

    /// Applies the table size that the peer allows; this end uses at most the default.
    pub(super) fn set_size_limit(&mut self, limit: usize) {
        let size = limit.min(TABLE_BYTES_DEFAULT);
        if size == self.table.size_max() {
            return;
        }
        self.smallest_size = Some(self.smallest_size.map_or(size, |smallest| smallest.min(size)));
        self.table.set_size_max(size);
    }

    /// Returns a number that changes with the table; `None` while the next block must change its size.
    #[inline]
    pub(super) fn version(&self) -> Option<u32> {
        self.smallest_size.is_none().then(|| self.table.version())
    }

    /// Checks the limits of the table, for fuzz targets.
    #[cfg(any(test, fuzzing))]
    pub(super) fn check_invariants(&self) {
        self.table.check_invariants(TABLE_BYTES_DEFAULT);
    }

    /// Returns the bytes of memory of the table, the caches and the last name.
    pub(super) fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
            + self.cache.capacity() * size_of::<[CacheEntry; 2]>()
            + self.by_position.capacity() * size_of::<u32>()
            + self.lower.capacity()
    }

    /// Frees the last name.
    pub(super) fn release(&mut self) {
        self.lower = Vec::new();
    }

    /// Begins a block: writes the changes of the table's size.
    #[inline]
    pub(super) fn begin(&mut self, out: &mut Vec<u8>) {
        self.position = 0;
        if let Some(smallest) = self.smallest_size.take() {
            if smallest < self.table.size_max() {
                write_integer(out, 0x20, 5, smallest);
            }
            write_integer(out, 0x20, 5, self.table.size_max());
        }
    }

    /// Writes a field. Its name may have upper-case letters, which are made lower case.
    #[inline]
    pub(super) fn field(&mut self, out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        let position = self.position;
        self.position += 1;
        if let Some(&sequence) = self.by_position.get(position)
            && let Some(index) = self.find(sequence, name, value)
        {
            return write_integer(out, 0x80, 7, STATIC_LEN + 1 + index);
        }
        let hash = hash_field(name, value);
        if let Some(set) = self.cache.get(hash as usize / 2 % CACHE_SETS) {
            for entry in set.iter().filter(|entry| entry.hash == hash) {
                if let Some(index) = self.find(entry.sequence, name, value) {
                    if let Some(sequence) = self.by_position.get_mut(position) {
                        *sequence = entry.sequence;
                    }
                    return write_integer(out, 0x80, 7, STATIC_LEN + 1 + index);
                }
            }
        }
        self.new_field(out, name, value, hash);
    }

    /// Returns the index of a field in the table, if its sequence number is the given one.
    #[inline]
    fn find(&self, sequence: u32, name: &[u8], value: &[u8]) -> Option<usize> {
        let index = self.table.index_of(sequence)?;
        let entry = self.table.get(index)?;
        let is_equal =
            is_equal(value, self.table.value(entry)) && is_equal_ignoring_case(name, self.table.name(entry));
        is_equal.then_some(index)
    }

    /// Writes a field that is not in the table of the peer.
    fn new_field(&mut self, out: &mut Vec<u8>, name: &[u8], value: &[u8], hash: u32) {
        let mut lower = std::mem::take(&mut self.lower);
        lower.clear();
        lower.extend_from_slice(name);
        lower.make_ascii_lowercase();
        match field_class(&lower, value) {
            FieldClass::Forbidden => {}
            FieldClass::Secret => Self::field_never_indexed(out, &lower, value),
            FieldClass::Regular => self.regular_field(out, &lower, value, hash),
        }
        self.lower = lower;
    }

    fn regular_field(&mut self, out: &mut Vec<u8>, name: &[u8], value: &[u8], hash: u32) {
        let name_index = usize::from(static_index(name));
        if name_index > 0 && STATIC[name_index - 1].1.as_bytes() == value && !value.is_empty() {
            return write_integer(out, 0x80, 7, name_index);
        }
        if self.cache.is_empty() {
            self.cache = vec![[EMPTY_ENTRY; 2]; CACHE_SETS];
            self.by_position = vec![0; POSITIONS];
        }
        let set = &mut self.cache[hash as usize / 2 % CACHE_SETS];
        let repeated = set.iter_mut().find(|entry| entry.hash == hash);
        let fits = name.len() + value.len() + ENTRY_OVERHEAD <= self.table.size_max() / 2;
        if let Some(entry) = repeated
            && fits
        {
            entry.sequence = self.table.inserted();
            self.insert(name_index, name, value);
            return write_literal(out, 0x40, 6, name_index, name, value);
        }
        // A sequence number that is not in the table: half the numbers away.
        let sequence = self.table.inserted().wrapping_add(1 << 31);
        set[1] = set[0];
        set[0] = CacheEntry { hash, sequence };
        write_literal(out, 0, 4, name_index, name, value);
    }

    fn insert(&mut self, name_index: usize, name: &[u8], value: &[u8]) {
        if self.table.is_text_long() {
            self.table.compact();
        }
        let text = self.table.text_mut();
        let start = text.len();
        let entry_name = if name_index > 0 {
            EntryName::Static(name_index as u8)
        } else {
            text.extend_from_slice(name);
            EntryName::Text(name.len())
        };
        text.extend_from_slice(value);
        self.table.commit(start, entry_name, FieldKind::OTHER);
    }

    /// Writes a field with a lower-case name that no recipient may put into a table (RFC 7541 §6.2.3).
    pub(super) fn field_never_indexed(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        write_literal(out, 0x10, 4, usize::from(static_index(name)), name, value);
    }
}

/// Returns a hash of name, ignoring case, and value, from samples of both: equal hashes of different
/// fields only cost compression.
#[inline]
fn hash_field(name: &[u8], value: &[u8]) -> u32 {
    // Makes letters lower case, and some other bytes equal.
    const LOWER: u64 = 0x2020_2020_2020_2020;
    let lens = (name.len() as u64) << 32 ^ value.len() as u64;
    let mut hash = sample(name, LOWER).wrapping_add(lens).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash = (hash.rotate_left(29) ^ sample(value, 0)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    // 0 is an empty entry.
    (hash >> 32) as u32 | 1
}

/// Mixes the first, the middle and the last eight bytes of a text.
#[inline]
fn sample(text: &[u8], mask: u64) -> u64 {
    let Some(first) = text.first_chunk::<8>() else { return last_word(text) | mask };
    let middle = text[text.len() / 2 - 4..].first_chunk::<8>().unwrap_or(first);
    let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes) | mask;
    word(first) ^ word(middle).rotate_left(21) ^ (last_word(text) | mask).rotate_left(43)
}

/// Returns the last eight bytes as a word, or all bytes of a shorter text.
#[inline]
fn last_word(text: &[u8]) -> u64 {
    if let Some(word) = text.last_chunk::<8>() {
        u64::from_le_bytes(*word)
    } else if let (Some(first), Some(last)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << 32
    } else {
        match *text {
            [] => 0,
            [a] => u64::from(a),
            [a, .., c] => u64::from(a) | u64::from(c) << 8 | u64::from(text[1]) << 16,
        }
    }
}

/// Compares two texts, which are short and mostly equal, without a call.
#[inline]
fn is_equal(text: &[u8], other: &[u8]) -> bool {
    if text.len() != other.len() {
        return false;
    }
    let (words, _) = text.as_chunks::<8>();
    let (others, _) = other.as_chunks::<8>();
    words.iter().zip(others).all(|(word, other)| word == other) && last_word(text) == last_word(other)
}

#[inline]
fn is_equal_ignoring_case(name: &[u8], lower: &[u8]) -> bool {
    is_equal(name, lower) || name.eq_ignore_ascii_case(lower)
}

fn write_literal(
    out: &mut Vec<u8>,
    pattern: u8,
    prefix_bits: u32,
    name_index: usize,
    name: &[u8],
    value: &[u8],
) {
    write_integer(out, pattern, prefix_bits, name_index);
    if name_index == 0 {
        write_string(out, name);
    }
    write_string(out, value);
}

/// Writes an integer (RFC 7541 §5.1).
#[inline]
fn write_integer(out: &mut Vec<u8>, pattern: u8, prefix_bits: u32, value: usize) {
    let prefix_max = (1usize << prefix_bits) - 1;
    if value < prefix_max {
        return out.push(pattern | value as u8);
    }
    out.push(pattern | prefix_max as u8);
    let mut rest = value - prefix_max;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Writes a string, Huffman-coded if that is shorter.
#[inline]
fn write_string(out: &mut Vec<u8>, text: &[u8]) {
    let encoded_len = huffman::encoded_len(text);
    if encoded_len < text.len() {
        write_integer(out, 0x80, 7, encoded_len);
        huffman::encode(text, out);
    } else {
        write_integer(out, 0, 7, text.len());
        out.extend_from_slice(text);
    }
}

/// Properties of a head that the connection needs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WrittenHead {
    pub(super) status: u16,
    pub(super) is_head: bool,
    pub(super) is_connect: bool,
}

/// Writes the fields of one head into the output, HPACK-encoded.
///
/// Pseudo-header fields must be written first (RFC 9113 §8.3).
#[derive(Debug)]
pub struct FieldEncoder<'c> {
    pub(super) encoder: &'c mut Encoder,
    pub(super) out: &'c mut Vec<u8>,
    pub(super) head: WrittenHead,
}

impl FieldEncoder<'_> {
    /// Writes `:status`.
    pub fn status(&mut self, status: u16) {
        self.head.status = status;
        let index = match status {
            200 => 8,
            204 => 9,
            206 => 10,
            304 => 11,
            400 => 12,
            404 => 13,
            500 => 14,
            _ => {
                let digit = |unit: u16| b'0' + (status / unit % 10) as u8;
                let digits = [digit(100), digit(10), digit(1)];
                return self.encoder.field(self.out, b":status", &digits);
            }
        };
        self.out.push(0x80 | index);
    }

    /// Writes the pseudo-header fields of a request, in the order of RFC 9113 §8.3.1.
    pub fn request(
        &mut self,
        method: &str,
        scheme: Option<&str>,
        authority: Option<&str>,
        path: Option<&str>,
    ) {
        match method {
            "GET" => self.out.push(0x82),
            "POST" => self.out.push(0x83),
            _ => {
                self.head.is_head = method == "HEAD";
                self.head.is_connect = method == "CONNECT";
                self.encoder.field(self.out, b":method", method.as_bytes());
            }
        }
        match scheme {
            None => {}
            Some("http") => self.out.push(0x86),
            Some("https") => self.out.push(0x87),
            Some(scheme) => self.encoder.field(self.out, b":scheme", scheme.as_bytes()),
        }
        if let Some(authority) = authority {
            self.encoder.field(self.out, b":authority", authority.as_bytes());
        }
        match path {
            None => {}
            Some("/") => self.out.push(0x84),
            Some(path) => self.encoder.field(self.out, b":path", path.as_bytes()),
        }
    }

    /// Writes `:protocol` of an extended CONNECT (RFC 8441); after [`FieldEncoder::request`].
    pub fn protocol(&mut self, protocol: &str) {
        // A successful response has a body of unknown length, as after any CONNECT.
        self.encoder.field(self.out, b":protocol", protocol.as_bytes());
    }

    /// Writes a field; the name is made lower case. Fields that HTTP/2 forbids (`connection`,
    /// `transfer-encoding`, ...: §8.2.2) are left out, and `te` other than `trailers`.
    ///
    /// `authorization`, `proxy-authorization`, `cookie` and `set-cookie` are written as by
    /// [`FieldEncoder::field_without_index`].
    #[inline]
    pub fn field(&mut self, name: &str, value: &[u8]) {
        self.encoder.field(self.out, name.as_bytes(), value);
    }

    /// Same as [`FieldEncoder::field`], never put into the table of the peer (RFC 7541 §7.1.3): for
    /// values that are secret, or different each time.
    pub fn field_without_index(&mut self, name: &str, value: &[u8]) {
        let lower = &mut self.encoder.lower;
        lower.clear();
        lower.extend_from_slice(name.as_bytes());
        lower.make_ascii_lowercase();
        if !matches!(field_class(lower, value), FieldClass::Forbidden) {
            Encoder::field_never_indexed(self.out, lower, value);
        }
    }
}

enum FieldClass {
    Regular,
    Secret,
    Forbidden,
}

#[inline]
fn field_class(name: &[u8], value: &[u8]) -> FieldClass {
    match name {
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
            FieldClass::Forbidden
        }
        b"te" if !value.eq_ignore_ascii_case(b"trailers") => FieldClass::Forbidden,
        b"cookie" | b"set-cookie" | b"authorization" | b"proxy-authorization" => FieldClass::Secret,
        _ => FieldClass::Regular,
    }
}
