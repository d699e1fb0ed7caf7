//! What a pool's config says of the choice of a server beyond its name: `hash` and `sticky`, and what
//! of them means nothing, or not what it looks like.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::plan::{
    Balance, HashKey, HashPlan, SameSite, Secret, ServerPlan, StickyMode, StickyPlan,
};

use super::forms;
use super::source::{At, Problems};
use super::value::Section;

/// Bytes of a key: what can be guessed is no key, and what is longer is no key either.
const KEY_BYTES_MIN: usize = 16;
const KEY_BYTES_MAX: usize = 4096;
/// Keys of a sticky cookie that say nothing of a cookie of the application.
const INSERT_ONLY: [&str; 4] = ["max-age", "secure", "http-only", "same-site"];

/// What a consistent hash goes by.
pub(super) fn hash(section: &Section, balance: Balance, problems: &mut Problems) -> HashPlan {
    if let Some(at) = section.place("hash")
        && balance != Balance::ConsistentHash
    {
        let text = format!(
            "`hash` does nothing with balance {}: write balance = \"consistent-hash\"",
            balance.name()
        );
        problems.warn(at, text);
    }
    let hash = section.table("hash");
    let key = hash.text("key").and_then(|text| problems.take(text.at, hash_key(&text.value)));
    let load_factor = hash.fraction("load-factor").unwrap_or(1.0);
    HashPlan { key: key.unwrap_or(HashKey::Source), load_factor }
}

fn hash_key(text: &str) -> Result<HashKey, String> {
    let named = |name: &str| forms::field_name(name).map(|()| name.into());
    match (text, text.split_once(':')) {
        ("source", _) => Ok(HashKey::Source),
        ("path", _) => Ok(HashKey::Path),
        (_, Some(("header", name))) => named(name).map(HashKey::Header),
        (_, Some(("cookie", name))) => named(name).map(HashKey::Cookie),
        _ => Err(format!(
            "'{text}' is no key of a request: write source, path, header:NAME or cookie:NAME"
        )),
    }
}

/// What keeps a client at its server.
pub(super) fn sticky(section: &Section, problems: &mut Problems) -> Option<StickyPlan> {
    section.place("sticky")?;
    let at = section.value_place("sticky");
    let section = section.table("sticky");
    let cookie = section.text("cookie").map(|text| {
        // The names of cookies and of fields have the same form (RFC 6265 §4.1.1).
        problems.take(text.at, forms::field_name(&text.value));
        text.value
    });
    let choice = |key| section.text(key).map(|text| text.value).unwrap_or_default();
    let mode = match &*choice("mode") {
        "prefix" => StickyMode::Prefix,
        _ => StickyMode::Insert,
    };
    let same_site = match &*choice("same-site") {
        "strict" => SameSite::Strict,
        "none" => SameSite::None,
        _ => SameSite::Lax,
    };
    let secure = section.flag("secure");
    if same_site == SameSite::None && !secure {
        let text =
            "browsers drop a cookie with same-site none that is not secure: add secure = true";
        problems.warn(section.value_place("same-site"), text);
    }
    for key in INSERT_ONLY.iter().filter(|_| mode == StickyMode::Prefix) {
        if let Some(at) = section.place(key) {
            let text =
                format!("'{key}' does nothing with mode prefix: the cookie is the application's");
            problems.warn(at, text);
        }
    }
    let (key, key_file) = key(&section, at, problems);
    Some(StickyPlan {
        cookie: cookie?,
        mode,
        key: key?,
        key_file,
        max_age_s: section.whole("max-age").map(|age_ns| age_ns.div_ceil(1_000_000_000)),
        secure,
        http_only: section.flag("http-only"),
        same_site,
    })
}

/// The key, and the file that it came from.
fn key(section: &Section, at: usize, problems: &mut Problems) -> (Option<Secret>, Option<PathBuf>) {
    let (key, file) = (section.text("key"), section.text("key-file"));
    match (key, file) {
        (Some(key), None) => {
            (problems.take(key.at, checked(key.value.as_bytes()).map(Secret::new)), None)
        }
        (None, Some(At { value, at })) => {
            let path = PathBuf::from(&*value);
            warn_of_readers(&path, at, problems);
            let read = problems.take(at, read_key(&path));
            (read, Some(path))
        }
        (Some(_), Some(file)) => {
            problems.add(file.at, "there is `key` as well: leave one of them out");
            (None, None)
        }
        (None, None) => {
            // One that is there and wrong has its own problem.
            if section.place("key").is_none() && section.place("key-file").is_none() {
                problems.add(at, "a sticky cookie needs a key: add key-file = \"FILE\"");
            }
            (None, None)
        }
    }
}

fn checked(key: &[u8]) -> Result<&[u8], String> {
    match key.len() {
        KEY_BYTES_MIN..=KEY_BYTES_MAX => Ok(key),
        length => Err(format!(
            "a key of {length} bytes: it has to have {KEY_BYTES_MIN} to {KEY_BYTES_MAX} \
             (`openssl rand -hex 32` makes one)"
        )),
    }
}

fn read_key(path: &Path) -> Result<Secret, String> {
    let shown = path.display();
    let failed = |error| format!("{shown}: {error}");
    let about = fs::metadata(path).map_err(failed)?;
    // Anything else may never end, or never begin.
    if !about.is_file() {
        return Err(format!("{shown} is not a file"));
    }
    if about.len() > KEY_BYTES_MAX as u64 {
        return Err(format!("{shown} has more than {KEY_BYTES_MAX} bytes"));
    }
    let bytes = fs::read(path).map_err(failed)?;
    checked(bytes.trim_ascii()).map(Secret::new).map_err(|error| format!("{shown}: {error}"))
}

fn warn_of_readers(path: &Path, at: usize, problems: &mut Problems) {
    const OTHERS_READ: u32 = 0o004;
    let readable =
        fs::metadata(path).is_ok_and(|about| about.permissions().mode() & OTHERS_READ != 0);
    if readable {
        let shown = path.display();
        problems.warn(at, format!("anybody on this machine can read {shown}: chmod o-r it"));
    }
}

/// What comes behind a server without a bound gets nothing as long as that is up.
pub(super) fn warn_of_first(
    section: &Section,
    balance: Balance,
    servers: &[ServerPlan],
    problems: &mut Problems,
) {
    if balance != Balance::First {
        return;
    }
    for kind in [false, true] {
        let mut of_kind = servers.iter().filter(|one| one.backup == kind && one.weight > 0);
        let unbounded = of_kind.find(|one| one.maxconn.is_none());
        if let (Some(unbounded), Some(behind)) = (unbounded, of_kind.next()) {
            let text = format!(
                "server {} has no maxconn, so that {} behind it gets nothing while it is up: give \
                 it one, or balance otherwise",
                unbounded.name, behind.name
            );
            problems.warn(section.value_place("balance"), text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;
    use crate::plan::Plan;

    const LISTENER: &str = "[listener.web]\nbind = '127.0.0.1:0'\npool = 'app'\n[pool.app]\n";
    const SERVERS: &str = "servers = ['127.0.0.1:9001', '127.0.0.1:9002']\n";

    fn plan(pool: &str) -> Plan {
        let text = format!("{LISTENER}{SERVERS}{pool}");
        parse("t", &text).unwrap_or_else(|why| panic!("{why:#?}")).plan
    }

    /// Problems, or else warnings.
    fn said(text: &str) -> Vec<String> {
        let said = parse("t", text).map_or_else(|problems| problems, |parsed| parsed.warnings);
        said.iter().map(ToString::to_string).collect()
    }

    fn assert_said(pool: &str, part: &str) {
        let said = said(&format!("{LISTENER}{SERVERS}{pool}"));
        assert!(said.len() == 1 && said[0].contains(part), "{pool}: {said:#?}");
    }

    #[test]
    fn what_is_chosen_by_is_understood() {
        let pool =
            &plan("balance = 'consistent-hash'\nhash = { key = 'cookie:id', load-factor = 2 }")
                .pools[0];
        assert_eq!(pool.balance, Balance::ConsistentHash);
        assert_eq!(pool.hash, HashPlan { key: HashKey::Cookie("id".into()), load_factor: 2.0 });
        let pool = &plan("").pools[0];
        assert_eq!(pool.hash, HashPlan { key: HashKey::Source, load_factor: 1.25 });
        assert!(pool.sticky.is_none() && pool.servers.iter().all(|server| !server.backup));
        for (text, key) in [
            ("source", HashKey::Source),
            ("path", HashKey::Path),
            ("header:x-a", HashKey::Header("x-a".into())),
        ] {
            assert_eq!(hash_key(text), Ok(key.clone()));
            assert_eq!(key.to_string(), text);
        }
        for wrong in ["", "header:", "header:a b", "query:x", "Source"] {
            assert!(hash_key(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_sticky_cookie_is_understood() {
        let pool = &plan(
            "sticky = { cookie = 'S', mode = 'insert', key = '0123456789abcdef', max-age = '90s', \
             secure = true, http-only = false, same-site = 'none' }",
        )
        .pools[0];
        let wanted = StickyPlan {
            cookie: "S".into(),
            mode: StickyMode::Insert,
            key: Secret::new(b"0123456789abcdef"),
            key_file: None,
            max_age_s: Some(90),
            secure: true,
            http_only: false,
            same_site: SameSite::None,
        };
        assert_eq!(pool.sticky, Some(wanted));
        assert!(!format!("{pool:?}").contains("0123456789abcdef"));
    }

    #[test]
    fn keys_are_needed_and_never_repeated() {
        for (sticky, part) in [
            ("{ cookie = 'S' }", "t:6:10: a sticky cookie needs a key"),
            ("{ cookie = 'S', key = 'secretsecret' }", "a key of 12 bytes"),
            ("{ cookie = 'S', key = 123456789012345678 }", "'key' is no text"),
            (
                "{ cookie = 'S', key = '0123456789abcdef', key-file = '/x' }",
                "there is `key` as well",
            ),
            ("{ cookie = 'S', key-file = '/no/such/file' }", "/no/such/file: No such file"),
            ("{ cookie = 'S', key-file = '/dev/zero' }", "/dev/zero is not a file"),
            ("{ cookie = 'S;', key = '0123456789abcdef' }", "'S;'"),
            ("{ key = '0123456789abcdef' }", "'cookie' is missing"),
        ] {
            let text = format!("{LISTENER}{SERVERS}sticky = {sticky}");
            let said = said(&text);
            assert!(said.len() == 1 && said[0].contains(part), "{sticky}: {said:#?}");
            assert!(!said[0].contains("secretsecret") && !said[0].contains("3456789"), "{said:?}");
        }
    }

    #[test]
    fn a_key_file_is_bounded_and_only_its_owners() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let write = |bytes: &[u8], mode: u32| {
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let pool = format!("sticky = {{ cookie = 'S', key-file = '{}' }}", path.display());
        write(b" 0123456789abcdef\n", 0o600);
        let key = plan(&pool).pools[0].sticky.clone().unwrap();
        assert_eq!((key.key, key.key_file), (Secret::new(b"0123456789abcdef"), Some(path.clone())));
        assert!(said(&format!("{LISTENER}{SERVERS}{pool}")).is_empty());
        write(b"0123456789abcdef", 0o644);
        assert_said(&pool, "anybody on this machine can read");
        write(b"short", 0o600);
        assert_said(&pool, "a key of 5 bytes");
        write(&[b'x'; 5000], 0o600);
        assert_said(&pool, "has more than 4096 bytes");
    }

    #[test]
    fn what_does_nothing_is_told() {
        assert_said("hash = { key = 'path' }", "`hash` does nothing with balance random-of-two");
        assert_said("balance = 'first'", "server 127.0.0.1:9001 has no maxconn");
        let key = "key = '0123456789abcdef'";
        let prefix = format!("sticky = {{ cookie = 'S', mode = 'prefix', {key}, secure = true }}");
        assert_said(&prefix, "'secure' does nothing with mode prefix");
        let none = format!("sticky = {{ cookie = 'S', {key}, same-site = 'none' }}");
        assert_said(&none, "browsers drop a cookie");
        let bounded = "[listener.web]\nbind = '127.0.0.1:0'\npool = 'app'\n[pool.app]\n\
                       balance = 'first'\nservers = [{ address = '127.0.0.1:1', maxconn = 5 }, \
                       '127.0.0.1:2', { address = '127.0.0.1:3', backup = true }]";
        assert!(said(bounded).is_empty(), "{:?}", said(bounded));
        let tcp = LISTENER.replace("pool = 'app'\n", "pool = 'app'\nmode = 'tcp'\n");
        let more = format!(
            "balance = 'consistent-hash'\nhash = {{ key = 'path' }}\n\
             sticky = {{ cookie = 'S', {key} }}"
        );
        let said = said(&format!("{tcp}{SERVERS}{more}"));
        assert!(said.len() == 2 && said[0].contains("sees no path"), "{said:#?}");
        assert!(said[1].contains("have no cookies"), "{said:#?}");
    }
}
