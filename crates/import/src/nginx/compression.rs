//! `gzip` of nginx as compression of responses and of files.

use std::rc::Rc;

use super::scope::Scope;
use super::server::Server;
use super::settings::Common;
use super::variables::bytes;
use crate::content::{ALL_TYPES, media_types};
use crate::directive::Directive;
use crate::document::{Origin, Section, Value};
use crate::draft::Draft;
use crate::left::Kind;

/// Maximum of `gzip_min_length`, in bytes.
const MIN_LENGTH_MAX: u64 = 1 << 30;

/// Coded files beside a file (`gzip_static`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum CodedFiles {
    #[default]
    Off,
    On,
    /// Also for clients that do not accept them.
    Always,
}

/// Settings of `gzip` in a scope.
#[derive(Clone, Debug, Default)]
pub(super) struct Gzip {
    on: Option<Rc<Origin>>,
    /// Types beside HTML.
    pub(super) types: Rc<Vec<String>>,
    min_length: Option<u64>,
    level: Option<u64>,
    /// True if requests of proxies get compressed responses, too.
    is_for_proxies: bool,
    varies: bool,
    pub(super) coded_files: CodedFiles,
}

impl Gzip {
    /// Applies a directive. Returns false if it is none of `gzip`, or none that weir has.
    pub(super) fn apply(&mut self, directive: &Directive, draft: &mut Draft<'_>) -> bool {
        let first = directive.argument(0);
        match directive.name() {
            "gzip" => self.on = (first == "on").then(|| Rc::clone(&directive.origin)),
            "gzip_types" => match media_types(directive.arguments()) {
                Some(types) => Rc::make_mut(&mut self.types).extend(types),
                None => {
                    let text = "these are too many types, or none: only HTML is compressed";
                    draft.leave(Kind::NotSupported, &directive.origin, text);
                }
            },
            "gzip_min_length" => self.min_length = bytes(first).map(|bytes| bytes.min(MIN_LENGTH_MAX)),
            "gzip_comp_level" => {
                self.level = first.parse().ok().filter(|level| (1..=9).contains(level));
            }
            "gzip_proxied" => {
                self.is_for_proxies = directive.arguments().iter().any(|word| word == "any");
            }
            "gzip_vary" => self.varies = first == "on",
            "gzip_static" => {
                self.coded_files = match first {
                    "on" => CodedFiles::On,
                    "always" => CodedFiles::Always,
                    _ => CodedFiles::Off,
                }
            }
            _ => return false,
        }
        true
    }

    fn entries(&self) -> Vec<(String, Value)> {
        let level = Value::table([("gzip", Value::Number(self.level.unwrap_or(1)))]);
        vec![
            ("codings".to_owned(), Value::text("gzip")),
            ("min-size".to_owned(), Value::Number(self.min_length.unwrap_or(20))),
            ("level".to_owned(), level),
        ]
    }

    /// Returns `compression` of responses of servers; `None`: it is off.
    pub(super) fn value(&self) -> Option<(Value, &Rc<Origin>)> {
        let origin = self.on.as_ref()?;
        let mut types: Vec<&str> = vec!["text/html"];
        for own in self.types.iter() {
            match own.as_str() {
                "*" => types = ALL_TYPES.split(' ').collect(),
                own if types.contains(&own) => {}
                own => types.push(own),
            }
        }
        let mut entries = self.entries();
        entries.push(("types".to_owned(), Value::texts(types)));
        // nginx compresses what it may.
        entries.push(("with-credentials".to_owned(), Value::Bool(true)));
        Some((Value::Table(entries), origin))
    }

    /// Returns `compression` of files; `None`: it is off.
    pub(super) fn value_of_files(&self) -> Option<(Value, &Rc<Origin>)> {
        Some((Value::Table(self.entries()), self.on.as_ref()?))
    }

    /// Reports the differences of responses.
    pub(super) fn report(&self, draft: &mut Draft<'_>) {
        let Some(origin) = &self.on else { return };
        let vary = if self.varies { "" } else { "with Vary: Accept-Encoding, " };
        let via = if self.is_for_proxies { "" } else { "also for requests with Via, " };
        let text = format!(
            "{vary}{via}with any status, but not the responses of weir itself, nor under `no-transform`; the server \
             gets both forms of a tag in If-None-Match"
        );
        draft.leave(Kind::Differs, origin, text);
    }
}

/// Writes `compression` of a listener, if all scopes of the config have the same.
pub(super) fn write_compression(
    members: &[&Server],
    common: Common,
    section: &mut Section,
    draft: &mut Draft<'_>,
) {
    let scope: Option<&Scope> = members.first().map(|server| &server.scope);
    let Some(gzip) = scope.map(|scope| &scope.gzip).filter(|_| !common.has_compressions) else { return };
    if let Some((value, origin)) = gzip.value() {
        section.set("compression", value, std::slice::from_ref(origin));
        gzip.report(draft);
    }
}
