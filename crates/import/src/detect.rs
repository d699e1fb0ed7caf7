//! Recognition of the program by the text of its config.

use crate::Program;
use crate::haproxy::is_section;

/// Maximum number of lines that are read for it.
const LINES_MAX: usize = 5_000;

/// Directives that a line of HAProxy begins with.
const HAPROXY_WORDS: [&str; 8] =
    ["acl", "use_backend", "default_backend", "balance", "bind", "option", "timeout", "maxconn"];
/// Words that begin a block of nginx.
const NGINX_BLOCKS: [&str; 7] = ["server", "http", "location", "upstream", "events", "map", "if"];
/// Directives that a line of Caddy begins with.
const CADDY_WORDS: [&str; 22] = [
    "reverse_proxy",
    "file_server",
    "handle",
    "handle_path",
    "encode",
    "respond",
    "redir",
    "php_fastcgi",
    "tls",
    "import",
    "route",
    "header",
    "root",
    "log",
    "forward_auth",
    "basic_auth",
    "basicauth",
    "rewrite",
    "uri",
    "try_files",
    "header_up",
    "request_header",
];

/// Returns the program with the most evidence: its sections, its punctuation, its directives.
pub(crate) fn program_of(text: &str) -> Program {
    let (mut haproxy, mut nginx, mut caddy) = (0, 0, 0);
    for line in text.lines().take(LINES_MAX) {
        let content = line.split('#').next().unwrap_or_default().trim();
        if let Some(first) = content.split_whitespace().next() {
            haproxy += evidence_of_haproxy(first, content);
            nginx += i32::from(content.ends_with(';'));
            nginx += i32::from(content.ends_with('{') && NGINX_BLOCKS.contains(&first));
            caddy += evidence_of_caddy(first, content);
        }
    }
    if haproxy > nginx && haproxy > caddy {
        Program::Haproxy
    } else if nginx >= caddy {
        Program::Nginx
    } else {
        Program::Caddy
    }
}

fn evidence_of_haproxy(first: &str, content: &str) -> i32 {
    let words = content.split_whitespace().count();
    if is_section(first) && !content.contains(['{', ';']) && words <= 5 {
        return 5;
    }
    let is_mode = first == "mode" && (content.ends_with("http") || content.ends_with("tcp"));
    let is_directive = HAPROXY_WORDS.contains(&first) && !content.ends_with([';', '{']);
    i32::from(is_mode || is_directive)
}

fn evidence_of_caddy(first: &str, content: &str) -> i32 {
    let is_directive = CADDY_WORDS.contains(&first) && !content.ends_with(';');
    let is_block = content.ends_with('{');
    let is_address = is_block && (first.contains('.') || first.contains(':') || first == "{");
    let is_named = first.starts_with('@') || (first.starts_with('(') && is_block);
    i32::from(is_directive) + 2 * i32::from(is_address || is_named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_known_by_its_text() {
        let cases = [
            ("backend b\n  balance roundrobin\n  server a 127.0.0.1:1 check\n", Program::Haproxy),
            ("server {\n  listen 80;\n  location / { proxy_pass http://a; }\n}\n", Program::Nginx),
            ("example.com {\n  reverse_proxy localhost:9000\n}\n", Program::Caddy),
            ("example.com\nreverse_proxy localhost:9000\n", Program::Caddy),
            (":80\n\nroot * /srv\nfile_server\n", Program::Caddy),
            ("location / { proxy_pass http://a; }", Program::Nginx),
            ("upstream a { server 127.0.0.1:1; }", Program::Nginx),
            ("# frontend\nlisten stats\n  bind :1\n  stats enable\n", Program::Haproxy),
        ];
        for (text, program) in cases {
            assert_eq!(program_of(text), program, "{text}");
        }
    }
}
