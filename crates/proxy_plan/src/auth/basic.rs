//! Credentials of the scheme Basic (RFC 7617). Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Maximum length of the encoded credentials in bytes.
const CREDENTIALS_BYTES_MAX: usize = 4 << 10;

/// A name and a password.
#[derive(PartialEq, Eq)]
pub struct BasicCredentials {
    bytes: Vec<u8>,
    name_bytes: usize,
}

/// Fault of a field `Authorization`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialsFault {
    /// It has credentials of another scheme.
    OtherScheme,
    Malformed,
}

impl BasicCredentials {
    /// Parses the value of `Authorization`.
    ///
    /// # Errors
    /// It is of another scheme, too long, or not base64 of a name, a colon and a password.
    pub fn parse(value: &[u8]) -> Result<Self, CredentialsFault> {
        let encoded = strip_scheme(value, b"basic").ok_or(CredentialsFault::OtherScheme)?;
        if encoded.len() > CREDENTIALS_BYTES_MAX {
            return Err(CredentialsFault::Malformed);
        }
        let bytes = STANDARD.decode(encoded).map_err(|_| CredentialsFault::Malformed)?;
        let name_bytes = bytes.iter().position(|&byte| byte == b':').ok_or(CredentialsFault::Malformed)?;
        let has_control = bytes.iter().any(u8::is_ascii_control);
        let is_text = std::str::from_utf8(&bytes[..name_bytes]).is_ok();
        if name_bytes == 0 || has_control || !is_text {
            return Err(CredentialsFault::Malformed);
        }
        Ok(Self { bytes, name_bytes })
    }

    pub fn name(&self) -> &str {
        // Checked by `parse`.
        std::str::from_utf8(&self.bytes[..self.name_bytes]).unwrap_or_default()
    }

    pub fn password(&self) -> &[u8] {
        &self.bytes[self.name_bytes + 1..]
    }
}

impl Drop for BasicCredentials {
    fn drop(&mut self) {
        // The allocator gives the memory to others.
        self.bytes.fill(0);
    }
}

impl std::fmt::Debug for BasicCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BasicCredentials").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// Returns the credentials behind a scheme, which is in lower case.
pub(super) fn strip_scheme<'a>(value: &'a [u8], scheme: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = value.split_at_checked(scheme.len())?;
    let rest = rest.strip_prefix(b" ").filter(|_| start.eq_ignore_ascii_case(scheme))?;
    Some(rest.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_have_a_name_and_a_password() {
        for (value, name, password) in [
            ("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "Aladdin", "open sesame"),
            ("BASIC  dGVzdDoxMjPCow==", "test", "123\u{a3}"),
            ("basic YTo=", "a", ""),
            ("Basic YTpiOmM=", "a", "b:c"),
        ] {
            let credentials = BasicCredentials::parse(value.as_bytes()).unwrap();
            assert_eq!((credentials.name(), credentials.password()), (name, password.as_bytes()), "{value}");
            assert!(!format!("{credentials:?}").contains("sesame"));
        }
    }

    #[test]
    fn malformed_credentials_are_refused() {
        use CredentialsFault::{Malformed, OtherScheme};
        let long = format!("Basic {}", "YWFh".repeat(CREDENTIALS_BYTES_MAX / 4 + 1));
        let control = format!("Basic {}", STANDARD.encode("a:b\n"));
        let no_text = format!("Basic {}", STANDARD.encode(b"\xff:b"));
        for (value, fault) in [
            ("", OtherScheme),
            ("Basic", OtherScheme),
            ("Bearer YTpi", OtherScheme),
            ("Basicx YTpi", OtherScheme),
            ("Basic ", Malformed),
            ("Basic YTpi=", Malformed),
            ("Basic !!!!", Malformed),
            ("Basic YWI=", Malformed),
            ("Basic OmI=", Malformed),
            (&*long, Malformed),
            (&*control, Malformed),
            (&*no_text, Malformed),
        ] {
            let length = value.len().min(40);
            assert_eq!(BasicCredentials::parse(value.as_bytes()), Err(fault), "{}", &value[..length]);
        }
    }
}
