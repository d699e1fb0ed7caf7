//! Settings of a network driver: rings, interrupt delay, queues and offloads (ethtool(8),
//! `include/uapi/linux/ethtool.h`). Writes only the offloads and queues of virtual links in a namespace of their own
//! ([`crate::sandbox::link_settings`]).

use super::driver::EthtoolSocket;
use super::message::ShortName;
use crate::netlink::message::u32_at;

const ETHTOOL_GCOALESCE: u32 = 0x0e;
const ETHTOOL_GRINGPARAM: u32 = 0x10;
const ETHTOOL_GTXCSUM: u32 = 0x16;
const ETHTOOL_STXCSUM: u32 = 0x17;
const ETHTOOL_GTSO: u32 = 0x1e;
const ETHTOOL_STSO: u32 = 0x1f;
const ETHTOOL_GGSO: u32 = 0x23;
const ETHTOOL_SGSO: u32 = 0x24;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_SGRO: u32 = 0x2c;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_SCHANNELS: u32 = 0x3d;
const ETH_FLAG_LRO: u32 = 1 << 15;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverSetting {
    /// Receive ring: `CURRENT of MAX`.
    RxRing,
    /// Transmit ring: `CURRENT of MAX`.
    TxRing,
    /// Interrupt delay of receives, in µs.
    RxUsecs,
    /// Adaptive interrupt delay of receives, 0 or 1.
    AdaptiveRx,
    /// Combined queues: `CURRENT of MAX`.
    CombinedChannels,
    /// Generic receive offload, 0 or 1.
    Gro,
    /// TCP segmentation offload, 0 or 1.
    Tso,
    /// Large receive offload, 0 or 1.
    Lro,
    /// Generic segmentation offload, 0 or 1.
    Gso,
    /// Checksums of sent packets by the device, 0 or 1.
    TxChecksum,
}

impl DriverSetting {
    fn command(self) -> u32 {
        match self {
            Self::RxRing | Self::TxRing => ETHTOOL_GRINGPARAM,
            Self::RxUsecs | Self::AdaptiveRx => ETHTOOL_GCOALESCE,
            Self::CombinedChannels => ETHTOOL_GCHANNELS,
            Self::Gro => ETHTOOL_GGRO,
            Self::Tso => ETHTOOL_GTSO,
            Self::Lro => ETHTOOL_GFLAGS,
            Self::Gso => ETHTOOL_GGSO,
            Self::TxChecksum => ETHTOOL_GTXCSUM,
        }
    }

    /// Returns the command that writes a `struct ethtool_value` of 0 or 1; `None` for other settings.
    fn write_command(self) -> Option<u32> {
        match self {
            Self::Gro => Some(ETHTOOL_SGRO),
            Self::Tso => Some(ETHTOOL_STSO),
            Self::Gso => Some(ETHTOOL_SGSO),
            Self::TxChecksum => Some(ETHTOOL_STXCSUM),
            _ => None,
        }
    }

    /// Formats the kernel's response to [`Self::command`].
    fn format(self, response: &[u8]) -> Option<String> {
        let word = |at: usize| u32_at(response, at * 4);
        let format_with_max =
            |current: usize, max: usize| Some(format!("{} of {}", word(current)?, word(max)?));
        match self {
            // struct ethtool_ringparam: cmd, four maxima, then the current values.
            Self::RxRing => format_with_max(5, 1),
            Self::TxRing => format_with_max(8, 4),
            // struct ethtool_coalesce.
            Self::RxUsecs => Some(word(1)?.to_string()),
            Self::AdaptiveRx => Some(word(10)?.to_string()),
            // struct ethtool_channels: cmd, maxima of rx, tx, other, combined, then the current values.
            Self::CombinedChannels => format_with_max(8, 4),
            // struct ethtool_value.
            Self::Gro | Self::Tso | Self::Gso => Some(word(1)?.to_string()),
            // The kernel returns the bit of the feature.
            Self::TxChecksum => Some(u32::from(word(1)? != 0).to_string()),
            Self::Lro => Some(u32::from(word(1)? & ETH_FLAG_LRO != 0).to_string()),
        }
    }
}

/// Turns an offload of `link` on or off.
///
/// # Errors
/// The setting is no offload, the device does not have it, or the link does not exist.
pub(crate) fn write_offload(
    socket: &EthtoolSocket,
    link: &str,
    setting: DriverSetting,
    is_on: bool,
) -> std::io::Result<()> {
    let command = setting.write_command().ok_or_else(|| std::io::Error::other("not an offload"))?;
    socket.set_value(ShortName::new(link.as_bytes()), command, u32::from(is_on))
}

/// Returns the number of receiving queues of `link`, alone or combined with sending ones.
///
/// # Errors
/// The driver does not report it, or the link does not exist.
pub(crate) fn read_queues(socket: &EthtoolSocket, link: &str) -> std::io::Result<u32> {
    let response = socket.query(ShortName::new(link.as_bytes()), ETHTOOL_GCHANNELS)?;
    let word = |at: usize| u32_at(&response, at * 4).unwrap_or(0);
    Ok(word(5) + word(8))
}

/// Sets the receiving and the sending queues of a virtual link, which has no combined ones.
///
/// # Errors
/// The device does not have as many, or the link does not exist.
pub(crate) fn write_queues(socket: &EthtoolSocket, link: &str, queues: u32) -> std::io::Result<()> {
    let structure = [ETHTOOL_SCHANNELS, 0, 0, 0, 0, queues, queues, 0, 0];
    socket.set_words(ShortName::new(link.as_bytes()), &structure)
}

/// Reads a setting of the driver of `link`.
///
/// # Errors
/// The driver does not have it, or the link does not exist.
pub(crate) fn read_setting(
    socket: &EthtoolSocket,
    link: &str,
    setting: DriverSetting,
) -> std::io::Result<String> {
    let response = socket.query(ShortName::new(link.as_bytes()), setting.command())?;
    setting.format(&response).ok_or_else(|| std::io::Error::other("unknown format"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structures_of_the_kernel_are_read() {
        let bytes = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_ne_bytes()).collect() };
        let ring = bytes(&[0x10, 4096, 1, 2, 2048, 256, 3, 4, 128]);
        assert_eq!(DriverSetting::RxRing.format(&ring).unwrap(), "256 of 4096");
        assert_eq!(DriverSetting::TxRing.format(&ring).unwrap(), "128 of 2048");
        let coalesce = bytes(&[0x0e, 400, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(DriverSetting::RxUsecs.format(&coalesce).unwrap(), "400");
        assert_eq!(DriverSetting::AdaptiveRx.format(&coalesce).unwrap(), "1");
        let channels = bytes(&[0x3c, 0, 0, 1, 8, 0, 0, 1, 2]);
        assert_eq!(DriverSetting::CombinedChannels.format(&channels).unwrap(), "2 of 8");
        assert_eq!(DriverSetting::Lro.format(&bytes(&[0x25, ETH_FLAG_LRO])).unwrap(), "1");
        assert_eq!(DriverSetting::Gro.format(&bytes(&[0x2b])), None);
    }
}
