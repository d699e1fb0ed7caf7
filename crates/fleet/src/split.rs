//! Selection of the agents of a run, and the division of a load among them by their capacity. Pure.

use std::collections::BTreeMap;

use record::invalid_value;
use record::problem::InvalidValue;

use crate::message::{AgentFacts, AgentName, AgentRole};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentSelection {
    All,
    /// So many of them.
    Count(usize),
    /// Those with all of these labels; `name` is the name of an agent.
    Labels(Vec<(String, String)>),
}

/// Reason why the agents of a selection are not there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    #[error("two agents have the name {0}: start one of them with another --name")]
    SameName(AgentName),
    #[error(
        "{count} agents are needed, {available} of {known} may {role}: start more with weir fleet agent --allow \
         {role}",
        role = .role.name()
    )]
    TooFew { count: usize, available: usize, known: usize, role: AgentRole },
    #[error(
        "no selected agent may {role} ({known} known): start one with weir fleet agent --allow {role}",
        role = .role.name()
    )]
    None { known: usize, role: AgentRole },
}

/// Label that stands for the name of an agent.
const NAME_LABEL: &str = "name";

impl AgentSelection {
    /// Parses `all`, a number, or `label=value[,label=value]`.
    ///
    /// # Errors
    /// The text is no selection.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        if text == "all" {
            return Ok(Self::All);
        }
        if let Ok(count) = text.parse() {
            return match count {
                0 => Err(invalid_value!("0 agents drive no load")),
                count => Ok(Self::Count(count)),
            };
        }
        let labels: Option<Vec<_>> = text
            .split(',')
            .map(|label| label.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned())))
            .collect();
        let labels = labels.filter(|labels| labels.iter().all(|(key, _)| !key.is_empty()));
        labels.map(Self::Labels).ok_or_else(|| {
            invalid_value!("'{text}' selects no agents (write a number, all, or label=value[,label=value])")
        })
    }

    /// Returns the selected agents, by name.
    ///
    /// # Errors
    /// There are not enough agents, or two have the same name.
    pub fn select(&self, role: AgentRole, known: &[AgentFacts]) -> Result<Vec<AgentFacts>, SelectionError> {
        let mut by_name: BTreeMap<&AgentName, &AgentFacts> = BTreeMap::new();
        for facts in known.iter().filter(|facts| facts.roles.contains(&role)) {
            if let Some(other) = by_name.insert(&facts.name, facts)
                && other.instance != facts.instance
            {
                return Err(SelectionError::SameName(facts.name.clone()));
            }
        }
        let matches = |facts: &&AgentFacts| match self {
            Self::Labels(labels) => labels.iter().all(|(key, value)| match key.as_str() {
                NAME_LABEL => facts.name.as_str() == value,
                key => facts.labels.get(key) == Some(value),
            }),
            Self::All | Self::Count(_) => true,
        };
        let mut selected: Vec<AgentFacts> = by_name.into_values().filter(matches).cloned().collect();
        let (available, known) = (selected.len(), known.len());
        if let Self::Count(count) = self {
            if available < *count {
                return Err(SelectionError::TooFew { count: *count, available, known, role });
            }
            selected.truncate(*count);
        }
        match selected.is_empty() {
            true => Err(SelectionError::None { known, role }),
            false => Ok(selected),
        }
    }
}

/// Basis of the division of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitBasis {
    /// Calibrated capacity of each agent.
    Capacity,
    /// Number of CPUs, because an agent has no calibration.
    Cpus,
}

/// Division of a load: a slice for each agent, in the form of `--slice`.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    pub basis: SplitBasis,
    /// Slice of each agent, and its fraction of the load.
    pub slices: Vec<(String, f64)>,
}

/// Weights are rounded to this many parts of the largest.
const WEIGHT_PARTS: f64 = 10_000.0;

/// Divides a load among agents by their calibrated capacity, or by their CPUs if one is not calibrated.
pub fn split(agents: &[AgentFacts]) -> Split {
    let capacities: Option<Vec<f64>> =
        agents.iter().map(|facts| facts.capacity_per_s.filter(|capacity| *capacity > 0.0)).collect();
    let (basis, weights) = match capacities {
        Some(capacities) => (SplitBasis::Capacity, capacities),
        None => (SplitBasis::Cpus, agents.iter().map(|facts| f64::from(facts.host.cpus.max(1))).collect()),
    };
    let largest = weights.iter().copied().fold(1e-9, f64::max);
    let is_even = weights.iter().all(|weight| *weight == largest);
    let parts = weights.iter().map(|weight| match is_even {
        true => 1,
        false => ((weight / largest * WEIGHT_PARTS).round() as u64).max(1),
    });
    let parts: Vec<u64> = parts.collect();
    let total: u64 = parts.iter().sum();
    let mut from = 0;
    let slices = parts.into_iter().map(|count| {
        let slice = format!("{from}-{}/{total}", from + count);
        from += count;
        (slice, count as f64 / total as f64)
    });
    Split { basis, slices: slices.collect() }
}

#[cfg(test)]
mod tests {
    use record::facts::HostFacts;

    use super::*;

    fn agent(name: &str, cpus: u32, capacity_per_s: Option<f64>) -> AgentFacts {
        AgentFacts {
            name: AgentName::parse(name).unwrap(),
            instance: name.to_owned(),
            weir: String::new(),
            host: HostFacts { cpus, ..HostFacts::default() },
            links: Vec::new(),
            labels: [("zone".to_owned(), format!("z{cpus}"))].into(),
            roles: vec![AgentRole::Load],
            capacity_per_s,
            clock_synchronized: None,
        }
    }

    #[test]
    fn agents_are_selected_by_number_name_and_label() {
        let known = [agent("b", 2, None), agent("a", 4, None), agent("c", 2, None)];
        let names = |text: &str| {
            let selected = AgentSelection::parse(text).unwrap().select(AgentRole::Load, &known);
            selected
                .map(|facts| facts.iter().map(|facts| facts.name.to_string()).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(names("all").unwrap(), "a b c");
        assert_eq!(names("2").unwrap(), "a b");
        assert_eq!(names("zone=z2").unwrap(), "b c");
        assert_eq!(names("zone=z2,name=c").unwrap(), "c");
        assert!(names("4").unwrap_err().to_string().contains("3 of 3 may load"));
        assert!(names("zone=z9").is_err());
        assert!(AgentSelection::All.select(AgentRole::Serve, &known).is_err());
        let twice = [agent("a", 1, None), AgentFacts { instance: "other".to_owned(), ..agent("a", 1, None) }];
        assert!(
            AgentSelection::All.select(AgentRole::Load, &twice).unwrap_err().to_string().contains("--name")
        );
        for wrong in ["0", "", "zone", "=x", "-1"] {
            assert!(AgentSelection::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_load_is_divided_by_capacity_or_by_cpus_without_a_gap() {
        let by_cpus = split(&[agent("a", 2, Some(9.0)), agent("b", 4, None)]);
        assert_eq!((by_cpus.basis, by_cpus.slices[0].0.as_str()), (SplitBasis::Cpus, "0-5000/15000"));
        assert_eq!(by_cpus.slices[1].0, "5000-15000/15000");
        let by_capacity = split(&[agent("a", 2, Some(100e3)), agent("b", 4, Some(300e3))]);
        assert_eq!(by_capacity.basis, SplitBasis::Capacity);
        assert!((by_capacity.slices[1].1 - 0.75).abs() < 1e-4);
        let even = split(&[agent("a", 2, None), agent("b", 2, None)]);
        assert_eq!(even.slices, [("0-1/2".to_owned(), 0.5), ("1-2/2".to_owned(), 0.5)]);
        // A tiny agent still gets a part.
        assert!(split(&[agent("a", 1, Some(1.0)), agent("b", 1, Some(1e9))]).slices[0].1 > 0.0);
    }
}
