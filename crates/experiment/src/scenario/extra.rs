//! `[programs.NAME]`: programs besides the subject and its origin, each at a node of the network.
//!
//! Not for starting them: see [`crate::trial`].

use record::document::Problems;
use record::document::table::{KeySpec, NamedTable, ValueForm, key, required};

use super::common_keys::{BUILD, NODE};
use super::plan::{Network, Node};
use super::program::{ProgramSetup, read_program};

/// Keys of each table.
pub(super) const KEYS: &[KeySpec] = &[
    required("command", ValueForm::Text, "Command; see `subject.command`"),
    key("at", NODE, "Node whose network namespace and limits it uses; the default is the subject"),
    key(
        "ready",
        ValueForm::Text,
        "Address and port on which it accepts connections when ready; without it, readiness is not awaited",
    ),
    key("ready-path", ValueForm::Text, "See `subject.ready-path`; requires `ready`"),
    key("ready-command", ValueForm::Text, "See `subject.ready-command`"),
    key("ready-timeout", ValueForm::Time, "See `subject.ready-timeout`"),
    key("env", ValueForm::Texts, "See `subject.env`"),
    BUILD,
];

/// Program besides the subject and its origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraProgram {
    pub name: String,
    pub node: Node,
    /// Program to run. Without an address in `ready`, the trial does not wait for its connections.
    pub program: ProgramSetup,
}

/// Reads the tables, in the order of the file.
pub(super) fn read_programs(
    entries: &[NamedTable],
    network: Network,
    problems: &mut Problems,
) -> Vec<ExtraProgram> {
    let read = |entry: &NamedTable| {
        let node = entry.values.text("at").and_then(Node::from_name).unwrap_or_default();
        let nodes = network.nodes();
        if !nodes.is_empty() && !nodes.contains(&node) {
            let text = format!("there is no {node} in this network: network = \"chain\" has one");
            problems.add_error(entry.values.offset_of("at"), text);
        }
        if !is_name(&entry.name) {
            let text = format!(
                "'{}' is not a valid program name: letters, digits, '-' and '_', and none of client, \
                 subject, origin, load",
                entry.name
            );
            problems.add_error(entry.offset, text);
        }
        let program = read_program(&entry.values, problems);
        if program.ready.is_empty() && !program.ready_path.is_empty() {
            let text = "'ready-path' requires 'ready', the address of its requests";
            problems.add_error(entry.values.offset_of("ready-path"), text);
        }
        ExtraProgram { name: entry.name.clone(), node, program }
    };
    entries.iter().map(read).collect()
}

/// Returns whether a name is allowed: the program's output goes to a file of this name.
fn is_name(name: &str) -> bool {
    let fits = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
    let taken = ["client", "subject", "origin", "load"].contains(&name);
    !name.is_empty() && name.chars().all(fits) && !taken
}

#[cfg(test)]
mod tests {
    use crate::scenario::plan::Node;
    use crate::scenario::setup::LabSetup;
    use crate::scenario::setup::tests::assert_problems;

    const REST: &str = "[subject]\ncommand = \"a\"\nready = \"1.2.3.4:5\"\nbuild = \"cc 'a b'\"\n\
                        [load]\nflags = \"x\"\n";

    #[test]
    fn programs_are_read_in_the_order_of_the_file() {
        let text = format!(
            "[scenario]\nnetwork = \"chain\"\n[programs.z]\ncommand = \"b\"\nat = \"origin\"\n\
             ready = \"{{origin}}:8001\"\n[programs.a]\ncommand = \"c d\"\n{REST}"
        );
        let setup = LabSetup::parse("a", &text).unwrap();
        let names: Vec<&str> = setup.programs.iter().map(|extra| &*extra.name).collect();
        assert_eq!(names, ["z", "a"]);
        assert_eq!((setup.programs[0].node, setup.programs[1].node), (Node::Origin, Node::Subject));
        assert_eq!(setup.programs[1].program.command, ["c", "d"]);
        assert_eq!(setup.subject.build, ["cc", "a b"]);
    }

    #[test]
    fn all_problems_of_programs_are_reported_with_their_positions() {
        let text = format!(
            "[programs.\"a b\"]\ncommand = \"x\"\n[programs.c]\ncommand = \"x\"\nat = \"origin\"\n\
             ready-path = \"/\"\n[programs.load]\nat = \"client\"\n{REST}"
        );
        let problems = LabSetup::parse("a", &text).unwrap_err();
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let expected = [
            "a:1:11: 'a b'",
            "a:5:1: origin",
            "a:6:1: 'ready-path' 'ready'",
            "a:7:11: 'load'",
            "a:7:11: 'programs.load.command'",
        ];
        assert_problems(&texts, &expected);
    }
}
