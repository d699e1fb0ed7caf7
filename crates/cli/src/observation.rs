//! Looks at the machine while a load runs, and puts what was seen into its record: programs, sockets,
//! links, functions, calls. What it means is the lab's to say.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use host::NotObservable;
use host::family::with_descendants;
use host::observe::{Spec, Watched, Watching, chain_at};
use host::perf::calls::{self, Budget, Call, Counted};
use host::perf::{Profile, Profiler};
use load::plan::Plan;
use record::observed::{Missing, Observed};
use record::run::Run;
use record::units::SECOND_NS;
use rt::address::Address;
use rt::clock::{now_ns, thread_cpu_ns};

/// Samples per second of the subject's functions: enough for shares of a few per cent in seconds, and
/// less than a thousandth of its time.
const FREQUENCY: u32 = 199;
/// Functions that a record keeps of a role.
const FUNCTIONS_KEPT: usize = 60;
/// Runs that are shorter than this have no calls counted: there is no time for it.
const COUNTED_MIN_NS: u64 = 3 * SECOND_NS;
/// What is counted, each for a part of the run: tracepoints, which cost a tenth of a microsecond. A probe
/// of the allocator costs ten times that and has to be calibrated, so it is for `weir lab profile`.
const CALLS: [&str; 2] = ["syscalls", "futex"];
/// The part of a run in which calls are counted, all kinds together: a quarter.
const COUNTED_PART: u64 = 4;
/// And this at the most, for each kind.
const COUNTED_MAX_NS: u64 = SECOND_NS;

/// What stands beside a running load.
#[derive(Debug)]
pub(crate) struct Observation {
    watching: Watching,
    subjects: Vec<Watched>,
    missing: Vec<NotObservable>,
    started_ns: u64,
    length_ns: u64,
    probe: Option<Probe>,
}

/// A thread that looks into the subject while it works.
#[derive(Debug)]
struct Probe {
    /// Dropped to end it.
    stop: Sender<()>,
    thread: JoinHandle<Probed>,
}

/// What it found.
#[derive(Debug, Default)]
struct Probed {
    /// By role.
    profiles: Vec<(String, Profile)>,
    counted: Vec<Counted>,
    missing: Vec<NotObservable>,
    /// Processor time of its threads while the load ran.
    cost_ns: u64,
    /// And afterwards, for the names of functions.
    naming_ns: u64,
}

impl Observation {
    /// Starts to watch the generator, who listens where the plan goes to (or the subject that was
    /// `named`), and who stands behind that.
    pub(crate) fn start(plan: &Plan, named: &[i32]) -> Self {
        let mut chain = chain_at(&targets(plan), named);
        if let Some(path) = plan.unix.as_ref().filter(|_| named.is_empty())
            && let Ok(pids) = host::sockets::listeners_of_unix(path)
            && !pids.is_empty()
        {
            // Its processes can be watched; a unix socket's queues cannot.
            chain.roles.push(Watched { role: host::observe::SUBJECT.to_owned(), pids });
        }
        let subjects = chain.roles.iter().filter(|role| role.role == host::observe::SUBJECT);
        Self {
            subjects: subjects.cloned().collect(),
            missing: chain.not_observable,
            started_ns: now_ns(),
            length_ns: plan.end.duration_ns,
            probe: None,
            watching: Watching::start(
                Spec { roles: chain.roles, ports: chain.ports, ..Spec::default() },
                now_ns,
            ),
        }
    }

    /// The measured window begins: what costs the subject a little is done in it.
    pub(crate) fn window_begins(&mut self) {
        if self.subjects.is_empty() {
            return;
        }
        let (stop, stopped) = channel();
        let (subjects, length_ns) = (self.subjects.clone(), self.length_ns);
        let thread = std::thread::Builder::new()
            .name("probe".to_owned())
            .spawn(move || probe(&subjects, length_ns, &stopped));
        match thread {
            Ok(thread) => self.probe = Some(Probe { stop, thread }),
            Err(error) => self.missing.push(NotObservable {
                what: "functions and calls of the subject".to_owned(),
                why: error.to_string(),
            }),
        }
    }

    /// Everything that was seen; times count from `zero_ns`. `sampler_ns` is the processor time that
    /// looking for the verdict took meanwhile.
    pub(crate) fn finish(self, zero_ns: u64, started_at: String, sampler_ns: u64) -> Observed {
        let passed_ns = now_ns().saturating_sub(self.started_ns);
        let mut observed = self.watching.finish(zero_ns);
        observed.started_at = started_at;
        let mut missing = self.missing;
        let probed = self.probe.map(|probe| {
            drop(probe.stop);
            // A probe that failed has found nothing.
            probe.thread.join().unwrap_or_default()
        });
        add_cost(&mut observed, passed_ns, sampler_ns, probed.as_ref());
        if let Some(probed) = probed {
            for (role, profile) in &probed.profiles {
                observed.functions_of.insert(role.clone(), functions_of(profile).to_owned());
                if profile.threads_only {
                    // What threads used stands in the samples; no verdict may take it for functions.
                    let why = profile.notes.first().cloned().unwrap_or_default();
                    let what = format!("functions of the {role}");
                    missing.push(NotObservable { what, why });
                    continue;
                }
                let mut functions = profile.functions(role);
                functions.truncate(FUNCTIONS_KEPT);
                observed.functions.extend(functions);
            }
            observed.calls = probed.counted.into_iter().map(|counted| counted.call).collect();
            for call in &mut observed.calls {
                call.from_s -= zero_ns as f64 / 1e9;
            }
            missing.extend(probed.missing);
        }
        let told = missing.into_iter().map(|one| Missing { what: one.what, why: one.why });
        observed.not_observable.extend(told);
        observed
    }
}

/// What the shares of a profile are shares of.
fn functions_of(profile: &Profile) -> &'static str {
    match (profile.threads_only, profile.has_kernel) {
        (true, _) => "thread times",
        (false, true) => "all samples",
        (false, false) => "user space samples",
    }
}

/// Adds what others than the observer took meanwhile, in `passed_ns`.
fn add_cost(observed: &mut Observed, passed_ns: u64, sampler_ns: u64, probed: Option<&Probed>) {
    let used_ns = sampler_ns + probed.map_or(0, |probed| probed.cost_ns);
    observed.cost_cpus += used_ns as f64 / passed_ns.max(1) as f64;
    observed.cost_after_s = probed.map(|probed| probed.naming_ns as f64 / 1e9);
}

/// The addresses that the plan connects to; a unix socket has no port to look at.
fn targets(plan: &Plan) -> Vec<SocketAddr> {
    if plan.unix.is_some() {
        return Vec::new();
    }
    let addresses = plan.authorities().into_iter().filter_map(|authority| authority.resolve().ok());
    addresses
        .filter_map(|address| match address {
            Address::Tcp(address) => Some(address),
            _ => None,
        })
        .collect()
}

/// Samples functions until it is told to stop, and counts calls meanwhile: of the subjects and of the
/// children that they have. The profiler follows children that come later, too.
fn probe(subjects: &[Watched], length_ns: u64, stopped: &Receiver<()>) -> Probed {
    let families = subjects.iter().map(|role| (&role.role, with_descendants(&role.pids)));
    let families: Vec<(&String, Vec<i32>)> = families.collect();
    let mut probed = Probed::default();
    let mut running = Vec::new();
    for (role, pids) in &families {
        match Profiler::start(pids, FREQUENCY, now_ns) {
            Ok(profiler) => running.push(((*role).clone(), profiler)),
            Err(missing) => probed.missing.push(missing),
        }
    }
    if length_ns >= COUNTED_MIN_NS {
        let each_ns = length_ns / COUNTED_PART / CALLS.len() as u64;
        let budget = Budget { length_ns: each_ns.min(COUNTED_MAX_NS), ..Budget::default() };
        let words = CALLS.iter().filter_map(|word| Call::parse(word).ok());
        let calls: Vec<Call> = words.collect();
        for (role, pids) in &families {
            for call in &calls {
                if stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected) {
                    break;
                }
                let one = std::slice::from_ref(call);
                let (counted, missing) = calls::count(role, pids, one, budget, now_ns, 0);
                probed.counted.extend(counted);
                probed.missing.extend(missing);
            }
        }
    }
    // Ends when the other side is dropped; the run has an end, and so has this.
    let _ = stopped.recv_timeout(Duration::from_nanos(length_ns.saturating_mul(2)));
    let own_ns = thread_cpu_ns();
    let done = running.into_iter().map(|(role, profiler)| (role, profiler.stop()));
    probed.profiles = done.collect();
    let reading_s: f64 = probed.profiles.iter().map(|(_, profile)| profile.reading_s).sum();
    probed.cost_ns = own_ns + (reading_s * 1e9) as u64;
    probed.naming_ns = thread_cpu_ns().saturating_sub(own_ns);
    probed
}

/// Puts what was seen, and what it means, into the record.
pub(crate) fn diagnose(run: &mut Run, observed: Observed) {
    run.observed = vec![observed];
    run.diagnosis = Some(lab::diagnosis::diagnose(run));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    #[test]
    fn every_thread_that_watches_costs() {
        let mut observed = Observed { cost_cpus: 0.004, ..Observed::default() };
        let probed = Probed { cost_ns: 6, naming_ns: 500_000_000, ..Probed::default() };
        add_cost(&mut observed, 1000, 2, Some(&probed));
        assert!((observed.cost_cpus - 0.012).abs() < 1e-12);
        assert_eq!(observed.cost_after_s, Some(0.5));
        add_cost(&mut observed, 0, 0, None);
        assert_eq!(observed.cost_after_s, None);
    }

    #[test]
    fn the_children_of_a_subject_are_looked_into() {
        // It ends by itself where this test ends before it.
        let mut shell = Command::new("sh")
            .args(["-c", "(ulimit -t 60; while :; do :; done) & echo ready; wait"])
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut line = [0; 6];
        shell.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
        let pid = i32::try_from(shell.id()).unwrap();
        let subject = Watched { role: host::observe::SUBJECT.to_owned(), pids: vec![pid] };
        let look_for = |length: Duration| {
            let (subject, (stop, stopped)) = (subject.clone(), channel());
            let looking = std::thread::spawn(move || probe(&[subject], SECOND_NS, &stopped));
            std::thread::sleep(length);
            drop(stop);
            looking.join().unwrap()
        };
        // Where the machine is so busy that it begins late, there may be no time for a sample.
        let mut probed = Probed::default();
        for length_ms in [500, 1000, 2000] {
            probed = look_for(Duration::from_millis(length_ms));
            if probed.profiles.iter().all(|(_, profile)| profile.samples > 0) {
                break;
            }
        }
        let group = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
        shell.wait().unwrap();
        let Some((role, profile)) = probed.profiles.first() else {
            return println!("skipped: {:?}", probed.missing);
        };
        assert_eq!((role.as_str(), profile.pids.len()), (host::observe::SUBJECT, 2));
        // The shell that was named only waits.
        assert!(profile.samples > 0, "{profile:?}");
        assert!(probed.cost_ns > 0);
    }
}
