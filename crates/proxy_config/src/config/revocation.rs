//! Reads the keys of certificate revocation lists, of listeners and of pools.

use rt::tls::RevocationOptions;

use super::tls::NamedFiles;
use super::value::Section;
use record::document::Problems;

/// Names of the keys of one table.
pub(super) struct RevocationKeys {
    /// Files with lists.
    files: &'static str,
    depth: &'static str,
    unknown: &'static str,
    expired: &'static str,
}

pub(super) const CLIENT_KEYS: RevocationKeys = RevocationKeys {
    files: "client-crl",
    depth: "client-crl-depth",
    unknown: "client-crl-unknown",
    expired: "client-crl-expired",
};
pub(super) const SERVER_KEYS: RevocationKeys =
    RevocationKeys { files: "crl", depth: "crl-depth", unknown: "crl-unknown", expired: "crl-expired" };

impl RevocationKeys {
    /// Returns the names of all keys.
    pub(super) fn all(&self) -> [&'static str; 4] {
        [self.files, self.depth, self.unknown, self.expired]
    }

    /// Reads the keys, and warns of those without effect.
    pub(super) fn parse(
        &self,
        section: &Section,
        files: &mut NamedFiles,
        problems: &mut Problems,
    ) -> RevocationOptions {
        let is = |key: &str, word: &str| section.text(key).is_some_and(|text| &*text.value == word);
        let options = RevocationOptions {
            files: section.texts(self.files).into_iter().map(|text| files.add(text)).collect(),
            only_leaf: is(self.depth, "leaf"),
            allows_unknown: is(self.unknown, "accept"),
            allows_expired: is(self.expired, "accept"),
        };
        if options.files.is_empty() {
            for key in [self.depth, self.unknown, self.expired] {
                if let Some(offset) = section.key_offset(key) {
                    problems.warn(offset, format!("'{key}' has no effect without `{}`", self.files));
                }
            }
        }
        options
    }
}
