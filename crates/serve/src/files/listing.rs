//! Lists of directories, as HTML and as JSON. Everything that is not markup passes through [`Escaped`].

use std::fmt::{self, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, fstat, statat};
use serde::Serialize;
use server_shell::date::format_http_date;

use super::root::Root;
use super::target::encode_segment;

/// Maximum number of names in a list; a longer directory is cut off, and the list reports it.
pub(crate) const NAMES_MAX: usize = 10_000;

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

/// One name in a directory.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ListedName {
    /// Name; bytes that are no UTF-8 are replaced.
    pub(crate) name: String,
    /// Name in a URL.
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

/// Reads the names below `path` that are served: no hidden ones unless `shows_hidden`, no links out of the
/// root, and only files and directories.
pub(crate) fn read(
    root: &Root,
    path: &[u8],
    directory: OwnedFd,
    shows_hidden: bool,
) -> rustix::io::Result<DirectoryList> {
    let mut names = Vec::new();
    let mut is_cut_off = false;
    let reader = Dir::read_from(&directory)?;
    for entry in reader {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") || (name.starts_with(b".") && !shows_hidden) {
            continue;
        }
        if names.len() == NAMES_MAX {
            is_cut_off = true;
            break;
        }
        let Ok(mut stat) = statat(&directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) else { continue };
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            let full = [path, if path.is_empty() { b"" } else { b"/" }, name].concat();
            match root.open_name(&full).and_then(fstat) {
                Ok(target) => stat = target,
                Err(_) => continue,
            }
        }
        let (kind, size) = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => ("directory", None),
            FileType::RegularFile => ("file", Some(u64::try_from(stat.st_size).unwrap_or(0))),
            _ => continue,
        };
        let mut href = String::new();
        encode_segment(name, &mut href);
        if kind == "directory" {
            href.push('/');
        }
        let modified = format_http_date(u64::try_from(stat.st_mtime).unwrap_or(0));
        let name = String::from_utf8_lossy(name).into_owned();
        names.push(ListedName { name, href, kind, size, modified });
    }
    names.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    Ok(DirectoryList { names, is_cut_off })
}

impl DirectoryList {
    /// Returns the list as JSON.
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
            let _ = writeln!(page, "<p>Only {NAMES_MAX} names are shown.</p>");
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
}
