//! Settings of the virtual links of a scenario: checks them, and writes them in the namespaces of the nodes. They end
//! with the namespaces.

use std::io;
use std::path::PathBuf;

use host::sandbox::link_settings::{LINK_SETTINGS, find_link_setting};
use host::sandbox::namespace;
use record::document::Problems;
use record::document::table::TableValues;
use record::problem::suggestion;

use super::errors::{ResourceError, TestbedError};
use super::network::{is_delayed, links};
use super::plan::{Node, Scenario};

/// Returns the interfaces of a node, and true for each that has a delay: it is a TUN device.
fn interfaces(scenario: &Scenario, node: Node) -> Vec<(String, bool)> {
    let ends = links(scenario.network).iter().filter_map(|&(near, far)| {
        let peer = if node == near { far } else { near };
        let has_link = node == near || node == far;
        has_link.then(|| (format!("to-{peer}"), is_delayed(scenario, far)))
    });
    ends.collect()
}

/// Reports unknown settings, invalid values, and links that cannot have them.
pub(super) fn check(scenario: &Scenario, values: &TableValues, problems: &mut Problems) {
    let Some(table) = values.table("interface") else { return };
    for (&node, settings) in &scenario.interface_settings {
        let mut add =
            |name: &str, text: String| problems.add_error(table.text_offset(node.name(), name), text);
        let is_shaped = |at: Option<Node>| at == Some(node);
        let has_own_qdisc = is_shaped(scenario.bandwidth.map(|bandwidth| bandwidth.at))
            || is_shaped(scenario.packets.filter(|packets| !packets.drop).map(|packets| packets.at));
        for (name, value) in settings {
            let Some(setting) = find_link_setting(name) else {
                let near = suggestion(name, LINK_SETTINGS.iter().map(|setting| setting.name));
                let names: Vec<&str> = LINK_SETTINGS.iter().map(|setting| setting.name).collect();
                add(name, format!("'{name}' is no setting of a virtual link{near}: {}", names.join(", ")));
                continue;
            };
            if let Err(text) = setting.normalize(value) {
                add(name, format!("'{name}': {text}"));
            } else if name == "qdisc" && has_own_qdisc {
                add(name, format!("'bandwidth' or 'packets' has the queueing discipline of the {node}"));
            } else if interfaces(scenario, node).iter().any(|(_, is_tun)| *is_tun) {
                add(name, format!("a link of the {node} has a delay: it is a TUN device and not a veth"));
            }
        }
    }
}

/// Writes the settings of all nodes, each on every link of its node, and reads them back.
pub(super) fn write(
    scenario: &Scenario,
    namespace_of: impl Fn(Node) -> Option<PathBuf>,
) -> Result<(), TestbedError> {
    for (&node, settings) in &scenario.interface_settings {
        let Some(path) = namespace_of(node) else { continue };
        let ordered =
            || LINK_SETTINGS.iter().filter_map(|setting| Some((setting, settings.get(setting.name)?)));
        for (interface, _) in interfaces(scenario, node) {
            namespace::run_with_sysfs_in_netns(&path, || {
                ordered().try_for_each(|(setting, value)| {
                    let value = setting.normalize(value).map_err(io::Error::other);
                    value.and_then(|value| setting.write(&interface, &value)).map_err(|source| {
                        let object = format!("{} of {interface} at {node}", setting.name);
                        ResourceError::Refused { object, source }
                    })
                })
            })??;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::setup::LabSetup;

    #[test]
    fn links_that_cannot_have_a_setting_are_reported() {
        let rest = "[subject]\ncommand = \"a\"\nready = \"1.2.3.4:5\"\n[load]\nflags = \"x\"\n";
        let problems = |scenario: &str| {
            let problems = LabSetup::parse("a", &format!("[scenario]\n{scenario}\n{rest}")).err();
            let texts = problems.unwrap_or_default().into_iter().map(|problem| problem.text);
            texts.collect::<Vec<_>>().join("; ")
        };
        assert_eq!(problems("interface.subject = { gro = \"on\", qdisc = \"fq\", rps_cpus = 3 }"), "");
        for (scenario, part) in [
            ("interface.subject.rx_ring = 9", "'rx_ring' is no setting of a virtual link"),
            ("interface.subject.gro = 3", "'gro': '3' is not 0 or 1"),
            ("interface.origin.gro = 1", "there is no origin"),
            ("network = \"loopback\"\ninterface.client.gro = 1", "network = \"pair\""),
            ("bandwidth.rate = \"1mbit\"\ninterface.subject.qdisc = \"fq\"", "'bandwidth'"),
            ("delay.round-trip = \"1ms\"\ninterface.client.gro = 1", "TUN device"),
        ] {
            assert!(problems(scenario).contains(part), "{scenario}: {}", problems(scenario));
        }
    }
}
