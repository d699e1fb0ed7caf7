//! An experiment that has no report yet: how far it is, and no result. Not for one that has.

use super::html::{escape, link, page};
use crate::commands::lab::experiments::{Row, State};

/// How often the page asks for itself, in seconds.
const AGAIN_S: u32 = 2;

/// The page.
pub(super) fn progress(row: &Row) -> String {
    let is_running = row.state == State::Running;
    let mut body = format!(
        "<p><a href=\"/\">All experiments</a></p>\n<p>{}</p>\n<p>{}, since {}: block {} of {} to {}, {} \
         trials.</p>\n<p><progress max=\"{}\" value=\"{}\"></progress></p>\n",
        escape(&row.title),
        row.state.word(),
        escape(&row.started_at),
        row.blocks,
        row.blocks_min,
        row.blocks_max,
        row.trials,
        row.blocks_max.max(1),
        row.blocks,
    );
    body.push_str(match is_running {
        true => {
            "<p class=\"note\">What came of it is shown at its end: who sees a result before is \
             tempted to stop at it. A browser on the machine that is measured disturbs it: look, \
             and close this.</p>\n"
        }
        false => {
            "<p class=\"note\">It was ended before there was a report; weir lab run --resume goes \
                  on.</p>\n"
        }
    });
    body.push_str(&files(row));
    page(&row.name, is_running.then_some(AGAIN_S), &body)
}

/// Links to what is there already.
fn files(row: &Row) -> String {
    let folder = link(&row.folder);
    let names = ["experiment.toml", "plan.json"];
    let links = names.map(|name| format!("<a href=\"{folder}{name}\">{name}</a>"));
    format!("<p>{}</p>\n", links.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_asks_again_while_it_runs_and_shows_no_result() {
        let row = Row {
            folder: "a-1".to_owned(),
            answer: "b is faster".to_owned(),
            state: State::Running,
            blocks: 3,
            blocks_max: 30,
            ..Row::default()
        };
        let running = progress(&row);
        assert!(running.contains("http-equiv") && running.contains("value=\"3\""), "{running}");
        assert!(!running.contains("b is faster"), "{running}");
        let ended = progress(&Row { state: State::Begun, ..row });
        assert!(!ended.contains("http-equiv") && ended.contains("--resume"), "{ended}");
    }
}
