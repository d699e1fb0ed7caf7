//! Names for addresses: which function of which file, of any process and of the kernel.
//!
//! Looked up after the sampling. Every file is read once, at the first address in it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};

use super::elf::{Image, Place};
use super::kernel::Kernel;
use super::maps::{self, ANONYMOUS, Mapping, Space};
use super::stacks::Process;

/// Name of the part of the kernel that is mapped into every process.
const VDSO: &str = "[vdso]";
/// Bytes of it, and of a list of compiled functions, that are read.
const VDSO_BYTES_MAX: u64 = 1 << 20;
const COMPILED_BYTES_MAX: u64 = 64 << 20;
/// Files whose symbols are kept.
const IMAGES_MAX: usize = 1024;

/// A function, as people read it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Function {
    /// Its name, demangled; `nginx+0x1a2b0` for one that was stripped of it, which is where it begins.
    pub name: String,
    /// The file it is in: `nginx`, `libc.so.6`, `[kernel]`, `[vdso]`.
    pub module: String,
    /// Whether it is the kernel's.
    pub is_kernel: bool,
}

/// What has been read so far.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    kernel: Option<Result<Kernel, String>>,
    /// By the view of the file system and the path in it; none for what could not be read.
    images: HashMap<(String, String), Option<Image>>,
    /// Which view of the file system a process has: its mount namespace.
    files: HashMap<i32, String>,
    /// Functions that a process compiled as it ran.
    compiled: HashMap<i32, Vec<(u64, u64, String)>>,
    /// What could not be seen, in words.
    pub(super) notes: Vec<String>,
}

impl Symbols {
    /// The kernel's function at an address.
    pub(super) fn kernel(&mut self, address: u64) -> Function {
        let kernel = self.kernel.get_or_insert_with(Kernel::read);
        let found = match kernel {
            Ok(kernel) => kernel.find(address),
            Err(why) => {
                let note = format!("the kernel's functions have no names: {why}");
                if !self.notes.contains(&note) {
                    self.notes.push(note);
                }
                None
            }
        };
        let (name, module) = found.unwrap_or(("[unknown]", "[kernel]"));
        Function { name: name.to_owned(), module: module.to_owned(), is_kernel: true }
    }

    /// A process's function at an address.
    pub(super) fn user(&mut self, pid: i32, process: &Process, address: u64) -> Function {
        let Some(mapping) = process.space.find(address) else {
            return self.compiled(pid, address, "[unknown]");
        };
        let module = mapping.module();
        if module == ANONYMOUS {
            return self.compiled(pid, address, ANONYMOUS);
        }
        let Some(image) = self.image(pid, mapping) else {
            return unknown(&module);
        };
        // The vdso is loaded at its own address, plus where it is.
        let offset = address - mapping.start + mapping.offset;
        let Some(own) = image.address_of(offset) else { return unknown(&module) };
        let name = match image.place(own) {
            Place::Named(name) => demangled(name),
            Place::Stripped(start) => format!("{module}+{start:#x}"),
            Place::Jump => "[plt]".to_owned(),
            Place::Unknown => return unknown(&module),
        };
        Function { name, module, is_kernel: false }
    }

    fn image(&mut self, pid: i32, mapping: &Mapping) -> Option<&Image> {
        let files = self.files.entry(pid).or_insert_with(|| {
            let link = std::fs::read_link(format!("/proc/{pid}/ns/mnt")).unwrap_or_default();
            link.to_string_lossy().into_owned()
        });
        let path = &mapping.path;
        let key = (files.clone(), path.clone());
        if !self.images.contains_key(&key) && self.images.len() < IMAGES_MAX {
            let read = if path == VDSO { vdso() } else { read_image(pid, mapping) };
            match &read {
                None => self.notes.push(format!("{path}: cannot be read, so it has no names")),
                Some(image) if !image.is_complete && path != VDSO => self.notes.push(format!(
                    "{path} is stripped: functions that it does not export are named by where they \
                     begin"
                )),
                Some(_) => {}
            }
            self.images.insert(key.clone(), read);
        }
        self.images.get(&key)?.as_ref()
    }

    /// A function that a process compiled as it ran, if it wrote down where.
    fn compiled(&mut self, pid: i32, address: u64, module: &str) -> Function {
        let known = self.compiled.entry(pid).or_insert_with(|| {
            let text = read_bounded(&format!("/proc/{pid}/root/tmp/perf-{pid}.map"));
            parse_compiled(&text.unwrap_or_default())
        });
        let after = known.partition_point(|(start, ..)| *start <= address);
        match known[..after].last().filter(|(_, end, _)| address < *end) {
            Some((_, _, name)) => {
                Function { name: name.clone(), module: "[compiled]".to_owned(), is_kernel: false }
            }
            None => unknown(module),
        }
    }
}

/// Finds the file behind a mapping and reads it.
pub(super) fn read_image(pid: i32, mapping: &Mapping) -> Option<Image> {
    let root = format!("/proc/{pid}/root");
    let files = maps::places(pid, mapping).into_iter().filter_map(|place| File::open(place).ok());
    files.filter_map(|file| Image::read(file, &root).ok()).next()
}

fn unknown(module: &str) -> Function {
    let name = match module.starts_with('[') {
        true => module.to_owned(),
        false => format!("[unknown in {module}]"),
    };
    Function { name, module: module.to_owned(), is_kernel: false }
}

/// As people write it: Rust without the hash, C++ with its arguments.
fn demangled(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    if name.starts_with("_Z")
        && let Ok(symbol) = cpp_demangle::Symbol::new(name)
        && let Ok(text) = symbol.demangle()
    {
        return text;
    }
    // `memcpy@@GLIBC_2.14` in tables of debug information.
    name.split('@').next().unwrap_or(name).to_owned()
}

/// The kernel's part is the same in every process, so it is read from our own.
fn vdso() -> Option<Image> {
    let space = Space::of(std::process::id() as i32);
    let mapping = space.mappings().iter().find(|mapping| mapping.path == VDSO)?;
    let mut memory = File::open("/proc/self/mem").ok()?;
    memory.seek(SeekFrom::Start(mapping.start)).ok()?;
    let length = (mapping.end - mapping.start).min(VDSO_BYTES_MAX);
    let mut bytes = Vec::new();
    memory.take(length).read_to_end(&mut bytes).ok()?;
    Image::in_memory(&bytes)
}

fn read_bounded(path: &str) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(COMPILED_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Lines of "start size name", both in hexadecimal (`tools/perf/Documentation/jit-interface.txt`).
fn parse_compiled(text: &str) -> Vec<(u64, u64, String)> {
    let line = |line: &str| {
        let mut fields = line.splitn(3, ' ');
        let start = u64::from_str_radix(fields.next()?, 16).ok()?;
        let size = u64::from_str_radix(fields.next()?, 16).ok()?;
        Some((start, start.checked_add(size)?, fields.next()?.to_owned()))
    };
    let mut found: Vec<_> = text.lines().filter_map(line).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_as_people_write_them() {
        assert_eq!(demangled("_RNvCs1234_7mycrate3foo"), "mycrate::foo");
        assert_eq!(demangled("_ZN4core3fmt5write17h0123456789abcdefE"), "core::fmt::write");
        assert_eq!(demangled("_ZN3foo3barEi"), "foo::bar(int)");
        assert_eq!(demangled("memcpy@@GLIBC_2.14"), "memcpy");
        assert_eq!(demangled("_Znonsense"), "_Znonsense");
    }

    #[test]
    fn compiled_functions_are_read() {
        let text = "7f20 10 Array.map\n7f00 20 x y\nbad\n7f30 zz a\n";
        let expected =
            [(0x7f00, 0x7f20, "x y".to_owned()), (0x7f20, 0x7f30, "Array.map".to_owned())];
        assert_eq!(parse_compiled(text), expected);
    }

    #[inline(never)]
    fn known_by_its_name() {}

    #[test]
    fn this_process_and_its_vdso_have_names() {
        let pid = std::process::id() as i32;
        let process = Process { name: String::new(), space: Space::of(pid) };
        let mut symbols = Symbols::default();
        let address = known_by_its_name as *const () as u64;
        let found = symbols.user(pid, &process, address);
        assert!(found.name.ends_with("known_by_its_name"), "{found:?} {:?}", symbols.notes);
        assert_eq!(symbols.user(pid, &process, 16).name, "[unknown]");
        // Machines without one are rare, and have nothing to name.
        if let Some(vdso) = process.space.mappings().iter().find(|one| one.path == VDSO) {
            let image = super::vdso().unwrap();
            let offset = image.offset_of("__vdso_clock_gettime").unwrap_or(0);
            let found = symbols.user(pid, &process, vdso.start + offset);
            assert_eq!(found.module, VDSO);
        }
    }
}
