//! Split of the latency: waiting against service, and the locations of the requests in flight.

use maud::{Markup, html};
use record::run::Run;

use super::layout::short;

const PARTS_MAX: usize = 8;

/// Returns the bars that the record has; empty without any.
pub(super) fn bars(run: &Run) -> Markup {
    let Some(diagnosis) = &run.diagnosis else { return html! {} };
    let waiting = diagnosis.queueing_fraction.map(|fraction| fraction.clamp(0.0, 1.0));
    let locations: Vec<(String, f64)> = diagnosis
        .time_split
        .iter()
        .filter(|phase| phase.fraction.is_finite() && phase.fraction > 0.0)
        .take(PARTS_MAX)
        .map(|phase| (short(&phase.location, 60), phase.fraction.min(1.0)))
        .collect();
    html! {
        @if waiting.is_some() || !locations.is_empty() {
            figure #split {
                figcaption {
                    h3 { "Where the time goes" }
                    p { "Waiting is the part of the latency beyond that of single requests before the load." }
                }
                @if let Some(waiting) = waiting {
                    (bar("Latency", &[("waiting".to_owned(), waiting), ("service".to_owned(), 1.0 - waiting)]))
                }
                @if !locations.is_empty() { (bar("Requests in flight", &locations)) }
            }
        }
    }
}

fn bar(name: &str, parts: &[(String, f64)]) -> Markup {
    html! {
        h4 { (name) }
        div.split aria-hidden="true" {
            @for (index, (_, fraction)) in parts.iter().enumerate() {
                i class=(format_args!("c{index}")) style=(format_args!("width:{:.1}%", fraction * 100.0)) {}
            }
        }
        ul.split-key {
            @for (index, (part, fraction)) in parts.iter().enumerate() {
                li class=(format_args!("c{index}")) { i {} b { (format_args!("{:.0} %", fraction * 100.0)) } " " (part) }
            }
        }
    }
}
