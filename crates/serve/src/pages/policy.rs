//! The `Content-Security-Policy` of a page (W3C CSP3): it loads nothing, asks nobody, and is framed by
//! nobody; of scripts and styles those run that stand in it as elements, each named by its digest, so that
//! no attribute and no link can run anything.

use record::digest::sha256_base64;

use super::{Body, HTML, Page};

/// What every page may.
const BASE: &str =
    "default-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// The policy of a page.
pub(super) fn of(page: &Page) -> String {
    let content = match &page.body {
        Body::Bytes(bytes) if page.content_type == HTML => std::str::from_utf8(bytes).ok(),
        _ => None,
    };
    let Some(content) = content else { return BASE.to_owned() };
    format!(
        "{BASE}; img-src data:{}{}; style-src-attr 'unsafe-inline'",
        sources("script-src", content, "script"),
        sources("style-src-elem", content, "style")
    )
}

/// `; DIRECTIVE 'sha256-…' …`, or nothing when the page has no such element.
fn sources(directive: &str, content: &str, element: &str) -> String {
    let mut digests: Vec<String> = inside(content, element).map(sha256_base64).collect();
    digests.sort_unstable();
    digests.dedup();
    if digests.is_empty() {
        return String::new();
    }
    let sources: String = digests.iter().map(|digest| format!(" 'sha256-{digest}'")).collect();
    format!("; {directive}{sources}")
}

/// What stands in each element of this name, as browsers find it: to the first closing tag.
fn inside<'p>(content: &'p str, element: &str) -> impl Iterator<Item = &'p str> {
    let (start, end) = (format!("<{element}"), format!("</{element}"));
    let mut rest = content;
    std::iter::from_fn(move || {
        loop {
            let behind = &rest[rest.find(&start)? + start.len()..];
            rest = behind;
            // `<scripting>` is another element.
            if !behind.starts_with(|next: char| next == '>' || next.is_ascii_whitespace()) {
                continue;
            }
            let tag = behind.find('>')? + 1;
            let close = tag + behind[tag..].find(&end)?;
            rest = &behind[close..];
            return Some(&behind[tag..close]);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_a_page_may_run_and_nothing_else() {
        let page = Page::html(
            "<style>a{}</style><scripts><script type=\"x\">abc</script><script>abc</script>"
                .to_owned(),
        );
        let policy = of(&page);
        let abc = "'sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0='";
        assert_eq!(policy.matches(abc).count(), 1, "{policy}");
        assert!(policy.starts_with("default-src 'none'; "), "{policy}");
        assert!(!policy.contains("script-src 'unsafe-inline'"), "{policy}");
        assert!(policy.contains("style-src-elem 'sha256-"), "{policy}");
        assert_eq!(of(&Page::text(200, "<script>abc</script>")), BASE);
        let plain = of(&Page::html("<p>".to_owned()));
        assert!(!plain.contains("script-src") && !plain.contains("sha256"), "{plain}");
        let open = Page::html("<script>never closed".to_owned());
        assert!(!of(&open).contains("sha256"));
    }
}
