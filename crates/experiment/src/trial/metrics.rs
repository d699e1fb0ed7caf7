//! Table of a trial's metrics: each with its unit, its better direction, and the function that
//! reads it from a record. A metric that a driver or a machine does not report is absent, never 0.
//!
//! Not for possible disturbances: those are covariates.

use std::collections::BTreeMap;

use diagnose::figures as f;
use diagnose::window::{GENERATOR, ORIGIN, SUBJECT, namespace};
use record::experiment::{BetterDirection, ExperimentMetric};
use record::observed::{MachineSample, RoleUse};
use record::run::{Interval, Run};
use record::sorted::CollectSorted;
use record::trial::ExperimentTrial;

use super::driver;
use super::trial_view::TrialView;
use crate::scenario::plan::Network;
use crate::scenario::setup::{LabSetup, LoadTool};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MetricSource {
    /// Output of the driver ([`driver::DriverSpec::prints_metric`]).
    Driver,
    /// Output of the driver, or else the counters of a network namespace without other processes.
    DriverOrNamespace,
    /// Samples of the machine, for a program that every trial starts.
    Machine,
    /// Samples of the machine, for threads of the generator that do not spin.
    Generator,
    /// Samples of the machine, for a server behind the subject.
    Origin,
}

pub struct TrialMetric {
    pub name: &'static str,
    pub title: &'static str,
    /// Unit: `1/s`, `ns`, `us`, `bytes`, `share`, `cpus` or `1`.
    pub unit: &'static str,
    pub better: BetterDirection,
    /// Exact definition and source.
    pub doc: &'static str,
    source: MetricSource,
    read: fn(&TrialView<'_>) -> Option<f64>,
}

/// Returns the number of requests that a percentile needs in each trial, 100 beyond it: with fewer it would depend on a
/// handful of them. `None` for a metric that is none, such as `p99` without its unit.
pub(crate) fn requests_needed(name: &str) -> Option<f64> {
    let digits = name.strip_prefix('p')?.strip_suffix("_ns")?;
    let is_plain = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let quantile: f64 = is_plain.then(|| format!("0.{digits}").parse().ok())??;
    Some(requests_for(quantile))
}

/// Returns the number of requests that a quantile needs in each trial.
pub(super) fn requests_for(quantile: f64) -> f64 {
    // Rounded so that 0.9 needs 1,000, whatever its binary fraction is.
    (100.0 / (1.0 - quantile)).round()
}

/// Formats the advice for trials of `duration_s` with too few requests.
pub(crate) fn longer_trials(needed: f64, requests: f64, duration_s: f64) -> String {
    let seconds = (1.1 * duration_s * needed / requests.max(1.0)).ceil();
    format!("use trials of {seconds:.0} s (-d {seconds:.0}s) or a higher rate")
}

impl std::fmt::Debug for TrialMetric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl TrialMetric {
    /// Converts it to the form of plans and reports.
    pub fn metric(&self) -> ExperimentMetric {
        ExperimentMetric {
            name: self.name.to_owned(),
            title: self.title.to_owned(),
            unit: self.unit.to_owned(),
            better: self.better,
        }
    }

    /// Returns the reason why no trial of a setup can have it. `None` if a trial may have it.
    /// `version_output` is the output of the driver's version calls, if known.
    pub fn unavailable_reason(&self, setup: &LabSetup, version_output: Option<&str>) -> Option<String> {
        let driver = driver::driver_spec(setup.tool);
        let (is_printed, program) = (driver.prints_metric(self.name, version_output), driver.program);
        match self.source {
            MetricSource::Machine => None,
            MetricSource::Driver => (!is_printed).then(|| format!("{program} does not report it")),
            MetricSource::DriverOrNamespace => {
                let is_shared = setup.scenario.network == Network::Loopback;
                let reason = "does not report it, and loopback counters include all processes";
                (!is_printed && is_shared).then(|| format!("{program} {reason}"))
            }
            MetricSource::Generator => {
                let spins = setup.tool == LoadTool::Weir && setup.load.iter().any(|word| word == "--spin");
                spins.then(|| "threads that spin (--spin) are always busy".to_owned())
            }
            MetricSource::Origin => {
                let is_there =
                    setup.origin.is_some() || setup.machines.iter().any(|machine| machine.role == ORIGIN);
                (!is_there).then(|| "there is no [origin]".to_owned())
            }
        }
    }

    /// Reads it from a trial. `None` if the trial does not have it.
    pub fn value_of(&self, trial: &ExperimentTrial) -> Option<f64> {
        self.read_from(&TrialView::new(trial))
    }

    fn read_from(&self, view: &TrialView<'_>) -> Option<f64> {
        (self.read)(view).filter(|value| value.is_finite())
    }
}

pub fn find_metric(name: &str) -> Option<&'static TrialMetric> {
    METRICS.iter().find(|metric| metric.name == name)
}

pub fn read_metrics(trial: &ExperimentTrial) -> BTreeMap<String, f64> {
    let view = TrialView::new(trial);
    let values = METRICS.iter().filter_map(|metric| {
        let value = metric.read_from(&view)?;
        Some((metric.name.to_owned(), value))
    });
    values.collect_map()
}

macro_rules! metrics {
    ($($name:literal $unit:literal $better:ident $source:ident $title:literal $doc:literal $read:expr;)*) => {
        pub static METRICS: &[TrialMetric] = &[$(TrialMetric {
            name: $name,
            title: $title,
            unit: $unit,
            better: BetterDirection::$better,
            doc: $doc,
            source: MetricSource::$source,
            read: $read,
        }),*];
    };
}

metrics! {
    "responses_per_s" "1/s" Higher Driver "good responses per second"
        "goodput: complete responses with an expected status that passed every check, per second of the \
         measured window"
        |view| view.goodput_per_s();
    "bytes_in_per_s" "bytes" Higher Driver "bytes received per second"
        "bytes that the generator received per second, heads and bodies" |view| match view.run() {
            Some(run) => Some(run.rates.bytes_in_per_s),
            None => view.driver_value("bytes_in_per_s"),
        };
    "mean_ns" "ns" Lower Driver "mean latency"
        "mean time to the last byte; of weir from the due time, of other drivers from the send"
        |view| view.mean_ns();
    "p50_ns" "ns" Lower Driver "median latency"
        "half of the responses took no longer; needs 200 of them" |view| view.latency_ns(0.5, "p50_ns");
    "p75_ns" "ns" Lower Driver "75th percentile of latency"
        "75 % of the responses took no longer; needs 400 of them" |view| view.latency_ns(0.75, "p75_ns");
    "p90_ns" "ns" Lower Driver "90th percentile of latency"
        "90 % of the responses took no longer; needs 1000 of them" |view| view.latency_ns(0.9, "p90_ns");
    "p99_ns" "ns" Lower Driver "99th percentile of latency"
        "99 % of the responses took no longer; needs 10 000 of them"
        |view| view.latency_ns(0.99, "p99_ns");
    "p999_ns" "ns" Lower Driver "99.9th percentile of latency"
        "99.9 % of the responses took no longer; needs 100 000 of them"
        |view| view.latency_ns(0.999, "p999_ns");
    "max_ns" "ns" Lower Driver "longest latency"
        "latency of a single response: not suitable for decisions" |view| view.max_ns();
    "subject_us_per_response" "us" Lower Machine "CPU time of the subject per response"
        "user and system time of all its processes per response; the inverse capacity of a CPU-bound \
         server, and more stable than its throughput on a shared machine"
        |view| per_response(view, SUBJECT, f::CPUS.read);
    "subject_user_us_per_response" "us" Lower Machine "user time of the subject per response"
        "the part in its own code and libraries"
        |view| per_response(view, SUBJECT, f::USER_CPUS.read);
    "subject_system_us_per_response" "us" Lower Machine "system time of the subject per response"
        "the part in the kernel, which may include interrupts that the kernel served meanwhile"
        |view| per_response(view, SUBJECT, f::SYSTEM_CPUS.read);
    "subject_cpus" "cpus" Lower Machine "CPUs used by the subject"
        "user and system time of all its processes per second" |view| {
            let recorded = view.run().and_then(|run| run.cpu.subject_cpus);
            cpus(view, SUBJECT).or(recorded)
        };
    "generator_cpus" "cpus" Lower Machine "CPUs used by the generator"
        "user and system time of the load generator per second" generator_cpus;
    "origin_cpus" "cpus" Lower Origin "CPUs used by the origin"
        "user and system time of the servers behind the subject per second"
        |view| cpus(view, ORIGIN);
    "generator_us_per_response" "us" Lower Machine "CPU time of the generator per response"
        "cost of driving the load; it affects the result if the generator shares CPUs with the subject"
        |view| Some(generator_cpus(view)? / view.responses_per_s()? * 1e6);
    "subject_resident_bytes" "bytes" Lower Machine "resident memory of the subject"
        "maximum at the end of any sample, summed over its processes: shared pages count for each process"
        |view| view.machines.role_max(SUBJECT, f::RESIDENT.read);
    "error_fraction" "fraction" Lower Driver "fraction of errors"
        "requests that failed or had a bad response, of all requests" error_fraction;
    "connections_per_s" "1/s" Lower DriverOrNamespace "connections opened per second"
        "by the generator; for drivers that do not report it, as counted in its network namespace"
        connections_per_s;
    "syscalls_per_response" "1" Lower Machine "system calls of the subject per response"
        "counted for a part of the load, by a tracepoint"
        |view| view.syscalls_per_response();
    "calls_per_response" "1" Lower Machine "calls of the requested function per response"
        "counted for a part of the load, by a probe that costs the subject time, which the trial records"
        |view| view.calls_per_response();
    "rate_max_per_s" "1/s" Higher Driver "good responses in the best second"
        "the best complete second of the measured window" rate_max_per_s;
    "subject_cpu_max_fraction" "fraction" Lower Machine "the subject's busiest thread"
        "fraction of one CPU that it used, mean over the samples: at 1 a thread is the limit"
        |view| view.machines.role_mean(SUBJECT, f::BUSIEST_THREAD.read);
    "generator_cpu_max_fraction" "fraction" Lower Generator "the generator's busiest thread"
        "fraction of one CPU that it used: near 1 the generator is the limit, and measures itself"
        generator_busiest_thread;
}

/// Minimum length of an interval that counts as a second.
const SECOND_S_MIN: f64 = 0.9;

fn cpus(view: &TrialView<'_>, role: &str) -> Option<f64> {
    view.machines.role_mean(role, f::CPUS.read)
}

fn per_response(view: &TrialView<'_>, role: &str, figure: fn(&RoleUse) -> Option<f64>) -> Option<f64> {
    Some(view.machines.role_mean(role, figure)? / view.responses_per_s()? * 1e6)
}

/// Returns the CPUs that the generator used. Weir records its own CPU time exactly; for other
/// drivers it is sampled.
fn generator_cpus(view: &TrialView<'_>) -> Option<f64> {
    let Some(run) = view.run() else { return cpus(view, GENERATOR) };
    let length_s = run.window.length_s();
    (length_s > 0.0).then(|| (run.cpu.user_s + run.cpu.system_s) / length_s)
}

/// Returns the load of the generator's busiest thread. `None` if weir spins: such a thread is
/// always busy.
pub(super) fn generator_busiest_thread(view: &TrialView<'_>) -> Option<f64> {
    match view.run() {
        Some(run) => run.generator.busiest_thread_fraction.filter(|_| !is_spinning(run)),
        None => view.machines.role_mean(GENERATOR, f::BUSIEST_THREAD.read),
    }
}

fn is_spinning(run: &Run) -> bool {
    run.plan["spin"].as_bool() == Some(true)
}

pub(super) fn error_fraction(view: &TrialView<'_>) -> Option<f64> {
    let Some(run) = view.run() else { return view.driver_value("error_fraction") };
    (run.totals.requests > 0).then(|| run.totals.error_fraction())
}

fn connections_per_s(view: &TrialView<'_>) -> Option<f64> {
    if let Some(run) = view.run() {
        let measured = run.intervals.iter().filter(|second| second.measured);
        let (opened, length_s) = measured
            .fold((0, 0.0), |sum, second| (sum.0 + second.connections_opened, sum.1 + second.length_s));
        return (length_s > 0.0).then(|| opened as f64 / length_s);
    }
    view.driver_value("connections_per_s").or_else(|| {
        let machine = view.machines.machine(GENERATOR)?;
        // Connections of other processes in the same namespace would count too.
        let is_alone = |sample: &&MachineSample| {
            namespace(sample, GENERATOR).is_some_and(|space| space.roles.iter().all(|role| role == GENERATOR))
        };
        machine.samples().iter().all(is_alone).then(|| machine.counter(GENERATOR, &["Tcp.ActiveOpens"]))?
    })
}

fn rate_max_per_s(view: &TrialView<'_>) -> Option<f64> {
    let Some(run) = view.run() else { return view.driver_value("rate_max_per_s") };
    let full_seconds = run.intervals.iter();
    let full_seconds = full_seconds.filter(|second| second.measured && second.length_s >= SECOND_S_MIN);
    let good = |second: &Interval| second.good.unwrap_or(second.responses) as f64;
    full_seconds.map(|second| good(second) / second.length_s).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::observed::{CallCount, MachineObservation, MachineSample, NamespaceUse, Role, ThreadCpuUse};
    use record::trial::{FunctionCalls, TrialDriver};

    const WRK: &str = "  20000 requests in 4.00s, 4.00MB read\n    Latency   1.00ms   1.00us   9.00ms   90%\n\
                       50%  900.00us\n75%  950.00us\n90%  1.10ms\n99%  2.00ms\n\
                       Requests/sec:  5000.00\nTransfer/sec:  1.00MB\n";

    fn sample(end_s: f64, length_s: f64, user: f64) -> MachineSample {
        let thread = |busy| ThreadCpuUse { busy, ..ThreadCpuUse::default() };
        let role = |user_cpus, resident| RoleUse {
            user_cpus,
            system_cpus: user_cpus / 2.0,
            threads: vec![thread(user_cpus), thread(0.1)],
            resident_bytes: Some(resident),
            ..RoleUse::default()
        };
        MachineSample {
            time_s: end_s,
            length_s,
            roles: vec![role(0.1, 5), role(user, 1000 + end_s as u64)],
            namespaces: vec![NamespaceUse {
                roles: vec![GENERATOR.to_owned()],
                counters: BTreeMap::from([("Tcp.ActiveOpens".to_owned(), 12.0)]),
                ..NamespaceUse::default()
            }],
            ..MachineSample::default()
        }
    }

    fn trial() -> ExperimentTrial {
        let role = |name: &str| Role { name: name.to_owned(), ..Role::default() };
        let count = |call: &str, count| CallCount {
            role: SUBJECT.to_owned(),
            call: call.to_owned(),
            length_s: 0.5,
            count,
            ..CallCount::default()
        };
        ExperimentTrial {
            driver: TrialDriver {
                program: "wrk".to_owned(),
                output: Some(WRK.to_owned()),
                ..TrialDriver::default()
            },
            observed: Some(MachineObservation {
                roles: vec![role(GENERATOR), role(SUBJECT)],
                // The first sample is from before the load, the last from after its end.
                samples: vec![
                    sample(-1.0, 1.0, 9.0),
                    sample(1.0, 1.0, 0.4),
                    sample(4.0, 3.0, 0.8),
                    sample(5.0, 1.0, 9.0),
                ],
                calls: vec![count("system calls", 10_000)],
                ..MachineObservation::default()
            }),
            calls: Some(FunctionCalls { count: count("malloc", 5_000), ..FunctionCalls::default() }),
            ..ExperimentTrial::default()
        }
    }

    #[test]
    fn every_row_is_complete_and_occurs_once() {
        let units = ["1/s", "ns", "us", "bytes", "fraction", "cpus", "1"];
        for (index, metric) in METRICS.iter().enumerate() {
            assert!(units.contains(&metric.unit), "{metric:?}");
            assert!(!metric.title.is_empty() && metric.doc.len() > 15, "{metric:?}");
            assert!(std::ptr::eq(find_metric(metric.name).unwrap(), &METRICS[index]), "{metric:?} twice");
            assert_eq!(metric.metric().name, metric.name);
        }
        assert!(find_metric("nope").is_none());
        assert!(read_metrics(&ExperimentTrial::default()).is_empty(), "an unreported figure is absent");
    }

    #[test]
    fn figures_are_read_from_another_driver_and_from_observations() {
        let values = read_metrics(&trial());
        println!("{values:#?}");
        let value = |name: &str| values[name];
        let is_near = |name: &str, expected: f64| {
            assert!((value(name) / expected - 1.0).abs() < 1e-9, "{name}: {}", value(name));
        };
        // 0.4 for a second and 0.8 for three, in user space, and half as much in the kernel.
        is_near("subject_cpus", 1.05);
        is_near("subject_us_per_response", 210.0);
        is_near("subject_user_us_per_response", 140.0);
        is_near("subject_system_us_per_response", 70.0);
        is_near("subject_cpu_max_fraction", 0.7);
        is_near("generator_cpus", 0.15);
        is_near("generator_us_per_response", 30.0);
        is_near("subject_resident_bytes", 1004.0);
        is_near("connections_per_s", 12.0);
        is_near("syscalls_per_response", 4.0);
        is_near("calls_per_response", 2.0);
        is_near("p99_ns", 2e6);
        is_near("max_ns", 9e6);
        assert_eq!(value("error_fraction"), 0.0);
        for absent in ["p999_ns", "rate_max_per_s", "origin_cpus"] {
            assert!(!values.contains_key(absent), "{absent}");
        }
    }

    #[test]
    fn unavailable_metrics_of_a_setup_are_known_in_advance() {
        let reason_of = |tool, name: &str, version_output: Option<&str>| {
            find_metric(name)
                .unwrap()
                .unavailable_reason(&LabSetup { tool, ..LabSetup::default() }, version_output)
        };
        assert_eq!(reason_of(LoadTool::Wrk, "p999_ns", None).unwrap(), "wrk does not report it");
        assert_eq!(reason_of(LoadTool::Wrk, "p99_ns", None), None);
        assert!(reason_of(LoadTool::H2load, "p99_ns", Some("h2load nghttp2/1.52.0")).is_some());
        assert_eq!(reason_of(LoadTool::H2load, "p99_ns", None), None);
        assert_eq!(reason_of(LoadTool::Weir, "origin_cpus", None).unwrap(), "there is no [origin]");
        assert_eq!(reason_of(LoadTool::Ab, "connections_per_s", None), None, "by its namespace");
        let mut setup = LabSetup { tool: LoadTool::Ab, ..LabSetup::default() };
        setup.scenario.network = Network::Loopback;
        assert!(find_metric("connections_per_s").unwrap().unavailable_reason(&setup, None).is_some());
        setup = LabSetup { load: vec!["--spin".to_owned()], origin: Some(Default::default()), ..setup };
        assert_eq!(find_metric("generator_cpu_max_fraction").unwrap().unavailable_reason(&setup, None), None);
        setup.tool = LoadTool::Weir;
        assert!(
            find_metric("generator_cpu_max_fraction").unwrap().unavailable_reason(&setup, None).is_some()
        );
        assert_eq!(find_metric("origin_cpus").unwrap().unavailable_reason(&setup, None), None);
    }

    #[test]
    fn a_percentile_tells_how_many_requests_it_needs() {
        let needed = ["p50_ns", "p90_ns", "p99_ns", "p999_ns"].map(requests_needed);
        assert_eq!(needed, [200.0, 1_000.0, 10_000.0, 100_000.0].map(Some));
        assert_eq!(["p_ns", "responses_per_s"].map(requests_needed), [None; 2]);
    }

    #[test]
    fn metrics_of_drivers_have_the_driver_as_their_source() {
        let is_from_driver = |metric: &&TrialMetric| {
            [MetricSource::Driver, MetricSource::DriverOrNamespace].contains(&metric.source)
        };
        for metric in METRICS.iter().filter(is_from_driver) {
            let weir = driver::driver_spec(LoadTool::Weir);
            assert!(weir.prints_metric(metric.name, None), "{metric:?}");
        }
        for name in driver::DRIVERS.iter().flat_map(|driver| driver.printed_metrics) {
            assert!(is_from_driver(&find_metric(name).unwrap()), "{name}");
        }
    }

    #[test]
    fn a_percentile_needs_requests() {
        let mut few = trial();
        let output = WRK.replace("20000 requests", "999 requests");
        few.driver.output = Some(output);
        let values = read_metrics(&few);
        assert!(values.contains_key("p75_ns") && !values.contains_key("p90_ns"), "{values:?}");
    }
}
