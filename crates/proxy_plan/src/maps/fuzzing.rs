//! Properties of files of maps.

use super::file::parse;
use super::{Key, MatchKind, TableForm};

const KINDS: [MatchKind; 7] = [
    MatchKind::Exact,
    MatchKind::Domain,
    MatchKind::Prefix,
    MatchKind::PathPrefix,
    MatchKind::Suffix,
    MatchKind::Network,
    MatchKind::Regex,
];

/// Checks the content of a file behind its first byte, which is the kind of match: each fault has a place, and
/// each entry is found by its own key. `true`: the content was valid.
///
/// # Panics
/// The property does not hold.
pub fn check_file(bytes: &[u8]) -> bool {
    let Some((first, content)) = bytes.split_first() else { return false };
    let kind = KINDS[usize::from(*first) % KINDS.len()];
    let form = TableForm { kind, ignores_case: first & 0x40 == 0 && kind != MatchKind::Network };
    let table = match parse(content, form, first & 0x20 == 0) {
        Ok(table) => table,
        Err(faults) => {
            let texts = faults.texts(&"m");
            assert!(!texts.is_empty() && texts.iter().all(|text| text.starts_with("m:")), "{texts:?}");
            return false;
        }
    };
    assert!(table.memory_bytes() <= 1_024 + 64 * content.len());
    let mut entries = 0;
    table.visit(&mut |key, value| {
        entries += 1;
        assert_eq!(table.own_value(&key).ok().flatten(), Some(value), "{key}");
        let text = match kind {
            MatchKind::Network => key.split('/').next().unwrap_or_default().to_owned(),
            // A name below it.
            _ => key.replacen('*', "x", usize::from(kind == MatchKind::Domain)),
        };
        // An expression need not match itself.
        let is_searched = kind != MatchKind::Regex && (kind != MatchKind::Domain || text.len() < 256);
        let found = table.find(Key::Text(text.as_bytes()), u32::MAX);
        assert!(found.is_some() || !is_searched, "{key}");
    });
    assert_eq!(entries, table.len());
    true
}
