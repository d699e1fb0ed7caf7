//! Converts `files` of a route.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use content::codings::Coding;
use content::compress::CompressionLevels;
use content::plan::{FilesPlan, FilesSource};
use record::document::{Located, Problems};

use crate::plan::Action;

use super::compression::parse_compression;
use super::value::Section;

/// Number of lookups that a thread keeps for a route; each may hold a descriptor.
const CACHE_ENTRIES: usize = 256;

pub(super) fn parse_files(section: &Section, problems: &mut Problems) -> Action {
    let root = section.text("root").and_then(|text| parse_root(&text, problems));
    let mut plan = FilesPlan::new(FilesSource::Directory(root.unwrap_or_default()));
    plan.index = section.texts("index").into_iter().map(|text| parse_name(&text, problems)).collect();
    plan.lists = section.flag("list");
    plan.is_spa = section.flag("spa");
    plan.serves_hidden = section.flag("hidden");
    plan.follows_symlinks = section.flag("symlinks");
    plan.uses_precompressed = section.flag("precompressed");
    plan.cache_entries = CACHE_ENTRIES;
    if let Some(compression) = parse_compression(section, problems).and_then(|given| given.over(None)) {
        let levels = Coding::ALL
            .map(|coding| compression.codings.contains(&coding).then(|| compression.level(coding)));
        plan.compression = CompressionLevels::new(levels);
        plan.compress_bytes_min = compression.bytes_min;
        plan.compress_memory_bytes = compression.encoder_bytes_max;
    }
    if let Some(value) = section.text("cache-control") {
        let is_valid = wire::encode::check_field_value(value.value.as_bytes());
        if problems.ok_or_report(value.offset, is_valid).is_some() && !value.value.is_empty() {
            wire::encode::field(&mut plan.cache_control, "Cache-Control", value.value.as_bytes());
        }
    }
    Action::Files(Arc::new(plan))
}

fn parse_root(text: &Located<Box<str>>, problems: &mut Problems) -> Option<PathBuf> {
    let path = Path::new(&*text.value);
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => std::path::absolute(path).ok(),
        Ok(_) => {
            problems.add_error(text.offset, format!("'{}' is no directory", text.value));
            None
        }
        Err(error) => {
            problems.add_error(text.offset, format!("{}: {error}", text.value));
            None
        }
    }
}

fn parse_name(text: &Located<Box<str>>, problems: &mut Problems) -> String {
    let name = &*text.value;
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        problems.add_error(text.offset, format!("'{name}' is not the name of a file"));
    }
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use crate::config::parse;

    fn messages(files: &str, route: &str) -> Vec<String> {
        let text =
            format!("[listener.web]\nbind = '127.0.0.1:0'\n[[route]]\n{route}\nfiles = {{ {files} }}\n");
        let messages = parse("t", &text).map_or_else(|problems| problems, |parsed| parsed.warnings);
        messages.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn wrong_and_useless_values_have_a_place() {
        for (files, route, part) in [
            ("root = '/no/such'", "", "t:5:18: /no/such: "),
            ("root = '/etc/passwd'", "", "is no directory"),
            ("index = 'x'", "", "root"),
            ("root = '/etc', index = 'a/b'", "", "'a/b' is not the name of a file"),
            ("root = '/etc', cache-control = \"a\\nb\"", "", "t:5:"),
            ("root = '/etc', compression = { codings = 'lzma' }", "", "'lzma'"),
            ("root = '/etc'", "retries = 1", "'retries' has no effect with files"),
            ("root = '/etc'", "compression = true", "'compression' has no effect with files"),
            ("root = '/etc'", "deny = true", "exactly one action"),
        ] {
            let messages = messages(files, route);
            assert!(messages.len() == 1 && messages[0].contains(part), "{files} {route}: {messages:#?}");
        }
        assert!(messages("root = '/etc'", "path-prefix = '/a'\nrewrite-prefix = '/'").is_empty());
    }
}
