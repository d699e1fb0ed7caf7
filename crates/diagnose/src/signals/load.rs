//! Signals of the load: its latencies and errors, the generator, and the places at which its requests wait.
//! Thresholds of verdicts are elsewhere.

use record::observed::ConnectionEnd;

use super::carried::{CARRIED_MIN, carried_fraction, good_response_fraction};
use super::compute::*;
use super::queueing;
use super::signal::{Signal, SignalFamily};
use crate::figures as f;
use crate::unit::Unit;
use crate::window::{GENERATOR, ORIGIN, SUBJECT, fraction as part_of};

/// CPU use from which the requests of a subject are work, and not sleep.
const BUSY_FROM_CPUS: f64 = 0.5;

medians! {
    GENERATOR_QUOTA: Quota, "quota periods in which the generator was throttled", role_median(GENERATOR, f::THROTTLED_PERIODS);
}

signals! {
    // The generator.
    GENERATOR_THREAD: Generator, Fraction, "busiest generator thread, running or waiting for a CPU",
        "schedstat of its threads; relative to its quota, if any", generator_thread;
    GENERATOR_THREAD_WITHOUT_SUBJECT: Generator, Fraction,
        "busiest generator thread, running or waiting, if the subject's CPU time is not observable",
        "schedstat of its threads; relative to its quota, if any", |view| {
            match subject_saturation(view) { None => generator_thread(view), Some(_) => None }
        };
    SUBJECT_OVER_GENERATOR: Generator, Ratio, "the subject's only busy thread over the busiest generator thread",
        "schedstat of their threads", subject_over_generator;
    GENERATOR_LAG: Generator, Nanoseconds, "generator lag, 99 %",
        "the generator's own clock: send (or wake-up) after due",
        |view| Some(view.run.generator.lag_p99_ns as f64);
    // Positions of waiting requests.
    GENERATOR_UNREAD: Queue, Fraction, "generator sockets with unread responses",
        "sock_diag rqueue > 0, median of the snapshots", |view| unread_fraction(view, GENERATOR, ConnectionEnd::Client);
    GENERATOR_UNREAD_WITHOUT_SUBJECT: Queue, Fraction,
        "generator sockets with unread responses, if the subject's are not observable",
        "sock_diag rqueue > 0, median of the snapshots", unread_without_subject;
    SUBJECT_UNREAD: Queue, Fraction, "subject sockets with unread requests",
        "sock_diag rqueue > 0, median of the snapshots", |view| unread_fraction(view, SUBJECT, ConnectionEnd::Server);
    ORIGIN_UNREAD: Queue, Fraction, "origin sockets with unread requests",
        "sock_diag rqueue > 0, median of the snapshots", |view| unread_fraction(view, ORIGIN, ConnectionEnd::Server);
    UNREAD_RESPONSES_OVER_REQUESTS: Queue, Ratio, "unread responses over unread requests",
        "sock_diag, sockets of both ends", |view| {
            // The work of a generator that opens a connection for each request is not in its responses.
            let totals = &view.run.totals;
            (totals.connections.opened < totals.responses / 2).then_some(())?;
            let (client, server) =
                (unread_fraction(view, GENERATOR, ConnectionEnd::Client)?, unread_fraction(view, SUBJECT, ConnectionEnd::Server)?);
            Some((client + QUEUE_FLOOR) / (server + QUEUE_FLOOR))
        };
    IN_FLIGHT_FRACTION: Latency, Fraction, "requests in flight, of the connections, or their streams",
        "counted by the generator", |view| {
            Some(part_of(view.run.generator.in_flight_mean, view.run.request_slots()))
        };
    LITTLE_ERROR: Latency, Fraction, "difference of rate × latency from the requests in flight",
        "Little's law", |view| {
            let generator = &view.run.generator;
            let in_flight = generator.in_flight_mean;
            (in_flight > 0.0).then(|| (generator.in_flight_by_littles_law - in_flight).abs() / in_flight)
        };
    LATENCY_SPREAD: Latency, Ratio, "p90 over p50 of the latency", "the latency histogram",
        |view| {
            let latency = &view.run.latency.last_byte.service;
            (latency.p50_ns > 0).then(|| latency.p90_ns as f64 / latency.p50_ns as f64)
        };
    TRANSFER_PART: Latency, Fraction, "time from the first byte to the last, of the latency",
        "means of the latency histograms", |view| {
            let latency = &view.run.latency;
            let total_ns = latency.last_byte.service.mean_ns;
            (total_ns > 0.0).then(|| ((total_ns - latency.first_byte.service.mean_ns) / total_ns).max(0.0))
        };
    LATENCY_OVER_CPU_TIME: Latency, Ratio, "latency of a request over its CPU time",
        "latency p50 / (subject and origin CPU time per response)", |view| {
            let used = cpus(view, SUBJECT)? + cpus(view, ORIGIN).unwrap_or(0.0);
            let each_ns = used * 1e9 / responses_per_s(view)?;
            // CPU time below the clock's resolution gives no ratio.
            (used > 0.0).then(|| view.run.latency.last_byte.service.p50_ns as f64 / each_ns.max(1_000.0))
        };
    QUEUEING: Latency, Fraction, "waiting time, of the latency under load",
        "1 - R(1) / R(N): latency of single requests before the load, and under load",
        queueing::queueing_fraction;
    QUEUEING_BEFORE_STALL: Latency, Fraction,
        "waiting before the first byte, of responses whose body waits for an acknowledgement",
        "R(1) and the latency under load, both without 40 ms", queueing::queueing_before_stall;
    LATENCY_OVER_FASTEST: Latency, Ratio, "median latency over that of the fastest response",
        "the latency histogram, of a load without a baseline", queueing::latency_over_fastest;
    PARALLELISM: Latency, Count, "requests served at a time, from the latency without load",
        "rate × R(1)", queueing::parallelism;
    CPU_WAIT_OF_REQUEST: Scheduler, Fraction, "time that a request waits for a CPU, of its time without queue, if the subject uses little",
        "schedstat of the subject's threads / (rate × R(1))", |view| {
            // One that needs much CPU time is limited by it, however long a request takes alone.
            cpus(view, SUBJECT).filter(|used| *used < BUSY_FROM_CPUS)?;
            let demand_cpus = view.role_median(SUBJECT, f::CPU_DEMAND.read)?;
            let over_running = view.role_median(SUBJECT, f::WAIT_RATIO.read)?;
            let at_a_time = queueing::parallelism(view).filter(|number| *number > 0.0)?;
            Some(demand_cpus * over_running / (1.0 + over_running) / at_a_time)
        };
    PARALLELISM_OVER_POOL: Latency, Ratio, "requests served at a time over connections to the origin",
        "rate × R(1), sock_diag", |view| {
            Some(queueing::parallelism(view)? / queueing::pool_size(view)?)
        };
    POOL_BUSY: Queue, Fraction, "connections to the origin that wait for a response",
        "TCP_INFO last_data_sent, last_data_recv; median of the snapshots", queueing::busy_pool_fraction;
    AT_ORIGIN: Queue, Fraction, "requests in flight that wait for an origin's response",
        "TCP_INFO of the subject's connections to its origins", queueing::at_origin_fraction;
    ORIGIN_QUEUEING: Queue, Fraction, "waiting time at the origins beyond R(1), of the latency",
        "requests at the origins by Little's law, R(1)", queueing::origin_queueing;
    ORIGIN_SLOWDOWN: Queue, Ratio, "time of a request at the origins, over its latency without load",
        "requests at the origins by Little's law, R(1)", queueing::origin_slowdown;
    ORIGIN_ACCEPT_QUEUE: Queue, Fraction,
        "requests in flight whose connection an origin has not accepted",
        "sock_diag and unix_diag, accept queues of the origins' listening sockets",
        queueing::origin_accept_queue;
    OFFERED_MISSED: Latency, Fraction, "offered requests without a good response", "count of the open loop",
        |view| Some(1.0 - good_response_fraction(view)?);
    CARRIED: Latency, Fraction, "load that was served in time",
        "count of the open loop, or R(1) of a loop with think time; 0 if requests queue up, or an \
         objective is missed",
        carried_fraction;
    OBJECTIVES_MISSED: Latency, Count, "missed objectives", "generator", |view| {
        Some(view.run.objectives.iter().filter(|objective| !objective.met).count() as f64)
    };
    CARRIED_LATE: Latency, Fraction,
        "requests delayed by a retransmission, of an offered load that was served in time",
        "count of the open loop, the latency histogram", |view| {
            carried_fraction(view).filter(|fraction| *fraction >= CARRIED_MIN)?;
            retransmission_mode(view)
        };
    // Errors.
    VALID_RESPONSES: Errors, Fraction, "requests with a valid response", "generator", |view| {
        let totals = &view.run.totals;
        let requests = totals.requests as f64;
        (requests > 0.0).then(|| 1.0 - part_of(totals.failed() as f64, requests))
    };
    ERRORS_OVER_BOUND: Errors, Ratio, "failed requests above the limit of --max-error-rate", "generator",
        |view| {
            let error_fraction_max = view.run.plan["max_error_rate"].as_f64().unwrap_or(0.001);
            Some((ERRORS.read)(view)? / error_fraction_max.max(1e-9))
        };
    ERRORS: Errors, Fraction, "requests without a good response", "generator",
        |view| Some(view.run.totals.error_fraction());
    ERROR_RESPONSES: Errors, Fraction, "bad responses (status 400 or above, or unexpected)", "generator", |view| {
        let totals = &view.run.totals;
        Some(part_of(totals.bad() as f64, totals.requests as f64))
    };
    BROKEN: Errors, Fraction,
        "refused, reset or truncated connections, failed TLS sessions, and malformed responses",
        "generator", |view| {
            Some(view.error_fraction(&["reset", "closed", "parse", "tls_port", "refused", "check", "tls", "stream_reset", "refused_stream"]))
        };
    UNUSABLE: Errors, Fraction, "broken or bad responses; all, if none was good", "generator", |view| {
        let nothing_good = view.run.totals.requests > 0 && view.run.totals.good() == 0;
        let broken = (BROKEN.read)(view)?.max((ERROR_RESPONSES.read)(view)?);
        Some(if nothing_good { 1.0 } else { broken })
    };
    RESETS: Counters, PerSecond, "resets", "Tcp EstabResets, OutRsts",
        |view| counter_of_both_ends(view, &["Tcp.EstabResets", "Tcp.OutRsts"]);
}
