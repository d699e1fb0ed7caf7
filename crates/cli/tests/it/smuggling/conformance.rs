//! Public lists of requests, and what weir does with each; docs/conformance.md is made of the same
//! tables.

use std::fmt::Write as _;
use std::path::Path;

use super::requests::{DIFFERENCES, REQUIREMENTS, assert_all_safe};
use super::vectors;

#[test]
fn what_others_read_in_different_ways_is_refused() {
    let _shared = crate::support::beside_others();
    assert_all_safe(DIFFERENCES);
}

#[test]
fn what_the_rfcs_ask_for_is_done() {
    let _shared = crate::support::beside_others();
    assert_all_safe(REQUIREMENTS);
}

/// A list of the page: its title, what it is, and its table.
const LISTS: [(&str, &str, &str); 2] = [
    (
        "Differences between parsers",
        "Requests that servers, or proxies before them, are known to read in different ways.",
        DIFFERENCES,
    ),
    (
        "Requirements",
        "Requests for which RFC 9110 and RFC 9112 ask for one outcome, valid ones among them.",
        REQUIREMENTS,
    ),
];

fn page() -> String {
    let mut page = String::from(
        "<!-- Made by crates/cli/tests/it/smuggling/conformance.rs: do not edit. -->\n\n\
         # Conformance\n\n\
         Lists of requests that others have published, sent to the real proxy byte by byte. After each \
         of them a probe on a connection of its own has to get its own response. A request is refused \
         when the proxy answers it with an error, and nothing of it reaches a server as a whole request.\n",
    );
    let mut line = |text: std::fmt::Arguments<'_>| page.write_fmt(text).unwrap();
    for (title, about, table) in LISTS {
        let rows = vectors(table);
        let forwarded = rows.iter().filter(|row| row.expected.starts_with("pass")).count();
        let refused = rows.len() - forwarded;
        line(format_args!("\n## {title}\n\n{about}\n\n"));
        line(format_args!("| Cases | Refused | Forwarded |\n| --- | --- | --- |\n"));
        line(format_args!("| {} | {refused} | {forwarded} |\n", rows.len()));
        let mut reason = "";
        let mut differs = Vec::new();
        for text in table.lines() {
            if let Some(why) = text.strip_prefix("#= ") {
                reason = why;
            } else if let Some((name, _)) = text.split_once(" | ") {
                differs.extend((!reason.is_empty()).then_some((name, reason)));
                reason = "";
            }
        }
        if !differs.is_empty() {
            line(format_args!("\nForwarded on purpose:\n\n| Case | Why |\n| --- | --- |\n"));
        }
        for (name, why) in differs {
            line(format_args!("| {name} | {why} |\n"));
        }
    }
    page
}

#[test]
fn the_page_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/conformance.md");
    let page = page();
    if std::env::var_os("WEIR_WRITE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == page,
        "docs/conformance.md is not what the tables say; run this test with WEIR_WRITE_DOCS=1"
    );
}
