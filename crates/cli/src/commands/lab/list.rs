//! `weir lab list FOLDER`: the experiments in a folder, a line each.

use super::experiments::{Row, State, folder, rows};
use crate::exit::{Exit, Failure};
use crate::flags::Typed;
use crate::output::file::write_json;
use crate::output::print;
use crate::output::table::table;

pub(super) fn run(typed: Typed<'_>) -> Result<Exit, Failure> {
    let root = folder(typed)?;
    let (rows, cut) = rows(&root);
    if cut {
        note!("weir: there is more in {} than is looked at", root.display());
    }
    if typed.is_set("json") {
        write_json(&rows, Some("-"))?;
    } else if rows.is_empty() {
        print(&format!("in {} there is no experiment\n", root.display()));
    } else {
        print(&text(&rows));
    }
    Ok(Exit::Done)
}

fn text(rows: &[Row]) -> String {
    let heads = ["folder", "when", "arms", "loads", "blocks", "state"];
    let mut lines = vec![heads.map(str::to_owned).to_vec()];
    let mut answers = Vec::new();
    for row in rows {
        lines.push(vec![
            // One that was named itself has nothing below it.
            if row.folder.is_empty() { ".".to_owned() } else { row.folder.clone() },
            row.started_at.chars().take(16).map(|c| if c == 'T' { ' ' } else { c }).collect(),
            row.arms.len().to_string(),
            row.loads.to_string(),
            row.blocks.to_string(),
            row.state.word().to_owned(),
        ]);
        answers.push(match (row.answer.as_str(), row.state) {
            ("", State::Begun) => "ended before there was a result; --resume goes on".to_owned(),
            ("", _) => String::new(),
            (answer, _) => answer.to_owned(),
        });
    }
    // Answers are sentences: behind the columns, and to the left.
    let columns = table(&lines);
    let mut columns = columns.lines();
    let mut text = format!("{}  answer\n", columns.next().unwrap_or_default());
    let width = text.trim_end().len() - "answer".len();
    for (line, answer) in columns.zip(answers) {
        text.push_str(format!("{line:width$}{answer}").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_stand_behind_the_columns() {
        let row = |name: &str, answer: &str, state: State| Row {
            folder: name.to_owned(),
            started_at: "2026-01-02T03:04:05Z".to_owned(),
            answer: answer.to_owned(),
            state,
            ..Row::default()
        };
        let rows = [
            row("long-name", "A is faster than B.", State::Done),
            row("", "", State::Begun),
            row("c", "", State::Running),
        ];
        let text = text(&rows);
        let lines: Vec<&str> = text.lines().collect();
        let at = lines[0].find("answer").unwrap();
        assert_eq!(&lines[1][at..], "A is faster than B.");
        assert!(lines[1].starts_with("long-name  2026-01-02 03:04"), "{text}");
        assert!(lines[2].starts_with('.') && lines[2].ends_with("--resume goes on"), "{text}");
        assert!(lines[3].ends_with("running"), "{text}");
    }
}
