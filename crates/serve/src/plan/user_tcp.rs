//! Flags of TCP in user space (`--xdp`), and what it does not go with.

use std::net::{SocketAddr, SocketAddrV4};

use rt::address::Address;
use rt::user_tcp::UserTcpPlan;

use super::{FlagProblems, OriginPlanText};

/// Returns the settings of TCP in user space, if there are any. It has one thread, as the interface has one queue.
pub(super) fn parse(
    text: &OriginPlanText,
    threads: &mut usize,
    listen: &[Address],
    problems: &mut FlagProblems,
) -> Option<UserTcpPlan> {
    if text.xdp.is_empty() {
        if text.xdp_exposed {
            problems.add("--xdp-exposed", "no effect without --xdp INTERFACE");
        }
        return None;
    }
    if !text.threads.is_empty() && *threads != 1 {
        problems.add("--threads", "--xdp works with one queue of the interface, and one thread: -t 1");
    }
    *threads = 1;
    if text.listen.is_empty() {
        problems.add("--listen", "--xdp needs an address of the interface: --listen 10.0.0.1:80");
    } else if ipv4_addresses(listen).len() < listen.len() {
        problems.add(
            "--listen",
            "--xdp has IPv4 only: name addresses of the interface with a port, such as 10.0.0.1:80",
        );
    }
    let tls = &text.tls;
    if tls.self_signed || !tls.certificates.is_empty() {
        problems.add("--xdp", "TCP in user space has no TLS: leave out the TLS flags");
    }
    Some(UserTcpPlan { interface: text.xdp.clone(), may_be_exposed: text.xdp_exposed })
}

/// Returns the addresses that TCP in user space can have.
pub(super) fn ipv4_addresses(listen: &[Address]) -> Vec<SocketAddrV4> {
    let usable = |address: &Address| match address {
        Address::Tcp(SocketAddr::V4(address)) if address.port() != 0 && !address.ip().is_unspecified() => {
            Some(*address)
        }
        _ => None,
    };
    listen.iter().filter_map(usable).collect()
}

#[cfg(test)]
mod tests {
    use super::super::OriginPlan;
    use super::*;
    use crate::plan::OriginTlsText;

    fn text(listen: &[&str]) -> OriginPlanText {
        let listen = listen.iter().map(ToString::to_string).collect();
        OriginPlanText { xdp: "eth1".into(), listen, ..OriginPlanText::default() }
    }

    #[test]
    fn an_interface_has_one_thread_and_addresses_of_ipv4() {
        let plan = OriginPlan::parse(&text(&["10.0.0.1:80", "10.0.0.1:81"])).unwrap();
        assert_eq!(plan.threads, 1);
        assert_eq!(plan.user_tcp.unwrap(), UserTcpPlan { interface: "eth1".into(), may_be_exposed: false });
        for listen in [&[][..], &[":80"], &["[::1]:80"], &["10.0.0.1:0"], &["unix:/tmp/s"]] {
            let problems = OriginPlan::parse(&text(listen)).unwrap_err();
            assert_eq!((problems.len(), &problems[0].location[..]), (1, "--listen"), "{listen:?}");
        }
    }

    #[test]
    fn what_does_not_work_is_said() {
        let mut text = text(&["10.0.0.1:80"]);
        text.threads = "2".into();
        text.tls = OriginTlsText { self_signed: true, ..OriginTlsText::default() };
        let problems = OriginPlan::parse(&text).unwrap_err();
        let locations: Vec<_> = problems.iter().map(|problem| &problem.location[..]).collect();
        assert_eq!(locations, ["--threads", "--xdp"]);
        let exposed = OriginPlanText { xdp_exposed: true, ..OriginPlanText::default() };
        assert_eq!(OriginPlan::parse(&exposed).unwrap_err()[0].location, "--xdp-exposed");
    }
}
