//! Values of a request for the texts of a config. All come from the request as it is forwarded, see
//! [`RequestView`](crate::request_view::RequestView). Values of fields of the response are kept with the
//! request until its response arrives.

use std::cell::{Cell, OnceCell};
use std::io::Write as _;
use std::ops::Range;

use regex::Regex;
use server_shell::date::RenderedSecond;

use super::RouteRequest;
use super::certificate_text::certificate_text;
use super::conditions::append_parameter;
use super::map_keys::append_mapped;
use crate::auth::Identity;
use crate::cookies::cookies;
use crate::plan::{Action, Fact, Plan, Variable};
use crate::request_view::ClientFacts;
use crate::template::{Scope, TEXT_BYTES_MAX, Values};
use crate::uri::{normalise, split_target, without_parameters, without_port};

pub(crate) struct RequestValues<'a> {
    request: &'a RouteRequest<'a>,
    client: &'a dyn ClientFacts,
    names: Names<'a>,
    request_id: &'a [u8],
    identity: Option<&'a Identity>,
    regex: Option<&'a Regex>,
    /// Index of the chosen pool of a split.
    split_share: usize,
    groups: OnceCell<Groups>,
    has_overflow: Cell<bool>,
}

#[derive(Clone, Copy, Default)]
struct Names<'a> {
    listener: &'a str,
    route: &'a str,
    pool: &'a str,
}

/// Groups of a matched path.
struct Groups {
    path: String,
    ranges: Vec<Option<Range<usize>>>,
}

impl<'a> RequestValues<'a> {
    /// Creates the values that are known before the route.
    pub(crate) fn new(plan: &'a Plan, request: &'a RouteRequest<'a>, client: &'a dyn ClientFacts) -> Self {
        let listener = plan.listeners.get(request.listener).map_or("", |listener| &*listener.name);
        Self::without_plan(request, client).with_names(Names { listener, ..Names::default() })
    }

    /// Creates the values that are known without a plan.
    pub(crate) fn without_plan(request: &'a RouteRequest<'a>, client: &'a dyn ClientFacts) -> Self {
        Self {
            request,
            client,
            names: Names::default(),
            request_id: b"",
            identity: None,
            regex: None,
            split_share: 0,
            groups: OnceCell::new(),
            has_overflow: Cell::new(false),
        }
    }

    fn with_names(self, names: Names<'a>) -> Self {
        Self { names, ..self }
    }

    /// Adds those of a route, whose regular expression is `regex`.
    pub(crate) fn with_route(self, plan: &'a Plan, route: usize, regex: Option<&'a Regex>) -> Self {
        let route = &plan.routes[route];
        let pool = match &route.action {
            Action::Forward(pool) => &*plan.pools[*pool].name,
            Action::Split(split) => {
                split.shares.get(self.split_share).map_or("", |share| &*plan.pools[share.pool].name)
            }
            _ => "",
        };
        let names = Names { route: &route.name, pool, ..self.names };
        Self { regex, ..self.with_names(names) }
    }

    /// Adds the index of the chosen pool, before the route is added.
    pub(crate) fn with_split_share(self, split_share: usize) -> Self {
        Self { split_share, ..self }
    }

    pub(crate) fn with_request_id(self, request_id: &'a [u8]) -> Self {
        Self { request_id, ..self }
    }

    /// Adds those that authentication has found.
    pub(crate) fn with_identity(self, identity: Option<&'a Identity>) -> Self {
        Self { identity, ..self }
    }

    /// Returns whether a text was too long.
    pub(crate) fn has_overflow(&self) -> bool {
        self.has_overflow.get()
    }

    fn append_fact(&self, fact: Fact, out: &mut Vec<u8>) {
        let request = self.request;
        let text = match fact {
            Fact::Method => request.method,
            Fact::Scheme if self.client.is_tls() => "https",
            Fact::Scheme => "http",
            Fact::Host => without_port(request.host.unwrap_or_default()),
            Fact::Path => split_target(request.target).0,
            Fact::Query => split_target(request.target).1,
            Fact::Listener => self.names.listener,
            Fact::Route => self.names.route,
            Fact::Pool => self.names.pool,
            Fact::User => self.identity.map_or("", |identity| &identity.user),
            Fact::TlsVersion => self.client.tls_names().map_or("", |(version, _)| version),
            Fact::TlsCipher => self.client.tls_names().map_or("", |(_, cipher)| cipher),
            Fact::TlsSni => self.client.server_name().unwrap_or_default(),
            Fact::Server | Fact::Status | Fact::Reason => "",
            Fact::RequestId => return out.extend_from_slice(self.request_id),
            // Writing to a Vec cannot fail.
            Fact::Source => return drop(request.source.map(|source| write!(out, "{source}"))),
            Fact::SourcePort => return drop(write!(out, "{}", self.client.port())),
            Fact::Time | Fact::TimeUnix | Fact::TimeHttp => {
                return append_time(fact, self.client.unix_ns(), out);
            }
            known_later if known_later.scope() == Scope::Log => "",
            _ => {
                let certificate = self.client.certificate();
                let text = certificate.and_then(|certificate| certificate_text(fact, certificate));
                return out.extend_from_slice(text.unwrap_or_default().as_bytes());
            }
        };
        out.extend_from_slice(text.as_bytes());
    }

    fn append_group(&self, group: usize, out: &mut Vec<u8>) {
        let Some(regex) = self.regex else { return };
        let groups = self.groups.get_or_init(|| Groups::from_target(regex, self.request.target));
        if let Some(Some(range)) = groups.ranges.get(group) {
            out.extend_from_slice(groups.path[range.clone()].as_bytes());
        }
    }
}

impl Groups {
    /// Matches the path of a target as the route was matched: in its normal form, else without parameters.
    fn from_target(regex: &Regex, target: &str) -> Self {
        let (mut buffer, mut stripped_buffer) = (String::new(), String::new());
        let path = normalise(split_target(target).0, &mut buffer);
        let stripped = without_parameters(path, &mut stripped_buffer);
        for path in [path, stripped] {
            if let Some(captures) = regex.captures(path) {
                let ranges = captures.iter().map(|group| group.map(|group| group.range())).collect();
                return Self { path: path.to_owned(), ranges };
            }
        }
        Self { path: String::new(), ranges: Vec::new() }
    }
}

impl Values for RequestValues<'_> {
    fn append(&self, variable: &Variable, out: &mut Vec<u8>) {
        let view = self.request.view;
        match variable {
            Variable::Fact(fact) => self.append_fact(*fact, out),
            Variable::Header(name) => out.extend_from_slice(view.value(name).unwrap_or_default()),
            Variable::Cookie(name) => {
                let found =
                    cookies(view.ordinary_lines("cookie")).find(|cookie| cookie.name == name.as_bytes());
                out.extend_from_slice(found.map_or(b"", |cookie| cookie.value));
            }
            Variable::Parameter(name) => {
                let (_, query) = split_target(self.request.target);
                append_parameter(query.strip_prefix('?').unwrap_or_default(), name, out);
            }
            Variable::Capture(group) => self.append_group(*group, out),
            Variable::Map(map) => append_mapped(map, self.request, self.client, out),
            Variable::Claim(path) => {
                if let Some(claims) = self.identity.and_then(|identity| identity.claims.as_ref()) {
                    claims.append(path, out);
                }
            }
            Variable::Duration(..) => {}
        }
    }

    fn note_overflow(&self) {
        self.has_overflow.set(true);
    }
}

pub(crate) fn append_time(fact: Fact, unix_ns: u64, out: &mut Vec<u8>) {
    let mut second = RenderedSecond::default();
    second.set(unix_ns);
    match fact {
        Fact::TimeUnix => drop(write!(out, "{}", unix_ns / 1_000_000_000)),
        Fact::TimeHttp => out.extend_from_slice(second.http()),
        _ => {
            out.extend_from_slice(second.iso());
            out.push(b'Z');
        }
    }
}

/// Maximum capacity of kept values that an unused exchange keeps.
const KEPT_BYTES_RETAINED: usize = 4096;

/// Values of a request that fields of its response have.
#[derive(Debug, Default)]
pub(crate) struct KeptValues {
    bytes: Vec<u8>,
    /// End of each value in the bytes.
    ends: Vec<u32>,
    /// A bit for each rule for responses whose condition on the request holds.
    pub(crate) held_rules: u8,
    /// Request id of a request without a trusted one.
    pub(crate) request_id: [u8; 32],
}

impl KeptValues {
    /// Keeps the values of these variables, each of at most [`TEXT_BYTES_MAX`] bytes.
    pub(crate) fn keep(&mut self, variables: &[Variable], values: &RequestValues<'_>) {
        self.release();
        for variable in variables {
            let start = self.bytes.len();
            values.append(variable, &mut self.bytes);
            self.bytes.truncate(start + TEXT_BYTES_MAX);
            self.ends.push(self.bytes.len() as u32);
        }
    }

    /// Forgets the values, and returns a large buffer.
    pub(crate) fn release(&mut self) {
        self.ends.clear();
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_BYTES_RETAINED {
            self.bytes = Vec::new();
        }
    }

    fn get(&self, index: usize) -> &[u8] {
        let end = self.ends.get(index).map_or(0, |&end| end as usize);
        let start =
            index.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |&end| end as usize);
        self.bytes.get(start..end).unwrap_or_default()
    }
}

pub(crate) struct ResponseValues<'a> {
    pub(crate) variables: &'a [Variable],
    pub(crate) kept: &'a KeptValues,
    pub(crate) status: u16,
    pub(crate) server: &'a str,
    pub(crate) has_overflow: Cell<bool>,
}

impl Values for ResponseValues<'_> {
    fn append(&self, variable: &Variable, out: &mut Vec<u8>) {
        match variable {
            Variable::Fact(Fact::Status) => {
                out.extend_from_slice(itoa::Buffer::new().format(self.status).as_bytes());
            }
            Variable::Fact(Fact::Reason) => {
                out.extend_from_slice(wire::encode::reason(self.status).as_bytes());
            }
            Variable::Fact(Fact::Server) => out.extend_from_slice(self.server.as_bytes()),
            other => {
                let index = self.variables.iter().position(|kept| kept == other);
                out.extend_from_slice(index.map_or(b"", |index| self.kept.get(index)));
            }
        }
    }

    fn note_overflow(&self) {
        self.has_overflow.set(true);
    }
}
