//! Frames as bytes, complete and split at every position.

use super::*;
use crate::{Limits, Parsed, RequestKind, header_slots, parse_response};

const LIMIT: u64 = 70_000;

/// Reads bytes in pieces. Returns the received items as text, the last one the fault, if there is one.
fn read_pieces(role: Role, bytes: &[u8], pieces: impl IntoIterator<Item = usize>) -> Vec<String> {
    let mut reader = MessageReader::new(role, LIMIT);
    let (mut all, mut from) = (Vec::new(), 0);
    for to in pieces.into_iter().chain([bytes.len()]) {
        let mut input = &bytes[from..to];
        loop {
            match reader.read(&mut input) {
                Ok(Some(Received::Message { is_binary, content })) => {
                    let kind = if is_binary { "binary" } else { "text" };
                    let shown = match content.len() {
                        0..=40 => content.escape_ascii().to_string(),
                        length => format!("{length} bytes"),
                    };
                    all.push(format!("{kind} {shown}"));
                }
                Ok(Some(other)) => all.push(format!("{other:?}")),
                Ok(None) => break,
                Err(fault) => {
                    all.push(format!("fault {fault}"));
                    return all;
                }
            }
        }
        from = to;
    }
    all
}

fn read(role: Role, bytes: &[u8]) -> Vec<String> {
    let unsplit = read_pieces(role, bytes, []);
    for split in 0..bytes.len().min(400) {
        assert_eq!(read_pieces(role, bytes, [split]), unsplit, "split at {split}");
    }
    assert_eq!(read_pieces(role, bytes, 0..bytes.len()), unsplit, "byte by byte");
    unsplit
}

#[test]
fn the_examples_of_the_standard() {
    // RFC 6455 §5.7.
    assert_eq!(read(Role::Client, b"\x81\x05Hello"), ["text Hello"]);
    assert_eq!(read(Role::Server, b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58"), ["text Hello"]);
    assert_eq!(read(Role::Client, b"\x01\x03Hel\x80\x02lo"), ["text Hello"]);
    assert_eq!(read(Role::Client, b"\x89\x05Hello"), ["Ping([72, 101, 108, 108, 111])"]);
    let large = [&b"\x82\x7e\x01\x00"[..], &[1; 256]].concat();
    assert_eq!(read(Role::Client, &large), ["binary 256 bytes"]);
    let larger = [&b"\x82\x7f\0\0\0\0\0\x01\0\0"[..], &[1; 65536]].concat();
    assert_eq!(read_pieces(Role::Client, &larger, [9, 10, 11, 40_000]), ["binary 65536 bytes"]);
}

#[test]
fn control_frames_may_be_between_fragments() {
    let bytes = b"\x01\x02ab\x89\x01p\x00\x00\x8a\x00\x80\x01c\x88\x02\x03\xe9\x81\x01x";
    assert_eq!(read(Role::Client, bytes), ["Ping([112])", "Pong([])", "text abc", "Close(Some(1001))"]);
}

#[test]
fn a_fault_has_its_name() {
    let fault = |bytes: &[u8]| read(Role::Client, bytes).pop().unwrap_or_default();
    assert_eq!(fault(b"\xc1\x00"), "fault reserved_bits");
    assert_eq!(fault(b"\x83\x00"), "fault opcode");
    assert_eq!(fault(b"\x8b\x00"), "fault opcode");
    assert_eq!(fault(b"\x81\x80\0\0\0\0"), "fault masked");
    assert_eq!(read(Role::Server, b"\x81\x00"), ["fault not_masked"]);
    assert_eq!(fault(b"\x09\x00"), "fault control_frame");
    assert_eq!(fault(b"\x89\x7e\x00\x7e"), "fault control_frame");
    assert_eq!(fault(b"\x80\x00"), "fault fragmentation");
    assert_eq!(fault(b"\x01\x00\x81\x00"), "fault fragmentation");
    assert_eq!(fault(b"\x82\x7e\x00\x7d"), "fault length");
    assert_eq!(fault(b"\x82\x7f\0\0\0\0\0\0\xff\xff"), "fault length");
    assert_eq!(fault(b"\x82\x7f\x80\0\0\0\0\x01\0\0"), "fault length");
    assert_eq!(fault(b"\x82\x7f\0\0\0\0\0\x02\0\0"), "fault too_large");
    assert_eq!(fault(b"\x82\x7f\x7f\xff\xff\xff\xff\xff\xff\xff"), "fault too_large");
    assert_eq!(fault(b"\x81\x01\xff"), "fault not_utf8");
    assert_eq!(fault(b"\x01\x01\xc3\x80\x01\xa4"), "text \\xc3\\xa4");
    assert_eq!(fault(b"\x88\x01\x03"), "fault close_code");
    for code in [0u16, 999, 1004, 1005, 1006, 1015, 2999, 5000] {
        assert_eq!(fault(&[&b"\x88\x02"[..], &code.to_be_bytes()].concat()), "fault close_code", "{code}");
    }
    assert_eq!(fault(b"\x88\x03\x03\xe8\xff"), "fault not_utf8");
    assert_eq!(fault(b"\x88\x00"), "Close(None)");
    assert_eq!(fault(b"\x88\x02\x0f\xa0"), "Close(Some(4000))");
}

#[test]
fn fragments_do_not_exceed_the_limit_together() {
    let mut bytes = Vec::new();
    encode_fragment(&mut bytes, (Opcode::Binary, false), &[0; 40_000], None);
    encode_fragment(&mut bytes, (Opcode::Continuation, true), &[0; 40_000], None);
    assert_eq!(read_pieces(Role::Client, &bytes, [5]), ["fault too_large"]);
}

#[test]
fn written_frames_are_read() {
    let mut random = fastrand::Rng::with_seed(7);
    for length in [0, 1, 4, 125, 126, 127, 300, 65_535, 65_536] {
        let content: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(length).collect();
        for mask in [None, Some([0; 4]), Some(random.u32(..).to_be_bytes())] {
            let mut bytes = Vec::new();
            encode_frame(&mut bytes, Opcode::Binary, &content, mask);
            let role = if mask.is_some() { Role::Server } else { Role::Client };
            let mut reader = MessageReader::new(role, LIMIT);
            let (first, second) = bytes.split_at(random.usize(..=bytes.len()));
            let mut found = None;
            for mut input in [first, second] {
                if let Some(Received::Message { is_binary: true, content }) = reader.read(&mut input).unwrap()
                {
                    found = Some(content.to_vec());
                }
            }
            assert_eq!(found.as_ref(), Some(&content), "{length} bytes, {mask:?}");
            assert!(!reader.is_within_message());
        }
    }
}

#[test]
fn a_response_accepts_its_key_only() {
    let check = |status: &str, fields: &str, offered: &str| {
        let bytes = format!("HTTP/1.1 {status} X\r\n{fields}\r\n");
        let mut slots = header_slots();
        match parse_response(bytes.as_bytes(), &Limits::default(), RequestKind::Other, &mut slots).unwrap() {
            Parsed::Complete { head, .. } => check_response(&head, "dGhlIHNhbXBsZSBub25jZQ==", offered),
            Parsed::Incomplete => panic!("{bytes}"),
        }
    };
    const UPGRADE: &str = "Upgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n";
    const ACCEPT: &str = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
    let good = format!("{UPGRADE}{ACCEPT}");
    assert_eq!(check("101", &good, ""), Ok(()));
    assert_eq!(check("403", "Content-Length: 0\r\n", ""), Err(HandshakeFault::Status(403)));
    assert_eq!(check("101", &format!("Upgrade: websocket\r\n{ACCEPT}"), ""), Err(HandshakeFault::NoUpgrade));
    assert_eq!(check("101", UPGRADE, ""), Err(HandshakeFault::WrongAccept));
    let lower = good.replace("s3pP", "S3PP");
    assert_eq!(check("101", &lower, ""), Err(HandshakeFault::WrongAccept));
    assert_eq!(check("101", &format!("{good}{ACCEPT}"), ""), Err(HandshakeFault::WrongAccept));
    let extension = format!("{good}Sec-WebSocket-Extensions: permessage-deflate\r\n");
    assert_eq!(check("101", &extension, ""), Err(HandshakeFault::Extension));
    let protocol = format!("{good}Sec-WebSocket-Protocol: chat\r\n");
    assert_eq!(check("101", &protocol, "super, chat"), Ok(()));
    assert_eq!(check("101", &protocol, "super"), Err(HandshakeFault::Subprotocol));
}
