//! The line that an agent on a server says, as HAProxy's agent checks have it: words between spaces,
//! tabs or commas, in any order, and behind a `#` a text for people. Pure.

use crate::pool::Wanted;

/// Bytes of a line; what is longer is none.
pub(super) const LINE_BYTES_MAX: usize = 1_024;

/// What an agent says; what it does not mention stays as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// Whether its server is up, and in its own words why not.
    pub(super) up: Option<Result<(), Box<str>>>,
    pub(super) wanted: Option<Wanted>,
    /// Of its share.
    pub(super) percent: Option<u32>,
    pub(super) maxconn: Option<usize>,
}

/// Understands a line without its end. `None`: there is no word in it that we know.
pub(super) fn parse(line: &[u8]) -> Option<Said> {
    let line = String::from_utf8_lossy(line);
    let (words, note) = line.split_once('#').unwrap_or((&line, ""));
    let mut said = Said::default();
    let mut known = false;
    for word in words.split([' ', '\t', ',']).filter(|word| !word.is_empty()) {
        let word = word.to_ascii_lowercase();
        known |= take(&mut said, &word, note.trim());
    }
    known.then_some(said)
}

fn take(said: &mut Said, word: &str, note: &str) -> bool {
    let number = |text: &str| text.parse::<u32>().ok();
    match word {
        "up" => said.up = Some(Ok(())),
        "down" | "fail" | "failed" | "stopped" => {
            let note: String = note.chars().filter(|c| !c.is_control()).take(80).collect();
            let colon = if note.is_empty() { "" } else { ": " };
            said.up = Some(Err(format!("{word}{colon}{note}").into()));
        }
        "ready" => said.wanted = Some(Wanted::Ready),
        "drain" => said.wanted = Some(Wanted::Drain),
        "maint" => said.wanted = Some(Wanted::Maintenance),
        _ => match (word.strip_suffix('%'), word.strip_prefix("maxconn:")) {
            (Some(percent), _) if number(percent).is_some() => said.percent = number(percent),
            (_, Some(max)) if number(max).is_some_and(|max| max > 0) => {
                said.maxconn = number(max).map(|max| max as usize);
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
    fn every_word_is_understood() {
        let down = |text: &str| Said { up: Some(Err(text.into())), ..Said::default() };
        for (line, wanted) in [
            ("up", Said { up: Some(Ok(())), ..Said::default() }),
            ("DOWN", down("down")),
            ("failed", down("failed")),
            ("fail # disk  full ", down("fail: disk  full")),
            ("stopped", down("stopped")),
            ("ready", Said { wanted: Some(Wanted::Ready), ..Said::default() }),
            ("drain", Said { wanted: Some(Wanted::Drain), ..Said::default() }),
            ("maint", Said { wanted: Some(Wanted::Maintenance), ..Said::default() }),
            ("75%", Said { percent: Some(75), ..Said::default() }),
            ("maxconn:30", Said { maxconn: Some(30), ..Said::default() }),
            (
                "ready,up\t150%  maxconn:1 hello",
                Said {
                    up: Some(Ok(())),
                    wanted: Some(Wanted::Ready),
                    percent: Some(150),
                    maxconn: Some(1),
                },
            ),
        ] {
            assert_eq!(parse(line.as_bytes()), Some(wanted), "{line}");
        }
    }

    #[test]
    fn nonsense_is_nothing() {
        for line in [
            "",
            " ",
            "hello",
            "-5%",
            "%",
            "maxconn:",
            "maxconn:x",
            "maxconn:0",
            "99999999999%",
            "# up",
        ] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
        assert_eq!(parse(b"\xff\xfe"), None);
        let long = parse(format!("down # {}\u{7}", "x".repeat(500)).as_bytes()).unwrap();
        assert_eq!(long.up.unwrap().unwrap_err().len(), "down: ".len() + 80);
    }
}
