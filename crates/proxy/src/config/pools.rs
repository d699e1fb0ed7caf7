//! `[pool.NAME]`: what was read of it to a [`PoolPlan`].

use crate::plan::{Balance, PoolPlan, ProxyVersion, Reuse, ServerPlan, ServerTimeouts};

use super::source::Problems;
use super::value::Section;
use super::{choice, forms, overload};

/// A pool; what is wrong with it has its default.
pub(super) fn pool(section: &Section, problems: &mut Problems) -> PoolPlan {
    let timeouts = section.table("timeouts");
    let limits = section.table("limits");
    let text = |key| section.text(key).map(|text| text.value).unwrap_or_default();
    let balance = balance(&text("balance"));
    let servers = servers(section, problems);
    choice::warn_of_first(section, balance, &servers, problems);
    PoolPlan {
        name: section.name.clone(),
        servers,
        balance,
        hash: choice::hash(section, balance, problems),
        sticky: choice::sticky(section, problems),
        reuse: reuse(&text("reuse")),
        idle_max: section.size("idle-max"),
        idle_timeout_ns: section.number("idle-timeout"),
        queue: overload::queue(&section.table("queue")),
        bounds: overload::bounds(section, problems),
        timeouts: ServerTimeouts {
            connect_ns: timeouts.number("connect"),
            first_byte_ns: timeouts.number("first-byte"),
            idle_ns: timeouts.number("idle"),
            tunnel_ns: timeouts.number("tunnel"),
            abandoned_ns: timeouts.number("abandoned"),
        },
        limits: wire::Limits {
            head_bytes_max: limits.size("head"),
            headers_max: limits.size("headers"),
            ..wire::Limits::default()
        },
        retries_max: u8::try_from(section.number("retries")).unwrap_or(u8::MAX),
        slow_start_ns: section.number("slow-start"),
        send_proxy_protocol: match &*text("send-proxy-protocol") {
            "v1" => Some(ProxyVersion::V1),
            "v2" => Some(ProxyVersion::V2),
            _ => None,
        },
        namespace: section
            .text("namespace")
            .and_then(|text| problems.take(text.at, forms::namespace(&text.value))),
    }
}

pub(super) fn balance(text: &str) -> Balance {
    Balance::named(text).unwrap_or(Balance::RandomOfTwo)
}

pub(super) fn reuse(text: &str) -> Reuse {
    match text {
        "never" => Reuse::Never,
        "always" => Reuse::Always,
        _ => Reuse::Safe,
    }
}

fn servers(section: &Section, problems: &mut Problems) -> Vec<ServerPlan> {
    let sections = section.tables("servers");
    let at = section.value_place("servers");
    let given_any = section.place("servers").is_some();
    if given_any && sections.is_empty() && at != section.at {
        problems.add(at, "a pool has at least one server: write [\"127.0.0.1:9001\"]");
    }
    let mut servers: Vec<ServerPlan> = Vec::new();
    for section in &sections {
        let Some(server) = server(section, problems) else { continue };
        if servers.iter().any(|other| other.name == server.name) {
            let text =
                format!("there are two servers '{}': give one of them another name", server.name);
            problems.add(section.at, text);
        }
        servers.push(server);
    }
    if !servers.is_empty() && servers.iter().all(|server| server.weight == 0) {
        problems.add(at, "every server has weight 0, so none gets a request: give one a weight");
    }
    servers
}

fn server(section: &Section, problems: &mut Problems) -> Option<ServerPlan> {
    let name = section.text("name");
    if let Some(name) = &name {
        problems.take(name.at, forms::name(&name.value));
    }
    let address = section.text("address")?;
    let address = problems.take(address.at, forms::server_address(&address.value))?;
    Some(ServerPlan {
        name: name.map_or_else(|| address.to_string().into(), |name| name.value),
        address,
        weight: u32::try_from(section.number("weight")).unwrap_or(1),
        maxconn: section.bound("maxconn"),
        backup: section.flag("backup"),
    })
}
