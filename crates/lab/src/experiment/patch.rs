//! Tables laid over tables, and what that changes, key by key.
//!
//! Not for what the keys mean.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diff;
use crate::scenario::read::plain;

/// Lays a patch over a table: what is a table in both is gone into, anything else takes the place of
/// what was there. Places stay those of where a value was written.
pub(super) fn lay<'t>(patch: &DeTable<'t>, over: &mut DeTable<'t>) {
    for (key, value) in patch {
        let name: &str = key.get_ref();
        if let DeValue::Table(inner) = value.get_ref()
            && let Some(DeValue::Table(below)) = over.get_mut(name).map(Spanned::get_mut)
        {
            lay(inner, below);
            continue;
        }
        // A key that is there keeps its own place when it is inserted again.
        over.remove(name);
        over.insert(key.clone(), value.clone());
    }
}

/// A value that is no table, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    pub(super) at: usize,
    pub(super) text: String,
}

/// Every value of a table that is no table, by its whole key.
pub(super) fn leaves(table: &DeTable<'_>) -> BTreeMap<String, Leaf> {
    let mut found = BTreeMap::new();
    collect(table, "", &mut found);
    found
}

fn collect(table: &DeTable<'_>, path: &str, found: &mut BTreeMap<String, Leaf>) {
    for (key, value) in table {
        let path = format!("{path}{}", key.get_ref());
        match value.get_ref() {
            DeValue::Table(inner) => collect(inner, &format!("{path}."), found),
            value => {
                let text = plain(value).or_else(|| value.as_bool().map(|flag| flag.to_string()));
                let text = text.unwrap_or_else(|| value.type_str().to_owned());
                found.insert(path, Leaf { at: key.span().start, text });
            }
        }
    }
}

/// The key of the flags of a load.
const FLAGS: &str = "load.flags";

/// What is other than in the base, by key, and with what has several parts taken apart: flags of a load
/// (`load.flags -c`) and separate places of a text of several lines (`files.x line 3`), because each of them
/// may be what makes a difference.
pub(super) fn changes_apart(
    base: &BTreeMap<String, Leaf>,
    arm: &BTreeMap<String, Leaf>,
) -> BTreeMap<String, String> {
    let parts = |key: &String| -> Option<BTreeMap<String, String>> {
        let (old, new) = (&base.get(key)?.text, &arm.get(key)?.text);
        let parts: BTreeMap<String, String> = if key == FLAGS {
            diff::flags(old, new)?
        } else if old.contains('\n') && new.contains('\n') {
            let places = diff::lines(old, new)?.into_iter();
            places.map(|(line, text)| (format!("line {line}"), text)).collect()
        } else {
            return None;
        };
        (!parts.is_empty()).then_some(parts)
    };
    let apart = |(key, text): (String, String)| match parts(&key) {
        Some(parts) => {
            parts.into_iter().map(|(name, text)| (format!("{key} {name}"), text)).collect()
        }
        None => vec![(key, text)],
    };
    changes(base, arm).into_iter().flat_map(apart).collect()
}

/// What is other than in the base, by key. Of texts of several lines, the lines that are.
pub(super) fn changes(
    base: &BTreeMap<String, Leaf>,
    arm: &BTreeMap<String, Leaf>,
) -> BTreeMap<String, String> {
    let was = |key: &String| base.get(key).map(|leaf| leaf.text.as_str());
    let changed = arm.iter().filter(|(key, leaf)| was(key) != Some(leaf.text.as_str()));
    let shown = |(key, leaf): (&String, &Leaf)| {
        let text = match was(key) {
            Some(old) if old.contains('\n') && leaf.text.contains('\n') => lines(old, &leaf.text),
            _ => leaf.text.clone(),
        };
        (key.clone(), text)
    };
    changed.map(shown).collect()
}

/// The lines that one text has and the other has not: `- gone`, `+ come`.
fn lines(old: &str, new: &str) -> String {
    let only_in = |one: &str, other: &str, mark: &str| {
        let mut left: Vec<&str> = other.lines().collect();
        let mut found = String::new();
        for line in one.lines() {
            match left.iter().position(|other| *other == line) {
                Some(at) => drop(left.swap_remove(at)),
                None => found.push_str(&format!("{mark} {}\n", line.trim())),
            }
        }
        found
    };
    let text = only_in(old, new, "-") + &only_in(new, old, "+");
    if text.is_empty() { "other order of lines".to_owned() } else { text.trim_end().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> DeTable<'_> {
        DeTable::parse(text).unwrap().into_inner()
    }

    #[test]
    fn a_patch_goes_into_tables_and_keeps_its_places() {
        let base = table("a.b = 1\na.c = \"x\"\nd = { e = 2 }\nf = 3\n");
        let text = "\n\n\n\n\na.c = \"y\"\nd.g.h = true\nf = { i = 4 }\n";
        let patch = table(text);
        let mut over = base.clone();
        lay(&patch, &mut over);
        let leaves = leaves(&over);
        let shown: Vec<String> =
            leaves.iter().map(|(key, leaf)| format!("{key}={}", leaf.text)).collect();
        assert_eq!(shown, ["a.b=1", "a.c=y", "d.e=2", "d.g.h=true", "f.i=4"]);
        assert_eq!(leaves["a.c"].at, text.find("c = \"y\"").unwrap());
        let changed: Vec<String> = changes(&super::leaves(&base), &leaves).into_keys().collect();
        assert_eq!(changed, ["a.c", "d.g.h", "f.i"]);
        assert!(changes(&leaves, &leaves).is_empty());
    }

    #[test]
    fn of_long_texts_the_changed_lines_are_shown() {
        assert_eq!(lines("a\n  b\nc\n", "a\n  d\nc\nc\n"), "- b\n+ d\n+ c");
        assert_eq!(lines("a\nb\n", "b\na\n"), "other order of lines");
    }
}
