//! Sorted networks, of which the longest that has an address counts.

use std::net::IpAddr;

use super::{Conflict, EntryFault, Match, Records};

#[derive(Default)]
pub(super) struct NetworkIndex {
    v4: Box<[Network<u32>]>,
    v6: Box<[Network<u128>]>,
}

#[derive(Clone, Copy)]
struct Network<T> {
    address: T,
    offset: u32,
    /// The longest other network that has this one.
    parent: u32,
    prefix: u8,
}

/// Parent of a network that is in no other one.
const NONE: u32 = u32::MAX;

/// An address as a number.
trait Bits: Copy + Ord {
    const COUNT: u8;

    /// Returns whether the first bits are the same.
    fn is_same_prefix(self, other: Self, prefix: u8) -> bool;
}

impl Bits for u32 {
    const COUNT: u8 = 32;

    fn is_same_prefix(self, other: Self, prefix: u8) -> bool {
        (self ^ other).checked_shr((Self::COUNT - prefix).into()).unwrap_or(0) == 0
    }
}

impl Bits for u128 {
    const COUNT: u8 = 128;

    fn is_same_prefix(self, other: Self, prefix: u8) -> bool {
        (self ^ other).checked_shr((Self::COUNT - prefix).into()).unwrap_or(0) == 0
    }
}

/// A network, its value, and its position in the input.
type Added<T> = (T, u8, u32, u32);

#[derive(Default)]
pub(super) struct NetworkBuilder {
    v4: Vec<Added<u32>>,
    v6: Vec<Added<u128>>,
}

impl NetworkBuilder {
    pub(super) fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Returns the network that was added last.
    pub(super) fn last(&self) -> Option<String> {
        let v4 = self
            .v4
            .last()
            .map(|&(address, prefix, _, position)| (position, shown(IpAddr::V4(address.into()), prefix, 32)));
        let v6 = self.v6.last().map(|&(address, prefix, _, position)| {
            (position, shown(IpAddr::V6(address.into()), prefix, 128))
        });
        v4.into_iter().chain(v6).max_by_key(|(position, _)| *position).map(|(_, network)| network)
    }

    /// Adds a network, whose value is a record.
    pub(super) fn add(&mut self, address: IpAddr, prefix: u8, offset: u32) {
        let position = self.len() as u32;
        match address {
            IpAddr::V4(address) => self.v4.push((address.to_bits(), prefix, offset, position)),
            IpAddr::V6(address) => self.v6.push((address.to_bits(), prefix, offset, position)),
        }
    }

    pub(super) fn build(self, records: &Records, conflicts: &mut Vec<Conflict>) -> NetworkIndex {
        NetworkIndex { v4: build(self.v4, records, conflicts), v6: build(self.v6, records, conflicts) }
    }
}

fn build<T: Bits>(
    mut added: Vec<Added<T>>,
    records: &Records,
    conflicts: &mut Vec<Conflict>,
) -> Box<[Network<T>]> {
    added.sort_unstable_by_key(|&(address, prefix, _, position)| (address, prefix, position));
    let (mut networks, mut kept): (Vec<Network<T>>, Vec<u32>) = (Vec::with_capacity(added.len()), Vec::new());
    for (address, prefix, offset, position) in added {
        if let (Some(last), Some(&earlier)) = (networks.last(), kept.last())
            && (last.address, last.prefix) == (address, prefix)
        {
            if records.get(last.offset).1 != records.get(offset).1 {
                conflicts.push(Conflict { earlier, later: position });
            }
            continue;
        }
        let mut parent = networks.len().checked_sub(1).map_or(NONE, |last| last as u32);
        while let Some(other) = networks.get(parent as usize)
            && !other.address.is_same_prefix(address, other.prefix)
        {
            parent = other.parent;
        }
        networks.push(Network { address, offset, parent, prefix });
        kept.push(position);
    }
    networks.into()
}

fn find<T: Bits>(networks: &[Network<T>], address: T, below: u32) -> Option<(u32, u32)> {
    let behind = networks.partition_point(|network| network.address <= address);
    let mut network = networks.get(behind.checked_sub(1)?)?;
    loop {
        // A prefix of 0 bits is a match, too.
        let specificity = u32::from(network.prefix) + 1;
        if specificity < below && network.address.is_same_prefix(address, network.prefix) {
            return Some((specificity, network.offset));
        }
        network = networks.get(network.parent as usize)?;
    }
}

fn own_record<T: Bits>(networks: &[Network<T>], address: T, prefix: u8) -> Option<u32> {
    let found =
        networks.binary_search_by_key(&(address, prefix), |network| (network.address, network.prefix));
    found.ok().map(|position| networks[position].offset)
}

impl NetworkIndex {
    /// Returns the value of the longest network of an address. An IPv4 address mapped into IPv6 counts as the
    /// IPv4 address.
    pub(super) fn find<'t>(&self, address: IpAddr, below: u32, records: &'t Records) -> Option<Match<'t>> {
        let (specificity, offset) = match address.to_canonical() {
            IpAddr::V4(address) => find(&self.v4, address.to_bits(), below),
            IpAddr::V6(address) => find(&self.v6, address.to_bits(), below),
        }?;
        Some(Match { specificity, value: records.get(offset).1 })
    }

    pub(super) fn own_record(&self, address: IpAddr, prefix: u8) -> Option<u32> {
        match address {
            IpAddr::V4(address) => own_record(&self.v4, address.to_bits(), prefix),
            IpAddr::V6(address) => own_record(&self.v6, address.to_bits(), prefix),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.v4) + size_of_val(&*self.v6)
    }

    /// Calls `visit` with each network and its record.
    pub(super) fn visit(&self, visit: &mut dyn FnMut(String, u32)) {
        for network in &self.v4 {
            visit(shown(IpAddr::V4(network.address.into()), network.prefix, 32), network.offset);
        }
        for network in &self.v6 {
            visit(shown(IpAddr::V6(network.address.into()), network.prefix, 128), network.offset);
        }
    }
}

fn shown(address: IpAddr, prefix: u8, bits: u8) -> String {
    if prefix == bits { address.to_string() } else { format!("{address}/{prefix}") }
}

/// Parses a network like `10.0.0.0/8`, or an address, which is a network of one.
pub(super) fn parse(text: &str) -> Result<(IpAddr, u8), EntryFault> {
    let invalid = || EntryFault::Network(text.into());
    let (address, prefix) = text.split_once('/').map_or((text, None), |(own, prefix)| (own, Some(prefix)));
    let address: IpAddr = address.parse().map_err(|_| invalid())?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match prefix {
        Some(prefix) => prefix.parse().ok().filter(|prefix| *prefix <= bits).ok_or_else(invalid)?,
        None => bits,
    };
    let first = match address {
        IpAddr::V4(address) => {
            let hosts = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
            IpAddr::V4((address.to_bits() & !hosts).into())
        }
        IpAddr::V6(address) => {
            let hosts = u128::MAX.checked_shr(prefix.into()).unwrap_or(0);
            IpAddr::V6((address.to_bits() & !hosts).into())
        }
    };
    if first != address {
        return Err(EntryFault::NetworkBits { text: text.into(), first, prefix });
    }
    if matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
        return Err(EntryFault::MappedNetwork(text.into()));
    }
    Ok((address, prefix))
}
