//! Server selection settings of a pool beyond `balance`: the `hash` and `sticky` tables. Also warns
//! about settings without effect and about settings with a misleading one.

use std::path::{Path, PathBuf};

use record::document::{Located, Problems};

use crate::plan::{
    Balance, HashKey, HashPlan, SameSite, Secret, ServerPlan, Sticky, StickyLimits, StickyMode, StickyPlan,
    StickyTextPlan,
};
use crate::template::{KnownValues, Scope};

use super::errors::ValueError;
use super::templates::parse_key;
use super::validate;
use super::value::Section;

/// Minimum and maximum length of a key in bytes. A shorter key can be guessed; a longer text is not
/// a key.
const KEY_BYTES_MIN: usize = 16;
const KEY_BYTES_MAX: usize = 4096;
/// Keys of an inserted sticky cookie; they have no effect on a cookie of the application.
const INSERT_MODE_KEYS: [&str; 8] =
    ["max-age", "secure", "http-only", "same-site", "path", "domain", "idle-max", "life-max"];

/// Keys of a sticky cookie, and of a table of sessions.
const COOKIE_KEYS: [&str; 3] = ["mode", "key", "key-file"];
const TEXT_KEYS: [&str; 2] = ["entries-max", "expire"];
/// Maximum time that a session is remembered.
const EXPIRE_MAX_NS: u64 = 24 * 3_600 * 1_000_000_000;

/// Reads the key and the load factor of a consistent hash.
pub(super) fn parse_hash(
    section: &Section,
    balance: Balance,
    known: KnownValues<'_>,
    problems: &mut Problems,
) -> HashPlan {
    if let Some(offset) = section.key_offset("hash")
        && balance != Balance::ConsistentHash
    {
        let text = format!(
            "`hash` has no effect with balance {}: write balance = \"consistent-hash\"",
            balance.name()
        );
        problems.warn(offset, text);
    }
    let hash = section.table("hash");
    let key = hash.text("key").and_then(|text| match text.value.contains(['{', '}']) {
        true => parse_key(&text, Scope::Key, known, problems).map(HashKey::Template),
        false => problems.ok_or_report(text.offset, parse_hash_key(&text.value)),
    });
    let load_factor = hash.float("load-factor").unwrap_or(1.0);
    HashPlan { key: key.unwrap_or(HashKey::Source), load_factor }
}

fn parse_hash_key(text: &str) -> Result<HashKey, ValueError> {
    let field_name = |name: &str| validate::check_field_name(name).map(|()| name.into());
    match (text, text.split_once(':')) {
        ("source", _) => Ok(HashKey::Source),
        ("path", _) => Ok(HashKey::Path),
        (_, Some(("header", name))) => field_name(name).map(HashKey::Header),
        (_, Some(("cookie", name))) => field_name(name).map(HashKey::Cookie),
        _ => Err(ValueError::HashKey(text.into())),
    }
}

/// Reads the `sticky` table: the cookie or the text that keeps a client at its server.
pub(super) fn parse_sticky(
    section: &Section,
    known: KnownValues<'_>,
    problems: &mut Problems,
) -> Option<Sticky> {
    section.key_offset("sticky")?;
    let offset = section.value_offset("sticky");
    let balance = section.text("balance");
    let section = section.table("sticky");
    match (section.key_offset("cookie"), section.key_offset("on")) {
        (Some(_), None) => {
            warn_of_others(&section, &TEXT_KEYS, "cookie", problems);
            parse_sticky_cookie(&section, offset, problems).map(Sticky::Cookie)
        }
        (None, Some(on)) => {
            warn_of_others(&section, &COOKIE_KEYS, "on", problems);
            warn_of_others(&section, &INSERT_MODE_KEYS, "on", problems);
            if balance.is_some_and(|balance| &*balance.value == Balance::ConsistentHash.name()) {
                let text =
                    "sessions have a server by `on`, or by balance = \"consistent-hash\": remove one of them";
                problems.add_error(on, text);
            }
            let text = section.text("on")?;
            let key = parse_key(&text, Scope::Key, known, problems)?;
            let (entries_max, expire_ns) = (section.size("entries-max"), section.integer_or_zero("expire"));
            if expire_ns > EXPIRE_MAX_NS {
                problems.add_error(section.value_offset("expire"), "'expire' is longer than a day");
            }
            Some(Sticky::Text(StickyTextPlan { key, entries_max, expire_ns }))
        }
        (Some(_), Some(on)) => {
            problems.add_error(on, "`cookie` and `on` exclude each other: remove one of them");
            None
        }
        (None, None) => {
            problems.add_error(offset, "clients stick to a server by a cookie or a text: add cookie or on");
            None
        }
    }
}

fn warn_of_others(section: &Section, keys: &[&str], used: &str, problems: &mut Problems) {
    for key in keys {
        if let Some(offset) = section.key_offset(key) {
            problems.warn(offset, format!("'{key}' has no effect with {used}"));
        }
    }
}

fn parse_sticky_cookie(section: &Section, offset: usize, problems: &mut Problems) -> Option<StickyPlan> {
    let cookie = section.text("cookie").map(|text| {
        // Cookie names and field names have the same grammar (RFC 6265 §4.1.1).
        problems.ok_or_report(text.offset, validate::check_field_name(&text.value));
        text.value
    });
    let choice_text = |key| section.text(key).map(|text| text.value).unwrap_or_default();
    let mode = match &*choice_text("mode") {
        "prefix" => StickyMode::Prefix,
        _ => StickyMode::Insert,
    };
    let same_site = match &*choice_text("same-site") {
        "strict" => SameSite::Strict,
        "none" => SameSite::None,
        _ => SameSite::Lax,
    };
    let secure = section.key_offset("secure").map(|_| section.flag("secure"));
    if same_site == SameSite::None && secure != Some(true) {
        let text = "browsers drop a cookie with same-site = none and without secure: add secure = true";
        problems.warn(section.value_offset("same-site"), text);
    }
    for key in INSERT_MODE_KEYS.iter().filter(|_| mode == StickyMode::Prefix) {
        if let Some(offset) = section.key_offset(key) {
            let text =
                format!("'{key}' has no effect with mode prefix, where the application sets the cookie");
            problems.warn(offset, text);
        }
    }
    let (key, key_file) = parse_sticky_key(section, offset, problems);
    let attribute = |name, check: fn(&str) -> Result<(), ValueError>, problems: &mut Problems| {
        section.text(name).map(|text| {
            problems.ok_or_report(text.offset, check(&text.value));
            text.value
        })
    };
    let path = attribute("path", validate::check_cookie_path, problems);
    let domain = attribute("domain", validate::check_cookie_domain, problems);
    let whole_seconds = |name| {
        let time_s = section.integer(name)?.div_ceil(1_000_000_000);
        Some(u32::try_from(time_s).unwrap_or(u32::MAX))
    };
    let (idle_max_s, life_max_s) = (whole_seconds("idle-max"), whole_seconds("life-max"));
    let has_limits = idle_max_s.is_some() || life_max_s.is_some();
    Some(StickyPlan {
        cookie: cookie?,
        mode,
        key: key?,
        key_file,
        max_age_s: section.integer("max-age").map(|age_ns| age_ns.div_ceil(1_000_000_000)),
        secure,
        http_only: section.flag("http-only"),
        same_site,
        path: path.unwrap_or_else(|| "/".into()),
        domain,
        limits: has_limits.then_some(StickyLimits { idle_max_s, life_max_s }),
    })
}

fn parse_sticky_key(
    section: &Section,
    offset: usize,
    problems: &mut Problems,
) -> (Option<Secret>, Option<PathBuf>) {
    let (key, file_key) = (section.text("key"), section.text("key-file"));
    match (key, file_key) {
        (Some(key), None) => {
            (problems.ok_or_report(key.offset, check_key_length(key.value.as_bytes()).map(Secret::new)), None)
        }
        (None, Some(Located { value, offset })) => {
            let path = PathBuf::from(&*value);
            validate::warn_of_world_readable(&path, offset, problems);
            let read = problems.ok_or_report(offset, read_key_file(&path));
            (read, Some(path))
        }
        (Some(_), Some(file)) => {
            problems.add_error(file.offset, "`key` and `key-file` exclude each other: remove one of them");
            (None, None)
        }
        (None, None) => {
            // A key that is present but invalid has already been reported.
            if section.key_offset("key").is_none() && section.key_offset("key-file").is_none() {
                problems.add_error(offset, "a sticky cookie needs a key: add key-file = \"FILE\"");
            }
            (None, None)
        }
    }
}

fn check_key_length(key: &[u8]) -> Result<&[u8], ValueError> {
    match key.len() {
        KEY_BYTES_MIN..=KEY_BYTES_MAX => Ok(key),
        length => Err(ValueError::KeyLength { length, min: KEY_BYTES_MIN, max: KEY_BYTES_MAX }),
    }
}

fn read_key_file(path: &Path) -> Result<Secret, ValueError> {
    let bytes = validate::read_bounded_file(path, KEY_BYTES_MAX)?;
    let in_file = |error| ValueError::FileContent { path: path.into(), error: Box::new(error) };
    check_key_length(bytes.trim_ascii()).map(Secret::new).map_err(in_file)
}

/// Warns about servers listed after one without `maxconn` under `balance = "first"`: they get no
/// requests while that server is up.
pub(super) fn warn_of_unreachable_servers(
    section: &Section,
    balance: Balance,
    servers: &[ServerPlan],
    problems: &mut Problems,
) {
    if balance != Balance::First {
        return;
    }
    for is_backup in [false, true] {
        let mut weighted = servers.iter().filter(|server| server.backup == is_backup && server.weight > 0);
        let unbounded = weighted.find(|server| server.maxconn.is_none());
        if let (Some(unbounded), Some(behind)) = (unbounded, weighted.next()) {
            let text = format!(
                "server {} has no maxconn, so {} after it gets no requests while it is up: set \
                 maxconn, or change balance",
                unbounded.name, behind.name
            );
            problems.warn(section.value_offset("balance"), text);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::config::parse;
    use crate::plan::{Plan, PoolId};

    const LISTENER: &str = "[listener.web]\nbind = '127.0.0.1:0'\npool = 'app'\n[pool.app]\n";
    const SERVERS: &str = "servers = ['127.0.0.1:9001', '127.0.0.1:9002']\n";

    fn plan(pool: &str) -> Plan {
        let text = format!("{LISTENER}{SERVERS}{pool}");
        parse("t", &text).unwrap_or_else(|problems| panic!("{problems:#?}")).plan
    }

    /// Returns the problems, or the warnings if there are no problems.
    fn messages(text: &str) -> Vec<String> {
        let messages = parse("t", text).map_or_else(|problems| problems, |parsed| parsed.warnings);
        messages.iter().map(ToString::to_string).collect()
    }

    fn assert_message(pool: &str, part: &str) {
        let messages = messages(&format!("{LISTENER}{SERVERS}{pool}"));
        assert!(messages.len() == 1 && messages[0].contains(part), "{pool}: {messages:#?}");
    }

    #[test]
    fn hash_keys_are_parsed() {
        let pool = &plan("balance = 'consistent-hash'\nhash = { key = 'cookie:id', load-factor = 2 }").pools
            [PoolId(0)];
        assert_eq!(pool.balance, Balance::ConsistentHash);
        assert_eq!(pool.hash, HashPlan { key: HashKey::Cookie("id".into()), load_factor: 2.0 });
        let pool = &plan("").pools[PoolId(0)];
        assert_eq!(pool.hash, HashPlan { key: HashKey::Source, load_factor: 1.25 });
        assert!(pool.sticky.is_none() && pool.servers.iter().all(|server| !server.backup));
        for (text, key) in [
            ("source", HashKey::Source),
            ("path", HashKey::Path),
            ("header:x-a", HashKey::Header("x-a".into())),
        ] {
            assert_eq!(parse_hash_key(text).unwrap(), key);
            assert_eq!(key.to_string(), text);
        }
        for wrong in ["", "header:", "header:a b", "query:x", "Source"] {
            assert!(parse_hash_key(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_sticky_cookie_is_parsed() {
        let pool = &plan(
            "sticky = { cookie = 'S', mode = 'insert', key = '0123456789abcdef', max-age = '90s', \
             secure = true, http-only = false, same-site = 'none', path = '/shop', domain = 'example.org', \
             idle-max = '30m', life-max = '24h' }",
        )
        .pools[PoolId(0)];
        let expected = StickyPlan {
            cookie: "S".into(),
            mode: StickyMode::Insert,
            key: Secret::new(b"0123456789abcdef"),
            key_file: None,
            max_age_s: Some(90),
            secure: Some(true),
            http_only: false,
            same_site: SameSite::None,
            path: "/shop".into(),
            domain: Some("example.org".into()),
            limits: Some(StickyLimits { idle_max_s: Some(1_800), life_max_s: Some(86_400) }),
        };
        assert_eq!(pool.sticky, Some(Sticky::Cookie(expected)));
        assert!(!format!("{pool:?}").contains("0123456789abcdef"));
    }

    #[test]
    fn keys_are_needed_and_never_repeated() {
        for (sticky, part) in [
            ("{ cookie = 'S' }", "t:6:10: "),
            ("{ cookie = 'S', key = 'secretsecret' }", "12 bytes"),
            ("{ cookie = 'S', key = 123456789012345678 }", "'key'"),
            ("{ cookie = 'S', key = '0123456789abcdef', key-file = '/x' }", "`key-file`"),
            ("{ cookie = 'S', key-file = '/no/such/file' }", "/no/such/file: No such file"),
            ("{ cookie = 'S', key-file = '/dev/zero' }", "/dev/zero"),
            ("{ cookie = 'S;', key = '0123456789abcdef' }", "'S;'"),
            ("{ cookie = 'S', key = '0123456789abcdef', path = 'shop' }", "starts with '/'"),
            ("{ cookie = 'S', key = '0123456789abcdef', path = '/;x' }", "'/;x'"),
            ("{ cookie = 'S', key = '0123456789abcdef', domain = 'a b' }", "'a b'"),
            ("{ cookie = 'S', key = '0123456789abcdef', domain = '*.b' }", "'*.b'"),
            ("{ key = '0123456789abcdef' }", "add cookie or on"),
            ("{ cookie = 'S', on = 'path' }", "exclude each other"),
            ("{ on = 'pth' }", "'pth' is not the name of a value"),
            ("{ on = 'path', expire = '25h' }", "longer than a day"),
        ] {
            let text = format!("{LISTENER}{SERVERS}sticky = {sticky}");
            let messages = messages(&text);
            assert!(messages.len() == 1 && messages[0].contains(part), "{sticky}: {messages:#?}");
            assert!(
                !messages[0].contains("secretsecret") && !messages[0].contains("3456789"),
                "{messages:?}"
            );
        }
    }

    #[test]
    fn a_key_file_is_bounded_and_only_its_owners() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let write = |bytes: &[u8], mode: u32| {
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let pool = format!("sticky = {{ cookie = 'S', key-file = '{}' }}", path.display());
        write(b" 0123456789abcdef\n", 0o600);
        let key = plan(&pool).pools[PoolId(0)].sticky.as_ref().and_then(Sticky::cookie).cloned().unwrap();
        assert_eq!((key.key, key.key_file), (Secret::new(b"0123456789abcdef"), Some(path.clone())));
        assert!(messages(&format!("{LISTENER}{SERVERS}{pool}")).is_empty());
        write(b"0123456789abcdef", 0o644);
        assert_message(&pool, "chmod o-r");
        write(b"short", 0o600);
        assert_message(&pool, "5 bytes");
        write(&[b'x'; 5000], 0o600);
        assert_message(&pool, "4096 bytes");
    }

    #[test]
    fn settings_without_effect_are_warned_about() {
        assert_message("hash = { key = 'path' }", "balance random-of-two");
        assert_message("balance = 'first'", "server 127.0.0.1:9001 ");
        let key = "key = '0123456789abcdef'";
        let prefix = format!("sticky = {{ cookie = 'S', mode = 'prefix', {key}, secure = true }}");
        assert_message(&prefix, "'secure'");
        let none = format!("sticky = {{ cookie = 'S', {key}, same-site = 'none' }}");
        assert_message(&none, "secure = true");
        let bounded = "[listener.web]\nbind = '127.0.0.1:0'\npool = 'app'\n[pool.app]\n\
                       balance = 'first'\nservers = [{ address = '127.0.0.1:1', maxconn = 5 }, \
                       '127.0.0.1:2', { address = '127.0.0.1:3', backup = true }]";
        assert!(messages(bounded).is_empty(), "{:?}", messages(bounded));
        let tcp = LISTENER.replace("pool = 'app'\n", "pool = 'app'\nmode = 'tcp'\n");
        let more = format!(
            "balance = 'consistent-hash'\nhash = {{ key = 'path' }}\n\
             sticky = {{ cookie = 'S', {key} }}"
        );
        let messages = messages(&format!("{tcp}{SERVERS}{more}"));
        assert_eq!(messages.len(), 2, "{messages:#?}");
        assert!(messages[0].contains("path") && messages[1].contains("cookies"), "{messages:#?}");
    }
}
