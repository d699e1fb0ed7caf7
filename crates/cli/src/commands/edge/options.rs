//! Options of `weir edge`, from its flags. Reports every problem at once and opens nothing.

use std::path::PathBuf;

use load::capacity_search::{SearchOptions, SearchQuantity, SearchSettings};
use load::plan::{LoadFlags, Objective, RunPlan, TlsFlags};
use record::invalid_value;
use record::problem::{InputProblem, InvalidValue};
use record::units::{
    DurationUnit, MILLISECOND_NS, SECOND_NS, parse_count, parse_duration_ns, parse_fraction,
};

use crate::flags::{CommandArgs, FlagReader, edge_flags};

/// Minimum and maximum length of a short trial.
const TRIAL_NS_RANGE: (u64, u64) = (100 * MILLISECOND_NS, 60 * SECOND_NS);
/// Lengths of full and verifying trials, as multiples of a short one; without --thorough and with it.
const DEFAULT_FACTORS: (u64, u64) = (1, 3);
const THOROUGH_FACTORS: (u64, u64) = (5, 30);
/// Maximum duration without --thorough; longer with trials longer than a second, in proportion.
const SEARCH_NS_MAX: u64 = 90 * SECOND_NS;
/// Highest level without --to, beyond the reach of any machine.
const MAX_LEVEL_DEFAULT: f64 = 1e9;
/// Highest number of streams, with --to or without.
const MAX_STREAMS: f64 = load::plan::STREAMS_MAX as f64;
/// Finest and coarsest interval.
const MAX_GAP_RANGE: (f64, f64) = (0.001, 0.5);

/// Reads all flags. The requests go to `urls`.
pub(in crate::commands) fn parse_flags(
    args: CommandArgs<'_>,
    urls: Vec<String>,
) -> Result<SearchOptions, Vec<InputProblem>> {
    let cores = rt::cores::available_cpus().len();
    let mut text = edge_flags(args, urls);
    let mut reader = OptionReader { args, flags: FlagReader::new(args) };
    let quantity = reader.flags.parse("find", SearchQuantity::parse).unwrap_or(SearchQuantity::Rate);
    let settings = reader.settings(quantity);
    let direct = reader.direct_plan(&text, cores);
    reader.flags.problems.extend(text.tls.file_problems());
    if direct.as_ref().is_some_and(|direct| direct.tls.is_some())
        && !text.urls.iter().any(|url| is_https(url))
    {
        // The flags of TLS are those of the server behind the subject.
        text.tls = TlsFlags::default();
    }
    reader.reject_ignored(quantity);
    let mut problems = reader.flags.problems;
    problems.extend(super::decision::target_per_s(args).err().unwrap_or_default());
    if args.is_set("quick") && args.is_set("thorough") {
        problems.push(InputProblem::new("--thorough", "not with --quick: remove one of them"));
    }
    let objectives = text.slo.iter().flat_map(|list| Objective::parse_list(list).0);
    problems.extend(objectives.filter(Objective::is_rate).map(|objective| {
        let why = format!("'{}': the search sets the rate", objective.text());
        InputProblem::new("--slo", why)
    }));
    let parsed = RunPlan::parse(&text, cores);
    problems.extend(parsed.iter().filter_map(websocket_problem));
    problems.extend(parsed.iter().filter_map(|base| protocol_problem(base, quantity)));
    match parsed {
        Ok(base) if problems.is_empty() => Ok(SearchOptions {
            quantity,
            base,
            direct,
            settings,
            duration_ns_max: (!args.is_set("thorough")).then(|| {
                let factor = (settings.short_trial_ns as f64 / SECOND_NS as f64).max(1.0);
                (SEARCH_NS_MAX as f64 * factor) as u64
            }),
            stretch: 1.0,
            has_max_level: args.text("to").is_some(),
            search_only: args.is_set("search-only"),
            baseline: !args.is_set("no-baseline"),
            records_directory: args.text("keep").map(PathBuf::from),
        }),
        parsed => {
            problems.extend(parsed.err().unwrap_or_default());
            Err(problems)
        }
    }
}

/// Returns a problem if the plan is a load over WebSocket.
fn websocket_problem(base: &RunPlan) -> Option<InputProblem> {
    let why = "weir edge searches with HTTP: use http:// or https://, or search by hand with weir load -R N ws://...";
    base.websocket.as_ref().map(|_| InputProblem::new("URL", why))
}

/// Returns a problem if the quantity does not exist with the plan's protocols.
fn protocol_problem(base: &RunPlan, quantity: SearchQuantity) -> Option<InputProblem> {
    let is_tls = base.authorities().iter().all(|authority| authority.is_tls());
    let why = match quantity {
        SearchQuantity::Handshakes if !is_tls => "only connections with TLS have handshakes: write https://",
        SearchQuantity::Streams if base.http2.is_none() => "only HTTP/2 has streams: add --http 2",
        _ => return None,
    };
    Some(InputProblem::new("--find", why))
}

struct OptionReader<'a> {
    args: CommandArgs<'a>,
    flags: FlagReader<'a>,
}

impl OptionReader<'_> {
    fn settings(&mut self, quantity: SearchQuantity) -> SearchSettings {
        let (first_level, min_level) = quantity.start();
        let first_level = self.flags.parse("from", parse_level).unwrap_or(first_level);
        let default = if quantity == SearchQuantity::Streams { MAX_STREAMS } else { MAX_LEVEL_DEFAULT };
        let max_level = self.flags.parse("to", |text| {
            let max_level = parse_level(text)?;
            if quantity == SearchQuantity::Streams && max_level > MAX_STREAMS {
                Err(invalid_value!("{max_level} exceeds {MAX_STREAMS} streams"))
            } else if max_level >= first_level {
                Ok(max_level)
            } else {
                Err(invalid_value!("{max_level} is below --from, {first_level}"))
            }
        });
        let max_level = max_level.unwrap_or(default);
        let max_gap = self.flags.parse("precision", |text| {
            let max_gap = parse_fraction(text)?;
            let within = (MAX_GAP_RANGE.0..=MAX_GAP_RANGE.1).contains(&max_gap);
            within.then_some(max_gap).ok_or_else(|| invalid_value!("not within 0.1% to 50%"))
        });
        let max_gap = max_gap.unwrap_or(0.02);
        let thorough = self.args.is_set("thorough");
        let default_ns = if thorough { 2 * SECOND_NS } else { SECOND_NS };
        let short_trial_ns = self.flags.parse("trial", |text| {
            let ns = parse_duration_ns(text, DurationUnit::Seconds)?;
            let within = (TRIAL_NS_RANGE.0..=TRIAL_NS_RANGE.1).contains(&ns);
            within.then_some(ns).ok_or_else(|| invalid_value!("not within 100ms to 60s"))
        });
        let short_trial_ns = short_trial_ns.unwrap_or(default_ns);
        let (full_trials, verify_trials) = if thorough { THOROUGH_FACTORS } else { DEFAULT_FACTORS };
        SearchSettings {
            first_level,
            min_level: min_level.min(first_level),
            max_level,
            max_gap,
            integer_levels: quantity.is_count(),
            short_trial_ns,
            full_trial_ns: full_trials * short_trial_ns,
            verify_trial_ns: verify_trials * short_trial_ns,
        }
    }

    /// Rejects flags for values that each trial sets itself.
    fn reject_ignored(&mut self, quantity: SearchQuantity) {
        let (flag, why) = match quantity {
            SearchQuantity::Connections => (
                "connections",
                "--find connections sets this number: remove the flag (--from \
                 and --to limit it)",
            ),
            SearchQuantity::ConnectionsPerSecond | SearchQuantity::Handshakes => {
                ("requests-per-connection", "this search opens a connection per request: remove the flag")
            }
            SearchQuantity::Streams => {
                ("streams", "--find streams sets this number: remove the flag (--from and --to limit it)")
            }
            SearchQuantity::Rate | SearchQuantity::Bandwidth => return,
        };
        if self.args.text(flag).is_some() {
            self.flags.add_problem(flag, why);
        }
    }

    fn direct_plan(&mut self, text: &LoadFlags, cores: usize) -> Option<RunPlan> {
        let url = self.args.text("direct")?;
        let parsed = load::plan::Url::parse(&url);
        if let Err(why) = parsed {
            self.flags.add_problem("direct", why);
            return None;
        }
        let tls = if is_https(&url) { text.tls.clone() } else { TlsFlags::default() };
        // The check of the plan reports all other problems once.
        RunPlan::parse(&LoadFlags { urls: vec![url], tls, ..text.clone() }, cores).ok()
    }
}

fn is_https(url: &str) -> bool {
    load::plan::Url::parse(url).is_ok_and(|url| url.authority.is_tls())
}

/// Parses a level: a rate or a count.
fn parse_level(text: &str) -> Result<f64, InvalidValue> {
    match parse_count(text)? {
        0 => Err(invalid_value!("0 is not a level")),
        level => Ok(level as f64),
    }
}
