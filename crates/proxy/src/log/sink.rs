//! Buffer in which a line is built, with room for the longest line. Text that does not fit is left
//! out and sets [`LineBuffer::is_full`]. Nothing is allocated.

use std::fmt;

/// The rest of a batch, while a line is added to it.
#[derive(Debug)]
pub(super) struct LineBuffer<'a> {
    bytes: &'a mut [u8],
    position: usize,
    is_overflowed: bool,
}

impl<'a> LineBuffer<'a> {
    /// Continues in `bytes` at `position`.
    #[inline]
    pub(super) fn new(bytes: &'a mut [u8], position: usize) -> Self {
        Self { bytes, position, is_overflowed: false }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.position
    }

    /// Returns whether some text did not fit.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.is_overflowed
    }

    /// Writes bytes whose number is known at compile time, so that they are stored without a
    /// function call.
    #[inline]
    pub(super) fn fixed<const N: usize>(&mut self, bytes: &[u8; N]) {
        self.fixed_prefix(bytes, N);
    }

    /// Stores all of `bytes` and keeps the first `length` of them.
    #[inline]
    pub(super) fn fixed_prefix<const N: usize>(&mut self, bytes: &[u8; N], length: usize) {
        match self.bytes.get_mut(self.position..).and_then(|rest| rest.first_chunk_mut()) {
            Some(target) => {
                *target = *bytes;
                self.position += length;
            }
            None => self.is_overflowed = true,
        }
    }

    #[inline]
    pub(super) fn slice(&mut self, bytes: &[u8]) {
        match self.bytes.get_mut(self.position..self.position + bytes.len()) {
            Some(target) => {
                target.copy_from_slice(bytes);
                self.position += bytes.len();
            }
            None => self.is_overflowed = true,
        }
    }

    #[inline]
    pub(super) fn byte(&mut self, byte: u8) {
        self.fixed(&[byte]);
    }

    #[inline]
    pub(super) fn number(&mut self, number: u64) {
        self.number_after(b"", number);
    }

    /// Writes a label and a number in decimal. Nearly all numbers have at most eight digits and
    /// take one store. Both are written in one step, because each step waits until the one before
    /// has moved `at`.
    #[inline]
    pub(super) fn number_after<const N: usize>(&mut self, label: &[u8; N], number: u64) {
        let (text, length) = match number {
            0..10 => ([b'0' + number as u8; 8], 1),
            10..100_000_000 => {
                let digits = eight_digits(number);
                let zeros = (digits.trailing_zeros() / 8).min(7);
                let text = (digits | 0x3030_3030_3030_3030) >> (8 * zeros);
                (text.to_le_bytes(), 8 - zeros as usize)
            }
            _ => {
                self.fixed(label);
                self.slice(itoa::Buffer::new().format(number).as_bytes());
                return;
            }
        };
        match self.bytes.get_mut(self.position..).and_then(|rest| rest.get_mut(..N + 8)) {
            Some(target) => {
                target[..N].copy_from_slice(label);
                target[N..N + 8].copy_from_slice(&text);
                self.position += N + length;
            }
            None => self.is_overflowed = true,
        }
    }
}

/// Returns the eight digits of a number below 100,000,000, one byte each, the first digit in the
/// lowest byte. Splits the number in half three times, all parts at once. The factors are 1/100 and
/// 1/10 in fixed point, which are exact for four and for two digits.
#[inline]
fn eight_digits(number: u64) -> u64 {
    let quads = (number / 10_000) | ((number % 10_000) << 32);
    let hundreds = ((quads * 10_486) >> 20) & 0x7f_0000_007f;
    let twos = hundreds | ((quads - hundreds * 100) << 16);
    let tens = ((twos * 103) >> 10) & 0xf_000f_000f_000f;
    tens | ((twos - tens * 10) << 8)
}

impl fmt::Write for LineBuffer<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.slice(text.as_bytes());
        Ok(())
    }
}

/// Returns the bytes written by `write`, for tests and for texts that are rendered once.
pub(super) fn render_to_vec(bytes_max: usize, write: impl FnOnce(&mut LineBuffer<'_>)) -> Vec<u8> {
    let mut bytes = vec![0; bytes_max];
    let mut line = LineBuffer::new(&mut bytes, 0);
    write(&mut line);
    let filled = line.len();
    bytes.truncate(filled);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_everywhere() {
        let mut numbers: Vec<u64> = (0..20_000).chain([u64::MAX, 99_999_999, 100_000_000]).collect();
        for power in 0..20 {
            let power = 10u64.pow(power);
            numbers.extend([power - 1, power, power + 1, power / 10 * 9]);
        }
        numbers.extend((0..20_000).map(|step| step * 4_999));
        for number in numbers {
            let text = render_to_vec(40, |out| out.number(number));
            assert_eq!(text, number.to_string().as_bytes());
        }
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_shows() {
        let mut bytes = [0; 4];
        let mut line = LineBuffer::new(&mut bytes, 1);
        line.slice(b"ab");
        assert!(!line.is_full());
        line.slice(b"cd");
        line.fixed(b"ef");
        assert!(line.is_full() && line.len() == 3);
        assert_eq!(&bytes, b"\0ab\0");
    }
}
