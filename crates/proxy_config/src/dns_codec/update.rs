//! Messages for changes of a zone: dynamic updates of TXT records (RFC 2136), the questions about the zone
//! and its records, and their responses. No I/O. `tsig` has the signatures.

use super::message::MessageReader;

const CLASS_IN: u16 = 1;
const CLASS_NONE: u16 = 254;
const OPCODE_UPDATE: u16 = 5;
/// Maximum number of records of a response that are parsed.
const RECORDS_MAX: usize = 1_024;
/// Maximum length of a character string in a TXT record.
const STRING_BYTES_MAX: usize = 255;

/// Types of records in questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneRecordType {
    Ns = 2,
    Soa = 6,
    Txt = 16,
}

/// Change of one TXT record. Other records of the name stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxtChange<'a> {
    pub name: &'a str,
    pub value: &'a str,
    pub kind: ChangeKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Add { ttl_s: u32 },
    Remove,
}

/// A name or a value that does not fit into a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is too long for DNS")]
pub struct TooLong(Box<str>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZoneRecord {
    Soa,
    /// Name server of the zone.
    Ns(Box<str>),
    /// All character strings, joined.
    Txt(Vec<u8>),
}

/// Response of a name server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneResponse {
    /// RCODE.
    pub code: u8,
    /// Owners and contents of the records of the first two sections; those of other types are left out.
    pub records: Vec<(Box<str>, ZoneRecord)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResponseError {
    #[error("the response has another ID than the request")]
    OtherId,
    #[error("the response is malformed")]
    Malformed,
}

/// Returns the meaning of an RCODE of a response (RFC 2136 §2.2).
pub fn describe_code(code: u8) -> &'static str {
    match code {
        1 => "the server cannot read the request (FORMERR)",
        2 => "the server failed (SERVFAIL)",
        3 => "the name does not exist (NXDOMAIN)",
        4 => "the server does not support updates (NOTIMP)",
        5 => {
            "the server refuses the request (REFUSED): allow the key to change the name (allow-update, update-policy)"
        }
        6..=8 => "the zone has other records than expected",
        9 => "the server is not authoritative for the zone, or does not accept the key (NOTAUTH)",
        10 => "the name is not in the zone (NOTZONE): check zone",
        _ => "the server responded with an unknown error",
    }
}

/// Encodes an update of a zone.
///
/// # Errors
/// A name or the value is too long.
pub fn encode_update(id: u16, zone: &str, change: TxtChange<'_>) -> Result<Vec<u8>, TooLong> {
    let mut bytes = Vec::new();
    push_u16s(&mut bytes, &[id, OPCODE_UPDATE << 11, 1, 0, 1, 0]);
    push_name(&mut bytes, zone)?;
    push_u16s(&mut bytes, &[ZoneRecordType::Soa as u16, CLASS_IN]);
    push_name(&mut bytes, change.name)?;
    // A removal names the record in class NONE, with TTL 0 (RFC 2136 §2.5.4).
    let (class, ttl_s) = match change.kind {
        ChangeKind::Add { ttl_s } => (CLASS_IN, ttl_s),
        ChangeKind::Remove => (CLASS_NONE, 0),
    };
    push_u16s(&mut bytes, &[ZoneRecordType::Txt as u16, class]);
    bytes.extend_from_slice(&ttl_s.to_be_bytes());
    let value = change.value.as_bytes();
    if value.len() > STRING_BYTES_MAX {
        return Err(TooLong(change.value.into()));
    }
    push_u16s(&mut bytes, &[value.len() as u16 + 1]);
    bytes.push(value.len() as u8);
    bytes.extend_from_slice(value);
    Ok(bytes)
}

/// Encodes a question without recursion: the server itself shall know the answer.
///
/// # Errors
/// The name is too long.
pub fn encode_zone_question(id: u16, name: &str, record_type: ZoneRecordType) -> Result<Vec<u8>, TooLong> {
    encode_question(id, name, record_type, 0)
}

/// Encodes a question with recursion, for a resolver.
///
/// # Errors
/// The name is too long.
pub fn encode_recursive_question(
    id: u16,
    name: &str,
    record_type: ZoneRecordType,
) -> Result<Vec<u8>, TooLong> {
    const RECURSION_DESIRED: u16 = 0x0100;
    encode_question(id, name, record_type, RECURSION_DESIRED)
}

fn encode_question(id: u16, name: &str, record_type: ZoneRecordType, flags: u16) -> Result<Vec<u8>, TooLong> {
    let mut bytes = Vec::new();
    push_u16s(&mut bytes, &[id, flags, 1, 0, 0, 0]);
    push_name(&mut bytes, name)?;
    push_u16s(&mut bytes, &[record_type as u16, CLASS_IN]);
    Ok(bytes)
}

/// Parses the response to a request with this ID.
///
/// # Errors
/// It has another ID, or is malformed.
pub fn parse_response(bytes: &[u8], id: u16) -> Result<ZoneResponse, ResponseError> {
    let mut reader = MessageReader::new(bytes);
    let [response_id, flags, questions, answers, authorities, _] =
        reader.read_u16s().ok_or(ResponseError::Malformed)?;
    if response_id != id || flags & 0x8000 == 0 {
        return Err(ResponseError::OtherId);
    }
    let mut parse = || {
        for _ in 0..questions {
            reader.skip_name()?;
            let [_kind, _class] = reader.read_u16s()?;
        }
        let mut records = Vec::new();
        for _ in 0..(usize::from(answers) + usize::from(authorities)).min(RECORDS_MAX) {
            records.extend(read_record(&mut reader)?);
        }
        Some(records)
    };
    let records = parse().ok_or(ResponseError::Malformed)?;
    Ok(ZoneResponse { code: (flags & 0xf) as u8, records })
}

/// Reads a record. `Some(None)`: one of another type.
fn read_record(reader: &mut MessageReader<'_>) -> Option<Option<(Box<str>, ZoneRecord)>> {
    let owner = reader.skip_name()?;
    let [kind, class, _, _, length] = reader.read_u16s()?;
    let content_start = reader.position();
    let content = reader.take(usize::from(length))?;
    let record = match kind {
        _ if class != CLASS_IN => return Some(None),
        kind if kind == ZoneRecordType::Soa as u16 => ZoneRecord::Soa,
        kind if kind == ZoneRecordType::Txt as u16 => ZoneRecord::Txt(join_strings(content)?),
        kind if kind == ZoneRecordType::Ns as u16 => {
            let name = reader.name_at(content_start)?;
            // Behind the name, not at its end.
            ZoneRecord::Ns(reader.text_of(name))
        }
        _ => return Some(None),
    };
    Some(Some((reader.text_of(owner), record)))
}

fn join_strings(mut content: &[u8]) -> Option<Vec<u8>> {
    let mut joined = Vec::new();
    while let Some((&length, rest)) = content.split_first() {
        let (string, after) = rest.split_at_checked(usize::from(length))?;
        joined.extend_from_slice(string);
        content = after;
    }
    Some(joined)
}

/// Appends a name in lower case, without compression.
pub(super) fn push_name(bytes: &mut Vec<u8>, name: &str) -> Result<(), TooLong> {
    const LABEL_BYTES_MAX: usize = 63;
    const NAME_BYTES_MAX: usize = 255;
    let start = bytes.len();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        if label.len() > LABEL_BYTES_MAX {
            return Err(TooLong(name.into()));
        }
        bytes.push(label.len() as u8);
        bytes.extend(label.bytes().map(|byte| byte.to_ascii_lowercase()));
    }
    bytes.push(0);
    match bytes.len() - start <= NAME_BYTES_MAX {
        true => Ok(()),
        false => Err(TooLong(name.into())),
    }
}

pub(super) fn push_u16s(bytes: &mut Vec<u8>, words: &[u16]) {
    words.iter().for_each(|word| bytes.extend_from_slice(&word.to_be_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a response to `question` with these records behind it.
    fn response(question: &[u8], code: u16, sections: [u16; 3], records: &[&[u8]]) -> Vec<u8> {
        let mut bytes = question.to_vec();
        bytes[2..4].copy_from_slice(&(0x8400 | code).to_be_bytes());
        for (at, count) in [6, 8, 10].into_iter().zip(sections) {
            bytes[at..at + 2].copy_from_slice(&count.to_be_bytes());
        }
        bytes.extend(records.concat());
        bytes
    }

    fn record(kind: u16, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0xc0, 12];
        push_u16s(&mut bytes, &[kind, CLASS_IN, 0, 60, content.len() as u16]);
        bytes.extend_from_slice(content);
        bytes
    }

    #[test]
    fn an_update_adds_or_removes_one_record() {
        let change = |kind| TxtChange { name: "_acme-challenge.A.test", value: "xyz", kind };
        let add = encode_update(0x1234, "a.test", change(ChangeKind::Add { ttl_s: 60 })).unwrap();
        let expected = b"\x12\x34\x28\0\0\x01\0\0\0\x01\0\0\x01a\x04test\0\0\x06\0\x01\
                         \x0f_acme-challenge\x01a\x04test\0\0\x10\0\x01\0\0\0\x3c\0\x04\x03xyz";
        assert_eq!(add, expected);
        let remove = encode_update(0x1234, "a.test.", change(ChangeKind::Remove)).unwrap();
        assert!(remove.ends_with(b"\0\x10\0\xfe\0\0\0\0\0\x04\x03xyz"), "{remove:?}");
    }

    #[test]
    fn what_does_not_fit_into_a_message_is_an_error() {
        let label = "a".repeat(64);
        assert!(encode_zone_question(1, &label, ZoneRecordType::Soa).is_err());
        let long = vec!["a".repeat(60); 5].join(".");
        assert!(
            encode_zone_question(1, &long, ZoneRecordType::Soa).unwrap_err().to_string().contains("too long")
        );
        let value = "x".repeat(256);
        let change = TxtChange { name: "a", value: &value, kind: ChangeKind::Remove };
        assert!(encode_update(1, "a", change).is_err());
    }

    #[test]
    fn records_of_a_response_are_those_of_the_zone() {
        let question = encode_zone_question(7, "a.test", ZoneRecordType::Txt).unwrap();
        let records = [
            record(16, b"\x02ab\x01c"),
            record(2, b"\x02ns\xc0\x0c"),
            record(1, &[127, 0, 0, 1]),
            record(6, b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
        ];
        let all: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        let bytes = response(&question, 0, [3, 1, 0], &all);
        let parsed = parse_response(&bytes, 7).unwrap();
        let owner: Box<str> = "a.test".into();
        let expected = vec![
            (owner.clone(), ZoneRecord::Txt(b"abc".to_vec())),
            (owner.clone(), ZoneRecord::Ns("ns.a.test".into())),
            (owner, ZoneRecord::Soa),
        ];
        assert_eq!((parsed.code, parsed.records), (0, expected));
        assert_eq!(parse_response(&bytes, 8), Err(ResponseError::OtherId));
        for end in 0..bytes.len() {
            assert!(parse_response(&bytes[..end], 7).is_err(), "{end}");
        }
        assert_eq!(parse_response(&question, 7), Err(ResponseError::OtherId), "a question");
        let bad_string = record(16, b"\x05ab");
        assert_eq!(
            parse_response(&response(&question, 0, [1, 0, 0], &[&bad_string]), 7),
            Err(ResponseError::Malformed)
        );
        let error = response(&question, 5, [0; 3], &[]);
        assert_eq!(parse_response(&error, 7).unwrap().code, 5);
        let codes: Vec<&str> = (1..=11).map(describe_code).collect();
        assert!(codes[4].contains("REFUSED") && codes[8].contains("NOTAUTH") && codes[9].contains("zone"));
    }
}
