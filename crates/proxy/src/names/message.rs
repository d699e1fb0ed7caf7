//! Messages of DNS (RFC 1035): a question written, an answer read strictly. Pure. Only what servers'
//! names need: A, AAAA, SRV, and aliases on the way to them.

use std::net::IpAddr;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    A = 1,
    Aaaa = 28,
    Srv = 33,
}

/// What an answer has for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    Address(IpAddr),
    Service { priority: u16, weight: u16, port: u16, target: Box<str> },
}

/// An answer to a question of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// RCODE: 0 is fine, 3 is "no such name".
    pub(crate) code: u8,
    /// Whether there is more, to be asked for over TCP.
    pub(crate) truncated: bool,
    pub(crate) data: Vec<Data>,
    /// The shortest of all records on the way; 0 when there is no data.
    pub(crate) ttl_s: u32,
}

/// Why bytes are no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// They answer another question, or none: the right answer may still come.
    NotOurs,
    /// They are broken.
    Malformed,
}

const CLASS_IN: u16 = 1;
const TYPE_CNAME: u16 = 5;
const HEADER_BYTES: usize = 12;
/// Bytes of a name with its lengths (RFC 1035 §2.3.4).
const NAME_BYTES_MAX: usize = 255;
/// Aliases that are followed.
const ALIASES_MAX: usize = 8;
/// Records of an answer that are looked at.
const RECORDS_MAX: usize = 1_024;

/// A question. `name` is as the config has it: its labels are short enough.
pub(crate) fn question(id: u16, name: &str, wanted: Type) -> Vec<u8> {
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
    bytes.extend_from_slice(&(wanted as u16).to_be_bytes());
    bytes.extend_from_slice(&CLASS_IN.to_be_bytes());
    bytes
}

/// A name with the case of its letters by chance, a bit of `bits` each, which are used again when
/// there are more: a nameserver repeats it, and who makes up an answer has to guess it.
pub(crate) fn spelt(name: &str, bits: [u8; 6]) -> String {
    let bit = |at: usize| bits[at / 8 % bits.len()] >> (at % 8) & 1 == 1;
    let letters = name.chars().enumerate();
    letters.map(|(at, letter)| if bit(at) { letter.to_ascii_uppercase() } else { letter }).collect()
}

/// Whether an answer repeats the question byte by byte, or has none.
pub(crate) fn repeats(answer: &[u8], question: &[u8]) -> bool {
    let has_none = answer.get(4..6) == Some(&[0, 0]);
    let asked = &question[HEADER_BYTES.min(question.len())..];
    has_none || answer.get(HEADER_BYTES..).is_some_and(|rest| rest.starts_with(asked))
}

/// Reads the answer to [`question`] of the same `id`, `name` and type.
pub(crate) fn answer(bytes: &[u8], id: u16, name: &str, wanted: Type) -> Result<Answer, Wrong> {
    let mut reader = Reader { bytes, at: 0 };
    let header: [u16; 6] = reader.words().ok_or(Wrong::NotOurs)?;
    let [its_id, flags, questions, answers, ..] = header;
    // A response to a standard query.
    if its_id != id || flags & 0xf800 != 0x8000 {
        return Err(Wrong::NotOurs);
    }
    let code = (flags & 0xf) as u8;
    let truncated = flags & 0x0200 != 0;
    if questions != 1 {
        // Some leave the question out of an error.
        let is_error = questions == 0 && code != 0;
        let empty = Answer { code, truncated, data: Vec::new(), ttl_s: 0 };
        return if is_error { Ok(empty) } else { Err(Wrong::NotOurs) };
    }
    let asked = reader.name().ok_or(Wrong::Malformed)?;
    let [kind, class] = reader.words().ok_or(Wrong::Malformed)?;
    if *asked != *name || kind != wanted as u16 || class != CLASS_IN {
        return Err(Wrong::NotOurs);
    }
    let mut records = Vec::new();
    for _ in 0..usize::from(answers).min(RECORDS_MAX) {
        match reader.record(wanted) {
            Some(record) => records.extend(record),
            // The last record may be cut.
            None if truncated => break,
            None => return Err(Wrong::Malformed),
        }
    }
    let (data, ttl_s) = follow(&records, name);
    Ok(Answer { code, truncated, data, ttl_s })
}

/// A record that matters: whose, for how long, and what.
struct Record {
    owner: Box<str>,
    ttl_s: u32,
    content: Content,
}

enum Content {
    Alias(Box<str>),
    Data(Data),
}

/// What `name`, or what it is an alias of, has.
fn follow(records: &[Record], name: &str) -> (Vec<Data>, u32) {
    let (mut name, mut ttl_s) = (name, u32::MAX);
    for _ in 0..=ALIASES_MAX {
        let own = records.iter().filter(|record| *record.owner == *name);
        let mut data = Vec::new();
        let mut alias = None;
        for record in own {
            match &record.content {
                Content::Data(one) => data.push(one.clone()),
                Content::Alias(to) => alias = Some(&**to),
            }
            ttl_s = ttl_s.min(record.ttl_s);
        }
        match alias {
            _ if !data.is_empty() => return (data, ttl_s),
            Some(to) => name = to,
            None => break,
        }
    }
    (Vec::new(), 0)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    fn words<const N: usize>(&mut self) -> Option<[u16; N]> {
        let bytes = self.take(2 * N)?;
        Some(std::array::from_fn(|at| u16::from_be_bytes([bytes[2 * at], bytes[2 * at + 1]])))
    }

    /// A name in lower case, without the dot at its end. A pointer has to lead to before what points
    /// there, so that this ends.
    fn name(&mut self) -> Option<Box<str>> {
        let (mut at, mut end, mut before) = (self.at, None, self.at);
        let mut name = String::new();
        let mut whole = 1;
        loop {
            let length = usize::from(*self.bytes.get(at)?);
            match length >> 6 {
                0 if length == 0 => {
                    self.at = end.unwrap_or(at + 1);
                    return Some(name.into());
                }
                0 => {
                    let label = self.bytes.get(at + 1..at + 1 + length)?;
                    whole += 1 + length;
                    if whole > NAME_BYTES_MAX {
                        return None;
                    }
                    if !name.is_empty() {
                        name.push('.');
                    }
                    // A byte that no name of ours has stays one that none of ours is.
                    let plain = |byte: &u8| match byte {
                        b'.' => '\u{fffd}',
                        byte => char::from(byte.to_ascii_lowercase()),
                    };
                    name.extend(label.iter().map(plain));
                    at += 1 + length;
                }
                3 => {
                    let low = usize::from(*self.bytes.get(at + 1)?);
                    let to = (length & 0x3f) << 8 | low;
                    if to >= before {
                        return None;
                    }
                    end = end.or(Some(at + 2));
                    (at, before) = (to, to);
                }
                _ => return None,
            }
        }
    }

    /// `Some(None)`: a record that does not matter.
    fn record(&mut self, wanted: Type) -> Option<Option<Record>> {
        let owner = self.name()?;
        let [kind, class, ttl_high, ttl_low, length] = self.words()?;
        let start = self.at;
        let end = start.checked_add(usize::from(length))?;
        self.bytes.get(start..end)?;
        let content = match kind {
            _ if class != CLASS_IN => None,
            TYPE_CNAME => Some(Content::Alias(self.name()?)),
            kind if kind == wanted as u16 => Some(Content::Data(self.data(wanted, length)?)),
            _ => None,
        };
        // What was read has to be what the record has.
        if content.is_some() && self.at != end {
            return None;
        }
        self.at = end;
        let ttl_s = u32::from(ttl_high) << 16 | u32::from(ttl_low);
        // A TTL with its highest bit set is none (RFC 2181 §8).
        let ttl_s = if ttl_s > i32::MAX as u32 { 0 } else { ttl_s };
        Some(content.map(|content| Record { owner, ttl_s, content }))
    }

    fn data(&mut self, wanted: Type, length: u16) -> Option<Data> {
        match (wanted, length) {
            (Type::A, 4) => {
                let bytes: [u8; 4] = self.take(4)?.try_into().ok()?;
                Some(Data::Address(IpAddr::from(bytes)))
            }
            (Type::Aaaa, 16) => {
                let bytes: [u8; 16] = self.take(16)?.try_into().ok()?;
                Some(Data::Address(IpAddr::from(bytes)))
            }
            (Type::Srv, _) => {
                let [priority, weight, port] = self.words()?;
                Some(Data::Service { priority, weight, port, target: self.name()? })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: u16 = 0x1234;

    fn encoded(name: &str) -> Vec<u8> {
        let whole = question(0, name, Type::A);
        whole[HEADER_BYTES..whole.len() - 4].to_vec()
    }

    fn record(owner: &[u8], kind: u16, ttl_s: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = owner.to_vec();
        bytes.extend([kind.to_be_bytes(), CLASS_IN.to_be_bytes()].concat());
        bytes.extend(ttl_s.to_be_bytes());
        bytes.extend((data.len() as u16).to_be_bytes());
        bytes.extend(data);
        bytes
    }

    fn message(name: &str, wanted: Type, flags: u16, records: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = question(ID, name, wanted);
        bytes[2..4].copy_from_slice(&flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&(records.len() as u16).to_be_bytes());
        bytes.extend(records.concat());
        bytes
    }

    /// The question's own name.
    const OWNER: &[u8] = &[0xc0, 12];

    #[test]
    fn a_question_is_a_question() {
        let bytes = question(ID, "a.bc", Type::Srv);
        let wanted = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\x02bc\0\0\x21\0\x01";
        assert_eq!(bytes, wanted);
    }

    #[test]
    fn addresses_come_with_the_shortest_ttl() {
        let records = [
            record(OWNER, 1, 60, &[10, 0, 0, 1]),
            record(OWNER, 16, 1, b"\x03txt"),
            record(&encoded("other"), 1, 2, &[10, 0, 0, 9]),
            record(OWNER, 1, 30, &[10, 0, 0, 2]),
        ];
        let bytes = message("app.internal", Type::A, 0x8180, &records);
        let found = answer(&bytes, ID, "app.internal", Type::A).unwrap();
        let address = |last| Data::Address(IpAddr::from([10, 0, 0, last]));
        assert_eq!(found.data, [address(1), address(2)]);
        assert_eq!((found.code, found.truncated, found.ttl_s), (0, false, 30));
    }

    #[test]
    fn aliases_are_followed_and_circles_end() {
        let records = [
            record(&encoded("B"), 28, 9, &[0xfe; 16]),
            record(OWNER, TYPE_CNAME, 5, &encoded("b")),
        ];
        let bytes = message("a", Type::Aaaa, 0x8180, &records);
        let found = answer(&bytes, ID, "a", Type::Aaaa).unwrap();
        assert_eq!((found.data.len(), found.ttl_s), (1, 5));
        let circle = [
            record(OWNER, TYPE_CNAME, 5, &encoded("b")),
            record(&encoded("b"), TYPE_CNAME, 5, &encoded("a")),
        ];
        let bytes = message("a", Type::A, 0x8180, &circle);
        assert_eq!(answer(&bytes, ID, "a", Type::A).unwrap().data, []);
    }

    #[test]
    fn a_service_has_priority_weight_and_port() {
        let mut data = vec![0, 1, 0, 2, 0x1f, 0x90];
        data.extend(encoded("H.x"));
        let bytes = message("_s._tcp.x", Type::Srv, 0x8180, &[record(OWNER, 33, 7, &data)]);
        let found = answer(&bytes, ID, "_s._tcp.x", Type::Srv).unwrap();
        let target = "h.x".into();
        let service = Data::Service { priority: 1, weight: 2, port: 8080, target };
        assert_eq!(found.data, [service]);
    }

    #[test]
    fn what_is_not_ours_is_told_from_what_is_broken() {
        let fine = message("a", Type::A, 0x8180, &[record(OWNER, 1, 1, &[1, 2, 3, 4])]);
        let parse = |bytes: &[u8]| answer(bytes, ID, "a", Type::A);
        assert!(parse(&fine).is_ok());
        assert_eq!(answer(&fine, 1, "a", Type::A), Err(Wrong::NotOurs));
        assert_eq!(answer(&fine, ID, "b", Type::A), Err(Wrong::NotOurs));
        assert_eq!(answer(&fine, ID, "a", Type::Aaaa), Err(Wrong::NotOurs));
        let question = message("a", Type::A, 0x0100, &[]);
        assert_eq!(parse(&question), Err(Wrong::NotOurs));
        // A record of a wrong length, an address that is cut, a pointer forward and one to itself.
        for bad in [
            record(OWNER, 1, 1, &[1, 2, 3]),
            record(OWNER, 1, 1, &[1, 2, 3, 4, 5]),
            record(&[0xc0, 19], 1, 1, &[1, 2, 3, 4]),
            record(&[0xc0, 0xff], 1, 1, &[1, 2, 3, 4]),
            record(&[0x80, 0], 1, 1, &[1, 2, 3, 4]),
        ] {
            assert_eq!(parse(&message("a", Type::A, 0x8180, &[bad])), Err(Wrong::Malformed));
        }
        assert_eq!(parse(&fine[..fine.len() - 1]), Err(Wrong::Malformed));
        // Over UDP an answer may be cut, which it says.
        let cut = message("a", Type::A, 0x8380, &[record(OWNER, 1, 1, &[1, 2, 3, 4])]);
        let found = parse(&cut[..cut.len() - 1]).unwrap();
        assert!(found.truncated && found.data.is_empty());
        let error = parse(&message("a", Type::A, 0x8183, &[])).unwrap();
        assert_eq!((error.code, error.data), (3, Vec::new()));
    }

    /// Any bytes give an answer or a reason, and never more records than there are.
    #[test]
    fn hostile_bytes_are_refused_and_nothing_else_happens() {
        let mut data = vec![0, 1, 0, 2, 0x1f, 0x90];
        data.extend([0xc0, 12]);
        let seeds = [
            message("a.b", Type::A, 0x8180, &[record(OWNER, 1, 1, &[1, 2, 3, 4])]),
            message("a.b", Type::Aaaa, 0x8180, &[record(OWNER, TYPE_CNAME, 1, &encoded("c"))]),
            message("a.b", Type::Srv, 0x8180, &[record(OWNER, 33, 1, &data)]),
        ];
        let mut rng = fastrand::Rng::with_seed(7);
        let mut read = 0;
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
            for wanted in [Type::A, Type::Aaaa, Type::Srv] {
                if let Ok(found) = answer(&bytes, ID, "a.b", wanted) {
                    read += 1;
                    assert!(found.data.len() * 10 <= bytes.len(), "{bytes:?}");
                }
            }
        }
        assert!(read > 1_000, "{read}");
    }
}
