//! Where a line is built: a piece of memory with room for the longest line, and how far it is
//! filled. What does not fit is left out and shows in [`Sink::is_full`]; nothing is allocated.

use std::fmt;

/// The rest of a batch, while a line is added to it.
#[derive(Debug)]
pub(super) struct Sink<'a> {
    bytes: &'a mut [u8],
    at: usize,
    full: bool,
}

impl<'a> Sink<'a> {
    /// Goes on in `bytes` at `at`.
    #[inline]
    pub(super) fn new(bytes: &'a mut [u8], at: usize) -> Self {
        Self { bytes, at, full: false }
    }

    /// How far it is filled.
    #[inline]
    pub(super) fn filled(&self) -> usize {
        self.at
    }

    /// Whether something did not fit.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    /// Bytes whose number the compiler knows, so that they are stored and no function is called.
    #[inline]
    pub(super) fn fixed<const N: usize>(&mut self, bytes: &[u8; N]) {
        self.part_of(bytes, N);
    }

    /// Stores all of `bytes` and keeps the first `kept` of them.
    #[inline]
    pub(super) fn part_of<const N: usize>(&mut self, bytes: &[u8; N], kept: usize) {
        match self.bytes.get_mut(self.at..).and_then(|rest| rest.first_chunk_mut()) {
            Some(room) => {
                *room = *bytes;
                self.at += kept;
            }
            None => self.full = true,
        }
    }

    #[inline]
    pub(super) fn slice(&mut self, bytes: &[u8]) {
        match self.bytes.get_mut(self.at..self.at + bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.at += bytes.len();
            }
            None => self.full = true,
        }
    }

    #[inline]
    pub(super) fn byte(&mut self, byte: u8) {
        self.fixed(&[byte]);
    }

    /// A number in decimal.
    #[inline]
    pub(super) fn number(&mut self, number: u64) {
        self.number_after(b"", number);
    }

    /// A label and a number in decimal: nearly all have at most eight digits and take one store. One
    /// step for both, because each waits for the one before it to have moved `at`.
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
        match self.bytes.get_mut(self.at..).and_then(|rest| rest.get_mut(..N + 8)) {
            Some(room) => {
                room[..N].copy_from_slice(label);
                room[N..N + 8].copy_from_slice(&text);
                self.at += N + length;
            }
            None => self.full = true,
        }
    }
}

/// The eight digits of a number below 100,000,000, a byte each, the first digit lowest. The number
/// is halved three times, all halves at once; the factors are 1/100 and 1/10 in fixed point, which
/// are exact for four and for two digits.
#[inline]
fn eight_digits(number: u64) -> u64 {
    let fours = (number / 10_000) | ((number % 10_000) << 32);
    let hundreds = ((fours * 10_486) >> 20) & 0x7f_0000_007f;
    let twos = hundreds | ((fours - hundreds * 100) << 16);
    let tens = ((twos * 103) >> 10) & 0xf_000f_000f_000f;
    tens | ((twos - tens * 10) << 8)
}

impl fmt::Write for Sink<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.slice(text.as_bytes());
        Ok(())
    }
}

/// What `write` writes, for tests and for what is made once.
pub(super) fn written(bytes_max: usize, write: impl FnOnce(&mut Sink<'_>)) -> Vec<u8> {
    let mut bytes = vec![0; bytes_max];
    let mut sink = Sink::new(&mut bytes, 0);
    write(&mut sink);
    let filled = sink.filled();
    bytes.truncate(filled);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_everywhere() {
        let mut numbers: Vec<u64> =
            (0..20_000).chain([u64::MAX, 99_999_999, 100_000_000]).collect();
        for power in 0..20 {
            let power = 10u64.pow(power);
            numbers.extend([power - 1, power, power + 1, power / 10 * 9]);
        }
        numbers.extend((0..20_000).map(|step| step * 4_999));
        for number in numbers {
            let text = written(40, |out| out.number(number));
            assert_eq!(text, number.to_string().as_bytes());
        }
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_shows() {
        let mut bytes = [0; 4];
        let mut sink = Sink::new(&mut bytes, 1);
        sink.slice(b"ab");
        assert!(!sink.is_full());
        sink.slice(b"cd");
        sink.fixed(b"ef");
        assert!(sink.is_full() && sink.filled() == 3);
        assert_eq!(&bytes, b"\0ab\0");
    }
}
