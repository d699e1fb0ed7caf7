//! Lines of a head that are forwarded unchanged: neighbours are copied at once, as they were received.

use wire::Header;

use super::forwarded_value;

/// Writes forwarded lines. Whoever writes anything else behind them calls [`LineWriter::flush`] first.
pub(super) struct LineWriter<'r> {
    /// The head as it was received.
    received: &'r [u8],
    /// Lines in it that are still to be copied.
    start: usize,
    end: usize,
}

impl<'r> LineWriter<'r> {
    pub(super) fn new(received: &'r [u8]) -> Self {
        Self { received, start: 0, end: 0 }
    }

    /// Writes a field as it is forwarded.
    #[inline(always)]
    pub(super) fn write(&mut self, header: &Header<'_>, out: &mut Vec<u8>) {
        self.write_line(header.name.as_bytes(), b": ", forwarded_value(header), b"\r\n", out);
    }

    /// Writes a line of two parts that may be received bytes, each followed by a text.
    #[inline(always)]
    pub(super) fn write_line<const N: usize, const M: usize>(
        &mut self,
        first: &[u8],
        separator: &[u8; N],
        second: &[u8],
        end: &[u8; M],
        out: &mut Vec<u8>,
    ) {
        match self.line_of(first, separator, second, end) {
            Some((start, end)) if start == self.end => self.end = end,
            position => self.write_apart(position, [first, separator, second, end], out),
        }
    }

    /// Writes a line that is not the next one of those received.
    #[inline(never)]
    fn write_apart(&mut self, position: Option<(usize, usize)>, parts: [&[u8]; 4], out: &mut Vec<u8>) {
        self.flush(out);
        match position {
            Some(position) => (self.start, self.end) = position,
            None => parts.iter().for_each(|part| out.extend_from_slice(part)),
        }
    }

    /// Writes the lines up to here.
    #[inline]
    pub(super) fn flush(&mut self, out: &mut Vec<u8>) {
        if self.start < self.end {
            out.extend_from_slice(&self.received[self.start..self.end]);
            self.start = self.end;
        }
    }

    /// Returns the position of a line among the received bytes; `None`: they do not have it in this form.
    #[inline(always)]
    fn line_of<const N: usize, const M: usize>(
        &self,
        first: &[u8],
        separator: &[u8; N],
        second: &[u8],
        end: &[u8; M],
    ) -> Option<(usize, usize)> {
        let address = |bytes: &[u8]| bytes.as_ptr() as usize;
        let start = address(first).checked_sub(address(self.received))?;
        let (first_end, second_start) = (start + first.len(), start + first.len() + N);
        let second_end = second_start + second.len();
        let is_there = address(second) == address(self.received) + second_start
            && self.received.get(first_end..second_start)? == separator
            && self.received.get(second_end..second_end + M)? == end;
        is_there.then_some((start, second_end + M))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(received: &[u8], headers: &[Header<'_>]) -> String {
        let (mut out, mut lines) = (Vec::new(), LineWriter::new(received));
        for header in headers {
            lines.write(header, &mut out);
        }
        lines.flush(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn fields<'h, 'b>(bytes: &'b [u8], slots: &'h mut wire::HeaderSlots<'b>) -> wire::RequestHead<'h, 'b> {
        match wire::parse_request(bytes, &wire::Limits::default(), slots) {
            Ok(wire::Parsed::Complete { head, .. }) => head,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn lines_are_written_in_one_form_whatever_was_received() {
        let bytes =
            b"GET / HTTP/1.0\r\nA: 1\r\nB:2\r\nC:  3\r\nD: 4 \r\nE:\r\nF: \r\nG:\t7\r\nH: 8\r\nI: 9\r\n\r\n";
        let mut slots = wire::header_slots();
        let head = fields(bytes, &mut slots);
        let each = ["A: 1", "B: 2", "C: 3", "D: 4", "E: ", "F: ", "G: 7", "H: 8", "I: 9"];
        let expected = |kept: &dyn Fn(usize) -> bool| {
            let lines = each.iter().enumerate().filter(|(at, _)| kept(*at));
            lines.map(|(_, line)| format!("{line}\r\n")).collect::<String>()
        };
        // Every choice of lines, also in the reverse order and of other bytes.
        for choice in 0..1 << each.len() {
            let is_kept = |at: usize| choice >> at & 1 == 1;
            let headers = head.headers.iter().enumerate().filter(|(at, _)| is_kept(*at));
            let headers: Vec<Header<'_>> = headers.map(|(_, header)| *header).collect();
            assert_eq!(written(head.received, &headers), expected(&is_kept));
            assert_eq!(written(b"", &headers), expected(&is_kept));
        }
        let reversed: Vec<Header<'_>> = head.headers.iter().rev().copied().collect();
        let expected: String = each.iter().rev().map(|line| format!("{line}\r\n")).collect();
        assert_eq!(written(head.received, &reversed), expected);
    }

    #[test]
    fn parts_of_a_line_are_no_line() {
        let bytes = b"GET / HTTP/1.0\r\nName: value\r\n\r\n";
        let mut slots = wire::header_slots();
        let Header { name, value } = fields(bytes, &mut slots).headers[0];
        for (name, value) in
            [(&name[1..], value), (&name[..3], value), (name, &value[..3]), (name, &value[1..])]
        {
            let text = String::from_utf8(value.to_vec()).unwrap();
            assert_eq!(written(bytes, &[Header { name, value }]), format!("{name}: {text}\r\n"));
        }
    }
}
