//! Answers for requests that wait although no resource of the subject is full.

use record::run::Answer;

use super::answer;
use crate::facts::{Facts, Slots, format_ns, format_number};
use crate::signals as s;
use crate::sleep_evidence::main_sleep;
use crate::sleeps::WaitsFor;

/// Fraction of the latency from which the kernel's wait for an acknowledgement is named.
const STALL_MIN: f64 = 0.1;

pub(crate) fn origin_bound(facts: &Facts<'_>) -> Answer {
    let slots = facts.origin_slots();
    let next = match slots {
        Some((count, _)) => format!(
            "raise their number of workers, their pool or their semaphore (each slot is worth {}), or add servers; a \
             cache in your service keeps requests away from them",
            facts.rate_times(1.0 / count)
        ),
        None => "add servers or make them faster; `weir edge` on one of them alone shows its ceiling, and a cache in your \
                 service keeps requests away from them"
            .to_owned(),
    };
    answer(
        format!(
            "the servers behind your service are full: {} is their ceiling, not that of your service",
            facts.rate()
        ),
        &[
            facts.phrase(&s::AT_ORIGIN, "{} of the requests in flight wait for them"),
            facts.phrase_from(
                0.05,
                &s::ORIGIN_ACCEPT_QUEUE,
                "{} of the requests in flight wait in an accept queue there",
            ),
            facts.phrase_from(0.05, &s::ORIGIN_AT_LIMIT, "their CPU or busiest thread is {} used"),
            facts.phrase_from(1.05, &s::ORIGIN_SLOWDOWN, "they take {} as long as without load"),
            slots.map_or_else(String::new, |(count, each_ns)| {
                let requests = record::units::format_plural(count as u64, "request");
                format!("they work on {requests} at a time, {} each", format_ns(each_ns))
            }),
            facts.cpu_phrase("your service uses only {}"),
        ],
        &[next],
    )
}

pub(crate) fn connection_limited(facts: &Facts<'_>) -> Answer {
    let pool = facts.pool();
    let size = pool.map_or_else(|| "its".to_owned(), format_number);
    let each = pool.map_or_else(String::new, |pool| {
        format!(
            "each connection is worth {} while the servers behind have room",
            facts.rate_times(1.0 / pool)
        )
    });
    answer(
        format!(
            "your service sends requests on through only {size} connections: {} is its ceiling",
            facts.rate()
        ),
        &[
            format!("{} requests are in flight, and the others queue", facts.in_flight()),
            facts.phrase(&s::POOL_BUSY, "{} of the connections wait for a response"),
            facts.phrase_from(
                0.001,
                &s::ORIGIN_THREAD,
                "the busiest thread of the servers behind uses {} of a CPU",
            ),
        ],
        &[format!("raise the limit of connections (maxconn, pool size) above {size}"), each],
    )
}

pub(crate) fn latency_bound(facts: &Facts<'_>) -> Answer {
    let is_open = facts.view.run.rates.offered_per_s.is_some();
    let pace = match facts.is_transfer() {
        true => "raise what paces a response in your service (a limit of bytes per second, small buffers, pauses between \
                 its parts), or send fewer bytes (compression)"
            .to_owned(),
        false => String::new(),
    };
    let more = match is_open {
        true if facts.is_transfer() => String::new(),
        true => {
            "to answer sooner, shorten what a request waits for: a call to another service, a timer, a disk"
                .to_owned()
        }
        false => format!(
            "use more connections: {} would carry about {}",
            facts.doubled_connections(),
            facts.rate_times(2.0)
        ),
    };
    let waiting = facts.alone_ns().map_or_else(String::new, |alone_ns| {
        format!("a request takes {} alone and {} under this load", format_ns(alone_ns), facts.mean())
    });
    answer(
        match is_open {
            true => format!("nothing is full: each request simply takes {}, whatever the load", facts.mean()),
            false => format!(
                "nothing is full: each request takes {} whatever the load, so {} no more than {}",
                facts.mean(),
                facts.connections_carry(),
                facts.rate()
            ),
        },
        &[
            waiting,
            facts.transfer(),
            facts.cpu_phrase("your service uses {}"),
            facts.phrase_from(0.5, &s::IDLE_CPUS, "{} CPUs are idle"),
            facts.sleep(),
        ],
        &[pace, more, facts.next_limit()],
    )
}

pub(crate) fn subject_limited(facts: &Facts<'_>) -> Answer {
    let idle = match main_sleep(facts.view) {
        Some(_) => facts.sleep(),
        None => String::new(),
    };
    let worth = match facts.slots() {
        Some(Slots::Number { count: 1.0, .. }) => {
            format!("a second one at a time is worth another {}", facts.rate())
        }
        Some(Slots::Number { count, .. }) => {
            format!("each slot is worth {}", facts.rate_times(1.0 / count))
        }
        _ => String::new(),
    };
    answer(
        ceiling(facts, "your service"),
        &[facts.waiting(), held_back(facts), facts.cpu_phrase("it uses only {}"), idle],
        &[limit_to_raise(facts), worth, without_stall(facts), facts.next_limit()],
    )
}

/// Returns the fraction of the latency in which the kernel holds the body of a response back, if that is worth a word.
fn stall_part(facts: &Facts<'_>) -> Option<f64> {
    facts.value(&s::QUEUEING_BEFORE_STALL)?;
    facts.value(&s::TRANSFER_STALL).filter(|part| *part >= STALL_MIN)
}

/// Names the part of each response in which the kernel holds its body back; empty if there is none.
fn held_back(facts: &Facts<'_>) -> String {
    stall_part(facts).map_or_else(String::new, |part| {
        format!(
            "each response also waits 40 ms for an acknowledgement between head and body, {:.0} % of the latency, which \
             occupies no worker",
            part * 100.0
        )
    })
}

/// Names the change that takes the wait for the acknowledgement away.
fn without_stall(facts: &Facts<'_>) -> String {
    stall_part(facts).map_or_else(String::new, |_| {
        "apart from that, TCP_NODELAY or one write for head and body takes 40 ms from each response as soon as nothing queues"
            .to_owned()
    })
}

/// Describes the ceiling of a subject whose requests queue.
pub(crate) fn ceiling(facts: &Facts<'_>, subject: &str) -> String {
    let rate = facts.rate();
    match facts.slots() {
        Some(Slots::ByTime { alone_ns }) => format!(
            "{subject} lets {rate} through and no more, although a request alone takes only {}: requests wait for \
             time to pass, not for work",
            format_ns(alone_ns)
        ),
        Some(Slots::Number { count: 1.0, each_ns, .. }) => format!(
            "{subject} works on one request at a time, {} each: {rate} is its ceiling",
            format_ns(each_ns)
        ),
        Some(Slots::Number { count, is_about, each_ns }) => format!(
            "{subject} works on {}{} requests at a time, {} each: {rate} is its ceiling",
            if is_about { "about " } else { "" },
            format_number(count),
            format_ns(each_ns)
        ),
        None => format!("requests queue at {subject}: {rate} is its ceiling"),
    }
}

/// Names the limit to raise, by what the threads of the subject sleep on.
fn limit_to_raise(facts: &Facts<'_>) -> String {
    if matches!(facts.slots(), Some(Slots::ByTime { .. })) {
        return "raise or remove the rate limit, the sleep or the timer that paces its requests".to_owned();
    }
    let sleep = main_sleep(facts.view);
    let function = sleep.as_ref().map_or("", |sleep| sleep.function);
    match sleep.as_ref().map(|sleep| sleep.event) {
        Some(WaitsFor::Futex) if matches!(facts.slots(), Some(Slots::Number { count: 1.0, .. })) => format!(
            "shorten what a request does under the lock that `{function}` waits for, or split the lock; if it is a pool or \
             a single worker, raise that, or add a process"
        ),
        Some(WaitsFor::Futex) => format!("raise the pool, semaphore or number of workers behind `{function}`, or add a process"),
        Some(WaitsFor::Timer) => format!("shorten the sleep or the timer of its workers (in the kernel: `{function}`), or run more workers"),
        Some(WaitsFor::Socket) => {
            "raise the pool of connections to the database or service that it calls, or make that answer sooner".to_owned()
        }
        Some(WaitsFor::Disk | WaitsFor::FullPipe | WaitsFor::EmptyPipe | WaitsFor::FileLock) => {
            format!("remove the wait in `{function}` from the path of a request, or raise the number of workers")
        }
        Some(WaitsFor::ChildProcess) => "raise the number of child processes that it waits for".to_owned(),
        _ if matches!(facts.slots(), Some(Slots::Number { count: 1.0, .. })) => {
            "find what lets in one request at a time (a lock, a single worker, one connection to a database), and shorten \
             or split it, or add a process"
                .to_owned()
        }
        _ => "raise its number of workers, its pool or its semaphore, or add a process".to_owned(),
    }
}
