//! Converts `[listener.NAME.tls.acme]` to its part of the plan.

use std::path::PathBuf;

use record::document::{Located, Problems};

use crate::plan::{AcmeChallenge, AcmePlan, Mode, SharingPlan};

use super::acme_dns::parse_dns;
use super::errors::ValueError;
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
        Some("dns-01") => AcmeChallenge::Dns01,
        _ => AcmeChallenge::Http01,
    };
    if mode != Mode::Http && challenge == AcmeChallenge::TlsAlpn01 {
        problems.add_error(offset, "challenge tls-alpn-01 needs mode http: use http-01 or dns-01");
    }
    let dns_settings = parse_dns(&section, challenge, problems);
    let directory = section.text("directory")?;
    if !directory.value.starts_with("https://") {
        problems.add_error(directory.offset, format!("'{}' is not a URL with https", directory.value));
    }
    let domains = section.texts("domains").into_iter();
    let domains: Vec<_> = domains
        .filter_map(|text| problems.ok_or_report(text.offset, parse_domain(&text, challenge)))
        .collect();
    let storage = section.text("storage")?;
    let path = PathBuf::from(&*storage.value);
    if !path.is_dir() {
        let text = format!("{}: missing directory (create it, only for the proxy's user)", path.display());
        problems.add_error(storage.offset, text);
    }
    let sharing = parse_sharing(&section, problems);
    if domains.is_empty() || (challenge == AcmeChallenge::Dns01 && dns_settings.is_none()) {
        return None;
    }
    Some(AcmePlan {
        directory: directory.value,
        ca: section.text("ca").map(|text| PathBuf::from(&*text.value)),
        contact: section.texts("contact").into_iter().map(|text| text.value).collect(),
        domains,
        storage: path,
        sharing,
        challenge,
        dns: dns_settings,
    })
}

fn parse_domain(text: &Located<Box<str>>, challenge: AcmeChallenge) -> Result<Box<str>, ValueError> {
    validate::parse_host(&text.value).and_then(|host| match &*host {
        name if name.starts_with("*.") && challenge != AcmeChallenge::Dns01 => {
            Err(ValueError::WildcardDomain(name.into()))
        }
        name if name.starts_with('[') || name.parse::<std::net::IpAddr>().is_ok() => {
            Err(ValueError::DomainIsAddress(name.into()))
        }
        _ => Ok(host),
    })
}

fn parse_sharing(section: &Section, problems: &mut Problems) -> Option<SharingPlan> {
    let is_shared = section.flag("shared-storage");
    for key in ["lease", "poll-interval"] {
        if let (false, Some(offset)) = (is_shared, section.key_offset(key)) {
            problems.warn(offset, format!("'{key}' has no effect without `shared-storage`"));
        }
    }
    is_shared.then(|| SharingPlan {
        lease_ns: section.integer_or_zero("lease"),
        poll_interval_ns: section.integer_or_zero("poll-interval"),
    })
}
