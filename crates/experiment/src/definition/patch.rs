//! Tables applied to tables, and the resulting changes by key, independent of the meaning of keys.

use std::collections::BTreeMap;

use record::document::text_or_number;
use record::sorted::CollectSorted;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diff;

/// Applies a patch to a table. Tables that are in both are merged; any other value replaces the old
/// one. Positions stay those where a value was written.
pub(super) fn apply_patch<'t>(patch: &DeTable<'t>, over: &mut DeTable<'t>) {
    for (key, value) in patch {
        let name: &str = key.get_ref();
        if let DeValue::Table(inner) = value.get_ref()
            && let Some(DeValue::Table(below)) = over.get_mut(name).map(Spanned::get_mut)
        {
            apply_patch(inner, below);
            continue;
        }
        // An existing key keeps its old position when it is inserted again.
        over.remove(name);
        over.insert(key.clone(), value.clone());
    }
}

/// A value that is not a table, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyValue {
    pub(super) offset: usize,
    pub(super) text: String,
}

/// Returns every value of a table that is not a table itself, by its full key.
pub(super) fn key_values(table: &DeTable<'_>) -> BTreeMap<String, KeyValue> {
    let mut values = BTreeMap::new();
    collect(table, "", &mut values);
    values
}

fn collect(table: &DeTable<'_>, path: &str, values: &mut BTreeMap<String, KeyValue>) {
    for (key, value) in table {
        let path = format!("{path}{}", key.get_ref());
        match value.get_ref() {
            DeValue::Table(inner) => collect(inner, &format!("{path}."), values),
            value => {
                let text = text_or_number(value).or_else(|| value.as_bool().map(|flag| flag.to_string()));
                let text = text.or_else(|| list_text(value));
                let text = text.unwrap_or_else(|| value.type_str().to_owned());
                values.insert(path, KeyValue { offset: key.span().start, text });
            }
        }
    }
}

/// Returns the texts of a list, separated by spaces.
fn list_text(value: &DeValue<'_>) -> Option<String> {
    let texts: Option<Vec<String>> =
        value.as_array()?.iter().map(|entry| text_or_number(entry.get_ref())).collect();
    Some(texts?.join(" "))
}

const LOAD_FLAGS_KEY: &str = "load.flags";

/// Returns whether a key has the arguments of a program on a machine of a fleet.
fn is_arguments(key: &str) -> bool {
    let program = key.strip_prefix("machine.").and_then(|rest| rest.rsplit_once('.'));
    program.is_some_and(|(_, program)| ["serve", "proxy", "observe"].contains(&program))
}

/// Returns the differences from the base by key, with compound values split: flags of a load
/// (`load.flags -c`) and separate places of a multi-line text (`files.x line 3`). Each of them may
/// be the cause of a difference.
pub(super) fn split_changes(
    base: &BTreeMap<String, KeyValue>,
    arm: &BTreeMap<String, KeyValue>,
) -> BTreeMap<String, String> {
    let parts = |key: &String| -> Option<BTreeMap<String, String>> {
        let (old, new) = (&base.get(key)?.text, &arm.get(key)?.text);
        let parts: BTreeMap<String, String> = if key == LOAD_FLAGS_KEY || is_arguments(key) {
            diff::diff_flags(old, new)?
        } else if old.contains('\n') && new.contains('\n') {
            let differences = diff::diff_lines(old, new)?.into_iter();
            differences.map(|(line, text)| (format!("line {line}"), text)).collect_map()
        } else {
            return None;
        };
        (!parts.is_empty()).then_some(parts)
    };
    let split = |(key, text): (String, String)| match parts(&key) {
        Some(parts) => parts.into_iter().map(|(name, text)| (format!("{key} {name}"), text)).collect(),
        None => vec![(key, text)],
    };
    changes_by_key(base, arm).into_iter().flat_map(split).collect_map()
}

/// Returns the differences from the base, by key. For multi-line texts, only the differing lines.
pub(super) fn changes_by_key(
    base: &BTreeMap<String, KeyValue>,
    arm: &BTreeMap<String, KeyValue>,
) -> BTreeMap<String, String> {
    let old_text = |key: &String| base.get(key).map(|value| value.text.as_str());
    let changed = arm.iter().filter(|(key, value)| old_text(key) != Some(value.text.as_str()));
    let shown = |(key, value): (&String, &KeyValue)| {
        let text = match old_text(key) {
            Some(old) if old.contains('\n') && value.text.contains('\n') => changed_lines(old, &value.text),
            _ => value.text.clone(),
        };
        (key.clone(), text)
    };
    changed.map(shown).collect_map()
}

/// Returns the lines that only one of the texts has: `- gone`, `+ come`.
fn changed_lines(old: &str, new: &str) -> String {
    let only_in = |text: &str, other: &str, mark: &str| {
        let mut left: Vec<&str> = other.lines().collect();
        let mut lines_text = String::new();
        for line in text.lines() {
            match left.iter().position(|other| *other == line) {
                Some(at) => drop(left.swap_remove(at)),
                None => lines_text.push_str(&format!("{mark} {}\n", line.trim())),
            }
        }
        lines_text
    };
    let text = only_in(old, new, "-") + &only_in(new, old, "+");
    if text.is_empty() { "different order of lines".to_owned() } else { text.trim_end().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> DeTable<'_> {
        DeTable::parse(text).unwrap().into_inner()
    }

    #[test]
    fn a_patch_is_merged_into_tables_and_keeps_positions() {
        let base = table("a.b = 1\na.c = \"x\"\nd = { e = 2 }\nf = 3\n");
        let text = "\n\n\n\n\na.c = \"y\"\nd.g.h = true\nf = { i = 4 }\n";
        let patch = table(text);
        let mut over = base.clone();
        apply_patch(&patch, &mut over);
        let values = key_values(&over);
        let shown: Vec<String> = values.iter().map(|(key, leaf)| format!("{key}={}", leaf.text)).collect();
        assert_eq!(shown, ["a.b=1", "a.c=y", "d.e=2", "d.g.h=true", "f.i=4"]);
        assert_eq!(values["a.c"].offset, text.find("c = \"y\"").unwrap());
        let changed: Vec<String> = changes_by_key(&key_values(&base), &values).into_keys().collect();
        assert_eq!(changed, ["a.c", "d.g.h", "f.i"]);
        assert!(changes_by_key(&values, &values).is_empty());
    }

    #[test]
    fn of_long_texts_the_changed_lines_are_shown() {
        assert_eq!(changed_lines("a\n  b\nc\n", "a\n  d\nc\nc\n"), "- b\n+ d\n+ c");
        assert_eq!(changed_lines("a\nb\n", "b\na\n"), "different order of lines");
    }
}
