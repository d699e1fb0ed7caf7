//! Figures of a network driver: its speed, and its own counters (`ethtool`, `ethtool -S`;
//! `include/uapi/linux/ethtool.h`).
//!
//! Only `set_value` and `set_words` change a device, for the offloads and queues of virtual links. The figures come from `SIOCETHTOOL` and not from ethtool's
//! netlink family, which lacks the drivers' own counters
//! (`Documentation/networking/ethtool-netlink.rst`, "GSTATS").

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::message::ShortName;
use crate::namespace::Namespace;
use crate::netlink::message::{text, u32_at, u64_at};

const SIOCETHTOOL: libc::c_ulong = 0x8946;
const ETHTOOL_GSET: u32 = 0x01;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
/// `ETH_SS_STATS`: the set of strings that names the counters.
const ETH_SS_STATS: u32 = 1;
const ETH_GSTRING_LEN: usize = 32;
/// Maximum number of counters per driver; a driver with more (hundreds of queues) is not read.
const MAX_COUNTERS: usize = 4096;
/// Buffer size in counters. The kernel writes as many as the driver has at that moment, whatever
/// the request says. So there is room for twice the maximum, and each reading counts them first.
const BUFFER_COUNTERS: usize = MAX_COUNTERS * 2;

/// Queries drivers in one namespace.
#[derive(Debug)]
pub(crate) struct EthtoolSocket {
    socket: OwnedFd,
    response_buffer: Vec<u8>,
}

impl EthtoolSocket {
    pub(crate) fn open(namespace: &Namespace) -> io::Result<Self> {
        let opened =
            namespace.run(|| socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None));
        Ok(Self { socket: opened??, response_buffer: vec![0; 8 + BUFFER_COUNTERS * 8] })
    }

    /// Returns bits per second; `None` if the link is down or the device has no speed.
    #[allow(unsafe_code)]
    pub(crate) fn speed_bits_per_s(&mut self, link: ShortName) -> Option<f64> {
        let mut settings = [0; 44];
        set_words(&mut settings, &[ETHTOOL_GSET]);
        // SAFETY: ETHTOOL_GSET writes a `struct ethtool_cmd`, 44 bytes.
        unsafe { ethtool_ioctl(&self.socket, link, &mut settings) }.ok()?;
        parse_speed(&settings)
    }

    /// Runs a command that writes a structure of fixed length, and returns the structure.
    #[allow(unsafe_code)]
    pub(super) fn query(&self, link: ShortName, command: u32) -> io::Result<Vec<u8>> {
        // The largest such structure is `struct ethtool_coalesce` with 92 bytes.
        let mut structure = vec![0; 256];
        set_words(&mut structure, &[command]);
        // SAFETY: the callers pass commands whose structures are shorter than 256 bytes.
        unsafe { ethtool_ioctl(&self.socket, link, &mut structure) }?;
        Ok(structure)
    }

    /// Runs a command that writes a `struct ethtool_value`.
    #[allow(unsafe_code)]
    pub(super) fn set_value(&self, link: ShortName, command: u32, value: u32) -> io::Result<()> {
        let mut structure = [0; 8];
        set_words(&mut structure, &[command, value]);
        // SAFETY: the callers pass commands whose structure is `struct ethtool_value`, 8 bytes.
        unsafe { ethtool_ioctl(&self.socket, link, &mut structure) }
    }

    /// Runs a command that only reads its structure: these words.
    #[allow(unsafe_code)]
    pub(super) fn set_words(&self, link: ShortName, words: &[u32]) -> io::Result<()> {
        // As long as the structures of all such commands.
        let mut structure = vec![0; 256];
        set_words(&mut structure, words);
        // SAFETY: the callers pass commands whose structures are shorter than 256 bytes.
        unsafe { ethtool_ioctl(&self.socket, link, &mut structure) }
    }

    /// Returns the names of the driver's counters in order; empty if there are none, or too many.
    #[allow(unsafe_code)]
    pub(crate) fn counter_names(&mut self, link: ShortName) -> Vec<String> {
        let count = self.counter_count(link);
        if count == 0 {
            return Vec::new();
        }
        let mut strings = vec![0; 12 + BUFFER_COUNTERS * ETH_GSTRING_LEN];
        set_words(&mut strings, &[ETHTOOL_GSTRINGS, ETH_SS_STATS, count as u32]);
        // SAFETY: ETHTOOL_GSTRINGS writes 12 bytes and 32 for each counter that the driver has,
        // which were at most MAX_COUNTERS a moment ago; there is room for twice as many.
        if unsafe { ethtool_ioctl(&self.socket, link, &mut strings) }.is_err() {
            return Vec::new();
        }
        parse_names(&strings, count)
    }

    /// Reads the driver's counters into `values`, which is emptied first. `values` stays empty if
    /// there are none.
    #[allow(unsafe_code)]
    pub(crate) fn read_counters(&mut self, link: ShortName, values: &mut Vec<u64>) {
        values.clear();
        let count = self.counter_count(link);
        if count == 0 {
            return;
        }
        set_words(&mut self.response_buffer, &[ETHTOOL_GSTATS, count as u32]);
        // SAFETY: ETHTOOL_GSTATS writes 8 bytes and 8 for each counter that the driver has, which
        // were at most MAX_COUNTERS a moment ago; there is room for twice as many.
        if unsafe { ethtool_ioctl(&self.socket, link, &mut self.response_buffer) }.is_ok() {
            values.extend((1..=count).filter_map(|at| u64_at(&self.response_buffer, at * 8)));
        }
    }

    /// Returns the number of counters; 0 also for too many.
    #[allow(unsafe_code)]
    fn counter_count(&mut self, link: ShortName) -> usize {
        let mut info = [0; 20];
        set_words(&mut info, &[ETHTOOL_GSSET_INFO, 0]);
        info[8..16].copy_from_slice(&(1_u64 << ETH_SS_STATS).to_ne_bytes());
        // SAFETY: ETHTOOL_GSSET_INFO writes a `struct ethtool_sset_info`, 16 bytes, and 4 for each
        // bit of its mask, of which one is set.
        if unsafe { ethtool_ioctl(&self.socket, link, &mut info) }.is_err() {
            return 0;
        }
        parse_count(&info)
    }
}

/// Writes 32-bit figures at the start of a command.
fn set_words(command: &mut [u8], figures: &[u32]) {
    for (to, from) in command.chunks_exact_mut(4).zip(figures) {
        to.copy_from_slice(&from.to_ne_bytes());
    }
}

/// Parses `struct ethtool_sset_info`: the kernel clears the mask bit if there is no such set.
fn parse_count(info: &[u8]) -> usize {
    let has = u64_at(info, 8).is_some_and(|mask| mask & (1 << ETH_SS_STATS) != 0);
    let count = u32_at(info, 16).filter(|_| has).unwrap_or(0) as usize;
    if count > MAX_COUNTERS { 0 } else { count }
}

/// Parses `struct ethtool_cmd`: megabits per second, in a low half and, far behind it, a high half.
/// All ones, or zero, is "unknown".
fn parse_speed(settings: &[u8]) -> Option<f64> {
    let half = |at| crate::netlink::message::u16_at(settings, at);
    let megabits = u32::from(half(28)?) << 16 | u32::from(half(12)?);
    let known = megabits != 0 && megabits != u32::MAX && megabits != u32::from(u16::MAX);
    known.then_some(f64::from(megabits) * 1e6)
}

fn parse_names(strings: &[u8], count: usize) -> Vec<String> {
    let names = strings.get(12..).unwrap_or_default().chunks_exact(ETH_GSTRING_LEN);
    names.take(count).map(|name| text(name).trim().to_owned()).collect()
}

/// Queries the driver of `link`.
///
/// # Safety
/// The command in `command`'s first four bytes must not write beyond its end.
#[allow(unsafe_code)]
unsafe fn ethtool_ioctl(socket: &OwnedFd, link: ShortName, command: &mut [u8]) -> io::Result<()> {
    // SAFETY: all zero is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(link.bytes()) {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = command.as_mut_ptr().cast();
    // SAFETY: the request lives through the call. The caller promises that its data is as long as
    // the command needs.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_has_two_halves_and_may_be_unknown() {
        let speed = |low: u16, high: u16| {
            let mut settings = [0; 44];
            settings[12..14].copy_from_slice(&low.to_ne_bytes());
            settings[28..30].copy_from_slice(&high.to_ne_bytes());
            parse_speed(&settings)
        };
        assert_eq!(speed(1000, 0), Some(1e9));
        assert_eq!(speed((100_000 % 65536) as u16, 1), Some(100e9));
        for unknown in [(0, 0), (u16::MAX, u16::MAX), (u16::MAX, 0)] {
            assert_eq!(speed(unknown.0, unknown.1), None);
        }
        assert_eq!(parse_speed(&[0; 20]), None);
    }

    #[test]
    fn a_missing_or_too_large_set_has_no_counters() {
        let count = |mask: u64, count: u32| {
            parse_count(&[&[0; 8], &mask.to_ne_bytes()[..], &count.to_ne_bytes()].concat())
        };
        assert_eq!(count(1 << ETH_SS_STATS, 25), 25);
        assert_eq!(count(0, 25), 0);
        assert_eq!(count(1 << ETH_SS_STATS, MAX_COUNTERS as u32 + 1), 0);
        assert_eq!(parse_count(&[]), 0);
    }

    #[test]
    fn names_are_of_a_fixed_length() {
        let mut strings = vec![0; 12];
        for name in ["rx_queue_0_drops", " trimmed "] {
            strings.extend(name.bytes().chain([0; 32]).take(ETH_GSTRING_LEN));
        }
        assert_eq!(parse_names(&strings, 9), ["rx_queue_0_drops", "trimmed"]);
        assert_eq!(parse_names(&strings, 1).len(), 1);
        assert!(parse_names(&[], 1).is_empty());
    }

    #[test]
    fn lo_has_neither_speed_nor_counters_live() {
        let mut driver = match Namespace::open_pid(None).and_then(|own| EthtoolSocket::open(&own)) {
            Ok(driver) => driver,
            Err(error) => return test_needs::skip(test_needs::KERNEL, error),
        };
        let lo = ShortName::new(b"lo");
        assert_eq!((driver.speed_bits_per_s(lo), driver.counter_names(lo)), (None, vec![]));
        let mut values = vec![1];
        driver.read_counters(lo, &mut values);
        assert!(values.is_empty());
    }
}
