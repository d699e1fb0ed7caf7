//! Certificates that prove the control of a host to an ACME server (TLS-ALPN-01, RFC 8737).

use std::collections::BTreeMap;
use std::sync::Arc;
#[allow(clippy::disallowed_types, reason = "changed a few times a month, read only by validations")]
use std::sync::RwLock;

use rustls::pki_types::PrivateKeyDer;
use rustls::sign::CertifiedKey;

use super::{TlsConfigError, crypto_provider};

/// Protocol of ALPN that a validation negotiates.
pub(super) const ACME_PROTOCOL: &[u8] = b"acme-tls/1";

/// Certificates by name, for all listeners of the process: a validation may reach any of them.
#[allow(clippy::disallowed_types, reason = "see the import")]
static CHALLENGES: RwLock<BTreeMap<String, Arc<CertifiedKey>>> = RwLock::new(BTreeMap::new());

/// Certificate that is offered to validations until this is dropped.
#[derive(Debug)]
pub struct TlsAlpnChallenge {
    name: String,
}

impl TlsAlpnChallenge {
    /// Offers a certificate for a name with the SHA-256 digest of the key authorization.
    ///
    /// # Errors
    /// It cannot be made: the name is not a DNS name.
    pub fn offer(name: &str, digest: &[u8]) -> Result<Self, TlsConfigError> {
        let name = name.to_ascii_lowercase();
        let mut params =
            rcgen::CertificateParams::new([name.clone()]).map_err(TlsConfigError::without_file)?;
        params.custom_extensions = vec![rcgen::CustomExtension::new_acme_identifier(digest)];
        let key = rcgen::KeyPair::generate().map_err(TlsConfigError::without_file)?;
        let certificate = params.self_signed(&key).map_err(TlsConfigError::without_file)?;
        let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(TlsConfigError::without_file)?;
        // Without the check that key and certificate belong together: its parser refuses the critical
        // extension of the challenge (RFC 8737 §3).
        let key = crypto_provider().key_provider.load_private_key(key);
        let key = key.map_err(|error| TlsConfigError::without_file_tls(&error))?;
        let key = CertifiedKey::new(vec![certificate.der().clone()], key);
        let mut all = CHALLENGES.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        all.insert(name.clone(), Arc::new(key));
        Ok(Self { name })
    }
}

impl Drop for TlsAlpnChallenge {
    fn drop(&mut self) {
        CHALLENGES.write().unwrap_or_else(std::sync::PoisonError::into_inner).remove(&self.name);
    }
}

/// Returns the certificate for a validation of a name.
pub(super) fn challenge_of(name: &str) -> Option<Arc<CertifiedKey>> {
    let all = CHALLENGES.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    all.get(&name.to_ascii_lowercase()).cloned()
}
