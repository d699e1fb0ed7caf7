//! `weir lab selftest --reliability FILE...`: adds up stored results of self-tests.
//!
//! [`super::selftest`] runs the self-tests.

use experiment::selftest::matrix::{SelfTest, parse_self_test};

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

/// Sums the results of all runs. Sets and parts are joined where they differ.
fn sum_results(results: Vec<SelfTest>) -> SelfTest {
    let mut sum = SelfTest { schema: experiment::selftest::matrix::SCHEMA.to_owned(), ..SelfTest::default() };
    let mut sets: Vec<String> = Vec::new();
    let mut parts: Vec<String> = Vec::new();
    let mut prefixes: Vec<String> = Vec::new();
    for result in results {
        if sum.started_at.is_empty() || result.started_at < sum.started_at {
            sum.started_at.clone_from(&result.started_at);
        }
        sum.duration_s += result.duration_s;
        sum.partial |= result.partial;
        sets.push(result.set);
        parts.extend(result.part);
        prefixes.extend(result.load_prefix);
        for case in result.not_inducible {
            if !sum.not_inducible.contains(&case) {
                sum.not_inducible.push(case);
            }
        }
        sum.outcomes.extend(result.outcomes);
    }
    for names in [&mut sets, &mut parts, &mut prefixes] {
        names.sort();
        names.dedup();
    }
    sum.set = sets.join("+");
    sum.part = (!parts.is_empty()).then(|| parts.join("+"));
    sum.load_prefix = (!prefixes.is_empty()).then(|| prefixes.join("+"));
    sum.with_summaries()
}
