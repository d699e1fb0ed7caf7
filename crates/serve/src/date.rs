//! Date in the form of heads and logs, rendered once a second for a complete core.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

/// Length of `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 §5.6.7).
pub(crate) const HTTP_BYTES: usize = 29;
/// Length of `06/Nov/1994:08:49:37 +0000`, the form of access logs.
pub(crate) const LOG_BYTES: usize = 26;

/// Length of `1994-11-06T08:49:37Z` (RFC 3339), the form of JSON.
const ISO_BYTES: usize = 20;

/// Date of one core.
#[derive(Debug)]
pub(crate) struct DateCache {
    second: Cell<u64>,
    http: Cell<[u8; HTTP_BYTES]>,
    log: Cell<[u8; LOG_BYTES]>,
    iso: Cell<[u8; ISO_BYTES]>,
}

impl DateCache {
    /// Renders the current date.
    pub(crate) fn new() -> Self {
        let dates = Self {
            second: Cell::new(u64::MAX),
            http: Cell::new([b' '; HTTP_BYTES]),
            log: Cell::new([b' '; LOG_BYTES]),
            iso: Cell::new([b' '; ISO_BYTES]),
        };
        dates.refresh();
        dates
    }

    /// Reads the wall clock and renders again when its second has changed.
    pub(crate) fn refresh(&self) {
        let now = SystemTime::now();
        let second = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if second == self.second.get() {
            return;
        }
        self.second.set(second);
        let text = httpdate::fmt_http_date(now);
        if let Ok(http) = <[u8; HTTP_BYTES]>::try_from(text.as_bytes()) {
            self.http.set(http);
            self.log.set(to_log_format(&http));
            self.iso.set(to_iso_format(&http));
        }
    }

    /// Returns the second that the date shows; it changes only together with the date.
    #[inline]
    pub(crate) fn second(&self) -> u64 {
        self.second.get()
    }

    #[inline]
    pub(crate) fn http(&self) -> [u8; HTTP_BYTES] {
        self.http.get()
    }

    pub(crate) fn log(&self) -> [u8; LOG_BYTES] {
        self.log.get()
    }

    pub(crate) fn iso(&self) -> [u8; ISO_BYTES] {
        self.iso.get()
    }
}

/// Converts a date to RFC 3339.
fn to_iso_format(http: &[u8; HTTP_BYTES]) -> [u8; ISO_BYTES] {
    const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let month = MONTHS.chunks(3).position(|month| month == &http[8..11]).map_or(0, |index| index as u8 + 1);
    let mut iso = *b"1994-11-06T08:49:37Z";
    iso[..4].copy_from_slice(&http[12..16]);
    iso[5..7].copy_from_slice(&[b'0' + month / 10, b'0' + month % 10]);
    iso[8..10].copy_from_slice(&http[5..7]);
    iso[11..19].copy_from_slice(&http[17..25]);
    iso
}

/// Converts a date to the order of parts in logs.
fn to_log_format(http: &[u8; HTTP_BYTES]) -> [u8; LOG_BYTES] {
    let mut log = *b"06/Nov/1994:08:49:37 +0000";
    log[..2].copy_from_slice(&http[5..7]);
    log[3..6].copy_from_slice(&http[8..11]);
    log[7..11].copy_from_slice(&http[12..16]);
    log[12..20].copy_from_slice(&http[17..25]);
    log
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_has_the_same_moment() {
        let log = to_log_format(b"Tue, 15 Nov 2022 12:45:26 GMT");
        assert_eq!(&log, b"15/Nov/2022:12:45:26 +0000");
        assert_eq!(&to_iso_format(b"Tue, 15 Nov 2022 12:45:26 GMT"), b"2022-11-15T12:45:26Z");
    }

    #[test]
    fn the_date_is_now() {
        let http = DateCache::new().http();
        let text = std::str::from_utf8(&http).unwrap();
        let age = httpdate::parse_http_date(text).unwrap().elapsed().unwrap();
        assert!(age.as_secs() < 60, "{text}");
    }
}
