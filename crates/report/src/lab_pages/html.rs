//! HTML building blocks of all pages here: frame, style, tables and links. `html!` escapes every
//! text. `report` makes the reports.

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// Style of all pages; it follows the system's light or dark mode.
const STYLE: &str = include_str!("style.css");

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
pub fn link(directory: &str) -> String {
    link_below("x", directory)
}

pub fn link_below(route: &str, path: &str) -> String {
    let parts: Vec<String> = path.split('/').map(encode).collect();
    format!("/{route}/{}/", parts.join("/"))
}

/// Returns a complete page. With `reload_s`, the page reloads itself after so many seconds; that
/// needs no script.
pub fn page(title: &str, reload_s: Option<u32>, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                @if let Some(seconds) = reload_s { meta http-equiv="refresh" content=(seconds); }
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { h1 { (title) } (body) }
        }
        "\n"
    };
    page.into_string()
}

/// Returns a table with these heads; those with `true` are of figures. On a narrow screen each row
/// becomes a card.
pub fn table(heads: &[(&str, bool)], rows: &Markup) -> Markup {
    html! {
        table.cards {
            thead {
                tr { @for (head, is_figure) in heads { th.n[*is_figure] { (head) } } }
            }
            tbody { (rows) }
        }
    }
}

pub fn link_to_index(text: &str) -> Markup {
    html! { p { a href="/" { (text) } } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        assert_eq!(link("a b/..?é"), "/x/a%20b/..%3F%C3%A9/");
        let page = page("<x>", Some(2), &html! {});
        assert!(!page.contains("<x>") && page.contains("content=\"2\""), "{page}");
    }
}
