//! Timestamps of log lines. Converts the monotonic times of outcomes to wall-clock time, and
//! renders them again only when the second changes. All times are UTC. Writing a line reads no
//! clock.

use std::time::{SystemTime, UNIX_EPOCH};

use rt::clock::{MILLISECOND_NS, SECOND_NS, now_ns};

/// Offset of the wall clock from `CLOCK_MONOTONIC`. Read once a tick, so a step of the wall clock
/// shows in the lines a tick later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WallClock {
    offset_ns: u64,
}

impl WallClock {
    /// Reads the current offset.
    pub(crate) fn read() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let wall_ns = since_epoch.map_or(0, |since| since.as_nanos() as u64);
        Self { offset_ns: wall_ns.wrapping_sub(now_ns()) }
    }

    /// Creates a given offset.
    #[cfg(test)]
    pub(crate) const fn ahead_by(offset_ns: u64) -> Self {
        Self { offset_ns }
    }

    /// Converts `monotonic_ns` to nanoseconds since 1970.
    #[inline]
    pub(super) fn to_unix_ns(self, monotonic_ns: u64) -> u64 {
        monotonic_ns.wrapping_add(self.offset_ns)
    }
}

/// One second in the forms of all logs.
#[derive(Debug)]
pub(super) struct RenderedSecond {
    second: u64,
    /// `2026-11-21T08:30:40`, without milliseconds and zone (RFC 3339).
    iso: [u8; 19],
    /// `21/Nov/2026:08:30:40`, without zone.
    clf: [u8; 20],
    /// `Nov 21 08:30:40`, the form of syslog(3).
    syslog: [u8; 15],
}

impl RenderedSecond {
    pub(super) fn new() -> Self {
        let mut second = Self { second: 0, iso: [0; 19], clf: [0; 20], syslog: [0; 15] };
        second.render(0);
        second
    }

    /// Renders the second of `wall_ns`, if it is a new one.
    #[inline]
    pub(super) fn set(&mut self, wall_ns: u64) {
        let second = wall_ns / SECOND_NS;
        if second != self.second {
            self.render(second);
        }
    }

    pub(super) fn iso(&self) -> &[u8; 19] {
        &self.iso
    }

    pub(super) fn clf(&self) -> &[u8; 20] {
        &self.clf
    }

    pub(super) fn syslog(&self) -> &[u8; 15] {
        &self.syslog
    }

    #[cold]
    fn render(&mut self, second: u64) {
        const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
        self.second = second;
        let (year, month, day) = civil_date(second / 86_400);
        let second_of_day = second % 86_400;
        let mut time = *b"00:00:00";
        for (offset, value) in
            [(0, second_of_day / 3_600), (3, second_of_day / 60 % 60), (6, second_of_day % 60)]
        {
            time[offset..offset + 2].copy_from_slice(&two_digits(value));
        }
        let month_name = &MONTHS[(month as usize - 1) * 3..][..3];
        self.iso[..2].copy_from_slice(&two_digits(year / 100));
        self.iso[2..4].copy_from_slice(&two_digits(year % 100));
        self.iso[4] = b'-';
        self.iso[5..7].copy_from_slice(&two_digits(month));
        self.iso[7] = b'-';
        self.iso[8..10].copy_from_slice(&two_digits(day));
        self.iso[10] = b'T';
        self.iso[11..].copy_from_slice(&time);
        self.clf[..2].copy_from_slice(&two_digits(day));
        self.clf[2] = b'/';
        self.clf[3..6].copy_from_slice(month_name);
        self.clf[6] = b'/';
        self.clf[7..11].copy_from_slice(&self.iso[..4]);
        self.clf[11] = b':';
        self.clf[12..].copy_from_slice(&time);
        self.syslog[..3].copy_from_slice(month_name);
        self.syslog[3] = b' ';
        self.syslog[4..6].copy_from_slice(&two_digits(day));
        if day < 10 {
            self.syslog[4] = b' ';
        }
        self.syslog[6] = b' ';
        self.syslog[7..].copy_from_slice(&time);
    }
}

/// Returns the current date and time for `Date` (RFC 9110 §5.6.7): `Sat, 21 Nov 2026 08:30:40 GMT`.
pub(crate) fn http_date() -> [u8; 29] {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    http_date_of(since_epoch.map_or(0, |since| since.as_secs()))
}

fn http_date_of(second: u64) -> [u8; 29] {
    const DAYS: &[u8; 21] = b"ThuFriSatSunMonTueWed";
    let mut rendered = RenderedSecond::new();
    rendered.render(second);
    let [day, month, year, time] = [0..2, 3..6, 7..11, 12..20].map(|part| &rendered.clf[part]);
    let mut date = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    let weekday = (second / 86_400 % 7) as usize * 3;
    date[..3].copy_from_slice(&DAYS[weekday..weekday + 3]);
    date[5..7].copy_from_slice(day);
    date[8..11].copy_from_slice(month);
    date[12..16].copy_from_slice(year);
    date[17..25].copy_from_slice(time);
    date
}

/// Returns the milliseconds of a time, as `.123`.
#[inline]
pub(super) fn milliseconds(wall_ns: u64) -> [u8; 4] {
    let value = wall_ns / MILLISECOND_NS % 1_000;
    let digit = |value: u64| b'0' + (value % 10) as u8;
    [b'.', digit(value / 100), digit(value / 10), digit(value)]
}

fn two_digits(value: u64) -> [u8; 2] {
    [b'0' + (value / 10 % 10) as u8, b'0' + (value % 10) as u8]
}

/// Returns year, month and day of a day counted from 1970-01-01, in the Gregorian calendar. Counts
/// in eras of 400 years that start with March, so that the leap day comes last.
fn civil_date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_fields_have_their_weekday() {
        for (second, expected) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (1_795_249_840, "Sat, 21 Nov 2026 08:30:40 GMT"),
        ] {
            assert_eq!(http_date_of(second), expected.as_bytes());
        }
    }

    fn rendered_forms(unix_ns: u64) -> (String, String, String) {
        let mut second = RenderedSecond::new();
        second.set(unix_ns);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (text(second.iso()), text(second.clf()), text(second.syslog()))
    }

    #[test]
    fn a_moment_is_right_in_every_form() {
        for (offset, iso, clf, syslog) in [
            (0, "1970-01-01T00:00:00", "01/Jan/1970:00:00:00", "Jan  1 00:00:00"),
            (951_827_696, "2000-02-29T12:34:56", "29/Feb/2000:12:34:56", "Feb 29 12:34:56"),
            (951_868_800, "2000-03-01T00:00:00", "01/Mar/2000:00:00:00", "Mar  1 00:00:00"),
            (1_795_249_840, "2026-11-21T08:30:40", "21/Nov/2026:08:30:40", "Nov 21 08:30:40"),
            (4_107_542_399, "2100-02-28T23:59:59", "28/Feb/2100:23:59:59", "Feb 28 23:59:59"),
            (4_107_542_400, "2100-03-01T00:00:00", "01/Mar/2100:00:00:00", "Mar  1 00:00:00"),
        ] {
            let expected = (iso.to_owned(), clf.to_owned(), syslog.to_owned());
            assert_eq!(rendered_forms(offset * SECOND_NS + 999_999_999), expected);
        }
    }

    #[test]
    fn an_earlier_second_can_be_rendered_again() {
        let mut second = RenderedSecond::new();
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
    fn the_wall_clock_is_the_systems() {
        let wall_ns = WallClock::read().to_unix_ns(now_ns());
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        // The thread may be descheduled between reading the two clocks.
        assert!(since_epoch.abs_diff(wall_ns) < 60 * SECOND_NS);
    }
}
