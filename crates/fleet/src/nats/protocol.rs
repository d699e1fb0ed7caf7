//! Operations of the protocol: those of the server as borrowed views of received bytes, those of the client as
//! bytes to send. No I/O.

use std::ops::Range;

/// Maximum length of a line. The longest is INFO, which lists the servers of the cluster.
const LINE_BYTES_MAX: usize = 32 * 1024;
/// Maximum size of a message with its headers: servers accept 1 MiB unless configured otherwise.
const MESSAGE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Capacity of an empty buffer that is kept.
const BUFFER_BYTES_KEPT: usize = 256 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtocolError {
    #[error("a line of the server is longer than {LINE_BYTES_MAX} bytes: is it a NATS server?")]
    LineTooLong,
    #[error("a message of the server has {0} bytes; the limit is {MESSAGE_BYTES_MAX}")]
    MessageTooLarge(usize),
    #[error("not the NATS protocol: '{0}'")]
    Unknown(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerOperation<'a> {
    /// Properties of the server, in JSON.
    Info(&'a str),
    Message {
        subject: &'a str,
        subscription: u64,
        /// Status of a message from the server itself.
        status: Option<u16>,
        payload: &'a [u8],
    },
    /// Question that is answered by PONG.
    Ping,
    Pong,
    Ok,
    Error(&'a str),
}

/// Received bytes and the operations in them. Each byte is searched once, however the bytes arrive.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    buffer: Vec<u8>,
    /// Bytes before this index belong to earlier operations.
    start: usize,
    /// Bytes before this index contain no end of the current line.
    searched: usize,
    /// Current message whose bytes are not complete.
    message: Option<MessageLine>,
}

/// Line before a message: subject and sizes.
#[derive(Clone, Debug)]
struct MessageLine {
    subject: Range<usize>,
    subscription: u64,
    headers: usize,
    total: usize,
    /// Index of the first byte of the headers.
    begin: usize,
}

impl Decoder {
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        if self.message.is_none() && self.start > 0 {
            self.buffer.drain(..self.start);
            self.searched -= self.start;
            self.start = 0;
            if self.buffer.is_empty() && self.buffer.capacity() > BUFFER_BYTES_KEPT {
                self.buffer = Vec::new();
            }
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next operation; `None` if it is not complete.
    ///
    /// # Errors
    /// The bytes violate the protocol, or a limit.
    pub(crate) fn next(&mut self) -> Result<Option<ServerOperation<'_>>, ProtocolError> {
        if self.message.is_none() {
            let rest = &self.buffer[self.searched..];
            let Some(end) = rest.iter().position(|byte| *byte == b'\n').map(|at| self.searched + at) else {
                self.searched = self.buffer.len();
                let is_too_long = self.searched - self.start > LINE_BYTES_MAX;
                return if is_too_long { Err(ProtocolError::LineTooLong) } else { Ok(None) };
            };
            if end - self.start > LINE_BYTES_MAX {
                return Err(ProtocolError::LineTooLong);
            }
            let line = self.start..end;
            self.searched = end + 1;
            match message_line(&self.buffer, line.clone(), end + 1)? {
                Some(message) => self.message = Some(message),
                None => {
                    self.start = end + 1;
                    return simple_operation(&self.buffer[line]).map(Some);
                }
            }
        }
        Ok(self.take_message())
    }

    fn take_message(&mut self) -> Option<ServerOperation<'_>> {
        let end = self.message.as_ref().map(|message| message.begin + message.total + 2)?;
        if self.buffer.len() < end {
            return None;
        }
        let message = self.message.take()?;
        (self.start, self.searched) = (end, end);
        let content = &self.buffer[message.begin..end - 2];
        let (headers, payload) = content.split_at(message.headers);
        Some(ServerOperation::Message {
            // The line was checked to be UTF-8.
            subject: std::str::from_utf8(&self.buffer[message.subject]).unwrap_or_default(),
            subscription: message.subscription,
            status: status(headers),
            payload,
        })
    }
}

/// Returns the error for a line of another form. At most its first bytes are repeated.
fn unknown(line: &[u8]) -> ProtocolError {
    let text = String::from_utf8_lossy(&line[..line.len().min(64)]);
    ProtocolError::Unknown(text.trim_end().escape_debug().to_string())
}

/// Parses `MSG subject subscription [reply] bytes` and `HMSG subject subscription [reply] header-bytes bytes`;
/// `None` for a line of another operation.
fn message_line(
    buffer: &[u8],
    line: Range<usize>,
    begin: usize,
) -> Result<Option<MessageLine>, ProtocolError> {
    let bytes = &buffer[line.clone()];
    let sizes = match bytes.get(..4) {
        Some(b"MSG ") => 1,
        Some(b"HMSG") => 2,
        _ => return Ok(None),
    };
    let text = std::str::from_utf8(bytes).map_err(|_| unknown(bytes))?;
    let mut words = text.split_ascii_whitespace().skip(1);
    let parsed = (|| {
        let subject = words.next()?;
        let subscription = words.next()?.parse().ok()?;
        let rest: Vec<&str> = words.by_ref().take(4).collect();
        // A reply subject may come first.
        let numbers = match rest.len().checked_sub(sizes)? {
            0 | 1 => &rest[rest.len() - sizes..],
            _ => return None,
        };
        let total: usize = numbers.last()?.parse().ok()?;
        let headers = if sizes == 2 { numbers[0].parse().ok()? } else { 0 };
        let offset = subject.as_ptr().addr() - text.as_ptr().addr();
        let at = line.start + offset;
        (headers <= total).then_some(MessageLine {
            subject: at..at + subject.len(),
            subscription,
            headers,
            total,
            begin,
        })
    })();
    let message = parsed.ok_or_else(|| unknown(bytes))?;
    if message.total > MESSAGE_BYTES_MAX {
        return Err(ProtocolError::MessageTooLarge(message.total));
    }
    Ok(Some(message))
}

fn simple_operation(line: &[u8]) -> Result<ServerOperation<'_>, ProtocolError> {
    let text = std::str::from_utf8(line).map_err(|_| unknown(line))?.trim_ascii();
    let (name, rest) = text.split_once([' ', '\t']).unwrap_or((text, ""));
    Ok(match name {
        "INFO" => ServerOperation::Info(rest.trim_ascii()),
        "PING" => ServerOperation::Ping,
        "PONG" => ServerOperation::Pong,
        "+OK" => ServerOperation::Ok,
        "-ERR" => ServerOperation::Error(rest.trim_ascii().trim_matches('\'')),
        _ => return Err(unknown(line)),
    })
}

/// Returns the status in the first line of headers, `NATS/1.0 503`.
fn status(headers: &[u8]) -> Option<u16> {
    let line = headers.split(|byte| *byte == b'\r').next()?;
    let text = std::str::from_utf8(line.strip_prefix(b"NATS/1.0")?).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// Returns true if a subject can be part of an operation.
pub(crate) fn is_valid_subject(subject: &str) -> bool {
    !subject.is_empty() && !subject.contains(|c: char| c.is_whitespace() || c.is_control())
}

/// Appends PUB, or HPUB if there are headers: complete, from `NATS/1.0` to the empty line.
pub(crate) fn write_publication(
    out: &mut Vec<u8>,
    subject: &str,
    reply: &str,
    headers: &str,
    payload: &[u8],
) {
    let separator = if reply.is_empty() { "" } else { " " };
    let total = headers.len() + payload.len();
    let line = match headers {
        "" => format!("PUB {subject}{separator}{reply} {total}\r\n"),
        headers => format!("HPUB {subject}{separator}{reply} {} {total}\r\n{headers}", headers.len()),
    };
    out.extend_from_slice(line.as_bytes());
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes bytes that arrive in pieces of `size`, as texts.
    fn decode(bytes: &[u8], size: usize) -> Result<Vec<String>, ProtocolError> {
        let (mut decoder, mut found) = (Decoder::default(), Vec::new());
        for piece in bytes.chunks(size) {
            decoder.extend(piece);
            while let Some(operation) = decoder.next()? {
                found.push(match operation {
                    ServerOperation::Message { subject, subscription, status, payload } => {
                        let text = String::from_utf8_lossy(payload);
                        format!("{subject} {subscription} {status:?} {text}")
                    }
                    other => format!("{other:?}"),
                });
            }
        }
        Ok(found)
    }

    #[test]
    fn operations_are_read_however_they_arrive() {
        let text = "INFO {\"a\":\" b \"} \r\nPING\r\nMSG a.b 7 5\r\nx\r\nyz\r\nMSG a 8 reply.to 0\r\n\r\n+OK\r\n\
                    HMSG c 9 r 16 16\r\nNATS/1.0 503\r\n\r\n\r\nHMSG d 10 18 20\r\nNATS/1.0\r\nA: 404\r\nhi\r\n\
                    -ERR 'Permissions Violation'\r\nPONG\r\nMSG e\t11   2\r\nok\r\n";
        let expected = [
            "Info(\"{\\\"a\\\":\\\" b \\\"}\")",
            "Ping",
            "a.b 7 None x\r\nyz",
            "a 8 None ",
            "Ok",
            "c 9 Some(503) ",
            "d 10 None hi",
            "Error(\"Permissions Violation\")",
            "Pong",
            "e 11 None ok",
        ];
        for size in [1, 2, 3, 7, 64, 4_096] {
            assert_eq!(decode(text.as_bytes(), size).unwrap(), expected, "{size}");
        }
    }

    #[test]
    fn other_protocols_and_sizes_beyond_the_limits_are_errors() {
        for text in [
            "HTTP/1.1 400 Bad Request\r\n",
            "MSG a\r\n",
            "MSG a 1 -2\r\n",
            "MSG a 1 b c 2\r\n",
            "HMSG a 1 5 4\r\n",
            "MSG a 1 x 2 3\r\n",
            "\r\n",
            "MSG \u{fffd} x 1\r\n",
        ] {
            assert!(matches!(decode(text.as_bytes(), 5), Err(ProtocolError::Unknown(_))), "{text}");
        }
        assert!(matches!(decode(b"\xff\xfe\r\n", 1), Err(ProtocolError::Unknown(_))));
        let large = format!("MSG a 1 {}\r\n", MESSAGE_BYTES_MAX + 1);
        assert_eq!(decode(large.as_bytes(), 9), Err(ProtocolError::MessageTooLarge(MESSAGE_BYTES_MAX + 1)));
        let long = vec![b'x'; LINE_BYTES_MAX + 2];
        assert_eq!(decode(&long, 1_000), Err(ProtocolError::LineTooLong));
    }

    #[test]
    fn publications_have_their_sizes() {
        let mut out = Vec::new();
        write_publication(&mut out, "a.b", "", "", b"hi");
        write_publication(&mut out, "a", "r", "", b"");
        write_publication(&mut out, "a", "r", "NATS/1.0\r\nA: b\r\n\r\n", b"xyz");
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "PUB a.b 2\r\nhi\r\nPUB a r 0\r\n\r\nHPUB a r 18 21\r\nNATS/1.0\r\nA: b\r\n\r\nxyz\r\n"
        );
        for wrong in ["", "a b", "a\r\nPUB x 0", "a\t"] {
            assert!(!is_valid_subject(wrong), "{wrong:?}");
        }
        assert!(is_valid_subject("$JS.API.>") && is_valid_subject("a.*"));
    }
}
