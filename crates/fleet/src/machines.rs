//! `weir fleet run`: a load with the programs under it, each on its own machine, observed there and diagnosed
//! together with the generators.

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use load::validity::judge_verdict;
use record::fleet::MACHINE_LOST;
use record::observed::MachineObservation;
use record::problem::InputProblem;
use record::run::Run;
use record::units::{SECOND_NS, format_plural};
use record::validity::{Validity, ValidityLevel, ValidityReason};
use record::watch::WatchRecord;
use rt::tokio::sync::watch;
use runner::failure::Failure;
use runner::run_record::random_id;

use crate::coordinator::service::{CoordinatorSession, FleetObserver, FleetRecords};
use crate::coordinator::{FleetPlan, LossPolicy, MemberPlan, MemberResult};
use crate::message::{AgentCommand, AgentFacts, Job, RunId, encode};
use crate::plan_file::MachinePlan;
use crate::result::add_observation;
use crate::role::command_of;
use crate::session::connect;
use crate::transport::{NatsOptions, TransportError};

/// Maximum time for the start of all programs.
const PREPARE_NS: u64 = 30 * SECOND_NS;
/// Maximum time of a load besides its duration: its preparation, and its records.
const MARGIN_NS: u64 = 300 * SECOND_NS;
/// Maximum time for the observations after the end.
const COLLECT_NS: u64 = 15 * SECOND_NS;
/// Maximum wait for the end of all programs; with the server, their agents answer at once.
const FINISH_NS: u64 = COLLECT_NS + 5 * SECOND_NS;
/// Number of requests to end after which nothing is waited for.
const NO_WAIT_SIGNALS: u32 = 3;
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum time for the search of agents; it ends as soon as each machine has one.
const SEARCH_TIME: Duration = Duration::from_secs(3);

/// Returns the arguments of `weir fleet role` for a machine.
pub fn job_arguments(machine: &MachinePlan, duration_ns: u64) -> Vec<String> {
    let own = [format!("--as={}", machine.role), format!("--duration={}s", duration_ns.div_ceil(SECOND_NS))];
    let command = command_of(machine.allows).to_owned();
    own.into_iter().chain(["--".to_owned(), command]).chain(machine.arguments.iter().cloned()).collect()
}

/// Programs around a load.
pub trait LoadSurroundings {
    /// Gets the number of the user's requests to end, before the start.
    fn follow(&mut self, _: &watch::Receiver<u32>) {}
    /// Starts them before the load, whose maximum duration is given in ns. Returns their description.
    ///
    /// # Errors
    /// They cannot be started.
    fn start(&mut self, load_ns: u64) -> Result<String, Failure>;
    /// Ends them, and adds their observations to the result of the load that started at this time.
    fn finish(&mut self, run: &mut Run, load_start_ns: u64);
}

/// Machines of the programs, around a load.
pub struct Machines {
    machines: Vec<MachinePlan>,
    nats: NatsOptions,
    notice: fn(&str),
    /// Number of the user's requests to end.
    signals: watch::Receiver<u32>,
    running: Option<RunningMachines>,
}

impl Machines {
    /// Creates machines that do not run; `notice` reports changes and problems.
    #[must_use]
    pub fn new(machines: Vec<MachinePlan>, nats: NatsOptions, notice: fn(&str)) -> Self {
        Self { machines, nats, notice, signals: watch::channel(0).1, running: None }
    }
}

struct RunningMachines {
    /// Requests to end them.
    stop: watch::Sender<u32>,
    signals: watch::Receiver<u32>,
    coordinator: Option<JoinHandle<Result<FleetRecords, TransportError>>>,
}

impl RunningMachines {
    /// Waits until all programs have started. Returns false if they have not, or the user ends the run.
    fn wait_for_start(&self, started: &mpsc::Receiver<()>) -> bool {
        loop {
            match started.recv_timeout(POLL_INTERVAL) {
                Ok(()) => return true,
                Err(mpsc::RecvTimeoutError::Disconnected) => return false,
                Err(mpsc::RecvTimeoutError::Timeout) if self.is_stopped() => return false,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn is_stopped(&self) -> bool {
        *self.signals.borrow() > 0
    }

    /// Ends the programs and returns their records; `None` after the first call. Without a server, or after the
    /// third signal, it does not wait: the agents end the programs then.
    fn finish(&mut self) -> Option<Result<FleetRecords, Failure>> {
        let coordinator = self.coordinator.take()?;
        self.stop.send_replace(1);
        let until_ns = rt::clock::now_ns() + FINISH_NS;
        while !coordinator.is_finished() {
            if *self.signals.borrow() >= NO_WAIT_SIGNALS || rt::clock::now_ns() >= until_ns {
                self.stop.send_replace(NO_WAIT_SIGNALS);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        let result = coordinator.join();
        let failed = |why: &str| Failure::CannotRun(format!("the machines: {why}"));
        Some(match result {
            Ok(records) => records.map_err(|error| failed(&error.to_string())),
            Err(_) => Err(failed("their coordinator has failed")),
        })
    }
}

impl Drop for RunningMachines {
    fn drop(&mut self) {
        // A load that failed leaves no program behind.
        self.finish();
    }
}

impl LoadSurroundings for Machines {
    fn follow(&mut self, signals: &watch::Receiver<u32>) {
        self.signals = signals.clone();
    }

    fn start(&mut self, load_ns: u64) -> Result<String, Failure> {
        if self.machines.is_empty() {
            return Ok(String::new());
        }
        let mut session = connect(&self.nats, Some(&self.signals), self.notice)?;
        let agents = find_agents(&mut session, &self.machines)?;
        let plan = fleet_plan(&self.machines, &agents, load_ns.saturating_add(MARGIN_NS))?;
        let (stop, stops) = watch::channel(0);
        let (started_sender, started) = mpsc::channel();
        let notice = self.notice;
        let coordinator = std::thread::Builder::new().name("machines".to_owned()).spawn(move || {
            let mut observer = MachinesObserver { started: Some(started_sender), notice };
            session.run(plan, stops, &mut observer)
        });
        let coordinator = Some(coordinator.map_err(|error| Failure::cannot("the machines", error))?);
        let mut running = RunningMachines { stop, signals: self.signals.clone(), coordinator };
        if !running.wait_for_start(&started) {
            let records = running.finish().transpose()?;
            if running.is_stopped() {
                return Err(Failure::CannotRun("stopped before the start".to_owned()));
            }
            let problems = records.iter().flat_map(|records| &records.results).flat_map(problem_lines);
            let problems: Vec<String> = problems.collect();
            return Err(Failure::CannotRun(format!("the programs did not start: {}", problems.join("; "))));
        }
        self.running = Some(running);
        let lines = self.machines.iter().zip(&agents).map(|(machine, agent)| {
            let program = machine.allows.name();
            format!("machine      {} ({}): {program} on agent {}\n", machine.name, machine.role, agent.name)
        });
        Ok(lines.collect())
    }

    fn finish(&mut self, run: &mut Run, load_start_ns: u64) {
        let Some(records) = self.running.take().and_then(|mut running| running.finish()) else { return };
        let mut lost = Vec::new();
        match records {
            Ok(records) => {
                for (machine, result) in self.machines.iter().zip(&records.results) {
                    problem_lines(result).for_each(|line| (self.notice)(&line));
                    match take_observation(&records, result) {
                        Ok((observed, start_ns)) => {
                            add_observation(run, &machine.name, observed, (start_ns, load_start_ns));
                        }
                        Err(why) => lost.push(format!("machine {}: {why}", machine.name)),
                    }
                }
            }
            // The load was measured: its record is worth more than the reason for the missing observations.
            Err(failure) => lost.extend(failure.lines()),
        }
        mark_lost_machines(run, lost);
        run.diagnosis = Some(diagnose::diagnose(run));
        judge_verdict(run);
        run.answer = Some(diagnose::answer(run));
    }
}

/// Reason why the observation of a machine is lost.
#[derive(Debug, thiserror::Error)]
enum LostObservation {
    #[error("its observation did not arrive")]
    NotArrived,
    #[error("its record cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    #[error("its start is unknown")]
    NoStart,
}

/// Returns the observation of a machine and its start by the coordinator's clock, in ns.
fn take_observation(
    records: &FleetRecords,
    result: &MemberResult,
) -> Result<(MachineObservation, u64), LostObservation> {
    let bytes = records.records.get(&result.name).ok_or(LostObservation::NotArrived)?;
    let record: WatchRecord = serde_json::from_slice(bytes)?;
    let start_ns = result.start_ns.ok_or(LostObservation::NoStart)?;
    Ok((record.observed, start_ns))
}

/// Marks a result that lacks observations.
fn mark_lost_machines(run: &mut Run, lost: Vec<String>) {
    let mut reasons = std::mem::take(&mut run.validity.reasons);
    reasons.extend(lost.into_iter().map(|text| ValidityReason {
        code: MACHINE_LOST.to_owned(),
        verdict: ValidityLevel::Suspect,
        text,
    }));
    run.validity = Validity::from_reasons(reasons);
}

fn problem_lines(result: &MemberResult) -> impl Iterator<Item = String> {
    result.problems.iter().map(|problem| format!("agent {}: {problem}", result.name))
}

fn find_agents(
    session: &mut CoordinatorSession,
    machines: &[MachinePlan],
) -> Result<Vec<AgentFacts>, Failure> {
    let is_enough = |known: &[AgentFacts]| select_agents(machines, known).is_ok();
    let known = session.find_agents(SEARCH_TIME, &is_enough);
    let known: Vec<AgentFacts> = known.into_iter().map(|agent| agent.facts).collect();
    select_agents(machines, &known).map_err(|problems| {
        Failure::CannotRun(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    })
}

/// Selects one agent for each machine, none of them twice.
fn select_agents(
    machines: &[MachinePlan],
    known: &[AgentFacts],
) -> Result<Vec<AgentFacts>, Vec<InputProblem>> {
    let (mut selected, mut names, mut problems) = (Vec::new(), BTreeSet::new(), Vec::new());
    for machine in machines {
        let reason = match machine.agent.select(machine.allows, known) {
            Ok(agents) => match <[AgentFacts; 1]>::try_from(agents) {
                Ok([agent]) if names.insert(agent.name.clone()) => {
                    selected.push(agent);
                    continue;
                }
                Ok([agent]) => {
                    format!("agent {} has another machine's program: one agent has one", agent.name)
                }
                Err(agents) => {
                    let count = format_plural(agents.len() as u64, "agent");
                    format!("{count} match; add labels, or name=NAME")
                }
            },
            Err(why) => why.to_string(),
        };
        problems.push(InputProblem::new(format!("{}: [machine.{}]", machine.position, machine.name), reason));
    }
    if problems.is_empty() { Ok(selected) } else { Err(problems) }
}

fn fleet_plan(
    machines: &[MachinePlan],
    agents: &[AgentFacts],
    duration_ns: u64,
) -> Result<FleetPlan, Failure> {
    // Invariant: hexadecimal digits are a name.
    let run = RunId::from_host(&random_id());
    let members = machines.iter().zip(agents).map(|(machine, agent)| MemberPlan {
        name: agent.name.clone(),
        instance: agent.instance.clone(),
        job: Job { role: machine.allows, arguments: job_arguments(machine, duration_ns), slice: None },
        fraction: 1.0,
    });
    let members: Vec<MemberPlan> = members.collect();
    for (member, machine) in members.iter().zip(machines) {
        let command = AgentCommand::Prepare { run: run.clone(), job: member.job.clone() };
        encode(&command).map_err(|error| Failure::cannot(format!("machine {}", machine.name), error))?;
    }
    Ok(FleetPlan {
        run,
        members,
        on_loss: LossPolicy::Mark,
        duration_ns,
        prepare_ns: PREPARE_NS,
        collect_ns: COLLECT_NS,
    })
}

/// Reports the start of all programs to the waiting command.
struct MachinesObserver {
    started: Option<mpsc::Sender<()>>,
    notice: fn(&str),
}

impl FleetObserver for MachinesObserver {
    fn on_start(&mut self) {
        if let Some(started) = self.started.take() {
            // The receiver waits for it.
            let _ = started.send(());
        }
    }

    fn on_notice(&mut self, text: &str) {
        (self.notice)(text);
    }
}
