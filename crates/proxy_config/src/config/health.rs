//! Converts `[pool.NAME.check]`, `[pool.NAME.outlier]`, `[pool.NAME.resolve]` and the names of
//! servers to their parts of the plan.

use std::net::{IpAddr, SocketAddr};

use record::document::{Located, Problems};
use rt::address::Address;

use crate::plan::{
    CheckKind, CheckPlan, HttpCheck, Lookup, OutlierPlan, PreferredFamily, ResolvePlan, ServerHttp, Statuses,
};

use super::errors::ValueError;
use super::value::{Matcher, Section};
use super::{http2, validate};

/// Keys that apply to only one type of check.
const TYPE_KEYS: &[(&str, &[&str])] =
    &[("http", &["method", "path", "host", "headers", "status", "body", "http"]), ("agent", &["send"])];
const NAMESERVER_PORT: u16 = 53;
/// Maximum length in bytes of a DNS name, and of one of its labels (RFC 1035 §2.3.4).
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// A server's location as written in the config.
pub(super) enum ServerTarget {
    Fixed(Address),
    Named(Lookup),
}

/// Parses an address to connect to, or a name and a port.
pub(super) fn parse_target(text: &str) -> Result<ServerTarget, ValueError> {
    let is_literal = text.parse::<SocketAddr>().is_ok();
    // `_http._tcp.app.internal` (RFC 2782).
    if text.starts_with('_') && text.contains("._") && !text.contains(':') {
        return Err(ValueError::Service(text.into()));
    }
    let (host, port) = text.rsplit_once(':').unwrap_or_default();
    let is_name = !host.is_empty() && !host.contains([':', '*', '[']) && !is_literal;
    if !is_name || text.starts_with("unix:") || port.parse::<u16>().is_err() {
        return validate::parse_server_address(text).map(ServerTarget::Fixed);
    }
    match port.parse() {
        Ok(0) | Err(_) => Err(ValueError::NoPort(text.into())),
        Ok(port) => Ok(ServerTarget::Named(Lookup::Host { name: parse_dns_name(host)?, port })),
    }
}

pub(super) fn parse_service(text: &str) -> Result<Lookup, ValueError> {
    parse_dns_name(text).map(Lookup::Service)
}

/// Normalises a DNS name: lower case, without the final dot.
fn parse_dns_name(text: &str) -> Result<Box<str>, ValueError> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_label =
        |label: &str| (1..=LABEL_BYTES_MAX).contains(&label.len()) && label.bytes().all(is_allowed);
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit());
    if name.len() > NAME_BYTES_MAX || !name.split('.').all(is_label) || is_number {
        return Err(ValueError::DnsName(text.into()));
    }
    Ok(name.into())
}

/// Parses a list of statuses like `2xx`, `200-399` or `200,204`.
/// Parses a list of statuses.
pub(super) fn parse_statuses(text: &str) -> Result<Statuses, ValueError> {
    let invalid = || ValueError::Statuses(text.into());
    let number = |text: &str| {
        text.trim().parse().ok().filter(|status| (100..=999).contains(status)).ok_or_else(invalid)
    };
    let range = |part: &str| {
        if let Some(class) = part.trim().strip_suffix("xx") {
            let class: Option<u16> = class.parse().ok();
            let class = class.filter(|class| (1..=5).contains(class)).ok_or_else(invalid)?;
            return Ok(class * 100..=class * 100 + 99);
        }
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (number(first)?, number(last)?);
        if first > last { Err(invalid()) } else { Ok(first..=last) }
    };
    text.split(',').map(range).collect::<Result<_, _>>().map(Statuses)
}

fn parse_text_key<T>(
    section: &Section,
    key: &str,
    problems: &mut Problems,
    parse: impl Fn(&str) -> Result<T, ValueError>,
) -> Option<T> {
    section.text(key).and_then(|text| problems.ok_or_report(text.offset, parse(&text.value)))
}

pub(super) fn parse_check(
    pool: &Section,
    pool_http: ServerHttp,
    problems: &mut Problems,
) -> Option<CheckPlan> {
    pool.key_offset("check")?;
    let section = pool.table("check");
    let kind_text = section.text("type").map(|text| text.value).unwrap_or_default();
    for (kind, keys) in TYPE_KEYS {
        for key in keys.iter().filter(|_| **kind != *kind_text) {
            if let Some(offset) = section.key_offset(key) {
                let text = format!("'{key}' has no effect without type = \"{kind}\"");
                problems.warn(offset, text);
            }
        }
    }
    let kind = match &*kind_text {
        "http" => CheckKind::Http(Box::new(parse_http_check(&section, problems))),
        "agent" => CheckKind::Agent { send: section.text("send").map(|text| text.value).unwrap_or_default() },
        _ => CheckKind::Tcp,
    };
    let address = parse_text_key(&section, "address", problems, validate::parse_server_address);
    let port = section.integer("port").and_then(|port| u16::try_from(port).ok());
    if let (Some(_), Some(_), Some(offset)) = (&address, port, section.key_offset("port")) {
        problems.add_error(offset, "'address' already has a port: remove one of them");
    }
    let uses_tls = match section.key_offset("tls") {
        Some(offset) if section.flag("tls") && pool.key_offset("tls").is_none() => {
            problems.add_error(offset, "the pool has no `tls`: add it, or remove this key");
            false
        }
        Some(_) => section.flag("tls"),
        // Agents speak a protocol of their own on a port of their own.
        None => !matches!(kind, CheckKind::Agent { .. }),
    };
    let interval_ns = section.integer_or_zero("interval");
    let count = |key| u32::try_from(section.integer_or_zero(key)).unwrap_or(1);
    Some(CheckPlan {
        kind,
        address,
        port,
        interval_ns,
        fast_interval_ns: section.integer("fast-interval").unwrap_or(interval_ns),
        down_interval_ns: section.integer("down-interval").unwrap_or(interval_ns),
        timeout_ns: section.integer_or_zero("timeout"),
        rise: count("rise"),
        fall: count("fall"),
        jitter: section.float("jitter").unwrap_or_default(),
        uses_tls,
        http: section.text("http").map_or(pool_http, |text| http2::parse_version(&text.value)),
    })
}

fn parse_http_check(section: &Section, problems: &mut Problems) -> HttpCheck {
    let method = parse_text_key(section, "method", problems, |text| {
        let is_valid = wire::encode::check_field_name(text);
        is_valid.map(|()| text.into()).map_err(|_| ValueError::Method(text.into()))
    });
    let is_options = method.as_deref() == Some("OPTIONS");
    let path = parse_text_key(section, "path", problems, |text| {
        if text == "*" && !is_options {
            return Err(ValueError::AsteriskWithoutOptions);
        }
        if !text.starts_with('/') && text != "*" {
            return Err(ValueError::RelativePath(text.into()));
        }
        let checked = wire::encode::check_target(text);
        checked.map(|()| text.into()).map_err(|error| ValueError::Path { text: text.into(), error })
    });
    let host = parse_text_key(section, "host", problems, |text| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:[]".contains(&byte);
        let is_valid = !text.is_empty() && text.bytes().all(is_allowed);
        if is_valid { Ok(text.into()) } else { Err(ValueError::Host(text.into())) }
    });
    let mut headers = Vec::new();
    for pair in section.pairs("headers") {
        let Located { value: name, offset } = pair.name;
        let Matcher::Text(value) = pair.matcher.value else { continue };
        let result =
            validate::check_changed_field(&name, false).and_then(|()| validate::check_field_value(&value));
        problems.ok_or_report(offset, result);
        headers.push((name, value));
    }
    HttpCheck {
        method: method.unwrap_or_else(|| "GET".into()),
        path: path.unwrap_or_else(|| "/".into()),
        host,
        headers,
        statuses: parse_text_key(section, "status", problems, parse_statuses).unwrap_or(Statuses(Vec::new())),
        body: section.text("body").map(|text| text.value),
    }
}

/// Reads the conditions for ejecting a server.
pub(super) fn parse_outlier(pool: &Section, problems: &mut Problems) -> OutlierPlan {
    let section = pool.table("outlier");
    let to_u32 = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    OutlierPlan {
        failures: to_u32(section.integer_or_zero("failures")),
        errors: section.integer("errors").map(to_u32),
        statuses: parse_text_key(&section, "statuses", problems, parse_statuses)
            .unwrap_or(Statuses(Vec::new())),
        error_rate: section.float("error-rate"),
        latency_factor: section.integer("latency-factor").map(to_u32),
        window_ns: section.integer_or_zero("window"),
        requests_min: to_u32(section.integer_or_zero("requests-min")),
        ejection_ns: section.integer_or_zero("ejection"),
        ejection_max_ns: section.integer_or_zero("ejection-max"),
        max_ejected: section.float("max-ejected").unwrap_or_default(),
    }
}

/// Reads the settings for resolving names. By default IPv4 addresses are preferred, unless all source
/// addresses are IPv6.
pub(super) fn parse_resolve(pool: &Section, sources: &[IpAddr], problems: &mut Problems) -> ResolvePlan {
    let section = pool.table("resolve");
    let nameservers = section.texts("nameserver").into_iter().filter_map(|text| {
        let with_default_port = |ip: IpAddr| SocketAddr::new(ip, NAMESERVER_PORT);
        let parsed = text.value.parse().or_else(|_| text.value.parse().map(with_default_port));
        let invalid = |_| ValueError::Nameserver(text.value.clone());
        problems.ok_or_report(text.offset, parsed.map_err(invalid))
    });
    let nameservers = nameservers.collect();
    let is_default = section.key_offset("prefer").is_none();
    let only_ipv6 = !sources.is_empty() && sources.iter().all(IpAddr::is_ipv6);
    let interval_ns = section.integer_or_zero("interval");
    ResolvePlan {
        nameservers,
        interval_ns,
        interval_min_ns: section.integer_or_zero("interval-min").min(interval_ns),
        timeout_ns: section.integer_or_zero("timeout"),
        hold_ns: section.integer_or_zero("hold"),
        servers_max: section.size("servers-max"),
        prefer: match section.text("prefer").as_ref().map(|text| &*text.value) {
            Some("ipv6") => PreferredFamily::Ipv6,
            _ if is_default && only_ipv6 => PreferredFamily::Ipv6,
            _ => PreferredFamily::Ipv4,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_addresses_or_names() {
        let show = |text: &str| match parse_target(text) {
            Ok(ServerTarget::Fixed(address)) => format!("fixed {address}"),
            Ok(ServerTarget::Named(Lookup::Host { name, port })) => format!("name {name} {port}"),
            Ok(ServerTarget::Named(_)) => "?".into(),
            Err(ValueError::Service(_)) => "service".into(),
            Err(_) => "wrong".into(),
        };
        for (text, expected) in [
            ("_http._tcp.app.internal", "service"),
            ("127.0.0.1:80", "fixed 127.0.0.1:80"),
            ("[::1]:80", "fixed [::1]:80"),
            ("unix:/a:b", "fixed unix:/a:b"),
            ("App.Internal.:8080", "name app.internal 8080"),
            ("localhost:1", "name localhost 1"),
            ("_a.b-c:1", "name _a.b-c 1"),
            ("256.0.0.1:80", "wrong"),
            ("app:0", "wrong"),
            ("app", "wrong"),
            ("a..b:1", "wrong"),
            ("a b:1", "wrong"),
            (":0", "wrong"),
        ] {
            assert_eq!(show(text), expected, "{text}");
        }
        assert!(parse_service(&format!("{}.a", "x".repeat(64))).is_err());
        assert!(parse_service(&"a.".repeat(130)).is_err());
    }

    #[test]
    fn statuses_are_lists_of_ranges() {
        let parsed = parse_statuses("200, 204,300-399").unwrap();
        assert!([200, 204, 300, 399].iter().all(|&status| parsed.contains(status)));
        assert!(![201, 400].iter().any(|&status| parsed.contains(status)));
        assert_eq!(parsed.to_string(), "200,204,300-399");
        assert_eq!(parse_statuses("2xx,304").unwrap().to_string(), "200-299,304");
        for invalid in ["", "99", "1000", "300-200", "2x", "0xx", "6xx", "xx", "200-", ","] {
            assert!(parse_statuses(invalid).is_err(), "{invalid}");
        }
    }
}
