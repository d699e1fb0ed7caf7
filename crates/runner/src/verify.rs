//! `weir plan --verify`: runs a plan with `weir serve` and a proxy on this machine, and measures the steady
//! state, the stall of all servers, and the overload.

mod children;
mod foreign_process;
mod haproxy;
mod sampler;
pub mod subject;
mod unreadable_queue;

use std::sync::mpsc;
use std::time::Duration;

use load::measurement::RunMeasurement;
use load::observer::{RunObserver, SecondLatencies};
use load::plan::{LoadFlags, RunPlan};
use plan::verification::{Measured, VerifiedPlan};
use record::run::Interval;
use rt::clock::now_ns;
use rt::drain::{DrainStage, DrainWatch};

use self::children::Setup;
use self::sampler::{GaugeSample, Sampler};
use self::subject::VerifySubject;
use crate::failure::Failure;
use crate::preflight;

/// Lengths of the phases, in s.
#[derive(Clone, Copy, Debug)]
pub struct PhaseLengths {
    /// Steady state before the stall.
    steady_s: f64,
    /// Part at the start of a phase that is left out.
    settle_s: f64,
    /// Load after the expected drain.
    after_s: f64,
    baseline_s: f64,
    overload_s: f64,
    /// Steady state before the stall with shedding.
    steady_bounded_s: f64,
}

impl PhaseLengths {
    pub const FULL: Self = Self {
        steady_s: 6.0,
        settle_s: 1.5,
        after_s: 2.0,
        baseline_s: 3.0,
        overload_s: 6.0,
        steady_bounded_s: 2.0,
    };
    pub const QUICK: Self = Self {
        steady_s: 0.8,
        settle_s: 0.2,
        after_s: 0.3,
        baseline_s: 0.4,
        overload_s: 2.1,
        steady_bounded_s: 0.3,
    };
}

/// Maximum number of queued connections in the overload.
const CONNECTIONS_MAX: f64 = 7_000.0;
/// Fraction of the backlog up to which its drain is timed; the time of the rest, which random arrivals
/// dominate, is in proportion.
const REST_FRACTION: f64 = 0.1;

/// Runs the three phases after the baselines: the service time of single requests is that of the predictions,
/// and the one with all slots busy is that of the drain. Both contain the time of the proxy and of this machine. A
/// subject whose queue cannot be read has phases of its own.
///
/// # Errors
/// A process cannot be started, a load cannot be run, the user stopped it, or this machine is too slow for the plan.
pub fn verify(
    plan: &mut VerifiedPlan,
    timeout_s: f64,
    (subject, lengths): (&VerifySubject, PhaseLengths),
    (stop, notice): (&DrainWatch, fn(&str)),
) -> Result<Measured, Failure> {
    let mut setup = Setup::start(plan, subject, lengths, notice)?;
    measure_baselines(&mut setup, plan, stop)?;
    let plan = &*plan;
    if plan.pool().utilisation() >= 1.0 || plan.loaded_pool().utilisation() >= 1.0 {
        return Err(Failure::CannotRun(format!(
            "--verify: the service time is {:.2} ms on this machine, so the slots are overloaded",
            plan.service_s.max(plan.loaded_service_s) * 1e3
        )));
    }
    let mut measured = Measured::default();
    if let VerifySubject::Program(_, queue) | VerifySubject::Running(_, queue) = subject {
        unreadable_queue::measure(&mut setup, (plan, *queue), timeout_s, stop, &mut measured)?;
        return Ok(measured);
    }
    measure_stall(&setup, plan, stop, &mut measured)?;
    measure_bounded_stall(&setup, plan, stop, &mut measured)?;
    measure_overload(&setup, plan, timeout_s, stop, &mut measured)?;
    Ok(measured)
}

/// Measures the steady state, and the stall without a bound of the queue.
fn measure_stall(
    setup: &Setup,
    plan: &VerifiedPlan,
    stop: &DrainWatch,
    measured: &mut Measured,
) -> Result<(), Failure> {
    let lengths = setup.lengths();
    let phase = stall_phase(plan, lengths);
    setup.notice(&format!("steady state and stall: {:.0} s", phase.duration_s));
    let (samples, _) = phase.run(setup, plan, stop)?;
    measured.busy_connections =
        Ok(mean(&samples, lengths.settle_s, lengths.steady_s, |sample| sample.in_flight));
    let resumed_s = lengths.steady_s + plan.stall_s;
    let backlog = max(&samples, lengths.steady_s);
    let mut after = samples.iter().filter(|sample| sample.time_s >= resumed_s);
    let drained = after.find(|sample| sample.queued <= backlog * REST_FRACTION);
    measured.backlog = Ok(backlog);
    measured.drain_s =
        Ok(drained.map_or(f64::INFINITY, |sample| (sample.time_s - resumed_s) / (1.0 - REST_FRACTION)));
    Ok(())
}

/// Returns the load of a stall without a bound of the queue.
fn stall_phase(plan: &VerifiedPlan, lengths: PhaseLengths) -> Phase {
    Phase {
        pool: "open",
        rate_per_s: plan.rate_per_s,
        duration_s: lengths.steady_s + plan.stall_s + plan.drain_s(plan.backlog()) * 1.2 + lengths.after_s,
        stall_at_s: Some(lengths.steady_s),
        connections: stall_connections(plan),
        timeout_s: 60.0 + plan.stall_s,
    }
}

/// Returns the connections of a load during a stall: one for each request that waits.
fn stall_connections(plan: &VerifiedPlan) -> f64 {
    plan.rate_per_s * plan.stall_s * 1.15 + plan.pool().slots as f64 + 100.0
}

fn measure_bounded_stall(
    setup: &Setup,
    plan: &VerifiedPlan,
    stop: &DrainWatch,
    measured: &mut Measured,
) -> Result<(), Failure> {
    let lengths = setup.lengths();
    let phase = Phase {
        pool: "bounded",
        rate_per_s: plan.rate_per_s,
        duration_s: lengths.steady_bounded_s + plan.stall_s + lengths.after_s,
        stall_at_s: Some(lengths.steady_bounded_s),
        connections: stall_connections(plan),
        timeout_s: 60.0 + plan.stall_s,
    };
    setup.notice(&format!("stall with shedding: {:.0} s", phase.duration_s));
    let (samples, _) = phase.run(setup, plan, stop)?;
    measured.bounded_backlog = Ok(max(&samples, lengths.steady_bounded_s));
    Ok(())
}

fn measure_overload(
    setup: &Setup,
    plan: &VerifiedPlan,
    timeout_s: f64,
    stop: &DrainWatch,
    measured: &mut Measured,
) -> Result<(), Failure> {
    let (settle_s, overload_s) = (setup.lengths().settle_s, setup.lengths().overload_s);
    let rate_per_s = plan.rate_per_s * plan.overload;
    let waiting = rate_per_s * (plan.queue_s + plan.service_s * 2.0);
    let phase = Phase {
        pool: "bounded",
        rate_per_s,
        duration_s: overload_s,
        stall_at_s: None,
        connections: waiting.min(CONNECTIONS_MAX) + plan.pool().slots as f64 + 100.0,
        timeout_s,
    };
    setup.notice(&format!("overload: {:.0} s", phase.duration_s));
    let (samples, run) = phase.run(setup, plan, stop)?;
    measured.overload_connections = Ok(mean(&samples, settle_s, overload_s, |sample| sample.in_flight));
    let is_complete = |interval: &&Interval| {
        interval.length_s > 0.99 && (settle_s..overload_s + 0.1).contains(&interval.time_s)
    };
    let (good, length_s) =
        run.intervals.iter().filter(is_complete).fold((0, 0.0), |(good, length_s), interval| {
            (good + interval.good.unwrap_or(0), length_s + interval.length_s)
        });
    measured.goodput_per_s = Ok(good as f64 / f64::max(length_s, 1e-9));
    Ok(())
}

/// Measures the mean response time of requests one at a time, and of as many as there are slots.
fn measure_baselines(setup: &mut Setup, plan: &mut VerifiedPlan, stop: &DrainWatch) -> Result<(), Failure> {
    let baseline_s = setup.lengths().baseline_s;
    setup.notice(&format!("baselines: 2 x {baseline_s:.1} s"));
    let mut measure = |connections: u64| {
        let phase = Phase {
            pool: "open",
            rate_per_s: 0.0,
            duration_s: baseline_s,
            stall_at_s: None,
            connections: connections as f64,
            timeout_s: 60.0,
        };
        let (_, run) = phase.run(setup, plan, stop)?;
        let service = &run.latencies.last_byte.service;
        if service.is_empty() {
            return Err(setup.subject_failure("the servers did not respond"));
        }
        Ok(service.mean_ns() / 1e9)
    };
    let (single_s, loaded_s) = (measure(1)?, measure(plan.pool().slots)?);
    (plan.service_s, plan.loaded_service_s) = (single_s, loaded_s);
    Ok(())
}

fn mean(samples: &[GaugeSample], from_s: f64, to_s: f64, value: fn(&GaugeSample) -> f64) -> f64 {
    let within = samples.iter().filter(|sample| (from_s..to_s).contains(&sample.time_s));
    let (sum, count) = within.fold((0.0, 0.0), |(sum, count), sample| (sum + value(sample), count + 1.0));
    sum / f64::max(count, 1.0)
}

/// Returns the longest queue after a time.
fn max(samples: &[GaugeSample], from_s: f64) -> f64 {
    let after = samples.iter().filter(|sample| sample.time_s >= from_s);
    after.map(|sample| sample.queued).fold(0.0, f64::max)
}

/// One load, with or without a stall of the servers.
#[derive(Clone, Copy)]
struct Phase {
    pool: &'static str,
    rate_per_s: f64,
    duration_s: f64,
    stall_at_s: Option<f64>,
    connections: f64,
    timeout_s: f64,
}

impl Phase {
    fn run(
        &self,
        setup: &Setup,
        plan: &VerifiedPlan,
        stop: &DrainWatch,
    ) -> Result<(Vec<GaugeSample>, RunMeasurement), Failure> {
        let load = self.load_plan(setup, plan)?;
        preflight::check(&load)?;
        let (sender, start) = mpsc::channel();
        let sampler = Sampler::start(setup.gauges(), self.pool);
        let measured = std::thread::scope(|scope| {
            if let Some(stall_at_s) = self.stall_at_s {
                scope.spawn(move || {
                    let Ok(start_ns) = start.recv() else { return };
                    let at = |seconds: f64| start_ns + (seconds * 1e9) as u64;
                    if sleep_until(at(stall_at_s), stop) {
                        let _stalled = setup.stall_servers();
                        sleep_until(at(stall_at_s + plan.stall_s), stop);
                    }
                });
            }
            let mut observer = StartObserver { sender, start_ns: 0 };
            let result = load::run::run(&load, stop, &mut observer);
            result.map(|measured| (measured, observer.start_ns))
        });
        let samples = sampler.finish();
        let (measured, start_ns) = measured.map_err(|error| Failure::cannot("--verify", error))?;
        if stop.stage() != DrainStage::Running {
            return Err(Failure::CannotRun("verification stopped by the user".to_owned()));
        }
        let since_start = |(at_ns, queued, in_flight): (u64, f64, f64)| GaugeSample {
            time_s: (at_ns as f64 - start_ns as f64) / 1e9,
            queued,
            in_flight,
        };
        Ok((samples.into_iter().map(since_start).collect(), measured))
    }

    fn load_plan(&self, setup: &Setup, plan: &VerifiedPlan) -> Result<RunPlan, Failure> {
        let is_open = self.rate_per_s > 0.0;
        let urls = delays(plan, is_open)
            .into_iter()
            .map(|delay| format!("{}/{}?s=100&t={delay}", setup.base_url(), self.pool));
        let flags = LoadFlags {
            urls: urls.collect(),
            connections: Some(format!("{:.0}", self.connections)),
            rate: is_open.then(|| format!("{:.3}", self.rate_per_s)),
            arrivals: is_open.then(|| "poisson".to_owned()),
            duration: Some(format!("{:.3}s", self.duration_s)),
            timeout: Some(format!("{:.0}ms", self.timeout_s * 1e3)),
            threads: Some("1".to_owned()),
            ..LoadFlags::default()
        };
        Ok(RunPlan::parse(&flags, rt::cores::available_cpus().len())?)
    }
}

/// Returns the delays of the servers as options of `weir serve`: two with the planned mean and variation, or a
/// lognormal distribution for a heavy tail, of which the baselines, with their few requests, take the mean.
fn delays(plan: &VerifiedPlan, is_open: bool) -> Vec<String> {
    let (delay_us, cv) = (plan.delay_s * 1e6, plan.service_cv);
    if cv > 1.0 && is_open {
        // The mean is the median times exp(sigma^2 / 2), and cv^2 is exp(sigma^2) - 1.
        let variance = cv.powi(2).ln_1p();
        let median_us = delay_us / (variance / 2.0).exp();
        return vec![format!("lognormal({median_us:.0}us:{:.4})", variance.sqrt())];
    }
    match cv > 0.0 && cv <= 1.0 {
        true => [1.0 - cv, 1.0 + cv].map(|part| format!("{:.0}us", delay_us * part)).into(),
        false => vec![format!("{delay_us:.0}us")],
    }
}

/// Sleeps until a time; returns false if the user stopped the verification.
fn sleep_until(until_ns: u64, stop: &DrainWatch) -> bool {
    while stop.stage() == DrainStage::Running {
        let left_ns = until_ns.saturating_sub(now_ns());
        if left_ns == 0 {
            return true;
        }
        std::thread::sleep(Duration::from_nanos(left_ns.min(50_000_000)));
    }
    false
}

/// Observer that passes on the start of the load.
struct StartObserver {
    sender: mpsc::Sender<u64>,
    start_ns: u64,
}

impl RunObserver for StartObserver {
    fn on_start(&mut self, start_ns: u64) {
        self.start_ns = start_ns;
        // Without a stall nobody receives it.
        let _ = self.sender.send(start_ns);
    }

    fn on_window_start(&mut self) {}

    fn on_load_end(&mut self) {}

    fn on_second(&mut self, _interval: &mut Interval, _latencies: &SecondLatencies) {}
}
