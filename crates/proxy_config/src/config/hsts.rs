//! Parses the setting for `Strict-Transport-Security` (RFC 6797).

use std::fmt;

use super::errors::ValueError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hsts {
    max_age_s: u64,
    include_subdomains: bool,
    preload: bool,
}

/// Minimum of max-age, in seconds, for the list that browsers preload: one year.
const PRELOAD_MAX_AGE_S: u64 = 31_536_000;
/// Maximum of max-age in seconds: ten years.
const MAX_AGE_MAX_S: u64 = 10 * PRELOAD_MAX_AGE_S;

/// Parses a max-age with its unit, followed by the names of directives.
pub(super) fn parse(text: &str) -> Result<Hsts, ValueError> {
    let mut parts = text.split(';').map(str::trim);
    let max_age_s = parse_max_age(parts.next().unwrap_or_default())?;
    let mut hsts = Hsts { max_age_s, include_subdomains: false, preload: false };
    for part in parts {
        match part {
            _ if part.eq_ignore_ascii_case("includeSubDomains") => hsts.include_subdomains = true,
            _ if part.eq_ignore_ascii_case("preload") => hsts.preload = true,
            other => return Err(ValueError::HstsDirective(other.into())),
        }
    }
    Ok(hsts)
}

fn parse_max_age(text: &str) -> Result<u64, ValueError> {
    let invalid = || ValueError::MaxAge(text.into());
    let unit_at = text.find(|byte: char| !byte.is_ascii_digit()).ok_or_else(invalid)?;
    let (number, unit) = text.split_at(unit_at);
    let unit_s = match unit {
        "s" => 1,
        "m" | "min" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        "y" => 365 * 86_400,
        _ => return Err(invalid()),
    };
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit_s));
    let seconds = seconds.ok_or_else(invalid)?;
    if seconds > MAX_AGE_MAX_S {
        return Err(ValueError::LongMaxAge(text.into()));
    }
    Ok(seconds)
}

impl Hsts {
    /// Returns the reason why browsers would not preload the host although the field asks for it.
    pub(super) fn preload_fault(self) -> Option<&'static str> {
        let is_listed = self.include_subdomains && self.max_age_s >= PRELOAD_MAX_AGE_S;
        (self.preload && !is_listed)
            .then_some("'preload' has no effect without includeSubDomains and a time of at least 1y")
    }
}

impl fmt::Display for Hsts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "max-age={}", self.max_age_s)?;
        formatter.write_str(if self.include_subdomains { "; includeSubDomains" } else { "" })?;
        formatter.write_str(if self.preload { "; preload" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_has_seconds_and_directives() {
        for (text, expected) in [
            ("1y", "max-age=31536000"),
            ("180d; includesubdomains", "max-age=15552000; includeSubDomains"),
            ("2y;preload; includeSubDomains", "max-age=63072000; includeSubDomains; preload"),
            ("0s", "max-age=0"),
        ] {
            assert_eq!(parse(text).unwrap().to_string(), expected, "{text}");
        }
        for invalid in ["", "1", "y", "-1y", "1 y", "99999999999999999999s", "11y", "1y; subdomains", "1y;"] {
            assert!(parse(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn preload_needs_a_year_and_subdomains() {
        let fault = |text: &str| parse(text).unwrap().preload_fault().is_some();
        assert!(fault("1y; preload") && fault("180d; includeSubDomains; preload"));
        assert!(!fault("1y; includeSubDomains; preload") && !fault("180d"));
    }
}
