//! A watched machine as text: for pipes and files, and for one sample with `--once`.

use diagnose::alerts::{Screen, Severity};
use record::observed::MachineObservation;

use super::layout::{LayoutOptions, Overflow, rows};
use super::{Glyphs, Style, StyledRow};

/// Width in columns of text that is not for a terminal.
const WIDTH: usize = 120;

/// Formats all sections, with a title line that names the targets.
pub fn format_observed(observed: &MachineObservation, screen: &Screen, colour: bool) -> String {
    let glyphs = Glyphs::from_locale();
    let overflow = Overflow::Wrap;
    let options = LayoutOptions { width: WIDTH, glyphs, section: None, overflow, top_rows_max: usize::MAX };
    let mut text = format!("{}\n", title(observed));
    for row in rows(screen, options) {
        text.push_str(row_text(&row, colour).trim_end());
        text.push('\n');
    }
    text
}

/// Formats the title line: the targets of the watch.
pub fn title(observed: &MachineObservation) -> String {
    let roles = observed.roles.iter().map(|role| {
        let command = role.command.split_whitespace().next().unwrap_or("").rsplit('/').next();
        let command = match command.unwrap_or("").trim_end_matches(':') {
            "" => String::new(),
            name if name == role.name => String::new(),
            name => format!(" {name}"),
        };
        let pids = match &role.pids[..] {
            [] => "gone".to_owned(),
            [pid] => pid.to_string(),
            [pid, rest @ ..] => format!("{pid} and {} more", rest.len()),
        };
        format!("{}{command} ({pids})", role.name)
    });
    let roles: Vec<String> = roles.collect();
    let observed_s = observed.samples.last().map_or(0.0, |sample| sample.time_s);
    let (host, cpus) = (&observed.host, observed.cpus);
    let targets = if roles.is_empty() { "the machine".to_owned() } else { roles.join(", ") };
    format!("weir watch   {host}, {cpus} CPUs, {observed_s:.0} s: {targets}")
}

/// Formats one row; with `colour`, as ANSI escapes (ECMA-48 SGR).
fn row_text(row: &StyledRow, colour: bool) -> String {
    let mut text = String::new();
    for span in row {
        match colour.then(|| sgr_code(span.style)).flatten() {
            Some(code) => text.push_str(&format!("\x1b[{code}m{}\x1b[0m", span.text)),
            None => text.push_str(&span.text),
        }
    }
    text
}

fn sgr_code(style: Style) -> Option<&'static str> {
    match style {
        Style::Plain | Style::Alert(Severity::Normal) => None,
        Style::Dim => Some("2"),
        Style::Heading => Some("1"),
        Style::Alert(Severity::Notice) => Some("33"),
        Style::Alert(Severity::Alarm) => Some("1;31"),
        Style::User => Some("32"),
        Style::System => Some("34"),
        Style::Interrupt => Some("35"),
        Style::Steal => Some("36"),
        Style::Fraction => Some("32"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::observed::{MachineSample, Role};

    #[test]
    fn the_title_names_the_watched_targets() {
        let role = |name: &str, pids: &[i32]| Role {
            name: name.to_owned(),
            pids: pids.to_vec(),
            command: "/usr/sbin/nginx -g x".to_owned(),
            cpus_allowed: 1,
            ..Role::default()
        };
        let mut observed = MachineObservation {
            host: "here".to_owned(),
            cpus: 2,
            samples: vec![MachineSample { time_s: 3.2, ..MachineSample::default() }],
            roles: vec![role("subject", &[7, 8, 9]), role("nginx", &[1])],
            ..MachineObservation::default()
        };
        let expected = "weir watch   here, 2 CPUs, 3 s: subject nginx (7 and 2 more), nginx (1)";
        assert_eq!(title(&observed), expected);
        observed.roles.clear();
        assert!(title(&observed).ends_with(": the machine"));
    }

    #[test]
    fn colours_appear_only_if_enabled() {
        let row = vec![super::super::Span::new(Style::Alert(Severity::Alarm), "x")];
        assert_eq!(row_text(&row, false), "x");
        assert_eq!(row_text(&row, true), "\x1b[1;31mx\x1b[0m");
    }
}
