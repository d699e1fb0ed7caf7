//! Sentences of the documents that deny something that exists by now.

/// Features that exist, with the evidence: a file of the source and a part of its text. A feature that goes takes its
/// row along.
pub(crate) const FEATURES: &[(&str, &str, &str)] = &[
    ("HTTP/2", "crates/wire/src/h2.rs", "mod connection"),
    ("TLS", "crates/rt/src/tls.rs", "mod session"),
    ("WebSocket", "crates/wire/src/websocket.rs", "WebSocket"),
    ("gRPC", "crates/proxy/src/exchange/grpc.rs", "grpc-status"),
    ("ACME", "crates/proxy_control/src/acme.rs", "mod order"),
    ("OCSP", "crates/rt/src/tls.rs", "mod ocsp"),
    ("SNI", "crates/proxy_config/src/config/sni.rs", "sni"),
    ("PROXY protocol", "crates/wire/src/lib.rs", "mod proxy_protocol"),
    ("DNS", "crates/proxy_control/src/dns.rs", "mod resolver"),
    ("sticky cookies", "crates/proxy/src/balance/sticky.rs", "write_own_cookie"),
    ("health checks", "crates/proxy_control/src/health.rs", "mod checks"),
    ("slow start", "crates/proxy_config/src/config/directives.rs", "\"slow-start\""),
    ("rate limits", "crates/proxy_config/src/config/directives.rs", "\"rate-limit\""),
    ("encoded slashes", "crates/proxy/src/route/target.rs", "EncodedSlash"),
    ("client certificates", "crates/proxy_config/src/config/directives.rs", "\"client-certificate\""),
];

/// Endings and beginnings of sentences that deny the feature `{}`.
const DENIALS: &[&str] = &[
    "{} is not supported",
    "{} are not supported",
    "{} is not implemented",
    "{} are not implemented",
    "{} is not possible",
    "{} is missing",
    "no support for {}",
    "does not support {}",
    "do not support {}",
    "there is no {}",
    "there are no {}",
];

/// Starts of lists that are complete only with another member.
const LISTS: &[(&str, &str)] =
    &[("carries HTTP/1.1", "HTTP/2"), ("speaks HTTP/1.1", "HTTP/2"), ("supports HTTP/1.1", "HTTP/2")];

/// Returns the sentences of a Markdown text that are no longer true, each with the reason.
pub(crate) fn problems(markdown: &str) -> Vec<String> {
    sentences(markdown)
        .iter()
        .filter_map(|sentence| Some(format!("'{sentence}': {}", reason(sentence)?)))
        .collect()
}

fn reason(sentence: &str) -> Option<String> {
    let lower = sentence.to_lowercase();
    let is_denied = |feature: &str| {
        let is_end = |at: usize| !lower[at..].starts_with(|next: char| next.is_alphanumeric() || next == '-');
        let denies = |denial: &str| {
            let text = denial.replace("{}", &feature.to_lowercase());
            // A server may lack a feature that the proxy has.
            let is_of_server = |at: usize| lower[..at].trim_end().ends_with("server");
            lower.match_indices(&text).any(|(at, _)| is_end(at + text.len()) && !is_of_server(at))
        };
        DENIALS.iter().any(|denial| denies(denial))
            || lower.contains("not supported yet") && lower.contains(&feature.to_lowercase())
    };
    if let Some((feature, ..)) = FEATURES.iter().find(|(feature, ..)| is_denied(feature)) {
        return Some(format!("{feature} exists"));
    }
    let (_, other) =
        LISTS.iter().find(|(start, other)| sentence.contains(start) && !sentence.contains(other))?;
    Some(format!("name {other} too"))
}

/// Splits a text into sentences and cells of tables. Code blocks are left out.
fn sentences(markdown: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    let mut is_code = false;
    for line in markdown.lines().map(str::trim) {
        if line.starts_with("```") {
            is_code = !is_code;
        } else if line.is_empty() || line.starts_with(['|', '#', '-', '*']) || is_code {
            paragraphs.push(String::new());
        }
        if !is_code && let Some(paragraph) = paragraphs.last_mut() {
            paragraph.push_str(line);
            paragraph.push(' ');
        }
    }
    let pieces = paragraphs.iter().flat_map(|paragraph| paragraph.split('|'));
    let pieces = pieces.flat_map(|piece| piece.split(". ")).flat_map(|piece| piece.split("; "));
    pieces.map(|piece| piece.trim().to_owned()).filter(|piece| !piece.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::problems;

    #[test]
    fn denied_features_are_found_and_other_sentences_are_not() {
        let stale = [
            "| 8 | HTTP/2 is not supported yet |",
            "`weir proxy` carries HTTP/1.1 and TCP from\nlisteners to pools.",
            "It runs. There are no health\nchecks.",
            "Custom pages for WebSocket are not supported yet.",
            "- The proxy does not support client certificates.",
        ];
        for text in stale {
            assert_eq!(problems(text).len(), 1, "{text}");
        }
        let current = [
            "| 32 | QUIC and HTTP/3 are not supported |",
            "`weir proxy` carries HTTP/1.1, HTTP/2 and TCP.",
            "TLS 1.0 and early data are not supported; HTTP/2 is.",
            "A server without health checks is up. There is no DNS-over-HTTPS.",
            "The HTTP/2 server does not support WebSocket.",
            "```\nHTTP/2 is not supported\n```",
        ];
        for text in current {
            assert!(problems(text).is_empty(), "{:?}", problems(text));
        }
    }
}
