//! Subjects of the messages. An agent publishes only below its own name and subscribes only to its own
//! commands, so that the permissions of a NATS server can hold it to that (docs/fleet.md).

use crate::message::{AgentName, RunId};

/// Commands to all agents.
pub const COMMAND_ALL: &str = "weir.fleet.command";
/// Reports of all agents.
pub const REPORTS: &str = "weir.fleet.report.*";
/// Clocks of all agents.
pub const CLOCKS: &str = "weir.fleet.clock.*";

/// Returns the subject of commands to one agent.
#[must_use]
pub fn command(agent: &AgentName) -> String {
    format!("weir.fleet.command.{agent}")
}

/// Returns the subject of facts and states of an agent.
#[must_use]
pub fn report(agent: &AgentName) -> String {
    format!("weir.fleet.report.{agent}")
}

/// Returns the subject of the clock of an agent.
#[must_use]
pub fn clock(agent: &AgentName) -> String {
    format!("weir.fleet.clock.{agent}")
}

/// Returns the subject of the live figures of an agent in a run.
#[must_use]
pub fn live(agent: &AgentName, run: &RunId) -> String {
    format!("weir.fleet.live.{agent}.{run}")
}

/// Returns the subject of the live figures of all agents in a run.
#[must_use]
pub fn live_of_run(run: &RunId) -> String {
    format!("weir.fleet.live.*.{run}")
}

/// Returns the subject of a part of a record.
#[must_use]
pub fn record_part(agent: &AgentName, run: &RunId, part: u32) -> String {
    format!("weir.fleet.record.{agent}.{run}.{part}")
}

/// Returns the subject of the parts of all records of a run.
#[must_use]
pub fn records_of_run(run: &RunId) -> String {
    format!("weir.fleet.record.*.{run}.*")
}

/// Returns the subject on which a coordinator sends messages to itself, to test the server.
#[must_use]
pub fn echo(run: &RunId) -> String {
    format!("weir.fleet.echo.{run}")
}

/// Message of an agent, by its subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentSubject {
    /// Facts or state.
    Report,
    /// Clock.
    Clock,
    /// Live figures of a run.
    Live(RunId),
    /// Part of a record.
    Record(RunId, u32),
}

/// Parses the subject of a message of an agent; `None` for any other subject.
#[must_use]
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
