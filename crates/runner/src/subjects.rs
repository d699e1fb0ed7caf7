//! Processes under load on this machine.

use load::plan::RunPlan;
use record::problem::InputProblem;

/// Processes under load on this machine, or the reason why they are unknown. If they are unknown,
/// their CPU time cannot be separated from that of other processes.
pub type Subjects = Result<Vec<i32>, host::NotObservable>;

/// Returns the local processes that listen on the target address; none when the load goes
/// elsewhere.
///
/// # Errors
/// The listeners of this machine cannot be read.
pub fn find_subjects(plan: &RunPlan) -> Subjects {
    if let Some(path) = &plan.unix {
        return host::sockets::find_unix_listeners(path);
    }
    let mut pids = Vec::new();
    for authority in plan.authorities() {
        for address in plan.addresses_of(authority).unwrap_or_default() {
            if let rt::address::Address::Tcp(address) = address {
                pids.extend(host::sockets::find_listeners(address)?);
            }
        }
    }
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

/// Returns the processes that the user named; each must exist.
///
/// # Errors
/// One problem for each process that does not exist.
pub fn check_subject_pids(pids: &[i32]) -> Result<Vec<i32>, Vec<InputProblem>> {
    let absent = pids.iter().filter(|pid| host::process::thread_ids(**pid).is_err());
    let problems: Vec<InputProblem> = absent
        .map(|pid| InputProblem::new("--subject", format!("no process {pid} on this machine")))
        .collect();
    if problems.is_empty() { Ok(pids.to_vec()) } else { Err(problems) }
}
