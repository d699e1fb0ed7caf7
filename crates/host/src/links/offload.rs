//! Settings of a network driver: rings, interrupt delay, queues and offloads (ethtool(8),
//! `include/uapi/linux/ethtool.h`). Reads them only.

use super::driver::EthtoolSocket;
use super::message::ShortName;
use crate::netlink::message::u32_at;

const ETHTOOL_GCOALESCE: u32 = 0x0e;
const ETHTOOL_GRINGPARAM: u32 = 0x10;
const ETHTOOL_GTSO: u32 = 0x1e;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
/// `ETH_FLAG_LRO`.
const ETH_FLAG_LRO: u32 = 1 << 15;

/// Setting of a network driver.
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
        }
    }

    /// Formats the kernel's response to [`Self::command`].
    fn format(self, response: &[u8]) -> Option<String> {
        let word = |at: usize| u32_at(response, at * 4);
        let of_max = |current: usize, max: usize| Some(format!("{} of {}", word(current)?, word(max)?));
        match self {
            // struct ethtool_ringparam: cmd, four maxima, then the current values.
            Self::RxRing => of_max(5, 1),
            Self::TxRing => of_max(8, 4),
            // struct ethtool_coalesce.
            Self::RxUsecs => Some(word(1)?.to_string()),
            Self::AdaptiveRx => Some(word(10)?.to_string()),
            // struct ethtool_channels: cmd, maxima of rx, tx, other, combined, then the current values.
            Self::CombinedChannels => of_max(8, 4),
            // struct ethtool_value.
            Self::Gro | Self::Tso => Some(word(1)?.to_string()),
            Self::Lro => Some(u32::from(word(1)? & ETH_FLAG_LRO != 0).to_string()),
        }
    }
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
