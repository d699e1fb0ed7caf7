//! Converts a `[listener.NAME]` section to a [`ListenerPlan`].

use std::sync::Arc;

use record::document::{Located, Problems};
use record::problem::suggestion;
use rt::address::Address;
use rt::unix_socket::SocketAccess;

use crate::plan::{
    AccessPlan, BandwidthPlan, ClientHttp2Plan, ClientTimeouts, Forwarding, IdVec, ListenerPlan, Mode,
    Network, PathRule, PoolId, Underscores,
};

use super::auth::parse_auth;
use super::bandwidth::{parse_bandwidth, warn_of_after};
use super::compression::parse_compression;
use super::cors::parse_cors;
use super::value::Section;
use super::{overload, sni, tls, validate};

/// Keys that have no effect in mode tcp, where bytes are forwarded unchanged.
const HTTP_ONLY_KEYS: [&str; 15] = [
    "auth",
    "cors",
    "compression",
    "http2",
    "redirect-https",
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

/// Converts a listener's section. Invalid values are replaced by their defaults.
pub(super) fn parse_listener(
    section: &Section,
    pools: &IdVec<PoolId, &str>,
    problems: &mut Problems,
) -> ListenerPlan {
    let (trusted, is_unix_trusted) = parse_trusted(section, problems);
    let mode = parse_mode(section, pools, problems);
    let limits = parse_limits(&section.table("limits"), problems);
    let http2 = parse_http2(section, mode, &limits, problems);
    let sni = sni::parse_sni(section, mode, pools, problems);
    ListenerPlan {
        name: section.name.clone(),
        bind: section
            .texts("bind")
            .into_iter()
            .filter_map(|text| problems.ok_or_report(text.offset, validate::parse_bind_address(&text.value)))
            .collect::<Vec<Address>>(),
        unix_access: parse_unix_access(section, problems),
        namespace: section
            .text("namespace")
            .and_then(|text| problems.ok_or_report(text.offset, validate::resolve_namespace(&text.value))),
        mode,
        tls: tls::parse_listener_tls(section, mode, http2.is_some(), problems),
        http2,
        sni,
        proxy_protocol: section.flag("proxy-protocol"),
        trusted,
        is_unix_trusted,
        connections_max: section.optional_size("connections-max"),
        handshakes_max: section.size("handshakes-max"),
        requests_max: section.integer("requests-max").and_then(|max| u32::try_from(max).ok()),
        limits,
        body_bytes_max: section.integer("body-max"),
        timeouts: parse_timeouts(&section.table("timeouts")),
        forwarding: Forwarding {
            underscores: match &*choice_text(section, "underscores") {
                "reject" => Underscores::Reject,
                "pass" => Underscores::Pass,
                _ => Underscores::Drop,
            },
            ..parse_forwarding(&section.table("forwarding"), problems)
        },
        path: parse_path_rule(&choice_text(section, "path")),
        connect: section.flag("connect"),
        redirect_https: parse_redirect_https(section, problems),
        half_close: section.flag("half-close"),
        buffer_request_bytes: section.integer_or_zero("buffer-request"),
        compression: parse_compression(section, problems).and_then(|given| given.over(None)),
        bandwidth: parse_limits_of_bytes(section, problems),
        access: AccessPlan {
            auth: parse_auth(section, pools, problems).flatten(),
            cors: parse_cors(section, problems).flatten(),
        },
        admission: overload::parse_admission(section, problems),
    }
}

fn parse_limits_of_bytes(section: &Section, problems: &mut Problems) -> Option<Arc<BandwidthPlan>> {
    let plan = parse_bandwidth(section).and_then(|given| given.over(None));
    warn_of_after(section, plan.as_deref(), problems);
    plan
}

/// Reads the trusted networks, and whether peers of unix sockets are trusted.
fn parse_trusted(section: &Section, problems: &mut Problems) -> (Vec<Network>, bool) {
    let (unix_peers, networks): (Vec<_>, Vec<_>) =
        section.texts("trusted").into_iter().partition(|text| &*text.value == "unix");
    if section.flag("proxy-protocol") && section.key_offset("trusted").is_none() {
        let text = "no peer is trusted, so every connection is rejected: add the peers to `trusted`";
        problems.warn(section.value_offset("proxy-protocol"), text);
    }
    let trusted = networks
        .into_iter()
        .filter_map(|text| problems.ok_or_report(text.offset, validate::parse_network(&text.value)))
        .collect();
    (trusted, !unix_peers.is_empty())
}

fn parse_redirect_https(section: &Section, problems: &mut Problems) -> Option<u16> {
    let offset = section.key_offset("redirect-https")?;
    if section.key_offset("tls").is_some() {
        let text = "a listener with TLS would redirect to itself: remove 'redirect-https', or `tls`";
        problems.add_error(offset, text);
    }
    let status = match section.integer("redirect-https") {
        Some(status) => u16::try_from(status).ok()?,
        None => section.flag("redirect-https").then_some(308)?,
    };
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        let text = format!("{status} is no status of a redirect: write 301, 302, 303, 307 or 308");
        problems.add_error(section.value_offset("redirect-https"), text);
    }
    Some(status)
}

/// Reads the access rights of a listener's unix sockets.
fn parse_unix_access(section: &Section, problems: &mut Problems) -> SocketAccess {
    let mut id = |key: &str, file: &str| {
        let text = section.text(key)?;
        problems
            .ok_or_report(text.offset, validate::find_account(file, &text.value))
            .map(|account| account.id)
    };
    let (user, group) = (id("unix-user", "/etc/passwd"), id("unix-group", "/etc/group"));
    let mode = section.text("unix-mode");
    let mode =
        mode.and_then(|text| problems.ok_or_report(text.offset, validate::parse_file_mode(&text.value)));
    let binds_unix = section.texts("bind").iter().any(|text| text.value.starts_with("unix:"));
    for key in ["unix-mode", "unix-user", "unix-group"] {
        if let Some(offset) = section.key_offset(key).filter(|_| !binds_unix) {
            problems.warn(offset, format!("'{key}' has no effect without a unix socket in `bind`"));
        }
    }
    SocketAccess { mode, uid: user, gid: group }
}

/// Returns the value of a key that accepts one of a few words.
fn choice_text(section: &Section, key: &str) -> Box<str> {
    section.text(key).map(|text| text.value).unwrap_or_default()
}

/// Returns the index of the pool that a listener names, if there is such a pool.
pub(super) fn pool_of_listener(section: &Section, pools: &IdVec<PoolId, &str>) -> Option<PoolId> {
    let name = section.text("pool")?.value;
    pools.position(|pool| *pool == &*name)
}

pub(super) fn find_pool(
    name: &Located<Box<str>>,
    pools: &IdVec<PoolId, &str>,
    problems: &mut Problems,
) -> Option<PoolId> {
    let id = pools.position(|pool| *pool == &*name.value);
    if id.is_none() {
        let hint = suggestion(&name.value, pools.iter().copied());
        let text = format!("unknown pool '{}'{hint}: add [pool.{0}]", name.value);
        problems.add_error(name.offset, text);
    }
    id
}

fn parse_mode(section: &Section, pools: &IdVec<PoolId, &str>, problems: &mut Problems) -> Mode {
    let pool = section.text("pool").map(|name| find_pool(&name, pools, problems));
    let mode = section.text("mode");
    if mode.as_ref().is_none_or(|mode| &*mode.value != "tcp") {
        return Mode::Http;
    }
    if section.key_offset("pool").is_none() && section.key_offset("sni").is_none() {
        let text = "mode tcp needs a pool: add pool = \"NAME\", or `sni`";
        problems.add_error(section.value_offset("mode"), text);
    }
    for key in HTTP_ONLY_KEYS {
        if let Some(offset) = section.key_offset(key) {
            problems.warn(offset, format!("'{key}' has no effect in mode tcp: remove it"));
        }
    }
    // Without a pool, `sni` selects it; otherwise it is an error, so there is no plan.
    Mode::Tcp(pool.flatten().unwrap_or(PoolId(0)))
}

fn parse_limits(section: &Section, problems: &mut Problems) -> wire::Limits {
    let limits = wire::Limits {
        head_bytes_max: section.size("head"),
        headers_max: section.size("headers"),
        target_bytes_max: section.size("target"),
        ..wire::Limits::default()
    };
    if limits.target_bytes_max < limits.head_bytes_max {
        return limits;
    }
    if let Some(offset) = section.key_offset("target") {
        let text = "a target of this length does not fit in a head: raise `head` or lower `target`";
        problems.add_error(offset, text);
    }
    // Only `head` was lowered, and the default target limit is too large for it.
    wire::Limits { target_bytes_max: limits.head_bytes_max / 2, ..limits }
}

/// Reads the settings of HTTP/2; `None`: it is switched off.
fn parse_http2(
    listener: &Section,
    mode: Mode,
    limits: &wire::Limits,
    problems: &mut Problems,
) -> Option<ClientHttp2Plan> {
    if mode != Mode::Http || listener.is_switched_off("http2") {
        return None;
    }
    let section = listener.table("http2");
    // The ranges of the keys fit.
    let number = |key: &str| u32::try_from(section.integer_or_zero(key)).unwrap_or(u32::MAX);
    let mut window = |key: &str, max_key: &str| {
        let (initial, max) = (number(key), number(max_key));
        if initial > max
            && let Some(offset) = section.key_offset(max_key)
        {
            problems.add_error(offset, format!("'{max_key}' is less than '{key}': raise it"));
        }
        (initial, max.max(initial))
    };
    let stream_window = window("stream-window", "stream-window-max");
    let connection_window = window("connection-window", "connection-window-max");
    let config = wire::h2::Config {
        concurrent_streams_max: number("concurrent-streams"),
        stream_window_bytes: stream_window.0,
        stream_window_bytes_max: stream_window.1,
        connection_window_bytes: connection_window.0,
        connection_window_bytes_max: connection_window.1,
        header_table_bytes: number("header-table"),
        abuse_max: number("abuse"),
        // Each field counts 32 bytes more (RFC 9113 §6.5.2).
        head_bytes_max: limits.head_bytes_max + 32 * limits.headers_max,
        headers_max: limits.headers_max,
        target_bytes_max: limits.target_bytes_max,
        enables_connect_protocol: true,
        ..wire::h2::Config::default()
    };
    Some(ClientHttp2Plan {
        config,
        ping_interval_ns: section.integer_or_zero("ping-interval"),
        ping_timeout_ns: section.integer_or_zero("ping-timeout"),
    })
}

fn parse_timeouts(section: &Section) -> ClientTimeouts {
    ClientTimeouts {
        head_ns: section.integer_or_zero("head"),
        body_ns: section.integer_or_zero("body"),
        body_idle_ns: section.integer_or_zero("body-idle"),
        body_progress_ns: section.integer_or_zero("body-progress"),
        body_progress_bytes: section.integer_or_zero("body-progress-bytes"),
        write_ns: section.integer_or_zero("write"),
        write_progress_bytes: section.integer_or_zero("write-progress-bytes"),
        keep_alive_ns: section.integer_or_zero("keep-alive"),
    }
}

fn parse_forwarding(section: &Section, problems: &mut Problems) -> Forwarding {
    let via = parse_field_of_forwarding(section, "via", problems);
    let request_id = parse_field_of_forwarding(section, "request-id", problems);
    Forwarding {
        x_forwarded: section.flag("x-forwarded"),
        only_if_none: &*choice_text(section, "forwarded-for") == "if-none",
        forwarded: section.flag("forwarded"),
        via,
        request_id,
        underscores: Underscores::Drop,
    }
}

/// Reads `via` or `request-id` of the fields of forwarding; `None`: false.
pub(super) fn parse_field_of_forwarding(
    section: &Section,
    key: &str,
    problems: &mut Problems,
) -> Option<Box<str>> {
    let text = section.text(key)?;
    let check = match key {
        "request-id" => validate::check_changed_field(&text.value, true),
        _ => validate::check_field_name(&text.value),
    };
    problems.ok_or_report(text.offset, check.map(|()| text.value))
}

pub(super) fn parse_path_rule(name: &str) -> PathRule {
    match name {
        "strict" => PathRule::Strict,
        "raw" => PathRule::Raw,
        _ => PathRule::Normalise,
    }
}
