//! Facts about the agents of an experiment: they belong to its environment, which `weir lab run --resume` compares.

use std::collections::BTreeMap;

use experiment::scenario::setup::LabSetup;
use fleet::fleet_load::SEARCH_TIME_ALL;
use fleet::message::{AgentFacts, AgentRole};
use fleet::split::{AgentSelection, SelectionError};
use fleet::transport::NatsOptions;
use rt::tokio::sync::watch;

use super::connect;
use super::trial::role_of;
use crate::exit::Failure;

#[derive(Clone, Debug, Default)]
pub(in crate::commands) struct ExperimentAgents {
    /// Each selection once, with its role.
    selections: Vec<(AgentSelection, AgentRole)>,
}

impl ExperimentAgents {
    pub(in crate::commands) fn from_setups<'a>(setups: impl Iterator<Item = &'a LabSetup>) -> Self {
        let mut selections = Vec::new();
        for setup in setups.filter(|setup| !setup.machines.is_empty()) {
            let machines =
                setup.machines.iter().map(|machine| (machine.agent.as_str(), role_of(machine.program)));
            for (text, role) in machines.chain([(setup.agents.as_str(), AgentRole::Load)]) {
                // The file was checked: a selection that cannot be parsed is a problem of it.
                let Ok(selection) = AgentSelection::parse(text) else { continue };
                if !selections.contains(&(selection.clone(), role)) {
                    selections.push((selection, role));
                }
            }
        }
        Self { selections }
    }

    /// Returns whether the experiment has no machines but this one.
    pub(super) fn is_empty(&self) -> bool {
        self.selections.is_empty()
    }

    /// Reads the facts of the agents that are there.
    pub(super) fn read(
        &self,
        nats: &NatsOptions,
        stops: &watch::Receiver<u32>,
    ) -> Result<BTreeMap<String, String>, Failure> {
        let known = connect(nats, Some(stops))?.find_agents(SEARCH_TIME_ALL, &|_| false);
        let known: Vec<AgentFacts> = known.into_iter().map(|agent| agent.facts).collect();
        self.facts(&known).map_err(Failure::cannot_run)
    }

    fn facts(&self, known: &[AgentFacts]) -> Result<BTreeMap<String, String>, SelectionError> {
        let mut facts = BTreeMap::new();
        for (selection, role) in &self.selections {
            selection.select(*role, known)?.iter().for_each(|agent| facts.extend(agent_facts(agent)));
        }
        Ok(facts)
    }
}

fn agent_facts(AgentFacts { name, weir, host, .. }: &AgentFacts) -> impl Iterator<Item = (String, String)> {
    let known = [
        ("weir", Some(weir.clone())),
        ("machine", Some(host.fingerprint.clone())),
        ("host name", host.name.clone()),
        ("CPU model", host.cpu_model.clone()),
        ("CPUs", Some(host.cpus.to_string())),
        ("operating system", host.os.clone()),
        ("kernel", Some(host.kernel.clone())),
        ("congestion control", host.congestion_control.clone()),
        ("descriptors", Some(host.limits.descriptors.to_string())),
    ];
    let entry = move |(fact, value): (&str, Option<String>)| Some((format!("agent {name}, {fact}"), value?));
    known.into_iter().filter_map(entry)
}

#[cfg(test)]
mod tests {
    use experiment::engine::environment::changed_facts;
    use experiment::scenario::machines::{MachineProgram, MachineSetup};
    use fleet::message::AgentName;
    use record::facts::HostFacts;

    use super::*;

    fn agent(name: &str, role: AgentRole, cpus: u32) -> AgentFacts {
        AgentFacts {
            name: AgentName::parse(name).unwrap(),
            instance: name.to_owned(),
            weir: String::new(),
            host: HostFacts { cpus, ..HostFacts::default() },
            links: Vec::new(),
            labels: BTreeMap::new(),
            roles: vec![role],
            capacity_per_s: None,
            clock_synchronized: None,
        }
    }

    #[test]
    fn a_changed_agent_is_a_changed_environment_and_others_are_not() {
        let machine = MachineSetup {
            name: "edge".to_owned(),
            agent: "name=e".to_owned(),
            program: MachineProgram::Proxy,
            ..MachineSetup::default()
        };
        let setup = LabSetup { machines: vec![machine], agents: "1".to_owned(), ..LabSetup::default() };
        let agents = ExperimentAgents::from_setups([&setup, &setup].into_iter());
        assert_eq!(agents.selections.len(), 2);
        let client = agent("c", AgentRole::Load, 4);
        let before = agents.facts(&[client.clone(), agent("e", AgentRole::Proxy, 4)]).unwrap();
        let others = [client.clone(), agent("e", AgentRole::Proxy, 2), agent("x", AgentRole::Load, 9)];
        let now = agents.facts(&others).unwrap();
        assert_eq!(changed_facts(&before, &now), ["agent e, CPUs: 2, was 4"]);
        assert!(agents.facts(&[client]).unwrap_err().to_string().contains("may proxy"));
        // An experiment of this machine needs no server.
        let local = ExperimentAgents::from_setups([&LabSetup::default()].into_iter());
        assert!(local.is_empty());
    }
}
