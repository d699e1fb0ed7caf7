//! Lines of `limits.conf`, as limits.conf(5) and pam_limits(8) define them.

use super::parse::{ForeignLine, significant_lines};
use crate::report::LimitTarget;

/// Items with a limit of the kernel, and those of a login.
const ITEMS: &[&str] = &[
    "core",
    "data",
    "fsize",
    "memlock",
    "nofile",
    "rss",
    "stack",
    "cpu",
    "nproc",
    "as",
    "maxlogins",
    "maxsyslogins",
    "nonewprivs",
    "priority",
    "locks",
    "sigpending",
    "msgqueue",
    "nice",
    "rtprio",
    "rttime",
    "chroot",
];
/// Items whose value may be negative.
const SIGNED: &[&str] = &["nice", "priority"];
/// Numbers of logins: pam_limits takes a negative one for no limit.
const LOGINS: &[&str] = &["maxlogins", "maxsyslogins"];
/// Items of which pam_limits does not read the type.
const WITHOUT_TYPE: &[&str] = &["maxlogins", "maxsyslogins", "nonewprivs"];
/// Items in KiB.
const KIBIBYTES: &[&str] = &["as", "core", "data", "fsize", "memlock", "rss", "stack"];
/// Words for no limit.
const UNLIMITED: &[&str] = &["unlimited", "infinity", "-1", "-"];

/// Domain of the limits of a unit file.
const SERVICE: &str = "the service";
/// First lines of unit files of systemd.
pub(super) const UNIT_SECTIONS: [&str; 4] = ["[Service]", "[Unit]", "[Install]", "[Manager]"];

/// Parses the limits of a unit file: `LimitNOFILE=SOFT:HARD` (systemd.exec(5)).
pub(super) fn parse_unit(base: &impl Fn(usize) -> ForeignLine, text: &str) -> Vec<ForeignLine> {
    let limits = significant_lines(text).filter_map(|(at, line)| {
        let (key, value) = line.split_once('=')?;
        let item = match key.trim() {
            "LimitNOFILE" | "DefaultLimitNOFILE" => "nofile",
            "LimitMEMLOCK" | "DefaultLimitMEMLOCK" => "memlock",
            _ => return None,
        };
        let value = value.trim();
        let (soft, hard) = value.split_once(':').unwrap_or((value, ""));
        let limit = |value: &str, soft: bool, hard: bool| {
            let value = if value == "infinity" { "unlimited" } else { value };
            let is_valid =
                value == "unlimited" || value.bytes().next().is_some_and(|byte| byte.is_ascii_digit());
            let problem = (!is_valid).then(|| format!("'{value}' is no limit: a number, or infinity"));
            // A size with a suffix, which systemd reads.
            let has_suffix = is_valid && value != "unlimited" && value.parse::<u64>().is_err();
            let unresolved = has_suffix.then(|| "a size with a suffix: weir does not judge it".to_owned());
            let target = LimitTarget { domain: SERVICE.to_owned(), soft, hard };
            let (name, value) = (format!("process.{item}"), value.to_owned());
            ForeignLine { name, value, problem, unresolved, limit: Some(target), ..base(at) }
        };
        Some(match hard {
            "" => vec![limit(soft, true, true)],
            hard => vec![limit(soft, true, false), limit(hard, false, true)],
        })
    });
    limits.flatten().collect()
}

/// Returns whether a line has the form of `limits.conf`: a type in its second field.
pub(super) fn is_line(line: &str) -> bool {
    let mut fields = line.split_whitespace().skip(1);
    let is_type =
        fields.next().is_some_and(|kind| ["soft", "hard", "-"].contains(&kind.to_lowercase().as_str()));
    is_type && fields.next() != Some("=")
}

/// Parses `domain type item value`.
pub(super) fn parse(base: ForeignLine, line: &str) -> ForeignLine {
    let (line, comment) = line.split_once('#').unwrap_or((line, ""));
    let fields: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let lower = |at: usize| fields.get(at).map(|field| field.to_lowercase()).unwrap_or_default();
    let (domain, kind, item) = (fields.first().cloned().unwrap_or_default(), lower(1), lower(2));
    let base = ForeignLine { comment: comment.trim().to_owned(), ..base };
    if kind.starts_with('-') && fields.len() == 2 {
        let is_range = domain.contains(':') && !domain.starts_with('%');
        if !is_range && domain.starts_with(['*', '%']) {
            let problem = "no effect: '-' alone is for a user, a @group or a range of UIDs (limits.conf(5))";
            return ForeignLine { name: domain, problem: Some(problem.to_owned()), ..base };
        }
        if let Some(problem) = range_problem(&domain) {
            return ForeignLine { name: domain, problem: Some(problem), ..base };
        }
        let reason = format!("no limit applies to {domain} (limits.conf(5), type '-' alone)");
        return ForeignLine { name: "process.limits".to_owned(), unresolved: Some(reason), ..base };
    }
    // pam_limits takes the rest of the line for the value.
    let value = fields.get(3..).unwrap_or_default().join(" ").to_lowercase();
    let is_known = ITEMS.contains(&item.as_str());
    let name = if item.is_empty() { line.trim().to_owned() } else { format!("process.{item}") };
    let problem = if fields.len() < 4 {
        Some("no limit: expected 'domain type item value'; pam_limits skips the line".to_owned())
    } else if let Some(problem) = range_problem(&domain) {
        Some(problem)
    } else if !WITHOUT_TYPE.contains(&item.as_str()) && !["soft", "hard", "-"].contains(&kind.as_str()) {
        Some(format!("'{kind}' is no type: soft, hard or -; pam_limits skips the line"))
    } else if !is_known {
        Some(format!("'{item}' is no limit of pam_limits: it skips the line"))
    } else if domain.starts_with('%') && item != "maxlogins" {
        Some("the domain % is for maxlogins only: pam_limits skips the line".to_owned())
    } else {
        value_problem(&item, &value)
    };
    let is_judged = ["nofile", "memlock"].contains(&item.as_str());
    let unresolved =
        (problem.is_none() && !is_judged).then(|| "a limit that the catalogue does not have".to_owned());
    let limit = LimitTarget { domain, soft: kind != "hard", hard: kind != "soft" };
    let is_unlimited = UNLIMITED.contains(&value.as_str());
    let in_kibibytes = KIBIBYTES.contains(&item.as_str()) && !is_unlimited;
    let bytes = value.parse::<u64>().ok().filter(|_| in_kibibytes && is_judged);
    let notes = bytes.map(|_| format!("{value} KiB (limits.conf(5))")).into_iter().collect();
    let value = value.strip_prefix('+').map_or_else(|| value.clone(), str::to_owned);
    let value = match bytes {
        Some(kibibytes) => kibibytes.saturating_mul(1024).to_string(),
        None if is_unlimited && !SIGNED.contains(&item.as_str()) => "unlimited".to_owned(),
        None => value,
    };
    ForeignLine { name, value, problem, unresolved, notes, limit: Some(limit), ..base }
}

/// Returns the reason why the domain of a line, if it is a range of IDs, applies to nobody.
fn range_problem(domain: &str) -> Option<String> {
    let (first, last) = domain.trim_start_matches(['@', '%']).split_once(':')?;
    let number =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u32>().ok())?;
    match (number(first), number(last)) {
        (None, Some(_)) if first.is_empty() => None,
        (Some(_), None) if last.is_empty() && !domain.starts_with('%') => None,
        (Some(_), _) if domain.starts_with('%') => {
            Some("pam_limits reads no range of groups after %, and ignores the line".to_owned())
        }
        (Some(first), Some(last)) if first > last => Some(format!("the range {domain} is empty")),
        (Some(_), Some(_)) => None,
        _ => Some(format!("'{domain}' is no range of IDs (FIRST:LAST): pam_limits skips the line")),
    }
}

/// Returns the reason why pam_limits skips a value, or reads another one.
fn value_problem(item: &str, value: &str) -> Option<String> {
    let is_signed = SIGNED.contains(&item);
    if !is_signed && UNLIMITED.contains(&value) || item == "chroot" {
        return None;
    }
    if item == "nonewprivs" {
        return (!["0", "1"].contains(&value)).then(|| format!("'{value}' is not 0 or 1"));
    }
    let takes_minus = is_signed || LOGINS.contains(&item);
    let digits = value.strip_prefix('-').filter(|_| takes_minus).unwrap_or(value);
    let digits = digits.strip_prefix('+').unwrap_or(digits);
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let is_too_large = digits.parse::<u64>().is_err();
        return is_too_large.then(|| format!("{value} is above the largest limit, 18446744073709551615"));
    }
    if let Some(number) = value.strip_prefix('-').and_then(|number| number.parse::<u64>().ok()) {
        return Some(format!("'{value}' is negative: pam_limits reads {}", number.wrapping_neg()));
    }
    let number: String = digits.chars().take_while(char::is_ascii_digit).collect();
    Some(match number.as_str() {
        "" => format!("'{value}' is not a number, and pam_limits skips the line (also valid: unlimited)"),
        number => format!("'{value}': pam_limits reads {number}, and ignores the rest"),
    })
}

/// Adds notes that depend on the other lines of a configuration.
pub(super) fn add_notes(lines: &mut [ForeignLine]) {
    let limits: Vec<(usize, String, LimitTarget, Option<u64>)> = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| line.problem.is_none())
        .filter_map(|(at, line)| Some((at, line.name.clone(), line.limit.clone()?, line.value.parse().ok())))
        .collect();
    for (at, name, target, value) in &limits {
        let same = |other: &&(usize, String, LimitTarget, Option<u64>)| {
            other.1 == *name && other.2.domain == target.domain && other.2.hard
        };
        // A limit for everybody holds for those without one of their own.
        let everybody = |other: &&(usize, String, LimitTarget, Option<u64>)| {
            let is_below = target.domain != "root" && is_login_domain(&target.domain);
            is_below && other.1 == *name && other.2.domain == "*" && other.2.hard
        };
        let hard = limits.iter().rfind(same).or_else(|| limits.iter().rfind(everybody));
        if !target.soft || target.hard {
            continue;
        }
        match hard {
            Some((hard_at, _, _, Some(hard))) if value.is_none_or(|soft| soft > *hard) => {
                let text = format!(
                    "above the hard limit {hard} ({}): pam_limits lowers it",
                    lines[*hard_at].location()
                );
                lines[*at].notes.push(text);
            }
            Some(_) => {}
            None => lines[*at].notes.push(format!(
                "no hard limit of {} here: that of the login service stays the max (systemd: 524288 files)",
                target.domain
            )),
        }
    }
    let is_login = |limit: &&(usize, String, LimitTarget, Option<u64>)| is_login_domain(&limit.2.domain);
    let Some((first, ..)) = limits.iter().find(is_login) else { return };
    lines[*first].notes.push(
        "limits.conf is for log-ins only: services of systemd have LimitNOFILE= and the like".to_owned(),
    );
    let is_general = |domain: &str| domain.starts_with(['*', '@', '%']);
    let has_root = limits.iter().any(|(_, _, target, _)| target.domain == "root");
    let general = limits.iter().find(|(_, _, target, _)| is_general(&target.domain));
    if let Some((at, _, target, _)) = general.filter(|_| !has_root) {
        lines[*at].notes.push(format!(
            "'{}' does not apply to root on Debian and Ubuntu: root needs a line of its own there",
            target.domain
        ));
    }
}

/// Returns whether a domain is one of limits.conf, and not a unit of systemd.
fn is_login_domain(domain: &str) -> bool {
    domain != SERVICE
}
