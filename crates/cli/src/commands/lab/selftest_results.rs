//! `weir lab selftest --reliability FILE...`: adds up stored results of self-tests.
//!
//! [`super::selftest`] runs the self-tests.

use proving_ground::matrix::{SelfTest, parse_self_test};
use proving_ground::sum::sum_results;

use super::selftest::{show, write_markdown};
use crate::exit::{Exit, Failure};
use crate::flags::CommandArgs;

/// Maximum size of a result file: 100,000 runs.
const BYTES_MAX: u64 = 64 << 20;

/// Prints the matrices and the reliability table of all runs together.
pub(super) fn print_sum(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let paths = args.values();
    let json = args.text("json");
    crate::preflight::outputs(args, &["json"], &["markdown"])?;
    let mut results = Vec::new();
    for path in &paths {
        results.push(read_result(path)?);
    }
    let sum = sum_results(results);
    show(&sum, json.as_deref())?;
    write_markdown(&sum, args.text("markdown").as_deref())?;
    Ok(if sum.passed { Exit::Done } else { Exit::Invalid })
}

fn read_result(path: &str) -> Result<SelfTest, Failure> {
    let unreadable = |error| Failure::cannot(path, error);
    let bytes = std::fs::metadata(path).map_err(unreadable)?.len();
    if bytes > BYTES_MAX {
        return Err(Failure::cannot(path, format_args!("it has {bytes} bytes, more than {BYTES_MAX}")));
    }
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    parse_self_test(&text).map_err(|error| Failure::cannot(path, error))
}
