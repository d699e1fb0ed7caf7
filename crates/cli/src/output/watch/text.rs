//! A watched machine as text: for pipes and files, and for one look with `--once`.

use lab::marks::{Mark, Screen};
use record::observed::Observed;

use super::layout::{Look, Overflow, rows};
use super::{Glyphs, Row, Style};

/// Columns of text that is not for a terminal.
const WIDTH: usize = 120;

/// All sections, with a first line that says what was watched.
pub(crate) fn text(observed: &Observed, screen: &Screen, colour: bool) -> String {
    let glyphs = Glyphs::of_locale();
    let overflow = Overflow::Below;
    let look = Look { width: WIDTH, glyphs, only: None, overflow, now_rows_max: usize::MAX };
    let mut text = format!("{}\n", title(observed));
    for row in rows(screen, look) {
        text.push_str(row_text(&row, colour).trim_end());
        text.push('\n');
    }
    text
}

/// What is watched, in a line.
pub(crate) fn title(observed: &Observed) -> String {
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
    let seen_s = observed.samples.last().map_or(0.0, |sample| sample.time_s);
    let (host, cpus) = (&observed.host, observed.cpus);
    let what = if roles.is_empty() { "the machine".to_owned() } else { roles.join(", ") };
    format!("weir watch   {host}, {cpus} processors, {seen_s:.0} s: {what}")
}

/// One row; colours as ANSI escapes (ECMA-48 SGR) where they are wanted.
fn row_text(row: &Row, colour: bool) -> String {
    let mut text = String::new();
    for span in row {
        match colour.then(|| code(span.style)).flatten() {
            Some(code) => text.push_str(&format!("\x1b[{code}m{}\x1b[0m", span.text)),
            None => text.push_str(&span.text),
        }
    }
    text
}

fn code(style: Style) -> Option<&'static str> {
    match style {
        Style::Plain | Style::Marked(Mark::Calm) => None,
        Style::Dim => Some("2"),
        Style::Heading => Some("1"),
        Style::Marked(Mark::Notice) => Some("33"),
        Style::Marked(Mark::Alarm) => Some("1;31"),
        Style::User => Some("32"),
        Style::System => Some("34"),
        Style::Interrupt => Some("35"),
        Style::Steal => Some("36"),
        Style::Share => Some("32"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::observed::{Role, Sample};

    #[test]
    fn the_title_names_what_is_watched() {
        let role = |name: &str, pids: &[i32]| Role {
            name: name.to_owned(),
            pids: pids.to_vec(),
            command: "/usr/sbin/nginx -g x".to_owned(),
            cpus_allowed: 1,
        };
        let mut observed = Observed {
            host: "here".to_owned(),
            cpus: 2,
            samples: vec![Sample { time_s: 3.2, ..Sample::default() }],
            roles: vec![role("subject", &[7, 8, 9]), role("nginx", &[1])],
            ..Observed::default()
        };
        let expected =
            "weir watch   here, 2 processors, 3 s: subject nginx (7 and 2 more), nginx (1)";
        assert_eq!(title(&observed), expected);
        observed.roles.clear();
        assert!(title(&observed).ends_with(": the machine"));
    }

    #[test]
    fn colours_are_only_where_they_are_wanted() {
        let row = vec![super::super::Span::new(Style::Marked(Mark::Alarm), "x")];
        assert_eq!(row_text(&row, false), "x");
        assert_eq!(row_text(&row, true), "\x1b[1;31mx\x1b[0m");
    }
}
