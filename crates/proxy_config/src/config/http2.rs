//! Converts the keys of HTTP/2 to servers: `http` and `http2` of a pool, and `http` of its checks.

use record::document::Problems;

use crate::plan::{ServerHttp, ServerHttp2Plan};

use super::value::Section;

pub(super) fn parse_version(text: &str) -> ServerHttp {
    match text {
        "2" => ServerHttp::Http2,
        "auto" => ServerHttp::Auto,
        _ => ServerHttp::Http11,
    }
}

/// Reads the HTTP version of a pool, and the limits of its HTTP/2 connections.
pub(super) fn parse_pool_http(pool: &Section, problems: &mut Problems) -> (ServerHttp, ServerHttp2Plan) {
    let http = pool.text("http").map_or(ServerHttp::Http11, |text| parse_version(&text.value));
    warn_without_effect(pool, http, problems);
    let section = pool.table("http2");
    let bytes = |key| u32::try_from(section.integer_or_zero(key)).unwrap_or(u32::MAX);
    let limits = ServerHttp2Plan {
        streams_max: u32::try_from(section.integer_or_zero("concurrent-streams")).unwrap_or(u32::MAX),
        connections_max: section.size("connections-max"),
        stream_window_max: bytes("stream-window-max"),
        connection_window_max: bytes("connection-window-max"),
        ping_interval_ns: section.integer("ping-interval"),
        ping_timeout_ns: section.integer_or_zero("ping-timeout"),
    };
    if limits.connection_window_max < limits.stream_window_max
        && let Some(offset) = section.key_offset("stream-window-max")
    {
        let text = "'stream-window-max' is above `connection-window-max`, which limits every stream";
        problems.warn(offset, text);
    }
    (http, limits)
}

/// Warns about keys that have no effect, or another one than they seem to have.
fn warn_without_effect(pool: &Section, http: ServerHttp, problems: &mut Problems) {
    let has_tls = pool.key_offset("tls").is_some();
    if let (ServerHttp::Auto, false) = (http, has_tls) {
        let text = "http = \"auto\" without `tls` is HTTP/1.1: nothing is negotiated; write \"2\" if the \
                    servers speak HTTP/2 with prior knowledge";
        problems.warn(pool.value_offset("http"), text);
    }
    if let (ServerHttp::Http11, Some(offset)) = (http, pool.key_offset("http2")) {
        problems.warn(offset, "'http2' has no effect without http = \"2\" or \"auto\"");
    }
    if http == ServerHttp::Http11 {
        return;
    }
    if let Some(offset) = pool.key_offset("send-proxy-protocol") {
        let text = "with a PROXY header, an HTTP/2 connection carries one request at a time, and only of \
                    its client";
        problems.warn(offset, text);
    }
    if let Some(text) = pool.text("reuse").filter(|text| &*text.value == "never") {
        let meaning = "with reuse = \"never\", an HTTP/2 connection carries one request at a time";
        problems.warn(text.offset, meaning);
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use crate::plan::PoolId;

    fn config(pool: &str) -> String {
        format!(
            "[listener.web]\nbind = '127.0.0.1:0'\npool = 'app'\n\
             [pool.app]\nservers = ['127.0.0.1:9001']\n{pool}\n"
        )
    }

    #[test]
    fn the_version_is_that_of_the_pool_or_of_the_check() {
        let plan = |pool: &str| parse("t", &config(pool)).unwrap().plan.pools[PoolId(0)].clone();
        assert_eq!(plan("").http, ServerHttp::Http11);
        let prior_knowledge = plan("http = '2'\ncheck = { type = 'http' }");
        assert_eq!(prior_knowledge.http, ServerHttp::Http2);
        assert_eq!(prior_knowledge.check.as_ref().unwrap().http, ServerHttp::Http2);
        assert_eq!(prior_knowledge.http2.streams_max, 100);
        assert_eq!(prior_knowledge.http2.ping_interval_ns, None);
        let other_check = plan("http = '2'\ncheck = { type = 'http', http = '1.1' }");
        assert_eq!(other_check.check.as_ref().unwrap().http, ServerHttp::Http11);
        let negotiated = plan("http = 'auto'\ntls = { verify = false }");
        let tls = negotiated.tls.as_ref().unwrap();
        assert_eq!(tls.options.alpn, [b"h2".to_vec(), b"http/1.1".to_vec()]);
        assert!(!negotiated.shares_connections_with(&plan("tls = { verify = false }")));
    }

    #[test]
    fn keys_without_effect_are_reported() {
        for (pool, part) in [
            ("http = 'auto'", "t:6:8: http = \"auto\" without `tls` is HTTP/1.1"),
            ("http2 = { concurrent-streams = 1 }", "'http2' has no effect"),
            ("http = '2'\nsend-proxy-protocol = 'v2'", "carries one request at a time"),
            ("http = '2'\nreuse = 'never'", "carries one request at a time"),
            ("http = '2'\nhttp2 = { stream-window-max = '32m' }", "is above `connection-window-max`"),
        ] {
            let warnings = parse("t", &config(pool)).unwrap().warnings;
            let texts: Vec<_> = warnings.iter().map(ToString::to_string).collect();
            assert!(texts.len() == 1 && texts[0].contains(part), "{pool}: {texts:#?}");
        }
        assert!(parse("t", &config("http = '2'")).unwrap().warnings.is_empty());
    }
}
