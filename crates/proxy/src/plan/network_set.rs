//! Sets of many networks, as files have them: sorted ranges of addresses. A lookup takes a binary search; a
//! network takes 8 bytes (IPv4) or 32 bytes (IPv6).

use std::net::IpAddr;

use super::Network;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkSet {
    v4: Box<[(u32, u32)]>,
    v6: Box<[(u128, u128)]>,
}

impl NetworkSet {
    /// Creates the set of these networks, which may overlap.
    #[must_use]
    pub fn new(networks: impl Iterator<Item = Network>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for Network { address, prefix } in networks {
            match address {
                IpAddr::V4(address) => {
                    let hosts = u32::MAX.checked_shr(u32::from(prefix)).unwrap_or(0);
                    v4.push((address.to_bits(), address.to_bits() | hosts));
                }
                IpAddr::V6(address) => {
                    let hosts = u128::MAX.checked_shr(u32::from(prefix)).unwrap_or(0);
                    v6.push((address.to_bits(), address.to_bits() | hosts));
                }
            }
        }
        Self { v4: merge(v4), v6: merge(v6) }
    }

    /// Returns whether an address is in one of the networks. An IPv4 address mapped into IPv6 counts as the IPv4
    /// address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => contains(&self.v4, address.to_bits()),
            IpAddr::V6(address) => contains(&self.v6, address.to_bits()),
        }
    }
}

/// Sorts ranges, and merges those that overlap.
fn merge<T: Ord + Copy>(mut ranges: Vec<(T, T)>) -> Box<[(T, T)]> {
    ranges.sort_unstable();
    let mut merged: Vec<(T, T)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(previous) if first <= previous.1 => previous.1 = previous.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged.into()
}

fn contains<T: Ord + Copy>(ranges: &[(T, T)], address: T) -> bool {
    let behind = ranges.partition_point(|(first, _)| *first <= address);
    behind.checked_sub(1).and_then(|index| ranges.get(index)).is_some_and(|(_, last)| address <= *last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_the_addresses_of_its_networks() {
        let mut random = fastrand::Rng::with_seed(7);
        let networks: Vec<Network> = (0..40)
            .map(|_| {
                // Few addresses, so that networks overlap and are next to each other.
                let prefix = random.u8(20..=32);
                let address =
                    (random.u32(..) & 0x0000_ffff | 0x0a00_0000) & u32::MAX << (32 - u32::from(prefix));
                Network { address: IpAddr::V4(address.into()), prefix }
            })
            .collect();
        let set = NetworkSet::new(networks.iter().copied());
        for _ in 0..20_000 {
            let address = IpAddr::V4((random.u32(..) & 0x0001_ffff | 0x0a00_0000).into());
            let expected = networks.iter().any(|network| network.contains(address));
            assert_eq!(set.contains(address), expected, "{address}");
        }
        assert!(!NetworkSet::default().contains(IpAddr::V4([0, 0, 0, 0].into())));
    }

    #[test]
    fn the_ends_of_both_families_are_in_it() {
        let network = |text: &str| {
            let (address, prefix) = text.split_once('/').unwrap();
            Network { address: address.parse().unwrap(), prefix: prefix.parse().unwrap() }
        };
        let texts = ["10.0.0.0/8", "255.255.255.255/32", "2001:db8::/32", "::1/128", "fe80::/10"];
        let set = NetworkSet::new(texts.into_iter().map(network));
        for (address, is_in) in [
            ("10.0.0.0", true),
            ("10.255.255.255", true),
            ("11.0.0.0", false),
            ("9.255.255.255", false),
            ("255.255.255.255", true),
            ("2001:db8:ffff::1", true),
            ("2001:db9::", false),
            ("::1", true),
            ("::2", false),
            ("::ffff:10.1.1.1", true),
            ("febf::1", true),
        ] {
            assert_eq!(set.contains(address.parse().unwrap()), is_in, "{address}");
        }
        assert!(NetworkSet::new([network("0.0.0.0/0")].into_iter()).contains("1.2.3.4".parse().unwrap()));
    }
}
