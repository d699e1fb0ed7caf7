//! Parser of the reply to an agent check, in HAProxy's format (`agent-check`): a line of words, separated
//! by spaces, tabs or commas, in any order. A `#` starts a description. No I/O.

use crate::pool::AdminState;

/// Maximum length of a line in bytes; longer ones are invalid.
pub(super) const LINE_BYTES_MAX: usize = 1_024;
/// Maximum number of characters that are kept of a description.
const DESCRIPTION_CHARS_MAX: usize = 80;

/// Settings from an agent. `None`: the reply does not have the setting, and it stays unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AgentReport {
    /// Health of the server; the error has the word of the agent and the description.
    pub(super) health: Option<Result<(), Box<str>>>,
    pub(super) admin_state: Option<AdminState>,
    /// Percentage of the server's configured weight.
    pub(super) weight_percent: Option<u32>,
    pub(super) maxconn: Option<usize>,
}

/// Parses a line without its line end. `None`: the line has no known word.
pub(super) fn parse(line: &[u8]) -> Option<AgentReport> {
    let line = String::from_utf8_lossy(line);
    let (words, description) = line.split_once('#').unwrap_or((&line, ""));
    let mut report = AgentReport::default();
    let mut has_known_word = false;
    for word in words.split([' ', '\t', ',']).filter(|word| !word.is_empty()) {
        let word = word.to_ascii_lowercase();
        has_known_word |= apply_word(&mut report, &word, description.trim());
    }
    has_known_word.then_some(report)
}

/// Applies one word, in lower case. Returns `false` if the word is unknown.
fn apply_word(report: &mut AgentReport, word: &str, description: &str) -> bool {
    let number = |text: &str| text.parse::<u32>().ok();
    match word {
        "up" => report.health = Some(Ok(())),
        "down" | "fail" | "failed" | "stopped" => {
            let printable = description.chars().filter(|c| !c.is_control());
            let description: String = printable.take(DESCRIPTION_CHARS_MAX).collect();
            let colon = if description.is_empty() { "" } else { ": " };
            report.health = Some(Err(format!("{word}{colon}{description}").into()));
        }
        "ready" => report.admin_state = Some(AdminState::Ready),
        "drain" => report.admin_state = Some(AdminState::Drain),
        "maint" => report.admin_state = Some(AdminState::Maintenance),
        _ => match (word.strip_suffix('%'), word.strip_prefix("maxconn:")) {
            (Some(percent), _) if number(percent).is_some() => report.weight_percent = number(percent),
            (_, Some(max)) if number(max).is_some_and(|max| max > 0) => {
                report.maxconn = number(max).map(|max| max as usize);
            }
            _ => return false,
        },
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_parsed() {
        let down_report =
            |text: &str| AgentReport { health: Some(Err(text.into())), ..AgentReport::default() };
        for (line, expected) in [
            ("up", AgentReport { health: Some(Ok(())), ..AgentReport::default() }),
            ("DOWN", down_report("down")),
            ("failed", down_report("failed")),
            ("fail # disk  full ", down_report("fail: disk  full")),
            ("stopped", down_report("stopped")),
            ("ready", AgentReport { admin_state: Some(AdminState::Ready), ..AgentReport::default() }),
            ("drain", AgentReport { admin_state: Some(AdminState::Drain), ..AgentReport::default() }),
            ("maint", AgentReport { admin_state: Some(AdminState::Maintenance), ..AgentReport::default() }),
            ("75%", AgentReport { weight_percent: Some(75), ..AgentReport::default() }),
            ("maxconn:30", AgentReport { maxconn: Some(30), ..AgentReport::default() }),
            (
                "ready,up\t150%  maxconn:1 hello",
                AgentReport {
                    health: Some(Ok(())),
                    admin_state: Some(AdminState::Ready),
                    weight_percent: Some(150),
                    maxconn: Some(1),
                },
            ),
        ] {
            assert_eq!(parse(line.as_bytes()), Some(expected), "{line}");
        }
    }

    #[test]
    fn lines_without_a_known_word_are_rejected() {
        for line in
            ["", " ", "hello", "-5%", "%", "maxconn:", "maxconn:x", "maxconn:0", "99999999999%", "# up"]
        {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
        assert_eq!(parse(b"\xff\xfe"), None);
        let long = parse(format!("down # {}\u{7}", "x".repeat(500)).as_bytes()).unwrap();
        assert_eq!(long.health.unwrap().unwrap_err().len(), "down: ".len() + 80);
    }
}
