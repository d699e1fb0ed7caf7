//! What was asked for beside the file: flags to values, every problem at once.

use std::path::PathBuf;

use lab::engine::folder::FolderError;
use lab::experiment::{Asked, bound, ready};
use record::problem::{Problem, suggestion};
use record::units::{DurationUnit, SECOND_NS, parse_count, parse_duration_ns};
use rt::clock::now_ns;

use crate::flags::Typed;

/// The length of a load with --quick.
const QUICK_NS: u64 = 3 * SECOND_NS;
/// More would take days.
const BLOCKS_MAX: u64 = 1000;
/// The longest load of a trial.
const DURATION_NS_MAX: u64 = 3600 * SECOND_NS;
/// Seeds from the clock are below this, so that they can be typed.
const SEED_MAX: u64 = 1_000_000;

/// Flags that say how an experiment is begun: one that goes on is as it was.
const AT_THE_BEGIN: &[&str] = &["set", "discard", "blocks", "duration", "quick", "seed", "folder"];

/// Reads the flags.
pub(super) fn asked(typed: Typed<'_>) -> Result<Asked, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut note = |flag: &str, why: String| problems.push(Problem::new(format!("--{flag}"), why));
    let quick = typed.is_set("quick");
    let mut asked = Asked {
        duration_ns: quick.then_some(QUICK_NS),
        quick,
        seed: now_ns() % SEED_MAX,
        ..Asked::default()
    };
    if let Some(text) = typed.text("duration") {
        match duration_ns(&text) {
            Ok(ns) => asked.duration_ns = Some(ns),
            Err(why) => note("duration", why),
        }
    }
    if let Some(text) = typed.text("blocks") {
        match blocks(&text) {
            Ok(blocks) => asked.blocks = Some(blocks),
            Err(why) => note("blocks", why),
        }
    }
    if let Some(text) = typed.text("seed") {
        match parse_count(&text) {
            Ok(seed) => asked.seed = seed,
            Err(why) => note("seed", why),
        }
    }
    for text in typed.texts("set") {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => {
                asked.parameters.push((name.to_owned(), value.to_owned()));
            }
            _ => note("set", format!("'{text}' is no NAME=VALUE")),
        }
    }
    for text in typed.texts("discard") {
        match bound(&text) {
            Ok((covariate, most)) => {
                asked.discard.insert(covariate, most);
            }
            Err(why) => note("discard", why),
        }
    }
    problems.extend(beside(typed));
    if problems.is_empty() { Ok(asked) } else { Err(problems) }
}

/// What is wrong with the flags that say which experiment and where.
fn beside(typed: Typed<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut note = |flag: &str, why: String| problems.push(Problem::new(format!("--{flag}"), why));
    if typed.is_given("resume") {
        for flag in AT_THE_BEGIN.iter().filter(|flag| typed.is_given(flag)) {
            note(flag, "an experiment goes on as it was begun: leave this out".to_owned());
        }
    }
    if let Some(name) = typed.text("print")
        && ready::find(&name).is_none()
    {
        let near = suggestion(&name, ready::READY.iter().map(|one| one.name));
        note(
            "print",
            format!("there is no ready-made experiment '{name}'{near}; --list lists them"),
        );
    }
    if let Some(path) = typed.text("folder").map(PathBuf::from)
        && path.symlink_metadata().is_ok()
        && !typed.is_given("resume")
    {
        note("folder", FolderError::Exists(path).to_string());
    }
    problems
}

fn duration_ns(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not above 0 and up to 1h (write 8s or 500ms)");
    // A number below 0 is one, and no text that nobody can read.
    if text.starts_with('-') {
        return Err(wrong());
    }
    let ns = parse_duration_ns(text, DurationUnit::Seconds)?;
    if (1..=DURATION_NS_MAX).contains(&ns) { Ok(ns) } else { Err(wrong()) }
}

/// `10..30`, or `10` for exactly so many.
fn blocks(text: &str) -> Result<(u32, u32), String> {
    let (least, most) = text.split_once("..").unwrap_or((text, text));
    let how = "write 10..30 for that many at least and at most, or 10 for exactly so many";
    let count = |part: &str| match parse_count(part) {
        _ if part.is_empty() => Err(format!("'{text}' lacks a number: {how}")),
        Err(_) => Err(format!("'{part}' is no number of blocks: {how}")),
        Ok(count) if !(1..=BLOCKS_MAX).contains(&count) => {
            Err(format!("there may be 1 to {BLOCKS_MAX} blocks, and not {part}: {how}"))
        }
        Ok(count) => Ok(count as u32),
    };
    let (least, most) = (count(least)?, count(most)?);
    if least > most {
        return Err(format!(
            "'{text}' has more blocks at least than at most: write {most}..{least}"
        ));
    }
    Ok((least, most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_a_number_or_a_range() {
        assert_eq!((blocks("6"), blocks("10..30")), (Ok((6, 6)), Ok((10, 30))));
        for text in ["", "0", "..", "3..2", "1..", "x", "1...2", "5000"] {
            assert!(blocks(text).is_err(), "{text}");
        }
        for (text, part) in [
            ("5..2", "'5..2' has more blocks at least than at most: write 2..5"),
            ("1..", "'1..' lacks a number: write 10..30"),
            ("..5", "'..5' lacks a number"),
            ("6..x", "'x' is no number of blocks"),
            ("0", "1 to 1000 blocks, and not 0"),
        ] {
            let told = blocks(text).unwrap_err();
            assert!(told.contains(part), "{told}");
        }
    }

    #[test]
    fn a_length_below_0_is_told_as_such() {
        assert_eq!(duration_ns("500ms"), Ok(500_000_000));
        for text in ["-1", "-1s", "0", "2h"] {
            let told = duration_ns(text).unwrap_err();
            assert!(told.contains(text) && told.contains("above 0 and up to 1h"), "{told}");
        }
    }
}
