//! `compression` of HAProxy.

use std::rc::Rc;

use super::lexer::Line;
use crate::content::{ALL_TYPES, media_types};
use crate::document::{Origin, Value};
use crate::draft::Draft;
use crate::left::Kind;

/// Settings of `compression` of a section.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Compression {
    gzip: Option<Rc<Origin>>,
    types: Vec<String>,
}

impl Compression {
    /// Applies a line.
    pub(super) fn apply(&mut self, line: &Line, draft: &mut Draft<'_>) {
        let origin = &line.origin;
        let words = line.rest(2);
        match line.word(1) {
            "algo" | "algo-res" if words.iter().any(|word| word == "gzip") => {
                self.gzip = Some(Rc::clone(origin))
            }
            "algo" | "algo-res" if words == ["identity"] => self.gzip = None,
            "algo" | "algo-res" => {
                draft.leave(Kind::NotSupported, origin, "of the codings of HAProxy, weir makes gzip");
            }
            "type" | "type-res" => self.add_types(words, origin, draft),
            "offload" => {
                let text = "servers get Accept-Encoding, and may compress themselves";
                draft.leave(Kind::Differs, origin, text);
            }
            _ => draft.leave(Kind::NotSupported, origin, "of `compression`, algo and type for responses"),
        }
    }

    fn add_types(&mut self, words: &[String], origin: &Rc<Origin>, draft: &mut Draft<'_>) {
        // A type of HAProxy is the begin of one: `text/` is all text.
        let whole = |word: &String| match word.trim_end_matches('/') {
            kind if !kind.contains('/') && !kind.is_empty() => format!("{kind}/*"),
            _ => word.clone(),
        };
        let (all, named): (Vec<String>, Vec<String>) =
            words.iter().map(whole).partition(|word| word.ends_with("/*"));
        let kinds: Vec<String> = all.iter().map(|kind| kind.replace('*', "x")).collect();
        let (Some(kinds), Some(named)) = (media_types(&kinds), media_types(&named)) else {
            return draft.leave(Kind::NotSupported, origin, "these are too many types");
        };
        let kinds = kinds.iter().filter_map(|kind| Some(format!("{}/*", kind.split_once('/')?.0)));
        for own in kinds.chain(named).filter(|own| own != "*") {
            if !self.types.contains(&own) {
                self.types.push(own);
            }
        }
        // A section may have several lines.
        self.types.truncate(64);
    }

    /// Returns the key of weir; `None`: nothing is compressed.
    pub(super) fn value(&self, draft: &mut Draft<'_>) -> Option<(Value, Rc<Origin>)> {
        let origin = self.gzip.as_ref()?;
        let types: Vec<&str> = match self.types.is_empty() {
            true => ALL_TYPES.split(' ').collect(),
            false => self.types.iter().map(String::as_str).collect(),
        };
        let text = "with any status, Vary: Accept-Encoding and a weak tag; the server gets both forms of a tag in \
                    If-None-Match";
        draft.leave(Kind::Differs, origin, text);
        let value = Value::table([
            ("codings", Value::text("gzip")),
            ("types", Value::texts(types)),
            ("min-size", Value::Number(0)),
            ("level", Value::table([("gzip", Value::Number(1))])),
            ("with-credentials", Value::Bool(true)),
        ]);
        Some((value, Rc::clone(origin)))
    }
}

#[cfg(test)]
mod tests {
    use crate::fuzzing::NoSurroundings;
    use crate::{Program, convert};

    fn config(frontend: &str, backend: &str) -> (String, Vec<String>) {
        let text = format!(
            "frontend f\n  mode http\n  bind :80\n{frontend}  default_backend b\nbackend b\n  mode http\n{backend}  server s 10.0.0.1:80\n"
        );
        let import = convert(Program::Haproxy, "t.cfg", &text, &mut NoSurroundings).unwrap();
        (import.config, import.report.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn compression_is_that_of_its_section() {
        let lines = "  compression algo deflate gzip\n  compression type text/ application/json text/\n";
        let key = "compression = { codings = \"gzip\", types = [\"text/*\", \"application/json\"], min-size = 0, \
                   level = { gzip = 1 }, with-credentials = true }";
        let (text, report) = config(lines, "");
        let (listener, routes) = text.split_once("[[route]]").unwrap();
        assert!(listener.contains(key) && !routes.contains("compression"), "{text}");
        assert!(report.len() == 1 && report[0].contains("differs"), "{report:?}");
        let (text, _) = config("", lines);
        let (listener, routes) = text.split_once("[[route]]").unwrap();
        assert!(routes.contains(key) && !listener.contains("compression"), "{text}");
        // All types without a list, and decoys: types alone, and other codings.
        let (text, _) = config("  compression algo gzip\n", "");
        assert!(text.contains("types = [\"text/*\", \"application/*\""), "{text}");
        let (text, _) = config("  compression type text/html\n", "");
        assert!(!text.contains("compression"), "{text}");
        let (text, report) = config("  compression algo deflate\n  compression direction request\n", "");
        assert!(!text.contains("compression = "), "{text}");
        assert!(report.iter().filter(|line| line.contains("not supported")).count() == 2, "{report:?}");
    }
}
