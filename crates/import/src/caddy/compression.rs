//! `encode` of Caddy.

use super::leave;
use crate::content::media_types;
use crate::directive::Directive;
use crate::document::Value;
use crate::draft::Draft;
use crate::left::Kind;

/// Levels of Caddy's codings by name.
const ZSTD_LEVELS: [(&str, u64); 4] = [("fastest", 1), ("default", 3), ("better", 7), ("best", 11)];

/// Parts of one `encode`.
struct Encode {
    codings: Vec<String>,
    levels: Vec<(String, Value)>,
    min_size: u64,
    types: Vec<String>,
}

/// Returns `compression` of an `encode` with these arguments; `None`: it is reported, and nothing is compressed.
pub(super) fn compression(directive: &Directive, words: &[&str], draft: &mut Draft<'_>) -> Option<Value> {
    let mut encode = Encode { codings: Vec::new(), levels: Vec::new(), min_size: 512, types: Vec::new() };
    words.iter().for_each(|word| encode.add_coding(word, ""));
    for inner in directive.inner() {
        if !encode.apply(inner) {
            leave(inner, draft);
            draft.leave(Kind::NotSupported, &inner.origin, "responses are not compressed here");
            return None;
        }
    }
    if encode.codings.is_empty() {
        if !words.is_empty() {
            draft.leave(
                Kind::NotSupported,
                &directive.origin,
                "of the codings, weir makes br, zstd and gzip",
            );
            return None;
        }
        ["zstd", "gzip"].iter().for_each(|coding| encode.add_coding(coding, ""));
    }
    let types = if encode.types.is_empty() { "the types are those of weir, " } else { "" };
    let text = format!("{types}with Vary: Accept-Encoding and a weak tag, but not under `no-transform`");
    draft.leave(Kind::Differs, &directive.origin, text);
    Some(encode.into_value())
}

impl Encode {
    fn add_coding(&mut self, coding: &str, level: &str) {
        if !["gzip", "zstd", "br"].contains(&coding) || self.codings.iter().any(|own| own == coding) {
            return;
        }
        self.codings.push(coding.to_owned());
        let level = match coding {
            "gzip" => level.parse().ok().filter(|level| (1..=9).contains(level)).unwrap_or(5),
            "zstd" => ZSTD_LEVELS.iter().find(|(name, _)| *name == level).map_or(3, |(_, level)| *level),
            _ => return,
        };
        self.levels.push((coding.to_owned(), Value::Number(level)));
    }

    /// Applies a line of the block. Returns false if weir does not have it.
    fn apply(&mut self, line: &Directive) -> bool {
        match (line.name(), line.arguments()) {
            ("gzip" | "zstd" | "br", arguments) => {
                self.add_coding(line.name(), arguments.first().map_or("", String::as_str));
                true
            }
            ("minimum_length", [bytes]) => {
                let bytes = bytes.parse::<u64>().ok().map(|bytes| bytes.min(1 << 30));
                self.min_size = bytes.unwrap_or(self.min_size);
                bytes.is_some()
            }
            ("match", [header, name, types @ ..]) if header == "header" => self.add_types(name, types),
            ("match", []) => line.inner().iter().all(|inner| match (inner.name(), inner.arguments()) {
                ("header", [name, types @ ..]) => self.add_types(name, types),
                _ => false,
            }),
            _ => false,
        }
    }

    fn add_types(&mut self, name: &str, types: &[String]) -> bool {
        let bare: Vec<String> = types
            .iter()
            .map(|own| {
                own.strip_suffix("/*")
                    .map_or_else(|| own.trim_end_matches('*').to_owned(), |kind| format!("{kind}/x"))
            })
            .collect();
        let known = media_types(&bare).filter(|known| {
            known.len() == types.len() && !known.is_empty() && name.eq_ignore_ascii_case("content-type")
        });
        let Some(known) = known.filter(|known| known.len() + self.types.len() <= 64) else { return false };
        let is_kind = types.iter().map(|own| own.ends_with("/*"));
        self.types.extend(known.into_iter().zip(is_kind).map(|(own, is_kind)| match own.split_once('/') {
            Some((kind, _)) if is_kind => format!("{kind}/*"),
            _ => own,
        }));
        true
    }

    fn into_value(self) -> Value {
        let mut entries = vec![
            ("codings".to_owned(), Value::texts(self.codings)),
            ("min-size".to_owned(), Value::Number(self.min_size)),
        ];
        if !self.levels.is_empty() {
            entries.push(("level".to_owned(), Value::Table(self.levels)));
        }
        if !self.types.is_empty() {
            entries.push(("types".to_owned(), Value::texts(self.types)));
        }
        entries.push(("with-credentials".to_owned(), Value::Bool(true)));
        Value::Table(entries)
    }
}

#[cfg(test)]
mod tests {
    use crate::fuzzing::NoSurroundings;
    use crate::{Program, convert};

    fn config(encode: &str) -> (String, Vec<String>) {
        let text = format!(":80 {{\n  {encode}\n  respond /up ok\n  reverse_proxy a:1\n}}\n");
        let import = convert(Program::Caddy, "t", &text, &mut NoSurroundings).unwrap();
        (import.config, import.report.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn codings_have_their_order_and_levels() {
        for (encode, part) in [
            (
                "encode",
                "codings = [\"zstd\", \"gzip\"], min-size = 512, level = { zstd = 3, gzip = 5 }, with",
            ),
            ("encode gzip", "codings = \"gzip\", min-size = 512, level = { gzip = 5 }, with"),
            (
                "encode {\n gzip 9\n zstd best\n minimum_length 0\n }",
                "min-size = 0, level = { gzip = 9, zstd = 11 }",
            ),
            (
                "encode gzip {\n match header Content-Type text/* application/json*\n }",
                "types = [\"text/*\", \"application/json\"]",
            ),
        ] {
            let (text, report) = config(encode);
            assert!(text.contains(part) && text.matches("compression").count() == 1, "{text}");
            assert!(!report.iter().any(|line| line.contains("not supported")), "{report:?}");
        }
        let (text, _) = config("encode /a/* gzip");
        assert!(
            text.contains("path-regex = \"(?i)^/a/\"\ncompression") || text.contains("compression"),
            "{text}"
        );
        assert_eq!(text.matches("pool = ").count(), 2, "{text}");
        // Decoys: what weir does not compare, and no coding of it.
        for encode in [
            "encode {\n gzip\n match status 2xx\n }",
            "encode lz4",
            "encode gzip {\n match header X-A b/c\n }",
        ] {
            let (text, report) = config(encode);
            assert!(!text.contains("compression = "), "{text}");
            assert!(report.iter().any(|line| line.contains("not supported")), "{report:?}");
        }
    }
}
