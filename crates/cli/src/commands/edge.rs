//! `weir edge`: explores the capacity of a subject, and reports the result.

mod options;

use std::io::IsTerminal;

use host::budget::FdBudget;
use load::capacity_search::{
    Explorer, SearchActivity, SearchIdentity, SearchObserver, SearchOptions, SearchQuantity, TrialDriver,
    TrialRunner, duration_ns,
};
use record::capacity_search::{CapacitySearch, SearchEnd, SearchTrial};
use record::problem::InputProblem;
use rt::drain::{Drain, DrainWatch, SignalSet, block_signals};
use runner::local_driver::LocalDriver;
use runner::run_record::{CommandIdentity, host_record};

pub(super) use options::parse_flags;

use super::command_identity;
use super::pages::write_edge_page;
use crate::exit::{Exit, Failure};
use crate::flags::CommandArgs;
use crate::output::edge::{announcement, answer, brief, result_sentence, summary, trial_line, trial_step};
use crate::output::file::write_json;
use crate::output::{is_coloured, print};
use crate::preflight;
use crate::progress_bar::ProgressBar;

pub(super) fn run(args: CommandArgs<'_>, arguments: &[String]) -> Result<Exit, Failure> {
    let mut options = parse_flags(args, args.values())?;
    check_outputs(args, &options)?;
    runner::preflight::check_sources(&options.base)?;
    options.base.choose_addresses().map_err(Failure::cannot_run)?;
    let descriptor_limit = limit_to_descriptors(&mut options);
    let drain = Drain::default();
    let stop = drain.watch();
    block_signals(SignalSet::Termination)?.spawn_handler(drain, None)?;
    let identity = command_identity(arguments);
    let driver = LocalDriver::new(&identity, &stop);
    let search = EdgeSearch { args, identity: &identity, options: &options, stop: &stop, descriptor_limit };
    search.run(driver, "")
}

/// Checks that the results can be written, and creates the directory of the records.
pub(super) fn check_outputs(args: CommandArgs<'_>, options: &SearchOptions) -> Result<(), Failure> {
    preflight::outputs(args, &["json"], &["html"])?;
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
    pub(super) identity: &'a CommandIdentity,
    pub(super) options: &'a SearchOptions,
    /// Request of the user to stop.
    pub(super) stop: &'a DrainWatch,
    /// Sentence that reports a limit of the connections by descriptors.
    pub(super) descriptor_limit: Option<String>,
}

impl EdgeSearch<'_> {
    /// Runs the search with the loads of `driver`, and writes the result. `introduction` is printed before it.
    pub(super) fn run(
        self,
        driver: impl TrialDriver<Error = Failure>,
        introduction: &str,
    ) -> Result<Exit, Failure> {
        let Self { args, identity, options, stop, descriptor_limit } = self;
        let json = args.text("json");
        let quiet = json.as_deref() == Some("-");
        if !quiet {
            print(introduction);
            print(&announcement(&options.base, options.quantity, duration_ns(options)));
        }
        let show_lines = !quiet && std::io::stdout().is_terminal();
        let started_at = record::file::wall_clock_now();
        let CommandIdentity { weir, command } = identity.clone();
        let host = host_record(host::facts::read(), Vec::new());
        let identity = SearchIdentity { weir, command, started_at, host };
        let mut view = SearchView { bar: ProgressBar::start(), show_lines, quantity: options.quantity };
        let runner = TrialRunner::new(driver, stop, options);
        let explored = Explorer::new(options, runner, &mut view).explore(descriptor_limit, identity);
        // Clears the line.
        drop(view);
        let mut edge = explored?;
        edge.summary = result_sentence(&edge);
        edge.answer = Some(answer(&edge));
        if !quiet {
            match args.is_set("brief") {
                true => print(&brief(&edge)),
                false => print(&summary(&edge, is_coloured())),
            }
        }
        write_json(&edge, json.as_deref())?;
        write_edge_page(args, &edge)?;
        Ok(exit_code(&edge, options.has_max_level))
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
