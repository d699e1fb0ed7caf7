//! The cache on disk: over a restart, after a crash, and with damaged files.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::Signal;
use tempfile::TempDir;

use super::{RESPONSES, cache_status, config, ctl, get, response, text};
use crate::support::faulty_origins::respond_to_each;
use crate::support::hostile_client::connect;
use crate::support::peers::ScriptedServer;
use crate::support::proxy_under_test::{ProxyUnderTest, StartOptions};
use crate::support::{shared_machine, temp_dir};

const READY: &str = "weir_cache_disk_ready";
const JOBS: &str = "weir_cache_disk_total";

/// A server whose responses have their number in front of many bytes.
struct NumberedOrigin {
    server: ScriptedServer,
    requests: Arc<AtomicUsize>,
}

impl NumberedOrigin {
    fn start(content_bytes: usize) -> Self {
        let requests = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&requests);
        let server = respond_to_each(move |request, _| {
            let number = count.fetch_add(1, Ordering::Relaxed) + 1;
            let content = format!("{} {number} {}", request.target(), "x".repeat(content_bytes));
            Some(response("Cache-Control: max-age=600\r\nETag: \"e\"\r\nCache-Tag: all\r\n", &content))
        });
        Self { server, requests }
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

fn directory() -> TempDir {
    let directory = temp_dir();
    fs::create_dir(directory.path().join("cache")).unwrap();
    directory
}

fn start(origin: &NumberedOrigin, directory: &TempDir, cache: &str) -> ProxyUnderTest {
    let disk = format!("disk = {{ directory = \"{}\" }}\n{cache}", directory.path().join("cache").display());
    let text = config(&origin.server.authority, &disk, "", "");
    // As confined as by default.
    let proxy = ProxyUnderTest::weir(&text.replace("landlock = false", "landlock = true"));
    proxy.metrics_until("the disk is ready", |metrics| metrics.sum(READY, &[]) == 1.0);
    proxy
}

fn wait_for_files(proxy: &ProxyUnderTest, count: u32) {
    proxy.metrics_until("the files are written", |metrics| {
        metrics.sum(JOBS, &[("result", "written")]) == f64::from(count)
    });
}

/// Returns the files of stored responses.
fn files(directory: &TempDir) -> Vec<PathBuf> {
    fn visit(directory: &Path, files: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            match entry.path() {
                path if path.is_dir() => visit(&path, files),
                path if path.file_name().is_some_and(|name| name != "lock") => files.push(path),
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    visit(&directory.path().join("cache"), &mut found);
    found.sort();
    found
}

fn stop(mut proxy: ProxyUnderTest, signal: Signal) {
    proxy.process.signal(signal);
    proxy.process.wait(crate::support::EVENT_TIMEOUT);
}

#[test]
fn stored_responses_outlive_a_restart_and_a_crash() {
    let _shared = shared_machine();
    for signal in [Signal::TERM, Signal::KILL] {
        let (origin, directory) = (NumberedOrigin::start(200_000), directory());
        let proxy = start(&origin, &directory, "");
        let before: Vec<_> = ["/a", "/b?c"].iter().map(|target| text(&get(&proxy, target, ""))).collect();
        wait_for_files(&proxy, 2);
        stop(proxy, signal);
        assert_eq!(files(&directory).len(), 2);
        let proxy = start(&origin, &directory, "");
        assert_eq!(proxy.metrics().sum_known(RESPONSES, &[("in", "disk")]), 2.0);
        let after: Vec<_> = ["/a", "/b?c"].iter().map(|target| text(&get(&proxy, target, ""))).collect();
        assert!(before == after && origin.requests() == 2, "{signal:?}: {}", origin.requests());
        let part = get(&proxy, "/a", "Range: bytes=0-3\r\n");
        assert_eq!((part.status, text(&part).as_str()), (206, "/a 1"), "{}", part.head);
        assert_eq!(get(&proxy, "/a", "If-None-Match: \"e\"\r\n").status, 304);
        assert!(cache_status(&get(&proxy, "/a", "")).contains("; hit"));
        assert_eq!(origin.requests(), 2);
        proxy.assert_all_returned();
    }
}

#[test]
fn a_damaged_file_is_never_sent() {
    let _shared = shared_machine();
    type Damage = fn(&Path);
    let damages: [Damage; 5] = [
        // A bit of the content.
        |file| {
            change(file, |bytes| {
                // In the first block.
                let at = 2_000.min(bytes.len() - 100);
                bytes[at] ^= 1;
            })
        },
        // A bit of the head.
        |file| change(file, |bytes| bytes[40] ^= 1),
        |file| change(file, |bytes| bytes.truncate(bytes.len() - 1)),
        |file| change(file, Vec::clear),
        |file| fs::write(file, b"HTTP/1.1 200 OK\r\n\r\nforeign").unwrap(),
    ];
    // A short content is read at once, a long one in pieces.
    let lengths = [1_000, 600_000].into_iter();
    let cases = lengths.flat_map(|length| {
        damages.into_iter().enumerate().map(move |(index, damage)| (length, index, damage))
    });
    for (length, index, damage) in cases {
        let (origin, directory) = (NumberedOrigin::start(length), directory());
        let proxy = start(&origin, &directory, "");
        let first = text(&get(&proxy, "/a", ""));
        wait_for_files(&proxy, 1);
        stop(proxy, Signal::KILL);
        let files = files(&directory);
        damage(&files[0]);
        let proxy = start(&origin, &directory, "");
        // Of a long content, the pieces before the damage may have been sent: then the end is missing.
        let mut client = connect(proxy.authority());
        client.write_all(b"GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
        let mut bytes = Vec::new();
        let _ = client.read_to_end(&mut bytes);
        let start = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
        let sent = String::from_utf8(bytes.split_off(start)).unwrap();
        let fresh = first.replace("/a 1", "/a 2");
        let is_cut = length > 100_000 && first.starts_with(&sent) && sent.len() < first.len();
        assert!(sent == fresh || is_cut, "{length} {index}: {} bytes", sent.len());
        assert!(text(&get(&proxy, "/a", "")) == fresh, "{length} {index}");
        assert_eq!(origin.requests(), 2, "{length} {index}");
    }
}

fn change(file: &Path, edit: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(file).unwrap();
    edit(&mut bytes);
    fs::write(file, bytes).unwrap();
}

#[test]
fn a_crash_while_files_are_written_leaves_only_complete_responses() {
    let _shared = shared_machine();
    let (origin, directory) = (NumberedOrigin::start(500_000), directory());
    for round in 0..3 {
        let proxy = start(&origin, &directory, "");
        let mut client = proxy.client();
        for number in 0..20 {
            let content = text(&client.get(&format!("/{number}")));
            assert!(content.starts_with(&format!("/{number} ")) && content.len() > 500_000, "{round}");
        }
        // Some of the files are being written.
        stop(proxy, Signal::KILL);
    }
    let proxy = start(&origin, &directory, "");
    let mut client = proxy.client();
    for number in 0..20 {
        let content = text(&client.get(&format!("/{number}")));
        let rest = content.strip_prefix(&format!("/{number} ")).unwrap();
        assert!(
            rest.trim_start_matches(|digit: char| digit.is_ascii_digit())
                == format!(" {}", "x".repeat(500_000))
        );
    }
    assert!(
        files(&directory).iter().all(|file| !file.to_string_lossy().contains(".new"))
            || proxy.metrics().sum(READY, &[]) == 1.0
    );
}

#[test]
fn purges_hold_for_files_too() {
    let _shared = shared_machine();
    for command in [&["key", "app|http|h/a"][..], &["tag", "all"], &["prefix", "app|"], &["all"]] {
        let (origin, directory) = (NumberedOrigin::start(100), directory());
        let proxy = start(&origin, &directory, "");
        get(&proxy, "/a", "");
        wait_for_files(&proxy, 1);
        stop(proxy, Signal::KILL);
        let proxy = start(&origin, &directory, "");
        let output = ctl(&proxy, &[&["cache", "purge", "main"], command].concat());
        assert_eq!(output, "cache main: 1 response purged\n", "{command:?}");
        assert!(text(&get(&proxy, "/a", "")).starts_with("/a 2 "), "{command:?}");
    }
}

#[test]
fn the_size_of_the_files_is_bounded() {
    let _shared = shared_machine();
    let (origin, directory) = (NumberedOrigin::start(100_000), directory());
    let disk = format!(
        "memory = \"1m\"\nobject-max = \"200k\"\ndisk = {{ directory = \"{}\", size = \"1m\" }}",
        directory.path().join("cache").display()
    );
    let proxy = ProxyUnderTest::weir(&config(&origin.server.authority, &disk, "", ""));
    let mut client = proxy.client();
    for number in 0..40 {
        assert_eq!(client.get(&format!("/{number}")).status, 200);
    }
    let metrics = proxy.metrics_until("all jobs are done", |metrics| {
        let sum = |result| metrics.sum(JOBS, &[("result", result)]);
        metrics.sum("weir_cache_disk_queued", &[]) == 0.0 && sum("written") + sum("queue_full") >= 1.0
    });
    let bytes: u64 =
        files(&directory).iter().map(|file| fs::metadata(file).map_or(0, |data| data.len())).sum();
    assert!(bytes <= 1 << 20, "{bytes} {metrics}");
    assert!(metrics.sum_known("weir_cache_bytes", &[("in", "disk")]) <= f64::from(1 << 20), "{metrics}");
}

#[test]
fn a_reload_refuses_other_settings_of_a_directory_in_use() {
    let _shared = shared_machine();
    let (origin, directory) = (NumberedOrigin::start(100), directory());
    let disk = |size: &str| {
        let cache = directory.path().join("cache");
        let text = format!("disk = {{ directory = \"{}\", size = \"{size}\" }}", cache.display());
        config(&origin.server.authority, &text, "", "")
    };
    let proxy = ProxyUnderTest::weir(&disk("2m"));
    let first = text(&get(&proxy, "/a", ""));
    proxy.reload(&disk("3m"));
    proxy.metrics_until("it is refused", |metrics| {
        metrics.sum("weir_reloads_total", &[("result", "refused")]) == 1.0
    });
    assert!(
        proxy.stderr().contains("its directory is in use by cache 'main' with other settings"),
        "{}",
        proxy.stderr()
    );
    assert_eq!(text(&get(&proxy, "/a", "")), first);
    proxy.reload(&disk("2m"));
    proxy.metrics_until("it is applied", |metrics| {
        metrics.sum("weir_reloads_total", &[("result", "applied")]) == 1.0
    });
    assert_eq!(text(&get(&proxy, "/a", "")), first);
}

#[test]
fn a_directory_that_others_can_write_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = directory();
    let cache = directory.path().join("cache");
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o777)).unwrap();
    let disk = format!("disk = {{ directory = \"{}\" }}", cache.display());
    let config_path = directory.path().join("weir.toml");
    let text = config("127.0.0.1:1", &disk, "", "").replace("HOME", directory.path().to_str().unwrap());
    fs::write(&config_path, text).unwrap();
    let run = crate::support::run_weir(&["proxy", "--config", config_path.to_str().unwrap()]);
    assert!(run.code != 0 && run.stderr.contains("others can write it"), "{} {}", run.code, run.stderr);
}

#[test]
fn a_full_disk_fails_no_request() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("this test mounts a small file system, which only root may");
        return;
    }
    let _shared = shared_machine();
    let (origin, directory) = (NumberedOrigin::start(100_000), directory());
    let cache = directory.path().join("cache");
    let text_of_disk =
        format!("disk = {{ directory = \"{}\" }}\nmemory = \"1m\"\nobject-max = \"200k\"", cache.display());
    let mount = format!("mount -t tmpfs -o size=1m,mode=700 none {} && exec \"$0\" \"$@\"", cache.display());
    let options =
        StartOptions { prefix: &["unshare", "--mount", "sh", "-c", &mount], ..StartOptions::default() };
    let proxy =
        ProxyUnderTest::weir_with_options(&config(&origin.server.authority, &text_of_disk, "", ""), &options);
    for round in 1..=2 {
        for number in 0..40 {
            let target = format!("/{number}");
            let content = text(&get(&proxy, &target, ""));
            assert!(
                content.starts_with(&format!("{target} ")) && content.ends_with("xxx"),
                "{round} {target}"
            );
        }
    }
    let metrics =
        proxy.metrics_until("the disk is full", |metrics| metrics.sum(JOBS, &[("result", "no_space")]) > 0.0);
    assert_eq!(metrics.sum(JOBS, &[("result", "damaged")]), 0.0, "{metrics}");
    let is_reported = || proxy.stderr().contains("No space left on device");
    assert!(crate::support::within(crate::support::EVENT_TIMEOUT, is_reported), "{}", proxy.stderr());
    proxy.assert_all_returned();
}
