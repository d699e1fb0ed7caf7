//! Names of the kernel's functions: `/proc/kallsyms` (proc(5)).
//!
//! The caller determines whether the kernel may be sampled at all.

use crate::kernel_file::NotObservable;

/// Functions of the kernel and of its modules.
#[derive(Clone, Debug, Default)]
pub(super) struct KernelSymbols {
    text: String,
    /// Address, and the start and end of the line with the name in the text; sorted by address.
    functions: Vec<(u64, u32, u32)>,
}

const FIGURE: &str = "names of kernel functions";
/// Source of the kernel's function names.
const PATH: &str = "/proc/kallsyms";

impl KernelSymbols {
    /// Reads the table.
    ///
    /// # Errors
    /// The table cannot be read, or the kernel hides the addresses.
    pub(super) fn read() -> Result<Self, NotObservable> {
        let bytes = std::fs::read(PATH).map_err(|error| NotObservable::io(FIGURE, PATH, &error))?;
        let kernel = Self::parse(String::from_utf8_lossy(&bytes).into_owned());
        if kernel.functions.is_empty() {
            let reason = format!("{PATH} has no addresses (kernel.kptr_restrict, or CAP_SYSLOG is missing)");
            return Err(NotObservable::new(FIGURE, reason));
        }
        Ok(kernel)
    }

    /// Parses lines of "address type name [module]"; hidden addresses are zeros, and left out.
    pub(super) fn parse(text: String) -> Self {
        let mut functions = Vec::new();
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            let begin = at;
            at += line.len();
            let mut fields = line.split_ascii_whitespace();
            let (Some(address), Some(kind)) = (fields.next(), fields.next()) else { continue };
            let Ok(address) = u64::from_str_radix(address, 16) else { continue };
            if address != 0 && matches!(kind, "t" | "T" | "w" | "W") {
                functions.push((address, begin as u32, at as u32));
            }
        }
        functions.sort_by_key(|&(address, ..)| address);
        Self { text, functions }
    }

    pub(super) fn find(&self, address: u64) -> Option<(&str, &str)> {
        let after = self.functions.partition_point(|&(start, ..)| start <= address);
        let &(_, begin, end) = self.functions[..after].last()?;
        let line = self.text.get(begin as usize..end as usize)?;
        let mut fields = line.split_ascii_whitespace().skip(2);
        Some((fields.next()?, fields.next().unwrap_or("[kernel]")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_address() {
        let text = "ffffffff81000200 T second\nffffffff81000100 t first\n\
            ffffffff81000180 d data\nffffffffc0000000 t of_module\t[nf_tables]\n";
        let kernel = KernelSymbols::parse(text.to_owned());
        assert_eq!(kernel.find(0xffff_ffff_8100_0190), Some(("first", "[kernel]")));
        assert_eq!(kernel.find(0xffff_ffff_8100_0200), Some(("second", "[kernel]")));
        assert_eq!(kernel.find(0xffff_ffff_c000_0010), Some(("of_module", "[nf_tables]")));
        assert_eq!(kernel.find(0x1000), None);
    }

    #[test]
    fn hidden_addresses_are_none() {
        let hidden = "0000000000000000 T first\n0000000000000000 t second\nx\n";
        assert!(KernelSymbols::parse(hidden.to_owned()).functions.is_empty());
    }
}
