//! Outputs of `weir load` beside its lines: the result in every form, live figures, the full screen.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use load::recorder::PhaseHistograms;
use load::validity::LiveLimits;
use record::problem::InputProblem;
use record::run::Run;
use record::validity::ValidityLevel;
use report::RunComparison;
use report::text::csv::csv;
use report::text::junit::junit;
use report::text::markdown::markdown;
use report::text::peer_format::PeerFormat;
use report::text::summary::summary;
use runner::run_record::LoadJob;

use super::super::pages::{Baseline, exit_of_comparison, warn_of_undecided, write_run_page};
use super::STDOUT_FLAGS;
use crate::exit::{Exit, Failure, OnInvalid};
use crate::flags::CommandArgs;
use crate::full_screen::FullScreen;
use crate::output;
use crate::output::file::{write_json, write_text};
use crate::output::load_screen::LoadView;
use crate::output::openmetrics::MetricsExport;
use crate::output::percentiles::format_percentiles;
use crate::output::{is_coloured, print};
use crate::preflight;
use load::plan::describe::describe_plan;

/// Returns whether stdout gets the summary and the lines of the seconds.
pub(super) fn prints_summary(args: CommandArgs<'_>) -> Result<bool, Vec<InputProblem>> {
    let stdout_is_taken = args.is_set("control") || preflight::writes_to_stdout(args, STDOUT_FLAGS);
    Ok(peer_format(args)?.is_none() && !stdout_is_taken)
}

/// Prints the result and writes it to the files of the flags. Returns the exit code. `has_lines` is true if lines of the seconds were
/// printed.
pub(super) fn write_results(
    args: CommandArgs<'_>,
    run: &mut Run,
    latencies: &PhaseHistograms,
    has_lines: bool,
    baseline: Option<&Baseline>,
) -> Result<Exit, Failure> {
    let comparison = baseline.map(|baseline| baseline.compare(run));
    let run = &mut *run;
    run.comparison =
        baseline.zip(comparison.as_ref()).map(|(baseline, compared)| compared.record(&baseline.name));
    let run = &*run;
    if let Some(format) = peer_format(args)? {
        print(&format.format(run));
        warn!("{}", PeerFormat::verdict_comment(run));
    } else if prints_summary(args)? {
        let text = summary(run, output::detail(args), is_coloured());
        print(&format!("{}{text}", if has_lines { "\n" } else { "" }));
        if args.is_set("percentiles") {
            print(&format_percentiles(latencies));
        }
        print(&comparison.as_ref().map(RunComparison::text).unwrap_or_default());
    }
    write_json(run, args.text("json").as_deref())?;
    write_text(&csv(run), args.text("csv").as_deref())?;
    write_text(&markdown(run), args.text("markdown").as_deref())?;
    write_text(&junit(run), args.text("junit").as_deref())?;
    write_run_page(args, run, baseline.zip(comparison.as_ref()))?;
    let on_invalid = OnInvalid::parse(args.text("on-invalid").as_deref())?;
    if on_invalid == OnInvalid::Warn && run.validity.verdict == ValidityLevel::Invalid {
        warn!("weir: warning: the result is not valid (--on-invalid warn)");
    }
    warn_of_undecided(comparison.as_ref());
    Ok(exit_of_comparison(Exit::from_run(run, on_invalid), comparison.as_ref(), on_invalid))
}

pub(super) fn metrics_address(args: CommandArgs<'_>) -> Result<Option<SocketAddr>, Vec<InputProblem>> {
    let Some(text) = args.text("metrics-listen") else { return Ok(None) };
    let problem = |why: String| vec![InputProblem::new("--metrics-listen", why)];
    match text.parse::<rt::address::Address>() {
        Ok(rt::address::Address::Tcp(address)) => Ok(Some(address)),
        Ok(rt::address::Address::Unix(_)) => Err(problem("a scrape needs a TCP address".to_owned())),
        Err(error) => Err(problem(error.to_string())),
    }
}

/// Starts the export of the live figures, if the flags ask for one.
pub(crate) fn metrics_export(args: CommandArgs<'_>) -> Result<Option<MetricsExport>, Failure> {
    let (file, address) = (args.text("openmetrics").map(PathBuf::from), metrics_address(args)?);
    if file.is_none() && address.is_none() {
        return Ok(None);
    }
    MetricsExport::start(file, address).map(Some)
}

/// Returns the form of the output, if it is that of another load generator.
pub(super) fn peer_format(args: CommandArgs<'_>) -> Result<Option<PeerFormat>, Vec<InputProblem>> {
    let text = args.text("format").unwrap_or_else(|| "text".to_owned());
    PeerFormat::parse(&text).map_err(|why| vec![InputProblem::new("--format", why)])
}

pub(super) fn full_screen(job: &LoadJob<'_>) -> Result<FullScreen, Failure> {
    let plan = &job.plan;
    let target = plan
        .requests
        .first()
        .map_or_else(String::new, |request| format!("{} {}", request.method, request.url));
    let description = describe_plan(plan);
    let line = |label: &str| {
        let found = description.lines().find_map(|line| line.strip_prefix(label));
        found.unwrap_or_default().trim().to_owned()
    };
    let factor = (plan.is_open_loop() && plan.replay.is_none()).then_some(1.0);
    let text = format!("{}; {}", line("connections"), line("pace"));
    let limits = LiveLimits {
        threads: plan.threads,
        connections: if plan.stages.is_some() { 0 } else { plan.connections },
        max_error_rate: plan.max_error_rate,
    };
    let view = LoadView::new(target, text, plan.end.duration_ns as f64 / 1e9, factor, limits);
    FullScreen::start(view, Arc::clone(&job.control)).map_err(|error| Failure::cannot("--tui", error))
}
