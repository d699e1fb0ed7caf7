//! Subjects of the messages. An agent publishes only below its own name and subscribes only to its own
//! commands, so that the permissions of a NATS server can hold it to that (docs/fleet.md).

use crate::message::{AgentName, RunId};

pub const COMMAND_ALL: &str = "weir.fleet.command";
pub const REPORTS: &str = "weir.fleet.report.*";
pub const CLOCKS: &str = "weir.fleet.clock.*";

pub fn command(agent: &AgentName) -> String {
    format!("weir.fleet.command.{agent}")
}

/// Returns the subject of facts and states of an agent.
pub fn report(agent: &AgentName) -> String {
    format!("weir.fleet.report.{agent}")
}

pub fn clock(agent: &AgentName) -> String {
    format!("weir.fleet.clock.{agent}")
}

pub fn live(agent: &AgentName, run: &RunId) -> String {
    format!("weir.fleet.live.{agent}.{run}")
}

pub fn live_of_run(run: &RunId) -> String {
    format!("weir.fleet.live.*.{run}")
}

pub fn record_part(agent: &AgentName, run: &RunId, part: u32) -> String {
    format!("weir.fleet.record.{agent}.{run}.{part}")
}

pub fn records_of_run(run: &RunId) -> String {
    format!("weir.fleet.record.*.{run}.*")
}

/// Returns the subject on which a coordinator sends messages to itself, to test the server.
pub fn echo(run: &RunId) -> String {
    format!("weir.fleet.echo.{run}")
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentSubject {
    /// Facts or state.
    Report,
    Clock,
    Live(RunId),
    Record(RunId, u32),
}

/// Parses the subject of a message of an agent; `None` for any other subject.
pub fn parse(subject: &str) -> Option<(AgentName, AgentSubject)> {
    let mut words = subject.strip_prefix("weir.fleet.")?.split('.');
    let (kind, agent) = (words.next()?, AgentName::parse(words.next()?).ok()?);
    let mut name = || RunId::parse(words.next()?).ok();
    let parsed = match kind {
        "report" => AgentSubject::Report,
        "clock" => AgentSubject::Clock,
        "live" => AgentSubject::Live(name()?),
        "record" => {
            let run = name()?;
            AgentSubject::Record(run, words.next()?.parse().ok()?)
        }
        _ => return None,
    };
    words.next().is_none().then_some((agent, parsed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_names_its_agent() {
        let (agent, run) = (AgentName::parse("a").unwrap(), RunId::parse("r").unwrap());
        for (subject, parsed) in [
            (report(&agent), AgentSubject::Report),
            (clock(&agent), AgentSubject::Clock),
            (live(&agent, &run), AgentSubject::Live(run.clone())),
            (record_part(&agent, &run, 7), AgentSubject::Record(run.clone(), 7)),
        ] {
            assert_eq!(parse(&subject), Some((agent.clone(), parsed)));
        }
        for other in ["weir.fleet.report", "weir.fleet.report.a.b", "weir.fleet.record.a.r.x", "x.y", ""] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
