//! Flags of TCP in user space (`--xdp`), and what it does not go with.

use std::net::SocketAddr;

use rt::address::Address;
use rt::user_tcp::UserTcpPlan;

use super::{FlagProblems, OriginPlanText};

/// Returns the settings of TCP in user space, if there are any. It has one thread by default, as many interfaces have one
/// queue.
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
    if text.threads.is_empty() {
        *threads = 1;
    }
    if text.listen.is_empty() {
        problems.add("--listen", "--xdp needs an address of the interface: --listen 10.0.0.1:80");
    } else if tcp_addresses(listen).len() < listen.len() {
        problems.add(
            "--listen",
            "--xdp takes exact addresses: name those of the interface with a port, such as 10.0.0.1:80",
        );
    }
    Some(UserTcpPlan { interface: text.xdp.clone(), threads: *threads, may_be_exposed: text.xdp_exposed })
}

/// Returns the addresses that TCP in user space can have.
pub(super) fn tcp_addresses(listen: &[Address]) -> Vec<SocketAddr> {
    let usable = |address: &Address| match address {
        Address::Tcp(address) if address.port() != 0 && !address.ip().is_unspecified() => Some(*address),
        _ => None,
    };
    listen.iter().filter_map(usable).collect()
}

#[cfg(test)]
mod tests {
    use super::super::OriginPlan;
    use super::*;

    fn text(listen: &[&str]) -> OriginPlanText {
        let listen = listen.iter().map(ToString::to_string).collect();
        OriginPlanText { xdp: "eth1".into(), listen, ..OriginPlanText::default() }
    }

    #[test]
    fn an_interface_has_one_thread_by_default_and_exact_addresses() {
        let plan = OriginPlan::parse(&text(&["10.0.0.1:80", "10.0.0.1:81"])).unwrap();
        assert_eq!(plan.threads, 1);
        assert_eq!(
            plan.user_tcp.unwrap(),
            UserTcpPlan { interface: "eth1".into(), threads: 1, may_be_exposed: false }
        );
        let two =
            OriginPlan::parse(&OriginPlanText { threads: "2".into(), ..text(&["10.0.0.1:80"]) }).unwrap();
        assert_eq!((two.threads, two.user_tcp.unwrap().threads), (2, 2));
        for listen in [&[][..], &[":80"], &["[::]:80"], &["10.0.0.1:0"], &["unix:/tmp/s"]] {
            let problems = OriginPlan::parse(&text(listen)).unwrap_err();
            assert_eq!((problems.len(), &problems[0].location[..]), (1, "--listen"), "{listen:?}");
        }
    }

    #[test]
    fn what_does_not_work_is_said() {
        let exposed = OriginPlanText { xdp_exposed: true, ..OriginPlanText::default() };
        assert_eq!(OriginPlan::parse(&exposed).unwrap_err()[0].location, "--xdp-exposed");
    }
}
