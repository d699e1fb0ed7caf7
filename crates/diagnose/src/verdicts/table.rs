//! Rows of the table of bottlenecks, in their order.

mod failures;
mod network;
mod rejections;
mod resources;
mod waiting;

use super::rule::VerdictRule;

/// All verdicts except `unknown` and `none`, causes before their consequences: if two hold, the
/// earlier one explains the later, unless it [yields](VerdictRule::yielding).
pub static VERDICTS: &[VerdictRule] = &[
    failures::PORT_EXHAUSTION,
    failures::FD_LIMIT,
    failures::CONNTRACK_FULL,
    failures::ACCEPT_BACKLOG_OVERFLOW,
    failures::SYN_BACKLOG_OVERFLOW,
    rejections::RATE_LIMITED,
    resources::CPU_THROTTLED,
    resources::CPU_STEAL,
    resources::CPU_CONTENDED,
    resources::CLIENT_BOUND,
    network::BUFFERBLOAT,
    network::LINK_BOUND,
    network::PACKET_RATE_BOUND,
    network::RECEIVE_WINDOW_BOUND,
    network::H2_WINDOW_BOUND,
    network::PACKET_LOSS,
    network::DELAYED_ACK_STALL,
    resources::LOG_WRITE_BOUND,
    resources::MEMORY_PRESSURE,
    waiting::ORIGIN_BOUND,
    resources::HANDSHAKE_BOUND,
    resources::BULK_CRYPTO_BOUND,
    resources::PORT_SEARCH_BOUND,
    resources::LOCK_CONTENTION,
    resources::ALLOCATOR_BOUND,
    resources::SOFTIRQ_IMBALANCE,
    resources::SINGLE_THREAD_BOUND,
    resources::KERNEL_CPU_BOUND,
    resources::USER_CPU_BOUND,
    waiting::CONNECTION_LIMITED,
    failures::RUN_INVALID,
    waiting::LATENCY_BOUND,
    waiting::SUBJECT_LIMITED,
    waiting::MEMORY_BANDWIDTH_BOUND,
    waiting::NUMA_REMOTE,
];
