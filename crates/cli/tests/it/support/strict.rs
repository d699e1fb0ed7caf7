//! A second opinion on HTTP/1.1: a reader that accepts only what nobody could read in two ways. It
//! shares no code with weir, and is slow and plain on purpose.
//!
//! Not a client or a server: it reads messages from a stream and keeps their bytes.

use std::fmt;
use std::io::{self, Read};
use std::net::TcpStream;

/// How a body was delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    None,
    Length(usize),
    Chunked,
    UntilClose,
}

/// One message, with its content taken out of its framing.
#[derive(Clone)]
pub(crate) struct Message {
    /// The start line, without its CRLF.
    pub(crate) start: String,
    /// Names as they were sent, values without surrounding whitespace.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) framing: Framing,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
}

/// Why there is no message.
pub(crate) enum Wrong {
    /// The connection ended between two messages.
    Over,
    /// It ended within one. What the message would have been, as far as it is known.
    Truncated(String),
    /// These bytes could be read in two ways, or in none.
    Ambiguous(String),
    /// Nothing came in time.
    Silent,
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?} {:?} ", self.start, self.fields, self.framing)?;
        write!(f, "{} trailers {:?}", digest(&self.body), self.trailers)
    }
}

impl fmt::Debug for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Over => f.write_str("the end of the connection"),
            Self::Truncated(what) => write!(f, "the end within a message: {what}"),
            Self::Ambiguous(what) => write!(f, "ambiguous bytes: {what}"),
            Self::Silent => f.write_str("nothing in time"),
        }
    }
}

impl Message {
    /// A word of the start line.
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

    /// The values of all fields with this name, whatever its case.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let named = self.fields.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    }

    /// The value of the only field with this name; `None` as well when there are several.
    pub(crate) fn one(&self, name: &str) -> Option<&str> {
        match self.all(name)[..] {
            [value] => Some(value),
            _ => None,
        }
    }

    /// Whether a list field has this member.
    pub(crate) fn lists(&self, name: &str, member: &str) -> bool {
        let members = self.all(name).into_iter().flat_map(|value| value.split(','));
        members.into_iter().any(|other| other.trim().eq_ignore_ascii_case(member))
    }

    /// Whether more can follow on its connection.
    pub(crate) fn persists(&self) -> bool {
        let old = self.start.contains("HTTP/1.0");
        self.framing != Framing::UntilClose
            && !self.lists("connection", "close")
            && (!old || self.lists("connection", "keep-alive"))
    }
}

/// Length and FNV-1a hash: what a failure prints of a body.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, step);
    format!("{} bytes ({hash:016x})", bytes.len())
}

/// Bytes as text, cut to what a person reads.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(160)];
    let more = if cut.len() < bytes.len() { "…" } else { "" };
    format!("{}{more}", cut.escape_ascii())
}

/// Messages from one direction of a connection.
#[derive(Debug)]
pub(crate) struct Reader {
    stream: TcpStream,
    buffered: Vec<u8>,
}

impl Reader {
    pub(crate) fn new(stream: &TcpStream) -> Self {
        Self { stream: stream.try_clone().unwrap(), buffered: Vec::new() }
    }

    /// What came after the last message and was read with it.
    pub(crate) fn take_buffered(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffered)
    }

    /// Everything up to the end of the connection.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        while self.more().is_ok_and(|length| length > 0) {}
        self.take_buffered()
    }

    /// The head of the next request, with its framing, and no body yet.
    pub(crate) fn request_head(&mut self) -> Result<Message, Wrong> {
        let mut message = self.head()?;
        check_request(&message).map_err(|why| ambiguous(&why, &message))?;
        message.framing = framing(&message)?.unwrap_or(Framing::None);
        Ok(message)
    }

    /// The next request, whole.
    pub(crate) fn request(&mut self) -> Result<Message, Wrong> {
        let mut message = self.request_head()?;
        self.body(&mut message)?;
        Ok(message)
    }

    /// The next response, whole, interim or final; `method` is what it answers.
    pub(crate) fn response(&mut self, method: &str) -> Result<Message, Wrong> {
        let mut message = self.response_head(method)?;
        self.body(&mut message)?;
        Ok(message)
    }

    /// The head of the next response, with its framing, and no body yet.
    pub(crate) fn response_head(&mut self, method: &str) -> Result<Message, Wrong> {
        let mut message = self.head()?;
        check_status_line(&message.start).map_err(|why| ambiguous(&why, &message))?;
        let said = framing(&message)?;
        let empty = method == "HEAD" || matches!(message.status(), 100..=199 | 204 | 304);
        message.framing = match said {
            _ if empty => Framing::None,
            Some(framing) => framing,
            None => Framing::UntilClose,
        };
        Ok(message)
    }

    /// The final response, and the interim ones before it.
    pub(crate) fn answer(&mut self, method: &str) -> Result<(Vec<Message>, Message), Wrong> {
        let mut interim = Vec::new();
        loop {
            let message = self.response(method)?;
            if message.status() >= 200 || message.status() == 101 {
                return Ok((interim, message));
            }
            interim.push(message);
        }
    }

    /// Reads what a message's framing says.
    pub(crate) fn body(&mut self, message: &mut Message) -> Result<(), Wrong> {
        let start = message.start.clone();
        let truncated = |wrong| match wrong {
            Wrong::Over => Wrong::Truncated(start.clone()),
            other => other,
        };
        match message.framing {
            Framing::None => Ok(()),
            Framing::Length(length) => {
                message.body = self.exactly(length).map_err(truncated)?;
                Ok(())
            }
            Framing::UntilClose => loop {
                match self.more() {
                    Ok(0) => {
                        message.body = self.take_buffered();
                        return Ok(());
                    }
                    Ok(_) => {}
                    Err(error) => return Err(of_io(&error, &start)),
                }
            },
            Framing::Chunked => self.chunks(message).map_err(truncated),
        }
    }

    fn chunks(&mut self, message: &mut Message) -> Result<(), Wrong> {
        loop {
            let line = self.line()?;
            let fits =
                (1..=16).contains(&line.len()) && line.bytes().all(|b| b.is_ascii_hexdigit());
            if !fits {
                return Err(ambiguous(&format!("chunk size {line:?}"), message));
            }
            let size = usize::from_str_radix(&line, 16).unwrap();
            if size == 0 {
                break;
            }
            message.body.extend(self.exactly(size)?);
            if self.exactly(2)? != b"\r\n" {
                return Err(ambiguous("no CRLF after a chunk", message));
            }
        }
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(());
            }
            let field = field(&line).map_err(|why| ambiguous(&why, message))?;
            let forbidden = ["content-length", "transfer-encoding", "host"];
            if forbidden.contains(&field.0.to_ascii_lowercase().as_str()) {
                return Err(ambiguous(&format!("trailer {line:?}"), message));
            }
            message.trailers.push(field);
        }
    }

    fn head(&mut self) -> Result<Message, Wrong> {
        let end = loop {
            if let Some(at) = self.buffered.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            let so_far = shown(&self.buffered);
            match self.more() {
                Ok(0) if self.buffered.is_empty() => return Err(Wrong::Over),
                Ok(0) => return Err(Wrong::Truncated(so_far)),
                Ok(_) => {}
                Err(error) => return Err(of_io(&error, &so_far)),
            }
        };
        let bytes: Vec<u8> = self.buffered.drain(..end).collect();
        let text = bytes[..end - 4].iter().map(|byte| char::from(*byte)).collect::<String>();
        let wrong = |why: &str| Wrong::Ambiguous(format!("{why}: {}", shown(&bytes)));
        let mut lines = text.split("\r\n");
        let start = lines.next().unwrap_or("").to_owned();
        let mut fields = Vec::new();
        for line in lines {
            fields.push(field(line).map_err(|why| wrong(&why))?);
        }
        let (framing, body, trailers) = (Framing::None, Vec::new(), Vec::new());
        Ok(Message { start, fields, framing, body, trailers })
    }

    fn line(&mut self) -> Result<String, Wrong> {
        loop {
            if let Some(at) = self.buffered.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffered.drain(..=at).collect();
                return match line.strip_suffix(b"\r\n") {
                    Some(line) => Ok(line.iter().map(|byte| char::from(*byte)).collect()),
                    None => Err(Wrong::Ambiguous(format!("bare LF: {}", shown(&line)))),
                };
            }
            self.some()?;
        }
    }

    fn exactly(&mut self, length: usize) -> Result<Vec<u8>, Wrong> {
        while self.buffered.len() < length {
            self.some()?;
        }
        Ok(self.buffered.drain(..length).collect())
    }

    fn some(&mut self) -> Result<(), Wrong> {
        match self.more() {
            Ok(0) => Err(Wrong::Over),
            Ok(_) => Ok(()),
            Err(error) => Err(of_io(&error, "within a body")),
        }
    }

    /// Reads more; 0 at the end of the connection, which a reset is too.
    fn more(&mut self) -> io::Result<usize> {
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

fn of_io(error: &io::Error, during: &str) -> Wrong {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Wrong::Silent,
        _ => Wrong::Truncated(format!("{error} {during}")),
    }
}

fn ambiguous(why: &str, message: &Message) -> Wrong {
    Wrong::Ambiguous(format!("{why}: {:?} {:?}", message.start, message.fields))
}

pub(crate) fn is_token(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(fits)
}

fn field(line: &str) -> Result<(String, String), String> {
    let (name, value) = line.split_once(':').ok_or_else(|| format!("no colon in {line:?}"))?;
    if !is_token(name) {
        return Err(format!("field name {name:?}"));
    }
    if value.chars().any(|one| (one < ' ' && one != '\t') || one == '\x7f') {
        return Err(format!("control in {line:?}"));
    }
    Ok((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()))
}

fn check_request(message: &Message) -> Result<(), String> {
    let words: Vec<&str> = message.start.split(' ').collect();
    let [method, target, version] = words[..] else {
        return Err("not three words".to_owned());
    };
    let plain = !target.is_empty() && target.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_token(method) || !plain || !["HTTP/1.1", "HTTP/1.0"].contains(&version) {
        return Err("request line".to_owned());
    }
    match message.all("host")[..] {
        [host] if host.bytes().all(|byte| byte.is_ascii_graphic() && !b"/,@".contains(&byte)) => {}
        [] if version == "HTTP/1.0" => {}
        _ => return Err("Host".to_owned()),
    }
    Ok(())
}

fn check_status_line(start: &str) -> Result<(), String> {
    let rest = start.strip_prefix("HTTP/1.1 ").or_else(|| start.strip_prefix("HTTP/1.0 "));
    let status = rest.and_then(|rest| rest.get(..3)).and_then(|code| code.parse::<u16>().ok());
    let controls = start.chars().any(|one| one < ' ' || one == '\x7f');
    let spaced = rest.is_some_and(|rest| matches!(rest.as_bytes().get(3), None | Some(b' ')));
    match status {
        Some(100..=999) if spaced && !controls => Ok(()),
        _ => Err("status line".to_owned()),
    }
}

/// What the fields say; `None`: nothing.
fn framing(message: &Message) -> Result<Option<Framing>, Wrong> {
    let wrong = |why| Err(ambiguous(why, message));
    match (&message.all("content-length")[..], &message.all("transfer-encoding")[..]) {
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
