//! `root` and `file_server` of Caddy as `files` of a route.

use std::rc::Rc;

use crate::content::{is_directory, is_fixed_path, is_index_name};
use crate::directive::Directive;
use crate::document::{Origin, Value};
use crate::draft::Draft;
use crate::left::Kind;
use crate::rules::{Action, Change, Condition, Rule};

/// Directives beside `try_files` for which the rewritten path is that of the files alone.
const BESIDE_FALLBACK: &str =
    "root encode header request_header file_server try_files log_skip skip_log log_append log_name";

/// Returns the change for a directory.
pub(super) fn root(path: &str, origin: &Rc<Origin>, draft: &mut Draft<'_>) -> Change {
    let path = path.trim_end_matches('/');
    let path = if path.is_empty() { "/" } else { path };
    if !is_fixed_path(path) {
        return Change::FileRoot(Err("the directory is no complete path: its files are 501"));
    }
    if !is_directory(path, draft.surroundings) {
        return Change::FileRoot(Err("the directory is missing here: its files are 501"));
    }
    // Caddy does not serve its own config.
    let start = format!("{}/", path.trim_end_matches('/'));
    let name = origin.file.rsplit('/').next().unwrap_or_default();
    if origin.file.starts_with(&start) || draft.surroundings.exists(&format!("{start}{name}")) {
        return Change::FileRoot(Err("the config is in the directory, whose files are 501"));
    }
    Change::FileRoot(Ok(path.to_owned()))
}

/// Returns the refusal of files whose contents a directive changes.
pub(super) fn refusal(directive: &Directive) -> Option<Rule> {
    let reason = "their contents are not those of files: they are 501";
    let change = Change::FileRoot(Err(reason));
    matches!(directive.name(), "fs" | "templates" | "intercept")
        .then(|| Rule::Change(Condition::Always, change, Rc::clone(&directive.origin)))
}

/// Returns the page of `try_files` in a block that has only files: the index for missing paths.
pub(super) fn fallback_page(block: &[&Directive]) -> Option<String> {
    let count = |name: &str| block.iter().filter(|directive| directive.name() == name).count();
    let is_beside = |directive: &&Directive| BESIDE_FALLBACK.split(' ').any(|name| name == directive.name());
    if count("try_files") != 1 || count("file_server") != 1 || !block.iter().all(is_beside) {
        return None;
    }
    let files = block.iter().find(|directive| directive.name() == "file_server")?;
    if files.arguments().iter().any(|word| word != "browse" && word != "*") {
        return None;
    }
    let directive = block.iter().find(|directive| directive.name() == "try_files")?;
    let words: Vec<&str> = directive.arguments().iter().map(String::as_str).collect();
    match words[..] {
        ["{path}", page] | ["{path}", "{path}/", page] if directive.block.is_none() => {
            page.strip_prefix('/').filter(|name| is_index_name(name)).map(str::to_owned)
        }
        _ => None,
    }
}

/// Returns the rules of a `file_server`; `page` is the index for missing paths.
pub(super) fn rules(
    directive: &Directive,
    words: &[&str],
    page: Option<&str>,
    draft: &mut Draft<'_>,
) -> Vec<Rule> {
    let origin = &directive.origin;
    let refused = || vec![Rule::Act(Action::Deny(501), vec![Rc::clone(origin)])];
    let mut index: Vec<String> = vec!["index.html".to_owned(), "index.txt".to_owned()];
    let (mut lists, mut hidden, mut precompressed, mut changes) = (false, true, false, Vec::new());
    let mut is_known = true;
    match words {
        [] => {}
        ["browse"] => lists = true,
        _ => is_known = false,
    }
    for inner in directive.inner() {
        match (inner.name(), inner.arguments()) {
            ("browse", []) if inner.block.is_none() => lists = true,
            ("root", [path]) => changes.push(root(path, &inner.origin, draft)),
            ("index", names) => index = names.to_vec(),
            ("precompressed", _) => precompressed = true,
            ("hide", names) if names.iter().all(|name| name.starts_with('.') && !name.contains('/')) => {
                hidden = false;
            }
            _ => is_known = false,
        }
    }
    let is_index = !index.is_empty() && index.len() <= 8 && index.iter().all(|name| is_index_name(name));
    let is_page = page.is_none_or(|page| index.first().is_some_and(|first| first == page));
    if !is_known || !is_index || !is_page {
        let text = "weir does not serve these files as Caddy does, and responds 501: browse, root, index, precompressed, \
                    hidden names in `hide`, and the first index for missing paths";
        draft.leave(Kind::NotSupported, origin, text);
        return refused();
    }
    report_differences(origin, page.is_some(), draft);
    let mut entries = vec![("index".to_owned(), Value::texts(index))];
    for (key, value) in [("list", lists), ("spa", page.is_some()), ("hidden", hidden)] {
        if value {
            entries.push((key.to_owned(), Value::Bool(true)));
        }
    }
    if !precompressed {
        entries.push(("precompressed".to_owned(), Value::Bool(false)));
    }
    let changes =
        changes.into_iter().map(|change| Rule::Change(Condition::Always, change, Rc::clone(origin)));
    let mut rules: Vec<Rule> = changes.collect();
    rules.push(Rule::Act(Action::Files(entries, Vec::new()), vec![Rc::clone(origin)]));
    rules
}

fn report_differences(origin: &Origin, has_fallback: bool, draft: &mut Draft<'_>) {
    let fallback = match has_fallback {
        true => "; the fallback is for names without an extension, and for clients that accept HTML by name",
        false => "",
    };
    let text = format!(
        "types are those of weir, with X-Content-Type-Options; a method but GET and HEAD is 405 (OPTIONS 204), a redirect to the slash 301, \
         and a link out of the root 404{fallback}"
    );
    draft.leave(Kind::Differs, origin, text);
}

#[cfg(test)]
mod tests {
    use crate::fuzzing::NoSurroundings;
    use crate::{Program, convert};

    fn config(site: &str) -> (String, bool) {
        let text = format!(":80 {{\n{site}\n}}\n");
        let import = convert(Program::Caddy, "t", &text, &mut NoSurroundings).unwrap();
        (import.config, import.report.iter().any(|left| left.kind.is_left()))
    }

    #[test]
    fn a_file_server_is_files() {
        let root = "root * /usr/share\n";
        for (site, part) in [
            (
                "file_server",
                "index = [\"index.html\", \"index.txt\"], hidden = true, precompressed = false }",
            ),
            ("file_server browse", "list = true"),
            ("file_server {\n index a.html\n precompressed br gzip\n hide .git\n }", "index = \"a.html\" }"),
            (
                "encode gzip\nfile_server",
                "compression = { codings = \"gzip\", min-size = 512, level = { gzip = 5 } } }",
            ),
            ("try_files {path} /index.html\nfile_server", "spa = true"),
            ("handle_path /a/* {\n file_server\n }\n respond x", "rewrite-prefix = \"/\""),
            (
                "handle /api/* {\n reverse_proxy a:1\n }\nhandle {\n try_files {path} /index.html\n file_server\n }",
                "spa = true",
            ),
        ] {
            let (text, is_left) = config(&format!("{root}{site}"));
            assert!(
                text.contains("files = { root = \"/usr/share\"") && text.contains(part),
                "{site}\n{text}"
            );
            assert!(!is_left, "{site}\n{text}");
        }
    }

    #[test]
    fn other_file_servers_stay_refused() {
        let root = "root * /usr/share\n";
        for site in [
            "file_server",
            "root * /no/such\nfile_server",
            "root * share\nfile_server",
            "root * /usr/{host}\nfile_server",
            &format!("{root}templates\nfile_server"),
            &format!("{root}file_server {{\n hide secret\n }}"),
            &format!("{root}file_server {{\n pass_thru\n }}"),
            &format!("{root}file_server {{\n status 403\n }}"),
            &format!("{root}file_server {{\n root /no/such\n }}"),
            &format!("{root}try_files {{path}} /other.html\nfile_server"),
            &format!("{root}try_files {{path}} /index.php\nfile_server"),
            &format!(
                "{root}try_files {{path}} /index.html\nhandle /api/* {{\n reverse_proxy a:1\n }}\nfile_server"
            ),
        ] {
            let (text, is_left) = config(site);
            assert!(!text.contains("files = {") && text.contains("deny = 501") && is_left, "{site}\n{text}");
        }
        // A root without files needs no directory.
        let (text, is_left) = config("root * /no/such\nreverse_proxy a:1");
        assert!(!is_left && !text.contains("501"), "{text}");
    }
}
