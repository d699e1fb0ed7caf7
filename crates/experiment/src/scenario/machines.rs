//! `[machine.NAME]`: programs on machines of a fleet, which take the place of the programs on this one.
//!
//! Not for starting them: the command line has the fleet ([`crate::trial::FleetTrials`]).

use record::document::Problems;
use record::document::table::{KeySpec, NamedTable, TableValues, ValueForm, key, required};

use super::common_keys::LIST;
use super::placeholders::{DURATION_PLACEHOLDER, TRIAL_PLACEHOLDERS, TextPiece, split_pieces};

/// Keys of each table.
pub(super) const KEYS: &[KeySpec] = &[
    required("agent", ValueForm::Text, "The agent, by its labels: `name=edge`, or `zone=eu,disk=ssd`"),
    key(
        "role",
        ValueForm::Text,
        "Role in the diagnosis: `subject` (default of `proxy` and `observe`), `origin` (default of `serve`), or another \
         name; one machine has the subject",
    ),
    key("serve", LIST, "Arguments of `weir serve`, which the agent starts for each trial"),
    key("proxy", LIST, "Arguments of `weir proxy`, which the agent starts for each trial"),
    key("observe", LIST, "Flags of `weir watch` for a program that runs already"),
];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MachineProgram {
    Serve,
    #[default]
    Proxy,
    /// A program that runs already.
    Observe,
}

/// Programs with their keys, and their default roles.
const PROGRAMS: [(MachineProgram, &str, &str); 3] = [
    (MachineProgram::Serve, "serve", "origin"),
    (MachineProgram::Proxy, "proxy", SUBJECT),
    (MachineProgram::Observe, "observe", SUBJECT),
];

impl MachineProgram {
    pub fn key(self) -> &'static str {
        PROGRAMS.iter().find(|(program, ..)| *program == self).map_or("", |(_, key, _)| key)
    }
}

/// Program on a machine of a fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineSetup {
    pub name: String,
    pub agent: String,
    pub role: String,
    pub program: MachineProgram,
    /// Arguments of the program, or of `weir watch`.
    pub arguments: Vec<String>,
}

const MACHINES_MAX: usize = 64;
/// Role of the program under test.
const SUBJECT: &str = host::observe::SUBJECT;

/// Reads the tables, in the order of the file, and checks the rest of the file for what a fleet does not have.
pub(super) fn read_machines(values: &TableValues, problems: &mut Problems) -> Vec<MachineSetup> {
    let entries = values.tables("machine");
    let load = values.table("load");
    if entries.is_empty() {
        if let Some(load) = load.filter(|load| load.text("agents").is_some()) {
            let text = "'load.agents' needs [machine.NAME]: without machines the load is of this one";
            problems.add_error(load.offset_of("agents"), text);
        }
        return Vec::new();
    }
    check_other_keys(values, problems);
    let machines: Vec<_> = entries.iter().filter_map(|entry| read_machine(entry, problems)).collect();
    let first = entries.first().map_or(values.offset, |entry| entry.offset);
    if entries.len() > MACHINES_MAX {
        problems.add_error(first, format!("{} machines; the limit is {MACHINES_MAX}", entries.len()));
    }
    let subjects = machines.iter().filter(|machine| machine.role == SUBJECT).count();
    if machines.len() == entries.len() && subjects != 1 {
        let text = format!(
            "{subjects} machines have the role subject: one of them is under test; give others a role"
        );
        problems.add_error(first, text);
    }
    machines
}

fn check_other_keys(values: &TableValues, problems: &mut Problems) {
    let present = [
        ("scenario", values.table("scenario").is_some()),
        ("subject", values.table("subject").is_some()),
        ("origin", values.table("origin").is_some()),
        ("programs", !values.tables("programs").is_empty()),
        ("files", values.texts("files").is_some()),
    ];
    for (key, _) in present.into_iter().filter(|(_, is_present)| *is_present) {
        let text = format!("'{key}' is of one machine, and [machine.NAME] replaces it: remove one of them");
        problems.add_error(values.offset_of(key), text);
    }
    let Some(load) = values.table("load") else { return };
    if load.text("tool").is_some_and(|tool| tool != "weir") {
        problems.add_error(load.offset_of("tool"), "agents drive the load with weir: remove 'load.tool'");
    }
    let flags = load.text("flags").unwrap_or_default();
    if let Some(name) = trial_placeholder(flags).filter(|name| *name != DURATION_PLACEHOLDER) {
        problems.add_error(load.offset_of("flags"), placeholder_text(name));
    }
}

fn read_machine(entry: &NamedTable, problems: &mut Problems) -> Option<MachineSetup> {
    let values = &entry.values;
    let given: Vec<_> =
        PROGRAMS.iter().filter_map(|row| values.list(row.1).map(|arguments| (row, arguments))).collect();
    for argument in given.iter().flat_map(|(_, arguments)| *arguments) {
        if let Some(name) = trial_placeholder(&argument.value) {
            problems.add_error(argument.offset, placeholder_text(name));
        }
    }
    let [((program, _, role), arguments)] = given.as_slice() else {
        let name = &entry.name;
        problems.add_error(entry.offset, format!("[machine.{name}] needs one of serve, proxy and observe"));
        return None;
    };
    Some(MachineSetup {
        name: entry.name.clone(),
        agent: values.text("agent").unwrap_or_default().to_owned(),
        role: values.text("role").unwrap_or(role).to_owned(),
        program: *program,
        arguments: arguments.iter().map(|argument| argument.value.clone()).collect(),
    })
}

/// Returns the first placeholder of a text that only a trial on this machine fills in.
fn trial_placeholder(text: &str) -> Option<&str> {
    split_pieces(text).into_iter().find_map(|(_, piece)| match piece {
        TextPiece::Placeholder(name) if TRIAL_PLACEHOLDERS.contains(&name) => Some(name),
        _ => None,
    })
}

fn placeholder_text(name: &str) -> String {
    format!("'{{{name}}}' is of a trial on this machine: write the address, port or path of the other one")
}

#[cfg(test)]
mod tests {
    use super::super::setup::LabSetup;
    use super::super::setup::tests::assert_problems;
    use super::*;

    const TEXT: &str = r#"
[machine.edge]
agent = "name=edge"
proxy = ["--listen", "10.0.0.2:80", "--to", "10.0.0.3:80", "-t", 2]
[machine.back]
agent = "zone=x"
serve = ["--listen", "10.0.0.3:80"]
[load]
agents = "2"
flags = "-c 8 -d {duration} http://10.0.0.2/"
"#;

    #[test]
    fn machines_have_an_agent_a_role_and_a_program() {
        let setup = LabSetup::parse("a.toml", TEXT).unwrap();
        let of = |index: usize| {
            let machine = &setup.machines[index];
            (&*machine.name, &*machine.agent, &*machine.role, machine.program, machine.arguments.len())
        };
        assert_eq!(of(0), ("edge", "name=edge", "subject", MachineProgram::Proxy, 6));
        assert_eq!(of(1), ("back", "zone=x", "origin", MachineProgram::Serve, 2));
        assert_eq!((setup.machines[0].arguments.last().unwrap().as_str(), &*setup.agents), ("2", "2"));
        assert!(setup.subject.command.is_empty());
    }

    #[test]
    fn all_problems_of_machines_are_reported_with_their_positions() {
        let text = "[machine.a]\nserve = [\"--listen\", \"127.0.0.1:{port}\"]\n\
                    [machine.b]\nagent = \"name=b\"\nserve = [\"-t\", \"1\"]\nproxy = [\"-t\", \"1\"]\n\
                    [scenario]\nnetwork = \"pair\"\n[load]\ntool = \"wrk\"\nflags = \"http://{subject}/\"\n";
        let problems = LabSetup::parse("a.toml", text).unwrap_err();
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let expected = [
            "a.toml:1:10: 'machine.a.agent'",
            "a.toml:2:22: '{port}'",
            "a.toml:3:10: serve, proxy and observe",
            "a.toml:7:2: 'scenario'",
            "a.toml:10:1: weir",
            "a.toml:11:1: '{subject}'",
        ];
        assert_problems(&texts, &expected);
        let without =
            "[subject]\ncommand = \"a\"\nready = \"1.2.3.4:5\"\n[load]\nflags = \"x\"\nagents = \"2\"\n";
        assert!(LabSetup::parse("a", without).unwrap_err()[0].text.contains("[machine.NAME]"));
        let two = TEXT.replace("zone=x\"", "zone=x\"\nrole = \"subject\"");
        assert!(LabSetup::parse("a", &two).unwrap_err()[0].text.contains("2 machines"));
    }
}
