//! Session tickets (RFC 8446 §4.6.1, RFC 5077): the keys that encrypt them, their rotation, and
//! their transfer to another process.
//!
//! ```text
//! ticket = key name (16) | nonce (12) | AES-256-GCM of (time of issue (8) | session) | tag (16)
//! ```
//! A ticket is accepted for [`TICKET_LIFETIME_S`]. Random keys are replaced at half that time, and
//! kept until their last ticket has expired. All cores share them. Whoever has a key can read
//! sessions of TLS 1.2 that it protected, so keys are never written anywhere.

use std::path::Path;
#[allow(
    clippy::disallowed_types,
    reason = "sessions of one core are resumed on another, and a key changes every 6 hours"
)]
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand;
use rustls::pki_types::UnixTime;
use rustls::server::ProducesTickets;

use super::TlsConfigError;

/// Maximum age of an accepted ticket in seconds: 12 hours.
pub const TICKET_LIFETIME_S: u32 = 12 * 3_600;
/// Time for which a random key encrypts new tickets, in seconds.
const ROTATION_S: u64 = TICKET_LIFETIME_S as u64 / 2;
/// Maximum difference between the clocks of hosts that share a key, in seconds.
const CLOCK_SKEW_MAX_S: u64 = 300;
/// Maximum number of keys at a time, also of those in a file.
const KEYS_MAX: usize = 16;
/// Maximum number of keys for another process, which fit into a message.
const EXPORTED_KEYS_MAX: usize = 4;
const NAME_BYTES: usize = 16;
const SECRET_BYTES: usize = 32;
/// Lengths of a key in a file: name, HMAC key and AES-128 or AES-256 key.
const FILE_KEY_BYTES: [usize; 2] = [48, 80];
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// Keys of session tickets, shared by all cores.
#[allow(clippy::disallowed_types, reason = "see the import")]
pub(super) struct TicketKeys {
    ring: RwLock<KeyRing>,
    /// Digest of the rules for clients' certificates. A session is resumed without verification, so
    /// only under the same rules.
    binding: [u8; 32],
    /// Time from which no ticket is accepted, in seconds since 1970: the certificate of its session may have
    /// been revoked meanwhile. `None`: none.
    sessions_end_s: Option<u64>,
}

#[derive(Clone)]
struct KeyRing {
    /// The first one encrypts.
    keys: Vec<Arc<TicketKey>>,
    /// Time of the next rotation in seconds since 1970; `None`: the keys come from files.
    rotates_at_s: Option<u64>,
}

struct TicketKey {
    name: [u8; NAME_BYTES],
    /// Kept for the transfer to another process.
    secret: [u8; SECRET_BYTES],
    aead: LessSafeKey,
    /// Time at which its last ticket expires, in seconds since 1970; `None`: the key still encrypts,
    /// or comes from a file.
    expires_at_s: Option<u64>,
}

/// Copy of random keys for a process that takes over.
#[derive(Clone, PartialEq, Eq)]
pub struct TicketKeyExport {
    /// Rules that the keys belong to.
    pub binding: Vec<u8>,
    /// Time of the next rotation in seconds since 1970.
    pub rotates_at_s: u64,
    /// Names, secrets and end times (0: none) in seconds since 1970; the first key encrypts.
    pub keys: Vec<(Vec<u8>, Vec<u8>, u64)>,
}

impl std::fmt::Debug for TicketKeyExport {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "TicketKeyExport({} keys)", self.keys.len())
    }
}

impl std::fmt::Debug for TicketKeys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "TicketKeys({})", self.read().keys.len())
    }
}

impl TicketKeys {
    #[allow(clippy::disallowed_types, reason = "see the import")]
    fn new(ring: KeyRing, binding: [u8; 32]) -> Self {
        Self { ring: RwLock::new(ring), binding, sessions_end_s: None }
    }

    /// Returns the same keys, which accept no ticket from a time on, in seconds since 1970.
    pub(super) fn until(self, sessions_end_s: Option<u64>) -> Self {
        Self { sessions_end_s, ..self }
    }

    /// Creates random keys for sessions under the rules with this digest.
    ///
    /// # Errors
    /// The kernel has no random numbers.
    pub(super) fn random(binding: [u8; 32]) -> Result<Self, TlsConfigError> {
        let now_s = UnixTime::now().as_secs();
        let key = TicketKey::random().ok_or_else(|| TlsConfigError::without_file("no random numbers"))?;
        let ring = KeyRing { keys: vec![Arc::new(key)], rotates_at_s: Some(now_s + ROTATION_S) };
        Ok(Self::new(ring, binding))
    }

    /// Reads the keys of files that hosts share, in the formats of nginx (48 or 80 bytes, one key
    /// for each file; the first one encrypts) and HAProxy (keys in base64, one for each line; the
    /// last but one encrypts).
    ///
    /// # Errors
    /// A file cannot be read, or has another format.
    pub(super) fn from_files(paths: &[impl AsRef<Path>], binding: [u8; 32]) -> Result<Self, TlsConfigError> {
        let mut keys = Vec::new();
        for path in paths.iter().map(AsRef::as_ref) {
            for bytes in read_key_file(path)? {
                let key = TicketKey::derive(&bytes, &binding);
                keys.push(Arc::new(key.ok_or_else(|| TlsConfigError::in_file(path, "unusable key"))?));
            }
            if keys.len() > KEYS_MAX {
                return Err(TlsConfigError::in_file(path, format_args!("more than {KEYS_MAX} ticket keys")));
            }
        }
        Ok(Self::new(KeyRing { keys, rotates_at_s: None }, binding))
    }

    /// Returns a copy of random keys for another process; `None`: the keys come from files.
    pub(super) fn export(&self) -> Option<TicketKeyExport> {
        let ring = self.read();
        let copy = |key: &Arc<TicketKey>| {
            (key.name.to_vec(), key.secret.to_vec(), key.expires_at_s.unwrap_or_default())
        };
        Some(TicketKeyExport {
            binding: self.binding.to_vec(),
            rotates_at_s: ring.rotates_at_s?,
            // More have all expired: keys rotate at half the lifetime of tickets.
            keys: ring.keys.iter().take(EXPORTED_KEYS_MAX).map(copy).collect(),
        })
    }

    /// Replaces random keys by those of another process. Returns whether they were taken: not if
    /// its rules for clients were other ones, or if these keys come from files.
    pub(super) fn import(&self, export: &TicketKeyExport) -> bool {
        let key = |(name, secret, expires_at_s): &(Vec<u8>, Vec<u8>, u64)| {
            let (name, secret) = (name.as_slice().try_into().ok()?, secret.as_slice().try_into().ok()?);
            let expires_at_s = (*expires_at_s > 0).then_some(*expires_at_s);
            Some(Arc::new(TicketKey { expires_at_s, ..TicketKey::new(name, secret)? }))
        };
        let keys: Option<Vec<_>> = export.keys.iter().take(KEYS_MAX).map(key).collect();
        let mut ring = self.write();
        match keys {
            Some(keys)
                if !keys.is_empty() && ring.rotates_at_s.is_some() && export.binding == self.binding =>
            {
                *ring = KeyRing { keys, rotates_at_s: Some(export.rotates_at_s) };
                true
            }
            _ => false,
        }
    }

    pub(super) fn is_from_files(&self) -> bool {
        self.read().rotates_at_s.is_none()
    }

    fn read(&self) -> RwLockReadGuard<'_, KeyRing> {
        self.ring.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, KeyRing> {
        self.ring.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn encrypt_at(&self, session: &[u8], now_s: u64) -> Option<Vec<u8>> {
        if self.read().is_rotation_due(now_s) {
            self.write().rotate(now_s);
        }
        let key = self.read().keys.first().map(Arc::clone)?;
        key.encrypt(session, now_s)
    }

    fn decrypt_at(&self, ticket: &[u8], now_s: u64) -> Option<Vec<u8>> {
        let name = ticket.get(..NAME_BYTES)?;
        if self.sessions_end_s.is_some_and(|end_s| now_s >= end_s) {
            return None;
        }
        let has_name = |key: &&Arc<TicketKey>| key.name == name && key.is_valid_at(now_s);
        let key = self.read().keys.iter().find(has_name).map(Arc::clone)?;
        key.decrypt(ticket, now_s)
    }
}

impl ProducesTickets for TicketKeys {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        TICKET_LIFETIME_S
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.encrypt_at(plain, UnixTime::now().as_secs())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.decrypt_at(cipher, UnixTime::now().as_secs())
    }
}

impl KeyRing {
    fn is_rotation_due(&self, now_s: u64) -> bool {
        self.rotates_at_s.is_some_and(|at_s| now_s >= at_s)
    }

    /// Puts a new key first, and drops keys whose tickets have expired. Another core may have done
    /// it meanwhile. Without random numbers the old key stays in use.
    fn rotate(&mut self, now_s: u64) {
        if !self.is_rotation_due(now_s) {
            return;
        }
        let Some(new) = TicketKey::random() else { return };
        if let Some(old) = self.keys.first_mut() {
            // The key encrypted its last ticket now, at the latest.
            let expires_at_s = Some(now_s + u64::from(TICKET_LIFETIME_S));
            if let Some(retired) = TicketKey::new(old.name, old.secret) {
                *old = Arc::new(TicketKey { expires_at_s, ..retired });
            }
        }
        self.keys.insert(0, Arc::new(new));
        self.keys.retain(|key| key.is_valid_at(now_s));
        self.keys.truncate(KEYS_MAX);
        self.rotates_at_s = Some(now_s + ROTATION_S);
    }
}

impl TicketKey {
    fn new(name: [u8; NAME_BYTES], secret: [u8; SECRET_BYTES]) -> Option<Self> {
        let aead = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &secret).ok()?);
        Some(Self { name, secret, aead, expires_at_s: None })
    }

    fn random() -> Option<Self> {
        let (mut name, mut secret) = ([0; NAME_BYTES], [0; SECRET_BYTES]);
        rand::fill(&mut name).ok()?;
        rand::fill(&mut secret).ok()?;
        Self::new(name, secret)
    }

    /// Derives a key from the bytes of a file, for sessions under the rules with this digest.
    fn derive(bytes: &[u8], binding: &[u8]) -> Option<Self> {
        let hash = |label: &[u8]| digest(&SHA256, &[label, binding, bytes].concat());
        let name = hash(b"weir ticket key name").as_ref().first_chunk().copied()?;
        let secret = hash(b"weir ticket key secret").as_ref().try_into().ok()?;
        Self::new(name, secret)
    }

    fn is_valid_at(&self, now_s: u64) -> bool {
        self.expires_at_s.is_none_or(|expires_at_s| now_s < expires_at_s)
    }

    fn encrypt(&self, session: &[u8], now_s: u64) -> Option<Vec<u8>> {
        // Random nonces suffice for 2^32 tickets (NIST SP 800-38D §8.3): 6 hours at 198 k/s.
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        let mut content = Vec::with_capacity(NAME_BYTES + NONCE_LEN + 8 + session.len() + 16);
        content.extend_from_slice(&now_s.to_be_bytes());
        content.extend_from_slice(session);
        let nonce_of_key = Nonce::assume_unique_for_key(nonce);
        self.aead.seal_in_place_append_tag(nonce_of_key, Aad::from(self.name), &mut content).ok()?;
        content.splice(0..0, self.name.iter().chain(&nonce).copied());
        Some(content)
    }

    fn decrypt(&self, ticket: &[u8], now_s: u64) -> Option<Vec<u8>> {
        let (nonce, content) = ticket.get(NAME_BYTES..)?.split_first_chunk::<NONCE_LEN>()?;
        let mut content = content.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let plain = self.aead.open_in_place(nonce, Aad::from(self.name), &mut content).ok()?;
        let (issued_at_s, session) = plain.split_first_chunk()?;
        let issued_at_s = u64::from_be_bytes(*issued_at_s);
        let is_expired = now_s >= issued_at_s.saturating_add(u64::from(TICKET_LIFETIME_S));
        let is_from_future = issued_at_s > now_s.saturating_add(CLOCK_SKEW_MAX_S);
        (!is_expired && !is_from_future).then(|| session.to_vec())
    }
}

/// Reads the keys of a file, the encrypting one first.
fn read_key_file(path: &Path) -> Result<Vec<Vec<u8>>, TlsConfigError> {
    let metadata = std::fs::metadata(path).map_err(|error| TlsConfigError::in_file(path, error))?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return Err(TlsConfigError::in_file(path, "it is no file with ticket keys"));
    }
    let bytes = std::fs::read(path).map_err(|error| TlsConfigError::in_file(path, error))?;
    if FILE_KEY_BYTES.contains(&bytes.len()) {
        return Ok(vec![bytes]);
    }
    let invalid = || TlsConfigError::in_file(path, "neither 48 or 80 bytes, nor lines of them in base64");
    let text = String::from_utf8(bytes).map_err(|_| invalid())?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let decoded: Option<Vec<Vec<u8>>> = lines.map(decode_base64).collect();
    let mut keys = decoded.ok_or_else(invalid)?;
    if keys.is_empty() || !keys.iter().all(|key| FILE_KEY_BYTES.contains(&key.len())) {
        return Err(invalid());
    }
    // The last one is the next one: it only decrypts until the file changes on all hosts.
    let encrypting = keys.len().saturating_sub(2);
    keys.swap(0, encrypting);
    Ok(keys)
}

fn decode_base64(text: &str) -> Option<Vec<u8>> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BINDING: [u8; 32] = [1; 32];

    fn keys() -> (TicketKeys, u64) {
        let keys = TicketKeys::random(BINDING).unwrap();
        let start_s = keys.read().rotates_at_s.unwrap() - ROTATION_S;
        (keys, start_s)
    }

    #[test]
    fn a_ticket_is_accepted_until_it_expires_although_keys_rotate() {
        let (keys, start_s) = keys();
        let issued_s = start_s + ROTATION_S - 1;
        let ticket = keys.encrypt_at(b"session", issued_s).unwrap();
        let end_s = issued_s + u64::from(TICKET_LIFETIME_S);
        for now_s in [issued_s, issued_s + 1, start_s + 2 * ROTATION_S, end_s - 1] {
            // Each new ticket may rotate the keys.
            keys.encrypt_at(b"other", now_s).unwrap();
            assert_eq!(keys.decrypt_at(&ticket, now_s).as_deref(), Some(&b"session"[..]));
        }
        assert_eq!(keys.decrypt_at(&ticket, end_s), None);
        keys.encrypt_at(b"other", end_s + 10 * ROTATION_S).unwrap();
        assert_eq!(keys.read().keys.len(), 2);
        assert!(keys.decrypt_at(&ticket, issued_s).is_none(), "its key is gone");
    }

    #[test]
    fn keys_rotate_at_half_the_lifetime() {
        let (keys, start_s) = keys();
        let name_at = |now_s| keys.encrypt_at(b"x", now_s).unwrap()[..NAME_BYTES].to_vec();
        let first = name_at(start_s);
        assert_eq!(first, name_at(start_s + ROTATION_S - 1));
        let second = name_at(start_s + ROTATION_S);
        assert_ne!(first, second);
        assert_eq!(second, name_at(start_s + 2 * ROTATION_S - 1));
        for rotation in 2..40 {
            name_at(start_s + rotation * ROTATION_S);
            assert!(keys.read().keys.len() <= 4);
        }
    }

    #[test]
    fn no_ticket_is_accepted_after_the_end_of_all_sessions() {
        let (keys, now_s) = keys();
        let keys = keys.until(Some(now_s + 10));
        let ticket = keys.encrypt_at(b"session", now_s).unwrap();
        assert!(keys.decrypt_at(&ticket, now_s + 9).is_some());
        assert_eq!(keys.decrypt_at(&ticket, now_s + 10), None);
    }

    #[test]
    fn a_changed_ticket_is_rejected() {
        let (keys, now_s) = keys();
        let ticket = keys.encrypt_at(b"session", now_s).unwrap();
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(keys.decrypt_at(&changed, now_s), None, "{at}");
            assert_eq!(keys.decrypt_at(&ticket[..at], now_s), None, "{at}");
        }
        assert_eq!(keys.decrypt_at(&ticket, now_s - CLOCK_SKEW_MAX_S - 1), None);
        assert_ne!(ticket, keys.encrypt_at(b"session", now_s).unwrap());
    }

    #[test]
    fn another_process_continues_with_the_same_keys() {
        let (old, now_s) = keys();
        let ticket = old.encrypt_at(b"session", now_s).unwrap();
        old.encrypt_at(b"later", now_s + ROTATION_S).unwrap();
        let export = old.export().unwrap();
        let new = TicketKeys::random(BINDING).unwrap();
        assert!(new.import(&export));
        assert_eq!(new.decrypt_at(&ticket, now_s + ROTATION_S).as_deref(), Some(&b"session"[..]));
        assert_eq!(new.export(), Some(export.clone()));
        let other_rules = TicketKeys::random([2; 32]).unwrap();
        assert!(!other_rules.import(&export));
        assert_eq!(other_rules.decrypt_at(&ticket, now_s), None);
        assert!(!new.import(&TicketKeyExport { keys: Vec::new(), ..export.clone() }));
        assert!(!new.import(&TicketKeyExport { keys: vec![(vec![1], vec![2], 0)], ..export.clone() }));
        assert!(!format!("{export:?} {new:?}").contains('['));
    }

    #[test]
    fn hosts_share_keys_in_files_of_nginx_and_haproxy() {
        use base64::Engine as _;
        let home = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = home.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let base64 = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
        let (old, current, next) = (vec![1; 48], vec![2; 80], vec![3; 80]);
        let nginx = [write("current", &current), write("old", &old)];
        let lines = [&old, &current, &next].map(|key| base64(key)).join("\n");
        let haproxy = [write("haproxy", lines.as_bytes())];
        let a = TicketKeys::from_files(&nginx, BINDING).unwrap();
        let b = TicketKeys::from_files(&haproxy, BINDING).unwrap();
        let ticket = a.encrypt_at(b"session", 1_000).unwrap();
        assert_eq!(ticket[..NAME_BYTES], b.encrypt_at(b"session", 1_000).unwrap()[..NAME_BYTES]);
        assert_eq!(b.decrypt_at(&ticket, 2_000).as_deref(), Some(&b"session"[..]));
        // Files do not rotate, but tickets expire.
        a.encrypt_at(b"session", 1_000 + 10 * ROTATION_S).unwrap();
        assert!(b.decrypt_at(&ticket, 1_000 + 2 * ROTATION_S).is_none() && a.export().is_none());
        let other_rules = TicketKeys::from_files(&nginx, [2; 32]).unwrap();
        assert_eq!(other_rules.decrypt_at(&ticket, 1_000), None);
        for (name, bytes) in [("short", &[0; 47][..]), ("text", b"not base64!"), ("empty", b"")] {
            let error = TicketKeys::from_files(&[write(name, bytes)], BINDING).unwrap_err();
            assert!(error.to_string().contains("48 or 80 bytes"), "{error}");
        }
        assert!(TicketKeys::from_files(&["/no/such/file"], BINDING).is_err());
    }
}
