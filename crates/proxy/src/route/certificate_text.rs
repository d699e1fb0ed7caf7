//! Parts of a client's verified certificate as texts, for the texts and the conditions of a config.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rt::tls::{
    certificate_alternative_names, certificate_common_name, certificate_issuer, certificate_serial,
    certificate_subject, certificate_times,
};
use server_shell::date::RenderedSecond;
use sha2::{Digest as _, Sha256};

use crate::plan::{CertificatePart, Fact};

/// Returns the values of a part of a certificate, any of which meets a condition.
pub(super) fn certificate_values(part: CertificatePart, certificate: &[u8]) -> Vec<String> {
    match part {
        CertificatePart::San => certificate_alternative_names(certificate),
        CertificatePart::Dns | CertificatePart::Uri | CertificatePart::Email => {
            names_of(part.fact(), certificate)
        }
        single => certificate_text(single.fact(), certificate).into_iter().collect(),
    }
}

/// Returns the text of a fact about a certificate; `None`: the certificate has no such part.
pub(super) fn certificate_text(fact: Fact, certificate: &[u8]) -> Option<String> {
    match fact {
        Fact::ClientSubject => certificate_subject(certificate),
        Fact::ClientIssuer => certificate_issuer(certificate),
        Fact::ClientCommonName => certificate_common_name(certificate),
        Fact::ClientSan => Some(certificate_alternative_names(certificate).join(",")),
        Fact::ClientDns | Fact::ClientUri | Fact::ClientEmail => Some(names_of(fact, certificate).join(",")),
        Fact::ClientSerial => certificate_serial(certificate),
        Fact::ClientNotBefore => certificate_times(certificate).map(|(start_s, _)| time_text(start_s)),
        Fact::ClientNotAfter => certificate_times(certificate).map(|(_, end_s)| time_text(end_s)),
        Fact::ClientFingerprint => {
            let mut text = String::new();
            for byte in Sha256::digest(certificate) {
                // Writing to a String cannot fail.
                let _ = write!(text, "{byte:02x}");
            }
            Some(text)
        }
        _ => Some(escaped_pem(certificate)),
    }
}

/// Returns the alternative names of the kind of a fact, without their kind.
fn names_of(fact: Fact, certificate: &[u8]) -> Vec<String> {
    let kind = match fact {
        Fact::ClientDns => "DNS:",
        Fact::ClientUri => "URI:",
        _ => "email:",
    };
    let all = certificate_alternative_names(certificate).into_iter();
    all.filter_map(|name| name.strip_prefix(kind).map(str::to_owned)).collect()
}

fn time_text(at_s: u64) -> String {
    let mut second = RenderedSecond::default();
    second.set_second(at_s);
    format!("{}Z", String::from_utf8_lossy(second.iso()))
}

/// Returns a certificate in PEM, with everything that a URL cannot have percent-encoded.
fn escaped_pem(certificate: &[u8]) -> String {
    const LINE_CHARACTERS: usize = 64;
    let content = STANDARD.encode(certificate);
    let mut text = "-----BEGIN%20CERTIFICATE-----%0A".to_owned();
    for (index, character) in content.chars().enumerate() {
        if index > 0 && index % LINE_CHARACTERS == 0 {
            text.push_str("%0A");
        }
        match character {
            '+' => text.push_str("%2B"),
            '/' => text.push_str("%2F"),
            '=' => text.push_str("%3D"),
            other => text.push(other),
        }
    }
    text + "%0A-----END%20CERTIFICATE-----%0A"
}
