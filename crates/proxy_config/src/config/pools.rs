//! Converts a `[pool.NAME]` section to a [`PoolPlan`].

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::plan::{Balance, Lookup, MapPlan, NamedServers, PoolPlan, Reuse, ServerPlan, ServerTimeouts};
use crate::template::KnownValues;
use record::document::{Located, Problems};
use rt::address::Address;

use super::health::{self, ServerTarget};
use super::value::Section;
use super::{balance, http2, overload, servers_file, tls, validate};

/// Maximum number of source addresses of a pool.
const SOURCES_MAX: usize = 256;

/// Converts a pool's section. Invalid values are replaced by their defaults.
pub(super) fn parse_pool(section: &Section, maps: &[Arc<MapPlan>], problems: &mut Problems) -> PoolPlan {
    let known = KnownValues { regex: None, maps };
    let timeouts = section.table("timeouts");
    let limits = section.table("limits");
    let text = |key| section.text(key).map(|text| text.value).unwrap_or_default();
    let balance = parse_balance(&text("balance"));
    let (servers, names, servers_file) = parse_servers(section, problems);
    balance::warn_of_unreachable_servers(section, balance, &servers, problems);
    let (http, http2) = http2::parse_pool_http(section, problems);
    let namespace = section
        .text("namespace")
        .and_then(|text| problems.ok_or_report(text.offset, validate::resolve_namespace(&text.value)));
    let sources = parse_sources(section, namespace.as_deref(), problems);
    let tls = tls::parse_pool_tls(section, (&servers, &names), http, problems);
    PoolPlan {
        name: section.name.clone(),
        servers: servers.into(),
        named_servers: names,
        servers_file,
        resolve: health::parse_resolve(section, &sources, problems),
        check: health::parse_check(section, http, problems),
        outlier: health::parse_outlier(section, problems),
        balance,
        hash: balance::parse_hash(section, balance, known, problems),
        sticky: balance::parse_sticky(section, known, problems),
        http,
        http2,
        reuse: parse_reuse(&text("reuse")),
        idle_max: section.size("idle-max"),
        idle_timeout_ns: section.integer_or_zero("idle-timeout"),
        queue: overload::parse_queue(&section.table("queue")),
        overload_limits: overload::parse_bounds(section, problems),
        timeouts: ServerTimeouts {
            connect_ns: timeouts.integer_or_zero("connect"),
            first_byte_ns: timeouts.integer_or_zero("first-byte"),
            idle_ns: timeouts.integer_or_zero("idle"),
            tunnel_ns: timeouts.integer_or_zero("tunnel"),
            abandoned_ns: timeouts.integer_or_zero("abandoned"),
        },
        limits: wire::Limits {
            head_bytes_max: limits.size("head"),
            headers_max: limits.size("headers"),
            ..wire::Limits::default()
        },
        retries_max: u8::try_from(section.integer_or_zero("retries")).unwrap_or(u8::MAX),
        slow_start_ns: section.integer_or_zero("slow-start"),
        send_proxy_protocol: match &*text("send-proxy-protocol") {
            "v1" => Some(wire::proxy_protocol::ProxyVersion::V1),
            "v2" => Some(wire::proxy_protocol::ProxyVersion::V2),
            _ => None,
        },
        tls,
        namespace,
        sources,
    }
}

fn parse_sources(section: &Section, namespace: Option<&Path>, problems: &mut Problems) -> Vec<IpAddr> {
    let mut sources = Vec::new();
    for text in section.texts("source") {
        let parsed = validate::parse_source(&text.value, namespace);
        let Some(address) = problems.ok_or_report(text.offset, parsed) else { continue };
        if sources.contains(&address) {
            problems.add_error(text.offset, format!("{address} is a duplicate: remove it"));
        } else if sources.len() == SOURCES_MAX {
            problems.add_error(text.offset, format!("'source' has more than {SOURCES_MAX} addresses"));
            break;
        }
        sources.push(address);
    }
    sources
}

pub(super) fn parse_balance(text: &str) -> Balance {
    Balance::from_name(text).unwrap_or(Balance::RandomOfTwo)
}

pub(super) fn parse_reuse(text: &str) -> Reuse {
    match text {
        "never" => Reuse::Never,
        "always" => Reuse::Always,
        _ => Reuse::Safe,
    }
}

enum ServerEntry {
    Server(ServerPlan),
    Named(NamedServers),
}

/// Reads the servers of the section, and of the file that it names.
fn parse_servers(
    section: &Section,
    problems: &mut Problems,
) -> (Vec<ServerPlan>, Vec<NamedServers>, Option<PathBuf>) {
    let sections = section.tables("servers");
    let offset = section.value_offset("servers");
    let is_given = section.key_offset("servers").is_some();
    if is_given && sections.is_empty() && offset != section.offset {
        problems.add_error(offset, "a pool needs at least one server: write [\"127.0.0.1:9001\"]");
    }
    let (mut servers, mut names) = (Vec::<ServerPlan>::new(), Vec::<NamedServers>::new());
    for section in &sections {
        let Some(entry) = parse_server(section, problems) else { continue };
        let (ServerEntry::Server(ServerPlan { name, .. })
        | ServerEntry::Named(NamedServers { template: ServerPlan { name, .. }, .. })) = &entry;
        let others = servers.iter().chain(names.iter().map(|names| &names.template));
        if others.into_iter().any(|other| other.name == *name) {
            let text = format!("two servers have the name '{name}': rename one of them");
            problems.add_error(section.offset, text);
        }
        match entry {
            ServerEntry::Server(server) => servers.push(server),
            ServerEntry::Named(named) => names.push(named),
        }
    }
    let file = section.text("servers-file");
    if let Some(file) = &file {
        add_servers_of_file(file, &mut servers, &names, problems);
    } else if !is_given {
        // A value that is present but invalid has already been reported.
        problems.add_error(
            section.offset,
            "a pool needs servers: add servers = [\"127.0.0.1:9001\"], or servers-file",
        );
    }
    let mut all_servers = servers.iter().chain(names.iter().map(|names| &names.template)).peekable();
    if all_servers.peek().is_some() && all_servers.all(|server| server.weight == 0) {
        problems.add_error(offset, "every server has weight 0, so none gets requests: raise a weight");
    }
    (servers, names, file.map(|file| PathBuf::from(&*file.value)))
}

/// Adds the servers of a file, or reports all of its faults at the place of its name.
fn add_servers_of_file(
    file: &Located<Box<str>>,
    servers: &mut Vec<ServerPlan>,
    names: &[NamedServers],
    problems: &mut Problems,
) {
    let found = match servers_file::read(Path::new(&*file.value)) {
        Ok(found) => found,
        Err(faults) => {
            faults.into_iter().for_each(|fault| problems.add_error(file.offset, fault));
            return;
        }
    };
    if found.is_empty() && servers.is_empty() && names.is_empty() {
        // A file that is being written, or a program that lost its list, must not empty a pool.
        problems.add_error(file.offset, format!("{}: no server", file.value));
    }
    for server in found {
        let others = servers.iter().chain(names.iter().map(|names| &names.template));
        if others.into_iter().any(|other| other.name == server.name) {
            let text = format!("{}: another server of the pool has the name '{}'", file.value, server.name);
            problems.add_error(file.offset, text);
        } else {
            servers.push(server);
        }
    }
}

fn parse_server(section: &Section, problems: &mut Problems) -> Option<ServerEntry> {
    let name = section.text("name");
    if let Some(name) = &name {
        problems.ok_or_report(name.offset, validate::check_name(&name.value));
    }
    let target = match (section.text("address"), section.text("srv")) {
        (Some(address), None) => {
            problems.ok_or_report(address.offset, health::parse_target(&address.value))?
        }
        (None, Some(srv)) => {
            ServerTarget::Named(problems.ok_or_report(srv.offset, health::parse_service(&srv.value))?)
        }
        (Some(_), Some(srv)) => {
            problems.add_error(srv.offset, "'address' and 'srv' exclude each other: remove one of them");
            return None;
        }
        (None, None) => {
            // A value that is present but invalid has already been reported.
            if section.key_offset("address").or_else(|| section.key_offset("srv")).is_none() {
                problems.add_error(section.offset, "'address' is missing: write address = '127.0.0.1:9001'");
            }
            return None;
        }
    };
    let weight = u32::try_from(section.integer_or_zero("weight")).unwrap_or(1);
    let entry = build_entry(target, name.map(|name| name.value));
    let maxconn = section.optional_size("maxconn");
    let backup = section.flag("backup");
    Some(match entry {
        ServerEntry::Server(server) => ServerEntry::Server(ServerPlan { weight, maxconn, backup, ..server }),
        ServerEntry::Named(named) => ServerEntry::Named(NamedServers {
            template: ServerPlan { weight, maxconn, backup, ..named.template },
            ..named
        }),
    })
}

fn build_entry(target: ServerTarget, name: Option<Box<str>>) -> ServerEntry {
    let is_named = name.is_some();
    let default_plan = |default: String, address| ServerPlan {
        name: name.unwrap_or_else(|| default.into()),
        address,
        host: None,
        weight: 1,
        maxconn: None,
        backup: false,
    };
    match target {
        ServerTarget::Fixed(address) => ServerEntry::Server(default_plan(address.to_string(), address)),
        ServerTarget::Named(lookup) => {
            // The addresses are not known yet, so this placeholder is never connected to.
            let template = default_plan(lookup.to_string(), Address::Unix("".into()));
            let host = match &lookup {
                Lookup::Host { name, .. } => Some(name.clone()),
                Lookup::Service(_) => None,
            };
            let template = ServerPlan { host, ..template };
            ServerEntry::Named(NamedServers { lookup, is_named, template })
        }
    }
}

/// Parses the servers given as flags, separated by commas. Calls `report` for each problem.
pub(super) fn parse_server_list(
    texts: &str,
    mut report: impl FnMut(String),
) -> (Vec<ServerPlan>, Vec<NamedServers>) {
    let (mut servers, mut names) = (Vec::<ServerPlan>::new(), Vec::<NamedServers>::new());
    let mut seen_names: Vec<Box<str>> = Vec::new();
    for text in texts.split(',') {
        if text.is_empty() {
            report("empty address between two commas".into());
            continue;
        }
        let entry = match health::parse_target(text) {
            Ok(target) => build_entry(target, None),
            Err(error) => {
                report(error.to_string());
                continue;
            }
        };
        let (ServerEntry::Server(ServerPlan { name, .. })
        | ServerEntry::Named(NamedServers { template: ServerPlan { name, .. }, .. })) = &entry;
        if seen_names.contains(name) {
            report(format!("'{text}' is a duplicate: remove it"));
        }
        seen_names.push(name.clone());
        match entry {
            ServerEntry::Server(server) => servers.push(server),
            ServerEntry::Named(named) => names.push(named),
        }
    }
    (servers, names)
}
