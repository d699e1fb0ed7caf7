//! Plan of a run with roles: a TOML file with one table per machine, and the load. All problems are reported
//! at once, each with its line and column.

use record::document::{Problems, TomlDocument, position};
use record::problem::InputProblem;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::message::AgentRole;
use crate::split::AgentSelection;

/// Plan of a run with roles.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetFile {
    /// Machines of programs under the load.
    pub machines: Vec<MachinePlan>,
    /// Agents that drive the load, in the form of `--agents`.
    pub agents: String,
    /// Arguments of `weir load`.
    pub arguments: Vec<String>,
}

/// One machine: an agent with its program.
#[derive(Clone, Debug, PartialEq)]
pub struct MachinePlan {
    pub name: String,
    pub position: String,
    pub agent: AgentSelection,
    pub role: String,
    /// Role that the agent must allow.
    pub allows: AgentRole,
    /// Arguments of the program, or of `weir watch`.
    pub arguments: Vec<String>,
}

/// Keys of a machine that name its program: the key, the role that the agent must allow, the default role in the
/// diagnosis, and the effect, for the reference.
pub const PROGRAM_KEYS: &[(&str, AgentRole, &str, &str)] = &[
    ("serve", AgentRole::Serve, "origin", "arguments of weir serve, which the agent starts"),
    ("proxy", AgentRole::Proxy, "subject", "arguments of weir proxy, which the agent starts"),
    ("observe", AgentRole::Observe, "subject", "flags of weir watch that name a process which runs already"),
];
const MACHINE_KEYS: &[&str] = &["agent", "role"];
const LOAD_KEYS: &[&str] = &["agents", "arguments"];
const MACHINES_MAX: usize = 64;
const ARGUMENTS_MAX: usize = 256;

type Entry<'t> = (&'t Spanned<std::borrow::Cow<'t, str>>, &'t Spanned<DeValue<'t>>);

/// Parses the text of a plan.
///
/// # Errors
/// Every problem, with its position.
pub fn parse(name: &str, text: &str) -> Result<FleetFile, Vec<InputProblem>> {
    let mut reader = Reader { name, text, problems: Problems::default() };
    let document = TomlDocument::parse(text);
    let (mut machines, mut load) = (Vec::new(), None);
    for (key, value) in document.table() {
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("machine", DeValue::Table(tables)) => {
                machines.extend(tables.iter().filter_map(|entry| reader.machine(entry)));
            }
            ("load", DeValue::Table(table)) => load = Some(reader.load(table)),
            ("machine" | "load", _) => reader.problem(value.span().start, "must be a table".to_owned()),
            _ => reader.problems.add_unknown_key(key, ["machine", "load"]),
        }
    }
    if machines.len() > MACHINES_MAX {
        reader.problem(0, format!("{} machines; the limit is {MACHINES_MAX}", machines.len()));
    }
    if document.is_valid() && load.is_none() {
        reader.problem(text.len(), "missing: [load] with agents and arguments".to_owned());
    }
    let problems = document.all_problems(name, reader.problems);
    match load {
        Some((agents, arguments)) if problems.is_empty() => Ok(FleetFile { machines, agents, arguments }),
        _ => Err(problems),
    }
}

/// Text in progress, with its problems by offset.
struct Reader<'a> {
    name: &'a str,
    text: &'a str,
    problems: Problems,
}

impl Reader<'_> {
    fn problem(&mut self, at: usize, text: impl std::fmt::Display) {
        self.problems.add_error(at, text);
    }

    fn machine(&mut self, (key, value): Entry<'_>) -> Option<MachinePlan> {
        let (name, at) = (key.get_ref().to_string(), key.span().start);
        let DeValue::Table(table) = value.get_ref() else {
            self.problem(value.span().start, format!("[machine.{name}] must be a table"));
            return None;
        };
        let (mut agent, mut role, mut programs) = (None, None, Vec::new());
        for (key, value) in table {
            let start = value.span().start;
            let text_of = |reader: &mut Self| reader.text_value(key.get_ref(), value);
            match key.get_ref().as_ref() {
                "agent" => {
                    agent = text_of(self).map(|text| match AgentSelection::parse(&text) {
                        Ok(selection) => selection,
                        Err(why) => {
                            self.problem(start, why);
                            AgentSelection::All
                        }
                    });
                }
                "role" => role = text_of(self),
                other => match PROGRAM_KEYS.iter().find(|row| row.0 == other) {
                    Some(row) => programs.push((row, self.texts(other, value))),
                    None => {
                        let known = MACHINE_KEYS.iter().copied().chain(PROGRAM_KEYS.iter().map(|row| row.0));
                        self.problems.add_unknown_key(key, known);
                    }
                },
            }
        }
        if agent.is_none() && !table.contains_key("agent") {
            self.problem(at, format!("[machine.{name}] has no agent: agent = \"name=NAME\", or labels"));
        }
        let [(row, arguments)] = programs.as_slice() else {
            self.problem(at, format!("[machine.{name}] needs one of serve, proxy and observe"));
            return None;
        };
        Some(MachinePlan {
            position: position(self.name, self.text, at),
            agent: agent?,
            role: role.unwrap_or_else(|| row.2.to_owned()),
            allows: row.1,
            arguments: arguments.clone(),
            name,
        })
    }

    fn load(&mut self, table: &DeTable<'_>) -> (String, Vec<String>) {
        let (mut agents, mut arguments) = ("all".to_owned(), Vec::new());
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "agents" => {
                    agents = self.text_value("agents", value).unwrap_or_default();
                    if let Err(why) = AgentSelection::parse(&agents) {
                        self.problem(value.span().start, why);
                    }
                }
                "arguments" => arguments = self.texts("arguments", value),
                _ => self.problems.add_unknown_key(key, LOAD_KEYS.iter().copied()),
            }
        }
        (agents, arguments)
    }

    fn text_value(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<String> {
        match value.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            _ => {
                self.problem(value.span().start, format!("{key} must be a text"));
                None
            }
        }
    }

    /// Returns the texts of a list. A shell line is no list: nothing splits it.
    fn texts(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Vec<String> {
        let DeValue::Array(entries) = value.get_ref() else {
            self.problem(value.span().start, format!("{key} must be a list of texts: [\"-c\", \"8\"]"));
            return Vec::new();
        };
        if entries.len() > ARGUMENTS_MAX {
            self.problem(value.span().start, format!("{key}: more than {ARGUMENTS_MAX} arguments"));
        }
        entries.iter().filter_map(|entry| self.text_value(key, entry)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_machines_and_a_load() {
        let text = r#"
            [machine.east]
            agent = "name=east"
            proxy = ["--listen", "10.0.0.2:80", "--to", "10.0.0.3:80"]
            [machine.west]
            agent = "zone=west,disk=ssd"
            role = "origin"
            observe = ["--port", "80"]
            [load]
            agents = "2"
            arguments = ["-c", "8", "http://10.0.0.2/"]
        "#;
        let file = parse("p.toml", text).unwrap();
        let of = |index: usize| {
            let machine = &file.machines[index];
            (machine.name.as_str(), machine.role.as_str(), machine.allows, machine.arguments.len())
        };
        assert_eq!(of(0), ("east", "subject", AgentRole::Proxy, 4));
        assert_eq!(of(1), ("west", "origin", AgentRole::Observe, 2));
        assert_eq!(file.machines[0].position, "p.toml:2:22");
        assert_eq!((file.agents.as_str(), file.arguments.len()), ("2", 3));
    }

    #[test]
    fn all_problems_have_their_position() {
        let text =
            "lod = 1\n[machine.a]\nagent = 3\nserv = []\n[machine.b]\nserve = \"-l :80\"\nproxy = [1]\n";
        let problems = parse("p.toml", text).unwrap_err();
        let has = |location: &str, part: &str| {
            let found =
                problems.iter().any(|problem| problem.location == location && problem.text.contains(part));
            assert!(found, "{location} {part}: {problems:#?}");
        };
        has("p.toml:1:1", "'load'");
        has("p.toml:2:10", "one of serve");
        has("p.toml:3:9", "text");
        has("p.toml:4:1", "'serve'");
        has("p.toml:5:10", "no agent");
        has("p.toml:5:10", "one of serve");
        has("p.toml:6:9", "list of texts");
        has("p.toml:7:10", "text");
        has("p.toml:8:1", "[load]");
    }
}
