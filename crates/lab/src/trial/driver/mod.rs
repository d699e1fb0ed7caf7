//! The programs that can drive a load, as a table: how each is told how long, asked for its version, and
//! read. What it does not tell is absent in a [`Reading`], and `notes` say so.
//!
//! Not for starting them. Weir itself is in the table for its words only: it leaves a record.

mod ab;
mod h1load;
mod h2load;
mod oha;
mod text;
mod weir;
mod wrk;

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::scenario::placeholders::{DURATION, filled, stands_in};
use crate::scenario::setup::Tool;

/// One program.
pub struct Row {
    /// What an experiment's file calls it.
    pub tool: Tool,
    /// Its name, as typed.
    pub program: &'static str,
    /// What has to be installed to have it.
    pub package: &'static str,
    /// Arguments that make it say its version, and what else has to be known before it is called; what
    /// it printed to each is put together, in this order.
    pub asks: &'static [&'static [&'static str]],
    /// How it is told how long.
    pub length: Length,
    /// A file of the run's folder that belongs to its output; empty: none.
    pub file: &'static str,
    /// What it does not tell, or tells in a way that has to be known to read it.
    pub notes: &'static [&'static str],
    /// What it tells itself, by the names of [`super::metrics::METRICS`].
    pub tells: &'static [&'static str],
    /// What of that it does not tell in the version that it says to be of.
    pub lacks: fn(&str) -> &'static [&'static str],
    /// Adds the flags without which its output could not be read, where they are missing.
    complete: fn(&mut Vec<String>, &Call),
    /// Finds its version in what it said.
    version: fn(&str) -> Option<String>,
    /// Reads what it printed.
    pub parse: fn(&str) -> Result<Reading, String>,
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.program)
    }
}

impl Row {
    /// Whether it tells a metric itself. `said` is what it says of its version; where that is not known, what
    /// some version tells counts.
    #[must_use]
    pub fn is_telling(&self, metric: &str, said: Option<&str>) -> bool {
        let lacks = said.map_or(&[][..], |said| (self.lacks)(said));
        self.tells.contains(&metric) && !lacks.contains(&metric)
    }

    /// Its version, from what it said when it was asked.
    #[must_use]
    pub fn version_in(&self, said: &str) -> String {
        (self.version)(said).unwrap_or_else(|| "not told".to_owned())
    }
}

/// How a program is told how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// Its flags for it.
    pub flags: &'static [&'static str],
    /// The least that it can tell apart.
    pub step_ns: u64,
    /// What stands behind the number.
    pub unit: &'static str,
}

impl Length {
    /// A length as the program takes it: no shorter than what was asked for.
    #[must_use]
    pub fn text(self, ns: u64) -> String {
        format!("{}{}", ns.div_ceil(self.step_ns), self.unit)
    }

    /// How long that is.
    #[must_use]
    pub fn taken_ns(self, ns: u64) -> u64 {
        ns.div_ceil(self.step_ns) * self.step_ns
    }
}

/// Seconds, and milliseconds.
const SECONDS_NS: u64 = 1_000_000_000;
const MILLISECONDS_NS: u64 = 1_000_000;

/// What a call of a program is made of.
#[derive(Clone, Debug, Default)]
pub(super) struct Call {
    /// The experiment's words, with placeholders.
    pub(super) words: Vec<String>,
    /// What stands for placeholders, besides the length.
    pub(super) texts: BTreeMap<&'static str, String>,
    /// The length, as the program takes it.
    pub(super) length: String,
    /// What the program said when it was asked.
    pub(super) said: String,
    /// Where its file is written to.
    pub(super) file: PathBuf,
}

impl Call {
    /// The words of the load itself.
    pub(super) fn once(&self, row: &Row) -> Vec<String> {
        let (mut words, placed) = self.filled();
        // Weir's own flags may say how many requests, in place of how long.
        if !placed && row.tool != Tool::Weir && position(&words, row.length.flags).is_none() {
            insert(&mut words, row, &self.length);
        }
        (row.complete)(&mut words, self);
        words
    }

    /// The words of the same load for another time: the length is replaced where it is given, or else
    /// added.
    pub(super) fn for_so_long(&self, row: &Row) -> Vec<String> {
        let (mut words, _) = self.filled();
        match position(&words, row.length.flags) {
            Some((at, Given::Next)) if at + 1 < words.len() => {
                self.length.clone_into(&mut words[at + 1]);
            }
            Some((at, Given::Within(flag))) => words[at] = format!("{flag}{}", self.length),
            _ => insert(&mut words, row, &self.length),
        }
        (row.complete)(&mut words, self);
        words
    }

    fn filled(&self) -> (Vec<String>, bool) {
        let placed = self.words.iter().any(|word| stands_in(DURATION, word));
        let value = |name: &str| match name {
            DURATION => Some(self.length.as_str()),
            name => self.texts.get(name).map(String::as_str),
        };
        (self.words.iter().map(|word| filled(word, value)).collect(), placed)
    }
}

fn insert(words: &mut Vec<String>, row: &Row, length: &str) {
    if let Some(&flag) = row.length.flags.first() {
        words.splice(0..0, [flag.to_owned(), length.to_owned()]).for_each(drop);
    }
}

/// Where the value of a flag is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Given {
    /// In the next word.
    Next,
    /// In the same word, behind this.
    Within(String),
}

/// The place of the first of some flags: `-d 8s`, `-d8s`, `--duration 8s`, `--duration=8s`.
fn position(words: &[String], flags: &[&str]) -> Option<(usize, Given)> {
    words.iter().enumerate().find_map(|(at, word)| {
        flags.iter().find_map(|flag| {
            let rest = word.strip_prefix(flag)?;
            let number = rest.starts_with(|one: char| one.is_ascii_digit());
            match rest {
                "" => Some((at, Given::Next)),
                _ if flag.starts_with("--") => {
                    rest.starts_with('=').then(|| (at, Given::Within(format!("{flag}="))))
                }
                _ => number.then(|| (at, Given::Within((*flag).to_owned()))),
            }
        })
    })
}

/// Adds a flag in front, where none of its names is there.
fn ensure(words: &mut Vec<String>, names: &[&str], added: &[&str]) {
    if !words.iter().any(|word| names.iter().any(|name| word == name)) {
        words.splice(0..0, added.iter().map(|&word| word.to_owned())).for_each(drop);
    }
}

/// What a program printed, as figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// How long the load ran, in seconds.
    pub length_s: f64,
    /// Complete responses.
    pub responses: f64,
    /// Those of them that are good, where the driver tells.
    pub good: Option<f64>,
    /// Figures by the names of [`super::metrics::METRICS`].
    pub values: BTreeMap<&'static str, f64>,
    /// Responses per second, second by second; empty where it does not tell.
    pub rates: Vec<f64>,
    /// What has to be known to read this one.
    pub notes: Vec<String>,
}

impl Reading {
    /// Notes a figure, if it is one.
    fn note(&mut self, name: &'static str, value: Option<f64>) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.values.insert(name, value);
        }
    }

    /// Notes a latency: 0 is none, but less than the program tells apart.
    fn latency(&mut self, name: &'static str, ns: Option<f64>) {
        self.note(name, ns.filter(|&ns| ns > 0.0));
    }

    /// Notes the share of errors among all that was tried.
    fn errors(&mut self, errors: f64, tried: f64) {
        self.good = Some((tried - errors).max(0.0));
        // Adding 0 takes the sign from a share of -0.
        self.note("error_share", (tried > 0.0).then(|| (errors / tried).min(1.0) + 0.0));
    }
}

/// All of them.
pub static ROWS: &[Row] = &[weir::ROW, wrk::ROW, ab::ROW, h2load::ROW, h1load::ROW, oha::ROW];

/// The row of a tool.
#[must_use]
pub fn row(tool: Tool) -> &'static Row {
    // Every tool has one, which a test holds.
    ROWS.iter().find(|row| row.tool == tool).unwrap_or(&ROWS[0])
}

/// The row of the program of this name.
#[must_use]
pub fn named(program: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.program == program)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    fn call(row: &Row, line: &str, ns: u64) -> Call {
        Call {
            words: words(line),
            length: row.length.text(ns),
            file: "/run/x.csv".into(),
            ..Call::default()
        }
    }

    #[test]
    fn every_tool_has_a_row_of_its_own() {
        use Tool::{Ab, H1load, H2load, Oha, Weir, Wrk};
        for tool in [Weir, Wrk, Ab, H2load, H1load, Oha] {
            assert_eq!(row(tool).tool, tool);
            assert_eq!(named(row(tool).program).unwrap().tool, tool);
        }
        assert_eq!(ROWS.len(), 6);
        for row in ROWS {
            assert!(!row.length.flags.is_empty() && row.length.step_ns > 0, "{row:?}");
            assert!(row.tool == Weir || !row.notes.is_empty(), "{row:?}");
            assert!(row.tool == Weir || !row.package.is_empty(), "{row:?}");
            assert!((row.parse)("").is_err(), "{row:?}");
            assert!((row.parse)("nothing that\nanybody knows\n").is_err(), "{row:?}");
        }
    }

    /// What a driver's parser reads from samples of its output.
    fn read_from(row: &Row, samples: &[&str]) -> BTreeSet<&'static str> {
        let of = |sample: &&str| (row.parse)(sample).unwrap().values.into_keys();
        samples.iter().flat_map(of).collect()
    }

    #[test]
    fn each_tells_what_is_read_from_its_samples() {
        let h2load = include_str!("captured/h2load.txt");
        let time = h2load.lines().find(|line| line.starts_with("time for request:")).unwrap();
        let heads = h2load.lines().find(|line| line.trim_start().starts_with("min ")).unwrap();
        let later = h2load
            .replace(heads, "min max median p90 p99 mean sd +/- sd")
            .replace(time, "time for request: 40us 9.00ms 200us 300us 1.20ms 230us 1us 90.00%");
        let samples: &[(Tool, &[&str])] = &[
            (Tool::Wrk, &[include_str!("captured/wrk.txt")]),
            (Tool::Ab, &[include_str!("captured/ab.txt")]),
            (Tool::H2load, &[h2load, &later]),
            (Tool::H1load, &[h1load::tests::TEXT]),
            (Tool::Oha, &[oha::tests::TEXT]),
        ];
        for (tool, samples) in samples {
            let row = row(*tool);
            let tells: BTreeSet<&str> = row.tells.iter().copied().collect();
            assert_eq!(tells, read_from(row, samples), "{row:?}");
            assert_eq!(tells.len(), row.tells.len(), "{row:?} says something twice");
        }
        assert_eq!(samples.len() + 1, ROWS.len(), "weir's are read from its record");
        let h2load_row = row(Tool::H2load);
        let old = read_from(h2load_row, &[h2load]);
        for name in h2load_row.tells {
            let said = Some("h2load nghttp2/1.52.0");
            assert_eq!(h2load_row.is_telling(name, said), old.contains(name), "{name}");
            assert!(h2load_row.is_telling(name, None), "{name}");
        }
    }

    #[test]
    fn each_is_told_how_long_in_its_own_way() {
        let of = |tool: Tool, line: &str| {
            let row = row(tool);
            call(row, line, 8_000_000_000).once(row).join(" ")
        };
        assert_eq!(of(Tool::Weir, "-c 1 -d {duration} u"), "load -c 1 -d 8000ms u");
        assert_eq!(of(Tool::Weir, "-n 10 u"), "load -n 10 u");
        assert_eq!(
            of(Tool::Weir, "-d {duration} {{duration}} ${duration}"),
            "load -d 8000ms {duration} ${duration}"
        );
        assert_eq!(of(Tool::Wrk, "-c 1 -d{duration} u"), "--latency -c 1 -d8s u");
        assert_eq!(of(Tool::Wrk, "--latency u"), "-d 8s --latency u");
        assert_eq!(
            of(Tool::Ab, "-k -t {duration} u"),
            "-e /run/x.csv -k -t 8 -n 1600000 u",
            "ab ends at 50 000 requests, unless it is told more behind -t"
        );
        assert_eq!(of(Tool::Ab, "-t 8 -n 9 -e f u"), "-t 8 -n 9 -e f u");
        assert_eq!(of(Tool::H2load, "-D {duration} u"), "-D 8000ms u");
        assert_eq!(of(Tool::H1load, "-c 2 u"), "-S -P -ll -d 8 -c 2 u");
    }

    #[test]
    fn a_warm_up_is_the_same_load_for_another_time() {
        let of = |tool: Tool, line: &str| {
            let row = row(tool);
            call(row, line, 1_200_000_000).for_so_long(row).join(" ")
        };
        assert_eq!(of(Tool::Weir, "-c 1 -d 8s u"), "load -c 1 -d 1200ms u");
        assert_eq!(of(Tool::Weir, "-c 1 --duration=8s u"), "load -c 1 --duration=1200ms u");
        assert_eq!(of(Tool::Weir, "u"), "load -d 1200ms u");
        assert_eq!(of(Tool::Wrk, "-d8s u"), "--latency -d2s u");
        assert_eq!(of(Tool::H2load, "--duration=8 u"), "--duration=1200ms u");
        assert_eq!(row(Tool::Wrk).length.taken_ns(1_200_000_000), 2_000_000_000);
        assert_eq!(row(Tool::Weir).length.taken_ns(1_200_000_000), 1_200_000_000);
    }

    #[test]
    fn flags_are_found_however_they_are_given() {
        let at = |line: &str| position(&words(line), &["-d", "--duration"]);
        assert_eq!(at("-c 1 -d 8"), Some((2, Given::Next)));
        assert_eq!(at("-d8"), Some((0, Given::Within("-d".to_owned()))));
        assert_eq!(at("--duration=8"), Some((0, Given::Within("--duration=".to_owned()))));
        assert_eq!(at("--durations 8 -data x"), None);
    }
}
