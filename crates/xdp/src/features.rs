//! Features of XDP that the driver of an interface reports (`Documentation/netlink/specs/netdev.yaml` of Linux, from 6.3
//! on), by generic netlink.

use rustix::net::netlink::GENERIC;

use crate::mode::XdpMode;
use crate::netlink::{attribute, push_attribute, request_from};

/// Family that knows the numbers of the others, its command, and the attributes of the number and the name.
const FAMILY_CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const NAME: &[u8] = b"netdev\0";
/// Command of the family `netdev`, and its attributes.
const GET_DEVICE: u8 = 1;
const DEVICE_INDEX: u16 = 1;
const DEVICE_FEATURES: u16 = 3;
/// Bytes of `struct genlmsghdr`: the command, a version and two of padding.
const HEADER_BYTES: usize = 4;
/// The driver runs programs (`NETDEV_XDP_ACT_BASIC`).
const RUNS_PROGRAMS: u64 = 1 << 0;
/// The driver writes into the memory of AF_XDP sockets (`NETDEV_XDP_ACT_XSK_ZEROCOPY`).
const HAS_ZERO_COPY: u64 = 1 << 3;

/// Returns the best mode of an interface, in the network namespace of the thread; `None` if the kernel does not report it.
pub(crate) fn mode(interface: u32) -> Option<XdpMode> {
    let mut body = vec![GET_FAMILY, 1, 0, 0];
    push_attribute(&mut body, FAMILY_NAME, NAME);
    let answers = request_from(Some(GENERIC), FAMILY_CONTROL, false, &body).ok()?;
    let family = attribute(answers.first()?.get(HEADER_BYTES..)?, FAMILY_ID)?.first_chunk()?;
    let mut body = vec![GET_DEVICE, 1, 0, 0];
    push_attribute(&mut body, DEVICE_INDEX, &interface.to_ne_bytes());
    let answers = request_from(Some(GENERIC), u16::from_ne_bytes(*family), false, &body).ok()?;
    parse_mode(answers.first()?)
}

/// Parses the description of a device.
fn parse_mode(answer: &[u8]) -> Option<XdpMode> {
    let features = attribute(answer.get(HEADER_BYTES..)?, DEVICE_FEATURES)?.first_chunk()?;
    let features = u64::from_ne_bytes(*features);
    Some(match (features & RUNS_PROGRAMS != 0, features & HAS_ZERO_COPY != 0) {
        (false, _) => XdpMode::Generic,
        (true, true) => XdpMode::ZeroCopy,
        (true, false) => XdpMode::Copy,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_is_the_best_that_the_driver_has() {
        let answer = |features: u64| {
            let mut answer = vec![GET_DEVICE, 1, 0, 0];
            push_attribute(&mut answer, DEVICE_INDEX, &3_u32.to_ne_bytes());
            push_attribute(&mut answer, DEVICE_FEATURES, &features.to_ne_bytes());
            answer
        };
        for (features, expected) in [
            (0, XdpMode::Generic),
            (HAS_ZERO_COPY, XdpMode::Generic),
            (0x23, XdpMode::Copy),
            (0x2b, XdpMode::ZeroCopy),
        ] {
            assert_eq!(parse_mode(&answer(features)), Some(expected), "{features:#x}");
        }
        let whole = answer(0x23);
        for end in 0..whole.len() {
            assert_eq!(parse_mode(&whole[..end]), None, "{end}");
        }
    }

    #[test]
    fn an_interface_that_does_not_exist_has_no_mode() {
        assert_eq!(mode(u32::MAX), None);
    }
}
