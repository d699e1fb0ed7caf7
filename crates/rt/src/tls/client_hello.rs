//! The first message of a TLS client (RFC 8446 §4.1.2), read without a session: the server name and
//! the protocols that it offers. Pure: bytes in, names out. It is strict, because two readers that
//! disagree on a name would let a client choose a server that it may not reach.

/// Maximum number of bytes up to the end of the message, with its records.
pub const CLIENT_HELLO_BYTES_MAX: usize = 16 * 1024 + 512;

/// Maximum number of bytes in a record without encryption (RFC 8446 §5.1).
const RECORD_BYTES_MAX: usize = 1 << 14;
const RECORD_HEADER_BYTES: usize = 5;
const HANDSHAKE_RECORD: u8 = 22;
const CLIENT_HELLO_MESSAGE: u8 = 1;
const MESSAGE_HEADER_BYTES: usize = 4;
const SERVER_NAME_EXTENSION: u16 = 0;
const ALPN_EXTENSION: u16 = 16;
const SERVER_NAME_BYTES_MAX: usize = 253;

/// Alert that tells a client that no server has the name (RFC 6066 §3), as a record.
pub const UNRECOGNIZED_NAME_ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// Names in a client's first message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientHelloNames {
    /// Server name (RFC 6066 §3) in lower case, without a final dot.
    pub server_name: Option<Box<str>>,
    /// Protocols of ALPN (RFC 7301), the preferred one first.
    pub alpn: AlpnProtocols,
}

/// Protocols of ALPN as they were sent, each behind a byte with its length: so thousands of short ones
/// take no more memory than their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlpnProtocols(Box<[u8]>);

impl AlpnProtocols {
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let (&length, after) = rest.split_first()?;
            let (protocol, after) = after.split_at_checked(usize::from(length))?;
            rest = after;
            Some(protocol)
        })
    }
}

impl<'a> FromIterator<&'a [u8]> for AlpnProtocols {
    /// Collects protocols; one of more than 255 bytes is cut off.
    fn from_iter<T: IntoIterator<Item = &'a [u8]>>(protocols: T) -> Self {
        let mut list = Vec::new();
        for protocol in protocols {
            let protocol = &protocol[..protocol.len().min(255)];
            list.push(protocol.len() as u8);
            list.extend_from_slice(protocol);
        }
        Self(list.into())
    }
}

/// Result of reading the start of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParsedClientHello {
    /// More bytes are needed.
    Incomplete,
    Complete(ClientHelloNames),
}

/// Reason that bytes are no valid first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientHelloFault {
    NotTls,
    /// They are longer than [`CLIENT_HELLO_BYTES_MAX`].
    TooLong,
    /// A length or a value is invalid.
    Malformed,
}

impl std::fmt::Display for ClientHelloFault {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::NotTls => "the connection does not begin with TLS",
            Self::TooLong => "the ClientHello is too long",
            Self::Malformed => "the ClientHello is malformed",
        })
    }
}

impl std::error::Error for ClientHelloFault {}

/// Reads the first bytes of a connection. The message may be spread over several records.
///
/// # Errors
/// The bytes are not, or cannot become, a valid message.
pub fn parse_client_hello(bytes: &[u8]) -> Result<ParsedClientHello, ClientHelloFault> {
    ClientHelloReader::default().read(bytes)
}

/// Reader of the first bytes of a connection while they arrive. It reads each record once, so a client
/// that sends single bytes in tiny records causes no more work than another.
#[derive(Clone, Debug, Default)]
pub struct ClientHelloReader {
    /// Number of bytes in the complete records so far.
    used: usize,
    joined: Vec<u8>,
}

impl ClientHelloReader {
    /// Reads all bytes that were received so far, from the first one on.
    ///
    /// # Errors
    /// The bytes are not, or cannot become, a valid message.
    pub fn read(&mut self, bytes: &[u8]) -> Result<ParsedClientHello, ClientHelloFault> {
        // Bytes beyond the maximum count as not received, so that the result does not depend on reads.
        let is_full = bytes.len() >= CLIENT_HELLO_BYTES_MAX;
        let received = &bytes[..bytes.len().min(CLIENT_HELLO_BYTES_MAX)];
        loop {
            let rest = received.get(self.used..).unwrap_or_default();
            let Some((fragment, after)) = split_record(rest)? else {
                return if is_full {
                    Err(ClientHelloFault::TooLong)
                } else {
                    Ok(ParsedClientHello::Incomplete)
                };
            };
            // Nearly always the message is in one record, and nothing is copied.
            if self.joined.is_empty()
                && let Some(message) = complete_message(fragment)?
            {
                return parse_body(message).map(ParsedClientHello::Complete);
            }
            self.joined.extend_from_slice(fragment);
            if let Some(message) = complete_message(&self.joined)? {
                return parse_body(message).map(ParsedClientHello::Complete);
            }
            self.used = received.len() - after.len();
        }
    }
}

/// Content of a record, and the bytes after it.
type SplitRecord<'a> = (&'a [u8], &'a [u8]);

/// Splits the first record off; `None` if it is incomplete.
fn split_record(bytes: &[u8]) -> Result<Option<SplitRecord<'_>>, ClientHelloFault> {
    // Each byte is checked as soon as it is there, so that other protocols are detected early.
    for (&byte, is_valid) in bytes.iter().zip([|byte| byte == HANDSHAKE_RECORD, |byte| byte == 3]) {
        if !is_valid(byte) {
            return Err(ClientHelloFault::NotTls);
        }
    }
    let Some((&[_, _, _, high, low], content)) = bytes.split_first_chunk::<RECORD_HEADER_BYTES>() else {
        return Ok(None);
    };
    match usize::from(u16::from_be_bytes([high, low])) {
        // Empty fragments of handshake messages are forbidden (RFC 8446 §5.1).
        0 => Err(ClientHelloFault::Malformed),
        length if length > RECORD_BYTES_MAX => Err(ClientHelloFault::NotTls),
        length => Ok(content.split_at_checked(length)),
    }
}

/// Returns the body of the message; `None` if it is incomplete.
fn complete_message(bytes: &[u8]) -> Result<Option<&[u8]>, ClientHelloFault> {
    if bytes.first().is_some_and(|&kind| kind != CLIENT_HELLO_MESSAGE) {
        return Err(ClientHelloFault::Malformed);
    }
    let Some((&[_, a, b, c], body)) = bytes.split_first_chunk::<MESSAGE_HEADER_BYTES>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes([0, a, b, c]) as usize;
    if length > CLIENT_HELLO_BYTES_MAX - MESSAGE_HEADER_BYTES - RECORD_HEADER_BYTES {
        return Err(ClientHelloFault::TooLong);
    }
    match body.len() {
        received if received < length => Ok(None),
        received if received == length => Ok(Some(body)),
        // A client sends nothing else before it has a response.
        _ => Err(ClientHelloFault::Malformed),
    }
}

/// Cursor over the fields of a message.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], ClientHelloFault> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(ClientHelloFault::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self, bytes: usize) -> Result<usize, ClientHelloFault> {
        Ok(self.take(bytes)?.iter().fold(0, |number, &byte| number << 8 | usize::from(byte)))
    }

    /// Takes a vector whose length has so many bytes.
    fn vector(&mut self, length_bytes: usize) -> Result<Self, ClientHelloFault> {
        let length = self.number(length_bytes)?;
        self.take(length).map(Self)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn parse_body(body: &[u8]) -> Result<ClientHelloNames, ClientHelloFault> {
    let mut fields = Fields(body);
    let mut names = ClientHelloNames::default();
    // The major version, the minor one, and the random.
    if fields.take(2)?[0] != 3 {
        return Err(ClientHelloFault::Malformed);
    }
    fields.take(32)?;
    let session_id = fields.vector(1)?;
    let cipher_suites = fields.vector(2)?;
    let compression_methods = fields.vector(1)?;
    let has_suites = !cipher_suites.is_empty() && cipher_suites.0.len().is_multiple_of(2);
    if session_id.0.len() > 32 || !has_suites || compression_methods.is_empty() {
        return Err(ClientHelloFault::Malformed);
    }
    if fields.is_empty() {
        return Ok(names);
    }
    let mut extensions = fields.vector(2)?;
    if !fields.is_empty() {
        return Err(ClientHelloFault::Malformed);
    }
    let mut has_alpn = false;
    while !extensions.is_empty() {
        let kind = extensions.number(2)? as u16;
        let content = extensions.vector(2)?;
        match kind {
            SERVER_NAME_EXTENSION if names.server_name.is_none() => {
                names.server_name = Some(parse_server_name(content)?);
            }
            ALPN_EXTENSION if !has_alpn => {
                has_alpn = true;
                names.alpn = parse_alpn(content)?;
            }
            // Each may be there once (RFC 8446 §4.2).
            SERVER_NAME_EXTENSION | ALPN_EXTENSION => return Err(ClientHelloFault::Malformed),
            _ => {}
        }
    }
    Ok(names)
}

fn parse_server_name(mut content: Fields<'_>) -> Result<Box<str>, ClientHelloFault> {
    let mut list = content.vector(2)?;
    // One name of the only type that exists, `host_name`.
    let kind = list.number(1)?;
    let name = list.vector(2)?.0;
    let name = name.strip_suffix(b".").unwrap_or(name);
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let has_labels = name.split(|&byte| byte == b'.').all(|label| (1..=63).contains(&label.len()));
    let is_only = content.is_empty() && list.is_empty() && kind == 0;
    if !is_only || name.len() > SERVER_NAME_BYTES_MAX || !has_labels || !name.iter().all(is_allowed) {
        return Err(ClientHelloFault::Malformed);
    }
    Ok(String::from_utf8_lossy(name).to_ascii_lowercase().into())
}

fn parse_alpn(mut content: Fields<'_>) -> Result<AlpnProtocols, ClientHelloFault> {
    let list = content.vector(2)?;
    if !content.is_empty() || list.is_empty() {
        return Err(ClientHelloFault::Malformed);
    }
    let mut protocols = Fields(list.0);
    while !protocols.is_empty() {
        if protocols.vector(1)?.is_empty() {
            return Err(ClientHelloFault::Malformed);
        }
    }
    Ok(AlpnProtocols(list.0.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(length_bytes: usize, content: &[u8]) -> Vec<u8> {
        let length = content.len().to_be_bytes();
        [&length[length.len() - length_bytes..], content].concat()
    }

    fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &vector(2, content)].concat()
    }

    fn server_name(name: &[u8]) -> Vec<u8> {
        extension(0, &vector(2, &[&[0][..], &vector(2, name)].concat()))
    }

    fn alpn(protocols: &[&[u8]]) -> Vec<u8> {
        let list: Vec<u8> = protocols.iter().flat_map(|protocol| vector(1, protocol)).collect();
        extension(16, &vector(2, &list))
    }

    fn message(extensions: &[u8]) -> Vec<u8> {
        let random = [7; 32];
        let suites = vector(2, &[0x13, 0x01]);
        let body =
            [&[3, 3][..], &random, &vector(1, &[1; 32]), &suites, &vector(1, &[0]), &vector(2, extensions)];
        [&[1][..], &vector(3, &body.concat())].concat()
    }

    /// Returns records with so many bytes of the message each.
    fn records(message: &[u8], record_bytes: usize) -> Vec<u8> {
        let record = |part: &[u8]| [&[22, 3, 1][..], &vector(2, part)].concat();
        message.chunks(record_bytes).flat_map(record).collect()
    }

    fn complete(bytes: &[u8]) -> ClientHelloNames {
        match parse_client_hello(bytes) {
            Ok(ParsedClientHello::Complete(names)) => names,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn names_and_protocols_are_read() {
        let extensions = [extension(43, &[2, 3, 4]), server_name(b"App.Example."), alpn(&[b"h2", b"x"])];
        let bytes = records(&message(&extensions.concat()), usize::MAX);
        let names = complete(&bytes);
        assert_eq!(names.server_name.as_deref(), Some("app.example"));
        assert!(names.alpn.iter().eq([&b"h2"[..], b"x"]));
        assert_eq!(names.alpn, [&b"h2"[..], b"x"].into_iter().collect());
        assert_eq!(complete(&records(&message(&[]), usize::MAX)), ClientHelloNames::default());
    }

    #[test]
    fn every_prefix_is_incomplete_and_every_split_into_records_is_the_same() {
        let message = message(&[server_name(b"a.test"), alpn(&[b"h2"])].concat());
        for record_bytes in 1..=message.len() {
            let bytes = records(&message, record_bytes);
            assert_eq!(complete(&bytes).server_name.as_deref(), Some("a.test"));
            for end in 0..bytes.len() {
                assert_eq!(parse_client_hello(&bytes[..end]), Ok(ParsedClientHello::Incomplete), "{end}");
            }
        }
    }

    #[test]
    fn a_record_is_read_once_however_its_bytes_arrive() {
        let message = message_of_bytes(1_000);
        let bytes = records(&message, 3);
        let mut reader = ClientHelloReader::default();
        for end in 0..bytes.len() {
            assert_eq!(reader.read(&bytes[..end]), Ok(ParsedClientHello::Incomplete), "{end}");
            // Only an incomplete record is still to be read.
            assert!(end - reader.used < RECORD_HEADER_BYTES + 3, "{end}");
            assert_eq!(reader.joined.len(), reader.used / (RECORD_HEADER_BYTES + 3) * 3);
        }
        assert_eq!(reader.read(&bytes), Ok(ParsedClientHello::Complete(ClientHelloNames::default())));
    }

    #[test]
    fn many_protocols_take_no_more_than_their_bytes() {
        let many = vec![&b"x"[..]; 8_000];
        let names = complete(&records(&message(&alpn(&many)), usize::MAX));
        assert_eq!((names.alpn.iter().count(), names.alpn.0.len()), (8_000, 16_000));
    }

    #[test]
    fn other_protocols_are_detected_by_their_first_bytes() {
        for bytes in
            [&b"GET / HTTP/1.1\r\n"[..], b"SSH-2.0", b"\x16\x02", b"\x80\x2e", b"\x16\x03\x01\xff\xff"]
        {
            assert_eq!(parse_client_hello(bytes), Err(ClientHelloFault::NotTls), "{bytes:?}");
        }
        assert_eq!(parse_client_hello(b"\x16\x03\x01\x00\x00"), Err(ClientHelloFault::Malformed));
        assert_eq!(parse_client_hello(b"\x16\x03\x01\x00\x01\x02"), Err(ClientHelloFault::Malformed));
    }

    #[test]
    fn ambiguous_names_are_malformed() {
        let twice = [server_name(b"a.test"), server_name(b"b.test")].concat();
        let two_in_one = extension(
            0,
            &vector(2, &[&[0][..], &vector(2, b"a.test"), &[0], &vector(2, b"b.test")].concat()),
        );
        let other_type = extension(0, &vector(2, &[&[1][..], &vector(2, b"a.test")].concat()));
        let mut trailing = server_name(b"a.test");
        trailing.push(0);
        for extensions in [
            twice,
            two_in_one,
            other_type,
            trailing,
            server_name(b""),
            server_name(b"."),
            server_name(b"a..b"),
            server_name(b"a\0b"),
            server_name("ä.test".as_bytes()),
            server_name(&[b'a'; 64]),
            server_name(b"[::1]"),
            alpn(&[]),
            alpn(&[b""]),
            [alpn(&[b"h2"]), alpn(&[b"h2"])].concat(),
        ] {
            let bytes = records(&message(&extensions), usize::MAX);
            assert_eq!(parse_client_hello(&bytes), Err(ClientHelloFault::Malformed), "{extensions:?}");
        }
        let mut longer = message(&[]);
        longer.push(0);
        assert_eq!(parse_client_hello(&records(&longer, usize::MAX)), Err(ClientHelloFault::Malformed));
    }

    #[test]
    fn a_long_message_is_rejected_before_it_has_arrived() {
        let message = [&[1, 0, 0xff, 0xff][..], &[0; 100]].concat();
        assert_eq!(parse_client_hello(&records(&message, usize::MAX)), Err(ClientHelloFault::TooLong));
        // Many tiny records have more bytes than their message.
        let padded = message_of_bytes(4_000);
        assert_eq!(parse_client_hello(&records(&padded, 1)), Err(ClientHelloFault::TooLong));
        assert_eq!(complete(&records(&padded, 100)), ClientHelloNames::default());
    }

    /// The acceptor of rustls reads what rustls would accept; a listener that forwards by name decides for servers that
    /// accept more, as TLS 1.0 without signature algorithms, and fewer, as a name twice.
    #[test]
    fn the_acceptor_of_rustls_decides_otherwise() {
        let is_accepted = |bytes: &[u8]| {
            let mut acceptor = rustls::server::Acceptor::default();
            acceptor.read_tls(&mut &bytes[..]).unwrap();
            matches!(acceptor.accept(), Ok(Some(_)))
        };
        let old = records(&message(&server_name(b"old.test")), usize::MAX);
        assert_eq!(complete(&old).server_name.as_deref(), Some("old.test"));
        assert!(!is_accepted(&old));
        let signatures = extension(13, &vector(2, &[4, 3]));
        let plain = records(&message(&[server_name(b"a.test"), signatures.clone()].concat()), usize::MAX);
        assert!(is_accepted(&plain));
        let labels = records(&message(&[server_name(b"a..b"), signatures].concat()), usize::MAX);
        assert!(parse_client_hello(&labels).is_err());
    }

    fn message_of_bytes(padding: usize) -> Vec<u8> {
        message(&extension(21, &vec![0; padding]))
    }
}
