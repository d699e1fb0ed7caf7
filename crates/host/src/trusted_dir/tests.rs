//! Directories and files that another user could have prepared: each is refused with its reason, and nothing
//! changes. The decoys are directories of this user, as deep as usual.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// User without rights.
const NOBODY: u32 = 65_534;

/// Directory of one test.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static CREATED: AtomicU32 = AtomicU32::new(0);
        let name = format!("host-trusted-{}-{}", std::process::id(), CREATED.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        set_mode(&path, 0o700);
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Creates the directory `state`, and a file with text in it.
    fn state(&self, name: &str, text: &str) -> TrustedDir {
        let directory = TrustedDir::open_or_create(&self.path("state")).unwrap();
        let mut file = directory.create_file(name).unwrap();
        io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        directory
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        test_needs::skip(test_needs::ROOT, "files of another user");
    }
    is_root
}

fn open_error(path: &Path) -> String {
    TrustedDir::open(path).unwrap_err().to_string()
}

fn file_error(directory: &TrustedDir, name: &str) -> String {
    directory.open_file(name).unwrap_err().to_string()
}

#[test]
fn a_directory_of_this_user_is_created_and_read_again() {
    let place = Place::new();
    let path = place.path("deep/state");
    assert!(TrustedDir::open(&path).unwrap().is_none());
    let directory = TrustedDir::open_or_create(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(place.path("deep")).unwrap().permissions().mode() & 0o777, 0o700);
    directory.create_file("b.journal").unwrap();
    directory.create_file("a.journal").unwrap();
    fs::write(path.join("other"), "").unwrap();
    let directory = TrustedDir::open(&path).unwrap().unwrap();
    assert_eq!(directory.names("journal").unwrap(), ["a.journal", "b.journal"]);
    assert_eq!(fs::metadata(path.join("a.journal")).unwrap().permissions().mode() & 0o777, 0o600);
    let file = directory.open_file("a.journal").unwrap().unwrap();
    assert_eq!(directory.read("a.journal", &file).unwrap(), "");
    assert!(directory.open_file("c.journal").unwrap().is_none());
    assert!(directory.create_file("a.journal").is_err());
    directory.remove_file("a.journal").unwrap();
    directory.remove_file("a.journal").unwrap();
    assert_eq!(directory.names("journal").unwrap(), ["b.journal"]);
}

#[test]
fn links_and_other_kinds_are_refused() {
    let place = Place::new();
    let directory = place.state("real.journal", "x");
    let state = place.path("state");
    symlink(&state, place.path("link")).unwrap();
    assert!(open_error(&place.path("link")).contains("link is a symbolic link"));
    assert!(open_error(&place.path("link/deeper")).contains("link is a symbolic link"));
    let file = place.path("file");
    fs::write(&file, "").unwrap();
    assert!(open_error(&file).contains("file is not a directory"));
    assert!(open_error(&place.path("state/../state")).contains("'..'"));
    symlink(&file, state.join("link.journal")).unwrap();
    assert!(file_error(&directory, "link.journal").contains("symbolic link"));
    symlink("/no/such", state.join("dangling.journal")).unwrap();
    assert!(file_error(&directory, "dangling.journal").contains("symbolic link"));
    assert!(directory.create_file("dangling.journal").is_err());
    fs::hard_link(state.join("real.journal"), place.path("outside")).unwrap();
    assert!(file_error(&directory, "real.journal").contains("hard links"));
    fs::create_dir(state.join("directory.journal")).unwrap();
    assert!(file_error(&directory, "directory.journal").contains("not a regular file"));
    // A reader of the pipe would wait for a writer.
    let pipe = state.join("pipe.journal");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert!(file_error(&directory, "pipe.journal").contains("not a regular file"));
    for name in ["../file", "a/b", "", ".", ".."] {
        assert!(file_error(&directory, name).contains("not allowed"), "{name}");
        assert!(directory.remove_tree(name).is_err() && directory.create_file(name).is_err(), "{name}");
    }
    assert!(file.exists());
}

#[test]
fn what_others_may_write_is_refused() {
    let place = Place::new();
    let directory = place.state("a.journal", "x");
    let state = place.path("state");
    for mode in [0o602, 0o620, 0o666] {
        set_mode(&state.join("a.journal"), mode);
        assert!(file_error(&directory, "a.journal").contains("can be changed by other users"), "{mode:o}");
    }
    set_mode(&state.join("a.journal"), 0o644);
    assert!(directory.open_file("a.journal").unwrap().is_some());
    for mode in [0o702, 0o770, 0o777, 0o1777] {
        set_mode(&state, mode);
        assert!(open_error(&state).contains("chmod go-w"), "{mode:o}");
    }
    // An ancestor may be like /tmp, and not like a directory of a group.
    set_mode(&state, 0o700);
    set_mode(&place.0, 0o1777);
    assert!(TrustedDir::open(&state).is_ok());
    assert!(TrustedDir::open_shared(&place.0).is_ok());
    for mode in [0o775, 0o777] {
        set_mode(&place.0, mode);
        assert!(open_error(&state).contains("can be changed by other users"), "{mode:o}");
        assert!(TrustedDir::open_or_create(&place.path("new")).is_err() && !place.path("new").exists());
        assert!(TrustedDir::open_shared(&place.0).is_err());
    }
    let large = File::create(state.join("large.journal")).unwrap();
    large.set_len(FILE_BYTES_MAX + 1).unwrap();
    set_mode(&place.0, 0o700);
    let file = directory.open_file("large.journal").unwrap().unwrap();
    assert!(directory.read("large.journal", &file).unwrap_err().to_string().contains("larger"));
}

#[test]
fn what_another_user_owns_is_refused() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let directory = place.state("a.journal", "x");
    let state = place.path("state");
    chown(state.join("a.journal"), Some(NOBODY), None).unwrap();
    assert!(file_error(&directory, "a.journal").contains("belongs to user 65534"));
    chown(&state, Some(NOBODY), None).unwrap();
    assert!(open_error(&state).contains("belongs to user 65534"));
    // As a service manager does with the runtime directory of a service.
    chown(&state, Some(0), Some(0)).unwrap();
    chown(&place.0, Some(NOBODY), None).unwrap();
    assert!(open_error(&state).contains("belongs to user 65534"));
    assert!(TrustedDir::open_or_create(&place.path("new")).is_err() && !place.path("new").exists());
    // The owner of a directory may rename all entries, also with the sticky bit.
    set_mode(&place.0, 0o1777);
    assert!(open_error(&state).contains("belongs to user 65534"));
}

#[test]
fn an_opened_directory_stays_the_checked_one() {
    let place = Place::new();
    let directory = place.state("a.journal", "mine");
    let state = place.path("state");
    let opened = directory.open_file("a.journal").unwrap().unwrap();
    // Another directory takes its name between the check and the use.
    fs::rename(&state, place.path("moved")).unwrap();
    fs::create_dir(&state).unwrap();
    fs::write(state.join("a.journal"), "planted").unwrap();
    fs::write(state.join("b.journal"), "planted").unwrap();
    assert_eq!(directory.read("a.journal", &opened).unwrap(), "mine");
    assert_eq!(directory.names("journal").unwrap(), ["a.journal"]);
    directory.remove_file("a.journal").unwrap();
    assert!(state.join("a.journal").exists() && !place.path("moved/a.journal").exists());
}

#[test]
fn a_tree_is_removed_without_what_its_links_name() {
    let place = Place::new();
    let outside = place.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kept"), "").unwrap();
    let shared = TrustedDir::open_shared(&place.0).unwrap();
    let tree = shared.create_directory("tree", 0o755).unwrap();
    assert_eq!(fs::metadata(tree.path()).unwrap().permissions().mode() & 0o022, 0);
    fs::create_dir_all(tree.path().join("a/b/c")).unwrap();
    fs::write(tree.path().join("a/b/file"), "").unwrap();
    symlink(&outside, tree.path().join("a/link")).unwrap();
    symlink(outside.join("kept"), tree.path().join("a/b/c/link")).unwrap();
    shared.remove_tree("tree").unwrap();
    assert!(!tree.path().exists() && outside.join("kept").exists());
    shared.remove_tree("tree").unwrap();
    symlink(&outside, place.path("link")).unwrap();
    assert!(shared.remove_tree("link").unwrap_err().to_string().contains("not a directory"));
    assert!(shared.open_directory("link").unwrap_err().to_string().contains("symbolic link"));
    assert!(shared.open_directory("none").unwrap().is_none());
    assert!(outside.join("kept").exists());
    if is_root() {
        chown(&outside, Some(NOBODY), None).unwrap();
        assert!(shared.remove_tree("outside").unwrap_err().to_string().contains("belongs to user 65534"));
        assert!(shared.open_directory("outside").is_err() && outside.join("kept").exists());
    }
}

#[test]
fn each_user_has_a_directory() {
    let of = |user, runtime: &str| state_directory_of(user, Some(OsStr::new(runtime)));
    assert_eq!(of(0, "/run/user/1000"), Path::new("/run/weir-root"));
    assert_eq!(of(1000, "/run/user/1000"), Path::new("/run/user/1000/weir"));
    assert_eq!(of(1000, "relative"), Path::new("/tmp/weir-1000"));
    assert_eq!(state_directory_of(1000, None), Path::new("/tmp/weir-1000"));
}
