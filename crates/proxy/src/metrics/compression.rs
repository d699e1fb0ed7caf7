//! Metrics of compressed responses.

use content::codings::Coding;

use super::table::Metric;
use super::{CounterCell, Metrics, Snapshot};

#[derive(Debug, Default)]
pub(super) struct CompressionCounters {
    /// Responses, by [`Coding::index`].
    compressed: [CounterCell; Coding::ALL.len()],
    decompressed: [CounterCell; Coding::ALL.len()],
    uncompressed: CounterCell,
    in_bytes: CounterCell,
    out_bytes: CounterCell,
    encoder_bytes: CounterCell,
}

impl Metrics {
    pub(crate) fn count_compressed(&self, coding: Coding) {
        self.common.compression.compressed[coding.index()].add(1);
    }

    pub(crate) fn count_decompressed(&self, coding: Coding) {
        self.common.compression.decompressed[coding.index()].add(1);
    }

    /// Counts a response without a coding because there was no memory for its encoder.
    pub(crate) fn count_uncompressed(&self) {
        self.common.compression.uncompressed.add(1);
    }

    /// Counts content before and after its compression.
    pub(crate) fn count_compressed_bytes(&self, in_bytes: u64, out_bytes: u64) {
        self.common.compression.in_bytes.add(in_bytes);
        self.common.compression.out_bytes.add(out_bytes);
    }

    pub(crate) fn set_encoder_bytes(&self, bytes: u64) {
        self.common.compression.encoder_bytes.0.set(bytes);
    }
}

impl CompressionCounters {
    pub(super) fn add_to(&self, snapshot: &mut Snapshot) {
        for coding in Coding::ALL {
            let count = self.compressed[coding.index()].0.get();
            snapshot.add(Metric::Compressed, &[coding.name()], count);
            let count = self.decompressed[coding.index()].0.get();
            snapshot.add(Metric::Decompressed, &[coding.name()], count);
        }
        for (metric, count) in [
            (Metric::Uncompressed, &self.uncompressed),
            (Metric::CompressionIn, &self.in_bytes),
            (Metric::CompressionOut, &self.out_bytes),
            (Metric::EncoderMemory, &self.encoder_bytes),
        ] {
            snapshot.add(metric, &[], count.0.get());
        }
    }
}
