//! Symbolizer: function names for addresses of any process and of the kernel.
//!
//! It runs after the sampling. Each file is read once, when its first address is looked up.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};

use super::elf::{AddressLocation, ChecksumBudget, Image};
use super::kallsyms::KernelSymbols;
use super::maps::{self, ANONYMOUS, AddressSpace, Mapping};
use super::process_file::{is_owned_by_process, open_of_process};
use super::stacks::SampledProcess;
use crate::kernel_file::NotObservable;
use crate::process::printable;

/// Name of the kernel code that is mapped into every process.
const VDSO: &str = "[vdso]";
const VDSO_BYTES_MAX: u64 = 1 << 20;
const PERF_MAP_BYTES_MAX: u64 = 64 << 20;
/// Maximum number of files whose symbols are cached.
const IMAGES_MAX: usize = 1024;
/// Memory of all cached symbols, in bytes, after which no other file is read: observed processes choose their files.
const CACHED_BYTES_MAX: usize = 2 << 30;
/// Maximum number of functions read from a perf map.
const JIT_FUNCTIONS_MAX: usize = 1_000_000;
/// Maximum size of a demangled name, in bytes: a name of a few bytes may stand for any length.
const DEMANGLED_BYTES_MAX: usize = 64 << 10;

/// A function with its readable name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Function {
    /// Demangled name; `nginx+0x1a2b0` with its start address for a stripped function.
    pub name: String,
    /// File of the function: `nginx`, `libc.so.6`, `[kernel]`, `[vdso]`.
    pub module: String,
    pub is_kernel: bool,
}

/// JIT-compiled function: start, end and name.
type JitFunction = (u64, u64, String);

/// Cache of the symbols that were read.
#[derive(Debug, Default)]
pub(super) struct SymbolCache {
    kernel_symbols: Option<Result<KernelSymbols, NotObservable>>,
    /// Images by mount namespace and path; `None` for unreadable files.
    images: HashMap<(String, String), Option<Image>>,
    mount_namespaces: HashMap<i32, String>,
    /// JIT-compiled functions by PID.
    jit_functions: HashMap<i32, Vec<JitFunction>>,
    /// Memory of the images and the compiled functions.
    cached_bytes: usize,
    checksums: ChecksumBudget,
    /// Descriptions of functions without names, and their causes.
    pub(super) notes: Vec<String>,
}

impl SymbolCache {
    pub(super) fn kernel_function(&mut self, address: u64) -> Function {
        let kernel = self.kernel_symbols.get_or_insert_with(KernelSymbols::read);
        let symbol = match kernel {
            Ok(kernel) => kernel.find(address),
            Err(why) => {
                let note = format!("kernel functions have no names: {}", why.reason);
                if !self.notes.contains(&note) {
                    self.notes.push(note);
                }
                None
            }
        };
        let (name, module) = symbol.unwrap_or(("[unknown]", "[kernel]"));
        Function { name: name.to_owned(), module: module.to_owned(), is_kernel: true }
    }

    pub(super) fn user_function(&mut self, pid: i32, process: &SampledProcess, address: u64) -> Function {
        let found = self.find_user_function(pid, process, address);
        Function { name: printable(&found.name), module: printable(&found.module), ..found }
    }

    fn find_user_function(&mut self, pid: i32, process: &SampledProcess, address: u64) -> Function {
        let Some(mapping) = process.address_space.find(address) else {
            return self.jit_function(pid, address, "[unknown]");
        };
        let module = mapping.module();
        if module == ANONYMOUS {
            return self.jit_function(pid, address, ANONYMOUS);
        }
        let Some(image) = self.image(pid, mapping) else {
            return unknown_function(&module);
        };
        // Offset in the file. The mapping of the vdso has offset 0: its offset is that in the image.
        let offset = (address - mapping.start).wrapping_add(mapping.offset);
        let Some(file_address) = image.address_of(offset) else { return unknown_function(&module) };
        let name = match image.locate(file_address) {
            AddressLocation::Named(name) => demangle(name),
            AddressLocation::Stripped(start) => format!("{module}+{start:#x}"),
            AddressLocation::Plt => "[plt]".to_owned(),
            AddressLocation::Unknown => return unknown_function(&module),
        };
        Function { name, module, is_kernel: false }
    }

    fn image(&mut self, pid: i32, mapping: &Mapping) -> Option<&Image> {
        let mount_namespace = self.mount_namespaces.entry(pid).or_insert_with(|| {
            let link = std::fs::read_link(format!("/proc/{pid}/ns/mnt")).unwrap_or_default();
            link.to_string_lossy().into_owned()
        });
        let path = &mapping.path;
        let key = (mount_namespace.clone(), path.clone());
        let has_room = self.images.len() < IMAGES_MAX && self.cached_bytes < CACHED_BYTES_MAX;
        if has_room && !self.images.contains_key(&key) {
            let read = if path == VDSO { read_vdso() } else { read_image(pid, mapping, &mut self.checksums) };
            match &read {
                None => {
                    self.notes.push(format!("cannot read {}: its functions have no names", printable(path)))
                }
                Some(image) if !image.is_complete && path != VDSO => self.notes.push(format!(
                    "{} is stripped: functions that it does not export are named by their \
                     start addresses",
                    printable(path)
                )),
                Some(_) => {}
            }
            self.cached_bytes += read.as_ref().map_or(0, Image::memory_bytes);
            self.images.insert(key.clone(), read);
        }
        self.images.get(&key)?.as_ref()
    }

    /// Returns the JIT-compiled function at an address, if the process wrote it to its perf map
    /// (`/tmp/perf-PID.map`).
    fn jit_function(&mut self, pid: i32, address: u64, module: &str) -> Function {
        let cached_bytes = &mut self.cached_bytes;
        let functions = self.jit_functions.entry(pid).or_insert_with(|| {
            let text = (*cached_bytes < CACHED_BYTES_MAX).then(|| read_perf_map(pid)).flatten();
            let functions = parse_perf_map(&text.unwrap_or_default());
            let bytes = |function: &JitFunction| size_of::<JitFunction>() + function.2.len();
            *cached_bytes += functions.iter().map(bytes).sum::<usize>();
            functions
        });
        let after = functions.partition_point(|(start, ..)| *start <= address);
        match functions[..after].last().filter(|(_, end, _)| address < *end) {
            Some((_, _, name)) => {
                Function { name: name.clone(), module: "[compiled]".to_owned(), is_kernel: false }
            }
            None => unknown_function(module),
        }
    }
}

/// Reads the file of a mapping; `None`: no candidate path is readable.
pub(super) fn read_image(pid: i32, mapping: &Mapping, checksums: &mut ChecksumBudget) -> Option<Image> {
    let path = mapping.plain_path();
    maps::open_candidates(pid, mapping).find_map(|file| Image::read(file, Some(pid), path, checksums).ok())
}

fn unknown_function(module: &str) -> Function {
    let name = match module.starts_with('[') {
        true => module.to_owned(),
        false => format!("[unknown in {module}]"),
    };
    Function { name, module: module.to_owned(), is_kernel: false }
}

/// Text of at most [`DEMANGLED_BYTES_MAX`]: a longer one is an error.
struct BoundedText(String);

impl std::fmt::Write for BoundedText {
    fn write_str(&mut self, part: &str) -> std::fmt::Result {
        if self.0.len() + part.len() > DEMANGLED_BYTES_MAX {
            return Err(std::fmt::Error);
        }
        self.0.push_str(part);
        Ok(())
    }
}

/// Demangles a name: Rust without the hash, C++ with its arguments.
fn demangle(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    if name.starts_with("_Z")
        && let Ok(symbol) = cpp_demangle::Symbol::new(name)
    {
        let mut text = BoundedText(String::new());
        if symbol.structured_demangle(&mut text, &cpp_demangle::DemangleOptions::default()).is_ok() {
            return text.0;
        }
    }
    // Removes a symbol version: `memcpy@@GLIBC_2.14`.
    name.split('@').next().unwrap_or(name).to_owned()
}

/// Reads the vdso from the memory of this process; every 64-bit process has the same.
fn read_vdso() -> Option<Image> {
    let space = AddressSpace::read(std::process::id() as i32);
    let mapping = space.mappings().iter().find(|mapping| mapping.path == VDSO)?;
    let mut memory = File::open("/proc/self/mem").ok()?;
    memory.seek(SeekFrom::Start(mapping.start)).ok()?;
    let length = (mapping.end - mapping.start).min(VDSO_BYTES_MAX);
    let mut bytes = Vec::new();
    memory.take(length).read_to_end(&mut bytes).ok()?;
    Image::from_bytes(&bytes)
}

/// Reads the perf map of a process, unless another user wrote it: its name can be guessed.
fn read_perf_map(pid: i32) -> Option<String> {
    let file = open_of_process(pid, &format!("/tmp/perf-{pid}.map")).ok()?;
    if !is_owned_by_process(pid, &file) {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(PERF_MAP_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Parses lines of "start size name", both in hexadecimal
/// (`tools/perf/Documentation/jit-interface.txt`).
fn parse_perf_map(text: &str) -> Vec<JitFunction> {
    let line = |line: &str| {
        let mut fields = line.splitn(3, ' ');
        let start = u64::from_str_radix(fields.next()?, 16).ok()?;
        let size = u64::from_str_radix(fields.next()?, 16).ok()?;
        Some((start, start.checked_add(size)?, fields.next()?.to_owned()))
    };
    let mut functions: Vec<_> = text.lines().filter_map(line).take(JIT_FUNCTIONS_MAX).collect();
    functions.sort();
    functions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_as_people_write_them() {
        assert_eq!(demangle("_RNvCs1234_7mycrate3foo"), "mycrate::foo");
        assert_eq!(demangle("_ZN4core3fmt5write17h0123456789abcdefE"), "core::fmt::write");
        assert_eq!(demangle("_ZN3foo3barEi"), "foo::bar(int)");
        assert_eq!(demangle("memcpy@@GLIBC_2.14"), "memcpy");
        assert_eq!(demangle("_Znonsense"), "_Znonsense");
    }

    #[test]
    fn compiled_functions_are_read() {
        let text = "7f20 10 Array.map\n7f00 20 x y\nbad\n7f30 zz a\n";
        let expected = [(0x7f00, 0x7f20, "x y".to_owned()), (0x7f20, 0x7f30, "Array.map".to_owned())];
        assert_eq!(parse_perf_map(text), expected);
    }

    #[test]
    fn perf_maps_are_regular_files_of_the_process() {
        let pid = std::process::id() as i32;
        let path = std::path::PathBuf::from(format!("/tmp/perf-{pid}.map"));
        std::fs::write(&path, "10 8 compiled\x1b[31m\n").unwrap();
        let function = || SymbolCache::default().user_function(pid, &SampledProcess::default(), 0x12).name;
        assert_eq!(function(), "compiled?[31m");
        if std::os::unix::fs::chown(&path, Some(65_534), None).is_ok() {
            assert_eq!(function(), "[unknown]");
        }
        std::fs::remove_file(&path).unwrap();
        // A reader of the pipe would wait for a writer.
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert_eq!(function(), "[unknown]");
        std::fs::remove_file(&path).unwrap();
    }

    #[inline(never)]
    fn known_by_its_name() {}

    #[test]
    fn this_process_and_its_vdso_have_names() {
        let pid = std::process::id() as i32;
        let process = SampledProcess { name: String::new(), address_space: AddressSpace::read(pid) };
        let mut symbols = SymbolCache::default();
        let address = known_by_its_name as *const () as u64;
        let found = symbols.user_function(pid, &process, address);
        assert!(found.name.ends_with("known_by_its_name"), "{found:?} {:?}", symbols.notes);
        assert_eq!(symbols.user_function(pid, &process, 16).name, "[unknown]");
        // Machines without a vdso are rare, and have nothing to name.
        if let Some(vdso) = process.address_space.mappings().iter().find(|mapping| mapping.path == VDSO) {
            let image = read_vdso().unwrap();
            let offset = image.offset_of("__vdso_clock_gettime").unwrap_or(0);
            let found = symbols.user_function(pid, &process, vdso.start + offset);
            assert_eq!(found.module, VDSO);
        }
    }
}
