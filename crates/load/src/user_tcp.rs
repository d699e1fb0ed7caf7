//! TCP in user space of a load: the opening of its interface, and its part of the record.

use record::run::{HandshakeTimes, UserTransport};
use record::units::MILLISECOND_NS;
use rt::address::Address;
use rt::clock::now_ns;
use rt::user_tcp::{UserTcpPort, UserTcpRoutes, UserTcpSurvey};

use crate::core_state::CoreState;
use crate::measurement::RunError;
use crate::plan::{RunPlan, tcp_targets};

/// Maximum time in which the servers may close the connections after the load.
const CLOSE_NS_MAX: u64 = 200 * MILLISECOND_NS;

/// Reads the interface of a load and checks what it would take from the kernel; `None`: the load uses the kernel's TCP.
///
/// # Errors
/// A name cannot be resolved, an address is not of TCP, or there is no such interface.
pub fn survey(plan: &RunPlan) -> Result<Option<UserTcpSurvey>, RunError> {
    if plan.xdp.is_none() {
        return Ok(None);
    }
    let addresses = plan.authorities().into_iter().map(|authority| plan.addresses_of(authority));
    let addresses: Vec<Vec<Address>> = addresses.collect::<Result<_, _>>().map_err(RunError::Resolve)?;
    survey_addresses(plan, &addresses)
}

fn survey_addresses(plan: &RunPlan, addresses: &[Vec<Address>]) -> Result<Option<UserTcpSurvey>, RunError> {
    let Some(xdp) = &plan.xdp else { return Ok(None) };
    let failed = |text: String| RunError::Io(std::io::Error::other(text));
    let targets = tcp_targets(addresses.iter().flatten())
        .map_err(|address| failed(format!("--xdp has TCP only, and {address} is a unix socket")))?;
    let survey = UserTcpSurvey::for_client(&xdp.settings(plan.threads), &targets)
        .map_err(|error| failed(error.to_string()))?;
    let ports = survey.port_count();
    if plan.connections > ports as u64 {
        let text = format!(
            "--xdp has {ports} ports for {} connections: use fewer, or another net.ipv4.ip_local_port_range",
            plan.connections
        );
        return Err(failed(text));
    }
    Ok(Some(survey))
}

/// Takes the packets of the targets from the kernel, if the plan has TCP in user space: returns a port for each core.
///
/// # Errors
/// Those of [`survey`]; every problem of the interface.
pub(crate) fn open(
    plan: &RunPlan,
    addresses: &[Vec<Address>],
) -> Result<(Vec<UserTcpPort>, UserTcpRoutes), RunError> {
    let Some(survey) = survey_addresses(plan, addresses)? else { return Ok(Default::default()) };
    match survey.open(usize::MAX) {
        Ok(opened) => Ok(opened),
        Err(problems) => {
            let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
            Err(RunError::Io(std::io::Error::other(texts.join("; "))))
        }
    }
}

/// Returns the part of the record that is known before the load.
pub(crate) fn describe_transport(port: &UserTcpPort) -> UserTransport {
    let facts = port.facts();
    UserTransport {
        kind: "xdp".to_owned(),
        interface: facts.name.clone(),
        driver: facts.driver.clone(),
        mode: port.mode().name().to_owned(),
        mtu: facts.mtu,
        queues: facts.queues,
        verifies_checksums: facts.verifies_checksums(),
        received: 0,
        sent: 0,
        retransmitted: 0,
        unusable: 0,
        receive_ring_full: 0,
        fill_ring_empty: 0,
        dropped: 0,
        transmit_ring_full: 0,
        zero_windows: 0,
        handshakes: HandshakeTimes::default(),
        handed_over: 0,
    }
}

/// Closes the connections of a core, and adds its counts.
pub(crate) async fn end_transport(
    core: &CoreState,
    transport: Option<UserTransport>,
) -> Option<Box<UserTransport>> {
    let (tcp, transport) = (core.user_tcp.as_ref()?, transport?);
    tcp.wait_until_closed(&core.timers, now_ns() + CLOSE_NS_MAX).await;
    let counts = tcp.counts();
    let times = counts.stack.round_trips;
    Some(Box::new(UserTransport {
        received: counts.port.received,
        sent: counts.stack.sent,
        retransmitted: counts.stack.retransmitted,
        unusable: counts.stack.malformed + counts.stack.unknown,
        receive_ring_full: counts.kernel.ring_full,
        fill_ring_empty: counts.kernel.fill_empty,
        dropped: counts.kernel.dropped + counts.stack.handover_full,
        transmit_ring_full: counts.port.unsent,
        zero_windows: counts.stack.zero_windows,
        handshakes: HandshakeTimes {
            count: times.count,
            mean_ns: times.sum_ns / times.count.max(1),
            min_ns: times.min_ns,
            max_ns: times.max_ns,
        },
        handed_over: counts.stack.handed_over,
        ..transport
    }))
}
