//! The secondary key of RFC 9111 §4.1: the request fields that `Vary` names, in a normalised form. Pure.

use content::request::parse_element;
use wire::Header;

/// Maximum length of a secondary key; a response with a longer one is not stored.
pub(crate) const VARIANT_BYTES_MAX: usize = 4096;

/// The fields of a request that a known `Vary` names.
#[derive(Debug)]
pub(crate) struct Selection {
    names: Box<[Box<str>]>,
    key: Box<[u8]>,
}

impl Selection {
    pub(crate) fn new(names: &[Box<str>], headers: &[Header<'_>]) -> Self {
        Self { names: names.into(), key: secondary_key(names, headers) }
    }

    /// Returns whether another request has the same ones.
    pub(crate) fn covers(&self, headers: &[Header<'_>]) -> bool {
        secondary_key(&self.names, headers) == self.key
    }
}

/// Returns the secondary key of a request for the names of a `Vary` (lower case, sorted).
pub(crate) fn secondary_key(names: &[Box<str>], headers: &[Header<'_>]) -> Box<[u8]> {
    let mut key = Vec::new();
    for name in names {
        let values =
            headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value);
        match &**name {
            "accept-encoding" => append_codings(&mut key, values),
            // Tags of languages have no case (RFC 5646 §2.1.1). Their order may be a preference.
            "accept-language" => {
                let start = key.len();
                append_values(&mut key, values);
                key[start..].make_ascii_lowercase();
            }
            _ => append_values(&mut key, values),
        }
        // No value contains a line feed.
        key.push(b'\n');
    }
    key.into_boxed_slice()
}

/// Appends the values as one list, without the spaces around its commas. An absent field differs from an empty one.
fn append_values<'h>(key: &mut Vec<u8>, values: impl Iterator<Item = &'h [u8]>) {
    for value in values {
        for element in value.split(|&byte| byte == b',') {
            key.push(b',');
            key.extend_from_slice(element.trim_ascii());
        }
    }
}

/// Appends the names of the accepted codings, sorted: their order and qualities change no response that is
/// acceptable to both clients.
fn append_codings<'h>(key: &mut Vec<u8>, values: impl Iterator<Item = &'h [u8]>) {
    let mut codings: Vec<Vec<u8>> = Vec::new();
    let mut is_present = false;
    for value in values {
        is_present = true;
        for element in value.split(|&byte| byte == b',') {
            let (name, quality) = parse_element(element);
            let mut name = name.to_ascii_lowercase();
            if name == b"x-gzip" {
                name = b"gzip".to_vec();
            }
            if quality == 0 {
                name.extend_from_slice(b";q=0");
            }
            if !name.is_empty() {
                codings.push(name);
            }
        }
    }
    codings.sort_unstable();
    codings.dedup();
    if is_present {
        key.push(b',');
    }
    key.extend_from_slice(&codings.join(&b','));
}
