//! Record of a finished load: the measurement, the host, the calibration and the verdict.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use host::facts::HostFacts;
use load::calibrate::{Calibration, LoadProfile, find_nearest};
use load::control::RateControl;
use load::measurement::RunMeasurement;
use load::plan::RunPlan;
use load::report::{RecordContext, build_record};
use load::validity::{Evidence, HostEvidence, judge};
use record::facts::{HostFacts as RecordedHost, HostLimits};
use record::observed::MachineObservation;
use record::run::{CalibratedCapacity, Run, RunIdentity, WeirVersion};

use crate::store;
use crate::subjects::Subjects;
use crate::watcher::{self, HostWatch};

/// Version of weir, and the command line: what a record says about its origin.
#[derive(Clone, Debug)]
pub struct CommandIdentity {
    pub weir: WeirVersion,
    pub command: Vec<String>,
}

pub struct LoadJob<'a> {
    pub identity: &'a CommandIdentity,
    pub plan: RunPlan,
    /// Processes under load.
    pub subjects: Subjects,
    /// Reason why source ports are tight, if they are.
    pub scarce_ports: Option<String>,
    /// Calibration that was just made for this run; `None` takes the nearest stored one.
    pub calibration: Option<Calibration>,
    /// Rate, which the user may change.
    pub control: Arc<RateControl>,
}

pub fn build_run(
    job: &LoadJob<'_>,
    measured: &RunMeasurement,
    watch: &HostWatch,
    observed: Option<&MachineObservation>,
    started_at: String,
) -> Run {
    let facts = host::facts::read();
    let window = watch.window();
    let mut cpu = watcher::cpu_record(window.as_ref());
    let mut not_observable = watch.not_observable();
    if let Err(unknown) = &job.subjects {
        not_observable.push(unknown.to_string());
        cpu.subject_cpus = None;
        cpu.foreign_cpus = None;
    } else if let Some(observed) = observed {
        watcher::apply_role_cpus(&mut cpu, observed, measured);
    }
    if measured.plan.xdp.is_some() {
        not_observable.push(
            "connections of TCP in user space: ss, nstat, tcpdump and conntrack see none of them; `transport` has \
             their counts"
                .to_owned(),
        );
    }
    let run_queue_wait_fraction = watcher::max_run_queue_wait(window.as_ref());
    let stored = store::load(&facts.fingerprint);
    let calibrated = calibration_use(job.calibration.as_ref(), &stored, measured);
    let busiest = cpu.per_core.iter().copied().reduce(f64::max);
    let host = HostEvidence {
        // A thread that spins is always busy, which does not show its spare capacity.
        busiest_thread_fraction: busiest.filter(|_| !measured.plan.spin),
        run_queue_wait_fraction,
        cpus: facts.cpus_online,
        foreign_cpus: cpu.foreign_cpus,
        steal_fraction: cpu.steal_fraction,
        scarce_ports: job.scarce_ports.clone(),
        calibrated_fraction: calibrated.as_ref().map(|calibrated| calibrated.used_fraction),
    };
    let context = RecordContext {
        weir: job.identity.weir.clone(),
        command: job.identity.command.clone(),
        started_at,
        identity: RunIdentity {
            id: random_id(),
            host: facts.hostname.clone(),
            pid: std::process::id(),
            start_unix_ns: watch.start_unix_ns(),
        },
        host: host_record(facts, not_observable),
        validity: judge(&Evidence { measured, host }),
        rate_changes: job.control.changes(),
        cpu,
        run_queue_wait_fraction,
        runnable_thread_fraction: watcher::max_runnable(window.as_ref()),
        calibrated,
    };
    build_record(measured, context)
}

/// Returns 128 random bits; the operating system seeds the hashers of the standard library.
pub fn random_id() -> String {
    let bits = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", bits(), bits())
}

fn calibration_use(
    fresh: Option<&Calibration>,
    stored: &[Calibration],
    measured: &RunMeasurement,
) -> Option<CalibratedCapacity> {
    let response_bytes = measured.counters.bytes_in / measured.counters.responses.max(1);
    let profile = LoadProfile::from_plan(&measured.plan, response_bytes);
    let calibration = fresh.or_else(|| find_nearest(stored, &profile))?;
    let responses_per_s = calibration.per_core_per_s * measured.plan.threads as f64;
    Some(CalibratedCapacity {
        responses_per_s,
        used_fraction: measured.responses_per_s() / responses_per_s.max(1e-9),
        profile: calibration.profile.to_string(),
    })
}

pub fn host_record(facts: HostFacts, mut not_observable: Vec<String>) -> RecordedHost {
    not_observable.extend(facts.not_observable.iter().map(ToString::to_string));
    RecordedHost {
        kernel: facts.kernel,
        os: facts.os,
        name: Some(facts.hostname),
        cpus: facts.cpus_online.unwrap_or_else(|| rt::cores::available_cpus().len() as u32),
        cpu_model: facts.cpu_model,
        memory_bytes: facts.memory_bytes.unwrap_or(0),
        congestion_control: facts.congestion_control,
        virtualised: facts.virtualised,
        fingerprint: facts.fingerprint,
        limits: HostLimits {
            descriptors: facts.nofile_hard,
            port_range: facts.port_range,
            somaxconn: facts.somaxconn.map(u64::from),
        },
        not_observable,
    }
}
