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
