//! What a trial measured, as a table: each metric with its unit, which way is good, and how it is read
//! from a record. What a driver or a machine does not tell is absent, never 0.
//!
//! Not for what could have disturbed it: those are covariates.

use std::collections::BTreeMap;

use record::experiment::{Better, Metric};
use record::observed::RoleUse;
use record::run::{Interval, Run};
use record::trial::Trial;

use super::driver;
use super::view::{GENERATOR, ORIGIN, SUBJECT, View};
use crate::scenario::plan::Network;
use crate::scenario::setup::{Setup, Tool};

/// Who has to tell a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Teller {
    /// What drives the load ([`driver::Row::tells`]).
    Driver,
    /// The same, or else the counters of a network namespace in which nobody else is.
    DriverOrNamespace,
    /// The machine, of a program that the trial starts in any case.
    Machine,
    /// The machine, of threads of the generator that do not spin.
    Generator,
    /// The machine, of a server behind the subject.
    Origin,
}

/// One metric.
pub struct Figure {
    /// Its name, in files and records.
    pub name: &'static str,
    /// In words.
    pub title: &'static str,
    /// `1/s`, `ns`, `us`, `bytes`, `share`, `cpus` or `1`.
    pub unit: &'static str,
    /// Which way is good.
    pub better: Better,
    /// What exactly it is, and where it comes from.
    pub doc: &'static str,
    teller: Teller,
    read: fn(&View<'_>) -> Option<f64>,
}

impl std::fmt::Debug for Figure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Figure {
    /// As a plan and a report have it.
    #[must_use]
    pub fn metric(&self) -> Metric {
        Metric {
            name: self.name.to_owned(),
            title: self.title.to_owned(),
            unit: self.unit.to_owned(),
            better: self.better,
        }
    }

    /// Why no trial of a setup tells it, whatever comes of it; none: it may. `said` is what the driver says of
    /// its version, where that is known.
    #[must_use]
    pub fn never(&self, setup: &Setup, said: Option<&str>) -> Option<String> {
        let row = driver::row(setup.tool);
        let (is_told, program) = (row.is_telling(self.name, said), row.program);
        match self.teller {
            Teller::Machine => None,
            Teller::Driver => (!is_told).then(|| format!("{program} does not tell it")),
            Teller::DriverOrNamespace => {
                let is_shared = setup.scenario.network == Network::Loopback;
                let why = "does not tell it, and on the loopback everybody's are counted together";
                (!is_told && is_shared).then(|| format!("{program} {why}"))
            }
            Teller::Generator => {
                let spins =
                    setup.tool == Tool::Weir && setup.load.iter().any(|word| word == "--spin");
                spins.then(|| "threads that spin (--spin) are always busy".to_owned())
            }
            Teller::Origin => setup.origin.is_none().then(|| "there is no [origin]".to_owned()),
        }
    }

    /// Reads it from a trial; absent where it is not told.
    #[must_use]
    pub fn of(&self, trial: &Trial) -> Option<f64> {
        self.told_by(&View::new(trial))
    }

    fn told_by(&self, view: &View<'_>) -> Option<f64> {
        (self.read)(view).filter(|value| value.is_finite())
    }
}

/// The metric of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Figure> {
    METRICS.iter().find(|figure| figure.name == name)
}

/// All metrics that a trial tells, by their names.
#[must_use]
pub fn read(trial: &Trial) -> BTreeMap<String, f64> {
    let view = View::new(trial);
    let told = METRICS.iter().filter_map(|figure| {
        let value = figure.told_by(&view)?;
        Some((figure.name.to_owned(), value))
    });
    told.collect()
}

macro_rules! metrics {
    ($($name:literal $unit:literal $better:ident $teller:ident $title:literal $doc:literal $read:expr;)*) => {
        /// Every metric.
        pub static METRICS: &[Figure] = &[$(Figure {
            name: $name,
            title: $title,
            unit: $unit,
            better: Better::$better,
            doc: $doc,
            teller: Teller::$teller,
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
            None => view.read("bytes_in_per_s"),
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
        "one response took this long: no figure to decide by" |view| view.max_ns();
    "subject_us_per_response" "us" Lower Machine "processor time of the subject per response"
        "user and system time of all its processes per response; it is the capacity of a processor-bound \
         program, and moves less than its throughput on a shared machine"
        |view| per_response(view, SUBJECT, |role| Some(role.user_cpus + role.system_cpus));
    "subject_user_us_per_response" "us" Lower Machine "user time of the subject per response"
        "the part of it in the program's own code and libraries"
        |view| per_response(view, SUBJECT, |role| Some(role.user_cpus));
    "subject_system_us_per_response" "us" Lower Machine "system time of the subject per response"
        "the part of it in the kernel, which may charge interrupts here that it served meanwhile"
        |view| per_response(view, SUBJECT, |role| Some(role.system_cpus));
    "subject_cpus" "cpus" Lower Machine "processors that the subject used"
        "user and system time of all its processes per second" |view| {
            let told = view.run().and_then(|run| run.cpu.subject_cpus);
            cpus(view, SUBJECT).or(told)
        };
    "generator_cpus" "cpus" Lower Machine "processors that the generator used"
        "user and system time of what drives the load, per second" generator_cpus;
    "origin_cpus" "cpus" Lower Origin "processors that the origin used"
        "user and system time of the servers behind the subject, per second"
        |view| cpus(view, ORIGIN);
    "generator_us_per_response" "us" Lower Machine "processor time of the generator per response"
        "what driving the load costs; where it shares processors with the subject, it is part of the result"
        |view| Some(generator_cpus(view)? / view.responses_per_s()? * 1e6);
    "subject_resident_bytes" "bytes" Lower Machine "resident memory of the subject"
        "the most at the end of any sample, summed over its processes: pages that they share count for each"
        |view| view.most_of(SUBJECT, |role| Some(role.resident_bytes? as f64));
    "error_share" "share" Lower Driver "share of errors"
        "requests that failed or had a bad response, of all" error_share;
    "connections_per_s" "1/s" Lower DriverOrNamespace "connections opened per second"
        "by the generator; of drivers that do not tell, as its network namespace counts them"
        connections_per_s;
    "syscalls_per_response" "1" Lower Machine "system calls of the subject per response"
        "counted for a part of the load, by a tracepoint"
        |view| view.syscalls_per_response();
    "calls_per_response" "1" Lower Machine "calls of the asked function per response"
        "counted for a part of the load, by a probe that costs the subject time: the trial says how much"
        |view| view.calls_per_response();
    "rate_max_per_s" "1/s" Higher Driver "good responses in the best second"
        "the best whole second of the measured window" rate_max_per_s;
    "subject_cpu_max_share" "share" Lower Machine "the subject's busiest thread"
        "share of one processor that it used, mean over the samples: at 1 a thread is the limit"
        |view| view.mean_of(SUBJECT, busiest);
    "generator_cpu_max_share" "share" Lower Generator "the generator's busiest thread"
        "share of one processor that it used: near 1 the generator is the limit, and measures itself"
        generator_busiest;
}

/// The shortest second that counts as one.
const SECOND_S_MIN: f64 = 0.9;

fn cpus(view: &View<'_>, role: &str) -> Option<f64> {
    view.mean_of(role, |role| Some(role.user_cpus + role.system_cpus))
}

fn per_response(view: &View<'_>, role: &str, figure: fn(&RoleUse) -> Option<f64>) -> Option<f64> {
    Some(view.mean_of(role, figure)? / view.responses_per_s()? * 1e6)
}

/// Weir knows its own to the nanosecond; of others it is sampled.
fn generator_cpus(view: &View<'_>) -> Option<f64> {
    let Some(run) = view.run() else { return cpus(view, GENERATOR) };
    let length_s = run.window.length_s();
    (length_s > 0.0).then(|| (run.cpu.user_s + run.cpu.system_s) / length_s)
}

fn busiest(role: &RoleUse) -> Option<f64> {
    role.threads.iter().map(|thread| thread.busy).reduce(f64::max)
}

/// A thread of weir that spins is always busy: then it says nothing, and is not told.
pub(super) fn generator_busiest(view: &View<'_>) -> Option<f64> {
    match view.run() {
        Some(run) => run.generator.busiest_thread_share.filter(|_| !spins(run)),
        None => view.mean_of(GENERATOR, busiest),
    }
}

fn spins(run: &Run) -> bool {
    run.plan["spin"].as_bool() == Some(true)
}

pub(super) fn error_share(view: &View<'_>) -> Option<f64> {
    let Some(run) = view.run() else { return view.read("error_share") };
    (run.totals.requests > 0).then(|| run.totals.error_share())
}

fn connections_per_s(view: &View<'_>) -> Option<f64> {
    if let Some(run) = view.run() {
        let measured = run.intervals.iter().filter(|second| second.measured);
        let (opened, length_s) = measured.fold((0, 0.0), |sum, second| {
            (sum.0 + second.connections_opened, sum.1 + second.length_s)
        });
        return (length_s > 0.0).then(|| opened as f64 / length_s);
    }
    view.read("connections_per_s").or_else(|| {
        // Where others live in the same namespace, their connections count too.
        let alone = |roles: &[String]| roles.iter().all(|role| role == GENERATOR);
        let opened = view.counter("Tcp.ActiveOpens", alone);
        (!opened.is_empty()).then(|| opened.iter().sum::<f64>() / opened.len() as f64)
    })
}

fn rate_max_per_s(view: &View<'_>) -> Option<f64> {
    let Some(run) = view.run() else { return view.read("rate_max_per_s") };
    let whole = run.intervals.iter();
    let whole = whole.filter(|second| second.measured && second.length_s >= SECOND_S_MIN);
    let good = |second: &Interval| second.good.unwrap_or(second.responses) as f64;
    whole.map(|second| good(second) / second.length_s).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::observed::{CallCount, NamespaceUse, Observed, Role, Sample, ThreadUse};
    use record::trial::{Calls, Driver};

    const WRK: &str = "  20000 requests in 4.00s, 4.00MB read\n    Latency   1.00ms   1.00us   9.00ms   90%\n\
                       50%  900.00us\n75%  950.00us\n90%  1.10ms\n99%  2.00ms\n\
                       Requests/sec:  5000.00\nTransfer/sec:  1.00MB\n";

    fn sample(end_s: f64, length_s: f64, user: f64) -> Sample {
        let thread = |busy| ThreadUse { busy, ..ThreadUse::default() };
        let role = |user_cpus, resident| RoleUse {
            user_cpus,
            system_cpus: user_cpus / 2.0,
            threads: vec![thread(user_cpus), thread(0.1)],
            resident_bytes: Some(resident),
            ..RoleUse::default()
        };
        Sample {
            time_s: end_s,
            length_s,
            roles: vec![role(0.1, 5), role(user, 1000 + end_s as u64)],
            namespaces: vec![NamespaceUse {
                roles: vec![GENERATOR.to_owned()],
                counters: BTreeMap::from([("Tcp.ActiveOpens".to_owned(), 12.0)]),
                ..NamespaceUse::default()
            }],
            ..Sample::default()
        }
    }

    fn trial() -> Trial {
        let role = |name: &str| Role { name: name.to_owned(), ..Role::default() };
        let count = |call: &str, count| CallCount {
            role: SUBJECT.to_owned(),
            call: call.to_owned(),
            length_s: 0.5,
            count,
            ..CallCount::default()
        };
        Trial {
            driver: Driver {
                program: "wrk".to_owned(),
                output: Some(WRK.to_owned()),
                ..Driver::default()
            },
            observed: Some(Observed {
                roles: vec![role(GENERATOR), role(SUBJECT)],
                // The first is from before the load, the last from behind its end.
                samples: vec![
                    sample(-1.0, 1.0, 9.0),
                    sample(1.0, 1.0, 0.4),
                    sample(4.0, 3.0, 0.8),
                    sample(5.0, 1.0, 9.0),
                ],
                calls: vec![count("system calls", 10_000)],
                ..Observed::default()
            }),
            calls: Some(Calls { count: count("malloc", 5_000), ..Calls::default() }),
            ..Trial::default()
        }
    }

    #[test]
    fn every_row_is_whole_and_stands_once() {
        let units = ["1/s", "ns", "us", "bytes", "share", "cpus", "1"];
        for (place, figure) in METRICS.iter().enumerate() {
            assert!(units.contains(&figure.unit), "{figure:?}");
            assert!(!figure.title.is_empty() && figure.doc.len() > 15, "{figure:?}");
            assert!(std::ptr::eq(find(figure.name).unwrap(), &METRICS[place]), "{figure:?} twice");
            assert_eq!(figure.metric().name, figure.name);
        }
        assert!(find("nope").is_none());
        assert!(read(&Trial::default()).is_empty(), "what is not told is absent");
    }

    #[test]
    fn figures_are_read_from_another_driver_and_from_what_was_seen() {
        let told = read(&trial());
        println!("{told:#?}");
        let value = |name: &str| told[name];
        let near = |name: &str, wanted: f64| {
            assert!((value(name) / wanted - 1.0).abs() < 1e-9, "{name}: {}", value(name));
        };
        // 0.4 for a second and 0.8 for three, in user space, and half as much in the kernel.
        near("subject_cpus", 1.05);
        near("subject_us_per_response", 210.0);
        near("subject_user_us_per_response", 140.0);
        near("subject_system_us_per_response", 70.0);
        near("subject_cpu_max_share", 0.7);
        near("generator_cpus", 0.15);
        near("generator_us_per_response", 30.0);
        near("subject_resident_bytes", 1004.0);
        near("connections_per_s", 12.0);
        near("syscalls_per_response", 4.0);
        near("calls_per_response", 2.0);
        near("p99_ns", 2e6);
        near("max_ns", 9e6);
        assert_eq!(value("error_share"), 0.0);
        for absent in ["p999_ns", "rate_max_per_s", "origin_cpus"] {
            assert!(!told.contains_key(absent), "{absent}");
        }
    }

    #[test]
    fn what_a_setup_never_tells_is_known_before() {
        let of = |tool, name: &str, said: Option<&str>| {
            find(name).unwrap().never(&Setup { tool, ..Setup::default() }, said)
        };
        assert_eq!(of(Tool::Wrk, "p999_ns", None).unwrap(), "wrk does not tell it");
        assert_eq!(of(Tool::Wrk, "p99_ns", None), None);
        assert!(of(Tool::H2load, "p99_ns", Some("h2load nghttp2/1.52.0")).is_some());
        assert_eq!(of(Tool::H2load, "p99_ns", None), None);
        assert_eq!(of(Tool::Weir, "origin_cpus", None).unwrap(), "there is no [origin]");
        assert_eq!(of(Tool::Ab, "connections_per_s", None), None, "by its namespace");
        let mut setup = Setup { tool: Tool::Ab, ..Setup::default() };
        setup.scenario.network = Network::Loopback;
        assert!(find("connections_per_s").unwrap().never(&setup, None).is_some());
        setup =
            Setup { load: vec!["--spin".to_owned()], origin: Some(Default::default()), ..setup };
        assert_eq!(find("generator_cpu_max_share").unwrap().never(&setup, None), None);
        setup.tool = Tool::Weir;
        assert!(find("generator_cpu_max_share").unwrap().never(&setup, None).is_some());
        assert_eq!(find("origin_cpus").unwrap().never(&setup, None), None);
    }

    #[test]
    fn what_drivers_tell_are_metrics_that_drivers_have_to_tell() {
        let of_drivers =
            |figure: &&Figure| [Teller::Driver, Teller::DriverOrNamespace].contains(&figure.teller);
        for figure in METRICS.iter().filter(of_drivers) {
            let weir = driver::row(Tool::Weir);
            assert!(weir.is_telling(figure.name, None), "{figure:?}");
        }
        for name in driver::ROWS.iter().flat_map(|row| row.tells) {
            assert!(of_drivers(&find(name).unwrap()), "{name}");
        }
    }

    #[test]
    fn a_percentile_needs_requests() {
        let mut few = trial();
        let output = WRK.replace("20000 requests", "999 requests");
        few.driver.output = Some(output);
        let told = read(&few);
        assert!(told.contains_key("p75_ns") && !told.contains_key("p90_ns"), "{told:?}");
    }
}
