//! Answer for a subject that serves only a part of the connections of a load: the others are never accepted, so no
//! resource of it is full, and the requests on them wait until they time out.

use record::run::Answer;
use record::units::format_plural;

use super::answer;
use crate::facts::{Facts, format_ns, format_number};
use crate::signals as s;

/// Answers that connections wait to be accepted; `None` if there are none.
pub(crate) fn unaccepted(facts: &Facts<'_>) -> Option<Answer> {
    let run = facts.view.run;
    let waiting = s::unaccepted_connections(facts.view)?;
    let connections = facts.connections();
    let served = connections.saturating_sub(waiting.round() as u64);
    let timeouts = match run.totals.failed() {
        0 => "get no response".to_owned(),
        failed => format!("get no response: {} failed", format_plural(failed, "request")),
    };
    Some(answer(
        format!(
            "your service serves only {served} of the {}: the others wait to be accepted and {timeouts}",
            format_plural(connections, "connection")
        ),
        &[
            format!("{} connections wait in its accept queue all the time", format_number(waiting)),
            format!(
                "on the others a response takes {}, {} in all",
                format_ns(run.latency.last_byte.service.p50_ns as f64),
                facts.rate()
            ),
            facts.cpu_phrase("it uses only {}"),
        ],
        &[
            format!(
                "raise its limit of connections, or its number of workers if each serves one connection, to {connections} \
                 or more"
            ),
            format!(
                "or let clients open fewer connections (-c {}), or close them after each response",
                served.max(1)
            ),
        ],
    ))
}

/// Describes the connections that wait beside another limit; empty if there are none.
pub(crate) fn beside(facts: &Facts<'_>) -> String {
    s::unaccepted_connections(facts.view).map_or_else(String::new, |waiting| {
        format!(
            "Besides, {} of the {} wait in the accept queue all the time, and get no response.",
            format_number(waiting),
            format_plural(facts.connections(), "connection")
        )
    })
}
