//! `weir load` as a driver: its words. What it measured is in its own record.

use super::{Call, Length, MILLISECONDS_NS, Reading, Row};
use crate::scenario::setup::Tool;

pub(super) const ROW: Row = Row {
    tool: Tool::Weir,
    program: "weir",
    package: "",
    asks: &[],
    length: Length { flags: &["-d", "--duration"], step_ns: MILLISECONDS_NS, unit: "ms" },
    file: "",
    notes: &[],
    tells: &[
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
        "error_share",
    ],
    lacks: |_| &[],
    complete,
    version: |_| None,
    parse,
};

fn complete(words: &mut Vec<String>, _: &Call) {
    words.insert(0, "load".to_owned());
}

fn parse(_: &str) -> Result<Reading, String> {
    Err("weir leaves a record".to_owned())
}
