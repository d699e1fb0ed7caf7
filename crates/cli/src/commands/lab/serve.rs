//! `weir lab serve DIR`: the experiments in a directory, and stored runs of a fleet, as web pages for a browser on this
//! machine.

mod runs;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use experiment::comparison::{EFFECT_DEFAULT, compare_experiments};
use experiment::engine::experiment_dir::{PLAN_FILE, list_experiments};
use experiment::list::{ExperimentRow, ExperimentState, experiment_rows, find_experiment, read_unfinished};
use fleet::message::RunId;
use fleet::run_store::AGENTS;
use maud::html;
use record::fleet::MERGED_FILE;
use record::problem::InputProblem;
use report::lab_pages;
use rt::address::Address;
use rt::drain::{Drain, SignalSet, block_signals};
use server_shell::web_ui::{self, JSON, WebPage, WebRequest, WebRoute, serve_file};

use super::experiments::{directory_failure, parse_directory};
use super::stored_runs::{RunBucket, RunDirectory, agents_in};
use crate::commands::fleet::parse_bucket;
use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, nats_flags_given, nats_options, nats_problems};
use crate::output::print;

/// Report of an experiment, in its directory.
const REPORT: &str = "report.html";

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let (address, root, bucket) = match (parse_address(args), parse_directory(args), parse_store(args)) {
        (Ok(address), Ok(root), Ok(bucket)) => (address, root, bucket),
        (address, root, bucket) => {
            let mut problems = address.err().unwrap_or_default();
            problems.extend(root.err().unwrap_or_default());
            problems.extend(bucket.err().unwrap_or_default());
            return Err(problems.into());
        }
    };
    if root.join(PLAN_FILE).is_file() {
        let text = "it is an experiment (name its parent directory)";
        return Err(vec![InputProblem::new(root.display().to_string(), text)].into());
    }
    if root.join(MERGED_FILE).is_file() {
        let text = "it is a run of a fleet (name its parent directory)";
        return Err(vec![InputProblem::new(root.display().to_string(), text)].into());
    }
    let drain = Drain::default();
    let stop = drain.watch();
    block_signals(SignalSet::Termination)?.spawn_handler(drain, None)?;
    if !address.ip().is_loopback() {
        warn!("weir: warning: {address} is not loopback and there is no password");
    }
    let site = Site { runs: RunDirectory::new(&root), root, bucket };
    web_ui::run(address, routes(site), stop, |address| {
        print(&format!("listening on http://{address}/\n"));
    })?;
    Ok(Exit::Done)
}

#[cfg(test)]
pub(super) fn check(args: CommandArgs<'_>) -> Result<(), Vec<InputProblem>> {
    let mut problems = parse_address(args).err().unwrap_or_default();
    problems.extend(parse_store(args).err().unwrap_or_default());
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

fn parse_store(args: CommandArgs<'_>) -> Result<Option<RunBucket>, Vec<InputProblem>> {
    let mut problems = nats_problems(args);
    let bucket = parse_bucket(args).map_err(|problem| problems.push(problem)).unwrap_or_default();
    if bucket.is_none() && problems.is_empty() {
        let text = "needs --store jetstream: pages of a directory need no server";
        let given = nats_flags_given(args).into_iter();
        problems.extend(given.map(|flag| InputProblem::new(format!("--{flag}"), text)));
    }
    let nats = nats_options(args, "weir lab serve");
    if problems.is_empty() { Ok(bucket.map(|name| RunBucket { nats, name })) } else { Err(problems) }
}

fn parse_address(args: CommandArgs<'_>) -> Result<SocketAddr, Vec<InputProblem>> {
    let Some(text) = args.text("listen") else { return Ok((Ipv4Addr::LOCALHOST, 0).into()) };
    match text.parse::<Address>() {
        Ok(Address::Tcp(address)) => Ok(address),
        Ok(Address::Unix(_)) => Err(vec![InputProblem::new("--listen", "a browser needs a TCP address")]),
        Err(error) => Err(vec![InputProblem::new("--listen", error)]),
    }
}

/// Sources of the pages.
#[derive(Debug)]
struct Site {
    root: PathBuf,
    runs: RunDirectory,
    bucket: Option<RunBucket>,
}

fn routes(site: Site) -> Vec<WebRoute> {
    let site = Rc::new(site);
    let handler = |page: fn(&Site, &WebRequest) -> WebPage| {
        let site = Rc::clone(&site);
        move |request: &WebRequest| page(&site, request)
    };
    vec![
        WebRoute::new("/", handler(index_page)),
        WebRoute::new("/compare", handler(compare_page)),
        WebRoute::new("/x/", handler(experiment_page)),
        WebRoute::new("/run/", handler(run_page)),
        WebRoute::new("/stored/", handler(stored_run_page)),
    ]
}

fn index_page(site: &Site, request: &WebRequest) -> WebPage {
    let (rows, is_truncated) = experiment_rows(&site.root);
    let filter = request.query_value("filter").unwrap_or_default();
    let bucket_section = site.bucket.as_ref().map(|bucket| {
        let title = format!("Runs in the bucket {}", bucket.name);
        match bucket.list() {
            Ok(listing) => runs::section(&title, "stored", &listing, filter),
            Err(why) => html! { p.note { (title) ": " (why) } },
        }
    });
    let sections = html! {
        (runs::section("Runs of a fleet", "run", &site.runs.list(), filter))
        @if let Some(section) = bucket_section { (section) }
    };
    let root = site.root.display().to_string();
    WebPage::html(lab_pages::index(&root, &rows, filter, is_truncated, &sections))
}

/// Returns the page of a run below the directory, or one of its records.
fn run_page(site: &Site, request: &WebRequest) -> WebPage {
    let Some(segments) = request.segments_below("/run/") else { return WebPage::not_found() };
    let Some((path, segment_count)) = site.runs.find(&segments) else { return WebPage::not_found() };
    if !matches!(segments[segment_count..], [] | [""]) {
        return serve_file(&site.root, &segments);
    }
    match record::file::read_run(&path.join(MERGED_FILE)) {
        Ok(run) => {
            let name = segments[..segment_count].join("/");
            WebPage::html(runs::run_page("run", &name, &run, &agents_in(&path)))
        }
        Err(error) => WebPage::text(500, format!("{error}\n")),
    }
}

/// Returns the page of a run in the bucket, or one of its records.
fn stored_run_page(site: &Site, request: &WebRequest) -> WebPage {
    let segments = request.segments_below("/stored/").unwrap_or_default();
    let (Some(bucket), Some(name)) =
        (&site.bucket, segments.first().and_then(|name| RunId::parse(name).ok()))
    else {
        return WebPage::not_found();
    };
    let page = match &segments[1..] {
        [] | [""] => bucket.read(&name).map(|found| {
            let (entry, run) = found?;
            let agents = entry.records.iter().filter_map(|record| record.strip_prefix(AGENTS));
            let agents: Vec<String> = agents.map(str::to_owned).collect();
            Some(WebPage::html(runs::run_page("stored", name.as_str(), &run, &agents)))
        }),
        file => match file.join("/").strip_suffix(".json") {
            Some(record) => bucket.read_record(&name, record).map(|found| {
                let (_, bytes) = found?;
                Some(WebPage::new(JSON, bytes))
            }),
            None => Ok(None),
        },
    };
    match page {
        Ok(page) => page.unwrap_or_else(WebPage::not_found),
        Err(why) => WebPage::text(502, format!("{why}\n")),
    }
}

fn compare_page(Site { root, .. }: &Site, request: &WebRequest) -> WebPage {
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
    match compare_experiments(&path_a, &path_b, EFFECT_DEFAULT).map_err(directory_failure) {
        Ok(mut compared) => {
            (compared.a.path, compared.b.path) = (a, b);
            WebPage::html(lab_pages::comparison_page(&compared))
        }
        Err(failure) => WebPage::text(500, format!("{}\n", failure.lines().join("\n"))),
    }
}

fn is_running(path: &Path) -> bool {
    list_experiments(path).experiments.first().is_some_and(|experiment| experiment.running_pid.is_some())
}

/// Returns an experiment's report, its progress, or one of its files.
fn experiment_page(Site { root, .. }: &Site, request: &WebRequest) -> WebPage {
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
            WebPage::html(lab_pages::progress_page(&ExperimentRow { directory, state, ..row }))
        }
        Err(error) => WebPage::text(500, format!("{error}\n")),
    }
}
