//! Queue of a received segment: the Toeplitz hash of its addresses and ports, by a key and a table of the device
//! (receive-side scaling). With them a client chooses ports whose segments arrive at its own queue. Pure.

use std::net::IpAddr;

use crate::packet::FourTuple;

/// Maximum bytes of two addresses and two ports.
const INPUT_BYTES_MAX: usize = 36;

/// Key and table of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steering {
    key: Vec<u8>,
    /// Queue by the lower bits of the hash.
    table: Vec<u32>,
}

impl Steering {
    /// Creates it; `None` if the key is too short, or the table is empty.
    #[must_use]
    pub fn new(key: Vec<u8>, table: Vec<u32>) -> Option<Self> {
        (key.len() >= INPUT_BYTES_MAX + 4 && !table.is_empty()).then_some(Self { key, table })
    }

    /// Returns the queue at which segments of the peer arrive.
    #[must_use]
    pub fn queue(&self, tuple: &FourTuple) -> u32 {
        let hash = hash(&self.key, tuple);
        self.table[hash as usize % self.table.len()]
    }
}

/// Returns the hash of a received segment: of its source and its destination, first their addresses.
fn hash(key: &[u8], tuple: &FourTuple) -> u32 {
    let (mut input, mut length) = ([0; INPUT_BYTES_MAX], 0);
    let mut add = |bytes: &[u8]| {
        input[length..length + bytes.len()].copy_from_slice(bytes);
        length += bytes.len();
    };
    for ip in [tuple.remote.ip(), tuple.local.ip()] {
        match ip {
            IpAddr::V4(ip) => add(&ip.octets()),
            IpAddr::V6(ip) => add(&ip.octets()),
        }
    }
    add(&tuple.remote.port().to_be_bytes());
    add(&tuple.local.port().to_be_bytes());
    toeplitz(key, &input[..length])
}

/// Returns the sum, without carry, of the 32 bits of the key from each bit on that is set in the input.
fn toeplitz(key: &[u8], input: &[u8]) -> u32 {
    let word = |at: usize| key.get(at).copied().unwrap_or(0);
    let mut window = u32::from_be_bytes([word(0), word(1), word(2), word(3)]);
    let mut hash = 0;
    for (at, byte) in input.iter().enumerate() {
        for bit in (0..8).rev() {
            if byte >> bit & 1 == 1 {
                hash ^= window;
            }
            window = window << 1 | u32::from(word(at + 4) >> bit & 1);
        }
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Key of the examples that Microsoft publishes for drivers ("Verifying the RSS Hash Calculation").
    const KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
        0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
        0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    #[test]
    fn the_hash_is_that_of_devices() {
        for (remote, local, hash) in [
            ("66.9.149.187:2794", "161.142.100.80:1766", 0x51cc_c178),
            ("199.92.111.2:14230", "65.69.140.83:4739", 0xc626_b0ea),
            ("24.19.198.95:12898", "12.22.207.184:38024", 0x5c2b_394a),
            ("38.27.205.30:48228", "209.142.163.6:2217", 0xafc7_327f),
            ("153.39.163.191:44251", "202.188.127.2:1303", 0x10e8_28a2),
            ("[3ffe:2501:200:1fff::7]:2794", "[3ffe:2501:200:3::1]:1766", 0x4020_7d3d),
        ] {
            let tuple = FourTuple { remote: remote.parse().unwrap(), local: local.parse().unwrap() };
            assert_eq!(super::hash(&KEY, &tuple), hash, "{remote}");
            let steering = Steering::new(KEY.to_vec(), (0..128).collect()).unwrap();
            assert_eq!(steering.queue(&tuple), hash % 128);
        }
        assert_eq!(Steering::new(KEY[..39].to_vec(), vec![0]), None);
        assert_eq!(Steering::new(KEY.to_vec(), Vec::new()), None);
    }
}
