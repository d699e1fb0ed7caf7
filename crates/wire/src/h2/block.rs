//! Single field blocks without a connection, for fuzz targets, tests and examples.

use super::decoder::Decoder;
use super::encoder::{Encoder, FieldEncoder, WrittenHead};
use super::event::{RequestHead, ResponseHead};
use super::fault::FaultKind;
use super::head::{Head, HeadLimits, HeadProblem, Section};

type OwnedField = (String, Vec<u8>);

/// Decoder of field blocks, with limits that no test reaches.
#[derive(Debug)]
pub struct BlockReader {
    decoder: Decoder,
    head: Head,
}

impl Default for BlockReader {
    fn default() -> Self {
        Self::new()
    }
}

impl BlockReader {
    /// Creates a decoder with a table of 4,096 bytes.
    #[must_use]
    pub fn new() -> Self {
        let limits = HeadLimits {
            bytes_max: 1 << 20,
            fields_max: 10_000,
            target_bytes_max: 1 << 20,
            allows_protocol: true,
        };
        Self { decoder: Decoder::new(4_096), head: Head::new(limits) }
    }

    /// Decodes a block and returns its regular fields; none if it is malformed.
    ///
    /// # Errors
    /// The block is not HPACK.
    pub fn read(&mut self, block: &[u8]) -> Result<Vec<OwnedField>, FaultKind> {
        self.decode(Section::Trailers, block)?;
        let fields = self.head.fields(self.decoder.texts());
        Ok(fields.iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect())
    }

    /// Decodes the head of a request.
    ///
    /// # Errors
    /// The block is not HPACK, or the head is malformed.
    pub fn read_request(&mut self, block: &[u8]) -> Result<RequestHead<'_>, FaultKind> {
        self.decode(Section::Request, block)?;
        self.head.finish_request(self.decoder.texts()).map_err(fault)?;
        Ok(self.head.request(self.decoder.texts()))
    }

    /// Decodes the head of a response.
    ///
    /// # Errors
    /// The block is not HPACK, or the head is malformed.
    pub fn read_response(&mut self, block: &[u8]) -> Result<ResponseHead<'_>, FaultKind> {
        self.decode(Section::Response, block)?;
        self.head.finish_response().map_err(fault)?;
        Ok(self.head.response(self.decoder.texts()))
    }

    #[inline]
    fn decode(&mut self, section: Section, block: &[u8]) -> Result<(), FaultKind> {
        self.head.begin(section);
        self.decoder.decode(block, &mut self.head)
    }

    /// Checks the limits of the table.
    ///
    /// # Panics
    /// If one is exceeded.
    #[cfg(any(test, fuzzing))]
    pub fn check(&self) {
        self.decoder.check_invariants();
    }
}

fn fault(problem: HeadProblem) -> FaultKind {
    match problem {
        HeadProblem::Malformed(fault) => fault,
        HeadProblem::Refused(_) | HeadProblem::Ignored => FaultKind::HeadTooLarge,
    }
}

#[derive(Debug)]
pub struct BlockWriter {
    encoder: Encoder,
}

impl Default for BlockWriter {
    fn default() -> Self {
        Self::new()
    }
}

impl BlockWriter {
    /// Creates an encoder with a table of 4,096 bytes.
    #[must_use]
    pub fn new() -> Self {
        Self { encoder: Encoder::new() }
    }

    pub fn encode(&mut self, write: impl FnOnce(&mut FieldEncoder<'_>)) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode_into(&mut out, write);
        out
    }

    #[inline]
    pub fn encode_into(&mut self, out: &mut Vec<u8>, write: impl FnOnce(&mut FieldEncoder<'_>)) {
        self.encoder.begin(out);
        write(&mut FieldEncoder { encoder: &mut self.encoder, out, head: WrittenHead::default() });
    }

    /// Encodes fields after changing the maximum size of the table.
    pub fn write(&mut self, fields: &[OwnedField], table_bytes: usize) -> Vec<u8> {
        self.encoder.set_size_limit(table_bytes);
        self.encode(|out| {
            for (name, value) in fields {
                out.field(name, value);
            }
        })
    }
}
