//! Differences between two values: plans, machines, versions. Does not judge which of them matter.

use std::collections::{BTreeMap, BTreeSet};

use record::sorted::{CollectSorted, sort_by};
use serde_json::Value;

use super::Difference;

const SHOWN_CHARS_MAX: usize = 120;

/// Text of a table or a named item that only one side has.
const PRESENT: &str = "present";

/// Returns everything that differs, in the order of the paths. A `name` that is not empty precedes
/// each path. A part that only one side has is one difference.
pub(super) fn differences(name: &str, a: &Value, b: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    collect(name, Some(a), Some(b), &mut found);
    sort_by(&mut found, |left, right| left.path.cmp(&right.path));
    found
}

fn collect(path: &str, a: Option<&Value>, b: Option<&Value>, found: &mut Vec<Difference>) {
    let [a, b] = [a, b].map(|side| side.filter(|value| !value.is_null()));
    if let (Some(left), Some(right)) = (a.and_then(parts), b.and_then(parts)) {
        let names: BTreeSet<&String> = left.keys().chain(right.keys()).collect_set();
        for name in names {
            collect(&join_path(path, name), left.get(name).copied(), right.get(name).copied(), found);
        }
    } else if a != b {
        let [a, b] = [a, b].map(|side| side.map(shown));
        found.push(Difference { path: path.to_owned(), a, b });
    }
}

/// Returns the parts of a table, or of a list of tables; `None` for a single value, and for a list of
/// them, which counts as one value.
fn parts(value: &Value) -> Option<BTreeMap<String, &Value>> {
    match value {
        Value::Object(fields) => Some(fields.iter().map(|(name, field)| (name.clone(), field)).collect_map()),
        Value::Array(list) if list.iter().any(Value::is_object) => {
            // Named items are identified by name, so that an additional arm does not shift the others.
            let name_of = |(at, element): (usize, &Value)| {
                element.get("name").and_then(Value::as_str).map_or_else(|| at.to_string(), str::to_owned)
            };
            Some(list.iter().enumerate().map(|(at, element)| (name_of((at, element)), element)).collect_map())
        }
        _ => None,
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => shorten(text),
        other if parts(other).is_some() => PRESENT.to_owned(),
        other => shorten(&other.to_string()),
    }
}

fn join_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn shorten(text: &str) -> String {
    let line = text.replace('\n', " ");
    match line.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_differences_are_listed_with_their_paths() {
        let a = json!({"arms": [{"name": "x", "n": 1}, {"name": "y"}], "same": 1, "list": [1, 2]});
        let b = json!({"arms": [{"name": "y"}, {"name": "x", "n": 2}], "same": 1, "list": [1],
            "more": "t", "arm": {"name": "z", "n": 3}});
        let found_differences = differences("plan", &a, &b);
        let lines: Vec<String> = found_differences
            .iter()
            .map(|difference| {
                let side = |side: &Option<String>| side.clone().unwrap_or_default();
                format!("{} {}|{}", difference.path, side(&difference.a), side(&difference.b))
            })
            .collect();
        let expected = ["plan.arm |present", "plan.arms.x.n 1|2", "plan.list [1,2]|[1]", "plan.more |t"];
        assert_eq!(lines, expected);
        assert!(differences("a", &a, &a).is_empty());
        let long = differences("a", &json!("x".repeat(500)), &json!(1));
        assert_eq!(long[0].a.as_ref().unwrap().chars().count(), SHOWN_CHARS_MAX + 1);
    }
}
