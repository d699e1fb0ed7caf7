//! Properties that hold for any bytes, as functions that panic if one does not hold.
//!
//! For tests and fuzz targets only: the tests of this crate replay the corpora under `fuzz/corpus`
//! through these functions, so that a case found once stays fixed. Nothing in a product calls them.

pub mod decode;
mod h2;
mod live;

#[cfg(test)]
mod corpus_tests;
#[cfg(test)]
mod cost_tests;
#[cfg(test)]
mod hyper_peer;

pub use h2::{h2_client, h2_server, hpack};
pub use live::{event_stream, websocket};

use crate::h1::{explain_request, explain_response};
use crate::{
    BodyDecoder, Framing, HEADERS_CAP, Limits, Parsed, Refusal, RefusalKind, RequestHead, RequestKind,
    ResponseHead, Version, encode, header_slots, parse_request, parse_response,
};

/// Checks the properties of the request parser for any bytes.
///
/// - Any prefix of the bytes is incomplete, or has the same outcome as all of them.
/// - A second, independent reader rejects nothing in an accepted head, and finds no complete one in incomplete bytes.
/// - An accepted head, written again, is accepted again with the same meaning.
///
/// # Panics
/// If one of them does not hold.
pub fn request_head(bytes: &[u8]) {
    for limits in [Limits::default(), TIGHT] {
        check_prefixes(bytes, &|part| {
            let mut slots = header_slots();
            parse_outcome(parse_request(part, &limits, &mut slots))
        });
        let mut slots = header_slots();
        match parse_request(bytes, &limits, &mut slots) {
            Ok(Parsed::Complete { head, bytes: used }) => {
                assert_eq!(explain_request(without_empty_lines(&bytes[..used]), HEADERS_CAP), None);
                check_request(&head);
            }
            // No byte may follow a part of a head that no head can have.
            Ok(Parsed::Incomplete) => {
                let longer = [bytes, b"\0"].concat();
                assert_ne!(explain_request(without_empty_lines(&longer), HEADERS_CAP), None);
            }
            Err(_) => {}
        }
    }
}

fn without_empty_lines(mut bytes: &[u8]) -> &[u8] {
    while let Some(rest) = bytes.strip_prefix(b"\r\n") {
        bytes = rest;
    }
    bytes
}

/// Checks the properties of the response parser for any bytes, as [`request_head`] does.
///
/// # Panics
/// If one of them does not hold.
pub fn response_head(bytes: &[u8]) {
    for kind in [RequestKind::Head, RequestKind::Connect, RequestKind::Other] {
        for limits in [Limits::default(), TIGHT] {
            check_prefixes(bytes, &|part| {
                let mut slots = header_slots();
                parse_outcome(parse_response(part, &limits, kind, &mut slots))
            });
            let mut slots = header_slots();
            match parse_response(bytes, &limits, kind, &mut slots) {
                Ok(Parsed::Complete { head, bytes: used }) => {
                    assert_eq!(explain_response(&bytes[..used], HEADERS_CAP), None);
                    check_response(&head, kind);
                }
                Ok(Parsed::Incomplete) => {
                    assert_ne!(explain_response(&[bytes, b"\0"].concat(), HEADERS_CAP), None);
                }
                Err(_) => {}
            }
        }
    }
}

/// Checks the properties of the chunk decoder for any bytes. Content, end and refusal do not depend
/// on how the bytes are cut, and equal those of a decoder that reads complete lines. The first byte
/// seeds the cuts.
///
/// # Panics
/// If one of them does not hold.
pub fn chunked_body(bytes: &[u8]) {
    let Some((&seed, bytes)) = bytes.split_first() else {
        return;
    };
    for limits in [Limits::default(), TIGHT] {
        let full = decode_in_parts(bytes, &limits, |_| usize::MAX);
        let by_byte = decode_in_parts(bytes, &limits, |_| 1);
        assert_eq!(full, by_byte, "one byte at a time");
        let in_parts = decode_in_parts(bytes, &limits, |at| 1 + (at * 31 + usize::from(seed)) % 17);
        assert_eq!(full, in_parts, "in small parts");
        check_skip(bytes, &limits, &full, usize::from(seed));
    }
    let loose = Limits { chunk_line_bytes_max: 1 << 20, ..Limits::default() };
    let full = decode_in_parts(bytes, &loose, |_| usize::MAX);
    match (full.refusal, decode_by_lines(bytes)) {
        // Only one of the two has limits, and only one distinguishes kinds.
        (Some(_), ReferenceResult::Refused) | (Some(RefusalKind::TrailersTooLarge), _) => {}
        (Some(RefusalKind::ChunkLineTooLong | RefusalKind::ChunkExtensionsTooLarge), _) => {}
        // The decoder rejects a line at its first bad byte, the reader of lines once it is
        // complete.
        (Some(_), ReferenceResult::Incomplete) => {}
        (None, ReferenceResult::Incomplete) => assert!(!full.is_complete),
        (None, ReferenceResult::Complete { content, used }) => {
            assert_eq!((full.content, full.consumed, full.is_complete), (content, used, true));
        }
        (found, lines) => panic!("{found:?} but by lines {lines:?}"),
    }
}

/// Request of a connection, as parsed by [`accepted_requests`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedRequest {
    pub method: String,
    pub target: String,
    pub version: Version,
    pub content: Vec<u8>,
    pub is_complete: bool,
}

/// Reads a connection to its end like a server. Returns the accepted requests, up to the one that
/// ends the connection or is refused. For comparisons with another server.
pub fn accepted_requests(mut bytes: &[u8]) -> Vec<AcceptedRequest> {
    let limits = Limits::default();
    let mut requests = Vec::new();
    loop {
        let mut slots = header_slots();
        let Ok(Parsed::Complete { head, bytes: used }) = parse_request(bytes, &limits, &mut slots) else {
            return requests;
        };
        let body = decode(&bytes[used..], head.framing, &limits, |_| usize::MAX);
        requests.push(AcceptedRequest {
            method: head.method.to_owned(),
            target: head.target.to_owned(),
            version: head.version,
            content: body.content,
            is_complete: body.is_complete,
        });
        let is_tunnel = head.method == "CONNECT" || head.upgrade.is_some();
        if !body.is_complete || !head.keep_alive || is_tunnel {
            return requests;
        }
        bytes = &bytes[used + body.consumed..];
    }
}

/// Limits so small that a few bytes reach each of them.
const TIGHT: Limits = Limits {
    head_bytes_max: 96,
    headers_max: 2,
    target_bytes_max: 12,
    chunk_line_bytes_max: 12,
    chunk_extension_bytes_max: 16,
    trailer_bytes_max: 24,
    interim_responses_max: 1,
};

/// Outcome of a parse, without borrowed data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParseOutcome {
    Incomplete,
    Complete(usize),
    Refused(RefusalKind),
}

fn parse_outcome<T>(parsed: Result<Parsed<T>, Refusal>) -> ParseOutcome {
    match parsed {
        Ok(Parsed::Incomplete) => ParseOutcome::Incomplete,
        Ok(Parsed::Complete { bytes, .. }) => ParseOutcome::Complete(bytes),
        Err(refusal) => ParseOutcome::Refused(refusal.kind()),
    }
}

/// Compares the outcome of each prefix with that of the complete input.
fn check_prefixes(bytes: &[u8], parse: &impl Fn(&[u8]) -> ParseOutcome) {
    let full = parse(bytes);
    // All cuts of a short input, and a selection for a long one: the work stays bounded.
    for cut in (0..bytes.len()).step_by(1 + bytes.len() / 512) {
        let prefix = parse(&bytes[..cut]);
        match (prefix, full) {
            (ParseOutcome::Complete(_), _) => assert_eq!(prefix, full, "the first {cut} bytes"),
            (ParseOutcome::Incomplete, ParseOutcome::Complete(used)) => {
                assert!(cut < used, "incomplete at {cut} of {used}");
            }
            (ParseOutcome::Incomplete, _) => {}
            (ParseOutcome::Refused(_), _) => assert_eq!(prefix, full, "the first {cut} bytes"),
        }
    }
}

fn check_request(head: &RequestHead<'_, '_>) {
    assert_ne!(head.framing, Framing::UntilClose);
    assert!(head.version == Version::Http10 || head.host.is_some());
    assert_eq!(encode::check_method(head.method), Ok(()));
    assert_eq!(encode::check_target(head.target), Ok(()));
    check_fields(head.headers);

    let mut encoded = Vec::new();
    let fields = head.headers.iter().map(|header| (header.name, header.value));
    encode::request_head(&mut encoded, head.method, head.target, fields);
    let mut slots = header_slots();
    match parse_request(&encoded, &LOOSE, &mut slots) {
        Ok(Parsed::Complete { head: copy, bytes }) => {
            assert_eq!(bytes, encoded.len());
            assert_eq!((copy.method, copy.target), (head.method, head.target));
            assert_eq!(copy.headers, head.headers);
            assert_eq!((copy.host, copy.framing), (head.host, head.framing));
            assert!(
                head.version == Version::Http10 || RequestHead { received: head.received, ..copy } == *head
            );
        }
        // It is written as HTTP/1.1, which requires a Host.
        Err(refusal) if refusal.kind() == RefusalKind::HostMissing => {
            assert_eq!(head.version, Version::Http10);
        }
        other => panic!("written again: {other:?}"),
    }
}

fn check_response(head: &ResponseHead<'_, '_>, kind: RequestKind) {
    assert!((100..=999).contains(&head.status));
    assert!(!(head.is_informational() && head.is_switching_protocols()));
    assert!(head.status >= 200 || (head.framing == Framing::None && head.keep_alive));
    assert!(head.framing != Framing::UntilClose || !head.keep_alive);
    assert!(kind != RequestKind::Head || head.framing == Framing::None);
    check_fields(head.headers);

    let mut encoded = Vec::new();
    encode::status_line(&mut encoded, head.version, head.status);
    for header in head.headers {
        encode::field(&mut encoded, header.name, header.value);
    }
    encode::end_of_head(&mut encoded);
    let mut slots = header_slots();
    match parse_response(&encoded, &LOOSE, kind, &mut slots) {
        Ok(Parsed::Complete { head: copy, bytes }) => {
            assert_eq!(bytes, encoded.len());
            assert_eq!(ResponseHead { reason: head.reason, received: head.received, ..copy }, *head);
        }
        other => panic!("written again: {other:?}"),
    }
}

/// Limits for rewritten heads, which have our reason phrase and a space after each colon, and so
/// may be longer.
const LOOSE: Limits = Limits {
    head_bytes_max: 1 << 20,
    headers_max: HEADERS_CAP,
    target_bytes_max: 1 << 20,
    chunk_line_bytes_max: 1 << 20,
    chunk_extension_bytes_max: 1 << 20,
    trailer_bytes_max: 1 << 20,
    interim_responses_max: u32::MAX,
};

fn check_fields(headers: &[crate::Header<'_>]) {
    for header in headers {
        assert_eq!(encode::check_field_name(header.name), Ok(()));
        assert_eq!(encode::check_field_value(header.value), Ok(()));
        assert_eq!(header.value.trim_ascii(), header.value);
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct DecodedBody {
    content: Vec<u8>,
    consumed: usize,
    is_complete: bool,
    trailers: Vec<u8>,
    refusal: Option<RefusalKind>,
}

fn decode_in_parts(bytes: &[u8], limits: &Limits, part_len: impl Fn(usize) -> usize) -> DecodedBody {
    let mut body = decode(bytes, Framing::Chunked, limits, part_len);
    if body.refusal.is_some() {
        // Content before a refusal may be lost, depending on the cuts, as documented.
        body.content.clear();
        body.consumed = 0;
    }
    body
}

fn decode(bytes: &[u8], framing: Framing, limits: &Limits, part_len: impl Fn(usize) -> usize) -> DecodedBody {
    let mut decoder = BodyDecoder::new(framing, limits);
    let mut body = DecodedBody {
        content: Vec::new(),
        consumed: 0,
        is_complete: decoder.is_done(),
        trailers: Vec::new(),
        refusal: None,
    };
    while !body.is_complete && body.consumed < bytes.len() {
        let rest = &bytes[body.consumed..];
        let input = &rest[..part_len(body.consumed).min(rest.len())];
        match decoder.decode(input) {
            Ok(step) => {
                assert!(step.consumed > 0, "no progress at {}", body.consumed);
                assert!(step.data.end <= step.consumed);
                body.content.extend_from_slice(&input[step.data]);
                body.consumed += step.consumed;
                body.is_complete = step.end;
            }
            Err(refusal) => {
                assert_eq!(decoder.decode(rest), Err(refusal), "a refusal stays");
                assert_eq!(decoder.handle_eof(), Err(refusal), "a refusal stays");
                body.refusal = Some(refusal.kind());
                return body;
            }
        }
    }
    assert_eq!(decoder.is_done(), body.is_complete);
    body.trailers = decoder.trailers().to_vec();
    if !body.is_complete {
        let eof_kind = decoder.handle_eof().map_err(|refusal| refusal.kind());
        assert_eq!(eof_kind, Err(RefusalKind::Truncated));
    }
    body
}

/// Checks that skipping equals decoding without the content.
fn check_skip(bytes: &[u8], limits: &Limits, full: &DecodedBody, seed: usize) {
    let mut decoder = BodyDecoder::new(Framing::Chunked, limits);
    let (first, second) = bytes.split_at(seed.min(bytes.len()));
    let skipped = decoder.skip(first).and_then(|first_result| {
        let second_result = decoder.skip(second)?;
        Ok((
            first_result.consumed + second_result.consumed,
            first_result.data_bytes + second_result.data_bytes,
            second_result.end,
        ))
    });
    match skipped {
        Ok(counts) => {
            let expected = (full.consumed, full.content.len() as u64, full.is_complete);
            assert_eq!((counts, None), (expected, full.refusal));
        }
        Err(refusal) => assert_eq!(Some(refusal.kind()), full.refusal),
    }
}

/// Result of a decoder that reads complete lines of a chunked body and has no limits.
#[derive(Debug)]
enum ReferenceResult {
    Incomplete,
    Refused,
    Complete { content: Vec<u8>, used: usize },
}

fn decode_by_lines(bytes: &[u8]) -> ReferenceResult {
    let mut content = Vec::new();
    let mut offset = 0;
    loop {
        let Some(line) = next_line(&bytes[offset..]) else {
            return ReferenceResult::Incomplete;
        };
        offset += line.len();
        let Some(size) = chunk_size(line) else {
            return ReferenceResult::Refused;
        };
        if size == 0 {
            break;
        }
        let Some(end) = usize::try_from(size).ok().and_then(|size| offset.checked_add(size)) else {
            return ReferenceResult::Incomplete;
        };
        let Some(data) = bytes.get(offset..end) else {
            return ReferenceResult::Incomplete;
        };
        content.extend_from_slice(data);
        match bytes.get(end..end + 2) {
            None => return ReferenceResult::Incomplete,
            Some(b"\r\n") => offset = end + 2,
            Some(_) => return ReferenceResult::Refused,
        }
    }
    loop {
        let Some(line) = next_line(&bytes[offset..]) else {
            return ReferenceResult::Incomplete;
        };
        offset += line.len();
        if line == b"\r\n" {
            return ReferenceResult::Complete { content, used: offset };
        }
        if !is_trailer(line) {
            return ReferenceResult::Refused;
        }
    }
}

fn next_line(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().position(|&byte| byte == b'\n')?;
    Some(&bytes[..=end])
}

fn chunk_size(line: &[u8]) -> Option<u64> {
    let line = line.strip_suffix(b"\r\n")?;
    let (size, extension) = match line.iter().position(|&byte| byte == b';') {
        Some(at) => {
            let blank = |byte: &u8| b" \t".contains(byte);
            let end = line[..at].iter().rposition(|byte| !blank(byte)).map_or(0, |last| last + 1);
            (&line[..end], Some(&line[at + 1..]))
        }
        None => (line, None),
    };
    let is_hex = size.iter().all(u8::is_ascii_hexdigit);
    let is_valid_extension = extension.is_none_or(|extension| {
        extension.iter().all(|&byte| byte == b'\t' || !byte.is_ascii_control())
            && are_valid_extensions(extension)
    });
    let size = std::str::from_utf8(size).ok()?;
    if is_hex && is_valid_extension { u64::from_str_radix(size, 16).ok() } else { None }
}

/// Returns whether a text is chunk extensions, without the first `;`: split at semicolons and
/// equals signs outside of quotes.
fn are_valid_extensions(text: &[u8]) -> bool {
    let is_token = |text: &[u8]| {
        let is_token_byte = |byte: &u8| byte.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(byte);
        !text.is_empty() && text.iter().all(is_token_byte)
    };
    let mut rest = text;
    loop {
        rest = rest.trim_ascii_start();
        let name_end = rest.iter().position(|byte| b"=; \t".contains(byte)).unwrap_or(rest.len());
        if !is_token(&rest[..name_end]) {
            return false;
        }
        let mut after_name = &rest[name_end..];
        if let Some(value) = after_name.trim_ascii_start().strip_prefix(b"=") {
            let value = value.trim_ascii_start();
            let end = if value.starts_with(b"\"") {
                let mut at = 1;
                while value.get(at).is_some_and(|&byte| byte != b'"') {
                    at += if value[at] == b'\\' { 2 } else { 1 };
                }
                at + 1
            } else {
                let end = value.iter().position(|byte| b"; \t".contains(byte));
                let end = end.unwrap_or(value.len());
                if !is_token(&value[..end]) {
                    return false;
                }
                end
            };
            let Some(after) = value.get(end..) else { return false };
            after_name = after;
        }
        match after_name.trim_ascii_start() {
            // Blanks are only allowed before a semicolon.
            [] => return after_name.is_empty(),
            [b';', after @ ..] => rest = after,
            _ => return false,
        }
    }
}

/// Returns whether a line with its end is a field line that a trailer section may have.
fn is_trailer(line: &[u8]) -> bool {
    let Some(line) = line.strip_suffix(b"\r\n") else { return false };
    let mut parts = line.splitn(2, |&byte| byte == b':');
    let (Some(name), Some(value)) = (parts.next(), parts.next()) else { return false };
    let is_name_byte = |byte: &u8| byte.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(byte);
    let is_name = !name.is_empty() && name.iter().all(is_name_byte);
    let is_value = value.iter().all(|&byte| byte == b'\t' || !byte.is_ascii_control());
    let is_forbidden =
        [&b"transfer-encoding"[..], b"host"].iter().any(|other| name.eq_ignore_ascii_case(other));
    is_name && is_value && !is_forbidden
}
