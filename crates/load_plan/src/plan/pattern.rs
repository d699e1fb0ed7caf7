//! Regular expressions that are matched while bytes arrive. The automaton is built with the plan; a
//! response needs one state of it, so no body is stored.

use std::fmt;
use std::sync::Arc;

use record::invalid_value;
use record::problem::InvalidValue;
use regex_automata::Anchored;
use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::primitives::StateID;
use regex_automata::util::{start, syntax};
use serde::{Serialize, Serializer};

const AUTOMATON_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Maximum memory of the expression before that, in bytes.
const EXPRESSION_BYTES_MAX: usize = 1024 * 1024;

/// A regular expression with its automaton.
#[derive(Clone)]
pub struct StreamPattern {
    text: String,
    automaton: Arc<dense::DFA<Vec<u32>>>,
    first: StateID,
}

#[derive(Clone, Copy, Debug)]
pub struct SearchState {
    state: StateID,
    is_found: bool,
}

impl StreamPattern {
    /// Builds the automaton of a regular expression.
    ///
    /// # Errors
    /// Reason why the text is no pattern.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        let wrong = |error: &dyn fmt::Display| {
            let reason = error.to_string();
            let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            invalid_value!("'{text}' is not a regular expression: {reason}")
        };
        let config = dense::Config::new()
            .start_kind(StartKind::Unanchored)
            .dfa_size_limit(Some(AUTOMATON_BYTES_MAX))
            .determinize_size_limit(Some(AUTOMATON_BYTES_MAX));
        // A body need not be UTF-8.
        let automaton = dense::Builder::new()
            .configure(config)
            .syntax(syntax::Config::new().utf8(false))
            .thompson(thompson::Config::new().utf8(false).nfa_size_limit(Some(EXPRESSION_BYTES_MAX)))
            .build(text)
            .map_err(|error| {
                use std::error::Error as _;
                error.source().map_or_else(|| wrong(&error), |source| wrong(&source))
            })?;
        let first = automaton
            .start_state(&start::Config::new().anchored(Anchored::No))
            .map_err(|error| wrong(&error))?;
        Ok(Self { text: text.to_owned(), automaton: Arc::new(automaton), first })
    }

    #[inline]
    pub fn begin(&self) -> SearchState {
        SearchState { state: self.first, is_found: false }
    }

    #[inline]
    pub fn search(&self, search: &mut SearchState, bytes: &[u8]) {
        if search.is_found {
            return;
        }
        let mut state = search.state;
        for &byte in bytes {
            state = self.automaton.next_state(state, byte);
            if self.automaton.is_special_state(state) && self.automaton.is_match_state(state) {
                search.is_found = true;
                break;
            }
        }
        search.state = state;
    }

    /// Ends a search. Returns whether the pattern was found.
    #[inline]
    pub fn finish(&self, search: SearchState) -> bool {
        search.is_found || self.automaton.is_match_state(self.automaton.next_eoi_state(search.state))
    }

    /// Returns whether the pattern is in a text that is complete.
    #[inline]
    pub fn is_in(&self, bytes: &[u8]) -> bool {
        let mut search = self.begin();
        self.search(&mut search, bytes);
        self.finish(search)
    }
}

impl fmt::Display for StreamPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for StreamPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamPattern({:?})", self.text)
    }
}

impl PartialEq for StreamPattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for StreamPattern {}

impl Serialize for StreamPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_found_across_every_split() {
        let body = b"{\"status\": \"ok\", \"id\": 17}\xff";
        for (text, expected) in [
            (r#""status":\s*"ok""#, true),
            ("id.*17}", true),
            ("^\\{", true),
            ("17$", false),
            ("absent", false),
        ] {
            let pattern = StreamPattern::parse(text).unwrap();
            for split in 0..=body.len() {
                let mut search = pattern.begin();
                pattern.search(&mut search, &body[..split]);
                pattern.search(&mut search, &body[split..]);
                assert_eq!(pattern.finish(search), expected, "{text} at {split}");
            }
        }
    }

    #[test]
    fn a_wrong_or_too_large_pattern_is_rejected() {
        for text in ["(", "a{1,", r"(\w{1,200}){1,200}"] {
            let error = StreamPattern::parse(text).unwrap_err();
            assert!(
                error.to_string().starts_with(&format!("'{text}' is not a regular expression")),
                "{error}"
            );
        }
    }
}
