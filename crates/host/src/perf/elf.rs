//! Function names in an ELF file (elf(5)), from its symbol tables and from its separate debug file.
//! For stripped functions it gives their start addresses.
//!
//! A stripped program has names only for its exported functions. Its unwinding tables
//! (`.eh_frame_hdr`, Linux Standard Base, "DWARF extensions") still contain the start of each
//! function, so that samples of one function can be counted together.
//!
//! Source lines and inlined calls are not covered.

use std::fs::File;
use std::io::{self, Read as _};
use std::ops::Range;
use std::path::Path;

use object::{Object as _, ObjectSection as _, ObjectSegment as _, ReadCache, SymbolKind};

use super::process_file::{BoundedFile, open_of_process, open_regular};

/// Maximum number of symbols read per file.
const SYMBOLS_MAX: usize = 4_000_000;
/// Maximum length of all names read per file, in bytes: all symbols of a hostile file may have the same long name.
const NAME_BYTES_MAX: usize = 256 << 20;
/// Maximum number of segments read per file.
const SEGMENTS_MAX: usize = 65_536;
/// Directory of separate debug files, by build id and by the path of the other file, as distributions install them.
const DEBUG_ROOT: &str = "/usr/lib/debug";

/// One function of a file, at addresses of the file's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Name as in the file, possibly mangled.
    pub(super) name: String,
}

/// Bytes of a file that are loaded to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    address: u64,
    offset: u64,
    length: u64,
}

/// Known functions of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    /// Sorted by address, with at most one per address.
    symbols: Vec<Symbol>,
    /// Other names of functions, with their addresses.
    aliases: Vec<(u64, String)>,
    /// Start addresses of functions, sorted.
    function_starts: Vec<u64>,
    /// Jumps to functions of other files.
    plt_ranges: Vec<Range<u64>>,
    segments: Vec<Segment>,
    /// Length of all names, at most [`NAME_BYTES_MAX`].
    name_bytes: usize,
    /// True if the file has a full symbol table, its own or a separate one.
    pub(super) is_complete: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddressLocation<'a> {
    Named(&'a str),
    /// A function whose name was stripped, by its address in the file.
    Stripped(u64),
    /// A jump to a function of another file (`.plt`).
    Plt,
    /// An address that the file has no information about.
    Unknown,
}

impl Image {
    /// Reads the file at `path`, and its separate debug file if there is one, both in the file system of process
    /// `pid`.
    pub(super) fn read(
        file: File,
        pid: Option<i32>,
        path: &str,
        checksums: &mut ChecksumBudget,
    ) -> io::Result<Self> {
        let cache = ReadCache::new(BoundedFile::new(file)?);
        let parsed = object::File::parse(&cache).map_err(io::Error::other)?;
        let mut image = Self::from_object(&parsed);
        if !image.is_complete
            && let Some(file) = open_debug_file(&parsed, pid, path, checksums)
        {
            let cache = ReadCache::new(BoundedFile::new(file)?);
            if let Ok(debug) = object::File::parse(&cache) {
                image.add_symbols(debug.symbols());
                image.is_complete = true;
            }
        }
        image.sort_symbols();
        Ok(image)
    }

    /// Reads an image in memory, which has no separate files.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut image = Self::from_object(&object::File::parse(bytes).ok()?);
        image.sort_symbols();
        Some(image)
    }

    fn from_object<'data, R: object::ReadRef<'data>>(file: &object::File<'data, R>) -> Self {
        let mut image = Self { is_complete: file.symbol_table().is_some(), ..Self::default() };
        image.add_symbols(file.symbols());
        image.add_symbols(file.dynamic_symbols());
        image.segments = file
            .segments()
            .map(|segment| {
                let (offset, length) = segment.file_range();
                Segment { address: segment.address(), offset, length }
            })
            .take(SEGMENTS_MAX)
            .collect();
        if let Some(section) = file.section_by_name(".eh_frame_hdr")
            && let Ok(bytes) = section.data()
        {
            image.function_starts = parse_function_starts(bytes, section.address()).unwrap_or_default();
        }
        for name in [".plt", ".plt.sec", ".plt.got"] {
            if let Some(section) = file.section_by_name(name) {
                image.plt_ranges.push(section.address()..section.address().saturating_add(section.size()));
            }
        }
        image
    }

    fn add_symbols<'data, S: object::ObjectSymbol<'data>>(&mut self, symbols: impl Iterator<Item = S>) {
        let functions = symbols.filter(|symbol| {
            symbol.kind() == SymbolKind::Text && symbol.is_definition() && symbol.address() != 0
        });
        let mut name_bytes_left = NAME_BYTES_MAX - self.name_bytes;
        for symbol in functions.take(SYMBOLS_MAX.saturating_sub(self.symbols.len())) {
            let start = symbol.address();
            let Ok(name) = symbol.name() else { continue };
            let Some(left) = name_bytes_left.checked_sub(name.len()) else { break };
            name_bytes_left = left;
            let end = start.saturating_add(symbol.size());
            self.symbols.push(Symbol { start, end, name: name.to_owned() });
        }
        self.name_bytes = NAME_BYTES_MAX - name_bytes_left;
    }

    /// Sorts the symbols, keeps one name per address, and sets missing sizes.
    fn sort_symbols(&mut self) {
        let underscores = |name: &str| name.len() - name.trim_start_matches('_').len();
        // Prefers `read` to `__libc_read`: the name that callers use.
        self.symbols.sort_by(|a, b| {
            let by_underscores = || underscores(&a.name).cmp(&underscores(&b.name));
            let by_length = || a.name.len().cmp(&b.name.len());
            let by_name = || a.name.cmp(&b.name);
            a.start.cmp(&b.start).then_with(by_underscores).then_with(by_length).then_with(by_name)
        });
        let aliases = &mut self.aliases;
        self.symbols.dedup_by(|later, kept| {
            let is_same = later.start == kept.start;
            if is_same && later.name != kept.name {
                aliases.push((later.start, std::mem::take(&mut later.name)));
            }
            is_same
        });
        let starts: Vec<u64> = self.symbols.iter().map(|symbol| symbol.start).collect();
        for (at, symbol) in self.symbols.iter_mut().enumerate() {
            if symbol.end == symbol.start {
                // A label in assembly; the end of the last one is unknown.
                symbol.end = starts.get(at + 1).map_or_else(|| symbol.start.saturating_add(1), |&next| next);
            }
        }
        self.function_starts.sort_unstable();
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let names = (self.symbols.len() + self.aliases.len()) * size_of::<Symbol>() + self.name_bytes;
        names + self.function_starts.len() * size_of::<u64>() + self.segments.len() * size_of::<Segment>()
    }

    /// Converts a file offset to the file's own address.
    pub(super) fn address_of(&self, offset: u64) -> Option<u64> {
        let holds = |segment: &&Segment| offset >= segment.offset && offset - segment.offset < segment.length;
        let segment = self.segments.iter().find(holds)?;
        // The addresses of a hostile file may be any.
        Some(segment.address.wrapping_add(offset - segment.offset))
    }

    /// Returns the file offset of the function with this name, in bytes.
    pub(super) fn offset_of(&self, name: &str) -> Option<u64> {
        let by_name = self.symbols.iter().find(|symbol| symbol.name == name);
        let alias = || self.aliases.iter().find(|(_, alias)| alias == name).map(|(at, _)| *at);
        let address = by_name.map(|symbol| symbol.start).or_else(alias)?;
        let holds =
            |segment: &&Segment| address >= segment.address && address - segment.address < segment.length;
        let segment = self.segments.iter().find(holds)?;
        Some(segment.offset.wrapping_add(address - segment.address))
    }

    /// Returns the location of an address of the file's own.
    pub(super) fn locate(&self, address: u64) -> AddressLocation<'_> {
        // Functions rarely overlap; if they do, the innermost begins last.
        let after = self.symbols.partition_point(|symbol| symbol.start <= address);
        let near = self.symbols[..after].iter().rev().take(4);
        if let Some(symbol) = near.into_iter().find(|symbol| address < symbol.end) {
            return AddressLocation::Named(&symbol.name);
        }
        if self.plt_ranges.iter().any(|range| range.contains(&address)) {
            return AddressLocation::Plt;
        }
        let after = self.function_starts.partition_point(|&start| start <= address);
        match self.function_starts[..after].last() {
            Some(&start) => AddressLocation::Stripped(start),
            None => AddressLocation::Unknown,
        }
    }
}

/// Opens the separate debug file: by the build id of the other, or by the name that the other links to
/// (`.gnu_debuglink`), in the directories where debuggers search it. A linked file with another checksum belongs to
/// another build.
fn open_debug_file<'data, R: object::ReadRef<'data>>(
    file: &object::File<'data, R>,
    pid: Option<i32>,
    path: &str,
    checksums: &mut ChecksumBudget,
) -> Option<File> {
    let open = |path: String| match pid {
        Some(pid) => open_of_process(pid, &path).ok(),
        None => open_regular(Path::new(&path)).ok(),
    };
    if let Some(file) = build_id_path(file).and_then(open) {
        return Some(file);
    }
    let (name, checksum) = file.gnu_debuglink().ok().flatten()?;
    let name = std::str::from_utf8(name).ok().filter(|name| !name.contains('/'))?;
    let directory = path.rsplit_once('/')?.0;
    let candidates = [
        format!("{directory}/{name}"),
        format!("{directory}/.debug/{name}"),
        format!("{DEBUG_ROOT}{directory}/{name}"),
    ];
    candidates.into_iter().find_map(|path| {
        let file = open(path)?;
        checksums.take(file.metadata().ok()?.len())?;
        (checksum_of(file.try_clone().ok()?).ok()? == checksum).then_some(file)
    })
}

/// Returns the path of the separate debug file by the build id of the other.
fn build_id_path<'data, R: object::ReadRef<'data>>(file: &object::File<'data, R>) -> Option<String> {
    let id = file.build_id().ok().flatten()?;
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (directory, name) = hex.split_at_checked(2)?;
    Some(format!("{DEBUG_ROOT}/.build-id/{directory}/{name}.debug"))
}

/// Number of bytes that may be read for checksums of debug files: observed processes choose how many there are, and how
/// long.
#[derive(Debug)]
pub(super) struct ChecksumBudget {
    left: u64,
}

/// Bytes of all debug files whose checksums are computed. One of a browser has 1 to 2 GiB.
const CHECKSUM_BYTES_MAX: u64 = 8 << 30;

impl Default for ChecksumBudget {
    fn default() -> Self {
        Self { left: CHECKSUM_BYTES_MAX }
    }
}

impl ChecksumBudget {
    /// Takes the bytes of a file; `None`: not so many are left.
    fn take(&mut self, bytes: u64) -> Option<()> {
        self.left = self.left.checked_sub(bytes)?;
        Some(())
    }
}

/// Returns the CRC-32 of a file.
fn checksum_of(file: File) -> io::Result<u32> {
    let mut file = BoundedFile::new(file)?;
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finalize()),
            bytes => hasher.update(&buffer[..bytes]),
        }
    }
}

/// Parses `.eh_frame_hdr`, a table of function starts, in the only form that linkers write: four
/// bytes each, relative to the section.
fn parse_function_starts(bytes: &[u8], section: u64) -> Option<Vec<u64>> {
    const ENCODING: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
    let rest = bytes.strip_prefix(&ENCODING)?.get(4..)?;
    let (count, rows) = rest.split_first_chunk()?;
    let count = u32::from_le_bytes(*count) as usize;
    let rows = rows.chunks_exact(8).take(count.min(SYMBOLS_MAX));
    let start = |row: &[u8]| {
        let relative = i32::from_le_bytes([row[0], row[1], row[2], row[3]]);
        section.wrapping_add_signed(i64::from(relative))
    };
    Some(rows.map(start).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(start: u64, end: u64, name: &str) -> Symbol {
        Symbol { start, end, name: name.to_owned() }
    }

    #[test]
    fn an_address_is_in_a_function_or_near_none() {
        let mut image = Image {
            symbols: vec![
                symbol(0x1010, 0x1020, "cfree"),
                symbol(0x1010, 0x1020, "free"),
                symbol(0x200, 0x280, "__read"),
                symbol(0x200, 0x280, "read"),
                symbol(0x100, 0x100, "label"),
            ],
            aliases: Vec::new(),
            function_starts: vec![0x300, 0x100],
            plt_ranges: vec![0x80..0x90, 0xa0..0xb0],
            segments: vec![Segment { address: 0x1000, offset: 0x400, length: 0x100 }],
            name_bytes: 0,
            is_complete: true,
        };
        image.sort_symbols();
        assert_eq!(image.locate(0x27f), AddressLocation::Named("read"));
        assert_eq!(image.locate(0x1ff), AddressLocation::Named("label"));
        assert_eq!(image.locate(0x310), AddressLocation::Stripped(0x300));
        assert_eq!(image.locate(0x290), AddressLocation::Stripped(0x100));
        assert_eq!(image.locate(0x88), AddressLocation::Plt);
        assert_eq!(image.locate(0x10), AddressLocation::Unknown);
        assert_eq!((image.address_of(0x410), image.address_of(0x500)), (Some(0x1010), None));
        assert_eq!(image.offset_of("read"), None);
        assert_eq!((image.offset_of("free"), image.offset_of("cfree")), (Some(0x410), Some(0x410)));
        assert_eq!(image.locate(0x1011), AddressLocation::Named("free"));
    }

    #[test]
    fn addresses_of_a_hostile_file_do_not_overflow() {
        let mut image = Image {
            symbols: vec![symbol(u64::MAX, u64::MAX, "last")],
            segments: vec![Segment { address: u64::MAX, offset: 0x400, length: u64::MAX }],
            ..Image::default()
        };
        image.sort_symbols();
        assert_eq!(image.address_of(0x402), Some(1));
        assert_eq!(image.locate(u64::MAX), AddressLocation::Unknown);
        image.segments[0] = Segment { address: 0, offset: u64::MAX, length: u64::MAX };
        image.symbols[0].start = 2;
        assert_eq!(image.offset_of("last"), Some(1));
        assert!(image.memory_bytes() > 0);
    }

    #[test]
    fn the_table_for_unwinding_is_read() {
        let mut bytes = vec![1, 0x1b, 0x03, 0x3b, 9, 9, 9, 9, 2, 0, 0, 0];
        for (start, entry) in [(-0x10_i32, 0_i32), (0x20, 0)] {
            bytes.extend(start.to_le_bytes());
            bytes.extend(entry.to_le_bytes());
        }
        assert_eq!(parse_function_starts(&bytes, 0x1000), Some(vec![0xff0, 0x1020]));
        bytes[3] = 0;
        assert_eq!(parse_function_starts(&bytes, 0x1000), None);
        assert_eq!(parse_function_starts(&[1, 0x1b, 0x03, 0x3b, 0], 0), None);
    }

    #[test]
    fn this_program_is_read() {
        let image = read("/proc/self/exe").unwrap();
        assert!(image.is_complete && !image.symbols.is_empty());
        let name = &image.symbols[image.symbols.len() / 2].name;
        let offset = image.offset_of(name).unwrap();
        assert!(matches!(image.locate(image.address_of(offset).unwrap()), AddressLocation::Named(_)));
    }

    fn read(path: &str) -> io::Result<Image> {
        Image::read(File::open(path).unwrap(), None, path, &mut ChecksumBudget::default())
    }

    #[test]
    fn other_files_are_rejected() {
        assert!(Image::from_bytes(b"#!/bin/sh").is_none());
        assert!(read("/proc/self/cmdline").is_err());
    }

    #[test]
    fn symbols_of_a_linked_debug_file_are_read() {
        use std::process::Command;

        if Command::new("objcopy").arg("--version").output().is_err() {
            return test_needs::skip("objcopy", "not installed");
        }
        let directory = std::env::temp_dir().join(format!("weir-debuglink-{}", std::process::id()));
        let objcopy = |arguments: &[&str]| {
            assert!(
                Command::new("objcopy").args(arguments).current_dir(&directory).status().unwrap().success()
            );
        };
        let program = directory.join("program");
        let is_named = || {
            let image = read(program.to_str().unwrap()).unwrap();
            let name = "symbols_of_a_linked_debug_file_are_read";
            let is_named = image.symbols.iter().any(|symbol| symbol.name.contains(name));
            assert_eq!(image.is_complete, is_named);
            is_named
        };
        std::fs::create_dir_all(directory.join(".debug")).unwrap();
        let this = std::env::current_exe().unwrap();
        let this = this.to_str().unwrap();
        // Without its build id, so that only the link leads to the debug file.
        let without_id = ["--remove-section", ".note.gnu.build-id"];
        objcopy(&[&["--only-keep-debug"], &without_id[..], &[this, "p.debug"]].concat());
        objcopy(&[&["--strip-all"], &without_id[..], &[this, "program"]].concat());
        assert!(!is_named());
        objcopy(&["--add-gnu-debuglink=p.debug", "program"]);
        assert!(is_named());
        // In the second directory, and then of another build.
        std::fs::rename(directory.join("p.debug"), directory.join(".debug/p.debug")).unwrap();
        assert!(is_named());
        // No more bytes may be read for checksums than there are left.
        let path = program.to_str().unwrap();
        let length = std::fs::metadata(directory.join(".debug/p.debug")).unwrap().len();
        let complete = |budget: &mut ChecksumBudget| {
            Image::read(File::open(&program).unwrap(), None, path, budget).unwrap().is_complete
        };
        assert!(!complete(&mut ChecksumBudget { left: length - 1 }));
        let mut budget = ChecksumBudget { left: 2 * length };
        assert_eq!([(); 3].map(|()| complete(&mut budget)), [true, true, false]);
        std::fs::copy(this, directory.join(".debug/p.debug")).unwrap();
        assert!(!is_named());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
