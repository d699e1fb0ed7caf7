//! Media types by the extensions of names, and by the start of the content. Pure.

use std::borrow::Cow;

/// Type of a file with an unknown extension.
const UNKNOWN: &str = "application/octet-stream";

/// Text without a registered type of its own, which browsers show and do not store.
const PLAIN_TEXT: &str = "text/plain; charset=utf-8";
const TRANSPORT_STREAM: &str = "video/mp2t";

/// Types by extension that differ from those of the table: source code above all, which that has as downloads
/// and as the formats of other programs.
const OWN_TYPES: &[(&str, &str)] = &[
    ("bat", PLAIN_TEXT),
    ("bib", PLAIN_TEXT),
    ("cjs", "text/javascript"),
    ("cmake", PLAIN_TEXT),
    ("dart", PLAIN_TEXT),
    ("java", PLAIN_TEXT),
    ("map", "application/json"),
    ("mod", PLAIN_TEXT),
    ("patch", PLAIN_TEXT),
    ("pl", PLAIN_TEXT),
    ("sh", PLAIN_TEXT),
    ("sql", PLAIN_TEXT),
    ("tex", PLAIN_TEXT),
    ("tsx", PLAIN_TEXT),
    ("vue", PLAIN_TEXT),
];

/// Extensions of source code and of video; the content decides.
const AMBIGUOUS: [&str; 3] = ["ts", "mts", "cts"];

/// Number of bytes at the start of a file that decide on its type.
pub(crate) const HEAD_BYTES: usize = 512;

/// Returns the media type for a path, by its extension, and by the start of the content if that is not known.
pub(crate) fn media_type(path: &[u8], head: &[u8]) -> Cow<'static, str> {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let extension = name.iter().rposition(|&byte| byte == b'.').map(|dot| &name[dot + 1..]);
    let extension = extension.and_then(|extension| std::str::from_utf8(extension).ok()).unwrap_or_default();
    let is = |known: &str| extension.eq_ignore_ascii_case(known);
    if AMBIGUOUS.iter().any(|known| is(known)) {
        return if is_text(head) { PLAIN_TEXT.into() } else { TRANSPORT_STREAM.into() };
    }
    let own = OWN_TYPES.iter().find(|(known, _)| is(known)).map(|(_, own)| *own);
    let known = own.or_else(|| mime_guess::from_ext(extension).first_raw());
    match known {
        Some(known) => with_charset(known),
        None if !head.is_empty() && is_text(head) => PLAIN_TEXT.into(),
        None => UNKNOWN.into(),
    }
}

/// Returns whether content is text in UTF-8, by its start.
fn is_text(head: &[u8]) -> bool {
    let is_valid = match std::str::from_utf8(head) {
        Ok(_) => true,
        // The start may end within a character.
        Err(error) => error.error_len().is_none(),
    };
    is_valid && !head.iter().any(|byte| matches!(byte, 0..=8 | 0x0e..=0x1a | 0x1c..=0x1f | 0x7f))
}

/// Adds the charset to a type of text, which browsers would otherwise guess.
fn with_charset(media_type: &'static str) -> Cow<'static, str> {
    match media_type {
        "text/html" => "text/html; charset=utf-8".into(),
        "text/plain" => PLAIN_TEXT.into(),
        "text/css" => "text/css; charset=utf-8".into(),
        "text/javascript" | "application/javascript" => "text/javascript; charset=utf-8".into(),
        "text/markdown" | "text/x-markdown" => "text/markdown; charset=utf-8".into(),
        text if text.starts_with("text/") && !text.contains(';') => format!("{text}; charset=utf-8").into(),
        other => other.into(),
    }
}

/// Returns the media type of content without a name: HTML and UTF-8 text are recognised.
pub fn sniff(content: &[u8]) -> &'static str {
    let start = content.trim_ascii_start();
    let begins_with =
        |prefix: &[u8]| start.get(..prefix.len()).is_some_and(|own| own.eq_ignore_ascii_case(prefix));
    match std::str::from_utf8(content) {
        Ok(_) if begins_with(b"<!doctype html") || begins_with(b"<html") => "text/html; charset=utf-8",
        Ok(text) if !text.contains('\0') => "text/plain; charset=utf-8",
        _ => UNKNOWN,
    }
}

/// Returns whether content of a type becomes smaller when it is coded: text and formats of text.
pub fn is_compressible(media_type: &str) -> bool {
    let name = media_type.split(';').next().unwrap_or_default().trim();
    name.starts_with("text/")
        || name.ends_with("+xml")
        || name.ends_with("+json")
        || matches!(
            name,
            "application/json"
                | "application/javascript"
                | "application/xml"
                | "application/wasm"
                | "application/x-ndjson"
                | "application/vnd.ms-fontobject"
                | "font/ttf"
                | "font/otf"
                | "application/x-font-ttf"
                | "image/bmp"
                | "image/x-icon"
        )
}

/// Returns whether content of a type is code, style, an image or a font: what no request changes, so that it repeats
/// no secret of one.
pub fn is_static(media_type: &str) -> bool {
    let name = media_type.split(';').next().unwrap_or_default().trim();
    name.starts_with("font/")
        || name.starts_with("image/")
        || matches!(
            name,
            "text/css"
                | "text/javascript"
                | "application/javascript"
                | "application/x-javascript"
                | "application/wasm"
                | "application/vnd.ms-fontobject"
                | "application/x-font-ttf"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_follow_extensions() {
        for (path, expected) in [
            ("index.html", "text/html; charset=utf-8"),
            ("a/b.JS", "text/javascript; charset=utf-8"),
            ("a.mjs", "text/javascript; charset=utf-8"),
            ("a.cjs", "text/javascript; charset=utf-8"),
            ("a.css", "text/css; charset=utf-8"),
            ("a.txt", "text/plain; charset=utf-8"),
            ("a.yaml", "text/x-yaml; charset=utf-8"),
            ("a.toml", "text/x-toml; charset=utf-8"),
            ("a.rs", "text/x-rust; charset=utf-8"),
            ("a.lua", "text/x-lua; charset=utf-8"),
            ("a.Vue", "text/plain; charset=utf-8"),
            ("a.tsx", "text/plain; charset=utf-8"),
            ("go.mod", "text/plain; charset=utf-8"),
            ("a.java", "text/plain; charset=utf-8"),
            ("a.sh", "text/plain; charset=utf-8"),
            ("app.js.map", "application/json"),
            ("a.json", "application/json"),
            ("a.wasm", "application/wasm"),
            ("a.svg", "image/svg+xml"),
            ("a.png", "image/png"),
            ("a.webp", "image/webp"),
            ("a.woff2", "font/woff2"),
            ("a.mp4", "video/mp4"),
            ("a.pdf", "application/pdf"),
            ("a.tar.gz", "application/gzip"),
            ("README", UNKNOWN),
            ("a.b/README", UNKNOWN),
            ("a.unknown-extension", UNKNOWN),
            ("a.", UNKNOWN),
        ] {
            assert_eq!(media_type(path.as_bytes(), b""), expected, "{path}");
        }
        assert_eq!(media_type(b"a.\xff", b""), UNKNOWN);
    }

    #[test]
    fn every_known_type_of_text_has_a_charset() {
        for extension in
            ["c", "csv", "ics", "less", "md", "n3", "py", "scss", "tsv", "vcf", "vtt", "xml", "yml"]
        {
            let media_type = media_type(format!("a.{extension}").as_bytes(), b"");
            assert!(
                media_type.starts_with("text/") && media_type.ends_with("; charset=utf-8"),
                "{media_type}"
            );
        }
    }

    #[test]
    fn content_decides_where_a_name_does_not() {
        let text = "const é = 1;\n".repeat(40).into_bytes();
        let mut video = vec![0xff; 400];
        (video[0], video[188]) = (0x47, 0x47);
        for (path, head, expected) in [
            ("a.ts", &text[..HEAD_BYTES], PLAIN_TEXT),
            // The start may end within a character.
            ("a.ts", &text[..7], PLAIN_TEXT),
            ("a.ts", &video, "video/mp2t"),
            ("a.MTS", &video, "video/mp2t"),
            ("a.ts", b"", PLAIN_TEXT),
            ("main.go", b"package main\n", PLAIN_TEXT),
            ("README", b"# weir\n\x1b[1mbold", PLAIN_TEXT),
            ("Dockerfile", b"FROM scratch\r\n\tx", PLAIN_TEXT),
            ("a.unknown", b"\x7fELF", UNKNOWN),
            ("a.unknown", b"a\0b", UNKNOWN),
            ("a.unknown", b"\xff\xfe", UNKNOWN),
            // The content never overrules a name.
            ("a.png", b"text", "image/png"),
            ("a.txt", b"\xff", PLAIN_TEXT),
        ] {
            assert_eq!(media_type(path.as_bytes(), head), expected, "{path} {}", head.escape_ascii());
        }
    }

    #[test]
    fn content_without_a_name_is_recognised() {
        assert_eq!(sniff(b"  <!DOCTYPE html><p>"), "text/html; charset=utf-8");
        assert_eq!(sniff("é".as_bytes()), "text/plain; charset=utf-8");
        assert_eq!(sniff(b"a\0b"), UNKNOWN);
        assert_eq!(sniff(b"\xff"), UNKNOWN);
    }

    #[test]
    fn text_is_compressible_and_images_are_not() {
        for (path, expected) in [
            ("a.html", true),
            ("a.json", true),
            ("a.svg", true),
            ("a.go", false),
            ("a.png", false),
            ("a.zip", false),
        ] {
            assert_eq!(is_compressible(&media_type(path.as_bytes(), b"")), expected, "{path}");
        }
    }
}
