//! The texts that are made from the table of options: the help page and the reference.

use std::fmt::Write;
use std::sync::OnceLock;

use crate::language::OPTIONS;
use crate::stats::MEANINGS;

const INTRODUCTION: &str = "\
weir serve: an HTTP origin whose answers are asked for in the target.

    METHOD /anything?OPTION=VALUE&OPTION=VALUE…

The options begin behind the first '?'. Between them stands one of & ? , ; /
This page is '/', the counters are '/stats' (JSON); any other path without a '?' is an empty 200.
";

const VALUES: &str = "\
A number is decimal, 0x… hexadecimal or 0… octal; k, m and g behind it multiply by 1024 each.
  100r            uniform at random from 0 to 99 (drawn after the multiplier: 1kr is 0 to 1023)
  10~20           uniform from 10 to 20; also uniform(10:20)
  exp(10)         exponential with mean 10
  lognormal(10:0.5)  lognormal: median and standard deviation of the logarithm
  200:95,503:5    by percentages; what is left of 100 is the option's default
Reading stops at the first thing that is no option; what stood before it counts, and the request
is counted as unknown_option in /stats.
";

/// The help page.
pub(crate) fn help_page() -> &'static str {
    static PAGE: OnceLock<String> = OnceLock::new();
    PAGE.get_or_init(|| {
        let mut page = format!("{INTRODUCTION}\nOptions:\n");
        for row in &OPTIONS {
            // Writing to a String cannot fail.
            let _ = writeln!(page, "  {:<6} {:<10} {}", row.letters, row.example, row.meaning);
        }
        page + "\nValues:\n" + VALUES
    })
}

/// The reference of the language and of the counters, as Markdown.
#[must_use]
pub fn reference_markdown() -> String {
    let mut text = format!("# Targets\n\n```text\n{INTRODUCTION}```\n\n");
    text += "| Option | Example | Meaning |\n| --- | --- | --- |\n";
    for row in &OPTIONS {
        let _ = writeln!(text, "| `{}` | `{}` | {} |", row.letters, row.example, row.meaning);
    }
    let _ = write!(text, "\n# Values\n\n```text\n{VALUES}```\n\n# Counters\n\n");
    text += "`/stats` sends them as JSON, summed and for each core.\n\n";
    text += "| Name | Meaning |\n| --- | --- |\n";
    for (name, meaning) in MEANINGS {
        let _ = writeln!(text, "| `{name}` | {} |", meaning.trim());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_and_every_counter_is_explained() {
        let reference = reference_markdown();
        for row in &OPTIONS {
            assert!(help_page().contains(row.meaning), "{}", row.letters);
            assert!(reference.contains(row.example), "{}", row.letters);
            assert!(!row.meaning.contains('|'), "{}", row.letters);
        }
        assert!(reference.contains("| `unknown_option` |"));
    }
}
