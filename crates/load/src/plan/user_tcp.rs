//! Plan of TCP in user space (`--xdp`), and what it does not go with.

use std::net::{SocketAddr, SocketAddrV4};

use rt::address::Address;
use rt::user_tcp::UserTcpPlan;
use serde::Serialize;

use super::parse::{FlagReader, LoadFlags};
use super::request::RenderedRequest;

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
    /// Parses the flags.
    pub(super) fn parse(
        text: &LoadFlags,
        requests: &[RenderedRequest],
        reader: &mut FlagReader,
    ) -> Option<Self> {
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
        let others = [
            ("--unix", text.unix.is_some(), "a unix socket has no TCP"),
            ("--source", !text.sources.is_empty(), "the route to the target decides the source address"),
        ];
        for (flag, _, why) in others.iter().filter(|(_, is_given, _)| *is_given) {
            reader.add_problem(flag, format!("not with --xdp: {why}"));
        }
        if requests.iter().any(|request| request.url.authority.is_tls()) {
            reader.add_problem("--xdp", "TCP in user space has no TLS: use an http URL");
        }
        if text.threads.as_deref().is_some_and(|threads| threads != "1") {
            reader.add_problem(
                "--threads",
                "--xdp works with one queue of the interface, and one thread: -t 1",
            );
        }
        Some(Self { interface, exposed: text.xdp.exposed })
    }

    /// Returns the settings for the runtime.
    #[must_use]
    pub fn settings(&self) -> UserTcpPlan {
        UserTcpPlan { interface: self.interface.clone(), may_be_exposed: self.exposed }
    }
}

/// Returns the addresses that TCP in user space can connect to, each once.
///
/// # Errors
/// The first address that it cannot.
pub fn ipv4_targets<'a>(
    addresses: impl IntoIterator<Item = &'a Address>,
) -> Result<Vec<SocketAddrV4>, &'a Address> {
    let mut targets = Vec::new();
    for address in addresses {
        let Address::Tcp(SocketAddr::V4(target)) = address else { return Err(address) };
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
    fn an_interface_has_one_thread() {
        let plan = RunPlan::parse(&text(), 8).unwrap();
        assert_eq!(plan.xdp, Some(XdpPlan { interface: "eth1".into(), exposed: false }));
        assert_eq!(plan.threads, 1);
        assert!(serde_json::to_string(&plan).unwrap().contains(r#""xdp":{"interface":"eth1""#));
    }

    #[test]
    fn what_does_not_work_is_said() {
        let locations = |text: &LoadFlags| -> Vec<String> {
            let problems = RunPlan::parse(text, 8).unwrap_err();
            problems.into_iter().map(|problem| problem.location).collect()
        };
        let bad = LoadFlags {
            urls: vec!["https://10.0.0.1/".into()],
            threads: Some("2".into()),
            sources: vec!["10.0.0.2".into()],
            ..text()
        };
        assert_eq!(locations(&bad), ["--source", "--xdp", "--threads"]);
        assert_eq!(
            locations(&LoadFlags { xdp: XdpFlags { interface: None, exposed: true }, ..text() }),
            ["--xdp-exposed"]
        );
        assert_eq!(locations(&LoadFlags { xdp: interface(""), ..text() }), ["--xdp"]);
        let (v4, v6) = ("10.0.0.1:80".parse().unwrap(), "[::1]:80".parse().unwrap());
        assert_eq!(ipv4_targets([&v4, &v4]), Ok(vec!["10.0.0.1:80".parse().unwrap()]));
        assert_eq!(ipv4_targets([&v4, &v6]), Err(&v6));
    }
}
