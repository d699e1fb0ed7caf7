//! Diagnosis: from a record to its verdict, with the limit of the run, the evidence, the rejected
//! explanations and the next limits. Pure: the same record always gives the same verdict.
//!
//! The generator's own verdict determines the validity of the figures. Nothing is measured here:
//! only figures in the record are known.
//!
//! The way of a figure:
//!
//! | Module | Content |
//! | --- | --- |
//! | [`window`] | the samples of a window: of all machines of a run, or of the last seconds of one |
//! | [`figures`] | the table of figures of one sample: a name, a unit, a source, a function |
//! | [`signals`] | the table of signals: medians of figures, and figures of the load itself |
//! | [`verdicts`] | the table of bottlenecks: which signals prove and exclude each |
//! | [`diagnose`] | the verdict: the rules that hold, in order, with their evidence |
//! | [`answer`] | the three sentences for people, from the verdict and its figures; `facts` formats the figures |
//! | [`decide`] | proof, first change with its expected gain, and the command that proves the change |
//! | [`headroom`] | each resource with a limit, and the rate at which it is full |
//! | [`alerts`] | the rules and lines of a live screen, from means of figures |
//! | [`counter_test`] | the plan and the judgement of a confirmation |
//!
//! To add a figure, add a row to [`figures`]; a verdict needs a signal of it with a family, and a row in
//! [`verdicts`]; an alert a row in [`alerts::RULES`]; a metric of trials a row in `experiment`'s table.

#![forbid(unsafe_code)]

pub mod alerts;
mod answer;
mod answer_examples;
pub mod counter_test;
mod decision;
mod diagnosis;
mod expected_gain;
mod facts;
pub mod figures;
mod fingerprints;
mod resource_grid;
mod resource_headroom;
mod rule_outcome;
mod run_view;
mod sentences;
pub mod signals;
mod sleep_evidence;
mod sleeps;
mod time_split;
mod traffic;
mod unit;
pub mod verdicts;
pub mod window;

pub use answer::{Ceiling, answer, answer_search, ceiling, served_at_a_time};
pub use answer_examples::example;
pub use decision::decide;
pub use diagnosis::diagnose;
pub use resource_grid::{GridFigure, GridRow, resource_grid};
pub use resource_headroom::{ResourceHeadroom, headroom};
pub use sentences::pushed::pushed_rate;
pub use unit::Unit;

#[cfg(test)]
mod tests;
