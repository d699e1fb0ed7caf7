//! First line of a search: the rate and percentiles at the held level, or at the level that comes closest.

use record::capacity_search::{CapacitySearch, LevelOutcome, SearchTrial};
use record::units::{format_duration_ns, format_rate};

use super::format_search_level;
use crate::text::answer::headline;

/// Formats the rate, the median and the 99th percentile at the held level.
pub(crate) fn edge_headline(search: &CapacitySearch) -> String {
    if let Some(run) = &search.at_edge {
        let held = search.conclusion.level.or(search.conclusion.lower);
        let place = match (held, search.conclusion.upper) {
            (Some(level), _) => format!(", at the held {}", format_search_level(search, level)),
            (None, Some(level)) => format!(", at {}, which missed", format_search_level(search, level)),
            (None, None) => String::new(),
        };
        return headline(run) + &place;
    }
    let trials_with_outcome = |outcome| {
        let trials =
            search.trials.iter().filter(move |trial| is_of_search(trial) && trial.outcome == outcome);
        trials.map(|trial| (trial, trial.level))
    };
    let by_level = |left: &(&SearchTrial, f64), right: &(&SearchTrial, f64)| left.1.total_cmp(&right.1);
    let highest_held = trials_with_outcome(LevelOutcome::Held).max_by(by_level);
    match (highest_held, trials_with_outcome(LevelOutcome::Missed).min_by(by_level)) {
        (Some((trial, level)), _) => {
            format!("{}, at the held {}", figures(trial), format_search_level(search, level))
        }
        (None, Some((trial, level))) => {
            format!("{}, at {}, which missed", figures(trial), format_search_level(search, level))
        }
        (None, None) => "no trial ended".to_owned(),
    }
}

/// Returns whether a trial is of the searched quantity; those of the scaling law and the test have other levels.
fn is_of_search(trial: &SearchTrial) -> bool {
    !matches!(trial.purpose.as_str(), "scaling" | "full")
}

fn figures(trial: &SearchTrial) -> String {
    let [p50, p99] = [trial.p50_ns, trial.p99_ns].map(format_duration_ns);
    format!("{}, p50 {p50}, p99 {p99}", format_rate(trial.goodput_per_s()))
}

#[cfg(test)]
mod tests {
    use record::capacity_search::Conclusion;

    use super::*;
    use crate::text::edge::{brief, summary, tests::edge};
    use crate::text::summary as run_summary;

    fn trial(level: f64, outcome: LevelOutcome) -> SearchTrial {
        SearchTrial {
            purpose: "grow".to_owned(),
            level,
            outcome,
            goodput_per_s: Some(level - 1.0),
            p50_ns: 2_000_000,
            p99_ns: 9_000_000,
            ..SearchTrial::default()
        }
    }

    #[test]
    fn rate_and_percentiles_come_first_also_in_the_brief_form() {
        let mut search = edge(Conclusion::default());
        assert_eq!(edge_headline(&search), "no trial ended");
        search.trials = vec![trial(900.0, LevelOutcome::Missed), trial(800.0, LevelOutcome::Missed)];
        assert_eq!(edge_headline(&search), "799/s, p50 2.00 ms, p99 9.00 ms, at 800/s, which missed");
        search.trials.extend([trial(500.0, LevelOutcome::Held), trial(400.0, LevelOutcome::Held)]);
        search.trials.push(SearchTrial { purpose: "scaling".to_owned(), ..trial(700.0, LevelOutcome::Held) });
        let head = "499/s, p50 2.00 ms, p99 9.00 ms, at the held 500/s";
        assert_eq!(edge_headline(&search), head);
        assert!(
            summary(&search, false).starts_with(&format!("\n{head}\n\nwhat ")),
            "{}",
            summary(&search, false)
        );
        let brief = brief(&search);
        assert!(brief.starts_with(&format!("{head}: ")) && brief.lines().count() == 1, "{brief}");
        let run = run_summary::tests::run_with_everything();
        search.conclusion.level = Some(27_500.0);
        search.at_edge = Some(Box::new(run));
        assert!(edge_headline(&search).starts_with("27.0 k/s, p50 "), "{}", edge_headline(&search));
        assert!(edge_headline(&search).ends_with(", at the held 27.5 k/s"), "{}", edge_headline(&search));
    }
}
