//! IPv4 addresses as text, without a division. Most addresses that a proxy writes, into request
//! fields and log lines, are IPv4.

use std::net::Ipv4Addr;

/// An IPv4 address in dotted decimal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ipv4Text {
    /// Longer than the text, so that it can be stored in one write.
    pub(crate) bytes: [u8; 16],
    pub(crate) length: usize,
}

/// Each octet in decimal with a dot behind it, and the length of both.
const OCTETS: [([u8; 4], u8); 256] = {
    let mut octets = [([b'.'; 4], 0); 256];
    let mut value = 0;
    while value < 256 {
        let digits = [value / 100, value / 10 % 10, value % 10];
        let mut at = if value >= 100 {
            0
        } else if value >= 10 {
            1
        } else {
            2
        };
        octets[value].1 = 4 - at as u8;
        let mut to = 0;
        while at < 3 {
            octets[value].0[to] = b'0' + digits[at] as u8;
            (at, to) = (at + 1, to + 1);
        }
        value += 1;
    }
    octets
};

impl Ipv4Text {
    #[inline]
    pub(crate) fn new(address: Ipv4Addr) -> Self {
        let mut bytes = [0; 16];
        let mut length = 0;
        for octet in address.octets() {
            let (text, length_with_dot) = OCTETS[usize::from(octet)];
            // An octet takes at most four bytes, so the last one begins at byte 12 at the latest.
            // The surplus of a shorter one is overwritten by the next.
            if let Some(target) = bytes.get_mut(length..length + 4) {
                target.copy_from_slice(&text);
            }
            length += usize::from(length_with_dot);
        }
        // Without the last dot.
        Self { bytes, length: length - 1 }
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_everywhere() {
        let mut rng = fastrand::Rng::with_seed(1);
        let random = (0..10_000).map(|_| Ipv4Addr::from(rng.u32(..)));
        let edges = (0..=255u8)
            .flat_map(|octet| [Ipv4Addr::new(octet, 0, 255, 10), Ipv4Addr::new(1, 99, 100, octet)]);
        for address in random.chain(edges) {
            assert_eq!(Ipv4Text::new(address).as_bytes(), address.to_string().as_bytes());
        }
    }
}
