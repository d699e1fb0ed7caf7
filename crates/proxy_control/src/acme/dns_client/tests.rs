//! The client of name servers, against servers over real sockets.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use super::*;
use crate::dns::update::ChangeKind;
use crate::plan::TsigAlgorithm;

#[test]
fn a_name_is_in_its_zone() {
    for zone in ["a.example.org", "example.org", "EXAMPLE.org", "org"] {
        assert!(is_in_zone("a.example.org", zone), "{zone}");
    }
    for other in ["ample.org", "b.a.example.org", "example.com", ""] {
        assert!(!is_in_zone("a.example.org", other), "{other}");
    }
}

/// Returns the name of a question as text.
fn asked_name(question: &[u8]) -> String {
    let (mut name, mut at) = (String::new(), 12);
    while question[at] > 0 {
        let end = at + 1 + usize::from(question[at]);
        name += std::str::from_utf8(&question[at + 1..end]).unwrap();
        name.push('.');
        at = end;
    }
    name
}

/// Returns the response of a primary server of the zone `a.test`, which has two name servers.
fn response_to(question: &[u8]) -> Vec<u8> {
    let mut response = question.to_vec();
    let kind = question[question.len() - 3];
    // QR and AA.
    response[2..4].copy_from_slice(&[0x84, 0]);
    let mut add = |section: usize, kind: u8, content: &[u8]| {
        response[section + 1] += 1;
        // The zone, as a name of its own.
        response.extend(b"\x01a\x04test\0\0");
        response.extend([kind, 0, 1, 0, 0, 0, 60, 0, content.len() as u8]);
        response.extend(content);
    };
    match (&*asked_name(question), kind) {
        // An answer of a cache that refuses names of others.
        ("_acme-challenge.x.a.test.", 6) => response[3] = 5,
        // The proof that there is no such name is in the section of authorities.
        ("x.a.test.", 6) => add(8, 6, &[0; 22]),
        ("a.test.", 2) => {
            add(6, 2, b"\x02n1\x01a\x04test\0");
            add(6, 2, b"\x02n2\x05other\0");
        }
        ("a.test.", 16) => add(6, 16, b"\x03abc"),
        _ => response[3] = 3,
    }
    response
}

/// Starts a server; `respond` makes the bytes behind the length. Returns its address.
fn server(respond: fn(&[u8]) -> Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let authority = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut length = [0; 2];
            stream.read_exact(&mut length).unwrap();
            let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
            stream.read_exact(&mut question).unwrap();
            let response = respond(&question);
            let length = (response.len() as u16).to_be_bytes();
            // A client that has read enough may have left.
            let _ = stream.write_all(&[&length[..], &response].concat());
        }
    });
    authority
}

fn block_on<T>(future: impl AsyncFnOnce(&Timers) -> T) -> T {
    rt::cores::block_on(async { future(&Timers::start().unwrap()).await })
}

#[test]
fn the_zone_its_servers_and_its_records_are_found() {
    let authority = server(response_to);
    block_on(async |timers| {
        let server = DnsServer { authority: &authority, timers };
        let zone = server.zone_of("_acme-challenge.x.a.test", false).await.unwrap();
        assert_eq!(&*zone, "a.test");
        assert!(matches!(server.zone_of("b.example", false).await, Err(DnsError::NoZone(_))));
        let servers = server.name_servers("a.test", true).await.unwrap();
        assert_eq!(servers, ["n1.a.test:53".into(), "n2.other:53".into()] as [Box<str>; 2]);
        assert!(matches!(server.name_servers("b.test", true).await, Err(DnsError::NoNameServers(_))));
        for (name, value, expected) in
            [("A.test", "abc", true), ("a.test", "ab", false), ("b.test", "abc", false)]
        {
            assert_eq!(server.has_txt(name, value).await.unwrap(), expected, "{name} {value}");
        }
    });
}

#[test]
fn an_update_needs_a_signed_response() {
    let key = TsigKey::new("weir", TsigAlgorithm::HmacSha256, "AQIDBAUGBwgJCgsMDQ4PEA==").unwrap();
    let unsigned = |question: &[u8]| {
        let mut response = question[..12].to_vec();
        response[2..12].copy_from_slice(&[0xa8, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        response
    };
    let refusing = |question: &[u8]| {
        let mut response = question[..12].to_vec();
        response[2..12].copy_from_slice(&[0xa8, 5, 0, 0, 0, 0, 0, 0, 0, 0]);
        response
    };
    let other_id = |question: &[u8]| vec![!question[0], question[1], 0xa8, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let reflecting = |question: &[u8]| question.to_vec();
    for (respond, part) in [
        (unsigned as fn(&[u8]) -> Vec<u8>, "not signed"),
        (refusing, "REFUSED"),
        (other_id, "another ID"),
        (reflecting, "another ID"),
        (|_| Vec::new(), "malformed"),
    ] {
        let authority = server(respond);
        let error = block_on(async |timers| {
            let change = TxtChange { name: "x.a.test", value: "v", kind: ChangeKind::Remove };
            DnsServer { authority: &authority, timers }.update("a.test", change, &key).await.unwrap_err()
        });
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
}
