//! When something was, as log lines have it: wall-clock time out of the monotonic time that outcomes
//! carry, rendered anew only when its second changes. All times are UTC. No clock is read for a line.

use std::time::{SystemTime, UNIX_EPOCH};

use rt::clock::{MILLISECOND_NS, SECOND_NS, now_ns};

/// How far the wall clock is ahead of `CLOCK_MONOTONIC`. Read once a tick, so that a step of the
/// wall clock shows in the lines a tick later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wall {
    offset_ns: u64,
}

impl Wall {
    /// As the clocks are now.
    pub(crate) fn read() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let wall_ns = since.map_or(0, |since| since.as_nanos() as u64);
        Self { offset_ns: wall_ns.wrapping_sub(now_ns()) }
    }

    /// With a given distance.
    #[cfg(test)]
    pub(crate) const fn ahead_by(offset_ns: u64) -> Self {
        Self { offset_ns }
    }

    /// Nanoseconds since 1970 at `monotonic_ns`.
    #[inline]
    pub(super) fn at(self, monotonic_ns: u64) -> u64 {
        monotonic_ns.wrapping_add(self.offset_ns)
    }
}

/// One second in the forms of all logs.
#[derive(Debug)]
pub(super) struct Second {
    second: u64,
    /// `2026-11-21T08:30:40`, without milliseconds and zone (RFC 3339).
    iso: [u8; 19],
    /// `21/Nov/2026:08:30:40`, without zone.
    log: [u8; 20],
    /// `Nov 21 08:30:40`, as syslog(3) has it.
    syslog: [u8; 15],
}

impl Second {
    pub(super) fn new() -> Self {
        let mut second = Self { second: 0, iso: [0; 19], log: [0; 20], syslog: [0; 15] };
        second.render(0);
        second
    }

    /// Shows the second of `wall_ns`.
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

    pub(super) fn log(&self) -> &[u8; 20] {
        &self.log
    }

    pub(super) fn syslog(&self) -> &[u8; 15] {
        &self.syslog
    }

    #[cold]
    fn render(&mut self, second: u64) {
        const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
        self.second = second;
        let (year, month, day) = civil(second / 86_400);
        let of_day = second % 86_400;
        let mut time = *b"00:00:00";
        for (at, value) in [(0, of_day / 3_600), (3, of_day / 60 % 60), (6, of_day % 60)] {
            time[at..at + 2].copy_from_slice(&two(value));
        }
        let name = &MONTHS[(month as usize - 1) * 3..][..3];
        self.iso[..2].copy_from_slice(&two(year / 100));
        self.iso[2..4].copy_from_slice(&two(year % 100));
        self.iso[4] = b'-';
        self.iso[5..7].copy_from_slice(&two(month));
        self.iso[7] = b'-';
        self.iso[8..10].copy_from_slice(&two(day));
        self.iso[10] = b'T';
        self.iso[11..].copy_from_slice(&time);
        self.log[..2].copy_from_slice(&two(day));
        self.log[2] = b'/';
        self.log[3..6].copy_from_slice(name);
        self.log[6] = b'/';
        self.log[7..11].copy_from_slice(&self.iso[..4]);
        self.log[11] = b':';
        self.log[12..].copy_from_slice(&time);
        self.syslog[..3].copy_from_slice(name);
        self.syslog[3] = b' ';
        self.syslog[4..6].copy_from_slice(&two(day));
        if day < 10 {
            self.syslog[4] = b' ';
        }
        self.syslog[6] = b' ';
        self.syslog[7..].copy_from_slice(&time);
    }
}

/// The date and time now, as `Date` has it (RFC 9110 §5.6.7): `Sat, 21 Nov 2026 08:30:40 GMT`.
pub(crate) fn http_date() -> [u8; 29] {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    http_date_of(since.map_or(0, |since| since.as_secs()))
}

fn http_date_of(second: u64) -> [u8; 29] {
    const DAYS: &[u8; 21] = b"ThuFriSatSunMonTueWed";
    let mut of_second = Second::new();
    of_second.render(second);
    let [day, month, year, time] = [0..2, 3..6, 7..11, 12..20].map(|part| &of_second.log[part]);
    let mut date = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    let weekday = (second / 86_400 % 7) as usize * 3;
    date[..3].copy_from_slice(&DAYS[weekday..weekday + 3]);
    date[5..7].copy_from_slice(day);
    date[8..11].copy_from_slice(month);
    date[12..16].copy_from_slice(year);
    date[17..25].copy_from_slice(time);
    date
}

/// The milliseconds of a time, as `.123`.
#[inline]
pub(super) fn milliseconds(wall_ns: u64) -> [u8; 4] {
    let value = wall_ns / MILLISECOND_NS % 1_000;
    let digit = |value: u64| b'0' + (value % 10) as u8;
    [b'.', digit(value / 100), digit(value / 10), digit(value)]
}

fn two(value: u64) -> [u8; 2] {
    [b'0' + (value / 10 % 10) as u8, b'0' + (value % 10) as u8]
}

/// Year, month and day of a day since 1970-01-01, in the Gregorian calendar: counted in eras of 400
/// years that start with March, so that the leap day comes last.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_fields_have_their_weekday() {
        for (second, wanted) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (1_795_249_840, "Sat, 21 Nov 2026 08:30:40 GMT"),
        ] {
            assert_eq!(http_date_of(second), wanted.as_bytes());
        }
    }

    fn shown(wall_ns: u64) -> (String, String, String) {
        let mut second = Second::new();
        second.set(wall_ns);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (text(second.iso()), text(second.log()), text(second.syslog()))
    }

    #[test]
    fn a_moment_is_right_in_every_form() {
        for (at, iso, log, syslog) in [
            (0, "1970-01-01T00:00:00", "01/Jan/1970:00:00:00", "Jan  1 00:00:00"),
            (951_827_696, "2000-02-29T12:34:56", "29/Feb/2000:12:34:56", "Feb 29 12:34:56"),
            (951_868_800, "2000-03-01T00:00:00", "01/Mar/2000:00:00:00", "Mar  1 00:00:00"),
            (1_795_249_840, "2026-11-21T08:30:40", "21/Nov/2026:08:30:40", "Nov 21 08:30:40"),
            (4_107_542_399, "2100-02-28T23:59:59", "28/Feb/2100:23:59:59", "Feb 28 23:59:59"),
            (4_107_542_400, "2100-03-01T00:00:00", "01/Mar/2100:00:00:00", "Mar  1 00:00:00"),
        ] {
            let expected = (iso.to_owned(), log.to_owned(), syslog.to_owned());
            assert_eq!(shown(at * SECOND_NS + 999_999_999), expected);
        }
    }

    #[test]
    fn the_second_before_is_shown_again_when_it_is_asked_for() {
        let mut second = Second::new();
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
        let wall_ns = Wall::read().at(now_ns());
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        // Whoever reads two clocks may be held up between them.
        assert!(since.abs_diff(wall_ns) < 60 * SECOND_NS);
    }
}
