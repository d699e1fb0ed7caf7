//! `weir lab list DIR`: the experiments in a directory, one line each.

use experiment::list::{ExperimentRow, ExperimentState, experiment_rows};
use report::text::table::table;

use super::experiments::parse_directory;
use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, CommandFlags, ListFlags};
use crate::output::file::write_json;
use crate::output::print;

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let root = parse_directory(args)?;
    let (rows, cut) = experiment_rows(&root);
    if cut {
        warn!("weir: {} has more entries than weir lists; the list is incomplete", root.display());
    }
    if ListFlags::parse(args)?.json {
        write_json(&rows, Some("-"))?;
    } else if rows.is_empty() {
        print(&format!("no experiments in {}\n", root.display()));
    } else {
        print(&format_rows(&rows));
    }
    Ok(Exit::Done)
}

fn format_rows(rows: &[ExperimentRow]) -> String {
    let heads = ["directory", "started", "arms", "loads", "blocks", "state"];
    let mut lines = vec![heads.map(str::to_owned).to_vec()];
    let mut conclusions = Vec::new();
    for row in rows {
        lines.push(vec![
            // An experiment that the user named itself has an empty relative path.
            if row.directory.is_empty() { ".".to_owned() } else { row.directory.clone() },
            row.started_at.chars().take(16).map(|c| if c == 'T' { ' ' } else { c }).collect(),
            row.arms.len().to_string(),
            row.loads.to_string(),
            row.blocks.to_string(),
            row.state.as_str().to_owned(),
        ]);
        conclusions.push(match (row.conclusion.as_str(), row.state) {
            ("", ExperimentState::Unfinished) => "stopped before a result; continue with --resume".to_owned(),
            ("", _) => String::new(),
            (conclusion, _) => conclusion.to_owned(),
        });
    }
    // Results are sentences: they follow the columns, aligned to the left.
    let columns = table(&lines);
    let mut columns = columns.lines();
    let mut text = format!("{}  conclusion\n", columns.next().unwrap_or_default());
    let width = text.trim_end().len() - "conclusion".len();
    for (line, conclusion) in columns.zip(conclusions) {
        text.push_str(format!("{line:width$}{conclusion}").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conclusions_follow_the_columns() {
        let row = |name: &str, conclusion: &str, state: ExperimentState| ExperimentRow {
            directory: name.to_owned(),
            started_at: "2026-01-02T03:04:05Z".to_owned(),
            conclusion: conclusion.to_owned(),
            state,
            ..ExperimentRow::default()
        };
        let rows = [
            row("long-name", "A is faster than B.", ExperimentState::Done),
            row("", "", ExperimentState::Unfinished),
            row("c", "", ExperimentState::Running),
        ];
        let text = format_rows(&rows);
        let lines: Vec<&str> = text.lines().collect();
        let at = lines[0].find("conclusion").unwrap();
        assert_eq!(&lines[1][at..], "A is faster than B.");
        assert!(lines[1].starts_with("long-name  2026-01-02 03:04"), "{text}");
        assert!(lines[2].starts_with('.') && lines[2].ends_with("--resume"), "{text}");
        assert!(lines[3].ends_with("running"), "{text}");
    }
}
