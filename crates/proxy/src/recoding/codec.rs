//! The change of coding of one response: an encoder or a decoder between the pieces that a server sends and what its
//! client gets. It holds one read at most.

use std::io;

use content::compress::Encoder;
use content::decompress::Decoder;
use content::memory_budget::MemoryPermit;

/// Maximum number of bytes that are decoded at a time.
const DECODED_STEP_BYTES: usize = 64 * 1024;

#[derive(Debug)]
pub(crate) struct Recoding {
    codec: Codec,
    /// True if the server has sent everything.
    is_received: bool,
}

#[derive(Debug)]
enum Codec {
    Encoder {
        encoder: Box<Encoder>,
        _permit: MemoryPermit,
        /// True if the encoder may hold content back.
        has_held_content: bool,
        /// True if nothing is held back, whether the server pauses or not.
        flushes_always: bool,
    },
    Decoder {
        decoder: Box<Decoder>,
        _permit: MemoryPermit,
        /// Received content, and the number of its bytes that were decoded.
        input: Vec<u8>,
        used: usize,
        /// True if the decoder may return more without further input.
        has_more: bool,
    },
    /// The content has ended, and its memory is returned.
    Ended,
}

impl Recoding {
    /// Encodes content; with `flushes_always`, each part of it at once.
    pub(crate) fn encode(encoder: Encoder, permit: MemoryPermit, flushes_always: bool) -> Self {
        let encoder = Box::new(encoder);
        let codec = Codec::Encoder { encoder, _permit: permit, has_held_content: false, flushes_always };
        Self { codec, is_received: false }
    }

    pub(crate) fn decode(decoder: Decoder, permit: MemoryPermit) -> Self {
        let decoder = Box::new(decoder);
        let codec = Codec::Decoder { decoder, _permit: permit, input: Vec::new(), used: 0, has_more: false };
        Self { codec, is_received: false }
    }

    pub(crate) fn is_encoding(&self) -> bool {
        matches!(self.codec, Codec::Encoder { .. })
    }

    /// Takes a piece of content.
    ///
    /// # Errors
    /// Those of the library.
    pub(crate) fn write(&mut self, content: &[u8]) -> io::Result<()> {
        match &mut self.codec {
            Codec::Encoder { encoder, has_held_content, .. } => {
                *has_held_content |= !content.is_empty();
                encoder.write(content)
            }
            Codec::Decoder { input, .. } => {
                input.extend_from_slice(content);
                Ok(())
            }
            Codec::Ended => Ok(()),
        }
    }

    /// Notes that the server has sent everything.
    pub(crate) fn end_input(&mut self) {
        self.is_received = true;
    }

    /// Returns whether [`Recoding::take_output`] has something without further content.
    pub(crate) fn has_output(&self) -> bool {
        match &self.codec {
            Codec::Decoder { input, used, has_more, .. } => *used < input.len() || *has_more,
            Codec::Encoder { .. } | Codec::Ended => false,
        }
    }

    /// Encodes what was held back. Returns whether there was something.
    ///
    /// # Errors
    /// Those of the library.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        match &mut self.codec {
            Codec::Encoder { encoder, has_held_content, .. } if *has_held_content => {
                *has_held_content = false;
                encoder.flush().map(|()| true)
            }
            _ => Ok(false),
        }
    }

    /// Appends what the client gets next to `out`. Returns whether nothing follows.
    ///
    /// # Errors
    /// The content of the server is malformed or incomplete, or the library has failed.
    pub(crate) fn take_output(&mut self, out: &mut Vec<u8>) -> io::Result<bool> {
        match &mut self.codec {
            Codec::Encoder { .. } if self.is_received => {
                if let Codec::Encoder { encoder, _permit, .. } =
                    std::mem::replace(&mut self.codec, Codec::Ended)
                {
                    encoder.finish(out)?;
                }
                Ok(true)
            }
            Codec::Encoder { encoder, has_held_content, flushes_always, .. } => {
                if *flushes_always && std::mem::take(has_held_content) {
                    encoder.flush()?;
                }
                encoder.take_output(out);
                Ok(false)
            }
            Codec::Decoder { decoder, input, used, has_more, .. } => {
                let start = out.len();
                out.resize(start + DECODED_STEP_BYTES, 0);
                let decoded = decoder.decode(&input[*used..], &mut out[start..])?;
                out.truncate(start + decoded.written);
                if decoded.consumed + decoded.written == 0 && *used < input.len() {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                *used += decoded.consumed;
                *has_more = decoded.written == DECODED_STEP_BYTES;
                if *used == input.len() {
                    input.clear();
                    *used = 0;
                }
                let is_last = self.is_received && input.is_empty() && !*has_more;
                if is_last && !decoder.is_complete() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                if is_last {
                    self.codec = Codec::Ended;
                }
                Ok(is_last)
            }
            Codec::Ended => Ok(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use content::codings::Coding;
    use content::compress::levels_of;
    use content::memory_budget::MemoryBudget;

    use super::*;

    /// Returns everything that the client gets for pieces.
    fn output(recoding: &mut Recoding, pieces: &[&[u8]]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        for piece in pieces {
            recoding.write(piece)?;
            recoding.take_output(&mut out)?;
            while recoding.has_output() {
                recoding.take_output(&mut out)?;
            }
        }
        recoding.end_input();
        while !recoding.take_output(&mut out)? {}
        Ok(out)
    }

    #[test]
    fn a_decoder_returns_what_an_encoder_took_and_both_return_their_memory() {
        let budget = Rc::new(MemoryBudget::new(u64::MAX));
        let content = b"weir ".repeat(100_000);
        for coding in Coding::ALL {
            let permit = || budget.acquire(10).unwrap();
            let encoder = Encoder::new(coding, levels_of(coding).0, None).unwrap();
            let pieces: Vec<&[u8]> = content.chunks(30_000).collect();
            let coded = output(&mut Recoding::encode(encoder, permit(), false), &pieces).unwrap();
            assert!(coded.len() < content.len() / 10);
            let pieces: Vec<&[u8]> = coded.chunks(100).collect();
            let mut decoding = Recoding::decode(Decoder::new(coding).unwrap(), permit());
            assert!(output(&mut decoding, &pieces).unwrap() == content, "{coding:?}");
            assert_eq!(budget.used_bytes(), 0, "its memory is returned before the client has read");
            let mut decoding = Recoding::decode(Decoder::new(coding).unwrap(), permit());
            assert_eq!(output(&mut decoding, &[]).unwrap(), b"", "{coding:?}: content without a byte");
            let mut decoding = Recoding::decode(Decoder::new(coding).unwrap(), permit());
            let cut = output(&mut decoding, &[&coded[..coded.len() - 1]]);
            assert_eq!(cut.unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "{coding:?}");
        }
    }
}
