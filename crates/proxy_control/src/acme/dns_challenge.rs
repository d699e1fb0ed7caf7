//! Records of the challenge DNS-01 (RFC 8555 §8.4): sets them, by a dynamic update or by a hook, waits until
//! they are visible, and removes them.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::time::Duration;

use proxy_config::tsig_key_file::{KeyFileError, read_tsig_key};
use record::problem::printable;
use record::units::format_duration_ns;
use rt::child_process::{FinishedProgram, run_to_end};
use rt::clock::MonotonicTime;
use rt::timers::Timers;

use super::blocking::run_blocking;
use super::dns_client::{DnsError, DnsServer};
use crate::dns::system_nameservers;
use crate::dns::update::{ChangeKind, TxtChange};
use crate::plan::{DnsChallengePlan, DnsProvider, HookPlan, PropagationCheck, UpdatePlan};

/// Bytes of the standard error of a hook that are kept for the message about its failure.
const HOOK_STDERR_BYTES: usize = 1_024;
/// Maximum number of lines of it in the message, and of bytes of each.
const HOOK_LINES_MAX: usize = 5;
const HOOK_LINE_BYTES: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TxtRecord {
    /// Without the final dot.
    pub(super) name: String,
    pub(super) value: String,
}

impl TxtRecord {
    /// Returns the record that proves the control of a name. A wildcard has that of the name below it.
    pub(super) fn from_domain(domain: &str, value: String) -> Self {
        Self { name: format!("_acme-challenge.{}", domain.trim_start_matches("*.")), value }
    }
}

/// Reason why a record was not set, is not visible or was not removed.
#[derive(Debug, thiserror::Error)]
pub(super) enum DnsChallengeError {
    #[error(transparent)]
    Key(#[from] KeyFileError),
    #[error("name server {server}: {error}")]
    Server { server: Box<str>, error: DnsError },
    #[error("the record {name} is not visible at {server} within {timeout}{reason}")]
    NotVisible { name: String, server: Box<str>, timeout: String, reason: String },
    #[error("hook {program} {action}: {fault}")]
    Hook { program: Box<str>, action: &'static str, fault: HookFault },
}

#[derive(Debug, thiserror::Error)]
pub(super) enum HookFault {
    #[error("cannot start it: {0}")]
    Start(io::Error),
    #[error("it did not end within {0}, and was killed{1}")]
    Timeout(String, String),
    #[error("exit code {0}{1}")]
    Code(i32, String),
    #[error("it was ended by signal {0}{1}")]
    Signal(i32, String),
}

/// Sets a record.
pub(super) async fn add(
    plan: &DnsChallengePlan,
    timers: &Timers,
    record: &TxtRecord,
) -> Result<(), DnsChallengeError> {
    match &plan.provider {
        DnsProvider::Update(update) => {
            change(update, timers, record, ChangeKind::Add { ttl_s: update.ttl_s }).await
        }
        DnsProvider::Hook(hook) => run_hook(hook, "add", record).await,
    }
}

/// Removes a record.
pub(super) async fn remove(
    plan: &DnsChallengePlan,
    timers: &Timers,
    record: &TxtRecord,
) -> Result<(), DnsChallengeError> {
    match &plan.provider {
        DnsProvider::Update(update) => change(update, timers, record, ChangeKind::Remove).await,
        DnsProvider::Hook(hook) => run_hook(hook, "remove", record).await,
    }
}

async fn change(
    plan: &UpdatePlan,
    timers: &Timers,
    record: &TxtRecord,
    kind: ChangeKind,
) -> Result<(), DnsChallengeError> {
    let key = read_tsig_key(&plan.key)?;
    let server = DnsServer { authority: &plan.server, timers };
    let failed = |error| DnsChallengeError::Server { server: plan.server.clone(), error };
    let zone = match &plan.zone {
        Some(zone) => zone.clone(),
        None => server.zone_of(&record.name, false).await.map_err(failed)?,
    };
    let change = TxtChange { name: &record.name, value: &record.value, kind };
    server.update(&zone, change, &key).await.map_err(failed)
}

/// Waits until all records are visible at all name servers of the plan.
pub(super) async fn wait_until_visible(
    plan: &DnsChallengePlan,
    timers: &Timers,
    records: &[TxtRecord],
) -> Result<(), DnsChallengeError> {
    let deadline = MonotonicTime::now() + plan.propagation_timeout_ns;
    for record in records {
        for server in servers_to_check(plan, timers, record).await? {
            wait_for_record(plan, timers, record, (&server, deadline)).await?;
        }
    }
    Ok(())
}

/// Asks a name server until it has a record, or until the deadline.
async fn wait_for_record(
    plan: &DnsChallengePlan,
    timers: &Timers,
    record: &TxtRecord,
    (authority, deadline): (&str, MonotonicTime),
) -> Result<(), DnsChallengeError> {
    let server = DnsServer { authority, timers };
    loop {
        // A server that does not respond now may respond in time.
        let reason = match server.has_txt(&record.name, &record.value).await {
            Ok(true) => return Ok(()),
            Ok(false) => String::new(),
            Err(error) => format!(": {error}"),
        };
        let next = MonotonicTime::now() + plan.propagation_interval_ns;
        if next >= deadline {
            let timeout = format_duration_ns(plan.propagation_timeout_ns);
            let (name, server) = (record.name.clone(), authority.into());
            return Err(DnsChallengeError::NotVisible { name, server, timeout, reason });
        }
        timers.sleep_until(next.as_ns()).await;
    }
}

async fn servers_to_check(
    plan: &DnsChallengePlan,
    timers: &Timers,
    record: &TxtRecord,
) -> Result<Vec<Box<str>>, DnsChallengeError> {
    let (asked, is_recursive) = match (&plan.check, &plan.provider) {
        (PropagationCheck::None, _) => return Ok(Vec::new()),
        (PropagationCheck::Servers(servers), _) => return Ok(servers.clone()),
        (PropagationCheck::Authoritative, DnsProvider::Update(update)) => (update.server.clone(), false),
        (PropagationCheck::Authoritative, DnsProvider::Hook(_)) => {
            // There is always one.
            let first = system_nameservers().first().map(ToString::to_string).unwrap_or_default();
            (first.into(), true)
        }
    };
    let server = DnsServer { authority: &asked, timers };
    let failed = |error| DnsChallengeError::Server { server: asked.clone(), error };
    let zone = server.zone_of(&record.name, is_recursive).await.map_err(failed)?;
    server.name_servers(&zone, is_recursive).await.map_err(failed)
}

/// Runs the hook with `add NAME VALUE` or `remove NAME VALUE`.
async fn run_hook(
    hook: &HookPlan,
    action: &'static str,
    record: &TxtRecord,
) -> Result<(), DnsChallengeError> {
    let program: Box<str> = hook.command.first().cloned().unwrap_or_default();
    let mut command = Command::new(&*program);
    command.args(hook.command.iter().skip(1).map(|word| &**word));
    command.args([action, &record.name, &record.value]).current_dir("/");
    let domain = record.name.trim_start_matches("_acme-challenge.");
    command.env("WEIR_ACME_DOMAIN", domain);
    let timeout = Duration::from_nanos(hook.timeout_ns);
    let finished = run_blocking(move || run_to_end(&mut command, timeout, HOOK_STDERR_BYTES)).await;
    let fault = match finished {
        Ok(finished) => match fault_of(&finished, hook.timeout_ns) {
            Some(fault) => fault,
            None => return Ok(()),
        },
        Err(error) => HookFault::Start(error),
    };
    Err(DnsChallengeError::Hook { program, action, fault })
}

fn fault_of(finished: &FinishedProgram, timeout_ns: u64) -> Option<HookFault> {
    let text = String::from_utf8_lossy(&finished.stderr_end);
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(HOOK_LINES_MAX)..];
    let lines: Vec<String> = last.iter().map(|line| printable(line, HOOK_LINE_BYTES)).collect();
    let written = match lines.is_empty() {
        true => String::new(),
        false => format!(": {}", lines.join(" / ")),
    };
    match (finished.is_killed, finished.status.code(), finished.status.signal()) {
        (true, ..) => Some(HookFault::Timeout(format_duration_ns(timeout_ns), written)),
        (false, Some(0), _) => None,
        (false, Some(code), _) => Some(HookFault::Code(code, written)),
        (false, None, signal) => Some(HookFault::Signal(signal.unwrap_or_default(), written)),
    }
}

#[cfg(test)]
mod tests;
