//! Content codings decoded on the fly: decoders of libraries behind one interface, with a bounded step, window and
//! ratio.

use std::io;

use brotli::enc::StandardAlloc;
use brotli::{BrotliDecompressStream, BrotliResult, BrotliState};
use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, Decoder as ZstdDecoder, Operation};

use crate::codings::Coding;

/// Maximum window of zstd, as a power of 2: 8 MiB (RFC 9659).
const ZSTD_WINDOW_BITS_MAX: u32 = 23;
/// Window of gzip, as a power of 2.
const GZIP_WINDOW_BITS: u8 = 15;
/// Maximum number of decoded bytes for each coded one; the first [`RATIO_FREE_BYTES`] do not count.
const RATIO_MAX: u64 = 1_000;
const RATIO_FREE_BYTES: u64 = 1 << 20;

/// Returns the memory of a decoder, at most: its window and its tables.
pub fn decoder_bytes(coding: Coding) -> u64 {
    match coding {
        Coding::Gzip => 64 << 10,
        Coding::Brotli => 17 << 20,
        Coding::Zstd => 9 << 20,
    }
}

pub struct Decoder {
    library: Library,
    in_bytes: u64,
    out_bytes: u64,
    /// True if what was decoded so far is complete.
    is_complete: bool,
}

enum Library {
    Gzip(Decompress),
    Brotli(Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>),
    Zstd(ZstdDecoder<'static>),
}

/// Result of [`Decoder::decode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    pub consumed: usize,
    pub written: usize,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").field("out_bytes", &self.out_bytes).finish_non_exhaustive()
    }
}

impl Decoder {
    /// # Errors
    /// The library has no memory left.
    pub fn new(coding: Coding) -> io::Result<Self> {
        let library = match coding {
            Coding::Gzip => Library::Gzip(Decompress::new_gzip(GZIP_WINDOW_BITS)),
            Coding::Brotli => {
                let alloc = StandardAlloc::default;
                Library::Brotli(Box::new(BrotliState::new_strict(alloc(), alloc(), alloc())))
            }
            Coding::Zstd => {
                let mut decoder = ZstdDecoder::new()?;
                decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_BITS_MAX))?;
                Library::Zstd(decoder)
            }
        };
        // Content without a byte has no coding, either.
        Ok(Self { library, in_bytes: 0, out_bytes: 0, is_complete: true })
    }

    /// Returns whether the content ends behind what was decoded.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Decodes a part of the content, as much as `out` takes. If `out` is full, more may follow without further input.
    ///
    /// # Errors
    /// The content is malformed, or too much for its size.
    pub fn decode(&mut self, input: &[u8], out: &mut [u8]) -> io::Result<Decoded> {
        if self.is_complete && input.is_empty() {
            return Ok(Decoded { consumed: 0, written: 0 });
        }
        let decoded = match &mut self.library {
            Library::Gzip(decoder) => {
                if self.is_complete && self.in_bytes > 0 {
                    // Another member (RFC 1952 §2.2).
                    *decoder = Decompress::new_gzip(GZIP_WINDOW_BITS);
                }
                let before = (decoder.total_in(), decoder.total_out());
                let status = decoder.decompress(input, out, FlushDecompress::None)?;
                self.is_complete = status == Status::StreamEnd;
                Decoded {
                    consumed: (decoder.total_in() - before.0) as usize,
                    written: (decoder.total_out() - before.1) as usize,
                }
            }
            Library::Brotli(state) => {
                let (mut left_in, mut consumed, mut left_out) = (input.len(), 0, out.len());
                let (mut written, mut total) = (0, 0);
                let result = BrotliDecompressStream(
                    &mut left_in,
                    &mut consumed,
                    input,
                    &mut left_out,
                    &mut written,
                    out,
                    &mut total,
                    state,
                );
                let is_over = matches!(result, BrotliResult::ResultSuccess);
                if matches!(result, BrotliResult::ResultFailure) || is_over && left_in > 0 {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                self.is_complete = is_over;
                Decoded { consumed, written }
            }
            Library::Zstd(decoder) => {
                let status = decoder.run_on_buffers(input, out)?;
                self.is_complete = status.remaining == 0;
                Decoded { consumed: status.bytes_read, written: status.bytes_written }
            }
        };
        self.in_bytes += decoded.consumed as u64;
        self.out_bytes += decoded.written as u64;
        if self.out_bytes > RATIO_FREE_BYTES.saturating_add(self.in_bytes.saturating_mul(RATIO_MAX)) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(decoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::{encode, levels_of};

    /// Decodes content that arrives in parts of `part` bytes, `step` bytes at a time.
    fn decode(coding: Coding, bytes: &[u8], (part, step): (usize, usize)) -> io::Result<(Vec<u8>, bool)> {
        let mut decoder = Decoder::new(coding)?;
        let (mut content, mut out) = (Vec::new(), vec![0; step]);
        for mut input in bytes.chunks(part) {
            loop {
                let decoded = decoder.decode(input, &mut out)?;
                content.extend_from_slice(&out[..decoded.written]);
                input = &input[decoded.consumed..];
                if input.is_empty() && decoded.written < step {
                    break;
                }
            }
        }
        Ok((content, decoder.is_complete()))
    }

    fn encoded(coding: Coding, content: &[u8]) -> Vec<u8> {
        encode(coding, levels_of(coding).0, content).unwrap()
    }

    #[test]
    fn content_is_decoded_whatever_its_parts_and_steps() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut content = b"weir ".repeat(20_000);
        content.extend((0..50_000).map(|_| rng.u8(..)));
        for coding in Coding::ALL {
            for content in [&content[..], b"x", b""] {
                let bytes = encoded(coding, content);
                for sizes in [(1, 7), (1_000, 64), (32_768, 65_536), (usize::MAX, 1 << 20)] {
                    let (decoded, is_complete) = decode(coding, &bytes, sizes).unwrap();
                    assert!(decoded == content && is_complete, "{coding:?} {sizes:?} {}", content.len());
                }
                let cut = &bytes[..bytes.len() - 1];
                let is_complete = decode(coding, cut, (100, 100)).is_ok_and(|(_, is_complete)| is_complete);
                assert!(!is_complete || cut.is_empty(), "{coding:?} {}", content.len());
            }
            let nothing = Decoder::new(coding).unwrap().decode(b"", &mut [0; 9]).unwrap();
            assert_eq!(nothing, Decoded { consumed: 0, written: 0 });
        }
        let members = [encoded(Coding::Gzip, b"one "), encoded(Coding::Gzip, b"two")].concat();
        assert_eq!(decode(Coding::Gzip, &members, (5, 3)).unwrap(), (b"one two".to_vec(), true));
    }

    #[test]
    fn malformed_content_and_bombs_are_errors() {
        for coding in Coding::ALL {
            let bytes = [encoded(coding, b"hello"), b"garbage behind it".to_vec()].concat();
            let result = decode(coding, &bytes, (usize::MAX, 1 << 16));
            assert!(result.is_err(), "{coding:?}: {result:?}");
            assert!(decode(coding, &[0xff; 100], (usize::MAX, 1 << 16)).is_err(), "{coding:?}");
        }
        // gzip makes a thousandth of zeros at best, and the others much less.
        let zeros = vec![0; 64 << 20];
        for coding in [Coding::Brotli, Coding::Zstd] {
            let result = decode(coding, &encoded(coding, &zeros), (32_768, 65_536));
            assert_eq!(
                result.map(|(content, _)| content.len()).unwrap_err().kind(),
                io::ErrorKind::FileTooLarge
            );
        }
    }
}
