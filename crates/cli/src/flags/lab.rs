//! The flags of `weir lab` and of the commands below it.

use super::{CommandRow, FLAG, Flag};

pub(crate) const LAB: CommandRow = CommandRow {
    name: "lab",
    about: "Say what limits a service, with evidence, and prove it",
    doc: "The commands below it work on records, programs and scenarios; see each one's help.",
    values: None,
    flags: &[],
    examples: &[("weir lab diagnose run.json", "why was it not faster")],
};

pub(crate) const DIAGNOSE: CommandRow = CommandRow {
    name: "lab diagnose",
    about: "Say from a record what limited the run",
    doc: "Works the verdict out again from the record of a run alone: what limited it, the evidence, \
          what was ruled out and by what, and which resource would be the limit next. Records of \
          weir watch from other machines, taken at the same time, are put beside it.",
    values: Some(("FILE", "The record of a run, then records of weir watch from other machines")),
    flags: &[Flag {
        long: "json",
        value: "FILE|-",
        doc: "Write the record with its diagnosis",
        right: &["-"],
        ..FLAG
    }],
    examples: &[("weir lab diagnose run.json", "why was it not faster")],
};
