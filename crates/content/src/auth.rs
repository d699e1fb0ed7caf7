//! Basic authentication (RFC 7617): the accepted credentials, compared in constant time.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use record::invalid_value;
use record::problem::InvalidValue;

/// Accepted credentials, as clients send them: `user:password` in base64.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials(Vec<Box<[u8]>>);

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} secret", self.0.len())
    }
}

/// Maximum size of a file of credentials.
const FILE_BYTES_MAX: u64 = 1 << 20;

impl Credentials {
    /// Parses texts: `USER:PASSWORD`, or `@FILE` with one of them in each line; empty lines and lines with
    /// `#` at their start are skipped.
    ///
    /// # Errors
    /// All texts and lines at fault, without their passwords.
    pub fn parse(texts: &[String]) -> Result<Self, Vec<InvalidValue>> {
        let (mut accepted, mut problems) = (Vec::new(), Vec::new());
        for (index, text) in texts.iter().enumerate() {
            let Some(path) = text.strip_prefix('@') else {
                match encode(text) {
                    Some(encoded) => accepted.push(encoded),
                    None => problems.push(invalid_value!("value {}: not USER:PASSWORD", index + 1)),
                }
                continue;
            };
            let lines = match read_file(path) {
                Ok(lines) => lines,
                Err(error) => {
                    problems.push(invalid_value!("{path}: {error}"));
                    continue;
                }
            };
            for (number, line) in lines.lines().enumerate() {
                if line.is_empty() || line.starts_with('#') {
                    continue;
                }
                match encode(line) {
                    Some(encoded) => accepted.push(encoded),
                    None => problems.push(invalid_value!("{path}:{}: not USER:PASSWORD", number + 1)),
                }
            }
        }
        if accepted.is_empty() && problems.is_empty() && !texts.is_empty() {
            problems.push(invalid_value!("no credentials in the file"));
        }
        if problems.is_empty() { Ok(Self(accepted)) } else { Err(problems) }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether a field `Authorization` has accepted credentials. The time depends on the lengths
    /// only.
    pub fn accept(&self, field: Option<&[u8]>) -> bool {
        let Some((scheme, token)) = field.and_then(|field| field.split_at_checked(6)) else { return false };
        let token = token.trim_ascii();
        let is_basic = scheme.eq_ignore_ascii_case(b"basic ");
        let matches = self.0.iter().fold(false, |found, accepted| found | is_equal(accepted, token));
        is_basic & matches
    }
}

/// Compares in a time that depends on the lengths only.
fn is_equal(accepted: &[u8], token: &[u8]) -> bool {
    let difference =
        accepted.iter().enumerate().fold(accepted.len() ^ token.len(), |difference, (index, byte)| {
            difference | usize::from(byte ^ token.get(index).copied().unwrap_or(0))
        });
    std::hint::black_box(difference) == 0
}

/// Encodes `USER:PASSWORD`; `None`: it has no colon.
fn encode(text: &str) -> Option<Box<[u8]>> {
    text.contains(':').then(|| STANDARD.encode(text).into_bytes().into())
}

fn read_file(path: &str) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(std::io::Error::other("larger than 1 MiB"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(texts: &[&str]) -> Result<Credentials, Vec<InvalidValue>> {
        Credentials::parse(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn only_the_right_password_is_accepted() {
        let credentials = accepted(&["ann:secret", "bob:a:b"]).unwrap();
        let field = |text: &str| format!("Basic {}", STANDARD.encode(text)).into_bytes();
        for (text, expected) in [
            ("ann:secret", true),
            ("bob:a:b", true),
            ("ann:secre", false),
            ("ann:secret2", false),
            ("ann:", false),
            ("bob:secret", false),
            ("", false),
        ] {
            assert_eq!(credentials.accept(Some(&field(text))), expected, "{text}");
        }
        assert!(credentials.accept(Some(&[b"bAsIc ", &field("ann:secret")[6..]].concat())));
        for field in [None, Some(&b"Bearer x"[..]), Some(b"Basic"), Some(b""), Some(b"Basic  ")] {
            assert!(!credentials.accept(field));
        }
        assert_eq!(format!("{credentials:?}"), "2 secret");
    }

    #[test]
    fn lines_at_fault_are_named_without_their_passwords() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "# users\n\nann:secret\nhunter2\n").unwrap();
        let path = file.path().display().to_string();
        let problems = accepted(&[&format!("@{path}"), "hunter3", "@/no/such/file"]).unwrap_err();
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(problems[0], format!("{path}:4: not USER:PASSWORD"));
        assert_eq!(problems[1], "value 2: not USER:PASSWORD");
        assert!(problems[2].starts_with("/no/such/file: "), "{problems:?}");
        std::fs::write(file.path(), "ann:secret\n").unwrap();
        assert_eq!(accepted(&[&format!("@{path}")]).unwrap().len(), 1);
    }
}
