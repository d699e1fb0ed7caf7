//! `weir load` as a driver: its command line. Its measurements are in its own record.

use super::{DriverCall, DriverOutputError, DriverReading, DriverSpec, DurationForm, MILLISECOND_NS};
use crate::scenario::setup::LoadTool;

pub(super) const SPEC: DriverSpec = DriverSpec {
    tool: LoadTool::Weir,
    program: "weir",
    package: "",
    version_arguments: &[],
    duration_form: DurationForm { flags: &["-d", "--duration"], step_ns: MILLISECOND_NS, unit: "ms" },
    output_file: "",
    notes: &[],
    printed_metrics: &[
        "responses_per_s",
        "bytes_in_per_s",
        "connections_per_s",
        "rate_max_per_s",
        "mean_ns",
        "p50_ns",
        "p75_ns",
        "p90_ns",
        "p99_ns",
        "p999_ns",
        "max_ns",
        "error_fraction",
    ],
    missing_metrics: |_| &[],
    add_flags: add_no_flags,
    parse_version: |_| None,
    parse,
};

fn add_no_flags(words: &mut Vec<String>, _: &DriverCall) {
    words.insert(0, "load".to_owned());
}

fn parse(_: &str) -> Result<DriverReading, DriverOutputError> {
    Err(DriverOutputError::HasRecord)
}
