//! `weir lab serve DIR`: the experiments in a directory as web pages, for a browser on this machine.

mod html;
mod index;
mod progress;
mod side_by_side;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use experiment::engine::experiment_dir::{PLAN_FILE, list_experiments};
use record::problem::InputProblem;
use rt::address::Address;
use rt::drain::{Drain, SignalSet, block_signals};
use serve::web_ui::{WebPage, WebRequest, WebRoute, serve_file};

use super::compare::{EFFECT_DEFAULT, compare_experiments};
use super::experiments::{
    ExperimentRow, ExperimentState, experiment_rows, find_experiment, parse_directory, read_unfinished,
};
use crate::exit::{Exit, Failure};
use crate::flags::CommandArgs;
use crate::output::print;

/// Report of an experiment, in its directory.
const REPORT: &str = "report.html";

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let (address, root) = match (parse_address(args), parse_directory(args)) {
        (Ok(address), Ok(root)) => (address, root),
        (address, root) => {
            let mut problems = address.err().unwrap_or_default();
            problems.extend(root.err().unwrap_or_default());
            return Err(problems.into());
        }
    };
    if root.join(PLAN_FILE).is_file() {
        let text = format!("{} is an experiment (name its parent directory)", root.display());
        return Err(vec![InputProblem::new("DIR", text)].into());
    }
    let drain = Drain::default();
    let stop = drain.watch();
    block_signals(SignalSet::Termination)?.spawn_handler(drain, None)?;
    if !address.ip().is_loopback() {
        warn!("weir: warning: {address} is not loopback and there is no password");
    }
    serve::web_ui::run(address, routes(&root), stop, |address| {
        print(&format!("listening on http://{address}/\n"));
    })?;
    Ok(Exit::Done)
}

/// Checks the flags.
#[cfg(test)]
pub(super) fn check(args: CommandArgs<'_>) -> Result<(), Vec<InputProblem>> {
    parse_address(args).map(|_| ())
}

fn parse_address(args: CommandArgs<'_>) -> Result<SocketAddr, Vec<InputProblem>> {
    let Some(text) = args.text("listen") else { return Ok((Ipv4Addr::LOCALHOST, 0).into()) };
    match text.parse::<Address>() {
        Ok(Address::Tcp(address)) => Ok(address),
        Ok(Address::Unix(_)) => Err(vec![InputProblem::new("--listen", "a browser needs a TCP address")]),
        Err(error) => Err(vec![InputProblem::new("--listen", error.to_string())]),
    }
}

fn routes(root: &Path) -> Vec<WebRoute> {
    let handler = |page: fn(&Path, &WebRequest) -> WebPage| {
        let root = root.to_owned();
        move |request: &WebRequest| page(&root, request)
    };
    vec![
        WebRoute::new("/", handler(index_page)),
        WebRoute::new("/compare", handler(compare_page)),
        WebRoute::new("/x/", handler(experiment_page)),
    ]
}

fn index_page(root: &Path, request: &WebRequest) -> WebPage {
    let (rows, is_truncated) = experiment_rows(root);
    let filter = request.query_value("filter").unwrap_or_default();
    WebPage::html(index::index(&root.display().to_string(), &rows, filter, is_truncated))
}

fn compare_page(root: &Path, request: &WebRequest) -> WebPage {
    let experiment_in_query = |name: &str| -> Option<(String, PathBuf)> {
        let directory = request.query_value(name)?;
        let segments: Vec<&str> = directory.split('/').collect();
        let (path, segment_count) = find_experiment(root, &segments)?;
        (segment_count == segments.len()).then(|| (directory.to_owned(), path))
    };
    let (Some((a, path_a)), Some((b, path_b))) = (experiment_in_query("a"), experiment_in_query("b")) else {
        return WebPage::text(404, "choose two experiments, A and B\n");
    };
    // A visible intermediate result would tempt the user to stop the experiment at it.
    if is_running(&path_a) || is_running(&path_b) {
        return WebPage::text(409, "one of them still runs: its result is shown at its end\n");
    }
    match compare_experiments(&path_a, &path_b, EFFECT_DEFAULT) {
        Ok(mut compared) => {
            (compared.a.path, compared.b.path) = (a, b);
            WebPage::html(side_by_side::comparison_page(&compared))
        }
        Err(failure) => WebPage::text(500, format!("{}\n", failure.lines().join("\n"))),
    }
}

fn is_running(path: &Path) -> bool {
    list_experiments(path).experiments.first().is_some_and(|one| one.running_pid.is_some())
}

/// Returns an experiment's report, its progress, or one of its files.
fn experiment_page(root: &Path, request: &WebRequest) -> WebPage {
    let Some(segments) = request.segments_below("/x/") else { return WebPage::not_found() };
    let Some((path, segment_count)) = find_experiment(root, &segments) else {
        return WebPage::not_found();
    };
    if !matches!(segments[segment_count..], [] | [""]) {
        return serve_file(root, &segments);
    }
    let is_running = is_running(&path);
    if !is_running && path.join(REPORT).is_file() {
        let report: Vec<&str> = segments[..segment_count].iter().copied().chain([REPORT]).collect();
        return serve_file(root, &report);
    }
    let state = if is_running { ExperimentState::Running } else { ExperimentState::Unfinished };
    match read_unfinished(&path) {
        Ok(row) => {
            let directory = segments[..segment_count].join("/");
            WebPage::html(progress::progress_page(&ExperimentRow { directory, state, ..row }))
        }
        Err(error) => WebPage::text(500, format!("{error}\n")),
    }
}
