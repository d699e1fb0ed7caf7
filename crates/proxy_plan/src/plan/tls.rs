//! TLS of listeners and pools: the settings, and the certificates that were read with the config.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rt::address::Address;
use rt::tls::{
    ClientTls, ClientTlsOptions, RevocationListInfo, ServerTls, ServerTlsOptions, TlsConfigError,
    Verification,
};

use super::{AcmePlan, ListenerPlan, Plan, PoolPlan, ServerHttp, ServerPlan};

#[derive(Clone, Debug)]
pub struct ListenerTls {
    /// Files and versions.
    pub options: ServerTlsOptions,
    pub directory: Option<PathBuf>,
    /// Field of requests with the subject of the client's certificate.
    pub client_header: Option<Box<str>>,
    /// Value of `Strict-Transport-Security` in all responses (RFC 6797).
    pub hsts: Option<Box<str>>,
    pub acme: Option<AcmePlan>,
    /// Fault of the stored automatic certificate, which is not used.
    pub stored_fault: Option<TlsConfigError>,
    /// Certificates and keys, as they were when the config was read.
    pub server: ServerTls,
}

#[derive(Clone, Debug)]
pub struct PoolTls {
    /// Files and versions.
    pub options: ClientTlsOptions,
    /// Name that every server has to prove; `None`: its own.
    pub server_name: Option<Box<str>>,
    /// Authorities and the own certificate, as they were when the config was read.
    pub client: ClientTls,
    pub files_digest: u64,
}

impl PartialEq for ListenerTls {
    /// Compares the settings. The files are read again at each reload, and nothing depends on
    /// a change of them.
    fn eq(&self, other: &Self) -> bool {
        (&self.options, &self.directory, &self.client_header, &self.hsts, &self.acme)
            == (&other.options, &other.directory, &other.client_header, &other.hsts, &other.acme)
    }
}

impl PartialEq for PoolTls {
    /// Compares settings and contents: connections to servers that were verified in another way
    /// are not used.
    fn eq(&self, other: &Self) -> bool {
        (&self.options, &self.server_name, self.files_digest)
            == (&other.options, &other.server_name, other.files_digest)
    }
}

impl ListenerTls {
    /// Returns the files that a reload reads again.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let certificates = self.options.certificates.iter();
        let certificates = certificates.flat_map(|files| {
            [Some(&*files.certificate), Some(&*files.key), files.ocsp.as_deref()].into_iter().flatten()
        });
        let ticket_keys = self.options.ticket_key_files.iter().map(|path| &**path);
        certificates
            .chain(self.options.client_ca.as_deref())
            .chain(ticket_keys)
            .chain(self.revocation_files())
    }
}

impl ListenerTls {
    pub fn revocation_files(&self) -> impl Iterator<Item = &Path> {
        self.options.client_revocation.files.iter().map(|path| &**path)
    }
}

impl PoolTls {
    pub fn revocation_files(&self) -> impl Iterator<Item = &Path> {
        self.options.revocation.files.iter().map(|path| &**path)
    }

    /// Returns the files that a reload reads again.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let own = self.options.certificate.iter();
        let authorities = match &self.options.verification {
            Verification::CaFile(path) => Some(&**path),
            Verification::HostRoots | Verification::Off => None,
        };
        own.flat_map(|files| [&*files.certificate, &*files.key])
            .chain(authorities)
            .chain(self.revocation_files())
    }

    /// Returns the same settings for connections that offer another version of HTTP.
    pub fn with_http(&self, http: ServerHttp) -> Self {
        let mut tls = self.clone();
        if tls.options.alpn != http.alpn() {
            tls.options.alpn = http.alpn();
            tls.client = tls.client.with_alpn(&tls.options.alpn);
        }
        tls
    }

    pub fn name_of<'a>(&'a self, server: &'a ServerPlan) -> Cow<'a, str> {
        match (&self.server_name, &server.host, &server.address) {
            (Some(name), ..) | (None, Some(name), _) => Cow::Borrowed(name),
            (None, None, Address::Tcp(address)) => Cow::Owned(address.ip().to_string()),
            (None, None, Address::Unix(_)) => Cow::Borrowed("localhost"),
        }
    }
}

impl PoolPlan {
    /// Returns whether connections that were made under `other` carry the same: not if they were
    /// made in another namespace or from other source addresses, have another client's address, were verified in another way or
    /// have another version of HTTP.
    pub fn shares_connections_with(&self, other: &Self) -> bool {
        let settings = |pool: &Self| (pool.send_proxy_protocol, pool.http, pool.http2);
        let is_same_origin = (&self.namespace, &self.sources) == (&other.namespace, &other.sources);
        is_same_origin && (settings(self), &self.tls) == (settings(other), &other.tls)
    }
}

impl Plan {
    /// Returns the revocation lists of all listeners, with the names of the listeners.
    pub fn revocation_lists(&self) -> impl Iterator<Item = (&str, &RevocationListInfo)> {
        let listeners = self.listeners.iter().filter_map(|listener| Some((listener, listener.tls.as_ref()?)));
        listeners
            .flat_map(|(listener, tls)| tls.server.revocation_lists().map(|list| (&*listener.name, list)))
    }

    /// Returns the fault of a stored automatic certificate, which is not used.
    pub fn stored_fault(&self) -> Option<&TlsConfigError> {
        self.listeners.iter().find_map(|listener| listener.tls.as_ref()?.stored_fault.as_ref())
    }

    /// Returns the files whose changes are followed without `--watch`: revocation lists are replaced more
    /// often than a config.
    pub fn followed_files(&self) -> impl Iterator<Item = &Path> {
        let listeners = self.listeners.iter().filter_map(|listener| listener.tls.as_ref());
        let pools = self.pools.iter().filter_map(|pool| pool.tls.as_ref());
        let lists = listeners.flat_map(ListenerTls::revocation_files);
        self.servers_files().chain(lists).chain(pools.flat_map(PoolTls::revocation_files))
    }

    /// Returns the plan with the automatic certificates that are stored now.
    ///
    /// # Errors
    /// A stored file is faulty.
    pub fn with_stored_certificates(&self) -> Result<Self, TlsConfigError> {
        let renewed = |listener: &ListenerPlan| {
            let mut listener = listener.clone();
            if let Some(tls) = &mut listener.tls
                && let Some(acme) = &tls.acme
            {
                if let Some(fault) = acme.complete(&mut tls.options) {
                    return Err(fault);
                }
                let server = ServerTls::new(&tls.options);
                // At least one fault is reported.
                tls.server = server.map_err(|mut faults| faults.remove(0))?;
            }
            Ok(listener)
        };
        let listeners: Arc<[_]> = self.listeners.iter().map(renewed).collect::<Result<_, _>>()?;
        Ok(Self { listeners, ..self.clone() })
    }

    /// Returns the plan with the TLS sessions of `previous`, so that clients resume them.
    #[must_use]
    pub fn with_tls_sessions_of(self, previous: &Self) -> Self {
        let continued = |listener: &ListenerPlan| {
            let mut listener = listener.clone();
            let old = previous.listeners.iter().find(|old| old.name == listener.name);
            if let (Some(tls), Some(old)) = (&mut listener.tls, old.and_then(|old| old.tls.as_ref())) {
                tls.server = tls.server.with_sessions_of(&old.server);
            }
            listener
        };
        let listeners: Arc<[_]> = self.listeners.iter().map(continued).collect();
        Self { listeners, ..self }
    }
}
