//! Result of a run: the records of the agents as one, with their starts on the coordinator's clock. Pure.

use std::collections::BTreeMap;

use record::fleet::{AgentClock, AgentOutcome, AgentRow, Fleet};
use record::merge::{MergeError, merge_fleet};
use record::observed::MachineObservation;
use record::run::Run;

use crate::coordinator::MemberResult;
use crate::message::{AgentName, RunId};

/// Record of an agent with the result of its part.
#[derive(Clone, Debug)]
pub struct MemberRecord {
    /// Result of the agent's part.
    pub result: MemberResult,
    /// Record; `None`: the agent is lost.
    pub run: Option<Run>,
    /// True if the kernel of the agent reports a synchronized wall clock.
    pub clock_synchronized: Option<bool>,
}

/// Result of a load, with the records of which it is the sum.
#[derive(Clone, Debug)]
pub struct MergedLoad {
    pub id: RunId,
    /// Sum of the records.
    pub run: Run,
    pub records: BTreeMap<AgentName, Vec<u8>>,
}

/// Clocks of the coordinator, read at the same time.
#[derive(Clone, Copy, Debug)]
pub struct ClockPair {
    pub monotonic_ns: u64,
    /// Wall clock, in ns since 1970.
    pub wall_ns: u64,
}

impl ClockPair {
    fn to_wall(self, monotonic_ns: u64) -> u64 {
        let after_ns = i128::from(monotonic_ns) - i128::from(self.monotonic_ns);
        u64::try_from(i128::from(self.wall_ns) + after_ns).unwrap_or(0)
    }
}

/// Merges the records of a run.
///
/// # Errors
/// There is no record, or the records do not belong together.
pub fn merge(
    run: &RunId,
    members: Vec<MemberRecord>,
    plan: serde_json::Value,
    clocks: ClockPair,
) -> Result<Run, MergeError> {
    let fleet = fleet(run, &members);
    let runs: Vec<Run> = members
        .into_iter()
        .filter_map(|member| {
            let mut record = member.run?;
            record
                .observed
                .iter_mut()
                .for_each(|observation| observation.host = member.result.name.to_string());
            // The agent's wall clock may be wrong; its start is known by the coordinator's clock.
            if let (Some(start_ns), [identity]) = (member.result.start_ns, record.identities.as_mut_slice()) {
                identity.start_unix_ns = clocks.to_wall(start_ns);
                record.started_at = record::file::format_wall_clock(identity.start_unix_ns);
            }
            Some(record)
        })
        .collect();
    let mut merged = merge_fleet(&runs, fleet, plan)?;
    merged.withdraw_shared_cpus();
    Ok(merged)
}

/// Adds the observation of another machine to a merged run. `starts`: those of the observation and of the load, by
/// the coordinator's clock, in ns.
pub fn add_observation(
    run: &mut Run,
    machine: &str,
    mut observed: MachineObservation,
    (observed_ns, load_ns): (u64, u64),
) {
    observed.shift_times((observed_ns as f64 - load_ns as f64) / 1e9);
    machine.clone_into(&mut observed.host);
    run.started_at.clone_into(&mut observed.started_at);
    run.observed.push(observed);
    run.withdraw_shared_cpus();
}

fn fleet(run: &RunId, members: &[MemberRecord]) -> Fleet {
    let has_record = |member: &&MemberRecord| member.run.is_some();
    let starts: Vec<u64> =
        members.iter().filter(has_record).filter_map(|member| member.result.start_ns).collect();
    let first_ns = starts.iter().copied().min().unwrap_or(0);
    let last_ns = starts.iter().copied().max().unwrap_or(0);
    let mut errors: Vec<u64> =
        members.iter().filter(has_record).map(|member| member.result.clock.error_ns).collect();
    errors.sort_unstable_by(|a, b| b.cmp(a));
    let agents = members.iter().map(|member| AgentRow {
        name: member.result.name.to_string(),
        outcome: member.result.outcome.filter(|_| member.run.is_some()).unwrap_or(AgentOutcome::Lost),
        problem: member.result.problems.join("; "),
        load_fraction: member.result.fraction,
        clock: AgentClock {
            error_ns: member.result.clock.error_ns,
            wall_offset_ns: member.result.wall_offset_ns,
            round_trips: member.result.round_trips,
            synchronized: member.clock_synchronized,
        },
        start_after_ns: member.result.start_ns.map(|start_ns| start_ns.saturating_sub(first_ns)),
        figures: member.run.as_ref().map(Run::agent_figures),
    });
    Fleet {
        run: run.to_string(),
        agents: agents.collect(),
        start_skew_ns: last_ns - first_ns,
        // Two clocks are compared, so that both errors count.
        start_skew_error_ns: errors.iter().take(2).filter(|_| starts.len() > 1).sum(),
        merge_ns: 0,
    }
}
