//! The names of functions in an ELF file (elf(5)): of its tables of symbols, of the file with debug
//! information that belongs to it, and, where a name was stripped, where the function begins.
//!
//! A stripped program has names only for what it offers to libraries. Its tables for unwinding
//! (`.eh_frame_hdr`, Linux Standard Base, "DWARF extensions") still tell where each function begins,
//! so that samples of one function can be counted together.
//!
//! Not for lines of source, nor for calls that the compiler has put into their caller.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use object::{Object as _, ObjectSection as _, ObjectSegment as _, ReadCache, SymbolKind};

/// Symbols of one file that are read.
const SYMBOLS_MAX: usize = 4_000_000;
/// Where distributions put files with debug information, by build id.
const DEBUG_FOLDER: &str = "/usr/lib/debug/.build-id";

/// One function of a file, at addresses of the file's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    pub(super) start: u64,
    pub(super) end: u64,
    /// As the file has it: mangled, if it is.
    pub(super) name: String,
}

/// Bytes of a file that are loaded to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    address: u64,
    offset: u64,
    length: u64,
}

/// What is known of the functions of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    /// By address, without two at the same.
    symbols: Vec<Symbol>,
    /// Other names of functions, with their addresses.
    aliases: Vec<(u64, String)>,
    /// Where functions begin, by address.
    starts: Vec<u64>,
    /// Jumps to other files' functions.
    jumps: Vec<Range<u64>>,
    segments: Vec<Segment>,
    /// Whether it has a full table of symbols, its own or beside it.
    pub(super) is_complete: bool,
}

/// What an address of a file belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place<'a> {
    /// A function with a name.
    Named(&'a str),
    /// A function whose name was stripped, by its address in the file.
    Stripped(u64),
    /// A jump to a function of another file (`.plt`).
    Jump,
    /// Nothing that the file tells.
    Unknown,
}

impl Image {
    /// Reads a file, and the one with its debug information, if there is one below `root`.
    pub(super) fn read(file: File, root: &str) -> io::Result<Self> {
        let cache = ReadCache::new(file);
        let parsed = object::File::parse(&cache).map_err(io::Error::other)?;
        let mut image = Self::of(&parsed);
        if !image.is_complete
            && let Some(path) = debug_file(&parsed, root)
            && let Ok(file) = File::open(path)
        {
            let cache = ReadCache::new(file);
            if let Ok(debug) = object::File::parse(&cache) {
                image.add_symbols(debug.symbols());
                image.is_complete = true;
            }
        }
        image.arrange();
        Ok(image)
    }

    /// Reads an image in memory, which has no files beside it.
    pub(super) fn in_memory(bytes: &[u8]) -> Option<Self> {
        let mut image = Self::of(&object::File::parse(bytes).ok()?);
        image.arrange();
        Some(image)
    }

    fn of<'data, R: object::ReadRef<'data>>(file: &object::File<'data, R>) -> Self {
        let mut image = Self { is_complete: file.symbol_table().is_some(), ..Self::default() };
        image.add_symbols(file.symbols());
        image.add_symbols(file.dynamic_symbols());
        image.segments = file
            .segments()
            .map(|segment| {
                let (offset, length) = segment.file_range();
                Segment { address: segment.address(), offset, length }
            })
            .collect();
        if let Some(section) = file.section_by_name(".eh_frame_hdr")
            && let Ok(bytes) = section.data()
        {
            image.starts = function_starts(bytes, section.address()).unwrap_or_default();
        }
        for name in [".plt", ".plt.sec", ".plt.got"] {
            if let Some(section) = file.section_by_name(name) {
                image.jumps.push(section.address()..section.address() + section.size());
            }
        }
        image
    }

    fn add_symbols<'data, S: object::ObjectSymbol<'data>>(
        &mut self,
        symbols: impl Iterator<Item = S>,
    ) {
        let functions = symbols.filter(|symbol| {
            symbol.kind() == SymbolKind::Text && symbol.is_definition() && symbol.address() != 0
        });
        for symbol in functions.take(SYMBOLS_MAX.saturating_sub(self.symbols.len())) {
            let start = symbol.address();
            let Ok(name) = symbol.name() else { continue };
            let end = start.saturating_add(symbol.size());
            self.symbols.push(Symbol { start, end, name: name.to_owned() });
        }
    }

    /// Sorts, leaves one name an address, and gives those without a size one.
    fn arrange(&mut self) {
        let underscores = |name: &str| name.len() - name.trim_start_matches('_').len();
        // `read` rather than `__libc_read`: the name that people call.
        self.symbols.sort_by(|a, b| {
            let by_use = || underscores(&a.name).cmp(&underscores(&b.name));
            let by_length = || a.name.len().cmp(&b.name.len());
            let by_name = || a.name.cmp(&b.name);
            a.start.cmp(&b.start).then_with(by_use).then_with(by_length).then_with(by_name)
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
                // A label in assembly; nobody knows where the last one ends.
                symbol.end = starts.get(at + 1).map_or(symbol.start + 1, |&next| next);
            }
        }
        self.starts.sort_unstable();
    }

    /// The file's own address of a place in the file.
    pub(super) fn address_of(&self, offset: u64) -> Option<u64> {
        let holds = |segment: &&Segment| {
            offset >= segment.offset && offset - segment.offset < segment.length
        };
        let segment = self.segments.iter().find(holds)?;
        Some(segment.address + (offset - segment.offset))
    }

    /// Where the function of this name begins in the file, in bytes.
    pub(super) fn offset_of(&self, name: &str) -> Option<u64> {
        let by_name = self.symbols.iter().find(|symbol| symbol.name == name);
        let alias = || self.aliases.iter().find(|(_, alias)| alias == name).map(|(at, _)| *at);
        let address = by_name.map(|symbol| symbol.start).or_else(alias)?;
        let holds = |segment: &&Segment| {
            address >= segment.address && address - segment.address < segment.length
        };
        let segment = self.segments.iter().find(holds)?;
        Some(segment.offset + (address - segment.address))
    }

    /// What an address of the file's own belongs to.
    pub(super) fn place(&self, address: u64) -> Place<'_> {
        // Functions hardly overlap; where they do, the innermost begins last.
        let after = self.symbols.partition_point(|symbol| symbol.start <= address);
        let near = self.symbols[..after].iter().rev().take(4);
        if let Some(symbol) = near.into_iter().find(|symbol| address < symbol.end) {
            return Place::Named(&symbol.name);
        }
        if self.jumps.iter().any(|range| range.contains(&address)) {
            return Place::Jump;
        }
        let after = self.starts.partition_point(|&start| start <= address);
        match self.starts[..after].last() {
            Some(&start) => Place::Stripped(start),
            None => Place::Unknown,
        }
    }
}

/// The file with debug information, by the build id of the other, in the same file system.
fn debug_file<'data, R: object::ReadRef<'data>>(
    file: &object::File<'data, R>,
    root: &str,
) -> Option<PathBuf> {
    let id = file.build_id().ok().flatten()?;
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (folder, name) = hex.split_at_checked(2)?;
    let path = format!("{root}{DEBUG_FOLDER}/{folder}/{name}.debug");
    Path::new(&path).exists().then(|| PathBuf::from(path))
}

/// Reads `.eh_frame_hdr`, a table of where functions begin, in the one form that linkers write: four
/// bytes each, relative to the section.
fn function_starts(bytes: &[u8], section: u64) -> Option<Vec<u64>> {
    const FORM: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
    let rest = bytes.strip_prefix(&FORM)?.get(4..)?;
    let (count, rows) = rest.split_first_chunk()?;
    let count = u32::from_le_bytes(*count) as usize;
    let rows = rows.chunks_exact(8).take(count);
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
            starts: vec![0x300, 0x100],
            jumps: vec![0x80..0x90, 0xa0..0xb0],
            segments: vec![Segment { address: 0x1000, offset: 0x400, length: 0x100 }],
            is_complete: true,
        };
        image.arrange();
        assert_eq!(image.place(0x27f), Place::Named("read"));
        assert_eq!(image.place(0x1ff), Place::Named("label"));
        assert_eq!(image.place(0x310), Place::Stripped(0x300));
        assert_eq!(image.place(0x290), Place::Stripped(0x100));
        assert_eq!(image.place(0x88), Place::Jump);
        assert_eq!(image.place(0x10), Place::Unknown);
        assert_eq!((image.address_of(0x410), image.address_of(0x500)), (Some(0x1010), None));
        assert_eq!(image.offset_of("read"), None);
        assert_eq!((image.offset_of("free"), image.offset_of("cfree")), (Some(0x410), Some(0x410)));
        assert_eq!(image.place(0x1011), Place::Named("free"));
    }

    #[test]
    fn the_table_for_unwinding_is_read() {
        let mut bytes = vec![1, 0x1b, 0x03, 0x3b, 9, 9, 9, 9, 2, 0, 0, 0];
        for (start, entry) in [(-0x10_i32, 0_i32), (0x20, 0)] {
            bytes.extend(start.to_le_bytes());
            bytes.extend(entry.to_le_bytes());
        }
        assert_eq!(function_starts(&bytes, 0x1000), Some(vec![0xff0, 0x1020]));
        bytes[3] = 0;
        assert_eq!(function_starts(&bytes, 0x1000), None);
        assert_eq!(function_starts(&[1, 0x1b, 0x03, 0x3b, 0], 0), None);
    }

    #[test]
    fn this_program_is_read() {
        let image = Image::read(File::open("/proc/self/exe").unwrap(), "").unwrap();
        assert!(image.is_complete && !image.symbols.is_empty());
        let name = &image.symbols[image.symbols.len() / 2].name;
        let offset = image.offset_of(name).unwrap();
        assert!(matches!(image.place(image.address_of(offset).unwrap()), Place::Named(_)));
    }

    #[test]
    fn what_is_no_such_file_is_refused() {
        assert!(Image::in_memory(b"#!/bin/sh").is_none());
        assert!(Image::read(File::open("/proc/self/cmdline").unwrap(), "").is_err());
    }
}
