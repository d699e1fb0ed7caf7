//! Media types by the extensions of names.

/// Type of a file with an unknown extension.
const UNKNOWN: &str = "application/octet-stream";

/// Types of text with their charset, which are the ones that browsers would otherwise guess.
const WITH_CHARSET: &[(&str, &str)] = &[
    ("text/html", "text/html; charset=utf-8"),
    ("text/plain", "text/plain; charset=utf-8"),
    ("text/css", "text/css; charset=utf-8"),
    ("text/csv", "text/csv; charset=utf-8"),
    ("text/javascript", "text/javascript; charset=utf-8"),
    ("application/javascript", "text/javascript; charset=utf-8"),
    ("text/markdown", "text/markdown; charset=utf-8"),
    ("text/x-markdown", "text/markdown; charset=utf-8"),
    ("text/xml", "text/xml; charset=utf-8"),
    ("text/calendar", "text/calendar; charset=utf-8"),
    ("text/vtt", "text/vtt; charset=utf-8"),
];

/// Returns the media type for a path, by its extension.
pub(crate) fn media_type(path: &[u8]) -> &'static str {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let Some(dot) = name.iter().rposition(|&byte| byte == b'.') else { return UNKNOWN };
    let Ok(extension) = std::str::from_utf8(&name[dot + 1..]) else { return UNKNOWN };
    let media_type = mime_guess::from_ext(extension).first_raw().unwrap_or(UNKNOWN);
    let with_charset = WITH_CHARSET.iter().find(|(plain, _)| *plain == media_type);
    with_charset.map_or(media_type, |(_, with_charset)| with_charset)
}

/// Returns the media type of content without a name: HTML and UTF-8 text are recognised.
pub(crate) fn sniff(content: &[u8]) -> &'static str {
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
pub(crate) fn is_compressible(media_type: &str) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_follow_extensions() {
        for (path, expected) in [
            ("index.html", "text/html; charset=utf-8"),
            ("a/b.JS", "text/javascript; charset=utf-8"),
            ("a.mjs", "text/javascript; charset=utf-8"),
            ("a.css", "text/css; charset=utf-8"),
            ("a.txt", "text/plain; charset=utf-8"),
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
            assert_eq!(media_type(path.as_bytes()), expected, "{path}");
        }
        assert_eq!(media_type(b"a.\xff"), UNKNOWN);
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
        for (path, expected) in
            [("a.html", true), ("a.json", true), ("a.svg", true), ("a.png", false), ("a.zip", false)]
        {
            assert_eq!(is_compressible(media_type(path.as_bytes())), expected, "{path}");
        }
    }
}
