//! Files of nginx (`root`, `alias`, `index`, `autoindex`, `try_files`) as `files` of a route.

use std::rc::Rc;

use super::compression::CodedFiles;
use super::location::{Location, LocationKind};
use super::phases::Converter;
use super::scope::PageRule;
use super::variables::implied;
use crate::content::{is_directory, is_fixed_path, is_index_name};
use crate::directive::Directive;
use crate::document::{Origin, Value};
use crate::draft::redirect;
use crate::left::Kind;
use crate::paths::{decoded_exact, is_normal_path, is_unreserved_path};
use crate::rules::{Action, Change, Condition, PathTest, Rule, Test};
use crate::text::{Template, Variable};

/// Directives of a location whose content weir has as files.
const OF_FILES: &str =
    "return set break rewrite if try_files root alias index autoindex limit_except internal";
/// Directives of a page of its own location.
const OF_PAGE: &str = "root alias index internal";
/// Maximum number of names of an index.
const INDEX_MAX: usize = 8;
/// Extensions in an expression: `\.(css|js)$`.
const EXTENSION_STARTS: [&str; 4] = ["\\.", "^.+\\.", ".*\\.", "^.*\\."];

/// Settings of files in a scope.
#[derive(Clone, Debug, Default)]
pub(super) struct FileScope {
    /// Path of the location that `alias` replaces, and the directory.
    pub(super) alias: Option<Rc<(String, String)>>,
    index: Option<Rc<Vec<String>>>,
    lists: bool,
    /// A directive that changes contents, and that weir does not have.
    pub(super) changed: Option<Rc<Origin>>,
}

/// Reason why weir does not serve the files, at a directive.
type Refusal = (Rc<Origin>, String);

/// Requests for which no file is there (`try_files`).
#[derive(Clone, Debug, PartialEq, Eq)]
enum Missing {
    NotFound,
    /// Directories are missing, too.
    NotFoundWithDirectories,
    /// A page of the same directory.
    Page(String),
}

impl FileScope {
    /// Applies a directive. Returns false if it is none of files.
    pub(super) fn apply(&mut self, directive: &Directive) -> bool {
        match directive.name() {
            "index" => self.index = Some(Rc::new(directive.arguments().to_vec())),
            "autoindex" => self.lists = directive.argument(0) == "on",
            "types" => {
                // A table in which HTML is something else keeps browsers from running it.
                let is_html = |row: &Directive| {
                    row.name() == "text/html" && row.arguments().iter().any(|extension| extension == "html")
                };
                self.changed = match directive.inner().iter().any(is_html) {
                    true => self.changed.take(),
                    false => Some(Rc::clone(&directive.origin)),
                };
            }
            _ => return false,
        }
        true
    }

    fn index(&self) -> Vec<&str> {
        match &self.index {
            Some(names) => names.iter().map(String::as_str).collect(),
            None => vec!["index.html"],
        }
    }
}

/// Returns whether a directive that weir does not have may change the content of files.
pub(super) fn changes_files(directive: &Directive) -> bool {
    const OTHERS: &str = "proxy_ fastcgi_ uwsgi_ scgi_ memcached_ grpc_ gzip brotli log_ error_log resolver http2 http3 quic \
        ssl_ mirror limit_ autoindex_ open_file_cache etag if_modified_since real_ip load_module perl_set server_ \
        keepalive upstream zone tcp_ sendfile aio client_ send_ lingering reset_ include expires add_ access_log \
        error_page allow deny auth_ set_real_ip map geo split_clients";
    let name = directive.name();
    directive.arguments() != ["off"] && !OTHERS.split(' ').any(|start| name.starts_with(start))
}

impl Converter<'_, '_> {
    /// Returns the rules of a location that has files, or reports why weir does not serve them.
    pub(super) fn files(&mut self, location: &Location) -> Option<Vec<Rule>> {
        match self.try_files(location) {
            Ok(rules) => Some(rules),
            // It is reported already.
            Err((_, reason)) if reason.is_empty() => None,
            Err((origin, reason)) => {
                let text = format!("{}: {reason}", super::phases::FILES);
                self.draft.leave(Kind::NotSupported, &origin, text);
                None
            }
        }
    }

    fn try_files(&mut self, location: &Location) -> Result<Vec<Rule>, Refusal> {
        let scope = &location.scope;
        let fault = |origin: &Rc<Origin>, text: &str| (Rc::clone(origin), text.to_owned());
        if location.kind == LocationKind::Named {
            return Err(fault(&location.origin, "a named location"));
        }
        if !self.draft.spend(64 + 8 * self.server.locations.len(), &location.origin) {
            return Err(fault(&location.origin, "the import becomes too long"));
        }
        let is_of_files = |name: &str| OF_FILES.split(' ').any(|own| own == name);
        if let Some(other) = location.directives.iter().find(|inner| !is_of_files(inner.name())) {
            return Err(fault(&other.origin, "the content is not that of a file"));
        }
        if let Some(origin) = &scope.files.changed {
            return Err(fault(origin, "this changes contents or types"));
        }
        let is_jump = |page: &&PageRule| {
            page.target.starts_with('@') && page.statuses.iter().any(|status| (403..=405).contains(status))
        };
        if let Some(page) = scope.pages.iter().find(is_jump) {
            return Err(fault(&page.origin, "missing files go to another location"));
        }
        let missing = missing_of(location)?;
        let place = self.place(location, &missing)?;
        let index = scope.files.index();
        let mut rules = Vec::new();
        rules.extend(self.directory_rule(location, &missing, &index)?);
        if let Some(bare) = place.strips.as_deref().filter(|path| !path.ends_with('/') && !place.is_file) {
            let mut template = Template::from(format!("{bare}/").as_str());
            template.push(Variable::Query);
            let origin = implied(&location.origin, "a directory is redirected to the slash at its end");
            let action = redirect(301, template).unwrap_or(Action::Deny(501));
            let is_read = Condition::tests(["GET", "HEAD"].map(|method| Test::Method(method.to_owned())));
            rules.push(Rule::act_when(decoded_exact(bare).and(&is_read), action, &origin));
        }
        let origin = &location.origin;
        match &place.strips {
            Some(path) if place.is_file => {
                let change = Change::RewritePath(path.clone());
                rules.push(Rule::Change(Condition::Always, change, Rc::clone(origin)));
            }
            Some(prefix) => {
                let change = Change::RewritePrefix(prefix.clone(), "/".to_owned());
                rules.push(Rule::Change(Condition::Always, change, Rc::clone(origin)));
            }
            None => {}
        }
        let entries = entries(location, place.root, &index, matches!(missing, Missing::Page(_)));
        self.report_differences(location, &missing);
        let action = move |settings| Action::Files(entries.clone(), settings);
        rules.extend(self.limited(scope, &action, &[], origin));
        Ok(rules)
    }

    /// Returns the directory of a location, and the part of the path that it does not have.
    fn place(&mut self, location: &Location, missing: &Missing) -> Result<Place, Refusal> {
        let place = place_of(location, missing).ok_or_else(|| {
            (Rc::clone(&location.origin), "the directory depends on the request".to_owned())
        })?;
        if let Some(path) = &place.strips
            && !is_normal_path(path)
        {
            return Err((Rc::clone(&location.origin), "its path is not in normal form".to_owned()));
        }
        if !is_directory(&place.root, self.draft.surroundings) {
            let text = format!("the directory {}, missing here: its files are 501", place.root);
            self.draft.leave(Kind::Needs, &location.origin, text);
            return Err((Rc::clone(&location.origin), String::new()));
        }
        if let Missing::Page(page) = missing {
            let names = location.scope.files.index();
            let first = format!("{}/{}", place.root.trim_end_matches('/'), names.first().unwrap_or(&""));
            let is_same = location.file_of(page).as_ref() == Some(&first);
            let name = page.rsplit('/').next().unwrap_or_default();
            let is_inside = page.starts_with(&location.path) && location.kind != LocationKind::Exact;
            if !is_same || !is_inside || self.is_elsewhere(location, name) || is_regex(location) {
                let origin = location.directive("try_files").map_or(&location.origin, |inner| &inner.origin);
                return Err((Rc::clone(origin), "the fallback is no index of the same location".to_owned()));
            }
        }
        Ok(place)
    }

    /// Returns the rule for directories, whose index nginx may look up in another location.
    fn directory_rule(
        &mut self,
        location: &Location,
        missing: &Missing,
        index: &[&str],
    ) -> Result<Option<Rule>, Refusal> {
        if is_regex(location) && extensions(&location.path).is_some() {
            return Ok(None);
        }
        let directories = Condition::path(PathTest::Regex("/$".to_owned()));
        let origin = location.directive("try_files").map_or(&location.origin, |inner| &inner.origin);
        if *missing == Missing::NotFoundWithDirectories {
            return Ok(Some(Rule::act_when(directories, Action::Deny(404), origin)));
        }
        let is_valid = index.len() <= INDEX_MAX && index.iter().all(|name| is_index_name(name));
        if !is_valid {
            return Err((Rc::clone(&location.origin), "its index is not a name".to_owned()));
        }
        let is_exact = location.kind == LocationKind::Exact;
        if is_exact && !location.path.ends_with('/') {
            return Ok(None);
        }
        let is_closed =
            is_exact || is_regex(location) || index.iter().any(|name| self.is_elsewhere(location, name));
        if !is_closed {
            return Ok(None);
        }
        let text = "another location may have the index of a directory: the requests of directories get 501";
        self.draft.leave(Kind::NotSupported, &location.origin, text);
        Ok(Some(Rule::act_when(directories, Action::Deny(501), &location.origin)))
    }

    /// Returns whether another location may have the files of this name.
    fn is_elsewhere(&self, location: &Location, name: &str) -> bool {
        let locations = &self.server.locations;
        locations.iter().any(|other| other.may_take(location, name, true))
    }

    fn report_differences(&mut self, location: &Location, missing: &Missing) {
        let mut text = String::from(
            "types are those of weir, with X-Content-Type-Options; a method but GET and HEAD is 405 (OPTIONS 204), also of \
             a missing file, a directory without an index 404, and so are a link out of the root and an empty segment",
        );
        if location.scope.files.lists {
            text.push_str("; a list has another form, and names that begin with a dot are 404");
        }
        if location.scope.gzip.coded_files == CodedFiles::On {
            text.push_str("; .br and .zst beside a file are served, too, but none without the file");
        }
        if let Missing::Page(_) = missing {
            text.push_str(
                "; the fallback is for names without an extension, and for clients that accept HTML by name",
            );
        }
        self.draft.leave(Kind::Differs, &location.origin, text);
    }
}

/// Directory of a location's files.
struct Place {
    root: String,
    /// Prefix that the paths of the files do not have, or of one file its path in the directory.
    strips: Option<String>,
    is_file: bool,
}

fn place_of(location: &Location, missing: &Missing) -> Option<Place> {
    let scope = &location.scope;
    let Some(alias) = scope.files.alias.as_deref() else {
        let root = scope.root.as_deref().filter(|root| is_fixed_path(root))?;
        let page_directory = match missing {
            Missing::Page(page) => page.rsplit_once('/')?.0,
            _ => "",
        };
        let root = format!("{}{page_directory}", root.trim_end_matches('/'));
        let root = if root.is_empty() { "/".to_owned() } else { root };
        // A page of a directory is the index of that directory.
        let strips = match page_directory {
            "" => None,
            page_directory => {
                let is_same = location.path.trim_end_matches('/') == page_directory;
                is_same.then_some(())?;
                Some(location.path.clone())
            }
        };
        return Some(Place { root, strips, is_file: false });
    };
    let (path, target) = alias;
    if !is_fixed_path(target) || (is_regex(location) && *path == location.path) {
        return None;
    }
    if location.kind == LocationKind::Exact && *path == location.path {
        let (root, name) = target.rsplit_once('/').filter(|(_, name)| is_index_name(name))?;
        let root = if root.is_empty() { "/" } else { root };
        return Some(Place { root: root.to_owned(), strips: Some(format!("/{name}")), is_file: true });
    }
    // nginx replaces bytes: without a slash at both ends, or at none, names are joined.
    if path.ends_with('/') && !target.ends_with('/') {
        return None;
    }
    let strips = (path != "/").then(|| path.clone());
    Some(Place { root: target.clone(), strips, is_file: false })
}

fn entries(location: &Location, root: String, index: &[&str], is_spa: bool) -> Vec<(String, Value)> {
    let (files, gzip) = (&location.scope.files, &location.scope.gzip);
    let mut entries = vec![("root".to_owned(), Value::text(root))];
    if index != ["index.html"] && index.iter().all(|name| is_index_name(name)) {
        entries.push(("index".to_owned(), Value::texts(index.iter().copied())));
    }
    if is_spa {
        entries.push(("spa".to_owned(), Value::Bool(true)));
    }
    // A list of nginx has no hidden names.
    let key = if files.lists { "list" } else { "hidden" };
    entries.push((key.to_owned(), Value::Bool(true)));
    if gzip.coded_files != CodedFiles::On {
        entries.push(("precompressed".to_owned(), Value::Bool(false)));
    }
    if let Some((value, _)) = gzip.value_of_files() {
        entries.push(("compression".to_owned(), value));
    }
    entries
}

/// Returns what `try_files` of a location does with a request without a file.
fn missing_of(location: &Location) -> Result<Missing, Refusal> {
    let fault = |origin: &Rc<Origin>, text: &str| Err((Rc::clone(origin), text.to_owned()));
    if location.scope.gzip.coded_files == CodedFiles::Always {
        return fault(&location.origin, "gzip_static always");
    }
    let Some(directive) = location.directive("try_files") else { return Ok(Missing::NotFound) };
    let words: Vec<&str> = directive.arguments().iter().map(String::as_str).collect();
    match words[..] {
        ["$uri", "$uri/", "=404"] => Ok(Missing::NotFound),
        ["$uri", "=404"] => Ok(Missing::NotFoundWithDirectories),
        ["$uri", "$uri/", page] | ["$uri", page] if is_unreserved_path(page) && !page.ends_with('/') => {
            Ok(Missing::Page(page.to_owned()))
        }
        _ => fault(&directive.origin, "of `try_files`, $uri, $uri/ and then =404 or an index"),
    }
}

fn is_regex(location: &Location) -> bool {
    matches!(location.kind, LocationKind::Regex | LocationKind::RegexWithoutCase)
}

/// Returns the extensions of an expression that matches exactly the paths with one of them; `None`: it is another one.
fn extensions(regex: &str) -> Option<Vec<&str>> {
    let end = EXTENSION_STARTS.iter().find_map(|start| regex.strip_prefix(start))?.strip_suffix('$')?;
    let list =
        end.strip_prefix("(?:").or_else(|| end.strip_prefix('(')).and_then(|list| list.strip_suffix(')'));
    let extensions: Vec<&str> = list.unwrap_or(end).split('|').collect();
    let is_name = |name: &&str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    extensions.iter().all(is_name).then_some(extensions)
}

impl Location {
    /// Returns whether it may have the files of a name in the directories of another location, and does something
    /// else with them than to serve the same files. `is_top`: it is a location of the server itself.
    fn may_take(&self, other: &Self, name: &str, is_top: bool) -> bool {
        if Rc::ptr_eq(&self.origin, &other.origin) {
            return self.takes_inside(other, name);
        }
        let last = self.path.rsplit('/').next().unwrap_or_default();
        let is_near = self.path.starts_with(&other.path) || is_regex(other);
        match self.kind {
            LocationKind::Named => false,
            LocationKind::Exact => is_near && last == name && !self.is_page_of(other),
            LocationKind::Regex | LocationKind::RegexWithoutCase => {
                let is_skipped = is_top && other.kind == LocationKind::Preferred;
                let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
                let is_free = extensions(&self.path).is_some_and(|extensions| {
                    !extensions.iter().any(|own| own.eq_ignore_ascii_case(extension))
                });
                !is_skipped && !is_free
            }
            LocationKind::Prefix | LocationKind::Preferred => {
                let is_around = is_near || other.path.starts_with(&self.path);
                (is_near && !last.is_empty() && name.starts_with(last))
                    || (is_around && self.takes_inside(other, name))
            }
        }
    }

    fn takes_inside(&self, other: &Self, name: &str) -> bool {
        self.inner.iter().any(|inner| inner.may_take(other, name, false))
    }

    /// Returns whether it serves its path as another location does, without rules of its own.
    fn is_page_of(&self, other: &Self) -> bool {
        let scope = &self.scope;
        let is_open = scope.access.is_empty()
            && scope.auth.is_empty()
            && scope.refused.is_none()
            && scope.limits.is_empty()
            && scope.files.changed.is_none();
        let is_of_page = |inner: &Directive| OF_PAGE.split(' ').any(|name| name == inner.name());
        let file = self.file_of(&self.path);
        is_open
            && self.directives.iter().all(is_of_page)
            && file.is_some()
            && file == other.file_of(&self.path)
    }
}
