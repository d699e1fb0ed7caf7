//! Table of the programs that can drive a load: their flags for the duration, their version, and
//! the parsing of their output. A [`DriverReading`] lacks the figures that a program does not print, and
//! `notes` describe that.
//!
//! Not for starting them. Weir itself is in the table only for its command line: it writes a
//! record.

mod ab;
mod h1load;
mod h2load;
mod oha;
mod text;
mod weir;
mod wrk;

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::scenario::placeholders::{DURATION_PLACEHOLDER, contains, fill};
use crate::scenario::setup::LoadTool;

/// Program that can drive a load.
pub struct DriverSpec {
    /// Name in an experiment's file.
    pub tool: LoadTool,
    pub program: &'static str,
    pub package: &'static str,
    /// Arguments of the calls that print its version, and other facts that are needed before the
    /// load. Their outputs are joined in this order.
    pub version_arguments: &'static [&'static [&'static str]],
    /// Form of the duration on the command line.
    pub duration_form: DurationForm,
    /// File of the run's directory that belongs to its output; empty: none.
    pub output_file: &'static str,
    /// Metrics that it does not print, and facts that are needed to interpret its output.
    pub notes: &'static [&'static str],
    /// Metrics that it prints itself, by the names of [`super::metrics::METRICS`].
    pub printed_metrics: &'static [&'static str],
    /// Returns those of them that it does not print in the version of this output.
    pub missing_metrics: fn(&str) -> &'static [&'static str],
    /// Adds missing flags that are required for parsing its output.
    add_flags: fn(&mut Vec<String>, &DriverCall),
    /// Finds its version in the output of its version calls.
    parse_version: fn(&str) -> Option<String>,
    pub parse: fn(&str) -> Result<DriverReading, DriverOutputError>,
}

impl std::fmt::Debug for DriverSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.program)
    }
}

impl DriverSpec {
    /// Returns whether it prints a metric itself. `version_output` is the output of its version calls. If
    /// that is unknown, the metrics of any version count.
    pub fn prints_metric(&self, metric: &str, version_output: Option<&str>) -> bool {
        let lacks = version_output.map_or(&[][..], |output| (self.missing_metrics)(output));
        self.printed_metrics.contains(&metric) && !lacks.contains(&metric)
    }

    pub fn version_text(&self, version_output: &str) -> String {
        (self.parse_version)(version_output).unwrap_or_else(|| "unknown".to_owned())
    }
}

/// Reason why the output of a driver has no figures.
#[derive(Debug, thiserror::Error)]
pub enum DriverOutputError {
    /// The output is not as expected: it lacks this.
    #[error("there is no {0}")]
    Missing(&'static str),
    #[error("no JSON in its output")]
    NoJson,
    #[error("its output is not JSON: {0}")]
    NotJson(serde_json::Error),
    /// The driver got no response; the text has its errors.
    #[error("no response{0}")]
    NoResponse(String),
    /// Weir writes a record and prints no figures.
    #[error("weir leaves a record")]
    HasRecord,
}

/// Form of the duration on a program's command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationForm {
    pub flags: &'static [&'static str],
    pub step_ns: u64,
    /// Unit after the number.
    pub unit: &'static str,
}

impl DurationForm {
    /// Formats a duration for the program, rounded up to its resolution.
    pub fn format(self, ns: u64) -> String {
        format!("{}{}", ns.div_ceil(self.step_ns), self.unit)
    }

    /// Returns the duration after that rounding, in ns.
    pub fn rounded_ns(self, ns: u64) -> u64 {
        ns.div_ceil(self.step_ns) * self.step_ns
    }
}

const SECOND_NS: u64 = 1_000_000_000;
const MILLISECOND_NS: u64 = 1_000_000;

/// Input for the command line of a program.
#[derive(Clone, Debug, Default)]
pub(super) struct DriverCall {
    pub(super) words: Vec<String>,
    pub(super) placeholders: BTreeMap<&'static str, String>,
    pub(super) duration: String,
    pub(super) version_output: String,
    pub(super) file: PathBuf,
}

impl DriverCall {
    /// Returns the command line of the load itself.
    pub(super) fn load_command(&self, driver: &DriverSpec) -> Vec<String> {
        let (mut words, placed) = self.filled_words();
        // Weir's own flags may limit the number of requests instead of the duration.
        if !placed && driver.tool != LoadTool::Weir && find_flag(&words, driver.duration_form.flags).is_none()
        {
            insert_duration(&mut words, driver, &self.duration);
        }
        (driver.add_flags)(&mut words, self);
        words
    }

    /// Returns the command line of the same load for another duration, which replaces a given one
    /// or is added.
    pub(super) fn warm_up_command(&self, driver: &DriverSpec) -> Vec<String> {
        let (mut words, _) = self.filled_words();
        match find_flag(&words, driver.duration_form.flags) {
            Some((at, FlagValuePosition::NextWord)) if at + 1 < words.len() => {
                self.duration.clone_into(&mut words[at + 1]);
            }
            Some((at, FlagValuePosition::SameWord(flag))) => words[at] = format!("{flag}{}", self.duration),
            _ => insert_duration(&mut words, driver, &self.duration),
        }
        (driver.add_flags)(&mut words, self);
        words
    }

    fn filled_words(&self) -> (Vec<String>, bool) {
        let placed = self.words.iter().any(|word| contains(DURATION_PLACEHOLDER, word));
        let value = |name: &str| match name {
            DURATION_PLACEHOLDER => Some(self.duration.as_str()),
            name => self.placeholders.get(name).map(String::as_str),
        };
        (self.words.iter().map(|word| fill(word, value)).collect(), placed)
    }
}

fn insert_duration(words: &mut Vec<String>, driver: &DriverSpec, length: &str) {
    if let Some(&flag) = driver.duration_form.flags.first() {
        words.splice(0..0, [flag.to_owned(), length.to_owned()]).for_each(drop);
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum FlagValuePosition {
    NextWord,
    /// In the same word, after this prefix.
    SameWord(String),
}

/// Finds the first of some flags: `-d 8s`, `-d8s`, `--duration 8s`, `--duration=8s`.
fn find_flag(words: &[String], flags: &[&str]) -> Option<(usize, FlagValuePosition)> {
    words.iter().enumerate().find_map(|(at, word)| {
        flags.iter().find_map(|flag| {
            let rest = word.strip_prefix(flag)?;
            let number = rest.starts_with(|character: char| character.is_ascii_digit());
            match rest {
                "" => Some((at, FlagValuePosition::NextWord)),
                _ if flag.starts_with("--") => {
                    rest.starts_with('=').then(|| (at, FlagValuePosition::SameWord(format!("{flag}="))))
                }
                _ => number.then(|| (at, FlagValuePosition::SameWord((*flag).to_owned()))),
            }
        })
    })
}

/// Adds a flag in front, unless one of its names is present.
fn ensure_flag(words: &mut Vec<String>, names: &[&str], added: &[&str]) {
    if !words.iter().any(|word| names.iter().any(|name| word == name)) {
        words.splice(0..0, added.iter().map(|&word| word.to_owned())).for_each(drop);
    }
}

/// Figures from a program's output.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DriverReading {
    pub duration_s: f64,
    pub responses: f64,
    /// Number of good responses, if the driver prints it.
    pub good: Option<f64>,
    /// Figures by the names of [`super::metrics::METRICS`].
    pub values: BTreeMap<&'static str, f64>,
    /// Responses per second for each second; empty if the driver does not print them.
    pub rates: Vec<f64>,
    /// Facts that are needed to interpret this reading.
    pub notes: Vec<String>,
}

impl DriverReading {
    /// Adds a figure if it is finite.
    fn set_value(&mut self, name: &'static str, value: Option<f64>) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.values.insert(name, value);
        }
    }

    /// Adds a latency. A value of 0 is below the program's resolution, and left out.
    fn set_latency(&mut self, name: &'static str, ns: Option<f64>) {
        self.set_value(name, ns.filter(|&ns| ns > 0.0));
    }

    fn set_error_fraction(&mut self, errors: f64, tried: f64) {
        self.good = Some((tried - errors).max(0.0));
        // Adding 0 removes the sign of a fraction of -0.
        self.set_value("error_fraction", (tried > 0.0).then(|| (errors / tried).min(1.0) + 0.0));
    }
}

/// Rows of all tools.
pub static DRIVERS: &[DriverSpec] = &[weir::SPEC, wrk::SPEC, ab::SPEC, h2load::SPEC, h1load::SPEC, oha::SPEC];

pub fn driver_spec(tool: LoadTool) -> &'static DriverSpec {
    // A test checks that every tool has a row.
    DRIVERS.iter().find(|driver| driver.tool == tool).unwrap_or(&DRIVERS[0])
}

pub fn find_driver(program: &str) -> Option<&'static DriverSpec> {
    DRIVERS.iter().find(|driver| driver.program == program)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    fn call(driver: &DriverSpec, line: &str, ns: u64) -> DriverCall {
        DriverCall {
            words: words(line),
            duration: driver.duration_form.format(ns),
            file: "/run/x.csv".into(),
            ..DriverCall::default()
        }
    }

    #[test]
    fn every_tool_has_a_row_of_its_own() {
        use LoadTool::{Ab, H1load, H2load, Oha, Weir, Wrk};
        for tool in [Weir, Wrk, Ab, H2load, H1load, Oha] {
            assert_eq!(driver_spec(tool).tool, tool);
            assert_eq!(find_driver(driver_spec(tool).program).unwrap().tool, tool);
        }
        assert_eq!(DRIVERS.len(), 6);
        for driver in DRIVERS {
            assert!(!driver.duration_form.flags.is_empty() && driver.duration_form.step_ns > 0, "{driver:?}");
            assert!(driver.tool == Weir || !driver.notes.is_empty(), "{driver:?}");
            assert!(driver.tool == Weir || !driver.package.is_empty(), "{driver:?}");
            assert!((driver.parse)("").is_err(), "{driver:?}");
            assert!((driver.parse)("nothing that\nanybody knows\n").is_err(), "{driver:?}");
        }
    }

    /// Returns the names of the figures that a driver's parser reads from samples of its output.
    fn metrics_read_from(driver: &DriverSpec, samples: &[&str]) -> BTreeSet<&'static str> {
        let metric_names = |sample: &&str| (driver.parse)(sample).unwrap().values.into_keys();
        samples.iter().flat_map(metric_names).collect()
    }

    #[test]
    fn each_driver_prints_the_metrics_read_from_its_samples() {
        let h2load = include_str!("driver/captured/h2load.txt");
        let time = h2load.lines().find(|line| line.starts_with("time for request:")).unwrap();
        let heads = h2load.lines().find(|line| line.trim_start().starts_with("min ")).unwrap();
        let later = h2load
            .replace(heads, "min max median p90 p99 mean sd +/- sd")
            .replace(time, "time for request: 40us 9.00ms 200us 300us 1.20ms 230us 1us 90.00%");
        let samples: &[(LoadTool, &[&str])] = &[
            (LoadTool::Wrk, &[include_str!("driver/captured/wrk.txt")]),
            (LoadTool::Ab, &[include_str!("driver/captured/ab.txt")]),
            (LoadTool::H2load, &[h2load, &later]),
            (LoadTool::H1load, &[h1load::tests::TEXT]),
            (LoadTool::Oha, &[oha::tests::TEXT]),
        ];
        for (tool, samples) in samples {
            let driver = driver_spec(*tool);
            let tells: BTreeSet<&str> = driver.printed_metrics.iter().copied().collect();
            assert_eq!(tells, metrics_read_from(driver, samples), "{driver:?}");
            assert_eq!(tells.len(), driver.printed_metrics.len(), "{driver:?} says something twice");
        }
        assert_eq!(samples.len() + 1, DRIVERS.len(), "weir's are read from its record");
        let h2load_row = driver_spec(LoadTool::H2load);
        let old = metrics_read_from(h2load_row, &[h2load]);
        for name in h2load_row.printed_metrics {
            let version_output = Some("h2load nghttp2/1.52.0");
            assert_eq!(h2load_row.prints_metric(name, version_output), old.contains(name), "{name}");
            assert!(h2load_row.prints_metric(name, None), "{name}");
        }
    }

    #[test]
    fn each_driver_gets_its_duration_in_its_own_form() {
        let command_of = |tool: LoadTool, line: &str| {
            let driver = driver_spec(tool);
            call(driver, line, 8_000_000_000).load_command(driver).join(" ")
        };
        assert_eq!(command_of(LoadTool::Weir, "-c 1 -d {duration} u"), "load -c 1 -d 8000ms u");
        assert_eq!(command_of(LoadTool::Weir, "-n 10 u"), "load -n 10 u");
        assert_eq!(
            command_of(LoadTool::Weir, "-d {duration} {{duration}} ${duration}"),
            "load -d 8000ms {duration} ${duration}"
        );
        assert_eq!(command_of(LoadTool::Wrk, "-c 1 -d{duration} u"), "--latency -c 1 -d8s u");
        assert_eq!(command_of(LoadTool::Wrk, "--latency u"), "-d 8s --latency u");
        assert_eq!(
            command_of(LoadTool::Ab, "-k -t {duration} u"),
            "-e /run/x.csv -k -t 8 -n 1600000 u",
            "ab ends at 50 000 requests unless -n is given after -t"
        );
        assert_eq!(command_of(LoadTool::Ab, "-t 8 -n 9 -e f u"), "-t 8 -n 9 -e f u");
        assert_eq!(command_of(LoadTool::H2load, "-D {duration} u"), "-D 8000ms u");
        assert_eq!(command_of(LoadTool::H1load, "-c 2 u"), "-S -P -ll -d 8 -c 2 u");
    }

    #[test]
    fn a_warm_up_is_the_same_load_for_another_time() {
        let command_of = |tool: LoadTool, line: &str| {
            let driver = driver_spec(tool);
            call(driver, line, 1_200_000_000).warm_up_command(driver).join(" ")
        };
        assert_eq!(command_of(LoadTool::Weir, "-c 1 -d 8s u"), "load -c 1 -d 1200ms u");
        assert_eq!(command_of(LoadTool::Weir, "-c 1 --duration=8s u"), "load -c 1 --duration=1200ms u");
        assert_eq!(command_of(LoadTool::Weir, "u"), "load -d 1200ms u");
        assert_eq!(command_of(LoadTool::Wrk, "-d8s u"), "--latency -d2s u");
        assert_eq!(command_of(LoadTool::H2load, "--duration=8 u"), "--duration=1200ms u");
        assert_eq!(driver_spec(LoadTool::Wrk).duration_form.rounded_ns(1_200_000_000), 2_000_000_000);
        assert_eq!(driver_spec(LoadTool::Weir).duration_form.rounded_ns(1_200_000_000), 1_200_000_000);
    }

    #[test]
    fn flags_are_found_in_all_forms() {
        let at = |line: &str| find_flag(&words(line), &["-d", "--duration"]);
        assert_eq!(at("-c 1 -d 8"), Some((2, FlagValuePosition::NextWord)));
        assert_eq!(at("-d8"), Some((0, FlagValuePosition::SameWord("-d".to_owned()))));
        assert_eq!(at("--duration=8"), Some((0, FlagValuePosition::SameWord("--duration=".to_owned()))));
        assert_eq!(at("--durations 8 -data x"), None);
    }
}
