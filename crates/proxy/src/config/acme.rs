//! Converts `[listener.NAME.tls.acme]` to its part of the plan.

use std::path::PathBuf;

use crate::plan::{AcmeChallenge, AcmePlan, Mode};

use super::errors::ValueError;
use super::spans::Problems;
use super::validate;
use super::value::Section;

/// Reads the settings of automatic certificates, if the listener has some.
pub(super) fn parse_acme(tls: &Section, mode: Mode, problems: &mut Problems) -> Option<AcmePlan> {
    let offset = tls.key_offset("acme")?;
    let section = tls.table("acme");
    if section.offset == tls.offset {
        // It is not a table, which has been reported.
        return None;
    }
    if !section.flag("agree-to-terms") {
        let text = "the ACME server requires agreement to its terms of service: read them, and add \
                    agree-to-terms = true";
        problems.add_error(offset, text);
    }
    let challenge = match section.text("challenge").as_ref().map(|text| &*text.value) {
        Some("tls-alpn-01") => AcmeChallenge::TlsAlpn01,
        _ => AcmeChallenge::Http01,
    };
    if mode != Mode::Http && challenge == AcmeChallenge::TlsAlpn01 {
        problems.add_error(offset, "challenge tls-alpn-01 needs mode http: use http-01");
    }
    let directory = section.text("directory")?;
    if !directory.value.starts_with("https://") {
        problems.add_error(directory.offset, format!("'{}' is not a URL with https", directory.value));
    }
    let domains = section.texts("domains").into_iter();
    let domains = domains.filter_map(|text| {
        let check = validate::parse_host(&text.value).and_then(|host| match &*host {
            host if host.starts_with("*.") => Err(ValueError::WildcardDomain(host.into())),
            host if host.starts_with('[') || host.parse::<std::net::IpAddr>().is_ok() => {
                Err(ValueError::DomainIsAddress(host.into()))
            }
            _ => Ok(host),
        });
        problems.ok_or_report(text.offset, check)
    });
    let domains: Vec<_> = domains.collect();
    let storage = section.text("storage")?;
    let path = PathBuf::from(&*storage.value);
    if !path.is_dir() {
        let text = format!("{}: missing directory (create it, only for the proxy's user)", path.display());
        problems.add_error(storage.offset, text);
    }
    if domains.is_empty() {
        return None;
    }
    Some(AcmePlan {
        directory: directory.value,
        ca: section.text("ca").map(|text| PathBuf::from(&*text.value)),
        contact: section.texts("contact").into_iter().map(|text| text.value).collect(),
        domains,
        storage: path,
        challenge,
    })
}
