//! Old words in identifiers and in string literals, with what to write instead. People
//! check comments.

use super::scan;

/// Parts of identifiers that have a standard term, and that term.
const IDENTIFIER_PARTS: &[(&str, &str)] = &[
    ("afresh", "again"),
    ("anew", "again"),
    ("asker", "admin_backend"),
    ("bells", "wakeups"),
    ("canary", "wakeup_probe"),
    ("census", "session_dump"),
    ("desk", "dispatcher, command_context"),
    ("door", "listener, proxy_under_test"),
    ("doors", "listeners"),
    ("errand", "command"),
    ("farewell", "end_guard"),
    ("folder", "directory"),
    ("folders", "directories"),
    ("gatekeeper", "listener_limits"),
    ("illness", "fault"),
    ("luggage", "core_init"),
    ("mailbox", "fd_receiver"),
    ("parcel", "core_message"),
    ("patience", "timeout"),
    ("processor", "cpu"),
    ("processors", "cpus"),
    ("purse", "time_budget"),
    ("sick", "faulty"),
    ("whereabouts", "session_dump"),
];

/// Complete identifiers that say nothing, and what to write instead.
const IDENTIFIERS: &[(&str, &str)] = &[("one", "the noun of what it holds")];

/// Words and phrases that no string literal contains, and their replacement.
const STRING_WORDS: &[(&str, &str)] = &[
    ("afresh", "again"),
    ("anew", "again"),
    ("folder", "directory"),
    ("folders", "directories"),
    ("patience", "timeout"),
    ("processor", "CPU"),
    ("processors", "CPUs"),
    ("time-out", "timeout"),
    ("time-outs", "timeouts"),
    ("it is said", "\"X reports\""),
    ("is told", "\"X reports\""),
    ("are told", "\"X reports\""),
];

/// Returns the problems of one file, `LINE: problem`.
pub(crate) fn problems(text: &str) -> Vec<String> {
    let masked = scan::mask(text);
    let mut problems = Vec::new();
    for (line, number) in masked.lines().zip(1..) {
        for name in line.split(|character: char| !character.is_alphanumeric() && character != '_') {
            if let Some((old, new)) = IDENTIFIERS.iter().find(|(old, _)| *old == name) {
                problems.push(format!("{number}: '{old}': write {new}"));
            }
            for part in parts(name) {
                if let Some((old, new)) = IDENTIFIER_PARTS.iter().find(|(old, _)| *old == part) {
                    problems.push(format!("{number}: '{old}' in {name}: write {new}"));
                }
            }
        }
    }
    for (number, literal) in scan::literals(text) {
        for (old, new) in STRING_WORDS {
            if has_word(literal, old) {
                problems.push(format!("{number}: '{old}' in a string: write {new}"));
            }
        }
    }
    problems
}

/// Splits an identifier into its words, in lower case.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut previous = '_';
    for character in name.chars() {
        let begins = character == '_' || (character.is_uppercase() && !previous.is_uppercase());
        if begins {
            parts.push(String::new());
        }
        if character != '_'
            && let Some(part) = parts.last_mut()
        {
            part.extend(character.to_lowercase());
        }
        previous = character;
    }
    parts
}

/// Returns whether a text contains a word or phrase, without regard to case.
fn has_word(text: &str, word: &str) -> bool {
    let text = text.to_lowercase();
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        // `processor\t:` is a line of /proc/cpuinfo.
        let is_part = |character: Option<char>| {
            character
                .is_some_and(|character| character.is_alphanumeric() || ['_', '-', '\\'].contains(&character))
        };
        !is_part(before) && !is_part(after)
    })
}

#[test]
fn old_words_are_found_in_names_and_strings() {
    let text = "// a processor\nlet folder = 1;\nfn PerProcessor() { print(\"two processors\") }\n";
    let found = problems(text);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].starts_with("2: 'folder'") && found[1].starts_with("3: 'processor'"));
    assert!(found[2].starts_with("3: 'processors' in a string"));
    assert!(problems("let preprocessor = \"microprocessor\";").is_empty());
    assert_eq!(
        problems("let one = \"one\"; // one\nlet one_load = 1;"),
        ["1: 'one': write the noun of what it holds"]
    );
}
