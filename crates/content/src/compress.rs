//! Content codings on the fly: encoders of libraries behind one interface.

use std::io::{self, Write};

use record::invalid_value;
use record::problem::InvalidValue;

use crate::codings::Coding;

/// Level of each coding, by [`Coding::index`]; `None`: the coding is not used on the fly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompressionLevels([Option<u8>; Coding::ALL.len()]);

/// Codings by their names in the flag, with the default and the range of their levels.
const LEVELS: [(Coding, u8, std::ops::RangeInclusive<u8>); 3] =
    [(Coding::Brotli, 4, 0..=11), (Coding::Zstd, 3, 1..=19), (Coding::Gzip, 6, 1..=9)];

/// Returns the default level of a coding, and its lowest and highest.
pub fn levels_of(coding: Coding) -> (u8, std::ops::RangeInclusive<u8>) {
    let [brotli, zstd, gzip] = LEVELS;
    let (_, default, range) = match coding {
        Coding::Brotli => brotli,
        Coding::Zstd => zstd,
        Coding::Gzip => gzip,
    };
    (default, range)
}

impl CompressionLevels {
    /// Creates levels by [`Coding::index`]; `None`: the coding is not used.
    pub fn new(levels: [Option<u8>; Coding::ALL.len()]) -> Self {
        Self(levels)
    }

    /// Parses a list such as `gzip,br:5`; `all` is every coding.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(text: &str) -> Result<Self, Vec<InvalidValue>> {
        let (mut levels, mut problems) = (Self::default(), Vec::new());
        if text.is_empty() {
            return Ok(levels);
        }
        for item in text.split(',') {
            let (name, level) =
                item.split_once(':').map_or((item, None), |(name, level)| (name, Some(level)));
            if item == "all" {
                levels = Self(LEVELS.map(|(_, default, _)| Some(default)));
                continue;
            }
            let Some((coding, default, range)) = LEVELS.iter().find(|(coding, ..)| coding.name() == name)
            else {
                problems.push(invalid_value!("'{name}' is not gzip, br, zstd or all"));
                continue;
            };
            let level = match level.map(str::parse) {
                None => *default,
                Some(Ok(level)) if range.contains(&level) => level,
                Some(_) => {
                    problems.push(invalid_value!(
                        "'{item}': the level is not from {} to {}",
                        range.start(),
                        range.end()
                    ));
                    continue;
                }
            };
            levels.0[coding.index()] = Some(level);
        }
        if problems.is_empty() { Ok(levels) } else { Err(problems) }
    }

    pub fn level(&self, coding: Coding) -> Option<u8> {
        self.0[coding.index()]
    }

    pub fn is_any(&self) -> bool {
        self.0.iter().any(Option::is_some)
    }
}

impl std::fmt::Display for CompressionLevels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let used = Coding::ALL.into_iter().filter_map(|coding| Some((coding, self.level(coding)?)));
        for (index, (coding, level)) in used.enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{} level {level}", coding.name())?;
        }
        Ok(())
    }
}

/// Encoder of one content.
///
/// The libraries are behind a vtable: they are generic, and to drop one of their encoders is to end its content, so that
/// each crate that drops one would have the whole encoder again.
pub struct Encoder(Box<dyn StreamEncoder>);

trait StreamEncoder: Write {
    /// Returns the encoded bytes so far.
    fn output(&mut self) -> &mut Vec<u8>;

    /// Ends the content, and returns the rest of the encoded bytes.
    fn finish(self: Box<Self>) -> io::Result<Vec<u8>>;
}

impl StreamEncoder for flate2::write::GzEncoder<Vec<u8>> {
    fn output(&mut self) -> &mut Vec<u8> {
        self.get_mut()
    }

    fn finish(self: Box<Self>) -> io::Result<Vec<u8>> {
        (*self).finish()
    }
}

impl StreamEncoder for brotli::CompressorWriter<Vec<u8>> {
    fn output(&mut self) -> &mut Vec<u8> {
        self.get_mut()
    }

    fn finish(self: Box<Self>) -> io::Result<Vec<u8>> {
        Ok((*self).into_inner())
    }
}

impl StreamEncoder for zstd::stream::write::Encoder<'static, Vec<u8>> {
    fn output(&mut self) -> &mut Vec<u8> {
        self.get_mut()
    }

    fn finish(self: Box<Self>) -> io::Result<Vec<u8>> {
        (*self).finish()
    }
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Encoder")
    }
}

/// Window of Brotli, as a power of 2: 256 KiB. The default of 4 MiB costs too much memory for each response.
const BROTLI_WINDOW_BITS: u32 = 18;
/// Size of the internal buffer of Brotli.
const BROTLI_BUFFER_BYTES: usize = 4096;

impl Encoder {
    /// Creates an encoder for content of `size` bytes; `None`: the size is not known.
    ///
    /// # Errors
    /// The library has no memory left.
    pub fn new(coding: Coding, level: u8, size: Option<u64>) -> io::Result<Self> {
        Ok(Self(match coding {
            Coding::Gzip => {
                let level = flate2::Compression::new(u32::from(level));
                Box::new(flate2::write::GzEncoder::new(Vec::new(), level))
            }
            Coding::Brotli => Box::new(brotli::CompressorWriter::new(
                Vec::new(),
                BROTLI_BUFFER_BYTES,
                u32::from(level),
                BROTLI_WINDOW_BITS,
            )),
            Coding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), i32::from(level))?;
                encoder.set_pledged_src_size(size)?;
                Box::new(encoder)
            }
        }))
    }

    /// Encodes a part of the content.
    ///
    /// # Errors
    /// Those of the library.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    /// Encodes what was held back, so that the output so far decodes to everything that was written.
    ///
    /// # Errors
    /// Those of the library.
    pub fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }

    /// Moves the encoded bytes so far to `out`.
    pub fn take_output(&mut self, out: &mut Vec<u8>) {
        out.append(self.0.output());
    }

    /// Ends the content, and appends the rest of the encoded bytes to `out`.
    ///
    /// # Errors
    /// Those of the library.
    pub fn finish(self, out: &mut Vec<u8>) -> io::Result<()> {
        out.append(&mut self.0.finish()?);
        Ok(())
    }
}

/// Encodes content that is in memory.
///
/// # Errors
/// Those of the library.
pub fn encode(coding: Coding, level: u8, content: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = Encoder::new(coding, level, Some(content.len() as u64))?;
    encoder.write(content)?;
    let mut out = Vec::new();
    encoder.finish(&mut out)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn decode(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut content = Vec::new();
        match coding {
            Coding::Gzip => flate2::read::GzDecoder::new(bytes).read_to_end(&mut content),
            Coding::Brotli => brotli::Decompressor::new(bytes, 4096).read_to_end(&mut content),
            Coding::Zstd => zstd::stream::read::Decoder::new(bytes).unwrap().read_to_end(&mut content),
        }
        .unwrap();
        content
    }

    #[test]
    fn encoded_content_decodes_to_itself_at_once_and_in_parts() {
        let mut content = b"weir ".repeat(2000);
        let mut rng = fastrand::Rng::with_seed(1);
        content.extend((0..3000).map(|_| rng.u8(..)));
        for (coding, level, _) in LEVELS {
            for content in [&content[..], b"", b"x"] {
                let encoded = encode(coding, level, content).unwrap();
                assert_eq!(decode(coding, &encoded), content, "{coding:?}");
                let (mut encoder, mut out) =
                    (Encoder::new(coding, level, Some(content.len() as u64)).unwrap(), Vec::new());
                for part in content.chunks(777) {
                    encoder.write(part).unwrap();
                    encoder.take_output(&mut out);
                }
                encoder.finish(&mut out).unwrap();
                assert_eq!(decode(coding, &out), content, "{coding:?} in parts");
            }
        }
    }

    #[test]
    fn flushed_output_decodes_before_the_end() {
        for (coding, level, _) in LEVELS {
            let (mut encoder, mut out) = (Encoder::new(coding, level, None).unwrap(), Vec::new());
            for part in [&b"data: 1\n\n"[..], b"data: 2\n\n", b"data: 3\n\n"] {
                encoder.write(part).unwrap();
                encoder.flush().unwrap();
                encoder.take_output(&mut out);
                let mut decoded = vec![0; 100];
                let bytes = decode_start(coding, &out, &mut decoded);
                assert!(decoded[..bytes].ends_with(part), "{coding:?}");
            }
            encoder.finish(&mut out).unwrap();
            assert_eq!(decode(coding, &out), b"data: 1\n\ndata: 2\n\ndata: 3\n\n", "{coding:?}");
        }
    }

    /// Decodes content that has no end yet.
    fn decode_start(coding: Coding, bytes: &[u8], content: &mut [u8]) -> usize {
        let mut reader: Box<dyn Read + '_> = match coding {
            Coding::Gzip => Box::new(flate2::read::GzDecoder::new(bytes)),
            Coding::Brotli => Box::new(brotli::Decompressor::new(bytes, 4096)),
            Coding::Zstd => Box::new(zstd::stream::read::Decoder::new(bytes).unwrap()),
        };
        let mut end = 0;
        while let Ok(read @ 1..) = reader.read(&mut content[end..]) {
            end += read;
        }
        end
    }

    #[test]
    fn levels_have_defaults_and_ranges() {
        let levels = CompressionLevels::parse("gzip:1,br").unwrap();
        assert_eq!(Coding::ALL.map(|coding| levels.level(coding)), [Some(4), None, Some(1)]);
        assert_eq!(levels.to_string(), "br level 4, gzip level 1");
        assert_eq!(
            CompressionLevels::parse("all").unwrap().to_string(),
            "br level 4, zstd level 3, gzip level 6"
        );
        assert!(!CompressionLevels::parse("").unwrap().is_any());
        let problems = CompressionLevels::parse("gzip:10,deflate,br:x,zstd:0").unwrap_err();
        assert_eq!(problems.len(), 4, "{problems:?}");
    }
}
