//! Properties of decoders that hold for any bytes, for tests and fuzz targets only. Nothing in a product
//! calls them.

use crate::file;
use crate::histogram::LatencyHistogram;

/// Checks the text form of a histogram: it is the same after being written and read again. `true`: it was one.
///
/// # Panics
/// The property does not hold.
pub fn histogram(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Ok(latencies) = LatencyHistogram::decode(text) else { return false };
    let again = LatencyHistogram::decode(&latencies.encode());
    assert!(again.is_ok_and(|again| again.count() == latencies.count()), "written and read again");
    true
}

/// Decodes the text form of a histogram, for measurements of its cost.
pub fn decode_histogram(bytes: &[u8]) {
    let _ = std::str::from_utf8(bytes).map(LatencyHistogram::decode);
}

/// Reads the record of a run, as an agent or a file has it: nothing panics. `true`: it was one.
pub fn run_record(bytes: &[u8]) -> bool {
    let is_named = file::parse_schema(bytes).is_ok_and(|schema| schema == crate::run::SCHEMA);
    file::parse_run(bytes).is_ok() && is_named
}
