//! The server choice as text: the key of a request, the server that it belongs to, and the result
//! of its sticky cookie. It assumes that every server is up; current loads are not known here.

use crate::balance::sticky::{ServerTokens, unix_s};
use crate::balance::{digest_key, owner};
use crate::key_digest::digest;
use crate::outcome::StickyLookup;
use crate::plan::{Balance, HashKey, PoolPlan, ServerId, Sticky};
use crate::route::RouteRequest;
use crate::route::values::RequestValues;

/// Returns the lines about the server choice for a request. `None`: a TCP connection, without a request.
pub(super) fn balance_lines(
    pool: &PoolPlan,
    request: Option<(&RouteRequest<'_>, &RequestValues<'_>)>,
) -> Vec<String> {
    let hash_line = (pool.balance == Balance::ConsistentHash).then(|| key_line(pool, request));
    hash_line.into_iter().chain(sticky_line(pool, request.map(|(request, _)| request))).collect()
}

fn key_line(pool: &PoolPlan, request: Option<(&RouteRequest<'_>, &RequestValues<'_>)>) -> String {
    let hash = &pool.hash;
    let prefix = format!("key         {}, load factor {}", hash.key, hash.load_factor);
    let mut text = Vec::new();
    let hash_of = |(request, values): (&RouteRequest<'_>, &RequestValues<'_>)| {
        digest_key(&hash.key, request, &mut String::new(), |template| {
            template.render_key(values, &mut text);
            &mut text
        })
    };
    let Some(key) = request.and_then(hash_of) else {
        let reason = match (request, &hash.key) {
            (Some(_), _) => "missing",
            (None, HashKey::Source) => "known only when a client connects",
            (None, _) => "missing",
        };
        return format!("{prefix}: {reason}; balanced by random-of-two");
    };
    let server_digests = pool.servers.iter().map(|server| digest(server.name.as_bytes())).collect();
    // Backups take no part while any other server does.
    let has_usable = pool.servers.iter().any(|server| !server.backup && server.weight > 0);
    let weight = |id: ServerId| {
        let server = &pool.servers[id];
        if server.backup && has_usable { 0 } else { server.weight }
    };
    match owner(key, &server_digests, weight) {
        Some(server) => format!("{prefix}: belongs to {}", pool.servers[server].name),
        None => format!("{prefix}: no server"),
    }
}

fn sticky_line(pool: &PoolPlan, request: Option<&RouteRequest<'_>>) -> Option<String> {
    let sticky = match pool.sticky.as_ref()? {
        Sticky::Cookie(sticky) => sticky,
        Sticky::Text(sticky) => {
            return Some(format!("sticky      on {}, known while the proxy runs", sticky.key.source()));
        }
    };
    let prefix = format!("sticky      cookie {}, {}", sticky.cookie, sticky.mode.name());
    let Some(request) = request else {
        return Some(format!("{prefix}: missing"));
    };
    let names = pool.servers.iter().map(|server| &*server.name);
    let tokens = ServerTokens::new(&sticky.key, &pool.name, names);
    let reason = match tokens.find_in_cookies(sticky, request.view.ordinary_lines("cookie"), unix_s) {
        Ok(found) => return Some(format!("{prefix}: names {}", pool.servers[found.server].name)),
        Err(StickyLookup::Missing) => "missing",
        Err(StickyLookup::Unknown) => "names an unknown server",
        Err(StickyLookup::Expired) => "is too old",
        Err(_) => "not signed with this key",
    };
    Some(format!("{prefix}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PoolId;
    use crate::{ExplainRequest, explain};

    const CONFIG: &str = "
[listener.web]
bind = '127.0.0.1:8080'
pool = 'app'
[listener.db]
bind = '127.0.0.1:5432'
mode = 'tcp'
pool = 'app'
[pool.app]
servers = [
  { address = '127.0.0.1:9001', name = 'a' },
  { address = '127.0.0.1:9002', name = 'b' },
  { address = '127.0.0.1:9003', name = 'c', backup = true },
]
balance = 'consistent-hash'
hash = { key = 'header:x-user' }
sticky = { cookie = 'SRV', key = '0123456789abcdef' }
";

    fn explained(request: &str, headers: &[&str]) -> String {
        let plan = crate::config::parse("t", CONFIG).unwrap().plan;
        let headers: Vec<String> = headers.iter().map(|line| (*line).to_owned()).collect();
        explain(&plan, &ExplainRequest::parse(request, &headers, "").unwrap()).unwrap().to_string()
    }

    #[test]
    fn the_key_and_its_server_are_reported() {
        let none = explained("/", &[]);
        let prefix = "key         header:x-user, load factor 1.25: ";
        assert!(none.contains(&format!("{prefix}missing; balanced by random-of-two\n")), "{none}");
        let mut owners: Vec<String> = (0..20)
            .map(|user| {
                let text = explained("/", &[&format!("X-User: {user}")]);
                let line = text.lines().find_map(|line| line.strip_prefix(prefix));
                line.expect(&text).rsplit(' ').next().unwrap().to_owned()
            })
            .collect();
        owners.sort_unstable();
        owners.dedup();
        assert_eq!(owners, ["a", "b"]);
        let tcp = explained("http://127.0.0.1:5432/", &[]);
        assert!(tcp.contains("missing; balanced by") && tcp.contains("SRV, insert: missing"), "{tcp}");
        assert!(tcp.contains("server      c at 127.0.0.1:9003, weight 1, backup\n"), "{tcp}");
    }

    #[test]
    fn the_sticky_cookie_is_read() {
        let plan = crate::config::parse("t", CONFIG).unwrap().plan;
        let pool = &plan.pools[PoolId(0)];
        let key = &pool.sticky.as_ref().unwrap().cookie().unwrap().key;
        let tokens = ServerTokens::new(key, "app", ["a", "b", "c", "gone"].into_iter());
        let token = |server| String::from_utf8(tokens.token(server).to_vec()).unwrap();
        for (value, expected) in [
            (token(ServerId(1)), "names b"),
            (token(ServerId(3)), "names an unknown server"),
            ("b".into(), "not signed with this key"),
        ] {
            let text = explained("/", &[&format!("Cookie: SRV={value}")]);
            assert!(text.contains(&format!("sticky      cookie SRV, insert: {expected}\n")), "{text}");
            assert!(!text.contains(&value) || value == "b", "{text}");
        }
        let none = explained("/", &[]);
        assert!(none.contains("cookie SRV, insert: missing\n"), "{none}");
    }
}
