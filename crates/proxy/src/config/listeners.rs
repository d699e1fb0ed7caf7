//! `[listener.NAME]`: what was read of it to a [`ListenerPlan`].

use rt::address::Address;
use rt::local::SocketAccess;

use crate::plan::{ClientTimeouts, Forwarding, ListenerPlan, Mode, PathRule, Underscores};

use super::source::{At, Problems, suggestion};
use super::value::Section;
use super::{forms, overload};

/// Keys that mean nothing where bytes are passed on as they are.
const HTTP_ONLY: [&str; 10] = [
    "requests-max",
    "body-max",
    "connect",
    "half-close",
    "buffer-request",
    "limits",
    "forwarding",
    "deadline-headers",
    "path",
    "underscores",
];

/// A listener; what is wrong with it has its default.
pub(super) fn listener(section: &Section, pools: &[&str], problems: &mut Problems) -> ListenerPlan {
    let (unix, networks): (Vec<_>, Vec<_>) =
        section.texts("trusted").into_iter().partition(|text| &*text.value == "unix");
    let trusted: Vec<_> = networks
        .into_iter()
        .filter_map(|text| problems.take(text.at, forms::network(&text.value)))
        .collect();
    let proxy_protocol = section.flag("proxy-protocol");
    if proxy_protocol && section.place("trusted").is_none() {
        let text = "nobody is trusted, so every connection is refused: name the peers in `trusted`";
        problems.warn(section.value_place("proxy-protocol"), text);
    }
    ListenerPlan {
        name: section.name.clone(),
        bind: section
            .texts("bind")
            .into_iter()
            .filter_map(|text| problems.take(text.at, forms::bind_address(&text.value)))
            .collect::<Vec<Address>>(),
        unix: unix_access(section, problems),
        namespace: section
            .text("namespace")
            .and_then(|text| problems.take(text.at, forms::namespace(&text.value))),
        mode: mode(section, pools, problems),
        proxy_protocol,
        trusted,
        trusts_unix: !unix.is_empty(),
        connections_max: section.bound("connections-max"),
        requests_max: section.whole("requests-max").and_then(|max| u32::try_from(max).ok()),
        limits: limits(&section.table("limits"), problems),
        body_bytes_max: section.whole("body-max"),
        timeouts: timeouts(&section.table("timeouts")),
        forwarding: Forwarding {
            underscores: match &*word(section, "underscores") {
                "reject" => Underscores::Reject,
                "pass" => Underscores::Pass,
                _ => Underscores::Drop,
            },
            ..forwarding(&section.table("forwarding"), problems)
        },
        path: match &*word(section, "path") {
            "strict" => PathRule::Strict,
            "raw" => PathRule::Raw,
            _ => PathRule::Normalise,
        },
        connect: section.flag("connect"),
        half_close: section.flag("half-close"),
        buffer_request_bytes: section.number("buffer-request"),
        admission: overload::admission(section, problems),
    }
}

/// The access rights of a listener's unix sockets.
fn unix_access(section: &Section, problems: &mut Problems) -> SocketAccess {
    let mut id = |key: &str, file: &str| {
        let text = section.text(key)?;
        problems.take(text.at, forms::account(file, &text.value)).map(|account| account.id)
    };
    let (user, group) = (id("unix-user", "/etc/passwd"), id("unix-group", "/etc/group"));
    let mode = section.text("unix-mode");
    let mode = mode.and_then(|text| problems.take(text.at, forms::file_mode(&text.value)));
    let binds_unix = section.texts("bind").iter().any(|text| text.value.starts_with("unix:"));
    for key in ["unix-mode", "unix-user", "unix-group"] {
        if let Some(at) = section.place(key).filter(|_| !binds_unix) {
            problems.warn(at, format!("'{key}' does nothing without a unix socket in `bind`"));
        }
    }
    SocketAccess { mode, user, group }
}

/// The value of a key that has one of a few words.
fn word(section: &Section, key: &str) -> Box<str> {
    section.text(key).map(|text| text.value).unwrap_or_default()
}

/// The pool that a listener names, if there is such a pool.
pub(super) fn own_pool(section: &Section, pools: &[&str]) -> Option<usize> {
    let name = section.text("pool")?.value;
    pools.iter().position(|pool| *pool == &*name)
}

/// The pool of that name.
pub(super) fn find_pool(
    name: &At<Box<str>>,
    pools: &[&str],
    problems: &mut Problems,
) -> Option<usize> {
    let found = pools.iter().position(|pool| *pool == &*name.value);
    if found.is_none() {
        let near = suggestion(&name.value, pools.iter().copied());
        let text = format!("there is no pool '{}'{near}: add [pool.{0}]", name.value);
        problems.add(name.at, text);
    }
    found
}

fn mode(section: &Section, pools: &[&str], problems: &mut Problems) -> Mode {
    let pool = section.text("pool").map(|name| find_pool(&name, pools, problems));
    let mode = section.text("mode");
    if mode.as_ref().is_none_or(|mode| &*mode.value != "tcp") {
        return Mode::Http;
    }
    if section.place("pool").is_none() {
        let text = "mode tcp needs a pool: add pool = \"NAME\"";
        problems.add(section.value_place("mode"), text);
    }
    for key in HTTP_ONLY {
        if let Some(at) = section.place(key) {
            problems.warn(at, format!("'{key}' does nothing in mode tcp: leave it out"));
        }
    }
    Mode::Tcp(pool.flatten().unwrap_or_default())
}

fn limits(section: &Section, problems: &mut Problems) -> wire::Limits {
    let limits = wire::Limits {
        head_bytes_max: section.size("head"),
        headers_max: section.size("headers"),
        target_bytes_max: section.size("target"),
        ..wire::Limits::default()
    };
    if limits.target_bytes_max < limits.head_bytes_max {
        return limits;
    }
    if let Some(at) = section.place("target") {
        let text = "a target of that length has no room in a head: raise `head` or lower this";
        problems.add(at, text);
    }
    // Only `head` was lowered: what is a target's default then is what has room.
    wire::Limits { target_bytes_max: limits.head_bytes_max / 2, ..limits }
}

fn timeouts(section: &Section) -> ClientTimeouts {
    ClientTimeouts {
        head_ns: section.number("head"),
        body_ns: section.number("body"),
        body_idle_ns: section.number("body-idle"),
        body_progress_ns: section.number("body-progress"),
        body_progress_bytes: section.number("body-progress-bytes"),
        write_ns: section.number("write"),
        write_progress_bytes: section.number("write-progress-bytes"),
        keep_alive_ns: section.number("keep-alive"),
    }
}

fn forwarding(section: &Section, problems: &mut Problems) -> Forwarding {
    let mut name = |key: &str| {
        let text = section.text(key)?;
        let check = match key {
            "request-id" => forms::changed_field(&text.value, true),
            _ => forms::field_name(&text.value),
        };
        problems.take(text.at, check.map(|()| text.value))
    };
    let (via, request_id) = (name("via"), name("request-id"));
    Forwarding {
        x_forwarded: section.flag("x-forwarded"),
        only_if_none: &*word(section, "forwarded-for") == "if-none",
        forwarded: section.flag("forwarded"),
        via,
        request_id,
        underscores: Underscores::Drop,
    }
}
