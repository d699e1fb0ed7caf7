//! A file below a folder as a page, and nothing that is elsewhere, whatever the path and whatever links
//! lie in the folder. There are no listings of folders.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::{Body, HTML, JSON, Page, TEXT};

/// The largest file that is served: what a browser still shows.
pub const FILE_BYTES_MAX: u64 = 64 << 20;

/// What files are, by how their names end.
const KINDS: &[(&str, &str)] = &[
    ("html", HTML),
    ("json", JSON),
    ("md", TEXT),
    ("toml", TEXT),
    ("folded", TEXT),
    ("txt", TEXT),
    ("csv", "text/csv; charset=utf-8"),
];
/// What any other file is.
const UNKNOWN: &str = "application/octet-stream";

/// The file at `parts` below `folder`: 404 when there is none, when it is no plain file, when a part
/// begins with a dot, or when a link leads out of the folder; 413 when it is too large.
///
/// Links are followed before it is opened. Who could change one in between can write to the folder, and
/// so is whoever serves it.
#[must_use]
pub fn file_below(folder: &Path, parts: &[&str]) -> Page {
    let is_name = |part: &&str| {
        !part.is_empty() && !part.starts_with('.') && !part.contains(['/', '\\', '\0'])
    };
    if parts.is_empty() || !parts.iter().all(is_name) {
        return Page::missing();
    }
    let path = parts.iter().fold(folder.to_owned(), |path, part| path.join(part));
    let (Ok(root), Ok(path)) = (folder.canonicalize(), path.canonicalize()) else {
        return Page::missing();
    };
    let is_file = path.metadata().is_ok_and(|found| found.is_file());
    if !path.starts_with(&root) || !is_file {
        return Page::missing();
    }
    open(&path).unwrap_or_else(|_| Page::missing())
}

fn open(path: &Path) -> std::io::Result<Page> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    if bytes > FILE_BYTES_MAX {
        return Ok(Page::text(413, "the file is larger than what is served here, 64 MiB\n"));
    }
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let kind = KINDS.iter().find(|(known, _)| *known == ending);
    let content_type = kind.map_or(UNKNOWN, |(_, kind)| kind);
    let body = if content_type == HTML {
        // Its policy names what stands in it, so it is read before the head goes.
        let mut content = Vec::new();
        file.take(bytes).read_to_end(&mut content)?;
        Body::Bytes(content)
    } else {
        Body::File(file, bytes)
    };
    Ok(Page { status: 200, content_type, body })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_plain_files_below_the_folder_are_served() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("in");
        fs::create_dir_all(folder.join("deep")).unwrap();
        fs::write(outer.path().join("secret.json"), "{}").unwrap();
        fs::write(folder.join("a.json"), "{}").unwrap();
        fs::write(folder.join(".part"), "x").unwrap();
        fs::write(folder.join("deep/b.md"), "b").unwrap();
        symlink(outer.path().join("secret.json"), folder.join("out.json")).unwrap();
        symlink("../secret.json", folder.join("up.json")).unwrap();
        symlink(outer.path(), folder.join("outer")).unwrap();
        symlink("a.json", folder.join("inner.json")).unwrap();
        symlink("/proc/self/environ", folder.join("environ")).unwrap();
        let status = |parts: &[&str]| file_below(&folder, parts).status;
        assert_eq!(status(&["a.json"]), 200);
        assert_eq!(status(&["deep", "b.md"]), 200);
        assert_eq!(status(&["inner.json"]), 200);
        for parts in [
            &["out.json"][..],
            &["up.json"],
            &["outer", "secret.json"],
            &["environ"],
            &["..", "secret.json"],
            &["deep", "..", "a.json"],
            &["../secret.json"],
            &["/etc/passwd"],
            &["deep"],
            &["deep", ""],
            &[".part"],
            &["nothing"],
            &[""],
            &[],
        ] {
            assert_eq!(status(parts), 404, "{parts:?}");
        }
    }

    #[test]
    fn a_file_that_is_too_large_is_not_sent() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("large.json")).unwrap();
        file.set_len(FILE_BYTES_MAX + 1).unwrap();
        assert_eq!(file_below(folder.path(), &["large.json"]).status, 413);
    }
}
