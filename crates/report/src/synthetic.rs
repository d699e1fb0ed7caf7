//! Synthetic experiment with synthetic trials, for all tests of the report: two arms and the A/A
//! arm under three loads, twelve blocks, a discarded trial, a failed one, a pilot. The figures come
//! from a seed and are not measurements.

use std::collections::BTreeMap;

use fastrand::Rng;
use record::experiment::{
    Arm, BetterDirection, BlockPair, Comparison, ComparisonOutcome, Experiment, ExperimentCell,
    ExperimentMetric, ExperimentPlan, LoadPlan, ScalingSummary, StopReason, TrialSummary, ValueDistribution,
    Warning,
};
use record::facts::HostFacts;
use record::histogram::LatencyHistogram;
use record::observed::{
    CallCount, ConnectionEnd, CpuUse, EndQueues, FunctionUse, ListenerQueue, MachineObservation,
    MachineSample, NamespaceUse, QueueSnapshot, Role, RoleUse, ThreadCpuUse,
};
use record::run::{
    self, Confidence, Diagnosis, GeneratorCpu, GeneratorStats, Interval, MeasuredWindow, PhaseLatencies,
    Rates, Run, RunTotals, WeirVersion,
};
use record::trial::{Covariates, DiscardReason, ExperimentTrial, SteadyState, TrialDriver, TrialPosition};
use record::validity::Validity;

use super::TrialRecords;

pub(crate) const BLOCKS: u32 = 12;
/// Length of each trial in seconds.
pub(crate) const SECONDS: u32 = 8;
/// Name that a page must not interpret as markup.
pub(crate) const MARKUP_NAME: &str = "<script>alert('x')</script> & \"co\"";
/// Names of the arms: the baseline, its A/A arm, the other.
pub(crate) const ARMS: [&str; 3] = ["glibc", "glibc-repeat", "jemalloc"];
pub(crate) const LOADS: [&str; 3] = ["c10", "c50", "c200"];

/// Records of trials in memory.
#[derive(Debug, Default)]
pub(crate) struct SyntheticRecords {
    /// Records by file.
    pub(crate) trials: BTreeMap<String, ExperimentTrial>,
}

impl TrialRecords for SyntheticRecords {
    fn trial(&self, file: &str) -> Option<ExperimentTrial> {
        self.trials.get(file).cloned()
    }

    fn folded_stacks(&self, trial_file: &str) -> Option<String> {
        let trial = self.trials.get(trial_file)?;
        trial.folded.as_ref()?;
        Some(folded(&trial.position.arm))
    }
}

/// Records of an experiment without any trial record.
#[derive(Debug)]
pub(crate) struct NoRecords;

impl TrialRecords for NoRecords {
    fn trial(&self, _file: &str) -> Option<ExperimentTrial> {
        None
    }

    fn folded_stacks(&self, _trial_file: &str) -> Option<String> {
        None
    }
}

pub(crate) fn synthetic_experiment() -> (Experiment, SyntheticRecords) {
    with_loads(&LOADS)
}

pub(crate) fn synthetic_run() -> Run {
    let (experiment, raw) = one_load();
    let line = experiment.trials.iter().find(|line| line.is_counted()).unwrap();
    raw.trial(&line.file).unwrap().run.unwrap()
}

/// Returns the same under one load without a name.
pub(crate) fn one_load() -> (Experiment, SyntheticRecords) {
    with_loads(&[record::experiment::ONLY_LOAD])
}

/// Returns the same under these loads.
pub(crate) fn with_loads(loads: &[&str]) -> (Experiment, SyntheticRecords) {
    let plan = plan(loads);
    let mut rng = Rng::with_seed(7);
    let mut raw = SyntheticRecords::default();
    let mut lines = Vec::new();
    let mut number = 0;
    let mut put = |add_trial: TrialPosition, rng: &mut Rng, change: &dyn Fn(&mut TrialSummary)| {
        let mut trial = trial(&add_trial, rng);
        let mut line = line(&trial);
        change(&mut line);
        trial.discarded.clone_from(&line.discarded);
        trial.failed.clone_from(&line.failed);
        if trial.failed.is_some() {
            trial.run = None;
            trial.folded = None;
        }
        raw.trials.insert(line.file.clone(), trial);
        lines.push(line);
    };
    let mut next_position = |block: u32, attempt: u32, arm: &str, load: &str| {
        number += 1;
        TrialPosition {
            number,
            block,
            attempt,
            arm: arm.to_owned(),
            load: load.to_owned(),
            ..TrialPosition::default()
        }
    };
    put(next_position(0, 1, ARMS[0], loads[0]), &mut rng, &|_| ());
    for block in 1..=BLOCKS {
        for load in loads {
            for arm in ARMS {
                // The third block runs twice: its first attempt had a disturbed trial and a failed
                // one.
                if block == 3 {
                    put(next_position(3, 1, arm, load), &mut rng, &|line| disturb(line));
                }
                let attempt = if block == 3 { 2 } else { 1 };
                put(next_position(block, attempt, arm, load), &mut rng, &|_| ());
            }
        }
    }
    let experiment = experiment(plan, lines, &mut rng);
    (experiment, raw)
}

fn disturb(line: &mut TrialSummary) {
    if line.position.arm == ARMS[2] {
        line.failed = Some("nginx: bind() to 10.71.0.2:80 failed".to_owned());
        line.metrics.clear();
        return;
    }
    line.covariates.steal_fraction = Some(0.061);
    line.discarded = Some(DiscardReason {
        code: "steal_fraction".to_owned(),
        text: "the hypervisor took 6.1 % of the machine's time; the bound is 2 %".to_owned(),
    });
}

fn plan(loads: &[&str]) -> ExperimentPlan {
    let metric = |name: &str, title: &str, unit: &str, better| ExperimentMetric {
        name: name.to_owned(),
        title: title.to_owned(),
        unit: unit.to_owned(),
        better,
    };
    let arm = |name: &str, title: &str, repeats: Option<&str>, changes: &[(&str, &str)]| Arm {
        name: name.to_owned(),
        title: title.to_owned(),
        changes: changes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        repeats: repeats.map(str::to_owned),
        levels: BTreeMap::new(),
    };
    let load = |name: &&str| {
        let connections = name.trim_start_matches(|c: char| !c.is_ascii_digit());
        let levels = [("connections".to_owned(), connections.to_owned())];
        let some = !connections.is_empty();
        LoadPlan {
            name: (*name).to_owned(),
            title: if some { format!("{connections} connections") } else { String::new() },
            changes: levels
                .iter()
                .filter(|_| some)
                .map(|(key, value)| (format!("parameters.{key}"), value.clone()))
                .collect(),
            levels: levels.into_iter().filter(|_| some).collect(),
        }
    };
    ExperimentPlan {
        name: "allocator".to_owned(),
        title: format!("Does jemalloc make nginx faster? {MARKUP_NAME}"),
        file: format!("name = \"allocator\"\n# {MARKUP_NAME}\n[subject]\ncommand = \"nginx\"\n"),
        seed: 42,
        baseline: ARMS[0].to_owned(),
        arms: vec![
            arm(ARMS[0], "glibc's malloc", None, &[]),
            arm(ARMS[1], "glibc's malloc, again", Some(ARMS[0]), &[]),
            arm(
                ARMS[2],
                "jemalloc",
                None,
                &[("subject.env.LD_PRELOAD", "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2")],
            ),
        ],
        loads: loads.iter().map(load).collect(),
        left_out: Vec::new(),
        metrics: vec![
            metric(
                "subject_us_per_response",
                "CPU time of the subject per response",
                "us",
                BetterDirection::Lower,
            ),
            metric("responses_per_s", "responses", "1/s", BetterDirection::Higher),
            metric("p50_ns", "median latency", "ns", BetterDirection::Lower),
            metric("p99_ns", "latency that 99 % do not exceed", "ns", BetterDirection::Lower),
        ],
        effect: 0.02,
        confidence: 0.95,
        blocks_min: 10,
        blocks_max: 30,
        reruns_max_fraction: 0.5,
        duration_s: f64::from(SECONDS),
        warm_up_s: None,
        discard: [("steal_fraction".to_owned(), 0.02), ("foreign_cpus".to_owned(), 0.05)].into(),
        profile: true,
        calls: Some("malloc".to_owned()),
        parameters: BTreeMap::new(),
    }
}

/// Returns the CPU time of a response of each arm, in µs.
fn cost_us(arm: &str) -> f64 {
    if arm == ARMS[2] { 21.3 } else { 22.4 }
}

fn connections(load: &str) -> f64 {
    load.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(50.0)
}

fn trial(position: &TrialPosition, rng: &mut Rng) -> ExperimentTrial {
    let drift = 1.0 + 0.004 * f64::from(position.block) + 0.01 * (rng.f64() - 0.5);
    let us = cost_us(&position.arm) * drift;
    let rate = 1e6 / us * (0.55 + 0.1 * connections(&position.load).ln() / 5.3f64.ln());
    let latency_ns = connections(&position.load) / rate * 1e9;
    let folded = (position.block > 0).then(|| "stacks.folded".to_owned());
    let run = sample_run(position, rate, latency_ns, us, rng);
    let metrics = [
        ("subject_us_per_response", us),
        ("responses_per_s", rate),
        ("p50_ns", run.latency.last_byte.response.p50_ns as f64),
        ("p99_ns", run.latency.last_byte.response.p99_ns as f64),
    ];
    ExperimentTrial {
        schema: record::trial::SCHEMA.to_owned(),
        weir: weir(),
        position: position.clone(),
        started_at: run.started_at.clone(),
        duration_s: f64::from(SECONDS),
        warm_up_s: 2.0,
        commands: [("subject".to_owned(), "nginx -c nginx.conf".to_owned())].into(),
        driver: TrialDriver {
            program: "weir".to_owned(),
            version: "0.1.0".to_owned(),
            ..TrialDriver::default()
        },
        diagnosis: run.diagnosis.clone(),
        run: Some(run),
        metrics: metrics.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        covariates: Covariates {
            steal_fraction: Some(0.004 * rng.f64()),
            foreign_cpus: Some(0.02 * rng.f64()),
            wake_up_p99_ns: Some(90_000 + rng.u64(0..20_000)),
            ..Covariates::default()
        },
        steady: SteadyState { from_s: Some(1.0), text: "steady from 1 s on".to_owned() },
        folded,
        ..ExperimentTrial::default()
    }
}

fn weir() -> WeirVersion {
    WeirVersion { version: "0.1.0".to_owned(), commit: "0123456789ab".to_owned() }
}

fn line(trial: &ExperimentTrial) -> TrialSummary {
    let position = &trial.position;
    TrialSummary {
        position: position.clone(),
        started_at: trial.started_at.clone(),
        file: format!(
            "trials/{:04}-b{:02}-{}-{}.json",
            position.number, position.block, position.arm, position.load
        ),
        metrics: trial.metrics.clone(),
        covariates: trial.covariates.clone(),
        steady: trial.steady.clone(),
        verdict: trial.diagnosis.as_ref().map(|diagnosis| diagnosis.verdict.clone()),
        ..TrialSummary::default()
    }
}

fn sample_run(position: &TrialPosition, rate: f64, latency_ns: f64, us: f64, rng: &mut Rng) -> Run {
    let mut latencies = LatencyHistogram::new();
    for _ in 0..4_000 {
        // Exponential around the mean, with a second mode far out.
        let tail = if rng.f64() < 0.004 { 12.0 } else { 1.0 };
        latencies.record((latency_ns * tail * (0.5 - 0.5 * rng.f64().max(1e-6).ln())) as u64);
    }
    let pair = || run::LatencyPair { service: latencies.summary(), response: latencies.summary() };
    let intervals = (1..=SECONDS).map(|second| interval(second, rate, latency_ns, rng)).collect();
    Run {
        schema: run::SCHEMA.to_owned(),
        weir: weir(),
        command: vec!["weir".to_owned(), "load".to_owned()],
        started_at: format!("2026-10-01T10:{:02}:{:02}Z", position.number / 6 % 60, position.number % 6 * 10),
        identities: Vec::new(),
        duration_s: f64::from(SECONDS),
        partial: false,
        check_samples: Vec::new(),
        rate_changes: Vec::new(),
        stages: Vec::new(),
        requests: Vec::new(),
        host: host(),
        plan: serde_json::json!({ "connections": connections(&position.load) }),
        validity: Validity::from_reasons(Vec::new()),
        objectives: Vec::new(),
        totals: RunTotals { requests: 100_000, responses: 100_000, ..RunTotals::default() },
        rates: Rates { responses_per_s: rate, bytes_in_per_s: rate * 1200.0, ..Rates::default() },
        window: MeasuredWindow { to_s: f64::from(SECONDS), ..MeasuredWindow::default() },
        latency: PhaseLatencies {
            connect: pair(),
            tls_handshake: None,
            tls_full: None,
            tls_resumed: None,
            first_byte: pair(),
            last_byte: pair(),
            last_byte_bad: None,
        },
        tls: None,
        http2: None,
        websocket: None,
        event_stream: None,
        transport: None,
        generator: GeneratorStats { threads: 1, ..GeneratorStats::default() },
        cpu: GeneratorCpu {
            user_s: 3.0,
            system_s: 2.0,
            per_core: vec![0.62],
            subject_cpus: Some(rate * us / 1e6),
            foreign_cpus: Some(0.01),
            steal_fraction: Some(0.002),
        },
        baseline: None,
        intervals,
        observed: vec![observed(position, rate, us, rng)],
        answer: None,
        comparison: None,
        diagnosis: Some(diagnosis()),
        fleet: None,
    }
}

fn diagnosis() -> Diagnosis {
    Diagnosis {
        verdict: "user_cpu_bound".to_owned(),
        claim: "the subject's CPUs are busy in user space".to_owned(),
        confidence: Confidence::Sure,
        evidence: vec!["the subject used 0.97 of 1 CPU".to_owned()],
        next_limits: vec!["generator: 38 % headroom".to_owned(), "link: 91 % headroom".to_owned()],
        remedy: "make the code cheaper or give it more CPUs".to_owned(),
        ..Diagnosis::default()
    }
}

fn interval(second: u32, rate: f64, latency_ns: f64, rng: &mut Rng) -> Interval {
    let rate = rate * (1.0 + 0.03 * (rng.f64() - 0.5)) * if second == 1 { 0.9 } else { 1.0 };
    Interval {
        time_s: f64::from(second),
        length_s: 1.0,
        connections: 50,
        responses: rate as u64,
        bytes_in: rate as u64 * 1200,
        in_flight: 50,
        first_byte_mean_ns: latency_ns * 0.9,
        last_byte_mean_ns: latency_ns,
        p50_ns: Some((latency_ns * 0.85) as u64),
        p99_ns: Some((latency_ns * (2.4 + rng.f64())) as u64),
        max_ns: (latency_ns * 12.0) as u64,
        own_cpus: Some(0.62),
        measured: true,
        ..Interval::default()
    }
}

fn observed(position: &TrialPosition, rate: f64, us: f64, rng: &mut Rng) -> MachineObservation {
    let role = |name: &str| Role {
        name: name.to_owned(),
        pids: vec![100],
        command: name.to_owned(),
        cpus_allowed: 2,
        ..Role::default()
    };
    MachineObservation {
        host: "lab".to_owned(),
        cpus: 2,
        memory_bytes: 8 << 30,
        started_at: "2026-10-01T10:00:00Z".to_owned(),
        cost_cpus: 0.004,
        roles: vec![role("generator"), role("subject")],
        settings: [("net.core.somaxconn", "4096"), ("net.ipv4.ip_local_port_range", "32768\t60999")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        samples: (1..=SECONDS).map(|second| sample_at(second, rate, us, rng)).collect(),
        queues: (0..SECONDS * 2).map(|half| queues(f64::from(half) / 2.0, rng)).collect(),
        functions: functions(&position.arm),
        calls: vec![CallCount {
            role: "subject".to_owned(),
            call: "malloc".to_owned(),
            from_s: 1.0,
            length_s: 2.0,
            count: (rate * 2.0 * 11.0) as u64,
            cost_cpus: 0.11,
        }],
        ..MachineObservation::default()
    }
}

fn sample_at(second: u32, rate: f64, us: f64, rng: &mut Rng) -> MachineSample {
    let busy = (rate * us / 1e6).min(1.0);
    let cpu = |number: u32, rng: &mut Rng| CpuUse {
        cpu: number,
        user: busy * 0.6 + 0.02 * rng.f64(),
        system: busy * 0.2,
        softirq: 0.08,
        steal: 0.002,
        idle: (0.9 - busy * 0.8).max(0.0),
        ..CpuUse::default()
    };
    let role = |cpus: f64| RoleUse {
        processes: 1,
        user_cpus: cpus * 0.7,
        system_cpus: cpus * 0.3,
        threads: vec![ThreadCpuUse { tid: 100, busy: cpus, waiting: Some(0.05), ..ThreadCpuUse::default() }],
        threads_total: 1,
        resident_bytes: Some(48 << 20),
        ..RoleUse::default()
    };
    MachineSample {
        time_s: f64::from(second),
        length_s: 1.0,
        cpus: vec![cpu(0, rng), cpu(1, rng)],
        foreign_cpus: Some(0.01),
        roles: vec![role(0.62), role(busy)],
        namespaces: vec![NamespaceUse {
            roles: vec!["subject".to_owned()],
            time_wait: 3_000 * u64::from(second),
            ..NamespaceUse::default()
        }],
        ..MachineSample::default()
    }
}

fn queues(time_s: f64, rng: &mut Rng) -> QueueSnapshot {
    let end = |end: ConnectionEnd, unread: u64| EndQueues {
        port: 80,
        end,
        states: [("established".to_owned(), 50)].into(),
        with_unread: unread / 100,
        unread_bytes: unread,
        ..EndQueues::default()
    };
    QueueSnapshot {
        time_s,
        listeners: vec![ListenerQueue {
            port: 80,
            waiting: rng.u32(0..3),
            backlog: 511,
            ..ListenerQueue::default()
        }],
        ends: vec![
            end(ConnectionEnd::Client, rng.u64(0..2_000)),
            end(ConnectionEnd::Server, rng.u64(0..9_000)),
        ],
        ..QueueSnapshot::default()
    }
}

fn functions(arm: &str) -> Vec<FunctionUse> {
    let entry = |function: &str, module: &str, own: f64| FunctionUse {
        role: "subject".to_owned(),
        function: function.to_owned(),
        module: module.to_owned(),
        self_fraction: own,
        total_fraction: own * 1.4,
    };
    let malloc =
        if arm == ARMS[2] { ("je_malloc", "libjemalloc.so.2", 0.03) } else { ("malloc", "libc.so.6", 0.08) };
    vec![
        entry("ngx_http_process_request", "nginx", 0.21),
        entry("tcp_sendmsg", "[kernel]", 0.17),
        entry(malloc.0, malloc.1, malloc.2),
    ]
}

fn folded(arm: &str) -> String {
    let malloc = if arm == ARMS[2] { ("je_malloc", 30) } else { ("malloc", 80) };
    format!(
        "nginx;main;ngx_worker;ngx_http_process_request 210\n\
         nginx;main;ngx_worker;ngx_http_process_request;ngx_palloc;{} {}\n\
         nginx;main;ngx_worker;writev;[kernel] tcp_sendmsg 170\n\
         nginx;main;ngx_worker;epoll_wait 60\n",
        malloc.0, malloc.1
    )
}

fn host() -> HostFacts {
    HostFacts {
        kernel: "6.8.0".to_owned(),
        os: Some("Debian GNU/Linux 12".to_owned()),
        name: Some("lab".to_owned()),
        cpus: 2,
        cpu_model: Some("Made-up CPU".to_owned()),
        memory_bytes: 8 << 30,
        virtualised: Some("kvm".to_owned()),
        fingerprint: "sample".to_owned(),
        ..HostFacts::default()
    }
}

fn experiment(plan: ExperimentPlan, trials: Vec<TrialSummary>, rng: &mut Rng) -> Experiment {
    let cells = cells(&plan, &trials);
    let comparisons = comparisons(&plan, &trials, rng);
    Experiment {
        schema: record::experiment::SCHEMA.to_owned(),
        weir: weir(),
        command: ["weir", "lab", "run", "allocator.toml", "--set", "note=a b"].map(str::to_owned).into(),
        started_at: "2026-10-01T10:00:00Z".to_owned(),
        duration_s: 1_472.0,
        partial: false,
        resumed: 1,
        host: host(),
        environment: [
            ("nginx".to_owned(), "nginx/1.22.1".to_owned()),
            ("net.core.somaxconn".to_owned(), "4096".to_owned()),
        ]
        .into(),
        stopped: StopReason {
            code: "concluded".to_owned(),
            text: "every comparison in the primary metric has its conclusion".to_owned(),
        },
        trials,
        cells,
        comparisons,
        warnings: vec![Warning {
            code: "noise_floor".to_owned(),
            arm: Some(ARMS[1].to_owned()),
            text: "glibc against itself differs by up to 1.2 %: smaller effects cannot be distinguished"
                .to_owned(),
        }],
        scalings: vec![ScalingSummary {
            factor: "connections".to_owned(),
            load: String::new(),
            arm: ARMS[0].to_owned(),
            points: vec![(10.0, 20_000.0), (50.0, 31_000.0), (200.0, 34_000.0)],
            fit: None,
            knee: None,
            text: "three points are too few for a fit".to_owned(),
        }],
        summary: vec![
            "jemalloc is faster: 4.9 % less CPU time of the subject per response (95 %: 4.4 to 5.4 % less)."
                .to_owned(),
            "The same holds under all three loads; glibc against itself differs by 0.1 %.".to_owned(),
        ],
        answer: None,
        finish: None,
        plan,
    }
}

fn figures(trials: &[TrialSummary], arm: &str, load: &str, metric: &str) -> Vec<(u32, f64)> {
    let of = trials.iter().filter(|line| line.is_counted());
    let of = of.filter(|line| line.position.arm == arm && line.position.load == load);
    // The first attempt at a block does not count, whatever its trials say.
    let of = of.filter(|line| line.position.block != 3 || line.position.attempt == 2);
    of.filter_map(|line| Some((line.position.block, *line.metrics.get(metric)?))).collect()
}

fn cells(plan: &ExperimentPlan, trials: &[TrialSummary]) -> Vec<ExperimentCell> {
    let mut cells = Vec::new();
    for load in &plan.loads {
        for arm in &plan.arms {
            let spread = |metric: &ExperimentMetric| {
                let mut values: Vec<f64> = figures(trials, &arm.name, &load.name, &metric.name)
                    .into_iter()
                    .map(|(_, value)| value)
                    .collect();
                values.sort_by(f64::total_cmp);
                let at = |quantile: f64| values[((values.len() - 1) as f64 * quantile).round() as usize];
                let (p25, p75) = (at(0.25), at(0.75));
                let spread = ValueDistribution {
                    min: at(0.0),
                    p25,
                    median: at(0.5),
                    p75,
                    max: at(1.0),
                    median_interval: Some((at(0.3), at(0.7))),
                };
                (metric.name.clone(), spread)
            };
            cells.push(ExperimentCell {
                arm: arm.name.clone(),
                load: load.name.clone(),
                trials: BLOCKS,
                metrics: plan.metrics.iter().map(spread).collect(),
                verdicts: [("user_cpu_bound".to_owned(), BLOCKS - 1), ("unknown".to_owned(), 1)].into(),
                unsteady: 0,
            });
        }
    }
    cells
}

fn comparisons(plan: &ExperimentPlan, trials: &[TrialSummary], rng: &mut Rng) -> Vec<Comparison> {
    let mut all = Vec::new();
    for load in &plan.loads {
        for metric in &plan.metrics {
            for arm in plan.arms.iter().skip(1) {
                let base = figures(trials, &plan.baseline, &load.name, &metric.name);
                let own = figures(trials, &arm.name, &load.name, &metric.name);
                let pairs: Vec<BlockPair> = base
                    .iter()
                    .zip(&own)
                    .map(|(base, own)| BlockPair { block: base.0, baseline: base.1, arm: own.1 })
                    .collect();
                all.push(comparison(plan, metric, arm, &load.name, pairs, rng));
            }
        }
    }
    all
}

fn comparison(
    plan: &ExperimentPlan,
    metric: &ExperimentMetric,
    arm: &Arm,
    load: &str,
    pairs: Vec<BlockPair>,
    rng: &mut Rng,
) -> Comparison {
    let logs: f64 = pairs.iter().map(|pair| (pair.arm / pair.baseline).ln()).sum();
    let ratio = (logs / pairs.len() as f64).exp();
    let half = 0.004 + 0.002 * rng.f64();
    let (low, high) = (ratio * (1.0 - half), ratio * (1.0 + half));
    let outcome = if (1.0 - plan.effect..=1.0 + plan.effect).contains(&low)
        && (1.0 - plan.effect..=1.0 + plan.effect).contains(&high)
    {
        ComparisonOutcome::Equivalent
    } else if (low..=high).contains(&1.0) {
        ComparisonOutcome::Inconclusive
    } else if (ratio > 1.0) == (metric.better == BetterDirection::Higher) {
        ComparisonOutcome::Faster
    } else {
        ComparisonOutcome::Slower
    };
    Comparison {
        arm: arm.name.clone(),
        baseline: plan.baseline.clone(),
        load: load.to_owned(),
        metric: metric.name.clone(),
        primary: metric.name == plan.metrics[0].name,
        noise: arm.repeats.is_some(),
        pairs,
        ratio: Some(ratio),
        interval: Some((low, high)),
        p: Some(0.0005),
        p_adjusted: Some(0.002),
        better_fraction: Some(0.93),
        cliffs_delta: Some(0.86),
        outcome,
        concluded_after: Some(4),
        text: format!("{} against {}: {:.1} %", arm.name, plan.baseline, (ratio - 1.0) * 100.0),
        ..Comparison::default()
    }
}
