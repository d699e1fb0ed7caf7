//! Programs of the system that weir starts by their names: `ip`, `tc`, `nft`.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::trusted_dir::{TrustError, TrustedDir};

/// Finds a program on the PATH. Relative directories are left out, and for root all directories that another user can
/// change: the PATH of root may have some of them, and a program there would run as root.
///
/// # Errors
/// [`io::ErrorKind::NotFound`]: there is none; the message has the directories that were left out.
pub fn find_program(name: &str) -> io::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    find_program_in(&path, name, rustix::process::geteuid().is_root())
}

/// Returns the program to start for a name, as execvp(3) finds it: a path as it is, and for root the program that
/// [`find_program`] finds.
///
/// # Errors
/// Those of [`find_program`], for root.
pub fn program_to_start(name: &str) -> io::Result<PathBuf> {
    let is_searched = !name.contains('/') && rustix::process::geteuid().is_root();
    if is_searched { find_program(name) } else { Ok(PathBuf::from(name)) }
}

/// Returns the directories of the PATH in which [`find_program`] would start a program.
pub fn search_directories() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_root = rustix::process::geteuid().is_root();
    let directories = std::env::split_paths(&path).filter(|directory| directory.is_absolute());
    directories.filter_map(|directory| checked(&directory, is_root).ok()).collect()
}

/// Returns the directory whose programs are started. For root it is without links: another user could change one on
/// the way after the check.
fn checked(directory: &Path, is_root: bool) -> Result<PathBuf, TrustError> {
    if !is_root {
        return Ok(directory.to_owned());
    }
    let explain = |source| TrustError::System { path: directory.to_owned(), source };
    let resolved = directory.canonicalize().map_err(explain)?;
    TrustedDir::open(&resolved).map(|_| resolved)
}

fn find_program_in(path: &OsStr, name: &str, is_root: bool) -> io::Result<PathBuf> {
    let mut reasons = Vec::new();
    for directory in std::env::split_paths(path).filter(|directory| directory.is_absolute()) {
        let program = directory.join(name);
        if !is_executable(&program) {
            continue;
        }
        // The program itself may be a link of the system (alternatives), in a directory of root.
        match checked(&directory, is_root) {
            Ok(directory) => return Ok(directory.join(name)),
            Err(reason) => reasons.push(reason.to_string()),
        }
    }
    let text = match reasons.is_empty() {
        true => format!("{name} is not on the PATH"),
        false => format!("{name} is not started as root: {}", reasons.join("; ")),
    };
    Err(io::Error::new(
        if reasons.is_empty() { io::ErrorKind::NotFound } else { io::ErrorKind::PermissionDenied },
        text,
    ))
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_started_as_it_is_and_a_name_of_root_by_its_checked_path() {
        assert_eq!(program_to_start("./tool").unwrap(), PathBuf::from("./tool"));
        let program = program_to_start("sh").unwrap();
        assert_eq!(program.is_absolute(), rustix::process::geteuid().is_root(), "{program:?}");
    }

    #[test]
    fn root_starts_no_program_that_others_can_replace() {
        let directory = std::env::temp_dir().join(format!("host-programs-{}", std::process::id()));
        let [open, closed] = ["open", "closed"].map(|name| directory.join(name));
        for place in [&open, &closed] {
            fs::create_dir_all(place).unwrap();
            fs::write(place.join("tool"), "").unwrap();
            fs::set_permissions(place.join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::write(open.join("text"), "").unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
        let path = std::env::join_paths([Path::new("."), Path::new(""), &open, &closed]).unwrap();
        let find = |name: &str, is_root| find_program_in(&path, name, is_root);
        assert_eq!(find("tool", false).unwrap(), open.join("tool"));
        assert_eq!(find("tool", true).unwrap(), closed.canonicalize().unwrap().join("tool"));
        // Another user could lead this name to another directory after the check.
        let link = directory.join("link");
        std::os::unix::fs::symlink(&closed, &link).unwrap();
        let by_link = find_program_in(link.as_os_str(), "tool", true).unwrap();
        assert_eq!(by_link, closed.canonicalize().unwrap().join("tool"));
        let only_open = open.as_os_str();
        let refused = find_program_in(only_open, "tool", true).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert!(refused.to_string().contains("can be changed by other users"), "{refused}");
        for name in ["text", "missing", "Cargo.toml"] {
            assert_eq!(find(name, true).unwrap_err().kind(), io::ErrorKind::NotFound, "{name}");
        }
        fs::remove_dir_all(&directory).unwrap();
    }
}
