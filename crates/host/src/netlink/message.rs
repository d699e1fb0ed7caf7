//! Netlink messages and attributes, as views on bytes: `include/uapi/linux/netlink.h`.
//!
//! No I/O. Whatever the bytes are, the iterators end and nothing panics: a length that does not fit
//! ends them. Figures are in native byte order, as in netlink.

/// `NLMSG_ERROR`: an error number, or 0 for an acknowledgement.
pub(crate) const NLMSG_ERROR: u16 = 2;
/// `NLMSG_DONE`: the end of a dump, with an error number or 0.
pub(crate) const NLMSG_DONE: u16 = 3;
/// `NLM_F_DUMP_INTR`: something changed during the dump.
pub(crate) const NLM_F_DUMP_INTR: u16 = 0x10;

/// `NLM_F_REQUEST | NLM_F_DUMP`.
const REQUEST_DUMP: u16 = 0x01 | 0x300;
const NLMSGHDR_BYTES: usize = 16;
const NLATTR_BYTES: usize = 4;
/// `NLA_TYPE_MASK`: without the bits for "nested" and "network byte order".
const NLA_TYPE_MASK: u16 = 0x3fff;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NetlinkMessage<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) body: &'a [u8],
}

impl NetlinkMessage<'_> {
    /// Returns the error number of an `ERROR` or a `DONE`; `None` if it is 0 or missing.
    pub(crate) fn errno(&self) -> Option<i32> {
        let number = u32_at(self.body, 0)? as i32;
        (number != 0).then(|| number.saturating_neg())
    }
}

/// Messages of one received buffer.
#[derive(Clone, Debug)]
pub(crate) struct NetlinkMessages<'a> {
    rest: &'a [u8],
}

impl<'a> NetlinkMessages<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

impl<'a> Iterator for NetlinkMessages<'a> {
    type Item = NetlinkMessage<'a>;

    fn next(&mut self) -> Option<NetlinkMessage<'a>> {
        let length = u32_at(self.rest, 0)? as usize;
        let body = self.rest.get(NLMSGHDR_BYTES..length)?;
        let message = NetlinkMessage {
            kind: u16_at(self.rest, 4)?,
            flags: u16_at(self.rest, 6)?,
            sequence: u32_at(self.rest, 8)?,
            body,
        };
        self.rest = self.rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    }
}

/// Attributes of a message behind its fixed part, or of a nested one: kind and value.
#[derive(Clone, Debug)]
pub(crate) struct NetlinkAttributes<'a> {
    rest: &'a [u8],
}

impl<'a> NetlinkAttributes<'a> {
    /// Returns the attributes of `bytes` from `skip` on; none if it is shorter.
    pub(crate) fn new(bytes: &'a [u8], skip: usize) -> Self {
        Self { rest: bytes.get(skip..).unwrap_or_default() }
    }

    /// Returns the value of the first attribute of `kind`.
    pub(crate) fn find(mut self, kind: u16) -> Option<&'a [u8]> {
        self.find_map(|(attribute, value)| (attribute == kind).then_some(value))
    }
}

impl<'a> Iterator for NetlinkAttributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let length = usize::from(u16_at(self.rest, 0)?);
        let kind = u16_at(self.rest, 2)? & NLA_TYPE_MASK;
        let value = self.rest.get(NLATTR_BYTES..length)?;
        self.rest = self.rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

/// Writes a dump request into `into`, which is emptied first.
pub(crate) fn write_dump(into: &mut Vec<u8>, kind: u16, sequence: u32, body: &[u8]) {
    into.clear();
    into.extend(((NLMSGHDR_BYTES + body.len()) as u32).to_ne_bytes());
    into.extend(kind.to_ne_bytes());
    into.extend(REQUEST_DUMP.to_ne_bytes());
    into.extend(sequence.to_ne_bytes());
    into.extend(0_u32.to_ne_bytes());
    into.extend(body);
}

/// Appends one attribute, padded to a multiple of four bytes.
pub(crate) fn push_attribute(into: &mut Vec<u8>, kind: u16, value: &[u8]) {
    into.extend(((NLATTR_BYTES + value.len()) as u16).to_ne_bytes());
    into.extend(kind.to_ne_bytes());
    into.extend(value);
    into.resize(into.len().next_multiple_of(4), 0);
}

/// Returns the two bytes at `at`, in native byte order.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns the four bytes at `at`, in native byte order.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns the eight bytes at `at`, in native byte order.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns a text that ends at its first zero byte, or at the end of the value.
pub(crate) fn text(value: &[u8]) -> std::borrow::Cow<'_, str> {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end])
}

/// Helpers shared by parser tests.
#[cfg(test)]
pub(crate) mod testing {
    /// Decodes hexadecimal text over any number of lines.
    pub(crate) fn parse_hex(hex: &str) -> Vec<u8> {
        let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
        digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
    }

    /// Calls `each` with all prefixes of `original`, and with `original` after changes of single
    /// bytes.
    pub(crate) fn for_each_corruption(original: &[u8], mut each: impl FnMut(&[u8])) {
        (0..=original.len()).for_each(|end| each(&original[..end]));
        let mut bytes = original.to_vec();
        for at in 0..original.len() {
            for value in [0, 1, 3, 4, 0x7f, 0x80, 0xff] {
                bytes[at] = value;
                each(&bytes);
            }
            bytes[at] = original[at];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_dump(&mut bytes, kind, 7, body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn messages_come_one_after_the_other_and_may_end_unaligned() {
        let mut bytes = message(20, b"abcde");
        bytes.extend(message(NLMSG_DONE, &0_i32.to_ne_bytes()));
        let seen: Vec<_> = NetlinkMessages::new(&bytes).collect();
        assert_eq!(seen.len(), 2);
        assert_eq!((seen[0].kind, seen[0].sequence, seen[0].body), (20, 7, &b"abcde"[..]));
        assert_eq!((seen[1].kind, seen[1].errno()), (NLMSG_DONE, None));
        // The last message may lack its padding.
        let bytes = &message(20, b"abcde")[..21];
        assert_eq!(NetlinkMessages::new(bytes).count(), 1);
    }

    #[test]
    fn an_error_is_a_negative_number() {
        let bytes = message(NLMSG_ERROR, &(-2_i32).to_ne_bytes());
        assert_eq!(NetlinkMessages::new(&bytes).next().unwrap().errno(), Some(2));
        let bytes = message(NLMSG_ERROR, &i32::MIN.to_ne_bytes());
        assert_eq!(NetlinkMessages::new(&bytes).next().unwrap().errno(), Some(i32::MAX));
        let bytes = message(NLMSG_ERROR, &[1]);
        assert_eq!(NetlinkMessages::new(&bytes).next().unwrap().errno(), None);
    }

    #[test]
    fn attributes_are_found_and_nested_ones_too() {
        let mut inner = Vec::new();
        push_attribute(&mut inner, 1, b"tbf\0");
        let mut bytes = vec![9; 4];
        push_attribute(&mut bytes, 3, b"abcde");
        // NLA_F_NESTED is not part of the kind.
        push_attribute(&mut bytes, 0x8000 | 2, &inner);
        let all = NetlinkAttributes::new(&bytes, 4);
        assert_eq!(all.clone().find(3), Some(&b"abcde"[..]));
        let nested = all.clone().find(2).unwrap();
        assert_eq!(NetlinkAttributes::new(nested, 0).find(1).map(text).unwrap(), "tbf");
        assert_eq!(all.find(9), None);
        assert_eq!(NetlinkAttributes::new(&bytes, 1000).next(), None);
    }

    #[test]
    fn wrong_lengths_end_the_iteration() {
        for length in [0_u32, 1, 15, 17, 1000, u32::MAX] {
            let mut bytes = message(20, b"");
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(NetlinkMessages::new(&bytes).count(), 0, "{length}");
        }
        for length in [0_u16, 3, 9, u16::MAX] {
            let mut bytes = Vec::new();
            push_attribute(&mut bytes, 1, b"abcd");
            bytes[..2].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(NetlinkAttributes::new(&bytes, 0).count(), 0, "{length}");
        }
    }
}
