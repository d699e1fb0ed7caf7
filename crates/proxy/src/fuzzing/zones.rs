//! Responses of name servers to updates of a zone, and the files of keys.

use crate::plan::TsigAlgorithm;
use proxy_config::dns_codec::tsig::{TsigError, TsigKey};
use proxy_config::dns_codec::update::{ZoneRecord, parse_response};

/// ID of the request of [`dns_update`].
const ID: u16 = 0x1234;
/// Time of the response in seconds since 1970.
const NOW_S: u64 = 1_795_000_000;

/// Checks the response to an update: names are printable, its content is that of the message, and a signature is never valid
/// for another request. `true`: it is a response.
///
/// # Panics
/// One of the properties does not hold.
pub fn dns_update(bytes: &[u8]) -> bool {
    // The secret is long enough, and valid base64.
    let Ok(key) = TsigKey::new("weir", TsigAlgorithm::HmacSha256, "AQIDBAUGBwgJCgsMDQ4PEA==") else {
        return false;
    };
    let first = key.verify(bytes, b"the signature of a request", NOW_S);
    let second = key.verify(bytes, b"the signature of another one", NOW_S);
    assert!(first.is_err() || second.is_err(), "valid for two requests");
    if let Err(error @ TsigError::OtherKey) = first {
        assert!(!error.to_string().is_empty());
    }
    let Ok(response) = parse_response(bytes, ID) else { return false };
    for (owner, record) in &response.records {
        let name = match record {
            ZoneRecord::Ns(name) => name,
            _ => owner,
        };
        assert!(name.len() <= 253 && name.bytes().all(|byte| byte.is_ascii_graphic()), "{name}");
        if let ZoneRecord::Txt(value) = record {
            assert!(value.len() <= bytes.len());
        }
    }
    true
}

/// Checks the file of a key: a fault is short and printable. `true`: it has a key.
///
/// # Panics
/// The property does not hold.
pub fn tsig_key(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    match TsigKey::parse_file(text) {
        Ok(_) => true,
        Err(fault) => {
            assert!(fault.to_string().len() < 512, "{fault}");
            false
        }
    }
}
