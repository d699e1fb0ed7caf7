//! What `weir edge` was asked for, from its flags: every problem at once. Nothing is opened here.

use std::path::PathBuf;

use load::edge::{Find, Settings};
use load::plan::{Objective, Plan, PlanText};
use record::problem::Problem;
use record::units::{
    DurationUnit, MILLISECOND_NS, SECOND_NS, parse_count, parse_duration_ns, parse_share,
};

use crate::flags::{Typed, edge_text};

/// What was asked for.
#[derive(Debug)]
pub(in crate::commands) struct Asked {
    pub(super) find: Find,
    /// What all trials have in common.
    pub(super) base: Plan,
    /// The same to the server behind the subject.
    pub(super) direct: Option<Plan>,
    pub(super) settings: Settings,
    /// Whether `--to` was given.
    pub(super) bounded: bool,
    pub(super) search_only: bool,
    pub(super) keep: Option<PathBuf>,
}

/// Shortest and longest of the short trials.
const TRIAL_NS: (u64, u64) = (100 * MILLISECOND_NS, 60 * SECOND_NS);
/// Full and verifying trials, as multiples of a short one; with --quick and without.
const QUICK: (u64, u64) = (2, 5);
const THOROUGH: (u64, u64) = (5, 30);
/// Without --to; no machine comes near.
const HIGHEST: f64 = 1e9;
/// The finest and the coarsest interval.
const WIDTH: (f64, f64) = (0.001, 0.5);

/// Reads all flags, for requests to `urls`.
pub(in crate::commands) fn check(
    typed: Typed<'_>,
    urls: Vec<String>,
) -> Result<Asked, Vec<Problem>> {
    let cores = rt::cores::available().len();
    let text = edge_text(typed, urls);
    let mut reader = Reader { typed, problems: Vec::new() };
    let find = reader.read("find", Find::Rate, Find::parse);
    let settings = reader.settings(find);
    let direct = reader.direct(&text, cores);
    reader.ignored(find);
    let mut problems = reader.problems;
    let objectives = text.slo.iter().flat_map(|list| Objective::parse_list(list).0);
    problems.extend(objectives.filter(Objective::is_of_rate).map(|objective| {
        let why = format!("'{}': the rate is what is searched for", objective.text());
        Problem::new("--slo", why)
    }));
    match Plan::parse(&text, cores) {
        Ok(base) if problems.is_empty() => Ok(Asked {
            find,
            base,
            direct,
            settings,
            bounded: typed.text("to").is_some(),
            search_only: typed.is_set("search-only"),
            keep: typed.text("keep").map(PathBuf::from),
        }),
        parsed => {
            problems.extend(parsed.err().unwrap_or_default());
            Err(problems)
        }
    }
}

struct Reader<'a> {
    typed: Typed<'a>,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn read<T>(
        &mut self,
        flag: &str,
        default: T,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> T {
        let Some(text) = self.typed.text(flag) else {
            return default;
        };
        parse(&text).unwrap_or_else(|why| {
            self.problems.push(Problem::new(format!("--{flag}"), why));
            default
        })
    }

    fn settings(&mut self, find: Find) -> Settings {
        let (from, lowest) = find.start();
        let from = self.read("from", from, level);
        let highest = self.read("to", HIGHEST, |text| {
            let to = level(text)?;
            if to >= from { Ok(to) } else { Err(format!("{to} is below --from, {from}")) }
        });
        let width = self.read("width", 0.02, |text| {
            let width = parse_share(text)?;
            let within = (WIDTH.0..=WIDTH.1).contains(&width);
            within.then_some(width).ok_or_else(|| "the width is 0.1% to 50%".to_owned())
        });
        let quick = self.typed.is_set("quick");
        let default_ns = if quick { SECOND_NS } else { 2 * SECOND_NS };
        let short_ns = self.read("trial", default_ns, |text| {
            let ns = parse_duration_ns(text, DurationUnit::Seconds)?;
            let within = (TRIAL_NS.0..=TRIAL_NS.1).contains(&ns);
            within.then_some(ns).ok_or_else(|| "a trial takes 100ms to 60s".to_owned())
        });
        let (full, verify) = if quick { QUICK } else { THOROUGH };
        Settings {
            from,
            lowest: lowest.min(from),
            highest,
            width,
            whole: find == Find::Connections,
            short_ns,
            full_ns: full * short_ns,
            verify_ns: verify * short_ns,
        }
    }

    /// What each trial sets itself cannot be asked for.
    fn ignored(&mut self, find: Find) {
        let (flag, why) = match find {
            Find::Connections => (
                "connections",
                "with --find connections their number is what is searched for: leave it out (--from \
                 and --to bound it)",
            ),
            Find::ConnectionsPerSecond => (
                "requests-per-connection",
                "with --find connections-per-second each request has a connection of its own: leave \
                 it out",
            ),
            Find::Rate | Find::Bandwidth => return,
        };
        if self.typed.text(flag).is_some() {
            self.problems.push(Problem::new(format!("--{flag}"), why));
        }
    }

    fn direct(&mut self, text: &PlanText, cores: usize) -> Option<Plan> {
        let url = self.typed.text("direct")?;
        let parsed = load::plan::Url::parse(&url);
        if let Err(why) = parsed {
            self.problems.push(Problem::new("--direct", why));
            return None;
        }
        // What else is wrong is told once, of the plan itself.
        Plan::parse(&PlanText { urls: vec![url], ..text.clone() }, cores).ok()
    }
}

/// A level: a rate or a count.
fn level(text: &str) -> Result<f64, String> {
    match parse_count(text)? {
        0 => Err("0 is no level".to_owned()),
        level => Ok(level as f64),
    }
}
