//! IP networks, by which peers are recognised.

use std::net::IpAddr;

/// An IP network in CIDR form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Address of the network, with host bits 0.
    pub address: IpAddr,
    /// Number of leading bits that count.
    pub prefix: u8,
}

impl Network {
    /// Returns whether `address` is in the network. An IPv4 address mapped into IPv6 counts as the
    /// IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                u32::from(network) & mask == u32::from(address) & mask
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                u128::from(network) & mask == u128::from(address) & mask
            }
            _ => false,
        }
    }
}
