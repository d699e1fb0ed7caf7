//! `[programs.NAME]`: programs besides the subject and its origin, each at a node of the network.
//!
//! Not for starting them: that is [`crate::trial`]'s.

use super::keys::{BUILD, Form, Key, NODE, key, needed};
use super::plan::{Network, Node};
use super::read::{Entry, Problems};
use super::setup::{Program, program};

/// The keys of each table.
pub(super) const KEYS: &[Key] = &[
    needed("command", Form::Text, "The command, as of `subject.command`"),
    key("at", NODE, "Whose network namespace and limits it has; the subject's if not given"),
    key(
        "ready",
        Form::Text,
        "Address and port that it takes connections on once it is ready; not waited for if not given",
    ),
    key("ready-path", Form::Text, "As of `subject.ready-path`; needs `ready`"),
    key("ready-command", Form::Text, "As of `subject.ready-command`"),
    key("ready-within", Form::Time, "As of `subject.ready-within`"),
    key("env", Form::Texts, "As of `subject.env`"),
    BUILD,
];

/// A program besides the subject and its origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraProgram {
    /// Its name in the file.
    pub name: String,
    /// Where it runs.
    pub node: Node,
    /// The program. Without an address in `ready` nobody waits for its connections.
    pub program: Program,
}

/// Reads the tables, in the order of the file.
pub(super) fn programs(
    entries: &[Entry],
    network: Network,
    problems: &mut Problems,
) -> Vec<ExtraProgram> {
    let read = |entry: &Entry| {
        let node = entry.values.text("at").and_then(Node::named).unwrap_or_default();
        let nodes = network.nodes();
        if !nodes.is_empty() && !nodes.contains(&node) {
            let text = format!("there is no {node} in this network: network = \"chain\" has one");
            problems.add(entry.values.place("at"), text);
        }
        if !is_name(&entry.name) {
            let text = format!(
                "'{}' is no name of a program: letters, digits, '-' and '_', and none of client, \
                 subject, origin, load",
                entry.name
            );
            problems.add(entry.at, text);
        }
        let program = program(&entry.values, problems);
        if program.ready.is_empty() && !program.ready_path.is_empty() {
            let text = "'ready-path' needs 'ready': the address to ask at";
            problems.add(entry.values.place("ready-path"), text);
        }
        ExtraProgram { name: entry.name.clone(), node, program }
    };
    entries.iter().map(read).collect()
}

/// Its output is in a file of this name, beside those of the other programs.
fn is_name(name: &str) -> bool {
    let fits = |one: char| one.is_ascii_alphanumeric() || "-_".contains(one);
    let taken = ["client", "subject", "origin", "load"].contains(&name);
    !name.is_empty() && name.chars().all(fits) && !taken
}

#[cfg(test)]
mod tests {
    use crate::scenario::plan::Node;
    use crate::scenario::setup::Setup;

    const REST: &str = "[subject]\ncommand = \"a\"\nready = \"1.2.3.4:5\"\nbuild = \"cc 'a b'\"\n\
                        [load]\nflags = \"x\"\n";

    #[test]
    fn programs_are_read_in_the_order_of_the_file() {
        let text = format!(
            "[scenario]\nnetwork = \"chain\"\n[programs.z]\ncommand = \"b\"\nat = \"origin\"\n\
             ready = \"{{origin}}:8001\"\n[programs.a]\ncommand = \"c d\"\n{REST}"
        );
        let setup = Setup::parse("a", &text).unwrap();
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
        let problems = Setup::parse("a", &text).unwrap_err();
        let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let expected = [
            "a:1:11: 'a b' is no name of a program",
            "a:5:1: there is no origin in this network",
            "a:6:1: 'ready-path' needs 'ready'",
            "a:7:11: 'load' is no name of a program",
            "a:7:11: 'programs.load.command' is missing",
        ];
        assert_eq!(told.len(), expected.len(), "{told:#?}");
        for (told, expected) in told.iter().zip(expected) {
            assert!(told.starts_with(expected), "{told}\n{expected}");
        }
    }
}
