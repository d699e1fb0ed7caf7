//! Recognition of the program by the text of its config.

use crate::Program;

/// Maximum number of lines that are read for it.
const LINES_MAX: usize = 5_000;

/// Words that begin a section of HAProxy.
const HAPROXY_SECTIONS: [&str; 16] = [
    "global",
    "defaults",
    "frontend",
    "backend",
    "listen",
    "userlist",
    "resolvers",
    "peers",
    "mailers",
    "program",
    "cache",
    "ring",
    "http-errors",
    "fcgi-app",
    "log-forward",
    "crt-store",
];

/// Returns the program with the most evidence: its sections, its punctuation, its directives.
pub(crate) fn program_of(text: &str) -> Program {
    let (mut haproxy, mut nginx, mut caddy) = (0_i32, 0_i32, 0_i32);
    for line in text.lines().take(LINES_MAX) {
        let line = line.trim_start();
        let content = line.split('#').next().unwrap_or_default().trim_end();
        if content.is_empty() {
            continue;
        }
        let first = content.split_whitespace().next().unwrap_or_default();
        let words = content.split_whitespace().count();
        if HAPROXY_SECTIONS.contains(&first) && !content.contains(['{', ';']) && words <= 5 {
            haproxy += 5;
        }
        let is_of_haproxy =
            ["acl", "use_backend", "default_backend", "balance", "bind", "option", "timeout", "maxconn"];
        if is_of_haproxy.contains(&first) && !content.ends_with([';', '{']) {
            haproxy += 1;
        }
        if first == "mode" && (content.ends_with("http") || content.ends_with("tcp")) {
            haproxy += 1;
        }
        if content.ends_with(';') {
            nginx += 1;
        }
        let blocks = ["server", "http", "location", "upstream", "events", "map", "if"];
        if content.ends_with('{') && blocks.contains(&first) {
            nginx += 1;
        }
        let is_of_caddy = [
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
        if is_of_caddy.contains(&first) && !content.ends_with(';') {
            caddy += 1;
        }
        let is_address =
            content.ends_with('{') && (first.contains('.') || first.contains(':') || first == "{");
        if is_address || first.starts_with('@') || (first.starts_with('(') && content.ends_with('{')) {
            caddy += 2;
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
