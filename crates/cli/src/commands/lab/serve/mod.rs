//! `weir lab serve FOLDER`: the experiments in a folder as pages, for a browser on this machine.

mod html;
mod index;
mod progress;
mod side_by_side;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use lab::engine::folder::{PLAN, list};
use record::problem::Problem;
use rt::address::Address;
use rt::drain::{Drain, Held, hold_signals};
use serve::pages::{Page, Request, Route, file_below};

use super::compare::{EFFECT, experiments};
use super::experiments::{Row, State, begun, find, folder, rows};
use crate::exit::{Exit, Failure};
use crate::flags::Typed;
use crate::output::print;

/// The report of an experiment, in its folder.
const REPORT: &str = "report.html";

pub(super) fn run(typed: Typed<'_>) -> Result<Exit, Failure> {
    let (address, root) = match (address(typed), folder(typed)) {
        (Ok(address), Ok(root)) => (address, root),
        (address, root) => {
            let mut problems = address.err().unwrap_or_default();
            problems.extend(root.err().unwrap_or_default());
            return Err(problems.into());
        }
    };
    if root.join(PLAN).is_file() {
        let text = format!("{} is an experiment; name the folder above it", root.display());
        return Err(vec![Problem::new("FOLDER", text)].into());
    }
    let drain = Drain::default();
    let stop = drain.watch();
    hold_signals(Held::Stop)?.follow(drain, None)?;
    if !address.ip().is_loopback() {
        note!("weir: whoever reaches {address} sees all of this: there is no password");
    }
    serve::pages::run(address, routes(&root), stop, |address| {
        print(&format!("listening on http://{address}/\n"));
    })?;
    Ok(Exit::Done)
}

/// Everything that is wrong with the flags.
#[cfg(test)]
pub(super) fn check(typed: Typed<'_>) -> Result<(), Vec<Problem>> {
    address(typed).map(|_| ())
}

fn address(typed: Typed<'_>) -> Result<SocketAddr, Vec<Problem>> {
    let Some(text) = typed.text("listen") else { return Ok((Ipv4Addr::LOCALHOST, 0).into()) };
    match text.parse::<Address>() {
        Ok(Address::Tcp(address)) => Ok(address),
        Ok(Address::Unix(_)) => {
            Err(vec![Problem::new("--listen", "a browser needs a TCP address")])
        }
        Err(error) => Err(vec![Problem::new("--listen", error.to_string())]),
    }
}

fn routes(root: &Path) -> Vec<Route> {
    let with = |page: fn(&Path, &Request) -> Page| {
        let root = root.to_owned();
        move |request: &Request| page(&root, request)
    };
    vec![
        Route::new("/", with(all)),
        Route::new("/compare", with(compare)),
        Route::new("/x/", with(experiment)),
    ]
}

fn all(root: &Path, request: &Request) -> Page {
    let (rows, cut) = rows(root);
    let filter = request.value("filter").unwrap_or_default();
    Page::html(index::index(&root.display().to_string(), &rows, filter, cut))
}

fn compare(root: &Path, request: &Request) -> Page {
    let named = |name: &str| -> Option<(String, PathBuf)> {
        let folder = request.value(name)?;
        let parts: Vec<&str> = folder.split('/').collect();
        let (path, used) = find(root, &parts)?;
        (used == parts.len()).then(|| (folder.to_owned(), path))
    };
    let (Some((a, path_a)), Some((b, path_b))) = (named("a"), named("b")) else {
        return Page::text(404, "choose two experiments, A and B\n");
    };
    // Who sees a result before the end is tempted to stop at it.
    if is_running(&path_a) || is_running(&path_b) {
        return Page::text(409, "one of them still runs: its result is shown at its end\n");
    }
    match experiments(&path_a, &path_b, EFFECT) {
        Ok(mut compared) => {
            (compared.a.path, compared.b.path) = (a, b);
            Page::html(side_by_side::side_by_side(&compared))
        }
        Err(failure) => Page::text(500, format!("{}\n", failure.lines().join("\n"))),
    }
}

fn is_running(path: &Path) -> bool {
    list(path).experiments.first().is_some_and(|one| one.running.is_some())
}

/// An experiment's report, or how far it is; or one of its files.
fn experiment(root: &Path, request: &Request) -> Page {
    let Some(parts) = request.below("/x/") else { return Page::missing() };
    let Some((path, used)) = find(root, &parts) else { return Page::missing() };
    if !matches!(parts[used..], [] | [""]) {
        return file_below(root, &parts);
    }
    let is_running = is_running(&path);
    if !is_running && path.join(REPORT).is_file() {
        let report: Vec<&str> = parts[..used].iter().copied().chain([REPORT]).collect();
        return file_below(root, &report);
    }
    let state = if is_running { State::Running } else { State::Begun };
    match begun(&path) {
        Ok(row) => {
            let folder = parts[..used].join("/");
            Page::html(progress::progress(&Row { folder, state, ..row }))
        }
        Err(error) => Page::text(500, format!("{error}\n")),
    }
}
