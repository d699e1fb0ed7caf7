//! WebSocket (RFC 6455), both ends, without extensions: the handshake, frames and messages. Sans-I/O.

mod handshake;
mod reader;

pub use handshake::{GUID, HandshakeFault, accept_value, check_connect_response, check_response, key_value};
pub use reader::{MessageReader, Received, Role, WebSocketFault, is_valid_close_code};

/// Operation of a frame (RFC 6455 §5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// Further fragment of a message.
    Continuation = 0,
    /// Text in UTF-8.
    Text = 1,
    Binary = 2,
    Close = 8,
    /// Ping, whose content the pong repeats.
    Ping = 9,
    Pong = 10,
}

impl Opcode {
    fn from_bits(bits: u8) -> Option<Self> {
        [Self::Continuation, Self::Text, Self::Binary, Self::Close, Self::Ping, Self::Pong]
            .into_iter()
            .find(|opcode| *opcode as u8 == bits)
    }

    fn is_control(self) -> bool {
        self as u8 >= 8
    }
}

/// Maximum length of the content of a control frame.
pub const CONTROL_BYTES_MAX: usize = 125;

/// Adds a frame with a complete message. A client has to mask it with a random key.
pub fn encode_frame(out: &mut Vec<u8>, opcode: Opcode, content: &[u8], mask: Option<[u8; 4]>) {
    encode_fragment(out, (opcode, true), content, mask);
}

/// Adds a frame; `is_last` is false if further fragments of its message follow.
pub fn encode_fragment(
    out: &mut Vec<u8>,
    (opcode, is_last): (Opcode, bool),
    content: &[u8],
    mask: Option<[u8; 4]>,
) {
    out.push(u8::from(is_last) << 7 | opcode as u8);
    let mask_bit = u8::from(mask.is_some()) << 7;
    match content.len() {
        length @ 0..=125 => out.push(mask_bit | length as u8),
        length @ 126..=0xffff => {
            out.push(mask_bit | 126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            out.push(mask_bit | 127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&mask.unwrap_or_default()[..if mask.is_some() { 4 } else { 0 }]);
    let from = out.len();
    out.extend_from_slice(content);
    if let Some(mask) = mask {
        apply_mask(&mut out[from..], mask, 0);
    }
}

/// Adds a close frame with a code, and no reason.
pub fn encode_close(out: &mut Vec<u8>, code: u16, mask: Option<[u8; 4]>) {
    encode_frame(out, Opcode::Close, &code.to_be_bytes(), mask);
}

/// Masks or unmasks bytes, the first of which is at `offset` of the frame's content.
pub fn apply_mask(bytes: &mut [u8], mask: [u8; 4], offset: usize) {
    let rotated: [u8; 4] = std::array::from_fn(|at| mask[(offset + at) % 4]);
    let mut words = bytes.chunks_exact_mut(4);
    for word in &mut words {
        word.iter_mut().zip(rotated).for_each(|(byte, mask)| *byte ^= mask);
    }
    words.into_remainder().iter_mut().zip(rotated).for_each(|(byte, mask)| *byte ^= mask);
}

#[cfg(test)]
mod tests;
