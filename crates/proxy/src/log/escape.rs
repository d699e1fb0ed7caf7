//! Escaping of untrusted text: it can end neither its quotes nor its line, nor move a terminal's
//! cursor. One rule per format.

use super::sink::LineBuffer;

const HEX: &[u8; 16] = b"0123456789ABCDEF";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EscapeRule {
    /// JSON escapes; invalid UTF-8 becomes U+FFFD.
    Json,
    /// `\xNN`, as in nginx.
    Nginx,
    /// `#NN`, as in HAProxy.
    Haproxy,
}

impl EscapeRule {
    #[inline]
    pub(super) fn push_escaped(self, out: &mut LineBuffer<'_>, text: &[u8]) {
        let is_plain = match self {
            Self::Haproxy => is_plain::<b'#'>(text),
            Self::Json | Self::Nginx => is_plain::<b'\\'>(text),
        };
        if is_plain {
            out.slice(text);
            return;
        }
        match self {
            Self::Json => push_json(out, text),
            Self::Nginx => push_hex(out, text, b"\\x", b'\\'),
            Self::Haproxy => push_hex(out, text, b"#", b'#'),
        }
    }
}

/// Returns whether the text is only printable ASCII without `"` and the byte that escapes begin with, as nearly all
/// text is. Checks eight bytes at a time; the last eight overlap those before.
#[inline]
fn is_plain<const ESCAPE: u8>(text: &[u8]) -> bool {
    let Some(last) = text.last_chunk() else {
        return text.iter().all(|&byte| (0x20..0x7f).contains(&byte) && byte != b'"' && byte != ESCAPE);
    };
    let (words, _) = text.as_chunks();
    let special =
        words.iter().fold(special_bytes::<ESCAPE>(*last), |odd, word| odd | special_bytes::<ESCAPE>(*word));
    special == 0
}

/// Returns a word with a high bit for each byte that is not plain, or 0 if all are plain. A bit can
/// be wrong only above a right one, since a subtraction borrows upwards only from a byte that is
/// not plain.
#[inline]
fn special_bytes<const ESCAPE: u8>(word: [u8; 8]) -> u64 {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    let word = u64::from_le_bytes(word);
    let equals = |byte: u8| {
        let difference = word ^ (ONES * byte as u64);
        difference.wrapping_sub(ONES) & !difference
    };
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    (word | control | equals(b'"') | equals(ESCAPE) | equals(0x7f)) & HIGH
}

#[cold]
fn push_json(out: &mut LineBuffer<'_>, text: &[u8]) {
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' => out.fixed(b"\\\""),
                '\\' => out.fixed(b"\\\\"),
                // Control characters, and those that some readers take for the end of a line.
                '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
                    let digit = |shift: u32| HEX[(u32::from(character) >> shift & 15) as usize];
                    out.fixed(&[b'\\', b'u', digit(12), digit(8), digit(4), digit(0)]);
                }
                _ => out.slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if !chunk.invalid().is_empty() {
            out.fixed(b"\\ufffd");
        }
    }
}

#[cold]
fn push_hex(out: &mut LineBuffer<'_>, text: &[u8], escape_prefix: &[u8], escape_byte: u8) {
    for &byte in text {
        if byte == escape_byte || byte == b'"' || !(0x20..0x7f).contains(&byte) {
            out.slice(escape_prefix);
            out.fixed(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        } else {
            out.byte(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sink::render_to_vec;
    use super::*;

    fn escaped(escape: EscapeRule, text: &[u8]) -> String {
        let out = render_to_vec(6 * text.len(), |out| escape.push_escaped(out, text));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn hostile_bytes_are_written_out_in_each_format() {
        let hostile_text = b"a\"b\\c\r\nd#\x1b[2J\x7f\xc3\xa4\xff";
        assert_eq!(
            escaped(EscapeRule::Json, hostile_text),
            "a\\\"b\\\\c\\u000D\\u000Ad#\\u001B[2J\\u007F\u{e4}\\ufffd"
        );
        assert_eq!(
            escaped(EscapeRule::Nginx, hostile_text),
            "a\\x22b\\x5Cc\\x0D\\x0Ad#\\x1B[2J\\x7F\\xC3\\xA4\\xFF"
        );
        assert_eq!(escaped(EscapeRule::Haproxy, hostile_text), "a#22b\\c#0D#0Ad#23#1B[2J#7F#C3#A4#FF");
    }

    #[test]
    fn what_reads_as_the_end_of_a_line_elsewhere_is_escaped_in_json() {
        assert_eq!(escaped(EscapeRule::Json, "\u{2028}\u{85}x".as_bytes()), "\\u2028\\u0085x");
    }

    #[test]
    fn every_byte_gives_a_json_string_that_reads_back() {
        for byte in 0..=255u8 {
            for text in [vec![byte], vec![b'a', byte, b'b'], vec![b' '; 40], vec![byte; 40]] {
                let quoted = format!("\"{}\"", escaped(EscapeRule::Json, &text));
                let parsed: String = serde_json::from_str(&quoted).unwrap();
                assert_eq!(parsed, String::from_utf8_lossy(&text), "{quoted}");
                assert!(quoted.bytes().all(|byte| byte >= 0x20 && byte != 0x7f));
            }
        }
    }

    #[test]
    fn a_special_byte_is_found_at_every_position() {
        for byte in 0..=255u8 {
            let is_plain_byte = (0x20..0x7f).contains(&byte) && byte != b'"' && byte != b'\\';
            for length in 1..40 {
                for position in 0..length {
                    let mut text = vec![b'!'; length];
                    text[position] = byte;
                    assert_eq!(is_plain::<b'\\'>(&text), is_plain_byte, "{byte} at {position} of {length}");
                }
            }
        }
    }

    #[test]
    fn every_byte_is_printable_in_the_other_formats_and_can_be_told_apart() {
        for escape in [EscapeRule::Nginx, EscapeRule::Haproxy] {
            let mut seen = std::collections::BTreeSet::new();
            for byte in 0..=255u8 {
                let text = escaped(escape, &[byte]);
                assert!(text.bytes().all(|byte| (0x20..0x7f).contains(&byte) && byte != b'"'));
                assert!(seen.insert(text));
            }
        }
    }
}
