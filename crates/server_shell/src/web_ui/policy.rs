//! The `Content-Security-Policy` of a page (W3C CSP3): the page loads nothing, connects to nothing
//! unless [`WebPage::may_fetch`], and cannot be framed. Only the script and style elements in it run, each
//! listed by its digest, so that no attribute and no link can run anything. Style attributes are allowed
//! on a page that has some.

use record::digest::sha256_base64;

use super::{HTML, PageBody, WebPage};

/// Directives for every page.
const BASE_POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

pub(super) fn content_security_policy(page: &WebPage) -> String {
    let content = match &page.body {
        PageBody::Bytes(bytes) if page.content_type == HTML => std::str::from_utf8(bytes).ok(),
        _ => None,
    };
    let Some(content) = content else { return BASE_POLICY.to_owned() };
    format!(
        "{BASE_POLICY}; img-src data:{}{}{}{}",
        if page.may_fetch { "; connect-src 'self'" } else { "" },
        hash_sources("script-src", content, "script"),
        hash_sources("style-src-elem", content, "style"),
        if content.contains(" style=") { "; style-src-attr 'unsafe-inline'" } else { "" }
    )
}

/// Formats `; DIRECTIVE 'sha256-…' …`, or nothing if the page has no such element.
fn hash_sources(directive: &str, content: &str, element: &str) -> String {
    let mut digests: Vec<String> = element_contents(content, element).map(sha256_base64).collect();
    digests.sort_unstable();
    digests.dedup();
    if digests.is_empty() {
        return String::new();
    }
    let sources: String = digests.iter().map(|digest| format!(" 'sha256-{digest}'")).collect();
    format!("; {directive}{sources}")
}

/// Returns the content of each element of this name, as browsers find it: to the first closing tag.
fn element_contents<'p>(content: &'p str, element: &str) -> impl Iterator<Item = &'p str> {
    let (start, end) = (format!("<{element}"), format!("</{element}"));
    let mut rest = content;
    std::iter::from_fn(move || {
        loop {
            let after = &rest[rest.find(&start)? + start.len()..];
            rest = after;
            // `<scripting>` is another element.
            if !after.starts_with(|next: char| next == '>' || next.is_ascii_whitespace()) {
                continue;
            }
            let tag = after.find('>')? + 1;
            let close = tag + after[tag..].find(&end)?;
            rest = &after[close..];
            return Some(&after[tag..close]);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_inline_elements_of_a_page_may_run() {
        let page = WebPage::html(
            "<style>a{}</style><scripts><script type=\"x\">abc</script><script>abc</script>".to_owned(),
        );
        let policy = content_security_policy(&page);
        let abc = "'sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0='";
        assert_eq!(policy.matches(abc).count(), 1, "{policy}");
        assert!(policy.starts_with("default-src 'none'; "), "{policy}");
        assert!(!policy.contains("script-src 'unsafe-inline'"), "{policy}");
        assert!(policy.contains("style-src-elem 'sha256-"), "{policy}");
        assert_eq!(content_security_policy(&WebPage::text(200, "<script>abc</script>")), BASE_POLICY);
        let plain = content_security_policy(&WebPage::html("<p>".to_owned()));
        assert!(!["script-src", "sha256", "unsafe"].iter().any(|part| plain.contains(part)), "{plain}");
        let styled = content_security_policy(&WebPage::html("<p style=\"top:0\">".to_owned()));
        assert!(styled.ends_with("; style-src-attr 'unsafe-inline'"), "{styled}");
        let open = WebPage::html("<script>never closed".to_owned());
        assert!(!content_security_policy(&open).contains("sha256"));
    }
}
