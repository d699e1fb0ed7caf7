//! Modes of AF_XDP.

use std::fmt;

/// Way that packets take from the driver to the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// The driver writes into the memory of the process.
    ZeroCopy,
    /// The program runs in the driver, and each packet is copied once.
    Copy,
    /// The program runs in the network stack, after the kernel has made its own buffer.
    Generic,
}

impl XdpMode {
    /// Returns its name in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ZeroCopy => "zero-copy",
            Self::Copy => "copy",
            Self::Generic => "generic",
        }
    }
}

impl fmt::Display for XdpMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
