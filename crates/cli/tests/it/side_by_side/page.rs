//! `docs/side-by-side.md`: both texts of each pair, with their lines.

use std::fmt::Write as _;

use super::example;
use super::pairs::{PAIRS, Pair};
use super::sides::Program;

/// Lines of a config that count, and of these the ones of a section `defaults`.
#[derive(Clone, Copy, Default)]
struct Lines {
    all: usize,
    defaults: usize,
}

fn count_lines(text: &str) -> Lines {
    let mut lines = Lines::default();
    let mut is_in_defaults = false;
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#')) {
        if !line.starts_with([' ', '\t']) {
            is_in_defaults = line == "defaults";
        }
        lines.all += 1;
        lines.defaults += usize::from(is_in_defaults);
    }
    lines
}

fn count_pair_lines(pair: &Pair) -> (Lines, usize) {
    (count_lines(&example(pair, pair.program.config_file())), count_lines(&example(pair, "weir.toml")).all)
}

pub(super) fn generated_page() -> String {
    let mut page = format!(
        "# {} configs side by side\n\n\
         Ordinary configs of HAProxy, nginx and Caddy, and the same in weir. Generated from the files in \
         [examples/side-by-side](examples/side-by-side); lines without blank lines and comments. A test starts both \
         programs of each pair before the same servers, and compares their responses to requests of curl, and what the \
         servers get: status, server, location, forwarded request, and the fields that the config sets. Caddy is compared \
         by its documentation: only weir is run. `weir proxy import` does such translations (see [import.md](import.md)); \
         these are written by hand.\n\n\
         The configs of HAProxy start with a section `defaults`: without timeouts HAProxy prints a warning, and without \
         `mode http` it forwards TCP. weir has defaults for these. The second figure of HAProxy leaves this section out.\n\n",
        PAIRS.len()
    );
    let mut line = |text: std::fmt::Arguments<'_>| page.write_fmt(text).unwrap();
    line(format_args!("| Config | Program | Lines | of weir |\n| --- | --- | --- | --- |\n"));
    for pair in PAIRS {
        let (lines, weir_lines) = count_pair_lines(pair);
        let anchor = pair.title.to_lowercase().replace(' ', "-").replace([',', '/'], "");
        line(format_args!(
            "| [{}](#{anchor}) | {} | {} | {weir_lines} |\n",
            pair.title,
            pair.program.title(),
            format_lines(lines)
        ));
    }
    for program in [Program::Haproxy, Program::Nginx, Program::Caddy] {
        let pairs: Vec<(Lines, usize)> =
            PAIRS.iter().filter(|pair| pair.program == program).map(count_pair_lines).collect();
        let sum = pairs.iter().fold(Lines::default(), |sum, (lines, _)| Lines {
            all: sum.all + lines.all,
            defaults: sum.defaults + lines.defaults,
        });
        let weir_lines: usize = pairs.iter().map(|(_, weir_lines)| weir_lines).sum();
        line(format_args!(
            "| all {} | {} | {} | {weir_lines} |\n",
            pairs.len(),
            program.title(),
            format_lines(sum)
        ));
        let ratio = |lines: usize| 100 * weir_lines / lines;
        let ratios = match sum.defaults {
            0 => format!("{} %", ratio(sum.all)),
            defaults => format!("{} %, {} % without `defaults`", ratio(sum.all), ratio(sum.all - defaults)),
        };
        line(format_args!("| ratio | {} | | {ratios} |\n", program.title()));
    }
    for pair in PAIRS {
        line(format_args!("\n## {}\n\n", pair.title));
        let (lines, weir_lines) = count_pair_lines(pair);
        let (peer, weir) = (example(pair, pair.program.config_file()), example(pair, "weir.toml"));
        line(format_args!("{}, {} lines:\n\n```\n{peer}```\n\n", pair.program.title(), format_lines(lines)));
        line(format_args!("weir, {weir_lines} lines:\n\n```toml\n{weir}```\n"));
        if !pair.note.is_empty() {
            line(format_args!("\n{}\n", pair.note));
        }
    }
    page
}

fn format_lines(lines: Lines) -> String {
    match lines.defaults {
        0 => lines.all.to_string(),
        defaults => format!("{} ({} without `defaults`)", lines.all, lines.all - defaults),
    }
}
