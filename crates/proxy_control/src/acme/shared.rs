//! Files of a storage that replicas share, besides the certificates: answers to challenges, which all replicas
//! offer, and failures, after which all of them wait. A file that is malformed, too long or foreign is ignored.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rt::clock::{SECOND_NS, unix_ns};
use rt::tls::TlsAlpnChallenge;
use serde::{Deserialize, Serialize};

use super::schedule::RETRY_MAX_S;
use crate::plan::AcmePlan;
use crate::private_file::replace_among_others;
use proxy::acme_tokens::TokenChallenge;

const CHALLENGE_PREFIX: &str = "challenge-";
const CHALLENGE_SUFFIX: &str = ".json";
/// Maximum number of challenges that are offered for others: an order has at most 100 names.
const CHALLENGES_MAX: usize = 256;
/// Maximum number of files that are read of a directory.
const ENTRIES_MAX: usize = 10_000;
/// Maximum length of a file.
const BYTES_MAX: u64 = 4_096;
/// Time after which the challenge of a replica that was killed is ignored, in seconds.
const CHALLENGE_END_S: u64 = 3_600;

/// Answer to a challenge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub(super) enum SharedChallenge {
    #[serde(rename = "http-01")]
    Http { token: String, key_authorization: String, until_s: u64 },
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn { name: String, digest: Vec<u8>, until_s: u64 },
}

/// Answer that this process offers, until it is dropped.
#[derive(Debug)]
pub(super) enum OfferedChallenge {
    Http { _token: TokenChallenge },
    TlsAlpn { _certificate: TlsAlpnChallenge },
}

impl SharedChallenge {
    pub(super) fn http(token: &str, key_authorization: &str) -> Self {
        let until_s = unix_ns() / SECOND_NS + CHALLENGE_END_S;
        Self::Http { token: token.to_owned(), key_authorization: key_authorization.to_owned(), until_s }
    }

    pub(super) fn tls_alpn(name: &str, digest: &[u8]) -> Self {
        let until_s = unix_ns() / SECOND_NS + CHALLENGE_END_S;
        Self::TlsAlpn { name: name.to_owned(), digest: digest.to_vec(), until_s }
    }

    /// Offers the answer to validations that reach this process.
    ///
    /// # Errors
    /// The token or the name is not valid.
    pub(super) fn offer(&self) -> io::Result<OfferedChallenge> {
        match self {
            Self::Http { token, key_authorization, .. } => {
                let offered = TokenChallenge::offer(token, key_authorization);
                let invalid = || io::Error::other("the token is invalid");
                Ok(OfferedChallenge::Http { _token: offered.ok_or_else(invalid)? })
            }
            Self::TlsAlpn { name, digest, .. } => {
                let offered = TlsAlpnChallenge::offer(name, digest).map_err(io::Error::other)?;
                Ok(OfferedChallenge::TlsAlpn { _certificate: offered })
            }
        }
    }

    fn until_s(&self) -> u64 {
        match self {
            Self::Http { until_s, .. } | Self::TlsAlpn { until_s, .. } => *until_s,
        }
    }
}

/// File with an answer, which is removed when this is dropped.
#[derive(Debug)]
pub(super) struct PublishedChallenge(PathBuf);

impl PublishedChallenge {
    /// Writes the file for the other replicas.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub(super) fn write(plan: &AcmePlan, challenge: &SharedChallenge, owner: &str) -> io::Result<Self> {
        let name = format!("{CHALLENGE_PREFIX}{:016x}{CHALLENGE_SUFFIX}", fastrand::u64(..));
        let path = plan.storage.join(name);
        replace_among_others(&path, &serde_json::to_vec(challenge)?, owner)?;
        Ok(Self(path))
    }
}

impl Drop for PublishedChallenge {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Answers of other replicas that this process offers, by their files.
#[derive(Debug, Default)]
pub(super) struct FollowedChallenges(BTreeMap<PathBuf, OfferedChallenge>);

impl FollowedChallenges {
    /// Offers the answers in a storage, and withdraws those whose files are gone. Files that a killed replica
    /// left are removed.
    pub(super) fn poll(&mut self, storage: &Path, now_s: u64) {
        let found = challenge_files(storage);
        self.0.retain(|path, _| path.parent() != Some(storage) || found.contains(path));
        for path in found {
            let Some(challenge) = read_json::<SharedChallenge>(&path) else { continue };
            match challenge.until_s() {
                // A time that no replica writes is one of a clock that is wrong.
                until_s if until_s < now_s || until_s > now_s + 2 * CHALLENGE_END_S => {
                    let _ = fs::remove_file(&path);
                    self.0.remove(&path);
                }
                _ if !self.0.contains_key(&path) && self.0.len() < CHALLENGES_MAX => {
                    if let Ok(offered) = challenge.offer() {
                        self.0.insert(path, offered);
                    }
                }
                _ => {}
            }
        }
    }

    /// Withdraws the answers of storages that are no longer followed.
    pub(super) fn keep_only(&mut self, storages: &[&Path]) {
        self.0.retain(|path, _| path.parent().is_some_and(|parent| storages.contains(&parent)));
    }
}

fn challenge_files(storage: &Path) -> Vec<PathBuf> {
    let is_challenge = |name: &str| name.starts_with(CHALLENGE_PREFIX) && name.ends_with(CHALLENGE_SUFFIX);
    let entries = fs::read_dir(storage).into_iter().flatten().take(ENTRIES_MAX).flatten();
    let named = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_challenge));
    named.map(|entry| entry.path()).take(CHALLENGES_MAX).collect()
}

/// Failures of an order, for all replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SharedFailures {
    pub(super) count: u32,
    /// Time of the next attempt in seconds since 1970.
    pub(super) retry_at_s: u64,
}

impl SharedFailures {
    fn path(plan: &AcmePlan) -> PathBuf {
        plan.storage.join(format!("{}.retry", plan.file_name()))
    }

    /// Reads the failures; none if the file is missing, malformed or has a time that no replica writes.
    pub(super) fn read(plan: &AcmePlan, now_s: u64) -> Self {
        let found = read_json::<Self>(&Self::path(plan)).unwrap_or_default();
        if found.retry_at_s <= now_s + 2 * RETRY_MAX_S { found } else { Self::default() }
    }

    /// Writes the failures for the others.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub(super) fn write(self, plan: &AcmePlan) -> io::Result<()> {
        let writer = format!("{}-{:016x}", std::process::id(), fastrand::u64(..));
        replace_among_others(&Self::path(plan), &serde_json::to_vec(&self)?, &writer)
    }

    pub(super) fn remove(plan: &AcmePlan) {
        let _ = fs::remove_file(Self::path(plan));
    }
}

fn read_json<T: for<'a> Deserialize<'a>>(path: &Path) -> Option<T> {
    let file = fs::File::open(path).ok()?;
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return None;
    }
    let mut text = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut text).ok()?;
    if text.len() as u64 > BYTES_MAX {
        return None;
    }
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests;
