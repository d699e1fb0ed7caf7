//! Grid of resources by utilisation, saturation and errors.

use diagnose::{GridFigure, GridRow, resource_grid};
use maud::{Markup, html};
use record::run::Run;

/// Returns the grid of a run, or the way to one if nothing was observed.
pub(super) fn grid(run: &Run) -> Markup {
    let rows = resource_grid(run);
    let sees_subject =
        run.observed.iter().any(|machine| machine.role_index(diagnose::window::SUBJECT).is_some());
    html! {
        table.use-grid {
            caption { "Resources by utilisation, saturation and errors" }
            thead {
                tr {
                    @for head in ["Resource", "Utilisation", "Saturation", "Errors"] { th scope="col" { (head) } }
                }
            }
            tbody { @for row in &rows { (grid_row(row)) } }
        }
        @if !sees_subject {
            p.note {
                "The machine of the server was not observed: run " code { "weir watch --json FILE" } " there, or "
                code { "weir fleet role" } ", to see its resources."
            }
        }
    }
}

fn grid_row(row: &GridRow) -> Markup {
    html! {
        tr {
            th scope="row" { (row.resource) }
            @for (head, figure) in [
                ("Utilisation", &row.utilisation), ("Saturation", &row.saturation), ("Errors", &row.errors),
            ] {
                td data-head=(head) class=[figure.as_ref().filter(|it| it.is_notable).map(|_| "notable")] { (cell(figure.as_ref())) }
            }
        }
    }
}

fn cell(figure: Option<&GridFigure>) -> Markup {
    html! {
        @match figure {
            Some(figure) => {
                b title=(format_args!("{} ({})", figure.name, figure.source)) { (figure.text) }
                " " span { (figure.label) }
            }
            None => span { "–" },
        }
    }
}
