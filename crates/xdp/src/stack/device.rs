//! The device that smoltcp sees for one packet or for the turn of one connection.

use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;

use super::{Link, StackConfig};
use crate::packet::{ETHERNET_BYTES, IPV4_BYTES, IPV6_BYTES, MacAddress, write_ethernet_header};

pub(super) struct PacketDevice<'a, L> {
    pub(super) link: &'a mut L,
    /// IP packet that is received next.
    pub(super) received: Option<&'a [u8]>,
    destination: MacAddress,
    source: MacAddress,
    capabilities: DeviceCapabilities,
    /// End of the content that the connection has sent, as a sequence number.
    pub(super) sent_end: Option<u32>,
    pub(super) retransmitted: u64,
    pub(super) sent: u64,
}

impl<'a, L: Link> PacketDevice<'a, L> {
    pub(super) fn new(
        link: &'a mut L,
        config: &StackConfig,
        checksums: &ChecksumCapabilities,
        destination: MacAddress,
    ) -> Self {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = config.mtu;
        capabilities.checksum = checksums.clone();
        Self {
            link,
            received: None,
            destination,
            source: config.mac,
            capabilities,
            sent_end: None,
            retransmitted: 0,
            sent: 0,
        }
    }

    /// Counts a segment, by the start of its IP packet, and whether its content was sent before.
    fn note_sent(&mut self, start: &[u8], packet_bytes: usize) {
        self.sent += 1;
        let Some((sequence, length)) = content(start, packet_bytes) else { return };
        let end = sequence.wrapping_add(length);
        match self.sent_end {
            // Sequence numbers wrap: a distance of less than half of them is ahead.
            Some(known) if end.wrapping_sub(known) as i32 <= 0 => self.retransmitted += 1,
            _ => self.sent_end = Some(end),
        }
    }
}

/// Returns the sequence number and the length of the content of a segment that was just made, by the start of its IP
/// packet; `None` if it has none.
fn content(start: &[u8], packet_bytes: usize) -> Option<(u32, u32)> {
    let ip_bytes = if start.first()? >> 4 == 6 { IPV6_BYTES } else { IPV4_BYTES };
    let tcp = start.get(ip_bytes..)?;
    let sequence = u32::from_be_bytes(*tcp.get(4..)?.first_chunk()?);
    let header_bytes = usize::from(tcp.get(12)? >> 4) * 4;
    let length = packet_bytes.checked_sub(ip_bytes + header_bytes).filter(|length| *length > 0)?;
    Some((sequence, length as u32))
}

impl<L: Link> Device for PacketDevice<'_, L> {
    type RxToken<'b>
        = Received<'b>
    where
        Self: 'b;
    type TxToken<'b>
        = Outgoing<'b, Self>
    where
        Self: 'b;

    fn receive(&mut self, _now: Instant) -> Option<(Received<'_>, Outgoing<'_, Self>)> {
        let received = self.received.take()?;
        Some((Received(received), Outgoing(self)))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Outgoing<'_, Self>> {
        self.link.has_space().then_some(Outgoing(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.capabilities.clone()
    }
}

/// A received IP packet.
pub(super) struct Received<'a>(&'a [u8]);

impl RxToken for Received<'_> {
    fn consume<R, F>(self, process: F) -> R
    where
        F: FnOnce(&[u8]) -> R,
    {
        process(self.0)
    }
}

/// Permission to send one packet.
pub(super) struct Outgoing<'a, D>(&'a mut D);

impl<L: Link> TxToken for Outgoing<'_, PacketDevice<'_, L>> {
    fn consume<R, F>(self, length: usize, fill: F) -> R
    where
        F: FnOnce(&mut [u8]) -> R,
    {
        let device = self.0;
        let (destination, source) = (device.destination, device.source);
        let mut start = [0; 64];
        let start_len = length.min(start.len());
        let result = device.link.transmit(ETHERNET_BYTES + length, |frame| {
            let result = fill(&mut frame[ETHERNET_BYTES..]);
            write_ethernet_header(frame, destination, source);
            start[..start_len].copy_from_slice(&frame[ETHERNET_BYTES..ETHERNET_BYTES + start_len]);
            result
        });
        device.note_sent(&start[..start_len], length);
        result
    }
}
