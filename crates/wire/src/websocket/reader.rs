//! Reader of frames and messages, for both ends. It takes bytes in any pieces and holds at most one message.

use std::fmt;

use super::{CONTROL_BYTES_MAX, Opcode, apply_mask};

/// End of the connection that reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Frames of a server, which are not masked.
    Client,
    /// Frames of a client, which are masked.
    Server,
}

/// A complete message or control frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<'a> {
    /// Message; text is valid UTF-8.
    Message {
        is_binary: bool,
        content: &'a [u8],
    },
    Ping(&'a [u8]),
    Pong(&'a [u8]),
    /// Close with its code; `None`: it has none. Later bytes are ignored.
    Close(Option<u16>),
}

/// Violation of the protocol, or of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WebSocketFault {
    /// A reserved bit is set, though no extension was agreed on.
    ReservedBits,
    Opcode,
    Masked,
    /// The frame of a client is not masked.
    NotMasked,
    /// A control frame is fragmented, or longer than 125 bytes.
    ControlFrame,
    /// A continuation without a message, or a new message within one.
    Fragmentation,
    /// The length has its highest bit set, or more bytes than it needs.
    Length,
    /// The message is longer than the limit.
    TooLarge,
    /// A text or the reason of a close is not UTF-8.
    NotUtf8,
    /// The content of a close has one byte, or a code that must not be sent.
    CloseCode,
}

impl WebSocketFault {
    pub fn name(self) -> &'static str {
        match self {
            Self::ReservedBits => "reserved_bits",
            Self::Opcode => "opcode",
            Self::Masked => "masked",
            Self::NotMasked => "not_masked",
            Self::ControlFrame => "control_frame",
            Self::Fragmentation => "fragmentation",
            Self::Length => "length",
            Self::TooLarge => "too_large",
            Self::NotUtf8 => "not_utf8",
            Self::CloseCode => "close_code",
        }
    }

    pub fn doc(self) -> &'static str {
        match self {
            Self::ReservedBits => "a reserved bit of a frame is set without an extension",
            Self::Opcode => "the opcode of a frame is reserved",
            Self::Masked => "a frame of the server is masked",
            Self::NotMasked => "a frame of the client is not masked",
            Self::ControlFrame => "a control frame is fragmented or longer than 125 bytes",
            Self::Fragmentation => "a fragment belongs to no message, or a message begins within another",
            Self::Length => "the length of a frame is not in its shortest form",
            Self::TooLarge => "a message is longer than the limit",
            Self::NotUtf8 => "a text or the reason of a close is not UTF-8",
            Self::CloseCode => "a close code is incomplete or must not be sent",
        }
    }

    /// Returns the code with which its connection is closed (RFC 6455 §7.4.1).
    pub fn close_code(self) -> u16 {
        match self {
            Self::TooLarge => 1009,
            Self::NotUtf8 => 1007,
            _ => 1002,
        }
    }
}

impl fmt::Display for WebSocketFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::error::Error for WebSocketFault {}

/// Returns whether an endpoint may send a close code (RFC 6455 §7.4, and the registry of IANA).
pub fn is_valid_close_code(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

/// Maximum length of the head of a frame.
const HEAD_BYTES_MAX: usize = 14;
/// Memory that the buffer of a message keeps between messages.
const KEPT_BYTES_MAX: usize = 16 * 1024;

/// Frame whose content is being read.
#[derive(Clone, Copy, Debug)]
struct OpenFrame {
    opcode: Opcode,
    is_last: bool,
    mask: Option<[u8; 4]>,
    missing: u64,
}

#[derive(Clone, Debug)]
pub struct MessageReader {
    role: Role,
    message_bytes_max: u64,
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: usize,
    frame: Option<OpenFrame>,
    /// Opcode of the message whose fragments have arrived.
    open_message: Option<Opcode>,
    /// Content of the message so far, or of one that was returned.
    message: Vec<u8>,
    control: Vec<u8>,
    is_message_returned: bool,
    is_closed: bool,
}

impl MessageReader {
    /// Creates the reader of a connection, whose messages have at most `message_bytes_max` bytes.
    #[must_use]
    pub fn new(role: Role, message_bytes_max: u64) -> Self {
        Self {
            role,
            message_bytes_max,
            head: [0; HEAD_BYTES_MAX],
            head_bytes: 0,
            frame: None,
            open_message: None,
            message: Vec::new(),
            control: Vec::new(),
            is_message_returned: false,
            is_closed: false,
        }
    }

    /// Returns whether a frame or a message has begun and is not complete.
    pub fn is_within_message(&self) -> bool {
        self.head_bytes > 0 || self.frame.is_some() || self.open_message.is_some()
    }

    /// Reads until the next message or control frame. Returns it, or `None` if `input` is used up.
    ///
    /// # Errors
    /// The peer violated the protocol or a limit; the reader must not be used again.
    pub fn read(&mut self, input: &mut &[u8]) -> Result<Option<Received<'_>>, WebSocketFault> {
        if std::mem::take(&mut self.is_message_returned) {
            self.message.clear();
            self.message.shrink_to(KEPT_BYTES_MAX);
        }
        loop {
            if self.is_closed {
                *input = &[];
                return Ok(None);
            }
            let Some(mut frame) = self.frame.take() else {
                match self.read_head(input)? {
                    Some(frame) => {
                        self.frame = Some(frame);
                        continue;
                    }
                    None => return Ok(None),
                }
            };
            self.read_content(&mut frame, input);
            if frame.missing > 0 {
                self.frame = Some(frame);
                return Ok(None);
            }
            if frame.opcode.is_control() {
                return self.end_control(frame.opcode).map(Some);
            }
            if frame.is_last {
                return self.end_message().map(Some);
            }
        }
    }

    /// Reads the head of a frame; `None` if it is incomplete.
    fn read_head(&mut self, input: &mut &[u8]) -> Result<Option<OpenFrame>, WebSocketFault> {
        loop {
            let needed = self.head_length();
            if self.head_bytes == needed {
                self.head_bytes = 0;
                return self.begin_frame().map(Some);
            }
            let Some((&byte, rest)) = input.split_first() else { return Ok(None) };
            *input = rest;
            self.head[self.head_bytes] = byte;
            self.head_bytes += 1;
            if self.head_bytes == 2 {
                self.check_first_bytes()?;
            }
        }
    }

    /// Returns the length of the head, as far as its bytes show it; at least 2.
    fn head_length(&self) -> usize {
        if self.head_bytes < 2 {
            return 2;
        }
        let length_bytes = match self.head[1] & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        2 + length_bytes + if self.head[1] & 0x80 != 0 { 4 } else { 0 }
    }

    /// Checks what the first two bytes decide, before a length is awaited.
    fn check_first_bytes(&self) -> Result<(), WebSocketFault> {
        let [first, second, ..] = self.head;
        if first & 0x70 != 0 {
            return Err(WebSocketFault::ReservedBits);
        }
        let opcode = Opcode::from_bits(first & 0x0f).ok_or(WebSocketFault::Opcode)?;
        match (self.role, second & 0x80 != 0) {
            (Role::Client, true) => return Err(WebSocketFault::Masked),
            (Role::Server, false) => return Err(WebSocketFault::NotMasked),
            _ => {}
        }
        let is_last = first & 0x80 != 0;
        if opcode.is_control() && (!is_last || usize::from(second & 0x7f) > CONTROL_BYTES_MAX) {
            return Err(WebSocketFault::ControlFrame);
        }
        let continues = opcode == Opcode::Continuation;
        if !opcode.is_control() && continues != self.open_message.is_some() {
            return Err(WebSocketFault::Fragmentation);
        }
        Ok(())
    }

    fn begin_frame(&mut self) -> Result<OpenFrame, WebSocketFault> {
        let [first, second, rest @ ..] = self.head;
        // The first bytes were checked before.
        let opcode = Opcode::from_bits(first & 0x0f).ok_or(WebSocketFault::Opcode)?;
        let (length, length_bytes, is_minimal) = match second & 0x7f {
            126 => {
                let length = u64::from(u16::from_be_bytes([rest[0], rest[1]]));
                (length, 2, length > 125)
            }
            127 => {
                let [a, b, c, d, e, f, g, h, ..] = rest;
                let length = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
                (length, 8, length > 0xffff && length >> 63 == 0)
            }
            short => (u64::from(short), 0, true),
        };
        if !is_minimal {
            return Err(WebSocketFault::Length);
        }
        if !opcode.is_control() {
            let total = (self.message.len() as u64).saturating_add(length);
            if total > self.message_bytes_max {
                return Err(WebSocketFault::TooLarge);
            }
            if opcode != Opcode::Continuation {
                self.open_message = Some(opcode);
            }
        } else {
            self.control.clear();
        }
        let mask = &rest[length_bytes..length_bytes + 4];
        let mask = (second & 0x80 != 0).then(|| [mask[0], mask[1], mask[2], mask[3]]);
        Ok(OpenFrame { opcode, is_last: first & 0x80 != 0, mask, missing: length })
    }

    fn read_content(&mut self, frame: &mut OpenFrame, input: &mut &[u8]) {
        let taken = usize::try_from(frame.missing).map_or(input.len(), |missing| missing.min(input.len()));
        let (content, rest) = input.split_at(taken);
        *input = rest;
        frame.missing -= taken as u64;
        let buffer = if frame.opcode.is_control() { &mut self.control } else { &mut self.message };
        let from = buffer.len();
        buffer.extend_from_slice(content);
        if let Some(mask) = &mut frame.mask {
            apply_mask(&mut buffer[from..], *mask, 0);
            mask.rotate_left(taken % 4);
        }
    }

    fn end_message(&mut self) -> Result<Received<'_>, WebSocketFault> {
        let is_binary = self.open_message.take() == Some(Opcode::Binary);
        self.is_message_returned = true;
        if !is_binary && std::str::from_utf8(&self.message).is_err() {
            return Err(WebSocketFault::NotUtf8);
        }
        Ok(Received::Message { is_binary, content: &self.message })
    }

    fn end_control(&mut self, opcode: Opcode) -> Result<Received<'_>, WebSocketFault> {
        let content = self.control.as_slice();
        match opcode {
            Opcode::Ping => return Ok(Received::Ping(content)),
            Opcode::Pong => return Ok(Received::Pong(content)),
            _ => {}
        }
        self.is_closed = true;
        let (code, reason) = match content {
            [] => return Ok(Received::Close(None)),
            [_] => return Err(WebSocketFault::CloseCode),
            [high, low, reason @ ..] => (u16::from_be_bytes([*high, *low]), reason),
        };
        if !is_valid_close_code(code) {
            return Err(WebSocketFault::CloseCode);
        }
        std::str::from_utf8(reason).map_err(|_| WebSocketFault::NotUtf8)?;
        Ok(Received::Close(Some(code)))
    }
}
