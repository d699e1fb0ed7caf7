//! `weir edge`: explores the capacity of a subject, and reports the result.

mod durations;
mod explorer;
mod failed_levels;
mod options;
mod trial_runner;

use std::io::IsTerminal;

use host::budget::FdBudget;
use load::capacity_search::SearchQuantity;
use record::capacity_search::{CapacitySearch, SearchEnd};
use record::problem::InputProblem;
use rt::drain::{Drain, DrainWatch, SignalSet, block_signals};

use durations::duration_ns;
use explorer::EdgeExplorer;
pub(super) use options::{EdgeOptions, parse_flags};
pub(super) use trial_runner::{DrivenLoad, TrialDriver, TrialSetup};
use trial_runner::{LocalDriver, TrialRunner};

use crate::exit::{Exit, Failure};
use crate::flags::CommandArgs;
use crate::output::edge::{announcement, brief, summary};
use crate::output::file::write_json;
use crate::output::{is_coloured, print};
use crate::preflight;

pub(super) fn run(args: CommandArgs<'_>, arguments: &[String]) -> Result<Exit, Failure> {
    let mut options = parse_flags(args, args.values())?;
    check_outputs(args, &options)?;
    preflight::check_sources(&options.base)?;
    let descriptor_limit = limit_to_descriptors(&mut options);
    let drain = Drain::default();
    let stop = drain.watch();
    block_signals(SignalSet::Termination)?.spawn_handler(drain, None)?;
    let driver = LocalDriver::new(args, arguments, &stop);
    let search = EdgeSearch { args, arguments, options: &options, stop: &stop, descriptor_limit };
    search.run(Box::new(driver), "")
}

/// Checks that the results can be written, and creates the directory of the records.
pub(super) fn check_outputs(args: CommandArgs<'_>, options: &EdgeOptions) -> Result<(), Failure> {
    preflight::outputs(args, &["json"], &[])?;
    if let Some(directory) = &options.records_directory {
        std::fs::create_dir_all(directory)
            .map_err(|why| InputProblem::new("--keep", format!("{}: {why}", directory.display())))
            .map_err(|problem| vec![problem])?;
    }
    Ok(())
}

/// Search with its output.
pub(super) struct EdgeSearch<'a> {
    pub(super) args: CommandArgs<'a>,
    pub(super) arguments: &'a [String],
    pub(super) options: &'a EdgeOptions,
    /// Request of the user to stop.
    pub(super) stop: &'a DrainWatch,
    /// Sentence that reports a limit of the connections by descriptors.
    pub(super) descriptor_limit: Option<String>,
}

impl<'a> EdgeSearch<'a> {
    /// Runs the search with the loads of `driver`, and writes the result. `introduction` is printed before it.
    pub(super) fn run(self, driver: Box<dyn TrialDriver + 'a>, introduction: &str) -> Result<Exit, Failure> {
        let Self { args, arguments, options, stop, descriptor_limit } = self;
        let json = args.text("json");
        let quiet = json.as_deref() == Some("-");
        if !quiet {
            print(introduction);
            print(&announcement(&options.base, options.quantity, duration_ns(options)));
        }
        let show_lines = !quiet && std::io::stdout().is_terminal();
        let started_at = record::file::wall_clock_now();
        let runner = TrialRunner::new(driver, stop, options);
        let edge = EdgeExplorer::new(options, arguments, runner, show_lines)
            .explore(descriptor_limit, started_at)?;
        if !quiet {
            match args.is_set("brief") {
                true => print(&brief(&edge)),
                false => print(&summary(&edge, is_coloured())),
            }
        }
        write_json(&edge, json.as_deref())?;
        Ok(exit_code(&edge, options.has_max_level))
    }
}

/// Limits connections to the file descriptors of this process. Returns the sentence that reports
/// it.
fn limit_to_descriptors(options: &mut EdgeOptions) -> Option<String> {
    let limit = rt::limits::raise_descriptor_limit().current;
    let shortage = FdBudget::client(load::plan::CONNECTIONS_MAX, limit).check().err()?;
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

/// Returns the exit code. A highest level that held is a success only if the user set that level.
fn exit_code(edge: &CapacitySearch, bounded: bool) -> Exit {
    match edge.conclusion.end {
        SearchEnd::Found => Exit::Done,
        SearchEnd::MaxLevel if bounded => Exit::Done,
        SearchEnd::BelowLowest => Exit::ObjectiveMissed,
        SearchEnd::MaxLevel
        | SearchEnd::GeneratorLimit
        | SearchEnd::NotVerified
        | SearchEnd::Drifted
        | SearchEnd::Stopped => Exit::Invalid,
    }
}
