//! `weir plan --verify`: runs a plan with `weir serve` and `weir proxy` on this machine, and measures
//! the steady state, the stall of all servers, and the overload.

mod children;
mod sampler;

use std::sync::mpsc;
use std::time::Duration;

use load::plan::{LoadFlags, RunPlan};
use load::run::{RunMeasurement, RunObserver, SecondLatencies};
use plan::verification::{Measured, VerifiedPlan};
use record::run::Interval;
use rt::clock::now_ns;
use rt::drain::{Drain, DrainStage, DrainWatch, SignalSet, block_signals};

use self::children::Setup;
use self::sampler::{GaugeSample, Sampler};
use crate::exit::Failure;
use crate::preflight;

/// Steady state before the stall; its first part is left out, in s.
const STEADY_S: f64 = 6.0;
const SETTLE_S: f64 = 1.5;
/// Load after the expected drain, in s.
const AFTER_S: f64 = 2.0;
/// Duration of the overload, in s.
const OVERLOAD_S: f64 = 6.0;
/// Steady state before the stall with shedding, in s.
const STEADY_BOUNDED_S: f64 = 2.0;
/// Fraction of the backlog up to which its drain is timed; the time of the rest, which random arrivals
/// dominate, is in proportion.
const REST_FRACTION: f64 = 0.1;

/// Runs the three phases.
pub(super) fn verify(plan: &VerifiedPlan, timeout_s: f64) -> Result<Measured, Failure> {
    let drain = Drain::default();
    let stop = drain.watch();
    block_signals(SignalSet::Termination)?.spawn_handler(drain, None)?;
    let setup = Setup::start(plan)?;
    let mut measured = Measured::default();
    let drain_s = plan.drain_s(plan.backlog());
    let stalled = Phase {
        pool: "open",
        rate_per_s: plan.rate_per_s,
        duration_s: STEADY_S + plan.stall_s + drain_s * 1.2 + AFTER_S,
        stall_at_s: Some(STEADY_S),
        connections: plan.rate_per_s * plan.stall_s * 1.15 + plan.pool().slots as f64 + 100.0,
        timeout_s: 60.0 + plan.stall_s,
    };
    warn!("weir: steady state and stall: {:.0} s", stalled.duration_s);
    let (samples, _) = stalled.run(&setup, plan, &stop)?;
    measured.busy_connections = mean(&samples, SETTLE_S, STEADY_S, |sample| sample.in_flight);
    let resumed_s = STEADY_S + plan.stall_s;
    measured.backlog = max(&samples, STEADY_S);
    let drained = samples.iter().filter(|sample| sample.time_s >= resumed_s);
    let drained = drained.clone().find(|sample| sample.queued <= measured.backlog * REST_FRACTION);
    measured.drain_s =
        drained.map_or(f64::INFINITY, |sample| (sample.time_s - resumed_s) / (1.0 - REST_FRACTION));
    let bounded = Phase {
        pool: "bounded",
        duration_s: STEADY_BOUNDED_S + plan.stall_s + AFTER_S,
        stall_at_s: Some(STEADY_BOUNDED_S),
        ..stalled
    };
    warn!("weir: stall with shedding: {:.0} s", bounded.duration_s);
    let (samples, _) = bounded.run(&setup, plan, &stop)?;
    measured.bounded_backlog = max(&samples, STEADY_BOUNDED_S);
    let rate_per_s = plan.rate_per_s * plan.overload;
    let waiting = rate_per_s * (plan.queue_s + plan.service_s * 2.0);
    let overload = Phase {
        rate_per_s,
        duration_s: OVERLOAD_S,
        stall_at_s: None,
        connections: waiting + plan.pool().slots as f64 + 100.0,
        timeout_s,
        ..bounded
    };
    warn!("weir: overload: {:.0} s", overload.duration_s);
    let (samples, run) = overload.run(&setup, plan, &stop)?;
    measured.overload_connections = mean(&samples, SETTLE_S, OVERLOAD_S, |sample| sample.in_flight);
    let complete = run
        .intervals
        .iter()
        .filter(|one| one.length_s > 0.99 && one.time_s > 1.5 && one.time_s < OVERLOAD_S + 0.1);
    let (good, length_s) = complete
        .fold((0, 0.0), |(good, length_s), one| (good + one.good.unwrap_or(0), length_s + one.length_s));
    measured.goodput_per_s = good as f64 / f64::max(length_s, 1e-9);
    Ok(measured)
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
        let sampler = Sampler::start(setup.admin(), self.pool);
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
        // Two service times with the planned mean and variation.
        let delays = [1.0 - plan.service_cv, 1.0 + plan.service_cv];
        let url = |part: f64| {
            format!("{}/{}?s=100&t={:.0}us", setup.base_url(), self.pool, plan.service_s * part * 1e6)
        };
        let urls = match plan.service_cv > 0.0 {
            true => delays.map(url).into(),
            false => vec![url(1.0)],
        };
        let flags = LoadFlags {
            urls,
            connections: Some(format!("{:.0}", self.connections)),
            rate: Some(format!("{:.3}", self.rate_per_s)),
            arrivals: Some("poisson".to_owned()),
            duration: Some(format!("{:.3}s", self.duration_s)),
            timeout: Some(format!("{:.0}ms", self.timeout_s * 1e3)),
            threads: Some("1".to_owned()),
            ..LoadFlags::default()
        };
        Ok(RunPlan::parse(&flags, rt::cores::available_cpus().len())?)
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
