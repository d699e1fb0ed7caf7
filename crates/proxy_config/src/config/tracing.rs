//! Converts `tracing`.

use std::path::PathBuf;

use http::Uri;
use record::document::Problems;
use rt::tls::{ClientTls, ClientTlsOptions, Verification};

use super::errors::ValueError;
use super::validate;
use super::value::{Matcher, Pair, Section};
use crate::plan::{Collector, TraceSample, TraceTrust, TracingPlan};

/// Path of a URL without one (OTLP, "OTLP/HTTP Request").
const DEFAULT_PATH: &str = "/v1/traces";

/// Reads `tracing`; `None`: it was not given, or its collector is invalid.
pub(super) fn parse_tracing(root: &Section, problems: &mut Problems) -> Option<TracingPlan> {
    root.key_offset("tracing")?;
    let section = root.table("tracing");
    let collector = parse_collector(&section, problems)?;
    let trust = match section.text("context").as_ref().map(|text| &*text.value) {
        Some("all") => TraceTrust::All,
        Some("new") => TraceTrust::New,
        _ => TraceTrust::Trusted,
    };
    Some(TracingPlan {
        collector,
        service_name: section.text("service-name").map_or_else(|| "weir".into(), |text| text.value),
        attributes: pairs(&section, "attributes"),
        trust,
        sample: TraceSample::new(section.float("sample").unwrap_or_default()),
        slow_ns: section.integer("slow"),
        records_failed: section.flag("failed"),
        requests_per_second_max: section.float("requests-rate").unwrap_or_default(),
    })
}

fn parse_collector(section: &Section, problems: &mut Problems) -> Option<Collector> {
    let url = section.text("collector")?;
    let Target { is_tls, host, port, path } = problems.ok_or_report(url.offset, parse_url(&url.value))?;
    if let Some(offset) = section.key_offset("ca").filter(|_| !is_tls) {
        problems.warn(offset, "'ca' has no effect on a collector with http");
    }
    let tls = match is_tls {
        true => Some(parse_tls(section, url.offset, problems)?),
        false => None,
    };
    Some(Collector {
        url: url.value,
        tls,
        host,
        port,
        path,
        fields: parse_fields(section, problems),
        timeout_ns: section.integer_or_zero("timeout"),
    })
}

/// Parts of a collector's URL.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    is_tls: bool,
    host: Box<str>,
    port: u16,
    path: Box<str>,
}

fn parse_url(text: &str) -> Result<Target, ValueError> {
    let not_a_url = || ValueError::CollectorUrl(text.into());
    let uri: Uri = text.parse().map_err(|_| not_a_url())?;
    let (is_tls, default_port) = match uri.scheme_str() {
        Some("http") => (false, 80),
        Some("https") => (true, 443),
        _ => return Err(not_a_url()),
    };
    let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(not_a_url)?;
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(not_a_url());
    }
    let path = match uri.path_and_query().map(http::uri::PathAndQuery::as_str) {
        None | Some("" | "/") => DEFAULT_PATH,
        Some(path) => path,
    };
    Ok(Target { is_tls, host: host.into(), port: uri.port_u16().unwrap_or(default_port), path: path.into() })
}

fn parse_tls(section: &Section, url_offset: usize, problems: &mut Problems) -> Option<ClientTls> {
    let ca = section.text("ca");
    let offset = ca.as_ref().map_or(url_offset, |ca| ca.offset);
    let verification =
        ca.map_or(Verification::HostRoots, |ca| Verification::CaFile(PathBuf::from(&*ca.value)));
    let options = ClientTlsOptions { verification, alpn: vec![b"http/1.1".to_vec()], ..Default::default() };
    match ClientTls::new(&options) {
        Ok(tls) => Some(tls),
        Err(error) => {
            problems.add_error(offset, error);
            None
        }
    }
}

/// Reads texts with names.
fn pairs(section: &Section, key: &str) -> Vec<(Box<str>, Box<str>)> {
    let pairs = section.pairs(key).into_iter();
    let text = |pair: Pair| match pair.matcher.value {
        Matcher::Text(value) => Some((pair.name.value, value)),
        _ => None,
    };
    pairs.filter_map(text).collect()
}

/// Reads the fields of requests to the collector.
fn parse_fields(section: &Section, problems: &mut Problems) -> Vec<(Box<str>, Box<str>)> {
    for pair in section.pairs("headers") {
        let Matcher::Text(value) = &pair.matcher.value else { continue };
        let name = validate::check_changed_field(&pair.name.value, false);
        problems.ok_or_report(pair.name.offset, name.and_then(|()| validate::check_field_value(value)));
    }
    pairs(section, "headers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectors_are_urls() {
        let target = |is_tls, host: &str, port, path: &str| Target {
            is_tls,
            host: host.into(),
            port,
            path: path.into(),
        };
        for (url, expected) in [
            ("http://127.0.0.1:4318", target(false, "127.0.0.1", 4318, DEFAULT_PATH)),
            ("https://c.example/", target(true, "c.example", 443, DEFAULT_PATH)),
            ("http://[::1]/x?y=z", target(false, "[::1]", 80, "/x?y=z")),
        ] {
            assert_eq!(parse_url(url).unwrap(), expected, "{url}");
        }
        for wrong in ["", "127.0.0.1:4318", "grpc://c", "http:///x", "http://a:b@c/", "http://a b", "/v1"] {
            assert!(parse_url(wrong).is_err(), "{wrong}");
        }
    }
}
