//! What the choice of a server goes by, in words: the key of a request and the server that it belongs
//! to, and what its sticky cookie says. As it is when every server is up; what they have to do just
//! then is not known here.

use super::Asked;
use crate::balance::sticky::{Found, Tokens};
use crate::balance::{digest, key_of, owner};
use crate::plan::{Balance, HashKey, PoolPlan};

/// The lines about the choice, for `asked`; `None`: a connection of which nothing is known.
pub(super) fn lines(pool: &PoolPlan, asked: Option<&Asked<'_>>) -> Vec<String> {
    let by_key = (pool.balance == Balance::ConsistentHash).then(|| key_line(pool, asked));
    by_key.into_iter().chain(sticky_line(pool, asked)).collect()
}

fn key_line(pool: &PoolPlan, asked: Option<&Asked<'_>>) -> String {
    let hash = &pool.hash;
    let start = format!("key         {}, load factor {}", hash.key, hash.load_factor);
    let seen = |asked: &Asked<'_>| key_of(&hash.key, asked, &mut String::new());
    let Some(key) = asked.and_then(seen) else {
        let why = match (asked, &hash.key) {
            (Some(_), _) => "not given",
            (None, HashKey::Source) => "known when a client connects",
            (None, _) => "not seen",
        };
        return format!("{start}: {why}, which is random-of-two");
    };
    let names: Vec<u64> =
        pool.servers.iter().map(|server| digest(server.name.as_bytes())).collect();
    // Backups take no part as long as any other server does.
    let has_usable = pool.servers.iter().any(|server| !server.backup && server.weight > 0);
    let weight = |index: usize| {
        let server = &pool.servers[index];
        if server.backup && has_usable { 0 } else { server.weight }
    };
    match owner(key, &names, weight) {
        Some(server) => format!("{start}: belongs to {}", pool.servers[server].name),
        None => format!("{start}: belongs to nobody"),
    }
}

fn sticky_line(pool: &PoolPlan, asked: Option<&Asked<'_>>) -> Option<String> {
    let sticky = pool.sticky.as_ref()?;
    let start = format!("sticky      cookie {}, {}", sticky.cookie, sticky.mode.name());
    let Some(asked) = asked else {
        return Some(format!("{start}: not seen"));
    };
    let names = pool.servers.iter().map(|server| &*server.name);
    let tokens = Tokens::new(&sticky.key, &pool.name, names);
    let why = match tokens.find(sticky, asked.headers) {
        Ok(server) => return Some(format!("{start}: names {}", pool.servers[server].name)),
        Err(Found::Missing) => "not given",
        Err(Found::Unknown) => "names a server that is not there",
        Err(_) => "not made with this key",
    };
    Some(format!("{start}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
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
        explain(&plan, &ExplainRequest::parse(request, &headers, "").unwrap()).to_string()
    }

    #[test]
    fn the_key_and_its_server_are_told() {
        let none = explained("/", &[]);
        let start = "key         header:x-user, load factor 1.25: ";
        assert!(none.contains(&format!("{start}not given, which is random-of-two\n")), "{none}");
        let mut seen: Vec<String> = (0..20)
            .map(|user| {
                let text = explained("/", &[&format!("X-User: {user}")]);
                let line = text.lines().find_map(|line| line.strip_prefix(start));
                line.expect(&text).to_owned()
            })
            .collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, ["belongs to a", "belongs to b"]);
        let tcp = explained("http://127.0.0.1:5432/", &[]);
        assert!(
            tcp.contains("not seen, which is") && tcp.contains("SRV, insert: not seen"),
            "{tcp}"
        );
        assert!(tcp.contains("server      c at 127.0.0.1:9003, weight 1, backup\n"), "{tcp}");
    }

    #[test]
    fn the_sticky_cookie_is_read() {
        let plan = crate::config::parse("t", CONFIG).unwrap().plan;
        let pool = &plan.pools[0];
        let key = &pool.sticky.as_ref().unwrap().key;
        let tokens = Tokens::new(key, "app", ["a", "b", "c", "gone"].into_iter());
        let token = |server| String::from_utf8(tokens.of(server).to_vec()).unwrap();
        for (value, wanted) in [
            (token(1), "names b"),
            (token(3), "names a server that is not there"),
            ("b".into(), "not made with this key"),
        ] {
            let text = explained("/", &[&format!("Cookie: SRV={value}")]);
            assert!(
                text.contains(&format!("sticky      cookie SRV, insert: {wanted}\n")),
                "{text}"
            );
            assert!(!text.contains(&value) || value == "b", "{text}");
        }
        let none = explained("/", &[]);
        assert!(none.contains("cookie SRV, insert: not given\n"), "{none}");
    }
}
