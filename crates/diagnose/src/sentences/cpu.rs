//! Answers for CPU time, memory and disks of the subject and the generator.

use record::run::Answer;
use record::units::{format_byte_rate, format_bytes, format_plural};

use super::answer;
use crate::facts::{Facts, format_number};
use crate::signals as s;
use crate::window::SUBJECT;

pub(crate) fn cpu_throttled(facts: &Facts<'_>) -> Answer {
    let quota = facts.quota_cpus();
    let size = quota.map_or_else(String::new, |quota| format!(" of {quota:.2} CPUs"));
    let withheld = facts.value(&s::SUBJECT_THROTTLED);
    let wanted = quota.zip(withheld).map(|(quota, withheld)| quota + withheld);
    let raise = wanted.map_or_else(
        || "raise the quota (`cpu.max`, `--cpus`, `limits.cpu`)".to_owned(),
        |wanted| format!("raise the quota (`cpu.max`, `--cpus`, `limits.cpu`) to {wanted:.1} CPUs or more"),
    );
    let worth = facts.rate_per_cpu().map_or_else(String::new, |rate| format!("each CPU is worth {rate}"));
    answer(
        format!(
            "a CPU quota{size} stops your service for a part of each period: {} is its ceiling",
            facts.rate()
        ),
        &[
            facts.phrase(&s::SUBJECT_QUOTA, "it was throttled in {} of the periods"),
            withheld.map_or_else(String::new, |cpus| format!("that withheld {cpus:.2} CPUs of work")),
            facts.phrase_from(0.01, &s::SUBJECT_OVER_QUOTA, "it used {} of the quota"),
        ],
        &[raise, worth],
    )
}

/// Answers for CPU time that the hypervisor took. Records from older versions have this verdict for other programs, too.
pub(crate) fn cpu_steal(facts: &Facts<'_>) -> Answer {
    if facts.value(&s::STOLEN_OF_TAKEN).is_some_and(|fraction| fraction < 0.5) {
        return cpu_contended(facts);
    }
    cpu_taken(
        facts,
        "other virtual machines of this host",
        "repeat the run later, or on a machine whose CPUs are its own",
    )
}

pub(crate) fn cpu_contended(facts: &Facts<'_>) -> Answer {
    cpu_taken(
        facts,
        "other programs",
        "stop the other programs (`weir watch` lists the busiest), or give your service CPUs of its own, and repeat the \
         run",
    )
}

fn cpu_taken(facts: &Facts<'_>, takers: &str, next: &str) -> Answer {
    answer(
        format!("{takers} take the CPU that your service needs: {} is not its ceiling", facts.rate()),
        &[
            facts.phrase(&s::SUBJECT_WAIT, "it waited for a CPU {} as long as it ran"),
            facts.phrase_from(0.05, &s::FOREIGN_CPUS, "other programs used {} CPUs"),
            facts.phrase_from(0.01, &s::STEAL, "other virtual machines took {} of the time"),
        ],
        &[next.to_owned()],
    )
}

pub(crate) fn client_bound(facts: &Facts<'_>) -> Answer {
    let threads = facts.view.run.generator.threads.max(1);
    answer(
        format!(
            "the load generator is at its limit, not your service: {} is what this machine can send",
            facts.rate()
        ),
        &[
            facts.phrase(&s::GENERATOR_THREAD, "the busiest of its threads was {} busy"),
            facts.cpu_phrase("your service used {}"),
            facts.phrase_from(1e7, &s::GENERATOR_LAG, "requests were sent {} late"),
            facts.closed_connections().replace("it ends", "your service ends"),
        ],
        &[
            facts.keep_connections(),
            format!(
                "generate the load with more threads (`-t {}`) or more machines (`weir fleet`)",
                threads * 2
            ),
            "keep it on other CPUs than your service, and do not use this rate as the service's ceiling"
                .to_owned(),
        ],
    )
}

pub(crate) fn log_write_bound(facts: &Facts<'_>) -> Answer {
    let written = facts.value(&s::DISK_WRITES).filter(|bytes| *bytes >= 1000.0);
    answer(
        format!(
            "your service waits for its own writes to a disk or a pipe (a log, a journal, fsync): {} is its ceiling",
            facts.rate()
        ),
        &[
            facts.phrase(&s::WRITES, "on average {} of its threads wait in a write"),
            written.map_or_else(String::new, |bytes| format!("it writes {}", format_byte_rate(bytes))),
            facts.phrase_from(0.05, &s::PIPE_SLEEP, "{} threads wait for the reader of a full pipe"),
            facts.cpu_phrase("it uses only {}"),
        ],
        &["write for many requests at once (one fsync for a group), and a log from a thread of its own with a bounded \
           queue, without O_SYNC; to test it, run once with the writes off: the rate rises"
            .to_owned()],
    )
}

pub(crate) fn memory_pressure(facts: &Facts<'_>) -> Answer {
    let limit = facts
        .view
        .role_median(SUBJECT, |role| Some(role.cgroup.as_ref()?.memory_max_bytes? as f64))
        .filter(|bytes| *bytes > 0.0);
    let raise = limit.map_or_else(
        || "give it more memory".to_owned(),
        |bytes| format!("raise its memory limit above {}", format_bytes(bytes)),
    );
    answer(
        "your service is short of memory: its requests wait for pages".to_owned(),
        &[
            facts.phrase_from(1.0, &s::MEMORY_LIMIT, "it hit its memory limit at a rate of {}"),
            facts.phrase_from(0.001, &s::MEMORY_PRESSURE, "tasks waited for memory in {} of the time"),
            facts.phrase_from(1.0, &s::MAJOR_FAULTS, "pages were read from disk at a rate of {}"),
            facts.phrase_from(1.0, &s::MEMORY_EVENTS, "TCP ran out of memory at a rate of {}"),
        ],
        &[
            raise,
            format!(
                "or let it use less: smaller buffers for each connection, fewer connections ({})",
                facts.halved_connections()
            ),
        ],
    )
}

pub(crate) fn handshake_bound(facts: &Facts<'_>) -> Answer {
    let run = facts.view.run;
    let sessions = run.tls.as_ref();
    let full = sessions.map_or(0, |tls| tls.full);
    answer(
        format!("TLS handshakes use up your service's CPU: {} is its ceiling", facts.rate()),
        &[
            facts.phrase(&s::HANDSHAKE, "they take {} of its CPU time"),
            sessions.map_or_else(String::new, |tls| {
                format!(
                    "there were {} and {} resumed ones for {}",
                    format_plural(full, "full handshake"),
                    tls.resumed,
                    format_plural(run.totals.requests, "request")
                )
            }),
            facts.cpu_phrase("it uses {}"),
        ],
        &["keep connections open, let clients resume sessions (tickets), and use an ECDSA certificate: a handshake costs \
           as much as many requests"
            .to_owned(), more_workers(facts)],
    )
}

pub(crate) fn bulk_crypto_bound(facts: &Facts<'_>) -> Answer {
    answer(
        format!("encrypting the bodies uses up your service's CPU: {} is its ceiling", facts.rate()),
        &[
            facts.phrase(&s::CRYPTO, "encryption takes {} of its CPU time"),
            format!("responses have {}, {} in all", facts.response_size(), facts.received_bits()),
            facts.cpu_phrase("it uses {}"),
        ],
        &[
            "send fewer bytes (compression), use AES instructions or kTLS, or add CPUs".to_owned(),
            per_cpu(facts),
        ],
    )
}

pub(crate) fn port_search_bound(facts: &Facts<'_>) -> Answer {
    answer(
        "your service spends its CPU on finding free local ports: each new connection to its servers tries thousands".to_owned(),
        &[
            facts.phrase_from(0.01, &s::PORT_SEARCH, "the search takes {} of its CPU time"),
            facts.phrase(&s::SUBJECT_PORTS_HELD, "{} of the ports are in use"),
            facts.phrase(&s::OUTGOING_CONNECTIONS, "it opens connections at a rate of {}"),
        ],
        &[
            "keep the connections to its servers open".to_owned(),
            "or add source addresses, or run `weir tune apply --host net.ipv4.tcp_tw_reuse=1` there".to_owned(),
        ],
    )
}

pub(crate) fn lock_contention(facts: &Facts<'_>) -> Answer {
    answer(
        format!("the threads of your service wait for one another: {} is its ceiling while CPUs are idle", facts.rate()),
        &[
            facts.phrase(&s::FUTEXES, "they make {} lock calls per request"),
            facts.phrase(&s::IDLE_CPUS, "{} CPUs are idle"),
            facts.waiting(),
        ],
        &["shorten what is done under the lock, or split it by key or by thread; `weir lab profile` shows which \
           functions lock"
            .to_owned(), facts.next_limit()],
    )
}

pub(crate) fn allocator_bound(facts: &Facts<'_>) -> Answer {
    answer(
        format!("your service spends its CPU on memory allocation: {} is its ceiling", facts.rate()),
        &[
            facts.phrase(&s::ALLOCATION, "allocation takes {} of its CPU time"),
            facts.cpu_phrase("it uses {}"),
        ],
        &["allocate less per request (pools, arenas), or try another allocator (`LD_PRELOAD` of jemalloc or mimalloc); \
           `weir lab profile --calls malloc` counts the calls"
            .to_owned(), per_cpu(facts)],
    )
}

pub(crate) fn softirq_imbalance(facts: &Facts<'_>) -> Answer {
    answer(
        format!("one CPU does the network processing for all of them: {} is the ceiling", facts.rate()),
        &[
            facts.phrase(&s::SOFTIRQ_MAX, "it spends {} of its time on packets"),
            facts.phrase(&s::SOFTIRQ_OTHERS_MAX, "the next one {}"),
            facts.phrase_from(2.0, &s::NET_RX_RATIO, "it takes {} as many receive interrupts"),
        ],
        &["spread the packets: more receive queues with their interrupts on several CPUs, or \
           `weir tune apply --host nic.rps_cpus@eth0=3` (your own interface and mask of CPUs)"
            .to_owned()],
    )
}

/// CPU time that is left for a second worker, as a part of that of the first, from which it carries as much.
const CPU_LEFT_MIN: f64 = 0.95;

pub(crate) fn single_thread_bound(facts: &Facts<'_>) -> Answer {
    let cpus =
        facts.view.machine(SUBJECT).and_then(|machine| machine.cpus_by_affinity(SUBJECT)).unwrap_or(1.0);
    let workers = format_number(cpus.max(2.0));
    let each = facts.value(&s::SUBJECT_THREAD).filter(|_| facts.view.goodput() > 0.0).map_or_else(
        String::new,
        |busy| {
            let worth = facts.rate_times(1.0 / busy.max(0.01));
            let left = facts.value(&s::IDLE_CPUS).filter(|idle| *idle < busy * CPU_LEFT_MIN);
            let left = left.map_or_else(String::new, |idle| format!(", and {idle:.2} CPUs are left here"));
            format!("each worker with a CPU of its own is worth about {worth}{left}")
        },
    );
    answer(
        format!("one thread of your service does the work, and is full: {} is its ceiling", facts.rate()),
        &[
            facts.phrase(&s::SUBJECT_THREAD, "that thread is {} busy"),
            facts.phrase_from(0.05, &s::IDLE_CPUS, "{} CPUs are idle"),
            facts.closed_connections(),
            facts.waiting(),
        ],
        &[
            facts.keep_connections(),
            format!(
                "run {workers} workers, one for each CPU (processes that share the port with SO_REUSEPORT, or threads)"
            ),
            each,
        ],
    )
}

pub(crate) fn kernel_cpu_bound(facts: &Facts<'_>) -> Answer {
    answer(
        full_cpu(facts, "in the kernel"),
        &[
            facts.cpu_phrase("it uses {}"),
            facts.phrase(&s::SUBJECT_SYSTEM, "{} of that in the kernel"),
            facts.phrase_from(0.1, &s::SYSTEM_CALLS, "a response takes {} system calls"),
            cost(facts),
            facts.closed_connections(),
        ],
        &[
            facts.keep_connections(),
            "use fewer and larger system calls (one write per response, keep-alive, sendfile), or add CPUs"
                .to_owned(),
            per_cpu(facts),
        ],
    )
}

pub(crate) fn user_cpu_bound(facts: &Facts<'_>) -> Answer {
    answer(
        full_cpu(facts, "in its own code"),
        &[
            facts.cpu_phrase("it uses {}"),
            facts.phrase(&s::SUBJECT_USER, "{} of that in its own code"),
            cost(facts),
            facts.busiest_function(),
            facts.closed_connections(),
        ],
        &[
            facts.keep_connections(),
            "make the busiest functions cheaper (`weir lab profile` lists them), or add CPUs".to_owned(),
            per_cpu(facts),
        ],
    )
}

/// Describes the step to more workers, if those that are full leave CPUs unused; else empty.
fn more_workers(facts: &Facts<'_>) -> String {
    let is_partial = facts.value(&s::IDLE_CPUS).is_some_and(|idle| idle >= UNUSED_MIN);
    let is_full = facts.value(&s::SUBJECT_THREAD).is_some_and(|busy| busy >= FULL_FROM);
    if is_partial && is_full { facts.cpu_phrase("run more workers: it uses only {}") } else { String::new() }
}

/// Idle CPUs from which more workers have room.
const UNUSED_MIN: f64 = 0.3;
/// Use of the busiest thread from which it is full.
const FULL_FROM: f64 = 0.9;

/// Describes a service that uses up its CPU, or gets only a part of CPUs that are full.
fn full_cpu(facts: &Facts<'_>, place: &str) -> String {
    let allowed = facts.view.machine(SUBJECT).and_then(|machine| machine.cpus_by_affinity(SUBJECT));
    let used =
        facts.value(&s::SUBJECT_CPUS).zip(allowed).filter(|(used, allowed)| *used < SHARED_MAX * allowed);
    match used.and_then(|_| facts.cpu_use()) {
        Some(part) => format!(
            "the CPUs are full, and your service gets {part} beside this load generator and other programs, most of it \
             {place}: {} is its ceiling here",
            facts.rate()
        ),
        None => format!("your service uses up its CPU, most of it {place}: {} is its ceiling", facts.rate()),
    }
}

/// Part of its CPUs below which a service does not use them up by itself.
const SHARED_MAX: f64 = 0.75;

/// Formats the CPU time of a response.
fn cost(facts: &Facts<'_>) -> String {
    facts.cpu_per_response().map_or_else(String::new, |time| format!("a response costs {time} of CPU time"))
}

/// Formats the rate that a CPU carries.
fn per_cpu(facts: &Facts<'_>) -> String {
    facts.rate_per_cpu().map_or_else(String::new, |rate| format!("each CPU is worth about {rate}"))
}
