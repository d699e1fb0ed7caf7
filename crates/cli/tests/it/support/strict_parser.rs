//! An independent reader of HTTP/1.1 that accepts only unambiguous messages. It shares no code with
//! weir, and is deliberately slow and simple.
//!
//! It is no client or server: it reads messages from a stream and keeps their bytes.

use std::fmt;
use std::io::{self, Read};
use std::net::TcpStream;

/// Delimiter of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    None,
    Length(usize),
    Chunked,
    UntilClose,
}

/// One message, with its content taken out of its framing.
#[derive(Clone)]
pub(crate) struct StrictMessage {
    /// Start line, without its CRLF.
    pub(crate) start: String,
    /// Names as sent, values without surrounding whitespace.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) framing: Framing,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
}

/// Reason why there is no message.
pub(crate) enum ReadError {
    /// The connection ended between two messages.
    Closed,
    /// The connection ended within a message; contains the known part of the message.
    Truncated(String),
    /// These bytes have two meanings, or none.
    Ambiguous(String),
    /// Nothing arrived in time.
    TimedOut,
}

impl fmt::Debug for StrictMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?} {:?} ", self.start, self.fields, self.framing)?;
        write!(f, "{} trailers {:?}", digest(&self.body), self.trailers)
    }
}

impl fmt::Debug for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the end of the connection"),
            Self::Truncated(what) => write!(f, "the end within a message: {what}"),
            Self::Ambiguous(what) => write!(f, "ambiguous bytes: {what}"),
            Self::TimedOut => f.write_str("nothing in time"),
        }
    }
}

impl StrictMessage {
    /// Returns a word of the start line.
    fn word(&self, at: usize) -> &str {
        self.start.splitn(3, ' ').nth(at).unwrap_or("")
    }

    pub(crate) fn method(&self) -> &str {
        self.word(0)
    }

    pub(crate) fn target(&self) -> &str {
        self.word(1)
    }

    pub(crate) fn status(&self) -> u16 {
        self.word(1).parse().unwrap_or(0)
    }

    /// Returns the values of all fields with this name, ignoring case.
    pub(crate) fn values(&self, name: &str) -> Vec<&str> {
        let named = self.fields.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    }

    /// Returns the value of the only field with this name; `None` if there are several.
    pub(crate) fn single_value(&self, name: &str) -> Option<&str> {
        match self.values(name)[..] {
            [value] => Some(value),
            _ => None,
        }
    }

    /// Returns whether a list field has this member.
    pub(crate) fn list_contains(&self, name: &str, member: &str) -> bool {
        let members = self.values(name).into_iter().flat_map(|value| value.split(','));
        members.into_iter().any(|other| other.trim().eq_ignore_ascii_case(member))
    }

    /// Returns whether more messages can follow on its connection.
    pub(crate) fn persists(&self) -> bool {
        let old = self.start.contains("HTTP/1.0");
        self.framing != Framing::UntilClose
            && !self.list_contains("connection", "close")
            && (!old || self.list_contains("connection", "keep-alive"))
    }
}

/// Returns length and FNV-1a hash of a body, for the message of a failure.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, step);
    format!("{} bytes ({hash:016x})", bytes.len())
}

/// Formats bytes as text, cut to a readable length.
pub(crate) fn preview(bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(160)];
    let more = if cut.len() < bytes.len() { "…" } else { "" };
    format!("{}{more}", cut.escape_ascii())
}

/// Reader of the messages from one direction of a connection.
#[derive(Debug)]
pub(crate) struct StrictReader {
    stream: TcpStream,
    buffered: Vec<u8>,
}

impl StrictReader {
    pub(crate) fn new(stream: &TcpStream) -> Self {
        Self { stream: stream.try_clone().unwrap(), buffered: Vec::new() }
    }

    /// Returns the bytes after the last message that were read with it.
    pub(crate) fn take_buffered(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffered)
    }

    /// Returns all bytes up to the end of the connection.
    pub(crate) fn read_to_end(&mut self) -> Vec<u8> {
        while self.fill_buffer().is_ok_and(|length| length > 0) {}
        self.take_buffered()
    }

    /// Returns the head of the next request, with its framing and without its body.
    pub(crate) fn read_request_head(&mut self) -> Result<StrictMessage, ReadError> {
        let mut message = self.read_head()?;
        check_request(&message).map_err(|reason| ambiguous(&reason, &message))?;
        message.framing = framing(&message)?.unwrap_or(Framing::None);
        Ok(message)
    }

    /// Returns the next complete request.
    pub(crate) fn read_request(&mut self) -> Result<StrictMessage, ReadError> {
        let mut message = self.read_request_head()?;
        self.read_body(&mut message)?;
        Ok(message)
    }

    /// Returns the next complete response, interim or final; `method` is that of its request.
    pub(crate) fn read_any_response(&mut self, method: &str) -> Result<StrictMessage, ReadError> {
        let mut message = self.read_response_head(method)?;
        self.read_body(&mut message)?;
        Ok(message)
    }

    /// Returns the head of the next response, with its framing and without its body.
    pub(crate) fn read_response_head(&mut self, method: &str) -> Result<StrictMessage, ReadError> {
        let mut message = self.read_head()?;
        check_status_line(&message.start).map_err(|reason| ambiguous(&reason, &message))?;
        let status = framing(&message)?;
        let empty = method == "HEAD" || matches!(message.status(), 100..=199 | 204 | 304);
        message.framing = match status {
            _ if empty => Framing::None,
            Some(framing) => framing,
            None => Framing::UntilClose,
        };
        Ok(message)
    }

    /// Returns the interim responses and the final one.
    pub(crate) fn read_response(
        &mut self,
        method: &str,
    ) -> Result<(Vec<StrictMessage>, StrictMessage), ReadError> {
        let mut interim = Vec::new();
        loop {
            let message = self.read_any_response(method)?;
            if message.status() >= 200 || message.status() == 101 {
                return Ok((interim, message));
            }
            interim.push(message);
        }
    }

    /// Reads a body by the framing of its message.
    pub(crate) fn read_body(&mut self, message: &mut StrictMessage) -> Result<(), ReadError> {
        let start = message.start.clone();
        let truncated = |wrong| match wrong {
            ReadError::Closed => ReadError::Truncated(start.clone()),
            other => other,
        };
        match message.framing {
            Framing::None => Ok(()),
            Framing::Length(length) => {
                message.body = self.read_exactly(length).map_err(truncated)?;
                Ok(())
            }
            Framing::UntilClose => loop {
                match self.fill_buffer() {
                    Ok(0) => {
                        message.body = self.take_buffered();
                        return Ok(());
                    }
                    Ok(_) => {}
                    Err(error) => return Err(io_failure(&error, &start)),
                }
            },
            Framing::Chunked => self.read_chunks(message).map_err(truncated),
        }
    }

    fn read_chunks(&mut self, message: &mut StrictMessage) -> Result<(), ReadError> {
        loop {
            let line = self.read_line()?;
            let fits = (1..=16).contains(&line.len()) && line.bytes().all(|b| b.is_ascii_hexdigit());
            if !fits {
                return Err(ambiguous(&format!("chunk size {line:?}"), message));
            }
            let size = usize::from_str_radix(&line, 16).unwrap();
            if size == 0 {
                break;
            }
            message.body.extend(self.read_exactly(size)?);
            if self.read_exactly(2)? != b"\r\n" {
                return Err(ambiguous("no CRLF after a chunk", message));
            }
        }
        loop {
            let line = self.read_line()?;
            if line.is_empty() {
                return Ok(());
            }
            let field = parse_field(&line).map_err(|reason| ambiguous(&reason, message))?;
            let forbidden = ["content-length", "transfer-encoding", "host"];
            if forbidden.contains(&field.0.to_ascii_lowercase().as_str()) {
                return Err(ambiguous(&format!("trailer {line:?}"), message));
            }
            message.trailers.push(field);
        }
    }

    fn read_head(&mut self) -> Result<StrictMessage, ReadError> {
        let end = loop {
            if let Some(at) = self.buffered.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            let so_far = preview(&self.buffered);
            match self.fill_buffer() {
                Ok(0) if self.buffered.is_empty() => return Err(ReadError::Closed),
                Ok(0) => return Err(ReadError::Truncated(so_far)),
                Ok(_) => {}
                Err(error) => return Err(io_failure(&error, &so_far)),
            }
        };
        let bytes: Vec<u8> = self.buffered.drain(..end).collect();
        let text = bytes[..end - 4].iter().map(|byte| char::from(*byte)).collect::<String>();
        let ambiguous_head = |reason: &str| ReadError::Ambiguous(format!("{reason}: {}", preview(&bytes)));
        let mut lines = text.split("\r\n");
        let start = lines.next().unwrap_or("").to_owned();
        let mut fields = Vec::new();
        for line in lines {
            fields.push(parse_field(line).map_err(|reason| ambiguous_head(&reason))?);
        }
        let (framing, body, trailers) = (Framing::None, Vec::new(), Vec::new());
        Ok(StrictMessage { start, fields, framing, body, trailers })
    }

    fn read_line(&mut self) -> Result<String, ReadError> {
        loop {
            if let Some(at) = self.buffered.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffered.drain(..=at).collect();
                return match line.strip_suffix(b"\r\n") {
                    Some(line) => Ok(line.iter().map(|byte| char::from(*byte)).collect()),
                    None => Err(ReadError::Ambiguous(format!("bare LF: {}", preview(&line)))),
                };
            }
            self.read_some()?;
        }
    }

    /// Returns exactly `length` bytes.
    pub(crate) fn read_exactly(&mut self, length: usize) -> Result<Vec<u8>, ReadError> {
        while self.buffered.len() < length {
            self.read_some()?;
        }
        Ok(self.buffered.drain(..length).collect())
    }

    fn read_some(&mut self) -> Result<(), ReadError> {
        match self.fill_buffer() {
            Ok(0) => Err(ReadError::Closed),
            Ok(_) => Ok(()),
            Err(error) => Err(io_failure(&error, "within a body")),
        }
    }

    /// Reads more bytes; returns 0 at the end of the connection, which a reset is too.
    fn fill_buffer(&mut self) -> io::Result<usize> {
        let mut bytes = [0; 64 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(length) => {
                self.buffered.extend_from_slice(&bytes[..length]);
                Ok(length)
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(0),
            Err(error) => Err(error),
        }
    }
}

fn io_failure(error: &io::Error, during: &str) -> ReadError {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ReadError::TimedOut,
        _ => ReadError::Truncated(format!("{error} {during}")),
    }
}

fn ambiguous(reason: &str, message: &StrictMessage) -> ReadError {
    ReadError::Ambiguous(format!("{reason}: {:?} {:?}", message.start, message.fields))
}

pub(crate) fn is_token(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(fits)
}

fn parse_field(line: &str) -> Result<(String, String), String> {
    let (name, value) = line.split_once(':').ok_or_else(|| format!("no colon in {line:?}"))?;
    if !is_token(name) {
        return Err(format!("field name {name:?}"));
    }
    if value.chars().any(|character| (character < ' ' && character != '\t') || character == '\x7f') {
        return Err(format!("control in {line:?}"));
    }
    Ok((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()))
}

fn check_request(message: &StrictMessage) -> Result<(), String> {
    let words: Vec<&str> = message.start.split(' ').collect();
    let [method, target, version] = words[..] else {
        return Err("not three words".to_owned());
    };
    let plain = !target.is_empty() && target.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_token(method) || !plain || !["HTTP/1.1", "HTTP/1.0"].contains(&version) {
        return Err("request line".to_owned());
    }
    match message.values("host")[..] {
        [host] if host.bytes().all(|byte| byte.is_ascii_graphic() && !b"/,@".contains(&byte)) => {}
        [] if version == "HTTP/1.0" => {}
        _ => return Err("Host".to_owned()),
    }
    Ok(())
}

fn check_status_line(start: &str) -> Result<(), String> {
    let rest = start.strip_prefix("HTTP/1.1 ").or_else(|| start.strip_prefix("HTTP/1.0 "));
    let status = rest.and_then(|rest| rest.get(..3)).and_then(|code| code.parse::<u16>().ok());
    let controls = start.chars().any(|character| character < ' ' || character == '\x7f');
    let spaced = rest.is_some_and(|rest| matches!(rest.as_bytes().get(3), None | Some(b' ')));
    match status {
        Some(100..=999) if spaced && !controls => Ok(()),
        _ => Err("status line".to_owned()),
    }
}

/// Returns the framing by the header fields; `None`: the fields contain none.
fn framing(message: &StrictMessage) -> Result<Option<Framing>, ReadError> {
    let wrong = |reason| Err(ambiguous(reason, message));
    match (&message.values("content-length")[..], &message.values("transfer-encoding")[..]) {
        ([], []) => Ok(None),
        ([length], []) if !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit()) => {
            match length.parse() {
                Ok(length) => Ok(Some(Framing::Length(length))),
                Err(_) => wrong("Content-Length"),
            }
        }
        ([], [coding]) if coding.eq_ignore_ascii_case("chunked") => {
            let old = message.start.contains("HTTP/1.0");
            if old { wrong("chunks in 1.0") } else { Ok(Some(Framing::Chunked)) }
        }
        _ => wrong("framing"),
    }
}
