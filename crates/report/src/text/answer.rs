//! First lines of a result: rate and percentiles, and the answer in three sentences. Reads only the record.

use diagnose::answer;
use record::run::{Answer, Run};
use record::units::{format_duration_ns, format_plural, format_rate};

use super::layout::{page_width, wrap_labelled};

/// Formats the first line and the answer of a run.
pub fn format_head(run: &Run) -> String {
    format!("{}\n\n{}", headline(run), format_answer(&answer(run)))
}

pub fn format_answer(answer: &Answer) -> String {
    format_answer_within(answer, page_width())
}

pub(super) fn format_answer_within(answer: &Answer, width: usize) -> String {
    let Answer { what, why, next } = answer;
    let lines = [("what", what), ("why", why), ("next", next)];
    lines.map(|(label, text)| wrap_labelled(label, text, width)).concat()
}

/// Formats the result in one line, which is as long as it has to be.
pub fn brief(run: &Run) -> String {
    format!("{}: {}\n", headline(run), answer(run).what)
}

/// Formats the rate of good responses, their median and 99th percentile from the due time, and the failures.
pub(crate) fn headline(run: &Run) -> String {
    let latency = &run.latency.last_byte.response;
    let time = |ns: u64| match latency.count {
        0 => "-".to_owned(),
        _ => format_duration_ns(ns),
    };
    let totals = &run.totals;
    let failures = match (totals.bad(), totals.failed()) {
        (0, 0) => "no failures".to_owned(),
        (bad, 0) => format_plural(bad, "bad response"),
        (0, failed) => format_plural(failed, "failed request"),
        (bad, failed) => {
            format!("{}, {}", format_plural(bad, "bad response"), format_plural(failed, "failed request"))
        }
    };
    let (rate, of) = match diagnose::pushed_rate(run) {
        Some((noun, per_s)) => (per_s, format!(" of {noun}s, the first after")),
        None => (run.goodput_per_s(), ",".to_owned()),
    };
    format!(
        "{}{of} p50 {}, p99 {}, {failures}",
        format_rate(rate),
        time(latency.p50_ns),
        time(latency.p99_ns)
    )
}
