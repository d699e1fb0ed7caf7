//! Executable mappings of a process: `/proc/PID/maps` (proc(5)), and the kernel's records of later
//! mappings.
//!
//! This module does not read the mapped files.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;

use super::process_file::{open_of_process, open_regular};

/// An executable mapping of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    /// First address.
    pub(super) start: u64,
    /// Address behind the last one.
    pub(super) end: u64,
    pub(super) offset: u64,
    /// Kernel's name: a path, perhaps with ` (deleted)`; `[vdso]`; or empty.
    pub(super) path: String,
}

/// Suffix of the path of a deleted file.
const DELETED: &str = " (deleted)";

impl Mapping {
    pub(super) fn is_deleted(&self) -> bool {
        self.path.ends_with(DELETED)
    }

    /// Returns the path without the kernel's suffix.
    pub(super) fn plain_path(&self) -> &str {
        self.path.strip_suffix(DELETED).unwrap_or(&self.path)
    }

    /// Returns the last part of the path, as shown in tables; `[anonymous]` if there is none.
    pub(super) fn module(&self) -> String {
        let path = self.plain_path();
        match path.rsplit_once('/') {
            // Memory with the path of a pseudo-file: `/dev/zero`, `/memfd:x`, `//anon`.
            _ if path.is_empty() || path.starts_with("//anon") => ANONYMOUS.to_owned(),
            Some((_, name)) => name.to_owned(),
            None => path.to_owned(),
        }
    }
}

/// The name of memory without a file.
pub(super) const ANONYMOUS: &str = "[anonymous]";

/// All executable mappings of one process.
#[derive(Clone, Debug, Default)]
pub(super) struct AddressSpace {
    mappings: Vec<Mapping>,
}

impl AddressSpace {
    /// Reads `/proc/PID/maps`; empty for an ended process.
    pub(super) fn read(pid: i32) -> Self {
        let mut bytes = Vec::new();
        let file = File::open(format!("/proc/{pid}/maps"));
        // A process that has ended has none, and its part that was read counts.
        let _ = file.and_then(|file| file.take(MAPS_BYTES_MAX).read_to_end(&mut bytes));
        Self { mappings: parse(&String::from_utf8_lossy(&bytes)) }
    }

    /// Adds a new mapping, which replaces the mappings that it covers.
    pub(super) fn add(&mut self, mapping: Mapping) {
        self.mappings.retain(|old| old.end <= mapping.start || old.start >= mapping.end);
        if self.mappings.len() < MAPPINGS_MAX {
            self.mappings.push(mapping);
        }
    }

    pub(super) fn find(&self, address: u64) -> Option<&Mapping> {
        self.mappings.iter().find(|mapping| (mapping.start..mapping.end).contains(&address))
    }

    pub(super) fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }
}

/// Maximum number of bytes read from the list of mappings: each has a path, which the process chooses.
const MAPS_BYTES_MAX: u64 = 16 << 20;
/// Maximum number of mappings kept per process; a process with a JIT compiler may have many.
const MAPPINGS_MAX: usize = 65_536;

/// Parses `/proc/PID/maps`: the executable mappings.
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
    let mapping = Mapping { start: number(start)?, end: number(end)?, offset: number(offset)?, path };
    access.contains('x').then_some(mapping)
}

/// Opens the file of a mapping in all possible ways, the best first: in the process's own file system;
/// by the name here, if the process has ended (a living one could lead root to other files); or through the mapping
/// itself, if the file was deleted.
pub(super) fn open_candidates(pid: i32, mapping: &Mapping) -> impl Iterator<Item = File> {
    let path = mapping.plain_path().to_owned();
    let by_mapping = PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end));
    let executable = PathBuf::from(format!("/proc/{pid}/exe"));
    // Only root may follow the former. This path works for the executable itself.
    let is_executable =
        std::fs::read_link(&executable).is_ok_and(|to| to.as_os_str() == mapping.path.as_str());
    let by_path = (!mapping.is_deleted()).then_some(path);
    let has_ended = std::fs::metadata(format!("/proc/{pid}/root")).is_err();
    let by_name_here = by_path.clone().filter(|_| has_ended).map(PathBuf::from);
    let others = by_name_here.into_iter().chain([by_mapping]);
    let others = others.chain(is_executable.then_some(executable));
    let in_process = by_path.into_iter().filter_map(move |path| open_of_process(pid, &path).ok());
    in_process.chain(others.filter_map(|path| open_regular(&path).ok()))
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
    fn executable_mappings_are_read() {
        let mappings = parse(TEXT);
        let names: Vec<_> = mappings.iter().map(Mapping::module).collect();
        assert_eq!(names, ["nginx", "a b", "[anonymous]", "[vdso]"]);
        assert_eq!((mappings[0].start, mappings[0].offset), (0x55d2_c6e6_0000, 0x21000));
        assert!(mappings[1].is_deleted() && !mappings[0].is_deleted());
        assert_eq!(mappings[1].plain_path(), "/tmp/a b");
    }

    #[test]
    fn a_new_mapping_replaces_what_it_covers() {
        let mut address_space = AddressSpace { mappings: parse(TEXT) };
        let new = Mapping {
            start: 0x7f00_0000_2800,
            end: 0x7f00_0000_4000,
            offset: 0,
            path: "/lib/new.so".to_owned(),
        };
        address_space.add(new.clone());
        assert_eq!(address_space.find(0x7f00_0000_2900), Some(&new));
        assert_eq!(address_space.find(0x7f00_0000_2100), None);
        assert_eq!(address_space.mappings().len(), 4);
    }

    #[test]
    fn this_process_runs_from_a_file() {
        let pid = std::process::id() as i32;
        let address_space = AddressSpace::read(pid);
        let mapping = address_space.find(this_process_runs_from_a_file as *const () as u64).unwrap();
        assert!(open_candidates(pid, mapping).next().is_some());
    }
}
