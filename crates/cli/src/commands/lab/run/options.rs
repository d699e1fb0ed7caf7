//! Options of `weir lab run`: parses flags to values and reports all problems at once. The experiment's
//! file has the rest (`experiment::definition`).

use std::path::PathBuf;

use experiment::definition::{ExperimentOptions, parse_discard_bound, ready};
use experiment::engine::experiment_dir::{ChangedSettings, ExperimentDirError};
use experiment::scenario::keys::RERUNS_FRACTION_MAX;
use record::invalid_value;
use record::problem::{InputProblem, InvalidValue, suggestion};
use record::units::{DurationUnit, SECOND_NS, parse_count, parse_duration_ns, parse_fraction_up_to};
use rt::clock::now_ns;

use crate::flags::{CommandArgs, FlagReader};

/// Length of a load with --quick.
const QUICK_NS: u64 = 3 * SECOND_NS;
/// Maximum number of blocks; more would take days.
const BLOCKS_MAX: u64 = 1000;
/// Maximum length of a load.
const DURATION_NS_MAX: u64 = 3600 * SECOND_NS;
/// Upper bound of a seed from the clock, so that a user can type the seed.
const SEED_MAX: u64 = 1_000_000;

/// Flags that cannot be combined with `--resume`: a resumed experiment keeps its options.
const START_ONLY_FLAGS: &[&str] = &["set", "duration", "quick", "seed", "output"];

pub(in crate::commands) fn parse_options(
    args: CommandArgs<'_>,
) -> Result<ExperimentOptions, Vec<InputProblem>> {
    let mut flags = FlagReader::new(args);
    let quick = args.is_set("quick");
    let mut options = ExperimentOptions {
        duration_ns: flags.parse("duration", parse_length_ns).or_else(|| quick.then_some(QUICK_NS)),
        quick,
        blocks: flags.parse("blocks", parse_blocks),
        reruns_max_fraction: flags.parse("reruns", |text| parse_fraction_up_to(text, RERUNS_FRACTION_MAX)),
        seed: flags.parse("seed", parse_count).unwrap_or_else(|| now_ns() % SEED_MAX),
        ..ExperimentOptions::default()
    };
    options.parameters = flags.parse_all("set", |text| match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(invalid_value!("'{text}' is not NAME=VALUE")),
    });
    options.discard.extend(flags.parse_all("discard", parse_discard_bound));
    add_selection_problems(args, &mut flags);
    flags.finish(options)
}

pub(in crate::commands) fn changed_settings(options: &ExperimentOptions) -> ChangedSettings {
    ChangedSettings {
        blocks: options.blocks,
        reruns_max_fraction: options.reruns_max_fraction,
        discard: options.discard.clone(),
    }
}

/// Adds the problems of the flags that select the experiment and its directory.
fn add_selection_problems(args: CommandArgs<'_>, flags: &mut FlagReader<'_>) {
    if args.is_given("resume") {
        for flag in START_ONLY_FLAGS.iter().filter(|flag| args.is_given(flag)) {
            flags.add_problem(flag, "a resumed experiment keeps its options: remove this flag");
        }
    }
    if let Some(name) = args.text("print")
        && ready::find_ready_made(&name).is_none()
    {
        let near = suggestion(&name, ready::READY_MADE.iter().map(|experiment| experiment.name));
        let why = format_args!("no ready-made experiment '{name}'{near} (--list lists them)");
        flags.add_problem("print", why);
    }
    if let Some(path) = args.text("output").map(PathBuf::from)
        && path.symlink_metadata().is_ok()
        && !args.is_given("resume")
    {
        flags.add_problem("output", ExperimentDirError::Exists(path));
    }
}

fn parse_length_ns(text: &str) -> Result<u64, InvalidValue> {
    let wrong = || invalid_value!("'{text}' is not above 0 and up to 1h (example: 8s or 500ms)");
    // A negative number is a number that is out of range, not unreadable text.
    if text.starts_with('-') {
        return Err(wrong());
    }
    let ns = parse_duration_ns(text, DurationUnit::Seconds)?;
    if (1..=DURATION_NS_MAX).contains(&ns) { Ok(ns) } else { Err(wrong()) }
}

/// Parses `10..30`, or `10` for exactly 10.
fn parse_blocks(text: &str) -> Result<(u32, u32), InvalidValue> {
    let (min, max) = text.split_once("..").unwrap_or((text, text));
    let usage = "write 10..30 for min and max, or 10 for exactly 10";
    let count = |part: &str| match parse_count(part) {
        _ if part.is_empty() => Err(invalid_value!("'{text}' lacks a number: {usage}")),
        Err(_) => Err(invalid_value!("'{part}' is not a number of blocks: {usage}")),
        Ok(count) if !(1..=BLOCKS_MAX).contains(&count) => {
            Err(invalid_value!("{part} is not within 1 to {BLOCKS_MAX} blocks: {usage}"))
        }
        Ok(count) => Ok(count as u32),
    };
    let (min, max) = (count(min)?, count(max)?);
    if min > max {
        return Err(invalid_value!("min exceeds max in '{text}': write {max}..{min}"));
    }
    Ok((min, max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_a_number_or_a_range() {
        assert_eq!((parse_blocks("6"), parse_blocks("10..30")), (Ok((6, 6)), Ok((10, 30))));
        for text in ["", "0", "..", "3..2", "1..", "x", "1...2", "5000"] {
            assert!(parse_blocks(text).is_err(), "{text}");
        }
        for (text, part) in
            [("5..2", "2..5"), ("1..", "'1..'"), ("..5", "'..5'"), ("6..x", "'x'"), ("0", "1 to 1000")]
        {
            let error = parse_blocks(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_negative_length_is_reported_as_out_of_range() {
        assert_eq!(parse_length_ns("500ms"), Ok(500_000_000));
        for text in ["-1", "-1s", "0", "2h"] {
            let error = parse_length_ns(text).unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("1h"), "{error}");
        }
    }
}
