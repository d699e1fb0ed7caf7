//! `[pool.NAME]`: what was read of it to a [`PoolPlan`].

use crate::plan::{
    Balance, NamedServers, PoolPlan, ProxyVersion, Reuse, ServerPlan, ServerTimeouts,
};
use rt::address::Address;

use super::health::{self, Target};
use super::source::Problems;
use super::value::Section;
use super::{choice, forms, overload};

/// A pool; what is wrong with it has its default.
pub(super) fn pool(section: &Section, problems: &mut Problems) -> PoolPlan {
    let timeouts = section.table("timeouts");
    let limits = section.table("limits");
    let text = |key| section.text(key).map(|text| text.value).unwrap_or_default();
    let balance = balance(&text("balance"));
    let (servers, names) = servers(section, problems);
    choice::warn_of_first(section, balance, &servers, problems);
    PoolPlan {
        name: section.name.clone(),
        servers,
        names,
        resolve: health::resolve(section, problems),
        check: health::check(section, problems),
        outlier: health::outlier(section, problems),
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

/// What one entry of `servers` is.
enum Entry {
    Server(ServerPlan),
    Named(NamedServers),
}

fn servers(section: &Section, problems: &mut Problems) -> (Vec<ServerPlan>, Vec<NamedServers>) {
    let sections = section.tables("servers");
    let at = section.value_place("servers");
    let given_any = section.place("servers").is_some();
    if given_any && sections.is_empty() && at != section.at {
        problems.add(at, "a pool has at least one server: write [\"127.0.0.1:9001\"]");
    }
    let (mut servers, mut names) = (Vec::<ServerPlan>::new(), Vec::<NamedServers>::new());
    for section in &sections {
        let Some(entry) = server(section, problems) else { continue };
        let (Entry::Server(ServerPlan { name, .. })
        | Entry::Named(NamedServers { like: ServerPlan { name, .. }, .. })) = &entry;
        let others = servers.iter().chain(names.iter().map(|names| &names.like));
        if others.into_iter().any(|other| other.name == *name) {
            let text = format!("there are two servers '{name}': give one of them another name");
            problems.add(section.at, text);
        }
        match entry {
            Entry::Server(server) => servers.push(server),
            Entry::Named(named) => names.push(named),
        }
    }
    let mut all = servers.iter().chain(names.iter().map(|names| &names.like)).peekable();
    if all.peek().is_some() && all.all(|server| server.weight == 0) {
        problems.add(at, "every server has weight 0, so none gets a request: give one a weight");
    }
    (servers, names)
}

fn server(section: &Section, problems: &mut Problems) -> Option<Entry> {
    let name = section.text("name");
    if let Some(name) = &name {
        problems.take(name.at, forms::name(&name.value));
    }
    let target = match (section.text("address"), section.text("srv")) {
        (Some(address), None) => problems.take(address.at, health::target(&address.value))?,
        (None, Some(srv)) => Target::Named(problems.take(srv.at, health::service(&srv.value))?),
        (Some(_), Some(srv)) => {
            problems.add(srv.at, "a server has an 'address' or a 'srv': leave one of them out");
            return None;
        }
        (None, None) => {
            // One that was wrong has been told.
            if section.place("address").or_else(|| section.place("srv")).is_none() {
                problems.add(section.at, "'address' is missing: write address = '127.0.0.1:9001'");
            }
            return None;
        }
    };
    let weight = u32::try_from(section.number("weight")).unwrap_or(1);
    let entry = entry(target, name.map(|name| name.value));
    let maxconn = section.bound("maxconn");
    let backup = section.flag("backup");
    Some(match entry {
        Entry::Server(server) => Entry::Server(ServerPlan { weight, maxconn, backup, ..server }),
        Entry::Named(named) => Entry::Named(NamedServers {
            like: ServerPlan { weight, maxconn, backup, ..named.like },
            ..named
        }),
    })
}

fn entry(target: Target, name: Option<Box<str>>) -> Entry {
    let is_named = name.is_some();
    let plain = |default: String, address| ServerPlan {
        name: name.unwrap_or_else(|| default.into()),
        address,
        weight: 1,
        maxconn: None,
        backup: false,
    };
    match target {
        Target::Fixed(address) => Entry::Server(plain(address.to_string(), address)),
        Target::Named(lookup) => {
            // What it stands for is not known yet, and nobody connects to it.
            let like = plain(lookup.to_string(), Address::Unix("".into()));
            Entry::Named(NamedServers { lookup, is_named, like })
        }
    }
}

/// The servers that the flags name, by their texts; what is wrong with one is told with its place.
pub(super) fn of_texts(
    texts: &str,
    mut wrong: impl FnMut(String),
) -> (Vec<ServerPlan>, Vec<NamedServers>) {
    let (mut servers, mut names) = (Vec::<ServerPlan>::new(), Vec::<NamedServers>::new());
    let mut seen: Vec<Box<str>> = Vec::new();
    for text in texts.split(',') {
        if text.is_empty() {
            wrong("there is nothing between two commas".into());
            continue;
        }
        let entry = match health::target(text) {
            Ok(target) => entry(target, None),
            Err(error) => {
                wrong(error);
                continue;
            }
        };
        let (Entry::Server(ServerPlan { name, .. })
        | Entry::Named(NamedServers { like: ServerPlan { name, .. }, .. })) = &entry;
        if seen.contains(name) {
            wrong(format!("'{text}' is given twice"));
        }
        seen.push(name.clone());
        match entry {
            Entry::Server(server) => servers.push(server),
            Entry::Named(named) => names.push(named),
        }
    }
    (servers, names)
}
