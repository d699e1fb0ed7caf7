//! Progress page of an experiment that runs, or that stopped before it had a report. It shows no
//! result.

use super::html::{escape, link, page};
use crate::commands::lab::experiments::{ExperimentRow, ExperimentState};

/// Reload interval of the page, in seconds.
const RELOAD_S: u32 = 2;

/// Returns the page, which reloads itself while the experiment runs.
pub(super) fn progress_page(row: &ExperimentRow) -> String {
    let is_running = row.state == ExperimentState::Running;
    let mut body = format!(
        "<p><a href=\"/\">All experiments</a></p>\n<p>{}</p>\n<p>{}, since {}: block {} of {} to {}, {} \
         trials.</p>\n<p><progress max=\"{}\" value=\"{}\"></progress></p>\n",
        escape(&row.title),
        row.state.as_str(),
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
            "<p class=\"note\">The result is shown at the end: a visible intermediate \
             result invites stopping at it. A browser on the measured machine disturbs the measurement: \
             close this page.</p>\n"
        }
        false => {
            "<p class=\"note\">Stopped before a report was written; continue it with weir lab run \
                  --resume.</p>\n"
        }
    });
    body.push_str(&file_links(row));
    page(&row.name, is_running.then_some(RELOAD_S), &body)
}

/// Returns links to the files that exist from the start of the experiment.
fn file_links(row: &ExperimentRow) -> String {
    let directory = link(&row.directory);
    let names = ["experiment.toml", "plan.json"];
    let links = names.map(|name| format!("<a href=\"{directory}{name}\">{name}</a>"));
    format!("<p>{}</p>\n", links.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reloads_while_running_and_shows_no_result() {
        let row = ExperimentRow {
            directory: "a-1".to_owned(),
            conclusion: "b is faster".to_owned(),
            state: ExperimentState::Running,
            blocks: 3,
            blocks_max: 30,
            ..ExperimentRow::default()
        };
        let running = progress_page(&row);
        assert!(running.contains("http-equiv") && running.contains("value=\"3\""), "{running}");
        assert!(!running.contains("b is faster"), "{running}");
        let ended = progress_page(&ExperimentRow { state: ExperimentState::Unfinished, ..row });
        assert!(!ended.contains("http-equiv") && ended.contains("--resume"), "{ended}");
    }
}
