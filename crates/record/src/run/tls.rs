//! TLS of a run: the properties of its sessions, and the counts of handshakes.

use serde::{Deserialize, Serialize};

/// Sessions of a run. Absent in records of runs without TLS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TlsSessions {
    /// Protocol version of the first session: `TLSv1.2` or `TLSv1.3`. Absent if no handshake was
    /// completed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub version: Option<String>,
    /// Cipher suite of the first session, by its IANA name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cipher_suite: Option<String>,
    /// True if other sessions had another version or cipher suite.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub mixed: bool,
    pub full: u64,
    /// Number of handshakes that resumed an earlier session.
    pub resumed: u64,
    pub failed: u64,
    /// Full handshakes per second in the window.
    #[serde(default)]
    pub full_per_s: f64,
    /// Handshakes per second in the window that resumed an earlier session.
    #[serde(default)]
    pub resumed_per_s: f64,
}

impl TlsSessions {
    /// Adds the sessions of another generator.
    pub(crate) fn add(&mut self, other: &Self) {
        let is_same = self.version == other.version && self.cipher_suite == other.cipher_suite;
        self.mixed |= other.mixed || (self.version.is_some() && other.version.is_some() && !is_same);
        if self.version.is_none() {
            (self.version, self.cipher_suite) = (other.version.clone(), other.cipher_suite.clone());
        }
        self.full += other.full;
        self.resumed += other.resumed;
        self.failed += other.failed;
        self.full_per_s += other.full_per_s;
        self.resumed_per_s += other.resumed_per_s;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions(version: Option<&str>) -> TlsSessions {
        let version = version.map(str::to_owned);
        TlsSessions { version, full: 1, resumed: 2, failed: 3, ..TlsSessions::default() }
    }

    #[test]
    fn a_sum_has_the_first_properties_and_reports_others() {
        let mut sum = sessions(None);
        sum.add(&sessions(Some("TLSv1.3")));
        assert_eq!((sum.version.as_deref(), sum.mixed), (Some("TLSv1.3"), false));
        sum.add(&sessions(Some("TLSv1.3")));
        sum.add(&sessions(None));
        assert_eq!((sum.full, sum.resumed, sum.failed, sum.mixed), (4, 8, 12, false));
        sum.add(&sessions(Some("TLSv1.2")));
        assert_eq!((sum.version.as_deref(), sum.mixed), (Some("TLSv1.3"), true));
    }
}
