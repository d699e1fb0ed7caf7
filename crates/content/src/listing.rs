//! Lists of directories, as HTML and as JSON. Everything that is not markup passes through `Escaped`.

use std::collections::BinaryHeap;
use std::ffi::{CStr, CString};
use std::fmt::{self, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, Stat, fstat, statat};
use serde::Serialize;
use server_shell::date::format_http_date;

use crate::root::Root;
use crate::target::{encode_segment, is_served_name};

/// Maximum number of names in a list; a longer directory is cut off, and the list reports it.
pub const NAMES_MAX: usize = 10_000;
/// Maximum number of names that are read from a directory, so that a core is not held up for long. The list has
/// the first ones of these.
const NAMES_READ_MAX: usize = 100_000;

/// Text that is safe in HTML, in an element and in a quoted attribute.
struct Escaped<'t>(&'t str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                // Controls have no meaning in a name that is shown.
                character if character.is_control() => f.write_char('\u{fffd}')?,
                character => f.write_char(character)?,
            }
        }
        Ok(())
    }
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ListedName {
    /// Name; bytes that are no UTF-8 are replaced.
    pub(crate) name: String,
    pub(crate) href: String,
    /// `directory` or `file`.
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    /// Size in bytes; only files have one.
    pub(crate) size: Option<u64>,
    /// Time of the last modification, as in HTTP.
    pub(crate) modified: String,
}

/// Names of a directory, directories first.
#[derive(Debug, Serialize)]
pub(crate) struct DirectoryList {
    names: Vec<ListedName>,
    /// True if the directory has more names than [`NAMES_MAX`].
    is_cut_off: bool,
}

/// A name in the order of the list: directories first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct OrderedName {
    is_file: bool,
    name: CString,
}

/// Reads the names below `path` that are served: no hidden ones unless `shows_hidden`, no links out of the
/// root, no names that no target can have, and only files and directories.
pub(crate) fn read(
    root: &Root,
    path: &[u8],
    directory: OwnedFd,
    shows_hidden: bool,
) -> rustix::io::Result<DirectoryList> {
    let stat_of = |name: &CStr| stat_target(root, path, &directory, name);
    // The greatest name is first, and leaves if there are too many.
    let mut first_names = BinaryHeap::new();
    let mut is_cut_off = false;
    for (count, entry) in Dir::read_from(&directory)?.enumerate() {
        if count == NAMES_READ_MAX {
            is_cut_off = true;
            break;
        }
        let entry = entry?;
        let name = entry.file_name();
        let is_hidden = name.to_bytes().starts_with(b".");
        if !is_served_name(name.to_bytes()) || (is_hidden && !shows_hidden) {
            continue;
        }
        let is_file = match entry.file_type() {
            FileType::Directory => false,
            FileType::RegularFile => true,
            FileType::Symlink | FileType::Unknown => match stat_of(name) {
                Some(stat) => FileType::from_raw_mode(stat.st_mode) != FileType::Directory,
                None => continue,
            },
            _ => continue,
        };
        first_names.push(OrderedName { is_file, name: name.to_owned() });
        if first_names.len() > NAMES_MAX {
            first_names.pop();
            is_cut_off = true;
        }
    }
    let names = first_names.into_sorted_vec();
    let names = names.iter().filter_map(|ordered| describe(&ordered.name, &stat_of(&ordered.name)?));
    Ok(DirectoryList { names: names.collect(), is_cut_off })
}

/// Reads the properties of a name, or of the target of a link; `None`: it is not served.
fn stat_target(root: &Root, path: &[u8], directory: &OwnedFd, name: &CStr) -> Option<Stat> {
    let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
        return Some(stat);
    }
    let full = [path, if path.is_empty() { b"" } else { b"/" }, name.to_bytes()].concat();
    root.open_name(&full).and_then(fstat).ok()
}

fn describe(name: &CStr, stat: &Stat) -> Option<ListedName> {
    let (kind, size) = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => ("directory", None),
        FileType::RegularFile => ("file", Some(u64::try_from(stat.st_size).unwrap_or(0))),
        _ => return None,
    };
    let mut href = String::new();
    encode_segment(name.to_bytes(), &mut href);
    if kind == "directory" {
        href.push('/');
    }
    let modified = format_http_date(u64::try_from(stat.st_mtime).unwrap_or(0));
    let name = String::from_utf8_lossy(name.to_bytes()).into_owned();
    Some(ListedName { name, href, kind, size, modified })
}

impl DirectoryList {
    pub(crate) fn to_json(&self) -> String {
        // Only a map with keys that are no strings or numbers can fail, and there is none.
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }

    /// Returns the list as HTML. `title` is the path for people.
    pub(crate) fn to_html(&self, title: &str) -> String {
        let mut page = String::new();
        // Writing to a String cannot fail.
        let _ = write!(
            page,
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width\"><title>{0}</title>\n\
             <style>body{{font:16px system-ui,sans-serif;margin:1em;max-width:60em}}\
             table{{border-collapse:collapse;width:100%}}td,th{{padding:.2em .6em;text-align:left}}\
             td:nth-child(2){{text-align:right}}tr:hover{{background:#8882}}\
             :root{{color-scheme:light dark}}</style></head>\n<body><h1>{0}</h1>\n\
             <table><tr><th>Name</th><th>Size</th><th>Modified</th></tr>\n",
            Escaped(title)
        );
        if title != "/" {
            page += "<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n";
        }
        for name in &self.names {
            let slash = if name.kind == "directory" { "/" } else { "" };
            let size = name.size.map(|size| size.to_string()).unwrap_or_default();
            let _ = writeln!(
                page,
                "<tr><td><a href=\"{}\">{}{slash}</a></td><td>{size}</td><td>{}</td></tr>",
                Escaped(&name.href),
                Escaped(&name.name),
                Escaped(&name.modified),
            );
        }
        page += "</table>\n";
        if self.is_cut_off {
            let _ = writeln!(page, "<p>The directory has more names; these are the first {NAMES_MAX}.</p>");
        }
        page + "</body></html>\n"
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn names_are_escaped_and_sorted_and_secrets_are_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir_all(path("root/z dir")).unwrap();
        fs::write(path("root/<b>&\"'.txt"), "12345").unwrap();
        fs::write(path("root/.hidden"), "").unwrap();
        fs::write(path("secret"), "").unwrap();
        std::os::unix::fs::symlink("../secret", path("root/outside")).unwrap();
        std::os::unix::fs::symlink("z dir", path("root/link")).unwrap();
        let root = Root::open(&path("root"), true).unwrap();
        let list = read(&root, b"", root.open_beneath(b"").unwrap(), false).unwrap();
        let names: Vec<(&str, &str)> =
            list.names.iter().map(|name| (name.name.as_str(), name.href.as_str())).collect();
        assert_eq!(
            names,
            [("link", "link/"), ("z dir", "z%20dir/"), ("<b>&\"'.txt", "%3Cb%3E%26%22%27.txt")]
        );
        let page = list.to_html("/<i>");
        assert!(page.contains(">&lt;b&gt;&amp;&quot;&#39;.txt</a></td><td>5</td>"), "{page}");
        assert!(
            page.contains("<h1>/&lt;i&gt;</h1>") && page.contains("href=\"../\"") && !page.contains("<b>")
        );
        let json: serde_json::Value = serde_json::from_str(&list.to_json()).unwrap();
        assert_eq!((&json["names"][2]["size"], &json["names"][1]["type"]), (&5.into(), &"directory".into()));
        assert_eq!(json["is_cut_off"], false);
        let all = read(&root, b"", root.open_beneath(b"").unwrap(), true).unwrap();
        assert!(all.names.iter().any(|name| name.name == ".hidden"));
    }

    #[test]
    fn only_names_that_a_target_can_have_are_listed() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["a\\b", "a\nb", "a\u{7f}", "a b%2f", "a:b", "é", "..."] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        let root = Root::open(directory.path(), true).unwrap();
        let list = read(&root, b"", root.open_beneath(b"").unwrap(), true).unwrap();
        let hrefs: Vec<&str> = list.names.iter().map(|name| name.href.as_str()).collect();
        assert_eq!(hrefs, ["...", "a%20b%252f", "a%3Ab", "%C3%A9"]);
        for href in hrefs {
            assert!(crate::target::parse(&format!("/{href}"), true).is_ok(), "{href}");
        }
    }

    #[test]
    fn a_long_list_has_the_first_names() {
        let directory = tempfile::tempdir().unwrap();
        // Not in the order of their creation, which many file systems keep.
        for number in (0..NAMES_MAX + 50).rev() {
            fs::File::create(directory.path().join(format!("{number:05}"))).unwrap();
        }
        fs::create_dir(directory.path().join("z")).unwrap();
        let root = Root::open(directory.path(), true).unwrap();
        let list = read(&root, b"", root.open_beneath(b"").unwrap(), false).unwrap();
        let names: Vec<&str> = list.names.iter().map(|name| name.name.as_str()).collect();
        assert!(list.is_cut_off && names.len() == NAMES_MAX);
        assert_eq!((names[0], names[1], names[NAMES_MAX - 1]), ("z", "00000", "09998"));
        assert!(names[1..].is_sorted());
    }
}
