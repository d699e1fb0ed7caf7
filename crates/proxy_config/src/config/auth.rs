//! Converts `auth` of a listener and of a route, and the keys of the threads for passwords.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use record::document::{Located, Problems};
use record::problem::suggestion;

use crate::auth::claims::is_claim_path;
use crate::auth::jwks::{KEYS_BYTES_MAX, KeySet};
use crate::auth::key_store::{FileKeys, RemoteKeys, RemoteSpec, UrlKeys};
use crate::auth::users::{FILE_BYTES_MAX, Users};
use crate::auth::watched_file::{Watched as _, WatchedFile};
use crate::plan::{
    AuthMethod, AuthPlan, BasicPlan, Credentials, FailureLimit, IdVec, JwtAlgorithm, JwtPlan, JwtRules,
    KeySource, PasswordThreads, PoolId, RequestPlan, TokenSource, UsersFile,
};
use crate::template::{KnownValues, Scope};

use super::conditions::parse_matcher;
use super::listeners::find_pool;
use super::templates::parse_key;
use super::validate;
use super::value::Section;

const NS_PER_MINUTE: u64 = 60_000_000_000;
/// Methods of authentication; a table has one of them.
const METHODS: [&str; 3] = ["basic", "jwt", "request"];
/// Sources of the keys of tokens; a table has one of them.
const KEY_SOURCES: [&str; 4] = ["keys-file", "keys-url", "public-key-file", "secret-file"];
/// Keys that only concern a URL.
const URL_KEYS: [&str; 3] = ["keys-ca", "keys-interval", "unknown-key-interval"];

/// Reads the number of threads, and the length of their queue.
pub(super) fn parse_password_threads(root: &Section) -> PasswordThreads {
    PasswordThreads { threads: root.size("password-threads"), queue_max: root.size("password-queue") }
}

/// Reads the key of a listener or a route; `None`: it was not given. `None` inside: it is switched off.
pub(super) fn parse_auth(
    owner: &Section,
    pools: &IdVec<PoolId, &str>,
    problems: &mut Problems,
) -> Option<Option<Arc<AuthPlan>>> {
    let offset = owner.key_offset("auth")?;
    if owner.is_switched_off("auth") {
        return Some(None);
    }
    let section = owner.table("auth");
    let given: Vec<&str> =
        METHODS.into_iter().filter(|method| section.key_offset(method).is_some()).collect();
    let [method] = *given else {
        let text = "`auth` has exactly one of `basic`, `jwt` and `request`: write auth = { basic = { users-file = \"FILE\" } }";
        problems.add_error(offset, text);
        return Some(None);
    };
    let table = section.table(method);
    let method = match method {
        "basic" => parse_basic(&table, problems).map(AuthMethod::Basic),
        "jwt" => parse_jwt(&table, problems).map(AuthMethod::Jwt),
        _ => parse_request(&table, pools, problems).map(AuthMethod::Request),
    };
    if let (Some(AuthMethod::Request(_)), Some(offset)) = (&method, section.key_offset("forward-credentials"))
    {
        problems.warn(offset, "'forward-credentials' has no effect with `request`, which removes none");
    }
    let cache = (section.size("cache-entries"), section.integer_or_zero("cache-time"));
    let credentials = match section.key_offset("forward-credentials") {
        None => Credentials::FieldRemoved,
        Some(_) if section.flag("forward-credentials") => Credentials::Forwarded,
        Some(_) => Credentials::Removed,
    };
    // A fault has been reported, so that the config does not come into force without its authentication.
    Some(method.map(|method| Arc::new(AuthPlan::new(method, credentials, cache))))
}

fn parse_basic(section: &Section, problems: &mut Problems) -> Option<BasicPlan> {
    let file = section.text("users-file")?;
    validate::warn_of_world_readable(Path::new(&*file.value), file.offset, problems);
    let users = open(&file, FILE_BYTES_MAX, Users::parse, problems)?;
    if users.content().is_empty() {
        problems.warn(file.offset, format!("{} has no users: all requests are rejected", file.value));
    }
    Some(BasicPlan {
        realm: parse_realm(section, problems)?,
        users: UsersFile(users),
        source_limit: failure_limit(section, "failures-per-source"),
        user_limit: failure_limit(section, "failures-per-user"),
    })
}

/// Reads a rate as a number of failures in a time: those of a minute, at least one.
fn failure_limit(section: &Section, key: &str) -> Option<FailureLimit> {
    let rate_per_s = section.float(key)?;
    let count = (rate_per_s * 60.0).round().clamp(1.0, 1e6);
    // A rate has a minimum, so that the period fits.
    let period_ns = ((count / rate_per_s) * 1e9).min(NS_PER_MINUTE as f64 * 60.0 * 24.0);
    Some(FailureLimit { count: count as u32, period_ns: period_ns as u64 })
}

fn parse_realm(section: &Section, problems: &mut Problems) -> Option<Box<str>> {
    let realm = section.text("realm")?;
    if realm.value.contains(|character: char| character.is_control() || "\"\\".contains(character)) {
        problems.add_error(
            realm.offset,
            format!("'{}' has a quote, a backslash or a control character", realm.value.escape_debug()),
        );
        return None;
    }
    Some(realm.value)
}

/// Opens a file, or reports all of its faults at the place of its name.
fn open<T: Send + Sync + 'static>(
    file: &Located<Box<str>>,
    bytes_max: usize,
    parse: fn(&[u8]) -> Result<T, Vec<String>>,
    problems: &mut Problems,
) -> Option<Arc<WatchedFile<T>>> {
    match WatchedFile::open(Path::new(&*file.value), bytes_max, parse) {
        Ok(opened) => Some(opened),
        Err(faults) => {
            faults.into_iter().for_each(|fault| problems.add_error(file.offset, fault));
            None
        }
    }
}

fn parse_jwt(section: &Section, problems: &mut Problems) -> Option<JwtPlan> {
    let keys = parse_keys(section, problems);
    let texts = |key: &str| section.texts(key).into_iter().map(|text| text.value).collect::<Vec<_>>();
    let algorithms = section.key_offset("algorithms").map(|_| parse_algorithms(section, problems));
    let mut claim = |text: Located<Box<str>>| {
        let is_path = is_claim_path(&text.value);
        if !is_path {
            problems.add_error(
                text.offset,
                format!("'{}' is not the name of a claim", text.value.escape_debug()),
            );
        }
        is_path.then_some(text.value)
    };
    let present: Vec<_> = section.texts("required-claims").into_iter().filter_map(&mut claim).collect();
    let user_claim = section.text("user-claim").and_then(&mut claim);
    let mut required = Vec::new();
    for pair in section.pairs("require") {
        let name = claim(pair.name);
        required.extend(name.map(|name| (name, pair.matcher)));
    }
    let required = required.into_iter().filter_map(|(name, matcher)| {
        Some(crate::plan::TextCondition { name, value: parse_matcher(matcher, problems)? })
    });
    let required: Vec<_> = required.collect();
    let token = section.text("token").and_then(|text| parse_token_source(&text, problems));
    let (keys, realm) = (keys?, parse_realm(section, problems)?);
    warn_of_algorithms(section, &keys, algorithms.as_deref(), problems);
    Some(JwtPlan {
        keys,
        token: token?,
        rules: JwtRules {
            token_bytes_max: section.size("token-max"),
            algorithms,
            issuers: texts("issuer"),
            audiences: texts("audience"),
            clock_skew_s: section.integer_or_zero("clock-skew") / 1_000_000_000,
            present,
        },
        realm,
        user_claim: user_claim?,
        required,
    })
}

fn parse_keys(section: &Section, problems: &mut Problems) -> Option<KeySource> {
    let given: Vec<&str> =
        KEY_SOURCES.into_iter().filter(|source| section.key_offset(source).is_some()).collect();
    let [source] = *given else {
        let text = format!("`jwt` has exactly one source of keys: {}", KEY_SOURCES.join(", "));
        problems.add_error(section.offset, text);
        return None;
    };
    for key in URL_KEYS.into_iter().filter(|_| source != "keys-url") {
        if let Some(offset) = section.key_offset(key) {
            problems.warn(offset, format!("'{key}' has no effect without keys-url"));
        }
    }
    let text = section.text(source)?;
    if source == "keys-url" {
        return parse_url(section, &text, problems);
    }
    let parse = match source {
        "keys-file" => KeySet::parse_file,
        "secret-file" => {
            validate::warn_of_world_readable(Path::new(&*text.value), text.offset, problems);
            KeySet::parse_secret
        }
        _ => KeySet::parse_pem,
    };
    open(&text, KEYS_BYTES_MAX, parse, problems).map(|file| KeySource::File(FileKeys(file)))
}

fn parse_url(section: &Section, text: &Located<Box<str>>, problems: &mut Problems) -> Option<KeySource> {
    let uri = text.value.parse::<http::Uri>().ok();
    let is_url = uri.as_ref().is_some_and(|uri| {
        matches!(uri.scheme_str(), Some("https" | "http")) && uri.host().is_some_and(|host| !host.is_empty())
    });
    if !is_url {
        problems.add_error(
            text.offset,
            format!("'{}' is not a URL (write https://id.example.org/jwks.json)", text.value),
        );
        return None;
    }
    let ca = section.text("keys-ca");
    if let Some(ca) = &ca {
        let path = Path::new(&*ca.value);
        problems.ok_or_report(ca.offset, validate::read_bounded_file(path, KEYS_BYTES_MAX * 16))?;
    }
    Some(KeySource::Url(UrlKeys(RemoteKeys::open(RemoteSpec {
        url: text.value.clone(),
        ca: ca.map(|ca| PathBuf::from(&*ca.value)),
        interval_ns: section.integer_or_zero("keys-interval"),
        unknown_key_interval_ns: section.integer_or_zero("unknown-key-interval"),
    }))))
}

fn parse_algorithms(section: &Section, problems: &mut Problems) -> Vec<JwtAlgorithm> {
    let names = || JwtAlgorithm::ALL.iter().map(|algorithm| algorithm.code());
    let texts = section.texts("algorithms").into_iter();
    let algorithms = texts.filter_map(|Located { value, offset }| {
        let algorithm = JwtAlgorithm::from_name(&value);
        if algorithm.is_none() {
            let hint = suggestion(&value, names());
            let known = names().collect::<Vec<_>>().join(", ");
            problems.add_error(offset, format!("'{value}' is not an algorithm{hint}: {known}"));
        }
        algorithm
    });
    algorithms.collect()
}

/// Warns about algorithms that no key has.
fn warn_of_algorithms(
    section: &Section,
    keys: &KeySource,
    algorithms: Option<&[JwtAlgorithm]>,
    problems: &mut Problems,
) {
    let (KeySource::File(file), Some(algorithms)) = (keys, algorithms) else { return };
    let keys = file.0.content();
    let has_key = |algorithm: &JwtAlgorithm| keys.keys.iter().any(|key| key.has(*algorithm));
    for algorithm in algorithms.iter().filter(|algorithm| !has_key(algorithm)) {
        let text = format!("no key in {} has the algorithm {}", file.0.path().display(), algorithm.code());
        problems.warn(section.value_offset("algorithms"), text);
    }
}

fn parse_token_source(text: &Located<Box<str>>, problems: &mut Problems) -> Option<TokenSource> {
    let name = |name: &str, problems: &mut Problems| {
        problems.ok_or_report(text.offset, validate::check_field_name(name)).map(|()| name.into())
    };
    match text.value.split_once(':') {
        None if &*text.value == "authorization" => Some(TokenSource::Authorization),
        Some(("header", field)) if field.eq_ignore_ascii_case("authorization") => {
            Some(TokenSource::Authorization)
        }
        Some(("header", field)) => name(field, problems).map(TokenSource::Header),
        Some(("cookie", cookie)) => name(cookie, problems).map(TokenSource::Cookie),
        _ => {
            let message = format!(
                "'{}' is no place of a token: write authorization, header:NAME or cookie:NAME",
                text.value
            );
            problems.add_error(text.offset, message);
            None
        }
    }
}

fn parse_request(
    section: &Section,
    pools: &IdVec<PoolId, &str>,
    problems: &mut Problems,
) -> Option<RequestPlan> {
    let pool = section.text("pool")?;
    let pool_id = find_pool(&pool, pools, problems);
    let path = section.text("path")?;
    let is_visible = path.value.bytes().all(|byte| matches!(byte, b'!'..=b'~') && byte != b'#');
    if !is_visible || !path.value.starts_with('/') {
        let text =
            format!("'{}' is not a path of visible ASCII that starts with /", path.value.escape_debug());
        problems.add_error(path.offset, text);
    }
    let mut fields = |key: &str| parse_field_names(section, key, problems);
    let (request_fields, server_fields) = (fields("request-headers"), fields("server-headers"));
    let (client_fields, denial_fields) = (fields("client-headers"), fields("denial-headers"));
    let method = section.text("method")?;
    // The names of methods have the letters of those of fields (RFC 9110 §9.1).
    problems.ok_or_report(method.offset, validate::check_field_name(&method.value))?;
    let user_field = section.text("user-header");
    if let Some(text) = &user_field {
        problems.ok_or_report(text.offset, validate::check_field_name(&text.value));
    }
    let cache_key = section.text("cache-key");
    Some(RequestPlan {
        pool: pool_id?,
        pool_name: pool.value,
        method: Some(method.value).filter(|method| &**method != "same"),
        path: path.value,
        timeout_ns: section.integer_or_zero("timeout"),
        request_fields,
        server_fields,
        client_fields,
        denial_fields,
        user_field: user_field.map(|text| text.value),
        cache_key: cache_key
            .and_then(|text| parse_key(&text, Scope::Route, KnownValues::default(), problems)),
    })
}

/// Reads names of fields that are copied, some of which may end in `*`.
fn parse_field_names(section: &Section, key: &str, problems: &mut Problems) -> Vec<Box<str>> {
    let texts = section.texts(key).into_iter();
    let checked = texts.filter_map(|text| {
        let is_all = key == "request-headers" && &*text.value == "*";
        let check = if is_all { Ok(()) } else { validate::check_removed_field(&text.value) };
        problems.ok_or_report(text.offset, check).map(|()| text.value)
    });
    checked.collect()
}
