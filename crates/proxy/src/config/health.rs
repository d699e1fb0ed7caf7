//! `[pool.NAME.check]`, `[pool.NAME.outlier]`, `[pool.NAME.resolve]` and the names of servers: what
//! was read of them to their part of the plan.

use std::net::{IpAddr, SocketAddr};

use rt::address::Address;

use crate::plan::{
    CheckKind, CheckPlan, HttpCheck, Lookup, OutlierPlan, Prefer, ResolvePlan, Statuses,
};

use super::forms;
use super::source::{At, Problems};
use super::value::{Section, Wanted};

/// Keys that only one type of check has.
const OF_TYPE: &[(&str, &[&str])] =
    &[("http", &["method", "path", "host", "headers", "status", "body"]), ("agent", &["send"])];
const NAMESERVER_PORT: u16 = 53;
/// Bytes of a name in DNS, and of one of its labels (RFC 1035 §2.3.4).
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// Where a server is, as it was written.
pub(super) enum Target {
    Fixed(Address),
    Named(Lookup),
}

/// An address to connect to, or a name and a port.
pub(super) fn target(text: &str) -> Result<Target, String> {
    let is_literal = text.parse::<SocketAddr>().is_ok();
    let (host, port) = text.rsplit_once(':').unwrap_or_default();
    let is_name = !host.is_empty() && !host.contains([':', '*', '[']) && !is_literal;
    if !is_name || text.starts_with("unix:") || port.parse::<u16>().is_err() {
        return forms::server_address(text).map(Target::Fixed);
    }
    match port.parse() {
        Ok(0) | Err(_) => Err(format!("'{text}' has no port to connect to")),
        Ok(port) => Ok(Target::Named(Lookup::Host { name: dns_name(host)?, port })),
    }
}

/// A service's name.
pub(super) fn service(text: &str) -> Result<Lookup, String> {
    dns_name(text).map(Lookup::Service)
}

/// A name as DNS has it, in lower case and without the dot at its end.
fn dns_name(text: &str) -> Result<Box<str>, String> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_label =
        |label: &str| (1..=LABEL_BYTES_MAX).contains(&label.len()) && label.bytes().all(fine);
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit());
    if name.len() > NAME_BYTES_MAX || !name.split('.').all(is_label) || is_number {
        return Err(format!("'{text}' is neither an address nor a name in DNS"));
    }
    Ok(name.into())
}

/// `200-399`, `200,204`.
fn statuses(text: &str) -> Result<Statuses, String> {
    let wrong = || format!("'{text}' is not a list of statuses (write 200-399 or 200,204)");
    let number = |text: &str| {
        text.trim().parse().ok().filter(|status| (100..=999).contains(status)).ok_or_else(wrong)
    };
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (number(first)?, number(last)?);
        if first > last { Err(wrong()) } else { Ok(first..=last) }
    };
    text.split(',').map(range).collect::<Result<_, _>>().map(Statuses)
}

fn of_text<T>(
    section: &Section,
    key: &str,
    problems: &mut Problems,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Option<T> {
    section.text(key).and_then(|text| problems.take(text.at, parse(&text.value)))
}

/// The check of a pool, if it has one.
pub(super) fn check(pool: &Section, problems: &mut Problems) -> Option<CheckPlan> {
    pool.place("check")?;
    let section = pool.table("check");
    let kind_text = section.text("type").map(|text| text.value).unwrap_or_default();
    for (kind, keys) in OF_TYPE {
        for key in keys.iter().filter(|_| **kind != *kind_text) {
            if let Some(at) = section.place(key) {
                let text = format!("'{key}' is only looked at with type = \"{kind}\"");
                problems.warn(at, text);
            }
        }
    }
    let kind = match &*kind_text {
        "http" => CheckKind::Http(Box::new(http(&section, problems))),
        "agent" => CheckKind::Agent {
            send: section.text("send").map(|text| text.value).unwrap_or_default(),
        },
        _ => CheckKind::Tcp,
    };
    let address = of_text(&section, "address", problems, forms::server_address);
    let port = section.whole("port").and_then(|port| u16::try_from(port).ok());
    if let (Some(_), Some(_), Some(at)) = (&address, port, section.place("port")) {
        problems.add(at, "'address' has a port already: leave one of them out");
    }
    let interval_ns = section.number("interval");
    let count = |key| u32::try_from(section.number(key)).unwrap_or(1);
    Some(CheckPlan {
        kind,
        address,
        port,
        interval_ns,
        fast_interval_ns: section.whole("fast-interval").unwrap_or(interval_ns),
        down_interval_ns: section.whole("down-interval").unwrap_or(interval_ns),
        timeout_ns: section.number("timeout"),
        rise: count("rise"),
        fall: count("fall"),
        jitter: section.fraction("jitter").unwrap_or_default(),
    })
}

fn http(section: &Section, problems: &mut Problems) -> HttpCheck {
    let method = of_text(section, "method", problems, |text| {
        let valid = wire::encode::check_field_name(text);
        valid.map(|()| text.into()).map_err(|_| format!("'{text}' is not a method"))
    });
    let is_options = method.as_deref() == Some("OPTIONS");
    let path = of_text(section, "path", problems, |text| {
        if text == "*" && !is_options {
            return Err("'*' is a target of OPTIONS alone: add method = \"OPTIONS\"".to_owned());
        }
        let is_target = text.starts_with('/') || text == "*";
        let valid = wire::encode::check_target(text).is_ok() && is_target;
        if valid { Ok(text.into()) } else { Err(format!("'{text}' is not a path")) }
    });
    let host = of_text(section, "host", problems, |text| {
        let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:[]".contains(&byte);
        let valid = !text.is_empty() && text.bytes().all(fine);
        if valid { Ok(text.into()) } else { Err(format!("'{text}' is not a host")) }
    });
    let mut headers = Vec::new();
    for pair in section.pairs("headers") {
        let At { value: name, at } = pair.name;
        let Wanted::Text(value) = pair.wanted.value else { continue };
        let fine = forms::changed_field(&name, false).and_then(|()| forms::field_value(&value));
        problems.take(at, fine);
        headers.push((name, value));
    }
    HttpCheck {
        method: method.unwrap_or_else(|| "GET".into()),
        path: path.unwrap_or_else(|| "/".into()),
        host,
        headers,
        statuses: of_text(section, "status", problems, statuses).unwrap_or(Statuses(Vec::new())),
        body: section.text("body").map(|text| text.value),
    }
}

/// When a server is ejected.
pub(super) fn outlier(pool: &Section, problems: &mut Problems) -> OutlierPlan {
    let section = pool.table("outlier");
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    OutlierPlan {
        failures: small(section.number("failures")),
        errors: section.whole("errors").map(small),
        statuses: of_text(&section, "statuses", problems, statuses).unwrap_or(Statuses(Vec::new())),
        error_rate: section.fraction("error-rate"),
        latency_factor: section.whole("latency-factor").map(small),
        window_ns: section.number("window"),
        requests_min: small(section.number("requests-min")),
        ejection_ns: section.number("ejection"),
        ejection_max_ns: section.number("ejection-max"),
        max_ejected: section.fraction("max-ejected").unwrap_or_default(),
    }
}

/// How names are looked up.
pub(super) fn resolve(pool: &Section, problems: &mut Problems) -> ResolvePlan {
    let section = pool.table("resolve");
    let nameservers = section.texts("nameserver").into_iter().filter_map(|text| {
        let bare = |ip: IpAddr| SocketAddr::new(ip, NAMESERVER_PORT);
        let parsed = text.value.parse().or_else(|_| text.value.parse().map(bare));
        let wrong = |_| format!("'{}' is not a nameserver (write 127.0.0.1:53)", text.value);
        problems.take(text.at, parsed.map_err(wrong))
    });
    let nameservers = nameservers.collect();
    let interval_ns = section.number("interval");
    ResolvePlan {
        nameservers,
        interval_ns,
        interval_min_ns: section.number("interval-min").min(interval_ns),
        timeout_ns: section.number("timeout"),
        hold_ns: section.number("hold"),
        servers_max: section.size("servers-max"),
        prefer: match section.text("prefer").as_ref().map(|text| &*text.value) {
            Some("ipv6") => Prefer::Ipv6,
            _ => Prefer::Ipv4,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_addresses_or_names() {
        let show = |text: &str| match target(text) {
            Ok(Target::Fixed(address)) => format!("fixed {address}"),
            Ok(Target::Named(Lookup::Host { name, port })) => format!("name {name} {port}"),
            Ok(Target::Named(_)) => "?".into(),
            Err(_) => "wrong".into(),
        };
        for (text, wanted) in [
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
            assert_eq!(show(text), wanted, "{text}");
        }
        assert!(service(&format!("{}.a", "x".repeat(64))).is_err());
        assert!(service(&"a.".repeat(130)).is_err());
    }

    #[test]
    fn statuses_are_lists_of_ranges() {
        let some = statuses("200, 204,300-399").unwrap();
        assert!([200, 204, 300, 399].iter().all(|&status| some.contains(status)));
        assert!(![201, 400].iter().any(|&status| some.contains(status)));
        assert_eq!(some.to_string(), "200,204,300-399");
        for wrong in ["", "99", "1000", "300-200", "2xx", "200-", ","] {
            assert!(statuses(wrong).is_err(), "{wrong}");
        }
    }
}
