//! Plan of a run with roles: a TOML file with one table per machine, and the load. All problems are reported
//! at once, each with its line and column.

use record::document::table::{
    KeySpec, ListForm, NamedTable, TableValues, ValueForm, key, read_document, required,
};
use record::document::{Problems, TomlDocument, position};
use record::problem::InputProblem;

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

/// Program of a machine: the key with its arguments.
struct MachineProgram {
    key: &'static str,
    /// Role that the agent must allow.
    allows: AgentRole,
    /// Default role in the diagnosis.
    role: &'static str,
}

const PROGRAMS: [MachineProgram; 3] = [
    MachineProgram { key: "serve", allows: AgentRole::Serve, role: "origin" },
    MachineProgram { key: "proxy", allows: AgentRole::Proxy, role: "subject" },
    MachineProgram { key: "observe", allows: AgentRole::Observe, role: "subject" },
];

const MACHINES_MAX: usize = 64;

/// Arguments of a program. A shell line is no list: nothing splits it.
const ARGUMENTS: ValueForm = ValueForm::List(ListForm {
    min: 0,
    max: 256,
    has_numbers: false,
    takes_one: false,
    example: "[\"-c\", \"8\"]",
});

const FILE: &[KeySpec] = &[
    key("machine", ValueForm::Tables(MACHINE), "Machines of programs under the load, by any name"),
    required("load", ValueForm::Table(LOAD), "Agents that drive the load, and arguments of `weir load`"),
];

const MACHINE: &[KeySpec] = &[
    required("agent", ValueForm::Text, "The agent, by its labels: `name=edge`, or `zone=eu,disk=ssd`"),
    key(
        "role",
        ValueForm::Text,
        "Role in the diagnosis; the default is origin of `serve`, subject of the others",
    ),
    key("serve", ARGUMENTS, "Arguments of `weir serve`, which the agent starts"),
    key("proxy", ARGUMENTS, "Arguments of `weir proxy`, which the agent starts"),
    key("observe", ARGUMENTS, "Flags of `weir watch` that name a process which runs already"),
];

const LOAD: &[KeySpec] = &[
    key(
        "agents",
        ValueForm::Text,
        "Agents that drive the load, in the form of `--agents`; the default is all",
    ),
    key("arguments", ARGUMENTS, "Arguments of `weir load`"),
];

/// Parses the text of a plan.
///
/// # Errors
/// Every problem, with its position.
pub fn parse(name: &str, text: &str) -> Result<FleetFile, Vec<InputProblem>> {
    let (document, mut problems) = (TomlDocument::parse(text), Problems::default());
    let values = read_document(&document, FILE, &mut problems);
    let entries = values.tables("machine");
    if entries.len() > MACHINES_MAX {
        let text = format!("{} machines; the limit is {MACHINES_MAX}", entries.len());
        problems.add_error(values.offset_of("machine"), text);
    }
    let machine = |entry: &NamedTable| read_machine(entry, position(name, text, entry.offset), &mut problems);
    let machines = entries.iter().filter_map(machine).collect();
    let load = values.table("load").map(|load| read_load(load, &mut problems));
    let problems = document.all_problems(name, problems);
    match load {
        Some((agents, arguments)) if problems.is_empty() => Ok(FleetFile { machines, agents, arguments }),
        _ => Err(problems),
    }
}

fn read_machine(entry: &NamedTable, position: String, problems: &mut Problems) -> Option<MachinePlan> {
    let NamedTable { name, offset, values } = entry;
    let agent = values.text("agent").map(AgentSelection::parse);
    let agent = agent.and_then(|agent| problems.ok_or_report(values.value_offset("agent"), agent));
    let programs: Vec<_> = PROGRAMS.iter().filter(|program| values.is_given(program.key)).collect();
    let [program] = programs.as_slice() else {
        problems.add_error(*offset, format!("[machine.{name}] needs one of serve, proxy and observe"));
        return None;
    };
    Some(MachinePlan {
        name: name.clone(),
        position,
        agent: agent?,
        role: values.text("role").unwrap_or(program.role).to_owned(),
        allows: program.allows,
        arguments: values.text_or_list(program.key).unwrap_or_default(),
    })
}

/// Reads agents and arguments.
fn read_load(load: &TableValues, problems: &mut Problems) -> (String, Vec<String>) {
    let agents = load.text("agents").unwrap_or("all");
    problems.ok_or_report(load.value_offset("agents"), AgentSelection::parse(agents));
    (agents.to_owned(), load.text_or_list("arguments").unwrap_or_default())
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
        has("p.toml:3:9", "a string");
        has("p.toml:4:1", "'serve'");
        has("p.toml:5:10", "'machine.b.agent'");
        has("p.toml:5:10", "one of serve");
        has("p.toml:6:9", "an array of strings");
        has("p.toml:7:10", "a string");
        has("p.toml:1:1", "missing key 'load'");
    }
}
