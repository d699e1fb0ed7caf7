//! Which files a process runs from, and where they are in its memory: `/proc/PID/maps` (proc(5)), and
//! what the kernel says of later mappings.
//!
//! Not for reading those files.

use std::path::PathBuf;

/// A part of a process's memory that it runs from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    /// Its first address.
    pub(super) start: u64,
    /// The address behind it.
    pub(super) end: u64,
    /// Where it begins in the file.
    pub(super) offset: u64,
    /// As the kernel names it: a path, perhaps with ` (deleted)`; `[vdso]`; or nothing.
    pub(super) path: String,
}

/// What follows the path of a file that has no name any more.
const DELETED: &str = " (deleted)";

impl Mapping {
    /// Whether the file behind it has lost its name.
    pub(super) fn is_deleted(&self) -> bool {
        self.path.ends_with(DELETED)
    }

    /// The path without what the kernel says about it.
    pub(super) fn plain_path(&self) -> &str {
        self.path.strip_suffix(DELETED).unwrap_or(&self.path)
    }

    /// The last part of the path, which names the file in tables; `[anonymous]` where there is none.
    pub(super) fn module(&self) -> String {
        let path = self.plain_path();
        match path.rsplit_once('/') {
            // Memory that only looks like a file: `/dev/zero`, `/memfd:x`, `//anon`.
            _ if path.is_empty() || path.starts_with("//anon") => ANONYMOUS.to_owned(),
            Some((_, name)) => name.to_owned(),
            None => path.to_owned(),
        }
    }
}

/// The name of memory without a file.
pub(super) const ANONYMOUS: &str = "[anonymous]";

/// All that one process runs from.
#[derive(Clone, Debug, Default)]
pub(super) struct Space {
    mappings: Vec<Mapping>,
}

impl Space {
    /// Reads `/proc/PID/maps`; empty for a process that has ended.
    pub(super) fn of(pid: i32) -> Self {
        let bytes = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        Self { mappings: parse(&String::from_utf8_lossy(&bytes)) }
    }

    /// Takes in a new mapping, which replaces what it covers.
    pub(super) fn add(&mut self, mapping: Mapping) {
        self.mappings.retain(|old| old.end <= mapping.start || old.start >= mapping.end);
        if self.mappings.len() < MAPPINGS_MAX {
            self.mappings.push(mapping);
        }
    }

    /// The mapping that an address is in.
    pub(super) fn find(&self, address: u64) -> Option<&Mapping> {
        self.mappings.iter().find(|mapping| (mapping.start..mapping.end).contains(&address))
    }

    /// All of them.
    pub(super) fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }
}

/// Mappings of one process that are kept; a program that compiles as it runs may have many.
const MAPPINGS_MAX: usize = 65_536;

/// Parses `/proc/PID/maps`: the mappings that may be run from.
pub(super) fn parse(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(parse_line).take(MAPPINGS_MAX).collect()
}

fn parse_line(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let access = fields.next()?;
    let offset = fields.next()?;
    let path = fields.nth(2).unwrap_or("").trim_start().to_owned();
    let number = |text| u64::from_str_radix(text, 16).ok();
    let mapping =
        Mapping { start: number(start)?, end: number(end)?, offset: number(offset)?, path };
    access.contains('x').then_some(mapping)
}

/// Where the file behind a mapping of a process can be opened, the best first: in its own file
/// system, where it has one; by the mapping itself, where the name is gone; or by the name here, when
/// the process has ended.
pub(super) fn places(pid: i32, mapping: &Mapping) -> Vec<PathBuf> {
    let path = mapping.plain_path();
    let by_mapping = format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end);
    let executable = PathBuf::from(format!("/proc/{pid}/exe"));
    let mut places = Vec::new();
    if !mapping.is_deleted() {
        places.push(PathBuf::from(format!("/proc/{pid}/root{path}")));
        places.push(PathBuf::from(path));
    }
    places.push(PathBuf::from(by_mapping));
    // Only root may follow the former; this one is the program itself, if that is what is meant.
    if std::fs::read_link(&executable).is_ok_and(|to| to.as_os_str() == mapping.path.as_str()) {
        places.push(executable);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
        55d2c6e3f000-55d2c6e60000 r--p 00000000 fe:00 12 /usr/sbin/nginx\n\
        55d2c6e60000-55d2c6f3a000 r-xp 00021000 fe:00 12                         /usr/sbin/nginx\n\
        7f0000000000-7f0000001000 r-xp 00001000 fe:00 13 /tmp/a b (deleted)\n\
        7f0000002000-7f0000003000 rwxp 00000000 00:00 0 \n\
        7ffd3b5f2000-7ffd3b5f4000 r-xp 00000000 00:00 0                          [vdso]\n\
        nonsense\n";

    #[test]
    fn mappings_that_run_are_read() {
        let found = parse(TEXT);
        let names: Vec<_> = found.iter().map(Mapping::module).collect();
        assert_eq!(names, ["nginx", "a b", "[anonymous]", "[vdso]"]);
        assert_eq!((found[0].start, found[0].offset), (0x55d2_c6e6_0000, 0x21000));
        assert!(found[1].is_deleted() && !found[0].is_deleted());
        assert_eq!(found[1].plain_path(), "/tmp/a b");
    }

    #[test]
    fn a_new_mapping_replaces_what_it_covers() {
        let mut space = Space { mappings: parse(TEXT) };
        let new = Mapping {
            start: 0x7f00_0000_2800,
            end: 0x7f00_0000_4000,
            offset: 0,
            path: "/lib/new.so".to_owned(),
        };
        space.add(new.clone());
        assert_eq!(space.find(0x7f00_0000_2900), Some(&new));
        assert_eq!(space.find(0x7f00_0000_2100), None);
        assert_eq!(space.mappings().len(), 4);
    }

    #[test]
    fn this_process_runs_from_a_file() {
        let pid = std::process::id() as i32;
        let space = Space::of(pid);
        let here = space.find(this_process_runs_from_a_file as *const () as u64).unwrap();
        assert!(places(pid, here).iter().any(|place| std::fs::File::open(place).is_ok()));
    }
}
