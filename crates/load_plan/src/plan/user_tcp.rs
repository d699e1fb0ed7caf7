//! Plan of TCP in user space (`--xdp`), and what it does not go with.

use std::net::SocketAddr;

use rt::address::Address;
use rt::user_tcp::UserTcpPlan;
use serde::Serialize;

use super::parse::{FlagReader, LoadFlags};

/// Texts of the flags of TCP in user space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XdpFlags {
    /// Name of the interface; `None`: the kernel's TCP.
    pub interface: Option<String>,
    /// True if a default route may lead through it.
    pub exposed: bool,
}

/// TCP in user space over AF_XDP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct XdpPlan {
    /// Interface that leads to the targets.
    pub interface: String,
    /// True if a default route may lead through it.
    pub exposed: bool,
}

impl XdpPlan {
    pub(super) fn parse(text: &LoadFlags, reader: &mut FlagReader) -> Option<Self> {
        let Some(interface) = text.xdp.interface.clone() else {
            if text.xdp.exposed {
                reader.add_problem("--xdp-exposed", "no effect without --xdp INTERFACE");
            }
            return None;
        };
        if interface.is_empty() {
            reader
                .add_problem("--xdp", "is empty: name the interface that leads to the target, such as eth1");
        }
        if text.unix.is_some() {
            reader.add_problem("--unix", "not with --xdp: a unix socket has no TCP");
        }
        Some(Self { interface, exposed: text.xdp.exposed })
    }

    /// Returns the settings for the runtime with this number of threads.
    #[must_use]
    pub fn settings(&self, threads: usize) -> UserTcpPlan {
        UserTcpPlan { interface: self.interface.clone(), threads, may_be_exposed: self.exposed }
    }
}

/// Returns the addresses that TCP in user space can connect to, each once.
///
/// # Errors
/// The first address that it cannot.
pub fn tcp_targets<'a>(
    addresses: impl IntoIterator<Item = &'a Address>,
) -> Result<Vec<SocketAddr>, &'a Address> {
    let mut targets = Vec::new();
    for address in addresses {
        let Address::Tcp(target) = address else { return Err(address) };
        if !targets.contains(target) {
            targets.push(*target);
        }
    }
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use super::super::RunPlan;
    use super::*;

    fn interface(name: &str) -> XdpFlags {
        XdpFlags { interface: Some(name.into()), exposed: false }
    }

    fn text() -> LoadFlags {
        LoadFlags { urls: vec!["http://10.0.0.1/".into()], xdp: interface("eth1"), ..LoadFlags::default() }
    }

    #[test]
    fn an_interface_has_one_thread_by_default() {
        let plan = RunPlan::parse(&text(), 8).unwrap();
        assert_eq!(plan.xdp, Some(XdpPlan { interface: "eth1".into(), exposed: false }));
        assert_eq!(plan.threads, 1);
        let two = RunPlan::parse(&LoadFlags { threads: Some("2".into()), ..text() }, 8).unwrap();
        assert_eq!((two.threads, two.xdp.unwrap().settings(two.threads).threads), (2, 2));
        assert!(serde_json::to_string(&plan).unwrap().contains(r#""xdp":{"interface":"eth1""#));
    }

    #[test]
    fn what_does_not_work_is_said() {
        let locations = |text: &LoadFlags| -> Vec<String> {
            let problems = RunPlan::parse(text, 8).unwrap_err();
            problems.into_iter().map(|problem| problem.location).collect()
        };
        let bad = LoadFlags { unix: Some("/tmp/s".into()), ..text() };
        assert_eq!(locations(&bad), ["--unix"]);
        assert_eq!(
            locations(&LoadFlags { xdp: XdpFlags { interface: None, exposed: true }, ..text() }),
            ["--xdp-exposed"]
        );
        assert_eq!(locations(&LoadFlags { xdp: interface(""), ..text() }), ["--xdp"]);
        let (v4, v6) = ("10.0.0.1:80".parse().unwrap(), "[::1]:80".parse().unwrap());
        let expected = ["10.0.0.1:80", "[::1]:80"].map(|address| address.parse().unwrap());
        assert_eq!(tcp_targets([&v4, &v4, &v6]), Ok(expected.to_vec()));
        let unix = "unix:/tmp/s".parse().unwrap();
        assert_eq!(tcp_targets([&v4, &unix]), Err(&unix));
    }
}
