//! Responses from a small tree: access, methods, representations, ranges.

use std::fs;
use std::io::Read;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;
use wire::Header;

use super::*;
use crate::auth::Credentials;
use crate::body::Prepared;
use crate::compress::CompressionLevels;
use crate::etag::EtagSource;
use crate::plan::{FilesPlan, FilesSource};
use crate::request::RequestFields;

const TEXT_BYTES: usize = 100_000;

/// A tree with an index, a large text, a coded sibling, and a secret beside its root.
struct Tree {
    directory: TempDir,
}

/// A response as a client sees it.
struct Seen {
    status: u16,
    fields: String,
    content_length: Option<u64>,
    body: Vec<u8>,
    is_repeatable: bool,
}

impl Seen {
    fn field(&self, name: &str) -> Option<&str> {
        let prefix = format!("{name}: ");
        self.fields.lines().find_map(|line| line.strip_prefix(&prefix))
    }
}

fn levels(text: &str) -> CompressionLevels {
    CompressionLevels::parse(text).unwrap()
}

fn text() -> Vec<u8> {
    (0..TEXT_BYTES).map(|index| b"abcdefghij \n"[index * index % 12]).collect()
}

impl Tree {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir_all(path("root/sub/empty")).unwrap();
        for (name, content) in [
            ("secret", b"secret".to_vec()),
            ("root/index.html", b"<p>root".to_vec()),
            ("root/small.txt", b"0123456789".to_vec()),
            ("root/large.txt", text()),
            ("root/coded.js", b"plain".to_vec()),
            ("root/coded.js.gz", b"gzipped".to_vec()),
            ("root/old.js", b"plain".to_vec()),
            ("root/old.js.br", b"stale".to_vec()),
            ("root/sub/empty/.keep", Vec::new()),
        ] {
            fs::write(path(name), content).unwrap();
        }
        let before = SystemTime::now() - Duration::from_secs(100);
        let all = ["index.html", "small.txt", "large.txt", "coded.js", "coded.js.gz", "old.js.br"];
        for name in all {
            let file = fs::File::options().append(true).open(path(&format!("root/{name}"))).unwrap();
            file.set_modified(before).unwrap();
        }
        std::os::unix::fs::symlink("../secret", path("root/outside")).unwrap();
        Self { directory }
    }

    fn site(&self, change: impl FnOnce(&mut FilesPlan)) -> FileSite {
        let root = self.directory.path().join("root");
        let mut plan = FilesPlan::new(FilesSource::Directory(root));
        change(&mut plan);
        FileSite::open(&Arc::new(plan)).unwrap()
    }
}

fn send(site: &FileSite, method: &str, target: &str, fields: &[(&str, &str)]) -> Seen {
    let headers: Vec<Header<'_>> =
        fields.iter().map(|(name, value)| Header { name, value: value.as_bytes() }).collect();
    let request = FileRequest { method, target, fields: RequestFields::Http1(&headers) };
    let now = SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let time = RequestTime { now_ns: now.as_nanos() as u64, unix_s: now.as_secs() };
    let mut response = respond(site, &request, time);
    let mut body = Vec::new();
    loop {
        match response.body.prepare().unwrap() {
            Prepared::Ready => {
                let bytes = response.body.ready().len();
                body.extend_from_slice(response.body.ready());
                response.body.advance(bytes);
            }
            Prepared::Again => {}
            Prepared::End => break,
        }
    }
    assert!(response.body.is_empty() && response.body.sent_bytes() == body.len() as u64);
    Seen {
        status: response.status,
        fields: String::from_utf8(response.fields).unwrap(),
        content_length: response.content_length,
        body,
        is_repeatable: response.is_repeatable,
    }
}

fn get(site: &FileSite, target: &str, fields: &[(&str, &str)]) -> Seen {
    send(site, "GET", target, fields)
}

#[test]
fn files_have_their_content_and_fields() {
    let tree = Tree::new();
    let site = tree.site(|_| {});
    let small = get(&site, "/small.txt?x=1", &[]);
    assert_eq!(
        (small.status, small.body.as_slice(), small.content_length),
        (200, &b"0123456789"[..], Some(10))
    );
    assert_eq!(small.field("Content-Type"), Some("text/plain; charset=utf-8"));
    assert_eq!(small.field("Accept-Ranges"), Some("bytes"));
    assert!(
        small.field("ETag").unwrap().starts_with('"')
            && small.field("Vary") == Some("Accept-Encoding")
            && small.is_repeatable
    );
    let large = get(&site, "/large.txt", &[]);
    assert!(large.body == text() && large.content_length == Some(TEXT_BYTES as u64));
    let head = send(&site, "HEAD", "/large.txt", &[]);
    assert_eq!((head.status, head.body.len(), head.content_length), (200, 0, large.content_length));
    assert_eq!(head.fields, large.fields);
    assert_eq!(get(&site, "/", &[]).body, b"<p>root");
}

#[test]
fn paths_without_a_file_and_other_methods_have_their_status() {
    let tree = Tree::new();
    let site = tree.site(|_| {});
    for (method, target, status) in [
        ("GET", "/missing", 404),
        ("GET", "/small.txt/", 404),
        ("GET", "/small.txt/x", 404),
        ("GET", "/outside", 404),
        ("GET", "/../secret", 404),
        ("GET", "/%2e%2e/secret", 404),
        ("GET", "/sub/empty/.keep", 404),
        ("GET", "/sub/", 404),
        ("GET", "/%00", 400),
        ("POST", "/small.txt", 405),
        ("DELETE", "/missing", 405),
        ("OPTIONS", "*", 204),
    ] {
        let seen = send(&site, method, target, &[]);
        assert_eq!(seen.status, status, "{method} {target}");
        assert_eq!(seen.field("Allow").is_some(), matches!(status, 405 | 204), "{method} {target}");
        assert!(!seen.body.windows(6).any(|bytes| bytes == b"secret"));
    }
    let redirect = get(&site, "/sub?a=b", &[]);
    assert_eq!((redirect.status, redirect.field("Location")), (301, Some("/sub/?a=b")));
}

#[test]
fn ranges_have_their_bytes() {
    let tree = Tree::new();
    let site = tree.site(|_| {});
    let content = text();
    for (target, content) in [("/large.txt", content.as_slice()), ("/small.txt", b"0123456789")] {
        let seen = get(&site, target, &[("Range", "bytes=3-5")]);
        assert_eq!((seen.status, seen.body.as_slice()), (206, &content[3..6]));
        assert_eq!(seen.field("Content-Range").unwrap(), format!("bytes 3-5/{}", content.len()));
        let seen = get(&site, target, &[("Range", "bytes=0-1,-2")]);
        let boundary =
            seen.field("Content-Type").unwrap().strip_prefix("multipart/byteranges; boundary=").unwrap();
        let size = content.len();
        let part = |range: &str| {
            format!("\r\n--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Range: bytes {range}/{size}\r\n\r\n")
                .into_bytes()
        };
        let last = format!("{}-{}", size - 2, size - 1);
        let expected = [
            part("0-1"),
            content[..2].to_vec(),
            part(&last),
            content[size - 2..].to_vec(),
            format!("\r\n--{boundary}--\r\n").into_bytes(),
        ];
        assert_eq!(seen.body, expected.concat());
        assert_eq!((seen.status, seen.content_length), (206, Some(seen.body.len() as u64)));
        let seen = get(&site, target, &[("Range", "bytes=1000000-")]);
        assert_eq!((seen.status, seen.field("Content-Range").unwrap()), (416, &*format!("bytes */{size}")));
    }
    let etag = get(&site, "/small.txt", &[]).field("ETag").unwrap().to_owned();
    assert_eq!(get(&site, "/small.txt", &[("Range", "bytes=0-0"), ("If-Range", &etag)]).status, 206);
    assert_eq!(get(&site, "/small.txt", &[("Range", "bytes=0-0"), ("If-Range", "\"x\"")]).status, 200);
    assert_eq!(send(&site, "HEAD", "/small.txt", &[("Range", "bytes=0-0")]).status, 200);
}

#[test]
fn preconditions_are_those_of_the_representation() {
    let tree = Tree::new();
    let site = tree.site(|plan| plan.cache_control = b"Cache-Control: max-age=5\r\n".to_vec());
    let accept = ("Accept-Encoding", "gzip");
    let plain = get(&site, "/coded.js", &[]);
    let coded = get(&site, "/coded.js", &[accept]);
    assert_eq!((plain.body.as_slice(), coded.body.as_slice()), (&b"plain"[..], &b"gzipped"[..]));
    assert_eq!((coded.field("Content-Encoding"), plain.field("Content-Encoding")), (Some("gzip"), None));
    assert_eq!(coded.field("Content-Type"), plain.field("Content-Type"));
    for seen in [&plain, &coded] {
        assert_eq!(seen.field("Vary"), Some("Accept-Encoding"));
        assert_eq!(seen.field("Cache-Control"), Some("max-age=5"));
    }
    let (plain_tag, coded_tag) = (plain.field("ETag").unwrap(), coded.field("ETag").unwrap());
    assert_ne!(plain_tag, coded_tag);
    let seen = get(&site, "/coded.js", &[accept, ("If-None-Match", coded_tag)]);
    assert_eq!((seen.status, seen.body.len(), seen.field("ETag")), (304, 0, Some(coded_tag)));
    assert_eq!(seen.field("Vary"), Some("Accept-Encoding"));
    assert_eq!(get(&site, "/coded.js", &[accept, ("If-None-Match", plain_tag)]).status, 200);
    assert_eq!(get(&site, "/coded.js", &[("If-Match", coded_tag)]).status, 412);
    assert_eq!(
        get(&site, "/old.js", &[("Accept-Encoding", "br")]).body,
        b"plain",
        "an older sibling is stale"
    );
    let site = tree.site(|plan| plan.uses_precompressed = false);
    assert_eq!(get(&site, "/coded.js", &[accept]).body, b"plain");
}

#[test]
fn text_is_compressed_on_the_fly() {
    let tree = Tree::new();
    let site = tree.site(|plan| (plan.compression, plan.compress_bytes_min) = (levels("gzip:1,br:1"), 5));
    let decode = |bytes: &[u8]| {
        let mut content = Vec::new();
        flate2::read::GzDecoder::new(bytes).read_to_end(&mut content).unwrap();
        content
    };
    for (target, content, length_is_known) in
        [("/large.txt", text(), false), ("/small.txt", b"0123456789".to_vec(), true)]
    {
        let seen = get(&site, target, &[("Accept-Encoding", "gzip"), ("Range", "bytes=0-1")]);
        assert_eq!((seen.status, decode(&seen.body)), (200, content));
        assert_eq!((seen.field("Content-Encoding"), seen.field("Accept-Ranges")), (Some("gzip"), None));
        assert_eq!(seen.content_length.is_some(), length_is_known);
        let tag = seen.field("ETag").unwrap();
        assert!(tag.starts_with("W/\"") && tag.ends_with("-gzip\""), "{tag}");
        let again = get(&site, target, &[("Accept-Encoding", "gzip"), ("If-None-Match", tag)]);
        assert_eq!(again.status, 304);
    }
    let plain = get(&site, "/large.txt", &[("Accept-Encoding", "zstd")]);
    assert_eq!((plain.field("Content-Encoding"), plain.field("Vary")), (None, Some("Accept-Encoding")));
    let head = send(&site, "HEAD", "/large.txt", &[("Accept-Encoding", "br")]);
    assert_eq!((head.field("Content-Encoding"), head.content_length, head.body.len()), (Some("br"), None, 0));
}

#[test]
fn credentials_origins_and_fields_apply_to_all_responses() {
    let tree = Tree::new();
    let site = tree.site(|plan| {
        plan.credentials = Credentials::parse(&["ann:secret".into()]).unwrap();
        plan.cors = vec!["https://a.example".into()];
        plan.fields = b"X-Test: 1\r\n".to_vec();
    });
    let origin = ("Origin", "https://a.example");
    let refused = get(&site, "/small.txt", &[origin]);
    assert_eq!(refused.status, 401);
    assert!(refused.field("WWW-Authenticate").unwrap().starts_with("Basic realm="));
    assert_eq!(
        (refused.field("X-Test"), refused.field("Access-Control-Allow-Origin")),
        (Some("1"), Some(origin.1))
    );
    let accepted = get(&site, "/small.txt", &[("Authorization", "Basic YW5uOnNlY3JldA==")]);
    assert_eq!((accepted.status, accepted.field("Access-Control-Allow-Origin")), (200, None));
    let variations: Vec<_> = accepted.fields.lines().filter_map(|line| line.strip_prefix("Vary: ")).collect();
    assert_eq!(variations, ["Accept-Encoding", "Origin"]);
    let preflight = send(&site, "OPTIONS", "/small.txt", &[origin, ("Access-Control-Request-Method", "GET")]);
    assert_eq!((preflight.status, preflight.field("Access-Control-Allow-Origin")), (204, Some(origin.1)));
}

#[test]
fn directories_are_listed_and_pages_fall_back_only_if_wanted() {
    let tree = Tree::new();
    let site = tree.site(|plan| (plan.lists, plan.is_spa) = (true, true));
    let list = get(&site, "/sub/", &[]);
    assert_eq!(
        (list.status, list.field("Content-Type"), list.is_repeatable),
        (200, Some("text/html; charset=utf-8"), false)
    );
    assert!(String::from_utf8(list.body).unwrap().contains("<a href=\"empty/\">empty/</a>"));
    let json = get(&site, "/sub/", &[("Accept", "application/json")]);
    assert_eq!((json.field("Content-Type"), json.field("Vary")), (Some("application/json"), Some("Accept")));
    assert_eq!(get(&site, "/users/5", &[]).body, b"<p>root");
    assert_eq!(get(&site, "/missing.js", &[("Accept", "*/*")]).status, 404);
    assert_eq!(get(&site, "/john.doe", &[("Accept", "text/html,*/*;q=0.8")]).body, b"<p>root");
}

#[test]
fn a_changed_file_is_seen_when_its_lookup_is_no_longer_valid() {
    let tree = Tree::new();
    let path = tree.directory.path().join("root/small.txt");
    let site = tree.site(|plan| plan.cache_entries = 0);
    let before = get(&site, "/small.txt", &[]);
    assert!(!before.is_repeatable);
    fs::write(&path, "changed").unwrap();
    let after = get(&site, "/small.txt", &[]);
    assert_eq!(after.body, b"changed");
    assert_ne!(before.field("ETag"), after.field("ETag"));
    fs::remove_file(&path).unwrap();
    assert_eq!(get(&site, "/small.txt", &[]).status, 404);
}

#[test]
fn a_single_file_has_two_paths() {
    let tree = Tree::new();
    let path = tree.directory.path().join("root/small.txt");
    let site = tree.site(|plan| plan.source = FilesSource::File { path, name: "small.txt".to_owned() });
    for (target, status) in [("/", 200), ("/small.txt", 200), ("/large.txt", 404), ("/index.html", 404)] {
        assert_eq!(get(&site, target, &[]).status, status, "{target}");
    }
}

#[test]
fn replicas_have_the_same_tags_unless_the_inode_is_in_them() {
    let (first, second) = (Tree::new(), Tree::new());
    for name in ["small.txt", "large.txt"] {
        let [from, to] = [&first, &second].map(|tree| tree.directory.path().join("root").join(name));
        let modified = fs::metadata(&from).unwrap().modified().unwrap();
        // Many tools copy whole seconds.
        let since = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let seconds = SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs());
        fs::File::options().append(true).open(to).unwrap().set_modified(seconds).unwrap();
    }
    for (etag, is_same) in [("", true), ("mtime-size", true), ("inode", false)] {
        let sites =
            [&first, &second].map(|tree| tree.site(|plan| plan.etags = EtagSource::parse(etag).unwrap()));
        for target in ["/small.txt", "/large.txt"] {
            let [tag, other_tag] =
                sites.each_ref().map(|site| get(site, target, &[]).field("ETag").unwrap().to_owned());
            assert_eq!(tag == other_tag, is_same, "{etag} {target}: {tag} {other_tag}");
        }
    }
}

#[test]
fn a_tag_from_the_content_does_not_depend_on_times() {
    let tree = Tree::new();
    let site = tree.site(|plan| plan.etags = EtagSource::parse("content").unwrap());
    let tag = get(&site, "/small.txt", &[]).field("ETag").unwrap().to_owned();
    let expected = crate::etag::from_content(b"0123456789");
    assert_eq!(tag, expected);
    // A file that is not in memory has no tag before it was read, and its responses are complete ones.
    let untagged = get(&site, "/large.txt", &[("If-None-Match", "\"\""), ("Accept-Encoding", "gzip")]);
    assert_eq!((untagged.status, untagged.field("ETag"), untagged.body == text()), (200, None, true));
    let runtime = rt::tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(site.untagged.tag_waiting_files());
    let tagged = get(&site, "/large.txt", &[]);
    let tag = tagged.field("ETag").unwrap();
    assert_eq!(tag, crate::etag::from_content(&text()));
    assert_eq!(get(&site, "/large.txt", &[("If-None-Match", tag)]).status, 304);
}

#[test]
fn a_modification_in_the_future_is_replaced_by_the_time_of_the_response() {
    let tree = Tree::new();
    let later = SystemTime::now() + Duration::from_secs(1_000_000);
    for name in ["small.txt", "large.txt", "coded.js", "coded.js.gz"] {
        let path = tree.directory.path().join("root").join(name);
        fs::File::options().append(true).open(path).unwrap().set_modified(later).unwrap();
    }
    let site = tree.site(|plan| (plan.compression, plan.compress_bytes_min) = (levels("gzip"), 5));
    for (target, coding) in
        [("/small.txt", ""), ("/large.txt", ""), ("/large.txt", "gzip"), ("/coded.js", "gzip")]
    {
        let accept = ("Accept-Encoding", coding);
        let before_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let seen = get(&site, target, &[accept]);
        let modified = seen.field("Last-Modified").unwrap().to_owned();
        let modified_s = server_shell::date::parse_http_date(modified.as_bytes()).unwrap();
        assert!((before_s..=before_s + 100).contains(&modified_s), "{target} {coding}: {modified}");
        assert_eq!(seen.fields.matches("Last-Modified").count(), 1, "{}", seen.fields);
        let again = get(&site, target, &[accept, ("If-Modified-Since", EARLIER)]);
        assert_eq!(again.status, 200, "{target} {coding}");
    }
}

const EARLIER: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

#[test]
fn a_coded_file_is_sent_although_an_encoder_could_make_a_better_one() {
    let tree = Tree::new();
    let site = tree.site(|plan| (plan.compression, plan.compress_bytes_min) = (levels("all"), 1));
    let codings = ("Accept-Encoding", "gzip, deflate, br, zstd");
    assert_eq!(get(&site, "/coded.js", &[codings]).body, b"gzipped");
    // A stale one is not, and neither is one that the client likes less.
    assert_eq!(get(&site, "/old.js", &[codings]).field("Content-Encoding"), Some("br"));
    let preferring = ("Accept-Encoding", "gzip;q=0.5, br");
    assert_eq!(get(&site, "/coded.js", &[preferring]).field("Content-Encoding"), Some("br"));
}

#[test]
fn a_media_type_with_quality_0_is_not_accepted() {
    let tree = Tree::new();
    let site = tree.site(|plan| (plan.lists, plan.is_spa) = (true, true));
    for (accept, expected) in [
        ("application/json", "application/json"),
        ("text/html;q=0.5, application/json;q=0.5", "application/json"),
        ("application/json;q=0", "text/html; charset=utf-8"),
        ("application/json;q=0.000, */*", "text/html; charset=utf-8"),
        ("text/html, application/json;q=0.9", "text/html; charset=utf-8"),
        ("*/*", "text/html; charset=utf-8"),
    ] {
        let list = get(&site, "/sub/", &[("Accept", accept)]);
        assert_eq!(list.field("Content-Type"), Some(expected), "{accept}");
    }
    for (accept, status) in [("text/html;q=0", 404), ("text/html; q=0.0, */*", 404), ("text/html;q=0.1", 200)]
    {
        assert_eq!(get(&site, "/missing.js", &[("Accept", accept)]).status, status, "{accept}");
    }
}

#[test]
fn responses_beyond_the_memory_of_encoders_have_no_coding() {
    let tree = Tree::new();
    let site = tree.site(|plan| (plan.compression, plan.compress_memory_bytes) = (levels("br"), 5 << 20));
    let request = |fields: &[(&str, &str)]| {
        let fields = [&[("Accept-Encoding", "br")], fields].concat();
        let headers: Vec<Header<'_>> =
            fields.iter().map(|(name, value)| Header { name, value: value.as_bytes() }).collect();
        let request =
            FileRequest { method: "GET", target: "/large.txt", fields: RequestFields::Http1(&headers) };
        respond(&site, &request, RequestTime { now_ns: 1, unix_s: 2_000_000_000 })
    };
    let is_coded = |response: &FileResponse| response.content_length.is_none();
    let first: Vec<FileResponse> = (0..3).map(|_| request(&[])).collect();
    assert_eq!(first.iter().map(is_coded).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!((site.encoders.permits(), site.encoders.refused()), (2, 1));
    let plain = String::from_utf8(first[2].fields.clone()).unwrap();
    assert!(plain.contains("Vary: Accept-Encoding\r\n") && plain.contains("ETag: \""), "{plain}");
    assert!(!plain.contains("Content-Encoding") && plain.contains("Accept-Ranges: bytes"), "{plain}");
    // Files in memory and conditions need no encoder that lives on.
    assert_eq!(get(&site, "/large.txt", &[("Accept-Encoding", "gzip")]).status, 200);
    drop(first);
    assert_eq!(site.encoders.permits(), 0);
    assert!(is_coded(&request(&[])), "the memory was returned");
    // A response that was sent completely needs none either.
    let mut sent = request(&[]);
    while sent.body.prepare().unwrap() != Prepared::End {
        let bytes = sent.body.ready().len();
        sent.body.advance(bytes);
    }
    assert_eq!(site.encoders.permits(), 0);
}

#[test]
fn lists_that_nobody_reads_have_a_limit() {
    let tree = Tree::new();
    let site = tree.site(|plan| plan.lists = true);
    let root = tree.directory.path().join("root");
    fs::create_dir(root.join("many")).unwrap();
    for number in 0..3_000 {
        fs::write(root.join(format!("many/{number}-{}", "n".repeat(200))), "").unwrap();
    }
    let list = || {
        let request = FileRequest { method: "GET", target: "/many/", fields: RequestFields::Http1(&[]) };
        respond(&site, &request, RequestTime { now_ns: 1, unix_s: 2_000_000_000 })
    };
    let mut unread = Vec::new();
    let mut bytes = 0;
    let rejected = loop {
        let list = list();
        if list.status != 200 {
            break list;
        }
        bytes += list.content_length.unwrap();
        unread.push(list);
        assert!(bytes <= 32 << 20, "{bytes} bytes");
    };
    assert!(bytes > 28 << 20, "{bytes} bytes");
    let fields = String::from_utf8(rejected.fields).unwrap();
    assert!(rejected.status == 503 && fields.contains("Retry-After: 1\r\n"), "{fields}");
    assert_eq!(site.lists.refused(), 1);
    // Neither files nor lists that fit are affected, and the memory returns.
    assert_eq!(get(&site, "/small.txt", &[]).status, 200);
    drop(unread.pop());
    assert_eq!(list().status, 200);
    drop(unread);
    assert_eq!(site.lists.permits(), 0);
}

#[test]
fn a_root_that_is_replaced_is_served() {
    let tree = Tree::new();
    let root = tree.directory.path().join("root");
    let site = tree.site(|_| {});
    let at = |seconds: u64, target: &str| {
        let request = FileRequest { method: "GET", target, fields: RequestFields::Http1(&[]) };
        let time = RequestTime { now_ns: seconds * 1_000_000_000, unix_s: 2_000_000_000 };
        let response = respond(&site, &request, time);
        (response.status, response.body.in_memory().unwrap_or_default().to_vec())
    };
    let old = || (200, b"0123456789".to_vec());
    assert_eq!(at(10, "/small.txt"), old());
    fs::rename(&root, tree.directory.path().join("previous")).unwrap();
    assert_eq!(at(10, "/small.txt"), old(), "the lookup is valid");
    assert_eq!(at(12, "/small.txt").0, 404);
    fs::create_dir(&root).unwrap();
    fs::write(root.join("small.txt"), "new").unwrap();
    assert_eq!(at(14, "/small.txt"), (200, b"new".to_vec()));
    assert_eq!(at(14, "/index.html").0, 404, "a file of the old directory");
    assert_eq!(site.root_changes(), (1, 1));
}
