//! Headers whole, split at every byte, hostile, and at random.

use super::*;

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn proxied_of(source: &str, destination: &str) -> Header {
    Header::Proxied { source: address(source), destination: address(destination) }
}

/// A version 2 header: command, family, what follows.
fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [SIGNATURE.as_slice(), &[command, family], &length, rest].concat()
}

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).unwrap().to_be_bytes();
    [&[kind], length.as_slice(), value].concat()
}

/// A version 2 header over IPv4 with a checksum between two other extensions.
fn with_checksum() -> Vec<u8> {
    let rest = [V4.to_vec(), tlv(0x02, b"example.org"), tlv(0x03, &[0; 4]), tlv(0x04, b"pad")];
    let mut header = binary(0x21, 0x11, &rest.concat());
    let at = FIXED_BYTES + 12 + 14 + 3;
    let crc = crc32c(header.iter()).to_be_bytes();
    header[at..at + 4].copy_from_slice(&crc);
    header
}

/// 192.0.2.1:4660 to 198.51.100.2:443.
const V4: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 2, 0x12, 0x34, 1, 187];

fn good() -> Vec<(Vec<u8>, Header)> {
    let four = proxied_of("192.0.2.1:4660", "198.51.100.2:443");
    let six = proxied_of("[2001:db8::1]:1", "[2001:db8::2]:2");
    let mut v6 = [0; 36];
    v6[..4].copy_from_slice(&[0x20, 1, 0x0d, 0xb8]);
    v6[15] = 1;
    v6[16..20].copy_from_slice(&[0x20, 1, 0x0d, 0xb8]);
    v6[31..].copy_from_slice(&[2, 0, 1, 0, 2]);
    let longest_line = format!("PROXY TCP6 {0} {0} 65535 65535\r\n", ["ffff"; 8].join(":"));
    let filler = tlv(0x04, &vec![0; VARIABLE_BYTES_MAX - 12 - 3]);
    vec![
        (b"PROXY TCP4 192.0.2.1 198.51.100.2 4660 443\r\n".to_vec(), four),
        (
            b"PROXY TCP4 0.0.0.0 255.255.255.255 0 65535\r\n".to_vec(),
            proxied_of("0.0.0.0:0", "255.255.255.255:65535"),
        ),
        (b"PROXY TCP6 2001:db8::1 2001:DB8:0:0:0:0:0:2 1 2\r\n".to_vec(), six),
        (longest_line.clone().into_bytes(), {
            let all = format!("[{}]:65535", ["ffff"; 8].join(":"));
            proxied_of(&all, &all)
        }),
        (b"PROXY UNKNOWN\r\n".to_vec(), Header::Own),
        (b"PROXY UNKNOWN \xff\0 what ever  \r\n".to_vec(), Header::Own),
        ([b"PROXY UNKNOWN ".as_slice(), &[b'x'; 91], b"\r\n"].concat(), Header::Own),
        (binary(0x21, 0x11, &V4), four),
        (binary(0x21, 0x21, &v6), six),
        (binary(0x21, 0x12, &V4), Header::Own),
        (binary(0x21, 0x10, &V4), Header::Own),
        (binary(0x21, 0x31, &[b'/'; 216]), Header::Own),
        (binary(0x21, 0x00, &[]), Header::Own),
        (binary(0x21, 0x00, b"what ever"), Header::Own),
        (binary(0x20, 0x00, &[]), Header::Own),
        (binary(0x20, 0x11, &V4), Header::Own),
        (binary(0x20, 0xff, b"ignored"), Header::Own),
        (binary(0x21, 0x11, &[V4.as_slice(), &tlv(0xe0, b""), &tlv(1, b"h2")].concat()), four),
        (binary(0x21, 0x11, &[V4.as_slice(), &filler].concat()), four),
        (with_checksum(), four),
    ]
}

fn bad() -> Vec<(Vec<u8>, Wrong)> {
    let line = |text: &str, wrong| (format!("{text}\r\n").into_bytes(), wrong);
    let mut rows = vec![
        (b"GET / HTTP/1.1\r\n".to_vec(), Wrong::NoHeader),
        (b"proxy TCP4 ".to_vec(), Wrong::NoHeader),
        (b"PROXX".to_vec(), Wrong::NoHeader),
        (b"PROXY\r\n".to_vec(), Wrong::NoHeader),
        (b"\r\n\r\n\0\r\nQUIX".to_vec(), Wrong::NoHeader),
        (b"\0".to_vec(), Wrong::NoHeader),
        (vec![0x16, 3, 1], Wrong::NoHeader),
        ([b"PROXY UNKNOWN ".as_slice(), &[b'x'; 93]].concat(), Wrong::LineTooLong),
        ([b"PROXY UNKNOWN ".as_slice(), &[b'x'; 92], b"\r\n"].concat(), Wrong::LineTooLong),
        (b"PROXY UNKNOWN\n".to_vec(), Wrong::BadLineEnd),
        (b"PROXY UNKNOWN\rx".to_vec(), Wrong::BadLineEnd),
        (b"PROXY UNKNOWN\r\r\n".to_vec(), Wrong::BadLineEnd),
        (b"PROXY TCP4 1.2.3.4\n".to_vec(), Wrong::BadLineEnd),
    ];
    for (text, wrong) in [
        ("PROXY ", Wrong::BadFamily),
        ("PROXY  TCP4 1.1.1.1 2.2.2.2 1 2", Wrong::BadFamily),
        ("PROXY UDP4 1.1.1.1 2.2.2.2 1 2", Wrong::BadFamily),
        ("PROXY UNKNOWNX", Wrong::BadFamily),
        ("PROXY tcp4 1.1.1.1 2.2.2.2 1 2", Wrong::BadFamily),
        ("PROXY TCP4", Wrong::BadFields),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 1", Wrong::BadFields),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 1 2 ", Wrong::BadFields),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 1 2 3", Wrong::BadFields),
        ("PROXY TCP4 1.1.1.1  2.2.2.2 1 2", Wrong::BadFields),
        ("PROXY TCP4 ::1 ::2 1 2", Wrong::BadAddress),
        ("PROXY TCP6 1.1.1.1 2.2.2.2 1 2", Wrong::BadAddress),
        ("PROXY TCP4 01.1.1.1 2.2.2.2 1 2", Wrong::BadAddress),
        ("PROXY TCP4 1.1.1 2.2.2.2 1 2", Wrong::BadAddress),
        ("PROXY TCP4 256.1.1.1 2.2.2.2 1 2", Wrong::BadAddress),
        ("PROXY TCP4 1.1.1.1 \u{661}.2.2.2 1 2", Wrong::BadAddress),
        ("PROXY TCP6 [::1] ::2 1 2", Wrong::BadAddress),
        ("PROXY TCP6 ::1%lo ::2 1 2", Wrong::BadAddress),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 01 2", Wrong::BadPort),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 +1 2", Wrong::BadPort),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 -1 2", Wrong::BadPort),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 1 65536", Wrong::BadPort),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 1 99999999999999999999999", Wrong::BadPort),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 1 x", Wrong::BadPort),
    ] {
        rows.push(line(text, wrong));
    }
    let extended = |extension: &[u8]| binary(0x21, 0x11, &[V4.as_slice(), extension].concat());
    let mut flipped = with_checksum();
    flipped[FIXED_BYTES] ^= 1;
    rows.extend([
        (binary(0x11, 0x11, &V4), Wrong::BadVersion),
        (binary(0x31, 0x11, &V4), Wrong::BadVersion),
        (binary(0x22, 0x11, &V4), Wrong::BadCommand),
        (binary(0x2f, 0x11, &V4), Wrong::BadCommand),
        (binary(0x21, 0x41, &V4), Wrong::BadFamilyByte),
        (binary(0x21, 0x13, &V4), Wrong::BadFamilyByte),
        (binary(0x21, 0xff, &V4), Wrong::BadFamilyByte),
        (binary(0x21, 0x11, &vec![0; VARIABLE_BYTES_MAX + 1]), Wrong::TooLong),
        (binary(0x20, 0x00, &vec![0; 65535]), Wrong::TooLong),
        (binary(0x21, 0x11, &V4[..11]), Wrong::TooShort),
        (binary(0x21, 0x21, &V4), Wrong::TooShort),
        (binary(0x21, 0x31, &[0; 215]), Wrong::TooShort),
        (extended(&[1]), Wrong::BadTlv),
        (extended(&[1, 0]), Wrong::BadTlv),
        (extended(&[1, 0, 1]), Wrong::BadTlv),
        (extended(&[1, 0xff, 0xff, 0]), Wrong::BadTlv),
        (extended(&[4, 0, 0, 1]), Wrong::BadTlv),
        (extended(&tlv(3, &[0; 4])), Wrong::BadChecksum),
        (extended(&tlv(3, &[0; 3])), Wrong::BadChecksum),
        (extended(&tlv(3, &[])), Wrong::BadChecksum),
        (flipped, Wrong::BadChecksum),
    ]);
    rows
}

#[test]
fn good_headers_are_understood_whatever_follows_and_wait_for_their_last_byte() {
    for (text, header) in good() {
        let bytes = text.len();
        let complete = Parsed::Complete { header, bytes };
        assert_eq!(parse(&text), complete, "{:?}", text.escape_ascii().to_string());
        for more in [b"x".as_slice(), b"\r\n", b"PROXY UNKNOWN\r\n", &[0; 600]] {
            assert_eq!(parse(&[&text, more].concat()), complete);
        }
        for end in 0..bytes {
            assert_eq!(parse(&text[..end]), Parsed::Incomplete, "{end} of {bytes}");
        }
    }
}

#[test]
fn bad_headers_are_refused_and_stay_refused() {
    for (text, wrong) in bad() {
        let shown = text.escape_ascii().to_string();
        assert_eq!(parse(&text), Parsed::Invalid(wrong), "{shown}");
        assert_eq!(
            parse(&[text.as_slice(), b"more\r\n"].concat()),
            Parsed::Invalid(wrong),
            "{shown}"
        );
        hold_to_the_first_answer(&text);
    }
}

/// However the bytes come: once there is an answer, more bytes do not change it.
fn hold_to_the_first_answer(text: &[u8]) {
    let whole = parse(text);
    let mut first = None;
    for end in 0..=text.len() {
        let parsed = parse(&text[..end]);
        match (&first, &parsed) {
            (None, Parsed::Incomplete) => {
                assert!(end < HEADER_BYTES_MAX, "a header that never ends");
            }
            (None, answer) => first = Some(answer.clone()),
            (Some(first), answer) => assert_eq!(first, answer, "at {end} of {text:?}"),
        }
        if let Parsed::Complete { bytes, .. } = parsed {
            assert!(bytes <= end && bytes <= HEADER_BYTES_MAX);
        }
    }
    assert_eq!(first.unwrap_or(Parsed::Incomplete), whole);
}

#[test]
fn random_bytes_never_panic_and_their_split_does_not_matter() {
    let mut rng = fastrand::Rng::with_seed(0x5eed);
    let good = good();
    let (mut complete, mut invalid) = (0, 0);
    for _ in 0..4000 {
        let mut text = good[rng.usize(..good.len())].0.clone();
        for _ in 0..rng.usize(..4) {
            let at = rng.usize(..text.len());
            match rng.u8(..4) {
                0 => text[at] = rng.u8(..),
                1 => text[at] ^= 1 << rng.u8(..8),
                2 => text.insert(at, *rng.choice(b" \r\n:.019\0\xff").unwrap()),
                _ => {
                    text.remove(at);
                }
            }
        }
        let more = rng.usize(..40);
        text.extend(std::iter::repeat_with(|| rng.u8(..)).take(more));
        match parse(&text) {
            Parsed::Complete { .. } => complete += 1,
            Parsed::Invalid(_) => invalid += 1,
            Parsed::Incomplete => {}
        }
        hold_to_the_first_answer(&text);
    }
    assert!(complete > 500 && invalid > 500, "{complete} {invalid}");
    for _ in 0..4000 {
        let length = rng.usize(..64);
        let text: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(length).collect();
        hold_to_the_first_answer(&text);
    }
}

#[test]
fn what_is_written_is_read_again() {
    let cases = [
        ("192.0.2.1:1", "198.51.100.2:65535", None),
        ("[2001:db8::1]:1", "[::]:0", None),
        ("[::ffff:192.0.2.1]:1", "[::ffff:192.0.2.2]:2", Some(("192.0.2.1:1", "192.0.2.2:2"))),
        ("192.0.2.1:1", "[2001:db8::1]:2", Some(("[::ffff:192.0.2.1]:1", "[2001:db8::1]:2"))),
    ];
    for version in [ProxyVersion::V1, ProxyVersion::V2] {
        for (source, destination, read_as) in cases {
            let mut out = b"before".to_vec();
            write(version, Some(address(source)), Some(address(destination)), &mut out);
            let (source, destination) = read_as.unwrap_or((source, destination));
            let header = proxied_of(source, destination);
            let bytes = out.len() - 6;
            assert_eq!(
                parse(&out[6..]),
                Parsed::Complete { header, bytes },
                "{version:?} {source}"
            );
        }
        for (source, destination) in [(None, None), (Some(address("1.1.1.1:1")), None)] {
            let mut out = Vec::new();
            write(version, source, destination, &mut out);
            let bytes = out.len();
            assert_eq!(parse(&out), Parsed::Complete { header: Header::Own, bytes });
        }
    }
}

#[test]
fn what_is_written_is_what_the_document_says() {
    let written = |version, source: &str, destination: &str| {
        let mut out = Vec::new();
        write(version, Some(address(source)), Some(address(destination)), &mut out);
        out
    };
    assert_eq!(
        written(ProxyVersion::V1, "192.168.0.1:56324", "192.168.0.11:443"),
        b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n"
    );
    assert_eq!(
        written(ProxyVersion::V1, "1.2.3.4:1", "[::1]:2"),
        b"PROXY TCP6 ::ffff:102:304 ::1 1 2\r\n"
    );
    assert_eq!(
        written(ProxyVersion::V2, "192.0.2.1:4660", "198.51.100.2:443"),
        [b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".as_slice(), &V4].concat()
    );
}

#[test]
fn the_checksum_is_the_one_of_the_rfc() {
    assert_eq!(crc32c(b"123456789".iter()), 0xe306_9283);
    // RFC 3720, appendix B.4.
    assert_eq!(crc32c([0; 32].iter()), 0x8a91_36aa);
    assert_eq!(crc32c([0xff; 32].iter()), 0x62a8_ab43);
}
