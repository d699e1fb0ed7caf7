//! HTTP dates (RFC 9110 §5.6.7) in their three forms, as caches read them: in any case of the letters, and without a
//! check of the day of the week, which says nothing that the date does not. Pure.

const DAY_S: u64 = 24 * 3600;

/// Parses a date to seconds since 1970. `None`: it is not valid, or before 1970.
pub(crate) fn parse_date(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    let Some((weekday, rest)) = text.split_once(", ") else { return parse_asctime(text) };
    let is_weekday =
        (3..=9).contains(&weekday.len()) && weekday.bytes().all(|byte| byte.is_ascii_alphabetic());
    if !is_weekday {
        return None;
    }
    let (date, time) = rest.split_at_checked(rest.len().checked_sub(" 08:49:37 GMT".len())?)?;
    let time_s = parse_time(time.strip_prefix(' ')?.get(..8)?)?;
    if !time[9..].eq_ignore_ascii_case(" GMT") {
        return None;
    }
    let (day, month, year) = match date.len() {
        // `06 Nov 1994`
        11 if date.get(2..3)? == " " && date.get(6..7)? == " " => (0..2, 3..6, digits(date.get(7..)?)?),
        // RFC 850: `06-Nov-94`
        9 if date.get(2..3)? == "-" && date.get(6..7)? == "-" => {
            let year = digits(date.get(7..)?)?;
            (0..2, 3..6, if year < 70 { 2000 + year } else { 1900 + year })
        }
        _ => return None,
    };
    seconds(year, parse_month(date.get(month)?)?, digits(date.get(day)?)?, time_s)
}

/// Parses `Sun Nov  6 08:49:37 1994`.
fn parse_asctime(text: &str) -> Option<u64> {
    let is_separated = [3, 7, 10, 19].iter().all(|at| text.as_bytes().get(*at) == Some(&b' '));
    if text.len() != 24 || !is_separated {
        return None;
    }
    let (month, day) = (parse_month(text.get(4..7)?)?, text.get(8..10)?);
    let day = digits(day.strip_prefix(' ').unwrap_or(day))?;
    seconds(digits(text.get(20..)?)?, month, day, parse_time(text.get(11..19)?)?)
}

/// Parses `08:49:37` to seconds of a day; a leap second is the second before it.
fn parse_time(text: &str) -> Option<u64> {
    let mut parts = text.split(':');
    let mut next = || parts.next().filter(|part| part.len() == 2).and_then(digits);
    let (hour, minute, second) = (next()?, next()?, next()?);
    let is_valid = hour < 24 && minute < 60 && second <= 60;
    is_valid.then(|| hour * 3600 + minute * 60 + second.min(59))
}

/// Parses the name of a month, 1 to 12.
fn parse_month(name: &str) -> Option<u64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let index = MONTHS.iter().position(|month| month.eq_ignore_ascii_case(name))?;
    Some(index as u64 + 1)
}

fn digits(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

/// Converts a date of the Gregorian calendar, with years that begin in March.
fn seconds(year: u64, month: u64, day: u64, time_s: u64) -> Option<u64> {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days_of_month = match month {
        2 => 28 + u64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if year < 1970 || day == 0 || day > days_of_month {
        return None;
    }
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + day_of_year;
    // Days until 1970-01-01.
    Some((days - 719_468) * DAY_S + time_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_have_three_forms() {
        for (text, expected) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(784_111_777)),
            ("Sun Nov  6 08:49:37 1994", Some(784_111_777)),
            ("Mon Nov 06 08:49:37 1994", Some(784_111_777)),
            ("SUN, 06 nov 1994 08:49:37 gMT", Some(784_111_777)),
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("Thu, 29 Feb 2024 23:59:60 GMT", Some(1_709_251_199)),
            ("Sun, 21 Nov 2286 04:46:39 GMT", Some(10_000_039_599)),
            ("Thursday, 18-Aug-50 02:01:18 GMT", Some(2_544_400_878)),
            ("Wed, 29 Feb 2023 00:00:00 GMT", None),
            ("Wed, 00 Feb 2023 00:00:00 GMT", None),
            ("Wed, 31 Dec 1969 23:59:59 GMT", None),
            ("Thu, 18 Aug 2050 02:01:18 UTC", None),
            ("Thu, 18 Aug 2050 02:01:18 AEST", None),
            ("Thu, 18 Aug 50 02:01:18 GMT", None),
            ("Thu 18 Aug 2050 02:01:18 GMT", None),
            ("Thu, 18  Aug  2050 02:01:18 GMT", None),
            ("Thu, 18-Aug-2050 02:01:18 GMT", None),
            ("Thu, 18 Aug 2050 02.01.18 GMT", None),
            ("Thu, 18 Aug 2050 2:01:18 GMT", None),
            ("Thu, 18 Aug 2050 24:01:18 GMT", None),
            ("T\u{fc}, 18 Aug 2050 02:01:18 GMT", None),
            ("Thu, 1\u{fc} Aug 205 02:01:18 GMT", None),
            ("Thu, GMT", None),
            ("0", None),
            ("", None),
        ] {
            assert_eq!(parse_date(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn dates_are_those_of_the_servers() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let second = random.u64(0..253_402_300_800);
            let text = server_shell::date::format_http_date(second);
            assert_eq!(parse_date(text.as_bytes()), Some(second), "{text}");
        }
    }
}
