//! Answers for links, queues and packets between the generator and the subject.

use record::observed::ConnectionEnd;
use record::run::Answer;

use super::answer;
use crate::facts::{Facts, format_ns};
use crate::signals as s;
use crate::window::SUBJECT;

pub(crate) fn bufferbloat(facts: &Facts<'_>) -> Answer {
    answer(
        facts.phrase_or(
            &s::ROUND_TRIP_EXCESS,
            "a deep queue before a network link delays every packet by {}, and your service is not slow",
            "a deep queue before a network link delays every packet, and your service is not slow",
        ),
        &[
            facts.phrase(&s::ROUND_TRIP, "a round trip takes {} as long as the shortest"),
            facts.phrase_from(1e6, &s::LINK_QUEUE, "the queue holds {} of traffic"),
            facts.phrase_from(0.01, &s::LINK, "the link is {} used"),
        ],
        &[format!(
            "use `fq_codel` at that queue (`tc qdisc replace dev LINK root fq_codel`) and \
             `weir tune apply --host net.ipv4.tcp_notsent_lowat=131072`; half the connections ({}) get the same {} \
             with less delay",
            facts.halved_connections(),
            facts.rate()
        )],
    )
}

pub(crate) fn link_bound(facts: &Facts<'_>) -> Answer {
    answer(
        format!(
            "the network link is full: {} of responses with {} each are all that it carries",
            facts.rate(),
            facts.response_size()
        ),
        &[
            facts.phrase(&s::LINK, "it is {} used"),
            format!("this load receives {}", facts.received_bits()),
            facts.cpu_phrase("your service uses only {}"),
        ],
        &[
            format!(
                "make responses smaller: compressed to half of {}, twice {} fit",
                facts.response_size(),
                facts.rate()
            ),
            "or use a faster link: `weir plan run.json --link 10G` computes it from the record of this load"
                .to_owned(),
        ],
    )
}

pub(crate) fn packet_rate_bound(facts: &Facts<'_>) -> Answer {
    answer(
        format!("the number of packets is the limit, not their bytes: {} is the ceiling", facts.rate()),
        &[
            facts.phrase(&s::PACKET_BYTES, "a packet has only {}"),
            facts.phrase(&s::PACKETS_DELAYED, "packets waited or were dropped at a rate of {}"),
            facts.phrase_from(0.5, &s::SOFTIRQ_MAX, "the network processing fills {} of one CPU"),
        ],
        &["send fewer and larger packets: head and body in one write, GRO and TSO on, more queues \
           (`weir tune check --all` lists them for this host)"
            .to_owned()],
    )
}

pub(crate) fn receive_window_bound(facts: &Facts<'_>) -> Answer {
    let is_download = facts.view.run.totals.bytes_in >= facts.view.run.totals.bytes_out;
    let (receiver, place) = match is_download {
        true => ("the load generator", "add threads (`-t`) or machines to this load"),
        false => ("your service", "let the service read its requests faster, in more threads"),
    };
    answer(
        format!("{receiver} reads more slowly than the other end can send: the TCP receive window is full"),
        &[
            facts
                .phrase(&s::RECEIVE_WINDOW, "senders waited for it in {} of the time in which they had data"),
            facts.phrase_from(1.0, &s::NOT_SENT, "{} wait in their sockets"),
            facts.cpu_phrase("your service uses {}"),
        ],
        &[
            place.to_owned(),
            format!(
                "if the reader is idle, enlarge the window: `weir tune apply --host 'net.ipv4.tcp_rmem=4096 131072 \
                 33554432'`; or use {}",
                facts.doubled_connections()
            ),
        ],
    )
}

pub(crate) fn h2_window_bound(facts: &Facts<'_>) -> Answer {
    answer(
        facts.phrase_or(
            &s::ROUND_TRIP_MIN,
            "each connection moves one HTTP/2 window per round trip of {}, and then waits",
            "each connection moves one HTTP/2 window per round trip, and then waits",
        ),
        &[
            facts.phrase(&s::HTTP2_WINDOW, "{} of the window arrives in each round trip"),
            format!("{} connections carry {} so", facts.connections(), facts.received_bits()),
            facts.cpu_phrase("your service uses only {}"),
        ],
        &[format!(
            "enlarge the window at the receiver (SETTINGS_INITIAL_WINDOW_SIZE and the connection's) to bandwidth × round \
             trip, or use {}: twice the connections have twice the windows",
            facts.doubled_connections()
        )],
    )
}

pub(crate) fn packet_loss(facts: &Facts<'_>) -> Answer {
    let without = facts.value(&s::LOSS_COST).map_or_else(String::new, |cost| {
        format!(
            "without it a request would take about {}",
            format_ns(facts.loaded_ns() * (1.0 - cost).max(0.0))
        )
    });
    answer(
        facts.phrase_or(
            &s::RETRANSMITTED,
            "the network loses packets: {} of them are sent again",
            "the network loses packets, and they are sent again",
        ),
        &[
            facts.phrase(&s::LOSS_COST, "waiting for them is {} of the latency"),
            facts.phrase_from(0.001, &s::RETRANSMISSION_MODE, "{} of the requests waited 200 ms or more for one"),
            without,
        ],
        &["find where they are dropped: `weir watch` on both machines lists the drops of interfaces, queues and \
           connection tracking; until then, BBR tolerates random loss better"
            .to_owned()],
    )
}

pub(crate) fn delayed_ack_stall(facts: &Facts<'_>) -> Answer {
    let p50_ns = facts.view.run.latency.last_byte.service.p50_ns as f64;
    answer(
        "responses wait 40 ms for an acknowledgement: your service writes them in small pieces".to_owned(),
        &[
            facts.phrase_from(0.01, &s::DELAYED_ACK_MODE, "{} of the requests took 39 to 48 ms"),
            facts.phrase_from(0.01, &s::TRANSFER_STALL, "that is {} of the latency, after the first byte"),
            format!("the median is {}", format_ns(p50_ns)),
            facts.phrase_from(
                1.0,
                &s::UNSENT_WITH_OPEN_WINDOW,
                "{} wait in sockets although the window is open",
            ),
        ],
        &["set TCP_NODELAY, or write head and body in one call: the 40 ms are gone, whatever the load"
            .to_owned()],
    )
}

/// Formats the shortest round trip that TCP measured, at either end.
pub(super) fn round_trip(facts: &Facts<'_>) -> Option<String> {
    let of = |role, end| {
        facts.view.ends_median(role, end, |ends| Some(ends.rtt_min_us * 1e3).filter(|ns| *ns > 0.0))
    };
    let subject = of(SUBJECT, ConnectionEnd::Server);
    subject.or_else(|| of(crate::window::GENERATOR, ConnectionEnd::Client)).map(format_ns)
}
