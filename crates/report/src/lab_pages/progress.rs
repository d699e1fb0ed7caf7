//! Progress page of an experiment that runs, or that stopped before it had a report. It shows no
//! result.

use experiment::list::{ExperimentRow, ExperimentState};
use maud::html;

use super::html::{link, link_to_index, page};

/// Reload interval of the page, in seconds.
const RELOAD_S: u32 = 2;

/// Returns the page, which reloads itself while the experiment runs.
pub fn progress_page(row: &ExperimentRow) -> String {
    let is_running = row.state == ExperimentState::Running;
    let directory = link(&row.directory);
    let body = html! {
        (link_to_index("All experiments"))
        p { (row.title) }
        p {
            (row.state.as_str()) ", since " (row.started_at) ": block " (row.blocks) " of " (row.blocks_min)
            " to " (row.blocks_max) ", " (row.trials) " trials."
        }
        p { progress max=(row.blocks_max.max(1)) value=(row.blocks) {} }
        p.note {
            @if is_running {
                "The result is shown at the end: a visible intermediate result invites stopping at it. "
                "A browser on the measured machine disturbs the measurement: close this page."
            } @else {
                "Stopped before a report was written; continue it with weir lab run --resume."
            }
        }
        // These files exist from the start of the experiment.
        p {
            @for name in ["experiment.toml", "plan.json"] { a href={ (directory) (name) } { (name) } " " }
        }
    };
    page(&row.name, is_running.then_some(RELOAD_S), &body)
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
