//! Facts of a run: its target, its command and its machine.

use experiment::format;
use maud::{Markup, html};
use record::facts::HostFacts;
use record::run::Run;
use record::units::format_bytes;

use super::layout::short;
use crate::page::figure::preformatted;

/// Maximum length of a URL, and of a command, in characters.
const URL_CHARS_MAX: usize = 120;
const COMMAND_CHARS_MAX: usize = 2_000;

/// Returns the first request of a run, and the number of others.
pub(super) fn target(run: &Run) -> String {
    target_of_plan(&run.plan)
}

/// Returns the first request of a plan, and the number of others.
pub(super) fn target_of_plan(plan: &serde_json::Value) -> String {
    let requests = plan["requests"].as_array().map(Vec::as_slice).unwrap_or_default();
    let Some(first) = requests.first() else { return "?".to_owned() };
    let part = |name: &str| first[name].as_str().unwrap_or("?");
    let text = short(&format!("{} {}", part("method"), part("url")), URL_CHARS_MAX);
    match requests.len() {
        1 => text,
        count => format!("{text} and {} more", count - 1),
    }
}

pub(super) fn facts(command: &[String], host: &HostFacts, duration_s: f64) -> Markup {
    html! {
        (preformatted(&short(&record::shell::quoted(command), COMMAND_CHARS_MAX)))
        p.note {
            "Took " (format::duration_text(duration_s)) " on " (short(host.name.as_deref().unwrap_or("this machine"), 60)) ": "
            (host.cpus) " CPUs, " (format_bytes(host.memory_bytes as f64)) " of memory, kernel "
            (short(&host.kernel, 80)) "."
        }
    }
}
