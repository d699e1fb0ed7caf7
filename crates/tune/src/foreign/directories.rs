//! Order in which the files of `sysctl.d` take effect (sysctl.d(5), sysctl(8)). Pure: the names are arguments.

use record::sorted::sort_by_key;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Directories of settings below the root directory. A file hides those of the same name in later ones.
pub const SYSCTL_DIRECTORIES: [&str; 5] =
    ["etc/sysctl.d", "run/sysctl.d", "usr/local/lib/sysctl.d", "usr/lib/sysctl.d", "lib/sysctl.d"];
/// File that sysctl(8) reads last.
pub const SYSCTL_CONF: &str = "etc/sysctl.conf";

/// Files of several directories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileOrder {
    /// Files in the order in which they take effect.
    pub files: Vec<PathBuf>,
    /// Files that are not read, with the file of the same name that hides each.
    pub hidden: Vec<(PathBuf, PathBuf)>,
}

/// Returns the position of a directory in [`SYSCTL_DIRECTORIES`].
fn rank(directory: &Path) -> Option<usize> {
    SYSCTL_DIRECTORIES.iter().position(|known| directory.ends_with(known))
}

/// Orders the files of directories. Files of the directories of sysctl.d(5) are ordered by their names across all of
/// them; the files of another directory follow in the order of their names.
pub fn order_files(directories: &[(PathBuf, Vec<PathBuf>)]) -> FileOrder {
    let mut ranked: Vec<(usize, &(PathBuf, Vec<PathBuf>))> =
        directories.iter().filter_map(|directory| Some((rank(&directory.0)?, directory))).collect();
    sort_by_key(&mut ranked, |(rank, _)| *rank);
    let mut order = FileOrder::default();
    let mut by_name: BTreeMap<_, &PathBuf> = BTreeMap::new();
    for path in ranked.iter().flat_map(|(_, (_, files))| files) {
        let Some(name) = path.file_name() else { continue };
        match by_name.get(name) {
            Some(&first) => order.hidden.push((path.clone(), first.clone())),
            None => {
                by_name.insert(name, path);
            }
        }
    }
    order.files.extend(by_name.into_values().cloned());
    for (_, files) in directories.iter().filter(|(directory, _)| rank(directory).is_none()) {
        let mut files = files.clone();
        files.sort();
        order.files.extend(files);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_decide_the_order_and_directories_hide_each_other() {
        let directory = |path: &str, names: &[&str]| {
            let files = names.iter().map(|name| Path::new(path).join(name)).collect();
            (PathBuf::from(path), files)
        };
        let order = order_files(&[
            directory("/x", &["b.conf", "a.conf"]),
            directory("/r/usr/lib/sysctl.d", &["50-a.conf", "99-z.conf"]),
            directory("/r/etc/sysctl.d", &["60-b.conf", "50-a.conf"]),
        ]);
        let files: Vec<String> = order.files.iter().map(|path| path.display().to_string()).collect();
        assert_eq!(
            files,
            [
                "/r/etc/sysctl.d/50-a.conf",
                "/r/etc/sysctl.d/60-b.conf",
                "/r/usr/lib/sysctl.d/99-z.conf",
                "/x/a.conf",
                "/x/b.conf"
            ]
        );
        let hidden =
            (PathBuf::from("/r/usr/lib/sysctl.d/50-a.conf"), PathBuf::from("/r/etc/sysctl.d/50-a.conf"));
        assert_eq!(order.hidden, [hidden]);
    }
}
