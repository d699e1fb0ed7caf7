//! Serves a file below a directory as a page, and no file elsewhere, with any path and any links in
//! the directory. There are no directory listings.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::{HTML, JSON, PageBody, TEXT, WebPage};

/// Maximum size of a served file: what a browser still shows.
pub const FILE_BYTES_MAX: u64 = 64 << 20;

/// Content types by the extension of the file name.
const CONTENT_TYPES: &[(&str, &str)] = &[
    ("html", HTML),
    ("json", JSON),
    ("md", TEXT),
    ("toml", TEXT),
    ("folded", TEXT),
    ("txt", TEXT),
    ("csv", "text/csv; charset=utf-8"),
];
const DEFAULT_CONTENT_TYPE: &str = "application/octet-stream";

/// Returns the file at `segments` below a directory. Returns 404 if there is none, if it is no
/// regular file, if a part begins with a dot, or if a link leads out of the directory; 413 if it is
/// too large.
///
/// Links are resolved before the file is opened. A user who could change one in between can
/// write to the directory, and is therefore trusted like the server itself.
pub fn serve_file(directory: &Path, segments: &[&str]) -> WebPage {
    let is_valid_segment =
        |part: &&str| !part.is_empty() && !part.starts_with('.') && !part.contains(['/', '\\', '\0']);
    if segments.is_empty() || !segments.iter().all(is_valid_segment) {
        return WebPage::not_found();
    }
    let path = segments.iter().fold(directory.to_owned(), |path, part| path.join(part));
    let (Ok(root), Ok(path)) = (directory.canonicalize(), path.canonicalize()) else {
        return WebPage::not_found();
    };
    let is_file = path.metadata().is_ok_and(|metadata| metadata.is_file());
    if !path.starts_with(&root) || !is_file {
        return WebPage::not_found();
    }
    open_page(&path).unwrap_or_else(|_| WebPage::not_found())
}

fn open_page(path: &Path) -> std::io::Result<WebPage> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    if bytes > FILE_BYTES_MAX {
        return Ok(WebPage::text(413, "the file is larger than the maximum, 64 MiB\n"));
    }
    let extension = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let known_type = CONTENT_TYPES.iter().find(|(known, _)| *known == extension);
    let content_type = known_type.map_or(DEFAULT_CONTENT_TYPE, |(_, kind)| kind);
    let body = if content_type == HTML {
        // Its policy contains digests of its content, so it is read before the head is sent.
        let mut content = Vec::new();
        file.take(bytes).read_to_end(&mut content)?;
        PageBody::Bytes(content)
    } else {
        PageBody::File(file, bytes)
    };
    Ok(WebPage { status: 200, content_type, body, may_fetch: false })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_regular_files_below_the_directory_are_served() {
        let outer = tempfile::tempdir().unwrap();
        let directory = outer.path().join("in");
        fs::create_dir_all(directory.join("deep")).unwrap();
        fs::write(outer.path().join("secret.json"), "{}").unwrap();
        fs::write(directory.join("a.json"), "{}").unwrap();
        fs::write(directory.join(".part"), "x").unwrap();
        fs::write(directory.join("deep/b.md"), "b").unwrap();
        symlink(outer.path().join("secret.json"), directory.join("out.json")).unwrap();
        symlink("../secret.json", directory.join("up.json")).unwrap();
        symlink(outer.path(), directory.join("outer")).unwrap();
        symlink("a.json", directory.join("inner.json")).unwrap();
        symlink("/proc/self/environ", directory.join("environ")).unwrap();
        let status = |segments: &[&str]| serve_file(&directory, segments).status;
        assert_eq!(status(&["a.json"]), 200);
        assert_eq!(status(&["deep", "b.md"]), 200);
        assert_eq!(status(&["inner.json"]), 200);
        for segments in [
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
            assert_eq!(status(segments), 404, "{segments:?}");
        }
    }

    #[test]
    fn a_file_that_is_too_large_is_not_sent() {
        let directory = tempfile::tempdir().unwrap();
        let file = File::create(directory.path().join("large.json")).unwrap();
        file.set_len(FILE_BYTES_MAX + 1).unwrap();
        assert_eq!(serve_file(directory.path(), &["large.json"]).status, 413);
    }
}
