//! Settings that a block of nginx inherits from the blocks around it.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::compression::Gzip;
use super::files::{FileScope, changes_files};
use super::log::LogFormat;
use super::maps::Variables;
use super::variables::{bytes, milliseconds, seconds};
use crate::directive::Directive;
use crate::document::Origin;
use crate::draft::{Draft, network};
use crate::left::Kind;
use crate::row;
use crate::rules::{Condition, Test};

/// A value with the directive that it comes from.
pub(super) type Set<T> = (T, Rc<Origin>);

/// Time of a scope, which becomes a key of a listener or of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    Connect,
    Read,
    ClientHeader,
    ClientBody,
    Send,
    KeepAlive,
}

/// A line of `allow` or `deny`.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub(super) allows: bool,
    pub(super) clients: Condition,
    pub(super) origin: Rc<Origin>,
}

/// A line of `add_header`.
#[derive(Clone, Debug)]
pub(super) struct AddedField {
    pub(super) name: String,
    pub(super) value: String,
    /// True if it is in responses of every status.
    pub(super) is_always: bool,
    pub(super) origin: Rc<Origin>,
}

/// A line of `error_page`.
#[derive(Clone, Debug)]
pub(super) struct PageRule {
    pub(super) statuses: Vec<u16>,
    /// `=`, or `=200`; empty: the status stays.
    pub(super) response: String,
    pub(super) target: String,
    pub(super) origin: Rc<Origin>,
}

/// A line of `limit_req_zone`.
#[derive(Clone, Debug)]
pub(super) struct LimitZone {
    pub(super) key: String,
    pub(super) rate: String,
}

/// A line of `limit_req`.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    pub(super) zone: String,
    pub(super) burst: u64,
    pub(super) delays: bool,
    pub(super) origin: Rc<Origin>,
}

/// Settings in force in a block.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    pub(super) set_headers: Vec<(String, String, Rc<Origin>)>,
    pub(super) add_headers: Vec<AddedField>,
    /// `Cache-Control` of `expires`.
    pub(super) expires: Option<Set<String>>,
    pub(super) hidden: Vec<Set<String>>,
    pub(super) times: Vec<(Time, u64, Rc<Origin>)>,
    pub(super) body_max: Option<Set<u64>>,
    /// Results after which another server is tried.
    pub(super) next_upstream: Option<Set<Vec<String>>>,
    pub(super) next_tries: Option<Set<u64>>,
    pub(super) default_type: Option<String>,
    pub(super) access: Vec<Access>,
    pub(super) trusted: Vec<Set<String>>,
    pub(super) access_log: Option<Set<String>>,
    pub(super) access_log_format: String,
    /// Formats of logs by name, shared by all scopes.
    pub(super) log_formats: Rc<BTreeMap<String, LogFormat>>,
    /// Variables of blocks of the config, shared by all scopes.
    pub(super) variables: Rc<Variables>,
    pub(super) pages: Rc<Vec<PageRule>>,
    pub(super) intercepts_errors: bool,
    pub(super) root: Option<String>,
    pub(super) files: FileScope,
    pub(super) gzip: Gzip,
    pub(super) limit_zones: Rc<BTreeMap<String, LimitZone>>,
    pub(super) limits: Rc<Vec<Limit>>,
    pub(super) limit_status: Option<u64>,
    pub(super) certificate: Option<Set<String>>,
    pub(super) certificate_key: Option<String>,
    pub(super) client_ca: Option<Set<String>>,
    pub(super) verifies_clients: Option<String>,
    pub(super) only_tls13: Option<Rc<Origin>>,
    /// Keys of `tls` of pools behind `https`.
    pub(super) server_tls: Vec<(String, String, Rc<Origin>)>,
    pub(super) verifies_servers: bool,
    /// Ways of authentication in force.
    pub(super) auth: Vec<(String, Rc<Origin>)>,
    /// One of `allow` and authentication is enough.
    pub(super) satisfies_any: bool,
    /// Field that has the client's address.
    pub(super) real_ip_header: Option<String>,
    /// A directive that may restrict access, and that weir does not know: all requests are refused.
    pub(super) refused: Option<Rc<Origin>>,
}

impl Scope {
    /// Returns the settings of an inner block. Lists that the inner block has replace those of the outer one.
    pub(super) fn inner(&self, directives: &[Directive]) -> Self {
        let mut scope = self.clone();
        let has = |name: &str| directives.iter().any(|directive| directive.name() == name);
        if has("proxy_set_header") {
            scope.set_headers.clear();
        }
        if has("add_header") {
            scope.add_headers.clear();
        }
        if has("proxy_hide_header") {
            scope.hidden.clear();
        }
        if has("error_page") {
            scope.pages = Rc::default();
        }
        if has("gzip_types") {
            scope.gzip.types = Rc::default();
        }
        if has("limit_req") {
            scope.limits = Rc::default();
        }
        if has("allow") || has("deny") {
            scope.access.clear();
        }
        scope
    }

    pub(super) fn time(&self, wanted: Time) -> Option<(u64, Rc<Origin>)> {
        let found = self.times.iter().rev().find(|(time, ..)| *time == wanted);
        found.map(|(_, ms, origin)| (*ms, Rc::clone(origin)))
    }

    /// Applies a directive by its row. Returns false if it is none of a scope.
    pub(super) fn apply(&mut self, directive: &Directive, draft: &mut Draft<'_>) -> bool {
        let origin = &directive.origin;
        let first = directive.argument(0);
        let set = |text: &str| Some((text.to_owned(), Rc::clone(origin)));
        match directive.name() {
            "proxy_set_header" | "grpc_set_header" => {
                self.set_headers.push((
                    first.to_owned(),
                    directive.argument(1).to_owned(),
                    Rc::clone(origin),
                ));
            }
            "add_header" => self.add_headers.push(AddedField {
                name: first.to_owned(),
                value: directive.argument(1).to_owned(),
                is_always: directive.argument(2) == "always",
                origin: Rc::clone(origin),
            }),
            "expires" => return self.set_expires(directive, draft),
            "proxy_hide_header" => self.hidden.extend(set(first)),
            "proxy_connect_timeout" | "grpc_connect_timeout" => {
                self.set_time(Time::Connect, directive, draft)
            }
            "proxy_read_timeout" | "grpc_read_timeout" => self.set_time(Time::Read, directive, draft),
            "client_header_timeout" => self.set_time(Time::ClientHeader, directive, draft),
            "client_body_timeout" => self.set_time(Time::ClientBody, directive, draft),
            "send_timeout" => self.set_time(Time::Send, directive, draft),
            "keepalive_timeout" => self.set_time(Time::KeepAlive, directive, draft),
            "client_max_body_size" => match bytes(first) {
                Some(number) => self.body_max = Some((number, Rc::clone(origin))),
                None => draft.leave(Kind::NotSupported, origin, "this is no size"),
            },
            "proxy_next_upstream" | "proxy_next_upstream_tries" => self.set_next_upstream(directive),
            "default_type" => self.default_type = Some(first.to_owned()),
            "allow" | "deny" => self.add_access(directive, draft),
            "set_real_ip_from" => match network(first) {
                Some(text) => self.trusted.push((text, Rc::clone(origin))),
                None if first == "unix:" => self.trusted.push(("unix".to_owned(), Rc::clone(origin))),
                None => draft.leave(Kind::NotSupported, origin, "trusted peers are networks"),
            },
            "access_log" => self.set_access_log(directive, draft),
            "log_format" => self.add_log_format(directive),
            "root" => {
                self.root = Some(first.to_owned());
                self.files.alias = None;
            }
            "proxy_intercept_errors" => self.intercepts_errors = first == "on",
            "error_page" => return self.add_page(directive),
            _ => {
                return self.apply_client(directive, draft)
                    || self.gzip.apply(directive, draft)
                    || self.files.apply(directive)
                    || self.apply_tls(directive)
                    || self.apply_limit(directive);
            }
        }
        true
    }

    /// Applies a directive about clients and their authentication. Returns false if it is none.
    fn apply_client(&mut self, directive: &Directive, draft: &mut Draft<'_>) -> bool {
        let origin = &directive.origin;
        let first = directive.argument(0);
        match directive.name() {
            "auth_basic_user_file" | "auth_delay" | "auth_request_set" => return false,
            "satisfy" => self.satisfies_any = first == "any",
            "real_ip_header" => {
                self.real_ip_header = Some(first.to_ascii_lowercase());
                if first != "proxy_protocol" {
                    leave(directive, draft);
                }
            }
            name if name.starts_with("auth_") => {
                self.auth.retain(|(other, _)| other != name);
                if first != "off" {
                    self.auth.push((name.to_owned(), Rc::clone(origin)));
                }
            }
            _ => return false,
        }
        true
    }

    /// Applies a directive of TLS. Returns false if it is none.
    fn apply_tls(&mut self, directive: &Directive) -> bool {
        let origin = &directive.origin;
        let first = directive.argument(0);
        let set = |text: &str| Some((text.to_owned(), Rc::clone(origin)));
        match directive.name() {
            "ssl_certificate" => self.certificate = set(first),
            "ssl_certificate_key" => self.certificate_key = Some(first.to_owned()),
            "ssl_client_certificate" => self.client_ca = set(first),
            "ssl_verify_client" => self.verifies_clients = Some(first.to_owned()),
            "ssl_protocols" => {
                self.only_tls13 = (directive.arguments() == ["TLSv1.3"]).then(|| Rc::clone(origin));
            }
            "proxy_ssl_verify" => self.verifies_servers = first == "on",
            "proxy_ssl_trusted_certificate" => {
                self.server_tls.push(("ca".into(), first.into(), Rc::clone(origin)))
            }
            "proxy_ssl_name" => self.server_tls.push(("server-name".into(), first.into(), Rc::clone(origin))),
            "proxy_ssl_certificate" => {
                self.server_tls.push(("certificate".into(), first.into(), Rc::clone(origin)))
            }
            "proxy_ssl_certificate_key" => {
                self.server_tls.push(("key".into(), first.into(), Rc::clone(origin)))
            }
            _ => return false,
        }
        true
    }

    /// Sets `Cache-Control` of `expires`. Returns false if weir cannot have it.
    fn set_expires(&mut self, directive: &Directive, draft: &mut Draft<'_>) -> bool {
        let value = match directive.arguments() {
            [off] if off == "off" => {
                self.expires = None;
                return true;
            }
            [epoch]
                if epoch == "epoch" || (epoch.starts_with('-') && milliseconds(&epoch[1..]).is_some()) =>
            {
                "no-cache".to_owned()
            }
            [max] if max == "max" => "max-age=315360000".to_owned(),
            [time] => match seconds(time) {
                Some(seconds) => format!("max-age={seconds}"),
                None => return false,
            },
            _ => return false,
        };
        let text = "there is no field Expires, which Cache-Control replaces for every client of HTTP/1.1";
        draft.leave(Kind::Differs, &directive.origin, text);
        self.expires = Some((value, Rc::clone(&directive.origin)));
        true
    }

    fn add_page(&mut self, directive: &Directive) -> bool {
        let arguments = directive.arguments();
        let Some((target, arguments)) = arguments.split_last() else { return false };
        let (responses, statuses): (Vec<&String>, Vec<&String>) =
            arguments.iter().partition(|argument| argument.starts_with('='));
        let page = PageRule {
            statuses: statuses.iter().filter_map(|status| status.parse().ok()).collect(),
            response: responses.first().map_or(String::new(), |response| (*response).clone()),
            target: target.clone(),
            origin: Rc::clone(&directive.origin),
        };
        Rc::make_mut(&mut self.pages).push(page);
        true
    }

    /// Applies a directive about the rate of requests. Returns false if it is none.
    fn apply_limit(&mut self, directive: &Directive) -> bool {
        let parameter = |name: &str| {
            let mut words = directive.arguments().iter();
            words.find_map(|word| word.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
        };
        match directive.name() {
            "limit_req_zone" => {
                let name = parameter("zone").split(':').next().unwrap_or_default().to_owned();
                let zone =
                    LimitZone { key: directive.argument(0).to_owned(), rate: parameter("rate").to_owned() };
                Rc::make_mut(&mut self.limit_zones).insert(name, zone);
            }
            "limit_req" => Rc::make_mut(&mut self.limits).push(Limit {
                zone: parameter("zone").to_owned(),
                burst: parameter("burst").parse().unwrap_or(0),
                delays: !directive.arguments().iter().any(|word| word == "nodelay"),
                origin: Rc::clone(&directive.origin),
            }),
            "limit_req_status" => self.limit_status = directive.argument(0).parse().ok(),
            _ => return false,
        }
        true
    }

    fn set_next_upstream(&mut self, directive: &Directive) {
        let origin = || Rc::clone(&directive.origin);
        match directive.name() {
            "proxy_next_upstream" => self.next_upstream = Some((directive.arguments().to_vec(), origin())),
            _ => self.next_tries = directive.argument(0).parse().ok().map(|tries| (tries, origin())),
        }
    }

    fn set_access_log(&mut self, directive: &Directive, draft: &mut Draft<'_>) {
        if directive.arguments().iter().any(|word| word.starts_with("if=")) {
            let text = "a log has all requests, or with `only-errors` those that failed, or a `sample`";
            draft.leave(Kind::NotSupported, &directive.origin, text);
        }
        self.access_log = Some((directive.argument(0).to_owned(), Rc::clone(&directive.origin)));
        let format = directive.argument(1);
        self.access_log_format = if format.contains('=') { String::new() } else { format.to_owned() };
    }

    fn add_log_format(&mut self, directive: &Directive) {
        let mut parts = directive.arguments().get(1..).unwrap_or_default();
        let is_json = parts.first().is_some_and(|first| first == "escape=json");
        if parts.first().is_some_and(|first| first.starts_with("escape=")) {
            parts = &parts[1..];
        }
        let format = LogFormat { text: parts.concat(), is_json };
        Rc::make_mut(&mut self.log_formats).insert(directive.argument(0).to_owned(), format);
    }

    fn set_time(&mut self, time: Time, directive: &Directive, draft: &mut Draft<'_>) {
        match milliseconds(directive.argument(0)) {
            Some(ms) => {
                self.times.retain(|(other, ..)| *other != time);
                self.times.push((time, ms, Rc::clone(&directive.origin)));
            }
            None => draft.leave(Kind::NotSupported, &directive.origin, "this is no time"),
        }
    }

    fn add_access(&mut self, directive: &Directive, draft: &mut Draft<'_>) {
        let text = directive.argument(0);
        let clients = match (network(text), text) {
            (Some(network), _) => Condition::test(Test::Source(network)),
            (None, "all") => Condition::Always,
            _ => {
                let text = "clients are known by their networks: the requests that it may be for get 501";
                draft.leave(Kind::NotSupported, &directive.origin, text);
                Condition::Unknown
            }
        };
        let allows = directive.name() == "allow";
        self.access.push(Access { allows, clients, origin: Rc::clone(&directive.origin) });
    }

    /// Applies a directive, or reports it. One that may restrict access, and is not known, refuses all requests.
    pub(super) fn apply_or_leave(&mut self, directive: &Directive, draft: &mut Draft<'_>) {
        if self.apply(directive, draft) {
            return;
        }
        if directive.name() != "include" {
            leave(directive, draft);
        }
        if !has_no_effect(directive) && changes_files(directive) {
            self.files.changed = Some(Rc::clone(&directive.origin));
        }
        if may_restrict(directive) {
            self.refused = Some(Rc::clone(&directive.origin));
        }
    }
}

/// Returns whether a directive that has no equivalent may restrict access.
fn may_restrict(directive: &Directive) -> bool {
    /// Beginnings of directives that let in whom they find.
    const HARMLESS: &str = "proxy_ fastcgi_ uwsgi_ scgi_ memcached_ grpc_ gzip brotli open_file_cache client_ send_ \
        keepalive log_ error_ types output_ postpone_ read_ahead resolver server_ ssi sub_ userid \
        expires etag charset add_ worker_ http2 http3 quic limit_rate aio directio sendfile tcp_ \
        rewrite_log uninitialized_ variables_ map_ lingering_ reset_ chunked_ if_modified_since zone \
        autoindex";
    const TLS: [&str; 4] = ["ssl_crl", "ssl_ocsp", "ssl_reject_handshake", "ssl_verify_depth"];
    let name = directive.name();
    let is_known = row::find(super::TABLE, &[name]).is_some();
    let is_harmless = HARMLESS.split(' ').any(|start| name.starts_with(start));
    let is_tls = name.starts_with("ssl_");
    !is_known && !is_harmless && (!is_tls || TLS.contains(&name))
}

/// Returns whether a directive has no effect in weir, by its row.
fn has_no_effect(directive: &Directive) -> bool {
    row::find(super::TABLE, &[directive.name()]).is_some_and(|row| row.kind == Some(Kind::NoEffect))
}

/// Directives that do nothing if they are off.
const OPTIONAL: [&str; 5] = ["proxy_cache", "proxy_store", "expires", "mirror", "ssl_stapling"];

/// Reports a directive by its row, or as an unknown one.
pub(super) fn leave(directive: &Directive, draft: &mut Draft<'_>) {
    let words: Vec<&str> = directive.words.iter().take(3).map(String::as_str).collect();
    let is_off = directive.arguments() == ["off"];
    match row::find(super::TABLE, &words) {
        Some(row) if is_off && OPTIONAL.contains(&row.directive) => {
            draft.leave(Kind::NoEffect, &directive.origin, "it is off")
        }
        Some(row) => draft.leave(row.kind.unwrap_or(Kind::NotSupported), &directive.origin, row.becomes),
        None => {
            let text =
                format!("'{}' is not known to the import", record::problem::printable(directive.name(), 60));
            draft.leave(Kind::NotSupported, &directive.origin, text);
        }
    }
}
