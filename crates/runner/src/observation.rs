//! Observes the machine while a load runs, and puts the findings into its record: processes,
//! sockets, links, functions, calls. The lab interprets them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use host::NotObservable;
use host::observe::{Monitor, MonitorSpec, RoleSpec, discover_topology_at};
use host::perf::call_counter::{self, CallKind, CountBudget, CountedCalls};
use host::perf::{Profile, Profiler};
use host::process_tree::with_descendants;
use load::plan::RunPlan;
use load::validity::judge_verdict;
use record::observed::{FunctionUse, MachineObservation, UnobservableMetric};
use record::run::Run;
use record::units::SECOND_NS;
use rt::address::Address;
use rt::clock::{now_ns, thread_cpu_ns};

/// Samples per second of the subject's functions. They resolve fractions of a few per cent within
/// seconds, and cost less than a thousandth of its time.
const SAMPLE_FREQUENCY_HZ: u32 = 199;
/// Number of functions that a record keeps per role.
const FUNCTIONS_MAX: usize = 60;
/// Name of the sum of the others of a module.
const OTHER_FUNCTIONS: &str = "[other functions]";
/// Minimum length of a run in which calls are counted; a shorter one has no time for it.
const CALL_COUNT_RUN_NS_MIN: u64 = 3 * SECOND_NS;
/// Tracepoints that are counted, each for a part of the run; they cost a tenth of a microsecond. A
/// probe of the allocator costs ten times that and needs calibration, so only `weir lab profile`
/// has it.
const COUNTED_CALLS: [&str; 2] = ["syscalls", "futex"];
/// Divisor for the part of a run in which calls are counted: a quarter, for all kinds together.
const CALL_COUNT_DIVISOR: u64 = 4;
const CALL_COUNT_NS_MAX: u64 = SECOND_NS;

/// Collectors beside a running load.
#[derive(Debug)]
pub struct Observation {
    monitor: Monitor,
    subjects: Vec<RoleSpec>,
    missing: Vec<NotObservable>,
    started_ns: u64,
    length_ns: u64,
    probe: Option<Probe>,
}

/// A thread that samples the subject while it works.
#[derive(Debug)]
struct Probe {
    /// Dropped to end the thread.
    stop: Sender<()>,
    thread: JoinHandle<ProbeResult>,
}

#[derive(Debug, Default)]
struct ProbeResult {
    profiles: Vec<(String, Profile)>,
    call_counts: Vec<CountedCalls>,
    missing: Vec<NotObservable>,
    /// CPU time of its threads while the load ran.
    cost_ns: u64,
    /// CPU time afterwards, for resolving the names of functions.
    symbolizing_ns: u64,
}

impl Observation {
    /// Starts to observe the generator, the listener at the plan's target (or the subject that was
    /// `named`), and the servers behind it.
    pub fn start(plan: &RunPlan, named: &[i32]) -> Self {
        let mut topology = discover_topology_at(&tcp_targets(plan), named);
        if let Some(path) = plan.unix.as_ref().filter(|_| named.is_empty())
            && let Ok(pids) = host::sockets::find_unix_listeners(path)
            && !pids.is_empty()
        {
            // Its processes can be watched; the queues of a unix socket cannot.
            topology.roles.push(RoleSpec { role: host::observe::SUBJECT.to_owned(), pids });
        }
        let subjects = topology.roles.iter().filter(|role| role.role == host::observe::SUBJECT);
        Self {
            subjects: subjects.cloned().collect(),
            missing: topology.not_observable,
            started_ns: now_ns(),
            length_ns: plan.end.duration_ns,
            probe: None,
            monitor: Monitor::start(
                MonitorSpec { roles: topology.roles, ports: topology.ports, ..MonitorSpec::default() },
                now_ns,
            ),
        }
    }

    /// Discards earlier observations, such as a baseline's requests, but keeps the origins that
    /// were found.
    pub fn restart(&mut self) {
        self.monitor.restart();
        self.started_ns = now_ns();
    }

    /// Begins the measured window and starts the probe, which costs the subject a little.
    pub fn start_probe(&mut self) {
        if self.subjects.is_empty() {
            return;
        }
        let (stop, stop_receiver) = channel();
        let (subjects, length_ns) = (self.subjects.clone(), self.length_ns);
        let thread = std::thread::Builder::new()
            .name("probe".to_owned())
            .spawn(move || run_probe(&subjects, length_ns, &stop_receiver));
        match thread {
            Ok(thread) => self.probe = Some(Probe { stop, thread }),
            Err(error) => self.missing.push(NotObservable {
                figure: "functions and calls of the subject".to_owned(),
                reason: error.to_string(),
            }),
        }
    }

    /// Returns the complete observation; times count from `origin_ns`. `sampler_ns` is the CPU time
    /// of the sampling for the verdict meanwhile.
    pub fn finish(self, origin_ns: u64, started_at: String, sampler_ns: u64) -> MachineObservation {
        let elapsed_ns = now_ns().saturating_sub(self.started_ns);
        let mut observed = self.monitor.finish(origin_ns);
        observed.started_at = started_at;
        let mut missing = self.missing;
        let probed = self.probe.map(|probe| {
            drop(probe.stop);
            // A failed probe has no findings.
            probe.thread.join().unwrap_or_default()
        });
        add_cost(&mut observed, elapsed_ns, sampler_ns, probed.as_ref());
        if let Some(probed) = probed {
            for (role, profile) in &probed.profiles {
                observed.function_bases.insert(role.clone(), sample_kind(profile).to_owned());
                if profile.threads_only {
                    // The samples contain the CPU time of threads; no verdict may take it for
                    // functions.
                    let why = profile.notes.first().cloned().unwrap_or_default();
                    let what = format!("functions of the {role}");
                    missing.push(NotObservable { figure: what, reason: why });
                    continue;
                }
                observed.functions.extend(keep_largest(profile.functions(role)));
            }
            observed.calls = probed.call_counts.into_iter().map(|counted| counted.call).collect();
            for call in &mut observed.calls {
                call.from_s -= origin_ns as f64 / 1e9;
            }
            missing.extend(probed.missing);
        }
        let unobservable = missing
            .into_iter()
            .map(|metric| UnobservableMetric { figure: metric.figure, reason: metric.reason });
        observed.not_observable.extend(unobservable);
        observed
    }
}

/// Keeps the largest functions of a role, and one row per module for the sum of its others: a library
/// may spend half of its time in hundreds of small ones.
fn keep_largest(mut functions: Vec<FunctionUse>) -> Vec<FunctionUse> {
    let others = functions.split_off(functions.len().min(FUNCTIONS_MAX));
    let mut modules: BTreeMap<String, FunctionUse> = BTreeMap::new();
    for function in others {
        let FunctionUse { role, module, self_fraction, .. } = function;
        let sum = modules.entry(module.clone()).or_insert_with(|| FunctionUse {
            role,
            function: OTHER_FUNCTIONS.to_owned(),
            module,
            ..FunctionUse::default()
        });
        sum.self_fraction += self_fraction;
        sum.total_fraction += self_fraction;
    }
    functions.extend(modules.into_values().filter(|sum| sum.self_fraction > 0.0));
    functions
}

/// Names the kind of samples that the fractions of a profile refer to.
fn sample_kind(profile: &Profile) -> &'static str {
    match (profile.threads_only, profile.has_kernel) {
        (true, _) => "thread times",
        (false, true) => "all samples",
        (false, false) => "user space samples",
    }
}

/// Adds the CPU time of the sampler and the probe, spent within `elapsed_ns`.
fn add_cost(
    observed: &mut MachineObservation,
    elapsed_ns: u64,
    sampler_ns: u64,
    probed: Option<&ProbeResult>,
) {
    let used_ns = sampler_ns + probed.map_or(0, |probed| probed.cost_ns);
    observed.cost_cpus += used_ns as f64 / elapsed_ns.max(1) as f64;
    observed.cost_after_s = probed.map(|probed| probed.symbolizing_ns as f64 / 1e9);
}

/// Returns the addresses that the plan connects to; a unix socket has no port to sample.
fn tcp_targets(plan: &RunPlan) -> Vec<SocketAddr> {
    if plan.unix.is_some() {
        return Vec::new();
    }
    let addresses = plan.authorities().into_iter().filter_map(|authority| plan.addresses_of(authority).ok());
    addresses
        .flatten()
        .filter_map(|address| match address {
            Address::Tcp(address) => Some(address),
            _ => None,
        })
        .collect()
}

/// Samples functions until it is stopped, and meanwhile counts calls of the subjects and their
/// current children. The profiler also follows later children.
fn run_probe(subjects: &[RoleSpec], length_ns: u64, stop_receiver: &Receiver<()>) -> ProbeResult {
    let process_trees = subjects.iter().map(|role| (&role.role, with_descendants(&role.pids)));
    let process_trees: Vec<(&String, Vec<i32>)> = process_trees.collect();
    let mut probed = ProbeResult::default();
    let mut running = Vec::new();
    for (role, pids) in &process_trees {
        match Profiler::start(pids, SAMPLE_FREQUENCY_HZ, now_ns) {
            Ok(profiler) => running.push(((*role).clone(), profiler)),
            Err(missing) => probed.missing.push(missing),
        }
    }
    if length_ns >= CALL_COUNT_RUN_NS_MIN {
        let each_ns = length_ns / CALL_COUNT_DIVISOR / COUNTED_CALLS.len() as u64;
        let budget = CountBudget { length_ns: each_ns.min(CALL_COUNT_NS_MAX), ..CountBudget::default() };
        let calls_by_name = COUNTED_CALLS.iter().filter_map(|word| CallKind::parse(word).ok());
        let calls: Vec<CallKind> = calls_by_name.collect();
        for (role, pids) in &process_trees {
            for call in &calls {
                if stop_receiver.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected) {
                    break;
                }
                let kinds = std::slice::from_ref(call);
                let (counted, missing) = call_counter::count_calls(role, pids, kinds, budget, now_ns, 0);
                probed.call_counts.extend(counted);
                probed.missing.extend(missing);
            }
        }
    }
    // Returns when the other side is dropped. The timeout bounds the wait even then.
    let _ = stop_receiver.recv_timeout(Duration::from_nanos(length_ns.saturating_mul(2)));
    let sampling_ns = thread_cpu_ns();
    let done = running.into_iter().map(|(role, profiler)| (role, profiler.stop()));
    probed.profiles = done.collect();
    let reading_s: f64 = probed.profiles.iter().map(|(_, profile)| profile.sampling_cpu_s).sum();
    probed.cost_ns = sampling_ns + (reading_s * 1e9) as u64;
    probed.symbolizing_ns = thread_cpu_ns().saturating_sub(sampling_ns);
    probed
}

/// Puts the observation and its diagnosis into the record.
pub fn diagnose(run: &mut Run, observed: MachineObservation) {
    run.observed = vec![observed];
    run.diagnosis = Some(diagnose::diagnose(run));
    judge_verdict(run);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    #[test]
    fn the_sum_of_small_functions_is_kept_for_each_module() {
        let function = |index: usize| FunctionUse {
            role: "subject".to_owned(),
            function: format!("f{index}"),
            module: if index.is_multiple_of(2) { "libcrypto.so.3" } else { "nginx" }.to_owned(),
            self_fraction: 0.01,
            total_fraction: 0.5,
        };
        let kept = keep_largest((0..FUNCTIONS_MAX + 30).map(function).collect());
        assert_eq!(kept.len(), FUNCTIONS_MAX + 2);
        let sum = &kept[FUNCTIONS_MAX];
        assert_eq!(
            (&*sum.function, &*sum.module, &*sum.role),
            (OTHER_FUNCTIONS, "libcrypto.so.3", "subject")
        );
        assert!((sum.self_fraction - 0.15).abs() < 1e-9 && (sum.total_fraction - 0.15).abs() < 1e-9);
        assert_eq!(keep_largest((0..3).map(function).collect()).len(), 3);
    }

    #[test]
    fn the_cost_includes_every_observing_thread() {
        let mut observed = MachineObservation { cost_cpus: 0.004, ..MachineObservation::default() };
        let probed = ProbeResult { cost_ns: 6, symbolizing_ns: 500_000_000, ..ProbeResult::default() };
        add_cost(&mut observed, 1000, 2, Some(&probed));
        assert!((observed.cost_cpus - 0.012).abs() < 1e-12);
        assert_eq!(observed.cost_after_s, Some(0.5));
        add_cost(&mut observed, 0, 0, None);
        assert_eq!(observed.cost_after_s, None);
    }

    #[test]
    fn the_children_of_a_subject_are_profiled() {
        // The shell ends by itself if this test ends before it.
        let mut shell = Command::new("sh")
            .args(["-c", "(ulimit -t 60; while :; do :; done) & echo ready; wait"])
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut line = [0; 6];
        shell.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
        let pid = i32::try_from(shell.id()).unwrap();
        let subject = RoleSpec { role: host::observe::SUBJECT.to_owned(), pids: vec![pid] };
        let run_probe_for = |length: Duration| {
            let (subject, (stop, stop_receiver)) = (subject.clone(), channel());
            let probe_thread = std::thread::spawn(move || run_probe(&[subject], SECOND_NS, &stop_receiver));
            std::thread::sleep(length);
            drop(stop);
            probe_thread.join().unwrap()
        };
        // On a busy machine it may begin too late for a sample.
        let mut probed = ProbeResult::default();
        for length_ms in [500, 1000, 2000] {
            probed = run_probe_for(Duration::from_millis(length_ms));
            if probed.profiles.iter().all(|(_, profile)| profile.samples > 0) {
                break;
            }
        }
        let group = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
        shell.wait().unwrap();
        let Some((role, profile)) = probed.profiles.first() else {
            return test_needs::skip(test_needs::PERF, format!("{:?}", probed.missing));
        };
        assert_eq!((role.as_str(), profile.pids.len()), (host::observe::SUBJECT, 2));
        // The shell that was named only waits.
        assert!(profile.samples > 0, "{profile:?}");
        assert!(probed.cost_ns > 0);
    }
}
