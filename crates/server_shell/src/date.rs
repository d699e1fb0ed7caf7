//! The wall clock, and dates in the forms of heads and logs. A date is rendered again only when its
//! second changes. All times are UTC. Writing a date reads no clock.

use std::cell::Cell;
use std::io::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use rt::clock::{MILLISECOND_NS, SECOND_NS, now_ns, unix_ns};

/// Length of `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 §5.6.7).
pub const HTTP_DATE_BYTES: usize = 29;
/// Last second of the year 9999, the highest of an HTTP date.
const SECOND_MAX: u64 = 253_402_300_799;

/// Offset of the wall clock from `CLOCK_MONOTONIC`. Read once a tick, so a step of the wall clock
/// shows in the lines a tick later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallClock {
    offset_ns: u64,
}

impl WallClock {
    #[must_use]
    pub fn read() -> Self {
        Self { offset_ns: unix_ns().wrapping_sub(now_ns()) }
    }

    #[must_use]
    pub const fn ahead_by(offset_ns: u64) -> Self {
        Self { offset_ns }
    }

    /// Converts `monotonic_ns` to nanoseconds since 1970.
    #[inline]
    pub fn to_unix_ns(self, monotonic_ns: u64) -> u64 {
        monotonic_ns.wrapping_add(self.offset_ns)
    }
}

/// One second in the forms of heads and logs.
#[derive(Clone, Copy, Debug)]
pub struct RenderedSecond {
    second: u64,
    http: [u8; HTTP_DATE_BYTES],
    iso: [u8; 19],
    clf: [u8; 20],
    syslog: [u8; 15],
}

impl Default for RenderedSecond {
    fn default() -> Self {
        let mut second = Self {
            second: 0,
            http: [b' '; HTTP_DATE_BYTES],
            iso: [b' '; 19],
            clf: [b' '; 20],
            syslog: [b' '; 15],
        };
        second.render(0);
        second
    }
}

impl RenderedSecond {
    /// Renders the second of `unix_ns`, if it is another one.
    #[inline]
    pub fn set(&mut self, unix_ns: u64) {
        self.set_second(unix_ns / SECOND_NS);
    }

    /// Renders a second since 1970, if it is another one.
    #[inline]
    pub fn set_second(&mut self, second: u64) {
        if second != self.second {
            self.render(second);
        }
    }

    /// Returns `Sat, 21 Nov 2026 08:30:40 GMT`, the form of `Date`.
    #[inline]
    pub fn http(&self) -> &[u8; HTTP_DATE_BYTES] {
        &self.http
    }

    /// Returns `2026-11-21T08:30:40`, without milliseconds and zone (RFC 3339).
    #[inline]
    pub fn iso(&self) -> &[u8; 19] {
        &self.iso
    }

    /// Returns `21/Nov/2026:08:30:40`, without zone: the common log format.
    #[inline]
    pub fn clf(&self) -> &[u8; 20] {
        &self.clf
    }

    /// Returns `Nov 21 08:30:40`, the form of syslog(3).
    #[inline]
    pub fn syslog(&self) -> &[u8; 15] {
        &self.syslog
    }

    #[cold]
    fn render(&mut self, second: u64) {
        self.second = second;
        self.http = http_date_of(second);
        let [day, month, year, time] = [5..7, 8..11, 12..16, 17..25].map(|part| &self.http[part]);
        self.iso.copy_from_slice(b"1994-11-06T08:49:37");
        self.iso[..4].copy_from_slice(year);
        self.iso[5..7].copy_from_slice(&month_digits(month));
        self.iso[8..10].copy_from_slice(day);
        self.iso[11..].copy_from_slice(time);
        self.clf.copy_from_slice(b"06/Nov/1994:08:49:37");
        self.clf[..2].copy_from_slice(day);
        self.clf[3..6].copy_from_slice(month);
        self.clf[7..11].copy_from_slice(year);
        self.clf[12..].copy_from_slice(time);
        self.syslog.copy_from_slice(b"Nov  6 08:49:37");
        self.syslog[..3].copy_from_slice(month);
        self.syslog[4..6].copy_from_slice(day);
        if day[0] == b'0' {
            self.syslog[4] = b' ';
        }
        self.syslog[7..].copy_from_slice(time);
    }
}

/// Returns the number of a month, `01` to `12`, from its name.
fn month_digits(name: &[u8]) -> [u8; 2] {
    const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let month = MONTHS.chunks(3).position(|month| month == name).map_or(0, |index| index as u8 + 1);
    [b'0' + month / 10, b'0' + month % 10]
}

/// Current second of one core. Each of its ticks calls [`DateCache::refresh`].
#[derive(Debug)]
pub struct DateCache(Cell<RenderedSecond>);

impl Default for DateCache {
    fn default() -> Self {
        let dates = Self(Cell::default());
        dates.refresh();
        dates
    }
}

impl DateCache {
    /// Reads the wall clock, and renders again when its second has changed.
    pub fn refresh(&self) {
        let mut second = self.0.get();
        second.set(unix_ns());
        self.0.set(second);
    }

    /// Returns the second that the date shows, since 1970; it changes only together with the date.
    #[inline]
    pub fn second(&self) -> u64 {
        self.0.get().second
    }

    #[inline]
    pub fn http(&self) -> [u8; HTTP_DATE_BYTES] {
        self.0.get().http
    }

    #[inline]
    pub fn rendered(&self) -> RenderedSecond {
        self.0.get()
    }
}

/// Returns the current date and time in the form of `Date`.
pub fn http_date() -> [u8; HTTP_DATE_BYTES] {
    http_date_of(unix_ns() / SECOND_NS)
}

fn http_date_of(second: u64) -> [u8; HTTP_DATE_BYTES] {
    let mut bytes = [b' '; HTTP_DATE_BYTES];
    let time = UNIX_EPOCH + Duration::from_secs(second.min(SECOND_MAX));
    // A date always has this length.
    let _ = write!(&mut bytes[..], "{}", httpdate::HttpDate::from(time));
    bytes
}

/// Formats seconds since 1970 as an HTTP date (RFC 9110 §5.6.7): `Sat, 21 Nov 2026 08:30:40 GMT`.
pub fn format_http_date(second: u64) -> String {
    String::from_utf8_lossy(&http_date_of(second)).into_owned()
}

/// Parses an HTTP date to seconds since 1970; `None` if it is not valid.
pub fn parse_http_date(value: &[u8]) -> Option<u64> {
    let date = httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()?;
    date.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

/// Returns the milliseconds of a time, as `.123`.
#[inline]
pub fn milliseconds(unix_ns: u64) -> [u8; 4] {
    let value = unix_ns / MILLISECOND_NS % 1_000;
    let digit = |value: u64| b'0' + (value % 10) as u8;
    [b'.', digit(value / 100), digit(value / 10), digit(value)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered_forms(unix_ns: u64) -> [String; 4] {
        let mut second = RenderedSecond::default();
        second.set(unix_ns);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        [text(second.http()), text(second.iso()), text(second.clf()), text(second.syslog())]
    }

    #[test]
    fn a_moment_is_right_in_every_form() {
        for (second, http, iso, clf, syslog) in [
            (
                0,
                "Thu, 01 Jan 1970 00:00:00 GMT",
                "1970-01-01T00:00:00",
                "01/Jan/1970:00:00:00",
                "Jan  1 00:00:00",
            ),
            (
                951_827_696,
                "Tue, 29 Feb 2000 12:34:56 GMT",
                "2000-02-29T12:34:56",
                "29/Feb/2000:12:34:56",
                "Feb 29 12:34:56",
            ),
            (
                1_795_249_840,
                "Sat, 21 Nov 2026 08:30:40 GMT",
                "2026-11-21T08:30:40",
                "21/Nov/2026:08:30:40",
                "Nov 21 08:30:40",
            ),
            (
                4_107_542_400,
                "Mon, 01 Mar 2100 00:00:00 GMT",
                "2100-03-01T00:00:00",
                "01/Mar/2100:00:00:00",
                "Mar  1 00:00:00",
            ),
        ] {
            assert_eq!(rendered_forms(second * SECOND_NS + 999_999_999), [http, iso, clf, syslog]);
            assert_eq!(parse_http_date(http.as_bytes()), Some(second));
        }
        assert_eq!(format_http_date(u64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(parse_http_date(b"yesterday"), None);
    }

    #[test]
    fn an_earlier_second_can_be_rendered_again() {
        let mut second = RenderedSecond::default();
        second.set(5 * SECOND_NS);
        second.set(4 * SECOND_NS);
        assert_eq!(second.iso(), b"1970-01-01T00:00:04");
    }

    #[test]
    fn milliseconds_are_three_digits() {
        assert_eq!(&milliseconds(1_007_999_999), b".007");
        assert_eq!(&milliseconds(1_999_999_999), b".999");
    }

    #[test]
    fn the_date_and_the_wall_clock_are_the_systems() {
        let dates = DateCache::default();
        let unix_s = unix_ns() / SECOND_NS;
        // The thread may be descheduled between reading the clocks.
        assert!(unix_s.abs_diff(dates.second()) < 60);
        assert_eq!(parse_http_date(&dates.http()), Some(dates.second()));
        assert!(unix_s.abs_diff(WallClock::read().to_unix_ns(now_ns()) / SECOND_NS) < 60);
    }
}
