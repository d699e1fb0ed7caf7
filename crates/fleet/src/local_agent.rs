//! Agent on this machine: its options, its facts, and its capacity by the stored calibrations.

use std::collections::BTreeMap;

use load::calibrate::{LoadProfile, find_nearest};
use load::plan::{LoadFlags, RunPlan};
use runner::failure::Failure;
use runner::run_record::{host_record, random_id};
use runner::store;

use crate::message::{AgentFacts, AgentName, AgentRole};

#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// Name; `None`: that of the host.
    pub name: Option<AgentName>,
    pub labels: BTreeMap<String, String>,
    pub roles: Vec<AgentRole>,
}

/// Size of a typical small response, for the choice of a stored calibration.
const RESPONSE_BYTES: u64 = 200;

/// Returns the facts of an agent on this machine; `weir` is the version of this build.
pub fn facts(
    name: AgentName,
    options: &AgentOptions,
    host: host::facts::HostFacts,
    (weir, capacity_per_s): (&str, Option<f64>),
) -> AgentFacts {
    // A load of this agent has only the CPUs of its affinity mask.
    let cpus = rt::cores::available_cpus().len() as u32;
    AgentFacts {
        name,
        instance: random_id(),
        weir: weir.to_owned(),
        host: record::facts::HostFacts { cpus, ..host_record(host, Vec::new()) },
        links: links(),
        labels: options.labels.clone(),
        roles: options.roles.clone(),
        capacity_per_s,
        clock_synchronized: host::clock_sync::is_synchronized(),
    }
}

impl AgentOptions {
    /// Returns the options of an agent that only generates load.
    #[must_use]
    pub fn for_load() -> Self {
        Self { name: None, labels: BTreeMap::new(), roles: vec![AgentRole::Load] }
    }
}

const LINKS_MAX: usize = 16;

fn links() -> Vec<(String, Option<f64>)> {
    let Ok(mut links) = host::links::Links::open(None) else { return Vec::new() };
    let Ok(sample) = links.sample() else { return Vec::new() };
    let up = sample.iter().filter(|link| link.is_up()).take(LINKS_MAX);
    up.map(|link| (link.name(), link.since(link, 1.0).speed_bits_per_s)).collect()
}

/// Returns the plan whose capacity is compared between machines: 64 connections, small responses.
///
/// # Errors
/// The URL is wrong.
pub fn reference_plan(url: String) -> Result<RunPlan, Failure> {
    let flags = LoadFlags { urls: vec![url], ..LoadFlags::default() };
    Ok(RunPlan::parse(&flags, rt::cores::available_cpus().len())?)
}

/// Returns the maximum rate of this machine by the nearest stored calibration.
pub fn stored_capacity(host: &host::facts::HostFacts) -> Option<f64> {
    let plan = reference_plan("http://127.0.0.1:1/".to_owned()).ok()?;
    let stored = store::load(&host.fingerprint);
    let calibration = find_nearest(&stored, &LoadProfile::from_plan(&plan, RESPONSE_BYTES))?;
    Some(calibration.per_core_per_s * rt::cores::available_cpus().len() as f64)
}
