//! Headers: complete, split at every byte, hostile, and random.

use super::*;

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn proxied_header(source: &str, destination: &str) -> Header {
    Header::Proxied { source: address(source), destination: address(destination) }
}

/// Builds a version 2 header from command, family and the rest.
fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [V2_SIGNATURE.as_slice(), &[command, family], &length, rest].concat()
}

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).unwrap().to_be_bytes();
    [&[kind], length.as_slice(), value].concat()
}

/// Builds a version 2 header over IPv4 with a checksum between two other extensions.
fn with_checksum() -> Vec<u8> {
    let rest = [V4.to_vec(), tlv(0x02, b"example.org"), tlv(0x03, &[0; 4]), tlv(0x04, b"pad")];
    let mut header = binary(0x21, 0x11, &rest.concat());
    let at = V2_FIXED_BYTES + 12 + 14 + 3;
    let crc = crc32c(header.iter()).to_be_bytes();
    header[at..at + 4].copy_from_slice(&crc);
    header
}

/// 192.0.2.1:4660 to 198.51.100.2:443.
const V4: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 2, 0x12, 0x34, 1, 187];

fn valid_headers() -> Vec<(Vec<u8>, Header)> {
    let four = proxied_header("192.0.2.1:4660", "198.51.100.2:443");
    let six = proxied_header("[2001:db8::1]:1", "[2001:db8::2]:2");
    let mut v6 = [0; 36];
    v6[..4].copy_from_slice(&[0x20, 1, 0x0d, 0xb8]);
    v6[15] = 1;
    v6[16..20].copy_from_slice(&[0x20, 1, 0x0d, 0xb8]);
    v6[31..].copy_from_slice(&[2, 0, 1, 0, 2]);
    let longest_line = format!("PROXY TCP6 {0} {0} 65535 65535\r\n", ["ffff"; 8].join(":"));
    let filler = tlv(0x04, &vec![0; V2_VARIABLE_BYTES_MAX - 12 - 3]);
    vec![
        (b"PROXY TCP4 192.0.2.1 198.51.100.2 4660 443\r\n".to_vec(), four),
        (
            b"PROXY TCP4 0.0.0.0 255.255.255.255 0 65535\r\n".to_vec(),
            proxied_header("0.0.0.0:0", "255.255.255.255:65535"),
        ),
        (b"PROXY TCP6 2001:db8::1 2001:DB8:0:0:0:0:0:2 1 2\r\n".to_vec(), six),
        (longest_line.clone().into_bytes(), {
            let longest_address = format!("[{}]:65535", ["ffff"; 8].join(":"));
            proxied_header(&longest_address, &longest_address)
        }),
        (b"PROXY UNKNOWN\r\n".to_vec(), Header::Unproxied),
        (b"PROXY UNKNOWN \xff\0 what ever  \r\n".to_vec(), Header::Unproxied),
        ([b"PROXY UNKNOWN ".as_slice(), &[b'x'; 91], b"\r\n"].concat(), Header::Unproxied),
        (binary(0x21, 0x11, &V4), four),
        (binary(0x21, 0x21, &v6), six),
        (binary(0x21, 0x12, &V4), Header::Unproxied),
        (binary(0x21, 0x10, &V4), Header::Unproxied),
        (binary(0x21, 0x31, &[b'/'; 216]), Header::Unproxied),
        (binary(0x21, 0x00, &[]), Header::Unproxied),
        (binary(0x21, 0x00, b"what ever"), Header::Unproxied),
        (binary(0x20, 0x00, &[]), Header::Unproxied),
        (binary(0x20, 0x11, &V4), Header::Unproxied),
        (binary(0x20, 0xff, b"ignored"), Header::Unproxied),
        (binary(0x21, 0x11, &[V4.as_slice(), &tlv(0xe0, b""), &tlv(1, b"h2")].concat()), four),
        (binary(0x21, 0x11, &[V4.as_slice(), &filler].concat()), four),
        (with_checksum(), four),
    ]
}

fn invalid_headers() -> Vec<(Vec<u8>, HeaderError)> {
    let line = |text: &str, error| (format!("{text}\r\n").into_bytes(), error);
    let mut rows = vec![
        (b"GET / HTTP/1.1\r\n".to_vec(), HeaderError::NoHeader),
        (b"proxy TCP4 ".to_vec(), HeaderError::NoHeader),
        (b"PROXX".to_vec(), HeaderError::NoHeader),
        (b"PROXY\r\n".to_vec(), HeaderError::NoHeader),
        (b"\r\n\r\n\0\r\nQUIX".to_vec(), HeaderError::NoHeader),
        (b"\0".to_vec(), HeaderError::NoHeader),
        (vec![0x16, 3, 1], HeaderError::NoHeader),
        ([b"PROXY UNKNOWN ".as_slice(), &[b'x'; 93]].concat(), HeaderError::LineTooLong),
        ([b"PROXY UNKNOWN ".as_slice(), &[b'x'; 92], b"\r\n"].concat(), HeaderError::LineTooLong),
        (b"PROXY UNKNOWN\n".to_vec(), HeaderError::BadLineEnd),
        (b"PROXY UNKNOWN\rx".to_vec(), HeaderError::BadLineEnd),
        (b"PROXY UNKNOWN\r\r\n".to_vec(), HeaderError::BadLineEnd),
        (b"PROXY TCP4 1.2.3.4\n".to_vec(), HeaderError::BadLineEnd),
    ];
    for (text, error) in [
        ("PROXY ", HeaderError::BadFamily),
        ("PROXY  TCP4 1.1.1.1 2.2.2.2 1 2", HeaderError::BadFamily),
        ("PROXY UDP4 1.1.1.1 2.2.2.2 1 2", HeaderError::BadFamily),
        ("PROXY UNKNOWNX", HeaderError::BadFamily),
        ("PROXY tcp4 1.1.1.1 2.2.2.2 1 2", HeaderError::BadFamily),
        ("PROXY TCP4", HeaderError::BadFields),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 1", HeaderError::BadFields),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 1 2 ", HeaderError::BadFields),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 1 2 3", HeaderError::BadFields),
        ("PROXY TCP4 1.1.1.1  2.2.2.2 1 2", HeaderError::BadFields),
        ("PROXY TCP4 ::1 ::2 1 2", HeaderError::BadAddress),
        ("PROXY TCP6 1.1.1.1 2.2.2.2 1 2", HeaderError::BadAddress),
        ("PROXY TCP4 01.1.1.1 2.2.2.2 1 2", HeaderError::BadAddress),
        ("PROXY TCP4 1.1.1 2.2.2.2 1 2", HeaderError::BadAddress),
        ("PROXY TCP4 256.1.1.1 2.2.2.2 1 2", HeaderError::BadAddress),
        ("PROXY TCP4 1.1.1.1 \u{661}.2.2.2 1 2", HeaderError::BadAddress),
        ("PROXY TCP6 [::1] ::2 1 2", HeaderError::BadAddress),
        ("PROXY TCP6 ::1%lo ::2 1 2", HeaderError::BadAddress),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 01 2", HeaderError::BadPort),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 +1 2", HeaderError::BadPort),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 -1 2", HeaderError::BadPort),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 1 65536", HeaderError::BadPort),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 1 99999999999999999999999", HeaderError::BadPort),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 1 x", HeaderError::BadPort),
    ] {
        rows.push(line(text, error));
    }
    let extended = |extension: &[u8]| binary(0x21, 0x11, &[V4.as_slice(), extension].concat());
    let mut flipped = with_checksum();
    flipped[V2_FIXED_BYTES] ^= 1;
    rows.extend([
        (binary(0x11, 0x11, &V4), HeaderError::BadVersion),
        (binary(0x31, 0x11, &V4), HeaderError::BadVersion),
        (binary(0x22, 0x11, &V4), HeaderError::BadCommand),
        (binary(0x2f, 0x11, &V4), HeaderError::BadCommand),
        (binary(0x21, 0x41, &V4), HeaderError::BadFamilyByte),
        (binary(0x21, 0x13, &V4), HeaderError::BadFamilyByte),
        (binary(0x21, 0xff, &V4), HeaderError::BadFamilyByte),
        (binary(0x21, 0x11, &vec![0; V2_VARIABLE_BYTES_MAX + 1]), HeaderError::TooLong),
        (binary(0x20, 0x00, &vec![0; 65535]), HeaderError::TooLong),
        (binary(0x21, 0x11, &V4[..11]), HeaderError::TooShort),
        (binary(0x21, 0x21, &V4), HeaderError::TooShort),
        (binary(0x21, 0x31, &[0; 215]), HeaderError::TooShort),
        (extended(&[1]), HeaderError::BadTlv),
        (extended(&[1, 0]), HeaderError::BadTlv),
        (extended(&[1, 0, 1]), HeaderError::BadTlv),
        (extended(&[1, 0xff, 0xff, 0]), HeaderError::BadTlv),
        (extended(&[4, 0, 0, 1]), HeaderError::BadTlv),
        (extended(&tlv(3, &[0; 4])), HeaderError::BadChecksum),
        (extended(&tlv(3, &[0; 3])), HeaderError::BadChecksum),
        (extended(&tlv(3, &[])), HeaderError::BadChecksum),
        (flipped, HeaderError::BadChecksum),
    ]);
    rows
}

#[test]
fn good_headers_are_understood_whatever_follows_and_wait_for_their_last_byte() {
    for (text, header) in valid_headers() {
        let bytes = text.len();
        let complete = ParsedHeader::Complete { header, bytes };
        assert_eq!(parse(&text), complete, "{:?}", text.escape_ascii().to_string());
        for more in [b"x".as_slice(), b"\r\n", b"PROXY UNKNOWN\r\n", &[0; 600]] {
            assert_eq!(parse(&[&text, more].concat()), complete);
        }
        for end in 0..bytes {
            assert_eq!(parse(&text[..end]), ParsedHeader::Incomplete, "{end} of {bytes}");
        }
    }
}

#[test]
fn bad_headers_are_refused_and_stay_refused() {
    for (text, error) in invalid_headers() {
        let escaped = text.escape_ascii().to_string();
        assert_eq!(parse(&text), ParsedHeader::Invalid(error), "{escaped}");
        assert_eq!(
            parse(&[text.as_slice(), b"more\r\n"].concat()),
            ParsedHeader::Invalid(error),
            "{escaped}"
        );
        assert_result_is_stable(&text);
    }
}

/// Checks every chunking: once there is a result, further bytes do not change it.
fn assert_result_is_stable(text: &[u8]) {
    let complete = parse(text);
    let mut first = None;
    for end in 0..=text.len() {
        let parsed = parse(&text[..end]);
        match (&first, &parsed) {
            (None, ParsedHeader::Incomplete) => {
                assert!(end < HEADER_BYTES_MAX, "a header that never ends");
            }
            (None, result) => first = Some(result.clone()),
            (Some(first), result) => assert_eq!(first, result, "at {end} of {text:?}"),
        }
        if let ParsedHeader::Complete { bytes, .. } = parsed {
            assert!(bytes <= end && bytes <= HEADER_BYTES_MAX);
        }
    }
    assert_eq!(first.unwrap_or(ParsedHeader::Incomplete), complete);
}

#[test]
fn random_bytes_never_panic_and_their_split_does_not_matter() {
    let mut rng = fastrand::Rng::with_seed(0x5eed);
    let valid = valid_headers();
    let (mut complete, mut invalid) = (0, 0);
    for _ in 0..4000 {
        let mut text = valid[rng.usize(..valid.len())].0.clone();
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
            ParsedHeader::Complete { .. } => complete += 1,
            ParsedHeader::Invalid(_) => invalid += 1,
            ParsedHeader::Incomplete => {}
        }
        assert_result_is_stable(&text);
    }
    assert!(complete > 500 && invalid > 500, "{complete} {invalid}");
    for _ in 0..4000 {
        let length = rng.usize(..64);
        let text: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(length).collect();
        assert_result_is_stable(&text);
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
            write_header(version, Some(address(source)), Some(address(destination)), &mut out);
            let (source, destination) = read_as.unwrap_or((source, destination));
            let header = proxied_header(source, destination);
            let bytes = out.len() - 6;
            assert_eq!(parse(&out[6..]), ParsedHeader::Complete { header, bytes }, "{version:?} {source}");
        }
        for (source, destination) in [(None, None), (Some(address("1.1.1.1:1")), None)] {
            let mut out = Vec::new();
            write_header(version, source, destination, &mut out);
            let bytes = out.len();
            assert_eq!(parse(&out), ParsedHeader::Complete { header: Header::Unproxied, bytes });
        }
    }
}

#[test]
fn headers_are_written_as_the_specification_says() {
    let written = |version, source: &str, destination: &str| {
        let mut out = Vec::new();
        write_header(version, Some(address(source)), Some(address(destination)), &mut out);
        out
    };
    assert_eq!(
        written(ProxyVersion::V1, "192.168.0.1:56324", "192.168.0.11:443"),
        b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n"
    );
    assert_eq!(written(ProxyVersion::V1, "1.2.3.4:1", "[::1]:2"), b"PROXY TCP6 ::ffff:102:304 ::1 1 2\r\n");
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
