//! Properties of decoders that hold for any bytes, for tests and fuzz targets only. Nothing in a product
//! calls them.

use crate::tls;

/// Checks the subject of a certificate: visible ASCII. `true`: it was a certificate.
///
/// # Panics
/// The property does not hold.
pub fn certificate(bytes: &[u8]) -> bool {
    let subject = tls::certificate_subject(bytes);
    if let Some(subject) = &subject {
        assert!(subject.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '), "{subject}");
    }
    subject.is_some()
}

/// Checks an OCSP response with its certificate behind it: nothing panics. The first two bytes are the length
/// of the response. `true`: it is one for the certificate.
pub fn ocsp_response(bytes: &[u8]) -> bool {
    let Some((length, rest)) = bytes.split_first_chunk::<2>() else { return false };
    let (response, certificate) = rest.split_at(rest.len().min(usize::from(u16::from_be_bytes(*length))));
    tls::is_ocsp_response_for(response, certificate)
}

#[cfg(test)]
mod cost_tests;
