//! HTML building blocks of all pages here: frame, style and escaping. `report` makes the
//! reports.

/// Style of all pages; it follows the system's light or dark mode.
const STYLE: &str = include_str!("style.css");

/// Escapes text within an element or a quoted attribute.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Encodes a text as one segment of a path (RFC 3986 §2.3).
fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

/// Returns the link to the page of an experiment, from its directory's path below the root.
pub(super) fn link(directory: &str) -> String {
    link_below("x", directory)
}

/// Returns the link to a page of the route.
pub(super) fn link_below(route: &str, path: &str) -> String {
    let parts: Vec<String> = path.split('/').map(encode).collect();
    format!("/{route}/{}/", parts.join("/"))
}

/// Returns a complete page. With `reload_s`, the page reloads itself after so many seconds; that
/// needs no script.
pub(super) fn page(title: &str, reload_s: Option<u32>, body: &str) -> String {
    let refresh_tag = reload_s.map(|seconds| format!("<meta http-equiv=\"refresh\" content=\"{seconds}\">"));
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">{}\
         <title>{title}</title><style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n{body}</body></html>\n",
        refresh_tag.unwrap_or_default(),
        title = escape(title),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        assert_eq!(escape("<a b=\"c\">'&"), "&lt;a b=&quot;c&quot;&gt;&#39;&amp;");
        assert_eq!(link("a b/..?é"), "/x/a%20b/..%3F%C3%A9/");
        let page = page("<x>", Some(2), "");
        assert!(!page.contains("<x>") && page.contains("content=\"2\""), "{page}");
    }
}
