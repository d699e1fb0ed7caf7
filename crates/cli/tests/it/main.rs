//! The tests of the whole: one binary, one module a theme.

mod cli;
mod cli_run;
mod foreign;
mod robust;
mod support;
mod tidy;
mod truth;
mod wire_truth;
