//! Lists of directives: `Cache-Control` (RFC 9111 §5.2), and the targeted fields of RFC 9213. Pure.
//!
//! It parses; [`crate::policy`] decides.

/// Seconds that stand for a number that does not fit (RFC 9111 §1.2.2).
pub(crate) const SECONDS_MAX: u64 = 1 << 31;

/// One directive of a list: `name`, `name=token` or `name="text"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Directive<'v> {
    pub(crate) name: &'v [u8],
    /// Value without its quotes; escapes stay.
    pub(crate) value: Option<&'v [u8]>,
    pub(crate) is_quoted: bool,
}

impl Directive<'_> {
    pub(crate) fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }

    /// Returns the value as seconds. `None`: it has another form.
    pub(crate) fn seconds(&self) -> Option<u64> {
        parse_seconds(self.value?)
    }
}

/// Iterator over the directives of one value. Elements that are no directives are left out.
pub(crate) struct Directives<'v> {
    pub(crate) rest: &'v [u8],
}

impl<'v> Iterator for Directives<'v> {
    type Item = Directive<'v>;

    fn next(&mut self) -> Option<Directive<'v>> {
        loop {
            self.rest = self.rest.trim_ascii_start();
            if self.rest.is_empty() {
                return None;
            }
            let (element, after) = split_element(self.rest);
            self.rest = after;
            if let Some(directive) = parse_directive(element) {
                return Some(directive);
            }
        }
    }
}

/// Splits a list at its first comma outside of a quoted string.
fn split_element(list: &[u8]) -> (&[u8], &[u8]) {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, &byte) in list.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b',' if !is_quoted => return (&list[..at], &list[at + 1..]),
            _ => {}
        }
    }
    (list, &[])
}

fn parse_directive(element: &[u8]) -> Option<Directive<'_>> {
    let element = element.trim_ascii();
    let equals = element.iter().position(|&byte| byte == b'=');
    let (name, value) = match equals {
        // Spaces around the `=` are not valid: such a directive is none.
        Some(at) => (&element[..at], Some(&element[at + 1..])),
        None => (element, None),
    };
    if name.is_empty() || name.iter().any(|byte| byte.is_ascii_whitespace() || *byte == b'"') {
        return None;
    }
    let quoted = value.and_then(|value| value.strip_prefix(b"\"")?.strip_suffix(b"\""));
    Some(Directive { name, value: quoted.or(value), is_quoted: quoted.is_some() })
}

/// Parses a number of seconds (RFC 9111 §1.2.2). `None`: no digits, or something else.
pub(crate) fn parse_seconds(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let seconds = text
        .iter()
        .fold(0_u64, |number, digit| number.saturating_mul(10).saturating_add(u64::from(digit - b'0')));
    Some(seconds.min(SECONDS_MAX))
}
