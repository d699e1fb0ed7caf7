//! Claims of a token as values. Pure.

use serde_json::{Map, Value};

/// Claims of a verified token.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claims(pub Map<String, Value>);

impl Claims {
    /// Returns the claim at a path. Its parts are separated by dots; a name may have dots itself, as in
    /// `https://example.org/roles`, and the longest name counts.
    pub fn find(&self, path: &str) -> Option<&Value> {
        find(&self.0, path)
    }

    /// Appends a claim as text: a list has commas between its texts, numbers and booleans, and an object none.
    pub fn append(&self, path: &str, out: &mut Vec<u8>) {
        let start = out.len();
        self.visit(path, &mut |text| {
            if out.len() > start {
                out.push(b',');
            }
            out.extend_from_slice(text);
        });
    }

    /// Calls `visit` with the text of a claim, or with that of each entry of a list.
    pub fn visit(&self, path: &str, visit: &mut dyn FnMut(&[u8])) {
        match self.find(path) {
            Some(Value::Array(entries)) => entries.iter().for_each(|entry| visit_scalar(entry, visit)),
            Some(scalar) => visit_scalar(scalar, visit),
            None => {}
        }
    }

    pub fn text(&self, path: &str) -> Option<&str> {
        self.find(path)?.as_str()
    }
}

fn find<'a>(map: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    if let Some(value) = map.get(path) {
        return Some(value);
    }
    let mut end = path.len();
    while let Some(dot) = path[..end].rfind('.') {
        if let Some(Value::Object(inner)) = map.get(&path[..dot])
            && let Some(value) = find(inner, &path[dot + 1..])
        {
            return Some(value);
        }
        end = dot;
    }
    None
}

fn visit_scalar(value: &Value, visit: &mut dyn FnMut(&[u8])) {
    match value {
        Value::String(text) => visit(text.as_bytes()),
        Value::Number(number) => visit(number.to_string().as_bytes()),
        Value::Bool(flag) => visit(if *flag { b"true" } else { b"false" }),
        Value::Null | Value::Array(_) | Value::Object(_) => {}
    }
}

/// Returns whether a text is the path of a claim: printable, without empty parts at its ends.
pub fn is_claim_path(path: &str) -> bool {
    !path.is_empty()
        && path.len() <= 255
        && !path.starts_with('.')
        && !path.ends_with('.')
        && !path.contains(|character: char| character.is_control() || character == ' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_have_paths() {
        let claims = r#"{ "sub": "ann", "n": 1.5, "admin": true, "none": null, "roles": ["a", 2, {"x": 1}, ["y"]],
            "realm": { "access": { "roles": ["r"] }, "a.b": "dotted" }, "https://x.example/roles": ["s", "t"],
            "realm.access": { "level": 3 } }"#;
        let claims = Claims(serde_json::from_str(claims).unwrap());
        for (path, expected) in [
            ("sub", "ann"),
            ("n", "1.5"),
            ("admin", "true"),
            ("none", ""),
            ("roles", "a,2"),
            ("realm", ""),
            ("realm.access.roles", "r"),
            ("realm.access.level", "3"),
            ("realm.a.b", "dotted"),
            ("https://x.example/roles", "s,t"),
            ("sub.x", ""),
            ("", ""),
            (".", ""),
            ("realm..access", ""),
        ] {
            let mut out = Vec::new();
            claims.append(path, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{path}");
        }
        assert!(is_claim_path("a.b") && is_claim_path("https://x/y"));
        assert!(!["", ".a", "a.", "a b", "a\n"].iter().any(|path| is_claim_path(path)));
    }
}
