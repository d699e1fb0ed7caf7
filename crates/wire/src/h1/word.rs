//! Eight bytes that are classified at once, by the arithmetic of one register.
//!
//! Each function returns a mask in which the highest bit of a byte is set if the byte is marked, the first byte lowest. Each
//! byte is exact: no sum carries into the next one, because only seven bits are added.

/// Number of bytes of a word.
pub(super) const WORD_BYTES: usize = size_of::<u64>();

/// Eight consecutive bytes.
#[derive(Clone, Copy)]
pub(super) struct Word(u64);

impl Word {
    #[inline]
    pub(super) fn new(bytes: [u8; WORD_BYTES]) -> Self {
        Self(u64::from_le_bytes(bytes))
    }

    /// Marks all controls and DEL: no field value may contain them, except HTAB (RFC 9110 §5.5).
    #[inline]
    pub(super) fn controls(self) -> Mask {
        Mask((!self.at_least(b' ') | self.at_least(0x7f)) & !self.0 & HIGH_BITS)
    }

    /// Marks bytes that no request target may contain: others than visible ASCII, and `#`.
    #[inline]
    pub(super) fn invalid_in_targets(self) -> Mask {
        Mask((!self.at_least(b'!') | self.at_least(0x7f) | self.0 | self.equal_to(b'#')) & HIGH_BITS)
    }

    /// Sets the highest bit of each byte that is at least `low`, a byte of ASCII, without regard to its own highest bit. The
    /// other bits mean nothing.
    #[inline]
    fn at_least(self, low: u8) -> u64 {
        (self.0 & !HIGH_BITS) + repeated(0x80 - low)
    }

    /// Sets the highest bit of each byte that is `byte`. The other bits mean nothing.
    #[inline]
    fn equal_to(self, byte: u8) -> u64 {
        let difference = self.0 ^ repeated(byte);
        !(((difference & !HIGH_BITS) + repeated(0x7f)) | difference)
    }
}

const HIGH_BITS: u64 = repeated(0x80);

const fn repeated(byte: u8) -> u64 {
    u64::from_le_bytes([byte; WORD_BYTES])
}

/// Marks of the bytes of a word.
#[derive(Clone, Copy)]
pub(super) struct Mask(u64);

impl Mask {
    /// Returns the index of the first marked byte.
    #[inline]
    pub(super) fn first(self) -> Option<usize> {
        (self.0 != 0).then(|| self.0.trailing_zeros() as usize / 8)
    }
}

#[cfg(test)]
mod tests {
    use super::super::explain::{is_field_value, is_target_byte};
    use super::*;

    #[test]
    fn each_byte_is_marked_by_its_class_alone() {
        type Class = (fn(Word) -> Mask, fn(u8) -> bool);
        let classes: [Class; 2] = [
            (Word::controls, |byte| byte == b'\t' || !is_field_value(byte)),
            (Word::invalid_in_targets, |byte| !is_target_byte(byte)),
        ];
        for (mask, is_marked) in classes {
            for byte in 0..=u8::MAX {
                for (at, other) in (0..WORD_BYTES).flat_map(|at| (0..=u8::MAX).map(move |other| (at, other)))
                {
                    let mut bytes = [other; WORD_BYTES];
                    bytes[at] = byte;
                    let mask = mask(Word::new(bytes));
                    assert_eq!(mask.first(), bytes.iter().position(|byte| is_marked(*byte)), "{bytes:?}");
                }
            }
        }
    }
}
