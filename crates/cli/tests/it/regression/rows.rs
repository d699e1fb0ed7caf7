//! The tables of rows: parses them, and does not run them.
//!
//! A row starts with `== ` and the foreign test; then follow lines of these forms. `asks ` is the
//! behaviour, in our words. `differs ` describes and explains a deviation of weir. `without ` is a
//! further behaviour of the same test that weir does not offer. The proof is `see ` with existing
//! tests, `run ` with a program, or a config, its lines starting with `| `, with the steps of a
//! conversation.

/// Titles and tables.
pub(super) const THEMES: [(&str, &str); 10] = [
    ("Choosing a server", include_str!("balance.txt")),
    ("Health checks", include_str!("checks.txt")),
    ("Connections to servers", include_str!("connections.txt")),
    ("PROXY protocol", include_str!("proxy_protocol.txt")),
    ("Request targets and hosts", include_str!("targets.txt")),
    ("Messages", include_str!("messages.txt")),
    ("Routes and rewriting", include_str!("routes.txt")),
    ("Forwarding fields", include_str!("forwarding.txt")),
    ("Limits and operation", include_str!("operation.txt")),
    ("Logs", include_str!("logs.txt")),
];

/// One required behaviour.
#[derive(Debug)]
pub(super) struct ConformanceRow {
    /// The foreign test, by its path in the other proxy's suite.
    pub(super) foreign_test: &'static str,
    pub(super) requirement: String,
    /// Reason for a deviation of weir.
    pub(super) differs: Option<String>,
    /// Further behaviour of the same test that weir does not offer.
    pub(super) not_offered: Option<String>,
    pub(super) proof: Proof,
}

/// Proof of a row.
#[derive(Debug)]
pub(super) enum Proof {
    /// A config, and steps that must hold with it.
    Conversation { config: String, steps: Vec<&'static str> },
    /// A program of `programs`.
    Program(&'static str),
    /// Existing tests.
    Test(Vec<String>),
}

/// Returns the rows of a theme.
pub(super) fn parse_rows(theme: &str) -> Vec<ConformanceRow> {
    let (_, text) = THEMES.iter().find(|(name, _)| *name == theme).expect("a theme");
    let mut rows = Vec::new();
    for part in without_comments(text).split("\n== ").skip(1) {
        rows.push(parse_row(part));
    }
    rows
}

/// Returns the table from its first row on, without the leading comments.
fn without_comments(text: &'static str) -> &'static str {
    text.find("\n== ").map_or("", |at| &text[at..])
}

fn parse_row(part: &'static str) -> ConformanceRow {
    let mut lines = part.lines();
    let foreign_test = lines.next().unwrap_or("");
    let (mut requirement, mut differs, mut not_offered) = (String::new(), None, None);
    let (mut config, mut steps, mut tests, mut program) = (String::new(), Vec::new(), vec![], None);
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "asks" => requirement = rest.to_owned(),
            "differs" => differs = Some(rest.to_owned()),
            "without" => not_offered = Some(rest.to_owned()),
            "see" => tests.extend(rest.split(' ').map(str::to_owned)),
            "run" => program = Some(rest),
            "|" => config = format!("{config}{rest}\n"),
            _ => steps.push(line),
        }
    }
    assert!(!requirement.is_empty(), "{foreign_test} asks nothing");
    let proof = match (program, tests.is_empty()) {
        (Some(program), _) => Proof::Program(program),
        (None, false) => Proof::Test(tests),
        (None, true) => Proof::Conversation { config, steps },
    };
    ConformanceRow { foreign_test, requirement, differs, not_offered, proof }
}
