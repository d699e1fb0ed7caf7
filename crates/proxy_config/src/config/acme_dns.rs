//! Converts `[listener.NAME.tls.acme.dns]` to its part of the plan, and checks its files.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use record::document::{Located, Problems};
use rt::clock::SECOND_NS;

use crate::plan::{
    AcmeChallenge, DnsChallengePlan, DnsProvider, HookPlan, PropagationCheck, TsigAlgorithm, TsigKeySource,
    UpdatePlan,
};
use crate::private_file::check_unchangeable;
use crate::tsig_key_file::read_tsig_key;

use super::errors::ValueError;
use super::validate;
use super::value::Section;

/// Keys that only dynamic updates need.
const UPDATE_KEYS: [&str; 6] = ["key-file", "key-name", "algorithm", "secret-file", "zone", "ttl"];
/// Word for all name servers of the zone.
const AUTHORITATIVE: &str = "authoritative";

/// Reads the settings of DNS-01; `None`: another challenge, or settings at fault.
pub(super) fn parse_dns(
    acme: &Section,
    challenge: AcmeChallenge,
    problems: &mut Problems,
) -> Option<DnsChallengePlan> {
    let given = acme.key_offset("dns");
    let is_used = challenge == AcmeChallenge::Dns01;
    let Some(offset) = given else {
        if is_used {
            let text = "challenge dns-01 needs a table `dns` with `server` and `key-file`, or with `hook`";
            problems.add_error(acme.value_offset("challenge"), text);
        }
        return None;
    };
    if !is_used {
        problems.warn(offset, "'dns' has no effect without challenge = 'dns-01'");
    }
    let section = acme.table("dns");
    if section.offset == acme.offset {
        // It is not a table, which has been reported.
        return None;
    }
    let provider = match (section.text("server"), section.key_offset("hook")) {
        (Some(_), Some(hook)) => {
            problems.add_error(hook, "`server` and `hook` exclude each other: remove one of them");
            None
        }
        (Some(server), None) => parse_update(&section, &server, problems).map(DnsProvider::Update),
        (None, Some(_)) => parse_hook(&section, problems).map(DnsProvider::Hook),
        (None, None) => {
            problems.add_error(offset, "'dns' needs `server`, or `hook`: add one of them");
            None
        }
    }?;
    let check = parse_check(&section, &provider, problems)?;
    Some(DnsChallengePlan {
        provider,
        check,
        propagation_timeout_ns: section.integer_or_zero("propagation-timeout"),
        propagation_interval_ns: section.integer_or_zero("propagation-interval"),
    })
    .filter(|_| is_used)
}

fn parse_update(
    section: &Section,
    server: &Located<Box<str>>,
    problems: &mut Problems,
) -> Option<UpdatePlan> {
    let server = problems.ok_or_report(server.offset, parse_nameserver(&server.value));
    let key = parse_key(section, problems);
    let zone = match section.text("zone") {
        Some(text) => Some(problems.ok_or_report(text.offset, validate::parse_host(&text.value))?),
        None => None,
    };
    let ttl_s = (section.integer_or_zero("ttl") / SECOND_NS).min(i32::MAX as u64) as u32;
    Some(UpdatePlan { server: server?, key: key?, zone, ttl_s })
}

fn parse_key(section: &Section, problems: &mut Problems) -> Option<TsigKeySource> {
    let (file, secret_file) = (section.text("key-file"), section.text("secret-file"));
    let source = match (&file, &secret_file) {
        (Some(_), Some(other)) => {
            problems.add_error(
                other.offset,
                "`key-file` and `secret-file` exclude each other: remove one of them",
            );
            return None;
        }
        (None, None) => {
            let text = "`server` needs the key of updates: add `key-file`, or `key-name` and `secret-file`";
            problems.add_error(section.value_offset("server"), text);
            return None;
        }
        (Some(file), None) => {
            for key in ["key-name", "algorithm"] {
                if let Some(offset) = section.key_offset(key) {
                    problems
                        .warn(offset, format!("'{key}' has no effect with `key-file`, which has its own"));
                }
            }
            TsigKeySource::File(PathBuf::from(&*file.value))
        }
        (None, Some(secret)) => {
            let Some(name) = section.text("key-name") else {
                problems.add_error(secret.offset, "`secret-file` needs `key-name`: add it");
                return None;
            };
            let name = problems.ok_or_report(name.offset, validate::parse_host(&name.value))?;
            let algorithm = section.text("algorithm").and_then(|text| TsigAlgorithm::from_name(&text.value));
            let algorithm = algorithm.unwrap_or(TsigAlgorithm::HmacSha256);
            TsigKeySource::Secret { name, algorithm, file: PathBuf::from(&*secret.value) }
        }
    };
    let offset = file.or(secret_file).map_or(section.offset, |text| text.offset);
    validate::warn_of_world_readable(source.path(), offset, problems);
    problems.ok_or_report(offset, read_tsig_key(&source)).map(|_| source)
}

fn parse_hook(section: &Section, problems: &mut Problems) -> Option<HookPlan> {
    for key in UPDATE_KEYS {
        if let Some(offset) = section.key_offset(key) {
            problems.warn(offset, format!("'{key}' has no effect without `server`"));
        }
    }
    let words = section.texts("hook");
    let program = words.first()?;
    problems.ok_or_report(program.offset, check_program(Path::new(&*program.value)))?;
    let command = words.into_iter().map(|text| text.value).collect();
    Some(HookPlan { command, timeout_ns: section.integer_or_zero("hook-timeout") })
}

/// Checks that a program can be started, and that only root and the own user can change it.
fn check_program(path: &Path) -> Result<(), ValueError> {
    const EXECUTE: u32 = 0o111;
    if !path.is_absolute() {
        return Err(ValueError::RelativeProgram(path.into()));
    }
    let failed = |error| ValueError::File { path: path.into(), error };
    let metadata = fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() || metadata.permissions().mode() & EXECUTE == 0 {
        return Err(ValueError::NotAProgram(path.into()));
    }
    check_unchangeable(&metadata).map_err(failed)
}

fn parse_check(
    section: &Section,
    provider: &DnsProvider,
    problems: &mut Problems,
) -> Option<PropagationCheck> {
    let texts = section.texts("check-servers");
    if texts.iter().any(|text| &*text.value == AUTHORITATIVE) {
        if let Some(other) = texts.iter().find(|text| &*text.value != AUTHORITATIVE) {
            problems.warn(other.offset, format!("'{AUTHORITATIVE}' names all servers: remove the others"));
        }
        return Some(PropagationCheck::Authoritative);
    }
    if texts.is_empty() {
        return Some(match provider {
            DnsProvider::Update(update) => PropagationCheck::Servers(vec![update.server.clone()]),
            DnsProvider::Hook(_) => PropagationCheck::None,
        });
    }
    let parse = |text: Located<Box<str>>| problems.ok_or_report(text.offset, parse_nameserver(&text.value));
    let servers: Option<Vec<_>> = texts.into_iter().map(parse).collect();
    servers.map(PropagationCheck::Servers)
}

/// Parses a host or an address of a name server; without a port, 53.
fn parse_nameserver(text: &str) -> Result<Box<str>, ValueError> {
    const PORT: u16 = 53;
    let invalid = || ValueError::Nameserver(text.into());
    if let Ok(address) = text.parse::<std::net::IpAddr>() {
        return Ok(std::net::SocketAddr::new(address, PORT).to_string().into());
    }
    if text.parse::<std::net::SocketAddr>().is_ok_and(|address| address.port() > 0) {
        return Ok(text.into());
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, port.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(invalid)?),
        None => (text, PORT),
    };
    let host = validate::parse_host(host).map_err(|_| invalid())?;
    match host.starts_with("*.") || host.starts_with('[') {
        true => Err(invalid()),
        false => Ok(format!("{host}:{port}").into()),
    }
}
