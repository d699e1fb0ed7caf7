//! Converts `[[listener.NAME.sni]]` to its part of the plan.

use record::document::Problems;

use crate::plan::{IdVec, Mode, PoolId, SniPlan, SniRoute};

use super::errors::ValueError;
use super::listeners::find_pool;
use super::validate;
use super::value::Section;

/// Maximum length of a protocol's name (RFC 7301 §3.1).
const ALPN_BYTES_MAX: usize = 255;

/// Reads the routes by ClientHello, if the listener has some.
pub(super) fn parse_sni(
    section: &Section,
    mode: Mode,
    pools: &IdVec<PoolId, &str>,
    problems: &mut Problems,
) -> Option<SniPlan> {
    let offset = section.key_offset("sni")?;
    let Mode::Tcp(pool) = mode else {
        problems.add_error(offset, "'sni' needs mode = \"tcp\": routes of mode http have `host`");
        return None;
    };
    if section.key_offset("tls").is_some() {
        let text = "'sni' forwards TLS without terminating it: remove 'sni', or `tls`";
        problems.add_error(offset, text);
    }
    let entries = section.tables("sni");
    if entries.is_empty() && section.value_offset("sni") != section.offset {
        problems.add_error(offset, "'sni' is empty: add a table, or remove the key");
    }
    let routes: Vec<_> = entries.iter().filter_map(|entry| parse_route(entry, pools, problems)).collect();
    warn_of_unreachable_routes(&entries, &routes, problems);
    let default_pool = section.key_offset("pool").map(|_| pool);
    Some(SniPlan { routes, default_pool })
}

fn parse_route(entry: &Section, pools: &IdVec<PoolId, &str>, problems: &mut Problems) -> Option<SniRoute> {
    let names = entry.texts("server-name").into_iter();
    let server_names =
        names.filter_map(|text| problems.ok_or_report(text.offset, parse_server_name(&text.value)));
    let server_names = server_names.collect();
    let protocols = entry.texts("alpn").into_iter();
    let alpn = protocols.filter_map(|text| {
        let is_name = (1..=ALPN_BYTES_MAX).contains(&text.value.len());
        let check = if is_name { Ok(text.value) } else { Err(ValueError::ProtocolLength) };
        problems.ok_or_report(text.offset, check)
    });
    let alpn = alpn.collect();
    let pool = find_pool(&entry.text("pool")?, pools, problems)?;
    Some(SniRoute { server_names, alpn, pool })
}

fn parse_server_name(text: &str) -> Result<Box<str>, ValueError> {
    let host = validate::parse_host(text)?;
    match host.starts_with('[') || host.parse::<std::net::IpAddr>().is_ok() {
        true => Err(ValueError::ServerNameIsAddress(text.into())),
        false => Ok(host),
    }
}

/// Finds routes behind a route without conditions.
fn warn_of_unreachable_routes(entries: &[Section], routes: &[SniRoute], problems: &mut Problems) {
    // Entries at fault have no route, and positions would not correspond.
    if entries.len() != routes.len() {
        return;
    }
    let is_catch_all = |route: &SniRoute| route.server_names.is_empty() && route.alpn.is_empty();
    let Some(first) = routes.iter().position(is_catch_all) else { return };
    for entry in &entries[first + 1..] {
        problems.warn(entry.offset, "this entry never matches: one before it matches every client");
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    fn messages(listener: &str) -> Vec<String> {
        let text = format!(
            "[listener.web]\nbind = '127.0.0.1:0'\n{listener}\n[pool.app]\nservers = ['127.0.0.1:9001']\n"
        );
        let messages = parse("t", &text).map_or_else(|problems| problems, |parsed| parsed.warnings);
        messages.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn faults_are_reported_at_their_positions() {
        for (listener, part) in [
            ("mode = 'tcp'\nsni = [{ pool = 'ap' }]", "t:4:17: unknown pool 'ap'"),
            ("mode = 'tcp'\nsni = []", "t:4:1: 'sni' is empty"),
            ("pool = 'app'\nsni = [{ pool = 'app' }]", "'sni' needs mode = \"tcp\""),
            ("mode = 'tcp'\nsni = [{ pool = 'app', server-name = '127.0.0.1' }]", "is an address"),
            ("mode = 'tcp'\nsni = [{ pool = 'app' }, { alpn = 'h2', pool = 'app' }]", "never matches"),
            (
                "mode = 'tcp'\nsni = [{ pool = 'app' }]\ntls = { self-signed = true }",
                "'sni' forwards TLS without terminating it",
            ),
        ] {
            let messages = messages(listener);
            assert!(messages.iter().any(|message| message.contains(part)), "{listener}: {messages:#?}");
        }
        assert_eq!(messages("mode = 'tcp'\nsni = [{ pool = 'app', alpn = 'h2' }]"), [""; 0]);
    }
}
