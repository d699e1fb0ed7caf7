//! DNS messages (RFC 1035): writes questions, parses answers strictly. No I/O. Only the record types
//! for servers' names: A, AAAA, SRV, and aliases on the way to them.

use std::hash::{DefaultHasher, Hasher};
use std::net::IpAddr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordType {
    A = 1,
    Aaaa = 28,
    Srv = 33,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordData {
    Address(IpAddr),
    Service { priority: u16, weight: u16, port: u16, target: Box<str> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsAnswer {
    /// RCODE: 0 is success, 3 is "no such name".
    pub code: u8,
    /// True if the answer is truncated and must be requested over TCP.
    pub truncated: bool,
    pub data: Vec<RecordData>,
    /// Minimum TTL of all records on the way; 0 if there is no data.
    pub ttl_s: u32,
}

/// Reason for rejecting bytes as an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerError {
    /// They answer another question, or none: the right answer may still come.
    Mismatch,
    Malformed,
}

const CLASS_IN: u16 = 1;
const TYPE_CNAME: u16 = 5;
const HEADER_BYTES: usize = 12;
/// Maximum length of a name in bytes, with its length bytes (RFC 1035 §2.3.4).
const NAME_BYTES_MAX: usize = 255;
/// Maximum number of compression pointers in a name: one for each label that fits into a name. Without it a
/// chain of pointers makes each name as long as the message.
const POINTERS_MAX: usize = NAME_BYTES_MAX / 2;
const ALIASES_MAX: usize = 8;
/// Maximum number of records of an answer that are parsed.
const RECORDS_MAX: usize = 1_024;

/// Encodes a question. `name` comes from the config: its labels are short enough.
pub fn encode_question(id: u16, name: &str, record_type: RecordType) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + name.len() + 6);
    // A standard query, with recursion, and one question.
    for word in [id, 0x0100, 1, 0, 0, 0] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    for label in name.split('.').filter(|label| !label.is_empty()) {
        bytes.push(label.len().min(63) as u8);
        bytes.extend_from_slice(&label.as_bytes()[..label.len().min(63)]);
    }
    bytes.push(0);
    bytes.extend_from_slice(&(record_type as u16).to_be_bytes());
    bytes.extend_from_slice(&CLASS_IN.to_be_bytes());
    bytes
}

/// Returns a name with random letter case, one bit of `bits` for each letter; the bits repeat. A
/// nameserver returns the name unchanged, so a forger must guess the case.
pub fn randomize_case(name: &str, bits: [u8; 6]) -> String {
    let has_upper_case = |at: usize| bits[at / 8 % bits.len()] >> (at % 8) & 1 == 1;
    let letters = name.chars().enumerate();
    letters
        .map(|(at, letter)| if has_upper_case(at) { letter.to_ascii_uppercase() } else { letter })
        .collect()
}

/// Code of an answer that a name does not exist.
const NXDOMAIN: u8 = 3;

/// Returns whether an answer repeats the question byte by byte, or is an error of the nameserver without a question.
/// NXDOMAIN needs the question: it ends the lookup.
pub fn repeats_question(answer: &[u8], question: &[u8]) -> bool {
    let is_nameserver_error = answer.get(3).is_some_and(|flags| flags & 0xf != NXDOMAIN);
    let has_no_question = answer.get(4..6) == Some(&[0, 0]) && is_nameserver_error;
    let sent_question = &question[HEADER_BYTES.min(question.len())..];
    has_no_question || answer.get(HEADER_BYTES..).is_some_and(|rest| rest.starts_with(sent_question))
}

/// Parses the answer to a question of the same `id`, `name` and type.
pub fn parse_answer(
    bytes: &[u8],
    id: u16,
    name: &str,
    record_type: RecordType,
) -> Result<DnsAnswer, AnswerError> {
    let mut reader = MessageReader { bytes, position: 0 };
    let header: [u16; 6] = reader.read_u16s().ok_or(AnswerError::Mismatch)?;
    let [answer_id, flags, questions, answers, ..] = header;
    // A response to a standard query.
    if answer_id != id || flags & 0xf800 != 0x8000 {
        return Err(AnswerError::Mismatch);
    }
    let code = (flags & 0xf) as u8;
    let truncated = flags & 0x0200 != 0;
    if questions != 1 {
        // Some servers omit the question in an error.
        let is_error = questions == 0 && code != 0;
        let error_answer = DnsAnswer { code, truncated, data: Vec::new(), ttl_s: 0 };
        return if is_error { Ok(error_answer) } else { Err(AnswerError::Mismatch) };
    }
    let answered_name = reader.skip_name().ok_or(AnswerError::Malformed)?;
    let [kind, class] = reader.read_u16s().ok_or(AnswerError::Malformed)?;
    if !answered_name.labels(bytes).equals(name) || kind != record_type as u16 || class != CLASS_IN {
        return Err(AnswerError::Mismatch);
    }
    let mut records = Vec::new();
    for _ in 0..usize::from(answers).min(RECORDS_MAX) {
        match reader.read_record(record_type) {
            Some(record) => records.extend(record),
            // The last record may be cut off.
            None if truncated => break,
            None => return Err(AnswerError::Malformed),
        }
    }
    let (data, ttl_s) = follow_aliases(bytes, records, name);
    Ok(DnsAnswer { code, truncated, data, ttl_s })
}

/// A relevant record: owner, TTL and content. It holds positions of names and not their text: a pointer of
/// two bytes can stand for 255.
struct ResourceRecord {
    owner: NamePosition,
    /// [`name_hash`] of the owner.
    owner_hash: u64,
    ttl_s: u32,
    content: RecordContent,
}

enum RecordContent {
    Cname(NamePosition),
    Address(IpAddr),
    Service { priority: u16, weight: u16, port: u16, target: NamePosition },
}

/// Returns the data of `name` or of the name that it is an alias of, with the minimum TTL.
///
/// The work is proportional to the answer: a record with another owner costs a comparison of two numbers for each alias,
/// and one with the owner in question is removed.
fn follow_aliases(bytes: &[u8], mut records: Vec<ResourceRecord>, name: &str) -> (Vec<RecordData>, u32) {
    let (mut name, mut ttl_s) = (Box::<str>::from(name), u32::MAX);
    for _ in 0..=ALIASES_MAX {
        let hash = name_hash(name.as_bytes());
        let own_records = records
            .extract_if(.., |record| record.owner_hash == hash && record.owner.labels(bytes).equals(&name));
        let mut data = Vec::new();
        let mut alias = None;
        for record in own_records {
            match record.content {
                RecordContent::Address(ip) => data.push(RecordData::Address(ip)),
                RecordContent::Service { priority, weight, port, target } => {
                    let target = target.labels(bytes).into_text();
                    data.push(RecordData::Service { priority, weight, port, target });
                }
                RecordContent::Cname(target) => alias = Some(target),
            }
            ttl_s = ttl_s.min(record.ttl_s);
        }
        match alias {
            _ if !data.is_empty() => return (data, ttl_s),
            Some(target) => name = target.labels(bytes).into_text(),
            None => break,
        }
    }
    (Vec::new(), 0)
}

/// Position of a name in a message that [`MessageReader::skip_name`] has checked.
#[derive(Clone, Copy)]
pub(super) struct NamePosition(usize);

impl NamePosition {
    fn labels(self, bytes: &[u8]) -> Labels<'_> {
        Labels { bytes, position: self.0, end: None, pointer_limit: self.0, name_bytes: 1, pointers: 0 }
    }
}

struct Labels<'a> {
    bytes: &'a [u8],
    position: usize,
    /// Position behind the name, once a pointer has left it.
    end: Option<usize>,
    /// A pointer must lead to an earlier position than this.
    pointer_limit: usize,
    name_bytes: usize,
    pointers: usize,
}

impl<'a> Labels<'a> {
    /// Returns the next label, an empty one at the end of the name; `None`: the name is malformed.
    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let length = usize::from(*self.bytes.get(self.position)?);
            match length >> 6 {
                0 => {
                    let start = self.position + 1;
                    let label = self.bytes.get(start..start + length)?;
                    self.name_bytes += if length == 0 { 0 } else { 1 + length };
                    if self.name_bytes > NAME_BYTES_MAX {
                        return None;
                    }
                    self.position = start + length;
                    return Some(label);
                }
                3 => {
                    let low = usize::from(*self.bytes.get(self.position + 1)?);
                    let target = (length & 0x3f) << 8 | low;
                    self.pointers += 1;
                    if target >= self.pointer_limit || self.pointers > POINTERS_MAX {
                        return None;
                    }
                    self.end.get_or_insert(self.position + 2);
                    (self.position, self.pointer_limit) = (target, target);
                }
                _ => return None,
            }
        }
    }

    /// Returns the name in lower case, without the final dot. Bytes that no valid name contains become
    /// `?`, so that the name still matches no valid name.
    fn into_text(mut self) -> Box<str> {
        let mut name = String::new();
        while let Some(label @ [_, ..]) = self.next() {
            if !name.is_empty() {
                name.push('.');
            }
            name.extend(label.iter().map(|byte| name_char(*byte)));
        }
        name.into()
    }

    /// Returns the [`name_hash`] of the text that [`Labels::into_text`] returns.
    fn hash(mut self) -> u64 {
        let (mut text, mut end) = ([0_u8; NAME_BYTES_MAX + 1], 0);
        while let Some(label @ [_, ..]) = self.next() {
            if end > 0 {
                text[end] = b'.';
                end += 1;
            }
            // A name is shorter than the array: `next` counts its bytes.
            for (slot, byte) in text[end..].iter_mut().zip(label) {
                *slot = name_char(*byte) as u8;
            }
            end += label.len();
        }
        name_hash(&text[..end])
    }

    /// Returns whether [`Labels::into_text`] would return `name`.
    fn equals(mut self, name: &str) -> bool {
        let mut rest = name;
        while let Some(label @ [_, ..]) = self.next() {
            if rest.len() < name.len() {
                let Some(after) = rest.strip_prefix('.') else { return false };
                rest = after;
            }
            let Some((start, after)) = rest.split_at_checked(label.len()) else { return false };
            if !start.chars().eq(label.iter().map(|byte| name_char(*byte))) {
                return false;
            }
            rest = after;
        }
        rest.is_empty()
    }
}

/// Returns a number that differs for most different names.
fn name_hash(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(name);
    hasher.finish()
}

fn name_char(byte: u8) -> char {
    if byte.is_ascii_graphic() && byte != b'.' { char::from(byte.to_ascii_lowercase()) } else { '?' }
}

/// Reader of the parts of a message.
pub(super) struct MessageReader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> MessageReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Checks the name at a position that has been passed.
    pub(super) fn name_at(&self, position: usize) -> Option<NamePosition> {
        Self { bytes: self.bytes, position }.skip_name()
    }

    /// Returns a name in lower case, without the final dot.
    pub(super) fn text_of(&self, name: NamePosition) -> Box<str> {
        name.labels(self.bytes).into_text()
    }

    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let bytes = self.bytes.get(self.position..self.position.checked_add(count)?)?;
        self.position += count;
        Some(bytes)
    }

    pub(super) fn read_u16s<const N: usize>(&mut self) -> Option<[u16; N]> {
        let bytes = self.take(2 * N)?;
        Some(std::array::from_fn(|at| u16::from_be_bytes([bytes[2 * at], bytes[2 * at + 1]])))
    }

    /// Checks a name, and moves behind it. A pointer must lead to an earlier position than itself, so that
    /// this terminates.
    pub(super) fn skip_name(&mut self) -> Option<NamePosition> {
        let name = NamePosition(self.position);
        let mut labels = name.labels(self.bytes);
        while !labels.next()?.is_empty() {}
        self.position = labels.end.unwrap_or(labels.position);
        Some(name)
    }

    /// Reads a record. `Some(None)`: an irrelevant one.
    fn read_record(&mut self, record_type: RecordType) -> Option<Option<ResourceRecord>> {
        let owner = self.skip_name()?;
        let [kind, class, ttl_high, ttl_low, length] = self.read_u16s()?;
        let start = self.position;
        let end = start.checked_add(usize::from(length))?;
        self.bytes.get(start..end)?;
        let content = match kind {
            _ if class != CLASS_IN => None,
            TYPE_CNAME => Some(RecordContent::Cname(self.skip_name()?)),
            kind if kind == record_type as u16 => Some(self.read_data(record_type, length)?),
            _ => None,
        };
        // The parsed length must equal the record's length.
        if content.is_some() && self.position != end {
            return None;
        }
        self.position = end;
        let ttl_s = u32::from(ttl_high) << 16 | u32::from(ttl_low);
        // A TTL with its highest bit set counts as 0 (RFC 2181 §8).
        let ttl_s = if ttl_s > i32::MAX as u32 { 0 } else { ttl_s };
        let bytes = self.bytes;
        let record = |content| {
            let owner_hash = owner.labels(bytes).hash();
            ResourceRecord { owner, owner_hash, ttl_s, content }
        };
        Some(content.map(record))
    }

    fn read_data(&mut self, record_type: RecordType, length: u16) -> Option<RecordContent> {
        match (record_type, length) {
            (RecordType::A, 4) => {
                let bytes: [u8; 4] = self.take(4)?.try_into().ok()?;
                Some(RecordContent::Address(IpAddr::from(bytes)))
            }
            (RecordType::Aaaa, 16) => {
                let bytes: [u8; 16] = self.take(16)?.try_into().ok()?;
                Some(RecordContent::Address(IpAddr::from(bytes)))
            }
            (RecordType::Srv, _) => {
                let [priority, weight, port] = self.read_u16s()?;
                Some(RecordContent::Service { priority, weight, port, target: self.skip_name()? })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: u16 = 0x1234;

    fn encoded_name(name: &str) -> Vec<u8> {
        let message = encode_question(0, name, RecordType::A);
        message[HEADER_BYTES..message.len() - 4].to_vec()
    }

    fn record(owner: &[u8], kind: u16, ttl_s: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = owner.to_vec();
        bytes.extend([kind.to_be_bytes(), CLASS_IN.to_be_bytes()].concat());
        bytes.extend(ttl_s.to_be_bytes());
        bytes.extend((data.len() as u16).to_be_bytes());
        bytes.extend(data);
        bytes
    }

    fn message(name: &str, record_type: RecordType, flags: u16, records: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = encode_question(ID, name, record_type);
        bytes[2..4].copy_from_slice(&flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&(records.len() as u16).to_be_bytes());
        bytes.extend(records.concat());
        bytes
    }

    /// The question's own name.
    const OWNER: &[u8] = &[0xc0, 12];

    #[test]
    fn a_question_is_a_question() {
        let bytes = encode_question(ID, "a.bc", RecordType::Srv);
        let expected = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\x02bc\0\0\x21\0\x01";
        assert_eq!(bytes, expected);
    }

    #[test]
    fn only_an_error_of_the_nameserver_needs_no_question() {
        let question = encode_question(ID, "aB.c", RecordType::A);
        let answer = |code: u8, has_question: bool| {
            let mut bytes = question.clone();
            bytes[2..4].copy_from_slice(&[0x81, 0x80 | code]);
            if !has_question {
                bytes[4..6].fill(0);
                bytes.truncate(HEADER_BYTES);
            }
            // It is an answer in any case, which a TCP connection proves.
            assert!(parse_answer(&bytes, ID, "ab.c", RecordType::A).is_ok() || code == 0);
            repeats_question(&bytes, &question)
        };
        // FORMERR, SERVFAIL, NOTIMP, REFUSED; NXDOMAIN ends the lookup, and so does an answer.
        assert_eq!([1, 2, 4, 5, 3].map(|code| answer(code, false)), [true, true, true, true, false]);
        assert_eq!([0, 2, 3].map(|code| answer(code, true)), [true; 3]);
        let other_case = encode_question(ID, "ab.c", RecordType::A);
        assert!(!repeats_question(&other_case, &question));
        assert!(!repeats_question(&[0, 0, 0], &question));
    }

    #[test]
    fn addresses_come_with_the_shortest_ttl() {
        let records = [
            record(OWNER, 1, 60, &[10, 0, 0, 1]),
            record(OWNER, 16, 1, b"\x03txt"),
            record(&encoded_name("other"), 1, 2, &[10, 0, 0, 9]),
            record(OWNER, 1, 30, &[10, 0, 0, 2]),
        ];
        let bytes = message("app.internal", RecordType::A, 0x8180, &records);
        let parsed = parse_answer(&bytes, ID, "app.internal", RecordType::A).unwrap();
        let address = |last| RecordData::Address(IpAddr::from([10, 0, 0, last]));
        assert_eq!(parsed.data, [address(1), address(2)]);
        assert_eq!((parsed.code, parsed.truncated, parsed.ttl_s), (0, false, 30));
    }

    #[test]
    fn aliases_are_followed_and_circles_end() {
        let records = [
            record(&encoded_name("B"), 28, 9, &[0xfe; 16]),
            record(OWNER, TYPE_CNAME, 5, &encoded_name("b")),
        ];
        let bytes = message("a", RecordType::Aaaa, 0x8180, &records);
        let parsed = parse_answer(&bytes, ID, "a", RecordType::Aaaa).unwrap();
        assert_eq!((parsed.data.len(), parsed.ttl_s), (1, 5));
        let circle = [
            record(OWNER, TYPE_CNAME, 5, &encoded_name("b")),
            record(&encoded_name("b"), TYPE_CNAME, 5, &encoded_name("a")),
        ];
        let bytes = message("a", RecordType::A, 0x8180, &circle);
        assert_eq!(parse_answer(&bytes, ID, "a", RecordType::A).unwrap().data, []);
    }

    #[test]
    fn a_service_has_priority_weight_and_port() {
        let mut data = vec![0, 1, 0, 2, 0x1f, 0x90];
        data.extend(encoded_name("H.x"));
        let bytes = message("_s._tcp.x", RecordType::Srv, 0x8180, &[record(OWNER, 33, 7, &data)]);
        let parsed = parse_answer(&bytes, ID, "_s._tcp.x", RecordType::Srv).unwrap();
        let target = "h.x".into();
        let service = RecordData::Service { priority: 1, weight: 2, port: 8080, target };
        assert_eq!(parsed.data, [service]);
    }

    #[test]
    fn other_answers_are_distinguished_from_malformed_ones() {
        let valid = message("a", RecordType::A, 0x8180, &[record(OWNER, 1, 1, &[1, 2, 3, 4])]);
        let parse = |bytes: &[u8]| parse_answer(bytes, ID, "a", RecordType::A);
        assert!(parse(&valid).is_ok());
        assert_eq!(parse_answer(&valid, 1, "a", RecordType::A), Err(AnswerError::Mismatch));
        assert_eq!(parse_answer(&valid, ID, "b", RecordType::A), Err(AnswerError::Mismatch));
        assert_eq!(parse_answer(&valid, ID, "a", RecordType::Aaaa), Err(AnswerError::Mismatch));
        let question = message("a", RecordType::A, 0x0100, &[]);
        assert_eq!(parse(&question), Err(AnswerError::Mismatch));
        // A record of a wrong length, a truncated address, a pointer forward and one to itself.
        for bad in [
            record(OWNER, 1, 1, &[1, 2, 3]),
            record(OWNER, 1, 1, &[1, 2, 3, 4, 5]),
            record(&[0xc0, 19], 1, 1, &[1, 2, 3, 4]),
            record(&[0xc0, 0xff], 1, 1, &[1, 2, 3, 4]),
            record(&[0x80, 0], 1, 1, &[1, 2, 3, 4]),
        ] {
            assert_eq!(parse(&message("a", RecordType::A, 0x8180, &[bad])), Err(AnswerError::Malformed));
        }
        assert_eq!(parse(&valid[..valid.len() - 1]), Err(AnswerError::Malformed));
        // Over UDP an answer may be truncated, which it reports.
        let truncated = message("a", RecordType::A, 0x8380, &[record(OWNER, 1, 1, &[1, 2, 3, 4])]);
        let parsed = parse(&truncated[..truncated.len() - 1]).unwrap();
        assert!(parsed.truncated && parsed.data.is_empty());
        let error = parse(&message("a", RecordType::A, 0x8183, &[])).unwrap();
        assert_eq!((error.code, error.data), (3, Vec::new()));
    }

    #[test]
    fn a_name_follows_as_many_pointers_as_it_has_labels_and_no_more() {
        // Each name is a label, and a pointer to the one before.
        let chain = |names: usize, part: &[u8]| {
            let mut bytes = encode_question(ID, "a", RecordType::A);
            bytes[2..4].copy_from_slice(&0x8180_u16.to_be_bytes());
            bytes[6..8].copy_from_slice(&2_u16.to_be_bytes());
            let mut data = encoded_name("b");
            // The data begins behind the owner, the type, the class, the TTL and the length.
            let (start, mut last) = (bytes.len() + 12, bytes.len() + 12);
            for _ in 0..names {
                let name = start + data.len();
                data.extend([part, &(0xc000 | last as u16).to_be_bytes()].concat());
                last = name;
            }
            bytes.extend(record(OWNER, 16, 1, &data));
            bytes.extend(record(&(0xc000 | last as u16).to_be_bytes(), 1, 1, &[1, 2, 3, 4]));
            parse_answer(&bytes, ID, "a", RecordType::A)
        };
        // The owner itself is one more pointer.
        assert!(chain(POINTERS_MAX - 2, b"\x01x").is_ok());
        assert_eq!(chain(POINTERS_MAX, b""), Err(AnswerError::Malformed));
        assert_eq!(chain(4_000, b""), Err(AnswerError::Malformed));
    }

    #[test]
    fn names_with_impossible_bytes_match_none() {
        let odd = |label: &[u8]| [&[label.len() as u8], label, b"\x01x\0"].concat();
        for (label, name) in [(&b"a.b"[..], "a.b.x"), (b"\xe4", "\u{e4}.x"), (b"a\x1b", "a\x1b.x")] {
            let bytes = [&[0; 12][..], &odd(label)].concat();
            let position = NamePosition(12);
            assert!(!position.labels(&bytes).equals(name));
            let text = position.labels(&bytes).into_text();
            assert!(text.contains('?') && position.labels(&bytes).equals(&text), "{text}");
        }
        let bytes = [&[0; 12][..], b"\x01A\x02bC\0"].concat();
        for (name, is_equal) in [("a.bc", true), ("a.b", false), ("a.bcd", false), ("a", false), ("", false)]
        {
            assert_eq!(NamePosition(12).labels(&bytes).equals(name), is_equal, "{name}");
        }
        assert!(NamePosition(0).labels(&[0]).equals(""));
    }

    /// Any bytes yield an answer or an error, and never more records than there are.
    #[test]
    fn hostile_bytes_are_refused_and_nothing_else_happens() {
        let mut data = vec![0, 1, 0, 2, 0x1f, 0x90];
        data.extend([0xc0, 12]);
        let seeds = [
            message("a.b", RecordType::A, 0x8180, &[record(OWNER, 1, 1, &[1, 2, 3, 4])]),
            message("a.b", RecordType::Aaaa, 0x8180, &[record(OWNER, TYPE_CNAME, 1, &encoded_name("c"))]),
            message("a.b", RecordType::Srv, 0x8180, &[record(OWNER, 33, 1, &data)]),
        ];
        let mut rng = fastrand::Rng::with_seed(7);
        let mut parsed_count = 0;
        for round in 0..60_000 {
            let mut bytes = seeds[round % 3].clone();
            for _ in 0..rng.usize(1..6) {
                let at = rng.usize(..bytes.len());
                match rng.u8(..4) {
                    0 => bytes[at] = rng.u8(..),
                    1 => bytes[at] ^= 1 << rng.u8(..8),
                    2 => bytes.truncate(at.max(1)),
                    _ => bytes.insert(at, rng.u8(..)),
                }
            }
            for record_type in [RecordType::A, RecordType::Aaaa, RecordType::Srv] {
                if let Ok(parsed) = parse_answer(&bytes, ID, "a.b", record_type) {
                    parsed_count += 1;
                    assert!(parsed.data.len() * 10 <= bytes.len(), "{bytes:?}");
                }
            }
        }
        assert!(parsed_count > 1_000, "{parsed_count}");
    }
}
