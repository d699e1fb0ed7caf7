//! `weir edge`: explores the capacity of a subject, and reports the result.

mod decision;
mod options;

use std::io::IsTerminal;
use std::path::Path;

use host::budget::FdBudget;
use load::capacity_search::{
    Explorer, SearchActivity, SearchIdentity, SearchObserver, SearchOptions, SearchQuantity, TrialDriver,
    TrialRunner, duration_ns,
};
use load::plan::RunPlan;
use record::capacity_search::{CapacitySearch, LevelOutcome, SearchEnd, SearchTrial};
use record::problem::InputProblem;
use record::units::format_plural;
use report::compare_searches;
use report::text::edge::{answer, brief, result_sentence, summary, trial_line, trial_step};
use report::text::junit_suite::edge_junit;
use report::text::search_markdown::search_markdown;
use rt::drain::{Drain, DrainWatch, SignalSet, block_signals};
use runner::confirm::{ConfirmContext, Throttle};
use runner::local_driver::LocalDriver;
use runner::run_record::{CommandIdentity, host_record};
use runner::search_proof;

pub(super) use options::parse_flags;

use super::command_identity;
use super::load::{print_check, with_less_cpu_time};
use super::pages::write_edge_page;
use crate::exit::{Exit, Failure};
use crate::flags::CommandArgs;
use crate::output::file::{write_json, write_text};
use crate::output::{is_coloured, print};
use crate::preflight;
use crate::progress_bar::ProgressBar;
use crate::streams::notice;

pub(super) fn run(args: CommandArgs<'_>, arguments: &[String]) -> Result<Exit, Failure> {
    let mut options = parse_flags(args, args.values())?;
    if args.is_set("check") {
        let untested_reason = search_proof::reason_without_test(&options, args.is_set("quick"));
        let text = announcement(&options.base, options.quantity, announced_ns(&options, untested_reason));
        return print_check(text, &options.base);
    }
    check_outputs(args, &options)?;
    runner::preflight::check_sources(&options.base)?;
    options.base.choose_addresses().map_err(Failure::cannot_run)?;
    let descriptor_limit = limit_to_descriptors(&mut options);
    let drain = Drain::default();
    let stop = drain.watch();
    block_signals(SignalSet::Termination)?.spawn_handler(drain, None)?;
    let identity = command_identity(arguments);
    let driver = LocalDriver::new(&identity, &stop);
    let untested_reason = search_proof::reason_without_test(&options, args.is_set("quick"));
    let search = EdgeSearch {
        args,
        identity: &identity,
        options: &options,
        stop: &stop,
        descriptor_limit,
        untested_reason,
    };
    search.run(driver, "")
}

/// Checks that the results can be written, and creates the directory of the records.
pub(super) fn check_outputs(args: CommandArgs<'_>, options: &SearchOptions) -> Result<(), Failure> {
    let beside_page = record_file(args)?.filter(|_| args.text("json").is_none());
    preflight::outputs_and(args, STDOUT_FLAGS, &["html"], beside_page.map(|file| ("html", file)))?;
    earlier_search(args)?;
    if let Some(directory) = &options.records_directory {
        std::fs::create_dir_all(directory)
            .map_err(|why| InputProblem::new("--keep", format!("{}: {why}", directory.display())))
            .map_err(|problem| vec![problem])?;
    }
    Ok(())
}

const STDOUT_FLAGS: &[&str] = &["json", "markdown", "junit"];

/// Returns the file of the record: that of `--json`, or one beside the page. A file there that is no record of a
/// search is not replaced.
fn record_file(args: CommandArgs<'_>) -> Result<Option<String>, Vec<InputProblem>> {
    let (None, Some(page)) = (args.text("json"), args.text("html")) else { return Ok(args.text("json")) };
    let file = Path::new(&page).with_extension("json");
    let is_own = || {
        let schema = record::file::read_schema(&file);
        schema.is_ok_and(|schema| schema == record::capacity_search::SCHEMA)
    };
    if file.exists() && !is_own() {
        let text = format!(
            "the record goes beside the page, and {} is another file: name one with --json",
            file.display()
        );
        return Err(vec![InputProblem::new("--html", text)]);
    }
    Ok(Some(file.display().to_string()))
}

fn earlier_search(args: CommandArgs<'_>) -> Result<Option<(String, CapacitySearch)>, Vec<InputProblem>> {
    let Some(name) = args.text("baseline") else { return Ok(None) };
    match record::capacity_search::read_search(Path::new(&name)) {
        Ok(search) => Ok(Some((name, search))),
        Err(error) => Err(vec![InputProblem::new("--baseline", error)]),
    }
}

/// Returns the usual and the maximum duration of the search with its test.
fn announced_ns(options: &SearchOptions, untested_reason: Option<&str>) -> (u64, u64) {
    let (usual_ns, max_ns) = duration_ns(options);
    let (test_ns, test_ns_max) = if untested_reason.is_some() { (0, 0) } else { search_proof::duration_ns() };
    (usual_ns + test_ns, max_ns + test_ns_max)
}

pub(super) struct EdgeSearch<'a> {
    pub(super) args: CommandArgs<'a>,
    pub(super) identity: &'a CommandIdentity,
    pub(super) options: &'a SearchOptions,
    pub(super) stop: &'a DrainWatch,
    /// Sentence that reports a limit of the connections by descriptors.
    pub(super) descriptor_limit: Option<String>,
    /// Reason why the limit is not tested; `None`: it is, by loads of this process.
    pub(super) untested_reason: Option<&'static str>,
}

impl EdgeSearch<'_> {
    /// Runs the search with the loads of `driver`, and writes the result. `introduction` is printed before it.
    pub(super) fn run(
        self,
        driver: impl TrialDriver<Error = Failure>,
        introduction: &str,
    ) -> Result<Exit, Failure> {
        let Self { args, identity, options, stop, descriptor_limit, untested_reason } = self;
        let json = record_file(args)?;
        let earlier = earlier_search(args)?;
        let quiet = preflight::writes_to_stdout(args, STDOUT_FLAGS);
        if !quiet {
            print(introduction);
            print(&announcement(&options.base, options.quantity, announced_ns(options, untested_reason)));
        }
        let show_lines = !quiet && std::io::stdout().is_terminal();
        let started_at = record::file::wall_clock_now();
        let CommandIdentity { weir, command } = identity.clone();
        let host = host_record(host::facts::read(), Vec::new());
        let run_identity = identity;
        let identity = SearchIdentity { weir, command, started_at, host };
        let mut view = SearchView { bar: ProgressBar::start(), show_lines, quantity: options.quantity };
        let runner = TrialRunner::new(driver, stop, options);
        let explored = Explorer::new(options, runner, &mut view).explore(descriptor_limit, identity);
        // Clears the line.
        drop(view);
        let mut edge = explored?;
        let tests = match untested_reason {
            Some(reason) => {
                search_proof::set_untested(&mut edge, reason);
                Vec::new()
            }
            None => {
                let throttle = args.is_set("confirm").then_some(with_less_cpu_time as Throttle);
                let quiet = !std::io::stderr().is_terminal();
                let context =
                    ConfirmContext { throttle, trial_ns: search_proof::TEST_LOAD_NS, notice, quiet };
                search_proof::prove(&mut edge, options, run_identity, context, stop)
            }
        };
        edge.summary = result_sentence(&edge);
        edge.answer = Some(answer(&edge));
        decision::decide(args, &mut edge, tests, json.as_deref());
        edge.comparison = earlier.map(|(name, earlier)| compare_searches(&name, &earlier, &edge));
        if !quiet {
            match args.is_set("brief") {
                true => print(&brief(&edge)),
                false => print(&summary(&edge, is_coloured())),
            }
        }
        // One that fails keeps none of the others from being written.
        let written = [
            write_json(&edge, json.as_deref()),
            write_text(&search_markdown(&edge), args.text("markdown").as_deref()),
            write_text(&edge_junit(&edge, options.has_max_level), args.text("junit").as_deref()),
            write_edge_page(args, &edge),
        ];
        written.into_iter().collect::<Result<(), _>>()?;
        Ok(exit_code(edge.conclusion.end, is_miss_proven(&edge.trials), options.has_max_level))
    }
}

/// Progress of a search, and on a terminal the line of each trial.
struct SearchView {
    bar: ProgressBar,
    show_lines: bool,
    quantity: SearchQuantity,
}

impl SearchObserver for SearchView {
    fn on_step(&mut self, step: SearchActivity, remaining_s: f64) {
        let text = match step {
            SearchActivity::Baseline => "requests one at a time".to_owned(),
            SearchActivity::Trial { number, purpose, level } => {
                trial_step(number, purpose, level, self.quantity)
            }
        };
        self.bar.set(text, (remaining_s, remaining_s));
    }

    fn on_trial(&mut self, trial: &SearchTrial) {
        if self.show_lines {
            self.bar.print_above(|| print(&trial_line(trial, self.quantity)));
        }
    }
}

/// Limits connections to the file descriptors of this process. Returns the sentence that reports
/// it.
fn limit_to_descriptors(options: &mut SearchOptions) -> Option<String> {
    let limit = rt::limits::raise_descriptor_limit().current;
    let shortage = FdBudget::client(load::plan::CONNECTIONS_MAX, limit).check().err()?;
    // Connections in user space have no descriptors; their ports are checked before each trial.
    if options.base.xdp.is_some() {
        return None;
    }
    if options.quantity != SearchQuantity::Connections {
        return None;
    }
    let settings = &mut options.settings;
    // Below the lowest level, the preflight check of the first trial reports the shortage.
    let possible = (shortage.connections_possible as f64).max(settings.min_level);
    if settings.max_level <= possible {
        return None;
    }
    settings.max_level = possible;
    settings.first_level = settings.first_level.min(possible);
    Some(format!("descriptors: this process may open {limit} files, so {possible} connections"))
}

/// Returns the exit code. A highest level that held is a success only if the user set that level, and a miss at the
/// lowest one counts only if it is proven.
fn exit_code(end: SearchEnd, is_proven: bool, bounded: bool) -> Exit {
    match end {
        SearchEnd::Found => Exit::Done,
        SearchEnd::MaxLevel if bounded => Exit::Done,
        SearchEnd::BelowLowest if is_proven => Exit::ObjectiveMissed,
        SearchEnd::BelowLowest
        | SearchEnd::MaxLevel
        | SearchEnd::GeneratorLimit
        | SearchEnd::NotVerified
        | SearchEnd::Drifted
        | SearchEnd::Stopped => Exit::Invalid,
    }
}

/// Returns whether the last level that was missed was not missed inside of a disturbance.
fn is_miss_proven(trials: &[SearchTrial]) -> bool {
    trials.iter().rfind(|trial| trial.outcome == LevelOutcome::Missed).is_none_or(|trial| !trial.is_unproven)
}

/// Announces the search and its duration.
fn announcement(base: &RunPlan, quantity: SearchQuantity, (usual_ns, max_ns): (u64, u64)) -> String {
    let urls = base.requests.iter().map(|request| request.url.to_string()).collect::<Vec<_>>();
    let unit_text = SearchQuantity::ALL
        .iter()
        .find(|(known_quantity, _, _)| *known_quantity == quantity)
        .map_or("", |(_, _, what)| what);
    let connections = match (quantity, &base.http2) {
        (SearchQuantity::Connections, _) => String::new(),
        (SearchQuantity::Streams, _) | (_, None) => {
            format!(", {}", format_plural(base.connections, "connection"))
        }
        (_, Some(http2)) => {
            let streams = format_plural(http2.streams, "stream");
            format!(", {} x {streams}", format_plural(base.connections, "connection"))
        }
    };
    format!(
        "{}\nsearching for the max {unit_text}{connections}, {}; takes about {}, at most {}\n",
        urls.join("\n"),
        format_plural(base.threads as u64, "thread"),
        format_minutes(usual_ns),
        format_minutes(max_ns)
    )
}

fn format_minutes(ns: u64) -> String {
    match ns.div_ceil(1_000_000_000) {
        seconds if seconds < 120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_miss_at_the_lowest_level_counts_if_it_is_proven() {
        for (end, is_proven, bounded, expected) in [
            (SearchEnd::Found, true, false, 0),
            // The level itself held.
            (SearchEnd::Found, false, false, 0),
            (SearchEnd::MaxLevel, true, true, 0),
            (SearchEnd::MaxLevel, true, false, 4),
            (SearchEnd::BelowLowest, true, false, 3),
            (SearchEnd::BelowLowest, false, false, 4),
            (SearchEnd::GeneratorLimit, true, false, 4),
            (SearchEnd::NotVerified, true, false, 4),
            (SearchEnd::Drifted, true, false, 4),
            (SearchEnd::Stopped, true, false, 4),
        ] {
            let code = exit_code(end, is_proven, bounded).code();
            assert_eq!(code, expected, "{end:?} {is_proven} {bounded}");
        }
    }

    #[test]
    fn the_last_miss_decides() {
        let trial = |outcome, is_unproven| SearchTrial { outcome, is_unproven, ..SearchTrial::default() };
        let held = trial(LevelOutcome::Held, false);
        let [missed, unproven] = [false, true].map(|unproven| trial(LevelOutcome::Missed, unproven));
        assert!(is_miss_proven(&[]) && is_miss_proven(&[unproven.clone(), missed.clone(), held.clone()]));
        assert!(!is_miss_proven(&[missed, unproven, held]));
    }
}
