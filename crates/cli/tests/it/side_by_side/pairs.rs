//! The pairs: their requests, with what both programs do.

use super::sides::{Program, Side};
use super::steps;

/// Steps of a pair, and their result.
pub(super) type Steps = (fn(&Side) -> String, &'static str);

/// Two configs that say the same.
pub(super) struct Pair {
    /// Directory below `docs/examples/side-by-side`.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) program: Program,
    /// Difference that no request of the test shows, or an empty text.
    pub(super) note: &'static str,
    /// Fields that are compared beside the status, the server, the location and the forwarded line.
    pub(super) fields: &'static [&'static str],
    /// Requests (see [`Side::request`]), and the summary of their responses.
    pub(super) requests: &'static [(&'static str, &'static str)],
    /// Other steps, and their result.
    pub(super) steps: Option<Steps>,
}

const EMPTY: Pair = Pair {
    name: "",
    title: "",
    program: Program::Haproxy,
    note: "",
    fields: &[],
    requests: &[],
    steps: None,
};

pub(super) const PAIRS: &[Pair] = &[
    Pair {
        name: "load-balancer",
        title: "Two servers in turn, with health checks",
        requests: &[],
        steps: Some((|side| side.origins("/", 8), "4 x 200 a, 4 x 200 b")),
        ..EMPTY
    },
    Pair {
        name: "tls",
        title: "TLS with HTTP/2, a redirect to it, and HSTS",
        note: "weir sends `X-Forwarded-For` and `-Host`, too.",
        fields: &["x-forwarded-proto", "strict-transport-security"],
        requests: &[
            ("/a?b=1 -H Host:~site.example.org", "301 https://site.example.org/a?b=1"),
            ("tls:/a --http1.1", "200 a"),
            ("tls:/a --http2", "200 a"),
            ("tls:/ --tls-max 1.2 --ciphers ECDHE-ECDSA-AES128-GCM-SHA256", "200 a"),
        ],
        ..EMPTY
    },
    Pair {
        name: "hosts",
        title: "Servers by host",
        requests: &[
            ("/ -H Host:~shop.example.org", "200 a"),
            ("/ -H Host:~SHOP.example.org", "200 a"),
            ("/ -H Host:~www.blog.example.org", "200 b"),
            ("/ -H Host:~blog.example.org", "200 b"),
            ("/ -H Host:~x.blog.example.org", "200 c"),
            ("/ -H Host:~example.org", "200 c"),
        ],
        ..EMPTY
    },
    Pair {
        name: "paths",
        title: "Servers by path",
        requests: &[
            ("/api/users?a=1", "200 a"),
            ("/api/", "200 a"),
            ("/api", "200 c"),
            ("/apis/x", "200 c"),
            ("/img/logo.png", "200 b"),
            ("/app.js?v=2", "200 b"),
            ("/app.json", "200 c"),
            ("/api/logo.png", "200 a"),
        ],
        ..EMPTY
    },
    Pair { name: "backup", title: "A backup server", steps: Some((steps::becomes_up, "3 x 200 a")), ..EMPTY },
    Pair {
        name: "sticky",
        title: "A sticky cookie",
        note: "The cookie of weir is authenticated with a key, so that clients cannot choose servers.",
        steps: Some((steps::cookie, "SRV, HttpOnly; the server of the cookie; not forwarded")),
        ..EMPTY
    },
    Pair {
        name: "rate-limit",
        title: "A rate limit for each client",
        note: "HAProxy counts in a sliding window, weir in a token bucket: 20 requests at once, then two a second.",
        steps: Some((|side| steps::limit(side, "/", 20), "20 x 200 a, then 429")),
        ..EMPTY
    },
    Pair {
        name: "deny",
        title: "Denied paths, methods and networks",
        requests: &[
            ("/admin/users", "404"),
            ("/metrics/", "404"),
            ("/administrator", "200 a"),
            ("/x/.env", "403"),
            ("/environment", "200 a"),
            ("/ -X DELETE", "200 a"),
            ("/ -X PATCH", "405"),
            ("/ -X OPTIONS", "405"),
        ],
        ..EMPTY
    },
    Pair {
        name: "fields",
        title: "Fields of requests and responses",
        fields: &[
            "x-env",
            "x-client-ip",
            "x-debug",
            "server",
            "x-frame-options",
            "x-content-type-options",
            "cache-control",
        ],
        requests: &[
            ("/ -H X-Debug:~1 -H X-Env:~mine", "200 a"),
            ("/ -H X-Client-Ip:~10.0.0.1", "200 a"),
            ("/status/500", "500 a"),
            ("/status/404", "404 a"),
        ],
        ..EMPTY
    },
    Pair {
        name: "websocket",
        title: "WebSocket",
        note: "One hour is the default of `timeouts.tunnel` in weir.",
        requests: &[("/", "200 a"), ("/live/x", "200 b")],
        steps: Some((steps::websocket, "101 b, hello")),
        ..EMPTY
    },
    Pair {
        name: "tcp-sni",
        title: "TLS connections by server name, not terminated",
        requests: &[("sni:mail.example.org", "200 d"), ("sni:www.example.org", "200 e")],
        ..EMPTY
    },
    Pair {
        name: "statistics",
        title: "A page of statistics",
        note: "The page of weir is on a loopback address: for others it wants `admin-hosts` or a token.",
        requests: &[("/", "200 a")],
        steps: Some((steps::statistics, "200, with the pool")),
        ..EMPTY
    },
    Pair {
        name: "weights",
        title: "Weights",
        steps: Some((|side| side.origins("/", 8), "6 x 200 a, 2 x 200 b")),
        ..EMPTY
    },
    Pair {
        name: "queue",
        title: "Limits of connections, and a queue",
        requests: &[("/", "200 a")],
        steps: Some((steps::queue, "200 a while 503; then 200 a")),
        ..EMPTY
    },
    Pair {
        name: "retries",
        title: "Retries on another server",
        note: "weir has a budget of retries: a fifth of the requests, at least 3 in 10 s (`retry-budget`).",
        steps: Some((steps::retries, "200 c; 200, 200")),
        ..EMPTY
    },
    Pair {
        name: "redirects",
        title: "Redirects",
        requests: &[
            ("/a/b?c=1 -H Host:~www.example.org", "301 https://example.org/a/b?c=1"),
            ("/old -H Host:~example.org", "302 /new"),
            ("/older", "200 a"),
            ("/docs/a/b", "308 https://docs.example.org/a/b"),
            ("/", "200 a"),
        ],
        ..EMPTY
    },
    Pair {
        name: "address-list",
        title: "A list of addresses in a file",
        requests: &[("/", "200 a"), ("/ --interface 127.0.0.2", "403")],
        ..EMPTY
    },
    Pair {
        name: "maintenance",
        title: "A page for maintenance, and a check of the proxy itself",
        fields: &["retry-after", "body"],
        requests: &[("/", "200 a"), ("/shop/cart", "503")],
        steps: Some((|side| side.request("/alive", &[])[0].clone(), "200")),
        ..EMPTY
    },
    Pair {
        name: "timeouts",
        title: "Timeouts of some paths",
        requests: &[("/", "200 a"), ("/slow", "504"), ("/reports/slow", "200 a")],
        ..EMPTY
    },
    Pair {
        name: "nginx-site",
        title: "A site with its fields, servers and limits",
        program: Program::Nginx,
        note: "weir ejects a server after three failures in a row, nginx after three in ten seconds.",
        fields: &["x-real-ip", "x-forwarded-for", "x-forwarded-proto", "host"],
        requests: &[
            ("/a?b=1 -H Host:~example.org", "200 a"),
            ("/ -H Host:~www.example.org -H X-Real-IP:~10.0.0.1", "200 a"),
            ("/ -H Host:~other.example", "404"),
            ("/ -H Host:~example.org -d short", "200 a"),
            ("/ -H Host:~example.org -H Expect: -H Content-Type:~text/plain -d @{long}", "413"),
        ],
        ..EMPTY
    },
    Pair {
        name: "nginx-tls",
        title: "TLS with a redirect to it",
        program: Program::Nginx,
        fields: &["x-forwarded-for", "x-forwarded-proto", "strict-transport-security"],
        requests: &[
            ("/a?b=1 -H Host:~example.org", "301 https://example.org/a?b=1"),
            ("tls:/a --http1.1", "200 a"),
            ("tls:/a --http2", "200 a"),
            ("tls:/status/502 --http2", "502 a"),
        ],
        ..EMPTY
    },
    Pair {
        name: "nginx-locations",
        title: "Locations",
        program: Program::Nginx,
        note: "nginx sends HTTP/1.0 to servers unless told otherwise, and `Host: $proxy_host`; weir forwards the client's host.",
        fields: &["x-powered-by", "cache-control"],
        requests: &[
            ("/api/users?a=1", "200 a"),
            ("/api/", "200 a"),
            ("/app.js", "200 b"),
            ("/x/APP.CSS", "200 b"),
            ("/robots.txt", "200"),
            ("/robots.txt.old", "200 c"),
            ("/", "200 c"),
        ],
        ..EMPTY
    },
    Pair {
        name: "nginx-access",
        title: "Allowed networks, and a limit for a form",
        program: Program::Nginx,
        requests: &[("/admin/x", "403"), ("/admin/x --interface 127.0.0.2", "200 a"), ("/", "200 b")],
        steps: Some((|side| steps::limit(side, "/login", 5), "5 x 200 a, then 429")),
        ..EMPTY
    },
    Pair {
        name: "caddy-site",
        title: "A site with a certificate of its own",
        program: Program::Caddy,
        note: "weir asks for a certificate only from a server that the config names, and wants the agreement to its terms.",
        ..EMPTY
    },
    Pair {
        name: "caddy-paths",
        title: "Servers by path, in Caddy",
        program: Program::Caddy,
        fields: &["cache-control"],
        requests: &[
            ("/api/users?a=1", "200 a"),
            ("/static/a.css", "200 b"),
            ("/health", "200"),
            ("/healthy", "200 c"),
            ("/", "200 c"),
        ],
        ..EMPTY
    },
];
