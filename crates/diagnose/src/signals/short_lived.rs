//! CPU time of processes that requests start and that end before an observation finds them, such as those of CGI. The
//! kernel adds it to their parent only if the parent waits for them, and divides it by ticks of which they see none.

use crate::figures as f;
use crate::run_view::RunView;
use crate::window::SUBJECT;

/// Minimum number of new tasks of the machine per response, if requests start them.
const FORKS_PER_RESPONSE_MIN: f64 = 0.5;
/// Maximum CPU time of such a process, in seconds: longer ones are seen.
const CPU_TIME_MAX_S: f64 = 0.1;
/// Minimum number of CPUs that matters.
const CPUS_MIN: f64 = 0.1;

/// Returns the CPUs that short-lived processes of the subject used, which no process has in its account; `None` if
/// there are none.
pub(crate) fn short_lived_cpus(view: &RunView<'_>) -> Option<f64> {
    let forks_per_s = forks_by_requests_per_s(view)?;
    let unowned_cpus = view.foreign_median(SUBJECT, |_, foreign| Some(foreign))?;
    (unowned_cpus >= CPUS_MIN && unowned_cpus <= CPU_TIME_MAX_S * forks_per_s).then_some(unowned_cpus)
}

/// Returns the processes and threads that the machine starts, if requests start processes of the subject: new ones
/// are seen in most samples, and there are enough for the requests.
fn forks_by_requests_per_s(view: &RunView<'_>) -> Option<f64> {
    let seen = view.role_median(SUBJECT, |role| Some(f64::from(role.processes_started)))?;
    let forks_per_s = view.sample_median(SUBJECT, |sample| sample.forks_per_s)?;
    let is_by_requests = forks_per_s >= FORKS_PER_RESPONSE_MIN * view.run.rates.responses_per_s;
    (seen >= 1.0 && is_by_requests).then_some(forks_per_s)
}

/// Returns the kernel's part of the subject's CPU time; of the machine's, if its processes live for less than the
/// ticks by which the kernel divides the time of a process.
pub(super) fn system_fraction(view: &RunView<'_>) -> Option<f64> {
    match forks_by_requests_per_s(view) {
        Some(_) => machine_system_fraction(view),
        None => view.role_median(SUBJECT, f::SYSTEM_FRACTION.read),
    }
}

/// Returns the part of user space in the subject's CPU time; see [`system_fraction`].
pub(super) fn user_fraction(view: &RunView<'_>) -> Option<f64> {
    match forks_by_requests_per_s(view) {
        Some(_) => machine_system_fraction(view).map(|system| 1.0 - system),
        None => view.role_median(SUBJECT, f::USER_FRACTION.read),
    }
}

fn machine_system_fraction(view: &RunView<'_>) -> Option<f64> {
    view.sample_median(SUBJECT, |sample| {
        let system: f64 = sample.cpus.iter().map(|cpu| cpu.system).sum();
        let user: f64 = sample.cpus.iter().map(|cpu| cpu.user).sum();
        (system + user > 0.0).then(|| system / (system + user))
    })
}
