//! Huffman code of HPACK (RFC 7541 §5.2): decoding by a table of twelve bits that yields up to two
//! bytes a step, and encoding.

use super::fault::FaultKind;
use super::huffman_codes::CODES;

const STEP_BITS: u32 = 12;

/// Result of the next twelve bits: up to two bytes.
#[derive(Clone, Copy)]
struct Step {
    first: u8,
    second: u8,
    bits: u8,
    /// Number of bytes in the lowest two bits, and the bits of the first byte above them; 0 if the code
    /// is longer than a step.
    info: u8,
}

impl Step {
    const fn new(first: (u8, u8), second: (u8, u8)) -> Self {
        let ((first, first_bits), (second, second_bits)) = (first, second);
        let has_second = second_bits > 0 && first_bits as u32 + second_bits as u32 <= STEP_BITS;
        if first_bits == 0 {
            return Self { first, second, bits: 0, info: 0 };
        }
        let (bits, count) = if has_second { (first_bits + second_bits, 2) } else { (first_bits, 1) };
        Self { first, second, bits, info: first_bits << 2 | count }
    }

    #[inline]
    fn is_long(self) -> bool {
        self.info == 0
    }

    #[inline]
    fn count(self) -> usize {
        usize::from(self.info & 3)
    }

    #[inline]
    fn first_bits(self) -> u32 {
        u32::from(self.info >> 2)
    }
}

static STEPS: [Step; 1 << STEP_BITS] = make_steps();

/// Codes of one length: the first code, their number, and the position of their bytes in
/// [`BY_LENGTH`].
#[derive(Clone, Copy)]
struct LengthClass {
    first_code: u32,
    count: u32,
    offset: u32,
}

static CLASSES: [LengthClass; 31] = make_classes();

/// Bytes in the order of their codes.
static BY_LENGTH: [u8; 256] = make_by_length();

const fn make_steps() -> [Step; 1 << STEP_BITS] {
    let mut firsts = [(0u8, 0u8); 1 << STEP_BITS];
    let mut byte = 0;
    while byte < 256 {
        let (code, bits) = CODES[byte];
        if bits as u32 <= STEP_BITS {
            let spare = STEP_BITS - bits as u32;
            let mut at = (code as usize) << spare;
            let end = at + (1 << spare);
            while at < end {
                firsts[at] = (byte as u8, bits);
                at += 1;
            }
        }
        byte += 1;
    }
    let mut steps = [Step::new((0, 0), (0, 0)); 1 << STEP_BITS];
    let mut at = 0;
    while at < steps.len() {
        let rest = (at << firsts[at].1) & ((1 << STEP_BITS) - 1);
        steps[at] = Step::new(firsts[at], firsts[rest]);
        at += 1;
    }
    steps
}

const fn make_by_length() -> [u8; 256] {
    let mut sorted = [0u8; 256];
    let mut filled = 0;
    let mut bits = 0;
    while bits <= 30 {
        let mut byte = 0;
        while byte < 256 {
            if CODES[byte].1 == bits {
                sorted[filled] = byte as u8;
                filled += 1;
            }
            byte += 1;
        }
        bits += 1;
    }
    sorted
}

const fn make_classes() -> [LengthClass; 31] {
    let mut classes = [LengthClass { first_code: 0, count: 0, offset: 0 }; 31];
    let sorted = make_by_length();
    let mut at = 0;
    while at < 256 {
        let (code, bits) = CODES[sorted[at] as usize];
        let class = classes[bits as usize];
        classes[bits as usize] = if class.count == 0 {
            LengthClass { first_code: code, count: 1, offset: at as u32 }
        } else {
            LengthClass { count: class.count + 1, ..class }
        };
        at += 1;
    }
    classes
}

/// Bits that are not decoded yet.
struct BitReader<'b> {
    rest: &'b [u8],
    /// The next bits, aligned to the left.
    buffer: u64,
    count: u32,
}

impl BitReader<'_> {
    /// Fills the buffer to more than 30 bits, the longest code, unless the input ends.
    #[inline]
    fn fill(&mut self) {
        if self.count > 32 {
            return;
        }
        if let Some((word, rest)) = self.rest.split_first_chunk::<4>() {
            self.buffer |= u64::from(u32::from_be_bytes(*word)) << (32 - self.count);
            self.count += 32;
            self.rest = rest;
            return;
        }
        while let [byte, rest @ ..] = self.rest {
            self.buffer |= u64::from(*byte) << (56 - self.count);
            self.count += 8;
            self.rest = rest;
        }
    }

    #[inline]
    fn skip(&mut self, bits: u32) {
        self.buffer <<= bits;
        self.count -= bits;
    }
}

/// Decodes a string and appends it.
///
/// # Errors
/// The padding is longer than 7 bits or has a zero, or the string has the end-of-string symbol (RFC
/// 7541 §5.2).
pub(super) fn decode(input: &[u8], out: &mut Vec<u8>) -> Result<(), FaultKind> {
    let start = out.len();
    // The shortest code has 5 bits; two more bytes for the last step.
    out.resize(start + input.len() * 8 / 5 + 2, 0);
    let (mut at, position) = decode_words(input, out, start);
    // The first byte of the rest may have bits that were decoded.
    let mut bits = BitReader { rest: &input[position / 8..], buffer: 0, count: 0 };
    bits.fill();
    bits.skip(position as u32 % 8);
    loop {
        bits.fill();
        if bits.count < STEP_BITS {
            break;
        }
        let step = STEPS[(bits.buffer >> (64 - STEP_BITS)) as usize];
        if step.is_long() {
            let Some(byte) = decode_long(&mut bits) else { return Err(FaultKind::HuffmanInvalid) };
            out[at] = byte;
            at += 1;
            continue;
        }
        write_step(out, at, step);
        at += step.count();
        bits.skip(u32::from(step.bits));
    }
    let len = decode_end(&mut bits, out, at)?;
    out.truncate(len);
    Ok(())
}

/// Decodes eight bytes at a time, without a check of the end after each step. It stops near the end,
/// or at a long code. Returns the end of the output and the position in the input in bits.
#[inline]
fn decode_words(input: &[u8], out: &mut [u8], start: usize) -> (usize, usize) {
    let (mut at, mut position) = (start, 0);
    while let Some(word) = input.get(position / 8..).and_then(<[u8]>::first_chunk::<8>) {
        let mut buffer = u64::from_be_bytes(*word) << (position % 8);
        // At least 57 bits are valid: four steps of at most 12.
        for _ in 0..4 {
            let step = STEPS[(buffer >> (64 - STEP_BITS)) as usize];
            if step.is_long() {
                return (at, position);
            }
            write_step(out, at, step);
            at += step.count();
            buffer <<= step.bits;
            position += usize::from(step.bits);
        }
    }
    (at, position)
}

/// Writes both bytes of a step; a later one replaces the second if there is one only.
#[inline]
fn write_step(out: &mut [u8], at: usize, step: Step) {
    if let Some(slot) = out.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<2>) {
        *slot = [step.first, step.second];
    }
}

/// Decodes a code of more than twelve bits; `None` if it is the end-of-string symbol, or incomplete.
#[cold]
fn decode_long(bits: &mut BitReader<'_>) -> Option<u8> {
    let limit = bits.count.min(30);
    for length in STEP_BITS + 1..=limit {
        let class = CLASSES[length as usize];
        let code = (bits.buffer >> (64 - length)) as u32;
        let index = code.wrapping_sub(class.first_code);
        if index < class.count {
            bits.skip(length);
            return Some(BY_LENGTH[(class.offset + index) as usize]);
        }
    }
    // Less than 8 ones at the end are padding, which is shorter than any code of this function.
    None
}

/// Decodes the last bits, fewer than twelve, and checks the padding. Returns the end of the output.
#[inline]
fn decode_end(bits: &mut BitReader<'_>, out: &mut [u8], mut at: usize) -> Result<usize, FaultKind> {
    while bits.count > 0 {
        let step = STEPS[(bits.buffer >> (64 - STEP_BITS)) as usize];
        if step.is_long() || step.first_bits() > bits.count {
            break;
        }
        out[at] = step.first;
        at += 1;
        bits.skip(step.first_bits());
    }
    let padding = bits.buffer.checked_shr(64 - bits.count).unwrap_or(0);
    if bits.count > 7 || padding != (1 << bits.count) - 1 {
        return Err(FaultKind::HuffmanInvalid);
    }
    Ok(at)
}

#[inline]
pub(super) fn encoded_len(input: &[u8]) -> usize {
    let bits: u32 = input.iter().map(|&byte| u32::from(BITS[usize::from(byte)])).sum();
    bits.div_ceil(8) as usize
}

/// Lengths alone: a quarter of a kilobyte that stays in the cache.
static BITS: [u8; 256] = {
    let mut lengths = [0; 256];
    let mut at = 0;
    while at < 256 {
        lengths[at] = CODES[at].1;
        at += 1;
    }
    lengths
};

/// Encodes a string and appends it, padded with ones.
#[inline]
pub(super) fn encode(input: &[u8], out: &mut Vec<u8>) {
    let mut buffer = 0u64;
    let mut count = 0;
    for &byte in input {
        let (code, bits) = CODES[usize::from(byte)];
        buffer = buffer << bits | u64::from(code);
        count += u32::from(bits);
        // At most 31 bits stay, so that 30 more fit.
        if count >= 32 {
            count -= 32;
            out.extend_from_slice(&((buffer >> count) as u32).to_be_bytes());
        }
    }
    if count > 0 {
        let padded = (buffer << (32 - count)) as u32 | (u32::MAX >> count);
        out.extend_from_slice(&padded.to_be_bytes()[..count.div_ceil(8) as usize]);
    }
}

#[cfg(test)]
mod tests {
    use super::{decode, encode, encoded_len};
    use crate::h2::FaultKind;

    fn decoded(input: &[u8]) -> Result<Vec<u8>, FaultKind> {
        let mut out = b"before".to_vec();
        decode(input, &mut out).map(|()| out.split_off(6))
    }

    #[test]
    fn each_byte_and_each_pair_survives() {
        for first in 0..=255u8 {
            for second in 0..=255u8 {
                for text in
                    [&[first][..], &[first, second], &[first, b'a', second], &[b'0', first, second, 0]]
                {
                    let mut encoded = Vec::new();
                    encode(text, &mut encoded);
                    assert_eq!(encoded.len(), encoded_len(text));
                    assert_eq!(decoded(&encoded).as_deref(), Ok(text));
                }
            }
        }
    }

    #[test]
    fn padding_is_checked() {
        // "a" is 00011, followed by ones.
        assert_eq!(decoded(&[0b0001_1111]).as_deref(), Ok(&b"a"[..]));
        assert_eq!(decoded(&[0b0001_1110]), Err(FaultKind::HuffmanInvalid), "a zero");
        assert_eq!(decoded(&[0b0001_1111, 0xff]), Err(FaultKind::HuffmanInvalid), "11 bits");
        assert_eq!(decoded(&[0xff]), Err(FaultKind::HuffmanInvalid), "8 bits");
        assert_eq!(decoded(&[0xff; 4]), Err(FaultKind::HuffmanInvalid), "the end-of-string symbol");
        assert_eq!(decoded(&[0xff, 0xff]), Err(FaultKind::HuffmanInvalid), "a part of a code");
        assert_eq!(decoded(&[]).as_deref(), Ok(&b""[..]));
    }
}
