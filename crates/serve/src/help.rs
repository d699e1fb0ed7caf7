//! Texts that are generated from the table of options: the help page and the reference.

use std::fmt::Write;
use std::sync::OnceLock;

use crate::stats::COUNTER_DESCRIPTIONS;
use crate::url_options::OPTIONS;

const INTRODUCTION: &str = "\
weir serve: an HTTP origin. Options in the request target define the response.

    METHOD /anything?OPTION=VALUE&OPTION=VALUE…

The options start after the first '?'. One of & ? , ; / separates them.
'/' returns this page, '/stats' the counters (JSON), any other path without a '?' an empty 200.
";

const VALUES: &str = "\
Numbers are decimal, hexadecimal (0x…) or octal (0…); the suffixes k, m and g are powers of 1024.
  100r            uniform from 0 to 99 (drawn after the multiplier: 1kr is 0 to 1023)
  10~20           uniform from 10 to 20; also uniform(10:20)
  exp(10)         exponential with mean 10
  lognormal(10:0.5)  lognormal: median and standard deviation of the logarithm
  200:95,503:5    by percentages; the rest of 100 is the option's default
Parsing stops at the first unknown option. The options before it apply, and /stats counts the
request as unknown_option.
";

pub(crate) fn help_page() -> &'static str {
    static PAGE: OnceLock<String> = OnceLock::new();
    PAGE.get_or_init(|| {
        let mut page = format!("{INTRODUCTION}\nOptions:\n");
        for option in &OPTIONS {
            // Writing to a String cannot fail.
            let _ = writeln!(page, "  {:<6} {:<10} {}", option.key, option.example, option.description);
        }
        page + "\nValues:\n" + VALUES
    })
}

/// Returns the reference of the target options and of the counters, as Markdown.
pub fn reference_markdown() -> String {
    let mut text = format!("# Targets\n\n```text\n{INTRODUCTION}```\n\n");
    text += "| Option | Example | Meaning |\n| --- | --- | --- |\n";
    for option in &OPTIONS {
        let _ = writeln!(text, "| `{}` | `{}` | {} |", option.key, option.example, option.description);
    }
    let _ = write!(text, "\n## Values\n\n```text\n{VALUES}```\n\n## Counters\n\n");
    text += "`/stats` sends them as JSON, summed and for each core.\n\n";
    text += "| Name | Meaning |\n| --- | --- |\n";
    for (name, description) in COUNTER_DESCRIPTIONS {
        let _ = writeln!(text, "| `{name}` | {} |", description.trim());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_and_every_counter_is_explained() {
        let reference = reference_markdown();
        for option in &OPTIONS {
            assert!(help_page().contains(option.description), "{}", option.key);
            assert!(reference.contains(option.example), "{}", option.key);
            assert!(!option.description.contains('|'), "{}", option.key);
        }
        assert!(reference.contains("| `unknown_option` |"));
    }
}
